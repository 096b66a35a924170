//! kubeconfigs.

use base64::Engine as _;

use crate::pki::Identity;

/// Who the user of a kubeconfig is.
#[derive(Debug)]
pub enum Credentials<'a> {
    /// With a client certificate.
    Certificate(&'a Identity),
    /// With a bearer token.
    Token(&'a str),
}

pub(crate) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A kubeconfig with one cluster, one user and one context, all called `double`; `ca` is PEM.
#[must_use]
pub fn kubeconfig(url: &str, ca: &str, credentials: &Credentials<'_>) -> String {
    let user = match credentials {
        Credentials::Certificate(identity) => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            base64(&identity.cert_pem),
            base64(&identity.key_pem)
        ),
        Credentials::Token(token) => format!("    token: {token}\n"),
    };
    let ca = format!("    certificate-authority-data: {}\n", base64(ca));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: double\n  cluster:\n    server: {url}\n{ca}users:\n- name: double\n  user:\n{user}contexts:\n- name: double\n  context:\n    cluster: double\n    user: double\ncurrent-context: double\npreferences: {{}}\n"
    )
}
