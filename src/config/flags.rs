//! The flags, their defaults, and the table of settings.
//!
//! One row of the table describes the flag on the command line and the field of the configuration
//! file. As in the kubelet, the file is applied first and the command line second, so a flag
//! overrides the file even with a default value.
//! Names and defaults: `cmd/kubelet/app/options`, `kubelet/config/v1beta1`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::kube::names::Taint;

/// The value of a map flag: `k=v,k2=v2`.
pub type Pairs = BTreeMap<String, String>;

/// The flags. Defaults are the kubelet's, except those that `systemd/README.md` lists under
/// Differences from the kubelet.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "USAGE describes each flag")]
pub struct Flags {
    pub kubeconfig: Option<PathBuf>,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// `None` is `pki` below the root directory.
    pub cert_dir: Option<PathBuf>,
    pub rotate_certificates: bool,
    pub k3s_supervisor: Option<String>,
    pub k3s_supervisor_system_roots: bool,
    pub config: Option<PathBuf>,
    pub hostname_override: Option<String>,
    pub node_ip: String,
    pub node_labels: Vec<String>,
    pub register_node: bool,
    pub register_with_taints: Vec<Taint>,
    pub provider_id: String,
    pub cloud_provider: String,
    pub root_dir: PathBuf,
    pub host_root: PathBuf,
    pub update_frequency: Duration,
    pub report_frequency: Duration,
    /// Zero disables it.
    pub resync_frequency: Duration,
    pub node_lease_duration_seconds: i32,
    /// Empty is the built-in one.
    pub kubelet_version: String,
    pub reject_pods: bool,
    pub max_pods: i32,
    pub pods_per_core: i32,
    pub port: i32,
    pub enable_controller_attach_detach: bool,
    /// `None` is the defaults; an empty map disables all hard thresholds.
    pub eviction_hard: Option<Pairs>,
    pub eviction_soft: Option<Pairs>,
    pub eviction_soft_grace_period: Option<Pairs>,
    pub eviction_minimum_reclaim: Option<Pairs>,
    pub eviction_pressure_transition_period: Duration,
    pub system_reserved: Option<Pairs>,
    pub kube_reserved: Option<Pairs>,
    pub reserved_cpus: String,
    pub allocatable_ignores_eviction: bool,
    pub local_storage_capacity_isolation: bool,
    pub extended_resources: Option<Pairs>,
    pub ready_when_exists: Vec<PathBuf>,
    pub node_problem_detection: String,
    pub node_conditions: Vec<String>,
    /// `None` is no runtime.
    pub container_runtime_endpoint: Option<String>,
    pub image_service_endpoint: Option<String>,
    pub node_status_max_images: i32,
    pub event_qps: i32,
    pub event_burst: i32,
    pub verbosity: u8,
    pub output: Option<String>,
    pub validated_only: ValidatedOnly,
    /// Given flags that have no effect.
    pub ignored: Vec<&'static str>,
    /// Given flags that have no effect yet.
    pub not_yet: Vec<&'static str>,
}

/// Settings that have no effect, and whose values are validated as in the kubelet.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the kubelet's names")]
pub struct ValidatedOnly {
    pub read_only_port: i32,
    pub healthz_port: i32,
    pub kube_api_qps: i32,
    pub kube_api_burst: i32,
    /// `None` is the default, `[pods]`.
    pub enforce_node_allocatable: Option<Vec<String>>,
    /// `None` is the default, true.
    pub cgroups_per_qos: Option<bool>,
    pub cgroup_root: String,
    pub system_cgroups: String,
    pub system_reserved_cgroup: String,
    pub kube_reserved_cgroup: String,
    pub run_once: bool,
    pub lock_file: String,
    pub exit_on_lock_contention: bool,
    // The following have a field in the file and no flag.
    pub swap_behavior: String,
    pub shutdown_grace_period: Duration,
    pub shutdown_grace_period_critical_pods: Duration,
    pub shutdown_by_pod_priority: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            bootstrap_kubeconfig: None,
            cert_dir: None,
            rotate_certificates: false,
            k3s_supervisor: None,
            k3s_supervisor_system_roots: false,
            config: None,
            hostname_override: None,
            node_ip: String::new(),
            node_labels: Vec::new(),
            register_node: true,
            register_with_taints: Vec::new(),
            provider_id: String::new(),
            cloud_provider: String::new(),
            root_dir: "/var/lib/kubelet".into(),
            host_root: "/".into(),
            update_frequency: Duration::from_secs(10),
            report_frequency: Duration::from_secs(300),
            resync_frequency: Duration::ZERO,
            node_lease_duration_seconds: 40,
            kubelet_version: String::new(),
            reject_pods: true,
            max_pods: 0,
            pods_per_core: 0,
            port: 10250,
            enable_controller_attach_detach: true,
            eviction_hard: None,
            eviction_soft: None,
            eviction_soft_grace_period: None,
            eviction_minimum_reclaim: None,
            eviction_pressure_transition_period: Duration::from_secs(300),
            system_reserved: None,
            kube_reserved: None,
            reserved_cpus: String::new(),
            allocatable_ignores_eviction: false,
            local_storage_capacity_isolation: true,
            extended_resources: None,
            ready_when_exists: Vec::new(),
            node_problem_detection: "problems".to_owned(),
            node_conditions: Vec::new(),
            container_runtime_endpoint: None,
            image_service_endpoint: None,
            node_status_max_images: 10,
            event_qps: 50,
            event_burst: 100,
            verbosity: 0,
            output: None,
            validated_only: ValidatedOnly::default(),
            ignored: Vec::new(),
            not_yet: Vec::new(),
        }
    }
}

