//! The whole agent in a simulated world: the program that runs on boards, in virtual time, with
//! faults by plan. tests/README.md ("The simulator") says how to read a failure.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, unreachable_pub, missing_docs)]

mod board;
mod classes;
mod clock;
mod command;
mod draw;
mod flapping;
pub(crate) mod hook;
mod net;
mod plan;
mod process;
mod sentences;
mod serve;
pub(crate) mod tcp;
mod trace;
mod watch;
mod world;

use std::time::{Duration, Instant};

use self::plan::Plan;
use self::sentences::{Broken, Judged, Run, Sentence};
use self::trace::Entry;
use self::world::World;

/// A run that has ended, judged.
pub(crate) struct Outcome {
    pub(crate) plan: Plan,
    pub(crate) trace: Vec<Entry>,
    /// The sentence that did not hold first.
    pub(crate) broken: Option<(&'static Sentence, Broken)>,
    /// How often each sentence was judged.
    pub(crate) counts: Vec<u64>,
    pub(crate) excuse: Option<&'static str>,
    pub(crate) took: Duration,
}

/// Runs a plan.
pub(crate) fn run(plan: Plan) -> Outcome {
    crate::node::kubelet::tests::storm::collect_lines();
    let start = Instant::now();
    let end = Duration::from_secs(plan.hours * 3600);
    let world = process::run(World::new(plan.clone()), end);
    let trace = world.trace;
    let run = Run { plan: &plan, trace: &trace };
    let mut broken: Option<(&'static Sentence, Broken)> = None;
    let (mut counts, mut excuse) = (Vec::new(), None);
    for sentence in sentences::ALL {
        let Judged { count, broken: found, excuse: why } = (sentence.judge)(&run);
        counts.push(count);
        excuse = excuse.or(why);
        if let (Some(found), true) = (&found, std::env::var_os("SIM_EACH").is_some()) {
            eprintln!(
                "EACH {} {} {:?} {} {}",
                plan.seed, sentence.number, found.at, found.kind, found.text
            );
        }
        if let Some(found) = found
            && broken.as_ref().is_none_or(|(_, first)| found.at < first.at)
        {
            broken = Some((sentence, found));
        }
    }
    Outcome { plan, trace, broken, counts, excuse, took: start.elapsed() }
}
