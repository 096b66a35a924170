//! Keys and certificate requests, compared with OpenSSL; names of requests, with the kubelet.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nodelet::credentials::pki::key::Key;
use nodelet::kube::x509::{
    self, AltName, CertificatePurpose, Leaf, RequestInfo, SigningRequest, Subject,
};
use support::skip;

fn subject() -> Subject {
    Subject::of_node("pi-3.lab")
}

/// The lines that OpenSSL prints, trimmed; `None`, and a skip, without OpenSSL.
fn openssl(arguments: &[&str], input: &str) -> Option<Vec<String>> {
    if !skip::has_tool("openssl") {
        return None;
    }
    let mut child = Command::new("openssl")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{arguments:?}: {text}\n{input}");
    Some(text.lines().map(|line| line.trim().to_owned()).collect())
}

const RSA: &str = "sha256WithRSAEncryption";
/// One key of each kind, whose other forms are in `src/credentials/kubeconfig/tests.rs`: PEM label,
/// arguments of OpenSSL, signature algorithm.
const KEYS: [(&str, &str, &str); 4] = [
    ("EC PRIVATE KEY", "ecparam -genkey -noout -name secp384r1", "ecdsa-with-SHA384"),
    ("RSA PRIVATE KEY", "genrsa -traditional 2048", RSA),
    ("PRIVATE KEY", "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:4096", RSA),
    ("PRIVATE KEY", "genpkey -algorithm ED25519", "ED25519"),
];

/// Compares every field of a request with the output of OpenSSL.
fn holds(request: &SigningRequest, key: &Key, algorithm: &str) -> Option<()> {
    let text = openssl(&["req", "-noout", "-text", "-verify"], &request.pem())?;
    let has = |line: &str| text.iter().any(|l| l.replace(" = ", "=") == line);
    assert!(text.iter().any(|l| l.contains("verify OK")), "{text:#?}");
    assert!(has("Version: 1 (0x0)"), "{text:#?}");
    assert!(has("Subject: O=system:nodes, CN=system:node:pi-3.lab"), "{text:#?}");
    assert!(has(&format!("Signature Algorithm: {algorithm}")), "{text:#?}");
    assert!(has("Attributes: (none)") || has("(none)") || has("a0:00"), "{text:#?}");
    assert!(!text.iter().any(|l| l.contains("X509v3")), "{text:#?}");
    // The public key of the request is that of the private key.
    let public = openssl(&["req", "-noout", "-pubkey"], &request.pem())?;
    assert_eq!(public, openssl(&["pkey", "-pubout"], key.pem())?, "{text:#?}");
    let ours = x509::pem("PUBLIC KEY", &request.info.public_key);
    assert_eq!(public, ours.lines().collect::<Vec<_>>());
    // OpenSSL writes the same bytes that it read.
    let again = openssl(&["req"], &request.pem())?;
    assert_eq!(again, request.pem().lines().collect::<Vec<_>>());
    Some(())
}

#[test]
fn openssl_reads_our_certificate_request() {
    let key = Key::generate().unwrap();
    assert_eq!(format!("{key:?}"), "Key");
    let request = key.request(subject(), CertificatePurpose::CLIENT).unwrap();
    assert_eq!(request.usages, ["digital signature", "client auth"]);
    assert!(key.pem().starts_with("-----BEGIN PRIVATE KEY-----\n"));
    assert_eq!(RequestInfo::of_pem(request.pem().as_bytes()).unwrap(), request.info);
    if holds(&request, &key, "ecdsa-with-SHA256").is_none() {
        return;
    }
    let checked = openssl(&["ec", "-check", "-noout"], key.pem()).unwrap();
    assert!(checked.contains(&"EC Key valid.".to_owned()), "{checked:?}");
    // OpenSSL writes the same bytes.
    let again = openssl(&["pkey"], key.pem()).unwrap().join("\n");
    assert!(again.contains(key.pem().trim_end()), "{again}");
    // The names are PrintableStrings, as Go writes them.
    let parsed = openssl(&["asn1parse"], &request.pem()).unwrap();
    for text in ["system:nodes", "system:node:pi-3.lab"] {
        assert!(
            parsed.iter().any(|line| line.contains("PRINTABLESTRING") && line.ends_with(text)),
            "{parsed:#?}"
        );
    }
}

