//! The Node: its next request, and what the response means.
//!
//! Registration: the Node is read, and adopted, or created if it does not exist. A create that
//! fails is followed by a read: a webhook or a policy may refuse creates although the Node exists,
//! and its Lease must be renewed all the same.
//!
//! Then the status is computed at every tick. It is sent when it differs from the cached Node, or
//! when the report period has passed. A report needs no read before it: its precondition is the
//! resourceVersion of the cached Node, so the server answers 409 after any change of another
//! client. After a 409 or a patch without an answer the Node is read before the next write. A patch
//! is never sent twice: each one is built from the cached Node. After a 404 the Node is created
//! again, or with `--register-node=false` read until another client has created it.
//!
//! Between two reports a check finds a change of another client. A check is a patch that has only
//! the precondition: the server answers it like a report, and stores nothing. For example, it finds
//! that the control plane has set Ready to Unknown after an outage, which the control plane never
//! sets back.
//! Upstream: `pkg/kubelet/kubelet_node_status.go`.
//! Longer than 500 lines: the requests of one object, and their responses.

mod foreign_changes;
mod reconcile;
mod state;
mod times;

use serde_json::{Value, json};

use crate::config::Config;
use crate::kube::delay::Jitter;
use crate::kube::facts::{Facts, HealthConditions};
use crate::kube::instant::Mono;
use crate::kube::json::{self, MAX_VALUES, Unparsed};
use crate::kube::message::{self, Accept, Answer, Refused, Request, RequestError, accepted};
use crate::kube::object::{self, quantity};
use crate::kube::time::Wall;
use crate::kube::version::Version;
use crate::node::Progress;
use crate::node::conditions;
use crate::node::events::Event;
use crate::node::eviction::Pressures;
use crate::node::patch;
use crate::node::schedule::RequestKind;
use crate::node::status::{self, Desired};
use crate::node::wall_clock::ClusterNow;

use self::reconcile::reconcile;
use self::state::{Content, NodeState, Round};
use self::times::Times;

const NODES: &str = "/api/v1/nodes";

/// The number of conflicts in a row after which the next attempt is delayed
/// (nodeStatusUpdateRetry).
const CONFLICT_TRIES: u32 = 5;

/// The cached Node, the state of its requests, and their times.
#[derive(Debug)]
pub struct Node {
    /// Its `kubelet_version` follows the API server with `--kubelet-version=server`.
    pub(super) config: Config,
    state: NodeState,
    times: Times,
    /// The Node of the last response, with our patches applied, without managedFields.
    seen: Option<Value>,
    /// The conditions about the board's health.
    health: HealthConditions,
    /// The last patch was sent only because a health condition changed its status.
    is_early: bool,
    /// Inputs of the last computation that needed no patch; cleared by every response.
    last_noop: Option<LastNoop>,
    /// Events that [`Node::take_events`] has not returned yet.
    events: Vec<Event>,
    /// The Node as a patch without an answer would make it. If the next read shows that the server
    /// applied the patch, the events of its change are recorded. Kept until a read succeeds.
    unconfirmed: Option<Value>,
    /// `spec.unschedulable` of the last read.
    unschedulable: bool,
    /// `spec.podCIDRs` of the last whole Node, joined by commas; `None` before the first one.
    pod_cidrs: Option<String>,
    /// Changed `spec.podCIDRs` that [`Node::new_pod_cidrs`] has not returned yet.
    new_pod_cidrs: Option<String>,
    /// Boot id of the last facts that had one; empty if none had.
    own_boot_id: String,
    /// Boot id of another board that writes to this Node; empty if there is none.
    foreign_boot_id: String,
    /// When a foreign boot id was last read.
    shared: Option<Mono>,
    /// The uid of a Node that could not be read as a whole.
    partial_uid: Option<String>,
    /// The last read did not get the whole Node. If no uid is known, the next read is only of the
    /// metadata.
    wants_uid: bool,
    /// The refusal of the last create, until the Node is known to exist.
    refused_create: Option<Refused>,
}

