//! The settings of a run: their table, their values before the check, and the names without effect.
//!
//! One row of the table is a flag of the command line and, if the kubelet has one, a field of the
//! configuration file. As in the kubelet, the file is applied first and the command line second, so
//! a flag overrides the file even with a default value.
//! Names and defaults: `cmd/kubelet/app/options`, `kubelet/config/v1beta1`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use super::setting::Kind::{Number, Pairs as Map, Path, Period, Switch, Taints, Text};
use super::setting::{Pairs, Setting, row, set_defaults};
use crate::kube::names;

/// What the command line and the file say.
#[derive(Clone, Debug, PartialEq)]
pub struct Flags {
    /// The value of each setting, given or by default.
    pub values: Values,
    /// What is given and has no effect: flags with their dashes, and fields of a file.
    pub ignored: Vec<String>,
    /// Fields of a file that the kubelet does not have.
    pub unknown: Vec<String>,
    /// Values out of their range, by flag. They count only if the flag has no later value.
    pub(super) faults: BTreeMap<&'static str, String>,
}

/// The values of the settings.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the help texts of SETTINGS")]
pub struct Values {
    /// The values that need no further check. [`Config::new`] adds the rest.
    pub config: Config,
    pub config_file: Option<PathBuf>,
    pub config_dir: Option<PathBuf>,
    pub hostname_override: String,
    pub node_ip: String,
    pub cloud_provider: String,
    pub root_dir: PathBuf,
    pub host_root: PathBuf,
    pub kubelet_version: String,
    /// `None` is the defaults; an empty map disables all hard thresholds.
    pub eviction_hard: Option<Pairs>,
    pub eviction_soft: Pairs,
    pub eviction_soft_grace_period: Pairs,
    pub eviction_minimum_reclaim: Pairs,
    pub system_reserved: Pairs,
    pub kube_reserved: Pairs,
    pub reserved_cpus: String,
    pub allocatable_ignores_eviction: bool,
    pub extended_resources: Pairs,
    pub runtime_endpoint: String,
    pub image_endpoint: String,
    pub max_images: i32,
    pub runtime_facts: PathBuf,
    pub ready_when_exists: Vec<PathBuf>,
    pub node_problem_detection: String,
    pub node_conditions: Vec<String>,
    pub verbosity: u8,
    pub client_ca_file: Option<PathBuf>,
    pub anonymous_auth: bool,
    pub accepts_tokens: bool,
    pub token_ttl: Duration,
    pub authorization_mode: String,
    pub authorized_ttl: Duration,
    pub unauthorized_ttl: Duration,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_private_key_file: Option<PathBuf>,
    pub rotate_server_certificates: bool,
    pub tls_min_version: String,
    pub system_log_query: bool,
    pub idle_exit: Duration,
    pub listen: String,
    pub output: Option<String>,
}

impl Default for Flags {
    fn default() -> Self {
        let (values, ignored, unknown, faults) = Default::default();
        let mut flags = Self { values, ignored, unknown, faults };
        set_defaults(SETTINGS, &mut flags.values);
        flags
    }
}

impl Flags {
    /// Keeps the fault of a new value, and forgets the fault of the value before.
    pub(super) fn note(&mut self, flag: &'static str, fault: Option<String>) {
        match fault {
            Some(fault) => self.faults.insert(flag, fault),
            None => self.faults.remove(flag),
        };
    }
}

/// Logs each name once: flags first, because of their dashes.
pub fn log_ignored(mut names: Vec<String>) {
    names.sort_unstable();
    names.dedup();
    if !names.is_empty() {
        log::info!("ignored: {}", names.join(", "));
    }
}

/// An empty path is no path, as in the kubelet.
fn path(path: PathBuf) -> Option<PathBuf> {
    Some(path).filter(|path| !path.as_os_str().is_empty())
}

