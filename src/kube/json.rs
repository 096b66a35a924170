//! JSON from a server, bounded in values and depth while it is parsed.
//!
//! A parsed value takes 25 times the bytes of `[0,0,…]`: a body of 1 MiB would take 27 MB. What
//! nothing here reads, and anybody may fill, is skipped and not counted: managedFields, other
//! annotations than [`keeps_annotation`] names, and images beyond `MAX_IMAGES`.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::kube::object::keeps_annotation;

/// Most values, keys included, of one document. A Node with every list that a kubelet fills has
/// some 3,000.
pub const MAX_VALUES: usize = 32_768;
/// Deepest nesting; a Node has 6 levels without managedFields.
const MAX_DEPTH: usize = 64;
/// Most images of a Node; a report has 1,000 at most.
const MAX_IMAGES: usize = 1024;

/// Parses a document. `None` where it is not JSON or exceeds a bound.
pub fn parse(bytes: &[u8]) -> Option<Value> {
    parse_without(bytes, &[]).ok()
}

/// Parses a document without the members of these names. `Err(true)`: it exceeds a bound.
pub fn parse_without(bytes: &[u8], skipped: &[&str]) -> Result<Value, bool> {
    let left = Cell::new(MAX_VALUES);
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let place = Place { left: &left, depth: MAX_DEPTH, key: "", skipped };
    let value = place.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|error| error.to_string().starts_with(TOO_LARGE))
}

const TOO_LARGE: &str = "too large";

/// Where a value is.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Number of values that the document may still have.
    left: &'a Cell<usize>,
    /// Number of levels that the value may have.
    depth: usize,
    /// The key of the value, or of the list that it is in.
    key: &'a str,
    skipped: &'a [&'a str],
}

impl<'a> Place<'a> {
    fn count<E: Error>(self) -> Result<(), E> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| E::custom(TOO_LARGE))?;
        self.left.set(left);
        Ok(())
    }

    /// The place of the values in this one.
    fn within<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom(TOO_LARGE))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        self.count()?;
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let place = self.within()?;
        let mut values = Vec::new();
        while self.key != "images" || values.len() < MAX_IMAGES {
            let Some(value) = list.next_element_seed(place)? else {
                return Ok(Value::Array(values));
            };
            values.push(value);
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let place = self.within()?;
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let is_foreign = self.key == "annotations" && !keeps_annotation(&key);
            let value = if is_foreign || self.skipped.contains(&key.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            } else if key == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                Value::Null
            } else {
                map.next_value_seed(Place { key: &key, ..place })?
            };
            self.count()?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}

/// A decimal number as Go and YAML write it, `-1.5e+3`, `.5` or `7.`, with or without a fraction.
/// `None` if the text has another form, `Some(None)` if the number is too large.
///
/// By serde_json, because std's parser of fractions is 13 KB that nothing else needs.
pub(crate) fn decimal(text: &str) -> Option<Option<Number>> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_decimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let power = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if mantissa.trim_matches('.').is_empty() || power.is_empty() {
        return None;
    }
    if ![whole, fraction, power].into_iter().all(is_decimal) {
        return None;
    }
    // JSON has digits on both sides of a point, and no zeros before others.
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let json = format!("{sign}{whole}{point}{fraction}e{exponent}");
    // A value, like every document: serde_json has a parser for each type.
    Some(match parse(json.as_bytes()) {
        Some(Value::Number(number)) => Some(number),
        _ => None,
    })
}

