//! Goes and looks, in the order in which a run needs the things; what hangs on a thing
//! that is wrong is not looked at. Reads files, asks with GET and
//! SelfSubjectAccessReview, and writes nothing anywhere.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use nix::unistd::{AccessFlags, access};
use serde_json::Value;

use crate::config::Config;
use crate::core::facts::Facts;
use crate::core::wall_clock::WallClock;
use crate::files::guard;
use crate::files::read::cause;
use crate::files::resolve_path::Resolved;
use crate::host::cgroup::Mode;
use crate::host::{Host, cgroup, mounts, pressure};
use crate::identity::ApiAccess;
use crate::kube::message::{Accept, Outcome, Request, Response};
use crate::kube::x509::Leaf;
use crate::process::clock::Clock;
use crate::wire::authorization::Authorization;
use crate::wire::dns::Resolver;
use crate::wire::endpoint::Endpoint;

use super::server::{ALWAYS, CERTIFICATES, CREATE_NODE, Permission};
use super::{Finding, Mark, Report, board, certificate, server};

/// Bounds of one lookup, of one way to the server, of one request.
const LOOKUP: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);

/// What to look at where the server keeps silent.
const NO_ANSWER: &str = "is server the URL of an API server?";

/// Looks at everything. `missing` is what the Node would lack; `connect` reads the
/// kubeconfig.
pub(crate) fn report(
    config: &Config,
    host: &Host,
    facts: &Facts,
    missing: &[String],
    clock: &Clock,
    connect: impl FnOnce() -> Result<ApiAccess, String>,
) -> Report {
    let mut findings = board(host, facts, missing, clock);
    let writable = asks_for_certificates(config).then(|| writable(&config.cert_dir));
    let cert_dir = config.cert_dir.display().to_string();
    findings.push(board::cert_dir(&cert_dir, writable));
    let mut looked = Vec::new();
    // Its end says that something is wrong without which nothing else can be seen.
    let _ = ask(&mut looked, config, facts, clock, connect);
    let because = match looked.last() {
        Some(last) => format!("not looked at, because of {}", last.check),
        None => String::new(),
    };
    findings.append(&mut looked);
    let rest = after_kubeconfig().skip_while(|check| findings.iter().any(|f| f.check == *check));
    let rest: Vec<Finding> = rest
        .map(|check| Finding::open(check, &because, ""))
        .collect();
    findings.extend(rest);
    Report {
        node_name: config.node.name.clone(),
        findings,
    }
}

/// The names of what [`ask`] looks at, in its order.
fn after_kubeconfig() -> impl Iterator<Item = &'static str> {
    let network = [
        "certificate",
        "certificate-expiry",
        "name-resolution",
        "tcp",
        "tls",
        "authentication",
    ];
    let permissions = permissions().map(|permission| permission.check);
    network.into_iter().chain(permissions).chain(["namesake"])
}

fn permissions() -> impl Iterator<Item = Permission> {
    [CREATE_NODE].into_iter().chain(ALWAYS).chain(CERTIFICATES)
}

fn board(host: &Host, facts: &Facts, missing: &[String], clock: &Clock) -> Vec<Finding> {
    let root = &host.root;
    let mounts = mounts::read(root).unwrap_or_default();
    let mode = match cgroup::read(root, &mounts) {
        Mode::V2 => Some("v2"),
        Mode::V1 => Some("v1"),
        Mode::Hybrid => Some("v1, with an empty v2 beside it"),
        Mode::None => None,
    };
    let folder = &host.node_root_dir;
    vec![
        board::cgroups(mode),
        board::memory_controller(&cgroup::memory_is_usable(root)),
        board::psi(&pressure::read(root, "memory").map(|pressure| pressure.is_some())),
        board::machine_id(&facts.machine_id),
        board::system_uuid(&facts.system_uuid, &facts.machine_id),
        board::clock(clock.now().wall, WallClock::built()),
        board::facts(missing),
        board::root_dir(
            &folder.display().to_string(),
            facts.storage(),
            // Below another root, or on a file system that may hang, it is left alone.
            match root.is_real() && !facts.storage().is_some_and(Result::is_err) {
                true => writable(folder),
                false => Ok(()),
            },
        ),
    ]
}

/// Whether a file could be made there; asked, not tried. A folder that is not there yet
/// would be made.
fn writable(folder: &Path) -> Result<(), String> {
    let there = match guard::resolve(folder).map_err(|e| cause(&e))? {
        Resolved::Found(path) | Resolved::MissingBelow(path) => path,
    };
    match there.is_dir() {
        true => access(&there, AccessFlags::W_OK).map_err(|errno| cause(&errno.into())),
        false => Err(format!("{} is not a folder", there.display())),
    }
}

