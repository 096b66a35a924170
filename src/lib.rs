//! The node half of a Kubernetes kubelet.
//!
//! `src/README.md` describes the modules and the data flow between them. `tests/architecture.rs`
//! checks the direction of their imports.

pub mod agent;
pub mod check;
pub mod cli;
pub mod client;
pub mod config;
pub mod credentials;
pub mod health;
pub mod host;
pub mod join;
pub mod kube;
pub mod node;
pub mod os;
pub mod runtime;
pub mod serve;
#[cfg(test)]
#[path = "../tests/sim/mod.rs"]
pub(crate) mod sim;
