//! The head of a request in HTTP/1.1 (RFC 9112).
//!
//! These are the first bytes of an unknown client that this program parses itself. A request with a
//! body is refused, so the next head always begins where the last one ends.

use crate::serve::answers::Asked;

/// Longest head, in bytes.
pub(super) const LONGEST: usize = 8 << 10;
/// Most headers of a head.
const MOST_HEADERS: usize = 32;

/// The bytes of a connection, as far as they are here.
#[derive(Debug, PartialEq)]
pub enum Head<'a> {
    /// The head has no end yet.
    Partial,
    /// A request.
    Whole {
        /// What is asked.
        asked: Asked<'a>,
        /// This is the last request of the connection: the client asks to close it, or bytes follow
        /// the head. Such bytes, as of pipelined requests, are not answered.
        is_last: bool,
    },
    /// The status that refuses it: 400, or 431 if it is too large.
    Refused(u16),
}

/// Parses a head from its first byte. The caller passes no more than `LONGEST` bytes and one
/// read.
pub fn parse(bytes: &[u8]) -> Head<'_> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= LONGEST => length,
        Ok(httparse::Status::Partial) if bytes.len() <= LONGEST => return Head::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Head::Refused(431),
        Err(_) => return Head::Refused(400),
    };
    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Head::Refused(400);
    };
    let (mut has_host, mut is_last) = (false, version == 0 || bytes.len() > length);
    let mut authorization = None;
    for &httparse::Header { name, value } in request.headers.iter() {
        match name.to_ascii_lowercase().as_str() {
            "host" if has_host => return Head::Refused(400),
            "host" => has_host = true,
            // A body.
            "transfer-encoding" => return Head::Refused(400),
            "content-length" if value != b"0" => return Head::Refused(400),
            "connection" => {
                let Ok(text) = str::from_utf8(value) else {
                    return Head::Refused(400);
                };
                let mut options = text.split(',').map(str::trim);
                is_last |= options.any(|option| option.eq_ignore_ascii_case("close"));
            }
            // As Go's `Header.Get`: the first one counts.
            "authorization" => authorization = authorization.or(Some(value)),
            _ => {}
        }
    }
    // Go, too, wants one Host in HTTP/1.1. An absolute target or `*` is for proxies.
    if (version == 1 && !has_host) || !target.starts_with('/') {
        return Head::Refused(400);
    }
    let token = authorization.and_then(|value| bearer(str::from_utf8(value).ok()?));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Head::Whole { asked: Asked { method, path, query, token }, is_last }
}

/// Whether `bytes` may have a whole head: an empty line ends in the bytes from `from` on. Without
/// this check, a head that arrives byte by byte would be parsed once for each byte.
pub(super) fn may_end(bytes: &[u8], from: usize) -> bool {
    let rest = bytes.get(from.saturating_sub(3)..).unwrap_or_default();
    rest.windows(2).any(|pair| pair == b"\n\n") || rest.windows(3).any(|end| end == b"\n\r\n")
}

/// The token of a header `Authorization`. Upstream: apiserver
/// `authentication/request/bearertoken/bearertoken.go`.
fn bearer(value: &str) -> Option<&str> {
    let mut words = value.trim().split(' ');
    let scheme = words.next()?;
    let token = words.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head<'_> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_head_gives_method_path_query_and_token() {
        let text = "GET /healthz?verbose&a=b HTTP/1.1\r\nHost: pi-1:10250\r\n\
                    Authorization: bEARER abc\r\nAuthorization: Bearer other\r\n\r\n";
        let asked =
            Asked { method: "GET", path: "/healthz", query: "verbose&a=b", token: Some("abc") };
        assert_eq!(format!("{asked:?}"), "Asked(GET /healthz?verbose&a=b)", "without the token");
        assert_eq!(head(text), Head::Whole { asked, is_last: false });
        for length in 0..text.len() {
            assert_eq!(head(&text[..length]), Head::Partial, "{length}");
        }
    }

    #[test]
    fn a_token_is_the_second_word_of_a_bearer() {
        for (value, token) in [
            ("Bearer a.b-c", Some("a.b-c")),
            ("  bearer a  ", Some("a")),
            ("Bearer a b", Some("a")),
            ("Bearer  a", None),
            ("Bearer", None),
            ("Basic a", None),
            ("", None),
        ] {
            assert_eq!(bearer(value), token, "{value:?}");
        }
    }

    #[test]
    fn what_is_no_plain_request_is_refused_with_a_kubelets_status() {
        let with = |headers: &str| format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n");
        let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(LONGEST));
        let endless = "G".repeat(LONGEST + 1);
        for (text, code) in [
            (with("Content-Length: 1\r\n"), 400),
            (with("Content-Length: 0\r\nContent-Length: 5\r\n"), 400),
            (with("Transfer-Encoding: chunked\r\n"), 400),
            (with("Host: b\r\n"), 400),
            (with("a b: c\r\n"), 400),
            (with("Connection: \u{e9}\r\n").replace('\u{e9}', "\u{0}"), 400),
            ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
            ("GET http://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".to_owned(), 400),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 400),
            ("\u{16}\u{3}\u{1}".to_owned(), 400),
            (with(&"a: b\r\n".repeat(MOST_HEADERS)), 431),
            (long, 431),
            (endless, 431),
        ] {
            assert_eq!(head(&text), Head::Refused(code), "{text:?}");
        }
        let most = with(&"a: b\r\n".repeat(MOST_HEADERS - 1));
        assert!(matches!(head(&most), Head::Whole { is_last: false, .. }));
        let empty = with("Content-Length: 0\r\n");
        assert!(matches!(head(&empty), Head::Whole { is_last: false, .. }));
    }

    #[test]
    fn the_last_request_of_a_connection_is_known() {
        for text in [
            "GET / HTTP/1.0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Close\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n",
        ] {
            assert!(matches!(head(text), Head::Whole { is_last: true, .. }), "{text:?}");
        }
    }

    #[test]
    fn a_head_is_parsed_only_when_an_empty_line_came() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes();
        let ends = |length: usize| may_end(&text[..length], length - 1);
        let found: Vec<usize> = (1..=text.len()).filter(|length| ends(*length)).collect();
        assert_eq!(found, [text.len()]);
        assert!(may_end(b"GET / HTTP/1.0\n\n", 15) && may_end(text, 0));
    }
}
