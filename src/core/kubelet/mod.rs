//! The decisions of the kubelet's node half: the next request, and what its response means for the
//! Lease, the Node, the stray pods, the events and the schedule.
//!
//! The loop in `agent` supplies time, facts and responses. The tests run this code against
//! simulated servers that refuse, send invalid bodies or do not respond, and check the lease law.

mod pods;
mod problems;
mod response;
mod rotation;
mod shutdown;
mod summary;
mod turn;

pub use turn::{Effect, Turn, Work};

use std::borrow::Borrow;
use std::time::Duration;

use crate::config::{Config, NodeConfig};
use crate::core::certificate::Certificate;
use crate::core::events::{self, Event};
use crate::core::eviction::{Eviction, Pressures};
use crate::core::facts::Facts;
use crate::core::instant::{Mono, Now};
use crate::core::lease::Lease;
use crate::core::node::{self, Node};
use crate::core::outage_log::OutageLog;
use crate::core::pods::Pods;
use crate::core::problems::Problems;
use crate::core::schedule::{Dues, Law, Next, Schedule};
use crate::core::server_version::ServerVersion;
use crate::core::wall_clock::WallClock;
use crate::kube::message::Request;

use self::shutdown::Shutdown;

/// The state of the Node, the Lease, the certificate, the stray pods and the events, and when each
/// is due.
#[derive(Debug)]
pub struct Kubelet {
    config: Config,
    law: Law,
    schedule: Schedule,
    wall_clock: WallClock,
    /// Next request for the server's time, while the time is unknown.
    time_due: Mono,
    eviction: Eviction,
    node: Node,
    problems: Problems,
    lease: Lease,
    pods: Pods,
    server_version: ServerVersion,
    events: events::Queue,
    /// The uid of the Node that owns the Lease.
    owner: Option<String>,
    /// Start of the last renewal that succeeded.
    renewed: Option<Mono>,
    /// The Lease was deleted. The Node may be deleted too; it was not read since.
    lease_gone: bool,
    /// One line for each failed health check, from the last computed status.
    unhealthy: Vec<String>,
    pressures: Pressures,
    registered: bool,
    /// The first turn is over.
    has_begun: bool,
    /// `None` where no certificate is renewed.
    certificate: Option<Certificate>,
    /// SIGUSR1 announced that the machine goes down.
    shutdown: Option<Shutdown>,
    certificate_log: OutageLog,
    lease_log: OutageLog,
    node_log: OutageLog,
    pods_log: OutageLog,
    facts_log: OutageLog,
}

/// How long after the start failed health checks are repeated every [`FAST_TICK`]
/// (nodeReadyGracePeriod of the kubelet's fastStatusUpdateOnce).
const FAST_START: Duration = Duration::from_secs(120);
/// Period of health checks while [`Kubelet::unhealthy_while_starting`] has lines.
pub const FAST_TICK: Duration = Duration::from_millis(100);
/// Period at which a wrong clock is read again: no notification reports that it was set.
const CLOCK_TICK: Duration = Duration::from_secs(1);

impl Kubelet {
    /// The state at process start. `seed` is any number that differs between boards.
    pub fn new(
        config: Config,
        wall_clock: WallClock,
        certificate: Option<Certificate>,
        seed: u64,
        now: Mono,
    ) -> Self {
        let law = Law {
            lease_duration: Duration::from_secs(config.lease_duration_seconds.into()),
        };
        let node = Node::new(config.node.register, now);
        let problems = Problems::new(&config.problems, wall_clock.earliest());
        let mut events =
            events::Queue::new(&config.node.name, config.event_qps, config.event_burst);
        events.push(Event::starting(), now);
        Self {
            law,
            schedule: Schedule::new(law, seed),
            wall_clock,
            time_due: now,
            eviction: Eviction::new(&config.thresholds, config.pressure_transition_period),
            node,
            problems,
            lease: Lease::new(&config.node.name, config.lease_duration_seconds),
            pods: Pods::new(&config.node),
            server_version: ServerVersion::new(config.reports_server_version),
            events,
            owner: None,
            renewed: None,
            lease_gone: false,
            unhealthy: Vec::new(),
            pressures: Pressures::default(),
            registered: false,
            has_begun: false,
            certificate,
            shutdown: None,
            certificate_log: OutageLog::new("certificate"),
            lease_log: OutageLog::new("lease"),
            node_log: OutageLog::new("node"),
            pods_log: OutageLog::new("pods"),
            facts_log: OutageLog::new("facts"),
            config,
        }
    }

    /// `metadata.name` of the Node and of the Lease.
    pub fn node_name(&self) -> &str {
        &self.config.node.name
    }

    /// Time limit of a Lease response over a connection that its request had to open, from the
    /// opening. Without it, a server that accepts connections and does not respond would use up
    /// the time for the next address of its name.
    pub fn answer_budget(&self, work: Work) -> Option<Duration> {
        (work == Work::Lease).then(|| self.law.call_budget())
    }

