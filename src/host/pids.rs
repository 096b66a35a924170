//! The number of threads and its limit, from `proc/loadavg` and
//! `proc/sys/kernel/{pid_max,threads-max}`, as in the kubelet's `pkg/kubelet/stats/pidlimit`.
//!
//! One of the two limits is enough. For a malformed loadavg the kubelet uses the 16-bit count of
//! sysinfo(2); here the fact is unread. For most statuses sysinfo(2) counts the threads here too.

use crate::kube::facts::{Pids, Read, Unread};
use crate::os::reread_file::RereadFile;
use crate::os::root::HostRoot;
use crate::os::scan;

const LIMITS: [&str; 2] = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
const LOADAVG: &str = "proc/loadavg";

/// The number of threads and its limit. `proc/loadavg` and sysinfo(2) have the same counter of the
/// kernel, `nr_threads`, and each status calls sysinfo(2) for its memory.
#[derive(Debug)]
pub struct Threads {
    loadavg: RereadFile,
    limits: [RereadFile; 2],
    max: Option<u64>,
    /// At the last read of the file, sysinfo(2) had the same number, below 32,768. In a container,
    /// lxcfs can give the file another number.
    agreed: bool,
}

impl Default for Threads {
    /// Opens nothing.
    fn default() -> Self {
        let (loadavg, limits) = (RereadFile::new(LOADAVG), LIMITS.map(RereadFile::new));
        Self { loadavg, limits, max: None, agreed: false }
    }
}

impl Threads {
    /// The next read is of all files.
    pub(super) fn forget(&mut self) {
        (self.max, self.agreed) = (None, false);
    }

    /// The limit and the number of threads. `counted` is the number of threads of sysinfo(2), its
    /// lowest 16 bits.
    pub(super) fn read(&mut self, root: &HostRoot, counted: Option<u16>) -> Read<Pids> {
        let max = match self.max {
            Some(max) => max,
            None => self.read_max(root)?,
        };
        self.max = Some(max);
        let running = self.running(root, counted, max)?;
        Ok(Pids { max, running })
    }

    /// The lowest 16 bits are the whole number if the limit `max` has no more: at the limit fork
    /// fails (`copy_process` and `alloc_pid` of the kernel). A limit that was lowered or raised, or
    /// of another PID namespace, can be wrong; but less than a minute ago there were at most half
    /// as many as 16 bits count.
    fn running(&mut self, root: &HostRoot, counted: Option<u16>, max: u64) -> Read<u64> {
        let is_whole = self.agreed && max <= u64::from(u16::MAX);
        if let Some(threads) = counted.filter(|_| is_whole) {
            return Ok(threads.into());
        }
        let running = parse_running(&self.loadavg.read(root)?)?;
        self.agreed = running < 1 << 15 && counted.map(u64::from) == Some(running);
        Ok(running)
    }

    /// The smallest readable limit.
    pub fn read_max(&mut self, root: &HostRoot) -> Read<u64> {
        let limits = self.limits.each_mut().map(|file| {
            let limit = file.text(root)?.trim().parse();
            limit.map_err(|_| Unread::new(&*file.path, "not a number"))
        });
        match limits {
            [Ok(a), Ok(b)] => Ok(u64::min(a, b)),
            [Err(_), other] => other,
            [one, Err(_)] => one,
        }
    }
}

/// `1.36 3.49 4.53 2/3518 3715089` is 3518 threads. As in the kubelet, five fields are required,
/// and the three averages are not parsed.
pub fn parse_running(loadavg: &[u8]) -> Read<u64> {
    let mut fields = loadavg.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
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
    use crate::os::tree::Tree;

    #[test]
    fn sysinfo_counts_the_threads_if_it_agrees_with_the_file_and_has_enough_bits() {
        let tree = Tree::new("threads");
        let root = HostRoot::new(tree.path());
        let mut threads = Threads::default();
        let (max, more) = (u64::from(u16::MAX), u64::from(u16::MAX) + 1);
        let mut running = |in_file: u64, counted, max| {
            tree.write(LOADAVG, format!("0 0 0 1/{in_file} 9\n").as_bytes());
            threads.running(&root, counted, max).unwrap()
        };
        for (in_file, counted, max, want) in [
            (200, Some(100), max, 200),
            (200, Some(200), max, 200),
            (201, Some(300), max, 300),
            (202, Some(301), more, 202),
            (202, Some(202), max, 202),
            (203, Some(302), max, 302),
            (204, None, max, 204),
            (205, Some(303), max, 205),
            (32_768, Some(32_768), max, 32_768),
            (32_769, Some(7), max, 32_769),
            (65_543, Some(7), max, 65_543),
            (32_767, Some(32_767), max, 32_767),
            (32_768, Some(40_000), max, 40_000),
        ] {
            assert_eq!(running(in_file, counted, max), want, "{in_file}");
        }
        threads.forget();
        assert_eq!(threads.running(&root, Some(40_000), max), Ok(32_768));
        assert!(!threads.agreed);
    }

    #[test]
    fn the_limit_is_the_lower_one_and_read_again_when_told_and_after_an_error() {
        let tree = Tree::new("threads-limit");
        let root = HostRoot::new(tree.path());
        let mut threads = Threads::default();
        tree.write(LOADAVG, b"0 0 0 1/9 9\n");
        assert!(threads.read(&root, None).unwrap_err().absent);
        tree.write(LIMITS[0], b"300\n");
        assert_eq!(threads.read(&root, None), Ok(Pids { max: 300, running: 9 }));
        tree.write(LIMITS[1], b"200\n");
        assert_eq!(threads.read(&root, None), Ok(Pids { max: 300, running: 9 }));
        threads.forget();
        assert_eq!(threads.read(&root, None), Ok(Pids { max: 200, running: 9 }));
    }

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
