//! The node half of a Kubernetes kubelet.
//!
//! `src/README.md` describes the rooms and the journeys of data through them. Imports point
//! downwards in this list; `tests/architecture.rs` checks that.

pub mod agent;
pub mod check;
pub mod cli;
pub mod config;
pub mod core;
pub mod files;
pub mod host;
pub mod identity;
pub mod kube;
pub mod process;
pub mod wire;