const MAX: i32 = i32::MAX;
const SECOND: Duration = Duration::from_secs(1);
/// Shortest time between two computations of the status. The kubelet has no limit; here a very
/// short time would be a busy loop.
const SHORTEST_UPDATE: Duration = Duration::from_millis(10);
/// Shortest time between two reports; each is a request.
pub(super) const SHORTEST_REPORT: Duration = SECOND;

/// A row with the name of its field in the configuration file.
const fn field(field: &'static str, row: Setting<Values>) -> Setting<Values> {
    Setting { field, ..row }
}

/// A row of a flag that the kubelet does not have.
const fn own(row: Setting<Values>) -> Setting<Values> {
    Setting { own: true, ..row }
}

/// A row of the short help: what boards need most often.
const fn basic(row: Setting<Values>) -> Setting<Values> {
    Setting { basic: true, ..row }
}

/// Every setting that has an effect, in the order of `--help`.
#[rustfmt::skip]
pub const SETTINGS: &[Setting<Values>] = &[
    basic(row("kubeconfig", "FILE", "", "address of the API server, and credentials; needed for a run",
        Path(|v, given| v.config.kubeconfig = path(given)))),
    row("bootstrap-kubeconfig", "FILE", "",
        "kubeconfig for requesting a certificate if --kubeconfig is missing or not valid; \
         --kubeconfig is then written",
        Path(|v, given| v.config.bootstrap_kubeconfig = path(given))),
    row("cert-dir", "DIR", "", "certificates and keys (default pki in --root-dir)",
        Path(|v, given| v.config.cert_dir = given)),
    field("rotateCertificates", row("rotate-certificates", "", "",
        "renew the certificate at 70 to 90 % of its lifetime",
        Switch(|v, given| v.config.rotate_certificates = given))),
    own(row("k3s-supervisor", "URL", "",
        "k3s or rke2 server that renews it; needs --rotate-certificates; set by join",
        Text(|v, given| v.config.k3s_supervisor = Some(given).filter(|url| !url.is_empty())))),
    own(row("k3s-supervisor-system-roots", "", "",
        "verify that server with the CAs of the system, not with that of --kubeconfig; set by join",
        Switch(|v, given| v.config.k3s_supervisor_system_roots = given))),
    basic(row("hostname-override", "NAME", "",
        "name of the Node instead of the host name; lower case, at most 63 characters",
        Text(|v, given| v.hostname_override = given))),
    basic(row("node-ip", "IP[,IP]", "",
        "address of the Node instead of the default route's; 0.0.0.0 or :: prefers a family",
        Text(|v, given| v.node_ip = given))),
    basic(row("node-labels", "K=V,...", "",
        "labels of a new Node; can be repeated; those of topology and of a guest are also set at \
         each start",
        Text(|v, given| names::parse_labels(&given, &mut v.config.node.labels)))),
    field("registerNode", row("register-node", "", "true",
        "create the Node if it does not exist; if false, wait for it",
        Switch(|v, given| v.config.node.register = given))),
    field("registerWithTaints", row("register-with-taints", "K=V:EFFECT,...", "",
        "taints of a new Node",
        Taints(|v, given| v.config.node.taints = given))),
    field("providerID", row("provider-id", "ID", "", "spec.providerID of a new Node",
        Text(|v, given| v.config.node.provider_id = given))),
    row("cloud-provider", "external", "", "a cloud controller sets the addresses",
        Text(|v, given| v.cloud_provider = given)),
    basic(row("root-dir", "DIR", "/var/lib/kubelet",
        "its file system is the ephemeral-storage of the Node; it may be missing",
        Path(|v, given| v.root_dir = given))),
    field("nodeStatusUpdateFrequency", row("node-status-update-frequency", "D", "10s",
        "how often the status is computed",
        Period(SHORTEST_UPDATE, |v, given| v.config.update_frequency = given))),
    field("nodeStatusReportFrequency", own(row("node-status-report-frequency", "D", "5m",
        "how often an unchanged status is sent",
        Period(SHORTEST_REPORT, |v, given| v.config.report_frequency = given)))),
    own(row("node-resync-frequency", "D", "149s",
        "how often, between two reports, a patch without a change looks for changes of the Node by \
         others; for two minutes after a start or an outage, with each renewal",
        Period(SECOND, |v, given| v.config.resync_frequency = given))),
    field("nodeLeaseDurationSeconds", own(row("node-lease-duration-seconds", "N", "40",
        "duration of the Lease; renewed at a quarter of it",
        Number(1, MAX, |v, given| v.config.lease_duration_seconds = given.unsigned_abs())))),
    own(row("kubelet-version", "VERSION|server", "",
        "kubelet version to report (default the built-in one); server: that of the API server; the \
         alert rules find boards by -nodelet. in it",
        Text(|v, given| v.kubelet_version = given))),
    field("maxPods", row("max-pods", "N", "0",
        "pod capacity of the Node; with 0 it has the taint nodelet/no-pods:NoSchedule and the \
         labels of a guest",
        Number(0, MAX, |v, given| v.config.node.max_pods = given.unsigned_abs()))),
    own(row("reject-pods", "", "true", "end pods that are bound to a Node without pod capacity",
        Switch(|v, given| v.config.node.reject_pods = given))),
    field("podsPerCore", row("pods-per-core", "N", "0",
        "limits --max-pods to N per core; 0 is no limit",
        Number(0, MAX, |v, given| v.config.node.pods_per_core = given.unsigned_abs()))),
    field("port", row("port", "N", "10250", "kubelet port to report; nodelet serve listens on it, if its socket is enabled",
        Number(1, 65535, |v, given| v.config.node.port = u16::try_from(given).unwrap_or(0)))),
    field("enableControllerAttachDetach", row("enable-controller-attach-detach", "", "true",
        "set its annotation of the Node",
        Switch(|v, given| v.config.node.controller_attach_detach = given))),
    field("evictionHard", row("eviction-hard", "S<V,...", "",
        "thresholds of memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, \
         imagefs.inodesFree and pid.available, as quantity or percentage; empty is none (default \
         memory.available<100Mi, nodefs.available<10%, nodefs.inodesFree<5%, \
         imagefs.available<15%, imagefs.inodesFree<5%)",
        Map('<', |v| v.eviction_hard.get_or_insert_default()))),
    field("evictionSoft", row("eviction-soft", "S<V,...", "",
        "thresholds that must be met for a grace period",
        Map('<', |v| &mut v.eviction_soft))),
    field("evictionSoftGracePeriod", row("eviction-soft-grace-period", "S=D,...", "",
        "their grace periods; each soft threshold needs one",
        Map('=', |v| &mut v.eviction_soft_grace_period))),
    field("evictionMinimumReclaim", row("eviction-minimum-reclaim", "S=V,...", "",
        "amount above the threshold that ends the pressure",
        Map('=', |v| &mut v.eviction_minimum_reclaim))),
    field("evictionPressureTransitionPeriod", row("eviction-pressure-transition-period", "D", "5m",
        "how long a pressure condition stays after its cause has ended",
        Period(Duration::ZERO, |v, given| v.config.pressure_transition_period = given))),
    field("systemReserved", row("system-reserved", "R=Q,...", "",
        "cpu, memory, ephemeral-storage and pid reserved from pods",
        Map('=', |v| &mut v.system_reserved))),
    field("kubeReserved", row("kube-reserved", "R=Q,...", "", "the same; both are added",
        Map('=', |v| &mut v.kube_reserved))),
    field("reservedSystemCPUs", row("reserved-cpus", "LIST", "",
        "replaces cpu in both: 0-1,3 reserves three cpus",
        Text(|v, given| v.reserved_cpus = given))),
    row("experimental-allocatable-ignore-eviction", "", "", "hard thresholds reserve nothing",
        Switch(|v, given| v.allocatable_ignores_eviction = given)),
    field("localStorageCapacityIsolation", row("local-storage-capacity-isolation", "", "true",
        "report ephemeral-storage",
        Switch(|v, given| v.config.local_storage = given))),
    own(row("extended-resources", "NAME=Q,...", "", "devices of the board: example.com/camera=1",
        Map('=', |v| &mut v.extended_resources))),
    basic(row("config", "FILE", "", "KubeletConfiguration, YAML or JSON; flags override it",
        Path(|v, given| v.config_file = path(given)))),
    row("config-dir", "DIR", "",
        "drop-ins: its files *.conf, also in folders below it, are merged over --config in the \
         order of their names",
        Path(|v, given| v.config_dir = path(given))),
    basic(field("containerRuntimeEndpoint", row("container-runtime-endpoint", "URL", "",
        "unix://PATH: CRI of containerd or CRI-O; docker://PATH or podman://PATH; none by default",
        Text(|v, given| v.runtime_endpoint = given)))),
    own(row("container-runtime-facts", "PATH", "/run/nodelet-runtime/facts",
        "file that nodelet runtime writes and the agent reads",
        Path(|v, given| v.runtime_facts = given))),
    field("imageServiceEndpoint", row("image-service-endpoint", "URL", "",
        "CRI socket of the images (default that of the runtime)",
        Text(|v, given| v.image_endpoint = given))),
    field("nodeStatusMaxImages", row("node-status-max-images", "N", "10",
        "images in the Node, largest first; -1 is all",
        Number(-1, MAX, |v, given| v.max_images = given))),
    field("eventRecordQPS", row("event-qps", "N", "50", "events per second at most; 0 is no limit",
        Number(0, MAX, |v, given| v.config.event_qps = given.unsigned_abs()))),
    field("eventBurst", row("event-burst", "N", "100", "events at once at most",
        Number(0, MAX, |v, given| v.config.event_burst = given.unsigned_abs()))),
    own(row("ready-when-exists", "PATH", "", "Ready is False until PATH exists; can be repeated",
        Path(|v, given| v.ready_when_exists.push(given)))),
    basic(own(row("node-problem-detection", "LIST", "problems",
        "conditions about the board's health: problems (listed when True), all, none; TYPE,... \
         restricts, -TYPE,... excludes",
        Text(|v, given| v.node_problem_detection = given)))),
    own(row("node-condition", "TYPE=PATH", "",
        "condition TYPE is True while PATH exists; can be repeated",
        Text(|v, given| v.node_conditions.push(given)))),
    own(row("host-root", "DIR", "/",
        "read /proc, /sys and /etc below DIR; below another root than / no name server is asked",
        Path(|v, given| v.host_root = given))),
    field("authentication.x509.clientCAFile", row("client-ca-file", "FILE", "",
        "serve: CA of client certificates (default the CA that signed the board's certificate)",
        Path(|v, given| v.client_ca_file = path(given)))),
    field("authentication.anonymous.enabled", row("anonymous-auth", "", "",
        "must be false: serve has no anonymous access",
        Switch(|v, given| v.anonymous_auth = given))),
    field("authentication.webhook.enabled", row("authentication-token-webhook", "", "true",
        "serve: ask the API server whose a bearer token is; if false, take only client certificates",
        Switch(|v, given| v.accepts_tokens = given))),
    field("authentication.webhook.cacheTTL", row("authentication-token-webhook-cache-ttl", "D",
        "2m", "serve: how long the answer about a good token is used",
        Period(Duration::ZERO, |v, given| v.token_ttl = given))),
    field("authorization.mode", row("authorization-mode", "Webhook", "Webhook",
        "serve: ask the API server what a user may; AlwaysAllow is refused",
        Text(|v, given| v.authorization_mode = given))),
    field("authorization.webhook.cacheAuthorizedTTL", row(
        "authorization-webhook-cache-authorized-ttl", "D", "5m", "serve: how long an allowed request stays allowed",
        Period(Duration::ZERO, |v, given| v.authorized_ttl = given))),
    field("authorization.webhook.cacheUnauthorizedTTL", row(
        "authorization-webhook-cache-unauthorized-ttl", "D", "30s", "serve: how long a denied request stays denied",
        Period(Duration::ZERO, |v, given| v.unauthorized_ttl = given))),
    field("tlsCertFile", row("tls-cert-file", "FILE", "",
        "serve: its certificate, read again when it changes (default a self-signed one)",
        Path(|v, given| v.tls_cert_file = path(given)))),
    field("tlsPrivateKeyFile", row("tls-private-key-file", "FILE", "", "serve: the key of --tls-cert-file",
        Path(|v, given| v.tls_private_key_file = path(given)))),
    field("serverTLSBootstrap", row("rotate-server-certificates", "", "",
        "serve: request its certificate from the cluster; somebody must approve it",
        Switch(|v, given| v.rotate_server_certificates = given))),
    field("tlsMinVersion", row("tls-min-version", "VERSION", "VersionTLS12",
        "serve: VersionTLS12 or VersionTLS13",
        Text(|v, given| v.tls_min_version = given))),
    field("enableSystemLogQuery", own(row("enable-system-log-query", "", "",
        "serve: answer /logs/ with the journal, through nodelet-logs.socket",
        Switch(|v, given| v.system_log_query = given)))),
    own(row("idle-exit", "D", "5m", "serve: exit after so long without a connection; 0 is never",
        Period(Duration::ZERO, |v, given| v.idle_exit = given))),
    own(row("listen", "ADDR:PORT", "",
        "serve: listen there, and not on the socket of nodelet-serve.socket",
        Text(|v, given| v.listen = given))),
    own(row("state-file", "PATH", "",
        "state of the Lease, which the agent writes and serve reads (default state in \
         $RUNTIME_DIRECTORY, or none; serve: /run/nodelet/state)",
        Path(|v, given| v.config.state_file = path(given)))),
    basic(own(row("output", "json|text", "",
        "inspect: the Node as json (default), or as text like kubectl describe node; check: json, \
         or text (default)",
        Text(|v, given| v.output = Some(given))))),
    basic(row("v", "N", "0", "log verbosity: 2 adds each request",
        Number(i32::MIN, MAX, |v, given| v.verbosity = u8::try_from(given.max(0)).unwrap_or(u8::MAX)))),
];

