//! The under-voltage alarm: `in0_lcrit_alarm` of the hwmon with the name `rpi_volt`
//! (drivers/hwmon/raspberrypi-hwmon.c, Linux 4.19). Other files of hwmon are never read: some wait
//! for a bus for seconds. Temperatures and throttling: `sys/class/thermal` and
//! `sys/devices/system/cpu/cpufreq`.

use std::os::fd::OwnedFd;

use super::reader::{HealthReader, is_numbered, join};
use crate::core::facts::Read;
use crate::health::{Cooler, Heat, Policy, Source, Voltage, Zone, is_dip};
use crate::host::kept_file::KeptFile;

/// The alarm, and the drops since the last look.
#[derive(Debug)]
pub(super) struct Alarm {
    pub(super) file: KeptFile,
    last: Option<bool>,
    dips: u32,
}

impl Alarm {
    /// The alarm of this board, if it has one.
    pub(super) fn discover(reader: &mut HealthReader) -> Option<Self> {
        let chips = reader.names(HWMON, &|name| is_numbered(name, "hwmon"));
        let mut folders = chips.iter().map(|chip| join(HWMON, chip));
        let folder = folders.find(|folder| reader.word(folder, "name") == "rpi_volt")?;
        reader.value(&folder, ALARM)?;
        Some(Self { file: KeptFile::new(join(&folder, ALARM)), last: None, dips: 0 })
    }

    /// Reads the alarm and counts a drop. The read also arms the next notification.
    pub(super) fn read(&mut self, reader: &mut HealthReader) -> Read<bool> {
        let is_notified = self.file.has_changed();
        let alarm = reader.kept_number(&mut self.file)? != 0;
        // What was before the first read is not known.
        let last = self.last.replace(alarm);
        if last.is_some_and(|last| is_dip(last, alarm, is_notified)) {
            self.dips = self.dips.saturating_add(1);
        }
        Ok(alarm)
    }

    pub(super) fn look(&mut self, reader: &mut HealthReader) -> Read<Voltage> {
        let alarm = self.read(reader)?;
        Ok(Voltage { alarm, dips: std::mem::take(&mut self.dips) })
    }

    /// Whether the supply dropped since the last look.
    pub(super) fn has_dipped(&self) -> bool {
        self.dips > 0
    }

    /// The descriptor that reports a change; `None` if the last read failed.
    pub(super) fn descriptor(&self) -> Option<OwnedFd> {
        self.file.file()?.try_clone().ok().map(OwnedFd::from)
    }
}

const HWMON: &str = "sys/class/hwmon";
const ALARM: &str = "in0_lcrit_alarm";
const THERMAL: &str = "sys/class/thermal";
const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

/// m°C of real trips; 0, -273250 and 125000 of unused ones are common, and 150 °C is the highest.
const TRIPS: std::ops::RangeInclusive<i64> = 20_000..=150_000;
/// m°C that a sensor can show.
const TEMPS: std::ops::RangeInclusive<i64> = -40_000..=200_000;

/// Zone types of a Raspberry Pi's CPU.
const PI_CPU: [&str; 4] = ["cpu-thermal", "cpu_thermal", "bcm2835_thermal", "soc-thermal"];

/// The files that are looked at.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    zones: Vec<(Zone, KeptFile)>,
    /// `max_state` and `cur_state`.
    coolers: Vec<(i64, KeptFile)>,
    /// Each with its `scaling_max_freq`.
    policies: Vec<(Policy, KeptFile)>,
}

impl Sensors {
    pub(super) fn discover(reader: &mut HealthReader, is_pi: bool) -> Self {
        let mut found = Self::default();
        for zone in reader.names(THERMAL, &|name| is_numbered(name, "thermal_zone")) {
            found.zones.extend(zone_of(&join(THERMAL, &zone), reader, is_pi));
        }
        for cooler in reader.names(THERMAL, &|name| is_numbered(name, "cooling_device")) {
            let folder = join(THERMAL, &cooler);
            let kind = reader.word(&folder, "type");
            let cools_cpu = kind == "Processor"
                || kind.starts_with("cpufreq-")
                || kind.starts_with("thermal-cpufreq-");
            if cools_cpu
                && let Some(max) = reader.value(&folder, "max_state")
                && max > 0
            {
                found.coolers.push((max, KeptFile::new(join(&folder, "cur_state"))));
            }
        }
        if found.coolers.is_empty() {
            return found;
        }
        for policy in reader.names(CPUFREQ, &|name| is_numbered(name, "policy")) {
            let folder = join(CPUFREQ, &policy);
            if let Some(top) = reader.value(&folder, "cpuinfo_max_freq")
                && top > 0
            {
                let file = KeptFile::new(join(&folder, "scaling_max_freq"));
                let policy = Policy { name: policy, top: top.unsigned_abs(), cap: 0 };
                found.policies.push((policy, file));
            }
        }
        found
    }

    /// `None` if the board has no file for the rule. A file that cannot be read is left out; if the
    /// look did not come to all of them, they are unread.
    pub(super) fn look(&mut self, reader: &mut HealthReader) -> Source<Heat> {
        let mut heat = Heat::default();
        for (zone, file) in &mut self.zones {
            let temp = reader.kept_number(file).ok().filter(|temp| TEMPS.contains(temp));
            heat.zones.push(Zone { temp, ..zone.clone() });
        }
        for (max, file) in &mut self.coolers {
            let state = reader.kept_number(file).ok();
            let state = state.filter(|state| (0..=*max).contains(state));
            heat.coolers.extend(state.map(|state| Cooler { state, max: *max }));
        }
        for (policy, file) in &mut self.policies {
            let cap = reader.kept_number(file).ok().filter(|cap| *cap > 0);
            heat.policies
                .extend(cap.map(|cap| Policy { cap: cap.unsigned_abs(), ..policy.clone() }));
        }
        let is_source = !self.zones.is_empty() || !self.coolers.is_empty();
        is_source.then(|| reader.cut_off(THERMAL).map_or(Ok(heat), Err))
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        let zones = self.zones.iter().map(|(_, file)| file);
        let coolers = self.coolers.iter().map(|(_, file)| file);
        zones.chain(coolers).map(|file| file.path.as_str()).collect()
    }
}

/// A zone that is not disabled, with a limit.
fn zone_of(folder: &str, reader: &mut HealthReader, is_pi: bool) -> Option<(Zone, KeptFile)> {
    if reader.word(folder, "mode") == "disabled" {
        return None;
    }
    let name = reader.word(folder, "type");
    let is_trip = |name: &str| name.starts_with("trip_point_") && name.ends_with("_type");
    let mut trips = Vec::new();
    for trip in reader.names(folder, &is_trip) {
        let kind = reader.word(folder, &trip);
        let temp = trip.replace("_type", "_temp");
        let temp = reader.value(folder, &temp).filter(|temp| TRIPS.contains(temp));
        trips.extend(temp.map(|temp| (kind, temp)));
    }
    // An active trip starts a fan.
    let of =
        |kind: &'static str| trips.iter().filter(move |trip| trip.0 == kind).map(|trip| trip.1);
    let critical = of("critical").min();
    let passive = of("passive").filter(|passive| critical.is_none_or(|c| *passive < c)).max();
    let zone = Zone {
        is_pi_cpu: is_pi && PI_CPU.contains(&name.as_str()),
        passive,
        name,
        temp: None,
        critical,
    };
    let has_limit = zone.is_pi_cpu || zone.critical.is_some() || zone.passive.is_some();
    has_limit.then(|| (zone, KeptFile::new(join(folder, "temp"))))
}
