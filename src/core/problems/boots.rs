//! FrequentReboot, and the file `boots` in `--root-dir`: one line for each boot,
//! `<unix seconds> <boot id>`, and ` orderly` if the agent was stopped before the boot ended.
//!
//! A boot counts if the one before it did not end orderly. The state follows from the file, so a
//! restart of the agent changes nothing. A line is written once per boot, when a response of the
//! API server has shown that the clock is right.

use super::look::Boots;
use super::state::{Problem, Verdict};

/// Number of lines that are kept.
const MAX_LINES: usize = 16;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;
const ORDERLY: &str = "orderly";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Boot {
    /// Seconds since 1970.
    at: u64,
    id: String,
    is_orderly: bool,
}

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct History {
    boots: Vec<Boot>,
    /// The id of this boot; empty until it is known.
    id: String,
    /// The file exists.
    exists: bool,
    /// The file cannot be written.
    has_failed: bool,
    /// This boot's line is in the file, without `orderly`.
    is_recorded: bool,
}

impl History {
    /// Takes the file and the id of this boot.
    pub(super) fn load(&mut self, file: &Boots) {
        self.exists = file.text.is_some();
        self.boots = file
            .text
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(parse)
            .collect();
        self.trim();
        self.id.clone_from(&file.boot_id);
    }

    /// Drops all but the last lines, which alone count.
    fn trim(&mut self) {
        let excess = self.boots.len().saturating_sub(MAX_LINES);
        self.boots.drain(..excess);
    }

    /// Whether the file has a line of this boot: another process ran since it.
    pub(super) fn knows_this_boot(&self) -> bool {
        self.boots.last().is_some_and(|last| last.id == self.id)
    }

    /// The file with a line of this boot, which began `at`; `None` if it has one.
    pub(super) fn record(&mut self, at: u64) -> Option<String> {
        if self.is_recorded || self.has_failed || self.id.is_empty() {
            return None;
        }
        match self.boots.last_mut() {
            Some(last) if last.id == self.id => {
                // An earlier process of this boot was stopped; the boot goes on.
                if !std::mem::take(&mut last.is_orderly) {
                    self.is_recorded = true;
                    return None;
                }
            }
            _ => {
                self.boots.push(Boot {
                    at,
                    id: self.id.clone(),
                    is_orderly: false,
                });
                self.trim();
            }
        }
        self.is_recorded = true;
        Some(self.text())
    }

    /// The file at the end of this process; `None` if it has no line of this boot.
    pub(super) fn stop(&mut self) -> Option<String> {
        let last = self.boots.last_mut().filter(|_| self.is_recorded)?;
        last.is_orderly = true;
        Some(self.text())
    }

    /// Takes the result of the write.
    pub(super) fn on_written(&mut self, is_ok: bool) {
        self.exists |= is_ok;
        self.has_failed = !is_ok;
        // It has failed and was logged: the end of this process does not try it again.
        self.is_recorded &= is_ok;
    }

    /// Whether the board is in a series of reboots at `now`, in seconds since 1970. `None`: the
    /// clock is not known to be right.
    pub(super) fn verdict(&self, now: Option<u64>) -> Verdict {
        if self.has_failed || !self.exists {
            return match self.has_failed || self.id.is_empty() {
                true => Verdict::NoSource,
                false => Verdict::Waiting,
            };
        }
        let Some(now) = now else {
            return Verdict::Waiting;
        };
        let pairs = self.boots.iter().zip(self.boots.iter().skip(1));
        let times: Vec<u64> = pairs
            .filter(|(before, _)| !before.is_orderly)
            .map(|(_, boot)| boot.at)
            .collect();
        let count = |now: u64, span: u64| {
            let is_recent = |at: &&u64| **at <= now && at.saturating_add(span) > now;
            times.iter().filter(is_recent).count()
        };
        // Replayed, because a True lasts until at most two are left.
        let is_bad = times.iter().chain([&now]).fold(false, |was_bad, at| {
            let day = count(*at, DAY);
            count(*at, HOUR) >= 3 || day >= 4 || (was_bad && day > 2)
        });
        if !is_bad {
            return Verdict::Quiet;
        }
        let message = match count(now, HOUR) >= 3 {
            true => "3 boots in an hour without an orderly stop",
            false => "4 boots in a day without an orderly stop",
        };
        Verdict::Problem(Problem::new(1, "FrequentReboot", message, 0))
    }

    fn text(&self) -> String {
        let line = |boot: &Boot| match boot.is_orderly {
            true => format!("{} {} {ORDERLY}\n", boot.at, boot.id),
            false => format!("{} {}\n", boot.at, boot.id),
        };
        self.boots.iter().map(line).collect()
    }
}

