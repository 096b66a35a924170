//! The model without sockets: set time, a seed, TLS in memory, and a restored etcd.

mod common;

use apidouble::{Authority, Identity, Model, Request, Response, Validity, set_seed, set_time};
use common::{LEASES, recording};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const START: Duration = Duration::from_secs(1_800_000_000);
const GRACE: Duration = Duration::from_secs(50);
const MERGE: &str = "application/merge-patch+json";

/// A node that talks to the model.
struct Node<'a> {
    model: &'a Model,
    certificate: CertificateDer<'static>,
}

impl<'a> Node<'a> {
    fn new(model: &'a Model, identity: &Identity) -> Self {
        let certificate = CertificateDer::from_pem_slice(identity.cert_pem.as_bytes());
        Self { model, certificate: certificate.expect("a certificate") }
    }

    fn send(&self, request: &[u8]) -> (String, Response) {
        let request = Request::parse(request).expect("a request").expect("the whole request");
        self.model.answer(&request, Some(std::slice::from_ref(&self.certificate)))
    }
}

fn request(method: &str, path: &str, content_type: &str, body: &str) -> Vec<u8> {
    let is_lease = path.starts_with(LEASES);
    let accept = if is_lease { "application/vnd.kubernetes.protobuf" } else { "application/json" };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: api\r\nUser-Agent: nodelet/1\r\nAccept: {accept}\r\n\
         Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn model() -> Model {
    Model::new(Authority::new("kubernetes-ca"), "10.0.0.1:6443")
}

/// Creates the Node `n` and its Lease; the bytes of the answers.
fn register(node: &Node) -> Vec<u8> {
    let recorded = recording("registration")["steps"][1]["request"]["body"].to_string();
    let lease = json!({"metadata": {"name": "n", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40,
            "renewTime": "2027-01-15T08:00:00.000000Z"}});
    let mut bytes = Vec::new();
    for (path, body) in
        [("/api/v1/nodes", recorded.replace("nodelet1", "n")), (LEASES, lease.to_string())]
    {
        let (user, response) = node.send(&request("POST", path, "application/json", &body));
        let body = String::from_utf8_lossy(&response.body);
        assert_eq!((user.as_str(), response.code), ("system:node:n", 201), "{body}");
        bytes.extend(<[Vec<u8>; 2]>::from(response.wire()).concat());
    }
    bytes
}

fn renewal(model: &Model, second: u64) -> Vec<u8> {
    let version = &model.get("leases/n").expect("a Lease")["metadata"]["resourceVersion"];
    let time = format!("2027-01-15T08:{:02}:{:02}.000000Z", second / 60, second % 60);
    let body = json!({"metadata": {"resourceVersion": version}, "spec": {"renewTime": time}});
    request("PATCH", &format!("{LEASES}/n"), MERGE, &body.to_string())
}

fn ready(model: &Model) -> Value {
    let node = model.get("nodes/n").expect("a Node");
    let conditions = node["status"]["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    ready.expect("Ready")["status"].clone()
}

/// A life of a node from registration to Unknown: every byte that was answered or stored.
fn life() -> Vec<u8> {
    set_seed(Some(7));
    set_time(Some(START));
    let model = model();
    let node = Node::new(&model, &model.node_identity("n", Validity::VALID));
    let mut bytes = register(&node);
    for second in (0..200).step_by(10) {
        set_time(Some(START + Duration::from_secs(second)));
        let (_, response) = node.send(&renewal(&model, second));
        assert_eq!(response.code, 200);
        bytes.extend(<[Vec<u8>; 2]>::from(response.wire()).concat());
        model.tick(GRACE);
        assert_eq!(ready(&model), "True");
    }
    set_time(Some(START + Duration::from_secs(190) + GRACE));
    model.tick(GRACE);
    assert_eq!((ready(&model), model.left_ready()), (json!("True"), 0));
    set_time(Some(START + Duration::from_secs(191) + GRACE));
    model.tick(GRACE);
    assert_eq!((ready(&model), model.left_ready()), (json!("Unknown"), 1));
    for stored in [model.list("nodes"), model.list("leases")] {
        bytes.extend(Value::from(stored).to_string().into_bytes());
    }
    bytes
}

#[test]
fn a_node_that_is_silent_for_the_grace_period_is_unknown_and_a_seed_repeats_each_byte() {
    let bytes = life();
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("Date: Fri, 15 Jan 2027 08:00:00 GMT\r\n"), "{text}");
    assert!(life() == bytes, "two lives with one seed differ");
}

#[test]
fn certificates_end_at_the_time_that_is_set() {
    set_time(Some(START));
    let model = model();
    let node = Node::new(&model, &model.node_identity("n", Validity { from: -60, until: 60 }));
    register(&node);
    for (second, code) in [(59, 200), (61, 401), (59, 200)] {
        set_time(Some(START + Duration::from_secs(second)));
        let (user, response) = node.send(&renewal(&model, second + code));
        assert_eq!(response.code, u16::try_from(code).unwrap(), "after {second} s");
        assert_eq!(user.is_empty(), code == 401);
    }
    // Of an authority that nobody trusts any more.
    model.trust(&[&Authority::new("another")]);
    assert_eq!(node.send(&renewal(&model, 300)).1.code, 401);
}

#[test]
fn an_authority_is_renewed_with_its_key_and_subject() {
    set_time(None);
    let model = model();
    let old = model.authority();
    let new = old.renewed(Validity::VALID);
    assert_eq!((new.pin(), new.key_pem()), (old.pin(), old.key_pem()));
    assert_ne!(new.der_bytes(), old.der_bytes());
    let config = model.server_config(&old.server(&["api"], Validity::VALID));
    let node = model.node_identity("n", Validity::VALID);
    handshake(&config, &new, &node).expect("a server of the same key");
    let strict = Model::strict_server_config(&new.server(&["api"], Validity::VALID), &[&new]);
    handshake(&strict, old, &node).expect("a client of the same key");
}

#[test]
fn a_strict_server_ends_the_handshake_where_the_api_server_does_not() {
    set_time(None);
    let model = model();
    let server = model.authority().server(&["api"], Validity::VALID);
    let strict = Model::strict_server_config(&server, &[model.authority()]);
    let handshake =
        |config: &Arc<ServerConfig>, node: &Identity| handshake(config, model.authority(), node);
    let node = model.node_identity("n", Validity { from: -60, until: 60 });
    let stranger = Authority::new("another").client("system:node:n", &[], Validity::VALID);
    handshake(&strict, &node).expect("a good certificate");
    handshake(&strict, &stranger).expect_err("an unknown authority");
    set_time(Some(now() + Duration::from_secs(61)));
    let why = handshake(&strict, &node).expect_err("an expired certificate");
    assert!(why.to_string().contains("expired"), "{why}");
    for identity in [node, stranger] {
        handshake(&model.server_config(&server), &identity).expect("answer says 401 to it");
    }
}

fn now() -> Duration {
    std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970")
}

/// A handshake in memory, and a byte of the client behind it.
fn handshake(
    server: &Arc<ServerConfig>,
    authority: &Authority,
    node: &Identity,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    let parse = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    roots.add(parse(authority.pem())).expect("an authority");
    let key = PrivateKeyDer::from_pem_slice(node.key_pem.as_bytes()).expect("a key");
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![parse(&node.cert_pem)], key)?;
    let name = ServerName::try_from("api").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name)?;
    let mut server = ServerConnection::new(server.clone())?;
    client.writer().write_all(b"x").expect("memory");
    while server.reader().read(&mut [0]).is_err() {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).expect("memory");
        server.read_tls(&mut bytes.as_slice()).expect("memory");
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).expect("memory");
        client.read_tls(&mut bytes.as_slice()).expect("memory");
        client.process_new_packets()?;
    }
    Ok(())
}

