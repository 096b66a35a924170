//! The labels of a Node: the kubelet's, or those of a guest.
//!
//! A Node without pods ([`NodeConfig::is_guest`]) is a guest of the cluster. Its labels keep it out
//! of decisions that assume that each Node runs pods: selectors for Linux, spreading over host
//! names, load balancers, and the count of Nodes that limits evictions.
//! Upstream: `pkg/kubelet/kubelet_node_status.go` initialNode, updateDefaultLabels.

use serde_json::{Map, Value};

use super::ARCHITECTURE;
use crate::config::NodeConfig;
use crate::kube::object;

const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const BETA_OS: &str = "beta.kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";
const BETA_ARCH: &str = "beta.kubernetes.io/arch";

/// A guest's value of `kubernetes.io/os`. DaemonSets such as kube-proxy select `linux`. A value and
/// not absence, so that a selector can find the guests.
pub const GUEST_OS: &str = "nodelet";

/// Labels that exclude a Node by their presence, whatever their value is: the first from the count
/// of Nodes that limits evictions (`pkg/controller/nodelifecycle`), the second from load balancers
/// (cloud-provider `controllers/service`). A guest has them with the value `true`.
pub const EXCLUSIONS: [&str; 2] = [
    "node.kubernetes.io/exclude-disruption",
    "node.kubernetes.io/exclude-from-external-load-balancers",
];

/// Labels that are reset from the configuration at every start, in upstream's order.
const DEFAULT_LABELS: [&str; 12] = [
    HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    OS,
    ARCH,
    "node.kubernetes.io/windows-build",
    BETA_OS,
    BETA_ARCH,
];

/// The labels of a new Node. If `--node-labels` gives one of the `DEFAULT_LABELS` or
/// [`EXCLUSIONS`] an empty value, a guest does not have that label. Any other label, and each label
/// of a Node that is no guest, can have an empty value.
pub fn of_new_node(config: &NodeConfig) -> Map<String, Value> {
    let mut labels = configured(config);
    if config.is_guest() {
        let is_default = |key: &str| DEFAULT_LABELS.contains(&key) || EXCLUSIONS.contains(&key);
        object::retain(&mut labels, &|key, value| value != "" || !is_default(key));
    }
    labels
}

/// Sets the default labels of an existing Node, and the [`EXCLUSIONS`] of a guest. A label of these
/// that is configured with an empty value is removed; all other labels stay.
pub fn adopt(config: &NodeConfig, existing: &mut Map<String, Value>) {
    reset_defaults(&configured(config), existing);
    for key in EXCLUSIONS.into_iter().filter(|_| config.is_guest()) {
        match config.labels.get(key).map(String::as_str) {
            Some("") => drop(existing.remove(key)),
            Some(value) => drop(existing.insert(key.into(), value.into())),
            None => drop(existing.entry(key).or_insert("true".into())),
        }
    }
}

/// Sets the two labels that every computation of the status repairs, as upstream's updateNode. The
/// os label of a guest is left as it is if its configured value is empty.
pub fn repair(config: &NodeConfig, labels: &mut Map<String, Value>) {
    let os = os(config);
    if !os.is_empty() {
        labels.insert(OS.into(), os.into());
    }
    labels.insert(ARCH.into(), ARCHITECTURE.into());
}

/// upstream's updateDefaultLabels.
fn reset_defaults(ours: &Map<String, Value>, existing: &mut Map<String, Value>) {
    for key in DEFAULT_LABELS {
        match ours.get(key) {
            None => {}
            Some(value) if value == "" => drop(existing.remove(key)),
            Some(value) => drop(existing.insert(key.into(), value.clone())),
        }
    }
}

/// The defaults, with `--node-labels` over them. If a guest's default label or exclusion has an
/// empty value here, the guest does not have that label.
fn configured(config: &NodeConfig) -> Map<String, Value> {
    let mut labels = Map::new();
    let mut set = |key: &str, value: &str| labels.insert(key.to_owned(), value.into());
    let is_guest = config.is_guest();
    set(HOSTNAME, if is_guest { "" } else { &config.name });
    set(OS, os(config));
    // The control plane copies the stable label to this one if they differ.
    set(BETA_OS, os(config));
    for key in EXCLUSIONS.into_iter().filter(|_| is_guest) {
        set(key, "true");
    }
    set(ARCH, ARCHITECTURE);
    set(BETA_ARCH, ARCHITECTURE);
    for (key, value) in &config.labels {
        set(key, value);
    }
    labels
}

fn os(config: &NodeConfig) -> &str {
    if config.is_guest() { config.labels.get(OS).map_or(GUEST_OS, String::as_str) } else { "linux" }
}

#[cfg(test)]
mod tests;
