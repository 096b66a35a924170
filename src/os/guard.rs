//! The check of a path before it is accessed: refuses a path on a mount that can block for ever.
//!
//! The path is resolved one component at a time, links included. Each component is compared with
//! the mount table before the kernel is asked about it. openat2 cannot do this, and old kernels
//! lack it. If somebody renames a folder between the check and the access, the kernel may follow
//! another path than the one that was checked. So the check does not protect against a hostile
//! root.

use std::ffi::OsString;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{SFlag, fstatat};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::folders;
pub use super::mounts::own_mounts;
use super::mounts::{self, Mount, all_mounts};
use super::read::{cause, read_found};
use crate::kube::text::{Fault, FaultKind};

/// The mount of `path`, if its file system can block for ever. The path must be absolute and free
/// of links and `..`.
pub fn blocking_mount<'a>(path: &Path, mounts: &'a [Mount]) -> Option<&'a Mount> {
    mounts::over(mounts, path).filter(|mount| mount.can_block())
}

/// Refuses a path on a file system that can block for ever, except on the root file system: this
/// program was loaded from it.
pub fn may_touch(path: &Path, mounts: &[Mount]) -> io::Result<()> {
    let is_root =
        |mount: &Mount| mounts::at(mounts, "/").is_some_and(|root| mount.is_file_system_of(root));
    match blocking_mount(path, mounts) {
        Some(mount) if !is_root(mount) => {
            let fs_type = &mount.fs_type;
            let what = format!("{} is on {fs_type}, which can block for ever", path.display());
            Err(io::Error::other(Fault::new(what, "choose a folder on a local file system")))
        }
        _ => Ok(()),
    }
}

/// Whether the root file system of this process can block. An access that is made only because time
/// has passed must then be left out.
pub fn root_can_block() -> bool {
    all_mounts().is_ok_and(|mounts| root_blocks(&mounts))
}

/// Whether the root file system can block by this mount table.
pub(crate) fn root_blocks(mounts: &[Mount]) -> bool {
    blocking_mount(Path::new("/"), mounts).is_some()
}

/// Resolves `path` below `/`. `mounts` is the mount table of this process.
fn resolve_in(path: &Path, mounts: &[Mount]) -> io::Result<Resolved> {
    let path = std::path::absolute(path)?;
    resolve_path(Path::new("/"), &path, &mut |path| may_touch(path, mounts))
}

/// Resolves `path` below `/` with the current mount table.
pub fn resolve(path: &Path) -> io::Result<Resolved> {
    resolve_in(path, &own_mounts()?)
}

/// Why `path` must not be touched; `None` also if it cannot be resolved for another reason.
pub fn refusal(path: &Path) -> Option<Fault> {
    resolve(path).err()?.get_ref()?.downcast_ref::<Fault>().cloned()
}

/// The file or folder that `path` leads to, free of links.
pub fn found(path: &Path) -> io::Result<PathBuf> {
    found_in(path, &own_mounts()?)
}

pub(crate) fn found_in(path: &Path, mounts: &[Mount]) -> io::Result<PathBuf> {
    resolve_in(path, mounts)?.found()
}

/// Reads a whole file of at most 1 MiB. The error does not name the path.
pub fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let read = found(path).and_then(|path| read_found(&path));
    read.map_err(|e| match (e.kind(), cause(&e)) {
        (NotFound | NotADirectory, missing) => missing,
        (_, unread) if unread.kind == FaultKind::Other => {
            Fault { kind: FaultKind::Unread, ..unread }
        }
        (_, denied) => denied,
    })
}

/// `path` with its folder resolved, for a call that does not follow the last link.
pub fn parent_resolved(path: &Path) -> io::Result<PathBuf> {
    let (path, mounts) = (std::path::absolute(path)?, own_mounts()?);
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return found_in(&path, &mounts);
    };
    let path = found_in(parent, &mounts)?.join(name);
    // A file can be a mount point, too.
    may_touch(&path, &mounts)?;
    Ok(path)
}

/// Whether `path` exists; a path that may not be touched counts as missing.
pub fn exists(path: &Path) -> bool {
    found(path).is_ok()
}

/// Whether the folder of `path` has an entry of this name, also if it is a link that leads nowhere.
pub fn has_entry(path: &Path) -> bool {
    parent_resolved(path).is_ok_and(|path| path.symlink_metadata().is_ok())
}

/// The kernel's limit of links in one path (MAXSYMLINKS in linux/namei.h).
const MAX_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The part that exists, without a link below its root.
    pub existing: PathBuf,
    /// The names behind it, the last one first.
    missing: Vec<OsString>,
}

