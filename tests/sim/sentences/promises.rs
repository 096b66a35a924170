//! Sentence 14: what the agent promises about the servers' objects is done a while after the last
//! fault: the file with the pod CIDR, the node password of k3s, the end of stray pods, the labels of
//! a Node that was made anew. An event that a busy server refuses is sent again, and not before the
//! time that the server said. Each change of Ready or of the boot id that the server stored is told,
//! also if the answer was lost. The first request of a process is not late, whatever addresses a name
//! has.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Judged, Run, Sentence};
use crate::sim::process::Pid;
use crate::sim::trace::{Got, What};
use crate::sim::world::ready_of;

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
    /// Those whose last request was refused so, and until when the server wants none.
    waiting: BTreeMap<(Pid, String), (u64, Duration)>,
}

/// The longest delay of an event that the agent takes from a server (src/node/events).
const LONGEST_DELAY: Duration = Duration::from_secs(10);

impl Refused {
    fn take(&mut self, at: Duration, what: &What, judged: &mut Judged) {
        match what {
            What::Request(it) if it.method == "POST" && it.target.contains("/events") => {
                let name = it.body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                if let Some((_, until)) = self.waiting.remove(&(it.pid, name.clone())) {
                    judged.count += 1;
                    if at < until {
                        let text = format!("{name} is sent again, and the server said {until:?}");
                        judged.breaks(at, "event too early", text);
                    }
                }
                self.sent.insert(it.number, (it.pid, name));
            }
            What::Got(Got {
                number,
                code: 429 | 500..,
                retry_after: Some(delay),
                is_odd,
                is_broken,
                ..
            }) if !(*is_odd || *is_broken) => {
                let Some(event) = self.sent.remove(number) else { return };
                let times = self.times.entry(event.clone()).or_default();
                *times += 1;
                if *times < TRIES {
                    self.waiting.insert(event, (*times, at + (*delay).min(LONGEST_DELAY)));
                }
            }
            What::Ends { pid, .. } => self.waiting.retain(|(of, _), _| of != pid),
            _ => {}
        }
    }
}

