#![allow(clippy::disallowed_methods)]

use super::*;
use crate::health::tests::{FakeClock, at, health};
use crate::os::tree::Tree;
use crate::os::write::Disk;
use serde_json::json;

const ALARM: &str = "sys/class/hwmon/hwmon3/in0_lcrit_alarm";

struct Watch {
    health: Health,
    clock: FakeClock,
}

fn watch(tree: &Tree) -> Watch {
    let clock = FakeClock::default();
    Watch { health: health(tree, "all", &[], &clock), clock }
}

impl Watch {
    fn look(&mut self, seconds: u64) -> bool {
        self.clock.show(seconds);
        self.health.look()
    }

    /// A look whose second is over after so many questions for the time. Each read asks three
    /// times.
    fn cut_off_look(&mut self, seconds: u64, questions: u32) {
        let step = Duration::from_secs(1) / questions;
        self.clock.0.set((Duration::from_secs(seconds), step));
        assert!(self.health.look());
    }

    /// The status of the condition; `None` if there is none.
    fn status(&self, name: &str) -> Option<bool> {
        let known = self.health.conditions().known;
        known.iter().find(|found| found.name == name).map(|found| found.is_true)
    }
}

fn pi(name: &str) -> Tree {
    let tree = Tree::new(name);
    tree.write("proc/device-tree/compatible", b"raspberrypi,4-model-b\0brcm,bcm2711\0");
    tree.write("sys/class/hwmon/hwmon0/name", b"cpu_thermal\n");
    tree.write("sys/class/hwmon/hwmon3/name", b"rpi_volt\n");
    tree.write(ALARM, b"0\n");
    tree
}

#[test]
fn a_look_is_due_once_a_minute_or_every_10_seconds_while_a_source_is_suspect() {
    let tree = pi("health-pace");
    let mut watch = watch(&tree);
    assert!(watch.look(0));
    assert!(!watch.look(50));
    tree.write(ALARM, b"1\n");
    assert!(watch.look(60));
    assert!(!watch.look(65));
    tree.write(ALARM, b"0\n");
    assert!(watch.look(70));
    assert!(!watch.look(80));
    // A drop that the driver reported is looked at with the next status.
    tree.write(ALARM, b"1\n");
    watch.health.on_voltage();
    tree.write(ALARM, b"0\n");
    watch.health.on_voltage();
    assert!(watch.look(90));
    assert!(!watch.look(100));
    assert!(watch.health.voltage_descriptor().is_some());
}

/// A Raspberry Pi with twelve thermal zones.
fn pi_with_zones(name: &str) -> Tree {
    let tree = pi(name);
    tree.write("proc/sys/kernel/tainted", b"0\n");
    for zone in 0..12 {
        let folder = format!("sys/class/thermal/thermal_zone{zone}");
        for (file, bytes) in [
            ("type", "x"),
            ("temp", "40000"),
            ("trip_point_0_type", "critical"),
            ("trip_point_0_temp", "90000"),
        ] {
            tree.write(&format!("{folder}/{file}"), bytes.as_bytes());
        }
    }
    tree
}

#[test]
fn sensors_are_the_last_files_and_a_discovery_that_ends_early_is_repeated() {
    let tree = pi_with_zones("health-slow");
    let mut watch = watch(&tree);
    assert!(watch.look(0));
    assert_eq!(watch.status("KernelDeadlock"), Some(false));
    tree.write("proc/sys/kernel/tainted", b"128\n");
    watch.cut_off_look(60, 20);
    assert!(watch.health.reader.cut_off("").is_some());
    assert_eq!(watch.status("KernelDeadlock"), Some(true));
    watch.cut_off_look(3600, 20);
    assert_eq!(watch.health.discovered, None);
    for second in [3700, 3800] {
        assert!(watch.look(second));
        assert_eq!(watch.health.discovered, Some(at(3700).mono));
    }
}

#[test]
fn a_discovery_that_ends_early_deletes_no_condition() {
    let tree = pi_with_zones("health-cut-off");
    let mut watch = watch(&tree);
    assert!(watch.look(0));
    assert_eq!(watch.status("ThermalThrottling"), Some(false));
    watch.cut_off_look(3600, 2);
    assert_eq!(watch.status("ThermalThrottling"), Some(false));
}

