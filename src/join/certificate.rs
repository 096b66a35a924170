//! Asks a verified API server for the certificate of the node, with a bootstrap token.
//!
//! A review predicts what the controller will do: kube-controller-manager approves a request if
//! its requester may create certificatesigningrequests/nodeclient
//! (`pkg/controller/certificates/approver/sarapprove.go`).

use super::server::pem;
use super::walk::{Failed, Joined, Renewal, Walk, bearer, failed, is_transient, notes};
use crate::check::server::{APPROVAL, CERTIFICATES, RENEWAL};
use crate::check::{Finding, Mark};
use crate::core::certificate::{Certificate, Next, Rules, Step, Task, TaskResult};
use crate::core::join::token::Bootstrap;
use crate::identity::pki::key::Key;
use crate::kube::message::{Accept, Request};
use crate::kube::x509::{Leaf, Subject};
use crate::kube::{json, object};
use crate::wire::api::Api;
use crate::wire::api_config::{ApiConfig, ClientCertificate};
use crate::wire::tls;

const CHECK: &str = "certificate";

/// Commands for a cluster that kubeadm did not make; systemd/README.md has them, too.
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
    walk: &mut Walk<'_>,
    mut config: ApiConfig,
    token: &Bootstrap,
) -> Result<Joined, Failed> {
    config.authorization = Some(bearer(token.bearer()));
    let mut api = walk.api(&config, "token", "")?;
    reviews(walk, &mut api, token)?;
    let finding = namesake(walk, &mut api)?;
    walk.add(finding);
    let settings = walk.settings;
    if settings.bootstrap_only {
        notes(walk, &[CHECK, "renewal"], "each board asks for its own");
        return Ok(Joined {
            config,
            renewal: Renewal::Cluster,
        });
    }
    if settings.dry_run {
        notes(walk, &[CHECK, "renewal"], "not asked for: --dry-run");
        config.authorization = None;
        return Ok(Joined {
            config,
            renewal: Renewal::Cluster,
        });
    }
    let issued = request(walk, &mut api)?;
    let until = self::issued(walk, &mut config, issued);
    let renewal = renewal(walk, &config, &until);
    Ok(Joined { config, renewal })
}

/// The check `certificate`. The certificate replaces the token. Returns when it expires.
pub(super) fn issued(
    walk: &mut Walk<'_>,
    config: &mut ApiConfig,
    (identity, leaf): (ClientCertificate, Leaf),
) -> String {
    let until = leaf.not_after.time();
    let detail = format!("{} until {until}", leaf.subject.common_name);
    walk.add(Finding::ok(CHECK, detail));
    walk.expires = Some(leaf.not_after);
    config.authorization = None;
    config.certificate = Some(identity);
    until
}

/// The checks `token`, `csr-create` and `approval`.
fn reviews(walk: &mut Walk<'_>, api: &mut Api, token: &Bootstrap) -> Result<(), Failed> {
    let [create, _] = CERTIFICATES;
    let response = walk.answer(api, &create.review(&walk.board.name), "token", "try again")?;
    let id = &token.id;
    match response.code {
        429 | 500.. => {
            let line = format!("the server does not answer the review: {}", response.code);
            return Err(failed("token", &line, "try again"));
        }
        401 => {
            let line = format!("the server does not accept the token {id}: 401");
            let remedy = "it expired, or its usages lack authentication: kubeadm token create \
                          --print-join-command";
            return Err(failed("token", &line, remedy));
        }
        _ => walk.add(Finding::ok("token", format!("the server accepts {id}"))),
    }
    let finding = create.judge(&response);
    match finding.mark {
        Mark::Failed => return Err(failed(create.check, &finding.detail, ASK)),
        _ => walk.add(finding),
    }
    let response = walk.answer(api, &APPROVAL.review(&walk.board.name), "approval", "")?;
    let finding = APPROVAL.judge(&response);
    walk.add(match finding.mark {
        Mark::Failed => Finding::note("approval", "a person must approve the request", APPROVE),
        _ => Finding::ok("approval", "by the controller"),
    });
    Ok(())
}

