//! The edges of each rule: one below, at, one above; first seen, debounce, clearing; a source that
//! vanishes or cannot be read.

use super::*;

fn ext4(count: u64) -> Filesystem {
    Filesystem {
        number: "179:2".to_owned(),
        device: "mmcblk0p2".to_owned(),
        fs_type: "ext4".to_owned(),
        point: "/".to_owned(),
        ext4: Some(Ok(Ext4Errors {
            count,
            last: WALL - 100,
            stops_on_error: true,
            booted: Some(WALL - 1000),
        })),
        ..Filesystem::default()
    }
}

fn vfat(is_read_only: bool) -> Filesystem {
    Filesystem {
        number: "179:1".to_owned(),
        device: "mmcblk0p1".to_owned(),
        fs_type: "vfat".to_owned(),
        point: "/boot".to_owned(),
        is_read_only,
        ..Filesystem::default()
    }
}

fn mounted(filesystems: &[Filesystem]) -> HealthReading {
    HealthReading { filesystems: Some(Ok(filesystems.to_vec())), ..HealthReading::default() }
}

fn with_errors(change: impl FnOnce(&mut Ext4Errors)) -> HealthReading {
    let mut fs = ext4(1);
    change(fs.ext4.as_mut().unwrap().as_mut().unwrap());
    mounted(&[fs])
}

#[test]
fn an_ext4_error_of_this_boot_makes_it_read_only() {
    let now = WALL;
    for (name, look, want) in [
        ("no error", mounted(&[ext4(0)]), "False"),
        ("an error", with_errors(|_| {}), "FilesystemIsReadOnly"),
        ("at boot", with_errors(|e| e.last = now - 1000), "FilesystemIsReadOnly"),
        ("before boot", with_errors(|e| e.last = now - 1001), "False"),
        ("60 s ahead", with_errors(|e| e.last = now + 60), "FilesystemIsReadOnly"),
        ("61 s ahead", with_errors(|e| e.last = now + 61), "False"),
        ("never", with_errors(|e| e.last = 0), "False"),
        ("unknown boot", with_errors(|e| e.booted = None), "False"),
        ("errors=continue", with_errors(|e| e.stops_on_error = false), "False"),
    ] {
        let mut board = Board::new();
        board.look(0, &look);
        assert_eq!(board.state("ReadonlyFilesystem"), want, "{name}");
    }
    let mut board = Board::new();
    board.look(0, &with_errors(|_| {}));
    assert_eq!(board.message("ReadonlyFilesystem"), "mmcblk0p2 (ext4 at /) stopped taking writes");
    // Cleared 60 s after fsck or an unmount.
    board.look(60, &mounted(&[ext4(0)]));
    board.ends("ReadonlyFilesystem", 60, &mounted(&[ext4(0)]));
}

/// A board without an RTC stamps the error with 1970.
#[test]
fn an_ext4_error_that_is_seen_to_grow_needs_no_time() {
    let stamped = |count| {
        with_errors(|errors| {
            errors.count = count;
            errors.last = 41;
        })
    };
    let mut board = Board::new();
    board.look(0, &stamped(3));
    board.look(60, &stamped(3));
    assert_eq!(board.state("ReadonlyFilesystem"), "False");
    board.look(60, &stamped(4));
    assert_eq!(board.state("ReadonlyFilesystem"), "FilesystemIsReadOnly");
    assert_eq!(reasons(board.health.take_events()), ["Ext4Error"]);
    // It stays, though it does not grow any more.
    board.look(600, &stamped(4));
    board.look(600, &stamped(4));
    assert_eq!(board.state("ReadonlyFilesystem"), "FilesystemIsReadOnly");
}

