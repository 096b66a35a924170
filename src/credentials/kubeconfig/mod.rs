//! Parses a kubeconfig, as kubeadm, k3s and kubectl write it, into checked values.
//!
//! `current-context` selects the cluster and the user. `...-data` wins over a file. A relative path
//! is resolved beside the kubeconfig, a bare name then among systemd's credentials. An unsupported
//! field is an error, because an ignored credential is hard to find. No environment variables and
//! no merging. Every error is one line that starts with the path.
//!
//! `render` makes the kubeconfig that is written after a bootstrap or by `nodelet join`, in the
//! kubelet's form.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::client::api_config::{
    ApiConfig, Authorization, ClientCertificate, Endpoint, Pem, Proxy, Secret,
};
use crate::client::tls::certificates;
use crate::kube::text::Fault;
use crate::kube::{x509, yaml};
use crate::os::guard::exists;
use crate::os::guard::read;

/// The remedy of a file that has no entries: a power failure can leave the first half of one.
const CUT_OFF: &str = "is the file cut off? Copy it again";

/// Reads a certificate chain and its key. If both are in one file, it is read once: a second read
/// would take time, and might find the next pair of a renewal. The error starts with the path.
pub fn read_certificate(chain: &Path, key: &Path) -> Result<ClientCertificate, Fault> {
    let read_chain = read_pem(chain)?;
    let key = if key == chain { read_chain.clone() } else { read_pem(key)? };
    Ok(ClientCertificate { chain: read_chain, key })
}

/// Reads a file of certificates or a key. The error starts with the path.
pub fn read_pem(path: &Path) -> Result<Pem, Fault> {
    let source = path.display().to_string();
    let bytes = read(path).map_err(|why| why.at(&source))?;
    Ok(Pem { file: Some(path.to_owned()), source, bytes })
}

/// Reads a `tokenFile`; the error starts with its path.
pub fn read_token(path: &Path) -> Result<Secret, Fault> {
    let token = read_word(path, "token")?;
    token.ok_or_else(|| format!("{}: empty", path.display()).into())
}

/// Reads a file with a node password of k3s; `None` if it is empty. The error starts with its path.
pub fn read_password(path: &Path) -> Result<Option<Secret>, Fault> {
    read_word(path, "password")
}

/// The one word in a file; `None` if the file is empty. An error calls the word `what`.
fn read_word(path: &Path, what: &str) -> Result<Option<Secret>, Fault> {
    let at = |why: Fault| why.at(path.display());
    let bytes = Zeroizing::new(read(path).map_err(at)?);
    let text = str::from_utf8(&bytes).map_err(|_| at("not UTF-8 text".into()))?;
    match text.trim() {
        "" => Ok(None),
        word => checked(word, what).map(Some).map_err(at),
    }
}

/// Bytes: largest token or password. It is sent with each request.
const LONGEST_WORD: usize = 64 << 10;

fn checked(word: &str, what: &str) -> Result<Secret, Fault> {
    if word.len() > LONGEST_WORD {
        return Err(format!("the {what} has more than {LONGEST_WORD} bytes").into());
    }
    if word.bytes().all(|b| b.is_ascii_graphic()) {
        Ok(Secret::new(word.to_owned()))
    } else {
        Err(format!("the {what} has a blank or a control character in it").into())
    }
}

/// Where the file is that a path names.
pub type PathResolver<'a> = &'a dyn Fn(&Path) -> PathBuf;

/// Reads a kubeconfig and every file that it names. `credentials` is the folder of systemd's
/// credentials.
pub fn load(path: &Path, credentials: Option<&Path>) -> Result<ApiConfig, Fault> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let folders: Vec<&Path> = [beside].into_iter().chain(credentials).collect();
    load_at(path, &|file| find(file, &folders))
}

/// Reads a kubeconfig of an image, and every file that it names: the one that `at` makes of an
/// absolute path.
pub fn load_below(path: &Path, at: PathResolver<'_>) -> Result<ApiConfig, Fault> {
    let beside = path.parent().unwrap_or(Path::new(""));
    load_at(path, &|file| if file.is_absolute() { at(file) } else { find(file, &[beside]) })
}

fn load_at(path: &Path, at: PathResolver<'_>) -> Result<ApiConfig, Fault> {
    read(path)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "not UTF-8 text".into()))
        .and_then(|text| parse_at(&text, at))
        .map_err(|why| why.at(path.display()))
}

/// Parses the text of a kubeconfig; [`find`] resolves the relative paths in it.
pub fn parse(text: &str, folders: &[&Path]) -> Result<ApiConfig, Fault> {
    parse_at(text, &|file| find(file, folders))
}

