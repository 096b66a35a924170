//! A URL of `server` or `proxy-url`, checked and split.

use std::fmt;
use std::net::IpAddr;

use rustls::pki_types::ServerName;
use ureq::http::Uri;

use crate::kube::text::Fault;

/// Where the API server is.
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
}
