//! UnderVoltage: the supply of a Raspberry Pi keeps dropping below 4.63 V.
//!
//! The kernel's driver asks the firmware every 2 s, so most drops fall between two looks. The loop
//! therefore also waits for the driver's notification.

use std::collections::VecDeque;
use std::time::Duration;

use super::look::{Source, Voltage};
use super::state::{Problem, Verdict};
use crate::core::instant::Mono;

/// Looks in a row with the alarm on.
const LOOKS: u32 = 4;
/// Drops within [`WINDOW`].
const DIPS: usize = 3;
const WINDOW: Duration = Duration::from_secs(600);

/// Whether the supply dropped between two readings of the alarm. `woken`: the driver notified a
/// change in between. Two equal readings with a change in between hide a drop.
pub fn is_dip(before: bool, now: bool, woken: bool) -> bool {
    (now && !before) || (woken && now == before)
}

/// The state of the rule.
#[derive(Debug, Default)]
pub(super) struct UnderVoltage {
    /// Looks in a row with the alarm on.
    looks: u32,
    /// The last [`DIPS`] drops.
    dips: VecDeque<Mono>,
}

impl UnderVoltage {
    pub(super) fn judge(&mut self, voltage: &Source<Voltage>, now: Mono) -> Verdict {
        let voltage = match voltage {
            None => return Verdict::NoSource,
            Some(Err(_)) => return Verdict::Unread,
            Some(Ok(voltage)) => voltage,
        };
        self.looks = match voltage.alarm {
            true => self.looks.saturating_add(1),
            false => 0,
        };
        let dips = usize::try_from(voltage.dips).unwrap_or(DIPS).min(DIPS);
        self.dips.extend(std::iter::repeat_n(now, dips));
        while self.dips.len() > DIPS || self.dips.front().is_some_and(|at| now.since(*at) > WINDOW)
        {
            self.dips.pop_front();
        }
        if self.looks >= LOOKS || (dips > 0 && self.dips.len() >= DIPS) {
            return Verdict::Problem(Problem::new(
                1,
                "UnderVoltageDetected",
                "the supply voltage keeps dropping below the board's limit",
                0,
            ));
        }
        match voltage.alarm || dips > 0 {
            true => Verdict::Close,
            false => Verdict::Quiet,
        }
    }

    /// Whether the alarm may become a problem with the next looks.
    pub(super) fn is_suspect(&self) -> bool {
        self.looks > 0
    }
}
