//! The two patches: RFC 7386, and as much of strategic merge as kubectl and controllers send.

use serde_json::{Map, Value};

/// RFC 7386, section 2, word by word. `is_strategic`: except that conditions are merged by type.
pub(crate) fn merge(target: &Value, patch: &Value, is_strategic: bool) -> Value {
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
            continue;
        }
        let old = result.get(name).unwrap_or(&Value::Null);
        let new = match (old, value) {
            (Value::Array(old), Value::Array(new)) if is_strategic && name == "conditions" => {
                by_type(old, new)
            }
            _ => merge(old, value, is_strategic),
        };
        result.insert(name.clone(), new);
    }
    Value::Object(result)
}

/// A new element comes first, as the recordings show (status.json, NetworkUnavailable).
fn by_type(old: &[Value], new: &[Value]) -> Value {
    let mut all = old.to_vec();
    for item in new {
        match all.iter_mut().find(|known| known["type"] == item["type"]) {
            Some(known) => *known = merge(known, item, true),
            None => all.insert(0, item.clone()),
        }
    }
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use super::merge;
    use serde_json::Value;

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
            let merged = merge(&parse(target), &parse(patch), false);
            assert_eq!(merged, parse(result), "{target} {patch}");
        }
    }
}
