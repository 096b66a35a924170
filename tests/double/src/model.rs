//! The API server without a network: from a request's bytes to those of its answer, and what stands
//! behind it. `Double` serves it over sockets.

use crate::api::{Api, key};
use crate::auth::User;
use crate::controllers::{self, Lifecycle, Signing};
use crate::http::{self, Request, Response};
use crate::join::{self, BootstrapToken, Join};
use crate::kinds;
use crate::kubeconfig::{Credentials, kubeconfig};
use crate::lock;
use crate::pki::{Authority, Identity, Validity};
use crate::protobuf;
use crate::rbac::Rbac;
use crate::status;
use crate::store::Store;
use crate::supervisor::{Caller, Supervisor};
use crate::table;
use crate::time;
use crate::tls::{self, AnyCertificate};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::NoServerSessionStorage;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An API server with its authority and its controllers.
///
/// It starts nothing and waits for nothing. Its time and its random bytes are those of
/// [`crate::set_time`] and [`crate::set_seed`].
pub struct Model {
    pub(crate) api: Api,
    authority: Authority,
    endpoint: String,
    clients: Mutex<Arc<AnyCertificate>>,
    lifecycle: Mutex<Lifecycle>,
    signing: Mutex<Signing>,
}

/// What an etcd holds. The settings of the supervisor, and whether anonymous requests are refused,
/// go with it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    store: Store,
    rbac: Rbac,
    join: Join,
    supervisor: Option<Supervisor>,
    tokens: HashMap<String, User>,
}

impl Model {
    /// A server with this authority, which its clients reach at `HOST:PORT`.
    #[must_use]
    pub fn new(authority: Authority, endpoint: &str) -> Self {
        Self {
            api: Api::default(),
            clients: Mutex::new(AnyCertificate::of(&[&authority])),
            authority,
            endpoint: endpoint.to_owned(),
            lifecycle: Mutex::default(),
            signing: Mutex::default(),
        }
    }

    // --- requests ---

    /// Answers a request that came over TLS with these client certificates. The text is the name of
    /// the user, and empty where the credentials are not valid.
    #[must_use]
    pub fn answer(
        &self,
        request: &Request,
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> (String, Response) {
        let user = self.authenticate(request, certificates);
        let response = self.respond(request, user.as_ref(), certificates.is_some());
        (user.map_or(String::new(), |user| user.name), response)
    }

    /// The answer to a request that is not carried out: a `Status`.
    #[must_use]
    pub fn refusal(
        request: &Request,
        code: u16,
        message: &str,
        retry_after: Option<u64>,
    ) -> Response {
        let details = retry_after.map(|seconds| json!({"retryAfterSeconds": seconds}));
        let body = status::failure(code, status::reason(code), message, details).body;
        let response = http::dress(protobuf::encoded(request, Response::json(code, &body)));
        match retry_after {
            Some(seconds) => response.with("Retry-After", &seconds.to_string()),
            None => response,
        }
    }

    pub(crate) fn respond(
        &self,
        request: &Request,
        user: Option<&User>,
        has_certificate: bool,
    ) -> Response {
        let caller = Caller {
            has_certificate,
            user: user.filter(|_| has_certificate),
            is_node: &|name| self.api.has_node(name),
        };
        let supervised = match &mut *lock(&self.api.supervisor) {
            Some(supervisor) => supervisor.answer(request, &caller, &self.authority),
            None => None,
        };
        if let Some(response) = supervised {
            return response.with("Date", &time::http_date());
        }
        http::dress(protobuf::encoded(request, self.api.handle(request, user)))
    }

    /// Who that is; `None` if credentials were given and are not valid.
    pub(crate) fn authenticate(
        &self,
        request: &Request,
        certificates: Option<&[CertificateDer<'_>]>,
    ) -> Option<User> {
        if let Some(certificates) = certificates {
            return lock(&self.clients).user_of(certificates);
        }
        match request.header("authorization") {
            None => (!lock(&self.api.join).anonymous_off).then(User::anonymous),
            Some(value) => self.api.user_of(value.strip_prefix("Bearer ")?.trim()),
        }
    }

    // --- TLS ---

    /// A TLS server that takes any client certificate, as kube-apiserver does: `answer` says 401
    /// to one that is not valid.
    #[must_use]
    pub fn server_config(&self, identity: &Identity) -> Arc<ServerConfig> {
        tls::server_config(lock(&self.clients).clone(), identity)
    }

    /// The same, of TLS 1.2 alone.
    #[must_use]
    pub fn server_config_of_tls12(&self, identity: &Identity) -> Arc<ServerConfig> {
        let versions = &[&rustls::version::TLS12];
        tls::server_config_of(lock(&self.clients).clone(), identity, versions)
    }

    /// A TLS server, such as a gateway's, that ends the handshake of a client whose certificate is
    /// not of these authorities, or not valid now.
    #[must_use]
    pub fn strict_server_config(
        identity: &Identity,
        authorities: &[&Authority],
    ) -> Arc<ServerConfig> {
        let mut config = tls::server_config(tls::strict(authorities), identity);
        // Of a resumed session it would not verify the certificate again.
        Arc::make_mut(&mut config).session_storage = Arc::new(NoServerSessionStorage {});
        config
    }

    /// Accepts client certificates of these authorities from now on, and of no other.
    pub fn trust(&self, authorities: &[&Authority]) {
        *lock(&self.clients) = AnyCertificate::of(authorities);
    }

    // --- address and credentials ---

    /// `https://ENDPOINT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.endpoint)
    }

    /// The certificate authority (PEM), of the server and of the clients.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.authority().pem().to_owned()
    }

