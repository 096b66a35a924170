//! What the tests share: a small client with TLS, the recordings, and what to overlook in them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use apidouble::{Double, Identity, Validity};
use httparse::Status;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

pub fn recording(name: &str) -> Value {
    let path = format!("{}/../recordings/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub struct Answer {
    pub code: u16,
    pub headers: Vec<(String, String)>,
    pub bytes: Vec<u8>,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| Value::from(self.body.trim_end()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, v)| v.as_str())
    }
}

/// A client that keeps its connection.
pub struct Client {
    port: u16,
    config: Arc<ClientConfig>,
    pub agent: String,
    /// Further headers of each request.
    pub headers: Vec<(String, String)>,
    stream: Option<StreamOwned<ClientConnection, TcpStream>>,
}

impl Client {
    pub fn new(double: &Double, identity: Option<&Identity>, token: Option<&str>) -> Self {
        let mut roots = RootCertStore::empty();
        let ca =
            CertificateDer::from_pem_slice(double.ca_pem().as_bytes()).expect("a CA certificate");
        roots.add(ca).expect("a CA");
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match identity {
            Some(Identity { cert_pem, key_pem, .. }) => {
                let cert = CertificateDer::from_pem_slice(cert_pem.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("a key");
                let key = rustls::crypto::ring::sign::any_supported_type(&key).expect("a key");
                let own = CertifiedKey::new(vec![cert.expect("a certificate")], key);
                // Unlike `with_client_auth_cert`, this takes certificates of version 1.
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
            None => builder.with_no_client_auth(),
        };
        let bearer = token.map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
        Self {
            port: double.port(),
            config: Arc::new(config),
            agent: "recorder/1".to_owned(),
            headers: bearer.into_iter().collect(),
            stream: None,
        }
    }

    pub fn node(double: &Double, name: &str) -> Self {
        Self::new(double, Some(&double.node_identity(name, Validity::VALID)), None)
    }

    pub fn admin(double: &Double) -> Self {
        let identity =
            double.authority().client("kubernetes-admin", &["system:masters"], Validity::VALID);
        Self::new(double, Some(&identity), None)
    }

    pub fn anonymous(double: &Double) -> Self {
        Self::new(double, None, None)
    }

    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        accept: &str,
        content_type: &str,
        body: impl AsRef<[u8]>,
    ) -> Answer {
        self.try_send(method, path, accept, content_type, body)
            .unwrap_or_else(|e| panic!("{method} {path}: {e}"))
    }

    pub fn try_send(
        &mut self,
        method: &str,
        path: &str,
        accept: &str,
        content_type: &str,
        body: impl AsRef<[u8]>,
    ) -> std::io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let body = Some(body.as_ref()).filter(|_| !content_type.is_empty()).unwrap_or_default();
        let length = body.len().to_string();
        let own = [("Host", "127.0.0.1"), ("Accept", accept), ("User-Agent", &self.agent)];
        let of_body = [("Content-Type", content_type), ("Content-Length", &length)];
        let of_body = of_body.into_iter().filter(|_| !content_type.is_empty());
        let further = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let lines = own.into_iter().chain(further).chain(of_body);
        let lines: String = lines.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("{method} {path} HTTP/1.1\r\n{lines}\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())?;
        stream.flush()?;
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = parsed(&bytes)? {
                if answer.header("connection") != Some("close") {
                    self.stream = Some(stream);
                }
                return Ok(answer);
            }
            let mut part = [0; 16 << 10];
            match stream.read(&mut part)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                length => bytes.extend_from_slice(&part[..length]),
            }
        }
    }

    fn connect(&self) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("127.0.0.1").expect("an address");
        let tls = ClientConnection::new(self.config.clone(), name);
        Ok(StreamOwned::new(tls.map_err(std::io::Error::other)?, socket))
    }
}

