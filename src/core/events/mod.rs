//! Events: which a change of the Node deserves, and a bounded queue of them.
//!
//! They are for people who run `kubectl describe node`, and never worth a heartbeat:
//! the schedule sends one only when nothing else is due, an event that the server
//! refuses is dropped, one that it does not answer is tried once more, and the same
//! event again only raises a count.
//! Upstream: kubelet_node_status.go recordNodeStatusEvent, client-go `tools/record`.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::core::instant::{Mono, Now};
use crate::kube::message::{Accept, Outcome, Request};
use crate::kube::object;

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// CamelCase, for machines.
    pub reason: &'static str,
    /// One line, for people.
    pub message: String,
}

impl Event {
    /// The process began.
    pub fn starting() -> Self {
        Self {
            kind: "Normal",
            reason: "Starting",
            message: "Starting kubelet.".to_owned(),
        }
    }

    /// The Node was cordoned, or uncordoned.
    pub fn cordoned(node_name: &str, unschedulable: bool) -> Self {
        let reason = match unschedulable {
            true => "NodeNotSchedulable",
            false => "NodeSchedulable",
        };
        Self::status(node_name, reason)
    }

    /// Another board writes to the Node, too.
    pub fn name_conflict(node_name: &str, boot_id: &str) -> Self {
        Self {
            kind: "Warning",
            reason: "NodeNameConflict",
            message: format!(
                "Node {node_name} is also written by another board, boot id: {boot_id}; \
                 give each a name of its own with --hostname-override"
            ),
        }
    }

    fn status(node_name: &str, reason: &'static str) -> Self {
        Self {
            kind: "Normal",
            reason,
            message: format!("Node {node_name} status is now: {reason}"),
        }
    }
}

/// The condition, and the reasons of its events while it is true and while it is not.
const REASONS: [(&str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    ),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// What the change from `before` (none: created) to `after` deserves.
///
/// A pressure condition tells of its first observation, too; `Ready` only of a change.
pub fn of_change(node_name: &str, before: Option<&Value>, after: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let before = before.unwrap_or(&Value::Null);
    let boot_id = |node| object::text(node, &["status", "nodeInfo", "bootID"]).to_owned();
    let (old_boot, new_boot) = (boot_id(before), boot_id(after));
    if !old_boot.is_empty() && old_boot != new_boot {
        events.push(Event {
            kind: "Warning",
            reason: "Rebooted",
            message: format!("Node {node_name} has been rebooted, boot id: {new_boot}"),
        });
    }
    for (condition, on, off) in REASONS {
        let (then, now) = (status_of(before, condition), status_of(after, condition));
        let first = then.is_empty();
        if then != now && !(first && condition == "Ready") {
            let reason = match now {
                "True" => on,
                _ => off,
            };
            events.push(Event::status(node_name, reason));
        }
    }
    events
}

fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    object::list(node, &["status", "conditions"])
        .iter()
        .find(|condition| object::text(condition, &["type"]) == kind)
        .map(|condition| object::text(condition, &["status"]))
        .unwrap_or_default()
}

/// Most events that wait, and most that are remembered to be counted.
const WAITING: usize = 32;
const REMEMBERED: usize = 16;

/// How often one event is sent at most.
const TRIES: u32 = 2;

/// The namespace of a Node's events: Nodes have none.
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Events on their way.
#[derive(Debug)]
pub struct Queue {
    node_name: String,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    /// The nanoseconds of the last name: names rise, also where the clock stands still.
    named: u64,
    limit: Limit,
}

/// A bucket that `per_second` tokens flow into, and that holds `burst` of them.
#[derive(Debug)]
struct Limit {
    /// 0 is no limit.
    per_second: u32,
    /// Time that the bucket needs to fill.
    full: Duration,
    /// How much of that is in it, and since when.
    filled: Duration,
    since: Mono,
}

impl Limit {
    fn new(per_second: u32, burst: u32) -> Self {
        let full = Duration::from_secs(1) * burst.max(1) / per_second.max(1);
        Self {
            per_second,
            full,
            filled: full,
            since: Mono::START,
        }
    }

    /// What is in the bucket now, if that is one event's worth.
    fn allows(&self, now: Mono) -> bool {
        self.per_second == 0 || self.level(now) >= Duration::from_secs(1) / self.per_second
    }