impl Resolved {
    /// The path, if all of it exists.
    pub fn found(self) -> io::Result<PathBuf> {
        if self.missing.is_empty() { Ok(self.existing) } else { Err(Errno::ENOENT.into()) }
    }

    /// The path, whether or not all of it exists.
    fn path(self) -> io::Result<PathBuf> {
        // The kernel finds nothing behind a missing folder.
        if self.missing.iter().any(|name| name == "..") {
            return Err(Errno::ENOENT.into());
        }
        Ok(self.missing.iter().rev().fold(self.existing, |at, name| at.join(name)))
    }
}

/// Where `path` leads as if `root` were `/`, whether or not it exists. The result has no link below
/// `root`, so the path never leaves `root`.
pub fn path_below(root: &Path, path: &Path) -> io::Result<PathBuf> {
    resolve_path(root, path, &mut |_| Ok(()))?.path()
}

/// The file that `path` leads to below `/`, whether or not it exists. `Err` if it leads to a device
/// or the like, as `/dev/null`: the caller would replace or remove that.
pub(crate) fn target(path: &Path) -> Result<PathBuf, Fault> {
    let found = resolve(path).and_then(Resolved::path);
    let target = found.map_err(|error| cause(&error).at(path.display()))?;
    match target.symlink_metadata() {
        // A folder can be neither replaced nor removed by mistake.
        Ok(found) if !found.is_file() && !found.is_dir() => {
            let what =
                format!("{} leads to {}, which is no file", path.display(), target.display());
            Err(Fault::new(what, "remove the link"))
        }
        _ => Ok(target),
    }
}

/// Resolves `path` as if `root` were `/`. `may_touch` is called with each path before the file
/// system is asked about it, and can refuse the path. `root` itself is not checked.
pub fn resolve_path(
    root: &Path,
    path: &Path,
    may_touch: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> io::Result<Resolved> {
    let mut at = root.to_path_buf();
    let mut ahead = Vec::new();
    push_reversed(&mut ahead, path);
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            if at != root {
                at.pop();
            }
            continue;
        }
        let next = at.join(&name);
        may_touch(&next)?;
        match link(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ahead.push(name);
                break;
            }
            Err(error) => return Err(error),
            Ok(Some(target)) => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::ELOOP.into());
                }
                let target = PathBuf::from(target);
                if target.is_absolute() {
                    at = root.to_path_buf();
                }
                push_reversed(&mut ahead, &target);
            }
            Ok(None) => at = next,
        }
    }
    debug_assert!(at.starts_with(root), "{at:?} is not below {root:?}");
    Ok(Resolved { existing: at, missing: ahead })
}

/// The target of a link; `None` if the file that exists is no link.
fn link(path: &Path) -> io::Result<Option<OsString>> {
    let file =
        folders::at(path, |folder, path| fstatat(folder, path, AtFlags::AT_SYMLINK_NOFOLLOW))?;
    let is_link = file.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFLNK.bits();
    is_link.then(|| folders::at(path, |folder, path| readlinkat(folder, path))).transpose()
}

fn push_reversed(ahead: &mut Vec<OsString>, path: &Path) {
    ahead.extend(path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    }));
}

/// `Err` if a user has no room for a new file in `folder`, by statvfs(3). For a missing folder, in
/// the folder that will hold it.
pub(crate) fn has_room(folder: &Path) -> Result<(), Fault> {
    let existing = resolve(folder).map_err(|e| cause(&e))?.existing;
    let fs = statvfs(&existing).map_err(|errno| cause(&errno.into()))?;
    // A file system without a size or without a table of inodes has a total of 0.
    let is_full = |total, available| total > 0 && available == 0;
    if is_full(fs.blocks(), fs.blocks_available()) || is_full(fs.files(), fs.files_available()) {
        return Err(Fault::new(cause(&Errno::ENOSPC.into()).what, "make room"));
    }
    Ok(())
}

