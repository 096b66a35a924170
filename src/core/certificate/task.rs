//! The values that the certificate exchanges with the loop and with `identity`.

use crate::kube::x509::{Leaf, SigningRequest};

/// The next step, once the certificate is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send `Certificate::request` and pass the outcome to `Certificate::on_response`.
    Send,
    /// `identity` carries this out, and `Certificate::on_task` takes the result.
    Task(Task),
}

/// File work for `identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Look for a certificate in the files, also of other programs, that has not expired.
    Find,
    /// Sign a CSR.
    Sign {
        /// With a new key: the CSR of the last one cannot succeed.
        new_key: bool,
        /// Send it with the bootstrap kubeconfig's credentials.
        with_bootstrap: bool,
        /// The board has no certificate yet.
        is_first: bool,
    },
    /// Store this chain, PEM, and use it.
    Install(String),
}

/// The result of a [`Task`].
#[derive(Clone, Debug, PartialEq)]
pub enum TaskResult {
    /// The files have no usable certificate.
    NotFound,
    /// The signed CSR.
    Signed(SigningRequest),
    /// This certificate is stored and in use.
    InUse(Leaf),
    /// The issued certificate can never be used, with one line that says why.
    Unusable(String),
    /// The task failed, with one line that says why.
    Failed(String),
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// More steps are needed.
    Continue,
    /// The approval takes longer than a controller needs; one line that asks for it.
    Pending(String),
    /// The request failed, with one line that says why.
    Failed(String),
    /// The server did not respond.
    Silent(String),
}
