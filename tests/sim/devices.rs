//! The hardware of the board: what a person or the physics change, the kernel's files that follow
//! from it, and what is true of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::world::{OVERRIDDEN, RENAMED};
use crate::kube::facts::{FsStats, Interface};

/// What a person or the physics change.
#[derive(Clone, Debug)]
pub(crate) struct Hardware {
    setting: BTreeMap<String, String>,
    pub(crate) memory_kib: u64,
    pub(crate) memory_is_low: bool,
    /// Pages of 2 MiB.
    pub(crate) huge_pages: u64,
    pub(crate) disk_bytes: u64,
    pub(crate) disk_free_bytes: u64,
    pub(crate) inodes_free: u64,
    pub(crate) threads: u64,
    /// CPUs that are off, of four.
    pub(crate) cpus_off: u64,
    /// In thousandths of a degree, of the zone with this number.
    pub(crate) heat: u64,
    pub(crate) hot_zone: u64,
    /// State of the cooling device of the CPU: 0 to 4.
    pub(crate) cooling: u64,
    /// The administrator's highest frequency, in kHz.
    pub(crate) cap: u64,
    /// That of the last time without cooling.
    free_cap: u64,
    pub(crate) is_undervolted: bool,
    /// How often the supply dropped, also for less than the driver's period.
    pub(crate) drops: u64,
    pub(crate) has_voltage_driver: bool,
    /// The number of its folder, which is another one each time it is bound.
    pub(crate) voltage_chip: u64,
    pub(crate) oopses: u64,
    pub(crate) lockups: u64,
    pub(crate) stalls: u64,
    pub(crate) hung_tasks: u64,
    pub(crate) oom_kills: u64,
    pub(crate) memory_errors: u64,
    pub(crate) root: Disk,
    pub(crate) firmware: Disk,
    pub(crate) data: Disk,
    /// Further mounts.
    pub(crate) mounts: u64,
    /// `life_time` and `pre_eol_info` of the eMMC, now and after the next start of the kernel.
    wear: (u64, u64),
    pub(crate) next_wear: (u64, u64),
    pub(crate) carrier_changes: u64,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) has_route: bool,
    pub(crate) is_time_synchronized: bool,
    /// The watchdog ended the last boot.
    pub(crate) was_reset: bool,
    /// The watchdog ends this boot.
    pub(crate) is_reset: bool,
    /// The address that etc/hosts, or a name server, has for the Node's name.
    pub(crate) named: Option<IpAddr>,
    /// Lines of etc/hosts for the API servers.
    pub(crate) servers_named: String,
    pub(crate) release: u64,
    pub(crate) has_machine_id: bool,
}

/// A mounted file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// `mmcblk0p2`
    name: &'static str,
    /// `179:2`
    number: &'static str,
    point: &'static str,
    pub(crate) fs: String,
    source: &'static str,
    /// An error makes it read-only: `errors=remount-ro`.
    pub(crate) stops: bool,
    pub(crate) is_mounted: bool,
    /// Its superblock is read-only, as somebody wants it.
    pub(crate) is_read_only: bool,
    /// It takes no writes any more since an error of this boot.
    pub(crate) has_failed: bool,
    pub(crate) errors: u64,
    /// When by the board's clock, in seconds since 1970.
    pub(crate) last_error: u64,
    /// That time is one of this boot, by the clock as it is now.
    pub(crate) is_dated: bool,
    /// Or it will be within a minute, which the agent may count as now (`CLOCK_STEP`).
    pub(crate) is_soon_dated: bool,
}

/// The highest frequency of the CPU, in kHz.
pub(crate) const TOP: u64 = 1_800_000;
const CPUS: u64 = 4;
/// m°C of the critical trip of each zone.
const CRITICAL: u64 = 110_000;

/// The types of conditions about the board's health that the world knows.
pub(crate) const KINDS: [&str; 6] = [
    "ReadonlyFilesystem",
    "FilesystemCorruptionProblem",
    "StorageWornOut",
    "UnderVoltage",
    "ThermalThrottling",
    "KernelDeadlock",
];

