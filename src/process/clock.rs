//! Both clocks, read together: the only place that asks for the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::core::instant::{Mono, Now};
use crate::kube::time::Wall;

/// The clocks of this process.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Since boot.
    start: Duration,
}

impl Clock {
    /// Starts the monotonic clock.
    pub fn start() -> Self {
        Self {
            start: since_boot(),
        }
    }

    /// The time. A wall clock before 1970 reads as 1970.
    #[expect(clippy::disallowed_methods, reason = "the only clock")]
    pub fn now(&self) -> Now {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Now {
            mono: Mono::START.after(since_boot().saturating_sub(self.start)),
            wall: Wall::from_epoch(since_epoch.unwrap_or_default()),
        }
    }
}

/// Unlike `Instant`, counts the time that a board is suspended: to the control plane
/// it passes, too. CLOCK_BOOTTIME is there since Linux 2.6.39.
fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME)
        .or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC))
        .map(Duration::from)
        .unwrap_or_default()
}
