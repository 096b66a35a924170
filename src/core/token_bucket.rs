//! A token bucket: a limit on how often something is done.

use std::time::Duration;

use crate::core::instant::Mono;

/// One token is added each `every`, up to the burst. It starts full.
#[derive(Debug)]
pub struct TokenBucket {
    /// Zero: no limit.
    every: Duration,
    /// Time in which the empty bucket becomes full.
    full: Duration,
    /// The bucket's level at `since`, as filling time.
    filled: Duration,
    since: Mono,
}

impl TokenBucket {
    /// A full bucket. A zero `every` is no limit.
    pub fn new(every: Duration, burst: u32) -> Self {
        let full = every * burst.max(1);
        Self {
            every,
            full,
            filled: full,
            since: Mono::START,
        }
    }

    /// Whether the bucket has a token.
    pub fn has_token(&self, now: Mono) -> bool {
        self.tokens(now) > 0
    }

    /// The tokens in the bucket; [`u32::MAX`] without a limit.
    pub fn tokens(&self, now: Mono) -> u32 {
        let every = self.every.as_nanos();
        let tokens = self.level(now).as_nanos().checked_div(every);
        tokens.map_or(u32::MAX, |tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// Takes a token; an empty bucket stays empty.
    pub fn take(&mut self, now: Mono) {
        self.filled = self.level(now).saturating_sub(self.every);
        self.since = now;
    }

    fn level(&self, now: Mono) -> Duration {
        self.filled
            .saturating_add(now.since(self.since))
            .min(self.full)
    }
}
