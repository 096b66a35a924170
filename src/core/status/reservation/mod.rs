//! The reserved amount of each resource, and the check against the capacity.
//!
//! Upstream: `pkg/kubelet/cm/node_container_manager_linux.go`
//! GetNodeAllocatableReservation, validateNodeAllocatable.

use crate::config::Config;
use crate::config::thresholds::Signal;
use crate::core::facts::{Facts, Read};
use crate::kube::quantity::Quantity;

/// The reserved amount of `resource`: for the system, for Kubernetes and by hard eviction
/// thresholds. A percentage needs the fact of the capacity.
pub(super) fn of(resource: &str, config: &Config, facts: &Facts) -> Read<Quantity> {
    let reservation = &config.reservation;
    let (signal, capacity) = match resource {
        "cpu" => return Ok(reservation.declared_of("cpu")),
        "memory" => (Signal::MemoryAvailable, facts.memory.clone()?.total_bytes),
        "ephemeral-storage" if config.local_storage => {
            let fs = facts.node_fs.clone()?;
            (Signal::NodefsAvailable, fs.capacity_bytes)
        }
        _ => return Ok(Quantity::count(0)),
    };
    Ok(reservation.of(resource, signal, capacity))
}

/// An error if a reservation exceeds the capacity. A resource whose fact is missing is not checked.
pub fn check_reservations(config: &Config, facts: &Facts) -> Result<(), String> {
    let storage = facts.node_fs.as_ref().ok().map(|fs| fs.capacity_bytes);
    let memory = facts.memory.as_ref().ok().map(|memory| memory.total_bytes);
    let mut errors = Vec::new();
    for (resource, capacity) in [
        (
            "cpu",
            facts.cpus.as_ref().ok().copied().map(Quantity::count),
        ),
        ("ephemeral-storage", storage.map(Quantity::bytes)),
        ("memory", memory.map(Quantity::bytes)),
    ] {
        let is_configured = config.reservation.declared.contains_key(resource)
            || !config.reservation.thresholds_by_default;
        if let Some(capacity) = capacity
            && let Ok(reserved) = of(resource, config, facts)
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
    Err(format!(
        "invalid Node Allocatable configuration. {}",
        errors.join(" ")
    ))
}

#[cfg(test)]
mod tests;
