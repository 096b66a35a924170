//! Field and label selectors: `=`, `==`, `!=`.

use serde_json::Value;

/// Which objects are meant.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    fields: Vec<Term>,
    labels: Vec<Term>,
}

/// Path or key, value, and whether it must be equal.
type Term = (String, String, bool);

impl Selector {
    pub(crate) fn parse(fields: &str, labels: &str) -> Self {
        Self { fields: terms(fields), labels: terms(labels) }
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
        let field = |path: &str| path.split('.').try_fold(object, |at, step| at.get(step));
        let label = |key: &str| object["metadata"]["labels"].get(key);
        let holds = |found: Option<&Value>, (_, value, equal): &Term| {
            (found.and_then(Value::as_str).unwrap_or("") == value) == *equal
        };
        self.fields.iter().all(|term| holds(field(&term.0), term))
            && self.labels.iter().all(|term| holds(label(&term.0), term))
    }
}

fn terms(text: &str) -> Vec<Term> {
    let term = |term: &str| {
        let (key, value, equal) = match term.split_once("!=") {
            Some((key, value)) => (key, value, false),
            None => {
                let (key, value) = term.split_once('=')?;
                (key, value.strip_prefix('=').unwrap_or(value), true)
            }
        };
        Some((key.to_owned(), value.to_owned(), equal))
    };
    text.split(',').filter_map(term).collect()
}
