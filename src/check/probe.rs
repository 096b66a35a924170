//! Runs the checks in the order in which a run needs the things, and skips those whose prerequisite
//! failed. Reads files, sends GET and SelfSubjectAccessReview requests, and changes nothing.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::port::{PORT, port};
use super::sandbox::not_read_only;
use super::{board, desired, guest, server};
use crate::agent::permissions::{Need, PERMISSIONS, Permission};
use crate::agent::setup::Setup;
use crate::agent::unit::{SERVE_SOCKET, SERVICE, UnitAgent, copies, is_enabled};
use crate::client::api_config::{ApiConfig, Authorization, Endpoint};
use crate::client::reach::{AT_PROXY, dial, resolve};
use crate::config::Config;
use crate::credentials::{Credentials, IdentitySource};
use crate::health::KINDS;
use crate::host::{Host, cgroup, memory, mounts};
use crate::kube::cluster_info::cluster_info;
use crate::kube::facts::Facts;
use crate::kube::finding::{Finding, Mark, Report};
use crate::kube::message::{Accept, Request, Response};
use crate::kube::text::{Fault, FaultKind};
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::node::pods::{self, ListSize};
use crate::node::server_version;
use crate::node::wall_clock::boot_of;
use crate::os::clock::{self, Clock};
use crate::os::command::credentials_folder;
use crate::os::guard::{self, has_room, writable};
use crate::os::mounts::{all_mounts, over};
use crate::runtime;

/// The names of the findings of [`ServerProbe::certificate`].
const CERTIFICATE: [&str; 3] = ["certificate", "certificate-expiry", "certificate-renewal"];
/// The checks that fail if the newest certificate was not stored.
const UNSTORED: [&str; 2] = [CERTIFICATE[1], "authentication"];
/// The names of the findings of [`ServerProbe::cluster`].
const GUEST: [&str; 5] = ["labels", "taint", "podcidr", "pods", "server-version"];

/// A card was full, or is.
const IN_MEMORY: &str = "the newest certificate may be in the memory of nodelet alone";

/// Time limit of one request: as of a registration, with the connection and the name lookup.
const CALL: Duration = Duration::from_secs(20);

/// Runs all checks.
pub(super) fn report(setup: &mut Setup, unit: Option<UnitAgent>, clock: &Clock) -> Report {
    let (desired, answer) = desired(setup, clock);
    let Setup { config, runtime, host, facts, .. } = &*setup;
    let mut findings = board(host, facts, &desired.missing, clock);
    let mut health = setup.board_health(*clock);
    let conditions = health.if_it_lasted();
    let finding = |kind| board::health(kind, &setup.health, &conditions, &health.sources(kind));
    findings.extend(KINDS.iter().map(finding));
    // Under the unit a bare name is looked for among the copies of its process.
    let folder = credentials_folder().or_else(|| unit.is_some().then(copies));
    let open = |now| open(config, folder.clone(), now);
    let access = open(clock.now().wall);
    // With a token in the kubeconfig there is no certificate to renew, whatever the flags say.
    let by_flags = config.rotate_certificates || config.bootstrap_kubeconfig.is_some();
    let requests = access.as_ref().map_or(by_flags, |access| access.rotation.deadline().is_some());
    let runs = unit.as_ref().is_some_and(|unit| unit.runs);
    let cert_dir = config.cert_dir.display().to_string();
    let place = guard::resolve(&config.cert_dir).ok().zip(all_mounts().ok());
    let writable = requests.then(|| {
        writable(&config.cert_dir)?;
        if let Some((found, _)) = place.as_ref().filter(|_| runs) {
            not_read_only(&host.root, &found.existing)?;
        }
        has_room(&config.cert_dir).map_err(|why| match why.remedy.as_str() {
            room if runs && !room.is_empty() => {
                Fault::new(why.what, format!("{room} before a restart: {IN_MEMORY}"))
            }
            _ => why,
        })
    });
    let mount = place.as_ref().and_then(|(found, mounts)| over(mounts, &found.existing));
    findings.push(board::cert_dir(&cert_dir, mount.map(|mount| &*mount.fs_type), writable));
    findings.push(guest::guest(&config.node));
    if let (Some(runtime), Some(answer)) = (runtime, answer) {
        findings.extend(runtime::findings(runtime, &answer, !config.node.is_guest()));
    }
    let elsewhere = unit.as_ref().and_then(|unit| unit.elsewhere.as_ref());
    findings.extend(unit.as_ref().map(|unit| unit.finding.clone()));
    match (&access, elsewhere) {
        (Err(why), Some(path)) if !why.is_unread() => {
            let line = format!("only a start of the unit reads {}", path.display());
            // No file tells whether its start failed, or somebody stopped it.
            let mut finding = Finding::note("kubeconfig", line, "systemctl status nodelet");
            if is_enabled(&setup.host.root, SERVICE) {
                finding.mark = Mark::Failed;
            }
            findings.push(finding);
        }
        _ => {
            let _ = server(&mut findings, setup, access, &open, clock, None);
        }
    }
    // An early end of `server` leaves the failed check as the last finding.
    let cause = findings.last().map_or("", |finding| finding.check);
    for check in server_checks() {
        if findings.iter().all(|finding| finding.check != check) {
            findings.push(Finding::skipped(check, cause));
        }
    }
    // The files have an older certificate than the process if the newest one was not stored.
    if runs && requests {
        let is_of_files = |f: &&mut Finding| {
            UNSTORED.contains(&f.check) && f.mark == Mark::Failed
                || f.remedy.ends_with(board::JOIN_AGAIN)
        };
        for finding in findings.iter_mut().filter(is_of_files) {
            let remedy = &finding.remedy;
            finding.remedy = format!(
                "no restart before this line is ✓, an hour after cert-dir at most: {IN_MEMORY}; \
                 else: {remedy}"
            );
        }
    }
    Report { node_name: config.node.name.clone(), findings }
}

