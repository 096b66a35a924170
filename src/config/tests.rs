use serde_json::{Value, json};

use super::*;
use crate::config::command_line::{self, Command};
use crate::config::file::Document;
use crate::config::flags::{SETTINGS, Values};
use crate::config::setting::{Kind, Pairs, Setting};
use crate::config::thresholds::{self, Amount, Signal};
use crate::kube::object;

/// The configuration of a command line, on a host called `Pi-3.lab`.
fn config(words: &[&str]) -> Result<Config, String> {
    let words = words.iter().map(Into::into);
    match command_line::parse(words)? {
        (Command::Run, flags) => Config::new(*flags, || Ok("Pi-3.lab\n".to_owned())),
        other => Err(format!("{other:?}")),
    }
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() }
}

/// A flag, its field in a file, a value, and what that changes.
type Row = (&'static str, &'static str, &'static str, fn(&mut Values));

fn map(key: &str, value: &str) -> Pairs {
    Pairs::from([(key.to_owned(), value.to_owned())])
}

fn duration(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A row for each of [`SETTINGS`], in its order. No value is the default.
const VALUES: &[Row] = &[
    ("kubeconfig", "", "-/k", |v| v.config.kubeconfig = Some("-/k".into())),
    ("bootstrap-kubeconfig", "", "/b", |v| v.config.bootstrap_kubeconfig = Some("/b".into())),
    ("cert-dir", "", "/c", |v| v.config.cert_dir = "/c".into()),
    ("rotate-certificates", "rotateCertificates", "true", |v| v.config.rotate_certificates = true),
    ("k3s-supervisor", "", "https://s", |v| v.config.k3s_supervisor = Some("https://s".into())),
    ("k3s-supervisor-system-roots", "", "true", |v| v.config.k3s_supervisor_system_roots = true),
    ("hostname-override", "", "pi", |v| v.hostname_override = "pi".into()),
    ("node-ip", "", "-1.2.3.4", |v| v.node_ip = "-1.2.3.4".into()),
    ("node-labels", "", "a_b=c", |v| v.config.node.labels = map("a_b", "c")),
    ("register-node", "registerNode", "false", |v| v.config.node.register = false),
    ("register-with-taints", "registerWithTaints", "a=b:NoSchedule,c:NoExecute", |v| {
        v.config.node.taints = vec![taint("a", "b", "NoSchedule"), taint("c", "", "NoExecute")];
    }),
    ("provider-id", "providerID", "lab://3", |v| v.config.node.provider_id = "lab://3".into()),
    ("cloud-provider", "", "external", |v| v.cloud_provider = "external".into()),
    ("root-dir", "", "/r", |v| v.root_dir = "/r".into()),
    // A file sets the report frequency, too: this is its default.
    ("node-status-update-frequency", "nodeStatusUpdateFrequency", "5m", |v| {
        v.config.update_frequency = duration(300);
    }),
    ("node-status-report-frequency", "nodeStatusReportFrequency", "10m", |v| {
        v.config.report_frequency = duration(600);
    }),
    ("node-resync-frequency", "", "1m1s", |v| v.config.resync_frequency = duration(61)),
    ("node-lease-duration-seconds", "nodeLeaseDurationSeconds", "60", |v| {
        v.config.lease_duration_seconds = 60;
    }),
    ("kubelet-version", "", "server", |v| v.kubelet_version = "server".into()),
    ("max-pods", "maxPods", "7", |v| v.config.node.max_pods = 7),
    ("reject-pods", "", "false", |v| v.config.node.reject_pods = false),
    ("pods-per-core", "podsPerCore", "2", |v| v.config.node.pods_per_core = 2),
    ("port", "port", "10260", |v| v.config.node.port = 10260),
    ("enable-controller-attach-detach", "enableControllerAttachDetach", "false", |v| {
        v.config.node.controller_attach_detach = false;
    }),
    ("eviction-hard", "evictionHard", "a<1", |v| v.eviction_hard = Some(map("a", "1"))),
    ("eviction-soft", "evictionSoft", " a < 2 ,", |v| v.eviction_soft = map("a", "2")),
    ("eviction-soft-grace-period", "evictionSoftGracePeriod", "a=1m30s", |v| {
        v.eviction_soft_grace_period = map("a", "1m30s");
    }),
    ("eviction-minimum-reclaim", "evictionMinimumReclaim", "a=5%", |v| {
        v.eviction_minimum_reclaim = map("a", "5%");
    }),
    ("eviction-pressure-transition-period", "evictionPressureTransitionPeriod", "1m", |v| {
        v.config.pressure_transition_period = duration(60);
    }),
    ("system-reserved", "systemReserved", "cpu=1", |v| v.system_reserved = map("cpu", "1")),
    ("kube-reserved", "kubeReserved", "memory=1Gi", |v| v.kube_reserved = map("memory", "1Gi")),
    ("reserved-cpus", "reservedSystemCPUs", "0-1", |v| v.reserved_cpus = "0-1".into()),
    ("experimental-allocatable-ignore-eviction", "", "true", |v| {
        v.allocatable_ignores_eviction = true;
    }),
    ("local-storage-capacity-isolation", "localStorageCapacityIsolation", "false", |v| {
        v.config.local_storage = false;
    }),
    ("extended-resources", "", "a.b/c=1", |v| v.extended_resources = map("a.b/c", "1")),
    ("config", "", "/f", |v| v.config_file = Some("/f".into())),
    ("config-dir", "", "/f.d", |v| v.config_dir = Some("/f.d".into())),
    ("container-runtime-endpoint", "containerRuntimeEndpoint", "unix:///r", |v| {
        v.runtime_endpoint = "unix:///r".into();
    }),
    ("container-runtime-facts", "", "/x", |v| v.runtime_facts = "/x".into()),
    ("image-service-endpoint", "imageServiceEndpoint", "/i", |v| {
        v.image_endpoint = "/i".into();
    }),
    ("node-status-max-images", "nodeStatusMaxImages", "3", |v| v.max_images = 3),
    ("event-qps", "eventRecordQPS", "5", |v| v.config.event_qps = 5),
    ("event-burst", "eventBurst", "9", |v| v.config.event_burst = 9),
    ("ready-when-exists", "", "/e", |v| v.ready_when_exists = vec!["/e".into()]),
    ("node-problem-detection", "", "all", |v| v.node_problem_detection = "all".into()),
    ("node-condition", "", "A=/a", |v| v.node_conditions = vec!["A=/a".into()]),
    ("host-root", "", "/h", |v| v.host_root = "/h".into()),
    ("client-ca-file", "authentication.x509.clientCAFile", "/ca", |v| {
        v.client_ca_file = Some("/ca".into());
    }),
    ("anonymous-auth", "authentication.anonymous.enabled", "true", |v| v.anonymous_auth = true),
    ("authentication-token-webhook", "authentication.webhook.enabled", "false", |v| {
        v.accepts_tokens = false;
    }),
    ("authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL", "1m", |v| {
        v.token_ttl = duration(60);
    }),
    ("authorization-mode", "authorization.mode", "None", |v| v.authorization_mode = "None".into()),
    (
        "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cacheAuthorizedTTL",
        "2m",
        |v| v.authorized_ttl = duration(120),
    ),
    (
        "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cacheUnauthorizedTTL",
        "3m",
        |v| v.unauthorized_ttl = duration(180),
    ),
    ("tls-cert-file", "tlsCertFile", "/crt", |v| v.tls_cert_file = Some("/crt".into())),
    ("tls-private-key-file", "tlsPrivateKeyFile", "/key", |v| {
        v.tls_private_key_file = Some("/key".into());
    }),
    ("rotate-server-certificates", "serverTLSBootstrap", "true", |v| {
        v.rotate_server_certificates = true;
    }),
    ("tls-min-version", "tlsMinVersion", "VersionTLS13", |v| {
        v.tls_min_version = "VersionTLS13".into();
    }),
    ("enable-system-log-query", "enableSystemLogQuery", "true", |v| v.system_log_query = true),
    ("idle-exit", "", "0", |v| v.idle_exit = Duration::ZERO),
    ("listen", "", "[::]:1", |v| v.listen = "[::]:1".into()),
    ("state-file", "", "/s", |v| v.config.state_file = Some("/s".into())),
    ("output", "", "text", |v| v.output = Some("text".into())),
    ("v", "", "300", |v| v.verbosity = 255),
];

/// A file with this field alone.
fn document(field: &str, value: Value) -> Document {
    let mut document =
        json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
    object::set(&mut document, &field.split('.').collect::<Vec<_>>(), value);
    Document::parse(String::new(), document.to_string().as_bytes()).unwrap()
}

/// The value of a field that is `text` as a flag, and what means no value.
fn in_a_file(setting: &Setting<Values>, text: &str, values: &mut Values) -> (Value, Value) {
    match setting.kind {
        Kind::Text(_) | Kind::Path(_) => (json!(text), json!("")),
        Kind::Period(..) => (json!(text), json!("0s")),
        Kind::Switch(_) => (json!(text == "true"), Value::Null),
        Kind::Number(..) => (json!(text.parse::<i32>().unwrap()), json!(0)),
        Kind::Pairs(_, slot) => (json!(slot(values)), Value::Null),
        Kind::Taints(_) => (json!(values.config.node.taints), Value::Null),
    }
}

/// `kubelet/config/v1beta1/types.go`: 0 is a value where the field is a pointer.
const ZERO_IS_A_VALUE: [&str; 2] = ["eventRecordQPS", "nodeStatusMaxImages"];

#[test]
fn each_setting_has_its_value_from_a_flag_in_each_form_and_from_its_field() {
    let names: Vec<_> = SETTINGS.iter().map(|setting| (setting.flag, setting.field)).collect();
    let rows: Vec<_> = VALUES.iter().map(|(flag, field, ..)| (*flag, *field)).collect();
    assert_eq!(names, rows);
    let flags = |words: &[&str]| {
        let mut flags = Flags::default();
        let args = words.iter().map(Into::into).collect();
        assert_eq!(command_line::apply(args, &mut flags), Ok(Command::Run), "{words:?}");
        flags
    };
    let usage = command_line::usage(true);
    for (setting, (name, field, text, change)) in SETTINGS.iter().zip(VALUES.iter().copied()) {
        let mut want = Flags::default();
        change(&mut want.values);
        assert_ne!(want, Flags::default(), "{name}: {text} is the default");
        let under = name.replace('-', "_");
        for words in [
            &[&*format!("--{name}={text}")][..],
            &[&*format!("--{name}"), text],
            &[&*format!("--{under}={text}")],
            &[&*format!("--{under}"), text],
        ] {
            assert_eq!(flags(words), want, "{words:?}");
        }
        if !field.is_empty() {
            let (value, zero) = in_a_file(setting, text, &mut want.values);
            let mut found = Flags::default();
            file::apply(Some(&document(field, value)), &[], &mut found).unwrap();
            assert_eq!(found, want, "{field}");
            for none in [Value::Null, zero] {
                file::apply(Some(&document(field, none.clone())), &[], &mut found).unwrap();
                let is_value = none == 0 && ZERO_IS_A_VALUE.contains(&field);
                let kept = if is_value { flags(&[&format!("--{name}=0")]) } else { want.clone() };
                assert_eq!(found, kept, "{field}: {none}");
            }
        }
        if !setting.default.is_empty() {
            let default = format!("--{name}={}", setting.default);
            assert_eq!(flags(&[&default]), Flags::default(), "{default}");
        }
        assert!(usage.contains(&format!("--{name}")), "{name}");
    }
}

#[test]
fn the_default_configuration() {
    let want = Config {
        cert_dir: "/var/lib/kubelet/pki".into(),
        update_frequency: Duration::from_secs(10),
        report_frequency: Duration::from_secs(300),
        resync_frequency: Duration::from_secs(149),
        lease_duration_seconds: 40,
        thresholds: thresholds::default_thresholds(),
        pressure_transition_period: Duration::from_secs(300),
        reservation: Reservation {
            declared: Resources::new(),
            thresholds: thresholds::default_thresholds(),
            thresholds_by_default: true,
        },
        local_storage: true,
        event_qps: 50,
        event_burst: 100,
        node: NodeConfig {
            name: "pi-3.lab".to_owned(),
            register: true,
            taints: vec![taint("nodelet/no-pods", "", "NoSchedule")],
            kubelet_version: KUBELET_VERSION.to_owned(),
            reject_pods: true,
            port: 10250,
            controller_attach_detach: true,
            ..NodeConfig::default()
        },
        ..Config::default()
    };
    assert_eq!(config(&[]), Ok(want.clone()));
    // A template may leave values empty.
    assert_eq!(
        config(&[
            "--kubeconfig=",
            "--bootstrap-kubeconfig=",
            "--cert-dir=",
            "--k3s-supervisor=",
            "--hostname-override=",
            "--node-ip=",
            "--node-labels=,",
            "--register-with-taints=",
            "--provider-id=",
            "--cloud-provider=",
            "--state-file=",
        ]),
        Ok(want)
    );
}

#[test]
fn a_supervisor_needs_https_and_rotation_and_is_no_bootstrap() {
    let of = |url: &str, more: &[&str]| {
        let flag = format!("--k3s-supervisor={url}");
        config(&[&[flag.as_str()], more].concat()).map(|config| config.k3s_supervisor)
    };
    let rotate = "--rotate-certificates";
    let url = "https://cp:9345";
    assert_eq!(of(url, &[rotate]), Ok(Some(url.to_owned())));
    for (url, more) in [
        (url, &[][..]),
        ("http://cp:9345", &[rotate]),
        ("cp:9345", &[rotate]),
        ("http://node:s3cret@cp:9345", &[rotate]),
        (url, &[rotate, "--bootstrap-kubeconfig=/etc/b"]),
    ] {
        let line = of(url, more).unwrap_err();
        assert!(line.starts_with("--k3s-supervisor: needs https"), "{line}");
        assert!(!line.contains("s3cret"), "{line}");
    }
    let roots = "--k3s-supervisor-system-roots";
    assert!(of(url, &[rotate, roots]).is_ok());
    let line = config(&[rotate, roots]).unwrap_err();
    assert_eq!(line, format!("{roots}: needs --k3s-supervisor"));
}

/// A value that needs no check is a row of [`VALUES`].
#[test]
fn flags_that_are_checked_together_reach_the_configuration() {
    let got = config(&[
        "--root-dir=/data",
        "--hostname-override= OVERRIDDEN ",
        "--cloud-provider=external",
        "--kubelet-version=v1.30.1",
        "--register-with-taints=gone:NoSchedule",
        "--register-with-taints=x=y:NoExecute",
        "--max-pods=2",
    ]);
    let default = config(&[]).unwrap();
    let want = Config {
        cert_dir: "/data/pki".into(),
        node: NodeConfig {
            name: "overridden".to_owned(),
            external_cloud: true,
            kubelet_version: "v1.30.1".to_owned(),
            taints: vec![taint("x", "y", "NoExecute"), taint(UNINITIALIZED, "true", "NoSchedule")],
            max_pods: 2,
            ..default.node
        },
        ..default
    };
    assert_eq!(got, Ok(want));
}

/// component-helpers `node/util/ips_test.go` TestParseNodeIPArgument, and the empty `--node-ip` of
/// `kubelet_node_status_test.go` TestValidateNodeIPParam. Unlike in the kubelet, a value without an
/// IP address is refused. Not applicable: cases with --cloud-provider=gce, which is refused.
#[test]
fn test_parse_node_ip_argument() {
    let pair = Err("must contain either a single IP or a dual-stack pair of IPs");
    let zeros = Err("dual-stack node IP cannot include '0.0.0.0' or '::'");
    let nothing = Err("not an IP address");
    for (text, want) in [
        ("", Ok(&[][..])),
        (" ", Ok(&[])),
        (",", nothing),
        ("blah", nothing),
        ("1.2.3", nothing),
        ("1.2.3.0/24", nothing),
        ("1.2.3.256", nothing),
        ("1.2..4", nothing),
        ("fe80::1%eth0", nothing),
        ("1.2.3.4", Ok(&["1.2.3.4"])),
        (" 1.2.3.4 ", Ok(&["1.2.3.4"])),
        ("01.2.3.004", Ok(&["1.2.3.4"])),
        ("000.0.0.0", Ok(&["0.0.0.0"])),
        ("::", Ok(&["::"])),
        ("1.2.3.4,not-an-IPv6-address", Ok(&["1.2.3.4"])),
        ("1.2.3.4,", Ok(&["1.2.3.4"])),
        ("abcd::ef01", Ok(&["abcd::ef01"])),
        ("ABCD:0:0::00ef", Ok(&["abcd::ef"])),
        ("::ffff:1.2.3.4", Ok(&["1.2.3.4"])),
        ("1.2.3.4,abcd::ef01", Ok(&["1.2.3.4", "abcd::ef01"])),
        (" abcd::ef01 , 1.2.3.4 ", Ok(&["abcd::ef01", "1.2.3.4"])),
        ("1.2.3.4,abcd::ef01,blah", Ok(&["1.2.3.4", "abcd::ef01"])),
        ("1.2.3.4,5.6.7.8", pair),
        ("1.2.3.4,::ffff:5.6.7.8", pair),
        ("abcd::ef01,abcd::ef02", pair),
        ("1.2.3.4,abcd::1,5.6.7.8", pair),
        ("1.2.3.4,::", zeros),
        ("0.0.0.0,abcd::1", zeros),
    ] {
        let want = want
            .map(|ips| ips.iter().map(|ip| ip.parse().unwrap()).collect())
            .map_err(|e| format!("bad --node-ip {text:?}: {e}"));
        let got = config(&["--node-ip", text]).map(|config| config.node.node_ips);
        assert_eq!(got, want, "{text:?}");
    }
}

/// `tests/golden/invalid-flags.txt`: each error is one line. Cases of
/// `pkg/kubelet/apis/config/validation/validation_test.go` TestValidateKubeletConfiguration.
#[test]
fn an_invalid_value_is_one_error_line() {
    let mut text = String::new();
    for words in [
        "--cloud-provider=gce",
        "--kubelet-version=1.36",
        "--hostname-override=\t",
        "--hostname-override=pi_3",
        "--hostname-override=a-name-that-has-64-characters-which-is-one-more-than-a-label-has",
        "--node-labels=a=b --node-labels=kubernetes.io/x=1,k8s.io/y",
        "--node-labels=a=k/k",
        "--node-labels==x",
        "--register-with-taints=foo",
        "--register-with-taints=foo:Never",
        "--register-with-taints=a:NoExecute,a=b:NoExecute",
        "--node-status-update-frequency=10",
        "--root-dir=",
        "--event-burst=-1",
        "--max-pods=-1",
        "--pods-per-core=-1",
        "--node-lease-duration-seconds=0",
        "--event-qps=-1",
        "--node-status-max-images=-2",
        "--port=65536",
        "--port=1 --port=0",
        "--reserved-cpus=5-3",
        "--node-status-update-frequency=9ms",
        "--node-status-report-frequency=999ms",
        "--node-resync-frequency=1us",
        // Both are named.
        "--max-pods=-1 --port=0",
    ] {
        let line = config(&words.split(' ').collect::<Vec<_>>()).unwrap_err();
        assert!(!line.contains('\n'), "{line}");
        text += &format!("{}\n  {line}\n", words.escape_debug());
    }
    support::golden("invalid-flags.txt", &text);
}

#[test]
fn a_value_out_of_its_range_is_no_error_if_a_later_one_replaces_it() {
    let split = |words: &'static str| words.split(' ').collect::<Vec<_>>();
    for words in [
        "--node-status-max-images=-1 --port=1 --event-qps=0",
        "--port=0 --port=65535 --reserved-cpus=0-3,7",
        "--node-status-update-frequency=10ms --node-status-report-frequency=1s",
        "--node-resync-frequency=1s",
        "--node-resync-frequency=1us --node-resync-frequency=2s",
    ] {
        assert!(config(&split(words)).is_ok(), "{words}");
    }
}

#[test]
fn the_host_name_is_read_only_without_an_override() {
    let unread = || Err("proc/sys/kernel/hostname: gone".to_owned());
    let name = |words| Config::new(Flags::of(words), unread).map(|config| config.node.name);
    assert_eq!(name(&["--hostname-override=pi-3"]), Ok("pi-3".to_owned()));
    for none in [&[][..], &["--hostname-override="]] {
        assert_eq!(name(none), Err("proc/sys/kernel/hostname: gone".to_owned()));
    }
}

#[test]
fn thresholds_and_reservations_reach_the_configuration() {
    let got = config(&[
        "--eviction-hard=memory.available<1Gi",
        "--eviction-soft=pid.available<10%",
        "--eviction-soft-grace-period=pid.available=1m",
        "--eviction-minimum-reclaim=memory.available=5%",
        "--eviction-pressure-transition-period=30s",
        "--system-reserved=cpu=100m",
        "--extended-resources=example.com/camera=1",
        "--local-storage-capacity-isolation=false",
    ])
    .unwrap();
    let hard = Threshold {
        minimum_reclaim: Some(Amount::Percentage(0.05)),
        ..Threshold::hard(Signal::MemoryAvailable, Amount::Quantity("1Gi".parse().unwrap()))
    };
    let soft = Threshold {
        grace_period: Duration::from_secs(60),
        ..Threshold::hard(Signal::PidAvailable, Amount::Percentage(0.1))
    };
    assert_eq!(got.thresholds, [hard, soft]);
    assert_eq!(got.pressure_transition_period, Duration::from_secs(30));
    assert_eq!(got.reservation.thresholds, [hard]);
    assert!(!got.reservation.thresholds_by_default);
    let names = |resources: &Resources| format!("{:?}", resources.keys().collect::<Vec<_>>());
    assert_eq!(names(&got.reservation.declared), "[\"cpu\"]");
    assert_eq!(names(&got.node.extended_resources), "[\"example.com/camera\"]");
    assert!(!got.local_storage);
    // An empty value disables all hard thresholds.
    let none = config(&["--eviction-hard="]).unwrap();
    assert_eq!((none.thresholds, none.reservation.thresholds), (vec![], vec![]));
    let ignored = config(&["--experimental-allocatable-ignore-eviction"]).unwrap();
    assert_eq!(ignored.thresholds, thresholds::default_thresholds());
    assert_eq!(ignored.reservation.thresholds, []);
    assert!(config(&["--eviction-soft=memory.available<1Gi"]).is_err());
}
