use serde_json::json;

use super::*;
use crate::config::Config;
use crate::node::patch::tests::apply;

fn config(max_pods: i32, labels: &str) -> NodeConfig {
    Config::of(&[&format!("--max-pods={max_pods}"), &format!("--node-labels={labels}")]).node
}

fn object(labels: &Value) -> Map<String, Value> {
    labels.as_object().cloned().unwrap_or_default()
}

/// The labels of a new Node after the first sync.
fn new_node(max_pods: i32, labels: &str) -> Value {
    let config = config(max_pods, labels);
    let mut labels = of_new_node(&config);
    repair(&config, &mut labels);
    labels.into()
}

/// The labels of an existing Node after adoption and the first sync.
fn adopted(max_pods: i32, flag: &str, existing: &Value) -> Value {
    let config = config(max_pods, flag);
    let mut labels = object(existing);
    adopt(&config, &mut labels);
    repair(&config, &mut labels);
    let first = labels.clone();
    adopt(&config, &mut labels);
    assert_eq!(labels, first, "a second adoption changes nothing");
    labels.into()
}

/// The labels of a guest, with these changes: null removes one.
fn guest(changes: Value) -> Value {
    let labels = json!({
        "kubernetes.io/os": "nodelet",
        "beta.kubernetes.io/os": "nodelet",
        "kubernetes.io/arch": ARCHITECTURE,
        "beta.kubernetes.io/arch": ARCHITECTURE,
        "node.kubernetes.io/exclude-disruption": "true",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    });
    apply(labels, &changes)
}

fn kubelet(changes: Value) -> Value {
    let labels = json!({
        "kubernetes.io/hostname": "pi",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCHITECTURE,
        "beta.kubernetes.io/arch": ARCHITECTURE,
    });
    apply(labels, &changes)
}

const ZONE: &str = "topology.kubernetes.io/zone";
const DISRUPTION: &str = EXCLUSIONS[0];
const BALANCERS: &str = EXCLUSIONS[1];

#[test]
fn a_flag_wins_over_each_default_of_a_new_guest_and_an_empty_one_removes_it() {
    for (flag, changes) in [
        ("", json!({})),
        ("example.com/a=,b=1", json!({"example.com/a": "", "b": "1"})),
        ("kubernetes.io/os=linux", json!({OS: "linux", BETA_OS: "linux"})),
        (
            "kubernetes.io/os=linux,beta.kubernetes.io/os=plan9",
            json!({OS: "linux", BETA_OS: "plan9"}),
        ),
        ("beta.kubernetes.io/os=plan9", json!({BETA_OS: "plan9"})),
        ("kubernetes.io/os=", json!({OS: null, BETA_OS: null})),
        ("kubernetes.io/hostname=pi", json!({HOSTNAME: "pi"})),
        ("kubernetes.io/hostname=", json!({})),
        ("topology.kubernetes.io/zone=attic", json!({ZONE: "attic"})),
        ("topology.kubernetes.io/zone=", json!({})),
        ("node.kubernetes.io/exclude-disruption=", json!({DISRUPTION: null})),
        (
            "node.kubernetes.io/exclude-from-external-load-balancers=false",
            json!({BALANCERS: "false"}),
        ),
    ] {
        assert_eq!(new_node(0, flag), guest(changes), "{flag}");
    }
}

#[test]
fn a_node_of_a_kubelet_becomes_a_guest_and_keeps_the_labels_of_others() {
    let none = json!({});
    let theirs = json!({"example.com/theirs": "1", ZONE: "a"});
    let by_hand = json!({DISRUPTION: "by hand", BALANCERS: ""});
    for (flag, existing, changes) in [
        // An older nodelet, or a kubelet.
        ("", kubelet(theirs.clone()), theirs),
        ("", none.clone(), none.clone()),
        ("", guest(by_hand.clone()), by_hand),
        (
            "node.kubernetes.io/exclude-disruption=2,kubernetes.io/hostname=x",
            kubelet(json!({DISRUPTION: "by hand"})),
            json!({DISRUPTION: "2", HOSTNAME: "x"}),
        ),
        (
            "node.kubernetes.io/exclude-disruption=,kubernetes.io/os=linux",
            guest(none.clone()),
            json!({OS: "linux", BETA_OS: "linux", DISRUPTION: null}),
        ),
        ("kubernetes.io/os=", kubelet(none.clone()), json!({OS: null, BETA_OS: null})),
        ("example.com/new=1", kubelet(none.clone()), none),
    ] {
        assert_eq!(adopted(0, flag, &existing), guest(changes), "{flag} {existing}");
    }
}

