//! Answers in Kubernetes' protobuf, for the kinds that an agent asks for so: `Lease`, the metadata
//! of any object, and the `Status` of an error. Byte for byte what a real server writes:
//! managed-fields.json.

use serde_json::Value;
use support::grpc::{field, varint};

use crate::http::{Request, Response};

const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Whether the request prefers it, in a form that it has here.
pub(crate) fn is_wanted(request: &Request) -> bool {
    let accept = request.header("accept").unwrap_or_default();
    match accept.strip_prefix(MEDIA_TYPE) {
        Some("") => request.target.contains("/leases"),
        Some(parameters) => parameters.starts_with(";as=PartialObjectMetadata;"),
        None => false,
    }
}

/// The same answer in protobuf, where it was asked for and this kind has it here. Upstream: an
/// error has no other form than its own (`responsewriters/writers.go`,
/// `DefaultEndpointRestrictions`), so beside `as=` it is in the JSON that `Accept` names next.
pub(crate) fn encoded(request: &Request, mut response: Response) -> Response {
    if is_wanted(request)
        && let Ok(object) = serde_json::from_slice::<Value>(&response.body)
        && (object["kind"] != "Status" || request.header("accept") == Some(MEDIA_TYPE))
        && let Some(bytes) = encode(&object)
    {
        response.body = bytes;
        return response.with("Content-Type", MEDIA_TYPE);
    }
    response
}

/// `k8s\0` and a `runtime.Unknown`.
fn encode(object: &Value) -> Option<Vec<u8>> {
    let raw = match object["kind"].as_str()? {
        "Lease" => lease(object),
        "PartialObjectMetadata" => {
            let mut partial = Message::default();
            partial.bytes(1, &metadata(&object["metadata"]).0);
            partial
        }
        "Status" => status(object),
        _ => return None,
    };
    let mut type_meta = Message::default();
    type_meta.text(1, &object["apiVersion"]);
    type_meta.text(2, &object["kind"]);
    let mut unknown = Message(b"k8s\0".to_vec());
    unknown.bytes(1, &type_meta.0);
    unknown.bytes(2, &raw.0);
    unknown.text(3, &Value::Null);
    unknown.text(4, &Value::Null);
    Some(unknown.0)
}

fn lease(lease: &Value) -> Message {
    let spec = &lease["spec"];
    let mut encoded_spec = Message::default();
    encoded_spec.text_if_there(1, &spec["holderIdentity"]);
    encoded_spec.number_if_there(2, &spec["leaseDurationSeconds"]);
    if let Some(time) = spec["renewTime"].as_str() {
        encoded_spec.bytes(4, &timestamp(time).0);
    }
    let mut message = Message::default();
    message.bytes(1, &metadata(&lease["metadata"]).0);
    message.bytes(2, &encoded_spec.0);
    message
}

fn metadata(metadata: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &metadata["name"]);
    message.text(2, &Value::Null);
    message.text(3, &metadata["namespace"]);
    message.text(4, &Value::Null);
    message.text(5, &metadata["uid"]);
    message.text(6, &metadata["resourceVersion"]);
    message.number(7, metadata["generation"].as_u64().unwrap_or(0));
    for (number, key) in [(8, "creationTimestamp"), (9, "deletionTimestamp")] {
        if let Some(time) = metadata[key].as_str() {
            message.bytes(number, &timestamp(time).0);
        }
    }
    message.number_if_there(10, &metadata["deletionGracePeriodSeconds"]);
    for (number, key) in [(11, "labels"), (12, "annotations")] {
        // In the order of the keys, as serde_json and gogo have it.
        for (key, value) in metadata[key].as_object().into_iter().flatten() {
            let mut entry = Message::default();
            entry.text(1, &Value::from(key.as_str()));
            entry.text(2, value);
            message.bytes(number, &entry.0);
        }
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        let mut reference = Message::default();
        for (number, key) in [(1, "kind"), (3, "name"), (4, "uid"), (5, "apiVersion")] {
            reference.text(number, &owner[key]);
        }
        message.bytes(13, &reference.0);
    }
    for entry in metadata["managedFields"].as_array().into_iter().flatten() {
        let mut fields = Message::default();
        for (number, key) in [(1, "manager"), (2, "operation"), (3, "apiVersion")] {
            fields.text(number, &entry[key]);
        }
        if let Some(time) = entry["time"].as_str() {
            fields.bytes(4, &timestamp(time).0);
        }
        fields.text(6, &entry["fieldsType"]);
        let mut raw = Message::default();
        raw.bytes(1, entry["fieldsV1"].to_string().as_bytes());
        fields.bytes(7, &raw.0);
        fields.text(8, &entry["subresource"]);
        message.bytes(17, &fields.0);
    }
    message
}

fn status(status: &Value) -> Message {
    let mut message = Message::default();
    let mut metadata = Message::default();
    (1..=3).for_each(|number| metadata.text(number, &Value::Null));
    message.bytes(1, &metadata.0);
    for (number, key) in [(2, "status"), (3, "message"), (4, "reason")] {
        message.text(number, &status[key]);
    }
    if let Some(details) = status.get("details") {
        let mut encoded = Message::default();
        for (number, key) in [(1, "name"), (2, "group"), (3, "kind")] {
            encoded.text(number, &details[key]);
        }
        for cause in details["causes"].as_array().into_iter().flatten() {
            let mut encoded_cause = Message::default();
            for (number, key) in [(1, "reason"), (2, "message"), (3, "field")] {
                encoded_cause.text(number, &cause[key]);
            }
            encoded.bytes(4, &encoded_cause.0);
        }
        encoded.number(5, details["retryAfterSeconds"].as_u64().unwrap_or(0));
        encoded.text(6, &Value::Null);
        message.bytes(5, &encoded.0);
    }
    message.number(6, status["code"].as_u64().unwrap_or(0));
    message
}

fn timestamp(text: &str) -> Message {
    let at: k8s_openapi::jiff::Timestamp = text.parse().unwrap_or_default();
    let mut message = Message::default();
    message.number(1, u64::try_from(at.as_second()).unwrap_or(0));
    message.number(2, u64::try_from(at.subsec_nanosecond()).unwrap_or(0));
    message
}

/// Fields in the order in which they were written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, number: u8, value: u64) {
        self.0.extend(varint(u64::from(number << 3)));
        self.0.extend(varint(value));
    }

    fn number_if_there(&mut self, number: u8, value: &Value) {
        if let Some(value) = value.as_u64() {
            self.number(number, value);
        }
    }

    fn bytes(&mut self, number: u8, content: &[u8]) {
        self.0.extend(field(number, content));
    }

    /// Go writes empty text where its field is no pointer.
    fn text(&mut self, number: u8, value: &Value) {
        self.bytes(number, value.as_str().unwrap_or_default().as_bytes());
    }

    fn text_if_there(&mut self, number: u8, value: &Value) {
        if value.is_string() {
            self.text(number, value);
        }
    }
}
