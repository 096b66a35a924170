//! The look at the sources of the board's health: a fixed list of files, found at the start and
//! every hour. `core::health` judges what was found.
//!
//! Files that are looked at every minute stay open, so each costs one system call.

mod hardware;
mod kernel;
mod reader;
mod storage;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use self::hardware::{Alarm, Sensors};
use self::kernel::KernelCounters;
use self::reader::HealthReader;
use self::storage::{Filesystems, worn_devices};
use super::Host;
use super::kept_file::KeptFile;
use crate::core::facts::Unread;
use crate::core::health::HealthConditions;
use crate::core::instant::{Mono, Now};
use crate::core::wall_clock::WallClock;
use crate::files::guard;
use crate::files::mounts::MOUNTINFO;
use crate::files::read::{SMALL, read, read_found};
use crate::files::write::{self, Op};
use crate::health::{
    Boots, ConditionKind, FileCondition, HealthConfig, HealthReading, Pace, Source, Timesync, Wear,
    if_it_lasted,
};
use crate::host::root::HostRoot;
use crate::kube::text::VERBOSE;
use crate::kube::time::Wall;

/// The folder of systemd-timesyncd, and the file whose modification time is that of the last answer
/// of a time server (systemd-timesyncd(8)).
const TIMESYNC: &str = "run/systemd/timesync";
const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";

/// Distance of two looks: once a minute, or with each status while a source is suspect. A little
/// less than that, because a status can be computed early.
const SLOW: Duration = Duration::from_secs(55);
const FAST: Duration = Duration::from_secs(9);
/// Distance of two discoveries.
const DISCOVERY: Duration = Duration::from_secs(3600);

/// The sources, and when each was looked at.
#[derive(Debug)]
pub struct HealthSources {
    reader: HealthReader,
    config: HealthConfig,
    /// The file `boots`.
    boots: PathBuf,
    looked: Option<Mono>,
    discovered: Option<Mono>,
    discoveries: u64,
    filesystems: Filesystems,
    /// With the folder of each device.
    wear: Source<Vec<(String, Wear)>>,
    alarm: Option<Alarm>,
    sensors: Sensors,
    kernel: KernelCounters,
    uptime: KeptFile,
    has_timesync: bool,
}

impl HealthSources {
    /// The sources of `host`, with its [`Host::health`]. Reads nothing yet.
    pub fn new(host: &Host, clock: impl Fn() -> Now + 'static) -> Self {
        Self {
            boots: host.boots(),
            reader: HealthReader::new(host.root.clone(), clock),
            config: host.health.clone(),
            looked: None,
            discovered: None,
            discoveries: 0,
            filesystems: Filesystems::new(),
            wear: None,
            alarm: None,
            sensors: Sensors::default(),
            kernel: KernelCounters::default(),
            uptime: KeptFile::new("proc/uptime"),
            has_timesync: false,
        }
    }

    /// A reading, if one is due.
    pub fn read(&mut self, pace: Pace) -> Option<HealthReading> {
        let now = self.reader.now().mono;
        let is_early = pace.is_fast || self.alarm.as_ref().is_some_and(Alarm::has_dipped);
        let distance = if is_early { FAST } else { SLOW };
        let is_due = self.looked.is_none_or(|at| now.since(at) >= distance);
        if !self.config.detects_any() || !is_due {
            return None;
        }
        let look = self.reader.begin();
        let is_first = self.looked.replace(now).is_none();
        let is_due = |at| now.since(at) >= DISCOVERY && !self.reader.root_can_block;
        if self.discovered.is_none_or(is_due) {
            self.discover();
            // One that did not come to its end is repeated by the next look.
            self.discovered = self.reader.root().may_read().is_ok().then_some(now);
        }
        let reader = &mut self.reader;
        let (filesystems, damages) = self.filesystems.look(reader, now);
        let wear =
            |devices: &Vec<(String, Wear)>| devices.iter().map(|(_, wear)| wear.clone()).collect();
        let reading = HealthReading {
            filesystems,
            damages,
            discovery: self.discoveries,
            wear: self.wear.as_ref().map(|read| read.as_ref().map(wear).map_err(Clone::clone)),
            voltage: self.alarm.as_mut().map(|alarm| alarm.look(reader)),
            kernel: self.kernel.kernel(reader),
            timesync: (self.has_timesync || is_first).then(|| timesync(reader.root())).flatten(),
            uptime_seconds: uptime(&mut self.uptime, reader),
            counters: self.kernel.counters(reader),
            // The last one: a sensor is the slowest of these files.
            heat: self.sensors.look(reader),
            boots: is_first.then(|| self.read_boots()),
        };
        self.reader.end(look, true);
        Some(reading)
    }

    /// The conditions of the Node if what one reading finds lasted: every waiting time is taken as
    /// over.
    pub fn conditions(&mut self) -> HealthConditions {
        let reading = self.read(Pace { is_fast: true, wait_for_voltage: false });
        let (files, now) = (self.files(), self.reader.now());
        if_it_lasted(&self.config, WallClock::built(), reading.as_slice(), files, None, now).0
    }

