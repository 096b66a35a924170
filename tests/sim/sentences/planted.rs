//! Traces for the tests of the sentences: a short run without a fault, which a test then damages.

use std::sync::OnceLock;
use std::time::Duration;

use super::{Judged, Run, Sentence};
use crate::sim::plan::Plan;
use crate::sim::run;
use crate::sim::trace::{Entry, What};

/// The plan of two hours without a fault.
pub(super) fn quiet_plan() -> Plan {
    let settings = ["auth=inline", "address=ip", "servers=1", "gateway=no", "life=86400"];
    let settings: String = settings.iter().map(|word| format!("setting {word}\n")).collect();
    format!("seed 1\nhours 3\n{settings}judge 1000 3000\n").parse().expect("a plan")
}

/// The trace of [`quiet_plan`].
pub(super) fn quiet_run() -> Vec<Entry> {
    static TRACE: OnceLock<Vec<Entry>> = OnceLock::new();
    TRACE.get_or_init(|| run(quiet_plan()).trace).clone()
}

/// What a sentence makes of a trace.
pub(super) fn judged_trace(sentence: &Sentence, trace: &[Entry]) -> Judged {
    sentence.judge_run(&Run { plan: &quiet_plan(), trace })
}

pub(super) fn entry(at: Duration, what: What) -> Entry {
    Entry { at, what }
}
