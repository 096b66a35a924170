//! One API server in memory, with its signer and its controllers, for exact cases of the core: who
//! calls it has no socket and no key, which the double wants. Faults by chance are those of
//! `tests/sim`.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::credentials::certificate::tests::certificate;
use crate::kube::message::{Answer, Method, Request, Response, answered, not_found};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, RequestInfo, pem};
use crate::node::patch::tests::apply;

/// Seconds since 1970 at the start.
const START: u64 = 1_800_000_000;

/// The controllers mark a Node whose Lease is not renewed for so long.
const GRACE: Duration = Duration::from_secs(50);

const CSRS: &str = "certificatesigningrequests";

/// The true time since 1970.
fn epoch(now: Duration) -> Duration {
    Duration::from_secs(START) + now
}

/// The true time.
pub(super) fn wall(now: Duration) -> Wall {
    Wall::from_epoch(epoch(now))
}

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Behavior {
    /// It carries the request out.
    Correct,
    /// It refuses with this code, perhaps with `Retry-After`.
    Refuses(u16, Option<u64>),
    /// It does not respond.
    Silent,
    /// A gateway responds with a page.
    Page,
    /// Another client deletes the Node and its Lease before the request.
    Deletes,
    /// Another client deletes the Lease before the request.
    DeletesLease,
    /// Another client writes to the Node before the request.
    Writes,
}

/// Who sends a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum User {
    Bootstrap,
    Node,
}

/// A CertificateSigningRequest.
pub(super) struct Csr {
    object: Value,
}

impl Csr {
    fn info(&self) -> RequestInfo {
        let pem = STANDARD.decode(object::text(&self.object, &["spec", "request"])).unwrap();
        RequestInfo::of_pem(&pem).unwrap()
    }
}

/// The objects of one Node.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) node: Option<Value>,
    pub(super) lease: Option<Value>,
    /// Reasons of the events.
    pub(super) events: Vec<String>,
    /// Pods that are bound to the Node and have not ended.
    pub(super) pods: Vec<Value>,
    /// When the Node was created.
    registered: Option<Duration>,
    /// When the Lease was last created or renewed.
    pub(super) renewed: Option<Duration>,
    version: u64,
    uids: u64,
    /// The time of the last request.
    now: Duration,
}

impl Objects {
    /// With the next version, and with another uid if it is new.
    pub(super) fn store(&mut self, mut object: Value, anew: bool) -> Value {
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
    pub(super) fn touch(&mut self, anew: bool) {
        self.node = self.node.take().map(|node| self.store(node, anew));
    }

    /// `kubectl delete node`, and the garbage collector.
    pub(super) fn delete(&mut self) {
        (self.node, self.lease, self.registered, self.renewed) = (None, None, None, None);
    }

    /// As node-lifecycle-controller when no renewal of the Lease has reached it for the grace
    /// period: it sets each condition to Unknown, and never back.
    pub(super) fn mark(&mut self) {
        if let Some(mut node) = self.node.take() {
            let mut is_new = false;
            for condition in object::elements(&mut node, &["status", "conditions"]) {
                let old = object::members(condition, &[]).insert("status".into(), "Unknown".into());
                is_new |= old.is_some_and(|old| old != "Unknown");
            }
            self.node = Some(if is_new { self.store(node, false) } else { node });
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.node.as_ref().is_some_and(|node| {
            let mut conditions = object::list(node, &["status", "conditions"]).iter();
            conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
    }

    /// Whether the Node is the one owner of the Lease.
    pub(super) fn owns_lease(&self) -> bool {
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
            return answered(201, event);
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

/// An API server, its signer and its controllers, with the objects of the Node `pi`.
pub(super) struct Cluster {
    pub(super) behavior: Behavior,
    /// `gitVersion`.
    pub(super) git_version: &'static str,
    pub(super) pi: Objects,
    /// Life of a client's certificate.
    pub(super) life: Duration,
    /// A certificate is valid since so long before its signature.
    pub(super) backdated: Duration,
    csrs: BTreeMap<String, Csr>,
    serial: u64,
}

impl Cluster {
    /// With certificates of this life, valid since so long before their signature.
    pub(super) fn new(life: Duration, backdated: Duration) -> Self {
        Self {
            behavior: Behavior::Correct,
            git_version: "",
            pi: Objects::default(),
            life,
            backdated,
            csrs: BTreeMap::new(),
            serial: 0,
        }
    }

    /// The controllers at this time.
    pub(super) fn control(&mut self, now: Duration) {
        let seen = self.pi.renewed.max(self.pi.registered);
        if seen.is_some_and(|at| now > at + GRACE) {
            self.pi.mark();
        }
    }

    /// The response to a request of this user. Each has the header `Date`.
    pub(super) fn answer(&mut self, request: &Request, user: User, now: Duration) -> Answer {
        if user == User::Node {
            match self.behavior {
                Behavior::Deletes => self.pi.delete(),
                Behavior::DeletesLease => self.pi.lease = None,
                Behavior::Writes => self.pi.touch(false),
                _ => {}
            }
        }
        let mut outcome = match self.behavior {
            Behavior::Refuses(code, after) => Ok(Response {
                retry_after: after.map(Duration::from_secs),
                ..Response::test(code, r#"{"kind": "Status", "reason": "Tested"}"#)
            }),
            Behavior::Silent => Err("tested".into()),
            Behavior::Page => Ok(Response::test(200, "<html>")),
            _ => self.carry_out(request, user, now),
        };
        if let Ok(response) = &mut outcome {
            response.date = Some(wall(now));
        }
        outcome
    }

    fn carry_out(&mut self, request: &Request, user: User, now: Duration) -> Answer {
        let path = request.path.as_str();
        if path == "/version" {
            return answered(200, json!({"major": "1", "gitVersion": self.git_version}));
        }
        if path.contains("selfsubjectaccessreviews") {
            return answered(201, json!({"status": {"allowed": true}}));
        }
        if path.contains(CSRS) {
            return self.answer_csr(request, now);
        }
        if path == "/v1-k3s/client-kubelet.crt" {
            let pem = pem("CERTIFICATE REQUEST", &request.body);
            return match RequestInfo::of_pem(pem.as_bytes()).filter(|_| self.pi.node.is_some()) {
                Some(wanted) => Ok(Response::test(200, self.sign(&wanted, now))),
                None => answered(401, json!({"message": "unable to verify node identity"})),
            };
        }
        match user {
            User::Bootstrap => answered(403, json!({"reason": "Forbidden"})),
            User::Node => self.pi.carry_out("pi", request, now),
        }
    }

    // --- certificates ---

    fn answer_csr(&mut self, request: &Request, now: Duration) -> Answer {
        if request.method == Method::Get {
            let name = request.path.rsplit('/').next().unwrap();
            let Some(mut csr) = self.csrs.remove(name) else {
                return not_found(CSRS, name);
            };
            if csr.object.get("status").is_none() {
                let chain = STANDARD.encode(self.sign(&csr.info(), now));
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
        if self.csrs.contains_key(&name) {
            return answered(409, json!({"reason": "AlreadyExists"}));
        }
        self.csrs.insert(name, csr);
        answered(201, object)
    }

    fn sign(&self, info: &RequestInfo, now: Duration) -> String {
        let until = Duration::from_secs((epoch(now) + self.life).as_secs());
        certificate(&Leaf {
            subject: info.subject.clone(),
            not_before: Wall::from_epoch(epoch(now) - self.backdated),
            not_after: Wall::from_epoch(until),
            public_key: info.public_key.clone(),
        })
    }
}
