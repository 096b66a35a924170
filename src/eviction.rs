//! Thresholds, grace periods and the transition period: from facts to pressure.
//!
//! One pass with each computed status, every 10 s by default, as in the kubelet's eviction manager, whose state this is:
//! which thresholds are met and since when, and when each condition was last seen.
//! A condition comes with the first bad pass and goes only after `transition_period`
//! without one. Nothing is evicted: there are no pods.
//! Upstream: `pkg/kubelet/eviction/{helpers,eviction_manager}.go`.

pub mod thresholds;

use std::time::Duration;

use crate::facts::Facts;
use crate::kube::quantity::Quantity;
use crate::now::Mono;

/// What a threshold watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// MemTotal minus the working set of the root cgroup.
    MemoryAvailable,
    /// Bytes on the file system of `--root-dir`.
    NodefsAvailable,
    /// Inodes there.
    NodefsInodesFree,
    /// Bytes for images: the same file system here, with a threshold of its own.
    ImagefsAvailable,
    /// Inodes there.
    ImagefsInodesFree,
    /// Threads that may still be started.
    PidAvailable,
}

/// How much there must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// So much.
    Quantity(Quantity),
    /// This share of the capacity (0 to 1), in the precision that upstream keeps.
    Percentage(f32),
}

impl Amount {
    /// The amount for a given capacity.
    pub fn of(self, capacity: u64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percentage(share) => Quantity::bytes(portion(capacity, share)),
        }
    }
}

/// trunc(float64(capacity) * float64(share)), as upstream: 10 % of 107362627584 is
/// 10736262918, because 0.1 is rounded to 32 bits first.
fn portion(capacity: u64, share: f32) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "truncation is the rule here, and a cast of a float saturates"
    )]
    let portion = (capacity as f64 * f64::from(share)) as u64;
    portion
}

/// Pressure below an amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// What is watched.
    pub signal: Signal,
    /// Met when less than this is available.
    pub amount: Amount,
    /// Zero for a hard threshold.
    pub grace_period: Duration,
    /// Once met, it stays met until this much more is available.
    pub minimum_reclaim: Option<Amount>,
}

impl Threshold {
    /// A hard threshold without minimum reclaim.
    pub const fn hard(signal: Signal, amount: Amount) -> Self {
        Self {
            signal,
            amount,
            grace_period: Duration::ZERO,
            minimum_reclaim: None,
        }
    }
}

/// What `hard` thresholds on `signal` take from the capacity that pods may use.
pub fn reserved(hard: &[Threshold], signal: Signal, capacity: u64) -> Quantity {
    hard.iter()
        .find(|t| t.signal == signal)
        .map_or(Quantity::bytes(0), |t| t.amount.of(capacity))
}

/// Which pressure conditions hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressures {
    /// MemoryPressure.
    pub memory: bool,
    /// DiskPressure.
    pub disk: bool,
    /// PIDPressure.
    pub pid: bool,
}

/// The state between passes.
#[derive(Clone, Debug)]
pub struct Eviction {
    watched: Vec<Watched>,
    transition_period: Duration,
    /// When memory, disk and pid pressure were last seen.
    last_observed: [Option<Mono>; 3],
}

#[derive(Clone, Debug)]
struct Watched {
    threshold: Threshold,
    /// Since when it has been met without a break.
    first_observed: Option<Mono>,
    /// Met for its grace period: from then on minimum reclaim counts.
    met: bool,
}

impl Eviction {
    /// No pressure before the first pass.
    pub fn new(thresholds: &[Threshold], transition_period: Duration) -> Self {
        let watch = |threshold: &Threshold| Watched {
            threshold: *threshold,
            first_observed: None,
            met: false,
        };
        Self {
            watched: thresholds.iter().map(watch).collect(),
            transition_period,
            last_observed: [None; 3],
        }
    }

    /// One pass.
    pub fn synchronize(&mut self, facts: &Facts, now: Mono) -> Pressures {
        for watched in &mut self.watched {
            if !watched.is_met(facts) {
                watched.first_observed = None;
                watched.met = false;
                continue;
            }
            let since = *watched.first_observed.get_or_insert(now);
            watched.met = now.since(since) >= watched.threshold.grace_period;
            // Soft thresholds show as pressure at once, before their grace period ends.
            let [memory, disk, pid] = &mut self.last_observed;
            *match watched.threshold.signal {
                Signal::MemoryAvailable => memory,
                Signal::PidAvailable => pid,
                _ => disk,
            } = Some(now);
        }
        let [memory, disk, pid] = self
            .last_observed
            .map(|seen| seen.is_some_and(|seen| now.since(seen) < self.transition_period));
        Pressures { memory, disk, pid }
    }
}

impl Watched {
    /// Without its fact a threshold stays as it was, as upstream keeps all state.
    fn is_met(&self, facts: &Facts) -> bool {
        let Some((available, capacity)) = observe(self.threshold.signal, facts) else {
            return self.first_observed.is_some();
        };
        let Threshold {
            amount,
            minimum_reclaim,
            ..
        } = self.threshold;
        let mut needed = amount.of(capacity);
        if let Some(reclaim) = minimum_reclaim
            && self.met
        {
            needed = needed.plus(reclaim.of(capacity));
        }
        needed > Quantity::bytes(available)
    }
}

/// What is available, and of how much.
fn observe(signal: Signal, facts: &Facts) -> Option<(u64, u64)> {
    match signal {
        Signal::MemoryAvailable => {
            let total = facts.memory.as_ref().ok()?.total_bytes;
            let working_set = *facts.working_set_bytes.as_ref().ok()?;
            Some((total.saturating_sub(working_set), total))
        }
        Signal::NodefsAvailable | Signal::ImagefsAvailable => {
            let fs = facts.node_fs.as_ref().ok()?;
            Some((fs.available_bytes, fs.capacity_bytes))
        }
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree => {
            let fs = facts.node_fs.as_ref().ok()?;
            Some((fs.inodes_free, fs.inodes))
        }
        Signal::PidAvailable => {
            let pids = facts.pids.as_ref().ok()?;
            Some((pids.max.saturating_sub(pids.running), pids.max))
        }
    }
}

/// The kubelet's defaults.
#[cfg(test)]
pub(crate) fn default_thresholds() -> Vec<Threshold> {
    let none = Default::default();
    let [hard, _] = thresholds::parse(&thresholds::defaults(), &none, &none, &none).unwrap();
    hard
}

#[cfg(test)]
mod tests;
