//! The request to the supervisor of k3s and rke2, which signs in its response.
//!
//! `nodelet join` sends it with a token. A renewal sends it with the held certificate, and the Node
//! must exist then. Each request has the node password, which proves that the name is this board's.
//! Upstream: k3s `pkg/server/handlers/handlers.go`, `pkg/nodepassword/validate.go`.

use zeroize::Zeroizing;

use crate::credentials::certificate::kind::usable;
use crate::kube::message::{Accept, Method, Request, Response};
use crate::kube::refusals::{misses_node, refuses_password};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{CertificatePurpose, Leaf, SigningRequest};

/// The path for a client certificate, also of rke2. If the body is no signing request, the server
/// answers with a key that all boards share.
const CLIENT_KUBELET: &str = "/v1-k3s/client-kubelet.crt";
/// The path for a serving certificate. The server takes name and addresses from the headers, and
/// its certificate has no organization. The subject of the signing request is ignored.
const SERVING_KUBELET: &str = "/v1-k3s/serving-kubelet.crt";
/// Headers with the name of the Node and its password.
pub const NODE_NAME: &str = "k3s-node-name";
/// See [`NODE_NAME`].
pub const NODE_PASSWORD: &str = "k3s-node-password";
/// Header with the addresses of the Node, separated by commas, for a serving certificate.
pub const NODE_IP: &str = "k3s-node-ip";

/// What helps where the supervisor sees no credentials, although the board has a certificate.
const NO_CERTIFICATE: &str = "the server saw no client certificate: is a proxy in between that \
                              ends TLS? let it pass TLS through, or give the server's own \
                              address: nodelet join --force https://SERVER:PORT";

/// The request for a certificate. The client adds credentials and headers.
pub fn request(signed: &SigningRequest) -> Request {
    Request {
        method: Method::Post,
        path: match signed.purpose {
            CertificatePurpose::SERVING => SERVING_KUBELET.to_owned(),
            _ => CLIENT_KUBELET.to_owned(),
        },
        accept: Accept::Object,
        body: signed.der.clone(),
    }
}

/// The begin of the lifetime of a certificate. k3s writes the creation time of its CA as
/// `notBefore`, so the lifetime is counted from `arrival`; of a `held` one from its first arrival.
/// An arrival after the expiry comes from a wrong clock: then the lifetime is counted from 1970,
/// and the certificate is due at once.
pub(super) fn begin(held: Option<&Leaf>, leaf: &Leaf, arrival: Wall) -> Wall {
    let is_held =
        |held: &&Leaf| held.public_key == leaf.public_key && held.not_after == leaf.not_after;
    let arrival = held.filter(is_held).map_or(arrival, |held| held.not_before);
    Some(arrival).filter(|at| *at < leaf.not_after).unwrap_or_default()
}

/// The remedy if the server has another node password for this name. A new password does not help:
/// the server accepts only the first one until its Secret is deleted.
pub fn restore_password(node_name: &str) -> String {
    let delete = forget_password(node_name);
    format!(
        "restore /etc/credstore/nodelet.k3s-password and restart nodelet, or kubectl delete node \
         {node_name}, {delete}, and nodelet join --force"
    )
}

/// The command that deletes the node password of this name from the server. k3s and rke2 end the
/// name of the Secret with their own name (`getSecretName` in pkg/nodepassword of k3s).
pub fn forget_password(node_name: &str) -> String {
    format!(
        "kubectl -n kube-system delete secret --ignore-not-found {node_name}.node-password.k3s \
         {node_name}.node-password.rke2"
    )
}

/// The chain of the issued certificate, PEM.
pub fn issued(signed: &SigningRequest, response: Response, now: Wall) -> Result<String, Fault> {
    let Err(mut refused) = response.accepted() else {
        let chain = Zeroizing::new(String::from_utf8(response.body).unwrap_or_default());
        if chain.contains("PRIVATE KEY") {
            // An older server ignores the signing request.
            let what = "the server made the key itself, and all boards share it";
            return Err(Fault::new(what, "upgrade k3s to v1.31.7, v1.32.2 or newer"));
        }
        return match usable(signed, &chain, now) {
            Ok(()) => Ok(chain.to_string()),
            Err(why) => Err(why.at("the supervisor sent an unusable certificate")),
        };
    };
    if refused.message.is_empty() {
        plain(&response.body).clone_into(&mut refused.message);
    }
    let remedy = match refused.code {
        _ if refuses_password(&refused) => {
            let subject = &signed.info.subject;
            let name = subject.node_name().unwrap_or(&subject.common_name);
            "the server has another password for this name: use nodelet join --node-name, or "
                .to_owned()
                + &restore_password(name)
        }
        // The server saw no credentials. Wrong credentials are 401.
        403 => NO_CERTIFICATE.to_owned(),
        _ if misses_node(&refused) => {
            "the Node must exist first: see the line \"node:\" of the log".to_owned()
        }
        400..429 => "nodelet join --force with a token of k3s token create".to_owned(),
        _ => String::new(),
    };
    let fault = Fault::from(refused);
    // `fault` has the remedy of a request to the API server. It is used only if there is no other
    // one: a busy supervisor is like a busy API server.
    let remedy = if remedy.is_empty() { fault.remedy } else { remedy };
    Err(Fault::new(format!("the supervisor answers {}", fault.what), remedy))
}

/// The one line of a refusal that is no Status; empty for a page or another document.
fn plain(body: &[u8]) -> &str {
    let text = str::from_utf8(body).unwrap_or_default().trim();
    let is_line = text.len() <= 300 && !text.starts_with(['<', '{']);
    if is_line && !text.contains(char::is_control) { text } else { "" }
}
