//! The facts of the kernel: one file per subsystem, each with a pure `parse` and a `read` below a
//! [`HostRoot`]. An unreadable file makes only its own fact unread.

pub mod address;
pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod fact_cache;
pub mod health;
pub mod hugepages;
pub mod memory;
pub mod mounts;
pub mod pids;
pub mod pressure;
mod root;
pub mod routes;
pub mod system;

use std::path::PathBuf;

pub use root::HostRoot;

use crate::core::facts::{Facts, FileSystem, Memory, Pids, Read};
use crate::files::mounts::Mount;

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

/// The mount tables: they select the cgroup files, and show which paths can block.
#[derive(Debug)]
pub struct Mounts {
    /// Opened before the table was read, so that no change is missed.
    watch: Option<mounts::Watch>,
    below_root: Read<Vec<Mount>>,
    /// This process's table, if the root is not `/`.
    own: Option<Read<Vec<Mount>>>,
}

impl Mounts {
    fn read(root: &HostRoot) -> Self {
        let is_real = root.is_real();
        Self {
            watch: is_real.then(|| mounts::Watch::new(root)).flatten(),
            below_root: mounts::read(root),
            own: (!is_real).then(|| mounts::read(&HostRoot::default())),
        }
    }

    /// Whether a mount changed since the last call; true if that is unknown.
    pub fn may_have_changed(&self) -> bool {
        self.watch.as_ref().is_none_or(mounts::Watch::has_changed)
    }

    /// This process's table: its mounts decide which paths can block.
    fn own(&self) -> &Read<Vec<Mount>> {
        self.own.as_ref().unwrap_or(&self.below_root)
    }
}

/// The part of [`Facts`] that is read for each status.
struct Usage {
    memory: Read<Memory>,
    has_huge_pages: bool,
    working_set_bytes: Read<u64>,
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

    /// Reads all facts, and returns the mounts for [`Host::refresh`].
    pub fn read(&self, hostname: &str) -> (Mounts, Facts) {
        let root = &self.root;
        let mounts = Mounts::read(root);
        let Usage {
            memory,
            working_set_bytes,
            node_fs,
            unhealthy,
            ..
        } = self.usage(&mounts);
        let (machine_id, system_uuid) = system::identities(root);
        let facts = Facts {
            cpus: cpu::read(root),
            memory,
            working_set_bytes,
            huge_pages: hugepages::read(root),
            node_fs,
            pids: pids::read(root),
            machine_id,
            system_uuid,
            boot_id: system::boot_id(root),
            kernel_version: system::kernel_version(root),
            os_image: system::os_image(root),
            network: address::read(root, hostname),
            unhealthy,
            runtime: None,
            image_fs: None,
        };
        (mounts, facts)
    }

    /// Reads the facts that change often, and those in the same files: memory, swap, huge pages,
    /// disk, threads, `--ready-when-exists`. Identities, CPUs, limits and the network are kept.
    pub fn refresh(&self, mounts: &mut Mounts, facts: &mut Facts) {
        if mounts.may_have_changed() {
            *mounts = Mounts::read(&self.root);
        }
        let usage = self.usage(mounts);
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
        facts.pids = match &facts.pids {
            Ok(pids) => pids::running(&self.root).map(|running| Pids { running, ..*pids }),
            Err(_) => pids::read(&self.root),
        };
    }

    fn usage(&self, mounts: &Mounts) -> Usage {
        let root = &self.root;
        let meminfo = memory::text(root);
        let own_mounts = mounts.own();
        let mode = cgroup::read(root, mounts.below_root.as_deref().unwrap_or_default());
        Usage {
            memory: meminfo
                .as_deref()
                .map_err(Clone::clone)
                .and_then(memory::parse),
            has_huge_pages: meminfo.as_deref().is_ok_and(memory::has_huge_pages),
            working_set_bytes: cgroup::working_set(root, mode, &meminfo),
            node_fs: own_mounts
                .as_deref()
                .map_err(Clone::clone)
                .and_then(|mounts| disk::read(root, &self.node_root_dir, mounts)),
            unhealthy: health::read(
                &self.ready_when_exists,
                own_mounts.as_deref().unwrap_or_default(),
            ),
        }
    }

    /// One line for each missing path of `--ready-when-exists`. Cheaper than [`Host::refresh`], for
    /// frequent calls.
    pub fn unhealthy(&self) -> Vec<String> {
        let mounts = mounts::read(&HostRoot::default());
        health::read(
            &self.ready_when_exists,
            mounts.as_deref().unwrap_or_default(),
        )
    }

    /// The host name, from `proc/sys/kernel/hostname`.
    pub fn hostname(&self) -> Read<String> {
        system::hostname(&self.root)
    }
}
