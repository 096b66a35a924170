//! `cmd/kubelet/app/server_test.go` TestMergeKubeletConfigurations, for one file. Not applicable:
//! drop-in folders (`--config-dir` is ignored), defaulting between drop-ins, and feature gates.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::config::command_line::{self, Command};
use crate::config::flags::ValidatedOnly;
use crate::files::yaml;

/// The flags of a file and a command line.
fn merged(fields: &str, words: &[&str]) -> Result<Flags, String> {
    let mut flags = Flags::default();
    apply(&document(fields), &mut flags)?;
    match command_line::parse_over(flags, words.iter().map(Into::into).collect()) {
        Ok(Command::Run(flags)) => Ok(*flags),
        other => panic!("{words:?}: {other:?}"),
    }
}

fn document(fields: &str) -> Value {
    yaml::parse(&format!(
        "apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}"
    ))
    .unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> Option<Pairs> {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Some(pairs.iter().map(pair).collect())
}

#[test]
fn every_used_field_sets_its_flag() {
    let fields = "
registerNode: false
registerWithTaints:
- {key: a, value: b, effect: NoSchedule}
- {key: c, effect: NoExecute, timeAdded: null}
providerID: lab://3
nodeStatusUpdateFrequency: 20s
nodeStatusReportFrequency: 10m
nodeLeaseDurationSeconds: 60
maxPods: 7
podsPerCore: 2
port: 10260
enableControllerAttachDetach: false
evictionHard: {memory.available: 1Gi}
evictionSoft: {memory.available: 2Gi}
evictionSoftGracePeriod: {memory.available: 1m30s}
evictionMinimumReclaim: {memory.available: 5%}
evictionPressureTransitionPeriod: 1m
systemReserved: {cpu: 100m}
kubeReserved: {memory: 1Gi}
reservedSystemCPUs: 0-1
localStorageCapacityIsolation: false
eventRecordQPS: 5
eventBurst: 9
rotateCertificates: true
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
imageServiceEndpoint: /run/images.sock
nodeStatusMaxImages: 3
";
    let want = Flags {
        register_node: false,
        register_with_taints: names::parse_taints("a=b:NoSchedule,c:NoExecute").unwrap(),
        provider_id: "lab://3".to_owned(),
        update_frequency: Duration::from_secs(20),
        report_frequency: Duration::from_secs(600),
        node_lease_duration_seconds: 60,
        max_pods: 7,
        pods_per_core: 2,
        port: 10260,
        enable_controller_attach_detach: false,
        eviction_hard: pairs(&[("memory.available", "1Gi")]),
        eviction_soft: pairs(&[("memory.available", "2Gi")]),
        eviction_soft_grace_period: pairs(&[("memory.available", "1m30s")]),
        eviction_minimum_reclaim: pairs(&[("memory.available", "5%")]),
        eviction_pressure_transition_period: Duration::from_secs(60),
        system_reserved: pairs(&[("cpu", "100m")]),
        kube_reserved: pairs(&[("memory", "1Gi")]),
        reserved_cpus: "0-1".to_owned(),
        local_storage_capacity_isolation: false,
        event_qps: 5,
        event_burst: 9,
        rotate_certificates: true,
        container_runtime_endpoint: Some("unix:///run/containerd/containerd.sock".to_owned()),
        image_service_endpoint: Some("/run/images.sock".to_owned()),
        node_status_max_images: 3,
        ..Flags::default()
    };
    assert_eq!(merged(fields, &[]), Ok(want.clone()));
    // The same document as JSON.
    let mut flags = Flags::default();
    let text = document(fields).to_string();
    apply(&yaml::parse(&text).unwrap(), &mut flags).unwrap();
    assert_eq!(flags, want);
    // Each used field of the table is tested above.
    let used = SETTINGS.iter().filter(|s| s.usage == Use::Used);
    for setting in used.filter(|setting| !setting.field.is_empty()) {
        assert!(
            fields.contains(&format!("\n{}:", setting.field)),
            "{}",
            setting.field
        );
    }
}

#[test]
fn zero_null_and_empty_keep_the_defaults() {
    let zeroes = "
registerNode: null
registerWithTaints: null
providerID: \"\"
nodeStatusUpdateFrequency: 0s
nodeStatusReportFrequency: 0s
nodeLeaseDurationSeconds: 0
maxPods: 0
port: 0
evictionHard: null
evictionPressureTransitionPeriod: 0s
systemReserved:
reservedSystemCPUs: \"\"
containerRuntimeEndpoint: \"\"
memorySwap: {}
shutdownGracePeriodByPodPriority: []
";
    assert_eq!(merged(zeroes, &[]), Ok(Flags::default()));
    // An empty map disables all hard thresholds.
    let none = merged("evictionHard: {}", &[]).unwrap();
    assert_eq!(none.eviction_hard, Some(Pairs::new()));
}

/// `kubelet/config/v1beta1/types.go`: 0 is a value where the field is a pointer.
#[test]
fn zero_is_a_value_of_a_pointer_field_only() {
    let default = Flags {
        event_qps: 7,
        event_burst: 7,
        port: 7,
        node_lease_duration_seconds: 7,
        max_pods: 7,
        pods_per_core: 7,
        node_status_max_images: 7,
        validated_only: ValidatedOnly {
            read_only_port: 7,
            healthz_port: 7,
            kube_api_qps: 7,
            kube_api_burst: 7,
            ..Default::default()
        },
        ..Flags::default()
    };
    let mut want = default.clone();
    want.event_qps = 0;
    want.node_status_max_images = 0;
    want.validated_only.healthz_port = 0;
    want.validated_only.kube_api_qps = 0;
    let all = |value: &str| {
        let mut fields = String::new();
        for field in [
            "eventRecordQPS",
            "eventBurst",
            "port",
            "nodeLeaseDurationSeconds",
            "maxPods",
            "podsPerCore",
            "nodeStatusMaxImages",
            "readOnlyPort",
            "healthzPort",
            "kubeAPIQPS",
            "kubeAPIBurst",
        ] {
            fields.push_str(&format!("{field}: {value}\n"));
        }
        let mut flags = default.clone();
        apply(&document(&fields), &mut flags).unwrap();
        flags
    };
    assert_eq!(all("0"), want);
    assert_eq!(all("null"), default);
}

#[test]
fn the_report_frequency_of_a_short_update_frequency_is_valid() {
    let flags = merged("nodeStatusUpdateFrequency: 100ms", &[]).unwrap();
    assert_eq!(flags.update_frequency, Duration::from_millis(100));
    assert_eq!(flags.report_frequency, Duration::from_secs(1));
}

/// `pkg/kubelet/apis/config/v1beta1/defaults.go`: "for backward compatibility".
#[test]
fn the_report_frequency_follows_the_update_frequency_of_the_file() {
    for (fields, words, want) in [
        ("nodeStatusUpdateFrequency: 1m", &[][..], (60, 60)),
        (
            "nodeStatusUpdateFrequency: 1m\nnodeStatusReportFrequency: 0s",
            &[],
            (60, 60),
        ),
        (
            "nodeStatusUpdateFrequency: 1m\nnodeStatusReportFrequency: 2m",
            &[],
            (60, 120),
        ),
        ("nodeStatusReportFrequency: 2m", &[], (10, 120)),
        ("nodeStatusUpdateFrequency: 0s", &[], (10, 300)),
        ("", &["--node-status-update-frequency=1m"], (60, 300)),
        (
            "nodeStatusUpdateFrequency: 1m",
            &["--node-status-update-frequency=10s"],
            (10, 60),
        ),
    ] {
        let flags = merged(fields, words).unwrap();
        let got = (
            flags.update_frequency.as_secs(),
            flags.report_frequency.as_secs(),
        );
        assert_eq!(got, want, "{fields} {words:?}");
    }
}

#[test]
fn a_flag_overrides_the_file_even_with_a_default_value() {
    let fields = "
registerNode: false
registerWithTaints: [{key: a, effect: NoSchedule}]
maxPods: 7
port: 10260
providerID: lab://3
nodeStatusReportFrequency: 1h
evictionHard: {memory.available: 1Gi, pid.available: \"10\"}
systemReserved: {cpu: \"1\"}
enforceNodeAllocatable: [none]
";
    let flags = merged(
        fields,
        &[
            "--register-node=true",
            "--register-with-taints=",
            "--max-pods=0",
            "--port=10250",
            "--provider-id=",
            "--node-status-report-frequency=5m",
            "--eviction-hard=memory.available<100Mi",
            "--eviction-hard=nodefs.available<10%",
            "--system-reserved=",
            "--enforce-node-allocatable=pods",
        ],
    )
    .unwrap();
    let mut want = Flags {
        // The first occurrence clears the value of the file, the second adds.
        eviction_hard: pairs(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]),
        system_reserved: Some(Pairs::new()),
        ignored: vec!["enforce-node-allocatable"],
        ..Flags::default()
    };
    want.validated_only.enforce_node_allocatable = Some(vec!["pods".to_owned()]);
    assert_eq!(flags, want);
    // Fields without a flag on the command line keep the value of the file.
    let flags = merged(fields, &["--port=1"]).unwrap();
    assert_eq!((flags.max_pods, flags.port), (7, 1));
    assert_eq!(flags.eviction_hard.unwrap().len(), 2);
}

#[test]
fn merge_default_eviction_settings() {
    let merge = "\nmergeDefaultEvictionSettings: true";
    for (fields, words, want) in [
        (
            "evictionHard: {pid.available: 5%}",
            &[][..],
            pairs(&[("pid.available", "5%")]),
        ),
        (merge, &[], None),
        (
            &format!("evictionHard: {{pid.available: 5%, nodefs.available: 1Gi}}{merge}"),
            &[],
            pairs(&[
                ("imagefs.available", "15%"),
                ("imagefs.inodesFree", "5%"),
                ("memory.available", "100Mi"),
                ("nodefs.available", "1Gi"),
                ("nodefs.inodesFree", "5%"),
                ("pid.available", "5%"),
            ]),
        ),
        (
            &format!("evictionHard: {{pid.available: 5%}}{merge}"),
            &["--eviction-hard=memory.available<1Gi"],
            pairs(&[("memory.available", "1Gi")]),
        ),
        (
            "evictionHard: {pid.available: 5%}\nmergeDefaultEvictionSettings: false",
            &["--eviction-hard="],
            pairs(&[]),
        ),
    ] {
        let flags = merged(fields, words).unwrap();
        assert_eq!(flags.eviction_hard, want, "{fields}");
    }
}

/// `/var/lib/kubelet/config.yaml` as kubeadm 1.36 writes it.
const KUBEADM: &str = "
authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options: {json: {infoBufferSize: \"0\"}, text: {infoBufferSize: \"0\"}}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
";

#[test]
fn the_file_of_kubeadm_sets_rotation_and_the_runtime_and_has_no_unknown_field() {
    let mut flags = Flags::default();
    let notes = apply(&document(KUBEADM), &mut flags).unwrap();
    assert_eq!(notes.unknown, [] as [&str; 0]);
    assert_eq!(notes.not_yet, ["healthzBindAddress", "healthzPort"]);
    let known = ["cgroupDriver", "logging", "memorySwap"];
    assert!(
        known
            .iter()
            .all(|name| notes.ignored.iter().any(|n| n == name))
    );
    assert_eq!(notes.ignored.len(), 20);
    flags.validated_only = Default::default();
    let want = Flags {
        rotate_certificates: true,
        container_runtime_endpoint: Some("unix:///var/run/containerd/containerd.sock".to_owned()),
        ..Flags::default()
    };
    assert_eq!(flags, want);
}

#[test]
fn unknown_fields_are_returned_and_are_no_error() {
    let mut flags = Flags::default();
    let notes = apply(&document("maxPod: 7\nMaxPods: 7\nmax-pods: 7"), &mut flags).unwrap();
    let unknown = notes.unknown.iter().map(String::as_str);
    assert_eq!(
        unknown.collect::<BTreeSet<_>>(),
        ["MaxPods", "max-pods", "maxPod"].into()
    );
    assert_eq!(flags, Flags::default());
}

#[test]
fn an_invalid_document_is_one_error_line() {
    for (document, want) in [
        (
            json!(null),
            "not a kubelet configuration: no mapping at the top",
        ),
        (
            json!([]),
            "not a kubelet configuration: no mapping at the top",
        ),
        (
            json!({"kind": KIND}),
            "apiVersion is \"\"; a kubelet configuration has apiVersion: kubelet.config.k8s.io/v1beta1",
        ),
        (
            json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": KIND}),
            "apiVersion is \"kubelet.config.k8s.io/v1\"; a kubelet configuration has apiVersion: \
             kubelet.config.k8s.io/v1beta1",
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "Config"}),
            "kind is \"Config\"; a kubelet configuration has kind: KubeletConfiguration",
        ),
    ] {
        assert_eq!(
            apply(&document, &mut Flags::default()),
            Err(want.to_owned())
        );
    }
    for (fields, want) in [
        ("\"\": /tmp/kubeconfig", "a field has an empty name"),
        (
            "maxPods: \"7\"",
            "maxPods is not a number; leave out the quotes",
        ),
        ("maxPods: 7.5", "maxPods is not a whole number of 32 bits"),
        (
            "maxPods: 4294967296",
            "maxPods is not a whole number of 32 bits",
        ),
        (
            "registerNode: \"yes\"",
            "registerNode is neither true nor false",
        ),
        (
            "providerID: 7",
            "providerID is not a string; put it in quotes",
        ),
        (
            "nodeStatusUpdateFrequency: 10",
            "nodeStatusUpdateFrequency is not a string; write it like 10s",
        ),
        (
            "nodeStatusUpdateFrequency: \"10\"",
            "nodeStatusUpdateFrequency: \"10\" is not a duration; write it like 10s, 5m0s or 1h30m",
        ),
        (
            "evictionHard: {pid.available: 10}",
            "evictionHard.pid.available is not a string; put it in quotes",
        ),
        (
            "evictionHard: pid.available<10",
            "evictionHard is not a mapping",
        ),
        (
            "enforceNodeAllocatable: pods",
            "enforceNodeAllocatable is not a list",
        ),
        (
            "enforceNodeAllocatable: [1]",
            "enforceNodeAllocatable is not a list of strings",
        ),
        (
            "registerWithTaints: a=b:NoSchedule",
            "registerWithTaints is not a list",
        ),
        (
            "registerWithTaints: [{key: a, value: b, effect: Never}]",
            "registerWithTaints: invalid taint: {a b Never <nil>}",
        ),
        (
            "registerWithTaints: [7]",
            "registerWithTaints: invalid taint: {   <nil>}",
        ),
        (
            "registerWithTaints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]",
            "registerWithTaints: duplicated taints with the same key and effect: a=b:NoSchedule",
        ),
        (
            "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: \"2026-01-01T00:00:00Z\"}]",
            "registerWithTaints: invalid configuration: taint.TimeAdded is not nil",
        ),
        (
            "mergeDefaultEvictionSettings: 1",
            "mergeDefaultEvictionSettings is neither true nor false",
        ),
        (
            "maxPods: a\nport: b",
            "[maxPods is not a number; leave out the quotes, port is not a number; leave out the quotes]",
        ),
    ] {
        assert_eq!(merged(fields, &[]), Err(want.to_owned()), "{fields}");
    }
}
