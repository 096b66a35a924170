//! RAM and swap, from `proc/meminfo`, by cAdvisor's rule: the first line of the form
//! `<name>: <n> kB` counts.
//!
//! Not procfs::Meminfo, which fails if one of its lines is missing: Linux before 3.14 has no
//! MemAvailable, and some boards have no swap lines.

use crate::core::facts::{Memory, Read, Unread};
use crate::files::read::SMALL;

use super::root::HostRoot;

/// The file with the memory counters.
pub(super) const MEMINFO: &str = "proc/meminfo";

/// The whole file, which `cgroup::working_set` needs too.
pub(super) fn text(root: &HostRoot) -> Read<String> {
    root.text(MEMINFO, SMALL)
}

/// MemTotal and SwapTotal of the text of `proc/meminfo`.
pub fn parse(meminfo: &str) -> Read<Memory> {
    let total_bytes =
        line_bytes(meminfo, "MemTotal").ok_or_else(|| Unread::new(MEMINFO, "no MemTotal line"))?;
    // A kubelet does not start without this line: cAdvisor's GetMachineSwapCapacity fails.
    let swap_total_bytes = line_bytes(meminfo, "SwapTotal").unwrap_or(0);
    Ok(Memory {
        total_bytes,
        swap_total_bytes,
    })
}

/// Whether any pool of huge pages may have a page. `Hugetlb` exists since Linux 4.20; without the
/// line the pools must be read.
pub(super) fn has_huge_pages(meminfo: &str) -> bool {
    line_bytes(meminfo, "Hugetlb") != Some(0)
}

/// The value of one complete line, in bytes.
pub(super) fn line_bytes(meminfo: &str, name: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        let (number, unit) = value.trim_start().split_once(' ')?;
        if !unit.starts_with("kB") || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        number.parse::<u64>().ok()?.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_bytes() {
        let board = "MemTotal:        3884312 kB\nMemFree:  1 kB\nSwapTotal:        102396 kB\n";
        assert_eq!(
            parse(board),
            Ok(Memory {
                total_bytes: 3_884_312 * 1024,
                swap_total_bytes: 102_396 * 1024
            })
        );
        assert_eq!(
            parse("MemTotal: 1 kB"),
            Ok(Memory {
                total_bytes: 1024,
                swap_total_bytes: 0
            })
        );
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
            assert_eq!(parse(text), no_total, "{text:?}");
        }
    }

    #[test]
    fn the_first_complete_line_counts() {
        assert_eq!(
            line_bytes(
                "MemTotal: x kB\nMemTotal: 2 kB\nMemTotal: 3 kB\n",
                "MemTotal"
            ),
            Some(2048)
        );
        assert_eq!(
            line_bytes("Inactive: 1 kB\nInactive(file): 5 kB\n", "Inactive(file)"),
            Some(5120)
        );
    }
}
