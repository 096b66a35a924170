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

/// By row of the readings of 2026-11-28.
pub(crate) const ALL: &[Known] = &[];

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