/// The inputs of a status that needed no patch. Equal inputs give an equal status.
#[derive(Debug)]
struct LastNoop {
    facts: Facts,
    pressures: Pressures,
    /// One line for each missing fact.
    missing: Vec<String>,
}

impl Node {
    /// A Node that was not read yet. With `--register-node` it is created if it does not exist.
    pub fn new(config: Config, now: Mono) -> Self {
        Self {
            state: NodeState::first(&config),
            times: Times::new(&config, now),
            seen: None,
            health: HealthConditions::default(),
            is_early: false,
            last_noop: None,
            events: Vec::new(),
            unconfirmed: None,
            unschedulable: false,
            pod_cidrs: None,
            new_pod_cidrs: None,
            own_boot_id: String::new(),
            foreign_boot_id: String::new(),
            shared: None,
            partial_uid: None,
            wants_uid: false,
            refused_create: None,
            config,
        }
    }

    /// When the next turn of the Node is due.
    pub fn due(&self) -> Mono {
        self.times.due
    }

    /// The conditions of the Node as last read or written; empty if it is not known.
    pub fn conditions(&self) -> &[Value] {
        self.seen.as_ref().map_or(&[], |node| object::list(node, &["status", "conditions"]))
    }

    /// The boot id of the Node as last read or written; `None` if it is not known.
    pub fn boot_id(&self) -> Option<&str> {
        let seen = self.seen.as_ref()?;
        Some(object::text(seen, &["status", "nodeInfo", "bootID"]))
    }

    /// The uid of the Node on the server, if known.
    pub fn uid(&self) -> Option<&str> {
        match &self.seen {
            Some(seen) => Some(object::text(seen, &["metadata", "uid"])),
            None => self.partial_uid.as_deref(),
        }
    }

    /// The version of Kubernetes that an earlier process of nodelet has reported.
    pub fn own_version(&self) -> Option<Version> {
        let version = object::text(self.seen.as_ref()?, &["status", "nodeInfo", "kubeletVersion"]);
        version.split_once("-nodelet.").and_then(|(kubernetes, _)| Version::parse(kubernetes))
    }

    /// When the Node was created, by the server's clock; `None` if it was not read.
    pub fn created(&self) -> Option<Wall> {
        Wall::parse(object::text(self.seen.as_ref()?, &["metadata", "creationTimestamp"]))
    }

    /// Whether the Node is registered and only its status is left to update.
    pub fn is_registered(&self) -> bool {
        self.seen.is_some() && !self.state.registers()
    }

