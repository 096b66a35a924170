//! The configuration: parses flags and the configuration file and validates them.
//!
//! Each error is one line that names the flag. Validation comes before any request. Error texts are
//! the kubelet's where it has one (`cmd/kubelet/app/options`).

pub mod command_line;
pub mod file;
pub mod flags;
mod ignored;
mod reservation;
pub mod runtime;
pub mod thresholds;
mod validation;

pub use reservation::{Reservation, Resources};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::flags::{Flags, Pairs};
use crate::config::runtime::RuntimeConfig;
use crate::config::thresholds::Threshold;
use crate::kube::names::{self, Taint};

/// `status.nodeInfo.kubeletVersion`: the Kubernetes version whose node behaviour is implemented,
/// with a suffix for nodelet. Version-skew checkers parse it.
pub const KUBELET_VERSION: &str = concat!("v1.36.2-nodelet.", env!("CARGO_PKG_VERSION"));

/// The taint of a Node with `--max-pods=0`. It keeps pods away that nodelet cannot run.
const NO_PODS: &str = "nodelet/no-pods";

/// The taint that an external cloud controller removes after it has initialized the Node.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The validated configuration of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`: requests a certificate if there is no valid one.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`: the folder of certificates and keys.
    pub cert_dir: PathBuf,
    /// `--rotate-certificates`: renew the certificate before it expires.
    pub rotate_certificates: bool,
    /// `--node-status-update-frequency`: how often the status is computed.
    pub update_frequency: Duration,
    /// `--node-status-report-frequency`: how often an unchanged status is sent.
    pub report_frequency: Duration,
    /// `--node-resync-frequency`: how often the Node is also read; `None` is never.
    pub resync_frequency: Option<Duration>,
    /// `--node-lease-duration-seconds`.
    pub lease_duration_seconds: u32,
    /// Eviction thresholds.
    pub thresholds: Vec<Threshold>,
    /// How long a pressure condition stays after its cause has ended.
    pub pressure_transition_period: Duration,
    /// Resources reserved from pods.
    pub reservation: Reservation,
    /// `--local-storage-capacity-isolation`: report `ephemeral-storage`.
    pub local_storage: bool,
    /// `--event-qps`: maximum events per second; 0 is no limit.
    pub event_qps: u32,
    /// `--event-burst`: maximum events at once.
    pub event_burst: u32,
    /// `--container-runtime-endpoint`: `None` is no runtime, and then nothing asks for one.
    pub runtime: Option<RuntimeConfig>,
    /// Settings of the Node object.
    pub node: NodeConfig,
}

