//! The number of threads and its limit, from `proc/loadavg` and
//! `proc/sys/kernel/{pid_max,threads-max}`, as in the kubelet's `pkg/kubelet/stats/pidlimit`.
//!
//! If one of the two limits cannot be read, the other limit counts. For a malformed loadavg the
//! kubelet uses the 16-bit count of sysinfo(2); here the fact is unread.

use crate::kube::facts::{Pids, Read, Unread};
use crate::os::reread_file::RereadFile;
use crate::os::root::HostRoot;
use crate::os::scan;

const LIMITS: [&str; 2] = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
const LOADAVG: &str = "proc/loadavg";

/// The number of threads and its limit.
#[derive(Debug)]
pub struct Threads {
    loadavg: RereadFile,
    limits: [RereadFile; 2],
    max: Option<u64>,
}

impl Default for Threads {
    /// Opens nothing.
    fn default() -> Self {
        let (loadavg, limits) = (RereadFile::new(LOADAVG), LIMITS.map(RereadFile::new));
        Self { loadavg, limits, max: None }
    }
}

impl Threads {
    /// The next read reads all files, not only loadavg.
    pub(super) fn forget(&mut self) {
        self.max = None;
    }

    /// The limit and the number of threads.
    pub(super) fn read(&mut self, root: &HostRoot) -> Read<Pids> {
        let max = match self.max {
            Some(max) => max,
            None => self.read_max(root)?,
        };
        self.max = Some(max);
        Ok(Pids { max, running: parse_running(&self.loadavg.read(root)?)? })
    }

    /// The smallest readable limit.
    pub fn read_max(&mut self, root: &HostRoot) -> Read<u64> {
        let limits = self.limits.each_mut().map(|file| {
            let limit = file.text(root)?.trim().parse();
            limit.map_err(|_| Unread::new(&*file.path, "not a number"))
        });
        match limits {
            [Ok(a), Ok(b)] => Ok(u64::min(a, b)),
            // It may be the lower one.
            [Err(unread), _] | [_, Err(unread)] if unread.is_not_reached() => Err(unread),
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
    fn the_limit_is_the_lower_one_and_read_again_when_told_and_after_an_error() {
        let tree = Tree::new("threads-limit");
        let root = HostRoot::new(tree.path());
        let mut threads = Threads::default();
        tree.write(LOADAVG, b"0 0 0 1/9 9\n");
        assert!(threads.read(&root).unwrap_err().is_absent());
        tree.write(LIMITS[0], b"300\n");
        assert_eq!(threads.read(&root), Ok(Pids { max: 300, running: 9 }));
        tree.write(LIMITS[1], b"200\n");
        assert_eq!(threads.read(&root), Ok(Pids { max: 300, running: 9 }));
        threads.forget();
        let look = root.look_of(1);
        assert!(threads.read(&root).unwrap_err().is_not_reached(), "only the higher limit");
        drop(look);
        assert_eq!(threads.read(&root), Ok(Pids { max: 200, running: 9 }));
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
