//! Joins a cluster that takes bootstrap tokens, mostly one that kubeadm made: finds and proves its
//! server, and asks it for the certificate of the node.
//!
//! It proves the server as `kubeadm join` does and more strictly: only pinned CAs are trusted, and
//! the second request is always sent. Each request of the discovery is anonymous: only the server
//! that was proved gets the token. Upstream: `cmd/kubeadm/app/discovery/token/token.go`.
//!
//! Join asks beforehand, by an access review, what the controller will do: kube-controller-manager
//! approves a request if its requester may create certificatesigningrequests/nodeclient
//! (`pkg/controller/certificates/approver/sarapprove.go`).

use std::time::Duration;

use super::proof::{self, OTHER_CA};
use super::run::{JoinRun, Joined, RETRY, ROTATE, Stop, failed, is_transient, pem, settled};
use super::token::Bootstrap;
use crate::agent::permissions::{APPROVAL, FIRST_REQUEST, RENEW, RENEWAL};
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, ClientCertificate, Endpoint};
use crate::credentials::certificate::{Certificate, CertificateKind, FileTask, TaskResult};
use crate::credentials::pki::{self, key::Key};
use crate::credentials::rotation::{CertificateFiles, Rotation, RotationStep};
use crate::kube::cluster_info::{Cluster, ClusterInfo, cluster, cluster_info};
use crate::kube::delay::Jitter;
use crate::kube::finding::{Finding, Mark};
use crate::kube::message::{Accept, Request, Response};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{CertificatePurpose, Leaf, Subject};
use crate::kube::{json, object, yaml};

const CHECK: &str = "certificate";

/// The signer writes the signature of a new token within a second.
const SIGNER: Duration = Duration::from_secs(10);
/// The server in cluster-info must answer within this time, if the command line names another
/// server, which is tried next.
const OTHER_SERVER: Duration = Duration::from_secs(10);

/// The remedy if only the server of the command line answers.
const OTHER_IS_RIGHT: &str = "if boards can reach that one, run nodelet reset, and join again";

// Remedies that several steps share.
const NEW_LINE: &str = "on the control plane: kubeadm token create --print-join-command";
const NOT_KUBEADM: &str = "if kubeadm did not make this cluster: --certificate-authority FILE and \
     the commands of systemd/join.md; k3s: the whole token, K10…::id.secret";
const SOMEBODY: &str = "copy the line again: the CA may be new; or somebody may be between this \
     board and the server";

/// Command for a cluster that kubeadm did not make; systemd/join.md has it, too.
const APPROVE: &str = "kubectl create clusterrolebinding nodelet-approve --clusterrole=\
                       system:certificates.k8s.io:certificatesigningrequests:nodeclient \
                       --group=system:bootstrappers";

/// The server, proved, without credentials.
pub(super) struct ProvedServer {
    pub(super) config: ApiConfig,
    /// The server is the supervisor of k3s or rke2: `k3s token create` also makes tokens of the
    /// form of a bootstrap token.
    pub(super) is_supervisor: bool,
}

/// Finds the server.
pub(super) fn find(run: &mut JoinRun<'_>, token: &Bootstrap) -> Result<ProvedServer, Finding> {
    let (config, api) = run.reach()?;
    if config.insecure {
        let config = discover(run, token, &config.endpoint, api)?;
        Ok(ProvedServer { config, is_supervisor: false })
    } else {
        given(run, config, api)
    }
}

/// With `--certificate-authority` there is nothing to discover.
fn given(run: &mut JoinRun<'_>, config: ApiConfig, mut api: Api) -> Result<ProvedServer, Finding> {
    let why = "not needed with --certificate-authority";
    run.notes(&["cluster-info", "signature"], why);
    if let (Some(ca), pins @ [_, ..]) = (&config.ca, run.settings.pins.as_slice()) {
        let pinned = proof::pinned(&ca.bytes, pins, run.now().wall);
        pinned.map_err(|why| Finding::failed("ca", why.at(&ca.source), OTHER_CA))?;
    }
    run.add(Finding::ok("ca", "from --certificate-authority"));
    // An answer of any status over verified TLS proves the server. Only a supervisor has CAs at
    // this path.
    let response =
        run.answer(&mut api, &proof::cacerts(), "tls", "is it the CA of this server?")?;
    run.add(Finding::ok("tls", "the server was verified"));
    let is_supervisor = response.accepted().is_ok() && proof::unpinned(&response.body).is_ok();
    Ok(ProvedServer { config, is_supervisor })
}

