//! The history of boots. `time.rs` reads and writes its file.

use super::condition_state::RuleResult;
use crate::kube::instant::Mono;

/// Number of lines that are kept.
const MAX_LINES: usize = 16;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Boot {
    /// Seconds since 1970.
    at: u64,
    id: String,
    is_orderly: bool,
}

/// The rule of FrequentReboot, and the file `boots` in `--root-dir`: one line for each boot,
/// `<unix seconds> <boot id>`, and ` orderly` if the agent was stopped before the boot ended.
///
/// A boot counts if the one before it did not end orderly. The state follows from the file, so a
/// restart of the agent changes nothing. A line is written once per boot, when a response of the
/// API server has shown that the clock is right.
#[derive(Debug, Default)]
pub(super) struct History {
    boots: Vec<Boot>,
    /// The id of this boot, empty if the kernel does not tell it; `None` before it was read.
    pub(super) id: Option<String>,
    /// Whether the file exists; `None` before it was read.
    pub(super) exists: Option<bool>,
    /// When the file could not be read or written; `None` as soon as another attempt is allowed.
    pub(super) failed: Option<Mono>,
    /// This boot has a line, without `orderly`. `is_unsaved`: that changed since the last write.
    pub(super) is_recorded: bool,
    is_unsaved: bool,
}

impl History {
    /// Takes the file, if it exists. It may be another one than before, because a disk was mounted
    /// over its folder: then it lacks the line of this boot.
    pub(super) fn load(&mut self, text: Option<&str>) {
        let Some(text) = text else {
            self.exists.get_or_insert(false);
            return;
        };
        self.exists = Some(true);
        let own = self.boots.pop().filter(|last| self.id.as_ref() == Some(&last.id));
        self.boots = text.lines().filter_map(parse_boot).collect();
        if let Some(own) = own
            && self.boots.last().is_none_or(|last| last.id != own.id)
        {
            self.boots.push(own);
            (self.is_recorded, self.is_unsaved) = (false, true);
        }
        self.trim();
    }

    /// Whether there was no file when it was last looked for, and this process has made none.
    pub(super) fn is_missing(&self) -> bool {
        self.exists == Some(false) && !self.is_recorded
    }

    /// Keeps only the last [`MAX_LINES`] lines.
    fn trim(&mut self) {
        let excess = self.boots.len().saturating_sub(MAX_LINES);
        self.boots.drain(..excess);
    }

    /// False if the boot has its line or no id, the file was not read, or its last write failed.
    pub(super) fn may_record(&self) -> bool {
        let is_ready = self.exists.is_some() && self.id.as_ref().is_some_and(|id| !id.is_empty());
        is_ready && !self.is_recorded && self.failed.is_none()
    }

    /// The file with a line of this boot, which began `at`; `None` if it may not be written.
    pub(super) fn record(&mut self, at: u64) -> Option<String> {
        let id = self.id.as_ref().filter(|_| self.may_record())?;
        match self.boots.last_mut() {
            // An earlier process of this boot was stopped; the boot goes on.
            Some(last) if last.id == *id => {
                self.is_unsaved |= std::mem::take(&mut last.is_orderly);
            }
            _ => {
                self.boots.push(Boot { at, id: id.clone(), is_orderly: false });
                self.trim();
                self.is_unsaved = true;
            }
        }
        self.is_recorded = true;
        self.is_unsaved.then(|| self.text())
    }

    /// Whether a line of this boot is in the file, or is to be written.
    pub(super) fn has_own(&self) -> bool {
        self.exists.is_some() && (self.is_recorded || self.is_unsaved && self.failed.is_none())
    }

    /// The file at the end of this process; `None` if it has no line of this boot.
    pub(super) fn stop(&mut self) -> Option<String> {
        let has_own = self.has_own();
        self.boots.last_mut().filter(|_| has_own)?.is_orderly = true;
        Some(self.text())
    }

    /// Takes the result of the write: when it failed, or `None`.
    pub(super) fn on_written(&mut self, failed: Option<Mono>) {
        let is_ok = failed.is_none();
        self.exists = self.exists.map(|exists| exists | is_ok);
        self.failed = failed;
        self.is_recorded &= is_ok;
        self.is_unsaved &= !is_ok;
    }

    /// Whether the board is in a series of reboots at `now`, in seconds since 1970. `None`: the
    /// clock is not known to be right.
    pub(super) fn judge(&self, now: Option<u64>) -> RuleResult {
        let can_be_made = self.failed.is_none() && self.id.as_deref() != Some("");
        let now = match (self.exists, now) {
            (None, _) => return RuleResult::Unread,
            (Some(false), _) if !can_be_made => return RuleResult::NoSource,
            (Some(true), Some(now)) => now,
            _ => return RuleResult::Waiting,
        };
        let pairs = self.boots.iter().zip(self.boots.iter().skip(1));
        let times: Vec<u64> =
            pairs.filter(|(before, _)| !before.is_orderly).map(|(_, boot)| boot.at).collect();
        let count = |now: u64, span: u64| {
            let is_recent = |at: &&u64| **at <= now && at.saturating_add(span) > now;
            times.iter().filter(is_recent).count()
        };
        // The boots are replayed, because a True lasts until a day has at most two.
        let is_bad = times.iter().chain([&now]).fold(false, |was_bad, at| {
            let day = count(*at, DAY);
            count(*at, HOUR) >= 3 || day >= 4 || (was_bad && day > 2)
        });
        if !is_bad {
            return RuleResult::NoProblem;
        }
        let message = if count(now, HOUR) >= 3 {
            "3 boots in an hour without an orderly stop"
        } else {
            "4 boots in a day without an orderly stop"
        };
        RuleResult::problem(1, "FrequentReboot", message, 0)
    }

