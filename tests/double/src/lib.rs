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
mod model;
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
mod tls;
mod validate;

pub use controllers::Signing;
pub use faults::{Fault, Faults, Rule};
pub use http::{Request, Response};
pub use join::{BootstrapToken, KUBEADM_GROUP};
pub use kubeconfig::{Credentials, kubeconfig};
pub use model::{Model, Snapshot};
pub use pki::{Authority, Identity, Validity};
pub use random::set_seed;
pub use server::Recorded;
pub use supervisor::{Phase, Supervisor};
pub use time::set_time;

use auth::User;
use server::{BLACKHOLE, REFUSING, SERVING, Shared};
use std::net::TcpListener;
use std::ops::Deref;
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
        let (listener, port) = server::bind(0).expect("a free port on loopback");
        let model = Model::new(authority, &format!("127.0.0.1:{port}"));
        model.set_signing(self.signing);
        lock(&model.api.tokens).extend(self.tokens);
        if let Some(is_kubeadm) = self.kubeadm {
            model.bind_bootstrappers(is_kubeadm);
        }
        let double = Double {
            inner: Arc::new(Inner {
                shared: Arc::new(Shared::new(model, &identity)),
                port,
                slot: Arc::new(Mutex::new(Some(listener))),
                threads: Mutex::default(),
            }),
        };
        double.spawn(self.lifecycle, self.approve);
        double
    }
}

const SERVER_NAMES: &[&str] = &["127.0.0.1", "::1", "localhost", "kubernetes"];

/// The double: a [`Model`] that is served. Clones are handles to the same server, which stops when
/// the last one is dropped.
#[derive(Clone)]
pub struct Double {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    port: u16,
    slot: Arc<Mutex<Option<TcpListener>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Deref for Double {
    type Target = Model;

    fn deref(&self) -> &Model {
        &self.inner.shared.model
    }
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
        let shared = self.inner.shared.clone();
        let pause = grace.map_or(Duration::from_millis(50), |g| {
            (g / 10).clamp(Duration::from_millis(10), Duration::from_millis(500))
        });
        let controllers = thread::spawn(move || {
            while !shared.stop.load(Ordering::SeqCst) {
                if let Some(grace) = grace {
                    shared.model.tick_nodes(grace);
                }
                if approve {
                    shared.model.step_certificates();
                }
                let until = Instant::now() + pause;
                while Instant::now() < until && !shared.stop.load(Ordering::SeqCst) {
                    thread::sleep(pause.min(Duration::from_millis(20)));
                }
            }
        });
        lock(&self.inner.threads).push(controllers);
    }

    /// The port; it stays the same over restarts.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.inner.port
    }

    /// SHA-256 of these bytes: 64 hexadecimal digits.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> String {
        pki::hex(pki::sha256(bytes).as_ref())
    }

    // --- requests ---

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
        self.api.store().restore(store::Store::default());
        self.close_connections();
    }
}
