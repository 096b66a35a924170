//! All conditions about the board's health: what the rules say, and what became of it before.

use std::time::Duration;

use serde_json::Value;

use super::condition_state::{ConditionState, MAX_MESSAGE, cut};
use super::config::{FileCondition, HealthConfig};
use super::kernel::Baseline;
use super::{HealthReading, KINDS, Rule, RuleInput, RuleStates, Sign};
use crate::core::conditions;
use crate::core::events::Event;
use crate::core::health::{HealthCondition, HealthConditions};
use crate::core::instant::{Mono, Now};
use crate::kube::object;
use crate::kube::time::Wall;

/// Reasons of `--node-condition`.
const FILE_EXISTS: &str = "FileExists";
const FILE_MISSING: &str = "FileMissing";
/// Limit of a reason in a file (metav1.Condition allows 1024).
const MAX_REASON: usize = 63;

/// All conditions about the board's health.
#[derive(Debug)]
pub struct Health {
    config: HealthConfig,
    rules: RuleStates,
    /// One for each of [`KINDS`].
    states: [ConditionState; KINDS.len()],
    /// The first line of each `--node-condition` file; `None`: it does not exist.
    files: Vec<Option<String>>,
    baseline: Baseline,
    events: Vec<Event>,
    /// When this boot began: the time since boot at a reading.
    uptime: Option<(Mono, u64)>,
    /// Types that are not detected and that an earlier process left on the Node. Deleted once:
    /// afterwards they may be another program's, which may use the same reasons.
    leftovers: Vec<&'static str>,
    /// Types whose condition on the Node has a reason of another program.
    foreign: Vec<&'static str>,
    has_adopted: bool,
}

/// How the caller shall read the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Every 10 s, not once a minute: a source is suspect.
    pub is_fast: bool,
    /// Wait for notifications of the voltage driver. Not while the condition is True, because a
    /// weak supply notifies every few seconds.
    pub wait_for_voltage: bool,
}

impl Health {
    /// `built` is the time of this program's build: no right clock shows an earlier one.
    pub fn new(config: &HealthConfig, built: Wall) -> Self {
        Self {
            config: config.clone(),
            rules: RuleStates::new(built),
            states: Default::default(),
            files: Vec::new(),
            baseline: Baseline::default(),
            events: Vec::new(),
            uptime: None,
            leftovers: Vec::new(),
            foreign: Vec::new(),
            has_adopted: false,
        }
    }

    /// Takes a reading. `now.wall` is the board's clock.
    pub fn on_reading(&mut self, reading: &HealthReading, now: Now) {
        self.rules.ntp.on_reading(reading, now.wall);
        if let Some(boots) = &reading.boots {
            self.rules.history.load(boots);
        }
        self.uptime = reading.uptime_seconds.map(|uptime| (now.mono, uptime));
        if self.config.detects_any() {
            let mut signs = Vec::new();
            self.baseline.compare(&reading.counters, &mut signs, now.mono);
            if reading.counters.watchdog_reset && !self.rules.history.knows_this_boot() {
                let message = "the last boot followed a reset by the watchdog";
                signs.push(("WatchdogReset", message.to_owned()));
            }
            self.events.extend(signs.into_iter().map(warning));
        }
        self.judge(Some(reading), now);
    }

