//! The cgroup mode, and the memory in use at the root cgroup: cAdvisor's working set, which is
//! usage - inactive_file and at least 0.
//!
//! The usage is memory.current, as in runc. The root of v2 has none, but the root that a container
//! sees has one. Without it the usage is anon + file of memory.stat, without the kernel's memory.
//! Without a memory controller a kubelet does not start; here the same sum is computed from
//! `proc/meminfo` (`memory`). If that is unreadable too, the fact is unread.

use std::io::ErrorKind;

use procfs::{CGroupControllers, FromBufRead};

use crate::kube::facts::{Presence, Read, Unread};
use crate::os::mounts::{self, Mount};
use crate::os::read::SMALL;
use crate::os::reread_file::RereadFile;
use crate::os::root::HostRoot;
use crate::os::scan;

const CONTROLLERS: &str = "sys/fs/cgroup/cgroup.controllers";
const CURRENT: &str = "sys/fs/cgroup/memory.current";

/// How cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `/sys/fs/cgroup` is cgroup2.
    V2,
    /// Any other mount point or version: v1 for a kubelet.
    V1,
    /// v1 with an empty cgroup2 at `/sys/fs/cgroup/unified`.
    Hybrid,
    /// No cgroup is mounted.
    None,
}

/// The mode, from the mount table. If the table has no cgroup, as below a root that was mounted
/// into a container, the mode is v2 if the file exists that only v2 has.
pub fn read(root: &HostRoot, mounts: &[Mount]) -> Mode {
    match mode(mounts) {
        Mode::None if is_there(root, CONTROLLERS) => Mode::V2,
        mode => mode,
    }
}

