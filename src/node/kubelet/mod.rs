//! The decisions of the kubelet's node half: the next [`Action`], and what a response means for the
//! Lease, the Node, the stray pods, the events and the schedule.
//!
//! The loop in `agent` supplies time, facts and responses. The tests run this code against
//! simulated servers that refuse, send invalid bodies or do not respond, and check the lease law.
//! Longer than 500 lines: one state, and one function for each thing that may happen to it.

mod shutdown;

use std::borrow::Cow;
use std::time::Duration;

use serde_json::Value;

use crate::config::{Config, NodeConfig, kubelet_version};
use crate::kube::facts::{Facts, Sign};
use crate::kube::instant::{ClusterSeen, Mono, Now};
use crate::kube::lease_report::LeaseReport;
use crate::kube::message::{Answer, Request, RequestError, Response};
use crate::kube::outage_log::OutageLog;
use crate::kube::text::VERBOSE;
use crate::kube::x509::Leaf;
use crate::node::events::{Event, EventQueue};
use crate::node::eviction::{Eviction, Pressures};
use crate::node::lease::Lease;
use crate::node::object::Node;
use crate::node::pods::Pods;
use crate::node::schedule::{Action, DueTimes, LeaseTimings, RequestKind, Schedule};
use crate::node::server_version::ServerVersion;
use crate::node::wall_clock::{ClusterNow, WallClock};
use crate::node::{Effect, Progress};

use self::shutdown::Shutdown;

/// Work that is not the kubelet's own: steps of the credentials, and file changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtherWork {
    /// When the next step of the credentials is due; `None` if no certificate is renewed.
    pub credentials_due: Option<Mono>,
    /// The next step of the credentials does not need the Lease's server.
    pub is_apart: bool,
    /// There are no credentials, and so no other request is possible.
    pub lacks_credentials: bool,
    /// A file change is under way.
    pub has_change: bool,
    /// A look at the board's health is due.
    pub has_look: bool,
}

/// The state of the Node, the Lease, the stray pods and the events, and when each is due.
#[derive(Debug)]
pub struct Kubelet {
    timings: LeaseTimings,
    schedule: Schedule,
    wall_clock: WallClock,
    /// Next request for the server's time, while the time is unknown.
    time_due: Mono,
    eviction: Eviction,
    node: Node,
    lease: Lease,
    pods: Pods,
    server_version: ServerVersion,
    events: EventQueue,
    /// Start of the last renewal that succeeded.
    renewed: Option<Mono>,
    /// Renewals since the start.
    renewals: u64,
    /// Attempts to renew since the start that failed.
    failed_renewals: u64,
    /// The Lease was deleted. The Node may be deleted too; it was not read since.
    lease_gone: bool,
    /// One line for each failed health check, from the last computed status.
    unhealthy: Vec<String>,
    pressures: Pressures,
    registered: bool,
    /// The end of the last [`Action::ReadFacts`], until its facts are used.
    facts_at: Option<Mono>,
    /// When a fact may change that nothing announces, until the status is computed from these
    /// facts.
    facts_change: Option<Mono>,
    /// The first turn is over.
    has_begun: bool,
    /// This process has created the Node.
    has_created: bool,
    /// SIGUSR1 announced that the machine goes down.
    shutdown: Option<Shutdown>,
    lease_log: OutageLog,
    node_log: OutageLog,
    pods_log: OutageLog,
    version_log: OutageLog,
    facts_log: OutageLog,
}

/// How long after the start failed health checks are repeated every [`FAST_TICK`]
/// (nodeReadyGracePeriod of the kubelet's fastStatusUpdateOnce).
const FAST_START: Duration = Duration::from_secs(120);
/// Period of health checks while [`Kubelet::unhealthy_while_starting`] has lines.
pub const FAST_TICK: Duration = Duration::from_millis(100);
/// Heartbeat times have whole seconds: a report this much later has another heartbeat time.
const NEXT_HEARTBEAT: Duration = Duration::from_secs(1);
/// Period at which a wrong clock is read again: no notification reports that it was set.
const CLOCK_TICK: Duration = Duration::from_secs(1);