#[test]
fn what_the_first_look_does_not_come_to_is_read_by_the_next_one() {
    let tree = pi_with_zones("health-first");
    tree.write("proc/device-tree/compatible", b"radxa,rock-4\0");
    tree.write("sys/class/watchdog/watchdog0/bootstatus", b"32\n");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    tree.write("proc/uptime", b"10.0 7.0\n");
    tree.write("var/lib/nodelet/boots", b"1 old\n");
    let mut watch = watch(&tree);
    watch.cut_off_look(0, 2);
    assert!(watch.health.take_signs().is_empty());
    watch.health.on_node(&[], Some("former"), false);
    assert!(watch.look(60));
    let signs = watch.health.take_signs();
    assert!(signs.iter().any(|(reason, _)| *reason == "WatchdogReset"), "{signs:?}");
    watch.health.on_date(at(60).wall, at(60).mono, at(60));
    assert!(watch.health.record_boot(at(60)).is_some());
}

/// The reasons of the events since the last call.
fn reasons(watch: &mut Watch) -> Vec<&'static str> {
    watch.health.take_signs().into_iter().map(|(reason, _)| reason).collect()
}

#[test]
fn a_reset_by_the_watchdog_is_one_event_of_its_boot_wherever_the_first_look_ends() {
    let tree = pi("health-reset");
    tree.write("proc/device-tree/compatible", b"radxa,rock-4\0");
    tree.write("sys/class/watchdog/watchdog0/bootstatus", b"32\n");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    // Whether the file `boots` can be written makes no difference.
    for (node, want) in [("former", &["WatchdogReset"][..]), ("", &["WatchdogReset"]), ("abc", &[])]
    {
        for questions in 1..150 {
            let mut watch = watch(&tree);
            watch.cut_off_look(0, questions);
            watch.look(60);
            assert_eq!(reasons(&mut watch), [""; 0], "the Node is not known");
            for (second, node) in [(120, node), (180, "abc")] {
                watch.health.on_node(&[], Some(node), second > 120);
                watch.look(second);
            }
            assert_eq!(reasons(&mut watch), want, "{questions} {node}");
        }
    }
}

/// The watchdog reset the board some boots ago, and each boot since was a kexec.
#[test]
fn kexec_is_no_reset_by_the_watchdog() {
    let tree = Tree::new("health-kexec");
    tree.write("proc/device-tree/compatible", b"radxa,rock-4\0");
    tree.write("proc/device-tree/chosen/linux,booted-from-kexec", b"");
    tree.write("sys/class/watchdog/watchdog0/bootstatus", b"32\n");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    for questions in 1..150 {
        let mut watch = watch(&tree);
        watch.cut_off_look(0, questions);
        watch.health.on_node(&[], Some("former"), false);
        watch.look(60);
        watch.look(120);
        assert_eq!(reasons(&mut watch), [""; 0], "{questions}");
    }
}

/// Its module is loaded after the first look, which is 0.1 s after the start.
#[test]
fn a_reset_by_a_watchdog_whose_driver_is_bound_later_is_one_event() {
    let tree = Tree::new("health-reset-late");
    tree.write("proc/device-tree/compatible", b"radxa,rock-4\0");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    for (is_told_before, want) in [(false, &["WatchdogReset"][..]), (true, &[])] {
        std::fs::remove_dir_all(tree.join("sys")).ok();
        tree.write(UEVENTS, b"701\n");
        let mut watch = watch(&tree);
        let node = if is_told_before { "abc" } else { "former" };
        watch.health.on_node(&[], Some(node), false);
        watch.look(0);
        tree.write("sys/class/watchdog/watchdog0/bootstatus", b"32\n");
        tree.write(UEVENTS, b"702\n");
        watch.health.on_node(&[], Some("abc"), true);
        watch.look(60);
        assert_eq!(reasons(&mut watch), want);
        tree.write(UEVENTS, b"703\n");
        watch.look(120);
        assert_eq!(reasons(&mut watch), [""; 0]);
    }
}

