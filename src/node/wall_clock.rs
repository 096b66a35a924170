//! The time that is written to the API server: the board's, unless that is wrong.
//!
//! Boards without an RTC start in 1970. A clock that shows a time before this program's build is
//! wrong. Until it is set, the `Date` of the API server's last response is used instead. Without
//! such a response nothing is written. Intervals are measured on the monotonic clock.

use std::time::Duration;

use crate::kube::instant::{Mono, Now};
use crate::kube::outage_log::OutageLog;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;

/// A moment, with the wall time that is written to the API server. Only [`WallClock::cluster_now`]
/// makes it, from a [`Now`], which has the wall time of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterNow {
    mono: Mono,
    wall: Wall,
}

impl ClusterNow {
    /// For intervals.
    pub fn mono(self) -> Mono {
        self.mono
    }

    /// For times that are written.
    pub fn wall(self) -> Wall {
        self.wall
    }

    #[cfg(test)]
    pub(crate) fn test(mono: Mono, wall: Wall) -> Self {
        Self { mono, wall }
    }
}

/// The board's clock counts for the time of the boot if it is less than this behind the server's.
const NEAR: Duration = Duration::from_secs(3600);

/// What is known of the server's clock.
#[derive(Clone, Copy, Debug)]
enum ServerClock {
    /// It has sent no time.
    Unknown,
    /// Its last `Date`, and when that arrived.
    Date(Wall, Mono),
    /// Its last `Date` was wrong, and the board's clock is right.
    IsWrong,
}

/// The sources of the wall time.
#[derive(Debug)]
pub struct WallClock {
    built: Wall,
    server: ServerClock,
    /// The earliest time of this boot by any `Date` of a server.
    booted: Option<Wall>,
    /// The end of the certificate in use, if the server has refused it as expired.
    expired: Option<Wall>,
    /// Time from the boot to the start of the process.
    pub(super) boot_to_start: Duration,
    log: OutageLog,
}

impl WallClock {
    /// `built` is when this program was built: a clock that shows an earlier time is wrong.
    /// `boot_to_start` is the time from the boot to the start of this process.
    pub fn new(built: Wall, boot_to_start: Duration) -> Self {
        let log = OutageLog::new("clock");
        Self {
            built,
            server: ServerClock::Unknown,
            booted: None,
            expired: None,
            boot_to_start,
            log,
        }
    }

    /// The time of this boot, or an earlier one, by the servers' clocks; `None` without a `Date`.
    /// A boot that is computed too late would end pods that run: a server's clock may be ahead, and
    /// a machine may have been paused. So the earliest boot of this process counts, and that by the
    /// board's own clock, unless that is wrong by hours. The clock since the boot may also be slow:
    /// a thousandth of the time since the boot allows for that.
    pub fn boot(&self, now: Now) -> Option<Wall> {
        let server = self.booted?;
        let board = boot_of(now.wall, now.mono, self.boot_to_start);
        let is_near = server.since(board) < NEAR;
        let since = self.boot_to_start.saturating_add(now.mono.since(Mono::START));
        Some(if is_near { server.min(board) } else { server }.before(since / 1000))
    }

    /// Takes the `Date` of a response.
    pub fn on_server_date(&mut self, date: Wall, at: Mono) {
        let booted = boot_of(date, at, self.boot_to_start);
        self.booted = Some(self.booted.map_or(booted, |earliest| earliest.min(booted)));
        self.server = ServerClock::Date(date, at);
    }

    fn is_set(&self, now: Now) -> bool {
        now.wall >= self.built
    }

    /// `now` with the time to write: the board's if its clock is set, else the server's. `None` if
    /// the clock is wrong and the server has not sent its time.
    pub fn cluster_now(&self, now: Now) -> Option<ClusterNow> {
        let wall = if self.is_set(now) { Some(now.wall) } else { self.server_time(now) };
        wall.map(|wall| ClusterNow { mono: now.mono, wall })
    }

    /// The server's time, if it has sent one.
    pub fn server_time(&self, now: Now) -> Option<Wall> {
        match self.server {
            ServerClock::Date(date, at) => Some(date.after(now.mono.since(at))),
            ServerClock::IsWrong => Some(now.wall).filter(|_| self.is_set(now)),
            ServerClock::Unknown => None,
        }
    }

