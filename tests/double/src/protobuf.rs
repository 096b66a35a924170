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
    let fields = match object["kind"].as_str()? {
        "Lease" => LEASE,
        "PartialObjectMetadata" => PARTIAL,
        "Status" => STATUS,
        _ => return None,
    };
    let (type_meta, raw) = (message(object, TYPE_META), message(object, fields));
    let unknown = [field(1, &type_meta), field(2, &raw), field(3, b""), field(4, b"")];
    Some([b"k8s\0".as_slice(), &unknown.concat()].concat())
}

/// Number, member in JSON and form.
type Field = (u8, &'static str, Form);

/// How a field is written. Go leaves out what is a pointer or a list, and is not there.
enum Form {
    Text,
    Number,
    TextIfThere,
    /// A list.
    Texts,
    NumberIfThere,
    Time,
    /// In the order of the keys, as serde_json and gogo have it.
    Map,
    /// The JSON of a `FieldsV1`.
    Json,
    Message(&'static [Field]),
    /// Of one message that may be absent, or of a list.
    Messages(&'static [Field]),
}

use Form::{Json, Map, Message, Messages, Number, NumberIfThere, Text, TextIfThere, Texts, Time};

const TYPE_META: &[Field] = &[(1, "apiVersion", Text), (2, "kind", Text)];
const LEASE: &[Field] = &[(1, "metadata", Message(METADATA)), (2, "spec", Message(LEASE_SPEC))];
const PARTIAL: &[Field] = &[(1, "metadata", Message(METADATA))];
const LEASE_SPEC: &[Field] = &[
    (1, "holderIdentity", TextIfThere),
    (2, "leaseDurationSeconds", NumberIfThere),
    (4, "renewTime", Time),
];
const METADATA: &[Field] = &[
    (1, "name", Text),
    (2, "generateName", Text),
    (3, "namespace", Text),
    (4, "selfLink", Text),
    (5, "uid", Text),
    (6, "resourceVersion", Text),
    (7, "generation", Number),
    (8, "creationTimestamp", Time),
    (9, "deletionTimestamp", Time),
    (10, "deletionGracePeriodSeconds", NumberIfThere),
    (11, "labels", Map),
    (12, "annotations", Map),
    (13, "ownerReferences", Messages(OWNER)),
    (14, "finalizers", Texts),
    (17, "managedFields", Messages(MANAGED)),
];
const OWNER: &[Field] =
    &[(1, "kind", Text), (3, "name", Text), (4, "uid", Text), (5, "apiVersion", Text)];
const MANAGED: &[Field] = &[
    (1, "manager", Text),
    (2, "operation", Text),
    (3, "apiVersion", Text),
    (4, "time", Time),
    (6, "fieldsType", Text),
    (7, "fieldsV1", Json),
    (8, "subresource", Text),
];
const STATUS: &[Field] = &[
    (
        1,
        "metadata",
        Message(&[(1, "selfLink", Text), (2, "resourceVersion", Text), (3, "continue", Text)]),
    ),
    (2, "status", Text),
    (3, "message", Text),
    (4, "reason", Text),
    (5, "details", Messages(DETAILS)),
    (6, "code", Number),
];
const DETAILS: &[Field] = &[
    (1, "name", Text),
    (2, "group", Text),
    (3, "kind", Text),
    (4, "causes", Messages(&[(1, "reason", Text), (2, "message", Text), (3, "field", Text)])),
    (5, "retryAfterSeconds", Number),
    (6, "uid", Text),
];

fn message(object: &Value, fields: &[Field]) -> Vec<u8> {
    let fields =
        fields.iter().map(|(number, member, form)| encode_field(*number, &object[*member], form));
    fields.collect::<Vec<_>>().concat()
}

fn encode_field(number: u8, value: &Value, form: &Form) -> Vec<u8> {
    let text = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
    let scalar = |number: u8, value: u64| [varint(u64::from(number << 3)), varint(value)].concat();
    match form {
        TextIfThere | NumberIfThere | Time if value.is_null() => Vec::new(),
        Text | TextIfThere => field(number, &text(value)),
        Texts => {
            let all = value.as_array().into_iter().flatten();
            all.flat_map(|value| field(number, &text(value))).collect()
        }
        Number | NumberIfThere => scalar(number, value.as_u64().unwrap_or(0)),
        Time => {
            let at: k8s_openapi::jiff::Timestamp =
                value.as_str().unwrap_or_default().parse().unwrap_or_default();
            let seconds = scalar(1, at.as_second().try_into().unwrap_or(0));
            let nanoseconds = scalar(2, at.subsec_nanosecond().try_into().unwrap_or(0));
            field(number, &[seconds, nanoseconds].concat())
        }
        Map => {
            let members = value.as_object().into_iter().flatten();
            let entry = |(key, value): (&String, &Value)| {
                [field(1, key.as_bytes()), field(2, &text(value))].concat()
            };
            members.flat_map(|member| field(number, &entry(member))).collect()
        }
        Json => field(number, &field(1, value.to_string().as_bytes())),
        Message(fields) => field(number, &message(value, fields)),
        Messages(fields) => {
            let one = value.is_object().then_some(value);
            let all = one.into_iter().chain(value.as_array().into_iter().flatten());
            all.flat_map(|value| field(number, &message(value, fields))).collect()
        }
    }
}
