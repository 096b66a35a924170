//! A request to the API server and its outcome, as plain values.
//!
//! `core` creates requests; the agent passes them to `wire::api`. An error response
//! ([`Outcome::Answered`] with a code of 300 or more) differs from no response
//! ([`Outcome::Silent`]): only after the latter is the Lease the next request.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::kube::protobuf::Receipt;
use crate::kube::time::Wall;

/// HTTP method. It determines the content type: POST sends `application/json`, PATCH sends
/// `application/merge-patch+json` (RFC 7386).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read one object.
    Get,
    /// Create one object.
    Post,
    /// Apply a JSON merge patch.
    Patch,
}

/// The requested form of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// The whole object.
    Object,
    /// Only its metadata (`PartialObjectMetadata`). An error is still a whole `Status`.
    Metadata,
    /// A [`Receipt`] in protobuf, the smallest response.
    Receipt,
}

/// A request, relative to the server URL of the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// HTTP method.
    pub method: Method,
    /// Path and query, starting with `/`.
    pub path: String,
    /// Form of the response.
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

/// A response of the server, of any status code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status code.
    pub code: u16,
    /// The header `Retry-After`, if it is a whole number of seconds.
    pub retry_after: Option<Duration>,
    /// The header `Date`: the time of the server.
    pub date: Option<Wall>,
    /// The body, at most [`BODY_LIMIT`] bytes.
    pub body: Vec<u8>,
}

/// Maximum size of a body in bytes. A Node with fifty images has 30 KiB.
pub const BODY_LIMIT: usize = 1 << 20;

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server responded.
    Answered(Response),
    /// No usable response within the time budget; the reason in one line.
    Silent(String),
}

impl Response {
    /// `Ok` for a success; otherwise the error of the server.
    pub fn accepted(&self) -> Result<(), Refused> {
        if (200..300).contains(&self.code) {
            return Ok(());
        }
        // The error page of a proxy is neither form; then only the code is known.
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

/// Maximum length of a message in characters. A 422 repeats the whole object in its message.
const MESSAGE_LIMIT: usize = 300;

/// The used members of a `v1.Status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    reason: String,
    message: String,
}

/// An error response of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// HTTP status code.
    pub code: u16,
    /// `Status.reason`, such as `AlreadyExists`; empty for a response of a proxy.
    pub reason: String,
    /// `Status.message`, cut to 300 characters.
    pub message: String,
    /// Delay that the server asks for before the next request.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// A success whose body is not `what`.
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
