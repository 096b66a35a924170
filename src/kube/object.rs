//! Objects as the server holds them: whole JSON trees, of which we know a part.
//!
//! A Node is kept as the tree that was read, so that members nobody here has heard
//! of survive every patch. Nothing in it is trusted to have the type that the API
//! says: a member of another type reads as absent and is replaced when written.

use serde_json::{Map, Value};

use crate::kube::quantity::Quantity;

/// The text at `path`; empty where there is none.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The member at `path`.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The elements of the list at `path`; none where there is no list.
pub fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The members of the object at `path`, made where they are missing.
pub fn members<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut value = object;
    for key in path {
        value = as_object(value).entry(*key).or_insert(Value::Null);
    }
    as_object(value)
}

/// The list `key` of an object, made where it is missing.
pub fn elements<'a>(object: &'a mut Map<String, Value>, key: &str) -> &'a mut Vec<Value> {
    let value = object.entry(key).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(elements) => elements,
        _ => unreachable!("made an array above"),
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("made an object above"),
    }
}

/// The quantity `key`, where it is one.
pub fn quantity(resources: &Map<String, Value>, key: &str) -> Option<Quantity> {
    resources.get(key)?.as_str()?.parse().ok()
}

/// Sets the quantity `key`, but leaves a text that means the same untouched:
/// `4000m` of another writer is no reason to patch.
pub fn set_quantity(resources: &mut Map<String, Value>, key: &str, value: Quantity) {
    if quantity(resources, key) != Some(value) {
        resources.insert(key.to_owned(), value.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_of_the_wrong_type_read_as_absent_and_are_replaced() {
        let mut node = json!({"metadata": 7, "status": {"conditions": "none"}});
        assert_eq!(text(&node, &["metadata", "uid"]), "");
        assert_eq!(list(&node, &["status", "conditions"]), [] as [Value; 0]);
        members(&mut node, &["metadata", "labels"]).insert("a".into(), "b".into());
        elements(members(&mut node, &["status"]), "conditions").push(json!(1));
        assert_eq!(
            node,
            json!({"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [1]}})
        );
    }

    #[test]
    fn a_quantity_that_means_the_same_keeps_its_text() {
        let mut capacity = members(&mut json!({"cpu": "4000m", "memory": "1Gi"}), &[]).clone();
        set_quantity(&mut capacity, "cpu", Quantity::count(4));
        set_quantity(&mut capacity, "memory", Quantity::bytes(2 << 30));
        assert_eq!(
            Value::from(capacity),
            json!({"cpu": "4000m", "memory": "2Gi"})
        );
    }
}
