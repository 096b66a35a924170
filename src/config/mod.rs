//! The configuration, checked: from flags as typed to what the rest may rely on.
//!
//! Every refusal is one line that names the flag, and comes before anything is
//! sent. Texts are upstream's where upstream has one (`cmd/kubelet/app/options`).

pub mod command_line;
pub mod file;
pub mod flags;
mod ignored;
mod reservation;
pub mod thresholds;
mod validation;

pub use reservation::{Reservation, Resources};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::flags::{Flags, Pairs};
use crate::config::thresholds::Threshold;
use crate::kube::names::{self, Taint};

/// What we report as `kubeletVersion`: the Kubernetes version whose node behaviour
/// this is, with a suffix that says who wrote it. Version-skew checkers parse it.
pub const KUBELET_VERSION: &str = concat!("v1.36.2-nodelet.", env!("CARGO_PKG_VERSION"));

/// The taint of a Node without room for pods: nodelet runs none, and a slot that is
/// advertised all the same strands a workload.
const NO_PODS: &str = "nodelet/no-pods";

/// The taint that an external cloud controller takes away when it has found the Node.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// How this process runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`: how to ask for a certificate where there is none.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`: where certificates and keys are kept.
    pub cert_dir: PathBuf,
    /// `--rotate-certificates`: the certificate is renewed before it expires.
    pub rotate_certificates: bool,
    /// `--node-status-update-frequency`: how often the status is computed.
    pub update_frequency: Duration,
    /// `--node-status-report-frequency`: how often an unchanged status is sent.
    pub report_frequency: Duration,
    /// `--node-resync-frequency`: how often the Node is read besides.
    pub resync_frequency: Option<Duration>,
    /// `--node-lease-duration-seconds`.
    pub lease_duration_seconds: u32,
    /// Eviction thresholds.
    pub thresholds: Vec<Threshold>,
    /// How long a pressure condition outlives its cause.
    pub pressure_transition_period: Duration,
    /// What is kept from pods.
    pub reservation: Reservation,
    /// `--local-storage-capacity-isolation`: `ephemeral-storage` is reported.
    pub local_storage: bool,
    /// `--event-qps`: most events per second; 0 is no limit.
    pub event_qps: u32,
    /// `--event-burst`: most events at once.
    pub event_burst: u32,
    /// What the Node says.
    pub node: NodeConfig,
}

/// What the Node says of itself besides what the kernel says.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Name of the Node, and value of its address `Hostname`.
    pub name: String,
    /// `--register-node`: create the Node where there is none.
    pub register: bool,
    /// `--node-ip`: none, one, or one of each family.
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`: a cloud controller owns the addresses.
    pub external_cloud: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// Taints of a Node that is created here.
    pub taints: Vec<Taint>,
    /// `--provider-id`.
    pub provider_id: String,
    /// `--max-pods`.
    pub max_pods: u32,
    /// `--pods-per-core`; 0 is no limit.
    pub pods_per_core: u32,
    /// `--extended-resources`: what the board has besides the kernel's resources.
    pub extended_resources: Resources,
    /// `--port`: only reported, nothing listens.
    pub port: u16,
    /// `--enable-controller-attach-detach`.
    pub controller_attach_detach: bool,
}

impl Config {
    /// Checks `flags`. `hostname` is asked for only where no flag overrides it.
    pub fn new(
        flags: Flags,
        hostname: impl FnOnce() -> Result<String, String>,
    ) -> Result<Self, String> {
        let hostname = match &flags.hostname_override {
            // An empty override is none, as upstream.
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
        let max_pods = checked(flags.max_pods);
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

        let mut taints = flags.register_with_taints;
        if external_cloud {
            taint_unless_given(&mut taints, UNINITIALIZED, "true");
        }
        if max_pods == 0 {
            taint_unless_given(&mut taints, NO_PODS, "");
        }

        if flags.root_dir.as_os_str().is_empty() {
            return Err("--root-dir: invalid root directory \"\"".to_owned());
        }

        Ok(Self {
            kubeconfig: given(flags.kubeconfig),
            bootstrap_kubeconfig: given(flags.bootstrap_kubeconfig),
            cert_dir: given(flags.cert_dir).unwrap_or_else(|| flags.root_dir.join("pki")),
            rotate_certificates: flags.rotate_certificates,
            update_frequency: flags.update_frequency,
            report_frequency: flags.report_frequency,
            resync_frequency: Some(flags.resync_frequency).filter(|period| !period.is_zero()),
            lease_duration_seconds: checked(flags.node_lease_duration_seconds),
            thresholds: [hard, soft].concat(),
            pressure_transition_period: flags.eviction_pressure_transition_period,
            reservation,
            local_storage: flags.local_storage_capacity_isolation,
            event_qps: checked(flags.event_qps),
            event_burst: checked(flags.event_burst),
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
                pods_per_core: checked(flags.pods_per_core),
                extended_resources,
                port: checked(flags.port),
                controller_attach_detach: flags.enable_controller_attach_detach,
            },
        })
    }
}

/// Empty is none, as upstream.
fn given(path: Option<PathBuf>) -> Option<PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

fn taint_unless_given(taints: &mut Vec<Taint>, key: &str, value: &str) {
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

/// A number whose range was validated.
fn checked<T: TryFrom<i32> + Default>(number: i32) -> T {
    T::try_from(number).unwrap_or_default()
}

/// Hard and soft ones.
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

/// `--node-ip`, as upstream's ParseNodeIPArgument: what is no IP is dropped with a
/// warning, so that a flag filled in by a template may have an empty half.
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

/// An IP address; leading zeros in IPv4 are decimal, as in Kubernetes' sloppy parser,
/// and an IPv4 address mapped into IPv6 is IPv4, as in all of Go.
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
