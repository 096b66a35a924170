//! The two patches: RFC 7386, and as much of strategic merge as kubectl and controllers send.

use serde_json::Value;

/// The target with a merge patch. `is_strategic`: its conditions are merged by type.
pub(crate) fn merge(target: &Value, patch: &Value, is_strategic: bool) -> Value {
    let (mut result, mut patch) = (target.clone(), patch.clone());
    let new = patch.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    if is_strategic && let (Some(old), Some(new)) = (target["status"]["conditions"].as_array(), new)
    {
        *new = by_type(old, new);
    }
    json_patch::merge(&mut result, &patch);
    result
}

/// A new element comes first, as the recordings show (status.json, NetworkUnavailable).
fn by_type(old: &[Value], new: &[Value]) -> Vec<Value> {
    let mut all = old.to_vec();
    for item in new {
        match all.iter_mut().find(|known| known["type"] == item["type"]) {
            Some(known) => json_patch::merge(known, item),
            None => all.insert(0, item.clone()),
        }
    }
    all
}
