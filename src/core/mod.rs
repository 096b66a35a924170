//! All decisions of the agent, as functions of plain values: no clock, file, socket or
//! environment.
//!
//! `kubelet` combines the parts. `schedule` decides what is due. `node`, `lease`, `pods`,
//! `events` and `certificate` each build their next request and take its response.

pub mod certificate;
pub mod conditions;
pub mod events;
pub mod eviction;
pub mod facts;
pub mod instant;
pub mod join;
pub mod kubelet;
pub mod lease;
pub mod node;
pub mod outage_log;
pub mod patch;
pub mod pods;
pub mod problems;
pub mod runtime;
pub mod schedule;
pub mod server_version;
pub mod status;
pub mod token_bucket;
pub mod wall_clock;
