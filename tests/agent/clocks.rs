//! A board without an RTC. A preloaded library, compiled with `cc`,
//! shifts the real-time clock of the process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apidouble::{Double, Validity};
use nodelet::kube::time::Wall;
use nodelet::os::clock;

use crate::common::api::is_ready;
use crate::common::board::Board;
use support::{Folder, eventually};

const DAY: i64 = 86_400;
const YEAR: i64 = 365 * DAY;

/// The preloaded library.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clock.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/clock.c");
        let cc = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .args([&library, &source])
            .status();
        assert!(cc.is_ok_and(|status| status.success()), "cc {source:?}");
        library
    })
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

pub fn in_1970() -> i64 {
    5 - i64::try_from(now().as_secs()).unwrap()
}

/// Of a server's certificate that begins a minute before the build of nodelet.
pub fn since_the_build() -> Validity {
    let age = Wall::from_epoch(now()).since(clock::built()).as_secs();
    Validity { from: -60 - i64::try_from(age).unwrap(), until: YEAR }
}

/// Of one that begins after the build.
pub const SINCE_NOW: Validity = Validity { from: 0, until: YEAR };

/// The environment of a process whose clock is as many seconds ahead as this file says.
pub fn clock_of(offset: &Path) -> [(&'static str, &str); 2] {
    [("LD_PRELOAD", library().to_str().unwrap()), ("CLOCK_OFFSET_FILE", offset.to_str().unwrap())]
}

/// Sets the clock in one step, as NTP does.
fn set_clock(folder: &Folder, ahead: i64) {
    let new = folder.write("offset.new", ahead.to_string());
    std::fs::rename(new, folder.path().join("offset")).unwrap();
}

/// A server whose certificate is younger than the binary.
#[test]
fn with_a_clock_of_1970_nothing_is_written_until_the_clock_is_set() {
    let double = Double::start();
    double.swap_validity(SINCE_NOW, None);
    let folder = Folder::new("clocks");
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    set_clock(&folder, in_1970());
    let clock = folder.path().join("offset");
    let board = Board::fast_with(&kubeconfig, "pi", &[], &clock_of(&clock));
    board.says("clock: 1970-01-01T00:00:");
    board.says("Z is before the build of nodelet at 20");
    board.says("certificate of 127.0.0.1 is not valid before 20");
    let log = board.log();
    let refused = log.iter().find(|line| line.contains("not valid before")).unwrap();
    for part in
        ["clock says 1970-01-01T00:00:", "nodelet was built at 20", "; set the clock of this board"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    std::thread::sleep(Duration::from_secs(3));
    assert!(double.requests().is_empty());

    set_clock(&folder, 0);
    eventually("Ready", Duration::from_secs(10), || double.get("nodes/pi").filter(is_ready));
    let lease = eventually("a Lease", Duration::from_secs(10), || double.get("leases/pi"));
    let renewed = Wall::parse(lease["spec"]["renewTime"].as_str().unwrap()).unwrap();
    let now = Wall::from_epoch(now());
    let off = now.since(renewed).max(renewed.since(now));
    assert!(off < Duration::from_secs(10), "{renewed:?} is {off:?} off");
    board.says("clock: recovered");
    board.says("node: recovered");
    assert!(board.log().len() <= 6, "{:#?}", board.log());
}
