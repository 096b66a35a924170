//! Runs the checks in the order in which a run needs the things, and skips those whose prerequisite
//! failed. Reads files, sends GET and SelfSubjectAccessReview requests, and changes nothing.

pub(crate) mod access;
mod guest;

use std::path::Path;
use std::time::Duration;

use nix::unistd::{self, AccessFlags};

use self::access::Access;
use super::runtime::runtime as judge_runtime;
use super::server::{ALWAYS, CERTIFICATES, CREATE_NODE, PODS, Permission};
use super::{Finding, Mark, Report, board, problems, server};
use crate::check;
use crate::config::Config;
use crate::config::problems::{Kind, Listing, Problems};
use crate::core::facts::Facts;
use crate::core::runtime::Found;
use crate::core::wall_clock::WallClock;
use crate::files::guard;
use crate::files::read::cause;
use crate::files::resolve_path::Resolved;
use crate::host::cgroup::Mode;
use crate::host::problems::Watch;
use crate::host::{Host, cgroup, mounts, pressure};
use crate::identity::ApiAccess;
use crate::process::clock::Clock;

/// Time limits of one name lookup, of all connection attempts, of one request.
const LOOKUP: Duration = Duration::from_secs(5);
const CONNECT: Duration = Duration::from_secs(5);
const CALL: Duration = Duration::from_secs(10);

/// Remedy for a server that does not respond.
const NO_RESPONSE: &str = "is server the URL of an API server?";

/// Runs all checks. `missing` has one line for each fact that the Node would lack; `found` is the
/// look at the container runtime, if there is one; `open` reads the kubeconfig.
pub(crate) fn report(
    config: &Config,
    host: &Host,
    facts: &Facts,
    missing: &[String],
    found: Option<&Found>,
    clock: &Clock,
    open: impl FnOnce() -> Result<ApiAccess, String>,
) -> Report {
    let mut findings = board(host, facts, missing, clock);
    findings.extend(health(host, &config.problems, clock));
    let writable = requests_certificates(config).then(|| writable(&config.cert_dir));
    let cert_dir = config.cert_dir.display().to_string();
    findings.push(board::cert_dir(&cert_dir, writable));
    findings.push(check::guest::guest(&config.node));
    findings.extend(
        config
            .runtime
            .iter()
            .zip(found)
            .flat_map(|(runtime, found)| judge_runtime(runtime, found, !config.node.is_guest())),
    );
    let is_here = host.root.is_real();
    let _ = server(&mut findings, config, facts, clock, is_here, open);
    // An early end of `server` leaves the failed check as the last finding.
    let cause = findings.last().map_or("", |finding| finding.check);
    let mut skipped = server_checks();
    skipped.retain(|name| !findings.iter().any(|f| f.check == *name));
    let skipped: Vec<Finding> = skipped
        .iter()
        .map(|name| Finding::skipped(name, cause))
        .collect();
    findings.extend(skipped);
    Report {
        node_name: config.node.name.clone(),
        findings,
    }
}

/// The names of the checks of [`server()`] after `kubeconfig`, in order.
fn server_checks() -> Vec<&'static str> {
    let mut names = vec![
        "certificate",
        "certificate-expiry",
        "certificate-renewal",
        "name-resolution",
        "tcp",
        "tls",
        "authentication",
    ];
    names.extend(permissions().iter().map(|permission| permission.check));
    names.push("namesake");
    names.extend(guest::CHECKS);
    names
}

fn permissions() -> Vec<Permission> {
    [&[CREATE_NODE], &ALWAYS[..], &PODS, &CERTIFICATES].concat()
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
            // Not asked below another root, nor on a file system that may block.
            match root.is_real() && !facts.storage().is_some_and(Result::is_err) {
                true => writable(folder),
                false => Ok(()),
            },
        ),
    ]
}

