//! The mount table: the lines of its two forms, which mount holds a path, and the table of this
//! process.
//!
//! The crate procfs is not used: its mountinfo keeps the octal escapes, its proc/mounts does not
//! decode \040 (space), and one malformed line fails the whole table. Here it is `None`. A mount
//! point that is not UTF-8 matches no path.
//!
//! `guard` needs the table of this process before every file access. To read and parse it takes
//! 200,000 instructions on arm64, to ask the kernel for a change 1,200: it is read again only after
//! a change.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::OnceLock;

use nix::errno::Errno;

use super::read::{LARGE, SMALL, cause, each_line, from_start, has_changed, open, whole};
use crate::kube::text::Fault;

/// The table of this process, relative to `/` or to another root.
pub const MOUNTINFO: &str = "proc/self/mountinfo";

/// File system types whose calls wait for a server, another process or an automounter.
const CAN_BLOCK: [&str; 21] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs3", "nfs4", "orangefs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
];

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Mount point, with its escapes decoded.
    pub point: PathBuf,
    /// `ext4`, `cgroup2`, `fuse.sshfs`. For a root with a layer that can block, the type of this
    /// layer. For a path that systemd hides, a text that says so.
    pub fs_type: String,
    /// Device number of the file system, major and minor; `None` in proc/mounts.
    pub device: Option<(u32, u32)>,
}

/// The type of what systemd mounts over a path of `ProtectHome=yes` or `InaccessiblePaths=`: an
/// empty folder or file of /run, which says nothing about the path (src/shared/mount-setup.c).
const HIDDEN: &str = "hidden by systemd";

impl Mount {
    /// Whether the unit of this process hides what is mounted there.
    pub fn is_hidden(&self) -> bool {
        self.fs_type == HIDDEN
    }

    /// Whether both mounts have one file system. systemd binds the folders of a unit
    /// (StateDirectory=) over themselves: each is a mount of its own, with the root's file system.
    pub fn is_file_system_of(&self, other: &Self) -> bool {
        self == other || self.device.is_some() && self.device == other.device
    }

    /// Whether a call to this file system can block for ever.
    pub fn can_block(&self) -> bool {
        can_block(&self.fs_type)
    }
}

fn can_block(fs_type: &str) -> bool {
    CAN_BLOCK.contains(&fs_type) || fs_type.starts_with("fuse.")
}

/// `<id> <parent> <dev> <root> <point> <options> [<tag>..] - <type> <source> <options>`
pub fn parse_mountinfo(line: &str) -> Option<Mount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (major, minor) = fields.next()?.split_once(':')?;
    let is_hidden = fields.next()?.starts_with("/systemd/inaccessible/");
    let fs_type = file_system.split(' ').next()?;
    Some(Mount {
        point: unescape(fields.next()?),
        fs_type: if is_hidden { HIDDEN } else { fs_type }.to_owned(),
        device: major.parse().ok().zip(minor.parse().ok()),
    })
}

