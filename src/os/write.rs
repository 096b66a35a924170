//! File changes that survive a power cut: each change is a list of operations.
//!
//! After any prefix of the list, the files are in the old state or in the new state. This also
//! holds if an operation was cut off, or if unsynced operations are lost in any order.
//! `power_cut.rs` simulates a power cut at each operation; the tests of `credentials::pki` and
//! `join` use it.

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    symlink,
};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use zeroize::Zeroizing;

use super::guard;
use super::mounts::all_mounts;
use super::read::{self, cause};
use crate::kube::text::Fault;
#[cfg(test)]
use crate::sim::hook as sim;

/// Mode of a file that holds a key or a token.
pub(crate) const PRIVATE: u32 = 0o600;
/// Mode of a file that every user may read.
pub(crate) const PUBLIC: u32 = 0o644;
/// Modes of a folder.
const PUBLIC_FOLDER: u32 = 0o755;
const PRIVATE_FOLDER: u32 = 0o700;

/// One change to a folder.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Op {
    /// Creates a folder of this mode.
    Folder(PathBuf, u32),
    /// Writes a file of this mode and syncs its content.
    Write(PathBuf, u32, Zeroizing<Vec<u8>>),
    /// Creates a symbolic link: its target, then its own path.
    Link(PathBuf, PathBuf),
    /// Renames the first path to the second, and replaces a file there.
    Rename(PathBuf, PathBuf),
    /// Removes a file or a link, if it exists.
    Remove(PathBuf),
    /// Syncs the names in a folder.
    Sync(PathBuf),
}

/// Omits the content, which may be a key.
impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path, mode) => write!(f, "Folder({path:?}, {mode:o})"),
            Self::Write(path, mode, _) => write!(f, "Write({path:?}, {mode:o})"),
            Self::Link(target, path) => write!(f, "Link({target:?}, {path:?})"),
            Self::Rename(from, to) => write!(f, "Rename({from:?}, {to:?})"),
            Self::Remove(path) => write!(f, "Remove({path:?})"),
            Self::Sync(path) => write!(f, "Sync({path:?})"),
        }
    }
}

/// Carries operations out; in a test, up to a simulated power cut.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) read_only: bool,
    #[cfg(test)]
    pub(crate) done: Vec<Op>,
    /// Number of operations before the power cut.
    #[cfg(test)]
    pub(crate) power: Option<usize>,
}

impl Disk {
    /// Accepts every operation and changes nothing.
    pub(crate) fn read_only() -> Self {
        Self {
            read_only: true,
            #[cfg(test)]
            done: Vec::new(),
            #[cfg(test)]
            power: None,
        }
    }

    /// Carries out `ops` in order, up to the first that fails.
    pub(crate) fn carry_out(&mut self, ops: Vec<Op>) -> Result<(), Fault> {
        if self.read_only {
            return Ok(());
        }
        for op in ops {
            #[cfg(test)]
            if self.power == Some(self.done.len()) {
                return Err("the power failed".into());
            }
            op.carry_out().inspect_err(|_| {
                let _ = op.cleanup().map(|removal| removal.carry_out());
            })?;
            #[cfg(test)]
            self.done.push(op);
        }
        Ok(())
    }
}

/// The changes of a process that holds the Lease: it carries out one operation in a turn of its
/// loop, because each operation may wait for a slow card. If the process ends between two
/// operations, the files are as after a power cut.
#[derive(Debug)]
pub(crate) struct Changes<T>(VecDeque<FileChange<T>>);

#[derive(Debug)]
struct FileChange<T> {
    purpose: T,
    ops: VecDeque<Op>,
    /// The first failure. After it, only the part of a file that was written is removed.
    result: Result<(), Fault>,
}

