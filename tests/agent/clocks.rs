//! Boards without an RTC, and clocks that jump. A preloaded library, compiled with `cc`,
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

/// Grace period of the double's node-lifecycle controller: three renewals.
const GRACE: Duration = Duration::from_secs(6);

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

struct Site {
    double: Double,
    folder: Folder,
    board: Board,
}

impl Site {
    /// Starts a board whose clock is `ahead` seconds ahead.
    fn start(double: Double, ahead: i64) -> Self {
        let folder = Folder::new("clocks");
        let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
        set_clock(&folder, ahead);
        let clock = folder.path().join("offset");
        let board = Board::fast_with(&kubeconfig, "pi", &[], &clock_of(&clock));
        Self { double, folder, board }
    }

    fn ready(&self) -> bool {
        self.double.get("nodes/pi").as_ref().is_some_and(is_ready)
    }

    fn renewed(&self) -> Option<Wall> {
        let lease = self.double.get("leases/pi")?;
        Wall::parse(lease["spec"]["renewTime"].as_str()?)
    }

    fn renewed_after(&self, before: Option<Wall>) -> Wall {
        eventually("another renewal", Duration::from_secs(10), || {
            self.renewed().filter(|now| Some(*now) != before)
        })
    }
}

/// Fails unless `time` is that of a clock which is `ahead` seconds ahead, or of the server if that
/// clock shows a time before the build.
fn assert_is(time: Wall, ahead: i64) {
    let shown = Duration::from_secs(now().as_secs().saturating_add_signed(ahead));
    let shown = Some(Wall::from_epoch(shown)).filter(|shown| *shown >= clock::built());
    let now = shown.unwrap_or(Wall::from_epoch(now()));
    let off = now.since(time).max(time.since(now));
    assert!(off < Duration::from_secs(10), "{time:?} is {off:?} off");
}

/// A server whose certificate is younger than the binary.
#[test]
fn with_a_clock_of_1970_nothing_is_written_until_the_clock_is_set() {
    let double = Double::start();
    double.swap_validity(SINCE_NOW, None);
    let site = Site::start(double, in_1970());
    site.board.says("clock: 1970-01-01T00:00:");
    site.board.says("Z is before the build of nodelet at 20");
    site.board.says("certificate of 127.0.0.1 is not valid before 20");
    let log = site.board.log();
    let refused = log.iter().find(|line| line.contains("not valid before")).unwrap();
    for part in
        ["clock says 1970-01-01T00:00:", "nodelet was built at 20", "; set the clock of this board"]
    {
        assert!(refused.contains(part), "{refused}");
    }
    std::thread::sleep(Duration::from_secs(3));
    assert!(site.double.requests().is_empty());

    set_clock(&site.folder, 0);
    eventually("Ready", Duration::from_secs(10), || site.ready().then_some(()));
    assert_is(site.renewed_after(None), 0);
    site.board.says("clock: recovered");
    site.board.says("node: recovered");
    assert!(site.board.log().len() <= 6, "{:#?}", site.board.log());
}

/// The Lease has the time of the clock, or of the server, also after a jump back. Over one
/// connection: a certificate is checked only when a connection opens.
#[test]
fn a_clock_that_jumps_by_a_day_or_by_years_costs_no_renewal() {
    let site = Site::start(Double::builder().lifecycle(GRACE).start(), 0);
    eventually("Ready", Duration::from_secs(10), || site.ready().then_some(()));
    let mut last = site.renewed_after(None);
    for ahead in [DAY, -DAY, 10 * YEAR, -YEAR, in_1970(), 0] {
        set_clock(&site.folder, ahead);
        for _ in 0..3 {
            last = site.renewed_after(Some(last));
        }
        assert_is(last, ahead);
    }
    assert!(!site.double.ever_left_ready());
    assert!(site.ready());
    assert_eq!(site.double.connections(), 1, "it had no reason to reconnect");
}
