//! Parses eviction thresholds: maps from signal to text, from flags and the configuration file.
//! Error texts are the kubelet's, with the signal added where its text has none.
//! Upstream: `pkg/kubelet/eviction/helpers.go` ParseThresholdConfig, `defaults_linux.go`.

use std::time::Duration;

use crate::config::setting::Pairs;
use crate::kube::quantity::{Quantity, float};
use crate::kube::time::parse_duration;

/// The signal of a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// MemTotal minus the working set of the root cgroup.
    MemoryAvailable,
    /// Bytes on the file system of `--root-dir`.
    NodefsAvailable,
    /// Inodes on the file system of `--root-dir`.
    NodefsInodesFree,
    /// Bytes on the file system of the runtime's images; without a runtime, on that of
    /// `--root-dir`.
    ImagefsAvailable,
    /// Inodes for images.
    ImagefsInodesFree,
    /// Threads that can still be created.
    PidAvailable,
}

/// The amount of a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// An absolute amount.
    Quantity(Quantity),
    /// A share of the capacity, 0 to 1. 32 bits, as in the kubelet.
    Percentage(f32),
}

impl Amount {
    /// The absolute amount for a capacity.
    pub fn of(self, capacity: u64) -> Quantity {
        match self {
            Self::Quantity(quantity) => quantity,
            Self::Percentage(share) => Quantity::bytes(portion(capacity, share)),
        }
    }
}

/// trunc(float64(capacity) * float64(share)), as in the kubelet: 10 % of 107362627584 is
/// 10736262918, because 0.1 is rounded to 32 bits first.
fn portion(capacity: u64, share: f32) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "truncation is intended, and a cast of a float saturates"
    )]
    let portion = (capacity as f64 * f64::from(share)) as u64;
    portion
}

/// A threshold: pressure below an amount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The signal.
    pub signal: Signal,
    /// Met when less than this is available.
    pub amount: Amount,
    /// Zero for a hard threshold.
    pub grace_period: Duration,
    /// Once met, the threshold stays met until this much more is available.
    pub minimum_reclaim: Option<Amount>,
}

impl Threshold {
    /// A hard threshold without minimum reclaim.
    pub const fn hard(signal: Signal, amount: Amount) -> Self {
        Self { signal, amount, grace_period: Duration::ZERO, minimum_reclaim: None }
    }
}

/// The default hard thresholds (`defaults_linux.go`).
pub fn defaults() -> Pairs {
    let mut defaults = Pairs::new();
    for (signal, amount) in [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ] {
        defaults.insert(signal.to_owned(), amount.to_owned());
    }
    defaults
}

/// The hard and the soft thresholds of four maps.
pub fn parse(
    hard: &Pairs,
    soft: &Pairs,
    grace_periods: &Pairs,
    minimum_reclaims: &Pairs,
) -> Result<[Vec<Threshold>; 2], String> {
    let hard = thresholds(hard, "hard")?;
    let soft = thresholds(soft, "soft")?;
    let grace_periods = each(grace_periods, grace_period)?;
    let minimum_reclaims = each(minimum_reclaims, minimum_reclaim)?;
    if let Some((name, _)) = soft.iter().find(|(name, _)| of(&grace_periods, name).is_none()) {
        return Err(format!(
            "grace period must be specified for the soft eviction threshold {name}"
        ));
    }
    let threshold = |name, amount| {
        Some(Threshold {
            minimum_reclaim: of(&minimum_reclaims, name),
            ..Threshold::hard(observed(name)?, amount)
        })
    };
    let hard = hard.iter().filter_map(|(name, amount)| threshold(name, *amount));
    let soft = soft.iter().filter_map(|(name, amount)| {
        Some(Threshold { grace_period: of(&grace_periods, name)?, ..threshold(name, *amount)? })
    });
    Ok([hard.collect(), soft.collect()])
}

/// Valid signals that are not observed: without a container runtime, the container file system is
/// that of `nodefs`, and there is no cgroup of pods.
const UNOBSERVED: [&str; 3] =
    ["containerfs.available", "containerfs.inodesFree", "allocatableMemory.available"];

