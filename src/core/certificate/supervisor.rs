//! The request to the supervisor of k3s and rke2, which signs in its response.
//!
//! `nodelet join` sends it with a token, a renewal with the held certificate; the Node must exist
//! then. Both send the node password, which proves that the name is this board's.
//! Upstream: k3s `pkg/server/handlers/handlers.go`, `pkg/nodepassword/validate.go`.

use zeroize::Zeroizing;

use super::issued::usable;
use super::{Certificate, State, Step};
use crate::core::instant::Now;
use crate::kube::message::{Accept, Method, Request, Response};
use crate::kube::text::without_remedy;
use crate::kube::time::Wall;
use crate::kube::x509::SigningRequest;

/// rke2 answers this path, too. Where the body is no request, the server answers with a key that all
/// boards share.
const CLIENT_KUBELET: &str = "/v1-k3s/client-kubelet.crt";
/// Headers with the name of the Node and its password.
pub const NODE_NAME: &str = "k3s-node-name";
/// See [`NODE_NAME`].
pub const NODE_PASSWORD: &str = "k3s-node-password";

/// What is wrong with a server that ignores the request.
const SHARED_KEY: &str = "the server made the key itself, and all boards share it; upgrade k3s to \
                          v1.31.7, v1.32.2 or newer";

/// The request for a certificate. The client adds credentials and headers.
pub fn request(signed: &SigningRequest) -> Request {
    Request {
        method: Method::Post,
        path: CLIENT_KUBELET.to_owned(),
        accept: Accept::Object,
        body: signed.der.clone(),
    }
}

/// What helps a board whose node password the server does not have. A new password does not: the
/// server accepts the first one for a name until its Secret is deleted.
pub fn restore_password(node_name: &str) -> String {
    format!(
        "restore /etc/credstore/nodelet.k3s-password and restart nodelet, or kubectl delete node \
         {node_name}, kubectl -n kube-system delete secret {node_name}.node-password.k3s, and \
         nodelet join --force"
    )
}

/// The chain of the issued certificate, PEM; or else one line that may end with a remedy.
pub fn issued(signed: &SigningRequest, response: Response, now: Wall) -> Result<String, String> {
    let Err(mut refused) = response.accepted() else {
        let chain = Zeroizing::new(String::from_utf8(response.body).unwrap_or_default());
        if chain.contains("PRIVATE KEY") {
            return Err(SHARED_KEY.to_owned());
        }
        return match usable(signed, &chain, now) {
            Ok(()) => Ok(chain.to_string()),
            Err(why) => Err(format!(
                "the supervisor sent an unusable certificate: {why}"
            )),
        };
    };
    if refused.message.is_empty() {
        plain(&response.body).clone_into(&mut refused.message);
    }
    // The remedy follows the first semicolon of a line.
    refused.message = refused.message.replace("; ", ", ");
    let says = |word| refused.message.contains(word);
    let is_password = refused.code == 403 && (says("password") || says("hash"));
    let line = format!("the supervisor answers {refused}");
    let remedy = match refused.code {
        _ if is_password => {
            let name = signed.wanted.subject.node_name().unwrap_or_default();
            "the server has another password for this name: use nodelet join --node-name, or "
                .to_owned()
                + &restore_password(name)
        }
        400..429 => "nodelet join --force with a token of k3s token create".to_owned(),
        _ => return Err(line),
    };
    // Without the advice for a request to the API server.
    Err(format!("{}; {remedy}", without_remedy(&line)))
}

/// The one line of a refusal that is no Status; empty for a page or another document.
fn plain(body: &[u8]) -> &str {
    let text = str::from_utf8(body).unwrap_or_default().trim();
    let is_line = text.len() <= 300 && !text.starts_with(['<', '{']);
    match is_line && !text.contains(char::is_control) {
        true => text,
        false => "",
    }
}

impl Certificate {
    pub(super) fn on_supervisor(
        &mut self,
        signed: &SigningRequest,
        response: Response,
        now: Now,
        random: u32,
    ) -> Step {
        let retry_after = response.retry_after;
        match issued(signed, response, now.wall) {
            Ok(chain) => self.continue_with(State::Issued(chain), now.mono),
            Err(line) => self.refused(line, retry_after, now.mono, random),
        }
    }
}
