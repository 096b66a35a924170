//! ReadonlyFilesystem: the mounted file systems, of `proc/self/mountinfo`, `sys/fs/ext4/DEV`,
//! `proc/fs/ext4/DEV/options` and `sys/fs/f2fs/DEV/stat/cp_status`.
//!
//! Since Linux 6.12 (d3476f3dad4a) an error of ext4 leaves the superblock option `rw`, so the time
//! of its last error is compared with the time of boot. An f2fs that stopped stays `rw`, too (since
//! Linux 6.12, 930c6ab93492). So does an XFS, of which no file tells it: only a device that is gone
//! is found. Per-mount options are not used: inside the hardened unit every mount is `ro`.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::condition_state::{RuleResult, cut};
use super::mounted::{Ext4Errors, Filesystem};
use super::reader::{HealthReader, MAX_DEVICES, count, hex, join};
use super::{CheckTexts, ConditionKind, RuleInput, Source, value_or_result};
use crate::kube::facts::{Presence, Read, Unread};
use crate::kube::instant::Mono;
use crate::os::mounts::{MOUNTINFO, Superblock, parse_superblock, points_in_fstab};
use crate::os::read::{LARGE, SMALL, each_line, is_end};
use crate::os::reread_file::RereadFile;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "ReadonlyFilesystem",
    fine: ("FilesystemTakesWrites", "mounted filesystems take writes"),
    problems: &[("FilesystemIsReadOnly", 60)],
    source: Some(|| Box::new(ReadonlyFilesystem::default())),
    check: CheckTexts {
        name: "readonly-filesystem",
        absent: "no writable file system on a device is mounted",
        remedy: "save what can be read, run fsck, replace the card",
    },
};

/// How often the mount table is read without a report: the kernel reports no change of the table if
/// an error makes a superblock read-only.
const TABLE_EVERY: Duration = Duration::from_secs(295);

/// Types that are writable unless something is wrong, and need no server or process. Never
/// squashfs, erofs, overlay, tmpfs and the like.
const WATCHED: [&str; 11] =
    ["ext2", "ext3", "ext4", "vfat", "exfat", "f2fs", "btrfs", "xfs", "ubifs", "jffs2", "ntfs3"];

/// The watched file systems: writable types, not on a loop device.
#[derive(Debug)]
pub(super) struct ReadonlyFilesystem {
    /// Kept open, because the kernel reports changes to the open file.
    table: RereadFile,
    read_at: Option<Mono>,
    /// As of the last table that was read.
    mounted: Vec<Mounted>,
    /// Why the table, or a name of a device in it, was not read last.
    unread: Option<Unread>,
    /// The mount points of fstab, and whether it wants them read-only; `None` before it was read.
    fstab: Option<Vec<(PathBuf, bool)>>,
    pub(super) found: Presence<Rc<[Filesystem]>>,
    memories: Vec<FilesystemHistory>,
    /// The last look that read the table.
    looked: Option<Mono>,
}

impl Default for ReadonlyFilesystem {
    fn default() -> Self {
        Self {
            table: RereadFile::new(MOUNTINFO),
            read_at: None,
            mounted: Vec::new(),
            unread: None,
            fstab: None,
            found: Presence::Absent,
            memories: Vec::new(),
            looked: None,
        }
    }
}

#[derive(Debug)]
struct Mounted {
    fs: Filesystem,
    /// The device in the table of mounts.
    source: String,
    /// The device has the kernel's name.
    is_named: bool,
    /// The superblock has the option `errors=remount-ro`.
    stops_on_error: bool,
    /// The errors of an ext4, the status of an f2fs.
    errors: Option<RereadFile>,
}

