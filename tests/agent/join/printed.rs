//! The line that kubeadm prints: a Ready Node, a restart, a renewed certificate. With a real
//! kubeadm and control plane where there are ones, else on the double.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nodelet::kube::x509::Leaf;
use serde_json::Value;
use support::{Folder, eventually};

use super::agent;
use crate::common::api::is_ready;
use crate::common::board::binary;
use crate::common::cluster::Cluster;

const GRACE: Duration = Duration::from_secs(40);
const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "printed";

fn leaf(root: &Path) -> Option<Leaf> {
    let current = "var/lib/nodelet/pki/kubelet-client-current.pem";
    Leaf::of_pem(&fs::read(root.join(current)).ok()?)
}

#[test]
fn the_printed_line_makes_a_ready_node_that_renews_its_certificate() {
    let (cluster, line) = Cluster::start_with_kubeadm(GRACE);
    assert_eq!(line[0], "join");
    let root = Folder::new("printed");
    let output = Command::new(binary())
        .args(&line)
        .args(["--output=json", &format!("--node-name={NAME}"), "--root"])
        .arg(root.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{report}");
    let report: Value = serde_json::from_str(&report).unwrap();
    let steps = report["checks"].as_array().unwrap();
    assert!(steps.iter().all(|step| step["ok"] != false), "{report}");

    let mut board = agent(root.path());
    let created = eventually("Ready", MINUTE, || cluster.node(NAME).filter(is_ready));
    let mut last = eventually("its own certificate", MINUTE * 2, || leaf(root.path()));
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        board.stop(signal);
        board = agent(root.path());
        last = eventually("a new certificate", MINUTE * 3, || {
            leaf(root.path()).filter(|leaf| leaf.public_key != last.public_key)
        });
        let before = cluster.renew_time(NAME);
        eventually("a renewal of the Lease with it", MINUTE, || {
            cluster.renew_time(NAME).filter(|now| Some(now) > before.as_ref())
        });
    }
    assert!(board.is_running());
    let node = cluster.node(NAME).filter(is_ready).unwrap();
    assert_eq!(node["metadata"]["uid"], created["metadata"]["uid"]);
    assert!(!cluster.ever_left_ready());
}
