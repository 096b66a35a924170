//! DER (X.690), as far as certificates and signing requests need it.
//!
//! The caller requests one element at a time, without recursion; an unexpected element is `None`.
//! Lengths have up to four octets, which exceeds the size of every file that is read.

/// A whole number.
pub const INTEGER: u8 = 0x02;
/// A string of bits; the first octet is the number of unused bits.
pub const BIT_STRING: u8 = 0x03;
/// A string of octets.
pub const OCTET_STRING: u8 = 0x04;
/// A registered object identifier.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// The type that Go writes for strings of its character set.
pub const PRINTABLE_STRING: u8 = 0x13;
/// `YYMMDDHHMMSSZ`, for years from 1950 to 2049.
pub const UTC_TIME: u8 = 0x17;
/// `YYYYMMDDHHMMSSZ`.
pub const GENERALIZED_TIME: u8 = 0x18;
/// Elements in a fixed order.
pub const SEQUENCE: u8 = 0x30;
/// Elements without order.
pub const SET: u8 = 0x31;

/// The tag of a constructed, context-specific element: `[n]`.
pub const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// The unread rest of the input.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `input` from its start.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether the whole input has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element of any tag: its tag, its contents, and the whole element.
    pub fn any(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, contents) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let number = octets
                    .iter()
                    .fold(0, |number: u64, octet| number << 8 | u64::from(*octet));
                (usize::try_from(number).ok()?, rest)
            }
            _ => return None,
        };
        let (contents, after) = contents.split_at_checked(length)?;
        let (whole, _) = self.0.split_at_checked(self.0.len() - after.len())?;
        self.0 = after;
        Some((tag, contents, whole))
    }

    /// The contents of the next element, if it has this tag.
    pub fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut reader = *self;
        let (found, contents, _) = reader.any()?;
        if found != tag {
            return None;
        }
        *self = reader;
        Some(contents)
    }

    /// A reader of the contents of the next element, if it has this tag.
    pub fn inside(&mut self, tag: u8) -> Option<Self> {
        self.next(tag).map(Self::new)
    }
}

/// Encodes an element with the concatenation of `parts` as its contents.
pub fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let octets = length.to_be_bytes();
    let significant = octets.iter().position(|octet| *octet != 0);
    let octets = octets.get(significant.unwrap_or(octets.len())..);
    let octets = octets.unwrap_or_default();
    let mut element = vec![tag];
    match octets {
        [] => element.push(0),
        [short @ 0..=0x7f] => element.push(*short),
        long => {
            element.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
            element.extend_from_slice(long);
        }
    }
    for part in parts {
        element.extend_from_slice(part);
    }
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_of_any_length_survives_a_round_trip() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536, 1 << 20] {
            let contents = vec![7; length];
            let written = element(OCTET_STRING, &[&contents, &[]]);
            let mut reader = Reader::new(&written);
            let mut again = reader;
            assert_eq!(reader.next(OCTET_STRING).unwrap(), contents, "{length}");
            assert!(reader.is_empty());
            assert_eq!(again.any().unwrap().2, written);
        }
        assert_eq!(
            element(SEQUENCE, &[&[5, 0], &[5, 0]]),
            [0x30, 4, 5, 0, 5, 0]
        );
    }

    #[test]
    fn a_truncated_or_too_long_element_is_none() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81],
            &[0x30, 0x82, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
        ] {
            assert!(Reader::new(bytes).any().is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn another_tag_does_not_advance_the_reader() {
        let mut reader = Reader::new(&[2, 1, 9]);
        assert_eq!(reader.next(SEQUENCE), None);
        assert_eq!(reader.next(INTEGER), Some(&[9][..]));
    }
}
