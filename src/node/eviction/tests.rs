use super::*;
use crate::config::thresholds::{Amount, default_thresholds};
use crate::kube::facts::{FsStats, Memory, Pids, Read, Unread, UnreadKind};

const GI: u64 = 1 << 30;
const MI: u64 = 1 << 20;
const MINUTE: u64 = 60;
const TRANSITION: Duration = Duration::from_secs(300);

const NONE: Pressures = Pressures { memory: Some(false), disk: Some(false), pid: Some(false) };
const MEMORY: Pressures = Pressures { memory: Some(true), ..NONE };
const DISK: Pressures = Pressures { disk: Some(true), ..NONE };
const PID: Pressures = Pressures { pid: Some(true), ..NONE };

fn unread<T>() -> Read<T> {
    Err(Unread::new("proc/x", "gone"))
}

/// Facts with this amount of `signal`; all other facts are missing.
fn facts(signal: Signal, available: u64, capacity: u64) -> Facts {
    let none = Facts {
        memory: unread(),
        working_set_bytes: unread(),
        node_fs: unread(),
        pids: unread(),
        ..Facts::example()
    };
    let fs = FsStats::default();
    match signal {
        Signal::MemoryAvailable => Facts {
            memory: Ok(Memory { total_bytes: capacity, swap_total_bytes: 0 }),
            working_set_bytes: Ok(capacity - available),
            ..none
        },
        Signal::PidAvailable => {
            Facts { pids: Ok(Pids { max: capacity, running: capacity - available }), ..none }
        }
        Signal::NodefsAvailable | Signal::ImagefsAvailable => {
            let bytes = FsStats { available_bytes: available, capacity_bytes: capacity, ..fs };
            Facts { node_fs: Ok(Some(bytes)), ..none }
        }
        Signal::NodefsInodesFree | Signal::ImagefsInodesFree => {
            let inodes = FsStats { inodes_free: available, inodes: capacity, ..fs };
            Facts { node_fs: Ok(Some(inodes)), ..none }
        }
    }
}

fn bytes(n: u64) -> Amount {
    Amount::Quantity(Quantity::bytes(n))
}

/// The pressures after one pass.
fn first_pass(thresholds: &[Threshold], facts: &Facts) -> Pressures {
    Eviction::new(thresholds, TRANSITION).synchronize(facts, Mono::START)
}

fn soft(signal: Signal, amount: Amount, grace_period: u64) -> Threshold {
    Threshold { grace_period: Duration::from_secs(grace_period), ..Threshold::hard(signal, amount) }
}

/// Runs passes, each with its delay in seconds, the available amount and the expected pressures.
fn time_line(
    thresholds: &[Threshold],
    signal: Signal,
    capacity: u64,
    passes: &[(u64, u64, Pressures)],
) {
    let mut eviction = Eviction::new(thresholds, TRANSITION);
    let mut now = Mono::START;
    for (number, &(delay, available, want)) in passes.iter().enumerate() {
        now = now.after(Duration::from_secs(delay));
        assert_eq!(
            eviction.synchronize(&facts(signal, available, capacity), now),
            want,
            "pass {number}: {available} of {signal:?}"
        );
    }
}