impl<T: PartialEq> Changes<T> {
    pub(crate) fn none() -> Self {
        Self(VecDeque::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a change, and drops a change with the same purpose that has not ended. The new change
    /// replaces the files that the dropped one has written so far.
    pub(crate) fn add(&mut self, purpose: T, ops: Vec<Op>) {
        self.0.retain(|other| other.purpose != purpose);
        self.0.push_back(FileChange { purpose, ops: ops.into(), result: Ok(()) });
    }

    /// The operations that are left, in order.
    pub(crate) fn left(&self) -> impl Iterator<Item = (&T, &Op)> {
        self.0.iter().flat_map(|change| change.ops.iter().map(|op| (&change.purpose, op)))
    }

    /// Carries out the next operation. Returns the result of the change that ended with it.
    pub(crate) fn carry_out_next(&mut self) -> Option<(T, Result<(), Fault>)> {
        let FileChange { ops, result, .. } = self.0.front_mut()?;
        if let Some(op) = ops.pop_front()
            && let Err(why) = op.carry_out()
        {
            *ops = op.cleanup().into_iter().collect();
            if result.is_ok() {
                *result = Err(why);
            }
        }
        if !ops.is_empty() {
            return None;
        }
        self.0.pop_front().map(|change| (change.purpose, change.result))
    }
}

impl Op {
    /// The operation that follows if this one fails. A write to a full disk leaves a part of a
    /// file, and a rename that fails leaves the whole new file, perhaps with a key. They would stay
    /// until the next attempt.
    fn cleanup(&self) -> Option<Self> {
        match self {
            Self::Write(path, ..) => Some(Self::Remove(path.clone())),
            Self::Rename(new, path) if *new == beside(path) => Some(Self::Remove(new.clone())),
            _ => None,
        }
    }

    /// Carries the operation out. Every path is checked before the call that uses it; the error
    /// names the path.
    pub(crate) fn carry_out(&self) -> Result<(), Fault> {
        #[cfg(test)]
        sim::file_change(self)?;
        let checked = guard::parent_resolved;
        let (path, result) = match self {
            Self::Folder(path, mode) => {
                // A link at `path` is resolved, too, so that the error names its file system.
                let resolved = guard::resolve(path).and_then(|_| checked(path));
                let create = |path| DirBuilder::new().mode(*mode).create(path);
                (path, resolved.and_then(create))
            }
            Self::Write(path, mode, content) => {
                let write = |path: PathBuf| write(&path, *mode, content);
                (path, checked(path).and_then(write))
            }
            Self::Link(target, path) => {
                (path, checked(path).and_then(|path| symlink(target, path)))
            }
            Self::Rename(from, to) => {
                let rename = |from| fs::rename(from, checked(to)?);
                (to, checked(from).and_then(rename))
            }
            Self::Remove(path) => (path, checked(path).and_then(fs::remove_file)),
            Self::Sync(path) => {
                let sync = |path: PathBuf| read::open(&path)?.sync_all();
                (path, guard::found(path).and_then(sync))
            }
        };
        match (self, result) {
            (Self::Remove(_), Err(e)) if e.kind() == io::ErrorKind::NotFound => {}
            (_, result) => result.map_err(|e| cause(&e).at(path.display()))?,
        }
        #[cfg(test)]
        sim::file_changed(self);
        Ok(())
    }
}

/// The flags keep the open from following a link and from waiting for the reader of a FIFO.
fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .custom_flags((read::FLAGS | OFlag::O_NOFOLLOW).bits())
        .open(path)
}

fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = create(path, mode)?;
    // A file of an interrupted attempt may have another mode.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

/// Returns the operations that create the folder `path` with `mode`, and its missing ancestors with
/// [`PUBLIC_FOLDER`]. None if `path` exists: its mode stays.
fn folder(path: &Path, mode: u32) -> Vec<Op> {
    let is_missing = |path: &&Path| !guard::exists(path);
    let missing = path.ancestors().take_while(is_missing);
    let missing: Vec<&Path> = missing.filter(|p| !p.as_os_str().is_empty()).collect();
    let create = |created: &&Path| {
        let mode = if *created == path { mode } else { PUBLIC_FOLDER };
        let folder = Op::Folder(created.to_path_buf(), mode);
        [folder, Op::Sync(parent(created))]
    };
    missing.iter().rev().flat_map(create).collect()
}

/// Like [`folder`], with a mode that lets only the owner enter.
pub(crate) fn private_folder(path: &Path) -> Vec<Op> {
    folder(path, PRIVATE_FOLDER)
}

/// Returns the operations that create or replace a file, and create its folder.
pub(crate) fn replace(path: &Path, mode: u32, content: Vec<u8>) -> Vec<Op> {
    let new = beside(path);
    let mut ops = folder(&parent(path), PUBLIC_FOLDER);
    ops.extend([
        Op::Write(new.clone(), mode, Zeroizing::new(content)),
        Op::Rename(new, path.to_owned()),
        Op::Sync(parent(path)),
    ]);
    ops
}

/// Where the new content of a file is written, until it takes the place of the old one.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

/// A folder that only this process has locked.
#[derive(Debug)]
pub(crate) struct Lock {
    _folder: File,
}

/// Locks a folder (flock(2)) until the value is dropped; `None` while another process has it.
pub(crate) fn lock(folder: &Path) -> Result<Option<Lock>, Fault> {
    let locked = guard::found(folder).and_then(|path| {
        let folder = read::open(&path)?;
        match folder.try_lock() {
            Ok(()) => Ok(Some(Lock { _folder: folder })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    });
    locked.map_err(|error| cause(&error).at(folder.display()))
}

/// The operations that create or replace a text file that every user may read.
pub(crate) fn publication(path: &Path, text: String) -> Vec<Op> {
    replace(path, PUBLIC, text.into_bytes())
}

/// The operations that remove a file, and what a publication that was dropped has left beside it.
/// None if there is no file, or if this process may not touch it: then it has written none there. A
/// path that cannot be looked at counts as one that exists.
pub(crate) fn removal(path: &Path) -> Vec<Op> {
    let is_there = |path: &PathBuf| match guard::parent_resolved(path)
        .and_then(|path| path.symlink_metadata())
    {
        Ok(_) => true,
        Err(error) => {
            let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
            error.raw_os_error().is_some() && !absent.contains(&error.kind())
        }
    };
    let paths = [path.to_owned(), beside(path)].into_iter().filter(is_there);
    let mut ops: Vec<Op> = paths.map(Op::Remove).collect();
    if !ops.is_empty() {
        ops.push(Op::Sync(parent(path)));
    }
    ops
}

/// Carries `publication` out.
pub fn publish(path: &Path, text: String) -> Result<(), Fault> {
    Disk::default().carry_out(publication(path, text))
}

/// A file that need not survive a power cut, below /run: nothing is synced.
#[derive(Debug)]
pub struct VolatileFile {
    path: PathBuf,
    written: Option<LastWritten>,
}

/// What was last written to a path.
#[derive(Debug)]
struct LastWritten {
    file: File,
    /// The path, free of links.
    place: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    /// The content when the file was made. Only the start of the file has changed since.
    content: String,
}

impl LastWritten {
    /// The file at the path.
    fn find(path: &Path) -> io::Result<Self> {
        let place = guard::parent_resolved(path)?;
        let file = read::open_with(&place, OFlag::O_RDWR | OFlag::O_NOFOLLOW)?;
        let content = read::from_start(&file, read::LARGE, &mut |_| false)?;
        let content = String::from_utf8(content).map_err(|_| io::ErrorKind::InvalidData)?;
        let found = file.metadata()?;
        Ok(Self { file, place, id: (found.dev(), found.ino()), content })
    }

    /// Whether `content` differs in its first `changed` bytes only.
    fn differs_within(&self, changed: usize, content: &str) -> bool {
        self.content.len() == content.len()
            && self.content.as_bytes().get(changed..) == content.as_bytes().get(changed..)
    }

    /// Whether the file is still at its path and has its length. If others removed, replaced or cut
    /// it off, nobody would read what is written into it. If the root can block, it is not asked
    /// and the answer is true: this question comes with the clock, and must not wait.
    fn is_in_place(&self) -> bool {
        let Some(mounts) = all_mounts().ok().filter(|mounts| !guard::root_blocks(mounts)) else {
            return true;
        };
        let found = guard::may_touch(&self.place, &mounts);
        found.and_then(|()| self.place.symlink_metadata()).is_ok_and(|found| {
            (found.dev(), found.ino()) == self.id && found.len() == self.content.len() as u64
        })
    }
}

impl VolatileFile {
    /// Writes nothing yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), written: None }
    }

    /// Writes nothing yet, and takes the file over that a former process has left at the path: on a
    /// full file system no other one can be made.
    pub fn reopen(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let written = LastWritten::find(&path).ok();
        Self { path, written }
    }

    /// Replaces the file; nobody sees a part of it. Creates its folder. If only the first line has
    /// changed, and its length has not, the line is written into the file: three system calls
    /// instead of ten.
    pub fn write(&mut self, content: String) -> Result<(), Fault> {
        self.check();
        let line = content.find('\n').map_or(0, |end| end + 1);
        self.write_start(content, line)
    }

    /// The next write makes a new file if the last one is no longer at the path. Two system calls.
    pub fn check(&mut self) {
        self.written.take_if(|written| !written.is_in_place());
    }

    /// Writes a text that always has the same length over the last one: one system call. A reader
    /// may see the start of the new text and the end of the old one. Does not
    /// [`check`](Self::check).
    pub fn overwrite(&mut self, content: String) -> Result<(), Fault> {
        let length = content.len();
        self.write_start(content, length)
    }

    /// What the file has, but for changes of its start; `None` if no file was written.
    pub fn content(&self) -> Option<&str> {
        self.written.as_ref().map(|written| written.content.as_str())
    }

    /// Writes the first `changed` bytes into the file if the others are as before, else all of it
    /// anew. If that fails, the last file stays, and the next text may still be written into it.
    fn write_start(&mut self, content: String, changed: usize) -> Result<(), Fault> {
        let start = content.as_bytes().get(..changed).unwrap_or_default();
        if let Some(written) = &self.written
            && written.differs_within(changed, &content)
            && written.file.write_all_at(start, 0).is_ok()
        {
            return Ok(());
        }
        let written = replace_volatile(&self.path, content);
        self.written = Some(written.map_err(|error| cause(&error).at(self.path.display()))?);
        Ok(())
    }
}

fn replace_volatile(path: &Path, content: String) -> io::Result<LastWritten> {
    let new = beside(path);
    let new = match guard::parent_resolved(&new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = DirBuilder::new().mode(PUBLIC_FOLDER).create(parent(path));
            guard::parent_resolved(&new)?
        }
        found => found?,
    };
    let replace = || -> io::Result<_> {
        let mut file = create(&new, PUBLIC)?;
        file.write_all(content.as_bytes())?;
        let found = file.metadata()?;
        let place = new.with_extension("");
        fs::rename(&new, &place)?;
        Ok((file, place, (found.dev(), found.ino())))
    };
    // A part of a file would take up room for ever.
    let (file, place, id) = replace().inspect_err(|_| drop(fs::remove_file(&new)))?;
    Ok(LastWritten { file, place, id, content })
}

/// The folder of `path`; `.` for a bare name.
pub(crate) fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;
    use crate::os::mounts::pretend_mount;
    use crate::os::tree::Tree;

