//! Faults of the program that are known and not mended yet. A run that fails by one of them keeps
//! its verdict, but does not count, unless `--strict` asks for it. Who mends a fault removes its
//! row.

use super::Outcome;
use super::sentences::Broken;

/// A known fault.
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// The name of the sentence that finds it, and the begin of its kind.
    pub(crate) sentence: &'static str,
    pub(crate) kind: &'static str,
    /// Whether a run that fails in this way fails by this fault.
    pub(crate) is_it: fn(&Outcome, &Broken) -> bool,
}

/// By row of ../shared/findings/readings.md.
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
        is_it: |_, broken| broken.text.contains("output too small"),
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
        name: "C4 a former boot of this board as another board",
        sentence: "grounds",
        kind: "is also written by another board",
        is_it: |_, _| true,
    },
    Known {
        name: "E10 an address of IPv6 that leads nowhere",
        sentence: "promises",
        kind: "first request",
        is_it: |run, _| run.plan.setting("reach") == "dead-6",
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
