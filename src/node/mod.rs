//! All decisions of the agent, as functions of plain values: no clock, file, socket or
//! environment.
//!
//! `kubelet` combines the parts. `schedule` decides what is due. `object`, `lease`, `pods`,
//! `events` and `server_version` each build their next request and take its response. All but
//! `lease` say when it is due: the times of the Lease are those of `schedule`.

use crate::kube::lease_report::LeaseReport;

pub mod conditions;
pub mod events;
pub mod eviction;
pub mod kubelet;
pub mod lease;
pub mod object;
pub mod patch;
pub mod pods;
pub mod schedule;
pub mod server_version;
pub mod status;
pub mod wall_clock;

/// What a response that was no failure means for its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More requests may follow; there is nothing to report yet.
    Continue,
    /// As [`Self::Continue`], with a line for the log.
    Note(String),
    /// The object was read.
    Read,
    /// The object was created.
    Created,
    /// An object that existed before this process is ours now.
    Adopted,
    /// The server has what it should have: the object was sent, or nothing is wrong with it.
    Done,
    /// The object was deleted on the server.
    Gone,
}

/// What the agent must do after a response. No effect waits for anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell systemd and the log that the Node is registered, for the first time since the start.
    Registered,
    /// Write these `spec.podCIDRs`, joined by commas, to the file for other programs; remove the
    /// file if the Node has none.
    PodCidrs(String),
    /// Write the state of the Lease after this attempt to `--state-file`.
    LeaseAttempted(LeaseReport),
    /// Open a new connection for the next request, to another address of the server's name if it
    /// has one.
    Disconnect,
    /// As [`Self::Disconnect`], but only if the server's name has another address.
    TryOtherAddress,
}
