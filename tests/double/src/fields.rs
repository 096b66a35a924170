//! `metadata.managedFields`, by the rules of apimachinery `managedfields` and
//! structured-merge-diff. `tests/replay.rs` compares every entry with those of a real server.

use crate::http::Request;
use crate::kinds::Kind;
use crate::time;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Who writes: the manager's name, the kind and the subresource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) kind: &'a Kind,
    pub(crate) subresource: &'a str,
}

/// The manager's name: the User-Agent up to the first `/`.
pub(crate) fn manager(request: &Request) -> &str {
    let user_agent = request.header("user-agent").unwrap_or("");
    let name = user_agent.split('/').next().unwrap_or("");
    if name.is_empty() { "unknown" } else { name }
}

/// A field: its elements as `fieldsV1` writes them, such as `f:metadata`, `f:labels`.
type Path = Vec<String>;

/// The values of all fields. A map or a list is a field of its own, with the value null: it can be
/// absent. A Go struct cannot, and is none.
type Fields = BTreeMap<Path, Value>;

/// Objects that are structs in Go.
const STRUCTS: [&str; 7] =
    ["metadata", "spec", "status", "nodeInfo", "daemonEndpoints", "kubeletEndpoint", "source"];
/// Lists of objects with a key, and the key (`x-kubernetes-list-map-keys`).
const KEYED: [(&str, &str); 4] = [
    ("conditions", "type"),
    ("addresses", "type"),
    ("ownerReferences", "uid"),
    (CONTAINERS, "name"),
];
/// The list that cannot be absent.
const CONTAINERS: &str = "containers";
/// Lists of different texts (`x-kubernetes-list-type: set`).
const SETS: [&str; 2] = ["podCIDRs", "finalizers"];
/// Objects that are owned as a whole (`x-kubernetes-map-type: atomic`).
const ATOMIC: [&str; 2] = ["involvedObject", "ownerReferences"];
/// Metadata that nobody owns.
const STRIPPED: [&str; 8] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "generation",
];

/// Sets `new`'s managedFields from those of `old` and what changed.
pub(crate) fn track(old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let asked =
        new["metadata"].as_object_mut().and_then(|metadata| metadata.remove("managedFields"));
    let live = old.and_then(|old| old["metadata"]["managedFields"].as_array());
    let entries =
        if resets(asked.as_ref(), writer) { Vec::new() } else { live.cloned().unwrap_or_default() };
    // An update starts no tracking (skipNonAppliedManager), a create does whatever it asks for.
    if old.is_some() && entries.is_empty() {
        return;
    }
    let (before, after) = (old.map(fields).unwrap_or_default(), fields(new));
    let is_reset = |path: &Path| {
        let mut prefixes = ignored(writer).iter();
        prefixes.any(|prefix| path.iter().take(prefix.len()).eq(prefix.iter()))
    };
    let set: BTreeSet<Path> = after
        .iter()
        .filter(|(path, value)| before.get(*path) != Some(*value) && !is_reset(path))
        .map(|(path, _)| path.clone())
        .collect();
    let mut written = set.clone();
    let mut kept = Vec::new();
    for mut entry in entries {
        let mut owned = from_fields_v1(&entry["fieldsV1"]);
        owned.retain(|path| after.contains_key(path) || !before.contains_key(path));
        if is_of(&entry, writer) && !set.is_empty() {
            written.extend(owned);
            continue;
        }
        owned.retain(|path| !set.contains(path));
        if !owned.is_empty() {
            entry["fieldsV1"] = to_fields_v1(&owned);
            kept.push(entry);
        }
    }
    if !set.is_empty() {
        let mut entry = json!({"manager": writer.manager, "operation": "Update",
            "apiVersion": writer.kind.api_version(), "time": time::now(), "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(&written)});
        if !writer.subresource.is_empty() {
            entry["subresource"] = json!(writer.subresource);
        }
        kept.push(entry);
    }
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    kept.sort_by_key(|entry| ["time", "manager", "subresource"].map(|key| text(entry, key)));
    if !kept.is_empty() {
        new["metadata"]["managedFields"] = Value::Array(kept);
    }
}

/// Whether two objects differ in the times of their managedFields at most: such a write is not
/// stored.
pub(crate) fn is_unchanged(old: &Value, new: &Value) -> bool {
    is_equal(old, new, "metadata", |old, new| {
        is_equal(old, new, "managedFields", |old, new| match (old.as_array(), new.as_array()) {
            (Some(old), Some(new)) if old.len() == new.len() => {
                let mut entries = old.iter().zip(new);
                entries.all(|(old, new)| is_equal(old, new, "time", |_, _| true))
            }
            _ => old == new,
        })
    })
}

/// Whether two maps are equal, if `is_alike` says it of one member.
fn is_equal(
    old: &Value,
    new: &Value,
    member: &str,
    is_alike: impl Fn(&Value, &Value) -> bool,
) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    old.len() == new.len()
        && old.iter().all(|(name, old)| match new.get(name) {
            Some(new) if name == member => is_alike(old, new),
            new => new == Some(old),
        })
}

/// Whether this write clears managedFields, which a write of a subresource cannot.
fn resets(asked: Option<&Value>, writer: &Writer<'_>) -> bool {
    writer.subresource.is_empty() && asked == Some(&json!([{}]))
}

fn is_of(entry: &Value, writer: &Writer<'_>) -> bool {
    entry["manager"] == writer.manager
        && entry["apiVersion"] == writer.kind.api_version()
        && entry["subresource"].as_str().unwrap_or_default() == writer.subresource
}

/// What this endpoint does not set (each strategy's GetResetFields).
fn ignored(writer: &Writer<'_>) -> &'static [&'static [&'static str]] {
    match (writer.kind.kind, writer.subresource) {
        ("Node" | "Pod", "") => &[&["f:status"]],
        ("Pod", _) => &[&["f:spec"], &["f:metadata", "f:ownerReferences"]],
        ("CertificateSigningRequest", "") => &[&["f:spec"], &["f:status"]],
        ("Node" | "CertificateSigningRequest", _) => &[&["f:spec"]],
        _ => &[],
    }
}

fn fields(object: &Value) -> Fields {
    let (mut found, mut path) = (Fields::new(), Path::new());
    for (name, value) in object.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("kind" | "apiVersion", _) => {}
            ("metadata", Value::Object(metadata)) => {
                path.push("f:metadata".to_owned());
                for (name, value) in metadata {
                    if !STRIPPED.contains(&name.as_str()) {
                        add(&mut found, &mut path, name, value);
                    }
                }
                path.pop();
            }
            _ => add(&mut found, &mut path, name, value),
        }
    }
    found
}

