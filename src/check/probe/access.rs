//! The checks of one [`ApiAccess`]: kubeconfig, certificate, name lookup, TCP, TLS, Node and Lease.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::{CALL, CONNECT, LOOKUP, NO_RESPONSE};
use crate::check::{Finding, certificate, server};
use crate::config::Config;
use crate::core::certificate::Certificate;
use crate::core::facts::Facts;
use crate::core::lease::LEASES;
use crate::files::read::cause;
use crate::identity::ApiAccess;
use crate::kube::json;
use crate::kube::message::{Accept, Outcome, Request, Response};
use crate::kube::text::without_remedy;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::process::clock::Clock;
use crate::wire::authorization::Authorization;
use crate::wire::dns::Resolver;
use crate::wire::endpoint::Endpoint;

/// The access that is checked.
pub(super) struct Access {
    access: ApiAccess,
    /// The time in the last object's response.
    server_time: Option<Wall>,
}

impl Access {
    pub(super) fn new(access: ApiAccess) -> Self {
        Self {
            access,
            server_time: None,
        }
    }

    /// Whether the credentials are those of the bootstrap kubeconfig.
    pub(super) fn is_bootstrap(&self) -> bool {
        self.access.bootstrap.is_some()
    }

    pub(super) fn kubeconfig(&self) -> Finding {
        let config = &self.access.config;
        let mut detail = config.endpoint.to_string() + &config.endpoint.prefix;
        if let Some(proxy) = &config.proxy {
            detail += &format!(", through {proxy}");
        }
        if config.insecure {
            detail += ", insecure-skip-tls-verify accepts any server";
        }
        if let Some(why) = &self.access.bootstrap {
            detail += &format!(", with the bootstrap kubeconfig, because of {why}");
        }
        Finding::ok("kubeconfig", detail)
    }

    pub(super) fn certificate(&self, config: &Config, clock: &Clock) -> [Finding; 3] {
        let checks = ["certificate", "certificate-expiry", "certificate-renewal"];
        if self.is_bootstrap() {
            return checks.map(|check| Finding::note(check, "not issued yet", ""));
        }
        let Some(identity) = &self.access.config.certificate else {
            return checks.map(|check| Finding::note(check, "the kubeconfig has none", ""));
        };
        match Leaf::of_pem(&identity.chain.bytes) {
            Some(leaf) => {
                let due = self.access.certificate.as_ref();
                let supervisor = config.k3s_supervisor.as_deref();
                let error = self.access.renewal_error.as_deref();
                [
                    certificate::subject(&leaf, &config.node.name),
                    certificate::expiry(&leaf, clock.now().wall, supervisor.is_some()),
                    certificate::renewal(
                        due.map(Certificate::deadline),
                        supervisor.map(|url| (url, error)),
                    ),
                ]
            }
            None => checks.map(|check| {
                let line = format!("{}: cannot be parsed", identity.chain.source);
                Finding::failed(check, &line, "is it an X.509 certificate?")
            }),
        }
    }

    /// The credential that a request carries.
    pub(super) fn credential(&self) -> Option<String> {
        let config = &self.access.config;
        match (&config.certificate, &config.authorization) {
            (Some(_), _) if config.endpoint.tls => Some("the client certificate".to_owned()),
            (_, Some(Authorization::Bearer { file, .. })) => Some(match file {
                Some(file) => format!("the token in {}", file.display()),
                None => "the token".to_owned(),
            }),
            (_, Some(Authorization::Basic { username, .. })) => {
                Some(format!("the password of {username}"))
            }
            _ => None,
        }
    }

    /// Where the TCP connection goes: the proxy, or else the server.
    pub(super) fn peer(&self) -> &Endpoint {
        let config = &self.access.config;
        let proxy = config.proxy.as_ref();
        proxy.map_or(&config.endpoint, |proxy| &proxy.endpoint)
    }