#[test]
fn a_restored_etcd_has_the_objects_and_tokens_of_then_and_goes_on_counting() {
    let model = model();
    let node = Node::new(&model, &model.node_identity("n", Validity::VALID));
    register(&node);
    model.add_token("old", "somebody", &[]);
    let (backup, then) = (model.snapshot(), model.list("leases"));
    node.send(&renewal(&model, 60));
    let later = model.list("leases");
    model.revoke_token("old");
    assert_ne!(then, later);
    model.restore(backup);
    assert_eq!(model.list("leases"), then);
    let get = b"GET /version HTTP/1.1\r\nAuthorization: Bearer old\r\n\r\n";
    let get = Request::parse(get).unwrap().unwrap();
    assert_eq!(model.answer(&get, None).0, "somebody");
    node.send(&renewal(&model, 60));
    let version = |objects: &[Value]| {
        let version = objects[0]["metadata"]["resourceVersion"].as_str();
        version.and_then(|version| version.parse::<u64>().ok()).expect("a number")
    };
    assert!(version(&model.list("leases")) > version(&later));
}

/// `cargo test -p apidouble --test model -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn what_a_request_costs() {
    set_time(Some(START));
    let model = model();
    let node = Node::new(&model, &model.node_identity("n", Validity::VALID));
    register(&node);
    let measure = |what: &str, act: &mut dyn FnMut(u64)| {
        let (start, count) = (Instant::now(), 2000);
        (0..count).for_each(act);
        println!("{what}: {:.1} µs", start.elapsed().as_secs_f64() * 1e6 / count as f64);
    };
    let renewals = |second| renewal(&model, second);
    measure("Model::get of a Lease", &mut |second| drop(renewals(second)));
    measure("the same, and a PATCH of the Lease", &mut |second| {
        assert_eq!(node.send(&renewal(&model, second)).1.code, 200);
    });
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let path = "/api/v1/nodes/n/status";
    let media = "application/strategic-merge-patch+json";
    let patch = request("PATCH", path, media, &status.to_string());
    measure("a PATCH of the Node's status", &mut |_| {
        assert_eq!(node.send(&patch).1.code, 200);
    });
    measure("Model::tick", &mut |_| model.tick(GRACE));
}