/// The names of the checks of [`server()`] after `kubeconfig`, in order.
fn server_checks() -> Vec<&'static str> {
    let connection = ["name-resolution", "tcp", "tls", "authentication"];
    let permissions = PERMISSIONS.map(|permission| permission.check);
    [&CERTIFICATE[..], &connection, &permissions, &["namesake"], &GUEST, &["ca"], &PORT].concat()
}

fn board(host: &Host, facts: &Facts, missing: &[String], clock: &Clock) -> Vec<Finding> {
    let root = &host.root;
    let mounts = mounts(root).unwrap_or_default();
    let (folder, storage) = (&host.node_root_dir, facts.storage());
    vec![
        board::cgroups(cgroup::read(root, &mounts)),
        board::memory_controller(&cgroup::memory_is_usable(root)),
        board::psi(&memory::has_pressure(root)),
        board::machine_id(&facts.machine_id),
        board::system_uuid(&facts.system_uuid, &facts.machine_id),
        board::clock(clock.now().wall, clock::built()),
        board::facts(missing),
        board::root_dir(
            &folder.display().to_string(),
            storage.as_ref(),
            // Not asked below another root, nor on a file system that may block.
            if root.is_real() && !storage.as_ref().is_some_and(Result::is_err) {
                writable(folder)
            } else {
                Ok(())
            },
        ),
    ]
}

