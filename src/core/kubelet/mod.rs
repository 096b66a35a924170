//! The node half of a kubelet, deciding: what is sent next, and what its answer means
//! for the Lease, the Node, the events and the schedule.
//!
//! No clock, no file, no socket: the loop in `agent` brings time, facts and answers.
//! So the lease law is held by a simulation of this very code, over servers that
//! refuse, lie and keep silent.

mod rotation;
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
use crate::core::lease::{self, Lease};
use crate::core::node::{self, Node};
use crate::core::outage_log::OutageLog;
use crate::core::schedule::{Dues, Law, Next, Schedule};
use crate::core::wall_clock::WallClock;
use crate::kube::message::{Outcome, Refused, Request};

/// Everything that we and the server agree about, and when the next step is due.
#[derive(Debug)]
pub struct Kubelet {
    config: Config,
    law: Law,
    schedule: Schedule,
    wall_clock: WallClock,
    /// When the server is asked for the time again, while nobody knows it.
    time_due: Mono,
    eviction: Eviction,
    node: Node,
    lease: Lease,
    events: events::Queue,
    /// The uid of the Node that owns the Lease.
    owner: Option<String>,
    /// Start of the last renewal that succeeded.
    renewed: Option<Mono>,
    /// The Lease was deleted; whether the Node was, too, is not known yet.
    lease_gone: bool,
    /// What the Node waits for to become ready, one line each.
    unhealthy: Vec<String>,
    pressures: Pressures,
    registered: bool,
    /// Ours, where it is renewed.
    certificate: Option<Certificate>,
    certificate_log: OutageLog,
    lease_log: OutageLog,
    node_log: OutageLog,
    facts_log: OutageLog,
}

/// For this long after the start (nodeReadyGracePeriod), what a Node waits for is
/// looked at every [`FAST_TICK`], as the kubelet's fastNodeStatusUpdate does.
const FAST_START: Duration = Duration::from_secs(120);
/// See [`Kubelet::awaits`].
pub const FAST_TICK: Duration = Duration::from_millis(100);
/// How often a clock that cannot be right is looked at: nothing tells that it was set.
const CLOCK_TICK: Duration = Duration::from_secs(1);

