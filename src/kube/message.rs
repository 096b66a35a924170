//! One request and what became of it, as plain values.
//!
//! The core decides in these words; only [`crate::agent`] hands them to
//! `kube::api`. A server that said no ([`Outcome::Answered`] with a code of 300 or
//! more) and a server that said nothing ([`Outcome::Silent`]) are kept apart,
//! because only silence makes the Lease the probe.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::kube::protobuf::Receipt;
use crate::kube::time::Wall;

/// HTTP method. It also fixes the content type: POST sends `application/json`,
/// PATCH sends `application/merge-patch+json` (RFC 7386).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read one object.
    Get,
    /// Create one object.
    Post,
    /// Apply a JSON merge patch.
    Patch,
}

/// What the answer is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// The whole object.
    Object,
    /// Its metadata alone (`PartialObjectMetadata`); an error is a whole `Status`
    /// all the same.
    Metadata,
    /// That it was done, in the fewest bytes: a [`Receipt`].
    Receipt,
}

/// One request below the kubeconfig's server URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query, starting with `/`.
    pub path: String,
    /// Shape of the answer.
    pub accept: Accept,
    /// JSON body of a POST or PATCH; empty for GET.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads an object.
    pub fn get(path: String, accept: Accept) -> Self {
        Self {
            method: Method::Get,
            path,
            accept,
            body: Vec::new(),
        }
    }

    /// Creates an object in a collection.
    pub fn post(path: &str, accept: Accept, object: &Value) -> Self {
        Self {
            method: Method::Post,
            path: path.to_owned(),
            accept,
            body: object.to_string().into_bytes(),
        }
    }

    /// Changes an object.
    pub fn patch(path: String, accept: Accept, change: &Value) -> Self {
        Self {
            method: Method::Patch,
            path,
            accept,
            body: change.to_string().into_bytes(),
        }
    }
}

/// What the server said, whatever it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status code.
    pub code: u16,
    /// The header `Retry-After`, where it is a whole number of seconds.
    pub retry_after: Option<Duration>,
    /// The header `Date`: what time it is to the server.
    pub date: Option<Wall>,
    /// The body, at most [`BODY_LIMIT`] bytes.
    pub body: Vec<u8>,
}

/// Largest body that is read: a Node with fifty images is 30 KiB.
pub const BODY_LIMIT: usize = 1 << 20;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered.
    Answered(Response),
    /// No usable answer within the budget; one line that says why.
    Silent(String),
}

impl Response {
    /// Whether the server did what was asked; if not, what it said.
    pub fn accepted(&self) -> Result<(), Refused> {
        if (200..300).contains(&self.code) {
            return Ok(());
        }
        // A proxy's error page is neither, and then the code must do.
        let status = match Receipt::parse(&self.body) {
            Some(receipt) if receipt.kind == "Status" => Status {
                reason: receipt.reason().to_owned(),
                message: receipt.message().to_owned(),
            },
            _ => serde_json::from_slice(&self.body).unwrap_or_default(),
        };
        Err(Refused {
            code: self.code,
            reason: status.reason,
            message: status.message.chars().take(MESSAGE_LIMIT).collect(),
            retry_after: self.retry_after,
        })
    }
}

/// A 422 repeats the whole object in its message; a log line must not.
const MESSAGE_LIMIT: usize = 300;

/// The members of a `v1.Status` that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    reason: String,
    message: String,
}

/// The server said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status code.
    pub code: u16,
    /// `Status.reason`, such as `AlreadyExists`; empty where a proxy answered.
    pub reason: String,
    /// `Status.message`, cut to what a log line bears.
    pub message: String,
    /// When the server wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// A success whose body is not `what` was asked for.
    pub fn nonsense(what: &str) -> Self {
        Self {
            code: 200,
            reason: String::new(),
            message: format!("the answer is not {what}"),
            retry_after: None,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.reason.is_empty() {
            write!(f, " {}", self.reason)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        f.write_str(match self.code {
            401 => "; check the credentials in the kubeconfig",
            403 => "; check the node's certificate or its RBAC rules",
            429 => "; the server is busy",
            _ => "",
        })
    }
}

#[cfg(test)]
impl Response {
    /// A response without headers.
    pub(crate) fn test(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            code,
            retry_after: None,
            date: None,
            body: body.into(),
        }
    }
}

/// A response with a JSON body and no headers.
#[cfg(test)]
pub(crate) fn answered(code: u16, body: Value) -> Outcome {
    Outcome::Answered(Response::test(code, body.to_string()))
}
