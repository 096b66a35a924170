//! The forms of a token.
//!
//! kubeadm: `id.secret`, a bootstrap token (`cluster-bootstrap/token/api/types.go`). k3s and rke2:
//! `K10`, the SHA-256 of the CA as 64 hexadecimal digits or nothing, `::`, and credentials
//! (`k3s/pkg/clientaccess/token.go`), or only the password. A text that begins with `::` is a token
//! without `K10` and the digest; k3s would take it for a password.

use crate::client::api_config::{Authorization, Secret};

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Most bytes of a token. A token of k3s has 110.
const LONGEST: usize = 1024;
/// Lengths of the two parts of a bootstrap token.
const ID: usize = 6;
const SECRET: usize = 16;
/// The user of every token of k3s that is a password.
const USER: &str = "node";

/// The remedy of a line of k0s.
pub(super) const K0S: &str = "a token of k0s is a kubeconfig: base64 -d TOKEN-FILE | gunzip > \
     /etc/credstore/nodelet.bootstrap-kubeconfig with mode 0600, and its flags in \
     /etc/default/nodelet, as systemd/join.md says under microk8s and k0s";
/// The remedy of a line of microk8s.
pub(super) const MICROK8S: &str = "microk8s join is for its own agent: give the board a kubeconfig, \
     as systemd/join.md says under microk8s and k0s";

/// Whether `text` is a token of k0s: a kubeconfig, compressed by gzip, in base64.
pub(super) fn is_of_k0s(text: &str) -> bool {
    text.starts_with("H4sI") && text.len() > 100
}

/// A token, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// `id.secret`: kubeadm's discovery.
    Bootstrap(Bootstrap),
    /// Anything else: the supervisor of k3s or rke2.
    Supervisor {
        /// The digest of its CA; `None` in the short forms.
        hash: Option<Digest>,
        /// What proves the board: a bearer token, `id.secret`, of `k3s token create`, or a
        /// password.
        authorization: Authorization,
    },
}

/// A bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Six characters that are no secret.
    pub id: String,
    text: Secret,
}

impl Bootstrap {
    /// Parses `[a-z0-9]{6}.[a-z0-9]{16}`. Everybody may read a signature that is made with the
    /// secret, and a shorter secret could be guessed from it.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('.')?;
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let fits = |part: &str, length| part.len() == length && part.bytes().all(is_plain);
        (fits(id, ID) && fits(secret, SECRET))
            .then(|| Self { id: id.to_owned(), text: Secret::new(text.to_owned()) })
    }

    /// The bearer token: the whole text.
    pub fn authorization(&self) -> Authorization {
        Authorization::Bearer { token: self.text.clone(), file: None }
    }

    /// The key of the signature: the part after the dot.
    pub fn secret(&self) -> &str {
        self.text.reveal().get(ID + 1..).unwrap_or_default()
    }
}

impl Token {
    /// Whether the form of `text` shows that it is a token, so that it must not be shown. A bare
    /// password has no such form.
    pub fn is_whole(text: &str) -> bool {
        match Self::parse(text) {
            Ok(Self::Supervisor { hash: None, authorization: Authorization::Basic { .. } }) => {
                false
            }
            token => token.is_ok(),
        }
    }

    /// Whether a part of the value of a flag, such as `KEY=VALUE,KEY=VALUE`, is a token by its
    /// form.
    pub fn is_within(value: &str) -> bool {
        value.split(['=', ',']).any(Self::is_whole)
    }

    /// Parses a token, with or without white space around it. The error quotes nothing of it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("the token is empty".into());
        }
        if is_of_k0s(text) {
            return Err(K0S.into());
        }
        if text.len() > LONGEST || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "not a token: it has a blank, a character that is not ASCII, or more than {LONGEST} \
                 bytes"
            ));
        }
        if let Some(token) = Bootstrap::parse(text) {
            return Ok(Self::Bootstrap(token));
        }
        let rest = text.strip_prefix("K10").or(Some(text).filter(|text| text.starts_with("::")));
        let Some(rest) = rest else {
            let looks_like_kubeadms = text.split_once('.').is_some_and(|(id, _)| id.len() == ID);
            return if looks_like_kubeadms {
                Err("not a bootstrap token: six, a dot, and sixteen of a-z and 0-9; copy it \
                             again"
                    .into())
            } else {
                Ok(Self::Supervisor { hash: None, authorization: basic(text) })
            };
        };
        let form = "a token that starts with K10 has 64 hexadecimal digits, ::, and USER:PASSWORD \
                    or id.secret; copy it again";
        let (hash, credentials) = rest.split_once("::").ok_or(form)?;
        let hash = match hash {
            "" => None,
            hash => Some(parse_digest(hash).ok_or(form)?),
        };
        let authorization = match (Bootstrap::parse(credentials), credentials.split_once(':')) {
            (Some(token), _) => token.authorization(),
            (None, Some((_, password))) if !password.is_empty() => basic(password),
            _ => return Err(form.into()),
        };
        Ok(Self::Supervisor { hash, authorization })
    }
}

