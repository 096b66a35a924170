//! A narrow link, as on NB-IoT: round trips of 3 s, 1 KB/s towards the board, and a modem that
//! loses its connections. All times, like the periods of the agent, are divided by five.

use std::thread;
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
    board: Board,
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
    Site { double, link, board, _folder: folder }
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

/// Each connection is lost at another stage of the 12 s between two reports of the status, the
/// first of which begins with a read. The three boards run at the same time.
#[test]
fn a_narrow_link_keeps_the_node_ready_through_reconnects_and_changes() {
    thread::scope(|scope| {
        for first_drop in [11, 9, 7] {
            scope.spawn(move || stays_ready_through_reconnects(&[first_drop, 11]));
        }
    });
}

/// `waits`: seconds before each loss of the connection.
fn stays_ready_through_reconnects(waits: &[u64]) {
    let Site { double, link, mut board, .. } = start();
    let heartbeat = || ready(&double)["lastHeartbeatTime"].clone();
    let first = heartbeat();
    for wait in waits {
        thread::sleep(Duration::from_secs(*wait));
        link.drop_connections();
        assert!(!double.ever_left_ready(), "{:#?}", board.log());
        assert!(board.is_running());
    }
    // Longer than the grace period without a renewal.
    thread::sleep(GRACE + Duration::from_secs(2));
    println!("{} connections; {:?}", link.connections(), board.log());
    assert!(link.connections() > waits.len() as u64, "it did not reconnect");
    assert!(!double.ever_left_ready(), "{:#?}", board.log());
    assert_ne!(heartbeat(), first, "no status was reported");
    assert!(board.log().len() <= 12, "{:#?}", board.log());
}
