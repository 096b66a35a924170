//! A change of the board's address, in a network namespace of the test. Needs root and iproute2.

use std::process::{Command, Stdio};
use std::time::Duration;

use apidouble::Double;
use nix::sched::{CloneFlags, unshare};

use crate::common::api::status_patches;
use crate::common::board::Board;
use support::{Folder, eventually, skip};

/// Runs `ip` in the namespace of this thread.
fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("ip {line}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Moves this thread, and what it starts, to a namespace with one interface, its address and a
/// default route.
fn network() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| format!("no network namespace: {e}"))?;
    for line in [
        "link set lo up",
        "link add eth9 type veth peer name peer9",
        "link set peer9 up",
        "link set eth9 up",
        "address add 192.0.2.10/24 dev eth9",
        "route add default via 192.0.2.1",
    ] {
        ip(line)?;
    }
    Ok(())
}

/// A server and a board in such a namespace; `None`, and a skip, without one.
fn start(flags: &[&str]) -> Option<(Double, Folder, Board)> {
    if !skip::has_tool("ip") {
        return None;
    }
    if let Err(why) = network() {
        skip::optional(&why);
        return None;
    }
    let double = Double::start();
    let folder = Folder::new("network");
    let board = Board::pi(&double, &folder, flags);
    Some((double, folder, board))
}

#[test]
fn a_changed_address_is_reported_before_the_next_tick() {
    let Some((double, _folder, _board)) = start(&["--node-status-update-frequency=1h"]) else {
        return;
    };
    let has = |address: &str| {
        eventually(address, Duration::from_secs(20), || {
            let node = double.get("nodes/pi")?;
            let addresses = node["status"]["addresses"].as_array()?.clone();
            let mut internal = addresses.iter().filter(|a| a["type"] == "InternalIP");
            internal.any(|a| a["address"] == address).then_some(())
        });
    };
    has("192.0.2.10");
    // As networkd does for a new lease, here with `Label=` in `[DHCPv4]`. The kernel removes the
    // routes of the first address.
    ip("address del 192.0.2.10/24 dev eth9").unwrap();
    ip("address add 198.51.100.7/24 dev eth9 label maas").unwrap();
    ip("route add default via 198.51.100.1").unwrap();
    has("198.51.100.7");
}

/// The processor time of a process in milliseconds: utime and stime of `/proc/PID/stat`, in ticks
/// of 10 ms.
fn processor_time(id: nix::unistd::Pid) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap());
    ticks.sum::<u64>() * 10
}

/// A routing daemon or a modem that flaps: thousands of changes, and an address that alternates.
#[test]
fn a_storm_of_routes_costs_two_percent_of_a_core_and_few_patches() {
    let Some((double, _folder, board)) = start(&[]) else {
        return;
    };
    eventually("Ready", Duration::from_secs(20), || double.get("nodes/pi"));
    let storm = "while :; do
        for i in $(seq 100); do
            echo \"route add 10.$((i % 250)).0.0/16 via 192.0.2.1\"
            echo \"route del 10.$((i % 250)).0.0/16 via 192.0.2.1\"
        done | ip -batch -
        ip address add 192.0.2.11/24 dev eth9; ip address del 192.0.2.10/24 dev eth9
        ip route replace default via 192.0.2.1; sleep 0.2
        ip address add 192.0.2.10/24 dev eth9; ip address del 192.0.2.11/24 dev eth9
        ip route replace default via 192.0.2.1; sleep 0.2
    done";
    let (before, sent) = (processor_time(board.pid()), status_patches(&double));
    let mut storm = Command::new("sh").args(["-c", storm]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(30));
    let (after, sent) = (processor_time(board.pid()), status_patches(&double) - sent);
    storm.kill().unwrap();
    storm.wait().unwrap();
    assert!(after - before <= 600, "{} ms in 30 s", after - before);
    assert!(sent <= 6, "{sent} patches in 30 s");
}
