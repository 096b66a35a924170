//! What is always true. A sentence is a function over the trace of a run; it counts how often it
//! was judged with a true premise, because a sentence that is never judged holds nothing.

mod agree;
mod board;
mod bounds;
mod files;
mod grounds;
mod kubelet;
mod lease;
mod others;
mod outages;
#[cfg(test)]
mod planted;
mod promises;
mod recovery;
mod secrets;
mod times;
mod turns;
mod twin;

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
    Sentence { number: 0, name: "the world saw no broken rule", judge: no_panic },
    lease::SENTENCE,
    recovery::SENTENCE,
    others::SENTENCE,
    times::SENTENCE,
    secrets::SENTENCE,
    bounds::SENTENCE,
    board::SENTENCE,
    twin::SENTENCE,
    files::SENTENCE,
    turns::SENTENCE,
    outages::SENTENCE,
    kubelet::SENTENCE,
    promises::SENTENCE,
    grounds::SENTENCE,
    agree::SENTENCE,
];

impl Sentence {
    /// Judges a run, and takes what the world itself has seen of this sentence.
    pub(crate) fn judge_run(&self, run: &Run<'_>) -> Judged {
        let mut judged = (self.judge)(run);
        let seen = run.trace.iter().find_map(|entry| match &entry.what {
            What::Broken { sentence, text } if *sentence == self.number => Some((entry.at, text)),
            _ => None,
        });
        if let Some((at, text)) = seen
            && judged.broken.as_ref().is_none_or(|broken| at <= broken.at)
        {
            judged.broken = None;
            judged.breaks(at, kind_of(text), text.clone());
        }
        judged
    }
}

/// Whether a request is for a certificate; `target` may stand behind its method.
fn asks_signer(target: &str) -> bool {
    target.contains("/certificatesigningrequests") || target.contains("/v1-k3s/")
}

/// What only the world sees: a panic.
fn no_panic(_: &Run<'_>) -> Judged {
    Judged { count: 1, ..Judged::default() }
}

/// The begin of a text, without what differs between two runs.
fn kind_of(text: &str) -> &str {
    text.split([':', '0']).next().unwrap_or_default()
}

/// Planted traces for the tests of the sentences.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::trace::{Exchange, State};

    /// An entry at so many seconds.
    pub(super) fn at(seconds: u64, what: What) -> Entry {
        Entry { at: Duration::from_secs(seconds), what }
    }

    pub(super) fn judged(seconds: u64, state: State) -> Entry {
        at(seconds, What::Judged(Box::new(state)))
    }

    pub(super) fn log_line(seconds: u64, level: log::Level, place: &str, text: &str) -> Entry {
        let (text, place) = (text.to_owned(), place.to_owned());
        at(seconds, What::Log { pid: 1, level, is_verbose: false, text, place })
    }

    /// The kind of what a sentence finds in a trace.
    pub(super) fn breaks(judge: fn(&Run<'_>) -> Judged, trace: &[Entry]) -> Option<String> {
        let plan = Plan::draw(1, 1, &|_| false);
        judge(&Run { plan: &plan, trace }).broken.map(|broken| broken.kind)
    }

    pub(super) fn renewal(seconds: u64) -> Entry {
        let exchange = Exchange {
            method: "PATCH".to_owned(),
            target: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pi".to_owned(),
            arrived: Duration::from_secs(seconds),
            code: 200,
            is_carried_out: true,
            ..Exchange::default()
        };
        at(seconds, What::Answer(Box::new(exchange)))
    }

    pub(super) fn fault(seconds: u64, begins: bool, text: &str) -> Entry {
        at(seconds, What::Fault { begins, text: text.to_owned() })
    }

    #[test]
    fn each_sentence_takes_what_the_world_has_seen() {
        for Sentence { number, .. } in ALL {
            let text = "a text".to_owned();
            let trace = [at(9, What::Broken { sentence: *number, text })];
            let plan: Plan = "seed 1".parse().expect("a plan");
            let run = Run { plan: &plan, trace: &trace };
            let broken = |it: &&Sentence| it.judge_run(&run).broken.is_some();
            let found: Vec<usize> = ALL.iter().filter(broken).map(|it| it.number).collect();
            assert_eq!(found, [*number]);
        }
    }

    pub(super) fn run(trace: &[Entry], judge: fn(&Run<'_>) -> Judged) -> Judged {
        let plan: Plan = "seed 1".parse().expect("a plan");
        judge(&Run { plan: &plan, trace })
    }
}
