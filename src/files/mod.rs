//! Files: the one bounded read, the one atomic write, and the guard that both ask first.
//!
//! A call on a network file system whose server is gone blocks for ever, and this process has one
//! thread. So every path is compared with the mount table before the kernel touches it.

pub mod guard;
pub mod mounts;
pub mod read;
pub mod resolve_path;
#[cfg(test)]
pub(crate) mod tree;
pub mod write;
pub mod yaml;
