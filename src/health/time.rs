//! NTPProblem and FrequentReboot, which need the API server's time: `run/systemd/timesync`,
//! `proc/uptime`, and the file `boots` in `--root-dir`.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use super::condition_state::RuleResult;
use super::config::HealthConfig;
use super::reader::HealthReader;
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
pub(super) struct Time {
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

impl Time {
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
        // Its disk may be mounted by now.
        if self.history.is_missing() {
            (self.history.exists, self.history.has_failed) = (None, false);
        }
    }

    pub(super) fn look(&mut self, reader: &mut HealthReader, config: &HealthConfig) {
        let timesync = if self.has_timesync { timesync(&reader.root) } else { None };
        let uptime = uptime(&mut self.uptime, reader);
        let now = reader.now();
        self.booted = uptime.map(|uptime| (now.mono, uptime));
        self.ntp.on_look(timesync, uptime.unwrap_or_default(), now.wall);
        if self.history.exists.is_none() && config.detects(REBOOTS.name) {
            self.load(now.mono);
        }
        // A write that failed is tried again, at most once for each look.
        self.history.has_failed &= self.log.last_error().is_none();
        // The first look may not have come so far.
        if self.history.id.is_none() {
            let id = Presence::from(reader.root.text("proc/sys/kernel/random/boot_id", SMALL));
            let id = id.present().map(Option::unwrap_or_default);
            self.history.id = id.ok().map(|id| id.trim().to_owned());
        }
    }

    /// Reads the file `boots`, at each look until that succeeds. A file that cannot be read is not
    /// written over, because it has the earlier boots.
    fn load(&mut self, now: Mono) {
        let bytes = guard::found(&self.boots).and_then(|path| read_found(&path));
        match Presence::from(bytes.map_err(|error| unread("boots", &error))).present() {
            Ok(bytes) => {
                self.history.load(bytes.as_deref().map(String::from_utf8_lossy).as_deref());
                self.log.succeeded(now);
            }
            Err(unread) => {
                self.history.exists = None;
                self.log.failed(&format!("cannot be read: {}", unread.cause), now);
            }
        }
    }

    /// The rule of the condition `name`.
    pub(super) fn judge(&self, name: &str, now: Now) -> RuleResult {
        if name == NTP.name {
            return self.ntp.judge();
        }
        let is_right = !self.ntp.is_refuted(now.wall);
        self.history.judge(is_right.then(|| now.wall.seconds()))
    }

    /// When this boot began, by a clock that is not known to be wrong.
    pub(super) fn began(&self, now: Now) -> Option<Wall> {
        let (at, uptime) = self.booted.filter(|_| !self.ntp.is_refuted(now.wall))?;
        let since_boot = Duration::from_secs(uptime).saturating_add(now.mono.since(at));
        Some(now.wall.before(since_boot))
    }

    /// Whether the file `boots` lacks a line of this boot, and a response has shown that the clock
    /// is right. After a failed write, each look allows another attempt.
    pub(super) fn is_record_due(&self, now: Now) -> bool {
        self.history.may_record() && self.ntp.is_vouched() && self.began(now).is_some()
    }

    /// The operations that write the line, if that is due. Looks for the folder of the file.
    pub(super) fn record(&mut self, now: Now) -> Option<Vec<Op>> {
        let began = self.began(now).filter(|_| self.ntp.is_vouched())?;
        if self.history.is_missing() && !self.history.has_failed {
            self.load(now.mono);
        }
        let text = self.history.record(began.seconds())?;
        let ops = self.change(text);
        if ops.is_none() {
            self.history.on_written(false);
        }
        ops
    }

    /// Takes the result of a write.
    pub(super) fn on_written(&mut self, result: Result<(), Fault>, now: Mono) {
        self.history.on_written(result.is_ok());
        let error = result.err().map(|why| {
            format!("cannot be written: {why}; make --root-dir writable for FrequentReboot")
        });
        self.log.ended(error.as_deref(), now);
    }

