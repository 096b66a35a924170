//! `systemd/monitoring`: the alert rules, their tests, and the dashboard.
//!
//! `systemd/monitoring/rules_test.yaml` tests what the rules do; `tests/documents.rs` runs it.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use nodelet::health::KINDS;
use nodelet::kube::yaml;
use serde_json::{Value, json};

use support::{Folder, skip};

/// The series of kube-state-metrics that the rules may use: those that it exposes by default
/// (docs/metrics/cluster there).
/// ALERTS is Prometheus' own.
const EXPOSED: [&str; 4] =
    ["ALERTS", "kube_lease_renew_time", "kube_node_info", "kube_node_status_condition"];

/// The conditions of a board besides Ready; each but the pressures has an alert of its own.
const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// A condition of clouds, about the routes of pods, which has no alert.
const OF_CLOUDS: &str = "NetworkUnavailable";

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
    let is_series =
        |word: &&str| word.starts_with("kube_") || word.contains(':') || *word == "ALERTS";
    words.filter(is_series).collect()
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
        // `rules_test.yaml` has a restart of kube-state-metrics.
        assert_eq!(string(&alert, "keep_firing_for"), "5m", "{name}");
    }
}

#[test]
fn each_condition_of_a_board_has_one_alert() {
    let alerts = rules("alert");
    let expressions: Vec<&str> = alerts.iter().map(|alert| string(alert, "expr")).collect();
    let own = |selector: &str| {
        let selector = format!("nodelet:board_problem{{{selector}}}");
        expressions.iter().filter(|found| found.contains(&selector)).count()
    };
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    for condition in &kinds {
        assert_eq!(own(&format!("condition=\"{condition}\"")), 1, "{condition}");
    }
    let pressures = PRESSURES.join("|");
    assert_eq!(own(&format!("condition=~\"{pressures}\"")), 1);
    let known = [pressures.as_str(), OF_CLOUDS, &kinds.join("|")].join("|");
    assert_eq!(own(&format!("condition!~\"{known}\"")), 1, "all others: {known}");
}

#[test]
fn each_alert_fires_in_a_test_and_is_in_the_readme() {
    let tests = yaml::parse(&text("rules_test.yaml")).unwrap();
    let cases = list(&tests, "tests");
    let cases = cases.iter().flat_map(|test| list(test, "alert_rule_test"));
    let fired = cases.filter(|case| !list(case, "exp_alerts").is_empty());
    let fired: BTreeSet<String> = fired.map(|c| string(c, "alertname").to_owned()).collect();
    let alerts = names("alert");
    let unequal: Vec<&String> = fired.symmetric_difference(&alerts).collect();
    assert!(unequal.is_empty(), "{unequal:?}: add an alert_rule_test to rules_test.yaml");

    let readme = text("README.md");
    let cells = readme.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells: BTreeSet<&str> = cells.filter_map(|line| line.split('`').next()).collect();
    let listed: BTreeSet<&str> = cells.iter().copied().filter(|c| c.contains("Board")).collect();
    let alerts = alerts.iter().map(|name| name.trim_start_matches("Nodelet"));
    assert_eq!(listed, alerts.collect(), "README.md");
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
    let targets = list(dashboard, "panels").iter().flat_map(|p| list(p, "targets"));
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
    let (mut ids, mut titles, mut taken) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "panels") {
        let title = string(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id");
        assert!(titles.insert(title), "two panels: {title}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|k| panel["gridPos"][k].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= 24, "{title}: its place");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{title} covers another panel");
        }
    }
    assert!(!ids.is_empty());
}

/// The expression, with what Grafana puts in for its variables.
fn filled_in(expression: &str) -> String {
    expression.replace("$cluster", ".*").replace("$__range", "24h")
}

/// Runs promtool on a file of JSON, which is YAML.
fn promtool(command: [&str; 2], folder: &Folder, file: &Value) {
    let path = folder.write("file.yaml", file.to_string());
    let output = Command::new("promtool").args(command).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn prometheus_accepts_the_expressions_of_the_dashboard() {
    if !skip::has_tool("promtool") {
        return;
    }
    let rules = expressions(&dashboard()).into_iter().enumerate();
    let rules = rules.map(
        |(at, expression)| json!({"record": format!("panel:{at}"), "expr": filled_in(&expression)}),
    );
    let file = json!({"groups": [{"name": "dashboard", "rules": rules.collect::<Vec<_>>()}]});
    promtool(["check", "rules"], &Folder::new("dashboard"), &file);
}

/// Two boards in trouble of three, and one that has recovered: what the panels show of them.
#[test]
fn the_panels_tell_which_board_has_what() {
    if !skip::has_tool("promtool") {
        return;
    }
    let boards = [
        ("fine", "1x20", "0x20"),
        ("back", "1x5 0x5 1x8", "0x20"),
        ("off", "1x5 0x15", "0x5 1x15"),
        ("unready", "0x20", "0x20"),
    ];
    let mut series = Vec::new();
    let mut add =
        |name: String, values: &str| series.push(json!({"series": name, "values": values}));
    for (node, ready, unknown) in boards {
        let version = "v1.36.2-nodelet.0.1.0";
        add(format!("kube_node_info{{node=\"{node}\",kubelet_version=\"{version}\"}}"), "1x20");
        for (kind, status, values) in [
            ("Ready", "true", ready),
            ("Ready", "unknown", unknown),
            // Of the silent board, it is old.
            ("UnderVoltage", "true", if node == "fine" { "0x20" } else { "1x20" }),
        ] {
            let labels = format!("node=\"{node}\",condition=\"{kind}\",status=\"{status}\"");
            add(format!("kube_node_status_condition{{{labels}}}"), values);
        }
    }
    let dashboard = dashboard();
    let test = |title: &str, samples: &[(&str, f64)]| {
        let panels = list(&dashboard, "panels");
        let panel = panels.iter().find(|panel| panel["title"] == title).unwrap();
        let expression = filled_in(string(&panel["targets"][0], "expr"));
        let samples =
            samples.iter().map(|(labels, value)| json!({"labels": labels, "value": value}));
        let samples: Vec<Value> = samples.collect();
        json!({"expr": expression, "eval_time": "15m", "exp_samples": samples})
    };
    let low =
        |node: &str| format!("nodelet:board_problem{{condition=\"UnderVoltage\",node=\"{node}\"}}");
    let ready = |node: &str| format!("{{condition=\"Ready\",node=\"{node}\"}}");
    let tests = [
        test(
            "Boards in trouble",
            &[
                (&low("back"), 1.0),
                (&low("unready"), 1.0),
                (&ready("unready"), 0.0),
                (&ready("off"), 2.0),
            ],
        ),
        test(
            "Boards that were not Ready",
            &[("{node=\"back\"}", 1.0), ("{node=\"unready\"}", 0.0), ("{node=\"off\"}", 2.0)],
        ),
        test("Ready", &[("{}", 0.5)]),
        test("Silent", &[("{}", 1.0)]),
        test("Not Ready", &[("{}", 1.0)]),
        test("Problems", &[("{}", 2.0)]),
        // Of voltage and of Ready.
        test("Alerts", &[("{}", 3.0)]),
    ];
    assert_eq!(list(&dashboard, "panels")[0]["title"], "Boards in trouble");
    let folder = Folder::new("panels");
    folder.write("rules.yaml", text("rules.yaml"));
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [
        {"interval": "1m", "input_series": series, "promql_expr_test": tests},
    ]});
    promtool(["test", "rules"], &folder, &file);
}
