//! The mount table, from `proc/self/mountinfo`, or from `proc/mounts` if that is missing.

use std::fs::File;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::core::facts::Read;
use crate::files::mounts::{MOUNTINFO, Mount, parse_mountinfo, parse_mounts};
use crate::files::read::LARGE;

use super::root::{HostRoot, unread};

const MOUNTS: &str = "proc/mounts";

/// Reports changes of this process's mount table: poll(2) on mountinfo, see proc_pid_mountinfo(5).
#[derive(Debug)]
pub struct Watch(File);

impl Watch {
    /// Reports changes from now on.
    pub(super) fn new(root: &HostRoot) -> Option<Self> {
        root.open(MOUNTINFO).ok().map(Self)
    }

    pub(super) fn has_changed(&self) -> bool {
        let mut file = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        poll(&mut file, PollTimeout::ZERO) != Ok(0)
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
