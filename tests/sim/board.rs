//! The board: hidden state, from which its files follow.
#![allow(clippy::disallowed_methods)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::devices::{Hardware, Truth, boot_id};
use crate::os::tree::Tree;

/// The board, off or on.
pub(crate) struct Board {
    /// The root folder of its processes, until the end of the world.
    _tree: Tree,
    /// The same folder; a path is relative to it, because a thread of the board has another root.
    root: File,
    /// When the kernel started.
    pub(crate) booted: Duration,
    pub(crate) is_on: bool,
    pub(crate) boots: u64,
    pub(crate) host_name: String,
    pub(crate) hardware: Hardware,
    /// By inode: the path, and the number of changes that the kernel has reported.
    files: BTreeMap<u64, (String, u64)>,
    /// The kernel's files as they were last written.
    kernel: BTreeMap<String, String>,
    /// Inodes of files whose device is gone.
    gone: BTreeSet<u64>,
    /// Inodes of the card that were not read since the kernel started. The others are in its cache.
    cold: BTreeSet<u64>,
    /// The root is not mounted yet: an initramfs runs.
    pub(crate) is_early: bool,
    pub(crate) early_until: Duration,
}

const FOLDERS: &[&str] = &[
    "etc/credstore",
    "etc/default",
    "etc/kubernetes",
    "etc/systemd/system",
    "dev",
    "tmp",
    "usr/lib/systemd/system",
    "usr/bin",
    "var/lib/nodelet",
];

impl Board {
    /// A board that is off, with what an image has.
    pub(crate) fn new(host_name: &str) -> Self {
        let tree = Tree::in_memory("sim");
        let root = File::open(tree.path()).expect("the folder of the board");
        let mut board = Self {
            _tree: tree,
            root,
            booted: Duration::ZERO,
            is_on: false,
            boots: 0,
            host_name: host_name.to_owned(),
            hardware: Hardware::default(),
            files: BTreeMap::new(),
            kernel: BTreeMap::new(),
            gone: BTreeSet::new(),
            cold: BTreeSet::new(),
            is_early: false,
            early_until: Duration::ZERO,
        };
        for folder in FOLDERS {
            board.folder(folder);
        }
        board.put("etc/resolv.conf", b"nameserver 10.0.0.53\n");
        board.put("etc/hostname", host_name.as_bytes());
        board.put("dev/null", b"");
        board
    }

    /// The hardware of a plan, and the files of its image.
    pub(crate) fn equip(&mut self, setting: &BTreeMap<String, String>) {
        self.hardware = Hardware::of(setting);
        self.write_etc();
        // A person wrote a comment in an encoding of his own.
        let mut fstab = b"# Eintr\xe4ge\n/dev/mmcblk0p2 / ext4 defaults,noatime 0 1\n".to_vec();
        if self.hardware.setting("boot") == "fstab" {
            fstab.extend(b"/dev/mmcblk0p1 /boot vfat ro 0 2\n");
        }
        self.put("etc/fstab", &fstab);
    }

    /// Writes each file of /etc that follows from the hardware.
    pub(crate) fn write_etc(&mut self) {
        let h = &self.hardware;
        let mut files = vec![
            ("etc/hosts", h.hosts(&self.host_name)),
            ("etc/os-release", format!("NAME=Test\nPRETTY_NAME=\"Test OS {}\"\n", h.release)),
        ];
        if h.has_machine_id {
            files.push(("etc/machine-id", "0123456789abcdef0123456789abcdef\n".to_owned()));
        }
        for (path, text) in files {
            if self.read(path).as_deref() != Some(text.as_bytes()) {
                self.replace(path, text.as_bytes());
            }
        }
    }

    /// The root folder, for a thread that makes it its own.
    pub(crate) fn root(&self) -> File {
        self.root.try_clone().expect("a descriptor")
    }

    /// The kernel starts: /proc, /sys and /run are new.
    pub(crate) fn boot(&mut self, now: Duration) {
        self.boots += 1;
        self.is_on = true;
        self.booted = now.saturating_sub(Duration::from_secs(5));
        for folder in ["proc", "sys", "run"] {
            self.remove_all(folder);
            self.folder(folder);
            self.files.retain(|_, (path, _)| path.split('/').next() != Some(folder));
        }
        self.kernel.clear();
        self.gone.clear();
        self.forget_card();
        self.hardware.boot();
        if self.hardware.has_boot_id() {
            let id = boot_id(self.boots) + "\n";
            self.put("proc/sys/kernel/random/boot_id", id.as_bytes());
        }
        self.put("proc/sys/kernel/hostname", format!("{}\n", self.host_name).as_bytes());
        self.put("proc/uptime", b"5.00 5.00\n");
        self.put("proc/stat", b"btime 1782990000\n");
        self.folder("run/systemd/system");
        self.folder("run/systemd/timesync");
        self.folder("run/credentials/nodelet.service");
        self.folder("run/nodelet");
        self.refresh(now);
    }