#[test]
fn another_file_system_that_turns_read_only_counts_after_60_s() {
    let mut board = Board::new();
    board.look(0, &mounted(&[vfat(false), ext4(0)]));
    board.look(60, &mounted(&[vfat(true), ext4(0)]));
    board.look(59, &mounted(&[vfat(true), ext4(0)]));
    assert_eq!(board.state("ReadonlyFilesystem"), "False");
    board.look(1, &mounted(&[vfat(true), ext4(0)]));
    assert_eq!(board.state("ReadonlyFilesystem"), "FilesystemIsReadOnly");

    let in_fstab = Filesystem { is_read_only_in_fstab: true, ..vfat(true) };
    let remounted = Filesystem { is_read_only: true, ..ext4(0) };
    for (name, before, after, want) in [
        ("ro in fstab", vfat(false), in_fstab, "none"),
        ("ro from the start", vfat(true), vfat(true), "none"),
        ("ext4 without an error", ext4(0), remounted, "none"),
        ("rw", vfat(false), vfat(false), "False"),
    ] {
        let mut board = Board::new();
        board.look(0, &mounted(&[before]));
        for _ in 0..5 {
            board.look(60, &mounted(std::slice::from_ref(&after)));
        }
        assert_eq!(board.state("ReadonlyFilesystem"), want, "{name}");
    }
    // The next process knows it by the condition; another one that is read-only is not meant.
    let other = |point: &str| Filesystem {
        number: "8:1".to_owned(),
        device: "sda1".to_owned(),
        point: point.to_owned(),
        ..vfat(true)
    };
    let told = json!({"type": "ReadonlyFilesystem", "status": "True",
        "reason": "FilesystemIsReadOnly",
        "message": "mmcblk0p1 (vfat at /boot) stopped taking writes, and 1 more"});
    for (name, mounted_now, want) in [
        ("the same", vec![vfat(true)], "FilesystemIsReadOnly"),
        ("beside a writable one", vec![vfat(true), ext4(0)], "FilesystemIsReadOnly"),
        ("written again", vec![vfat(false)], "False"),
        ("another one", vec![other("/boot"), ext4(0)], "False"),
    ] {
        let mut next = Board::new();
        next.health.on_node(std::slice::from_ref(&told));
        for second in [0, 60, 60, 600] {
            next.look(second, &mounted(&mounted_now));
        }
        assert_eq!(next.state("ReadonlyFilesystem"), want, "{name}");
    }
    // An unmounted file system is forgotten: the next medium may be read-only by design.
    let mut board = Board::new();
    board.look(0, &mounted(&[vfat(false), ext4(0)]));
    board.look(60, &mounted(&[ext4(0)]));
    for _ in 0..5 {
        board.look(60, &mounted(&[vfat(true), ext4(0)]));
    }
    assert_eq!(board.state("ReadonlyFilesystem"), "False");
}

#[test]
fn a_superblock_that_stopped_counts_at_once() {
    let stopped = Filesystem { is_stopped: true, ..vfat(false) };
    let mut board = Board::new();
    board.look(0, &mounted(std::slice::from_ref(&stopped)));
    assert_eq!(board.state("ReadonlyFilesystem"), "FilesystemIsReadOnly");
    let mut second = stopped.clone();
    second.number = "8:1".to_owned();
    board.look(60, &mounted(&[stopped, second]));
    assert_eq!(
        board.message("ReadonlyFilesystem"),
        "mmcblk0p1 (vfat at /boot) stopped taking writes, and 1 more"
    );
    board.look(60, &HealthReading::default());
    assert_eq!(board.state("ReadonlyFilesystem"), "none", "unmounted");
    let mut board = Board::new();
    let unreadable = HealthReading { filesystems: unread(), ..HealthReading::default() };
    board.look(0, &unreadable);
    assert_eq!(board.state("ReadonlyFilesystem"), "none");
}

