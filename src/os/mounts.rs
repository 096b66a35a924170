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
use std::collections::{BTreeMap, BTreeSet};
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
    /// `ext4`, `cgroup2`, `fuse.sshfs`. For an overlay with a layer that can block, the type of
    /// this layer. For a path that systemd hides, a text that says so.
    pub fs_type: String,
    /// Device number of the file system, major and minor; `None` in proc/mounts. For an overlay
    /// with a layer that can block, that of this layer, unless the overlay is the root.
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
/// example, /srv/data is a local disk, and then a server is mounted at /srv. The order of the table
/// does not say which mount is later.
fn remove_covered(lines: &mut Vec<TableLine>) {
    let points: BTreeSet<(u32, &OsStr)> =
        lines.iter().map(|line| (line.parent, line.mount.point.as_os_str())).collect();
    // A mount over a folder of the same parent: the walk to the point leaves the parent there. A
    // mount over / covers nothing: a walk begins at the root of the process, below that mount.
    let is_covered = |line: &&TableLine| {
        let above = line.mount.point.ancestors().skip(1);
        let mut above = above.filter(|above| above.parent().is_some());
        above.any(|above| points.contains(&(line.parent, above.as_os_str())))
    };
    let mut covered: BTreeSet<u32> = lines.iter().filter(is_covered).map(|line| line.id).collect();
    if covered.is_empty() {
        return;
    }
    // What is mounted on a covered mount is covered, too.
    loop {
        let count = covered.len();
        let below = lines.iter().filter(|line| covered.contains(&line.parent));
        let below: Vec<u32> = below.map(|line| line.id).collect();
        covered.extend(below);
        if covered.len() == count {
            break;
        }
    }
    lines.retain(|line| !covered.contains(&line.id));
}

/// The options of an overlay, from the line of its mount; empty for another file system.
fn overlay_options(line: &str) -> &str {
    let options = line.split_once(" - overlay ").and_then(|(_, rest)| rest.split(' ').nth(1));
    options.unwrap_or_default()
}

