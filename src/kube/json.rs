//! JSON from a server, bounded in values and depth while it is parsed.
//!
//! A parsed value may take 25 times the bytes of its text: 1 MiB of `[0,0,…]` would take 27 MB.
//! Parts that nothing here reads, and that anybody may fill, are skipped and not counted:
//! `fieldsV1` of managedFields, annotations that [`is_read_annotation`] does not name, and images
//! beyond `MAX_IMAGES`.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::kube::object::is_read_annotation;

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

/// Why there is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unparsed {
    /// The text is not JSON.
    NotJson,
    /// The document has too many values, or too many levels.
    TooLarge,
}

/// Parses a document without the members of these names.
pub fn parse_without(bytes: &[u8], skipped: &[&str]) -> Result<Value, Unparsed> {
    let left = Cell::new(Some(MAX_VALUES));
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let place = Place { left: &left, depth: MAX_DEPTH, key: "", skipped };
    let value = place.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|_| left.get().map_or(Unparsed::TooLarge, |_| Unparsed::NotJson))
}

/// Where a value is.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Number of values that the document may still have; `None` after it exceeded a bound.
    left: &'a Cell<Option<usize>>,
    /// Number of levels that the value may have.
    depth: usize,
    /// The key of the value, or of the list that it is in.
    key: &'a str,
    skipped: &'a [&'a str],
}

impl<'a> Place<'a> {
    fn count<E: Error>(self) -> Result<(), E> {
        self.left.set(self.left.get().and_then(|left| left.checked_sub(1)));
        self.left.get().map(drop).ok_or_else(|| E::custom("too large"))
    }

    /// The place of the values in this one.
    fn within<E: Error>(self) -> Result<Self, E> {
        let Some(depth) = self.depth.checked_sub(1) else {
            self.left.set(None);
            return Err(E::custom("too deep"));
        };
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
            let is_foreign = self.key == "annotations" && !is_read_annotation(&key);
            let value = if is_foreign || self.skipped.contains(&key.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            } else if key == "fieldsV1" {
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
    fn a_document_that_exceeds_a_bound_is_told_from_one_that_is_not_json() {
        let list = |values: usize| format!("[{}0]", "0,".repeat(values));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (text, refused) in [
            (list(MAX_VALUES - 2), None),
            (list(MAX_VALUES), Some(Unparsed::TooLarge)),
            (list((1 << 19) - 2), Some(Unparsed::TooLarge)),
            (nested(MAX_DEPTH), None),
            (nested(MAX_DEPTH + 1), Some(Unparsed::TooLarge)),
            ("[".repeat(MAX_DEPTH + 1), Some(Unparsed::TooLarge)),
            ("{".to_owned(), Some(Unparsed::NotJson)),
            ("[] []".to_owned(), Some(Unparsed::NotJson)),
            ("<html>".to_owned(), Some(Unparsed::NotJson)),
        ] {
            assert_eq!(parse_without(text.as_bytes(), &[]).err(), refused, "{text:.9}");
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
                "managedFields": [{"fieldsV1": vec![0; 100_000]}],
                "labels": {"managed": "yes"},
            },
            "status": {"images": vec![json!({"names": ["a"], "sizeBytes": 1}); 10_000]},
        });
        let kept = json!({ATTACH_DETACH: "true", "nodelet/fact": "1"});
        for (name, value) in kept.as_object().unwrap() {
            node["metadata"]["annotations"][name] = value.clone();
        }
        let mut want = node.clone();
        want["metadata"]["managedFields"] = json!([{"fieldsV1": null}]);
        want["metadata"]["annotations"] = kept;
        want["status"]["images"].as_array_mut().unwrap().truncate(MAX_IMAGES);
        let bytes = node.to_string().into_bytes();
        assert_eq!(parse(&bytes), Some(want));
        let named = json!({"metadata": {"name": "pi", "labels": {"managed": "yes"}}});
        let skipped = ["annotations", "managedFields", "status"];
        assert_eq!(parse_without(&bytes, &skipped), Ok(named));
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
                let left = Cell::new(Some(values));
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
}
