//! The events about the board's health, and their limit: a bad supply can repeat one for ever.

use std::collections::VecDeque;
use std::time::Duration;

use super::kernel::grew;
use super::listed::Statement;
use super::look::Counters;
use crate::core::events::Event;
use crate::core::instant::Mono;
use crate::kube::text::VERBOSE;

/// One event per reason in this time.
const SAME_REASON: Duration = Duration::from_secs(600);
/// Events within [`HOUR`].
const IN_AN_HOUR: usize = 6;
const HOUR: Duration = Duration::from_secs(3600);
/// Changes of a link within [`SAME_REASON`] that make it flapping.
const FLAPS: u64 = 6;

/// Events that wait to be sent, and the limit.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: Vec<Event>,
    /// The last events within an hour.
    recent: VecDeque<(&'static str, Mono)>,
    /// Events over the limit.
    dropped: u64,
}

impl Events {
    pub(super) fn take(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.waiting)
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, reason: &'static str, message: impl Into<String>, now: Mono) {
        self.push("Warning", reason, message.into(), now);
    }

    /// Adds the event of a changed status, with node-problem-detector's text.
    pub(super) fn of_change(&mut self, reason: &'static str, new: &Statement, now: Mono) {
        let (kind, status) = match new.is_true {
            true => ("Warning", "True"),
            false => ("Normal", "False"),
        };
        let text = format!(
            "Node condition {} is now: {status}, reason: {}, message: \"{}\"",
            new.name, new.reason, new.message
        );
        self.push(kind, reason, text, now);
    }

    fn push(&mut self, kind: &'static str, reason: &'static str, message: String, now: Mono) {
        while self
            .recent
            .front()
            .is_some_and(|(_, at)| now.since(*at) >= HOUR)
        {
            self.recent.pop_front();
        }
        let is_repeated = |(old, at): &(&str, Mono)| *old == reason && now.since(*at) < SAME_REASON;
        if self.recent.len() >= IN_AN_HOUR || self.recent.iter().any(is_repeated) {
            self.dropped = self.dropped.saturating_add(1);
            log::info!(target: VERBOSE, "event {reason} is over the limit; dropped so far: {}",
                self.dropped
            );
            return;
        }
        self.recent.push_back((reason, now));
        self.waiting.push(Event {
            kind,
            reason,
            message,
        });
    }
}

/// The counters at the last look.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    oom_kills: Option<u64>,
    memory_errors: Option<u64>,
    links: Vec<Link>,
}

/// An interface: its name, its last count, and the changes of the last minutes.
#[derive(Debug)]
struct Link {
    name: String,
    last: u64,
    changes: VecDeque<(Mono, u64)>,
}

impl Baseline {
    /// Adds the events of what happened since the last look.
    pub(super) fn compare(&mut self, counters: &Counters, events: &mut Events, now: Mono) {
        if grew(counters.oom_kills, self.oom_kills) {
            let message = "the kernel killed a process for lack of memory";
            events.warn("OOMKilling", message, now);
        }
        if grew(counters.memory_errors, self.memory_errors) {
            let message = "the memory controller counted an uncorrectable error";
            events.warn("MemoryReadError", message, now);
        }
        // A counter that could not be read keeps its baseline.
        self.oom_kills = counters.oom_kills.or(self.oom_kills);
        self.memory_errors = counters.memory_errors.or(self.memory_errors);
        self.links
            .retain(|link| counters.links.iter().any(|(name, _)| *name == link.name));
        for (name, count) in &counters.links {
            match self.links.iter_mut().find(|link| link.name == *name) {
                Some(link) => {
                    if link.is_flapping(*count, now) {
                        let message = format!(
                            "the link of {name} changed at least {FLAPS} times in 10 minutes"
                        );
                        events.warn("LinkFlapping", message, now);
                    }
                }
                None => self.links.push(Link {
                    name: name.clone(),
                    last: *count,
                    changes: VecDeque::new(),
                }),
            }
        }
    }
}

impl Link {
    fn is_flapping(&mut self, count: u64, now: Mono) -> bool {
        let change = count.saturating_sub(self.last);
        self.last = count;
        while self
            .changes
            .front()
            .is_some_and(|(at, _)| now.since(*at) > SAME_REASON)
        {
            self.changes.pop_front();
        }
        if change > 0 {
            self.changes.push_back((now, change));
        }
        let sum = self.changes.iter().map(|(_, change)| *change);
        let is_flapping = change > 0 && sum.fold(0, u64::saturating_add) >= FLAPS;
        if is_flapping {
            self.changes.clear();
        }
        is_flapping
    }
}
