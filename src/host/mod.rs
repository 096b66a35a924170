//! The facts of the kernel: one file per subsystem, each with a pure `parse` and a `read` below a
//! [`HostRoot`]. An unreadable file makes only its own fact unread.
//!
//! [`Host::read`] reads all facts. [`Host::refresh_usage`] reads the facts that each status needs,
//! [`Host::refresh_unannounced`] the facts whose change the kernel does not announce,
//! [`Host::refresh_all`] also those that only a boot changes, and [`Host::refresh_network`] those
//! whose change it announces; `agent::read_cache` calls these. They call the `refresh` of each
//! subsystem, which sets its facts by `renew`: a fact that a look had no time for keeps its value.
//! What eviction alone uses is unread then, because an old amount is no observation.

pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod interfaces;
pub mod memory;
pub mod network;
pub mod pids;
pub mod system;
pub mod usage;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::kube::facts::{Facts, FsStats, Read, renew};
use crate::os::guard::{self, Resolved};
use crate::os::mounts::{MOUNTINFO, Mount, all_mounts, parse_mountinfo, parse_mounts};
use crate::os::read::cause;
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, unread};

/// The sources of the facts about one machine.
#[derive(Debug)]
pub struct Host {
    /// The folder of /proc, /sys and /etc.
    pub root: HostRoot,
    /// `--root-dir`, below that root; it need not exist.
    pub node_root_dir: PathBuf,
    /// `--ready-when-exists`: the Node is not ready while one of these paths is missing. A mounted
    /// data partition or a service's pid file can be such a path.
    pub ready_when_exists: Vec<PathBuf>,
    /// `None` before the first read, and after a change of the mounts: the same paths may then lead
    /// to other files.
    sources: Option<Sources>,
}

/// What is kept between two reads of the facts: descriptors and resolved paths.
#[derive(Debug)]
struct Sources {
    /// The mount table of this process: it shows which paths can block.
    mounts: Read<Rc<[Mount]>>,
    root_can_block: bool,
    meminfo: memory::Meminfo,
    threads: pids::Threads,
    working_set: cgroup::WorkingSet,
    node_fs: disk::MeasuredPath,
    image_fs: disk::MeasuredPath,
    online: cpu::Online,
    /// Read only for [`Host::usage`], like `stat`.
    cpu_stat: RereadFile,
    stat: RereadFile,
}

impl Sources {
    fn new(root: &HostRoot) -> Self {
        let own = all_mounts().map_err(|error| unread(MOUNTINFO, &error));
        let of_root = if root.is_real() { own.clone() } else { mounts(root).map(Into::into) };
        let mode = cgroup::read(root, of_root.as_deref().unwrap_or_default());
        Self {
            root_can_block: guard::root_can_block(),
            mounts: own,
            meminfo: memory::Meminfo::new(),
            threads: pids::Threads::default(),
            working_set: cgroup::WorkingSet::new(root, mode),
            node_fs: disk::MeasuredPath::default(),
            image_fs: disk::MeasuredPath::default(),
            online: cpu::Online::new(),
            cpu_stat: RereadFile::new(usage::CPU_STAT),
            stat: RereadFile::new(usage::STAT),
        }
    }
}

impl Host {
    /// A machine without `--ready-when-exists`; opens nothing. A relative `--root-dir` is below the
    /// working directory, as each other path of the flags.
    pub fn new(root: HostRoot, node_root_dir: impl Into<PathBuf>) -> Self {
        let mut node_root_dir = node_root_dir.into();
        if root.is_real() {
            node_root_dir = std::path::absolute(&node_root_dir).unwrap_or(node_root_dir);
        }
        Self { root, node_root_dir, ready_when_exists: Vec::new(), sources: None }
    }

    /// Whether the root is on a network: then its files are read only at the start.
    pub fn root_can_block(&mut self) -> bool {
        let root = &self.root;
        self.sources.get_or_insert_with(|| Sources::new(root)).root_can_block
    }

    /// The facts of the first read.
    pub fn read(&mut self, hostname: &str) -> Facts {
        let mut facts = Facts::unread();
        network::refresh(&self.root, &mut facts.network);
        self.refresh_all(&mut facts, hostname);
        self.refresh_usage(&mut facts);
        facts
    }

    /// Reads what the kernel does not announce, also what only a boot changes; the files on a card
    /// after those of the kernel.
    pub fn refresh_all(&mut self, facts: &mut Facts, hostname: &str) {
        self.sources = None;
        self.read_unannounced(facts);
        system::refresh(&self.root, facts, true);
        self.refresh_hosts(facts, hostname);
    }

    /// Closes all files if a mount changed, because the same paths can then lead to other files.
    /// Files are also closed if the mount table could not be read, and always below another root
    /// than `/`, because the kernel reports no change of its mounts.
    pub fn refresh_mounts(&mut self) {
        let is_current = |sources: &Sources| match (&sources.mounts, all_mounts()) {
            (Ok(mounts), Ok(current)) => self.root.is_real() && Rc::ptr_eq(mounts, &current),
            _ => false,
        };
        self.sources = self.sources.take().filter(is_current);
    }

