//! The line that kubeadm prints: a Ready Node, a restart, a renewed certificate. With a real
//! kubeadm and control plane where there are ones, else on the double.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use nodelet::kube::x509::Leaf;
use support::{Folder, eventually};

use super::agent;
use crate::common::api::is_ready;
use crate::common::cluster::Cluster;
use crate::common::command::{command, end};
use crate::common::lease::await_renewals;

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
    let name = format!("--node-name={NAME}");
    let mut join = command(&line);
    let joined = end(join.args(["--output=json", &name, "--root"]).arg(root.path()));
    assert_eq!((joined.code, joined.report().failed()), (0, vec![]), "{joined:?}");

    let mut board = agent(root.path());
    let created = eventually("Ready", MINUTE, || cluster.node(NAME).filter(is_ready));
    let mut last = eventually("its own certificate", MINUTE * 2, || leaf(root.path()));
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        board.stop(signal);
        board = agent(root.path());
        last = eventually("a new certificate", MINUTE * 3, || {
            leaf(root.path()).filter(|leaf| leaf.public_key != last.public_key)
        });
        await_renewals(1, MINUTE, || cluster.renew_time(NAME));
    }
    assert!(board.is_running());
    let node = cluster.node(NAME).filter(is_ready).unwrap();
    assert_eq!(node["metadata"]["uid"], created["metadata"]["uid"]);
    assert!(!cluster.ever_left_ready());
}
