//! A planned shutdown of the machine: SIGUSR1, then SIGTERM, as the unit sends them.

use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::signal::{Signal, kill};
use support::{Folder, eventually};

use crate::common::api::{ready, reasons};
use crate::common::board::Board;

const TOLD: (&str, &str) = ("False", "node is shutting down");

/// Announces a shutdown to a board whose first events are sent, and ends it. The longer of two
/// times: until SIGTERM is sent, and from then to the end of the process.
fn shut_down(is_told_before_sigterm: bool) -> Duration {
    let (double, folder) = (Double::start(), Folder::new("shutdown"));
    let mut board = Board::pi(&double, &folder, &[]);
    let node = || double.get("nodes/pi").unwrap_or_default();
    eventually("Ready, and four events", Duration::from_secs(10), || {
        (ready(&node()).0 == "True" && reasons(&double).len() == 4).then_some(())
    });
    let start = Instant::now();
    kill(board.pid(), Signal::SIGUSR1).unwrap();
    if is_told_before_sigterm {
        eventually(TOLD.1, Duration::from_secs(10), || (ready(&node()) == TOLD).then_some(()));
        assert!(board.is_running());
    }
    let told = start.elapsed();
    let (status, ended) = board.stop(Signal::SIGTERM);
    println!("{told:?}, {ended:?}");
    assert_eq!(status.code(), Some(0));
    assert_eq!(ready(&node()), TOLD);
    assert_eq!(reasons(&double)[4..], ["Shutdown", "NodeNotReady"]);
    double.assert_members_are_known();
    told.max(ended)
}

/// SIGTERM may follow at once, or only when other units have stopped.
#[test]
fn an_announced_shutdown_is_on_the_server_before_the_process_ends() {
    // After 5 s the agent ends in any case. Three attempts on a busy machine.
    for (is_told_before_sigterm, seconds) in [(false, 4), (true, 1)] {
        let is_in_time = |_| shut_down(is_told_before_sigterm) < Duration::from_secs(seconds);
        assert!((0..3).any(is_in_time), "{is_told_before_sigterm}");
    }
}
