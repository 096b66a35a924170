//! ThermalThrottling: temperatures and what limits the CPU, of `sys/class/thermal` and
//! `sys/devices/system/cpu/cpufreq`.

use super::condition_state::{Problem, RuleResult};
use super::reader::{CPUFREQ, HealthReader, MAX_DEVICES, is_numbered, join};
use super::{CheckTexts, ConditionKind, RuleInput, Source, value_or_result};
use crate::kube::facts::Presence;
use crate::os::reread_file::RereadFile;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "ThermalThrottling",
    fine: ("TemperatureOK", "no throttling by heat"),
    problems: &[("CPUThrottledByHeat", 300), ("TemperatureNearCritical", 300)],
    source: Some(|| Box::new(ThermalThrottling::default())),
    check: CheckTexts {
        name: "thermal-throttling",
        absent: "no thermal zone with a limit, and no cooling device of the CPU",
        remedy: "add a heat sink or a fan",
    },
};

/// Temperatures, and what limits the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Heat {
    /// Zones with a limit.
    pub(super) zones: Vec<Zone>,
    /// Cooling devices of the CPU, whose state lies within its range.
    pub(super) coolers: Vec<Cooler>,
    /// cpufreq policies.
    pub(super) policies: Vec<Policy>,
    /// A policy exists whose cap is unknown, because a file could not be read.
    pub(super) is_policy_unread: bool,
    /// A file that cannot be read now showed heat when it was last read.
    pub(super) is_hidden: bool,
}

/// One thermal zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Zone {
    /// `type`: `cpu-thermal`.
    pub(super) name: String,
    /// It is the zone of a Raspberry Pi's CPU, whose firmware throttles at 80 °C.
    pub(super) is_pi_cpu: bool,
    /// m°C; `None` if unreadable or out of range.
    pub(super) temp: Option<i64>,
    /// m°C of the lowest critical trip.
    pub(super) critical: Option<i64>,
    /// m°C of the highest passive trip below the critical one.
    pub(super) passive: Option<i64>,
}

/// One cooling device of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cooler {
    /// `cur_state`: 0 is not throttled.
    pub(super) state: i64,
    /// `max_state`
    pub(super) max: i64,
}

/// One cpufreq policy whose cap was readable, in kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// The folder's name: `policy0`.
    pub(super) name: String,
    /// `cpuinfo_max_freq`
    pub(super) top: u64,
    /// `scaling_max_freq`
    pub(super) cap: u64,
}

const THERMAL: &str = "sys/class/thermal";

/// m°C that a trip may have. Unused trips often have 0 or -273250, which are outside, or 125000,
/// which is inside: real trips have up to 150 °C.
const TRIPS: std::ops::RangeInclusive<i64> = 20_000..=150_000;
/// m°C that a sensor can show.
const TEMPS: std::ops::RangeInclusive<i64> = -40_000..=200_000;

/// Zone types of a Raspberry Pi's CPU.
const PI_CPU: [&str; 4] = ["cpu-thermal", "cpu_thermal", "bcm2835_thermal", "soc-thermal"];

/// The firmware of a Raspberry Pi throttles from 80 °C on; its kernel does not show that.
const PI_LIMIT: i64 = 80_000;
/// A critical trip up to 90 °C of a Raspberry Pi's device tree is no limit of its CPU.
const PI_FILLER: i64 = 90_000;
/// From this much below a limit on, the looks come every 10 s.
const WARM: i64 = 10_000;
/// A problem ends this much below its limit.
const HYSTERESIS: i64 = 5_000;
/// A problem holds at this many of the last [`RECENT`] looks.
const HOLDS: u32 = 4;
const RECENT: u8 = 0b11_1111;

