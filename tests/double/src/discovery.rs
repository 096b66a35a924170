//! What the server says it has: its recorded answers to kubectl, and its version.

use serde_json::{Value, json};

/// Media type of aggregated discovery.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Aggregated discovery of `/api` or `/apis`.
pub(crate) fn aggregated(path: &str) -> Value {
    let recorded: Value =
        serde_json::from_str(include_str!("../../recordings/kubectl.json")).expect("JSON");
    let mut steps = recorded["steps"].as_array().expect("steps").iter();
    let is_asked = |step: &&Value| step["request"]["path"] == format!("{path}?timeout=32s");
    steps.find(is_asked).expect("a step")["response"]["body"].clone()
}

/// `/version`.
pub(crate) fn version() -> Value {
    json!({"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.2",
        "gitCommit": "$Format:%H$", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64"})
}
