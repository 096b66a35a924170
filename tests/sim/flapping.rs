//! What changes again and again: the network, a path that makes the Node Ready, signs of a bad board.

use std::time::Duration;

use super::world::{Event, World};

/// What `--ready-when-exists` names.
const READY: &str = "run/test-ready";

impl World {
    /// The program that the Node waits for is there, or not.
    pub(crate) fn make_ready(&mut self, is_ready: bool) {
        match is_ready {
            true => self.board.put(READY, b""),
            false => self.board.remove_all(READY),
        }
    }

    /// Something flaps from now on.
    pub(crate) fn begin_flapping(&mut self) {
        self.plan_at(self.now, Event::Calls(Self::flaps));
    }

    /// One change; the next one follows while the fault lasts.
    pub(crate) fn flaps(&mut self) {
        if self.faults.has("network-flaps") {
            self.hardware(|hardware| hardware.carrier_changes += 1);
            self.network_changed();
        }
        if self.faults.has("ready-flaps") && self.board.is_on {
            let is_ready = self.board.has(READY);
            self.make_ready(!is_ready);
        }
        if self.faults.has("network-flaps") || self.faults.has("ready-flaps") {
            self.plan_at(self.now + Duration::from_millis(450), Event::Calls(Self::flaps));
        } else if self.board.is_on {
            self.make_ready(true);
        }
    }

    /// The kernel oopses, and kills processes for lack of memory, with each pass of the controllers.
    pub(crate) fn repeat_signs(&mut self) {
        if self.faults.has("signs-often") {
            self.hardware(|hardware| {
                hardware.oopses += 1;
                hardware.oom_kills += 1;
            });
        }
    }
}
