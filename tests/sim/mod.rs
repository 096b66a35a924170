//! The whole agent in a simulated world: the program that runs on boards, in virtual time, with
//! faults by plan. tests/README.md ("The simulator") says how to read a failure.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::indexing_slicing, unreachable_pub, missing_docs)]

mod answers;
mod board;
mod card;
mod classes;
mod clock;
mod cluster;
mod clusters;
mod command;
mod devices;
mod dns;
mod draw;
mod flapping;
pub(crate) mod hook;
mod known;
mod net;
mod panics;
mod people;
mod plan;
mod process;
mod proxy;
mod readings;
mod sentences;
mod serve;
mod service;
mod shrink;
mod strength;
pub(crate) mod tcp;
mod trace;
mod unit;
mod verdict;
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
    /// Each sentence that did not hold, the first one first.
    pub(crate) breaks: Vec<(&'static Sentence, Broken)>,
    /// How often each sentence was judged.
    pub(crate) counts: Vec<u64>,
    pub(crate) excuse: Option<&'static str>,
    pub(crate) took: Duration,
}

/// Runs a plan.
pub(crate) fn run(plan: Plan) -> Outcome {
    run_turns(plan, None)
}

/// Runs a plan, or so many turns of it.
pub(crate) fn run_turns(plan: Plan, turns: Option<u64>) -> Outcome {
    crate::node::kubelet::tests::lines::collect_lines();
    panics::watch();
    let start = Instant::now();
    let end = Duration::from_secs(plan.hours * 3600);
    let mut world = World::new(plan.clone());
    world.last_turn = turns;
    let trace = process::run(world, end).trace;
    let mut outcome = judge(plan, trace);
    outcome.took = start.elapsed();
    outcome
}

/// Judges the trace of a plan.
fn judge(plan: Plan, trace: Vec<Entry>) -> Outcome {
    let run = Run { plan: &plan, trace: &trace };
    let (mut breaks, mut counts, mut excuse) = (Vec::new(), Vec::new(), None);
    for sentence in sentences::ALL {
        let Judged { count, broken, excuse: why } = sentence.judge_run(&run);
        counts.push(count);
        excuse = excuse.or(why);
        breaks.extend(broken.map(|broken| (sentence, broken)));
    }
    breaks.sort_by_key(|(_, broken)| broken.at);
    let broken = breaks.first().cloned();
    Outcome { plan, trace, broken, breaks, counts, excuse, took: Duration::ZERO }
}
