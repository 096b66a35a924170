//! The request to the supervisor of k3s and rke2, which signs in its response.
//!
//! `nodelet join` sends it with a token, a renewal with the held certificate; the Node must exist
//! then. Both send the node password, which proves that the name is this board's.
//! Upstream: k3s `pkg/server/handlers/handlers.go`, `pkg/nodepassword/validate.go`.

use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use zeroize::Zeroizing;

use super::issued::usable;
use super::{Certificate, State, Step};
use crate::core::instant::Now;
use crate::kube::message::{Accept, Method, Outcome, Request, Response};
use crate::kube::time::Wall;
use crate::kube::x509::SigningRequest;

/// rke2 answers this path, too. k3s, without a body that is a request, sends a key that all boards
/// share.
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
    let der = CertificateSigningRequestDer::from_pem_slice(signed.pem.as_bytes());
    Request {
        method: Method::Post,
        path: CLIENT_KUBELET.to_owned(),
        accept: Accept::Object,
        body: der.map(|der| der.to_vec()).unwrap_or_default(),
    }
}

/// The chain of the issued certificate, PEM; or else one line that may end with a remedy.
pub fn issued(signed: &SigningRequest, response: Response, now: Wall) -> Result<String, String> {
    let Err(refused) = response.accepted() else {
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
    let line = format!(
        "the supervisor answers {} {}",
        refused.code, refused.message
    );
    let name = signed.wanted.subject.node_name().unwrap_or_default();
    let says = |word| refused.message.contains(word);
    Err(match refused.code {
        403 if says("password") || says("hash") => format!(
            "{line}; another board has, or had, this name: use --node-name, or kubectl delete node \
             {name} and kubectl -n kube-system delete secret {name}.node-password.k3s"
        ),
        400..429 => line + "; nodelet join --force with a token of k3s token create",
        _ => line,
    })
}

impl Certificate {
    pub(super) fn on_supervisor(
        &mut self,
        signed: SigningRequest,
        outcome: Outcome,
        now: Now,
        random: u32,
    ) -> Step {
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => {
                self.state = State::Signed(signed);
                return Step::Silent(why);
            }
        };
        let retry_after = response.retry_after.unwrap_or_default();
        match issued(&signed, response, now.wall) {
            Ok(chain) => self.continue_with(State::Issued(chain), now.mono),
            Err(line) => {
                let step = self.failed(line, now.mono, random);
                let pause = retry_after.min(self.rules.last_backoff());
                self.due = self.due.max(now.mono.after(pause));
                step
            }
        }
    }
}
