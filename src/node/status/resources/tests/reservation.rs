//! Cases of `pkg/kubelet/cm/node_container_manager_linux_test.go`.
//!
//! Not applicable: TestNodeAllocatableForEnforcement, because there is no cgroup of pods.
//! TestNodeRefFromNode is in `events/tests.rs`.

use super::super::*;
use crate::config::flags::Flags;
use crate::kube::facts::{FileSystem, Memory, Unread};
use crate::kube::time::Wall;
use crate::node::eviction::Pressures;
use crate::node::status;

const GI: u64 = 1 << 30;
const KUBE: &str = "--kube-reserved=cpu=100m,memory=100Mi";
const SYSTEM: &str = "--system-reserved=cpu=50m,memory=50Mi";
const NO_LOCAL_STORAGE: &str = "--local-storage-capacity-isolation=false";

fn config(words: &[&str]) -> Config {
    Config::new(Flags::of(words), || Ok("pi".to_owned())).unwrap()
}

fn facts(cpus: u64, memory: u64, storage: u64) -> Facts {
    Facts {
        cpus: Ok(cpus),
        memory: Ok(Memory { total_bytes: memory, swap_total_bytes: 0 }),
        node_fs: Ok(FileSystem { capacity_bytes: storage, ..FileSystem::default() }),
        ..Facts::example()
    }
}

/// TestNodeAllocatableReservationForScheduling.
#[test]
fn test_node_allocatable_reservation_for_scheduling() {
    let none = "--eviction-hard=";
    for (name, words, want) in [
        ("1", &[KUBE, SYSTEM, none][..], ["150m", "150Mi", "0"]),
        ("2", &[KUBE, SYSTEM, "--eviction-hard=memory.available<100Mi"], ["150m", "250Mi", "0"]),
        ("3", &[KUBE, SYSTEM, "--eviction-hard=memory.available<5%"], ["150m", "694157320", "0"]),
        ("4, storage none", &[none], ["0", "0", "0"]),
        ("5", &["--kube-reserved=memory=100Mi", SYSTEM, none], ["50m", "150Mi", "0"]),
        (
            "6",
            &["--kube-reserved=cpu=50m,memory=100Mi", "--system-reserved=memory=50Mi", none],
            ["50m", "150Mi", "0"],
        ),
        ("storage 1", &["--kube-reserved=ephemeral-storage=100Mi", none], ["0", "0", "100Mi"]),
        (
            "storage 2",
            &["--kube-reserved=ephemeral-storage=100Mi", "--eviction-hard=nodefs.available<100Mi"],
            ["0", "0", "200Mi"],
        ),
        (
            "storage 3",
            &["--kube-reserved=ephemeral-storage=150Mi", "--eviction-hard=nodefs.available<5%"],
            ["0", "0", "694157320"],
        ),
        ("the defaults", &[], ["0", "100Mi", "1073741840"]),
        (
            "soft, inodes, pid and imagefs reserve nothing",
            &[
                "--eviction-soft=memory.available<1Gi,nodefs.available<1Gi",
                "--eviction-soft-grace-period=memory.available=0s,nodefs.available=1m",
                "--eviction-minimum-reclaim=memory.available=1Gi",
                "--eviction-hard=nodefs.inodesFree<5%,imagefs.available<15%,pid.available<10",
                "--system-reserved=pid=1000",
            ],
            ["0", "0", "0"],
        ),
        (
            "disabled",
            &["--eviction-hard=memory.available<100%,nodefs.available<0%"],
            ["0", "0", "0"],
        ),
        ("ignored", &[KUBE, "--experimental-allocatable-ignore-eviction"], ["100m", "100Mi", "0"]),
        (
            "without local storage none of it is reserved",
            &[NO_LOCAL_STORAGE, "--kube-reserved=ephemeral-storage=100Mi"],
            ["0", "100Mi", "0"],
        ),
    ] {
        let (config, facts) = (config(words), facts(10, 10 * GI, 10 * GI));
        let of = |resource| reserved(resource, &config, &facts).unwrap().to_string();
        assert_eq!([of("cpu"), of("memory"), of("ephemeral-storage")], want, "{name}");
        assert_eq!(of("pid"), "0", "{name}");
    }
}

