//! Sentence 4: a restart of the agent in an unchanged world changes no object. What differs after
//! it also differs in its twin: the same run without that restart. So what time alone changes is
//! no fault.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::board::GROWTHS;
use super::{Judged, Run, Sentence};
use crate::sim::devices::{KINDS, Truth};
use crate::sim::plan::Plan;
use crate::sim::process;
use crate::sim::service::NO_RESTART;
use crate::sim::trace::{Entry, Objects, What};
use crate::sim::world::{World, ready_of};

pub(super) const SENTENCE: Sentence = Sentence { number: 4, name: "twin", judge };

/// The events of each start, as of a kubelet: the second one if the Node is cordoned.
const STARTING: &[&str] = &["Normal Starting: ", "Normal NodeNotSchedulable: "];

const VOLTAGE: &str = "node.status.conditions.UnderVoltage.";

const READ_ONLY: &str = "ReadonlyFilesystem";

/// How long a file is left out of the look at the board's health (`health/reader.rs`).
const LEFT_OUT: Duration = Duration::from_secs(3000);

/// The table of mounts is read every 5 minutes, and a superblock counts that was read-only twice.
const UNTOLD: Duration = Duration::from_secs(440);

/// Two agents look at different moments: what changes by itself changes a little earlier or later.
const APART: Duration = Duration::from_secs(120);

/// The same of a condition: one of a disk ends two minutes after a start, with the next look.
const CONDITIONS_APART: Duration = Duration::from_secs(190);

fn judge(run: &Run<'_>) -> Judged {
    judge_with(run, &without_restart)
}

/// `without` runs the plan without the restart at a time, and returns its objects at the end.
fn judge_with(run: &Run<'_>, without: &dyn Fn(&Plan, Duration) -> Option<Objects>) -> Judged {
    let mut judged = Judged::default();
    let mut before: Option<&Entry> = None;
    let mut was_unknown = false;
    for entry in run.trace {
        let (begins, objects) = match &entry.what {
            What::Twin { begins, objects } => (begins, objects),
            What::Judged(state) if state.excuse.is_some() => break,
            // Its conditions change, and its events tell it.
            What::Ready { status } if status == "Unknown" => {
                was_unknown = true;
                continue;
            }
            _ => continue,
        };
        if *begins {
            (before, was_unknown) = (Some(entry), false);
            continue;
        }
        let Some(begin) = before.take() else { continue };
        let What::Twin { objects: old, .. } = &begin.what else { continue };
        // A board that needs a restart, or is silent for too long after one, breaks another
        // sentence, and this one does not say it again of each object.
        // Without a Node, as where the server has moved before it was created, it is silent, too.
        let is_silent = |objects: &Objects| ["", "Unknown"].contains(&ready_of(&objects.node));
        if was_unknown || is_silent(old) || is_silent(objects) {
            continue;
        }
        judged.count += 1;
        if judged.broken.is_some() || differences(old, objects).is_empty() {
            continue;
        }
        let Some(other) = without(run.plan, begin.at) else { continue };
        let found = differences(&other, objects);
        // What changed by itself in both, at another moment, is no fault.
        let found: Vec<_> = found
            .into_iter()
            .filter(|(path, _)| {
                !is_of_time(path, old, &other, objects)
                    && !is_of_transition(path, &other, objects)
                    && !is_of_list(path, &other, objects)
                    && !is_of_mount(path, run.trace, begin.at)
                    && !is_of_boot(path, run.plan)
                    && !is_of_start(path, run.plan, &other)
                    && !is_of_driver(path, old, objects, lacks_driver(run.trace, begin.at))
                    && !is_of_growth(path, &other, objects)
                    && !is_of_limit(path, &other, objects, &within(run.trace, begin.at, entry.at))
                    && !is_of_backup(path, run.plan, &other, begin.at)
                    && !is_of_unread_file(path, run, begin.at)
                    && !is_of_left_out(path, run.trace, begin.at)
                    && !is_of_untold(path, run.trace, begin.at)
                    && !is_of_unset_clock(path, run, begin.at)
            })
            .collect();
        let Some((path, _)) = found.first() else { continue };
        let kind = format!("{} differs", without_numbers(path));
        let line = |(path, [want, have]): &(String, [String; 2])| {
            let was = members(old).remove(path).unwrap_or_default();
            format!("{path} was {was}, is {have}, and without it {want}")
        };
        let lines: Vec<String> = found.iter().map(line).collect();
        let text = format!("after a restart at {:?} {}", begin.at, lines.join("; "));
        judged.breaks(entry.at, &kind, text);
    }
    judged
}

