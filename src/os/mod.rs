//! The operating system: the clock, the wait, the log, sd_notify and the end of a command; bounded
//! reads, atomic writes, and the guard that both call first.
//!
//! A call on a network file system whose server is gone blocks for ever, and this process has one
//! thread. So every path is compared with the mount table before it is passed to the kernel.

pub mod clock;
pub mod command;
pub mod guard;
pub mod hosts;
pub mod logging;
pub mod mounts;
pub mod notify;
pub mod read;
pub(crate) mod reread_file;
pub mod root;
pub(crate) mod scan;
pub mod unix_socket;
pub mod wakeup;
pub mod write;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::{power_cut, recorder, tree};
