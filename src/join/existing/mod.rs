//! The identity that the machine has already, so that `nodelet join` replaces none by mistake.
//!
//! It stays if it is complete, for this cluster and this node's name. Flags and CAs that it lacks
//! are added. If it is incomplete or ends soon, a new certificate is requested. An identity of
//! another cluster, name or endpoint is replaced only with `--force`.

use std::io::{self, ErrorKind::NotFound};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::command::JoinSettings;
use super::files::{JoinPaths, StoredFlags};
use super::proof;
use super::run::{NOT_PEM, SUDO, authority, failed};
use super::token::Token;
use crate::client::api_config::{ApiConfig, Endpoint};
use crate::client::tls::{certificates, name_and_key};
use crate::credentials::pki::is_of_cluster;
use crate::kube::finding::Finding;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::os::guard;
use crate::os::read::cause;

pub(super) const JOINED: &str = "joined";
/// A new certificate is requested if the stored one ends within this time, or within a tenth of its
/// life if that is shorter: 24 hours for a life of a year, 2.4 hours for a life of a day.
const ENOUGH: Duration = Duration::from_secs(24 * 3600);
/// The same time for a certificate of k3s. A tenth of its life is no measure, because the
/// certificate may begin when its CA was made. The agent renews it in any case.
const ENOUGH_AT_SUPERVISOR: Duration = Duration::from_secs(3600);

/// An identity that stays.
#[derive(Debug)]
pub(super) struct CompleteIdentity {
    /// The server, with the certificate that the agent uses.
    pub(super) config: ApiConfig,
    /// What the last join stored.
    pub(super) flags: StoredFlags,
    /// The command line trusts a CA that the stored kubeconfig lacks.
    pub(super) lacks_ca: bool,
}

