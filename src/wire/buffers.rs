//! The bytes between ureq and a connection, sized for a board.
//!
//! ureq's own buffers grow to 10 KiB with every request that has a body, and end the connection when
//! the head of an answer does not fit. These buffers grow with their content and shrink when it is
//! consumed. Output is collected, so that head and body of a request leave as one TLS record.

use ureq::unversioned::transport::Buffers as UreqBuffers;

/// Bytes: least room offered to ureq for a head, which must fit; with a bearer token one is 1.5 KiB.
const OUTPUT: usize = 4096;
/// Bytes of output that are kept between requests: the head and the body of a status report.
const KEPT: usize = 8192;
/// Bytes: a full TLS record; output is sent when this much is collected.
const RECORD: usize = 16 << 10;
/// Bytes: room offered to the network at a time, and kept between requests.
const INPUT: usize = 4096;
/// Bytes: largest head of an answer; a kube-apiserver's is 0.6 KiB.
pub(super) const HEAD_LIMIT: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Buffers {
    output: Vec<u8>,
    /// Number of bytes of `output` that are not sent yet.
    written: usize,
    input: Vec<u8>,
    /// `input[consumed..filled]` was received and is not consumed yet.
    consumed: usize,
    filled: usize,
    progress: bool,
}

impl Buffers {
    /// ureq filled `amount` bytes of [`UreqBuffers::output`].
    pub(super) fn keep(&mut self, amount: usize) {
        self.written += amount;
    }

    pub(super) fn is_full(&self) -> bool {
        self.written >= RECORD
    }

    /// All bytes that are not sent yet.
    pub(super) fn unsent(&self) -> &[u8] {
        self.output.get(..self.written).unwrap_or_default()
    }

    /// All output is sent. Not cleared: it holds the token, as the configuration does.
    pub(super) fn sent(&mut self) {
        self.written = 0;
        if self.output.len() > KEPT {
            self.output = Vec::new();
        }
    }
}

impl UreqBuffers for Buffers {
    fn output(&mut self) -> &mut [u8] {
        if self.output.len() < self.written + OUTPUT {
            resize(&mut self.output, self.written + KEPT);
        }
        self.output.get_mut(self.written..).unwrap_or_default()
    }

    fn input(&self) -> &[u8] {
        self.input
            .get(self.consumed..self.filled)
            .unwrap_or_default()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        if self.consumed > 0 {
            self.input.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.consumed = 0;
        }
        // ureq fails above HEAD_LIMIT, so it must be able to receive more than that.
        let room = INPUT.min((HEAD_LIMIT + INPUT).saturating_sub(self.filled));
        let end = self.filled + room;
        if self.input.len() != end {
            resize(&mut self.input, end);
        }
        self.input.get_mut(self.filled..).unwrap_or_default()
    }

    fn input_appended(&mut self, amount: usize) {
        self.filled = self.input.len().min(self.filled + amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        self.consumed = self.filled.min(self.consumed + amount);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        // The first buffer is for chunked requests, which are never sent.
        (&mut [], self.output())
    }

    fn can_use_input(&self) -> bool {
        self.progress && !self.input().is_empty()
    }
}

/// `Vec::resize` writes each new byte in a loop at `opt-level = "z"`. This function copies the old
/// bytes instead, of which there mostly are none.
fn resize(buffer: &mut Vec<u8>, length: usize) {
    let mut sized = vec![0; length];
    for (new, old) in sized.iter_mut().zip(buffer.iter()) {
        *new = *old;
    }
    *buffer = sized;
}
