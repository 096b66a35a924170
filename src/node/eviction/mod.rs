//! Pressure conditions from facts, thresholds, grace periods and the transition period.
//!
//! A pass runs with each computed status, by default every 10 s. As in the kubelet's eviction
//! manager, the state is when each threshold was first met and when each condition was last
//! observed. A condition is True from the first pass that meets a threshold until
//! `transition_period` after the last one. A condition whose fact is missing keeps its status.
//! Nothing is evicted: there are no pods.
//! Upstream: `pkg/kubelet/eviction/{helpers,eviction_manager}.go`.

use std::time::Duration;

use crate::config::thresholds::{Signal, Threshold};
use crate::kube::facts::{Facts, FsStats, Read};
use crate::kube::instant::Mono;
use crate::kube::quantity::Quantity;

/// Whether each pressure condition is True; `None` if that was never known since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressures {
    /// MemoryPressure.
    pub memory: Option<bool>,
    /// DiskPressure.
    pub disk: Option<bool>,
    /// PIDPressure.
    pub pid: Option<bool>,
}

impl Default for Pressures {
    /// No pressure.
    fn default() -> Self {
        Self { memory: Some(false), disk: Some(false), pid: Some(false) }
    }
}

/// The state between passes.
#[derive(Clone, Debug)]
pub struct Eviction {
    watched: Vec<Watched>,
    transition_period: Duration,
    memory: PressureCondition,
    disk: PressureCondition,
    pid: PressureCondition,
}

/// One pressure condition.
#[derive(Clone, Copy, Debug, Default)]
struct PressureCondition {
    /// When a threshold was last met.
    last_observed: Option<Mono>,
    /// The fact of a threshold is missing in this pass.
    is_unread: bool,
    /// The status after the last pass that could tell it.
    known: Option<bool>,
}

#[derive(Clone, Debug)]
struct Watched {
    threshold: Threshold,
    /// The first of the passes in a row that met the threshold; `None` if the last pass did not.
    first_observed: Option<Mono>,
    /// The threshold has been met for its whole grace period. From then on it is met until the
    /// available amount reaches the threshold plus the minimum reclaim.
    met: bool,
    /// The threshold was met since the condition became True.
    has_part: bool,
}

impl Eviction {
    /// The state before the first pass: no pressure.
    pub fn new(thresholds: &[Threshold], transition_period: Duration) -> Self {
        let watch = |threshold: &Threshold| Watched {
            threshold: *threshold,
            first_observed: None,
            met: false,
            has_part: false,
        };
        Self {
            watched: thresholds.iter().map(watch).collect(),
            transition_period,
            memory: PressureCondition::default(),
            disk: PressureCondition::default(),
            pid: PressureCondition::default(),
        }
    }

    /// Compares each threshold with `facts`. A condition whose fact is missing keeps its status.
    pub fn synchronize(&mut self, facts: &Facts, now: Mono) -> Pressures {
        let Self { watched, transition_period, memory, disk, pid } = self;
        for watched in watched {
            let condition = match watched.threshold.signal {
                Signal::MemoryAvailable => &mut *memory,
                Signal::PidAvailable => &mut *pid,
                _ => &mut *disk,
            };
            let observed = observe(watched.threshold.signal, facts);
            // A True is not kept for the sake of a fact that has no part in it.
            let is_true = condition.known == Some(true);
            watched.has_part &= is_true;
            condition.is_unread |= observed.is_none() && (!is_true || watched.has_part);
            if !watched.is_met(observed) {
                watched.first_observed = None;
                watched.met = false;
                continue;
            }
            watched.has_part = true;
            let since = *watched.first_observed.get_or_insert(now);
            watched.met = now.since(since) >= watched.threshold.grace_period;
            // As upstream, a soft threshold sets the condition before its grace period ends.
            condition.last_observed = Some(now);
        }
        let [memory, disk, pid] =
            [memory, disk, pid].map(|condition| condition.end_pass(*transition_period, now));
        Pressures { memory, disk, pid }
    }
}

impl PressureCondition {
    /// Ends a pass. Returns the status; if a fact was missing and nothing else makes it True, the
    /// last status that was known.
    fn end_pass(&mut self, transition_period: Duration, now: Mono) -> Option<bool> {
        let is_true = self.last_observed.is_some_and(|last| now.since(last) < transition_period);
        let is_unread = std::mem::take(&mut self.is_unread);
        if is_true || !is_unread {
            self.known = Some(is_true);
        }
        self.known
    }
}

impl Watched {
    /// Without the fact the result of the last pass is kept, as upstream.
    fn is_met(&self, observed: Option<(u64, u64)>) -> bool {
        let Some((available, capacity)) = observed else {
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

/// The available amount and the capacity; `None` if they are not known.
fn observe(signal: Signal, facts: &Facts) -> Option<(u64, u64)> {
    match signal {
        Signal::MemoryAvailable => {
            let total = facts.memory.as_ref().ok()?.total_bytes;
            let working_set = *facts.working_set_bytes.as_ref().ok()?;
            Some((total.saturating_sub(working_set), total))
        }
        Signal::PidAvailable => {
            let pids = facts.pids.as_ref().ok()?;
            Some((pids.max.saturating_sub(pids.running), pids.max))
        }
        _ => match file_system(signal, facts).as_ref().ok()? {
            // Without a size, as a ramfs: it never meets a threshold.
            None => Some((u64::MAX, u64::MAX)),
            Some(fs) if fs.is_old => None,
            Some(fs) => Some(match signal {
                Signal::NodefsInodesFree | Signal::ImagefsInodesFree => (fs.inodes_free, fs.inodes),
                _ => (fs.available_bytes, fs.capacity_bytes),
            }),
        },
    }
}

/// The file system of a signal. Without a runtime the images are where everything else is, as on a
/// board with one disk.
fn file_system(signal: Signal, facts: &Facts) -> &Read<Option<FsStats>> {
    match (signal, &facts.image_fs) {
        (Signal::ImagefsAvailable | Signal::ImagefsInodesFree, Some(image_fs)) => image_fs,
        _ => &facts.node_fs,
    }
}

#[cfg(test)]
mod tests;
