use super::*;
use crate::config::command_line::{self, Command};
use crate::config::thresholds::{self, Amount, Signal};

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

#[test]
fn the_default_configuration() {
    let want = Config {
        kubeconfig: None,
        bootstrap_kubeconfig: None,
        cert_dir: "/var/lib/kubelet/pki".into(),
        rotate_certificates: false,
        k3s_supervisor: None,
        k3s_supervisor_system_roots: false,
        update_frequency: Duration::from_secs(10),
        report_frequency: Duration::from_secs(300),
        resync_frequency: Duration::from_secs(110),
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
        reports_server_version: false,
        state_file: None,
        runtime: None,
        node: NodeConfig {
            name: "pi-3.lab".to_owned(),
            register: true,
            node_ips: Vec::new(),
            external_cloud: false,
            is_of_k3s: false,
            labels: BTreeMap::new(),
            taints: vec![taint("nodelet/no-pods", "", "NoSchedule")],
            provider_id: String::new(),
            kubelet_version: KUBELET_VERSION.to_owned(),
            reject_pods: true,
            max_pods: 0,
            pods_per_core: 0,
            extended_resources: Resources::new(),
            port: 10250,
            controller_attach_detach: true,
        },
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

#[test]
fn flags_reach_the_configuration() {
    let got = config(&[
        "--kubeconfig=/etc/kubeconfig",
        "--bootstrap-kubeconfig=/etc/bootstrap",
        "--rotate-certificates",
        "--host-root=/host",
        "--root-dir=/data",
        "--hostname-override= OVERRIDDEN ",
        "--node-status-update-frequency=1m30s",
        "--node-status-report-frequency=2h",
        "--node-lease-duration-seconds=2147483647",
        "--register-node=false",
        "--node-ip=fd00::0005, 010.0.0.5",
        "--cloud-provider=external",
        "--node-labels=a=1,b",
        "--node-labels=a=2,node.kubernetes.io/instance-type=pi",
        "--register-with-taints=gone:NoSchedule",
        "--register-with-taints=x=y:NoExecute,z:PreferNoSchedule",
        "--provider-id=lab://3",
        "--max-pods=2",
        "--pods-per-core=1",
        "--port=65535",
        "--enable-controller-attach-detach=false",
        "--node-problem-detection=all,NTPProblem",
        "--node-condition=OnBattery=/run/ups",
    ]);
    let labels = [("a", "2"), ("b", ""), ("node.kubernetes.io/instance-type", "pi")];
    let default = config(&[]).unwrap();
    let want = Config {
        kubeconfig: Some("/etc/kubeconfig".into()),
        bootstrap_kubeconfig: Some("/etc/bootstrap".into()),
        cert_dir: "/data/pki".into(),
        rotate_certificates: true,
        update_frequency: Duration::from_secs(90),
        report_frequency: Duration::from_secs(7200),
        lease_duration_seconds: 2_147_483_647,
        node: NodeConfig {
            name: "overridden".to_owned(),
            register: false,
            node_ips: vec!["fd00::5".parse().unwrap(), "10.0.0.5".parse().unwrap()],
            external_cloud: true,
            is_of_k3s: false,
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: vec![
                taint("x", "y", "NoExecute"),
                taint("z", "", "PreferNoSchedule"),
                taint(UNINITIALIZED, "true", "NoSchedule"),
            ],
            provider_id: "lab://3".to_owned(),
            max_pods: 2,
            pods_per_core: 1,
            port: 65535,
            controller_attach_detach: false,
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

#[test]
fn an_invalid_value_is_one_error_line() {
    let allowed = "--node-labels in the 'kubernetes.io' namespace must begin with an allowed \
                   prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the specifically \
                   allowed set (kubernetes.io/hostname, topology.kubernetes.io/zone, \
                   topology.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, \
                   failure-domain.beta.kubernetes.io/region, beta.kubernetes.io/instance-type, \
                   node.kubernetes.io/instance-type, kubernetes.io/os, kubernetes.io/arch, \
                   beta.kubernetes.io/os, beta.kubernetes.io/arch)";
    let long = "a".repeat(64);
    for (words, want) in [
        (
            &["--cloud-provider=gce"][..],
            "--cloud-provider \"gce\": cloud provider \"gce\" was specified, but built-in cloud \
             providers are disabled; use --cloud-provider=external",
        ),
        (
            &["--kubelet-version=1.36"],
            "--kubelet-version \"1.36\": neither a version like v1.36.2 nor server",
        ),
        (&["--hostname-override= "], "hostname: empty hostname is invalid"),
        (
            &["--hostname-override=pi_3"],
            "hostname: \"pi_3\" cannot be a Node's name (lower case letters, digits, '-' and '.'); \
             set --hostname-override",
        ),
        (
            &["--hostname-override", &long],
            &format!(
                "hostname: {long:?} has 64 characters, but the label kubernetes.io/hostname \
                 holds 63; set --hostname-override"
            ),
        ),
        (
            &["--node-labels=a=b", "--node-labels=kubernetes.io/x=1,k8s.io/y"],
            &format!(
                "--node-labels: unknown 'kubernetes.io' or 'k8s.io' labels specified with \
                 --node-labels: [k8s.io/y, kubernetes.io/x]; {allowed}"
            ),
        ),
        (
            &["--node-labels=a=kubernetes/kubernetes"],
            "--node-labels: invalid node labels: \"a\"=\"kubernetes/kubernetes\" is not a label",
        ),
        (&["--node-labels==x"], "--node-labels: invalid node labels: \"\"=\"x\" is not a label"),
        (
            &["--register-with-taints=foo"],
            "--register-with-taints: invalid taint spec (write key=value:Effect or key:Effect): foo",
        ),
        (
            &["--register-with-taints=foo:Never"],
            "--register-with-taints: invalid taint effect (NoSchedule, PreferNoSchedule or \
             NoExecute), unsupported taint effect: foo:Never",
        ),
        (
            &["--register-with-taints=a:NoExecute,a=b:NoExecute"],
            "--register-with-taints: duplicated taints with the same key and effect: a=b:NoExecute",
        ),
        (
            &["--node-status-update-frequency=10"],
            "--node-status-update-frequency: \"10\" is not a duration; write it like 10s, 5m0s or 1h30m",
        ),
        (&["--root-dir="], "--root-dir: invalid root directory \"\""),
    ] {
        assert_eq!(config(words), Err(want.to_owned()), "{words:?}");
    }
}

/// Cases of `pkg/kubelet/apis/config/validation/validation_test.go`
/// TestValidateKubeletConfiguration.
#[test]
fn a_value_out_of_its_range_is_an_error_unless_a_later_one_replaces_it() {
    let negative = "must not be a negative number";
    let inclusive = "must be between 1 and 65535, inclusive";
    for (words, want) in [
        (&["--event-burst=-1"][..], format!("eventBurst (--event-burst) -1 {negative}")),
        (&["--max-pods=-1"], format!("maxPods (--max-pods) -1 {negative}")),
        (&["--pods-per-core=-1"], format!("podsPerCore (--pods-per-core) -1 {negative}")),
        (
            &["--node-lease-duration-seconds=0"],
            "nodeLeaseDurationSeconds (--node-lease-duration-seconds) 0 must be greater than 0"
                .to_owned(),
        ),
        (&["--event-qps=-1"], format!("eventRecordQPS (--event-qps) -1 {negative}")),
        (
            &["--node-status-max-images=-2"],
            "nodeStatusMaxImages (--node-status-max-images) -2 must be -1 or greater".to_owned(),
        ),
        (&["--port=65536"], format!("port (--port) 65536 {inclusive}")),
        (&["--port=1", "--port=0"], format!("port (--port) 0 {inclusive}")),
        (
            &["--reserved-cpus=5-3"],
            "unable to parse reservedSystemCPUs (--reserved-cpus) 5-3, error: invalid range \
             \"5-3\" (5 > 3)"
                .to_owned(),
        ),
        (
            &["--node-status-update-frequency=9ms"],
            "nodeStatusUpdateFrequency (--node-status-update-frequency) 9ms is too short; the \
             minimum is 10ms"
                .to_owned(),
        ),
        (
            &["--node-status-report-frequency=999ms"],
            "nodeStatusReportFrequency (--node-status-report-frequency) 999ms is too short; the \
             minimum is 1s"
                .to_owned(),
        ),
        (
            &["--node-resync-frequency=1us"],
            "--node-resync-frequency 1µs is too short; the minimum is 1s".to_owned(),
        ),
    ] {
        assert_eq!(config(words), Err(format!("invalid configuration: {want}")), "{words:?}");
    }
    assert_eq!(
        config(&["--max-pods=-1", "--port=0"]),
        Err("[invalid configuration: maxPods (--max-pods) -1 must not be a negative number, \
             invalid configuration: port (--port) 0 must be between 1 and 65535, inclusive]"
            .to_owned())
    );
    for words in [
        &["--node-status-max-images=-1", "--port=1", "--event-qps=0"][..],
        &["--port=0", "--port=65535", "--reserved-cpus=0-3,7"],
        &["--node-status-update-frequency=10ms", "--node-status-report-frequency=1s"],
        &["--node-resync-frequency=1s"],
        &["--node-resync-frequency=1us", "--node-resync-frequency=2s"],
    ] {
        assert!(config(words).is_ok(), "{words:?}");
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
