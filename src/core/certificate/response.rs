//! What the server's answer to a request means.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{
    Certificate, FIRST_LOOK, LAST_BACKOFF, LAST_LOOK, LAST_SILENCE, PATIENCE, SIGNER, State, Step,
    Waiting, satisfies,
};
use crate::core::instant::{Mono, Now};
use crate::kube::message::{Outcome, Refused};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Wanted};

/// How long a certificate is awaited: 15 minutes, or an hour with a name that finds the
/// same request again.
const WAIT: Duration = Duration::from_secs(900);
const WAIT_BY_NAME: Duration = Duration::from_secs(3600);

impl Certificate {
    /// Takes the answer to the last request. `random` (0 to 1000) spreads many boards.
    pub fn on_response(&mut self, outcome: Outcome, now: Now, random: u32) -> Step {
        let state = std::mem::replace(&mut self.state, State::Idle);
        let step = match state {
            State::Signed(request) => self.created(request, outcome, now.mono, random),
            State::Waiting(waiting) => self.waited(waiting, outcome, now, random),
            state => {
                self.state = state;
                Step::Continue
            }
        };
        if let Step::Silent(_) = step {
            self.due = now.mono.after(self.backoff.min(LAST_SILENCE));
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
        }
        step
    }

    fn created(
        &mut self,
        request: SigningRequest,
        outcome: Outcome,
        now: Mono,
        random: u32,
    ) -> Step {
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => {
                // It may have been created all the same. One that has our name is found
                // again; the other one is nobody's, and goes within the day.
                self.state = State::Signed(request);
                return Step::Silent(why);
            }
        };
        let (name, uid) = match response.accepted() {
            Ok(()) => {
                let created = serde_json::from_slice::<Value>(&response.body).ok();
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
                let step = self.failed(cannot_ask(&refused), now, random);
                let patience = refused.retry_after.unwrap_or_default().min(LAST_BACKOFF);
                self.due = self.due.max(now.after(patience));
                return step;
            }
        };
        self.due = match uid {
            Some(_) => now.after(FIRST_LOOK),
            None => now,
        };
        self.state = State::Waiting(Waiting {
            request,
            name,
            uid,
            since: now,
            look: FIRST_LOOK,
            said: false,
        });
        Step::Continue
    }

    fn waited(&mut self, mut waiting: Waiting, outcome: Outcome, now: Now, random: u32) -> Step {
        self.due = now.mono.after(waiting.look);
        waiting.look = (waiting.look * 2).min(LAST_LOOK);
        let limit = match self.rules.rotate {
            true => WAIT,
            false => WAIT_BY_NAME,
        };
        let waited = now.mono.since(waiting.since);
        let step = match looked_at(&waiting, outcome, now.wall) {
            Look::Pending(uid) if waited < limit => {
                // By now we know which one it is.
                waiting.uid = Some(uid);
                match waited < PATIENCE || std::mem::replace(&mut waiting.said, true) {
                    true => Step::Continue,
                    false => {
                        let name = &waiting.name;
                        Step::Pending(format!(
                            "{name} waits for somebody to approve it: \
                             kubectl certificate approve {name}"
                        ))
                    }
                }
            }
            Look::Refused(refused) if waited < limit => Step::Failed(refused.to_string()),
            Look::Silent(why) => Step::Silent(why),
            Look::Pending(_) | Look::Refused(_) => {
                let (name, seconds) = (waiting.name, limit.as_secs());
                let why = format!(
                    "{name} was not signed within {seconds} s; approve the next one: \
                     kubectl get csr, then kubectl certificate approve NAME"
                );
                return self.failed(why, now.mono, random);
            }
            Look::Issued(chain) => {
                self.state = State::Issued(chain);
                self.due = now.mono;
                return Step::Continue;
            }
            Look::Gone(why) => return self.failed(why, now.mono, random),
            Look::Useless(why) => {
                self.new_key = true;
                return self.failed(why, now.mono, random);
            }
        };
        self.state = State::Waiting(waiting);
        step
    }
}