/// Adds the member `name` of the field at `path`, and those below it.
fn add(found: &mut Fields, path: &mut Path, name: &str, value: &Value) {
    path.push(format!("f:{name}"));
    match value {
        Value::Null => {}
        Value::Object(members) if !ATOMIC.contains(&name) => {
            if !STRUCTS.contains(&name) {
                found.insert(path.clone(), Value::Null);
            }
            for (name, value) in members {
                add(found, path, name, value);
            }
        }
        Value::Array(items) if SETS.contains(&name) => {
            found.insert(path.clone(), Value::Null);
            for item in items {
                path.push(format!("v:{item}"));
                found.insert(path.clone(), Value::Null);
                path.pop();
            }
        }
        Value::Array(items) => match KEYED.iter().find(|(list, _)| *list == name) {
            Some((_, key)) => {
                if name != CONTAINERS {
                    found.insert(path.clone(), Value::Null);
                }
                for item in items {
                    path.push(format!("k:{}", json!({*key: item[*key]})));
                    add_item(found, path, name, item);
                    path.pop();
                }
            }
            None => drop(found.insert(path.clone(), value.clone())),
        },
        _ => drop(found.insert(path.clone(), value.clone())),
    }
    path.pop();
}

/// Adds the item at `path` of the list `name`, which has a key.
fn add_item(found: &mut Fields, path: &mut Path, name: &str, item: &Value) {
    if ATOMIC.contains(&name) {
        found.insert(path.clone(), item.clone());
        return;
    }
    found.insert(path.clone(), Value::Null);
    for (name, value) in item.as_object().into_iter().flatten() {
        add(found, path, name, value);
    }
}

/// The fields of an entry: `.` is the field itself, beside fields below it.
fn from_fields_v1(fields_v1: &Value) -> BTreeSet<Path> {
    fn collect(fields: &Value, path: &mut Path, found: &mut BTreeSet<Path>) {
        for (element, below) in fields.as_object().into_iter().flatten() {
            if element == "." {
                found.insert(path.clone());
                continue;
            }
            path.push(element.clone());
            if below == &json!({}) {
                found.insert(path.clone());
            } else {
                collect(below, path, found)
            }
            path.pop();
        }
    }
    let mut found = BTreeSet::new();
    collect(fields_v1, &mut Path::new(), &mut found);
    found
}

fn to_fields_v1(fields: &BTreeSet<Path>) -> Value {
    let mut root = Value::Object(Map::new());
    // A field comes before those below it.
    for path in fields {
        let mut at = &mut root;
        for (depth, element) in path.iter().enumerate() {
            if depth > 0 && fields.contains(&path[..depth].to_vec()) {
                at["."] = json!({});
            }
            at = &mut at[element];
            if at.is_null() {
                *at = json!({});
            }
        }
    }
    root
}
