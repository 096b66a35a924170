//! What a server adds to pods without resources, ports, probes and volumes: defaults and admission.
//! `tests/recordings/pods.json` has the results.

use crate::kinds::Kind;
use serde_json::{Value, json};

/// Sets a member that is absent.
pub(crate) fn default(object: &mut Value, member: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        map.entry(member).or_insert(value);
    }
}

/// The defaults that count as written by the client: `pkg/apis/core/v1/defaults.go`.
/// The image is one without a tag.
pub(crate) fn defaults(kind: &Kind, object: &mut Value) {
    if kind.kind != "Pod" {
        return;
    }
    default(object, "spec", json!({}));
    let spec = &mut object["spec"];
    default(spec, "enableServiceLinks", json!(true));
    for (member, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        default(spec, member, value);
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        for (member, value) in [
            ("resources", json!({})),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
            ("imagePullPolicy", json!("Always")),
        ] {
            default(container, member, value);
        }
    }
}

/// What admission and the strategy add to an object at its creation, which nobody owns:
/// DefaultTolerationSeconds, Priority, and the first status.
pub(crate) fn admit(kind: &Kind, object: &mut Value) {
    if kind.kind != "Pod" {
        return;
    }
    let toleration = |taint: &str| {
        json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 300})
    };
    let spec = &mut object["spec"];
    default(spec, "tolerations", json!([toleration("not-ready"), toleration("unreachable")]));
    default(spec, "priority", json!(0));
    default(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
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