impl Kubelet {
    /// The state at process start. `seed` is any number that differs between boards.
    pub fn new(config: Config, wall_clock: WallClock, seed: u64, now: Mono) -> Self {
        let lease_duration = Duration::from_secs(config.lease_duration_seconds.into());
        let timings = LeaseTimings { lease_duration };
        let mut events = EventQueue::new(&config.node.name, config.event_qps, config.event_burst);
        events.push(Event::starting(), now);
        Self {
            timings,
            schedule: Schedule::new(timings, seed),
            wall_clock,
            time_due: now,
            eviction: Eviction::new(&config.thresholds, config.pressure_transition_period),
            lease: Lease::new(&config.node.name, config.lease_duration_seconds),
            pods: Pods::new(&config.node),
            server_version: ServerVersion::new(config.reports_server_version),
            events,
            renewed: None,
            renewals: 0,
            failed_renewals: 0,
            lease_gone: false,
            unhealthy: Vec::new(),
            pressures: Pressures::default(),
            registered: false,
            facts_at: None,
            facts_change: None,
            has_begun: false,
            has_created: false,
            shutdown: None,
            lease_log: OutageLog::new("lease"),
            node_log: OutageLog::new("node"),
            pods_log: OutageLog::new("pods"),
            version_log: OutageLog::new("version"),
            facts_log: OutageLog::new("facts"),
            node: Node::new(config, now),
        }
    }

    /// The configuration that decides the content of the Node, and its addresses.
    pub fn node_config(&self) -> &NodeConfig {
        &self.node.config.node
    }

    /// The time limit of the response to a Lease request that had to open its connection, from the
    /// moment at which the connection is open; `None` for other requests. Without this limit, a
    /// server that accepts connections and does not respond would use up the time for the next
    /// address of its name.
    pub fn answer_budget(&self, kind: RequestKind) -> Option<Duration> {
        (kind == RequestKind::Lease).then(|| self.timings.answer_budget())
    }

    /// The next step. `connected` is called only if a request is due.
    pub fn next(
        &mut self,
        now: Now,
        other_work: OtherWork,
        connected: impl FnOnce() -> bool,
    ) -> Action {
        self.follow_shutdown(now.mono);
        let turn = match (self.next_turn(now, other_work, connected), self.has_begun) {
            // The first registration waits: its connection is opened meanwhile.
            (Action::Wait(_), false) => Action::Connect(self.timings.connect_and_call_budget()),
            (Action::Wait(until), true) if self.shutdown.is_none() => {
                self.needs_no_server(other_work).unwrap_or(Action::Wait(until))
            }
            (turn, _) => turn,
        };
        self.has_begun = true;
        match &self.shutdown {
            // A message would create a Node that nobody renews, and an event needs its uid.
            Some(shutdown) if shutdown.ends() && self.is_gone() => Action::End,
            Some(shutdown) => {
                let event_due = self.events.due(now.mono);
                shutdown.limit(turn, self.schedule.is_silent(), event_due, now.mono)
            }
            None => turn,
        }
    }

    /// What has its turn before a wait, whatever the server does. A look at the board's health
    /// mostly comes with a write of the Node. But no write comes in an outage or without
    /// credentials, and few do with a long `nodeStatusUpdateFrequency`: what grew until then would
    /// count as of a later look. The first look waits for the conditions of the Node that an
    /// earlier process wrote, unless the first request fails.
    fn needs_no_server(&self, other_work: OtherWork) -> Option<Action> {
        let has_failed = self.node_log.last_error().is_some() || other_work.lacks_credentials;
        let is_known = self.renewed.is_some() || self.node.uid().is_some();
        match other_work {
            OtherWork { has_change: true, .. } => Some(Action::Change),
            OtherWork { has_look: true, .. } if is_known || has_failed => Some(Action::ReadFacts),
            _ => None,
        }
    }