fn basic(password: &str) -> Authorization {
    Authorization::Basic { username: USER.to_owned(), password: Secret::new(password.to_owned()) }
}

/// Parses a digest of exactly 64 hexadecimal digits of any case; `None` for any other text.
pub fn parse_digest(text: &str) -> Option<Digest> {
    // from_str_radix takes a sign, too.
    let is_hexadecimal = text.bytes().all(|b| b.is_ascii_hexdigit());
    let octet = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
    octets.filter(|_| is_hexadecimal)?.try_into().ok()
}

/// The 64 hexadecimal digits of a digest, in lower case.
pub fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "4569202d96996c30541d8e62bb1609824d98773f6590010c31b95e68352133cc";

    fn supervisor(hash: Option<&str>, authorization: Authorization) -> Token {
        Token::Supervisor { hash: hash.and_then(parse_digest), authorization }
    }

    fn password(text: &str) -> Authorization {
        Authorization::Basic { username: "node".into(), password: Secret::new(text.into()) }
    }

    #[test]
    fn the_form_of_a_token_says_whose_it_is() {
        let Ok(Token::Bootstrap(token)) = Token::parse(" lwxivu.2uczm8x4xi2v7hqd\n") else {
            panic!("a bootstrap token");
        };
        assert_eq!((token.id.as_str(), token.secret()), ("lwxivu", "2uczm8x4xi2v7hqd"));
        let text = Secret::new("lwxivu.2uczm8x4xi2v7hqd".into());
        let bearer = Authorization::Bearer { token: text, file: None };
        assert_eq!(token.authorization(), bearer);
        for (text, want) in [
            (format!("K10{HASH}::server:a:b\n"), supervisor(Some(HASH), password("a:b"))),
            (format!("K10{}::node:x", HASH.to_uppercase()), supervisor(Some(HASH), password("x"))),
            (format!("K10{HASH}::lwxivu.2uczm8x4xi2v7hqd"), supervisor(Some(HASH), bearer.clone())),
            ("K10::lwxivu.2uczm8x4xi2v7hqd".into(), supervisor(None, bearer.clone())),
            ("::lwxivu.2uczm8x4xi2v7hqd".into(), supervisor(None, bearer)),
            ("::server:x".into(), supervisor(None, password("x"))),
            ("hunter2".into(), supervisor(None, password("hunter2"))),
            // A password may have dots.
            ("a.b.c".into(), supervisor(None, password("a.b.c"))),
        ] {
            assert_eq!(Token::parse(&text), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_token_of_no_form_is_an_error_that_does_not_quote_it() {
        for text in [
            "",
            " \n",
            "with blank",
            "caf\u{e9}",
            &"x".repeat(LONGEST + 1),
            "lwxivu.2uczm8x4xi2v7hq",
            "LWXIVU.2uczm8x4xi2v7hqd",
            "K10",
            "K10abc::server:x",
            "::",
            "::password",
            &format!("K10{HASH}"),
            &format!("K10{HASH}::"),
            &format!("K10{HASH}::server:"),
            &format!("K10{HASH}::password"),
            &format!("K10{HASH}é::server:x"),
            &format!("H4sI{}", "x".repeat(2000)),
        ] {
            let error = Token::parse(text).unwrap_err();
            assert!(text.trim().len() <= 3 || !error.contains(text.trim()), "{error}");
        }
    }

    #[test]
    fn debug_hides_the_secret() {
        for text in ["lwxivu.2uczm8x4xi2v7hqd", &format!("K10{HASH}::server:x7y")] {
            let shown = format!("{:?}", Token::parse(text));
            assert!(!shown.contains("2uczm") && !shown.contains("x7y"), "{shown}");
        }
    }

    #[test]
    fn a_digest_survives_a_round_trip() {
        assert_eq!(hexadecimal(&parse_digest(HASH).unwrap()), HASH);
        let signed = HASH.replacen("45", "+5", 1);
        for text in ["", "00", &HASH[1..], &format!("{HASH}0"), &HASH.replace('4', "g"), &signed] {
            assert_eq!(parse_digest(text), None, "{text}");
        }
    }
}