/// What is true of the board, for the sentences.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Truth {
    pub(crate) boot: u64,
    /// The root is not mounted yet.
    pub(crate) is_early: bool,
    /// By the word of the sentence, what a Node may say.
    pub(crate) facts: BTreeMap<&'static str, String>,
    /// By the type of the condition: 2 is a problem, 1 is close to one.
    pub(crate) problems: BTreeMap<&'static str, u8>,
    /// Which conditions the board has a source for, also before its root is mounted.
    pub(crate) sources: Vec<&'static str>,
    /// What only grows.
    pub(crate) counters: BTreeMap<&'static str, u64>,
}

impl Truth {
    pub(crate) fn level(&self, kind: &str) -> u8 {
        self.problems.get(kind).copied().unwrap_or(0)
    }

    pub(crate) fn count(&self, counter: &str) -> u64 {
        self.counters.get(counter).copied().unwrap_or(0)
    }

    pub(crate) fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }
}

impl Disk {
    /// An error, at this time by the board's clock.
    pub(crate) fn fail(&mut self, wall: u64) {
        if self.is_ext4() && self.is_mounted && !self.is_read_only {
            self.errors += 1;
            (self.last_error, self.is_dated, self.is_soon_dated) = (wall, true, true);
            self.has_failed |= self.stops;
        }
    }

    fn takes_writes(&self) -> bool {
        let is_watched = matches!(&*self.fs, "ext2" | "ext4" | "btrfs" | "vfat");
        self.is_mounted && is_watched && !self.is_read_only && !self.has_failed
    }

    fn is_ext4(&self) -> bool {
        self.fs == "ext4"
    }

    /// The superblock's options, by the version of the kernel.
    fn options(&self, kernel: &str) -> String {
        let stays_writable = self.is_ext4() && kernel != "6.6";
        let is_ro = self.is_read_only || self.has_failed && !stays_writable;
        let mut options = String::from(if is_ro { "ro" } else { "rw" });
        if self.stops {
            options += ",errors=remount-ro";
        }
        if self.has_failed && self.is_ext4() && kernel == "6.18" {
            options += ",emergency_ro";
        }
        options
    }

    /// Its line in the table of mounts. `at` is its folder, and where that is mounted.
    fn line(&self, kernel: &str, (id, parent): (u64, u64), at: (&str, &str)) -> String {
        let Self { number, fs, source, .. } = self;
        let (options, (folder, point)) = (self.options(kernel), at);
        format!("{id} {parent} {number} {folder} {point} rw,noatime - {fs} {source} {options}\n")
    }

    fn files(&self, files: &mut BTreeMap<String, String>) {
        let Self { name, number, errors, last_error, .. } = self;
        // It is also there while nobody has mounted it.
        files.insert(
            format!("sys/dev/block/{number}/uevent"),
            format!("MAJOR=1\nDEVNAME={name}\nDEVTYPE=partition\n"),
        );
        if !self.is_mounted {
            return;
        }
        if self.is_ext4() {
            let mut file = |file: &str, value: u64| {
                files.insert(format!("sys/fs/ext4/{name}/{file}"), format!("{value}\n"));
            };
            file("errors_count", *errors);
            file("first_error_time", *last_error);
            file("last_error_time", *last_error);
            let behaviour = if self.stops { "remount-ro" } else { "continue" };
            let options = format!("rw\nbsddf\nerrors={behaviour}\n");
            files.insert(format!("proc/fs/ext4/{name}/options"), options);
        }
        if self.fs == "btrfs" {
            let folder = "sys/fs/btrfs/01234567-89ab-cdef-0123-456789abcdef";
            files.insert(format!("{folder}/devices/{name}/size"), "1\n".to_owned());
            let stats = format!(
                "write_errs 0\nread_errs 0\nflush_errs 0\ncorruption_errs {errors}\ngeneration_errs 0\n"
            );
            files.insert(format!("{folder}/devinfo/1/error_stats"), stats);
        }
    }
}

