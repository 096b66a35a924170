//! The state of one condition: how a rule's results become True and False.

use std::time::Duration;

use crate::kube::instant::Mono;
use crate::kube::text::one_line;
use crate::kube::time::Wall;

/// A source that cannot be read keeps its condition for this time.
pub(super) const UNREAD_KEEPS: Duration = Duration::from_secs(3600);
/// Limit of a message, in characters.
pub(super) const MAX_MESSAGE: usize = 120;

/// The rank of a problem that an earlier process found: what this process finds replaces it.
pub(super) const ADOPTED: u32 = 0;

/// Why a condition is True.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// While the condition is True, a problem with a higher rank replaces reason and message at
    /// once. Any other problem with another message replaces them when this problem had no sign for
    /// its clear time.
    pub(super) rank: u32,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Since when the Node has it, if an earlier process found it.
    pub(super) since: Option<Wall>,
}

impl Problem {
    /// Whether an earlier process found it.
    pub(super) fn is_adopted(&self) -> bool {
        self.rank == ADOPTED
    }
}

impl RuleResult {
    /// True. `more` is the number of further devices with the same problem.
    pub(super) fn problem(rank: u32, reason: &'static str, message: &str, more: usize) -> Self {
        let message = match more {
            0 => cut(message, MAX_MESSAGE),
            more => format!("{}, and {more} more", cut(message, MAX_MESSAGE - 16)),
        };
        // 99 further devices of rank 1 make 199, which is below 200, the rank 2 of a worse reason.
        let more = u32::try_from(more.min(99)).unwrap_or_default();
        debug_assert!(message.chars().count() <= MAX_MESSAGE, "{message}");
        let rank = rank * 100 + more;
        debug_assert_ne!(rank, ADOPTED, "{message}");
        Self::Problem(Problem { rank, reason, message, since: None })
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
pub(super) enum RuleResult {
    /// The board has no source: the condition is deleted from the Node.
    NoSource,
    /// The source could not be read: the condition stays for an hour, and is then deleted.
    Unread,
    /// It is too early to judge: the condition stays as it is, and a new one is not listed. A rule
    /// that lacks only the baseline of a counter says `NoProblem`.
    Waiting,
    /// The condition is True.
    Problem(Problem),
    /// Too close to a problem to end it: a condition that is True stays True, any other one becomes
    /// False.
    NearProblem,
    /// No sign of a problem: the condition becomes False, but if it is True, only after its clear
    /// time.
    NoProblem,
}

/// What is known of a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    /// There was no result yet. A condition that the Node has stays, also after a restore of etcd.
    #[default]
    Nothing,
    /// There is no condition: the board has no source, or the source was unread for an hour.
    Absent,
    /// The condition is False.
    Fine,
    /// The condition is True.
    Problem(Problem),
}

impl Known {
    pub(super) fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Nothing | Self::Absent | Self::Fine => None,
        }
    }
}

/// The state of one condition.
#[derive(Debug, Default)]
pub(super) struct ConditionState {
    pub(super) known: Known,
    /// What was taken over last.
    adopted: Known,
    /// Since when there is no sign of the problem.
    no_problem_since: Option<Mono>,
    unread_since: Option<Mono>,
}

impl ConditionState {
    /// Takes over the condition that an earlier process wrote, also if an older copy of it was
    /// taken over before. A problem that this process has found is kept. A condition that is True
    /// stays True until its problem had no sign for its clear time. The same condition is taken
    /// over once: what the rule has found since would be lost.
    pub(super) fn adopt(&mut self, known: Known) {
        if self.adopted == known {
            return;
        }
        self.adopted = known.clone();
        if self.known.problem().is_none_or(Problem::is_adopted) {
            self.known = known;
        }
    }

    /// Takes a result. A True ends after the time that `clear` has for its reason, without a sign
    /// of a problem.
    pub(super) fn step(&mut self, result: RuleResult, clear: impl Fn(&str) -> Duration, now: Mono) {
        match result {
            RuleResult::NoSource => (self.known, self.no_problem_since) = (Known::Absent, None),
            RuleResult::Waiting => self.no_problem_since = None,
            RuleResult::Unread => {
                let since = *self.unread_since.get_or_insert(now);
                if now.since(since) >= UNREAD_KEEPS {
                    self.no_problem_since = None;
                    self.known = Known::Absent;
                }
                return;
            }
            RuleResult::Problem(new) => {
                let old = self.known.problem();
                let is_worse = old.is_none_or(|old| new.rank > old.rank);
                let is_same = old.is_some_and(|old| new.message == old.message);
                if is_worse || is_same {
                    self.no_problem_since = None;
                }
                if is_worse || (!is_same && self.has_ended(clear, now)) {
                    (self.known, self.no_problem_since) = (Known::Problem(new), None);
                }
            }
            RuleResult::NearProblem => {
                self.no_problem_since = None;
                if self.known.problem().is_none() {
                    self.known = Known::Fine;
                }
            }
            RuleResult::NoProblem => {
                if self.has_ended(clear, now) {
                    self.known = Known::Fine;
                }
            }
        }
        self.unread_since = None;
    }

