//! The folder of /proc, /sys and /etc, and the reader of every file below it.
//!
//! Every read is bounded, never blocks on a FIFO, and returns a value or the reason why there is
//! none. Below a root other than `/`, links are resolved as if that folder were `/`: by openat2
//! (Linux 5.6), or by [`resolve_path`] if openat2 is missing or filtered.
//!
//! A look at many files ends after a second as a whole (`HostRoot::begin_look`): what was not
//! read by then is unread, and the cause says so. The read that is under way then still ends.

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use nix::sys::sysinfo::{SysInfo, sysinfo};

use super::folders;
use super::guard::resolve_path;
use super::read::{self, LARGE, cause, each_line, from_start, whole};
use crate::kube::facts::{Read, Unread, UnreadKind};
use crate::kube::instant::Mono;
#[cfg(test)]
use crate::sim::hook as sim;

/// `sys/devices/system/node/node0` has an entry for each 128 MiB of memory.
const MAX_ENTRIES: usize = 65_536;

/// Limit of a look at files as a whole. The read that is under way at its end is still finished,
/// because nothing can divide a read.
pub const READ_BUDGET: Duration = Duration::from_secs(1);

/// The folder of /proc, /sys and /etc. Its clones share the look that is under way.
#[derive(Clone)]
pub struct HostRoot {
    path: PathBuf,
    look: SharedLook,
}

type SharedLook = Rc<RefCell<Option<LookEnd>>>;

/// The end of a look, and its clock.
struct LookEnd {
    at: Mono,
    clock: Box<dyn Fn() -> Mono>,
}

/// A look that is under way; it ends when this is dropped.
#[must_use]
pub(crate) struct Look(SharedLook);

impl Drop for Look {
    fn drop(&mut self) {
        *self.0.borrow_mut() = None;
    }
}

impl fmt::Debug for HostRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostRoot").field(&self.path).finish()
    }
}

impl Default for HostRoot {
    fn default() -> HostRoot {
        HostRoot::new("/")
    }
}

impl HostRoot {
    /// A root at `path`; opens nothing.
    pub fn new(path: impl Into<PathBuf>) -> HostRoot {
        HostRoot { path: path.into(), look: SharedLook::default() }
    }

    /// Begins a look: after [`READ_BUDGET`] each further read fails.
    pub(crate) fn begin_look(&self, clock: impl Fn() -> Mono + 'static) -> Look {
        debug_assert!(self.look.borrow().is_none(), "a look within a look");
        let end = LookEnd { at: clock().after(READ_BUDGET), clock: Box::new(clock) };
        *self.look.borrow_mut() = Some(end);
        Look(Rc::clone(&self.look))
    }

    /// Begins a look that has time for so many reads.
    #[cfg(test)]
    pub(crate) fn look_of(&self, reads: u64) -> Look {
        let asked = std::cell::Cell::new(0);
        self.begin_look(move || {
            let answer = asked.replace(asked.get() + 1);
            if answer > reads { Mono::START.after(READ_BUDGET) } else { Mono::START }
        })
    }