/// The ids of the mount of a line of mountinfo and of its parent.
fn parse_ids(line: &str) -> Option<(u32, u32)> {
    let mut fields = line.split(' ').map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

/// Removes the mounts that no path reaches: a later mount covers a folder above their point. For
/// example, /srv/data is a local disk, and then a server is mounted at /srv. `ids` are those of
/// each mount and of its parent. The order of the table does not say which mount is later.
fn remove_covered(mounts: &mut Vec<Mount>, ids: &[(u32, u32)]) {
    let points: BTreeSet<(u32, &OsStr)> = ids
        .iter()
        .zip(&*mounts)
        .map(|(&(_, parent), mount)| (parent, mount.point.as_os_str()))
        .collect();
    // A mount over a folder of the same parent: the walk to the point leaves the parent there. A
    // mount over / covers nothing: a walk begins at the root of the process, below that mount.
    let is_covered = |mount: &Mount, parent| {
        let mut above = mount.point.ancestors().skip(1).filter(|above| above.parent().is_some());
        above.any(|above| points.contains(&(parent, above.as_os_str())))
    };
    let covered = mounts.iter().zip(ids).filter(|(mount, (_, parent))| is_covered(mount, *parent));
    let mut covered: BTreeSet<u32> = covered.map(|(_, &(id, _))| id).collect();
    if covered.is_empty() {
        return;
    }
    // What is mounted on a covered mount is covered, too.
    loop {
        let count = covered.len();
        let below: Vec<u32> =
            ids.iter().filter(|(_, parent)| covered.contains(parent)).map(|&(id, _)| id).collect();
        covered.extend(below);
        if covered.len() == count {
            break;
        }
    }
    let mut ids = ids.iter();
    mounts.retain(|_| ids.next().is_none_or(|(id, _)| !covered.contains(id)));
}

/// The folders that an overlay is made of, from the line of its mount; empty for another file
/// system. The kernel writes a comma in a name as an octal escape, and keeps the backslashes of the
/// options (ovl_show_options in fs/overlayfs/params.c). A colon in a folder's name cuts this name;
/// the part before the colon is mostly below the same mount.
fn parse_layers(line: &str) -> Vec<PathBuf> {
    let options = line.split_once(" - overlay ").and_then(|(_, rest)| rest.split(' ').nth(1));
    let mut layers = Vec::new();
    for word in options.unwrap_or_default().split(',') {
        let (key, value) = word.split_once('=').unwrap_or_default();
        if matches!(key, "lowerdir" | "lowerdir+" | "datadir+" | "upperdir") {
            let value = unescape(value).to_string_lossy().replace('\\', "");
            layers.extend(value.split(':').map(PathBuf::from));
        }
    }
    layers
}

/// The file system of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The device number, `179:2`.
    pub number: String,
    /// Mount point, with its escapes decoded; what is not UTF-8 is replaced.
    pub point: String,
    /// `ext4`, `overlay`.
    pub fs_type: String,
    /// `/dev/mmcblk0p2`, `/dev/root`.
    pub source: String,
    /// Options of the superblock, not of the mount: `rw,errors=remount-ro`.
    pub options: String,
}

/// The file system of a line of mountinfo, if its type `is_wanted`.
pub fn parse_superblock(line: &str, is_wanted: fn(&str) -> bool) -> Option<Superblock> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = file_system.split_whitespace();
    let fs_type = fields.next().filter(|fs_type| is_wanted(fs_type))?;
    Some(Superblock {
        number: mount.split(' ').nth(2)?.to_owned(),
        point: unescape(mount.split(' ').nth(4)?).to_string_lossy().into_owned(),
        fs_type: fs_type.to_owned(),
        source: fields.next()?.to_owned(),
        options: fields.next()?.to_owned(),
    })
}

/// The mount points of fstab, and whether each has the option `ro`. Bind mounts are left out: their
/// `ro` is of the mount alone, not of the file system (mount(8)).
pub fn points_in_fstab(fstab: &str) -> Vec<(PathBuf, bool)> {
    let point = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let point = fields.next()?;
        let options = fields.nth(1)?;
        let has = |word: &str| options.split(',').any(|option| option == word);
        (!has("bind") && !has("rbind")).then(|| (unescape(point), has("ro")))
    };
    let lines = fstab.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(point).collect()
}

/// `<source> <point> <type> <options> 0 0`; the source may be empty.
pub fn parse_mounts(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(1);
    let (point, fs_type) = (unescape(fields.next()?), fields.next()?.to_owned());
    Some(Mount { point, fs_type, device: None })
}

/// The mount at exactly `point`; the last of several, which covers the others.
pub fn at<'a>(mounts: &'a [Mount], point: &str) -> Option<&'a Mount> {
    mounts.iter().rev().find(|mount| mount.point == Path::new(point))
}

