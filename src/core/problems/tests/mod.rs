//! Tables for the edges of each rule, and the life of a condition on the Node.

mod conditions;
mod rules;

use super::look::*;
use super::*;
use crate::config::problems::Problems as Config;
use crate::core::facts::Unread;
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

fn problems(detection: &str) -> Problems {
    let config = Config::parse(detection, &[]).unwrap();
    Problems::new(&config, Wall::from_epoch(Duration::from_secs(BUILT)))
}

fn unread<T>() -> Source<T> {
    Some(Err(Unread::new(
        "sys/x",
        "resource temporarily unavailable",
    )))
}

/// Reasons of what happened.
fn reasons(events: Vec<Event>) -> Vec<&'static str> {
    events.into_iter().map(|event| event.reason).collect()
}

/// A board whose rules are asked directly.
struct Board {
    problems: Problems,
    seconds: u64,
}

impl Board {
    fn new() -> Self {
        Self {
            problems: problems("all"),
            seconds: 0,
        }
    }

    /// One look, `seconds` after the last one.
    fn look(&mut self, seconds: u64, look: &Look) {
        self.seconds += seconds;
        self.problems.on_look(look, at(self.seconds));
    }

    /// The reason if the condition is True, `False`, or `none` if there is no condition.
    fn state(&self, kind: Kind) -> &'static str {
        match self.problems.rules.get(kind) {
            None => "none",
            Some(None) => "False",
            Some(Some(problem)) => problem.reason,
        }
    }

    fn message(&self, kind: Kind) -> String {
        let problem = self.problems.rules.get(kind).flatten();
        problem
            .map(|problem| problem.message.clone())
            .unwrap_or_default()
    }
}