    /// The result of the TLS handshake, from the first response.
    pub(super) fn tls(&self, response: &Result<Response, String>) -> Finding {
        if !self.access.config.endpoint.tls {
            return Finding::note("tls", "the connection is not encrypted", "use https");
        }
        match response {
            Err(line) if !self.access.api.was_connected() => {
                Finding::failed("tls", line, NO_RESPONSE)
            }
            _ if self.access.config.insecure => {
                Finding::ok("tls", "connected, the server was not verified")
            }
            _ => Finding::ok("tls", "connected, the server was verified"),
        }
    }

    pub(super) fn call(&mut self, request: Request) -> Result<Response, String> {
        match self.access.api.call(&request, CALL) {
            Outcome::Answered(response) => Ok(response),
            Outcome::Silent(line) => Err(line),
        }
    }

    /// The Node, if the server has one, or why it cannot be read.
    pub(super) fn node(&mut self, config: &Config) -> Result<Option<Value>, String> {
        match self.is_bootstrap() {
            true => Ok(None),
            false => self.get(format!("/api/v1/nodes/{}", config.node.name)),
        }
    }

    fn get(&mut self, path: String) -> Result<Option<Value>, String> {
        let response = self.call(Request::get(path, Accept::Object))?;
        self.server_time = response.date.or(self.server_time);
        match response.accepted() {
            Ok(()) => Ok(json::parse(&response.body)),
            Err(_) if response.code == 404 => Ok(None),
            Err(refused) => Err(without_remedy(&refused.to_string()).to_owned()),
        }
    }

    pub(super) fn namesake(
        &mut self,
        config: &Config,
        node: &Result<Option<Value>, String>,
        facts: &Facts,
        clock: &Clock,
    ) -> Finding {
        if self.is_bootstrap() {
            let why = "the bootstrap kubeconfig may not read Nodes";
            return Finding::note("namesake", why, "check again when there is a certificate");
        }
        let lease = self.get(format!("{LEASES}/{}", config.node.name));
        match node.as_ref().and_then(|node| Ok((node, lease.as_ref()?))) {
            Ok((node, lease)) => server::namesake(
                node.as_ref(),
                lease.as_ref(),
                facts.boot_id.as_deref().unwrap_or_default(),
                Duration::from_secs(config.lease_duration_seconds.into()),
                self.server_time.unwrap_or(clock.now().wall),
            ),
            Err(line) => Finding::note("namesake", format!("cannot be read: {line}"), ""),
        }
    }
}

/// The addresses of `peer`, as a run finds them.
pub(crate) fn resolve(
    peer: &Endpoint,
    clock: &Clock,
) -> Result<(Finding, Vec<SocketAddr>), Finding> {
    let check = "name-resolution";
    let Endpoint { host, port, .. } = peer;
    if let Some(address) = peer.address() {
        let finding = Finding::note(check, format!("{host} is an address"), "");
        return Ok((finding, vec![SocketAddr::new(address, *port)]));
    }
    let start = clock.now().mono;
    let left = || LOOKUP.saturating_sub(clock.now().mono.since(start));
    let found = Resolver::system().lookup(host, left).map_err(|why| {
        let line = format!("{host}: {why}");
        let remedy = "is the name right in server, and are the name servers in \
                      /etc/resolv.conf reachable?";
        Finding::failed(check, &line, remedy)
    })?;
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let finding = Finding::ok(check, format!("{host} is {}", names.join(", ")));
    let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, *port));
    Ok((finding, addresses.collect()))
}

/// Succeeds with the first address that accepts a connection, as a run does.
pub(crate) fn dial(addresses: &[SocketAddr]) -> Finding {
    let share = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut failures = Vec::new();
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECT / share) {
            Ok(_) => return Finding::ok("tcp", address.to_string()),
            Err(e) => failures.push(format!("{address}: {}", cause(&e))),
        }
    }
    let remedy = "is the server up, is its port right, and does a firewall allow it?";
    Finding::failed("tcp", &failures.join(" | "), remedy)
}
