//! Access to API objects as JSON trees.
//!
//! A Node is kept as the tree that was read, so that unknown members survive every patch. A member
//! with another type than the API defines reads as absent and is replaced when written.

use serde_json::{Map, Value};

use crate::kube::quantity::Quantity;

/// The annotation that the attach-detach controller reads.
pub const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// The annotation with `--node-ip` for the cloud controller.
pub const PROVIDED_NODE_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// The annotations from which the cloud controllers of k3s and rke2 take the InternalIP addresses
/// of a Node, joined by commas. Upstream: k3s `pkg/cloudprovider/instances.go`.
pub const K3S_INTERNAL_IP: [&str; 2] = ["k3s.io/internal-ip", "rke2.io/internal-ip"];
/// The same for the Hostname address.
pub const K3S_HOSTNAME: [&str; 2] = ["k3s.io/hostname", "rke2.io/hostname"];
/// Annotation of the API's copy of a static pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";
/// The annotation that says where a person who found the Node reads on.
pub const DOCUMENTATION: &str = "nodelet/documentation";
/// Our own annotations begin with this.
const OWN: &str = "nodelet/";
/// The annotations of others that are read here.
const ANNOTATIONS: [&str; 7] = [
    ATTACH_DETACH,
    PROVIDED_NODE_IP,
    K3S_INTERNAL_IP[0],
    K3S_INTERNAL_IP[1],
    K3S_HOSTNAME[0],
    K3S_HOSTNAME[1],
    MIRROR,
];

/// The path of the Leases of all Nodes.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// Whether an object that was read has kept this annotation. `node::status::desired` may set only
/// such annotations: any other one is missing from a Node that was read, so it would be sent again
/// with each report.
pub fn is_read_annotation(name: &str) -> bool {
    name.starts_with(OWN) || ANNOTATIONS.contains(&name)
}

/// Whether an answer is an object of this kind, or the metadata of one.
pub fn is_kind(object: &Value, kind: &str) -> bool {
    [kind, "PartialObjectMetadata"].contains(&text(object, &["kind"]))
}

/// The string at `path`; empty if there is none.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The member at `path`.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(object, |value, key| value.get(key))
}

/// The elements of the list at `path`; empty if there is no list.
pub fn list<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The element of a list with this `type`: a condition, or an address of a Node.
pub fn of_type<'a>(list: &'a [Value], kind: &str) -> Option<&'a Value> {
    list.iter().find(|element| text(element, &["type"]) == kind)
}

/// The condition of this type in the status of a Node.
pub fn condition<'a>(node: &'a Value, kind: &str) -> Option<&'a Value> {
    of_type(list(node, &["status", "conditions"]), kind)
}

/// The first address of this type in the status of a Node.
pub fn address<'a>(node: &'a Value, kind: &str) -> Option<&'a str> {
    of_type(list(node, &["status", "addresses"]), kind).map(|found| text(found, &["address"]))
}

/// The members of the object at `path`, which is created if it is missing.
pub fn members<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    as_object(place(object, path))
}

/// Sets the member at `path`.
pub fn set(object: &mut Value, path: &[&str], value: Value) {
    *place(object, path) = value;
}

/// The elements of the list at `path`, which is created if it is missing.
pub fn elements<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Vec<Value> {
    let value = place(object, path);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    match value {
        Value::Array(elements) => elements,
        _ => unreachable!("made an array above"),
    }
}

/// The member at `path`; null if it was missing.
fn place<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(object, |value, key| as_object(value).entry(*key).or_insert(Value::Null))
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

/// Removes the members of which `keep` is false. Not generic: `retain` of a map is 500 bytes of
/// code for each closure.
pub fn retain(members: &mut Map<String, Value>, keep: &dyn Fn(&str, &Value) -> bool) {
    members.retain(|key, value| keep(key, value));
}

/// The quantity `key`, if it is valid.
pub fn quantity(resources: &Map<String, Value>, key: &str) -> Option<Quantity> {
    resources.get(key)?.as_str()?.parse().ok()
}

/// Sets the quantity `key`. A text with the same value is kept: `4000m` of another writer does not
/// cause a patch.
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
        set(&mut node, &["metadata", "labels", "a"], "b".into());
        elements(&mut node, &["status", "conditions"]).push(json!(1));
        assert_eq!(
            node,
            json!({"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [1]}})
        );
    }

    #[test]
    fn a_quantity_with_the_same_value_keeps_its_text() {
        let mut capacity = members(&mut json!({"cpu": "4000m", "memory": "1Gi"}), &[]).clone();
        set_quantity(&mut capacity, "cpu", Quantity::count(4));
        set_quantity(&mut capacity, "memory", Quantity::bytes(2 << 30));
        assert_eq!(Value::from(capacity), json!({"cpu": "4000m", "memory": "2Gi"}));
    }
}
