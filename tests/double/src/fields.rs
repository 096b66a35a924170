//! `metadata.managedFields`: plausible entries, so that their size and their rules are felt.

use crate::time;
use serde_json::{Map, Value, json};

/// Who writes: the manager's name, the group version and the subresource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
}

/// The manager's name: `?fieldManager`, or the User-Agent up to the first `/`.
pub(crate) fn manager(query: Option<&str>, user_agent: &str) -> String {
    match query {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => {
            let name = user_agent.split('/').next().unwrap_or("");
            if name.is_empty() {
                "unknown".to_owned()
            } else {
                name.to_owned()
            }
        }
    }
}

/// Sets `new`'s managedFields from those of `old` and what changed.
pub(crate) fn track(old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let wanted = new["metadata"].get("managedFields").cloned();
    let cleared = wanted == Some(json!([{}]));
    let before = old.map(|o| o["metadata"]["managedFields"].clone());
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    // reset, or reset before: such an object carries none from then on
    if cleared || before == Some(Value::Null) {
        return;
    }
    let mut entries = before
        .and_then(|b| b.as_array().cloned())
        .unwrap_or_default();
    let mut changed = difference(&strip(old), &strip(Some(new)));
    if old.is_none()
        && let Some(map) = changed.as_object_mut()
    {
        // creation resets status, and what is empty is not owned
        map.remove("f:status");
        map.retain(|_, v| v.as_object().is_some_and(|v| !v.is_empty()));
    }
    if changed.as_object().is_some_and(|c| !c.is_empty()) {
        let same = |e: &Value| {
            e["manager"] == writer.manager
                && e["operation"] == "Update"
                && e["apiVersion"] == writer.api_version
                && e.get("subresource").and_then(Value::as_str).unwrap_or("") == writer.subresource
        };
        let fields = match entries.iter().position(same) {
            Some(at) => union(&entries.remove(at)["fieldsV1"], &changed),
            None => changed,
        };
        let mut entry = json!({"manager": writer.manager, "operation": "Update",
            "apiVersion": writer.api_version, "time": time::now(), "fieldsType": "FieldsV1",
            "fieldsV1": fields});
        if !writer.subresource.is_empty() {
            entry["subresource"] = json!(writer.subresource);
        }
        entries.push(entry);
    }
    if !entries.is_empty() {
        new["metadata"]["managedFields"] = Value::Array(entries);
    }
}

/// What of an object is owned by somebody.
fn strip(object: Option<&Value>) -> Value {
    let Some(object) = object else {
        return json!({});
    };
    let mut object = object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for key in [
            "name",
            "namespace",
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "selfLink",
            "generation",
        ] {
            metadata.remove(key);
        }
    }
    object
}

fn difference(old: &Value, new: &Value) -> Value {
    let mut found = Map::new();
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return Value::Object(found);
    };
    for (key, value) in new {
        let before = old.get(key).unwrap_or(&Value::Null);
        if before == value || value.is_null() {
            continue;
        }
        let inner = match value {
            Value::Object(_) => {
                let empty = json!({});
                difference(if before.is_object() { before } else { &empty }, value)
            }
            Value::Array(items) if key == "conditions" => conditions(before, items),
            _ => json!({}),
        };
        found.insert(format!("f:{key}"), inner);
    }
    Value::Object(found)
}

fn conditions(before: &Value, items: &[Value]) -> Value {
    let empty = json!({});
    let mut found = Map::new();
    for item in items {
        let old = before
            .as_array()
            .and_then(|b| b.iter().find(|o| o["type"] == item["type"]));
        if old != Some(item) {
            let fields = difference(old.unwrap_or(&empty), item);
            found.insert(format!("k:{{\"type\":{}}}", item["type"]), fields);
        }
    }
    Value::Object(found)
}

fn union(a: &Value, b: &Value) -> Value {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a.clone();
    };
    let mut all = a.clone();
    for (key, value) in b {
        let merged = all
            .get(key)
            .map_or_else(|| value.clone(), |old| union(old, value));
        all.insert(key.clone(), merged);
    }
    Value::Object(all)
}
