//! The conditions about the board's health, from the kernel's files to the server.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::api::condition;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::raspberry::{self, ALARM, OOPSES};
use support::{Folder, eventually};

/// Of the control plane; the Leases last as long.
const GRACE: Duration = Duration::from_secs(8);

struct Site {
    cluster: Cluster,
    /// Of the Node.
    name: String,
    folder: Folder,
}

impl Site {
    fn new(name: &str) -> Self {
        let cluster = Cluster::start(GRACE);
        let folder = Folder::new("health");
        raspberry::healthy(&folder);
        Self { name: cluster.node_name(name), cluster, folder }
    }

    fn start(&self, more: &[&str]) -> Board {
        let root = self.folder.path().join("root").display().to_string();
        let board = ["--host-root", &root, "--node-ip=::", "--root-dir=/var/lib/kubelet"];
        Board::fast(self.cluster.kubeconfig(&self.name), &self.name, &[&board, more].concat())
    }

    fn condition(&self, kind: &str) -> Option<Value> {
        condition(&self.cluster.node(&self.name)?, kind).cloned()
    }

    fn is(&self, kind: &str, status: &str) -> Option<Value> {
        self.condition(kind).filter(|c| c["status"] == status)
    }

    /// How often such an event happened.
    fn events(&self, reason: &str) -> u64 {
        let mut events = self.cluster.list("/api/v1/events");
        events.retain(|event| event["involvedObject"]["name"] == self.name.as_str());
        events.retain(|event| event["reason"] == reason);
        events.iter().map(|event| event["count"].as_u64().unwrap()).sum()
    }
}

/// An alarm holds for four looks, which come every 10 s: True within 40 s.
#[test]
fn a_weak_supply_and_an_oops_reach_the_server() {
    let site = Site::new("health-supply");
    site.folder.write(ALARM, "1\n");
    site.folder.write(OOPSES, "1\n");
    let board = site.start(&[]);
    let limit = Duration::from_secs(10);
    let oops = eventually("KernelDeadlock", limit, || site.is("KernelDeadlock", "True"));
    assert_eq!(oops["reason"], "KernelOops");
    // It changes no condition that is True.
    site.folder.write("root/proc/sys/kernel/hung_task_detect_count", "1\n");
    assert_eq!(site.condition("UnderVoltage"), None, "it needs 30 s");
    let theirs = json!({"type": "TheirType", "status": "False", "reason": "R", "message": "m"});
    site.cluster.set_condition(&site.name, &theirs);
    let foreign = site.condition("TheirType");
    let limit = Duration::from_secs(45);
    let low = eventually("UnderVoltage", limit, || site.is("UnderVoltage", "True"));
    let took = board.started.elapsed();
    println!("UnderVoltage is True after {took:?}");
    assert!(took > Duration::from_secs(27), "{took:?}");
    assert_eq!(low["reason"], "UnderVoltageDetected");
    eventually("the event", Duration::from_secs(10), || {
        (site.events("UnderVoltageDetected") == 1).then_some(())
    });
    assert_eq!(["KernelOops", "TaskHung"].map(|reason| site.events(reason)), [1, 1]);
    assert_eq!(site.condition("TheirType"), foreign, "byte for byte");
}

/// The condition of `--node-condition` follows its file. The file `boots` has one line of this
/// boot; a stop marks it as orderly, a crash does not.
#[test]
fn a_restart_keeps_the_transition_time_and_none_deletes_our_conditions() {
    let site = Site::new("health-restart");
    site.folder.write(OOPSES, "1\n");
    let limit = Duration::from_secs(10);
    let boots = |end: &str| {
        let path = site.folder.path().join("root/var/lib/kubelet/boots");
        let text = fs::read_to_string(path).unwrap_or_default();
        (text.lines().count() == 1 && text.ends_with(&format!(" 5be2ad02{end}"))).then_some(text)
    };
    let board = site.start(&["--node-problem-detection=all,-ThermalThrottling"]);
    let before = eventually("True", limit, || site.is("KernelDeadlock", "True"));
    eventually("False", limit, || site.is("UnderVoltage", "False"));
    assert_eq!(site.condition("ThermalThrottling"), None);
    eventually("the event", limit, || (site.events("KernelOops") == 1).then_some(()));
    let line = eventually("the boot", limit, || boots("\n"));
    drop(board);
    assert_eq!(boots("\n"), Some(line));
    std::thread::sleep(Duration::from_secs(1));
    let ups = format!("--node-condition=OnBattery={}", site.folder.path().join("ups").display());
    let mut board = site.start(&["--node-status-report-frequency=1s", &ups]);
    let after = eventually("a heartbeat", limit, || {
        site.condition("KernelDeadlock")
            .filter(|c| c["lastHeartbeatTime"] != before["lastHeartbeatTime"])
    });
    assert_eq!(after["lastTransitionTime"], before["lastTransitionTime"]);
    assert_eq!(site.events("KernelOops"), 1, "one event for one change");
    let off = eventually("no OnBattery", limit, || site.is("OnBattery", "False"));
    assert_eq!(off["reason"], "FileMissing");
    site.folder.write("ups", "PowerFailed: the UPS feeds the board\nmore\n");
    let on = eventually("OnBattery", limit, || site.is("OnBattery", "True"));
    assert_eq!(on["reason"], "PowerFailed");
    eventually("its event", limit, || (site.events("FileExists") == 1).then_some(()));
    board.stop(nix::sys::signal::Signal::SIGTERM);
    assert!(boots(" orderly\n").is_some());
    let _board = site.start(&["--node-problem-detection=none"]);
    eventually("their deletion", limit, || {
        let gone = ["KernelDeadlock", "UnderVoltage"].map(|kind| site.condition(kind));
        (gone == [None, None]).then_some(())
    });
    assert!(site.is("Ready", "True").is_some());
}
