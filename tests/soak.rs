//! Soak test of the process: `cargo test --test soak -- --ignored --nocapture`.
//!
//! Another fault every second for 150 s. All periods are a fifth of the defaults, so that is an
//! eighth of an hour. (`tests/sim` runs hours of virtual time.)
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod common;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::{Double, Fault, Rule, Validity};

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::lease::{await_renewals, renew_time};
use support::{Folder, eventually};

const STORM: Duration = Duration::from_secs(150);

/// Anonymous memory in KiB, and descriptors.
fn footprint(board: &Board) -> (u64, usize) {
    (board.kibibytes("Anonymous"), board.descriptors())
}

/// Starts the fault of this second. The order is the same in each run.
fn misbehave(double: &Double, second: u64) {
    let faults = double.faults();
    let always = |fault: Fault| faults.push(Rule::new(fault).always());
    let status =
        |code| Fault::Status { code, retry_after: second.is_multiple_of(2).then_some(second) };
    // 7 and 19 are coprime: each of the 19 faults gets its turn.
    match second * 7 % 19 {
        0 => always(Fault::StallBeforeHeaders),
        1 => always(Fault::StallInBody(10)),
        2 => always(Fault::Trickle { bytes: 3, every: Duration::from_millis(10) }),
        3 => always(Fault::ResetBeforeHeaders),
        4 => always(Fault::ResetAfterHeaders),
        5 => always(Fault::CloseBeforeHeaders),
        6 => always(Fault::CloseSilently),
        7 => always(Fault::Garbage),
        8 => always(Fault::Oversized(10)),
        9 => always(Fault::EndlessHeaders),
        10 => always(Fault::Redirect("https://127.0.0.1:1/".to_owned())),
        11 => double.stop_listening(),
        12 => double.blackhole(),
        13 => double.swap_to_unknown_authority(),
        14 => double.restart_empty(),
        15 => double.close_connections(),
        16 => always(status([401, 403, 404, 409][usize::try_from(second % 4).unwrap()])),
        17 => always(status([429, 500, 503, 504][usize::try_from(second % 4).unwrap()])),
        _ => {
            double.as_admin("DELETE", "/api/v1/nodes/pi", "", &serde_json::Value::Null);
        }
    }
}

fn behave(double: &Double, second: u64) {
    double.faults().clear();
    double.start_listening();
    if second * 7 % 19 == 13 {
        double.swap_validity(Validity::VALID, None);
    }
}

#[test]
#[ignore = "takes three minutes: cargo test --test soak -- --ignored"]
fn a_fault_every_second_leaks_nothing_and_says_little() {
    let double = Double::builder().lifecycle(Duration::from_secs(10)).start();
    let folder = Folder::new("soak");
    let flags = ["--node-lease-duration-seconds=8", "--node-status-update-frequency=1s"];
    let mut board = Board::pi(&double, &folder, &flags);
    let renewed = || renew_time(&double, "pi");
    eventually("the lease", Duration::from_secs(10), renewed);
    let mut second = 0;
    let mut storm = |length: Duration| {
        let start = Instant::now();
        while start.elapsed() < length {
            misbehave(&double, second);
            thread::sleep(Duration::from_millis(900));
            behave(&double, second);
            thread::sleep(Duration::from_millis(100));
            second += 1;
            // The double records each request.
            double.clear_requests();
        }
    };
    // Each fault happened once: pages that are touched first are not counted as a leak.
    storm(STORM / 5);
    let calm = |board: &Board| {
        await_renewals(3, Duration::from_secs(15), renewed);
        board.can_be_looked_into().then(|| footprint(board))
    };
    let before = calm(&board);
    storm(STORM);
    let after = calm(&board);
    eventually("Ready", Duration::from_secs(15), || double.get("nodes/pi").filter(is_ready));
    let log = board.log();
    println!("{before:?} -> {after:?}, {} lines:\n{log:#?}", log.len());
    assert!(board.is_running());
    if let (Some(before), Some(after)) = (before, after) {
        assert!(after.0 <= before.0 + 256, "{before:?} -> {after:?} KiB");
        assert!(after.1.abs_diff(before.1) <= 1, "{before:?} -> {after:?}");
    }
    // One failure a minute and one recovery each of lease and node; measured: 13.
    assert!(log.len() < 40, "{} lines", log.len());
    assert_eq!(fs::read_dir(format!("/proc/{}/task", board.pid())).unwrap().count(), 1);
}