impl Default for Hardware {
    fn default() -> Self {
        Self::of(&BTreeMap::new())
    }
}

impl Hardware {
    /// The hardware of a plan.
    pub(crate) fn of(setting: &BTreeMap<String, String>) -> Self {
        let of = |name: &str| setting.get(name).map_or("", String::as_str);
        let number = |name: &str| of(name).parse().unwrap_or(0);
        let card = |name, number, point, fs: &str, source| Disk {
            name,
            number,
            point,
            fs: fs.to_owned(),
            source,
            is_mounted: true,
            ..Disk::default()
        };
        let mut root = match of("root") {
            "ext2" => card("mmcblk0p2", "179:2", "/", "ext2", "/dev/mmcblk0p2"),
            "btrfs" => card("mmcblk0p2", "0:22", "/", "btrfs", "/dev/mmcblk0p2"),
            "overlay" => card("mmcblk0p2", "179:2", "/media/root-ro", "ext4", "/dev/mmcblk0p2"),
            "overlay-nfs" => card("", "0:44", "/media/root-ro", "nfs4", "10.0.0.9:/root"),
            _ => card("mmcblk0p2", "179:2", "/", "ext4", "/dev/root"),
        };
        root.is_read_only = of("root").starts_with("overlay");
        root.stops = root.is_ext4();
        let mut data = card("sda1", "8:1", "/srv", "ext4", "/dev/sda1");
        data.stops = of("data") == "stops";
        let mut firmware = card("mmcblk0p1", "179:1", "/boot", "vfat", "/dev/mmcblk0p1");
        firmware.is_read_only = matches!(of("boot"), "ro" | "fstab");
        let mut hardware = Self {
            setting: setting.clone(),
            memory_kib: 1_048_576,
            memory_is_low: false,
            huge_pages: 0,
            disk_bytes: 32 << 30,
            disk_free_bytes: 8 << 30,
            inodes_free: 900_000,
            threads: 100,
            cpus_off: 0,
            heat: 48_000,
            hot_zone: 0,
            cooling: 0,
            cap: TOP,
            free_cap: TOP,
            is_undervolted: false,
            drops: 0,
            has_voltage_driver: of("board") != "pc",
            voltage_chip: 1,
            oopses: 0,
            lockups: 0,
            stalls: 0,
            hung_tasks: 0,
            oom_kills: 0,
            memory_errors: 0,
            root,
            firmware,
            data,
            mounts: number("mounts"),
            wear: (1, 1),
            next_wear: (1, 1),
            carrier_changes: 2,
            addresses: Vec::new(),
            has_route: true,
            is_time_synchronized: true,
            was_reset: false,
            is_reset: false,
            named: None,
            servers_named: String::new(),
            release: 1,
            has_machine_id: of("machine") != "late",
        };
        hardware.addresses = hardware.numbered(10);
        if matches!(of("hosts"), "names" | "large" | "dns") {
            hardware.named = hardware.second();
        }
        hardware
    }

    pub(crate) fn setting(&self, name: &str) -> &str {
        self.setting.get(name).map_or("", String::as_str)
    }

    /// Whether the kernel tells the id of a boot.
    pub(crate) fn has_boot_id(&self) -> bool {
        self.setting("bootid") != "none"
    }

    fn is_pi(&self) -> bool {
        self.setting("board") != "pc"
    }

    fn kernel(&self) -> &str {
        match self.setting("kernel") {
            "" => "6.12",
            kernel => kernel,
        }
    }

    /// What is used stays if memory is added or taken away: a look may read the total before, and
    /// the rest after it.
    fn memory_free_kib(&self) -> u64 {
        if self.memory_is_low { 50_000 } else { self.memory_kib.saturating_sub(248_576) }
    }