/// Returns the identity that stays, with the finding of the check `joined`. `None`: a new identity
/// is needed. `Err`: the finding of the obstacle, such as a kubelet.
pub(super) fn existing(
    paths: &JoinPaths,
    settings: &JoinSettings,
    token: &Token,
    name: &str,
    now: Wall,
) -> Result<(Finding, Option<CompleteIdentity>), Finding> {
    if let Some(kubelet) = paths.kubelet() {
        let line = format!("{kubelet}: a kubelet is on this machine");
        if settings.force {
            log::warn!("{line}; stop it, or the two write one Node")
        } else {
            return Err(Finding::failed(JOINED, line, "stop and remove it; --force goes on"));
        }
    }
    let of_bootstrap = settings.bootstrap_only.then_some("bootstrap-kubeconfig");
    let mut names = ["kubeconfig"].into_iter().chain(of_bootstrap);
    if let Some(path) = names.find_map(|name| paths.received_credential(name)) {
        let line = format!(
            "{}: a boot loader or hypervisor gives this credential, and the unit prefers it to \
             that of a join",
            path.display()
        );
        return Err(Finding::failed(JOINED, line, "change it where it comes from"));
    }
    let written = of_bootstrap.unwrap_or("kubeconfig");
    if let Some(path) = paths.drop_in(written).filter(|_| !settings.force) {
        let line = format!("{}: the unit loads another {written}", path.display());
        return Err(Finding::failed(JOINED, line, "change it where it comes from"));
    }
    let candidates = [paths.kubeconfig(), paths.issued_kubeconfig(), paths.bootstrap()];
    let mut resolved = candidates.iter().map(|path| (path, guard::found(path)));
    let is_missing = |path: &io::Result<_>| path.as_ref().is_err_and(|e| e.kind() == NotFound);
    let path = match resolved.find(|(_, path)| !is_missing(path)) {
        Some((path, Ok(_))) => path,
        Some((path, Err(error))) => {
            let why = cause(&error).at(path.display());
            return if settings.dry_run {
                Ok((Finding::note(JOINED, why.at("unknown"), SUDO), None))
            } else {
                Err(Finding::failed(JOINED, why, SUDO))
            };
        }
        None => {
            // A kubeconfig that join does not write is in the way: if a drop-in of the unit names
            // it, the unit does not use the kubeconfig of join in /etc/credstore.
            return match paths.foreign_credential().filter(|_| !settings.force) {
                Some(path) => {
                    let line = format!("{}: not a credential of /etc/credstore", path.display());
                    Err(Finding::failed(JOINED, line, "change it where it comes from"))
                }
                None => Ok((Finding::ok(JOINED, "no identity yet"), None)),
            };
        }
    };
    let mut config = match paths.load(path) {
        Ok(config) => config,
        Err(why) => return replaced(settings, why),
    };
    let flags = match paths.stored_flags() {
        Err(why) if !settings.force => return Err(Finding::failed(JOINED, why, SUDO)),
        flags => flags.ok().flatten(),
    };
    let server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    let given = config.certificate.take();
    let given = given.and_then(|given| Leaf::of_pem(&given.chain.bytes).map(|leaf| (given, leaf)));
    // A certificate for another node's name counts only if there is none for this node's name. The
    // agent chooses in the same way.
    let worth = |(_, leaf): &(_, Leaf)| (leaf.subject.node_name() == Some(name), leaf.not_after);
    let pairs = [paths.stored_certificate(), given];
    let newest = pairs.into_iter().flatten().max_by_key(worth);
    // If the power failed before the agent wrote the kubeconfig, its next start does so, and uses
    // the certificate that it has stored.
    let is_alone = *path == paths.bootstrap();
    let is_used = |(stored, leaf): &(_, Leaf)| {
        config.authorization.is_none()
            || is_alone
                && settings.bootstrap_only
                && leaf.subject.node_name() == Some(name)
                && is_of_cluster(stored, &config)
    };
    let Some((identity, leaf)) = newest.filter(is_used) else {
        let line = format!("this board has a token of {server}");
        // A bootstrap token of this cluster is no identity: it is replaced without --force.
        if is_alone
            && ca_match(settings, token, &config)? != CaMatch::None
            && is_same_server(settings, token, &config, flags.as_ref())
        {
            let line = format!("{line}, which this join replaces");
            return Ok((Finding::note(JOINED, line, ""), None));
        }
        return replaced(settings, line);
    };
    (config.certificate, config.authorization) = (Some(identity), None);
    let (user, until) = (&leaf.subject.common_name, leaf.not_after.time());
    let detail = format!("an identity of {server} as {user} until {until}");
    let cas = ca_match(settings, token, &config)?;
    let differs = if leaf.subject.node_name() != Some(name) {
        Some("another name")
    } else if cas == CaMatch::None {
        Some("another cluster")
    } else if !is_same_server(settings, token, &config, flags.as_ref()) {
        Some("another endpoint")
    } else {
        None
    };
    if let Some(differs) = differs {
        return replaced(settings, format!("this board has {detail}: {differs}"));
    }
    if settings.force {
        return replaced(settings, format!("this board has {detail}"));
    }
    let again = |why| {
        let line = format!("{detail}: {why}, so a new one is requested");
        Ok((Finding::note(JOINED, line, ""), None))
    };
    let enough = match &flags {
        Some(flags) if flags.supervisors().next().is_some() => ENOUGH_AT_SUPERVISOR,
        _ => ENOUGH.min(leaf.not_after.since(leaf.not_before) / 10),
    };
    if now.after(enough) >= leaf.not_after {
        return again("it ends too soon");
    }
    let Some(flags) = flags else {
        return again("its flags are missing");
    };
    // If a join was cut off, its flags may lie beside the former kubeconfig. So the flags must be
    // for the server of this kubeconfig, and for the same choice of --bootstrap-only.
    let has_token = *path != paths.kubeconfig();
    if has_token != settings.bootstrap_only {
        return again("the line has the other choice of --bootstrap-only");
    }
    if !flags.are_of(&config.endpoint, has_token) {
        return again("its flags are those of another join");
    }
    let lacks_ca = cas == CaMatch::Part;
    // A CA is added only to the kubeconfig that join writes, and only with a token of kubeadm, by
    // which the CA is found again.
    if lacks_ca && !(*path == paths.kubeconfig() && matches!(token, Token::Bootstrap(_))) {
        return again("it lacks a CA");
    }
    let identity = CompleteIdentity { config, flags, lacks_ca };
    Ok((Finding::ok(JOINED, format!("already: {detail}")), Some(identity)))
}

