//! The configuration: parses flags and the configuration file and validates them.
//!
//! Each error is one line that names the flag. Validation comes before any request. Error texts are
//! the kubelet's where it has one (`cmd/kubelet/app/options`).

pub mod command_line;
pub mod file;
pub mod flags;
mod reservation;
pub mod setting;
pub mod thresholds;

pub use reservation::{Reservation, Resources};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::flags::Flags;
use crate::config::thresholds::Threshold;
use crate::kube::names::{self, Taint};
use crate::kube::version::Version;

/// `status.nodeInfo.kubeletVersion`: the Kubernetes version whose node behaviour is implemented,
/// with a suffix for nodelet. Version-skew checkers parse it.
pub const KUBELET_VERSION: &str = concat!("v1.36.2-nodelet.", env!("CARGO_PKG_VERSION"));

/// The text of `--version`: `nodelet 0.1.0 (commit, target)`, and the version that the Node
/// reports.
pub fn version() -> String {
    format!(
        "nodelet {} ({}, {}) as {KUBELET_VERSION}",
        env!("CARGO_PKG_VERSION"),
        env!("NODELET_COMMIT"),
        env!("NODELET_TARGET"),
    )
}

/// The form of [`KUBELET_VERSION`] with another Kubernetes version.
pub fn kubelet_version(kubernetes: Version) -> String {
    format!("{kubernetes}-nodelet.{}", env!("CARGO_PKG_VERSION"))
}

/// The taint of a Node with `--max-pods=0`. It keeps pods away that nodelet cannot run.
pub const NO_PODS: &str = "nodelet/no-pods";

/// The taint that an external cloud controller removes after it has initialized the Node.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// The configuration of a run. [`Config::new`] validates it; `default()` has zero values, not the
/// defaults of the flags.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`: requests a certificate if there is no valid one.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `--cert-dir`: the folder of certificates and keys.
    pub cert_dir: PathBuf,
    /// `--rotate-certificates`: renew the certificate before it expires.
    pub rotate_certificates: bool,
    /// `--k3s-supervisor`: the URL of the supervisor that signs instead of the cluster.
    pub k3s_supervisor: Option<String>,
    /// `--k3s-supervisor-system-roots`: the system's root certificates verify the supervisor; the
    /// CA of the kubeconfig does not.
    pub k3s_supervisor_system_roots: bool,
    /// `--node-status-update-frequency`: how often the status is computed.
    pub update_frequency: Duration,
    /// `--node-status-report-frequency`: how often an unchanged status is sent.
    pub report_frequency: Duration,
    /// `--node-resync-frequency`: how often the Node is read, because another program may have
    /// changed it. The default gives one read between two reports; with the wait for the next
    /// status, the time between two reads is at most 160 s.
    pub resync_frequency: Duration,
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
    /// `--kubelet-version=server`: the Node reports the version of the API server.
    pub reports_server_version: bool,
    /// `--state-file`: where the agent writes the state of its Lease for `nodelet serve`; `None`
    /// is nowhere.
    pub state_file: Option<PathBuf>,
    /// Settings of the Node object.
    pub node: NodeConfig,
}

/// Settings of the Node object that do not come from the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeConfig {
    /// Name of the Node and value of its `Hostname` address.
    pub name: String,
    /// `--register-node`: create the Node if it does not exist.
    pub register: bool,
    /// `--node-ip`: none, one, or one for each IP family.
    pub node_ips: Vec<IpAddr>,
    /// `--cloud-provider=external`: a cloud controller sets the addresses.
    pub external_cloud: bool,
    /// `--k3s-supervisor`: the cloud controller of k3s or rke2 takes the addresses from
    /// annotations.
    pub is_of_k3s: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// Taints of a newly created Node.
    pub taints: Vec<Taint>,
    /// `--provider-id`.
    pub provider_id: String,
    /// `--kubelet-version`: `status.nodeInfo.kubeletVersion`.
    pub kubelet_version: String,
    /// `--reject-pods`: a guest ends the pods that are bound to it.
    pub reject_pods: bool,
    /// `--max-pods`.
    pub max_pods: u32,
    /// `--pods-per-core`; 0 is no limit.
    pub pods_per_core: u32,
    /// `--extended-resources`: devices of the board.
    pub extended_resources: Resources,
    /// `--port`: only reported; the agent does not listen on it.
    pub port: u16,
    /// `--enable-controller-attach-detach`.
    pub controller_attach_detach: bool,
}

impl NodeConfig {
    /// Whether the Node is a guest: it offers no pods, and should change nothing for Nodes that do.
    pub fn is_guest(&self) -> bool {
        self.max_pods == 0
    }
}

