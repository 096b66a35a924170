//! Verification of both certificates before the first byte of HTTP.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use nodelet::kube::text::FaultKind;
use rcgen::{BasicConstraints, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::{TLS12, TLS13};

use super::server::*;
use super::*;

#[test]
fn a_refused_client_certificate_has_the_reason_of_the_alert() {
    let ca = Authority::new();
    let expired =
        ca.leaf_with(&["pi"], |params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    for version in [&TLS12, &TLS13] {
        for (user, want) in [
            (
                String::new(),
                "the server wants a client certificate; the kubeconfig has none that it accepts",
            ),
            (
                client_certificate(&expired),
                "the server says that our client certificate has expired",
            ),
            (
                client_certificate(&Authority::new().leaf(&["pi"])),
                "the server refused our client certificate: ",
            ),
        ] {
            let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[version], Some(&ca));
            let server = Server::start(Some(tls), ok);
            let url = format!("https://127.0.0.1:{}", server.port);
            let mut api = Api::new(&kubeconfig(&url, &ca.pem, &user)).unwrap();
            // The second one takes more than one write: the server closes during the request.
            let requests = [patch("{}"), patch(vec![b' '; 4 << 20])];
            for request in requests {
                let why = fails(&mut api, &request);
                // TLS 1.2 has no alert for a missing certificate.
                let missing =
                    user.is_empty() && version == &TLS12 && why.contains("HandshakeFailure");
                assert!(why.starts_with(&format!("{url}: {want}")) || missing, "{why}");
                assert_eq!(server.heard().len(), 0);
            }
        }
    }
}

/// Anybody on the way can send it. It says nothing about our certificate: that is judged after the
/// server's own.
#[test]
fn an_alert_before_the_server_is_verified_is_no_refusal_of_our_certificate() {
    let ca = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    // certificate_expired and access_denied of RFC 8446, 6.2, in plaintext.
    let alerts = [(45, "CertificateExpired"), (49, "AccessDenied")];
    let peer = thread::spawn(move || {
        for (alert, _) in alerts {
            let (mut tcp, _) = listener.accept().unwrap();
            assert!(tcp.read(&mut [0; 4096]).unwrap() > 0);
            tcp.write_all(&[21, 3, 3, 0, 2, 2, alert]).unwrap();
        }
    });
    let user = client_certificate(&ca.leaf(&["pi"]));
    let mut api = Api::new(&kubeconfig(&url, &ca.pem, &user)).unwrap();
    for (_, name) in alerts {
        let why = api.call(&get(), BUDGET).unwrap_err();
        assert_eq!(why.what, format!("{url}: the server ended TLS: {name}"));
        assert_eq!(why.kind, FaultKind::Other);
    }
    peer.join().unwrap();
}

#[test]
fn nothing_is_sent_to_a_server_whose_certificate_does_not_verify() {
    let (ca, other) = (Authority::new(), Authority::new());
    let good = ca.leaf(&["127.0.0.1"]);
    let date = |year| rcgen::date_time_ymd(year, 5, 2);
    let early = ca.leaf_with(&["127.0.0.1"], |params| params.not_before = date(2096));
    let late = ca.leaf_with(&["127.0.0.1"], |params| params.not_after = date(2020));
    let elsewhere = ca.leaf(&["10.9.8.7", "api.example"]);
    let sha512 = Leaf(with_sha512(&good.0), good.1.clone());
    let critical = |id: &[u64]| {
        let mut extension = CustomExtension::from_oid_content(id, vec![0x30, 0]);
        extension.set_criticality(true);
        extension
    };
    let unknown = ca.leaf_with(&["127.0.0.1"], |params| {
        params.distinguished_name.push(DnType::CommonName, "api");
        params.custom_extensions = vec![critical(&[1, 2, 3, 4])];
    });
    for (leaf, trusted, want, remedy) in [
        (&sha512, &ca, "refused: its signature, or that of a CA, is ECDSA with SHA-512", "-sha256"),
        (
            &unknown,
            &ca,
            "refused: the critical extension 1.2.3.4 of \"api\" is not known",
            "issue it without that extension",
        ),
        (&good, &other, "is not signed by a trusted CA: that of the kubeconfig", "replaced?"),
        (&early, &ca, "is not valid before 2096-05-02T00:00:00Z, clock says 20", "set the clock"),
        (
            &late,
            &ca,
            "expired at 2020-05-02T00:00:00Z, clock says 20",
            "renew it, or set the clock",
        ),
        (&elsewhere, &ca, "is for other names: ", "correct server"),
    ] {
        for version in [&TLS12, &TLS13] {
            let server = Server::start(Some(ca.config(leaf, &[version], None)), ok);
            let mut api = api(server.port, trusted);
            for _ in 0..2 {
                let why = fails(&mut api, &patch("{\"secret\":1}"));
                let start =
                    format!("https://127.0.0.1:{}: certificate of 127.0.0.1 {want}", server.port);
                assert!(why.starts_with(&start) && why.contains(remedy), "{why}");
            }
            thread::sleep(Duration::from_millis(20));
            assert_eq!(server.heard().len(), 0, "{want}");
        }
    }
    // As by kubectl.
    let accepted = ca.leaf_with(&["127.0.0.1"], |params| {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
        params.custom_extensions = vec![critical(&[2, 5, 29, 32])];
    });
    let server = Server::start(Some(ca.config(&accepted, rustls::ALL_VERSIONS, None)), ok);
    answered(api(server.port, &ca).call(&get(), BUDGET));
}

/// The signature of an ECDSA certificate (PEM) is said to be with SHA-512.
fn with_sha512(certificate: &str) -> String {
    let mut der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec();
    let sha256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let places: Vec<usize> = (0..der.len()).filter(|at| der[*at..].starts_with(&sha256)).collect();
    assert_eq!(places.len(), 2);
    places.iter().for_each(|at| der[*at + 7] = 4);
    nodelet::kube::x509::pem("CERTIFICATE", &der)
}

#[test]
fn the_certificate_must_have_the_tls_server_name() {
    let ca = Authority::new();
    let server =
        Server::start(Some(ca.config(&ca.leaf(&["api.example"]), rustls::ALL_VERSIONS, None)), ok);
    let mut kubeconfig = kubeconfig(&format!("https://127.0.0.1:{}", server.port), &ca.pem, "");
    kubeconfig.tls_server_name = Some("api.example".into());
    answered(Api::new(&kubeconfig).unwrap().call(&get(), BUDGET));
    kubeconfig.tls_server_name = Some("api.other".into());
    let why = fails(&mut Api::new(&kubeconfig).unwrap(), &get());
    assert!(why.contains("certificate of api.other is for other names: "), "{why}");
    kubeconfig.tls_server_name = Some("a b".into());
    assert_eq!(
        Api::new(&kubeconfig).err().unwrap().what,
        "tls-server-name: \"a b\" is not a host name"
    );
}

#[test]
fn an_insecure_client_accepts_any_certificate_whose_key_the_server_has() {
    let (ca, other) = (Authority::new(), Authority::new());
    let late =
        ca.leaf_with(&["elsewhere"], |params| params.not_after = rcgen::date_time_ymd(2020, 5, 2));
    for version in [&TLS12, &TLS13] {
        let server = Server::start(Some(ca.config(&late, &[version], None)), ok);
        let url = format!("https://127.0.0.1:{}", server.port);
        let mut kubeconfig = kubeconfig(&url, &other.pem, "token: abc");
        (kubeconfig.insecure, kubeconfig.ca) = (true, None);
        let mut api = Api::new(&kubeconfig).unwrap();
        answered(api.call(&get(), BUDGET));

        // OpenSSL signs certificates of version 1 by default.
        let authority = apidouble::Authority::new("CA");
        let old = authority.client("server", &[], apidouble::Validity::VALID);
        let old = authority.version_1(&old);
        let old = ca.config(&Leaf(old.cert_pem, old.key_pem), &[version], None);
        let server = Server::start(Some(old), ok);
        kubeconfig.endpoint.port = server.port;
        answered(Api::new(&kubeconfig).unwrap().call(&get(), BUDGET));

        // The public certificate of another server, with a key that does not belong to it.
        let stolen = Leaf(late.0.clone(), other.leaf(&["x"]).1);
        let server = Server::start(Some(ca.config(&stolen, &[version], None)), ok);
        kubeconfig.endpoint.port = server.port;
        let why = fails(&mut Api::new(&kubeconfig).unwrap(), &get());
        assert!(why.contains("certificate of 127.0.0.1"), "{why}");
        assert_eq!(server.heard().len(), 0);
    }
}
