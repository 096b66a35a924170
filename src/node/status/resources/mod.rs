//! Capacity, allocatable and the machine's identity; the check of reservations against the
//! capacity.
//!
//! A missing fact never gives 0: a capacity that the Node has is kept, and a capacity that it never
//! had stays missing, which `Ready` names.
//! Upstream: setters.go MachineInfo; `pkg/kubelet/cm/node_container_manager_linux.go`
//! GetNodeAllocatableReservation, validateNodeAllocatable.

use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::config::thresholds::Signal;
use crate::kube::facts::{Facts, Read, is_machine_id, no_machine_id};
use crate::kube::names;
use crate::kube::object::{self, quantity, set_quantity};
use crate::kube::quantity::Quantity;

/// The setter MachineInfo, without the members that need a runtime.
pub(super) fn set(node: &mut Value, config: &Config, facts: &Facts, missing: &mut Vec<String>) {
    set_capacity(object::members(node, &["status", "capacity"]), config, facts, missing);
    set_allocatable(object::members(node, &["status"]), config, facts);
    set_identity(object::members(node, &["status", "nodeInfo"]), facts, missing);
}

fn set_capacity(
    capacity: &mut Map<String, Value>,
    config: &Config,
    facts: &Facts,
    missing: &mut Vec<String>,
) {
    let mut set = |name: &str, value: Read<Quantity>| match value {
        Ok(value) => set_quantity(capacity, name, value),
        Err(unread) => missing.push(format!("{unread}; no capacity {name}")),
    };
    let pods = u64::from(config.node.max_pods);
    let of_cores = |cpus: u64| cpus.saturating_mul(u64::from(config.node.pods_per_core));
    set("cpu", facts.cpus.clone().map(Quantity::count));
    set("memory", facts.memory.clone().map(|m| Quantity::bytes(m.total_bytes)));
    set(
        "pods",
        match config.node.pods_per_core {
            0 => Ok(Quantity::count(pods)),
            _ => facts.cpus.clone().map(|cpus| Quantity::count(pods.min(of_cores(cpus)))),
        },
    );
    if config.local_storage
        && let Some(fs) = facts.storage()
    {
        set("ephemeral-storage", fs.map(|fs| Quantity::bytes(fs.capacity_bytes)));
    }
    // Adoption sets all extended resources to 0; the declared ones are set again.
    for (name, amount) in &config.node.extended_resources {
        set(name, Ok(*amount));
    }
    match &facts.huge_pages {
        Ok(sizes) => {
            for size in sizes {
                let name = format!("{HUGE_PAGES}{}", Quantity::bytes(size.page_bytes));
                let bytes = size.page_bytes.saturating_mul(size.count);
                set(&name, Ok(Quantity::bytes(bytes)));
            }
        }
        Err(unread) => missing.push(format!("{unread}; no capacity {HUGE_PAGES}*")),
    }
}

/// Prefix of huge page resources; the size follows.
pub(crate) const HUGE_PAGES: &str = "hugepages-";

/// allocatable = capacity - reservation for every key, also those of other clients; huge pages are
/// subtracted from memory. A key whose reservation needs a missing fact is unchanged.
fn set_allocatable(status: &mut Map<String, Value>, config: &Config, facts: &Facts) {
    let capacity = match status.get("capacity") {
        Some(Value::Object(capacity)) => capacity.clone(),
        _ => return,
    };
    let allocatable = status.entry("allocatable").or_insert_with(|| json!({}));
    let allocatable = object::members(allocatable, &[]);
    object::retain(allocatable, &|name, _| {
        capacity.contains_key(name) || !names::is_extended_resource(name)
    });
    let amounts = || capacity.keys().filter_map(|name| Some((name, quantity(&capacity, name)?)));
    let huge_pages = amounts().filter(|(name, _)| name.starts_with(HUGE_PAGES));
    let huge_pages = huge_pages.fold(Quantity::bytes(0), |sum, (_, amount)| sum.plus(amount));
    for (name, amount) in amounts() {
        let Some(reserved) = reserved(name, config, facts) else {
            continue;
        };
        let left = amount.minus(reserved);
        let left = if name == "memory" { left.minus(huge_pages) } else { left };
        set_quantity(allocatable, name, left);
    }
}