fn parse_at(text: &str, at: PathResolver<'_>) -> Result<ApiConfig, Fault> {
    let document = yaml::parse(text)?;
    let top = Section::new("", &document, at)?;
    if let Some(kind) = top.text("kind")?
        && kind != "Config"
    {
        return Err(Fault::new(format!("kind is {kind}"), "a kubeconfig has kind: Config"));
    }
    for list in ["clusters", "users", "contexts"] {
        top.unique(list)?;
    }
    let Some(current) = top.text("current-context")? else {
        return Err(match top.names("contexts").as_slice() {
            [] => Fault::new("current-context and contexts are missing", CUT_OFF),
            known => Fault::new(
                "current-context is missing",
                format!("set it to one of: {}", known.join(", ")),
            ),
        });
    };
    let context = top.named("contexts", "context", current, "current-context")?;
    let Some(cluster) = context.text("cluster")? else {
        return Err(format!("{} has no cluster", context.name).into());
    };
    let cluster = top.named("clusters", "cluster", cluster, &context.name)?;
    let no_user = Map::new();
    let user = match context.text("user")? {
        Some(user) => top.named("users", "user", user, &context.name)?,
        None => Section { name: "users".into(), map: &no_user, at },
    };
    user.refuse(&["exec", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra"])?;

    let Some(server) = cluster.text("server")? else {
        return Err(format!("{}.server is missing", cluster.name).into());
    };
    let endpoint = Endpoint::parse(server).map_err(|why| why.at(cluster.path("server")))?;
    let ca = cluster.pem("certificate-authority")?;
    let insecure = cluster.flag("insecure-skip-tls-verify")?;
    if insecure && ca.is_some() {
        let both = "has both certificate-authority and insecure-skip-tls-verify";
        return Err(Fault::new(format!("{} {both}", cluster.name), "remove the latter"));
    }
    let proxy = match cluster.text("proxy-url")? {
        Some(_) if !endpoint.tls => Err(Fault::new("is for https servers only", "remove it")),
        Some(url) => Proxy::parse(url).map(Some),
        None => Ok(None),
    };
    let proxy = proxy.map_err(|why| why.at(cluster.path("proxy-url")))?;
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

fn certificate(user: &Section<'_>) -> Result<Option<ClientCertificate>, Fault> {
    let chain = user.pem("client-certificate")?;
    let key = user.pem("client-key")?;
    match (chain, key) {
        (Some(chain), Some(key)) => Ok(Some(ClientCertificate { chain, key })),
        (None, None) => Ok(None),
        (Some(_), None) => {
            Err(format!("{} has a client-certificate but no client-key", user.name).into())
        }
        (None, Some(_)) => {
            Err(format!("{} has a client-key but no client-certificate", user.name).into())
        }
    }
}

fn authorization(user: &Section<'_>) -> Result<Option<Authorization>, Fault> {
    // As in client-go, tokenFile wins over token.
    let file = user.text("tokenFile")?.map(|file| user.file(file));
    let token = match (&file, user.text("token")?) {
        (Some(path), _) => Some(read_token(path).map_err(|why| user.of("tokenFile", why))?),
        (None, Some(token)) => {
            Some(checked(token.trim(), "token").map_err(|why| why.at(&user.name))?)
        }
        (None, None) => None,
    };
    let username = user.text("username")?;
    let password = user.text("password")?;
    match (token, username) {
        (Some(_), Some(_)) => {
            Err(Fault::new(format!("{} has both a token and a username", user.name), "keep one"))
        }
        (Some(token), None) => Ok(Some(Authorization::Bearer { token, file })),
        (None, Some(username)) if username.contains(':') => {
            Err(format!("{}.username has a colon in it", user.name).into())
        }
        (None, Some(username)) => Ok(Some(Authorization::Basic {
            username: username.to_owned(),
            password: Secret::new(password.unwrap_or("").to_owned()),
        })),
        (None, None) if password.is_some() => {
            Err(format!("{} has a password but no username", user.name).into())
        }
        (None, None) => Ok(None),
    }
}

/// One mapping of a kubeconfig.
struct Section<'a> {
    /// The path in the document, `users[pi].user`; empty for the top.
    name: String,
    map: &'a Map<String, Value>,
    at: PathResolver<'a>,
}

impl<'a> Section<'a> {
    fn new(name: &str, value: &'a Value, at: PathResolver<'a>) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self { name: name.into(), map, at }),
            _ if name.is_empty() => Err("not a kubeconfig: no mapping at the top".into()),
            _ => Err(format!("{name} is not a mapping").into()),
        }
    }

    /// `<field>-data`, or else the file that `<field>` names.
    fn pem(&self, field: &str) -> Result<Option<Pem>, Fault> {
        let data_field = format!("{field}-data");
        if let Some(data) = self.text(&data_field)? {
            let source = format!("{}.{data_field}", self.name);
            let base64: Vec<u8> = data.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
            // The decoder's error would quote bytes of a private key.
            let bytes = STANDARD.decode(base64).map_err(|_| format!("{source}: not base64"))?;
            return Ok(Some(Pem { file: None, source, bytes }));
        }
        let pem = self.text(field)?.map(|path| read_pem(&self.file(path)));
        pem.transpose().map_err(|why| self.of(field, why))
    }

    /// The path of the file that is the value of a field. The value is not empty, see
    /// [`Self::text`].
    fn file(&self, value: &str) -> PathBuf {
        (self.at)(Path::new(value))
    }

    /// The entry of `list` with the name `wanted`; `by` names the referring field in an error.
    fn named(&self, list: &str, item: &str, wanted: &str, by: &str) -> Result<Section<'a>, Fault> {
        let entries = self.map.get(list).and_then(Value::as_array);
        let has_name = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(wanted);
        let Some(entry) = entries.and_then(|entries| entries.iter().find(has_name)) else {
            let what = format!("{by} names {wanted:?}, which is not in {list}");
            return Err(match self.names(list).as_slice() {
                [] => Fault::new(format!("{what}: there is none"), CUT_OFF),
                known => Fault::new(what, format!("there is: {}", known.join(", "))),
            });
        };
        let name = format!("{list}[{wanted}].{item}");
        Section::new(&name, entry.get(item).unwrap_or(&Value::Null), self.at)
    }

    /// As in client-go, a name may occur once in a list (`tools/clientcmd/api/v1` conversion.go).
    fn unique(&self, list: &str) -> Result<(), Fault> {
        let mut names = self.names(list);
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        match pairs.find(|(one, next)| one == next) {
            Some((name, _)) => Err(format!("{list}: duplicate name {name:?} in list").into()),
            None => Ok(()),
        }
    }

    fn names(&self, list: &str) -> Vec<&'a str> {
        let entries = self.map.get(list).and_then(Value::as_array).into_iter().flatten();
        entries.filter_map(|entry| entry.get("name")?.as_str()).collect()
    }

    /// A string field. An empty string counts as absent, as in Go.
    fn text(&self, field: &str) -> Result<Option<&'a str>, Fault> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => {
                let what = format!("{} is not a string", self.path(field));
                Err(Fault::new(what, "put it in quotes"))
            }
        }
    }

    /// A boolean field; false if it is absent.
    fn flag(&self, field: &str) -> Result<bool, Fault> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{} is neither true nor false", self.path(field)).into()),
        }
    }

    /// Fails if one of the fields has a value. An empty string or list is no value.
    fn refuse(&self, fields: &[&str]) -> Result<(), Fault> {
        let set = |field: &&&str| match self.map.get(**field) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        match fields.iter().find(set) {
            Some(field) => {
                Err(Fault::new(format!("{} is not supported", self.path(field)), "remove it"))
            }
            None => Ok(()),
        }
    }

    /// The fault `why` of the file of a field, with the path of the field in front.
    fn of(&self, field: &str, why: Fault) -> Fault {
        Fault { what: format!("{} {}", self.path(field), why.what), ..why }
    }

    /// The path of a field in the document, `users[pi].user.tokenFile`.
    fn path(&self, field: &str) -> String {
        match self.name.as_str() {
            "" => field.to_owned(),
            name => format!("{name}.{field}"),
        }
    }
}

