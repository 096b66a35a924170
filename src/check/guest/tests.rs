use std::time::Duration;

use serde_json::json;

use super::*;
use crate::check::Mark;
use crate::config::Config;
use crate::config::flags::Flags;

fn whole(flags: Flags) -> Config {
    Config::new(flags, || Ok("pi".to_owned())).unwrap()
}

fn config(flags: Flags) -> NodeConfig {
    whole(flags).node
}

fn default() -> NodeConfig {
    config(Flags::default())
}

fn with_pods() -> NodeConfig {
    config(Flags::of(&["--max-pods=110"]))
}

fn node(labels: &Map<String, Value>, spec: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": spec})
}

#[test]
fn a_guest_is_described_and_a_node_with_pods_is_a_note() {
    assert_eq!(
        guest(&default()),
        Finding::ok("guest", "os \"nodelet\", no host name label, 2 of 2 exclusions")
    );
    let flags = Flags::of(&[
        "--node-labels=kubernetes.io/os=linux,kubernetes.io/hostname=x",
        "--node-labels=node.kubernetes.io/exclude-disruption=",
    ]);
    assert_eq!(
        guest(&config(flags)),
        Finding::ok("guest", "os \"linux\", host name label x, 1 of 2 exclusions")
    );
    assert_eq!(guest(&with_pods()).mark, Mark::Note);
}

#[test]
fn labels_that_the_next_start_changes_fail_and_a_zone_is_a_note() {
    let config = default();
    let mut ours = labels::of_new_node(&config);
    let found =
        |labels: &Map<String, Value>| super::labels(&config, Some(&node(labels, json!({}))));
    assert_eq!(super::labels(&config, None).mark, Mark::Ok);
    assert_eq!(found(&ours), Finding::ok("labels", "the same as after a start"));
    ours.insert("example.com/theirs".into(), "1".into());
    assert_eq!(found(&ours).mark, Mark::Ok);
    ours.insert("topology.kubernetes.io/zone".into(), "a".into());
    let zone = found(&ours);
    assert_eq!(
        (zone.mark, &*zone.detail),
        (Mark::Note, "the Node has topology.kubernetes.io/zone=a")
    );
    let kubelets = labels::of_new_node(&with_pods());
    let wrong = found(&kubelets);
    assert_eq!(wrong.mark, Mark::Failed);
    assert!(wrong.detail.contains("kubernetes.io/hostname, kubernetes.io/os"), "{wrong:?}");
    let kept = super::labels(&with_pods(), Some(&node(&kubelets, json!({}))));
    assert_eq!(kept.mark, Mark::Ok);
    let flags = Flags::of(&["--register-node=false"]);
    let created = super::labels(&self::config(flags), Some(&node(&kubelets, json!({}))));
    assert_eq!(created.mark, Mark::Note);
}

#[test]
fn a_missing_taint_fails_and_a_range_of_addresses_is_a_note() {
    let spec = |spec: Value| node(&Map::new(), spec);
    let with = spec(json!({"taints": [{"key": "nodelet/no-pods", "effect": "NoSchedule"}]}));
    assert_eq!(taint(&default(), None).mark, Mark::Ok);
    assert_eq!(taint(&default(), Some(&with)).mark, Mark::Ok);
    let lacks = taint(&default(), Some(&spec(json!({}))));
    assert_eq!(lacks.mark, Mark::Failed);
    assert_eq!(lacks.remedy, "kubectl taint node pi nodelet/no-pods:NoSchedule");
    assert_eq!(taint(&with_pods(), Some(&spec(json!({})))).mark, Mark::Note);

    let range = spec(json!({"podCIDRs": ["10.244.3.0/24"]}));
    assert_eq!(pod_cidr(&default(), Some(&spec(json!({})))).mark, Mark::Ok);
    assert_eq!(pod_cidr(&default(), None).mark, Mark::Ok);
    assert_eq!(pod_cidr(&with_pods(), Some(&range)).mark, Mark::Ok);
    let found = pod_cidr(&default(), Some(&range));
    assert_eq!(found.mark, Mark::Note);
    assert!(found.detail.contains("10.244.3.0/24"));
}

#[test]
fn bound_pods_are_counted_and_those_of_a_running_kubelet_fail() {
    let boot = Wall::from_epoch(Duration::from_secs(1_790_000_000));
    let pod = |start: Option<Wall>| {
        json!({"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": {"nodeName": "pi"},
            "status": {"startTime": start.map(Wall::time)}})
    };
    let found = |config: &NodeConfig, items: Value| {
        let list = Response::test(200, json!({"kind": "PodList", "items": items}).to_string());
        pods(config, Ok(list), Some(boot))
    };
    let minutes = Duration::from_secs(600);
    let (stray, old) = (pod(None), pod(Some(boot.before(minutes))));
    let running = pod(Some(boot.after(minutes)));
    assert_eq!(found(&default(), json!([])).mark, Mark::Ok);
    let two = found(&default(), json!([stray, old]));
    assert_eq!((two.mark, &*two.detail), (Mark::Note, "2 bound, the agent ends them"));
    let left = Flags::of(&["--reject-pods=false"]);
    assert_eq!(found(&config(left), json!([stray])).remedy, "set --reject-pods");
    let wrong = found(&default(), json!([stray, running]));
    assert_eq!(wrong.mark, Mark::Failed);
    assert_eq!(wrong.remedy, "kubectl drain pi, and reboot the board");
    let refused = pods(&default(), Ok(Response::test(403, "{}")), Some(boot));
    assert_eq!((refused.mark, &*refused.detail), (Mark::Note, "not permitted to list them"));
    assert_eq!(pods(&default(), Ok(Response::test(500, "{}")), None).mark, Mark::Note);
    assert_eq!(pods(&default(), Ok(Response::test(200, "[]")), None).mark, Mark::Note);
}

#[test]
fn a_server_three_minor_versions_ahead_is_a_note_with_the_flag() {
    let reporting = |version: &str, server: &str| {
        let flags = Flags::of(&["--kubelet-version", version]);
        let body = json!({"gitVersion": server}).to_string();
        server_version(&whole(flags), Ok(Response::test(200, body)))
    };
    let found = |server: &str| reporting("", server);
    for (server, mark) in [
        ("v1.36.2", Mark::Ok),
        ("v1.33.4+k3s1", Mark::Ok),
        ("v1.38.9", Mark::Ok),
        ("v1.39.0", Mark::Note),
        ("v1.45.0", Mark::Note),
        ("next", Mark::Note),
    ] {
        assert_eq!(found(server).mark, mark, "{server}");
    }
    assert!(found("v1.39.0").remedy.contains("--kubelet-version=server"));
    assert_eq!(reporting("v1.40.0", "v1.42.0").mark, Mark::Ok);
    assert_eq!(reporting("server", "v1.45.0").mark, Mark::Ok);
}
