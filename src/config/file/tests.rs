//! `cmd/kubelet/app/server_test.go` TestMergeKubeletConfigurations. Not applicable: feature gates,
//! and fields without an effect.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::config::command_line;

/// The flags of a file and a command line.
fn merged(fields: &str, words: &[&str]) -> Result<Flags, String> {
    merged_with(Some(fields), &[], words)
}

/// The same, with drop-ins.
fn merged_with(base: Option<&str>, drop_ins: &[&str], words: &[&str]) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let base = base.map(|fields| document("base", fields));
    let name = |at: usize| format!("{at}.conf");
    let drop_ins = drop_ins.iter().enumerate().map(|(at, fields)| document(&name(at), fields));
    apply(base.as_ref(), &drop_ins.collect::<Vec<_>>(), &mut flags)?;
    command_line::apply(words.iter().map(Into::into).collect(), &mut flags).unwrap();
    Ok(flags)
}

fn document(name: &str, fields: &str) -> Document {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
    Document::parse(name.to_owned(), text.as_bytes()).unwrap()
}

fn pairs(pairs: &[(&str, &str)]) -> Pairs {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(pair).collect()
}

/// `config/tests.rs` gives each field its null and its zero.
#[test]
fn a_section_of_null_keeps_the_defaults_and_an_empty_eviction_hard_has_no_threshold() {
    let sections = "authentication: {webhook: null, x509: null}\nauthorization: null";
    assert_eq!(merged(sections, &[]), Ok(Flags::default()));
    let none = merged("evictionHard: {}", &[]).unwrap();
    assert_eq!(none.values.eviction_hard, Some(Pairs::new()));
}

/// `pkg/kubelet/apis/config/v1beta1/defaults.go`: "for backward compatibility".
#[test]
fn the_report_frequency_follows_the_update_frequency_of_the_file() {
    for (fields, words, want) in [
        ("nodeStatusUpdateFrequency: 1m", &[][..], (60_000, 60_000)),
        ("nodeStatusUpdateFrequency: 1m\nnodeStatusReportFrequency: 0s", &[], (60_000, 60_000)),
        ("nodeStatusUpdateFrequency: 1m\nnodeStatusReportFrequency: 2m", &[], (60_000, 120_000)),
        ("nodeStatusReportFrequency: 2m", &[], (10_000, 120_000)),
        ("nodeStatusUpdateFrequency: 0s", &[], (10_000, 300_000)),
        // At least the shortest valid report frequency.
        ("nodeStatusUpdateFrequency: 100ms", &[], (100, 1000)),
        ("", &["--node-status-update-frequency=1m"], (60_000, 300_000)),
        (
            "nodeStatusUpdateFrequency: 1m",
            &["--node-status-update-frequency=10s"],
            (10_000, 60_000),
        ),
    ] {
        let config = merged(fields, words).unwrap().values.config;
        let got = (config.update_frequency.as_millis(), config.report_frequency.as_millis());
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
        ],
    )
    .unwrap();
    let mut want = Flags::default();
    // The first occurrence clears the value of the file, the second adds.
    want.values.eviction_hard =
        Some(pairs(&[("memory.available", "100Mi"), ("nodefs.available", "10%")]));
    want.values.system_reserved = Pairs::new();
    assert_eq!(flags, want);
    // Fields without a flag on the command line keep the value of the file.
    let values = merged(fields, &["--port=1"]).unwrap().values;
    assert_eq!((values.config.node.max_pods, values.config.node.port), (7, 1));
    assert_eq!(values.eviction_hard.unwrap().len(), 2);
}

/// A file with a bad value starts the agent with a flag instead, as a kubelet.
#[test]
fn a_flag_replaces_a_value_of_the_file_that_is_out_of_its_range() {
    let config = |words: &[&str]| {
        let flags = merged("maxPods: -1\nnodeStatusUpdateFrequency: 1ms", words).unwrap();
        Config::new(flags, || Ok("pi".to_owned())).map(|config| config.node.max_pods)
    };
    let line = config(&["--max-pods=3"]).unwrap_err();
    assert!(line.contains("nodeStatusUpdateFrequency"), "{line}");
    assert_eq!(config(&["--max-pods=3", "--node-status-update-frequency=1s"]), Ok(3));
}

