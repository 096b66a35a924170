//! The state of one condition: how a rule's verdicts become True and False.

use std::time::Duration;

use crate::core::instant::Mono;
use crate::kube::text::one_line;

/// A source that cannot be read keeps its condition for this time.
const UNREAD_KEEPS: Duration = Duration::from_secs(3600);
/// Limit of a message, in characters.
pub(super) const MAX_MESSAGE: usize = 120;

/// Why a condition is True.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// While the condition is True, only a higher rank replaces reason and message.
    pub(super) rank: u32,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Problem {
    /// `more` is the number of further devices with the same problem.
    pub(super) fn new(rank: u32, reason: &'static str, message: &str, more: usize) -> Self {
        let message = match more {
            0 => cut(message, MAX_MESSAGE),
            more => format!("{}, and {more} more", cut(message, MAX_MESSAGE - 16)),
        };
        // Further devices rank below a worse reason.
        let more = u32::try_from(more.min(99)).unwrap_or_default();
        Self {
            rank: rank * 100 + more,
            reason,
            message,
        }
    }
}

/// `text` as one line of at most `limit` characters.
pub(super) fn cut(text: &str, limit: usize) -> String {
    let text = one_line(text);
    match text.char_indices().nth(limit) {
        None => text,
        Some(_) => text.chars().take(limit - 1).chain(['…']).collect(),
    }
}

/// What a rule says after one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The board has no source: no condition.
    NoSource,
    /// The source could not be read.
    Unread,
    /// It is too early to judge.
    Waiting,
    /// True.
    Problem(Problem),
    /// No problem, but too close to one to end it.
    Close,
    /// No sign of a problem.
    Quiet,
}

/// The state of one condition.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The condition is True or False, not absent.
    is_known: bool,
    problem: Option<Problem>,
    quiet_since: Option<Mono>,
    unread_since: Option<Mono>,
}

impl State {
    /// `None` if there is no condition, else its problem.
    pub(super) fn get(&self) -> Option<Option<&Problem>> {
        self.is_known.then_some(self.problem.as_ref())
    }

    pub(super) fn is_true(&self) -> bool {
        self.problem.is_some()
    }

    /// Takes over the condition that an earlier process wrote. A True stays until it has been quiet
    /// for the rule's time.
    pub(super) fn adopt(&mut self, problem: Option<Problem>) {
        if self.problem.is_none() {
            self.problem = problem;
        }
        self.is_known = true;
    }

