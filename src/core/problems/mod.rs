//! The board's health: conditions and events in the manner of node-problem-detector.
//!
//! A condition type is True while there is a problem. A source that the board does not have gives no
//! condition. By default a type is listed from its first True until it has been False for 24 hours,
//! so a healthy board sends nothing. The conditions never touch `Ready`, taints or the pressures.
//! `host::problems` looks at the sources; each rule here has a file of its own.

mod boots;
mod clock;
mod events;
mod filesystems;
mod heat;
mod kernel;
mod listed;
mod listing;
pub mod look;
mod rules;
mod state;
mod texts;
mod voltage;
mod wear;

use std::time::Duration;

use serde_json::Value;

pub use listed::{Listed, Statement};
pub use voltage::is_dip;

use self::events::{Baseline, Events};
use self::listing::Listing;
use self::look::Look;
use self::rules::Rules;
use self::state::{MAX_MESSAGE, cut};
use crate::config::problems::{Kind, Problems as Config};
use crate::core::events::Event;
use crate::core::instant::{Mono, Now};
use crate::kube::time::Wall;

/// Reasons of `--node-condition`.
const FILE_EXISTS: &str = "FileExists";
const FILE_MISSING: &str = "FileMissing";
/// Limit of a reason in a file (metav1.Condition allows 1024).
const MAX_REASON: usize = 63;

/// All conditions about the board's health.
#[derive(Debug)]
pub struct Problems {
    config: Config,
    rules: Rules,
    listing: Listing,
    events: Events,
    baseline: Baseline,
}

/// How the caller shall look at the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Look every 10 s, not once a minute: a source is suspect.
    pub is_fast: bool,
    /// Wait for notifications of the voltage driver. Not while the condition is True, because a
    /// weak supply notifies every few seconds.
    pub wait_for_voltage: bool,
}

impl Problems {
    /// `built` is the time of this program's build: no right clock shows an earlier one.
    pub fn new(config: &Config, built: Wall) -> Self {
        Self {
            rules: Rules::new(built),
            listing: Listing::new(config),
            events: Events::default(),
            baseline: Baseline::default(),
            config: config.clone(),
        }
    }

    /// Takes a look. `now.wall` is the board's clock.
    pub fn on_look(&mut self, look: &Look, now: Now) {
        let signs = self.rules.on_look(look, now);
        if !self.config.kinds.is_empty() {
            self.baseline
                .compare(&look.counters, &mut self.events, now.mono);
            if look.counters.watchdog_reset && !self.rules.knows_this_boot() {
                let message = "the last boot followed a reset by the watchdog";
                self.events.warn("WatchdogReset", message, now.mono);
            }
        }
        for (kind, reason, message) in signs {
            if self.config.kinds.contains(&kind) && !self.listing.is_ceded(kind) {
                self.events.warn(reason, message, now.mono);
            }
        }
        self.follow(&Kind::ALL);
    }

    /// Takes the first line of each `--node-condition` file, in their order; `None`: it does not
    /// exist.
    pub fn on_files(&mut self, lines: &[Option<String>]) {
        for (file, line) in self.config.files.iter().zip(lines) {
            let (is_true, reason, message) = of_file(line.as_deref());
            let current = Some((is_true, reason, message.as_str()));
            self.listing.set(&file.name, current);
        }
    }

    /// Takes the `Date` of a response to a request that was sent at `start`. `now.wall` is the
    /// board's clock.
    pub fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        self.rules.on_date(date, start, now);
        self.follow(&[Kind::NTPProblem, Kind::FrequentReboot]);
    }

    /// Takes the conditions of the Node as the server has them.
    pub fn on_read(&mut self, conditions: &[Value]) {
        for (kind, problem) in self.listing.on_read(conditions, &mut self.events) {
            self.rules.adopt(kind, problem);
        }
        self.follow(&Kind::ALL);
    }

    /// The server accepted the Node with what [`Self::publish`] returned last.
    pub fn on_written(&mut self) {
        self.listing.on_written(&mut self.events);
    }

    /// The Node was deleted on the server.
    pub fn on_gone(&mut self) {
        self.listing.on_gone();
    }

    /// The conditions of the next write. `regular`: a report is due, else only a changed status is
    /// worth a patch. `now.wall` is the time that is written.
    pub fn publish(&mut self, regular: bool, now: Now) -> Listed {
        self.listing.publish(regular, now)
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// How to look next.
    pub fn pace(&self) -> Pace {
        self.rules.pace()
    }

    /// The file `boots` to write, once per boot: when the clock is known to be right.
    pub fn boots_to_write(&mut self, now: Now) -> Option<String> {
        let is_on = self.config.kinds.contains(&Kind::FrequentReboot);
        is_on.then(|| self.rules.boots_to_write(now)).flatten()
    }

    /// The result of writing the file.
    pub fn on_boots_written(&mut self, is_ok: bool) {
        self.rules.on_boots_written(is_ok);
    }

    /// The file `boots` to write when this process is asked to stop.
    pub fn boots_at_stop(&mut self) -> Option<String> {
        self.rules.boots_at_stop()
    }

    /// Passes what the rules of `kinds` say to the list.
    fn follow(&mut self, kinds: &[Kind]) {
        for kind in kinds.iter().filter(|kind| self.config.kinds.contains(kind)) {
            let current = self.rules.get(*kind).map(|problem| match problem {
                Some(problem) => (true, problem.reason, problem.message.as_str()),
                None => {
                    let (reason, message) = texts::fine(*kind);
                    (false, reason, message)
                }
            });
            self.listing.set(kind.name(), current);
        }
    }
}

/// The conditions and events if what `look` found lasted: every waiting time is taken as over.
/// `files` has the first lines of `--node-condition`, `date` is the server's time, if known. What the
/// rules remember may be given by an earlier look.
pub fn if_it_lasted(
    config: &Config,
    built: Wall,
    looks: &[Look],
    files: &[Option<String>],
    date: Option<Wall>,
    now: Now,
) -> (Listed, Vec<Event>) {
    const TICK: Duration = Duration::from_secs(10);
    /// 2 minutes: longer than each time to True, and shorter than the 10 minutes after which a
    /// counter's growth is over.
    const TICKS: u32 = 12;
    let mut problems = Problems::new(config, built);
    let mut at = now;
    for look in looks {
        at.mono = at.mono.after(TICK);
        problems.on_look(look, at);
    }
    if let Some(look) = looks.last() {
        // These are in the first look alone.
        let mut look = look.clone();
        look.boots = None;
        look.counters.watchdog_reset = false;
        for _ in 0..TICKS {
            at.mono = at.mono.after(TICK);
            look.discovery += 1;
            if let Some(date) = date {
                problems.on_date(date, at.mono, at);
            }
            problems.on_look(&look, at);
        }
    }
    problems.on_files(files);
    let listed = problems.publish(true, at);
    problems.on_written();
    (listed, problems.take_events())
}

/// Status, reason and message of a `--node-condition`, from the file's first line: `text`, or
/// `Reason: text`.
fn of_file(line: Option<&str>) -> (bool, &str, String) {
    let Some(line) = line else {
        return (false, FILE_MISSING, "the file does not exist".to_owned());
    };
    let is_reason = |word: &&str| {
        word.len() <= MAX_REASON
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let (reason, text) = match line.split_once(": ") {
        Some((word, text)) if is_reason(&word) => (word, text),
        _ => (FILE_EXISTS, line),
    };
    let message = match text.trim() {
        "" => "the file exists".to_owned(),
        text => cut(text, MAX_MESSAGE),
    };
    (true, reason, message)
}

#[cfg(test)]
mod tests;