    /// The server, or a gateway before it, has refused the certificate in use within TLS, as one
    /// that has expired or is not valid yet. Such a server never sends its time. If the last
    /// `Date` says that the certificate is valid, and the board's clock that it is not, that server
    /// had a wrong clock: the board's is used until the next `Date`, or until it is refuted, too.
    pub fn on_expired(&mut self, leaf: &Leaf, now: Now) {
        self.expired = Some(leaf.not_after);
        let is_valid = |wall| leaf.is_valid(wall, Some(wall));
        let is_denied = self.is_set(now) && !is_valid(now.wall);
        match self.server {
            ServerClock::Date(..) if is_denied && self.server_time(now).is_some_and(is_valid) => {
                self.server = ServerClock::IsWrong;
            }
            ServerClock::IsWrong if !is_denied => self.server = ServerClock::Unknown,
            _ => {}
        }
    }

    /// Another certificate is in use.
    pub fn on_new_certificate(&mut self) {
        self.expired = None;
    }

    /// Whether the server's time is not known but for this: the certificate in use has expired.
    pub fn knows_expiry_alone(&self, now: Now) -> bool {
        self.server_time(now).is_none() && self.expired.is_some()
    }

    /// The time to judge certificates by: the server's, else a time after the end of a certificate
    /// that was refused as expired, or the board's if that is later. `None` if nothing is known but
    /// the board's clock.
    pub fn judging_time(&self, now: Now) -> Option<Wall> {
        let after_end = || Some(self.expired?.after(Duration::from_secs(1)).max(now.wall));
        self.server_time(now).or_else(after_end)
    }

    /// Logs once that the board's clock is wrong, and once that it is set.
    pub fn log_state(&mut self, now: Now) {
        if self.is_set(now) {
            self.log.succeeded(now.mono);
            return;
        }
        let (shown, built) = (now.wall.time(), self.built.time());
        let line = match self.server_time(now) {
            Some(time) => {
                let behind = rounded_down(time.since(now.wall));
                format!(
                    "{shown} is {behind} behind the API server; \
                     the server's time is used until the clock is set"
                )
            }
            None => format!(
                "{shown} is before the build of nodelet at {built}; nothing is written \
                 until the clock is set (NTP, RTC) or the API server sends the time"
            ),
        };
        self.log.failed(&line, now.mono);
    }

    /// The line about a wrong clock.
    pub fn last_error(&self) -> Option<&str> {
        self.log.last_error()
    }
}

/// The duration in its largest unit that gives at least 2, rounded down: 119 s are `119 seconds`,
/// 120 s are `2 minutes`.
fn rounded_down(time: Duration) -> String {
    let seconds = time.as_secs();
    let (unit, name) = match seconds {
        0..120 => (1, "seconds"),
        120..7_200 => (60, "minutes"),
        7_200..172_800 => (3_600, "hours"),
        _ => (86_400, "days"),
    };
    format!("{} {name}", seconds / unit)
}

