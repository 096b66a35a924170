//! What the response to a CSR request means.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::issued::usable;
use super::{APPROVAL_TIME, Certificate, FIRST_POLL, LAST_POLL, SIGNER, State, Step, Waiting};
use crate::core::instant::{Mono, Now};
use crate::kube::json;
use crate::kube::message::{Outcome, Refused, Response};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::kube::x509::{SigningRequest, Wanted};

/// How long a CSR is read before it is given up: 15 minutes, or an hour if its name is derived from
/// the key, so that the same CSR is found again.
const WAIT: Duration = Duration::from_secs(900);
const WAIT_BY_NAME: Duration = Duration::from_secs(3600);

impl Certificate {
    /// Takes the outcome of the last request. `random`, 0 to 1000, spreads many boards.
    pub fn on_response(&mut self, outcome: Outcome, now: Now, random: u32) -> Step {
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => return self.on_silence(why, now, random),
        };
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Signed(request) if self.rules.supervisor => {
                self.on_supervisor(&request, response, now, random)
            }
            State::Signed(request) => self.on_created(request, &response, now.mono, random),
            State::Waiting(waiting) => self.on_read(waiting, &response, now, random),
            state => {
                self.state = state;
                Step::Continue
            }
        }
    }

    /// The server may have created the CSR, so it is sent again: a digest-named CSR is found, and a
    /// generateName CSR is orphaned and garbage-collected within 24 h. A request to the supervisor
    /// is signed again, because that reads the node password again.
    fn on_silence(&mut self, why: String, now: Now, random: u32) -> Step {
        if !matches!(self.state, State::Signed(_) | State::Waiting(_)) {
            return Step::Continue;
        }
        if self.rules.supervisor || self.is_refused_in_tls(now.wall) {
            self.state = State::Idle;
        }
        self.back_off(now.mono, random);
        let last = now.mono.after(self.rules.last_silence());
        self.due = self.due.min(last);
        Step::Silent(why)
    }

    /// Whether the CSR without a response was sent with a certificate that has expired since: a
    /// gateway may refuse it within TLS. The next CSR has the bootstrap credentials.
    fn is_refused_in_tls(&self, now: Wall) -> bool {
        self.rules.bootstrap && self.sent_with_own && !self.is_usable(now)
    }

    fn on_created(
        &mut self,
        request: SigningRequest,
        response: &Response,
        now: Mono,
        random: u32,
    ) -> Step {
        let (name, uid) = match response.accepted() {
            Ok(()) => {
                let created = json::parse(&response.body);
                let Some((name, uid)) = created.as_ref().and_then(identified) else {
                    let refused = Refused::nonsense("a CertificateSigningRequest");
                    return self.failed(refused.to_string(), now, random);
                };
                (name.to_owned(), Some(uid.to_owned()))
            }
            Err(refused) if !self.rules.rotate && refused.reason == "AlreadyExists" => {
                (request.name.clone(), None)
            }
            Err(refused) => {
                return self.refused(create_error(&refused), refused.retry_after, now, random);
            }
        };
        self.due = match uid {
            Some(_) => now.after(FIRST_POLL),
            None => now,
        };
        self.state = State::Waiting(Waiting {
            request,
            name,
            uid,
            since: now,
            period: FIRST_POLL,
            logged: false,
        });
        Step::Continue
    }

    fn on_read(
        &mut self,
        mut waiting: Waiting,
        response: &Response,
        now: Now,
        random: u32,
    ) -> Step {
        self.due = now.mono.after(waiting.period);
        waiting.period = (waiting.period * 2).min(LAST_POLL);
        let limit = match self.rules.rotate {
            true => WAIT,
            false => WAIT_BY_NAME,
        };
        let waited = now.mono.since(waiting.since);
        let step = match csr_state(&waiting, response, now.wall) {
            CsrState::Pending(uid) if waited < limit => {
                waiting.uid = Some(uid);
                match waited < APPROVAL_TIME || std::mem::replace(&mut waiting.logged, true) {
                    true => Step::Continue,
                    false => {
                        let name = &waiting.name;
                        Step::Pending(format!(
                            "{name} waits for approval: kubectl certificate approve {name}"
                        ))
                    }
                }
            }
            // The certificate expired while the CSR waited, or the bootstrap token did: the next
            // CSR has other credentials.
            CsrState::Refused(refused) if refused.code == 401 && !self.is_usable(now.wall) => {
                return self.failed(refused.to_string(), now.mono, random);
            }
            CsrState::Refused(refused) if waited < limit => Step::Failed(refused.to_string()),
            CsrState::Pending(_) | CsrState::Refused(_) => {
                let (name, seconds) = (waiting.name, limit.as_secs());
                let why = format!(
                    "{name} was not signed within {seconds} s; approve the next one: \
                     kubectl get csr, then kubectl certificate approve NAME"
                );
                return self.failed(why, now.mono, random);
            }
            CsrState::Issued(chain) => {
                self.state = State::Issued(chain);
                self.due = now.mono;
                return Step::Continue;
            }
            CsrState::Gone(why) => return self.failed(why, now.mono, random),
            CsrState::Unusable(why) => {
                self.new_key = true;
                return self.failed(why, now.mono, random);
            }
        };
        self.state = State::Waiting(waiting);
        step
    }
}