impl Source for ReadonlyFilesystem {
    fn look(&mut self, reader: &mut HealthReader) {
        let now = reader.now().mono;
        let is_due = self.read_at.is_none_or(|at| now.since(at) >= TABLE_EVERY);
        // `has_changed` is called in any case, because the call ends the report.
        if self.table.has_changed() || is_due || self.unread.is_some() {
            self.read_at = self.read_table(reader).then_some(now);
        }
        self.found = match &self.unread {
            Some(unread) => Presence::Unread(unread.clone()),
            None => {
                let mut grew = false;
                for one in &mut self.mounted {
                    let before = one.fs.ext4.clone();
                    one.read_errors(reader);
                    grew |= before != one.fs.ext4 && before != Presence::Absent;
                }
                if grew {
                    // The error may have made the superblock read-only, so the next look reads the
                    // table.
                    self.read_at = None;
                }
                let found: Rc<[Filesystem]> =
                    self.mounted.iter().map(|one| one.fs.clone()).collect();
                if found.is_empty() { Presence::Absent } else { Presence::Found(found) }
            }
        };
        reader.filesystems.clone_from(&self.found);
    }

    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult {
        let (wall, now) = (input.now.wall.seconds(), input.now.mono);
        // A clock that was not set shows the same times at each boot, so an error of an earlier
        // boot may have a time soon after now. With a wrong clock there is no tolerance.
        let step = if input.clock_is_wrong { 0 } else { CLOCK_STEP };
        let filesystems = match value_or_result(&self.found) {
            Ok(filesystems) => filesystems,
            Err(result) => {
                // A file system that was unmounted is forgotten, also the only one.
                if self.found == Presence::Absent {
                    self.memories.clear();
                    self.looked = Some(now);
                }
                return result;
            }
        };
        let looked = self.looked.replace(now);
        let mut old = std::mem::take(&mut self.memories);
        let mut failed: Vec<&Filesystem> = Vec::new();
        let (mut is_watched, mut is_close, mut is_unread) = (false, false, false);
        for fs in filesystems.iter() {
            let place = old.iter().position(|memory| memory.number == fs.number);
            let new = || FilesystemHistory { mounted_after: looked, ..Default::default() };
            let mut memory = place.map_or_else(new, |place| old.swap_remove(place));
            // After a restart of the agent, the condition of the Node says which file system has
            // stopped. The condition is known from the second look on. Of a file system that was
            // mounted since, it tells what was before the mount.
            let told = input.problem.filter(|told| is_named_by(&told.message, fs));
            let told = told.filter(|_| memory.mounted_after.is_none());
            let told = told.map(|_| &input.is_of_this_boot);
            let was_told = matches!(told, Some(Presence::Absent | Presence::Found(true)));
            is_unread |= told.is_some_and(Presence::is_unread);
            memory.was_told |= was_told;
            memory.was_writable |= was_told || (place.is_none() && !fs.is_read_only);
            memory.number.clone_from(&fs.number);
            let errors = fs.ext4.found();
            if let Some(errors) = errors {
                let before = memory.errors.replace(errors.count);
                // By the clock of now, as the time of the boot.
                let looked = |at| input.now.wall.before(now.since(at)).seconds();
                let from = memory.mounted_after.map_or(0, looked);
                memory.has_failed |= match before {
                    None => is_of_this_boot(errors, from, wall.saturating_add(step)),
                    Some(before) => errors.count > before,
                };
                // Without a boot id, the condition may be of an earlier boot. Then it counts only
                // while the file system is read-only: after a boot it is writable, in spite of its
                // errors.
                memory.has_failed |=
                    told == Some(&Presence::Found(true)) || (was_told && fs.is_read_only);
                memory.has_failed &= errors.count > 0;
            }
            // An ext4 whose journal was aborted becomes read-only whatever `errors=` says
            // (ext4_journal_check_start).
            let was_aborted = fs.is_read_only && memory.was_writable;
            // An error of a read may follow the one that stopped the writes, under another name.
            memory.has_stopped |= memory.has_failed && errors.is_some_and(|it| it.stops_on_error);
            memory.has_stopped &= memory.has_failed;
            let is_stopped = fs.is_stopped
                || fs.f2fs == Presence::Found(true)
                || memory.has_stopped
                || memory.has_failed && was_aborted
                || fs.lacks_device && memory.was_told;
            let has_turned = fs.is_read_only
                && memory.was_writable
                && fs.ext4 == Presence::Absent
                && !fs.is_read_only_in_fstab;
            memory.read_only_since = has_turned.then(|| memory.read_only_since.unwrap_or(now));
            let turned_for = memory.read_only_since.map(|since| now.since(since));
            if is_stopped || turned_for.is_some_and(|time| time >= READ_ONLY_FOR) {
                failed.push(fs);
            } else if has_turned {
                is_close = true;
            }
            if has_turned {
                // Nothing reports that it is writable again: a remount is one of the host's mount
                // namespace, not of the unit's. So the next look reads the table.
                self.read_at = None;
            }
            is_watched |= !fs.is_read_only;
            is_unread |= fs.ext4.is_unread() || fs.f2fs.is_unread();
            self.memories.push(memory);
        }
        // A file system that nothing else tells the next process to have stopped is named first.
        // An ext4 has its record of errors, which is enough if an error stops it.
        let needs_message = |fs: &&&Filesystem| match &fs.ext4 {
            Presence::Absent => true,
            Presence::Found(errors) => !errors.stops_on_error,
            Presence::Unread(_) => false,
        };
        match failed.iter().find(needs_message).or(failed.first()) {
            Some(fs) => {
                RuleResult::problem(1, "FilesystemIsReadOnly", &stopped(fs), failed.len() - 1)
            }
            None if is_close => RuleResult::NearProblem,
            // The problem may be in the record that could not be read.
            None if is_unread && input.problem.is_some() => RuleResult::Unread,
            None if is_watched => RuleResult::NoProblem,
            None => RuleResult::NoSource,
        }
    }

    fn paths(&self) -> Vec<String> {
        vec![MOUNTINFO.to_owned()]
    }
}

impl ReadonlyFilesystem {
    /// Returns whether everything was read that the mounts need.
    fn read_table(&mut self, reader: &mut HealthReader) -> bool {
        let mut is_whole = true;
        let mut superblocks = Vec::new();
        let is_wanted: fn(&str) -> bool = |fs_type| WATCHED.contains(&fs_type);
        let mut take = |line: &str| superblocks.extend(parse_superblock(line, is_wanted));
        let table = reader.reread_bytes(&mut self.table, LARGE, &mut each_line(&mut take));
        // On a root that can block, fstab is read only until that succeeds once.
        if !reader.root_can_block || self.fstab.is_none() {
            let mut file = RereadFile::new("etc/fstab");
            let bytes = reader.reread_bytes(&mut file, SMALL, &mut is_end(SMALL));
            match Presence::from(bytes).present() {
                Ok(bytes) => {
                    // A comment may have another encoding.
                    let text = String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
                    self.fstab = Some(points_in_fstab(&text));
                }
                Err(_) if reader.root_can_block && reader.root.may_read().is_ok() => {
                    self.fstab = Some(Vec::new());
                }
                Err(_) => is_whole = false,
            }
        }
        let fstab = self.fstab.as_deref().unwrap_or_default();
        let unread = table.err();
        if unread.is_none() {
            let old = std::mem::take(&mut self.mounted);
            self.mounted = mounted(superblocks, old, fstab, reader);
        }
        // The look ended before all files of sys/dev were read. A device whose file is unread gets
        // another name, and its errors are not found.
        self.unread = reader.cut_off(MOUNTINFO).or(unread);
        let is_unread = |one: &Mounted| one.fs.ext4.is_unread() || one.fs.f2fs.is_unread();
        is_whole && !self.mounted.iter().any(is_unread)
    }
}

