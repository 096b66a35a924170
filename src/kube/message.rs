//! A request to the API server and its answer, as plain values.
//!
//! `node` creates requests; the agent passes them to `client::api`. An error response (a
//! [`Response`] with a code of 300 or more) is not the same as no response (`Err` of an
//! [`Answer`]): only after no response is the Lease the next request.
//!
//! A [`Receipt`] is a response in Kubernetes' protobuf, the smallest form: `k8s\0`, then
//! `runtime.Unknown` with the kind and the bytes of the object (apimachinery
//! `pkg/runtime/generated.proto`).

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::kube::json::MAX_VALUES;
use crate::kube::protobuf::{field, fields};
use crate::kube::text::Fault;
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
    /// Only its metadata (`PartialObjectMetadata`), see [`parse_without`]. An error is still a
    /// whole `Status`.
    Metadata,
    /// A [`Receipt`] of the whole object.
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
        Self { method: Method::Get, path, accept, body: Vec::new() }
    }

    /// Creates an object in a collection.
    pub fn post(path: &str, accept: Accept, object: &Value) -> Self {
        Self::with_body(Method::Post, path.to_owned(), accept, object)
    }

    /// Deletes an object.
    pub fn delete(path: String, options: &Value) -> Self {
        Self::with_body(Method::Delete, path, Accept::Metadata, options)
    }

    /// Changes an object.
    pub fn patch(path: String, accept: Accept, change: &Value) -> Self {
        Self::with_body(Method::Patch, path, accept, change)
    }

    fn with_body(method: Method, path: String, accept: Accept, body: &Value) -> Self {
        Self { method, path, accept, body: body.to_string().into_bytes() }
    }
}

/// A response of the server, of any status code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status code.
    pub code: u16,
    /// The header `Retry-After`, if it is a whole number of seconds.
    pub retry_after: Option<Duration>,
    /// The header `Date`, if the response [is the server's](Self::is_of_server).
    pub date: Option<Wall>,
    /// The body, at most [`Accept::body_limit`] bytes; empty if it is larger.
    pub body: Vec<u8>,
    /// The body is larger than this limit in bytes.
    pub exceeds: Option<usize>,
}

/// Maximum size of a body in bytes. A Node with fifty images has 30 KiB, the largest that etcd
/// stores 1.5 MiB in protobuf.
pub const BODY_LIMIT: usize = 4 << 20;

/// Maximum size of a list in bytes. Eight Pods have some 20 KiB.
pub const LIST_LIMIT: usize = 256 << 10;

/// What became of a request: the response of the server, or why there was none within the time
/// limit.
pub type Answer = Result<Response, Fault>;

/// Opens an answer: the response, if the request succeeded.
pub fn accepted(answer: Answer) -> Result<Response, RequestError> {
    let response = answer?;
    response.accepted()?;
    Ok(response)
}

/// Why a request did not bring what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// What went wrong.
    pub why: Fault,
    /// What the server refused. `None` if it did not respond, or if its response is valid and
    /// of no use.
    pub refused: Option<Box<Refused>>,
}

impl From<Refused> for RequestError {
    fn from(refused: Refused) -> Self {
        Self { why: Fault::from(&refused), refused: Some(Box::new(refused)) }
    }
}

/// Without a refusal.
impl From<Fault> for RequestError {
    fn from(why: Fault) -> Self {
        Self { why, refused: None }
    }
}

impl Response {
    /// The object that was asked for; `None` if the API server says that it does not exist.
    /// `resource` is the plural of its kind, such as `nodes`. The page of a gateway says nothing
    /// about the object, whatever its code.
    pub fn object(&self, resource: &str, name: &str) -> Result<Option<Value>, Fault> {
        let refused = match self.accepted() {
            Ok(()) => match json::parse(&self.body).filter(Value::is_object) {
                None => Refused::nonsense("an object"),
                object => return Ok(object),
            },
            Err(refused) if refused.is_missing(resource, name) => return Ok(None),
            Err(refused) => refused,
        };
        Err(Fault::from(refused).what.into())
    }

    /// Whether an API server, or a supervisor of k3s, wrote the response: an object, a certificate,
    /// or an error with a reason. A gateway writes pages, with the time of its own clock. The page
    /// of a busy API server (429) counts as one of a gateway.
    pub fn is_of_server(&self) -> bool {
        let begins = |text: &&[u8]| self.body.starts_with(text);
        match self.accepted() {
            Ok(()) => [b"{", MAGIC, b"-----BEGIN"].iter().any(begins),
            Err(refused) => !refused.reason.is_empty(),
        }
    }