/// eviction_manager_test.go TestMemoryPressure, TestPIDPressure, TestDiskPressureNodeFs (nodefs,
/// imagefs), TestInodePressureFsInodes (nodefs, imagefs), TestNodeReclaimFuncs (the condition stays
/// for 5 m; nothing is collected here); helpers_test.go TestNodeConditions,
/// TestNodeConditionsObservedSince and TestMakeSignalObservations, without containerfs and the
/// pods' allocatable memory.
#[test]
fn pressure_starts_with_the_first_met_pass_and_ends_after_the_transition_period() {
    for (signal, unit, on) in [
        (Signal::MemoryAvailable, GI, MEMORY),
        (Signal::NodefsAvailable, GI, DISK),
        (Signal::ImagefsAvailable, GI, DISK),
        (Signal::NodefsInodesFree, GI, DISK),
        (Signal::ImagefsInodesFree, GI, DISK),
        (Signal::PidAvailable, 500, PID),
    ] {
        time_line(
            &[Threshold::hard(signal, bytes(unit)), soft(signal, bytes(2 * unit), 120)],
            signal,
            4 * unit,
            &[
                (0, 2 * unit, NONE),
                // Below the soft threshold: pressure before its grace period ends.
                (MINUTE, unit * 3 / 2, on),
                (3 * MINUTE, unit * 3 / 2, on),
                (20 * MINUTE, 3 * unit, NONE),
                (MINUTE, unit / 2, on),
                (5 * MINUTE - 1, 2 * unit, on),
                (1, 2 * unit, NONE),
            ],
        );
    }
    // 0 < 0 is false: without a transition period there is never pressure, as upstream.
    let met = [Threshold::hard(Signal::MemoryAvailable, bytes(2))];
    let mut eviction = Eviction::new(&met, Duration::ZERO);
    assert_eq!(eviction.synchronize(&facts(Signal::MemoryAvailable, 1, 4), Mono::START), NONE);
}

/// eviction_manager_test.go TestMinReclaim, and helpers_test.go TestPercentageThresholdsMet with
/// reclaim enforced, TestThresholdsFirstObservedAt and TestThresholdsMetGracePeriod.
#[test]
fn minimum_reclaim_is_added_to_a_met_threshold() {
    let signal = Signal::MemoryAvailable;
    let reclaiming = |amount, reclaim| {
        [Threshold { minimum_reclaim: Some(reclaim), ..Threshold::hard(signal, amount) }]
    };
    time_line(
        &reclaiming(bytes(GI), bytes(500 * MI)),
        signal,
        4 * GI,
        &[
            (0, 2 * GI, NONE),
            (MINUTE, 1229 * MI, NONE),
            (MINUTE, 500 * MI, MEMORY),
            (MINUTE, 1229 * MI, MEMORY),
            (6 * MINUTE, 1229 * MI, MEMORY),
            (MINUTE, 2 * GI, MEMORY),
            (MINUTE, 1229 * MI, MEMORY),
            (3 * MINUTE, 1229 * MI, NONE),
        ],
    );
    time_line(
        &reclaiming(Amount::Percentage(0.20), Amount::Percentage(0.05)),
        signal,
        1000,
        &[
            (0, 225, NONE),
            (MINUTE, 100, MEMORY),
            (6 * MINUTE, 225, MEMORY),
            (6 * MINUTE, 300, NONE),
        ],
    );
    // A soft threshold is met after its grace period.
    time_line(
        &[Threshold { minimum_reclaim: Some(bytes(100)), ..soft(signal, bytes(200), 120) }],
        signal,
        1000,
        &[
            (0, 150, MEMORY),
            (MINUTE, 250, MEMORY),
            (5 * MINUTE, 250, NONE),
            // The grace period begins again.
            (MINUTE, 150, MEMORY),
            (6 * MINUTE, 250, NONE),
            (MINUTE, 150, MEMORY),
            (2 * MINUTE, 150, MEMORY),
            (6 * MINUTE, 250, MEMORY),
        ],
    );
}

