//! `nodelet inspect` on this machine, compared with the raw files as the shell reads them.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::shell::shell;
use serde_json::{Value, json};
use support::skip;

/// The Node that the binary prints, and stderr, which names the missing facts.
fn inspect(words: &[&str]) -> (Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .args(["inspect", "--hostname-override=here", "--root-dir=/var/lib"])
        .args(words)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

fn number(line: &str) -> Option<u64> {
    Some(shell(line)?.parse().unwrap())
}

/// Bytes as Kubernetes writes them: the largest binary unit that leaves a whole number.
fn text(bytes: u64) -> String {
    let unit = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let fits = |power: &usize| bytes != 0 && bytes.is_multiple_of(1 << (10 * power));
    let power = (0..unit.len()).rev().find(fits).unwrap_or(0);
    format!("{}{}", bytes >> (10 * power), unit[power])
}

/// Bytes of a quantity that the binary printed.
fn bytes(quantity: &Value) -> u64 {
    let quantity = quantity.as_str().unwrap();
    let (digits, power) = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50)]
        .iter()
        .find_map(|(unit, power)| Some((quantity.strip_suffix(unit)?, *power)))
        .unwrap_or((quantity, 0));
    digits.parse::<u64>().unwrap() << power
}

const MEM_TOTAL: &str = "awk '$1 == \"MemTotal:\" { print $2; exit }' /proc/meminfo";

/// Huge pages by name, in bytes.
fn huge_pages() -> BTreeMap<String, u64> {
    let line = "cd /sys/kernel/mm/hugepages && for d in hugepages-*kB; do \
                k=${d#hugepages-}; k=${k%kB}; echo $k $(cat $d/nr_hugepages); done";
    let lines = shell(line).unwrap_or_default();
    let size = |line: &str| {
        let (kib, count) = line.split_once(' ').unwrap();
        let (kib, count): (u64, u64) = (kib.parse().unwrap(), count.parse().unwrap());
        (format!("hugepages-{}", text(kib << 10)), (kib << 10) * count)
    };
    lines.lines().map(size).collect()
}

/// Bytes of the file system of `--root-dir`.
fn storage() -> Option<u64> {
    let line = "stat -f -c '%S %b' /var/lib";
    let text = shell(line)?;
    let (size, count) = text.split_once(' ').unwrap();
    Some(size.parse::<u64>().unwrap() * count.parse::<u64>().unwrap())
}

#[test]
fn capacity_and_allocatable_agree_with_the_raw_files() {
    let (node, said) = inspect(&[]);
    let (capacity, allocatable) = (&node["status"]["capacity"], &node["status"]["allocatable"]);
    let mut names = vec!["pods".to_owned()];
    assert_eq!((&capacity["pods"], &allocatable["pods"]), (&json!("0"), &json!("0")));

    // With a NUMA node folder only CPUs that are online count, else all CPU folders.
    let cpus = if std::path::Path::new("/sys/devices/system/node/node0").exists() {
        number("getconf _NPROCESSORS_ONLN")
    } else {
        number("ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l")
    };
    if let Some(cpus) = cpus {
        assert_eq!(capacity["cpu"], cpus.to_string());
        assert_eq!(allocatable["cpu"], cpus.to_string());
    }
    names.push("cpu".to_owned());

    let huge_pages = huge_pages();
    for (name, size) in &huge_pages {
        assert_eq!(capacity[name], text(*size), "{name}");
        assert_eq!(allocatable[name], text(*size), "{name}");
        names.push(name.clone());
    }
    if let Some(kib) = number(MEM_TOTAL) {
        assert_eq!(capacity["memory"], text(kib << 10));
        let kept = (100 << 20) + huge_pages.values().sum::<u64>();
        assert_eq!(allocatable["memory"], text((kib << 10).saturating_sub(kept)));
    }
    names.push("memory".to_owned());

    if said.contains("no capacity ephemeral-storage") {
        skip::optional("ephemeral-storage: /var/lib is on a file system that can block");
    } else {
        names.push("ephemeral-storage".to_owned());
    }
    if let (Some(size), true) = (storage(), capacity.get("ephemeral-storage").is_some()) {
        assert_eq!(capacity["ephemeral-storage"], text(size));
        // The kubelet multiplies by 0.1 as a float32, which is 13421773 / 2^27.
        let kept = (size as f64 * (13_421_773.0 / 134_217_728.0)).trunc() as u64;
        assert_eq!(allocatable["ephemeral-storage"], text(size - kept));
    }
    names.sort();
    for resources in [capacity, allocatable] {
        let ours: Vec<&String> = resources.as_object().unwrap().keys().collect();
        assert_eq!(ours, names.iter().collect::<Vec<_>>(), "and nothing else");
    }
}

