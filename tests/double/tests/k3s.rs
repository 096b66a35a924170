//! The recordings of a real k3s server against the double, step by step: status code, headers and
//! body; of a certificate what it is for and since when.

mod common;

use apidouble::{Authority, Double, Identity, Phase, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Answer, Client, recording};
use k8s_openapi::jiff::Timestamp;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TOKEN: &str = "abcdef.0123456789abcdef";

/// Headers that are not compared, and why: name, reason.
const HEADERS: [(&str, &str); 3] = [
    ("Date", "the time"),
    ("Audit-Id", "random, and left out of the recording"),
    ("Content-Length", "compared with the body, except for certificates"),
];

/// Members of `/v1-k3s/config` that are not compared, and why.
const CONFIG: [(&str, &str); 3] = [
    ("HTTPSPort", "the double's port"),
    ("SupervisorPort", "the double's port"),
    ("IPSECPSK", "a secret, left out of the recording"),
];

/// Paths that nodelet does not ask for.
const LEFT_OUT: [&str; 6] = [
    "/ping",
    "/v1-k3s/apiservers",
    "/v1-k3s/client-k3s-controller.crt",
    "/v1-k3s/client-kube-proxy.crt",
    "/v1-k3s/connect",
    "/v1-k3s/readyz",
];

/// The recorded answers that are compared.
fn answers(of: &str) -> Vec<Value> {
    let mut answers = recording("k3s/k3s-1.36")[of].as_array().expect("answers").clone();
    answers.retain(|answer| !LEFT_OUT.iter().any(|path| answer["request"]["path"] == *path));
    answers
}

/// PEM texts as they are recorded: without their contents.
fn without_contents(text: &str) -> String {
    let lines = text.lines().map(|line| if line.starts_with('-') { line } else { "(fixed)" });
    let mut lines: Vec<&str> = lines.collect();
    lines.dedup();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

struct Replay {
    double: Double,
    other: Authority,
}

impl Replay {
    fn identity(&self, whose: &str) -> Identity {
        let valid = |name| self.double.node_identity(name, Validity::VALID);
        match whose {
            "of rec" => valid("rec"),
            "of rec, expired" => self.double.node_identity("rec", Validity::EXPIRED),
            "of rec, another CA" => {
                self.other.client("system:node:rec", &["system:nodes"], Validity::VALID)
            }
            "of s1, whose Node was deleted" => valid("s1"),
            other => panic!("certificate {other}"),
        }
    }

    fn send(&self, case: &str, request: &Value) -> Answer {
        let identity = request["client certificate"].as_str().map(|whose| self.identity(whose));
        let mut client = Client::new(&self.double, identity.as_ref(), None);
        let text = |name: &str| request[name].as_str().unwrap_or_default().to_owned();
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            let value = value.as_str().expect("a text").replace("(fixed)", "");
            let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
            let value = match value.as_str() {
                "Basic USER:SECRET" if case.contains("wrong token") => basic("node:wrong"),
                "Basic USER:SECRET" if case.contains("user server") => basic("server:pa55:word"),
                "Basic USER:SECRET" => basic("node:pa55:word"),
                "Bearer TOKEN" if case.contains("unknown") => "Bearer abcdef.other".to_owned(),
                "Bearer TOKEN" => format!("Bearer {TOKEN}"),
                _ => value,
            };
            client.headers.push((name.clone(), value));
        }
        let body = match text("body").as_str() {
            "DER certificate request" => {
                let key = KeyPair::generate().expect("a key");
                let csr = CertificateParams::default().serialize_request(&key);
                csr.expect("a request").der().to_vec()
            }
            other => other.as_bytes().to_vec(),
        };
        let media = if body.is_empty() { "" } else { "application/octet-stream" };
        client.send(&text("method"), &text("path"), "*/*", media, body)
    }

    /// What is not as recorded.
    fn compare(&self, wanted: &Value, answer: &Answer) -> Vec<String> {
        let mut differences = Vec::new();
        let mut differs = |what: &str, wanted: &Value, got: &Value| {
            if wanted != got {
                differences.push(format!("{what}: wanted {wanted}, got {got}"));
            }
        };
        differs("status", &wanted["status"], &json!(answer.code));
        let is_compared = |name: &str| !HEADERS.iter().any(|(left_out, _)| *left_out == name);
        let recorded = wanted["headers"].as_object().expect("headers");
        for (name, value) in recorded.iter().filter(|(name, _)| is_compared(name)) {
            differs(name, value, &json!(answer.header(name)));
        }
        for (name, value) in &answer.headers {
            if is_compared(name) && !recorded.contains_key(name) {
                differs(name, &Value::Null, &json!(value));
            }
        }
        let Some(body) = wanted["body"].as_str() else {
            return differences; // only the head was recorded
        };
        if body.contains("(fixed)") {
            differs("body", &json!(body), &json!(without_contents(&answer.body)));
        } else if let Ok(mut theirs) = serde_json::from_str::<Value>(body)
            && body.starts_with('{')
        {
            let mut ours = answer.json();
            if wanted["request"]["path"] == "/v1-k3s/config" && answer.code == 200 {
                for (member, _) in CONFIG {
                    (theirs[member], ours[member]) = (Value::Null, Value::Null);
                }
            }
            differs("body", &theirs, &ours);
        } else {
            differs("body", &json!(body), &json!(answer.body));
        }
        if let Some(length) = recorded.get("Content-Length").filter(|length| *length != "LENGTH") {
            differs("Content-Length", length, &json!(answer.bytes.len().to_string()));
        }
        if let Some(text) = wanted["certificate"].as_str() {
            for wrong in wrong_parts(text, &answer.body) {
                differences.push(format!("the certificate lacks {wrong}"));
            }
        }
        differences
    }
}