/// The mount that holds `path`: the one with the longest mount point, and the last of equal ones.
/// `path` must be absolute and free of links and `..`. Makes no system call.
pub fn over<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    // Bytes, because Path::starts_with parses both paths for each of many mounts. The kernel writes
    // mount points in the same normal form.
    let path = path.as_os_str().as_bytes();
    let holds = |point: &[u8]| match path.strip_prefix(point) {
        Some(below) => point == b"/" || below.is_empty() || below.starts_with(b"/"),
        None => false,
    };
    let point = |mount: &'a Mount| mount.point.as_os_str().as_bytes();
    mounts.iter().filter(|mount| holds(point(mount))).max_by_key(|mount| point(mount).len())
}

/// The type of the network file system that this kernel's command line mounts as the root:
/// `root=/dev/nfs`, `root=nfs4:server:/path`, `netboot=nfs`, `rootfstype=9p`.
fn network_root(cmdline: &str) -> Option<&str> {
    cmdline.split_whitespace().find_map(|word| {
        let (key, value) = word.split_once('=')?;
        let is_it = matches!(key, "root" | "rootfstype" | "boot" | "netboot" | "netroot");
        let fs_type = value.strip_prefix("/dev/").unwrap_or(value).split(':').next()?;
        (is_it && can_block(fs_type)).then_some(fs_type)
    })
}

/// If the root is an overlay of `layers`, gives it the type of the layer that can block. If no
/// layer can block by the mount table, the root can block if `cmdline` says so: layers that were
/// mounted in an initramfs may be out of reach, and layers may be images in files of a network file
/// system (LTSP).
fn follow_layers(mounts: &mut [Mount], layers: &[PathBuf], cmdline: &str) {
    let mut holds = layers.iter().filter_map(|layer| over(mounts, layer));
    let blocking = holds.find(|mount| mount.can_block()).map(|mount| mount.fs_type.as_str());
    let fs_type = blocking.or_else(|| network_root(cmdline)).map(str::to_owned);
    if let (Some(fs_type), Some(root)) = (fs_type, at(mounts, "/").cloned()) {
        let of_root = mounts.iter_mut().filter(|mount| mount.is_file_system_of(&root));
        of_root.for_each(|mount| mount.fs_type.clone_from(&fs_type));
    }
}

/// The kernel writes space, tab, newline, backslash and hash as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', beyond @ ..]) =
            (byte, after)
        {
            bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = beyond;
        } else {
            bytes.push(byte);
            rest = after;
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[derive(Debug)]
struct Table {
    /// Opened before the table was read, so that no change is missed.
    file: File,
    mounts: Rc<[Mount]>,
}

thread_local! {
    /// A copy of a kernel file, not a state: no caller can tell it from a new read.
    static LAST_READ: Cell<Option<Table>> = const { Cell::new(None) };
}

/// The current mounts of this process, in the kernel's order. While no mount changes, each call
/// returns the same allocation.
pub fn all_mounts() -> io::Result<Rc<[Mount]>> {
    let table = match LAST_READ.take() {
        Some(table) if !has_changed(&table.file) => table,
        // The descriptor works even while another mount covers /proc.
        Some(table) => read_table(table.file)?,
        // The path is not checked: procfs does not block.
        None => read_table(open(&Path::new("/").join(MOUNTINFO))?)?,
    };
    let mounts = table.mounts.clone();
    LAST_READ.set(Some(table));
    Ok(mounts)
}

/// Whether `path` is on the file system of an initramfs, which is lost when the root is mounted.
pub fn is_in_initramfs(path: &Path) -> bool {
    let is_it = |mounts: Rc<[Mount]>| over(&mounts, path).is_some_and(|m| m.fs_type == "rootfs");
    all_mounts().is_ok_and(is_it)
}

/// Like [`all_mounts`], for the check of a path. Without the table no path may be touched. The
/// error is never NotFound, so that no caller takes the checked file for missing.
pub fn own_mounts() -> io::Result<Rc<[Mount]>> {
    all_mounts().map_err(|error| {
        let remedy = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => "is /proc mounted?",
            Some(Errno::EMFILE) => "raise the limit of open files (LimitNOFILE=)",
            _ => "",
        };
        let cause = cause(&error);
        let what = format!(
            "/{MOUNTINFO}: {cause}, so no file is read: it could be on a mount that blocks"
        );
        io::Error::other(Fault::new(what, remedy))
    })
}