    fn next_turn(
        &mut self,
        now: Now,
        other_work: OtherWork,
        connected: impl FnOnce() -> bool,
    ) -> Action {
        if self.wall_clock.cluster_now(now).is_none() {
            let is_due = other_work.credentials_due.is_some_and(|due| due <= now.mono);
            // The server that is asked for the time may never respond: a file may name another one,
            // or it refuses the expired certificate within TLS.
            let has_none = other_work.lacks_credentials || self.wall_clock.knows_expiry_alone(now);
            if has_none && other_work.is_apart && is_due {
                return Action::Credentials(self.timings.connect_and_call_budget());
            }
            let tick = now.mono.after(CLOCK_TICK);
            return if self.time_due <= now.mono {
                Action::Send(RequestKind::Time, self.timings.connect_and_call_budget())
            } else {
                Action::Wait(self.time_due.min(tick))
            };
        }
        self.wall_clock.log_state(now);
        // Only after the facts were used: the write that used them has set the time of the next
        // computation, and `at` may move that time forward.
        if self.facts_at.is_none()
            && let Some(at) = self.facts_change.take()
        {
            self.compute_status_by(at);
        }
        match self.schedule.next(now.mono, &self.due_times(now.mono, other_work), connected) {
            Action::Send(RequestKind::Certificate { .. }, budget) => Action::Credentials(budget),
            Action::Send(RequestKind::WriteNode, _) if !self.has_facts(now.mono) => {
                Action::ReadFacts
            }
            action => action,
        }
    }

    /// Whether the facts for a write of the Node were read, not longer than 20 s ago (with the
    /// usual duration). A read of facts is a turn of its own, so that the time limit of the request
    /// is computed after the read. After a slow read the Lease may go first, and the facts are
    /// still used: otherwise a board whose reads are slow would never write its Node.
    fn has_facts(&self, now: Mono) -> bool {
        let is_new = |at| now.since(at) < self.timings.connect_and_call_budget();
        self.facts_at.is_some_and(is_new)
    }

    /// An [`Action::ReadFacts`] has ended. At `change` a fact may change that nothing announces, so
    /// the status is computed again at that time.
    pub fn on_facts(&mut self, change: Option<Mono>, now: Mono) {
        self.facts_at = Some(now);
        self.facts_change = change;
    }

    /// Whether the next status is sent, changed or not.
    pub fn is_report_due(&self, now: Mono) -> bool {
        self.node.is_report_due(now)
    }

    /// Whether there is no Lease to renew: a read of facts may then block for longer.
    pub fn has_no_lease(&self) -> bool {
        self.node.uid().is_none()
    }

    /// The request of this kind, from the facts of the last [`Action::ReadFacts`]. `None` if
    /// nothing is to be sent: the status needs no patch, the Node or the time is not known yet, or
    /// it is a certificate's request, which `credentials` makes.
    pub fn request(&mut self, kind: RequestKind, now: Now, facts: &Facts) -> Option<Request> {
        let cluster_now = self.wall_clock.cluster_now(now);
        match kind {
            RequestKind::Lease => Some(self.lease.request(self.node.uid()?, cluster_now?)),
            RequestKind::Event => self.events.request(self.node.uid()?, cluster_now?),
            RequestKind::Pods => Some(self.pods.request(now.mono)),
            RequestKind::Version => Some(self.server_version.request()),
            // `credentials` has it.
            RequestKind::Certificate { .. } => None,
            RequestKind::Time => {
                self.time_due = now.mono.after(self.timings.renew_interval());
                Some(self.node.time_probe())
            }
            RequestKind::ReadNode => Some(self.node.read()),
            RequestKind::WriteNode => self.write(facts, cluster_now?),
        }
    }

    fn write(&mut self, facts: &Facts, now: ClusterNow) -> Option<Request> {
        self.facts_at = None;
        self.pressures = self.eviction.synchronize(facts, now.mono());
        let mut seen = Cow::Borrowed(facts);
        if self.shutdown.is_some() {
            seen.to_mut().unhealthy.push("node is shutting down".to_owned());
        }
        let (request, missing) = self.node.write(&seen, self.pressures, now);
        self.unhealthy.clone_from(&facts.unhealthy);
        let error = (!missing.is_empty()).then(|| missing.join(" | "));
        self.facts_log.ended(error.as_deref(), now.mono());
        if request.is_none() {
            self.node_log.succeeded(now.mono());
        }
        request
    }

    /// The conditions of the Node as last read or written; empty if it is not known.
    pub fn node_conditions(&self) -> &[Value] {
        self.node.conditions()
    }

    /// The id of the boot in which the Node was written before this process wrote it; empty if this
    /// process created it, `None` if the Node is not known.
    pub fn found_boot_id(&self) -> Option<&str> {
        if self.has_created { Some("") } else { self.node.boot_id() }
    }

    /// Whether a write of the Node by this process has succeeded.
    pub fn has_written(&self) -> bool {
        self.registered
    }

