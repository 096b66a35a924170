//! The end of a call, shared by all that may wait during it: lookup, connection and socket.
//!
//! ureq's own time limits are not used: they are part of its configuration, which ureq copies for
//! each request that changes it. This clock counts the time of a suspend, too: the first wait that
//! ends after it ends the call.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::poll::PollTimeout;

use crate::process::clock::since_boot;

/// The time limit of a poll, rounded up: 0 ms would spin during the last millisecond.
pub(super) fn poll_timeout(left: Duration) -> PollTimeout {
    let left = left.saturating_add(Duration::from_millis(1));
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// Time since boot, of the current or of the last call. The lock is for ureq, which wants its
/// connections `Sync`: there is one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadline(Arc<Mutex<Duration>>);

impl Deadline {
    /// A call begins and ends within `budget`.
    pub(super) fn begin(&self, budget: Duration) {
        self.set(|_, now| now.saturating_add(budget));
    }

    /// The current call ends within `budget`, or earlier.
    pub(super) fn shorten(&self, budget: Duration) {
        self.set(|ends, now| ends.min(now.saturating_add(budget)));
    }

    /// The time that the current call has left; never zero, which some calls take for "no limit".
    pub(super) fn left(&self) -> io::Result<Duration> {
        let ends = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match ends.checked_sub(since_boot()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }

    fn set(&self, change: impl FnOnce(Duration, Duration) -> Duration) {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *ends = change(*ends, since_boot());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_within_its_shortest_budget_and_the_next_one_begins_anew() {
        let deadline = Deadline::default();
        assert!(deadline.left().is_err(), "no call has begun");
        let socket = deadline.clone();
        let minute = Duration::from_secs(60);
        deadline.begin(minute);
        deadline.shorten(2 * minute);
        assert!(socket.left().unwrap() <= minute);
        deadline.shorten(Duration::ZERO);
        assert_eq!(
            socket.left().map_err(|e| e.kind()),
            Err(ErrorKind::TimedOut)
        );
        deadline.begin(Duration::MAX);
        assert!(socket.left().unwrap() > minute);
    }
}