    /// The addresses of eth0 with this last number.
    pub(crate) fn numbered(&self, last: u8) -> Vec<IpAddr> {
        let v4 = IpAddr::from([192, 0, 2, last]);
        let v6 = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let (global, local) = (v6(&format!("2001:db8::{last:x}")), v6("fe80::1"));
        match self.setting("family") {
            "v6" => vec![local, global],
            "dual" => vec![v4, local, global],
            _ => vec![v4],
        }
    }

    /// The address of wlan0, which no default route has.
    pub(crate) fn second(&self) -> Option<IpAddr> {
        Some(IpAddr::from([198, 51, 100, 7]))
    }

    /// The kernel starts: what it counts is zero, and file systems are mounted anew.
    pub(crate) fn boot(&mut self) {
        (self.oopses, self.lockups, self.stalls, self.hung_tasks) = (0, 0, 0, 0);
        (self.oom_kills, self.memory_errors, self.threads) = (0, 0, 100);
        self.wear = self.next_wear;
        self.was_reset = std::mem::take(&mut self.is_reset);
        for disk in [&mut self.root, &mut self.firmware, &mut self.data] {
            disk.has_failed = false;
        }
    }

    /// After a change: what follows from it within the hardware.
    pub(crate) fn settle(&mut self) {
        if self.cooling == 0 {
            self.free_cap = self.cap;
        }
    }

    fn frequency(&self) -> u64 {
        self.cap.min(TOP * (100 - 17 * self.cooling) / 100)
    }