/// One entry for each device number.
fn mounted(
    superblocks: Vec<Superblock>,
    mut old: Vec<Mounted>,
    fstab: &[(PathBuf, bool)],
    reader: &mut HealthReader,
) -> Vec<Mounted> {
    let in_fstab = |superblock: &Superblock| {
        let found = fstab.iter().find(|(point, _)| point == Path::new(&superblock.point));
        found.map(|(_, is_read_only)| *is_read_only)
    };
    // One subvolume of a btrfs may be read-only while the superblock is writable for another one.
    let writable: Vec<String> = superblocks
        .iter()
        .filter(|superblock| in_fstab(superblock) == Some(false))
        .map(|superblock| superblock.number.clone())
        .collect();
    let mut mounted: Vec<Mounted> = Vec::new();
    for superblock in superblocks {
        if superblock.source.starts_with("/dev/loop") {
            continue;
        }
        let is_in_fstab =
            in_fstab(&superblock) == Some(true) && !writable.contains(&superblock.number);
        if let Some(one) = mounted.iter_mut().find(|one| one.fs.number == superblock.number) {
            one.fs.is_read_only_in_fstab |= is_in_fstab;
            continue;
        }
        if mounted.len() == MAX_DEVICES {
            break;
        }
        let has = |word: &str| superblock.options.split(',').any(|option| option == word);
        let name = device_name(&superblock, reader);
        let (number, fs_type) = (superblock.number, superblock.fs_type);
        let (is_ext, is_f2fs) = (fs_type.starts_with("ext"), fs_type == "f2fs");
        let is_it = |one: &&mut Mounted| {
            one.fs.number == number && one.fs.fs_type == fs_type && one.source == superblock.source
        };
        let former = old.iter_mut().find(is_it);
        // The record of errors is found only under the kernel's name of the device.
        // A disk that was pulled out stays mounted, and has no device any more.
        // Some numbers name no device. The major of btrfs is 0. The major of jffs2 is mtdblock's
        // (31), even without that driver (mtd_set_super).
        let is_of_device = !["0:", "31:"].iter().any(|major| number.starts_with(major));
        let lacks_device = name == Presence::Absent && is_of_device;
        let is_gone = name == Presence::Absent && former.as_ref().is_some_and(|it| it.is_named);
        let (device, is_named, unread) = match (name, &former) {
            (Presence::Found(name), _) => (name, true, None),
            (_, Some(former)) if former.is_named => (former.fs.device.clone(), true, None),
            (Presence::Unread(unread), _) => (base_name(&superblock.source), false, Some(unread)),
            (Presence::Absent, _) => (base_name(&superblock.source), false, None),
        };
        let errors = ((is_ext || is_f2fs) && unread.is_none()).then(|| {
            let open = former.filter(|one| one.fs.device == device);
            let open = open.and_then(|one| one.errors.take());
            let path = if is_f2fs { status_file(&device) } else { errors_file(&device) };
            open.unwrap_or_else(|| RereadFile::new(path))
        });
        let f2fs = unread.clone().filter(|_| is_f2fs);
        let unread = unread.filter(|_| is_ext);
        mounted.push(Mounted {
            source: superblock.source,
            is_named,
            stops_on_error: has("errors=remount-ro"),
            errors,
            fs: Filesystem {
                is_stopped: has("emergency_ro") || has("shutdown") || is_gone,
                lacks_device,
                is_read_only: has("ro"),
                is_read_only_in_fstab: is_in_fstab,
                device,
                number,
                fs_type,
                point: superblock.point,
                ext4: unread.map_or(Presence::Absent, Presence::Unread),
                f2fs: f2fs.map_or(Presence::Absent, Presence::Unread),
            },
        });
    }
    mounted
}

/// The kernel's name of the device: `/dev/root` and `/dev/mapper/x` are other names.
fn device_name(superblock: &Superblock, reader: &mut HealthReader) -> Presence<String> {
    let folder = join("sys/dev/block", &superblock.number);
    let uevent = match reader.text(&join(&folder, "uevent")).into() {
        Presence::Found(uevent) => uevent,
        not_found => return not_found,
    };
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    // In sysfs, `!` stands for `/`.
    name.map_or(Presence::Absent, |name| Presence::Found(name.replace('/', "!")))
}

fn base_name(source: &str) -> String {
    source.rsplit('/').next().unwrap_or_default().to_owned()
}

impl Mounted {
    fn read_errors(&mut self, reader: &mut HealthReader) {
        let Some(errors) = &mut self.errors else {
            return;
        };
        if self.fs.fs_type == "f2fs" {
            let flags = Presence::from(reader.reread(errors));
            let garbage = || Unread::new(errors.path.as_str(), "not the kernel's format");
            let flags = flags.and_then(|text| hex(&text).ok_or_else(garbage));
            self.fs.f2fs = flags.and_then(|flags| Ok(flags & CP_ERROR_FLAG != 0));
            return;
        }
        let count = Presence::from(count(reader.reread_number(errors)));
        self.fs.ext4 = count.and_then(|count| self.of_count(count, reader));
    }

    fn of_count(&self, errors: u64, reader: &mut HealthReader) -> Read<Ext4Errors> {
        let mut found = Ext4Errors { count: errors, ..Ext4Errors::default() };
        if errors == 0 {
            return Ok(found);
        }
        let device = &self.fs.device;
        let options = join(&join("proc/fs/ext4", device), "options");
        let options = Presence::from(reader.text(&options)).present()?.unwrap_or_default();
        let mut words = options.split_whitespace();
        let function = reader.text(&join(&join("sys/fs/ext4", device), "last_error_func"));
        let function = Presence::from(function).present()?;
        found.stops_on_error = self.stops_on_error
            || words.any(|word| word == "errors=remount-ro")
            || function.is_some_and(|function| function.trim() == ABORTED);
        let last = join(&join("sys/fs/ext4", device), "last_error_time");
        let last = Presence::from(reader.reread_number(&mut RereadFile::new(last))).present()?;
        found.last = last.unwrap_or_default().unsigned_abs();
        let stat = reader.reread_values(&mut RereadFile::new("proc/stat"), ["btime "]);
        [found.booted] = Presence::from(stat).present()?.unwrap_or_default();
        Ok(found)
    }
}

