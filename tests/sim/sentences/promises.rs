//! Sentence 14: what the agent promises about the servers' objects is done a while after the last
//! fault: the file with the pod CIDR, the node password of k3s, the end of stray pods. And the
//! first request of a process is not late, whatever addresses a name has.

use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::trace::What;

pub(super) const SENTENCE: Sentence = Sentence { number: 14, name: "promises", judge };

/// Go's clients try the next address after 0.3 s.
const FIRST_REQUEST: Duration = Duration::from_secs(3);

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let (mut has_fault, mut started) = (false, None);
    for entry in run.trace {
        match &entry.what {
            What::Fault { .. } => (has_fault, started) = (true, None),
            What::Starts { .. } if !has_fault => started = Some(entry.at),
            What::Request(_) => {
                let Some(start) = started.take() else { continue };
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
    use crate::sim::trace::State;

    #[test]
    fn a_late_first_request_and_a_broken_promise_are_found() {
        let start = || at(2, What::Starts { pid: 1, name: "nodelet", line: String::new() });
        let first = |seconds| at(seconds, What::Request(Box::default()));
        assert!(run(&[start(), first(4)], judge).broken.is_none());
        assert_eq!(run(&[start(), first(9)], judge).broken.unwrap().kind, "first request");
        let promises = Some(vec![("podcidr", "it has none".to_owned())]);
        let state = State { promises, is_up: true, ..State::default() };
        let judged = run(&[renewal(1), at(5, What::Judged(Box::new(state)))], judge);
        assert_eq!(judged.broken.unwrap().kind, "podcidr");
    }
}