    /// When another machine was last seen to write to this Node.
    pub fn shared(&self) -> Option<Mono> {
        self.shared
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The Node may have changed on the server: the next request is a read, due at `now`.
    pub fn read_again(&mut self, now: Mono) {
        if let NodeState::Patch(round) = self.state {
            self.state = NodeState::Read(round);
        }
        self.times.due = now;
    }

    /// The Lease was not renewed for a while, or not yet: checks are frequent for two minutes.
    pub fn check_often(&mut self, now: Mono) {
        self.times.check_often(now);
    }

    /// Adds a computation at `by`, unless one is due earlier. A read or a retry that is due is not
    /// moved.
    pub fn compute_status_by(&mut self, by: Mono) {
        if self.waits_for_tick() && by < self.times.due {
            self.times.compute_at(by);
        }
    }

    /// The next status is computed at `at`, and sent, changed or not. A computation that is due
    /// earlier waits until then, and a retry that is due later does not.
    pub fn report_at(&mut self, at: Mono) {
        self.times.report_due = at;
        if self.waits_for_tick() {
            self.times.compute_at(at);
        } else {
            self.times.due = self.times.due.min(at);
        }
    }

    /// The Lease was renewed: moves the next computation forward to `now`. The tick counts from
    /// there, so the computations after it are earlier, too.
    pub fn compute_status_with_renewal(&mut self, now: Mono) {
        if self.waits_for_tick() {
            self.times.due = now;
        }
    }

    /// Whether the next status is sent, changed or not.
    pub fn is_report_due(&self, now: Mono) -> bool {
        now >= self.times.report_due
    }

    /// Whether the next write asks whether the Node has changed on the server.
    pub fn is_check_due(&self, now: Mono) -> bool {
        self.times.is_check_due(now)
    }

    fn waits_for_tick(&self) -> bool {
        matches!(self.state, NodeState::Patch(round) if !round.adopts)
    }

    /// What is due at [`Self::due`]: [`Self::read`], or [`Self::write`], which needs facts.
    pub fn next(&self) -> RequestKind {
        match self.state {
            NodeState::Create | NodeState::Patch(_) => RequestKind::WriteNode,
            NodeState::Read(_) | NodeState::Patching { .. } => RequestKind::ReadNode,
        }
    }

    /// `spec.podCIDRs`, joined by commas, if they changed since the last call; empty if the Node
    /// has none.
    pub fn new_pod_cidrs(&mut self) -> Option<String> {
        self.new_pod_cidrs.take()
    }

    /// `Ready since 2026-11-21T06:18:51Z`, from the cached Node.
    pub fn ready(&self) -> Option<String> {
        let ready = object::condition(self.seen.as_ref()?, "Ready")?;
        let since = object::text(ready, &["lastTransitionTime"]);
        Some(match object::text(ready, &["status"]) {
            "True" => format!("Ready since {since}"),
            _ => {
                let why = object::text(ready, &["message"]);
                format!("not Ready since {since} ({why})")
            }
        })
    }

    /// The request that reads the Node.
    pub fn read(&mut self) -> Request {
        self.wants_uid &= self.uid().is_none();
        let accept = if self.wants_uid { Accept::Metadata } else { Accept::Object };
        Request::get(self.path(), accept)
    }

    /// The create or patch that brings the Node to the status of `facts`, if one is needed, or a
    /// check, if one is due; and one line for each missing fact.
    pub fn write(
        &mut self,
        facts: &Facts,
        pressures: Pressures,
        now: ClusterNow,
    ) -> (Option<Request>, Vec<String>) {
        let report = self.is_report_due(now.mono());
        let check = self.is_check_due(now.mono());
        if let Some(last) = &mut self.last_noop
            && last.pressures == pressures
            && last.facts.same_status_as(facts)
            && !(report || check)
        {
            let missing = last.missing.clone();
            self.times.computed(now.mono());
            return (None, missing);
        }
        let Desired { mut node, missing } = self.desired(facts, pressures, now);
        self.health.clone_from(&facts.health);
        if let Ok(boot_id) = &facts.boot_id {
            self.own_boot_id.clone_from(boot_id);
        }
        let is_urgent = self.seen.is_some() && self.health.changes_status(self.conditions());
        let is_regular = report || self.state.registers();
        self.is_early = !is_regular && is_urgent && self.times.may_send_health(now.mono());
        let is_published = is_regular || self.is_early;
        if is_published {
            self.health.apply(object::elements(&mut node, &["status", "conditions"]), now.wall());
        }
        let mut waits = false;
        let request = match (&self.seen, self.state.round()) {
            (Some(seen), Some(round)) => {
                let change = patch::diff(seen, &node);
                let differs = change.as_ref().is_some_and(|change| needs_patch(seen, change));
                let may_change = report || self.times.change_limit.tokens(now.mono()) > 0;
                waits = differs && !may_change;
                let content = if round.adopts || (differs && may_change) {
                    Some(Content::Change)
                } else if report {
                    Some(Content::Report)
                } else {
                    check.then_some(Content::Check)
                };
                // A patch that is sent for another change has them, too: it sets their heartbeats.
                if content == Some(Content::Change) && !is_published {
                    let list = object::elements(&mut node, &["status", "conditions"]);
                    self.health.apply(list, now.wall());
                }
                content.and_then(|content| self.patch(node, content, now))
            }
            _ => Some(Request::post(NODES, Accept::Object, &node)),
        };
        if request.is_none() {
            self.state = NodeState::Patch(Round::default());
            self.times.computed(now.mono());
            // A change that must wait is computed again at the next tick.
            let is_noop = !waits && (is_published || !is_urgent);
            self.last_noop = is_noop.then(|| LastNoop {
                facts: facts.clone(),
                pressures,
                missing: missing.clone(),
            });
        }
        (request, missing)
    }

    /// The desired Node.
    fn desired(&self, facts: &Facts, pressures: Pressures, now: ClusterNow) -> Desired {
        let config = &self.config;
        let initial = || status::initial(config, facts, pressures, now.wall());
        match (&self.seen, self.state.round()) {
            (Some(seen), Some(round)) if round.adopts => {
                let mut ours = seen.clone();
                reconcile(&config.node, facts, &initial().node, &mut ours);
                status::desired(config, facts, pressures, &ours, now.wall())
            }
            (Some(seen), Some(_)) => status::desired(config, facts, pressures, seen, now.wall()),
            _ => initial(),
        }
    }

    /// Never `None`: only a Node with a resourceVersion is cached.
    fn patch(&mut self, want: Value, content: Content, now: ClusterNow) -> Option<Request> {
        let seen = self.seen.as_ref()?;
        debug_assert!(patch::is_precondition(resource_version(seen)), "{seen}");
        let (want, change) = if content == Content::Check {
            (seen.clone(), json!({}))
        } else {
            let mut want = want;
            let list = object::elements(&mut want, &["status", "conditions"]);
            conditions::set_heartbeat_times(
                list,
                |name| self.health.knows(name),
                &now.wall().time(),
            );
            // A report in the same second as the last one has equal heartbeats and no difference.
            // Then the conditions are sent as they are.
            let change = patch::diff(seen, &want).unwrap_or_else(|| {
                let conditions = object::list(&want, &["status", "conditions"]);
                json!({"status": {"conditions": conditions}})
            });
            (want, change)
        };
        let body = patch::with_precondition(change, resource_version(seen))?;
        let round = self.state.round().unwrap_or_default();
        self.state = NodeState::Patching { round, want, content };
        let path = format!("{}/status", self.path());
        Some(Request::patch(path, Accept::Metadata, &body))
    }

    /// Takes the answer to the last request. `jitter` spreads the reports of many boards.
    pub fn on_response(
        &mut self,
        answer: Answer,
        now: Mono,
        jitter: Jitter,
    ) -> Result<Progress, RequestError> {
        // Until the answer tells otherwise, the next request is a read.
        let next = self.state.read_again();
        let sent = std::mem::replace(&mut self.state, next);
        self.last_noop = None;
        self.times.computed(now);
        let is_partial = self.wants_uid;
        if matches!(sent, NodeState::Read(_)) {
            self.wants_uid = !is_partial;
        }
        let response = match accepted(answer) {
            Ok(response) => response,
            Err(RequestError { refused: Some(refused), .. }) => {
                return self.on_refusal(sent, *refused, now);
            }
            Err(silent) => {
                self.on_silence(sent, now);
                return Err(silent);
            }
        };
        // managedFields are half of a Node's bytes and unused.
        let body = message::parse_without(&response.body, &["managedFields"]);
        let body = body.filter(|body| is_identified(body, &self.config.node.name));
        match sent {
            NodeState::Create => {
                let Some(node) = body.and_then(whole) else {
                    self.times.back_off(now);
                    return Err(not_whole(&response.body).into());
                };
                self.record_events(&node, now);
                self.state = NodeState::Patch(Round::default());
                self.times.reported(true, now, jitter);
                self.detect_pod_cidrs(&node, now);
                self.seen = Some(node);
                Ok(Progress::Created)
            }
            NodeState::Read(round) => {
                let Some(node) = body.and_then(whole) else {
                    self.times.back_off(now);
                    if let Some(uid) = uid(&response.body, &self.config.node.name) {
                        self.partial_uid = Some(uid);
                        if is_partial {
                            return Ok(Progress::Continue);
                        }
                    }
                    return Err(not_whole(&response.body).into());
                };
                self.wants_uid = false;
                // Another client has deleted the Node and made it anew.
                let read = object::text(&node, &["metadata", "uid"]);
                let is_anew =
                    self.config.node.register && self.uid().is_some_and(|uid| uid != read);
                self.on_read(node, if is_anew { Round::ADOPTION } else { round }, now);
                Ok(Progress::Read)
            }
            NodeState::Patching { want, content: Content::Check, .. } => {
                let is_same =
                    body.is_some_and(|body| resource_version(&body) == resource_version(&want));
                self.state = if is_same {
                    NodeState::Patch(Round::default())
                } else {
                    NodeState::Read(Round::default())
                };
                self.times.confirmed_at = now;
                self.times.backoff.reset();
                Ok(Progress::Continue)
            }
            NodeState::Patching { round, want, content } => {
                let Some(body) = body else {
                    // As after silence: the server may have applied it.
                    self.on_silence(NodeState::Patching { round, want, content }, now);
                    return Err(not_whole(&response.body).into());
                };
                self.record_events(&want, now);
                self.seen = Some(patched(body, want));
                self.state = NodeState::Patch(Round::default());
                let is_changed = content == Content::Change;
                if is_changed {
                    self.times.change_limit.take(now);
                }
                self.times.reported(is_changed, now, jitter);
                Ok(if round.adopts { Progress::Adopted } else { Progress::Done })
            }
            NodeState::Patch(_) => {
                debug_assert!(false, "no request was sent");
                Ok(Progress::Continue)
            }
        }
    }

    /// Takes the Node that was read. If it has the change of an unanswered patch, the server
    /// applied that patch.
    fn on_read(&mut self, node: Value, round: Round, now: Mono) {
        self.detect_foreign_changes(&node, now);
        if let Some(want) = self.unconfirmed.take()
            && self.events_between(Some(&node), &want).is_empty()
        {
            let events = self.events_of(&want);
            self.events.extend(events);
        }
        self.seen = Some(node);
        self.refused_create = None;
        self.state = NodeState::Patch(round);
        self.times.confirmed_at = now;
        self.times.due = now;
    }

    /// The request of the state `sent` got no answer, so the server may have applied it. The next
    /// request is a read, by the state that [`Self::on_response`] has set. Here the read gets its
    /// delay.
    fn on_silence(&mut self, sent: NodeState, now: Mono) {
        self.keep_unconfirmed(sent);
        self.times.back_off(now);
    }

    fn on_refusal(
        &mut self,
        sent: NodeState,
        refused: Refused,
        now: Mono,
    ) -> Result<Progress, RequestError> {
        match (sent, refused.code, refused.reason.as_str()) {
            // The Node may exist all the same, or another client must create it: it is read at
            // once. After a `Retry-After` the last arm delays the read.
            (NodeState::Create, ..) if refused.retry_after.is_none() => {
                self.times.due = now;
                self.refused_create = Some(refused);
                Ok(Progress::Continue)
            }
            (NodeState::Read(_) | NodeState::Patching { .. }, 404, _)
                if refused.is_missing("nodes", &self.config.node.name) =>
            {
                self.on_missing(refused, now)
            }
            (NodeState::Patching { mut round, .. }, 409, _) => {
                round.conflicts = (round.conflicts + 1) % CONFLICT_TRIES;
                self.state = NodeState::Read(round);
                if round.conflicts == 0 {
                    return Err(refused.into());
                }
                self.times.due = now;
                Ok(Progress::Continue)
            }
            (sent, code, _) => {
                // The server may have applied the patch, as after a time-out of etcd.
                if code >= 500 {
                    self.keep_unconfirmed(sent);
                }
                self.times.refused(refused.retry_after, now);
                Err(refused.into())
            }
        }
    }

    /// The server may have applied a patch: the Node that it wanted is kept for the next read.
    fn keep_unconfirmed(&mut self, sent: NodeState) {
        if let NodeState::Patching { want, .. } = sent {
            self.unconfirmed = Some(want);
        }
    }

    /// The server has no Node. It is created at once if this process has neither seen it nor been
    /// refused to create it.
    fn on_missing(&mut self, refused: Refused, now: Mono) -> Result<Progress, RequestError> {
        self.partial_uid = None;
        let existed = self.seen.take().is_some();
        self.take_pod_cidrs(String::new());
        let refused_create = self.refused_create.take();
        if self.config.node.register {
            self.state = NodeState::Create;
            if !existed && refused_create.is_none() {
                self.times.due = now;
                return Ok(Progress::Continue);
            }
            self.times.back_off(now);
        } else {
            self.state = NodeState::Read(Round::default());
        }
        if existed {
            return Ok(Progress::Gone);
        }
        // The refusal of the create is the cause of the 404.
        Err(refused_create.unwrap_or(refused).into())
    }

    /// Records the events of a change that the server has stored.
    fn record_events(&mut self, after: &Value, now: Mono) {
        let events = self.events_of(after);
        if self.is_early {
            self.times.health_sent_at = Some(now);
        }
        self.events.extend(events);
    }

    /// A small request for the server's time: every response carries a `Date`.
    pub fn time_probe(&self) -> Request {
        Request::get(self.path(), Accept::Metadata)
    }

    fn path(&self) -> String {
        format!("{NODES}/{}", self.config.node.name)
    }
}

/// The resourceVersion, which is the precondition of a patch.
fn resource_version(node: &Value) -> &str {
    object::text(node, &["metadata", "resourceVersion"])
}

/// Whether a change needs a patch. A change of only annotations, or of a drifting amount, is sent
/// with the next patch.
fn needs_patch(seen: &Value, change: &Value) -> bool {
    let is_drift = |status: &Value| {
        let Value::Object(status) = status else { return false };
        let mut lists = status.iter();
        !status.is_empty()
            && lists.all(|(list, amounts)| is_drift(object::at(seen, &["status", list]), amounts))
    };
    change.get("status").is_some_and(|status| !is_drift(status))
        || object::at(change, &["metadata", "labels"]).is_some()
}

/// Whether only bytes of memory or storage change, by 1 % at most: the size of a ZFS data set
/// changes with each write to another data set of its pool, and a balloon driver changes the
/// memory.
fn is_drift(seen: Option<&Value>, amounts: &Value) -> bool {
    let (Some(Value::Object(seen)), Value::Object(amounts)) = (seen, amounts) else {
        return false;
    };
    amounts.keys().all(|name| {
        ["memory", "ephemeral-storage"].contains(&name.as_str())
            && quantity(seen, name)
                .zip(quantity(amounts, name))
                .is_some_and(|(seen, amount)| amount.is_near(seen))
    })
}

/// A body that is a whole Node.
fn whole(body: Value) -> Option<Value> {
    (object::text(&body, &["kind"]) == "Node").then_some(body)
}

/// Why a body is no whole Node.
fn not_whole(body: &[u8]) -> Refused {
    match json::parse_without(body, &[]) {
        Err(Unparsed::TooLarge) => Refused::useless(format!(
            "the Node has more than {MAX_VALUES} values; kubectl get node -o yaml shows what to \
             remove"
        )),
        _ => Refused::nonsense("a Node"),
    }
}

/// The uid of our Node in a body that may be too large, or only its metadata.
fn uid(body: &[u8], name: &str) -> Option<String> {
    let body = message::parse_without(body, &["labels", "spec", "status"])?;
    is_identified(&body, name).then(|| object::text(&body, &["metadata", "uid"]).to_owned())
}

/// The Node after a patch: the metadata of the response and the rest as sent.
fn patched(mut body: Value, sent: Value) -> Value {
    if object::text(&body, &["kind"]) == "Node" {
        return body;
    }
    let mut node = sent;
    let metadata = object::members(&mut body, &[]).remove("metadata").unwrap_or_default();
    object::set(&mut node, &["metadata"], metadata);
    node
}

/// Whether a body is our Node, or its metadata, with a uid and a resourceVersion.
fn is_identified(body: &Value, name: &str) -> bool {
    object::is_kind(body, "Node")
        && object::text(body, &["metadata", "name"]) == name
        && !object::text(body, &["metadata", "uid"]).is_empty()
        && patch::is_precondition(resource_version(body))
}

#[cfg(test)]
mod tests;