/// The checks of the kubeconfig, the network and the server. Returns `None` after a failed check
/// that every later check needs. `open` reads the credentials that a run begins with at a time.
/// `server_time`: the server's time, if it is known.
fn server(
    findings: &mut Vec<Finding>,
    setup: &Setup,
    access: Result<Credentials, Fault>,
    open: &dyn Fn(Wall) -> Result<Credentials, Fault>,
    clock: &Clock,
    server_time: Option<Wall>,
) -> Option<()> {
    let begin = findings.len();
    let mut add = adding(&mut *findings);
    let config = &setup.config;
    let access = match access {
        Ok(access) => access,
        Err(why) => {
            let remedy = if config.kubeconfig.is_none() {
                "nodelet join gets one; if it has, run this with sudo"
            } else if why.kind == FaultKind::Denied {
                "run it with sudo"
            } else {
                "write one, as systemd/join.md says under The kubeconfig"
            };
            return add(Finding::failed("kubeconfig", why, remedy));
        }
    };
    let serves = is_enabled(&setup.host.root, SERVE_SOCKET);
    let mut probe = ServerProbe { setup, clock, access, serves, server_time };
    add(probe.kubeconfig());
    for finding in probe.certificate() {
        add(finding);
    }
    let (finding, addresses) = resolve(probe.peer(), clock);
    add(finding)?;
    add(dial(&addresses, probe.proxy().is_some()))?;

    let name = &config.node.name;
    let first = PERMISSIONS.iter().find(|permission| probe.not_needed(permission).is_none())?;
    let response = probe.call(first.review(name));
    drop(add);
    if let (None, Some(time)) = (server_time, probe.server_time)
        && let Ok(other) = open(time)
        && other.current.api.config != probe.access.current.api.config
    {
        // The board's clock is wrong: by the server's clock a run uses other credentials.
        findings.truncate(begin);
        return server(findings, setup, Ok(other), open, clock, Some(time));
    }
    if probe.server_time.is_some() {
        for judged in probe.certificate() {
            if let Some(found) = findings.iter_mut().find(|it| it.check == judged.check) {
                *found = judged;
            }
        }
    }
    let mut add = adding(findings);
    add(probe.tls(&response))?;
    let response = match response {
        Ok(response) => response,
        Err(line) => return add(Finding::failed("authentication", line, probe.no_response())),
    };
    let credential = probe.credential();
    add(server::authentication(&response, credential.as_deref()))?;

    for permission in &PERMISSIONS {
        let finding = match probe.not_needed(permission) {
            Some(why) => Finding::note(permission.check, why, ""),
            None if permission == first => permission.judge(&response),
            None => match probe.call(permission.review(name)) {
                Ok(response) => permission.judge(&response),
                Err(line) => return add(Finding::failed(permission.check, line, "check again")),
            },
        };
        add(finding);
    }
    let node = probe.node();
    add(probe.namesake(&node))?;
    for finding in probe.cluster(&node) {
        add(finding);
    }
    let ca = probe.access.current.api.config.ca.clone();
    add(probe.ca());
    let at_supervisor = config.k3s_supervisor.is_some();
    for finding in port(serves, at_supervisor, node.as_ref().map(Option::as_ref), ca) {
        add(finding);
    }
    Some(())
}

/// Adds findings. The result is `None` after a failed one.
fn adding(findings: &mut Vec<Finding>) -> impl FnMut(Finding) -> Option<()> {
    |finding| {
        let is_ok = finding.mark != Mark::Failed;
        findings.push(finding);
        is_ok.then_some(())
    }
}

/// Reads the kubeconfig of a run. `folder`: that of systemd's credentials.
fn open(config: &Config, folder: Option<PathBuf>, now: Wall) -> Result<Credentials, Fault> {
    let path = config.kubeconfig.as_ref().ok_or("--kubeconfig is missing")?;
    IdentitySource::new(config, path, folder).open_read_only(now)
}

/// The access to the server that is checked, for a run.
struct ServerProbe<'a> {
    setup: &'a Setup,
    clock: &'a Clock,
    access: Credentials,
    /// Whether the socket of `nodelet serve` is enabled.
    serves: bool,
    /// The server's time, from the last response.
    server_time: Option<Wall>,
}

