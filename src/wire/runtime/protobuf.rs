//! The fields of a protobuf message, while it arrives. A field of up to 64 KiB is passed on whole,
//! a larger one is skipped, so that a message of any length needs little memory. No recursion: the
//! receiver of an inner message passes it to [`fields`].

use crate::kube::protobuf::varint;
use crate::kube::text::one_line;

/// Bytes of one field.
const MAX_FIELD: u64 = 64 << 10;
/// Bytes of one text.
const MAX_TEXT: usize = 1 << 10;

/// The value of a field. Fixed 32-bit and 64-bit fields are skipped: CRI has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// A string, bytes, or an inner message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// A string: invalid UTF-8 and control characters are replaced, and it is cut after 1 KiB.
    pub fn text(self) -> String {
        let bytes = self.bytes();
        let cut = bytes.get(..MAX_TEXT).unwrap_or(bytes);
        one_line(&String::from_utf8_lossy(cut))
    }

    /// Empty for a number.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }

    /// A bool or a number; 0 for bytes.
    pub fn number(self) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Bytes(_) => 0,
        }
    }
}

/// A message that arrives in pieces.
#[derive(Debug, Default)]
pub struct Message {
    /// The start of a field that has not arrived completely.
    pending: Vec<u8>,
    /// Bytes of a field that is too large, and have not arrived yet.
    skip: u64,
}