    /// The certificate authority, to issue more.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// A node's client certificate.
    #[must_use]
    pub fn node_identity(&self, name: &str, validity: Validity) -> Identity {
        self.authority().client(&format!("system:node:{name}"), &["system:nodes"], validity)
    }

    /// A kubeconfig of node `name`, everything inline.
    #[must_use]
    pub fn kubeconfig_for_node(&self, name: &str) -> String {
        self.kubeconfig_for(&self.node_identity(name, Validity::VALID))
    }

    /// A kubeconfig of a cluster administrator, everything inline.
    #[must_use]
    pub fn kubeconfig_admin(&self) -> String {
        self.kubeconfig_for(&self.authority().client(
            "kubernetes-admin",
            &["system:masters"],
            Validity::VALID,
        ))
    }

    /// A kubeconfig with this client certificate, everything inline.
    #[must_use]
    pub fn kubeconfig_for(&self, identity: &Identity) -> String {
        kubeconfig(&self.url(), &self.ca_pem(), &Credentials::Certificate(identity))
    }

    /// A kubeconfig with a bearer token (see `add_token`).
    #[must_use]
    pub fn kubeconfig_token(&self, token: &str) -> String {
        kubeconfig(&self.url(), &self.ca_pem(), &Credentials::Token(token))
    }

    /// What `kubeadm token create --print-join-command` prints, without `kubeadm`.
    #[must_use]
    pub fn join_command(&self, token: &str) -> Vec<String> {
        let pin = self.authority().pin();
        ["join", &self.endpoint, "--token", token, "--discovery-token-ca-cert-hash", &pin]
            .map(str::to_owned)
            .to_vec()
    }

    // --- users and what they may do ---