/// The kubelet's flags and fields that have no effect on a node without pods: `--name` of a boolean
/// flag, `--name=` of one with a value, `name` of a field. Any value is accepted, so that a
/// kubelet's unit and configuration file start the agent, and one line of the log names them.
const IGNORED: &str = "\
    --address= --allowed-unsafe-sysctls= --application-metrics-count-limit= --boot-id-file= \
    --cgroup-driver= --cgroup-root= --cgroups-per-qos --cluster-dns= --cluster-domain= \
    --container-hints= --container-log-max-files= --container-log-max-size= \
    --containerd= --containerd-namespace= --contention-profiling --cpu-cfs-quota \
    --cpu-cfs-quota-period= --cpu-manager-policy= --cpu-manager-policy-options= \
    --cpu-manager-reconcile-period= --enable-debugging-handlers --enable-load-reader \
    --enable-server --enforce-node-allocatable= --event-storage-age-limit= \
    --event-storage-event-limit= --eviction-max-pod-grace-period= --exit-on-lock-contention \
    --experimental-mounter-path= --fail-cgroupv1 --fail-swap-on --feature-gates= \
    --file-check-frequency= --global-housekeeping-interval= --hairpin-mode= \
    --healthz-bind-address= --healthz-port= --housekeeping-interval= --http-check-frequency= \
    --image-credential-provider-bin-dir= --image-credential-provider-config= \
    --image-gc-high-threshold= --image-gc-low-threshold= --iptables-drop-bit= \
    --iptables-masquerade-bit= --kernel-memcg-notification --kube-api-burst= \
    --kube-api-content-type= --kube-api-qps= --kube-reserved-cgroup= --kubelet-cgroups= \
    --lock-file= --log-cadvisor-usage --log-flush-frequency= --log-json-info-buffer-size= \
    --log-json-split-stream --log-text-info-buffer-size= --log-text-split-stream --logging-format= \
    --machine-id-file= --make-iptables-util-chains --manifest-url= --manifest-url-header= \
    --max-open-files= --maximum-dead-containers= --maximum-dead-containers-per-container= \
    --memory-manager-policy= --minimum-container-ttl-duration= --minimum-image-ttl-duration= \
    --oom-score-adj= --pod-cidr= --pod-infra-container-image= --pod-manifest-path= --pod-max-pids= \
    --protect-kernel-defaults --qos-reserved= --read-only-port= --registry-burst= --registry-qps= \
    --reserved-memory= --resolv-conf= --runonce --runtime-cgroups= --runtime-request-timeout= \
    --seccomp-default --serialize-image-pulls --storage-driver-buffer-duration= \
    --storage-driver-db= --storage-driver-host= --storage-driver-password= --storage-driver-secure \
    --storage-driver-table= --storage-driver-user= --streaming-connection-idle-timeout= \
    --sync-frequency= --system-cgroups= --system-reserved-cgroup= --tls-cipher-suites= \
    --tls-curve-preferences= --topology-manager-policy= --topology-manager-policy-options= \
    --topology-manager-scope= --vmodule= --volume-plugin-dir= --volume-stats-agg-period= \
    address allowedUnsafeSysctls cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS clusterDomain \
    configMapAndSecretChangeDetectionStrategy containerLogMaxFiles containerLogMaxSize \
    containerLogMaxWorkers containerLogMonitorInterval contentType cpuCFSQuota cpuCFSQuotaPeriod \
    cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff \
    draManagerReconcilePeriod enableContentionProfiling enableDebugFlagsHandler \
    enableDebuggingHandlers enableProfilingHandler enableServer enableSystemLogHandler \
    enforceNodeAllocatable evictionMaxPodGracePeriod failCgroupV1 failSwapOn featureGates \
    fileCheckFrequency hairpinMode healthzBindAddress healthzPort httpCheckFrequency \
    imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge \
    imagePullCredentialsVerificationPolicy iptablesDropBit iptablesMasqueradeBit \
    kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReservedCgroup kubeletCgroups logging \
    makeIPTablesUtilChains maxOpenFiles maxParallelImagePulls memoryManagerPolicy \
    memoryReservationPolicy memorySwap memoryThrottlingFactor oomScoreAdj podCIDR podLogsDir \
    podPidsLimit preloadedImagesVerificationAllowlist protectKernelDefaults qosReserved \
    readOnlyPort registryBurst registryPullQPS reservedMemory resolvConf runOnce \
    runtimeRequestTimeout seccompDefault serializeImagePulls showHiddenMetricsForVersion \
    shutdownGracePeriod shutdownGracePeriodByPodPriority shutdownGracePeriodCriticalPods \
    singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader \
    streamingConnectionIdleTimeout syncFrequency systemCgroups systemReservedCgroup \
    tlsCipherSuites tlsCurvePreferences topologyManagerPolicy topologyManagerPolicyOptions \
    topologyManagerScope tracing userNamespaces volumePluginDir volumeStatsAggPeriod \
";

/// The ignored flag `name`, and whether it needs a value.
pub(super) fn ignored_flag(name: &str) -> Option<(&'static str, bool)> {
    let mut flags = IGNORED.split_ascii_whitespace().filter_map(|word| word.strip_prefix("--"));
    flags.find_map(|word| match word.strip_suffix('=') {
        Some(flag) => (flag == name).then_some((flag, true)),
        None => (word == name).then_some((word, false)),
    })
}

/// Whether `name` is an ignored field of the configuration file.
pub(super) fn is_ignored_field(name: &str) -> bool {
    IGNORED.split_ascii_whitespace().any(|word| word == name && !word.starts_with("--"))
}
