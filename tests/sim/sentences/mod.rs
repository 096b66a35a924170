//! What is always true. A sentence is a function over the trace of a run; it counts how often it
//! was judged with a true premise, because a sentence that is never judged holds nothing.

mod bounds;
mod lease;
mod others;
#[cfg(test)]
mod planted;
mod recovery;
mod secrets;
mod times;

use std::time::Duration;

use super::plan::Plan;
use super::trace::{Entry, What};

/// A sentence, by its number in tests/README.md.
pub(crate) struct Sentence {
    pub(crate) number: usize,
    pub(crate) name: &'static str,
    pub(crate) judge: fn(&Run<'_>) -> Judged,
}

/// A run that has ended.
pub(crate) struct Run<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) trace: &'a [Entry],
}

/// What a sentence makes of a run.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// How often it was judged.
    pub(crate) count: u64,
    /// The first time at which it did not hold.
    pub(crate) broken: Option<Broken>,
    /// Why it was not judged somewhere.
    pub(crate) excuse: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broken {
    pub(crate) at: Duration,
    /// Without times and numbers: two runs fail in the same way if they are equal.
    pub(crate) kind: String,
    pub(crate) text: String,
}

impl Judged {
    pub(super) fn breaks(&mut self, at: Duration, kind: &str, text: String) {
        self.broken.get_or_insert(Broken { at, kind: kind.to_owned(), text });
    }
}

/// Each sentence.
pub(crate) const ALL: &[Sentence] = &[
    Sentence { number: 0, name: "the world saw no broken rule", judge: broken_rules },
    lease::SENTENCE,
    recovery::SENTENCE,
    others::SENTENCE,
    times::SENTENCE,
    secrets::SENTENCE,
    bounds::SENTENCE,
];

/// What the world itself has seen, unless it belongs to a sentence: a panic.
fn broken_rules(run: &Run<'_>) -> Judged {
    let mut judged = Judged { count: 1, ..Judged::default() };
    for entry in run.trace {
        if let What::Broken { text, sentence } = &entry.what
            && ALL.iter().skip(1).all(|other| other.number != *sentence)
        {
            judged.breaks(entry.at, &format!("{sentence}: {}", kind_of(text)), text.clone());
        }
    }
    judged
}

/// What the world has seen of the sentence of this number.
fn told_by_world(run: &Run<'_>, number: usize) -> Judged {
    let mut judged = Judged::default();
    for entry in run.trace {
        if let What::Broken { text, sentence } = &entry.what
            && *sentence == number
        {
            judged.breaks(entry.at, kind_of(text), text.clone());
        }
    }
    judged
}

/// The begin of a text, without what differs between two runs.
fn kind_of(text: &str) -> &str {
    text.split([':', '0']).next().unwrap_or_default()
}
