//! One moment, as plain values. The core gets the time as a parameter and reads no clock.

use std::time::Duration;

use crate::kube::time::Wall;

/// Time since the start of the process on the monotonic clock.
///
/// All intervals are measured with it, so a step of the wall clock changes none.
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

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// One moment, on both clocks of this board. What is written to the cluster has another type:
/// `node::wall_clock::ClusterNow`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For intervals.
    pub mono: Mono,
    /// For times that are shown. It may be wrong.
    pub wall: Wall,
}

/// A moment, and what the process has seen of the cluster by then.
#[derive(Clone, Copy, Debug)]
pub struct ClusterSeen {
    /// Its wall time is the server's, if the server has sent its time: the server judges and dates
    /// certificates by its own clock, so a wrong clock of the board does no harm to them. Until
    /// then it is the board's, but later than the end of a certificate that the server has refused
    /// as expired.
    pub now: Now,
    /// The server has sent its time, or has refused the certificate as expired.
    pub knows_time: bool,
    /// The server has sent its time.
    pub has_date: bool,
    /// The time of the board's own clock: the server's may be wrong, too.
    pub board: Wall,
    /// The Lease was renewed since the start.
    pub has_lease: bool,
    /// When the Node was created, by the server's clock; `None` if it is not known.
    pub node_created: Option<Wall>,
}

/// For a process without a Lease: `has_lease` is true, so that nothing waits for a renewal.
impl From<Now> for ClusterSeen {
    fn from(now: Now) -> Self {
        Self {
            now,
            knows_time: false,
            has_date: false,
            board: now.wall,
            has_lease: true,
            node_created: None,
        }
    }
}
