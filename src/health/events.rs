//! Sources that make events and no condition: `proc/vmstat`, EDAC, network interfaces, the
//! watchdog.

use std::collections::VecDeque;
use std::time::Duration;

use super::grew;
use super::reader::{HealthReader, MAX_DEVICES, count, is_numbered};
use crate::kube::facts::{Read, Sign};
use crate::kube::instant::Mono;
use crate::os::reread_file::RereadFile;

/// What a look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// `oom_kill` of `proc/vmstat` (4.13).
    pub(super) oom_kills: Option<u64>,
    /// Sum of the EDAC controllers' `ue_count`.
    pub(super) memory_errors: Option<u64>,
    /// Interfaces with a device, and their `carrier_changes` if they could be read.
    pub(super) links: Vec<(String, Option<u64>)>,
}

/// Bit 5 of `bootstatus`, WDIOF_CARDRESET of linux/watchdog.h.
const CARD_RESET: i64 = 0x20;

const VMSTAT: &str = "proc/vmstat";
const MC: &str = "sys/devices/system/edac/mc";
const NET: &str = "sys/class/net";
const WATCHDOG: &str = "sys/class/watchdog/watchdog0";
/// An empty property, which kexec_file_load(2) adds to the device tree of the next kernel (the
/// kernel's drivers/of/kexec.c).
const KEXEC: &str = "proc/device-tree/chosen/linux,booted-from-kexec";

/// The files that each look reads. They make events and no condition, so this is no
/// [`super::Source`].
#[derive(Debug, Default)]
pub(super) struct EventSources {
    vmstat: Option<RereadFile>,
    memory_errors: Vec<RereadFile>,
    links: Vec<(String, RereadFile)>,
    pub(super) found: Counters,
    /// Whether bit 5 of `bootstatus` of `watchdog0` is set, and no kexec kept it; false after
    /// [`Self::judge`] has used the bit. `None` before it was read. It is read only if the board is
    /// known to be no Raspberry Pi.
    was_reset: Option<bool>,
    /// The counters at the last look.
    last_oom_kills: Option<u64>,
    last_memory_errors: Option<u64>,
    link_histories: Vec<LinkHistory>,
}

impl EventSources {
    /// Finds the files anew, at the times of [`super::Source::discover`]. The counters of earlier
    /// looks stay. Only `proc/vmstat` is opened here: the files of controllers and interfaces may
    /// not exist.
    pub(super) fn discover(&mut self, reader: &mut HealthReader) {
        let mut vmstat = RereadFile::new(VMSTAT);
        let has_oom_kills = oom_kills(reader, &mut vmstat).is_some();
        self.vmstat = has_oom_kills.then_some(vmstat);
        // If a folder cannot be read, its files of the last discovery stay.
        if let Ok(controllers) = reader.list(MC, &|name| is_numbered(name, "mc")) {
            let errors = |name: &String| RereadFile::new(format!("{MC}/{name}/ue_count"));
            self.memory_errors = controllers.iter().map(errors).take(MAX_DEVICES).collect();
        }
        if let Ok(names) = reader.list(NET, &|name| name != "lo") {
            // A bridge or a tunnel has no device.
            let is_device =
                |name: &String| reader.root.open(&format!("{NET}/{name}/device")).is_ok();
            let names = names.into_iter().filter(is_device).take(MAX_DEVICES);
            let file = |name: &str| RereadFile::new(format!("{NET}/{name}/carrier_changes"));
            self.links = names.map(|name| (name.clone(), file(&name))).collect();
        }
        // A Raspberry Pi uses its watchdog for each reboot, so there the bit says nothing.
        if reader.is_pi == Some(false) && self.was_reset.is_none() {
            // kexec resets no hardware, so the bit stays from an earlier boot.
            let status = reader.whole(|reader| {
                let is_kexec = reader.text(KEXEC).is_ok();
                reader.value(WATCHDOG, "bootstatus").map(|bits| (bits, is_kexec))
            });
            // A driver that is bound later has its file later.
            let status = status.ok().flatten();
            self.was_reset = status.map(|(bits, is_kexec)| bits & CARD_RESET != 0 && !is_kexec);
        }
    }

    /// Reads the files into `found`.
    pub(super) fn look(&mut self, reader: &mut HealthReader) {
        // If one controller cannot be read, there is no sum: it would grow when that controller can
        // be read again.
        let has_any = !self.memory_errors.is_empty();
        let errors = self.memory_errors.iter_mut().map(|file| count(reader.reread_number(file)));
        let sum = errors.sum::<Read<u64>>().ok().filter(|_| has_any);
        let mut links = Vec::new();
        for (name, file) in &mut self.links {
            links.push((name.clone(), count(reader.reread_number(file)).ok()));
        }
        self.found = Counters {
            oom_kills: self.vmstat.as_mut().and_then(|vmstat| oom_kills(reader, vmstat)),
            memory_errors: sum,
            links,
        };
    }

