//! The number of threads and its limit, from `proc/loadavg` and
//! `proc/sys/kernel/{pid_max,threads-max}`, as in the kubelet's `pkg/kubelet/stats/pidlimit`.
//!
//! One of the two limits is enough. For a malformed loadavg the kubelet uses the 16-bit count of
//! sysinfo(2); here the fact is unread.

use procfs::{FromRead, LoadAverage};

use crate::core::facts::{Pids, Read, Unread};
use crate::files::read::SMALL;

use super::root::HostRoot;

const LIMITS: [&str; 2] = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
const LOADAVG: &str = "proc/loadavg";

/// The limit and the number of threads.
pub fn read(root: &HostRoot) -> Read<Pids> {
    Ok(Pids {
        max: max(root)?,
        running: running(root)?,
    })
}

/// The number of threads.
pub fn running(root: &HostRoot) -> Read<u64> {
    parse_running(&root.text(LOADAVG, SMALL)?)
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

/// `1.36 3.49 4.53 2/3518 3715089` is 3518 threads. All five fields are required, as in the
/// kubelet.
pub fn parse_running(loadavg: &str) -> Read<u64> {
    match LoadAverage::from_read(loadavg.as_bytes()) {
        Ok(load) => Ok(u64::from(load.max)),
        Err(_) => Err(Unread::new(
            LOADAVG,
            "not the five fields of a load average",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_denominator_is_the_number_of_threads() {
        assert_eq!(parse_running("1.36 3.49 4.53 2/3518 3715089\n"), Ok(3518));
        for text in [
            "",
            "\n",
            "1 2 3 4/5",
            "1 2 3 45 6",
            "1 2 3 4/ 6",
            "1 2 3 4/x 6",
            "1 2 3 4/99999999999 6",
        ] {
            assert!(parse_running(text).is_err(), "{text:?}");
        }
    }
}
