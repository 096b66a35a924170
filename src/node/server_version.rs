//! `--kubelet-version=server`: the version of the API server, which the Node reports as the
//! kubelet's.
//!
//! kubeadm refuses to upgrade a cluster with kubelets more than three minor versions behind the
//! target. The Nodes of boards that nobody updates follow the server instead. `GET /version` is
//! sent before the registration, and before the next request of the Node after an outage or after a
//! write of the Node. By default the Node is written every five minutes. So nodelet also notices an
//! upgrade of several servers one by one, which causes no outage.
//! Upstream: kubeadm `app/phases/upgrade/policy.go` detectTooOldKubelets.

use crate::config::kubelet_version;
use crate::kube::json;
use crate::kube::message::{Accept, Answer, Request, RequestError, accepted};
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::version::Version;

/// The path of the server's version.
pub const PATH: &str = "/version";

/// When the server's version is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerVersion {
    /// Another version is reported: nothing is read.
    Off,
    /// The version is known. It is read again after the next write of the Node, or after an outage.
    Idle,
    /// The version is read before the next request of the Node.
    Due,
    /// The last attempt failed. The next one follows a registration, a write or an outage.
    Failed,
}

impl ServerVersion {
    /// Nothing is read unless `--kubelet-version=server`.
    pub fn new(is_reported: bool) -> Self {
        if is_reported { Self::Due } else { Self::Off }
    }

    /// Whether [`Self::request`] comes before the Node's next request.
    pub fn is_due(&self) -> bool {
        *self == Self::Due
    }

    /// Reads the version before the next request of the Node: the server may have another version
    /// now.
    pub fn read_again(&mut self) {
        if *self != Self::Off {
            *self = Self::Due;
        }
    }

    /// Whether the version is to be reported and could not be read.
    pub fn has_failed(&self) -> bool {
        *self == Self::Failed
    }

    /// The Node was created or adopted: a read that failed is tried once more.
    pub fn registered(&mut self) {
        if *self == Self::Failed {
            *self = Self::Due;
        }
    }

    /// The request.
    pub fn request(&self) -> Request {
        Request::get(PATH.to_owned(), Accept::Object)
    }

    /// Takes the answer. Returns the kubeletVersion to report. After an error the version that was
    /// reported so far stays.
    pub fn on_response(&mut self, answer: Answer) -> Result<String, RequestError> {
        let version = git_version(answer);
        // No second attempt at once: it would delay the request of the Node.
        *self = if version.is_ok() { Self::Idle } else { Self::Failed };
        version
    }
}

fn git_version(answer: Answer) -> Result<String, RequestError> {
    let response = accepted(answer)?;
    let body = json::parse(&response.body).unwrap_or_default();
    let text = object::text(&body, &["gitVersion"]);
    let version = Version::parse(text);
    let invalid = || format!("gitVersion {text:?} is not a version");
    version.map(kubelet_version).ok_or_else(|| Fault::from(invalid()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::message::answered;

    /// A failure delays no registration, and is repeated after it.
    #[test]
    fn the_servers_version_is_read_at_the_start_and_after_an_outage() {
        let version = |text: &str| answered(200, json!({"gitVersion": text}));
        for (answer, want) in [
            (version("v1.38.0"), Some("v1.38.0")),
            (version("v1.33.4+k3s1"), Some("v1.33.4")),
            (version("v1.31.5-gke.1068000"), Some("v1.31.5")),
            (version("next"), None),
            (version(""), None),
            (answered(200, json!([])), None),
            (answered(403, json!({"reason": "Forbidden"})), None),
            (Err("slow".into()), None),
        ] {
            let mut reader = ServerVersion::new(true);
            assert!(reader.is_due());
            assert_eq!(reader.request().path, "/version");
            let want = want.map(|text| format!("{text}-nodelet.{}", env!("CARGO_PKG_VERSION")));
            assert_eq!(reader.on_response(answer.clone()).ok(), want);
            assert!(!reader.is_due(), "{answer:?}");
            reader.read_again();
            assert!(reader.is_due(), "{answer:?}");
            assert_eq!(reader.on_response(answer.clone()).ok(), want);
            assert!(!reader.is_due(), "{answer:?}");
            reader.registered();
            assert_eq!(reader.is_due(), want.is_none(), "{answer:?}");
        }
    }

    #[test]
    fn another_version_is_reported_without_a_request() {
        let mut reader = ServerVersion::new(false);
        reader.read_again();
        reader.registered();
        assert!(!reader.is_due());
    }
}
