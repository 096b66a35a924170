//! Counters of kernel faults and of what has events alone: `proc/sys/kernel`, `sys/kernel`,
//! `proc/vmstat`, EDAC, network interfaces, the watchdog.

use super::reader::{HealthReader, count, is_numbered};
use crate::core::facts::Read;
use crate::files::read::LARGE;
use crate::health::{Counters, Kernel, Source};
use crate::host::kept_file::KeptFile;
use crate::host::root::present;
use crate::host::scan;

/// Bit 7 of `tainted`: the kernel has oopsed.
const TAINT_DIE: i64 = 1 << 7;
/// Bit 5 of `bootstatus`, WDIOF_CARDRESET of linux/watchdog.h.
const CARD_RESET: i64 = 0x20;

/// Counters of kernel faults: of oopses, and the bits that an oops sets; of soft lockups, of stalls of
/// RCU and of hung tasks.
const FAULTS: [&str; 5] = [
    "sys/kernel/oops_count",
    "proc/sys/kernel/tainted",
    "sys/kernel/softlockup_count",
    "sys/kernel/rcu_stall_count",
    "proc/sys/kernel/hung_task_detect_count",
];
const VMSTAT: &str = "proc/vmstat";
const MC: &str = "sys/devices/system/edac/mc";
const NET: &str = "sys/class/net";
const WATCHDOG: &str = "sys/class/watchdog/watchdog0";

/// The files that are looked at. One that does not exist is left out at the discovery.
#[derive(Debug, Default)]
pub(super) struct KernelCounters {
    faults: [Option<KeptFile>; FAULTS.len()],
    vmstat: Option<KeptFile>,
    memory_errors: Vec<KeptFile>,
    links: Vec<(String, KeptFile)>,
    watchdog_reset: bool,
}

impl KernelCounters {
    pub(super) fn discover(reader: &mut HealthReader, asks_watchdog: bool) -> Self {
        let faults = FAULTS.map(|path| {
            let mut file = KeptFile::new(path);
            let is_there = present(reader.kept(&mut file)).is_some();
            is_there.then_some(file)
        });
        let mut files = Self { faults, ..Self::default() };
        let mut vmstat = KeptFile::new(VMSTAT);
        let has_oom_kills = oom_kills(reader, &mut vmstat).is_some();
        files.vmstat = has_oom_kills.then_some(vmstat);
        for controller in reader.names(MC, &|name| is_numbered(name, "mc")) {
            files.memory_errors.push(KeptFile::new(format!("{MC}/{controller}/ue_count")));
        }
        for name in reader.names(NET, &|name| name != "lo") {
            // A bridge or a tunnel has no device.
            if reader.root().open(&format!("{NET}/{name}/device")).is_ok() {
                let file = KeptFile::new(format!("{NET}/{name}/carrier_changes"));
                files.links.push((name, file));
            }
        }
        if asks_watchdog {
            let status = reader.value(WATCHDOG, "bootstatus");
            files.watchdog_reset = status.is_some_and(|status| status & CARD_RESET != 0);
        }
        files
    }

    pub(super) fn kernel(&mut self, reader: &mut HealthReader) -> Source<Kernel> {
        let number = |file: &mut Option<KeptFile>| Some(reader.kept_number(file.as_mut()?));
        let [oopses, tainted, counters @ ..] = self.faults.each_mut().map(number);
        let [soft_lockups, rcu_stalls, hung_tasks] =
            counters.map(|count| count.and_then(Result::ok).map(i64::unsigned_abs));
        let died = |tainted: i64| u64::from(tainted & TAINT_DIE != 0);
        let oopses = match (oopses, tainted) {
            (None, None) => return None,
            (Some(Ok(oopses)), Some(Ok(tainted))) => oopses.unsigned_abs().max(died(tainted)),
            (Some(Ok(oopses)), _) => oopses.unsigned_abs(),
            (_, Some(Ok(tainted))) => died(tainted),
            (Some(Err(unread)), _) | (_, Some(Err(unread))) => return Some(Err(unread)),
        };
        Some(Ok(Kernel { oopses, soft_lockups, rcu_stalls, hung_tasks }))
    }

    pub(super) fn counters(&mut self, reader: &mut HealthReader) -> Counters {
        // A sum without one of its parts would grow when that part returns.
        let has_any = !self.memory_errors.is_empty();
        let errors = self.memory_errors.iter_mut().map(|file| count(reader.kept_number(file)));
        let sum = errors.sum::<Read<u64>>().ok().filter(|_| has_any);
        let mut links = Vec::new();
        for (name, file) in &mut self.links {
            if let Ok(changes) = count(reader.kept_number(file)) {
                links.push((name.clone(), changes));
            }
        }
        Counters {
            oom_kills: match &mut self.vmstat {
                Some(vmstat) => oom_kills(reader, vmstat),
                None => None,
            },
            memory_errors: sum,
            links,
            // Of the first look alone.
            watchdog_reset: std::mem::take(&mut self.watchdog_reset),
        }
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        self.faults.iter().flatten().map(|file| file.path.as_str()).collect()
    }
}

/// For each read the kernel computes all counters: one read less is less work, so reading stops at
/// `oom_kill`.
fn oom_kills(reader: &mut HealthReader, vmstat: &mut KeptFile) -> Option<u64> {
    let mut kills = None;
    let mut is_found = |text: &mut Vec<u8>| {
        // A read can end within a line.
        let end = text.iter().rposition(|byte| *byte == b'\n');
        let lines = text.get(..end.unwrap_or_default()).unwrap_or_default();
        [kills] = scan::values(lines, ["oom_kill "], scan::lone_number);
        kills.is_some()
    };
    reader.kept_bytes(vmstat, LARGE, &mut is_found).ok()?;
    kills
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::instant::Now;
    use crate::files::tree::Tree;
    use crate::host::root::HostRoot;

    /// The first read ends after 4096 bytes.
    #[test]
    fn vmstat_is_read_until_the_whole_line_of_oom_kill() {
        let tree = Tree::empty("health-vmstat");
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut kills = |before: usize, line: &str| {
            let text = ["x".repeat(before).as_str(), "\n", line].concat();
            tree.write("proc/vmstat", text.as_bytes());
            oom_kills(&mut reader, &mut KeptFile::new(VMSTAT))
        };
        for before in [0, 4000, 4083, 4084, 4085, 4086, 5000] {
            assert_eq!(kills(before, "oom_kill 12\nswap_ra 0\n"), Some(12), "{before}");
        }
        assert_eq!(kills(0, "oom_kill_disable 1\nno_oom_kill 2\n"), None);
    }
}