    /// The events of what happened since the last look. `is_new_boot`: no earlier process of this
    /// boot wrote the Node, so a reset by the watchdog was not reported yet. `None`: it is not
    /// known yet whether there was such a process.
    pub(super) fn judge(&mut self, is_new_boot: Option<bool>, now: Mono) -> Vec<Sign> {
        let (found, mut signs) = (&self.found, Vec::new());
        let has_killed = grew(found.oom_kills, self.last_oom_kills);
        let has_failed = grew(found.memory_errors, self.last_memory_errors);
        let was_reset = match (is_new_boot, &mut self.was_reset) {
            (Some(is_new), Some(was_reset)) => std::mem::take(was_reset) && is_new,
            _ => false,
        };
        for (holds, reason, message) in [
            (has_killed, "OOMKilling", "the kernel killed a process for lack of memory"),
            (has_failed, "MemoryReadError", "the memory controller counted an uncorrectable error"),
            (was_reset, "WatchdogReset", "the last boot followed a reset by the watchdog"),
        ] {
            if holds {
                signs.push((reason, message.to_owned()));
            }
        }
        // A counter that could not be read keeps its baseline.
        self.last_oom_kills = found.oom_kills.or(self.last_oom_kills);
        self.last_memory_errors = found.memory_errors.or(self.last_memory_errors);
        let histories = &mut self.link_histories;
        histories.retain(|link| found.links.iter().any(|(name, _)| *name == link.name));
        for (name, count) in &found.links {
            let Some(count) = count else { continue };
            let Some(link) = histories.iter_mut().find(|link| link.name == *name) else {
                let (name, changes) = (name.clone(), VecDeque::new());
                histories.push(LinkHistory { name, last: *count, changes });
                continue;
            };
            if link.is_flapping(*count, now) {
                let message =
                    format!("the link of {name} changed at least {FLAPS} times in 10 minutes");
                signs.push(("LinkFlapping", message));
            }
        }
        signs
    }
}

fn oom_kills(reader: &mut HealthReader, vmstat: &mut RereadFile) -> Option<u64> {
    reader.reread_values(vmstat, ["oom_kill "]).ok().and_then(|[kills]| kills)
}

/// Changes of a link within [`FLAPS_WITHIN`] that make it flapping.
const FLAPS: u64 = 6;
const FLAPS_WITHIN: Duration = Duration::from_secs(600);

/// An interface: its name, its last count, and the changes of the last minutes.
#[derive(Debug)]
struct LinkHistory {
    name: String,
    last: u64,
    changes: VecDeque<(Mono, u64)>,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::instant::Now;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    /// The first read ends after 4096 bytes.
    #[test]
    fn vmstat_is_read_until_the_whole_line_of_oom_kill() {
        let tree = Tree::empty("health-vmstat");
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut kills = |before: usize, line: &str| {
            let text = ["x".repeat(before).as_str(), "\n", line].concat();
            tree.write("proc/vmstat", text.as_bytes());
            oom_kills(&mut reader, &mut RereadFile::new(VMSTAT))
        };
        for before in [0, 4000, 4083, 4084, 4085, 4086, 5000] {
            assert_eq!(kills(before, "oom_kill 12\nswap_ra 0\n"), Some(12), "{before}");
        }
        assert_eq!(kills(0, "oom_kill_disable 1\nno_oom_kill 2\n"), None);
    }

    /// The reasons of the events of looks, each some seconds after the one before.
    fn judged<const N: usize>(looks: [(u64, Counters); N]) -> Vec<&'static str> {
        let (mut sources, mut seconds) = (EventSources::default(), 0);
        let mut signs = Vec::new();
        for (after, found) in looks {
            seconds += after;
            sources.found = found;
            let now = Mono::START.after(Duration::from_secs(seconds));
            signs.extend(sources.judge(Some(true), now).into_iter().map(|(reason, _)| reason));
        }
        signs
    }

    #[test]
    fn a_counter_that_grew_is_an_event() {
        let counters = |change: fn(&mut Counters)| {
            let mut counters =
                Counters { oom_kills: Some(3), memory_errors: Some(0), ..Counters::default() };
            change(&mut counters);
            counters
        };
        for (found, want) in [
            (counters(|c| c.oom_kills = Some(4)), &["OOMKilling"][..]),
            (counters(|c| c.memory_errors = Some(1)), &["MemoryReadError"]),
            (counters(|c| c.oom_kills = Some(2)), &[]),
            (counters(|c| c.oom_kills = None), &[]),
            (counters(|_| {}), &[]),
        ] {
            assert_eq!(judged([(0, counters(|_| {})), (60, found)]), want);
        }
        for (is_new_boot, want) in [(true, &["WatchdogReset"][..]), (false, &[])] {
            let mut sources = EventSources { was_reset: Some(true), ..EventSources::default() };
            assert!(sources.judge(None, Mono::START).is_empty(), "not known yet");
            let signs = sources.judge(Some(is_new_boot), Mono::START);
            let reasons: Vec<_> = signs.into_iter().map(|(reason, _)| reason).collect();
            assert_eq!(reasons, want, "once per boot");
            let again = sources.judge(Some(is_new_boot), Mono::START);
            assert!(again.is_empty(), "only at the first look");
        }
    }

    #[test]
    fn a_link_is_flapping_after_six_changes_in_ten_minutes() {
        let link = |(seconds, changes)| {
            let links = vec![("eth0".to_owned(), Some(changes))];
            (seconds, Counters { links, ..Counters::default() })
        };
        let flaps = |looks: [(u64, u64); 3]| judged(looks.map(link)) == ["LinkFlapping"];
        assert!(!flaps([(0, 100), (1, 100), (1, 100)]));
        assert!(!flaps([(0, 0), (60, 5), (1, 5)]));
        assert!(flaps([(0, 0), (60, 6), (1, 6)]));
        assert!(flaps([(0, 0), (60, 3), (600, 6)]));
        assert!(!flaps([(0, 0), (60, 3), (601, 6)]));
        // The interface was replaced by another one.
        assert!(!flaps([(0, 50), (60, 0), (60, 1)]));
    }
}
