//! ReadonlyFilesystem and FilesystemCorruptionProblem.
//!
//! Since Linux 6.12 (d3476f3dad4a) an error of ext4 leaves the superblock option `rw`, so its error
//! counter is compared with the time of boot. Per-mount options are not used: inside the hardened
//! unit every mount is `ro`.

use std::time::Duration;

use super::look::{Damage, Ext4Errors, Filesystem, Source};
use super::state::{Problem, Verdict, cut};
use crate::core::facts::Unread;
use crate::core::instant::Mono;

/// A read-only superblock counts after this time.
const READ_ONLY_FOR: Duration = Duration::from_secs(60);
/// `last_error_time` may be this much ahead of the clock, in seconds.
const CLOCK_STEP: u64 = 60;

/// What the rules remember of one file system while it is mounted.
#[derive(Debug, Default)]
struct Memory {
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
    memories: Vec<Memory>,
}

impl Readonly {
    /// The verdict, and the devices whose ext4 errors grew since the last look. `wall` is the
    /// board's clock, in seconds since 1970.
    pub(super) fn judge(
        &mut self,
        filesystems: &Source<Vec<Filesystem>>,
        wall: u64,
        now: Mono,
    ) -> (Verdict, Vec<String>) {
        let filesystems = match filesystems {
            None => return (Verdict::NoSource, Vec::new()),
            Some(Err(_)) => return (Verdict::Unread, Vec::new()),
            Some(Ok(filesystems)) => filesystems,
        };
        let mut old = std::mem::take(&mut self.memories);
        let mut failed: Vec<&Filesystem> = Vec::new();
        let (mut is_watched, mut is_close, mut grown) = (false, false, Vec::new());
        for fs in filesystems {
            let place = old.iter().position(|memory| memory.number == fs.number);
            let mut memory = place
                .map(|place| old.swap_remove(place))
                .unwrap_or_default();
            memory.number.clone_from(&fs.number);
            let errors = fs.ext4.as_ref().and_then(|read| read.as_ref().ok());
            if let Some(errors) = errors {
                if memory.errors.is_some_and(|before| errors.count > before) {
                    memory.has_grown = true;
                    grown.push(fs.device.clone());
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
        let verdict = match failed.first() {
            Some(fs) => {
                let message = format!("{} stopped taking writes", title(fs));
                Verdict::Problem(Problem::new(
                    1,
                    "FilesystemIsReadOnly",
                    &message,
                    failed.len() - 1,
                ))
            }
            None if is_close => Verdict::Close,
            None if is_watched => Verdict::Quiet,
            None => Verdict::NoSource,
        };
        (verdict, grown)
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

/// `mmcblk0p2 (ext4 at /)`, cut so that the text behind it fits.
fn title(fs: &Filesystem) -> String {
    let (device, point) = (cut(&fs.device, 24), cut(&fs.point, 32));
    format!("{device} ({} at {point})", fs.fs_type)
}

/// The verdict of FilesystemCorruptionProblem. The counters are kept on disk, so it needs no state.
pub(super) fn corruption(filesystems: &Source<Vec<Filesystem>>, damages: &[Damage]) -> Verdict {
    let mounted: &[Filesystem] = match filesystems {
        Some(Ok(mounted)) => mounted,
        _ => &[],
    };
    let mut found = Found {
        is_unread: matches!(filesystems, Some(Err(_))),
        ..Found::default()
    };
    for fs in mounted {
        if let Some(errors) = &fs.ext4 {
            found.add(errors.as_ref().map(|errors| errors.count), || title(fs));
        }
    }
    for damage in damages {
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
            Verdict::Problem(Problem::new(rank, reason, &message, found.more))
        }
        None if found.is_read => Verdict::Quiet,
        None if found.is_unread => Verdict::Unread,
        None => Verdict::NoSource,
    }
}

/// The records of errors of all file systems.
#[derive(Default)]
struct Found {
    /// Number of errors and title of the first damaged file system.
    first: Option<(u64, String)>,
    /// Number of the further ones.
    more: usize,
    /// A record was read; another one was not.
    is_read: bool,
    is_unread: bool,
}

impl Found {
    fn add(&mut self, count: Result<u64, &Unread>, title: impl FnOnce() -> String) {
        match count {
            Err(_) => self.is_unread = true,
            Ok(0) => self.is_read = true,
            Ok(_) if self.first.is_some() => self.more += 1,
            Ok(count) => self.first = Some((count, title())),
        }
    }
}
