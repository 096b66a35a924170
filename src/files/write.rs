//! Changes to files that survive a power cut, in operations that can be counted.
//!
//! A change is a list of operations. Each leaves what was there before or what comes
//! after, also where the power fails in the middle of it, or where what was not yet
//! synced is lost in any order: the tests of `pki` let it fail at each.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use zeroize::Zeroizing;

use super::guard;
use super::read::cause;

/// Mode of a file that holds a key or a token.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that everybody may read.
const PUBLIC: u32 = 0o644;

/// One change to a folder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// Makes a folder, 0755.
    Folder(PathBuf),
    /// Writes a file of that mode, and waits until its content is on the disk.
    Write(PathBuf, u32, Zeroizing<Vec<u8>>),
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
            Self::Write(path, mode, _) => write!(f, "Write({path:?}, {mode:o})"),
            Self::Link(target, path) => write!(f, "Link({target:?}, {path:?})"),
            Self::Rename(from, to) => write!(f, "Rename({from:?}, {to:?})"),
            Self::Remove(path) => write!(f, "Remove({path:?})"),
            Self::Sync(path) => write!(f, "Sync({path:?})"),
        }
    }
}

/// What carries operations out; in a test, until the power fails.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) read_only: bool,
    #[cfg(test)]
    pub(crate) done: Vec<Op>,
    #[cfg(test)]
    pub(crate) power: Option<usize>,
}

impl Disk {
    /// One on which nothing is carried out, and that is no error.
    pub(crate) fn read_only() -> Self {
        Self {
            read_only: true,
            #[cfg(test)]
            done: Vec::new(),
            #[cfg(test)]
            power: None,
        }
    }

    /// All of them, in order, or none after the first that fails.
    pub(crate) fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), String> {
        if self.read_only {
            return Ok(());
        }
        for op in ops {
            op.may_touch()?;
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
    /// The path that is changed.
    fn path(&self) -> &Path {
        match self {
            Self::Folder(path)
            | Self::Write(path, ..)
            | Self::Link(_, path)
            | Self::Rename(_, path)
            | Self::Remove(path)
            | Self::Sync(path) => path,
        }
    }

    fn may_touch(&self) -> Result<(), String> {
        let path = self.path();
        match guard::resolve(&parent(path)) {
            Ok(_) => Ok(()),
            Err(e) => Err(format!("{}: {}", path.display(), cause(&e))),
        }
    }

    /// The error names the path.
    pub(crate) fn carry_out(&self) -> Result<(), String> {
        let (path, result) = match self {
            Self::Folder(path) => (path, DirBuilder::new().mode(0o755).create(path)),
            Self::Write(path, mode, content) => (path, write(path, *mode, content)),
            Self::Link(target, path) => (path, symlink(target, path)),
            Self::Rename(from, to) => (to, fs::rename(from, to)),
            Self::Remove(path) => (path, fs::remove_file(path)),
            Self::Sync(path) => (path, fs::File::open(path).and_then(|f| f.sync_all())),
        };
        match (self, result) {
            (Self::Remove(_), Err(e)) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            (_, result) => result.map_err(|e| format!("{}: {}", path.display(), cause(&e))),
        }
    }
}

fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)?;
    // What an earlier attempt left behind may be anything.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes a folder where it is missing, with those above it.
fn folder(path: &Path) -> Vec<Op> {
    let missing = path.ancestors().take_while(|path| !guard::exists(path));
    let missing: Vec<&Path> = missing.filter(|p| !p.as_os_str().is_empty()).collect();
    let make = |path: &&Path| [Op::Folder(path.to_path_buf()), Op::Sync(parent(path))];
    missing.iter().rev().flat_map(make).collect()
}

/// Replaces a file, or makes it, with its folder.
pub(crate) fn replace(path: &Path, mode: u32, content: Vec<u8>) -> Vec<Op> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut ops = folder(&parent(path));
    ops.extend([
        Op::Write(new.clone().into(), mode, Zeroizing::new(content)),
        Op::Rename(new.into(), path.to_owned()),
        Op::Sync(parent(path)),
    ]);
    ops
}

/// Puts a text that everybody may read in the place of a file.
pub fn publish(path: &Path, text: String) -> Result<(), String> {
    Disk::default().carry_out(replace(path, PUBLIC, text.into_bytes()))
}

pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