    fn replaced(path: &Path) -> Result<(), Fault> {
        replace(path, PRIVATE, b"new".to_vec()).iter().try_for_each(Op::carry_out)
    }

    fn names(folder: PathBuf) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn each_operation_checks_each_of_its_paths() {
        let tree = Tree::beside_a_network_mount("write-operations");
        let at = |path: &str| tree.path().join(path);
        for op in [
            Op::Folder(at("net"), PUBLIC_FOLDER),
            Op::Folder(at("net/x"), PUBLIC_FOLDER),
            Op::Folder(at("local/relative"), PUBLIC_FOLDER),
            Op::Write(at("net"), PRIVATE, Zeroizing::default()),
            Op::Write(at("net/x"), PRIVATE, Zeroizing::default()),
            Op::Link("target".into(), at("net/x")),
            Op::Rename(at("net/file"), at("local/x")),
            Op::Rename(at("local/file"), at("net/x")),
            Op::Remove(at("net/file")),
            Op::Remove(at("net/missing")),
            Op::Sync(at("net")),
            Op::Sync(at("local/relative")),
        ] {
            let refused = op.carry_out().unwrap_err();
            assert!(refused.what.contains("/net is on nfs4"), "{op:?}: {refused}");
        }
        assert_eq!(names(at("net")), ["file"]);
        assert_eq!(names(at("local")), ["absolute", "file", "relative", "twice"]);
        // A link onto the mount is itself on the local file system.
        assert_eq!(Op::Remove(at("local/relative")).carry_out(), Ok(()));
    }

