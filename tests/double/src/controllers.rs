//! Stand-ins for the controllers that a node meets: node-lifecycle, garbage collection of
//! Leases, the approver and the signer of CSRs. All are off unless asked for.

use crate::admission::request_der;
use crate::api::{Api, key};
use crate::auth::{self, Attributes, User};
use crate::der::CertificateRequest;
use crate::fields::{self, Writer};
use crate::kinds::{CSR, Kind, LEASE, NODE};
use crate::kubeconfig::base64;
use crate::lock;
use crate::pki::{Authority, Validity};
use crate::time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
struct Health {
    heartbeat: Value,
    /// `renewTime` of the Lease that counted last. A new heartbeat forgets it, a deleted Lease does
    /// not.
    renewed: Option<String>,
    /// Since 1970.
    heard: Duration,
    ready: String,
}

/// What node-lifecycle remembers.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    /// By the uid of the Node.
    nodes: BTreeMap<String, Health>,
    /// How often Ready left `True`.
    pub(crate) left: usize,
}

fn store(api: &Api, kind: &'static Kind, mut object: Value, subresource: &str) {
    let metadata = &object["metadata"];
    let name = |field: &str| metadata[field].as_str().unwrap_or("").to_owned();
    let key = key(kind, &name("namespace"), &name("name"));
    let mut store = api.store();
    let Some(old) = store.get(&key) else {
        return;
    };
    if old["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] || *old == object
    {
        return; // somebody was faster: next time
    }
    let writer = Writer { manager: "kube-controller-manager", kind, subresource };
    fields::track(Some(old), &mut object, &writer);
    store.put(&key, object);
}

/// Copies of those that a controller may have to change.
fn list_of(api: &Api, kind: &'static Kind, is_meant: impl Fn(&Value) -> bool) -> Vec<Value> {
    let store = api.store();
    store.all(kind, None).into_iter().filter(|object| is_meant(object)).cloned().collect()
}

/// The text at a path of members. `Value::pointer` allocates twice for each.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    let mut members = path.split('/').skip(1);
    members.try_fold(value, |value, member| value.get(member)).and_then(Value::as_str).unwrap_or("")
}

/// The condition of this type.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == kind)
}

/// The ttl controller: new Nodes get `node.alpha.kubernetes.io/ttl: "0"`.
pub(crate) fn annotate(api: &Api) {
    const TTL: &str = "node.alpha.kubernetes.io/ttl";
    for mut node in list_of(api, &NODE, |node| node["metadata"]["annotations"][TTL].is_null()) {
        node["metadata"]["annotations"][TTL] = json!("0");
        store(api, &NODE, node, "");
    }
}

/// node-lifecycle's label reconciliation: the beta labels follow the stable ones.
pub(crate) fn reconcile_labels(api: &Api) {
    let follows = |node: &Value| {
        let label = |key: String| node["metadata"]["labels"][key].clone();
        ["os", "arch"].iter().all(|what| {
            let stable = label(format!("kubernetes.io/{what}"));
            stable.is_null() || stable == label(format!("beta.kubernetes.io/{what}"))
        })
    };
    for mut node in list_of(api, &NODE, |node| !follows(node)) {
        for what in ["os", "arch"] {
            let stable = node["metadata"]["labels"][format!("kubernetes.io/{what}")].clone();
            if !stable.is_null() {
                node["metadata"]["labels"][format!("beta.kubernetes.io/{what}")] = stable;
            }
        }
        store(api, &NODE, node, "");
    }
}

/// The taints that a Node has by its conditions, and those of others.
fn taints(node: &Value) -> Vec<Value> {
    let status = |kind: &str| condition(node, kind).map_or("", |found| text(found, "/status"));
    let ready = status("Ready");
    let wanted = [
        ("node.kubernetes.io/not-ready", ready == "False" || ready.is_empty()),
        ("node.kubernetes.io/unreachable", ready == "Unknown"),
        ("node.kubernetes.io/memory-pressure", status("MemoryPressure") == "True"),
        ("node.kubernetes.io/disk-pressure", status("DiskPressure") == "True"),
        ("node.kubernetes.io/pid-pressure", status("PIDPressure") == "True"),
        ("node.kubernetes.io/network-unavailable", status("NetworkUnavailable") == "True"),
        ("node.kubernetes.io/unschedulable", node["spec"]["unschedulable"] == true),
    ];
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    for (key, on) in wanted {
        let is = |t: &Value| t["key"] == key && t["effect"] == "NoSchedule";
        if !on {
            taints.retain(|t| !is(t));
        } else if !taints.iter().any(is) {
            taints.push(json!({"key": key, "effect": "NoSchedule"}));
        }
    }
    taints
}

