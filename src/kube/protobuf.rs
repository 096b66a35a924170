//! The fields of a protobuf message, without recursion and without copies: the receiver of an inner
//! message passes it to [`fields`] or [`field`].

use crate::kube::text::one_line;

/// Bytes of one text.
const MAX_TEXT: usize = 1 << 10;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireValue<'a> {
    /// A varint.
    Number(u64),
    /// A string, bytes, or an inner message.
    Bytes(&'a [u8]),
}

impl<'a> WireValue<'a> {
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

/// Passes the number and the value of each field to `each`, up to the first error. `None` is no
/// protobuf, or `each` returned `None`, for an inner message that is none. Then what was read
/// before is no value.
#[must_use]
pub fn fields<'a>(
    mut message: &'a [u8],
    each: &mut dyn FnMut(u64, WireValue<'a>) -> Option<()>,
) -> Option<()> {
    while !message.is_empty() {
        let (number, value, rest) = first(message)?;
        if let Some(value) = value {
            each(number, value)?;
        }
        message = rest;
    }
    Some(())
}

/// The first string, bytes or inner message with this number.
pub fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        match first(message)? {
            (found, Some(WireValue::Bytes(bytes)), _) if found == number => return Some(bytes),
            (_, _, rest) => message = rest,
        }
    }
}

/// The number and the value of the first field, and what follows it. A fixed 32-bit or 64-bit field
/// has no value: no message that is read here needs one.
fn first(message: &[u8]) -> Option<(u64, Option<WireValue<'_>>, &[u8])> {
    let (tag, rest) = varint(message)?;
    let (value, rest) = match tag & 7 {
        0 => {
            let (number, rest) = varint(rest)?;
            (Some(WireValue::Number(number)), rest)
        }
        1 => (None, rest.get(8..)?),
        2 => {
            let (length, rest) = varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Some(WireValue::Bytes(bytes)), rest)
        }
        5 => (None, rest.get(4..)?),
        _ => return None,
    };
    let number = tag >> 3;
    (number > 0).then_some((number, value, rest))
}

/// A varint and the rest: seven bits in a byte, lowest first, at most ten bytes.
fn varint(message: &[u8]) -> Option<(u64, &[u8])> {
    let end = message.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    let (bytes, rest) = message.split_at_checked(end + 1)?;
    let value = bytes
        .iter()
        .rev()
        .fold(0, |value: u64, byte| value.wrapping_shl(7) | u64::from(byte & 0x7f));
    Some((value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Option<Vec<(u64, String)>> {
        let mut found = Vec::new();
        fields(message, &mut |number, value| {
            found.push((
                number,
                match value {
                    WireValue::Number(number) => number.to_string(),
                    WireValue::Bytes(_) => value.text(),
                },
            ));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn the_fields_of_a_message() {
        let message = [
            b"\x0a\x05hello\x10\x96\x01".as_slice(),
            b"\x19\x01\x02\x03\x04\x05\x06\x07\x08\x25\x01\x02\x03\x04",
            b"\x1a\x00",
        ]
        .concat();
        let found = read(&message).unwrap();
        let found: Vec<(u64, &str)> = found.iter().map(|f| (f.0, f.1.as_str())).collect();
        assert_eq!(found, [(1, "hello"), (2, "150"), (3, "")]);
        // Each start of it is whole between two fields, and no protobuf elsewhere.
        let whole = (0..=message.len()).filter(|end| read(&message[..*end]).is_some());
        assert_eq!(whole.collect::<Vec<_>>(), [0, 7, 10, 19, 24, 26]);
    }

    #[test]
    fn what_is_no_protobuf_is_an_error() {
        for message in [
            b"\x00\x01".as_slice(),
            b"\x0b",
            b"\x0e",
            &[0xff; 11],
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc",
        ] {
            assert_eq!(read(message), None, "{message:?}");
        }
    }

    #[test]
    fn a_text_is_one_line_of_1_kib() {
        let value = WireValue::Bytes(b"a\nb\xff\x1b[c");
        assert_eq!(value.text(), "a b\u{fffd} [c");
        let long = vec![b'x'; 5000];
        assert_eq!(WireValue::Bytes(&long).text().len(), 1024);
    }
}
