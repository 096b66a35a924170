//! The guard before every file: refuses a path on a mount that could block for ever.
//!
//! The path is resolved one component at a time, links included, and each component is compared
//! with the mount table before the kernel is asked about it.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::mounts::{self, Mount};
use super::resolve_path::{Resolved, resolve_path};

/// Types whose calls wait for somebody else: a server, a process, an automounter.
const CAN_BLOCK: [&str; 20] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf",
];

/// Refuses what could block for ever.
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

/// Where `path` of this process's own tree leads. `mounts` is this process's own table.
pub fn resolve_in(path: &Path, mounts: &[Mount]) -> io::Result<Resolved> {
    let path = std::path::absolute(path)?;
    let mut may_touch = |path: &Path| may_touch(path, mounts);
    may_touch(Path::new("/"))?;
    resolve_path(Path::new("/"), &path, &mut may_touch)
}

/// Where `path` leads, by the mount table of now.
///
/// A root file system on a network is no reason to refuse: this program came from it. A table that
/// cannot be read refuses nothing.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    let mut mounts = mounts::own().unwrap_or_default();
    mounts.retain(|mount| mount.point != Path::new("/"));
    resolve_in(path, &mounts)
}

/// The file or folder that `path` leads to, free of links.
pub fn found(path: &Path) -> io::Result<PathBuf> {
    match resolve(path)? {
        Resolved::Found(path) => Ok(path),
        Resolved::MissingBelow(_) => Err(Errno::ENOENT.into()),
    }
}

/// `path` below its resolved folder, for a call that does not follow the last link.
pub fn parent_resolved(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(found(parent)?.join(name)),
        _ => found(path),
    }
}

/// Whether `path` exists; a path that may not be touched counts as missing.
pub fn exists(path: &Path) -> bool {
    found(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_mount_is_refused_and_a_network_root_is_not() {
        let mount = |point: &str, fs_type: &str| Mount {
            point: point.into(),
            fs_type: fs_type.into(),
        };
        let mounts = [mount("/", "ext4"), mount("/no-such-server", "nfs4")];
        let refused = resolve_in(Path::new("/no-such-server/pki"), &mounts).unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("/no-such-server is on nfs4, which can block for ever"),
            "{refused}"
        );
        assert!(resolve_in(Path::new("/proc/no-such"), &mounts).is_ok());
        assert!(resolve_in(Path::new("/proc"), &[mount("/", "nfs4")]).is_err());
        assert!(found(Path::new("/proc/self/mountinfo")).is_ok());
        assert!(!exists(Path::new("/proc/no-such")));
    }
}
