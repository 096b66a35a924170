//! Sentence 14: what the agent promises about the servers' objects is done a while after the last
//! fault: the file with the pod CIDR, the node password of k3s, the end of stray pods. And the
//! first request of a process is not late, whatever addresses a name has.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 14, name: "promises", judge };

/// Go's clients try the next address after 0.3 s.
const FIRST_REQUEST: Duration = Duration::from_secs(3);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    // A process may end without a request while another one has not sent its first one.
    let (mut has_fault, mut started) = (false, BTreeMap::new());
    for entry in run.trace {
        match &entry.what {
            What::Fault { .. } => (has_fault, started) = (true, BTreeMap::new()),
            // A check first opens a connection for its line about TCP.
            What::Starts { pid, name, .. } if !has_fault && *name != "nodelet check" => {
                started.insert(*pid, entry.at);
            }
            What::Request(request) => {
                let Some(start) = started.remove(&request.pid) else { continue };
                judged.count += 1;
                let took = entry.at - start;
                if took > FIRST_REQUEST {
                    let text = format!("the first request comes {took:?} after the start");
                    judged.breaks(entry.at, "first request", text);
                }
            }
            What::Judged(state) if state.excuse.is_none() && state.is_up => {
                let Some(promises) = &state.promises else { continue };
                judged.count += 1;
                if let Some((kind, text)) = promises.first() {
                    judged.breaks(entry.at, kind, text.clone());
                }
            }
            _ => {}
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::sentences::tests::{at, renewal, run};
    use crate::sim::trace::{Exchange, State};

    #[test]
    fn a_late_first_request_and_a_broken_promise_are_found() {
        let starts = |name| at(2, What::Starts { pid: 1, name, line: String::new() });
        let start = || starts("nodelet");
        let request = |pid| What::Request(Box::new(Exchange { pid, ..Exchange::default() }));
        let first = |seconds| at(seconds, request(1));
        let of_another = at(9, request(3));
        assert!(run(&[start(), of_another], judge).broken.is_none());
        assert!(run(&[start(), first(4)], judge).broken.is_none());
        assert_eq!(run(&[start(), first(9)], judge).broken.unwrap().kind, "first request");
        assert!(run(&[starts("nodelet check"), first(9)], judge).broken.is_none());
        let promises = Some(vec![("podcidr", "it has none".to_owned())]);
        let state = State { promises, is_up: true, ..State::default() };
        let judged = run(&[renewal(1), at(5, What::Judged(Box::new(state)))], judge);
        assert_eq!(judged.broken.unwrap().kind, "podcidr");
    }
}
