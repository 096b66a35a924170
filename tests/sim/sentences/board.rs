//! Sentence 3: what the Node says is what the board is. A published value is one that a read of the
//! last minutes returned; what was not read changes nothing.
//!
//! A value is judged when the agent writes it. That a lasting problem is told, and that a value
//! follows the board, is judged where nothing but the hardware disturbs the agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{Judged, Run, Sentence};
use crate::kube::time::Wall;
use crate::sim::classes::board::is_hardware;
use crate::sim::devices::Truth;
use crate::sim::trace::{Exchange, State, What};

pub(super) const SENTENCE: Sentence = Sentence { number: 3, name: "board", judge };

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What nothing announces is read once a minute; then the status is computed and sent.
const READ: Duration = seconds(105);
/// What does not change before a reboot is read only if it is missing, or with the read of the hour.
const READ_ONCE: Duration = seconds(3600 + 105);
/// An agent that was disturbed has recovered after this time (the longest bound of Ready).
const RECOVERS: Duration = seconds(170);
/// The file that was too slow in three looks is left out for 50 minutes.
const LEFT_OUT: Duration = seconds(3000 + 105);
/// An agent has looked at all sources this long after its start.
const FIRST_LOOK: Duration = seconds(30);

/// A condition, and its times (systemd/health.md).
struct Rule {
    kind: &'static str,
    /// A lasting problem is told after this time.
    told: Duration,
    /// A problem may have ended so long before it is told.
    stale: Duration,
    /// A problem that is told has lasted for this time within `stale`.
    lasted: Duration,
    /// True lasts so long after the problem.
    clear: Duration,
}

/// What grows, and makes KernelDeadlock True for ten minutes.
pub(super) const GROWTHS: [&str; 3] = ["SoftLockup", "RCUStall", "TaskHung"];

/// A pressure is True until 5 min after it was last seen; a new process does not know the last time.
const PRESSURE: Rule = Rule {
    kind: "",
    told: seconds(30),
    stale: seconds(300 + 105),
    lasted: seconds(0),
    clear: seconds(0),
};

const RULES: &[Rule] = &[
    Rule { kind: "MemoryPressure", ..PRESSURE },
    Rule { kind: "DiskPressure", ..PRESSURE },
    Rule { kind: "PIDPressure", ..PRESSURE },
    // The table of mounts is read every 5 min, because an error reports no change of it.
    Rule {
        kind: "ReadonlyFilesystem",
        told: seconds(440),
        stale: seconds(500),
        lasted: seconds(0),
        clear: seconds(60),
    },
    Rule {
        kind: "FilesystemCorruptionProblem",
        told: seconds(440),
        stale: seconds(200),
        lasted: seconds(0),
        clear: seconds(0),
    },
    Rule {
        kind: "StorageWornOut",
        told: seconds(130),
        stale: seconds(3700),
        lasted: seconds(0),
        clear: seconds(0),
    },
    Rule {
        kind: "UnderVoltage",
        told: seconds(130),
        stale: seconds(800),
        lasted: seconds(2),
        clear: seconds(3600),
    },
    Rule {
        kind: "ThermalThrottling",
        told: seconds(130),
        // It ends with the first look after 5 min, and the server may hear of it only now.
        stale: seconds(300 + 105),
        lasted: seconds(15),
        clear: seconds(300),
    },
    Rule {
        kind: "KernelDeadlock",
        told: seconds(130),
        stale: seconds(3700),
        lasted: seconds(0),
        clear: seconds(0),
    },
];

/// The run so far.
struct Watch<'a> {
    judged: Judged,
    /// What was true, and since when.
    past: Vec<(Duration, &'a Truth)>,
    /// When something else than the hardware disturbs the agent.
    disturbed: Vec<(Duration, Duration)>,
    /// [`Plan::root_can_block`](crate::sim::plan::Plan::root_can_block).
    root_can_block: bool,
    has_boot_id: bool,
    /// When files are slow, or cannot be read.
    unread: Vec<(Duration, Duration)>,
    suspended: Vec<(Duration, Duration)>,
    /// Until when a counter of the kernel's faults is left out.
    uncounted_until: Duration,
    agent_since: Option<Duration>,
    /// The board may be lost, for a reason that has a name.
    is_excused: bool,
    /// The first write of the Node by this process. Behind servers that are silent its first look
    /// waits for the first request that fails.
    first_write: Option<Duration>,
    /// At the end of the last quiet time nobody expected a Node of the board.
    is_down: bool,
    /// The boot in which an agent took an edit of the boot medium for a file system that failed.
    edited_in: Option<u64>,
    /// Agents of this boot.
    starts: u64,
    /// The status of each condition that the Node has.
    told: BTreeMap<&'static str, bool>,
    /// Events about the board's health: when, and why.
    events: Vec<(Duration, String)>,
    /// When an event LinkFlapping was refused.
    refused_flaps: Vec<Duration>,
    /// When a write last changed the boot id of the Node.
    boot_written: Duration,
    /// When a server last showed the Node with another boot id: it lags, or another board of this
    /// name has written it.
    other_boot_shown: Duration,
    /// The reasons of the events by their names.
    event_names: BTreeMap<String, String>,
    /// The lines of the history of boots.
    boots: Vec<String>,
}