    /// Reads the facts that change often, and those in the same files: memory, swap, huge pages,
    /// disk, threads, `--ready-when-exists`.
    pub fn refresh_usage(&mut self, facts: &mut Facts) {
        let root = &self.root;
        let sources = self.sources.get_or_insert_with(|| Sources::new(root));
        let sysinfo = root.sysinfo();
        let used = sources.working_set.read(root);
        sources.meminfo.refresh(root, sysinfo, used, facts);
        let (folder, mounts) = (&self.node_root_dir, &sources.mounts);
        let node_fs = sources.node_fs.read(root, folder, mounts, disk::ancestor);
        if !renew(&mut facts.node_fs, node_fs)
            && let Ok(Some(kept)) = &mut facts.node_fs
        {
            kept.is_old = true;
        }
        facts.pids = sources.threads.read(root);
        // If the time of this look is over, the lines of the last look are kept.
        if root.may_read().is_ok() {
            facts.unhealthy = self.unhealthy();
        }
    }

    /// Reads the facts that change rarely and that the kernel does not announce: os-release,
    /// etc/hosts, and the CPUs if another set is online. The next [`Host::refresh_usage`] reads the
    /// limit of threads and the totals of memory, and resolves `--root-dir`. What does not change
    /// before a reboot is read only if it is missing.
    pub fn refresh_unannounced(&mut self, facts: &mut Facts, hostname: &str) {
        self.read_unannounced(facts);
        if self.root_can_block() {
            system::refresh_kernel(&self.root, facts, false);
        } else {
            system::refresh(&self.root, facts, false);
            self.refresh_hosts(facts, hostname);
        }
    }

    fn refresh_hosts(&self, facts: &mut Facts, hostname: &str) {
        renew(&mut facts.network.hosts, network::hosts(&self.root, hostname));
    }

    fn read_unannounced(&mut self, facts: &mut Facts) {
        let root = &self.root;
        let sources = self.sources.get_or_insert_with(|| Sources::new(root));
        if !sources.root_can_block {
            sources.node_fs = disk::MeasuredPath::default();
            sources.image_fs = disk::MeasuredPath::default();
        }
        sources.meminfo.forget();
        sources.threads.forget();
        sources.online.refresh(root, facts);
    }

    /// Reads routes, interfaces and etc/hosts. A netlink socket announces their changes. Returns
    /// whether the look had time for routes and interfaces.
    pub fn refresh_network(&mut self, facts: &mut Facts, hostname: &str) -> bool {
        let is_reached = network::refresh(&self.root, &mut facts.network);
        if !self.root_can_block() {
            self.refresh_hosts(facts, hostname);
        }
        is_reached
    }

    /// Reads the sizes of the file system with the images of the container runtime in `folder`.
    pub fn image_fs(&mut self, folder: &str) -> Read<Option<FsStats>> {
        let root = &self.root;
        let sources = self.sources.get_or_insert_with(|| Sources::new(root));
        let (folder, mounts) = (Path::new(folder), &sources.mounts);
        sources.image_fs.read(root, folder, mounts, disk::mount_point)
    }

    /// One line for each missing path of `--ready-when-exists`. A path that cannot be resolved
    /// counts as missing. So does a path on a file system that can block, which is not touched.
    /// Cheaper than [`Host::refresh_usage`], for frequent calls.
    pub fn unhealthy(&self) -> Vec<String> {
        let line = |path: &PathBuf| {
            let cause = match guard::resolve(path).map(Resolved::found) {
                Ok(Ok(_)) => return None,
                Ok(Err(_)) => "does not exist".to_owned(),
                Err(error) => cause(&error).to_string(),
            };
            Some(format!("--ready-when-exists={}: {cause}", path.display()))
        };
        self.ready_when_exists.iter().filter_map(line).collect()
    }

    /// The host name, from `proc/sys/kernel/hostname`.
    pub fn hostname(&self) -> Read<String> {
        system::hostname(&self.root)
    }
}

