//! The board's health: conditions and events of kernel files, in the manner of
//! node-problem-detector.
//!
//! A condition type is True while there is a problem. A source that the board does not have gives
//! no condition. The conditions never touch `Ready`, taints or the pressures. `node::conditions`
//! puts them on the Node.
//!
//! A file of this folder has all that belongs to one condition: its row of [`KINDS`], its files,
//! what a look finds in them, and its rule, which judges the finding and the time. `monitor/mod.rs`
//! calls them.

mod boots;
mod condition_file;
mod condition_state;
pub mod config;
mod corruption;
mod events;
mod filesystems;
mod heat;
mod kernel;
pub mod monitor;
mod mounted;
mod reader;
mod time;
mod voltage;
mod wear;

use std::fmt;
use std::os::fd::OwnedFd;
use std::time::Duration;

use serde_json::Value;

use self::condition_state::{ADOPTED, Known, Problem, RuleResult};
use self::reader::HealthReader;
use crate::kube::facts::{Presence, Sign};
use crate::kube::instant::Now;
use crate::kube::object;
use crate::kube::time::Wall;

/// All types, in the order of `nodelet check`; new ones last. `corruption` follows `filesystems`,
/// because it uses what `filesystems` found in the same look. Messages hold no number that moves,
/// because each change of a message is a patch.
pub static KINDS: &[ConditionKind] = &[
    filesystems::KIND,
    corruption::KIND,
    wear::KIND,
    voltage::KIND,
    heat::KIND,
    kernel::KIND,
    time::NTP,
    time::REBOOTS,
];

/// A condition type.
#[derive(Debug)]
pub struct ConditionKind {
    /// The condition type.
    pub name: &'static str,
    /// Reason and message while it is False. The reason names the good state: `ClockAgrees`.
    fine: (&'static str, &'static str),
    /// The reasons while it is True, each with the seconds for which the condition stays True after
    /// the last sign of its problem. A reason differs from the reason of `fine` and stays the same
    /// in all releases, because a later process recognizes its own condition by the reason.
    problems: &'static [(&'static str, u64)],
    /// Makes the source, whose rule is asked at each look. `None` for the conditions of `time.rs`,
    /// whose rules are also asked at each response of the API server.
    source: Option<fn() -> Box<dyn Source>>,
    /// The lines of `nodelet check`.
    pub check: CheckTexts,
}

/// What `nodelet check` says of a condition type.
#[derive(Clone, Copy, Debug)]
pub struct CheckTexts {
    /// The name of the check.
    pub name: &'static str,
    /// Why a board has no source.
    pub absent: &'static str,
    /// What to do about a problem.
    pub remedy: &'static str,
}

/// The source of a condition, and its rule: the files (`RereadFile`), what the last look found
/// (`Presence`), and what the rule remembers. It reads only files of /proc, /sys and /run, which
/// cannot wait for a bus, a device or a network; it reads a file of /etc more than once only if
/// `HealthReader::root_can_block` is false.
trait Source: fmt::Debug {
    /// Finds the files of this source: at the first look, every hour, and after the kernel reported
    /// a device. If a file exists and cannot be read (`HealthReader::unread`), the next look
    /// discovers again. Until a discovery has read all files, a missing source counts as unread.
    fn discover(&mut self, _: &mut HealthReader) {}

    /// Reads the files and keeps what was found: once a minute, and every 10 s while any source is
    /// suspect. So a rule about minutes must compare times and not count looks.
    fn look(&mut self, _: &mut HealthReader) {}

    /// Whether a read may wait for a bus. Such a source is read after all other sources.
    fn is_slow(&self) -> bool {
        false
    }

    /// The rule: judges what the last look found, without a file or a clock. `nodelet inspect` and
    /// the tests of trees call it 12 times, 10 s apart, without a look between the calls
    /// (`Health::let_it_last`). So a problem that does not go away must become True within 12
    /// calls, which are two minutes. A rule that wants a counter to grow three times must keep the
    /// growth since the last look as the finding (as `Voltage::dips`), because each of the 12 calls
    /// then counts this growth again; the counter itself would not grow.
    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult;

    /// Whether the next looks may find a problem. Then they come every 10 s, not once a minute.
    fn is_suspect(&self) -> bool {
        false
    }

    /// The files that the last look used, for `nodelet check`.
    fn paths(&self) -> Vec<String>;

    /// The descriptor by which the kernel reports a change.
    fn report(&self) -> Option<OwnedFd> {
        None
    }

    /// The kernel reported a change.
    fn on_report(&mut self, _: &mut HealthReader) {}
}

/// The input of a rule.
#[derive(Debug)]
struct RuleInput<'a> {
    /// `wall` is the board's clock.
    now: Now,
    /// The board's clock is known to be wrong.
    clock_is_wrong: bool,
    /// Why the condition is True so far, also if an earlier process wrote it; `None` if it is not
    /// True.
    problem: Option<&'a Problem>,
    /// Whether `problem` is of this boot. Absent: the kernel tells no id of the boot, or the times
    /// do not show it, because the clock is wrong or was set.
    is_of_this_boot: Presence<bool>,
    /// Takes warnings, which become events and change no condition.
    signs: &'a mut Vec<Sign>,
}

/// What a look found, or the result of the rule if the look found no value.
fn value_or_result<T>(found: &Presence<T>) -> Result<&T, RuleResult> {
    match found {
        Presence::Absent => Err(RuleResult::NoSource),
        Presence::Unread(_) => Err(RuleResult::Unread),
        Presence::Found(value) => Ok(value),
    }
}

/// Whether a counter grew since the last look. False if one of the two values is not known, and if
/// the counter fell, because it was reset.
fn grew(now: Option<u64>, before: Option<u64>) -> bool {
    now.zip(before).is_some_and(|(now, before)| now > before)
}

impl ConditionKind {
    /// How long the condition stays True for `reason` after its last sign.
    fn clear(&self, reason: &str) -> Duration {
        let found = self.problems.iter().find(|(ours, _)| *ours == reason);
        Duration::from_secs(found.map_or(0, |(_, seconds)| *seconds))
    }

    /// The state in a condition that an earlier process of this program wrote; `None` if the reason
    /// is not one of this program's. The message is not compared: another release may have another
    /// one.
    fn recognize(&self, condition: &Value) -> Option<Known> {
        let text = |key: &str| object::text(condition, &[key]);
        match text("status") {
            "False" => (text("reason") == self.fine.0).then_some(Known::Fine),
            "True" => {
                let (reason, _) = self.problems.iter().find(|(ours, _)| *ours == text("reason"))?;
                let message = text("message").to_owned();
                let since = Wall::parse(text("lastTransitionTime"));
                Some(Known::Problem(Problem { rank: ADOPTED, reason, message, since }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
