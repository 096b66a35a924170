//! A request to the API server and its outcome, as plain values.
//!
//! `core` creates requests; the agent passes them to `wire::api`. An error response
//! ([`Outcome::Answered`] with a code of 300 or more) differs from no response
//! ([`Outcome::Silent`]): only after the latter is the Lease the next request.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::kube::protobuf::Receipt;
use crate::kube::time::Wall;
use crate::kube::{json, object};

/// HTTP method. It determines the content type: POST and DELETE send `application/json`, PATCH
/// sends `application/merge-patch+json` (RFC 7386).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read one object.
    Get,
    /// Create one object.
    Post,
    /// Apply a JSON merge patch.
    Patch,
    /// Delete one object; the body is `v1.DeleteOptions`.
    Delete,
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
    /// A short list of whole objects.
    List,
}

impl Accept {
    /// Maximum size of the body of the response in bytes.
    pub fn body_limit(self) -> usize {
        match self {
            Self::Object | Self::Metadata | Self::Receipt => BODY_LIMIT,
            Self::List => LIST_LIMIT,
        }
    }
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
    /// JSON body of a POST, PATCH or DELETE; empty for GET.
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

    /// Deletes an object.
    pub fn delete(path: String, options: &Value) -> Self {
        Self {
            method: Method::Delete,
            path,
            accept: Accept::Metadata,
            body: options.to_string().into_bytes(),
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
    /// The body, at most [`Accept::body_limit`] bytes.
    pub body: Vec<u8>,
}

/// Maximum size of a body in bytes. A Node with fifty images has 30 KiB.
pub const BODY_LIMIT: usize = 1 << 20;

/// Maximum size of a list in bytes. Eight Pods have some 20 KiB.
pub const LIST_LIMIT: usize = 256 << 10;

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
        let receipt = Receipt::parse(&self.body);
        let body = match receipt {
            Some(_) => Value::Null,
            None => json::parse(&self.body).unwrap_or_default(),
        };
        let text = |path: &[&str]| object::text(&body, path);
        let (kind, reason, message, object) = match &receipt {
            Some(receipt) => (
                receipt.kind,
                receipt.reason(),
                receipt.message(),
                receipt.details(),
            ),
            None => (
                text(&["kind"]),
                text(&["reason"]),
                text(&["message"]),
                (text(&["details", "kind"]), text(&["details", "name"])),
            ),
        };
        // The error page of a proxy is neither form; then only the code is known.
        let (reason, message, object) = match kind {
            "Status" => (reason, message, object),
            _ => Default::default(),
        };
        Err(Refused {
            code: self.code,
            reason: cut(reason),
            message: cut(message),
            object: (object.0.to_owned(), object.1.to_owned()),
            retry_after: self.retry_after,
        })
    }
}

/// Maximum length of a message in characters. A 422 repeats the whole object in its message.
const MESSAGE_LIMIT: usize = 300;

fn cut(text: &str) -> String {
    text.chars().take(MESSAGE_LIMIT).collect()
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
    /// `Status.details`: resource and name of the object that it is about.
    pub object: (String, String),
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
            object: Default::default(),
            retry_after: None,
        }
    }

    /// Whether an API server says that the object does not exist: `resource` is `nodes`. The 404 page
    /// of a gateway says nothing about the object.
    pub fn is_missing(&self, resource: &str, name: &str) -> bool {
        let is_not_found = self.code == 404 && self.reason == "NotFound";
        is_not_found && self.object.0 == resource && self.object.1 == name
    }

    /// Whether an API server in good health refuses this request, so that another server would
    /// refuse it too.
    pub fn is_final(&self) -> bool {
        !self.reason.is_empty() && matches!(self.code, 403 | 404 | 409 | 422)
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

/// The `Status` of an API server for an object that does not exist.
#[cfg(test)]
pub(crate) fn status_not_found(resource: &str, name: &str) -> Value {
    serde_json::json!({
        "kind": "Status",
        "reason": "NotFound",
        "message": format!("{resource} {name:?} not found"),
        "details": {"name": name, "kind": resource},
        "code": 404,
    })
}

/// The 404 of an API server.
#[cfg(test)]
pub(crate) fn not_found(resource: &str, name: &str) -> Outcome {
    answered(404, status_not_found(resource, name))
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

/// A response with a JSON body and no headers. The object of an error is a `Status`.
#[cfg(test)]
pub(crate) fn answered(code: u16, mut body: Value) -> Outcome {
    if let (400.., Value::Object(status)) = (code, &mut body) {
        status.entry("kind").or_insert_with(|| "Status".into());
    }
    Outcome::Answered(Response::test(code, body.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(body: &Value) -> Refused {
        Response::test(404, body.to_string())
            .accepted()
            .unwrap_err()
    }

    #[test]
    fn only_a_status_says_why() {
        let status = refused(&status_not_found("nodes", "pi"));
        assert!(status.is_missing("nodes", "pi"));
        assert_eq!(status.message, "nodes \"pi\" not found");
        for kind in [json!("Node"), json!(null), json!(["Status"])] {
            let mut body = status_not_found("nodes", "pi");
            body["kind"] = kind;
            let refused = refused(&body);
            assert!(!refused.is_missing("nodes", "pi"));
            assert_eq!((refused.reason, refused.message), Default::default());
        }
    }

    #[test]
    fn a_member_of_the_wrong_type_is_no_member() {
        let body = json!({"kind": "Status", "reason": 7, "message": "m", "details": null});
        let refused = refused(&body);
        let texts = (refused.reason.as_str(), refused.message.as_str());
        assert_eq!(texts, ("", "m"));
        assert_eq!(refused.object, Default::default());
    }
}
