#![allow(clippy::disallowed_methods)]

use std::cell::Cell;

use super::*;
use crate::core::instant::Mono;
use crate::core::problems::look::{Timesync, Voltage};
use crate::files::tree::Tree;

const FAST_PACE: Pace = Pace {
    is_fast: true,
    wait_for_voltage: true,
};
const SLOW_PACE: Pace = Pace {
    is_fast: false,
    wait_for_voltage: true,
};

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

fn watch(tree: &Tree) -> Watch {
    let host = Host::new(super::super::HostRoot::new(tree.path()), "/var/lib/nodelet");
    Watch::new(&host, &Config::parse("all", &[]).unwrap())
}

fn look(watch: &mut Watch, seconds: u64) -> Look {
    watch.look(FAST_PACE, &|| at(seconds)).unwrap()
}

fn pi(name: &str) -> Tree {
    let tree = Tree::new(name);
    tree.write(
        "proc/device-tree/compatible",
        b"raspberrypi,4-model-b\0brcm,bcm2711\0",
    );
    tree.write("sys/class/hwmon/hwmon0/name", b"cpu_thermal\n");
    tree.write("sys/class/hwmon/hwmon3/name", b"rpi_volt\n");
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"0\n");
    tree
}

#[test]
fn a_look_is_due_once_a_minute_or_every_10_seconds_while_a_source_is_suspect() {
    let tree = pi("problems-pace");
    let mut watch = watch(&tree);
    let mut is_due = |pace, seconds| watch.look(pace, &|| at(seconds)).is_some();
    assert!(is_due(SLOW_PACE, 0));
    assert!(!is_due(SLOW_PACE, 50));
    assert!(is_due(SLOW_PACE, 60));
    assert!(!is_due(FAST_PACE, 65));
    assert!(is_due(FAST_PACE, 70));
    // A drop that the driver reported is looked at with the next status.
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"1\n");
    watch.on_voltage(&|| at(75));
    let found = watch.look(SLOW_PACE, &|| at(80)).unwrap();
    let voltage = Voltage {
        alarm: true,
        dips: 1,
    };
    assert_eq!(found.voltage, Some(Ok(voltage)));
    assert!(watch.look(SLOW_PACE, &|| at(90)).is_none());
}

#[test]
fn the_first_reading_of_the_alarm_is_the_baseline() {
    let tree = pi("problems-alarm");
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"1\n");
    let mut watch = watch(&tree);
    for (seconds, bytes, want) in [
        (0, "1", (true, 0)),
        (10, "0", (false, 0)),
        (20, "1", (true, 1)),
    ] {
        tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", bytes.as_bytes());
        let Some(Ok(voltage)) = look(&mut watch, seconds).voltage else {
            panic!("no voltage");
        };
        assert_eq!((voltage.alarm, voltage.dips), want, "{seconds}");
    }
    assert!(watch.voltage_descriptor().is_some());
    for (seconds, garbage) in [(40, ""), (50, "N/A"), (60, "1.5")] {
        tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", garbage.as_bytes());
        assert!(matches!(look(&mut watch, seconds).voltage, Some(Err(_))));
    }
    std::fs::remove_file(tree.join("sys/class/hwmon/hwmon3/in0_lcrit_alarm")).unwrap();
    watch.alarm.as_mut().unwrap().file = KeptFile::new("sys/class/hwmon/hwmon3/in0_lcrit_alarm");
    assert!(matches!(look(&mut watch, 100).voltage, Some(Err(_))));
    assert!(watch.voltage_descriptor().is_none());
}

#[test]
fn a_read_that_takes_over_a_second_is_the_last_one_of_its_file() {
    let tree = pi("problems-slow");
    tree.write("proc/sys/kernel/tainted", b"0\n");
    let mut watch = watch(&tree);
    look(&mut watch, 0);
    // The clock jumps while the alarm is read: it is the first file of a look that has no mounts.
    for (millis, is_slow) in [(1000, false), (1001, true)] {
        let calls = Cell::new(0);
        let clock = || {
            calls.set(calls.get() + 1);
            // The look's own call is the first.
            match calls.get() {
                1 => at(100 + millis),
                _ => at(100 + millis).after(Duration::from_millis(millis)),
            }
        };
        watch.filesystems = Filesystems::new();
        watch.on_voltage(&clock);
        let found = look(&mut watch, 10 * millis);
        assert_eq!(matches!(found.voltage, Some(Err(_))), is_slow, "{millis}");
        // The other files are still read.
        assert!(matches!(found.kernel, Some(Ok(_))));
    }
    assert!(
        matches!(look(&mut watch, 20_000).voltage, Some(Err(_))),
        "until the restart"
    );
}

