//! FilesystemCorruptionProblem: errors on record, of ext4 (`filesystems.rs`), btrfs
//! (`sys/fs/btrfs`) and f2fs (`sys/fs/f2fs`).

use std::rc::Rc;

use super::condition_state::{RuleResult, cut};
use super::filesystems::{errors_file, status_file, title};
use super::mounted::Filesystem;
use super::reader::{HealthReader, MAX_DEVICES, hex, join};
use super::{CheckTexts, ConditionKind, RuleInput, Source};
use crate::kube::facts::{Presence, Unread};
use crate::os::reread_file::RereadFile;
use crate::os::scan;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "FilesystemCorruptionProblem",
    fine: ("FilesystemErrorsNotSeen", "no filesystem has errors on record"),
    // The errors are kept on disk.
    problems: &[("FilesystemCorruptionDetected", 0)],
    source: Some(|| Box::new(FilesystemCorruption::default())),
    check: CheckTexts {
        name: "filesystem-corruption",
        absent: "no ext4, btrfs or f2fs with a record of errors is mounted",
        remedy: "run fsck at the next boot (of a btrfs: btrfs scrub start, then btrfs device stats \
                 --reset), replace the card if it returns",
    },
};

/// The number of errors in the text of a file.
type Parse = fn(&str) -> Option<u64>;

/// A file with errors on record of another file system than ext4.
#[derive(Debug)]
struct Damage {
    /// `mmcblk0p2`, or the UUID of a btrfs.
    device: String,
    /// `btrfs`, `f2fs`.
    fs_type: &'static str,
    file: RereadFile,
    parse: Parse,
    /// The number of errors; 1 for a flag.
    found: Presence<u64>,
}

impl Damage {
    fn new(device: &str, fs_type: &'static str, path: String, parse: Parse) -> Self {
        let (device, file) = (device.to_owned(), RereadFile::new(path));
        Self { device, fs_type, file, parse, found: Presence::Absent }
    }
}

/// The files of all btrfs and f2fs.
fn damages(reader: &mut HealthReader) -> Vec<Damage> {
    let mut damages = Vec::new();
    for uuid in reader.names("sys/fs/btrfs", &|name| name.contains('-')) {
        let folder = join("sys/fs/btrfs", &uuid);
        let devices = reader.names(&join(&folder, "devices"), &|_| true);
        let device = devices.into_iter().next().unwrap_or(uuid);
        let files = reader.names(&join(&folder, "devinfo"), &|_| true);
        damages.extend(files.iter().map(|id| {
            let path = format!("{folder}/devinfo/{id}/error_stats");
            Damage::new(&device, "btrfs", path, btrfs_errors)
        }));
    }
    for device in reader.names("sys/fs/f2fs", &|name| name != "features") {
        let path = format!("sys/fs/f2fs/{device}/stat/sb_status");
        damages.push(Damage::new(&device, "f2fs", path, f2fs_sb));
        damages.push(Damage::new(&device, "f2fs", status_file(&device), f2fs_cp));
    }
    damages.truncate(MAX_DEVICES);
    damages
}

/// The counters are kept on disk, so the condition needs nothing from earlier looks. The event of a
/// new ext4 error needs `last`.
#[derive(Debug, Default)]
pub(super) struct FilesystemCorruption {
    /// What `filesystems.rs` found in this look.
    filesystems: Presence<Rc<[Filesystem]>>,
    damages: Vec<Damage>,
    /// The last discovery could not read all folders, so further files may exist.
    is_unread: bool,
    /// The errors of each ext4 at the last look, by the number of the device.
    last: Vec<(String, u64)>,
}

impl Source for FilesystemCorruption {
    fn discover(&mut self, reader: &mut HealthReader) {
        let damages = reader.whole(damages);
        self.is_unread = damages.is_err();
        self.damages = damages.unwrap_or_else(|_| std::mem::take(&mut self.damages));
    }

