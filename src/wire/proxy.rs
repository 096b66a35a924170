//! The `proxy-url` of a kubeconfig: an HTTP proxy for CONNECT.

use std::fmt;

use crate::wire::authorization::Authorization;
use crate::wire::endpoint::Endpoint;
use crate::wire::secret::Secret;

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
    pub fn parse(url: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err("not a URL; write http://host:port".into());
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
        let endpoint = self.endpoint.to_string();
        match (&self.authorization, endpoint.split_once("://")) {
            (Some(Authorization::Basic { username, password }), Some((scheme, rest))) => {
                let (username, password) = (encode(username), encode(password.reveal()));
                format!("{scheme}://{username}:{password}@{rest}")
            }
            _ => endpoint,
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
    let octet = |octet: u8| match octet.is_ascii_alphanumeric() {
        true => char::from(octet).to_string(),
        false => format!("%{octet:02X}"),
    };
    text.bytes().map(octet).collect()
}

fn basic(user: &str) -> Result<Authorization, String> {
    let (username, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text| decode(text).ok_or("its user name or password has a broken % in it");
    Ok(Authorization::Basic {
        username: decoded(username)?,
        password: Secret::new(decoded(password)?),
    })
}

/// Undoes percent-encoding; `None` where a `%` is not followed by two hexadecimal digits.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.bytes());
    }
    String::from_utf8(bytes).ok()
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
            (
                "https://me:hunter2@p:1",
                "only a proxy with http:// is supported",
            ),
            ("socks5://p:1", "only a proxy with http:// is supported"),
            (
                "me:hunter2@x://p:1",
                "only a proxy with http:// is supported",
            ),
            ("me:hunter2@p:1", "not a URL; write http://host:port"),
            (
                "http://me:hunter2#@p:1",
                "nothing may follow the port of a proxy",
            ),
            ("http://me:hunter2 @p:0", "\"http://p:0\" has no valid port"),
            ("http://me:hunter2^@p:0", "\"http://p:0\" has no valid port"),
            ("http://me:hunter2ü@p:0", "\"http://p:0\" has no valid port"),
            ("p:1", "not a URL; write http://host:port"),
            (
                "http://me:hunter2@p:1/x",
                "nothing may follow the port of a proxy",
            ),
            (
                "http://me:hunter2%4@p:1",
                "its user name or password has a broken % in it",
            ),
            (
                "http://me:hunter2%+1@p:1",
                "its user name or password has a broken % in it",
            ),
            ("http://me:hunter2@p:0", "\"http://p:0\" has no valid port"),
        ] {
            assert_eq!(Proxy::parse(url), Err(want.to_owned()), "{url}");
        }
        for url in ["", "http://", "http://@", "http://a b", "http://%ff@p"] {
            assert!(Proxy::parse(url).is_err(), "{url}");
        }
        let printed = format!("{:?}", Proxy::parse("http://me:hunter2@p:1"));
        assert!(!printed.contains("hunter2"), "{printed}");
    }
}
