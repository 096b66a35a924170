//! Pressure conditions from facts, thresholds, grace periods and the transition period.
//!
//! A pass runs with each computed status, by default every 10 s. As in the kubelet's eviction
//! manager, the state is when each threshold was first met and when each condition was last
//! observed. A condition is True from the first pass that meets a threshold until
//! `transition_period` after the last one. Nothing is evicted: there are no pods.
//! Upstream: `pkg/kubelet/eviction/{helpers,eviction_manager}.go`.

use std::time::Duration;

use crate::config::thresholds::{Signal, Threshold};
use crate::core::facts::{Facts, FileSystem};
use crate::core::instant::Mono;
use crate::kube::quantity::Quantity;

/// The pressure conditions that are True.
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
    /// When memory, disk and PID pressure were last observed.
    last_observed: [Option<Mono>; 3],
}

#[derive(Clone, Debug)]
struct Watched {
    threshold: Threshold,
    /// Start of the current run of passes that met it.
    first_observed: Option<Mono>,
    /// It is met for its grace period, so the minimum reclaim is added to it.
    met: bool,
}

impl Eviction {
    /// The state before the first pass: no pressure.
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

    /// Compares each threshold with `facts`, and returns the conditions that are True.
    pub fn synchronize(&mut self, facts: &Facts, now: Mono) -> Pressures {
        for watched in &mut self.watched {
            if !watched.is_met(facts) {
                watched.first_observed = None;
                watched.met = false;
                continue;
            }
            let since = *watched.first_observed.get_or_insert(now);
            watched.met = now.since(since) >= watched.threshold.grace_period;
            // As upstream, a soft threshold sets the condition before its grace period ends.
            let [memory, disk, pid] = &mut self.last_observed;
            *match watched.threshold.signal {
                Signal::MemoryAvailable => memory,
                Signal::PidAvailable => pid,
                _ => disk,
            } = Some(now);
        }
        let [memory, disk, pid] = self
            .last_observed
            .map(|last| last.is_some_and(|last| now.since(last) < self.transition_period));
        Pressures { memory, disk, pid }
    }
}

impl Watched {
    /// Without the fact the result of the last pass is kept, as upstream.
    fn is_met(&self, facts: &Facts) -> bool {
        let Some((available, capacity)) = observe(self.threshold.signal, facts) else {
            return self.first_observed.is_some();
        };
        let amount = self.threshold.amount.of(capacity);
        let needed = match self.threshold.minimum_reclaim {
            Some(reclaim) if self.met => amount.plus(reclaim.of(capacity)),
            _ => amount,
        };
        needed > Quantity::bytes(available)
    }
}

/// The available amount and the capacity.
fn observe(signal: Signal, facts: &Facts) -> Option<(u64, u64)> {
    match signal {
        Signal::MemoryAvailable => {
            let total = facts.memory.as_ref().ok()?.total_bytes;
            let working_set = *facts.working_set_bytes.as_ref().ok()?;
            Some((total.saturating_sub(working_set), total))
        }
        Signal::NodefsAvailable | Signal::ImagefsAvailable => {
            let fs = file_system(signal, facts)?;
            Some((fs.available_bytes, fs.capacity_bytes))
        }
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree => {
            let fs = file_system(signal, facts)?;
            Some((fs.inodes_free, fs.inodes))
        }
        Signal::PidAvailable => {
            let pids = facts.pids.as_ref().ok()?;
            Some((pids.max.saturating_sub(pids.running), pids.max))
        }
    }
}

/// The file system of a signal. Without a runtime the images are where everything else is, as on a
/// board with one disk.
fn file_system(signal: Signal, facts: &Facts) -> Option<&FileSystem> {
    let fs = match (signal, &facts.image_fs) {
        (Signal::ImagefsAvailable | Signal::ImagefsInodesFree, Some(image_fs)) => image_fs,
        _ => &facts.node_fs,
    };
    fs.as_ref().ok()
}

#[cfg(test)]
mod tests;
