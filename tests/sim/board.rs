//! The board: hidden state, from which its files follow.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use crate::kube::facts::{FileSystem, Interface, Read};
use crate::os::tree::Tree;

/// The board, off or on.
pub(crate) struct Board {
    /// The root folder of its processes.
    pub(crate) tree: Tree,
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
}

/// What a person or the physics change.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    pub(crate) memory_free_kib: u64,
    pub(crate) disk_free_bytes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) threads: u64,
    /// Of the CPU, in thousandths of a degree.
    pub(crate) heat: u64,
    pub(crate) is_undervolted: bool,
    pub(crate) has_voltage_driver: bool,
    pub(crate) oopses: u64,
    pub(crate) oom_kills: u64,
    pub(crate) ext4_errors: u64,
    pub(crate) is_root_read_only: bool,
    pub(crate) carrier_changes: u64,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) is_time_synchronized: bool,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            memory_free_kib: 800_000,
            disk_free_bytes: 8 << 30,
            inodes_free: 900_000,
            threads: 100,
            heat: 48_000,
            is_undervolted: false,
            has_voltage_driver: true,
            oopses: 0,
            oom_kills: 0,
            ext4_errors: 0,
            is_root_read_only: false,
            carrier_changes: 2,
            addresses: vec!["192.0.2.10".parse().expect("an address")],
            is_time_synchronized: true,
        }
    }
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
            tree,
            root,
            booted: Duration::ZERO,
            is_on: false,
            boots: 0,
            host_name: host_name.to_owned(),
            hardware: Hardware::default(),
            files: BTreeMap::new(),
        };
        for folder in FOLDERS {
            board.folder(folder);
        }
        board.put("etc/machine-id", b"0123456789abcdef0123456789abcdef\n");
        board.put("etc/os-release", b"PRETTY_NAME=\"Test OS\"\n");
        board.put("etc/hosts", b"127.0.0.1 localhost\n");
        board.put("etc/resolv.conf", b"nameserver 10.0.0.53\n");
        board.put("etc/fstab", b"/dev/mmcblk0p2 / ext4 defaults,noatime 0 1\n");
        board.put("etc/hostname", host_name.as_bytes());
        board.put("dev/null", b"");
        board
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
        }
        self.files.clear();
        self.hardware.oopses = 0;
        self.hardware.oom_kills = 0;
        self.hardware.threads = 100;
        for (path, content) in KERNEL {
            self.put(path, content.as_bytes());
        }
        let boot_id = format!("00000000-0000-4000-8000-{:012x}\n", self.boots);
        self.put("proc/sys/kernel/random/boot_id", boot_id.as_bytes());
        self.put("proc/sys/kernel/hostname", format!("{}\n", self.host_name).as_bytes());
        self.folder("run/systemd/system");
        self.folder("run/credentials/nodelet.service");
        self.folder("run/nodelet");
        self.refresh(now);
    }

    /// Writes each file that follows from the hardware.
    pub(crate) fn refresh(&mut self, now: Duration) {
        if !self.is_on {
            return;
        }
        let h = self.hardware.clone();
        let (total, free) = (1_048_576, h.memory_free_kib);
        self.update(
            "proc/meminfo",
            &format!(
                "MemTotal:        {total} kB\nMemFree:         {free} kB\nMemAvailable:    {free} kB\n\
                 Buffers:         0 kB\nCached:          20000 kB\nActive(file):    10000 kB\n\
                 Inactive(file):  10000 kB\nAnonPages:       30000 kB\nSwapTotal:       0 kB\n\
                 SwapFree:        0 kB\nHugePages_Total: 0\nHugepagesize:    2048 kB\n"
            ),
        );
        self.update("proc/loadavg", &format!("0.00 0.00 0.00 1/{} 1000\n", h.threads));
        let up = now.saturating_sub(self.booted).as_secs();
        self.update("proc/uptime", &format!("{up}.00 {up}.00\n"));
        self.update("proc/vmstat", &format!("nr_free_pages 1\noom_kill {}\n", h.oom_kills));
        self.update("sys/kernel/oops_count", &format!("{}\n", h.oopses));
        self.update("sys/fs/ext4/mmcblk0p2/errors_count", &format!("{}\n", h.ext4_errors));
        self.update("sys/class/thermal/thermal_zone0/temp", &format!("{}\n", h.heat));
        self.update("sys/class/net/eth0/carrier_changes", &format!("{}\n", h.carrier_changes));
        let how = if h.is_root_read_only { "ro" } else { "rw" };
        self.update(
            "proc/self/mountinfo",
            &format!(
                "25 1 179:2 / / {how},noatime - ext4 /dev/root {how}\n\
                 26 25 179:1 / /boot rw - vfat /dev/mmcblk0p1 rw\n\
                 27 25 0:5 / /proc rw - proc proc rw\n28 25 0:6 / /sys rw - sysfs sysfs rw\n\
                 29 25 0:7 / /run rw - tmpfs tmpfs rw\n\
                 30 28 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
            ),
        );
        match h.has_voltage_driver {
            true => {
                self.update("sys/class/hwmon/hwmon1/name", "rpi_volt\n");
                let alarm = u8::from(h.is_undervolted);
                self.update("sys/class/hwmon/hwmon1/in0_lcrit_alarm", &format!("{alarm}\n"));
            }
            false => self.remove_all("sys/class/hwmon/hwmon1"),
        }
        match h.is_time_synchronized {
            true => self.update("run/systemd/timesync/synchronized", ""),
            false => self.remove_all("run/systemd/timesync/synchronized"),
        }
        let gateway = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        self.update("proc/net/route", &format!("Iface\tDestination\tGateway\n{gateway}"));
    }

    /// Writes a kernel file if its content differs; the kernel reports the change.
    fn update(&mut self, path: &str, text: &str) {
        if self.read(path).as_deref() != Some(text.as_bytes()) {
            self.put(path, text.as_bytes());
        }
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

    fn inode(&self, path: &str) -> u64 {
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
        self.files.get(&inode).map_or(0, |(_, version)| *version)
    }

    // --- what the kernel answers ---

    pub(crate) fn statvfs(&self, _: &Path) -> Read<Read<FileSystem>> {
        Ok(Ok(FileSystem {
            capacity_bytes: 32 << 30,
            available_bytes: self.hardware.disk_free_bytes,
            inodes: 1_000_000,
            inodes_free: self.hardware.inodes_free,
            asked_once: false,
        }))
    }

    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        let interface = |name: &str, loopback, addresses| Interface {
            name: name.to_owned(),
            up: true,
            loopback,
            point_to_point: false,
            addresses,
        };
        let loopback = vec!["127.0.0.1".parse().expect("an address")];
        vec![
            interface("lo", true, loopback),
            interface("eth0", false, self.hardware.addresses.clone()),
        ]
    }
}

