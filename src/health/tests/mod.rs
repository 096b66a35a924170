//! What the tests share; the life of a condition on the Node.

mod conditions;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use serde_json::Value;

use super::condition_state::{ConditionState, Known, Problem};
use super::config::HealthConfig;
use super::monitor::Health;
use super::{ConditionKind, KINDS, RuleInput, Source};
use crate::kube::facts::{Presence, Sign, Unread};
use crate::kube::instant::{Mono, Now};
use crate::kube::time::Wall;
use crate::node::events::Event;
use crate::os::root::HostRoot;
use crate::os::tree::Tree;

const BUILT: u64 = 1_735_689_600;
/// The time at which each test begins.
pub(super) const WALL: u64 = 1_783_000_000;

pub(super) fn at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        mono: Mono::START.after(since),
        wall: Wall::from_epoch(Duration::from_secs(WALL)).after(since),
    }
}

/// The time since the start, and how much passes after each question for it.
#[derive(Clone, Default)]
pub(super) struct FakeClock(pub(super) Rc<Cell<(Duration, Duration)>>);

impl FakeClock {
    pub(super) fn show(&self, seconds: u64) {
        self.0.set((Duration::from_secs(seconds), Duration::ZERO));
    }

    pub(super) fn now(&self) -> Now {
        let (now, step) = self.0.get();
        self.0.set((now + step, step));
        let start = at(0);
        Now { mono: start.mono.after(now), wall: start.wall.after(now) }
    }
}

/// The health of the board whose files are in `tree`.
pub(super) fn health(tree: &Tree, detection: &str, files: &[String], clock: &FakeClock) -> Health {
    let (root, root_dir) = (HostRoot::new(tree.path()), Path::new("/var/lib/nodelet"));
    let config = HealthConfig::parse(detection, files).unwrap();
    let (built, clock) = (Wall::from_epoch(Duration::from_secs(BUILT)), clock.clone());
    Health::new(&root, root_dir, &config, built, move || clock.now())
}

pub(super) fn unread<T>() -> Presence<T> {
    Presence::Unread(Unread::new("sys/x", "resource temporarily unavailable"))
}

/// Reasons of what happened.
fn reasons(events: Vec<Event>) -> Vec<&'static str> {
    events.into_iter().map(|event| event.reason).collect()
}

/// A condition whose rule is asked directly: `F` is what a look finds.
pub(super) struct Board<S, F> {
    kind: &'static ConditionKind,
    source: S,
    set: fn(&mut S, &F),
    state: ConditionState,
    signs: Vec<Sign>,
    seconds: u64,
    pub(super) clock_is_wrong: bool,
    is_of_this_boot: Presence<bool>,
}

impl<S: Source + Default, F> Board<S, F> {
    pub(super) fn new(kind: &'static ConditionKind, set: fn(&mut S, &F)) -> Self {
        Self {
            kind,
            source: S::default(),
            set,
            state: ConditionState::default(),
            signs: Vec::new(),
            seconds: 0,
            clock_is_wrong: false,
            is_of_this_boot: Presence::Absent,
        }
    }

    /// One look, `seconds` after the last one, and the state after it.
    pub(super) fn look(&mut self, seconds: u64, found: &F) -> &'static str {
        self.seconds += seconds;
        (self.set)(&mut self.source, found);
        let now = at(self.seconds);
        let problem = self.state.known.problem();
        let is_adopted = problem.is_none_or(Problem::is_adopted);
        let result = self.source.judge(&mut RuleInput {
            now,
            clock_is_wrong: self.clock_is_wrong,
            problem,
            is_of_this_boot: match is_adopted {
                true => self.is_of_this_boot.clone(),
                false => Presence::Found(true),
            },
            signs: &mut self.signs,
        });
        self.state.step(result, |reason| self.kind.clear(reason), now.mono);
        self.state()
    }

    /// Looks of the same finding, each `seconds` after the last one, and the state after them.
    pub(super) fn looks(&mut self, count: usize, seconds: u64, found: &F) -> &'static str {
        for _ in 0..count {
            self.look(seconds, found);
        }
        self.state()
    }

    /// Takes over the condition of an earlier process.
    pub(super) fn adopt(&mut self, condition: &Value) {
        self.state.adopt(self.kind.recognize(condition).unwrap());
    }

    /// The same, and whether that was in this boot.
    pub(super) fn adopt_of(&mut self, condition: &Value, is_of_this_boot: Presence<bool>) {
        self.is_of_this_boot = is_of_this_boot;
        self.adopt(condition);
    }

    /// The reason if the condition is True, `False`, or `none` if there is no condition.
    pub(super) fn state(&self) -> &'static str {
        match &self.state.known {
            Known::Nothing | Known::Absent => "none",
            Known::Fine => "False",
            Known::Problem(problem) => problem.reason,
        }
    }

    /// The condition ends after `seconds` with `found`, and not one second earlier.
    pub(super) fn ends(&mut self, seconds: u64, found: &F) {
        let reason = self.state();
        assert_eq!(self.look(seconds - 1, found), reason);
        assert_eq!(self.look(1, found), "False");
    }

    pub(super) fn message(&self) -> String {
        self.state.known.problem().map_or(String::new(), |problem| problem.message.clone())
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.source.is_suspect() && self.state.known.problem().is_none()
    }

    /// The reasons of the warnings since the last call.
    pub(super) fn take_signs(&mut self) -> Vec<&'static str> {
        self.signs.drain(..).map(|(reason, _)| reason).collect()
    }
}

/// After a restart, type and reason say that a condition is ours.
#[test]
fn each_kind_has_its_own_reasons() {
    let mut all: Vec<&str> = KINDS.iter().map(|kind| kind.fine.0).collect();
    all.extend(KINDS.iter().flat_map(|kind| kind.problems).map(|(reason, _)| *reason));
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "{all:?}");
}
