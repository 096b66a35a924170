//! How long to wait: after a failure, between many boards, and for the next of many.

use std::time::Duration;

use crate::kube::instant::Mono;

/// Delays that double.
#[derive(Clone, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// From `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        debug_assert!(!first.is_zero() && first <= longest, "{first:?} {longest:?}");
        Self { first, longest, next: first }
    }

    /// The next delay.
    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.longest);
        debug_assert!(self.first <= delay && delay <= self.longest, "{self:?}");
        delay
    }

    /// After a success: the next delay is the first one.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A random part of a time, which spreads boards that were powered on together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(u32);

impl Jitter {
    /// No part.
    pub const NONE: Self = Self(0);

    /// From a random number.
    pub fn new(random: u64) -> Self {
        Self(u32::try_from(random % 1001).unwrap_or_default())
    }

    /// From nothing to all of `time`.
    pub fn of(self, time: Duration) -> Duration {
        let part = time * self.0 / 1000;
        debug_assert!(part <= time, "{self:?} of {time:?}");
        part
    }
}

/// A bucket to which a token is added after each `every`, up to the burst. A new bucket is full.
#[derive(Debug)]
pub struct TokenBucket {
    /// Zero: no limit.
    every: Duration,
    /// Time in which the empty bucket becomes full.
    full: Duration,
    /// The level at `since`: the time in which an empty bucket fills to this level.
    filled: Duration,
    since: Mono,
}

impl TokenBucket {
    /// A full bucket. A zero `every` is no limit.
    pub fn new(every: Duration, burst: u32) -> Self {
        let full = every * burst.max(1);
        Self { every, full, filled: full, since: Mono::START }
    }

    /// The tokens in the bucket; [`u32::MAX`] without a limit.
    pub fn tokens(&self, now: Mono) -> u32 {
        let every = self.every.as_nanos();
        let tokens = self.level(now).as_nanos().checked_div(every);
        tokens.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// Takes a token; an empty bucket stays empty.
    pub fn take(&mut self, now: Mono) {
        self.take_for(now, now);
    }

    /// Takes a token, and as much as is added in the time from `start` to `end`. Nothing is added
    /// for this time.
    pub fn take_for(&mut self, start: Mono, end: Mono) {
        let cost = self.every.saturating_add(end.since(start));
        self.filled = self.level(start).saturating_sub(cost);
        self.since = end;
        debug_assert!(self.filled <= self.full && start <= end, "{self:?}");
    }

    fn level(&self, now: Mono) -> Duration {
        self.filled.saturating_add(now.since(self.since)).min(self.full)
    }
}
