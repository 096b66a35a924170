//! NTPProblem: the board's clock differs from the API server's.
//!
//! The `Date` of the server's responses decides. A time daemon without servers is no problem while
//! the clock is right.

use std::time::Duration;

use super::look::{Look, Timesync};
use super::state::{Problem, Verdict};
use crate::core::instant::{Mono, Now};
use crate::kube::time::Wall;

/// The clock is wrong by more than this, in responses in a row; right below [`RIGHT`].
const WRONG: Duration = Duration::from_secs(30);
const RIGHT: Duration = Duration::from_secs(10);
const RESPONSES: u8 = 3;
/// `Date` has whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// systemd-timesyncd has this much time after a boot, in seconds.
const AFTER_BOOT: u64 = 900;
/// Its longest poll takes 34 min.
const STALE: Duration = Duration::from_secs(2 * 3600);

/// The state of the rule.
#[derive(Debug)]
pub(super) struct Ntp {
    /// The time of this program's build: no right clock shows an earlier one.
    built: Wall,
    responses: u8,
    wrong: u8,
    right: u8,
    /// The last difference, and whether the board is ahead.
    skew: Option<(Duration, bool)>,
    /// The board's clock shows a time before the build.
    is_unset: bool,
    /// What systemd-timesyncd says; `None` without it.
    timesync: Option<Daemon>,
}

/// What the state of systemd-timesyncd says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    Works,
    /// It had no answer yet, soon after a boot.
    Starts,
    Fails,
}

impl Ntp {
    pub(super) fn new(built: Wall) -> Self {
        Self {
            built,
            responses: 0,
            wrong: 0,
            right: 0,
            skew: None,
            is_unset: false,
            timesync: None,
        }
    }

    /// Takes the `Date` of a response whose request was sent at `start`. `now.wall` is the board's
    /// clock.
    pub(super) fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        // The server's time on arrival lies between `date` and `latest`.
        let latest = date.after(now.mono.since(start)).after(ROUNDING);
        let (ahead, behind) = (
            now.wall.since(latest),
            date.since(now.wall).saturating_sub(ROUNDING),
        );
        let off = ahead.max(behind);
        self.skew = Some((off, ahead > behind));
        self.is_unset = now.wall < self.built;
        let in_a_row = |holds: bool, count: u8| match holds {
            true => count.saturating_add(1).min(RESPONSES),
            false => 0,
        };
        self.responses = in_a_row(true, self.responses);
        self.wrong = in_a_row(off > WRONG, self.wrong);
        self.right = in_a_row(off < RIGHT, self.right);
    }

    /// Takes a look. `wall` is the board's clock.
    pub(super) fn on_look(&mut self, look: &Look, wall: Wall) {
        let uptime = look.uptime_seconds.unwrap_or_default();
        self.timesync = look.timesync.map(|timesync| match timesync {
            Timesync::Never if uptime >= AFTER_BOOT => Daemon::Fails,
            Timesync::Never => Daemon::Starts,
            // /run is empty at boot: an earlier time is of another clock.
            Timesync::At(Some(at)) if is_stale(wall.since(at), uptime) => Daemon::Fails,
            Timesync::At(_) => Daemon::Works,
        });
    }

    pub(super) fn verdict(&self) -> Verdict {
        let is_down = self.timesync == Some(Daemon::Fails);
        let Some((off, is_ahead)) = self.skew else {
            return match self.timesync {
                None | Some(Daemon::Starts) => Verdict::Waiting,
                Some(Daemon::Works) => Verdict::Quiet,
                Some(Daemon::Fails) => Verdict::Problem(Problem::new(
                    2,
                    "NTPIsDown",
                    "systemd-timesyncd has no answer of a time server",
                    0,
                )),
            };
        };
        if self.right == RESPONSES {
            return Verdict::Quiet;
        }
        if self.wrong < RESPONSES {
            return match self.responses < RESPONSES {
                true => Verdict::Waiting,
                // Between both limits.
                false => Verdict::Close,
            };
        }
        let (band, limit) = match off.as_secs() {
            3600.. => (2, "1 h"),
            300.. => (1, "5 min"),
            _ => (0, "30 s"),
        };
        let (rank, reason) = match self.is_unset {
            true => (7, "ClockNotSet"),
            false if is_down => (4, "NTPIsDown"),
            false => (1, "ClockSkew"),
        };
        let side = match is_ahead {
            true => "ahead of",
            false => "behind",
        };
        let message = format!("the clock is {side} the API server by more than {limit}");
        Verdict::Problem(Problem::new(rank + band, reason, &message, 0))
    }

    /// Whether the last response showed that the board's clock is right.
    pub(super) fn is_vouched(&self) -> bool {
        self.right > 0
    }

    /// Whether the board's clock, which shows `wall`, is wrong: a response showed that, or it is
    /// before the build.
    pub(super) fn is_refuted(&self, wall: Wall) -> bool {
        self.wrong > 0 || self.is_unset || wall < self.built
    }
}