/// The objects at the end of a twin that was not restarted at `at`.
fn without_restart(plan: &Plan, at: Duration) -> Option<Objects> {
    let mut plan = plan.clone();
    let step =
        plan.steps.iter_mut().find(|step| step.class.name == "twin" && step.when.at() == at)?;
    step.size = NO_RESTART;
    let end = at + step.lasts + Duration::from_millis(1);
    let world = process::run(World::new(plan), end);
    let objects = |entry: &Entry| match &entry.what {
        What::Twin { begins: false, objects } => Some(objects.as_ref().clone()),
        _ => None,
    };
    world.trace.iter().rev().find_map(objects)
}

/// A condition that changed after the restart with both agents, to the same, at two moments.
fn is_of_time(path: &str, old: &Objects, other: &Objects, new: &Objects) -> bool {
    let Some(condition) = path.strip_suffix(".lastTransitionTime") else { return false };
    let at = |objects: &Objects| members(objects).get(path).cloned();
    let status = |objects: &Objects| members(objects).get(&format!("{condition}.status")).cloned();
    let both_changed = at(old) != at(other) && at(old) != at(new);
    let seconds = |objects: &Objects| {
        let text = at(objects)?;
        crate::kube::time::Wall::parse(text.trim_matches('"')).map(|wall| wall.seconds())
    };
    let apart = seconds(other).zip(seconds(new)).map(|(a, b)| a.abs_diff(b));
    both_changed
        && status(other) == status(new)
        && apart.is_some_and(|it| it <= CONDITIONS_APART.as_secs())
}

/// What is over stays True for a while: pressures for 5 minutes, heat too, a low voltage for an hour.
/// A process that starts does not know of pressures, as a kubelet, and counts the others from its
/// start.
fn is_of_transition(path: &str, other: &Objects, new: &Objects) -> bool {
    let is_true = |objects: &Objects, kind: &str| {
        let path = format!("node.status.conditions.{kind}.status");
        members(objects).get(&path).is_some_and(|found| found.contains("True"))
    };
    // The taints of pressures follow their conditions.
    let is_about = |kind: &str| path.contains(kind) || path.starts_with("node.spec.taints");
    ["MemoryPressure", "DiskPressure", "PIDPressure"].into_iter().any(|kind| {
        let told = format!("HasNo{kind}");
        (is_about(kind) || is_about(&told)) && is_true(other, kind) && !is_true(new, kind)
    }) || ["ThermalThrottling", "UnderVoltage"]
        .into_iter()
        .any(|kind| path.contains(kind) && !is_true(other, kind) && is_true(new, kind))
}

/// What grew makes KernelDeadlock True for ten minutes, which a process that starts counts from its
/// start.
fn is_of_growth(path: &str, other: &Objects, new: &Objects) -> bool {
    let member = |objects: &Objects, name: &str| {
        let path = format!("node.status.conditions.KernelDeadlock.{name}");
        members(objects).remove(&path).unwrap_or_default()
    };
    let is_growth = GROWTHS.iter().any(|reason| member(new, "reason") == format!("{reason:?}"));
    path.contains("KernelDeadlock") && is_growth && member(other, "status") == r#""False""#
}

/// An event of the health is sent once in ten minutes, which each process counts for itself:
/// one that starts tells what happens next, though the one before it told the last one shortly
/// before.
fn is_of_limit(path: &str, other: &Objects, new: &Objects, truths: &[&Truth]) -> bool {
    let Some(event) = path.strip_prefix("event Warning ") else { return false };
    let reason = event.split(':').next().unwrap_or_default();
    let count = |objects: &Objects| {
        members(objects).remove(path).and_then(|count| count.parse::<u32>().ok()).unwrap_or(0)
    };
    let has_grown = truths.windows(2).any(|pair| pair[0].count(reason) < pair[1].count(reason));
    has_grown && count(other) > 0 && count(new) == count(other) + 1
}

/// What was true of the board between two times.
fn within(trace: &[Entry], from: Duration, until: Duration) -> Vec<&Truth> {
    let truths = trace.iter().take_while(|entry| entry.at <= until);
    let truths = truths.filter_map(|entry| match &entry.what {
        What::Board(truth) => Some((entry.at, truth.as_ref())),
        _ => None,
    });
    let truths: Vec<_> = truths.collect();
    let first = truths.iter().rposition(|(at, _)| *at <= from).unwrap_or_default();
    truths[first..].iter().map(|(_, truth)| *truth).collect()
}

