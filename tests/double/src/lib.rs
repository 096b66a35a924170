//! A kube-apiserver double for nodelet's tests: a real TLS server on loopback that stores Nodes,
//! Leases, Events, CertificateSigningRequests and Pods, enforces what the
//! Node authorizer and NodeRestriction enforce, answers `kubectl`, and injects faults on demand.
//! `tests/replay.rs` compares it with the recordings of a real server (tests/recordings).
//!
//! ```no_run
//! let double = apidouble::Double::start();
//! let kubeconfig = double.kubeconfig_for_node("pi-7");
//! // … run the agent with it …
//! assert!(double.get("nodes/pi-7").is_some());
//! ```

mod admission;
mod api;
mod auth;
mod controllers;
mod der;
mod discovery;
mod faults;
mod fields;
mod http;
mod join;
mod kinds;
mod kubeconfig;
mod patch;
mod pki;
mod pods;
mod protobuf;
mod quantity;
mod random;
mod rbac;
mod reviews;
mod selector;
mod server;
mod status;
mod store;
mod supervisor;
mod table;
mod time;
mod validate;

pub use faults::{Fault, Faults, Rule};
pub use join::{BootstrapToken, KUBEADM_GROUP};
pub use kubeconfig::{Credentials, kubeconfig};
pub use pki::{Authority, Identity, Validity};
pub use random::set_seed;
pub use server::Recorded;
pub use supervisor::{Phase, Supervisor};
pub use time::set_time;

use auth::User;
use controllers::{Lifecycle, Signing};
use http::Request;
use serde_json::{Value, json};
use server::{BLACKHOLE, REFUSING, SERVING, Shared};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Options of a double.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    lifecycle: Option<Duration>,
    approve: bool,
    signing: Signing,
    tokens: Vec<(String, User)>,
    kubeadm: Option<bool>,
}

impl Builder {
    /// Emulates node-lifecycle with this grace period (a real one: 50 s), the ttl controller and
    /// the garbage collection of Leases, on a thread of its own.
    #[must_use]
    pub fn lifecycle(mut self, grace: Duration) -> Self {
        self.lifecycle = Some(grace);
        self
    }

    /// Approves and signs CSRs of kubelets, as kube-controller-manager does.
    #[must_use]
    pub fn approve_csrs(mut self) -> Self {
        self.approve = true;
        self
    }

    /// The longest life of a certificate that is signed (default: a year), for tests of rotation.
    #[must_use]
    pub fn signing_seconds(mut self, seconds: i64) -> Self {
        self.signing.longest = seconds;
        self
    }

    /// How far back a certificate that is signed is dated (default, and a real signer's: five
    /// minutes), for tests of rotation with lives of seconds.
    #[must_use]
    pub fn backdate_seconds(mut self, seconds: i64) -> Self {
        self.signing.backdate = seconds;
        self
    }

    /// A bearer token, its user and groups.
    #[must_use]
    pub fn token(mut self, token: &str, user: &str, groups: &[&str]) -> Self {
        self.tokens.push((token.to_owned(), User::new(user, groups.iter().copied())));
        self
    }

    /// A bootstrap token `id.secret`, of user `system:bootstrap:id`.
    #[must_use]
    pub fn bootstrap_token(self, token: &str) -> Self {
        let id = token.split('.').next().unwrap_or("").to_owned();
        self.token(
            token,
            &format!("system:bootstrap:{id}"),
            &["system:bootstrappers", "system:bootstrappers:edge"],
        )
    }

    /// A cluster that kubeadm made, with its RBAC and cluster-info.
    #[must_use]
    pub fn kubeadm(mut self) -> Self {
        self.kubeadm = Some(true);
        self.approve_csrs()
    }

    /// A cluster that kubeadm did not make: bootstrap tokens, no cluster-info, and no binding for
    /// them.
    #[must_use]
    pub fn without_kubeadm(mut self) -> Self {
        self.kubeadm = Some(false);
        self.approve_csrs()
    }