/// Joins `path` with the first of `folders` that contains it, or else with `folders[0]`.
///
/// The other folders are searched for a bare name only: systemd's credentials have bare names. The
/// last candidate is `nodelet.NAME` in `folders[0]`, the file behind the credential NAME of
/// nodelet.service.
pub fn find(path: &Path, folders: &[&Path]) -> PathBuf {
    let Some((first, others)) = folders.split_first() else {
        return path.to_owned();
    };
    let in_first = first.join(path);
    if path.file_name() != Some(path.as_os_str()) || exists(&in_first) {
        return in_first;
    }
    let candidates = others.iter().map(|folder| folder.join(path));
    let mut candidates = candidates.chain([first.join(format!("nodelet.{}", path.display()))]);
    candidates.find(|path| exists(path)).unwrap_or(in_first)
}

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
/// It keeps `tls-server-name` and `proxy-url`. A kubelet drops them, and then cannot connect to a
/// cluster that needs them.
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
            // The chain may come from the file of a stored pair, which also holds the key: only the
            // certificates of the file are written here.
            let chain = certificates(&certificate.chain)?;
            let chain: String = chain.iter().map(|der| x509::pem("CERTIFICATE", der)).collect();
            field(&mut fields, "client-certificate-data", &data(chain.as_bytes()));
            field(&mut fields, "client-key-data", &data(&certificate.key.bytes));
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

#[cfg(test)]
mod tests;
