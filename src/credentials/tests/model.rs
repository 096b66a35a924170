//! What the models of a cluster share: those of `machine`, and of the lives of `join::tests`.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::panic;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::kube::message::Request;
use crate::kube::object;
use crate::kube::time::Wall;
use crate::kube::x509::Wanted;
use crate::node::kubelet::tests::Server;

/// Seconds since 1970 at the start.
pub(crate) const START: u64 = 1_800_000_000;

/// The true time since 1970.
pub(crate) fn epoch(now: Duration) -> Duration {
    Duration::from_secs(START) + now
}

/// The true time.
pub(crate) fn wall(now: Duration) -> Wall {
    Wall::from_epoch(epoch(now))
}

/// The CertificateSigningRequest that a POST creates, with its name.
pub(crate) fn posted(request: &Request, serial: u64) -> (String, Value) {
    let mut csr: Value = serde_json::from_slice(&request.body).unwrap();
    let name = match object::text(&csr, &["metadata", "name"]) {
        "" => format!("csr-{serial}"),
        name => name.to_owned(),
    };
    csr["metadata"] = json!({"name": name, "uid": serial.to_string()});
    (name, csr)
}

/// What a CertificateSigningRequest asks for.
pub(crate) fn wanted(csr: &Value) -> Wanted {
    let pem = STANDARD.decode(object::text(csr, &["spec", "request"])).unwrap();
    Wanted::of_pem(&pem).unwrap()
}

/// The status of a CertificateSigningRequest with this chain.
pub(crate) fn approved(chain: &str) -> Value {
    json!({"conditions": [{"type": "Approved"}], "certificate": STANDARD.encode(chain)})
}

pub(crate) fn is_ready(server: &Server) -> bool {
    let node = server.node.as_ref();
    node.is_some_and(|node| {
        let mut conditions = object::list(node, &["status", "conditions"]).iter();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
    })
}

/// As node-lifecycle-controller: each condition becomes Unknown.
pub(crate) fn mark(server: &mut Server) {
    if let Some(mut node) = server.node.take() {
        let mut is_new = false;
        for condition in object::elements(&mut node, &["status", "conditions"]) {
            let old = object::members(condition, &[]).insert("status".into(), "Unknown".into());
            is_new |= old.is_some_and(|old| old != "Unknown");
        }
        server.node = Some(if is_new { server.store(node, false) } else { node });
    }
}

/// Runs `live` for each seed. The variable of the environment can name others: `5`, or `51..99`.
pub(crate) fn live_all(variable: &str, seeds: Range<u64>, live: impl Fn(u64)) {
    let seeds = match std::env::var(variable) {
        Err(_) => seeds,
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
            None => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
        },
    };
    let fails = |seed: &u64| panic::catch_unwind(panic::AssertUnwindSafe(|| live(*seed))).is_err();
    let failed: Vec<u64> = seeds.filter(fails).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}
