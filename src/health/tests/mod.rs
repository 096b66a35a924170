//! Tables for the edges of each rule, and the life of a condition on the Node.

mod conditions;
mod rules;

use super::*;
use crate::core::events::Event;
use crate::core::facts::Unread;
use crate::core::health::HealthCondition;
use crate::core::instant::Mono;
use serde_json::json;

const BUILT: u64 = 1_735_689_600;
/// The time at which each test begins.
const WALL: u64 = 1_783_000_000;

fn at(seconds: u64) -> Now {
    let since = Duration::from_secs(seconds);
    Now {
        mono: Mono::START.after(since),
        wall: Wall::from_epoch(Duration::from_secs(WALL)).after(since),
    }
}

fn health(detection: &str) -> Health {
    let config = HealthConfig::parse(detection, &[]).unwrap();
    Health::new(&config, Wall::from_epoch(Duration::from_secs(BUILT)))
}

fn unread<T>() -> Source<T> {
    Some(Err(Unread::new("sys/x", "resource temporarily unavailable")))
}

/// Reasons of what happened.
fn reasons(events: Vec<Event>) -> Vec<&'static str> {
    events.into_iter().map(|event| event.reason).collect()
}

/// A board whose rules are asked directly.
struct Board {
    health: Health,
    seconds: u64,
}

impl Board {
    fn new() -> Self {
        Self { health: health("all"), seconds: 0 }
    }

    /// One look, `seconds` after the last one.
    fn look(&mut self, seconds: u64, reading: &HealthReading) {
        self.seconds += seconds;
        self.health.on_reading(reading, at(self.seconds));
    }

    fn find(&self, kind: &str) -> Option<HealthCondition> {
        self.health.conditions().known.into_iter().find(|found| found.name == kind)
    }

    /// The reason if the condition is True, `False`, or `none` if there is no condition.
    fn state(&self, kind: &str) -> &'static str {
        match self.find(kind) {
            None => "none",
            Some(found) if found.is_true => found.event_reason,
            Some(_) => "False",
        }
    }

    /// The condition ends after `seconds` with `reading`, and not one second earlier.
    fn ends(&mut self, kind: &str, seconds: u64, reading: &HealthReading) {
        let reason = self.state(kind);
        self.look(seconds - 1, reading);
        assert_eq!(self.state(kind), reason);
        self.look(1, reading);
        assert_eq!(self.state(kind), "False");
    }

    fn message(&self, kind: &str) -> String {
        let found = self.find(kind).filter(|found| found.is_true);
        found.map_or(String::new(), |found| found.message.into())
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
