//! Where the API server is, and how both sides prove themselves: client-go's `rest.Config`.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ureq::http::HeaderValue;
use zeroize::{Zeroize, Zeroizing};

use super::dns::Resolver;
use super::endpoint::Endpoint;
use crate::kube::text::{Fault, percent_decoded};

/// The API server's URL and CA, and our credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// `server`.
    pub endpoint: Endpoint,
    /// `proxy-url`.
    pub proxy: Option<Proxy>,
    /// `certificate-authority`; none means the system's roots.
    pub ca: Option<Pem>,
    /// `insecure-skip-tls-verify`: the server's certificate is not verified.
    pub insecure: bool,
    /// `tls-server-name`: expected in the server's certificate instead of the host.
    pub tls_server_name: Option<String>,
    /// `client-certificate` and `client-key`.
    pub certificate: Option<ClientCertificate>,
    /// The header `Authorization`.
    pub authorization: Option<Authorization>,
    /// Who looks the server's name up; `None` is this machine's own configuration.
    pub resolver: Option<Resolver>,
}

impl ApiConfig {
    /// [`ApiConfig::at`] a URL.
    #[cfg(test)]
    pub(crate) fn of(server: &str) -> Result<Self, Fault> {
        Endpoint::parse(server).map(Self::at)
    }

    /// The server at `endpoint` without credentials, verified with the system's roots.
    pub(crate) fn at(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            proxy: None,
            ca: None,
            insecure: false,
            tls_server_name: None,
            certificate: None,
            authorization: None,
            resolver: None,
        }
    }
}

/// A client certificate with its intermediates, and its key. Both may be one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate first, then intermediates.
    pub chain: Pem,
    /// The private key.
    pub key: Pem,
}

/// PEM text, not parsed yet. It may hold a private key: `{:?}` hides it, and its memory is zeroed
/// when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The file that it was read from; none for `...-data`.
    pub file: Option<PathBuf>,
    /// The file, or the name of the field, for messages.
    pub source: String,
    /// The text.
    pub bytes: Vec<u8>,
}

impl Drop for Pem {
    fn drop(&mut self) {
        self.bytes.zeroize();
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({})", self.source)
    }
}

/// Credentials sent with every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Authorization {
    /// A bearer token.
    Bearer {
        /// Without surrounding white space.
        token: Secret,
        /// `tokenFile`, which `credentials` watches for changes.
        file: Option<PathBuf>,
    },
    /// A user name and password.
    Basic {
        /// Without a colon.
        username: String,
        /// May be empty.
        password: Secret,
    },
}

impl Authorization {
    /// The value of the header `Authorization`: a secret.
    pub fn header(&self) -> String {
        match self {
            Self::Bearer { token, .. } => format!("Bearer {}", token.reveal()),
            Self::Basic { username, password } => {
                let pair = format!("{username}:{}", password.reveal());
                format!("Basic {}", STANDARD.encode(pair))
            }
        }
    }

    /// The same for ureq, marked sensitive: `{:?}` does not print it.
    pub(super) fn header_value(&self) -> Result<HeaderValue, Fault> {
        let mut value = HeaderValue::try_from(self.header())
            .map_err(|_| "the token has a control character in it")?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// A bearer token or a password: `{:?}` hides it, and its memory is zeroed when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text.
    pub fn new(text: String) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A proxy. It sees the server's name and port, and TLS records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Always `http`: the connection to the proxy is not encrypted.
    pub endpoint: Endpoint,
    /// User name and password of the URL, for `Proxy-Authorization`.
    pub authorization: Option<Authorization>,
}

impl Proxy {
    /// Parses `http://[user:password@]host[:port]`; the error lacks the field's name and quotes no
    /// password.
    pub fn parse(url: &str) -> Result<Self, Fault> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(Fault::new("not a URL", "write http://host:port"));
        };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err("only a proxy with http:// is supported".into());
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !["", "/"].contains(&path) {
            return Err("nothing may follow the port of a proxy".into());
        }
        let (user, authority) = match authority.rsplit_once('@') {
            Some((user, authority)) => (Some(user), authority),
            None => (None, authority),
        };
        Ok(Self {
            endpoint: Endpoint::parse(&format!("http://{authority}"))?,
            authorization: user.map(basic).transpose()?,
        })
    }

    /// The URL, with its password.
    pub fn url(&self) -> String {
        match &self.authorization {
            Some(Authorization::Basic { username, password }) => {
                let (username, password) = (encode(username), encode(password.reveal()));
                format!("http://{username}:{password}@{}", self.endpoint.authority())
            }
            _ => self.endpoint.to_string(),
        }
    }
}