/// All mounts in the table below `root`, in the kernel's order. The table is `proc/self/mountinfo`,
/// or `proc/mounts` if that is missing, as it may be below another root than `/`.
pub fn mounts(root: &HostRoot) -> Read<Vec<Mount>> {
    let table = |path: &str, parse: fn(&str) -> Option<Mount>| -> Read<Vec<Mount>> {
        let mut mounts = Vec::new();
        root.each_line(path, &mut |line| mounts.extend(parse(line)))?;
        Ok(mounts)
    };
    match table(MOUNTINFO, parse_mountinfo) {
        Err(unread) if unread.is_absent() => table("proc/mounts", parse_mounts),
        table => table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::facts::Unread;
    use crate::os::mounts::pretend;
    use crate::os::tree::Tree;

    /// Whether files that were just opened stay open at the next refresh.
    fn stay_open(host: &mut Host, change: impl FnOnce(&mut Sources)) -> bool {
        host.sources = Some(Sources::new(&host.root));
        change(host.sources.as_mut().unwrap());
        host.refresh_mounts();
        host.sources.is_some()
    }

    #[test]
    fn a_table_that_is_not_the_current_one_may_have_changed() {
        let mut host = Host::new(HostRoot::default(), "/");
        // Another process may mount something between two calls.
        assert!((0..100).any(|_| stay_open(&mut host, |_| {})));
        let unread = |sources: &mut Sources| {
            sources.mounts = Err(Unread::new(MOUNTINFO, "why"));
        };
        assert!(!stay_open(&mut host, unread));
        let mount = |_: &mut Sources| pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert!(!stay_open(&mut host, mount));
        assert_eq!(Sources::new(&host.root).mounts.unwrap().len(), 1);
    }

    #[test]
    fn below_another_root_a_change_is_never_excluded() {
        let tree = Tree::new("mounts-root");
        tree.write(MOUNTINFO, b"1 0 0:1 / / rw - ext4 /dev/root rw\n");
        let mut host = Host::new(HostRoot::new(tree.path()), "/");
        let table = mounts(&host.root).unwrap();
        assert_eq!(table.len(), 1);
        assert_ne!(Sources::new(&host.root).mounts.unwrap()[..], table);
        assert!(!stay_open(&mut host, |_| {}));
    }

    /// The folder of `pki`, `podcidr` and `boots` is also the one that is measured.
    #[test]
    fn a_relative_folder_is_below_the_working_directory() {
        let of = |root: HostRoot, folder: &str| Host::new(root, folder).node_root_dir;
        let below = std::env::current_dir().unwrap().join("src/host");
        assert_eq!(of(HostRoot::default(), "./src/host"), below);
        assert_eq!(of(HostRoot::default(), "/src"), Path::new("/src"));
        assert_eq!(of(HostRoot::new("/mnt"), "src"), Path::new("src"));
    }

    /// A Node that is registered again needs the values. A file system without a size, as /proc,
    /// must not become one whose capacity is missing.
    #[test]
    fn what_a_look_had_no_time_for_keeps_its_value_and_is_read_by_the_next_one() {
        for folder in ["/", "/proc"] {
            let mut host = Host::new(HostRoot::default(), folder);
            host.ready_when_exists = vec!["/no/such".into()];
            let mut facts = host.read("localhost");
            (facts.cpus, facts.machine_id) = (Ok(9999), Ok("uninitialized".to_owned()));
            let mut kept = facts.clone();
            let look = host.root.look_of(0);
            host.refresh_all(&mut facts, "localhost");
            assert!(!host.refresh_network(&mut facts, "localhost"));
            host.refresh_unannounced(&mut facts, "localhost");
            host.refresh_usage(&mut facts);
            drop(look);
            assert!(facts.working_set_bytes.as_ref().is_err_and(Unread::is_not_reached));
            assert!(facts.pids.as_ref().is_err_and(Unread::is_not_reached));
            kept.working_set_bytes.clone_from(&facts.working_set_bytes);
            kept.pids.clone_from(&facts.pids);
            if let Ok(Some(fs)) = &mut kept.node_fs {
                fs.is_old = true;
            }
            assert_eq!(facts, kept);
            assert!(host.refresh_network(&mut facts, "localhost"));
            host.refresh_unannounced(&mut facts, "localhost");
            host.refresh_usage(&mut facts);
            assert_ne!(facts.cpus, Ok(9999));
            assert!(facts.pids.is_ok() && facts.working_set_bytes.is_ok());
            assert!(!facts.node_fs.unwrap().is_some_and(|fs| fs.is_old));
        }
    }

    #[test]
    fn a_missing_path_is_unhealthy_and_a_path_on_a_mount_that_can_block_is_not_touched() {
        pretend("1 0 0:1 / / rw - nfs4 srv:/ rw\n2 1 0:2 / /proc/self rw - nfs4 srv:/ rw\n");
        let mut host = Host::new(HostRoot::default(), "/");
        host.ready_when_exists = vec!["/proc".into()];
        let mut facts = host.read("localhost");
        assert_eq!(facts.unhealthy, [] as [&str; 0]);
        host.ready_when_exists.extend(["/no/such".into(), "/proc/self/stat".into()]);
        host.refresh_usage(&mut facts);
        for unhealthy in [facts.unhealthy, host.unhealthy()] {
            assert_eq!(unhealthy.len(), 2);
            assert_eq!(unhealthy[0], "--ready-when-exists=/no/such: does not exist");
            assert!(unhealthy[1].contains("/proc/self is on nfs4, which can block for ever"));
        }
    }
}