    fn look(&mut self, reader: &mut HealthReader) {
        self.filesystems.clone_from(&reader.filesystems);
        for damage in &mut self.damages {
            let text = Presence::from(reader.reread(&mut damage.file));
            let garbage = || Unread::new(damage.file.path.as_str(), "not the kernel's format");
            damage.found = text.and_then(|text| (damage.parse)(&text).ok_or_else(garbage));
        }
    }

    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult {
        let filesystems = &self.filesystems;
        let mounted: &[Filesystem] = filesystems.found().map_or(&[], |mounted| mounted);
        let mut found = ErrorRecords {
            is_unread: self.is_unread || filesystems.is_unread(),
            ..ErrorRecords::default()
        };
        for fs in mounted {
            found.add(fs.ext4.clone().and_then(|errors| Ok(errors.count)), || title(fs));
            let Some(errors) = fs.ext4.found() else { continue };
            let last = self.last.iter_mut().find(|(number, _)| *number == fs.number);
            let Some((_, last)) = last else {
                self.last.push((fs.number.clone(), errors.count));
                continue;
            };
            if errors.count > std::mem::replace(last, errors.count) {
                let message = format!("{} has a new ext4 error on record", fs.device);
                input.signs.push(("Ext4Error", message));
            }
        }
        // Two files of a file system are one damaged file system.
        let mut counted = None;
        for damage in &self.damages {
            if damage.found.found().is_some_and(|count| *count > 0)
                && counted.replace(&damage.device) == Some(&damage.device)
            {
                continue;
            }
            found.add(damage.found.clone(), || {
                match mounted.iter().find(|fs| fs.device == damage.device) {
                    Some(fs) => title(fs),
                    None => format!("{} ({})", cut(&damage.device, 40), damage.fs_type),
                }
            });
        }
        // A file system that was unmounted is forgotten.
        if !filesystems.is_unread() {
            self.last.retain(|(number, _)| mounted.iter().any(|fs| fs.number == *number));
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
            // The problem may be in the record that could not be read.
            None if found.is_unread && (!found.is_read || input.problem.is_some()) => {
                RuleResult::Unread
            }
            None if found.is_read => RuleResult::NoProblem,
            None => RuleResult::NoSource,
        }
    }

    fn paths(&self) -> Vec<String> {
        let mounted = self.filesystems.found().into_iter().flat_map(|found| found.iter());
        let ext4 =
            mounted.filter(|fs| fs.ext4 != Presence::Absent).map(|fs| errors_file(&fs.device));
        ext4.chain(self.damages.iter().map(|damage| damage.file.path.clone())).collect()
    }
}

/// The errors that mean damage, of `error_stats`: lines `corruption_errs 0`.
fn btrfs_errors(text: &str) -> Option<u64> {
    let lines = ["corruption_errs ", "generation_errs "];
    let [corruption, generation] = scan::values(text.as_bytes(), lines, scan::lone_number);
    (corruption.is_some() || generation.is_some()).then(|| {
        let sum = corruption.unwrap_or_default();
        sum.saturating_add(generation.unwrap_or_default())
    })
}

/// SBI_NEED_FSCK of fs/f2fs/f2fs.h.
fn f2fs_sb(text: &str) -> Option<u64> {
    Some((hex(text)? >> 2) & 1)
}

/// CP_ERROR_FLAG and CP_FSCK_FLAG of include/linux/f2fs_fs.h.
fn f2fs_cp(text: &str) -> Option<u64> {
    Some(u64::from(hex(text)? & 0x18 != 0))
}

/// The records of errors of all file systems.
#[derive(Default)]
struct ErrorRecords {
    /// Number of errors and title of the first damaged file system.
    first: Option<(u64, String)>,
    /// Number of the further damaged file systems.
    more: usize,
    /// At least one record was read; `is_unread`: at least one could not be read.
    is_read: bool,
    is_unread: bool,
}