fn is_stale(age: Duration, uptime: u64) -> bool {
    age > STALE && age.as_secs() <= uptime
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: u64 = 1_735_689_600;
    const SERVER: u64 = 1_783_000_000;

    fn wall(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    fn ntp() -> Ntp {
        Ntp::new(wall(BUILT))
    }

    /// `times` responses after `trip` seconds, on a board whose clock shows `shown`.
    fn answered(ntp: &mut Ntp, times: usize, shown: u64, trip: u64) -> Verdict {
        let end = Mono::START.after(Duration::from_secs(trip));
        let now = Now {
            mono: end,
            wall: wall(shown),
        };
        for _ in 0..times {
            ntp.on_date(wall(SERVER), Mono::START, now);
        }
        ntp.verdict()
    }

    fn reason(verdict: &Verdict) -> (&str, &str) {
        match verdict {
            Verdict::Problem(problem) => (problem.reason, problem.message.as_str()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn three_responses_in_a_row_decide() {
        let ahead = SERVER + 32;
        let mut clock = ntp();
        assert_eq!(answered(&mut clock, 2, ahead, 0), Verdict::Waiting);
        assert_eq!(
            reason(&answered(&mut clock, 1, ahead, 0)),
            (
                "ClockSkew",
                "the clock is ahead of the API server by more than 30 s"
            )
        );
        // One response in between begins anew.
        let mut clock = ntp();
        answered(&mut clock, 2, ahead, 0);
        answered(&mut clock, 1, SERVER, 0);
        assert_eq!(answered(&mut clock, 2, ahead, 0), Verdict::Close);
        // Between 10 and 30 s nothing ends, and nothing begins.
        for between in [SERVER + 20, SERVER - 20] {
            let mut clock = ntp();
            assert_eq!(answered(&mut clock, 2, between, 0), Verdict::Waiting);
            assert_eq!(answered(&mut clock, 1, between, 0), Verdict::Close);
        }
        let mut clock = ntp();
        assert_eq!(answered(&mut clock, 2, SERVER, 0), Verdict::Waiting);
        assert_eq!(answered(&mut clock, 1, SERVER, 0), Verdict::Quiet);
    }

    #[test]
    fn the_limits_leave_room_for_the_round_trip_and_whole_seconds() {
        for (shown, trip, is_wrong) in [
            (SERVER + 31, 0, false),
            (SERVER + 32, 0, true),
            (SERVER - 31, 0, false),
            (SERVER - 32, 0, true),
            (SERVER + 36, 5, false),
            (SERVER + 37, 5, true),
            (SERVER - 31, 5, false),
            (SERVER - 32, 5, true),
        ] {
            let verdict = answered(&mut ntp(), 3, shown, trip);
            let is_problem = matches!(verdict, Verdict::Problem(_));
            assert_eq!(
                is_problem,
                is_wrong,
                "{} {trip}",
                shown.cast_signed() - SERVER.cast_signed()
            );
        }
        for (shown, is_right) in [
            (SERVER + 10, true),
            (SERVER + 11, false),
            (SERVER - 10, true),
            (SERVER - 11, false),
        ] {
            let is_quiet = answered(&mut ntp(), 3, shown, 0) == Verdict::Quiet;
            assert_eq!(
                is_quiet,
                is_right,
                "{}",
                shown.cast_signed() - SERVER.cast_signed()
            );
        }
    }

    #[test]
    fn the_text_has_a_band_and_the_reason_names_the_cause() {
        for (off, limit) in [
            (300, "30 s"),
            (301, "5 min"),
            (3600, "5 min"),
            (3601, "1 h"),
        ] {
            let verdict = answered(&mut ntp(), 3, SERVER - off, 0);
            let want = format!("the clock is behind the API server by more than {limit}");
            assert_eq!(reason(&verdict), ("ClockSkew", want.as_str()));
        }
        let verdict = answered(&mut ntp(), 3, 5, 0);
        assert_eq!(reason(&verdict).0, "ClockNotSet");
        let mut clock = ntp();
        let look = Look {
            timesync: Some(Timesync::Never),
            uptime_seconds: Some(900),
            ..Look::default()
        };
        clock.on_look(&look, wall(SERVER));
        assert_eq!(reason(&clock.verdict()).0, "NTPIsDown");
        let verdict = answered(&mut clock, 3, SERVER + 40, 0);
        assert_eq!(reason(&verdict).0, "NTPIsDown");
        // The server decides: the clock is right.
        assert_eq!(answered(&mut clock, 3, SERVER, 0), Verdict::Quiet);
    }

    #[test]
    fn without_a_response_timesyncd_decides() {
        let before = |seconds| Some(Timesync::At(Some(wall(SERVER - seconds))));
        for (timesync, uptime, want) in [
            (None, Some(90_000), "waiting"),
            (Some(Timesync::Never), Some(899), "waiting"),
            (Some(Timesync::Never), None, "waiting"),
            (Some(Timesync::Never), Some(900), "problem"),
            (before(0), Some(90_000), "quiet"),
            (before(7200), Some(90_000), "quiet"),
            (before(7201), Some(90_000), "problem"),
            // Older than the boot, as in a copy of the tree.
            (before(90_001), Some(90_000), "quiet"),
            (Some(Timesync::At(None)), Some(90_000), "quiet"),
        ] {
            let mut clock = ntp();
            let look = Look {
                timesync,
                uptime_seconds: uptime,
                ..Look::default()
            };
            clock.on_look(&look, wall(SERVER));
            let got = match clock.verdict() {
                Verdict::Waiting => "waiting",
                Verdict::Quiet => "quiet",
                Verdict::Problem(_) => "problem",
                other => panic!("{other:?}"),
            };
            assert_eq!(got, want, "{timesync:?} {uptime:?}");
        }
    }
}
