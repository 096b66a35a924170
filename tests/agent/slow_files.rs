//! Slow cards and slow sensors: the lease law holds in the running agent. The preloaded library
//! makes fsync and pread slow.
//!
//! The Lease lasts 8 s, a fifth of the usual: a call takes up to 1 s, a renewal is due after 2 to
//! 2.08 s, and 3.08 s after a success the next attempt has begun. So 1.4 s stand for 7 s.

use std::fs;
use std::time::{Duration, Instant};

use apidouble::Double;
use serde_json::json;

use crate::clocks::library;
use crate::common::api::{admin, condition, is_ready};
use crate::common::board::{Board, FAST};
use crate::common::cluster::rotating;
use crate::common::raspberry;
use support::{Folder, eventually};

const MINUTE: Duration = Duration::from_secs(60);
const LONGEST_INTERVAL: Duration = Duration::from_millis(2080);
const CALL: Duration = Duration::from_secs(1);
/// What a busy machine may add: less than the shortest of the slow operations.
const SLACK: Duration = Duration::from_millis(700);

/// The attempts to renew the Lease, by their arrival.
fn longest_distance_of_attempts(double: &Double) -> Duration {
    let mut requests = double.requests();
    requests.retain(|request| request.path.contains("/leases/"));
    let times: Vec<Instant> = requests.iter().map(|request| request.at).collect();
    assert!(times.len() > 2, "{} attempts", times.len());
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}

/// Two rotations and a podCIDR.
#[test]
fn with_long_fsyncs_one_of_them_at_most_is_between_two_lease_attempts() {
    let fsync = CALL * 7 / 5;
    let folder = Folder::new("slow-fsync");
    let (double, args) = rotating(&folder);
    let slow = folder.write("slow", "0");
    let args: Vec<&str> = args.iter().map(String::as_str).chain(FAST).collect();
    let env =
        [("LD_PRELOAD", library().to_str().unwrap()), ("SLOW_FSYNC_FILE", slow.to_str().unwrap())];
    let board = Board::start_with(&args, &env);
    eventually("Ready", MINUTE, || double.get("nodes/pi").filter(is_ready));
    fs::write(&slow, fsync.as_millis().to_string()).unwrap();
    double.clear_requests();

    let spec = json!({"spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]}});
    admin(&double, "PATCH", "/api/v1/nodes/pi", &spec);
    eventually("podcidr", MINUTE, || fs::read(folder.path().join("root/podcidr")).ok());
    let rotations = || {
        let log = board.log();
        log.iter().filter(|line| line.contains("a new certificate is in use")).count()
    };
    let before = rotations();
    eventually("two rotations", MINUTE * 2, || (rotations() >= before + 2).then_some(()));
    let longest = longest_distance_of_attempts(&double);
    println!("{longest:?}");
    let limit = LONGEST_INTERVAL + fsync + SLACK;
    assert!(longest <= limit, "{longest:?}, {limit:?} allowed");
    assert!(longest > fsync, "fsync is not slow");
}

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
