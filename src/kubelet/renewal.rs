//! The certificate's turns: before anything else where there is none, else between those
//! of the Lease, and what the log says of it.

use std::time::Duration;

use super::{Kubelet, Turn, Work};
use crate::certificate::{Certificate, Step, Task};
use crate::kube::message::Outcome;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest};
use crate::now::{Mono, Now};

impl Kubelet {
    /// The same, with a certificate that is renewed.
    #[must_use]
    pub fn with_certificate(mut self, certificate: Option<Certificate>) -> Self {
        self.certificate = certificate;
        self
    }

    /// When the certificate is due depends on a clock that may be set at any time.
    pub(super) fn follow_certificate(&mut self, now: Now) {
        let now = self.timekeeper.corrected(now);
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        self.schedule.certificate_due_at(certificate.due(now));
        if let Some(line) = certificate.expiry(now.wall) {
            log::warn!("certificate: {line}");
        }
    }

    /// Without a certificate there is no Node and no Lease to lose.
    pub(super) fn first_certificate(&self, now: Now) -> Option<Turn> {
        let certificate = self.certificate.as_ref().filter(|c| c.is_missing())?;
        let due = certificate.due(self.timekeeper.corrected(now));
        Some(match due <= now.mono {
            true => self.certificate_turn(self.law.after_silence()),
            false => Turn::Wait(due),
        })
    }

    pub(super) fn certificate_turn(&self, budget: Duration) -> Turn {
        match self.certificate_task() {
            Some(Task::Send) => Turn::Send(Work::Certificate, budget),
            _ => Turn::Certificate,
        }
    }

    /// The next step for the certificate.
    pub fn certificate_task(&self) -> Option<Task<'_>> {
        self.certificate.as_ref().map(Certificate::task)
    }

    /// Whether there is no certificate yet.
    pub fn is_bootstrapping(&self) -> bool {
        let certificate = self.certificate.as_ref();
        certificate.is_some_and(Certificate::is_missing)
    }

    /// Whether the certificate is asked for with the bootstrap's credentials.
    pub fn needs_bootstrap(&self, now: Now) -> bool {
        let now = self.wall(now);
        let certificate = self.certificate.as_ref();
        certificate.is_some_and(|certificate| certificate.needs_bootstrap(now))
    }

    /// The time to hold a certificate against.
    pub fn wall(&self, now: Now) -> Wall {
        self.timekeeper.corrected(now).wall
    }

    /// A request for a certificate was made, or why not.
    pub fn signed(&mut self, signed: Result<SigningRequest, String>, now: Mono) {
        let random = self.schedule.permille();
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        if let Step::Failed(why) = certificate.signed(signed, now, random) {
            self.certificate_edge.failed(&why, now);
        }
    }

    /// The certificate that was issued is in use now, or why not.
    pub fn installed(&mut self, installed: Result<Leaf, String>, now: Now) {
        let random = self.schedule.permille();
        let now = self.timekeeper.corrected(now);
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        let until = installed.as_ref().map(|leaf| leaf.not_after.time());
        let until = until.unwrap_or_default();
        match certificate.installed(installed, now, random) {
            Step::Failed(why) => {
                self.certificate_edge.failed(&why, now.mono);
            }
            _ => {
                self.certificate_edge.succeeded(now.mono);
                log::info!("certificate: a new one is in use, valid until {until}");
            }
        }
    }

    pub(super) fn certificate_answer(&mut self, outcome: Outcome, now: Now) {
        let random = self.schedule.permille();
        let Some(certificate) = &mut self.certificate else {
            return;
        };
        let step = certificate.fold(outcome, now, random);
        match &step {
            Step::Silent(_) => self.schedule.request_silent(now.mono),
            _ => self.schedule.request_answered(),
        }
        match step {
            Step::Continue => {}
            Step::Pending(line) => log::info!("certificate: {line}"),
            Step::Failed(why) | Step::Silent(why) => {
                self.certificate_edge.failed(&why, now.mono);
            }
        }
    }
}
