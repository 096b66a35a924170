//! Stand-ins for kube-scheduler and three controllers, with the rules that labels and taints of boards
//! decide about. They prove that the scenarios do what they should; what a cluster does, only real
//! ones prove.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{PODS, accepted, judge, workloads};
use crate::common::api::is_ready;
use crate::common::cluster::Cluster;

#[derive(Default)]
pub(super) struct Controllers {
    /// The last eviction from a node: one each 10 s, by `--node-eviction-rate`.
    evicted: Cell<Option<Instant>>,
}

impl Controllers {
    /// One turn of each.
    pub(super) fn act(&self, cluster: &Cluster) {
        let list = |path: &str| cluster.list(path);
        let nodes = list("/api/v1/nodes");
        for set in list(&workloads::path("daemonset")) {
            keep_on_each_node(cluster, &set, &nodes, &list(PODS));
        }
        for deployment in list(&workloads::path("deployment")) {
            place_all(cluster, &deployment, &nodes, list(PODS));
        }
        self.evict(cluster, &nodes, &list(PODS));
    }

    /// Ends the pods of one silent node, as ComputeZoneState of node_lifecycle_controller.go allows
    /// it in a zone of at most 50 nodes.
    fn evict(&self, cluster: &Cluster, nodes: &[Value], pods: &[Value]) {
        let excluded = "node.kubernetes.io/exclude-disruption";
        let counted = nodes.iter().filter(|node| label(node, excluded).is_none());
        let (ready, silent): (Vec<&Value>, Vec<&Value>) = counted.partition(|node| is_ready(node));
        let all_are = ready.is_empty();
        let count = ready.len() + silent.len();
        let most_are = silent.len() > 2 && silent.len() * 100 >= count * 55;
        let pause = Duration::from_secs(10);
        let rests = self.evicted.get().is_some_and(|at| at.elapsed() < pause);
        if all_are || most_are || rests {
            return;
        }
        let of = |node: &Value| {
            let here = move |pod: &&Value| pod["spec"]["nodeName"] == node["metadata"]["name"];
            pods.iter().filter(here).collect::<Vec<_>>()
        };
        if let Some(pods) = silent.into_iter().map(of).find(|pods| !pods.is_empty()) {
            pods.into_iter().for_each(|pod| end(cluster, pod));
            self.evicted.set(Some(Instant::now()));
        }
    }
}

fn label<'a>(node: &'a Value, key: &str) -> Option<&'a str> {
    node["metadata"]["labels"][key].as_str()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Node selector and node affinity of a template.
fn selects(pod: &Value, node: &Value) -> bool {
    let selector = pod["nodeSelector"].as_object();
    let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                 /nodeSelectorTerms/0/matchExpressions";
    let required = items(pod.pointer(terms).unwrap_or(&Value::Null));
    let is_in = |term: &Value| {
        let label = label(node, term["key"].as_str().unwrap());
        items(&term["values"]).any(|value| label == value.as_str())
    };
    selector
        .into_iter()
        .flatten()
        .all(|(key, value)| label(node, key) == value.as_str())
        && required.into_iter().all(is_in)
}

/// Each NoSchedule taint is tolerated.
fn tolerates(pod: &Value, node: &Value) -> bool {
    let tolerated = |taint: &Value| {
        items(&pod["tolerations"]).any(|toleration| {
            let key = &toleration["key"];
            let effect = &toleration["effect"];
            let value = |of: &Value| of["value"].as_str().unwrap_or_default().to_owned();
            (key.is_null() || *key == taint["key"])
                && (effect.is_null() || effect == "NoSchedule")
                && (toleration["operator"] == "Exists" || value(toleration) == value(taint))
        })
    };
    let mut taints = items(&node["spec"]["taints"]);
    taints.all(|taint| taint["effect"] != "NoSchedule" || tolerated(taint))
}

fn bind(cluster: &Cluster, workload: &Value, name: &str, node: &str) -> Value {
    let app = judge::name(workload);
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app, "generation": generation(workload)}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    accepted(cluster.post(PODS, &pod))
}

fn generation(workload: &Value) -> String {
    workload["metadata"]["generation"].to_string()
}

fn end(cluster: &Cluster, pod: &Value) {
    let path = format!("{PODS}/{}", judge::name(pod));
    accepted(cluster.delete(&path, &json!({"gracePeriodSeconds": 0})));
}

/// A DaemonSet: a pod on each node that it selects and whose taints it tolerates. On a node without
/// a kubelet the pod is not available.
fn keep_on_each_node(cluster: &Cluster, set: &Value, nodes: &[Value], pods: &[Value]) {
    let template = &set["spec"]["template"]["spec"];
    let (mut desired, mut available) = (0, 0);
    for node in nodes {
        if !selects(template, node) || !tolerates(template, node) {
            continue;
        }
        desired += 1;
        available += u64::from(node["status"]["capacity"]["pods"] != "0");
        let name = format!("{}-{}", judge::name(set), judge::name(node));
        let old = pods.iter().find(|pod| judge::name(pod) == name);
        if old.is_some_and(|pod| label(pod, "generation") == Some(&generation(set))) {
            continue;
        }
        old.into_iter().for_each(|pod| end(cluster, pod));
        bind(cluster, set, &name, judge::name(node));
    }
    let status = json!({"status": {"observedGeneration": set["metadata"]["generation"],
        "currentNumberScheduled": desired, "numberMisscheduled": 0, "numberReady": available,
        "desiredNumberScheduled": desired, "updatedNumberScheduled": desired,
        "numberAvailable": available}});
    let path = format!(
        "{}/{}/status",
        workloads::path("daemonset"),
        judge::name(set)
    );
    accepted(cluster.patch(&path, &status));
}

/// A Deployment: its pods, each on the first node that its constraints allow. A domain counts whether
/// the taints of its nodes are tolerated or not, as by `nodeTaintsPolicy: Ignore`.
fn place_all(cluster: &Cluster, deployment: &Value, nodes: &[Value], mut pods: Vec<Value>) {
    let template = &deployment["spec"]["template"]["spec"];
    pods.retain(|pod| label(pod, "app") == Some(judge::name(deployment)));
    let replicas = deployment["spec"]["replicas"].as_u64().unwrap_or(0);
    let names = (0..replicas).map(|index| format!("{}-{index}", judge::name(deployment)));
    for name in names {
        if pods.iter().any(|pod| judge::name(pod) == name) {
            continue;
        }
        let count = |key: &str, domain: Option<&str>| {
            let of_domain = |pod: &&Value| {
                let node = nodes
                    .iter()
                    .find(|node| node["metadata"]["name"] == pod["spec"]["nodeName"]);
                node.and_then(|node| label(node, key)) == domain
            };
            pods.iter().filter(of_domain).count()
        };
        let allows = |node: &&Value| {
            let mut keys = items(&template["topologySpreadConstraints"])
                .map(|constraint| constraint["topologyKey"].as_str().unwrap());
            let is_level = |key: &str| {
                let Some(here) = label(node, key) else {
                    return false;
                };
                let domains = nodes.iter().filter_map(|node| label(node, key));
                let least = domains.map(|domain| count(key, Some(domain))).min();
                count(key, Some(here)) == least.unwrap_or(0)
            };
            is_ready(node) && tolerates(template, node) && keys.all(is_level)
        };
        if let Some(node) = nodes.iter().find(allows) {
            pods.push(bind(cluster, deployment, &name, judge::name(node)));
        }
    }
}
