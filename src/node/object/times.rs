//! The times of the Node: when its next turn is due, and what that turn may send.
//!
//! Only [`Times::due`] wakes the loop. A report, a check or a changed status that is due waits for
//! the next turn of the Node, which is mostly in the wakeup for a renewal of the Lease. So it
//! causes no wakeup of its own.

use std::time::Duration;

use crate::config::Config;
use crate::kube::delay::{Backoff, Jitter, TokenBucket};
use crate::kube::instant::Mono;

/// Shortest time between two patches that only a health condition with a changed status causes.
const HEALTH_EVERY: Duration = Duration::from_secs(60);

/// So many changed statuses in a row are sent at once. If something flaps (an address, a capacity),
/// the further ones are sent once in 10 s, or in each period of the status if it is shorter,
/// because each one is a write of the control plane's database.
const CHANGES_BURST: u32 = 6;
const CHANGE_PERIOD: Duration = Duration::from_secs(10);

/// How long checks are frequent after a start, or after a time without renewals. In the first two
/// minutes the control plane may still set the conditions to Unknown: if its controllers were down,
/// too, they first wait for a whole grace period. The other 15 s are for one more check.
const FREQUENT_CHECKS: Duration = Duration::from_secs(135);

/// Shortest time between two frequent checks. It is shorter than the renewal interval, so that
/// there is one check with each renewal of the Lease.
const FREQUENT_CHECK_EVERY: Duration = Duration::from_secs(5);

/// Delay after a failed Node request: 100 ms, doubled up to 7 s, as of the kubelet's
/// registerWithAPIServer. As there, the first registration also waits for 100 ms, so the delay
/// after its first failure is 200 ms.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const LAST_BACKOFF: Duration = Duration::from_secs(7);

/// See the file's header.
#[derive(Debug)]
pub(super) struct Times {
    /// Time between two computations of the status: 4 % more than `nodeStatusUpdateFrequency`,
    /// which is the longest time of a kubelet. The Lease is mostly renewed earlier, and a renewal
    /// moves the next computation into its own wakeup.
    tick: Duration,
    report_frequency: Duration,
    resync_frequency: Duration,
    /// The next turn: a computation of the status, a read, or a retry.
    pub(super) due: Mono,
    /// The time of the next regular computation, while [`Self::due`] is the time of an extra one.
    regular_due: Option<Mono>,
    /// When an unchanged status must be sent again.
    pub(super) report_due: Mono,
    /// When the cached Node was last known to be the server's.
    pub(super) confirmed_at: Mono,
    frequent_checks_end: Mono,
    /// When the server accepted the last patch that only a health condition caused.
    pub(super) health_sent_at: Option<Mono>,
    pub(super) backoff: Backoff,
    /// Limits the patches for a changed status.
    pub(super) change_limit: TokenBucket,
}

impl Times {
    pub(super) fn new(config: &Config, now: Mono) -> Self {
        let mut backoff = Backoff::new(FIRST_BACKOFF, LAST_BACKOFF);
        Self {
            tick: config.update_frequency + config.update_frequency / 25,
            report_frequency: config.report_frequency,
            resync_frequency: config.resync_frequency,
            due: now.after(backoff.next_delay()),
            regular_due: None,
            report_due: now,
            confirmed_at: now,
            frequent_checks_end: now,
            health_sent_at: None,
            backoff,
            change_limit: TokenBucket::new(
                config.update_frequency.min(CHANGE_PERIOD),
                CHANGES_BURST,
            ),
        }
    }

    /// The next computation is an extra one at `at`. The regular computation keeps its time, so
    /// that it stays in the wakeup of a renewal.
    pub(super) fn compute_at(&mut self, at: Mono) {
        self.regular_due.get_or_insert(self.due);
        self.due = at;
    }

    /// A computation is over. The next one is the regular one, or one tick later.
    pub(super) fn computed(&mut self, now: Mono) {
        let regular = self.regular_due.take().filter(|due| *due > now);
        self.due = regular.unwrap_or(now.after(self.tick));
        debug_assert!(now < self.due, "{:?} at {now:?}", self.due);
    }

    /// A refused or unanswered request is retried after 100 ms to 7 s.
    pub(super) fn back_off(&mut self, now: Mono) {
        self.due = now.after(self.backoff.next_delay());
    }

    /// [`Self::back_off`], after a refusal that may ask for a longer delay.
    pub(super) fn refused(&mut self, retry_after: Option<Duration>, now: Mono) {
        self.back_off(now);
        let asked_for = retry_after.unwrap_or_default();
        self.due = self.due.max(now.after(asked_for.min(LAST_BACKOFF)));
        debug_assert!(self.due <= now.after(LAST_BACKOFF), "{:?} at {now:?}", self.due);
    }

    /// The server has our status. After a change the next report follows after 0.5 to 1.5 periods,
    /// which spreads the reports of boards that changed together.
    pub(super) fn reported(&mut self, is_changed: bool, now: Mono, jitter: Jitter) {
        let period = self.report_frequency;
        let delay = if is_changed { period / 2 + jitter.of(period) } else { period };
        debug_assert!(delay <= period * 2, "{delay:?}");
        self.report_due = now.after(delay);
        self.backoff.reset();
        self.confirmed_at = now;
    }

    /// Makes checks frequent for [`FREQUENT_CHECKS`]: the Lease was not renewed for a while, or not
    /// yet.
    pub(super) fn check_often(&mut self, now: Mono) {
        self.frequent_checks_end = now.after(FREQUENT_CHECKS);
    }

    /// Whether the next write must at least be a check, which asks whether the Node has changed on
    /// the server.
    pub(super) fn is_check_due(&self, now: Mono) -> bool {
        let resync = self.resync_frequency;
        let is_frequent = now < self.frequent_checks_end;
        let every = if is_frequent { resync.min(FREQUENT_CHECK_EVERY) } else { resync };
        now.since(self.confirmed_at) >= every
    }

    /// Whether a health condition that changed its status may be sent before the next report.
    pub(super) fn may_send_health(&self, now: Mono) -> bool {
        self.health_sent_at.is_none_or(|at| now.since(at) >= HEALTH_EVERY)
    }
}
