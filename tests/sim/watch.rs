//! What the world itself notices, for the sentences about others' writes, secrets and bounds: what
//! others wrote before and after a write of the agent, where the bytes of a secret arrive, and whether
//! Ready changed.

use serde_json::{Value, json};

use super::clusters::base64;
use super::draw::draw;
use super::trace::{Exchange, What};
use super::world::{NODE, World, ready_of};
use crate::os::write::Op;

/// See the file's header.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The last status of Ready in the store.
    ready: String,
    /// Parts of private keys: no server may receive them.
    keys: Vec<String>,
    /// Tokens and passwords, and the cluster whose servers may receive them.
    of_cluster: Vec<(String, usize)>,
}

/// Whether a kubeconfig has a private key in the data of a certificate, which people show and copy.
fn has_key_as_certificate(kubeconfig: &str) -> bool {
    use base64::Engine as _;
    let data = kubeconfig.split("certificate-data:").skip(1);
    let words = data.filter_map(|rest| rest.split_whitespace().next());
    words.map(|word| word.trim_matches(|c| ['"', '\'', ',', '}'].contains(&c))).any(|word| {
        let decoded = base64::engine::general_purpose::STANDARD.decode(word).unwrap_or_default();
        String::from_utf8_lossy(&decoded).contains("PRIVATE KEY")
    })
}

#[test]
fn a_key_as_a_certificate_is_found() {
    // "PRIVATE KEY", and "CERTIFICATE".
    let text = |data: &str| format!("user: {{client-certificate-data: \"{data}\", a: b}}\n");
    assert!(has_key_as_certificate(&text("UFJJVkFURSBLRVk=")));
    assert!(!has_key_as_certificate(&text("Q0VSVElGSUNBVEU=")));
}

/// The path of the board's Lease.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pi";

impl World {
    // --- what others wrote ---

    /// What others wrote to the object of a request that changes more than `renewTime`.
    pub(crate) fn of_others(&self, request: &Exchange) -> Option<(&'static str, Vec<String>)> {
        if request.method != "PATCH" || is_plain_renewal(&request.body) {
            return None;
        }
        let object = match request.is_lease() {
            true => "leases/pi",
            false if request.target.starts_with("/api/v1/nodes/") => "nodes/pi",
            false => return None,
        };
        let found = self.clusters[request.cluster].model.look_at(object, foreign)?;
        Some((object, found))
    }

