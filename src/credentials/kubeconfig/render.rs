//! The kubeconfig that is written after a bootstrap or by `nodelet join`, in the kubelet's form.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::client::api_config::{ApiConfig, ClientCertificate, Secret};
use crate::kube::text::Fault;

/// The credentials in a kubeconfig.
pub(crate) enum KubeconfigUser<'a> {
    /// The certificate and its key in this file.
    Pair(&'a Path),
    /// A certificate and its key, in the kubeconfig.
    Inline(&'a ClientCertificate),
    /// A bearer token.
    Token(&'a Secret),
}

/// A kubeconfig with the cluster of `bootstrap`.
///
/// A kubelet drops `tls-server-name` and `proxy-url`, and then cannot connect to a cluster that
/// needs them.
pub(crate) fn render(bootstrap: &ApiConfig, user: &KubeconfigUser<'_>) -> Result<String, Fault> {
    let endpoint = &bootstrap.endpoint;
    let mut cluster = String::new();
    if let Some(ca) = &bootstrap.ca {
        match &ca.file {
            Some(file) => field(&mut cluster, "certificate-authority", &absolute(file)?),
            None => {
                let data = STANDARD.encode(&ca.bytes);
                field(&mut cluster, "certificate-authority-data", &data);
            }
        }
    }
    let server = format!("{endpoint}{}", endpoint.prefix);
    field(&mut cluster, "server", &server);
    if bootstrap.insecure {
        cluster.push_str("    insecure-skip-tls-verify: true\n");
    }
    if let Some(proxy) = &bootstrap.proxy {
        field(&mut cluster, "proxy-url", &proxy.url());
    }
    if let Some(name) = &bootstrap.tls_server_name {
        field(&mut cluster, "tls-server-name", name);
    }
    let mut fields = String::new();
    match user {
        KubeconfigUser::Pair(pair) => {
            let pair = absolute(pair)?;
            field(&mut fields, "client-certificate", &pair);
            field(&mut fields, "client-key", &pair);
        }
        KubeconfigUser::Inline(certificate) => {
            let data = |pem: &[u8]| Zeroizing::new(STANDARD.encode(pem));
            let (chain, key) = (&certificate.chain.bytes, &certificate.key.bytes);
            field(&mut fields, "client-certificate-data", &data(chain));
            field(&mut fields, "client-key-data", &data(key));
        }
        KubeconfigUser::Token(token) => field(&mut fields, "token", token.reveal()),
    }
    let user = Zeroizing::new(fields);
    Ok(format!(
        "apiVersion: v1\nclusters:\n- cluster:\n{cluster}  name: default-cluster\n\
         contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    \
         user: default-auth\n  name: default-context\ncurrent-context: default-context\n\
         kind: Config\nusers:\n- name: default-auth\n  user:\n{}",
        *user
    ))
}

/// Adds a field. A JSON string is a valid YAML string.
fn field(lines: &mut String, name: &str, text: &str) {
    lines.push_str(&format!("    {name}: {}\n", Value::from(text)));
}

fn absolute(path: &Path) -> Result<String, Fault> {
    let absolute = std::path::absolute(path).ok();
    let text = absolute.and_then(|path| path.to_str().map(str::to_owned));
    text.ok_or_else(|| format!("{}: not a valid path for a kubeconfig", path.display()).into())
}
