//! Admission: NodeRestriction, and TaintNodesByCondition.

use crate::auth::User;
use crate::der::CertificateRequest;
use crate::kinds::Kind;
use crate::status::{Failure, forbidden};
use base64::Engine as _;
use serde_json::{Value, json};

/// What a node may do to an object: `old` is absent on creation, `new` on deletion.
pub(crate) fn node_restriction(
    user: &User,
    kind: &Kind,
    name: &str,
    namespace: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> Result<(), Failure> {
    if !user.is_in("system:nodes") {
        return Ok(());
    }
    let about = kind.about(name);
    let refuse = |why: String| Err(forbidden(&about, &why));
    let Some(node) = user.node() else {
        return refuse(format!("could not determine node from user \"{}\"", user.name));
    };
    match kind.kind {
        "Node" => {
            if name != node {
                return refuse(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
            }
            match (old, new) {
                (None, Some(new)) => created_node(node, new).or_else(refuse),
                (Some(old), Some(new)) => changed_node(node, old, new).or_else(refuse),
                _ => Ok(()),
            }
        }
        "Pod" => own_pod(node, old, new).or_else(refuse),
        "Lease" => {
            if namespace != "kube-node-lease" {
                return refuse(
                    "can only access leases in the \"kube-node-lease\" system namespace".to_owned(),
                );
            }
            if name != node {
                return refuse(
                    "can only access node lease with the same name as the requesting node"
                        .to_owned(),
                );
            }
            Ok(())
        }
        "CertificateSigningRequest" if old.is_none() => match new {
            Some(new) => own_request(node, new).or_else(refuse),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn created_node(node: &str, new: &Value) -> Result<(), String> {
    let wrong = forbidden_labels(
        new["metadata"]["labels"].as_object().into_iter().flatten().map(|(k, _)| k.as_str()),
    );
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!(
            "node \"{node}\" is not allowed to set the following labels: {}",
            wrong.join(", ")
        ))
    }
}

fn changed_node(node: &str, old: &Value, new: &Value) -> Result<(), String> {
    let same = |path: [&str; 2]| {
        let list =
            |object: &Value| object[path[0]][path[1]].as_array().cloned().unwrap_or_default();
        list(old) == list(new)
    };
    if !same(["spec", "taints"]) {
        return Err(format!("node \"{node}\" is not allowed to modify taints"));
    }
    if !same(["metadata", "ownerReferences"]) {
        return Err(format!("node \"{node}\" is not allowed to modify ownerReferences"));
    }
    let empty = serde_json::Map::new();
    let labels =
        |object: &Value| object["metadata"]["labels"].as_object().unwrap_or(&empty).clone();
    let (before, after) = (labels(old), labels(new));
    let keys = before.keys().chain(after.keys().filter(|k| !before.contains_key(*k)));
    let changed = keys.filter(|k| before.get(*k) != after.get(*k)).map(String::as_str);
    let wrong = forbidden_labels(changed);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("is not allowed to modify labels: {}", wrong.join(", ")))
    }
}

/// A node ends pods that are bound to it, and changes their status. Mirror pods are not known here.
fn own_pod(node: &str, old: Option<&Value>, new: Option<&Value>) -> Result<(), String> {
    let is_bound = |pod: &Value| pod["spec"]["nodeName"] == node;
    match (old, new) {
        (Some(old), None) if !is_bound(old) => {
            Err(format!("node \"{node}\" can only delete pods with spec.nodeName set to itself"))
        }
        (Some(old), Some(_)) if !is_bound(old) => Err(format!(
            "node \"{node}\" can only update pod status for pods with spec.nodeName set to itself"
        )),
        (Some(old), Some(new)) if old["metadata"]["labels"] != new["metadata"]["labels"] => {
            Err(format!("node \"{node}\" cannot update labels through pod status"))
        }
        (None, Some(_)) => Err(format!(
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"{node}\" can only \
             create mirror pods"
        )),
        _ => Ok(()),
    }
}

const ALLOWED: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// Whether a node may set this label on itself.
pub(crate) fn label_allowed(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else {
        return true;
    };
    let within = |domain: &str| namespace == domain || namespace.ends_with(&format!(".{domain}"));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    ALLOWED.contains(&key) || within("kubelet.kubernetes.io") || within("node.kubernetes.io")
}

fn forbidden_labels<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut wrong: Vec<&str> = keys.filter(|k| !label_allowed(k)).collect();
    wrong.sort_unstable();
    wrong
}

fn own_request(node: &str, new: &Value) -> Result<(), String> {
    let signer = new["spec"]["signerName"].as_str().unwrap_or("");
    if !["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"]
        .contains(&signer)
    {
        return Ok(());
    }
    let request = request_der(new).unwrap_or_default();
    let wanted = format!("system:node:{node}");
    match CertificateRequest::parse(&request) {
        Some(parsed) if parsed.subject.common_name == wanted => Ok(()),
        Some(_) => Err(format!("can only create a node CSR with CN={wanted}")),
        None => Err("unable to parse csr".to_owned()),
    }
}

/// The DER inside `spec.request`.
pub(crate) fn request_der(csr: &Value) -> Option<Vec<u8>> {
    let engine = base64::engine::general_purpose::STANDARD;
    let text = engine.decode(csr["spec"]["request"].as_str()?).ok()?;
    let request = pem::parse(text).ok().filter(|pem| pem.tag() == "CERTIFICATE REQUEST")?;
    Some(request.into_contents())
}

/// Every Node is born with the taint `node.kubernetes.io/not-ready:NoSchedule`.
pub(crate) fn taint_new_node(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    if !node["spec"].is_object() {
        node["spec"] = json!({});
    }
    match node["spec"].get_mut("taints").and_then(Value::as_array_mut) {
        Some(taints) => {
            if !taints.iter().any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"]) {
                taints.push(taint);
            }
        }
        None => node["spec"]["taints"] = json!([taint]),
    }
}

#[cfg(test)]
mod tests {
    use super::label_allowed;

    #[test]
    fn labels_follow_the_upstream_table() {
        for key in [
            "foo",
            "example.com/foo",
            "kubernetes.io/hostname",
            "kubelet.kubernetes.io/foo",
            "foo.kubelet.kubernetes.io/foo",
            "node.kubernetes.io/foo",
            "foo.node.kubernetes.io/foo",
        ] {
            assert!(label_allowed(key), "{key}");
        }
        for key in [
            "node-restriction.kubernetes.io/foo",
            "foo.node-restriction.kubernetes.io/foo",
            "other.kubernetes.io/foo",
            "other.k8s.io/foo",
            "kubernetes.io/foo",
            "node-role.kubernetes.io/worker",
        ] {
            assert!(!label_allowed(key), "{key}");
        }
    }
}