#[test]
fn a_source_is_found_at_the_next_discovery() {
    let tree = Tree::new("problems-discovery");
    let mut watch = watch(&tree);
    assert_eq!(look(&mut watch, 0).voltage, None);
    for file in ["name", "in0_lcrit_alarm"] {
        let bytes: &[u8] = if file == "name" { b"rpi_volt" } else { b"0" };
        tree.write(&format!("sys/class/hwmon/hwmon0/{file}"), bytes);
    }
    assert_eq!(look(&mut watch, 3599).voltage, None);
    assert!(look(&mut watch, 3600 + 9).voltage.is_some());
}

#[test]
fn wear_data_that_vanish_are_unreadable_for_an_hour() {
    let tree = Tree::new("problems-wear");
    for (file, bytes) in [("type", "MMC"), ("life_time", "0x03 0x0b")] {
        tree.write(
            &format!("sys/block/mmcblk0/device/{file}"),
            bytes.as_bytes(),
        );
    }
    // The boot partitions are the same device.
    tree.write("sys/block/mmcblk0boot0/device/type", b"MMC");
    let mut watch = watch(&tree);
    let worn = Wear::Emmc {
        device: "mmcblk0".to_owned(),
        life: 11,
        pre_eol: 0,
    };
    assert_eq!(look(&mut watch, 0).wear, Some(Ok(vec![worn])));
    std::fs::remove_dir_all(tree.join("sys/block")).unwrap();
    assert!(matches!(look(&mut watch, 3600).wear, Some(Err(_))));
    assert!(matches!(look(&mut watch, 7100).wear, Some(Err(_))));
    assert_eq!(look(&mut watch, 7200).wear, None);
}

#[test]
fn boots_are_read_once_and_written_where_they_are_read() {
    let tree = Tree::new("problems-boots");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    let mut watch = watch(&tree);
    let boots = look(&mut watch, 0).boots.unwrap();
    assert_eq!(boots.text, None);
    assert_eq!(boots.boot_id, "abc");
    assert_eq!(look(&mut watch, 60).boots, None);
    assert!(!watch.write_boots("7 abc\n".to_owned()), "no such folder");
    std::fs::create_dir_all(tree.join("var/lib/nodelet")).unwrap();
    assert!(watch.write_boots("7 abc\n".to_owned()));
    let mut again = super::tests::watch(&tree);
    let text = look(&mut again, 0).boots.unwrap().text;
    assert_eq!(text.as_deref(), Some("7 abc\n"));
    tree.write("file", b"");
    watch.boots = tree.join("file/boots");
    assert!(!watch.write_boots("7 abc\n".to_owned()));
}

#[test]
fn the_last_answer_of_a_time_server_is_the_time_of_the_file() {
    let tree = Tree::new("problems-timesync");
    let mut first = watch(&tree);
    assert_eq!(look(&mut first, 0).timesync, None);
    std::fs::create_dir_all(tree.join("run/systemd/timesync")).unwrap();
    let mut second = watch(&tree);
    assert_eq!(look(&mut second, 0).timesync, Some(Timesync::Never));
    tree.write("run/systemd/timesync/synchronized", b"");
    assert!(matches!(
        look(&mut second, 60).timesync,
        Some(Timesync::At(Some(_)))
    ));
}

#[test]
fn a_condition_file_gives_its_first_line() {
    let tree = Tree::new("problems-files");
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
    let host = Host::new(super::super::HostRoot::default(), "/nonexistent");
    let config = Config::parse("none", &items).unwrap();
    let mut watch = Watch::new(&host, &config);
    let lines = watch.files();
    let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
    let want = [
        Some("OnBattery: 20 %"),
        Some(""),
        Some("caf\u{fffd}"),
        Some(""),
        None,
    ];
    assert_eq!(lines, want);
    assert!(
        watch.look(FAST_PACE, &|| at(0)).is_none(),
        "none looks at nothing"
    );
}
