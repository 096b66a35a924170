//! What `nodelet serve` reports and no status needs: CPU time, memory and swap in use, traffic.
//!
//! CPU time is read from cpu.stat of v2's root cgroup (Linux 5.8), else it is the sum over
//! `proc/stat` that the kernel itself makes for that file. Memory is cAdvisor's working set
//! (`cgroup`).

use std::time::Duration;

use crate::kube::facts::{FsStats, Read, Unread};
use crate::os::read::SMALL;

use super::disk::{MeasuredPath, ancestor};
use super::{Host, Sources, memory};
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, unread};
use crate::os::scan;

pub(super) const CPU_STAT: &str = "sys/fs/cgroup/cpu.stat";
pub(super) const STAT: &str = "proc/stat";
const TRAFFIC: &str = "proc/net/dev";

/// The interface whose traffic is the node's, by the kubelet's rule
/// (`pkg/kubelet/stats/helper.go`).
pub const NODE_INTERFACE: &str = "eth0";

/// Most interfaces whose traffic is reported, beside the node's own; a router has thousands.
const MAX_INTERFACES: usize = 32;

/// Use of CPU, memory and swap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// CPU time of all processes since the boot.
    pub cpu: Read<Duration>,
    /// Memory in use without inactive file cache, in bytes.
    pub working_set_bytes: Read<u64>,
    /// RAM in bytes.
    pub memory_bytes: Read<u64>,
    /// Swap in bytes: the total, and the free part; zero if the lines are missing.
    pub swap_bytes: Read<(u64, u64)>,
}

/// What one network interface has transferred since it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The name of the interface.
    pub name: String,
    /// Received bytes, and errors.
    pub rx: (u64, u64),
    /// Sent bytes, and errors.
    pub tx: (u64, u64),
}

impl Host {
    /// Reads the use of CPU, memory and swap.
    pub fn usage(&mut self) -> Usage {
        self.refresh_mounts();
        let root = &self.root;
        let sources = self.sources.get_or_insert_with(|| Sources::new(root));
        let cpu = sources.cpu_stat.read(root).ok().and_then(|text| parse_cpu_stat(&text));
        let cpu = cpu.map_or_else(|| stat(root, &mut sources.stat), Ok);
        let meminfo = sources.meminfo.file.read(root);
        let totals = meminfo
            .as_ref()
            .map_err(Clone::clone)
            .map(|text| memory::line_bytes(text, ["MemTotal:", "SwapTotal:", "SwapFree:"]));
        Usage {
            cpu,
            working_set_bytes: match (sources.working_set.read(root), meminfo) {
                (Some(bytes), _) => Ok(bytes),
                (None, Ok(text)) => memory::parse_working_set(&text),
                (None, Err(unread)) => Err(unread),
            },
            memory_bytes: totals.clone().and_then(|[total, ..]| {
                total.ok_or_else(|| Unread::new(memory::MEMINFO, "no MemTotal line"))
            }),
            swap_bytes: totals.map(|[_, total, free]| (total.unwrap_or(0), free.unwrap_or(0))),
        }
    }

    /// Reads the sizes of the file system of `--root-dir`; if the root is on a network, always of
    /// the file system that the first read found.
    pub fn node_fs(&mut self) -> Read<Option<FsStats>> {
        self.refresh_mounts();
        let root = &self.root;
        let sources = self.sources.get_or_insert_with(|| Sources::new(root));
        let (folder, mounts) = (&self.node_root_dir, &sources.mounts);
        if !sources.root_can_block {
            sources.node_fs = MeasuredPath::default();
        }
        sources.node_fs.read(root, folder, mounts, ancestor)
    }

    /// Reads the traffic of the network interfaces of this process's namespace, without those that
    /// cAdvisor leaves out (`container/libcontainer/handler.go` isIgnoredDevice): the loopback, and
    /// those of containers.
    pub fn traffic(&self) -> Read<Vec<Traffic>> {
        let mut found = Vec::new();
        self.root.each_line(TRAFFIC, &mut |line| {
            let is_wanted =
                |one: &Traffic| found.len() < MAX_INTERFACES || one.name == NODE_INTERFACE;
            found.extend(parse_traffic(line).filter(is_wanted));
        })?;
        Ok(found)
    }
}