    /// Takes the signs about the board's health that were found since the last call.
    pub fn on_signs(&mut self, signs: Vec<Sign>, now: Mono) {
        for sign in signs {
            self.events.record(Event::of_sign(sign), false, now);
        }
    }

    /// On a PSI trigger, computes the status now unless MemoryPressure is already reported.
    pub fn on_memory_pressure(&mut self, now: Mono) {
        if self.pressures.memory != Some(true) {
            self.compute_status_now(now);
        }
    }

    /// Computes the status from facts that are read after this call.
    pub fn compute_status_now(&mut self, now: Mono) {
        self.facts_at = None;
        self.compute_status_by(now);
    }

    /// The failed health checks of the last status, within 120 s after the start. While there are
    /// any, the caller repeats the checks every [`FAST_TICK`].
    pub fn unhealthy_while_starting(&self, now: Mono) -> Option<&[String]> {
        let waiting = !self.unhealthy.is_empty() && now < Mono::START.after(FAST_START);
        waiting.then_some(self.unhealthy.as_slice())
    }

    /// Adds a computation of the status at `by`. If facts were read and not used yet, `by` is kept
    /// until the write that uses them, because that write sets the time of the next computation.
    pub fn compute_status_by(&mut self, by: Mono) {
        match self.facts_at {
            Some(_) => self.facts_change = Some(self.facts_change.map_or(by, |at| at.min(by))),
            None => self.node.compute_status_by(by),
        }
    }

    fn due_times(&self, now: Mono, other_work: OtherWork) -> DueTimes {
        let node_due = (!other_work.lacks_credentials).then(|| self.node.due());
        // After SIGTERM the status is sent, and there is no time for a certificate.
        let ends = self.shutdown.as_ref().is_some_and(Shutdown::ends);
        // The version first: it is a part of the Node.
        let version_is_due = self.server_version.is_due();
        let node = if version_is_due { RequestKind::Version } else { self.node.next() };
        let certificate = RequestKind::Certificate { is_apart: other_work.is_apart };
        [
            // It is rarely due, and after its expiry every request fails.
            (certificate, other_work.credentials_due.filter(|_| !ends)),
            (node, node_due),
            // Not before the third renewal: a kubelet of this name on another machine writes its
            // boot id to the Node every 10 s, and its pods are no strays.
            (RequestKind::Pods, self.pods.due().filter(|_| self.renewals > 2)),
            (RequestKind::Event, self.events.due(now)),
        ]
    }

    /// The state of the Lease after the request that was sent at `start`, for `nodelet serve`. An
    /// accepted create or patch counts as a renewal, and each failed request as a failure. An
    /// accepted GET counts as neither.
    fn lease_report(&self, start: Mono) -> LeaseReport {
        let since_boot = |at: Mono| self.wall_clock.boot_to_start + at.since(Mono::START);
        LeaseReport {
            attempted: since_boot(start),
            renewed: self.renewed.map(since_boot),
            lease_duration: self.timings.lease_duration,
            renewals: self.renewals,
            failures: self.failed_renewals,
            // The agent's `StateFile` sets the number of the boot when it writes the report.
            boot: 0,
        }
    }

    /// [`Action::Connect`] failed. The first request connects again.
    pub fn on_connect_failed(&mut self, why: &str, now: Mono) {
        self.node_log.failed(why, now);
    }

    /// What is known of the cluster at `now`, for `credentials`.
    pub fn cluster_seen(&self, now: Now) -> ClusterSeen {
        let time = self.wall_clock.judging_time(now);
        ClusterSeen {
            now: Now { wall: time.unwrap_or(now.wall), ..now },
            knows_time: time.is_some(),
            has_date: time.is_some() && !self.wall_clock.knows_expiry_alone(now),
            board: now.wall,
            has_lease: self.renewed.is_some(),
            node_created: self.node.created(),
        }
    }

    /// The server has refused the certificate in use within TLS as one that is not valid at this
    /// time.
    pub fn on_expired(&mut self, leaf: &Leaf, now: Now) {
        self.wall_clock.on_expired(leaf, now);
    }

    /// Other credentials are in use.
    pub fn on_new_credentials(&mut self) {
        self.wall_clock.on_new_certificate();
        self.pods.credentials_changed();
    }

