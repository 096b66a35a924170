//! Admission: NodeRestriction, and TaintNodesByCondition.

use crate::auth::User;
use crate::der::CertificateRequest;
use crate::kinds::Kind;
use crate::pods::default;
use crate::status::{Failure, forbidden};
use base64::Engine as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
                (None, Some(new)) => {
                    let why = format!("node \"{node}\" is not allowed to set the following labels");
                    own_labels(&Value::Null, new, &why).or_else(refuse)
                }
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
    own_labels(old, new, "is not allowed to modify labels")
}

fn own_labels(old: &Value, new: &Value, why: &str) -> Result<(), String> {
    let labels = |object: &Value| object["metadata"]["labels"].as_object().cloned();
    let (before, after) = (labels(old).unwrap_or_default(), labels(new).unwrap_or_default());
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let is_wrong = |key: &&str| before.get(*key) != after.get(*key) && !label_allowed(key);
    let wrong: Vec<&str> = keys.into_iter().map(String::as_str).filter(is_wrong).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("{why}: {}", wrong.join(", "))) }
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
    default(node, "spec", json!({}));
    default(&mut node["spec"], "taints", json!([]));
    if let Some(taints) = node["spec"]["taints"].as_array_mut()
        && !taints.iter().any(|other| is_same_taint(other, &taint))
    {
        taints.push(taint);
    }
}

pub(crate) fn is_same_taint(one: &Value, other: &Value) -> bool {
    ["key", "effect"].iter().all(|member| one[member] == other[member])
}

#[cfg(test)]
mod tests {
    use super::label_allowed;

    #[test]
    fn labels_follow_the_upstream_table() {
        for (key, is_allowed) in [
            ("foo", true),
            ("example.com/foo", true),
            ("kubernetes.io/hostname", true),
            ("kubelet.kubernetes.io/foo", true),
            ("foo.kubelet.kubernetes.io/foo", true),
            ("node.kubernetes.io/foo", true),
            ("foo.node.kubernetes.io/foo", true),
            ("node-restriction.kubernetes.io/foo", false),
            ("foo.node-restriction.kubernetes.io/foo", false),
            ("other.kubernetes.io/foo", false),
            ("other.k8s.io/foo", false),
            ("kubernetes.io/foo", false),
            ("node-role.kubernetes.io/worker", false),
        ] {
            assert_eq!(label_allowed(key), is_allowed, "{key}");
        }
    }
}