    /// `Ok` for a success; otherwise the error of the server. An error with the code of a success
    /// means that the body is too large.
    pub fn accepted(&self) -> Result<(), Refused> {
        if (200..300).contains(&self.code) {
            return self.exceeds.map_or(Ok(()), |limit| {
                Err(Refused::useless(format!("the answer is larger than {limit} bytes")))
            });
        }
        let body = json::parse(&self.body).unwrap_or_default();
        let text = |path: &[&str]| object::text(&body, path);
        let (reason, message, object) = match Receipt::parse(&self.body) {
            Some(status) if status.kind == "Status" => {
                (status.reason(), status.message(), status.details())
            }
            _ if text(&["kind"]) == "Status" => {
                let object = (text(&["details", "kind"]), text(&["details", "name"]));
                (text(&["reason"]), text(&["message"]), object)
            }
            // The error page of a proxy is neither form; then only the code is known.
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

/// The remedy for an answer that no API server gives.
pub const NO_API_SERVER: &str =
    "check that server in the kubeconfig is the URL of an API server, with its path";

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
        Self::useless(format!("the answer is not {what}; {NO_API_SERVER}"))
    }

    /// A success whose body is of no use.
    pub fn useless(message: String) -> Self {
        Self {
            code: 200,
            reason: String::new(),
            message,
            object: Default::default(),
            retry_after: None,
        }
    }

    /// Whether an API server says that the object does not exist. `resource` is the plural of its
    /// kind, such as `nodes`. The 404 page of a gateway says nothing about the object.
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

impl From<&Refused> for Fault {
    fn from(refused: &Refused) -> Self {
        let mut what = refused.code.to_string();
        if !refused.reason.is_empty() {
            what += &format!(" {}", refused.reason);
        }
        if !refused.message.is_empty() {
            what += &format!(": {}", refused.message);
        }
        let remedy = match refused.code {
            401 => return Self::of_credentials(what),
            403 => "check the node's certificate or its RBAC rules",
            429 => "the server is busy",
            500.. => "check the API server, and the load balancer before it",
            // Each refusal of an API server has a reason.
            300.. if refused.reason.is_empty() => NO_API_SERVER,
            _ => "",
        };
        Self::new(what, remedy)
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        Self::from(&refused)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Fault::from(self).fmt(f)
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
pub(crate) fn not_found(resource: &str, name: &str) -> Answer {
    answered(404, status_not_found(resource, name))
}

#[cfg(test)]
impl Response {
    /// A response without headers.
    pub(crate) fn test(code: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { code, retry_after: None, date: None, body: body.into(), exceeds: None }
    }
}

/// A response with a JSON body and no headers. The object of an error is a `Status`.
#[cfg(test)]
pub(crate) fn answered(code: u16, mut body: Value) -> Answer {
    if let (400.., Value::Object(status)) = (code, &mut body) {
        status.entry("kind").or_insert_with(|| "Status".into());
    }
    Ok(Response::test(code, body.to_string()))
}

/// The prefix of every protobuf response.
const MAGIC: &[u8] = b"k8s\0";

/// The object of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt<'a> {
    /// `Lease`, `PartialObjectMetadata`, `Status`.
    pub kind: &'a str,
    object: &'a [u8],
}

impl<'a> Receipt<'a> {
    /// Parses a response; `None` if it is not in this form.
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let unknown = body.strip_prefix(MAGIC)?;
        let type_meta = field(unknown, 1)?;
        Some(Self { kind: text(type_meta, 2)?, object: field(unknown, 2)? })
    }

    /// `metadata.name`, for every kind except `Status`.
    pub fn name(&self) -> &'a str {
        let metadata = field(self.object, 1).unwrap_or_default();
        text(metadata, 1).unwrap_or_default()
    }

    /// `Status.message`.
    pub fn message(&self) -> &'a str {
        text(self.object, 3).unwrap_or_default()
    }

    /// `Status.reason`.
    pub fn reason(&self) -> &'a str {
        text(self.object, 4).unwrap_or_default()
    }

    /// `Status.details.kind`, a resource such as `leases`, and `Status.details.name`.
    pub fn details(&self) -> (&'a str, &'a str) {
        let details = field(self.object, 5).unwrap_or_default();
        let text = |number| text(details, number).unwrap_or_default();
        (text(3), text(1))
    }
}

