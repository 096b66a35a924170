//! The mount table of this process, read again only after a change.
//!
//! `guard` needs the table before every file access. To read and parse it takes 200,000 instructions
//! on arm64, to ask the kernel for a change 1,200.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::mounts::{MOUNTINFO, Mount, parse_mountinfo, without_root};
use super::open::{LARGE, open, whole_from_start};

/// Reports changes of this process's mount table: poll(2) on mountinfo, see proc_pid_mountinfo(5).
#[derive(Debug)]
pub struct Watch(File);

impl Watch {
    /// Reports changes from now on. The path is not checked: procfs does not block.
    pub fn new() -> io::Result<Self> {
        open(&Path::new("/").join(MOUNTINFO)).map(Self)
    }

    /// Whether a mount changed since the last call; true if that is unknown.
    pub fn has_changed(&self) -> bool {
        let mut file = [PollFd::new(self.0.as_fd(), PollFlags::POLLPRI)];
        poll(&mut file, PollTimeout::ZERO) != Ok(0)
    }
}

#[derive(Debug)]
struct Table {
    /// Opened before the table was read, so that no change is missed.
    watch: Watch,
    mounts: Rc<[Mount]>,
}

thread_local! {
    /// A copy of a kernel file, not a state: no caller can tell it from a new read.
    static KEPT: Cell<Option<Table>> = const { Cell::new(None) };
}

/// The current mounts but that of `/`. Empty if the table cannot be read: then nothing is refused.
pub(super) fn below_root() -> Rc<[Mount]> {
    let kept = KEPT.take().filter(|table| !table.watch.has_changed());
    let table = kept.or_else(|| read().ok());
    let mounts = table.as_ref().map(|table| table.mounts.clone());
    KEPT.set(table);
    mounts.unwrap_or_default()
}

fn read() -> io::Result<Table> {
    let watch = Watch::new()?;
    let bytes = whole_from_start(&watch.0, LARGE)?;
    let mounts = without_root(parse_mountinfo(&String::from_utf8_lossy(&bytes)));
    Ok(Table {
        watch,
        mounts: mounts.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_once_while_no_mount_changes() {
        // Another process may mount something between two calls.
        let is_kept = || Rc::ptr_eq(&below_root(), &below_root());
        assert!((0..100).any(|_| is_kept()));
        assert!(
            below_root()
                .iter()
                .any(|mount| mount.point == Path::new("/proc"))
        );
    }
}
