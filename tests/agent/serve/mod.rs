//! `nodelet serve` as a process, and its clients.

mod abuse;
mod access;
mod certificate;
mod clients;
mod endpoints;
mod journal;
mod kubelet;
mod scrapers;
mod start;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use apidouble::{Credentials, Double, Identity};
use nodelet::client::api_config::ApiConfig;
use nodelet::client::tls::client_config;
use nodelet::credentials::kubeconfig;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::common::board::Board;
use support::{Folder, eventually};

/// A limit that no test reaches.
const SOON: Duration = Duration::from_secs(20);

/// A process with a port of its own.
pub struct Served {
    pub board: Board,
    pub port: u16,
}

impl Served {
    /// On a free port of loopback, once it answers.
    pub fn start(args: &[impl AsRef<str>]) -> Self {
        Self::start_with(args, &[])
    }

    /// The same, with these variables of the environment.
    pub fn start_with(args: &[impl AsRef<str>], env: &[(&str, &str)]) -> Self {
        let mut all = vec!["serve", "--listen=127.0.0.1:0"];
        all.extend(args.iter().map(AsRef::as_ref));
        let board = Board::start_with(&all, env);
        let port = eventually("the port", SOON, || {
            let log = board.log();
            let line = log.iter().find(|line| line.contains("answering on"))?;
            line.rsplit_once(':')?.1.parse().ok()
        });
        Self { board, port }
    }

    /// One request over a connection of its own.
    pub fn ask(&self, identity: Option<&Identity>, path: &str, headers: &[&str]) -> Reply {
        Client::connect(self.port, identity).ask("GET", path, headers)
    }

    /// The same, with a bearer token.
    pub fn ask_with(&self, token: &str, path: &str) -> Reply {
        self.ask(None, path, &[&format!("Authorization: Bearer {token}")])
    }
}

/// The flags of agent and port for the node `pi` of the double.
pub fn flags(double: &Double, folder: &Folder) -> Vec<String> {
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let path = |name: &str| folder.path().join(name).display().to_string();
    vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--cert-dir={}", path("pki")),
        format!("--state-file={}", path("state")),
        "--hostname-override=pi".to_owned(),
    ]
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// `HTTP/1.1`.
    pub version: String,
    pub code: u16,
    /// By name in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A connection that verifies nothing, as metrics-server with `--kubelet-insecure-tls`.
pub struct Client(pub BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Client {
    pub fn connect(port: u16, identity: Option<&Identity>) -> Self {
        Self::with(port, Self::config(identity))
    }

    /// TLS is set up at the first request.
    pub fn with(port: u16, config: ClientConfig) -> Self {
        let name = ServerName::try_from("pi").unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(BufReader::new(StreamOwned::new(tls, stream)))
    }

    pub fn config(identity: Option<&Identity>) -> ClientConfig {
        let credentials = identity.map_or(Credentials::Token("none"), Credentials::Certificate);
        let text = apidouble::kubeconfig("https://pi", "", &credentials);
        let config = ApiConfig { insecure: true, ..kubeconfig::parse(&text, &[]).unwrap() };
        let mut config = Arc::unwrap_or_clone(client_config(&config).unwrap());
        config.alpn_protocols.clear();
        config
    }

    /// Sets TLS up.
    pub fn shake_hands(&mut self) -> io::Result<()> {
        let StreamOwned { conn, sock } = self.0.get_mut();
        while conn.is_handshaking() {
            conn.complete_io(sock)?;
        }
        Ok(())
    }

    /// Sends a request without a body and reads the whole answer; the connection stays.
    pub fn ask(&mut self, method: &str, path: &str, headers: &[&str]) -> Reply {
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: pi\r\n");
        for header in headers {
            head += &format!("{header}\r\n");
        }
        self.send(&(head + "\r\n"), method == "HEAD")
    }

    /// Sends a head and reads the whole answer.
    pub fn send(&mut self, head: &str, is_head: bool) -> Reply {
        self.0.get_mut().write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            assert!(self.0.read_line(&mut text).unwrap() > 0, "{text:?}");
        }
        let (status, lines) = text.split_once("\r\n").unwrap();
        let mut words = status.split(' ').map(str::to_owned);
        let version = words.next().unwrap();
        let code = words.next().unwrap().parse().unwrap();
        let headers = lines.trim_end().lines().map(|line| line.split_once(": ").unwrap());
        let headers: BTreeMap<String, String> =
            headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let mut body = Vec::new();
        match headers.get("content-length") {
            _ if is_head => {}
            Some(length) => {
                body.resize(length.parse().unwrap(), 0);
                self.0.read_exact(&mut body).unwrap();
            }
            // Its end is that of TLS: an end of the stream alone is an error.
            None => drop(self.0.read_to_end(&mut body).unwrap()),
        }
        Reply { version, code, headers, body: String::from_utf8(body).unwrap() }
    }
}
