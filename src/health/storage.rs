//! ReadonlyFilesystem, FilesystemCorruptionProblem and StorageWornOut.
//!
//! Since Linux 6.12 (d3476f3dad4a) an error of ext4 leaves the superblock option `rw`, so its error
//! counter is compared with the time of boot. Per-mount options are not used: inside the hardened
//! unit every mount is `ro`.

use std::cmp::Reverse;
use std::time::Duration;

use super::condition_state::{RuleResult, cut};
use super::{RuleInput, Source, found};
use crate::core::facts::{Read, Unread};
use crate::core::instant::Mono;

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

/// A read-only superblock counts after this time.
const READ_ONLY_FOR: Duration = Duration::from_secs(60);
/// `last_error_time` may be this much ahead of the clock, in seconds.
const CLOCK_STEP: u64 = 60;

/// What the rules remember of one file system while it is mounted.
#[derive(Debug, Default)]
struct FilesystemHistory {
    number: String,
    /// Its superblock was writable at an earlier look.
    was_writable: bool,
    /// Its superblock turned read-only.
    read_only_since: Option<Mono>,
    /// Errors of ext4 at the last look.
    errors: Option<u64>,
    /// The errors grew while this process ran.
    has_grown: bool,
}

/// The state of the rule of ReadonlyFilesystem.
#[derive(Debug, Default)]
pub(super) struct Readonly {
    memories: Vec<FilesystemHistory>,
    /// The devices whose ext4 errors grew since the last look.
    pub(super) grown: Vec<String>,
}

impl Readonly {
    pub(super) fn judge(&mut self, input: &RuleInput<'_>) -> RuleResult {
        let (wall, now) = (input.now.wall.seconds(), input.now.mono);
        let filesystems = match found(&input.reading.filesystems) {
            Ok(filesystems) => filesystems,
            Err(result) => return result,
        };
        let mut old = std::mem::take(&mut self.memories);
        let mut failed: Vec<&Filesystem> = Vec::new();
        let (mut is_watched, mut is_close) = (false, false);
        for fs in filesystems {
            let place = old.iter().position(|memory| memory.number == fs.number);
            // After a restart, the condition says what had turned read-only.
            let was_told =
                || input.problem.is_some_and(|told| told.message.starts_with(&stopped(fs)));
            let mut memory = place.map(|place| old.swap_remove(place)).unwrap_or_else(|| {
                FilesystemHistory { was_writable: was_told(), ..FilesystemHistory::default() }
            });
            memory.number.clone_from(&fs.number);
            let errors = fs.ext4.as_ref().and_then(|read| read.as_ref().ok());
            if let Some(errors) = errors {
                if memory.errors.is_some_and(|before| errors.count > before) {
                    memory.has_grown = true;
                    self.grown.push(fs.device.clone());
                }
                memory.errors = Some(errors.count);
            }
            let is_stopped = fs.is_stopped
                || errors.is_some_and(|errors| has_stopped(errors, memory.has_grown, wall));
            let has_turned =
                fs.is_read_only && memory.was_writable && !is_ext(fs) && !fs.is_read_only_in_fstab;
            memory.read_only_since = has_turned.then(|| memory.read_only_since.unwrap_or(now));
            memory.was_writable |= !fs.is_read_only;
            let turned_for = memory.read_only_since.map(|since| now.since(since));
            if is_stopped || turned_for.is_some_and(|time| time >= READ_ONLY_FOR) {
                failed.push(fs);
            } else if has_turned {
                is_close = true;
            }
            is_watched |= !fs.is_read_only;
            self.memories.push(memory);
        }
        match failed.first() {
            Some(fs) => {
                RuleResult::problem(1, "FilesystemIsReadOnly", &stopped(fs), failed.len() - 1)
            }
            None if is_close => RuleResult::NearProblem,
            None if is_watched => RuleResult::NoProblem,
            None => RuleResult::NoSource,
        }
    }
}

/// ext4 stopped at an error of this boot. An error of an earlier life of the card does not count.
fn has_stopped(errors: &Ext4Errors, has_grown: bool, wall: u64) -> bool {
    let is_of_this_boot = errors
        .booted
        .is_some_and(|booted| (booted..=wall.saturating_add(CLOCK_STEP)).contains(&errors.last));
    errors.count > 0 && errors.stops_on_error && (is_of_this_boot || has_grown)
}

fn is_ext(fs: &Filesystem) -> bool {
    fs.fs_type.starts_with("ext")
}

fn stopped(fs: &Filesystem) -> String {
    format!("{} stopped taking writes", title(fs))
}