/// What of `openssl x509 -text` is not in the DER form of a certificate.
fn wrong_parts(text: &str, pem: &str) -> Vec<String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    let has = |part: &[u8]| der.windows(part.len()).any(|window| window == part);
    let string = |tag: u8, text: &str| {
        let length = u8::try_from(text.len()).expect("a short text");
        [&[tag, length], text.as_bytes()].concat()
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_secs();
    let time = |second: u64| {
        let second = i64::try_from(second).expect("a time");
        let at = Timestamp::from_second(second).expect("a time").strftime("%y%m%d%H%M%SZ");
        string(0x17, &at.to_string())
    };
    let mut missing = Vec::new();
    for (words, parts) in [
        ("CN = system:node:rec", vec![string(0x0c, "system:node:rec")]),
        ("O = system:nodes", vec![string(0x0c, "system:nodes")]),
        ("CN = rec", vec![string(0x0c, "rec")]),
        ("Digital Signature, Key Encipherment", vec![vec![3, 2, 5, 0xa0]]),
        ("TLS Web Client Authentication", vec![vec![0x2b, 6, 1, 5, 5, 7, 3, 2]]),
        ("TLS Web Server Authentication", vec![vec![0x2b, 6, 1, 5, 5, 7, 3, 1]]),
        ("DNS:rec", vec![string(0x82, "rec")]),
        ("DNS:localhost", vec![string(0x82, "localhost")]),
        ("IP Address:SERVER", vec![vec![0x87, 4, 127, 0, 0, 1]]),
        ("IP Address:192.0.2.7", vec![vec![0x87, 4, 192, 0, 2, 7]]),
        // That of its authority, as of `NewSignedCert` in cert/cert.go of dynamiclistener.
        ("notBefore", (0..60).map(|late| time(now - 86_400 - late)).collect()),
    ] {
        if text.contains(words) && !parts.iter().any(|part| has(part)) {
            missing.push(words.to_owned());
        }
    }
    missing
}

fn replay() -> Replay {
    let double = Double::start();
    double.set_supervisor(|k3s| k3s.tokens.push(TOKEN.to_owned()));
    Replay { double, other: Authority::new("other") }
}

fn create_node(double: &Double, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let (code, _) = double.as_admin("POST", "/api/v1/nodes", "application/json", &node);
    assert_eq!(code, 201);
}

#[test]
fn recorded_requests_have_the_recorded_answers() {
    let replay = replay();
    let mut failures = Vec::new();
    let answers = answers("answers");
    for wanted in &answers {
        let case = wanted["case"].as_str().expect("a case");
        if case == "POST, certificate, Node" {
            create_node(&replay.double, "rec");
        }
        let answer = replay.send(case, &wanted["request"]);
        let differences = replay.compare(wanted, &answer);
        failures.extend(differences.into_iter().map(|difference| format!("{case}: {difference}")));
    }
    for (name, why) in HEADERS.iter().chain(&CONFIG) {
        println!("{name} is not compared: {why}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(answers.len(), 41, "all answers");
}

#[test]
fn a_start_has_the_recorded_phases() {
    let replay = replay();
    let mut failures = Vec::new();
    let answers = answers("start");
    for wanted in &answers {
        let seconds = wanted["seconds after the start of the server"].as_f64().expect("a time");
        let phase = match seconds {
            ..0.3 => Some(Phase::Starting),
            0.3..1.7 => Some(Phase::WithoutApi),
            1.7..4.7 => Some(Phase::WithoutCore),
            _ => None,
        };
        replay.double.set_supervisor(|k3s| k3s.start = phase.into_iter().collect());
        let mut request = wanted["request"].clone();
        let is_api = request["path"] == "/version" || request["path"] == "/cacerts";
        if !is_api {
            request["headers"] = json!({"Authorization": "Basic USER:SECRET",
                "k3s-Node-Name": "rec", "k3s-Node-Password": "PASSWORD"});
        }
        let answer = replay.send("", &request);
        let differences = replay.compare(wanted, &answer);
        let at = format!("{seconds} s, {}", request["path"]);
        failures.extend(differences.into_iter().map(|difference| format!("{at}: {difference}")));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(answers.len(), 10, "all answers");
}

/// So that another board may then have the name.
#[test]
fn a_node_password_goes_with_its_node_or_if_none_comes() {
    let replay = replay();
    let join_as = |name: &str, password: &str| {
        let request = json!({"method": "POST", "path": "/v1-k3s/client-kubelet.crt",
            "headers": {"Authorization": "Basic USER:SECRET", "k3s-Node-Name": name,
                "k3s-Node-Password": password},
            "body": "DER certificate request"});
        replay.send("", &request).code
    };
    let join = |password| join_as("pi", password);
    assert_eq!((join("one"), join("two")), (200, 403));
    assert_eq!(join_as("PI", "two"), 403, "names have no capitals");
    replay.double.set_supervisor(|k3s| k3s.orphan_after = Some(Duration::ZERO));
    assert_eq!(join("two"), 200);
    replay.double.set_supervisor(|k3s| k3s.orphan_after = None);
    create_node(&replay.double, "pi");
    replay.double.set_supervisor(|k3s| k3s.orphan_after = Some(Duration::ZERO));
    assert_eq!(join("one"), 403, "the password of a Node is kept");
    let delete = || replay.double.as_admin("DELETE", "/api/v1/nodes/pi", "", &Value::Null).0;
    assert_eq!(delete(), 200);
    // The Node is there again before the next request to the supervisor.
    create_node(&replay.double, "pi");
    assert_eq!(join("one"), 200);
}
