//! What the sandbox of `nodelet.service` hides from its process, and what it makes read-only there.
//! The mount table of the process tells both. Nothing is hidden while no process runs.

use std::path::Path;

use crate::agent::unit::mount_table;
use crate::host::disk;
use crate::kube::facts::Read;
use crate::kube::text::Fault;
use crate::os::mounts::{over, parse_mountinfo};
use crate::os::root::HostRoot;

/// `Err` if the agent runs and cannot see the file system of `path`.
pub(super) fn not_hidden(root: &HostRoot, path: &str) -> Read<()> {
    let table = mount_table(root)?;
    let table: Vec<_> = table.lines().filter_map(parse_mountinfo).collect();
    disk::not_hidden(Path::new(path), &table)
}

/// `Err` if the agent runs and the mount with `folder` is read-only for it. With
/// ProtectSystem=strict only the folders of StateDirectory= and RuntimeDirectory= are not. A table
/// that cannot be read says nothing.
pub(super) fn not_read_only(root: &HostRoot, folder: &Path) -> Result<(), Fault> {
    let table = mount_table(root).unwrap_or_default();
    let mounts: Vec<_> = table.lines().filter_map(parse_mountinfo).collect();
    // The options of the mount, not those of the file system.
    let is_writable = |line: &&str| {
        let options = line.split(' ').nth(5).unwrap_or_default();
        options.split(',').all(|option| option != "ro")
    };
    let mut writable = table.lines().filter(is_writable).filter_map(parse_mountinfo);
    match over(&mounts, folder) {
        // systemd may bind a mount over itself: two lines, and one of them is writable.
        Some(mount) if !writable.any(|other| other == *mount) => {
            let remedy = "remove --cert-dir from the flags, and mount a folder of a disk at \
                          /var/lib/private/nodelet";
            Err(Fault::new("ProtectSystem= of nodelet.service makes it read-only", remedy))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::facts::Unread;
    use crate::os::tree::Tree;

    /// A process of the unit.
    fn board() -> Tree {
        let tree = Tree::empty("check-mounts");
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"7\n");
        tree.write("proc/7/cmdline", b"/usr/bin/nodelet\0");
        tree
    }

    #[test]
    fn what_the_process_cannot_see_is_not_seen_for_it() {
        let (tree, home) = (board(), "/home/me/images");
        let root = HostRoot::new(tree.path());
        let unread = not_hidden(&root, home).unwrap_err();
        assert_eq!(unread, Unread::new("proc/7/mountinfo", "no such file or directory"));
        let table =
            "1 0 8:1 / / ro - ext4 a rw\n2 1 0:2 /systemd/inaccessible/dir /home ro - tmpfs b rw\n";
        tree.write("proc/7/mountinfo", table.as_bytes());
        let hidden = not_hidden(&root, home).unwrap_err().to_string();
        assert!(
            hidden.starts_with("statvfs /home/me/images: nodelet.service hides it"),
            "{hidden}"
        );
        assert_eq!(not_hidden(&root, "/var/lib/containerd"), Ok(()));
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"");
        assert_eq!(not_hidden(&root, home), Ok(()), "it does not run");
    }

    #[test]
    fn only_the_state_of_the_unit_is_writable_for_its_process() {
        let tree = board();
        let root = HostRoot::new(tree.path());
        let of = |folder: &str| not_read_only(&root, Path::new(folder)).is_ok();
        assert!(of("/data/pki"), "no table");
        let table = "1 0 8:1 / / ro,relatime shared:1 - ext4 a rw\n\
                     2 1 8:2 / /data ro,nosuid - ext4 b rw\n\
                     3 1 8:3 / /var/lib/private/nodelet ro - ext4 c rw\n\
                     4 3 8:3 / /var/lib/private/nodelet rw - ext4 c rw\n";
        tree.write("proc/7/mountinfo", table.as_bytes());
        assert!(of("/var/lib/private/nodelet/pki"));
        assert!(!of("/data/pki") && !of("/root/pki"));
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"");
        assert!(of("/data/pki"), "it does not run");
    }
}