    /// Each file of the kernel. `is_early`: the root is not mounted yet.
    pub(crate) fn files(&self, is_early: bool) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let mut put = |path: &str, text: String| {
            files.insert(path.to_owned(), text);
        };
        let (total, free) = (self.memory_kib, self.memory_free_kib());
        let used = total - free;
        let huge = self.huge_pages * 2048;
        put(
            "proc/meminfo",
            format!(
                "MemTotal:        {total} kB\nMemFree:         {free} kB\nMemAvailable:    {free} kB\n\
                 Buffers:         0 kB\nCached:          10000 kB\nSwapCached:      0 kB\n\
                 Inactive(file):  10000 kB\nAnonPages:       {used} kB\nSwapTotal:       0 kB\n\
                 SwapFree:        0 kB\nHugePages_Total: {}\nHugepagesize:    2048 kB\n\
                 Hugetlb:         {huge} kB\n",
                self.huge_pages
            ),
        );
        put(
            "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
            format!("{}\n", self.huge_pages),
        );
        put("proc/loadavg", format!("0.00 0.00 0.00 1/{} 1000\n", self.threads));
        put("proc/sys/kernel/pid_max", "32768\n".to_owned());
        put("proc/sys/kernel/threads-max", "15000\n".to_owned());
        put("proc/sys/kernel/osrelease", format!("{}.25\n", self.kernel()));
        put("proc/vmstat", format!("nr_free_pages 1\noom_kill {}\n", self.oom_kills));
        if self.is_pi() {
            put("proc/device-tree/compatible", "raspberrypi,4-model-b\0".to_owned());
        }
        match self.setting("cgroup") {
            "v1" => {
                let bytes = used * 1024;
                put("sys/fs/cgroup/memory/memory.usage_in_bytes", format!("{bytes}\n"));
                put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 0\n".to_owned());
                let table = "#subsys_name\thierarchy\tnum_cgroups\tenabled\nmemory\t5\t80\t1\n";
                put("proc/cgroups", table.to_owned());
            }
            "none" => {}
            _ => {
                put("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n".to_owned());
                let (anon, none) = (used * 1024, 10_240_000);
                put(
                    "sys/fs/cgroup/memory.stat",
                    format!("anon {anon}\nfile {none}\ninactive_file {none}\n"),
                );
            }
        }
        self.counters_files(&mut put);
        self.cpu_files(&mut put);
        self.heat_files(&mut put);
        self.network_files(&mut put);
        put("proc/self/mountinfo", self.mount_table(is_early));
        if is_early {
            put("etc/initrd-release", "ID=test\n".to_owned());
        }
        if self.setting("card") == "sd" {
            put("sys/block/mmcblk0/device/type", "SD\n".to_owned());
        } else {
            let (life, pre_eol) = self.wear;
            put("sys/block/mmcblk0/device/type", "MMC\n".to_owned());
            put("sys/block/mmcblk0/device/life_time", format!("0x{life:02x} 0x01\n"));
            put("sys/block/mmcblk0/device/pre_eol_info", format!("0x{pre_eol:02x}\n"));
        }
        put("sys/class/hwmon/hwmon0/name", "cpu_thermal\n".to_owned());
        // Each driver that is bound or unbound is a uevent.
        let uevents = 1000 + 2 * self.voltage_chip + u64::from(self.has_voltage_driver);
        put("sys/kernel/uevent_seqnum", format!("{uevents}\n"));
        if self.has_voltage_driver {
            let folder = format!("sys/class/hwmon/hwmon{}", self.voltage_chip);
            put(&format!("{folder}/name"), "rpi_volt\n".to_owned());
            let alarm = u8::from(self.is_undervolted);
            put(&format!("{folder}/in0_lcrit_alarm"), format!("{alarm}\n"));
        }
        if self.is_time_synchronized {
            put("run/systemd/timesync/synchronized", String::new());
        }
        if !is_early {
            for disk in [&self.root, &self.firmware, &self.data] {
                disk.files(&mut files);
            }
        }
        files
    }

    fn counters_files(&self, put: &mut dyn FnMut(&str, String)) {
        put("sys/kernel/oops_count", format!("{}\n", self.oopses));
        let staging = if self.is_pi() { 1024 } else { 0 };
        let tainted = staging + if self.oopses > 0 { 128 } else { 0 };
        put("proc/sys/kernel/tainted", format!("{tainted}\n"));
        if self.kernel() == "6.18" {
            put("sys/kernel/softlockup_count", format!("{}\n", self.lockups));
            put("sys/kernel/rcu_stall_count", format!("{}\n", self.stalls));
            put("proc/sys/kernel/hung_task_detect_count", format!("{}\n", self.hung_tasks));
        }
        if !self.is_pi() {
            let folder = "sys/devices/system/edac/mc/mc0";
            put(&format!("{folder}/ue_count"), format!("{}\n", self.memory_errors));
            put(&format!("{folder}/ce_count"), "0\n".to_owned());
        }
        let status = if self.was_reset { 32 } else { 0 };
        put("sys/class/watchdog/watchdog0/bootstatus", format!("{status}\n"));
    }

    fn cpu_files(&self, put: &mut dyn FnMut(&str, String)) {
        let online = CPUS - self.cpus_off;
        let last = online - 1;
        let list = if last == 0 { "0\n".to_owned() } else { format!("0-{last}\n") };
        put("sys/devices/system/cpu/online", list);
        for cpu in 0..CPUS {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            put(&format!("{folder}/online"), format!("{}\n", u8::from(cpu < online)));
            if cpu < online {
                put(&format!("{folder}/topology/core_id"), format!("{cpu}\n"));
                put(&format!("{folder}/topology/physical_package_id"), "0\n".to_owned());
            }
            if !self.is_pi() {
                put(&format!("sys/devices/system/node/node0/cpu{cpu}/online"), String::new());
            }
        }
        let folder = "sys/devices/system/cpu/cpufreq/policy0";
        put(&format!("{folder}/cpuinfo_max_freq"), format!("{TOP}\n"));
        put(&format!("{folder}/scaling_max_freq"), format!("{}\n", self.frequency()));
    }

    fn zones(&self) -> u64 {
        self.setting("zones").parse().unwrap_or(1)
    }

    fn heat_files(&self, put: &mut dyn FnMut(&str, String)) {
        for zone in 0..self.zones() {
            let folder = format!("sys/class/thermal/thermal_zone{zone}");
            let mut file = |name: &str, text: String| put(&format!("{folder}/{name}"), text + "\n");
            let is_hot = zone == self.hot_zone.min(self.zones() - 1);
            let temp = if is_hot { self.heat } else { 45_000 };
            let name = match zone {
                0 => "cpu-thermal".to_owned(),
                zone => format!("zone{zone}-thermal"),
            };
            file("type", name);
            file("mode", "enabled".to_owned());
            file("temp", temp.to_string());
            for (trip, (kind, limit)) in
                [("active", 55_000), ("passive", 85_000), ("hot", 95_000), ("critical", CRITICAL)]
                    .into_iter()
                    .enumerate()
            {
                file(&format!("trip_point_{trip}_type"), kind.to_owned());
                file(&format!("trip_point_{trip}_temp"), limit.to_string());
            }
        }
        let folder = "sys/class/thermal/cooling_device0";
        put(&format!("{folder}/type"), "cpufreq-cpu0\n".to_owned());
        put(&format!("{folder}/max_state"), "4\n".to_owned());
        put(&format!("{folder}/cur_state"), format!("{}\n", self.cooling));
    }

    fn network_files(&self, put: &mut dyn FnMut(&str, String)) {
        for (name, changes) in [("eth0", self.carrier_changes), ("wlan0", 2)] {
            put(&format!("sys/class/net/{name}/carrier_changes"), format!("{changes}\n"));
            put(&format!("sys/class/net/{name}/device/uevent"), "\n".to_owned());
        }
        let bridges: u64 = self.setting("links").parse().unwrap_or(1);
        for bridge in 1..bridges {
            put(&format!("sys/class/net/br{bridge}/carrier_changes"), "2\n".to_owned());
        }
        let (mut v4, mut v6) = (String::from("Iface\tDestination\tGateway\n"), String::new());
        let family = self.setting("family");
        if self.has_route && family != "v6" {
            v4 += "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
        }
        v4 += "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
        if self.has_route && matches!(family, "v6" | "dual") {
            let zero = "00000000000000000000000000000000";
            let hop = "fe800000000000000000000000000002";
            v6 += &format!("{zero} 00 {zero} 00 {hop} 00000400 00000001 00000000 00000003 eth0\n");
        }
        put("proc/net/route", v4);
        put("proc/net/ipv6_route", v6);
    }

    fn mount_table(&self, is_early: bool) -> String {
        let mut table = String::new();
        let is_overlay = self.setting("root").starts_with("overlay");
        let root = match (is_early, is_overlay) {
            (true, _) => 1,
            (_, true) => 24,
            _ => 25,
        };
        if is_early {
            table += "1 1 0:2 / / rw - rootfs rootfs rw\n";
        } else {
            // systemd binds the folder of the unit over itself.
            let folder = ("/var/lib/nodelet", "/var/lib/nodelet");
            let mut folder_line = self.root.line(self.kernel(), (44, root), folder);
            if is_overlay {
                let layers = "rw,lowerdir=/media/root-ro,upperdir=/media/root-rw/up";
                let overlay = |id: u64, parent: u64, (folder, point)| {
                    format!("{id} {parent} 0:30 {folder} {point} rw - overlay overlay {layers}\n")
                };
                table += &overlay(root, 1, ("/", "/"));
                folder_line = overlay(44, root, folder);
            }
            let disks = [&self.root, &self.firmware, &self.data];
            for (disk, id) in disks.into_iter().zip(25..).filter(|(disk, _)| disk.is_mounted) {
                let parent = if id == root { 1 } else { root };
                table += &disk.line(self.kernel(), (id, parent), ("/", disk.point));
            }
            table += &folder_line;
            for mount in 0..self.mounts {
                let id = 100 + mount;
                let _ = writeln!(table, "{id} 42 0:{id} / /run/m/{mount} rw - tmpfs tmpfs rw");
            }
        }
        let _ = writeln!(table, "40 {root} 0:5 / /proc rw - proc proc rw");
        let _ = writeln!(table, "41 {root} 0:6 / /sys rw - sysfs sysfs rw");
        let _ = writeln!(table, "42 {root} 0:7 / /run rw - tmpfs tmpfs rw");
        table += match self.setting("cgroup") {
            "v1" => "43 41 0:8 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "none" => "",
            _ => "43 41 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        };
        table
    }

    /// /etc/hosts; a list that blocks advertisers has any size.
    pub(crate) fn hosts(&self, name: &str) -> String {
        let mut text = String::from("127.0.0.1 localhost\n");
        if self.setting("hosts") == "large" {
            let names = "advertiser.example ".repeat(20);
            for _ in 0..2_800 {
                let _ = writeln!(text, "0.0.0.0 {names}");
            }
        }
        if let Some(ip) = self.named.filter(|_| self.setting("hosts") != "dns") {
            let _ = writeln!(text, "{ip} {name} {RENAMED} {OVERRIDDEN}");
        }
        text + &self.servers_named
    }

    pub(crate) fn statvfs(&self) -> FsStats {
        FsStats {
            capacity_bytes: self.disk_bytes,
            free_bytes: self.disk_free_bytes,
            available_bytes: self.disk_free_bytes,
            inodes: 1_000_000,
            inodes_free: self.inodes_free,
            is_old: false,
        }
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
            interface("eth0", false, self.addresses.clone()),
            interface("wlan0", false, self.second().into_iter().collect()),
        ]
    }

    // --- what is true ---

    /// The address that the Node has by the rules of a kubelet; empty if there is none.
    fn address(&self) -> String {
        let is_own = |ip: &IpAddr| self.addresses.contains(ip) || self.second() == Some(*ip);
        if let Some(named) = self.named.filter(is_own) {
            return named.to_string();
        }
        let global = |v6: bool| {
            let is_global = |ip: &&IpAddr| match ip {
                IpAddr::V6(ip) => !ip.is_unicast_link_local(),
                IpAddr::V4(ip) => !ip.is_link_local(),
            };
            self.addresses.iter().filter(is_global).find(|ip| ip.is_ipv6() == v6)
        };
        let found = match self.setting("family") {
            _ if !self.has_route => None,
            "v6" => global(true),
            "dual" => global(false).or(global(true)),
            _ => global(false),
        };
        found.map(IpAddr::to_string).unwrap_or_default()
    }

    /// Somebody made the boot medium writable that is read-only otherwise.
    fn is_edited(&self) -> bool {
        matches!(self.setting("boot"), "ro" | "fstab") && !self.firmware.is_read_only
    }

    fn heat_level(&self) -> u8 {
        let speed = match self.cooling {
            0 => 100,
            _ => self.frequency() * 100 / self.free_cap.max(1),
        };
        let is_pi_cpu = self.is_pi() && self.hot_zone.min(self.zones() - 1) == 0;
        let near_limit = CRITICAL - 5_000;
        match () {
            () if self.heat >= near_limit || is_pi_cpu && self.heat >= 80_000 || speed <= 75 => 2,
            () if self.heat >= near_limit - 5_000
                || is_pi_cpu && self.heat >= 75_000
                || speed <= 81 =>
            {
                1
            }
            () => 0,
        }
    }

    /// What is true now.
    pub(crate) fn truth(&self, boot: u64, is_early: bool) -> Truth {
        let mut truth = Truth { boot, is_early, ..Truth::default() };
        let cpus = if self.is_pi() { CPUS } else { CPUS - self.cpus_off };
        let pods = if self.setting("pods") == "40" { 10 * cpus } else { 0 };
        let machine =
            if self.has_machine_id { "0123456789abcdef0123456789abcdef" } else { "" }.to_owned();
        truth.facts = BTreeMap::from([
            ("memory", (self.memory_kib * 1024).to_string()),
            ("ephemeral-storage", self.disk_bytes.to_string()),
            ("hugepages-2Mi", (self.huge_pages * (2 << 20)).to_string()),
            ("cpu", cpus.to_string()),
            ("pods", pods.to_string()),
            ("address", self.address()),
            ("osImage", format!("Test OS {}", self.release)),
            ("kernelVersion", format!("{}.25", self.kernel())),
            ("machineID", machine.clone()),
            ("systemUUID", machine),
            ("bootID", if self.has_boot_id() { boot_id(boot) } else { String::new() }),
        ]);
        let disks = [&self.root, &self.firmware, &self.data];
        let mounted = disks.into_iter().filter(|disk| disk.is_mounted);
        let has_errors = |disk: &&Disk| disk.errors > 0 && disk.fs != "ext2" && disk.fs != "vfat";
        let has_record = |disk: &Disk| disk.is_ext4() && disk.is_dated;
        // By its time an error of this boot is of another one, or the other way round: the clock was
        // set between, or begins at the same time with each boot.
        let is_misdated = |disk: &Disk| {
            let is_open = [disk.is_dated, disk.is_soon_dated].contains(&!disk.has_failed);
            disk.is_ext4() && disk.stops && disk.errors > 0 && is_open
        };
        let level = |holds: bool| if holds { 2 } else { 0 };
        let available = self.memory_free_kib() * 1024;
        // Without a runtime the threshold of images, 15 %, is that of the same file system.
        let is_full = self.disk_free_bytes < self.disk_bytes / 100 * 15;
        let disk_is_low = is_full || self.inodes_free < 50_000;
        truth.problems = BTreeMap::from([
            ("MemoryPressure", level(available < 100 << 20)),
            ("DiskPressure", level(disk_is_low)),
            ("PIDPressure", 0),
            ("ReadonlyFilesystem", level(mounted.clone().any(|disk| disk.has_failed))),
            ("FilesystemCorruptionProblem", level(mounted.clone().any(|disk| has_errors(&disk)))),
            ("StorageWornOut", level(self.wear.0 >= 10 || self.wear.1 >= 2)),
            ("UnderVoltage", level(self.is_undervolted && self.has_voltage_driver)),
            ("ThermalThrottling", self.heat_level()),
            ("KernelDeadlock", level(self.oopses > 0)),
        ]);
        truth.sources = KINDS
            .into_iter()
            .filter(|kind| match *kind {
                "StorageWornOut" => self.setting("card") != "sd",
                "UnderVoltage" => self.has_voltage_driver,
                // One that is read-only from its start on may be so by intention.
                "ReadonlyFilesystem" => disks.iter().any(|disk| disk.takes_writes()),
                "FilesystemCorruptionProblem" => disks
                    .iter()
                    .any(|disk| disk.is_mounted && matches!(&*disk.fs, "ext4" | "btrfs")),
                _ => true,
            })
            .collect();
        let has_counts = u64::from(self.kernel() == "6.18");
        truth.counters = BTreeMap::from([
            ("OOMKilling", self.oom_kills),
            ("MemoryReadError", if self.is_pi() { 0 } else { self.memory_errors }),
            ("LinkFlapping", self.carrier_changes),
            ("KernelOops", self.oopses),
            ("SoftLockup", self.lockups * has_counts),
            ("RCUStall", self.stalls * has_counts),
            ("TaskHung", self.hung_tasks * has_counts),
            ("Ext4Error", disks.iter().filter(|disk| disk.is_ext4()).map(|disk| disk.errors).sum()),
            ("UnderVoltageDip", self.drops),
            ("WatchdogReset", u64::from(self.was_reset && !self.is_pi())),
            ("edited", u64::from(self.is_edited())),
            ("failed", mounted.clone().map(|disk| u64::from(disk.has_failed)).sum()),
            // Its record of errors says also to the next process that it has failed.
            (
                "recorded",
                u64::from(mounted.clone().any(|disk| disk.has_failed && has_record(disk))),
            ),
            ("misdated", u64::from(mounted.clone().any(is_misdated))),
            ("cooling", self.cooling),
            ("cap", self.cap),
        ]);
        truth
    }
}

/// The id of a boot.
pub(crate) fn boot_id(boot: u64) -> String {
    format!("00000000-0000-4000-8000-{boot:012x}")
}