/// The resident memory of this process in bytes.
pub fn resident_bytes() -> Option<u64> {
    let status = HostRoot::default().bytes("proc/self/status", SMALL).ok()?;
    let [resident] = memory::line_bytes(&status, ["VmRSS:"]);
    resident
}

/// `usage_usec` of cpu.stat; `None` where there is no such line.
pub fn parse_cpu_stat(text: &[u8]) -> Option<Duration> {
    let [microseconds] = scan::values(text, ["usage_usec "], scan::lone_number);
    Some(Duration::from_micros(microseconds?))
}

fn stat(root: &HostRoot, file: &mut RereadFile) -> Read<Duration> {
    // The line of all CPUs is the first; a large machine has thousands of interrupts behind it.
    let is_enough = &mut |text: &mut Vec<u8>| text.contains(&b'\n');
    let text = file.read_until(root, SMALL, is_enough).map_err(|error| unread(STAT, &error))?;
    parse_stat(&text).ok_or_else(|| Unread::new(STAT, "no line of all CPUs"))
}

/// user + nice + system + irq + softirq + steal of the first line, in hundredths of a second
/// (USER_HZ). The time of guests is in user; idle and iowait are no use.
pub fn parse_stat(text: &[u8]) -> Option<Duration> {
    let line = text.strip_prefix(b"cpu ")?;
    let line = str::from_utf8(line.split(|byte| *byte == b'\n').next()?).ok()?;
    let numbers: Vec<u64> = numbers(line).collect();
    // steal exists since Linux 2.6.11.
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = numbers[..] else {
        return None;
    };
    let times = [user, nice, system, irq, softirq, steal];
    let sum = times.into_iter().try_fold(0, u64::checked_add)?;
    Some(Duration::from_millis(sum.saturating_mul(10)))
}

/// The numbers of a line, up to the first word that is no number.
fn numbers(line: &str) -> impl Iterator<Item = u64> {
    line.split_ascii_whitespace().map_while(|word| word.parse().ok())
}