/// TestNodeAllocatableInputValidation.
#[test]
fn test_node_allocatable_input_validation() {
    let half = ["--kube-reserved=cpu=5,memory=5Gi", "--system-reserved=cpu=5,memory=5Gi"];
    let line = |resource: &str, reserved: &str, capacity: &str| {
        format!(
            "Resource \"{resource}\" has a reservation of {reserved} but capacity of {capacity}. \
             Expected capacity >= reservation."
        )
    };
    let storage = "--kube-reserved=ephemeral-storage=";
    for (words, capacity, want) in [
        (&[KUBE, SYSTEM][..], (10, 10, 10), vec![]),
        (
            &["--kube-reserved=cpu=100m", "--eviction-hard=memory.available<100Mi"],
            (10, 10, 10),
            vec![],
        ),
        (&["--kube-reserved=cpu=10,memory=10Gi", "--eviction-hard="], (10, 10, 10), vec![]),
        (&[half[0], half[1], "--eviction-hard=memory.available<1Gi"], (10, 11, 10), vec![]),
        (
            &[half[0], half[1], "--eviction-hard=memory.available<2Gi"],
            (10, 11, 10),
            vec![line("memory", "12Gi", "11Gi")],
        ),
        (&["--kube-reserved=ephemeral-storage=100Mi"], (10, 10, 1), vec![]),
        (
            &["--kube-reserved=ephemeral-storage=20Gi", "--eviction-hard=nodefs.available<100Mi"],
            (10, 10, 20),
            vec![line("ephemeral-storage", "20580Mi", "20Gi")],
        ),
        (
            &[half[0], half[1], &format!("{storage}1Gi")],
            (4, 2, 0),
            vec![
                line("cpu", "10", "4"),
                line("ephemeral-storage", "1Gi", "0"),
                line("memory", "10340Mi", "2Gi"),
            ],
        ),
        (&["--reserved-cpus=0-4", "--eviction-hard="], (4, 1, 1), vec![line("cpu", "5", "4")]),
        // pid is neither reported nor checked.
        (&["--system-reserved=pid=100000000"], (4, 1, 1), vec![]),
        (&[NO_LOCAL_STORAGE, &format!("{storage}9Gi")], (4, 1, 1), vec![]),
    ] {
        let (cpus, memory, storage) = capacity;
        let facts = facts(cpus, memory * GI, storage * GI);
        let error = format!("invalid Node Allocatable configuration. {}", want.join(" "));
        let want = if want.is_empty() { Ok(()) } else { Err(error) };
        assert_eq!(check_reservations(&config(words), &facts), want, "{words:?}");
    }
}

/// A board of 64 MiB starts with the default threshold of 100Mi. Its allocatable memory is 0, and
/// it has MemoryPressure.
#[test]
fn default_thresholds_above_the_capacity_are_accepted() {
    let small = facts(1, 64 << 20, GI);
    assert_eq!(check_reservations(&config(&[]), &small), Ok(()));
    assert_eq!(reserved("memory", &config(&[]), &small).unwrap().to_string(), "100Mi");
    for words in ["--eviction-hard=memory.available<100Mi", "--system-reserved=memory=1Mi"] {
        let refused = check_reservations(&config(&[words]), &small);
        assert!(refused.unwrap_err().contains("capacity of 64Mi"), "{words}");
    }
}

/// TestNodeAllocatableReservationForScheduling (memory missing).
#[test]
fn a_resource_without_its_fact_is_not_checked() {
    let unread = Facts {
        cpus: Err(Unread::new("proc/x", "gone")),
        memory: Err(Unread::new("proc/x", "gone")),
        node_fs: Err(Unread::new("proc/x", "gone")),
        ..Facts::example()
    };
    let config = config(&["--system-reserved=cpu=99,memory=99Ti,ephemeral-storage=99Ti"]);
    assert_eq!(check_reservations(&config, &unread), Ok(()));
    assert!(reserved("memory", &config, &unread).is_err());
}

/// setters_test.go TestReadyCondition (isolation off).
#[test]
fn without_local_storage_the_node_is_ready_without_ephemeral_storage() {
    let unread = Facts { node_fs: Err(Unread::new("proc/x", "gone")), ..facts(4, GI, GI) };
    for facts in [facts(4, GI, GI), unread] {
        let config = config(&[NO_LOCAL_STORAGE]);
        let desired = status::initial(&config, &facts, Pressures::default(), Wall::default());
        // The file system is still checked for DiskPressure.
        let lacks_capacity = |line: &String| line.contains("no capacity");
        assert!(!desired.missing.iter().any(lacks_capacity), "{:?}", desired.missing);
        let status = &desired.node["status"];
        for amounts in ["capacity", "allocatable"] {
            assert_eq!(status[amounts].get("ephemeral-storage"), None);
        }
        assert_eq!(status["conditions"][3]["status"], "True");
    }
}
