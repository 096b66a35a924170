//! The look at the sources of the board's health: a fixed list of files, found at the start and
//! every hour. `core::problems` judges what was found.
//!
//! Files that are looked at every minute stay open, so each costs one system call.

mod clock;
mod filesystems;
mod heat;
mod kernel;
mod reader;
mod voltage;
mod wear;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::filesystems::Filesystems;
use self::reader::Reader;
use self::voltage::Alarm;
use super::Host;
use super::kept_file::KeptFile;
use crate::config::problems::{Kind, Problems as Config};
use crate::core::facts::Unread;
use crate::core::instant::{Mono, Now};
use crate::core::problems::look::{Boots, Look, Wear};
use crate::core::problems::{Listed, Pace, if_it_lasted};
use crate::core::wall_clock::WallClock;
use crate::files::guard;
use crate::files::mounts::MOUNTINFO;
use crate::files::read::{SMALL, read, read_found};
use crate::files::write;
use crate::kube::text::VERBOSE;

/// Distance of two looks: once a minute, or with each status while a source is suspect. A little
/// less than that, because a status can be computed early.
const SLOW: Duration = Duration::from_secs(55);
const FAST: Duration = Duration::from_secs(9);
/// Distance of two discoveries.
const DISCOVERY: Duration = Duration::from_secs(3600);

/// The sources, and when each was looked at.
#[derive(Debug)]
pub struct Watch {
    reader: Reader,
    /// `--node-condition`
    files: Vec<PathBuf>,
    /// The file `boots`.
    boots: PathBuf,
    is_on: bool,
    looked: Option<Mono>,
    discovered: Option<Mono>,
    discoveries: u64,
    filesystems: Filesystems,
    wear: Vec<(String, Wear)>,
    wear_is_lost: bool,
    alarm: Option<Alarm>,
    sensors: heat::Sensors,
    kernel: kernel::Files,
    uptime: KeptFile,
    has_timesync: bool,
}

impl Watch {
    /// Looks at nothing yet.
    pub fn new(host: &Host, config: &Config) -> Self {
        Self {
            boots: host.boots(),
            reader: Reader::new(host.root.clone()),
            files: config.files.iter().map(|file| file.path.clone()).collect(),
            is_on: !config.kinds.is_empty(),
            looked: None,
            discovered: None,
            discoveries: 0,
            filesystems: Filesystems::new(),
            wear: Vec::new(),
            wear_is_lost: false,
            alarm: None,
            sensors: heat::Sensors::default(),
            kernel: kernel::Files::default(),
            uptime: KeptFile::new("proc/uptime"),
            has_timesync: false,
        }
    }

    /// A look, if one is due.
    pub fn look(&mut self, pace: Pace, clock: &dyn Fn() -> Mono) -> Option<Look> {
        let now = clock();
        let is_early = pace.is_fast || self.alarm.as_ref().is_some_and(Alarm::has_dipped);
        let distance = match is_early {
            true => FAST,
            false => SLOW,
        };
        let is_due = self.looked.is_none_or(|at| now.since(at) >= distance);
        if !self.is_on || !is_due {
            return None;
        }
        let is_first = self.looked.replace(now).is_none();
        self.reader.start(now);
        if self.discovered.is_none_or(|at| now.since(at) >= DISCOVERY) {
            self.discover(clock);
            self.discovered = Some(now);
        }
        let reader = &mut self.reader;
        let (filesystems, damages) = self.filesystems.look(reader, clock, now);
        let wear: Vec<Wear> = self.wear.iter().map(|(_, wear)| wear.clone()).collect();
        Some(Look {
            filesystems,
            damages,
            discovery: self.discoveries,
            wear: match self.wear_is_lost {
                true => Some(Err(Unread::new("sys", "the wear data are gone"))),
                false => (!wear.is_empty()).then_some(Ok(wear)),
            },
            voltage: self.alarm.as_mut().map(|alarm| alarm.look(reader, clock)),
            heat: self.sensors.look(reader, clock).map(Ok),
            kernel: self.kernel.kernel(reader, clock),
            timesync: match self.has_timesync || is_first {
                true => clock::timesync(reader.root()),
                false => None,
            },
            uptime_seconds: clock::uptime(&mut self.uptime, reader, clock),
            counters: self.kernel.counters(reader, clock),
            boots: is_first.then(|| self.read_boots()),
        })
    }

    /// The conditions of the Node if what one look finds lasted: every waiting time is taken as over.
    pub fn listed(&mut self, config: &Config, clock: &dyn Fn() -> Now) -> Listed {
        let pace = Pace {
            is_fast: true,
            wait_for_voltage: false,
        };
        let look = self.look(pace, &|| clock().mono);
        let looks = look.as_slice();
        let built = WallClock::built();
        if_it_lasted(config, built, looks, &self.files(), None, clock()).0
    }