    pub(super) fn text(&self) -> String {
        let line = |boot: &Boot| {
            let end = if boot.is_orderly { " orderly" } else { "" };
            format!("{} {}{end}\n", boot.at, boot.id)
        };
        self.boots.iter().map(line).collect()
    }
}

/// One line; `None` if it has another form.
fn parse_boot(line: &str) -> Option<Boot> {
    let mut words = line.split_whitespace();
    let at = words.next()?.parse().ok()?;
    let id = words.next().filter(|id| id.len() <= 64)?.to_owned();
    let is_orderly = match words.next() {
        None => false,
        Some("orderly") => true,
        Some(_) => return None,
    };
    Some(Boot { at, id, is_orderly })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str, id: &str) -> History {
        let mut history = History { id: Some(id.to_owned()), ..History::default() };
        history.load(Some(text));
        history
    }

    /// A file with a boot at each time.
    fn boots(times: &[u64], end: &str) -> String {
        let line = |(number, at): (usize, &u64)| format!("{at} id{number}{end}\n");
        times.iter().enumerate().map(line).collect()
    }

    fn is_bad(times: &[u64], now: u64) -> bool {
        let result = history(&boots(times, ""), "x").judge(Some(now));
        assert!(matches!(result, RuleResult::NoProblem | RuleResult::Problem(_)));
        result != RuleResult::NoProblem
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
            (vec![0, T, T + 8000, T + 16_000, T + 86_399], T + 86_399, true),
            (vec![0, T, T + 8000, T + 16_000, T + 86_400], T + 86_400, false),
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
        assert_eq!(orderly.judge(Some(T + 6)), RuleResult::NoProblem);
    }

    #[test]
    fn a_boot_is_recorded_once_and_a_stop_makes_it_orderly() {
        let mut first = History { id: Some("a".to_owned()), ..History::default() };
        first.load(None);
        assert_eq!(first.judge(Some(100)), RuleResult::Waiting);
        assert_eq!(first.stop(), None, "not recorded");
        assert_eq!(first.record(7).as_deref(), Some("7 a\n"));
        first.on_written(None);
        assert_eq!(first.record(8), None);
        assert_eq!(first.judge(Some(100)), RuleResult::NoProblem);
        assert_eq!(first.judge(None), RuleResult::Waiting);
        assert_eq!(first.stop().as_deref(), Some("7 a orderly\n"));

        // A restart in the same boot: it is not over.
        let mut again = history("7 a orderly\n", "a");
        assert_eq!(again.record(9).as_deref(), Some("7 a\n"));
        let mut crashed = history("7 a\n", "a");
        assert_eq!(crashed.record(9), None);
        assert_eq!(crashed.stop().as_deref(), Some("7 a orderly\n"));

        let mut next = history("7 a orderly\n", "b");
        assert_eq!(next.stop(), None, "the last line is of another boot");
        assert_eq!(next.record(9).as_deref(), Some("7 a orderly\n9 b\n"));
    }

    #[test]
    fn sixteen_lines_are_kept_and_garbage_is_dropped() {
        let times: Vec<u64> = (0..40).collect();
        let mut long = history(&format!("{}x\n-1 a\n5 b late\n\0\n", boots(&times, "")), "new");
        let text = long.record(99).unwrap();
        assert_eq!(text.lines().count(), 16);
        assert!(text.starts_with("25 id25\n") && text.ends_with("39 id39\n99 new\n"));
    }

    #[test]
    fn a_file_that_cannot_be_made_is_no_source_and_one_that_was_read_stays_one() {
        const T: u64 = 1_783_000_000;
        let mut none = History { id: Some("a".to_owned()), ..History::default() };
        none.load(None);
        assert!(none.record(T).is_some());
        none.on_written(Some(Mono::START));
        assert_eq!(none.judge(Some(T)), RuleResult::NoSource);
        assert_eq!(none.record(T + 2), None);
        assert_eq!(none.stop(), None, "a write that failed is not repeated by a stop");
        let mut unknown = History { id: Some(String::new()), ..History::default() };
        unknown.load(None);
        assert_eq!(unknown.judge(Some(T)), RuleResult::NoSource);
        let mut bad = history(&boots(&[T, T + 1, T + 2], ""), "a");
        assert!(bad.record(T + 3).is_some());
        bad.on_written(Some(Mono::START));
        assert!(matches!(bad.judge(Some(T + 4)), RuleResult::Problem(_)), "this boot counts, too");
        bad.failed = None;
        let text = boots(&[T, T + 1, T + 2], "") + &format!("{} a\n", T + 3);
        assert_eq!(bad.record(T + 60), Some(text), "this boot has one line");
        bad.on_written(None);
        assert_eq!(bad.record(T + 120), None);
    }

    /// The lines in it are the boots before this one.
    #[test]
    fn a_file_that_was_not_read_says_nothing_and_is_not_written_over() {
        let mut history = History { id: Some("a".to_owned()), ..History::default() };
        assert_eq!(history.judge(Some(5)), RuleResult::Unread);
        assert_eq!(history.record(5), None);
        history.load(Some("1 old\n"));
        assert_eq!(history.record(5).as_deref(), Some("1 old\n5 a\n"));
    }
}
