//! The classes of faults, and of what others do. A class is a row; its files are by subject.
//!
//! A class that only changes what the world answers has no function: `world`, `net` and `serve` ask
//! `Faults` for its name. To add one: a row here, and the question where it matters.

pub(crate) mod board;
mod objects;
mod people;
mod process;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::Duration;

use super::draw::Draws;
use super::plan::{Step, When};
use super::world::World;

/// How long a step of a class lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Lasts {
    /// It happens, and is over.
    Moment,
    /// A part of the story.
    While,
    /// As long as the story.
    Story,
}

/// A class.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) lasts: Lasts,
    /// Values of `size`, one of which is drawn: two numbers are a range, more are a list.
    pub(crate) sizes: &'static [u64],
    /// Values of `target`: from 0 to this number.
    pub(crate) targets: u64,
    /// Whether it means something in this setting.
    pub(crate) fits: fn(&BTreeMap<String, String>) -> bool,
    pub(crate) begin: fn(&mut World, &Step),
    pub(crate) end: fn(&mut World, &Step),
}

impl std::fmt::Debug for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A class that others ask for by its name.
const ASKED: Class = Class {
    name: "",
    lasts: Lasts::While,
    sizes: &[],
    targets: 0,
    fits: |_| true,
    begin: |_, _| {},
    end: |_, _| {},
};

/// A class that happens in a moment.
const MOMENT: Class = Class { lasts: Lasts::Moment, ..ASKED };

const ALL: &[&[Class]] = &[
    server::CLASSES,
    process::CLASSES,
    board::CLASSES,
    board::HARDWARE,
    board::BOOTS,
    objects::CLASSES,
    people::CLASSES,
];

/// Each class.
pub(crate) fn all() -> impl Iterator<Item = &'static Class> {
    ALL.iter().copied().flatten()
}

/// The class of restarts in quiet time, which no story draws.
pub(crate) fn twin() -> &'static Class {
    all().find(|class| class.name == "twin").expect("it is a row")
}

/// Whether there is a class of this name.
pub(crate) fn is_known(name: &str) -> bool {
    static NAMES: OnceLock<BTreeSet<&str>> = OnceLock::new();
    NAMES.get_or_init(|| all().map(|class| class.name).collect()).contains(name)
}

impl Class {
    /// A step of this class, between `from` and `until`.
    pub(crate) fn draw(&'static self, draws: &mut Draws, from: Duration, until: Duration) -> Step {
        let millis = |time: Duration| u64::try_from(time.as_millis()).expect("a time of a run");
        let whole = millis(until - from).max(1);
        let start = match self.lasts {
            Lasts::Story => 0,
            _ => draws.below(whole),
        };
        let lasts = match self.lasts {
            Lasts::Moment => 0,
            Lasts::Story => whole,
            Lasts::While => 1 + draws.below(whole - start),
        };
        let at = from + Duration::from_millis(start);
        let when = match draws.one_in(3) {
            true => When::Hook(at, draws.within(1, 400)),
            false => When::At(at),
        };
        let size = match *self.sizes {
            [] => 0,
            [low, high] => draws.within(low, high),
            ref list => draws.one_of(list),
        };
        let target = draws.below(self.targets + 1);
        Step { when, lasts: Duration::from_millis(lasts), class: self, size, target }
    }
}
