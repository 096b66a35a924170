//! The supervisor of k3s and rke2, as far as an agent meets it. Written from the source
//! (`pkg/server/handlers`, `pkg/nodepassword`, `pkg/clientaccess`), not from a recording.

use crate::http::{Request, Response};
use crate::kubeconfig::base64;
use crate::pki::{Authority, Validity};
use crate::status;
use serde_json::json;
use std::collections::BTreeMap;

/// A supervisor beside the API.
#[derive(Debug, Clone, Default)]
pub struct Supervisor {
    /// The text of `/cacerts`.
    pub cacerts: String,
    /// The password of user `node`.
    pub password: String,
    /// Tokens of `k3s token create`.
    pub tokens: Vec<String>,
    /// `HTTPSPort`: the port of the API server.
    pub https_port: u16,
    /// A server before v1.31.7 and v1.32.2: it ignores the request and sends a shared key.
    pub is_old: bool,
    /// The Secrets `NAME.node-password.k3s`.
    pub passwords: BTreeMap<String, String>,
    /// How many answers are 503 before the server is ready.
    pub not_ready: usize,
    /// Seconds from the issue of a certificate to its end; `None` is a year.
    pub lifetime: Option<i64>,
    /// Bodies of the next answers with 200 in the place of a certificate.
    pub forged: Vec<String>,
}

/// `notBefore` of each certificate is the birth of the CA, here three years ago.
const BIRTH_OF_CA: i64 = -3 * 365 * 86_400;

impl Supervisor {
    /// Answers a request; `None` if the path is the API's. `node` is the node whose certificate the
    /// client has, and whether its Node exists.
    pub(crate) fn answer(
        &mut self,
        request: &Request,
        node: Option<(&str, bool)>,
        authority: &Authority,
    ) -> Option<Response> {
        let path = request.path();
        if path == "/cacerts" {
            return Some(Response::text(200, &self.cacerts));
        }
        let what = path.strip_prefix("/v1-k3s/")?;
        if self.not_ready > 0 {
            self.not_ready -= 1;
            return Some(refusal(503, "ServiceUnavailable", "not ready"));
        }
        if node.is_none() && !self.knows(request.header("authorization").unwrap_or_default()) {
            return Some(refusal(401, "Unauthorized", "not authorized"));
        }
        Some(match (request.method.as_str(), what) {
            ("GET", "config") => Response::json(
                200,
                &json!({"SupervisorPort": 6443, "HTTPSPort": self.https_port,
                    "IPSECPSK": "a secret of the cluster"}),
            ),
            ("POST", "client-kubelet.crt") => self.sign(request, node, authority),
            _ => refusal(404, "NotFound", "not found"),
        })
    }

    fn knows(&self, authorization: &str) -> bool {
        let pair = base64(&format!("node:{}", self.password));
        let bearer = authorization.strip_prefix("Bearer ").unwrap_or_default();
        authorization == format!("Basic {pair}") || self.tokens.iter().any(|t| t == bearer)
    }

    /// The order of the checks is that of `GetNodeAuthValidator`. The address is in no check.
    fn sign(
        &mut self,
        request: &Request,
        node: Option<(&str, bool)>,
        authority: &Authority,
    ) -> Response {
        let header = |name: &str| request.header(name).unwrap_or_default().to_owned();
        let (name, password) = (header("k3s-Node-Name"), header("k3s-Node-Password"));
        if name.is_empty() || password.is_empty() {
            return refusal(400, "BadRequest", "node name or password not set");
        }
        match node {
            Some((own, _)) if own != name => {
                let message = "header node name does not match auth node name";
                return refusal(400, "BadRequest", message);
            }
            Some((own, false)) => {
                let message = format!("unable to verify node identity: node {own:?} not found");
                return refusal(401, "Unauthorized", &message);
            }
            _ => {}
        }
        let known = self.passwords.entry(name.clone());
        if *known.or_insert_with(|| password.clone()) != password {
            let message = format!(
                "unable to verify password for node {name}: hash does not match: password mismatch"
            );
            return refusal(403, "Forbidden", &message);
        }
        let validity = Validity {
            from: BIRTH_OF_CA,
            until: self.lifetime.unwrap_or(365 * 86_400),
        };
        if !self.forged.is_empty() {
            return Response::text(200, &self.forged.remove(0));
        }
        let name = format!("system:node:{name}");
        let text = match self.is_old {
            true => {
                let identity = authority.client(&name, &["system:nodes"], validity);
                identity.cert_pem + authority.pem() + &identity.key_pem
            }
            false => match authority.sign_for(&request.body, &name, validity) {
                Ok(leaf) => leaf + authority.pem(),
                Err(why) => return refusal(400, "BadRequest", &why),
            },
        };
        Response::text(200, &text)
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let failure = status::failure(code, reason, message, None);
    Response::json(code, &failure.body)
}
