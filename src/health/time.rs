//! NTPProblem and FrequentReboot, which need the API server's time: `run/systemd/timesync`,
//! `proc/uptime`, and the file `boots` in `--root-dir`.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::boots::History;
use super::condition_state::RuleResult;
use super::config::HealthConfig;
use super::reader::{HealthReader, SLOW};
use super::{CheckTexts, ConditionKind};
use crate::kube::facts::Presence;
use crate::kube::instant::{Mono, Now};
use crate::kube::outage_log::OutageLog;
use crate::kube::text::{Fault, VERBOSE};
use crate::kube::time::Wall;
use crate::os::guard;
use crate::os::mounts::is_in_initramfs;
use crate::os::read::{SMALL, read_found};
use crate::os::reread_file::RereadFile;
use crate::os::root::{HostRoot, unread};
use crate::os::write::{self, Op};

pub(super) const NTP: ConditionKind = ConditionKind {
    name: "NTPProblem",
    fine: ("ClockAgrees", "the clock agrees with the API server"),
    // Judged by several responses.
    problems: &[("ClockNotSet", 0), ("ClockSkew", 0), ("NTPIsDown", 0)],
    source: None,
    check: CheckTexts {
        name: "clock-sync",
        absent: "no systemd-timesyncd; a run compares the clock with the API server's",
        remedy: "give the time daemon a server that the board reaches",
    },
};

pub(super) const REBOOTS: ConditionKind = ConditionKind {
    name: "FrequentReboot",
    fine: ("BootsAreRare", "boots are rare"),
    // Judged by several boots.
    problems: &[("FrequentReboot", 0)],
    source: None,
    check: CheckTexts {
        name: "boots",
        absent: "no history yet; a run writes the file boots in --root-dir, if that folder exists",
        remedy: "check the supply, the watchdog and the kernel log",
    },
};

/// The folder of systemd-timesyncd, and the file whose modification time is that of the last answer
/// of a time server (systemd-timesyncd(8)).
const TIMESYNC: &str = "run/systemd/timesync";
const SYNCHRONIZED: &str = "run/systemd/timesync/synchronized";

/// `run/systemd/timesync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timesync {
    /// `synchronized` does not exist: no answer of a server since boot.
    Never,
    /// The time of the last answer; `None` if that is unknown.
    At(Option<Wall>),
}

/// The sources of both conditions, and their rules.
#[derive(Debug)]
pub(super) struct TimeSources {
    pub(super) ntp: Ntp,
    pub(super) history: History,
    has_timesync: bool,
    uptime: RereadFile,
    /// The time of the last look, and the seconds since boot at that time.
    booted: Option<(Mono, u64)>,
    /// The file `boots`.
    boots: PathBuf,
    /// Its reads and writes.
    log: OutageLog,
}

impl TimeSources {
    pub(super) fn new(root: &HostRoot, root_dir: &Path, built: Wall) -> Self {
        let folder = match root.is_real() {
            true => root_dir.to_owned(),
            // An absolute path would replace the root in `join`.
            false => root.path().join(root_dir.strip_prefix("/").unwrap_or(root_dir)),
        };
        Self {
            ntp: Ntp::new(built),
            history: History::default(),
            has_timesync: false,
            uptime: RereadFile::new("proc/uptime"),
            booted: None,
            boots: folder.join("boots"),
            log: OutageLog::new("boots"),
        }
    }

    pub(super) fn discover(&mut self, reader: &HealthReader, config: &HealthConfig) {
        self.has_timesync = config.detects(NTP.name) && timesync(&reader.root).is_some();
        // Its disk may be mounted by now. A write that failed is the look's to repeat.
        let is_unwritten = self.log.last_error().is_some();
        if self.history.is_missing() && !is_unwritten && !reader.root_can_block {
            (self.history.exists, self.history.failed) = (None, None);
        } else if self.history.is_recorded {
            self.load_again(reader.now().mono);
        }
    }