    /// Adds a bearer token.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let user = User::new(user, groups.iter().copied());
        lock(&self.api.tokens).insert(token.to_owned(), user);
    }

    /// Removes a bearer token: 401.
    pub fn revoke_token(&self, token: &str) {
        lock(&self.api.tokens).remove(token);
    }

    /// Adds the Secret of a bootstrap token.
    pub fn add_bootstrap_token(&self, token: BootstrapToken) {
        lock(&self.api.join).tokens.push(token);
    }

    /// tokencleaner: deletes the Secret of a token that expired, by its id.
    pub fn remove_bootstrap_token(&self, id: &str) {
        let mut join = lock(&self.api.join);
        join.tokens.retain(|token| token.id() != id);
    }

    /// `--anonymous-auth=false`.
    pub fn refuse_anonymous(&self) {
        lock(&self.api.join).anonymous_off = true;
    }

    /// Replaces all roles and bindings except those that are built in.
    pub fn set_rbac(&self, objects: &[Value]) {
        lock(&self.api.rbac).objects = objects.to_vec();
    }

    /// The RBAC and cluster-info of a cluster that kubeadm made, or no binding for bootstrap tokens.
    pub fn bind_bootstrappers(&self, is_kubeadm: bool) {
        self.set_rbac(&[]);
        if is_kubeadm {
            self.set_rbac(&join::rbac());
            self.set_cluster_info(Some(&self.cluster_info(&self.url(), &self.ca_pem())));
        }
    }

    /// The bindings of the three commands for a cluster that kubeadm did not make, up to `count`.
    pub fn bind(&self, count: usize) {
        let names = ["nodelet-ask", "nodelet-approve", "nodelet-renew"];
        let objects = join::bindings(names, "system:bootstrappers");
        self.set_rbac(objects.get(..2 * count).expect("three commands"));
    }

    /// The kubeconfig in cluster-info, as kubeadm writes it.
    #[must_use]
    pub fn cluster_info(&self, server: &str, ca_pem: &str) -> String {
        join::kubeconfig(server, ca_pem)
    }

    /// Replaces the kubeconfig in cluster-info, or removes the ConfigMap.
    pub fn set_cluster_info(&self, kubeconfig: Option<&str>) {
        lock(&self.api.join).kubeconfig = kubeconfig.map(str::to_owned);
    }

    /// The next GETs of cluster-info have these members of `data`, one each; null removes one.
    pub fn forge_cluster_info(&self, data: &[Value]) {
        lock(&self.api.join).forged = data.to_vec();
    }

    /// The signature of a text with a token.
    #[must_use]
    pub fn signature(&self, text: &str, token: &BootstrapToken) -> String {
        join::sign(text, token)
    }

    /// Adds or changes the supervisor of k3s: its CA is ours, and its password is `pa55:word`. The
    /// API refuses anonymous requests then, as that of k3s does.
    ///
    /// # Panics
    /// If the endpoint has no port.
    pub fn set_supervisor(&self, change: impl FnOnce(&mut Supervisor)) {
        let mut slot = lock(&self.api.supervisor);
        let supervisor = slot.get_or_insert_with(|| {
            self.refuse_anonymous();
            let port = self.endpoint.rsplit(':').next().and_then(|port| port.parse().ok());
            Supervisor::new(self.ca_pem(), port.expect("the endpoint has a port"))
        });
        change(supervisor);
    }

    /// The supervisor, if there is one.
    #[must_use]
    pub fn supervisor(&self) -> Option<Supervisor> {
        let mut slot = lock(&self.api.supervisor);
        let supervisor = slot.as_mut()?;
        supervisor.collect(&|name| self.api.has_node(name));
        Some(supervisor.clone())
    }

    // --- objects ---

    /// A stored object, by `nodes/NAME`, `leases/NAME` (in kube-node-lease), `csrs/NAME`,
    /// `events/NAME` (in default), or by its whole path (`/api/v1/nodes/NAME`).
    #[must_use]
    pub fn get(&self, what: &str) -> Option<Value> {
        self.look_at(what, Value::clone)
    }

    /// What `look` finds in a stored object (as `get`), which is not copied if it is a Node or a
    /// Lease: a simulated world looks often.
    pub fn look_at<T>(&self, what: &str, look: impl FnOnce(&Value) -> T) -> Option<T> {
        let key = match what.split_once('/').filter(|(_, name)| !name.contains('/')) {
            Some(("nodes", name)) => Some(key(&kinds::NODE, "", name)),
            Some(("leases", name)) => Some(key(&kinds::LEASE, "kube-node-lease", name)),
            _ => None,
        };
        if let Some(key) = key {
            return self.api.store().get(&key).map(look);
        }
        let (code, value) = self.as_admin("GET", &full_path(what), "", &Value::Null);
        (code == 200).then(|| look(&value))
    }

    /// All objects of a kind: `nodes`, `leases`, `csrs`, `events` (as `get`).
    #[must_use]
    pub fn list(&self, what: &str) -> Vec<Value> {
        let (_, value) = self.as_admin("GET", &full_path(what), "", &Value::Null);
        value["items"].as_array().cloned().unwrap_or_default()
    }

    /// A request as administrator, not over the network: another client that changes the same
    /// objects. It is not recorded and has no faults. `Null` is no body.
    pub fn as_admin(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request {
            method: method.to_owned(),
            target: path.to_owned(),
            headers: vec![
                ("Content-Type".to_owned(), content_type.to_owned()),
                ("Accept".to_owned(), "application/json".to_owned()),
                ("User-Agent".to_owned(), "kubectl/v1.36.2".to_owned()),
            ],
            body: body.into_bytes(),
            bytes: 0,
        };
        let response = self.api.handle(&request, Some(&User::admin()));
        let body = serde_json::from_slice(&response.body);
        let text = || Value::from(String::from_utf8_lossy(&response.body).into_owned());
        (response.code, body.unwrap_or_else(|_| text()))
    }

    /// Fails if a body had a member that its kind does not have: the server drops it and warns.
    ///
    /// # Panics
    /// As said.
    pub fn assert_members_are_known(&self) {
        let unknown = lock(&self.api.unknown);
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    /// What `kubectl get nodes -o wide` prints.
    #[must_use]
    pub fn print_nodes(&self) -> String {
        table::print(&kinds::NODE, &self.api.store().list(&kinds::NODE, None))
    }

    /// A backup of the etcd.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            store: self.api.store().clone(),
            rbac: lock(&self.api.rbac).clone(),
            join: lock(&self.api.join).clone(),
            supervisor: lock(&self.api.supervisor).clone(),
            tokens: lock(&self.api.tokens).clone(),
        }
    }

    /// The etcd restored from a backup. resourceVersions go on, and the tokens since then: those of a
    /// file are not in etcd, and bootstrap tokens are made again.
    pub fn restore(&self, snapshot: Snapshot) {
        let Snapshot { store, rbac, join, supervisor, tokens } = snapshot;
        self.api.store().restore(store);
        *lock(&self.api.rbac) = rbac;
        let mut now = lock(&self.api.join);
        let since = std::mem::replace(&mut *now, join).tokens;
        let is_lost = |token: &BootstrapToken| now.tokens.iter().all(|old| old.id() != token.id());
        let lost: Vec<_> = since.into_iter().filter(is_lost).collect();
        now.tokens.extend(lost);
        drop(now);
        *lock(&self.api.supervisor) = supervisor;
        lock(&self.api.tokens).extend(tokens);
    }

    // --- controllers ---

    /// How long certificates live that are signed from now on.
    pub fn set_signing(&self, signing: Signing) {
        *lock(&self.signing) = signing;
    }

    /// One pass of all controllers. A CSR is approved in one pass, and signed in the next.
    pub fn tick(&self, grace: Duration) {
        self.tick_nodes(grace);
        self.step_certificates();
    }

    /// One pass of all controllers but those of certificates.
    pub(crate) fn tick_nodes(&self, grace: Duration) {
        self.tick_health(grace);
        self.tick_ttl();
        self.tick_lifecycle();
        self.tick_garbage();
    }

    /// node-lifecycle's grace period: Nodes that were not heard of for so long become Unknown.
    pub fn tick_health(&self, grace: Duration) {
        lock(&self.lifecycle).monitor(&self.api, grace);
    }

    /// One step of the ttl controller, now.
    pub fn tick_ttl(&self) {
        controllers::annotate(&self.api);
    }

    /// One step of node-lifecycle's labels and taints, now (not of its grace period).
    pub fn tick_lifecycle(&self) {
        controllers::reconcile_labels(&self.api);
        controllers::taint(&self.api);
    }

    /// Deletes Leases whose Node is gone, now.
    pub fn tick_garbage(&self) {
        controllers::collect_garbage(&self.api);
    }

    /// Approves and signs what is to be approved, now.
    pub fn tick_certificates(&self) {
        self.step_certificates();
        self.step_certificates();
    }

    /// Approves, or signs what was approved before.
    pub(crate) fn step_certificates(&self) {
        controllers::certificates(&self.api, &self.authority, *lock(&self.signing));
    }

    /// Decides about a CSR, as `kubectl certificate approve` and `deny` do: `Approved` or `Denied`.
    ///
    /// # Panics
    /// If there is no such CSR.
    pub fn judge_csr(&self, name: &str, verdict: &str) {
        let condition = controllers::csr_condition(verdict, "ByTest", "A test decided so.");
        let body = json!({"status": {"conditions": [condition]}});
        let path = format!("{}/approval", full_path(&format!("csrs/{name}")));
        let (code, answer) = self.as_admin("PATCH", &path, "application/merge-patch+json", &body);
        assert_eq!(code, 200, "{verdict} for {name}: {answer}");
    }

    /// How often Ready left `True` in the view of node-lifecycle (needs `tick_health`, which
    /// `Builder::lifecycle` calls).
    #[must_use]
    pub fn left_ready(&self) -> usize {
        lock(&self.lifecycle).left
    }

    /// Whether Ready ever left `True`.
    #[must_use]
    pub fn ever_left_ready(&self) -> bool {
        self.left_ready() > 0
    }
}

const COLLECTIONS: [(&str, &str); 4] = [
    ("nodes", "/api/v1/nodes"),
    ("leases", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"),
    ("csrs", "/apis/certificates.k8s.io/v1/certificatesigningrequests"),
    ("events", "/api/v1/namespaces/default/events"),
];

fn full_path(what: &str) -> String {
    let of = |(short, path)| Some(format!("{path}{}", what.strip_prefix(short)?));
    COLLECTIONS.into_iter().find_map(of).unwrap_or_else(|| what.to_owned())
}