fn asks_for_certificates(config: &Config) -> bool {
    config.rotate_certificates || config.bootstrap_kubeconfig.is_some()
}

/// Why a run has no use for a permission.
fn needless(permission: &Permission, config: &Config, way: &ApiAccess) -> Option<&'static str> {
    let is_for_certificates = CERTIFICATES.contains(permission);
    if is_for_certificates && !asks_for_certificates(config) {
        return Some("certificates are not asked for here");
    }
    if way.bootstrap.is_some() && !is_for_certificates {
        return Some("is the business of the certificate that is asked for");
    }
    (*permission == CREATE_NODE && !config.node.register).then_some("--register-node is off")
}

/// None where something is wrong without which nothing that follows can be seen.
fn ask(
    findings: &mut Vec<Finding>,
    config: &Config,
    facts: &Facts,
    clock: &Clock,
    connect: impl FnOnce() -> Result<ApiAccess, String>,
) -> Option<()> {
    let mut add = |finding: Finding| {
        let goes_on = finding.mark != Mark::Wrong;
        findings.push(finding);
        goes_on.then_some(())
    };
    let mut server = match connect() {
        Ok(way) => Server(way),
        Err(line) => {
            let remedy = "write one, as the README says under The kubeconfig";
            add(Finding::wrong("kubeconfig", &line, remedy));
            return None;
        }
    };
    add(server.found());
    for finding in server.certificate(&config.node.name, clock) {
        add(finding);
    }
    let resolved = server.resolve(clock);
    let addresses = match resolved {
        Ok((finding, addresses)) => {
            add(finding);
            addresses
        }
        Err(finding) => return add(finding),
    };
    add(server.dial(&addresses))?;

    let name = &config.node.name;
    let first =
        permissions().find(|permission| needless(permission, config, &server.0).is_none())?;
    let answer = server.call(first.review(name));
    add(server.tls(&answer))?;
    let answer = match answer {
        Ok(answer) => answer,
        Err(line) => return add(Finding::wrong("authentication", &line, NO_ANSWER)),
    };
    add(server::authentication(&answer, server.proof().as_deref()))?;

    for permission in permissions() {
        let finding = match needless(&permission, config, &server.0) {
            Some(why) => Finding::open(permission.check, why, ""),
            None if permission == first => permission.judge(&answer),
            None => match server.call(permission.review(name)) {
                Ok(answer) => permission.judge(&answer),
                Err(line) => return add(Finding::wrong(permission.check, &line, "check again")),
            },
        };
        add(finding);
    }
    add(server.namesake(config, facts, clock))
}

/// A way in, while it is looked at.
struct Server(ApiAccess);

impl Server {
    fn found(&self) -> Finding {
        let mut detail = self.0.config.endpoint.to_string() + &self.0.config.endpoint.prefix;
        if let Some(proxy) = &self.0.config.proxy {
            detail += &format!(", by way of {proxy}");
        }
        if self.0.config.insecure {
            detail += ", and insecure-skip-tls-verify believes any server";
        }
        if let Some(why) = &self.0.bootstrap {
            detail += &format!(", by the bootstrap kubeconfig, because of {why}");
        }
        Finding::fine("kubeconfig", detail)
    }

    fn certificate(&self, node_name: &str, clock: &Clock) -> [Finding; 2] {
        let checks = ["certificate", "certificate-expiry"];
        if self.0.bootstrap.is_some() {
            return checks.map(|check| Finding::open(check, "is yet to be asked for", ""));
        }
        let Some(identity) = &self.0.config.certificate else {
            return checks.map(|check| Finding::open(check, "the kubeconfig has none", ""));
        };
        match Leaf::of_pem(&identity.chain.bytes) {
            Some(leaf) => [
                certificate::subject(&leaf, node_name),
                certificate::expiry(&leaf, clock.now().wall),
            ],
            None => checks.map(|check| {
                let line = format!("{}: cannot be read", identity.chain.source);
                Finding::wrong(check, &line, "is it an X.509 certificate?")
            }),
        }
    }

