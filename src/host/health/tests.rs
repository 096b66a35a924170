#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::files::tree::Tree;
use crate::files::write::Disk;
use crate::health::Voltage;
use crate::host::root::NOT_REACHED;

const FAST_PACE: Pace = Pace { is_fast: true, wait_for_voltage: true };
const SLOW_PACE: Pace = Pace { is_fast: false, wait_for_voltage: true };

/// The time since the start, and how much passes after the next question for it.
pub(super) type FakeClock = Rc<Cell<(Duration, Duration)>>;

/// A clock, and what shows its time.
pub(super) fn fake_clock() -> (FakeClock, impl Fn() -> Now) {
    let clock = FakeClock::default();
    let shown = Rc::clone(&clock);
    let show = move || {
        let (now, step) = shown.get();
        shown.set((now + step, Duration::ZERO));
        Now { mono: Mono::START.after(now), wall: Wall::default() }
    };
    (clock, show)
}

struct Watch {
    sources: HealthSources,
    clock: FakeClock,
}

fn watch_of(host: &Host) -> Watch {
    let (clock, show) = fake_clock();
    Watch { sources: HealthSources::new(host, show), clock }
}

fn watch(tree: &Tree) -> Watch {
    let mut host = Host::new(HostRoot::new(tree.path()), "/var/lib/nodelet");
    host.health = HealthConfig::parse("all", &[]).unwrap();
    watch_of(&host)
}

impl Watch {
    fn at(&mut self, seconds: u64) -> &mut HealthSources {
        self.clock.set((Duration::from_secs(seconds), Duration::ZERO));
        &mut self.sources
    }
}

fn look(watch: &mut Watch, seconds: u64) -> HealthReading {
    watch.at(seconds).read(FAST_PACE).unwrap()
}

fn pi(name: &str) -> Tree {
    let tree = Tree::new(name);
    tree.write("proc/device-tree/compatible", b"raspberrypi,4-model-b\0brcm,bcm2711\0");
    tree.write("sys/class/hwmon/hwmon0/name", b"cpu_thermal\n");
    tree.write("sys/class/hwmon/hwmon3/name", b"rpi_volt\n");
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"0\n");
    tree
}

#[test]
fn a_look_is_due_once_a_minute_or_every_10_seconds_while_a_source_is_suspect() {
    let tree = pi("health-pace");
    let mut watch = watch(&tree);
    let mut is_due = |pace, seconds| watch.at(seconds).read(pace).is_some();
    assert!(is_due(SLOW_PACE, 0));
    assert!(!is_due(SLOW_PACE, 50));
    assert!(is_due(SLOW_PACE, 60));
    assert!(!is_due(FAST_PACE, 65));
    assert!(is_due(FAST_PACE, 70));
    // A drop that the driver reported is looked at with the next status.
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"1\n");
    watch.at(75).on_voltage();
    let found = watch.at(80).read(SLOW_PACE).unwrap();
    let voltage = Voltage { alarm: true, dips: 1 };
    assert_eq!(found.voltage, Some(Ok(voltage)));
    assert!(watch.at(90).read(SLOW_PACE).is_none());
}

#[test]
fn the_first_reading_of_the_alarm_is_the_baseline() {
    let tree = pi("health-alarm");
    tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"1\n");
    let mut watch = watch(&tree);
    for (seconds, bytes, want) in [(0, "1", (true, 0)), (10, "0", (false, 0)), (20, "1", (true, 1))]
    {
        tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", bytes.as_bytes());
        let Some(Ok(voltage)) = look(&mut watch, seconds).voltage else {
            panic!("no voltage");
        };
        assert_eq!((voltage.alarm, voltage.dips), want, "{seconds}");
    }
    assert!(watch.sources.voltage_descriptor().is_some());
    for (seconds, garbage) in [(40, ""), (50, "N/A"), (60, "1.5")] {
        tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", garbage.as_bytes());
        assert!(matches!(look(&mut watch, seconds).voltage, Some(Err(_))));
    }
    std::fs::remove_file(tree.join("sys/class/hwmon/hwmon3/in0_lcrit_alarm")).unwrap();
    watch.sources.alarm.as_mut().unwrap().file =
        KeptFile::new("sys/class/hwmon/hwmon3/in0_lcrit_alarm");
    assert!(matches!(look(&mut watch, 100).voltage, Some(Err(_))));
    assert!(watch.sources.voltage_descriptor().is_none());
}