/// The reserved amount of `resource`: for the system, for Kubernetes and by hard eviction
/// thresholds. A percentage needs the fact of the capacity; `None` without this fact.
fn reserved(resource: &str, config: &Config, facts: &Facts) -> Option<Quantity> {
    let reservation = &config.reservation;
    let (signal, capacity) = match resource {
        "cpu" => return Some(reservation.declared_of("cpu")),
        "memory" => (Signal::MemoryAvailable, facts.memory.as_ref().ok()?.total_bytes),
        "ephemeral-storage" if config.local_storage => {
            (Signal::NodefsAvailable, facts.storage()?.ok()?.capacity_bytes)
        }
        _ => return Some(Quantity::count(0)),
    };
    Some(reservation.of(resource, signal, capacity))
}

/// An error if a reservation exceeds the capacity. A resource whose fact is missing is not checked.
pub fn check_reservations(config: &Config, facts: &Facts) -> Result<(), String> {
    let storage = facts.storage().and_then(Result::ok).map(|fs| fs.capacity_bytes);
    let memory = facts.memory.as_ref().ok().map(|memory| memory.total_bytes);
    let mut errors = Vec::new();
    for (resource, capacity) in [
        ("cpu", facts.cpus.as_ref().ok().copied().map(Quantity::count)),
        ("ephemeral-storage", storage.map(Quantity::bytes)),
        ("memory", memory.map(Quantity::bytes)),
    ] {
        let is_configured = config.reservation.declared.contains_key(resource)
            || !config.reservation.thresholds_by_default;
        if let Some(capacity) = capacity
            && let Some(reserved) = reserved(resource, config, facts)
            && reserved > capacity
            && is_configured
        {
            errors.push(format!(
                "Resource {resource:?} has a reservation of {reserved} but capacity of \
                 {capacity}. Expected capacity >= reservation."
            ));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!("invalid Node Allocatable configuration. {}", errors.join(" ")))
}

fn set_identity(info: &mut Map<String, Value>, facts: &Facts, missing: &mut Vec<String>) {
    for (key, fact, sources) in [
        ("machineID", &facts.machine_id, "etc/machine-id"),
        ("systemUUID", &facts.system_uuid, "sys/class/dmi/id/product_uuid, etc/machine-id"),
        ("bootID", &facts.boot_id, "proc/sys/kernel/random/boot_id"),
    ] {
        match fact {
            Ok(text) => {
                // As by the kubelet, the text is sent as it is. A line reports that it is no valid
                // id.
                if text.is_empty() {
                    missing.push(format!("{sources}: absent or empty; no {key}"));
                } else if key == "machineID" && !is_machine_id(text) {
                    missing.push(format!("{}; machineID has it", no_machine_id(text)));
                }
                info.insert(key.into(), text.as_str().into());
            }
            Err(unread) => {
                missing.push(format!("{unread}; no {key}"));
                info.entry(key).or_insert_with(|| "".into());
            }
        }
    }
    // After swapoff the last size is kept, as upstream.
    if let Ok(memory) = &facts.memory
        && memory.swap_total_bytes > 0
    {
        let swap = info.entry("swap").or_insert_with(|| json!({}));
        object::set(swap, &["capacity"], memory.swap_total_bytes.into());
    }
}

/// Why the Node is not ready, if a required capacity is missing.
pub(super) fn missing_capacities(node: &Value, config: &Config, facts: &Facts) -> Option<String> {
    let storage = config.local_storage && facts.storage().is_some();
    let missing: Vec<&str> = ["cpu", "memory", "pods", "ephemeral-storage"]
        .into_iter()
        .filter(|name| *name != "ephemeral-storage" || storage)
        .filter(|name| object::at(node, &["status", "capacity", name]).is_none())
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!("missing node capacity for resources: {}", missing.join(", ")))
}

#[cfg(test)]
mod tests;