    fn discover(&mut self, clock: &dyn Fn() -> Mono) {
        let reader = &mut self.reader;
        let compatible = reader.root().bytes("proc/device-tree/compatible", SMALL);
        let is_pi = compatible.is_ok_and(|names| {
            let vendor = b"raspberrypi,";
            names.windows(vendor.len()).any(|part| part == vendor)
        });
        self.discoveries += 1;
        self.filesystems.discover(reader);
        let found = wear::discover(reader, clock);
        // Wear data that vanish are unreadable until the next discovery.
        self.wear_is_lost = found.is_empty() && !self.wear.is_empty() && !self.wear_is_lost;
        if !self.wear_is_lost {
            self.wear = found;
        }
        // The alarm's last value is kept.
        if self.alarm.is_none() {
            self.alarm = Alarm::discover(reader, clock);
        }
        self.sensors = heat::Sensors::discover(reader, is_pi, clock);
        // A Raspberry Pi reboots by its watchdog.
        let asks_watchdog = self.discoveries == 1 && !is_pi;
        self.kernel = kernel::Files::discover(reader, asks_watchdog, clock);
        self.has_timesync = clock::timesync(reader.root()).is_some();
    }

    fn read_boots(&self) -> Boots {
        let text = read(&self.boots).ok();
        let boot_id = self
            .reader
            .root()
            .text("proc/sys/kernel/random/boot_id", SMALL);
        Boots {
            text: text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            boot_id: boot_id.unwrap_or_default().trim().to_owned(),
        }
    }

    /// Writes the file `boots`; returns whether that worked. Does not create the folder.
    pub fn write_boots(&self, text: String) -> bool {
        let folder = self.boots.parent().unwrap_or(&self.boots);
        // A missing --root-dir is the default of many boards, and worth no line.
        if !guard::exists(folder) {
            log::info!(target: VERBOSE, "boots is not written: {} does not exist", folder.display());
            return false;
        }
        let written = write::publish(&self.boots, text);
        if let Err(line) = &written {
            log::warn!(
                "boots cannot be written: {line}; make --root-dir writable for FrequentReboot"
            );
        }
        written.is_ok()
    }

    /// The first line of each `--node-condition` file; `None` if it does not exist.
    pub fn files(&self) -> Vec<Option<String>> {
        let line = |path: &PathBuf| {
            let path = guard::found(path).ok()?;
            Some(first_line(&path).unwrap_or_default())
        };
        self.files.iter().map(line).collect()
    }

    /// The voltage driver reported a change: counts a drop.
    pub fn on_voltage(&mut self, clock: &dyn Fn() -> Mono) {
        self.reader.start(clock());
        if let Some(alarm) = &mut self.alarm {
            let _ = alarm.read(&mut self.reader, clock);
        }
    }

    /// The descriptor of the voltage driver's reports.
    pub fn voltage_descriptor(&self) -> Option<OwnedFd> {
        self.alarm.as_ref()?.descriptor()
    }

    /// Up to three files that the last look used for `kind`, with their values.
    pub fn sources(&self, kind: Kind) -> Vec<String> {
        let value = |path: &str| {
            let text = self.reader.root().text(path, SMALL).unwrap_or_default();
            match text.trim() {
                "" => path.to_owned(),
                text if text.len() > 40 => path.to_owned(),
                text => format!("{path} is {text}"),
            }
        };
        self.paths(kind).into_iter().take(3).map(value).collect()
    }

    /// The files that the last look used for `kind`.
    fn paths(&self, kind: Kind) -> Vec<&str> {
        match kind {
            Kind::ReadonlyFilesystem => vec![MOUNTINFO],
            Kind::FilesystemCorruptionProblem => self.filesystems.error_files(),
            Kind::StorageWornOut => self.wear.iter().map(|(path, _)| path.as_str()).collect(),
            Kind::UnderVoltage => self.alarm.iter().map(|a| a.file.path.as_str()).collect(),
            Kind::ThermalThrottling => self.sensors.paths(),
            Kind::KernelDeadlock => self.kernel.paths(),
            Kind::NTPProblem if self.has_timesync => vec![clock::SYNCHRONIZED],
            Kind::NTPProblem => Vec::new(),
            Kind::FrequentReboot => self.boots.to_str().into_iter().collect(),
        }
    }
}

/// The first line of a file that was found; `None` if it is larger than 1 MiB, or no file.
fn first_line(path: &Path) -> Option<String> {
    let bytes = read_found(path).ok()?;
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests;