fn observed(name: &str) -> Option<Signal> {
    Some(match name {
        "memory.available" => Signal::MemoryAvailable,
        "nodefs.available" => Signal::NodefsAvailable,
        "nodefs.inodesFree" => Signal::NodefsInodesFree,
        "imagefs.available" => Signal::ImagefsAvailable,
        "imagefs.inodesFree" => Signal::ImagefsInodesFree,
        "pid.available" => Signal::PidAvailable,
        _ => return None,
    })
}

/// A value for each signal of a map, in the map's order. It is a list, because a map for each type
/// of value would be 1 KB of code.
type BySignal<'a, T> = Vec<(&'a str, T)>;

/// The value of the signal `name`.
fn of<T: Copy>(values: &[(&str, T)], name: &str) -> Option<T> {
    let mut values = values.iter().filter(|(signal, _)| *signal == name);
    values.next().map(|(_, value)| *value)
}

/// Parses each value of a map whose keys must be signals.
fn each<T>(
    statements: &Pairs,
    read: fn(&str, &str) -> Result<T, String>,
) -> Result<BySignal<'_, T>, String> {
    let mut values = Vec::new();
    for (name, text) in statements {
        if observed(name).is_none() && !UNOBSERVED.contains(&name.as_str()) {
            return Err(format!("unsupported eviction signal {name}"));
        }
        values.push((name.as_str(), read(name, text)?));
    }
    Ok(values)
}

fn thresholds<'a>(statements: &'a Pairs, which: &str) -> Result<BySignal<'a, Amount>, String> {
    let amounts = each(statements, threshold)?;
    for (name, _) in amounts.iter().filter(|(name, _)| observed(name).is_none()) {
        log::warn!("found {name} for {which} eviction. ignoring");
    }
    // 0% and 100% disable a signal.
    let on = amounts.into_iter().filter_map(|(k, v)| Some((k, v?)));
    Ok(on.collect())
}

fn threshold(name: &str, text: &str) -> Result<Option<Amount>, String> {
    if text == "0%" || text == "100%" {
        return Ok(None);
    }
    match amount(name, text)? {
        Amount::Quantity(quantity) if quantity <= Quantity::count(0) => {
            Err(format!("eviction threshold {name} must be positive: {quantity}"))
        }
        Amount::Percentage(share) if share < 0.0 => {
            Err(format!("eviction percentage threshold {name} must be >= 0%: {text}"))
        }
        Amount::Percentage(share) if share > 1.0 => {
            Err(format!("eviction percentage threshold {name} must be <= 100%: {text}"))
        }
        amount => Ok(Some(amount)),
    }
}

fn grace_period(name: &str, text: &str) -> Result<Duration, String> {
    if text.strip_prefix('-').map(parse_duration).is_some_and(|d| d.is_ok()) {
        return Err(format!(
            "invalid eviction grace period specified: {text}, must be a positive value"
        ));
    }
    parse_duration(text).map_err(|e| format!("eviction grace period of {name}: {e}"))
}

fn minimum_reclaim(name: &str, text: &str) -> Result<Amount, String> {
    match amount(name, text)? {
        Amount::Quantity(quantity) if quantity < Quantity::count(0) => {
            Err(format!("negative eviction minimum reclaim specified for {name}"))
        }
        Amount::Percentage(share) if share <= 0.0 => {
            Err(format!("eviction percentage minimum reclaim {name} must be positive: {text}"))
        }
        amount => Ok(amount),
    }
}

/// `100Mi`, or `10.5%` as 0.105, in 32-bit arithmetic as in the kubelet.
fn amount(name: &str, text: &str) -> Result<Amount, String> {
    if !text.ends_with('%') {
        let quantity = text.parse::<Quantity>();
        let quantity = quantity.map_err(|e| format!("eviction signal {name}: {text:?} is {e}"))?;
        return Ok(Amount::Quantity(quantity));
    }
    let value: f32 = float(text.trim_end_matches('%')).ok_or_else(|| {
        format!("eviction signal {name}: {text:?} is not a percentage; write it like 10%")
    })?;
    Ok(Amount::Percentage(value / 100.0))
}

/// The kubelet's defaults.
#[cfg(test)]
pub(crate) fn default_thresholds() -> Vec<Threshold> {
    let none = Default::default();
    let [hard, _] = parse(&defaults(), &none, &none, &none).unwrap();
    hard
}

#[cfg(test)]
mod tests;
