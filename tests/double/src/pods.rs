//! What a server adds to pods: defaults, admission, the class of quality of
//! service, and which pods a node is related to. `tests/recordings/pods.json` has the results.

use crate::kinds::Kind;
use serde_json::{Value, json};

/// Sets a member that is absent.
pub(crate) fn default(object: &mut Value, member: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.entry(member).or_insert(value);
    }
}

fn each<'a>(object: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let items = object.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten()
}

/// The defaults that count as written by the client: `pkg/apis/core/v1/defaults.go`.
/// Of containers without ports, probes and volumes.
pub(crate) fn defaults(kind: &Kind, object: &mut Value) {
    if kind.kind != "Pod" {
        return;
    }
    default(object, "spec", json!({}));
    let spec = &mut object["spec"];
    default(spec, "enableServiceLinks", json!(true));
    for container in each(spec, "containers") {
        requests_of_limits(container);
    }
    for (member, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        default(spec, member, value);
    }
    for container in each(spec, "containers") {
        let image = container["image"].as_str().unwrap_or("");
        let name = image.rsplit('/').next().unwrap_or("");
        let policy = match name.split_once(':') {
            None | Some((_, "latest")) if !name.contains('@') => "Always",
            _ => "IfNotPresent",
        };
        for (member, value) in [
            ("resources", json!({})),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("imagePullPolicy", json!(policy)),
        ] {
            default(container, member, value);
        }
    }
}

/// A limit is a request, too.
fn requests_of_limits(container: &mut Value) {
    let limits = container.pointer("/resources/limits").cloned();
    let Some(Value::Object(limits)) = limits else {
        return;
    };
    default(&mut container["resources"], "requests", json!({}));
    for (resource, limit) in limits {
        let requests = &mut container["resources"]["requests"];
        default(requests, &resource, limit);
    }
}

/// What admission and the strategy add to an object at its creation, which nobody owns:
/// DefaultTolerationSeconds, Priority, and the first status.
pub(crate) fn admit(kind: &Kind, object: &mut Value) {
    if kind.kind != "Pod" {
        return;
    }
    let spec = &mut object["spec"];
    default(spec, "tolerations", json!([]));
    for taint in ["not-ready", "unreachable"] {
        let key = format!("node.kubernetes.io/{taint}");
        let Some(tolerations) = spec["tolerations"].as_array_mut() else {
            continue;
        };
        let is = |value: &Value, wanted: &str| {
            let text = value.as_str().unwrap_or("");
            text.is_empty() || text == wanted
        };
        let is_tolerated = |one: &Value| is(&one["key"], &key) && is(&one["effect"], "NoExecute");
        if !tolerations.iter().any(is_tolerated) {
            let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300});
            tolerations.push(toleration);
        }
    }
    default(spec, "priority", json!(0));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    object["status"] = json!({"phase": "Pending", "qosClass": quality(object)});
}

/// `pkg/apis/core/v1/helper/qos/qos.go`, of containers alone.
fn quality(pod: &Value) -> &'static str {
    let containers = pod["spec"]["containers"].as_array().map_or(&[][..], Vec::as_slice);
    let amounts = |of: &str| {
        let resources = containers.iter().flat_map(move |container| {
            ["cpu", "memory"].map(|name| container["resources"][of][name].clone())
        });
        resources.collect::<Vec<Value>>()
    };
    let (requests, limits) = (amounts("requests"), amounts("limits"));
    if requests.iter().chain(&limits).all(Value::is_null) {
        "BestEffort"
    } else if requests == limits && !limits.iter().any(Value::is_null) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Without the difference between the two specs, in Go's names, which follows in the real one.
pub(crate) const FIXED: &str = "pod updates may not change fields other than \
    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),\
    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The part of a pod's spec that never changes: ValidatePodUpdate in
/// `pkg/apis/core/validation/validation.go`.
pub(crate) fn fixed(pod: &Value) -> Value {
    let mut spec = pod["spec"].clone();
    for list in ["containers", "initContainers"] {
        each(&mut spec, list).for_each(|container| container["image"] = Value::Null);
    }
    for member in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        spec[member] = Value::Null;
    }
    spec
}

/// What the strategies preserve after the client's change was attributed to it.
pub(crate) fn preserve(kind: &Kind, subresource: &str, old: &Value, new: &mut Value) {
    if (kind.kind, subresource) == ("Pod", "status") {
        for member in ["qosClass", "observedGeneration"] {
            if let Some(value) = old["status"].get(member) {
                default(&mut new["status"], member, value.clone());
            }
        }
    }
}
