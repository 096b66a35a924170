//! Questions against scripted answers, and against real sockets whose other end is a thread.
#![allow(clippy::disallowed_methods)]

mod cri_o;
mod state;

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use support::grpc::{field, frame, prefixed, varint};

use self::cri_o::{IMAGE_FS, READY, VERSION};
use super::report::{FailedAt, RuntimeFailure};
use super::*;
use crate::kube::facts::Image;
use crate::os::mounts::pretend;
use crate::os::tree::Tree;
use crate::os::unix_socket::connect_to;

fn config(protocol: Protocol) -> RuntimeConfig {
    let parsed = RuntimeConfig::parse("/run/runtime.sock", "", 10, Path::new("/run/facts"));
    RuntimeConfig { protocol, ..parsed.unwrap().unwrap() }
}

const ALL: Part = Part::List;

const STATUS_ALONE: Part = Part::Status;

/// A connection whose answers are prepared; they arrive in pieces, with an interrupted read before
/// each.
#[derive(Debug)]
struct Script {
    answers: Vec<u8>,
    read: usize,
    piece: usize,
    is_interrupted: bool,
    sent: Rc<RefCell<Vec<u8>>>,
}

impl Read for Script {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.is_interrupted = !self.is_interrupted;
        if self.is_interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let rest = &self.answers[self.read..];
        let length = rest.len().min(self.piece).min(bytes.len());
        bytes[..length].copy_from_slice(&rest[..length]);
        self.read += length;
        Ok(length)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_http = bytes.starts_with(b"GET");
        assert!(!is_http || bytes.ends_with(b"\r\n\r\n"), "a request is sent in one write");
        self.sent.borrow_mut().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Asks over connections with these answers, one after the other. What was sent over each, and the
/// path of its socket.
struct Scripts {
    scripts: Vec<Vec<u8>>,
    piece: usize,
    sent: Vec<Rc<RefCell<Vec<u8>>>>,
    paths: Vec<String>,
}

impl Scripts {
    fn new(scripts: &[Vec<u8>], piece: usize) -> Self {
        let scripts = scripts.iter().rev().cloned().collect();
        Self { scripts, piece, sent: Vec::new(), paths: Vec::new() }
    }

    fn open(&mut self, path: &Path) -> Result<Box<dyn RuntimeStream>, RuntimeFailure> {
        let answers =
            self.scripts.pop().ok_or_else(|| RuntimeFailure::api("no more connections"))?;
        let sent = Rc::default();
        self.sent.push(Rc::clone(&sent));
        self.paths.push(path.display().to_string());
        Ok(Box::new(Script { answers, read: 0, piece: self.piece, is_interrupted: false, sent }))
    }

    fn ask(&mut self, cri: &mut Cri, last: Part) -> RuntimeReport {
        cri.ask(&config(Protocol::Cri), last, &mut |path| self.open(path), &mut |_, _| {})
    }

