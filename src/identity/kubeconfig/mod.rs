//! Parses a kubeconfig, as kubeadm, k3s and kubectl write it, into checked values.
//!
//! `current-context` selects the cluster and the user. `...-data` wins over a file. A relative path
//! is resolved beside the kubeconfig, a bare name then among systemd's credentials. An unsupported
//! field is an error, because an ignored credential is hard to find. No environment variables and
//! no merging. Every error is one line that starts with the path.

pub mod find;
mod section;

use std::path::Path;

use serde_json::Map;
use zeroize::Zeroizing;

use crate::files::read::read;
use crate::files::yaml;
use crate::wire::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::wire::authorization::Authorization;
use crate::wire::endpoint::Endpoint;
use crate::wire::proxy::Proxy;
use crate::wire::secret::Secret;
use section::Section;

/// Reads a certificate chain and its key; both may be one file. The error starts with the path.
pub fn read_certificate(chain: &Path, key: &Path) -> Result<ClientCertificate, String> {
    let read = |path: &Path| {
        let source = path.display().to_string();
        let bytes = read(path).map_err(|e| format!("{source}: {e}"))?;
        let file = Some(path.to_owned());
        Ok::<Pem, String>(Pem {
            file,
            source,
            bytes,
        })
    };
    Ok(ClientCertificate {
        chain: read(chain)?,
        key: read(key)?,
    })
}

/// Reads a `tokenFile`; the error starts with its path.
pub fn read_token(path: &Path) -> Result<Secret, String> {
    let token = read_word(path, "token")?;
    token.ok_or_else(|| format!("{}: empty", path.display()))
}

/// Reads a file with a node password of k3s; `None` if it is empty. The error starts with its path.
pub fn read_password(path: &Path) -> Result<Option<Secret>, String> {
    read_word(path, "password")
}

/// The one word in a file, if it is not empty; `what` it is.
fn read_word(path: &Path, what: &str) -> Result<Option<Secret>, String> {
    let line = |e: String| format!("{}: {e}", path.display());
    let bytes = Zeroizing::new(read(path).map_err(line)?);
    let text = str::from_utf8(&bytes).map_err(|_| line("not UTF-8 text".into()))?;
    match text.trim() {
        "" => Ok(None),
        word => checked(word, what).map(Some).map_err(line),
    }
}

fn checked(word: &str, what: &str) -> Result<Secret, String> {
    match word.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(Secret::new(word.to_owned())),
        false => Err(format!(
            "the {what} has a blank or a control character in it"
        )),
    }
}

/// Reads a kubeconfig and every file that it names. `credentials` is the folder of systemd's
/// credentials.
pub fn load(path: &Path, credentials: Option<&Path>) -> Result<ApiConfig, String> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let folders: Vec<&Path> = [beside].into_iter().chain(credentials).collect();
    read(path)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".into()))
        .and_then(|text| parse(&text, &folders))
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Parses the text of a kubeconfig; [`find`] resolves the relative paths in it.
pub fn parse(text: &str, folders: &[&Path]) -> Result<ApiConfig, String> {
    let document = yaml::parse(text)?;
    let top = Section::new("", &document)?;
    if let Some(kind) = top.text("kind")?
        && kind != "Config"
    {
        return Err(format!("kind is {kind}; a kubeconfig has kind: Config"));
    }
    for list in ["clusters", "users", "contexts"] {
        top.unique(list)?;
    }
    let Some(current) = top.text("current-context")? else {
        let known = top.names("contexts").join(", ");
        return Err(format!(
            "current-context is missing; set it to one of: {known}"
        ));
    };
    let context = top.named("contexts", "context", current, "current-context")?;
    let Some(cluster) = context.text("cluster")? else {
        return Err(format!("{} has no cluster", context.name));
    };
    let cluster = top.named("clusters", "cluster", cluster, &context.name)?;
    let no_user = Map::new();
    let user = match context.text("user")? {
        Some(user) => top.named("users", "user", user, &context.name)?,
        None => Section {
            name: "users".into(),
            map: &no_user,
            folders,
        },
    };
    let cluster = Section { folders, ..cluster };
    let user = Section { folders, ..user };
    user.refuse(&[
        "exec",
        "auth-provider",
        "as",
        "as-uid",
        "as-groups",
        "as-user-extra",
    ])?;

    let Some(server) = cluster.text("server")? else {
        return Err(format!("{}.server is missing", cluster.name));
    };
    let endpoint = Endpoint::parse(server).map_err(|e| format!("{}.server: {e}", cluster.name))?;
    let ca = cluster.pem("certificate-authority")?;
    let insecure = cluster.flag("insecure-skip-tls-verify")?;
    if insecure && ca.is_some() {
        return Err(format!(
            "{} has both certificate-authority and insecure-skip-tls-verify; remove the latter",
            cluster.name
        ));
    }
    let proxy = match cluster.text("proxy-url")? {
        Some(_) if !endpoint.tls => Err("is for https servers alone; remove it".into()),
        Some(url) => Proxy::parse(url).map(Some),
        None => Ok(None),
    };
    let proxy = proxy.map_err(|e| format!("{}.proxy-url: {e}", cluster.name))?;
    Ok(ApiConfig {
        endpoint,
        proxy,
        ca,
        insecure,
        tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
        certificate: certificate(&user)?,
        authorization: authorization(&user)?,
        resolver: None,
    })
}

fn certificate(user: &Section<'_>) -> Result<Option<ClientCertificate>, String> {
    let chain = user.pem("client-certificate")?;
    let key = user.pem("client-key")?;
    match (chain, key) {
        (Some(chain), Some(key)) => Ok(Some(ClientCertificate { chain, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!(
            "{} has a client-certificate but no client-key",
            user.name
        )),
        (None, Some(_)) => Err(format!(
            "{} has a client-key but no client-certificate",
            user.name
        )),
    }
}

fn authorization(user: &Section<'_>) -> Result<Option<Authorization>, String> {
    // As in client-go, tokenFile wins over token.
    let file = user.text("tokenFile")?.map(|file| user.file(file));
    let token = match (&file, user.text("token")?) {
        (Some(path), _) => {
            Some(read_token(path).map_err(|e| format!("{}.tokenFile {e}", user.name))?)
        }
        (None, Some(token)) => {
            Some(checked(token.trim(), "token").map_err(|e| format!("{}: {e}", user.name))?)
        }
        (None, None) => None,
    };
    let username = user.text("username")?;
    let password = user.text("password")?;
    match (token, username) {
        (Some(_), Some(_)) => Err(format!(
            "{} has both a token and a username; keep one",
            user.name
        )),
        (Some(token), None) => Ok(Some(Authorization::Bearer { token, file })),
        (None, Some(username)) if username.contains(':') => {
            Err(format!("{}.username has a colon in it", user.name))
        }
        (None, Some(username)) => Ok(Some(Authorization::Basic {
            username: username.to_owned(),
            password: Secret::new(password.unwrap_or("").to_owned()),
        })),
        (None, None) if password.is_some() => {
            Err(format!("{} has a password but no username", user.name))
        }
        (None, None) => Ok(None),
    }
}