/// Settings of the Node object that do not come from the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Name of the Node and value of its `Hostname` address.
    pub name: String,
    /// `--register-node`: create the Node if it does not exist.
    pub register: bool,
    /// `--node-ip`: none, one, or one for each IP family.
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`: a cloud controller sets the addresses.
    pub external_cloud: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// Taints of a newly created Node.
    pub taints: Vec<Taint>,
    /// `--provider-id`.
    pub provider_id: String,
    /// `--max-pods`.
    pub max_pods: u32,
    /// `--pods-per-core`; 0 is no limit.
    pub pods_per_core: u32,
    /// `--extended-resources`: devices of the board.
    pub extended_resources: Resources,
    /// `--port`: only reported; nothing listens on it.
    pub port: u16,
    /// `--enable-controller-attach-detach`.
    pub controller_attach_detach: bool,
}

impl Config {
    /// Validates `flags`. `hostname` is called only if no flag overrides it.
    pub fn new(
        flags: Flags,
        hostname: impl FnOnce() -> Result<String, String>,
    ) -> Result<Self, String> {
        let hostname = match &flags.hostname_override {
            // As in the kubelet, an empty override is no override.
            Some(name) if !name.is_empty() => name.clone(),
            _ => hostname()?,
        };
        let name = names::node_name(&hostname).map_err(|e| format!("hostname: {e}"))?;

        let external_cloud = match flags.cloud_provider.as_str() {
            "" => false,
            "external" => true,
            other => {
                return Err(format!(
                    "--cloud-provider {other:?}: cloud provider {other:?} was specified, but \
                     built-in cloud providers are disabled; use --cloud-provider=external"
                ));
            }
        };

        let mut labels = BTreeMap::new();
        for item in &flags.node_labels {
            names::parse_labels(item, &mut labels);
        }
        names::check_node_labels(&labels).map_err(|e| format!("--node-labels: {e}"))?;

        validation::check(&flags)?;
        let max_pods = converted(flags.max_pods);
        let [hard, soft] = parse_thresholds(&flags)?;
        let reservation = Reservation {
            declared: reservation::declared(&flags)?,
            thresholds: match flags.allocatable_ignores_eviction {
                true => Vec::new(),
                false => hard.clone(),
            },
            thresholds_by_default: flags.eviction_hard.is_none(),
        };
        let extended_resources = reservation::extended(flags.extended_resources.as_ref())?;

        let runtime = runtime::parse(&flags)?;

        let mut taints = flags.register_with_taints;
        if external_cloud {
            add_default_taint(&mut taints, UNINITIALIZED, "true");
        }
        if max_pods == 0 {
            add_default_taint(&mut taints, NO_PODS, "");
        }

        if flags.root_dir.as_os_str().is_empty() {
            return Err("--root-dir: invalid root directory \"\"".to_owned());
        }

        Ok(Self {
            kubeconfig: non_empty(flags.kubeconfig),
            bootstrap_kubeconfig: non_empty(flags.bootstrap_kubeconfig),
            cert_dir: non_empty(flags.cert_dir).unwrap_or_else(|| flags.root_dir.join("pki")),
            rotate_certificates: flags.rotate_certificates,
            update_frequency: flags.update_frequency,
            report_frequency: flags.report_frequency,
            resync_frequency: Some(flags.resync_frequency).filter(|period| !period.is_zero()),
            lease_duration_seconds: converted(flags.node_lease_duration_seconds),
            thresholds: [hard, soft].concat(),
            pressure_transition_period: flags.eviction_pressure_transition_period,
            reservation,
            local_storage: flags.local_storage_capacity_isolation,
            event_qps: converted(flags.event_qps),
            event_burst: converted(flags.event_burst),
            runtime,
            node: NodeConfig {
                name,
                register: flags.register_node,
                node_ips: parse_node_ips(&flags.node_ip)
                    .map_err(|e| format!("bad --node-ip {:?}: {e}", flags.node_ip))?,
                external_cloud,
                labels,
                taints,
                provider_id: flags.provider_id,
                max_pods,
                pods_per_core: converted(flags.pods_per_core),
                extended_resources,
                port: converted(flags.port),
                controller_attach_detach: flags.enable_controller_attach_detach,
            },
        })
    }
}

/// An empty path is no path, as in the kubelet.
fn non_empty(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

fn add_default_taint(taints: &mut Vec<Taint>, key: &str, value: &str) {
    if !taints
        .iter()
        .any(|t| t.key == key && t.effect == "NoSchedule")
    {
        taints.push(Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        });
    }
}

/// Converts a number whose range was validated.
fn converted<T: TryFrom<i32> + Default>(number: i32) -> T {
    T::try_from(number).unwrap_or_default()
}

/// The hard thresholds and the soft thresholds.
fn parse_thresholds(flags: &Flags) -> Result<[Vec<Threshold>; 2], String> {
    let none = Pairs::new();
    let given = flags.eviction_hard.clone();
    thresholds::parse(
        &given.unwrap_or_else(thresholds::defaults),
        flags.eviction_soft.as_ref().unwrap_or(&none),
        flags.eviction_soft_grace_period.as_ref().unwrap_or(&none),
        flags.eviction_minimum_reclaim.as_ref().unwrap_or(&none),
    )
}

/// `--node-ip`, as component-helpers `node/util/ips.go` ParseNodeIPArgument parses it. An item that
/// is not an IP address is dropped with a warning, because a template may leave it empty.
fn parse_node_ips(text: &str) -> Result<Vec<IpAddr>, String> {
    let (mut ips, mut dropped) = (Vec::new(), Vec::new());
    for item in text
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
    {
        match parse_ip(item) {
            Some(ip) => ips.push(ip),
            None => dropped.push(item),
        }
    }
    if ips.is_empty() && !text.trim().is_empty() {
        return Err("not an IP address".to_owned());
    }
    for item in dropped {
        log::warn!("--node-ip: {item:?} is not an IP address; ignored");
    }
    let pair = match ips.as_slice() {
        [] | [_] => return Ok(ips),
        [a, b] => a.is_ipv4() != b.is_ipv4(),
        _ => false,
    };
    if !pair {
        return Err("must contain either a single IP or a dual-stack pair of IPs".to_owned());
    }
    if ips.iter().any(IpAddr::is_unspecified) {
        return Err("dual-stack node IP cannot include '0.0.0.0' or '::'".to_owned());
    }
    Ok(ips)
}

/// Parses an IP address as `k8s.io/utils/net` ParseIPSloppy does: an IPv4 number with leading zeros
/// is decimal, and an IPv4-mapped IPv6 address is IPv4.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok().map(|ip: IpAddr| ip.to_canonical());
    }
    let plain: Vec<&str> = text
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            digits => digits,
        })
        .collect();
    plain.join(".").parse().ok()
}

#[cfg(test)]
mod tests;