    /// Takes what every answer tells: the server's time, and whether the server responds. After a
    /// request for a certificate the agent calls only this function, because `credentials` takes
    /// the rest of the answer.
    pub fn on_answer(&mut self, kind: RequestKind, answer: &Answer, now: Mono) {
        if let Ok(Response { date: Some(date), .. }) = answer {
            self.wall_clock.on_server_date(*date, now);
        }
        match (kind, answer) {
            // `on_lease_response` tells the schedule more about a Lease. The server's time is
            // requested while nothing is scheduled. A certificate's request over a client of its
            // own may go to another server.
            (RequestKind::Lease | RequestKind::Time, _)
            | (RequestKind::Certificate { is_apart: true }, _) => {}
            (_, Ok(_)) => self.schedule.request_answered(),
            (_, Err(_)) => self.schedule.request_silent(now),
        }
    }

    /// Takes the answer to the request that was sent at `start`, and returns what the agent must
    /// do.
    pub fn on_response(
        &mut self,
        kind: RequestKind,
        answer: Answer,
        start: Mono,
        now: Now,
    ) -> Vec<Effect> {
        self.on_answer(kind, &answer, now.mono);
        let mut effects = Vec::new();
        let result = match kind {
            RequestKind::Lease => self.on_lease_response(answer, start, now.mono),
            // `credentials` takes it.
            RequestKind::Certificate { .. } => Ok(()),
            RequestKind::ReadNode | RequestKind::WriteNode => {
                self.on_node_response(answer, now.mono, &mut effects)
            }
            RequestKind::Version => self.on_version_response(answer, now.mono),
            RequestKind::Pods => self.on_pods_response(answer, now),
            RequestKind::Event => self.events.on_response(answer, now.mono),
            RequestKind::Time => {
                self.wall_clock.log_state(now);
                answer.map(drop).map_err(RequestError::from)
            }
        };
        if kind == RequestKind::Lease {
            effects.push(Effect::LeaseAttempted(self.lease_report(start)));
        }
        if let Err(error) = result {
            effects.extend(self.on_error(kind, &error, now.mono));
        }
        effects
    }

    /// Logs why a request failed. A failure with the pods, the version or an event closes no
    /// connection, because the Lease needs it.
    fn on_error(&mut self, kind: RequestKind, error: &RequestError, now: Mono) -> Option<Effect> {
        let RequestError { why, refused } = error;
        let log = match kind {
            RequestKind::Lease => &mut self.lease_log,
            RequestKind::ReadNode | RequestKind::WriteNode | RequestKind::Time => {
                &mut self.node_log
            }
            RequestKind::Pods => {
                self.pods_log.failed(&why.to_string(), now);
                return None;
            }
            RequestKind::Version => {
                let reported = &self.node.config.node.kubelet_version;
                let kept = format!("a version that nodelet wrote stays, else it is {reported}");
                self.version_log.failed(&format!("{why}; {kept}"), now);
                return None;
            }
            RequestKind::Event if refused.is_some() => {
                log::info!(target: VERBOSE, "event: {why}");
                return None;
            }
            RequestKind::Event | RequestKind::Certificate { .. } => return None,
        };
        let failures = log.failed(&why.to_string(), now);
        self.leave_server(error, failures)
    }

    /// Decides after a refusal whether the agent leaves the server. `failures` is the number of
    /// failures of the same kind of request in a row.
    ///
    /// - A final refusal keeps the connection. So does a first refusal without a long
    ///   `Retry-After`.
    /// - A first refusal with a `Retry-After` that is longer than a call (5 s) goes to another
    ///   address of the server's name, if it has one: the Lease cannot wait for so long.
    /// - After a second refusal the connection is closed. The next one goes to another address, or
    ///   is at least a new connection, which a gateway may forward to another server.
    /// - A busy server (429) is left only for another address, because a new connection would add
    ///   to its load.
    pub fn leave_server(&self, error: &RequestError, failures: u32) -> Option<Effect> {
        let refused = error.refused.as_deref()?;
        let patience = self.timings.call_budget();
        let is_late = refused.retry_after.is_some_and(|delay| delay > patience);
        match refused.code {
            _ if refused.is_final() || (failures < 2 && !is_late) => None,
            429 => Some(Effect::TryOtherAddress),
            _ if failures < 2 => Some(Effect::TryOtherAddress),
            _ => Some(Effect::Disconnect),
        }
    }

