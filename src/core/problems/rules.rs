//! The rules of all condition types, and how long each True lasts after its last sign.

use std::time::Duration;

use super::Pace;
use super::boots::History;
use super::clock::Ntp;
use super::filesystems::{self, Readonly};
use super::heat::Throttling;
use super::kernel::{Deadlock, OOPS};
use super::look::Look;
use super::state::{Problem, State, Verdict};
use super::voltage::UnderVoltage;
use super::wear::WornOut;
use crate::config::problems::{KINDS, Kind};
use crate::core::instant::{Mono, Now};
use crate::kube::time::Wall;

const MINUTE: Duration = Duration::from_secs(60);

/// The event of a sign: the condition type that it belongs to, the reason and the message.
pub(super) type Sign = (Kind, &'static str, String);

/// All rules with their states.
#[derive(Debug)]
pub(super) struct Rules {
    states: [State; KINDS],
    readonly: Readonly,
    worn_out: WornOut,
    under_voltage: UnderVoltage,
    throttling: Throttling,
    deadlock: Deadlock,
    ntp: Ntp,
    history: History,
    /// When this boot began: the time since boot at a look.
    uptime: Option<(Mono, u64)>,
}

impl Rules {
    pub(super) fn new(built: Wall) -> Self {
        Self {
            states: Default::default(),
            readonly: Readonly::default(),
            worn_out: WornOut::default(),
            under_voltage: UnderVoltage::default(),
            throttling: Throttling::default(),
            deadlock: Deadlock::default(),
            ntp: Ntp::new(built),
            history: History::default(),
            uptime: None,
        }
    }

    /// `None` if there is no condition, else its problem.
    pub(super) fn get(&self, kind: Kind) -> Option<Option<&Problem>> {
        self.states.get(kind as usize).and_then(State::get)
    }

    pub(super) fn adopt(&mut self, kind: Kind, problem: Option<Problem>) {
        if let Some(state) = self.states.get_mut(kind as usize) {
            state.adopt(problem);
        }
    }

    fn is_true(&self, kind: Kind) -> bool {
        self.states.get(kind as usize).is_some_and(State::is_true)
    }

    fn step(&mut self, kind: Kind, verdict: Verdict, now: Mono) {
        let is_oops = || {
            let problem = self.get(kind).flatten();
            problem.is_some_and(|problem| problem.reason == OOPS)
        };
        let clear = match kind {
            Kind::ReadonlyFilesystem => MINUTE,
            // Bursts of the same supply are 20 min apart (raspberrypi/linux#5584).
            Kind::UnderVoltage => MINUTE * 60,
            Kind::ThermalThrottling => MINUTE * 5,
            // The counter of oopses is 0 after a boot alone.
            Kind::KernelDeadlock if is_oops() => Duration::ZERO,
            Kind::KernelDeadlock => MINUTE * 10,
            // Kept on disk or by the device, or judged by several responses or boots.
            Kind::FilesystemCorruptionProblem
            | Kind::StorageWornOut
            | Kind::NTPProblem
            | Kind::FrequentReboot => Duration::ZERO,
        };
        if let Some(state) = self.states.get_mut(kind as usize) {
            state.step(verdict, clear, now);
        }
    }

    /// Takes a look; `now.wall` is the board's clock. Returns the signs that have events.
    pub(super) fn on_look(&mut self, look: &Look, now: Now) -> Vec<Sign> {
        let mono = now.mono;
        let wall = now.wall.seconds();
        let mut signs: Vec<Sign> = Vec::new();

        let (verdict, grown) = self.readonly.judge(&look.filesystems, wall, mono);
        self.step(Kind::ReadonlyFilesystem, verdict, mono);
        signs.extend(grown.into_iter().map(|device| {
            let message = format!("{device} has a new ext4 error on record");
            (Kind::FilesystemCorruptionProblem, "Ext4Error", message)
        }));
        let verdict = filesystems::corruption(&look.filesystems, &look.damages);
        self.step(Kind::FilesystemCorruptionProblem, verdict, mono);

        let verdict = self.worn_out.judge(&look.wear, look.discovery);
        self.step(Kind::StorageWornOut, verdict, mono);

        let dips = look.voltage.as_ref().and_then(|v| v.as_ref().ok());
        let has_dipped = dips.is_some_and(|voltage| voltage.dips > 0);
        let verdict = self.under_voltage.judge(&look.voltage, mono);
        self.step(Kind::UnderVoltage, verdict, mono);
        if has_dipped && !self.is_true(Kind::UnderVoltage) {
            let message = "the supply voltage dropped below the board's limit".to_owned();
            signs.push((Kind::UnderVoltage, "UnderVoltageDip", message));
        }

        let verdict = self.throttling.judge(&look.heat);
        self.step(Kind::ThermalThrottling, verdict, mono);

        let was_deadlocked = self.is_true(Kind::KernelDeadlock);
        let (verdict, grown) = self.deadlock.judge(&look.kernel);
        self.step(Kind::KernelDeadlock, verdict, mono);
        // The change of the condition has an event of the same reason.
        for (grew, reason, message) in [
            (grown.oopses, OOPS, "the kernel oopsed"),
            (grown.hung_tasks, "TaskHung", "the kernel found a hung task"),
        ] {
            if grew && was_deadlocked {
                signs.push((Kind::KernelDeadlock, reason, message.to_owned()));
            }
        }

        self.ntp.on_look(look, now.wall);
        if let Some(boots) = &look.boots {
            self.history.load(boots);
        }
        self.uptime = look.uptime_seconds.map(|uptime| (mono, uptime));
        self.judge_clock(now);
        signs
    }

    pub(super) fn on_date(&mut self, date: Wall, start: Mono, now: Now) {
        self.ntp.on_date(date, start, now);
        self.judge_clock(now);
    }

    fn judge_clock(&mut self, now: Now) {
        self.step(Kind::NTPProblem, self.ntp.verdict(), now.mono);
        let wall = (!self.ntp.is_refuted(now.wall)).then(|| now.wall.seconds());
        self.step(Kind::FrequentReboot, self.history.verdict(wall), now.mono);
    }

    pub(super) fn knows_this_boot(&self) -> bool {
        self.history.knows_this_boot()
    }

    pub(super) fn pace(&self) -> Pace {
        let is_open = |kind, is_suspect| is_suspect && !self.is_true(kind);
        Pace {
            is_fast: is_open(Kind::UnderVoltage, self.under_voltage.is_suspect())
                || is_open(Kind::ThermalThrottling, self.throttling.is_suspect()),
            wait_for_voltage: !self.is_true(Kind::UnderVoltage),
        }
    }

    pub(super) fn boots_to_write(&mut self, now: Now) -> Option<String> {
        if !self.ntp.is_vouched() {
            return None;
        }
        let (at, uptime) = self.uptime?;
        let since_boot = Duration::from_secs(uptime).saturating_add(now.mono.since(at));
        self.history.record(now.wall.before(since_boot).seconds())
    }

    pub(super) fn on_boots_written(&mut self, is_ok: bool) {
        self.history.on_written(is_ok);
    }

    pub(super) fn boots_at_stop(&mut self) -> Option<String> {
        self.history.stop()
    }
}