/// Of include/linux/f2fs_fs.h: f2fs writes nothing until it is mounted again.
const CP_ERROR_FLAG: u64 = 0x8;
/// A read-only superblock counts after this time.
const READ_ONLY_FOR: Duration = Duration::from_secs(60);
/// The `last_error_func` of an ext4 whose journal was aborted: each write fails, whatever `errors=`
/// says. Since d3476f3dad4a its superblock stays `rw`. Linux 6.15 is the first with `emergency_ro`.
const ABORTED: &str = "ext4_journal_check_start";
/// `last_error_time` may be this much ahead of the clock, in seconds.
const CLOCK_STEP: u64 = 60;

/// What the rules remember of one file system while it is mounted.
#[derive(Debug, Default)]
struct FilesystemHistory {
    number: String,
    /// The last look before it was mounted; `None` if the first look found it.
    mounted_after: Option<Mono>,
    /// Its superblock was writable at the first look. If it was read-only then, it may become
    /// writable for an edit and then read-only again, which is no problem.
    was_writable: bool,
    /// The condition has named it. It names one file system only, which may change.
    was_told: bool,
    /// When its superblock turned read-only.
    read_only_since: Option<Mono>,
    /// Errors of ext4 at the last look.
    errors: Option<u64>,
    /// It has an error of this boot and mount: the error's time said so at the first look, or the
    /// errors grew since. The time is compared only at the first look, because the clock, and with
    /// it the time of the boot, may be set later.
    has_failed: bool,
    /// One of these errors stopped all writes.
    has_stopped: bool,
}

/// Whether the last error is of this boot and of this mount: not before the boot or `from`, and not
/// after `until`. An error of an earlier boot does not count, nor one of an earlier mount, which
/// may have been on another machine.
fn is_of_this_boot(errors: &Ext4Errors, from: u64, until: u64) -> bool {
    errors.booted.is_some_and(|booted| (booted.max(from)..=until).contains(&errors.last))
}

/// ext4's record of errors.
pub(super) fn errors_file(device: &str) -> String {
    format!("sys/fs/ext4/{device}/errors_count")
}

/// Flags of the checkpoint of f2fs.
pub(super) fn status_file(device: &str) -> String {
    format!("sys/fs/f2fs/{device}/stat/cp_status")
}

/// `mmcblk0p2 (ext4 at /)`, cut so that the text behind it fits.
pub(super) fn title(fs: &Filesystem) -> String {
    let (device, point) = (cut(&fs.device, 24), cut(&fs.point, 32));
    format!("{device} ({} at {point})", fs.fs_type)
}

fn stopped(fs: &Filesystem) -> String {
    format!("{} stopped taking writes", title(fs))
}