fn judge(run: &Run<'_>) -> Judged {
    let (mut disturbed, mut suspended, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for step in run.plan.steps.iter().filter(|step| !is_hardware(step.class.name)) {
        let at = step.when.at();
        let boots = seconds(120 + step.size);
        let lasts = match step.class.name {
            // What the hardware does goes on when the board is on again.
            "brown-out" | "driver-late" | "suspend" | "power-loss" | "reboot" => boots,
            _ => step.lasts.max(seconds(120)),
        };
        disturbed.push((at, at + lasts));
        // The first read of a file by the restarted agent of a twin with a target fails.
        let reads_fail = step.class.name == "twin" && step.target != 0;
        if step.class.name.contains("reads-") || step.class.name == "look-ends" || reads_fail {
            unread.push((at, at + step.lasts));
        }
        if step.class.name == "suspend" {
            suspended.push((at, at + seconds(step.size)));
        }
    }
    let mut watch = Watch {
        judged: Judged::default(),
        past: Vec::new(),
        disturbed,
        root_can_block: run.plan.root_can_block(),
        has_boot_id: run.plan.setting("bootid") != "none",
        unread,
        suspended,
        uncounted_until: Duration::ZERO,
        agent_since: None,
        is_excused: false,
        first_write: None,
        is_down: false,
        edited_in: None,
        starts: 0,
        told: BTreeMap::new(),
        events: Vec::new(),
        refused_flaps: Vec::new(),
        boot_written: Duration::ZERO,
        other_boot_shown: Duration::ZERO,
        event_names: BTreeMap::new(),
        boots: Vec::new(),
    };
    for entry in run.trace {
        let at = entry.at;
        match &entry.what {
            What::Board(truth) => watch.changes(at, truth),
            What::Starts { name: "nodelet", .. } => {
                (watch.agent_since, watch.first_write) = (Some(at), None);
                // Who starts it expects a Node.
                watch.is_down = false;
                watch.starts += 1;
            }
            What::Ends { name: "nodelet", .. } => watch.agent_since = None,
            What::Log { text, .. } if text.contains("it is left out for 50 minutes") => {
                watch.disturbed.push((at, at + LEFT_OUT));
                if text.contains("sys/kernel/") {
                    watch.uncounted_until = at + LEFT_OUT;
                }
            }
            What::Boots { is_written, text } => watch.take_boots(at, *is_written, text),
            What::Answer(answer) if is_of_agent(answer) => {
                watch.takes_boot_id(at, answer);
                watch.answer(at, answer);
            }
            What::Answer(answer) if is_refused_flapping(answer) => watch.refused_flaps.push(at),
            What::Judged(state) => {
                watch.is_excused |= state.excuse.is_some();
                watch.is_down = !state.is_up;
                if state.is_up {
                    watch.settled(at, state);
                }
            }
            _ => {}
        }
    }
    watch.judged
}

fn is_of_agent(answer: &Exchange) -> bool {
    answer.is_carried_out && answer.code < 300 && answer.user.starts_with("system:node:")
}

/// As by client-go, an event that is refused, also by a gateway's page, is not sent again.
fn is_refused_flapping(answer: &Exchange) -> bool {
    let is_event = answer.method == "POST" && answer.target.contains("/events");
    is_event && (300..500).contains(&answer.code) && answer.body["reason"] == "LinkFlapping"
}

/// Status of a condition in a list; `None` if it is not listed.
fn status_of(conditions: &Value, kind: &str) -> Option<bool> {
    let mut list = conditions.as_array()?.iter();
    let found = list.find(|condition| condition["type"] == kind)?;
    Some(found["status"] == "True")
}

/// Whether a condition has been False for a day by the clock of the board, which may be wrong: with
/// `problems` it is listed no more (systemd/health.md).
fn is_old(conditions: &Value, before: &Value, kind: &str) -> bool {
    let time = |list: &Value, kind: &str, member: &str| {
        let mut all = list.as_array()?.iter();
        let text = all.find(|condition| condition["type"] == kind)?[member].as_str()?;
        Wall::parse(text).map(Wall::seconds)
    };
    let now = time(conditions, "Ready", "lastHeartbeatTime");
    let since = time(before, kind, "lastTransitionTime");
    now.zip(since).is_some_and(|(now, since)| now >= since.saturating_add(86_400))
}

/// A value of the Node, as the truth writes it; `None` if it is not there.
fn value_of(status: &Value, name: &str) -> Option<String> {
    let value = match name {
        "memory" | "ephemeral-storage" | "hugepages-2Mi" | "cpu" | "pods" => {
            return amount(status["capacity"][name].as_str()?);
        }
        "address" => {
            let mut addresses = status["addresses"].as_array()?.iter();
            &addresses.find(|address| address["type"] == "InternalIP")?["address"]
        }
        name => &status["nodeInfo"][name],
    };
    value.as_str().map(str::to_owned)
}

/// `1048576Ki` in bytes.
fn amount(text: &str) -> Option<String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text.get(digits.len()..)? {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1_u64 << 30,
        _ => return None,
    };
    Some((digits.parse::<u64>().ok()? * unit).to_string())
}

