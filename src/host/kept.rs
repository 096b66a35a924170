//! What is kept between two reads of the facts: descriptors, texts, resolved paths.

use super::kept_file::KeptFile;
use super::kept_text::KeptText;
use super::memory::Meminfo;
use super::mounts::Mounts;
use super::root::HostRoot;
use super::{address, cgroup, cpu, disk, pids, system};
use crate::core::facts::Read;
use crate::files::read::{LARGE, SMALL};

/// What outlives a read of the facts. A new mount table replaces it as a whole.
#[derive(Debug)]
pub struct Kept {
    pub(super) mounts: Mounts,
    pub(super) meminfo: Meminfo,
    pub(super) threads: pids::Threads,
    pub(super) working_set: cgroup::WorkingSet,
    pub(super) node_fs: disk::NodeFs,
    pub(super) image_fs: disk::ImageFs,
    pub(super) machine_id: KeptText,
    pub(super) has_firmware_uuid: bool,
    pub(super) os_release: KeptText,
    pub(super) hosts: KeptText,
    pub(super) online: KeptFile,
    /// The text of `online` when the CPUs were last counted; `None` if it is missing or the mounts
    /// changed since.
    pub(super) online_cpus: Option<String>,
}

impl Kept {
    pub(super) fn new(root: &HostRoot) -> Self {
        let mounts = Mounts::read(root);
        let mode = cgroup::read(root, mounts.host.as_deref().unwrap_or_default());
        Self {
            mounts,
            meminfo: Meminfo::new(),
            threads: pids::Threads::default(),
            working_set: cgroup::WorkingSet::new(mode),
            node_fs: disk::NodeFs::default(),
            image_fs: disk::ImageFs::default(),
            machine_id: KeptText::new(system::MACHINE_ID, SMALL),
            has_firmware_uuid: true,
            os_release: KeptText::new(system::OS_RELEASE, SMALL),
            hosts: KeptText::new(address::HOSTS, LARGE),
            online: KeptFile::new(cpu::ONLINE),
            online_cpus: None,
        }
    }

    /// machineID and systemUUID.
    pub(super) fn identities(
        &mut self,
        root: &HostRoot,
        in_minute: bool,
    ) -> (Read<String>, Read<String>) {
        let machine_id = self.machine_id.read(root, in_minute);
        system::identities(root, machine_id, &mut self.has_firmware_uuid)
    }

    /// Whether a mount changed since the last call; true if that is unknown.
    pub fn mounts_may_have_changed(&self) -> bool {
        self.mounts.may_have_changed()
    }
}
