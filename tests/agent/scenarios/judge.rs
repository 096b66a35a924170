//! Whether an outcome is right, from the objects of the API alone.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::api::condition;

/// The status of a Node's Ready condition.
pub(super) fn ready(node: &Value) -> &str {
    let ready = condition(node, "Ready");
    ready.and_then(|c| c["status"].as_str()).unwrap_or("absent")
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The node that a pod is bound to, or that the DaemonSet controller made it for: the scheduler
/// binds it by a node affinity to `metadata.name`.
fn destination(pod: &Value) -> Option<&str> {
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let bound = pod["spec"]["nodeName"].as_str();
    bound.or_else(|| terms[0]["matchFields"][0]["values"][0].as_str())
}

/// A DaemonSet has one available pod of the current template on each of `nodes`, and none elsewhere.
/// The status is read as `kubectl rollout status` reads it.
pub(super) fn rolled_out(set: &Value, pods: &[Value], nodes: &[String]) -> Result<(), String> {
    if set["status"]["observedGeneration"] != set["metadata"]["generation"] {
        return Err(format!("not observed yet: {}", set["status"]));
    }
    let count = |field: &str| set["status"][field].as_u64().unwrap_or(0);
    let counts = [
        "desiredNumberScheduled",
        "updatedNumberScheduled",
        "numberAvailable",
    ];
    if counts.map(count) != [nodes.len() as u64; 3] {
        return Err(format!("{} nodes: {}", nodes.len(), set["status"]));
    }
    let alive = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut found: Vec<&str> = alive.filter_map(destination).collect();
    found.sort_unstable();
    let mut wanted: Vec<&str> = nodes.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    if found != wanted {
        return Err(format!("pods on {found:?} instead of {wanted:?}"));
    }
    Ok(())
}

/// All of `count` pods are bound, and the numbers of pods in the domains of each of `keys` differ by
/// one at most. A domain is a value of that label on a node that runs pods.
pub(super) fn spread(
    pods: &[Value],
    count: usize,
    nodes: &[Value],
    keys: &[&str],
) -> Result<(), String> {
    let bound: Vec<&str> = pods
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    if pods.len() != count || bound.len() != count {
        return Err(format!("{} of {count} pods are bound", bound.len()));
    }
    for key in keys {
        let mut domains = BTreeMap::new();
        for node in nodes {
            let domain = node["metadata"]["labels"][key]
                .as_str()
                .ok_or_else(|| format!("{} has no {key}", name(node)))?;
            let here = bound.iter().filter(|bound| **bound == name(node));
            *domains.entry(domain).or_insert(0) += here.count();
        }
        let counts: Vec<usize> = domains.values().copied().collect();
        let most = counts.iter().max().unwrap_or(&0);
        let least = counts.iter().min().unwrap_or(&0);
        if counts.iter().sum::<usize>() != count {
            return Err(format!("pods outside of the nodes: {bound:?}"));
        }
        if most - least > 1 {
            return Err(format!("{key}: {domains:?}"));
        }
    }
    Ok(())
}

/// The nodes of the pods of `before` that are gone or terminating in `now`; one entry a pod, sorted.
pub(super) fn evicted(before: &[Value], now: &[Value]) -> Vec<String> {
    let stays = |pod: &&Value| {
        let same = now
            .iter()
            .find(|p| p["metadata"]["uid"] == pod["metadata"]["uid"]);
        same.is_some_and(|p| p["metadata"]["deletionTimestamp"].is_null())
    };
    let gone = before.iter().filter(|pod| !stays(pod));
    let mut nodes: Vec<String> = gone
        .map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned())
        .collect();
    nodes.sort();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn pod(uid: &str, node: &str) -> Value {
        json!({"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": node}})
    }

    fn pending(uid: &str, node: &str) -> Value {
        json!({"metadata": {"uid": uid}, "spec": {"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ]}}}}})
    }

    fn terminating(uid: &str, node: &str) -> Value {
        let mut pod = pod(uid, node);
        pod["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z".into();
        pod
    }

    fn set(generation: u64, observed: u64, counts: [u64; 3]) -> Value {
        let [desired, updated, available] = counts;
        json!({"metadata": {"generation": generation}, "status": {
            "observedGeneration": observed, "desiredNumberScheduled": desired,
            "updatedNumberScheduled": updated, "numberAvailable": available}})
    }

    #[test]
    fn a_rollout_is_complete_with_one_new_pod_on_each_node() {
        let nodes = names(&["b", "a"]);
        let pods = [pod("1", "a"), pod("2", "b")];
        let full = set(2, 2, [2, 2, 2]);
        assert_eq!(rolled_out(&full, &pods, &nodes), Ok(()));
        let old = [pod("1", "a"), pod("2", "b"), terminating("0", "a")];
        assert_eq!(rolled_out(&full, &old, &nodes), Ok(()));

        for (what, status) in [
            ("an old generation", set(2, 1, [2, 2, 2])),
            ("a board is wanted", set(2, 2, [3, 2, 2])),
            ("an old pod", set(2, 2, [2, 1, 2])),
            ("a pod that does not run", set(2, 2, [2, 2, 1])),
            ("no status", json!({"metadata": {"generation": 1}})),
        ] {
            assert!(rolled_out(&status, &pods, &nodes).is_err(), "{what}");
        }
        for (what, pods) in [
            ("a pod on a board", vec![pod("1", "a"), pod("2", "board")]),
            (
                "a pod that waits for a board",
                vec![pod("1", "a"), pod("2", "b"), pending("3", "board")],
            ),
            ("two on one node", vec![pod("1", "a"), pod("2", "a")]),
            ("one is missing", vec![pod("1", "a")]),
        ] {
            assert!(rolled_out(&full, &pods, &nodes).is_err(), "{what}");
        }
    }

    fn node(name: &str, zone: &str) -> Value {
        json!({"metadata": {"name": name, "labels": {"host": name, "zone": zone}}})
    }

    #[test]
    fn a_spread_has_all_pods_and_no_domain_with_two_more_than_another() {
        let nodes = [node("a", "x"), node("b", "x"), node("c", "y")];
        let on = |hosts: &str| -> Vec<Value> {
            let hosts = hosts.chars().enumerate();
            hosts
                .map(|(index, host)| pod(&index.to_string(), &host.to_string()))
                .collect()
        };
        let both = ["host", "zone"];
        assert_eq!(spread(&on("aabbcc"), 6, &nodes, &["host"]), Ok(()));
        assert_eq!(spread(&on("abccab"), 6, &nodes, &["host"]), Ok(()));
        assert_eq!(spread(&on("aabccc"), 6, &nodes, &["zone"]), Ok(()));
        assert_eq!(spread(&on("abbcc"), 5, &nodes, &both), Ok(()));
        for (what, pods, count, keys) in [
            ("one host has two more", "aaabcc", 6, &both[..1]),
            ("one host has none", "aabbab", 6, &both[..1]),
            ("one zone has two more", "aabbcc", 6, &both[1..]),
            ("one key of two", "aabccc", 6, &both[..]),
            ("a pod is missing", "aabbc", 6, &both[..1]),
            ("a pod on a board", "aabbcz", 6, &both[..1]),
        ] {
            assert!(spread(&on(pods), count, &nodes, keys).is_err(), "{what}");
        }
        let mut waiting = on("aabbcc");
        waiting[5]["spec"] = json!({});
        assert!(spread(&waiting, 6, &nodes, &["host"]).is_err());
        assert!(spread(&on("aabbcc"), 6, &nodes, &["rack"]).is_err());
    }

    #[test]
    fn an_evicted_pod_is_gone_terminating_or_another_one() {
        let before = [pod("1", "b"), pod("2", "a"), pod("3", "a"), pod("4", "c")];
        assert_eq!(evicted(&before, &before), names(&[]));
        let now = [terminating("1", "b"), pod("9", "a"), pod("4", "c")];
        assert_eq!(evicted(&before, &now), names(&["a", "a", "b"]));
    }

    #[test]
    fn ready_is_the_status_of_that_condition() {
        let node = |conditions: Value| json!({"status": {"conditions": conditions}});
        assert_eq!(ready(&json!({})), "absent");
        assert_eq!(
            ready(&node(json!([{"type": "Other", "status": "True"}]))),
            "absent"
        );
        let unknown = json!([{"type": "Other", "status": "True"},
            {"type": "Ready", "status": "Unknown"}]);
        assert_eq!(ready(&node(unknown)), "Unknown");
    }
}