/// The object in a body of JSON or protobuf, without the members that `skipped` names. Of protobuf
/// only the metadata is read, which is the same for every kind. `None` if the body is no object, or
/// exceeds a bound.
pub fn parse_without(body: &[u8], skipped: &[&str]) -> Option<Value> {
    let Some(receipt) = Receipt::parse(body) else {
        return json::parse_without(body, skipped).ok();
    };
    let encoded = field(receipt.object, 1)?;
    let mut metadata = Map::new();
    for (number, name) in [(1, "name"), (5, "uid"), (6, "resourceVersion")] {
        metadata.insert(name.to_owned(), text(encoded, number)?.into());
    }
    let mut left = MAX_VALUES;
    for (number, name) in [(11, "labels"), (12, "annotations")] {
        let mut members = Map::new();
        fields(encoded, &mut |found, entry| {
            let text = |number| text(entry.bytes(), number).unwrap_or_default();
            let is_read = number == 11 || object::is_read_annotation(text(1));
            if found == number && is_read && !skipped.contains(&name) {
                left = left.saturating_sub(2);
                if left > 0 {
                    members.insert(text(1).to_owned(), text(2).into());
                }
            }
            Some(())
        })?;
        if !members.is_empty() {
            metadata.insert(name.to_owned(), members.into());
        }
    }
    let mut finalizers = Vec::new();
    fields(encoded, &mut |found, finalizer| {
        if found == 14 && left > 0 {
            left = left.saturating_sub(1);
            finalizers.push(Value::from(String::from_utf8_lossy(finalizer.bytes())));
        }
        Some(())
    })?;
    if !finalizers.is_empty() {
        metadata.insert("finalizers".to_owned(), finalizers.into());
    }
    let mut partial = Value::Null;
    object::set(&mut partial, &["kind"], receipt.kind.into());
    object::set(&mut partial, &["metadata"], metadata.into());
    (left > 0).then_some(partial)
}