#[test]
fn merge_default_eviction_settings() {
    let merge = "\nmergeDefaultEvictionSettings: true";
    for (fields, words, want) in [
        ("evictionHard: {pid.available: 5%}", &[][..], Some(pairs(&[("pid.available", "5%")]))),
        (merge, &[], None),
        (
            &format!("evictionHard: {{pid.available: 5%, nodefs.available: 1Gi}}{merge}"),
            &[],
            Some(pairs(&[
                ("imagefs.available", "15%"),
                ("imagefs.inodesFree", "5%"),
                ("memory.available", "100Mi"),
                ("nodefs.available", "1Gi"),
                ("nodefs.inodesFree", "5%"),
                ("pid.available", "5%"),
            ])),
        ),
        (
            &format!("evictionHard: {{pid.available: 5%}}{merge}"),
            &["--eviction-hard=memory.available<1Gi"],
            Some(pairs(&[("memory.available", "1Gi")])),
        ),
        (
            "evictionHard: {pid.available: 5%}\nmergeDefaultEvictionSettings: false",
            &["--eviction-hard="],
            Some(Pairs::new()),
        ),
    ] {
        let flags = merged(fields, words).unwrap();
        assert_eq!(flags.values.eviction_hard, want, "{fields}");
    }
}

/// The cases of TestMergeKubeletConfigurations, and what follows from its order of defaults.
#[test]
fn drop_ins_are_merged_in_their_order() {
    let node = |flags: &Flags| flags.values.config.node.clone();
    let two = merged_with(Some("port: 9090"), &["port: 9091", "port: 8080\nmaxPods: 3"], &[]);
    let of_two = node(&two.unwrap());
    assert_eq!((of_two.port, of_two.max_pods), (8080, 3));
    let overridden = merged_with(None, &["port: 8080"], &["--port=8081"]).unwrap();
    assert_eq!(node(&overridden).port, 8081);
    // A map is merged, a list is replaced, a null removes, and a zero is the default.
    let base = "
kubeReserved: {memory: 100Mi, pid: \"5\"}
registerWithTaints: [{key: a, effect: NoSchedule}]
providerID: lab://3
maxPods: 7
authentication: {webhook: {enabled: false, cacheTTL: 1m}}
";
    let drop_ins = [
        "kubeReserved: {memory: 150Mi, cpu: 200m}\nauthentication: {webhook: {cacheTTL: null}}",
        "kubeReserved: {pid: null}\nregisterWithTaints: [{key: b, effect: NoExecute}]",
        "providerID: null\nmaxPods: 0\nsystemReserved: {cpu: \"1\", memory: null}",
    ];
    let got = merged_with(Some(base), &drop_ins, &[]).unwrap();
    let mut want = Flags::default();
    want.values.kube_reserved = pairs(&[("cpu", "200m"), ("memory", "150Mi")]);
    want.values.system_reserved = pairs(&[("cpu", "1")]);
    want.values.accepts_tokens = false;
    let taint = Taint { key: "b".into(), value: String::new(), effect: "NoExecute".into() };
    want.values.config.node.taints = vec![taint];
    assert_eq!(got, want);
}

/// `loadConfigFile` sets the default thresholds before the drop-ins are merged.
#[test]
fn thresholds_of_a_drop_in_are_merged_into_the_defaults_if_there_is_a_file() {
    let mut all = thresholds::defaults();
    let one = "evictionHard: {pid.available: 5%}";
    all.insert("pid.available".to_owned(), "5%".to_owned());
    let alone = pairs(&[("pid.available", "5%")]);
    for (base, drop_ins, want) in [
        (None, &[one][..], Some(alone.clone())),
        (Some(""), &[one], Some(all.clone())),
        (Some("evictionHard: null"), &["port: 1", one], Some(all.clone())),
        (Some("evictionHard: {}"), &[one], Some(alone.clone())),
        (Some(one), &["mergeDefaultEvictionSettings: true"], Some(alone)),
        (Some(&*format!("{one}\nmergeDefaultEvictionSettings: true")), &["port: 1"], Some(all)),
        (Some(""), &["port: 1"], None),
        (None, &["port: 1"], None),
        (Some(""), &["evictionHard: null"], Some(Pairs::new())),
    ] {
        let got = merged_with(base, drop_ins, &[]).unwrap().values.eviction_hard;
        assert_eq!(got, want, "{base:?} {drop_ins:?}");
    }
}

#[test]
fn the_report_frequency_follows_the_update_frequency_of_the_file_and_not_of_a_drop_in() {
    let (one, two) = ("nodeStatusUpdateFrequency: 1m", "nodeStatusUpdateFrequency: 2m");
    let none = "nodeStatusReportFrequency: null";
    for (base, drop_in, want) in [
        (None, one, (60, 300)),
        (Some(""), one, (60, 300)),
        (Some(one), two, (120, 60)),
        (Some(one), "port: 1", (60, 60)),
        (Some(""), none, (10, 10)),
        (Some(one), none, (60, 60)),
    ] {
        let config = merged_with(base, &[drop_in], &[]).unwrap().values.config;
        let got = (config.update_frequency.as_secs(), config.report_frequency.as_secs());
        assert_eq!(got, want, "{base:?} {drop_in}");
    }
}

#[test]
fn an_error_names_the_last_file_that_has_it() {
    for (base, drop_ins, want) in [
        ("port: a", &["port: b", "maxPods: 1"][..], Err("0.conf: port is not a number")),
        ("maxPods: a", &["port: 1"], Err("base: maxPods is not a number")),
        // As in the kubelet, only the result counts.
        ("port: a", &["port: 1"], Ok(1)),
    ] {
        let got = merged_with(Some(base), drop_ins, &[]).map(|flags| flags.values.config.node.port);
        match (got, want) {
            (Err(line), Err(want)) => assert!(line.starts_with(want), "{line}"),
            (got, want) => assert_eq!(got, want.map_err(str::to_owned)),
        }
    }
}

/// The ConfigMap of kubeadm 1.36, which it writes to `/var/lib/kubelet/config.yaml`.
#[test]
fn the_file_of_kubeadm_sets_rotation_and_the_client_ca_and_has_no_unknown_field() {
    let recording = include_str!("../../../tests/recordings/join-kubeadm.json");
    let recording: Value = serde_json::from_str(recording).unwrap();
    let text = recording["steps"][20]["response"]["body"]["data"]["kubelet"].as_str().unwrap();
    let mut flags = Flags::default();
    let document = Document::parse(String::new(), text.as_bytes()).unwrap();
    apply(Some(&document), &[], &mut flags).unwrap();
    let mut want = Flags { ignored: flags.ignored.clone(), ..Flags::default() };
    want.values.config.rotate_certificates = true;
    want.values.client_ca_file = Some("/etc/kubernetes/pki/ca.crt".into());
    assert_eq!(flags, want);
    let known = ["cgroupDriver", "logging", "memorySwap"];
    assert!(known.iter().all(|name| flags.ignored.iter().any(|n| n == name)));
    assert_eq!(flags.ignored.len(), 20);
}

/// `pkg/kubelet/apis/config/helpers.go` KubeletConfigurationPathRefs; a drop-in is not resolved.
#[test]
fn a_relative_path_is_below_the_folder_of_the_file() {
    let fields = "tlsCertFile: tls.crt\ntlsPrivateKeyFile: /etc/tls.key\nhostnameOverride: a/b\n\
                  authentication: {x509: {clientCAFile: pki/ca.crt}}";
    let drop_in = document("0.conf", "tlsPrivateKeyFile: ../tls.key");
    for (folder, crt, ca) in [
        ("/etc/nodelet", "/etc/nodelet/tls.crt", "/etc/nodelet/pki/ca.crt"),
        ("", "tls.crt", "pki/ca.crt"),
    ] {
        let base = document("base", fields).with_paths_below(Path::new(folder));
        let of = |drop_ins: &[Document]| {
            let mut flags = Flags::default();
            apply(Some(&base), drop_ins, &mut flags).unwrap();
            let Values { tls_cert_file, tls_private_key_file, client_ca_file, .. } = flags.values;
            [tls_cert_file, tls_private_key_file, client_ca_file].map(Option::unwrap)
        };
        assert_eq!(of(&[]), [crt, "/etc/tls.key", ca].map(PathBuf::from));
        assert_eq!(of(std::slice::from_ref(&drop_in))[1], PathBuf::from("../tls.key"));
    }
    let others = "tlsCertFile: ''\nauthentication: {x509: null}";
    let base = document("base", others).with_paths_below(Path::new("/etc"));
    assert_eq!(base.fields, document("base", others).fields);
}

/// A file that a kubelet refuses starts the agent, if it is wrong only where it has no effect.
#[test]
fn a_field_that_is_ignored_or_unknown_takes_any_value() {
    let ignored = "
enforceNodeAllocatable: {pods: 1}
healthzPort: [never]
logging: no
memorySwap: {swapBehavior: some}
readOnlyPort: -1
runOnce: true
shutdownGracePeriod: soon
";
    let unknown = "
maxPod: 7
MaxPods: 7
max-pods: 7
authorization: {mod: x, webhook: {a: b}}
authorization.mode: x
";
    let flags = merged(&format!("{ignored}{unknown}"), &[]).unwrap();
    assert_eq!(flags.ignored.len(), 7, "{:?}", flags.ignored);
    let words =
        "MaxPods max-pods maxPod authorization.mod authorization.webhook.a authorization.mode";
    let names: BTreeSet<&str> = flags.unknown.iter().map(String::as_str).collect();
    assert_eq!(names, words.split(' ').collect());
    let Flags { ignored, unknown, .. } = flags.clone();
    assert_eq!(flags, Flags { ignored, unknown, ..Flags::default() });
}

#[test]
fn an_invalid_document_is_one_error_line() {
    let is_refused = |result: Result<(), String>, parts: &[&str]| {
        let line = result.unwrap_err();
        assert!(parts.iter().all(|part| line.contains(part)), "{line}\nlacks one of {parts:?}");
        assert!(!line.contains('\n'), "{line}");
    };
    for (document, parts) in [
        (json!(null), &["no mapping at the top"][..]),
        (json!([]), &["no mapping at the top"]),
        (json!({"kind": KIND}), &["apiVersion is \"\"", "has apiVersion: kubelet.config"]),
        (
            json!({"apiVersion": "kubelet.config.k8s.io/v1", "kind": KIND}),
            &["apiVersion is \"kubelet.config.k8s.io/v1\"", "kubelet.config.k8s.io/v1beta1"],
        ),
        (
            json!({"apiVersion": API_VERSION, "kind": "Config"}),
            &["kind is \"Config\"", "has kind: KubeletConfiguration"],
        ),
    ] {
        let parsed = Document::parse("10.conf".to_owned(), document.to_string().as_bytes());
        is_refused(parsed.map(drop), &[parts, &["10.conf: "]].concat());
    }
    let (taints, none) = ("registerWithTaints", "<nil>}");
    for (fields, parts) in [
        ("\"\": /tmp/kubeconfig", &["empty name"][..]),
        ("maxPods: \"7\"", &["maxPods is not a number", "quotes"]),
        ("maxPods: 7.5", &["maxPods is not a whole number"]),
        ("maxPods: 4294967296", &["maxPods is not a whole number", "32 bits"]),
        ("registerNode: \"yes\"", &["registerNode is neither true nor false"]),
        ("providerID: 7", &["providerID is not a string", "quotes"]),
        ("nodeStatusUpdateFrequency: 10", &["nodeStatusUpdateFrequency is not", "like 10s"]),
        ("nodeStatusUpdateFrequency: \"10\"", &["nodeStatusUpdateFrequency: \"10\"", "like 10s"]),
        ("evictionHard: {pid.available: 10}", &["evictionHard.pid.available is not", "quotes"]),
        ("evictionHard: pid.available<10", &["evictionHard is not a mapping"]),
        ("authentication: 7", &["authentication is not a mapping"]),
        ("authorization: {webhook: []}", &["authorization.webhook is not a mapping"]),
        (
            "authentication: {webhook: {cacheTTL: 2}}",
            &["authentication.webhook.cacheTTL is not a string", "like 10s"],
        ),
        ("registerWithTaints: a=b:NoSchedule", &[taints, "is not a list"]),
        (
            "registerWithTaints: [{key: a, value: true, effect: NoSchedule}]",
            &["registerWithTaints: .value is not a string; put it in quotes"],
        ),
        (
            "registerWithTaints: [{key: a, value: b, effect: Never}]",
            &[taints, "invalid taint", "{a b Never", none],
        ),
        ("registerWithTaints: [7]", &[taints, "invalid taint", none]),
        (
            "registerWithTaints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]",
            &[taints, "duplicated", "a=b:NoSchedule"],
        ),
        (
            "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: \"2026-01-01T00:00:00Z\"}]",
            &[taints, "TimeAdded"],
        ),
        ("mergeDefaultEvictionSettings: 1", &["mergeDefaultEvictionSettings is neither"]),
        ("maxPods: a\nport: b", &["[maxPods is not", ", port is not"]),
    ] {
        is_refused(merged(fields, &[]).map(drop), parts);
    }
}
