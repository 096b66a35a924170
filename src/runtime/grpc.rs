//! gRPC calls, one after the other over one connection of HTTP/2 (RFC 9113) with prior knowledge:
//! a call is a message, its answer is a message and then a status in the trailers
//! (github.com/grpc/grpc doc/PROTOCOL-HTTP2.md).
//!
//! The flow-control window of a call is as large as the largest answer. The window of the
//! connection is opened again after each call. A request has some hundred bytes, so the windows of
//! the runtime are not observed.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use super::hpack;
use super::report::{FailedAt, RuntimeFailure};
use super::socket::{OpenStream, RuntimeStream, failed};
use crate::kube::protobuf::WireValue;
use crate::kube::text::{Fault, percent_decoded};

/// Most bytes of one message, as in the kubelet's client. [`PREFIX`] bytes stand before a message:
/// a flag, and the length.
const MAX_MESSAGE: usize = 16 << 20;
const PREFIX: usize = 5;
/// Longest frame, because our SETTINGS have no other limit (RFC 9113 §4.2).
const MAX_FRAME: usize = 16_384;
/// Bytes of acknowledgements that wait for the next request.
const MAX_OUT: usize = 16 << 10;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// HEADER_TABLE_SIZE 0, ENABLE_PUSH 0, INITIAL_WINDOW_SIZE 16 MiB and the prefix of a message,
/// MAX_HEADER_LIST_SIZE 16 KiB.
const SETTINGS: [(u16, u32); 4] = [(1, 0), (2, 0), (4, (16 << 20) + 5), (6, 16_384)];
/// What is added to the connection's first window of 65,535 bytes.
const WINDOW: u32 = 16 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS_FRAME: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

/// On SETTINGS and PING.
const ACK: u8 = 0x1;
/// On DATA and HEADERS.
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Status codes by number (google.golang.org/grpc/codes).
const CODES: [&str; 17] = [
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
];

/// An open connection.
#[derive(Debug)]
pub(super) struct RuntimeConnection {
    socket: BufReader<Box<dyn RuntimeStream>>,
    /// What is sent with the next request: the preface, acknowledgements, and windows. They can
    /// wait: grpc-go gives an acknowledgement 20 s.
    out: Vec<u8>,
    /// The id of the next stream. A client's ids are odd.
    stream: u32,
    /// The first frame has arrived.
    has_begun: bool,
    /// A frame for the last call has arrived.
    has_answered: bool,
    /// The runtime answers no further call.
    is_going_away: bool,
}

/// Calls `/package.Service/Method` over the kept connection. If there is none, or if it fails
/// before a frame of the answer arrives, a new connection is opened: the runtime may have been
/// restarted. A call whose time is over is not sent again. Returns the answer's message.
pub(super) fn call(
    kept: &mut Option<RuntimeConnection>,
    socket: &Path,
    path: &str,
    request: &[u8],
    open: OpenStream<'_>,
) -> Result<Vec<u8>, RuntimeFailure> {
    let mut is_old = kept.is_some();
    loop {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => RuntimeConnection::new(open(socket)?),
        };
        let answer = connection.exchange(path, request);
        if answer.is_ok() && !connection.is_going_away {
            *kept = Some(connection);
        } else if std::mem::take(&mut is_old) && !connection.has_answered && !is_late(&answer) {
            continue;
        }
        let method = path.rsplit('/').next().unwrap_or(path);
        return answer.and_then(GrpcAnswer::message).map_err(|failure| failure.of(method));
    }
}

fn is_late(answer: &Result<GrpcAnswer, RuntimeFailure>) -> bool {
    answer.as_ref().is_err_and(|failure| failure.at == FailedAt::Time)
}

/// What has arrived of an answer.
#[derive(Default)]
struct GrpcAnswer {
    http_status: Vec<u8>,
    status: Option<usize>,
    detail: String,
    /// The message so far, with its prefix.
    message: Vec<u8>,
}

