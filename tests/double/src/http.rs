//! HTTP/1.1: requests in, responses out.

use http::StatusCode;
use httparse::Status;
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, as sent.
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Bytes on the wire (inside TLS).
    pub(crate) bytes: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn path(&self) -> String {
        decode(self.target.split('?').next().unwrap_or(""))
    }

    pub(crate) fn query(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key) == name).then(|| decode(&value.replace('+', " ")))
        })
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Limits: a head of 64 KiB, a body of 8 MiB.
const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 8 << 20;

/// What the bytes so far are.
pub(crate) enum Progress {
    /// More is needed.
    More,
    /// A whole request, and how many bytes it took.
    Done(Box<Request>, usize),
    /// No HTTP.
    Bad(&'static str),
}

/// Reads a request from the front of `buffer`.
pub(crate) fn parse(buffer: &[u8]) -> Progress {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let start = match head.parse(buffer) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if buffer.len() <= MAX_HEAD => return Progress::More,
        Ok(Status::Partial) => return Progress::Bad("head too long"),
        Err(_) => return Progress::Bad("bad request head"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut request = Request {
        method: head.method.unwrap_or_default().to_owned(),
        target: head.path.unwrap_or_default().to_owned(),
        headers: head
            .headers
            .iter()
            .map(|header| (header.name.to_owned(), text(header.value)))
            .collect(),
        ..Request::default()
    };
    let rest = &buffer[start..];
    if request.header("transfer-encoding").is_some() {
        return Progress::Bad("the double knows no chunked requests");
    }
    let Ok(length) = request.header("content-length").map_or(Ok(0), str::parse::<usize>) else {
        return Progress::Bad("bad Content-Length");
    };
    if length > MAX_BODY {
        return Progress::Bad("body too long");
    }
    if rest.len() < length {
        return Progress::More;
    }
    request.body = rest[..length].to_vec();
    request.bytes = start + length;
    let total = request.bytes;
    Progress::Done(Box::new(request), total)
}

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(code: u16, body: &Value) -> Self {
        let mut text = body.to_string();
        text.push('\n');
        Self {
            code,
            headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body: text.into_bytes(),
        }
    }

    pub(crate) fn text(code: u16, media: &str, body: &str) -> Self {
        Self {
            code,
            headers: vec![("Content-Type".to_owned(), media.to_owned())],
            body: body.as_bytes().to_vec(),
        }
    }

    pub(crate) fn empty(code: u16) -> Self {
        Self { code, headers: Vec::new(), body: Vec::new() }
    }

    /// Whether the server closes the connection behind it.
    pub(crate) fn closes(&self) -> bool {
        self.headers.iter().any(|(name, value)| name == "Connection" && value == "close")
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Head and body, as Go's net/http frames them. A body that exceeds the buffer of 2 KiB is one
    /// chunk.
    pub(crate) fn wire(&self) -> (Vec<u8>, Vec<u8>) {
        let mut headers = self.headers.clone();
        let length = self.body.len();
        let is_chunked = length > 2048;
        headers.push(if is_chunked {
            ("Transfer-Encoding".to_owned(), "chunked".to_owned())
        } else {
            ("Content-Length".to_owned(), length.to_string())
        });
        let status = StatusCode::from_u16(self.code).expect("a status code");
        let mut head = format!("HTTP/1.1 {status}\r\n");
        for (name, value) in &headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let body = if is_chunked {
            [format!("{length:x}\r\n").as_bytes(), &self.body, b"\r\n0\r\n\r\n"].concat()
        } else {
            self.body.clone()
        };
        (head.into_bytes(), body)
    }
}