#[test]
fn errors_on_record_are_corruption_until_fsck() {
    let kind = "FilesystemCorruptionProblem";
    let mut board = Board::new();
    for (count, text) in [
        (0, ""),
        (1, "1 error"),
        (2, "2 to 9 errors"),
        (9, "2 to 9 errors"),
        (10, "10 or more errors"),
        // fsck ran, and new ones followed within a minute.
        (5, "2 to 9 errors"),
        (0, ""),
        (3, "2 to 9 errors"),
    ] {
        board.look(60, &mounted(&[ext4(count)]));
        let want = match text {
            "" => String::new(),
            text => format!("mmcblk0p2 (ext4 at /) has {text} on record"),
        };
        assert_eq!(board.message(kind), want);
    }
    let damage = |count| Damage { device: "sda1".to_owned(), fs_type: "btrfs", count };
    for (damages, want) in [
        (vec![], "none"),
        (vec![damage(Ok(0))], "False"),
        (vec![damage(Ok(1))], "FilesystemCorruptionDetected"),
        (vec![damage(Err(Unread::new("x", "y")))], "none"),
        (vec![damage(Err(Unread::new("x", "y"))), damage(Ok(0))], "False"),
    ] {
        let mut board = Board::new();
        let look = HealthReading { damages, ..mounted(&[vfat(false)]) };
        board.look(0, &look);
        assert_eq!(board.state(kind), want, "{look:?}");
    }
}

fn emmc(life: u64, pre_eol: u64) -> Wear {
    Wear::Emmc { device: "mmcblk2".to_owned(), life, pre_eol }
}

fn worn(discovery: u64, wear: &[Wear]) -> HealthReading {
    HealthReading { discovery, wear: Some(Ok(wear.to_vec())), ..HealthReading::default() }
}

#[test]
fn wear_has_two_levels() {
    for (life, pre_eol, want) in [
        (1, 0, "False"),
        (9, 1, "False"),
        (10, 1, "StorageLifeNearlyUsed"),
        (11, 1, "StorageLifeExceeded"),
        (0, 1, "False"),
        (0, 2, "StorageLifeNearlyUsed"),
        (1, 3, "StorageLifeExceeded"),
    ] {
        let mut board = Board::new();
        board.look(0, &worn(1, &[emmc(life, pre_eol)]));
        assert_eq!(board.state("StorageWornOut"), want, "{life} {pre_eol}");
    }
    let mut board = Board::new();
    board.look(0, &worn(1, &[emmc(10, 0), emmc(11, 0)]));
    let message = "mmcblk2 is past its rated life, and 1 more";
    assert_eq!(board.message("StorageWornOut"), message);
}

#[test]
fn ubi_without_spares_counts_at_the_second_discovery() {
    let ubi = |is_spent| Wear::Ubi { device: "ubi0".to_owned(), is_spent };
    let mut board = Board::new();
    board.look(0, &worn(1, &[ubi(true)]));
    board.look(3000, &worn(1, &[ubi(true)]));
    assert_eq!(board.state("StorageWornOut"), "False");
    board.look(600, &worn(2, &[ubi(false)]));
    board.look(3600, &worn(3, &[ubi(true)]));
    assert_eq!(board.state("StorageWornOut"), "False");
    board.look(3600, &worn(4, &[ubi(true)]));
    assert_eq!(board.state("StorageWornOut"), "StorageSpareBlocksUsed");
}

fn voltage(alarm: bool, dips: u32) -> HealthReading {
    HealthReading { voltage: Some(Ok(Voltage { alarm, dips })), ..HealthReading::default() }
}