/// A webhook refuses the first writes of the status for hours.
#[test]
fn an_oops_of_a_former_boot_does_not_come_back_before_the_first_write() {
    let tree = Tree::new("health-former-oops");
    tree.write("proc/sys/kernel/tainted", b"0\n");
    let told = json!([{"type": "KernelDeadlock", "status": "True", "reason": "KernelOops",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
        "message": "the kernel has oopsed since boot"}]);
    let mut watch = watch(&tree);
    for second in [0, 10, 60, 70] {
        watch.health.on_node(told.as_array().unwrap(), Some("former"), false);
        watch.look(second);
        assert_eq!(watch.status("KernelDeadlock"), Some(false), "{second}");
    }
}

#[test]
fn a_look_that_ends_early_forgets_no_change_of_a_link() {
    let tree = pi_with_zones("health-links");
    let changes = |count: &str| {
        tree.write("sys/class/net/eth0/carrier_changes", count.as_bytes());
    };
    tree.write("sys/class/net/eth0/device/x", b"");
    // The look at 3600 is also a discovery.
    for start in [60, 3360] {
        let mut watch = watch(&tree);
        changes("0");
        watch.look(0);
        watch.look(start);
        changes("5");
        watch.look(start + 60);
        watch.cut_off_look(start + 240, 2);
        changes("6");
        assert_eq!(reasons(&mut watch), [] as [&str; 0]);
        watch.look(start + 300);
        assert_eq!(reasons(&mut watch), ["LinkFlapping"], "{start}");
    }
}

/// A board whose root stopped at an error of ext4, and is named `/dev/root`.
fn with_ext4_error(name: &str) -> Tree {
    let tree = pi(name);
    for (path, text) in [
        ("proc/self/mountinfo", "1 0 179:2 / / rw - ext4 /dev/root rw,errors=remount-ro\n"),
        ("sys/dev/block/179:2/uevent", "MAJOR=179\nDEVNAME=mmcblk0p2\n"),
        ("sys/fs/ext4/mmcblk0p2/errors_count", "1\n"),
        ("sys/fs/ext4/mmcblk0p2/last_error_time", "1782999900\n"),
        ("proc/stat", "btime 1782999000\n"),
    ] {
        tree.write(path, text.as_bytes());
    }
    tree
}

#[test]
fn two_looks_that_end_early_end_no_condition_of_a_file_system() {
    let tree = with_ext4_error("health-ext4");
    for questions in 1..150 {
        let mut watch = watch(&tree);
        watch.look(0);
        // The table of mounts is read again.
        for second in [300, 360] {
            watch.cut_off_look(second, questions);
            for name in ["FilesystemCorruptionProblem", "ReadonlyFilesystem"] {
                assert_eq!(watch.status(name), Some(true), "{name} {second} {questions}");
            }
        }
    }
}

/// The driver of the alarm is bound.
fn bind(tree: &Tree, alarm: &str) {
    for (file, bytes) in [("name", "rpi_volt"), ("in0_lcrit_alarm", alarm)] {
        tree.write(&format!("sys/class/hwmon/hwmon0/{file}"), bytes.as_bytes());
    }
}

#[test]
fn a_source_is_found_at_the_next_discovery_or_after_a_uevent() {
    let tree = Tree::new("health-uevent");
    tree.write(UEVENTS, b"700\n");
    let mut watch_it = watch(&tree);
    watch_it.look(0);
    bind(&tree, "0");
    watch_it.look(60);
    assert_eq!(watch_it.status("UnderVoltage"), None);
    tree.write(UEVENTS, b"702\n");
    watch_it.look(120);
    assert_eq!(watch_it.status("UnderVoltage"), Some(false));

    let tree = Tree::new("health-discovery");
    let mut watch = watch(&tree);
    watch.look(0);
    bind(&tree, "0");
    watch.look(3599);
    assert_eq!(watch.status("UnderVoltage"), None);
    watch.look(3600 + 60);
    assert_eq!(watch.status("UnderVoltage"), Some(false));
    // Its driver is bound again, and gets another number.
    std::fs::rename(tree.join("sys/class/hwmon/hwmon0"), tree.join("sys/class/hwmon/hwmon1"))
        .unwrap();
    watch.look(7300);
    let sources = watch.health.sources(&voltage::KIND);
    assert_eq!(sources, ["sys/class/hwmon/hwmon1/in0_lcrit_alarm is 0"]);
}

