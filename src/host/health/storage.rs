//! Mounted file systems and their errors: `proc/self/mountinfo`, `sys/fs/ext4/DEV`,
//! `proc/fs/ext4/DEV/options`, `sys/fs/btrfs`, `sys/fs/f2fs`. Wear of eMMC
//! (`sys/block/mmcblkN/device`) and raw NAND (`sys/class/ubi`). The kernel reads the eMMC's values
//! once, when it finds the device.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::reader::{HealthReader, MAX_DEVICES, count, is_numbered, join};
use crate::core::facts::{Read, Unread};
use crate::core::instant::Mono;
use crate::files::mounts::{MOUNTINFO, Superblock, parse_superblock, read_only_in_fstab};
use crate::files::read::{LARGE, each_line, is_end};
use crate::health::{Damage, Ext4Errors, Filesystem, Source, Wear};
use crate::host::kept_file::KeptFile;
use crate::host::root::present;
use crate::host::scan;

/// An error that makes a superblock read-only reports no change of the table.
const TABLE_EVERY: Duration = Duration::from_secs(295);

/// Types that are writable unless something is wrong, and need no server or process. Never
/// squashfs, erofs, overlay, tmpfs and the like.
const WATCHED: [&str; 11] =
    ["ext2", "ext3", "ext4", "vfat", "exfat", "f2fs", "btrfs", "xfs", "ubifs", "jffs2", "ntfs3"];

/// The watched file systems.
#[derive(Debug)]
pub(super) struct Filesystems {
    /// Kept open, because the kernel reports changes to the open file.
    table: KeptFile,
    read_at: Option<Mono>,
    mounted: Read<Vec<Mounted>>,
    /// The mount points that fstab wants read-only.
    read_only: Vec<PathBuf>,
    damages: Vec<DamageFile>,
}

#[derive(Debug)]
struct Mounted {
    fs: Filesystem,
    /// The superblock has the option `errors=remount-ro`.
    stops_on_error: bool,
    errors: Option<KeptFile>,
}

/// A file with errors on record of another file system than ext4.
#[derive(Debug)]
struct DamageFile {
    device: String,
    fs_type: &'static str,
    file: KeptFile,
    parse: fn(&str) -> Option<u64>,
}

impl Filesystems {
    pub(super) fn new() -> Self {
        Self {
            table: KeptFile::new(MOUNTINFO),
            read_at: None,
            mounted: Ok(Vec::new()),
            read_only: Vec::new(),
            damages: Vec::new(),
        }
    }

    /// Finds the counters of btrfs and f2fs.
    pub(super) fn discover(&mut self, reader: &HealthReader) {
        self.damages.clear();
        for uuid in reader.names("sys/fs/btrfs", &|name| name.contains('-')) {
            let folder = join("sys/fs/btrfs", &uuid);
            let devices = reader.names(&join(&folder, "devices"), &|_| true);
            let device = devices.into_iter().next().unwrap_or(uuid);
            let files = reader.names(&join(&folder, "devinfo"), &|_| true);
            self.damages.extend(files.iter().map(|id| DamageFile {
                device: device.clone(),
                fs_type: "btrfs",
                file: KeptFile::new(format!("{folder}/devinfo/{id}/error_stats")),
                parse: btrfs_errors,
            }));
        }
        for device in reader.names("sys/fs/f2fs", &|name| name != "features") {
            for (file, parse) in
                [("sb_status", f2fs_sb as fn(&str) -> Option<u64>), ("cp_status", f2fs_cp)]
            {
                self.damages.push(DamageFile {
                    file: KeptFile::new(format!("sys/fs/f2fs/{device}/stat/{file}")),
                    device: device.clone(),
                    fs_type: "f2fs",
                    parse,
                });
            }
        }
        self.damages.truncate(MAX_DEVICES);
    }

