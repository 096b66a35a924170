//! Registration, status and renewals against a cluster, from start to SIGTERM.

use std::time::Duration;

use apidouble::Double;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::common::api::{admin, condition, is_ready};
use crate::common::board::{Board, FAST};
use crate::common::cluster::Cluster;
use support::{Folder, eventually};

fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    let found = condition(node, kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or("absent")
}

#[test]
fn a_board_becomes_a_ready_node_and_stays_one() {
    let cluster = Cluster::start(Duration::from_secs(8));
    let name = cluster.node_name("pi-main");
    let mut board = Board::fast(&cluster.kubeconfig(&name), &name, &["--v=4"]);
    board.watch_threads();

    let node = eventually("Ready", Duration::from_secs(5), || cluster.node(&name).filter(is_ready));
    println!("Ready {:?} after the start", board.started.elapsed());
    assert!(board.started.elapsed() < Duration::from_secs(5));
    let kinds: Vec<&str> = node["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    let labels = &node["metadata"]["labels"];
    assert_eq!(labels["kubernetes.io/os"], "nodelet", "a guest: {labels}");
    assert_eq!(labels.get("kubernetes.io/hostname"), None, "{labels}");

    // Three renewals, and the Node owns the Lease.
    let mut renewals: Vec<String> = Vec::new();
    let lease = eventually("three renewals", Duration::from_secs(20), || {
        let lease = cluster.lease(&name)?;
        let renewed = lease["spec"]["renewTime"].as_str()?.to_owned();
        if renewals.last() != Some(&renewed) {
            renewals.push(renewed);
        }
        (renewals.len() > 3).then_some(lease)
    });
    assert!(renewals.is_sorted(), "{renewals:?}");
    assert!(renewals.iter().all(|text| text.len() == 27), "six digits: {renewals:?}");
    assert_eq!(
        lease["metadata"]["ownerReferences"],
        json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}])
    );
    assert_eq!(lease["spec"]["holderIdentity"], name.as_str());
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 8);

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
    if let Some(double) = cluster.double() {
        double.assert_members_are_known();
    }
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

/// Method, path and status code of each request, without events, which have the lowest priority.
fn sent(double: &Double) -> Vec<String> {
    let line = |r: &apidouble::Recorded| format!("{} {} {}", r.method, r.path, r.code);
    let requests = double.requests();
    // A code of 0 means that the answer was not sent yet.
    let heartbeats = requests.iter().filter(|r| r.code > 0 && !r.path.contains("/events"));
    heartbeats.map(line).collect()
}