    /// Nothing of the card is in the cache.
    fn forget_card(&mut self) {
        let mut cold = BTreeSet::new();
        for folder in ["etc", "var", ".root"] {
            self.walk(folder, &mut |path, _, _| cold.extend([self.inode(path)]));
        }
        self.cold = cold;
    }

    /// Whether the card is asked for a file, which then is in the cache.
    pub(crate) fn is_cold(&mut self, inode: u64) -> bool {
        self.cold.remove(&inode)
    }

    /// Writes each file that follows from the hardware, if it differs.
    pub(crate) fn refresh(&mut self, now: Duration) {
        self.hardware.settle();
        if !self.is_on {
            return;
        }
        let _ = now;
        let files = self.hardware.files(self.is_early);
        let old = std::mem::take(&mut self.kernel);
        for path in old.keys().filter(|path| !files.contains_key(*path)) {
            self.gone.insert(self.inode(path));
            self.remove_all(path);
        }
        for (path, text) in &files {
            if old.get(path) != Some(text) {
                self.put(path, text.as_bytes());
            }
        }
        self.kernel = files;
    }

    /// Before a read of a file that the kernel computes anew each time. `wall`: seconds since 1970
    /// by the board's clock.
    pub(crate) fn before_read(&mut self, path: &str, now: Duration, wall: u64) {
        let up = now.saturating_sub(self.booted).as_secs();
        let text = match path {
            "proc/uptime" => format!("{up}.00 {up}.00\n"),
            "proc/stat" => format!("cpu 1 2 3 4\nbtime {}\n", wall.saturating_sub(up)),
            _ => return,
        };
        self.put(path, text.as_bytes());
    }

    /// Whether the device of an open file is gone.
    pub(crate) fn is_gone(&self, inode: u64) -> bool {
        self.gone.contains(&inode)
    }

    /// What is true of the board.
    pub(crate) fn truth(&self) -> Truth {
        self.hardware.truth(self.boots, self.is_early)
    }

    // --- the tree, by any thread ---

    /// A file; open descriptors see its new content.
    pub(crate) fn put(&mut self, path: &str, content: &[u8]) {
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(0o600);
        let mut file = File::from(openat(&self.root, path, flags, mode).expect(path));
        file.write_all(content).expect(path);
        let inode = fstat(&file).expect(path).st_ino;
        self.files.entry(inode).or_insert((path.to_owned(), 0)).1 += 1;
    }

    /// Replaces a file as a person does: another one takes its place.
    pub(crate) fn replace(&mut self, path: &str, content: &[u8]) {
        let new = format!("{path}.person");
        self.put(&new, content);
        renameat(&self.root, new.as_str(), &self.root, path).expect(path);
        let inode = self.inode(path);
        self.files.insert(inode, (path.to_owned(), 1));
    }

    pub(crate) fn inode(&self, path: &str) -> u64 {
        let found = nix::sys::stat::fstatat(&self.root, path, AtFlags::AT_SYMLINK_NOFOLLOW);
        found.map_or(0, |stat| stat.st_ino)
    }

    pub(crate) fn read(&self, path: &str) -> Option<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mut file = File::from(openat(&self.root, path, flags, Mode::empty()).ok()?);
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).ok()?;
        Some(bytes)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.inode(path) != 0
    }

    pub(crate) fn folder(&self, path: &str) {
        for (end, _) in path.match_indices('/').chain([(path.len(), "")]) {
            let _ = mkdirat(&self.root, &path[..end], Mode::from_bits_truncate(0o755));
        }
    }

    pub(crate) fn link(&self, target: &str, path: &str) {
        let _ = unlinkat(&self.root, path, UnlinkatFlags::NoRemoveDir);
        let _ = symlinkat(target, &self.root, path);
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let _ = renameat(&self.root, from, &self.root, to);
    }

    pub(crate) fn link_target(&self, path: &str) -> Option<String> {
        readlinkat(&self.root, path).ok()?.into_string().ok()
    }

    /// The names in a folder, sorted.
    pub(crate) fn list(&self, path: &str) -> Vec<String> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let Ok(mut folder) = nix::dir::Dir::openat(&self.root, path, flags, Mode::empty()) else {
            return Vec::new();
        };
        let names = folder
            .iter()
            .filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        let mut names: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        names.sort_unstable();
        names
    }

    /// Removes a file, or a folder with all that is in it.
    pub(crate) fn remove_all(&self, path: &str) {
        if unlinkat(&self.root, path, UnlinkatFlags::NoRemoveDir).is_ok() {
            return;
        }
        for name in self.list(path) {
            self.remove_all(&format!("{path}/{name}"));
        }
        let _ = unlinkat(&self.root, path, UnlinkatFlags::RemoveDir);
    }

    pub(crate) fn path_of(&self, inode: u64) -> Option<&str> {
        self.files.get(&inode).map(|(path, _)| path.as_str())
    }

    pub(crate) fn version(&self, inode: u64) -> u64 {
        // poll(2) reports an error of a device that is gone, for ever.
        if self.is_gone(inode) {
            return u64::MAX;
        }
        self.files.get(&inode).map_or(0, |(_, version)| *version)
    }
}