    pub(super) fn look(&mut self, reader: &mut HealthReader, config: &HealthConfig) {
        let timesync = if self.has_timesync { timesync(&reader.root) } else { None };
        let uptime = uptime(&mut self.uptime, reader);
        let now = reader.now();
        self.booted = uptime.map(|uptime| (now.mono, uptime));
        self.ntp.on_look(timesync, uptime.unwrap_or_default(), now.wall);
        // What failed is tried again, at most once a minute. If the root can block, it is not tried
        // again: the root's server may have died.
        let is_over = |at: &mut Mono| now.mono.since(*at) >= SLOW;
        if self.log.last_error().is_some() && !reader.root_can_block {
            self.history.failed.take_if(is_over);
        }
        // A look whose time is over reads no other file: the root may be dead.
        let may_read = reader.root.may_read().is_ok() && self.history.failed.is_none();
        if self.history.exists.is_none() && config.detects(REBOOTS.name) && may_read {
            self.load(now.mono);
        }
        // The first look may not have come so far.
        if self.history.id.is_none() {
            let id = Presence::from(reader.root.text("proc/sys/kernel/random/boot_id", SMALL));
            let id = id.present().map(Option::unwrap_or_default);
            self.history.id = id.ok().map(|id| id.trim().to_owned());
        }
    }

    /// Reads the file `boots`. A file that cannot be read is not written over, because it has the
    /// earlier boots.
    fn load(&mut self, now: Mono) {
        let bytes = guard::found(&self.boots).and_then(|path| read_found(&path));
        match Presence::from(bytes.map_err(|error| unread("boots", &error))).present() {
            Ok(bytes) => {
                let was_unread = self.history.exists.is_none();
                self.history.load(bytes.as_deref().map(String::from_utf8_lossy).as_deref());
                // A write that fails is no read: its outage goes on.
                if was_unread {
                    self.log.succeeded(now);
                }
            }
            Err(unread) => {
                (self.history.exists, self.history.failed) = (None, Some(now));
                self.log.failed(&format!("cannot be read: {}", unread.cause), now);
            }
        }
    }

    /// Reads the file again, because a disk may have been mounted over the folder. If the root can
    /// block, nothing is read: a stop would wait for the root's dead server.
    fn load_again(&mut self, now: Mono) {
        if !guard::root_can_block() {
            self.load(now);
        }
    }

    /// The rule of the condition `name`.
    pub(super) fn judge(&self, name: &str, now: Now) -> RuleResult {
        if name == NTP.name {
            return self.ntp.judge();
        }
        let is_right = !self.ntp.is_refuted(now.wall);
        match self.history.judge(is_right.then(|| now.wall.seconds())) {
            // A write that failed is tried again. Only without a folder nothing can be written.
            RuleResult::NoSource if self.log.last_error().is_some() => RuleResult::Waiting,
            result => result,
        }
    }

    /// When this boot began, by a clock that is not known to be wrong.
    pub(super) fn began(&self, now: Now) -> Option<Wall> {
        let (at, uptime) = self.booted.filter(|_| !self.ntp.is_refuted(now.wall))?;
        let since_boot = Duration::from_secs(uptime).saturating_add(now.mono.since(at));
        Some(now.wall.before(since_boot))
    }

    /// Whether the file `boots` lacks a line of this boot, and a response came that did not show
    /// that the clock is wrong. After a failed write, a later look allows another attempt.
    pub(super) fn is_record_due(&self, now: Now) -> bool {
        self.history.may_record() && self.ntp.skew.is_some() && self.began(now).is_some()
    }

    /// The operations that write the line, if that is due. Looks for the folder of the file, and
    /// reads the file: its disk may have been mounted since the look.
    pub(super) fn record(&mut self, now: Now) -> Option<Vec<Op>> {
        let began = self.began(now).filter(|_| self.ntp.skew.is_some())?;
        if self.history.is_missing() && self.history.failed.is_none() {
            self.load(now.mono);
        } else if self.history.may_record() {
            self.load_again(now.mono);
        }
        let text = self.history.record(began.seconds())?;
        let ops = self.change(text);
        if ops.is_none() {
            self.history.on_written(Some(now.mono));
        }
        ops
    }

    /// Takes the result of a write.
    pub(super) fn on_written(&mut self, result: Result<(), Fault>, now: Mono) {
        self.history.on_written(result.is_err().then_some(now));
        let error = result.err().map(|why| {
            format!("cannot be written: {why}; make its folder writable for FrequentReboot")
        });
        self.log.ended(error.as_deref(), now);
    }

