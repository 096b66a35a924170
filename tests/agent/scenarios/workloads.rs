//! The workloads of the scenarios. Their pods have no volumes and ask for no resources: only what
//! decides about placement is that of the original.

use serde_json::{Value, json};

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

/// The path of the workloads of this kind.
pub(super) fn path(workload: &Value) -> String {
    let kind = workload["kind"].as_str().unwrap().to_lowercase();
    format!("/apis/apps/v1/namespaces/default/{kind}s")
}

/// A merge patch that makes all pods anew.
pub(super) fn another_template() -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"nodelet.test/roll": "2"}}}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use support::{Folder, skip};

    /// All of `part` is in `whole`.
    fn contains(whole: &Value, part: &Value) -> bool {
        match (whole, part) {
            (Value::Object(whole), Value::Object(part)) => part
                .iter()
                .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
            (Value::Array(whole), Value::Array(part)) => {
                whole.len() == part.len() && whole.iter().zip(part).all(|(w, p)| contains(w, p))
            }
            _ => whole == part,
        }
    }

    /// What kubectl makes of an object with the types of the API: `set image` decodes it, and drops
    /// each field that the type lacks.
    fn typed(object: &Value) -> Value {
        let folder = Folder::new("typed");
        let path = folder.write("object.json", object.to_string());
        let output = Command::new("kubectl")
            .args(["set", "image", "--local", "--output=json", "pause=other"])
            .arg("--filename")
            .arg(path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!output.stdout.is_empty(), "the image has not changed");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn each_field_of_the_workloads_is_one_of_its_type() {
        if !skip::has_optional_tool("kubectl") {
            return;
        }
        let survives = |mut object: Value| {
            let typed = typed(&object);
            let image = "/spec/template/spec/containers/0/image";
            *object.pointer_mut(image).unwrap() = "other".into();
            contains(&typed, &object)
        };
        for object in [kube_proxy(), flannel(), spread("web", &["host"])] {
            assert!(survives(object.clone()), "{object}");
            let mut wrong = object;
            wrong["spec"]["template"]["spec"]["tolerationz"] = json!([]);
            assert!(!survives(wrong), "an unknown field");
        }
    }

    #[test]
    fn the_paths_are_those_of_the_kinds() {
        assert_eq!(
            path(&kube_proxy()),
            "/apis/apps/v1/namespaces/default/daemonsets"
        );
        assert_eq!(
            path(&spread("web", &[])),
            "/apis/apps/v1/namespaces/default/deployments"
        );
    }
}