/// The state of the CSR after a read.
enum CsrState {
    /// Not signed yet, with its uid.
    Pending(String),
    /// Signed, with the chain, PEM.
    Issued(String),
    /// It will not be signed. The next CSR may have the same key.
    Gone(String),
    /// Its certificate is unusable, or it is another client's. The next CSR needs a new key.
    Unusable(String),
    Refused(Refused),
}

fn csr_state(waiting: &Waiting, response: &Response, now: Wall) -> CsrState {
    let Waiting {
        request, name, uid, ..
    } = waiting;
    match response.accepted() {
        Ok(()) => {}
        Err(refused) if refused.is_missing("certificatesigningrequests", name) => {
            return CsrState::Gone(format!(
                "{name} was deleted before it was signed; requesting again"
            ));
        }
        Err(refused) => return CsrState::Refused(refused),
    }
    let csr = json::parse(&response.body).unwrap_or_default();
    let Some((_, found)) = identified(&csr).filter(|(found, _)| found == name) else {
        return CsrState::Refused(Refused::nonsense("a CertificateSigningRequest"));
    };
    if uid.as_deref().is_some_and(|uid| uid != found) {
        return CsrState::Gone(format!(
            "{name} was replaced by another CSR of that name; requesting again"
        ));
    }
    if let Err(why) = is_compatible(request, &csr) {
        return CsrState::Unusable(format!(
            "{name} exists already and is not ours: {why}; requesting with another key"
        ));
    }
    let mut approved = false;
    for condition in object::list(&csr, &["status", "conditions"]) {
        let [kind, reason, message] =
            ["type", "reason", "message"].map(|key| object::text(condition, &[key]));
        let what = match kind {
            "Denied" => "was denied",
            "Failed" => "could not be signed",
            _ => {
                approved |= kind == "Approved";
                continue;
            }
        };
        let advice = match kind {
            "Denied" => "ask the CSR approver, then: kubectl delete csr",
            _ => "see the signer's log (kube-controller-manager), then: kubectl delete csr",
        };
        let message: String = message.chars().take(200).collect();
        return CsrState::Gone(format!(
            "{name} {what}: {reason}: {message}; {advice} {name}"
        ));
    }
    let chain = object::text(&csr, &["status", "certificate"]);
    if !approved || chain.is_empty() {
        return CsrState::Pending(found.to_owned());
    }
    match issued(request, chain, now) {
        Ok(chain) => CsrState::Issued(chain),
        Err(why) => CsrState::Unusable(format!(
            "{name} has an unusable certificate: {why}; requesting with another key"
        )),
    }
}

/// The chain in base64, if it is [`usable`].
fn issued(request: &SigningRequest, chain: &str, now: Wall) -> Result<String, String> {
    let pem = STANDARD.decode(chain).map_err(|_| "invalid base64")?;
    let pem = String::from_utf8(pem).map_err(|_| "invalid PEM")?;
    usable(request, &pem, now).map(|()| pem)
}

/// Name and uid of a CSR; `None` if the name does not fit into a URL path.
fn identified(csr: &Value) -> Option<(&str, &str)> {
    let name = object::text(csr, &["metadata", "name"]);
    let uid = object::text(csr, &["metadata", "uid"]);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_one = object::text(csr, &["kind"]) == "CertificateSigningRequest";
    (is_one && !uid.is_empty() && !name.is_empty() && name.chars().all(fits)).then_some((name, uid))
}

/// client-go's ensureCompatible: the certificate of another client's CSR does not fit our key.
fn is_compatible(ours: &SigningRequest, csr: &Value) -> Result<(), String> {
    let signer = object::text(csr, &["spec", "signerName"]);
    if !signer.is_empty() && signer != SIGNER {
        return Err(format!("csr signerNames differ: {SIGNER}, {signer}"));
    }
    let pem = STANDARD
        .decode(object::text(csr, &["spec", "request"]))
        .ok();
    let wanted = pem.and_then(|pem| Wanted::of_pem(&pem));
    let wanted = wanted.ok_or("its request cannot be read")?;
    if wanted.subject != ours.wanted.subject {
        return Err("csr subjects differ".to_owned());
    }
    match wanted.public_key == ours.wanted.public_key {
        true => Ok(()),
        false => Err("its key differs".to_owned()),
    }
}

fn create_error(refused: &Refused) -> String {
    let advice = match refused.code {
        401 => "; check the bootstrap token and this board's clock",
        403 => {
            "; kubeadm and k3s allow it to bootstrap tokens and nodes: see ClusterRole \
             system:node-bootstrapper"
        }
        _ => "",
    };
    let Refused {
        code,
        reason,
        message,
        ..
    } = refused;
    format!("cannot create a CSR: {code} {reason}: {message}{advice}")
}
