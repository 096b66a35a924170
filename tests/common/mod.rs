//! What the test binaries and the benchmarks share.
#![allow(dead_code, unreachable_pub)] // each binary uses a part of it

pub mod api;
pub mod board;
pub mod budget;
pub mod cluster;
pub mod command;
pub mod front;
pub mod lease;
pub mod namespace;
pub mod opened;
pub mod prometheus;
pub mod proxy;
pub mod ptrace;
pub mod raspberry;
pub mod runtime;
pub mod served_root;
pub mod shell;
pub mod tree;
