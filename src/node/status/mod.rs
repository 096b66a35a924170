//! The desired Node: the kubelet's setters, in the kubelet's order.
//!
//! Each setter changes a copy of the cached Node, so members of other clients are kept. A setter
//! whose fact is missing leaves its members unchanged and adds a line; the others still run.
//! Upstream: `pkg/kubelet/kubelet_node_status.go`, `pkg/kubelet/nodestatus/setters.go`.

mod addresses;
pub mod labels;
mod resources;
mod runtime;

pub(crate) use resources::HUGE_PAGES;
pub use resources::check_reservations;

use serde_json::{Value, json};

use crate::config::Config;
use crate::kube::facts::Facts;
use crate::kube::object::{self, ATTACH_DETACH, DOCUMENTATION};
use crate::kube::time::Wall;
use crate::node::conditions::{self, DISK_PRESSURE, MEMORY_PRESSURE, PID_PRESSURE};
use crate::node::eviction::Pressures;
pub use addresses::needs_lookup;

/// The value of the annotation [`DOCUMENTATION`], as in `Documentation=` of the unit. It is short,
/// because each response to a write of the status has it.
const MANUAL: &str = "man:nodelet(8)";

/// `GOARCH` of this binary: never `aarch64` or `armv7l`.
pub const ARCHITECTURE: &str = goarch(std::env::consts::ARCH);

const fn goarch(arch: &'static str) -> &'static str {
    match arch.as_bytes() {
        b"aarch64" => "arm64",
        b"x86_64" => "amd64",
        b"x86" => "386",
        b"powerpc64" => "ppc64le",
        // arm, riscv64 and s390x have the same name in Rust and Go.
        _ => arch,
    }
}

/// The desired Node, and the missing facts.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// The whole object.
    pub node: Value,
    /// One line for each missing fact: file, reason, effect.
    pub missing: Vec<String>,
}

/// A new Node with its full status.
pub fn initial(config: &Config, facts: &Facts, pressures: Pressures, now: Wall) -> Desired {
    let node_config = &config.node;
    let mut node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_config.name,
            "labels": labels::of_new_node(node_config),
            "annotations": {DOCUMENTATION: MANUAL},
        },
        "spec": {},
        "status": {},
    });
    if node_config.controller_attach_detach {
        object::set(&mut node, &["metadata", "annotations", ATTACH_DETACH], "true".into());
    }
    let spec = object::members(&mut node, &["spec"]);
    if !node_config.taints.is_empty() {
        spec.insert("taints".into(), json!(node_config.taints));
    }
    if !node_config.provider_id.is_empty() {
        spec.insert("providerID".into(), node_config.provider_id.as_str().into());
    }
    desired(config, facts, pressures, &node, now)
}

/// The desired Node, from the cached Node `seen`. The heartbeats of unchanged conditions are kept,
/// so that without a change the result equals `seen`.
pub fn desired(
    config: &Config,
    facts: &Facts,
    pressures: Pressures,
    seen: &Value,
    now: Wall,
) -> Desired {
    let mut node = seen.clone();
    let mut missing = Vec::new();
    let now = now.time();

    if let Err(error) = addresses::set(&mut node, &config.node, &facts.network) {
        let addresses = object::list(&node, &["status", "addresses"]);
        missing.push(match addresses {
            [] => format!("{error}; no addresses"),
            _ => format!("{error}; the addresses are unchanged"),
        });
    } else if let Err(unread) = &facts.network.hosts
        && addresses::is_by_name(&config.node)
    {
        missing.push(format!("{unread}; no address from it"));
    }
    resources::set(&mut node, config, facts, &mut missing);
    set_version_info(&mut node, &config.node.kubelet_version, facts, &mut missing);
    let port = ["status", "daemonEndpoints", "kubeletEndpoint", "Port"];
    object::set(&mut node, &port, config.node.port.into());
    runtime::set(&mut node, facts.runtime.as_ref());
    note_unchecked_pressures(facts, &mut missing);

    let offers_pods = !config.node.is_guest();
    let mut unready = runtime::unready(facts.runtime.as_ref(), &facts.unhealthy, offers_pods);
    unready.extend(resources::missing_capacities(&node, config, facts));
    let list = object::elements(&mut node, &["status", "conditions"]);
    conditions::set_pressure(list, &MEMORY_PRESSURE, pressures.memory, &now);
    conditions::set_pressure(list, &DISK_PRESSURE, pressures.disk, &now);
    conditions::set_pressure(list, &PID_PRESSURE, pressures.pid, &now);
    conditions::set_ready(list, &unready, &now);

    let labels = object::members(&mut node, &["metadata", "labels"]);
    labels::repair(&config.node, labels);
    Desired { node, missing }
}

fn set_version_info(
    node: &mut Value,
    kubelet_version: &str,
    facts: &Facts,
    missing: &mut Vec<String>,
) {
    let info = object::members(node, &["status", "nodeInfo"]);
    for (key, fact) in [("kernelVersion", &facts.kernel_version), ("osImage", &facts.os_image)] {
        match fact {
            Ok(text) => {
                info.insert(key.into(), text.as_str().into());
            }
            Err(unread) => {
                let kept = info.remove(key).filter(|_| !unread.is_absent());
                let effect = if kept.is_some() { "kept" } else { "Unknown" };
                missing.push(format!("{unread}; {key} is {effect}"));
                info.insert(key.into(), kept.unwrap_or_else(|| "Unknown".into()));
            }
        }
    }
    for (key, text) in [
        ("kubeletVersion", kubelet_version),
        ("kubeProxyVersion", ""),
        ("operatingSystem", "linux"),
        ("architecture", ARCHITECTURE),
    ] {
        info.insert(key.into(), text.into());
    }
}

/// A pressure condition whose fact is missing is unchanged; a line reports it.
fn note_unchecked_pressures(facts: &Facts, missing: &mut Vec<String>) {
    let facts = [
        (facts.memory.as_ref().err(), "MemoryPressure"),
        (facts.working_set_bytes.as_ref().err(), "MemoryPressure"),
        (facts.node_fs.as_ref().err(), "DiskPressure"),
        (facts.image_fs.as_ref().and_then(|fs| fs.as_ref().err()), "DiskPressure"),
        (facts.pids.as_ref().err(), "PIDPressure"),
    ];
    for (unread, condition) in facts {
        let Some(unread) = unread else { continue };
        let start = format!("{unread}; ");
        let effect = format!("{condition} is not checked");
        // One line for each cause, with all its effects. A line of another setter may have the
        // cause already; the lines are only logged.
        match missing.iter_mut().find(|line| line.starts_with(&start)) {
            Some(line) if line.ends_with(&effect) => {}
            Some(line) => *line = format!("{line}, {effect}"),
            None => missing.push(start + &effect),
        }
    }
}

#[cfg(test)]
mod tests;
