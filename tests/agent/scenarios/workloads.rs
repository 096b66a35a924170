//! The workloads of the scenarios. Their pods have no volumes and ask for no resources: only what
//! decides about placement is that of the original.

use serde_json::{Value, json};

use super::accepted;
use crate::common::cluster::Cluster;

/// kubeadm's kube-proxy (cmd/kubeadm/app/phases/addons/proxy/manifests.go): selects an operating
/// system, and tolerates everything.
pub(super) fn kube_proxy() -> Value {
    daemon_set(
        "kube-proxy",
        json!({"nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}]}),
    )
}

/// flannel (flannel-io/flannel, Documentation/kube-flannel.yml): selects an operating system by
/// affinity, and tolerates each NoSchedule.
pub(super) fn flannel() -> Value {
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    daemon_set(
        "flannel",
        json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [linux]}]}}},
            "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}),
    )
}

fn daemon_set(name: &str, mut spec: Value) -> Value {
    spec["hostNetwork"] = true.into();
    workload("DaemonSet", name, spec)
}

/// Six pods, spread over each of `keys`, that leave a silent node at once.
pub(super) fn spread(name: &str, keys: &[&str]) -> Value {
    let constraint = |key: &&str| {
        json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": name}}})
    };
    let toleration = |key: &str| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": 1})
    };
    let constraints: Vec<Value> = keys.iter().map(constraint).collect();
    let tolerations = ["not-ready", "unreachable"].map(toleration);
    let spec = json!({"topologySpreadConstraints": constraints, "tolerations": tolerations});
    let mut object = workload("Deployment", name, spec);
    object["spec"]["replicas"] = REPLICAS.into();
    object
}

pub(super) const REPLICAS: usize = 6;

fn workload(kind: &str, name: &str, mut pod: Value) -> Value {
    pod["containers"] = json!([{"name": "pause", "image": "pause"}]);
    pod["terminationGracePeriodSeconds"] = 1.into();
    let labels = json!({"app": name});
    json!({"apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}}})
}

/// The path of the workloads of a kind, in lower case.
pub(super) fn path(kind: &str) -> String {
    format!("/apis/apps/v1/namespaces/default/{kind}s")
}

/// Creates a workload; each field must be one of its type.
pub(super) fn create(cluster: &Cluster, workload: &Value) {
    let kind = workload["kind"].as_str().unwrap().to_lowercase();
    let path = format!("{}?fieldValidation=Strict", path(&kind));
    accepted(cluster.post(&path, workload));
}

/// A merge patch that makes all pods anew.
pub(super) fn another_template() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"nodelet.test/roll": "2"}}}}})
}
