//! `systemd/monitoring`: the alert rules, their tests, and the dashboard.
//!
//! `systemd/monitoring/rules_test.yaml` tests what the rules do; `tests/documents.rs` runs it.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use nodelet::files::yaml;
use serde_json::{Value, json};

use support::{Folder, skip};

/// The series of kube-state-metrics that the rules may use: those that it exposes by default
/// (docs/metrics/cluster there).
const EXPOSED: [&str; 3] = [
    "kube_lease_renew_time",
    "kube_node_info",
    "kube_node_status_condition",
];

/// The conditions of a board besides Ready; each but the pressures has an alert of its own.
const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];
const PROBLEMS: [&str; 8] = [
    "ReadonlyFilesystem",
    "FilesystemCorruptionProblem",
    "StorageWornOut",
    "UnderVoltage",
    "ThermalThrottling",
    "KernelDeadlock",
    "NTPProblem",
    "FrequentReboot",
];

fn text(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/monitoring");
    fs::read_to_string(folder.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn string<'a>(value: &'a Value, key: &str) -> &'a str {
    let found = value[key].as_str();
    found.unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// The rules that have `kind`, `record` or `alert`.
fn rules(kind: &str) -> Vec<Value> {
    let file = yaml::parse(&text("rules.yaml")).unwrap();
    let all = list(&file, "groups").iter().flat_map(|g| list(g, "rules"));
    all.filter(|rule| rule[kind].is_string()).cloned().collect()
}

fn names(kind: &str) -> BTreeSet<String> {
    let rules = rules(kind);
    let names: BTreeSet<String> = rules.iter().map(|r| string(r, kind).to_owned()).collect();
    assert_eq!(names.len(), rules.len(), "two rules of one name");
    names
}

/// The words of an expression that can only be series: no PromQL keyword begins like these.
fn series(expression: &str) -> BTreeSet<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
    let words = expression.split(|c| !is_word(c));
    words
        .filter(|word| word.starts_with("kube_") || word.contains(':'))
        .collect()
}

/// Every series of the expression is exposed or recorded.
fn assert_known(expression: &str, recorded: &BTreeSet<String>) {
    let series = series(expression);
    assert!(!series.is_empty(), "no series in {expression}");
    for name in series {
        let known = EXPOSED.contains(&name) || recorded.contains(name);
        assert!(known, "nothing exposes {name}: {expression}");
    }
}

#[test]
fn each_rule_uses_series_that_exist() {
    let mut recorded = BTreeSet::new();
    let file = yaml::parse(&text("rules.yaml")).unwrap();
    for rule in list(&file, "groups").iter().flat_map(|g| list(g, "rules")) {
        // A group is evaluated in its order: a rule may use those before it.
        assert_known(string(rule, "expr"), &recorded);
        recorded.extend(rule["record"].as_str().map(str::to_owned));
    }
    assert!(recorded.contains("nodelet:board"), "{recorded:?}");
}

#[test]
fn each_alert_selects_boards_and_says_what_to_do() {
    for alert in rules("alert") {
        let name = string(&alert, "alert");
        assert!(string(&alert, "expr").contains("nodelet:"), "{name}");
        let severity = string(&alert["labels"], "severity");
        assert!(["warning", "critical"].contains(&severity), "{name}");
        for key in ["summary", "description"] {
            assert!(!string(&alert["annotations"], key).is_empty(), "{name}");
        }
    }
}

#[test]
fn each_condition_of_a_board_has_an_alert() {
    let alerts = rules("alert");
    let expressions: Vec<&str> = alerts.iter().map(|alert| string(alert, "expr")).collect();
    for condition in PROBLEMS {
        let selector = format!("nodelet:board_problem{{condition=\"{condition}\"}}");
        let own = expressions.iter().filter(|found| **found == selector);
        assert_eq!(own.count(), 1, "{condition}");
    }
    let pressures = PRESSURES.join("|");
    let selector = format!("nodelet:board_problem{{condition=~\"{pressures}\"}}");
    assert!(expressions.contains(&selector.as_str()), "{selector}");
}

#[test]
fn each_alert_fires_in_a_test_and_is_in_the_readme() {
    let tests = yaml::parse(&text("rules_test.yaml")).unwrap();
    let cases = list(&tests, "tests");
    let cases = cases.iter().flat_map(|test| list(test, "alert_rule_test"));
    let fired = cases.filter(|case| !list(case, "exp_alerts").is_empty());
    let fired: BTreeSet<String> = fired.map(|c| string(c, "alertname").to_owned()).collect();
    assert_eq!(fired, names("alert"));

    let readme = text("README.md");
    let cells = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells: BTreeSet<&str> = cells.filter_map(|line| line.split('`').next()).collect();
    let missing = names("alert").into_iter().filter(|name| {
        let short = name.trim_start_matches("Nodelet");
        !cells.contains(short)
    });
    let missing: Vec<String> = missing.collect();
    assert!(missing.is_empty(), "not in README.md: {missing:?}");
    let listed = cells.iter().filter(|cell| cell.contains("Board"));
    assert_eq!(listed.count(), names("alert").len(), "README.md: {cells:?}");
    for record in names("record") {
        assert!(cells.contains(record.as_str()), "README.md: no {record}");
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&text("dashboard.json")).unwrap()
}

/// The data source is a variable, because its name differs from Grafana to Grafana.
#[test]
fn the_dashboard_names_no_data_source() {
    let text = text("dashboard.json");
    let [types, uids] = [r#""type": "prometheus""#, r#""uid": "${datasource}""#];
    assert!(text.contains(types));
    assert_eq!(text.matches(types).count(), text.matches(uids).count());
}

fn expressions(dashboard: &Value) -> Vec<String> {
    let targets = list(dashboard, "panels")
        .iter()
        .flat_map(|p| list(p, "targets"));
    targets.map(|t| string(t, "expr").to_owned()).collect()
}

#[test]
fn the_dashboard_shows_series_that_exist() {
    let dashboard = dashboard();
    let recorded = names("record");
    let expressions = expressions(&dashboard);
    assert!(expressions.len() >= list(&dashboard, "panels").len());
    for expression in expressions {
        assert_known(&expression, &recorded);
        assert!(expression.contains("cluster=~\"$cluster\""), "{expression}");
    }
    for variable in list(&dashboard["templating"], "list") {
        if let Some(definition) = variable["definition"].as_str() {
            assert_known(definition, &recorded);
        }
    }
}

#[test]
fn the_panels_of_the_dashboard_fit_and_do_not_overlap() {
    let dashboard = dashboard();
    let version = dashboard["schemaVersion"].as_u64();
    assert!(version.is_some_and(|version| version >= 39), "{version:?}");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "panels") {
        let title = string(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|k| panel["gridPos"][k].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: its place");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} covers another panel");
        }
    }
    assert!(!ids.is_empty());
}

/// Prometheus parses the expressions of the dashboard: as rules, with the variable's default.
#[test]
fn prometheus_accepts_the_expressions_of_the_dashboard() {
    if !skip::has_tool("promtool") {
        return;
    }
    let rules = expressions(&dashboard()).into_iter().enumerate();
    let rules = rules.map(|(at, expression)| {
        let expression = expression.replace("$cluster", ".*");
        json!({"record": format!("panel:{at}"), "expr": expression})
    });
    let file = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    let folder = Folder::new("dashboard");
    // JSON is YAML.
    let path = folder.write("rules.yaml", file.to_string());
    let output = Command::new("promtool")
        .args(["check", "rules"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
