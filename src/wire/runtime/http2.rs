//! HTTP/2 (RFC 9113) with prior knowledge, as far as a few gRPC calls over one connection need it.
//! No sockets: bytes in, bytes out.
//!
//! Everything is sent at once. The windows equal the limit of an answer, so there are no window
//! updates; flow control of what is sent is not needed for some hundred bytes.

use super::grpc::Call;
use super::hpack;
use super::protobuf::Value;
use crate::core::runtime::Failure;

const HEAD: usize = 9;
/// Longest frame, because our SETTINGS have no other limit (RFC 9113 §4.2).
const MAX_FRAME: usize = 16_384;
/// Bytes that a server may send in one connection.
const MAX_RECEIVED: usize = 16 << 20;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// HEADER_TABLE_SIZE 0, ENABLE_PUSH 0, INITIAL_WINDOW_SIZE 16 MiB and the prefix of a message,
/// MAX_HEADER_LIST_SIZE 16 KiB.
const SETTINGS: [(u16, u32); 4] = [(1, 0), (2, 0), (4, (16 << 20) + 5), (6, 16_384)];
/// Of the connection, over its first window of 65,535 bytes.
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

/// One connection with all of its calls.
#[derive(Debug)]
pub(super) struct Connection {
    calls: Vec<Call>,
    /// The start of a frame that has not arrived completely.
    pending: Vec<u8>,
    received: usize,
    /// The first frame has arrived.
    has_begun: bool,
}

impl Connection {
    /// A connection that makes calls of these methods, each `/package.Service/Method` with its
    /// message; and the bytes to send.
    pub(super) fn open(calls: &[(&'static str, &[u8])]) -> (Self, Vec<u8>) {
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (key, value) in SETTINGS {
            settings.extend_from_slice(&key.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame(&mut out, SETTINGS_FRAME, 0, 0, &settings);
        frame(&mut out, WINDOW_UPDATE, 0, 0, &WINDOW.to_be_bytes());
        for (id, (path, message)) in (1_u32..).step_by(2).zip(calls) {
            frame(&mut out, HEADERS, END_HEADERS, id, &headers(path));
            let mut data = vec![0];
            let length = u32::try_from(message.len()).unwrap_or_default();
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(message);
            frame(&mut out, DATA, END_STREAM, id, &data);
        }
        let name = |path: &'static str| path.rsplit('/').next().unwrap_or(path);
        let connection = Self {
            calls: calls
                .iter()
                .map(|(path, _)| Call::new(name(path)))
                .collect(),
            pending: Vec::new(),
            received: 0,
            has_begun: false,
        };
        (connection, out)
    }

    /// Takes received bytes; adds to `out` what must be sent, and passes the number of the call and
    /// each field of its answer to `each`.
    pub(super) fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        each: &mut dyn FnMut(usize, u64, Value<'_>),
    ) {
        self.received = self.received.saturating_add(bytes.len());
        if self.received > MAX_RECEIVED {
            return self.fail("the answers are larger than 16 MiB", "");
        }
        let mut pending = std::mem::take(&mut self.pending);
        pending.extend_from_slice(bytes);
        let mut rest = pending.as_slice();
        while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
            let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *head;
            let length = u32::from_be_bytes([0, l0, l1, l2]);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let stream = u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]);
            if !self.has_begun && kind != SETTINGS_FRAME {
                return match rest.starts_with(b"HTTP/1") {
                    true => self.fail(
                        "it speaks HTTP/1 and no CRI",
                        "write docker:// or podman:// instead of unix://",
                    ),
                    false => self.fail("it speaks no HTTP/2", ""),
                };
            }
            self.has_begun = true;
            if length > MAX_FRAME {
                return self.fail("a frame is too long", "");
            }
            let Some((payload, next)) = after.split_at_checked(length) else {
                break;
            };
            if let Err(why) = self.on_frame(kind, flags, stream, payload, out, each) {
                return self.fail(why, "");
            }
            rest = next;
        }
        let used = pending.len() - rest.len();
        pending.drain(..used);
        self.pending = pending;
    }

    fn on_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
        each: &mut dyn FnMut(usize, u64, Value<'_>),
    ) -> Result<(), &'static str> {
        // Client streams are odd: 1, 3, 5 are calls 0, 1, 2.
        let index = usize::try_from(stream / 2).unwrap_or(usize::MAX);
        let call = self.calls.get_mut(index).filter(|_| stream % 2 == 1);
        match kind {
            SETTINGS_FRAME if flags & ACK == 0 => frame(out, SETTINGS_FRAME, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(out, PING, ACK, 0, payload),
            HEADERS => {
                if flags & END_HEADERS == 0 {
                    return Err("its headers are too long");
                }
                let mut block = unpadded(flags, payload)?;
                if flags & PRIORITY != 0 {
                    block = block.get(5..).ok_or("a frame is too short")?;
                }
                let call = call.ok_or("an answer to nothing")?;
                hpack::decode(block, &mut |name, value| call.on_header(name, value))
                    .ok_or("its headers cannot be decoded")?;
                if flags & END_STREAM != 0 {
                    call.on_end();
                }
            }
            DATA => {
                let call = call.ok_or("an answer to nothing")?;
                let data = unpadded(flags, payload)?;
                call.on_data(data, &mut |number, value| each(index, number, value));
                if flags & END_STREAM != 0 {
                    call.on_end();
                }
            }
            RST_STREAM => {
                if let Some(call) = call {
                    call.fail("the runtime has reset the call");
                }
            }
            GOAWAY => {
                let (last, code) = match *payload {
                    [a, b, c, d, e, f, g, h, ..] => (
                        u32::from_be_bytes([a & 0x7f, b, c, d]),
                        u32::from_be_bytes([e, f, g, h]),
                    ),
                    _ => return Err("a frame is too short"),
                };
                for (id, call) in (1_u32..).step_by(2).zip(&mut self.calls) {
                    if id > last || code != 0 {
                        call.fail("the runtime is going away");
                    }
                }
            }
            PUSH_PROMISE | CONTINUATION => return Err("a frame that was not allowed"),
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, why: &str, remedy: &'static str) {
        self.abandon(&Failure {
            remedy,
            ..Failure::api(why)
        });
    }

    /// Ends all calls that have not ended.
    pub(super) fn abandon(&mut self, failure: &Failure) {
        for call in &mut self.calls {
            call.abandon(failure);
        }
    }

    /// Whether all calls have ended.
    pub(super) fn is_done(&self) -> bool {
        self.calls.iter().all(|call| call.outcome().is_some())
    }

    /// Whether the answer of a call was refused for its size, or those of all calls together.
    pub(super) fn is_too_large(&self, call: usize) -> bool {
        self.received > MAX_RECEIVED || self.calls.get(call).is_some_and(Call::is_too_large)
    }

    /// How each call ended, in the order of [`Self::open`].
    pub(super) fn outcomes(&self) -> impl Iterator<Item = Result<(), Failure>> {
        let unfinished = || Err(Failure::api("no answer"));
        self.calls
            .iter()
            .map(move |call| call.outcome().cloned().unwrap_or_else(unfinished))
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

fn unpadded(flags: u8, payload: &[u8]) -> Result<&[u8], &'static str> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let inner = payload.split_first().and_then(|(length, rest)| {
        let end = rest.len().checked_sub(usize::from(*length))?;
        rest.get(..end)
    });
    inner.ok_or("the padding is longer than its frame")
}
