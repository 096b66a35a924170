//! Finds a cluster that kubeadm made, and proves its server, as `kubeadm join` does and more
//! strictly: only pinned CAs are trusted, and the second look is always taken.
//!
//! Every request here is anonymous. Upstream: `cmd/kubeadm/app/discovery/token/token.go`.

use std::time::Duration;

use super::proof;
use super::server::{self, RETRY, pem};
use super::walk::{Failed, Walk, failed, is_transient, notes};
use crate::check::Finding;
use crate::core::join::discovery::{self, Cluster, ClusterInfo, cluster};
use crate::core::join::token::Bootstrap;
use crate::core::server_version;
use crate::files::yaml;
use crate::kube::json;
use crate::kube::message::{Accept, Outcome, Request, Response};
use crate::kube::text::without_remedy;
use crate::wire::api::Api;
use crate::wire::api_config::ApiConfig;
use crate::wire::endpoint::Endpoint;

/// The signer writes the signature of a new token within a second.
const SIGNER: Duration = Duration::from_secs(10);
/// The server in cluster-info must open TLS within this time, if there is another one to try.
const OTHER_SERVER: Duration = Duration::from_secs(5);

// Remedies that several steps share.
const NEW_LINE: &str = "on the control plane: kubeadm token create --print-join-command";
const NOT_KUBEADM: &str = "if kubeadm did not make this cluster: --certificate-authority FILE and \
     three commands, see README.md";
const SOMEBODY: &str = "somebody may be between this board and the server";

/// The server, proved, without credentials.
pub(super) fn find(walk: &mut Walk<'_>, token: &Bootstrap) -> Result<ApiConfig, Failed> {
    let (config, api) = server::reach(walk)?;
    match config.insecure {
        true => discover(walk, token, &config.endpoint, api),
        false => known(walk, config, api),
    }
}

/// With `--certificate-authority` there is nothing to discover.
fn known(walk: &mut Walk<'_>, config: ApiConfig, mut api: Api) -> Result<ApiConfig, Failed> {
    let why = "not needed with --certificate-authority";
    notes(walk, &["cluster-info", "signature"], why);
    walk.add(Finding::ok("ca", "from --certificate-authority"));
    // Any answer proves the server.
    let request = Request::get(server_version::PATH.to_owned(), Accept::Object);
    walk.answer(&mut api, &request, "tls", "is it the CA of this server?")?;
    walk.add(Finding::ok("tls", "the server was verified"));
    Ok(config)
}

fn discover(
    walk: &mut Walk<'_>,
    token: &Bootstrap,
    from: &Endpoint,
    insecure: Api,
) -> Result<ApiConfig, Failed> {
    let first = first_look(walk, token, insecure)?;
    walk.add(Finding::ok(
        "cluster-info",
        format!("from {from}{}", from.prefix),
    ));
    let expected = proof::signature(&first.kubeconfig, token);
    if first.signature(&token.id) != Some(&expected) {
        let line = "the signature does not fit the token";
        let remedy = "the secret is wrong, or this is another server: copy the line again";
        return Err(failed("signature", line, remedy));
    }
    walk.add(Finding::ok(
        "signature",
        format!("made with the token {}", token.id),
    ));
    let unusable = |line: String| {
        failed(
            "ca",
            &format!("cluster-info is not usable: {line}"),
            NEW_LINE,
        )
    };
    let document = yaml::parse(&first.kubeconfig).map_err(unusable)?;
    let cluster = cluster(&document).map_err(unusable)?;
    let endpoint = Endpoint::parse(&cluster.server).map_err(unusable)?;
    if !endpoint.tls {
        return Err(unusable("its server is not https".into()));
    }
    let ca = trusted(walk, &cluster)?;
    let mut config = ApiConfig::at(endpoint);
    config.ca = Some(pem("cluster-info", ca.into_bytes()));
    second_look(walk, &first, config, from)
}

/// The certificates that become roots.
fn trusted(walk: &mut Walk<'_>, cluster: &Cluster) -> Result<String, Failed> {
    let pins = &walk.settings.pins;
    let (ca, finding) = match pins.is_empty() {
        false => {
            let ca = proof::pinned(&cluster.ca, pins, walk.now().wall);
            (ca, Finding::ok("ca", "pinned"))
        }
        true => {
            let line = "not pinned: whoever knows the token can be this server";
            let finding = Finding::note("ca", line, "use --discovery-token-ca-cert-hash");
            (proof::unpinned(&cluster.ca), finding)
        }
    };
    let remedy = "another cluster, or somebody is in between: copy the line again";
    let ca = ca.map_err(|why| failed("ca", &why, remedy))?;
    walk.add(finding);
    Ok(ca)
}