    /// Fails if the time of the look is over.
    pub(crate) fn may_read(&self) -> io::Result<()> {
        match &*self.look.borrow() {
            Some(look) if (look.clock)() >= look.at => {
                Err(io::Error::new(ErrorKind::TimedOut, Unread::NOT_REACHED))
            }
            _ => Ok(()),
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is the root of the running machine, so that system calls describe it too.
    pub fn is_real(&self) -> bool {
        self.path == Path::new("/")
    }

    /// sysinfo(2); `None` below another root, which it does not describe.
    pub(crate) fn sysinfo(&self) -> Option<SysInfo> {
        #[cfg(test)]
        if sim::is_on() {
            return None;
        }
        self.is_real().then(sysinfo)?.ok()
    }

    /// A whole file as text. More than `limit` bytes are an error; an empty file is empty text.
    pub fn text(&self, path: &str, limit: u64) -> Read<String> {
        let bytes = self.bytes(path, limit);
        text(path, bytes.map_err(|error| unread(path, &error))?)
    }

    /// A whole file. More than `limit` bytes are an error.
    pub(crate) fn bytes(&self, path: &str, limit: u64) -> io::Result<Vec<u8>> {
        whole(self.open(path)?, limit)
    }

    /// Takes each line of a table of any size. What follows the last newline is dropped.
    pub(crate) fn each_line(&self, path: &str, take: &mut dyn FnMut(&str)) -> Read<()> {
        let read = |file| from_start(&file, LARGE, &mut each_line(take));
        self.open(path).and_then(read).map(drop).map_err(|error| unread(path, &error))
    }

    /// The names in a folder, unsorted. A name that is not UTF-8 is skipped: no kernel file has
    /// one.
    pub fn list(&self, path: &str) -> Read<Vec<String>> {
        let entries = || -> io::Result<Vec<String>> {
            self.may_read()?;
            let folder = if self.is_real() { self.path.join(path) } else { self.resolve(path)? };
            names_in(&folder, MAX_ENTRIES)
        };
        entries().map_err(|error| unread(path, &error))
    }

    pub(crate) fn open(&self, path: &str) -> io::Result<File> {
        self.may_read()?;
        if self.is_real() {
            return read::open(&Path::new("/").join(path));
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(&self.path, flags, Mode::empty())?;
        let how = OpenHow::new().flags(read::FLAGS).resolve(ResolveFlag::RESOLVE_IN_ROOT);
        match openat2(&root, path, how) {
            Ok(file) => Ok(File::from(file)),
            // Linux before 5.6; a seccomp filter; a rename during the resolution of a `..`.
            Err(Errno::ENOSYS | Errno::EPERM | Errno::EAGAIN) => {
                read::open_with(&self.resolve(path)?, OFlag::O_NOFOLLOW)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        resolve_path(&self.path, Path::new(path), &mut |_| Ok(()))?.found()
    }
}

pub(super) fn names_in(folder: &Path, most: usize) -> io::Result<Vec<String>> {
    #[cfg(test)]
    sim::list(folder)?;
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut entries =
        folders::at(folder, |at, below| Dir::openat(at, below, flags, Mode::empty()))?;
    let mut names = Vec::new();
    for entry in entries.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if names.len() == most {
            return Err(io::Error::other(format!("more than {most} entries")));
        }
        names.extend(name.to_str().map(str::to_owned));
    }
    Ok(names)
}

/// The bytes of the file `source` as text.
pub(crate) fn text(source: &str, bytes: Vec<u8>) -> Read<String> {
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(Unread::new(source, "not text")),
    }
}

/// The cause of a failed read. ENOTDIR counts as absent too.
pub(crate) fn unread(source: &str, error: &io::Error) -> Unread {
    let kind = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOENT | Errno::ENOTDIR) => UnreadKind::Absent,
        // ETIMEDOUT of the kernel has a number.
        None if error.kind() == ErrorKind::TimedOut => UnreadKind::NotReached,
        _ => UnreadKind::Failed,
    };
    Unread { kind, ..Unread::new(source, cause(error).to_string()) }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::read::SMALL;
    use crate::os::tree::Tree;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    fn root_of(tree: &Tree) -> HostRoot {
        HostRoot::new(tree.path())
    }

    fn read_resolved(root: &HostRoot, path: &str) -> io::Result<String> {
        let mut text = String::new();
        read::open_with(&root.resolve(path)?, OFlag::O_NOFOLLOW)?.read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn links_stay_inside_the_root_with_and_without_openat2() {
        let tree = Tree::new("links");
        tree.write("usr/lib/os-release", b"inside");
        for (link, target) in [
            ("etc/absolute", "/usr/lib/os-release"),
            ("etc/relative", "../usr/lib/os-release"),
            ("etc/above", "../../../../../../usr/lib/os-release"),
            ("etc/twice", "absolute"),
            ("lib", "/usr/lib"),
        ] {
            symlink(target, tree.path().join(link)).unwrap();
        }
        let root = root_of(&tree);
        let paths = "etc/absolute etc/relative etc/above etc/twice lib/os-release \
                     /lib/os-release etc/../../lib/os-release";
        for path in paths.split(' ') {
            assert_eq!(root.text(path, SMALL).as_deref(), Ok("inside"), "{path}");
            assert_eq!(read_resolved(&root, path).unwrap(), "inside", "{path}");
        }
        assert_eq!(root.list("lib"), Ok(vec!["os-release".to_owned()]));
        symlink("/proc/version", tree.path().join("etc/outside")).unwrap();
        assert!(root.text("etc/outside", SMALL).unwrap_err().is_absent());
        assert!(read_resolved(&root, "etc/outside").is_err());
    }

    #[test]
    fn a_file_over_the_limit_or_not_text_is_an_error() {
        let tree = Tree::new("content");
        tree.write("four", b"1234");
        tree.write("empty", b"");
        tree.write("nul", b"a\0b");
        tree.write("latin1", b"caf\xe9");
        let root = root_of(&tree);
        assert_eq!(root.text("four", 4).as_deref(), Ok("1234"));
        assert_eq!(root.text("four", 3), Err(Unread::new("four", "larger than 3 bytes")));
        assert_eq!(root.text("empty", 4).as_deref(), Ok(""));
        assert_eq!(root.text("nul", 4), Err(Unread::new("nul", "not text")));
        assert_eq!(root.text("latin1", 4), Err(Unread::new("latin1", "not text")));
    }

    #[test]
    fn a_missing_file_is_absent_and_another_error_is_not() {
        let tree = Tree::new("absent");
        tree.write("file", b"");
        let absent = Unread {
            source: "no/such".into(),
            cause: "no such file or directory".into(),
            kind: UnreadKind::Absent,
        };
        assert_eq!(root_of(&tree).text("no/such", SMALL), Err(absent));
        assert!(root_of(&tree).text("file/below", SMALL).unwrap_err().is_absent());
        assert!(root_of(&tree).list("no").unwrap_err().is_absent());
        assert!(HostRoot::new("/no/such/root").text("etc/hosts", SMALL).unwrap_err().is_absent());
        symlink("loop", tree.path().join("loop")).unwrap();
        // musl and glibc have different words for it.
        let eloop = Unread::new("loop", cause(&Errno::ELOOP.into()).what);
        assert_eq!(root_of(&tree).text("loop", SMALL), Err(eloop));
    }

    /// Each question for the time takes 0.4 s: the third read is not begun.
    #[test]
    fn a_look_ends_after_a_second_as_a_whole_and_what_it_did_not_reach_says_so() {
        let tree = Tree::new("look");
        tree.write("file", b"1");
        let root = root_of(&tree);
        let clone = root.clone();
        let asked = std::cell::Cell::new(0_u32);
        let look = root.begin_look(move || {
            asked.set(asked.get() + 1);
            Mono::START.after(std::time::Duration::from_millis(400) * asked.get())
        });
        assert_eq!(clone.text("file", SMALL).as_deref(), Ok("1"));
        assert!(root.list("").is_ok());
        let unread = Unread::not_reached("file");
        assert_eq!(clone.text("file", SMALL), Err(unread.clone()));
        assert_eq!(root.list("file"), Err(unread));
        drop(look);
        assert_eq!(clone.text("file", SMALL).as_deref(), Ok("1"));
    }

    #[test]
    fn only_slash_is_the_real_root() {
        assert!(HostRoot::new("/").is_real());
        assert!(HostRoot::new("//.").is_real());
        assert!(!HostRoot::new("/mnt").is_real());
        assert!(HostRoot::default().text("proc/version", SMALL).unwrap().starts_with("Linux"));
    }
}