#[test]
fn under_voltage_is_four_looks_or_three_dips_in_ten_minutes() {
    let kind = "UnderVoltage";
    let mut board = Board::new();
    for _ in 0..3 {
        board.look(10, &voltage(true, 0));
    }
    assert_eq!(board.state(kind), "False");
    assert!(board.health.pace().is_fast);
    board.look(10, &voltage(true, 0));
    assert_eq!(board.state(kind), "UnderVoltageDetected");
    let slow = Pace { is_fast: false, wait_for_voltage: false };
    assert_eq!(board.health.pace(), slow);

    // Three looks, a pause, three looks.
    let mut board = Board::new();
    for alarm in [true, true, true, false, true, true, true] {
        board.look(10, &voltage(alarm, 0));
    }
    assert_eq!(board.state(kind), "False");

    for (second, third, want) in
        [(300, 300, "UnderVoltageDetected"), (300, 301, "False"), (0, 0, "UnderVoltageDetected")]
    {
        let mut board = Board::new();
        board.look(0, &voltage(false, 1));
        board.look(second, &voltage(false, 1));
        assert_eq!(board.state(kind), "False");
        board.look(third, &voltage(false, 1));
        assert_eq!(board.state(kind), want, "{second} {third}");
    }
    let mut board = Board::new();
    board.look(0, &voltage(false, u32::MAX));
    assert_eq!(board.state(kind), "UnderVoltageDetected");
    // False 60 min after the last dip.
    board.look(1000, &voltage(false, 0));
    board.look(1000, &voltage(false, 1));
    board.look(60, &voltage(false, 0));
    assert_eq!(board.state(kind), "UnderVoltageDetected");
    board.ends(kind, 3600, &voltage(false, 0));
}

#[test]
fn a_single_dip_is_an_event() {
    let mut board = Board::new();
    board.look(0, &voltage(false, 0));
    board.look(60, &voltage(false, 1));
    assert_eq!(reasons(board.health.take_events()), ["UnderVoltageDip"]);
    board.look(60, &voltage(false, 2));
    assert_eq!(reasons(board.health.take_events()), [] as [&str; 0]);
    board.look(1200, &voltage(false, 1));
    assert_eq!(reasons(board.health.take_events()), [] as [&str; 0], "it is True");
}

#[test]
fn two_equal_readings_with_a_change_in_between_hide_a_dip() {
    for (before, now, woken, want) in [
        (false, false, false, false),
        (false, true, false, true),
        (false, true, true, true),
        (true, false, false, false),
        (true, false, true, false),
        (true, true, false, false),
        (false, false, true, true),
        (true, true, true, true),
    ] {
        assert_eq!(is_dip(before, now, woken), want, "{before} {now} {woken}");
    }
}

fn zone(temp: i64, critical: Option<i64>, passive: Option<i64>) -> Zone {
    Zone { name: "soc".to_owned(), is_pi_cpu: false, temp: Some(temp), critical, passive }
}

fn pi(temp: i64, critical: Option<i64>) -> Zone {
    Zone { name: "cpu-thermal".to_owned(), is_pi_cpu: true, ..zone(temp, critical, None) }
}

fn hot(zone: Zone) -> HealthReading {
    warm(Heat { zones: vec![zone], ..Heat::default() })
}

fn warm(heat: Heat) -> HealthReading {
    HealthReading { heat: Some(Ok(heat)), ..HealthReading::default() }
}

fn after(looks: usize, reading: &HealthReading) -> Board {
    let mut board = Board::new();
    for _ in 0..looks {
        board.look(10, reading);
    }
    board
}

#[test]
fn a_zone_is_near_critical_within_5_degrees_or_half_of_the_way() {
    let near = "TemperatureNearCritical";
    for (zone, want) in [
        (zone(94_999, Some(100_000), None), "False"),
        (zone(95_000, Some(100_000), None), near),
        // i.MX93: passive 85, critical 90.
        (zone(87_499, Some(90_000), Some(85_000)), "False"),
        (zone(87_500, Some(90_000), Some(85_000)), near),
        (zone(94_999, Some(100_000), Some(80_000)), "False"),
        (zone(95_000, Some(100_000), Some(80_000)), near),
        // Without a critical trip nothing is near.
        (zone(150_000, None, Some(80_000)), "False"),
        // A filler in the device tree of old Raspberry Pis.
        (pi(79_000, Some(80_000)), "False"),
        (pi(84_999, Some(90_001)), "CPUThrottledByHeat"),
        (pi(85_001, Some(90_001)), near),
        (pi(79_999, Some(110_000)), "False"),
        (pi(80_000, Some(110_000)), "CPUThrottledByHeat"),
        (pi(80_000, None), "CPUThrottledByHeat"),
    ] {
        let board = after(6, &hot(zone.clone()));
        assert_eq!(board.state("ThermalThrottling"), want, "{zone:?}");
    }
    let board = after(4, &hot(zone(96_000, Some(100_000), None)));
    assert_eq!(board.message("ThermalThrottling"), "soc is close to its shutdown at 100 °C");
}