fn replaced(
    settings: &JoinSettings,
    fault: impl Into<Fault>,
) -> Result<(Finding, Option<CompleteIdentity>), Finding> {
    let fault = fault.into();
    if settings.force {
        let line = format!("{}: replaced", fault.what);
        Ok((Finding::note(JOINED, line, ""), None))
    } else {
        Err(Finding::failed(JOINED, fault, "nodelet join --force replaces it"))
    }
}

/// Which CAs of the command line a stored kubeconfig has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CaMatch {
    All,
    Part,
    None,
}

fn ca_match(
    settings: &JoinSettings,
    token: &Token,
    config: &ApiConfig,
) -> Result<CaMatch, Finding> {
    if config.insecure {
        return Ok(CaMatch::None);
    }
    let Some(ca) = &config.ca else {
        // A kubeconfig without a CA is of this cluster only if it is for a supervisor that was
        // verified with the system's roots.
        let is_supervisor = matches!(token, Token::Supervisor { .. });
        let has_it = is_supervisor && settings.authority.is_none();
        return Ok(if has_it { CaMatch::All } else { CaMatch::None });
    };
    let has: Vec<bool> = match (&settings.authority, token) {
        (Some(path), _) => {
            let wanted = certificates(&authority(path)?);
            let wanted = wanted.map_err(|why| failed("ca", why, NOT_PEM))?;
            let stored = CertificateDer::pem_slice_iter(&ca.bytes).flatten();
            let stored: Vec<_> = stored.map(|der| name_and_key(&der)).collect();
            wanted.iter().map(|wanted| stored.contains(&name_and_key(wanted))).collect()
        }
        (None, Token::Bootstrap(_)) if !settings.pins.is_empty() => {
            // At this time no CA has expired: a stored CA matches also after its end.
            let any_time = Wall::default();
            let is_stored = |pin| proof::pinned(&ca.bytes, &[pin], any_time).is_ok();
            settings.pins.iter().copied().map(is_stored).collect()
        }
        (None, Token::Supervisor { hash: Some(hash), .. }) => {
            vec![proof::has_digest(&ca.bytes, hash)]
        }
        // The command line says nothing about the CA: only the endpoint tells clusters apart.
        _ => vec![true],
    };
    Ok(match (has.contains(&true), has.contains(&false)) {
        (true, false) => CaMatch::All,
        (true, true) => CaMatch::Part,
        (false, _) => CaMatch::None,
    })
}

/// Whether the typed address is in the stored kubeconfig, or was typed at the last join. These
/// differ if kubeadm's cluster-info names another server. For a supervisor the typed host must be
/// the kubeconfig's, and each stored supervisor must be the typed one.
fn is_same_server(
    settings: &JoinSettings,
    token: &Token,
    config: &ApiConfig,
    flags: Option<&StoredFlags>,
) -> bool {
    let Ok(typed) = Endpoint::parse(&settings.server) else {
        return false;
    };
    let is_typed = |server: &str| Endpoint::parse(server).is_ok_and(|server| server == typed);
    match token {
        Token::Bootstrap(_) => {
            typed == config.endpoint || flags.is_some_and(|flags| is_typed(&flags.server))
        }
        // The stored port is the API server's, the typed one the supervisor's: hosts are compared.
        Token::Supervisor { .. } => {
            let mut supervisors = flags.iter().flat_map(|flags| flags.supervisors());
            typed.host == config.endpoint.host && supervisors.all(is_typed)
        }
    }
}

#[cfg(test)]
mod tests;
