//! The board's health: conditions and events of kernel files, in the manner of
//! node-problem-detector.
//!
//! A condition type is True while there is a problem. A source that the board does not have gives
//! no condition. The conditions never touch `Ready`, taints or the pressures. `node::conditions`
//! puts them on the Node.
//!
//! A file of this folder has all that belongs to one condition: its row of [`KINDS`], its files,
//! what a look finds in them, and its rule, which is a function of that and of the time.
//! `monitor/mod.rs` calls them.

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

/// All types, in the order of `nodelet check`; new ones last. `corruption` takes what `filesystems`
/// found. Messages hold no number that moves, because each change of a message is a patch.
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
    /// The reasons while it is True, and how many seconds it then lasts after its last sign. They
    /// differ from the reasons of `fine`, and none changes: both say that an earlier process wrote
    /// the condition.
    problems: &'static [(&'static str, u64)],
    /// Its source, which is asked at each look; `None`: `time.rs`, which is also asked at each
    /// response of the API server.
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
/// cannot wait for a bus, a device or a network; of /etc more than once only if
/// `HealthReader::root_can_block` is false.
trait Source: fmt::Debug {
    /// Finds its files: at the first look, every hour, and after the kernel told of a device. One
    /// whose read failed makes the next look find them again (`HealthReader::unread`), and until
    /// then no condition is deleted.
    fn discover(&mut self, _: &mut HealthReader) {}

    /// Reads them and keeps what was found. That is once a minute, and every 10 s while any source
    /// is suspect. So a rule of minutes compares times; it does not count looks.
    fn look(&mut self, _: &mut HealthReader) {}

    /// A read may wait for a bus, so that all other sources are read before.
    fn is_slow(&self) -> bool {
        false
    }

    /// The rule: judges what the last look found, without a file or a clock. `nodelet inspect` and
    /// the tests of trees ask it 12 times, 10 s apart, without a look between
    /// (`Health::let_it_last`). So a problem that lasts is one within two minutes, and a rule that
    /// needs several growths has the growth itself as what a look finds.
    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult;

    /// The next looks may find a problem, so that they should come every 10 s, not once a minute.
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

/// What a rule is asked with.
#[derive(Debug)]
struct RuleInput<'a> {
    /// `wall` is the board's clock.
    now: Now,
    /// That clock is known to be wrong.
    clock_is_wrong: bool,
    /// Why the condition is True so far: also that of an earlier process.
    problem: Option<&'a Problem>,
    /// Number of the last discovery.
    discovery: u64,
    /// Takes warnings that are no condition.
    signs: &'a mut Vec<Sign>,
}

/// What a look found, or what a rule says without it.
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

    /// What a condition says that an earlier process of this program wrote; `None` if its reason is
    /// none of ours. The message is not compared: another release may have another one.
    /// `is_of_this_boot` is of the process.
    fn recognize(&self, condition: &Value, is_of_this_boot: Option<bool>) -> Option<Known> {
        let text = |key: &str| object::text(condition, &[key]);
        match text("status") {
            "False" => (text("reason") == self.fine.0).then_some(Known::Fine),
            "True" => {
                let (reason, _) = self.problems.iter().find(|(ours, _)| *ours == text("reason"))?;
                let message = text("message").to_owned();
                Some(Known::Problem(Problem { rank: ADOPTED, reason, message, is_of_this_boot }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