#[test]
fn four_of_the_last_six_looks_hold() {
    let kind = "ThermalThrottling";
    let (hot_look, cool) = (hot(pi(81_000, None)), hot(pi(70_000, None)));
    for (looks, want) in [
        (&[true, true, true][..], false),
        (&[true, true, true, true], true),
        (&[true, false, true, false, true, true], true),
        (&[true, false, false, true, false, true, true], false),
        (&[true, true, true, false, false, false, true], false),
    ] {
        let mut board = Board::new();
        for is_hot in looks {
            board.look(10, if *is_hot { &hot_look } else { &cool });
        }
        assert_eq!(board.state(kind) == "CPUThrottledByHeat", want, "{looks:?}");
    }
    // False 5 min after it fell below 75 °C.
    let mut board = after(4, &hot_look);
    board.look(10, &hot(pi(75_000, None)));
    board.look(600, &hot(pi(75_000, None)));
    board.look(10, &hot(pi(74_999, None)));
    assert_eq!(board.state(kind), "CPUThrottledByHeat");
    board.ends(kind, 300, &hot(pi(74_999, None)));
}

#[test]
fn looks_come_often_within_10_degrees_of_a_limit() {
    for (zone, want) in [
        (pi(69_999, None), false),
        (pi(70_000, None), true),
        (zone(84_999, Some(100_000), None), false),
        (zone(85_000, Some(100_000), None), true),
        (pi(89_000, Some(80_000)), false),
    ] {
        // The last one is True, so that nothing is left to find.
        let board = after(4, &hot(zone.clone()));
        assert_eq!(board.health.pace().is_fast, want, "{zone:?}");
    }
    let throttled = warm(Heat { coolers: vec![Cooler { state: 1, max: 9 }], ..Heat::default() });
    assert!(after(4, &throttled).health.pace().is_fast);
}

fn throttled(state: i64, cap: u64) -> HealthReading {
    warm(Heat {
        coolers: vec![Cooler { state, max: 8 }],
        policies: vec![policy("policy0", cap)],
        ..Heat::default()
    })
}

fn policy(name: &str, cap: u64) -> Policy {
    Policy { name: name.to_owned(), top: 2_000_000, cap }
}

#[test]
fn throttling_is_a_cap_of_75_percent_by_a_cooling_device() {
    let slow = "CPUThrottledByHeat";
    for (state, cap, want, text) in [
        (0, 1_000_000, "False", ""),
        (1, 1_500_001, "False", ""),
        (1, 1_500_000, slow, "75"),
        (1, 1_000_001, slow, "75"),
        (1, 1_000_000, slow, "50"),
        (1, 500_001, slow, "50"),
        (1, 500_000, slow, "25"),
    ] {
        let board = after(4, &throttled(state, cap));
        assert_eq!(board.state("ThermalThrottling"), want, "{state} {cap}");
        let message = match text {
            "" => String::new(),
            text => format!("heat holds the CPU below {text} % of its speed"),
        };
        assert_eq!(board.message("ThermalThrottling"), message);
    }
    // Without cpufreq the state decides, from a quarter on.
    for (state, want) in [(0, "False"), (1, "False"), (2, slow), (8, slow)] {
        let look = warm(Heat { coolers: vec![Cooler { state, max: 8 }], ..Heat::default() });
        assert_eq!(after(4, &look).state("ThermalThrottling"), want, "{state}");
    }
    // False 5 min after the cap rose above 80 %.
    let mut board = after(4, &throttled(1, 1_500_000));
    board.look(10, &throttled(1, 1_600_000));
    board.look(600, &throttled(1, 1_600_000));
    assert_eq!(board.state("ThermalThrottling"), slow);
    board.look(10, &throttled(1, 1_620_001));
    board.ends("ThermalThrottling", 300, &throttled(1, 1_620_001));
}

