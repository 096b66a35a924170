//! What is known of the container runtime: what to ask next, and when.
//! Upstream: `pkg/kubelet/runtime.go`, `pkg/kubelet/kubelet.go` updateRuntimeUp.

use std::time::Duration;

use super::config::Protocol;
use super::form::{self, NOT_YET};
use super::report::{RuntimeQuery, RuntimeReport};
use crate::kube::facts::RuntimeFacts;
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;

/// Time between two questions; after a question that failed it is [`RETRY`].
const EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// Time between two questions for all details: version, images, and the folder of the images. It is
/// at least [`DETAILS_REST`] times what the last one took, which is long on a slow board.
const DETAILS_EVERY: Duration = Duration::from_secs(60);
const DETAILS_REST: u32 = 50;
/// Time between two questions for all details if the list of images is large. For Podman, the time
/// between any two questions: its socket is usually activated by systemd, so a question may start a
/// process.
const RARELY: Duration = Duration::from_secs(300);

/// The state between questions.
#[derive(Debug)]
pub(super) struct RuntimeState {
    is_podman: bool,
    facts: RuntimeFacts,
    /// The last question failed.
    has_failed: bool,
    last_success: Option<Mono>,
    details_due: Mono,
    /// The earliest time of the next question for details. They make a slow board slower, and then
    /// its runtime fails again.
    details_rest: Mono,
    /// What failed in the last question for details, apart from the status. A status alone does not
    /// end such a failure.
    errors: Vec<String>,
    log: OutageLog,
}

impl RuntimeState {
    /// Before the first question, which is due at once.
    pub(super) fn new(protocol: Protocol) -> Self {
        Self {
            is_podman: protocol == Protocol::Podman,
            facts: form::unknown(),
            has_failed: false,
            last_success: None,
            details_due: Mono::START,
            details_rest: Mono::START,
            errors: Vec::new(),
            log: OutageLog::new("container runtime"),
        }
    }

    /// What to ask now. `None`, only for Podman: the last answer still counts.
    pub(super) fn query(&mut self, now: Mono) -> Option<RuntimeQuery> {
        let details = now >= self.details_due;
        if !details && self.is_podman {
            self.last_success = Some(now);
            return None;
        }
        Some(RuntimeQuery { details })
    }

    /// Takes the status before its details, which may take long. Returns as `on_report`. The first
    /// success is taken with its details: a Node without version and images would be written twice.
    pub(super) fn on_status(&mut self, report: &RuntimeReport, now: Mono) -> bool {
        self.last_success.is_some() && self.on_report(report.clone(), now)
    }

    /// Takes what was found. Returns whether the facts, or the time of the last success, changed.
    pub(super) fn on_report(&mut self, report: RuntimeReport, now: Mono) -> bool {
        // The details also wait after a list that failed: the next list may take all of its time
        // again.
        if report.images.is_some() || report.list_is_large || !report.errors.is_empty() {
            let is_rare = report.list_is_large || self.is_podman;
            let pause = if is_rare { RARELY } else { DETAILS_EVERY };
            let rest = report.details_took * DETAILS_REST;
            (self.details_rest, self.details_due) = (now.after(rest), now.after(pause.max(rest)));
            self.errors = report.errors;
        } else if report.status.is_err() && !self.has_failed {
            // Once they have rested, each question asks for details, until details are answered:
            // after an outage the runtime may have another version. Podman has no other question.
            self.details_due = if self.is_podman { Mono::START } else { self.details_rest };
        }
        let facts = &mut self.facts;
        facts.version = report.version.map(|version| version.text()).or(facts.version.take());
        facts.image_folder = report.image_folder.or(facts.image_folder.take());
        if let Some(images) = report.images {
            let before = facts.images.take().unwrap_or_default();
            facts.images = Some(images.reported(&before));
        }
        let has_status = report.status.is_ok();
        self.has_failed = !has_status;
        let why = match report.status {
            Err(failure) => failure.fault.to_string(),
            Ok(status) => {
                facts.network = status.network;
                facts.not_ready = status.runtime;
                match &facts.not_ready {
                    Some(line) => line.clone(),
                    None => {
                        facts.handlers = Some(status.handlers);
                        let policy = status.supplemental_groups_policy;
                        facts.supplemental_groups_policy =
                            policy.or(facts.supplemental_groups_policy);
                        self.last_success = Some(now);
                        self.errors.join(" | ")
                    }
                }
            }
        };
        self.log.ended(Some(why.as_str()).filter(|why| !why.is_empty()), now);
        has_status
    }

    /// How long to wait for the next question, from the answer to the last status.
    pub(super) fn pause(&self) -> Duration {
        if self.has_failed { RETRY } else { EVERY }
    }

    /// The content of the file, if times count from this boot.
    pub(super) fn file(&self, boot: u64) -> String {
        self.file_of(&self.facts, boot)
    }

    /// The content of the file with the status of now, and the details of the `last` content.
    pub(super) fn file_after(&self, last: &str, boot: u64) -> Option<String> {
        let (_, json, _) = form::split(last)?;
        let mut facts: RuntimeFacts = serde_json::from_str(json).ok()?;
        facts.not_ready.clone_from(&self.facts.not_ready);
        facts.network.clone_from(&self.facts.network);
        Some(self.file_of(&facts, boot))
    }

    fn file_of(&self, facts: &RuntimeFacts, boot: u64) -> String {
        form::file(facts, self.last_success.map(|at| at.since(Mono::START)), boot)
    }

    /// What a Node reports of it now.
    pub(super) fn into_facts(self) -> RuntimeFacts {
        let down = self.last_success.is_none().then_some(NOT_YET);
        RuntimeFacts { down, ..self.facts }
    }

    /// What fails, while it does.
    #[cfg(test)]
    pub(super) fn last_error(&self) -> Option<&str> {
        self.log.last_error()
    }
}