    /// The write was carried out: what others wrote before it goes into the trace, and what is left.
    pub(crate) fn compare_others(
        &mut self,
        request: &Exchange,
        before: Option<(&'static str, Vec<String>)>,
    ) {
        let Some((object, before)) = before else { return };
        if !before.is_empty() {
            let after = self.clusters[request.cluster].model.look_at(object, foreign);
            self.tell(What::Kept { object, before, after: after.unwrap_or_default() });
        }
        if object.starts_with("nodes/") {
            self.watch_ready();
        }
    }

    /// Notes whether Ready has changed in the store.
    pub(crate) fn watch_ready(&mut self) {
        let (cluster, name) = self.place();
        let watched = &mut self.watch.ready;
        let has_changed = |node: &Value| {
            let status = ready_of(node);
            (status != *watched).then(|| status.clone_into(watched))
        };
        let path = format!("nodes/{name}");
        if self.clusters[cluster].model.look_at(&path, has_changed).flatten().is_some() {
            self.tell(What::Ready { status: self.watch.ready.clone() });
        }
    }

    /// Another program writes at the moment at which a request of the agent arrives: between the
    /// agent's read and its patch.
    pub(crate) fn race(&mut self, request: &Exchange) {
        if request.method != "PATCH" {
            return;
        }
        let is_owner = !request.body["metadata"]["ownerReferences"].is_null();
        if request.is_lease() && is_owner && self.faults.has("lease-contested") {
            self.own_lease();
        }
        let is_met = self.is_met("writes-race", request.number, 2);
        if !request.is_lease() && self.faults.has("writes-race") && is_met {
            match draw(self.plan.seed, "race", request.number) % 2 {
                0 => self.write_condition(),
                _ => self.write_to_node(request.number % 2),
            }
        }
    }

    /// Another program has a condition of its own on the Node.
    pub(crate) fn write_condition(&mut self) {
        let message = self.next_number().to_string();
        let condition = json!({
            "type": "TestForeign", "status": "False", "reason": "Test", "message": message,
            "lastHeartbeatTime": "2027-01-15T08:00:00Z",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        });
        let body = json!({"status": {"conditions": [condition]}});
        let path = format!("/api/v1/nodes/{NODE}/status");
        self.set_double();
        let kind = "application/strategic-merge-patch+json";
        self.clusters[0].model.as_admin("PATCH", &path, kind, &body);
    }

    /// Another program takes the owner away that the Lease has, and the agent starts again. While
    /// the class lasts, that program sets an owner of its own before each repair of the agent.
    pub(crate) fn contest_lease(&mut self) {
        self.admin("PATCH", LEASE, &json!({"metadata": {"ownerReferences": null}}));
        self.kill_agent();
    }

    /// A foreign owner of the Lease, beside those that it has.
    fn own_lease(&mut self) {
        let lease = self.clusters[0].model.get("leases/pi").unwrap_or_default();
        let mut owners =
            lease["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.retain(|owner| owner["kind"] != "ConfigMap");
        owners.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": "test-foreign",
            "uid": format!("foreign-{}", self.next_number()),
        }));
        self.admin("PATCH", LEASE, &json!({"metadata": {"ownerReferences": owners}}));
    }

    // --- secrets ---

    /// Marks a token or password of a cluster: no log may have it, nor another cluster's server.
    pub(crate) fn mark_secret(&mut self, text: &str, cluster: usize) {
        self.secrets.push(text.to_owned());
        self.watch.of_cluster.push((text.to_owned(), cluster));
    }

    /// Marks a private key: no log may have it, and no server may receive it. A key stands in a
    /// file as PEM, and in a kubeconfig as base64 of that.
    pub(crate) fn mark_key(&mut self, pem: &str) {
        let Some((_, rest)) = pem.split_once("PRIVATE KEY-----\n") else { return };
        let body: String = rest.split("-----").next().unwrap_or_default().split('\n').collect();
        let whole = base64(pem);
        // The first 36 bytes of a P-256 key in PKCS #8 are the same in each key.
        for part in [body.get(48..88), whole.get(104..150)].into_iter().flatten() {
            self.watch.keys.push(part.to_owned());
            self.secrets.push(part.to_owned());
        }
    }

    /// A file that the program writes: a key in it is a secret from now on, and a file with a
    /// secret is for its owner alone.
    pub(crate) fn search_file(&mut self, op: &Op) {
        let Op::Write(path, mode, content) = op else { return };
        let text = String::from_utf8_lossy(content).into_owned();
        self.mark_key(&text);
        if has_key_as_certificate(&text) {
            let text = format!("a private key as a certificate: {}", path.display());
            self.tell(What::Broken { sentence: 8, text });
        }
        if mode & 0o077 != 0 && self.has_secret(&text) {
            let text = format!("a secret in a file of mode {mode:o}: {}", path.display());
            self.tell(What::Broken { sentence: 8, text });
        }
    }

    /// A request, as its server sees it behind TLS.
    pub(crate) fn search_request(
        &mut self,
        server: usize,
        is_forged: bool,
        request: &apidouble::Request,
        bytes: &[u8],
    ) {
        let what = format!("{} {}", request.method, request.target);
        let discovers = request.method == "GET"
            && ["/cacerts", "/api/v1/namespaces/kube-public/configmaps/cluster-info"]
                .contains(&request.target.as_str())
            && request.header("authorization").is_none();
        if is_forged && !discovers {
            let text = format!("a request to a server with a wrong certificate: {what}");
            self.tell(What::Broken { sentence: 8, text });
        }
        let text = String::from_utf8_lossy(bytes);
        let cluster = self.servers[server].cluster;
        let mut of_others = self.watch.of_cluster.iter().filter(|(_, owner)| *owner != cluster);
        let leaks = self.watch.keys.iter().any(|key| text.contains(key.as_str()))
            || of_others.any(|(secret, _)| text.contains(secret.as_str()));
        if leaks {
            let text = format!("a secret in a request to server {server}: {what}");
            self.tell(What::Broken { sentence: 8, text });
        }
    }

    pub(crate) fn has_secret(&self, text: &str) -> bool {
        self.secrets.iter().any(|secret| text.contains(secret.as_str()))
            || text.contains("PRIVATE KEY")
    }
}

/// Whether a body changes `renewTime` alone.
fn is_plain_renewal(body: &Value) -> bool {
    let members = |value: &Value| value.as_object().map_or(0, serde_json::Map::len);
    members(body) == 1 && members(&body["spec"]) == 1 && body["spec"]["renewTime"].is_string()
}

/// What others wrote to an object, one text a member: it begins with `test/` or `Test`, but for the
/// label of our own command line. A Node is cordoned by others alone.
fn foreign(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for kind in ["labels", "annotations"] {
        for (name, value) in object["metadata"][kind].as_object().into_iter().flatten() {
            if name.starts_with("test/") && name != "test/own" {
                found.push(format!("{kind} {name}={value}"));
            }
        }
    }
    let list = |at: &str| object.pointer(at).and_then(Value::as_array).into_iter().flatten();
    for owner in list("/metadata/ownerReferences").filter(|owner| owner["kind"] != "Node") {
        found.push(format!("owner {}", owner["uid"]));
    }
    for taint in list("/spec/taints") {
        if taint["key"].as_str().is_some_and(|key| key.starts_with("test/")) {
            found.push(format!("taint {}={}", taint["key"], taint["value"]));
        }
    }
    for condition in list("/status/conditions") {
        if condition["type"].as_str().is_some_and(|kind| kind.starts_with("Test")) {
            found.push(format!("condition {}: {}", condition["type"], condition["message"]));
        }
    }
    if object["spec"]["unschedulable"] == true {
        found.push("unschedulable".to_owned());
    }
    found
}
