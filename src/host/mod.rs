//! The facts of the kernel: one file per subsystem, each with a pure `parse` and a `read` below a
//! [`HostRoot`]. An unreadable file makes only its own fact unread.
//!
//! [`Host::read`] reads all of them. The functions below it read those that change for a status,
//! that change unannounced, and that the kernel announces; [`fact_cache`] calls them.

pub mod address;
pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod fact_cache;
pub mod health;
pub mod hugepages;
mod kept_file;
pub mod memory;
pub mod mounts;
pub mod pids;
pub mod pressure;
pub mod problems;
mod root;
pub mod routes;
mod scan;
pub mod system;

use std::path::PathBuf;

pub use root::HostRoot;

use self::kept_file::KeptFile;
use self::memory::Meminfo;
use self::mounts::Mounts;
use crate::core::facts::{Facts, FileSystem, Memory, Network, Pids, Read};
use crate::files::guard;

/// The sources of the facts about one machine.
#[derive(Clone, Debug)]
pub struct Host {
    /// The folder of /proc, /sys and /etc.
    pub root: HostRoot,
    /// `--root-dir`, below that root; it need not exist.
    pub node_root_dir: PathBuf,
    /// `--ready-when-exists`.
    pub ready_when_exists: Vec<PathBuf>,
}

/// What outlives a read of the facts. A new mount table replaces it as a whole.
#[derive(Debug)]
pub struct Kept {
    mounts: Mounts,
    meminfo: Meminfo,
    threads: pids::Threads,
    working_set: cgroup::WorkingSet,
    node_fs: disk::NodeFs,
    image_fs: disk::ImageFs,
    has_firmware_uuid: bool,
    online: KeptFile,
    /// The text of `online` when the CPUs were last counted; `None` if it is missing or the mounts
    /// changed since.
    online_cpus: Option<String>,
}

impl Kept {
    fn new(root: &HostRoot) -> Self {
        let mounts = Mounts::read(root);
        let mode = cgroup::read(root, mounts.host.as_deref().unwrap_or_default());
        Self {
            mounts,
            meminfo: Meminfo::new(),
            threads: pids::Threads::default(),
            working_set: cgroup::WorkingSet::new(mode),
            node_fs: disk::NodeFs::default(),
            image_fs: disk::ImageFs::default(),
            has_firmware_uuid: true,
            online: KeptFile::new(cpu::ONLINE),
            online_cpus: None,
        }
    }

    /// Whether a mount changed since the last call; true if that is unknown.
    pub fn mounts_may_have_changed(&self) -> bool {
        self.mounts.may_have_changed()
    }
}

/// The part of [`Facts`] that is read for each status.
struct Usage {
    memory: Read<Memory>,
    has_huge_pages: bool,
    working_set_bytes: Read<u64>,
    /// By sysinfo(2), the lowest 16 bits.
    counted_threads: Option<u16>,
    node_fs: Read<FileSystem>,
    unhealthy: Vec<String>,
}

impl Host {
    /// A machine without `--ready-when-exists`.
    pub fn new(root: HostRoot, node_root_dir: impl Into<PathBuf>) -> Self {
        Self {
            root,
            node_root_dir: node_root_dir.into(),
            ready_when_exists: Vec::new(),
        }
    }

    /// Reads all facts, each file once.
    pub fn facts(&self, hostname: &str) -> Facts {
        self.read(hostname).1
    }

    /// Reads all facts, and returns what the other reads keep.
    pub fn read(&self, hostname: &str) -> (Kept, Facts) {
        let root = &self.root;
        let mut kept = Kept::new(root);
        let Usage {
            memory,
            working_set_bytes,
            counted_threads,
            node_fs,
            unhealthy,
            ..
        } = self.usage(&mut kept);
        let online_cpus = kept.online.text(root);
        let (machine_id, system_uuid) = system::identities(root, &mut kept.has_firmware_uuid);
        let facts = Facts {
            cpus: cpu::read(root, &online_cpus),
            memory,
            working_set_bytes,
            huge_pages: hugepages::read(root),
            node_fs,
            pids: kept.threads.read(root, counted_threads),
            machine_id,
            system_uuid,
            boot_id: system::boot_id(root),
            kernel_version: system::kernel_version(root),
            os_image: system::os_image(root),
            network: self.network(hostname),
            unhealthy,
            runtime: None,
            image_fs: None,
        };
        kept.online_cpus = online_cpus.ok();
        (kept, facts)
    }

    /// Forgets what is kept if a mount changed: the other refreshes can read other files then.
    pub fn refresh_mounts(&self, kept: &mut Kept) {
        if kept.mounts_may_have_changed() {
            *kept = Kept::new(&self.root);
        }
    }

