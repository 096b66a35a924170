//! Temperatures and throttling: `sys/class/thermal` and `sys/devices/system/cpu/cpufreq`.

use super::reader::{Reader, is_numbered, join};
use crate::core::instant::Mono;
use crate::core::problems::look::{Cooler, Heat, Policy, Zone};
use crate::host::kept_file::KeptFile;

const THERMAL: &str = "sys/class/thermal";
const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

/// m°C of real trips; 0, -273250 and 125000 of unused ones are common, and 150 °C is the highest.
const TRIPS: std::ops::RangeInclusive<i64> = 20_000..=150_000;
/// m°C that a sensor can show.
const TEMPS: std::ops::RangeInclusive<i64> = -40_000..=200_000;

/// Zone types of a Raspberry Pi's CPU.
const PI_CPU: [&str; 4] = [
    "cpu-thermal",
    "cpu_thermal",
    "bcm2835_thermal",
    "soc-thermal",
];

/// The files that are looked at.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    zones: Vec<(Zone, KeptFile)>,
    /// `max_state` and `cur_state`.
    coolers: Vec<(i64, KeptFile)>,
    /// `cpuinfo_max_freq` and `scaling_max_freq`.
    policies: Vec<(i64, KeptFile)>,
}

impl Sensors {
    pub(super) fn discover(reader: &mut Reader, is_pi: bool, clock: &dyn Fn() -> Mono) -> Self {
        let mut found = Self::default();
        for zone in reader.names(THERMAL, &|name| is_numbered(name, "thermal_zone")) {
            found
                .zones
                .extend(zone_of(&join(THERMAL, &zone), reader, is_pi, clock));
        }
        for cooler in reader.names(THERMAL, &|name| is_numbered(name, "cooling_device")) {
            let folder = join(THERMAL, &cooler);
            let kind = reader.word(&folder, "type", clock);
            let cools_cpu = kind == "Processor"
                || kind.starts_with("cpufreq-")
                || kind.starts_with("thermal-cpufreq-");
            if cools_cpu
                && let Some(max) = reader.value(&folder, "max_state", clock)
                && max > 0
            {
                found
                    .coolers
                    .push((max, KeptFile::new(join(&folder, "cur_state"))));
            }
        }
        if found.coolers.is_empty() {
            return found;
        }
        for policy in reader.names(CPUFREQ, &|name| is_numbered(name, "policy")) {
            let folder = join(CPUFREQ, &policy);
            if let Some(top) = reader.value(&folder, "cpuinfo_max_freq", clock)
                && top > 0
            {
                found
                    .policies
                    .push((top, KeptFile::new(join(&folder, "scaling_max_freq"))));
            }
        }
        found
    }

    /// `None` if the board has no file for the rule. A file that cannot be read is left out.
    pub(super) fn look(&mut self, reader: &mut Reader, clock: &dyn Fn() -> Mono) -> Option<Heat> {
        let mut heat = Heat::default();
        for (zone, file) in &mut self.zones {
            let temp = reader.kept_value(file, clock);
            heat.zones.push(Zone {
                temp: temp.filter(|temp| TEMPS.contains(temp)),
                ..zone.clone()
            });
        }
        for (max, file) in &mut self.coolers {
            let state = reader.kept_value(file, clock);
            let state = state.filter(|state| (0..=*max).contains(state));
            heat.coolers
                .extend(state.map(|state| Cooler { state, max: *max }));
        }
        for (top, file) in &mut self.policies {
            let cap = reader.kept_value(file, clock).filter(|cap| *cap > 0);
            heat.policies.extend(cap.map(|cap| Policy {
                top: top.unsigned_abs(),
                cap: cap.unsigned_abs(),
            }));
        }
        let is_source = !self.zones.is_empty() || !self.coolers.is_empty();
        is_source.then_some(heat)
    }

    pub(super) fn paths(&self) -> Vec<&str> {
        let mut paths: Vec<&str> = self
            .zones
            .iter()
            .map(|(_, file)| file.path.as_str())
            .collect();
        for (_, file) in &self.coolers {
            paths.push(&file.path);
        }
        paths
    }
}

/// A zone that is not disabled, with a limit.
fn zone_of(
    folder: &str,
    reader: &mut Reader,
    is_pi: bool,
    clock: &dyn Fn() -> Mono,
) -> Option<(Zone, KeptFile)> {
    if reader.word(folder, "mode", clock) == "disabled" {
        return None;
    }
    let name = reader.word(folder, "type", clock);
    let is_trip = |name: &str| name.starts_with("trip_point_") && name.ends_with("_type");
    let mut trips = Vec::new();
    for trip in reader.names(folder, &is_trip) {
        let kind = reader.word(folder, &trip, clock);
        let temp = trip.replace("_type", "_temp");
        let temp = reader
            .value(folder, &temp, clock)
            .filter(|temp| TRIPS.contains(temp));
        trips.extend(temp.map(|temp| (kind, temp)));
    }
    // An active trip starts a fan.
    let of = |kind: &'static str| {
        trips
            .iter()
            .filter(move |trip| trip.0 == kind)
            .map(|trip| trip.1)
    };
    let critical = of("critical").min();
    let passive = of("passive")
        .filter(|passive| critical.is_none_or(|c| *passive < c))
        .max();
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
