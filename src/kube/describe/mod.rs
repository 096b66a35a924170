//! Prints a Node in the layout of `kubectl describe node`.
//!
//! The sections that need a server are omitted: lease, pods, events. Members of an object are
//! sorted by serde_json. As in Go's tabwriter, a column is as wide as its widest cell in adjacent
//! lines, plus two. Upstream: `staging/src/k8s.io/kubectl/pkg/describe/describe.go`, describeNode.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::kube::object;
use crate::kube::time::Wall;

/// kubectl's text for an empty list.
const NONE: &str = "<none>";
/// kubectl's text for a missing time.
const UNSET: &str = "<unset>";

const ROLE: &str = "node-role.kubernetes.io/";
/// The older label; its value is the role.
const OLD_ROLE: &str = "kubernetes.io/role";

/// Titles and members of `status.nodeInfo`, in kubectl's order.
const SYSTEM_INFO: [(&str, &str); 10] = [
    ("Machine ID", "machineID"),
    ("System UUID", "systemUUID"),
    ("Boot ID", "bootID"),
    ("Kernel Version", "kernelVersion"),
    ("OS Image", "osImage"),
    ("Operating System", "operatingSystem"),
    ("Architecture", "architecture"),
    ("Container Runtime Version", "containerRuntimeVersion"),
    ("Kubelet Version", "kubeletVersion"),
    ("Kube-Proxy Version", "kubeProxyVersion"),
];

/// The text of `node`, with a newline at its end.
pub fn node(node: &Value) -> String {
    let mut page = Page::default();
    about(&mut page, node);
    conditions(&mut page, object::list(node, &["status", "conditions"]));
    page.title("Addresses:");
    for address in object::list(node, &["status", "addresses"]) {
        let kind = object::text(address, &["type"]);
        page.pair(&format!("  {kind}"), object::text(address, &["address"]).to_owned());
    }
    for (title, key) in [("Capacity:", "capacity"), ("Allocatable:", "allocatable")] {
        resources(&mut page, title, object::at(node, &["status", key]));
    }
    page.title("System Info:");
    for (title, key) in SYSTEM_INFO {
        let value = object::text(node, &["status", "nodeInfo", key]);
        page.pair(&format!("  {title}"), value.to_owned());
    }
    let provider = object::text(node, &["spec", "providerID"]);
    if !provider.is_empty() {
        page.pair("ProviderID", provider.to_owned());
    }
    page.text()
}

fn about(page: &mut Page, node: &Value) {
    let labels = pairs(node, "labels");
    page.pair("Name", object::text(node, &["metadata", "name"]).to_owned());
    page.list("Roles", roles(&labels).as_slice());
    let lines: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    page.list("Labels", &lines);
    let annotations = pairs(node, "annotations");
    let lines: Vec<String> = annotations.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    page.list("Annotations", &lines);
    page.pair("CreationTimestamp", time(node, &["metadata", "creationTimestamp"]));
    let mut taints: Vec<&Value> = object::list(node, &["spec", "taints"]).iter().collect();
    taints.sort_by_key(|taint| (object::text(taint, &["effect"]), object::text(taint, &["key"])));
    let lines: Vec<String> = taints.into_iter().map(taint).collect();
    page.list("Taints", &lines);
    let unschedulable = object::at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
    page.pair("Unschedulable", unschedulable.to_string());
}

/// Labels or annotations, sorted by key. Values that are not strings are omitted.
fn pairs<'a>(node: &'a Value, key: &str) -> Vec<(&'a str, &'a str)> {
    let Some(Value::Object(members)) = object::at(node, &["metadata", key]) else {
        return Vec::new();
    };
    members.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// One line with all role names, or no line.
fn roles<'a>(labels: &[(&'a str, &'a str)]) -> Vec<String> {
    let role = |(key, value): &(&'a str, &'a str)| match key.strip_prefix(ROLE) {
        Some(role) => Some(role),
        None => (*key == OLD_ROLE).then_some(*value),
    };
    let roles: BTreeSet<&str> = labels.iter().filter_map(role).collect();
    let roles: Vec<&str> = roles.into_iter().filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { Vec::new() } else { vec![roles.join(",")] }
}