#[test]
fn a_key_of_each_kind_signs_a_request() {
    for (label, arguments, algorithm) in KEYS {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let Some(lines) = openssl(&arguments, "") else {
            return;
        };
        let key = Key::of_pem((lines.join("\n") + "\n").as_bytes()).unwrap();
        assert!(key.pem().starts_with(&format!("-----BEGIN {label}-----\n")));
        let request = key.request(subject(), CertificatePurpose::CLIENT).unwrap();
        holds(&request, &key, algorithm).unwrap();
        let mut usages = vec!["digital signature", "client auth"];
        usages.extend((algorithm == RSA).then_some("key encipherment"));
        assert_eq!(request.usages, usages);
    }
}

/// Computed with Python's hashlib as by the kubelet's `digestedName`.
#[test]
fn a_request_has_the_name_that_the_kubelet_gives_it() {
    let key = "-----BEGIN EC PRIVATE KEY-----
MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49
AwEHoUQDQgAEPR3tU2Fta9ktY+6P9G0cWO+0kETA6SFs38GecTyudlHz6xvCdz8q
EKTcWGekdmdDPsHloRNtsiCa697B2O9IFA==
-----END EC PRIVATE KEY-----
";
    let key = Key::of_pem(key.as_bytes()).unwrap();
    let name = key.request(subject(), CertificatePurpose::CLIENT).unwrap().name;
    assert_eq!(name, "node-csr-DRgX9W8ClXUN7o_7uJDCW6-pcVw_WkbEy4SgyEjdmvM");
    assert_eq!(key.request(subject(), CertificatePurpose::CLIENT).unwrap().name, name);
    let other = Subject { common_name: "system:node:pi-4".into(), ..subject() };
    assert_ne!(key.request(other, CertificatePurpose::CLIENT).unwrap().name, name);
}

/// The names of a server, as the Node has them.
fn of_a_server() -> Subject {
    let ips = ["192.0.2.7", "fd00::7"].map(|ip| AltName::Ip(ip.parse().unwrap()));
    let alt_names = [AltName::Dns("pi-3.lab".into())].into_iter().chain(ips).collect();
    Subject { alt_names, organizations: vec!["system:nodes".into(), "others".into()], ..subject() }
}

const NAMES: &str = "DNS:pi-3.lab, IP Address:192.0.2.7, IP Address:FD00:0:0:0:0:0:0:7";

#[test]
fn openssl_reads_the_request_for_a_serving_certificate() {
    let key = Key::generate().unwrap();
    let request = key.request(of_a_server(), CertificatePurpose::SERVING).unwrap();
    assert_eq!(request.usages, ["digital signature", "server auth"]);
    assert_eq!(RequestInfo::of_pem(request.pem().as_bytes()).unwrap(), request.info);
    // Other addresses are another request.
    let names = of_a_server().alt_names.split_off(1);
    let other = Subject { alt_names: names, ..subject() };
    assert_ne!(key.request(other, CertificatePurpose::SERVING).unwrap().name, request.name);
    let Some(text) = openssl(&["req", "-noout", "-text", "-verify"], &request.pem()) else {
        return;
    };
    assert!(text.iter().any(|line| line.contains("verify OK")), "{text:#?}");
    assert!(text.iter().any(|line| line == NAMES), "{text:#?}");
}

#[test]
fn openssl_reads_a_self_signed_certificate() {
    let key = Key::generate().unwrap();
    let certificate = key.self_signed(of_a_server()).unwrap();
    let leaf = Leaf::of_pem(certificate.as_bytes()).unwrap();
    assert_eq!(leaf.subject, of_a_server());
    assert_eq!(leaf.not_after.time(), "2049-12-31T23:59:59Z");
    let Some(text) = openssl(&["x509", "-noout", "-text"], &certificate) else {
        return;
    };
    for want in [
        "Version: 3 (0x2)",
        NAMES,
        "TLS Web Server Authentication",
        "Not Before: Jan  1 00:00:00 2020 GMT",
        "Not After : Dec 31 23:59:59 2049 GMT",
        "Signature Algorithm: ecdsa-with-SHA256",
    ] {
        assert!(text.iter().any(|line| line == want), "{want}: {text:#?}");
    }
    // OpenSSL verifies the signature of a root alone.
    let file = support::Folder::new("self-signed");
    let path = file.write("certificate", &certificate).display().to_string();
    let verified = openssl(&["verify", "-check_ss_sig", "-trusted", &path, &path], "").unwrap();
    assert_eq!(verified, [format!("{path}: OK")]);
}