/// When the board was booted, by the server's clock. The server's clock showed `date` at the time
/// `at` of this process, which started `boot_to_start` after the boot. If the server's clock showed
/// 12:00:00 at 20 s, and the process started 10 s after the boot, the boot was at 11:59:30.
pub fn boot_of(date: Wall, at: Mono, boot_to_start: Duration) -> Wall {
    date.before(boot_to_start.saturating_add(at.since(Mono::START)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::certificate::tests as certificates;

    const BUILT: u64 = 1_790_000_000;

    fn now(mono: u64, wall: u64) -> Now {
        Now { mono: Mono::START.after(Duration::from_secs(mono)), wall: wall_at(wall) }
    }

    fn wall_at(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    #[test]
    fn the_servers_time_replaces_a_clock_before_the_build() {
        let mut wall_clock = WallClock::new(wall_at(BUILT), Duration::ZERO);
        let written = |clock: &WallClock, now: Now| clock.cluster_now(now).map(ClusterNow::wall);
        assert_eq!(written(&wall_clock, now(0, 5)), None);
        assert_eq!(written(&wall_clock, now(0, BUILT)), Some(wall_at(BUILT)));

        wall_clock.on_server_date(wall_at(BUILT + 100), now(1, 6).mono);
        assert_eq!(written(&wall_clock, now(31, 36)), Some(wall_at(BUILT + 130)));
        // A step to another time before the build changes nothing.
        assert_eq!(written(&wall_clock, now(41, BUILT - 1)), Some(wall_at(BUILT + 140)));
        // A clock ahead of the server's is used, as by the kubelet.
        assert_eq!(written(&wall_clock, now(51, BUILT + 9999)), Some(wall_at(BUILT + 9999)));
        // The last response counts.
        wall_clock.on_server_date(wall_at(BUILT + 7), now(60, 0).mono);
        assert_eq!(written(&wall_clock, now(60, 0)), Some(wall_at(BUILT + 7)));
    }

    #[test]
    fn the_line_about_a_wrong_clock_says_what_to_do() {
        let mut wall_clock = WallClock::new(wall_at(BUILT), Duration::ZERO);
        wall_clock.log_state(now(0, 5));
        assert_eq!(
            wall_clock.last_error(),
            Some(
                "1970-01-01T00:00:05Z is before the build of nodelet at 2026-09-21T14:13:20Z; \
                 nothing is written until the clock is set (NTP, RTC) or the API server sends \
                 the time"
            )
        );
        wall_clock.log_state(now(62, BUILT));
        assert_eq!(wall_clock.last_error(), None);
        for (seconds, want) in [
            (0, "0 seconds"),
            (119, "119 seconds"),
            (120, "2 minutes"),
            (7_200, "2 hours"),
            (86_399, "23 hours"),
            (172_800, "2 days"),
        ] {
            wall_clock.on_server_date(wall_at(BUILT - 61 + seconds), now(0, 0).mono);
            wall_clock.log_state(now(60, BUILT - 1));
            let line = wall_clock.last_error().unwrap();
            assert!(line.contains(&format!("Z is {want} behind the API server; ")), "{line}");
            assert!(line.ends_with("the server's time is used until the clock is set"), "{line}");
        }
    }

    /// A server whose clock was ahead has issued the certificate, and a gateway refuses it.
    #[test]
    fn a_refusal_within_tls_counts_more_than_the_date_of_a_server_that_was_ahead() {
        let hours = |count: u64| wall_at(BUILT + count * 3600);
        let leaf = certificates::leaf(hours(500), hours(600));
        for (server, board, time) in [
            (550, hours(1), hours(1)),
            // The board's clock agrees, or is not set.
            (550, hours(551), hours(550)),
            (550, wall_at(5), hours(550)),
            // The server's clock says it, too.
            (2, hours(1), hours(2)),
        ] {
            let mut clock = WallClock::new(wall_at(BUILT), Duration::ZERO);
            let now = Now { mono: Mono::START, wall: board };
            clock.on_server_date(hours(server), now.mono);
            clock.on_expired(&leaf, now);
            assert_eq!(clock.server_time(now), Some(time), "{server} {board:?}");
        }
        // Then the board's clock, which was the wrong one, is corrected.
        let mut clock = WallClock::new(wall_at(BUILT), Duration::ZERO);
        let [now, corrected] = [1, 550].map(|hour| Now { mono: Mono::START, wall: hours(hour) });
        clock.on_server_date(hours(551), now.mono);
        clock.on_expired(&leaf, now);
        assert_eq!(clock.server_time(corrected), Some(hours(550)));
        assert_eq!(clock.cluster_now(Now { wall: wall_at(5), ..now }), None);
        let last = certificates::leaf(hours(0), hours(9));
        // The last certificate, which is valid by the board's clock, is refused, too.
        clock.on_expired(&last, now);
        assert!(clock.knows_expiry_alone(now));
        assert!(clock.judging_time(now) > Some(hours(9)));
    }

    /// A board that started 100 s before the process; its own clock is wrong.
    #[test]
    fn the_boot_is_known_by_the_servers_clock_alone() {
        let mut clock = WallClock::new(wall_at(BUILT), Duration::from_secs(100));
        assert_eq!(clock.boot(now(5, BUILT)), None);
        for seconds in [5, 50_000] {
            clock.on_server_date(wall_at(BUILT + 1000 + seconds), now(seconds, 7).mono);
            let boot = clock.boot(now(seconds, 7));
            let slow = Duration::from_secs(100 + seconds) / 1000;
            assert_eq!(boot, Some(wall_at(BUILT + 900).before(slow)));
        }
    }

    /// Pods that run are kept by a boot that is too early, and ended by one that is too late.
    #[test]
    fn the_earliest_boot_counts() {
        let mut clock = WallClock::new(wall_at(BUILT), Duration::ZERO);
        let boot = |clock: &WallClock, wall| clock.boot(now(10, wall)).unwrap().seconds();
        clock.on_server_date(wall_at(BUILT + 1010), now(10, 7).mono);
        let first = boot(&clock, 7);
        // A server that is ahead, or a machine that was paused.
        clock.on_server_date(wall_at(BUILT + 5000), now(10, 7).mono);
        assert_eq!([7, BUILT - 3000, BUILT + 9000].map(|wall| boot(&clock, wall)), [first; 3]);
        assert_eq!(boot(&clock, BUILT + 910), first - 100, "the board's clock");
    }
}
