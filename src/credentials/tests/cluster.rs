//! One API server in memory, with its signer and its controllers: for the core in virtual
//! time (`node::kubelet::tests`) and for the lives of `join::tests`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::PublicKeyData as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

use crate::client::api::{Api, Distrust};
use crate::client::api_config::{ApiConfig, Authorization};
use crate::credentials::certificate::tests::certificate;
use crate::credentials::pki::tests::Signer;
use crate::join::proof::{self, sha256};
use crate::join::token::{Bootstrap, Digest};
use crate::kube::message::{Answer, Method, Request, Response, answered, not_found};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Wanted, pem};
use crate::node::patch::tests::apply;

/// Seconds since 1970 at the start.
const START: u64 = 1_800_000_000;

pub(crate) const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// The controllers mark a Node whose Lease is not renewed for so long.
const GRACE: Duration = Duration::from_secs(50);

const CSRS: &str = "certificatesigningrequests";

/// The true time since 1970.
fn epoch(now: Duration) -> Duration {
    Duration::from_secs(START) + now
}

/// The true time.
pub(crate) fn wall(now: Duration) -> Wall {
    Wall::from_epoch(epoch(now))
}

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Behavior {
    /// It carries the request out.
    Correct,
    /// It refuses with this code, perhaps with `Retry-After`.
    Refuses(u16, Option<u64>),
    /// It does not respond.
    Silent,
    /// Another client deletes the Node and its Lease before the request.
    Deletes,
    /// Another client deletes the Lease before the request.
    DeletesLease,
    /// Another client writes to the Node before the request.
    Writes,
}

/// Who sends a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum User {
    Anonymous,
    Bootstrap,
    Node(String),
    Refused,
}

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

/// A CertificateSigningRequest.
pub(crate) struct Csr {
    object: Value,
}

impl Csr {
    fn wanted(&self) -> Wanted {
        let pem = STANDARD.decode(object::text(&self.object, &["spec", "request"])).unwrap();
        Wanted::of_pem(&pem).unwrap()
    }
}

/// The objects of one Node.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) node: Option<Value>,
    pub(crate) lease: Option<Value>,
    /// Reasons of the events.
    pub(crate) events: Vec<String>,
    /// Pods that are bound to the Node and have not ended.
    pub(crate) pods: Vec<Value>,
    /// When the Node was created.
    registered: Option<Duration>,
    /// When the Lease was last created or renewed.
    pub(crate) renewed: Option<Duration>,
    version: u64,
    uids: u64,
    /// The time of the last request.
    now: Duration,
}

impl Objects {
    /// With the next version, and with another uid if it is new.
    pub(crate) fn store(&mut self, mut object: Value, anew: bool) -> Value {
        self.version += 1;
        self.uids += u64::from(anew);
        let (version, uid) = (self.version.to_string(), format!("u{}", self.uids));
        let metadata = object::members(&mut object, &["metadata"]);
        metadata.insert("resourceVersion".into(), version.into());
        if anew {
            metadata.insert("uid".into(), uid.into());
            let created = wall(self.now).time();
            metadata.insert("creationTimestamp".into(), created.into());
        }
        object
    }

    /// Another client writes to the Node, or recreates it.
    pub(crate) fn touch(&mut self, anew: bool) {
        self.node = self.node.take().map(|node| self.store(node, anew));
    }

    /// `kubectl delete node`, and the garbage collector.
    pub(crate) fn delete(&mut self) {
        (self.node, self.lease, self.registered, self.renewed) = (None, None, None, None);
    }

