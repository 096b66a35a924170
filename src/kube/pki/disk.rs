//! Changes to files that survive a power cut, in operations that can be counted.
//!
//! A change is a list of operations. Each leaves what was there before or what comes
//! after, also where the power fails in the middle of it, or where what was not yet
//! synced is lost in any order: the tests let it fail at each.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use zeroize::Zeroizing;

use crate::kube::file;

/// One change to a folder.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Op {
    /// Makes a folder, 0755.
    Folder(PathBuf),
    /// Writes a file, 0600, and waits until its content is on the disk.
    Write(PathBuf, Zeroizing<Vec<u8>>),
    /// Makes a symbolic link: its target, then where it is.
    Link(PathBuf, PathBuf),
    /// From, to; what is there is replaced.
    Rename(PathBuf, PathBuf),
    /// Removes a file or a link, if it is there.
    Remove(PathBuf),
    /// Waits until the names in a folder are on the disk.
    Sync(PathBuf),
}

/// Without the content, which is a key.
impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "Folder({path:?})"),
            Self::Write(path, _) => write!(f, "Write({path:?})"),
            Self::Link(target, path) => write!(f, "Link({target:?}, {path:?})"),
            Self::Rename(from, to) => write!(f, "Rename({from:?}, {to:?})"),
            Self::Remove(path) => write!(f, "Remove({path:?})"),
            Self::Sync(path) => write!(f, "Sync({path:?})"),
        }
    }
}

/// What carries operations out; in a test, until the power fails.
#[derive(Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) done: Vec<Op>,
    #[cfg(test)]
    pub(super) power: Option<usize>,
}

impl Disk {
    /// All of them, in order, or none after the first that fails.
    pub(super) fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), String> {
        for op in ops {
            #[cfg(test)]
            if self.power == Some(self.done.len()) {
                return Err("the power failed".into());
            }
            op.carry_out()?;
            #[cfg(test)]
            self.done.push(op);
        }
        Ok(())
    }
}

impl Op {
    /// The error names the path.
    pub(super) fn carry_out(&self) -> Result<(), String> {
        let (path, result) = match self {
            Self::Folder(path) => (path, DirBuilder::new().mode(0o755).create(path)),
            Self::Write(path, content) => (path, write(path, content)),
            Self::Link(target, path) => (path, symlink(target, path)),
            Self::Rename(from, to) => (to, fs::rename(from, to)),
            Self::Remove(path) => (path, fs::remove_file(path)),
            Self::Sync(path) => (path, fs::File::open(path).and_then(|f| f.sync_all())),
        };
        match (self, result) {
            (Self::Remove(_), Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            (_, result) => result.map_err(|e| format!("{}: {}", path.display(), file::cause(&e))),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    // What an earlier attempt left behind may be anything.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes a folder where it is missing, with those above it.
pub(super) fn folder(path: &Path) -> Vec<Op> {
    let missing = path.ancestors().take_while(|path| !path.is_dir());
    let missing: Vec<&Path> = missing.filter(|p| !p.as_os_str().is_empty()).collect();
    let make = |path: &&Path| [Op::Folder(path.to_path_buf()), Op::Sync(parent(path))];
    missing.iter().rev().flat_map(make).collect()
}

/// Replaces a file, or makes it; its folder is there.
pub(super) fn replace(path: &Path, content: Vec<u8>) -> Vec<Op> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    vec![
        Op::Write(new.clone().into(), Zeroizing::new(content)),
        Op::Rename(new.into(), path.to_owned()),
        Op::Sync(parent(path)),
    ]
}

pub(super) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
