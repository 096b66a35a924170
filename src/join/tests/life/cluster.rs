//! A cluster that kubeadm made, as a board sees it: cluster-info, the signer, Nodes and Leases.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::PublicKeyData as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use super::YEAR;
use crate::client::api::{Api, Distrust};
use crate::client::api_config::{ApiConfig, Authorization};
use crate::credentials::pki::tests::Signer;
use crate::credentials::tests::model::{approved, epoch, is_ready, mark, posted, wall, wanted};
use crate::join::proof::{self, sha256};
use crate::join::token::{Bootstrap, Digest};
use crate::kube::message::{Answer, Method, Request, answered, not_found};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::node::kubelet::tests::Server;

const RESOURCE: &str = "certificatesigningrequests";
/// The controllers mark a Node whose Lease is not renewed for so long.
const GRACE: Duration = Duration::from_secs(50);

/// A CA of the cluster.
struct Authority {
    signer: Signer,
    der: Vec<u8>,
    pin: Digest,
}

impl Authority {
    fn new() -> Self {
        let signer = Signer::new();
        let der = CertificateDer::from_pem_slice(signer.ca.as_bytes()).unwrap().to_vec();
        let pin = sha256(&signer.issuer.key().subject_public_key_info());
        Self { signer, der, pin }
    }
}

/// What the server does with requests, until its time is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Well,
    Gone,
    Busy(u16),
}

/// Who sends a request.
#[derive(Debug, PartialEq)]
enum User {
    Anonymous,
    Bootstrap,
    Node(String),
    Refused,
}

struct Issued {
    authority: usize,
    name: String,
    until: Duration,
}

pub(super) struct Cluster {
    pub(super) host: &'static str,
    /// All CAs that it ever had.
    authorities: Vec<Authority>,
    /// The first one that is still trusted.
    first: usize,
    /// The one that signs, for the server as well.
    signer: usize,
    issued: BTreeMap<Vec<u8>, Issued>,
    tokens: Vec<String>,
    made_tokens: u64,
    nodes: BTreeMap<String, Server>,
    /// When each Lease was last renewed.
    pub(super) renewed: BTreeMap<String, Duration>,
    registered: BTreeMap<String, Duration>,
    csrs: BTreeMap<String, Value>,
    /// By PEM text: the CAs of a bundle, or the key of a client certificate.
    parsed: RefCell<BTreeMap<Vec<u8>, Vec<Vec<u8>>>>,
    serial: u64,
    pub(super) mode: Mode,
    pub(super) well_since: Duration,
}

impl Cluster {
    pub(super) fn new(host: &'static str) -> Self {
        Self {
            host,
            authorities: vec![Authority::new()],
            first: 0,
            signer: 0,
            issued: BTreeMap::new(),
            tokens: Vec::new(),
            made_tokens: 0,
            nodes: BTreeMap::new(),
            renewed: BTreeMap::new(),
            registered: BTreeMap::new(),
            csrs: BTreeMap::new(),
            parsed: RefCell::default(),
            serial: 0,
            mode: Mode::Well,
            well_since: Duration::ZERO,
        }
    }

    /// `kubeadm token create`.
    pub(super) fn new_token(&mut self) -> String {
        self.made_tokens += 1;
        let token = format!("abc{:03}.{:016}", self.made_tokens % 1000, self.made_tokens);
        self.tokens.push(token.clone());
        token
    }

    pub(super) fn expire_tokens(&mut self) {
        self.tokens.clear();
    }

    pub(super) fn pins(&self) -> Vec<Digest> {
        self.authorities[self.first..].iter().map(|authority| authority.pin).collect()
    }