/// `mmcblk0p2 (ext4 at /)`, cut so that the text behind it fits.
fn title(fs: &Filesystem) -> String {
    let (device, point) = (cut(&fs.device, 24), cut(&fs.point, 32));
    format!("{device} ({} at {point})", fs.fs_type)
}

/// The result of FilesystemCorruptionProblem. The counters are kept on disk, so it needs no state.
pub(super) fn corruption(input: &RuleInput<'_>) -> RuleResult {
    let filesystems = &input.reading.filesystems;
    let mounted: &[Filesystem] = match filesystems {
        Some(Ok(mounted)) => mounted,
        _ => &[],
    };
    let mut found =
        ErrorRecords { is_unread: matches!(filesystems, Some(Err(_))), ..ErrorRecords::default() };
    for fs in mounted {
        if let Some(errors) = &fs.ext4 {
            found.add(errors.as_ref().map(|errors| errors.count), || title(fs));
        }
    }
    for damage in &input.reading.damages {
        found.add(damage.count.as_ref().copied(), || {
            match mounted.iter().find(|fs| fs.device == damage.device) {
                Some(fs) => title(fs),
                None => format!("{} ({})", cut(&damage.device, 40), damage.fs_type),
            }
        });
    }
    match found.first {
        Some((count, title)) => {
            let (rank, errors) = match count {
                0..=1 => (1, "1 error"),
                2..=9 => (2, "2 to 9 errors"),
                _ => (3, "10 or more errors"),
            };
            let message = format!("{title} has {errors} on record");
            let reason = "FilesystemCorruptionDetected";
            RuleResult::problem(rank, reason, &message, found.more)
        }
        None if found.is_read => RuleResult::NoProblem,
        None if found.is_unread => RuleResult::Unread,
        None => RuleResult::NoSource,
    }
}

/// The records of errors of all file systems.
#[derive(Default)]
struct ErrorRecords {
    /// Number of errors and title of the first damaged file system.
    first: Option<(u64, String)>,
    /// Number of the further ones.
    more: usize,
    /// A record was read; another one was not.
    is_read: bool,
    is_unread: bool,
}

impl ErrorRecords {
    fn add(&mut self, count: Result<u64, &Unread>, title: impl FnOnce() -> String) {
        match count {
            Err(_) => self.is_unread = true,
            Ok(0) => self.is_read = true,
            Ok(_) if self.first.is_some() => self.more += 1,
            Ok(count) => self.first = Some((count, title())),
        }
    }
}

/// The state of the rule of StorageWornOut: the eMMC's own estimates, and the spare blocks of raw
/// NAND.
#[derive(Debug, Default)]
pub(super) struct WornOut {
    /// The discovery that first found a UBI without spare blocks; a second one must confirm it.
    spent_since: Option<u64>,
}

impl WornOut {
    pub(super) fn judge(&mut self, input: &RuleInput<'_>) -> RuleResult {
        let discovery = input.reading.discovery;
        let devices = match found(&input.reading.wear) {
            Ok(devices) => devices,
            Err(result) => return result,
        };
        let is_spent = |wear: &Wear| matches!(wear, Wear::Ubi { is_spent: true, .. });
        self.spent_since =
            devices.iter().any(is_spent).then(|| self.spent_since.unwrap_or(discovery));
        let is_confirmed = self.spent_since.is_some_and(|since| discovery > since);
        let found = devices.iter().filter_map(|wear| level(wear, is_confirmed));
        // The first one of the highest rank.
        match found.clone().min_by_key(|(rank, ..)| Reverse(*rank)) {
            Some((rank, device, reason, text)) => {
                let message = format!("{device} {text}");
                RuleResult::problem(rank, reason, &message, found.count() - 1)
            }
            None if self.spent_since.is_some() => RuleResult::NearProblem,
            None => RuleResult::NoProblem,
        }
    }
}

/// Rank, device, reason and text of a worn device.
fn level(wear: &Wear, is_confirmed: bool) -> Option<(u32, &str, &'static str, &'static str)> {
    match wear {
        Wear::Emmc { device, life, pre_eol } => match (life, pre_eol) {
            (11, _) | (_, 3) => Some((3, device, "StorageLifeExceeded", "is past its rated life")),
            (10, _) | (_, 2) => Some((
                2,
                device,
                "StorageLifeNearlyUsed",
                "used 90 % of its rated life or 80 % of its spare blocks",
            )),
            _ => None,
        },
        Wear::Ubi { device, is_spent } => (*is_spent && is_confirmed).then_some((
            1,
            device,
            "StorageSpareBlocksUsed",
            "has no spare blocks left",
        )),
    }
}