/// What is not read is not missing: a look may have had no time for it.
fn is_there(root: &HostRoot, path: &str) -> bool {
    !root.open(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The mode, from only the mount table.
pub fn mode(mounts: &[Mount]) -> Mode {
    let is_v2 = |point| mounts::at(mounts, point).is_some_and(|mount| mount.fs_type == "cgroup2");
    if is_v2("/sys/fs/cgroup") {
        Mode::V2
    } else if is_v2("/sys/fs/cgroup/unified") {
        Mode::Hybrid
    } else if mounts.iter().any(|mount| matches!(mount.fs_type.as_str(), "cgroup" | "cgroup2")) {
        Mode::V1
    } else {
        Mode::None
    }
}

/// The files of the memory in use at the root cgroup.
#[derive(Debug)]
pub(super) enum WorkingSet {
    V2 {
        current: Option<RereadFile>,
        stat: RereadFile,
    },
    V1 {
        usage: RereadFile,
        stat: RereadFile,
    },
    /// No cgroup.
    None,
}

impl WorkingSet {
    pub(super) fn new(root: &HostRoot, mode: Mode) -> Self {
        match mode {
            Mode::V2 => Self::V2 {
                current: is_there(root, CURRENT).then(|| RereadFile::new(CURRENT)),
                stat: RereadFile::new("sys/fs/cgroup/memory.stat"),
            },
            Mode::V1 | Mode::Hybrid => Self::V1 {
                usage: RereadFile::new("sys/fs/cgroup/memory/memory.usage_in_bytes"),
                stat: RereadFile::new("sys/fs/cgroup/memory/memory.stat"),
            },
            Mode::None => Self::None,
        }
    }

    /// Memory in use at the root cgroup, in bytes; `None` without a memory controller.
    pub(super) fn read(&mut self, root: &HostRoot) -> Option<u64> {
        match self {
            Self::V2 { current: None, stat } => {
                stat.read(root).ok().and_then(|stat| parse_v2(&stat))
            }
            Self::V2 { current: Some(usage), stat } => used(root, usage, stat, "inactive_file "),
            Self::V1 { usage, stat } => used(root, usage, stat, "total_inactive_file "),
            Self::None => None,
        }
    }
}

/// From the root's memory.stat of v2.
pub fn parse_v2(stat: &[u8]) -> Option<u64> {
    let lines = ["anon ", "file ", "inactive_file "];
    let [anon, file, inactive] = scan::values(stat, lines, scan::lone_number);
    Some(anon?.saturating_add(file?).saturating_sub(inactive.unwrap_or(0)))
}

/// From a file with the usage, less the line of memory.stat that begins with `inactive`.
fn used(
    root: &HostRoot,
    usage: &mut RereadFile,
    stat: &mut RereadFile,
    inactive: &str,
) -> Option<u64> {
    parse_usage(&usage.read(root).ok()?, &stat.read(root).ok()?, inactive)
}

/// From the text of a file with the usage, and that of memory.stat.
pub fn parse_usage(usage: &[u8], stat: &[u8], inactive: &str) -> Option<u64> {
    let [inactive] = scan::values(stat, [inactive], scan::lone_number);
    Some(scan::lone_number(usage)?.saturating_sub(inactive.unwrap_or(0)))
}

/// Whether the memory controller is usable: on v2 if the root's cgroup.controllers lists it, on v1
/// if `proc/cgroups` has it enabled and mounted. `proc/cgroups` is not read on v2: since Linux 6.11
/// it omits a controller that is built without v1 support.
pub fn memory_is_usable(root: &HostRoot) -> Read<bool> {
    if let Some(controllers) = Presence::from(root.text(CONTROLLERS, SMALL)).present()? {
        return Ok(controllers.split_whitespace().any(|name| name == "memory"));
    }
    let memory = controllers(root)?.0.into_iter().find(|controller| controller.name == "memory");
    Ok(memory.is_some_and(|memory| memory.enabled && memory.hierarchy != 0))
}

/// `proc/cgroups`.
pub fn controllers(root: &HostRoot) -> Read<CGroupControllers> {
    const CGROUPS: &str = "proc/cgroups";
    CGroupControllers::from_buf_read(root.text(CGROUPS, SMALL)?.as_bytes())
        .map_err(|_| Unread::new(CGROUPS, "not the four columns of controllers"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    #[test]
    fn the_memory_controller_is_enabled_and_mounted_on_v1_and_listed_on_v2() {
        let tree = Tree::new("controllers");
        let root = HostRoot::new(tree.path());
        assert!(memory_is_usable(&root).unwrap_err().is_absent());
        for (line, usable) in [
            ("memory\t4\t106\t1\n", true),
            ("memory\t0\t106\t1\n", false),
            ("memory\t4\t106\t0\n", false),
            ("", false),
        ] {
            tree.write("proc/cgroups", line.as_bytes());
            assert_eq!(memory_is_usable(&root), Ok(usable), "{line}");
        }
        tree.write("proc/cgroups", b"memory\tx\n");
        assert!(memory_is_usable(&root).is_err());
        assert_eq!(read(&root, &[]), Mode::None);
        for (listed, usable) in [("io memory pids\n", true), ("io memory_x pids\n", false)] {
            tree.write(CONTROLLERS, listed.as_bytes());
            assert_eq!(memory_is_usable(&root), Ok(usable), "{listed}");
            assert_eq!(read(&root, &[]), Mode::V2);
        }
    }

    #[test]
    fn the_mode_follows_the_mount_table() {
        let (folder, unified, memory) =
            ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory");
        for (mounts, want) in [
            (&[("/", "ext4")][..], Mode::None),
            (&[(folder, "cgroup2")], Mode::V2),
            (&[(folder, "tmpfs"), (unified, "cgroup2")], Mode::Hybrid),
            (&[(folder, "tmpfs"), (memory, "cgroup")], Mode::V1),
            (&[("/acct", "cgroup")], Mode::V1),
            (&[("/elsewhere", "cgroup2")], Mode::V1),
            (&[(folder, "cgroup2"), (folder, "tmpfs")], Mode::V1),
        ] {
            let mounts = mounts.iter().map(|(point, fs_type)| Mount {
                point: point.into(),
                fs_type: (*fs_type).into(),
                device: None,
            });
            let mounts: Vec<Mount> = mounts.collect();
            assert_eq!(mode(&mounts), want, "{mounts:?}");
        }
    }

    #[test]
    fn on_v2_usage_is_anon_plus_file_minus_inactive_file() {
        assert_eq!(parse_v2(b"anon 100\nfile 50\ninactive_file 30\ninactive_anon 7\n"), Some(120));
        assert_eq!(parse_v2(b"anon 100\nfile 50\n"), Some(150));
        assert_eq!(parse_v2(b"anon 1\nfile 2\ninactive_file 30\n"), Some(0));
        assert_eq!(parse_v2(b"anon 18446744073709551615\nfile 2\n"), Some(u64::MAX));
        for stat in ["", "anon 1\n", "file 1\n", "anon x\nfile 1\n", "anon 1\nfile_mapped 2\n"] {
            assert_eq!(parse_v2(stat.as_bytes()), None, "{stat:?}");
        }
    }

    #[test]
    fn usage_of_a_file_is_less_its_inactive_files() {
        let tree = Tree::new("working-set");
        let root = HostRoot::new(tree.path());
        let v1 = "sys/fs/cgroup/memory";
        let stat = "anon 1\nfile 1\ninactive_file 1\ntotal_inactive_file 30\n";
        for (usage, stat, want) in [
            ("100\n", stat, [Some(99), Some(70)]),
            ("100", "", [Some(100); 2]),
            ("0", stat, [Some(0); 2]),
            ("", stat, [None; 2]),
        ] {
            tree.write(&format!("{v1}/memory.usage_in_bytes"), usage.as_bytes());
            tree.write(&format!("{v1}/memory.stat"), stat.as_bytes());
            tree.write(CURRENT, usage.as_bytes());
            tree.write("sys/fs/cgroup/memory.stat", stat.as_bytes());
            let read = |mode| WorkingSet::new(&root, mode).read(&root);
            assert_eq!([Mode::V2, Mode::V1].map(read), want, "{usage:?}");
        }
        std::fs::remove_file(tree.path().join(CURRENT)).unwrap();
        tree.write("sys/fs/cgroup/memory.stat", stat.as_bytes());
        assert_eq!(WorkingSet::new(&root, Mode::V2).read(&root), Some(1));
    }

    /// The files are kept for an hour.
    #[test]
    fn a_file_that_a_look_had_no_time_for_is_not_missing() {
        let tree = Tree::new("working-set-cut-off");
        let root = HostRoot::new(tree.path());
        tree.write(CONTROLLERS, b"memory\n");
        tree.write(CURRENT, b"100\n");
        tree.write("sys/fs/cgroup/memory.stat", b"anon 1\nfile 2\ninactive_file 3\n");
        let look = root.look_of(0);
        let mode = read(&root, &[]);
        let mut files = WorkingSet::new(&root, mode);
        assert_eq!(files.read(&root), None);
        drop(look);
        assert_eq!((mode, files.read(&root)), (Mode::V2, Some(97)));
    }
}
