//! The check before every file access: refuses a path on a mount that can block for ever.
//!
//! The path is resolved one component at a time, links included. Each component is compared with
//! the mount table before the kernel is asked about it.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

pub use super::mount_table::own_mounts;
use super::mounts::{self, Mount};
use super::resolve_path::{Resolved, resolve_path};

/// File system types whose calls wait for a server, another process or an automounter.
const CAN_BLOCK: [&str; 20] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf",
];

/// Refuses a path on a file system that can block for ever. The path must be absolute and free of
/// links and `..`.
pub fn may_touch(path: &Path, mounts: &[Mount]) -> io::Result<()> {
    match mounts::over(mounts, path) {
        Some(mount) if can_block(&mount.fs_type) => Err(io::Error::other(format!(
            "{} is on {}, which can block for ever; choose a folder on a local file system",
            path.display(),
            mount.fs_type
        ))),
        _ => Ok(()),
    }
}

fn can_block(fs_type: &str) -> bool {
    CAN_BLOCK.contains(&fs_type) || fs_type.starts_with("fuse.")
}

/// Resolves `path` below `/`. `mounts` is the mount table of this process.
pub fn resolve_in(path: &Path, mounts: &[Mount]) -> io::Result<Resolved> {
    let path = std::path::absolute(path)?;
    let mut may_touch = |path: &Path| may_touch(path, mounts);
    may_touch(Path::new("/"))?;
    resolve_path(Path::new("/"), &path, &mut may_touch)
}

/// Resolves `path` below `/` with the current mount table.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    resolve_in(path, &own_mounts())
}

/// The file or folder that `path` leads to, free of links.
pub fn found(path: &Path) -> io::Result<PathBuf> {
    found_in(path, &own_mounts())
}

pub(crate) fn found_in(path: &Path, mounts: &[Mount]) -> io::Result<PathBuf> {
    match resolve_in(path, mounts)? {
        Resolved::Found(path) => Ok(path),
        Resolved::MissingBelow(_) => Err(Errno::ENOENT.into()),
    }
}

/// `path` with its folder resolved, for a call that does not follow the last link.
pub fn parent_resolved(path: &Path) -> io::Result<PathBuf> {
    parent_resolved_in(path, &own_mounts())
}

pub(super) fn parent_resolved_in(path: &Path, mounts: &[Mount]) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return found_in(&path, mounts);
    };
    let path = found_in(parent, mounts)?.join(name);
    // A file can be a mount point, too.
    may_touch(&path, mounts)?;
    Ok(path)
}

/// Whether `path` exists; a path that may not be touched counts as missing.
pub fn exists(path: &Path) -> bool {
    found(path).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::tree::Tree;

    fn mount(point: &Path, fs_type: &str) -> Mount {
        Mount {
            point: point.into(),
            fs_type: fs_type.into(),
        }
    }

    /// The tree has `local/file`, the mount point `net`, and links from `local` to `net`.
    fn tree_with_network_mount(name: &str) -> (Tree, [Mount; 2]) {
        let tree = Tree::empty(name);
        tree.write("local/file", b"");
        tree.write("net/file", b"");
        symlink("../net", tree.path().join("local/relative")).unwrap();
        symlink(tree.path().join("net"), tree.path().join("local/absolute")).unwrap();
        symlink("relative/file", tree.path().join("local/twice")).unwrap();
        let mounts = [
            mount(Path::new("/"), "ext4"),
            mount(&tree.path().join("net"), "nfs4"),
        ];
        (tree, mounts)
    }

    #[test]
    fn a_path_that_leads_onto_a_network_mount_is_refused() {
        let (tree, mounts) = tree_with_network_mount("guard-refused");
        for path in [
            "net",
            "net/file",
            "net/missing/file",
            "net/..",
            "local/../net/file",
            "local/relative",
            "local/relative/file",
            "local/absolute/missing",
            "local/twice",
        ] {
            let refused = resolve_in(&tree.path().join(path), &mounts).unwrap_err();
            let net = tree.path().join("net");
            let want = format!("{} is on nfs4, which can block for ever", net.display());
            assert!(refused.to_string().starts_with(&want), "{path}: {refused}");
        }
    }

    #[test]
    fn a_path_beside_a_network_mount_is_resolved() {
        let (tree, mounts) = tree_with_network_mount("guard-resolved");
        let at = |path: &str| tree.path().join(path);
        for path in ["local/file", "local/../local/./file"] {
            assert_eq!(found_in(&at(path), &mounts).unwrap(), at("local/file"));
        }
        assert_eq!(
            resolve_in(&at("local/missing/x"), &mounts).unwrap(),
            Resolved::MissingBelow(at("local"))
        );
        let missing = found_in(&at("network"), &mounts).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_last_component_is_compared_but_its_link_is_not_followed() {
        let (tree, mounts) = tree_with_network_mount("guard-parent");
        let at = |path: &str| tree.path().join(path);
        assert_eq!(
            parent_resolved_in(&at("local/relative"), &mounts).unwrap(),
            at("local/relative")
        );
        for path in ["net", "net/file", "local/relative/file"] {
            assert!(parent_resolved_in(&at(path), &mounts).is_err(), "{path}");
        }
    }

    #[test]
    fn a_relative_path_is_resolved_from_the_working_folder() {
        let folder = std::env::current_dir().unwrap();
        let mounts = [mount(&folder, "nfs4")];
        let name = Path::new("Cargo.toml");
        assert!(resolve_in(name, &mounts).is_err());
        assert!(parent_resolved_in(name, &mounts).is_err());
        assert_eq!(found_in(name, &[]).unwrap(), folder.join(name));
        assert_eq!(parent_resolved_in(name, &[]).unwrap(), folder.join(name));
    }

    #[test]
    fn a_root_on_a_network_is_allowed_and_a_mount_below_it_is_not() {
        let table = [
            mount(Path::new("/"), "nfs4"),
            mount(Path::new("/no-such-server"), "nfs4"),
        ];
        let mounts = mounts::without_root(table.to_vec());
        assert!(resolve_in(Path::new("/proc"), &table).is_err());
        assert!(resolve_in(Path::new("/proc"), &mounts).is_ok());
        assert!(resolve_in(Path::new("/no-such-server/x"), &mounts).is_err());
    }

    #[test]
    fn the_mount_table_of_this_process_allows_proc() {
        assert!(found(Path::new("/proc/self/mountinfo")).is_ok());
        assert!(exists(Path::new("/proc")));
        assert!(!exists(Path::new("/proc/no-such")));
    }
}