fn read_table(file: File) -> io::Result<Table> {
    let mut lines = TableLines::default();
    from_start(&file, LARGE, &mut each_line(&mut |line: &str| lines.take(line)))?;
    // Read once: the path is looked up from the root, which may block by now.
    static CMDLINE: OnceLock<Vec<u8>> = OnceLock::new();
    let read = || open(Path::new("/proc/cmdline")).and_then(|file| whole(file, SMALL));
    let mounts = lines.mounts(|| match CMDLINE.get() {
        Some(cmdline) => cmdline,
        None => read().map_or(&[][..], |cmdline| CMDLINE.get_or_init(|| cmdline)),
    });
    Ok(Table { file, mounts: mounts.into() })
}

/// What the lines of a table say.
#[derive(Default)]
struct TableLines {
    mounts: Vec<Mount>,
    /// Of each mount.
    ids: Vec<(u32, u32)>,
    /// Of the root.
    layers: Vec<PathBuf>,
}

impl TableLines {
    fn take(&mut self, line: &str) {
        let Some((mount, ids)) = parse_mountinfo(line).zip(parse_ids(line)) else { return };
        if mount.point == Path::new("/") {
            self.layers = parse_layers(line);
        }
        self.mounts.push(mount);
        self.ids.push(ids);
    }

    /// The mounts that a path reaches. `cmdline` reads the kernel's command line.
    fn mounts<'a>(mut self, cmdline: impl FnOnce() -> &'a [u8]) -> Vec<Mount> {
        remove_covered(&mut self.mounts, &self.ids);
        if !self.layers.is_empty() {
            follow_layers(&mut self.mounts, &self.layers, &String::from_utf8_lossy(cmdline()));
        }
        self.mounts
    }
}

/// Makes `mountinfo` the table of this thread, until a mount changes.
#[cfg(test)]
pub(crate) fn pretend(mountinfo: &str) {
    let file = open(&Path::new("/").join(MOUNTINFO)).unwrap();
    let mut lines = TableLines::default();
    mountinfo.lines().for_each(|line| lines.take(line));
    let mounts = lines.mounts(|| b"");
    LAST_READ.set(Some(Table { file, mounts: mounts.into() }));
}

/// The same with one mount.
#[cfg(test)]
pub(crate) fn pretend_mount(point: &Path, fs_type: &str) {
    pretend(&format!("1 0 0:1 / {} rw - {fs_type} source rw\n", point.display()));
}

