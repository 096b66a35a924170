//! HPACK (RFC 7541), as far as the answers of a gRPC server need it: no dynamic table, because our
//! SETTINGS have a table size of 0.

/// Bytes of a decoded string.
const MAX_STRING: usize = 8 << 10;

/// How many bytes have a Huffman code of 0 bits, of 1 bit, up to 30 bits (RFC 7541 Appendix B). The
/// code is canonical: codes of one length are in the order of the bytes, and shorter codes come
/// first. Therefore this and [`SYMBOLS`] are the whole table.
const COUNTS: [u8; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19,
    29, 0, 3,
];

/// The bytes in the order of their codes.
const SYMBOLS: &[u8; 256] = b"\
    012aceiost %-./3456789=A_bdfghlmnpru:BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz&*,;XZ!\"()?'+|#>\0$@[]~^}<\
    `{\\\xc3\xd0\x80\x82\x83\xa2\xb8\xc2\xe0\xe2\x99\xa1\xa7\xac\xb0\xb1\xb3\xd1\xd8\xd9\xe3\xe5\
    \xe6\x81\x84\x85\x86\x88\x92\x9a\x9c\xa0\xa3\xa4\xa9\xaa\xad\xb2\xb5\xb9\xba\xbb\xbd\xbe\xc4\
    \xc6\xe4\xe8\xe9\x01\x87\x89\x8a\x8b\x8c\x8d\x8f\x93\x95\x96\x97\x98\x9b\x9d\x9e\xa5\xa6\xa8\
    \xae\xaf\xb4\xb6\xb7\xbc\xbf\xc5\xe7\xef\t\x8e\x90\x91\x94\x9f\xab\xce\xd7\xe1\xec\xed\xc7\xcf\
    \xea\xeb\xc0\xc1\xc8\xc9\xca\xcd\xd2\xd5\xda\xdb\xee\xf0\xf2\xf3\xff\xcb\xcc\xd3\xd4\xd6\xdd\
    \xde\xdf\xf1\xf4\xf5\xf6\xf7\xf8\xfa\xfb\xfc\xfd\xfe\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\
    \x0f\x10\x11\x12\x13\x14\x15\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f\x7f\xdc\xf9\n\r\x16";

/// The values of `:status` in the static table, from [`FIRST_STATUS`] (RFC 7541 Appendix A).
const STATUSES: [&[u8]; 7] = [b"200", b"204", b"206", b"304", b"400", b"404", b"500"];
const FIRST_STATUS: u64 = 8;
const LAST_STATIC: u64 = 61;

/// Passes each name and value of a header block to `each`. `None` is a block that cannot be
/// decoded, or that needs a dynamic table. The name of a static entry other than `:status` is
/// empty: no answer depends on it.
pub fn decode(block: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Option<()> {
    let mut rest = block;
    while let Some(&first) = rest.first() {
        if first & 0x80 != 0 {
            let index = integer(&mut rest, 7)?;
            if index == 0 || index > LAST_STATIC {
                return None;
            }
            if let Some(status) = status(index) {
                each(b":status", status);
            }
            continue;
        }
        if first & 0xe0 == 0x20 {
            // A size update. The table has no size.
            if integer(&mut rest, 5)? != 0 {
                return None;
            }
            continue;
        }
        let bits = if first & 0x40 == 0 { 4 } else { 6 };
        let name = match integer(&mut rest, bits)? {
            0 => string(&mut rest)?,
            index if index > LAST_STATIC => return None,
            index => status(index).map_or_else(Vec::new, |_| b":status".to_vec()),
        };
        let value = string(&mut rest)?;
        each(&name, &value);
    }
    Some(())
}

fn status(index: u64) -> Option<&'static [u8]> {
    let place = usize::try_from(index.checked_sub(FIRST_STATUS)?).ok()?;
    STATUSES.get(place).copied()
}

