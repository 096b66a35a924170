//! The sizes of the file system of `--root-dir`, by statvfs of its nearest existing ancestor, and
//! of the file system of the container runtime's images.
//!
//! statvfs and stat block for ever on a network file system whose server is down, and one blocked
//! call loses the Lease. So each path is compared with this process's mount table first, and such
//! file systems are refused. The root file system can be such a file system, too. It is measured
//! once, at the start, because then it answers: this program was just loaded from it. A local file
//! system below such a root is kept open, because each path to it leads through the root.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::fcntl::OFlag;
use nix::sys::statvfs::{Statvfs, fstatvfs, statvfs};

use crate::kube::facts::{FsStats, Read, Unread};
use crate::os::guard::{self, Resolved, blocking_mount, resolve_path};
use crate::os::mounts::{self, Mount};
use crate::os::read::open_with;

use crate::os::root::{HostRoot, unread};
#[cfg(test)]
use crate::sim::hook as sim;

/// A file system that is measured again and again.
#[derive(Debug, Default)]
pub(super) struct MeasuredPath {
    folder: PathBuf,
    access: Option<DiskAccess>,
}

/// How a file system is measured.
#[derive(Debug)]
enum DiskAccess {
    /// A path on the file system, resolved and compared with the mounts. It is not a descriptor,
    /// because a descriptor would pin the mount. It must not be kept for long, because a component
    /// of the path may be replaced by a link, which changes no mount.
    Path(PathBuf),
    /// A local file system below a root that can block.
    Open(File),
    /// The result of the only read, on a root that can block.
    Asked(Read<Option<FsStats>>),
}

/// This process's mount table, for any root.
type OwnMounts = Read<Rc<[Mount]>>;

/// [`ancestor`] or [`mount_point`].
type Find = fn(&HostRoot, &Path, &[Mount]) -> Read<PathBuf>;

impl MeasuredPath {
    /// The sizes of the file system of `folder` below `root`, on which `find` finds a path; `None`
    /// if it has no size. `mounts` and `find` are the same in each call.
    pub(super) fn read(
        &mut self,
        root: &HostRoot,
        folder: &Path,
        mounts: &OwnMounts,
        find: Find,
    ) -> Read<Option<FsStats>> {
        if self.folder != folder {
            *self = Self { folder: folder.to_owned(), access: None };
        }
        root.may_read().map_err(|error| unread(&source(folder), &error))?;
        if let Some(access) = &self.access
            && let Ok(sizes) = access.measure(folder)
        {
            return sizes;
        }
        let mounts = mounts.as_deref().map_err(Clone::clone)?;
        let access = DiskAccess::of(root, folder, mounts, find)?;
        let sizes = access.measure(folder)?;
        self.access = Some(access);
        sizes
    }
}

impl DiskAccess {
    fn of(root: &HostRoot, folder: &Path, mounts: &[Mount], find: Find) -> Read<Self> {
        let path = find(root, folder, mounts);
        if !guard::root_blocks(mounts) {
            return path.map(Self::Path);
        }
        let path = match path {
            Ok(path) => path,
            // The failure is kept: the path is not looked for again.
            Err(unread) => return Ok(Self::Asked(Err(unread))),
        };
        if blocking_mount(&path, mounts).is_none() {
            let file = open_with(&path, OFlag::O_PATH);
            let kept = |error| Self::Asked(Err(unread(&source(folder), &error)));
            return Ok(file.map_or_else(kept, Self::Open));
        }
        // Without a size the Node is not Ready, so a file system that fails is asked again.
        let sizes = Self::Path(path).measure(folder)?;
        let once = |fs| FsStats { is_old: true, ..fs };
        Ok(Self::Asked(sizes.map(|fs| fs.map(once))))
    }

    /// The outer error is a failure of statvfs. The inner error says why there are no sizes.
    fn measure(&self, folder: &Path) -> Read<Read<Option<FsStats>>> {
        match self {
            Self::Path(path) => ask(folder, || statvfs(path)),
            Self::Open(file) => ask(folder, || fstatvfs(file)),
            Self::Asked(sizes) => Ok(sizes.clone()),
        }
    }
}

fn ask(folder: &Path, call: impl FnOnce() -> nix::Result<Statvfs>) -> Read<Read<Option<FsStats>>> {
    #[cfg(test)]
    if let Some(sizes) = sim::statvfs(folder) {
        return sizes;
    }
    let stat = call().map_err(|errno| unread(&source(folder), &errno.into()))?;
    Ok(sizes(&stat, folder))
}

/// `folder`, or its nearest ancestor that exists.
pub(super) fn ancestor(root: &HostRoot, folder: &Path, mounts: &[Mount]) -> Read<PathBuf> {
    let resolved = resolved(root, folder, mounts);
    resolved.map(|path| path.existing).map_err(|error| unread(&source(folder), &error))
}

