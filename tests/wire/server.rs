//! A small TLS or TCP server whose answers a test writes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodelet::client::api_config::ApiConfig;
use nodelet::credentials::kubeconfig;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    RootCertStore, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion,
};

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key in PEM.
pub struct Leaf(pub String, pub String);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_with(names, |_| {})
    }

    pub fn leaf_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Leaf(certificate.pem(), key.serialize_pem())
    }

    /// A server's TLS; `clients`: the CA that a client certificate must have.
    pub fn config(
        &self,
        leaf: &Leaf,
        versions: &[&'static SupportedProtocolVersion],
        clients: Option<&Authority>,
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(versions)
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
                    .unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                        .build()
                        .unwrap();
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(leaf.0.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(leaf.1.as_bytes()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        // Not with_single_cert: it refuses a certificate of version 1, and a key of another one.
        let certified = SingleCertAndKey::from(CertifiedKey::new(chain, key));
        let mut config = builder.with_cert_resolver(Arc::new(certified));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }

    pub fn usual(&self) -> Arc<ServerConfig> {
        self.config(&self.leaf(&["127.0.0.1", "localhost"]), rustls::ALL_VERSIONS, None)
    }
}

/// One request as the server saw it.
#[derive(Clone, Debug)]
pub struct Heard {
    pub head: String,
    pub body: Vec<u8>,
    pub client_certificate: Option<Vec<u8>>,
}

pub trait Stream: Read + Write {
    fn client_certificate(&self) -> Option<Vec<u8>> {
        None
    }
    fn tcp(&self) -> &TcpStream;
    /// Sends `close_notify`, after these bytes and in one segment with them.
    fn close_notify(&mut self, _: &[u8]) {}
    /// Sends a TLS message that carries no data.
    fn key_update(&mut self) {}
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ServerConnection, TcpStream> {
    fn client_certificate(&self) -> Option<Vec<u8>> {
        Some(self.conn.peer_certificates()?.first()?.to_vec())
    }
    fn tcp(&self) -> &TcpStream {
        &self.sock
    }
    fn key_update(&mut self) {
        self.conn.refresh_traffic_keys().unwrap();
        self.flush().unwrap();
    }
    fn close_notify(&mut self, bytes: &[u8]) {
        self.conn.writer().write_all(bytes).unwrap();
        self.conn.send_close_notify();
        self.flush().unwrap();
    }
}

pub struct Server {
    pub port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// `answer` may write anything and returns whether the connection stays open.
    pub fn start(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Heard, &mut dyn Stream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            heard: Arc::default(),
            connections: Arc::default(),
        };
        let (heard, connections) = (server.heard.clone(), server.connections.clone());
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for tcp in listener.incoming() {
                connections.fetch_add(1, Ordering::SeqCst);
                let (heard, tls, answer) = (heard.clone(), tls.clone(), answer.clone());
                thread::spawn(move || {
                    let tcp = tcp.unwrap();
                    tcp.set_nodelay(true).unwrap();
                    let mut stream: Box<dyn Stream> = match tls {
                        Some(tls) => {
                            Box::new(StreamOwned::new(ServerConnection::new(tls).unwrap(), tcp))
                        }
                        None => Box::new(tcp),
                    };
                    while let Some(request) = hear(&mut *stream) {
                        heard.lock().unwrap().push(request.clone());
                        if !answer(&request, &mut *stream) {
                            break;
                        }
                    }
                });
            }
        });
        server
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn hear(stream: &mut dyn Stream) -> Option<Heard> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(Heard { head, body, client_certificate: stream.client_certificate() })
}

/// The usual answer.
pub const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// Sends [`OK`] on a connection that stays open.
pub fn ok(_: &Heard, stream: &mut dyn Stream) -> bool {
    say(stream, OK)
}

pub fn say(stream: &mut dyn Stream, bytes: impl AsRef<[u8]>) -> bool {
    stream.write_all(bytes.as_ref()).is_ok()
}

/// One byte every 5 ms.
pub fn trickle(stream: &mut dyn Stream, bytes: &[u8]) {
    for byte in bytes {
        if !say(stream, [*byte]) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn kubeconfig_text(server: &str, ca: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: '{server}', certificate-authority-data: {}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n",
        STANDARD.encode(ca)
    )
}

pub fn kubeconfig(server: &str, ca: &str, user: &str) -> ApiConfig {
    kubeconfig::parse(&kubeconfig_text(server, ca, user), &[]).unwrap()
}

pub fn client_certificate(leaf: &Leaf) -> String {
    format!(
        "client-certificate-data: {}, client-key-data: {}",
        STANDARD.encode(&leaf.0),
        STANDARD.encode(&leaf.1)
    )
}
