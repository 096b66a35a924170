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

/// Limits of a request: the memory of the test must not grow with what an agent sends.
const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 8 << 20;

/// Reads a request from the front of `buffer`; `None` if more is needed. An error is no HTTP.
pub(crate) fn parse(buffer: &[u8]) -> Result<Option<Request>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let start = match head.parse(buffer) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) if buffer.len() <= MAX_HEAD => return Ok(None),
        Ok(Status::Partial) => return Err("head too long"),
        Err(_) => return Err("bad request head"),
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

/// A response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) code: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(code: u16, body: &Value) -> Self {
        Self::text(code, "application/json", &format!("{body}\n"))
    }

    pub(crate) fn text(code: u16, media: &str, body: &str) -> Self {
        Self { body: body.as_bytes().to_vec(), ..Self::empty(code).with("Content-Type", media) }
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