impl ErrorRecords {
    /// Adds the record of one file system: its number of errors, if it has a record. `title` is
    /// called only for the first file system that has errors.
    fn add(&mut self, count: Presence<u64>, title: impl FnOnce() -> String) {
        match count {
            Presence::Absent => {}
            Presence::Unread(_) => self.is_unread = true,
            Presence::Found(0) => self.is_read = true,
            Presence::Found(_) if self.first.is_some() => self.more += 1,
            Presence::Found(count) => self.first = Some((count, title())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::filesystems::tests::{ext4, mounted, vfat};
    use crate::health::tests::{Board, unread};
    use crate::kube::facts::Read;

    /// The mounted file systems, and the errors of a btrfs.
    type Look = (Presence<Rc<[Filesystem]>>, Vec<Read<u64>>);

    fn new_board() -> Board<FilesystemCorruption, Look> {
        Board::new(&KIND, |source, (filesystems, damages)| {
            source.filesystems.clone_from(filesystems);
            let damage = |count: &Read<u64>| Damage {
                found: count.clone().into(),
                ..Damage::new("sda1", "btrfs", String::new(), btrfs_errors)
            };
            source.damages = damages.iter().map(damage).collect();
        })
    }

    #[test]
    fn errors_on_record_are_corruption_until_fsck() {
        let mut board = new_board();
        for (count, text) in [
            (0, ""),
            (1, "1 error"),
            (2, "2 to 9 errors"),
            (9, "2 to 9 errors"),
            (10, "10 or more errors"),
            // fsck ran, and new ones followed within a minute.
            (5, "2 to 9 errors"),
            (0, ""),
            (3, "2 to 9 errors"),
        ] {
            board.look(60, &(mounted(&[ext4(count)]), Vec::new()));
            let want = match text {
                "" => String::new(),
                text => format!("mmcblk0p2 (ext4 at /) has {text} on record"),
            };
            assert_eq!(board.message(), want);
        }
        for (damages, want) in [
            (vec![], "none"),
            (vec![Ok(0)], "False"),
            (vec![Ok(1)], "FilesystemCorruptionDetected"),
            (vec![Err(Unread::new("x", "y"))], "none"),
            (vec![Err(Unread::new("x", "y")), Ok(0)], "False"),
        ] {
            let mut board = new_board();
            let look = (mounted(&[vfat(false)]), damages);
            assert_eq!(board.look(0, &look), want, "{look:?}");
        }
    }

    /// An f2fs that wants fsck says so in two files after its next checkpoint.
    #[test]
    fn two_records_of_one_file_system_are_one_damaged_file_system() {
        let mut board = new_board();
        board.look(60, &(mounted(&[vfat(false)]), vec![Ok(1), Ok(1)]));
        assert_eq!(board.message(), "sda1 (btrfs) has 1 error on record");
        board.look(60, &(mounted(&[ext4(1)]), vec![Ok(1), Ok(1)]));
        assert_eq!(board.message(), "mmcblk0p2 (ext4 at /) has 1 error on record, and 1 more");
    }

    /// For an hour.
    #[test]
    fn a_record_that_cannot_be_read_ends_no_problem_though_another_one_has_no_errors() {
        let mut unread = ext4(1);
        unread.ext4 = Presence::Unread(Unread::new("x", "y"));
        let unread = (mounted(&[unread]), vec![Ok(0)]);
        let mut board = new_board();
        assert_eq!(board.look(0, &unread), "False");
        board.look(60, &(mounted(&[ext4(1)]), vec![Ok(0)]));
        assert_eq!(board.look(60, &unread), "FilesystemCorruptionDetected");
        assert_eq!(board.look(3599, &unread), "FilesystemCorruptionDetected");
        board.look(1, &unread);
        assert_eq!(board.look(60, &unread), "False");
    }

    #[test]
    fn an_error_that_is_seen_to_grow_is_an_event() {
        let mut board = new_board();
        for (count, want) in [(3, false), (3, false), (4, true), (4, false), (0, false), (1, true)]
        {
            board.look(60, &(mounted(&[ext4(count)]), Vec::new()));
            assert_eq!(board.take_signs() == ["Ext4Error"], want, "{count}");
        }
        // Another medium; a table that was not read forgets nothing.
        for (between, want) in
            [(mounted(&[vfat(false)]), false), (Presence::Absent, false), (unread(), true)]
        {
            let mut board = new_board();
            board.look(0, &(mounted(&[ext4(3)]), Vec::new()));
            board.look(60, &(between, Vec::new()));
            board.look(60, &(mounted(&[ext4(7)]), Vec::new()));
            assert_eq!(board.take_signs() == ["Ext4Error"], want);
        }
    }
}