    /// The file systems, and the errors of those that are not ext4.
    pub(super) fn look(
        &mut self,
        reader: &mut HealthReader,
        now: Mono,
    ) -> (Source<Vec<Filesystem>>, Vec<Damage>) {
        let is_due = self.read_at.is_none_or(|at| now.since(at) >= TABLE_EVERY);
        // Asked in any case, because the question ends the report.
        if self.table.has_changed() || is_due || self.mounted.is_err() {
            self.read_table(reader);
            self.read_at = Some(now);
        }
        let filesystems = match &mut self.mounted {
            Err(unread) => present(Err(unread.clone())),
            Ok(mounted) => {
                let mut grew = false;
                for one in mounted.iter_mut() {
                    let before = one.fs.ext4.clone();
                    one.read_errors(reader);
                    grew |= before != one.fs.ext4 && before.is_some();
                }
                if grew {
                    // An error may have changed the superblock; seen at the next look.
                    self.read_at = None;
                }
                let filesystems: Vec<Filesystem> =
                    mounted.iter().map(|one| one.fs.clone()).collect();
                (!filesystems.is_empty()).then_some(Ok(filesystems))
            }
        };
        let damages = self.damages.iter_mut().filter_map(|damage| {
            let read = present(reader.kept(&mut damage.file))?;
            let garbage = || Unread::new(damage.file.path.as_str(), "not the kernel's format");
            Some(Damage {
                device: damage.device.clone(),
                fs_type: damage.fs_type,
                count: read.and_then(|text| (damage.parse)(&text).ok_or_else(garbage)),
            })
        });
        (filesystems, damages.collect())
    }

    fn read_table(&mut self, reader: &mut HealthReader) {
        let mut superblocks = Vec::new();
        let is_wanted: fn(&str) -> bool = |fs_type| WATCHED.contains(&fs_type);
        let mut take = |line: &str| superblocks.extend(parse_superblock(line, is_wanted));
        let table = reader.kept_bytes(&mut self.table, LARGE, &mut each_line(&mut take));
        let old = std::mem::replace(&mut self.mounted, Ok(Vec::new()));
        if self.read_at.is_none() || !reader.root_can_block {
            self.read_only = read_only_in_fstab(&reader.word("etc", "fstab"));
        }
        let (old, read_only) = (old.unwrap_or_default(), &self.read_only);
        self.mounted = table.map(|_| mounted(superblocks, old, read_only, reader));
    }

    /// The files of errors on record that exist.
    pub(super) fn error_files(&self) -> Vec<&str> {
        let with_record = self.mounted.iter().flatten().filter(|one| one.fs.ext4.is_some());
        let ext4 = with_record.filter_map(|one| one.errors.as_ref());
        let others = self.damages.iter().map(|damage| &damage.file);
        ext4.chain(others).map(|file| file.path.as_str()).collect()
    }
}

/// One entry for each device number.
fn mounted(
    superblocks: Vec<Superblock>,
    mut old: Vec<Mounted>,
    read_only: &[PathBuf],
    reader: &mut HealthReader,
) -> Vec<Mounted> {
    let mut mounted: Vec<Mounted> = Vec::new();
    for superblock in superblocks {
        if superblock.source.starts_with("/dev/loop") {
            continue;
        }
        let is_in_fstab = read_only.iter().any(|point| point == Path::new(&superblock.point));
        if let Some(one) = mounted.iter_mut().find(|one| one.fs.number == superblock.number) {
            one.fs.is_read_only_in_fstab |= is_in_fstab;
            continue;
        }
        if mounted.len() == MAX_DEVICES {
            break;
        }
        let has = |word: &str| superblock.options.split(',').any(|option| option == word);
        let device = device(&superblock, reader);
        let place = old
            .iter()
            .position(|one| one.fs.number == superblock.number && one.fs.device == device);
        let kept = place.and_then(|place| old.swap_remove(place).errors);
        let errors = superblock.fs_type.starts_with("ext").then(|| {
            kept.unwrap_or_else(|| KeptFile::new(format!("sys/fs/ext4/{device}/errors_count")))
        });
        mounted.push(Mounted {
            stops_on_error: has("errors=remount-ro"),
            errors,
            fs: Filesystem {
                is_stopped: has("emergency_ro") || has("shutdown"),
                is_read_only: has("ro"),
                is_read_only_in_fstab: is_in_fstab,
                device,
                number: superblock.number,
                fs_type: superblock.fs_type,
                point: superblock.point,
                ext4: None,
            },
        });
    }
    mounted
}