    /// Reads the facts that change often, and those in the same files: memory, swap, huge pages,
    /// disk, threads, `--ready-when-exists`.
    pub fn refresh_usage(&self, kept: &mut Kept, facts: &mut Facts) {
        let usage = self.usage(kept);
        let had_huge_pages = match &facts.huge_pages {
            Ok(sizes) => sizes.iter().any(|size| size.count > 0),
            Err(_) => true,
        };
        if had_huge_pages || usage.has_huge_pages {
            facts.huge_pages = hugepages::read(&self.root);
        }
        facts.memory = usage.memory;
        facts.working_set_bytes = usage.working_set_bytes;
        facts.node_fs = usage.node_fs;
        facts.unhealthy = usage.unhealthy;
        let (root, counted) = (&self.root, usage.counted_threads);
        facts.pids = match facts.pids {
            Ok(Pids { max, .. }) => {
                let running = kept.threads.running(root, counted, max);
                running.map(|running| Pids { max, running })
            }
            Err(_) => kept.threads.read(root, counted),
        };
    }

    /// Reads the facts that change rarely and that the kernel does not announce: identities,
    /// os-release, the limit of threads, etc/hosts, and the CPUs if another set is online. The
    /// next [`Host::refresh_usage`] resolves `--root-dir` anew. What cannot change before a reboot
    /// is read only if it is missing.
    pub fn refresh_unannounced(&self, kept: &mut Kept, facts: &mut Facts, hostname: &str) {
        let root = &self.root;
        kept.node_fs = disk::NodeFs::default();
        kept.image_fs = disk::ImageFs::default();
        kept.meminfo.forget();
        kept.threads.forget();
        let online_cpus = kept.online.text(root);
        if facts.cpus.is_err() || online_cpus.as_ref().ok() != kept.online_cpus.as_ref() {
            facts.cpus = cpu::read(root, &online_cpus);
            kept.online_cpus = online_cpus.ok();
        }
        (facts.machine_id, facts.system_uuid) =
            system::identities(root, &mut kept.has_firmware_uuid);
        facts.os_image = system::os_image(root);
        if facts.boot_id.is_err() {
            facts.boot_id = system::boot_id(root);
        }
        if facts.kernel_version.is_err() {
            facts.kernel_version = system::kernel_version(root);
        }
        if let Ok(pids) = facts.pids {
            facts.pids = kept.threads.max(root).map(|max| Pids { max, ..pids });
        }
        facts.network.hosts = address::hosts(root, hostname);
    }

    /// Reads routes, interfaces and etc/hosts. A netlink socket announces their changes.
    pub fn network(&self, hostname: &str) -> Network {
        address::read(&self.root, hostname)
    }

    /// Reads the sizes of the file system with the images of the container runtime in `folder`.
    pub fn image_fs(&self, kept: &mut Kept, folder: &str) -> Read<FileSystem> {
        kept.image_fs.read(&self.root, folder, &kept.mounts.own)
    }

    fn usage(&self, kept: &mut Kept) -> Usage {
        let root = &self.root;
        let from_cgroup = kept.working_set.read(root);
        let sysinfo = root.sysinfo();
        let meminfo = kept.meminfo.values(root, sysinfo, from_cgroup.is_none());
        Usage {
            memory: meminfo.memory.clone(),
            has_huge_pages: meminfo.has_huge_pages,
            working_set_bytes: match from_cgroup {
                Some(bytes) => Ok(bytes),
                None => meminfo.working_set_bytes.clone(),
            },
            counted_threads: sysinfo.map(|info| info.process_count()),
            node_fs: kept
                .node_fs
                .read(root, &self.node_root_dir, &kept.mounts.own),
            unhealthy: self.unhealthy(),
        }
    }

    /// One line for each missing path of `--ready-when-exists`. Cheaper than
    /// [`Host::refresh_usage`], for frequent calls.
    pub fn unhealthy(&self) -> Vec<String> {
        // Without such paths the kernel is not asked whether its mount table changed.
        match self.ready_when_exists.as_slice() {
            [] => Vec::new(),
            paths => health::read(paths, &guard::own_mounts()),
        }
    }

    /// The file `boots` in `--root-dir`, below the root.
    pub fn boots(&self) -> PathBuf {
        let folder = &self.node_root_dir;
        let folder = match self.root.is_real() {
            true => folder.clone(),
            // An absolute path would replace the root in `join`.
            false => {
                let below = folder.strip_prefix("/").unwrap_or(folder);
                self.root.path().join(below)
            }
        };
        folder.join("boots")
    }

    /// The host name, from `proc/sys/kernel/hostname`.
    pub fn hostname(&self) -> Read<String> {
        system::hostname(&self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::mount_table::pretend;

    #[test]
    fn on_a_root_that_can_block_health_is_read_and_on_a_mount_that_can_block_it_is_not() {
        pretend("1 0 0:1 / / rw - nfs4 srv:/ rw\n2 1 0:2 / /proc/self rw - nfs4 srv:/ rw\n");
        let mut host = Host::new(HostRoot::default(), "/");
        host.ready_when_exists = vec!["/proc".into()];
        let (mut kept, mut facts) = host.read("localhost");
        assert_eq!(facts.unhealthy, [] as [&str; 0]);
        host.ready_when_exists.push("/proc/self/stat".into());
        host.refresh_usage(&mut kept, &mut facts);
        for unhealthy in [facts.unhealthy, host.unhealthy()] {
            assert_eq!(unhealthy.len(), 1);
            assert!(
                unhealthy[0].contains("/proc/self is on nfs4, which can block"),
                "{unhealthy:?}"
            );
        }
    }
}
