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
    match is_bounded(bytes) {
        true => serde_json::from_slice(bytes).ok(),
        false => None,
    }
}

/// Counts separators and nesting outside of strings; the parser judges everything else.
fn is_bounded(bytes: &[u8]) -> bool {
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
        if values > MAX_VALUES || depth > MAX_DEPTH {
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

    proptest::proptest! {
        /// Whatever the parser accepts below the bounds, the scan lets pass.
        #[test]
        fn the_scan_is_no_stricter_than_its_bounds(bytes in proptest::collection::vec(
            proptest::sample::select(b"[]{}\",:\\ab1 \n".to_vec()), 0..60,
        )) {
            proptest::prop_assert!(is_bounded(&bytes));
            proptest::prop_assert_eq!(parse(&bytes), serde_json::from_slice(&bytes).ok());
        }
    }
}
