//! Asks a verified API server for the certificate of the node, with a bootstrap token.
//!
//! A review predicts what the controller will do: kube-controller-manager approves a request if
//! its requester may create certificatesigningrequests/nodeclient
//! (`pkg/controller/certificates/approver/sarapprove.go`).

use std::time::Duration;

use super::run::{Failed, JoinRun, Joined, ROTATE, Stop, failed, is_transient};
use super::token::Bootstrap;
use crate::check::server::{APPROVAL, CREATE_REQUEST, RENEWAL};
use crate::check::{Finding, Mark};
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::credentials::certificate::{Certificate, CertificateKind, FileTask, TaskResult};
use crate::credentials::pki::{self, key::Key};
use crate::credentials::rotation::{CertificateFiles, Rotation, Step};
use crate::kube::delay::Jitter;
use crate::kube::message::{Accept, Request};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Purpose, Subject};
use crate::kube::{json, object};

const CHECK: &str = "certificate";

/// Commands for a cluster that kubeadm did not make; systemd/join.md has them, too.
const ASK: &str = "kubectl create clusterrolebinding nodelet-ask \
                   --clusterrole=system:node-bootstrapper --group=system:bootstrappers";
const APPROVE: &str = "kubectl create clusterrolebinding nodelet-approve --clusterrole=\
                       system:certificates.k8s.io:certificatesigningrequests:nodeclient \
                       --group=system:bootstrappers";
pub(super) const RENEW: &str = "kubectl create clusterrolebinding nodelet-renew --clusterrole=\
                     system:certificates.k8s.io:certificatesigningrequests:selfnodeclient \
                     --group=system:nodes";

/// The steps from `token` to `renewal`. A dry run ends before the certificate.
pub(super) fn get(
    run: &mut JoinRun<'_>,
    mut config: ApiConfig,
    token: &Bootstrap,
) -> Result<Joined, Failed> {
    config.authorization = Some(token.authorization());
    let mut api = run.api(&config, "token", "")?;
    reviews(run, &mut api, token)?;
    let finding = namesake(run, &mut api)?;
    run.add(finding);
    let settings = run.settings;
    if settings.bootstrap_only {
        run.notes(&[CHECK, "renewal"], "each board requests its own");
        return Ok(Joined { config, renewal: vec![ROTATE.to_owned()] });
    }
    if settings.dry_run {
        run.notes(&[CHECK, "renewal"], "not requested: --dry-run");
        config.authorization = None;
        return Ok(Joined { config, renewal: vec![ROTATE.to_owned()] });
    }
    let issued = request(run, &mut api)?;
    let until = self::issued(run, &mut config, issued);
    let is_renewed = is_renewed(run, &config, &until);
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
fn reviews(run: &mut JoinRun<'_>, api: &mut Api, token: &Bootstrap) -> Result<(), Failed> {
    let create = CREATE_REQUEST;
    let response = run.answer(api, &create.review(&run.board.name), "token", "try again")?;
    let id = &token.id;
    if response.code == 401 {
        let line = format!("the server does not accept the token {id}: 401");
        let remedy = "it expired, or its usages lack authentication: kubeadm token create \
                      --print-join-command";
        return Err(failed("token", &line, remedy));
    }
    run.add(Finding::ok("token", format!("the server accepts {id}")));
    let finding = create.judge(&response);
    match finding.mark {
        Mark::Failed => return Err(failed(create.check, &finding.detail, ASK)),
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

/// Whether a live board has the name. A Node that is not Ready may be taken over.
pub(super) fn namesake(run: &JoinRun<'_>, api: &mut Api) -> Result<Finding, Failed> {
    let (check, name) = ("namesake", &run.board.name);
    if name.is_empty() {
        return Ok(Finding::note(check, "each board has its own name", ""));
    }
    let request = Request::get(format!("/api/v1/nodes/{name}"), Accept::Object);
    let response = run.answer(api, &request, check, "try again")?;
    if response.code == 404 {
        return Ok(Finding::ok(check, "there is no Node of this name yet"));
    }
    if response.code == 403 {
        return Ok(Finding::note(check, "not visible: 403", ""));
    }
    let remedy = "does a proxy end TLS, so that the server does not see the certificate?";
    response.accepted().map_err(|refused| failed(check, refused, remedy))?;
    let node = json::parse(&response.body).unwrap_or_default();
    let is_true = |condition| object::text(condition, &["status"]) == "True";
    let conditions = object::list(&node, &["status", "conditions"]);
    let is_ready = object::of_type(conditions, "Ready").is_some_and(is_true);
    let info = |member| object::text(&node, &["status", "nodeInfo", member]);
    let version = info("kubeletVersion");
    // A kubelet on this machine has the boot id of this machine.
    let is_kubelet = !version.contains("-nodelet");
    let is_own = !is_kubelet && info("bootID") == run.board.boot_id;
    if is_own || !is_ready {
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
    let remedy = format!("{remedy}use --node-name, or kubectl delete node {name}; --force goes on");
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
            FileTask::Find => TaskResult::NotFound,
            FileTask::Sign { .. } => {
                let key = self.key.insert(Key::generate()?);
                TaskResult::Signed(key.request(self.subject.clone(), Purpose::CLIENT)?)
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
fn request(run: &JoinRun<'_>, api: &mut Api) -> Result<(ClientCertificate, Leaf), Failed> {
    let subject = Subject::of_node(&run.board.name);
    let kind = CertificateKind::RotatedOrBootstrapped;
    let certificate = Certificate::new(kind, subject.clone(), None, true, Jitter::NONE);
    let mut rotation = Rotation::new(Some(certificate));
    let mut pair = NewPair { subject, key: None, issued: None };
    let failed_for_good = |why: Fault| Stop::Failed(Finding::failed(CHECK, why, ""));
    let mut last = Fault::from("nobody approved or signed the request");
    run.poll(|| {
        let why = match rotation.step(&mut pair, run.now().into()).map_err(failed_for_good)? {
            Step::Files => None,
            Step::InUse(leaf) => match pair.issued.take() {
                Some(certificate) => return Ok((certificate, leaf)),
                None => None,
            },
            Step::Send(request) => {
                let answer = run.send(api, &request);
                let may_pass = is_transient(&answer);
                match rotation.on_response(answer, run.now().into()) {
                    Ok(line) => {
                        line.into_iter().for_each(|line| log::info!("{CHECK}: {line}"));
                        None
                    }
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
        // The key of the request ends with this command.
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
        // A request that nobody approves does no harm.
        Err(failed) => {
            let line = format!("requested, approval unknown: {}", failed.detail);
            (Finding::note("renewal", line, "kubectl get csr lists it"), true)
        }
    };
    run.add(finding);
    is_renewed
}
