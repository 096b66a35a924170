//! `host` on this machine, compared with coreutils, getconf and awk. Figures that change between
//! two reads are compared within a margin.

use std::collections::BTreeSet;
use std::net::IpAddr;

use nodelet::host::Host;
use nodelet::kube::facts::Facts;
use nodelet::os::root::HostRoot;
use support::{Folder, skip};

use crate::common::shell::shell;

/// Change of free bytes between two reads, on a busy machine.
const MARGIN: u64 = 256 << 20;

fn facts() -> Facts {
    Host::new(HostRoot::default(), "/var/lib/nodelet-missing/below").read("localhost")
}

fn numbers(line: &str) -> Option<Vec<u64>> {
    Some(shell(line)?.split_whitespace().map(|number| number.parse().unwrap()).collect())
}

fn assert_near(what: &str, ours: u64, theirs: u64, margin: u64) {
    assert!(ours.abs_diff(theirs) <= margin, "{what}: {ours} here, {theirs} there");
}

/// getconf asks sysinfo(2), not /proc.
#[test]
fn memory_is_that_of_getconf_and_swap_that_of_proc_swaps() {
    let memory = facts().memory.unwrap();
    if let Some(pages) = numbers("getconf _PHYS_PAGES; getconf PAGESIZE") {
        assert_eq!(memory.total_bytes, pages[0] * pages[1]);
    }
    if let Some(swap) = numbers("awk 'NR > 1 { sum += $3 } END { print sum * 1024 }' /proc/swaps") {
        assert_eq!(memory.swap_total_bytes, swap[0]);
    }
}

/// The folder does not exist: its nearest ancestor `/var/lib` counts.
#[test]
fn the_file_system_is_that_of_stat() {
    let ours = facts().node_fs.unwrap().unwrap();
    if let Some(theirs) = numbers("stat -f -c '%S %b %a %c %d' /var/lib") {
        assert_eq!(ours.capacity_bytes, theirs[0] * theirs[1]);
        assert_near("available", ours.available_bytes, theirs[0] * theirs[2], MARGIN);
        assert_eq!(ours.inodes, theirs[3]);
        assert_near("inodes free", ours.inodes_free, theirs[4], 10_000);
    }
}

#[test]
fn pids_are_those_of_awk_and_ps() {
    let pids = facts().pids.unwrap();
    if let Some(max) =
        numbers("cat /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | sort -n")
    {
        assert_eq!(pids.max, max[0]);
    }
    if let Some(threads) = numbers("ps -eL -o lwp= | wc -l") {
        assert_near("threads", pids.running, threads[0], 200);
    }
}

#[test]
fn interfaces_are_those_of_sysfs_and_addresses_those_of_hostname() {
    let interfaces = facts().network.interfaces.unwrap();
    let listed = "cd /sys/class/net && \
                  for i in *; do test -d $i && echo $(cat $i/ifindex) $i; done | sort -n";
    if let Some(theirs) = shell(listed) {
        let theirs = theirs.lines().map(|line| line.split_once(' ').unwrap());
        let (numbers, mut theirs): (Vec<&str>, Vec<&str>) = theirs.unzip();
        let mut ours: Vec<&str> = interfaces.iter().map(|interface| &*interface.name).collect();
        // The kernel sorts by the last octet of the number.
        if numbers.iter().any(|number| number.parse::<u32>().unwrap() > 255) {
            ours.sort_unstable();
            theirs.sort_unstable();
        }
        assert_eq!(ours, theirs);
    }
    if let Some(theirs) = shell("hostname -I") {
        let link_local = |address: &IpAddr| matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        let up = interfaces.iter().filter(|interface| interface.up && !interface.loopback);
        let ours: BTreeSet<IpAddr> = up
            .flat_map(|interface| interface.addresses.clone())
            .filter(|address| !link_local(address))
            .collect();
        assert_eq!(
            ours,
            theirs.split_whitespace().map(|address| address.parse().unwrap()).collect()
        );
    }
}

#[test]
fn another_path_to_the_root_of_this_machine_gives_the_same_facts() {
    let folder = Folder::new("root");
    let empty = Host::new(HostRoot::new(folder.path()), "/").read("localhost");
    assert!(empty.memory.unwrap_err().is_absent());
    assert!(empty.cpus.unwrap_err().is_absent());
    assert_eq!(empty.machine_id.as_deref(), Ok(""));
    assert_eq!(empty.network.default_routes, Ok(None));
    assert_eq!(empty.network.interfaces, facts().network.interfaces);
    // `/proc/..` is `/`: the code path for another root, on the files of this machine.
    let (ours, other) =
        (facts(), Host::new(HostRoot::new("/proc/.."), "/var/lib").read("localhost"));
    assert!(!HostRoot::new("/proc/..").is_real());
    let steady =
        |f: Facts| (f.cpus, f.memory, f.machine_id, f.os_image, f.boot_id, f.huge_pages, f.network);
    assert_eq!(steady(ours), steady(other));
}

#[test]
fn a_new_mount_is_noticed() {
    let mut itself = std::process::Command::new("unshare");
    itself
        .args(["--user", "--map-root-user", "--mount"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "facts::in_a_mount_namespace_of_its_own"]);
    let output = itself.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("running 1 test") {
        assert!(output.status.success(), "{said}");
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        skip::optional(&format!("no mount namespace: {said}"));
    }
}

#[test]
#[ignore = "mounts; run by a_new_mount_is_noticed"]
fn in_a_mount_namespace_of_its_own() {
    let folder = Folder::new("mount");
    // Missing at first, and therefore measured at its parent.
    let path = folder.path().join("below");
    let mut host = Host::new(HostRoot::default(), &path);
    let mut facts = host.read("localhost");
    let mut capacity = || {
        host.refresh_mounts();
        host.refresh_usage(&mut facts);
        facts.storage().unwrap().unwrap().capacity_bytes
    };
    let before = [capacity(), capacity()];
    let path = path.display();
    let mounted =
        shell(&format!("mkdir {path} && mount -t tmpfs -o size=8m nodelet {path} && echo done"));
    let during = [capacity(), capacity()];
    // Nothing of --root-dir is kept open: the mount is not busy.
    let unmounted = shell(&format!("umount {path} && echo done"));
    let after = capacity();
    assert_eq!(mounted.as_deref().map(str::trim), Some("done"));
    assert_eq!(unmounted.as_deref().map(str::trim), Some("done"));
    assert_eq!(during, [8 << 20; 2]);
    assert!(before[0] == before[1] && before[0] != 8 << 20, "{before:?}");
    assert_eq!(after, before[0]);
}
