//! Tables: what `kubectl get` prints.

use crate::controllers::text;
use crate::kinds::Kind;
use crate::time;
use serde_json::{Value, json};

/// Columns of a kind; those behind the fifth are printed with `-o wide` alone.
fn columns(kind: &Kind) -> impl Iterator<Item = &'static str> {
    let names = match kind.kind {
        "Node" => {
            "Name Status Roles Age Version Internal-IP External-IP OS-Image Kernel-Version \
             Container-Runtime"
        }
        "Lease" => "Name Holder Age",
        _ => "Name Age",
    };
    names.split(' ')
}

/// The Table of some objects.
pub(crate) fn table(kind: &Kind, objects: &[Value], metadata: Value) -> Value {
    let column = |(index, name): (usize, &str)| {
        let format = if index == 0 { "name" } else { "" };
        let description = format!("{name} of the {}.", kind.kind);
        json!({"name": name, "type": "string", "format": format, "description": description,
            "priority": u8::from(index > 4)})
    };
    let row = |object| json!({"cells": cells(kind, object), "object": partial(object)});
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(kind).enumerate().map(column).collect::<Vec<_>>(),
        "rows": objects.iter().map(row).collect::<Vec<_>>()})
}

/// Metadata only.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

fn cells(kind: &Kind, object: &Value) -> Vec<String> {
    let name = text(object, "/metadata/name").to_owned();
    let age = time::age(&object["metadata"]["creationTimestamp"]);
    match kind.kind {
        "Node" => node_cells(object, name, age),
        "Lease" => vec![name, text(object, "/spec/holderIdentity").to_owned(), age],
        _ => vec![name, age],
    }
}

fn node_cells(node: &Value, name: String, age: String) -> Vec<String> {
    let list = |pointer: &str| {
        node.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let ready = list("/status/conditions").into_iter().find(|c| c["type"] == "Ready");
    let mut status = match ready {
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<&str> =
        labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    let address = |kind: &str| {
        let found = list("/status/addresses").into_iter().find(|a| a["type"] == kind);
        found.map_or("<none>".to_owned(), |a| text(&a, "/address").to_owned())
    };
    let info = |key: &str| match text(node, &format!("/status/nodeInfo/{key}")) {
        "" => "<unknown>".to_owned(),
        some => some.to_owned(),
    };
    let kernel = match text(node, "/status/nodeInfo/architecture") {
        "" => info("kernelVersion"),
        some => format!("{} ({some})", info("kernelVersion")),
    };
    vec![
        name,
        status,
        if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") },
        age,
        text(node, "/status/nodeInfo/kubeletVersion").to_owned(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        kernel,
        info("containerRuntimeVersion"),
    ]
}

/// What `kubectl get -o wide` prints of these objects; nothing without any.
pub(crate) fn print(kind: &Kind, objects: &[Value]) -> String {
    if objects.is_empty() {
        return String::new();
    }
    let names = columns(kind).map(str::to_uppercase);
    let mut lines = vec![names.collect::<Vec<String>>()];
    lines.extend(objects.iter().map(|object| cells(kind, object)));
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).filter_map(width).collect();
    let mut out = String::new();
    for line in &lines {
        let (last, others) = line.split_last().expect("columns");
        for (cell, width) in others.iter().zip(&widths) {
            out.push_str(&format!("{cell:width$}   "));
        }
        out.push_str(&format!("{last}\n"));
    }
    out
}
