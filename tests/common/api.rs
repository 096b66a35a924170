//! Writes to the double as an administrator, and what a Node says.

use apidouble::{Double, Recorded};
use serde_json::Value;

/// A request of an administrator, which must be accepted; the answer. A PATCH is a merge patch.
pub fn admin(double: &Double, method: &str, path: &str, body: &Value) -> Value {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let (code, answer) = double.as_admin(method, path, media, body);
    assert!((200..300).contains(&code), "{method} {path}: {answer}");
    answer
}

/// Method, path and status code of each answered request that `is_meant`.
pub fn sent(double: &Double, is_meant: impl Fn(&Recorded) -> bool) -> Vec<String> {
    let requests = double.requests().into_iter().filter(|r| r.code > 0 && is_meant(r));
    requests.map(|r| format!("{} {} {}", r.method, r.path, r.code)).collect()
}

/// The condition of this type.
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// The status of the condition of this type.
pub fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    condition(node, kind).and_then(|c| c["status"].as_str()).unwrap_or("absent")
}

/// Status and message of the condition Ready.
pub fn ready(node: &Value) -> (&str, &str) {
    let message = condition(node, "Ready").and_then(|ready| ready["message"].as_str());
    (status_of(node, "Ready"), message.unwrap_or_default())
}

/// Whether the condition Ready is True.
pub fn is_ready(node: &Value) -> bool {
    status_of(node, "Ready") == "True"
}

/// The patches of a status, without the looks for changes by others.
pub fn status_patches(double: &Double) -> usize {
    let requests = double.requests().into_iter().filter(|r| r.method == "PATCH" && !r.is_look());
    requests.filter(|r| r.path.ends_with("/status")).count()
}

/// The reasons of the events, in the order of their names.
pub fn reasons(double: &Double) -> Vec<String> {
    let mut events = double.list("events");
    events.sort_by_key(|event| event["metadata"]["name"].as_str().unwrap().to_owned());
    events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect()
}
