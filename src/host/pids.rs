//! The number of threads and its limit, from `proc/loadavg` and
//! `proc/sys/kernel/{pid_max,threads-max}`, as in the kubelet's `pkg/kubelet/stats/pidlimit`.
//!
//! One of the two limits is enough. For a malformed loadavg the kubelet uses the 16-bit count of
//! sysinfo(2); here the fact is unread.

use crate::core::facts::{Pids, Read, Unread};
use crate::files::read::SMALL;

use super::kept_file::KeptFile;
use super::root::HostRoot;
use super::scan;

const LIMITS: [&str; 2] = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
/// The file with the number of threads.
pub(super) const LOADAVG: &str = "proc/loadavg";

/// The limit and the number of threads.
pub(super) fn read(root: &HostRoot, loadavg: &mut KeptFile) -> Read<Pids> {
    Ok(Pids {
        max: max(root)?,
        running: running(root, loadavg)?,
    })
}

/// The number of threads.
pub(super) fn running(root: &HostRoot, loadavg: &mut KeptFile) -> Read<u64> {
    parse_running(&loadavg.read(root)?)
}

/// The smallest readable limit.
pub fn max(root: &HostRoot) -> Read<u64> {
    let limits = LIMITS.map(|path| {
        let text = root.text(path, SMALL)?;
        text.trim()
            .parse()
            .map_err(|_| Unread::new(path, "not a number"))
    });
    match limits {
        [Ok(a), Ok(b)] => Ok(u64::min(a, b)),
        [Err(_), other] => other,
        [one, Err(_)] => one,
    }
}

/// `1.36 3.49 4.53 2/3518 3715089` is 3518 threads. As in the kubelet, five fields are required,
/// and the three averages are not parsed.
pub fn parse_running(loadavg: &[u8]) -> Read<u64> {
    let mut fields = loadavg
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let tasks = fields.nth(3).filter(|_| fields.next().is_some());
    let threads = tasks.and_then(|tasks| {
        let (_, threads) = scan::number(tasks)?;
        scan::lone_number(threads.strip_prefix(b"/")?)
    });
    threads.ok_or_else(|| Unread::new(LOADAVG, "not the five fields of a load average"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_denominator_is_the_number_of_threads() {
        assert_eq!(parse_running(b"1.36 3.49 4.53 2/3518 3715089\n"), Ok(3518));
        for text in [
            "",
            "\n",
            "1 2 3 4/5",
            "1 2 3 45 6",
            "1 2 3 4/ 6",
            "1 2 3 4/x 6",
            "1 2 3 4/99999999999999999999 6",
            "1 2 3 4/5/6 7",
            "1 2 3 /5 6",
        ] {
            assert!(parse_running(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
