//! The Node: which request is next, and what its answer means.
//!
//! Registration (create, or adopt what exists), then a status that is computed at
//! every tick and sent when it differs from what the server last showed us, or when
//! it has not been sent for the report period. Whatever contradicts us (409, 404, an
//! outage) makes us read before we write again; a patch is always rebuilt from what
//! was read, never sent twice.
//! Upstream: `pkg/kubelet/kubelet_node_status.go`; differences: README.

mod foreign_changes;
mod reconcile;
mod request;
mod response;
mod state;

pub use request::time_probe;

use std::time::Duration;

use serde_json::Value;

use crate::config::Config;
use crate::core::events::Event;
use crate::core::eviction::Pressures;
use crate::core::facts::Facts;
use crate::core::instant::Mono;
use crate::kube::message::Refused;
use crate::kube::object;

use self::state::{Round, State};

/// Backoff of registration: 100 ms, doubled, at most 7 s.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Our Node, as far as we and the server agree about it.
#[derive(Debug)]
pub struct Node {
    state: State,
    /// The Node as the server last showed it, with our patches applied; no managedFields.
    seen: Option<Value>,
    /// Inputs of the last computation that needed no patch; cleared by every response.
    last_noop: Option<LastNoop>,
    backoff: Duration,
    /// Not handed out by [`Node::take_events`] yet.
    events: Vec<Event>,
    /// A patch without a response, and the events that it deserves if it was applied.
    unconfirmed: Option<(Value, Vec<Event>)>,
    /// `spec.unschedulable` when last read.
    unschedulable: bool,
    /// `spec.podCIDRs` when last read, joined by commas.
    pod_cidrs: String,
    /// The same, until [`Node::new_pod_cidrs`] hands it out.
    new_pod_cidrs: Option<String>,
    /// Boot id of another board that writes to this Node.
    foreign_boot_id: String,
    read_at: Mono,
    /// Why the server refused the create, until the Node turns out to exist.
    forbidden: Option<Refused>,
    /// When an unchanged status must be sent again.
    report_due: Mono,
    due: Mono,
}

/// What a status was computed from that needed no patch. Equal inputs give an equal status.
#[derive(Debug)]
struct LastNoop {
    facts: Facts,
    pressures: Pressures,
    /// A line for each fact that is missing.
    missing: Vec<String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// One more step of a longer way: adopting, a conflict to resolve.
    Continue,
    /// The server showed us what it holds.
    Read,
    /// The status was sent.
    Updated,
    /// Created by us: the first line of this board's history.
    Registered,
    /// Adopted: the Node existed before this process.
    Adopted,
    /// Deleted by somebody.
    Gone,
    /// The server said no.
    Refused(Refused),
    /// The server said nothing.
    Silent(String),
}

impl Node {
    /// A Node not yet seen. With `register`, it is created where there is none.
    pub fn new(register: bool, now: Mono) -> Self {
        Self {
            state: match register {
                true => State::Create,
                false => State::Read(Round::default()),
            },
            seen: None,
            last_noop: None,
            backoff: FIRST_BACKOFF * 2,
            events: Vec::new(),
            unconfirmed: None,
            unschedulable: false,
            pod_cidrs: String::new(),
            new_pod_cidrs: None,
            foreign_boot_id: String::new(),
            read_at: now,
            forbidden: None,
            report_due: now,
            due: now.after(FIRST_BACKOFF),
        }
    }

    /// When the next turn of the Node is due.
    pub fn due(&self) -> Mono {
        self.due
    }

    /// The uid of the Node on the server, once known.
    pub fn uid(&self) -> Option<&str> {
        let uid = object::text(self.seen.as_ref()?, &["metadata", "uid"]);
        (!uid.is_empty()).then_some(uid)
    }

    /// Whether the Node is registered, and status is all there is to do.
    pub fn is_registered(&self) -> bool {
        self.seen.is_some() && !self.state.registers()
    }

    /// What happened since the last call and deserves an event.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The Node may have changed on the server: the next request reads it, now.
    pub fn doubt(&mut self, now: Mono) {
        if let State::Known { round, .. } = self.state {
            self.state = State::Read(round);
        }
        self.due = now;
    }

    /// Brings the next computation forward to `by`. A retry keeps its pace.
    pub fn hurry(&mut self, by: Mono) {
        if matches!(self.state, State::Known { round, .. } if !round.adopts) {
            self.due = self.due.min(by);
        }
    }

    /// Whether the next request is [`Self::read`]: it needs no facts.
    pub fn must_read(&self, config: &Config, now: Mono) -> bool {
        let State::Known { just_read, .. } = self.state else {
            return !matches!(self.state, State::Create | State::Creating);
        };
        let report = now >= self.report_due && !just_read;
        let resync = config
            .resync_frequency
            .is_some_and(|period| now.since(self.read_at) >= period);
        report || resync
    }

    /// `spec.podCIDRs`, joined by commas, where they are not what they were.
    pub fn new_pod_cidrs(&mut self) -> Option<String> {
        self.new_pod_cidrs.take()
    }

    /// `Ready since 2026-11-21T06:18:51Z`, as the server holds it.
    pub fn ready(&self) -> Option<String> {
        let conditions = object::list(self.seen.as_ref()?, &["status", "conditions"]);
        let ready = conditions
            .iter()
            .find(|condition| object::text(condition, &["type"]) == "Ready")?;
        let since = object::text(ready, &["lastTransitionTime"]);
        Some(match object::text(ready, &["status"]) {
            "True" => format!("Ready since {since}"),
            _ => {
                let why = object::text(ready, &["message"]);
                format!("not Ready since {since} ({why})")
            }
        })
    }
}

/// The version that a patch must be built from.
fn resource_version(node: &Value) -> &str {
    object::text(node, &["metadata", "resourceVersion"])
}

#[cfg(test)]
mod tests;
