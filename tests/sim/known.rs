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
    Known {
        name: "C7 each failed handshake blames the keys",
        sentence: "grounds",
        kind: "P-521 is not supported",
        is_it: |_, _| true,
    },
    Known {
        name: "D1 the files of a join, and the process that runs",
        sentence: "agree",
        kind: "join: former files",
        is_it: |_, _| true,
    },
    Known {
        name: "D1 the files of a join, and the process that runs",
        sentence: "agree",
        kind: "check: former files",
        is_it: |_, _| true,
    },
    Known {
        name: "D3 quotes in NODELET_FLAGS that are not read as systemd reads them",
        sentence: "agree",
        kind: "check: fails",
        is_it: |run, broken| {
            run.plan.classes().contains(&"flag-in-quotes")
                && broken.text.contains("unknown command \"file\"")
        },
    },
    Known {
        name: "A7 the flags of another cluster stay",
        sentence: "agree",
        kind: "join: the same line, other flags",
        is_it: |_, _| true,
    },
    Known {
        name: "C8 remedies of a proxy that fails",
        sentence: "grounds",
        kind: "is server the URL of an API server",
        is_it: |_, _| true,
    },
    Known {
        name: "C8 remedies of a proxy that fails",
        sentence: "grounds",
        kind: "is the server up, is its port right",
        is_it: |_, _| true,
    },
    Known {
        name: "D2 the same line with --bootstrap-only",
        sentence: "agree",
        kind: "join: refuses the same line",
        is_it: |_, broken| broken.text.contains("this board has a token of"),
    },
    Known {
        name: "D4 the key as a certificate",
        sentence: "secrets",
        kind: "a private key as a certificate",
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
