//! The board's health: what was seen outside, and what is written and sent of it.

use super::Kubelet;
use crate::core::instant::{Mono, Now};
use crate::core::node;
use crate::core::problems::Pace;
use crate::core::problems::look::Look;

impl Kubelet {
    /// How to look at the sources of the board's health.
    pub fn pace(&self) -> Pace {
        self.problems.pace()
    }

    /// Takes a look at the sources of the board's health.
    pub fn on_look(&mut self, look: &Look, now: Now) {
        self.problems.on_look(look, now);
    }

    /// Takes the first line of each `--node-condition` file.
    pub fn on_files(&mut self, lines: &[Option<String>]) {
        self.problems.on_files(lines);
    }

    /// The file `boots` to write, once per boot.
    pub fn boots_to_write(&mut self, now: Now) -> Option<String> {
        self.problems.boots_to_write(now)
    }

    /// The result of writing the file `boots`.
    pub fn on_boots_written(&mut self, is_ok: bool) {
        self.problems.on_boots_written(is_ok);
    }

    /// The file `boots` to write when this process is asked to stop.
    pub fn boots_at_stop(&mut self) -> Option<String> {
        self.problems.boots_at_stop()
    }

    /// Passes the conditions to the Node, before it is written.
    pub(super) fn publish_problems(&mut self, now: Now) {
        let is_regular = self.node.is_report_due(now.mono);
        let listed = self.problems.publish(is_regular, now);
        self.node.set_problems(listed);
        let events = self.problems.take_events();
        self.push_events(events, false, now.mono);
    }

    /// Passes to the problems what a response said of the conditions on the server.
    pub(super) fn follow_problems(&mut self, step: &node::Step, now: Mono) {
        match step {
            node::Step::Read => self.problems.on_read(self.node.conditions()),
            node::Step::Registered | node::Step::Adopted | node::Step::Updated => {
                self.problems.on_written();
            }
            node::Step::Gone => self.problems.on_gone(),
            node::Step::Continue | node::Step::Refused(_) | node::Step::Silent(_) => {}
        }
        let events = self.problems.take_events();
        self.push_events(events, false, now);
    }
}
