//! Evictions from real nodes beside boards, dead and living.
//!
//! kube-controller-manager evicts from one node of a zone each 10 s, by default. It stops where
//! more than half of a zone and more than two nodes are silent, and where all are.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::plant::Plant;
use super::{GRACE, judge, settle, workloads};

/// Time for the evictions from six nodes.
const LONG: Duration = Duration::from_secs(60);

const HOST: &str = "kubernetes.io/hostname";

/// Six pods, two on each of three servers.
fn six_pods(plant: &Plant) -> Vec<Value> {
    workloads::create(&plant.cluster, &workloads::spread("web", &[HOST]));
    settle("two pods on each server", Duration::from_secs(120), || {
        let pods = plant.pods("web");
        judge::spread(&pods, workloads::REPLICAS, &plant.nodes(), &[HOST])?;
        Ok(pods)
    })
}

/// Boards that count in the decision keep the pods of the dead server for ever (measured, 75 s).
#[test]
fn pods_leave_a_dead_server_beside_dead_boards() {
    let Some(mut plant) = Plant::start(&[""; 3], 4) else {
        return;
    };
    let before = six_pods(&plant);
    plant.kill_boards();
    assert!(judge::evicted(&before, &plant.pods("web")).is_empty());
    let dead = plant.kill_servers(1).remove(0);
    // Each dead board is in the same queue, for 10 s.
    settle("the evictions", GRACE + Duration::from_secs(60), || {
        let evicted = judge::evicted(&before, &plant.pods("web"));
        if evicted != [dead.clone(), dead.clone()] {
            return Err(format!("evicted from {evicted:?}, not from {dead}"));
        }
        Ok(())
    });
}

/// The API server's own network is down: boards that count in the decision cause all pods to be
/// deleted (measured, 6 of 6). Without boards one server at most loses its pods, where the others
/// are found silent a moment later.
#[test]
fn pods_stay_on_silent_servers_beside_living_boards() {
    let Some(mut plant) = Plant::start(&[""; 3], 4) else {
        return;
    };
    let before = six_pods(&plant);
    plant.kill_servers(3);
    let killed = Instant::now();
    let mut now = before.clone();
    while killed.elapsed() < LONG {
        sleep(Duration::from_secs(1));
        now = plant.pods("web");
    }
    let evicted = judge::evicted(&before, &now);
    let servers: BTreeSet<&String> = evicted.iter().collect();
    assert!(servers.len() <= 1, "evicted from {evicted:?}");
}
