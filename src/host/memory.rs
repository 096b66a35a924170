//! RAM, swap and huge pages; whether the kernel reports stalls on memory.
//!
//! RAM and swap are read from `proc/meminfo`, by cAdvisor's rule: the first line of the form
//! `<name>: <n> kB` counts. For a kernel without a memory controller, the memory in use is read
//! there, too. procfs::Meminfo is not used, because it fails if one of its lines is missing: Linux
//! before 3.14 has no MemAvailable, and some boards have no swap lines.

use nix::errno::Errno;
use nix::sys::sysinfo::SysInfo;

use crate::kube::facts::{Facts, HugePages, Memory, Presence, Read, Unread, renew};
use crate::os::read::SMALL;
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, unread};
use crate::os::scan;

/// The file with the memory counters.
pub(super) const MEMINFO: &str = "proc/meminfo";
/// The folder with the pools of huge pages.
const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";
const PRESSURE: &str = "proc/pressure/memory";

/// `proc/meminfo`. The kernel takes 20 times as long to write it as to answer sysinfo(2), so most
/// statuses ask only sysinfo(2): if its totals are unchanged, the values of the last read still
/// count. The numbers of sysinfo(2) are not reported: in a container they can differ from the
/// file's numbers, and qemu-arm truncates them.
#[derive(Debug)]
pub(super) struct Meminfo {
    pub(super) file: RereadFile,
    last: Option<LastRead>,
    /// The sizes of huge pages, which stay until a reboot; `None` if they were not listed.
    page_sizes: Option<Vec<u64>>,
}

/// The last read.
#[derive(Debug)]
struct LastRead {
    /// RAM and swap by sysinfo(2) in bytes, just before this read; `None` if sysinfo(2) does not
    /// tell them.
    totals: Option<[u64; 2]>,
    values: MeminfoValues,
}

/// What is used of `proc/meminfo`.
#[derive(Clone, Debug)]
pub struct MeminfoValues {
    /// `MemTotal` and `SwapTotal`.
    pub memory: Read<Memory>,
    /// Whether any pool of huge pages may have a page.
    pub has_huge_pages: bool,
    /// Memory in use by the counters of this file, for a kernel without a memory controller.
    pub working_set_bytes: Read<u64>,
}

impl Meminfo {
    /// Opens nothing.
    pub(super) fn new() -> Self {
        Self { file: RereadFile::new(MEMINFO), last: None, page_sizes: None }
    }

    /// The totals and the pools of huge pages are read anew by the next call.
    pub(super) fn forget(&mut self) {
        self.last = None;
    }

    /// Sets memory, working set and huge pages. `used` is the working set of the memory controller.
    pub(super) fn refresh(
        &mut self,
        root: &HostRoot,
        sysinfo: Option<SysInfo>,
        used: Option<u64>,
        facts: &mut Facts,
    ) {
        let meminfo = self.values(root, sysinfo, used.is_none()).clone();
        renew(&mut facts.memory, meminfo.memory);
        facts.working_set_bytes = used.map_or(meminfo.working_set_bytes, Ok);
        let had_huge_pages = match &facts.huge_pages {
            Ok(sizes) => sizes.iter().any(|size| size.count > 0),
            Err(_) => true,
        };
        if had_huge_pages || meminfo.has_huge_pages || self.page_sizes.is_none() {
            renew(&mut facts.huge_pages, huge_pages(root, &mut self.page_sizes));
        }
    }

    /// The values of the last read, if that read succeeded and RAM and swap have the same size
    /// since then, by `sysinfo`; else the file is read. With `counters` the file is always read,
    /// because the counters change all the time.
    fn values(
        &mut self,
        root: &HostRoot,
        sysinfo: Option<SysInfo>,
        counters: bool,
    ) -> &MeminfoValues {
        let Self { file, last, .. } = self;
        let totals = sysinfo.map(|info| [info.ram_total(), info.swap_total()]);
        let is_current = |last: &LastRead| {
            totals.is_some() && last.totals == totals && last.values.memory.is_ok()
        };
        if counters || !last.as_ref().is_some_and(is_current) {
            *last = None;
        }
        let read = || LastRead {
            totals,
            values: match file.read(root) {
                Ok(meminfo) => parse_meminfo(&meminfo),
                Err(unread) => MeminfoValues {
                    memory: Err(unread.clone()),
                    has_huge_pages: false,
                    working_set_bytes: Err(unread),
                },
            },
        };
        &last.get_or_insert_with(read).values
    }
}

