//! Which time is written: the board's, unless that cannot be.
//!
//! Boards without an RTC wake up in 1970. A clock that stands before this program was
//! built is wrong; until somebody sets it, the time of the API server's last answer
//! takes its place, and where no answer told the time, nothing is written at all.
//! Intervals are not our affair: they are measured on the monotonic clock.

use std::time::Duration;

use crate::core::instant::{Mono, Now};
use crate::core::outage_log::OutageLog;
use crate::kube::time::Wall;

/// What is known of the time.
#[derive(Debug)]
pub struct WallClock {
    built: Wall,
    /// The last `Date` of the server, and when it came.
    server: Option<(Mono, Wall)>,
    log: OutageLog,
}

impl WallClock {
    /// `built` is a time that has certainly passed.
    pub fn new(built: Wall) -> Self {
        Self {
            built,
            server: None,
            log: OutageLog::new("clock"),
        }
    }

    /// When this program was built, or the commit that it was built from.
    pub fn built() -> Wall {
        let seconds = env!("NODELET_BUILT").parse().unwrap_or_default();
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    /// The server answered, and said that it is `date`.
    pub fn heard(&mut self, date: Wall, at: Mono) {
        self.server = Some((at, date));
    }

    /// The time to write, if there is one.
    pub fn wall(&self, now: Now) -> Option<Wall> {
        if now.wall >= self.built {
            return Some(now.wall);
        }
        let (at, date) = self.server?;
        Some(date.after(now.mono.since(at)))
    }

    /// `now`, with the time to write where there is one.
    #[must_use]
    pub fn corrected(&self, now: Now) -> Now {
        let wall = self.wall(now).unwrap_or(now.wall);
        Now { wall, ..now }
    }

    /// Says once what is wrong with the board's clock, and once that it no longer is.
    pub fn look(&mut self, now: Now) {
        if now.wall >= self.built {
            self.log.succeeded(now.mono);
            return;
        }
        let (says, built) = (now.wall.time(), self.built.time());
        let line = match self.wall(now) {
            Some(time) => {
                let days = time.since(now.wall).as_secs() / 86_400;
                format!(
                    "the board says {says}, {days} days behind the API server; \
                     its time is used until the board's is set"
                )
            }
            None => format!(
                "the board says {says}, but nodelet was built at {built}; nothing is written \
                 until the clock is set (NTP, RTC) or the API server tells the time"
            ),
        };
        self.log.failed(&line, now.mono);
    }

    /// What is wrong with the clock.
    pub fn trouble(&self) -> Option<&str> {
        self.log.trouble()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: u64 = 1_790_000_000;

    fn now(mono: u64, wall: u64) -> Now {
        Now {
            mono: Mono::START.after(Duration::from_secs(mono)),
            wall: wall_at(wall),
        }
    }

    fn wall_at(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn a_clock_before_the_build_is_replaced_by_the_servers_and_by_nothing_else() {
        let mut wall_clock = WallClock::new(wall_at(BUILT));
        assert_eq!(wall_clock.wall(now(0, 5)), None);
        assert_eq!(wall_clock.corrected(now(0, 5)), now(0, 5));
        assert_eq!(wall_clock.wall(now(0, BUILT)), Some(wall_at(BUILT)));

        wall_clock.heard(wall_at(BUILT + 100), now(1, 6).mono);
        assert_eq!(wall_clock.wall(now(31, 36)), Some(wall_at(BUILT + 130)));
        // Stepped about, it is still before the build.
        assert_eq!(
            wall_clock.corrected(now(41, BUILT - 1)),
            now(41, BUILT + 140)
        );
        // A board that is ahead of the server is believed, as a kubelet is.
        let ahead = now(51, BUILT + 9999);
        assert_eq!(wall_clock.corrected(ahead), ahead);
        // The last answer counts.
        wall_clock.heard(wall_at(BUILT + 7), now(60, 0).mono);
        assert_eq!(wall_clock.wall(now(60, 0)), Some(wall_at(BUILT + 7)));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_do_until_it_is_right() {
        let mut wall_clock = WallClock::new(wall_at(BUILT));
        wall_clock.look(now(0, 5));
        assert_eq!(
            wall_clock.trouble(),
            Some(
                "the board says 1970-01-01T00:00:05Z, but nodelet was built at \
                 2026-09-21T14:13:20Z; nothing is written until the clock is set (NTP, RTC) \
                 or the API server tells the time"
            )
        );
        wall_clock.heard(wall_at(BUILT), now(0, 0).mono);
        wall_clock.look(now(61, 66));
        assert_eq!(
            wall_clock.trouble(),
            Some(
                "the board says 1970-01-01T00:01:06Z, 20717 days behind the API server; \
                 its time is used until the board's is set"
            )
        );
        wall_clock.look(now(62, BUILT));
        assert_eq!(wall_clock.trouble(), None);
    }

    #[test]
    fn the_build_is_dated() {
        assert!(WallClock::built() > Wall::default());
    }
}
