//! What the server says it has: aggregated discovery, the older lists, and its version.

use serde_json::{Value, json};

const ALL: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

struct Sub(
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

struct Resource {
    group: &'static str,
    name: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    subs: &'static [Sub],
}

const GPU: &[&str] = &["get", "patch", "update"];
const CDGPU: &[&str] = &["create", "delete", "get", "patch", "update"];

static RESOURCES: [Resource; 7] = [
    Resource {
        group: "",
        name: "events",
        singular: "event",
        kind: "Event",
        namespaced: true,
        short: &["ev"],
        categories: &[],
        subs: &[],
    },
    Resource {
        group: "",
        name: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        namespaced: false,
        short: &["ns"],
        categories: &[],
        subs: &[
            Sub("finalize", "", "Namespace", &["update"]),
            Sub("status", "", "Namespace", GPU),
        ],
    },
    Resource {
        group: "",
        name: "nodes",
        singular: "node",
        kind: "Node",
        namespaced: false,
        short: &["no"],
        categories: &[],
        subs: &[
            Sub("proxy", "", "NodeProxyOptions", CDGPU),
            Sub("status", "", "Node", GPU),
        ],
    },
    Resource {
        group: "",
        name: "pods",
        singular: "pod",
        kind: "Pod",
        namespaced: true,
        short: &["po"],
        categories: &["all"],
        subs: &[
            Sub("attach", "", "PodAttachOptions", &["create", "get"]),
            Sub("binding", "", "Binding", &["create"]),
            Sub("ephemeralcontainers", "", "Pod", GPU),
            Sub("eviction", "policy", "Eviction", &["create"]),
            Sub("exec", "", "PodExecOptions", &["create", "get"]),
            Sub("log", "", "Pod", &["get"]),
            Sub(
                "portforward",
                "",
                "PodPortForwardOptions",
                &["create", "get"],
            ),
            Sub("proxy", "", "PodProxyOptions", CDGPU),
            Sub("resize", "", "Pod", GPU),
            Sub("status", "", "Pod", GPU),
        ],
    },
    Resource {
        group: "events.k8s.io",
        name: "events",
        singular: "event",
        kind: "Event",
        namespaced: true,
        short: &["ev"],
        categories: &[],
        subs: &[],
    },
    Resource {
        group: "certificates.k8s.io",
        name: "certificatesigningrequests",
        singular: "certificatesigningrequest",
        kind: "CertificateSigningRequest",
        namespaced: false,
        short: &["csr"],
        categories: &[],
        subs: &[
            Sub("approval", "", "CertificateSigningRequest", GPU),
            Sub("status", "", "CertificateSigningRequest", GPU),
        ],
    },
    Resource {
        group: "coordination.k8s.io",
        name: "leases",
        singular: "lease",
        kind: "Lease",
        namespaced: true,
        short: &[],
        categories: &[],
        subs: &[],
    },
];

const GROUPS: [&str; 3] = [
    "events.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
];

/// Media type of aggregated discovery.
pub(crate) const AGGREGATED: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Aggregated discovery of `/api` or `/apis`.
pub(crate) fn aggregated(core: bool) -> Value {
    let groups: &[&str] = if core { &[""] } else { &GROUPS };
    let items: Vec<Value> = groups.iter().map(|group| {
        let resources: Vec<Value> = RESOURCES.iter().filter(|r| r.group == *group).map(aggregated_resource).collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
        json!({"metadata": metadata, "versions": [{"version": "v1", "resources": resources, "freshness": "Current"}]})
    }).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let verbs: Vec<&str> = if resource.name == "namespaces" {
        ALL.into_iter()
            .filter(|v| *v != "deletecollection")
            .collect()
    } else {
        ALL.to_vec()
    };
    let mut value = json!({
        "resource": resource.name,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs,
    });
    for (key, list) in [
        ("shortNames", resource.short),
        ("categories", resource.categories),
    ] {
        if !list.is_empty() {
            value[key] = json!(list);
        }
    }
    if !resource.subs.is_empty() {
        value["subresources"] = resource.subs.iter().map(|Sub(name, group, kind, verbs)| {
            let version = if group.is_empty() { "" } else { "v1" };
            json!({"subresource": name, "responseKind": {"group": group, "version": version, "kind": kind}, "verbs": verbs})
        }).collect();
    }
    value
}

/// Discovery as it was before aggregation; `None` where there is no such path.
pub(crate) fn plain(path: &str, server: &str) -> Option<Value> {
    let group_entry = |group: &str| {
        let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
        json!({"name": group, "versions": [version], "preferredVersion": version})
    };
    match path {
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server}]})),
        "/apis" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1",
            "groups": GROUPS.iter().map(|g| group_entry(g)).collect::<Vec<_>>()})),
        "/api/v1" => Some(resource_list("", "v1")),
        _ => {
            let group = path.strip_prefix("/apis/")?;
            let (group, version) = group.split_once('/').unwrap_or((group, ""));
            if !GROUPS.contains(&group) {
                return None;
            }
            match version {
                "" => {
                    let mut entry = group_entry(group);
                    entry["kind"] = json!("APIGroup");
                    entry["apiVersion"] = json!("v1");
                    Some(entry)
                }
                "v1" => Some(resource_list(group, &format!("{group}/v1"))),
                _ => None,
            }
        }
    }
}

fn resource_list(group: &str, group_version: &str) -> Value {
    let mut all = Vec::new();
    for r in RESOURCES.iter().filter(|r| r.group == group) {
        all.push(json!({"name": r.name, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind,
            "verbs": ALL, "shortNames": r.short}));
        for Sub(name, _, kind, verbs) in r.subs {
            all.push(json!({"name": format!("{}/{name}", r.name), "singularName": "", "namespaced": r.namespaced,
                "kind": kind, "verbs": verbs}));
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all})
}

/// `/version`.
pub(crate) fn version() -> Value {
    json!({"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.2",
        "gitCommit": "$Format:%H$", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64"})
}