impl ServerProbe<'_> {
    /// Whether the credentials are those of the bootstrap kubeconfig.
    fn is_bootstrap(&self) -> bool {
        self.access.bootstrap.is_some()
    }

    /// Why a run does not need `permission`; `None` if it does.
    fn not_needed(&self, permission: &Permission) -> Option<&'static str> {
        let config = &self.setup.config;
        let node = &config.node;
        match permission.need {
            Need::Certificate | Need::Renewal if self.access.rotation.deadline().is_none() => {
                Some("certificates are not requested here")
            }
            Need::Certificate | Need::Renewal if config.k3s_supervisor.is_some() => {
                Some("the supervisor signs")
            }
            Need::Certificate | Need::Join => None,
            Need::Renewal if !config.rotate_certificates => Some("--rotate-certificates is off"),
            _ if self.is_bootstrap() => {
                Some("needed by the requested certificate, not by the bootstrap kubeconfig")
            }
            Need::Pods if !(node.is_guest() && node.reject_pods) => Some("no pods are ended here"),
            Need::Port if !self.serves => Some("nodelet-serve.socket is not enabled"),
            Need::Register if !node.register => Some("--register-node is off"),
            Need::Run | Need::Register | Need::Pods | Need::Renewal | Need::Port => None,
        }
    }

    fn kubeconfig(&self) -> Finding {
        let config = &self.access.current.api.config;
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

    fn certificate(&self) -> [Finding; 3] {
        if self.is_bootstrap() {
            return CERTIFICATE.map(|check| Finding::note(check, "not issued yet", ""));
        }
        let Some(identity) = &self.access.current.api.config.certificate else {
            return CERTIFICATE.map(|check| Finding::note(check, "the kubeconfig has none", ""));
        };
        let Some(leaf) = Leaf::of_pem(&identity.chain.bytes) else {
            let line = format!("{}: cannot be parsed", identity.chain.source);
            return CERTIFICATE.map(|c| Finding::failed(c, &line, "is it an X.509 certificate?"));
        };
        let due = self.access.rotation.deadline();
        let supervisor = self.setup.config.k3s_supervisor.as_deref();
        let fault = self.access.renewal_fault.as_ref();
        let now = self.now();
        [
            board::certificate(&leaf, &self.setup.config.node.name),
            board::certificate_expiry(&leaf, now, self.server_time.is_some(), supervisor.is_some()),
            board::certificate_renewal(&leaf, now, due, supervisor.map(|url| (url, fault))),
        ]
    }

    /// The credential that a request carries.
    fn credential(&self) -> Option<String> {
        let config = &self.access.current.api.config;
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

    fn proxy(&self) -> Option<&Endpoint> {
        self.access.current.api.config.proxy.as_ref().map(|proxy| &proxy.endpoint)
    }

    /// Where the TCP connection goes: the proxy, or else the server.
    fn peer(&self) -> &Endpoint {
        self.proxy().unwrap_or(&self.access.current.api.config.endpoint)
    }

    /// The remedy if there is no response. Behind a proxy it is about the proxy, because nobody
    /// knows whether the proxy or the server failed.
    fn no_response(&self) -> &'static str {
        self.proxy().map_or("is server the URL of an API server?", |_| AT_PROXY)
    }

    /// The finding `tls`, from the response to the first request. It is a failure only if no
    /// connection was set up, TLS included. If the server was silent on a connection, `tls` is OK
    /// and `authentication` fails. With `insecure-skip-tls-verify` it is OK, too.
    fn tls(&self, response: &Result<Response, Fault>) -> Finding {
        if !self.access.current.api.config.endpoint.tls {
            return Finding::note("tls", "the connection is not encrypted", "use https");
        }
        match response {
            Err(why) if !self.access.current.api.was_connected() => {
                Finding::failed("tls", why.clone(), self.no_response())
            }
            _ if self.access.current.api.config.insecure => {
                Finding::ok("tls", "connected, the server was not verified")
            }
            _ => Finding::ok("tls", "connected, the server was verified"),
        }
    }

    fn call(&mut self, request: Request) -> Result<Response, Fault> {
        let response = self.access.current.api.call(&request, CALL)?;
        self.server_time = response.date.or(self.server_time);
        Ok(response)
    }

    /// The server's time, if it has sent its time, because that clock judges certificates and
    /// Leases. Else the board's.
    fn now(&self) -> Wall {
        self.server_time.unwrap_or(self.clock.now().wall)
    }

    /// The Node, if the server has one, or why it cannot be read.
    fn node(&mut self) -> Result<Option<Value>, Fault> {
        if self.is_bootstrap() {
            return Ok(None);
        }
        let name = &self.setup.config.node.name;
        let response = self.call(Request::get(format!("/api/v1/nodes/{name}"), Accept::Object))?;
        response.object("nodes", name)
    }

    /// Must be the last request: it drops the credentials, because only an anonymous user may read
    /// cluster-info.
    fn ca(&mut self) -> Finding {
        let config = &self.access.current.api.config;
        let is_verified = config.endpoint.tls && !config.insecure;
        let Some(trusted) = config.ca.clone().filter(|_| is_verified) else {
            return Finding::note("ca", "the kubeconfig has none that verifies the server", "");
        };
        let anonymous = ApiConfig { certificate: None, authorization: None, ..config.clone() };
        let ready = self.access.current.api.set_identity(&anonymous);
        match ready.and_then(|()| self.call(cluster_info())) {
            Ok(response) => server::ca(&response, &trusted, self.now()),
            Err(why) => Finding::note("ca", why.at("cluster-info cannot be read"), ""),
        }
    }

    fn namesake(&self, node: &Result<Option<Value>, Fault>) -> Finding {
        if self.is_bootstrap() {
            let why = "the bootstrap kubeconfig may not read Nodes";
            return Finding::note("namesake", why, "check again when there is a certificate");
        }
        let boot_id = self.setup.facts.boot_id.as_deref().unwrap_or_default();
        match node {
            Ok(node) => server::namesake(node.as_ref(), boot_id),
            Err(why) => Finding::note("namesake", why.clone().at("cannot be read"), ""),
        }
    }

    /// `node` is the Node on the server, if it has one, or why it cannot be read.
    fn cluster(&mut self, node: &Result<Option<Value>, Fault>) -> [Finding; 5] {
        if self.is_bootstrap() {
            let why = "needs the requested certificate";
            return GUEST.map(|check| Finding::note(check, why, ""));
        }
        let (config, clock) = (&self.setup.config, self.clock);
        let [labels, taint, pod_cidr] = match node {
            Ok(node) => [
                guest::labels(&config.node, node.as_ref()),
                guest::taint(&config.node, node.as_ref()),
                guest::pod_cidr(&config.node, node.as_ref()),
            ],
            Err(why) => ["labels", "taint", "podcidr"]
                .map(|check| Finding::note(check, why.clone().at("cannot be read"), "")),
        };
        let pods = if config.node.is_guest() {
            // Below another root, the time of that machine's boot is not known.
            let is_here = self.setup.host.root.is_real();
            let boot = |server_time| boot_of(server_time, clock.now().mono, clock.boot_to_start());
            let list = self.call(pods::list(&config.node.name, ListSize::Page));
            let date = list.as_ref().ok().and_then(|list| list.date).filter(|_| is_here);
            guest::pods(&config.node, list, date.map(boot))
        } else {
            Finding::note("pods", "the Node runs pods", "")
        };
        let version = self.call(Request::get(server_version::PATH.to_owned(), Accept::Object));
        [labels, taint, pod_cidr, pods, guest::server_version(config, version)]
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::agent::permissions::CREATE_REQUEST;
    use crate::config::flags::Flags;
    use crate::os::tree::Tree;

    /// The file of a kubelet that kubeadm made has `rotateCertificates`, and a ServiceAccount has
    /// no permission for certificates.
    #[test]
    fn a_board_with_a_token_needs_nothing_for_certificates() {
        let tree = Tree::empty("check-token");
        tree.write("kubeconfig", kubeconfig("http://127.0.0.1:1", "token: x").as_bytes());
        let flag = format!("--kubeconfig={}", tree.join("kubeconfig").display());
        let mut flags = vec!["--hostname-override=pi", "--cert-dir=/dev/null/x", &flag];
        for rotates in [false, true] {
            let mut setup = Setup::new(Flags::of(&flags), true).unwrap();
            let clock = &Clock::start();
            let report = report(&mut setup, None, clock);
            let cert_dir = report.findings.iter().find(|finding| finding.check == "cert-dir");
            assert_eq!(cert_dir.unwrap().mark, Mark::Note, "{rotates}");
            let access = open(&setup.config, None, Wall::default()).unwrap();
            let probe =
                ServerProbe { setup: &setup, clock, access, serves: false, server_time: None };
            let why = Some("certificates are not requested here");
            assert_eq!(probe.not_needed(&CREATE_REQUEST), why, "{rotates}");
            flags.push("--rotate-certificates");
        }
    }

    /// A server that answers each request with 401 on this day.
    #[expect(clippy::disallowed_methods, reason = "the thread is the server")]
    fn server_on(day: &'static str) -> String {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                let _ = client.read(&mut [0; 4096]);
                let status =
                    serde_json::json!({"kind": "Status", "reason": "Unauthorized"}).to_string();
                let _ = write!(
                    client,
                    "HTTP/1.1 401 Unauthorized\r\nDate: {day} 00:00:00 GMT\r\nConnection: close\r\n\
                     Content-Length: {}\r\n\r\n{status}",
                    status.len()
                );
            }
        });
        format!("http://{address}")
    }

    fn kubeconfig(server: &str, user: &str) -> String {
        format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             clusters: [{{name: a, cluster: {{server: '{server}'}}}}], \
             users: [{{name: a, user: {{{user}}}}}]}}"
        )
    }

    /// The user of a kubeconfig with a certificate that ends with this year.
    fn pair(year: i32) -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(year + 1, 1, 1);
        let chain = params.self_signed(&key).unwrap().pem();
        let [chain, key] = [chain, key.serialize_pem()].map(|pem| STANDARD.encode(pem));
        format!("client-certificate-data: {chain}, client-key-data: {key}")
    }

    /// The lines of these checks.
    fn lines(flags: &[&str], checks: &[&str]) -> Vec<String> {
        let given = ["--hostname-override=pi", "--cert-dir=/dev/null/x"];
        let mut setup = Setup::new(Flags::of(&[&given, flags].concat()), true).unwrap();
        let report = report(&mut setup, None, &Clock::start());
        let found = report.findings.iter().filter(|finding| checks.contains(&finding.check));
        found.map(Finding::line).collect()
    }

    /// An unencrypted file is missing, as it should be.
    #[test]
    fn a_kubeconfig_that_only_the_unit_can_read_fails_an_enabled_unit() {
        let tree = Tree::empty("check-elsewhere");
        let root = format!("--host-root={}", tree.path().display());
        let flags = ["--hostname-override=pi", "--kubeconfig=/missing", &root];
        for mark in ['–', '✗'] {
            let mut setup = Setup::new(Flags::of(&flags), true).unwrap();
            let elsewhere = Some("/etc/credstore.encrypted/nodelet.kubeconfig".into());
            let finding = Finding::note("unit", "nodelet.service does not run", "start it");
            let unit = UnitAgent { flags: Vec::new(), finding, runs: false, elsewhere };
            let text = report(&mut setup, Some(unit), &Clock::start()).text();
            let lines = format!(
                "– unit: nodelet.service does not run; start it\n{mark} kubeconfig: only a start \
                 of the unit reads /etc/credstore.encrypted/nodelet.kubeconfig; systemctl status"
            );
            let is_skipped = text.contains("skipped because of kubeconfig");
            assert!(text.contains(&lines) && is_skipped, "{text}");
            // The next boot starts it.
            tree.write("etc/systemd/system/multi-user.target.wants/nodelet.service", b"");
        }
    }

    /// `ProtectSystem=strict`: this process can write it.
    #[test]
    fn a_cert_dir_that_the_sandbox_makes_read_only_fails() {
        let tree = Tree::empty("check-sandbox");
        tree.write("kubeconfig", kubeconfig("http://127.0.0.1:1", &pair(2049)).as_bytes());
        tree.write("sys/fs/cgroup/nodelet.service/cgroup.procs", b"7\n");
        tree.write("proc/7/cmdline", b"/usr/bin/nodelet\0");
        tree.write("proc/7/mountinfo", b"1 0 8:1 / / ro,relatime - ext4 a rw\n");
        let path = |name: &str| tree.join(name).display().to_string();
        let flags = [
            "--hostname-override=pi".to_owned(),
            "--rotate-certificates".to_owned(),
            format!("--host-root={}", path("")),
            format!("--kubeconfig={}", path("kubeconfig")),
            format!("--cert-dir={}", path("pki")),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        for (runs, mark) in [(false, Mark::Ok), (true, Mark::Failed)] {
            let mut setup = Setup::new(Flags::of(&flags), true).unwrap();
            let finding = Finding::ok("unit", "");
            let unit = UnitAgent { flags: Vec::new(), finding, runs, elsewhere: None };
            let report = report(&mut setup, Some(unit), &Clock::start());
            let finding = report.findings.iter().find(|finding| finding.check == "cert-dir");
            assert_eq!(finding.unwrap().mark, mark, "{}", finding.unwrap().line());
        }
    }

    /// The agent has renewed it, and the card was full.
    #[test]
    fn a_certificate_of_the_files_may_be_older_than_that_of_the_process() {
        let (tree, server) = (Tree::empty("check-unstored"), server_on("Thu, 01 Jan 2060"));
        tree.write("kubeconfig", kubeconfig(&server, &pair(2049)).as_bytes());
        let kubeconfig = format!("--kubeconfig={}", tree.join("kubeconfig").display());
        let cert_dir = format!("--cert-dir={}", tree.join("pki").display());
        let flags = ["--hostname-override=pi", "--rotate-certificates", &kubeconfig, &cert_dir];
        let at_supervisor = "--k3s-supervisor=https://127.0.0.1:1";
        for (more, runs) in [(None, false), (None, true), (Some(at_supervisor), true)] {
            let flags = [&flags[..], more.as_slice()].concat();
            let finding = Finding::ok("unit", "nodelet.service runs");
            let unit = UnitAgent { flags: Vec::new(), finding, runs, elsewhere: None };
            let mut setup = Setup::new(Flags::of(&flags), true).unwrap();
            let report = report(&mut setup, Some(unit), &Clock::start());
            for check in UNSTORED {
                let finding = report.findings.iter().find(|finding| finding.check == check);
                let line = finding.unwrap().line();
                let is_warned = line.contains("; no restart before this line is ✓, ");
                assert_eq!(is_warned, runs, "{line}");
                assert!(line.starts_with('✗') || more.is_some(), "{line}");
            }
        }
    }

    /// The board's clock says that the certificate is good; the server answers 401.
    #[test]
    fn a_certificate_that_has_expired_by_the_servers_clock_is_named() {
        let (tree, server) = (Tree::empty("check-expiry"), server_on("Thu, 01 Jan 2060"));
        tree.write("kubeconfig", kubeconfig(&server, &pair(2049)).as_bytes());
        let flag = format!("--kubeconfig={}", tree.join("kubeconfig").display());
        let lines = lines(&[&flag], &CERTIFICATE[1..2]);
        let line = "✗ certificate-expiry: expired at 2050-01-01T00:00:00Z, the server says 2060-01-01T00:00:00Z";
        assert!(lines.len() == 1 && lines[0].contains(line), "{lines:?}");
    }

    /// By the board's clock the certificate has expired, or has not, and by the server's it is the
    /// other way round: the agent takes the other credentials, too.
    #[test]
    fn the_servers_clock_says_which_credentials_are_checked() {
        for (until, day, is_bootstrap) in
            [(2020, "Wed, 01 Jan 2020", false), (2049, "Thu, 01 Jan 2060", true)]
        {
            let (tree, server) = (Tree::empty("check-clock"), server_on(day));
            tree.write("kubeconfig", kubeconfig(&server, &pair(until)).as_bytes());
            tree.write("bootstrap", kubeconfig(&server, "token: x").as_bytes());
            let flags = ["kubeconfig", "bootstrap-kubeconfig"];
            let paths = ["kubeconfig", "bootstrap"].map(|name| tree.join(name));
            let flags = [0, 1].map(|i| format!("--{}={}", flags[i], paths[i].display()));
            let lines = lines(&[&flags[0], &flags[1]], &["kubeconfig", CERTIFICATE[1]]);
            let has_bootstrap = lines[0].contains("with the bootstrap kubeconfig");
            assert_eq!(has_bootstrap, is_bootstrap, "{lines:?}");
            assert_eq!(lines[1].contains("not issued yet"), is_bootstrap, "{lines:?}");
            assert!(lines.len() == 2 && lines[0].starts_with('✓'), "{lines:?}");
        }
    }
}