    /// Takes a verdict. A True ends after `clear` without a sign of a problem.
    pub(super) fn step(&mut self, verdict: Verdict, clear: Duration, now: Mono) {
        let is_quiet = verdict == Verdict::Quiet;
        match verdict {
            Verdict::NoSource => *self = Self::default(),
            Verdict::Waiting => {}
            Verdict::Unread => {
                let since = *self.unread_since.get_or_insert(now);
                if now.since(since) >= UNREAD_KEEPS {
                    *self = Self {
                        unread_since: Some(since),
                        ..Self::default()
                    };
                }
                return;
            }
            Verdict::Problem(problem) => {
                self.is_known = true;
                let is_worse = |old: &Problem| problem.rank > old.rank;
                if self.problem.as_ref().is_none_or(is_worse) {
                    self.problem = Some(problem);
                }
            }
            Verdict::Close => self.is_known = true,
            Verdict::Quiet => {
                self.is_known = true;
                let since = *self.quiet_since.get_or_insert(now);
                if now.since(since) >= clear {
                    self.problem = None;
                }
            }
        }
        self.unread_since = None;
        if !is_quiet {
            self.quiet_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Mono {
        Mono::START.after(Duration::from_secs(seconds))
    }

    fn problem(rank: u32) -> Verdict {
        Verdict::Problem(Problem::new(rank, "R", "m", 0))
    }

    #[test]
    fn a_problem_ends_after_its_clear_time_and_not_one_second_earlier() {
        let mut state = State::default();
        assert_eq!(state.get(), None);
        state.step(problem(1), MINUTE, at(0));
        state.step(Verdict::Quiet, MINUTE, at(10));
        state.step(Verdict::Quiet, MINUTE, at(69));
        assert!(state.is_true());
        state.step(Verdict::Quiet, MINUTE, at(70));
        assert_eq!(state.get(), Some(None));
        // Close begins the time anew.
        state.step(problem(1), MINUTE, at(80));
        state.step(Verdict::Quiet, MINUTE, at(90));
        state.step(Verdict::Close, MINUTE, at(100));
        state.step(Verdict::Quiet, MINUTE, at(150));
        assert!(state.is_true());
        state.step(Verdict::Quiet, MINUTE, at(210));
        assert!(!state.is_true());
    }

    #[test]
    fn close_to_a_problem_is_none() {
        let mut state = State::default();
        state.step(Verdict::Waiting, MINUTE, at(0));
        assert_eq!(state.get(), None);
        state.step(Verdict::Close, MINUTE, at(1));
        assert_eq!(state.get(), Some(None));
    }

    #[test]
    fn only_a_worse_problem_replaces_the_text() {
        let mut state = State::default();
        for (rank, kept) in [(2, 200), (1, 200), (3, 300), (2, 300)] {
            state.step(problem(rank), MINUTE, at(0));
            assert_eq!(state.get().flatten().unwrap().rank, kept);
        }
        state.step(Verdict::Quiet, Duration::ZERO, at(1));
        state.step(problem(1), MINUTE, at(2));
        assert_eq!(state.get().flatten().unwrap().rank, 100);
    }

    #[test]
    fn an_unreadable_source_keeps_its_condition_for_an_hour() {
        for first in [problem(1), Verdict::Quiet] {
            let mut state = State::default();
            state.step(first.clone(), MINUTE, at(0));
            let was = state.is_true();
            state.step(Verdict::Unread, MINUTE, at(60));
            state.step(Verdict::Unread, MINUTE, at(3659));
            assert_eq!(state.get().map(|p| p.is_some()), Some(was));
            state.step(Verdict::Unread, MINUTE, at(3660));
            assert_eq!(state.get(), None);
            state.step(Verdict::Unread, MINUTE, at(3700));
            assert_eq!(state.get(), None);
            // One success in between begins the hour anew.
            state.step(first, MINUTE, at(3710));
            state.step(Verdict::Unread, MINUTE, at(3720));
            state.step(Verdict::Unread, MINUTE, at(7319));
            assert!(state.get().is_some());
        }
        let mut state = State::default();
        state.step(Verdict::Unread, MINUTE, at(0));
        assert_eq!(state.get(), None, "never readable is no condition");
        state.step(problem(1), MINUTE, at(1));
        state.step(Verdict::NoSource, MINUTE, at(2));
        assert_eq!(state.get(), None, "a source that vanishes is no condition");
    }

    #[test]
    fn an_adopted_problem_stays_for_the_clear_time_from_then_on() {
        let mut state = State::default();
        state.adopt(Some(Problem::new(0, "R", "old", 0)));
        state.step(Verdict::Waiting, MINUTE, at(0));
        state.step(Verdict::Quiet, MINUTE, at(5));
        state.step(Verdict::Quiet, MINUTE, at(64));
        assert!(state.is_true());
        state.step(problem(1), MINUTE, at(64));
        assert_eq!(state.get().flatten().unwrap().message, "m");
        // What this process knows wins.
        state.adopt(Some(Problem::new(0, "R", "old", 0)));
        assert_eq!(state.get().flatten().unwrap().message, "m");
        state.adopt(None);
        assert!(state.is_true());
    }

    #[test]
    fn a_message_has_at_most_120_characters_and_one_line() {
        let long = "ä\n".repeat(100);
        for more in [0, 1, 1000] {
            let problem = Problem::new(1, "R", &long, more);
            assert!(problem.message.chars().count() <= 120, "{problem:?}");
            assert!(!problem.message.contains('\n'));
        }
        assert_eq!(Problem::new(1, "R", "a", 2).message, "a, and 2 more");
        assert!(Problem::new(1, "R", "a", 1000).rank < Problem::new(2, "R", "a", 0).rank);
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
    }
}