    /// The operations that record an orderly stop.
    pub(super) fn stop(&mut self, now: Mono) -> Option<Vec<Op>> {
        if self.history.has_own() {
            self.load_again(now);
        }
        let text = self.history.stop()?;
        self.change(text)
    }

    /// The operations that write the file `boots`; `None` if its folder does not exist (it is not
    /// created), or is in an initramfs, whose files do not outlive a boot.
    fn change(&self, text: String) -> Option<Vec<Op>> {
        let folder = self.boots.parent().unwrap_or(&self.boots);
        let found = guard::found(folder).map_err(|error| unread("--root-dir", &error));
        // Many boards have no --root-dir, so only the verbose log has a line.
        if Presence::from(found)
            .present()
            .is_ok_and(|path| path.is_none_or(|path| is_in_initramfs(&path)))
        {
            log::info!(target: VERBOSE, "boots is not written: no folder {}", folder.display());
            return None;
        }
        Some(write::publication(&self.boots, text))
    }

    /// The file of the condition `name`.
    pub(super) fn path(&self, name: &str) -> Option<String> {
        match name == NTP.name {
            true => self.has_timesync.then(|| SYNCHRONIZED.to_owned()),
            false => self.boots.to_str().map(str::to_owned),
        }
    }
}

/// `None` if systemd-timesyncd does not run.
fn timesync(root: &HostRoot) -> Option<Timesync> {
    let Ok(file) = root.open(SYNCHRONIZED) else {
        return root.open(TIMESYNC).ok().map(|_| Timesync::Never);
    };
    let modified = file.metadata().and_then(|found| found.modified());
    let since_epoch = modified.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Some(Timesync::At(since_epoch.map(Wall::from_epoch)))
}

/// Seconds since boot.
fn uptime(file: &mut RereadFile, reader: &mut HealthReader) -> Option<u64> {
    let text = reader.reread(file).ok()?;
    text.split(['.', ' ']).next()?.parse().ok()
}

/// The clock is wrong if [`RESPONSES`] responses in a row differ from it by more than this, and
/// right if as many differ by less than [`RIGHT`].
const WRONG: Duration = Duration::from_secs(30);
const RIGHT: Duration = Duration::from_secs(10);
const RESPONSES: u8 = 3;
/// `Date` has whole seconds.
const ROUNDING: Duration = Duration::from_secs(1);
/// systemd-timesyncd has this much time after a boot, in seconds.
const AFTER_BOOT: u64 = 900;
/// An older answer is too old, because systemd-timesyncd asks at least every 34 min.
const STALE: Duration = Duration::from_secs(2 * 3600);

/// The rule of NTPProblem: the board's clock differs from the API server's. The `Date` of the
/// server's responses decides. A time daemon without servers is no problem while the clock is
/// right.
#[derive(Debug, Default)]
pub(super) struct Ntp {
    /// The time of this program's build: no right clock shows an earlier one.
    built: Wall,
    responses: u8,
    wrong: u8,
    right: u8,
    /// The last difference, and whether the board is ahead.
    skew: Option<(Duration, bool)>,
    /// The board's clock shows a time before the build.
    is_unset: bool,
    /// What systemd-timesyncd says; `None` without it.
    timesync: Option<Daemon>,
}

/// What the state of systemd-timesyncd says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Daemon {
    Works,
    /// It had no answer yet, soon after a boot.
    Starts,
    Fails,
}

impl Ntp {
    pub(super) fn new(built: Wall) -> Self {
        Self { built, ..Self::default() }
    }

