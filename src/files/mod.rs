//! Files: the bounded read, the atomic write, and the guard that both call first.
//!
//! A call on a network file system whose server is gone blocks for ever, and this process has one
//! thread. So every path is compared with the mount table before it is passed to the kernel.

pub mod guard;
pub mod mount_table;
pub mod mounts;
mod open;
#[cfg(test)]
pub(crate) mod power_cut;
pub mod read;
pub mod resolve_path;
pub(crate) mod stamp;
#[cfg(test)]
pub(crate) mod tree;
pub mod write;
pub mod yaml;
