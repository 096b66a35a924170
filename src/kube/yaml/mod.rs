//! Parses the YAML or JSON of a kubeconfig or kubelet configuration into a JSON value.
//!
//! The text is untrusted: the parser does not recurse, and size, depth and number of nodes are
//! bounded. Anchors, aliases, tags, a second document that is not empty, duplicate keys and keys
//! that are not strings are errors with line and column. An error quotes no value: it may be a
//! password. Plain scalars follow the core schema of YAML 1.2, so `yes` is a string.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

use super::quantity::float;
use super::text::Fault;

/// Maximum size in bytes. A kubeconfig with inline certificates has 6 KiB.
const SIZE_LIMIT: usize = 1 << 20;
/// Maximum nesting. A kubelet configuration has five levels.
const DEPTH_LIMIT: usize = 64;
/// Maximum number of scalars, lists and mappings.
const NODE_LIMIT: usize = 16_384;

const TOO_LARGE: &str = "a number that is too large";
const QUOTES: &str = "put it in quotes";
const WRITE_OUT: &str = "write the value out";

/// Parses the single document of `text`; an empty document is null.
pub fn parse(text: &str) -> Result<Value, Fault> {
    if text.len() > SIZE_LIMIT {
        let what = format!("{} bytes of YAML", text.len());
        return Err(Fault::new(what, format!("the maximum is {SIZE_LIMIT}")));
    }
    // A byte order mark is allowed (YAML 1.2, chapter 5.2).
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut open: Vec<Unfinished> = Vec::new();
    let mut root = None;
    let mut document = Marker::default();
    let mut nodes = 0;

    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| at(e.marker(), e.info()))?;
        let start = &span.start;
        let value = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
            Event::DocumentStart(_) => {
                document = *start;
                continue;
            }
            Event::Alias(_) => return Err(at(start, Fault::new("an alias", WRITE_OUT))),
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(1.., _)
            | Event::MappingStart(1.., _) => {
                return Err(at(start, Fault::new("an anchor", WRITE_OUT)));
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return Err(at(start, Fault::new("a tag", "tags are not read")));
            }
            Event::Scalar(text, style, ..) => {
                count(&mut nodes, start)?;
                match scalar(&text, style) {
                    Ok(value) => value,
                    Err(what) => return Err(at(start, Fault::new(what, QUOTES))),
                }
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                count(&mut nodes, start)?;
                if open.len() == DEPTH_LIMIT {
                    return Err(at(start, format!("nested deeper than {DEPTH_LIMIT} levels")));
                }
                open.push(match event {
                    Event::SequenceStart(..) => Unfinished::List(Vec::new()),
                    _ => Unfinished::Map(Map::new(), None),
                });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Unfinished::List(list)) => Value::Array(list),
                Some(Unfinished::Map(map, _)) => Value::Object(map),
                None => return Err(at(start, "an end without a beginning")),
            },
        };
        match open.last_mut() {
            Some(parent) => parent.add(value).map_err(|why| at(start, why))?,
            // `---` at the end of a file begins one.
            None if root.is_some() && value.is_null() => {}
            None if root.is_some() => {
                return Err(at(&document, Fault::new("a second document", "only one is read")));
            }
            None => root = Some(value),
        }
    }
    Ok(root.unwrap_or(Value::Null))
}

/// A list or mapping whose end has not been parsed yet.
enum Unfinished {
    List(Vec<Value>),
    /// Its entries, and the key whose value follows.
    Map(Map<String, Value>, Option<String>),
}

impl Unfinished {
    fn add(&mut self, value: Value) -> Result<(), Fault> {
        match self {
            Self::List(list) => list.push(value),
            Self::Map(map, key) => match (key.take(), value) {
                (Some(key), value) => {
                    map.insert(key, value);
                }
                (None, Value::String(new)) if map.contains_key(&new) => {
                    return Err(format!("duplicate key {new:?}").into());
                }
                (None, Value::String(new)) => *key = Some(new),
                (None, _) => return Err(Fault::new("a key that is not a string", QUOTES)),
            },
        }
        Ok(())
    }
}

fn count(nodes: &mut usize, start: &Marker) -> Result<(), Fault> {
    *nodes += 1;
    if *nodes > NODE_LIMIT {
        return Err(at(start, format!("more than {NODE_LIMIT} values")));
    }
    Ok(())
}

/// YAML 1.2, chapter 10.3.2; a quoted or block scalar is always a string. So quotes are the remedy
/// of each error.
fn scalar(text: &str, style: ScalarStyle) -> Result<Value, &'static str> {
    if style != ScalarStyle::Plain {
        return Ok(Value::String(text.to_owned()));
    }
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match number(text) {
            Some(number) => Value::Number(number?),
            None => Value::String(text.to_owned()),
        },
    })
}

/// `None` if the text does not have the form of a number: `-0x10` is a string. `Err` if it has the
/// form of a number that cannot be stored: `.inf`, `.nan`, `1e999`, or an integer below the range
/// of i64 or above the range of u64.
fn number(text: &str) -> Option<Result<Number, &'static str>> {
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Some(Err("a number without a form in JSON"));
    }
    if !all_digits(unsigned, 10) {
        return Some(Number::from_f64(float(text)?).ok_or(TOO_LARGE));
    }
    let exact = text.parse::<i64>().map(Number::from);
    Some(exact.or_else(|_| text.parse::<u64>().map(Number::from)).map_err(|_| TOO_LARGE))
}

/// [`number`] of the digits after `0o` or `0x`.
fn radix(digits: &str, radix: u32) -> Option<Result<Number, &'static str>> {
    let number = u64::from_str_radix(digits, radix).map(Number::from);
    all_digits(digits, radix).then(|| number.map_err(|_| TOO_LARGE))
}

fn all_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn at(marker: &Marker, fault: impl Into<Fault>) -> Fault {
    fault.into().at(format_args!("line {}, column {}", marker.line(), marker.col() + 1))
}

#[cfg(test)]
mod tests;
