//! What one look at the sources of the board's health found, as plain values.
//!
//! A source that the board does not have is `None`. One that it has and that could not be read is
//! `Some(Err)`. The units are the kernel's: m°C, kHz, seconds.

use crate::core::facts::Read;
use crate::kube::time::Wall;

/// A source: `None` if the board does not have it.
pub type Source<T> = Option<Read<T>>;

/// One look at all sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// The watched file systems: writable types, not on a loop device.
    pub filesystems: Source<Vec<Filesystem>>,
    /// Errors on record of btrfs and f2fs; those of ext4 are in `filesystems`.
    pub damages: Vec<Damage>,
    /// Number of the last discovery, which is once an hour.
    pub discovery: u64,
    /// Wear of eMMC and raw NAND, from the last discovery.
    pub wear: Source<Vec<Wear>>,
    /// The under-voltage alarm of a Raspberry Pi.
    pub voltage: Source<Voltage>,
    /// Temperatures, and what limits the CPU.
    pub heat: Source<Heat>,
    /// Counters of kernel faults.
    pub kernel: Source<Kernel>,
    /// The state of systemd-timesyncd.
    pub timesync: Option<Timesync>,
    /// Time since the boot of the kernel, in seconds, from `proc/uptime`.
    pub uptime_seconds: Option<u64>,
    /// The history of boots; only in the first look.
    pub boots: Option<Boots>,
    /// Sources of events alone.
    pub counters: Counters,
}

/// One mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// The device number, `179:2`.
    pub number: String,
    /// The kernel's name of the device, `mmcblk0p2`.
    pub device: String,
    /// `ext4`, `vfat`.
    pub fs_type: String,
    /// Its first mount point.
    pub point: String,
    /// The superblock has the option `emergency_ro` or `shutdown`.
    pub is_stopped: bool,
    /// The superblock is read-only.
    pub is_read_only: bool,
    /// `etc/fstab` mounts one of its points read-only.
    pub is_read_only_in_fstab: bool,
    /// ext4's record of errors; `None` for other types and for a kernel without it.
    pub ext4: Source<Ext4Errors>,
}

/// `sys/fs/ext4/DEV`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ext4Errors {
    /// `errors_count`. It is kept on disk until e2fsck clears it.
    pub count: u64,
    /// `last_error_time`, seconds since 1970; 0 is never. Only read if there are errors.
    pub last: u64,
    /// An error makes it read-only: `errors=remount-ro`. Only read if there are errors.
    pub stops_on_error: bool,
    /// Seconds since 1970 at which the kernel booted. Only read if there are errors.
    pub booted: Option<u64>,
}

/// Errors on record of a file system that is not ext4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// `mmcblk0p2`, or the UUID of a btrfs.
    pub device: String,
    /// `btrfs`, `f2fs`.
    pub fs_type: &'static str,
    /// The number of errors; 1 for a flag.
    pub count: Read<u64>,
}

/// The wear of one flash device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wear {
    /// `sys/block/mmcblkN/device` of an eMMC that has at least one of the two estimates.
    Emmc {
        /// `mmcblk0`
        device: String,
        /// `life_time`: the larger estimate of its two, in tenths of the rated life: 1 to 10, 11 is
        /// beyond; 0 is undefined.
        life: u64,
        /// `pre_eol_info`: 1 normal, 2 warning (80 % of the spare blocks), 3 urgent; 0 undefined.
        pre_eol: u64,
    },
    /// `sys/class/ubi/ubiN` on NAND.
    Ubi {
        /// `ubi0`
        device: String,
        /// `reserved_for_bad` is 0, or `ro_mode` is 1.
        is_spent: bool,
    },
}

/// `in0_lcrit_alarm` of the hwmon `rpi_volt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Voltage {
    /// The alarm is on.
    pub alarm: bool,
    /// Number of times that the supply dropped since the last look.
    pub dips: u32,
}

/// Temperatures, and what limits the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Zones with a limit.
    pub zones: Vec<Zone>,
    /// Cooling devices of the CPU, whose state lies within its range.
    pub coolers: Vec<Cooler>,
    /// cpufreq policies.
    pub policies: Vec<Policy>,
}

/// One thermal zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// `type`: `cpu-thermal`.
    pub name: String,
    /// It is the zone of a Raspberry Pi's CPU, whose firmware throttles at 80 °C.
    pub is_pi_cpu: bool,
    /// m°C; `None` if unreadable or out of range.
    pub temp: Option<i64>,
    /// m°C of the lowest critical trip.
    pub critical: Option<i64>,
    /// m°C of the highest passive trip below the critical one.
    pub passive: Option<i64>,
}

/// One cooling device of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooler {
    /// `cur_state`: 0 is not throttled.
    pub state: i64,
    /// `max_state`
    pub max: i64,
}

/// One cpufreq policy, in kHz.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `cpuinfo_max_freq`
    pub top: u64,
    /// `scaling_max_freq`
    pub cap: u64,
}

/// Counters of kernel faults since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// `oops_count` (Linux 6.2); else 1 if bit 7 of `tainted` is set.
    pub oopses: u64,
    /// `softlockup_count` (6.16).
    pub soft_lockups: Option<u64>,
    /// `rcu_stall_count` (6.16).
    pub rcu_stalls: Option<u64>,
    /// `hung_task_detect_count` (6.13); an administrator can reset it.
    pub hung_tasks: Option<u64>,
}

/// `run/systemd/timesync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timesync {
    /// `synchronized` does not exist: no answer of a server since boot.
    Never,
    /// The time of the last answer; `None` if that is unknown.
    At(Option<Wall>),
}

/// The history of boots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boots {
    /// The file `boots` in `--root-dir`; `None` if it does not exist.
    pub text: Option<String>,
    /// `proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}

/// Sources of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// `oom_kill` of `proc/vmstat` (4.13).
    pub oom_kills: Option<u64>,
    /// Sum of the EDAC controllers' `ue_count`.
    pub memory_errors: Option<u64>,
    /// Interfaces with a device, and their `carrier_changes`.
    pub links: Vec<(String, u64)>,
    /// Bit 5 of `bootstatus` of `watchdog0`, and not on a Raspberry Pi. Only in the first look.
    pub watchdog_reset: bool,
}
