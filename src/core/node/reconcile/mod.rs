//! The adoption of an existing Node: the four parts that a kubelet reconciles once, when it finds
//! its Node on the server, and our annotation.
//!
//! The rest of the Node (taints, provider id, other labels and annotations) is unchanged.
//! Upstream: kubelet_node_status.go tryRegisterWithAPIServer.

use serde_json::{Map, Value, json};

use crate::config::NodeConfig;
use crate::core::status::{HUGE_PAGES, labels};
use crate::kube::names;
use crate::kube::object::{self, ATTACH_DETACH, DOCUMENTATION, quantity};
use crate::kube::quantity::Quantity;

/// Reconciles `existing` with `initial`, the Node that would have been created.
pub(super) fn reconcile(config: &NodeConfig, initial: &Value, existing: &mut Value) {
    annotations(initial, existing);
    labels::adopt(config, object::members(existing, &["metadata", "labels"]));
    for resources in ["capacity", "allocatable"] {
        if object::at(existing, &["status", resources]).is_none_or(Value::is_null)
            && let Some(ours) = object::at(initial, &["status", resources])
        {
            object::set(existing, &["status", resources], ours.clone());
        }
    }
    extended_resources(existing);
    huge_pages(initial, existing);
    // Volumes of a kubelet that ran here before: the controller does not detach a volume that
    // is listed here.
    object::members(existing, &["status"]).remove("volumesInUse");
}

fn annotations(initial: &Value, existing: &mut Value) {
    for key in [ATTACH_DETACH, DOCUMENTATION] {
        let path = ["metadata", "annotations", key];
        let ours = object::text(initial, &path);
        if ours == object::text(existing, &path) {
            continue;
        }
        let annotations = object::members(existing, &["metadata", "annotations"]);
        match ours {
            "" => annotations.remove(key),
            _ => annotations.insert(key.into(), ours.into()),
        };
    }
}

/// Without device plugins the amount of every extended resource is 0.
fn extended_resources(existing: &mut Value) {
    let names: Vec<String> = resources(existing, "capacity")
        .keys()
        .filter(|name| names::is_extended_resource(name))
        .cloned()
        .collect();
    for resources in ["capacity", "allocatable"] {
        let resources = object::members(existing, &["status", resources]);
        for name in &names {
            resources.insert(name.clone(), json!("0"));
        }
    }
}

fn huge_pages(initial: &Value, existing: &mut Value) {
    let ours = resources(initial, "capacity");
    let is_ours = |name: &str| !name.starts_with(HUGE_PAGES) || ours.contains_key(name);
    for resources in ["capacity", "allocatable"] {
        let members = object::members(existing, &["status", resources]);
        object::retain(members, &|name, _| is_ours(name));
    }
    for (name, size) in ours.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES)) {
        for resources in ["capacity", "allocatable"] {
            let resources = object::members(existing, &["status", resources]);
            let ours: Option<Quantity> = size.as_str().and_then(|text| text.parse().ok());
            if quantity(resources, name) != ours {
                resources.insert(name.clone(), size.clone());
            }
        }
    }
}

fn resources(node: &Value, which: &str) -> Map<String, Value> {
    match object::at(node, &["status", which]) {
        Some(Value::Object(resources)) => resources.clone(),
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests;
