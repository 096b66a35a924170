//! The container runtime's part of the Node: when to look at the runtime, and what a Node tells of
//! it after each look.
//!
//! `wire/runtime/` looks, and passes [`Found`] to [`Runtime`]. A look never delays a Lease: it takes at
//! most [`IN_TURN`] of a turn for the Node, and an answer that takes longer is read when it has
//! arrived, in turns in which nothing is due.
//! Upstream: `pkg/kubelet/runtime.go`, `pkg/kubelet/kubelet.go` updateRuntimeUp.

mod found;
mod images;
mod version;

pub use found::{Condition, Failure, Found, Handler, LARGE_LIST, Look, Status, Step, Version};
pub use images::{Image, Images, MAX_NAMES};

use std::time::Duration;

use crate::config::runtime::Protocol;
use crate::core::instant::Mono;
use crate::core::outage_log::OutageLog;

/// Longest wait for a look in a turn for the Node. It is taken off the time limit of the request.
/// An answer is also not read this short a time before anything is due.
pub const IN_TURN: Duration = Duration::from_millis(50);
/// The same for the first look while there is no Lease to renew.
pub const AT_START: Duration = Duration::from_secs(1);
/// A look without an end has failed after this time.
pub const OVERDUE: Duration = Duration::from_secs(20);
/// Delay of the status after the answer of a look has arrived late.
pub const SETTLES: Duration = Duration::from_secs(1);

/// Shortest time between the starts of two looks, and after one that failed.
const EVERY: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(1);
/// Time between two looks with all details: version, images, and the folder of the images.
const DETAILS_EVERY: Duration = Duration::from_secs(60);
/// The same if the list of images is large; for Podman, the time between all looks: its socket is
/// usually activated by systemd, and a look would start a process.
const RARELY: Duration = Duration::from_secs(300);
/// A runtime without success for this time is down (maxWaitForContainerRuntime of the kubelet).
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// While no look has succeeded for this time after the start, looks follow each other by
/// [`RETRY`].
const STARTING: Duration = Duration::from_secs(120);

/// What the Node tells of the runtime, and the lines of Ready. `None` is not known: the Node's
/// member is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFacts {
    /// `containerd://2.1.9`.
    pub version: Option<String>,
    /// Largest first.
    pub images: Option<Vec<Image>>,
    /// Sorted by name.
    pub handlers: Option<Vec<Handler>>,
    /// `features.supplementalGroupsPolicy`.
    pub supplemental_groups_policy: Option<bool>,
    /// Ready's line if no look has succeeded, or the last success is too old.
    pub down: Option<&'static str>,
    /// Ready's line about CRI's RuntimeReady.
    pub not_ready: Option<String>,
    /// Ready's line about CRI's NetworkReady. It counts only where the Node offers pods.
    pub network: Option<String>,
}

/// The state between looks.
#[derive(Debug)]
pub struct Runtime {
    protocol: Protocol,
    facts: RuntimeFacts,
    version: Option<Version>,
    image_folder: Option<String>,
    /// Looks in a row without success.
    failures: u32,
    last_success: Option<Mono>,
    due: Mono,
    details_due: Mono,
    /// What failed in the last look with details, apart from the status. A look at the status
    /// alone does not end such a failure.
    errors: Vec<String>,
    log: OutageLog,
}

impl Runtime {
    /// Before the first look, which is due at once.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            facts: RuntimeFacts {
                network: Some("network state unknown".to_owned()),
                ..RuntimeFacts::default()
            },
            version: None,
            image_folder: None,
            failures: 0,
            last_success: None,
            due: Mono::START,
            details_due: Mono::START,
            errors: Vec::new(),
            log: OutageLog::new("container runtime"),
        }
    }

    /// Begins a look if one is due.
    pub fn begin(&mut self, now: Mono) -> Option<Look> {
        if now < self.due {
            return None;
        }
        self.due = now.after(match (self.failures, self.protocol) {
            (0, Protocol::Podman) => RARELY,
            (0, _) => EVERY,
            _ => RETRY,
        });
        let after_outage = self.failures > 0;
        let is_podman = self.protocol == Protocol::Podman;
        let details = after_outage || now >= self.details_due || is_podman;
        if details {
            self.errors.clear();
        }
        Some(Look {
            details,
            folder: after_outage || self.image_folder.is_none(),
        })
    }

    /// Takes what a look found.
    pub fn on_found(&mut self, found: Found, now: Mono) {
        self.errors.extend(found.errors);
        let mut why = self.errors.join(" | ");
        if found.images.is_some() || found.list_is_large {
            let every = match found.list_is_large {
                true => RARELY,
                false => DETAILS_EVERY,
            };
            self.details_due = now.after(every);
        }
        self.version = found.version.or(self.version.take());
        self.image_folder = found.image_folder.or(self.image_folder.take());
        if let Some(images) = found.images {
            let before = self.facts.images.take().unwrap_or_default();
            self.facts.images = Some(images.told(&before));
        }
        let mut is_success = false;
        match found.status {
            Ok(status) => {
                self.facts.network = status.network;
                self.facts.not_ready = status.runtime;
                if let Some(line) = &self.facts.not_ready {
                    why.clone_from(line);
                } else {
                    self.facts.handlers = Some(status.handlers);
                    let policy = status.supplemental_groups_policy;
                    self.facts.supplemental_groups_policy =
                        policy.or(self.facts.supplemental_groups_policy);
                    self.last_success = Some(now.before(found.age));
                    is_success = true;
                }
            }
            Err(failure) => why = failure.to_string(),
        }
        match is_success {
            true => self.failures = 0,
            false => {
                self.failures = self.failures.saturating_add(1);
                self.due = self.due.min(now.after(RETRY));
            }
        }
        match why.as_str() {
            "" => drop(self.log.succeeded(now)),
            why => drop(self.log.failed(why, now)),
        }
    }

    /// What the Node tells now.
    pub fn facts(&self, now: Mono) -> RuntimeFacts {
        let down_since = self.down_since();
        let is_down = down_since.is_some_and(|since| since <= now);
        let version = self.version.as_ref().map(|version| match is_down {
            true => version.unknown(),
            false => version.text(),
        });
        RuntimeFacts {
            version,
            down: match self.last_success {
                None => Some("container runtime status check may not have completed yet"),
                Some(_) => is_down.then_some("container runtime is down"),
            },
            ..self.facts.clone()
        }
    }

    /// When the runtime counts, or will count, as down; `None` while the last look succeeded. A
    /// single failure of Podman says little: minutes lie between its looks.
    fn down_since(&self) -> Option<Mono> {
        let needed = match self.protocol {
            Protocol::Podman => 2,
            _ => 1,
        };
        let last = self.last_success.filter(|_| self.failures >= needed)?;
        Some(last.after(DOWN_AFTER))
    }

    /// The time by which a status must be computed because of the runtime alone: it will count as
    /// down, or the first look is repeated.
    pub fn status_due(&self, now: Mono) -> Option<Mono> {
        match self.last_success {
            None => (now < Mono::START.after(STARTING)).then(|| now.after(RETRY)),
            Some(_) => self.down_since().filter(|since| *since > now),
        }
    }

    /// The folder of the images, as the runtime names it.
    pub fn image_folder(&self) -> Option<&str> {
        self.image_folder.as_deref()
    }
}

#[cfg(test)]
mod tests;
