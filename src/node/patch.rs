//! JSON merge patches (RFC 7386): the difference between the server's object and the desired one.
//!
//! A merge patch replaces a list as a whole, so it would undo changes that other clients made to
//! the list since it was read. Every patch is therefore sent with the resourceVersion that it was
//! built from ([`with_precondition`]).

use serde_json::{Map, Value};

/// The merge patch that turns `seen` into `want`, or `None` where they are equal.
///
/// Members that `want` lacks are deleted with `null`. A merge patch cannot express a `null` inside
/// `want`: it counts as an absent member.
pub fn diff(seen: &Value, want: &Value) -> Option<Value> {
    let (Value::Object(seen), Value::Object(want)) = (seen, want) else {
        return (seen != want).then(|| want.clone());
    };
    let mut patch = Map::new();
    for (key, want) in present(want) {
        match seen.get(key).filter(|value| !value.is_null()) {
            Some(seen) => {
                if let Some(change) = diff(seen, want) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), want.clone());
            }
        }
    }
    for (key, _) in present(seen) {
        if want.get(key).is_none_or(Value::is_null) {
            patch.insert(key.clone(), Value::Null);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn present(object: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    object.iter().filter(|(_, value)| !value.is_null())
}

/// Adds the precondition to `patch`: the server responds with 409 if the object has changed since.
///
/// `None` unless `resource_version` is a positive decimal number: the server applies a patch with
/// an empty or zero resourceVersion to a Node without a precondition.
pub fn with_precondition(mut patch: Value, resource_version: &str) -> Option<Value> {
    debug_assert!(patch.is_object(), "{patch}");
    if !is_precondition(resource_version) {
        return None;
    }
    patch
        .as_object_mut()?
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
        .as_object_mut()?
        .insert("resourceVersion".to_owned(), resource_version.into());
    Some(patch)
}

/// Whether the server treats `resource_version` as a precondition.
pub fn is_precondition(resource_version: &str) -> bool {
    resource_version.bytes().all(|b| b.is_ascii_digit())
        && resource_version.bytes().any(|b| b != b'0')
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The pseudocode of RFC 7386 §2, as the server applies a patch.
    pub(crate) fn apply(target: Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else {
            return patch.clone();
        };
        let mut target = match target {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                let old = target.remove(name).unwrap_or(Value::Null);
                target.insert(name.clone(), apply(old, value));
            }
        }
        Value::Object(target)
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// Any object without null: a merge patch cannot set a member to null.
    fn json_object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-f]", json_value(), 0..6)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        /// kubelet_node_status_test.go TestUpdateNodeAddresses, for any lists.
        #[test]
        fn applying_the_difference_gives_the_desired_object(seen in json_object(), want in json_object()) {
            let got = match diff(&seen, &want) {
                Some(patch) => apply(seen, &patch),
                None => seen,
            };
            prop_assert_eq!(&got, &want);
            prop_assert_eq!(diff(&got, &want), None);
        }
    }

    #[test]
    fn lists_are_replaced_and_members_deleted_with_null() {
        let seen = json!({"a": [1, 2], "b": {"c": 1, "d": 2}, "e": 1});
        let want = json!({"a": [2], "b": {"c": 1}, "e": 1, "f": {}});
        assert_eq!(diff(&seen, &want), Some(json!({"a": [2], "b": {"d": null}, "f": {}})));
    }

    #[test]
    fn null_counts_as_absent_on_both_sides() {
        assert_eq!(diff(&json!({"a": null}), &json!({})), None);
        assert_eq!(diff(&json!({}), &json!({"a": null})), None);
        assert_eq!(diff(&json!({"a": 1}), &json!({"a": null})), Some(json!({"a": null})));
    }

    #[test]
    fn a_patch_without_a_valid_resource_version_is_refused() {
        let patch = json!({"status": {"conditions": []}});
        for unconditional in ["", "0", "00", "12a", "-1"] {
            assert_eq!(with_precondition(patch.clone(), unconditional), None);
        }
        assert_eq!(
            with_precondition(patch, "812345"),
            Some(json!({"metadata": {"resourceVersion": "812345"}, "status": {"conditions": []}}))
        );
    }
}