    /// Takes the `Date` of a response to a request that was sent at `start`. `now.wall` is the
    /// board's clock.
    pub fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        self.rules.ntp.on_date(date, start, now);
        self.judge(None, now);
    }

    /// Asks the rules; without a reading those of the time alone.
    fn judge(&mut self, reading: Option<&HealthReading>, now: Now) {
        for (kind, state) in KINDS.iter().zip(&mut self.states) {
            let problem = state.get().flatten();
            let result = match (&kind.rule, reading) {
                (Rule::OfTime(judge), _) => judge(&self.rules, now),
                (Rule::OfReading(judge), Some(reading)) => {
                    judge(&mut self.rules, &RuleInput { reading, now, problem })
                }
                (Rule::OfReading(_), None) => continue,
            };
            state.step(result, |reason| kind.clear(reason), now.mono);
            let signs = std::mem::take(&mut self.rules.signs);
            if self.config.detects(kind.name) {
                self.events.extend(signs.into_iter().map(warning));
            }
        }
    }

    /// Takes the first line of each `--node-condition` file, in their order; `None`: it does not
    /// exist.
    pub fn on_files(&mut self, lines: Vec<Option<String>>) {
        // A look that ended early has no lines of the last files: what was read of them is kept.
        let read = lines.len().min(self.files.len());
        self.files.splice(..read, lines);
    }

    /// Takes the conditions of the Node as the server has them; none if it is not known. The first
    /// ones are those of an earlier process.
    pub fn on_node(&mut self, conditions: &[Value]) {
        let find = |name: &str| conditions.iter().find(|c| conditions::is(c, name));
        self.leftovers.retain(|name| find(name).is_some());
        self.foreign.clear();
        for kind in &KINDS {
            if find(kind.name).is_some_and(|condition| kind.recognize(condition).is_none()) {
                self.foreign.push(kind.name);
            }
        }
        if conditions.is_empty() || std::mem::replace(&mut self.has_adopted, true) {
            return;
        }
        // Each patch of this program sets the heartbeat of Ready and of all its conditions.
        let heartbeat = |condition| object::text(condition, &["lastHeartbeatTime"]);
        let last_patch = find("Ready").map(heartbeat);
        for (kind, state) in KINDS.iter().zip(&mut self.states) {
            let Some(condition) = find(kind.name) else { continue };
            let Some(problem) = kind.recognize(condition) else { continue };
            if self.config.detects(kind.name) {
                state.adopt(problem);
            } else if last_patch == Some(heartbeat(condition)) {
                self.leftovers.push(kind.name);
            }
        }
    }

    /// The conditions for the next write of the Node.
    pub fn conditions(&self) -> HealthConditions {
        let mut found = HealthConditions { known: Vec::new(), absent: self.leftovers.clone() };
        for (kind, state) in KINDS.iter().zip(&self.states) {
            match state.get() {
                _ if !self.config.detects(kind.name) => {}
                // Without a source, a condition of another program stays.
                None if self.foreign.contains(&kind.name) => {}
                None => found.absent.push(kind.name),
                Some(problem) => {
                    let (reason, message) = match problem {
                        Some(problem) => (problem.reason, problem.message.clone().into()),
                        None => (kind.fine.0, kind.fine.1.into()),
                    };
                    found.known.push(HealthCondition {
                        name: kind.name.into(),
                        is_true: problem.is_some(),
                        reason: reason.into(),
                        message,
                        event_reason: reason,
                        is_always_listed: self.config.lists_all,
                    });
                }
            }
        }
        let files = self.config.files.iter().zip(&self.files);
        found.known.extend(files.map(|(file, line)| of_file(file, line.as_deref())));
        found
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// How to read next.
    pub fn pace(&self) -> Pace {
        let is_true = |name: &str| {
            let mut all = KINDS.iter().zip(&self.states);
            all.any(|(kind, state)| kind.name == name && state.is_true())
        };
        let is_low = is_true("UnderVoltage");
        Pace {
            is_fast: (self.rules.under_voltage.is_suspect() && !is_low)
                || (self.rules.throttling.is_suspect() && !is_true("ThermalThrottling")),
            wait_for_voltage: !is_low,
        }
    }

    /// The file `boots` to write, once per boot: when the clock is known to be right.
    pub fn boots_to_write(&mut self, now: Now) -> Option<String> {
        if !self.config.detects("FrequentReboot") || !self.rules.ntp.is_vouched() {
            return None;
        }
        let (at, uptime) = self.uptime?;
        let since_boot = Duration::from_secs(uptime).saturating_add(now.mono.since(at));
        self.rules.history.record(now.wall.before(since_boot).seconds())
    }

    /// The result of writing the file.
    pub fn on_boots_written(&mut self, is_ok: bool) {
        self.rules.history.on_written(is_ok);
    }

    /// The file `boots` to write when this process is asked to stop.
    pub fn boots_at_stop(&mut self) -> Option<String> {
        self.rules.history.stop()
    }
}

fn warning((reason, message): Sign) -> Event {
    Event::of_health("Warning", reason, message)
}

/// The conditions and events if what the last of `readings` found lasted: every waiting time is
/// taken as over. `files` has the first lines of `--node-condition`, `date` is the server's time,
/// if known. What the rules remember may be given by an earlier reading.
pub fn if_it_lasted(
    config: &HealthConfig,
    built: Wall,
    readings: &[HealthReading],
    files: Vec<Option<String>>,
    date: Option<Wall>,
    now: Now,
) -> (HealthConditions, Vec<Event>) {
    const TICK: Duration = Duration::from_secs(10);
    /// 2 minutes: longer than each time to True, and shorter than the 10 minutes after which a
    /// counter's growth is over.
    const TICKS: u32 = 12;
    let mut health = Health::new(config, built);
    let mut at = now;
    for reading in readings {
        at.mono = at.mono.after(TICK);
        health.on_reading(reading, at);
    }
    if let Some(reading) = readings.last() {
        // These are in the first reading alone.
        let mut reading = reading.clone();
        reading.boots = None;
        reading.counters.watchdog_reset = false;
        for _ in 0..TICKS {
            at.mono = at.mono.after(TICK);
            reading.discovery += 1;
            if let Some(date) = date {
                health.on_date(date, at.mono, at);
            }
            health.on_reading(&reading, at);
        }
    }
    health.on_files(files);
    (health.conditions(), health.take_events())
}

/// A `--node-condition`, from the file's first line: `text`, or `Reason: text`. Without a text the
/// message names flag and file.
fn of_file(file: &FileCondition, line: Option<&str>) -> HealthCondition {
    let is_reason = |word: &&str| {
        word.len() <= MAX_REASON
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let says = |what: &str| {
        cut(&format!("--node-condition: {what}: {}", file.path.display()), MAX_MESSAGE)
    };
    let (reason, message) = match line.map(|line| (line, line.split_once(": "))) {
        None => (FILE_MISSING, says("no such file")),
        Some((line, parts)) => {
            let (reason, text) =
                parts.filter(|(word, _)| is_reason(word)).unwrap_or((FILE_EXISTS, line));
            match text.trim() {
                "" => (reason, says("the file exists")),
                text => (reason, cut(text, MAX_MESSAGE)),
            }
        }
    };
    HealthCondition {
        name: file.name.clone().into(),
        is_true: line.is_some(),
        reason: reason.to_owned().into(),
        message: message.into(),
        event_reason: if line.is_some() { FILE_EXISTS } else { FILE_MISSING },
        is_always_listed: true,
    }
}
