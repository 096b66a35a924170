//! Finds a cluster that kubeadm made, and proves its server, as `kubeadm join` does and more
//! strictly: only pinned CAs are trusted, and the second request is always sent.
//!
//! Every request here is anonymous. Upstream: `cmd/kubeadm/app/discovery/token/token.go`.

use std::time::Duration;

use super::proof::{self, OTHER_CA};
use super::run::{Failed, JoinRun, RETRY, Stop, failed, pem, settled};
use super::supervisor::cacerts;
use super::token::Bootstrap;
use crate::check::Finding;
use crate::client::api::Api;
use crate::client::api_config::ApiConfig;
use crate::client::endpoint::Endpoint;
use crate::kube::cluster_info::{Cluster, ClusterInfo, cluster, cluster_info};
use crate::kube::json;
use crate::kube::message::Response;
use crate::kube::text::Fault;
use crate::kube::yaml;

/// The signer writes the signature of a new token within a second.
const SIGNER: Duration = Duration::from_secs(10);
/// The server in cluster-info must open TLS within this time, if there is another one to try.
const OTHER_SERVER: Duration = Duration::from_secs(5);

// Remedies that several steps share.
const NEW_LINE: &str = "on the control plane: kubeadm token create --print-join-command";
const NOT_KUBEADM: &str = "if kubeadm did not make this cluster: --certificate-authority FILE and \
     the commands of systemd/join.md; k3s: the whole token, K10…::id.secret";
const SOMEBODY: &str = "copy the line again: the CA may be new; or somebody may be between this \
     board and the server";

/// The server, proved, without credentials.
pub(super) struct ProvedServer {
    pub(super) config: ApiConfig,
    /// It is the supervisor of k3s or rke2, whose `k3s token create` makes tokens of this form,
    /// too.
    pub(super) is_supervisor: bool,
}

/// Finds the server.
pub(super) fn find(run: &mut JoinRun<'_>, token: &Bootstrap) -> Result<ProvedServer, Failed> {
    let (config, api) = run.reach()?;
    if config.insecure {
        let config = discover(run, token, &config.endpoint, api)?;
        Ok(ProvedServer { config, is_supervisor: false })
    } else {
        given(run, config, api)
    }
}

/// With `--certificate-authority` there is nothing to discover.
fn given(run: &mut JoinRun<'_>, config: ApiConfig, mut api: Api) -> Result<ProvedServer, Failed> {
    let why = "not needed with --certificate-authority";
    run.notes(&["cluster-info", "signature"], why);
    if let (Some(ca), pins @ [_, ..]) = (&config.ca, run.settings.pins.as_slice()) {
        let pinned = proof::pinned(&ca.bytes, pins, run.now().wall);
        pinned.map_err(|why| Finding::failed("ca", why.at(&ca.source), OTHER_CA))?;
    }
    run.add(Finding::ok("ca", "from --certificate-authority"));
    // Any answer proves the server. An API server has nothing at this path.
    let response = run.answer(&mut api, &cacerts(), "tls", "is it the CA of this server?")?;
    run.add(Finding::ok("tls", "the server was verified"));
    let is_supervisor = response.accepted().is_ok() && proof::unpinned(&response.body).is_ok();
    Ok(ProvedServer { config, is_supervisor })
}

fn discover(
    run: &mut JoinRun<'_>,
    token: &Bootstrap,
    from: &Endpoint,
    insecure: Api,
) -> Result<ApiConfig, Failed> {
    let first = first_read(run, token, insecure)?;
    run.add(Finding::ok("cluster-info", format!("from {from}{}", from.prefix)));
    let expected = proof::signature(&first.kubeconfig, token);
    if first.signature(&token.id) != Some(&expected) {
        let line = "the signature does not fit the token";
        let remedy = "the secret is wrong, or this is another server: copy the line again";
        return Err(failed("signature", line, remedy));
    }
    run.add(Finding::ok("signature", format!("made with the token {}", token.id)));
    let unusable =
        |why: Fault| Finding::failed("ca", why.at("cluster-info is not usable"), NEW_LINE);
    let document = yaml::parse(&first.kubeconfig).map_err(unusable)?;
    let cluster = cluster(&document).map_err(|why| unusable(why.into()))?;
    let endpoint = Endpoint::parse(&cluster.server).map_err(unusable)?;
    if !endpoint.tls {
        return Err(unusable("its server is not https".into()));
    }
    let ca = trusted(run, &cluster)?;
    let mut config = ApiConfig::at(endpoint);
    config.ca = Some(pem("cluster-info", ca.into_bytes()));
    second_read(run, &first, config, from)
}

