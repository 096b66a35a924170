use std::time::Duration;

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::kube::finding::tests::assert_lines;

#[test]
fn the_labels_the_taint_and_the_addresses_of_a_guest_have_lines() {
    let flags = [
        "--node-labels=kubernetes.io/os=linux,kubernetes.io/hostname=x",
        "--node-labels=node.kubernetes.io/exclude-disruption=",
    ];
    let configs = [&[][..], &flags, &["--max-pods=110"], &["--register-node=false"]];
    let [default, labeled, with_pods, created] = configs.map(|flags| Config::of(flags).node);
    let ours = labels::of_new_node(&default);
    let kubelets = labels::of_new_node(&with_pods);
    let with = |key: &str| {
        let mut labels = ours.clone();
        labels.insert(key.into(), "a".into());
        labels
    };
    let found = |config, labels: &Map<String, Value>| {
        super::labels(config, Some(&json!({"metadata": {"labels": labels}})))
    };
    let bare = &json!({});
    let taints = json!([{"key": "nodelet/no-pods", "effect": "NoSchedule"}]);
    let node = &json!({"spec": {"taints": taints, "podCIDRs": ["10.244.3.0/24"]}});
    let like = "✓ the same as after a start";
    let has_pods = "– --max-pods is 110, the Node is like a kubelet's";
    let kubectl = "✗ ; kubectl taint node pi nodelet/no-pods:NoSchedule";
    assert_lines(&[
        (guest(&default), "✓ guest: os \"nodelet\", no host name label, 2 of 2 exclusions"),
        (guest(&labeled), "✓ guest: os \"linux\", host name label x, 1 of 2 exclusions"),
        (guest(&with_pods), has_pods),
        (super::labels(&default, None), "✓ no Node of this name yet"),
        (found(&default, &ours), like),
        (found(&default, &with("example.com/theirs")), like),
        (found(&default, &with(TOPOLOGY[0])), "– the Node has topology.kubernetes.io/zone=a"),
        (found(&default, &kubelets), "✗ kubernetes.io/hostname, kubernetes.io/os"),
        (found(&with_pods, &kubelets), like),
        (found(&created, &kubelets), "– --register-node is off"),
        (taint(&default, None), "✓ the new Node has"),
        (taint(&default, Some(node)), "✓ the Node has"),
        (taint(&default, Some(bare)), kubectl),
        (taint(&with_pods, Some(bare)), "– not needed"),
        (pod_cidr(&default, None), "✓ gave the Node none"),
        (pod_cidr(&default, Some(bare)), "✓ gave the Node none"),
        (pod_cidr(&with_pods, Some(node)), "✓ 10.244.3.0/24"),
        (pod_cidr(&default, Some(node)), "– 10.244.3.0/24, which it does not use"),
    ]);
}

#[test]
fn bound_pods_are_counted_and_those_of_a_running_kubelet_fail() {
    let boot = Wall::from_epoch(Duration::from_secs(1_790_000_000));
    let pod = |start: Option<Wall>| {
        json!({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"nodeName": "pi"},
            "status": {"startTime": start.map(Wall::time)}})
    };
    let answered = |flags: &[&str], code, body: &Value| {
        pods(&Config::of(flags).node, Ok(Response::test(code, body.to_string())), Some(boot))
    };
    let found = |flags: &[&str], items: &[&Value]| {
        answered(flags, 200, &json!({"kind": "PodList", "items": items}))
    };
    let minutes = Duration::from_secs(600);
    let (stray, old) = (&pod(None), &pod(Some(boot.before(minutes))));
    let running = &pod(Some(boot.after(minutes)));
    let mut large = pod(None);
    large["spec"]["containers"] = json!([{"args": vec![""; 40_000]}]);
    let left = "✗ 1 may still be running: a kubelet started them since this boot; kubectl drain \
                pi, and reboot the board";
    assert_lines(&[
        (found(&[], &[]), "✓ none is bound"),
        (found(&[], &[stray, old]), "– 2 bound, the agent ends them"),
        (found(&[], &[&large]), "– 1 bound, the agent ends them"),
        (found(&["--reject-pods=false"], &[stray]), "– ; set --reject-pods"),
        (found(&[], &[stray, running]), left),
        (answered(&[], 403, &json!({})), "– not permitted to list them"),
        (answered(&[], 500, &json!({})), "– cannot be read: 500"),
        (answered(&[], 200, &json!([])), "– not a PodList"),
    ]);
}

#[test]
fn a_server_three_minor_versions_ahead_is_a_note_with_the_flag() {
    let answered = |ours: &str, code, body: &Value| {
        let config = Config::of(&["--kubelet-version", ours]);
        server_version(&config, Ok(Response::test(code, body.to_string())))
    };
    let found = |ours: &str, server: &str| answered(ours, 200, &json!({"gitVersion": server}));
    assert_lines(&[
        (found("", "v1.36.2"), "✓ v1.36.2"),
        (found("", "v1.33.4+k3s1"), "✓ v1.33.4"),
        (found("", "v1.38.9"), "✓ v1.38.9"),
        (found("", "v1.39.0"), "– --kubelet-version=server"),
        (found("", "v1.45.0"), "– --kubelet-version=server"),
        (found("", "next"), "– no version"),
        (found("v1.40.0", "v1.42.0"), "✓ v1.40.0"),
        (found("server", "v1.45.0"), "✓ v1.45.0"),
        (answered("", 403, &json!({})), "– not permitted to read it"),
    ]);
}
