//! The binary as a process, against the API double or a real control plane.
//!
//! These tests wait more than they compute: `.cargo/config.toml` gives the harness more threads
//! than the machine has cores.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod check;
mod clocks;
mod command_line;
mod credentials;
mod dead_mount;
mod failover;
mod faults;
mod health;
mod identity;
mod join;
mod logs;
mod main_job;
mod memory;
mod monitoring;
mod narrow;
mod neighbours;
mod network;
mod policies;
mod rbac;
mod real_runtimes;
mod runtime;
mod scenarios;
mod serve;
mod shutdown;
mod slow_files;
mod stderr;
