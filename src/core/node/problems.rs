//! The conditions about the board's health on the Node.

use serde_json::Value;

use super::Node;
use crate::core::instant::Mono;
use crate::core::problems::Listed;
use crate::kube::object;

impl Node {
    /// Whether the next write is a report, which is sent even if nothing changed.
    pub fn is_report_due(&self, now: Mono) -> bool {
        now >= self.report_due
    }

    /// The conditions that the following writes set and delete.
    pub fn set_problems(&mut self, problems: Listed) {
        if self.problems != problems {
            self.problems = problems;
            self.last_noop = None;
        }
    }

    /// The conditions of the Node as last read or written; empty if it is not known.
    pub fn conditions(&self) -> &[Value] {
        let node = self.seen.as_ref();
        node.map_or(&[], |node| object::list(node, &["status", "conditions"]))
    }
}