/// helpers_test.go TestThresholdsMet, TestPercentageThresholdsMet: strictly less.
#[test]
fn an_amount_equal_to_the_threshold_is_no_pressure() {
    for (amount, capacity, available, met) in [
        (bytes(GI), 4 * GI, GI - 1, true),
        (bytes(GI), 4 * GI, GI, false),
        (Amount::Percentage(0.20), 1000, 199, true),
        (Amount::Percentage(0.20), 1000, 200, false),
        // 10 % of 107362627584 is 10736262918, because 0.1 is a 32-bit float.
        (Amount::Percentage(0.10), 107_362_627_584, 10_736_262_917, true),
        (Amount::Percentage(0.10), 107_362_627_584, 10_736_262_918, false),
        (Amount::Percentage(0.05), 10 * GI, 536_870_919, true),
        (Amount::Percentage(0.05), 10 * GI, 536_870_920, false),
        // Without inode accounting a percentage of 0 is 0.
        (Amount::Percentage(0.05), 0, 0, false),
        (bytes(1000), 0, 0, true),
        (Amount::Percentage(1.0), u64::MAX, u64::MAX, false),
    ] {
        for (signal, on) in [(Signal::MemoryAvailable, MEMORY), (Signal::NodefsInodesFree, DISK)] {
            let got =
                first_pass(&[Threshold::hard(signal, amount)], &facts(signal, available, capacity));
            assert_eq!(got, if met { on } else { NONE }, "{available} of {signal:?} {amount:?}");
        }
    }
}

/// helpers_test.go TestNodeConditions (empty), and the default thresholds: 15 % of imagefs exceeds
/// 10 % of nodefs, and both are one file system here.
#[test]
fn the_default_thresholds_are_the_kubelets() {
    let disk = |available, inodes_free, working_set| Facts {
        node_fs: Ok(Some(FsStats {
            capacity_bytes: 1000,
            available_bytes: available,
            inodes: 1000,
            inodes_free,
            ..FsStats::default()
        })),
        memory: Ok(Memory { total_bytes: GI, swap_total_bytes: 0 }),
        working_set_bytes: Ok(working_set),
        pids: Ok(Pids { max: 10, running: 20 }),
        ..Facts::example()
    };
    for (facts, want) in [
        (disk(150, 50, GI - 100 * MI), NONE),
        (disk(149, 50, 0), DISK),
        (disk(150, 49, 0), DISK),
        (disk(150, 50, GI - 100 * MI + 1), MEMORY),
        // A working set above the total: 0 bytes are available.
        (disk(150, 50, 2 * GI), MEMORY),
    ] {
        assert_eq!(first_pass(&default_thresholds(), &facts), want);
    }
    let pids = Threshold::hard(Signal::PidAvailable, Amount::Percentage(0.10));
    assert_eq!(first_pass(&[pids], &disk(0, 0, 0)), PID);
    assert_eq!(first_pass(&[], &disk(0, 0, 2 * GI)), NONE);
}

/// As upstream, a pass without statistics keeps all state (eviction_manager.go synchronize).
#[test]
fn a_pass_without_the_fact_keeps_the_state() {
    let threshold = [Threshold {
        minimum_reclaim: Some(bytes(100)),
        ..Threshold::hard(Signal::MemoryAvailable, bytes(200))
    }];
    let mut eviction = Eviction::new(&threshold, TRANSITION);
    for (minute, available, want) in [
        (0, None, Pressures { memory: None, ..NONE }),
        (1, Some(100), MEMORY),
        (2, None, MEMORY),
        (20, None, MEMORY),
        // Still met: minimum reclaim counts.
        (30, Some(250), MEMORY),
        (31, Some(900), MEMORY),
        // The end of the transition period is no ground for False.
        (60, None, MEMORY),
        (61, Some(900), NONE),
        (62, None, NONE),
    ] {
        let missing = facts(Signal::PidAvailable, 1, 2);
        let facts = available.map_or(missing, |free| facts(Signal::MemoryAvailable, free, 1000));
        let now = Mono::START.after(Duration::from_secs(minute * MINUTE));
        assert_eq!(eviction.synchronize(&facts, now), want, "minute {minute}");
    }
}

