//! UnderVoltage: `in0_lcrit_alarm` of the hwmon with the name `rpi_volt`
//! (drivers/hwmon/raspberrypi-hwmon.c, Linux 4.19). Other files of hwmon are never read: some wait
//! for a bus for seconds.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::condition_state::RuleResult;
use super::reader::{HealthReader, is_numbered, join};
use super::{CheckTexts, ConditionKind, RuleInput, Source, value_or_result};
use crate::kube::facts::{Presence, Read, Unread};
use crate::kube::instant::Mono;
use crate::os::reread_file::RereadFile;

pub(super) const KIND: ConditionKind = ConditionKind {
    name: "UnderVoltage",
    fine: ("SupplyVoltageOK", "the supply voltage is sufficient"),
    // Bursts of the same supply are 20 min apart (raspberrypi/linux#5584).
    problems: &[("UnderVoltageDetected", 3600)],
    source: Some(|| Box::new(UnderVoltage::default())),
    check: CheckTexts {
        name: "under-voltage",
        absent: "no hwmon rpi_volt, which a Raspberry Pi has",
        remedy: "use a stronger supply and a shorter cable",
    },
};

const HWMON: &str = "sys/class/hwmon";
const ALARM: &str = "in0_lcrit_alarm";

/// Looks in a row with the alarm on.
const LOOKS: u32 = 4;
/// After this many drops within [`WINDOW`], the condition is True.
const DIPS: usize = 3;
const WINDOW: Duration = Duration::from_secs(600);

/// `in0_lcrit_alarm` of the hwmon `rpi_volt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Voltage {
    /// The alarm is on.
    pub(super) alarm: bool,
    /// Number of times that the supply dropped since the last look.
    pub(super) dips: u32,
}

/// The alarm, and the drops since the last look.
#[derive(Debug)]
struct Alarm {
    file: RereadFile,
    last: Option<bool>,
    dips: u32,
}

/// The supply of a Raspberry Pi keeps dropping below 4.63 V. The kernel's driver asks the firmware
/// every 2 s, so most drops fall between two looks. The loop therefore also waits for the driver's
/// notification.
#[derive(Debug, Default)]
pub(super) struct UnderVoltage {
    alarm: Option<Alarm>,
    /// Why it is not known whether there is an alarm.
    unread: Option<Unread>,
    pub(super) found: Presence<Voltage>,
    /// Looks in a row with the alarm on.
    looks: u32,
    /// The last [`DIPS`] drops.
    dips: VecDeque<Mono>,
}

impl Source for UnderVoltage {
    /// Finds the alarm. If there is none, or not all files can be read, the previous alarm stays.
    /// An alarm at another path replaces it.
    fn discover(&mut self, reader: &mut HealthReader) {
        let found = reader.whole(Alarm::discover);
        self.unread = found.as_ref().err().cloned();
        // An alarm at the same path keeps its last value. A driver that was bound again has another
        // number in its path.
        if let Ok(Some(found)) = found
            && self.alarm.as_ref().is_none_or(|alarm| alarm.file.path != found.file.path)
        {
            self.alarm = Some(found);
        }
    }

    fn look(&mut self, reader: &mut HealthReader) {
        let found = self.alarm.as_mut().map(|alarm| {
            let is_on = alarm.read(reader)?;
            Ok(Voltage { alarm: is_on, dips: std::mem::take(&mut alarm.dips) })
        });
        let found = found.or_else(|| self.unread.clone().map(Err));
        self.found = found.map_or(Presence::Absent, Presence::of_known);
    }

