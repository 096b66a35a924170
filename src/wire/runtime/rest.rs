//! The Docker Engine API, which Podman speaks too, over HTTP/1.0: both then answer without chunks,
//! and close the connection.

use std::fmt;
use std::path::PathBuf;

use serde::Deserializer;
use serde::de::{SeqAccess, Visitor};
use serde_json::Value;

use super::Conversation;
use super::protobuf;
use crate::config::runtime::{Protocol, RuntimeConfig};
use crate::core::runtime::{
    Failure, Found, Image, Images, LARGE_LIST, Look, MAX_NAMES, Status, Version,
};
use crate::kube::text::one_line;
use crate::kube::{json, object};

const MAX_HEAD: usize = 8 << 10;
const MAX_BODY: usize = 4 << 20;
/// Most values of a list of images, some 5,000 images of 40 values, and their deepest nesting.
const MAX_VALUES: usize = 200_000;
const MAX_DEPTH: usize = 16;
/// Bytes of an error's text.
const MAX_ERROR: usize = 200;

/// One look by HTTP: a connection for each request.
#[derive(Debug)]
pub struct Rest {
    path: PathBuf,
    protocol: Protocol,
    look: Look,
    max_images: i32,
    /// The next request.
    next: Option<Ask>,
    /// The request that was sent.
    asked: Option<Ask>,
    /// `/v1.41`; the daemon's own version is always accepted.
    prefix: String,
    received: Vec<u8>,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Ping,
    Images,
    Info,
}

impl Ask {
    fn path(self) -> &'static str {
        match self {
            Self::Ping => "/_ping",
            Self::Images => "/images/json",
            Self::Info => "/info",
        }
    }
}

impl Rest {
    /// A look that asks for `look`.
    pub fn new(config: &RuntimeConfig, look: Look) -> Self {
        Self {
            path: config.path.clone(),
            protocol: config.protocol,
            look,
            max_images: config.max_images,
            next: Some(Ask::Ping),
            asked: None,
            prefix: String::new(),
            received: Vec::new(),
            found: Found::failed(Failure::api("no answer")),
        }
    }

    /// Takes the response of `ask`, and decides what is asked next.
    fn on_response(&mut self, ask: Ask, bytes: &[u8]) -> Result<(), Failure> {
        let response = Response::parse(bytes).ok_or_else(|| Failure {
            remedy: "is it the socket of Docker or Podman? Write unix:// for containerd and CRI-O",
            ..Failure::api("it speaks no HTTP")
        })?;
        self.found.list_is_large |= ask == Ask::Images && response.body.len() > LARGE_LIST;
        response.check()?;
        match ask {
            Ask::Ping => {
                self.found.status = Ok(Status::default());
                self.found.version = version(response.header("server"), self.protocol);
                self.prefix = match response.header("api-version") {
                    api if is_version(api) => format!("/v{api}"),
                    _ => String::new(),
                };
                self.next = self.look.details.then_some(Ask::Images);
            }
            Ask::Images => {
                self.next = self.look.folder.then_some(Ask::Info);
                let images = list(response.body, Images::new(self.max_images))
                    .map_err(|error| Failure::api(format!("no list of images: {error}")))?;
                self.found.images = Some(images);
            }
            Ask::Info => {
                let info = json::parse(response.body).unwrap_or_default();
                let folder = object::text(&info, &["DockerRootDir"]);
                self.found.image_folder = folder.starts_with('/').then(|| folder.to_owned());
            }
        }
        Ok(())
    }
}

impl Conversation for Rest {
    fn open(&mut self) -> Option<(PathBuf, Vec<u8>)> {
        let ask = self.next.take()?;
        self.asked = Some(ask);
        self.received.clear();
        // Empty until the ping is answered.
        let (prefix, path) = (&self.prefix, ask.path());
        let agent = concat!("nodelet/", env!("CARGO_PKG_VERSION"));
        let request = format!(
            "GET {prefix}{path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n"
        );
        Some((self.path.clone(), request.into_bytes()))
    }

    fn take(&mut self, bytes: &[u8], _: &mut Vec<u8>) -> bool {
        self.received.extend_from_slice(bytes);
        match Response::parse(&self.received) {
            Some(response) => response.is_complete(),
            // A head without an end, or a body above its limit.
            None => self.received.len() > MAX_HEAD,
        }
    }