/// The images are hidden by `ProtectHome=yes`, and the other disk was full for a while.
#[test]
fn a_fact_that_is_never_read_does_not_keep_the_pressure_of_another_one() {
    let thresholds = [Signal::NodefsAvailable, Signal::ImagefsAvailable]
        .map(|signal| Threshold::hard(signal, bytes(200)));
    let mut eviction = Eviction::new(&thresholds, TRANSITION);
    let with = |free| FsStats { capacity_bytes: 1000, available_bytes: free, ..FsStats::default() };
    for (minute, node, image, want) in [
        (0, Some(900), None, None),
        (1, Some(100), None, Some(true)),
        (2, Some(900), None, Some(true)),
        (20, Some(900), None, Some(false)),
        // Now the images have a part in it.
        (21, Some(900), Some(100), Some(true)),
        (22, Some(900), Some(900), Some(true)),
        (40, Some(900), None, Some(true)),
        (41, Some(900), Some(900), Some(false)),
    ] {
        let read = |free: Option<u64>| free.map_or_else(unread, |free| Ok(Some(with(free))));
        let facts = Facts { node_fs: read(node), image_fs: Some(read(image)), ..Facts::example() };
        let now = Mono::START.after(Duration::from_secs(minute * MINUTE));
        assert_eq!(eviction.synchronize(&facts, now).disk, want, "minute {minute}");
    }
}

#[test]
fn free_space_that_is_not_known_is_neither_pressure_nor_its_absence() {
    let full = FsStats { capacity_bytes: 1000, inodes: 1000, ..FsStats::default() };
    let missing = Unread { kind: UnreadKind::Absent, ..Unread::new("mount of /x", "no such file") };
    for (node_fs, disk) in [
        (Ok(Some(full)), Some(true)),
        (Ok(Some(FsStats { is_old: true, ..full })), None),
        (unread(), None),
        // Of a folder that is missing.
        (Err(missing), None),
        // Of a ramfs, which never fills up.
        (Ok(None), Some(false)),
    ] {
        let bytes = Threshold::hard(Signal::NodefsAvailable, bytes(GI));
        let facts = Facts { node_fs, ..Facts::example() };
        let got = first_pass(&[&default_thresholds()[..], &[bytes]].concat(), &facts);
        assert_eq!(got, Pressures { disk, ..NONE }, "{:?}", facts.node_fs);
        // The same of the images, while the node's file system has room.
        let facts = Facts { image_fs: Some(facts.node_fs), ..Facts::example() };
        let got = first_pass(&default_thresholds(), &facts);
        assert_eq!(got, Pressures { disk, ..NONE }, "{:?}", facts.image_fs);
    }
}

/// cri_stats_provider.go ImageFsStats: imagefs is the file system of the runtime's images, and the
/// node's where there is no runtime.
#[test]
fn imagefs_is_the_file_system_of_the_images() {
    let with = |free| FsStats {
        capacity_bytes: 100,
        available_bytes: free,
        inodes: 100,
        inodes_free: free,
        ..FsStats::default()
    };
    let (full, empty) = (Some(with(1)), Some(with(99)));
    for (signal, node_fs, image_fs, want) in [
        (Signal::ImagefsAvailable, empty, Some(Ok(full)), DISK),
        (Signal::ImagefsInodesFree, empty, Some(Ok(full)), DISK),
        (Signal::ImagefsAvailable, full, Some(Ok(empty)), NONE),
        (Signal::ImagefsAvailable, full, None, DISK),
        // Its error is not replaced by another file system.
        (Signal::ImagefsAvailable, full, Some(unread()), Pressures { disk: None, ..NONE }),
        (Signal::NodefsAvailable, full, Some(Ok(empty)), DISK),
        (Signal::NodefsInodesFree, empty, Some(Ok(full)), NONE),
    ] {
        let threshold =
            default_thresholds().into_iter().find(|threshold| threshold.signal == signal).unwrap();
        let facts = Facts { node_fs: Ok(node_fs), image_fs: image_fs.clone(), ..Facts::example() };
        let got = first_pass(&[threshold], &facts);
        assert_eq!(got, want, "{signal:?} {image_fs:?}");
    }
}