/// The mount point of the file system that holds `folder`, which need not be readable: containerd's
/// folder is below a folder of mode 0700. A missing `folder` is an error: it is on another machine,
/// or the unit of this process hides it, and the nearest ancestor may be on another file system.
pub(super) fn mount_point(root: &HostRoot, folder: &Path, mounts: &[Mount]) -> Read<PathBuf> {
    let source = format!("mount of {}", folder.display());
    let mut below = folder.ancestors();
    let path = loop {
        let ancestor = below.next().unwrap_or(Path::new("/"));
        match resolved(root, ancestor, mounts).and_then(Resolved::found) {
            Ok(path) => break path.join(folder.strip_prefix(ancestor).unwrap_or(Path::new(""))),
            Err(error)
                if error.kind() == io::ErrorKind::PermissionDenied
                    && ancestor.parent().is_some() => {}
            Err(error) => return Err(unread(&source, &error)),
        }
    };
    not_hidden(&path, mounts)?;
    let point = mounts::over(mounts, &path).map_or(Path::new("/"), |mount| &mount.point);
    guard::may_touch(point, mounts).map_err(|error| unread(&source, &error))?;
    Ok(point.to_path_buf())
}

/// `Err` if systemd hides `path` by an inaccessible mount. An empty tmpfs over the path
/// (`ProtectHome=tmpfs`) is not recognised.
pub fn not_hidden(path: &Path, mounts: &[Mount]) -> Read<()> {
    let is_hidden = mounts::over(mounts, path).is_some_and(Mount::is_hidden);
    let cause =
        "nodelet.service hides it: remove ProtectHome= or InaccessiblePaths= from its drop-in";
    if is_hidden { Err(Unread::new(source(path), cause)) } else { Ok(()) }
}

fn source(folder: &Path) -> String {
    format!("statvfs {}", folder.display())
}

fn sizes(stat: &Statvfs, folder: &Path) -> Read<Option<FsStats>> {
    // The integer widths differ between targets.
    #[allow(clippy::useless_conversion)]
    let (unit, blocks, free, available) = (
        u64::from(stat.fragment_size()),
        u64::from(stat.blocks()),
        u64::from(stat.blocks_free()),
        u64::from(stat.blocks_available()),
    );
    #[allow(clippy::useless_conversion)]
    let (inodes, inodes_free) = (u64::from(stat.files()), u64::from(stat.files_free()));
    let bytes = |blocks: u64| blocks.checked_mul(unit);
    match (bytes(blocks), bytes(free), bytes(available)) {
        // ramfs, procfs and others have no size.
        (Some(0), ..) => Ok(None),
        (Some(capacity_bytes), Some(free_bytes), Some(available_bytes)) => Ok(Some(FsStats {
            capacity_bytes,
            free_bytes,
            available_bytes,
            inodes,
            inodes_free,
            is_old: false,
        })),
        _ => Err(Unread::new(source(folder), "more than 2^64 bytes")),
    }
}

