//! A real control plane that is frozen, killed, or killed with its controllers, and twenty boards,
//! or `OUTAGE_BOARDS`: the controllers mark some of them after they have renewed their Leases. All
//! periods are a third of the defaults.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::cluster::kubelet::asset;
use support::{eventually, skip};

/// Without `OUTAGE_BOARDS`.
const BOARDS: usize = 20;
/// Of node-lifecycle-controller.
const OUTAGE_GRACE: Duration = Duration::from_secs(16);
const OUTAGE: Duration = Duration::from_secs(30);
const API: &[&str] = &["kube-apiserver"];
const ALL: &[&str] = &["kube-apiserver", "kube-controller-manager"];

/// Longest time from a mark to Ready, and from the return of the server for an earlier mark.
const REPAIR: Duration = Duration::from_secs(15);
const RETURN: Duration = Duration::from_secs(25);

/// Which of the boards are Ready; empty without an answer.
fn ready(cluster: &Cluster) -> BTreeMap<String, bool> {
    let port = cluster.port().unwrap_or_default();
    if TcpStream::connect(("127.0.0.1", port)).is_err() {
        return BTreeMap::new();
    }
    let nodes = cluster.get("/api/v1/nodes").unwrap_or_default();
    let items = nodes["items"].as_array().cloned().unwrap_or_default();
    let name = |node: &serde_json::Value| node["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(|node| (name(node), is_ready(node))).collect()
}

/// Until each board was Ready for a grace period and two minutes of a third: how often and for how
/// long at most a Node was marked after the return, and when the last early mark was gone.
fn watch(cluster: &Cluster, boards: usize) {
    let returned = Instant::now();
    let mut marks: BTreeMap<String, Instant> = BTreeMap::new();
    let (mut count, mut longest, mut last) = (0, Duration::ZERO, Duration::ZERO);
    let mut was_ready: BTreeMap<String, bool> = BTreeMap::new();
    while returned.elapsed() < OUTAGE_GRACE + Duration::from_secs(50) {
        for (name, is_ready) in ready(cluster) {
            let was = was_ready.insert(name.clone(), is_ready);
            if is_ready {
                if let Some(at) = marks.remove(&name) {
                    longest = longest.max(at.elapsed());
                }
                if was == Some(false) {
                    last = last.max(returned.elapsed());
                }
            } else if was == Some(true) {
                count += 1;
                marks.insert(name, Instant::now());
            } else if was.is_none() || was == Some(false) {
                let is_early = !marks.contains_key(&name);
                assert!(!is_early || returned.elapsed() < RETURN, "{name}: not back");
            }
        }
        for (name, at) in &marks {
            assert!(at.elapsed() < REPAIR, "{name} is marked for {:?}", at.elapsed());
        }
        sleep(Duration::from_millis(200));
    }
    println!("{count} marks after the return, {longest:?} at most, the last one gone at {last:?}");
    assert!(was_ready.len() >= boards && marks.is_empty());
}

#[test]
fn after_each_kind_of_outage_all_boards_are_ready_soon() {
    if asset("kube-controller-manager").is_none() {
        return skip::optional("outages: no kube-controller-manager in KUBEBUILDER_ASSETS");
    }
    let mut cluster = Cluster::start(OUTAGE_GRACE);
    let count = std::env::var("OUTAGE_BOARDS").map_or(BOARDS, |count| count.parse().unwrap());
    let boards: Vec<(String, Board)> = (0..count)
        .map(|number| {
            let name = format!("outage-{number}");
            let periods = ["--node-lease-duration-seconds=13", "--node-status-update-frequency=3s"];
            let board = Board::fast(cluster.kubeconfig(&name), &name, &periods);
            (name, board)
        })
        .collect();
    let all_ready = |cluster: &Cluster| {
        let ready = ready(cluster);
        let count = boards.iter().filter(|(name, _)| ready.get(name) == Some(&true)).count();
        (count == boards.len()).then_some(())
    };
    eventually("all boards", Duration::from_secs(60), || all_ready(&cluster));
    for (what, programs) in [("frozen", API), ("frozen with its controllers", ALL)] {
        println!("{what}");
        cluster.each_program(programs, |program| program.signal(Signal::SIGSTOP));
        sleep(OUTAGE);
        cluster.each_program(programs, |program| program.signal(Signal::SIGCONT));
        watch(&cluster, boards.len());
    }
    for (what, programs) in [("killed", API), ("killed with its controllers", ALL)] {
        println!("{what}");
        cluster.each_program(programs, |program| program.kill());
        sleep(OUTAGE);
        cluster.each_program(programs, |program| program.start_again());
        eventually("the API server", Duration::from_secs(60), || {
            (!ready(&cluster).is_empty()).then_some(())
        });
        watch(&cluster, boards.len());
    }
}