/// The changes of the Node that a server stored, and whose events were not told yet: by process and
/// reason, since when.
#[derive(Default)]
struct Untold {
    owed: BTreeMap<(Pid, &'static str), Duration>,
}

/// The read that finds a change, and its backoff.
const TOLD: Duration = Duration::from_secs(60);

/// What shows the agent another Node than the one that it wrote.
const HIDES: [&str; 9] = [
    " node-",
    " etcd-",
    " server-l",
    " other-",
    " cluster-",
    " servers-",
    " condition-",
    " writes-",
    " join-",
];

impl Untold {
    fn take(&mut self, at: Duration, what: &What) {
        match what {
            What::Answer(it) if it.is_carried_out && it.method == "PATCH" && it.is_node_write() => {
                let (status, before) = (&it.body["status"], &it.before["status"]);
                let mut owes = |reason| self.owed.insert((it.pid, reason), at);
                let boot =
                    |status: &Value| status["nodeInfo"]["bootID"].as_str().map(str::to_owned);
                // Another machine of this name was not a boot of this board.
                let old = boot(before).filter(|old| old.starts_with("00000000"));
                if old.is_some() && boot(status).is_some_and(|new| Some(new) != old) {
                    owes("has been rebooted");
                }
                let ready = |node: &Value| ready_of(node).to_owned();
                let (old, new) = (ready(&it.before), ready(&it.body));
                if !old.is_empty() && !new.is_empty() && old != new {
                    owes(if new == "True" { "now: NodeReady" } else { "now: NodeNotReady" });
                }
            }
            What::Log { pid, text, .. } => {
                self.owed.retain(|(of, reason), _| of != pid || !text.contains(reason));
            }
            What::Ends { pid, .. } | What::Signal { pid, .. } => {
                self.owed.retain(|(of, _), _| of != pid);
            }
            What::Fault { text, .. } if HIDES.iter().any(|part| text.contains(part)) => {
                self.owed.clear();
            }
            _ => {}
        }
    }
}

fn judge(run: &Run<'_>) -> Judged {
    let mut judged = Judged::default();
    let (mut refused, mut untold) = (Refused::default(), Untold::default());
    // A process may end without a request while another one has not sent its first one.
    let (mut has_fault, mut started) = (false, BTreeMap::new());
    for entry in run.trace {
        refused.take(entry.at, &entry.what, &mut judged);
        untold.take(entry.at, &entry.what);
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
                let mut owed = untold.owed.iter();
                if let Some(((_, reason), at)) = owed.find(|(_, at)| **at + TOLD < entry.at) {
                    let text = format!("no event of {reason:?} after the change at {at:?}");
                    judged.breaks(entry.at, "a change is not told", text);
                }
                if let Some(((_, name), (times, _))) = refused.waiting.first_key_value() {
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
    use crate::sim::sentences::tests::{at, fault, log_line, renewal, run};
    use crate::sim::trace::{Entry, Exchange, State};

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
        let retry_after = Some(Duration::from_secs(5));
        let busy = Got { number: 7, code: 429, retry_after, ..Got::default() };
        let event = |seconds, number| {
            let (method, target) = ("POST".to_owned(), "/api/v1/events".to_owned());
            let body = serde_json::json!({"metadata": {"name": "e"}});
            let request = Exchange { number, method, target, body, ..Exchange::default() };
            at(seconds, What::Request(Box::new(request)))
        };
        let quiet = || at(15, What::Judged(Box::new(State { is_up: true, ..State::default() })));
        let dropped = [event(3, 7), at(4, What::Got(busy)), quiet()];
        assert_eq!(run(&dropped, judge).broken.unwrap().kind, "event");
        let again = |seconds| [event(3, 7), at(4, What::Got(busy)), event(seconds, 8), quiet()];
        assert!(run(&again(9), judge).broken.is_none());
        assert_eq!(run(&again(8), judge).broken.unwrap().kind, "event too early");
    }

    #[test]
    fn a_change_without_an_event_is_found() {
        let node = |ready, boot| {
            serde_json::json!({"status": {"conditions": [{"type": "Ready", "status": ready}],
                "nodeInfo": {"bootID": boot}}})
        };
        let target = "/api/v1/nodes/pi/status".to_owned();
        let change = |before: Value, body: Value| {
            let (method, target) = ("PATCH".to_owned(), target.clone());
            let change = Exchange { method, target, before, body, ..Exchange::default() };
            at(9, What::Answer(Box::new(Exchange { pid: 1, is_carried_out: true, ..change })))
        };
        let quiet = || at(99, What::Judged(Box::new(State { is_up: true, ..State::default() })));
        let line = |text| log_line(20, log::Level::Info, "", text);
        let kind = |trace: &[Entry]| run(trace, judge).broken.map(|broken| broken.kind);
        let lost = Some("a change is not told");
        let ready = || change(node("Unknown", "a"), node("True", "a"));
        assert_eq!(kind(&[ready(), quiet()]).as_deref(), lost);
        assert_eq!(kind(&[ready(), line("Node pi status is now: NodeReady"), quiet()]), None);
        let other = line("Node pi status is now: NodeNotReady");
        assert_eq!(kind(&[ready(), other, quiet()]).as_deref(), lost);
        assert_eq!(kind(&[ready(), fault(50, true, "node-deleted"), quiet()]).as_deref(), lost);
        assert_eq!(kind(&[ready(), fault(50, true, "at 50 node-deleted"), quiet()]), None);
        assert_eq!(
            kind(&[change(node("True", "00000000-a"), node("True", "b")), quiet()]).as_deref(),
            lost
        );
        assert_eq!(kind(&[change(node("", ""), node("True", "b")), quiet()]), None);
    }
}