fn resolved(root: &HostRoot, folder: &Path, mounts: &[Mount]) -> io::Result<Resolved> {
    // The root in this process's tree first, then the folder inside that root.
    let root = guard::found_in(root.path(), mounts)?;
    resolve_path(&root, folder, &mut |path| guard::may_touch(path, mounts))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    fn mount(point: &str, fs_type: &str) -> Mount {
        Mount { point: point.into(), fs_type: fs_type.into(), device: None }
    }

    fn read(root: &HostRoot, folder: &Path, mounts: &[Mount]) -> Read<Option<FsStats>> {
        MeasuredPath::default().read(root, folder, &Ok(mounts.into()), ancestor)
    }

    fn at(folder: &str, mounts: &[Mount]) -> Read<Option<FsStats>> {
        read(&HostRoot::default(), Path::new(folder), mounts)
    }

    #[test]
    fn a_missing_folder_is_measured_at_its_nearest_ancestor() {
        let existing = at("/", &[]).unwrap().unwrap();
        let missing = at("/no/such/folder", &[]).unwrap().unwrap();
        assert_eq!(existing.capacity_bytes, missing.capacity_bytes);
        assert!(existing.capacity_bytes > existing.available_bytes && existing.available_bytes > 0);
    }

    #[test]
    fn a_file_system_without_a_size_is_read() {
        assert_eq!(at("/proc/sys/nodelet", &[]), Ok(None));
    }

    #[test]
    fn a_file_system_that_can_block_is_refused_before_it_is_touched() {
        for fs_type in
            ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "fuseblk", "ceph", "afs", "autofs"]
        {
            let mounts = [mount("/", "ext4"), mount("/no-such-server", fs_type)];
            let error = at("/no-such-server/nodelet", &mounts).unwrap_err();
            assert_eq!(error.source, "statvfs /no-such-server/nodelet");
            assert!(
                error
                    .cause
                    .starts_with(&format!("/no-such-server is on {fs_type}, which can block")),
                "{}",
                error.cause
            );
            assert!(at("/", &mounts).is_ok());
        }
        assert!(at("/etc", &[mount("/", "ext4"), mount("/etc", "nfs4")]).is_err());
        assert!(at("/etc", &[mount("/", "nfs4"), mount("/", "ext4")]).is_ok());
    }

    #[test]
    fn a_root_that_can_block_is_asked_once_and_a_local_file_system_below_it_each_time() {
        let root = HostRoot::default();
        let tree = Tree::empty("disk-root");
        let local = tree.path().to_str().unwrap();
        let mounts = Ok([mount("/", "nfs4"), mount(local, "tmpfs")].into());
        for find in [ancestor as Find, mount_point] {
            let mut measured = MeasuredPath::default();
            let fs = measured.read(&root, Path::new("/proc/.."), &mounts, find).unwrap().unwrap();
            assert!(fs.is_old && fs.capacity_bytes > 0);
            assert!(matches!(measured.access, Some(DiskAccess::Asked(Ok(_)))));
            let mut measured = MeasuredPath::default();
            for _ in 0..2 {
                let fs = measured.read(&root, tree.path(), &mounts, find).unwrap().unwrap();
                assert!(!fs.is_old && fs.capacity_bytes > 0);
                assert!(matches!(measured.access, Some(DiskAccess::Open(_))));
            }
        }
    }

    #[test]
    fn below_a_root_that_can_block_a_failure_is_not_repeated() {
        let mounts = Ok([mount("/", "nfs4"), mount("/no-such", "nfs4")].into());
        let (mut measured, root) = (MeasuredPath::default(), HostRoot::default());
        let mut read = || measured.read(&root, Path::new("/no-such/x"), &mounts, ancestor);
        let refused = read().unwrap_err();
        assert!(refused.cause.starts_with("/no-such is on nfs4"), "{refused}");
        assert_eq!(read(), Err(refused));
        assert!(matches!(measured.access, Some(DiskAccess::Asked(Err(_)))));
    }

    #[test]
    fn a_link_to_a_file_system_that_can_block_is_refused() {
        let folder = Tree::empty("disk");
        std::fs::create_dir_all(folder.join("inside/far")).unwrap();
        std::os::unix::fs::symlink("/inside/far", folder.join("link")).unwrap();
        let mounts =
            [mount("/", "ext4"), mount(folder.join("inside/far").to_str().unwrap(), "nfs4")];
        let root = HostRoot::new(folder.path());
        let error = read(&root, Path::new("/link/x"), &mounts).unwrap_err();
        assert!(error.cause.contains("is on nfs4"), "{}", error.cause);
        assert!(read(&root, Path::new("/link/x"), &mounts[..1]).is_ok());
        assert!(read(&root, Path::new("/"), &mounts).is_ok());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(read(&root, Path::new("/"), &mounts).is_err());
    }

    #[test]
    fn images_that_the_unit_hides_are_not_measured_at_what_covers_them() {
        let tree = Tree::empty("disk-hidden");
        tree.write("home/store/x", b"");
        let home = tree.path().join("home");
        let line =
            |root: &str, fs: &str| format!("1 0 0:9 {root} {} ro - {fs} x rw", home.display());
        let read = |folder: &Path, line: &str| {
            let mounts = Ok([mount("/", "ext4"), mounts::parse_mountinfo(line).unwrap()].into());
            MeasuredPath::default().read(&HostRoot::default(), folder, &mounts, mount_point)
        };
        let store = home.join("store");
        let hidden = read(&store, &line("/systemd/inaccessible/dir", "tmpfs")).unwrap_err();
        assert!(hidden.cause.starts_with("nodelet.service hides it"), "{hidden}");
        assert!(read(&store, &line("/", "ext4")).is_ok());
        // ProtectHome=tmpfs: an empty folder.
        assert!(read(&home.join("other"), &line("/", "tmpfs")).is_err());
    }

    #[test]
    fn another_folder_is_resolved_again() {
        let (root, mounts) = (HostRoot::default(), Ok([][..].into()));
        let mut measured = MeasuredPath::default();
        assert!(measured.read(&root, Path::new("/"), &mounts, ancestor).is_ok());
        assert_eq!(measured.read(&root, Path::new("/proc/sys"), &mounts, ancestor), Ok(None));
    }

    #[test]
    fn without_a_mount_table_nothing_is_measured() {
        let unread = || Err(Unread::new("proc/self/mountinfo", "why"));
        let root = HostRoot::default();
        for find in [ancestor, mount_point] {
            let sizes = MeasuredPath::default().read(&root, Path::new("/"), &unread(), find);
            assert_eq!(sizes.unwrap_err().source, "proc/self/mountinfo");
        }
    }
}
