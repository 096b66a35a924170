//! Which conditions are listed on the Node, and which of them belong to this program.
//!
//! A condition of another writer, such as node-problem-detector on the host, is left unchanged, and
//! its type is ceded to that writer until the restart of this process.

use std::time::Duration;

use serde_json::Value;

use super::events::Events;
use super::listed::{Listed, Statement};
use super::state::Problem;
use super::texts;
use crate::config::problems::{Kind, Listing as Mode, Problems as Config};
use crate::core::instant::{Mono, Now};
use crate::kube::object;
use crate::kube::time::Wall;

/// How long a False stays listed.
const FALSE_STAYS: Duration = Duration::from_secs(24 * 3600);
/// Distance of two patches for a changed status.
const EARLY: Duration = Duration::from_secs(60);

/// One condition type.
#[derive(Debug)]
struct Slot {
    name: String,
    /// `None`: a type of `--node-condition`.
    kind: Option<Kind>,
    /// What the rule says; `None` if there is no condition.
    current: Option<Statement>,
    /// What this process wrote last.
    published: Option<Statement>,
    /// What the server is known to have.
    confirmed: Option<Statement>,
    /// The status of the last event; `None` before the first True.
    told: Option<bool>,
    /// When the status became False.
    false_since: Option<Wall>,
    /// Another writer deleted it once.
    has_vanished: bool,
    is_ceded: bool,
}

/// The state of all types.
#[derive(Debug)]
pub(super) struct Listing {
    mode: Mode,
    slots: Vec<Slot>,
    early: Option<Mono>,
    /// When the conditions were published last.
    published_at: Mono,
    /// The Node was read or written by this process.
    is_registered: bool,
}

impl Listing {
    pub(super) fn new(config: &Config) -> Self {
        let slot = |name: &str, kind| Slot {
            name: name.to_owned(),
            kind,
            current: None,
            published: None,
            confirmed: None,
            told: None,
            false_since: None,
            has_vanished: false,
            is_ceded: false,
        };
        let kinds = Kind::ALL
            .into_iter()
            .map(|kind| slot(kind.name(), Some(kind)));
        let files = config.files.iter().map(|file| slot(&file.name, None));
        Self {
            mode: config.listing,
            slots: kinds.chain(files).collect(),
            early: None,
            published_at: Mono::START,
            is_registered: false,
        }
    }