#[test]
fn a_new_board_needs_four_requests_and_then_one_per_renewal_until_sigint() {
    let (double, _folder, kubeconfig) = solo("pi");
    let mut board = Board::fast(&kubeconfig, "pi", &[]);
    eventually("six answers", Duration::from_secs(20), || (sent(&double).len() >= 6).then_some(()));
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(
        sent(&double)[..6],
        [
            "POST /api/v1/nodes 201".to_owned(),
            format!("GET {leases}/pi 404"),
            format!("POST {leases} 201"),
            "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dpi%2Cstatus.phase%21%3DFailed%2C\
             status.phase%21%3DSucceeded&limit=8 200"
                .to_owned(),
            format!("PATCH {leases}/pi 200"),
            format!("PATCH {leases}/pi 200"),
        ]
    );
    assert_eq!(double.connections(), 1, "one connection for everything");
    let (status, took) = board.stop(Signal::SIGINT);
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Writes a tree for `--host-root`, whose files the tests then change.
fn machine(folder: &Folder) -> String {
    for (name, content) in [
        ("proc/meminfo", "MemTotal:  1048576 kB\nAnonPages: 0 kB\nCached: 0 kB\n"),
        ("proc/sys/kernel/hostname", "pi\n"),
        ("proc/sys/kernel/osrelease", "6.6.31\n"),
        ("proc/sys/kernel/random/boot_id", "5be2ad02-eb51-4322-bb43-87387512a3b0\n"),
        ("proc/sys/kernel/pid_max", "32768\n"),
        ("proc/loadavg", "0.00 0.00 0.00 1/100 1000\n"),
        ("sys/devices/system/cpu/cpu0/online", "1\n"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
        ("etc/os-release", "PRETTY_NAME=\"Test OS\"\n"),
    ] {
        folder.write(name, content);
    }
    folder.path().to_str().unwrap().to_owned()
}

/// Reason and count of each event, in the order of their names.
fn events(double: &Double) -> Vec<(String, u64)> {
    let mut events = double.list("events");
    events.sort_by_key(|e| e["metadata"]["name"].as_str().unwrap().to_owned());
    let told = |e: &Value| (e["reason"].as_str().unwrap().to_owned(), e["count"].as_u64().unwrap());
    events.iter().map(told).collect()
}

#[test]
fn each_change_is_one_event_with_the_uid_of_the_node() {
    let (double, folder, kubeconfig) = solo("pi");
    let root = machine(&folder);
    let health = folder.path().join("mounted");
    let args = [
        "--host-root",
        &root,
        "--ready-when-exists",
        health.to_str().unwrap(),
        // The next tick is a minute away: only the more frequent check for the file is in time.
        "--node-status-update-frequency=1m",
    ];
    let mut board = Board::fast(&kubeconfig, "pi", &args);
    let node = eventually("the Node", Duration::from_secs(5), || double.get("nodes/pi"));
    assert_eq!(status_of(&node, "Ready"), "False");
    let message = condition(&node, "Ready").unwrap()["message"].as_str().unwrap();
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
    let want = |reasons: &[&str], counts: &[u64]| -> Vec<(String, u64)> {
        let reasons = reasons.iter().map(|r| (*r).to_owned());
        reasons.zip(counts.iter().copied()).collect()
    };
    eventually("five events", Duration::from_secs(5), || {
        (events(&double) == want(&first, &[1; 5])).then_some(())
    });
    for event in double.list("events") {
        assert_eq!(event["involvedObject"]["uid"], node["metadata"]["uid"]);
        assert_eq!(event["involvedObject"]["name"], "pi");
    }

    // Another boot id is a reboot; a cordon is noticed at the start.
    board.stop(Signal::SIGTERM);
    folder.write("proc/sys/kernel/random/boot_id", "another-boot\n");
    let _board = Board::fast(&kubeconfig, "pi", &args);
    eventually("a warning", Duration::from_secs(5), || {
        let told = events(&double);
        let has = |reason: &str| told.iter().any(|(told, _)| told == reason);
        (has("Rebooted") && has("NodeNotSchedulable")).then_some(())
    });
}

/// The sd_notify messages, with and without registration.
#[test]
fn systemd_is_notified_of_ready_watchdog_status_and_stopping() {
    for register in ["--register-node=true", "--register-node=false"] {
        let (double, folder, kubeconfig) = solo("pi");
        let path = folder.path().join("notify");
        let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let args = [
            &format!("--kubeconfig={kubeconfig}"),
            "--hostname-override=pi",
            FAST[0],
            FAST[1],
            register,
        ];
        let supervisor = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "2000000")];
        let mut board = Board::start_with(&args, &supervisor);
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
        while heard() != "READY=1" {}
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
        board.stop(Signal::SIGTERM);
        let mut last = String::new();
        while last != "STOPPING=1" {
            last = heard();
        }
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
    let patches = || {
        let is_patch = |r: &apidouble::Recorded| r.method == "PATCH" && !r.is_look();
        let requests = double.requests().into_iter().filter(is_patch);
        requests.filter(|r| r.path.starts_with("/api/v1/nodes")).count()
    };
    let mut before = patches();
    for cidrs in [vec!["10.244.7.0/24"], vec!["10.244.8.0/24", "fd00:8::/64"]] {
        let spec = json!({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}});
        admin(&double, "PATCH", "/api/v1/nodes/pi", &spec);
        let want = cidrs.join(",");
        board.says(&format!("node pi: podCIDR {want}"));
        eventually("the file", Duration::from_secs(5), || {
            let text = std::fs::read_to_string(root_dir.join("podcidr")).ok()?;
            (text == format!("{want}\n")).then_some(())
        });
        let forced = before + 1;
        eventually("a patch", Duration::from_secs(5), || (patches() >= forced).then_some(()));
        // podCIDRs are immutable: other CIDRs need another Node.
        admin(&double, "DELETE", "/api/v1/nodes/pi", &Value::Null);
        eventually("a new Node", Duration::from_secs(15), || double.get("nodes/pi"));
        before = patches();
    }
    let mode = std::fs::metadata(root_dir.join("podcidr")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o644);
    assert_eq!(std::fs::read_dir(&root_dir).unwrap().count(), 1, "a draft is left");
}