    /// As node-lifecycle-controller when no renewal of the Lease has reached it for the grace
    /// period: it sets each condition to Unknown, and never back.
    pub(crate) fn mark(&mut self) {
        if let Some(mut node) = self.node.take() {
            let mut is_new = false;
            for condition in object::elements(&mut node, &["status", "conditions"]) {
                let old = object::members(condition, &[]).insert("status".into(), "Unknown".into());
                is_new |= old.is_some_and(|old| old != "Unknown");
            }
            self.node = Some(if is_new { self.store(node, false) } else { node });
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.node.as_ref().is_some_and(|node| {
            let mut conditions = object::list(node, &["status", "conditions"]).iter();
            conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
    }

    /// The same, with a renewal of the Lease since then.
    pub(crate) fn is_ready_since(&self, start: Duration) -> bool {
        self.is_ready() && self.renewed.is_some_and(|at| at >= start)
    }

    /// Whether the Node is the one owner of the Lease.
    pub(crate) fn owns_lease(&self) -> bool {
        let (Some(node), Some(lease)) = (&self.node, &self.lease) else {
            return false;
        };
        let owners = object::list(lease, &["metadata", "ownerReferences"]);
        owners.len() == 1 && owners[0]["uid"] == node["metadata"]["uid"]
    }

    fn carry_out(&mut self, name: &str, request: &Request, now: Duration) -> Answer {
        self.now = now;
        let path = request.path.as_str();
        if path.contains("/events") {
            let event: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            self.events.push(object::text(&event, &["reason"]).to_owned());
            return answered(201, json!({}));
        }
        if path.contains("/pods") {
            return self.answer_pods(request);
        }
        let is_lease = path.contains("/leases");
        assert!(is_lease || path.contains("/nodes"), "no such path: {path}");
        let slot = |objects: &mut Self| {
            if is_lease { objects.lease.take() } else { objects.node.take() }
        };
        let found = slot(self);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let (code, kept) = match (request.method, found) {
            (Method::Post, Some(object)) => (409, Some(object)),
            (Method::Post, None) => (201, Some(self.store(body, true))),
            (_, None) => (404, None),
            (Method::Get, Some(object)) => (200, Some(object)),
            (Method::Patch, Some(object)) => {
                let version =
                    |o: &Value| object::text(o, &["metadata", "resourceVersion"]).to_owned();
                if version(&body).is_empty() || version(&body) == version(&object) {
                    // What changes nothing is not stored.
                    let patched = apply(object.clone(), &body);
                    let is_same = patched == object;
                    (200, Some(if is_same { object } else { self.store(patched, false) }))
                } else {
                    (409, Some(object))
                }
            }
            (Method::Delete, Some(object)) => panic!("{path} is deleted: {object}"),
        };
        let answer = match (code, &kept) {
            (409, _) if request.method == Method::Post => json!({"reason": "AlreadyExists"}),
            (409, _) => json!({"reason": "Conflict"}),
            (_, object) => object.clone().unwrap_or_default(),
        };
        let is_written = code < 300 && request.method != Method::Get;
        if is_lease {
            self.lease = kept;
            self.renewed = if is_written { Some(now) } else { self.renewed };
        } else {
            self.node = kept;
            self.registered = if code == 201 { Some(now) } else { self.registered };
        }
        match code {
            404 => not_found(if is_lease { "leases" } else { "nodes" }, name),
            _ => answered(code, answer),
        }
    }

    /// Lists eight pods, or ends one.
    fn answer_pods(&mut self, request: &Request) -> Answer {
        if request.method == Method::Get {
            let items: Vec<&Value> = self.pods.iter().take(8).collect();
            return answered(200, json!({"kind": "PodList", "items": items}));
        }
        let is_meant = |pod: &Value| {
            let name = format!("/pods/{}", object::text(pod, &["metadata", "name"]));
            request.path.ends_with(&name) || request.path.ends_with(&format!("{name}/status"))
        };
        self.pods.retain(|pod| !is_meant(pod));
        answered(200, json!({"kind": "PartialObjectMetadata"}))
    }
}

/// An API server, its signer and its controllers. The objects of a Node are at its name.
pub(crate) struct Cluster {
    pub(crate) host: &'static str,
    pub(crate) behavior: Behavior,
    /// `gitVersion`.
    pub(crate) git_version: &'static str,
    objects: BTreeMap<String, Objects>,
    /// All CAs that it ever had. Without one its certificates have no signature, and any key.
    authorities: Vec<Authority>,
    /// The first one that is still trusted.
    first: usize,
    /// The one that signs, for the server as well.
    signer: usize,
    /// The CA of a certificate by key and expiry.
    issued: BTreeMap<(Vec<u8>, Wall), usize>,
    /// Life of a client's certificate.
    pub(crate) life: Duration,
    /// A certificate is valid since so long before its signature.
    pub(crate) backdated: Duration,
    pub(crate) csrs: BTreeMap<String, Csr>,
    serial: u64,
    pub(crate) tokens: Vec<String>,
    made_tokens: u64,
    /// By PEM text: the CAs of a bundle, and the leaf of a chain.
    bundles: RefCell<BTreeMap<Vec<u8>, Vec<Vec<u8>>>>,
    leaves: RefCell<BTreeMap<Vec<u8>, Option<Leaf>>>,
}

impl Index<&str> for Cluster {
    type Output = Objects;
    fn index(&self, name: &str) -> &Objects {
        &self.objects[name]
    }
}

impl IndexMut<&str> for Cluster {
    fn index_mut(&mut self, name: &str) -> &mut Objects {
        self.objects.entry(name.to_owned()).or_default()
    }
}

impl Cluster {
    /// Without a CA: for clients that open no connection.
    pub(crate) fn without_ca() -> Self {
        Self {
            host: "",
            behavior: Behavior::Correct,
            git_version: "",
            // The names of the boards.
            objects: ["pi", "pie"].map(|name| (name.to_owned(), Objects::default())).into(),
            authorities: Vec::new(),
            first: 0,
            signer: 0,
            issued: BTreeMap::new(),
            life: YEAR,
            backdated: Duration::from_secs(300),
            csrs: BTreeMap::new(),
            serial: 0,
            tokens: Vec::new(),
            made_tokens: 0,
            bundles: RefCell::default(),
            leaves: RefCell::default(),
        }
    }

    pub(crate) fn new(host: &'static str) -> Self {
        Self { host, authorities: vec![Authority::new()], ..Self::without_ca() }
    }

    /// `kubeadm token create`.
    pub(crate) fn new_token(&mut self) -> String {
        self.made_tokens += 1;
        let token = format!("abc{:03}.{:016}", self.made_tokens % 1000, self.made_tokens);
        self.tokens.push(token.clone());
        token
    }

    // --- whom it trusts, and who trusts it ---

    pub(crate) fn pins(&self) -> Vec<Digest> {
        self.authorities[self.first..].iter().map(|authority| authority.pin).collect()
    }

    /// The CAs that it trusts.
    pub(crate) fn bundle(&self) -> String {
        let trusted = self.authorities[self.first..].iter();
        trusted.map(|authority| authority.signer.ca.as_str()).collect()
    }

    /// The next step of the replacement of the CA: both are trusted, the new one signs, the old one
    /// is gone.
    pub(crate) fn replace_ca(&mut self) -> &'static str {
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

    pub(crate) fn trusts_server(&self, config: &ApiConfig) -> bool {
        let of_server = &self.authorities[self.signer].der;
        config.insecure
            || config.ca.as_ref().is_some_and(|ca| {
                let mut bundles = self.bundles.borrow_mut();
                let certificates = bundles.entry(ca.bytes.clone()).or_insert_with(|| {
                    let certificates = CertificateDer::pem_slice_iter(&ca.bytes).flatten();
                    certificates.map(|der| der.to_vec()).collect()
                });
                certificates.contains(of_server)
            })
    }

    /// The Node that the certificate of `config` is for, if it is accepted.
    pub(crate) fn node_of(&self, config: &ApiConfig, now: Duration) -> Option<String> {
        let chain = &config.certificate.as_ref()?.chain.bytes;
        let mut leaves = self.leaves.borrow_mut();
        let leaf = leaves.entry(chain.clone()).or_insert_with(|| Leaf::of_pem(chain));
        let leaf = leaf.as_ref()?;
        let authority = *self.issued.get(&(leaf.public_key.clone(), leaf.not_after))?;
        let is_valid = authority >= self.first && wall(now) <= leaf.not_after;
        let name = leaf.subject.common_name.strip_prefix("system:node:")?;
        is_valid.then(|| name.to_owned())
    }

    fn user(&self, config: &ApiConfig, now: Duration) -> User {
        if let Some(name) = self.node_of(config, now) {
            return User::Node(name);
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

    /// Why a client does not trust the server. `board` is what the clock of the board shows; the
    /// board's program was built at the start.
    fn distrust(
        &self,
        config: &ApiConfig,
        now: Duration,
        board: Wall,
    ) -> Option<(Distrust, Fault)> {
        let host = self.host;
        if config.insecure {
            return None;
        }
        let [from, until] = [wall(now).before(YEAR), wall(now + YEAR)];
        if !self.trusts_server(config) {
            let what = format!("certificate of {host} is not signed by a trusted CA");
            let fault = Fault::new(what, "is this the right server, or was the CA replaced?");
            Some((Distrust::Issuer, fault))
        } else if board.max(wall(Duration::ZERO)) < from {
            let what = format!("certificate of {host} is not valid before …, clock says …");
            let fault = Fault::new(what, "set the clock of this board (NTP, RTC), or …");
            Some((Distrust::Date, fault))
        } else if board > until {
            let what = format!("certificate of {host} expired at …, clock says …");
            let fault = Fault::new(what, "renew it, or set the clock of this board");
            Some((Distrust::Date, fault))
        } else {
            None
        }
    }

    // --- requests ---

    /// The controllers at this time.
    pub(crate) fn control(&mut self, now: Duration) {
        for objects in self.objects.values_mut() {
            let seen = objects.renewed.max(objects.registered);
            if seen.is_some_and(|at| now > at + GRACE) {
                objects.mark();
            }
        }
    }

    /// The response to a request of this client, with its credentials.
    pub(crate) fn call(
        &mut self,
        api: &mut Api,
        request: &Request,
        now: Duration,
        board: Wall,
    ) -> Answer {
        self.control(now);
        api.set_distrust(None);
        if api.config.endpoint.host != self.host {
            return Err("no such server".into());
        }
        if let Some((distrust, fault)) = self.distrust(&api.config, now, board) {
            api.set_distrust(Some(distrust));
            return Err(fault);
        }
        let user = self.user(&api.config, now);
        self.answer(request, &user, now)
    }

    /// The response to a request of this user. Each has the header `Date`.
    pub(crate) fn answer(&mut self, request: &Request, user: &User, now: Duration) -> Answer {
        if let User::Node(name) = user {
            let behavior = self.behavior;
            let objects = &mut self[name.as_str()];
            match behavior {
                Behavior::Deletes => objects.delete(),
                Behavior::DeletesLease => objects.lease = None,
                Behavior::Writes => objects.touch(false),
                _ => {}
            }
        }
        let mut outcome = match self.behavior {
            Behavior::Refuses(code, after) => Ok(Response {
                retry_after: after.map(Duration::from_secs),
                ..Response::test(code, r#"{"kind": "Status", "reason": "Tested"}"#)
            }),
            Behavior::Silent => Err("tested".into()),
            _ => self.carry_out(request, user, now),
        };
        if let Ok(response) = &mut outcome {
            response.date = Some(wall(now));
        }
        outcome
    }

    fn carry_out(&mut self, request: &Request, user: &User, now: Duration) -> Answer {
        let forbidden = || answered(403, json!({"reason": "Forbidden"}));
        let path = request.path.as_str();
        match user {
            User::Refused => answered(401, json!({"reason": "Unauthorized"})),
            _ if path.contains("/cluster-info") => self.cluster_info(),
            User::Anonymous => forbidden(),
            _ if path == "/version" => {
                answered(200, json!({"major": "1", "gitVersion": self.git_version}))
            }
            _ if path.contains("selfsubjectaccessreviews") => {
                answered(201, json!({"status": {"allowed": true}}))
            }
            _ if path.contains(CSRS) => self.answer_csr(request, user, now),
            User::Bootstrap => match path.split_once("/nodes/") {
                Some((_, name)) if request.method == Method::Get => {
                    self[name].carry_out(name, request, now)
                }
                _ => forbidden(),
            },
            User::Node(name) if path == "/v1-k3s/client-kubelet.crt" => {
                let is_verified = self[name.as_str()].node.is_some();
                let pem = pem("CERTIFICATE REQUEST", &request.body);
                match Wanted::of_pem(pem.as_bytes()).filter(|_| is_verified) {
                    Some(wanted) => Ok(Response::test(200, self.sign(&wanted, now))),
                    None => answered(401, json!({"message": "unable to verify node identity"})),
                }
            }
            User::Node(name) => {
                let is_other = |part: &str| {
                    let at = path.split_once(part).map(|(_, rest)| rest);
                    at.is_some_and(|rest| rest.split(['/', '?']).next() != Some(name))
                };
                let is_created = request.method == Method::Post
                    && ["/nodes", "/leases"].iter().any(|end| path.ends_with(end));
                let is_other_object = || {
                    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                    object::text(&body, &["metadata", "name"]) != name
                };
                if is_other("/nodes/") || is_other("/leases/") || (is_created && is_other_object())
                {
                    return forbidden();
                }
                self[name.as_str()].carry_out(name, request, now)
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

    // --- certificates ---

    fn answer_csr(&mut self, request: &Request, user: &User, now: Duration) -> Answer {
        if request.method == Method::Get {
            let name = request.path.rsplit('/').next().unwrap();
            let Some(mut csr) = self.csrs.remove(name) else {
                return not_found(CSRS, name);
            };
            if csr.object.get("status").is_none() {
                let chain = STANDARD.encode(self.sign(&csr.wanted(), now));
                let status = json!({"conditions": [{"type": "Approved"}], "certificate": chain});
                csr.object["status"] = status;
            }
            let object = csr.object.clone();
            self.csrs.insert(name.to_owned(), csr);
            return answered(200, object);
        }
        self.serial += 1;
        let mut object: Value = serde_json::from_slice(&request.body).unwrap();
        let name = match object::text(&object, &["metadata", "name"]) {
            "" => format!("csr-{}", self.serial),
            name => name.to_owned(),
        };
        object["metadata"] = json!({"name": name, "uid": self.serial.to_string()});
        let csr = Csr { object: object.clone() };
        let common_name = csr.wanted().subject.common_name;
        if let User::Node(own) = user
            && common_name.strip_prefix("system:node:") != Some(own)
        {
            return answered(403, json!({"reason": "Forbidden"}));
        }
        if self.csrs.contains_key(&name) {
            return answered(409, json!({"reason": "AlreadyExists"}));
        }
        self.csrs.insert(name, csr);
        answered(201, object)
    }

    fn sign(&mut self, wanted: &Wanted, now: Duration) -> String {
        self.issue(wanted, epoch(now) - self.backdated, epoch(now) + self.life)
    }

    /// The certificate for this name and key, valid from and until so long after 1970.
    fn issue(&mut self, wanted: &Wanted, from: Duration, until: Duration) -> String {
        let until = Duration::from_secs(until.as_secs());
        let (key, not_after) = (wanted.public_key.clone(), Wall::from_epoch(until));
        let Some(authority) = self.authorities.get(self.signer) else {
            let (subject, not_before) = (wanted.subject.clone(), Wall::from_epoch(from));
            return certificate(&Leaf { subject, not_before, not_after, public_key: key });
        };
        let chain = authority.signer.chain(&wanted.subject.common_name, &key, from, until);
        self.issued.insert((key, not_after), self.signer);
        chain
    }
}