fn text(message: &[u8], number: u64) -> Option<&str> {
    str::from_utf8(field(message, number)?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use support::grpc::field;

    fn refused(body: &Value) -> Refused {
        Response::test(404, body.to_string()).accepted().unwrap_err()
    }

    #[test]
    fn only_a_status_says_why_in_members_of_the_right_type() {
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
        let body = json!({"kind": "Status", "reason": 7, "message": "m", "details": null});
        let Refused { reason, message, object, .. } = refused(&body);
        assert_eq!((reason.as_str(), message.as_str(), object), ("", "m", Default::default()));
    }

    /// Response of kube-apiserver 1.20 to a renewal, shortened: typeMeta, then metadata with a
    /// generation (a number) between its strings, then spec.
    const LEASE: &[u8] = b"k8s\0\x0a\x1f\x0a\x16coordination.k8s.io/v1\x12\x05Lease\x12\x1f\
        \x0a\x17\x0a\x02pi\x1a\x0fkube-node-lease\x38\x00\x12\x04\x0a\x02pi\x1a\x00\x22\x00";

    const CONFLICT: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x22\x0a\x00\x12\x07Failure\
        \x1a\x08too late\x22\x08Conflict\x30\x99\x03";

    #[test]
    fn a_receipt_has_a_kind_and_a_name_or_a_reason_and_a_message() {
        let receipt = Receipt::parse(LEASE).unwrap();
        assert_eq!((receipt.kind, receipt.name()), ("Lease", "pi"));
        let receipt = Receipt::parse(CONFLICT).unwrap();
        let got = (receipt.kind, receipt.reason(), receipt.message());
        assert_eq!(got, ("Status", "Conflict", "too late"));
    }

    /// A `PartialObjectMetadata` with these labels and annotations, a finalizer, and what is not
    /// read.
    pub(crate) fn partial(labels: &[(&str, &str)], annotations: &[(&str, &str)]) -> Vec<u8> {
        let entries = |number, members: &[(&str, &str)]| {
            let entry = |(key, value): &(&str, &str)| {
                let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
                field(number, &entry)
            };
            members.iter().flat_map(entry).collect::<Vec<u8>>()
        };
        let metadata = [
            [field(1, b"pi"), field(2, b""), field(3, b""), field(5, b"u1")].concat(),
            [field(6, b"512"), b"\x38\x00".to_vec(), field(8, b"\x08\x01")].concat(),
            [entries(11, labels), entries(12, annotations)].concat(),
            [field(14, b"example.org/x"), field(17, b"\x0a\x00")].concat(),
        ];
        let type_meta = [field(1, b"meta.k8s.io/v1"), field(2, b"PartialObjectMetadata")].concat();
        let object = field(2, &field(1, &metadata.concat()));
        [MAGIC, &field(1, &type_meta), &object].concat()
    }

    #[test]
    fn metadata_in_protobuf_is_that_of_json() {
        let labels = [("kubernetes.io/os", "nodelet"), ("empty", "")];
        let annotations = [("theirs", "x"), ("nodelet/documentation", "man")];
        let body = partial(&labels, &annotations);
        let kind = "PartialObjectMetadata";
        let mut want = json!({"kind": kind, "metadata": {"name": "pi", "uid": "u1",
            "resourceVersion": "512", "labels": {"kubernetes.io/os": "nodelet", "empty": ""},
            "annotations": {"nodelet/documentation": "man", "theirs": "x"},
            "finalizers": ["example.org/x"]}});
        let json = want.to_string().into_bytes();
        want["metadata"]["annotations"].as_object_mut().unwrap().remove("theirs");
        assert_eq!(parse_without(&body, &[]), Some(want.clone()));
        assert_eq!(parse_without(&json, &[]), Some(want));
        let bare = json!({"kind": kind, "metadata": {"name": "pi", "uid": "u1",
            "resourceVersion": "512", "finalizers": ["example.org/x"]}});
        assert_eq!(parse_without(&partial(&[], &[]), &[]), Some(bare.clone()));
        // More labels than a document may have values.
        let labels = vec![("a", "b"); MAX_VALUES / 2];
        assert_eq!(parse_without(&partial(&labels, &[]), &[]), None);
        assert_eq!(parse_without(&partial(&labels, &[]), &["labels"]), Some(bare));
        // It has no resourceVersion, no metadata, or is cut.
        let mut unversioned = body.clone();
        let at = body.windows(5).position(|bytes| bytes == b"2\x03512").unwrap();
        unversioned[at] = b'*';
        for body in [&unversioned, CONFLICT, body.get(..body.len() - 1).unwrap(), b"k8s\0"] {
            assert_eq!(parse_without(body, &[]), None, "{body:?}");
        }
    }

    #[test]
    fn invalid_bytes_are_not_a_receipt() {
        for body in [
            &b""[..],
            b"k8s",
            b"k8s\0",
            b"{\"kind\":\"Lease\"}",
            // A length beyond the end, a varint without an end, a group, a kind that is not UTF-8.
            b"k8s\0\x0a\x7f\x12\x05Lease",
            b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"k8s\0\x0b\x12\x05Lease\x0c",
            b"k8s\0\x0a\x03\x12\x01\xff\x12\x00",
        ] {
            assert_eq!(Receipt::parse(body), None, "{body:?}");
        }
        // A body that ends before the end of the object.
        let end = LEASE.len() - 4;
        for length in 0..end {
            assert_eq!(Receipt::parse(LEASE.get(..length).unwrap()), None, "{length}");
        }
        assert!(Receipt::parse(LEASE.get(..end).unwrap()).is_some());
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), at in 0..60_usize) {
            for body in [[MAGIC, &bytes].concat(), [LEASE.get(..at).unwrap_or(LEASE), &bytes].concat()] {
                let _ = parse_without(&body, &[]);
                if let Some(receipt) = Receipt::parse(&body) {
                    let _ = (receipt.name(), receipt.reason(), receipt.message());
                }
            }
        }
    }

    #[test]
    fn a_response_is_the_servers_if_it_has_an_object_a_certificate_or_an_error_with_a_reason() {
        let status = r#"{"kind":"Status","reason":"Unauthorized","code":401}"#;
        for (code, body, is_of_server) in [
            (200, r#"{"kind":"Node"}"#, true),
            (200, "k8s\0...", true),
            (200, "-----BEGIN CERTIFICATE-----", true),
            (401, status, true),
            (502, "<html>bad gateway</html>", false),
            (200, "<html>sign in</html>", false),
            (404, r#"{"message":"no route matched"}"#, false),
            (429, "Too many requests, please try again later.", false),
            (200, "", false),
        ] {
            assert_eq!(Response::test(code, body).is_of_server(), is_of_server, "{code} {body}");
        }
    }

    #[test]
    fn a_page_of_a_gateway_is_neither_an_object_nor_its_absence() {
        let node = json!({"kind": "Node"});
        let status = |name: &str| {
            json!({"kind": "Status", "reason": "NotFound", "message": "none",
                "details": {"kind": "nodes", "name": name}})
        };
        for (code, body, want) in [
            (200, node.to_string(), Ok(Some(node.clone()))),
            (404, status("pi").to_string(), Ok(None)),
            (404, status("other").to_string(), Err("404 NotFound: none")),
            (404, "<html>".to_owned(), Err("404")),
            (200, "<html>".to_owned(), Err("200: the answer is not an object")),
            (200, node.to_string().replace('}', ""), Err("200: the answer is not an object")),
            (200, "null".to_owned(), Err("200: the answer is not an object")),
        ] {
            let found = Response::test(code, body.clone()).object("nodes", "pi");
            match (found, want) {
                (Err(why), Err(want)) => assert!(why.what.starts_with(want), "{body}: {why}"),
                (found, want) => assert_eq!(found, want.map_err(Fault::from), "{body}"),
            }
        }
    }
}