/// The proxy without its password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy {}", self.endpoint)
    }
}

fn encode(text: &str) -> String {
    let octet = |octet: u8| {
        if octet.is_ascii_alphanumeric() {
            char::from(octet).to_string()
        } else {
            format!("%{octet:02X}")
        }
    };
    text.bytes().map(octet).collect()
}

fn basic(user: &str) -> Result<Authorization, Fault> {
    let (username, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text: &str| {
        let (text, is_valid) = percent_decoded(text.as_bytes());
        let text = String::from_utf8(text).ok().filter(|_| is_valid);
        text.ok_or("its user name or password has a broken % in it")
    };
    Ok(Authorization::Basic {
        username: decoded(username)?,
        password: Secret::new(decoded(password)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_has_an_address_and_perhaps_a_password() {
        for (url, shown, header) in [
            ("http://10.0.0.9:3128", "proxy http://10.0.0.9:3128", None),
            ("HTTP://proxy/", "proxy http://proxy:80", None),
            ("http://[fd00::9]:3128", "proxy http://[fd00::9]:3128", None),
            // me:a:b
            ("http://me:a%3Ab@p:1", "proxy http://p:1", Some("bWU6YTpi")),
            // me:@
            ("http://me:%40@p:1", "proxy http://p:1", Some("bWU6QA==")),
            // me:
            ("http://me@p:1", "proxy http://p:1", Some("bWU6")),
        ] {
            let proxy = Proxy::parse(url).unwrap();
            assert_eq!(proxy.to_string(), shown);
            let header = header.map(|value| format!("Basic {value}"));
            assert_eq!(proxy.authorization.map(|a| a.header()), header, "{url}");
        }
    }

    #[test]
    fn what_is_no_such_proxy_is_refused_without_its_password() {
        for (url, want) in [
            ("https://me:hunter2@p:1", "only a proxy with http:// is supported"),
            ("socks5://p:1", "only a proxy with http:// is supported"),
            ("me:hunter2@x://p:1", "only a proxy with http:// is supported"),
            ("me:hunter2@p:1", "not a URL; write http://host:port"),
            ("http://me:hunter2#@p:1", "nothing may follow the port of a proxy"),
            ("http://me:hunter2 @p:0", "\"http://p:0\" has no valid port"),
            ("http://me:hunter2^@p:0", "\"http://p:0\" has no valid port"),
            ("http://me:hunter2ü@p:0", "\"http://p:0\" has no valid port"),
            ("p:1", "not a URL; write http://host:port"),
            ("http://me:hunter2@p:1/x", "nothing may follow the port of a proxy"),
            ("http://me:hunter2%4@p:1", "its user name or password has a broken % in it"),
            ("http://me:hunter2%+1@p:1", "its user name or password has a broken % in it"),
            ("http://me:hunter2@p:0", "\"http://p:0\" has no valid port"),
        ] {
            assert_eq!(Proxy::parse(url).unwrap_err().to_string(), want, "{url}");
        }
        for url in ["", "http://", "http://@", "http://a b", "http://%ff@p"] {
            assert!(Proxy::parse(url).is_err(), "{url}");
        }
        let printed = format!("{:?}", Proxy::parse("http://me:hunter2@p:1"));
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