/// A board after a brown-out, whose agent starts before the driver: the True of the last boot.
fn with_old_problem(tree: &Tree) -> Watch {
    let mut watch = watch(tree);
    watch.look(0);
    let old = json!([{"type": "Ready"}, {"type": "UnderVoltage", "status": "True",
        "reason": "UnderVoltageDetected"}]);
    watch.health.on_node(old.as_array().unwrap(), Some("former"), false);
    watch
}

#[test]
fn only_a_look_at_all_that_there_is_shows_that_a_source_is_missing() {
    let tree = Tree::new("health-late");
    let mut watch = with_old_problem(&tree);
    for (second, want) in [(60, Some(true)), (119, Some(true)), (180, None)] {
        watch.look(second);
        assert_eq!(watch.status("UnderVoltage"), want, "{second}");
    }
    // The name of the driver, which is no file here, or the alarm cannot be read.
    for file in ["name", "in0_lcrit_alarm"] {
        let tree = Tree::new("health-unread-driver");
        bind(&tree, "0");
        let path = tree.join("sys/class/hwmon/hwmon0").join(file);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let mut watch = with_old_problem(&tree);
        for second in [60, 120, 180, 3500] {
            watch.look(second);
            assert_eq!(watch.status("UnderVoltage"), Some(true), "{file} {second}");
        }
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        watch.look(3660);
        assert!(!watch.health.sources(&voltage::KIND).is_empty(), "{file}");
        watch.look(3720);
        watch.look(3660 + 3600);
        assert_eq!(watch.status("UnderVoltage"), Some(false), "{file}");
    }
}

/// The disk with the errors is checked, and then mounted, after the root was looked at.
#[test]
fn a_reboot_ends_no_corruption_of_a_disk_that_is_mounted_after_the_first_look() {
    let tree = Tree::new("health-late-disk");
    let root = "1 0 179:1 / / rw - ext4 /dev/mmcblk0p1 rw\n";
    let disk = "2 0 8:1 / /data rw - ext4 /dev/sda1 rw\n";
    for (number, name, errors) in [("179:1", "mmcblk0p1", "0\n"), ("8:1", "sda1", "3\n")] {
        let uevent = format!("DEVNAME={name}\n");
        tree.write(&format!("sys/dev/block/{number}/uevent"), uevent.as_bytes());
        tree.write(&format!("sys/fs/ext4/{name}/errors_count"), errors.as_bytes());
    }
    for (mounted, want) in [(Some(60), true), (None, false)] {
        tree.write("proc/self/mountinfo", root.as_bytes());
        let mut watch = watch(&tree);
        let told = json!([{"type": "FilesystemCorruptionProblem", "status": "True",
            "reason": "FilesystemCorruptionDetected", "message": "sda1 (ext4 at /data) has 2 to 9 \
            errors on record"}]);
        watch.health.on_node(told.as_array().unwrap(), Some("former"), false);
        for second in [0, 60, 119, 360] {
            if mounted == Some(second) {
                tree.write("proc/self/mountinfo", [root, disk].concat().as_bytes());
            }
            watch.look(second);
            let is_true = want || second < 120;
            assert_eq!(watch.status("FilesystemCorruptionProblem"), Some(is_true), "{second}");
        }
    }
}