/// What an administrator sets while the agent runs stays until the next start, apart from os and
/// arch.
#[test]
fn a_sync_repairs_os_and_arch_and_nothing_else() {
    for (max_pods, flag, os) in [
        (0, "", "nodelet"),
        (0, "kubernetes.io/os=plan9", "plan9"),
        (110, "", "linux"),
        (110, "kubernetes.io/os=plan9", "linux"),
    ] {
        let mut labels = object(&json!({HOSTNAME: "x", OS: "y", BETA_OS: "y", DISRUPTION: "z"}));
        repair(&config(max_pods, flag), &mut labels);
        assert_eq!(
            Value::from(labels),
            json!({HOSTNAME: "x", OS: os, BETA_OS: "y", DISRUPTION: "z", ARCH: ARCHITECTURE}),
            "{max_pods} {flag}"
        );
    }
    // A guest whose os label was removed by a flag does not fight over it.
    let mut labels = object(&json!({OS: "linux"}));
    repair(&config(0, "kubernetes.io/os="), &mut labels);
    assert_eq!(labels[OS], "linux");
}

/// A kubelet, or nodelet with pods, that takes the name gets its labels back, and removes none:
/// upstream's updateDefaultLabels does not know the exclusions.
#[test]
fn with_pods_a_guests_node_gets_the_kubelets_labels_and_keeps_the_exclusions() {
    assert_eq!(new_node(110, ""), kubelet(json!({})));
    let flag = format!("{HOSTNAME}=,{ZONE}=,{ARCH}=z80");
    assert_eq!(new_node(110, &flag), kubelet(json!({HOSTNAME: "", ZONE: ""})));
    let exclusions = json!({DISRUPTION: "true", BALANCERS: "true"});
    assert_eq!(adopted(110, "", &guest(json!({}))), kubelet(exclusions));
    assert_eq!(adopted(110, "", &json!({})), kubelet(json!({})), "it adds none");
}

/// kubelet_node_status_test.go TestUpdateDefaultLabels.
#[test]
fn test_update_default_labels() {
    let all = |value: &str| {
        json!({
            "kubernetes.io/hostname": value,
            "topology.kubernetes.io/zone": value,
            "topology.kubernetes.io/region": value,
            "failure-domain.beta.kubernetes.io/zone": value,
            "failure-domain.beta.kubernetes.io/region": value,
            "node.kubernetes.io/instance-type": value,
            "beta.kubernetes.io/instance-type": value,
            "kubernetes.io/os": value,
            "kubernetes.io/arch": value,
        })
    };
    let with_theirs = apply(all("new"), &json!({"please-persist": "foo"}));
    let no_stable = json!({
        ZONE: null,
        "topology.kubernetes.io/region": null,
        "node.kubernetes.io/instance-type": null,
        OS: null,
        ARCH: null,
    });
    for (name, initial, existing, want) in [
        ("1 copied", all("new"), json!({}), all("new")),
        ("2 replaced", all("new"), all("old"), all("new")),
        ("3 others stay", all("new"), with_theirs.clone(), with_theirs),
        ("4 nothing is removed", json!({}), all("old"), all("old")),
        ("5 equal", all("new"), all("new"), all("new")),
        ("6 no labels at all", all("new"), json!(null), all("new")),
        ("7 stable ones are filled in", all("new"), apply(all("new"), &no_stable), all("new")),
        (
            "other labels of --node-labels apply only at creation",
            json!({"example.com/site": "new", "kubernetes.io/os": "new"}),
            json!({"example.com/site": "old"}),
            json!({"example.com/site": "old", "kubernetes.io/os": "new"}),
        ),
        (
            "an empty value removes the label",
            json!({"topology.kubernetes.io/zone": "", "topology.kubernetes.io/region": ""}),
            json!({"topology.kubernetes.io/zone": "a", "b": ""}),
            json!({"b": ""}),
        ),
    ] {
        let mut labels = object(&existing);
        reset_defaults(&object(&initial), &mut labels);
        assert_eq!(Value::from(labels), want, "{name}");
    }
}
