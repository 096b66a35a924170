//! ThermalThrottling: heat slows the CPU down, or is close to shutting the board down.

use super::look::{Heat, Policy, Source, Zone};
use super::state::{Problem, Verdict};

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

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct Throttling {
    /// A source was readable before.
    was_seen: bool,
    /// One bit for each look, the last one lowest.
    near: u8,
    slow: u8,
    /// For each policy the highest cap while the CPU was not throttled, in kHz; 0 is none.
    free_caps: Vec<u64>,
    is_suspect: bool,
}

impl Throttling {
    pub(super) fn judge(&mut self, heat: &Source<Heat>) -> Verdict {
        self.is_suspect = false;
        let heat = match heat {
            None => return Verdict::NoSource,
            Some(Err(_)) => return Verdict::Unread,
            Some(Ok(heat)) => heat,
        };
        let zones: Vec<(&Zone, i64)> = heat
            .zones
            .iter()
            .filter_map(|zone| Some((zone, zone.temp?)))
            .collect();
        if zones.is_empty() && heat.coolers.is_empty() {
            return match self.was_seen {
                true => Verdict::Unread,
                false => Verdict::NoSource,
            };
        }
        self.was_seen = true;
        self.learn_caps(heat);

        let over = |margin: i64| {
            zones
                .iter()
                .filter(move |(zone, temp)| limit(zone).is_some_and(|l| *temp >= l - margin))
        };
        let pi_over = |limit: i64| {
            zones
                .iter()
                .any(|(zone, temp)| zone.is_pi_cpu && *temp >= limit)
        };
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
            return Verdict::Problem(Problem::new(9, "TemperatureNearCritical", &message, more));
        }
        if holds(self.slow) && (is_slow || pi_over(PI_LIMIT)) {
            let (rank, message) = match speed {
                _ if pi_over(PI_LIMIT) => (1, "the firmware throttles the CPU above 80 °C"),
                Some(0..=25) => (3, "heat holds the CPU below 25 % of its speed"),
                Some(26..=50) => (2, "heat holds the CPU below 50 % of its speed"),
                _ => (1, "heat holds the CPU below 75 % of its speed"),
            };
            return Verdict::Problem(Problem::new(rank, "CPUThrottledByHeat", message, 0));
        }
        let is_close = over(HYSTERESIS).next().is_some()
            || pi_over(PI_LIMIT - HYSTERESIS)
            || speed.is_some_and(|percent| percent <= 80);
        match is_close {
            true => Verdict::Close,
            false => Verdict::Quiet,
        }
    }

    /// Whether the next looks may find a problem, so that they should come every 10 s.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// A cap without throttling is the administrator's.
    fn learn_caps(&mut self, heat: &Heat) {
        self.free_caps.resize(heat.policies.len(), 0);
        let is_free = heat.coolers.iter().all(|cooler| cooler.state == 0);
        if is_free && !heat.coolers.is_empty() {
            for (free, policy) in self.free_caps.iter_mut().zip(&heat.policies) {
                *free = policy.cap.max(*free);
            }
        }
    }

    /// The speed of the most throttled policy, in percent of its full speed; without cpufreq a
    /// number from the coolers' states. Rounded up, so that 75.1 % is not 75 %.
    fn speed(&self, heat: &Heat) -> Option<u64> {
        let full = |policy: &Policy, free: u64| match free {
            0 => policy.top,
            free => free,
        };
        let percents = heat.policies.iter().zip(&self.free_caps);
        let percents = percents.map(|(policy, free)| {
            let full = full(policy, *free).max(1);
            policy.cap.saturating_mul(100).div_ceil(full)
        });
        percents.min().or_else(|| {
            let is_slow = |cooler: &&super::look::Cooler| {
                cooler.state > 0 && cooler.state.saturating_mul(4) >= cooler.max
            };
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
