//! DaemonSets and spread constraints beside boards: the same as without boards.

use std::time::Duration;

use serde_json::Value;

use super::plant::{Plant, ZONED};
use super::{accepted, judge, settle, workloads};

const ROLLOUT: Duration = Duration::from_secs(120);

/// A board without the labels of a guest keeps such a rolling update from its end: 1 of 3 pods was
/// updated (measured).
#[test]
fn daemon_sets_of_kubeadm_roll_out_beside_boards() {
    let Some(plant) = Plant::start(&[""; 2], 2) else {
        return;
    };
    for set in [workloads::kube_proxy(), workloads::flannel()] {
        roll_out(&plant, &set);
    }
}

/// Creates a DaemonSet, and then changes its template.
fn roll_out(plant: &Plant, set: &Value) {
    let name = judge::name(set);
    workloads::create(&plant.cluster, set);
    let path = format!("{}/{name}", workloads::path("daemonset"));
    let complete = |what: &str| {
        settle(&format!("{name}, {what}"), ROLLOUT, || {
            let pods = plant.pods(name);
            let set = plant.cluster.get(&path).ok_or("no DaemonSet")?;
            judge::rolled_out(&set, &pods, &plant.servers())
        });
    };
    complete("created");
    accepted(plant.cluster.patch(&path, &workloads::another_template()));
    complete("updated");
}

/// With a host name label on boards, 2 of 6 pods were scheduled; with a zone of their own, 2 of 8
/// (measured).
#[test]
fn pods_spread_over_hosts_zones_and_regions_beside_boards() {
    let Some(plant) = Plant::start(&ZONED, 2) else {
        return;
    };
    let [host, zone, region] =
        ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
    for (name, keys) in [
        ("by-host", &[host][..]),
        ("by-zone", &[zone]),
        ("by-both", &[host, zone]),
        ("by-region", &[region]),
    ] {
        workloads::create(&plant.cluster, &workloads::spread(name, keys));
        settle(name, ROLLOUT, || {
            let pods = plant.pods(name);
            judge::spread(&pods, workloads::REPLICAS, &plant.nodes(), keys)
        });
    }
}
