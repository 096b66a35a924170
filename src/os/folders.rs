//! Folders below `/` that stay open. The kernel resolves each path from `/` in the root file
//! system, which waits for its server if it is on a network. A path below an open folder needs no
//! such step.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};

/// Each is opened with its first use, if it is a mount.
const FOLDERS: [&str; 3] = ["/proc", "/sys", "/run"];

thread_local! {
    static OPEN: [OnceCell<File>; FOLDERS.len()] = const { [const { OnceCell::new() }; _] };
}

/// Makes a system call with the open folder that `path` is in, and the rest of the path. Without
/// such a folder the call gets `AT_FDCWD` and the whole path.
pub(super) fn at<T>(
    path: &Path,
    call: impl FnOnce(BorrowedFd<'_>, &Path) -> nix::Result<T>,
) -> io::Result<T> {
    OPEN.with(|open| {
        let mut folders = FOLDERS.iter().zip(open);
        let found = folders.find_map(|(point, folder)| Some((*point, folder, below(point, path)?)));
        let Some((point, folder, below)) = found else { return Ok(call(AT_FDCWD, path)?) };
        if folder.get().is_none() && is_mount(point) {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            let _ = folder.set(openat(AT_FDCWD, point, flags, Mode::empty())?.into());
        }
        match folder.get() {
            Some(folder) => Ok(call(folder.as_fd(), below)?),
            None => Ok(call(AT_FDCWD, path)?),
        }
    })
}

/// Whether a file system of its own is mounted at `point`.
fn is_mount(point: &str) -> bool {
    let device = |path| {
        let found = fstatat(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW);
        found.ok().map(|found| found.st_dev)
    };
    device(point).is_some_and(|own| device("/") != Some(own))
}

/// The path from the folder `point` to `path`, if `path` is in it.
fn below<'a>(point: &str, path: &'a Path) -> Option<&'a Path> {
    let rest = path.as_os_str().as_bytes().strip_prefix(point.as_bytes())?;
    let names = rest.iter().position(|byte| *byte != b'/').unwrap_or(rest.len());
    match rest.get(names..).unwrap_or_default() {
        [] => Some(Path::new(".")),
        below => (names > 0).then(|| Path::new(OsStr::from_bytes(below))),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::{chroot, geteuid};

    use super::*;
    use crate::os::guard;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    #[test]
    fn a_path_in_a_folder_is_told_by_its_names() {
        let below = |path: &'static str| below("/run", Path::new(path)).map(|path| path.to_str());
        for (path, want) in [
            ("/run", Some(".")),
            ("/run/", Some(".")),
            ("/run/a/b", Some("a/b")),
            ("/run//a", Some("a")),
            ("/runs/a", None),
            ("/", None),
            ("run/a", None),
        ] {
            assert_eq!(below(path), want.map(Some), "{path}");
        }
    }

    /// In the place of a root whose server is dead, an empty one.
    #[test]
    fn below_an_open_folder_a_path_is_found_without_the_root() {
        if !geteuid().is_root() {
            return eprintln!("SKIPPED: needs root, for chroot");
        }
        let tree = Tree::empty("folders");
        let path = tree.path().to_owned();
        let below_another_root = move || {
            unshare(CloneFlags::CLONE_FS).unwrap();
            assert!(guard::exists(Path::new("/proc")));
            chroot(&path).unwrap();
            assert!(!guard::exists(Path::new("/usr")));
            assert!(!guard::exists(Path::new("/proc/no-such")));
            assert!(guard::read(Path::new("/proc/version")).unwrap().starts_with(b"Linux"));
            assert!(HostRoot::default().text("proc/version", 999).unwrap().starts_with("Linux"));
            let names = HostRoot::default().list("proc/self/ns").unwrap();
            assert!(
                names.iter().any(|name| name == "net") && !names.iter().any(|name| name == ".")
            );
            // A link, which leads to the folder of the thread.
            assert!(guard::exists(Path::new("/proc/thread-self/stat")));
        };
        std::thread::spawn(below_another_root).join().unwrap();
    }
}
