//! The kubelet's validation of its configuration, with the kubelet's error texts.
//!
//! Flags and file are validated together, and all errors are in one line. Settings that have no
//! effect here are validated too: a file that the kubelet refuses is refused here.
//! Upstream: `pkg/kubelet/apis/config/validation/validation.go`.

use std::time::Duration;

use super::reservation;
use crate::config::flags::Flags;

/// Shortest time between two reports; each is a request.
pub(super) const MIN_REPORT_FREQUENCY: Duration = Duration::from_secs(1);

/// All errors of `flags`, as one line.
pub(super) fn check(flags: &Flags) -> Result<(), String> {
    let mut faults = numbers(flags);
    faults.extend(periods(flags));
    faults.extend(enforcements(flags));
    faults.extend(rest(flags));
    let faults = faults
        .into_iter()
        .map(|fault| format!("invalid configuration: {fault}"));
    aggregate(faults.collect())
}

/// Several errors in the form of apimachinery `pkg/util/errors` Aggregate.
pub(super) fn aggregate(mut errors: Vec<String>) -> Result<(), String> {
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

fn numbers(flags: &Flags) -> Vec<String> {
    let settings = &flags.validated_only;
    let mut faults = Vec::new();
    if flags.node_lease_duration_seconds <= 0 {
        faults.push("nodeLeaseDurationSeconds must be greater than 0".to_owned());
    }
    for (name, value, least) in [
        ("eventBurst (--event-burst)", flags.event_burst, 0),
        ("eventRecordQPS (--event-qps)", flags.event_qps, 0),
        (
            "kubeAPIBurst (--kube-api-burst)",
            settings.kube_api_burst,
            0,
        ),
        ("kubeAPIQPS (--kube-api-qps)", settings.kube_api_qps, 0),
        (
            "nodeStatusMaxImages (--node-status-max-images)",
            flags.node_status_max_images,
            -1,
        ),
        ("maxPods (--max-pods)", flags.max_pods, 0),
        ("podsPerCore (--pods-per-core)", flags.pods_per_core, 0),
    ] {
        if value < least {
            let want = match least {
                0 => "must not be a negative number".to_owned(),
                least => format!("must be {least} or greater"),
            };
            faults.push(format!("{name} {value} {want}"));
        }
    }
    // The last number is the minimum in the kubelet's text.
    for (name, value, least, printed) in [
        ("healthzPort (--healthz-port)", settings.healthz_port, 0, 1),
        ("port (--port)", flags.port, 1, 1),
        (
            "readOnlyPort (--read-only-port)",
            settings.read_only_port,
            0,
            0,
        ),
    ] {
        if !(least..=65535).contains(&value) {
            faults.push(format!(
                "{name} {value} must be between {printed} and 65535, inclusive"
            ));
        }
    }
    faults
}

fn periods(flags: &Flags) -> Vec<String> {
    let mut faults = Vec::new();
    // The kubelet checks none of them; here a very short one would be a busy loop.
    for (name, period, least) in [
        (
            "nodeStatusUpdateFrequency (--node-status-update-frequency)",
            flags.update_frequency,
            Duration::from_millis(10),
        ),
        (
            "nodeStatusReportFrequency (--node-status-report-frequency)",
            flags.report_frequency,
            MIN_REPORT_FREQUENCY,
        ),
        (
            "--node-resync-frequency",
            match flags.resync_frequency {
                // Never.
                Duration::ZERO => Duration::MAX,
                period => period,
            },
            Duration::from_secs(1),
        ),
    ] {
        if period < least {
            faults.push(format!(
                "{name} {period:?} is too short; the minimum is {least:?}"
            ));
        }
    }
    let total = flags.validated_only.shutdown_grace_period;
    let critical = flags.validated_only.shutdown_grace_period_critical_pods;
    if critical > total {
        faults.push(format!(
            "shutdownGracePeriodCriticalPods {critical:?} must be <= shutdownGracePeriod {total:?}"
        ));
    }
    for (name, period) in [
        ("shutdownGracePeriod", total),
        ("shutdownGracePeriodCriticalPods", critical),
    ] {
        if !period.is_zero() && period < Duration::from_secs(1) {
            faults.push(format!(
                "{name} {period:?} must be either zero or otherwise >= 1 sec"
            ));
        }
    }
    if flags.validated_only.shutdown_by_pod_priority && (!total.is_zero() || !critical.is_zero()) {
        faults.push(
            "Cannot specify both shutdownGracePeriodByPodPriority and shutdownGracePeriod at the \
             same time"
                .to_owned(),
        );
    }
    faults
}

const ENFORCE: &str = "enforceNodeAllocatable (--enforce-node-allocatable)";

fn enforcements(flags: &Flags) -> Vec<String> {
    let settings = &flags.validated_only;
    let by_default = ["pods".to_owned()];
    let keys = match &settings.enforce_node_allocatable {
        Some(keys) => keys.as_slice(),
        None => &by_default,
    };
    let has = |key: &str| keys.iter().any(|k| k == key);
    let mut faults = Vec::new();
    for reserved in ["system-reserved", "kube-reserved"] {
        let compressible = format!("{reserved}-compressible");
        if has(reserved) && has(&compressible) {
            faults.push(format!(
                "both {reserved:?} and {compressible:?} cannot be specified together in {ENFORCE}"
            ));
        }
    }
    for (index, key) in keys.iter().enumerate() {
        if keys.iter().take(index).any(|before| before == key) {
            faults.push(format!("duplicated enforcements {key:?} in {ENFORCE}"));
            continue;
        }
        let (reserved, cgroup, name) = match key.as_str() {
            "pods" => ("", "-", ""),
            "system-reserved" | "system-reserved-compressible" => (
                "system-reserved",
                settings.system_reserved_cgroup.as_str(),
                "systemReservedCgroup (--system-reserved-cgroup)",
            ),
            "kube-reserved" | "kube-reserved-compressible" => (
                "kube-reserved",
                settings.kube_reserved_cgroup.as_str(),
                "kubeReservedCgroup (--kube-reserved-cgroup)",
            ),
            "none" => {
                if keys.len() > 1 {
                    faults.push(format!(
                        "{ENFORCE} may not contain additional enforcements when \"none\" is specified"
                    ));
                }
                continue;
            }
            _ => {
                faults.push(format!(
                    "option {key:?} specified for {ENFORCE}. Valid options are \"pods\", \
                     \"system-reserved\", \"system-reserved-compressible\", \"kube-reserved\", \
                     \"kube-reserved-compressible\" or \"none\""
                ));
                continue;
            }
        };
        if cgroup.is_empty() {
            faults.push(format!(
                "{name} must be specified when {reserved:?} or \"{reserved}-compressible\" \
                 included in {ENFORCE}"
            ));
        }
        if settings.cgroups_per_qos == Some(false) {
            faults.push(format!(
                "cgroupsPerQOS (--cgroups-per-qos) must be set to true when {key:?} contained in \
                 {ENFORCE}"
            ));
        }
    }
    faults
}

fn rest(flags: &Flags) -> Vec<String> {
    let settings = &flags.validated_only;
    let mut faults = Vec::new();
    let mut refuse = |fault: &str| faults.push(fault.to_owned());
    if !settings.system_cgroups.is_empty() && settings.cgroup_root.is_empty() {
        refuse(
            "systemCgroups (--system-cgroups) was specified and cgroupRoot (--cgroup-root) was \
             not specified",
        );
    }
    if settings.run_once {
        refuse("runOnce (--runOnce) true, Runonce mode has been deprecated and should not be set");
    }
    if !matches!(
        settings.swap_behavior.as_str(),
        "" | "NoSwap" | "LimitedSwap"
    ) {
        refuse(&format!(
            "memorySwap.swapBehavior {:?} must be one of: \"\", \"LimitedSwap\" or \"NoSwap\"",
            settings.swap_behavior
        ));
    }
    let cpus = &flags.reserved_cpus;
    let cgroups = [
        &settings.system_reserved_cgroup,
        &settings.kube_reserved_cgroup,
    ];
    if !cpus.is_empty() && cgroups.iter().any(|cgroup| !cgroup.is_empty()) {
        refuse(
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup \
             (--system-reserved-cgroup) or kubeReservedCgroup (--kube-reserved-cgroup)",
        );
    }
    if let Err(error) = reservation::cpus(cpus) {
        refuse(&format!(
            "unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"
        ));
    }
    if flags.container_runtime_endpoint.as_deref() == Some("") {
        refuse("the containerRuntimeEndpoint was not specified or empty");
    }
    if settings.exit_on_lock_contention && settings.lock_file.is_empty() {
        refuse("cannot exit on lock file contention: no lock file specified");
    }
    faults
}

#[cfg(test)]
mod tests;
