//! JSON from a server, bounded in values and depth before it is parsed.
//!
//! A parsed value takes 25 times the bytes of `[0,0,…]`: a body of 1 MiB would take 27 MB.

use serde_json::Value;

/// Most values, keys included, of one document. A Node with every list that a kubelet fills has
/// some 3,000.
const MAX_VALUES: usize = 32_768;
/// Deepest nesting; managedFields of a Node have 10 levels.
const MAX_DEPTH: usize = 64;

/// Parses a document. `None` where it is not JSON or exceeds a bound.
pub fn parse(bytes: &[u8]) -> Option<Value> {
    match is_bounded(bytes, MAX_VALUES, MAX_DEPTH) {
        true => serde_json::from_slice(bytes).ok(),
        false => None,
    }
}

/// Whether a document has at most so many values and levels. Counts separators and nesting outside
/// of strings; the parser judges everything else.
pub(crate) fn is_bounded(bytes: &[u8], max_values: usize, max_depth: usize) -> bool {
    let (mut values, mut depth, mut is_string) = (1_usize, 0_usize, false);
    let mut bytes = bytes.iter();
    while let Some(byte) = bytes.next() {
        match (is_string, byte) {
            (true, b'\\') => {
                bytes.next();
            }
            (_, b'"') => is_string = !is_string,
            (false, b'[' | b'{') => {
                values += 1;
                depth += 1;
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (false, b',' | b':') => values += 1,
            _ => {}
        }
        if values > max_values || depth > max_depth {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_within_the_bounds_are_parsed() {
        for text in [
            r#"{"a": [1, {"b": "x,y:z[{\"\\"}], "c": null}"#,
            "[]",
            " 7 ",
            r#""a \" b""#,
        ] {
            let want: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()), Some(want), "{text}");
        }
        for text in ["", "{", "nul", "[1,]", "\"", "\"\\"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        // Separators in strings count nothing.
        let text = ",".repeat(MAX_VALUES * 2);
        assert_eq!(
            parse(json!([text]).to_string().as_bytes()),
            Some(json!([text]))
        );
    }

    #[test]
    fn too_many_values_and_too_deep_nesting_are_refused() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values));
        assert!(parse(list(MAX_VALUES - 3).as_bytes()).is_some());
        assert_eq!(parse(list(MAX_VALUES).as_bytes()), None);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_some());
        assert_eq!(parse(nested(MAX_DEPTH + 1).as_bytes()), None);
        let megabyte = list((1 << 19) - 2);
        assert_eq!(parse(megabyte.as_bytes()), None);
    }

    /// Nesting of a value, and the number of values and keys in it.
    fn measured(value: &Value) -> (usize, usize) {
        let inner: Vec<(usize, usize)> = match value {
            Value::Array(list) => list.iter().map(measured).collect(),
            Value::Object(map) => map.values().map(measured).collect(),
            _ => return (0, 1),
        };
        let keys = value.as_object().map_or(0, |map| map.len());
        let depth = inner.iter().map(|(depth, _)| *depth).max().unwrap_or(0);
        (
            depth + 1,
            1 + keys + inner.iter().map(|(_, count)| count).sum::<usize>(),
        )
    }

    proptest::proptest! {
        /// The scan refuses deep documents exactly, and large ones at twice the bound at the latest.
        #[test]
        fn the_scan_agrees_with_the_parsed_document(bytes in proptest::collection::vec(
            proptest::sample::select(b"[[]]{}\",:\\a1 ".to_vec()), 0..40,
        )) {
            if let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
                let (depth, count) = measured(&value);
                proptest::prop_assert_eq!(is_bounded(&bytes, 1000, 3), depth <= 3);
                // The parser keeps one of several equal keys.
                let is_exact = !bytes.contains(&b'{');
                proptest::prop_assert!(!is_exact || is_bounded(&bytes, 2 * count, 1000));
                proptest::prop_assert!(!is_bounded(&bytes, count.div_ceil(2) - 1, 1000));
            }
        }
    }
}