/// One finding for each condition about the board's health.
fn health(host: &Host, config: &Problems, clock: &Clock) -> impl Iterator<Item = Finding> {
    let every = Problems {
        listing: Listing::All,
        ..config.clone()
    };
    let mut watch = Watch::new(host, &every);
    let listed = watch.listed(&every, &|| clock.now());
    Kind::ALL
        .into_iter()
        .map(move |kind| problems::problem(kind, &every, &listed, &watch.sources(kind)))
}

/// Whether this process may create a file in `folder`, by access(2). For a missing folder, whether
/// it may create the folder.
pub(crate) fn writable(folder: &Path) -> Result<(), String> {
    let existing = match guard::resolve(folder).map_err(|e| cause(&e))? {
        Resolved::Found(path) | Resolved::MissingBelow(path) => path,
    };
    match existing.is_dir() {
        true => unistd::access(&existing, AccessFlags::W_OK).map_err(|errno| cause(&errno.into())),
        false => Err(format!("{} is not a folder", existing.display())),
    }
}

fn requests_certificates(config: &Config) -> bool {
    config.rotate_certificates || config.bootstrap_kubeconfig.is_some()
}

/// Why a run does not need `permission`; `None` if it does.
fn not_needed(permission: &Permission, config: &Config, access: &Access) -> Option<&'static str> {
    let is_for_certificates = CERTIFICATES.contains(permission);
    if is_for_certificates && !requests_certificates(config) {
        return Some("certificates are not requested here");
    }
    if is_for_certificates && config.k3s_supervisor.is_some() {
        return Some("the supervisor signs");
    }
    if access.is_bootstrap() && !is_for_certificates {
        return Some("needed by the requested certificate, not by the bootstrap kubeconfig");
    }
    if PODS.contains(permission) && !(config.node.is_guest() && config.node.reject_pods) {
        return Some("no pods are ended here");
    }
    (*permission == CREATE_NODE && !config.node.register).then_some("--register-node is off")
}

/// The checks of the kubeconfig, the network and the server. Returns `None` after a failed check
/// that every later check needs.
fn server(
    findings: &mut Vec<Finding>,
    config: &Config,
    facts: &Facts,
    clock: &Clock,
    is_here: bool,
    open: impl FnOnce() -> Result<ApiAccess, String>,
) -> Option<()> {
    let mut add = |finding: Finding| {
        let is_ok = finding.mark != Mark::Failed;
        findings.push(finding);
        is_ok.then_some(())
    };
    let mut access = match open() {
        Ok(access) => Access::new(access),
        Err(line) => {
            let remedy = "write one, as systemd/README.md says under The kubeconfig";
            return add(Finding::failed("kubeconfig", &line, remedy));
        }
    };
    add(access.kubeconfig());
    for finding in access.certificate(config, clock) {
        add(finding);
    }
    let addresses = match access::resolve(access.peer(), clock) {
        Ok((finding, addresses)) => {
            add(finding);
            addresses
        }
        Err(finding) => return add(finding),
    };
    add(access::dial(&addresses))?;

    let name = &config.node.name;
    let permissions = permissions();
    let mut needed = permissions
        .iter()
        .filter(|p| not_needed(p, config, &access).is_none());
    let first = needed.next()?;
    let response = access.call(first.review(name));
    add(access.tls(&response))?;
    let response = match response {
        Ok(response) => response,
        Err(line) => return add(Finding::failed("authentication", &line, NO_RESPONSE)),
    };
    let credential = access.credential();
    add(server::authentication(&response, credential.as_deref()))?;

    for permission in &permissions {
        let finding = match not_needed(permission, config, &access) {
            Some(why) => Finding::note(permission.check, why, ""),
            None if permission == first => permission.judge(&response),
            None => match access.call(permission.review(name)) {
                Ok(response) if PODS.contains(permission) => {
                    check::guest::optional(permission.judge(&response))
                }
                Ok(response) => permission.judge(&response),
                Err(line) => return add(Finding::failed(permission.check, &line, "check again")),
            },
        };
        add(finding);
    }
    let node = access.node(config);
    add(access.namesake(config, &node, facts, clock))?;
    for finding in guest::findings(&mut access, config, &node, clock, is_here) {
        add(finding);
    }
    Some(())
}