impl<'a> Watch<'a> {
    fn now(&self) -> Option<&'a Truth> {
        self.past.last().map(|(_, truth)| *truth)
    }

    /// What was true at some time since `from`, with the end of each.
    fn since(&self, from: Duration) -> impl Iterator<Item = (Duration, &'a Truth, Duration)> {
        let ends = self.past.iter().skip(1).map(|(at, _)| *at).chain([Duration::MAX]);
        let all = self.past.iter().zip(ends).map(|((at, truth), end)| (*at, *truth, end));
        let all: Vec<_> = all.filter(|(.., end)| *end > from).collect();
        all.into_iter()
    }

    fn is_disturbed(&self, from: Duration, until: Duration) -> bool {
        let from = from.saturating_sub(RECOVERS);
        self.disturbed.iter().any(|(begin, end)| *begin <= until && *end >= from)
    }

    /// Since when a condition has had this level or more; `None` if it has not now.
    fn level_since(&self, kind: &str, level: u8) -> Option<Duration> {
        let holds = |(_, truth): &&(Duration, &Truth)| truth.level(kind) >= level;
        self.past.iter().rev().take_while(holds).last().map(|(at, _)| *at)
    }

    fn breaks(&mut self, at: Duration, kind: &str, text: String) {
        self.judged.breaks(at, kind, text);
    }

    /// The board changes: a problem that ends must have been told if it lasted.
    fn changes(&mut self, at: Duration, truth: &'a Truth) {
        if self.now().is_some_and(|before| before.boot != truth.boot) {
            self.starts = 0;
        }
        for rule in RULES {
            if truth.level(rule.kind) < 2
                && let Some(since) = self.level_since(rule.kind, 2)
            {
                self.must_be_told(at, rule, since);
            }
        }
        self.past.push((at, truth));
    }

    /// A problem has lasted since a time: it is told, if nothing disturbed the agent.
    fn must_be_told(&mut self, at: Duration, rule: &Rule, since: Duration) {
        let Some(agent) = self.agent_since.filter(|_| !self.is_excused && !self.is_down) else {
            return;
        };
        let is_unseen = self.turned_unseen(since, rule) && !self.another_failed(since);
        // A root on a network is measured once.
        let is_old = rule.kind == "DiskPressure" && self.root_can_block;
        if is_unseen || is_old || rule.kind == "UnderVoltage" && self.was_rebound(agent) {
            return;
        }
        let since = since.max(agent + seconds(10));
        let is_early =
            self.past.iter().any(|(from, truth)| truth.is_early && *from + RECOVERS > since);
        if at < since + rule.told || self.is_disturbed(since, at) || is_early {
            return;
        }
        self.judged.count += 1;
        if self.told.get(rule.kind) != Some(&true) {
            let text = format!("{} is not True though it holds since {since:?}", rule.kind);
            self.breaks(at, &format!("{} is not told", rule.kind), text);
        }
    }

    /// The agent has only the Node to know whether an earlier process of this boot wrote it.
    fn takes_boot_id(&mut self, at: Duration, answer: &Exchange) {
        let id = answer.answer["status"]["nodeInfo"]["bootID"].as_str();
        let is_other = |now: &Truth| id.is_some_and(|id| id != now.fact("bootID"));
        if answer.method == "GET" && self.now().is_some_and(is_other) {
            self.other_boot_shown = at;
        }
    }

    /// The agent wrote to the server.
    fn answer(&mut self, at: Duration, answer: &Exchange) {
        if answer.target.contains("/events") {
            return self.event(at, answer);
        }
        if !answer.is_node_write() {
            return;
        }
        self.first_write.get_or_insert(at);
        let from = answer.arrived;
        // What was read before a suspend is sent after it, if it is not older than 20 s.
        let is_sent = |end: Duration| end + seconds(25) > at;
        let is_frozen = self.suspended.iter().any(|(begin, end)| *begin <= at && is_sent(*end));
        let status = &answer.body["status"];
        let boot = &status["nodeInfo"]["bootID"];
        if !boot.is_null() && *boot != answer.before["status"]["nodeInfo"]["bootID"] {
            self.boot_written = at;
        }
        if !is_frozen {
            self.values(from, status, &answer.before["status"]);
            if status["conditions"].is_array() {
                self.conditions(
                    from,
                    &status["conditions"],
                    &answer.before["status"]["conditions"],
                );
            }
        }
        let list = &answer.body["status"]["conditions"];
        if list.is_array() {
            self.take_told(list);
        }
    }

    fn take_told(&mut self, list: &Value) {
        for rule in RULES {
            match status_of(list, rule.kind) {
                Some(is_true) => self.told.insert(rule.kind, is_true),
                None => self.told.remove(rule.kind),
            };
        }
    }

    /// Each value that a write changes.
    fn values(&mut self, at: Duration, status: &Value, before: &Value) {
        let Some(now) = self.now() else { return };
        for name in now.facts.keys().copied() {
            let Some(value) = value_of(status, name) else { continue };
            if value_of(before, name).as_ref() == Some(&value) {
                continue;
            }
            let window = match name {
                "machineID" | "systemUUID" | "bootID" | "kernelVersion" => READ_ONCE,
                _ => READ,
            };
            let mut from = at.saturating_sub(window);
            // A file of a root that can block is read at the start alone.
            let is_of_start =
                matches!(name, "osImage" | "ephemeral-storage") && self.root_can_block;
            if let Some(agent) = self.agent_since.filter(|_| is_of_start) {
                from = from.min(agent.saturating_sub(seconds(5)));
            }
            // A look that a slow file ended leaves the values of the one before, perhaps of before a
            // silence of the servers.
            let is_cut = |(begin, end): &(Duration, Duration)| {
                *begin <= at && at.saturating_sub(seconds(5)) <= *end
            };
            if let Some(agent) = self.agent_since.filter(|_| self.unread.iter().any(is_cut)) {
                from = from.min(agent.saturating_sub(seconds(5)));
            }
            self.judged.count += 1;
            let is_true = |value: &String| {
                self.since(from).any(|(_, truth, _)| truth.fact(name) == value.as_str())
            };
            let before = value_of(before, name);
            // A Node that is created has nothing to keep of a file that cannot be read. Nor has one
            // whose address is gone, perhaps that of a backup of etcd: the route decides.
            let is_new = before.is_none();
            // etc/hosts is read again after a minute; that of a root that can block is not.
            let is_address = name == "address";
            let (looked, until) = match self.agent_since {
                Some(agent) if self.root_can_block && is_address => {
                    (agent.saturating_sub(seconds(5)), agent + FIRST_LOOK)
                }
                _ if is_of_start => (from, at),
                _ => (at.saturating_sub(seconds(if is_address { 70 } else { 5 })), at),
            };
            let has_left = |old: String| {
                name == "address" && self.since(looked).any(|(_, truth, _)| truth.fact(name) != old)
            };
            let keeps_none = before.is_none_or(has_left);
            let is_unread = |(begin, end): &(Duration, Duration)| *begin <= until && looked <= *end;
            if keeps_none && self.unread.iter().any(is_unread) {
                continue;
            }
            // "" is an identity that could not be read at the first start.
            let is_missing = value.is_empty() && is_new;
            if !is_missing && !is_true(&value) {
                let text = format!("{name} is {value:?}; true is {:?}", now.fact(name));
                self.breaks(at, &format!("{name} is not true"), text);
            }
        }
    }

    /// The list of conditions that a write has, and the one before.
    fn conditions(&mut self, at: Duration, list: &Value, before: &Value) {
        for rule in RULES {
            let kind = rule.kind;
            match (status_of(before, kind), status_of(list, kind)) {
                (Some(true), Some(true)) => self.outlasts(at, rule),
                // The server lost what the agent told: the Node was deleted, or is of a backup.
                (_, Some(true)) if self.told.get(kind) == Some(&true) => {}
                (_, Some(true)) => self.begins(at, rule),
                (Some(true), Some(false)) => self.ends(at, rule),
                (Some(false), None) if is_old(list, before, kind) => {}
                (Some(was), None) => self.is_deleted(at, rule, was),
                _ => {}
            }
        }
    }

    /// A condition becomes True: the problem was there.
    fn begins(&mut self, at: Duration, rule: &Rule) {
        let from = at.saturating_sub(rule.stale);
        let mut lasted = Duration::ZERO;
        let mut was_there = false;
        for (begin, truth, end) in self.since(from) {
            if truth.level(rule.kind) == 2 {
                was_there = true;
                lasted += end.min(at).saturating_sub(begin.max(from));
            }
        }
        if rule.kind == "KernelDeadlock" {
            was_there |= GROWTHS.iter().any(|name| self.has_grown(name, from));
        }
        let is_excused = rule.kind == "ThermalThrottling" && self.cap_is_unknown(from)
            || rule.kind == "ReadonlyFilesystem"
                && (self.is_of_an_edit() || self.has_misdated(from));
        if is_excused {
            return;
        }
        self.judged.count += 1;
        if !was_there || lasted < rule.lasted {
            let text = format!("{} is True; its problem lasted {lasted:?}", rule.kind);
            self.breaks(at, &format!("{} without a problem", rule.kind), text);
        }
    }

    /// A condition that is True is written so again: its problem has not been over for longer than
    /// its time. A new process counts from its start.
    fn outlasts(&mut self, at: Duration, rule: &Rule) {
        let is_near = |(_, truth): &&(Duration, &Truth)| truth.level(rule.kind) == 0;
        let free = self.past.iter().rev().take_while(is_near).last().map(|(since, _)| *since);
        let Some((free, agent)) = free.zip(self.agent_since) else { return };
        let (since, most) = (free.max(self.first_look(agent)), rule.stale.max(rule.clear) + READ);
        let meets = |(begin, end): &(Duration, Duration)| *begin <= at && *end + LEFT_OUT >= since;
        let is_unread = self.unread.iter().chain(&self.suspended).any(meets);
        let counts = rule.kind == "KernelDeadlock" || self.edited_in.is_some();
        if is_unread || counts {
            return;
        }
        self.judged.count += 1;
        if at >= since + most {
            let text = format!("{} is True; its problem ended at {free:?}", rule.kind);
            self.breaks(at, &format!("{} outlasts its problem", rule.kind), text);
        }
    }

    /// Whether a counter grew since a time.
    fn has_grown(&self, name: &str, from: Duration) -> bool {
        let mut last: Option<&Truth> = None;
        for (begin, truth, _) in self.since(from) {
            let is_same_boot = last.is_some_and(|last| last.boot == truth.boot);
            let before = last.map_or(0, |last| last.count(name));
            if begin >= from && truth.count(name) > if is_same_boot { before } else { 0 } {
                return true;
            }
            last = Some(truth);
        }
        false
    }

    /// The administrator's cap is not known to an agent that has not seen it without cooling, before
    /// a cooling that lasts or has ended since `from`.
    fn cap_is_unknown(&self, from: Duration) -> bool {
        let Some(agent) = self.agent_since else { return true };
        let (mut free, mut cools) = (None, None);
        for (begin, truth, end) in self.since(Duration::ZERO) {
            let cap = truth.count("cap");
            if truth.count("cooling") == 0 {
                cools = None;
                free = free.filter(|(_, old)| *old == cap).or(Some((begin, cap)));
                continue;
            }
            let cools = *cools.get_or_insert(begin);
            let is_seen = |(since, seen): (Duration, u64)| {
                seen == cap && cools >= since.max(agent) + seconds(130)
            };
            if end >= from && !free.is_some_and(is_seen) {
                return true;
            }
        }
        false
    }

    /// The time of an error said at the first look of the agent that it is of this boot. An error of
    /// before a mount is no excuse if nothing disturbed the agent since it was made, and a look saw
    /// the file system unmounted.
    fn has_misdated(&self, from: Duration) -> bool {
        let agent = self.agent_since.unwrap_or_default();
        let from = from.min(agent);
        let (mut misdated, mut failed): (Option<Duration>, Option<(Duration, Duration, u64)>) =
            (None, None);
        for (begin, truth, end) in self.since(Duration::ZERO) {
            misdated = (truth.count("misdated") > 0).then(|| misdated.unwrap_or(begin));
            if let Some(misdated) = misdated.filter(|_| end > from) {
                let was_seen = |(since, until, boot): (Duration, Duration, u64)| {
                    boot == truth.boot
                        && misdated > until + READ
                        && !self.is_disturbed(since, misdated)
                };
                if misdated <= self.first_look(agent) || !failed.is_some_and(was_seen) {
                    return true;
                }
            }
            if truth.level("ReadonlyFilesystem") == 2 {
                let goes_on = failed.filter(|(_, until, _)| *until == begin);
                failed = Some((goes_on.map_or(begin, |(since, ..)| since), end, truth.boot));
            }
        }
        false
    }

    /// Somebody edited the boot medium at the first look of the agent, which cannot know that. The
    /// condition tells it to the next agent of this boot, too.
    fn is_of_an_edit(&mut self) -> bool {
        let Some(agent) = self.agent_since else { return true };
        let boot = self.now().map(|truth| truth.boot);
        let first = self.first_write.unwrap_or(Duration::MAX).min(agent + seconds(70));
        let looked = first.max(agent + FIRST_LOOK);
        let at_start = self.since(agent).take_while(|(at, ..)| *at <= looked);
        if { at_start }.any(|(_, truth, _)| truth.count("edited") > 0) {
            self.edited_in = boot;
        }
        // Without an id of the boot the condition tells it to the agents of later boots, too.
        let is_same = self.edited_in == boot || !self.has_boot_id && self.edited_in.is_some();
        boot.is_some() && is_same
    }

    /// A file system without a record of errors, or whose record is of the time before the clock was
    /// set, was read-only at the first look of this process, and no earlier process had the time to
    /// tell it.
    fn turned_unseen(&self, since: Duration, rule: &Rule) -> bool {
        rule.kind == "ReadonlyFilesystem"
            && self.since(since).any(|(_, truth, _)| truth.count("recorded") == 0)
            && self.agent_since.is_none_or(|agent| self.first_look(agent) > since)
            && self.is_disturbed(since, since + rule.told)
    }

    /// Whether a source may be unread for an hour at a time: a slow file is left out, and when it is
    /// read again, a slow file before it is left out. The condition then ends, as `systemd/health.md`
    /// says.
    fn is_unread_for_an_hour(&self, at: Duration) -> bool {
        let hour = seconds(3600);
        let began = |(begin, end): &(Duration, Duration)| {
            *begin + hour <= at && *end + hour + LEFT_OUT >= at
        };
        let goes_on = |(begin, end): &(Duration, Duration)| *begin <= at && *end + LEFT_OUT >= at;
        self.unread.iter().any(began) && self.unread.iter().any(goes_on)
    }

    /// Until when an agent that started at a time has looked at all sources. A look that slow files
    /// end sees none of the others, and the next one comes a minute later.
    fn first_look(&self, agent: Duration) -> Duration {
        let mut first = agent + FIRST_LOOK;
        for (begin, end) in &self.unread {
            if *begin <= first && *end >= agent {
                first = first.max(*end + READ);
            }
        }
        first
    }

    /// Whether the voltage driver was missing since the start of the agent. One that is bound again
    /// has another number, and an agent whose root can block lists folders at its start alone.
    fn was_rebound(&self, agent: Duration) -> bool {
        let is_missing = |truth: &Truth| !truth.sources.contains(&"UnderVoltage");
        self.root_can_block && self.since(agent).any(|(_, truth, _)| is_missing(truth))
    }

    /// Whether a further file system has failed after the one of this time.
    fn another_failed(&self, since: Duration) -> bool {
        let mut counts = self.since(since).map(|(_, truth, _)| truth.count("failed"));
        let first = counts.next();
        counts.any(|count| Some(count) > first)
    }

    /// A condition becomes False: the problem is over, for its time.
    fn ends(&mut self, at: Duration, rule: &Rule) {
        self.judged.count += 1;
        if rule.kind == "ReadonlyFilesystem" {
            self.edited_in = None;
        }
        let since = self.level_since(rule.kind, 2);
        let is_known = |since: &Duration| !self.turned_unseen(*since, rule);
        if let Some(since) = since.filter(|since| at >= *since + READ && is_known(since)) {
            let text = format!("{} is False; the problem lasts since {since:?}", rule.kind);
            return self.breaks(at, &format!("{} ends too early", rule.kind), text);
        }
        let from = at.saturating_sub(rule.clear.saturating_sub(seconds(15)));
        let lasted = |(begin, truth, end): &(Duration, &Truth, Duration)| {
            truth.level(rule.kind) == 2
                && *end < at
                && end.saturating_sub(*begin) > rule.told
                && !self.is_disturbed(*begin, *end)
        };
        let found = self.since(from).find(lasted).map(|(.., end)| end);
        if let Some(end) = found {
            let text = format!("{} is False; the problem lasted until {end:?}", rule.kind);
            self.breaks(at, &format!("{} ends before its time", rule.kind), text);
        }
    }

    /// A condition is deleted: the board has no source for it.
    fn is_deleted(&mut self, at: Duration, rule: &Rule, was: bool) {
        self.judged.count += 1;
        let from = at.saturating_sub(READ_ONCE);
        let is_pressure = rule.kind.ends_with("Pressure");
        let is_absent =
            |(_, truth, _): (Duration, &Truth, Duration)| !truth.sources.contains(&rule.kind);
        // A driver that was bound again has another number, which only a list would find.
        let is_lost = rule.kind == "UnderVoltage" && self.root_can_block;
        let is_known = is_lost || self.is_unread_for_an_hour(at) || self.since(from).any(is_absent);
        if is_pressure || !is_known {
            let text = format!("{} was {was} and is deleted; the board has its source", rule.kind);
            self.breaks(at, &format!("{} is deleted", rule.kind), text);
        }
    }

    /// An event of the agent.
    fn event(&mut self, at: Duration, answer: &Exchange) {
        // A repeated one is counted: its name alone is sent.
        let name = answer.target.rsplit('/').next().unwrap_or_default();
        let reason = match answer.body["reason"].as_str() {
            Some(reason) => {
                let name = answer.body["metadata"]["name"].as_str().unwrap_or_default();
                self.event_names.insert(name.to_owned(), reason.to_owned());
                Some(reason.to_owned())
            }
            None => self.event_names.get(name).cloned(),
        };
        let Some(reason) = reason.as_deref() else { return };
        let Some(now) = self.now() else { return };
        if now.counters.contains_key(reason) {
            let mut from = at.saturating_sub(seconds(1500));
            // What grew meanwhile is told when the counter is read again.
            if at < self.uncounted_until && GROWTHS.contains(&reason) {
                from = from.saturating_sub(LEFT_OUT);
            }
            self.judged.count += 1;
            // A Node of a backup has the id of a former boot.
            let since = self.boot_since().max(self.boot_written).max(self.other_boot_shown);
            // Without an id of the boot each start is the first one of a boot.
            let is_by_boot = reason == "WatchdogReset";
            let has_no_id = now.fact("bootID").is_empty();
            // An earlier process may not have succeeded in a write of the Node.
            let is_told_again = is_by_boot
                && !has_no_id
                && self.boot_written >= self.boot_since()
                && self.events.iter().any(|(then, old)| old == reason && *then > since);
            if is_told_again {
                let text = format!("{reason} is told again in the same boot");
                self.breaks(at, "WatchdogReset again", text);
            }
            // A Node that this boot writes for the first time, perhaps that of another cluster.
            let is_first = has_no_id || self.boot_written >= from || self.other_boot_shown >= from;
            let is_old = is_by_boot && is_first && now.count(reason) > 0;
            if !self.has_grown(reason, from) && !is_old && reason != "KernelOops" {
                let text = format!("an event {reason}, and nothing of that kind happened");
                self.breaks(at, &format!("event {reason} without ground"), text);
            }
        }
        self.events.push((at, reason.to_owned()));
    }

    fn boot_since(&self) -> Duration {
        let boot = self.now().map_or(0, |truth| truth.boot);
        let mut of_boot = self.past.iter().rev().take_while(|(_, truth)| truth.boot == boot);
        of_boot.by_ref().last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// The history of boots: the agent adds lines to it, and loses none.
    fn take_boots(&mut self, at: Duration, is_written: bool, text: &str) {
        let key = |line: &str| line.trim_end_matches(" orderly").to_owned();
        let lines: Vec<String> = text.lines().map(key).collect();
        if is_written {
            self.judged.count += 1;
            let kept = self.boots.iter().rev().take(15);
            if let Some(lost) = kept.into_iter().find(|line| !lines.contains(line)).cloned() {
                self.breaks(
                    at,
                    "a boot is forgotten",
                    format!("boots has no line {lost:?} any more"),
                );
            }
            let ids: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
            if ids.iter().enumerate().any(|(index, id)| ids[..index].contains(id)) {
                self.breaks(at, "a boot twice", format!("boots has a boot twice: {text:?}"));
            }
        }
        self.boots = lines;
    }

    /// The world was quiet for a while.
    fn settled(&mut self, at: Duration, state: &State) {
        let Some(now) = self.now() else { return };
        let Some(agent) = self.agent_since else { return };
        if state.excuse.is_some() || self.is_disturbed(at - seconds(1), at) || now.is_early {
            return;
        }
        self.take_told(&state.node["status"]["conditions"]);
        for rule in RULES {
            if let Some(since) = self.level_since(rule.kind, 2) {
                self.must_be_told(at, rule, since);
            }
        }
        // Between two faults each value follows the board, but for what is read at the start alone.
        let unread_since =
            |(begin, end): &(Duration, Duration)| *begin <= agent + FIRST_LOOK && agent <= *end;
        let has_no_hosts = self.root_can_block && self.unread.iter().any(unread_since);
        for name in now.facts.keys().copied() {
            let from = at.saturating_sub(seconds(180));
            let truths: Vec<&str> =
                self.since(from).map(|(_, truth, _)| truth.fact(name)).collect();
            let is_of_start =
                matches!(name, "machineID" | "systemUUID" | "osImage" | "ephemeral-storage");
            let is_kept = is_of_start && self.root_can_block
                || name == "address" && has_no_hosts
                || truths.contains(&"");
            if is_kept || at < agent + seconds(180) || at < state.healed + seconds(180) {
                continue;
            }
            self.judged.count += 1;
            let Some(value) = value_of(&state.node["status"], name) else {
                let text = format!("{name} is missing; true is {:?}", now.fact(name));
                self.breaks(at, &format!("{name} is missing"), text);
                continue;
            };
            if !truths.contains(&value.as_str()) {
                let text = format!("{name} is {value:?}; true is {:?}", now.fact(name));
                self.breaks(at, &format!("{name} does not follow"), text);
            }
        }
        self.growths(at, agent, now);
        self.links(at, agent);
        let is_reset = now.count("WatchdogReset") > 0 && self.starts == 1;
        if is_reset && at > agent + seconds(300) {
            self.judged.count += 1;
            let boot = self.boot_since();
            if !self.events.iter().any(|(then, why)| why == "WatchdogReset" && *then > boot) {
                self.breaks(at, "WatchdogReset is not told", "the watchdog reset the board".into());
            }
        }
    }

    /// A lockup that the agent saw, or could not see at first, is told for ten minutes.
    fn growths(&mut self, at: Duration, agent: Duration, now: &Truth) {
        let from = at.saturating_sub(seconds(580)).max(agent + seconds(130));
        let until = at.saturating_sub(seconds(180));
        let mut last: Option<&Truth> = None;
        let mut is_due = false;
        for (begin, truth, _) in self.since(from) {
            let grows = |name: &&str| last.is_some_and(|last| truth.count(name) > last.count(name));
            is_due |= begin >= from && begin < until && GROWTHS.iter().any(grows);
            last = Some(truth);
        }
        if is_due && now.level("KernelDeadlock") == 0 {
            self.judged.count += 1;
            if self.told.get("KernelDeadlock") != Some(&true) {
                let text = "a counter of lockups grew, and KernelDeadlock is not True".to_owned();
                self.breaks(at, "a lockup is not told", text);
            }
        }
    }

    /// A link that flaps has an event, unless it had one, or there were many.
    fn links(&mut self, at: Duration, agent: Duration) {
        let until = at.saturating_sub(seconds(180));
        let from = at.saturating_sub(seconds(2000)).max(agent + seconds(130));
        let mut last: Option<&Truth> = None;
        let mut flaps = None;
        for (begin, truth, _) in self.since(from) {
            let change = last.map_or(0, |last| {
                truth.count("LinkFlapping").saturating_sub(last.count("LinkFlapping"))
            });
            if begin >= from && begin < until && change >= 6 {
                flaps = Some(begin);
            }
            last = Some(truth);
        }
        let Some(flaps) = flaps else { return };
        let hour = flaps.saturating_sub(seconds(3700));
        let others = self.events.iter().filter(|(then, _)| *then >= hour && *then < flaps).count();
        let told = self.events.iter().filter(|(_, why)| why == "LinkFlapping").map(|(at, _)| at);
        let is_new = |then: &Duration| *then >= flaps.saturating_sub(seconds(700));
        let is_told = told.chain(&self.refused_flaps).any(is_new);
        if others > 2 {
            return;
        }
        self.judged.count += 1;
        if !is_told {
            let text = format!("a link changed six times at {flaps:?}, and no event says so");
            self.breaks(at, "LinkFlapping is not told", text);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sim::devices::{Hardware, boot_id};
    use crate::sim::plan::Plan;
    use crate::sim::sentences::tests::log_line;
    use crate::sim::trace::Entry;

    const MEMORY: &str = "1048576Ki";

    fn at(second: u64, what: What) -> Entry {
        Entry { at: seconds(second), what }
    }

    fn board(second: u64, change: impl FnOnce(&mut Hardware)) -> Entry {
        let mut hardware = Hardware::default();
        change(&mut hardware);
        at(second, What::Board(Box::new(hardware.truth(1, false))))
    }

    fn starts() -> Entry {
        at(2, What::Starts { pid: 1, name: "nodelet", line: String::new() })
    }

    fn writes(second: u64, target: &str, body: Value, before: Value) -> Entry {
        let answer = Exchange {
            method: "PATCH".to_owned(),
            target: target.to_owned(),
            body,
            before,
            user: "system:node:pi".to_owned(),
            code: 200,
            arrived: seconds(second),
            is_carried_out: true,
            ..Exchange::default()
        };
        at(second, What::Answer(Box::new(answer)))
    }

    fn node(memory: &str, kind: &str, status: &str) -> Value {
        let conditions = json!([{"type": kind, "status": status}]);
        json!({"status": {"capacity": {"memory": memory}, "conditions": conditions}})
    }

    fn judged(trace: &[Entry]) -> Judged {
        let plan: Plan = "seed 1".parse().expect("a plan");
        judge(&Run { plan: &plan, trace })
    }

    #[track_caller]
    fn finds(trace: &[Entry], kind: &str) {
        let judged = judged(trace);
        assert!(judged.count > 0);
        assert_eq!(judged.broken.map_or(String::new(), |broken| broken.kind), kind);
    }

    #[test]
    fn a_stall_whose_counter_was_left_out_is_told_later() {
        let told = |path: &str| {
            let line = format!("{path}: its read took 2 s of 2 s; it is left out for 50 minutes");
            let line = log_line(500, log::Level::Warn, "src/health/reader.rs:120", &line);
            let event = json!({"reason": "RCUStall", "metadata": {"name": "a"}});
            let event = writes(3500, "/api/v1/namespaces/default/events", event, Value::Null);
            let mut stalls = board(600, |_| {});
            if let What::Board(truth) = &mut stalls.what {
                truth.counters.insert("RCUStall", 1);
            }
            judged(&[board(1, |_| {}), starts(), line, stalls, event])
                .broken
                .map(|broken| broken.kind)
        };
        assert_eq!(told("sys/kernel/rcu_stall_count"), None);
        let without = Some("event RCUStall without ground".to_owned());
        assert_eq!(told("sys/dev/block/8:1/uevent"), without);
    }

    #[test]
    fn a_condition_that_outlasts_its_problem_is_found() {
        const NODE: &str = "/api/v1/nodes/pi/status";
        let says = |second, before| {
            let before = node(MEMORY, "MemoryPressure", before);
            writes(second, NODE, node(MEMORY, "MemoryPressure", "True"), before)
        };
        let told = |second| {
            let low = board(1, |h| h.memory_is_low = true);
            let trace =
                [low, starts(), says(20, "False"), board(100, |_| {}), says(second, "True")];
            judged(&trace).broken.map(|broken| broken.kind)
        };
        assert_eq!(told(609), None);
        assert_eq!(told(611).as_deref(), Some("MemoryPressure outlasts its problem"));
    }

    /// Who could know a failure after a restart: the process that was there long enough, or that
    /// reads a record of errors.
    #[test]
    fn a_file_system_that_turned_unseen_needs_a_record() {
        const NODE: &str = "/api/v1/nodes/pi/status";
        let plan: Plan = "seed 1\nat 150.000 restart".parse().expect("a plan");
        let judges = |plan: &Plan, fails: fn(&mut Hardware), failed: u64| {
            let says = |second, status, before| {
                writes(second, NODE, node(MEMORY, "ReadonlyFilesystem", status), before)
            };
            let told = node(MEMORY, "ReadonlyFilesystem", "True");
            let restart = at(160, What::Starts { pid: 2, name: "nodelet", line: String::new() });
            let ends = says(1500, "False", told);
            let mut trace = vec![board(1, |_| {}), starts(), board(failed, fails), restart, ends];
            trace.sort_by_key(|entry| entry.at);
            judge(&Run { plan, trace: &trace }).broken.map(|broken| broken.kind)
        };
        let finds = |fails, failed| judges(&plan, fails, failed);
        let early = Some("ReadonlyFilesystem ends too early".to_owned());
        assert_eq!(finds(|h| h.firmware.has_failed = true, 100), None);
        assert_eq!(finds(|h| h.firmware.has_failed = true, 200), early);
        assert_eq!(finds(|h| h.root.fail(9), 100), early);
        // Slow files ended the looks before it failed.
        let slow = "seed 1\nat 150.000 restart\nat 155.000 for 100.000 reads-slow size=1000";
        let slow = slow.parse().expect("a plan");
        assert_eq!(judges(&slow, |h| h.firmware.has_failed = true, 300), None);
        assert_eq!(judges(&slow, |h| h.firmware.has_failed = true, 400), early);
        // Nor must it be told, until another one fails.
        let tells = |fails: fn(&mut Hardware), failed: u64, again: fn(&mut Hardware)| {
            let restart = at(500, What::Starts { pid: 2, name: "nodelet", line: String::new() });
            let ends = [board(900, again), board(1500, |_| {})];
            let mut trace = vec![board(1, |_| {}), starts(), board(failed, fails), restart];
            trace.extend(ends);
            trace.sort_by_key(|entry| entry.at);
            judge(&Run { plan: &plan, trace: &trace }).broken.map(|broken| broken.kind)
        };
        let untold = Some("ReadonlyFilesystem is not told".to_owned());
        let boot: fn(&mut Hardware) = |h| h.firmware.has_failed = true;
        let both: fn(&mut Hardware) = |h| {
            h.firmware.has_failed = true;
            h.data.has_failed = true;
        };
        assert_eq!(tells(boot, 100, boot), None);
        assert_eq!(tells(boot, 600, boot), untold);
        assert_eq!(tells(boot, 100, both), untold);
        assert_eq!(tells(|h| h.root.fail(9), 100, |h| h.root.fail(9)), untold);
        // The clock was set between the error and the restart.
        let misdated: fn(&mut Hardware) = |h| {
            h.root.fail(9);
            h.root.is_dated = false;
        };
        assert_eq!(finds(misdated, 100), None);
    }

    /// An error of before the mount is none of the mount.
    #[test]
    fn a_disk_that_is_mounted_again_has_not_failed() {
        const NODE: &str = "/api/v1/nodes/pi/status";
        let finds = |plan: &str, mounted: u64, restarted: u64| {
            let plan: Plan = plan.parse().expect("a plan");
            let says = |second, status, before| {
                let before = node(MEMORY, "ReadonlyFilesystem", before);
                writes(second, NODE, node(MEMORY, "ReadonlyFilesystem", status), before)
            };
            let disk = |second, is_mounted, has_failed| {
                board(second, |h| {
                    h.data.is_mounted = true;
                    h.data.stops = true;
                    h.data.fs = "ext4".into();
                    h.data.fail(9);
                    (h.data.is_mounted, h.data.has_failed) = (is_mounted, has_failed);
                })
            };
            let restart =
                at(restarted, What::Starts { pid: 2, name: "nodelet", line: String::new() });
            let mut trace = vec![board(1, |_| {}), starts(), disk(1000, true, true)];
            trace.extend([says(1100, "True", "False"), disk(1200, false, false)]);
            trace.extend([says(1300, "False", "True"), disk(mounted, true, false), restart]);
            trace.push(says(4000, "True", "False"));
            trace.sort_by_key(|entry| entry.at);
            judge(&Run { plan: &plan, trace: &trace }).broken.map(|broken| broken.kind)
        };
        let without = Some("ReadonlyFilesystem without a problem".to_owned());
        assert_eq!(finds("seed 1", 3800, 3), without);
        assert_eq!(finds("seed 1", 3800, 3700), without);
        assert_eq!(finds("seed 1", 3800, 3900), None, "by its time it is of this boot");
        assert_eq!(finds("seed 1", 1303, 3), None, "no look came between");
        let slow = "seed 1\nat 2000.000 for 100.000 reads-slow size=1000";
        assert_eq!(finds(slow, 3800, 3), None, "disturbed");
    }

    /// An agent whose root is on a network lists the drivers at its start alone.
    #[test]
    fn a_driver_that_was_bound_again_is_not_found_on_a_network_root() {
        let finds = |root: &str, is_bound: bool| {
            let plan: Plan = format!("seed 1\nsetting root={root}").parse().expect("a plan");
            let unbound = board(50, |h| h.has_voltage_driver = is_bound);
            let low = board(100, |h| h.is_undervolted = true);
            let trace = [board(1, |_| {}), starts(), unbound, low, board(300, |_| {})];
            judge(&Run { plan: &plan, trace: &trace }).broken.map(|broken| broken.kind)
        };
        let untold = Some("UnderVoltage is not told".to_owned());
        assert_eq!(finds("overlay-nfs", false), None);
        assert_eq!(finds("overlay-nfs", true), untold);
        assert_eq!(finds("ext4", false), untold);
    }

    #[test]
    fn each_planted_trace_is_found() {
        const NODE: &str = "/api/v1/nodes/pi/status";
        let none = || node("1Ki", "Ready", "True");
        let says = |second, memory, kind, before| {
            writes(second, NODE, node(memory, "UnderVoltage", kind), before)
        };
        let low = |hardware: &mut Hardware| hardware.is_undervolted = true;
        let start = || vec![board(1, |_| {}), starts()];
        let with = |more: Vec<Entry>| [start(), more].concat();

        finds(&with(vec![says(9, MEMORY, "False", none())]), "");
        finds(&with(vec![says(9, "7Ki", "False", none())]), "memory is not true");
        // An old value is none.
        let grown = board(20, |h| h.memory_kib *= 2);
        finds(&with(vec![grown.clone(), says(90, MEMORY, "False", none())]), "");
        finds(&with(vec![grown, says(190, MEMORY, "False", none())]), "memory is not true");

        finds(&with(vec![says(9, MEMORY, "True", none())]), "UnderVoltage without a problem");
        let lasts = || with(vec![board(100, low)]);
        let told = || says(140, MEMORY, "True", none());
        let before = || node(MEMORY, "UnderVoltage", "True");
        finds(&[lasts(), vec![board(300, |_| {})]].concat(), "UnderVoltage is not told");
        finds(&[lasts(), vec![told(), board(300, |_| {})]].concat(), "");
        // A Node that is created again gets the True of the hour after the problem.
        let over = || vec![told(), board(300, |_| {}), says(2000, MEMORY, "True", none())];
        finds(&[lasts(), over()].concat(), "");
        let ends = says(400, MEMORY, "False", before());
        finds(&[lasts(), vec![told(), ends.clone()]].concat(), "UnderVoltage ends too early");
        finds(
            &[lasts(), vec![told(), board(300, |_| {}), ends]].concat(),
            "UnderVoltage ends before its time",
        );
        let gone = writes(400, NODE, node(MEMORY, "Ready", "True"), before());
        finds(&[lasts(), vec![told(), gone]].concat(), "UnderVoltage is deleted");

        let boots = |second, is_written, text: &str| {
            at(second, What::Boots { is_written, text: text.to_owned() })
        };
        let known = || with(vec![boots(1, false, "5 a")]);
        finds(&[known(), vec![boots(9, true, "5 a orderly\n7 b")]].concat(), "");
        finds(&[known(), vec![boots(9, true, "7 b")]].concat(), "a boot is forgotten");
        finds(&[known(), vec![boots(9, true, "5 a\n7 a")]].concat(), "a boot twice");

        let event = |second, reason: &str| {
            writes(second, "/api/v1/namespaces/default/events", json!({"reason": reason}), none())
        };
        finds(&with(vec![event(9, "OOMKilling")]), "event OOMKilling without ground");
        let killed = board(5, |h| h.oom_kills = 1);
        finds(&with(vec![killed, event(9, "OOMKilling")]), "");
        // Another cluster is told of a reset, too; a restart alone tells nobody.
        let pc = BTreeMap::from([("board".to_owned(), "pc".to_owned())]);
        let mut hardware = Hardware::of(&pc);
        hardware.was_reset = true;
        let reset = || at(5, What::Board(Box::new(hardware.truth(1, false))));
        let late = || event(2000, "WatchdogReset");
        finds(&with(vec![reset(), late()]), "event WatchdogReset without ground");
        let of_boot = json!({"status": {"nodeInfo": {"bootID": boot_id(1)}}});
        let moves = |second| writes(second, NODE, of_boot.clone(), json!({}));
        finds(&with(vec![reset(), moves(1999), late()]), "");
        // A server that lags shows the Node of a former boot.
        let shows = |boot| {
            let mut read = writes(1999, NODE, none(), none());
            if let What::Answer(answer) = &mut read.what {
                answer.method = "GET".to_owned();
                answer.answer = json!({"status": {"nodeInfo": {"bootID": boot_id(boot)}}});
            }
            read
        };
        let twice =
            |boot| with(vec![reset(), moves(8), event(9, "WatchdogReset"), shows(boot), late()]);
        finds(&twice(0), "");
        finds(&twice(1), "WatchdogReset again");
    }
}