impl RuntimeConnection {
    /// A connection over `socket`; sends nothing yet.
    fn new(socket: Box<dyn RuntimeStream>) -> Self {
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (key, value) in SETTINGS {
            settings.extend_from_slice(&key.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame(&mut out, SETTINGS_FRAME, 0, 0, &settings);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
        let socket = BufReader::with_capacity(4096, socket);
        Self { socket, out, stream: 1, has_begun: false, has_answered: false, is_going_away: false }
    }

    fn exchange(&mut self, path: &str, request: &[u8]) -> Result<GrpcAnswer, RuntimeFailure> {
        self.has_answered = false;
        let id = self.stream;
        self.stream += 2;
        frame(&mut self.out, HEADERS, END_HEADERS, id, &headers(path));
        let mut data = vec![0];
        let length = u32::try_from(request.len()).unwrap_or_default();
        data.extend_from_slice(&length.to_be_bytes());
        data.extend_from_slice(request);
        frame(&mut self.out, DATA, END_STREAM, id, &data);
        self.socket.get_mut().write_all(&self.out).map_err(|error| failed(&error))?;
        self.out.clear();

        let mut answer = GrpcAnswer::default();
        let (mut window, mut received) = (0_u32, 0);
        let mut has_ended = false;
        while !has_ended {
            let (kind, flags, stream, payload) = self.frame()?;
            received += payload.len();
            if received > MAX_MESSAGE + 4 * MAX_FRAME {
                return Err(too_large());
            }
            let is_ours = stream == id;
            self.has_answered |= is_ours;
            match kind {
                SETTINGS_FRAME if flags & ACK == 0 => {
                    frame(&mut self.out, SETTINGS_FRAME, ACK, 0, &[]);
                }
                PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, &payload),
                HEADERS if flags & END_HEADERS == 0 => return broken("its headers are too long"),
                HEADERS if is_ours => {
                    let mut block = unpadded(flags, &payload)?;
                    if flags & PRIORITY != 0 {
                        block = block.get(5..).ok_or_else(|| RuntimeFailure::api(SHORT))?;
                    }
                    hpack::decode(block, &mut |name, value| answer.on_header(name, value))
                        .ok_or_else(|| RuntimeFailure::api("its headers cannot be decoded"))?;
                }
                DATA if is_ours => {
                    window += u32::try_from(payload.len()).unwrap_or_default();
                    answer.on_data(unpadded(flags, &payload)?)?;
                }
                HEADERS | DATA => return broken("a frame of an unknown stream"),
                RST_STREAM if is_ours => return broken("the runtime has reset the call"),
                GOAWAY => {
                    let Some((&[l0, l1, l2, l3, c0, c1, c2, c3], _)) = payload.split_first_chunk()
                    else {
                        return broken(SHORT);
                    };
                    let last = u32::from_be_bytes([l0 & 0x7f, l1, l2, l3]);
                    if last < id || [c0, c1, c2, c3] != [0; 4] {
                        return broken("the runtime is going away");
                    }
                    // This call is still answered.
                    self.is_going_away = true;
                }
                PUSH_PROMISE | CONTINUATION => return broken("a frame that was not allowed"),
                _ => {}
            }
            if self.out.len() > MAX_OUT {
                return broken("it sends control frames without end");
            }
            has_ended = matches!(kind, HEADERS | DATA) && flags & END_STREAM != 0;
        }
        if window > 0 {
            frame(&mut self.out, WINDOW_UPDATE, 0, 0, &window.to_be_bytes());
        }
        Ok(answer)
    }

    /// Reads a frame: kind, flags, stream, payload.
    fn frame(&mut self) -> Result<(u8, u8, u32, Vec<u8>), RuntimeFailure> {
        let mut head = [0; 9];
        self.read(&mut head)?;
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = head;
        if !self.has_begun && kind != SETTINGS_FRAME {
            if head.starts_with(b"HTTP/1") {
                let remedy = "write docker:// or podman:// instead of unix://";
                return broken(Fault::new("it speaks HTTP/1 and no CRI", remedy));
            }
            return broken("it speaks no HTTP/2");
        }
        self.has_begun = true;
        let length = u32::from_be_bytes([0, l0, l1, l2]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_FRAME {
            return broken("a frame is too long");
        }
        let mut payload = vec![0; length];
        self.read(&mut payload)?;
        Ok((kind, flags, u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]), payload))
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), RuntimeFailure> {
        self.socket.read_exact(bytes).map_err(|error| failed(&error))
    }
}

const SHORT: &str = "a frame is too short";

fn broken<T>(why: impl Into<Fault>) -> Result<T, RuntimeFailure> {
    Err(RuntimeFailure::api(why))
}

