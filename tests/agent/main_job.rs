//! Registration, status and renewals against a cluster, from start to SIGTERM.

use std::time::Duration;

use apidouble::Double;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::api::{self, admin, is_ready, reasons, status_patches};
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::lease::await_renewals;
use crate::common::raspberry;
use crate::scenarios::look_at;
use support::{Folder, eventually};

#[test]
fn a_board_becomes_a_ready_node_and_stays_one() {
    let cluster = Cluster::start(Duration::from_secs(8));
    let name = cluster.node_name("pi-main");
    let mut board = Board::fast(cluster.kubeconfig(&name), &name, &["--v=4"]);
    board.watch_threads();

    let node = eventually("Ready", Duration::from_secs(5), || cluster.node(&name).filter(is_ready));
    println!("Ready {:?} after the start", board.started.elapsed());
    assert!(board.started.elapsed() < Duration::from_secs(5));
    await_renewals(3, Duration::from_secs(20), || cluster.renew_time(&name));
    // Longer than the grace period of the control plane.
    std::thread::sleep(Duration::from_secs(9));
    assert!(!cluster.ever_left_ready());
    assert!(is_ready(&cluster.node(&name).unwrap()));
    board.assert_one_thread();

    let (status, took) = board.stop(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
    let after = cluster.node(&name).unwrap();
    assert_eq!(after["metadata"]["uid"], node["metadata"]["uid"]);
    assert!(is_ready(&after), "a stop sends no status");
    assert!(cluster.lease(&name).is_some());
    let Some(double) = cluster.double() else { return };
    double.assert_members_are_known();
    assert_eq!(double.connections(), 1, "one connection for everything");
    // Four requests of a new board, one for each renewal, and after the third one the list of pods.
    // Events have the lowest priority.
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let renewal = format!("PATCH {leases}/{name} 200");
    assert_eq!(
        api::sent(double, |r| !r.path.contains("/events"))[..7],
        [
            format!("GET /api/v1/nodes/{name} 404"),
            "POST /api/v1/nodes 201".to_owned(),
            format!("GET {leases}/{name} 404"),
            format!("POST {leases} 201"),
            renewal.clone(),
            renewal,
            format!("GET {} 200", look_at(&name)),
        ]
    );
}

/// A double, a folder, and the path of the node's kubeconfig in it.
fn solo(name: &str) -> (Double, Folder, String) {
    let double = Double::start();
    let folder = Folder::new(name);
    let path = folder.write("kubeconfig", double.kubeconfig_for_node(name));
    (double, folder, path.to_str().unwrap().to_owned())
}

fn ready(double: &Double, name: &str) -> Value {
    eventually("Ready", Duration::from_secs(10), || {
        double.get(&format!("nodes/{name}")).filter(is_ready)
    })
}

#[test]
fn each_change_is_one_event_with_the_uid_of_the_node() {
    let (double, folder, kubeconfig) = solo("pi");
    let root = raspberry::healthy(&folder);
    let health = folder.path().join("mounted").display().to_string();
    let args = [
        "--host-root",
        &root,
        "--node-ip=::",
        "--ready-when-exists",
        &health,
        // The next tick is a minute away: only the more frequent check for the file is in time.
        "--node-status-update-frequency=1m",
    ];
    let mut board = Board::fast(&kubeconfig, "pi", &args);
    let node = eventually("the Node", Duration::from_secs(5), || double.get("nodes/pi"));
    let (status, message) = api::ready(&node);
    assert_eq!(status, "False");
    assert!(message.ends_with("mounted: does not exist"), "{message}");

    // Ready once the file exists, not at the next tick.
    folder.write("mounted", "");
    let then = std::time::Instant::now();
    ready(&double, "pi");
    println!("Ready {:?} after what it waited for", then.elapsed());
    admin(&double, "PATCH", "/api/v1/nodes/pi", &json!({"spec": {"unschedulable": true}}));
    let first = [
        "Starting",
        "NodeHasSufficientMemory",
        "NodeHasNoDiskPressure",
        "NodeHasSufficientPID",
        "NodeReady",
    ];
    eventually("five events", Duration::from_secs(5), || (reasons(&double) == first).then_some(()));
    for event in double.list("events") {
        assert_eq!(event["involvedObject"]["uid"], node["metadata"]["uid"]);
        assert_eq!(event["involvedObject"]["name"], "pi");
        assert_eq!(event["count"], 1);
    }

    // Another boot id is a reboot; a cordon is noticed at the start.
    board.stop(Signal::SIGTERM);
    folder.write("root/proc/sys/kernel/random/boot_id", "another-boot\n");
    let _board = Board::fast(&kubeconfig, "pi", &args);
    eventually("a warning", Duration::from_secs(5), || {
        let told = reasons(&double);
        let has = |reason: &str| told.iter().any(|other| other == reason);
        (has("Rebooted") && has("NodeNotSchedulable")).then_some(())
    });
}

/// The sd_notify messages, with and without registration.
#[test]
fn systemd_is_notified_of_ready_watchdog_status_and_stopping() {
    for (register, signal) in
        [("--register-node=true", Signal::SIGTERM), ("--register-node=false", Signal::SIGINT)]
    {
        let (double, folder, kubeconfig) = solo("pi");
        let path = folder.path().join("notify");
        let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let supervisor = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "2000000")];
        let mut board = Board::fast_with(&kubeconfig, "pi", &[register], &supervisor);
        let heard = || {
            let mut buffer = [0; 1024];
            let length = socket.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        assert_eq!(heard(), "WATCHDOG=1\nSTATUS=registering");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pi"}});
        if register.ends_with("false") {
            admin(&double, "POST", "/api/v1/nodes", &node);
        }
        while !heard().starts_with("READY=1\nWATCHDOG=1\nSTATUS=Ready since 20") {}
        assert!(double.get("nodes/pi").is_some());
        let mut healthy = 0;
        while healthy < 5 {
            let status = heard();
            let status = status.strip_prefix("WATCHDOG=1\nSTATUS=Ready since 20").unwrap();
            // Before the first renewal the status does not mention it.
            if let Some((_, renewed)) = status.split_once(", lease renewed ") {
                // A late request on a busy machine adds its failure behind this.
                let seconds = renewed.split_once(" s ago").unwrap().0;
                assert!(seconds.parse::<u64>().unwrap() < 10, "{status}");
                healthy += 1;
            }
        }
        double.stop_listening();
        let outage = || heard().split_once("; lease: https://").is_some();
        eventually("what fails", Duration::from_secs(20), || outage().then_some(()));
        let (status, took) = board.stop(signal);
        assert_eq!(status.code(), Some(0), "{signal}");
        assert!(took < Duration::from_secs(5), "{signal}: {took:?}");
        while heard() != "STOPPING=1" {}
    }
}

