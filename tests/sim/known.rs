//! Faults of the program that are known and not mended yet. A run that fails by one of them keeps
//! its verdict, but does not count, unless `--strict` asks for it. Who mends a fault removes its
//! row.

use super::Outcome;
use super::plan::Step;
use super::sentences::Broken;
use super::service::UNREAD;

/// A known fault.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// The name of the sentence that finds it, and the begin of its kind.
    pub(crate) sentence: &'static str,
    pub(crate) kind: &'static str,
    /// Whether a run that fails in this way fails by this fault.
    pub(crate) is_it: fn(&Outcome, &Broken) -> bool,
}

/// A driver of the supply binds late, or its alarm is a file that cannot be read in the first look.
fn has_late_driver(run: &Outcome) -> bool {
    let binds = ["voltage-driver-unbound", "driver-late"];
    let is_unread = |step: &Step| {
        let unread = usize::try_from(step.target).ok().and_then(|target| target.checked_sub(1));
        let path = unread.and_then(|index| UNREAD.get(index));
        step.class.name == "twin" && path.is_some_and(|path| path.ends_with("/in0_lcrit_alarm"))
    };
    run.plan.classes().iter().any(|class| binds.contains(class))
        || run.plan.steps.iter().any(is_unread)
}

/// By row of the readings of 2026-11-28.
pub(crate) const ALL: &[Known] = &[
    Known {
        name: "A6 a slow server whose name has several addresses",
        sentence: "kubelet-gap",
        kind: "gap",
        is_it: |run, _| {
            run.plan.setting("address") == "name"
                && (run.plan.setting("servers") != "1" || run.plan.setting("reach") != "4")
                && run.plan.classes().contains(&"lease-slow")
        },
    },
    Known {
        name: "A9 a node password that is not stored again",
        sentence: "promises",
        kind: "node password",
        is_it: |_, _| true,
    },
    Known {
        name: "A10 a bearer token of more than 8,000 bytes",
        sentence: "recovery",
        kind: "not renewed",
        // The last line of the log may be another one.
        is_it: |run, _| {
            run.breaks.iter().any(|(_, broken)| broken.text.contains("output too small"))
        },
    },
    Known {
        name: "A12 a start while the create of the Node does not work",
        sentence: "kubelet-gap",
        kind: "gap",
        is_it: |run, _| {
            let refuse = ["node-create-refused", "node-create-silent", "node-webhook"];
            run.plan.classes().iter().any(|class| refuse.contains(class))
        },
    },
    Known {
        name: "A13 a podcidr that could not be written",
        sentence: "promises",
        kind: "podcidr",
        is_it: |run, _| run.plan.classes().iter().any(|class| class.starts_with("disk-")),
    },
    Known {
        name: "A2 files are not searched while a CSR waits",
        sentence: "recovery",
        kind: "not renewed",
        is_it: |run, _| run.plan.classes().contains(&"bootstrap-misled"),
    },
    Known {
        name: "A3 a CA that was renewed with its key",
        sentence: "recovery",
        kind: "not renewed",
        is_it: |run, _| run.plan.classes().contains(&"ca-renewed"),
    },
    // A board whose pair was removed has a token that has ended.
    Known {
        name: "A2 files are not searched while a CSR waits",
        sentence: "outages",
        kind: "certificate does not recover",
        is_it: |run, broken| {
            run.plan.classes().contains(&"bootstrap-misled") && broken.text.contains("401 Unauth")
        },
    },
    Known {
        name: "A3 a CA that was renewed with its key",
        sentence: "outages",
        kind: "certificate does not recover",
        is_it: |run, broken| {
            run.plan.classes().contains(&"ca-renewed") && broken.text.contains("401 Unauth")
        },
    },
    Known {
        name: "A3 a CA that was renewed with its key",
        sentence: "kubelet-gap",
        kind: "gap",
        is_it: |run, _| {
            let classes = run.plan.classes();
            classes.contains(&"ca-renewed") && run.plan.setting("auth") == "bootstrap"
        },
    },
    Known {
        name: "A10 a bearer token of more than 8,000 bytes",
        sentence: "outages",
        kind: "",
        is_it: |_, broken| broken.text.contains("output too small"),
    },
    Known {
        name: "A11 READY=1 that finds a full queue",
        sentence: "turns",
        kind: "no READY=1",
        is_it: |run, _| run.plan.classes().contains(&"notify-full"),
    },
    Known {
        name: "B1 a value that was not read is Unknown",
        sentence: "board",
        kind: "",
        is_it: |_, broken| broken.text.contains("is \"Unknown\""),
    },
    Known {
        name: "B1 a value that was not read is Unknown",
        sentence: "twin",
        kind: "node.status.nodeInfo.",
        is_it: |_, broken| broken.text.contains("Unknown"),
    },
    Known {
        name: "B2 boots that cannot be read once are overwritten",
        sentence: "board",
        kind: "a boot is forgotten",
        is_it: |_, _| true,
    },
    Known {
        name: "B3 a driver that binds after the first look",
        sentence: "board",
        kind: "UnderVoltage is not told",
        is_it: |run, _| has_late_driver(run),
    },
    Known {
        name: "B3 a driver that binds after the first look",
        sentence: "board",
        kind: "UnderVoltage is deleted",
        is_it: |run, _| has_late_driver(run),
    },
    Known {
        name: "B3 a driver that binds after the first look",
        sentence: "twin",
        kind: "",
        is_it: |run, broken| broken.kind.contains("UnderVoltage") && has_late_driver(run),
    },
    Known {
        name: "B6 32 names are taken before the filter",
        sentence: "board",
        kind: "ThermalThrottling is not told",
        is_it: |run, _| run.plan.setting("zones") == "61",
    },
    Known {
        name: "C1 a boot medium that is edited",
        sentence: "board",
        kind: "ReadonlyFilesystem without a problem",
        is_it: |run, _| run.plan.classes().contains(&"boot-edited"),
    },
    Known {
        name: "C3 a cap of the CPU that an administrator has lowered",
        sentence: "board",
        kind: "ThermalThrottling without a problem",
        is_it: |run, _| run.plan.classes().contains(&"cpu-capped"),
    },
    Known {
        name: "C5 WatchdogReset again where boots is not written",
        sentence: "board",
        kind: "WatchdogReset again",
        is_it: |_, _| true,
    },
    Known {
        name: "A4 a stored certificate beside a token",
        sentence: "secrets",
        kind: "a certificate is shown beside the token",
        is_it: |_, _| true,
    },
    Known {
        name: "B5 a root of ext2 that turns read-only",
        sentence: "board",
        kind: "ReadonlyFilesystem is not told",
        is_it: |run, _| run.plan.setting("root") == "ext2",
    },
    Known {
        name: "D8 SIGUSR1 in the poll of a turn that has its limit",
        sentence: "turns",
        kind: "shutdown: late end",
        is_it: |_, _| true,
    },
];

/// The known fault by which a run has failed first, if each of its failures is known.
pub(crate) fn of(outcome: &Outcome) -> Option<&'static Known> {
    let mut first = None;
    for (sentence, broken) in &outcome.breaks {
        let is_it = |known: &&Known| {
            known.sentence == sentence.name
                && broken.kind.starts_with(known.kind)
                && (known.is_it)(outcome, broken)
        };
        let known = ALL.iter().find(is_it)?;
        first = first.or(Some(known));
    }
    first
}