/// Heat slows the CPU down, or is close to shutting the board down.
#[derive(Debug, Default)]
pub(super) struct ThermalThrottling {
    /// Each with its `temp`.
    zones: Vec<(Zone, RereadFile)>,
    /// `max_state` and `cur_state`.
    coolers: Vec<(i64, RereadFile)>,
    /// Each with its `scaling_max_freq`.
    policies: Vec<(Policy, RereadFile)>,
    /// The policies, or the full speed of one, could not be read when they were searched for.
    is_policy_unread: bool,
    /// A zone or a cooling device could not be read in any discovery.
    is_device_unread: bool,
    pub(super) found: Presence<Heat>,
    /// The paths of the files that showed heat when they were last read.
    hot: Vec<String>,
    /// A source was readable before.
    was_seen: bool,
    /// One bit for each look, the last look in the lowest bit. `near`: a zone was close to its
    /// shutdown; `slow`: heat slowed the CPU down.
    near: u8,
    slow: u8,
    /// For each policy's name, the last cap in kHz while the CPU was not throttled.
    free_caps: Vec<(String, u64)>,
    is_suspect: bool,
}

impl Source for ThermalThrottling {
    fn discover(&mut self, reader: &mut HealthReader) {
        // Of a folder that cannot be read the files stay.
        let zones = reader.list(THERMAL, &|name| is_numbered(name, "thermal_zone"));
        let coolers = reader.list(THERMAL, &|name| is_numbered(name, "cooling_device"));
        self.is_device_unread = zones.is_err() || coolers.is_err();
        if let Ok(names) = zones {
            self.is_device_unread |= find_again(&mut self.zones, THERMAL, &names, zone_of, reader);
        }
        if let Ok(names) = coolers {
            let coolers = &mut self.coolers;
            self.is_device_unread |= find_again(coolers, THERMAL, &names, cooler_of, reader);
        }
        let names = match self.coolers.is_empty() {
            true => Ok(Vec::new()),
            false => reader.list(CPUFREQ, &|name| is_numbered(name, "policy")),
        };
        self.is_policy_unread = names.is_err();
        if let Ok(names) = names {
            self.is_policy_unread =
                find_again(&mut self.policies, CPUFREQ, &names, policy_of, reader);
        }
        let mut paths = self.paths();
        paths.extend(self.policies.iter().map(|(_, file)| file.path.clone()));
        self.hot.retain(|path| paths.contains(path));
    }

