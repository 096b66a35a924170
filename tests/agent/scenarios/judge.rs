//! Whether an outcome is right, from the objects of the API alone.

use std::collections::BTreeMap;

use serde_json::Value;

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

/// A DaemonSet has one available pod of the current template on each of `nodes`, and none
/// elsewhere. The status is read as `kubectl rollout status` reads it.
pub(super) fn rolled_out(set: &Value, pods: &[Value], nodes: &[String]) -> Result<(), String> {
    if set["status"]["observedGeneration"] != set["metadata"]["generation"] {
        return Err(format!("not observed yet: {}", set["status"]));
    }
    let count = |field: &str| set["status"][field].as_u64().unwrap_or(0);
    let counts = ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"];
    if counts.map(count) != [nodes.len() as u64; 3] {
        return Err(format!("{} nodes: {}", nodes.len(), set["status"]));
    }
    let alive = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let mut found: Vec<&str> = alive.filter_map(destination).collect();
    found.sort_unstable();
    let mut wanted: Vec<&str> = nodes.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    if found != wanted {
        return Err(format!("pods on {found:?} instead of {wanted:?}"));
    }
    Ok(())
}

/// All of `count` pods are bound, and the numbers of pods in the domains of each of `keys` differ
/// by one at most. A domain is a value of that label on a node that runs pods.
pub(super) fn spread(
    pods: &[Value],
    count: usize,
    nodes: &[Value],
    keys: &[&str],
) -> Result<(), String> {
    let bound: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
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

/// The nodes of the pods of `before` that are gone or terminating in `now`; one entry a pod,
/// sorted.
pub(super) fn evicted(before: &[Value], now: &[Value]) -> Vec<String> {
    let stays = |pod: &&Value| {
        let same = now.iter().find(|p| p["metadata"]["uid"] == pod["metadata"]["uid"]);
        same.is_some_and(|p| p["metadata"]["deletionTimestamp"].is_null())
    };
    let gone = before.iter().filter(|pod| !stays(pod));
    let mut nodes: Vec<String> =
        gone.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or("").to_owned()).collect();
    nodes.sort();
    nodes
}