    /// The next step. `connected` is called only if a request is due.
    pub fn next(&mut self, now: Now, connected: impl FnOnce() -> bool) -> Turn {
        self.follow_shutdown(now.mono);
        let turn = match (self.next_turn(now, connected), self.has_begun) {
            // The first registration waits: its connection is opened meanwhile.
            (Turn::Wait(_), false) => Turn::Connect(self.law.connect_and_call_budget()),
            (turn, _) => turn,
        };
        self.has_begun = true;
        self.within_shutdown(turn, now.mono)
    }

    fn next_turn(&mut self, now: Now, connected: impl FnOnce() -> bool) -> Turn {
        if self.wall_clock.wall(now).is_none() {
            let tick = now.mono.after(CLOCK_TICK);
            return match self.time_due <= now.mono {
                true => Turn::Send(Work::Time, self.law.connect_and_call_budget()),
                false => Turn::Wait(self.time_due.min(tick)),
            };
        }
        self.wall_clock.log_state(now);
        self.follow_certificate(now);
        if let Some(turn) = self.first_certificate(now) {
            return turn;
        }
        let dues = self.dues(now);
        match self.schedule.next(now.mono, dues, connected) {
            Next::Certificate(budget) => self.certificate_turn(budget, now),
            Next::Lease(budget) => Turn::Send(Work::Lease, budget),
            // The version first: it is a part of the Node.
            Next::Node(budget) if self.server_version.is_due() => Turn::Send(Work::Version, budget),
            Next::Node(budget) => Turn::Send(Work::Node, budget),
            Next::Pods(budget) => Turn::Send(Work::Pods, budget),
            Next::Wait(until) => match self.schedule.idle_budget(now.mono, dues) {
                Some(budget) if self.events.is_due(now.mono) => Turn::Send(Work::Event, budget),
                _ => Turn::Wait(until),
            },
        }
    }

    /// The request, if one is needed. `facts` reads the machine. Its argument is true while there
    /// is no Lease to renew: then the read may block for longer.
    pub fn request<F: Borrow<Facts>>(
        &mut self,
        work: Work,
        now: Now,
        facts: impl FnOnce(&NodeConfig, bool) -> F,
    ) -> Option<Request> {
        let now = self.wall_clock.corrected(now);
        match (work, self.owner.as_deref()) {
            (Work::Lease, Some(uid)) => Some(self.lease.request(uid, now.wall)),
            (Work::Event, Some(uid)) => self.events.request(uid, now),
            (Work::Pods, _) => Some(self.pods.request(now.mono)),
            (Work::Version, _) => Some(self.server_version.request()),
            (Work::Certificate, _) => self.certificate.as_ref()?.request(),
            (Work::Time, _) => {
                self.time_due = now.mono.after(self.law.renew_interval());
                Some(node::time_probe(&self.config))
            }
            (Work::Lease | Work::Event, None) => {
                self.schedule.stop_lease();
                None
            }
            (Work::Node, _) if self.node.must_read(&self.config, now.mono) => {
                Some(self.node.read(&self.config))
            }
            (Work::Node, owner) => {
                let facts = facts(&self.config.node, owner.is_none());
                self.write(facts.borrow(), now)
            }
        }
    }

    fn write(&mut self, facts: &Facts, now: Now) -> Option<Request> {
        self.pressures = self.eviction.synchronize(facts, now.mono);
        self.publish_problems(now);
        let seen = self.with_shutdown(facts);
        let (request, missing) = self.node.write(&self.config, &seen, self.pressures, now);
        self.unhealthy.clone_from(&facts.unhealthy);
        if missing.is_empty() {
            self.facts_log.succeeded(now.mono);
        } else {
            self.facts_log.failed(&missing.join(" | "), now.mono);
        }
        if request.is_none() {
            self.node_log.succeeded(now.mono);
            self.follow_node_uid(now.mono);
        }
        request
    }

    /// On a PSI trigger, computes the status now unless MemoryPressure is already reported.
    pub fn on_memory_pressure(&mut self, now: Mono) {
        if !self.pressures.memory {
            self.compute_status_by(now);
        }
    }

    /// The failed health checks of the last status, within 120 s after the start. While there are
    /// any, the caller repeats the checks every [`FAST_TICK`].
    pub fn unhealthy_while_starting(&self, now: Mono) -> Option<&[String]> {
        let waiting = !self.unhealthy.is_empty() && now < Mono::START.after(FAST_START);
        waiting.then_some(self.unhealthy.as_slice())
    }

    /// Moves the next status computation forward to `by`.
    pub fn compute_status_by(&mut self, by: Mono) {
        self.node.compute_status_by(by);
    }

    fn dues(&self, now: Now) -> Dues {
        Dues {
            node: self.node.due(),
            certificate: self.certificate_due(now),
            // After the first Lease: a board with many pods must not become Ready later.
            pods: self.renewed.and_then(|_| self.pods.due()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
