//! HTTP/1.1: requests in, responses out.

use crate::random;
use crate::time;
use http::StatusCode;
use httparse::Status;
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A request.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Path and query, as sent.
    pub target: String,
    /// Names as sent, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// Bytes on the wire (inside TLS): head and body.
    pub bytes: usize,
}

impl Request {
    /// Reads a request from the front of `buffer`; `None` if more is needed. An error is no HTTP.
    pub fn parse(buffer: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut headers);
        let start = match head.parse(buffer) {
            Ok(Status::Complete(length)) => length,
            Ok(Status::Partial) if buffer.len() <= MAX_HEAD => return Ok(None),
            Ok(Status::Partial) => return Err("head too long"),
            Err(_) => return Err("bad request head"),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut request = Self {
            method: head.method.unwrap_or_default().to_owned(),
            target: head.path.unwrap_or_default().to_owned(),
            headers: head
                .headers
                .iter()
                .map(|header| (header.name.to_owned(), text(header.value)))
                .collect(),
            ..Self::default()
        };
        let rest = &buffer[start..];
        if request.header("transfer-encoding").is_some() {
            return Err("the double knows no chunked requests");
        }
        let length = request.header("content-length").map_or(Ok(0), str::parse::<usize>);
        let length = length.map_err(|_| "bad Content-Length")?;
        if length > MAX_BODY {
            return Err("body too long");
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        request.body = body.to_vec();
        request.bytes = start + length;
        Ok(Some(request))
    }

    /// A header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
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

/// Limits of a request: the memory of the test must not grow with what an agent sends.
const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 8 << 20;

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub code: u16,
    /// All but those of the framing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Response {
    /// A JSON body, with a newline behind it.
    #[must_use]
    pub fn json(code: u16, body: &Value) -> Self {
        Self::text(code, "application/json", &format!("{body}\n"))
    }

    /// A body of this media type.
    #[must_use]
    pub fn text(code: u16, media: &str, body: &str) -> Self {
        Self { body: body.as_bytes().to_vec(), ..Self::empty(code).with("Content-Type", media) }
    }

    /// Without a body.
    #[must_use]
    pub fn empty(code: u16) -> Self {
        Self { code, headers: Vec::new(), body: Vec::new() }
    }

    /// Whether the server closes the connection behind it.
    #[must_use]
    pub fn closes(&self) -> bool {
        self.headers.iter().any(|(name, value)| name == "Connection" && value == "close")
    }

    /// Sets a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(n, _)| n != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Head and body, as Go's net/http frames them. A body that exceeds the buffer of 2 KiB is one
    /// chunk.
    #[must_use]
    pub fn wire(&self) -> (Vec<u8>, Vec<u8>) {
        let length = self.body.len();
        let (framing, body) = if length > 2048 {
            let size = format!("{length:x}\r\n");
            let chunk = [size.as_bytes(), &self.body, b"\r\n0\r\n\r\n"].concat();
            ("Transfer-Encoding: chunked".to_owned(), chunk)
        } else {
            (format!("Content-Length: {length}"), self.body.clone())
        };
        let status = StatusCode::from_u16(self.code).expect("a status code");
        let lines = self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        let lines: String = lines.collect();
        (format!("HTTP/1.1 {status}\r\n{lines}{framing}\r\n\r\n").into_bytes(), body)
    }
}

/// The headers that every answer of the real server has. A request that is not authenticated has
/// no flow schema.
pub(crate) fn dress(response: Response) -> Response {
    let response = response
        .with("Audit-Id", &random::uuid())
        .with("Cache-Control", "no-cache, private")
        .with("Date", &time::http_date());
    match response.code {
        401 => response,
        _ => response
            .with("X-Kubernetes-Pf-Flowschema-Uid", FLOW_SCHEMA)
            .with("X-Kubernetes-Pf-Prioritylevel-Uid", PRIORITY_LEVEL),
    }
}

/// Any uid: only its length matters.
const FLOW_SCHEMA: &str = "79fc5df6-2522-4cce-8b15-bca2926c2261";
const PRIORITY_LEVEL: &str = "a8ec8295-ca67-4f2e-b638-9f4ffb33fd04";
