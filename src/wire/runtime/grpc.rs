//! One gRPC call: its answer is one message, then a status in the trailers
//! (github.com/grpc/grpc doc/PROTOCOL-HTTP2.md).

use super::protobuf::{Message, Value};
use crate::core::runtime::Failure;

/// Bytes of one message, as the kubelet's client allows.
const MAX_MESSAGE: u64 = 16 << 20;
/// Bytes of the prefix of a message: a flag, and the length.
const PREFIX: usize = 5;
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
const RESOURCE_EXHAUSTED: usize = 8;
const UNIMPLEMENTED: usize = 12;
const UNAVAILABLE: usize = 14;

/// A call that waits for its answer.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The name of the method, for errors.
    name: &'static str,
    prefix: Vec<u8>,
    /// Bytes of the message that have not arrived.
    left: u64,
    messages: u32,
    message: Message,
    http_status: Vec<u8>,
    status: Option<usize>,
    detail: String,
    /// Set once, with the end of the call.
    outcome: Option<Result<(), Failure>>,
}

impl Call {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    pub(super) fn outcome(&self) -> Option<&Result<(), Failure>> {
        self.outcome.as_ref()
    }

    /// Whether the answer was refused for its size, here or by the server.
    pub(super) fn is_too_large(&self) -> bool {
        // What is left of a message that was refused here is never counted down.
        self.left > MAX_MESSAGE || self.status == Some(RESOURCE_EXHAUSTED)
    }

    /// One header or trailer.
    pub(super) fn on_header(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":status" => self.http_status = value.to_vec(),
            b"grpc-status" => {
                let number = str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok());
                self.status = Some(number.unwrap_or(usize::MAX));
            }
            b"grpc-message" => self.detail = Value::Bytes(&percent_decoded(value)).text(),
            _ => {}
        }
    }

    /// Bytes of the answer. Each field of the message is passed to `each`.
    pub(super) fn on_data(&mut self, bytes: &[u8], each: &mut dyn FnMut(u64, Value<'_>)) {
        if self.outcome.is_some() {
            return;
        }
        if let Err(why) = self.read(bytes, each) {
            self.fail(why);
        }
    }

    fn read(
        &mut self,
        mut bytes: &[u8],
        each: &mut dyn FnMut(u64, Value<'_>),
    ) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let missing = (PREFIX - self.prefix.len()).min(bytes.len());
                let (prefix, rest) = bytes.split_at(missing);
                self.prefix.extend_from_slice(prefix);
                bytes = rest;
                if let [flag, a, b, c, d] = *self.prefix.as_slice() {
                    self.prefix.clear();
                    self.messages += 1;
                    self.left = u64::from(u32::from_be_bytes([a, b, c, d]));
                    if flag != 0 {
                        return Err("the answer is compressed");
                    }
                    if self.messages > 1 {
                        return Err("the answer has more than one message");
                    }
                    if self.left > MAX_MESSAGE {
                        return Err("the answer is larger than 16 MiB");
                    }
                }
                continue;
            }
            let part = usize::try_from(self.left)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (part, rest) = bytes.split_at(part);
            self.left -= u64::try_from(part.len()).unwrap_or_default();
            bytes = rest;
            self.message
                .take(part, each)
                .ok_or("the answer is no protobuf")?;
        }
        Ok(())
    }

    /// The server has ended the call.
    pub(super) fn on_end(&mut self) {
        if self.outcome.is_some() {
            return;
        }
        let is_whole = self.messages == 1
            && self.left == 0
            && self.prefix.is_empty()
            && self.message.is_complete();
        match self.status {
            Some(0) if self.http_status != b"200" => self.fail_with_http(),
            Some(0) if is_whole => self.outcome = Some(Ok(())),
            Some(0) => self.fail("the answer ends early"),
            Some(code) => {
                let name = CODES.get(code).copied().unwrap_or("Unknown");
                let cause = format!("rpc error: code = {name} desc = {}", self.detail);
                self.fail_as(&cause, match code {
                    UNIMPLEMENTED => {
                        "is cri in disabled_plugins of /etc/containerd/config.toml? Remove it and \
                         restart containerd"
                    }
                    UNAVAILABLE => "it is starting, or look at its log",
                    _ => "",
                });
            }
            None if self.http_status.is_empty() || self.http_status == b"200" => {
                self.fail("the answer has no grpc-status");
            }
            None => self.fail_with_http(),
        }
    }

    fn fail_with_http(&mut self) {
        let status = Value::Bytes(&self.http_status).text();
        self.fail_as(&format!("HTTP status {status}"), "");
    }

    /// Ends the call, unless it has ended.
    pub(super) fn fail(&mut self, why: &str) {
        self.fail_as(why, "");
    }

    /// Ends the call with a failure of its connection, unless it has ended.
    pub(super) fn abandon(&mut self, failure: &Failure) {
        self.outcome.get_or_insert_with(|| Err(failure.clone()));
    }

    /// [`Self::fail`] with what to do.
    fn fail_as(&mut self, why: &str, remedy: &'static str) {
        if self.outcome.is_none() {
            self.outcome = Some(Err(Failure {
                remedy,
                ..Failure::api(format!("{}: {why}", self.name))
            }));
        }
    }
}

/// `%41` is `A`; anything else stands for itself.
fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let (byte, after) = match after {
            [high, low, after @ ..] if byte == b'%' => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => (u8::try_from(high << 4 | low).unwrap_or(byte), after),
                _ => (byte, rest.get(1..).unwrap_or_default()),
            },
            _ => (byte, after),
        };
        decoded.push(byte);
        rest = after;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_text_is_decoded() {
        for (text, want) in [
            ("a%20b", "a b"),
            ("%41%62%", "Ab%"),
            ("%4", "%4"),
            ("%zz%25", "%zz%"),
            ("%C3%A4", "ä"),
        ] {
            assert_eq!(percent_decoded(text.as_bytes()), want.as_bytes());
        }
    }
}