/// The type of a value, and the function that stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Any text.
    Text(fn(&mut Flags, String)),
    /// A path; need not be UTF-8.
    Path(fn(&mut Flags, PathBuf)),
    /// `true` or `false`; optional for a flag.
    Switch(fn(&mut Flags, bool)),
    /// A 32-bit integer. In the file, 0 keeps the default.
    Number(fn(&mut Flags, i32)),
    /// A 32-bit integer whose field is a pointer (`*int32`), so that 0 is a value.
    NumberOrZero(fn(&mut Flags, i32)),
    /// `10s`.
    Period(fn(&mut Flags, Duration)),
    /// `k=v,…`, with the separator of key and value. The first occurrence on the command line
    /// clears the value of the file, the others add to it.
    Pairs(char, fn(&mut Flags) -> &mut Option<Pairs>),
    /// `a,b`; repeated as `Pairs` are.
    List(fn(&mut Flags) -> &mut Option<Vec<String>>),
    /// `key=value:Effect,…`.
    Taints(fn(&mut Flags, Vec<Taint>)),
}

/// The effect of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Use {
    /// It has an effect.
    Used,
    /// It has no effect without pods.
    Ignored,
    /// It has no effect yet.
    Unimplemented,
}

/// One setting. An empty `flag` or `field` means that there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) flag: &'static str,
    pub(crate) field: &'static str,
    pub(crate) usage: Use,
    pub(crate) kind: Kind,
}

const fn used(flag: &'static str, field: &'static str, kind: Kind) -> Setting {
    Setting {
        flag,
        field,
        usage: Use::Used,
        kind,
    }
}

const fn ignored(flag: &'static str, field: &'static str, kind: Kind) -> Setting {
    Setting {
        usage: Use::Ignored,
        ..used(flag, field, kind)
    }
}

const fn unimplemented(flag: &'static str, field: &'static str, kind: Kind) -> Setting {
    Setting {
        usage: Use::Unimplemented,
        ..used(flag, field, kind)
    }
}

use Kind::{List, Number, NumberOrZero, Pairs as Map, Path, Period, Switch, Taints, Text};