/// Taints follow conditions.
pub(crate) fn taint(api: &Api) {
    let changes =
        |node: &Value| node["spec"]["taints"].as_array().unwrap_or(&vec![]) != &taints(node);
    for mut node in list_of(api, &NODE, changes) {
        let taints = taints(&node);
        if let Some(spec) = node["spec"].as_object_mut() {
            if taints.is_empty() {
                spec.remove("taints");
            } else {
                spec.insert("taints".to_owned(), Value::Array(taints));
            }
        }
        store(api, &NODE, node, "");
    }
}

impl Lifecycle {
    /// Nodes that were not heard of for `grace` become Unknown.
    pub(crate) fn monitor(&mut self, api: &Api, grace: Duration) {
        let mut silent = Vec::new();
        let objects = api.store();
        let nodes = objects.all(&NODE, None);
        self.nodes.retain(|uid, _| nodes.iter().any(|n| n["metadata"]["uid"] == uid.as_str()));
        for node in nodes {
            let uid = text(node, "/metadata/uid").to_owned();
            let ready = condition(node, "Ready");
            let heartbeat = ready.map_or(Value::Null, |r| r["lastHeartbeatTime"].clone());
            let mut status = ready.map_or("Unknown", |ready| text(ready, "/status"));
            let lease = objects.get(&key(&LEASE, "kube-node-lease", text(node, "/metadata/name")));
            let renewed = lease.map(|lease| text(lease, "/spec/renewTime").to_owned());
            let now = time::since_1970();
            let health = self.nodes.entry(uid).or_insert_with(|| Health {
                heartbeat: heartbeat.clone(),
                renewed: None,
                heard: now,
                ready: status.to_owned(),
            });
            let last = health.renewed.clone();
            if health.heartbeat != heartbeat {
                (health.heard, health.renewed) = (now, None);
            }
            health.heartbeat = heartbeat;
            // RFC 3339 in UTC with six digits sorts as it reads: only an increase counts
            if renewed.is_some() && renewed > last {
                (health.heard, health.renewed) = (now, renewed.clone());
            }
            if now.saturating_sub(health.heard) > grace && status != "Unknown" {
                silent.push(node.clone());
                health.renewed = renewed;
                status = "Unknown";
            }
            self.left += usize::from(health.ready == "True" && status != "True");
            status.clone_into(&mut health.ready);
        }
        drop(objects);
        for mut node in silent {
            unknown(&mut node);
            store(api, &NODE, node, "status");
        }
    }
}

fn unknown(node: &mut Value) {
    const OURS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let conditions = node["status"]["conditions"].as_array_mut().into_iter().flatten();
    let is_known = |condition: &Value| OURS.iter().any(|kind| condition["type"] == *kind);
    for condition in conditions.filter(|condition| is_known(condition)) {
        if condition["status"] != "Unknown" {
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("NodeStatusUnknown");
            condition["message"] = json!("Kubelet stopped posting node status.");
            condition["lastTransitionTime"] = json!(time::now());
        }
    }
}

