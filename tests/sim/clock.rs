//! A board without a clock that runs while it is off: it begins each boot in 1970, until NTP has an
//! answer.

use std::time::Duration;

use super::draw::draw;
use super::world::{Event, World};

impl World {
    /// The kernel starts.
    pub(crate) fn start_clock(&mut self) {
        if self.plan.setting("rtc") != "no" {
            return;
        }
        self.clock_at(Some(5));
        self.hardware(|hardware| hardware.is_time_synchronized = false);
        let delay = match draw(self.plan.seed, "ntp", self.board.boots) % 3 {
            0 => 2,
            1 => 40,
            _ => 400,
        };
        self.plan_at(self.now + Duration::from_secs(delay), Event::Calls(Self::synchronize));
    }

    /// NTP asks for the time. The world of a twin does not change.
    pub(crate) fn synchronize(&mut self) {
        if ["no-network", "partition", "twin"].iter().any(|class| self.faults.has(class)) {
            return self
                .plan_at(self.now + Duration::from_secs(16), Event::Calls(Self::synchronize));
        }
        self.set_clock();
        self.hardware(|hardware| hardware.is_time_synchronized = true);
    }
}
