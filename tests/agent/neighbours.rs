//! Another client writes conditions of the same Node; the agent must not undo its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use apidouble::Recorded;
use serde_json::{Value, json};

use crate::common::api::condition;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::raspberry;
use nodelet::health::KINDS;
use support::{Folder, eventually};

/// Of the control plane; the Leases last as long.
const GRACE: Duration = Duration::from_secs(8);
const TYPE: &str = "example.com/Other";

/// A board whose memory and load change every 3 ms, so that each tick has a change to report. The
/// load changes PIDPressure, so that patches contain the list of conditions; heartbeat times
/// change it only once a second.
struct Busy {
    cluster: Cluster,
    /// Of the Node.
    name: String,
    board: Board,
    folder: Arc<Folder>,
    over: Arc<AtomicBool>,
}

impl Busy {
    fn start(cluster: Cluster) -> Self {
        let folder = Arc::new(Folder::new("neighbours"));
        let name = cluster.node_name("neighbours");
        // Every condition about the board's health is listed, some of them with a problem.
        let root = raspberry::healthy(&folder);
        folder.write(raspberry::OOPSES, "1\n");
        folder.write(raspberry::ALARM, "1\n");
        let change = |folder: &Folder, step: u64| {
            let threads = 100 + step % 2 * 32_000;
            for (file, content) in [
                ("meminfo", format!("MemTotal: {} kB\n", (1 << 20) + step)),
                ("loadavg", format!("0.00 0.00 0.00 1/{threads} 1000\n")),
            ] {
                // Atomic: the agent may read at any time.
                let new = folder.write(file, &content);
                std::fs::rename(new, folder.path().join("root/proc").join(file)).unwrap();
            }
        };
        change(&folder, 0);
        let flags = [
            "--host-root",
            &root,
            "--node-ip=::",
            "--node-status-update-frequency=10ms",
            "--root-dir=/var/lib/kubelet",
            "--node-problem-detection=all",
            "--eviction-hard=pid.available<1000",
            "--eviction-pressure-transition-period=1ms",
        ];
        let board = Board::fast(cluster.kubeconfig(&name), &name, &flags);
        let busy = Self { cluster, name, board, over: Arc::default(), folder: folder.clone() };
        eventually("the Node", Duration::from_secs(10), || busy.node());
        let over = busy.over.clone();
        thread::spawn(move || {
            let steps = (0..1000).cycle();
            for step in steps.take_while(|_| !over.load(Ordering::SeqCst)) {
                change(&folder, step);
                thread::sleep(Duration::from_millis(3));
            }
        });
        busy
    }

    fn node(&self) -> Option<Value> {
        self.cluster.node(&self.name)
    }

    /// The agent's status patches, with the double.
    fn patches(&self) -> Vec<Recorded> {
        let double = self.cluster.double().expect("only with the double");
        let mut requests = double.requests();
        requests.retain(|r| r.path == format!("/api/v1/nodes/{}/status", self.name));
        requests
    }

    /// Those that were answered with a conflict, and with success.
    fn answers(&self) -> (usize, usize) {
        let patches = self.patches();
        let count = |code| patches.iter().filter(|r| r.code == code).count();
        (count(409), count(200))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
    }
}

/// The number in the stored condition of the other client.
fn stored(node: &Value) -> Option<u64> {
    condition(node, TYPE)?["message"].as_str()?.parse().ok()
}

/// Writes the condition `writes` times, or for `limit`; returns the number of writes, and of writes
/// that the agent undid before the next one.
fn writes_and_losses(busy: &Busy, writes: u64, limit: Duration) -> (u64, u64) {
    let (mut written, mut lost) = (0, 0);
    let start = Instant::now();
    while written < writes && start.elapsed() < limit {
        written += 1;
        let status = match written % 2 {
            0 => "True",
            _ => "False",
        };
        let condition = json!({
            "type": TYPE,
            "status": status,
            "reason": "Rewritten",
            "message": written.to_string(),
        });
        let answer = busy.cluster.set_condition(&busy.name, &condition);
        let version = &answer["metadata"]["resourceVersion"];
        // Waits for the next write of the agent, at most 0 to 39 ms, to interrupt it at each stage
        // of its read and write.
        let patience = Duration::from_millis(written % 40);
        let then = Instant::now();
        loop {
            let node = busy.node().unwrap();
            if stored(&node) != Some(written) {
                lost += 1;
                break;
            }
            if node["metadata"]["resourceVersion"] != *version || then.elapsed() > patience {
                break;
            }
            thread::sleep(Duration::from_micros(300));
        }
    }
    (written, lost)
}

#[test]
fn a_thousand_writes_of_another_client_survive_a_busy_agent() {
    let mut busy = Busy::start(Cluster::start(GRACE));
    let start = Instant::now();
    // A real server needs four times as long as the double.
    let (written, lost) = writes_and_losses(&busy, 1000, Duration::from_secs(600));
    println!("{written} writes in {:?}, {lost} lost", start.elapsed());
    assert_eq!((written, lost), (1000, 0));
    // The last write is still there after more patches of the agent, of which each is a version.
    let then = busy.cluster.double().map(|_| busy.answers().1);
    let version = || busy.node().unwrap()["metadata"]["resourceVersion"].clone();
    for _ in 0..6 {
        let then = version();
        eventually("a patch", Duration::from_secs(10), || (version() != then).then_some(()));
    }
    assert_eq!(stored(&busy.node().unwrap()), Some(1000));
    // One that is known later than another waits for a minute.
    eventually("each condition", Duration::from_secs(70), || {
        let node = busy.node()?;
        KINDS.iter().all(|kind| condition(&node, kind.name).is_some()).then_some(())
    });
    assert!(busy.board.is_running());
    assert!(busy.folder.path().exists());
    let Some(then) = then else { return };
    // The double records a request after it has written.
    eventually("six patches", Duration::from_secs(10), || {
        (busy.answers().1 > then + 5).then_some(())
    });
    let (conflicts, patches) = busy.answers();
    let lists = busy.patches();
    let lists = lists.iter().filter(|r| r.json()["status"].get("conditions").is_some());
    let lists = lists.count();
    println!("the agent: {patches} patches, {conflicts} conflicts, {lists} with conditions");
    // Both wrote at the same time. How often depends on the machine: 75 to 250 times.
    assert!(conflicts > 20, "only {conflicts} conflicts");
    assert!(patches > 20, "only {patches} patches");
    assert!(lists > 20, "only {lists} patches with conditions");
}
