//! Kubernetes' published schemas, where the folder with them is there.

use crate::kinds::Kind;
use serde_json::Value;
use std::path::Path;

/// `components.schemas` of an OpenAPI 3 document.
#[derive(Debug)]
pub(crate) struct Schemas(Value);

/// Where the schemas are expected, relative to the workspace.
pub(crate) const DEFAULT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../../shared/openapi/kubernetes-1.36-node.json"
);

impl Schemas {
    pub(crate) fn load(path: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(path).ok()?;
        let document: Value = serde_json::from_str(&text).ok()?;
        Some(Self(document["components"]["schemas"].clone()))
    }

    /// Everything that the schema of this kind does not allow.
    pub(crate) fn check(&self, kind: &Kind, object: &Value) -> Vec<String> {
        let name = match kind.group {
            "" => format!("io.k8s.api.core.v1.{}", kind.kind),
            group => format!(
                "io.k8s.api.{}.v1.{}",
                group.trim_end_matches(".k8s.io"),
                kind.kind
            ),
        };
        let mut found = Vec::new();
        self.walk(&self.0[&name], object, "", &mut found);
        found
    }

    fn walk(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(reference) = schema["$ref"].as_str() {
            let name = reference.rsplit('/').next().unwrap_or("");
            return self.walk(&self.0[name], value, path, found);
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.walk(part, value, path, found);
        }
        if let Some(choices) = schema["oneOf"].as_array() {
            let fits = |choice: &Value| {
                let mut wrong = Vec::new();
                self.walk(choice, value, path, &mut wrong);
                wrong.is_empty()
            };
            if !choices.iter().any(fits) {
                found.push(format!("{path}: none of the allowed types"));
            }
        }
        let right = match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_i64() || value.is_u64(),
            Some("number") => value.is_number(),
            _ => true,
        };
        // a Time may be null: Go writes its zero value so
        let null_time = value.is_null() && schema["format"] == "date-time";
        if !right && !null_time {
            found.push(format!("{path}: {value} is not of type {}", schema["type"]));
            return;
        }
        if schema["format"] == "date-time"
            && value
                .as_str()
                .is_some_and(|t| crate::time::parse_time(t).is_err())
        {
            found.push(format!("{path}: {value} is no time"));
        }
        if let Some(members) = value.as_object() {
            for needed in schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                if !members.contains_key(needed) {
                    found.push(format!("{path}: {needed} is missing"));
                }
            }
            for (name, inner) in members {
                let here = format!("{path}.{name}");
                let known = &schema["properties"][name];
                if known.is_object() {
                    self.walk(known, inner, &here, found);
                } else if schema["additionalProperties"].is_object() {
                    self.walk(&schema["additionalProperties"], inner, &here, found);
                } else if schema["properties"].is_object() {
                    found.push(format!("{here}: there is no such member"));
                }
            }
        }
        for (i, item) in value.as_array().into_iter().flatten().enumerate() {
            self.walk(&schema["items"], item, &format!("{path}[{i}]"), found);
        }
    }
}
