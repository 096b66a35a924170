//! KernelDeadlock: the kernel oopsed, locked up or has hung tasks.
//!
//! Bits of `tainted` other than 7 are normal: 512 is a warning, and 1024 is set on every Raspberry
//! Pi with a staging driver.

use super::look::{Kernel, Source};
use super::state::{Problem, Verdict};

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct Deadlock {
    last: Option<Kernel>,
}

/// Counters that grew since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grown {
    pub(super) oopses: bool,
    pub(super) hung_tasks: bool,
}

/// Reason of an oops. The condition is True until the next boot.
pub(super) const OOPS: &str = "KernelOops";

/// Whether a counter grew since the last look. One that fell was reset.
pub(super) fn grew(now: Option<u64>, before: Option<u64>) -> bool {
    now.zip(before).is_some_and(|(now, before)| now > before)
}

impl Deadlock {
    /// The verdict, and the counters that have events.
    pub(super) fn judge(&mut self, kernel: &Source<Kernel>) -> (Verdict, Grown) {
        let kernel = match kernel {
            None => return (Verdict::NoSource, Grown::default()),
            Some(Err(_)) => return (Verdict::Unread, Grown::default()),
            Some(Ok(kernel)) => *kernel,
        };
        let last = self.last.replace(kernel).unwrap_or(kernel);
        let grown = Grown {
            oopses: kernel.oopses > last.oopses,
            hung_tasks: grew(kernel.hung_tasks, last.hung_tasks),
        };
        let found = [
            (
                kernel.oopses > 0,
                4,
                OOPS,
                "the kernel has oopsed since boot",
            ),
            (
                grew(kernel.soft_lockups, last.soft_lockups),
                3,
                "SoftLockup",
                "a CPU was locked up in the last 10 minutes",
            ),
            (
                grew(kernel.rcu_stalls, last.rcu_stalls),
                2,
                "RCUStall",
                "a CPU stalled RCU in the last 10 minutes",
            ),
            (
                grown.hung_tasks,
                1,
                "TaskHung",
                "a task hung in the last 10 minutes",
            ),
        ];
        let first = found.into_iter().find(|(holds, ..)| *holds);
        let verdict = first.map_or(Verdict::Quiet, |(_, rank, reason, message)| {
            Verdict::Problem(Problem::new(rank, reason, message, 0))
        });
        (verdict, grown)
    }
}