fn discover(
    run: &mut JoinRun<'_>,
    token: &Bootstrap,
    from: &Endpoint,
    insecure: Api,
) -> Result<ApiConfig, Finding> {
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

/// The certificates of cluster-info that become roots, as PEM.
fn trusted(run: &mut JoinRun<'_>, cluster: &Cluster) -> Result<String, Finding> {
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
fn first_read(run: &JoinRun<'_>, token: &Bootstrap, mut api: Api) -> Result<ClusterInfo, Finding> {
    let mut unsigned_since = None;
    run.until(|| {
        let info = read_cluster_info(run, &mut api)?;
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
fn read_cluster_info(run: &JoinRun<'_>, api: &mut Api) -> Result<ClusterInfo, Stop> {
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

/// Reads the same ConfigMap from the verified server. The server that cluster-info names may be
/// reachable only from the control plane (kind, NAT): then the endpoint of the command line is
/// used.
fn second_read(
    run: &mut JoinRun<'_>,
    first: &ClusterInfo,
    mut config: ApiConfig,
    typed: &Endpoint,
) -> Result<ApiConfig, Finding> {
    let mut api = run.api(&config, "tls", SOMEBODY)?;
    let mut unanswered = None;
    if config.endpoint != *typed
        && let Err(why) = run.send_within(&mut api, &cluster_info(), OTHER_SERVER)
    {
        unanswered =
            Some(format!("cluster-info names {}, which does not answer: {why}", config.endpoint));
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
    let verified = format!("{} was verified", run.server);
    run.add(match unanswered {
        None => Finding::ok("tls", verified),
        // The board keeps this server for good.
        Some(why) => Finding::note("tls", format!("{verified}; {why}"), OTHER_IS_RIGHT),
    });
    Ok(config)
}

/// The steps from `token` to `renewal`. A dry run ends before the certificate.
pub(super) fn get(
    run: &mut JoinRun<'_>,
    mut config: ApiConfig,
    token: &Bootstrap,
) -> Result<Joined, Finding> {
    config.authorization = Some(token.authorization());
    let mut api = run.api(&config, "token", "")?;
    reviews(run, &mut api, token)?;
    let finding = namesake(run, &mut api, None)?;
    run.add(finding);
    let is_renewed = if run.settings.bootstrap_only {
        run.notes(&[CHECK, "renewal"], "each board requests its own");
        true
    } else if run.settings.dry_run {
        run.notes(&[CHECK, "renewal"], "not requested: --dry-run");
        config.authorization = None;
        true
    } else {
        let issued = request(run, &mut api)?;
        let until = self::issued(run, &mut config, issued);
        is_renewed(run, &config, &until)
    };
    let renewal = if is_renewed { vec![ROTATE.to_owned()] } else { Vec::new() };
    Ok(Joined { config, renewal })
}

/// The check `certificate`. The certificate replaces the token. Returns when it expires.
pub(super) fn issued(
    run: &mut JoinRun<'_>,
    config: &mut ApiConfig,
    (identity, leaf): (ClientCertificate, Leaf),
) -> String {
    let until = leaf.not_after.time();
    let detail = format!("{} until {until}", leaf.subject.common_name);
    run.add(Finding::ok(CHECK, detail));
    run.expires = Some(leaf.not_after);
    config.authorization = None;
    config.certificate = Some(identity);
    until
}

/// The checks `token`, `csr-create` and `approval`.
fn reviews(run: &mut JoinRun<'_>, api: &mut Api, token: &Bootstrap) -> Result<(), Finding> {
    let response = run.answer(api, &FIRST_REQUEST.review(&run.board.name), "token", "try again")?;
    let id = &token.id;
    if response.code == 401 {
        let line = format!("the server does not accept the token {id}: 401");
        let remedy = "it expired, or its usages lack authentication: kubeadm token create \
                      --print-join-command";
        return Err(failed("token", &line, remedy));
    }
    let finding = FIRST_REQUEST.judge(&response);
    if response.accepted().is_err() {
        let remedy = "is it the server's URL, and does a proxy stand before it?";
        return Err(failed(FIRST_REQUEST.check, &finding.detail, remedy));
    }
    run.add(Finding::ok("token", format!("the server accepts {id}")));
    match finding.mark {
        Mark::Failed => return Err(finding),
        _ => run.add(finding),
    }
    let response = run.answer(api, &APPROVAL.review(&run.board.name), "approval", "")?;
    run.add(match (response.accepted(), APPROVAL.judge(&response).mark) {
        (Err(refused), _) => Finding::note("approval", format!("unknown: {}", refused.code), ""),
        (_, Mark::Failed) => {
            Finding::note("approval", "a person must approve the request", APPROVE)
        }
        _ => Finding::ok("approval", "by the controller"),
    });
    Ok(())
}

/// Whether a live board has the name: a Node that is Ready, and that this machine has not
/// registered. `undo` is the command without which a live board cannot renew its certificate any
/// more, because this join has taken the name at the server.
pub(super) fn namesake(
    run: &JoinRun<'_>,
    api: &mut Api,
    undo: Option<&str>,
) -> Result<Finding, Finding> {
    let (check, name) = ("namesake", &run.board.name);
    if name.is_empty() {
        return Ok(Finding::note(check, "each board has its own name", ""));
    }
    let request = Request::get(format!("/api/v1/nodes/{name}"), Accept::Object);
    let response = run.answer(api, &request, check, "try again")?;
    if response.code == 403 {
        return Ok(Finding::note(check, "not visible: 403", ""));
    }
    let remedy = "does a proxy end TLS, so that the server does not see the certificate?";
    let found = response.object("nodes", name);
    let Some(node) = found.map_err(|why| failed(check, why, remedy))? else {
        return Ok(Finding::ok(check, "there is no Node of this name yet"));
    };
    let is_true = |condition| object::text(condition, &["status"]) == "True";
    let conditions = object::list(&node, &["status", "conditions"]);
    let is_ready = object::of_type(conditions, "Ready").is_some_and(is_true);
    let info = |member| object::text(&node, &["status", "nodeInfo", member]);
    let version = info("kubeletVersion");
    let boot_id = info("bootID");
    let is_here = !boot_id.is_empty() && boot_id == run.board.boot_id;
    // The boot id tells nothing about a kubelet: one on this machine reports the same boot id. With
    // `--kubelet-version` the agent reports a kubelet's version.
    let is_guest = object::text(&node, &["metadata", "labels", "kubernetes.io/os"]) == "nodelet";
    let is_kubelet = !version.contains("-nodelet")
        && !(is_here && (is_guest || version == run.board.kubelet_version));
    if !is_kubelet && is_here || !is_ready {
        return Ok(Finding::ok(check, "no live board has this name"));
    }
    let (line, remedy) = if is_kubelet {
        let line = format!("Node {name} is Ready, by a kubelet {version}");
        (line, "if it is on this machine, stop it and wait a minute; else ")
    } else {
        (format!("Node {name} is Ready, with another boot id"), "")
    };
    if run.settings.force {
        return Ok(Finding::note(check, line, ""));
    }
    let undo = undo.map_or(String::new(), |undo| format!(" after {undo}"));
    let remedy =
        format!("{remedy}use --node-name{undo}, or kubectl delete node {name}; --force goes on");
    Err(failed(check, &line, &remedy))
}

/// A key and its certificate, in memory until the kubeconfig has both.
struct NewPair {
    subject: Subject,
    key: Option<Key>,
    issued: Option<ClientCertificate>,
}

impl NewPair {
    fn task(&mut self, task: &FileTask, now: Wall) -> Result<TaskResult, Fault> {
        Ok(match task {
            FileTask::Find(_) => TaskResult::NotFound,
            FileTask::Sign { .. } => {
                let key = self.key.insert(Key::generate()?);
                TaskResult::Signed(key.request(self.subject.clone(), CertificatePurpose::CLIENT)?)
            }
            FileTask::Install(chain) => {
                let key = self.key.as_ref().ok_or("there is no key")?;
                let (certificate, leaf) = pki::issued(chain, key, now)?;
                self.issued = Some(certificate);
                TaskResult::InUse(leaf)
            }
        })
    }
}

impl CertificateFiles for NewPair {
    fn result(&mut self, task: &FileTask, _: Result<(), Fault>, now: Wall) -> TaskResult {
        self.task(task, now).unwrap_or_else(TaskResult::Failed)
    }
}

/// Asks until the certificate of a new key is issued.
pub(super) fn request(
    run: &JoinRun<'_>,
    api: &mut Api,
) -> Result<(ClientCertificate, Leaf), Finding> {
    let subject = Subject::of_node(&run.board.name);
    let kind = CertificateKind::Joining;
    let certificate = Certificate::new(kind, subject.clone(), None, true, Jitter::NONE);
    let mut rotation = Rotation::new(Some(certificate));
    let mut pair = NewPair { subject, key: None, issued: None };
    let failed_for_good = |why: Fault| Stop::Failed(Finding::failed(CHECK, why, ""));
    let mut last = Fault::from("nobody approved or signed the request");
    run.poll(|| {
        let why = match rotation.step(&mut pair, run.now().into()).map_err(failed_for_good)? {
            RotationStep::Files => None,
            RotationStep::InUse(leaf) => match pair.issued.take() {
                Some(certificate) => return Ok((certificate, leaf)),
                None => None,
            },
            RotationStep::Send(request) => {
                let answer = run.send(api, &request);
                let may_pass = is_transient(&answer);
                match rotation.on_response(CHECK, answer, run.now().into()) {
                    Ok(()) => None,
                    Err(error) if may_pass => Some(error.why),
                    Err(error) => return Err(failed_for_good(error.why)),
                }
            }
        };
        if let Some(why) = why.filter(|why| *why != last) {
            log::info!("{CHECK}: {why}");
            last = why;
        }
        let now = run.now();
        let pause = rotation.due(now.into()).map_or(Duration::ZERO, |due| due.since(now.mono));
        // The key of the request is only in memory: an approval after the end of this command is
        // useless.
        let remedy = "an approval now is too late: join again with --timeout=1h, and approve the \
                      new request while it waits: kubectl get csr, then kubectl certificate \
                      approve NAME";
        Err(Stop::Again(failed(CHECK, last.clone().at("not issued in time"), remedy), pause))
    })
}

/// Whether the controller will approve renewals, asked with the new certificate.
fn is_renewed(run: &mut JoinRun<'_>, config: &ApiConfig, until: &str) -> bool {
    let request = RENEWAL.review(&run.board.name);
    let response = run
        .api(config, "renewal", "")
        .and_then(|mut api| run.answer(&mut api, &request, "renewal", ""))
        .and_then(|response| match response.accepted() {
            Ok(()) => Ok(response),
            Err(refused) => Err(failed("renewal", refused, "")),
        });
    let (finding, is_renewed) = match response.map(|response| RENEWAL.judge(&response).mark) {
        Ok(Mark::Ok) => (Finding::ok("renewal", "by itself, approved by the controller"), true),
        Ok(_) => {
            let remedy = format!("{RENEW}, then nodelet join --force");
            let line = format!("not approved: valid until {until}");
            (Finding::note("renewal", line, &remedy), false)
        }
        // If the answer is unknown, the agent requests renewals: a request that nobody approves
        // does no harm.
        Err(failed) => {
            let line = format!("requested, approval unknown: {}", failed.detail);
            (Finding::note("renewal", line, "kubectl get csr lists it"), true)
        }
    };
    run.add(finding);
    is_renewed
}