#[test]
fn a_cap_of_the_administrator_is_the_full_speed() {
    let mut board = Board::new();
    board.look(60, &throttled(0, 1_000_000));
    for _ in 0..6 {
        board.look(10, &throttled(1, 1_000_000));
    }
    assert_eq!(board.state("ThermalThrottling"), "False");
    for _ in 0..6 {
        board.look(10, &throttled(1, 750_000));
    }
    assert_eq!(board.state("ThermalThrottling"), "CPUThrottledByHeat");
}

/// A little core has less speed than a big one.
#[test]
fn a_cap_that_cannot_be_read_leaves_the_other_policies_theirs() {
    let look = |state, policies| {
        warm(Heat { coolers: vec![Cooler { state, max: 8 }], policies, ..Heat::default() })
    };
    let (big, little) = (policy("policy0", 2_000_000), policy("policy4", 1_000_000));
    let mut board = Board::new();
    board.look(60, &look(0, vec![big, little.clone()]));
    for _ in 0..6 {
        board.look(10, &look(1, vec![little.clone()]));
    }
    assert_eq!(board.state("ThermalThrottling"), "False");
}

#[test]
fn a_zone_that_cannot_be_read_is_no_problem() {
    let kind = "ThermalThrottling";
    let mut dead = pi(0, None);
    dead.temp = None;
    assert_eq!(after(4, &hot(dead.clone())).state(kind), "none");
    let mut board = after(4, &hot(pi(81_000, None)));
    board.look(60, &hot(dead.clone()));
    board.look(3599, &hot(dead.clone()));
    assert_eq!(board.state(kind), "CPUThrottledByHeat");
    board.look(1, &hot(dead));
    assert_eq!(board.state(kind), "none");
}

fn kernel(change: impl FnOnce(&mut Kernel)) -> HealthReading {
    let mut kernel = Kernel {
        soft_lockups: Some(5),
        rcu_stalls: Some(5),
        hung_tasks: Some(5),
        ..Kernel::default()
    };
    change(&mut kernel);
    HealthReading { kernel: Some(Ok(kernel)), ..HealthReading::default() }
}

#[test]
fn a_counter_that_grew_is_a_deadlock_for_ten_minutes() {
    let kind = "KernelDeadlock";
    let base = kernel(|_| {});
    for (look, want) in [
        (kernel(|k| k.soft_lockups = Some(6)), "SoftLockup"),
        (kernel(|k| k.rcu_stalls = Some(6)), "RCUStall"),
        (kernel(|k| k.hung_tasks = Some(6)), "TaskHung"),
        (kernel(|k| (k.soft_lockups, k.hung_tasks) = (Some(9), Some(9))), "SoftLockup"),
        (kernel(|k| k.oopses = 1), "KernelOops"),
        (kernel(|_| {}), "False"),
        // Reset, or no longer there.
        (kernel(|k| k.hung_tasks = Some(0)), "False"),
        (kernel(|k| k.hung_tasks = None), "False"),
    ] {
        let mut board = Board::new();
        board.look(0, &base);
        assert_eq!(board.state(kind), "False", "the first look is the baseline");
        board.look(60, &look);
        assert_eq!(board.state(kind), want);
        board.look(60, &look);
        board.look(599, &look);
        assert_eq!(board.state(kind), want);
        board.look(1, &look);
        let lasts = want == "KernelOops";
        assert_eq!(board.state(kind), if lasts { want } else { "False" });
    }
    // A fall is the new baseline.
    let mut board = Board::new();
    board.look(0, &base);
    board.look(60, &kernel(|k| k.hung_tasks = Some(0)));
    board.look(60, &kernel(|k| k.hung_tasks = Some(1)));
    assert_eq!(board.state(kind), "TaskHung");
}

