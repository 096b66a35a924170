//! The operating system: the clock, the wait, the log, sd_notify and the end of a command; bounded
//! reads, atomic writes, and the guard that checks their paths.
//!
//! A call on a network file system whose server is gone blocks for ever, and this process has one
//! thread. So a path is compared with the mount table before it is passed to the kernel. Exceptions
//! are `root`, which reads the files of the kernel and of the system, and a file that a person
//! names to a command.

use std::collections::hash_map::RandomState;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _};

use nix::unistd::gethostname;

#[cfg(test)]
use crate::sim::hook as sim;

pub mod clock;
pub mod command;
mod folders;
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
pub mod walk;
pub mod write;

/// A number that cannot be guessed: std seeds its hash maps from the kernel's random numbers.
pub(crate) fn random() -> u64 {
    #[cfg(test)]
    if let Some(random) = sim::random() {
        return random;
    }
    RandomState::new().build_hasher().finish()
}

/// The host name of this machine, by gethostname(2); empty if there is none.
pub(crate) fn host_name() -> OsString {
    #[cfg(test)]
    if let Some(name) = sim::host_name() {
        return name;
    }
    gethostname().unwrap_or_default()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::{power_cut, tree};