    /// Finds `Absent` if the board has no file for the rule, and `Unread` if the look ended before
    /// all files were read. A file that cannot be read is left out, but a problem that it showed
    /// does not end.
    fn look(&mut self, reader: &mut HealthReader) {
        let mut heat = Heat::default();
        let (hot, mut is_hidden) = (&mut self.hot, false);
        let mut saw = |file: &RereadFile, is_hot: Option<bool>| match is_hot {
            Some(is_hot) => {
                hot.retain(|path| *path != file.path);
                hot.extend(is_hot.then(|| file.path.clone()));
            }
            None => is_hidden |= hot.contains(&file.path),
        };
        for (zone, file) in &mut self.zones {
            let temp = reader.reread_number(file).ok().filter(|temp| TEMPS.contains(temp));
            saw(file, temp.map(|temp| is_within(zone, temp, HYSTERESIS)));
            heat.zones.push(Zone { temp, ..zone.clone() });
        }
        for (max, file) in &mut self.coolers {
            let state = reader.reread_number(file).ok();
            let state = state.filter(|state| (0..=*max).contains(state));
            saw(file, state.map(|state| state > 0));
            heat.coolers.extend(state.map(|state| Cooler { state, max: *max }));
        }
        heat.is_policy_unread = self.is_policy_unread;
        for (policy, file) in &mut self.policies {
            let cap = reader.reread_number(file);
            heat.is_policy_unread |= cap.as_ref().is_err_and(|unread| !unread.is_absent());
            let cap = cap.ok().filter(|cap| *cap > 0).map(i64::unsigned_abs);
            saw(file, cap.map(|cap| cap < policy.top));
            heat.policies.extend(cap.map(|cap| Policy { cap, ..policy.clone() }));
        }
        heat.is_hidden = is_hidden;
        let is_source = !self.zones.is_empty() || !self.coolers.is_empty();
        self.found = match reader.cut_off(THERMAL) {
            _ if !is_source => Presence::Absent,
            Some(unread) => Presence::Unread(unread),
            None => Presence::Found(heat),
        };
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult {
        self.is_suspect = false;
        let heat = match value_or_result(&self.found) {
            Ok(heat) => heat,
            Err(result) => return result,
        };
        let zones: Vec<(&Zone, i64)> =
            heat.zones.iter().filter_map(|zone| Some((zone, zone.temp?))).collect();
        if zones.is_empty() && heat.coolers.is_empty() {
            return if self.was_seen { RuleResult::Unread } else { RuleResult::NoSource };
        }
        self.was_seen = true;
        learn_caps(&mut self.free_caps, heat);

        let near = || zones.iter().filter(|(zone, temp)| is_near_shutdown(zone, *temp, 0));
        let is_pi_throttled = zones.iter().any(|(zone, temp)| is_pi_throttled(zone, *temp, 0));
        let is_within =
            |margin: i64| zones.iter().any(|(zone, temp)| is_within(zone, *temp, margin));
        let is_throttled = heat.coolers.iter().any(|cooler| cooler.state > 0);
        let speed = is_throttled.then(|| speed(&self.free_caps, heat)).flatten();
        self.is_suspect = is_throttled || is_within(WARM);
        self.near = self.near << 1 | u8::from(near().next().is_some());
        let is_slow = speed.is_some_and(|percent| percent <= 75);
        self.slow = self.slow << 1 | u8::from(is_slow || is_pi_throttled);

        let holds = |looks: u8| (looks & RECENT).count_ones() >= HOLDS;
        if holds(self.near)
            && let Some((zone, _)) = near().next()
        {
            let shutdown = zone.critical.unwrap_or_default() / 1000;
            let message = format!("{} is close to its shutdown at {shutdown} °C", zone.name);
            let more = near().count() - 1;
            return RuleResult::problem(9, "TemperatureNearCritical", &message, more);
        }
        if holds(self.slow) && (is_slow || is_pi_throttled) {
            let (rank, message) = match speed {
                _ if is_pi_throttled => (1, "the firmware throttles the CPU above 80 °C"),
                Some(0..=25) => (3, "heat holds the CPU below 25 % of its speed"),
                Some(26..=50) => (2, "heat holds the CPU below 50 % of its speed"),
                _ => (1, "heat holds the CPU below 75 % of its speed"),
            };
            return RuleResult::problem(rank, "CPUThrottledByHeat", message, 0);
        }
        let is_close = is_within(HYSTERESIS) || speed.is_some_and(|percent| percent <= 80);
        match is_close {
            true => RuleResult::NearProblem,
            false if heat.is_hidden => RuleResult::Unread,
            // An earlier process may have seen the heat of the device that is unread.
            false if self.is_device_unread && input.problem.is_some_and(Problem::is_adopted) => {
                RuleResult::Unread
            }
            false if is_throttled && heat.is_policy_unread => RuleResult::Unread,
            false => RuleResult::NoProblem,
        }
    }

    fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    fn paths(&self) -> Vec<String> {
        let zones = self.zones.iter().map(|(_, file)| file);
        let coolers = self.coolers.iter().map(|(_, file)| file);
        zones.chain(coolers).map(|file| file.path.clone()).collect()
    }
}

/// Finds the devices in the folders `names` of `parent` anew. A device that is known stays as it is
/// if one of its files cannot be read now. Returns whether a device is unknown because of such a
/// file.
fn find_again<T>(
    known: &mut Vec<(T, RereadFile)>,
    parent: &str,
    names: &[String],
    find: fn(&str, &mut HealthReader) -> Option<(T, RereadFile)>,
    reader: &mut HealthReader,
) -> bool {
    let (mut found, mut is_unread) = (Vec::new(), false);
    for folder in names.iter().map(|name| join(parent, name)) {
        let mut device = None;
        if reader.whole(|reader| device = find(&folder, reader)).is_err() {
            let is_same = |(_, file): &(T, RereadFile)| file.path.starts_with(&join(&folder, ""));
            let same = known.iter().position(is_same).map(|index| known.swap_remove(index));
            device = same.or(device);
            is_unread |= device.is_none();
        }
        found.extend(device);
        if found.len() == MAX_DEVICES {
            break;
        }
    }
    *known = found;
    is_unread
}

/// A zone that is not disabled, with a limit.
fn zone_of(folder: &str, reader: &mut HealthReader) -> Option<(Zone, RereadFile)> {
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
    // Active trips are left out, because they only start a fan.
    let of =
        |kind: &'static str| trips.iter().filter(move |trip| trip.0 == kind).map(|trip| trip.1);
    let critical = of("critical").min();
    let passive = of("passive").filter(|passive| critical.is_none_or(|c| *passive < c)).max();
    let zone = Zone {
        is_pi_cpu: reader.is_pi == Some(true) && PI_CPU.contains(&name.as_str()),
        passive,
        name,
        temp: None,
        critical,
    };
    let has_limit = zone.is_pi_cpu || zone.critical.is_some() || zone.passive.is_some();
    has_limit.then(|| (zone, RereadFile::new(join(folder, "temp"))))
}

/// A cooling device of the CPU: its `max_state` and `cur_state`.
fn cooler_of(folder: &str, reader: &mut HealthReader) -> Option<(i64, RereadFile)> {
    let kind = reader.word(folder, "type");
    let cools_cpu =
        kind == "Processor" || kind.starts_with("cpufreq-") || kind.starts_with("thermal-cpufreq-");
    if !cools_cpu {
        return None;
    }
    let max = reader.value(folder, "max_state").filter(|max| *max > 0)?;
    Some((max, RereadFile::new(join(folder, "cur_state"))))
}

/// A cpufreq policy, before its cap was read; `None` if it has no full speed.
fn policy_of(folder: &str, reader: &mut HealthReader) -> Option<(Policy, RereadFile)> {
    let top = reader.reread_number(&mut RereadFile::new(join(folder, "cpuinfo_max_freq")));
    // What is no number is unread, not absent.
    let top = reader.note(top).ok().filter(|top| *top > 0)?;
    let name = folder.rsplit('/').next().unwrap_or_default().to_owned();
    let policy = Policy { name, top: top.unsigned_abs(), cap: 0 };
    Some((policy, RereadFile::new(join(folder, "scaling_max_freq"))))
}

/// While nothing throttles the CPU, the cap of a policy is the administrator's, and counts as full
/// speed.
fn learn_caps(free_caps: &mut Vec<(String, u64)>, heat: &Heat) {
    if heat.coolers.is_empty() || heat.coolers.iter().any(|cooler| cooler.state != 0) {
        return;
    }
    for policy in &heat.policies {
        match free_caps.iter_mut().find(|(name, _)| *name == policy.name) {
            Some((_, free)) => *free = policy.cap,
            None => free_caps.push((policy.name.clone(), policy.cap)),
        }
    }
}

/// The speed of the most throttled policy, in percent of its full speed; without cpufreq, 75 if a
/// cooling device is at a quarter of its range or above. Rounded up, so that 75.1 % is not 75 %.
/// `None` also if the only policies could not be read: a cooling device at a quarter of its range
/// may leave a policy 80 %.
fn speed(free_caps: &[(String, u64)], heat: &Heat) -> Option<u64> {
    let percents = heat.policies.iter().map(|policy| {
        let free = free_caps.iter().find(|(name, _)| *name == policy.name);
        let full = free.map_or(policy.top, |(_, cap)| *cap).max(1);
        policy.cap.saturating_mul(100).div_ceil(full)
    });
    percents.min().or_else(|| {
        if heat.is_policy_unread {
            return None;
        }
        let is_slow =
            |cooler: &&Cooler| cooler.state > 0 && cooler.state.saturating_mul(4) >= cooler.max;
        heat.coolers.iter().find(is_slow).map(|_| 75)
    })
}

/// m°C from which on `zone` is close to its shutdown: 5 °C below the critical trip, or half of the
/// distance to the passive trip, if that is less. With trips at 96 and 100 °C it is 98 °C.
fn limit(zone: &Zone) -> Option<i64> {
    let critical = zone.critical?;
    if zone.is_pi_cpu && critical <= PI_FILLER {
        return None;
    }
    let half = zone.passive.map(|passive| (critical - passive) / 2);
    Some(critical - half.map_or(5_000, |half| half.min(5_000)))
}

/// Whether a temperature is above [`limit`], or at most `margin` below.
fn is_near_shutdown(zone: &Zone, temp: i64, margin: i64) -> bool {
    limit(zone).is_some_and(|limit| temp >= limit - margin)
}

/// Whether a temperature is above the limit of a Raspberry Pi's CPU, or at most `margin` below.
fn is_pi_throttled(zone: &Zone, temp: i64, margin: i64) -> bool {
    zone.is_pi_cpu && temp >= PI_LIMIT - margin
}

/// Whether a temperature is at most `margin` below a limit.
fn is_within(zone: &Zone, temp: i64, margin: i64) -> bool {
    is_near_shutdown(zone, temp, margin) || is_pi_throttled(zone, temp, margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use serde_json::json;

    use crate::health::tests::{Board, FakeClock};
    use crate::kube::facts::Unread;
    use crate::kube::instant::Now;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    fn new_board() -> Board<ThermalThrottling, Presence<Heat>> {
        Board::new(&KIND, |source, found| source.found.clone_from(found))
    }

    fn zone(temp: i64, critical: Option<i64>, passive: Option<i64>) -> Zone {
        Zone { name: "soc".to_owned(), is_pi_cpu: false, temp: Some(temp), critical, passive }
    }

    fn pi(temp: i64, critical: Option<i64>) -> Zone {
        Zone { name: "cpu-thermal".to_owned(), is_pi_cpu: true, ..zone(temp, critical, None) }
    }

    fn hot(zone: Zone) -> Presence<Heat> {
        warm(Heat { zones: vec![zone], ..Heat::default() })
    }

    fn warm(heat: Heat) -> Presence<Heat> {
        Presence::Found(heat)
    }

    fn after(looks: usize, found: &Presence<Heat>) -> Board<ThermalThrottling, Presence<Heat>> {
        let mut board = new_board();
        board.looks(looks, 10, found);
        board
    }

    #[test]
    fn a_zone_is_near_critical_within_5_degrees_or_half_of_the_way() {
        let near = "TemperatureNearCritical";
        for (zone, want) in [
            (zone(94_999, Some(100_000), None), "False"),
            (zone(95_000, Some(100_000), None), near),
            // i.MX93: passive 85, critical 90.
            (zone(87_499, Some(90_000), Some(85_000)), "False"),
            (zone(87_500, Some(90_000), Some(85_000)), near),
            (zone(94_999, Some(100_000), Some(80_000)), "False"),
            (zone(95_000, Some(100_000), Some(80_000)), near),
            // Without a critical trip nothing is near.
            (zone(150_000, None, Some(80_000)), "False"),
            // A filler in the device tree of old Raspberry Pis.
            (pi(79_000, Some(80_000)), "False"),
            (pi(84_999, Some(90_001)), "CPUThrottledByHeat"),
            (pi(85_001, Some(90_001)), near),
            (pi(79_999, Some(110_000)), "False"),
            (pi(80_000, Some(110_000)), "CPUThrottledByHeat"),
            (pi(80_000, None), "CPUThrottledByHeat"),
        ] {
            let board = after(6, &hot(zone.clone()));
            assert_eq!(board.state(), want, "{zone:?}");
        }
        let board = after(4, &hot(zone(96_000, Some(100_000), None)));
        assert_eq!(board.message(), "soc is close to its shutdown at 100 °C");
    }

    #[test]
    fn four_of_the_last_six_looks_hold() {
        let (hot_look, cool) = (hot(pi(81_000, None)), hot(pi(70_000, None)));
        for (looks, want) in [
            (&[true, true, true][..], false),
            (&[true, true, true, true], true),
            (&[true, false, true, false, true, true], true),
            (&[true, false, false, true, false, true, true], false),
            (&[true, true, true, false, false, false, true], false),
        ] {
            let mut board = new_board();
            for is_hot in looks {
                board.look(10, if *is_hot { &hot_look } else { &cool });
            }
            assert_eq!(board.state() == "CPUThrottledByHeat", want, "{looks:?}");
        }
        // False 5 min after it fell below 75 °C.
        let mut board = after(4, &hot_look);
        board.look(10, &hot(pi(75_000, None)));
        board.look(600, &hot(pi(75_000, None)));
        assert_eq!(board.look(10, &hot(pi(74_999, None))), "CPUThrottledByHeat");
        board.ends(300, &hot(pi(74_999, None)));
    }

    #[test]
    fn looks_come_often_within_10_degrees_of_a_limit() {
        for (zone, want) in [
            (pi(69_999, None), false),
            (pi(70_000, None), true),
            (zone(84_999, Some(100_000), None), false),
            (zone(85_000, Some(100_000), None), true),
            (pi(89_000, Some(80_000)), false),
        ] {
            // The last one is True, so that nothing is left to find.
            let board = after(4, &hot(zone.clone()));
            assert_eq!(board.is_suspect(), want, "{zone:?}");
        }
        let throttled =
            warm(Heat { coolers: vec![Cooler { state: 1, max: 9 }], ..Heat::default() });
        assert!(after(4, &throttled).is_suspect());
    }

    fn throttled(state: i64, cap: u64) -> Presence<Heat> {
        warm(Heat {
            coolers: vec![Cooler { state, max: 8 }],
            policies: vec![policy("policy0", cap)],
            ..Heat::default()
        })
    }

    fn policy(name: &str, cap: u64) -> Policy {
        Policy { name: name.to_owned(), top: 2_000_000, cap }
    }

    #[test]
    fn throttling_is_a_cap_of_75_percent_by_a_cooling_device() {
        let slow = "CPUThrottledByHeat";
        for (state, cap, want, text) in [
            (0, 1_000_000, "False", ""),
            (1, 1_500_001, "False", ""),
            (1, 1_500_000, slow, "75"),
            (1, 1_000_001, slow, "75"),
            (1, 1_000_000, slow, "50"),
            (1, 500_001, slow, "50"),
            (1, 500_000, slow, "25"),
        ] {
            let board = after(4, &throttled(state, cap));
            assert_eq!(board.state(), want, "{state} {cap}");
            let message = match text {
                "" => String::new(),
                text => format!("heat holds the CPU below {text} % of its speed"),
            };
            assert_eq!(board.message(), message);
        }
        // Without cpufreq the state decides, from a quarter on.
        for (state, want) in [(0, "False"), (1, "False"), (2, slow), (8, slow)] {
            let look = warm(Heat { coolers: vec![Cooler { state, max: 8 }], ..Heat::default() });
            assert_eq!(after(4, &look).state(), want, "{state}");
        }
        // False 5 min after the cap rose above 80 %.
        let mut board = after(4, &throttled(1, 1_500_000));
        board.look(10, &throttled(1, 1_600_000));
        assert_eq!(board.look(600, &throttled(1, 1_600_000)), slow);
        board.look(10, &throttled(1, 1_620_001));
        board.ends(300, &throttled(1, 1_620_001));
    }

    #[test]
    fn a_cap_of_the_administrator_is_the_full_speed() {
        let mut board = new_board();
        board.look(60, &throttled(0, 1_000_000));
        assert_eq!(board.looks(6, 10, &throttled(1, 1_000_000)), "False");
        assert_eq!(board.looks(6, 10, &throttled(1, 750_000)), "CPUThrottledByHeat");
        // Lowered while this process runs.
        let mut board = new_board();
        board.look(60, &throttled(0, 2_000_000));
        board.look(60, &throttled(0, 1_000_000));
        assert_eq!(board.looks(6, 10, &throttled(1, 1_000_000)), "False");
    }

    /// A little core has less speed than a big one.
    #[test]
    fn a_cap_that_cannot_be_read_leaves_the_other_policies_theirs() {
        let look = |state, policies| {
            warm(Heat { coolers: vec![Cooler { state, max: 8 }], policies, ..Heat::default() })
        };
        let (big, little) = (policy("policy0", 2_000_000), policy("policy4", 1_000_000));
        let mut board = new_board();
        board.look(60, &look(0, vec![big, little.clone()]));
        assert_eq!(board.looks(6, 10, &look(1, vec![little])), "False");
    }

    /// The cooling device is at a quarter of its range, and leaves the policy 83 %.
    #[test]
    fn a_policy_that_cannot_be_read_is_not_absent() {
        let tree = Tree::new("health-policy");
        let device = |file: &str, text: &[u8]| {
            tree.write(&format!("sys/class/thermal/cooling_device0/{file}"), text);
        };
        let policy = |file: &str, text: &[u8]| {
            tree.write(&format!("{CPUFREQ}/policy0/{file}"), text);
        };
        device("type", b"cpufreq-cpu0");
        device("max_state", b"4");
        device("cur_state", b"1");
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let top = tree.path().join(CPUFREQ).join("policy0/cpuinfo_max_freq");
        // The full speed is unread when the devices are searched for, or later the cap. `None` is a
        // folder in the place of the file.
        for (speed, cap) in
            [(Some("no number"), "1660000"), (None, "1660000"), (Some("2000000"), "no number")]
        {
            policy("scaling_max_freq", cap.as_bytes());
            let _ = std::fs::remove_file(&top).or_else(|_| std::fs::remove_dir(&top));
            match speed {
                Some(speed) => policy("cpuinfo_max_freq", speed.as_bytes()),
                None => std::fs::create_dir(&top).unwrap(),
            }
            let mut source = ThermalThrottling::default();
            source.discover(&mut reader);
            source.look(&mut reader);
            let found = source.found.clone();
            assert_eq!(after(6, &found).state(), "none", "{speed:?} {cap}");
            // A problem stays.
            let mut board = after(4, &throttled(1, 1_500_000));
            assert_eq!(board.looks(60, 60, &found), "CPUThrottledByHeat", "{speed:?} {cap}");
        }
        // The other policy is not capped.
        for file in ["cpuinfo_max_freq", "scaling_max_freq"] {
            tree.write(&format!("{CPUFREQ}/policy1/{file}"), b"2000000");
        }
        let mut source = ThermalThrottling::default();
        source.discover(&mut reader);
        source.look(&mut reader);
        assert_eq!(after(6, &source.found).state(), "none");
        let mut source = ThermalThrottling::default();
        policy("scaling_max_freq", b"1660000");
        source.discover(&mut reader);
        source.look(&mut reader);
        assert_eq!(after(6, &source.found).state(), "False");
        // A later search cannot read the full speed: the policy stays.
        std::fs::remove_file(&top).unwrap();
        std::fs::create_dir(&top).unwrap();
        source.discover(&mut reader);
        source.look(&mut reader);
        assert_eq!(after(6, &source.found).state(), "False");
    }

    #[test]
    fn a_zone_that_cannot_be_read_is_no_problem() {
        let mut dead = pi(0, None);
        dead.temp = None;
        assert_eq!(after(4, &hot(dead.clone())).state(), "none");
        let mut board = after(4, &hot(pi(81_000, None)));
        board.look(60, &hot(dead.clone()));
        assert_eq!(board.look(3599, &hot(dead.clone())), "CPUThrottledByHeat");
        assert_eq!(board.look(1, &hot(dead)), "none");
    }

    /// A sensor that fails while it is hot, beside one that is cool.
    #[test]
    fn a_file_that_showed_heat_and_cannot_be_read_ends_no_problem() {
        let tree = Tree::new("health-hidden");
        let temp = |zone: u8| format!("sys/class/thermal/thermal_zone{zone}/temp");
        let write = |zone: u8, text: &str| tree.write(&temp(zone), text.as_bytes());
        for zone in [0, 1] {
            let trip = format!("sys/class/thermal/thermal_zone{zone}/trip_point_0");
            tree.write(&format!("{trip}_type"), b"critical");
            tree.write(&format!("{trip}_temp"), b"110000");
            write(zone, "40000");
        }
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut source = ThermalThrottling::default();
        let mut is_hidden = |source: &mut ThermalThrottling| {
            source.look(&mut reader);
            source.found.found().is_some_and(|heat| heat.is_hidden)
        };
        let mut finder = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        source.discover(&mut finder);
        write(1, "no number");
        assert!(!is_hidden(&mut source), "it was never read");
        write(1, "108000");
        assert!(!is_hidden(&mut source));
        write(1, "no number");
        assert!(is_hidden(&mut source));
        source.discover(&mut finder);
        assert!(is_hidden(&mut source), "the devices were found again");
        write(1, "40000");
        assert!(!is_hidden(&mut source));
        write(1, "no number");
        assert!(!is_hidden(&mut source));

        let mut board = after(4, &hot(pi(81_000, None)));
        let hidden =
            warm(Heat { zones: vec![pi(40_000, None)], is_hidden: true, ..Heat::default() });
        board.look(60, &hidden);
        assert_eq!(board.look(3000, &hidden), "CPUThrottledByHeat");
        board.look(10, &hot(pi(40_000, None)));
        board.ends(300, &hot(pi(40_000, None)));
    }

    /// The slow files of a hot zone are left out one after the other, and then it is searched for.
    #[test]
    fn a_device_that_cannot_be_read_when_it_is_searched_for_stays() {
        let tree = Tree::new("health-again");
        let zone = "sys/class/thermal/thermal_zone0";
        let kind = format!("{zone}/trip_point_0_type");
        tree.write(&kind, b"critical");
        tree.write(&format!("{zone}/trip_point_0_temp"), b"110000");
        tree.write(&format!("{zone}/temp"), b"108000");
        tree.write("sys/class/thermal/cooling_device0/type", b"cpufreq-cpu0");
        tree.write("sys/class/thermal/cooling_device0/max_state", b"4");
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut source = ThermalThrottling::default();
        source.discover(&mut reader);
        let known = source.paths();
        assert_eq!((known.len(), source.is_device_unread), (2, false));
        for file in [kind.as_str(), "sys/class/thermal/cooling_device0/type"] {
            let path = tree.path().join(file);
            std::fs::remove_file(&path).unwrap();
            std::fs::create_dir(&path).unwrap();
        }
        source.discover(&mut reader);
        assert_eq!((source.paths(), source.is_device_unread), (known, false));
        // A new process knows none of them.
        let mut source = ThermalThrottling::default();
        source.discover(&mut reader);
        assert_eq!((source.paths().len(), source.is_device_unread), (0, true));
        let adopted = json!({"type": "ThermalThrottling", "status": "True",
            "reason": "TemperatureNearCritical", "message": "cpu is close to its shutdown at 110 °C"});
        let cool = hot(pi(40_000, None));
        for (is_unread, want) in [(true, "TemperatureNearCritical"), (false, "False")] {
            let mut board = Board::new(&KIND, |source: &mut ThermalThrottling, found| {
                (source.is_device_unread, source.found) = Clone::clone(found);
            });
            board.adopt(&adopted);
            assert_eq!(board.looks(20, 60, &(is_unread, cool.clone())), want);
        }
    }

    #[test]
    fn the_zones_with_a_limit_count_and_each_of_a_phone_is_read() {
        let tree = Tree::new("health-zones");
        for zone in 0..200 {
            let folder = format!("sys/class/thermal/thermal_zone{zone}");
            tree.write(&format!("{folder}/temp"), b"40000");
            if zone >= 100 {
                tree.write(&format!("{folder}/trip_point_0_type"), b"critical");
                tree.write(&format!("{folder}/trip_point_0_temp"), b"110000");
            }
        }
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut source = ThermalThrottling::default();
        source.discover(&mut reader);
        assert_eq!(source.paths().len(), 100);
    }

    #[test]
    fn what_a_look_does_not_come_to_is_unread_and_says_so() {
        let tree = Tree::new("health-heat");
        for (file, bytes) in [("type", "x"), ("temp", "40000"), ("trip_point_0_type", "critical")] {
            tree.write(&format!("sys/class/thermal/thermal_zone0/{file}"), bytes.as_bytes());
        }
        tree.write("sys/class/thermal/thermal_zone0/trip_point_0_temp", b"90000");
        let clock = FakeClock::default();
        let shown = clock.clone();
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), move || shown.now());
        let mut source = ThermalThrottling::default();
        source.discover(&mut reader);
        source.look(&mut reader);
        assert!(source.found.found().is_some());
        clock.0.set((Duration::ZERO, Duration::from_millis(600)));
        let look = reader.begin();
        source.look(&mut reader);
        assert_eq!(source.found, Presence::Unread(Unread::not_reached(THERMAL)));
        reader.end(look, true);
    }
}
