//! What kubeadm and its controllers add for `kubeadm join`: bootstrap tokens with usages and
//! expiry, the signed ConfigMap `cluster-info`, which system:anonymous alone may read, and RBAC.
//!
//! True to `tests/recordings/join-*.json`.

use crate::auth::User;
use crate::kubeconfig::base64;
use crate::pki;
use crate::time;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use std::iter;
use std::time::Duration;

/// The group of the tokens of `kubeadm token create`.
pub const KUBEADM_GROUP: &str = "system:bootstrappers:kubeadm:default-node-token";

/// A Secret `kube-system/bootstrap-token-ID`.
#[derive(Debug, Clone)]
pub struct BootstrapToken {
    id: String,
    secret: String,
    signing: bool,
    authentication: bool,
    /// Since 1970.
    expires: Option<Duration>,
    groups: Vec<String>,
}

impl BootstrapToken {
    /// `id.secret` as `kubeadm token create` makes it.
    #[must_use]
    pub fn new(token: &str) -> Self {
        let (id, secret) = token.split_once('.').expect("id.secret");
        Self {
            id: id.to_owned(),
            secret: secret.to_owned(),
            signing: true,
            authentication: true,
            expires: None,
            groups: vec![KUBEADM_GROUP.to_owned()],
        }
    }

    /// `usage-bootstrap-signing` and `usage-bootstrap-authentication`.
    #[must_use]
    pub fn usages(mut self, signing: bool, authentication: bool) -> Self {
        (self.signing, self.authentication) = (signing, authentication);
        self
    }

    /// `expiration`. Unlike the real server, whose cache accepts a bearer for up to 10 s more, the
    /// double is exact.
    #[must_use]
    pub fn expires_in(mut self, after: Duration) -> Self {
        self.expires = Some(time::since_1970() + after);
        self
    }

    /// `auth-extra-groups`.
    #[must_use]
    pub fn groups(mut self, groups: &[&str]) -> Self {
        self.groups = groups.iter().map(|group| (*group).to_owned()).collect();
        self
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn is_alive(&self) -> bool {
        self.expires.is_none_or(|at| time::since_1970() < at)
    }
}

/// What of kubeadm a double has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Join {
    /// `--anonymous-auth=false`.
    pub(crate) anonymous_off: bool,
    /// `data.kubeconfig`; without it there is no cluster-info.
    pub(crate) kubeconfig: Option<String>,
    /// Answers of GETs of cluster-info before the true one: members that replace those of `data`.
    pub(crate) forged: Vec<Value>,
    pub(crate) tokens: Vec<BootstrapToken>,
}

impl Join {
    pub(crate) fn user(&self, bearer: &str) -> Option<User> {
        let (id, secret) = bearer.split_once('.')?;
        let token = self
            .tokens
            .iter()
            .find(|token| (token.id.as_str(), token.secret.as_str()) == (id, secret))?;
        let groups = iter::once("system:bootstrappers");
        let groups = groups.chain(token.groups.iter().map(String::as_str));
        (token.authentication && token.is_alive())
            .then(|| User::new(&format!("system:bootstrap:{id}"), groups))
    }

    /// The ConfigMap, with the signatures of bootstrapsigner.
    pub(crate) fn cluster_info(&mut self) -> Option<Value> {
        let kubeconfig = self.kubeconfig.clone()?;
        let mut data = Map::new();
        for token in self.tokens.iter().filter(|t| t.signing && t.is_alive()) {
            let key = format!("jws-kubeconfig-{}", token.id);
            data.insert(key, sign(&kubeconfig, token).into());
        }
        data.insert("kubeconfig".to_owned(), kubeconfig.into());
        if !self.forged.is_empty() {
            let forged = self.forged.remove(0);
            for (key, value) in forged.as_object().into_iter().flatten() {
                data.insert(key.clone(), value.clone());
            }
        }
        data.retain(|_, value| !value.is_null());
        Some(json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "name": "cluster-info", "namespace": "kube-public", "uid": "0", "resourceVersion": "1",
            "creationTimestamp": time::now(), "managedFields": []}, "data": data}))
    }
}

/// A detached JWS with HS256.
pub(crate) fn sign(text: &str, token: &BootstrapToken) -> String {
    let header = format!("{{\"alg\":\"HS256\",\"kid\":\"{}\"}}", token.id);
    let header = URL_SAFE_NO_PAD.encode(header);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
    let tag = pki::hmac_sha256(token.secret.as_bytes(), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
}

/// `data.kubeconfig` as kubeadm writes it: one cluster with the empty name.
pub(crate) fn kubeconfig(server: &str, ca_pem: &str) -> String {
    let ca = base64(ca_pem);
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    \
         server: {server}\n  name: \"\"\ncontexts: null\ncurrent-context: \"\"\nkind: Config\n\
         users: null\n"
    )
}

/// A ClusterRole of Kubernetes or of kubeadm with its binding.
fn bound(binding: &str, role: &str, group: &str, rule: Value) -> [Value; 2] {
    [
        json!({"kind": "ClusterRole", "metadata": {"name": role}, "rules": [rule]}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": binding},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "Group", "name": group}]}),
    ]
}

/// The three bindings for a cluster that kubeadm did not make, or those of kubeadm, by prefix and
/// group.
pub(crate) fn bindings(names: [&str; 3], group: &str) -> Vec<Value> {
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs});
    let csrs = "certificatesigningrequests";
    let role = |name: &str| format!("system:certificates.k8s.io:{csrs}:{name}");
    let [ask, approve, renew] = names;
    let node_client = rule(&format!("{csrs}/nodeclient"), &["create"]);
    let self_client = rule(&format!("{csrs}/selfnodeclient"), &["create"]);
    let all = ["create", "get", "list", "watch"];
    [
        bound(ask, "system:node-bootstrapper", group, rule(csrs, &all)),
        bound(approve, &role("nodeclient"), group, node_client),
        bound(renew, &role("selfnodeclient"), "system:nodes", self_client),
    ]
    .concat()
}

/// RBAC of `kubeadm init phase bootstrap-token`.
pub(crate) fn rbac() -> Vec<Value> {
    let names = [
        "kubeadm:kubelet-bootstrap",
        "kubeadm:node-autoapprove-bootstrap",
        "kubeadm:node-autoapprove-certificate-rotation",
    ];
    let mut objects = bindings(names, KUBEADM_GROUP);
    let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]});
    objects.extend(bound("kubeadm:get-nodes", "kubeadm:get-nodes", KUBEADM_GROUP, nodes));
    let config = |name: &str| {
        json!({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name],
            "verbs": ["get"]})
    };
    let role = "kubeadm:bootstrap-signer-clusterinfo";
    let place = json!({"name": role, "namespace": "kube-public"});
    objects.push(json!({"kind": "Role", "metadata": place, "rules": [config("cluster-info")]}));
    objects.push(json!({"kind": "RoleBinding", "metadata": place,
        "roleRef": {"kind": "Role", "name": role},
        "subjects": [{"kind": "User", "name": "system:anonymous"}]}));
    objects
}
