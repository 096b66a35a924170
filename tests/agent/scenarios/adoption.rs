//! A Node of a kubelet becomes a guest and a kubelet's again, and a board of the previous version
//! becomes a guest.

use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{GRACE, SHORT_GRACE, SOON, Site, guest_labels, look_at};
use crate::common::api::{condition, sent};
use crate::common::cluster::Cluster;
use support::eventually;

/// The labels of a kubelet, without those of the architecture.
fn kubelet_labels(name: &str) -> Value {
    json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "beta.kubernetes.io/os": "linux"})
}

/// A kubelet: kubemark's, or nodelet with pods in its place.
#[test]
fn a_kubelets_node_becomes_a_guest_and_a_kubelets_again() {
    let site = Site::of(Cluster::start(GRACE), "takeover");
    let labels_are = |what: &str, wanted: &Value| {
        eventually(what, GRACE, || (site.labels() == *wanted).then_some(()));
    };
    let pods_are = |wanted: &str| {
        eventually("the capacity", GRACE, || {
            let node = site.cluster.node(&site.name)?;
            (node["status"]["capacity"]["pods"] == wanted).then_some(())
        });
    };
    let kubelet = site.cluster.kubelet(&site.name, &site.kubeconfig, "");
    let theirs = site.ready();
    site.renewed();
    labels_are("a kubelet", &kubelet_labels(&site.name));
    pods_are("110");
    drop(kubelet);
    let foreign = json!({"example.com/rack": "7", "topology.kubernetes.io/zone": "a"});
    site.patch(&site.node_path(), &json!({"metadata": {"labels": foreign}}));
    let mut guest_with_foreign = guest_labels();
    for (key, value) in foreign.as_object().unwrap() {
        guest_with_foreign[key] = value.clone();
    }

    let mut board = site.start(&[]);
    labels_are("the guest", &guest_with_foreign);
    pods_are("0");
    // What an administrator sets stays while it runs, apart from os.
    let set = json!({"metadata": {"labels": {
        "kubernetes.io/hostname": "by-hand", "node.kubernetes.io/exclude-disruption": null,
        "kubernetes.io/os": "linux"}}});
    site.patch(&site.node_path(), &set);
    board.stop(Signal::SIGTERM);
    let mut board = site.start(&["--node-resync-frequency=1s"]);
    labels_are("the guest after a restart", &guest_with_foreign);
    site.patch(&site.node_path(), &set);
    eventually("the os label repaired", SOON, || {
        (site.labels()["kubernetes.io/os"] == "nodelet").then_some(())
    });
    sleep(Duration::from_secs(3));
    assert_eq!(site.labels()["kubernetes.io/hostname"], "by-hand");
    let disruption = "node.kubernetes.io/exclude-disruption";
    assert_eq!(site.labels().get(disruption), None);
    let ours = site.ready();
    assert_eq!(ours["metadata"]["uid"], theirs["metadata"]["uid"]);
    assert!(!site.cluster.ever_left_ready());
    board.stop(Signal::SIGTERM);

    let _kubelet = site.cluster.kubelet(&site.name, &site.kubeconfig, "");
    pods_are("110");
    eventually("the kubelet's labels", GRACE, || {
        let labels = site.labels();
        let host = labels["kubernetes.io/hostname"] == site.name.as_str();
        (labels["kubernetes.io/os"] == "linux" && host).then_some(())
    });
    let balancers = "node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(site.labels()[balancers], "true", "a kubelet removes no label");
}

/// A Node as the previous version registered it: os is linux, and it has a host name label.
#[test]
fn an_upgrade_makes_a_guest_without_a_moment_of_not_ready() {
    let site = Site::of(Cluster::start(SHORT_GRACE), "upgrade");
    let labels = format!(
        "--node-labels=kubernetes.io/hostname={},kubernetes.io/os=linux,\
         node.kubernetes.io/exclude-disruption=,\
         node.kubernetes.io/exclude-from-external-load-balancers=",
        site.name
    );
    let mut board = site.start(&[&labels, "--reject-pods=false"]);
    let node = site.ready();
    site.renewed();
    assert_eq!(site.labels(), kubelet_labels(&site.name));
    board.stop(Signal::SIGTERM);
    if let Some(double) = site.cluster.double() {
        double.clear_requests();
    }
    // The health of this machine would add requests.
    let _board = site.start(&["--node-problem-detection=none"]);
    eventually("the guest", SOON, || (site.labels() == guest_labels()).then_some(()));
    sleep(SHORT_GRACE + Duration::from_secs(1));
    let after = site.ready();
    assert_eq!(after["metadata"]["uid"], node["metadata"]["uid"]);
    let transition = |node: &Value| condition(node, "Ready").unwrap()["lastTransitionTime"].clone();
    assert_eq!(transition(&after), transition(&node));
    assert!(!site.cluster.ever_left_ready());
    if site.cluster.double().is_some() {
        // Without the looks of the two minutes after a start.
        let mut sent = sent(site.double(), |r| !r.is_look());
        let node = site.node_path();
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let lease = format!("{leases}/{}", site.name);
        let renewal = format!("PATCH {lease} 200");
        let mut renewals = 0;
        sent.retain(|request| {
            renewals += usize::from(*request == renewal);
            *request != renewal || renewals == 1
        });
        // The requests of any restart: the labels are in the patch of the status.
        let restart = [
            format!("GET {node} 200"),
            format!("GET {lease} 200"),
            renewal,
            format!("PATCH {node}/status 200"),
            "POST /api/v1/namespaces/default/events 201".to_owned(),
            format!("GET {} 200", look_at(&site.name)),
        ];
        assert_eq!(sent, restart);
        assert!(renewals > 3, "{renewals} renewals");
    }
}
