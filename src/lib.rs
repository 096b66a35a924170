//! The node half of a Kubernetes kubelet.
//!
//! A pure core decides, a loop of one page waits, and each turn sends at most
//! one bounded request. The data path, left to right:
//!
//! ```text
//! /proc /sys cgroup -host-> Facts -status-> desired Node -patch-> merge patch -kube::api-> API server
//! ```

pub mod agent;
pub mod args;
pub mod certificate;
pub mod check;
pub mod cli;
pub mod clock;
pub mod conditions;
pub mod config;
pub mod describe;
pub mod dns;
pub mod edge;
pub mod events;
pub mod eviction;
pub mod facts;
pub mod host;
pub mod identity;
pub mod journal;
pub mod kube;
pub mod kubelet;
pub mod lease;
pub mod machine;
pub mod node;
pub mod notify;
pub mod now;
pub mod patch;
pub mod schedule;
pub mod status;
pub mod timekeeper;
pub mod wakeup;