/// What a look at a request showed.
enum Look {
    /// It is there (its uid).
    Pending(String),
    /// The chain, PEM.
    Issued(String),
    /// It will not be signed.
    Gone(String),
    /// It was signed to no avail, or is another's: nothing comes of this key any more.
    Useless(String),
    Refused(Refused),
    Silent(String),
}

fn looked_at(waiting: &Waiting, outcome: Outcome, now: Wall) -> Look {
    let Waiting {
        request, name, uid, ..
    } = waiting;
    let response = match outcome {
        Outcome::Answered(response) => response,
        Outcome::Silent(why) => return Look::Silent(why),
    };
    match response.accepted() {
        Ok(()) => {}
        Err(refused) if refused.code == 404 => {
            return Look::Gone(format!(
                "{name} was deleted before it was signed; asking again"
            ));
        }
        Err(refused) => return Look::Refused(refused),
    }
    let csr = serde_json::from_slice::<Value>(&response.body).unwrap_or_default();
    let Some((_, found)) = identified(&csr).filter(|(found, _)| found == name) else {
        return Look::Refused(Refused::nonsense("a CertificateSigningRequest"));
    };
    if uid.as_deref().is_some_and(|uid| uid != found) {
        return Look::Gone(format!(
            "{name} was replaced by another request of that name; asking again"
        ));
    }
    if let Err(why) = is_compatible(request, &csr) {
        return Look::Useless(format!(
            "{name} is there already, but not ours: {why}; asking with another key"
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
            "Denied" => "ask those who approve requests, then: kubectl delete csr",
            _ => "see the signer's log (kube-controller-manager), then: kubectl delete csr",
        };
        let message: String = message.chars().take(200).collect();
        return Look::Gone(format!(
            "{name} {what}: {reason}: {message}; {advice} {name}"
        ));
    }
    let chain = object::text(&csr, &["status", "certificate"]);
    if !approved || chain.is_empty() {
        return Look::Pending(found.to_owned());
    }
    match issued(request, chain, now) {
        Ok(chain) => Look::Issued(chain),
        Err(why) => Look::Useless(format!(
            "{name} was answered with {why}; asking with another key"
        )),
    }
}

/// Name and uid of a request; none that does not fit into a path.
fn identified(csr: &Value) -> Option<(&str, &str)> {
    let name = object::text(csr, &["metadata", "name"]);
    let uid = object::text(csr, &["metadata", "uid"]);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_one = object::text(csr, &["kind"]) == "CertificateSigningRequest";
    (is_one && !uid.is_empty() && !name.is_empty() && name.chars().all(fits)).then_some((name, uid))
}

/// client-go's ensureCompatible: another request would bring a certificate that does not
/// fit our key.
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
        false => Err("its key is another one".to_owned()),
    }
}

/// The chain, if its first certificate is one for us.
fn issued(request: &SigningRequest, chain: &str, now: Wall) -> Result<String, String> {
    let pem = STANDARD.decode(chain).map_err(|_| "what is not base64")?;
    let pem = String::from_utf8(pem).map_err(|_| "what is not PEM")?;
    let leaf = Leaf::of_pem(pem.as_bytes()).ok_or("what is no certificate")?;
    if leaf.public_key != request.wanted.public_key {
        return Err("a certificate for another key".to_owned());
    }
    if !satisfies(&leaf, &request.wanted.subject) {
        let name = leaf.subject.common_name;
        return Err(format!("a certificate for {name:?}"));
    }
    if leaf.not_after < now {
        let until = leaf.not_after.time();
        return Err(format!(
            "a certificate that expired at {until}, clock says {}",
            now.time()
        ));
    }
    Ok(pem)
}

fn cannot_ask(refused: &Refused) -> String {
    let advice = match refused.code {
        401 => "; is the bootstrap token still valid, and this board's clock right?",
        403 => {
            "; kubeadm and k3s let bootstrap tokens and nodes do this: see ClusterRole \
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
    format!("cannot ask for one: {code} {reason}: {message}{advice}")
}