    fn discover(&mut self) {
        let reader = &mut self.reader;
        let compatible = reader.root().bytes("proc/device-tree/compatible", SMALL);
        let is_pi = compatible.is_ok_and(|names| {
            let vendor = b"raspberrypi,";
            names.windows(vendor.len()).any(|part| part == vendor)
        });
        self.discoveries += 1;
        self.filesystems.discover(reader);
        let found = worn_devices(reader);
        // Wear data that vanish are unreadable until the next discovery.
        self.wear = match self.wear {
            Some(Ok(_)) if found.is_empty() => {
                Some(Err(Unread::new("sys", "the wear data are gone")))
            }
            _ => (!found.is_empty()).then_some(Ok(found)),
        };
        // The alarm's last value is kept. A driver that was bound again has another number.
        if let Some(found) = Alarm::discover(reader)
            && self.alarm.as_ref().is_none_or(|alarm| alarm.file.path != found.file.path)
        {
            self.alarm = Some(found);
        }
        self.sensors = Sensors::discover(reader, is_pi);
        // A Raspberry Pi reboots by its watchdog.
        let asks_watchdog = self.discoveries == 1 && !is_pi;
        self.kernel = KernelCounters::discover(reader, asks_watchdog);
        self.has_timesync = timesync(reader.root()).is_some();
    }

    fn read_boots(&self) -> Boots {
        let text = read(&self.boots).ok();
        let boot_id = self.reader.root().text("proc/sys/kernel/random/boot_id", SMALL);
        Boots {
            text: text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            boot_id: boot_id.unwrap_or_default().trim().to_owned(),
        }
    }

    /// The operations that write the file `boots`; `None` if its folder does not exist, which is
    /// not created.
    pub(crate) fn boots_change(&self, text: String) -> Option<Vec<Op>> {
        let folder = self.boots.parent().unwrap_or(&self.boots);
        // A missing --root-dir is the default of many boards, and worth no line.
        if !guard::exists(folder) {
            log::info!(target: VERBOSE, "boots is not written: {} does not exist", folder.display());
            return None;
        }
        Some(write::publication(&self.boots, text))
    }

    /// The first line of each `--node-condition` file; `None` if it does not exist. Ends where the
    /// look ends.
    pub fn files(&self) -> Vec<Option<String>> {
        let line = |file: &FileCondition| {
            let path = guard::found(&file.path).ok()?;
            Some(first_line(&path).unwrap_or_default())
        };
        let is_reached = |_: &&FileCondition| self.reader.root().may_read().is_ok();
        self.config.files.iter().take_while(is_reached).map(line).collect()
    }

    /// The voltage driver reported a change: counts a drop.
    pub fn on_voltage(&mut self) {
        if let Some(alarm) = &mut self.alarm {
            let look = self.reader.begin();
            let _ = alarm.read(&mut self.reader);
            self.reader.end(look, false);
        }
    }

    /// The descriptor of the voltage driver's reports.
    pub fn voltage_descriptor(&self) -> Option<OwnedFd> {
        self.alarm.as_ref()?.descriptor()
    }

    /// Up to three files that the last look used for `kind`, with their values.
    pub fn sources(&self, kind: &ConditionKind) -> Vec<String> {
        let value = |path: &str| {
            let text = self.reader.root().text(path, SMALL).unwrap_or_default();
            match text.trim() {
                "" => path.to_owned(),
                text if text.len() > 40 => path.to_owned(),
                text => format!("{path} is {text}"),
            }
        };
        self.paths(kind.name).into_iter().take(3).map(value).collect()
    }

    /// The files that the last look used for `kind`.
    fn paths(&self, kind: &str) -> Vec<&str> {
        match kind {
            "ReadonlyFilesystem" => vec![MOUNTINFO],
            "FilesystemCorruptionProblem" => self.filesystems.error_files(),
            "StorageWornOut" => {
                let devices = self.wear.iter().flatten().flatten();
                devices.map(|(path, _)| path.as_str()).collect()
            }
            "UnderVoltage" => self.alarm.iter().map(|a| a.file.path.as_str()).collect(),
            "ThermalThrottling" => self.sensors.paths(),
            "KernelDeadlock" => self.kernel.paths(),
            "NTPProblem" if self.has_timesync => vec![SYNCHRONIZED],
            "FrequentReboot" => self.boots.to_str().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// `None` if systemd-timesyncd does not run.
fn timesync(root: &HostRoot) -> Option<Timesync> {
    let Ok(file) = root.open(SYNCHRONIZED) else {
        return root.open(TIMESYNC).ok().map(|_| Timesync::Never);
    };
    let modified = file.metadata().and_then(|found| found.modified());
    let since_epoch = modified.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Some(Timesync::At(since_epoch.map(Wall::from_epoch)))
}

/// Seconds since boot.
fn uptime(file: &mut KeptFile, reader: &mut HealthReader) -> Option<u64> {
    let text = reader.kept(file).ok()?;
    text.split(['.', ' ']).next()?.parse().ok()
}

/// The first line of a file that was found; `None` if it is larger than 1 MiB, or no file.
fn first_line(path: &Path) -> Option<String> {
    let bytes = read_found(path).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests;
