//! The CertificateSigningRequest (CSR): its creation, its GETs by name, and what they return.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::credentials::certificate::kind::usable;
use crate::kube::delay::Backoff;
use crate::kube::instant::Mono;
use crate::kube::json;
use crate::kube::message::{Accept, Refused, Request};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{RequestInfo, SigningRequest};

/// Delay before the first GET of a CSR, because a signer answers at once; then doubled.
pub(super) const FIRST_POLL: Duration = Duration::from_millis(100);

pub(super) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The remedy of an approved CSR without a certificate.
pub(super) const SIGNER: &str = "see the signer's log (kube-controller-manager)";
/// The remedy of a CSR that is not approved.
pub(super) const APPROVE: &str =
    "approve the next one: kubectl get csr, then kubectl certificate approve NAME";
/// What follows a CSR whose certificate cannot be used.
const ANOTHER_KEY: &str = "requesting with another key";

/// A CSR on the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waiting {
    pub(super) request: SigningRequest,
    pub(super) name: String,
    /// `None` until the first read if the create found a CSR of this name, perhaps another
    /// client's.
    pub(super) uid: Option<String>,
    pub(super) since: Mono,
    /// Time from a read to the next one.
    pub(super) polls: Backoff,
    /// The last read has shown an approval.
    pub(super) is_approved: bool,
    /// The missing approval was logged.
    pub(super) logged: bool,
}

impl Waiting {
    /// When it is read again: after `most` at the latest, and once more just before it is given up.
    pub(super) fn next_read(&mut self, most: Duration, limit: Duration, now: Mono) -> Mono {
        let due = now.after(self.polls.next_delay().min(most));
        let last = self.since.after(limit.saturating_sub(Duration::from_secs(1)));
        if now < last { due.min(last) } else { due }
    }
}

/// The request that creates the CSR. Without `names_by_key` the server generates its name.
pub(super) fn create(request: &SigningRequest, names_by_key: bool) -> Request {
    let metadata =
        if names_by_key { json!({"name": request.name}) } else { json!({"generateName": "csr-"}) };
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": {
            "request": STANDARD.encode(request.pem()),
            "signerName": request.purpose.signer,
            "usages": request.usages,
        },
    });
    Request::post(CSRS, Accept::Object, &body)
}

/// The request that gets the CSR `name`.
pub(super) fn get(name: &str) -> Request {
    Request::get(format!("{CSRS}/{name}"), Accept::Object)
}

/// The state of the CSR after a read.
pub(super) enum CsrState {
    /// Not signed yet, with its uid, and whether it is approved.
    Pending(String, bool),
    /// Signed, with the chain, PEM.
    Issued(String),
    /// It will not be signed. The next CSR may have the same key.
    Gone(Fault),
    /// The certificate is unusable, or the CSR is another client's. The next CSR needs a new key.
    Unusable(Fault),
    /// The server refused the read.
    Refused(Refused),
}

/// The state of the CSR by the response to its read.
pub(super) fn state(waiting: &Waiting, accepted: Result<&[u8], &Refused>, now: Wall) -> CsrState {
    let Waiting { request, name, uid, .. } = waiting;
    let body = match accepted {
        Ok(body) => body,
        Err(refused) if refused.is_missing("certificatesigningrequests", name) => {
            let what = format!("{name} was deleted before it was signed");
            return CsrState::Gone(Fault::new(what, "requesting again"));
        }
        Err(refused) => return CsrState::Refused(refused.clone()),
    };
    let csr = json::parse(body).unwrap_or_default();
    let Some((_, found)) = identified(&csr).filter(|(found, _)| found == name) else {
        return CsrState::Refused(Refused::nonsense("a CertificateSigningRequest"));
    };
    if uid.as_deref().is_some_and(|uid| uid != found) {
        let what = format!("{name} was replaced by another CSR of that name");
        return CsrState::Gone(Fault::new(what, "requesting again"));
    }
    if let Err(why) = is_compatible(request, &csr) {
        let what = format!("{name} exists already and is not ours: {why}");
        return CsrState::Unusable(Fault::new(what, ANOTHER_KEY));
    }
    let mut approved = false;
    for condition in object::list(&csr, &["status", "conditions"]) {
        let [kind, reason, message] =
            ["type", "reason", "message"].map(|key| object::text(condition, &[key]));
        let (what, advice) = match kind {
            "Denied" => ("was denied", "ask the CSR approver"),
            "Failed" => ("could not be signed", SIGNER),
            _ => {
                approved |= kind == "Approved";
                continue;
            }
        };
        let message: String = message.chars().take(200).collect();
        let what = format!("{name} {what}: {reason}: {message}");
        let remedy = format!("{advice}, then: kubectl delete csr {name}");
        return CsrState::Gone(Fault::new(what, remedy));
    }
    let chain = object::text(&csr, &["status", "certificate"]);
    if !approved || chain.is_empty() {
        return CsrState::Pending(found.to_owned(), approved);
    }
    match issued(request, chain, now) {
        Ok(chain) => CsrState::Issued(chain),
        Err(why) => {
            let why = why.at(format_args!("{name} has an unusable certificate"));
            CsrState::Unusable(why.or_remedy(ANOTHER_KEY))
        }
    }
}

/// The chain in base64, if it is [`usable`].
fn issued(request: &SigningRequest, chain: &str, now: Wall) -> Result<String, Fault> {
    let pem = STANDARD.decode(chain).map_err(|_| "invalid base64")?;
    let pem = String::from_utf8(pem).map_err(|_| "invalid PEM")?;
    usable(request, &pem, now).map(|()| pem)
}

/// Name and uid of a CSR; `None` if the name does not fit into a URL path.
pub(super) fn identified(csr: &Value) -> Option<(&str, &str)> {
    let name = object::text(csr, &["metadata", "name"]);
    let uid = object::text(csr, &["metadata", "uid"]);
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_one = object::text(csr, &["kind"]) == "CertificateSigningRequest";
    (is_one && !uid.is_empty() && !name.is_empty() && name.chars().all(fits)).then_some((name, uid))
}

/// client-go's ensureCompatible: the certificate of another client's CSR does not fit our key.
fn is_compatible(ours: &SigningRequest, csr: &Value) -> Result<(), String> {
    let signer = object::text(csr, &["spec", "signerName"]);
    let wanted = ours.purpose.signer;
    if !signer.is_empty() && signer != wanted {
        return Err(format!("csr signerNames differ: {wanted}, {signer}"));
    }
    let pem = STANDARD.decode(object::text(csr, &["spec", "request"])).ok();
    let info = pem.and_then(|pem| RequestInfo::of_pem(&pem));
    let info = info.ok_or("its request cannot be read")?;
    if info.subject != ours.info.subject {
        return Err("csr subjects differ".to_owned());
    }
    if info.public_key == ours.info.public_key { Ok(()) } else { Err("its key differs".to_owned()) }
}

/// The fault of a refused create.
pub(super) fn create_error(refused: &Refused) -> Fault {
    let advice = match refused.code {
        401 => "check the bootstrap token and this board's clock",
        403 => {
            "kubeadm and k3s allow it to bootstrap tokens and nodes: see ClusterRole \
             system:node-bootstrapper"
        }
        _ => "",
    };
    let Refused { code, reason, message, .. } = refused;
    Fault::new(format!("cannot create a CSR: {code} {reason}: {message}"), advice)
}
