//! Field and label selectors: `=`, `==`, `!=`.

use serde_json::Value;

/// Which objects are meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    /// Path, value, and whether it must be equal.
    fields: Vec<(String, String, bool)>,
    labels: Vec<(String, String, bool)>,
}

impl Selector {
    pub(crate) fn parse(fields: &str, labels: &str) -> Self {
        Self { fields: terms(fields), labels: terms(labels) }
    }

    /// The one name that is asked for, if so.
    pub(crate) fn name(&self) -> Option<String> {
        self.value_of("metadata.name").map(str::to_owned)
    }

    /// What a field must be equal to.
    pub(crate) fn value_of(&self, field: &str) -> Option<&str> {
        let mut terms = self.fields.iter();
        let term = terms.find(|(path, _, equal)| path == field && *equal);
        term.map(|(_, value, _)| value.as_str())
    }

    /// The first field that is none of `supported`.
    pub(crate) fn unsupported(&self, supported: &[&str]) -> Option<&str> {
        let mut paths = self.fields.iter().map(|(path, ..)| path.as_str());
        paths.find(|path| !supported.contains(path))
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let field = |path: &str| {
            let found = path.split('.').try_fold(object, |at, step| at.get(step));
            found.and_then(Value::as_str).unwrap_or("").to_owned()
        };
        let label = |key: &str| object["metadata"]["labels"][key].as_str().unwrap_or("").to_owned();
        self.fields.iter().all(|(path, value, equal)| (field(path) == *value) == *equal)
            && self.labels.iter().all(|(key, value, equal)| (label(key) == *value) == *equal)
    }
}

fn terms(text: &str) -> Vec<(String, String, bool)> {
    let term = |t: &str| {
        let (key, value, equal) = if let Some((key, value)) = t.split_once("!=") {
            (key, value, false)
        } else {
            let (key, value) = t.split_once('=')?;
            (key, value.strip_prefix('=').unwrap_or(value), true)
        };
        Some((key.to_owned(), value.to_owned(), equal))
    };
    text.split(',').filter_map(term).collect()
}