    fn judge(&mut self, input: &mut RuleInput<'_>) -> RuleResult {
        let now = input.now.mono;
        let voltage = match value_or_result(&self.found) {
            Ok(voltage) => voltage,
            Err(result) => return result,
        };
        self.looks = if voltage.alarm { self.looks.saturating_add(1) } else { 0 };
        let dips = usize::try_from(voltage.dips).unwrap_or(DIPS).min(DIPS);
        self.dips.extend(std::iter::repeat_n(now, dips));
        while self.dips.len() > DIPS || self.dips.front().is_some_and(|at| now.since(*at) > WINDOW)
        {
            self.dips.pop_front();
        }
        if self.looks >= LOOKS || (dips > 0 && self.dips.len() >= DIPS) {
            let message = "the supply voltage keeps dropping below the board's limit";
            return RuleResult::problem(1, "UnderVoltageDetected", message, 0);
        }
        if dips > 0 && input.problem.is_none() {
            let message = "the supply voltage dropped below the board's limit";
            input.signs.push(("UnderVoltageDip", message.to_owned()));
        }
        if voltage.alarm || dips > 0 { RuleResult::NearProblem } else { RuleResult::NoProblem }
    }

    fn is_suspect(&self) -> bool {
        // If the driver was unbound, more looks would find nothing.
        self.found.found().is_some()
            && (self.looks > 0 || self.alarm.as_ref().is_some_and(|alarm| alarm.dips > 0))
    }

    fn paths(&self) -> Vec<String> {
        self.alarm.iter().map(|alarm| alarm.file.path.clone()).collect()
    }

    fn report(&self) -> Option<OwnedFd> {
        self.alarm.as_ref()?.file.file()?.try_clone().ok().map(OwnedFd::from)
    }

    fn on_report(&mut self, reader: &mut HealthReader) {
        if let Some(alarm) = &mut self.alarm {
            let _ = alarm.read(reader);
        }
    }
}

impl Alarm {
    /// The alarm of this board, if it has one.
    fn discover(reader: &mut HealthReader) -> Option<Self> {
        let chips = reader.names(HWMON, &|name| is_numbered(name, "hwmon"));
        let mut folders = chips.iter().map(|chip| join(HWMON, chip));
        let folder = folders.find(|folder| reader.word(folder, "name") == "rpi_volt")?;
        reader.value(&folder, ALARM)?;
        Some(Self { file: RereadFile::new(join(&folder, ALARM)), last: None, dips: 0 })
    }

    /// Reads the alarm and counts a drop. The read also arms the next notification.
    fn read(&mut self, reader: &mut HealthReader) -> Read<bool> {
        let is_notified = self.file.has_changed();
        let alarm = reader.reread_number(&mut self.file)? != 0;
        // What was before the first read is not known.
        let last = self.last.replace(alarm);
        if last.is_some_and(|last| is_dip(last, alarm, is_notified)) {
            self.dips = self.dips.saturating_add(1);
        }
        Ok(alarm)
    }
}

