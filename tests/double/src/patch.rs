//! The two patches: RFC 7386, and as much of strategic merge as kubectl and controllers send.

use serde_json::{Map, Value};

/// RFC 7386, section 2, word by word.
pub(crate) fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(changes) = patch else {
        return patch.clone();
    };
    let mut result = match target {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    for (name, value) in changes {
        if value.is_null() {
            result.remove(name);
        } else {
            let old = result.get(name).unwrap_or(&Value::Null);
            let new = merge(old, value);
            result.insert(name.clone(), new);
        }
    }
    Value::Object(result)
}

/// Merge keys of the lists that a strategic patch merges by key; all other lists are atomic,
/// except those of `UNIONS`, whose elements are primitive and added.
const MERGE_KEYS: [(&str, &str); 5] = [
    ("status.conditions", "type"),
    ("status.addresses", "type"),
    ("metadata.ownerReferences", "uid"),
    ("spec.taints", ""),
    ("status.volumesAttached", ""),
];
const UNIONS: [&str; 2] = ["metadata.finalizers", "spec.podCIDRs"];

/// Strategic merge patch.
pub(crate) fn strategic(target: &Value, patch: &Value) -> Result<Value, String> {
    strategic_at(target, patch, "")
}

fn strategic_at(target: &Value, patch: &Value, path: &str) -> Result<Value, String> {
    let Value::Object(changes) = patch else {
        return Ok(patch.clone());
    };
    let mut result = match target {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    match changes.get("$patch").and_then(Value::as_str) {
        Some("replace") => result.clear(),
        Some("delete") => return Ok(Value::Null),
        Some("merge") | None => {}
        Some(other) => return Err(format!("Unknown patch type: {other}")),
    }
    if let Some(kept) = changes.get("$retainKeys").and_then(Value::as_array) {
        result.retain(|name, _| kept.iter().any(|k| k.as_str() == Some(name)));
    }
    for (name, value) in changes {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = result.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            continue; // $patch, $retainKeys: done; $setElementOrder/…: the order is of no account
        }
        let here = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let old = result.get(name).unwrap_or(&Value::Null);
        let new = match value {
            Value::Null => Value::Null,
            Value::Array(items) => list(old, items, &here)?,
            other => strategic_at(old, other, &here)?,
        };
        if new.is_null() {
            result.remove(name);
        } else {
            result.insert(name.clone(), new);
        }
    }
    Ok(Value::Object(result))
}

fn list(old: &Value, items: &[Value], path: &str) -> Result<Value, String> {
    let old: &[Value] = old.as_array().map_or(&[], Vec::as_slice);
    if UNIONS.contains(&path) {
        let mut all = old.to_vec();
        for item in items {
            if !all.contains(item) {
                all.push(item.clone());
            }
        }
        return Ok(Value::Array(all));
    }
    let Some((_, key)) = MERGE_KEYS.iter().find(|(p, key)| *p == path && !key.is_empty()) else {
        return Ok(Value::Array(items.to_vec()));
    };
    let directive = |item: &Value| item.get("$patch").and_then(Value::as_str).map(str::to_owned);
    if items.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        let kept = items.iter().filter(|item| directive(item).is_none()).cloned();
        return Ok(Value::Array(kept.collect()));
    }
    let mut kept = old.to_vec();
    let mut added = Vec::new();
    for item in items {
        let Some(id) = item.get(key) else {
            return Err(format!("map: {item} does not contain declared merge key: {key}"));
        };
        let place = kept.iter().position(|k| k.get(key) == Some(id));
        match (directive(item).as_deref(), place) {
            (Some("delete"), Some(at)) => {
                kept.remove(at);
            }
            (Some("delete"), None) => {}
            (_, Some(at)) => kept[at] = strategic_at(&kept[at], item, path)?,
            (_, None) => added.push(item.clone()),
        }
    }
    // a new element comes first, as the recordings show (status.json, NetworkUnavailable)
    added.extend(kept);
    Ok(Value::Array(added))
}

#[cfg(test)]
mod tests {
    use super::{merge, strategic};
    use serde_json::{Value, json};

    #[test]
    fn rfc_7386_appendix_a() {
        for (target, patch, result) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, r"{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let parse = |text: &str| serde_json::from_str::<Value>(text).expect(text);
            assert_eq!(merge(&parse(target), &parse(patch)), parse(result), "{target} {patch}");
        }
    }

    #[test]
    fn strategic_patches_merge_conditions_by_type() {
        let node = json!({"spec": {"taints": [{"key": "a"}]}, "status": {"conditions": [
            {"type": "Ready", "status": "True", "reason": "x"}, {"type": "Disk", "status": "False"}]}});
        let patch = json!({"spec": {"taints": [{"key": "b"}]}, "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "Disk"}],
            "conditions": [{"type": "Ready", "status": "False"}, {"type": "Disk", "$patch": "delete"}]}});
        assert_eq!(
            strategic(&node, &patch),
            Ok(json!({"spec": {"taints": [{"key": "b"}]}, "status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "x"}]}}))
        );
        let replace = json!({"status": {"conditions": [{"type": "New"}, {"$patch": "replace"}]}});
        let replaced = strategic(&node, &replace).expect("a good patch");
        assert_eq!(replaced["status"]["conditions"], json!([{"type": "New"}]));
    }
}
