//! Sentence 14: what the agent promises about the servers' objects is done a while after the last
//! fault: the file with the pod CIDR, the node password of k3s, the end of stray pods, the labels of
//! a Node that was made anew. An event that a busy server refuses is sent again. The first request
//! of a process is not late, whatever addresses a name has.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::process::Pid;
use crate::sim::trace::{Got, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 14, name: "promises", judge };

/// Go's clients try the next address after 0.3 s.
const FIRST_REQUEST: Duration = Duration::from_secs(3);

/// An event of a busy server is given up after so many refusals (CHANGELOG.md).
const TRIES: u64 = 10;

/// The events that busy servers have refused, by process and name, and how often.
#[derive(Default)]
struct Refused {
    /// Requests without an answer yet, by number.
    sent: BTreeMap<u64, (Pid, String)>,
    times: BTreeMap<(Pid, String), u64>,
    /// Those whose last request was refused so.
    waiting: BTreeMap<(Pid, String), u64>,
}

impl Refused {
    fn take(&mut self, what: &What) {
        match what {
            What::Request(it) if it.method == "POST" && it.target.contains("/events") => {
                let name = it.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                self.waiting.remove(&(it.pid, name.clone()));
                self.sent.insert(it.number, (it.pid, name));
            }
            What::Got(Got {
                number,
                code: 429 | 500..,
                has_retry_after: true,
                is_odd,
                is_broken,
                ..
            }) if !(*is_odd || *is_broken) => {
                let Some(event) = self.sent.remove(number) else { return };
                let times = self.times.entry(event.clone()).or_default();
                *times += 1;
                if *times < TRIES {
                    self.waiting.insert(event, *times);
                }
            }
            What::Ends { pid, .. } => self.waiting.retain(|(of, _), _| of != pid),
            _ => {}
        }
    }
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let mut refused = Refused::default();
    // A process may end without a request while another one has not sent its first one.
    let (mut has_fault, mut started) = (false, BTreeMap::new());
    for entry in run.trace {
        refused.take(&entry.what);
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
                if let Some(((_, name), times)) = refused.waiting.first_key_value() {
                    let text = format!("{name} was refused {times} times, and is not sent again");
                    judged.breaks(entry.at, "event", text);
                }
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

    #[test]
    fn an_event_that_is_not_sent_again_is_found() {
        let busy = Got { number: 7, code: 429, has_retry_after: true, ..Got::default() };
        let event = |number| {
            let (method, target) = ("POST".to_owned(), "/api/v1/events".to_owned());
            let body = serde_json::json!({"metadata": {"name": "e"}});
            let request = Exchange { number, method, target, body, ..Exchange::default() };
            at(3, What::Request(Box::new(request)))
        };
        let quiet = || at(5, What::Judged(Box::new(State { is_up: true, ..State::default() })));
        let dropped = [event(7), at(4, What::Got(busy)), quiet()];
        assert_eq!(run(&dropped, judge).broken.unwrap().kind, "event");
        let again = [event(7), at(4, What::Got(busy)), event(8), quiet()];
        assert!(run(&again, judge).broken.is_none());
    }
}
