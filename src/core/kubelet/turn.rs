//! What one turn of the loop does, and what follows from its response.

use std::time::Duration;

use crate::core::certificate::Task;
use crate::core::instant::Mono;
use crate::kube::time::Wall;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads, creates or renews the Lease.
    Lease,
    /// Reads, creates or patches the Node.
    Node,
    /// Looks for stray pods, or ends one.
    Pods,
    /// Reads the version of the API server.
    Version,
    /// Sends the oldest event.
    Event,
    /// Creates or reads the CertificateSigningRequest.
    Certificate,
    /// Asks for the server's time, while the board's clock is wrong.
    Time,
}

/// The next step of the loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Open the connection of the first request, which is not due yet; within the duration.
    Connect(Duration),
    /// Send the next request for this work; the whole request must end within the duration.
    Send(Work, Duration),
    /// `identity` carries out this task; the time is the corrected wall clock.
    Identity(Task, Wall),
    /// Nothing is due before this time.
    Wait(Mono),
    /// The process ends: the server knows of the shutdown, or there was no time to tell it.
    End,
}

/// What the loop must do after a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The response needs no further action.
    None,
    /// Notify the supervisor: the Node is registered for the first time since the start.
    Registered,
    /// Open a new connection, to another address of the server's name if it has one.
    Disconnect,
    /// As [`Self::Disconnect`], but only if the server's name has another address.
    TryOtherAddress,
    /// Write these `spec.podCIDRs`, joined by commas, to the file for other programs.
    PodCidrs(String),
}