    /// What we prove ourselves with.
    fn proof(&self) -> Option<String> {
        let config = &self.0.config;
        let tls = config.endpoint.tls;
        match (&config.certificate, &config.authorization) {
            (Some(_), _) if tls => Some("the client certificate".to_owned()),
            (
                _,
                Some(Authorization::Bearer {
                    file: Some(file), ..
                }),
            ) => Some(format!("the token in {}", file.display())),
            (_, Some(Authorization::Bearer { .. })) => Some("the token".to_owned()),
            (_, Some(Authorization::Basic { username, .. })) => {
                Some(format!("the password of {username}"))
            }
            _ => None,
        }
    }

    /// Where the first connection goes: to the proxy, where there is one.
    fn route(&self) -> &Endpoint {
        let config = &self.0.config;
        config
            .proxy
            .as_ref()
            .map_or(&config.endpoint, |proxy| &proxy.endpoint)
    }

    fn resolve(&self, clock: &Clock) -> Result<(Finding, Vec<SocketAddr>), Finding> {
        let check = "name-resolution";
        let Endpoint { host, port, .. } = self.route();
        if let Some(address) = self.route().address() {
            let finding = Finding::open(check, format!("{host} is an address"), "");
            return Ok((finding, vec![SocketAddr::new(address, *port)]));
        }
        let start = clock.now().mono;
        let left = || LOOKUP.saturating_sub(clock.now().mono.since(start));
        let found = Resolver::system().lookup(host, left).map_err(|why| {
            let line = format!("{host}: {why}");
            let remedy = "is the name right in server, and are the name servers in \
                          /etc/resolv.conf reachable?";
            Finding::wrong(check, &line, remedy)
        })?;
        let names: Vec<String> = found.iter().map(ToString::to_string).collect();
        let finding = Finding::fine(check, format!("{host} is {}", names.join(", ")));
        let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, *port));
        Ok((finding, addresses.collect()))
    }

    /// The first address that takes a connection will do for a run, too.
    fn dial(&self, addresses: &[SocketAddr]) -> Finding {
        let share = u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut failures = Vec::new();
        for address in addresses {
            match TcpStream::connect_timeout(address, CONNECT / share) {
                Ok(_) => return Finding::fine("tcp", address.to_string()),
                Err(e) => failures.push(format!("{address}: {}", cause(&e))),
            }
        }
        let remedy = "is the server up, is its port right, and does a firewall let us through?";
        Finding::wrong("tcp", &failures.join(" | "), remedy)
    }

    /// What the first call says of TLS.
    fn tls(&self, answer: &Result<Response, String>) -> Finding {
        if !self.0.config.endpoint.tls {
            return Finding::open("tls", "the server is spoken to in clear", "use https");
        }
        match answer {
            Err(line) if !self.0.api.was_connected() => Finding::wrong("tls", line, NO_ANSWER),
            _ if self.0.config.insecure => {
                Finding::fine("tls", "set up with a server that was not verified")
            }
            _ => Finding::fine("tls", "set up with a server that proved itself"),
        }
    }

    fn call(&mut self, request: Request) -> Result<Response, String> {
        match self.0.api.call(&request, CALL) {
            Outcome::Answered(answer) => Ok(answer),
            Outcome::Silent(line) => Err(line),
        }
    }

    fn namesake(&mut self, config: &Config, facts: &Facts, clock: &Clock) -> Finding {
        if self.0.bootstrap.is_some() {
            let why = "cannot be seen with the bootstrap's credentials";
            return Finding::open("namesake", why, "check again when there is a certificate");
        }
        let name = &config.node.name;
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let mut now = None;
        let mut get = |path: String| -> Result<Option<Value>, String> {
            let answer = self.call(Request::get(path, Accept::Object))?;
            now = answer.date.or(now);
            match answer.accepted() {
                Ok(()) => Ok(serde_json::from_slice(&answer.body).ok()),
                Err(_) if answer.code == 404 => Ok(None),
                Err(refused) => Err(refused.to_string()),
            }
        };
        let node = get(format!("/api/v1/nodes/{name}"));
        let lease = get(format!("{leases}/{name}"));
        match node.and_then(|node| Ok((node, lease?))) {
            Ok((node, lease)) => server::namesake(
                node.as_ref(),
                lease.as_ref(),
                facts.boot_id.as_deref().unwrap_or_default(),
                Duration::from_secs(config.lease_duration_seconds.into()),
                now.unwrap_or(clock.now().wall),
            ),
            Err(line) => {
                let line = line.split("; ").next().unwrap_or(&line);
                Finding::open("namesake", format!("cannot be seen: {line}"), "")
            }
        }
    }
}