    fn take(&mut self, now: Mono) {
        if self.per_second > 0 {
            let one = Duration::from_secs(1) / self.per_second;
            self.filled = self.level(now).saturating_sub(one);
            self.since = now;
        }
    }

    fn level(&self, now: Mono) -> Duration {
        self.filled
            .saturating_add(now.since(self.since))
            .min(self.full)
    }
}

#[derive(Debug)]
struct Waiting {
    event: Event,
    at: Mono,
    tries: u32,
    /// Its name on the server, once it was sent.
    name: Option<String>,
}

/// What the server already has.
#[derive(Debug)]
struct Sent {
    event: Event,
    name: String,
    count: u32,
}

impl Queue {
    /// No events. At most `per_second` are sent, and `burst` at once; 0 per second is no
    /// limit.
    pub fn new(node_name: &str, per_second: u32, burst: u32) -> Self {
        Self {
            limit: Limit::new(per_second, burst),
            node_name: node_name.to_owned(),
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            named: 0,
        }
    }

    /// Adds an event, or drops it where too many wait already.
    pub fn push(&mut self, event: Event, at: Mono) {
        if self.waiting.len() < WAITING {
            self.waiting.push_back(Waiting {
                event,
                at,
                tries: 0,
                name: None,
            });
        }
    }

    /// The Node was made anew: what was told of the old one is no longer counted.
    pub fn forget(&mut self) {
        self.sent.clear();
    }

    /// Whether there is something to send, and it may be.
    pub fn is_due(&self, now: Mono) -> bool {
        !self.waiting.is_empty() && self.limit.allows(now)
    }

    /// The request for the oldest event. When it happened is told by the clock of now,
    /// which may have been set since.
    pub fn request(&mut self, node_uid: &str, now: Now) -> Option<Request> {
        self.limit.take(now.mono);
        let first = self.waiting.front_mut()?;
        let at = now.wall.before(now.mono.since(first.at));
        let event = &first.event;
        if let Some(sent) = self.sent.iter().find(|sent| sent.event == *event) {
            let body = json!({"count": sent.count.saturating_add(1), "lastTimestamp": at.time()});
            let path = format!("{EVENTS}/{}", sent.name);
            return Some(Request::patch(path, Accept::Metadata, &body));
        }
        // As client-go names them: the object, and the time in hexadecimal nanoseconds.
        let name = || {
            self.named = at.nanos().max(self.named.saturating_add(1));
            format!("{}.{:x}", self.node_name, self.named)
        };
        let name = first.name.get_or_insert_with(name).clone();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            // With the Node's uid `kubectl describe node` finds it; a kubelet of 1.36
            // leaves it out (kubernetes#138524).
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self.node_name,
                "uid": node_uid,
            },
            "type": event.kind,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": "kubelet", "host": self.node_name},
            "reportingComponent": "kubelet",
            "reportingInstance": self.node_name,
            "firstTimestamp": at.time(),
            "lastTimestamp": at.time(),
            "count": 1,
        });
        Some(Request::post(EVENTS, Accept::Metadata, &body))
    }

    /// Takes the answer to the last request. Whether the server said anything.
    pub fn on_response(&mut self, outcome: &Outcome) -> bool {
        let Some(mut first) = self.waiting.pop_front() else {
            return true;
        };
        first.tries += 1;
        let counted = self.sent.iter().position(|sent| sent.event == first.event);
        let refused = match outcome {
            Outcome::Silent(_) => {
                self.retry(first);
                return false;
            }
            Outcome::Answered(response) => response.accepted().err(),
        };
        match (refused.map(|refused| refused.code), counted) {
            (None, Some(index)) => {
                if let Some(sent) = self.sent.get_mut(index) {
                    sent.count = sent.count.saturating_add(1);
                }
            }
            (None, None) => {
                self.sent.truncate(REMEMBERED - 1);
                self.sent.push_front(Sent {
                    event: first.event,
                    name: first.name.unwrap_or_default(),
                    count: 1,
                });
            }
            // It expired on the server, after an hour: begin a new one.
            (Some(404), Some(index)) => {
                self.sent.remove(index);
                self.retry(first);
            }
            // An earlier boot at the same moment of a clock without an RTC.
            (Some(409), None) => {
                first.name = None;
                self.retry(first);
            }
            (Some(_), _) => {}
        }
        true
    }

    fn retry(&mut self, waiting: Waiting) {
        if waiting.tries < TRIES {
            self.waiting.push_front(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