    /// Called when there is no sign of the known problem now: whether that has been so for its
    /// clear time.
    fn has_ended(&mut self, clear: impl Fn(&str) -> Duration, now: Mono) -> bool {
        let since = *self.no_problem_since.get_or_insert(now);
        self.known.problem().is_none_or(|problem| now.since(since) >= clear(problem.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::RuleResult::{NearProblem, NoProblem, NoSource, Unread, Waiting};
    use super::*;

    /// Takes each result at its second, with a clear time of a minute; after it the condition has
    /// this message, or is `False`, or there is `none`.
    fn steps(state: &mut ConditionState, rows: &[(RuleResult, u64, &str)]) {
        for (result, second, want) in rows {
            let now = Mono::START.after(Duration::from_secs(*second));
            state.step(result.clone(), |_| Duration::from_secs(60), now);
            let message = match &state.known {
                Known::Nothing | Known::Absent => "none",
                Known::Fine => "False",
                Known::Problem(problem) => &problem.message,
            };
            assert_eq!(message, *want, "{result:?} at {second}");
        }
    }

    fn problem(rank: u32, message: &str) -> RuleResult {
        RuleResult::problem(rank, "R", message, 0)
    }

    #[test]
    fn a_problem_ends_after_its_clear_time_and_not_one_second_earlier() {
        let rows = [
            (Waiting, 0, "none"),
            (NearProblem, 0, "False"),
            (problem(1, "m"), 0, "m"),
            (NoProblem, 10, "m"),
            (NoProblem, 69, "m"),
            (NoProblem, 70, "False"),
            // Close begins the time anew.
            (problem(1, "m"), 80, "m"),
            (NoProblem, 90, "m"),
            (NearProblem, 100, "m"),
            (NoProblem, 150, "m"),
            (NoProblem, 210, "False"),
        ];
        steps(&mut ConditionState::default(), &rows);
    }

    /// Two devices have the problem, then the first one is well again.
    #[test]
    fn a_worse_problem_replaces_the_text_and_another_one_that_of_an_ended_one() {
        let rows = [
            (problem(2, "second"), 0, "second"),
            (problem(1, "first"), 0, "second"),
            (problem(3, "third"), 0, "third"),
            (problem(2, "second"), 0, "third"),
        ];
        steps(&mut ConditionState::default(), &rows);
        let both = || RuleResult::problem(1, "R", "sda", 1);
        let second = || problem(1, "sdb");
        let rows = [
            (both(), 0, "sda, and 1 more"),
            (second(), 10, "sda, and 1 more"),
            (second(), 50, "sda, and 1 more"),
            (both(), 60, "sda, and 1 more"),
            (second(), 70, "sda, and 1 more"),
            (second(), 129, "sda, and 1 more"),
            (second(), 130, "sdb"),
            (both(), 131, "sda, and 1 more"),
        ];
        steps(&mut ConditionState::default(), &rows);
    }

    #[test]
    fn an_unreadable_source_keeps_its_condition_for_an_hour() {
        for (first, state) in [(problem(1, "m"), "m"), (NoProblem, "False")] {
            let rows = [
                (Unread, 0, "none"),
                (first.clone(), 1, state),
                (Unread, 60, state),
                (Unread, 3659, state),
                (Unread, 3660, "none"),
                (Unread, 3700, "none"),
                // One success in between begins the hour anew.
                (first, 3710, state),
                (Unread, 3720, state),
                (Unread, 7319, state),
                (NoSource, 7319, "none"),
            ];
            steps(&mut ConditionState::default(), &rows);
        }
    }

    #[test]
    fn an_adopted_problem_stays_for_the_clear_time_from_then_on() {
        let mut state = ConditionState::default();
        let message = "old".to_owned();
        let old = Problem { rank: 0, reason: "R", message, since: None };
        let old = || Known::Problem(old.clone());
        state.adopt(old());
        let rows = [
            (Waiting, 0, "old"),
            (NoProblem, 5, "old"),
            (NoProblem, 64, "old"),
            (problem(1, "m"), 64, "m"),
        ];
        steps(&mut state, &rows);
        // What this process knows wins.
        state.adopt(old());
        state.adopt(Known::Fine);
        steps(&mut state, &[(Waiting, 65, "m")]);
    }

    /// Until the first write succeeds, the condition is taken over with each status.
    #[test]
    fn a_condition_that_ended_is_not_taken_over_again() {
        let old = |message: &str| {
            let message = message.to_owned();
            Known::Problem(Problem { rank: ADOPTED, reason: "R", message, since: None })
        };
        for (result, after, want) in [(NoProblem, NoProblem, "False"), (Waiting, NoSource, "none")]
        {
            let mut state = ConditionState::default();
            state.adopt(old("old"));
            steps(&mut state, &[(result, 0, "old"), (after, 60, want)]);
            state.adopt(old("old"));
            steps(&mut state, &[(Waiting, 61, want)]);
            // The server answered with an older Node first.
            state.adopt(old("newer"));
            steps(&mut state, &[(Waiting, 62, "newer")]);
        }
    }

    #[test]
    fn a_message_has_at_most_120_characters_and_one_line() {
        let problem =
            |rank, message: &str, more| match RuleResult::problem(rank, "R", message, more) {
                RuleResult::Problem(problem) => problem,
                other => panic!("{other:?}"),
            };
        let long = "ä\n".repeat(100);
        for more in [0, 1, 1000] {
            let problem = problem(1, &long, more);
            assert!(problem.message.chars().count() <= 120, "{problem:?}");
            assert!(!problem.message.contains('\n'));
        }
        assert_eq!(problem(1, "a", 2).message, "a, and 2 more");
        assert!(problem(1, "a", 1000).rank < problem(2, "a", 0).rank);
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
    }
}
