//! CONNECT through an HTTP proxy, within the socket's deadline.

use std::io::{Read, Write};

use super::api_config::{Endpoint, Proxy};
use super::failure::{Failure, Stage};
use crate::kube::text::Fault;

/// Bytes: largest head of a proxy's answer.
const LIMIT: usize = 8 << 10;

/// Asks `proxy`, the peer of `stream`, for a tunnel to `endpoint`.
pub(super) fn open(
    stream: &mut (impl Read + Write),
    proxy: &Proxy,
    endpoint: &Endpoint,
) -> Result<(), Failure> {
    let place = endpoint.authority();
    let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
    if let Some(authorization) = &proxy.authorization {
        head += &format!("Proxy-Authorization: {}\r\n", authorization.header());
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).map_err(|e| Failure::io(&e, Stage::Proxy))?;
    match answer(stream)?.as_str() {
        "200" => Ok(()),
        "407" => Err(Failure::other(match proxy.authorization {
            Some(_) => "407: it does not accept the user and password of proxy-url".into(),
            None => Fault::new("407: it wants a user and password", "put them into proxy-url"),
        })),
        code => Err(Failure::other(format!("it answered {code} when asked to connect to {place}"))),
    }
}

/// Reads the proxy's answer; returns its status code.
fn answer(stream: &mut impl Read) -> Result<String, Failure> {
    let mut head = Vec::new();
    let mut room = [0; 512];
    let end = loop {
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break Some(at + 4);
        }
        if head.len() > LIMIT {
            return Err(Failure::other(format!(
                "the head of its answer is larger than {LIMIT} bytes"
            )));
        }
        match stream.read(&mut room).map_err(|e| Failure::io(&e, Stage::Proxy))? {
            0 => break None,
            amount => head.extend(room.iter().take(amount)),
        }
    };
    let text = String::from_utf8_lossy(&head);
    let mut words = text.split([' ', '\r']);
    let version = words.next().unwrap_or_default();
    let code = words.next().unwrap_or_default();
    let is_code = code.len() == 3 && code.bytes().all(|b| b.is_ascii_digit());
    match version.starts_with("HTTP/1.") && is_code {
        true if code == "200" && end.is_none() => Err(Failure::other("it closed the connection")),
        // A TLS server sends nothing before the client does. Bytes after the head of the answer
        // show that this is not a tunnel.
        true if code == "200" && end.is_some_and(|end| end < head.len()) => {
            Err(Failure::other("it sent more than the head of its answer"))
        }
        true => Ok(code.to_owned()),
        false if head.is_empty() => Err(Failure::other("it closed the connection")),
        false => Err(Failure::other(Fault::new(
            "it does not speak HTTP",
            "is the port of proxy-url right?",
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::*;

    /// Answers in pieces, and keeps the request.
    struct Stream<'a> {
        answer: &'a [u8],
        part: usize,
        asked: Vec<u8>,
    }

    impl Read for Stream<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            if self.answer == b"timeout" {
                return Err(ErrorKind::TimedOut.into());
            }
            let part = self.part.min(room.len());
            (&mut self.answer).take(part as u64).read(room)
        }
    }

    impl Write for Stream<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.asked.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn asked(url: &str, answer: &[u8], part: usize) -> (Result<(), String>, String) {
        let endpoint = Endpoint::parse("https://[fd00::1]:6443/prefix").unwrap();
        let mut stream = Stream { answer, part, asked: Vec::new() };
        let result = open(&mut stream, &Proxy::parse(url).unwrap(), &endpoint);
        let asked = String::from_utf8(stream.asked).unwrap();
        (result.map_err(|failure| failure.to_string()), asked)
    }

    #[test]
    fn the_proxy_is_asked_once_and_answers_in_any_pieces() {
        let host = "CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n";
        let ok = b"HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\n";
        for part in 1..50 {
            let (result, request) = asked("http://p", ok, part);
            assert_eq!((result, request), (Ok(()), format!("{host}\r\n")));
        }
        let (_, request) = asked("http://me:a@p", ok, 50);
        let want = format!("{host}Proxy-Authorization: Basic bWU6YQ==\r\n\r\n");
        assert_eq!(request, want);
    }

    #[test]
    fn what_is_no_tunnel_has_its_line() {
        let large = [b"HTTP/1.1 200 OK\r\nX: ".to_vec(), vec![b'x'; 9000]].concat();
        let tls_alert = b"\x15\x03\x01\x00\x02\x02\x16";
        for (answer, want) in [
            (
                &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n<html>"[..],
                "407: it wants a user and password; put them into proxy-url",
            ),
            (
                b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno",
                "it answered 403 when asked to connect to [fd00::1]:6443",
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0", "it sent more than the head of its answer"),
            (&large, "the head of its answer is larger than 8192 bytes"),
            (b"", "it closed the connection"),
            (b"HTTP/1.1 200 OK\r\nVia: x", "it closed the connection"),
            (b"HTTP/1.1 403 Fo", "it answered 403 when asked to connect to [fd00::1]:6443"),
            (tls_alert, "it does not speak HTTP; is the port of proxy-url right?"),
            (b"HTTP/1.1 20\r\n\r\n", "it does not speak HTTP; is the port of proxy-url right?"),
            (b"SSH-2.0-x\r\n\r\n", "it does not speak HTTP; is the port of proxy-url right?"),
            (b"timeout", "timed out while connecting through the proxy"),
        ] {
            for part in [1, 512] {
                let (result, _) = asked("http://p", answer, part);
                // In single bytes, the bytes after the head are read by TLS, which refuses them.
                if part == 1 && want.starts_with("it sent more") {
                    continue;
                }
                assert_eq!(result, Err(want.to_owned()));
            }
        }
        let refused = b"HTTP/1.1 407 No\r\n\r\n";
        let (result, _) = asked("http://me:hunter2@p", refused, 9);
        let want = "407: it does not accept the user and password of proxy-url";
        assert_eq!(result, Err(want.to_owned()));
    }
}
