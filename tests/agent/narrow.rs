//! A narrow link, as on NB-IoT: round trips of 3 s, 1 KB/s towards the board, and a modem that
//! loses its connections. All times, like the periods of the agent, are divided by five.

use std::time::{Duration, Instant};

use apidouble::Double;
use serde_json::Value;

use crate::common::api::condition;
use crate::common::board::Board;
use crate::common::front::{Front, Pace};
use support::{Folder, eventually};

/// A fifth of a round trip of 3 s; five times 1 KB/s.
const NB_IOT: Pace = Pace { delay: Duration::from_millis(300), bytes_per_second: 5_000 };

/// A fifth of 50 s, the default of the node-lifecycle controller.
const GRACE: Duration = Duration::from_secs(10);

struct Site {
    double: Double,
    link: Front,
    _board: Board,
    _folder: Folder,
}

fn start() -> Site {
    let double = Double::builder().lifecycle(GRACE).start();
    let folder = Folder::new("narrow");
    let link = Front::to(double.port(), NB_IOT);
    let kubeconfig = link.kubeconfig(&double.kubeconfig_for_node("pi"), double.port());
    let kubeconfig = folder.write("kubeconfig", &kubeconfig);
    let periods = ["--node-status-update-frequency=2s", "--node-status-report-frequency=12s"];
    let board = Board::fast(&kubeconfig, "pi", &periods);
    eventually("the first renewal", Duration::from_secs(30), || double.get("leases/pi"));
    println!("a lease {:?} after the start", board.started.elapsed());
    Site { double, link, _board: board, _folder: folder }
}

fn ready(double: &Double) -> Value {
    condition(&double.get("nodes/pi").unwrap(), "Ready").unwrap().clone()
}

/// A Node is 3 KB, which takes longer than the default timeout of a request.
#[test]
fn an_unknown_node_becomes_ready_again_over_a_narrow_link() {
    let Site { double, link, .. } = &start();
    double.stop_listening();
    link.drop_connections();
    eventually("given up", GRACE * 3, || (ready(double)["status"] == "Unknown").then_some(()));
    double.start_listening();
    link.drop_connections();
    let end = Instant::now();
    eventually("Ready again", Duration::from_secs(20), || {
        (ready(double)["status"] == "True").then_some(())
    });
    println!("Ready again {:?} after the outage", end.elapsed());
}