    /// Starts the double on 127.0.0.1, on a free port.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn start(self) -> Double {
        let authority = Authority::new("kubernetes-ca");
        let identity = authority.server(SERVER_NAMES, Validity::VALID);
        let shared = Arc::new(Shared::new(authority, &identity));
        let (listener, port) = server::bind(0).expect("a free port on loopback");
        let double = Double {
            inner: Arc::new(Inner {
                shared,
                port,
                slot: Arc::new(Mutex::new(Some(listener))),
                lifecycle: Arc::new(Mutex::new(Lifecycle::default())),
                threads: Mutex::default(),
                signing: self.signing,
            }),
        };
        lock(&double.inner.shared.api.tokens).extend(self.tokens);
        if let Some(is_kubeadm) = self.kubeadm {
            double.bind_bootstrappers(is_kubeadm);
        }
        double.spawn(self.lifecycle, self.approve);
        double
    }
}

const SERVER_NAMES: &[&str] = &["127.0.0.1", "::1", "localhost", "kubernetes"];

/// The double. Clones are handles to the same server, which stops when the last one is dropped.
#[derive(Clone)]
pub struct Double {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    port: u16,
    slot: Arc<Mutex<Option<TcpListener>>>,
    lifecycle: Arc<Mutex<Lifecycle>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    signing: Signing,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            let _ = thread.join();
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Double {
    /// A double with default options.
    #[must_use]
    pub fn start() -> Self {
        Builder::default().start()
    }

    /// Options.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn spawn(&self, grace: Option<Duration>, approve: bool) {
        let (shared, slot) = (self.inner.shared.clone(), self.inner.slot.clone());
        let accept = thread::spawn(move || server::accept(&shared, &slot));
        lock(&self.inner.threads).push(accept);
        if grace.is_none() && !approve {
            return;
        }
        let (shared, lifecycle) = (self.inner.shared.clone(), self.inner.lifecycle.clone());
        let signing = self.inner.signing;
        let pause = grace.map_or(Duration::from_millis(50), |g| {
            (g / 10).clamp(Duration::from_millis(10), Duration::from_millis(500))
        });
        let controllers = thread::spawn(move || {
            while !shared.stop.load(Ordering::SeqCst) {
                if let Some(grace) = grace {
                    lock(&lifecycle).monitor(&shared.api, grace);
                    controllers::annotate(&shared.api);
                    controllers::reconcile_labels(&shared.api);
                    controllers::taint(&shared.api);
                    controllers::collect_garbage(&shared.api);
                }
                if approve {
                    controllers::certificates(&shared.api, &shared.authority, signing);
                }
                let until = Instant::now() + pause;
                while Instant::now() < until && !shared.stop.load(Ordering::SeqCst) {
                    thread::sleep(pause.min(Duration::from_millis(20)));
                }
            }
        });
        lock(&self.inner.threads).push(controllers);
    }

