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
mod kept;
mod kept_file;
mod kept_text;
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

pub use kept::Kept;
pub use root::HostRoot;

use crate::config::thresholds::Threshold;
use crate::core::eviction;
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
    /// The eviction thresholds: while so much RAM is free that none for memory can be met, the memory
    /// in use is not read. `None`: it is always read.
    pub thresholds: Option<Vec<Threshold>>,
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
    /// A machine without `--ready-when-exists` and without thresholds.
    pub fn new(root: HostRoot, node_root_dir: impl Into<PathBuf>) -> Self {
        Self {
            root,
            node_root_dir: node_root_dir.into(),
            ready_when_exists: Vec::new(),
            thresholds: None,
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
        } = self.usage(&mut kept, false);
        let online_cpus = kept.online.text(root);
        let (machine_id, system_uuid) = kept.identities(root, false);
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
            os_image: system::os_image(root, kept.os_release.read(root, false)),
            network: self.network(&mut kept, hostname),
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
        let usage = self.usage(kept, facts.working_set_bytes.is_ok());
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
    /// next [`Host::refresh_usage`] resolves `--root-dir` anew. What cannot change before a reboot is
    /// read only if it is missing.
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
        (facts.machine_id, facts.system_uuid) = kept.identities(root, true);
        facts.os_image = system::os_image(root, kept.os_release.read(root, true));
        if facts.boot_id.is_err() {
            facts.boot_id = system::boot_id(root);
        }
        if facts.kernel_version.is_err() {
            facts.kernel_version = system::kernel_version(root);
        }
        if let Ok(pids) = facts.pids {
            facts.pids = kept.threads.max(root).map(|max| Pids { max, ..pids });
        }
        facts.network.hosts = address::hosts(kept.hosts.read(root, true), hostname);
    }

    /// Reads routes, interfaces and etc/hosts. A netlink socket announces their changes.
    pub fn network(&self, kept: &mut Kept, hostname: &str) -> Network {
        let hosts = address::hosts(kept.hosts.read(&self.root, false), hostname);
        address::read(&self.root, hosts)
    }

    /// Reads the sizes of the file system with the images of the container runtime in `folder`.
    pub fn image_fs(&self, kept: &mut Kept, folder: &str) -> Read<FileSystem> {
        kept.image_fs.read(&self.root, folder, &kept.mounts.own)
    }

    /// `was_read`: the last read of the memory in use succeeded. One that fails is repeated each
    /// time, so that its error stays.
    fn usage(&self, kept: &mut Kept, was_read: bool) -> Usage {
        let root = &self.root;
        let sysinfo = root.sysinfo();
        let thresholds = self.thresholds.as_ref().filter(|_| was_read);
        let plenty = thresholds.and_then(|thresholds| {
            let (unused, total) = kept.meminfo.unused(root, sysinfo)?;
            eviction::is_plenty(thresholds, unused, total).then(|| total.saturating_sub(unused))
        });
        let used = plenty.or_else(|| kept.working_set.read(root));
        let meminfo = kept.meminfo.values(root, sysinfo, used.is_none());
        Usage {
            memory: meminfo.memory.clone(),
            has_huge_pages: meminfo.has_huge_pages,
            working_set_bytes: match used {
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
    use super::kept_file::KeptFile;
    use super::*;
    use crate::config::thresholds::{Amount, Signal};
    use crate::core::facts::Unread;
    use crate::files::mount_table::pretend;
    use support::skip::optional;

    #[test]
    fn memory_in_use_is_read_if_little_is_free_and_after_an_error() {
        let mut host = Host::new(HostRoot::default(), "/");
        let (mut kept, mut facts) = host.read("localhost");
        host.thresholds = Some(Vec::new());
        if kept
            .meminfo
            .unused(&host.root, host.root.sysinfo())
            .is_none()
        {
            return optional("sysinfo(2) and /proc/meminfo have different totals here");
        }
        // Read as the usage of v1, this file is less than 5 MB.
        let marker = "proc/sys/kernel/pid_max";
        kept.working_set = cgroup::WorkingSet::V1 {
            usage: KeptFile::new(marker),
            stat: KeptFile::new("proc/loadavg"),
        };
        let text = host.root.text(marker, 99).unwrap();
        let marker: Read<u64> = Ok(text.trim().parse().unwrap());
        let read = |host: &Host, kept: &mut Kept, facts: &mut Facts| {
            host.refresh_usage(kept, facts);
            facts.working_set_bytes == marker
        };
        assert!(!read(&host, &mut kept, &mut facts));
        let used = *facts.working_set_bytes.as_ref().unwrap();
        let total = facts.memory.as_ref().unwrap().total_bytes;
        assert!(5 << 20 < used && used < total, "{used} of {total}");
        facts.working_set_bytes = Err(Unread::new("file", "why"));
        assert!(read(&host, &mut kept, &mut facts));
        assert!(!read(&host, &mut kept, &mut facts));
        // The totals are read anew, and compared with those of sysinfo(2).
        host.refresh_unannounced(&mut kept, &mut facts, "localhost");
        assert!(!read(&host, &mut kept, &mut facts));
        let all = Amount::Percentage(1.0);
        for thresholds in [
            Some(vec![Threshold::hard(Signal::MemoryAvailable, all)]),
            None,
        ] {
            host.thresholds = thresholds;
            assert!(read(&host, &mut kept, &mut facts));
        }
    }

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
