use std::os::unix::ffi::OsStringExt;

use std::time::Duration;

use super::*;
use crate::config::flags::Pairs;

fn parse(words: &[&str]) -> Result<Command, String> {
    super::parse(words.iter().map(OsString::from))
}

fn flags(words: &[&str]) -> Flags {
    match parse(words) {
        Ok(Command::Run(flags)) => *flags,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// A flag, a value for it, and the field that it sets.
type Row = (&'static str, &'static str, fn(&mut Flags));

fn some(pairs: &[(&str, &str)]) -> Option<Pairs> {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Some(pairs.iter().map(pair).collect())
}

const ROWS: &[Row] = &[
    ("kubeconfig", "/etc/k", |f| {
        f.kubeconfig = Some("/etc/k".into())
    }),
    ("bootstrap-kubeconfig", "/etc/b", |f| {
        f.bootstrap_kubeconfig = Some("/etc/b".into());
    }),
    ("cert-dir", "/etc/pki", |f| {
        f.cert_dir = Some("/etc/pki".into())
    }),
    ("rotate-certificates", "true", |f| {
        f.rotate_certificates = true
    }),
    ("k3s-supervisor", "https://cp:9345", |f| {
        f.k3s_supervisor = Some("https://cp:9345".into());
    }),
    ("k3s-supervisor-system-roots", "true", |f| {
        f.k3s_supervisor_system_roots = true
    }),
    ("hostname-override", "pi-3", |f| {
        f.hostname_override = Some("pi-3".into());
    }),
    ("node-ip", "-1.2.3.4", |f| f.node_ip = "-1.2.3.4".into()),
    ("node-labels", "a_b=c,d=e", |f| {
        f.node_labels = vec!["a_b=c,d=e".into()]
    }),
    ("register-node", "false", |f| f.register_node = false),
    ("register-with-taints", "a=b:NoSchedule", |f| {
        f.register_with_taints = parse_taints("a=b:NoSchedule").unwrap_or_default();
    }),
    ("provider-id", "x://1", |f| f.provider_id = "x://1".into()),
    ("cloud-provider", "external", |f| {
        f.cloud_provider = "external".into()
    }),
    ("root-dir", "/var/r", |f| f.root_dir = "/var/r".into()),
    ("host-root", "/host", |f| f.host_root = "/host".into()),
    ("ready-when-exists", "/run/x", |f| {
        f.ready_when_exists = vec!["/run/x".into()];
    }),
    ("node-problem-detection", "all", |f| {
        f.node_problem_detection = "all".to_owned();
    }),
    ("node-condition", "OnBattery=/run/ups", |f| {
        f.node_conditions = vec!["OnBattery=/run/ups".to_owned()];
    }),
    ("event-qps", "5", |f| f.event_qps = 5),
    ("event-burst", "9", |f| f.event_burst = 9),
    ("container-runtime-endpoint", "/run/a", |f| {
        f.container_runtime_endpoint = Some("/run/a".to_owned());
    }),
    ("image-service-endpoint", "/run/b", |f| {
        f.image_service_endpoint = Some("/run/b".to_owned());
    }),
    ("node-status-max-images", "-1", |f| {
        f.node_status_max_images = -1;
    }),
    ("node-status-update-frequency", "1m", |f| {
        f.update_frequency = Duration::from_secs(60);
    }),
    ("node-resync-frequency", "1m", |f| {
        f.resync_frequency = Duration::from_secs(60);
    }),
    ("node-status-report-frequency", "1h", |f| {
        f.report_frequency = Duration::from_secs(3600);
    }),
    ("node-lease-duration-seconds", "60", |f| {
        f.node_lease_duration_seconds = 60
    }),
    ("kubelet-version", "server", |f| {
        f.kubelet_version = "server".into()
    }),
    ("reject-pods", "false", |f| f.reject_pods = false),
    ("max-pods", "-1", |f| f.max_pods = -1),
    ("pods-per-core", "7", |f| f.pods_per_core = 7),
    ("enable-controller-attach-detach", "false", |f| {
        f.enable_controller_attach_detach = false;
    }),
    ("config", "/etc/c", |f| f.config = Some("/etc/c".into())),
    ("eviction-hard", "a<1,, b < c<d ", |f| {
        f.eviction_hard = some(&[("a", "1"), ("b", "c<d")]);
    }),
    ("eviction-soft", "a<", |f| {
        f.eviction_soft = some(&[("a", "")])
    }),
    ("eviction-soft-grace-period", "a=1m,b=2s", |f| {
        f.eviction_soft_grace_period = some(&[("a", "1m"), ("b", "2s")]);
    }),
    ("eviction-minimum-reclaim", "a=5%", |f| {
        f.eviction_minimum_reclaim = some(&[("a", "5%")]);
    }),
    ("eviction-pressure-transition-period", "0s", |f| {
        f.eviction_pressure_transition_period = Duration::ZERO;
    }),
    ("system-reserved", "cpu=1,memory=2Gi", |f| {
        f.system_reserved = some(&[("cpu", "1"), ("memory", "2Gi")]);
    }),
    ("kube-reserved", "pid=100", |f| {
        f.kube_reserved = some(&[("pid", "100")])
    }),
    ("reserved-cpus", "0-1,3", |f| {
        f.reserved_cpus = "0-1,3".into()
    }),
    ("experimental-allocatable-ignore-eviction", "true", |f| {
        f.allocatable_ignores_eviction = true;
    }),
    ("local-storage-capacity-isolation", "false", |f| {
        f.local_storage_capacity_isolation = false;
    }),
    ("extended-resources", "example.com/npu=1", |f| {
        f.extended_resources = some(&[("example.com/npu", "1")]);
    }),
    ("v", "300", |f| f.verbosity = 255),
    ("port", "65536", |f| f.port = 65536),
];

#[test]
fn every_flag_in_every_form() {
    for &(name, value, set) in ROWS {
        let mut want = Flags::default();
        set(&mut want);
        let under = name.replace('-', "_");
        for words in [
            &[&*format!("--{name}={value}")][..],
            &[&*format!("--{name}"), value],
            &[&*format!("--{under}={value}")],
            &[&*format!("--{under}"), value],
        ] {
            assert_eq!(flags(words), want, "{words:?}");
        }
        assert!(USAGE.contains(&format!("--{name}")), "{name} in USAGE");
    }
    assert_eq!(flags(&[]), Flags::default());
    for words in [
        &["--v=4"][..],
        &["--v", "4"],
        &["-v4"],
        &["-v", "4"],
        &["-v=4"],
    ] {
        assert_eq!(flags(words).verbosity, 4, "{words:?}");
    }
}

#[test]
fn the_last_value_of_a_flag_is_used_but_labels_accumulate() {
    // Maps and lists have their own test.
    let once = |value: &str| ["true", "false"].contains(&value) || value.contains(['<', '=']);
    let mut all = Vec::new();
    let mut want = Flags::default();
    for &(name, value, set) in ROWS {
        if name == "node-labels" || !once(value) && !value.ends_with(['s', 'm', 'h']) {
            all.push(format!("--{name}=1"));
        }
        all.push(format!("--{name}={value}"));
        set(&mut want);
    }
    want.node_labels = vec!["1".to_owned(), "a_b=c,d=e".to_owned()];
    want.ready_when_exists = vec!["1".into(), "/run/x".into()];
    let words: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!(flags(&words), want);
}

#[test]
fn the_value_of_a_switch_is_optional() {
    for (words, want) in [
        (&["--register-node"][..], true),
        (&["--register-node=false", "--register-node"], true),
        (&["--register-node", "--port=1"], true),
        (&["--register-node", "false"], false),
        (&["--register-node=0"], false),
        (&["--register-node=F"], false),
        (&["--register-node=T"], true),
        (&["--register-node=1"], true),
        (&["--register-node=True"], true),
    ] {
        assert_eq!(flags(words).register_node, want, "{words:?}");
    }
}

#[test]
fn each_command_is_recognized() {
    let run = || Box::new(flags(&["--port=1"]));
    for (words, want) in [
        (&["--port=1"][..], Command::Run(run())),
        (&["inspect", "--port=1"], Command::Inspect(run())),
        (&["--port", "1", "inspect"], Command::Inspect(run())),
        (&["--port=1", "check"], Command::Check(run())),
        (&["runtime", "--port=1"], Command::Runtime(run())),
        (&["--version"], Command::Version),
        (&["--port=1", "--help"], Command::Help),
        (&["-h"], Command::Help),
    ] {
        assert_eq!(parse(words), Ok(want), "{words:?}");
    }
}

#[test]
fn inspect_has_an_output_format() {
    for words in [
        &["inspect", "--output=text"][..],
        &["--output", "text", "inspect"],
        &["inspect", "-o", "text"],
        &["inspect", "-otext"],
    ] {
        let Ok(Command::Inspect(flags)) = parse(words) else {
            panic!("{words:?}");
        };
        assert_eq!(flags.output.as_deref(), Some("text"), "{words:?}");
    }
    assert!(USAGE.contains("--output"));
}

/// `nodelet runtime` prints JSON alone, which an endpoint `file://` reads.
#[test]
fn a_run_and_the_look_at_the_runtime_have_no_output_format() {
    let line = "--output is for nodelet inspect and nodelet check";
    for words in [
        &["--output=json"][..],
        &["runtime", "-o", "text"],
        &["-ojson", "runtime"],
    ] {
        assert_eq!(parse(words), Err(line.to_owned()), "{words:?}");
    }
}

/// Settings of the file alone have an empty name in the table of flags.
#[test]
fn a_join_line_with_a_flag_without_a_name_is_an_error() {
    assert_eq!(takes_value(""), None);
    assert_eq!(takes_value("register-node"), Some(false));
    assert_eq!(takes_value("port"), Some(true));
    let words = [
        "join",
        "10.0.0.1:6443",
        "--token=abcdef.0123456789abcdef",
        "--=x",
    ];
    let parsed = crate::core::join::command::parse(&words.map(OsString::from));
    let line = parsed.unwrap().unwrap_err();
    assert_eq!(line, "unknown flag: --; see join --help");
}

#[test]
fn an_invalid_command_line_is_one_error_line() {
    for (words, want) in [
        (&["--kubecfg=x"][..], "unknown flag: --kubecfg; see --help"),
        (&["--kubecfg", "x"], "unknown flag: --kubecfg; see --help"),
        (&["--no_such"], "unknown flag: --no-such; see --help"),
        (&["--=x"], "unknown flag: --; see --help"),
        (&["-x"], "unknown shorthand flag: -x; see --help"),
        (&["-kubeconfig=x"], "unknown shorthand flag: -k; see --help"),
        (&["start"], "unknown command \"start\"; see --help"),
        (
            &["lwxivu.2uczm8x4xi2v7hqd"],
            "unknown command \"…\"; see --help",
        ),
        (
            &["--lwxivu.2uczm8x4xi2v7hqd"],
            "unknown flag: --…; see --help",
        ),
        (&["--K10ab::node:s3cret=x"], "unknown flag: --…; see --help"),
        (
            &["inspect", "inspect"],
            "unknown command \"inspect\"; see --help",
        ),
        (
            &["--", "--port=1"],
            "unknown command \"--port=1\"; see --help",
        ),
        (
            &["--register-node", "maybe"],
            "unknown command \"maybe\"; see --help",
        ),
        (
            &["--port=1", "--kubeconfig"],
            "flag needs an argument: --kubeconfig",
        ),
        (&["--node_ip"], "flag needs an argument: --node-ip"),
        (&["-v"], "flag needs an argument: --v"),
        (
            &["--register-node=maybe"],
            "invalid argument \"maybe\" for --register-node: write true or false",
        ),
        (
            &["--register-node="],
            "invalid argument \"\" for --register-node: write true or false",
        ),
        (
            &["--port=4294967296"],
            "invalid argument \"4294967296\" for --port: not a number in its range",
        ),
        (
            &["--max-pods", "many"],
            "invalid argument \"many\" for --max-pods: not a number in its range",
        ),
        (
            &["--node-lease-duration-seconds=40s"],
            "invalid argument \"40s\" for --node-lease-duration-seconds: not a number in its range",
        ),
        (
            &["--v="],
            "invalid argument \"\" for --v: not a number in its range",
        ),
        (
            &["--output=text"],
            "--output is for nodelet inspect and nodelet check",
        ),
        (
            &["-o", "text"],
            "--output is for nodelet inspect and nodelet check",
        ),
        (&["inspect", "-o"], "flag needs an argument: --output"),
        (
            &["inspect", "check"],
            "unknown command \"check\"; see --help",
        ),
    ] {
        assert_eq!(parse(words), Err(want.to_owned()), "{words:?}");
    }
    let bytes = OsString::from_vec(b"--node-ip=\xff".to_vec());
    assert_eq!(
        super::parse([bytes]),
        Err("--node-ip: not UTF-8".to_owned())
    );
}

#[test]
fn repeated_maps_and_lists_accumulate() {
    let flags = flags(&[
        "--eviction-hard=a<1,b<2",
        "--eviction-hard=",
        "--eviction_hard= b < 3 ,c<4",
        "--enforce-node-allocatable=pods",
        "--enforce-node-allocatable=none,,",
        "--register-with-taints=gone:NoSchedule",
        "--register-with-taints=a:NoSchedule",
    ]);
    assert_eq!(
        flags.eviction_hard,
        some(&[("a", "1"), ("b", "3"), ("c", "4")])
    );
    let enforced = ["pods".to_owned(), "none".to_owned()].to_vec();
    assert_eq!(
        flags.validated_only.enforce_node_allocatable,
        Some(enforced)
    );
    assert_eq!(flags.register_with_taints.len(), 1);
    for (word, want) in [
        ("--eviction-hard=memory.available=1", "string<string"),
        ("--eviction-hard= ", "string<string"),
        ("--system-reserved=cpu", "string=string"),
        ("--extended-resources=a/b<1", "string=string"),
    ] {
        let (name, text) = word.split_once('=').unwrap();
        assert_eq!(
            parse(&[word]),
            Err(format!(
                "invalid argument {text:?} for {name}: malformed pair, expect {want}"
            ))
        );
    }
}

/// The ExecStart of kubeadm's unit, and further flags of the kubelet.
#[test]
fn the_flags_of_kubeadms_unit_are_accepted() {
    let flags = flags(&[
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
        "--kubeconfig=/etc/kubernetes/kubelet.conf",
        "--config=/var/lib/kubelet/config.yaml",
        "--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
        "--pod-infra-container-image=registry.k8s.io/pause:3.10",
        "--cgroup-driver",
        "systemd",
        "--fail-swap-on=false",
        "--anonymous-auth",
        "--rotate-certificates",
        "--cert-dir=/var/lib/kubelet/pki",
        "--node-status-max-images=-1",
    ]);
    assert_eq!(
        flags.kubeconfig,
        Some("/etc/kubernetes/kubelet.conf".into())
    );
    assert_eq!(
        flags.ignored,
        [
            "pod-infra-container-image",
            "cgroup-driver",
            "fail-swap-on",
            "anonymous-auth",
        ]
    );
    assert_eq!(flags.not_yet, [] as [&str; 0]);
    assert_eq!(
        flags.container_runtime_endpoint.as_deref(),
        Some("unix:///run/containerd/containerd.sock")
    );
    assert_eq!(flags.node_status_max_images, -1);
    assert_eq!(
        flags.bootstrap_kubeconfig,
        Some("/etc/kubernetes/bootstrap-kubelet.conf".into())
    );
    assert_eq!(flags.cert_dir, Some("/var/lib/kubelet/pki".into()));
    assert!(flags.rotate_certificates);
}

#[test]
fn every_name_is_in_one_table_only() {
    let mut names: Vec<&str> = SETTINGS
        .iter()
        .map(|s| s.flag)
        .filter(|f| !f.is_empty())
        .collect();
    names.extend(ignored::SWITCHES.iter().chain(ignored::VALUES));
    let mut fields: Vec<&str> = SETTINGS
        .iter()
        .map(|s| s.field)
        .filter(|f| !f.is_empty())
        .collect();
    fields.extend(ignored::FIELDS);
    for mut names in [names, fields] {
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
    // Each used flag has a row above. --output is not a flag of a run and has its own test.
    for setting in SETTINGS
        .iter()
        .filter(|s| s.usage == Use::Used && s.flag != "output")
    {
        assert!(
            ROWS.iter().any(|(name, ..)| *name == setting.flag),
            "{}",
            setting.flag
        );
    }
}
