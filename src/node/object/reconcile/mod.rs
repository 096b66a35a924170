//! The adoption of an existing Node: the four parts that a kubelet reconciles once, when it finds
//! its Node on the server, and our annotation.
//!
//! The rest of the Node (taints, provider id, other labels and annotations) is unchanged.
//! Upstream: kubelet_node_status.go tryRegisterWithAPIServer.

use serde_json::{Value, json};

use crate::config::NodeConfig;
use crate::kube::facts::Facts;
use crate::kube::names;
use crate::kube::object::{self, ATTACH_DETACH, DOCUMENTATION};
use crate::node::status::{HUGE_PAGES, labels};

/// Reconciles `existing` with `initial`, the Node that would have been created. The setters, which
/// run after it, set the amounts that this board has, and what is allocatable of each capacity.
/// Without the `facts` of its huge pages, the Node keeps those that it has.
pub(super) fn reconcile(config: &NodeConfig, facts: &Facts, initial: &Value, existing: &mut Value) {
    own_annotations(initial, existing);
    labels::adopt(config, object::members(existing, &["metadata", "labels"]));
    let is_unread = facts.huge_pages.as_ref().is_err_and(|unread| !unread.is_absent());
    let is_ours = |name: &str| {
        is_unread
            || !name.starts_with(HUGE_PAGES)
            || object::at(initial, &["status", "capacity", name]).is_some()
    };
    for resources in ["capacity", "allocatable"] {
        let resources = object::members(existing, &["status", resources]);
        object::retain(resources, &|name, _| is_ours(name));
    }
    // Without device plugins the amount of every extended resource is 0.
    for (name, amount) in object::members(existing, &["status", "capacity"]) {
        if names::is_extended_resource(name) {
            *amount = json!("0");
        }
    }
    // Volumes of a kubelet that ran here before: the controller does not detach a volume that
    // is listed here.
    object::members(existing, &["status"]).remove("volumesInUse");
}

fn own_annotations(initial: &Value, existing: &mut Value) {
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

#[cfg(test)]
mod tests;
