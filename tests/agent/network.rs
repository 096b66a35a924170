//! A change of the board's address, in a network namespace of the test. Needs root and iproute2.

use std::process::Command;
use std::time::Duration;

use apidouble::Double;
use nix::sched::{CloneFlags, unshare};

use crate::common::board::Board;
use support::{Folder, eventually, skip};

/// Runs `ip` in the namespace of this thread.
fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {line}: {}",
            String::from_utf8_lossy(&output.stderr)
        )),
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

#[test]
fn a_changed_address_is_reported_before_the_next_tick() {
    if !skip::has_tool("ip") {
        return;
    }
    if let Err(why) = network() {
        return skip::optional(&why);
    }
    let double = Double::start();
    let folder = Folder::new("network");
    let path = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let _board = Board::start(&[
        &kubeconfig,
        "--hostname-override=pi",
        "--node-status-update-frequency=1h",
    ]);
    let has = |address: &str| {
        eventually(address, Duration::from_secs(20), || {
            let node = double.get("nodes/pi")?;
            let addresses = node["status"]["addresses"].as_array()?.clone();
            let mut internal = addresses.iter().filter(|a| a["type"] == "InternalIP");
            internal.any(|a| a["address"] == address).then_some(())
        });
    };
    has("192.0.2.10");
    // As DHCP does for a new lease. The kernel removes the routes of the first address.
    ip("address del 192.0.2.10/24 dev eth9").unwrap();
    ip("address add 198.51.100.7/24 dev eth9").unwrap();
    ip("route add default via 198.51.100.1").unwrap();
    has("198.51.100.7");
}