/// Whether a live board has the name. Unlike a Node that is Ready, one that is not is nobody's.
fn namesake(walk: &Walk<'_>, api: &mut Api) -> Result<Finding, Failed> {
    let (check, name) = ("namesake", &walk.board.name);
    if name.is_empty() {
        return Ok(Finding::note(check, "each board has its own name", ""));
    }
    let request = Request::get(format!("/api/v1/nodes/{name}"), Accept::Object);
    let response = walk.answer(api, &request, check, "try again")?;
    if response.code == 404 {
        return Ok(Finding::ok(check, "there is no Node of this name yet"));
    }
    if let Err(refused) = response.accepted() {
        let line = format!("not visible: {}", refused.code);
        return Ok(Finding::note(check, line, ""));
    }
    let node = json::parse(&response.body).unwrap_or_default();
    let conditions = object::list(&node, &["status", "conditions"]);
    let is_ready = conditions.iter().any(|condition| {
        let text = |member| object::text(condition, &[member]);
        (text("type"), text("status")) == ("Ready", "True")
    });
    let boot_id = object::text(&node, &["status", "nodeInfo", "bootID"]);
    let line = format!("Node {name} is Ready, with another boot id");
    match is_ready && boot_id != walk.board.boot_id {
        false => Ok(Finding::ok(check, "no live board has this name")),
        true if walk.settings.force => Ok(Finding::note(check, line, "")),
        true => {
            let remedy = format!("use --node-name, or kubectl delete node {name}; --force goes on");
            Err(failed(check, &line, &remedy))
        }
    }
}

/// Makes a key, and asks until its certificate is issued.
fn request(walk: &Walk<'_>, api: &mut Api) -> Result<(ClientCertificate, Leaf), Failed> {
    let subject = Subject::of_node(&walk.board.name);
    let rules = Rules {
        rotate: true,
        bootstrap: true,
        supervisor: false,
    };
    let mut certificate = Certificate::new(rules, subject.clone(), None, true, 0);
    let mut key = None;
    let mut last_line = String::new();
    loop {
        let now = walk.now();
        let wait = certificate.due(now).since(now.mono);
        if !walk.pause(wait) {
            let remedy = "kubectl get csr, then kubectl certificate approve NAME";
            return Err(failed(
                CHECK,
                &format!("not issued in time: {last_line}"),
                remedy,
            ));
        }
        let now = walk.now();
        let step = match certificate.next(now.wall) {
            Next::Task(Task::Find) => certificate.on_task(TaskResult::NotFound, now, 0),
            Next::Task(Task::Sign { .. }) => {
                let new = Key::generate().map_err(|why| failed(CHECK, &why, ""))?;
                let signed = new.request(subject.clone());
                let signed = signed.map_err(|why| failed(CHECK, &why, ""))?;
                key = Some(new);
                certificate.on_task(TaskResult::Signed(signed), now, 0)
            }
            Next::Task(Task::Install(chain)) => {
                let key = key.ok_or_else(|| failed(CHECK, "there is no key", ""))?;
                return identity(&chain, &key).map_err(|why| failed(CHECK, &why, ""));
            }
            Next::Send => {
                let Some(request) = certificate.request() else {
                    return Err(failed(CHECK, "there is no request", ""));
                };
                let outcome = walk.send(api, &request);
                let may_pass = is_transient(&outcome);
                match certificate.on_response(outcome, walk.now(), 0) {
                    Step::Failed(line) if !may_pass => {
                        return Err(Finding::failed(CHECK, &line, "").into());
                    }
                    step => step,
                }
            }
        };
        if let Step::Pending(line) | Step::Failed(line) | Step::Silent(line) = step {
            if line != last_line {
                log::info!("{CHECK}: {line}");
            }
            last_line = line;
        }
    }
}

/// The issued certificate with its key, if TLS can use them.
pub(super) fn identity(chain: &str, key: &Key) -> Result<(ClientCertificate, Leaf), String> {
    let source = "the issued certificate";
    let identity = ClientCertificate {
        chain: pem(source, chain.as_bytes().to_vec()),
        key: pem(source, key.pem().as_bytes().to_vec()),
    };
    tls::check_certificate(&identity)?;
    let leaf = Leaf::of_pem(&identity.chain.bytes);
    Ok((identity, leaf.ok_or("it is not X.509")?))
}

/// Whether the controller will approve renewals, asked with the new certificate.
fn renewal(walk: &mut Walk<'_>, config: &ApiConfig, until: &str) -> Renewal {
    let request = RENEWAL.review(&walk.board.name);
    let response = walk
        .api(config, "renewal", "")
        .and_then(|mut api| walk.answer(&mut api, &request, "renewal", ""));
    let judged = response.map(|response| RENEWAL.judge(&response));
    let finding = match judged {
        Ok(finding) if finding.mark == Mark::Ok => {
            Finding::ok("renewal", "by itself, approved by the controller")
        }
        Ok(_) => {
            let remedy = format!("{RENEW}, then nodelet join --force");
            Finding::note(
                "renewal",
                format!("not approved: valid until {until}"),
                &remedy,
            )
        }
        Err(failed) => Finding::note("renewal", format!("unknown: {}", failed.detail), ""),
    };
    let renewal = match finding.mark {
        Mark::Ok => Renewal::Cluster,
        _ => Renewal::None,
    };
    walk.add(finding);
    renewal
}