/// The folders that an overlay is made of, from its options. The kernel writes a comma in a name as
/// an octal escape, and keeps the backslashes of the options (ovl_show_options in
/// fs/overlayfs/params.c). A colon in a folder's name cuts this name; the part before the colon is
/// mostly below the same mount.
fn parse_layers(options: &str) -> Vec<PathBuf> {
    let mut layers = Vec::new();
    for word in options.split(',') {
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
    // Not as paths, see [`over`].
    mounts.iter().rev().find(|mount| mount.point.as_os_str() == point)
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

/// Whether a reboot loses what is written to a file system of this type: `Some(true)` for one in
/// memory, `Some(false)` for an overlay, whose upper layer may be in memory.
pub fn is_volatile(fs_type: &str) -> Option<bool> {
    match fs_type {
        "tmpfs" | "ramfs" | "rootfs" => Some(true),
        "overlay" => Some(false),
        _ => None,
    }
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

/// Gives each overlay the type and the device of a layer that can block. `options` are those of
/// each mount that is an overlay. An overlay of folders of the root has the root's device, so it
/// may be touched where the root may. The root keeps its own device, which its bind mounts have.
///
/// If no layer of the root can block by the mount table, the root can block if `cmdline` says so:
/// layers that were mounted in an initramfs may be out of reach, and layers may be images in files
/// of a network file system (LTSP).
fn follow_layers(mounts: &mut [Mount], options: &[Box<str>], cmdline: &str) {
    if options.iter().all(|options| options.is_empty()) {
        return;
    }
    // An overlay may be a layer of another one, and that one of none (FILESYSTEM_MAX_STACK_DEPTH).
    for _ in 0..2 {
        let root = at(mounts, "/");
        let is_of_root = |mount: &Mount| root.is_some_and(|root| mount.is_file_system_of(root));
        let starts: Vec<String> = mounts.iter().filter_map(start_of_layers).collect();
        // Hundreds of containers have tens of layers each, and `over` would compare each of these
        // with each mount.
        let mut points: BTreeMap<&OsStr, Vec<&Mount>> = BTreeMap::new();
        for mount in mounts.iter() {
            points.entry(mount.point.as_os_str()).or_default().push(mount);
        }
        // A layer at the place of the overlay is what was there before: `lowerdir=/var` on /var.
        let over = |layer: &Path, own: &Mount| {
            layer.ancestors().find_map(|above| {
                let mut at = points.get(above.as_os_str())?.iter().rev();
                at.find(|mount| !mount.is_file_system_of(own)).copied()
            })
        };
        let followed = |(mount, options): (&Mount, &str)| {
            if options.is_empty() || mount.can_block() {
                return None;
            }
            let is_named = starts.iter().any(|start| options.contains(start.as_str()));
            let layers = if is_named { parse_layers(options) } else { Vec::new() };
            let held = layers.iter().filter_map(|layer| over(layer, mount));
            let mut blocking = held.filter(|mount| mount.can_block());
            // A layer on another server than the root's counts first: it may not be touched.
            let layer = blocking.clone().find(|mount| !is_of_root(mount));
            match layer.or_else(|| blocking.next()) {
                layer if is_of_root(mount) => {
                    let of_layer = layer.map(|layer| layer.fs_type.as_str());
                    let fs_type = of_layer.or_else(|| network_root(cmdline))?;
                    Some((fs_type.to_owned(), mount.device))
                }
                layer => layer.map(|layer| (layer.fs_type.clone(), layer.device)),
            }
        };
        let options = options.iter().map(|options| &**options);
        let followed: Vec<_> = mounts.iter().zip(options).map(followed).collect();
        if followed.iter().all(Option::is_none) {
            break;
        }
        for (mount, found) in mounts.iter_mut().zip(followed) {
            if let Some(found) = found {
                (mount.fs_type, mount.device) = found;
            }
        }
    }
}

/// With what the text of each layer on this mount begins, if the mount can block. A character that
/// the kernel may write as an escape ends it.
fn start_of_layers(mount: &Mount) -> Option<String> {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "/._-".contains(*c);
    mount.can_block().then(|| mount.point.to_string_lossy().chars().take_while(is_plain).collect())
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
        // The path is not checked: it is on procfs. What a read of the table may wait for is the
        // disk of a btrfs, in whose tree the kernel looks up the name of a mounted subvolume.
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

/// What a line of a table says.
struct TableLine {
    mount: Mount,
    id: u32,
    parent: u32,
    /// Of an overlay.
    options: Box<str>,
}

/// What the lines of a table say.
#[derive(Default)]
struct TableLines {
    lines: Vec<TableLine>,
    /// Bytes of all options.
    options: u64,
}

impl TableLines {
    fn take(&mut self, line: &str) {
        let Some((mount, (id, parent))) = parse_mountinfo(line).zip(parse_ids(line)) else {
            return;
        };
        let mut options = overlay_options(line);
        self.options += options.len() as u64;
        // The overlays of the board are mounted before those of hundreds of containers.
        if self.options > LARGE {
            options = "";
        }
        self.lines.push(TableLine { mount, id, parent, options: options.into() });
    }

    /// The mounts that a path reaches. `cmdline` reads the kernel's command line.
    fn mounts<'a>(mut self, cmdline: impl FnOnce() -> &'a [u8]) -> Vec<Mount> {
        remove_covered(&mut self.lines);
        let lines = self.lines.into_iter().map(|line| (line.mount, line.options));
        let (mut mounts, options): (Vec<Mount>, Vec<Box<str>>) = lines.unzip();
        let mut roots = mounts.iter().zip(&options).filter(|(m, _)| m.point == Path::new("/"));
        let has_layers = roots.next_back().is_some_and(|(_, options)| !options.is_empty());
        let cmdline = if has_layers { cmdline() } else { &[] };
        follow_layers(&mut mounts, &options, &String::from_utf8_lossy(cmdline));
        mounts
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
            assert_eq!(overlay_options(&line), "");
        }
    }

    /// Of a server at /mnt/nfs, a root on a disk or on a server, and overlays of their folders.
    #[test]
    fn an_overlay_that_is_not_the_root_can_block_if_a_layer_can() {
        let server = "2 1 0:44 / /mnt/nfs rw - nfs4 server:/ rw\n\
                      3 1 0:45 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n\
                      4 1 0:46 / /run rw - tmpfs tmpfs rw\n";
        let of = |root: &str, overlay: &str, cmdline: &str| {
            let mut lines = TableLines::default();
            let overlay = format!("9 1 0:50 / /var rw - overlay overlay rw,{overlay}\n");
            format!("{root}\n{overlay}{server}").lines().for_each(|line| lines.take(line));
            let mounts = lines.mounts(|| cmdline.as_bytes());
            let var = over(&mounts, Path::new("/var/lib")).unwrap();
            (var.fs_type.clone(), var.is_file_system_of(&mounts[0]))
        };
        let disk = "1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw";
        let covered = "1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n\
                       8 1 0:47 / /var rw - nfs4 server:/var rw";
        let net = "1 0 0:20 / / rw - nfs4 server:/pi rw";
        let overlay = "1 0 0:21 / / rw - overlay overlay rw,lowerdir=/ro,upperdir=/rw";
        for (root, layers, cmdline, want) in [
            (disk, "lowerdir=/mnt/nfs/var,upperdir=/run/up", "", ("nfs4", false)),
            (covered, "lowerdir=/var,upperdir=/run/up", "", ("nfs4", false)),
            (disk, "lowerdir=/a:/b,upperdir=/mnt/nfs/up", "root=/dev/nfs", ("nfs4", false)),
            (
                disk,
                "lowerdir=/var:/mnt/nfsroot,upperdir=/run/up",
                "root=/dev/nfs",
                ("overlay", false),
            ),
            // The root may be touched, and so may its folders; another server may not.
            (net, "lowerdir=/var,upperdir=/run/up", "", ("nfs4", true)),
            (net, "lowerdir=/var:/mnt/nfs/var,upperdir=/run/up", "", ("nfs4", false)),
            (net, "lowerdir=/run/low,upperdir=/run/up", "", ("overlay", false)),
            // An overlay on an overlay.
            (overlay, "lowerdir=/var,upperdir=/run/up", "root=nfs:", ("nfs", true)),
            (overlay, "lowerdir=/var,upperdir=/run/up", "", ("overlay", false)),
        ] {
            let (fs_type, is_of_root) = of(root, layers, cmdline);
            assert_eq!((fs_type.as_str(), is_of_root), want, "{root}: {layers}");
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
        let options = format!("lowerdir=/l{}", ":/lower".repeat(45));
        let line =
            |number| format!("{number} 26 0:5 / /mnt/{number} rw - overlay none rw,{options}\n");
        let root = "1 0 0:1 / / rw - nfs4 server:/pi rw\n".to_owned();
        let text: String = root + &(0..6000).map(line).collect::<String>();
        assert!(text.len() > 2 << 20);
        tree.write("mountinfo", text.as_bytes());
        let mounts = read_table(open(&tree.join("mountinfo")).unwrap()).unwrap().mounts;
        assert_eq!(mounts.len(), 6001);
        assert_eq!(mounts[6000].point, Path::new("/mnt/5999"));
        // Of 1 MiB.
        let followed = mounts.iter().filter(|mount| mount.fs_type == "nfs4").count();
        assert!((2000..4000).contains(&followed), "{followed}");
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
