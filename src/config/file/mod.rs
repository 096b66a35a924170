//! The configuration files: a KubeletConfiguration, and its drop-ins.
//!
//! Merges the parsed documents as the kubelet does, and applies the result to the default flags;
//! the command line is applied after it. As in the kubelet, null, an empty string and most zeros
//! keep the default. Ignored and unknown fields are kept for the log. A value of the wrong type is
//! an error.

use std::path::Path;

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

/// Fields that have, or that decide, a default that depends on another field.
const MERGE: &str = "mergeDefaultEvictionSettings";
const HARD: &str = "evictionHard";
const UPDATE: &str = "nodeStatusUpdateFrequency";
const REPORT: &str = "nodeStatusReportFrequency";

/// The fields of a file.
type Fields = Map<String, Value>;

/// The document of one file.
#[derive(Debug)]
pub struct Document {
    /// The file, for errors.
    name: String,
    fields: Fields,
}

impl Document {
    /// Parses the content of the file `name`.
    pub fn parse(name: String, bytes: &[u8]) -> Result<Self, String> {
        match fields(bytes) {
            Ok(fields) => Ok(Self { name, fields }),
            Err(why) => Err(format!("{name}: {why}")),
        }
    }

    /// Makes each relative path a path below `folder`, the folder of the file. As in the kubelet,
    /// only the file of `--config` gets this: `pkg/kubelet/kubeletconfig/configfiles` resolves the
    /// paths of `Load`, and not those of the drop-ins of `LoadIntoJSON`.
    #[must_use]
    pub fn with_paths_below(mut self, folder: &Path) -> Self {
        for setting in SETTINGS.iter().filter(|setting| matches!(setting.kind, Kind::Path(_))) {
            let mut names = setting.field.split('.');
            let top = names.next().and_then(|name| self.fields.get_mut(name));
            let value = top.and_then(|top| names.try_fold(top, |value, name| value.get_mut(name)));
            if let Some(Value::String(path)) = value
                && !path.is_empty()
            {
                *path = folder.join(&*path).display().to_string();
            }
        }
        self
    }
}

fn fields(bytes: &[u8]) -> Result<Fields, String> {
    let text = str::from_utf8(bytes).map_err(|_| "not UTF-8 text")?;
    let document = yaml::parse(text).map_err(|why| why.to_string())?;
    for (key, want) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let is = object::text(&document, &[key]);
        if document.is_object() && is != want {
            return Err(format!("{key} is {is:?}; a kubelet configuration has {key}: {want}"));
        }
    }
    match document {
        Value::Object(fields) => Ok(fields),
        _ => Err("not a kubelet configuration: no mapping at the top".to_owned()),
    }
}

/// Applies the document of `--config`, if there is one, with the documents of `--config-dir` merged
/// into it. An error names the last file that causes it.
pub fn apply(
    base: Option<&Document>,
    drop_ins: &[Document],
    flags: &mut Flags,
) -> Result<(), String> {
    apply_document(&merged(base, drop_ins), flags).map_err(|all| {
        let own = |document: &Document| {
            let why = apply_document(&document.fields, &mut Flags::default()).err()?;
            Some(format!("{}: {why}", document.name))
        };
        drop_ins.iter().rev().chain(base).find_map(own).unwrap_or(all)
    })
}

/// The documents as `cmd/kubelet/app/server.go` merges them: `loadConfigFile` sets the defaults in
/// the document of `--config`. `mergeKubeletConfigurations` applies the drop-ins to it as JSON
/// merge patches, and sets the defaults again.
fn merged(base: Option<&Document>, drop_ins: &[Document]) -> Fields {
    let mut fields = base.map(|document| document.fields.clone()).unwrap_or_default();
    let sets_thresholds = drop_ins.iter().any(|document| document.fields.contains_key(HARD));
    let mut needs_defaults = fields.get(MERGE) == Some(&Value::Bool(true));
    if base.is_some() && sets_thresholds && is_unset(&fields, HARD) {
        fields.insert(HARD.to_owned(), Value::Object(Fields::new()));
        needs_defaults = true;
    }
    if let (true, Some(Value::Object(given))) = (needs_defaults, fields.get_mut(HARD)) {
        for (signal, amount) in thresholds::defaults() {
            given.entry(signal).or_insert(amount.into());
        }
    }
    set_report(&mut fields);
    if drop_ins.is_empty() {
        return fields;
    }
    for (key, default) in [(UPDATE, "10s"), (REPORT, "5m")] {
        if is_unset(&fields, key) {
            fields.insert(key.to_owned(), default.into());
        }
    }
    for document in drop_ins {
        merge(&mut fields, &document.fields);
    }
    set_report(&mut fields);
    if sets_thresholds {
        // If a null has removed the field, an empty map takes its place: the default thresholds are
        // not set again.
        fields.entry(HARD).or_insert_with(|| Value::Object(Fields::new()));
    }
    fields
}

/// RFC 7386. The parser bounds the depth.
fn merge(fields: &mut Fields, patch: &Fields) {
    for (key, value) in patch {
        match (fields.get_mut(key), value) {
            (_, Value::Null) => {
                fields.remove(key);
            }
            (Some(Value::Object(fields)), Value::Object(patch)) => merge(fields, patch),
            (_, Value::Object(patch)) => {
                let mut new = Fields::new();
                merge(&mut new, patch);
                fields.insert(key.clone(), new.into());
            }
            _ => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Whether a field has no value, or is a duration of zero, for which the default is used.
fn is_unset(fields: &Fields, key: &str) -> bool {
    match fields.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => parse_duration(text).is_ok_and(|period| period.is_zero()),
        Some(_) => false,
    }
}

/// Without a report frequency, it is the update frequency: "for backward compatibility" in
/// `pkg/kubelet/apis/config/v1beta1/defaults.go`.
fn set_report(fields: &mut Fields) {
    if is_unset(fields, REPORT)
        && !is_unset(fields, UPDATE)
        && let Some(Value::String(text)) = fields.get(UPDATE)
        && let Ok(update) = parse_duration(text)
    {
        let least = || format!("{}s", SHORTEST_REPORT.as_secs());
        let report = if update < SHORTEST_REPORT { least() } else { text.clone() };
        fields.insert(REPORT.to_owned(), report.into());
    }
}

/// Applies the fields of a document.
fn apply_document(fields: &Fields, flags: &mut Flags) -> Result<(), String> {
    let mut errors = Vec::new();
    apply_fields("", fields, flags, &mut errors);
    if !matches!(fields.get(MERGE), None | Some(Value::Null | Value::Bool(_))) {
        errors.push(format!("{MERGE} is neither true nor false"));
    }
    aggregate(errors)
}

/// Applies the fields of one mapping, whose own name is in `prefix` with a dot.
fn apply_fields(prefix: &str, fields: &Fields, flags: &mut Flags, errors: &mut Vec<String>) {
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
            // A name with a dot in it is no path to a nested field.
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
                "apiVersion" | "kind" | MERGE => {}
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

fn strings(map: &Fields) -> Result<Pairs, String> {
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
    let text = |key: &str| match object::at(value, &[key]) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!(".{key} is not a string; put it in quotes")),
    };
    Ok(Taint { key: text("key")?, value: text("value")?, effect: text("effect")? })
}

#[cfg(test)]
mod tests;