/// A line of `proc/net/dev`: the name, eight numbers received, eight sent.
pub fn parse_traffic(line: &str) -> Option<Traffic> {
    // The name may have a colon in it, as that of an alias.
    let (name, values) = line.rsplit_once(':')?;
    let name = name.trim_start();
    let is_of_containers =
        ["veth", "docker", "nerdctl"].iter().any(|start| name.starts_with(start));
    if name.is_empty() || name == "lo" || is_of_containers {
        return None;
    }
    let numbers: Vec<u64> = numbers(values).collect();
    let [rx, _, rx_errors, _, _, _, _, _, tx, _, tx_errors, ..] = numbers[..] else {
        return None;
    };
    Some(Traffic { name: name.to_owned(), rx: (rx, rx_errors), tx: (tx, tx_errors) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn cpu_time_is_that_of_the_root_cgroup() {
        let stat = b"usage_usec 1234567891\nuser_usec 1\nsystem_usec 2\n";
        assert_eq!(parse_cpu_stat(stat), Some(Duration::from_micros(1_234_567_891)));
        for text in ["", "usage_usec", "usage_usec x\n", "nr_periods 0\n"] {
            assert_eq!(parse_cpu_stat(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn cpu_time_of_proc_stat_is_without_idle_iowait_and_guests() {
        let stat = b"cpu  1 20 300 999 888 4000 50000 600000 77 88\ncpu0 1 2 3 4\nintr 5\n";
        assert_eq!(parse_stat(stat), Some(Duration::from_millis(6_543_210)));
        for text in [
            "",
            "cpu0 1 2 3 4 5 6 7 8\n",
            "cpu  1 2 3 4 5 6 7\n",
            "cpu  1 2 x 4 5 6 7 8\n",
            "cpu  18446744073709551615 2 3 4 5 6 7 8\n",
        ] {
            assert_eq!(parse_stat(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_line_of_an_interface_is_its_traffic() {
        let line = "  eth0: 100 2 3 0 0 0 0 0 900 8 7 0 0 0 0 0";
        let eth0 = Traffic { name: "eth0".into(), rx: (100, 3), tx: (900, 7) };
        assert_eq!(parse_traffic(line), Some(eth0));
        assert_eq!(parse_traffic(&line.replace("eth0", "a:b")).unwrap().name, "a:b");
        assert_eq!(parse_traffic(&line.replace("eth0", "lowpan0")).unwrap().name, "lowpan0");
        for line in [
            "Inter-|   Receive                                                |  Transmit",
            " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets",
            "    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
            "vethab: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
            "docker0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
            "eth0: 1 2 3 4 5 6 7 8 9 10",
            "eth0: 1 2 x 4 5 6 7 8 9 10 11 12",
            ": 1 2 3 4 5 6 7 8 9 10 11 12",
        ] {
            assert_eq!(parse_traffic(line), None, "{line:?}");
        }
    }

    /// Each value has its files; what is missing is the fault of its own value.
    #[test]
    fn the_values_come_from_their_files() {
        let tree = Tree::empty("usage");
        let host = || Host::new(HostRoot::new(tree.path()), "/");
        let usage = host().usage();
        assert!(usage.cpu.is_err() && usage.working_set_bytes.is_err());
        assert!(usage.memory_bytes.is_err() && usage.swap_bytes.is_err());
        tree.write("proc/stat", b"cpu  1 0 0 0 0 0 0 0 0 0\n");
        tree.write(
            "proc/meminfo",
            b"MemTotal: 100 kB\nBuffers: 2 kB\nCached: 10 kB\nAnonPages: 20 kB\nSwapTotal: 7 kB\n\
              SwapFree: 3 kB\n",
        );
        let v1 = Usage {
            cpu: Ok(Duration::from_millis(10)),
            working_set_bytes: Ok(32 << 10),
            memory_bytes: Ok(100 << 10),
            swap_bytes: Ok((7 << 10, 3 << 10)),
        };
        let mut sources = host();
        assert_eq!(sources.usage(), v1);
        tree.write("sys/fs/cgroup/cgroup.controllers", b"memory\n");
        tree.write("sys/fs/cgroup/cpu.stat", b"usage_usec 5\n");
        tree.write("sys/fs/cgroup/memory.stat", b"anon 10\nfile 20\ninactive_file 5\n");
        let v2 = Usage { cpu: Ok(Duration::from_micros(5)), working_set_bytes: Ok(25), ..v1 };
        assert_eq!(sources.usage(), v2);
        tree.write("proc/net/dev", b"  eth0: 100 2 3 0 0 0 0 0 900 8 7 0 0 0 0 0\n");
        assert_eq!(sources.traffic().unwrap().len(), 1);
        let line = |name: String| format!("  {name}: 100 2 3 0 0 0 0 0 900 8 7 0 0 0 0 0\n");
        let mut lines: Vec<String> = (0..40).map(|number| line(format!("vlan{number}"))).collect();
        lines.push(line(NODE_INTERFACE.to_owned()));
        tree.write("proc/net/dev", lines.concat().as_bytes());
        let traffic = sources.traffic().unwrap();
        assert_eq!((traffic.len(), &*traffic[32].name), (33, "eth0"));
        assert!(sources.node_fs().unwrap().unwrap().capacity_bytes > 0);
    }

    #[test]
    fn this_machine_has_them_all() {
        let mut sources = Host::new(HostRoot::default(), "/");
        let usage = sources.usage();
        assert!(usage.cpu.unwrap() > Duration::ZERO && usage.working_set_bytes.unwrap() > 0);
        assert!(usage.swap_bytes.is_ok_and(|(total, free)| free <= total));
        assert!(usage.memory_bytes.unwrap() > resident_bytes().unwrap());
        assert!(sources.traffic().is_ok());
    }
}