    #[test]
    fn missing_folders_are_created_and_the_file_has_its_mode() {
        let tree = Tree::beside_a_network_mount("write-missing");
        let net = tree.path().join("net");
        assert!(replaced(&net.join("new/file")).is_err());
        assert_eq!(names(net.clone()), ["file"]);
        pretend_mount(&net, "ext4");
        let paths = ["a/b/file", "a/b/file", "local/../local/file", "local/absolute/new/file"];
        for path in paths {
            let path = tree.path().join(path);
            assert_eq!(replaced(&path), Ok(()));
            assert_eq!(guard::read(&path), Ok(b"new".to_vec()));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, PRIVATE);
        }
        assert_eq!(names(tree.path().join("a/b")), ["file"]);
        let absent = tree.path().join("no/such/file");
        assert_eq!(Op::Remove(absent.clone()).carry_out(), Ok(()));
        let words = format!("{}: no such file or directory", absent.display());
        assert_eq!(Op::Sync(absent).carry_out(), Err(words.into()));
    }

    #[test]
    fn changes_are_carried_out_one_operation_a_turn_in_their_order() {
        let tree = Tree::empty("write-changes");
        let at = |name: &str| tree.path().join(name);
        let change = |name: &str, text: &str| publication(&at(name), text.to_owned());
        let mut changes = Changes::none();
        changes.add("a", change("a", "old"));
        assert_eq!(changes.carry_out_next(), None);
        assert_eq!(names(tree.path().to_owned()), ["a.new"], "one operation");
        changes.add("b", change("b", "b"));
        // One with the same purpose replaces it, and waits for its turn.
        changes.add("a", change("a", "new"));
        let mut ended = Vec::new();
        let mut turns = 0;
        while !changes.is_empty() {
            ended.extend(changes.carry_out_next());
            turns += 1;
        }
        assert_eq!(ended, [("b", Ok(())), ("a", Ok(()))]);
        assert_eq!(turns, 6);
        assert_eq!(names(tree.path().to_owned()), ["a", "b"]);
        assert_eq!(guard::read(&at("a")), Ok(b"new".to_vec()));
        assert_eq!(changes.carry_out_next(), None);
    }

    #[test]
    fn a_change_that_fails_ends_and_the_next_one_follows() {
        let tree = Tree::empty("write-changes-fail");
        let at = |name: &str| tree.path().join(name);
        let mut changes = Changes::none();
        changes.add("a", vec![Op::Sync(at("no-such")), Op::Folder(at("never"), 0o700)]);
        changes.add("b", Vec::new());
        let (purpose, failed) = changes.carry_out_next().unwrap();
        assert!(purpose == "a" && failed.unwrap_err().what.contains("no such file"));
        assert_eq!(changes.carry_out_next(), Some(("b", Ok(()))));
        assert!(changes.is_empty() && names(tree.path().to_owned()).is_empty());
    }

    #[test]
    fn a_part_of_a_file_is_removed_in_a_turn_of_its_own() {
        let tree = Tree::empty("write-changes-part");
        let at = |name: &str| tree.path().join(name);
        mkfifo(&at("a.new"), Mode::S_IRWXU).unwrap();
        let mut changes = Changes::none();
        changes.add("a", publication(&at("a"), "a".to_owned()));
        assert_eq!(changes.carry_out_next(), None);
        assert_eq!(names(tree.path().to_owned()), ["a.new"]);
        let (purpose, failed) = changes.carry_out_next().unwrap();
        assert!(purpose == "a" && failed.unwrap_err().what.contains("a.new"));
        assert!(changes.is_empty() && names(tree.path().to_owned()).is_empty());
    }

    #[test]
    fn a_new_file_that_cannot_take_its_place_is_removed() {
        let tree = Tree::empty("write-changes-place");
        let at = |name: &str| tree.path().join(name);
        fs::create_dir_all(at("a/in-the-way")).unwrap();
        fs::create_dir_all(at("link/in-the-way")).unwrap();
        let is_removed = || names(tree.path().to_owned()) == ["a", "link"];
        let mut changes = Changes::none();
        changes.add("a", replace(&at("a"), 0o600, b"a".to_vec()));
        assert_eq!((changes.carry_out_next(), is_removed()), (None, false));
        // In a turn of its own.
        assert_eq!((changes.carry_out_next(), is_removed()), (None, false));
        let (purpose, failed) = changes.carry_out_next().unwrap();
        assert!(purpose == "a" && failed.is_err() && is_removed());
        assert!(Disk::default().carry_out(replace(&at("a"), 0o600, b"a".to_vec())).is_err());
        assert!(is_removed());
        // A link is not a new file: the next start completes an update that a kubelet began.
        let (from, to) = (at("updated"), at("link"));
        let ops = vec![Op::Link(at("a"), from.clone()), Op::Rename(from, to)];
        assert!(Disk::default().carry_out(ops).is_err());
        assert_eq!(names(tree.path().to_owned()), ["a", "link", "updated"]);
    }

    #[test]
    fn a_private_folder_is_its_owners_and_the_folders_above_it_are_not() {
        let tree = Tree::empty("write-private");
        let (above, private) = (tree.path().join("a"), tree.path().join("a/b"));
        let want = [
            Op::Folder(above.clone(), 0o755),
            Op::Sync(tree.path().to_owned()),
            Op::Folder(private.clone(), 0o700),
            Op::Sync(above),
        ];
        assert_eq!(private_folder(&private), want);
        assert_eq!(Disk::default().carry_out(want.into()), Ok(()));
        assert_eq!(private_folder(&private), []);
    }

    #[test]
    fn a_volatile_file_that_cannot_be_replaced_stays_and_no_part_of_the_new_one_does() {
        let tree = Tree::empty("write-volatile");
        let at = |name: &str| tree.path().join(name);
        let mut file = VolatileFile::new(at("file"));
        let mut write = |text: &str| file.write(text.to_owned());
        assert_eq!(write("1\nold\n"), Ok(()));
        mkfifo(&at("file.new"), Mode::S_IRWXU).unwrap();
        assert!(write("2\nnew\n").is_err());
        assert_eq!(names(tree.path().to_owned()), ["file"]);
        fs::create_dir(at("file.new")).unwrap();
        for (text, is_written) in [("3\nnew\n", false), ("4\nold\n", true)] {
            assert_eq!(write(text).is_ok(), is_written);
        }
        assert_eq!(guard::read(&at("file")), Ok(b"4\nold\n".to_vec()));
        fs::remove_dir(at("file.new")).unwrap();
        assert_eq!(write("5\nnew\n"), Ok(()));
        assert_eq!(guard::read(&at("file")), Ok(b"5\nnew\n".to_vec()));
    }

    #[test]
    fn a_fifo_or_a_link_in_place_of_the_new_file_is_an_error_and_does_not_block() {
        let tree = Tree::empty("write-fifo");
        let path = tree.path().join("file");
        mkfifo(&tree.path().join("file.new"), Mode::S_IRWXU).unwrap();
        assert!(replaced(&path).is_err());
        fs::remove_file(tree.path().join("file.new")).unwrap();
        symlink("target", tree.path().join("file.new")).unwrap();
        assert!(replaced(&path).is_err());
        assert_eq!(names(tree.path().join(".")), ["file.new"]);
    }
}
