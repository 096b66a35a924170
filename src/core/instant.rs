//! One moment, as plain values: the core is told the time, it never asks.

use std::time::Duration;

use crate::kube::time::Wall;

/// Time since the start of the process on the monotonic clock.
///
/// Every interval is measured with it, so a stepped wall clock changes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mono(Duration);

impl Mono {
    /// The start of the process.
    pub const START: Self = Self(Duration::ZERO);

    /// `delay` later.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(delay))
    }

    /// Time since `earlier`; zero where that is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One moment, on both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For intervals.
    pub mono: Mono,
    /// For texts.
    pub wall: Wall,
}