impl Kubelet {
    /// A board that has just been started. `seed` is any number that differs between
    /// boards.
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
            lease: Lease::new(&config.node.name, config.lease_duration_seconds),
            events,
            owner: None,
            renewed: None,
            lease_gone: false,
            unhealthy: Vec::new(),
            pressures: Pressures::default(),
            registered: false,
            certificate,
            certificate_log: OutageLog::new("certificate"),
            lease_log: OutageLog::new("lease"),
            node_log: OutageLog::new("node"),
            facts_log: OutageLog::new("facts"),
            config,
        }
    }

    /// Name of the Node.
    pub fn node_name(&self) -> &str {
        &self.config.node.name
    }

    /// The next step. `connected` is asked only where a request is due.
    pub fn next(&mut self, now: Now, connected: impl FnOnce() -> bool) -> Turn {
        if self.wall_clock.wall(now).is_none() {
            let tick = now.mono.after(CLOCK_TICK);
            return match self.time_due <= now.mono {
                true => Turn::Send(Work::Time, self.law.after_silence()),
                false => Turn::Wait(self.time_due.min(tick)),
            };
        }
        self.wall_clock.look(now);
        self.log_expiry(now);
        if let Some(turn) = self.first_certificate(now) {
            return turn;
        }
        let dues = self.dues(now);
        match self.schedule.next(now.mono, dues, connected) {
            Next::Certificate(budget) => self.certificate_turn(budget, now),
            Next::Lease(budget) => Turn::Send(Work::Lease, budget),
            Next::Node(budget) => Turn::Send(Work::Node, budget),
            Next::Wait(until) => match self.schedule.leisure(now.mono, dues) {
                Some(budget) if self.events.is_due(now.mono) => Turn::Send(Work::Event, budget),
                _ => Turn::Wait(until),
            },
        }
    }

    /// The request, where one is needed. `facts` reads the machine; with `true` it may
    /// take a moment, for there is no Lease to lose yet.
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
        let (request, missing) = self.node.write(&self.config, facts, self.pressures, now);
        self.unhealthy.clone_from(&facts.unhealthy);
        if missing.is_empty() {
            self.facts_log.succeeded(now.mono);
        } else {
            self.facts_log.failed(&missing.join(" | "), now.mono);
        }
        if request.is_none() {
            self.node_log.succeeded(now.mono);
            self.after_node(now.mono);
        }
        request
    }

    /// Tasks stall on memory: computes the status now, unless that is said already.
    pub fn memory_stalls(&mut self, now: Mono) {
        if !self.pressures.memory {
            self.hurry(now);
        }
    }

    /// What the Node waits for to become ready, while that is worth a look every
    /// [`FAST_TICK`].
    pub fn awaits(&self, now: Mono) -> Option<&[String]> {
        let waiting = !self.unhealthy.is_empty() && now < Mono::START.after(FAST_START);
        waiting.then_some(self.unhealthy.as_slice())
    }

    /// Computes the status at `by`, where that is before the next tick.
    pub fn hurry(&mut self, by: Mono) {
        self.node.hurry(by);
    }

    fn dues(&self, now: Now) -> Dues {
        let now = self.wall_clock.corrected(now);
        Dues {
            node: self.node.due(),
            certificate: self.certificate.as_ref().map(|c| c.due(now)),
        }
    }

    /// Takes the outcome of a request that was begun at `start`.
    pub fn on_response(&mut self, work: Work, outcome: Outcome, start: Mono, now: Now) -> Effect {
        if let Outcome::Answered(response) = &outcome
            && let Some(date) = response.date
        {
            self.wall_clock.heard(date, now.mono);
        }
        if work == Work::Time {
            self.wall_clock.look(now);
        }
        let now = self.wall_clock.corrected(now);
        match work {
            Work::Time => {
                if let Outcome::Silent(why) = &outcome {
                    self.node_log.failed(why, now.mono);
                }
                Effect::None
            }
            Work::Certificate => {
                self.on_certificate_response(outcome, now);
                Effect::None
            }
            Work::Lease => self.on_lease_response(outcome, start, now.mono),
            Work::Node => self.on_node_response(outcome, now),
            Work::Event => {
                if let Outcome::Answered(response) = &outcome
                    && let Err(refused) = response.accepted()
                {
                    log::debug!("event: {refused}");
                }
                match self.events.on_response(&outcome) {
                    true => self.schedule.request_answered(),
                    false => self.schedule.request_silent(now.mono),
                }
                Effect::None
            }
        }
    }

    fn on_lease_response(&mut self, outcome: Outcome, start: Mono, now: Mono) -> Effect {
        let uid = self.owner.as_deref().unwrap_or_default();
        match self.lease.on_response(uid, outcome) {
            lease::Step::Renewed => {
                self.schedule.lease_renewed(start);
                let last = self.renewed.replace(start);
                let gap = last.map_or(Duration::ZERO, |last| start.since(last));
                // After failures, or when this process was not let run for a while,
                // the control plane may have called the board dead.
                let long = self.law.renew_interval() * 2;
                if self.lease_log.succeeded(now) || gap > long {
                    self.node.doubt(now);
                }
                // One wake-up for both, where they nearly fall together.
                if self.node.due().since(now) < self.config.update_frequency / 10 {
                    self.hurry(now);
                }
            }
            lease::Step::Continue => self.schedule.lease_continues(start),
            lease::Step::Gone => {
                self.schedule.lease_refused(start, None);
                self.lease_log.failed("deleted by somebody", now);
                self.lease_gone = true;
                self.node.doubt(now);
            }
            lease::Step::Refused(refused) => {
                self.schedule.lease_refused(start, refused.retry_after);
                let failures = self.lease_log.failed(&refused.to_string(), now);
                return after_refusal(&refused, failures);
            }
            lease::Step::Silent(why) => {
                self.schedule.lease_silent(start);
                self.lease_log.failed(&why, now);
            }
        }
        Effect::None
    }

    fn on_node_response(&mut self, outcome: Outcome, now: Now) -> Effect {
        let random = self.schedule.permille();
        let step = self
            .node
            .on_response(&self.config, outcome, now.mono, random);
        let mut effect = Effect::None;
        match &step {
            node::Step::Silent(why) => {
                self.schedule.request_silent(now.mono);
                self.node_log.failed(why, now.mono);
            }
            node::Step::Refused(refused) => {
                self.schedule.request_answered();
                let failures = self.node_log.failed(&refused.to_string(), now.mono);
                effect = after_refusal(refused, failures);
            }
            node::Step::Gone => {
                self.schedule.request_answered();
                self.node_log
                    .failed("deleted by somebody; registering again", now.mono);
            }
            node::Step::Read => {
                self.schedule.request_answered();
                if std::mem::take(&mut self.lease_gone) {
                    // The Node is still there, so its Lease can be made again.
                    self.schedule.lease_continues(now.mono);
                }
            }
            node::Step::Continue => self.schedule.request_answered(),
            node::Step::Registered | node::Step::Adopted | node::Step::Updated => {
                self.schedule.request_answered();
                self.node_log.succeeded(now.mono);
            }
        }
        self.after_node(now.mono);
        for event in self.node.take_events() {
            match event.kind {
                "Warning" => log::warn!("{}", event.message),
                // The first ones of a Node say that all is well.
                _ if step == node::Step::Registered => {}
                _ => log::info!("{}", event.message),
            }
            self.events.push(event, now.mono);
        }
        match step {
            node::Step::Registered | node::Step::Adopted | node::Step::Updated
                if !std::mem::replace(&mut self.registered, true) =>
            {
                Effect::Registered
            }
            node::Step::Read => self
                .node
                .new_pod_cidrs()
                .map_or(Effect::None, Effect::PodCidrs),
            _ => effect,
        }
    }

    /// Follows the Node's uid: the Lease needs an owner.
    fn after_node(&mut self, now: Mono) {
        let uid = self.node.uid();
        if uid == self.owner.as_deref() {
            return;
        }
        self.owner = uid.map(str::to_owned);
        self.lease.forget();
        self.events.forget();
        self.lease_gone = false;
        match self.owner {
            Some(_) => self.schedule.start_lease(now),
            None => self.schedule.stop_lease(),
        }
    }
}

/// The second failure in a row may be this connection's, or that of a gateway behind it;
/// but not where an API server in good health says what is wrong with us.
fn after_refusal(refused: &Refused, failures: u32) -> Effect {
    let is_about_us = matches!(refused.code, 403 | 404 | 409 | 422 | 429);
    match !is_about_us && failures > 1 {
        true => Effect::Disconnect,
        false => Effect::None,
    }
}

#[cfg(test)]
mod tests;