    /// The next step of the replacement of the CA: both are trusted, the new one signs, the old one
    /// is gone.
    pub(super) fn replace_ca(&mut self) -> &'static str {
        let last = self.authorities.len() - 1;
        if self.first == last {
            self.authorities.push(Authority::new());
            "both"
        } else if self.signer < last {
            self.signer = last;
            "the new one signs"
        } else {
            self.first = last;
            "the old one is gone"
        }
    }

    fn bundle(&self) -> String {
        self.authorities[self.first..]
            .iter()
            .map(|authority| authority.signer.ca.as_str())
            .collect()
    }

    pub(super) fn trusts_server(&self, config: &ApiConfig) -> bool {
        let of_server = &self.authorities[self.signer].der;
        config.insecure
            || config.ca.as_ref().is_some_and(|ca| {
                let mut parsed = self.parsed.borrow_mut();
                let certificates = parsed.entry(ca.bytes.clone()).or_insert_with(|| {
                    let certificates = CertificateDer::pem_slice_iter(&ca.bytes).flatten();
                    certificates.map(|der| der.to_vec()).collect()
                });
                certificates.contains(of_server)
            })
    }

    /// The Node that the certificate of `config` is for, if it is accepted.
    pub(super) fn node_of(&self, config: &ApiConfig, now: Duration) -> Option<&str> {
        let chain = &config.certificate.as_ref()?.chain.bytes;
        let mut parsed = self.parsed.borrow_mut();
        let key = parsed.entry(chain.clone()).or_insert_with(|| {
            Leaf::of_pem(chain).into_iter().map(|leaf| leaf.public_key).collect()
        });
        let issued = self.issued.get(key.first()?)?;
        let is_valid = issued.authority >= self.first && now <= issued.until;
        is_valid.then_some(issued.name.as_str())
    }

    fn user(&self, config: &ApiConfig, now: Duration) -> User {
        if let Some(name) = self.node_of(config, now) {
            return User::Node(name.to_owned());
        }
        match &config.authorization {
            Some(Authorization::Bearer { token, .. }) => {
                let is_known = self.tokens.iter().any(|known| known == token.reveal());
                if is_known { User::Bootstrap } else { User::Refused }
            }
            _ if config.certificate.is_some() => User::Refused,
            _ => User::Anonymous,
        }
    }

    pub(super) fn update(&mut self, now: Duration) {
        if now >= self.well_since {
            self.mode = Mode::Well;
        }
        for (name, server) in &mut self.nodes {
            let seen = [&self.registered, &self.renewed].map(|times| times.get(name).copied());
            if seen.into_iter().flatten().max().is_some_and(|seen| now > seen + GRACE) {
                mark(server);
            }
        }
    }

    /// The response to one request. `board` is what the clock of the board shows; the board's
    /// program was built at the start.
    pub(super) fn call(
        &mut self,
        api: &mut Api,
        request: &Request,
        now: Duration,
        board: Wall,
    ) -> Answer {
        self.update(now);
        api.set_distrust(None);
        let config = &api.config;
        let host = self.host;
        if self.mode == Mode::Gone {
            return Err("connection refused".into());
        }
        if !config.insecure {
            // Its certificate is renewed each year.
            let [from, until] = [wall(now).before(YEAR), wall(now + YEAR)];
            let fault = if !self.trusts_server(config) {
                api.set_distrust(Some(Distrust::Issuer));
                Fault::new(
                    format!("certificate of {host} is not signed by a trusted CA"),
                    "is this the right server, or was the CA replaced?",
                )
            } else if board.max(wall(Duration::ZERO)) < from {
                api.set_distrust(Some(Distrust::Date));
                let what = format!("certificate of {host} is not valid before …, clock says …");
                Fault::new(what, "set the clock of this board (NTP, RTC), or …")
            } else if board > until {
                api.set_distrust(Some(Distrust::Date));
                let what = format!("certificate of {host} expired at …, clock says …");
                Fault::new(what, "renew it, or set the clock of this board")
            } else {
                return self.answer(request, &api.config, now);
            };
            return Err(fault);
        }
        self.answer(request, &api.config, now)
    }

    /// Each response has the header `Date`.
    fn answer(&mut self, request: &Request, config: &ApiConfig, now: Duration) -> Answer {
        let mut outcome = self.answer_without_date(request, config, now);
        if let Ok(response) = &mut outcome {
            response.date = Some(wall(now));
        }
        outcome
    }

    fn answer_without_date(
        &mut self,
        request: &Request,
        config: &ApiConfig,
        now: Duration,
    ) -> Answer {
        let status = |code: u16, reason: &str| answered(code, json!({"reason": reason}));
        if let Mode::Busy(code) = self.mode {
            return status(code, "Tested");
        }
        let user = self.user(config, now);
        match &user {
            User::Refused => status(401, "Unauthorized"),
            _ if request.path.contains("/cluster-info") => self.cluster_info(),
            User::Anonymous => status(403, "Forbidden"),
            _ if request.path.contains("selfsubjectaccessreviews") => {
                answered(201, json!({"status": {"allowed": true}}))
            }
            _ if request.path.contains(RESOURCE) => self.answer_csr(request, &user, now),
            User::Bootstrap => {
                let name = request.path.rsplit('/').next().unwrap();
                match self.nodes.get_mut(name) {
                    Some(server) if request.path.contains("/nodes/") => server.carry_out(request),
                    _ => not_found("nodes", name),
                }
            }
            User::Node(name) => {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let posted = object::text(&body, &["metadata", "name"]);
                let is_other = |part: &str| {
                    let at = request.path.split_once(part).map(|(_, rest)| rest);
                    at.is_some_and(|rest| rest.split(['/', '?']).next() != Some(name))
                };
                let is_object = request.method == Method::Post
                    && ["/nodes", "/leases"].iter().any(|end| request.path.ends_with(end));
                if is_other("/nodes/") || is_other("/leases/") || (is_object && posted != name) {
                    return status(403, "Forbidden");
                }
                let outcome = self.nodes.entry(name.clone()).or_default().carry_out(request);
                if matches!(&outcome, Ok(r) if r.code == 404) {
                    let is_lease = request.path.contains("/leases");
                    return not_found(if is_lease { "leases" } else { "nodes" }, name);
                }
                if matches!(&outcome, Ok(r) if r.code < 300) {
                    if request.path.ends_with("/nodes") {
                        self.registered.insert(name.clone(), now);
                    } else if request.path.contains("/leases") && request.method != Method::Get {
                        self.renewed.insert(name.clone(), now);
                    }
                }
                outcome
            }
        }
    }

    fn cluster_info(&self) -> Answer {
        let ca = STANDARD.encode(self.bundle());
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    \
             server: https://{}:6443\n  name: \"\"\nkind: Config\n",
            self.host
        );
        let mut data = json!({"kubeconfig": kubeconfig});
        for token in &self.tokens {
            let token = Bootstrap::parse(token).unwrap();
            data[format!("jws-kubeconfig-{}", token.id)] =
                proof::signature(&kubeconfig, &token).into();
        }
        answered(200, json!({"kind": "ConfigMap", "data": data}))
    }

    /// Signs at once.
    fn answer_csr(&mut self, request: &Request, user: &User, now: Duration) -> Answer {
        if request.method == Method::Get {
            let name = request.path.rsplit('/').next().unwrap();
            return match self.csrs.get(name) {
                Some(csr) => answered(200, csr.clone()),
                None => not_found(RESOURCE, name),
            };
        }
        self.serial += 1;
        let (name, mut csr) = posted(request, self.serial);
        if self.csrs.contains_key(&name) {
            return answered(409, json!({"reason": "AlreadyExists"}));
        }
        let (posted, wanted) = (csr.clone(), wanted(&csr));
        let common_name = &wanted.subject.common_name;
        let node = common_name.strip_prefix("system:node:").unwrap().to_owned();
        if let User::Node(name) = user
            && *name != node
        {
            return answered(403, json!({"reason": "Forbidden"}));
        }
        let (from, until) = (epoch(now) - Duration::from_secs(300), epoch(now) + YEAR);
        let signer = &self.authorities[self.signer].signer;
        let chain = signer.chain(common_name, &wanted.public_key, from, until);
        let public_key = Leaf::of_pem(chain.as_bytes()).unwrap().public_key;
        let issued = Issued { authority: self.signer, name: node, until: now + YEAR };
        self.issued.insert(public_key, issued);
        csr["status"] = approved(&chain);
        self.csrs.insert(name, csr);
        answered(201, posted)
    }

    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(is_ready)
    }

    /// `kubectl delete node`.
    pub(super) fn delete_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }
}
