//! Stray pods: those that are bound to a board without pods.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::{SHORT_GRACE, SOON, Site, accepted};
use crate::common::api::sent;
use crate::common::cluster::Cluster;
use nodelet::kube::time::Wall;
use support::eventually;

/// A kubelet that ran since this boot started the one that is left.
#[test]
fn a_stray_pod_is_rejected_after_the_third_renewal_and_a_running_one_is_left() {
    let site = Site::of(Cluster::start(SHORT_GRACE), "stray-before");
    site.bind("running");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let status = json!({"status": {"phase": "Running",
        "startTime": Wall::from_epoch(now.unwrap()).time()}});
    site.patch(&format!("{}/status", site.pod_path("running")), &status);
    let uid = site.bind("web")["metadata"]["uid"].clone();
    let board = site.start(&[]);
    site.is_rejected("web");
    assert_eq!(site.pod("web").unwrap()["metadata"]["uid"], uid);
    // Its deletion needs nobody.
    accepted(site.cluster.delete(&site.pod_path("web"), &Value::Null));
    assert!(site.pod("web").is_none());
    board.says_within(SOON, &format!("such as default/{}-running:", site.name));
    assert_eq!(site.pod("running").unwrap()["status"]["phase"], "Running");
    site.ready();
    if site.cluster.double().is_none() {
        return;
    }
    let sent = sent(site.double(), |_| true);
    let first = |part: &str| sent.iter().position(|request| request.contains(part)).unwrap();
    assert!(first("/pods") > first("/leases/"), "{sent:?}");
    // One look, and one act.
    let requests = site.about_pods();
    let methods: Vec<&str> = requests.iter().map(|request| request.method.as_str()).collect();
    assert_eq!(methods, ["GET", "PATCH"]);
    site.double().assert_members_are_known();
}

#[test]
fn a_pod_that_comes_later_is_rejected_with_a_report_and_a_terminating_one_is_ended() {
    let site = Site::of(Cluster::start(SHORT_GRACE), "stray-later");
    // A report in each second; looks follow each other after 15 s.
    let board = site.start(&["--node-status-report-frequency=1s"]);
    site.ready();
    site.renewed();
    // The first look finds nothing.
    match site.cluster.double() {
        Some(_) => eventually("the first look", SOON, || {
            let mut requests = site.about_pods().into_iter();
            requests.find(|r| r.method == "GET" && r.code == 200).map(drop)
        }),
        None => sleep(Duration::from_secs(2)),
    }
    site.bind("web");
    site.bind("gone");
    let waiting = accepted(site.cluster.delete(&site.pod_path("gone"), &Value::Null));
    assert!(waiting["metadata"]["deletionTimestamp"].is_string(), "{waiting}");
    site.bind("kept");
    let finalizers = |list: Value| {
        site.patch(&site.pod_path("kept"), &json!({"metadata": {"finalizers": list}}))
    };
    finalizers(json!(["example.org/x"]));
    accepted(site.cluster.delete(&site.pod_path("kept"), &Value::Null));
    eventually("the end of both", Duration::from_secs(30), || {
        let web = site.pod("web")?;
        (site.pod("gone").is_none() && web["status"]["phase"] == "Failed").then_some(())
    });
    board.says_within(
        SOON,
        "-kept waited for its kubelet; its finalizer \"example.org/x\" keeps it",
    );
    finalizers(Value::Null);
    assert!(!site.cluster.ever_left_ready());
    if site.cluster.double().is_none() {
        return;
    }
    let requests = site.about_pods();
    let looks: Vec<Instant> = requests.iter().filter(|r| r.method == "GET").map(|r| r.at).collect();
    assert!(looks[1].duration_since(looks[0]) >= Duration::from_secs(14));
    assert_eq!(requests.iter().filter(|r| r.method == "DELETE").count(), 2);
}