/// The kernel's name of the device: `/dev/root` and `/dev/mapper/x` are other names.
fn device(superblock: &Superblock, reader: &mut HealthReader) -> String {
    let folder = join("sys/dev/block", &superblock.number);
    let uevent = reader.word(&folder, "uevent");
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    let base = superblock.source.rsplit('/').next().unwrap_or_default();
    // As in sysfs.
    name.unwrap_or(base).replace('/', "!")
}

impl Mounted {
    fn read_errors(&mut self, reader: &mut HealthReader) {
        let Some(errors) = &mut self.errors else {
            return;
        };
        let read = present(count(reader.kept_number(errors)));
        self.fs.ext4 = read.map(|count| count.map(|count| self.of_count(count, reader)));
    }

    fn of_count(&self, errors: u64, reader: &mut HealthReader) -> Ext4Errors {
        let mut found = Ext4Errors { count: errors, ..Ext4Errors::default() };
        if errors == 0 {
            return found;
        }
        let device = &self.fs.device;
        let options = reader.word(&join("proc/fs/ext4", device), "options");
        let mut words = options.split_whitespace();
        found.stops_on_error = self.stops_on_error || words.any(|word| word == "errors=remount-ro");
        if found.stops_on_error {
            let last = reader.value(&join("sys/fs/ext4", device), "last_error_time");
            found.last = last.unwrap_or_default().unsigned_abs();
            let mut stat = KeptFile::new("proc/stat");
            let stat = reader.kept_bytes(&mut stat, LARGE, &mut is_end(LARGE)).unwrap_or_default();
            [found.booted] = scan::values(&stat, ["btime "], scan::lone_number);
        }
        found
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

/// A hexadecimal number, with or without `0x`.
fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// The flash devices with wear data; with the folder of each.
pub(super) fn worn_devices(reader: &mut HealthReader) -> Vec<(String, Wear)> {
    let mut found = Vec::new();
    // mmcblk0boot0 is the same device.
    for device in reader.names("sys/block", &|name| is_numbered(name, "mmcblk")) {
        let folder = format!("sys/block/{device}/device");
        if let Some(wear) = emmc(&folder, device, reader) {
            found.push((folder, wear));
        }
    }
    for device in reader.names("sys/class/ubi", &|name| is_numbered(name, "ubi")) {
        let folder = join("sys/class/ubi", &device);
        if let Some(wear) = ubi(&folder, device, reader) {
            found.push((folder, wear));
        }
    }
    found
}

/// An SD card has no such data; both estimates can be undefined.
fn emmc(folder: &str, device: String, reader: &mut HealthReader) -> Option<Wear> {
    if reader.word(folder, "type") != "MMC" {
        return None;
    }
    let estimates = reader.word(folder, "life_time");
    let known = estimates.split_whitespace().filter_map(hex);
    let life = known.filter(|life| (1..=11).contains(life)).max();
    let level = hex(&reader.word(folder, "pre_eol_info"));
    let pre_eol = level.filter(|level| (1..=3).contains(level));
    (life.is_some() || pre_eol.is_some()).then(|| Wear::Emmc {
        device,
        life: life.unwrap_or_default(),
        pre_eol: pre_eol.unwrap_or_default(),
    })
}

/// NOR flash has no bad blocks and reserves none.
fn ubi(folder: &str, device: String, reader: &mut HealthReader) -> Option<Wear> {
    let mtd = reader.value(folder, "mtd_num")?;
    let kind = reader.word(&format!("sys/class/mtd/mtd{mtd}"), "type");
    let spare = reader.value(folder, "reserved_for_bad")?;
    let is_read_only = reader.value(folder, "ro_mode") == Some(1);
    matches!(kind.as_str(), "nand" | "mlc-nand")
        .then_some(Wear::Ubi { device, is_spent: spare == 0 || is_read_only })
}