/// The folder exists also without its disk.
#[test]
fn a_reboot_ends_no_frequent_reboots_whose_boots_are_on_a_disk_that_is_mounted_late() {
    let (own, old) = (at(0).wall.seconds() - 10, at(0).wall.seconds() - 300);
    for is_mounted in [true, false] {
        let tree = Tree::new("health-late-boots");
        tree.write("proc/sys/kernel/random/boot_id", b"own\n");
        tree.write("proc/uptime", b"10.0 7.0\n");
        tree.write(UEVENTS, b"700\n");
        std::fs::create_dir_all(tree.join("var/lib/nodelet")).unwrap();
        let mut watch = watch(&tree);
        let told = json!([{"type": "FrequentReboot", "status": "True",
            "reason": "FrequentReboot", "message": "3 boots in an hour without an orderly stop"}]);
        watch.health.on_node(told.as_array().unwrap(), Some("former"), false);
        let record = |health: &mut Health, second| {
            health.on_date(at(second).wall, at(second).mono, at(second));
            let ops = health.record_boot(at(second));
            let written = ops.map(|ops| Disk::default().carry_out(ops));
            written.into_iter().for_each(|written| health.on_boot_recorded(written));
        };
        watch.look(0);
        record(&mut watch.health, 1);
        assert_eq!(watch.status("FrequentReboot"), Some(true));
        if is_mounted {
            tree.write(UEVENTS, b"702\n");
            let lines = [0, 1, 2].map(|number| format!("{} id{number}\n", old + number));
            tree.write("var/lib/nodelet/boots", lines.concat().as_bytes());
        }
        watch.look(60);
        tree.write("proc/uptime", b"70.0 7.0\n");
        record(&mut watch.health, 61);
        assert_eq!(watch.status("FrequentReboot"), Some(true));
        let text = std::fs::read_to_string(tree.join("var/lib/nodelet/boots")).unwrap();
        assert!(text.ends_with(&format!("{own} own\n")), "{text}");
        watch.look(180);
        assert_eq!(watch.status("FrequentReboot"), Some(is_mounted));
    }
}

/// It waits for a passphrase.
#[test]
fn an_agent_in_an_initramfs_deletes_nothing() {
    let tree = Tree::new("health-initramfs");
    let mut watch = with_old_problem(&tree);
    watch.health.discovered = Some(at(0).mono);
    watch.health.reader.is_initramfs = true;
    for second in [60, 180, 7200] {
        watch.clock.show(second);
        watch.health.judge(true, at(second));
        assert_eq!(watch.status("UnderVoltage"), Some(true), "{second}");
    }
}

#[test]
fn the_files_of_an_excluded_type_are_not_read() {
    let tree = with_ext4_error("health-excluded");
    tree.write("var/lib/nodelet/boots", b"1 old\n");
    for kind in KINDS {
        let mut health = health(&tree, &format!("all,-{}", kind.name), &[], &FakeClock::default());
        health.look();
        let is_read = kind.name == filesystems::KIND.name;
        let has_source = health
            .conditions
            .iter()
            .any(|condition| condition.kind.name == kind.name && condition.source.is_some());
        assert_eq!(has_source, is_read, "{}", kind.name);
        assert_eq!(health.time.history.exists.is_none(), kind.name == REBOOTS.name);
    }
}

#[test]
fn a_spent_ubi_on_a_root_that_can_block_is_found_by_its_only_discovery() {
    let tree = Tree::new("health-ubi-network-root");
    for (path, text) in [
        ("sys/class/ubi/ubi0/mtd_num", "3"),
        ("sys/class/ubi/ubi0/reserved_for_bad", "0"),
        ("sys/class/mtd/mtd3/type", "nand"),
    ] {
        tree.write(path, text.as_bytes());
    }
    let mut watch = watch(&tree);
    watch.health.reader.root_can_block = true;
    assert!(watch.look(0));
    assert_eq!(watch.status("StorageWornOut"), Some(true));
}

