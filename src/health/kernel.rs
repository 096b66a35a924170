//! KernelDeadlock: counters of kernel faults in `proc/sys/kernel` and `sys/kernel`.

use super::condition_state::RuleResult;
use super::reader::HealthReader;
use super::{CheckTexts, ConditionKind, RuleInput, Source, grew, value_or_result};
use crate::kube::facts::Presence;
use crate::os::reread_file::RereadFile;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "KernelDeadlock",
    fine: ("KernelKeepsRunning", "no oops, lockup or hung task"),
    // KernelOops has no clear time, because only a boot resets its counter.
    problems: &[("KernelOops", 0), ("SoftLockup", 600), ("RCUStall", 600), ("TaskHung", 600)],
    source: Some(|| Box::new(KernelDeadlock::default())),
    check: CheckTexts {
        name: "kernel-deadlock",
        absent: "neither proc/sys/kernel/tainted nor sys/kernel/oops_count",
        remedy: "save the kernel log, then reboot",
    },
};

/// Counters of kernel faults since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kernel {
    /// `oops_count` (Linux 6.2); else 1 if bit 7 of `tainted` is set.
    pub(super) oopses: u64,
    /// `softlockup_count` (6.16).
    pub(super) soft_lockups: Option<u64>,
    /// `rcu_stall_count` (6.16).
    pub(super) rcu_stalls: Option<u64>,
    /// `hung_task_detect_count` (6.13); an administrator can reset it.
    pub(super) hung_tasks: Option<u64>,
}

/// Bit 7 of `tainted`: the kernel has oopsed.
const TAINT_DIE: i64 = 1 << 7;

/// Counters of kernel faults: of oopses, and the bits that an oops sets; of soft lockups, of stalls
/// of RCU and of hung tasks.
const FAULTS: [&str; 5] = [
    "sys/kernel/oops_count",
    "proc/sys/kernel/tainted",
    "sys/kernel/softlockup_count",
    "sys/kernel/rcu_stall_count",
    "proc/sys/kernel/hung_task_detect_count",
];

/// The kernel oopsed, locked up or has hung tasks. Bits of `tainted` other than 7 are normal: 512
/// is a warning, and 1024 is set on every Raspberry Pi with a staging driver.
#[derive(Debug, Default)]
pub(super) struct KernelDeadlock {
    /// `None` for a file that did not exist at the discovery.
    files: [Option<RereadFile>; FAULTS.len()],
    pub(super) found: Presence<Kernel>,
    /// The last known value of each counter.
    last: Option<Kernel>,
}

impl Source for KernelDeadlock {
    fn discover(&mut self, reader: &mut HealthReader) {
        self.files = FAULTS.map(|path| {
            let mut file = RereadFile::new(path);
            let is_there = Presence::from(reader.reread(&mut file)) != Presence::Absent;
            is_there.then_some(file)
        });
    }

