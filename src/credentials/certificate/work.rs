//! The next work of a [`Certificate`](super::Certificate), and its result.

use crate::kube::message::Request;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest};

/// The next work of a [`Certificate`](super::Certificate).
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// File work; [`on_task`](super::Certificate::on_task) takes its result.
    Files(FileTask),
    /// A request; [`on_response`](super::Certificate::on_response) takes its answer.
    Send(Request),
}

/// File work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTask {
    /// Look for a certificate in the files, also of other programs, that has not expired, and that
    /// begins at this time at the latest, if that is known.
    Find(Option<Wall>),
    /// Sign a CSR.
    Sign {
        /// Whether a new key is needed, because a CSR of the last key cannot succeed.
        new_key: bool,
        /// Send it with the bootstrap kubeconfig's credentials.
        with_bootstrap: bool,
        /// The board has no certificate yet.
        is_first: bool,
    },
    /// Store this chain, PEM, and use it.
    Install(String),
}

/// The result of a [`FileTask`].
#[derive(Clone, Debug, PartialEq)]
pub enum TaskResult {
    /// The files have no usable certificate.
    NotFound,
    /// The signed CSR.
    Signed(SigningRequest),
    /// This certificate is stored and in use.
    InUse(Leaf),
    /// The issued certificate is in use and could not be stored, with one line that says why.
    NotStored(Leaf, String),
    /// The issued certificate can never be used.
    Unusable(Fault),
    /// The task failed.
    Failed(Fault),
}
