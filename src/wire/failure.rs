//! Why a request has no usable answer, in one line.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use rustls::{CertificateError, Error};

use crate::files::read::cause;
use crate::wire::proxy::Proxy;
use crate::wire::tls_error;

/// The step of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Proxy,
    Handshake,
    Sending,
    Answer,
    Body,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Proxy => "connecting through the proxy",
            Self::Handshake => "setting up TLS",
            Self::Sending => "sending the request",
            Self::Answer => "waiting for the answer",
            Self::Body => "reading the answer",
        })
    }
}

/// Passed through ureq as `ureq::Error::Other`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The budget ended; the caller adds its length.
    TimedOut(Stage),
    /// TLS failed, on either side.
    Tls(String),
    /// No root of ours signed the server's certificate.
    UnknownIssuer(String),
    /// Any other cause.
    Line(String),
}

impl Failure {
    pub(super) fn io(error: &io::Error, stage: Stage) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => Self::TimedOut(stage),
            _ if stage == Stage::Connecting => Self::Line(cause(error)),
            _ => Self::Line(format!("{} while {stage}", cause(error))),
        }
    }

    pub(super) fn tls(error: &Error, host: &str) -> Self {
        let line = tls_error::describe(error, host);
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => Self::UnknownIssuer(line),
            _ => Self::Tls(line),
        }
    }

    pub(super) fn closed(stage: Stage) -> Self {
        Self::Line(format!("connection closed by the server while {stage}"))
    }

    pub(super) fn line(line: String) -> Self {
        Self::Line(line)
    }

    /// Names the proxy: the failure was at it or before it.
    pub(super) fn via(self, proxy: &Proxy) -> Self {
        match self {
            Self::TimedOut(_) => Self::TimedOut(Stage::Proxy),
            Self::Line(line) => Self::Line(format!("{proxy}: {line}")),
            other => other,
        }
    }

    /// Names the address.
    pub(super) fn at(self, address: SocketAddr) -> Self {
        match self {
            Self::Line(line) => Self::Line(format!("{line} (at {address})")),
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(stage) => write!(f, "timed out while {stage}"),
            Self::Tls(line) | Self::UnknownIssuer(line) | Self::Line(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for ureq::Error {
    fn from(failure: Failure) -> Self {
        Self::Other(Box::new(failure))
    }
}