    /// Sets what the rule of `name` says: status, reason and message.
    pub(super) fn set(&mut self, name: &str, current: Option<(bool, &str, &str)>) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.name == name) else {
            return;
        };
        // Every look and every response says the same again: no copy of its texts.
        let old = slot.current.as_ref();
        if old.map(|old| (old.is_true, old.reason.as_str(), old.message.as_str())) != current {
            slot.current = current.map(|(is_true, reason, message)| Statement {
                name: name.to_owned(),
                is_true,
                reason: reason.to_owned(),
                message: message.to_owned(),
            });
        }
    }

    pub(super) fn is_ceded(&self, kind: Kind) -> bool {
        let slot = self.slots.iter().find(|slot| slot.kind == Some(kind));
        slot.is_some_and(|slot| slot.is_ceded)
    }

    /// Takes the conditions that were read from the server. Returns the conditions that an earlier
    /// process of this program wrote.
    pub(super) fn on_read(
        &mut self,
        conditions: &[Value],
        events: &mut Events,
    ) -> Vec<(Kind, Option<Problem>)> {
        let mut adopted = Vec::new();
        let is_first = !std::mem::replace(&mut self.is_registered, true);
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_ceded) {
            let is_it = |c: &&Value| object::text(c, &["type"]) == slot.name;
            let Some(condition) = conditions.iter().find(is_it) else {
                // Another writer deleted it: it is written once more.
                if slot.confirmed.take().is_some()
                    && std::mem::replace(&mut slot.has_vanished, true)
                {
                    slot.cede("it was deleted twice");
                }
                continue;
            };
            let theirs = Statement::parse(condition);
            let is_ours = theirs.is_some()
                && (theirs == slot.confirmed
                    || theirs == slot.published && slot.published.is_some());
            if !is_ours {
                let known = theirs.as_ref().filter(|_| slot.confirmed.is_none());
                let recognized = match (slot.kind, known) {
                    (Some(kind), Some(theirs)) => {
                        texts::recognize(kind, theirs).map(|problem| (kind, problem))
                    }
                    // The administrator gave this type to us.
                    (None, Some(theirs)) => {
                        slot.told = Some(theirs.is_true);
                        slot.confirmed = Some(theirs.clone());
                        continue;
                    }
                    (_, None) => None,
                };
                let Some((kind, problem)) = recognized else {
                    slot.cede("another program writes it");
                    continue;
                };
                if problem.is_none() {
                    let since = object::text(condition, &["lastTransitionTime"]);
                    slot.false_since = Wall::parse(since);
                }
                slot.told = Some(problem.is_some());
                adopted.push((kind, problem));
            }
            if is_first {
                // An earlier process told it.
                slot.told = theirs.as_ref().map(|theirs| theirs.is_true);
            }
            slot.confirm(theirs, self.published_at, events);
        }
        adopted
    }

    /// The server has what was published last.
    pub(super) fn on_written(&mut self, events: &mut Events) {
        self.is_registered = true;
        for slot in self.slots.iter_mut().filter(|slot| !slot.is_ceded) {
            let published = slot.published.clone();
            slot.confirm(published, self.published_at, events);
        }
    }

    /// The Node was deleted: the new one has no conditions of ours.
    pub(super) fn on_gone(&mut self) {
        for slot in &mut self.slots {
            slot.confirmed = None;
        }
    }

    /// The conditions to write. With `regular` a report is due anyway; else only a changed status is
    /// published, at most once a minute. `now` has the corrected wall clock.
    pub(super) fn publish(&mut self, regular: bool, now: Now) -> Listed {
        let is_urgent = self.slots.iter().any(|slot| slot.is_urgent(self.mode));
        let is_early = is_urgent && self.early.is_none_or(|at| now.mono.since(at) >= EARLY);
        if is_early && !regular {
            self.early = Some(now.mono);
        }
        if regular || is_early {
            self.published_at = now.mono;
            for slot in self.slots.iter_mut().filter(|slot| !slot.is_ceded) {
                slot.publish(self.mode, now.wall);
            }
        }
        let slots = self.slots.iter().filter(|slot| !slot.is_ceded);
        let (set, unset): (Vec<&Slot>, Vec<&Slot>) =
            slots.partition(|slot| slot.published.is_some());
        let gone = unset.iter().filter(|slot| slot.confirmed.is_some());
        Listed {
            statements: set
                .iter()
                .filter_map(|slot| slot.published.clone())
                .collect(),
            removed: gone.map(|slot| slot.name.clone()).collect(),
        }
    }
}

impl Slot {
    fn cede(&mut self, why: &str) {
        self.is_ceded = true;
        log::info!(
            "condition {}: {why}; it is left to the other program until nodelet restarts",
            self.name
        );
    }

    /// Whether a problem begins or ends, compared with what was written; with `all` also whether
    /// the type is new: on a Node that changes often a regular report may never be due.
    fn is_urgent(&self, mode: Mode) -> bool {
        let before = self.published.as_ref().or(self.confirmed.as_ref());
        match (&self.current, before) {
            (Some(new), Some(before)) => !self.is_ceded && new.is_true != before.is_true,
            (Some(new), None) => !self.is_ceded && (new.is_true || mode == Mode::All),
            (None, _) => false,
        }
    }

    /// The server has `stored`. A changed status has an event, but not the first False.
    fn confirm(&mut self, stored: Option<Statement>, at: Mono, events: &mut Events) {
        if let Some(new) = &stored
            && new.is_true != self.told.unwrap_or_default()
        {
            events.of_change(self.event_reason(new), new, at);
            self.told = Some(new.is_true);
        }
        self.confirmed = stored;
    }

    fn publish(&mut self, mode: Mode, now: Wall) {
        let before = self.published.take().or_else(|| self.confirmed.clone());
        let was_true = before.as_ref().map(|before| before.is_true);
        self.published = self.current.clone();
        let Some(new) = &self.published else {
            self.false_since = None;
            return;
        };
        match (was_true, new.is_true) {
            (_, true) => self.false_since = None,
            (Some(true), false) => self.false_since = Some(now),
            (Some(false) | None, false) => {}
        }
        let is_recent = |since: Wall| now.since(since) < FALSE_STAYS;
        let is_listed = new.is_true
            || self.kind.is_none()
            || mode == Mode::All
            || self.false_since.is_some_and(is_recent);
        if !is_listed {
            self.published = None;
        }
    }

    fn event_reason(&self, new: &Statement) -> &'static str {
        match (self.kind, new.is_true) {
            (Some(kind), true) => texts::reason(kind, &new.reason),
            (Some(kind), false) => texts::fine(kind).0,
            (None, true) => super::FILE_EXISTS,
            (None, false) => super::FILE_MISSING,
        }
    }
}