/// `key=value:effect`, as for `--register-with-taints`.
fn taint(taint: &Value) -> String {
    let [key, value, effect] = ["key", "value", "effect"].map(|name| object::text(taint, &[name]));
    match (value, effect) {
        ("", "") => key.to_owned(),
        ("", _) => format!("{key}:{effect}"),
        (_, "") => format!("{key}={value}:"),
        _ => format!("{key}={value}:{effect}"),
    }
}

fn conditions(page: &mut Page, conditions: &[Value]) {
    if conditions.is_empty() {
        return;
    }
    const TITLES: [&str; 6] =
        ["Type", "Status", "LastHeartbeatTime", "LastTransitionTime", "Reason", "Message"];
    page.title("Conditions:");
    page.condition(TITLES.map(str::to_owned), "");
    page.condition(TITLES.map(|title| "-".repeat(title.len())), "");
    for condition in conditions {
        let text = |key| object::text(condition, &[key]).to_owned();
        let row = [
            text("type"),
            text("status"),
            time(condition, &["lastHeartbeatTime"]),
            time(condition, &["lastTransitionTime"]),
            text("reason"),
            text("message"),
        ];
        // kubectl writes a space before the tab, except in the lines of titles.
        page.condition(row, " ");
    }
}

fn resources(page: &mut Page, title: &str, resources: Option<&Value>) {
    let Some(Value::Object(resources)) = resources else {
        return;
    };
    if !resources.is_empty() {
        page.title(title);
    }
    for name in resources.keys() {
        page.pair(&format!("  {name}"), amount(resources, name));
    }
}

/// The quantity in its canonical form, as a server stores it.
fn amount(resources: &Map<String, Value>, name: &str) -> String {
    match object::quantity(resources, name) {
        Some(quantity) => quantity.to_string(),
        None => resources.get(name).and_then(Value::as_str).unwrap_or_default().to_owned(),
    }
}

/// A time in kubectl's format, but always in UTC, where kubectl prints its local time. [`UNSET`] if
/// there is no text, or a text that is no time.
fn time(object: &Value, path: &[&str]) -> String {
    let wall = Wall::parse(object::text(object, path));
    wall.map_or_else(|| UNSET.to_owned(), Wall::rfc1123)
}

/// Lines of cells. A line of one cell is a title; columns do not extend across it.
#[derive(Default)]
struct Page {
    lines: Vec<Vec<String>>,
}

impl Page {
    fn title(&mut self, title: &str) {
        self.lines.push(vec![title.to_owned()]);
    }

    fn pair(&mut self, name: &str, value: String) {
        self.lines.push(vec![format!("{name}:"), value]);
    }

    /// A name in the first line, and one value on each line.
    fn list(&mut self, name: &str, values: &[String]) {
        let Some((first, others)) = values.split_first() else {
            return self.pair(name, NONE.to_owned());
        };
        self.pair(name, first.clone());
        for value in others {
            self.lines.push(vec![String::new(), value.clone()]);
        }
    }

    fn condition(&mut self, mut cells: [String; 6], after: &str) {
        let [kind, others @ .., _message] = &mut cells;
        *kind = format!("  {kind}{after}");
        others.iter_mut().for_each(|cell| cell.push_str(after));
        self.lines.push(cells.into());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for block in self.lines.chunk_by(|a, b| a.len() > 1 && b.len() > 1) {
            for line in block {
                for (column, cell) in line.iter().enumerate() {
                    text.push_str(cell);
                    if column + 1 < line.len() {
                        let spaces = width(block, column) + 2 - cell.chars().count();
                        text.extend(std::iter::repeat_n(' ', spaces));
                    }
                }
                text.push('\n');
            }
        }
        // Escapes control characters of foreign text, in kubectl's notation.
        text.replace('\x1b', "^[").replace('\r', "\\r")
    }
}

/// The width of a column. The last cell of a line does not count.
fn width(block: &[Vec<String>], column: usize) -> usize {
    let ended = block.iter().filter(|line| column + 1 < line.len());
    ended.filter_map(|line| Some(line.get(column)?.chars().count())).max().unwrap_or(0)
}

#[cfg(test)]
mod tests;