    fn look(&mut self, reader: &mut HealthReader) {
        let number = |file: &mut Option<RereadFile>| Some(reader.reread_number(file.as_mut()?));
        let [oopses, tainted, counters @ ..] = self.files.each_mut().map(number);
        let [soft_lockups, rcu_stalls, hung_tasks] =
            counters.map(|count| count.and_then(Result::ok).map(i64::unsigned_abs));
        let count = oopses.map(|read| read.map(i64::unsigned_abs));
        let died = tainted.map(|read| read.map(|bits| u64::from(bits & TAINT_DIE != 0)));
        let oopses = match (count, died) {
            (Some(Ok(count)), Some(Ok(died))) => Some(Ok(count.max(died))),
            (Some(Ok(oopses)), _) | (_, Some(Ok(oopses))) => Some(Ok(oopses)),
            (count, died) => count.or(died),
        };
        let kernel = |oopses| Kernel { oopses, soft_lockups, rcu_stalls, hung_tasks };
        self.found = oopses.map_or(Presence::Absent, |read| Presence::of_known(read.map(kernel)));
    }

    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult {
        let kernel = match value_or_result(&self.found) {
            Ok(kernel) => *kernel,
            Err(result) => return result,
        };
        let last = self.last.unwrap_or(kernel);
        // A counter that could not be read keeps its baseline.
        self.last = Some(Kernel {
            oopses: kernel.oopses,
            soft_lockups: kernel.soft_lockups.or(last.soft_lockups),
            rcu_stalls: kernel.rcu_stalls.or(last.rcu_stalls),
            hung_tasks: kernel.hung_tasks.or(last.hung_tasks),
        });
        let has_hung = grew(kernel.hung_tasks, last.hung_tasks);
        // If the condition is not True yet, its change to True makes an event with the same reason.
        for (grew, reason, message) in [
            (kernel.oopses > last.oopses, "KernelOops", "the kernel oopsed"),
            (has_hung, "TaskHung", "the kernel found a hung task"),
        ] {
            if grew && input.problem.is_some() {
                input.signs.push((reason, message.to_owned()));
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

    fn paths(&self) -> Vec<String> {
        self.files.iter().flatten().map(|file| file.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::Board;
    use serde_json::json;

    fn new_board() -> Board<KernelDeadlock, Presence<Kernel>> {
        Board::new(&KIND, |source, found| source.found.clone_from(found))
    }

    fn kernel(change: impl FnOnce(&mut Kernel)) -> Presence<Kernel> {
        let mut kernel = Kernel {
            soft_lockups: Some(5),
            rcu_stalls: Some(5),
            hung_tasks: Some(5),
            ..Kernel::default()
        };
        change(&mut kernel);
        Presence::Found(kernel)
    }

    #[test]
    fn a_counter_that_grew_is_a_deadlock_for_ten_minutes() {
        let base = kernel(|_| {});
        for (look, want) in [
            (kernel(|k| k.soft_lockups = Some(6)), "SoftLockup"),
            (kernel(|k| k.rcu_stalls = Some(6)), "RCUStall"),
            (kernel(|k| k.hung_tasks = Some(6)), "TaskHung"),
            (kernel(|k| (k.soft_lockups, k.hung_tasks) = (Some(9), Some(9))), "SoftLockup"),
            (kernel(|k| k.oopses = 1), "KernelOops"),
            (kernel(|_| {}), "False"),
            // Reset, or no longer there.
            (kernel(|k| k.hung_tasks = Some(0)), "False"),
            (kernel(|k| k.hung_tasks = None), "False"),
        ] {
            let mut board = new_board();
            assert_eq!(board.look(0, &base), "False", "the first look is the baseline");
            assert_eq!(board.look(60, &look), want);
            board.look(60, &look);
            assert_eq!(board.look(599, &look), want);
            board.look(1, &look);
            let lasts = want == "KernelOops";
            assert_eq!(board.state(), if lasts { want } else { "False" });
        }
        // A counter that the look did not come to keeps its baseline.
        let mut board = new_board();
        board.look(0, &base);
        let cut_off = |k: &mut Kernel| {
            (k.soft_lockups, k.rcu_stalls, k.hung_tasks) = (None, None, None);
        };
        board.look(60, &kernel(cut_off));
        let grown = kernel(|k| k.soft_lockups = Some(6));
        assert_eq!(board.look(60, &grown), "SoftLockup");
        // A fall is the new baseline.
        let mut board = new_board();
        board.look(0, &base);
        board.look(60, &kernel(|k| k.hung_tasks = Some(0)));
        assert_eq!(board.look(60, &kernel(|k| k.hung_tasks = Some(1))), "TaskHung");
    }

    #[test]
    fn an_oops_before_the_first_look_counts_and_ends_with_the_boot() {
        let mut board = new_board();
        assert_eq!(board.look(0, &kernel(|k| k.oopses = 1)), "KernelOops");
        assert_eq!(board.take_signs(), [] as [&str; 0], "the change has one");
        // A further oops has an event of its own.
        board.look(600, &kernel(|k| k.oopses = 2));
        assert_eq!(board.take_signs(), ["KernelOops"]);
        let mut next = new_board();
        let ours = json!({"type": "KernelDeadlock", "status": "True", "reason": "KernelOops",
            "message": "the kernel has oopsed since boot"});
        next.adopt(&ours);
        assert_eq!(next.state(), "KernelOops");
        assert_eq!(next.look(0, &kernel(|_| {})), "False");
    }
}