    fn on_lease_response(
        &mut self,
        answer: Answer,
        start: Mono,
        now: Mono,
    ) -> Result<(), RequestError> {
        let uid = self.node.uid().unwrap_or_default();
        match self.lease.on_response(uid, answer) {
            Ok(Progress::Done) => {
                self.schedule.lease_renewed(start, now);
                self.renewals += 1;
                let last = self.renewed.replace(start);
                debug_assert!(!uid.is_empty() && last <= Some(start), "{last:?} {start:?}");
                // After failures, or after a suspend of this process, the control plane may have
                // set the conditions to Unknown, so the Node is read. After a gap of more than half
                // the duration it may still do so, so the Node is checked often for two minutes.
                let limit = self.timings.renew_interval() * 2;
                let has_failed = self.lease_log.succeeded(now);
                let is_long = last.map_or(has_failed, |last| start.since(last) > limit);
                if is_long {
                    self.node.check_often(now);
                }
                if has_failed || is_long {
                    self.node.read_again(now);
                    self.server_version.read_again();
                }
                // A status that is due before the next renewal, and a check that is due, are
                // computed in this wakeup.
                let is_soon = self.node.due().since(now) < self.timings.renew_interval();
                if is_soon || self.node.is_check_due(now) {
                    self.node.compute_status_with_renewal(now);
                }
                if self.lease.went_back() {
                    self.node.report_at(now.after(NEXT_HEARTBEAT));
                }
            }
            Ok(Progress::Gone) => {
                self.failed_renewals += 1;
                self.schedule.lease_refused(start, None, now);
                self.lease_log.gone("deleted on the server", now);
                self.lease_gone = true;
                self.node.read_again(now);
            }
            Ok(_) => self.schedule.lease_continues(start),
            Err(error) => {
                self.failed_renewals += 1;
                let is_first = !self.schedule.is_silent() && self.lease_log.last_error().is_none();
                match &error.refused {
                    Some(refused) => {
                        self.schedule.lease_refused(start, refused.retry_after, now);
                    }
                    None if is_first && now.since(start) < self.timings.call_budget() => {
                        self.schedule.lease_interrupted(now);
                        // No outage, unless the retry fails, too.
                        log::info!(target: VERBOSE, "lease: {}; trying again", error.why);
                        return Ok(());
                    }
                    None => self.schedule.lease_silent(start, now),
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn on_version_response(&mut self, answer: Answer, now: Mono) -> Result<(), RequestError> {
        let version = self.server_version.on_response(answer)?;
        self.version_log.succeeded(now);
        let reported = &mut self.node.config.node.kubelet_version;
        if version != *reported {
            log::info!("version: {version} is reported, like that of the API server");
            *reported = version;
        }
        Ok(())
    }

    fn on_node_response(
        &mut self,
        answer: Answer,
        now: Mono,
        effects: &mut Vec<Effect>,
    ) -> Result<(), RequestError> {
        let jitter = self.schedule.jitter();
        let owner = self.node.uid().map(str::to_owned);
        let result = self.node.on_response(answer, now, jitter);
        match result {
            Ok(Progress::Gone) => {
                let next = match self.node.config.node.register {
                    true => "registering again",
                    false => "waiting until it is created (--register-node=false)",
                };
                self.node_log.gone(&format!("deleted on the server; {next}"), now);
            }
            Ok(Progress::Read) => {
                self.on_node_answered(now);
                // The version that an earlier process has reported stays, like a fact that was not
                // read.
                if !self.registered
                    && self.server_version.has_failed()
                    && let Some(version) = self.node.own_version()
                {
                    self.node.config.node.kubelet_version = kubelet_version(version);
                }
                if std::mem::take(&mut self.lease_gone) {
                    // The Node exists, so its Lease can be created again.
                    self.schedule.lease_continues(now);
                }
            }
            Ok(Progress::Created | Progress::Adopted | Progress::Done) => {
                self.node_log.succeeded(now);
                self.on_node_answered(now);
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.is_reported = true;
                }
                if !std::mem::replace(&mut self.registered, true) {
                    effects.push(Effect::Registered);
                }
            }
            Ok(Progress::Continue | Progress::Note(_)) | Err(_) => {}
        }
        effects.extend(self.node.new_pod_cidrs().map(Effect::PodCidrs));
        let is_new = result == Ok(Progress::Created);
        if is_new || result == Ok(Progress::Adopted) {
            self.server_version.registered();
        } else if result == Ok(Progress::Done) {
            self.server_version.read_again();
        }
        if is_new {
            debug_assert!(self.node.uid().is_some(), "a created Node has a uid");
            self.has_created = true;
        }
        if self.node.uid() != owner.as_deref() {
            self.follow_node_uid(now);
        }
        for event in self.node.take_events() {
            self.events.record(event, is_new, now);
        }
        result.map(drop)
    }

    /// Starts or stops the Lease: it is owned by the Node, whose uid has changed.
    fn follow_node_uid(&mut self, now: Mono) {
        self.lease.on_new_uid();
        self.events.on_new_uid();
        self.lease_gone = false;
        match self.node.uid() {
            Some(_) => {
                self.schedule.start_lease(now);
                self.node.check_often(now);
            }
            None => self.schedule.stop_lease(),
        }
    }

    fn on_node_answered(&mut self, now: Mono) {
        if self.pods.node_answered(self.node.shared(), now) {
            self.forget_outage_of_pods();
        }
    }

    fn on_pods_response(&mut self, answer: Answer, now: Now) -> Result<(), RequestError> {
        match self.pods.on_response(answer, self.wall_clock.boot(now), now.mono)? {
            Progress::Done => drop(self.pods_log.succeeded(now.mono)),
            Progress::Note(line) => log::info!("pods: {line}"),
            _ => {}
        }
        if self.pods.is_forbidden() {
            self.forget_outage_of_pods();
        }
        Ok(())
    }

    /// No list is sent for an hour or more. An earlier error would stay in the summary, because
    /// only a list that succeeds ends it.
    fn forget_outage_of_pods(&mut self) {
        self.pods_log = OutageLog::new("pods");
    }

    /// Whether the Node was deleted and is not registered again yet.
    fn is_gone(&self) -> bool {
        self.registered && self.node.uid().is_none()
    }

    /// SIGUSR1: the machine is going down. A repeated signal changes nothing.
    pub fn on_shutdown(&mut self, now: Mono) {
        if self.shutdown.is_none() {
            log::info!("SIGUSR1: the machine is shutting down; Ready becomes False");
            self.shutdown = Some(Shutdown::announced(now));
            if !self.is_gone() {
                self.report_shutdown("Shutdown manager detected shutdown event", now);
            }
        }
    }

    /// SIGTERM or SIGINT: returns whether the process must end now. During an announced shutdown it
    /// goes on until [`Action::End`], unless the Node is not registered, the server does not
    /// respond, or this is the second such signal.
    pub fn on_stop(&mut self) -> bool {
        let can_report = self.registered && !self.schedule.is_silent();
        match &mut self.shutdown {
            Some(shutdown) if can_report => shutdown.stop(),
            _ => true,
        }
    }

    /// Ends an announced shutdown that does not happen.
    fn follow_shutdown(&mut self, now: Mono) {
        if self.shutdown.as_ref().is_some_and(|shutdown| shutdown.is_cancelled(now)) {
            log::info!("no SIGTERM for 60 s after SIGUSR1: the shutdown was cancelled");
            self.shutdown = None;
            self.report_shutdown("Shutdown manager detected shutdown cancellation", now);
        }
    }

    fn report_shutdown(&mut self, message: &str, now: Mono) {
        self.events.push(Event::shutdown(message), now);
        self.node.report_at(now);
    }

    /// `Ready since 2026-11-21T06:18:51Z, lease renewed 3 s ago; facts: proc/meminfo: …`
    pub fn summary(&self, now: Mono, credentials_error: Option<&str>) -> String {
        let mut line = match self.node.ready() {
            Some(ready) if self.registered => ready,
            _ => "registering".to_owned(),
        };
        if let Some(renewed) = self.renewed {
            let seconds = now.since(renewed).as_secs();
            line.push_str(&format!(", lease renewed {seconds} s ago"));
        }
        let errors = [
            ("clock", self.wall_clock.last_error()),
            ("lease", self.lease_log.last_error()),
            ("node", self.node_log.last_error()),
            ("pods", self.pods_log.last_error()),
            ("certificate", credentials_error),
            ("facts", self.facts_log.last_error()),
        ];
        for (what, why) in errors {
            if let Some(why) = why {
                line.push_str(&format!("; {what}: {why}"));
            }
        }
        line
    }
}

#[cfg(test)]
pub(crate) mod tests;