#[test]
fn node_info_agrees_with_the_raw_files() {
    let (node, _) = inspect(&[]);
    let info = &node["status"]["nodeInfo"];
    for (key, line) in [
        ("kernelVersion", "uname -r"),
        ("bootID", "cat /proc/sys/kernel/random/boot_id"),
        ("machineID", "cat /etc/machine-id 2>/dev/null || cat /var/lib/dbus/machine-id"),
        ("systemUUID", "cat /sys/class/dmi/id/product_uuid 2>/dev/null || cat /etc/machine-id"),
        ("osImage", ". /etc/os-release && echo \"$PRETTY_NAME\""),
    ] {
        if let Some(want) = shell(line) {
            assert_eq!(info[key], want, "{line}");
        }
    }
    let architecture = shell("uname -m").unwrap();
    // A 32-bit binary on a 64-bit kernel reports its own architecture.
    let want = match (architecture.as_str(), cfg!(target_pointer_width = "64")) {
        ("x86_64", true) => Some("amd64"),
        ("aarch64", true) => Some("arm64"),
        ("armv7l" | "armv6l", false) => Some("arm"),
        _ => None,
    };
    match want {
        Some(want) => assert_eq!(info["architecture"], want),
        None => skip::optional(&format!("no known name for the architecture {architecture}")),
    }
    assert_eq!(info["operatingSystem"], "linux");
    assert_eq!(info["containerRuntimeVersion"], "none://");
    assert_eq!(info["kubeProxyVersion"], "");
    let version = shell(&format!("{} --version", env!("CARGO_BIN_EXE_nodelet"))).unwrap();
    let own = info["kubeletVersion"].as_str().unwrap();
    let own = own.strip_prefix("v1.36.2-nodelet.").unwrap();
    assert!(version.contains(own), "{version:?} {own:?}");
    let swap = number("awk '$1 == \"SwapTotal:\" { print $2; exit }' /proc/meminfo");
    match swap {
        Some(0) => assert_eq!(info.get("swap"), None),
        Some(kib) => assert_eq!(info["swap"], json!({"capacity": kib << 10})),
        None => {}
    }
}

/// The node name is in the domain `invalid`, so neither a hosts file nor a name server knows it.
#[test]
fn the_address_is_that_of_the_first_default_route() {
    let (node, _) = inspect(&["--hostname-override=nodelet-inspect-here.invalid"]);
    let addresses = &node["status"]["addresses"];
    let interface = "awk '$2 == \"00000000\" { print $1; exit }' /proc/net/route";
    let Some(interface) = shell(interface) else {
        return;
    };
    let ours = addresses[0]["address"].as_str().unwrap();
    assert_eq!(
        addresses,
        &json!([
            {"type": "InternalIP", "address": ours},
            {"type": "Hostname", "address": "nodelet-inspect-here.invalid"},
        ])
    );
    let line = format!(
        "ip -4 -o address show dev {interface} up scope global | awk 'NR == 1 {{ sub(\"/.*\", \"\", $4); print $4 }}'"
    );
    if let Some(want) = shell(&line) {
        assert_eq!(ours, want, "{line}");
    }
    // hostname prints the addresses of all interfaces.
    if let Some(all) = shell("hostname -I") {
        assert!(all.split_whitespace().any(|ip| ip == ours), "{ours} of {all}");
    }
}

#[test]
fn reservations_reduce_allocatable() {
    let (plain, _) = inspect(&[]);
    let (node, _) = inspect(&[
        "--system-reserved=memory=64Mi",
        "--kube-reserved=cpu=100m",
        "--max-pods=10",
        "--pods-per-core=1",
    ]);
    let (capacity, allocatable) = (&node["status"]["capacity"], &node["status"]["allocatable"]);
    for same in ["cpu", "memory", "ephemeral-storage"] {
        assert_eq!(capacity[same], plain["status"]["capacity"][same], "{same}");
    }
    if let Some(kib) = number(MEM_TOTAL) {
        let kept = (164 << 20) + huge_pages().values().sum::<u64>();
        assert_eq!(allocatable["memory"], text((kib << 10).saturating_sub(kept)));
        assert_eq!(bytes(&capacity["memory"]), kib << 10);
    }
    let cpus: u64 = capacity["cpu"].as_str().unwrap().parse().unwrap();
    assert_eq!(allocatable["cpu"], format!("{}m", cpus * 1000 - 100));
    for resources in [capacity, allocatable] {
        assert_eq!(resources["pods"], cpus.min(10).to_string());
    }
    assert_eq!(
        allocatable["ephemeral-storage"],
        plain["status"]["allocatable"]["ephemeral-storage"]
    );
    // With a capacity for pods there is no taint.
    assert_eq!(node["spec"], json!({}));
    assert_eq!(plain["spec"]["taints"][0]["key"], "nodelet/no-pods");
}