/// Every setting whose value is parsed. `config::ignored` has the others.
#[rustfmt::skip]
pub(crate) const SETTINGS: &[Setting] = &[
    used("kubeconfig", "", Path(|f, v| f.kubeconfig = Some(v))),
    used("config", "", Path(|f, v| f.config = Some(v))),
    used("hostname-override", "", Text(|f, v| f.hostname_override = Some(v))),
    used("node-ip", "", Text(|f, v| f.node_ip = v)),
    used("node-labels", "", Text(|f, v| f.node_labels.push(v))),
    used("cloud-provider", "", Text(|f, v| f.cloud_provider = v)),
    used("root-dir", "", Path(|f, v| f.root_dir = v)),
    used("host-root", "", Path(|f, v| f.host_root = v)),
    used("output", "", Text(|f, v| f.output = Some(v))),
    used("v", "", Number(|f, v| f.verbosity = u8::try_from(v.max(0)).unwrap_or(u8::MAX))),
    used("experimental-allocatable-ignore-eviction", "", Switch(|f, v| f.allocatable_ignores_eviction = v)),
    used("ready-when-exists", "", Path(|f, v| f.ready_when_exists.push(v))),
    used("node-problem-detection", "", Text(|f, v| f.node_problem_detection = v)),
    used("node-condition", "", Text(|f, v| f.node_conditions.push(v))),
    used("extended-resources", "", Map('=', |f| &mut f.extended_resources)),
    used("register-node", "registerNode", Switch(|f, v| f.register_node = v)),
    used("register-with-taints", "registerWithTaints", Taints(|f, v| f.register_with_taints = v)),
    used("provider-id", "providerID", Text(|f, v| f.provider_id = v)),
    used("kubelet-version", "", Text(|f, v| f.kubelet_version = v)),
    used("reject-pods", "", Switch(|f, v| f.reject_pods = v)),
    used("node-status-update-frequency", "nodeStatusUpdateFrequency", Period(|f, v| f.update_frequency = v)),
    used("node-status-report-frequency", "nodeStatusReportFrequency", Period(|f, v| f.report_frequency = v)),
    used("node-resync-frequency", "", Period(|f, v| f.resync_frequency = v)),
    used("node-lease-duration-seconds", "nodeLeaseDurationSeconds", Number(|f, v| f.node_lease_duration_seconds = v)),
    used("max-pods", "maxPods", Number(|f, v| f.max_pods = v)),
    used("pods-per-core", "podsPerCore", Number(|f, v| f.pods_per_core = v)),
    used("port", "port", Number(|f, v| f.port = v)),
    used("enable-controller-attach-detach", "enableControllerAttachDetach", Switch(|f, v| f.enable_controller_attach_detach = v)),
    used("eviction-hard", "evictionHard", Map('<', |f| &mut f.eviction_hard)),
    used("eviction-soft", "evictionSoft", Map('<', |f| &mut f.eviction_soft)),
    used("eviction-soft-grace-period", "evictionSoftGracePeriod", Map('=', |f| &mut f.eviction_soft_grace_period)),
    used("eviction-minimum-reclaim", "evictionMinimumReclaim", Map('=', |f| &mut f.eviction_minimum_reclaim)),
    used("eviction-pressure-transition-period", "evictionPressureTransitionPeriod", Period(|f, v| f.eviction_pressure_transition_period = v)),
    used("system-reserved", "systemReserved", Map('=', |f| &mut f.system_reserved)),
    used("kube-reserved", "kubeReserved", Map('=', |f| &mut f.kube_reserved)),
    used("reserved-cpus", "reservedSystemCPUs", Text(|f, v| f.reserved_cpus = v)),
    used("local-storage-capacity-isolation", "localStorageCapacityIsolation", Switch(|f, v| f.local_storage_capacity_isolation = v)),
    used("bootstrap-kubeconfig", "", Path(|f, v| f.bootstrap_kubeconfig = Some(v))),
    used("cert-dir", "", Path(|f, v| f.cert_dir = Some(v))),
    used("rotate-certificates", "rotateCertificates", Switch(|f, v| f.rotate_certificates = v)),
    used("k3s-supervisor", "", Text(|f, v| f.k3s_supervisor = Some(v))),
    used("k3s-supervisor-system-roots", "", Switch(|f, v| f.k3s_supervisor_system_roots = v)),
    unimplemented("healthz-port", "healthzPort", NumberOrZero(|f, v| f.validated_only.healthz_port = v)),
    unimplemented("healthz-bind-address", "healthzBindAddress", Text(|_, _| {})),
    used("event-qps", "eventRecordQPS", NumberOrZero(|f, v| f.event_qps = v)),
    used("event-burst", "eventBurst", Number(|f, v| f.event_burst = v)),
    used("container-runtime-endpoint", "containerRuntimeEndpoint", Text(|f, v| f.container_runtime_endpoint = Some(v))),
    used("image-service-endpoint", "imageServiceEndpoint", Text(|f, v| f.image_service_endpoint = Some(v))),
    used("node-status-max-images", "nodeStatusMaxImages", NumberOrZero(|f, v| f.node_status_max_images = v)),
    ignored("read-only-port", "readOnlyPort", Number(|f, v| f.validated_only.read_only_port = v)),
    ignored("kube-api-qps", "kubeAPIQPS", NumberOrZero(|f, v| f.validated_only.kube_api_qps = v)),
    ignored("kube-api-burst", "kubeAPIBurst", Number(|f, v| f.validated_only.kube_api_burst = v)),
    ignored("enforce-node-allocatable", "enforceNodeAllocatable", List(|f| &mut f.validated_only.enforce_node_allocatable)),
    ignored("cgroups-per-qos", "cgroupsPerQOS", Switch(|f, v| f.validated_only.cgroups_per_qos = Some(v))),
    ignored("cgroup-root", "cgroupRoot", Text(|f, v| f.validated_only.cgroup_root = v)),
    ignored("system-cgroups", "systemCgroups", Text(|f, v| f.validated_only.system_cgroups = v)),
    ignored("system-reserved-cgroup", "systemReservedCgroup", Text(|f, v| f.validated_only.system_reserved_cgroup = v)),
    ignored("kube-reserved-cgroup", "kubeReservedCgroup", Text(|f, v| f.validated_only.kube_reserved_cgroup = v)),
    ignored("runonce", "runOnce", Switch(|f, v| f.validated_only.run_once = v)),
    ignored("lock-file", "", Text(|f, v| f.validated_only.lock_file = v)),
    ignored("exit-on-lock-contention", "", Switch(|f, v| f.validated_only.exit_on_lock_contention = v)),
    ignored("", "shutdownGracePeriod", Period(|f, v| f.validated_only.shutdown_grace_period = v)),
    ignored("", "shutdownGracePeriodCriticalPods", Period(|f, v| f.validated_only.shutdown_grace_period_critical_pods = v)),
];