    /// Takes the `Date` of a response whose request was sent at `start`. `now.wall` is the board's
    /// clock.
    pub(super) fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        // The server's time on arrival lies between `date` and `latest`.
        let latest = date.after(now.mono.since(start)).after(ROUNDING);
        let (ahead, behind) =
            (now.wall.since(latest), date.since(now.wall).saturating_sub(ROUNDING));
        let off = ahead.max(behind);
        self.skew = Some((off, ahead > behind));
        self.is_unset = now.wall < self.built;
        let in_a_row =
            |holds: bool, count: u8| if holds { count.saturating_add(1).min(RESPONSES) } else { 0 };
        self.responses = in_a_row(true, self.responses);
        self.wrong = in_a_row(off > WRONG, self.wrong);
        self.right = in_a_row(off < RIGHT, self.right);
    }

    /// Takes what a look found. `uptime` is in seconds, `wall` is the board's clock.
    pub(super) fn on_look(&mut self, timesync: Option<Timesync>, uptime: u64, wall: Wall) {
        self.timesync = timesync.map(|timesync| match timesync {
            Timesync::Never if uptime >= AFTER_BOOT => Daemon::Fails,
            Timesync::Never => Daemon::Starts,
            // /run is empty at boot: a time before the boot is from a clock that was wrong.
            Timesync::At(Some(at)) if is_stale(wall.since(at), uptime) => Daemon::Fails,
            Timesync::At(_) => Daemon::Works,
        });
    }

    pub(super) fn judge(&self) -> RuleResult {
        let is_down = self.timesync == Some(Daemon::Fails);
        let Some((off, is_ahead)) = self.skew else {
            return match self.timesync {
                None | Some(Daemon::Starts) => RuleResult::Waiting,
                Some(Daemon::Works) => RuleResult::NoProblem,
                Some(Daemon::Fails) => {
                    let message = "systemd-timesyncd has no answer of a time server";
                    RuleResult::problem(2, "NTPIsDown", message, 0)
                }
            };
        };
        if self.right == RESPONSES {
            return RuleResult::NoProblem;
        }
        if self.wrong < RESPONSES {
            let is_early = self.responses < RESPONSES;
            // Otherwise the last responses disagree, or are between the two limits.
            return if is_early { RuleResult::Waiting } else { RuleResult::NearProblem };
        }
        let (band, limit) = match off.as_secs() {
            3600.. => (2, "1 h"),
            300.. => (1, "5 min"),
            _ => (0, "30 s"),
        };
        let (rank, reason) = match self.is_unset {
            true => (7, "ClockNotSet"),
            false if is_down => (4, "NTPIsDown"),
            false => (1, "ClockSkew"),
        };
        let side = if is_ahead { "ahead of" } else { "behind" };
        let message = format!("the clock is {side} the API server by more than {limit}");
        RuleResult::problem(rank + band, reason, &message, 0)
    }

    /// Whether the board's clock, which shows `wall`, is wrong: a response showed that, or it is
    /// before the build.
    pub(super) fn is_refuted(&self, wall: Wall) -> bool {
        self.wrong > 0 || self.is_unset || wall < self.built
    }
}

