//! Cases of `pkg/kubelet/cm/node_container_manager_linux_test.go`.
//!
//! Not applicable: TestNodeAllocatableForEnforcement, because there is no cgroup of pods.
//! TestNodeRefFromNode is in `events/tests.rs`.

use super::*;

const GI: u64 = 1 << 30;
const BOTH: &str = "--kube-reserved=cpu=100m,memory=100Mi --system-reserved=cpu=50m,memory=50Mi";
const HALF: &str = "--kube-reserved=cpu=5,memory=5Gi --system-reserved=cpu=5,memory=5Gi";
const STORAGE: &str = "--kube-reserved=ephemeral-storage=100Mi";
const NO_LOCAL_STORAGE: &str = "--local-storage-capacity-isolation=false";

fn facts(cpus: u64, memory: u64, storage: u64) -> Facts {
    Facts {
        cpus: Ok(cpus),
        memory: Ok(Memory { total_bytes: memory, swap_total_bytes: 0 }),
        node_fs: Ok(Some(FsStats { capacity_bytes: storage, ..FsStats::default() })),
        ..Facts::example()
    }
}

/// TestNodeAllocatableReservationForScheduling.
#[test]
fn test_node_allocatable_reservation_for_scheduling() {
    for (name, words, more, want) in [
        ("1", BOTH, "--eviction-hard=", ["150m", "150Mi", "0"]),
        ("2", BOTH, "--eviction-hard=memory.available<100Mi", ["150m", "250Mi", "0"]),
        ("3", BOTH, "--eviction-hard=memory.available<5%", ["150m", "694157320", "0"]),
        ("4, storage none", "", "--eviction-hard=", ["0", "0", "0"]),
        (
            "5",
            "--kube-reserved=memory=100Mi --system-reserved=cpu=50m,memory=50Mi",
            "--eviction-hard=",
            ["50m", "150Mi", "0"],
        ),
        (
            "6",
            "--kube-reserved=cpu=50m,memory=100Mi --system-reserved=memory=50Mi",
            "--eviction-hard=",
            ["50m", "150Mi", "0"],
        ),
        ("storage 1", STORAGE, "--eviction-hard=", ["0", "0", "100Mi"]),
        ("storage 2", STORAGE, "--eviction-hard=nodefs.available<100Mi", ["0", "0", "200Mi"]),
        (
            "storage 3",
            "--kube-reserved=ephemeral-storage=150Mi",
            "--eviction-hard=nodefs.available<5%",
            ["0", "0", "694157320"],
        ),
        ("the defaults", "", "", ["0", "100Mi", "1073741840"]),
        (
            "soft, inodes, pid and imagefs reserve nothing",
            "--eviction-soft=memory.available<1Gi,nodefs.available<1Gi \
             --eviction-soft-grace-period=memory.available=0s,nodefs.available=1m",
            "--eviction-minimum-reclaim=memory.available=1Gi \
             --eviction-hard=nodefs.inodesFree<5%,imagefs.available<15%,pid.available<10 \
             --system-reserved=pid=1000",
            ["0", "0", "0"],
        ),
        (
            "disabled",
            "",
            "--eviction-hard=memory.available<100%,nodefs.available<0%",
            ["0", "0", "0"],
        ),
        ("ignored", BOTH, "--experimental-allocatable-ignore-eviction", ["150m", "150Mi", "0"]),
        ("none without local storage", STORAGE, NO_LOCAL_STORAGE, ["0", "100Mi", "0"]),
    ] {
        let config = config(&format!("{words} {more}"));
        let facts = facts(10, 10 * GI, 10 * GI);
        let of = |resource| reserved(resource, &config, &facts).unwrap().to_string();
        assert_eq!([of("cpu"), of("memory"), of("ephemeral-storage")], want, "{name}");
        assert_eq!(of("pid"), "0", "{name}");
    }
}

/// TestNodeAllocatableInputValidation.
#[test]
fn test_node_allocatable_input_validation() {
    // Each line is resource, reservation and capacity.
    for (words, more, capacity, want) in [
        (BOTH, "", (10, 10, 10), &[][..]),
        ("--kube-reserved=cpu=100m", "--eviction-hard=memory.available<100Mi", (10, 10, 10), &[]),
        ("--kube-reserved=cpu=10,memory=10Gi", "--eviction-hard=", (10, 10, 10), &[]),
        (HALF, "--eviction-hard=memory.available<1Gi", (10, 11, 10), &[]),
        (HALF, "--eviction-hard=memory.available<2Gi", (10, 11, 10), &[["memory", "12Gi", "11Gi"]]),
        (STORAGE, "", (10, 10, 1), &[]),
        (
            "--kube-reserved=ephemeral-storage=20Gi",
            "--eviction-hard=nodefs.available<100Mi",
            (10, 10, 20),
            &[["ephemeral-storage", "20580Mi", "20Gi"]],
        ),
        (
            HALF,
            "--kube-reserved=cpu=5,memory=5Gi,ephemeral-storage=1Gi",
            (4, 2, 0),
            &[["cpu", "10", "4"], ["ephemeral-storage", "1Gi", "0"], ["memory", "10340Mi", "2Gi"]],
        ),
        ("--reserved-cpus=0-4", "--eviction-hard=", (4, 1, 1), &[["cpu", "5", "4"]]),
        // pid is neither reported nor checked.
        ("--system-reserved=pid=100000000", "", (4, 1, 1), &[]),
        ("--kube-reserved=ephemeral-storage=9Gi", NO_LOCAL_STORAGE, (4, 1, 1), &[]),
    ] {
        let (cpus, memory, storage) = capacity;
        let facts = facts(cpus, memory * GI, storage * GI);
        let line = |[resource, reserved, capacity]: &[&str; 3]| {
            format!(
                " Resource \"{resource}\" has a reservation of {reserved} but capacity of \
                 {capacity}. Expected capacity >= reservation."
            )
        };
        let lines: String = want.iter().map(line).collect();
        let error = format!("invalid Node Allocatable configuration.{lines}");
        let want = if want.is_empty() { Ok(()) } else { Err(error) };
        let config = config(&format!("{words} {more}"));
        assert_eq!(check_reservations(&config, &facts), want, "{words} {more}");
    }
}

/// A board of 64 MiB starts with the default threshold of 100Mi. Its allocatable memory is 0, and
/// it has MemoryPressure.
#[test]
fn default_thresholds_above_the_capacity_are_accepted() {
    let small = facts(1, 64 << 20, GI);
    assert_eq!(check_reservations(&config(""), &small), Ok(()));
    assert_eq!(reserved("memory", &config(""), &small).unwrap().to_string(), "100Mi");
    for words in ["--eviction-hard=memory.available<100Mi", "--system-reserved=memory=1Mi"] {
        let refused = check_reservations(&config(words), &small);
        assert!(refused.unwrap_err().contains("capacity of 64Mi"), "{words}");
    }
}

/// TestNodeAllocatableReservationForScheduling (memory missing).
#[test]
fn a_resource_without_its_fact_is_not_checked() {
    let config = config("--system-reserved=cpu=99,memory=99Ti,ephemeral-storage=99Ti");
    assert_eq!(check_reservations(&config, &nothing_read()), Ok(()));
    assert!(reserved("memory", &config, &nothing_read()).is_none());
}
