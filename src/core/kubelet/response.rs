//! What an outcome means for the Lease, the Node, the events and the schedule.

use std::time::Duration;

use super::{Effect, Kubelet, Work};
use crate::core::events::Event;
use crate::core::instant::{Mono, Now};
use crate::core::{lease, node};
use crate::kube::message::{Outcome, Refused};
use crate::kube::text::VERBOSE;

impl Kubelet {
    /// [`Turn::Connect`](super::Turn::Connect) failed. The first request connects again.
    pub fn on_connect_failed(&mut self, why: &str, now: Mono) {
        self.node_log.failed(why, now);
    }

    /// Takes the outcome of the request that was sent at `start`.
    pub fn on_response(&mut self, work: Work, outcome: Outcome, start: Mono, now: Now) -> Effect {
        if let Outcome::Answered(response) = &outcome
            && let Some(date) = response.date
        {
            self.wall_clock.on_server_date(date, now.mono);
            self.problems.on_date(date, start, now);
        }
        if work == Work::Time {
            self.wall_clock.log_state(now);
        }
        let now = self.wall_clock.corrected(now);
        // The steps of the Lease and of the certificate tell the schedule more, and the server's
        // time is asked for before the schedule decides.
        if let Work::Node | Work::Pods | Work::Version | Work::Event = work {
            match &outcome {
                Outcome::Answered(_) => self.schedule.request_answered(),
                Outcome::Silent(_) => self.schedule.request_silent(now.mono),
            }
        }
        match work {
            Work::Time => {
                if let Outcome::Silent(why) = &outcome {
                    self.node_log.failed(why, now.mono);
                }
                Effect::None
            }
            Work::Certificate => self.on_certificate_response(outcome, now),
            Work::Lease => self.on_lease_response(outcome, start, now.mono),
            Work::Node => self.on_node_response(outcome, now),
            Work::Pods => self.on_pods_response(outcome, now.mono),
            Work::Version => self.on_version_response(&outcome),
            Work::Event => {
                if let Outcome::Answered(response) = &outcome
                    && let Err(refused) = response.accepted()
                {
                    log::info!(target: VERBOSE, "event: {refused}");
                }
                self.events.on_response(&outcome);
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
                // After failures, or after a suspend of this process, the control plane may have
                // set the conditions to Unknown.
                let limit = self.law.renew_interval() * 2;
                if self.lease_log.succeeded(now) || gap > limit {
                    self.node.read_again(now);
                    self.server_version.read_again();
                }
                // A status that is due soon is computed in this wakeup.
                if self.node.due().since(now) < self.config.update_frequency / 10 {
                    self.compute_status_by(now);
                }
            }
            lease::Step::Continue => self.schedule.lease_continues(start),
            lease::Step::Gone => {
                self.schedule.lease_refused(start, None);
                self.lease_log.failed("deleted on the server", now);
                self.lease_gone = true;
                self.node.read_again(now);
            }
            lease::Step::Refused(refused) => {
                self.schedule.lease_refused(start, refused.retry_after);
                let failures = self.lease_log.failed(&refused.to_string(), now);
                return after_refusal(&refused, failures, self.law.call_budget());
            }
            lease::Step::Silent(why) => {
                self.schedule.lease_silent(start);
                self.lease_log.failed(&why, now);
            }
        }
        Effect::None
    }

    fn on_version_response(&mut self, outcome: &Outcome) -> Effect {
        let reported = &mut self.config.node.kubelet_version;
        match self.server_version.on_response(outcome) {
            Ok(version) if version == *reported => {}
            Ok(version) => {
                log::info!("version: {version} is reported, as of the API server");
                *reported = version;
            }
            Err(why) => log::warn!("version: {why}; {reported} is reported"),
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
                self.node_log.failed(why, now.mono);
            }
            node::Step::Refused(refused) => {
                let failures = self.node_log.failed(&refused.to_string(), now.mono);
                effect = after_refusal(refused, failures, self.law.call_budget());
            }
            node::Step::Gone => {
                self.node_log
                    .failed("deleted on the server; registering again", now.mono);
            }
            node::Step::Read => {
                if std::mem::take(&mut self.lease_gone) {
                    // The Node exists, so its Lease can be created again.
                    self.schedule.lease_continues(now.mono);
                }
            }
            node::Step::Continue => {}
            node::Step::Registered | node::Step::Adopted | node::Step::Updated => {
                self.node_log.succeeded(now.mono);
                self.status_was_sent();
            }
        }
        match &step {
            node::Step::Registered | node::Step::Adopted => {
                self.server_version.registered();
                self.pods.node_answered(now.mono);
            }
            node::Step::Read | node::Step::Updated => self.pods.node_answered(now.mono),
            _ => {}
        }
        self.follow_problems(&step, now.mono);
        self.follow_node_uid(now.mono);
        let events = self.node.take_events();
        self.push_events(events, step == node::Step::Registered, now.mono);
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

    /// Logs and queues events. The first Normal ones of a new Node report no change: no line.
    pub(super) fn push_events(&mut self, events: Vec<Event>, is_new: bool, now: Mono) {
        for event in events {
            match event.kind {
                "Warning" => log::warn!("{}", event.message),
                _ if is_new => {}
                _ => log::info!("{}", event.message),
            }
            self.events.push(event, now);
        }
    }

    /// Starts or stops the Lease when the Node's uid changed: the Node owns the Lease.
    pub(super) fn follow_node_uid(&mut self, now: Mono) {
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

/// A server that refuses twice in a row is left for the next address of its name, or at least for a
/// new connection, which a gateway may forward to another server; one that asks for more patience
/// than the Lease has is left at once. A final refusal keeps the connection, and a busy server is
/// left only for another address: a new connection would add to its load.
pub(super) fn after_refusal(refused: &Refused, failures: u32, patience: Duration) -> Effect {
    let is_late = refused.retry_after.is_some_and(|delay| delay > patience);
    match refused.code {
        _ if refused.is_final() || (failures < 2 && !is_late) => Effect::None,
        429 => Effect::TryOtherAddress,
        _ if failures < 2 => Effect::TryOtherAddress,
        _ => Effect::Disconnect,
    }
}
