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
mod reader;
mod source;
mod time;
mod voltage;
mod wear;

pub use self::source::{CheckTexts, ConditionKind};

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

#[cfg(test)]
mod tests;