/// The text of `proc/meminfo`. `Hugetlb` exists since Linux 4.20; without the line the pools must
/// be read.
pub fn parse_meminfo(meminfo: &[u8]) -> MeminfoValues {
    let [total, swap_total, huge_pages] =
        line_bytes(meminfo, ["MemTotal:", "SwapTotal:", "Hugetlb:"]);
    MeminfoValues {
        memory: match total {
            Some(total_bytes) => Ok(Memory {
                total_bytes,
                // A kubelet does not start without this line: cAdvisor's GetMachineSwapCapacity
                // fails.
                swap_total_bytes: swap_total.unwrap_or(0),
            }),
            None => Err(Unread::new(MEMINFO, "no MemTotal line")),
        },
        has_huge_pages: huge_pages != Some(0),
        working_set_bytes: parse_working_set(meminfo),
    }
}

/// The working set without a memory controller: the same sum as of cgroup v2.
pub fn parse_working_set(meminfo: &[u8]) -> Read<u64> {
    let [anon, cached, buffers, swap_cached, inactive] = line_bytes(
        meminfo,
        ["AnonPages:", "Cached:", "Buffers:", "SwapCached:", "Inactive(file):"],
    );
    let required = |value: Option<u64>, name: &str| {
        value.ok_or_else(|| Unread::new(MEMINFO, format!("no {name} line")))
    };
    let usage = [
        required(anon, "AnonPages")?,
        required(cached, "Cached")?,
        buffers.unwrap_or(0),
        swap_cached.unwrap_or(0),
    ]
    .into_iter()
    .fold(0, u64::saturating_add);
    Ok(usage.saturating_sub(inactive.unwrap_or(0)))
}

/// The values of complete lines, in bytes. A name ends with its colon.
pub(super) fn line_bytes<const N: usize>(meminfo: &[u8], names: [&str; N]) -> [Option<u64>; N] {
    scan::values(meminfo, names, |value| {
        let (kilobytes, unit) = scan::number(value.trim_ascii_start())?;
        if unit.starts_with(b" kB") { kilobytes.checked_mul(1024) } else { None }
    })
}

/// Every size of huge pages, ascending, from the folders `hugepages-<n>kB`. A kernel without
/// hugetlbfs has none, which is no error. An unreadable count makes the whole fact unread, so that
/// no size is dropped silently. The sizes are listed if they are `None`.
fn huge_pages(root: &HostRoot, sizes: &mut Option<Vec<u64>>) -> Read<Vec<HugePages>> {
    let sizes = match sizes {
        Some(sizes) => sizes,
        None => {
            let names = Presence::from(root.list(HUGE_PAGES)).present()?.unwrap_or_default();
            let mut listed: Vec<u64> = names.iter().filter_map(|name| page_bytes(name)).collect();
            listed.sort_unstable();
            sizes.insert(listed)
        }
    };
    let count = |&page_bytes: &u64| {
        let path = format!("{HUGE_PAGES}/hugepages-{}kB/nr_hugepages", page_bytes / 1024);
        let text = root.text(&path, SMALL)?;
        let count = text.trim().parse().map_err(|_| Unread::new(path, "not a number"))?;
        Ok(HugePages { page_bytes, count })
    };
    sizes.iter().map(count).collect()
}