/// One line; `None` if it has another form.
fn parse(line: &str) -> Option<Boot> {
    let mut words = line.split_whitespace();
    let at = words.next()?.parse().ok()?;
    let id = words.next().filter(|id| id.len() <= 64)?.to_owned();
    let is_orderly = match words.next() {
        None => false,
        Some(word) if word == ORDERLY => true,
        Some(_) => return None,
    };
    Some(Boot { at, id, is_orderly })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str, id: &str) -> History {
        let mut history = History::default();
        history.load(&Boots {
            text: Some(text.to_owned()),
            boot_id: id.to_owned(),
        });
        history
    }

    /// A file with a boot at each time.
    fn boots(times: &[u64], end: &str) -> String {
        let line = |(number, at): (usize, &u64)| format!("{at} id{number}{end}\n");
        times.iter().enumerate().map(line).collect()
    }

    fn is_bad(times: &[u64], now: u64) -> bool {
        let verdict = history(&boots(times, ""), "x").verdict(Some(now));
        assert!(matches!(verdict, Verdict::Quiet | Verdict::Problem(_)));
        verdict != Verdict::Quiet
    }

    #[test]
    fn three_boots_in_an_hour_or_four_in_a_day_are_frequent() {
        const T: u64 = 1_783_000_000;
        // The first line's predecessor is unknown, so that boot does not count.
        for (times, now, want) in [
            (vec![], T, false),
            (vec![T], T, false),
            (vec![T, T + 1, T + 2], T + 3, false),
            (vec![T, T + 1, T + 2, T + 3], T + 3, true),
            // 3 within 3,599 s, and within 3,600 s.
            (vec![0, T, T + 1, T + 3599], T + 3599, true),
            (vec![0, T, T + 1, T + 3600], T + 3600, false),
            // 4 within a day.
            (
                vec![0, T, T + 8000, T + 16_000, T + 86_399],
                T + 86_399,
                true,
            ),
            (
                vec![0, T, T + 8000, T + 16_000, T + 86_400],
                T + 86_400,
                false,
            ),
            // It ends when at most two are left within 24 h.
            (vec![0, T, T + 1, T + 2], T + 86_399, true),
            (vec![0, T, T + 1, T + 2], T + 86_400, false),
            // A clock that was behind.
            (vec![0, T, T + 1, T + 2], T - 100, false),
        ] {
            assert_eq!(is_bad(&times, now), want, "{times:?} {now}");
        }
        let times = [T, T + 1, T + 2, T + 3, T + 4, T + 5];
        let orderly = history(&boots(&times, " orderly"), "x");
        assert_eq!(orderly.verdict(Some(T + 6)), Verdict::Quiet);
    }

    #[test]
    fn a_boot_is_recorded_once_and_a_stop_makes_it_orderly() {
        let mut first = History::default();
        first.load(&Boots {
            text: None,
            boot_id: "a".to_owned(),
        });
        assert_eq!(first.verdict(Some(100)), Verdict::Waiting);
        assert_eq!(first.stop(), None, "not recorded");
        assert_eq!(first.record(7).as_deref(), Some("7 a\n"));
        first.on_written(true);
        assert_eq!(first.record(8), None);
        assert_eq!(first.verdict(Some(100)), Verdict::Quiet);
        assert_eq!(first.verdict(None), Verdict::Waiting);
        assert_eq!(first.stop().as_deref(), Some("7 a orderly\n"));

        // A restart in the same boot: it is not over.
        let mut again = history("7 a orderly\n", "a");
        assert!(again.knows_this_boot());
        assert_eq!(again.record(9).as_deref(), Some("7 a\n"));
        let mut crashed = history("7 a\n", "a");
        assert_eq!(crashed.record(9), None);
        assert_eq!(crashed.stop().as_deref(), Some("7 a orderly\n"));

        let mut next = history("7 a orderly\n", "b");
        assert!(!next.knows_this_boot());
        assert_eq!(next.stop(), None, "the last line is of another boot");
        assert_eq!(next.record(9).as_deref(), Some("7 a orderly\n9 b\n"));
    }

    #[test]
    fn sixteen_lines_are_kept_and_garbage_is_dropped() {
        let times: Vec<u64> = (0..40).collect();
        let mut long = history(
            &format!("{}x\n-1 a\n5 b late\n\0\n", boots(&times, "")),
            "new",
        );
        let text = long.record(99).unwrap();
        assert_eq!(text.lines().count(), 16);
        assert!(text.starts_with("25 id25\n") && text.ends_with("39 id39\n99 new\n"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_source() {
        let mut history = history("", "a");
        assert!(history.record(1).is_some());
        history.on_written(false);
        assert_eq!(history.verdict(Some(5)), Verdict::NoSource);
        assert_eq!(history.record(2), None);
        assert_eq!(history.stop(), None, "a write that failed is not repeated");
        let unknown = History::default();
        assert_eq!(unknown.verdict(Some(5)), Verdict::NoSource);
    }
}
