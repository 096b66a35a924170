//! The configuration: parses flags and the configuration file and validates them.
//!
//! Each error is one line that names the flag. Validation comes before any request. Error texts are
//! the kubelet's where it has one (`cmd/kubelet/app/options`).

pub mod command_line;
pub mod file;
pub mod flags;
mod ignored;
mod node_ip;
pub mod problems;
mod reservation;
pub mod runtime;
pub mod thresholds;
mod validation;

pub use node_ip::parse_ip;
pub use reservation::{Reservation, Resources};

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::flags::{Flags, Pairs};
use crate::config::problems::Problems;
use crate::config::runtime::RuntimeConfig;
use crate::config::thresholds::Threshold;
use crate::kube::names::{self, Taint};
use crate::kube::version::Version;

/// `status.nodeInfo.kubeletVersion`: the Kubernetes version whose node behaviour is implemented,
/// with a suffix for nodelet. Version-skew checkers parse it.
pub const KUBELET_VERSION: &str = concat!("v1.36.2-nodelet.", env!("CARGO_PKG_VERSION"));

/// The form of [`KUBELET_VERSION`] with another Kubernetes version.
pub fn kubelet_version(kubernetes: Version) -> String {
    format!("{kubernetes}-nodelet.{}", env!("CARGO_PKG_VERSION"))
}

/// The taint of a Node with `--max-pods=0`. It keeps pods away that nodelet cannot run.
pub const NO_PODS: &str = "nodelet/no-pods";

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
    /// `--k3s-supervisor`: the URL of the supervisor that signs instead of the cluster.
    pub k3s_supervisor: Option<String>,
    /// `--k3s-supervisor-system-roots`: the system's root certificates verify the supervisor; the
    /// CA of the kubeconfig does not.
    pub k3s_supervisor_system_roots: bool,
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
    /// `--kubelet-version=server`: the Node reports the version of the API server.
    pub reports_server_version: bool,
    /// `--node-problem-detection` and `--node-condition`.
    pub problems: Problems,
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
    /// `--port`: only reported; nothing listens on it.
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
        Self::named(flags, &hostname)
    }

    /// Not generic, so that its callers share one copy.
    fn named(flags: Flags, hostname: &str) -> Result<Self, String> {
        let name = names::node_name(hostname).map_err(|e| format!("hostname: {e}"))?;

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

        let reports_server_version = flags.kubelet_version == "server";
        let kubelet_version = match flags.kubelet_version.as_str() {
            "" | "server" => KUBELET_VERSION.to_owned(),
            text if Version::parse(text).is_some() => text.to_owned(),
            text => {
                return Err(format!(
                    "--kubelet-version {text:?}: neither a version like v1.36.2 nor server"
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
        let bootstrap_kubeconfig = non_empty(flags.bootstrap_kubeconfig);
        let k3s_supervisor = flags.k3s_supervisor.filter(|url| !url.is_empty());
        if let Some(url) = &k3s_supervisor
            && !(url.starts_with("https://")
                && flags.rotate_certificates
                && bootstrap_kubeconfig.is_none())
        {
            // The URL is not quoted: it may have a password in it.
            return Err(
                "--k3s-supervisor: needs https, --rotate-certificates and no --bootstrap-kubeconfig"
                    .to_owned(),
            );
        }

        if flags.k3s_supervisor_system_roots && k3s_supervisor.is_none() {
            return Err("--k3s-supervisor-system-roots: needs --k3s-supervisor".to_owned());
        }

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
            bootstrap_kubeconfig,
            cert_dir: non_empty(flags.cert_dir).unwrap_or_else(|| flags.root_dir.join("pki")),
            rotate_certificates: flags.rotate_certificates,
            k3s_supervisor,
            k3s_supervisor_system_roots: flags.k3s_supervisor_system_roots,
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
            reports_server_version,
            problems: Problems::parse(&flags.node_problem_detection, &flags.node_conditions)?,
            runtime,
            node: NodeConfig {
                name,
                register: flags.register_node,
                node_ips: node_ip::parse(&flags.node_ip)
                    .map_err(|e| format!("bad --node-ip {:?}: {e}", flags.node_ip))?,
                external_cloud,
                labels,
                taints,
                provider_id: flags.provider_id,
                kubelet_version,
                reject_pods: flags.reject_pods,
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

#[cfg(test)]
mod tests;
