//! One mapping of a kubeconfig, with its name in errors.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::find::find;
use crate::files::read::read;
use crate::wire::api_config::Pem;

/// One mapping of a kubeconfig.
pub(super) struct Section<'a> {
    /// The path in the document, `users[pi].user`; empty for the top.
    pub(super) name: String,
    pub(super) map: &'a Map<String, Value>,
    /// For relative paths, see [`find`].
    pub(super) folders: &'a [&'a Path],
}

impl<'a> Section<'a> {
    pub(super) fn new(name: &str, value: &'a Value) -> Result<Self, String> {
        match value {
            Value::Object(map) => Ok(Self {
                name: name.into(),
                map,
                folders: &[],
            }),
            _ if name.is_empty() => Err("not a kubeconfig: no mapping at the top".into()),
            _ => Err(format!("{name} is not a mapping")),
        }
    }

    /// `<field>-data`, or else the file that `<field>` names.
    pub(super) fn pem(&self, field: &str) -> Result<Option<Pem>, String> {
        let data_field = format!("{field}-data");
        if let Some(data) = self.text(&data_field)? {
            let source = format!("{}.{data_field}", self.name);
            let base64: Vec<u8> = data.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
            // The decoder's error would quote bytes of a private key.
            let bytes = STANDARD
                .decode(base64)
                .map_err(|_| format!("{source}: not base64"))?;
            return Ok(Some(Pem {
                file: None,
                source,
                bytes,
            }));
        }
        let Some(path) = self.text(field)? else {
            return Ok(None);
        };
        let path = self.file(path);
        let source = path.display().to_string();
        let bytes = read(&path).map_err(|e| format!("{}.{field} {source}: {e}", self.name))?;
        Ok(Some(Pem {
            file: Some(path),
            source,
            bytes,
        }))
    }

    /// The file that a field names.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        find(Path::new(path), self.folders)
    }

    /// The entry of `list` with the name `wanted`; `by` names the referring field in an error.
    pub(super) fn named(
        &self,
        list: &str,
        item: &str,
        wanted: &str,
        by: &str,
    ) -> Result<Section<'a>, String> {
        let entries = self.map.get(list).and_then(Value::as_array);
        let has_name = |entry: &&Value| entry.get("name").and_then(Value::as_str) == Some(wanted);
        let Some(entry) = entries.and_then(|entries| entries.iter().find(has_name)) else {
            let known = self.names(list).join(", ");
            return Err(format!(
                "{by} names {wanted:?}, which is not in {list}; there is: {known}"
            ));
        };
        Section::new(
            &format!("{list}[{wanted}].{item}"),
            entry.get(item).unwrap_or(&Value::Null),
        )
    }

    /// As in client-go, a name may occur once in a list (`tools/clientcmd/api/v1` conversion.go).
    pub(super) fn unique(&self, list: &str) -> Result<(), String> {
        let mut names = self.names(list);
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        match pairs.find(|(one, next)| one == next) {
            Some((name, _)) => Err(format!("{list}: duplicate name {name:?} in list")),
            None => Ok(()),
        }
    }

    pub(super) fn names(&self, list: &str) -> Vec<&'a str> {
        let entries = self
            .map
            .get(list)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        entries
            .filter_map(|entry| entry.get("name")?.as_str())
            .collect()
    }

    /// A string field. An empty string counts as absent, as in Go.
    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, String> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!(
                "{} is not a string; put it in quotes",
                self.path(field)
            )),
        }
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, String> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(format!("{} is neither true nor false", self.path(field))),
        }
    }

    pub(super) fn refuse(&self, fields: &[&str]) -> Result<(), String> {
        let set = |field: &&&str| match self.map.get(**field) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        match fields.iter().find(set) {
            Some(field) => Err(format!("{} is not supported; remove it", self.path(field))),
            None => Ok(()),
        }
    }

    fn path(&self, field: &str) -> String {
        match self.name.as_str() {
            "" => field.to_owned(),
            name => format!("{name}.{field}"),
        }
    }
}
