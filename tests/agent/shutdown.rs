//! A planned shutdown of the machine: SIGUSR1, then SIGTERM, as the unit sends them.

use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use support::{Folder, eventually};

use crate::common::api::condition;
use crate::common::board::Board;

const SHUTDOWN: &str = "node is shutting down";

/// A double, and a board whose Node is Ready and whose first events are sent.
fn ready_board(name: &str) -> (Double, Folder, Board) {
    let double = Double::start();
    let folder = Folder::new(name);
    let board = Board::pi(&double, &folder, &[]);
    eventually("Ready, and four events", Duration::from_secs(10), || {
        (ready(&double).0 == "True" && reasons(&double).len() == 4).then_some(())
    });
    (double, folder, board)
}

/// Status and message of the condition Ready.
fn ready(double: &Double) -> (String, String) {
    let node = double.get("nodes/pi").unwrap_or_default();
    let ready = condition(&node, "Ready");
    let text = |key: &str| ready.map_or("", |c| c[key].as_str().unwrap()).to_owned();
    (text("status"), text("message"))
}

/// Reasons of the events, in the order of their names.
fn reasons(double: &Double) -> Vec<String> {
    let mut events = double.list("events");
    events.sort_by_key(|e| e["metadata"]["name"].as_str().unwrap().to_owned());
    let reason = |e: &Value| e["reason"].as_str().unwrap().to_owned();
    events.iter().map(reason).collect()
}

/// Calls `act` with a fresh board, which must take less than `limit`; the double of that board.
/// Three attempts on a busy machine.
fn in_time(name: &str, limit: Duration, act: impl Fn(&Double, &mut Board) -> Duration) -> Double {
    for _ in 0..3 {
        let (double, _folder, mut board) = ready_board(name);
        let took = act(&double, &mut board);
        println!("{name}: {took:?}");
        if took < limit {
            return double;
        }
    }
    panic!("{name}: not within {limit:?}")
}

#[test]
fn an_announced_shutdown_is_on_the_server_before_the_process_ends() {
    // After 5 s the agent ends in any case.
    let double = in_time("shutdown", Duration::from_secs(4), |_, board| {
        let start = Instant::now();
        kill(board.pid(), Signal::SIGUSR1).unwrap();
        let (status, _) = board.stop(Signal::SIGTERM);
        assert_eq!(status.code(), Some(0));
        start.elapsed()
    });
    assert_eq!(ready(&double), ("False".to_owned(), SHUTDOWN.to_owned()));
    let reasons = reasons(&double);
    assert_eq!(reasons[4..], ["Shutdown", "NodeNotReady"], "{reasons:?}");
    double.assert_members_are_known();
}

#[test]
fn ready_is_false_before_sigterm() {
    in_time("shutdown-early", Duration::from_secs(1), |double, board| {
        let start = Instant::now();
        kill(board.pid(), Signal::SIGUSR1).unwrap();
        eventually(SHUTDOWN, Duration::from_secs(10), || {
            (ready(double).1 == SHUTDOWN).then_some(())
        });
        let told = start.elapsed();
        assert!(board.is_running());
        let (status, ended) = board.stop(Signal::SIGTERM);
        assert_eq!(status.code(), Some(0));
        told.max(ended)
    });
}