/// Whether this process may create a file in `folder`, by access(2). For a missing folder, whether
/// it may create the folder.
pub(crate) fn writable(folder: &Path) -> Result<(), Fault> {
    let existing = resolve(folder).map_err(|e| cause(&e))?.existing;
    if existing.is_dir() {
        access(&existing, AccessFlags::W_OK).map_err(|errno| cause(&errno.into()))
    } else {
        Err(format!("{} is not a folder", existing.display()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mounts::{pretend, pretend_mount, pretend_unreadable};
    use crate::os::tree::Tree;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_path_that_leads_onto_a_network_mount_is_refused() {
        let tree = Tree::beside_a_network_mount("guard-refused");
        let paths = "net net/file net/missing/file net/.. local/../net/file local/relative \
                     local/relative/file local/absolute/missing local/twice";
        for path in paths.split(' ') {
            let refused = resolve(&tree.path().join(path)).unwrap_err();
            let net = tree.path().join("net");
            let want = format!("{} is on nfs4, which can block for ever", net.display());
            assert!(refused.to_string().starts_with(&want), "{path}: {refused}");
        }
    }

    #[test]
    fn a_path_beside_a_network_mount_is_resolved() {
        let tree = Tree::beside_a_network_mount("guard-resolved");
        let at = |path: &str| tree.path().join(path);
        for path in ["local/file", "local/../local/./file"] {
            assert_eq!(found(&at(path)).unwrap(), at("local/file"));
        }
        let missing = resolve(&at("local/missing/x")).unwrap();
        assert_eq!(missing.existing, at("local"));
        assert!(missing.found().is_err());
        let missing = found(&at("network")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn the_last_component_is_compared_but_its_link_is_not_followed() {
        let tree = Tree::beside_a_network_mount("guard-parent");
        let at = |path: &str| tree.path().join(path);
        assert_eq!(parent_resolved(&at("local/relative")).unwrap(), at("local/relative"));
        for path in ["net", "net/file", "local/relative/file"] {
            assert!(parent_resolved(&at(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn a_relative_path_is_resolved_from_the_working_folder() {
        let folder = std::env::current_dir().unwrap();
        let name = Path::new("Cargo.toml");
        assert_eq!(found(name).unwrap(), folder.join(name));
        assert_eq!(parent_resolved(name).unwrap(), folder.join(name));
        pretend_mount(&folder, "nfs4");
        assert!(found(name).is_err());
        assert!(parent_resolved(name).is_err());
    }

    #[test]
    fn a_root_on_a_network_is_allowed_and_a_mount_below_it_is_not() {
        pretend("1 0 0:1 / / rw - nfs4 a rw\n2 1 0:2 / /no-such-server rw - nfs4 b rw\n");
        assert!(resolve(Path::new("/proc")).is_ok());
        assert!(resolve(Path::new("/no-such-server/x")).is_err());
        assert!(root_can_block());
        pretend("1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /no-such-server rw - nfs4 b rw\n");
        assert!(!root_can_block());
        let overlay = "1 0 0:1 / / rw - overlay overlay rw,lowerdir=/ro,upperdir=/rw/up,workdir=w";
        pretend(&format!("{overlay}\n2 1 0:2 / /ro rw - nfs4 b rw\n"));
        assert!(root_can_block());
        pretend(&format!("{overlay}\n2 1 0:2 / /ro rw - ext4 b rw\n"));
        assert!(!root_can_block());
    }

    /// What systemd mounts for DynamicUser= and StateDirectory=: a tmpfs, and on it the folder of
    /// the unit.
    #[test]
    fn a_folder_of_the_root_that_systemd_binds_over_itself_is_of_the_root() {
        let state = Path::new("/var/lib/private/nodelet/pki");
        for root in ["nfs4 server:/pi rw", "overlay overlay rw,lowerdir=/ro,upperdir=/rw/up"] {
            pretend(&format!(
                "1 0 0:1 / / rw - {root}\n\
                 2 1 0:2 / /ro rw - nfs4 server:/pi rw\n\
                 3 1 0:3 / /var/lib/private rw - tmpfs tmpfs rw\n\
                 4 3 0:1 /var/lib/private/nodelet /var/lib/private/nodelet rw - {root}\n\
                 5 1 0:5 / /mnt rw - nfs4 other:/ rw\n"
            ));
            let mounts = all_mounts().unwrap();
            assert!(may_touch(state, &mounts).is_ok(), "{root}");
            assert!(blocking_mount(state, &mounts).is_some(), "{root}: asked for its size once");
            assert!(may_touch(Path::new("/mnt/x"), &mounts).is_err(), "{root}");
        }
    }

    #[test]
    fn an_overlay_with_a_layer_on_a_network_is_refused_unless_that_layer_is_of_the_root() {
        let overlay = "4 1 0:4 / /no-such rw - overlay overlay rw,lowerdir=/net/var,upperdir=/up\n\
                       5 4 0:4 /lib /no-such/lib rw - overlay overlay rw,lowerdir=/net/var,upperdir=/up";
        for (net, is_refused) in [("2 1 0:2 / /net rw - nfs4 b rw\n", true), ("", false)] {
            for root in ["ext4", "nfs4"] {
                pretend(&format!("1 0 0:1 / / rw - {root} a rw\n{net}{overlay}"));
                for path in ["/no-such/x", "/no-such/lib/x"] {
                    let refused = resolve(Path::new(path)).is_err();
                    assert_eq!(refused, is_refused, "{root} {net} {path}");
                }
            }
        }
    }

    /// The kernel's order of the table is not that of the mounts.
    #[test]
    fn a_mount_over_a_folder_covers_what_was_mounted_below_it() {
        let server = "9 1 0:9 / /srv rw - nfs4 server:/ rw\n";
        let disk =
            "3 1 8:1 / /srv/data rw - ext4 /dev/sda1 rw\n4 3 8:2 / /srv/data/b rw - ext4 b rw\n";
        let root = "1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n";
        for table in [[root, disk, server], [root, server, disk]] {
            pretend(&table.concat());
            for path in ["/srv/data/x", "/srv/data/b/x"] {
                assert!(may_touch(Path::new(path), &all_mounts().unwrap()).is_err(), "{path}");
            }
        }
        // What is mounted over / covers nothing: a lookup begins below it.
        let over_root = "7 1 0:7 / / rw - tmpfs x rw\n";
        let below = "8 1 0:8 / /net rw - nfs4 server:/ rw\n";
        pretend(&[root, below, over_root].concat());
        assert!(may_touch(Path::new("/net/x"), &all_mounts().unwrap()).is_err());
        // The disk was mounted on a folder of the server.
        pretend(&[root, server, "10 9 8:1 / /srv/data rw - ext4 /dev/sda1 rw\n"].concat());
        assert!(may_touch(Path::new("/srv/data/x"), &all_mounts().unwrap()).is_ok());
    }

    #[test]
    fn every_path_is_refused_while_the_mount_table_cannot_be_read() {
        for path in ["/", "/proc", "/no-such", "relative"] {
            pretend_unreadable();
            let refused = found(Path::new(path)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Other, "{path}: not missing: {refused}");
            assert!(refused.to_string().starts_with("/proc/self/mountinfo: "), "{refused}");
            assert!(!refused.to_string().contains("is /proc mounted"), "{refused}");
        }
        assert!(exists(Path::new("/proc")), "the next read");
        assert!(!exists(Path::new("/proc/no-such")));
    }

    #[test]
    fn a_file_system_without_a_size_is_not_full() {
        for path in ["/proc/self", "/", "/no/such/folder"] {
            assert_eq!(has_room(Path::new(path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn each_component_is_checked_before_it_is_touched() {
        let tree = Tree::empty("resolve-order");
        symlink("/var/lib", tree.path().join("lib")).unwrap();
        tree.write("var/lib/x", b"");
        let mut asked = Vec::new();
        let end = resolve_path(tree.path(), Path::new("lib/missing/deeper"), &mut |path| {
            asked.push(path.strip_prefix(tree.path()).unwrap().to_path_buf());
            Ok(())
        });
        let missing = ["deeper", "missing"].map(OsString::from).to_vec();
        assert_eq!(end.unwrap(), Resolved { existing: tree.path().join("var/lib"), missing });
        assert_eq!(asked, ["lib", "var", "var/lib", "var/lib/missing"].map(PathBuf::from));
        asked.clear();
        let refused = resolve_path(tree.path(), Path::new("lib/x"), &mut |path| {
            asked.push(path.strip_prefix(tree.path()).unwrap().to_path_buf());
            if path.ends_with("var") { Err(io::Error::other("refused")) } else { Ok(()) }
        });
        assert_eq!(refused.unwrap_err().to_string(), "refused");
        assert_eq!(asked, ["lib", "var"].map(PathBuf::from), "nothing after the refusal");
    }

    #[test]
    fn a_missing_path_stays_below_the_root() {
        let tree = Tree::empty("path-below");
        tree.write("data/x", b"");
        symlink("/data/nodelet", tree.path().join("state")).unwrap();
        symlink("/missing/../../etc", tree.path().join("up")).unwrap();
        for (path, want) in [
            ("data/x", Some("data/x")),
            ("state/pki/pair", Some("data/nodelet/pki/pair")),
            ("etc/credstore/x", Some("etc/credstore/x")),
            ("up/x", None),
        ] {
            let got = path_below(tree.path(), Path::new(path)).ok();
            assert_eq!(got, want.map(|want| tree.path().join(want)), "{path}");
        }
    }

    #[test]
    fn a_path_of_more_than_40_links_is_an_error() {
        let tree = Tree::empty("resolve-links");
        symlink("loop", tree.path().join("loop")).unwrap();
        symlink(".", tree.path().join("l")).unwrap();
        let resolved = |path: &str| resolve_path(&tree, Path::new(path), &mut |_| Ok(()));
        let links = |count: usize| resolved(&vec!["l"; count].join("/"));
        let eloop = Some(Errno::ELOOP as i32);
        assert_eq!(resolved("loop").unwrap_err().raw_os_error(), eloop);
        assert!(links(40).is_ok());
        assert_eq!(links(41).unwrap_err().raw_os_error(), eloop);
    }
}
