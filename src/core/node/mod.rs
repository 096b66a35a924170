//! The Node: its next request, and what the response means.
//!
//! The Node is registered (created or adopted). Then its status is computed at every tick. It is
//! sent when it differs from the cached Node, or when the report period has passed. The patch of a
//! report is also the read: its precondition holds only if the cached Node is still the server's,
//! so a foreign change, however small, is answered with 409. After a 409 or an unanswered patch the
//! Node is read before the next write; a patch is always rebuilt from the cached Node and never
//! sent twice. After a 404 the Node is created again, or with `--register-node=false` read until
//! another client has created it.
//! Upstream: `pkg/kubelet/kubelet_node_status.go`.

mod foreign_changes;
mod problems;
mod reconcile;
mod request;
mod response;
mod state;

pub use request::time_probe;

use std::time::Duration;

use serde_json::Value;

use crate::config::Config;
use crate::core::conditions;
use crate::core::events::Event;
use crate::core::eviction::Pressures;
use crate::core::facts::Facts;
use crate::core::instant::Mono;
use crate::core::problems::Listed;
use crate::kube::message::Refused;
use crate::kube::object;

use self::state::{Round, State};

/// Delay after a failed Node request: 100 ms, doubled up to 7 s, as of the kubelet's
/// registerWithAPIServer. As there, the first registration also waits for 100 ms, so the delay
/// after its first failure is 200 ms.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(7);

/// The cached Node, the state of its requests, and when the next one is due.
#[derive(Debug)]
pub struct Node {
    state: State,
    /// The Node of the last response, with our patches applied, without managedFields.
    seen: Option<Value>,
    /// The conditions about the board's health.
    problems: Listed,
    /// Inputs of the last computation that needed no patch; cleared by every response.
    last_noop: Option<LastNoop>,
    backoff: Duration,
    /// Events that [`Node::take_events`] has not returned yet.
    events: Vec<Event>,
    /// An unanswered patch, and its events in case the server applied it.
    unconfirmed: Option<(Value, Vec<Event>)>,
    /// `spec.unschedulable` of the last read.
    unschedulable: bool,
    /// `spec.podCIDRs` of the last read, joined by commas.
    pod_cidrs: String,
    /// Changed `spec.podCIDRs` that [`Node::new_pod_cidrs`] has not returned yet.
    new_pod_cidrs: Option<String>,
    /// Boot id of another board that writes to this Node; empty if there is none.
    foreign_boot_id: String,
    read_at: Mono,
    /// The refusal of the create, until the Node is known to exist.
    forbidden: Option<Refused>,
    /// When an unchanged status must be sent again.
    report_due: Mono,
    /// Others probably write before the next report, which then reads first: controllers react to
    /// a new Node or a changed condition, and a client that caused a conflict may write again.
    expects_writes: bool,
    due: Mono,
}

/// The inputs of a status that needed no patch. Equal inputs give an equal status.
#[derive(Debug)]
struct LastNoop {
    facts: Facts,
    pressures: Pressures,
    /// One line for each missing fact.
    missing: Vec<String>,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// More requests are needed: an adoption, or a conflict.
    Continue,
    /// The Node was read.
    Read,
    /// The status was sent.
    Updated,
    /// The Node was created.
    Registered,
    /// Adopted: the Node existed before this process.
    Adopted,
    /// The Node was deleted on the server.
    Gone,
    /// The server refused the request.
    Refused(Refused),
    /// The server did not respond.
    Silent(String),
}

impl Node {
    /// A Node that was not read yet. With `register` it is created if it does not exist.
    pub fn new(register: bool, now: Mono) -> Self {
        Self {
            state: match register {
                true => State::Create,
                false => State::Read(Round::default()),
            },
            seen: None,
            problems: Listed::default(),
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
            expects_writes: false,
            due: now.after(FIRST_BACKOFF),
        }
    }

    /// When the next turn of the Node is due.
    pub fn due(&self) -> Mono {
        self.due
    }

    /// The uid of the Node on the server, if known.
    pub fn uid(&self) -> Option<&str> {
        let uid = object::text(self.seen.as_ref()?, &["metadata", "uid"]);
        (!uid.is_empty()).then_some(uid)
    }

    /// Whether the Node is registered and only its status is left to update.
    pub fn is_registered(&self) -> bool {
        self.seen.is_some() && !self.state.registers()
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The Node may have changed on the server: the next request is a read, due at `now`.
    pub fn read_again(&mut self, now: Mono) {
        if let State::Known(round) = self.state {
            self.state = State::Read(round);
        }
        self.due = now;
    }

    /// Moves the next computation forward to `by`. Retries are not moved.
    pub fn compute_status_by(&mut self, by: Mono) {
        if matches!(self.state, State::Known(round) if !round.adopts) {
            self.due = self.due.min(by);
        }
    }

    /// Whether the next request is [`Self::read`], which needs no facts.
    pub fn must_read(&self, config: &Config, now: Mono) -> bool {
        match self.state {
            State::Create | State::Creating => false,
            State::Known(_) => {
                let resync = config
                    .resync_frequency
                    .is_some_and(|period| now.since(self.read_at) >= period);
                resync || (self.expects_writes && self.is_report_due(now))
            }
            State::Read(_) | State::Reading(_) | State::Patching { .. } => true,
        }
    }

    /// `spec.podCIDRs`, joined by commas, if they changed since the last call.
    pub fn new_pod_cidrs(&mut self) -> Option<String> {
        self.new_pod_cidrs.take()
    }

    /// `Ready since 2026-11-21T06:18:51Z`, from the cached Node.
    pub fn ready(&self) -> Option<String> {
        let ready = conditions::find(self.seen.as_ref()?, "Ready")?;
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

/// The time between two status computations: 4 % more than the frequency, which is the most that
/// the kubelet waits. A renewal of the Lease, which is due earlier, computes it in its own wakeup.
fn tick(config: &Config) -> Duration {
    config.update_frequency + config.update_frequency / 25
}

/// The resourceVersion, which is the precondition of a patch.
fn resource_version(node: &Value) -> &str {
    object::text(node, &["metadata", "resourceVersion"])
}

#[cfg(test)]
mod tests;