/// The ConfigMap from a server that is not verified.
fn first_look(walk: &Walk<'_>, token: &Bootstrap, mut api: Api) -> Result<ClusterInfo, Failed> {
    let check = "cluster-info";
    let mut unsigned_since = None;
    let mut was_told = false;
    loop {
        let (check, line, remedy, pause) = match look(walk, &mut api)? {
            Ok(info) if info.signature(&token.id).is_some() => return Ok(info),
            Ok(_) => {
                let now = walk.now().mono;
                let line = format!("cluster-info has no signature for the token {}", token.id);
                let remedy = format!("the token expired or was deleted; {NEW_LINE}");
                let since = *unsigned_since.get_or_insert(now);
                if now.since(since) >= SIGNER {
                    return Err(Finding::failed("signature", &line, &remedy).into());
                }
                ("signature", line, remedy, Duration::from_secs(1))
            }
            Err((line, remedy)) => (check, line, remedy.to_owned(), RETRY),
        };
        if !std::mem::replace(&mut was_told, true) {
            let cause = without_remedy(&line);
            log::info!("{check}: {cause}; trying again until --timeout");
        }
        if !walk.pause(pause) {
            return Err(failed(check, &line, &remedy));
        }
    }
}

/// One GET of the ConfigMap. The inner error is one that may pass, with its remedy.
fn look(
    walk: &Walk<'_>,
    api: &mut Api,
) -> Result<Result<ClusterInfo, (String, &'static str)>, Failed> {
    let check = "cluster-info";
    let outcome = walk.send(api, &discovery::request());
    let is_transient = is_transient(&outcome);
    let response = match outcome {
        Outcome::Silent(line) => return Ok(Err((line, "is this the address of an API server?"))),
        Outcome::Answered(response) => response,
    };
    if let Some(info) = of(&response) {
        return Ok(Ok(info));
    }
    let line = match response.accepted() {
        Err(refused) => refused.to_string(),
        Ok(()) => "the ConfigMap has no kubeconfig".to_owned(),
    };
    match response.code {
        404 => Ok(Err((line, NOT_KUBEADM))),
        _ if is_transient => Ok(Err((line, "is the control plane up?"))),
        200 if json::parse(&response.body).is_some() => Ok(Err((line, NOT_KUBEADM))),
        401 | 403 => Err(failed(check, &line, NOT_KUBEADM)),
        _ => {
            let line = format!("not the answer of an API server: {}", response.code);
            Err(failed(check, &line, "is the port right?"))
        }
    }
}

fn of(response: &Response) -> Option<ClusterInfo> {
    let info = ClusterInfo::parse(&response.body);
    info.filter(|_| response.accepted().is_ok())
}

/// The same ConfigMap from the verified server. The server of cluster-info may be reachable from
/// the control plane alone (kind, NAT): then the endpoint of the command line is used.
fn second_look(
    walk: &mut Walk<'_>,
    first: &ClusterInfo,
    mut config: ApiConfig,
    typed: &Endpoint,
) -> Result<ApiConfig, Failed> {
    let is_typed = config.endpoint == *typed;
    let limit = if is_typed { RETRY * 2 } else { OTHER_SERVER };
    let why = match verified(walk, &config, limit)? {
        Ok(info) => return second_finding(walk, first, &info, config),
        Err(why) => why,
    };
    if is_typed {
        return Err(failed("tls", &why, SOMEBODY));
    }
    log::info!("cluster-info: its server does not answer: {why}; using {typed}");
    config.endpoint = typed.clone();
    match verified(walk, &config, RETRY * 2)? {
        Ok(info) => second_finding(walk, first, &info, config),
        Err(why) => Err(failed("tls", &why, SOMEBODY)),
    }
}

fn second_finding(
    walk: &mut Walk<'_>,
    first: &ClusterInfo,
    second: &ClusterInfo,
    config: ApiConfig,
) -> Result<ApiConfig, Failed> {
    if first.kubeconfig != second.kubeconfig {
        let line = "the verified server has another cluster-info";
        return Err(failed("tls", line, SOMEBODY));
    }
    walk.server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    walk.add(Finding::ok("tls", format!("{} was verified", walk.server)));
    Ok(config)
}

/// The ConfigMap over verified TLS. The inner error is that of a connection.
fn verified(
    walk: &Walk<'_>,
    config: &ApiConfig,
    limit: Duration,
) -> Result<Result<ClusterInfo, String>, Failed> {
    let mut api = walk.api(config, "tls", SOMEBODY)?;
    loop {
        let outcome = walk.send_within(&mut api, &discovery::request(), limit);
        let is_transient = is_transient(&outcome);
        let response = match outcome {
            Outcome::Silent(why) => return Ok(Err(why)),
            Outcome::Answered(response) => response,
        };
        if let Some(info) = of(&response) {
            return Ok(Ok(info));
        }
        if !is_transient || !walk.pause(RETRY) {
            let line = format!("the verified server has no cluster-info: {}", response.code);
            return Err(failed("tls", &line, SOMEBODY));
        }
    }
}