/// An integer whose first byte has `bits` bits of it (RFC 7541 §5.1), of 4 bytes at most.
fn integer(rest: &mut &[u8], bits: u32) -> Option<u64> {
    let mask = (1_u64 << bits) - 1;
    let mut value = u64::from(*rest.split_off_first()?) & mask;
    if value < mask {
        return Some(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = rest.split_off_first()?;
        value += u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A string (RFC 7541 §5.2).
fn string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let is_huffman = rest.first()? & 0x80 != 0;
    let length = usize::try_from(integer(rest, 7)?).ok()?;
    let bytes = rest.split_off(..length)?;
    if is_huffman { huffman(bytes) } else { (bytes.len() <= MAX_STRING).then(|| bytes.to_vec()) }
}

/// Decodes a Huffman string. `first` is the first code of the current length, `index` its place
/// among all symbols.
fn huffman(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let (mut code, mut first, mut index, mut length) = (0_u32, 0_u32, 0_u32, 0_usize);
    for byte in bytes {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            first <<= 1;
            length += 1;
            let count = u32::from(*COUNTS.get(length)?);
            match code.checked_sub(first) {
                Some(offset) if offset < count => {
                    let place = usize::try_from(index + offset).ok()?;
                    text.push(*SYMBOLS.get(place)?);
                    if text.len() > MAX_STRING {
                        return None;
                    }
                    (code, first, index, length) = (0, 0, 0, 0);
                }
                _ => {
                    first += count;
                    index += count;
                }
            }
        }
    }
    // The padding is the start of the code of ones, of less than a byte.
    (length < 8 && code == (1 << length) - 1).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<char> = hex.chars().filter(|c| !c.is_whitespace()).collect();
        let byte =
            |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    fn decoded(hex: &str) -> Option<Vec<(String, String)>> {
        let mut headers = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decode(&bytes(hex), &mut |name, value| {
            headers.push((text(name), text(value)));
        })?;
        Some(headers)
    }

    /// Of the strings of RFC 7541 Appendix C.4 and C.6 those that have all their characters.
    #[test]
    fn the_huffman_strings_of_rfc_7541() {
        for (hex, text) in [
            ("25a8 49e9 5ba9 7d7f", "custom-key"),
            ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", "https://www.example.com"),
            ("640e ff", "307"),
            (
                "d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff",
                "Mon, 21 Oct 2013 20:13:22 GMT",
            ),
            ("9bd9 ab", "gzip"),
            (
                "94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 \
                 3160 65c0 03ed 4ee5 b106 3d50 07",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ] {
            let got = huffman(&bytes(hex)).unwrap();
            assert_eq!(String::from_utf8(got).unwrap(), text);
        }
    }

    /// Length of the code of each byte, in bits, as RFC 7541 Appendix B lists them.
    #[rustfmt::skip]
    const LENGTHS: [u8; 256] = [
        13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
        28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
        6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
        5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
        13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
        15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
        6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
        20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
        24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
        22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
        21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
        26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
        19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
        20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
        26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    ];

    /// Kraft's sum of all codes and that of EOS, of 30 bits, is 1: no code is missing.
    #[test]
    fn the_huffman_code_is_complete() {
        let sum: u64 = LENGTHS.iter().map(|length| 1_u64 << (30 - length)).sum();
        assert_eq!(sum + 1, 1 << 30);
        let mut all: Vec<u8> = (0..=255).collect();
        all.sort_by_key(|byte| (LENGTHS[usize::from(*byte)], *byte));
        assert_eq!(all, SYMBOLS);
        for (bits, count) in (0_u8..).zip(COUNTS) {
            let of_length = LENGTHS.iter().filter(|length| **length == bits);
            assert_eq!(of_length.count(), usize::from(count), "{bits}");
        }
    }

    #[test]
    fn padding_is_ones_of_less_than_a_byte() {
        // `0` is 00000, then 111.
        assert_eq!(huffman(&[0b0000_0111]), Some(b"0".to_vec()));
        assert_eq!(huffman(&[0b0000_0110]), None);
        assert_eq!(huffman(&[0b0000_0111, 0xff]), None);
        assert_eq!(huffman(&[]), Some(Vec::new()));
        // EOS.
        assert_eq!(huffman(&[0xff; 4]), None);
        let long = vec![0; 8192 * 5 / 8];
        assert_eq!(huffman(&long).map(|text| text.len()), Some(8192));
        assert_eq!(huffman(&[0; 8192 * 5 / 8 + 1]), None);
    }

    /// Recorded from containerd 1.6 (grpc-go): the first block, and the trailers.
    #[test]
    fn the_headers_of_grpc_go() {
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let first = decoded("20 88 5f 8b 1d75 d062 0d26 3d4c 4d65 64");
        assert_eq!(first.unwrap(), [named(":status", "200"), named("", "application/grpc")]);
        let literal = decoded("0f10 8b 1d75 d062 0d26 3d4c 4d65 64");
        assert_eq!(literal.unwrap(), [named("", "application/grpc")]);
        let trailers = decoded("00 88 9aca c8b2 1234 da8f 01 30");
        assert_eq!(trailers.unwrap(), [named("grpc-status", "0")]);
        let plain = decoded("40 0b 677270632d737461747573 02 3132 48 03 353033");
        assert_eq!(plain.unwrap(), [named("grpc-status", "12"), named(":status", "503")]);
    }

    #[test]
    fn a_block_that_needs_a_dynamic_table_is_refused() {
        for (hex, why) in [
            ("80", "index 0"),
            ("be", "index 62"),
            ("ff 00 80", "an integer without an end"),
            ("7f 00 01 30", "a name of index 63"),
            ("21", "a table size of 1"),
            ("3f e1 1f", "a table size of 4096"),
            ("00", "no name"),
            ("00 05 6162", "a name that is cut"),
            ("00 01 61 ff ffff ffff 7f", "a length of more than 4 bytes"),
        ] {
            assert_eq!(decoded(hex), None, "{why}");
        }
        assert_eq!(decoded("").unwrap(), []);
        let names = decoded("8d 8e 90 bd").unwrap();
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(names[1].1, "500");
    }
}