    fn sent(&self, connection: usize) -> Vec<u8> {
        self.sent[connection].borrow().clone()
    }
}

// A server's side of HTTP/2 and protobuf.

fn settings() -> Vec<u8> {
    frame(4, 0, 0, &[0, 5, 0, 0, 0x40, 0])
}

/// The first block of grpc-go: a size update, :status 200, content-type.
const OK: &[u8] = b"\x20\x88\x5f\x8b\x1d\x75\xd0\x62\x0d\x26\x3d\x4c\x4d\x65\x64";
/// Trailers of grpc-go: `grpc-status: 0`, the name in Huffman's code.
const DONE: &[u8] = b"\x00\x88\x9a\xca\xc8\xb2\x12\x34\xda\x8f\x01\x30";

fn literal(name: &str, value: &str) -> Vec<u8> {
    let string = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [vec![0], string(name), string(value)].concat()
}

fn trailers(code: &str, message: &str) -> Vec<u8> {
    [literal("grpc-status", code), literal("grpc-message", message)].concat()
}

/// A whole answer on `stream`.
fn answer(stream: u8, message: &[u8]) -> Vec<u8> {
    let mut frames = frame(1, 4, stream, OK);
    for piece in prefixed(message).chunks(16_384) {
        frames.extend(frame(0, 0, stream, piece));
    }
    frames.extend(frame(1, 5, stream, DONE));
    frames
}

fn image(id: &str, size: u64) -> Vec<u8> {
    let content = [
        field(1, id.as_bytes()),
        field(2, format!("{id}:1").as_bytes()),
        field(3, format!("{id}@sha256:0").as_bytes()),
        [vec![4 << 3], varint(size)].concat(),
    ];
    field(1, &content.concat())
}

/// Answers of a healthy runtime: READY without its last 6 bytes, the features; then a handler and a
/// runtime that have one feature.
fn healthy() -> Vec<u8> {
    let features = b"\x1a\x07\n\x01x\x12\x02\x08\x01\"\x02\x08\x01";
    cri_o::answers(&[&READY[..READY.len() - 6], features].concat(), IMAGE_FS)
}

/// Asks by CRI over one connection with these answers.
fn cri(last: Part, bytes: &[u8], piece: usize) -> RuntimeReport {
    Scripts::new(&[bytes.to_vec()], piece).ask(&mut Cri::default(), last)
}

fn failure_of(bytes: &[u8]) -> String {
    let report = cri(ALL, bytes, 1000);
    report.status.unwrap_err().fault.to_string()
}

fn told(report: &RuntimeReport) -> Vec<Image> {
    report.images.clone().unwrap().reported(&[])
}

#[test]
fn a_request_is_the_bytes_that_containerd_and_cri_o_accept() {
    let answers = [settings(), answer(1, READY), answer(3, READY)].concat();
    let mut scripts = Scripts::new(&[answers], 1000);
    let mut cri = Cri::default();
    let report = scripts.ask(&mut cri, STATUS_ALONE);
    assert!(report.status.is_ok());
    let bytes = scripts.sent(0);
    let mut want = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    want.extend(b"\0\0\x18\x04\0\0\0\0\0");
    want.extend(b"\0\x01\0\0\0\0\0\x02\0\0\0\0\0\x04\x01\0\0\x05\0\x06\0\0\x40\0");
    want.extend(b"\0\0\x04\x08\0\0\0\0\0\x01\0\0\0");
    assert!(bytes.starts_with(&want), "{bytes:?}");
    let headers = &bytes[want.len()..];
    assert_eq!(headers[3..9], [1, 4, 0, 0, 0, 1]);
    let block = &headers[9..headers.len() - 14];
    let mut names = Vec::new();
    hpack::decode(block, &mut |name, value| {
        names.push(format!("{}={}", name.escape_ascii(), value.escape_ascii()));
    })
    .unwrap();
    // Names of the static table are not decoded, and not needed here.
    assert_eq!(
        names,
        [
            "=/runtime.v1.RuntimeService/Status",
            "=localhost",
            "=application/grpc",
            "te=trailers",
            "grpc-timeout=20S",
            concat!("=nodelet/", env!("CARGO_PKG_VERSION")),
        ]
    );
    assert_eq!(block[..3], [0x83, 0x86, 0x04]);
    assert!(headers.ends_with(b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0"));

    // The next question is asked over the same connection, after what was left to send: the
    // acknowledgement of SETTINGS, and the window of the last answer.
    scripts.ask(&mut cri, STATUS_ALONE);
    let next = &scripts.sent(0)[bytes.len()..];
    let length = u8::try_from(prefixed(READY).len()).unwrap();
    let left = [frame(4, 1, 0, &[]), frame(8, 0, 0, &[0, 0, 0, length])].concat();
    assert!(next.starts_with(&left), "{next:?}");
    assert_eq!(next[left.len() + 3..left.len() + 9], [1, 4, 0, 0, 0, 3]);
}

/// containerd before 2.0 sends neither handlers nor features; no image is an empty message.
#[test]
fn an_old_runtime_without_images() {
    let bytes = [
        settings(),
        // The conditions alone: the first field, a head of 2 bytes and 36.
        answer(1, &READY[..38]),
        answer(3, VERSION),
        answer(5, &[]),
        answer(7, &[]),
    ];
    let found = cri(ALL, &bytes.concat(), 50);
    let status = found.status.clone().unwrap();
    assert_eq!((status.runtime, status.network), (None, None));
    assert_eq!(status.handlers, []);
    assert_eq!(status.supplemental_groups_policy, None);
    assert_eq!(told(&found), []);
    assert_eq!(found.image_folder, None);
}

#[test]
fn pings_padding_and_unknown_frames_between_the_answers() {
    let status = prefixed(READY);
    let (first, second) = status.split_at(20);
    let pad = |payload: &[u8]| [&[3], payload, &[0; 3]].concat();
    let bytes = [
        settings(),
        frame(6, 0, 0, b"12345678"),
        settings(),
        // HEADERS with padding and priority, then DATA with padding.
        frame(1, 0x2c, 1, &pad(&[&[0; 5], OK].concat())),
        frame(8, 0, 0, &[0, 0, 0, 9]),
        frame(0, 8, 1, &pad(first)),
        frame(0x42, 0xff, 9, b"unknown"),
        frame(2, 0, 1, &[0; 5]),
        frame(6, 1, 0, b"of no one"),
        frame(0, 0, 1, &[]),
        frame(0, 0, 1, second),
        frame(1, 5, 1, DONE),
    ]
    .concat();
    // Each is acknowledged with the next request.
    let (ack, pong) = (frame(4, 1, 0, &[]), frame(6, 1, 0, b"12345678"));
    let acks = [ack.clone(), pong, ack].concat();
    for piece in [1, 5, 1000] {
        let mut scripts = Scripts::new(&[[bytes.clone(), answer(3, VERSION)].concat()], piece);
        let found = scripts.ask(&mut Cri::default(), ALL);
        assert!(found.status.is_ok() && found.version.is_some(), "{found:?}");
        assert!(scripts.sent(0).windows(acks.len()).any(|sent| sent == acks));
    }
}

#[test]
fn an_error_of_grpc_is_written_as_go_writes_it() {
    let error = |code, message| [OK, trailers(code, message).as_slice()].concat();
    let bytes = [
        settings(),
        // Trailers alone.
        frame(1, 5, 1, &error("12", "unknown service runtime.v1.RuntimeService")),
        frame(1, 5, 3, &error("14", "not%20initialized%0ayet")),
        frame(1, 5, 5, &error("99", "")),
        frame(1, 5, 7, &error("x", "")),
    ];
    let found = cri(ALL, &bytes.concat(), 33);
    let fault = found.status.unwrap_err().fault;
    let disabled = "Status: rpc error: code = Unimplemented desc = unknown service \
                    runtime.v1.RuntimeService";
    assert_eq!(fault.what, disabled);
    assert!(fault.remedy.contains("disabled_plugins"));
    let not_yet = "Version: rpc error: code = Unavailable desc = not initialized yet; wait until";
    assert!(found.errors[0].starts_with(not_yet), "{:?}", found.errors);
    let unknown = ["ImageFsInfo", "ListImages"]
        .map(|call| format!("{call}: rpc error: code = Unknown desc = "));
    assert_eq!(found.errors[1..], unknown);
    assert_eq!((found.version, found.images), (None, None));
}

#[test]
fn an_answer_that_is_not_whole_is_an_error() {
    let with = |data: &[&[u8]]| {
        let mut bytes = [settings(), frame(1, 4, 1, OK)].concat();
        for data in data {
            bytes.extend(frame(0, 0, 1, data));
        }
        bytes.extend(frame(1, 5, 1, DONE));
        bytes
    };
    let message = prefixed(READY);
    let end = message.len();
    let mut compressed = message.clone();
    compressed[0] = 1;
    let mut longer = message.clone();
    longer[4] += 1;
    let mut shorter = message.clone();
    shorter[4] -= 1;
    let huge = [0, 1, 0, 0, 1];
    for (bytes, want) in [
        (with(&[&compressed]), "the answer is compressed"),
        (with(&[&longer]), "the answer ends early"),
        (with(&[&shorter]), "the answer has more than one message"),
        (with(&[&message[..end - 1]]), "the answer ends early"),
        (with(&[&message[..3]]), "the answer ends early"),
        (with(&[]), "the answer ends early"),
        (with(&[&message, &message]), "the answer has more than one message"),
        (with(&[&huge]), "the answer is larger than 16 MiB"),
        (with(&[&prefixed(b"\x0b")]), "the answer is no protobuf"),
        (with(&[&prefixed(&[])]), "the answer has no status"),
    ] {
        assert_eq!(failure_of(&bytes), format!("Status: {want}"));
    }
}

/// What was read before the error is no value: a Node without the other images, or with a runtime
/// that is ready although its condition was not read.
#[test]
fn an_answer_that_is_no_protobuf_gives_no_value() {
    let images = [image("a", 1), image("b", 2)].concat();
    let answers = |status: &[u8], version: &[u8], images: &[u8]| {
        let parts = [(1, status), (3, version), (5, IMAGE_FS), (7, images)];
        let answers = parts.map(|(stream, message)| answer(stream, message)).concat();
        cri(ALL, &[settings(), answers].concat(), 1000)
    };
    let found = answers(READY, VERSION, &images);
    assert_eq!((told(&found).len(), found.errors.len()), (2, 0));
    let broken = |message: &[u8]| [message, b"\x0b"].concat();
    for images in [broken(&images), [images.clone(), field(1, b"\x0b")].concat()] {
        let found = answers(READY, VERSION, &images);
        assert_eq!(found.images, None);
        assert_eq!(found.errors, ["ListImages: the answer is no protobuf"]);
    }
    let found = answers(READY, &broken(VERSION), &images);
    assert_eq!(found.version, None);
    assert_eq!(found.errors, ["Version: the answer is no protobuf"]);
    // Each inner message of a Status: conditions, one condition, a handler, and its features.
    let inner = field(1, &field(1, b"\x0b"));
    let features = field(3, &field(2, b"\x0b"));
    for status in [field(1, b"\x0b"), inner, field(3, b"\x0b"), features, field(4, b"\x0b")] {
        let found = answers(&[READY, &status].concat(), VERSION, &images);
        let failure = found.status.unwrap_err().fault.to_string();
        assert_eq!(failure, "Status: the answer is no protobuf", "{status:?}");
    }
}

#[test]
fn what_a_server_may_not_send_ends_the_connection() {
    let long = vec![0; 16_385];
    let data = [&[0, 1, 0, 0, 0], vec![b'x'; 16_379].as_slice()].concat();
    let then = |frame: Vec<u8>| [settings(), frame].concat();
    for (bytes, want) in [
        (frame(6, 0, 0, &[0; 8]), "it speaks no HTTP/2"),
        (
            b"HTTP/1.1 301 Moved Permanently\r\n".to_vec(),
            "it speaks HTTP/1 and no CRI; write docker:// or podman:// instead of unix://",
        ),
        (then(frame(0, 0, 1, &long)), "a frame is too long"),
        (then(frame(1, 0, 1, OK)), "its headers are too long"),
        (then(frame(9, 4, 1, OK)), "a frame that was not allowed"),
        (then(frame(5, 4, 1, OK)), "a frame that was not allowed"),
        (then(frame(1, 4, 9, OK)), "a frame of an unknown stream"),
        (then(frame(0, 0, 2, b"x")), "a frame of an unknown stream"),
        (then(frame(6, 0, 0, &[0; 8]).repeat(2000)), "it sends control frames without end"),
        (then(frame(0, 0, 1, &data).repeat(1030)), "the answer has more than one message"),
        (then(frame(0x42, 0, 9, &data).repeat(1030)), "the answer is larger than 16 MiB"),
        (then(frame(1, 4, 1, &[0xbe])), "its headers cannot be decoded"),
        (then(frame(1, 4, 1, &[0x3f, 0xe1, 0x1f])), "its headers cannot be decoded"),
        (then(frame(0, 8, 1, &[4, 0, 0])), "the padding is longer than its frame"),
        (then(frame(1, 0x24, 1, &[0; 4])), "a frame is too short"),
        (then(frame(7, 0, 0, &[0; 7])), "a frame is too short"),
        (settings(), "the runtime has closed the connection"),
        (Vec::new(), "the runtime has closed the connection"),
        (then(frame(3, 0, 1, &[0, 0, 0, 8])), "the runtime has reset the call"),
        (then(frame(1, 5, 1, b"\x20\x88")), "the answer has no grpc-status"),
        (then(frame(1, 5, 1, b"\x48\x03503")), "HTTP status 503"),
        (then(frame(1, 5, 1, &[b"\x8d", DONE].concat())), "HTTP status 404; "),
        // The page of a server that is none of gRPC.
        (
            then([frame(1, 4, 1, b"\x8d"), frame(0, 1, 1, b"404 page not found\n")].concat()),
            "HTTP status 404",
        ),
    ] {
        let want = want.trim_end_matches([';', ' ']);
        assert_eq!(failure_of(&bytes), format!("Status: {want}"));
    }
}

/// What is asked after it goes over a new connection.
#[test]
fn goaway_lets_the_current_call_end() {
    let go_away = |last: u8, code: u8| frame(7, 0, 0, &[0, 0, 0, last, 0, 0, 0, code]);
    let first = |go_away| [settings(), go_away, answer(1, READY)].concat();
    let images = [answer(3, IMAGE_FS), answer(5, &image("a", 1))].concat();
    let second = [settings(), answer(1, VERSION), images].concat();
    let mut scripts = Scripts::new(&[first(go_away(1, 0)), second], 10);
    let graceful = scripts.ask(&mut Cri::default(), ALL);
    assert_eq!(graceful.errors, [""; 0]);
    assert!(graceful.status.is_ok() && graceful.version.is_some());
    assert_eq!(told(&graceful).len(), 1);
    for (last, code) in [(1, 2), (0, 0)] {
        assert_eq!(failure_of(&first(go_away(last, code))), "Status: the runtime is going away");
    }
}

/// A runtime that was restarted, also between two questions, is asked over a new connection. One
/// that answers wrongly is not asked again.
#[test]
fn a_kept_connection_that_has_ended_is_opened_again_once() {
    let status_alone = [settings(), answer(1, READY)].concat();
    let half = [settings(), answer(1, READY), frame(1, 4, 3, OK)].concat();
    for (first, connections, succeeds) in [
        (status_alone.clone(), 2, true),
        ([status_alone.clone(), frame(7, 0, 0, &[0; 8])].concat(), 2, true),
        (half, 1, false),
    ] {
        let mut scripts = Scripts::new(&[first, status_alone.clone(), status_alone.clone()], 10);
        let mut cri = Cri::default();
        for is_first in [true, false] {
            let report = scripts.ask(&mut cri, STATUS_ALONE);
            assert_eq!(report.status.is_ok(), is_first || succeeds);
        }
        assert_eq!(scripts.sent.len(), connections);
    }
}

/// CRI-O sends up to 80 MiB, containerd refuses to send more than 16 MiB.
#[test]
fn a_list_that_is_refused_for_its_size_is_large() {
    let refused = trailers("8", "trying to send message larger than max");
    let unavailable = trailers("14", "");
    for (list, is_large) in [
        (
            [frame(1, 4, 7, OK), frame(0, 0, 7, &[0, 1, 0, 0, 1]), frame(1, 5, 7, DONE)].concat(),
            true,
        ),
        (frame(1, 5, 7, &[OK, &refused].concat()), true),
        (frame(1, 5, 7, &[OK, &unavailable].concat()), false),
        (answer(7, &image("a", 1)), false),
    ] {
        let folder = answer(5, IMAGE_FS);
        let bytes = [settings(), answer(1, READY), answer(3, VERSION), folder, list].concat();
        let found = cri(ALL, &bytes, 100);
        assert!(found.status.is_ok());
        assert_eq!(found.list_is_large, is_large, "{:?}", found.errors);
    }
}

#[test]
fn ten_thousand_images_are_counted_and_the_largest_kept() {
    let list: Vec<u8> = (0..10_000)
        .flat_map(|n| image(&format!("registry.lab/with/a/long/name/app-{n}"), n))
        .collect();
    let folder = answer(5, IMAGE_FS);
    let bytes = [settings(), answer(1, READY), answer(3, VERSION), folder, answer(7, &list)];
    let found = cri(ALL, &bytes.concat(), 16_384);
    assert_eq!(found.images.as_ref().unwrap().count, 10_000);
    let images = told(&found);
    assert_eq!(images.len(), 10);
    assert_eq!(images[9].size_bytes, 9_990);
    assert!(found.list_is_large);
}

#[test]
fn images_with_a_socket_of_their_own_are_a_second_connection() {
    let two =
        RuntimeConfig { image_path: Some("/run/images.sock".into()), ..config(Protocol::Cri) };
    let first = [settings(), answer(1, READY), answer(3, VERSION)].concat();
    let second = [settings(), answer(1, IMAGE_FS), answer(3, &image("a", 1))].concat();
    let mut scripts = Scripts::new(&[first, second], 100);
    let found = Cri::default().ask(&two, ALL, &mut |path| scripts.open(path), &mut |_, _| {});
    assert_eq!(scripts.paths, ["/run/runtime.sock", "/run/images.sock"]);
    assert!(found.status.is_ok());
    assert_eq!(told(&found).len(), 1);
    assert!(found.image_folder.is_some());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(1000))]

    /// Also the property of the fuzz target `cri`.
    #[test]
    fn a_damaged_answer_is_the_same_in_any_pieces(
        damage in proptest::collection::vec((0..1000_usize, 0..=255_u8), 1..6),
        length in 0..1000_usize,
        piece in 1..200_usize,
    ) {
        let mut bytes = healthy();
        for (place, byte) in damage {
            if let Some(place) = bytes.get_mut(place) {
                *place = byte;
            }
        }
        bytes.truncate(length);
        let whole = cri(ALL, &bytes, 1000);
        proptest::prop_assert_eq!(cri(ALL, &bytes, piece), whole);
    }
}

// Docker and Podman.

fn http(head: &str, body: &str) -> String {
    format!("HTTP/1.0 200 OK\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len())
}

const DOCKER: &str = "Api-Version: 1.41\r\nServer: Docker/20.10.24+dfsg1 (linux)\r\n";
const IMAGES: &str = r#"[
    {"Id": "sha256:a", "RepoTags": ["a:1"], "RepoDigests": null, "Size": 7, "Labels": {"x": [1]}},
    {"Id": "sha256:b", "RepoTags": ["<none>:<none>"], "RepoDigests": ["<none>@<none>"], "Size": 9},
    {"Id": "sha256:c", "RepoTags": ["c:1"], "RepoDigests": ["c@sha256:1"], "Size": -1}
]"#;
const INFO: &str = r#"{"ID": "x", "DockerRootDir": "/var/lib/docker", "Plugins": {}}"#;

/// Asks for the answers; the first lines of the requests, and what was found.
fn rest(
    protocol: Protocol,
    last: Part,
    answers: &[&str],
    piece: usize,
) -> (Vec<String>, RuntimeReport) {
    let answers: Vec<Vec<u8>> = answers.iter().map(|a| a.as_bytes().to_vec()).collect();
    let mut scripts = Scripts::new(&answers, piece);
    let found =
        rest::ask(&config(protocol), last, true, &mut |path| scripts.open(path), &mut |_, _| {});
    let first_line = |sent: &Rc<RefCell<Vec<u8>>>| {
        let request = String::from_utf8(sent.borrow().clone()).unwrap();
        request.lines().next().unwrap().to_owned()
    };
    (scripts.sent.iter().map(first_line).collect(), found)
}

#[test]
fn docker_is_asked_by_http_1_0_with_its_own_version() {
    let answers = [http(DOCKER, "OK"), http("", INFO), http("", IMAGES)];
    let answers: Vec<&str> = answers.iter().map(String::as_str).collect();
    for piece in [1, 1000] {
        let (requests, found) = rest(Protocol::Docker, ALL, &answers, piece);
        assert_eq!(
            requests,
            ["GET /_ping HTTP/1.0", "GET /v1.41/info HTTP/1.0", "GET /v1.41/images/json HTTP/1.0"]
        );
        assert_eq!(found.status, Ok(Default::default()));
        assert_eq!(found.version.as_ref().unwrap().text(), "docker://20.10.24+dfsg1");
        assert_eq!(found.image_folder.as_deref(), Some("/var/lib/docker"));
        let images = told(&found).into_iter();
        let images: Vec<_> = images.map(|i| (i.names.join(" "), i.size_bytes)).collect();
        let want = [("", 9), ("a:1", 7), ("c@sha256:1 c:1", 0)];
        assert_eq!(images, want.map(|(names, size)| (names.to_owned(), size)));
        assert_eq!(found.errors, [""; 0]);
    }
    // Without a length, the end of the connection is the end of the answer.
    let closed = format!("HTTP/1.1 200 OK\r\n\r\n{IMAGES}");
    let (requests, found) =
        rest(Protocol::Docker, ALL, &["HTTP/1.1 200 OK\r\n\r\nOK", "x", &closed], 9);
    assert_eq!(requests[2], "GET /images/json HTTP/1.0");
    assert_eq!(told(&found).len(), 3);
    assert_eq!(found.version.unwrap().text(), "docker://Unknown");
    assert_eq!(
        found.errors,
        ["/info: it speaks no HTTP; is it the socket of Docker or Podman? \
        Write unix:// for containerd and CRI-O"]
    );
}

#[test]
fn an_answer_about_docker_that_names_no_folder_of_the_images_is_an_error() {
    for (info, why) in [
        ("<html>", "not JSON, or too large"),
        (r#"{"ID": "x"}"#, "no DockerRootDir"),
        (r#"{"DockerRootDir": "data"}"#, "no DockerRootDir"),
    ] {
        let (_, found) =
            rest(Protocol::Docker, Part::Details, &[&http(DOCKER, "OK"), &http("", info)], 9);
        assert_eq!(found.image_folder, None);
        assert_eq!(found.errors, [format!("/info: no folder of the images: {why}")]);
    }
}

/// Since Docker 29 that is so on a new installation.
#[test]
fn the_images_of_docker_may_be_in_containerd() {
    let store = r#""DriverStatus": [["driver-type", "io.containerd.snapshotter.v1"]], "#;
    let overlay2 = r#""DriverStatus": [["Backing Filesystem", "extfs"]], "#;
    let at = |path| format!(r#""Containerd": {{"Address": "{path}"}}, "#);
    let [docker, containerd] = ["/mnt/data", "/var/lib/containerd"];
    for (driver, address, want) in [
        (store, at("/run/containerd/containerd.sock"), containerd),
        (store, at("/var/run/containerd/containerd.sock"), containerd),
        (store, String::new(), containerd),
        (store, at("/var/run/docker/containerd/containerd.sock"), docker),
        (overlay2, at("/run/containerd/containerd.sock"), docker),
    ] {
        let info = format!(r#"{{{driver}{address}"DockerRootDir": "/mnt/data"}}"#);
        let (_, found) =
            rest(Protocol::Docker, Part::Details, &[&http(DOCKER, "OK"), &http("", &info)], 9);
        assert_eq!(found.image_folder.as_deref(), Some(want), "{info}");
    }
}

#[test]
fn a_ping_alone_and_podman() {
    let podman = http("api-version: 1.41\r\nserver: Libpod/5.4.2 (linux)\r\n", "OK");
    let (requests, found) = rest(Protocol::Podman, STATUS_ALONE, &[&podman], 10);
    assert_eq!(requests.len(), 1);
    assert_eq!(found.version.unwrap().text(), "podman://5.4.2");
    let odd = http("Api-Version: 1.41/../x\r\nServer: Docker/<b>\r\n", "OK");
    let (requests, found) = rest(Protocol::Podman, ALL, &[&odd, "", ""], 10);
    assert_eq!(requests[2], "GET /images/json HTTP/1.0");
    assert_eq!(found.version.unwrap().text(), "docker://Unknown");
}

#[test]
fn an_error_of_docker_has_its_status_and_message() {
    let ok = http(DOCKER, "OK");
    let huge = format!("HTTP/1.0 200 OK\r\n\r\n{}", " ".repeat((4 << 20) + 1));
    let head = format!("HTTP/1.0 200 OK\r\nX: {}", "x".repeat(9000));
    for (images, want) in [
        ("HTTP/1.0 500 Oops\r\n\r\n{\"message\": \"no\\nspace\"}", "HTTP status 500: no space"),
        ("HTTP/1.0 400 Bad\r\n\r\nplain\ttext", "HTTP status 400: plain text"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n[]", "the answer ends early"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n",
            "the answer to HTTP/1.0 is chunked",
        ),
        ("HTTP/1.0 200 OK\r\n\r\n{}", "no list of images: "),
        ("HTTP/1.0 200 OK\r\n\r\n[] x", "no list of images: "),
        ("HTTP/1.0 200 OK\r\n\r\n[{\"Id\": \"a\"", "no list of images: "),
        (huge.as_str(), "the answer is larger than 4 MiB"),
        (head.as_str(), "it speaks no HTTP; "),
        // It was ended while it answered.
        ("", "the runtime has closed the connection"),
        ("\0\0\x18\x04\0", "it speaks no HTTP; "),
    ] {
        let (_, found) = rest(Protocol::Docker, ALL, &[&ok, &http("", INFO), images], 16_384);
        assert!(found.status.is_ok());
        assert_eq!(found.images, None);
        let want = format!("/images/json: {want}");
        assert!(found.errors[0].starts_with(&want), "{:?} {want}", found.errors);
        assert_eq!(found.list_is_large, images.len() > 1 << 20, "{want}");
    }
    let (_, found) = rest(Protocol::Docker, ALL, &["HTTP/1.0 503 No\r\n\r\n"], 10);
    assert_eq!(found.status.unwrap_err().fault.what, "/_ping: HTTP status 503: ");
}

// Real sockets.

/// A server whose thread runs `serve` for each connection.
fn server(
    tree: &Tree,
    connections: usize,
    serve: impl Fn(UnixStream) + Send + 'static,
) -> (RuntimeConfig, JoinHandle<()>) {
    let path = tree.path().join("runtime.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || {
        for _ in 0..connections {
            serve(listener.accept().unwrap().0);
        }
    });
    let config = RuntimeConfig { path, ..config(Protocol::Cri) };
    (config, thread)
}

/// Two questions over one connection, and two over another after a restart.
#[test]
fn a_connection_is_kept_until_it_ends() {
    let tree = Tree::empty("runtime-kept");
    let (config, thread) = server(&tree, 3, |mut socket| {
        for answer in [[settings(), answer(1, READY)].concat(), answer(3, READY)] {
            if socket.read(&mut [0; 4096]).unwrap_or(0) == 0 {
                return;
            }
            let _ = socket.write_all(&answer);
        }
    });
    let mut client = Client::new(&config, OVERDUE);
    for _ in 0..5 {
        assert!(client.ask(STATUS_ALONE, &mut |_, _| {}).0.status.is_ok());
    }
    drop(client);
    thread.join().unwrap();
}

/// The protocol of the endpoint decides.
#[test]
fn docker_and_podman_are_asked_over_a_socket_by_http() {
    for (protocol, name) in [(Protocol::Docker, "docker"), (Protocol::Podman, "podman")] {
        let tree = Tree::empty("runtime-http");
        let (config, thread) = server(&tree, 3, |mut socket| {
            let mut request = [0; 4096];
            let length = socket.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /"));
            let _ = socket.write_all(http("", IMAGES).as_bytes());
        });
        let found = ask(&RuntimeConfig { protocol, ..config }, OVERDUE);
        assert_eq!(found.version.as_ref().unwrap().kind, name);
        assert_eq!(told(&found).len(), 3);
        thread.join().unwrap();
    }
}

/// Each of the two has a limit of its own, and the list is the last one.
#[test]
fn a_folder_that_hangs_takes_no_time_of_the_list_and_a_list_that_hangs_takes_no_folder() {
    let late = "no answer in time; is it stopped or overloaded? See its log";
    // `least` is in quarters of the limit.
    for (protocol, hangs, want, least) in [
        (Protocol::Docker, "/info", [false, true], 2),
        (Protocol::Podman, "/info", [false, true], 3),
        (Protocol::Docker, "/images/json", [true, false], 3),
    ] {
        let tree = Tree::empty("runtime-limits");
        let (config, thread) = server(&tree, 3, move |mut socket| {
            let mut request = [0; 4096];
            let length = socket.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]);
            match request.split(' ').nth(1).unwrap() {
                path if path.ends_with(hangs) => {
                    while socket.read(&mut [0]).is_ok_and(|length| length > 0) {}
                }
                path if path.ends_with("/info") => {
                    drop(socket.write_all(http("", INFO).as_bytes()))
                }
                _ => drop(socket.write_all(http("", IMAGES).as_bytes())),
            }
        });
        let limit = Duration::from_secs(2);
        let start = now();
        let config = RuntimeConfig { protocol, ..config };
        let found = ask(&config, limit);
        assert!(now().since(start) < limit * 3 / 2, "{:?}", now().since(start));
        assert_eq!([found.image_folder.is_some(), found.images.is_some()], want, "{found:?}");
        assert_eq!(found.errors, [format!("{hangs}: {late}")]);
        // Of what the question before it has left.
        let least = limit * least / 4 - Duration::from_millis(200);
        assert!(found.details_took >= least, "{found:?}");
        thread.join().unwrap();
    }
}

/// On Debian each takes seconds of dpkg. After an outage it may be another Podman.
#[test]
fn podman_is_asked_for_its_folder_until_it_names_it_and_after_an_outage() {
    let tree = Tree::empty("runtime-podman");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let paths = Arc::clone(&asked);
    let (config, thread) = server(&tree, 14, move |mut socket| {
        let mut request = [0; 4096];
        let length = socket.read(&mut request).unwrap();
        let request = String::from_utf8_lossy(&request[..length]);
        let path = request.split(' ').nth(1).unwrap();
        let mut paths = paths.lock().unwrap();
        paths.push(path.to_owned());
        let folders = paths.iter().filter(|path| *path == "/info").count();
        let questions = paths.iter().filter(|path| *path == "/_ping").count();
        let answer = match path {
            "/_ping" if questions == 4 => "HTTP/1.0 503 No\r\n\r\n".to_owned(),
            "/info" if folders == 1 => "HTTP/1.0 500 Oops\r\n\r\n".to_owned(),
            "/info" => http("", INFO),
            _ => http("", IMAGES),
        };
        drop(socket.write_all(answer.as_bytes()));
    });
    let config = RuntimeConfig { protocol: Protocol::Podman, ..config };
    let mut client = Client::new(&config, OVERDUE);
    let found: Vec<_> = (0..6).map(|_| client.ask(ALL, &mut |_, _| {}).0).collect();
    let folders: Vec<_> = found.iter().map(|found| found.image_folder.is_some()).collect();
    assert_eq!(folders, [false, true, false, false, true, false]);
    let failed: Vec<_> = found.iter().map(|found| found.errors.len()).collect();
    assert_eq!(failed, [1, 0, 0, 0, 0, 0]);
    thread.join().unwrap();
    let paths = asked.lock().unwrap().join(" ");
    let [all, no_folder] = ["/_ping /info /images/json", "/_ping /images/json"];
    assert_eq!(paths, [all, all, no_folder, "/_ping", all, no_folder].join(" "));
}

/// A runtime whose list of images hangs.
fn all_but_the_list(mut socket: UnixStream) {
    let _ = socket.read(&mut [0; 4096]);
    let others = [answer(3, VERSION), answer(5, IMAGE_FS)].concat();
    let _ = socket.write_all(&[settings(), answer(1, READY), others].concat());
    while socket.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {}
}

/// The status is as old as its answer, whatever follows.
#[test]
fn a_list_that_hangs_makes_no_status_old() {
    let tree = Tree::empty("runtime-hangs");
    let (config, thread) = server(&tree, 1, all_but_the_list);
    let limit = Duration::from_secs(1);
    let mut client = Client::new(&config, limit);
    let start = now();
    let (report, answered) = client.ask(ALL, &mut |_, _| {});
    let end = now();
    assert!(report.status.is_ok() && report.image_folder.is_some(), "{report:?}");
    let late = "ListImages: no answer in time; is it stopped or overloaded? See its log";
    assert_eq!((report.images, report.errors), (None, vec![late.to_owned()]));
    assert!(end.since(start) >= limit, "{:?}", end.since(start));
    assert!(answered.since(start) < limit / 2, "{:?}", answered.since(start));
    drop(client);
    thread.join().unwrap();
}

/// The board is slow: the agent waits neither for the list, nor for a pause after it. A runtime that
/// is back may have another version.
#[test]
fn a_status_is_told_before_its_details_or_after_an_outage_before_the_list() {
    for is_back in [false, true] {
        a_status_is_told_before_the_list(is_back);
    }
}

fn a_status_is_told_before_the_list(is_back: bool) {
    let tree = Tree::empty("runtime-told");
    let (config, thread) = server(&tree, 1, all_but_the_list);
    let limit = Duration::from_secs(1);
    let mut client = Client::new(&config, limit);
    let mut state = RuntimeState::new(Protocol::Cri);
    state.on_report(RuntimeReport::new(Ok(Default::default())), now());
    if is_back {
        state.on_report(RuntimeReport::new(Err(RuntimeFailure::api("gone"))), now());
    }
    let start = now();
    let mut told = Vec::new();
    let mut tell = |state: &RuntimeState, is_news: bool| {
        let has_version = state.file(0).contains("cri-o://1.37.0");
        told.extend(is_news.then(|| (now().since(start) < limit / 2, has_version)));
    };
    let due = turn(&mut client, &mut state, &mut tell);
    assert_eq!(told, [(true, is_back), (false, true)]);
    assert!(due.since(start) < Duration::from_secs(10) + limit / 2, "{:?}", due.since(start));
    drop(client);
    thread.join().unwrap();
}

#[test]
fn a_trickle_and_a_flood_are_bounded() {
    let tree = Tree::empty("runtime-trickle");
    let (config, thread) = server(&tree, 1, |mut socket| {
        let _ = socket.read(&mut [0; 4096]);
        for byte in healthy() {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    let limit = Duration::from_millis(300);
    let start = Instant::now();
    let found = ask(&config, limit);
    assert!(start.elapsed() < limit * 4, "{:?}", start.elapsed());
    let fault = found.status.unwrap_err().fault.to_string();
    let want = "no answer in time; is it stopped or overloaded? See its log";
    assert!(fault.ends_with(want), "{fault}");
    thread.join().unwrap();

    let tree = Tree::empty("runtime-flood");
    let (config, thread) = server(&tree, 1, |mut socket| {
        // PINGs, whose acknowledgements are never read.
        let pings = frame(6, 0, 0, &[7; 8]).repeat(1000);
        let _ = socket.write_all(&settings());
        while socket.write_all(&pings).is_ok() {}
    });
    let found = ask(&config, OVERDUE);
    let cause = found.status.unwrap_err().fault.what;
    assert!(!cause.contains("within"), "{cause}");
    thread.join().unwrap();
}

#[test]
fn a_socket_that_cannot_be_used_says_why() {
    let tree = Tree::empty("runtime-socket");
    let at = |name: &str| RuntimeConfig { path: tree.path().join(name), ..config(Protocol::Cri) };
    tree.write("file", b"");
    drop(UnixListener::bind(tree.path().join("dead")).unwrap());
    let listener = UnixListener::bind(tree.path().join("full")).unwrap();
    // The backlog of std's listener has 128 places; more on some kernels.
    let connect = || connect_to(&tree.path().join("full")).ok();
    let _full: Vec<UnixStream> = std::iter::from_fn(connect).take(8192).collect();
    for (name, want) in [
        ("missing", "no such file or directory; is the runtime running?"),
        ("file", "connection refused; is the runtime running?"),
        ("dead", "connection refused; is the runtime running?"),
        ("full", "; it accepts no connections; is it stopped?"),
    ] {
        let found = ask(&at(name), Duration::from_secs(1));
        let failure = found.status.unwrap_err();
        assert_eq!(failure.at, FailedAt::Socket);
        assert!(failure.fault.what.starts_with(tree.path().to_str().unwrap()));
        assert!(failure.fault.to_string().ends_with(want), "{failure:?}");
    }
    drop(listener);
    // A socket on a file system that can block is not touched.
    pretend(&format!("1 0 0:1 / {} rw - nfs4 srv:/ rw\n", tree.path().display()));
    let found = ask(&at("full"), Duration::from_secs(1));
    assert!(found.status.unwrap_err().fault.what.contains("is on nfs4"));
}