impl Message {
    /// Passes the number and the value of each complete field to `each`. `None` is no protobuf.
    pub fn take(&mut self, bytes: &[u8], each: &mut dyn FnMut(u64, Value<'_>)) -> Option<()> {
        let skipped = usize::try_from(self.skip)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        self.skip -= u64::try_from(skipped).ok()?;
        self.pending.extend_from_slice(bytes.get(skipped..)?);
        let mut rest = self.pending.as_slice();
        loop {
            match next(rest)? {
                Next::Field(number, value, after) => {
                    if let Some(value) = value {
                        each(number, value);
                    }
                    rest = after;
                }
                Next::Cut => break,
                Next::Large(length) => {
                    let here = u64::try_from(rest.len()).ok()?;
                    self.skip = length.saturating_sub(here);
                    let used = usize::try_from(length).unwrap_or(usize::MAX);
                    rest = rest.get(used..).unwrap_or_default();
                }
            }
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
        Some(())
    }

    /// Whether the message ends between two fields.
    pub fn is_complete(&self) -> bool {
        self.pending.is_empty() && self.skip == 0
    }
}

/// The fields of an inner message. One that is no protobuf ends at its first error.
pub fn fields(mut message: &[u8], each: &mut dyn FnMut(u64, Value<'_>)) {
    while let Some(Next::Field(number, value, after)) = next(message) {
        if let Some(value) = value {
            each(number, value);
        }
        message = after;
    }
}

enum Next<'a> {
    /// Number, value, and the rest. The value of a fixed field is not read.
    Field(u64, Option<Value<'a>>, &'a [u8]),
    /// The field is not complete.
    Cut,
    /// The field, with its head, has this length, and is too large.
    Large(u64),
}

/// The first field of `message`; `None` if it is none.
fn next(message: &[u8]) -> Option<Next<'_>> {
    let cut = |rest: &[u8]| (rest.len() < 10).then_some(Next::Cut);
    let Some((tag, rest)) = varint(message) else {
        return cut(message);
    };
    let number = tag >> 3;
    if number == 0 {
        return None;
    }
    let fixed = match tag & 7 {
        0 => {
            return match varint(rest) {
                Some((value, rest)) => Some(Next::Field(number, Some(Value::Number(value)), rest)),
                None => cut(rest),
            };
        }
        1 => 8,
        5 => 4,
        2 => {
            let Some((length, rest)) = varint(rest) else {
                return cut(rest);
            };
            if length > MAX_FIELD {
                let head = u64::try_from(message.len() - rest.len()).ok()?;
                return Some(Next::Large(head.checked_add(length)?));
            }
            let length = usize::try_from(length).ok()?;
            return Some(match rest.split_at_checked(length) {
                Some((bytes, rest)) => Next::Field(number, Some(Value::Bytes(bytes)), rest),
                None => Next::Cut,
            });
        }
        _ => return None,
    };
    Some(match rest.split_at_checked(fixed) {
        Some((_, rest)) => Next::Field(number, None, rest),
        None => Next::Cut,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fields, with texts for bytes, of `message` in pieces of `piece` bytes.
    fn read(message: &[u8], piece: usize) -> Option<(Vec<(u64, String)>, bool)> {
        let mut found = Vec::new();
        let mut all = Message::default();
        for bytes in message.chunks(piece) {
            all.take(bytes, &mut |number, value| {
                found.push((
                    number,
                    match value {
                        Value::Number(number) => number.to_string(),
                        Value::Bytes(_) => value.text(),
                    },
                ));
            })?;
            assert!(all.pending.len() < 80 << 10);
        }
        Some((found, all.is_complete()))
    }

    fn bytes_field(number: u8, length: usize) -> Vec<u8> {
        let mut field = vec![number << 3 | 2];
        let mut left = length;
        while left >= 0x80 {
            field.push(u8::try_from(left & 0x7f).unwrap() | 0x80);
            left >>= 7;
        }
        field.push(u8::try_from(left).unwrap());
        field.resize(field.len() + length, b'x');
        field
    }

    #[test]
    fn a_message_in_pieces_has_the_same_fields() {
        let message = [
            b"\x0a\x05hello\x10\x96\x01".as_slice(),
            b"\x19\x01\x02\x03\x04\x05\x06\x07\x08\x25\x01\x02\x03\x04",
            b"\x1a\x00",
        ]
        .concat();
        let want = [(1, "hello"), (2, "150"), (3, "")];
        for piece in 1..=message.len() {
            let (found, complete) = read(&message, piece).unwrap();
            let found: Vec<(u64, &str)> = found.iter().map(|f| (f.0, f.1.as_str())).collect();
            assert_eq!(found, want, "{piece}");
            assert!(complete);
        }
        assert!(!read(&message[..3], 2).unwrap().1);
    }

    #[test]
    fn a_field_of_more_than_64_kib_is_skipped() {
        for (length, known) in [(64 << 10, true), ((64 << 10) + 1, false), (200_000, false)] {
            let message = [bytes_field(1, length), b"\x12\x02ok".to_vec()].concat();
            for piece in [1, 100, 16_384, message.len()] {
                let (found, complete) = read(&message, piece).unwrap();
                assert!(complete);
                assert_eq!(found.len(), 1 + usize::from(known), "{length} {piece}");
                assert_eq!(found.last().unwrap(), &(2, "ok".to_owned()));
            }
            assert!(!read(&message[..length], 4096).unwrap().1);
        }
    }

    #[test]
    fn what_is_no_protobuf_is_an_error() {
        for message in [
            b"\x00\x01".as_slice(),
            b"\x0b",
            b"\x0e",
            &[0xff; 11],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert_eq!(read(message, 1), None, "{message:?}");
        }
        // A length of 2^63 ends with the connection.
        let endless = b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc";
        assert_eq!(read(endless, 4), Some((Vec::new(), false)));
    }

    #[test]
    fn a_text_is_one_line_of_1_kib() {
        let value = Value::Bytes(b"a\nb\xff\x1b[c");
        assert_eq!(value.text(), "a b\u{fffd} [c");
        let long = vec![b'x'; 5000];
        assert_eq!(Value::Bytes(&long).text().len(), 1024);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_the_same(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            piece in 1..50_usize,
        ) {
            // An error may come with the first or with the last piece.
            if let (Some(one), Some(other)) = (read(&bytes, bytes.len().max(1)), read(&bytes, piece)) {
                prop_assert_eq!(one, other);
            }
        }
    }
}
