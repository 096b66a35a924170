//! A bounded queue of events with a rate limit.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;

use super::Event;
use crate::core::instant::{Mono, Now};
use crate::core::token_bucket::TokenBucket;
use crate::kube::message::{Accept, Outcome, Request};
use crate::kube::text::one_line;

/// Limit of the events that wait.
const MAX_WAITING: usize = 32;
/// Limit of the sent events whose repetition is counted.
const MAX_SENT: usize = 16;

/// Limit of attempts to send one event.
const TRIES: u32 = 2;

/// Events of a Node, which has no namespace, are in `default`.
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Events to be sent, and those that were sent.
#[derive(Debug)]
pub struct Queue {
    node_name: String,
    waiting: VecDeque<Waiting>,
    sent: VecDeque<Sent>,
    /// The time in the last name, in nanoseconds. Names increase even if the clock does not.
    last_name: u64,
    limit: TokenBucket,
}

#[derive(Debug)]
struct Waiting {
    event: Event,
    at: Mono,
    tries: u32,
    /// Its name on the server, after the first attempt.
    name: Option<String>,
}

/// An event that the server has stored.
#[derive(Debug)]
struct Sent {
    event: Event,
    name: String,
    count: u32,
}

impl Queue {
    /// An empty queue. It sends at most `per_second` events, and `burst` at once; 0 per second is no
    /// limit.
    pub fn new(node_name: &str, per_second: u32, burst: u32) -> Self {
        let every = match per_second {
            0 => Duration::ZERO,
            limit => Duration::from_secs(1) / limit,
        };
        Self {
            limit: TokenBucket::new(every, burst),
            node_name: node_name.to_owned(),
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            last_name: 0,
        }
    }

    /// Adds an event. A full queue drops it.
    pub fn push(&mut self, mut event: Event, at: Mono) {
        // It may contain the boot id of another board.
        event.message = one_line(&event.message);
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(Waiting {
                event,
                at,
                tries: 0,
                name: None,
            });
        }
    }

    /// The Node was recreated: events of the old one are no longer counted.
    pub fn forget(&mut self) {
        self.sent.clear();
    }

    /// Whether an event waits and the rate limit allows it.
    pub fn is_due(&self, now: Mono) -> bool {
        !self.waiting.is_empty() && self.limit.has_token(now)
    }

    /// The request for the oldest event. Its time is computed from the current wall clock, which may
    /// have been set since the event.
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
        // As client-go: the object's name and the time in hexadecimal nanoseconds.
        let name = || {
            self.last_name = at.nanos().max(self.last_name.saturating_add(1));
            format!("{}.{:x}", self.node_name, self.last_name)
        };
        let name = first.name.get_or_insert_with(name).clone();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            // `kubectl describe node` finds events by the Node's uid. A kubelet of 1.36 omits it
            // (kubernetes#138524).
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

    /// Takes the outcome of the last request.
    pub fn on_response(&mut self, outcome: &Outcome) {
        let Some(mut first) = self.waiting.pop_front() else {
            return;
        };
        first.tries += 1;
        let counted = self.sent.iter().position(|sent| sent.event == first.event);
        let refused = match outcome {
            Outcome::Silent(_) => {
                self.retry(first);
                return;
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
                self.sent.truncate(MAX_SENT - 1);
                self.sent.push_front(Sent {
                    event: first.event,
                    name: first.name.unwrap_or_default(),
                    count: 1,
                });
            }
            // The server deletes events after an hour: create a new one.
            (Some(404), Some(index)) => {
                self.sent.remove(index);
                self.retry(first);
            }
            // Without an RTC an earlier boot may have used the same time in a name.
            (Some(409), None) => {
                first.name = None;
                self.retry(first);
            }
            (Some(_), _) => {}
        }
    }

    fn retry(&mut self, waiting: Waiting) {
        if waiting.tries < TRIES {
            self.waiting.push_front(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