/// For a CNI plugin or a script that sets up the network of the board.
#[test]
fn pod_cidrs_are_written_to_a_file() {
    let (double, folder, kubeconfig) = solo("pi");
    let root_dir = folder.path().join("kubelet");
    let root_flag = format!("--root-dir={}", root_dir.display());
    let board = Board::fast(&kubeconfig, "pi", &["--node-resync-frequency=1s", &root_flag]);
    ready(&double, "pi");
    let mut before = status_patches(&double);
    for cidrs in [vec!["10.244.7.0/24"], vec!["10.244.8.0/24", "fd00:8::/64"]] {
        let spec = json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
        admin(&double, "PATCH", "/api/v1/nodes/pi", &spec);
        let want = cidrs.join(",");
        board.says(&format!("node pi: podCIDR {want}"));
        eventually("the file", Duration::from_secs(5), || {
            let text = std::fs::read_to_string(root_dir.join("podcidr")).ok()?;
            (text == format!("{want}\n")).then_some(())
        });
        let mode = std::fs::metadata(root_dir.join("podcidr")).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o644);
        assert_eq!(std::fs::read_dir(&root_dir).unwrap().count(), 1, "a draft is left");
        eventually("a patch", Duration::from_secs(5), || {
            (status_patches(&double) > before).then_some(())
        });
        // podCIDRs are immutable: other CIDRs need another Node. Until it has some, there is no
        // file.
        admin(&double, "DELETE", "/api/v1/nodes/pi", &Value::Null);
        eventually("a new Node", Duration::from_secs(15), || double.get("nodes/pi"));
        eventually("no file", Duration::from_secs(5), || {
            (!root_dir.join("podcidr").exists()).then_some(())
        });
        before = status_patches(&double);
    }
}