#[test]
fn wear_data_that_are_gone_or_unread() {
    let tree = Tree::new("health-wear");
    for (file, bytes) in [("type", "MMC"), ("life_time", "0x03 0x0b")] {
        tree.write(&format!("sys/block/mmcblk0/device/{file}"), bytes.as_bytes());
    }
    // The boot partitions are the same device.
    tree.write("sys/block/mmcblk0boot0/device/type", b"MMC");
    let mut watch = watch(&tree);
    watch.look(0);
    assert_eq!(watch.status("StorageWornOut"), Some(true));
    let life = tree.join("sys/block/mmcblk0/device/life_time");
    std::fs::remove_file(&life).unwrap();
    std::fs::create_dir(&life).unwrap();
    for (second, want) in [(3600, Some(true)), (7100, Some(true)), (7200, None)] {
        watch.look(second);
        assert_eq!(watch.status("StorageWornOut"), want, "{second}");
    }
    std::fs::remove_dir(&life).unwrap();
    std::fs::write(&life, "0x0b 0x0b").unwrap();
    watch.look(7300);
    assert_eq!(watch.status("StorageWornOut"), Some(true));
    std::fs::remove_dir_all(tree.join("sys/block")).unwrap();
    watch.look(7300 + 3600);
    assert_eq!(watch.status("StorageWornOut"), None);
}

#[test]
fn boots_are_written_once_where_they_are_read_and_to_no_missing_folder() {
    let tree = Tree::new("health-boots");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    tree.write("proc/uptime", b"10.0 7.0\n");
    let record = || {
        let mut watch = watch(&tree);
        watch.look(0);
        assert!(watch.health.record_boot(at(1)).is_none(), "the clock may be wrong");
        watch.health.on_date(at(1).wall, at(1).mono, at(1));
        let ops = watch.health.record_boot(at(1));
        assert!(watch.health.record_boot(at(2)).is_none());
        ops
    };
    assert_eq!(record(), None, "no such folder");
    std::fs::create_dir_all(tree.join("var/lib/nodelet")).unwrap();
    let written = record().map(|ops| Disk::default().carry_out(ops));
    assert_eq!(written, Some(Ok(())));
    let text = std::fs::read_to_string(tree.join("var/lib/nodelet/boots")).unwrap();
    assert_eq!(text, format!("{} abc\n", at(0).wall.seconds() - 10));
    assert_eq!(record(), None);
}

/// On a full disk, or a card that cannot be read for a moment.
#[test]
fn boots_are_read_and_written_again_until_that_succeeds() {
    let tree = Tree::new("health-boots-again");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    tree.write("proc/uptime", b"10.0 7.0\n");
    let boots = tree.join("var/lib/nodelet/boots");
    std::fs::create_dir_all(&boots).unwrap();
    let mut watch = watch(&tree);
    let mut record = |second| {
        watch.look(second);
        watch.health.on_date(at(second).wall, at(second).mono, at(second));
        let ops = watch.health.record_boot(at(second));
        assert!(watch.health.record_boot(at(second)).is_none());
        ops.map(|ops| {
            let result = Disk::default().carry_out(ops);
            watch.health.on_boot_recorded(result.clone());
            assert!(watch.health.record_boot(at(second)).is_none(), "once for each look");
            result.is_ok()
        })
    };
    assert_eq!(record(0), None, "it cannot be read");
    std::fs::remove_dir(&boots).unwrap();
    tree.write("var/lib/nodelet/boots", b"1 old\n");
    // What takes the place of the new file.
    let in_the_way = tree.join("var/lib/nodelet/boots.new");
    std::fs::create_dir_all(in_the_way.join("x")).unwrap();
    assert_eq!([record(60), record(120)], [Some(false); 2]);
    std::fs::remove_dir_all(in_the_way).unwrap();
    assert_eq!([record(180), record(240)], [Some(true), None]);
    let text = std::fs::read_to_string(&boots).unwrap();
    assert_eq!(text, format!("1 old\n{} abc\n", at(60).wall.seconds() - 10));
}

#[test]
fn a_condition_file_gives_its_first_line() {
    let tree = Tree::new("health-files");
    tree.write("two", b"OnBattery: 20 %\nmore");
    tree.write("empty", b"");
    tree.write("latin1", b"caf\xe9");
    std::fs::create_dir(tree.join("folder")).unwrap();
    let names = ["two", "empty", "latin1", "folder", "missing"];
    let items: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(number, name)| format!("T{number}={}", tree.join(name).display()))
        .collect();
    let mut health = health(&tree, "none", &items, &FakeClock::default());
    health.read_files();
    let lines = health.files.iter().map(|line| line.found().map(String::as_str));
    let lines: Vec<Option<&str>> = lines.collect();
    let want = [Some("OnBattery: 20 %"), Some(""), Some("caf\u{fffd}"), Some(""), None];
    assert_eq!(lines, want);
    assert!(!health.look(), "none looks at nothing");
}

