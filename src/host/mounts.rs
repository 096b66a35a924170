//! The mount table, from `proc/self/mountinfo`, or from `proc/mounts` if that is missing.

use crate::core::facts::Read;
use crate::files::mount_table::Watch;
use crate::files::mounts::{MOUNTINFO, Mount, parse_mountinfo, parse_mounts};
use crate::files::read::LARGE;

use super::root::{HostRoot, unread};

const MOUNTS: &str = "proc/mounts";

/// The mount tables: they select the cgroup files, and show which paths can block.
#[derive(Debug)]
pub(super) struct Mounts {
    /// Opened before the table was read, so that no change is missed.
    watch: Option<Watch>,
    /// The table below the root.
    pub(super) below_root: Read<Vec<Mount>>,
    /// This process's table, if the root is not `/`.
    own: Option<Read<Vec<Mount>>>,
}

impl Mounts {
    pub(super) fn read(root: &HostRoot) -> Self {
        let is_real = root.is_real();
        Self {
            watch: is_real.then(Watch::new).and_then(Result::ok),
            below_root: read(root),
            own: (!is_real).then(|| read(&HostRoot::default())),
        }
    }

    /// Whether a mount changed since the last call; true if that is unknown, or if the table could
    /// not be read.
    pub(super) fn may_have_changed(&self) -> bool {
        self.below_root.is_err() || self.watch.as_ref().is_none_or(Watch::has_changed)
    }

    /// This process's table: its mounts decide which paths can block.
    pub(super) fn own(&self) -> &Read<Vec<Mount>> {
        self.own.as_ref().unwrap_or(&self.below_root)
    }
}

/// All mounts in the table below `root`, in the kernel's order.
pub fn read(root: &HostRoot) -> Read<Vec<Mount>> {
    match table(root, MOUNTINFO, parse_mountinfo) {
        Err(unread) if unread.absent => table(root, MOUNTS, parse_mounts),
        table => table,
    }
}

fn table(root: &HostRoot, path: &str, parse: fn(&str) -> Vec<Mount>) -> Read<Vec<Mount>> {
    match root.bytes(path, LARGE) {
        Ok(bytes) => Ok(parse(&String::from_utf8_lossy(&bytes))),
        Err(error) => Err(unread(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::facts::Unread;

    #[test]
    fn a_table_that_was_not_read_and_one_without_a_watch_may_have_changed() {
        let mounts = || Mounts::read(&HostRoot::default());
        assert!(!mounts().may_have_changed());
        let mut unread = mounts();
        unread.below_root = Err(Unread::new(MOUNTINFO, "why"));
        assert!(unread.may_have_changed());
        let mut unwatched = mounts();
        unwatched.watch = None;
        assert!(unwatched.may_have_changed());
    }
}
