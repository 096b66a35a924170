//! Writes to the double as an administrator, and what a Node says.

use apidouble::Double;
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

/// The paths of all requests to the double, in their order.
pub fn paths(double: &Double) -> Vec<String> {
    double.requests().into_iter().map(|r| r.path).collect()
}

/// The condition of this type.
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = node["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// Whether the condition Ready is True.
pub fn is_ready(node: &Value) -> bool {
    condition(node, "Ready").is_some_and(|ready| ready["status"] == "True")
}