/// A `decimal` number. One that is too large is infinite. Exact up to 15 digits and 22 powers of
/// ten, else the last bit may differ from that of `str::parse`.
pub fn parse_float(text: &str) -> Option<f64> {
    match decimal(text)? {
        Some(number) => number.as_f64(),
        None if text.starts_with('-') => Some(f64::NEG_INFINITY),
        None => Some(f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::object::ATTACH_DETACH;

    #[test]
    fn documents_within_the_bounds_are_parsed() {
        for text in [r#"{"a": [1, {"b": "x,y:z[{\"\\"}], "c": null}"#, "[]", " 7 ", r#""a \" b""#] {
            let want: Value = serde_json::from_str(text).unwrap();
            assert_eq!(parse(text.as_bytes()), Some(want), "{text}");
        }
        for text in ["", "{", "nul", "[1,]", "\"", "\"\\"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        // Separators in strings count nothing.
        let text = ",".repeat(MAX_VALUES * 2);
        assert_eq!(parse(json!([text]).to_string().as_bytes()), Some(json!([text])));
    }

    #[test]
    fn too_many_values_and_too_deep_nesting_are_refused() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values));
        assert!(parse(list(MAX_VALUES - 2).as_bytes()).is_some());
        assert_eq!(parse(list(MAX_VALUES).as_bytes()), None);
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_some());
        assert_eq!(parse(nested(MAX_DEPTH + 1).as_bytes()), None);
        let megabyte = list((1 << 19) - 2);
        assert_eq!(parse(megabyte.as_bytes()), None);
    }

    #[test]
    fn the_forms_of_a_number_are_parsed_and_nothing_else() {
        for text in [
            "0", "-0", "10", "007", "1.5", "-1.5", "+1.5", ".5", "-.5", "7.", "00.50", "1e3",
            "-1E-3", "1.e+2", ".5e1", "0.1", "25.5", "1e999", "-1e999", "1e-999", "0e999",
        ] {
            assert_eq!(parse_float(text), Some(text.parse().unwrap()), "{text}");
        }
        for text in [
            "", "+", "-", ".", "..", "1..5", "1.5.", "e1", ".e1", "1e", "1e+", "1e1.5", "--1",
            "+-1", "1_0", "0x10", "inf", "NaN", "1 ", " 1", "1f", "1e1e1", "\u{661}",
        ] {
            assert_eq!(parse_float(text), None, "{text}");
        }
    }

    /// What nothing reads costs nothing, at any size that etcd stores.
    #[test]
    fn what_nothing_reads_is_skipped_and_not_counted() {
        let annotations: Map<String, Value> =
            (0..40_000).map(|n| (format!("a{n}"), json!(""))).collect();
        let mut node = json!({
            "metadata": {
                "name": "pi",
                "annotations": annotations,
                "managedFields": [vec![0; 100_000]],
                "labels": {"managed": "yes"},
            },
            "status": {"images": vec![json!({"names": ["a"], "sizeBytes": 1}); 10_000]},
        });
        let kept = json!({ATTACH_DETACH: "true", "nodelet/fact": "1"});
        for (name, value) in kept.as_object().unwrap() {
            node["metadata"]["annotations"][name] = value.clone();
        }
        let mut want = node.clone();
        want["metadata"]["managedFields"] = Value::Null;
        want["metadata"]["annotations"] = kept;
        want["status"]["images"].as_array_mut().unwrap().truncate(MAX_IMAGES);
        let bytes = node.to_string().into_bytes();
        assert_eq!(parse(&bytes), Some(want));
        let named = json!({"metadata": {"name": "pi", "labels": {"managed": "yes"}}});
        let skipped = ["annotations", "managedFields", "status"];
        assert_eq!(parse_without(&bytes, &skipped), Ok(named));
    }

    #[test]
    fn a_document_that_exceeds_a_bound_is_told_from_one_that_is_not_json() {
        for (text, exceeds) in [
            (format!("[{}0]", "0,".repeat(MAX_VALUES)), true),
            ("[".repeat(MAX_DEPTH + 1), true),
            ("{".to_owned(), false),
            ("[] []".to_owned(), false),
            ("<html>".to_owned(), false),
        ] {
            assert_eq!(parse_without(text.as_bytes(), &[]), Err(exceeds), "{text:.9}");
        }
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
        (depth + 1, 1 + keys + inner.iter().map(|(_, count)| count).sum::<usize>())
    }

    proptest::proptest! {
        /// A document is the one that serde_json reads, and is bounded as that.
        #[test]
        fn the_parser_agrees_with_serde_json(bytes in proptest::collection::vec(
            proptest::sample::select(b"[[]]{}\",:\\a1 ".to_vec()), 0..40,
        )) {
            let want = serde_json::from_slice::<Value>(&bytes).ok();
            proptest::prop_assert_eq!(parse(&bytes), want.clone());
            let Some(value) = want else { return Ok(()) };
            let (depth, count) = measured(&value);
            let bounded = |values, depth| {
                let left = Cell::new(values);
                let place = Place { left: &left, depth, key: "", skipped: &[] };
                let mut json = serde_json::Deserializer::from_slice(&bytes);
                place.deserialize(&mut json).is_ok()
            };
            proptest::prop_assert_eq!(bounded(1000, 3), depth <= 3);
            proptest::prop_assert!(!bounded(count - 1, 1000));
            // The parser keeps one of several equal keys.
            let is_exact = !bytes.contains(&b'{');
            proptest::prop_assert!(!is_exact || bounded(count, 1000));
        }
    }

    proptest::proptest! {
        /// 15 digits are exact. In 32 bits, as in a threshold, this holds as well.
        #[test]
        fn fifteen_digits_have_the_value_that_std_parses(
            digits in 0..1_000_000_000_000_000_u64, point in 0..16_usize, exponent in -6..6_i32,
        ) {
            let mut text = format!("{digits:016}");
            text.insert(point, '.');
            text.push_str(&format!("e{exponent}"));
            let value = parse_float(&text).unwrap();
            proptest::prop_assert_eq!(value, text.parse::<f64>().unwrap(), "{}", &text);
            #[expect(clippy::cast_possible_truncation)]
            let narrow = value as f32;
            proptest::prop_assert_eq!(narrow, text.parse::<f32>().unwrap(), "{}", text);
        }
    }
}