#[test]
fn a_condition_file_that_cannot_be_read_keeps_its_line() {
    let tree = Tree::new("health-file-unread");
    let path = tree.join("ups");
    let flag = format!("Ups={}", path.display());
    let mut health = health(&tree, "none", &[flag], &FakeClock::default());
    // Its address 0 is not mapped: EIO.
    let unread = || std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
    unread();
    health.read_files();
    assert!(health.files[0].is_unread(), "{:?}", health.files);
    let why = health.files_log.last_error().unwrap();
    assert!(why.starts_with(&format!("Ups={}: ", path.display())), "{why}");
    std::fs::remove_file(&path).unwrap();
    tree.write("ups", b"OnBattery: 20 %");
    health.read_files();
    assert_eq!(health.files_log.last_error(), None);
    std::fs::remove_file(&path).unwrap();
    unread();
    health.read_files();
    assert_eq!(health.files[0].found().map(String::as_str), Some("OnBattery: 20 %"));
}

/// A condition of a Node that was written in this boot may have an older time: the clock was set
/// after it began, or the agent of an initramfs kept what the last boot left. It stays while the
/// file system is read-only. The Node is known before the id of the boot is read, at the latest
/// with the next look.
#[test]
fn a_condition_is_of_a_former_boot_if_the_node_was_written_in_that() {
    let tree = Tree::new("health-of-this-boot");
    tree.write("proc/uptime", b"100.0 7.0\n");
    let mounts = |boot: &str| {
        format!(
            "1 0 179:1 / /boot rw - vfat /dev/mmcblk0p1 {boot}\n\
             2 0 179:2 / / rw - xfs /dev/mmcblk0p2 rw\n"
        )
    };
    tree.write("proc/self/mountinfo", mounts("ro").as_bytes());
    tree.write("sys/dev/block/179:1/uevent", b"DEVNAME=mmcblk0p1\n");
    let id = tree.path().join("proc/sys/kernel/random/boot_id");
    for (own, node, seconds, want) in [
        ("abc", "abc", 50, true),
        ("abc", "abc", 150, true),
        ("abc", "former", 50, false),
        ("abc", "", 50, true),
        ("", "abc", 50, true),
    ] {
        for is_readable in [true, false] {
            let mut watch = watch(&tree);
            std::fs::remove_file(&id).ok();
            match is_readable {
                true => tree.write("proc/sys/kernel/random/boot_id", own.as_bytes()),
                false => std::fs::create_dir_all(&id).unwrap(),
            }
            let since = at(0).wall.before(Duration::from_secs(seconds)).time();
            let told = json!([{"type": "ReadonlyFilesystem", "status": "True",
                "reason": "FilesystemIsReadOnly", "lastTransitionTime": since,
                "message": "mmcblk0p1 (vfat at /boot) stopped taking writes"}]);
            watch.health.on_node(told.as_array().unwrap(), Some(node), false);
            tree.write("proc/uptime", b"100.0 7.0\n");
            watch.look(0);
            assert_eq!(watch.status("ReadonlyFilesystem"), Some(true));
            if !is_readable {
                std::fs::remove_dir(&id).unwrap();
                tree.write("proc/sys/kernel/random/boot_id", own.as_bytes());
            }
            for second in [60, 120, 180] {
                tree.write("proc/uptime", format!("{}.0 7.0\n", 100 + second).as_bytes());
                watch.look(second);
            }
            assert_eq!(watch.status("ReadonlyFilesystem"), Some(want), "{own} {node} {seconds}");
            tree.write("proc/self/mountinfo", mounts("rw").as_bytes());
            for second in [500, 560, 620] {
                tree.write("proc/uptime", format!("{}.0 7.0\n", 100 + second).as_bytes());
                watch.look(second);
            }
            assert_eq!(watch.status("ReadonlyFilesystem"), Some(false));
            tree.write("proc/self/mountinfo", mounts("ro").as_bytes());
        }
    }
}
