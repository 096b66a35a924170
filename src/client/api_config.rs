//! Where the API server is, and how both sides prove themselves: client-go's `rest.Config`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use ureq::http::{HeaderValue, Uri};
use zeroize::{Zeroize, Zeroizing};

use super::dns::Resolver;
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

/// A URL of `server` or `proxy-url`, checked and split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https`. With `http` the connection is not encrypted, as in the kubelet.
    pub tls: bool,
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port, 443 or 80 where the URL has none.
    pub port: u16,
    /// Path in front of every request, without a last `/`; mostly empty.
    pub prefix: String,
}

impl Endpoint {
    /// Parses `scheme://host[:port][/prefix]`; the error lacks the field's name and quotes no
    /// password.
    pub fn parse(url: &str) -> Result<Self, Fault> {
        Self::checked(url).map_err(|fault| if url.contains('@') { with_user() } else { fault })
    }

    fn checked(url: &str) -> Result<Self, Fault> {
        let uri: Uri = url.parse().map_err(|e| format!("{url:?} is not a URL: {e}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            Some(other) => {
                let what = format!("{url:?} has the scheme {other}");
                return Err(Fault::new(what, "https is needed"));
            }
            None => {
                let remedy = format!("did you mean https://{url}?");
                return Err(Fault::new(format!("{url:?} has no scheme"), remedy));
            }
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            return Err(with_user());
        }
        if uri.query().is_some() || url.contains('#') {
            let what = format!("{url:?} has a query or fragment");
            return Err(Fault::new(what, "only a path may follow"));
        }
        let bracketed = uri.host().unwrap_or("");
        let host =
            bracketed.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(bracketed);
        if ServerName::try_from(host).is_err() {
            return Err(format!("{url:?} has no valid host: {host:?}").into());
        }
        let port = match authority.strip_prefix(bracketed).and_then(|rest| rest.strip_prefix(':')) {
            // `parse` of std takes a sign.
            Some(port) if port.starts_with('+') => None,
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None if tls => Some(443),
            None => Some(80),
        };
        let Some(port) = port else {
            return Err(format!("{url:?} has no valid port").into());
        };
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { tls, host: host.to_owned(), port, prefix })
    }

    /// `host:port`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The host, where it is an IP address.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

/// The fault of a URL with an `@`, which is not quoted: a password may stand before the `@`.
fn with_user() -> Fault {
    Fault::new("not a URL, or it has a user name in it", "put credentials into users")
}

/// `https://10.0.0.1:6443`, without the prefix.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
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

    /// [`Self::header`] as ureq's type, marked sensitive: `{:?}` does not print it.
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
    /// Parses `http://[user[:password]@]host[:port][/]`. User name and password are
    /// percent-decoded; a `%` without two hexadecimal digits is an error. The error quotes neither
    /// of them, and the caller adds the name of the field.
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

/// The text, percent-encoded but for ASCII letters and digits.
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

/// The credentials of `user[:password]`, percent-encoded. Without a password it is empty.
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
    fn urls_are_taken_apart() {
        for (url, tls, host, port, prefix, shown) in [
            ("https://10.0.0.1:6443", true, "10.0.0.1", 6443, "", "https://10.0.0.1:6443"),
            ("https://10.0.0.1:6443/", true, "10.0.0.1", 6443, "", "https://10.0.0.1:6443"),
            ("https://api.example", true, "api.example", 443, "", "https://api.example:443"),
            ("http://localhost", false, "localhost", 80, "", "http://localhost:80"),
            ("http://localhost:8080", false, "localhost", 8080, "", "http://localhost:8080"),
            ("https://[fd00::1]:1/k/c-1/", true, "fd00::1", 1, "/k/c-1", "https://[fd00::1]:1"),
            ("https://[::1]", true, "::1", 443, "", "https://[::1]:443"),
            ("HTTPS://API.example:6443", true, "API.example", 6443, "", "https://API.example:6443"),
        ] {
            let endpoint = Endpoint::parse(url);
            let want = Endpoint { tls, host: host.into(), port, prefix: prefix.into() };
            assert_eq!(want.to_string(), shown);
            assert_eq!(endpoint, Ok(want), "{url}");
        }
    }

    #[test]
    fn wrong_urls_have_one_line() {
        for (url, word) in [
            ("ftp://a", "https is needed"),
            ("10.0.0.1:6443", "did you mean https://10.0.0.1:6443?"),
            ("https://a?b", "only a path may follow"),
            ("https://a/#b", "only a path may follow"),
            ("https://a:99999", "no valid port"),
            ("https://a:0", "no valid port"),
            ("https://a:+6443", "no valid port"),
            ("https://a:", "no valid port"),
            ("https://-a-", "no valid host: \"-a-\""),
        ] {
            let line = Endpoint::parse(url).unwrap_err().to_string();
            assert!(line.starts_with(&format!("{url:?} has ")) && line.contains(word), "{line}");
        }
        let bad = "https:// https://:1 //a /a https://[::1 https://[::1%eth0]";
        for url in bad.split(' ').chain(["", "https://a b"]) {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn an_error_does_not_quote_a_password() {
        for url in [
            "https://me:hunter2@a",
            "https://me:hunter2#@a",
            "https://me:hunter2/@a:0",
            "https://me:hunter2?@a",
            "https://me:hunter2 @a",
            "https://me:hunter2^@a",
            "https://me:hunter2ü@a",
            "https://me:hun@ter2@a",
            "https://me:hunter2@a:99999",
            "ftp://me:hunter2@a",
            "hunter2@a://b",
            "me:hunter2@a:6443",
            "//me:hunter2@a",
        ] {
            assert_eq!(Endpoint::parse(url), Err(with_user()), "{url}");
        }
        // An @ after the host belongs to the path.
        assert!(Endpoint::parse("https://a/@b").is_ok());
    }

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