/// Deletes Leases whose owner, a Node, is gone.
pub(crate) fn collect_garbage(api: &Api) {
    let mut store = api.store();
    let uids: Vec<Value> =
        store.all(&NODE, None).iter().map(|n| n["metadata"]["uid"].clone()).collect();
    for lease in store.list(&LEASE, None) {
        let owners = lease["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let is_gone = |owner: &Value| owner["kind"] == "Node" && !uids.contains(&owner["uid"]);
        if !owners.is_empty() && owners.iter().all(is_gone) {
            let [namespace, name] =
                ["/metadata/namespace", "/metadata/name"].map(|at| text(&lease, at));
            store.remove(&key(&LEASE, namespace, name));
        }
    }
}

/// How long certificates live.
#[derive(Debug, Clone, Copy)]
pub struct Signing {
    /// At most so many seconds from now.
    pub longest: i64,
    /// And since so many seconds.
    pub backdate: i64,
}

impl Default for Signing {
    /// As kube-controller-manager, whose own clock may be behind.
    fn default() -> Self {
        Self { longest: 365 * 86400, backdate: 300 }
    }
}

/// Approves what kube-controller-manager approves of kubelets' client certificates, and signs
/// what is approved.
pub(crate) fn certificates(api: &Api, authority: &Authority, signing: Signing) {
    let is_open = |csr: &Value| {
        let has = |kind: &str| condition(csr, kind).is_some();
        text(csr, "/status/certificate").is_empty() && !has("Denied") && !has("Failed")
    };
    for csr in list_of(api, &CSR, is_open) {
        match text(&csr, "/spec/signerName") {
            "kubernetes.io/kube-apiserver-client-kubelet" | "kubernetes.io/kubelet-serving"
                if condition(&csr, "Approved").is_some() =>
            {
                sign(api, csr, authority, signing);
            }
            // Those of servers wait for a person.
            "kubernetes.io/kube-apiserver-client-kubelet" if approvable(api, &csr) => {
                approve(api, csr);
            }
            _ => {}
        }
    }
}

fn approvable(api: &Api, csr: &Value) -> bool {
    let request = request_der(csr);
    let Some(parsed) = request.and_then(|request| CertificateRequest::parse(&request)) else {
        return false;
    };
    let mut usages: Vec<&str> =
        csr["spec"]["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    usages.sort_unstable();
    let good_usages = usages == ["client auth", "digital signature"]
        || usages == ["client auth", "digital signature", "key encipherment"];
    let subject = &parsed.subject;
    let is_own = csr["spec"]["username"] == subject.common_name.as_str();
    // sarapprove.go: a renewal is asked for first.
    let allowed =
        is_own && may_create(api, csr, "selfnodeclient") || may_create(api, csr, "nodeclient");
    good_usages
        && parsed.alt_names.is_none()
        && subject.organizations == ["system:nodes"]
        && subject.common_name.starts_with("system:node:")
        && allowed
}

/// The SubjectAccessReview of the approver about a requester.
fn may_create(api: &Api, csr: &Value, subresource: &str) -> bool {
    let groups = csr["spec"]["groups"].as_array().into_iter().flatten();
    let user = User::new(text(csr, "/spec/username"), groups.filter_map(Value::as_str));
    let want = Attributes {
        verb: "create",
        group: "certificates.k8s.io",
        resource: "certificatesigningrequests",
        subresource,
        ..Attributes::default()
    };
    auth::decide(&user, &want, &lock(&api.rbac)).is_ok()
}

/// A condition of a CSR, which is new now.
pub(crate) fn csr_condition(kind: &str, reason: &str, message: &str) -> Value {
    let now = time::now();
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastUpdateTime": now, "lastTransitionTime": now})
}

fn approve(api: &Api, mut csr: Value) {
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    csr["status"]["conditions"] = json!([csr_condition("Approved", "AutoApproved", message)]);
    store(api, &CSR, csr, "approval");
}

fn sign(api: &Api, mut csr: Value, authority: &Authority, signing: Signing) {
    const SHORT: i64 = 8 * 3600;
    let Signing { longest, backdate } = signing;
    let asked = csr["spec"]["expirationSeconds"].as_i64();
    let seconds = asked.unwrap_or(longest).min(longest);
    // as kube-controller-manager's signer: only short lives are given in full
    let until = if seconds < SHORT { seconds } else { seconds - backdate };
    let validity = Validity { from: -backdate, until };
    let signed = request_der(&csr)
        .ok_or_else(|| "not a request".to_owned())
        .and_then(|request| authority.sign_request(&request, validity));
    match signed {
        Ok(pem) => csr["status"]["certificate"] = json!(base64(&pem)),
        Err(why) => {
            let conditions = csr["status"]["conditions"].as_array_mut();
            conditions.expect("an approval").push(csr_condition("Failed", "SigningError", &why));
        }
    }
    store(api, &CSR, csr, "status");
}
