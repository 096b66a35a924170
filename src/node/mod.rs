//! The Node: which request is next, and what its answer means.
//!
//! Registration (create, or adopt what exists), then a status that is computed at
//! every tick and sent when it differs from what the server last showed us, or when
//! it has not been sent for the report period. Whatever contradicts us (409, 404, an
//! outage) makes us read before we write again; a patch is always rebuilt from what
//! was read, never sent twice.
//! Upstream: `pkg/kubelet/kubelet_node_status.go`; differences: README.

mod answer;
mod others;
mod reconcile;
mod request;

pub use request::glance;

use std::time::Duration;

use serde_json::Value;

use crate::config::Config;
use crate::events::Event;
use crate::eviction::Pressures;
use crate::facts::Facts;
use crate::kube::message::Refused;
use crate::kube::object;
use crate::now::Mono;

/// Backoff of registration: 100 ms, doubled, at most 7 s.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// Our Node, as far as we and the server agree about it.
#[derive(Debug)]
pub struct Node {
    phase: Phase,
    /// The Node as the server last showed it, with our patches applied; no managedFields.
    seen: Option<Value>,
    /// `seen` may be out of date: read before the next patch.
    doubted: bool,
    /// What `seen` says already; forgotten with every answer.
    settled: Option<Settled>,
    /// Read in this very tick.
    fresh: bool,
    /// What the request under way would make of `seen`.
    sent: Sent,
    backoff: Duration,
    conflicts: u32,
    /// What happened and was not told yet.
    events: Vec<Event>,
    /// A patch whose answer was not heard: what it wanted, and what that deserves to be
    /// told if it turns out to have been applied.
    unheard: Option<(Value, Vec<Event>)>,
    /// Whether the Node was cordoned when last seen.
    unschedulable: bool,
    /// `spec.podCIDRs` as last seen, joined by commas.
    pod_cidrs: String,
    /// The same, where nobody was told yet.
    new_pod_cidrs: Option<String>,
    /// Boot id of another board that writes to this Node.
    namesake: String,
    read_at: Mono,
    /// Why the server would not let us create the Node, until it turns out to exist.
    forbidden: Option<Refused>,
    /// When an unchanged status must be sent again.
    report_due: Mono,
    due: Mono,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The Node is to be created.
    Create,
    /// It exists already: read it, and make it ours.
    Adopt,
    /// Keep its status current.
    Update,
}

/// What a status was computed from that was no reason to patch: from the same it would
/// be the same again.
#[derive(Debug)]
struct Settled {
    facts: Facts,
    pressures: Pressures,
    /// A line for each fact that is missing.
    missing: Vec<String>,
}

#[derive(Debug)]
enum Sent {
    Nothing,
    Create,
    Read,
    Patch { want: Value, changed: bool },
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
            phase: match register {
                true => Phase::Create,
                false => Phase::Update,
            },
            seen: None,
            doubted: false,
            settled: None,
            fresh: false,
            sent: Sent::Nothing,
            backoff: FIRST_BACKOFF * 2,
            conflicts: 0,
            events: Vec::new(),
            unheard: None,
            unschedulable: false,
            pod_cidrs: String::new(),
            new_pod_cidrs: None,
            namesake: String::new(),
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
        self.phase == Phase::Update && self.seen.is_some()
    }

    /// What happened since the last call and deserves an event.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Something happened to the Node, or may have: read it, now.
    pub fn doubt(&mut self, now: Mono) {
        self.doubted = true;
        self.due = now;
    }

    /// Brings the next tick forward. What is being retried keeps its pace.
    pub fn hurry(&mut self, by: Mono) {
        if self.is_registered() && !self.doubted {
            self.due = self.due.min(by);
        }
    }

    /// Whether the next request is [`Self::read`]: it needs no facts.
    pub fn must_read(&self, config: &Config, now: Mono) -> bool {
        let unread = self.doubted || self.seen.is_none();
        let report = now >= self.report_due && !self.fresh;
        let resync = config
            .resync_frequency
            .is_some_and(|period| now.since(self.read_at) >= period);
        self.phase != Phase::Create && (unread || report || resync)
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
