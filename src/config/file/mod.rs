//! The configuration file: a KubeletConfiguration.
//!
//! Applies the parsed document to the default flags; the command line is applied after it. As in
//! the kubelet, null, an empty string and most zeros keep the default. Ignored and unknown fields
//! are returned for the log. A value of the wrong type is an error.

use std::time::Duration;

use serde_json::{Map, Value};

use super::validation::{MIN_REPORT_FREQUENCY, aggregate};
use crate::config::flags::{Flags, Kind, Pairs, SETTINGS, Use};
use crate::config::ignored;
use crate::config::thresholds;
use crate::kube::names::{self, Taint};
use crate::kube::object;
use crate::kube::time::parse_duration;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Fields of a file that the log names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Fields that have no effect.
    pub ignored: Vec<String>,
    /// Fields that have no effect yet.
    pub not_yet: Vec<String>,
    /// Fields that the kubelet does not have.
    pub unknown: Vec<String>,
}

/// Applies a configuration document to `flags`.
pub fn apply(document: &Value, flags: &mut Flags) -> Result<Notes, String> {
    let fields = document
        .as_object()
        .ok_or("not a kubelet configuration: no mapping at the top")?;
    for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let is = object::text(document, &[key]);
        if is != want {
            return Err(format!(
                "{key} is {is:?}; a kubelet configuration has {key}: {want}"
            ));
        }
    }
    let mut notes = Notes::default();
    let mut errors = Vec::new();
    for (name, value) in fields {
        // An empty name would be found in the table as "no field".
        if name.is_empty() {
            errors.push("a field has an empty name".to_owned());
            continue;
        }
        let Some(setting) = SETTINGS.iter().find(|s| s.field == name.as_str()) else {
            match name.as_str() {
                "apiVersion" | "kind" | "mergeDefaultEvictionSettings" => {}
                known if ignored::FIELDS.contains(&known) => notes.ignored.push(name.clone()),
                _ => notes.unknown.push(name.clone()),
            }
            continue;
        };
        match setting.usage {
            Use::Used => {}
            Use::Ignored => notes.ignored.push(name.clone()),
            Use::Unimplemented => notes.not_yet.push(name.clone()),
        }
        if let Err(error) = set(flags, setting.kind, value) {
            errors.push(format!("{name}{error}"));
        }
    }
    if let Err(error) = special_fields(fields, flags) {
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
        flags.report_frequency = update.max(MIN_REPORT_FREQUENCY);
    }
    Ok(notes)
}

/// Sets one value. The error starts with the separator that follows the name of the field.
fn set(flags: &mut Flags, kind: Kind, value: &Value) -> Result<(), String> {
    match (kind, value) {
        (_, Value::Null) => {}
        (Kind::Text(_) | Kind::Path(_), Value::String(text)) if text.is_empty() => {}
        (Kind::Text(set), Value::String(text)) => set(flags, text.clone()),
        (Kind::Path(set), Value::String(text)) => set(flags, text.into()),
        (Kind::Switch(set), Value::Bool(on)) => set(flags, *on),
        (Kind::Number(set) | Kind::NumberOrZero(set), Value::Number(number)) => {
            let number = number.as_i64().and_then(|n| i32::try_from(n).ok());
            let number = number.ok_or(" is not a whole number of 32 bits")?;
            if number != 0 || matches!(kind, Kind::NumberOrZero(_)) {
                set(flags, number);
            }
        }
        (Kind::Period(set), Value::String(text)) => {
            let period = parse_duration(text).map_err(|e| format!(": {e}"))?;
            if !period.is_zero() {
                set(flags, period);
            }
        }
        (Kind::Pairs(_, slot), Value::Object(map)) => *slot(flags) = Some(strings(map)?),
        (Kind::List(slot), Value::Array(list)) => {
            let item = |item: &Value| item.as_str().map(str::to_owned);
            let items: Option<Vec<String>> = list.iter().map(item).collect();
            *slot(flags) = Some(items.ok_or(" is not a list of strings")?);
        }
        (Kind::Taints(set), Value::Array(list)) => {
            let taints: Result<Vec<Taint>, String> = list.iter().map(taint).collect();
            let taints = taints.map_err(|e| format!(": {e}"))?;
            names::check_taints(&taints).map_err(|e| format!(": {e}"))?;
            set(flags, taints);
        }
        (kind, _) => {
            return Err(match kind {
                Kind::Text(_) | Kind::Path(_) => " is not a string; put it in quotes",
                Kind::Switch(_) => " is neither true nor false",
                Kind::Number(_) | Kind::NumberOrZero(_) => " is not a number; leave out the quotes",
                Kind::Period(_) => " is not a string; write it like 10s",
                Kind::Pairs(..) => " is not a mapping",
                Kind::List(_) | Kind::Taints(_) => " is not a list",
            }
            .to_owned());
        }
    }
    Ok(())
}

fn strings(map: &Map<String, Value>) -> Result<Pairs, String> {
    let mut strings = Pairs::new();
    for (key, value) in map {
        let text = value
            .as_str()
            .ok_or_else(|| format!(".{key} is not a string; put it in quotes"))?;
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

/// Fields that are not a plain value of one setting.
fn special_fields(fields: &Map<String, Value>, flags: &mut Flags) -> Result<(), String> {
    if let Some(swap) = fields.get("memorySwap") {
        flags.validated_only.swap_behavior = object::text(swap, &["swapBehavior"]).to_owned();
    }
    flags.validated_only.shutdown_by_pod_priority = fields
        .get("shutdownGracePeriodByPodPriority")
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty());
    match (
        fields.get("mergeDefaultEvictionSettings"),
        &mut flags.eviction_hard,
    ) {
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