impl Config {
    /// The configuration of these flags on a board with the name `pi`.
    #[cfg(test)]
    pub(crate) fn of(words: &[&str]) -> Self {
        Self::new(Flags::of(words), || Ok("pi".to_owned())).unwrap()
    }

    /// Validates `flags`. `hostname` is called only if no flag overrides it.
    pub fn new(
        flags: Flags,
        hostname: impl FnOnce() -> Result<String, String>,
    ) -> Result<Self, String> {
        let Flags { mut values, faults, .. } = flags;
        let mut config = std::mem::take(&mut values.config);
        let node = &mut config.node;
        let hostname = match values.hostname_override.as_str() {
            // As in the kubelet, an empty override is no override.
            "" => hostname()?,
            name => name.to_owned(),
        };
        node.name = names::node_name(&hostname).map_err(|e| format!("hostname: {e}"))?;

        node.external_cloud = match values.cloud_provider.as_str() {
            "" => false,
            "external" => true,
            other => {
                return Err(format!(
                    "--cloud-provider {other:?}: cloud provider {other:?} was specified, but \
                     built-in cloud providers are disabled; use --cloud-provider=external"
                ));
            }
        };

        config.reports_server_version = values.kubelet_version == "server";
        node.kubelet_version = match values.kubelet_version.as_str() {
            "" | "server" => KUBELET_VERSION.to_owned(),
            text if Version::parse(text).is_some() => text.to_owned(),
            text => {
                return Err(format!(
                    "--kubelet-version {text:?}: neither a version like v1.36.2 nor server"
                ));
            }
        };
        names::check_node_labels(&node.labels).map_err(|e| format!("--node-labels: {e}"))?;
        let invalid = |fault| format!("invalid configuration: {fault}");
        aggregate(faults.into_values().map(invalid).collect())?;

        let given = values.eviction_hard.clone();
        let [hard, soft] = thresholds::parse(
            &given.unwrap_or_else(thresholds::defaults),
            &values.eviction_soft,
            &values.eviction_soft_grace_period,
            &values.eviction_minimum_reclaim,
        )?;
        config.reservation = Reservation {
            declared: reservation::declared(&values)?,
            thresholds: if values.allocatable_ignores_eviction { Vec::new() } else { hard.clone() },
            thresholds_by_default: values.eviction_hard.is_none(),
        };
        config.thresholds = [hard, soft].concat();
        node.extended_resources = reservation::extended(&values.extended_resources)?;

        if let Some(url) = &config.k3s_supervisor
            && !(url.starts_with("https://")
                && config.rotate_certificates
                && config.bootstrap_kubeconfig.is_none())
        {
            // The URL is not quoted: it may have a password in it.
            return Err(
                "--k3s-supervisor: needs https, --rotate-certificates and no --bootstrap-kubeconfig"
                    .to_owned(),
            );
        }
        node.is_of_k3s = config.k3s_supervisor.is_some();
        if config.k3s_supervisor_system_roots && config.k3s_supervisor.is_none() {
            return Err("--k3s-supervisor-system-roots: needs --k3s-supervisor".to_owned());
        }

        if node.external_cloud {
            add_default_taint(&mut node.taints, UNINITIALIZED, "true");
        }
        if node.is_guest() {
            add_default_taint(&mut node.taints, NO_PODS, "");
        }

        if values.root_dir.as_os_str().is_empty() {
            return Err("--root-dir: invalid root directory \"\"".to_owned());
        }
        if config.cert_dir.as_os_str().is_empty() {
            config.cert_dir = values.root_dir.join("pki");
        }
        node.node_ips = parse_node_ips(&values.node_ip)
            .map_err(|e| format!("bad --node-ip {:?}: {e}", values.node_ip))?;
        Ok(config)
    }
}

/// Several errors in the form of apimachinery `pkg/util/errors` Aggregate.
fn aggregate(mut errors: Vec<String>) -> Result<(), String> {
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

fn add_default_taint(taints: &mut Vec<Taint>, key: &str, value: &str) {
    if !taints.iter().any(|t| t.key == key && t.effect == "NoSchedule") {
        taints.push(Taint {
            key: key.to_owned(),
            value: value.to_owned(),
            effect: "NoSchedule".to_owned(),
        });
    }
}

/// `--node-ip`, as component-helpers `node/util/ips.go` ParseNodeIPArgument parses it. An item that
/// is not an IP address is dropped with a warning, because a template may leave it empty.
fn parse_node_ips(text: &str) -> Result<Vec<IpAddr>, String> {
    let (mut ips, mut dropped) = (Vec::new(), Vec::new());
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
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
