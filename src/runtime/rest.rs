//! The Docker Engine API, which Podman speaks too, over HTTP/1.0: to this version Docker and Podman
//! answer without chunks, and close the connection.

use std::io::ErrorKind;

use serde::Deserialize;
use serde_json::Value;

use super::config::{Protocol, RuntimeConfig};
use super::report::{
    FailedAt, Images, LARGE_LIST, MAX_NAMES, Part, RuntimeFailure, RuntimeReport, RuntimeVersion,
    Status,
};
use super::socket::{OpenStream, failed};
use crate::kube::facts::Image;
use crate::kube::text::{Fault, one_line};
use crate::kube::{json, object, protobuf};

const MAX_HEAD: usize = 8 << 10;
const MAX_BODY: usize = 4 << 20;
/// Bytes of an error's text.
const MAX_ERROR: usize = 200;

/// Asks for `last` and the parts before it, with a new connection for each request; for the folder
/// of the images only `with_folder`. Calls `on_part` before each part but the status, with the
/// report so far.
pub fn ask(
    config: &RuntimeConfig,
    last: Part,
    with_folder: bool,
    open: OpenStream<'_>,
    on_part: &mut dyn FnMut(Part, &RuntimeReport),
) -> RuntimeReport {
    let mut get = |prefix: &str, path: &str| {
        get(&format!("{prefix}{path}"), config, open).map_err(|failure| failure.of(path))
    };
    let ping = match get("", "/_ping") {
        Ok(ping) => ping,
        Err(failure) => return RuntimeReport::new(Err(failure)),
    };
    let mut report = RuntimeReport::new(Ok(Status::default()));
    // `get` has checked that the ping succeeded.
    let ping = RestResponse::parse(&ping);
    let header = |name| ping.as_ref().map_or("", |ping| ping.header(name));
    report.version = version(header("server"), config.protocol);
    // The daemon's own version is always accepted.
    let prefix = match header("api-version") {
        api if is_version(api) => format!("/v{api}"),
        _ => String::new(),
    };
    if last < Part::Details {
        return report;
    }
    on_part(Part::Details, &report);
    report.asked = Part::Details;
    if with_folder {
        let folder = get(&prefix, "/info").and_then(|answer| {
            let info = json::parse(body(&answer)).ok_or("not JSON, or too large");
            let folder = info.and_then(|info| match image_folder(&info) {
                folder if folder.starts_with('/') => Ok(folder.to_owned()),
                _ => Err("no DockerRootDir"),
            });
            let no_folder = |why| format!("/info: no folder of the images: {why}");
            folder.map_err(|why| RuntimeFailure::api(no_folder(why)))
        });
        report.image_folder = report.take(folder);
    }
    if last < Part::List {
        return report;
    }
    on_part(Part::List, &report);
    report.asked = Part::List;
    let answer = get(&prefix, "/images/json");
    report.list_is_large = match &answer {
        Ok(answer) => body(answer).len() > LARGE_LIST,
        Err(failure) => failure.at == FailedAt::Size,
    };
    let no_list = |error| RuntimeFailure::api(format!("/images/json: no list of images: {error}"));
    let images = answer.and_then(|answer| list(body(&answer), config.max_images).map_err(no_list));
    report.images = report.take(images);
    report
}

/// The whole answer, head and body, if its status is 200.
fn get(
    path: &str,
    config: &RuntimeConfig,
    open: OpenStream<'_>,
) -> Result<Vec<u8>, RuntimeFailure> {
    let mut socket = open(&config.path)?;
    let agent = concat!("nodelet/", env!("CARGO_PKG_VERSION"));
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n");
    // In one piece: `write!` would send a piece for each argument.
    socket.write_all(request.as_bytes()).map_err(|error| failed(&error))?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let length = match socket.read(&mut piece) {
            // The process was stopped or the machine suspended: signal(7), sockets with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.map_err(|error| failed(&error))?,
        };
        answer.extend_from_slice(piece.get(..length).unwrap_or_default());
        let response = RestResponse::parse(&answer);
        let is_complete = match &response {
            Some(response) => response.is_complete(),
            None => answer.len() > MAX_HEAD,
        };
        if length == 0 || is_complete {
            let remedy =
                "is it the socket of Docker or Podman? Write unix:// for containerd and CRI-O";
            let none = || match answer.is_empty() {
                true => failed(&ErrorKind::UnexpectedEof.into()),
                false => RuntimeFailure::api(Fault::new("it speaks no HTTP", remedy)),
            };
            response.ok_or_else(none)?.check()?;
            return Ok(answer);
        }
    }
}