/// Whether the supply dropped between two readings of the alarm. `woken`: the driver notified a
/// change in between. Two equal readings with a change in between hide a drop.
fn is_dip(before: bool, now: bool, woken: bool) -> bool {
    (now && !before) || (woken && now == before)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::health::tests::{Board, FakeClock, unread};
    use crate::kube::instant::Now;
    use crate::os::root::HostRoot;
    use crate::os::tree::Tree;

    fn new_board() -> Board<UnderVoltage, Presence<Voltage>> {
        Board::new(&KIND, |source, found| source.found.clone_from(found))
    }

    fn voltage(alarm: bool, dips: u32) -> Presence<Voltage> {
        Presence::Found(Voltage { alarm, dips })
    }

    #[test]
    fn under_voltage_is_four_looks_or_three_dips_in_ten_minutes() {
        let mut board = new_board();
        assert_eq!(board.looks(3, 10, &voltage(true, 0)), "False");
        assert!(board.is_suspect());
        assert_eq!(board.look(10, &voltage(true, 0)), "UnderVoltageDetected");
        assert!(!board.is_suspect(), "it is found");

        // The driver is unbound while the alarm is on.
        let mut board = new_board();
        board.look(0, &voltage(true, 0));
        board.look(10, &unread());
        assert!(!board.is_suspect(), "there is nothing to look at");
        board.look(60, &voltage(true, 0));
        assert!(board.is_suspect());

        // Three looks, a pause, three looks.
        let mut board = new_board();
        for alarm in [true, true, true, false, true, true, true] {
            board.look(10, &voltage(alarm, 0));
        }
        assert_eq!(board.state(), "False");

        for (second, third, want) in [
            (300, 300, "UnderVoltageDetected"),
            (300, 301, "False"),
            (0, 0, "UnderVoltageDetected"),
        ] {
            let mut board = new_board();
            board.look(0, &voltage(false, 1));
            assert_eq!(board.look(second, &voltage(false, 1)), "False");
            assert_eq!(board.look(third, &voltage(false, 1)), want, "{second} {third}");
        }
        let mut board = new_board();
        assert_eq!(board.look(0, &voltage(false, u32::MAX)), "UnderVoltageDetected");
        // False 60 min after the last dip.
        board.look(1000, &voltage(false, 0));
        board.look(1000, &voltage(false, 1));
        assert_eq!(board.look(60, &voltage(false, 0)), "UnderVoltageDetected");
        board.ends(3600, &voltage(false, 0));
    }

    #[test]
    fn a_single_dip_is_an_event() {
        let mut board = new_board();
        board.look(0, &voltage(false, 0));
        board.look(60, &voltage(false, 1));
        assert_eq!(board.take_signs(), ["UnderVoltageDip"]);
        board.look(60, &voltage(false, 2));
        assert_eq!(board.take_signs(), [] as [&str; 0]);
        board.look(1200, &voltage(false, 1));
        assert_eq!(board.take_signs(), [] as [&str; 0], "it is True");
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

    #[test]
    fn the_first_reading_of_the_alarm_is_the_baseline() {
        let tree = Tree::new("health-alarm");
        tree.write("sys/class/hwmon/hwmon3/name", b"rpi_volt\n");
        let file = "sys/class/hwmon/hwmon3/in0_lcrit_alarm";
        tree.write(file, b"1\n");
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), Now::default);
        let mut source = UnderVoltage::default();
        source.discover(&mut reader);
        for (bytes, alarm, dips) in [("1", true, 0), ("0", false, 0), ("1", true, 1)] {
            tree.write(file, bytes.as_bytes());
            source.look(&mut reader);
            assert_eq!(source.found, voltage(alarm, dips));
        }
        assert!(source.report().is_some());
        for garbage in ["", "N/A", "1.5"] {
            tree.write(file, garbage.as_bytes());
            source.look(&mut reader);
            assert!(source.found.is_unread(), "{garbage:?}");
        }
        std::fs::remove_file(tree.join(file)).unwrap();
        source.alarm.as_mut().unwrap().file = RereadFile::new(file);
        source.look(&mut reader);
        assert!(source.found.is_unread());
        assert!(source.report().is_none());
    }

    /// The kernel reports a change until the next read, which a file that is left out does not get.
    #[test]
    fn an_alarm_that_is_left_out_has_no_reports_to_wait_for() {
        let tree = Tree::new("health-alarm-slow");
        tree.write("sys/class/hwmon/hwmon3/name", b"rpi_volt\n");
        tree.write("sys/class/hwmon/hwmon3/in0_lcrit_alarm", b"0\n");
        let clock = FakeClock::default();
        let shown = clock.clone();
        let mut reader = HealthReader::new(HostRoot::new(tree.path()), move || shown.now());
        let mut source = UnderVoltage::default();
        source.discover(&mut reader);
        for _ in 0..3 {
            clock.0.set((Duration::ZERO, Duration::from_millis(300)));
            let look = reader.begin();
            source.look(&mut reader);
            reader.end(look, true);
            assert!(source.report().is_some());
        }
        clock.show(60);
        source.on_report(&mut reader);
        assert!(source.report().is_none());
        source.look(&mut reader);
        let cause = source.found.clone().present().unwrap_err().cause;
        assert!(cause.starts_with("left out"), "{cause}");
    }
}
