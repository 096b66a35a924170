//! The values of a kernel file that has one name and one number a line, in one pass over its bytes.
//!
//! `str::lines` takes about 600 instructions a line at opt-level z: for files that are read for
//! each status that is more than the kernel's own work.

/// For each of `prefixes`, the value of the first line that begins with the prefix and has a value.
/// `value` parses what follows the prefix. The pass ends when all values are found.
pub(crate) fn values<const N: usize>(
    text: &[u8],
    prefixes: [&str; N],
    value: impl Fn(&[u8]) -> Option<u64>,
) -> [Option<u64>; N] {
    let mut values = [None; N];
    for line in text.split(|byte| *byte == b'\n') {
        for (prefix, slot) in prefixes.iter().zip(&mut values) {
            // The first byte is compared before, because strip_prefix calls memcmp: 70
            // instructions.
            if slot.is_none()
                && line.first() == prefix.as_bytes().first()
                && let Some(after) = line.strip_prefix(prefix.as_bytes())
            {
                *slot = value(after);
            }
        }
        if !values.contains(&None) {
            break;
        }
    }
    values
}

/// The decimal number at the start of `text`, without a sign, and what follows it.
pub(crate) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut number: Option<u64> = None;
    let mut rest = text;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        let tens = number.unwrap_or(0).checked_mul(10)?;
        number = Some(tens.checked_add(u64::from(digit - b'0'))?);
        rest = after;
    }
    Some((number?, rest))
}

/// A text that is one number, with white space around it.
pub(crate) fn lone_number(text: &[u8]) -> Option<u64> {
    match number(text.trim_ascii())? {
        (number, []) => Some(number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_with_a_value_counts() {
        let text = b"a x\nab 1\na 2\na 3\nb 4";
        assert_eq!(values(text, ["a ", "b ", "c "], lone_number), [Some(2), Some(4), None]);
        assert_eq!(values(b"", ["a "], lone_number), [None]);
        assert_eq!(values(b"\n\na 5", ["a "], lone_number), [Some(5)]);
    }

    #[test]
    fn a_number_has_digits_alone_and_fits() {
        for (text, want) in [
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("99999999999999999999999", None),
            ("007", Some(7)),
            (" 7\n", Some(7)),
            ("+7", None),
            ("-7", None),
            ("7 8", None),
            ("7k", None),
            ("", None),
            (" ", None),
        ] {
            assert_eq!(lone_number(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(number(b"12 kB"), Some((12, &b" kB"[..])));
        assert_eq!(number(b"kB"), None);
    }
}
