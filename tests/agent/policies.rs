//! The manifests of `systemd/cluster`: their structure, and what a real API server does with them.
//!
//! The double has no admission policies: see `tests/common/cluster` for a real server.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
};
use nodelet::kube::yaml;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::common::cluster::{Cluster, post_as};
use support::{Folder, eventually, skip};

const SOON: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(40);

/// The values that a field may have, where the types of Kubernetes have only a text.
const VALUES: [(&str, &[&str]); 3] = [
    ("/spec/failurePolicy", &["Fail", "Ignore"]),
    ("/spec/reinvocationPolicy", &["Never", "IfNeeded"]),
    ("/spec/mutations/0/patchType", &["JSONPatch", "ApplyConfiguration"]),
];

fn text(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/cluster");
    fs::read_to_string(folder.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The policy of a file, and its binding.
fn policy(file: &str) -> [Value; 2] {
    let text = text(file);
    let documents = text.split("\n---\n").map(|text| yaml::parse(text).unwrap());
    let documents: Vec<Value> = documents.collect();
    documents
        .try_into()
        .unwrap_or_else(|found: Vec<Value>| panic!("{file}: {} documents", found.len()))
}

/// The object has all required fields of its kind, and no others than the kind has.
fn assert_is<T: DeserializeOwned + Serialize>(object: &Value) {
    let typed: T = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), *object);
    for (path, known) in VALUES {
        let value = object.pointer(path);
        assert!(value.is_none_or(|value| known.iter().any(|known| value == known)), "{object}");
    }
}

#[test]
fn each_policy_and_its_binding_have_the_fields_of_their_kinds() {
    let [mutating, binding] = policy("daemonsets.yaml");
    assert_is::<MutatingAdmissionPolicy>(&mutating);
    assert_is::<MutatingAdmissionPolicyBinding>(&binding);
    assert_eq!(binding["spec"]["policyName"], mutating["metadata"]["name"]);
    for file in ["podcidrs.yaml", "stolen-boards.yaml"] {
        let [validating, binding] = policy(file);
        assert_is::<ValidatingAdmissionPolicy>(&validating);
        assert_is::<ValidatingAdmissionPolicyBinding>(&binding);
        assert_eq!(binding["spec"]["policyName"], validating["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
        assert!(validating["spec"]["validations"][0]["message"].is_string());
    }
}

/// `kubectl patch` merges the file into a DaemonSet as the API server would.
#[test]
fn the_patch_keeps_a_daemonset_off_boards() {
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let folder = Folder::new("patch");
    let path = folder.write("daemonset.json", daemonset(&json!({})).to_string());
    let patch = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/cluster/daemonset-patch.yaml");
    let output = Command::new("kubectl")
        .args(["patch", "--local", "--output=json", "--filename"])
        .arg(path)
        .arg("--patch-file")
        .arg(patch)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let patched: Value = serde_json::from_slice(&output.stdout).unwrap();
    let affinity = &patched["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let expression = json!({"key": "kubernetes.io/os", "operator": "NotIn", "values": ["nodelet"]});
    assert_eq!(*terms, json!([{"matchExpressions": [expression]}]));
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["name"], "pause");
}

fn daemonset(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["containers"] = json!([{"name": "pause", "image": "pause"}]);
    let labels = json!({"app": "nodelet-policies"});
    json!({"apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "nodelet-policies", "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}}})
}

/// A real control plane with a policy and its binding; `None`, and a skip, without one, and for an
/// API server from before the policy's kind: 1.30 for Validating, 1.36 for MutatingAdmissionPolicy.
fn start_with(file: &str) -> Option<Cluster> {
    let cluster = Cluster::start_real(GRACE)?;
    let objects = policy(file);
    let kinds = cluster.get("/apis/admissionregistration.k8s.io/v1").expect("its kinds");
    let is_known = kinds["resources"]
        .as_array()
        .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"] == objects[0]["kind"]));
    if !is_known {
        skip::optional(&format!("{file}: this API server has no {}", objects[0]["kind"]));
        return None;
    }
    apply(&cluster, &objects);
    Some(cluster)
}

/// Creates a policy and its binding.
fn apply(cluster: &Cluster, objects: &[Value; 2]) {
    for (object, end) in objects.iter().zip(["policies", "policybindings"]) {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let (start, _) = kind.split_once("policy").unwrap();
        let path = format!("/apis/admissionregistration.k8s.io/v1/{start}{end}");
        let (code, answer) = cluster.post(&path, object);
        // A cluster that runs already may have it.
        assert!([201, 409].contains(&code), "{path}: {code} {answer}");
    }
}

/// Repeats a request until it has the answer that the new policy causes: the API server applies a
/// policy some time after it was created.
fn once_applied(mut request: impl FnMut() -> bool) {
    eventually("the policy", SOON, || request().then_some(()));
}

#[test]
fn a_real_server_adds_the_selector_to_daemonsets_without_one() {
    let Some(cluster) = start_with("daemonsets.yaml") else {
        return;
    };
    let selector = |pod: Value| {
        let path = "/apis/apps/v1/namespaces/default/daemonsets?dryRun=All";
        let (_, answer) = cluster.post(path, &daemonset(&pod));
        answer["spec"]["template"]["spec"]["nodeSelector"].clone()
    };
    let linux = json!({"kubernetes.io/os": "linux"});
    once_applied(|| selector(json!({})) == linux);
    assert_eq!(
        selector(json!({"nodeSelector": {"disk": "ssd"}})),
        json!({"disk": "ssd", "kubernetes.io/os": "linux"})
    );
    let windows = json!({"kubernetes.io/os": "windows"});
    assert_eq!(selector(json!({"nodeSelector": windows})), windows);
}

#[test]
fn a_real_server_denies_a_board_its_pod_cidr() {
    let Some(cluster) = start_with("podcidrs.yaml") else {
        return;
    };
    let [board, server] = ["nodelet", "linux"].map(|os| {
        let name = cluster.node_name(&format!("policies-{os}"));
        let node = json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/os": os}}});
        let (code, answer) = cluster.post("/api/v1/nodes", &node);
        assert_eq!(code, 201, "{answer}");
        format!("/api/v1/nodes/{name}?dryRun=All")
    });
    let range = json!({"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}});
    once_applied(|| {
        let (code, answer) = cluster.patch(&board, &range);
        let message = answer["message"].as_str().unwrap_or_default();
        code == 422 && message.contains("a board without pods takes no podCIDR")
    });
    assert_eq!(cluster.patch(&server, &range).0, 200);
    let label = json!({"metadata": {"labels": {"example.com/place": "barn"}}});
    assert_eq!(cluster.patch(&board, &label).0, 200);
}

#[test]
fn a_real_server_denies_a_stolen_board_every_write() {
    let Some(cluster) = start_with("stolen-boards.yaml") else {
        return;
    };
    if cluster.port().is_none() {
        skip::optional("this cluster gives no certificates of nodes");
        return;
    }
    let create = |name: &str| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        post_as(&cluster.kubeconfig(name), "/api/v1/nodes?dryRun=All", &node)
    };
    once_applied(|| {
        let (code, answer) = create("stolen-board");
        let message = answer["message"].as_str().unwrap_or_default();
        code == 422 && message.contains("this board was stolen")
    });
    assert_eq!(create("other-board").0, 201);
}