fn too_large() -> RuntimeFailure {
    RuntimeFailure { at: FailedAt::Size, fault: "the answer is larger than 16 MiB".into() }
}

impl GrpcAnswer {
    /// One header or trailer.
    fn on_header(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":status" => self.http_status = value.to_vec(),
            b"grpc-status" => {
                let number = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                self.status = Some(number.unwrap_or(usize::MAX));
            }
            b"grpc-message" => self.detail = WireValue::Bytes(&percent_decoded(value).0).text(),
            _ => {}
        }
    }

    /// Whether the HTTP status is a success. Without one, grpc-status decides.
    fn is_http_success(&self) -> bool {
        matches!(self.http_status.as_slice(), b"200" | b"")
    }

    /// Takes bytes of the message. A message that is compressed or too large is refused as soon as
    /// its prefix is there.
    fn on_data(&mut self, bytes: &[u8]) -> Result<(), RuntimeFailure> {
        if !self.is_http_success() {
            // An error page is no message.
            return Ok(());
        }
        self.message.extend_from_slice(bytes);
        let Some((flag, length)) = self.prefix() else {
            return Ok(());
        };
        if flag != 0 {
            return broken("the answer is compressed");
        }
        if length > MAX_MESSAGE {
            return Err(too_large());
        }
        if self.message.len() > PREFIX + length {
            return broken("the answer has more than one message");
        }
        // Reserves the whole message once. Otherwise the buffer would be doubled again and again.
        self.message.reserve_exact(PREFIX + length - self.message.len());
        Ok(())
    }

    /// Flag, and length of the message.
    fn prefix(&self) -> Option<(u8, usize)> {
        let [flag, length @ ..] = self.message.first_chunk::<PREFIX>()?;
        Some((*flag, usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX)))
    }

    /// The message of a call that succeeded.
    fn message(mut self) -> Result<Vec<u8>, RuntimeFailure> {
        let is_whole =
            self.prefix().is_some_and(|(_, length)| self.message.len() == PREFIX + length);
        match self.status {
            Some(0) | None if !self.is_http_success() => {
                let status = WireValue::Bytes(&self.http_status).text();
                Err(RuntimeFailure::api(format!("HTTP status {status}")))
            }
            None => broken("the answer has no grpc-status"),
            Some(0) if is_whole => {
                self.message.drain(..PREFIX);
                Ok(self.message)
            }
            Some(0) => broken("the answer ends early"),
            Some(code) => {
                let name = CODES.get(code).copied().unwrap_or("Unknown");
                let remedy = match name {
                    "Unimplemented" => {
                        "is cri in disabled_plugins of /etc/containerd/config.toml? Remove it and \
                         restart containerd"
                    }
                    "Unavailable" => "wait until it has started, or see its log",
                    _ => "",
                };
                let what = format!("rpc error: code = {name} desc = {}", self.detail);
                Err(RuntimeFailure {
                    at: if name == "ResourceExhausted" { FailedAt::Size } else { FailedAt::Api },
                    fault: Fault::new(what, remedy),
                })
            }
        }
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or_default();
    let [_, length @ ..] = length.to_be_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// The headers of a call, as literals without an index: POST, http, then names from the static
/// table (4 `:path`, 1 `:authority`, 31 `content-type`, 58 `user-agent`) or written out.
fn headers(path: &str) -> Vec<u8> {
    const NAMED: [(&[u8], &str); 5] = [
        (b"\x01", "localhost"),
        // CRI-O compares for equality.
        (b"\x0f\x10", "application/grpc"),
        (b"\x00\x02te", "trailers"),
        (b"\x00\x0cgrpc-timeout", "20S"),
        (b"\x0f\x2b", concat!("nodelet/", env!("CARGO_PKG_VERSION"))),
    ];
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(b"\x04".as_slice(), path)].iter().chain(&NAMED) {
        block.extend_from_slice(name);
        // A length of one byte, and no Huffman code: each value is shorter than 127 bytes.
        block.push(u8::try_from(value.len()).unwrap_or_default());
        block.extend_from_slice(value.as_bytes());
    }
    block
}

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], RuntimeFailure> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let inner = payload.split_first().and_then(|(length, rest)| {
        let end = rest.len().checked_sub(usize::from(*length))?;
        rest.get(..end)
    });
    inner.ok_or_else(|| RuntimeFailure::api("the padding is longer than its frame"))
}
