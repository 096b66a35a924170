//! What a turn of the loop is for, and what comes of it.

use std::time::Duration;

use crate::core::certificate::Task;
use crate::core::instant::Mono;
use crate::kube::time::Wall;

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The Lease.
    Lease,
    /// The Node.
    Node,
    /// The oldest event.
    Event,
    /// A request for a certificate.
    Certificate,
    /// The time, where the board's clock cannot be right.
    Time,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Send the next request for this, bounded as a whole by that.
    Send(Work, Duration),
    /// Have `identity` do this, by that time.
    Identity(Task, Wall),
    /// Nothing before this.
    Wait(Mono),
}

/// What an answer asks of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Tell the supervisor: the Node is on the server for the first time.
    Registered,
    /// Open a new connection: a gateway may hold us to a server that is gone.
    Disconnect,
    /// Keep these `spec.podCIDRs`, joined by commas, where others on this board find them.
    PodCidrs(String),
}