    fn close(&mut self, failure: Option<Failure>) {
        let Some(ask) = self.asked.take() else {
            return;
        };
        let bytes = std::mem::take(&mut self.received);
        let outcome = match failure {
            Some(failure) => Err(failure),
            None => self.on_response(ask, &bytes),
        };
        match (ask, outcome) {
            (_, Ok(())) => {}
            (Ask::Ping, Err(failure)) => self.found.status = Err(failure),
            (ask, Err(failure)) => {
                let path = ask.path();
                self.found.errors.push(format!("{path}: {failure}"));
            }
        }
    }

    fn found(self: Box<Self>) -> Found {
        self.found
    }
}

/// A response, as far as it has arrived.
#[derive(Debug)]
pub struct Response<'a> {
    code: &'a str,
    head: &'a str,
    body: &'a [u8],
}

impl<'a> Response<'a> {
    /// `None` until the head has arrived, and where it is no head of HTTP/1.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let searched = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        let end = searched.windows(4).position(|four| four == b"\r\n\r\n")?;
        let (head, rest) = bytes.split_at_checked(end)?;
        let head = str::from_utf8(head).ok()?;
        let (first, head) = head.split_once("\r\n").unwrap_or((head, ""));
        let code = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
        Some(Self {
            code,
            head,
            body: rest.get(4..)?,
        })
    }

    /// The value of a header; empty without it.
    fn header(&self, name: &str) -> &'a str {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.trim().eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value.trim())
    }

    fn length(&self) -> Option<usize> {
        self.header("content-length").parse().ok()
    }

    /// No further byte is needed.
    fn is_complete(&self) -> bool {
        self.body.len() > MAX_BODY
            || self
                .length()
                .is_some_and(|length| self.body.len() >= length)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.body.len() > MAX_BODY {
            return Err(Failure::api("the answer is larger than 4 MiB"));
        }
        if self.length().is_some_and(|length| self.body.len() < length) {
            return Err(Failure::api("the answer ends early"));
        }
        if !self.header("transfer-encoding").is_empty() {
            return Err(Failure::api("the answer to HTTP/1.0 is chunked"));
        }
        if self.code == "200" {
            return Ok(());
        }
        let error = json::parse(self.body).unwrap_or_default();
        let text = match object::text(&error, &["message"]) {
            "" => protobuf::Value::Bytes(self.body).text(),
            message => one_line(message),
        };
        let text: String = text.chars().take(MAX_ERROR).collect();
        let code = one_line(self.code);
        Err(Failure::api(format!("HTTP status {code}: {text}")))
    }
}

/// `Docker/20.10.24+dfsg1 (linux)` or `Libpod/5.4.2 (linux)`. Another server has the type of the
/// endpoint, and no known version.
fn version(server: &str, protocol: Protocol) -> Option<Version> {
    let (name, version) = server.split_once('/').unwrap_or((server, ""));
    let kind = match (name, protocol) {
        ("Docker", _) => "docker",
        ("Libpod", _) => "podman",
        (_, Protocol::Podman) => "podman",
        _ => "docker",
    };
    let version = version.split(' ').next().filter(|text| !text.is_empty());
    Version::new(kind.to_owned(), one_line(version.unwrap_or("?")))
}

/// `1.41`.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| {
        (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.split_once('.')
        .is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// Collects a list of any length: one image at a time is held.
struct ImageList(Images);

impl<'de> Visitor<'de> for ImageList {
    type Value = Images;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of images")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Images, A::Error> {
        while let Some(listed) = list.next_element::<Value>()? {
            let mut image = Image {
                id: object::text(&listed, &["Id"]).to_owned(),
                names: Vec::new(),
                size_bytes: listed.get("Size").and_then(Value::as_u64).unwrap_or(0),
            };
            for key in ["RepoDigests", "RepoTags"] {
                let names = object::list(&listed, &[key]).iter();
                let names = names.filter_map(Value::as_str).filter(|name| is_name(name));
                image.names.extend(names.take(MAX_NAMES).map(one_line));
            }
            self.0.push(image);
        }
        Ok(self.0)
    }
}

/// Docker 20.10 sends `<none>:<none>` and `<none>@<none>` for an image without a name.
fn is_name(name: &str) -> bool {
    !name.starts_with("<none>")
}

/// Adds the images of a body of `/images/json` to `images`.
pub fn list(body: &[u8], images: Images) -> serde_json::Result<Images> {
    if !json::is_bounded(body, MAX_VALUES, MAX_DEPTH) {
        return Err(serde::de::Error::custom("too many values"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let images = json.deserialize_seq(ImageList(images))?;
    json.end().map(|()| images)
}