/// Makes the next read of the table of this thread fail.
#[cfg(test)]
pub(crate) fn pretend_unreadable() {
    // poll(2) reports the closed end, as a change.
    let (_, end) = io::pipe().unwrap();
    let file = File::from(std::os::fd::OwnedFd::from(end));
    LAST_READ.set(Some(Table { file, mounts: Rc::new([]) }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

    fn mount(point: &str, fs_type: &str) -> Mount {
        Mount { point: point.into(), fs_type: fs_type.into(), device: None }
    }

    #[test]
    fn both_formats_are_read() {
        let mountinfo = "26 0 8:1 / / rw,relatime shared:1 master:2 - ext4 /dev/sda1 rw\n28 26 0:5 / /mnt/a\\040b rw -  tmpfs rw\n30 26 0:6 / /x rw - nfs4 server:/a\\040-\\040b rw\nhalf a line\n31 26 0:25 /systemd/inaccessible/dir /home ro - tmpfs tmpfs rw\n";
        assert_eq!(
            mountinfo
                .lines()
                .filter_map(parse_mountinfo)
                .map(|mount| Mount { device: None, ..mount })
                .collect::<Vec<_>>(),
            [
                mount("/", "ext4"),
                mount("/mnt/a b", ""),
                mount("/x", "nfs4"),
                mount("/home", HIDDEN)
            ]
        );
        let mounts = "/dev/root / ext4 rw 0 0\n /empty\\134source tmpfs ro 0 0\nhalf\n";
        let mounts: Vec<Mount> = mounts.lines().filter_map(parse_mounts).collect();
        assert_eq!(mounts, [mount("/", "ext4"), mount("/empty\\source", "tmpfs")]);
    }

    #[test]
    fn the_options_of_a_superblock_are_the_last_field() {
        let mountinfo = "25 1 179:2 / / ro,noatime shared:1 - ext4 /dev/root rw,errors=remount-ro\n\
            26 25 0:20 / /run rw - tmpfs tmpfs rw\n\
            27 25 179:1 / /boot\\040x rw - vfat /dev/mmcblk0p1 ro\nhalf - ext4\n- ext4 a rw\n";
        let superblock = |line| parse_superblock(line, |fs_type| fs_type != "tmpfs");
        let found: Vec<Superblock> = mountinfo.lines().filter_map(superblock).collect();
        let fields = |s: &Superblock| {
            let Superblock { number, point, fs_type, source, options } = s;
            format!("{number} {point} {fs_type} {source} {options}")
        };
        let found: Vec<String> = found.iter().map(fields).collect();
        let want =
            ["179:2 / ext4 /dev/root rw,errors=remount-ro", "179:1 /boot x vfat /dev/mmcblk0p1 ro"];
        assert_eq!(found, want);
    }

    #[test]
    fn fstab_lists_what_is_read_only_by_design() {
        let fstab = "# /dev/a /commented ext4 ro\n/dev/a / ext4 defaults,errors=remount-ro 0 1\n\
            /dev/b\t/boot\\040x\tvfat\tdefaults,ro\n/dev/c /c vfat\n\
            /a /b none bind,ro\n/a /c none ro,rbind,x-mount.mkdir\n";
        let want = [("/", false), ("/boot x", true)].map(|(point, ro)| (point.into(), ro));
        assert_eq!(points_in_fstab(fstab), want);
    }

    #[test]
    fn an_invalid_escape_is_kept() {
        for (field, name) in [
            ("a\\040b\\011c\\012d\\043e", "a b\tc\nd#e"),
            ("a\\04", "a\\04"),
            ("\\", "\\"),
            ("\\999", "\\999"),
            ("\\777", "\\777"),
        ] {
            assert_eq!(unescape(field), PathBuf::from(name));
        }
    }

    #[test]
    fn a_root_that_is_an_overlay_can_block_if_a_layer_can() {
        let overlay = |options: &str| format!("24 1 0:23 / / rw - overlay overlay rw,{options}\n");
        let nfs = "25 24 0:44 / /media/root-ro ro - nfs4 10.0.0.9:/root rw\n\
            26 24 0:45 / /mnt/a\\040b,c ro - virtiofs tag rw\n\
            27 25 0:46 / /media/root-ro/data rw - tmpfs tmpfs rw\n";
        let type_of_root = |options: &str, others: &str, cmdline: &str| {
            let mut lines = TableLines::default();
            (overlay(options) + others).lines().for_each(|line| lines.take(line));
            lines.mounts(|| cmdline.as_bytes())[0].fs_type.clone()
        };
        // overlayroot; piserver; of `mount -o 'lowerdir=/lower:/mnt/a\ b\,c/d\:e'`, Linux 6.18.
        for (options, want) in [
            ("lowerdir=/media/root-ro,upperdir=/media/root-rw/up,workdir=/x", "nfs4"),
            ("lowerdir=/ro:/l,upperdir=/media/root-ro/up,workdir=/media/root-ro/w", "nfs4"),
            ("lowerdir=/lower:/mnt/a\\134\\040b\\134\\054c/d\\134:e,redirect_dir=on", "virtiofs"),
            ("lowerdir+=/ro,datadir+=/media/root-ro", "nfs4"),
            ("lowerdir=/media/root-ro/data:l/X::/media/root-rose", "overlay"),
            ("workdir=/media/root-ro", "overlay"),
        ] {
            assert_eq!(type_of_root(options, nfs, ""), want, "{options}");
        }
        // The layers are out of reach: OpenWrt, a container, raspi-config, LTSP.
        for (cmdline, want) in [
            ("console=ttyS0,115200 rootfstype=squashfs,jffs2", "overlay"),
            ("root=PARTUUID=1-02 rootfstype=ext4 boot=overlay nfsroot", "overlay"),
            ("root=/dev/nfs nfsroot=10.0.0.9:/root,vers=3 boot=overlay", "nfs"),
            ("root=nfs4:10.0.0.9:/root rd.neednet=1", "nfs4"),
            ("boot=casper netboot=nfs nfsroot=10.0.0.9:/root", "nfs"),
            ("root=tag rootfstype=virtiofs rw\n", "virtiofs"),
            ("", "overlay"),
        ] {
            let options = "lowerdir=/,upperdir=/overlay/upper,workdir=/overlay/work";
            assert_eq!(type_of_root(options, "", cmdline), want, "{cmdline}");
        }
        // An initramfs, or the disk of a board that was booted from a network.
        for fs_type in ["rootfs", "ext4"] {
            let line = format!("1 1 0:2 / / rw - {fs_type} x rw,lowerdir=/x");
            assert_eq!(parse_layers(&line), [] as [PathBuf; 0]);
        }
    }

    #[test]
    fn the_longest_point_wins_and_of_equal_ones_the_last() {
        let mounts = [
            mount("/", "rootfs"),
            mount("/", "ext4"),
            mount("/var", "tmpfs"),
            mount("/var/lib", "nfs"),
            mount("/var/lib", "xfs"),
            mount("/va", "cifs"),
        ];
        let over = |path: &str| over(&mounts, Path::new(path)).unwrap().fs_type.as_str();
        assert_eq!(over("/"), "ext4");
        assert_eq!(over("/variable"), "ext4");
        assert_eq!(over("/var"), "tmpfs");
        assert_eq!(over("/var/lib"), "xfs");
        assert_eq!(over("/var/lib/nodelet"), "xfs");
        assert_eq!(at(&mounts, "/").unwrap().fs_type, "ext4");
        assert_eq!(at(&mounts, "/usr"), None);
    }

    #[test]
    fn a_table_of_any_size_is_read() {
        let tree = Tree::empty("mounts-large");
        let options = "lowerdir=/l".repeat(30);
        let line =
            |number| format!("{number} 26 0:5 / /mnt/{number} rw - overlay none rw,{options}\n");
        let text: String = (0..6000).map(line).collect();
        assert!(text.len() > 2 << 20);
        tree.write("mountinfo", text.as_bytes());
        let mounts = read_table(open(&tree.join("mountinfo")).unwrap()).unwrap().mounts;
        assert_eq!(mounts.len(), 6000);
        assert_eq!(mounts[5999].point, Path::new("/mnt/5999"));
    }

    #[test]
    fn the_table_is_read_once_while_no_mount_changes() {
        // Another process may mount something between two calls.
        let is_same = || Rc::ptr_eq(&own_mounts().unwrap(), &own_mounts().unwrap());
        assert!((0..100).any(|_| is_same()));
        let is_same = || Rc::ptr_eq(&all_mounts().unwrap(), &all_mounts().unwrap());
        assert!((0..100).any(|_| is_same()));
    }
}