    /// The operations that record an orderly stop.
    pub(super) fn stop(&mut self) -> Option<Vec<Op>> {
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

    /// Whether the last response showed that the board's clock is right.
    pub(super) fn is_vouched(&self) -> bool {
        self.right > 0
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

/// Number of lines that are kept.
const MAX_LINES: usize = 16;
const HOUR: u64 = 3600;
const DAY: u64 = 86_400;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Boot {
    /// Seconds since 1970.
    at: u64,
    id: String,
    is_orderly: bool,
}

/// The rule of FrequentReboot, and the file `boots` in `--root-dir`: one line for each boot,
/// `<unix seconds> <boot id>`, and ` orderly` if the agent was stopped before the boot ended.
///
/// A boot counts if the one before it did not end orderly. The state follows from the file, so a
/// restart of the agent changes nothing. A line is written once per boot, when a response of the
/// API server has shown that the clock is right.
#[derive(Debug, Default)]
pub(super) struct History {
    boots: Vec<Boot>,
    /// The id of this boot, empty if the kernel does not tell it; `None` before it was read.
    pub(super) id: Option<String>,
    /// Whether the file exists; `None` before it was read.
    pub(super) exists: Option<bool>,
    /// The file cannot be written.
    has_failed: bool,
    /// This boot has a line, without `orderly`. `is_unsaved`: that changed since the last write.
    is_recorded: bool,
    is_unsaved: bool,
}

impl History {
    /// Takes the file, if it exists.
    pub(super) fn load(&mut self, text: Option<&str>) {
        self.exists = Some(text.is_some());
        self.boots = text.unwrap_or_default().lines().filter_map(parse_boot).collect();
        self.trim();
    }

    /// Whether there was no file when it was last looked for, and this process has made none.
    fn is_missing(&self) -> bool {
        self.exists == Some(false) && !self.is_recorded
    }

    /// Keeps only the last [`MAX_LINES`] lines.
    fn trim(&mut self) {
        let excess = self.boots.len().saturating_sub(MAX_LINES);
        self.boots.drain(..excess);
    }

    /// False if the boot has its line or no id, the file was not read, or its last write failed.
    fn may_record(&self) -> bool {
        let is_ready = self.exists.is_some() && self.id.as_ref().is_some_and(|id| !id.is_empty());
        is_ready && !self.is_recorded && !self.has_failed
    }

    /// The file with a line of this boot, which began `at`; `None` if it may not be written.
    pub(super) fn record(&mut self, at: u64) -> Option<String> {
        let id = self.id.as_ref().filter(|_| self.may_record())?;
        match self.boots.last_mut() {
            // An earlier process of this boot was stopped; the boot goes on.
            Some(last) if last.id == *id => {
                self.is_unsaved |= std::mem::take(&mut last.is_orderly);
            }
            _ => {
                self.boots.push(Boot { at, id: id.clone(), is_orderly: false });
                self.trim();
                self.is_unsaved = true;
            }
        }
        self.is_recorded = true;
        self.is_unsaved.then(|| self.text())
    }

    /// The file at the end of this process; `None` if it has no line of this boot. A write that
    /// failed is not tried once more.
    pub(super) fn stop(&mut self) -> Option<String> {
        let last = self.boots.last_mut().filter(|_| self.is_recorded)?;
        last.is_orderly = true;
        Some(self.text())
    }

    /// Takes the result of the write.
    pub(super) fn on_written(&mut self, is_ok: bool) {
        self.exists = self.exists.map(|exists| exists | is_ok);
        self.has_failed = !is_ok;
        self.is_recorded &= is_ok;
        self.is_unsaved &= !is_ok;
    }

    /// Whether the board is in a series of reboots at `now`, in seconds since 1970. `None`: the
    /// clock is not known to be right.
    pub(super) fn judge(&self, now: Option<u64>) -> RuleResult {
        let can_be_made = !self.has_failed && self.id.as_deref() != Some("");
        let now = match (self.exists, now) {
            (None, _) => return RuleResult::Unread,
            (Some(false), _) if !can_be_made => return RuleResult::NoSource,
            (Some(true), Some(now)) => now,
            _ => return RuleResult::Waiting,
        };
        let pairs = self.boots.iter().zip(self.boots.iter().skip(1));
        let times: Vec<u64> =
            pairs.filter(|(before, _)| !before.is_orderly).map(|(_, boot)| boot.at).collect();
        let count = |now: u64, span: u64| {
            let is_recent = |at: &&u64| **at <= now && at.saturating_add(span) > now;
            times.iter().filter(is_recent).count()
        };
        // The boots are replayed, because a True lasts until a day has at most two.
        let is_bad = times.iter().chain([&now]).fold(false, |was_bad, at| {
            let day = count(*at, DAY);
            count(*at, HOUR) >= 3 || day >= 4 || (was_bad && day > 2)
        });
        if !is_bad {
            return RuleResult::NoProblem;
        }
        let message = if count(now, HOUR) >= 3 {
            "3 boots in an hour without an orderly stop"
        } else {
            "4 boots in a day without an orderly stop"
        };
        RuleResult::problem(1, "FrequentReboot", message, 0)
    }

    fn text(&self) -> String {
        let line = |boot: &Boot| {
            let end = if boot.is_orderly { " orderly" } else { "" };
            format!("{} {}{end}\n", boot.at, boot.id)
        };
        self.boots.iter().map(line).collect()
    }
}

/// One line; `None` if it has another form.
fn parse_boot(line: &str) -> Option<Boot> {
    let mut words = line.split_whitespace();
    let at = words.next()?.parse().ok()?;
    let id = words.next().filter(|id| id.len() <= 64)?.to_owned();
    let is_orderly = match words.next() {
        None => false,
        Some("orderly") => true,
        Some(_) => return None,
    };
    Some(Boot { at, id, is_orderly })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::os::tree::Tree;

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

    fn history(text: &str, id: &str) -> History {
        let mut history = History { id: Some(id.to_owned()), ..History::default() };
        history.load(Some(text));
        history
    }

    /// A file with a boot at each time.
    fn boots(times: &[u64], end: &str) -> String {
        let line = |(number, at): (usize, &u64)| format!("{at} id{number}{end}\n");
        times.iter().enumerate().map(line).collect()
    }

    fn is_bad(times: &[u64], now: u64) -> bool {
        let result = history(&boots(times, ""), "x").judge(Some(now));
        assert!(matches!(result, RuleResult::NoProblem | RuleResult::Problem(_)));
        result != RuleResult::NoProblem
    }

    #[test]
    fn three_boots_in_an_hour_or_four_in_a_day_are_frequent() {
        const T: u64 = 1_783_000_000;
        // The first line's predecessor is unknown, so that boot does not count.
        for (times, now, want) in [
            (vec![], T, false),
            (vec![T], T, false),
            (vec![T, T + 1, T + 2], T + 3, false),
            (vec![T, T + 1, T + 2, T + 3], T + 3, true),
            // 3 within 3,599 s, and within 3,600 s.
            (vec![0, T, T + 1, T + 3599], T + 3599, true),
            (vec![0, T, T + 1, T + 3600], T + 3600, false),
            // 4 within a day.
            (vec![0, T, T + 8000, T + 16_000, T + 86_399], T + 86_399, true),
            (vec![0, T, T + 8000, T + 16_000, T + 86_400], T + 86_400, false),
            // It ends when at most two are left within 24 h.
            (vec![0, T, T + 1, T + 2], T + 86_399, true),
            (vec![0, T, T + 1, T + 2], T + 86_400, false),
            // A clock that was behind.
            (vec![0, T, T + 1, T + 2], T - 100, false),
        ] {
            assert_eq!(is_bad(&times, now), want, "{times:?} {now}");
        }
        let times = [T, T + 1, T + 2, T + 3, T + 4, T + 5];
        let orderly = history(&boots(&times, " orderly"), "x");
        assert_eq!(orderly.judge(Some(T + 6)), RuleResult::NoProblem);
    }

    #[test]
    fn a_boot_is_recorded_once_and_a_stop_makes_it_orderly() {
        let mut first = History { id: Some("a".to_owned()), ..History::default() };
        first.load(None);
        assert_eq!(first.judge(Some(100)), RuleResult::Waiting);
        assert_eq!(first.stop(), None, "not recorded");
        assert_eq!(first.record(7).as_deref(), Some("7 a\n"));
        first.on_written(true);
        assert_eq!(first.record(8), None);
        assert_eq!(first.judge(Some(100)), RuleResult::NoProblem);
        assert_eq!(first.judge(None), RuleResult::Waiting);
        assert_eq!(first.stop().as_deref(), Some("7 a orderly\n"));

        // A restart in the same boot: it is not over.
        let mut again = history("7 a orderly\n", "a");
        assert_eq!(again.record(9).as_deref(), Some("7 a\n"));
        let mut crashed = history("7 a\n", "a");
        assert_eq!(crashed.record(9), None);
        assert_eq!(crashed.stop().as_deref(), Some("7 a orderly\n"));

        let mut next = history("7 a orderly\n", "b");
        assert_eq!(next.stop(), None, "the last line is of another boot");
        assert_eq!(next.record(9).as_deref(), Some("7 a orderly\n9 b\n"));
    }

    #[test]
    fn sixteen_lines_are_kept_and_garbage_is_dropped() {
        let times: Vec<u64> = (0..40).collect();
        let mut long = history(&format!("{}x\n-1 a\n5 b late\n\0\n", boots(&times, "")), "new");
        let text = long.record(99).unwrap();
        assert_eq!(text.lines().count(), 16);
        assert!(text.starts_with("25 id25\n") && text.ends_with("39 id39\n99 new\n"));
    }

    #[test]
    fn a_file_that_cannot_be_made_is_no_source_and_one_that_was_read_stays_one() {
        const T: u64 = 1_783_000_000;
        let mut none = History { id: Some("a".to_owned()), ..History::default() };
        none.load(None);
        assert!(none.record(T).is_some());
        none.on_written(false);
        assert_eq!(none.judge(Some(T)), RuleResult::NoSource);
        assert_eq!(none.record(T + 2), None);
        assert_eq!(none.stop(), None, "a write that failed is not repeated by a stop");
        let mut unknown = History { id: Some(String::new()), ..History::default() };
        unknown.load(None);
        assert_eq!(unknown.judge(Some(T)), RuleResult::NoSource);
        let mut bad = history(&boots(&[T, T + 1, T + 2], ""), "a");
        assert!(bad.record(T + 3).is_some());
        bad.on_written(false);
        assert!(matches!(bad.judge(Some(T + 4)), RuleResult::Problem(_)), "this boot counts, too");
        bad.has_failed = false;
        let text = boots(&[T, T + 1, T + 2], "") + &format!("{} a\n", T + 3);
        assert_eq!(bad.record(T + 60), Some(text), "this boot has one line");
        bad.on_written(true);
        assert_eq!(bad.record(T + 120), None);
    }

    /// The lines in it are the boots before this one.
    #[test]
    fn a_file_that_was_not_read_says_nothing_and_is_not_written_over() {
        let mut history = History { id: Some("a".to_owned()), ..History::default() };
        assert_eq!(history.judge(Some(5)), RuleResult::Unread);
        assert_eq!(history.record(5), None);
        history.load(Some("1 old\n"));
        assert_eq!(history.record(5).as_deref(), Some("1 old\n5 a\n"));
    }

    fn at_server() -> Now {
        Now { mono: Mono::START, wall: wall(SERVER) }
    }

    /// A board that runs for 100 s, with the reader of its root.
    fn board(name: &str) -> (Tree, HostRoot, HealthReader, HealthConfig) {
        let tree = Tree::new(name);
        tree.write("proc/uptime", b"100.00 1\n");
        tree.write("proc/sys/kernel/random/boot_id", b"new\n");
        let root = HostRoot::new(tree.path());
        let reader = HealthReader::new(root.clone(), at_server);
        (tree, root, reader, HealthConfig::parse("all", &[]).unwrap())
    }

    /// The disk is mounted after the first look, and its card is dying.
    #[test]
    fn boots_that_cannot_be_read_are_not_written_over() {
        let (tree, root, mut reader, config) = board("health-boots-unread");
        let now = at_server;
        let mut time = Time::new(&root, Path::new("/data"), wall(BUILT));
        time.look(&mut reader, &config);
        answered(&mut time.ntp, 3, SERVER, 0);
        // In the place of a file with a read that fails.
        std::fs::create_dir_all(tree.join("data/boots")).unwrap();
        assert_eq!(time.record(now()), None);
        std::fs::remove_dir(tree.join("data/boots")).unwrap();
        tree.write("data/boots", b"1 old\n");
        time.look(&mut reader, &config);
        assert!(time.record(now()).is_some());
        assert_eq!(time.history.text(), format!("1 old\n{} new\n", SERVER - 100));
    }

    /// `--root-dir` is on a disk that is mounted after the first response, by fsck or `nofail`.
    #[test]
    fn boots_are_found_on_a_disk_that_is_mounted_late() {
        let (tree, root, mut reader, config) = board("health-boots-late");
        let now = at_server;
        for has_failed in [false, true] {
            std::fs::remove_dir_all(tree.join("data")).ok();
            let mut time = Time::new(&root, Path::new("/data"), wall(BUILT));
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