/// `hugepages-2048kB` is 2 MiB.
pub fn page_bytes(name: &str) -> Option<u64> {
    let kilobytes = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// Whether the kernel reports stalls on memory (PSI, Linux 4.20). A missing file, or a read that
/// fails with ENOTSUP (CONFIG_PSI_DEFAULT_DISABLED, as on Raspberry Pi OS without psi=1), means no.
pub fn has_pressure(root: &HostRoot) -> Read<bool> {
    match root.bytes(PRESSURE, SMALL) {
        // ENOTSUP and EOPNOTSUPP are the same number on Linux.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(false),
        read => {
            let read = read.map_err(|error| unread(PRESSURE, &error));
            Ok(Presence::from(read).present()?.is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn lines_become_bytes() {
        let board = "MemTotal:        3884312 kB\nMemFree:  1 kB\nSwapTotal:        102396 kB\n";
        assert_eq!(
            parse_meminfo(board.as_bytes()).memory,
            Ok(Memory { total_bytes: 3_884_312 * 1024, swap_total_bytes: 102_396 * 1024 })
        );
        let memory = parse_meminfo(b"MemTotal: 1 kB").memory;
        assert_eq!(memory, Ok(Memory { total_bytes: 1024, swap_total_bytes: 0 }));
    }

    #[test]
    fn an_incomplete_total_is_unread() {
        let no_total = Err(Unread::new("proc/meminfo", "no MemTotal line"));
        for text in [
            "",
            "\n",
            "MemTotal:",
            "MemTotal: 12",
            "MemTotal: 12 k",
            "MemTotal: 12 MB",
            "MemTotal: -12 kB",
            "MemTotal: +12 kB",
            "MemTotal:  kB",
            "MemTotal: 18446744073709551615 kB",
            "MemTotal: 99999999999999999999999 kB",
            "MemTotalX: 12 kB",
            "Node 0 MemTotal: 12 kB",
        ] {
            assert_eq!(parse_meminfo(text.as_bytes()).memory, no_total, "{text:?}");
        }
    }

    #[test]
    fn the_first_complete_line_counts() {
        let text = b"MemTotal: x kB\nMemTotal: 2 kB\nMemTotal: 3 kB\n";
        assert_eq!(line_bytes(text, ["MemTotal:"]), [Some(2048)]);
        let text = b"Inactive: 1 kB\nInactive(file): 5 kB\n";
        assert_eq!(line_bytes(text, ["Inactive(file):"]), [Some(5120)]);
    }

    #[test]
    fn the_pools_are_read_unless_hugetlb_is_zero() {
        for (text, has_huge_pages) in [
            ("MemTotal: 9 kB\nHugetlb: 0 kB\n", false),
            ("MemTotal: 9 kB\nHugetlb: 2048 kB\n", true),
            ("MemTotal: 9 kB\n", true),
            ("", true),
        ] {
            assert_eq!(parse_meminfo(text.as_bytes()).has_huge_pages, has_huge_pages, "{text:?}");
        }
    }

    #[test]
    fn the_working_set_is_the_sum_of_v2() {
        let meminfo = b"MemTotal: 999 kB\nBuffers: 2 kB\nCached: 10 kB\nSwapCached: 1 kB\nInactive(file): 4 kB\nAnonPages: 20 kB\n";
        assert_eq!(parse_working_set(meminfo), Ok(29 * 1024));
        assert_eq!(parse_working_set(b""), Err(Unread::new("proc/meminfo", "no AnonPages line")));
    }

    #[test]
    fn the_file_is_read_again_when_the_totals_of_sysinfo_changed() {
        let mut meminfo = Meminfo::new();
        let real = HostRoot::default();
        let info = real.sysinfo();
        let memory = meminfo.values(&real, info, false).memory.clone().unwrap();
        let wrong = |meminfo: &mut Meminfo| {
            meminfo.last.as_mut().unwrap().values.memory = Ok(Memory::default());
        };
        wrong(&mut meminfo);
        assert_eq!(meminfo.values(&real, info, false).memory, Ok(Memory::default()));
        assert_eq!(meminfo.values(&real, info, true).memory, Ok(memory));
        wrong(&mut meminfo);
        meminfo.last.as_mut().unwrap().totals = Some([memory.total_bytes, u64::MAX]);
        assert_eq!(meminfo.values(&real, info, false).memory, Ok(memory));
        wrong(&mut meminfo);
        meminfo.last.as_mut().unwrap().totals = None;
        assert_eq!(meminfo.values(&real, info, false).memory, Ok(memory));
        meminfo.last.as_mut().unwrap().values.memory = Err(Unread::new(MEMINFO, "why"));
        assert_eq!(meminfo.values(&real, info, false).memory, Ok(memory));
        wrong(&mut meminfo);
        meminfo.forget();
        assert_eq!(meminfo.values(&real, info, false).memory, Ok(memory));
    }

    #[test]
    fn below_another_root_the_file_is_always_read() {
        let tree = Tree::empty("meminfo");
        let root = HostRoot::new(tree.path());
        let mut meminfo = Meminfo::new();
        assert!(meminfo.values(&root, root.sysinfo(), false).memory.is_err());
        for total in [1, 2] {
            tree.write("proc/meminfo", format!("MemTotal: {total} kB\n").as_bytes());
            let memory = meminfo.values(&root, root.sysinfo(), false).memory.clone();
            assert_eq!(memory.unwrap().total_bytes, total * 1024);
        }
    }

    #[test]
    fn folder_names_contain_the_size() {
        assert_eq!(page_bytes("hugepages-64kB"), Some(64 << 10));
        assert_eq!(page_bytes("hugepages-16777216kB"), Some(16 << 30));
        for name in [
            "hugepages-",
            "hugepages-kB",
            "hugepages-2M",
            "2048kB",
            "hugepages-18446744073709551615kB",
        ] {
            assert_eq!(page_bytes(name), None, "{name}");
        }
    }
}
