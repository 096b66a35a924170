//! RAM and swap, from `proc/meminfo`, by cAdvisor's rule: the first line of the form
//! `<name>: <n> kB` counts.
//!
//! Not procfs::Meminfo, which fails if one of its lines is missing: Linux before 3.14 has no
//! MemAvailable, and some boards have no swap lines.

use crate::core::facts::{Memory, Read, Unread};

use super::scan;

/// The file with the memory counters.
pub(super) const MEMINFO: &str = "proc/meminfo";

/// MemTotal and SwapTotal of the text of `proc/meminfo`.
pub fn parse(meminfo: &[u8]) -> Read<Memory> {
    parse_all(meminfo).0
}

/// The same, and whether any pool of huge pages may have a page. `Hugetlb` exists since Linux
/// 4.20; without the line the pools must be read.
pub(super) fn parse_all(meminfo: &[u8]) -> (Read<Memory>, bool) {
    let [total, swap_total, huge_pages] =
        line_bytes(meminfo, ["MemTotal:", "SwapTotal:", "Hugetlb:"]);
    let memory = match total {
        Some(total_bytes) => Ok(Memory {
            total_bytes,
            // A kubelet does not start without this line: cAdvisor's GetMachineSwapCapacity fails.
            swap_total_bytes: swap_total.unwrap_or(0),
        }),
        None => Err(Unread::new(MEMINFO, "no MemTotal line")),
    };
    (memory, huge_pages != Some(0))
}

/// The values of complete lines, in bytes. A name ends with its colon.
pub(super) fn line_bytes<const N: usize>(meminfo: &[u8], names: [&str; N]) -> [Option<u64>; N] {
    scan::values(meminfo, names, |value| {
        let (kilobytes, unit) = scan::number(value.trim_ascii_start())?;
        match unit.starts_with(b" kB") {
            true => kilobytes.checked_mul(1024),
            false => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_bytes() {
        let board = "MemTotal:        3884312 kB\nMemFree:  1 kB\nSwapTotal:        102396 kB\n";
        assert_eq!(
            parse(board.as_bytes()),
            Ok(Memory {
                total_bytes: 3_884_312 * 1024,
                swap_total_bytes: 102_396 * 1024
            })
        );
        assert_eq!(
            parse(b"MemTotal: 1 kB"),
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
            assert_eq!(parse(text.as_bytes()), no_total, "{text:?}");
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
            assert_eq!(parse_all(text.as_bytes()).1, has_huge_pages, "{text:?}");
        }
    }
}