/// A root that can block: `/etc/os-release` and the size of the root are read at the start alone,
/// and a machine-id or a driver that came later is found by the next start.
fn is_of_start(path: &str, plan: &Plan, other: &Objects) -> bool {
    let others = members(other).remove(path);
    let is_new_driver = path.starts_with(VOLTAGE) && others.is_none();
    let is_new_id = [".machineID", ".systemUUID"].iter().any(|id| path.ends_with(id))
        && others.is_some_and(|id| id == r#""""#);
    let is_read_once = [".osImage", ".ephemeral-storage"].iter().any(|name| path.ends_with(name));
    plan.root_can_block() && (is_read_once || is_new_driver || is_new_id)
}

/// A condition whose source is missing is deleted two minutes after the start of a process, and is
/// new when the driver is bound: a process that starts meanwhile keeps the old one.
fn is_of_driver(path: &str, old: &Objects, new: &Objects, lacks_driver: bool) -> bool {
    let value = |objects: &Objects| members(objects).get(path).cloned();
    lacks_driver && path.starts_with(VOLTAGE) && value(old).is_some() && value(old) == value(new)
}

/// The driver of the voltage was not bound at this time, or so late that no look has found it.
fn lacks_driver(trace: &[Entry], at: Duration) -> bool {
    let mut bound = Some(Duration::ZERO);
    for entry in trace.iter().take_while(|entry| entry.at <= at) {
        if let What::Board(truth) = &entry.what {
            let is_bound = truth.sources.contains(&"UnderVoltage");
            bound = is_bound.then(|| bound.unwrap_or(entry.at));
        }
    }
    bound.is_none_or(|since| at < since + APART)
}

/// A file that was the slowest of three long looks is left out for 50 minutes; the next process
/// reads it.
fn is_of_left_out(path: &str, trace: &[Entry], at: Duration) -> bool {
    let mut left_out = None;
    for entry in trace.iter().take_while(|entry| entry.at <= at) {
        match &entry.what {
            What::Starts { name: "nodelet", .. } => left_out = None,
            What::Log { text, .. } if text.contains("it is left out for 50 minutes") => {
                left_out = Some(entry.at);
            }
            _ => {}
        }
    }
    KINDS.iter().any(|kind| path.contains(kind))
        && left_out.is_some_and(|since| at < since + LEFT_OUT)
}

/// A file system without a record of errors that has stopped so lately that no look has told it: a
/// process that starts does not know that it took writes. Or its last error had a time of another
/// boot, because the clock was set, or is from before its mount, which only a process that saw it
/// unmounted knows: two processes that first see it at different times differ.
fn is_of_untold(path: &str, trace: &[Entry], at: Duration) -> bool {
    let (mut stopped, mut is_misdated, mut was_misdated) = (None, false, false);
    // The process that is started then sees it a little later.
    for entry in trace.iter().take_while(|entry| entry.at <= at + Duration::from_secs(30)) {
        match &entry.what {
            What::Board(truth) => {
                if entry.at <= at {
                    let has_stopped = truth.level(READ_ONLY) > 0 && truth.count("recorded") == 0;
                    stopped = has_stopped.then(|| stopped.unwrap_or(entry.at));
                }
                is_misdated = truth.count("misdated") > 0;
                was_misdated |= is_misdated;
            }
            What::Starts { name: "nodelet", .. } if entry.at <= at => was_misdated = is_misdated,
            _ => {}
        }
    }
    path.contains(READ_ONLY) && (was_misdated || stopped.is_some_and(|since| at < since + UNTOLD))
}

/// An error of ext4 soon after an earlier boot without a clock: by its time it may be one of this
/// boot, until a process starts with a clock that was set.
fn is_of_unset_clock(path: &str, run: &Run<'_>, at: Duration) -> bool {
    let (mut boot, mut booted) = (0, Duration::ZERO);
    let (mut has_error, mut had_error) = (false, false);
    for entry in run.trace.iter().take_while(|entry| entry.at <= at) {
        match &entry.what {
            What::Board(truth) if truth.boot != boot => {
                (boot, booted, had_error) = (truth.boot, entry.at, has_error);
            }
            What::Fault { begins: true, text } if text.contains("ext4-error") => {
                has_error |= entry.at < booted + APART;
            }
            _ => {}
        }
    }
    run.plan.setting("rtc") == "no" && path.contains(READ_ONLY) && had_error
}

/// A Lease from a backup may be without the owner that another program had removed, or that was
/// forbidden, and a server that lags may show it: a start reads the Lease, and a renewal does not. A
/// Node from a backup may be as somebody had created it: as a kubelet, the agent gives its labels to
/// a Node that exists at its next start, and not before.
fn is_of_backup(path: &str, plan: &Plan, other: &Objects, until: Duration) -> bool {
    let had = |class: &dyn Fn(&str) -> bool| {
        plan.steps.iter().any(|step| step.when.at() < until && class(step.class.name))
    };
    let is_restored = had(&|class| class.starts_with("etcd-"));
    let of_node = ["node.metadata.labels.", "node.metadata.annotations."];
    path.starts_with("lease.metadata.ownerReferences.")
        && had(&|class| ["lease-contested", "lease-create-forbidden"].contains(&class))
        && (is_restored || had(&|class| class == "server-lags"))
        || of_node.iter().any(|place| path.starts_with(place))
            && !members(other).contains_key(path)
            && had(&|class| class == "node-replaced")
            && is_restored
}

/// On a root that can block a file is read once: without `boots` the condition stays for an hour,
/// and a Node that was new has the address of the route; another process reads the file.
fn is_of_unread_file(path: &str, run: &Run<'_>, at: Duration) -> bool {
    let line = match () {
        () if path.contains("FrequentReboot") => "boots: cannot be read",
        () if path.contains("InternalIP") => "no address from it",
        () => return false,
    };
    let mut is_unread = false;
    for entry in run.trace.iter().take_while(|entry| entry.at <= at) {
        match &entry.what {
            What::Starts { name: "nodelet", .. } => is_unread = false,
            What::Log { text, .. } => is_unread |= text.contains(line),
            _ => {}
        }
    }
    run.plan.root_can_block() && is_unread
}

/// Without an id of the boot each start is the first one of a boot.
fn is_of_boot(path: &str, plan: &Plan) -> bool {
    plan.setting("bootid") == "none" && path.starts_with("event Warning WatchdogReset")
}

/// The message of a condition names the first of several devices, "and 1 more". A process that has
/// just started names those that it has seen: a file may be unreadable meanwhile, and ext2 has no
/// record of what stopped it. FrequentReboot counts boots of an hour, and of a day.
fn is_of_list(path: &str, other: &Objects, new: &Objects) -> bool {
    let Some(condition) = path.strip_suffix(".message") else { return false };
    let member = |objects: &Objects, path: &str| members(objects).get(path).cloned();
    let status = |objects| member(objects, &format!("{condition}.status"));
    let has_more = member(other, path).is_some_and(|text| text.ends_with(" more\""));
    (has_more || condition.ends_with("FrequentReboot")) && status(other) == status(new)
}

/// A file system was mounted again: an open file of the former mount fails once, and the next look,
/// a minute later, opens that of the new one. A process that has just started opens it at once.
fn is_of_mount(path: &str, trace: &[Entry], begin: Duration) -> bool {
    const LOOKS: Duration = Duration::from_secs(130);
    let is_mount = |text: &str| text.contains("data-unmounted");
    path.ends_with(".FilesystemCorruptionProblem.message")
        && trace.iter().filter(|it| it.at <= begin && it.at + LOOKS >= begin).any(
            |entry| matches!(&entry.what, What::Fault { begins: false, text } if is_mount(text)),
        )
}

/// What differs: the path of a member, and its value in each.
fn differences(old: &Objects, new: &Objects) -> Vec<(String, [String; 2])> {
    let (old, new) = (members(old), members(new));
    let paths: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |of: &BTreeMap<String, String>, path: &String| {
        of.get(path).cloned().unwrap_or_else(|| "missing".to_owned())
    };
    let both = |path: &String| (path.clone(), [value(&old, path), value(&new, path)]);
    paths.into_iter().map(both).filter(|(_, [old, new])| old != new).collect()
}

/// Each member of the objects that a restart must not change, by its path.
fn members(objects: &Objects) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    flatten("node", &objects.node, &mut all);
    flatten("lease", &objects.lease, &mut all);
    for event in
        objects.events.iter().filter(|event| !STARTING.iter().any(|start| event.starts_with(start)))
    {
        let count = all.get(&format!("event {event}")).and_then(|n| n.parse().ok()).unwrap_or(0);
        all.insert(format!("event {event}"), (count + 1_u32).to_string());
    }
    all
}