/// The answer, if these bytes are the whole one.
fn parsed(bytes: &[u8]) -> std::io::Result<Option<Answer>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let Status::Complete(start) = head.parse(bytes).map_err(std::io::Error::other)? else {
        return Ok(None);
    };
    let code = head.code.expect("a status code");
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = head.headers.iter().map(|h| (h.name.to_owned(), text(h.value))).collect();
    let mut answer = Answer { code, headers, bytes: Vec::new(), body: String::new() };
    let rest = &bytes[start..];
    // The double sends one chunk.
    let (start, length, end) = if answer.header("transfer-encoding").is_some() {
        let size = httparse::parse_chunk_size(rest).expect("a size of a chunk");
        let Status::Complete((start, size)) = size else { return Ok(None) };
        (start, usize::try_from(size).expect("a size"), "\r\n0\r\n\r\n")
    } else {
        let length = answer.header("content-length").map_or(0, |l| l.parse().expect("a length"));
        (0, length, "")
    };
    let Some(body) = rest.get(start..start + length + end.len()) else { return Ok(None) };
    let body = body.strip_suffix(end.as_bytes()).expect("the end of the body");
    (answer.bytes, answer.body) = (body.to_vec(), text(body));
    Ok(Some(answer))
}

/// Replaces what the server makes up or reads off its clock; compares the long descriptions of
/// Table columns not at all.
pub fn normalise(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            // a condition that the server's own controller stamped
            let stamped = map.get("reason").is_some_and(|r| r == "AutoApproved");
            for (key, value) in map {
                let is_empty = value.is_null() || value == "";
                let varies =
                    || if is_empty { value.clone() } else { Value::from(format!("<{key}>")) };
                let new = match key.as_str() {
                    "uid" if value == "nodelet1" => value.clone(),
                    "uid" | "resourceVersion" | "creationTimestamp" | "deletionTimestamp"
                    | "certificate" | "continue" => varies(),
                    "managedFields" => owners(value),
                    "authentication.kubernetes.io/credential-id" => Value::from("<credential>"),
                    "lastUpdateTime" | "lastTransitionTime" if stamped => varies(),
                    "description" => continue,
                    "cells" => value.as_array().into_iter().flatten().map(without_age).collect(),
                    "message" if value.is_string() => shape(value.as_str().unwrap_or("")).into(),
                    _ => normalise(value),
                };
                out.insert(key.clone(), new);
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(normalise).collect(),
        other => other.clone(),
    }
}

/// A cell of a Table.
fn without_age(cell: &Value) -> Value {
    let is_age = cell.as_str().is_some_and(|cell| cell.len() < 4 && cell.ends_with('s'));
    if is_age { Value::from("<age>") } else { cell.clone() }
}

/// managedFields without their times, which also sort them.
fn owners(value: &Value) -> Value {
    let mut entries = value.as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        entry["time"] = Value::Null;
    }
    entries.sort_by_key(|entry| format!("{} {}", entry["manager"], entry["subresource"]));
    Value::Array(entries)
}

/// A message that embeds the whole object, its resourceVersion, or what differs between two pods,
/// keeps what stands before and after that.
pub fn shape(text: &str) -> String {
    const VERSION: &str = "the ResourceVersion in record (";
    if let Some((start, end)) = text.split_once(VERSION) {
        let end = end.trim_start_matches(|c: char| c.is_ascii_digit());
        return format!("{start}{VERSION}<resourceVersion>{end}");
    }
    let text = text.split_once("\n@@").map_or(text, |(start, _)| start);
    match (text.find("Invalid value: \"{"), text.rfind("}\": ")) {
        (Some(start), Some(end)) if start < end => {
            format!("{}<object>{}", &text[..start + 16], &text[end + 2..])
        }
        _ => text.to_owned(),
    }
}

/// Creates the recorded Node under another name.
pub fn with_node(double: &Double, name: &str) -> Value {
    let recorded = recording("registration")["steps"][1]["request"]["body"].to_string();
    create(double, "/api/v1/nodes", &recorded.replace("nodelet1", name))
}

/// Creates the Lease of a Node.
pub fn with_lease(double: &Double, node: &Value, renewed: &str) {
    let (name, uid) = (&node["metadata"]["name"], &node["metadata"]["uid"]);
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let lease = json!({
        "metadata": {"name": name, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}});
    create(double, LEASES, &lease.to_string());
}

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn create(double: &Double, path: &str, object: &str) -> Value {
    let mut client = Client::admin(double);
    // As the recorder did.
    client.agent.clear();
    let answer = client.send("POST", path, "application/json", "application/json", object);
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.json()
}
