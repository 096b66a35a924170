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

/// While each Lease request is answered 401 after 5 s or more, because the first address of the name
/// leads nowhere, the Lease is due again at once: nothing else has a turn, not even the search for
/// another certificate (`Schedule::lease_refused` has no pause, unlike `lease_silent`).
const REFUSED_SLOWLY: Known = Known {
    name: "a Lease that is refused slowly leaves no turn",
    sentence: "recovery",
    kind: "",
    is_it: |outcome, _| {
        let plan = &outcome.plan;
        let is_ahead = plan.steps.iter().any(|step| step.class.name == "servers-clock-ahead");
        is_ahead && plan.setting("address") == "name"
    },
};

pub(crate) const ALL: &[Known] =
    &[REFUSED_SLOWLY, Known { sentence: "outages", kind: "lease does not", ..REFUSED_SLOWLY }];

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
