//! The CertificateSigningRequest: its creation, and its GETs by name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Certificate, SIGNER, State, Waiting, supervisor};
use crate::kube::message::{Accept, Request};

pub(super) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

impl Certificate {
    /// The next request; `None` if [`Self::next`] is a task.
    pub fn request(&self) -> Option<Request> {
        match &self.state {
            State::Signed(request) if self.rules.supervisor => Some(supervisor::request(request)),
            State::Signed(request) => {
                let metadata = match self.rules.rotate {
                    true => json!({"generateName": "csr-"}),
                    false => json!({"name": request.name}),
                };
                let body = json!({
                    "apiVersion": "certificates.k8s.io/v1",
                    "kind": "CertificateSigningRequest",
                    "metadata": metadata,
                    "spec": {
                        "request": STANDARD.encode(request.pem()),
                        "signerName": SIGNER,
                        "usages": request.usages,
                    },
                });
                Some(Request::post(CSRS, Accept::Object, &body))
            }
            State::Waiting(Waiting { name, .. }) => {
                Some(Request::get(format!("{CSRS}/{name}"), Accept::Object))
            }
            State::Idle | State::NotFound | State::Issued(_) => None,
        }
    }
}
