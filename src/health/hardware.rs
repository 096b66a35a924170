//! UnderVoltage and ThermalThrottling.

use std::collections::VecDeque;
use std::time::Duration;

use super::condition_state::RuleResult;
use super::{RuleInput, Sign, found};
use crate::core::instant::Mono;

/// `in0_lcrit_alarm` of the hwmon `rpi_volt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Voltage {
    /// The alarm is on.
    pub alarm: bool,
    /// Number of times that the supply dropped since the last look.
    pub dips: u32,
}

/// Temperatures, and what limits the CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heat {
    /// Zones with a limit.
    pub zones: Vec<Zone>,
    /// Cooling devices of the CPU, whose state lies within its range.
    pub coolers: Vec<Cooler>,
    /// cpufreq policies.
    pub policies: Vec<Policy>,
}

/// One thermal zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// `type`: `cpu-thermal`.
    pub name: String,
    /// It is the zone of a Raspberry Pi's CPU, whose firmware throttles at 80 °C.
    pub is_pi_cpu: bool,
    /// m°C; `None` if unreadable or out of range.
    pub temp: Option<i64>,
    /// m°C of the lowest critical trip.
    pub critical: Option<i64>,
    /// m°C of the highest passive trip below the critical one.
    pub passive: Option<i64>,
}

/// One cooling device of the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cooler {
    /// `cur_state`: 0 is not throttled.
    pub state: i64,
    /// `max_state`
    pub max: i64,
}

/// One cpufreq policy whose cap was readable, in kHz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The folder's name: `policy0`.
    pub name: String,
    /// `cpuinfo_max_freq`
    pub top: u64,
    /// `scaling_max_freq`
    pub cap: u64,
}

/// Looks in a row with the alarm on.
const LOOKS: u32 = 4;
/// Drops within [`WINDOW`].
const DIPS: usize = 3;
const WINDOW: Duration = Duration::from_secs(600);

/// Whether the supply dropped between two readings of the alarm. `woken`: the driver notified a
/// change in between. Two equal readings with a change in between hide a drop.
pub fn is_dip(before: bool, now: bool, woken: bool) -> bool {
    (now && !before) || (woken && now == before)
}

/// The rule of UnderVoltage: the supply of a Raspberry Pi keeps dropping below 4.63 V. The kernel's
/// driver asks the firmware every 2 s, so most drops fall between two looks. The loop therefore
/// also waits for the driver's notification.
#[derive(Debug, Default)]
pub(super) struct UnderVoltage {
    /// Looks in a row with the alarm on.
    looks: u32,
    /// The last [`DIPS`] drops.
    dips: VecDeque<Mono>,
}

impl UnderVoltage {
    pub(super) fn judge(&mut self, input: &RuleInput<'_>, signs: &mut Vec<Sign>) -> RuleResult {
        let now = input.now.mono;
        let voltage = match found(&input.reading.voltage) {
            Ok(voltage) => voltage,
            Err(result) => return result,
        };
        self.looks = if voltage.alarm { self.looks.saturating_add(1) } else { 0 };
        let dips = usize::try_from(voltage.dips).unwrap_or(DIPS).min(DIPS);
        self.dips.extend(std::iter::repeat_n(now, dips));
        while self.dips.len() > DIPS || self.dips.front().is_some_and(|at| now.since(*at) > WINDOW)
        {
            self.dips.pop_front();
        }
        if self.looks >= LOOKS || (dips > 0 && self.dips.len() >= DIPS) {
            let message = "the supply voltage keeps dropping below the board's limit";
            return RuleResult::problem(1, "UnderVoltageDetected", message, 0);
        }
        if dips > 0 && input.problem.is_none() {
            let message = "the supply voltage dropped below the board's limit";
            signs.push(("UnderVoltageDip", message.to_owned()));
        }
        if voltage.alarm || dips > 0 { RuleResult::NearProblem } else { RuleResult::NoProblem }
    }

    /// Whether the alarm may become a problem with the next looks.
    pub(super) fn is_suspect(&self) -> bool {
        self.looks > 0
    }
}

/// The firmware of a Raspberry Pi throttles from 80 °C on; its kernel does not show that.
const PI_LIMIT: i64 = 80_000;
/// A critical trip up to 90 °C of a Raspberry Pi's device tree is no limit of its CPU.
const PI_FILLER: i64 = 90_000;
/// Distance below which the looks come every 10 s.
const WARM: i64 = 10_000;
/// A problem ends this much below its limit.
const HYSTERESIS: i64 = 5_000;
/// A problem holds at this many of the last [`RECENT`] looks.
const HOLDS: u32 = 4;
const RECENT: u8 = 0b11_1111;

