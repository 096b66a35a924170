//! The serving certificate: its CSR waits for a person, and for a process that has ended.

use super::*;
use crate::kube::x509::AltName;

pub(super) const SERVING: CertificateKind = CertificateKind::Serving;

pub(super) fn names(names: &[&str]) -> Subject {
    let alt_names = names.iter().map(|name| match name.parse() {
        Ok(ip) => AltName::Ip(ip),
        Err(_) => AltName::Dns((*name).to_owned()),
    });
    Subject { alt_names: alt_names.collect(), ..subject() }
}

fn request() -> SigningRequest {
    SigningRequest { purpose: Purpose::SERVING, ..signed(1) }
}

/// A certificate without a held one, whose CSR is about to be created.
fn asking() -> Certificate {
    let mut certificate = holding(SERVING, None);
    certificate.on_task(TaskResult::NotFound, at(0, noon())).unwrap();
    certificate.on_task(TaskResult::Signed(request()), at(0, noon())).unwrap();
    certificate
}

#[test]
fn a_restart_finds_the_csr_of_a_serving_certificate_again() {
    let mut certificate = asking();
    let sent = body(&certificate.request().unwrap());
    assert_eq!(sent["metadata"], json!({"name": "node-csr-1"}));
    assert_eq!(sent["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    let exists = answered(409, json!({"reason": "AlreadyExists"}));
    certificate.on_response(exists, at(0, noon())).unwrap();
    let read = certificate.request().unwrap();
    assert_eq!((read.method, read.path), (Method::Get, format!("{CSRS}/node-csr-1")));
    // A CSR of a client certificate with this name is not ours.
    let other = answered(200, csr("node-csr-1", &signed(1)));
    let refused = why(certificate.clone().on_response(other, at(0, noon())));
    assert!(refused.contains("csr signerNames differ"), "{refused}");
}

#[test]
fn an_approval_is_looked_for_every_30_seconds() {
    let mut certificate = asking();
    let mut pending = csr("node-csr-1", &signed(1));
    pending["spec"]["signerName"] = json!(Purpose::SERVING.signer);
    let created = answered(201, pending.clone());
    certificate.on_response(created, at(0, noon())).unwrap();
    let mut notes = 0;
    let mut pauses = Vec::new();
    let mut now = Mono::START;
    for _ in 0..20 {
        let due = certificate.due(Now { mono: now, wall: noon() });
        pauses.push(due.since(now).as_secs());
        now = due;
        let read = answered(200, pending.clone());
        let at = Now { mono: now, wall: noon() };
        let progress = certificate.on_response(read, at).unwrap();
        notes += usize::from(progress.is_some());
    }
    assert_eq!((pauses.iter().max(), notes), (Some(&30), 1));
}

/// The supervisor ignores the subject of the request.
#[test]
fn the_supervisor_has_a_path_for_serving_certificates() {
    assert_eq!(
        crate::credentials::certificate::supervisor::request(&request()).path,
        "/v1-k3s/serving-kubelet.crt"
    );
}
