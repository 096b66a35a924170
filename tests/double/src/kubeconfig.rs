//! kubeconfigs.

use base64::Engine as _;

/// How a kubeconfig says who it is: the lines below `user:`.
pub(crate) enum Credentials<'a> {
    Inline { cert: &'a str, key: &'a str },
    Token(&'a str),
}

pub(crate) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Writes a kubeconfig with one cluster, one user and one context, all called `double`.
pub(crate) fn write(url: &str, ca: &str, credentials: &Credentials<'_>) -> String {
    let user = match credentials {
        Credentials::Inline { cert, key } => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            base64(cert),
            base64(key)
        ),
        Credentials::Token(token) => format!("    token: {token}\n"),
    };
    let ca = format!("    certificate-authority-data: {}\n", base64(ca));
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: double\n  cluster:\n    server: {url}\n{ca}users:\n- name: double\n  user:\n{user}contexts:\n- name: double\n  context:\n    cluster: double\n    user: double\ncurrent-context: double\npreferences: {{}}\n"
    )
}