const KERNEL: &[(&str, &str)] = &[
    ("proc/device-tree/compatible", "raspberrypi,4-model-b\0"),
    ("proc/stat", "btime 1782990000\n"),
    ("proc/sys/kernel/hung_task_detect_count", "0\n"),
    ("proc/sys/kernel/osrelease", "6.12.25\n"),
    ("proc/sys/kernel/pid_max", "32768\n"),
    ("proc/sys/kernel/threads-max", "15000\n"),
    ("proc/sys/kernel/tainted", "1024\n"),
    ("sys/block/mmcblk0/device/life_time", "0x01 0x01\n"),
    ("sys/block/mmcblk0/device/pre_eol_info", "0x01\n"),
    ("sys/block/mmcblk0/device/type", "MMC\n"),
    ("sys/class/hwmon/hwmon0/name", "cpu_thermal\n"),
    ("sys/class/net/eth0/device/uevent", "\n"),
    ("sys/class/thermal/cooling_device0/cur_state", "0\n"),
    ("sys/class/thermal/cooling_device0/max_state", "4\n"),
    ("sys/class/thermal/cooling_device0/type", "cpufreq-cpu0\n"),
    ("sys/class/thermal/thermal_zone0/mode", "enabled\n"),
    ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "110000\n"),
    ("sys/class/thermal/thermal_zone0/trip_point_0_type", "critical\n"),
    ("sys/class/thermal/thermal_zone0/type", "cpu-thermal\n"),
    ("sys/dev/block/179:2/uevent", "DEVNAME=mmcblk0p2\n"),
    ("sys/devices/system/cpu/cpu0/online", "1\n"),
    ("sys/devices/system/cpu/online", "0\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "1800000\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "1800000\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n"),
    ("sys/fs/cgroup/memory.current", "100000000\n"),
    ("sys/fs/cgroup/memory.stat", "inactive_file 1000\n"),
    ("sys/kernel/rcu_stall_count", "0\n"),
    ("sys/kernel/softlockup_count", "0\n"),
];
