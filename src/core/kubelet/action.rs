//! What one turn of the loop does, and what follows from its response.

use std::time::Duration;

use crate::core::certificate::FileTask;
use crate::core::instant::Mono;
use crate::core::schedule::RequestKind;
use crate::kube::time::Wall;

/// What the loop does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the connection of the first request, which is not due yet; within the duration.
    Connect(Duration),
    /// Send the next request of this kind; the whole request must end within the duration.
    Send(RequestKind, Duration),
    /// `identity` carries out this task; the time is the corrected wall clock.
    FileTask(FileTask, Wall),
    /// Nothing is due before this time.
    Wait(Mono),
    /// The process ends: the server knows of the shutdown, or there was no time to tell it.
    End,
}

/// What the loop must do after a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AfterResponse {
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
