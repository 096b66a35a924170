//! The mount table, from `proc/self/mountinfo`. Below another root than `/`, from `proc/mounts` if
//! that is missing.

use std::rc::Rc;

use crate::kube::facts::Read;
use crate::os::mounts::{MOUNTINFO, Mount, all_mounts, parse_mountinfo, parse_mounts};
use crate::os::root::{HostRoot, unread};

const MOUNTS: &str = "proc/mounts";

/// The mount tables when the facts were read.
#[derive(Debug)]
pub(super) struct Mounts {
    /// That of the host root: it selects the cgroup files.
    pub(super) host: Read<Rc<[Mount]>>,
    /// That of this process, with its root: it shows which paths can block.
    pub(super) own: Read<Rc<[Mount]>>,
}

impl Mounts {
    pub(super) fn read(root: &HostRoot) -> Self {
        let own = all_mounts().map_err(|error| unread(MOUNTINFO, &error));
        let host = if root.is_real() { own.clone() } else { read(root).map(Into::into) };
        Self { host, own }
    }

    /// Whether a mount changed since the table was read. True if the table could not be read, and
    /// below another root than `/`, where the kernel reports no change.
    pub(super) fn may_have_changed(&self) -> bool {
        match (&self.host, all_mounts()) {
            (Ok(host), Ok(current)) => !Rc::ptr_eq(host, &current),
            _ => true,
        }
    }
}

/// All mounts in the table below `root`, in the kernel's order.
pub fn read(root: &HostRoot) -> Read<Vec<Mount>> {
    match table(root, MOUNTINFO, parse_mountinfo) {
        Err(unread) if unread.absent => table(root, MOUNTS, parse_mounts),
        table => table,
    }
}

fn table(root: &HostRoot, path: &str, parse: fn(&str) -> Option<Mount>) -> Read<Vec<Mount>> {
    let mut mounts = Vec::new();
    root.each_line(path, &mut |line| mounts.extend(parse(line)))?;
    Ok(mounts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::facts::Unread;
    use crate::os::mounts::pretend;
    use crate::os::tree::Tree;

    #[test]
    fn a_table_that_is_not_the_current_one_may_have_changed() {
        let real = HostRoot::default();
        // Another process may mount something between two calls.
        let is_same = || !Mounts::read(&real).may_have_changed();
        assert!((0..100).any(|_| is_same()));
        let mut unread = Mounts::read(&real);
        unread.host = Err(Unread::new(MOUNTINFO, "why"));
        assert!(unread.may_have_changed());
        let before = Mounts::read(&real);
        pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert!(before.may_have_changed());
        assert_eq!(Mounts::read(&real).host.unwrap().len(), 1);
    }

    #[test]
    fn below_another_root_a_change_is_never_excluded() {
        let tree = Tree::new("mounts-root");
        tree.write(MOUNTINFO, b"1 0 0:1 / / rw - ext4 /dev/root rw\n");
        let mounts = Mounts::read(&HostRoot::new(tree.path()));
        assert_eq!(mounts.host.as_ref().map(|table| table.len()), Ok(1));
        assert_ne!(mounts.host, mounts.own);
        assert!(mounts.may_have_changed());
    }
}