/// Whether [`stopped`] wrote the message for this file system. Only the message outlives the
/// process.
fn is_named_by(message: &str, fs: &Filesystem) -> bool {
    message.starts_with(&stopped(fs))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::health::tests::{Board, WALL, unread};
    use crate::kube::instant::Now;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;
    use serde_json::json;

    type Look = Presence<Rc<[Filesystem]>>;

    fn new_board() -> Board<ReadonlyFilesystem, Look> {
        Board::new(&KIND, |source, found| source.found.clone_from(found))
    }

    pub(in crate::health) fn ext4(count: u64) -> Filesystem {
        Filesystem {
            number: "179:2".to_owned(),
            device: "mmcblk0p2".to_owned(),
            fs_type: "ext4".to_owned(),
            point: "/".to_owned(),
            ext4: Presence::Found(Ext4Errors {
                count,
                last: WALL - 100,
                stops_on_error: true,
                booted: Some(WALL - 1000),
            }),
            ..Filesystem::default()
        }
    }

    pub(in crate::health) fn vfat(is_read_only: bool) -> Filesystem {
        Filesystem {
            number: "179:1".to_owned(),
            device: "mmcblk0p1".to_owned(),
            fs_type: "vfat".to_owned(),
            point: "/boot".to_owned(),
            is_read_only,
            ..Filesystem::default()
        }
    }

    pub(in crate::health) fn mounted(filesystems: &[Filesystem]) -> Look {
        Presence::Found(filesystems.into())
    }

    fn with_errors(change: impl FnOnce(&mut Ext4Errors)) -> Look {
        let mut fs = ext4(1);
        let Presence::Found(errors) = &mut fs.ext4 else { unreachable!() };
        change(errors);
        mounted(&[fs])
    }

    #[test]
    fn an_ext4_error_of_this_boot_makes_it_read_only() {
        let now = WALL;
        for (name, look, want) in [
            ("no error", mounted(&[ext4(0)]), "False"),
            ("an error", with_errors(|_| {}), "FilesystemIsReadOnly"),
            ("at boot", with_errors(|e| e.last = now - 1000), "FilesystemIsReadOnly"),
            ("before boot", with_errors(|e| e.last = now - 1001), "False"),
            ("60 s ahead", with_errors(|e| e.last = now + 60), "FilesystemIsReadOnly"),
            ("61 s ahead", with_errors(|e| e.last = now + 61), "False"),
            ("never", with_errors(|e| e.last = 0), "False"),
            ("unknown boot", with_errors(|e| e.booted = None), "False"),
            ("errors=continue", with_errors(|e| e.stops_on_error = false), "False"),
        ] {
            let mut board = new_board();
            assert_eq!(board.look(0, &look), want, "{name}");
        }
        // The error of an earlier boot of a board without a clock, a minute after its start.
        for (last, want) in [(now + 60, "False"), (now, "FilesystemIsReadOnly")] {
            let mut board = new_board();
            board.clock_is_wrong = true;
            assert_eq!(board.look(0, &with_errors(|e| e.last = last)), want);
        }
        let mut board = new_board();
        board.look(0, &with_errors(|_| {}));
        assert_eq!(board.message(), "mmcblk0p2 (ext4 at /) stopped taking writes");
        // Cleared 60 s after fsck or an unmount.
        board.look(60, &mounted(&[ext4(0)]));
        board.ends(60, &mounted(&[ext4(0)]));
    }

    /// A board without an RTC stamps the error with 1970.
    #[test]
    fn an_ext4_error_that_is_seen_to_grow_needs_no_time() {
        let stamped = |count| {
            with_errors(|errors| {
                errors.count = count;
                errors.last = 41;
            })
        };
        let mut board = new_board();
        board.look(0, &stamped(3));
        assert_eq!(board.look(60, &stamped(3)), "False");
        assert_eq!(board.look(60, &stamped(4)), "FilesystemIsReadOnly");
        // It stays, though it does not grow any more.
        board.look(600, &stamped(4));
        assert_eq!(board.look(600, &stamped(4)), "FilesystemIsReadOnly");
        // The next process knows it by the condition, which also stands after the next boot.
        for (is_read_only, want) in [(true, "FilesystemIsReadOnly"), (false, "False")] {
            let mut found = stamped(4).found().unwrap().to_vec();
            found[0].is_read_only = is_read_only;
            let found = mounted(&found);
            let mut next = new_board();
            next.look(0, &found);
            next.adopt(&json!({"type": "ReadonlyFilesystem", "status": "True",
                "reason": "FilesystemIsReadOnly",
                "message": "mmcblk0p2 (ext4 at /) stopped taking writes"}));
            assert_eq!(next.looks(3, 60, &found), want);
        }
    }

    /// A disk that had its error on another machine, or before it was unmounted.
    #[test]
    fn an_ext4_error_from_before_the_mount_is_none_of_this_mount() {
        let last = |seconds| with_errors(|errors| errors.last = WALL + seconds);
        for (before, name) in [(mounted(&[vfat(false)]), "beside"), (Presence::Absent, "alone")] {
            for (seconds, want) in [(539, "False"), (540, "FilesystemIsReadOnly")] {
                let mut board = new_board();
                board.look(540, &before);
                // A look that reads nothing does not see a mount.
                board.look(10, &unread());
                assert_eq!(board.look(50, &last(seconds)), want, "{name} {seconds}");
                assert_eq!(board.looks(3, 60, &last(seconds)), want, "{name} {seconds}");
            }
            // Its record is not read at the look that finds it.
            let found = Filesystem { ext4: unread(), ..ext4(1) };
            let mut board = new_board();
            board.look(540, &before);
            board.look(60, &mounted(&[found]));
            assert_eq!(board.look(60, &last(539)), "False", "{name}");
            // It is mounted again, also while the condition still names it.
            for away in [10, 120] {
                let mut board = new_board();
                assert_eq!(board.look(600, &last(500)), "FilesystemIsReadOnly");
                board.look(10, &before);
                board.look(away, &before);
                board.look(10, &last(500));
                assert_eq!(board.looks(2, 60, &last(500)), "False", "{name} {away}");
            }
        }
    }

    /// A remount is reported to the mount namespace of the host.
    #[test]
    fn what_has_turned_is_read_again_at_each_look() {
        let tree = Tree::new("health-remount");
        tree.write("sys/dev/block/179:1/uevent", b"DEVNAME=mmcblk0p1\n");
        let write = |options: &str| {
            let table = format!("1 0 179:1 / /boot rw - vfat /dev/mmcblk0p1 {options}\n");
            tree.write(MOUNTINFO, table.as_bytes());
        };
        // The table is due, or a look finds no reason to read it.
        type Due = (PathBuf, bool);
        let mut board =
            Board::new(&KIND, |source: &mut ReadonlyFilesystem, (root, is_due): &Due| {
                source.read_at = source.read_at.filter(|_| !is_due);
                source.look(&mut HealthReader::new(HostRoot::new(root), Now::default));
            });
        let [due, not_due] = [true, false].map(|is_due| (tree.path().to_owned(), is_due));
        write("rw");
        board.look(0, &due);
        write("ro");
        board.look(10, &due);
        write("rw");
        assert_eq!(board.looks(3, 60, &not_due), "False");
        write("ro");
        board.look(10, &due);
        assert_eq!(board.look(60, &not_due), "FilesystemIsReadOnly");
        write("rw");
        board.look(10, &not_due);
        board.ends(60, &not_due);
    }

    /// The time of the boot moves with the clock.
    #[test]
    fn an_ext4_error_of_this_boot_stays_one_when_the_clock_is_set() {
        let later = with_errors(|errors| errors.booted = Some(WALL + 1_000_000));
        let mut board = new_board();
        board.look(0, &with_errors(|_| {}));
        assert_eq!(board.looks(3, 60, &later), "FilesystemIsReadOnly");
        board.look(60, &mounted(&[ext4(0)]));
        board.ends(60, &mounted(&[ext4(0)]));
        for (is_of_this_boot, want) in [(true, "FilesystemIsReadOnly"), (false, "False")] {
            let mut next = new_board();
            next.look(0, &later);
            next.adopt_of(
                &json!({"type": "ReadonlyFilesystem", "status": "True",
                    "reason": "FilesystemIsReadOnly",
                    "message": "mmcblk0p2 (ext4 at /) stopped taking writes"}),
                Presence::Found(is_of_this_boot),
            );
            assert_eq!(next.looks(3, 60, &later), want);
        }
    }

    #[test]
    fn another_file_system_that_turns_read_only_counts_after_60_s() {
        let mut board = new_board();
        board.look(0, &mounted(&[vfat(false), ext4(0)]));
        board.look(60, &mounted(&[vfat(true), ext4(0)]));
        assert_eq!(board.look(59, &mounted(&[vfat(true), ext4(0)])), "False");
        assert_eq!(board.look(1, &mounted(&[vfat(true), ext4(0)])), "FilesystemIsReadOnly");

        let in_fstab = Filesystem { is_read_only_in_fstab: true, ..vfat(true) };
        let remounted = Filesystem { is_read_only: true, ..ext4(0) };
        for (name, before, after, want) in [
            ("ro in fstab", vfat(false), in_fstab, "none"),
            ("ro from the start", vfat(true), vfat(true), "none"),
            ("ext4 without an error", ext4(0), remounted, "none"),
            ("rw", vfat(false), vfat(false), "False"),
        ] {
            let mut board = new_board();
            board.look(0, &mounted(&[before]));
            assert_eq!(board.looks(5, 60, &mounted(&[after])), want, "{name}");
        }
        // The next process knows it by the condition; another one that is read-only is not meant.
        let other = |point: &str| Filesystem {
            number: "8:1".to_owned(),
            device: "sda1".to_owned(),
            point: point.to_owned(),
            ..vfat(true)
        };
        let told = json!({"type": "ReadonlyFilesystem", "status": "True",
            "reason": "FilesystemIsReadOnly",
            "message": "mmcblk0p1 (vfat at /boot) stopped taking writes, and 1 more"});
        for (name, mounted_now, want) in [
            ("the same", vec![vfat(true)], "FilesystemIsReadOnly"),
            ("beside a writable one", vec![vfat(true), ext4(0)], "FilesystemIsReadOnly"),
            ("written again", vec![vfat(false)], "False"),
            ("another one", vec![other("/boot"), ext4(0)], "False"),
        ] {
            let mut next = new_board();
            next.adopt(&told);
            for second in [0, 60, 60, 600] {
                next.look(second, &mounted(&mounted_now));
            }
            assert_eq!(next.state(), want, "{name}");
        }
        // The first look is before the condition is known.
        for beside in [&[][..], &[ext4(0)]] {
            let mut next = new_board();
            let found = [&[vfat(true)], beside].concat();
            next.look(0, &mounted(&found));
            next.adopt(&told);
            for second in [60, 60, 600] {
                assert_eq!(next.look(second, &mounted(&found)), "FilesystemIsReadOnly");
            }
        }
        // Beside an ext4, whose record tells its own failure, the condition names it.
        let mut board = new_board();
        board.look(0, &mounted(&[ext4(1), vfat(false)]));
        board.looks(3, 60, &mounted(&[ext4(1), vfat(true)]));
        assert_eq!(board.message(), "mmcblk0p1 (vfat at /boot) stopped taking writes, and 1 more");
        // Of another boot it says nothing of this one.
        for (is_of_this_boot, want) in [(true, "FilesystemIsReadOnly"), (false, "False")] {
            let mut next = new_board();
            let found = mounted(&[vfat(true), ext4(0)]);
            next.look(0, &found);
            next.adopt_of(&told, Presence::Found(is_of_this_boot));
            assert_eq!(next.looks(3, 60, &found), want, "{is_of_this_boot}");
        }
        // It is read-only but for edits, as the boot medium of Alpine Linux.
        let mut board = new_board();
        for is_read_only in [true, false, true, true, true] {
            assert_eq!(board.look(60, &mounted(&[vfat(is_read_only), ext4(0)])), "False");
        }
        // The driver of ext2 has no record of errors.
        let ext2 = |is_read_only| Filesystem { is_read_only, ext4: Presence::Absent, ..ext4(0) };
        let mut board = new_board();
        board.look(0, &mounted(&[ext2(false)]));
        assert_eq!(board.looks(2, 60, &mounted(&[ext2(true)])), "FilesystemIsReadOnly");
        // An unmounted file system is forgotten: the next medium may be read-only by design.
        let mut board = new_board();
        board.look(0, &mounted(&[vfat(false), ext4(0)]));
        board.look(60, &mounted(&[ext4(0)]));
        assert_eq!(board.looks(5, 60, &mounted(&[vfat(true), ext4(0)])), "False");
        // The root is on NFS. A table that was not read forgets nothing.
        for (between, want) in [(Presence::Absent, "none"), (unread(), "FilesystemIsReadOnly")] {
            let mut board = new_board();
            board.look(0, &mounted(&[vfat(false)]));
            board.look(60, &between);
            assert_eq!(board.looks(5, 60, &mounted(&[vfat(true)])), want);
        }
    }

    #[test]
    fn a_superblock_that_stopped_counts_at_once() {
        let stopped = Filesystem { is_stopped: true, ..vfat(false) };
        let mut board = new_board();
        assert_eq!(board.look(0, &mounted(std::slice::from_ref(&stopped))), "FilesystemIsReadOnly");
        let mut second = stopped.clone();
        second.number = "8:1".to_owned();
        board.look(60, &mounted(&[stopped, second]));
        assert_eq!(board.message(), "mmcblk0p1 (vfat at /boot) stopped taking writes, and 1 more");
        assert_eq!(board.look(60, &Presence::Absent), "none", "unmounted");
        let mut board = new_board();
        assert_eq!(board.look(0, &unread()), "none");
    }

    /// Its superblock stays `rw`.
    #[test]
    fn an_f2fs_tells_by_its_status_that_it_stopped() {
        let tree = Tree::new("health-f2fs");
        let mut board = Board::new(&KIND, |source: &mut ReadonlyFilesystem, root: &PathBuf| {
            source.look(&mut HealthReader::new(HostRoot::new(root), Now::default));
        });
        let root = &tree.path().to_owned();
        tree.write("sys/dev/block/179:2/uevent", b"DEVNAME=mmcblk0p2\n");
        tree.write(MOUNTINFO, b"1 0 179:2 / / rw - f2fs /dev/root rw\n");
        assert_eq!(board.looks(3, 60, root), "False", "an old kernel");
        for (status, want) in [
            ("44\n", "False"),
            ("x\n", "False"),
            ("4c\n", "FilesystemIsReadOnly"),
            ("x\n", "FilesystemIsReadOnly"),
            ("54\n", "False"),
        ] {
            tree.write("sys/fs/f2fs/mmcblk0p2/stat/cp_status", status.as_bytes());
            assert_eq!(board.looks(3, 60, root), want, "{status}");
        }
        tree.write("sys/fs/f2fs/mmcblk0p2/stat/cp_status", b"4c\n");
        board.look(60, root);
        assert_eq!(board.message(), "mmcblk0p2 (f2fs at /) stopped taking writes");
    }

    /// mke2fs writes `errors=continue` by default.
    #[test]
    fn an_ext4_whose_journal_was_aborted_has_stopped_whatever_errors_says() {
        let look = |count, last, is_read_only| {
            let errors =
                Ext4Errors { count, last, stops_on_error: false, booted: Some(WALL - 1000) };
            mounted(&[Filesystem { is_read_only, ext4: Presence::Found(errors), ..ext4(0) }])
        };
        // The condition names it before an ext4 whose record is enough, for the next process.
        let both = |before: Look, other: u64| {
            let aborted = before.found().unwrap()[0].clone();
            let other =
                Filesystem { number: "8:1".to_owned(), device: "sda1".into(), ..ext4(other) };
            mounted(&[other, aborted])
        };
        let mut board = new_board();
        board.look(0, &both(look(0, 0, false), 0));
        board.looks(3, 60, &both(look(1, WALL, true), 1));
        assert_eq!(board.message(), "mmcblk0p2 (ext4 at /) stopped taking writes, and 1 more");
        for (name, first, second, want) in [
            ("aborted", look(0, 0, false), look(1, WALL, true), "FilesystemIsReadOnly"),
            ("an error before", look(1, WALL, false), look(1, WALL, true), "FilesystemIsReadOnly"),
            ("of another boot", look(1, 41, false), look(1, 41, true), "none"),
            ("an error alone", look(0, 0, false), look(1, WALL, false), "False"),
            ("ro from the start", look(0, 0, true), look(1, WALL, true), "none"),
        ] {
            let mut board = new_board();
            board.look(0, &first);
            assert_eq!(board.looks(3, 60, &second), want, "{name}");
        }
    }

    /// On Linux 6.12 to 6.14, and late versions of 5.15, 6.1 and 6.6, its options say nothing.
    #[test]
    fn an_ext4_whose_journal_was_aborted_is_known_by_the_function_of_the_error() {
        let tree = Tree::new("health-aborted");
        tree.write(MOUNTINFO, b"1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n");
        tree.write("proc/fs/ext4/mmcblk0p2/options", b"rw\nerrors=continue\n");
        let mut board = Board::new(&KIND, |source: &mut ReadonlyFilesystem, root: &PathBuf| {
            source.look(&mut HealthReader::new(HostRoot::new(root), Now::default));
        });
        for (errors, function, want) in [
            ("0", "", "False"),
            ("1", "ext4_lookup", "False"),
            ("2", "ext4_journal_check_start", "FilesystemIsReadOnly"),
            ("3", "ext4_find_entry", "FilesystemIsReadOnly"),
        ] {
            tree.write("sys/fs/ext4/mmcblk0p2/errors_count", errors.as_bytes());
            tree.write("sys/fs/ext4/mmcblk0p2/last_error_func", function.as_bytes());
            assert_eq!(board.looks(3, 60, &tree.path().to_owned()), want, "{function}");
        }
    }

    /// The uevent of the pull makes a look longer than a look may be.
    #[test]
    fn a_device_is_gone_although_the_table_was_not_read_meanwhile() {
        let tree = Tree::new("health-gone-unread");
        tree.write(MOUNTINFO, b"1 0 8:1 / /data rw - vfat /dev/sda1 rw\n");
        tree.write("sys/dev/block/8:1/uevent", b"DEVNAME=sda1\n");
        let mut source = ReadonlyFilesystem::default();
        let mut look = |table| {
            (source.table, source.read_at) = (RereadFile::new(table), None);
            source.look(&mut HealthReader::new(HostRoot::new(tree.path()), Now::default));
            source.found.found().map(|found| found[0].is_stopped)
        };
        assert_eq!(look(MOUNTINFO), Some(false));
        std::fs::remove_dir_all(tree.path().join("sys/dev/block/8:1")).unwrap();
        assert_eq!(look("unread"), None);
        assert_eq!(look(MOUNTINFO), Some(true));
    }

    /// A USB disk that was pulled out. A btrfs has no device of its number at any time.
    #[test]
    fn a_file_system_whose_device_is_gone_takes_no_writes() {
        let tree = Tree::new("health-gone");
        tree.write(
            MOUNTINFO,
            b"1 0 8:1 / /data rw - vfat /dev/sda1 rw\n2 0 0:35 / /a rw - btrfs /dev/sdb1 rw\n",
        );
        tree.write("sys/dev/block/8:1/uevent", b"DEVNAME=sda1\n");
        let mut source = ReadonlyFilesystem::default();
        let mut look = || {
            source.read_at = None;
            source.look(&mut HealthReader::new(HostRoot::new(tree.path()), Now::default));
            let found = source.found.found().unwrap();
            assert!(found.iter().all(|fs| fs.is_stopped == fs.lacks_device));
            found.iter().map(|fs| fs.is_stopped).collect::<Vec<_>>()
        };
        assert_eq!(look(), [false, false]);
        std::fs::remove_dir_all(tree.path().join("sys/dev/block/8:1")).unwrap();
        assert_eq!([look(), look()], [[true, false], [true, false]]);
        tree.write("sys/dev/block/8:1/uevent", b"DEVNAME=sda1\n");
        assert_eq!(look(), [false, false]);
    }

    /// The device was gone before this process began to look.
    #[test]
    fn the_condition_tells_the_next_process_of_a_device_that_is_gone() {
        let gone = |lacks_device| {
            let gone = Filesystem { number: "8:1".to_owned(), lacks_device, ..vfat(false) };
            mounted(&[gone, ext4(0)])
        };
        // One that is before it in the table turns read-only for a while.
        let with_another = |lacks_device| {
            let other = Filesystem {
                number: "8:2".to_owned(),
                device: "sda2".to_owned(),
                is_stopped: true,
                ..vfat(false)
            };
            let found = gone(lacks_device);
            mounted(&[&[other], &**found.found().unwrap()].concat())
        };
        let told = json!({"type": "ReadonlyFilesystem", "status": "True",
            "reason": "FilesystemIsReadOnly",
            "message": "mmcblk0p1 (vfat at /boot) stopped taking writes"});
        for (lacks_device, is_of_this_boot, want) in [
            (true, Presence::Found(true), "FilesystemIsReadOnly"),
            (true, Presence::Absent, "FilesystemIsReadOnly"),
            (true, Presence::Found(false), "False"),
            (false, Presence::Found(true), "False"),
        ] {
            let mut next = new_board();
            next.look(0, &gone(lacks_device));
            assert_eq!(next.state(), "False", "nobody has told");
            next.adopt_of(&told, is_of_this_boot.clone());
            assert_eq!(next.looks(3, 60, &gone(lacks_device)), want, "{is_of_this_boot:?}");
            // The message may name another one meanwhile.
            next.looks(3, 60, &with_another(lacks_device));
            assert_eq!(next.looks(9, 60, &gone(lacks_device)), want, "{is_of_this_boot:?}");
        }
    }

    /// `ro` of fstab is that of a mount. A btrfs is writable while one of its subvolumes is.
    #[test]
    fn fstab_wants_a_file_system_read_only_if_it_wants_each_of_its_points_so() {
        let tree = Tree::new("health-subvolumes");
        tree.write(
            MOUNTINFO,
            b"1 0 0:35 /@ / ro - btrfs /dev/sda2 rw\n2 1 0:35 /@/var /var rw - btrfs /dev/sda2 rw\n\
              3 1 8:1 / /data rw - f2fs /dev/sda1 rw\n4 1 8:1 /www /www ro - f2fs /dev/sda1 rw\n",
        );
        for (fstab, want) in [
            ("/dev/sda2 / btrfs ro\n", [true, false]),
            ("/dev/sda2 / btrfs ro\n/dev/sda2 /var btrfs ro,subvol=@/var\n", [true, false]),
            ("/dev/sda2 / btrfs ro\n/dev/sda2 /var btrfs subvol=@/var\n", [false, false]),
            ("/dev/sda2 / btrfs rw\n/dev/sda2 /var btrfs ro,subvol=@/var\n", [false, false]),
            ("/dev/sda1 /data f2fs ro\n/data/www /www none bind\n", [false, true]),
            ("/dev/sda1 /data f2fs rw\n/data/www /www none bind,ro\n", [false, false]),
            ("/data/www /www none ro,rbind\n", [false, false]),
        ] {
            tree.write("etc/fstab", fstab.as_bytes());
            let mut source = ReadonlyFilesystem::default();
            source.look(&mut HealthReader::new(HostRoot::new(tree.path()), Now::default));
            let found = source.found.found().unwrap();
            let found: Vec<bool> = found.iter().map(|fs| fs.is_read_only_in_fstab).collect();
            assert_eq!(found, want, "{fstab}");
        }
    }

    /// A new error makes the table of mounts be read again.
    #[test]
    fn of_a_root_that_can_block_fstab_is_read_only_at_the_start() {
        let tree = Tree::new("health-fstab");
        tree.write(MOUNTINFO, b"1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n");
        for root_can_block in [false, true] {
            let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
            reader.root_can_block = root_can_block;
            let mut source = ReadonlyFilesystem::default();
            let mut look = |errors: &[u8], options: &str| {
                tree.write("sys/fs/ext4/mmcblk0p2/errors_count", errors);
                let fstab = format!("/dev/mmcblk0p2 / ext4 {options} 0 1\n");
                // A comment in another encoding.
                tree.write("etc/fstab", &[b"# K\xfcche\n", fstab.as_bytes()].concat());
                source.look(&mut reader);
                source.found.found().unwrap()[0].is_read_only_in_fstab
            };
            assert!(!look(b"0\n", "rw"));
            assert!(!look(b"1\n", "rw"));
            assert_eq!(look(b"1\n", "ro"), !root_can_block);
        }
    }

    /// A folder is in the place of the file that cannot be read.
    #[test]
    fn what_was_not_read_of_a_mount_is_neither_another_device_nor_absent() {
        let tree = Tree::new("health-uevent");
        let folder = tree.path().join("sys/dev/block/179:2");
        tree.write(MOUNTINFO, b"1 0 179:2 / / rw - ext4 /dev/root rw\n");
        tree.write("sys/fs/ext4/mmcblk0p2/errors_count", b"1\n");
        let look = |source: &mut ReadonlyFilesystem, is_read: bool| {
            std::fs::remove_dir_all(&folder).ok();
            std::fs::remove_dir_all(tree.path().join("etc")).ok();
            match is_read {
                true => {
                    tree.write("sys/dev/block/179:2/uevent", b"DEVNAME=mmcblk0p2\n");
                    tree.write("etc/fstab", b"/dev/mmcblk0p2 / ext4 ro 0 1\n");
                }
                false => {
                    tree.write("sys/dev/block/179:2/uevent/x", b"");
                    tree.write("etc/fstab/x", b"");
                }
            }
            source.read_at = None;
            source.look(&mut HealthReader::new(HostRoot::new(tree.path()), Now::default));
            let fs = source.found.found().unwrap()[0].clone();
            (
                fs.ext4.found().map(|errors| errors.count),
                fs.ext4.is_unread(),
                fs.is_read_only_in_fstab,
            )
        };
        let mut source = ReadonlyFilesystem::default();
        assert_eq!([false; 2].map(|read| look(&mut source, read)), [(None, true, false); 2]);
        assert_eq!([true, false].map(|read| look(&mut source, read)), [(Some(1), false, true); 2]);
    }
}