/// The body of an answer of [`get`].
fn body(answer: &[u8]) -> &[u8] {
    RestResponse::parse(answer).map_or(&[], |response| response.body)
}

/// A response, as far as it has arrived.
struct RestResponse<'a> {
    code: &'a str,
    head: &'a str,
    body: &'a [u8],
}

impl<'a> RestResponse<'a> {
    /// `None` until the whole head has arrived, and if it is no head of HTTP/1.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let searched = bytes.get(..MAX_HEAD).unwrap_or(bytes);
        let end = searched.windows(4).position(|four| four == b"\r\n\r\n")?;
        let (head, rest) = bytes.split_at_checked(end)?;
        let head = str::from_utf8(head).ok()?;
        let (first, head) = head.split_once("\r\n").unwrap_or((head, ""));
        let code = first.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
        Some(Self { code, head, body: rest.get(4..)? })
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
        self.body.len() > MAX_BODY || self.length().is_some_and(|length| self.body.len() >= length)
    }

    fn check(&self) -> Result<(), RuntimeFailure> {
        if self.body.len() > MAX_BODY {
            let fault = "the answer is larger than 4 MiB".into();
            return Err(RuntimeFailure { at: FailedAt::Size, fault });
        }
        if self.length().is_some_and(|length| self.body.len() < length) {
            return Err(RuntimeFailure::api("the answer ends early"));
        }
        if !self.header("transfer-encoding").is_empty() {
            return Err(RuntimeFailure::api("the answer to HTTP/1.0 is chunked"));
        }
        if self.code == "200" {
            return Ok(());
        }
        let error = json::parse(self.body).unwrap_or_default();
        let text = match object::text(&error, &["message"]) {
            "" => protobuf::WireValue::Bytes(self.body).text(),
            message => one_line(message),
        };
        let text: String = text.chars().take(MAX_ERROR).collect();
        let code = one_line(self.code);
        Err(RuntimeFailure::api(format!("HTTP status {code}: {text}")))
    }
}

/// `Docker/20.10.24+dfsg1 (linux)` or `Libpod/5.4.2 (linux)`. A server with another name has the
/// type of its endpoint. Without a version in the header, the version is `?`.
fn version(server: &str, protocol: Protocol) -> Option<RuntimeVersion> {
    let (name, version) = server.split_once('/').unwrap_or((server, ""));
    let kind = match (name, protocol) {
        ("Docker", _) => "docker",
        ("Libpod", _) => "podman",
        (_, Protocol::Podman) => "podman",
        _ => "docker",
    };
    let version = version.split(' ').next().filter(|text| !text.is_empty());
    RuntimeVersion::new(kind.to_owned(), one_line(version.unwrap_or("?")))
}

/// `1.41`.
fn is_version(text: &str) -> bool {
    let is_number = |part: &str| {
        (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    text.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// The folder of the images, from `/info`. A new installation of Docker 29 has them in containerd,
/// whose folder it does not name. The files of a containerd that Docker starts itself are below
/// `DockerRootDir`, and its socket is another one. Upstream: `daemon/containerd/service.go`
/// LayerStoreStatus, `daemon/command/daemon.go` initializeContainerd.
fn image_folder(info: &Value) -> &str {
    let of_store = [Value::from("driver-type"), Value::from("io.containerd.snapshotter.v1")];
    let in_containerd = object::list(info, &["DriverStatus"]).contains(&Value::from(of_store));
    // Docker before version 27 does not tell the address.
    let address = object::text(info, &["Containerd", "Address"]);
    match address.strip_prefix("/var").unwrap_or(address) {
        "" | "/run/containerd/containerd.sock" if in_containerd => "/var/lib/containerd",
        _ => object::text(info, &["DockerRootDir"]),
    }
}

/// An image of `/images/json`. What nodelet does not know is skipped.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    id: String,
    size: i64,
    repo_digests: Option<Vec<String>>,
    repo_tags: Option<Vec<String>>,
}

/// The images of a body of `/images/json`.
pub fn list(body: &[u8], max_images: i32) -> serde_json::Result<Images> {
    let mut images = Images::new(max_images);
    for listed in serde_json::from_slice::<Vec<Listed>>(body)? {
        let mut names = Vec::new();
        for list in [&listed.repo_digests, &listed.repo_tags].into_iter().flatten() {
            // Docker 20.10 has `<none>:<none>` and `<none>@<none>` for an image without a name.
            let list = list.iter().filter(|name| !name.starts_with("<none>"));
            names.extend(list.take(MAX_NAMES).map(|name| one_line(name)));
        }
        let size_bytes = u64::try_from(listed.size).unwrap_or(0);
        images.push(Image { id: listed.id, names, size_bytes });
    }
    Ok(images)
}