fn is_stale(age: Duration, uptime: u64) -> bool {
    age > STALE && age.as_secs() <= uptime
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::health::tests::{FakeClock, at};
    use crate::os::mounts::pretend;
    use crate::os::tree::Tree;
    use crate::os::write::Disk;

    const BUILT: u64 = 1_735_689_600;
    const SERVER: u64 = 1_783_000_000;

    fn wall(seconds: u64) -> Wall {
        Wall::from_epoch(Duration::from_secs(seconds))
    }

    fn ntp() -> Ntp {
        Ntp::new(wall(BUILT))
    }

    /// `times` responses after `trip` seconds, on a board whose clock shows `shown`.
    fn answered(ntp: &mut Ntp, times: usize, shown: u64, trip: u64) -> RuleResult {
        let end = Mono::START.after(Duration::from_secs(trip));
        let now = Now { mono: end, wall: wall(shown) };
        for _ in 0..times {
            ntp.on_date(wall(SERVER), Mono::START, now);
        }
        ntp.judge()
    }

    fn kind(result: &RuleResult) -> &'static str {
        match result {
            RuleResult::Waiting => "waiting",
            RuleResult::NoProblem => "none",
            RuleResult::NearProblem => "near",
            RuleResult::Problem(_) => "problem",
            other => panic!("{other:?}"),
        }
    }

    fn reason(result: &RuleResult) -> (&str, &str) {
        match result {
            RuleResult::Problem(problem) => (problem.reason, problem.message.as_str()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn three_responses_in_a_row_decide() {
        let ahead = SERVER + 32;
        let mut clock = ntp();
        assert_eq!(answered(&mut clock, 2, ahead, 0), RuleResult::Waiting);
        assert_eq!(
            reason(&answered(&mut clock, 1, ahead, 0)),
            ("ClockSkew", "the clock is ahead of the API server by more than 30 s")
        );
        // One response in between begins anew.
        let mut clock = ntp();
        answered(&mut clock, 2, ahead, 0);
        answered(&mut clock, 1, SERVER, 0);
        assert_eq!(answered(&mut clock, 2, ahead, 0), RuleResult::NearProblem);
        for shown in [SERVER, SERVER + 20, SERVER - 20] {
            assert_eq!(answered(&mut ntp(), 2, shown, 0), RuleResult::Waiting);
        }
    }

    /// Between 10 and 30 s nothing ends, and nothing begins.
    #[test]
    fn the_limits_leave_room_for_the_round_trip_and_whole_seconds() {
        for (off, trip, want) in [
            (0, 0, "none"),
            (10, 0, "none"),
            (11, 0, "near"),
            (31, 0, "near"),
            (32, 0, "problem"),
            (-10, 0, "none"),
            (-11, 0, "near"),
            (-31, 0, "near"),
            (-32, 0, "problem"),
            (36, 5, "near"),
            (37, 5, "problem"),
            (-31, 5, "near"),
            (-32, 5, "problem"),
        ] {
            let result = answered(&mut ntp(), 3, SERVER.saturating_add_signed(off), trip);
            assert_eq!(kind(&result), want, "{off} {trip}");
        }
    }

    #[test]
    fn the_text_has_a_band_and_the_reason_names_the_cause() {
        for (off, limit) in [(300, "30 s"), (301, "5 min"), (3600, "5 min"), (3601, "1 h")] {
            let result = answered(&mut ntp(), 3, SERVER - off, 0);
            let want = format!("the clock is behind the API server by more than {limit}");
            assert_eq!(reason(&result), ("ClockSkew", want.as_str()));
        }
        let result = answered(&mut ntp(), 3, 5, 0);
        assert_eq!(reason(&result).0, "ClockNotSet");
        let mut clock = ntp();
        clock.on_look(Some(Timesync::Never), 900, wall(SERVER));
        assert_eq!(reason(&clock.judge()).0, "NTPIsDown");
        let result = answered(&mut clock, 3, SERVER + 40, 0);
        assert_eq!(reason(&result).0, "NTPIsDown");
        // The server decides: the clock is right.
        assert_eq!(answered(&mut clock, 3, SERVER, 0), RuleResult::NoProblem);
    }

    #[test]
    fn without_a_response_timesyncd_decides() {
        let before = |seconds| Some(Timesync::At(Some(wall(SERVER - seconds))));
        for (timesync, uptime, want) in [
            (None, 90_000, "waiting"),
            (Some(Timesync::Never), 899, "waiting"),
            (Some(Timesync::Never), 0, "waiting"),
            (Some(Timesync::Never), 900, "problem"),
            (before(0), 90_000, "none"),
            (before(7200), 90_000, "none"),
            (before(7201), 90_000, "problem"),
            // Older than the boot, as in a copy of the tree.
            (before(90_001), 90_000, "none"),
            (Some(Timesync::At(None)), 90_000, "none"),
        ] {
            let mut clock = ntp();
            clock.on_look(timesync, uptime, wall(SERVER));
            assert_eq!(kind(&clock.judge()), want, "{timesync:?} {uptime:?}");
        }
    }

    fn at_server_time() -> Now {
        Now { mono: Mono::START, wall: wall(SERVER) }
    }

    /// A board that runs for 100 s, with the reader of its root.
    fn board(name: &str) -> (Tree, HostRoot, HealthReader, HealthConfig) {
        let tree = Tree::new(name);
        tree.write("proc/uptime", b"100.00 1\n");
        tree.write("proc/sys/kernel/random/boot_id", b"new\n");
        let root = HostRoot::new(tree.path());
        let reader = HealthReader::new(root.clone(), at_server_time);
        (tree, root, reader, HealthConfig::parse("all", &[]).unwrap())
    }

    /// The disk is mounted after the first look, and its card is dying.
    #[test]
    fn boots_that_cannot_be_read_are_not_written_over() {
        let (tree, root, mut reader, config) = board("health-boots-unread");
        let now = at_server_time;
        let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
        time.look(&mut reader, &config);
        answered(&mut time.ntp, 3, SERVER, 0);
        // In the place of a file with a read that fails.
        std::fs::create_dir_all(tree.join("data/boots")).unwrap();
        assert_eq!(time.record(now()), None);
        std::fs::remove_dir(tree.join("data/boots")).unwrap();
        tree.write("data/boots", b"1 old\n");
        let mut later = HealthReader::new(root, || at(60));
        time.look(&mut later, &config);
        assert!(time.record(now()).is_some());
        assert_eq!(time.history.text(), format!("1 old\n{} new\n", SERVER - 100));
    }

    /// A card that is read-only for a while, and a board without `--root-dir`.
    #[test]
    fn a_condition_stays_while_boots_cannot_be_written() {
        let (tree, root, mut reader, config) = board("health-boots-unwritten");
        let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
        time.look(&mut reader, &config);
        answered(&mut time.ntp, 3, SERVER, 0);
        assert_eq!(time.record(at_server_time()), None);
        assert_eq!(time.judge(REBOOTS.name, at_server_time()), RuleResult::NoSource);
        std::fs::create_dir_all(tree.join("data")).unwrap();
        time.discover(&reader, &config);
        time.look(&mut reader, &config);
        assert!(time.record(at_server_time()).is_some());
        time.on_written(Err("no space left on device".into()), Mono::START);
        assert_eq!(time.judge(REBOOTS.name, at_server_time()), RuleResult::Waiting);
    }

    /// The folder exists also without its disk, perhaps with a file of a boot without the disk.
    #[test]
    fn boots_of_a_disk_that_is_mounted_over_the_folder_are_not_written_over() {
        let own = SERVER - 100;
        let write = |ops: Option<Vec<Op>>| {
            let written = ops.map(|ops| Disk::default().carry_out(ops));
            assert_eq!(written, Some(Ok(())));
        };
        for below in [None, Some("1 below\n")] {
            for mounted_before in ["the record", "the discovery", "the stop"] {
                let (tree, root, mut reader, config) = board("health-boots-over");
                std::fs::create_dir_all(tree.join("data")).unwrap();
                below.inspect(|text| tree.write("data/boots", text.as_bytes()));
                let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
                time.discover(&reader, &config);
                time.look(&mut reader, &config);
                answered(&mut time.ntp, 3, SERVER, 0);
                let reaches = |moment| {
                    if moment == mounted_before {
                        tree.write("data/boots", b"2 old\n");
                    }
                };
                reaches("the record");
                write(time.record(at_server_time()));
                time.on_written(Ok(()), Mono::START);
                reaches("the discovery");
                time.discover(&reader, &config);
                if mounted_before == "the discovery" {
                    assert!(time.is_record_due(at_server_time()));
                    write(time.record(at_server_time()));
                    time.on_written(Ok(()), Mono::START);
                }
                assert!(!time.is_record_due(at_server_time()));
                reaches("the stop");
                write(time.stop(Mono::START));
                let text = std::fs::read_to_string(tree.join("data/boots")).unwrap();
                assert_eq!(text, format!("2 old\n{own} new orderly\n"), "{mounted_before}");
            }
        }
    }

    /// A rule of hours needs no clock that is right to 10 s.
    #[test]
    fn a_boot_is_recorded_by_a_clock_that_no_response_shows_to_be_wrong() {
        for (off, want) in [(0, true), (-20, true), (25, true), (-40, false), (40, false)] {
            let (tree, root, mut reader, config) = board("health-boots-clock");
            std::fs::create_dir_all(tree.join("data")).unwrap();
            let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
            time.look(&mut reader, &config);
            assert!(!time.is_record_due(at_server_time()), "there was no response");
            let shown = SERVER.saturating_add_signed(off);
            answered(&mut time.ntp, 1, shown, 0);
            let now = Now { wall: wall(shown), ..at_server_time() };
            assert_eq!(time.is_record_due(now), want, "{off}");
            assert_eq!(time.record(now).is_some(), want, "{off}");
        }
    }

    /// While a source is suspect, a look comes every 10 s. The server of a root on a network may
    /// have died since the failure.
    #[test]
    fn what_failed_is_tried_again_after_a_minute_and_never_on_a_root_that_can_block() {
        for (root_can_block, want) in [(false, vec![0, 60, 120]), (true, vec![0])] {
            for is_unread in [false, true] {
                let (tree, root, _, config) = board("health-boots-pause");
                let clock = FakeClock::default();
                let shown = clock.clone();
                let mut reader = HealthReader::new(root.clone(), move || shown.now());
                reader.root_can_block = root_can_block;
                let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
                std::fs::create_dir_all(tree.join("data")).unwrap();
                let mut attempts = Vec::new();
                for second in (0..=120).step_by(10) {
                    clock.show(second);
                    // In the place of the file, for the time of the look, with a read that fails.
                    let in_the_way = tree.join("data/boots");
                    if is_unread {
                        std::fs::create_dir(&in_the_way).unwrap();
                    }
                    let failed = time.history.failed;
                    time.discover(&reader, &config);
                    time.look(&mut reader, &config);
                    if is_unread {
                        std::fs::remove_dir(&in_the_way).unwrap();
                        attempts.extend((time.history.failed != failed).then_some(second));
                    }
                    answered(&mut time.ntp, 1, SERVER, 0);
                    if time.record(at(second)).is_some() {
                        time.on_written(Err("no space left".into()), at(second).mono);
                        attempts.push(second);
                    }
                }
                assert_eq!(attempts, want, "{root_can_block} {is_unread}");
            }
        }
    }

    /// Its lines are the boots before this one.
    #[test]
    fn boots_that_cannot_be_read_at_the_stop_are_not_written_over() {
        let (tree, root, mut reader, config) = board("health-boots-stop");
        tree.write("data/boots", b"1 old\n");
        let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
        time.look(&mut reader, &config);
        answered(&mut time.ntp, 3, SERVER, 0);
        assert!(time.record(at_server_time()).is_some());
        time.on_written(Ok(()), Mono::START);
        std::fs::remove_file(tree.join("data/boots")).unwrap();
        std::fs::create_dir(tree.join("data/boots")).unwrap();
        pretend("1 0 0:1 / / rw - nfs4 server:/ rw\n");
        assert!(time.stop(Mono::START).is_some(), "a root whose server may be dead is not read");
        pretend("1 0 0:1 / / rw - ext4 /dev/root rw\n");
        assert_eq!(time.stop(Mono::START), None);
    }

    /// `--root-dir` is on a disk that is mounted after the first response, by fsck or `nofail`.
    #[test]
    fn boots_are_found_on_a_disk_that_is_mounted_late() {
        let (tree, root, mut reader, config) = board("health-boots-late");
        let now = at_server_time;
        for has_failed in [false, true] {
            std::fs::remove_dir_all(tree.join("data")).ok();
            let mut time = TimeSources::new(&root, Path::new("/data"), wall(BUILT));
            time.discover(&reader, &config);
            time.look(&mut reader, &config);
            answered(&mut time.ntp, 3, SERVER, 0);
            if has_failed {
                assert!(time.is_record_due(now()));
                assert_eq!(time.record(now()), None, "there is no folder");
                assert!(!time.is_record_due(now()));
                time.look(&mut reader, &config);
                assert_eq!(time.record(now()), None, "each response would look for it");
            }
            tree.write("data/boots", b"1 old\n");
            if has_failed {
                time.discover(&reader, &config);
                time.look(&mut reader, &config);
            }
            let ops = format!("{:?}", time.record(now()));
            assert!(ops.contains("boots.new"), "{ops}");
            assert!(!time.is_record_due(now()));
            assert_eq!(time.history.text(), format!("1 old\n{} new\n", SERVER - 100));
        }
    }

    #[test]
    fn the_last_answer_of_a_time_server_is_the_time_of_the_file() {
        let tree = Tree::new("health-timesync");
        let root = HostRoot::new(tree.path());
        assert_eq!(timesync(&root), None);
        std::fs::create_dir_all(tree.join(TIMESYNC)).unwrap();
        assert_eq!(timesync(&root), Some(Timesync::Never));
        tree.write(SYNCHRONIZED, b"");
        assert!(matches!(timesync(&root), Some(Timesync::At(Some(_)))));
    }
}