    // --- address and credentials ---

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.inner.port)
    }

    /// The port; it stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// The certificate authority (PEM), of the server and of the clients.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.authority().pem().to_owned()
    }

    /// The certificate authority, to issue more.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.inner.shared.authority
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

    /// Adds a bearer token.
    pub fn add_token(&self, token: &str, user: &str, groups: &[&str]) {
        let user = User::new(user, groups.iter().copied());
        lock(&self.inner.shared.api.tokens).insert(token.to_owned(), user);
    }

    fn bind_bootstrappers(&self, is_kubeadm: bool) {
        self.set_rbac(&[]);
        if is_kubeadm {
            self.set_rbac(&join::rbac());
            self.set_cluster_info(Some(&self.cluster_info(&self.url(), &self.ca_pem())));
        }
    }

    /// The kubeconfig in cluster-info, as kubeadm writes it.
    #[must_use]
    pub fn cluster_info(&self, server: &str, ca_pem: &str) -> String {
        join::kubeconfig(server, ca_pem)
    }

    /// Replaces the kubeconfig in cluster-info, or removes the ConfigMap.
    pub fn set_cluster_info(&self, kubeconfig: Option<&str>) {
        lock(&self.inner.shared.api.join).kubeconfig = kubeconfig.map(str::to_owned);
    }

    /// The next GETs of cluster-info have these members of `data`, one each; null removes one.
    pub fn forge_cluster_info(&self, data: &[Value]) {
        lock(&self.inner.shared.api.join).forged = data.to_vec();
    }

    /// The signature of a text with a token.
    #[must_use]
    pub fn signature(&self, text: &str, token: &BootstrapToken) -> String {
        join::sign(text, token)
    }

    /// `--anonymous-auth=false`.
    pub fn refuse_anonymous(&self) {
        lock(&self.inner.shared.api.join).anonymous_off = true;
    }

    /// Adds the Secret of a bootstrap token.
    pub fn add_bootstrap_token(&self, token: BootstrapToken) {
        lock(&self.inner.shared.api.join).tokens.push(token);
    }

    /// tokencleaner: deletes the Secret of a token that expired, by its id.
    pub fn remove_bootstrap_token(&self, id: &str) {
        let mut join = lock(&self.inner.shared.api.join);
        join.tokens.retain(|token| token.id() != id);
    }

    /// Adds or changes the supervisor of k3s: its CA is ours, and its password is `pa55:word`. The
    /// API refuses anonymous requests then, as that of k3s does.
    pub fn set_supervisor(&self, change: impl FnOnce(&mut Supervisor)) {
        let api = &self.inner.shared.api;
        let mut slot = lock(&api.supervisor);
        let supervisor = slot.get_or_insert_with(|| {
            self.refuse_anonymous();
            Supervisor::new(self.ca_pem(), self.port())
        });
        change(supervisor);
    }

    /// The supervisor, if there is one.
    #[must_use]
    pub fn supervisor(&self) -> Option<Supervisor> {
        let api = &self.inner.shared.api;
        let mut slot = lock(&api.supervisor);
        let supervisor = slot.as_mut()?;
        supervisor.collect(&|name| api.has_node(name));
        Some(supervisor.clone())
    }

    /// SHA-256 of these bytes: 64 hexadecimal digits.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> String {
        pki::hex(pki::sha256(bytes).as_ref())
    }

    /// The bindings of the three commands for a cluster that kubeadm did not make, up to `count`.
    pub fn bind(&self, count: usize) {
        let names = ["nodelet-ask", "nodelet-approve", "nodelet-renew"];
        let objects = join::bindings(names, "system:bootstrappers");
        self.set_rbac(objects.get(..2 * count).expect("three commands"));
    }

    /// What `kubeadm token create --print-join-command` prints, without `kubeadm`.
    #[must_use]
    pub fn join_command(&self, token: &str) -> Vec<String> {
        let endpoint = self.url().replace("https://", "");
        let pin = self.authority().pin();
        ["join", &endpoint, "--token", token, "--discovery-token-ca-cert-hash", &pin]
            .map(str::to_owned)
            .to_vec()
    }

    /// Replaces all roles and bindings except those that are built in.
    pub fn set_rbac(&self, objects: &[Value]) {
        lock(&self.inner.shared.api.rbac).objects = objects.to_vec();
    }

    /// Removes a bearer token: 401.
    pub fn revoke_token(&self, token: &str) {
        lock(&self.inner.shared.api.tokens).remove(token);
    }

    // --- objects and requests ---

    /// A stored object, by `nodes/NAME`, `leases/NAME` (in kube-node-lease), `csrs/NAME`,
    /// `events/NAME` (in default), or by its whole path (`/api/v1/nodes/NAME`).
    #[must_use]
    pub fn get(&self, what: &str) -> Option<Value> {
        let (code, value) = self.as_admin("GET", &full_path(what), "", &Value::Null);
        (code == 200).then_some(value)
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
        let response = self.inner.shared.api.handle(&request, Some(&User::admin()));
        let body = serde_json::from_slice(&response.body);
        let text = || Value::from(String::from_utf8_lossy(&response.body).into_owned());
        (response.code, body.unwrap_or_else(|_| text()))
    }

    /// The requests over the network, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.inner.shared.recorded().clone()
    }

    /// Clears the recorded requests.
    pub fn clear_requests(&self) {
        self.inner.shared.recorded().clear();
    }

    /// How many connections were accepted since the start.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.inner.shared.connections.load(Ordering::SeqCst)
    }

    /// Fails if a body had a member that its kind does not have: the server drops it and warns.
    ///
    /// # Panics
    /// As said.
    pub fn assert_members_are_known(&self) {
        let unknown = lock(&self.inner.shared.api.unknown);
        assert!(unknown.is_empty(), "{unknown:#?}");
    }

    /// What `kubectl get nodes -o wide` prints.
    #[must_use]
    pub fn print_nodes(&self) -> String {
        table::print(&kinds::NODE, &self.inner.shared.api.store().list(&kinds::NODE, None))
    }

    // --- controllers ---

    /// How often Ready left `True` in the view of node-lifecycle (needs `Builder::lifecycle`).
    #[must_use]
    pub fn left_ready(&self) -> usize {
        lock(&self.inner.lifecycle).left
    }

    /// Whether Ready ever left `True`.
    #[must_use]
    pub fn ever_left_ready(&self) -> bool {
        self.left_ready() > 0
    }

    /// One step of the ttl controller, now.
    pub fn tick_ttl(&self) {
        controllers::annotate(&self.inner.shared.api);
    }

    /// One step of node-lifecycle's labels and taints, now (not of its grace period).
    pub fn tick_lifecycle(&self) {
        controllers::reconcile_labels(&self.inner.shared.api);
        controllers::taint(&self.inner.shared.api);
    }

    /// Deletes Leases whose Node is gone, now.
    pub fn tick_garbage(&self) {
        controllers::collect_garbage(&self.inner.shared.api);
    }

    /// Approves and signs what is to be approved, now.
    pub fn tick_certificates(&self) {
        let shared = &self.inner.shared;
        let signing = self.inner.signing;
        controllers::certificates(&shared.api, &shared.authority, signing);
        controllers::certificates(&shared.api, &shared.authority, signing);
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

    // --- faults ---

    /// The queue of faults.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.inner.shared.faults.clone()
    }

    /// Serves with another certificate from now on; open connections are closed.
    pub fn swap_certificate(&self, identity: &Identity) {
        self.inner.shared.serve_with(identity);
        self.close_connections();
    }

    /// Accepts client certificates of these authorities from now on, and of no other.
    pub fn trust(&self, authorities: &[&Authority]) {
        self.inner.shared.trust(authorities);
    }

    /// Serves at another port, too, with a certificate of its own, such as one of another CA in
    /// front of the supervisor of rke2. Returns the port.
    ///
    /// # Panics
    /// If there is no free port.
    #[must_use]
    pub fn front(&self, identity: &Identity) -> u16 {
        let (listener, port) = server::bind(0).expect("a free port on loopback");
        self.inner.shared.serve_at(port, identity);
        let (shared, slot) = (self.inner.shared.clone(), Mutex::new(Some(listener)));
        let accept = thread::spawn(move || server::accept(&shared, &slot));
        lock(&self.inner.threads).push(accept);
        port
    }

    /// Serves with a certificate of an unknown authority.
    pub fn swap_to_unknown_authority(&self) {
        self.swap_certificate(
            &Authority::new("somebody-else").server(SERVER_NAMES, Validity::VALID),
        );
    }

    /// Serves with a certificate of our authority that is valid then, for these names
    /// (`None`: the right ones). Undoes every other swap with `Validity::VALID`.
    pub fn swap_validity(&self, validity: Validity, names: Option<&[&str]>) {
        self.swap_certificate(&self.authority().server(names.unwrap_or(SERVER_NAMES), validity));
    }

    /// Closes all open connections.
    pub fn close_connections(&self) {
        self.inner.shared.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Closes everything; new connections are refused.
    pub fn stop_listening(&self) {
        self.inner.shared.mode.store(REFUSING, Ordering::SeqCst);
        *lock(&self.inner.slot) = None;
        self.close_connections();
    }

    /// Serves again, on the same port: after `stop_listening` and after `blackhole`.
    ///
    /// # Panics
    /// If the port is in use.
    pub fn start_listening(&self) {
        let mut slot = lock(&self.inner.slot);
        if slot.is_none() {
            *slot = Some(server::bind(self.inner.port).expect("our port is still free").0);
        }
        self.inner.shared.mode.store(SERVING, Ordering::SeqCst);
    }

    /// From now on nothing is accepted (connects succeed, TLS gets no answer) and nothing is sent
    /// on open connections; undone by `start_listening`.
    pub fn blackhole(&self) {
        self.inner.shared.mode.store(BLACKHOLE, Ordering::SeqCst);
    }

    /// A restart without objects: an etcd restored from nothing. resourceVersions go on.
    pub fn restart_empty(&self) {
        self.inner.shared.api.store().clear();
        self.close_connections();
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