#[test]
fn an_oops_before_the_first_look_counts_and_ends_with_the_boot() {
    let kind = "KernelDeadlock";
    let mut board = Board::new();
    board.look(0, &kernel(|k| k.oopses = 1));
    assert_eq!(board.state(kind), "KernelOops");
    assert_eq!(reasons(board.health.take_events()), [] as [&str; 0], "the change has one");
    // A further oops has an event of its own.
    board.look(600, &kernel(|k| k.oopses = 2));
    assert_eq!(reasons(board.health.take_events()), ["KernelOops"]);
    let mut next = Board::new();
    let ours = json!({"type": "KernelDeadlock", "status": "True", "reason": "KernelOops",
        "message": "the kernel has oopsed since boot"});
    next.health.on_node(&[ours]);
    assert_eq!(next.state(kind), "KernelOops");
    next.look(0, &kernel(|_| {}));
    assert_eq!(next.state(kind), "False");
}

#[test]
fn events_alone_have_no_condition() {
    let counters = |change: fn(&mut Counters)| {
        let mut counters =
            Counters { oom_kills: Some(3), memory_errors: Some(0), ..Counters::default() };
        change(&mut counters);
        HealthReading { counters, ..HealthReading::default() }
    };
    for (look, want) in [
        (counters(|c| c.oom_kills = Some(4)), &["OOMKilling"][..]),
        (counters(|c| c.memory_errors = Some(1)), &["MemoryReadError"]),
        (counters(|c| c.oom_kills = Some(2)), &[]),
        (counters(|c| c.oom_kills = None), &[]),
        (counters(|_| {}), &[]),
    ] {
        let mut board = Board::new();
        board.look(0, &counters(|_| {}));
        assert_eq!(reasons(board.health.take_events()), [] as [&str; 0]);
        board.look(60, &look);
        assert_eq!(reasons(board.health.take_events()), want);
    }
    let reset = counters(|c| c.watchdog_reset = true);
    let mut board = Board::new();
    board.look(0, &reset);
    assert_eq!(reasons(board.health.take_events()), ["WatchdogReset"]);
    // Once per boot: the history knows this one.
    let boots =
        Some(Boots { text: Some("1783000000 this\n".to_owned()), boot_id: "this".to_owned() });
    let mut board = Board::new();
    board.look(0, &HealthReading { boots, ..reset });
    assert_eq!(reasons(board.health.take_events()), [] as [&str; 0]);
}

#[test]
fn a_link_is_flapping_after_six_changes_in_ten_minutes() {
    let link = |changes| HealthReading {
        counters: Counters { links: vec![("eth0".to_owned(), changes)], ..Counters::default() },
        ..HealthReading::default()
    };
    let flaps = |looks: &[(u64, u64)]| {
        let mut board = Board::new();
        for (seconds, changes) in looks {
            board.look(*seconds, &link(*changes));
        }
        reasons(board.health.take_events()) == ["LinkFlapping"]
    };
    assert!(!flaps(&[(0, 100)]));
    assert!(!flaps(&[(0, 0), (60, 5)]));
    assert!(flaps(&[(0, 0), (60, 6)]));
    assert!(flaps(&[(0, 0), (60, 3), (600, 6)]));
    assert!(!flaps(&[(0, 0), (60, 3), (601, 6)]));
    // The interface was replaced by another one.
    assert!(!flaps(&[(0, 50), (60, 0), (60, 1)]));
}
