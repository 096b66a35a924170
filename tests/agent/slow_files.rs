//! Slow sensors and files. The preloaded library makes read and pread slow.

use std::time::Duration;

use apidouble::Double;

use crate::clocks::library;
use crate::common::api::{condition, is_ready};
use crate::common::board::Board;
use crate::common::raspberry;
use support::{Folder, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// Eight temperature sensors of 0.9 s each, as on an I²C bus with a bad cable.
#[test]
fn eight_slow_sensors_delay_the_registration_by_a_second_and_one_read() {
    let double = Double::start();
    let folder = Folder::new("slow-sensors");
    let root = raspberry::healthy(&folder);
    for zone in 1..8 {
        for (file, content) in [
            ("temp", "48000\n"),
            ("type", "x\n"),
            ("trip_point_0_temp", "110000\n"),
            ("trip_point_0_type", "critical\n"),
        ] {
            folder.write(&format!("root/sys/class/thermal/thermal_zone{zone}/{file}"), content);
        }
    }
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let flags = ["--host-root", &root, "--node-ip=::", "--root-dir=/var/lib/kubelet"];
    // Not those of its trip points.
    let env = [("LD_PRELOAD", library().to_str().unwrap()), ("SLOW_READ", "/temp")];
    let board = Board::fast_with(&kubeconfig, "pi", &flags, &env);
    let node = eventually("Ready", MINUTE, || double.get("nodes/pi").filter(is_ready));
    let took = board.started.elapsed();
    println!("Ready after {took:?}");
    assert!(took > Duration::from_millis(1700), "the sensors are not slow: {took:?}");
    assert!(took < Duration::from_secs(4), "{took:?}");
    // Nothing is said about sensors of which most were not read.
    assert_eq!(condition(&node, "ThermalThrottling"), None);
}

/// Two reads of the file, its line and its end, take longer than a look may take.
#[test]
fn a_slow_file_of_a_condition_takes_no_time_of_the_facts() {
    let double = Double::start();
    let folder = Folder::new("slow-condition");
    let root = raspberry::healthy(&folder);
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let file = folder.write("battery", "Empty: by a test\n");
    let flag = format!("--node-condition=OnBattery={}", file.display());
    let flags = ["--host-root", &root, "--node-ip=::", "--root-dir=/var/lib/kubelet", &flag];
    let env = [("LD_PRELOAD", library().to_str().unwrap()), ("SLOW_READ", "/battery")];
    let _board = Board::fast_with(&kubeconfig, "pi", &flags, &env);
    eventually("Ready", MINUTE, || double.get("nodes/pi").filter(is_ready));
    folder.write("root/proc/meminfo", "MemTotal: 2000000 kB\nAnonPages: 0 kB\nCached: 0 kB\n");
    let node = eventually("the new capacity", MINUTE / 3, || {
        let node = double.get("nodes/pi")?;
        (node["status"]["capacity"]["memory"] == "2000000Ki").then_some(node)
    });
    assert!(condition(&node, "OnBattery").is_some());
}
