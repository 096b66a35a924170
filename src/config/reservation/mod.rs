//! Parses and holds reservations and extended resources; `node::status::resources` applies them
//! to the capacity.
//!
//! Upstream: `cmd/kubelet/app/server.go` parseResourceList, `k8s.io/utils/cpuset`.

use std::collections::BTreeMap;

use crate::config::flags::Values;
use crate::config::setting::Pairs;
use crate::config::thresholds::{Signal, Threshold};
use crate::kube::names;
use crate::kube::quantity::Quantity;

/// Amounts by the name of their resource.
pub type Resources = BTreeMap<String, Quantity>;

/// Resources reserved from pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation {
    /// The sum of `--system-reserved` and `--kube-reserved`.
    pub declared: Resources,
    /// Hard eviction thresholds; empty with `--experimental-allocatable-ignore-eviction`.
    pub thresholds: Vec<Threshold>,
    /// The thresholds are the defaults. Defaults that exceed the capacity do not refuse the start:
    /// a board of 64 MiB must run without flags.
    pub thresholds_by_default: bool,
}

impl Reservation {
    /// The declared amount of `resource` plus the hard threshold of `signal`. A percentage refers
    /// to `capacity`.
    pub fn of(&self, resource: &str, signal: Signal, capacity: u64) -> Quantity {
        let below = self.thresholds.iter().find(|t| t.signal == signal);
        let below = below.map_or(Quantity::bytes(0), |t| t.amount.of(capacity));
        self.declared_of(resource).plus(below)
    }

    /// The declared amount of `resource`.
    pub fn declared_of(&self, resource: &str) -> Quantity {
        let declared = self.declared.get(resource);
        declared.copied().unwrap_or(Quantity::count(0))
    }
}

const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

/// The sum of `--system-reserved` and `--kube-reserved`. A CPU count from `--reserved-cpus`
/// replaces their `cpu`.
pub(super) fn declared(values: &Values) -> Result<Resources, String> {
    let mut system = values.system_reserved.clone();
    let mut kube = values.kube_reserved.clone();
    let list = &values.reserved_cpus;
    let cpus = cpus(list).map_err(|e| {
        format!(
            "invalid configuration: unable to parse reservedSystemCPUs (--reserved-cpus) {list}, \
             error: {e}"
        )
    })?;
    if cpus > 0 {
        let kube_had = kube.remove("cpu").is_some();
        let system_had = system.insert("cpu".to_owned(), cpus.to_string()).is_some();
        if kube_had || system_had {
            log::info!("--reserved-cpus: cpu in --system-reserved and --kube-reserved is not used");
        }
    }
    let mut sum = resources("--system-reserved", &system)?;
    for (name, amount) in resources("--kube-reserved", &kube)? {
        let amount = sum.get(&name).map_or(amount, |sum| sum.plus(amount));
        sum.insert(name, amount);
    }
    Ok(sum)
}

fn resources(flag: &str, pairs: &Pairs) -> Result<Resources, String> {
    let resource = |(name, text): (&String, &String)| {
        if !RESERVABLE.contains(&name.as_str()) {
            return Err(format!("cannot reserve {name:?} resource"));
        }
        let amount: Quantity = text
            .parse()
            .map_err(|e| format!("failed to parse quantity {text:?} for {name:?} resource: {e}"))?;
        if amount < Quantity::count(0) {
            return Err(format!("resource quantity for {name:?} cannot be negative: {text}"));
        }
        Ok((name.clone(), amount))
    };
    let mut resources = Resources::new();
    for pair in pairs {
        let (name, amount) =
            resource(pair).map_err(|e| format!("{flag} value failed to parse: {e}"))?;
        resources.insert(name, amount);
    }
    Ok(resources)
}

/// The number of CPUs in a list such as `0-1,3`.
fn cpus(list: &str) -> Result<u64, String> {
    let number = |text: &str| {
        text.parse::<u32>()
            .map(u64::from)
            .map_err(|_| format!("{text:?} is not the number of a cpu"))
    };
    let mut ranges = Vec::new();
    for range in list.split(',').filter(|_| !list.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("invalid range {range:?} ({first} > {last})"));
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let (mut count, mut next) = (0, 0);
    for (first, last) in ranges {
        let first = first.max(next);
        count += (last + 1).saturating_sub(first);
        next = next.max(last + 1);
    }
    Ok(count)
}

/// `--extended-resources`, with names and whole amounts that the API server accepts.
pub(super) fn extended(pairs: &Pairs) -> Result<Resources, String> {
    let mut resources = Resources::new();
    for (name, text) in pairs {
        if !names::is_extended_resource(name) {
            return Err(format!(
                "--extended-resources: {name:?} is not the name of an extended resource; write \
                 it like example.com/camera"
            ));
        }
        let amount: Quantity =
            text.parse().map_err(|e| format!("--extended-resources: {name}: {text:?} is {e}"))?;
        if amount < Quantity::count(0) || !amount.is_whole() {
            return Err(format!(
                "--extended-resources: {name}: {text:?} is not a whole number of devices"
            ));
        }
        resources.insert(name.clone(), amount);
    }
    Ok(resources)
}

#[cfg(test)]
mod tests;