/// Each question for the time takes 50 ms, and each read asks three times.
#[test]
fn what_a_look_does_not_come_to_is_unread_and_says_so() {
    let tree = pi("health-slow");
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
    let mut host = Host::new(HostRoot::new(tree.path()), "/var/lib/nodelet");
    host.health = HealthConfig::parse("all", &[]).unwrap();
    let clock = FakeClock::default();
    let shown = Rc::clone(&clock);
    let mut sources = HealthSources::new(&host, move || {
        let (now, step) = shown.get();
        shown.set((now + step, step));
        Now { mono: Mono::START.after(now), wall: Wall::default() }
    });
    assert!(matches!(sources.read(FAST_PACE).unwrap().heat, Some(Ok(_))));
    clock.set((Duration::from_secs(60), Duration::from_millis(50)));
    let found = sources.read(FAST_PACE).unwrap();
    assert_eq!(found.heat, Some(Err(Unread::new("sys/class/thermal", NOT_REACHED))));
    // The other files are read before the sensors.
    assert!(matches!(found.kernel, Some(Ok(_))) && matches!(found.voltage, Some(Ok(_))));
    // A discovery that ends early is repeated with the next look.
    clock.set((Duration::from_secs(3600), Duration::from_millis(50)));
    let cut_off = sources.read(FAST_PACE).unwrap().discovery;
    for (second, next) in [(3700, 1), (3800, 1)] {
        clock.set((Duration::from_secs(second), Duration::ZERO));
        let found = sources.read(FAST_PACE).unwrap();
        assert_eq!(found.discovery, cut_off + next);
        assert!(matches!(found.heat, Some(Ok(_))), "{found:?}");
    }
}

#[test]
fn a_source_is_found_at_the_next_discovery() {
    let tree = Tree::new("health-discovery");
    let mut watch = watch(&tree);
    assert_eq!(look(&mut watch, 0).voltage, None);
    for file in ["name", "in0_lcrit_alarm"] {
        let bytes: &[u8] = if file == "name" { b"rpi_volt" } else { b"0" };
        tree.write(&format!("sys/class/hwmon/hwmon0/{file}"), bytes);
    }
    assert_eq!(look(&mut watch, 3599).voltage, None);
    assert!(look(&mut watch, 3600 + 9).voltage.is_some());
    // Its driver is bound again, and gets another number.
    std::fs::rename(tree.join("sys/class/hwmon/hwmon0"), tree.join("sys/class/hwmon/hwmon1"))
        .unwrap();
    assert!(look(&mut watch, 7300).voltage.is_some());
    let path = &watch.sources.alarm.as_ref().unwrap().file.path;
    assert!(path.contains("hwmon1"), "{path}");
}

#[test]
fn wear_data_that_vanish_are_unreadable_for_an_hour() {
    let tree = Tree::new("health-wear");
    for (file, bytes) in [("type", "MMC"), ("life_time", "0x03 0x0b")] {
        tree.write(&format!("sys/block/mmcblk0/device/{file}"), bytes.as_bytes());
    }
    // The boot partitions are the same device.
    tree.write("sys/block/mmcblk0boot0/device/type", b"MMC");
    let mut watch = watch(&tree);
    let worn = Wear::Emmc { device: "mmcblk0".to_owned(), life: 11, pre_eol: 0 };
    assert_eq!(look(&mut watch, 0).wear, Some(Ok(vec![worn])));
    std::fs::remove_dir_all(tree.join("sys/block")).unwrap();
    assert!(matches!(look(&mut watch, 3600).wear, Some(Err(_))));
    assert!(matches!(look(&mut watch, 7100).wear, Some(Err(_))));
    assert_eq!(look(&mut watch, 7200).wear, None);
}

#[test]
fn boots_are_read_once_and_written_where_they_are_read() {
    let tree = Tree::new("health-boots");
    tree.write("proc/sys/kernel/random/boot_id", b"abc\n");
    let mut watch = watch(&tree);
    let boots = look(&mut watch, 0).boots.unwrap();
    assert_eq!(boots.text, None);
    assert_eq!(boots.boot_id, "abc");
    assert_eq!(look(&mut watch, 60).boots, None);
    let change = |watch: &Watch| watch.sources.boots_change("7 abc\n".to_owned());
    assert_eq!(change(&watch), None, "no such folder");
    std::fs::create_dir_all(tree.join("var/lib/nodelet")).unwrap();
    let written = change(&watch).map(|ops| Disk::default().carry_out(ops));
    assert_eq!(written, Some(Ok(())));
    let mut again = super::tests::watch(&tree);
    let text = look(&mut again, 0).boots.unwrap().text;
    assert_eq!(text.as_deref(), Some("7 abc\n"));
}

#[test]
fn the_last_answer_of_a_time_server_is_the_time_of_the_file() {
    let tree = Tree::new("health-timesync");
    let mut first = watch(&tree);
    assert_eq!(look(&mut first, 0).timesync, None);
    std::fs::create_dir_all(tree.join("run/systemd/timesync")).unwrap();
    let mut second = watch(&tree);
    assert_eq!(look(&mut second, 0).timesync, Some(Timesync::Never));
    tree.write("run/systemd/timesync/synchronized", b"");
    assert!(matches!(look(&mut second, 60).timesync, Some(Timesync::At(Some(_)))));
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
    let mut host = Host::new(HostRoot::default(), "/nonexistent");
    host.health = HealthConfig::parse("none", &items).unwrap();
    let mut watch = watch_of(&host);
    let lines = watch.sources.files();
    let lines: Vec<Option<&str>> = lines.iter().map(Option::as_deref).collect();
    let want = [Some("OnBattery: 20 %"), Some(""), Some("caf\u{fffd}"), Some(""), None];
    assert_eq!(lines, want);
    assert!(watch.at(0).read(FAST_PACE).is_none(), "none looks at nothing");
}