/// The certificates that become roots.
fn trusted(run: &mut JoinRun<'_>, cluster: &Cluster) -> Result<String, Failed> {
    let pins = &run.settings.pins;
    let (ca, finding) = if pins.is_empty() {
        let line = "not pinned: whoever knows the token can pose as this server";
        let finding = Finding::note("ca", line, "use --discovery-token-ca-cert-hash");
        (proof::unpinned(&cluster.ca).map_err(Fault::from), finding)
    } else {
        let ca = proof::pinned(&cluster.ca, pins, run.now().wall);
        (ca, Finding::ok("ca", "pinned"))
    };
    let remedy = "another cluster, or somebody is in between: copy the line again";
    let ca = ca.map_err(|why| Finding::failed("ca", why, remedy))?;
    run.add(finding);
    Ok(ca)
}

/// The ConfigMap from a server that is not verified.
fn first_read(run: &JoinRun<'_>, token: &Bootstrap, mut api: Api) -> Result<ClusterInfo, Failed> {
    let mut unsigned_since = None;
    run.until(|| {
        let info = read(run, &mut api)?;
        if info.signature(&token.id).is_some() {
            return Ok(info);
        }
        let line = format!("cluster-info has no signature for the token {}", token.id);
        let remedy = format!("the token expired or was deleted; {NEW_LINE}");
        let unsigned = failed("signature", line, &remedy);
        let now = run.now().mono;
        if now.since(*unsigned_since.get_or_insert(now)) >= SIGNER {
            return Err(Stop::Failed(unsigned));
        }
        Err(Stop::Again(unsigned, Duration::from_secs(1)))
    })
}

/// One GET of the ConfigMap.
fn read(run: &JoinRun<'_>, api: &mut Api) -> Result<ClusterInfo, Stop> {
    let check = "cluster-info";
    let answer = run.send(api, &cluster_info());
    let response = settled(api, answer, check, "")?;
    if let Some(info) = of(&response) {
        return Ok(info);
    }
    let missing = |why: Fault| Err(Stop::Again(failed(check, why, NOT_KUBEADM), RETRY));
    let why = match response.accepted() {
        Err(refused) => refused.into(),
        Ok(()) => "the ConfigMap has no kubeconfig".into(),
    };
    match response.code {
        404 => missing(why),
        200 if json::parse(&response.body).is_some() => missing(why),
        401 | 403 => Err(failed(check, why, NOT_KUBEADM).into()),
        _ if response.exceeds.is_some() => Err(failed(check, why, "is the port right?").into()),
        code => {
            let line = format!("not the answer of an API server: {code}");
            Err(failed(check, line, "is the port right?").into())
        }
    }
}

fn of(response: &Response) -> Option<ClusterInfo> {
    let info = ClusterInfo::parse(&response.body);
    info.filter(|_| response.accepted().is_ok())
}

/// The same ConfigMap from the verified server. The server of cluster-info may be reachable from
/// only the control plane (kind, NAT): then the endpoint of the command line is used.
fn second_read(
    run: &mut JoinRun<'_>,
    first: &ClusterInfo,
    mut config: ApiConfig,
    typed: &Endpoint,
) -> Result<ApiConfig, Failed> {
    let mut api = run.api(&config, "tls", SOMEBODY)?;
    if config.endpoint != *typed
        && let Err(why) = run.send_within(&mut api, &cluster_info(), OTHER_SERVER)
    {
        log::info!("cluster-info: its server does not answer: {why}; using {typed}");
        config.endpoint = typed.clone();
        api = run.api(&config, "tls", SOMEBODY)?;
    }
    let response = run.answer(&mut api, &cluster_info(), "tls", SOMEBODY)?;
    let Some(second) = of(&response) else {
        let line = format!("the verified server has no cluster-info: {}", response.code);
        return Err(failed("tls", line, SOMEBODY));
    };
    if first.kubeconfig != second.kubeconfig {
        let line = "the verified server has another cluster-info";
        return Err(failed("tls", line, SOMEBODY));
    }
    run.server = format!("{}{}", config.endpoint, config.endpoint.prefix);
    run.add(Finding::ok("tls", format!("{} was verified", run.server)));
    Ok(config)
}