fn flatten(path: &str, value: &Value, all: &mut BTreeMap<String, String>) {
    const FREE: &[&str] = &[
        "resourceVersion",
        "managedFields",
        "lastHeartbeatTime",
        "renewTime",
        "creationTimestamp",
        "generation",
    ];
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !FREE.contains(&name.as_str())) {
                flatten(&format!("{path}.{name}"), value, all);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // A condition by its type: another one before it moves nothing.
                let name = item["type"].as_str().map(str::to_owned);
                flatten(&format!("{path}.{}", name.unwrap_or(index.to_string())), item, all);
            }
        }
        _ => drop(all.insert(path.to_owned(), value.to_string())),
    }
}

fn without_numbers(path: &str) -> String {
    path.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{at, fault, log_line};
    use super::*;

    fn objects(time: &str, events: &[&str]) -> Objects {
        let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
        Objects {
            node: json!({"status": {"conditions": [ready]}}),
            lease: json!({"spec": {"holderIdentity": "pi"}}),
            events: events.iter().map(|event| (*event).to_owned()).collect(),
        }
    }

    /// The kind of what is found after a restart, if the twin without it ends with `other`.
    fn found(new: &Objects, other: &Objects) -> Option<String> {
        let twin = |seconds, begins, objects: &Objects| {
            at(seconds, What::Twin { begins, objects: Box::new(objects.clone()) })
        };
        let old = objects("2027-01-15T08:00:00Z", &["Normal Starting: a"]);
        let trace = [twin(10, true, &old), twin(20, false, new)];
        let plan = Plan::draw(1, 1, &|_| false);
        let judged = judge_with(&Run { plan: &plan, trace: &trace }, &|_, _| Some(other.clone()));
        assert_eq!(judged.count, 1);
        judged.broken.map(|broken| broken.kind)
    }

    #[test]
    fn only_what_time_changes_may_differ() {
        let same = objects("2027-01-15T08:00:00Z", &["Normal Starting: a", "Normal Starting: a"]);
        let moved = objects("2027-01-15T08:10:00Z", &[]);
        let later = objects("2027-01-15T08:10:20Z", &[]);
        let told = objects("2027-01-15T08:00:00Z", &["Warning Rebooted: again"]);
        assert_eq!(found(&same, &same), None);
        let kind = "node.status.conditions.Ready.lastTransitionTime differs";
        assert_eq!(found(&moved, &same).as_deref(), Some(kind));
        assert_eq!(found(&moved, &moved), None);
        assert_eq!(found(&later, &moved), None);
        let kind = "event Warning Rebooted: again differs";
        assert_eq!(found(&told, &same).as_deref(), Some(kind));
    }

    #[test]
    fn what_a_process_counts_from_its_start_may_differ() {
        let deadlock = |status: &str, reason: &str| {
            let mut objects = objects("2027-01-15T08:00:00Z", &[]);
            let condition = &mut objects.node["status"]["conditions"][0];
            *condition = json!({"type": "KernelDeadlock", "status": status, "reason": reason});
            objects
        };
        let path = "node.status.conditions.KernelDeadlock.status";
        let over = deadlock("False", "KernelKeepsRunning");
        let is_growth = |other: &Objects, new: &Objects| is_of_growth(path, other, new);
        assert!(is_growth(&over, &deadlock("True", "SoftLockup")));
        assert!(!is_growth(&over, &deadlock("True", "KernelOops")));
        assert!(!is_growth(&deadlock("True", "SoftLockup"), &over));
        let path = "event Warning UnderVoltageDip: the supply voltage dropped";
        let told = |times: usize| {
            objects("", &vec!["Warning UnderVoltageDip: the supply voltage dropped"; times])
        };
        let is_limit = |drops: u64, other, new| {
            let board = |second, drops| {
                let mut hardware = crate::sim::devices::Hardware::default();
                hardware.drops = drops;
                at(second, What::Board(Box::new(hardware.truth(1, false))))
            };
            let trace = [board(1, 4), board(5, 5), board(15, drops), board(25, 9)];
            let truths = within(&trace, Duration::from_secs(10), Duration::from_secs(20));
            is_of_limit(path, &told(other), &told(new), &truths)
        };
        assert!(is_limit(6, 2, 3));
        assert!(!is_limit(5, 2, 3), "nothing happened since the start");
        assert!(!is_limit(6, 2, 4) && !is_limit(6, 0, 1) && !is_limit(6, 3, 2));
    }

    #[test]
    fn a_condition_may_be_kept_while_the_driver_is_not_bound() {
        let boards = |bound: u64| {
            let board = |second, has_voltage_driver| {
                let mut hardware = crate::sim::devices::Hardware::default();
                hardware.has_voltage_driver = has_voltage_driver;
                at(second, What::Board(Box::new(hardware.truth(1, false))))
            };
            [board(1, true), board(2, false), board(bound, true)]
        };
        let lacks = |bound, second| lacks_driver(&boards(bound), Duration::from_secs(second));
        assert!(lacks(500, 499) && lacks(500, 619) && !lacks(500, 620));
        let with = |time: &str| {
            let mut objects = objects(time, &[]);
            objects.node["status"]["conditions"][0]["type"] = json!("UnderVoltage");
            objects
        };
        let path = format!("{VOLTAGE}lastTransitionTime");
        let (old, new) = (with("2027-01-15T08:00:00Z"), with("2027-01-15T08:10:00Z"));
        assert!(is_of_driver(&path, &old, &old, true));
        assert!(!is_of_driver(&path, &old, &old, false));
        assert!(!is_of_driver(&path, &old, &new, true));
    }

    #[test]
    fn what_is_left_out_or_not_told_yet_may_differ() {
        let path = "node.status.conditions.ReadonlyFilesystem.status";
        let line = "sda: its read took 2 s of the 2 s of a look; it is left out for 50 minutes";
        let trace = [
            log_line(1, log::Level::Warn, "src/health/reader.rs:105", line),
            at(3200, What::Starts { pid: 2, name: "nodelet", line: String::new() }),
        ];
        let is_left_out = |path, second| is_of_left_out(path, &trace, Duration::from_secs(second));
        assert!(is_left_out(path, 3000) && !is_left_out("node.status.conditions.Ready", 3000));
        assert!(!is_left_out(path, 3001) && !is_left_out(path, 3200));
        let board = |fs: &str, second, has_failed| {
            let mut hardware = crate::sim::devices::Hardware::default();
            let root = &mut hardware.root;
            (root.has_failed, root.is_dated, root.is_soon_dated) = (has_failed, true, true);
            hardware.root.fs = fs.into();
            at(second, What::Board(Box::new(hardware.truth(1, false))))
        };
        let trace = |fs| [board(fs, 1, false), board(fs, 100, true), board(fs, 200, true)];
        let is_untold = |fs, second| is_of_untold(path, &trace(fs), Duration::from_secs(second));
        assert!(!is_untold("vfat", 99) && is_untold("vfat", 100));
        assert!(is_untold("vfat", 539) && !is_untold("vfat", 540));
        assert!(!is_untold("ext4", 100), "it has a record of its errors");
        let clock_set = at(150, {
            let mut hardware = crate::sim::devices::Hardware::default();
            (hardware.root.has_failed, hardware.root.stops) = (true, true);
            hardware.root.errors = 1;
            What::Board(Box::new(hardware.truth(1, false)))
        });
        let trace = [board("ext4", 100, true), clock_set, board("ext4", 200, true)];
        assert!(is_of_untold(path, &trace, Duration::from_secs(900)));
    }

    #[test]
    fn an_error_of_an_earlier_boot_without_a_clock_may_differ() {
        let path = "node.status.conditions.ReadonlyFilesystem.status";
        let boots = |second, boot| {
            let hardware = crate::sim::devices::Hardware::default();
            at(second, What::Board(Box::new(hardware.truth(boot, false))))
        };
        let found = |rtc: &str, error: u64, second| {
            let plan: Plan = format!("seed 1\nsetting rtc={rtc}").parse().expect("a plan");
            let error = fault(error, true, "at 1 ext4-error");
            let trace = [boots(1, 1), error, boots(500, 2)];
            is_of_unset_clock(
                path,
                &Run { plan: &plan, trace: &trace },
                Duration::from_secs(second),
            )
        };
        assert!(found("no", 120, 501) && !found("no", 121, 501), "soon after its boot");
        assert!(!found("no", 120, 499) && !found("yes", 120, 501));
    }
}
