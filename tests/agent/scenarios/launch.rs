//! The programs of a cluster, and the nodes of a plant.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use apidouble::Double;
use serde_json::json;

use super::plant::{Plant, ZONED};
use super::{SHORT_GRACE, SOON, guest_labels};
use crate::common::cluster::Cluster;
use crate::common::cluster::program::Program;
use support::{Folder, eventually};

/// All that the scenarios with pods do, apart from the pods: servers and boards become Ready with
/// their labels, and are found silent.
#[test]
fn the_nodes_of_a_plant_are_ready_until_they_are_killed() {
    let mut plant = Plant::start(&ZONED, 2);
    assert_eq!(plant.servers(), ["server-0", "server-1", "server-2"]);
    assert_eq!(plant.boards(), ["board-0", "board-1"]);
    let label = |key: &str| -> Vec<String> {
        let nodes = plant.nodes();
        let labels = nodes.iter().map(|node| &node["metadata"]["labels"][key]);
        labels
            .map(|label| label.as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(label("kubernetes.io/hostname"), plant.servers());
    assert_eq!(label("kubernetes.io/os"), ["linux"; 3]);
    assert_eq!(label("topology.kubernetes.io/zone"), ["a", "b", "c"]);
    assert_eq!(
        label("topology.kubernetes.io/region"),
        ["north", "north", "south"]
    );
    let board = plant.cluster.node("board-0").unwrap();
    for (key, value) in guest_labels().as_object().unwrap() {
        assert_eq!(board["metadata"]["labels"][key], *value, "{key}");
    }

    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"nodeName": "server-1", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(plant.cluster.post(super::PODS, &pod).0, 201);
    assert_eq!(plant.pods("web").len(), 1);
    assert_eq!(plant.pods("other").len(), 0);

    assert_eq!(plant.kill_servers(1), ["server-0"]);
    assert_eq!(plant.servers(), ["server-1", "server-2"]);
    plant.kill_boards();
    assert!(plant.boards().is_empty());
    plant.kill_servers(2);
}

fn shell(folder: &Folder, script: &str) -> Program {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Program::start(command, folder.path().join("log"))
}

#[test]
fn a_program_that_ends_is_told_with_its_status_and_log() {
    let folder = Folder::new("program");
    let mut program = shell(&folder, "echo out; echo wrong flag >&2; exit 3");
    let end = eventually("its end", SOON, || program.ended());
    assert!(end.starts_with("exit status: 3: "), "{end}");
    assert!(end.ends_with("log:\nout\nwrong flag"), "{end}");
}

#[test]
fn a_program_is_killed_on_drop() {
    let folder = Folder::new("program");
    let mut program = shell(&folder, "exec sleep 60");
    let process = format!("/proc/{}", program.pid());
    assert_eq!(program.ended(), None);
    assert!(fs::exists(&process).unwrap());
    drop(program);
    eventually("its end", Duration::from_secs(1), || {
        (!fs::exists(&process).unwrap()).then_some(())
    });
}

/// The stand-in for kubemark refuses a flag that kubemark lacks: a kubelet that starts has none.
#[test]
fn the_stand_in_refuses_other_flags() {
    let cluster = Cluster::on(Double::start());
    let mut kubelet = cluster.kubelet("server", "relative/kubeconfig", "");
    let end = eventually("its end", SOON, || kubelet.ended());
    assert!(
        end.ends_with("unknown flag: --kubeconfig=relative/kubeconfig"),
        "{end}"
    );
}

#[test]
#[ignore = "run by a_control_plane_that_ends_is_told_with_its_log"]
fn starts_a_control_plane() {
    drop(Cluster::start(SHORT_GRACE));
}

/// A person who has other versions of the programs sees what they say.
#[test]
fn a_control_plane_that_ends_is_told_with_its_log() {
    let assets = Folder::new("assets");
    for (name, script) in [
        ("etcd", "exec sleep 60"),
        (
            "kube-apiserver",
            "echo \"Error: unknown flag after $#\"; exit 1",
        ),
    ] {
        let path = assets.write(name, format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let test = "scenarios::launch::starts_a_control_plane";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", test])
        .env("KUBEBUILDER_ASSETS", assets.path())
        // With it, the output of the test would not be in that of the harness.
        .env_remove("RUST_TEST_NOCAPTURE")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("kube-node-lease: exit status: 1: "), "{text}");
    assert!(text.contains("Error: unknown flag after "), "{text}");
}