/// The rule of ThermalThrottling: heat slows the CPU down, or is close to shutting the board down.
#[derive(Debug, Default)]
pub(super) struct Throttling {
    /// A source was readable before.
    was_seen: bool,
    /// One bit for each look, the last one lowest.
    near: u8,
    slow: u8,
    /// By the policy's name the highest cap while the CPU was not throttled, in kHz.
    free_caps: Vec<(String, u64)>,
    is_suspect: bool,
}

impl Throttling {
    pub(super) fn judge(&mut self, input: &RuleInput<'_>) -> RuleResult {
        self.is_suspect = false;
        let heat = match found(&input.reading.heat) {
            Ok(heat) => heat,
            Err(result) => return result,
        };
        let zones: Vec<(&Zone, i64)> =
            heat.zones.iter().filter_map(|zone| Some((zone, zone.temp?))).collect();
        if zones.is_empty() && heat.coolers.is_empty() {
            return if self.was_seen { RuleResult::Unread } else { RuleResult::NoSource };
        }
        self.was_seen = true;
        self.learn_caps(heat);

        let over = |margin: i64| {
            zones
                .iter()
                .filter(move |(zone, temp)| limit(zone).is_some_and(|l| *temp >= l - margin))
        };
        let pi_over =
            |limit: i64| zones.iter().any(|(zone, temp)| zone.is_pi_cpu && *temp >= limit);
        let is_throttled = heat.coolers.iter().any(|cooler| cooler.state > 0);
        let speed = is_throttled.then(|| self.speed(heat)).flatten();
        self.is_suspect = is_throttled || over(WARM).next().is_some() || pi_over(PI_LIMIT - WARM);
        self.near = self.near << 1 | u8::from(over(0).next().is_some());
        let is_slow = speed.is_some_and(|percent| percent <= 75);
        self.slow = self.slow << 1 | u8::from(is_slow || pi_over(PI_LIMIT));

        let holds = |looks: u8| (looks & RECENT).count_ones() >= HOLDS;
        if holds(self.near)
            && let Some((zone, _)) = over(0).next()
        {
            let shutdown = zone.critical.unwrap_or_default() / 1000;
            let message = format!("{} is close to its shutdown at {shutdown} °C", zone.name);
            let more = over(0).count() - 1;
            return RuleResult::problem(9, "TemperatureNearCritical", &message, more);
        }
        if holds(self.slow) && (is_slow || pi_over(PI_LIMIT)) {
            let (rank, message) = match speed {
                _ if pi_over(PI_LIMIT) => (1, "the firmware throttles the CPU above 80 °C"),
                Some(0..=25) => (3, "heat holds the CPU below 25 % of its speed"),
                Some(26..=50) => (2, "heat holds the CPU below 50 % of its speed"),
                _ => (1, "heat holds the CPU below 75 % of its speed"),
            };
            return RuleResult::problem(rank, "CPUThrottledByHeat", message, 0);
        }
        let is_close = over(HYSTERESIS).next().is_some()
            || pi_over(PI_LIMIT - HYSTERESIS)
            || speed.is_some_and(|percent| percent <= 80);
        if is_close { RuleResult::NearProblem } else { RuleResult::NoProblem }
    }

    /// Whether the next looks may find a problem, so that they should come every 10 s.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// A cap without throttling is the administrator's.
    fn learn_caps(&mut self, heat: &Heat) {
        if heat.coolers.is_empty() || heat.coolers.iter().any(|cooler| cooler.state != 0) {
            return;
        }
        for policy in &heat.policies {
            match self.free_caps.iter_mut().find(|(name, _)| *name == policy.name) {
                Some((_, free)) => *free = policy.cap.max(*free),
                None => self.free_caps.push((policy.name.clone(), policy.cap)),
            }
        }
    }

    /// The speed of the most throttled policy, in percent of its full speed; without cpufreq a
    /// number from the coolers' states. Rounded up, so that 75.1 % is not 75 %.
    fn speed(&self, heat: &Heat) -> Option<u64> {
        let percents = heat.policies.iter().map(|policy| {
            let free = self.free_caps.iter().find(|(name, _)| *name == policy.name);
            let full = free.map_or(policy.top, |(_, cap)| *cap).max(1);
            policy.cap.saturating_mul(100).div_ceil(full)
        });
        percents.min().or_else(|| {
            let is_slow =
                |cooler: &&Cooler| cooler.state > 0 && cooler.state.saturating_mul(4) >= cooler.max;
            heat.coolers.iter().find(is_slow).map(|_| 75)
        })
    }
}

/// m°C from which on `zone` is close to its shutdown: 5 °C below the critical trip, or half of the
/// way from the passive trip, if that is less.
fn limit(zone: &Zone) -> Option<i64> {
    let critical = zone.critical?;
    if zone.is_pi_cpu && critical <= PI_FILLER {
        return None;
    }
    let half = zone.passive.map(|passive| (critical - passive) / 2);
    Some(critical - half.map_or(5_000, |half| half.min(5_000)))
}
