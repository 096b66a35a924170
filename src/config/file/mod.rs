//! The configuration file: a KubeletConfiguration.
//!
//! Applies the parsed document to the default flags; the command line is applied after it. As in
//! the kubelet, null, an empty string and most zeros keep the default. Ignored and unknown fields
//! are kept for the log. A value of the wrong type is an error.

use std::time::Duration;

use serde_json::{Map, Value};

use super::aggregate;
use super::flags::{Flags, SETTINGS, SHORTEST_REPORT, Values, is_ignored_field};
use super::setting::{Kind, Pairs, Setting, outside};
use super::thresholds;
use crate::kube::names::{self, Taint};
use crate::kube::object;
use crate::kube::time::parse_duration;
use crate::kube::yaml;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Applies the content of a configuration file to `flags`.
pub fn read(bytes: &[u8], flags: &mut Flags) -> Result<(), String> {
    let text = str::from_utf8(bytes).map_err(|_| "not UTF-8 text")?;
    apply(&yaml::parse(text).map_err(|why| why.to_string())?, flags)
}

/// Applies a configuration document to `flags`.
pub fn apply(document: &Value, flags: &mut Flags) -> Result<(), String> {
    let fields =
        document.as_object().ok_or("not a kubelet configuration: no mapping at the top")?;
    for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let is = object::text(document, &[key]);
        if is != want {
            return Err(format!("{key} is {is:?}; a kubelet configuration has {key}: {want}"));
        }
    }
    let mut errors = Vec::new();
    apply_fields("", fields, flags, &mut errors);
    if let Err(error) = merge_thresholds(fields, &mut flags.values) {
        errors.push(error);
    }
    aggregate(errors)?;
    // Without a report frequency, it is the update frequency: "for backward compatibility" in
    // pkg/kubelet/apis/config/v1beta1/defaults.go.
    let period = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => parse_duration(text).unwrap_or_default(),
        _ => Duration::ZERO,
    };
    let update = period("nodeStatusUpdateFrequency");
    if !update.is_zero() && period("nodeStatusReportFrequency").is_zero() {
        flags.values.config.report_frequency = update.max(SHORTEST_REPORT);
    }
    Ok(())
}

/// Applies the fields of one mapping, whose own name is in `prefix` with a dot.
fn apply_fields(
    prefix: &str,
    fields: &Map<String, Value>,
    flags: &mut Flags,
    errors: &mut Vec<String>,
) {
    for (key, value) in fields {
        // An empty name would be found in the table as "no field".
        if key.is_empty() {
            errors.push("a field has an empty name".to_owned());
            continue;
        }
        let name = [prefix, key].concat();
        let setting = SETTINGS.iter().find(|s| s.field == name);
        let inside = [&name, "."].concat();
        let has_fields = SETTINGS.iter().any(|s| s.field.starts_with(&inside));
        match (setting, value) {
            // A dot of its own is no path.
            _ if key.contains('.') => flags.unknown.push(name),
            (Some(setting), _) => match set(&mut flags.values, setting, value) {
                Ok(fault) => flags.note(setting.flag, fault),
                Err(error) => errors.push(format!("{name}{error}")),
            },
            (None, Value::Null) if has_fields => {}
            (None, Value::Object(fields)) if has_fields => {
                apply_fields(&inside, fields, flags, errors);
            }
            (None, _) if has_fields => errors.push(format!("{name} is not a mapping")),
            (None, _) => match name.as_str() {
                "apiVersion" | "kind" | "mergeDefaultEvictionSettings" => {}
                known if is_ignored_field(known) => flags.ignored.push(name),
                _ => flags.unknown.push(name),
            },
        }
    }
}

/// Fields whose zero is a value: they are pointers in the kubelet's configuration.
const ZERO_IS_A_VALUE: [&str; 2] = ["eventRecordQPS", "nodeStatusMaxImages"];

/// Sets one value. Returns its fault if it is out of its range. The error starts with the separator
/// that follows the name of the field.
fn set(
    values: &mut Values,
    setting: &Setting<Values>,
    value: &Value,
) -> Result<Option<String>, String> {
    match (&setting.kind, value) {
        (_, Value::Null) => {}
        (Kind::Text(_) | Kind::Path(_), Value::String(text)) if text.is_empty() => {}
        (Kind::Text(set), Value::String(text)) => set(values, text.clone()),
        (Kind::Path(set), Value::String(text)) => set(values, text.into()),
        (Kind::Switch(set), Value::Bool(on)) => set(values, *on),
        (Kind::Number(least, most, set), Value::Number(number)) => {
            let number = number.as_i64().and_then(|n| i32::try_from(n).ok());
            let number = number.ok_or(" is not a whole number of 32 bits")?;
            if number != 0 || ZERO_IS_A_VALUE.contains(&setting.field) {
                set(values, number);
                return Ok(outside(&setting.names(), number, *least, *most));
            }
        }
        (Kind::Period(least, set), Value::String(text)) => {
            let period = parse_duration(text).map_err(|e| format!(": {e}"))?;
            if !period.is_zero() {
                set(values, period);
                return Ok(setting.too_short(period, *least));
            }
        }
        (Kind::Pairs(_, slot), Value::Object(map)) => *slot(values) = strings(map)?,
        (Kind::Taints(set), Value::Array(list)) => {
            let taints: Result<Vec<Taint>, String> = list.iter().map(taint).collect();
            let taints = taints.map_err(|e| format!(": {e}"))?;
            names::check_taints(&taints).map_err(|e| format!(": {e}"))?;
            set(values, taints);
        }
        (kind, _) => {
            return Err(match kind {
                Kind::Text(_) | Kind::Path(_) => " is not a string; put it in quotes",
                Kind::Switch(_) => " is neither true nor false",
                Kind::Number(..) => " is not a number; leave out the quotes",
                Kind::Period(..) => " is not a string; write it like 10s",
                Kind::Pairs(..) => " is not a mapping",
                Kind::Taints(_) => " is not a list",
            }
            .to_owned());
        }
    }
    Ok(None)
}

fn strings(map: &Map<String, Value>) -> Result<Pairs, String> {
    let mut strings = Pairs::new();
    for (key, value) in map {
        let text =
            value.as_str().ok_or_else(|| format!(".{key} is not a string; put it in quotes"))?;
        strings.insert(key.clone(), text.to_owned());
    }
    Ok(strings)
}

/// One item of `registerWithTaints`.
fn taint(value: &Value) -> Result<Taint, String> {
    if !object::at(value, &["timeAdded"]).is_none_or(Value::is_null) {
        return Err("invalid configuration: taint.TimeAdded is not nil".to_owned());
    }
    let text = |key: &str| object::text(value, &[key]).to_owned();
    let (key, value, effect) = (text("key"), text("value"), text("effect"));
    Ok(Taint { key, value, effect })
}

/// `mergeDefaultEvictionSettings`, which has no value of its own.
fn merge_thresholds(fields: &Map<String, Value>, values: &mut Values) -> Result<(), String> {
    match (fields.get("mergeDefaultEvictionSettings"), &mut values.eviction_hard) {
        (None | Some(Value::Null | Value::Bool(false)), _) | (Some(Value::Bool(true)), None) => {}
        (Some(Value::Bool(true)), Some(given)) => {
            for (signal, amount) in thresholds::defaults() {
                given.entry(signal).or_insert(amount);
            }
        }
        _ => return Err("mergeDefaultEvictionSettings is neither true nor false".to_owned()),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
