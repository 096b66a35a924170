//! Judges what the cluster does with a Node that offers no pods: its labels, its taint, pods that
//! would wait for ever, and its version.

use serde_json::{Map, Value};

use crate::config::{Config, NO_PODS, NodeConfig};
use crate::kube::finding::Finding;
use crate::kube::json;
use crate::kube::message::Response;
use crate::kube::object;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::version::Version;
use crate::node::pods;
use crate::node::status::labels;

/// Labels that nodelet never sets by itself, because they count the Node among those of its zone.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// A kubelet may be this many minor versions behind: kubeadm refuses an upgrade that exceeds it.
const MAX_SKEW: u32 = 3;

/// Whether the Node is a guest, and what its labels say.
pub fn guest(config: &NodeConfig) -> Finding {
    if !config.is_guest() {
        let detail = format!("--max-pods is {}, the Node is like a kubelet's", config.max_pods);
        return Finding::note("guest", detail, "");
    }
    let labels = labels::of_new_node(config);
    let os = object_text(&labels, "kubernetes.io/os");
    let hostname = match object_text(&labels, "kubernetes.io/hostname") {
        "" => "no host name label".to_owned(),
        name => format!("host name label {name}"),
    };
    let exclusions = labels::EXCLUSIONS.into_iter();
    let exclusions = exclusions.filter(|key| labels.contains_key(*key)).count();
    Finding::ok("guest", format!("os {os:?}, {hostname}, {exclusions} of 2 exclusions"))
}

fn object_text<'a>(labels: &'a Map<String, Value>, key: &str) -> &'a str {
    labels.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Compares the labels of the Node on the server with the labels that the next start of nodelet
/// sets. A difference is a failure, whose remedy is a restart. A guest with a topology label is a
/// note. `node` is `None` if the server has no Node of this name.
pub fn labels(config: &NodeConfig, node: Option<&Value>) -> Finding {
    let check = "labels";
    if !config.register {
        let detail = "--register-node is off, whoever creates the Node sets them";
        return Finding::note(check, detail, "");
    }
    let Some(node) = node else {
        return Finding::ok(check, "there is no Node of this name yet");
    };
    let labels = object::at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let before = labels.cloned().unwrap_or_default();
    let mut after = before.clone();
    labels::adopt(config, &mut after);
    let keys = before.keys().chain(after.keys());
    let mut changed: Vec<&str> =
        keys.filter(|key| before.get(*key) != after.get(*key)).map(String::as_str).collect();
    changed.sort_unstable();
    changed.dedup();
    if !changed.is_empty() {
        return Finding::failed(
            check,
            format!("the next start changes {}", changed.join(", ")),
            "restart nodelet",
        );
    }
    let zone = TOPOLOGY.into_iter().find(|key| before.contains_key(*key));
    match zone.filter(|_| config.is_guest()) {
        Some(key) => Finding::note(
            check,
            format!("the Node has {key}={}", object_text(&before, key)),
            "remove it unless Nodes with pods have the same value",
        ),
        None => Finding::ok(check, "the same as after a start"),
    }
}

/// The taint can be set only at creation: a Node may not add one to itself.
pub fn taint(config: &NodeConfig, node: Option<&Value>) -> Finding {
    let check = "taint";
    if !config.is_guest() {
        return Finding::note(check, "not needed for a Node with pods", "");
    }
    let Some(node) = node else {
        return Finding::ok(check, format!("the new Node has {NO_PODS}"));
    };
    let mut taints = object::list(node, &["spec", "taints"]).iter();
    if taints.any(|taint| object::text(taint, &["key"]) == NO_PODS) {
        Finding::ok(check, format!("the Node has {NO_PODS}"))
    } else {
        Finding::failed(
            check,
            format!("the Node lacks {NO_PODS}"),
            &format!("kubectl taint node {} {NO_PODS}:NoSchedule", config.name),
        )
    }
}

/// The range of pod addresses that the cluster gave to the Node, which has no use for it.
pub fn pod_cidr(config: &NodeConfig, node: Option<&Value>) -> Finding {
    let check = "podcidr";
    let ranges: Vec<&str> = node
        .map(|node| object::list(node, &["spec", "podCIDRs"]))
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match (ranges.as_slice(), config.is_guest()) {
        ([], _) => Finding::ok(check, "the cluster gave the Node none"),
        (_, false) => Finding::ok(check, ranges.join(", ")),
        (_, true) => Finding::note(
            check,
            format!("the cluster gave it {}, which it does not use", ranges.join(", ")),
            "",
        ),
    }
}

/// The pods that are bound to the Node, from the list of `node::pods`. `boot` is the time of this
/// boot by the server's clock, if known.
pub fn pods(config: &NodeConfig, list: Result<Response, Fault>, boot: Option<Wall>) -> Finding {
    let check = "pods";
    let response = match readable(check, "list them", list) {
        Ok(response) => response,
        Err(finding) => return finding,
    };
    match pods::count(&response.body, &config.name, boot) {
        None => Finding::note(check, "the response is not a PodList", ""),
        Some((0, 0)) => Finding::ok(check, "none is bound to the Node"),
        Some((bound, 0)) if config.reject_pods => {
            Finding::note(check, format!("{bound} bound, the agent ends them"), "")
        }
        Some((bound, 0)) => {
            Finding::note(check, format!("{bound} bound, they wait for ever"), "set --reject-pods")
        }
        Some((_, left)) => Finding::failed(
            check,
            format!("{left} may still be running: a kubelet started them since this boot"),
            &format!("kubectl drain {}, and reboot the board", config.name),
        ),
    }
}

/// `version` is the response to `GET /version`.
pub fn server_version(config: &Config, version: Result<Response, Fault>) -> Finding {
    let check = "server-version";
    let body = match readable(check, "read it", version) {
        Ok(response) => json::parse(&response.body).unwrap_or_default(),
        Err(finding) => return finding,
    };
    let server = Version::parse(object::text(&body, &["gitVersion"]));
    let ours = if config.reports_server_version {
        server
    } else {
        Version::parse(&config.node.kubelet_version)
    };
    let (Some(server), Some(ours)) = (server, ours) else {
        return Finding::note(check, "the server returned no version", "");
    };
    if server.minor >= ours.minor.saturating_add(MAX_SKEW) {
        Finding::note(
            check,
            format!(
                "the server is {server}, the Node reports {ours}: kubeadm may refuse to upgrade \
                 the cluster"
            ),
            "update nodelet, or set --kubelet-version=server",
        )
    } else {
        Finding::ok(check, format!("{server}, the Node reports {ours}"))
    }
}

/// The response of a server that accepted the request. A request that is not accepted is a note and
/// no failure. `action` is what the request was for, in the note about a 403.
fn readable(
    check: &'static str,
    action: &str,
    response: Result<Response, Fault>,
) -> Result<Response, Finding> {
    let response = response.map_err(|why| Finding::note(check, why, ""))?;
    response.accepted().map_err(|refused| match refused.code {
        403 => Finding::note(check, format!("not permitted to {action}"), ""),
        _ => Finding::note(check, format!("cannot be read: {}", Fault::from(refused).what), ""),
    })?;
    Ok(response)
}

#[cfg(test)]
mod tests;
