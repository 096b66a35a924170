//! kubeadm's ConfigMap `kube-public/cluster-info`: a kubeconfig without credentials, and its
//! signatures.
//!
//! Upstream: `cmd/kubeadm/app/discovery/token/token.go`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::message::{Accept, Request};
use super::{json, object};

/// Path of the ConfigMap.
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";

/// The answer to [`cluster_info`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The signed bytes.
    pub kubeconfig: String,
    /// `data`, with the signatures.
    data: Value,
}

/// The cluster of a `cluster-info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// `server`: a URL, not checked.
    pub server: String,
    /// `certificate-authority-data`, decoded: PEM text, not checked.
    pub ca: Vec<u8>,
}

/// The request for the ConfigMap. Its reader must be anonymous: kubeadm's RoleBinding names the
/// user system:anonymous alone, and an authenticated user gets 403.
pub fn cluster_info() -> Request {
    Request::get(CLUSTER_INFO.to_owned(), Accept::Object)
}

impl ClusterInfo {
    /// Parses the ConfigMap; `None` if it has no kubeconfig.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut map = json::parse(body)?;
        let data = map.get_mut("data")?.take();
        let kubeconfig = object::text(&data, &["kubeconfig"]).to_owned();
        (!kubeconfig.trim().is_empty()).then_some(Self { kubeconfig, data })
    }

    /// The signature for the token of this id.
    pub fn signature(&self, id: &str) -> Option<&str> {
        let key = format!("jws-kubeconfig-{id}");
        Some(object::text(&self.data, &[&key])).filter(|signature| !signature.is_empty())
    }
}

/// The cluster of the parsed kubeconfig: the one with the empty name, as kubeadm writes it, or else
/// that of the current context.
pub fn cluster(kubeconfig: &Value) -> Result<Cluster, String> {
    let named = |list: &str, name: &str| {
        let entries = object::list(kubeconfig, &[list]).iter();
        let mut entries = entries.filter(|entry| object::text(entry, &["name"]) == name);
        match (entries.next(), entries.next()) {
            (Some(_), Some(_)) => Err(format!("{list} has the name {name:?} twice")),
            (entry, _) => Ok(entry),
        }
    };
    let entry = match named("clusters", "")? {
        Some(entry) => entry,
        None => {
            let current = object::text(kubeconfig, &["current-context"]);
            let context = named("contexts", current)?.filter(|_| !current.is_empty());
            let name = context.map_or("", |c| object::text(c, &["context", "cluster"]));
            let entry = named("clusters", name)?.filter(|_| !name.is_empty());
            entry.ok_or("it has no cluster of the empty name, and no current context")?
        }
    };
    let text = |field| match object::text(entry, &["cluster", field]) {
        "" => Err(format!("its cluster has no {field}")),
        text => Ok(text),
    };
    let data = text("certificate-authority-data")?;
    let mut base64 = data.as_bytes().to_vec();
    base64.retain(|b| !b.is_ascii_whitespace());
    let ca = STANDARD.decode(base64);
    Ok(Cluster {
        server: text("server")?.to_owned(),
        ca: ca.map_err(|_| "its certificate-authority-data is not base64")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::yaml;

    #[test]
    fn a_config_map_without_a_kubeconfig_is_none() {
        for body in [
            "",
            "<html>",
            "[]",
            r#"{"kind": "ConfigMap"}"#,
            r#"{"data": null}"#,
            r#"{"data": {"kubeconfig": " \n"}}"#,
            r#"{"data": {"kubeconfig": ["x"]}}"#,
        ] {
            assert_eq!(ClusterInfo::parse(body.as_bytes()), None, "{body}");
        }
        let body = r#"{"data": {"kubeconfig": "x", "jws-kubeconfig-abcdef": "a..b",
            "jws-kubeconfig-number": 7, "jws-kubeconfig-empty": ""}}"#;
        let info = ClusterInfo::parse(body.as_bytes()).unwrap();
        assert_eq!(info.kubeconfig, "x");
        assert_eq!(info.signature("abcdef"), Some("a..b"));
        for id in ["zzzzzz", "number", "empty", ""] {
            assert_eq!(info.signature(id), None, "{id}");
        }
    }

    #[test]
    fn the_cluster_has_the_empty_name_or_is_that_of_the_current_context() {
        let a = "{name: '', cluster: {server: https://a, certificate-authority-data: Y2E=}}";
        let b = "{name: b, cluster: {server: https://b, certificate-authority-data: Y2E=}}";
        let current = "current-context: c\ncontexts: [{name: c, context: {cluster: b}}]";
        let none = Err("it has no cluster of the empty name, and no current context");
        for (document, want) in [
            (&*format!("clusters: [{a}]\ncontexts: null\nusers: null"), Ok("https://a")),
            // Two clusters: kubeadm takes the one without a name.
            (&format!("clusters: [{b}, {a}]\n{current}"), Ok("https://a")),
            (&format!("clusters: [{b}]\n{current}"), Ok("https://b")),
            (&format!("clusters: [{a}, {a}]"), Err("clusters has the name \"\" twice")),
            (&format!("clusters: [{b}]"), none),
            ("{}", none),
            ("null", none),
            (
                "clusters: [{cluster: {certificate-authority-data: Y2E=}}]",
                Err("its cluster has no server"),
            ),
            (
                "clusters: [{cluster: {server: https://a}}]",
                Err("its cluster has no certificate-authority-data"),
            ),
            (
                "clusters: [{cluster: {server: https://a, certificate-authority-data: '%'}}]",
                Err("its certificate-authority-data is not base64"),
            ),
        ] {
            let found = cluster(&yaml::parse(document).unwrap());
            let server = found.as_ref().map(|found| found.server.as_str());
            assert_eq!(server.map_err(String::as_str), want, "{document}");
            if let Ok(found) = found {
                assert_eq!(found.ca, b"ca");
            }
        }
    }
}
