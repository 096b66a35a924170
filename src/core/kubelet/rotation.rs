//! The certificate's turns and log lines. Without a certificate they come first, otherwise
//! between Lease requests.

use std::time::Duration;

use super::response::after_refusal;
use super::{Effect, Kubelet, Turn, Work};
use crate::core::certificate::{Next, Step, TaskResult};
use crate::core::instant::{Mono, Now};
use crate::kube::message::Outcome;
use crate::kube::x509::Leaf;

impl Kubelet {
    /// The time that decides about the certificate. The supervisor's dates are compared with the
    /// server's clock alone, so neither a wrong clock of the board nor of the server matters.
    fn certificate_now(&self, now: Now) -> Now {
        match &self.certificate {
            Some(certificate) if certificate.is_at_supervisor() => self.wall_clock.of_server(now),
            _ => self.wall_clock.corrected(now),
        }
    }

    /// When the certificate's next step is due. The supervisor renews it for a Node that exists: not
    /// before the first Lease, after which the time of the server is known, too.
    pub(super) fn certificate_due(&self, now: Now) -> Option<Mono> {
        let certificate = self.certificate.as_ref()?;
        let waits = certificate.is_at_supervisor() && self.renewed.is_none();
        (!waits).then(|| certificate.due(self.certificate_now(now)))
    }

    /// Follows the wall clock, which may have been set, and logs once that the certificate has
    /// expired. At a supervisor the server's clock decides that, and not the board's.
    pub(super) fn follow_certificate(&mut self, now: Now) {
        let knows_server = self.wall_clock.knows_server();
        let now = self.certificate_now(now);
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        certificate.follow_clock(now);
        if (knows_server || !certificate.is_at_supervisor())
            && let Some(line) = certificate.expiry_to_log(now.wall)
        {
            log::warn!("certificate: {line}");
        }
    }

    /// Another program replaced the certificate on disk; it is in use.
    pub fn on_certificate_replaced(&mut self, leaf: Leaf, now: Now) {
        let random = self.schedule.permille();
        let now = self.certificate_now(now);
        if let Some(certificate) = &mut self.certificate {
            certificate.replaced(leaf, now, random);
            self.certificate_log.succeeded(now.mono);
        }
        self.pods.credentials_changed();
    }

    /// Another program replaced the token on disk; it is in use.
    pub fn on_token_replaced(&mut self) {
        self.pods.credentials_changed();
    }

    /// Without a certificate no other request is possible, so it comes first.
    pub(super) fn first_certificate(&self, now: Now) -> Option<Turn> {
        let certificate = self.certificate.as_ref().filter(|c| c.is_missing())?;
        let due = certificate.due(self.certificate_now(now));
        Some(match due <= now.mono {
            true => self.certificate_turn(self.law.connect_and_call_budget(), now),
            false => Turn::Wait(due),
        })
    }

    pub(super) fn certificate_turn(&self, budget: Duration, now: Now) -> Turn {
        let wall = self.certificate_now(now).wall;
        match self
            .certificate
            .as_ref()
            .map(|certificate| certificate.next(wall))
        {
            Some(Next::Task(task)) => Turn::Identity(task, wall),
            Some(Next::Send) | None => Turn::Send(Work::Certificate, budget),
        }
    }

    /// Takes the result of [`Turn::Identity`].
    pub fn on_task(&mut self, result: TaskResult, now: Now) {
        let random = self.schedule.permille();
        let now = self.certificate_now(now);
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        let valid_until = match &result {
            TaskResult::InUse(leaf) => Some(leaf.not_after.time()),
            _ => None,
        };
        if let Step::Failed(why) = certificate.on_task(result, now, random) {
            self.certificate_log.failed(&why, now.mono);
        }
        if let Some(time) = valid_until {
            self.certificate_log.succeeded(now.mono);
            self.pods.credentials_changed();
            log::info!("certificate: a new certificate is in use, valid until {time}");
        }
    }

    pub(super) fn on_certificate_response(&mut self, outcome: Outcome, now: Now) -> Effect {
        let random = self.schedule.permille();
        let now = self.certificate_now(now);
        let Some(certificate) = &mut self.certificate else {
            return Effect::None;
        };
        let refused = match &outcome {
            Outcome::Answered(response) => response.accepted().err(),
            Outcome::Silent(_) => None,
        };
        let step = certificate.on_response(outcome, now, random);
        match &step {
            Step::Silent(_) => self.schedule.request_silent(now.mono),
            _ => self.schedule.request_answered(),
        }
        let failures = match step {
            Step::Continue => 0,
            Step::Pending(line) => {
                log::info!("certificate: {line}");
                0
            }
            Step::Failed(why) | Step::Silent(why) => self.certificate_log.failed(&why, now.mono),
        };
        match refused {
            Some(refused) => after_refusal(&refused, failures, self.law.call_budget()),
            None => Effect::None,
        }
    }
}
