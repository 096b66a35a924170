//! KernelDeadlock, and the counters that have events alone.

use std::collections::VecDeque;
use std::time::Duration;

use super::condition_state::RuleResult;
use super::{RuleInput, Sign, found};
use crate::core::instant::Mono;

/// Counters of kernel faults since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `oops_count` (Linux 6.2); else 1 if bit 7 of `tainted` is set.
    pub oopses: u64,
    /// `softlockup_count` (6.16).
    pub soft_lockups: Option<u64>,
    /// `rcu_stall_count` (6.16).
    pub rcu_stalls: Option<u64>,
    /// `hung_task_detect_count` (6.13); an administrator can reset it.
    pub hung_tasks: Option<u64>,
}

/// Sources of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `oom_kill` of `proc/vmstat` (4.13).
    pub oom_kills: Option<u64>,
    /// Sum of the EDAC controllers' `ue_count`.
    pub memory_errors: Option<u64>,
    /// Interfaces with a device, and their `carrier_changes`.
    pub links: Vec<(String, u64)>,
    /// Bit 5 of `bootstatus` of `watchdog0`, and not on a Raspberry Pi. Only in the first look.
    pub watchdog_reset: bool,
}

/// The rule of KernelDeadlock: the kernel oopsed, locked up or has hung tasks. Bits of `tainted`
/// other than 7 are normal: 512 is a warning, and 1024 is set on every Raspberry Pi with a staging
/// driver.
#[derive(Debug, Default)]
pub(super) struct Deadlock {
    last: Option<Kernel>,
}

/// Whether a counter grew since the last look. One that fell was reset.
fn grew(now: Option<u64>, before: Option<u64>) -> bool {
    now.zip(before).is_some_and(|(now, before)| now > before)
}

impl Deadlock {
    pub(super) fn judge(&mut self, input: &RuleInput<'_>, signs: &mut Vec<Sign>) -> RuleResult {
        let kernel = match found(&input.reading.kernel) {
            Ok(kernel) => *kernel,
            Err(result) => return result,
        };
        let last = self.last.replace(kernel).unwrap_or(kernel);
        let has_hung = grew(kernel.hung_tasks, last.hung_tasks);
        // The change of the condition has an event of the same reason.
        for (grew, reason, message) in [
            (kernel.oopses > last.oopses, "KernelOops", "the kernel oopsed"),
            (has_hung, "TaskHung", "the kernel found a hung task"),
        ] {
            if grew && input.problem.is_some() {
                signs.push((reason, message.to_owned()));
            }
        }
        let has_locked_up = grew(kernel.soft_lockups, last.soft_lockups);
        let has_stalled = grew(kernel.rcu_stalls, last.rcu_stalls);
        let found = [
            (kernel.oopses > 0, 4, "KernelOops", "the kernel has oopsed since boot"),
            (has_locked_up, 3, "SoftLockup", "a CPU was locked up in the last 10 minutes"),
            (has_stalled, 2, "RCUStall", "a CPU stalled RCU in the last 10 minutes"),
            (has_hung, 1, "TaskHung", "a task hung in the last 10 minutes"),
        ];
        let first = found.into_iter().find(|(holds, ..)| *holds);
        first.map_or(RuleResult::NoProblem, |(_, rank, reason, message)| {
            RuleResult::problem(rank, reason, message, 0)
        })
    }
}

/// Changes of a link within [`FLAPS_WITHIN`] that make it flapping.
const FLAPS: u64 = 6;
const FLAPS_WITHIN: Duration = Duration::from_secs(600);

/// The counters at the last look.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    oom_kills: Option<u64>,
    memory_errors: Option<u64>,
    links: Vec<LinkHistory>,
}

/// An interface: its name, its last count, and the changes of the last minutes.
#[derive(Debug)]
struct LinkHistory {
    name: String,
    last: u64,
    changes: VecDeque<(Mono, u64)>,
}

impl Baseline {
    /// Adds the events of what happened since the last look.
    pub(super) fn compare(&mut self, counters: &Counters, signs: &mut Vec<Sign>, now: Mono) {
        if grew(counters.oom_kills, self.oom_kills) {
            let message = "the kernel killed a process for lack of memory";
            signs.push(("OOMKilling", message.to_owned()));
        }
        if grew(counters.memory_errors, self.memory_errors) {
            let message = "the memory controller counted an uncorrectable error";
            signs.push(("MemoryReadError", message.to_owned()));
        }
        // A counter that could not be read keeps its baseline.
        self.oom_kills = counters.oom_kills.or(self.oom_kills);
        self.memory_errors = counters.memory_errors.or(self.memory_errors);
        self.links.retain(|link| counters.links.iter().any(|(name, _)| *name == link.name));
        for (name, count) in &counters.links {
            match self.links.iter_mut().find(|link| link.name == *name) {
                Some(link) => {
                    if link.is_flapping(*count, now) {
                        let message = format!(
                            "the link of {name} changed at least {FLAPS} times in 10 minutes"
                        );
                        signs.push(("LinkFlapping", message));
                    }
                }
                None => self.links.push(LinkHistory {
                    name: name.clone(),
                    last: *count,
                    changes: VecDeque::new(),
                }),
            }
        }
    }
}

impl LinkHistory {
    fn is_flapping(&mut self, count: u64, now: Mono) -> bool {
        let change = count.saturating_sub(self.last);
        self.last = count;
        while self.changes.front().is_some_and(|(at, _)| now.since(*at) > FLAPS_WITHIN) {
            self.changes.pop_front();
        }
        if change > 0 {
            self.changes.push_back((now, change));
        }
        let sum = self.changes.iter().map(|(_, change)| *change);
        let is_flapping = change > 0 && sum.fold(0, u64::saturating_add) >= FLAPS;
        if is_flapping {
            self.changes.clear();
        }
        is_flapping
    }
}
