//! What is known of the container runtime: what to ask next, and when.
//! Upstream: `pkg/kubelet/runtime.go`, `pkg/kubelet/kubelet.go` updateRuntimeUp.

use std::time::Duration;

use super::config::Protocol;
use super::form::{self, NOT_YET};
use super::report::{Part, RuntimeReport};
use crate::kube::facts::RuntimeFacts;
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;

/// Time between two questions; after a question that failed it is [`RETRY`].
const EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(2);
/// Time between two questions for the details, and for the list of images. It is at least
/// [`DETAILS_REST`] times what the last one took, which is long on a slow board.
const DETAILS_EVERY: Duration = Duration::from_secs(60);
const DETAILS_REST: u32 = 50;
/// Time between two questions for the list of images if it is large. For Podman, the time between
/// any two questions: its socket is usually activated by systemd, so a question may start a
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
    /// The list is asked for with details. It rests until `list_rest` also after an outage: it
    /// makes a slow board slower, and then its runtime fails again.
    list_due: Mono,
    list_rest: Mono,
    /// What failed in the last question for the details, and in the last one for the list. A
    /// question without them does not end such a failure.
    errors: Vec<String>,
    list_error: Option<String>,
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
            list_due: Mono::START,
            list_rest: Mono::START,
            errors: Vec::new(),
            list_error: None,
            log: OutageLog::new("container runtime"),
        }
    }

    /// The last part to ask for now. `None`, only for Podman: the last answer still counts.
    pub(super) fn query(&mut self, now: Mono) -> Option<Part> {
        // After an outage the runtime may have another version.
        if !self.has_failed && now < self.details_due.min(self.list_due) {
            if self.is_podman {
                self.last_success = Some(now);
                return None;
            }
            return Some(Part::Status);
        }
        Some(if now < self.list_due { Part::Details } else { Part::List })
    }

    /// Takes what was found before the next part, which may take long. Returns as `on_report`. The
    /// first success is taken with all parts: a Node without version and images would be written
    /// twice. The first one after an outage is taken with its details.
    pub(super) fn on_part(&mut self, report: &RuntimeReport, now: Mono) -> bool {
        let is_enough = self.has_failed == (report.asked == Part::Details);
        self.last_success.is_some() && is_enough && self.on_report(report.clone(), now)
    }

    /// Takes what was found. Returns whether the facts, or the time of the last success, changed.
    pub(super) fn on_report(&mut self, mut report: RuntimeReport, now: Mono) -> bool {
        let pause = if self.is_podman { RARELY } else { DETAILS_EVERY };
        let rest = report.details_took * DETAILS_REST;
        if report.asked == Part::List {
            // The list is the last part, and so is its error.
            self.list_error = if report.images.is_none() { report.errors.pop() } else { None };
            self.list_rest = now.after(rest);
            // It also waits after it failed: the next one may take all of its time again. A runtime
            // that starts refuses it at once, beside the status.
            let is_refused = report.status.is_err() && self.list_error.is_some();
            let list_pause = match is_refused {
                _ if report.list_is_large => RARELY,
                true => Duration::ZERO,
                false => pause,
            };
            self.list_due = now.after(list_pause.max(rest));
        } else if report.status.is_err() && !self.has_failed {
            self.list_due = self.list_rest;
        }
        if report.asked >= Part::Details {
            let has_list = report.asked == Part::List;
            self.details_due = now.after(if has_list { pause } else { pause.max(rest) });
            self.errors = report.errors;
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
                        let errors = self.errors.iter().chain(&self.list_error);
                        errors.map(String::as_str).collect::<Vec<_>>().join(" | ")
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
