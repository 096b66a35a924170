//! Events of the Node's changes, which `kubectl describe node` shows.
//!
//! They have the lowest priority: the schedule sends one only if nothing else is due. A refused
//! event is dropped, an unanswered one is retried once, and a repeated one increases the count of
//! the first.
//! Upstream: kubelet_node_status.go recordNodeStatusEvent, client-go `tools/record`.

mod queue;

pub use queue::Queue;

use serde_json::Value;

use crate::core::conditions;
use crate::kube::object;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// A CamelCase word.
    pub reason: &'static str,
    /// One line of text.
    pub message: String,
}

impl Event {
    /// The process started.
    pub fn starting() -> Self {
        Self {
            kind: "Normal",
            reason: "Starting",
            message: "Starting kubelet.".to_owned(),
        }
    }

    /// A planned shutdown of the machine was announced, or cancelled.
    pub fn shutdown(message: &str) -> Self {
        Self {
            kind: "Normal",
            reason: "Shutdown",
            message: message.to_owned(),
        }
    }

    /// The Node was cordoned, or uncordoned.
    pub fn cordoned(node_name: &str, unschedulable: bool) -> Self {
        let reason = match unschedulable {
            true => "NodeNotSchedulable",
            false => "NodeSchedulable",
        };
        Self::status(node_name, reason)
    }

    /// Another board also writes to the Node.
    pub fn name_conflict(node_name: &str, boot_id: &str) -> Self {
        Self {
            kind: "Warning",
            reason: "NodeNameConflict",
            message: format!(
                "Node {node_name} is also written by another board, boot id: {boot_id}; \
                 give each a name of its own with --hostname-override"
            ),
        }
    }

    fn status(node_name: &str, reason: &'static str) -> Self {
        Self {
            kind: "Normal",
            reason,
            message: format!("Node {node_name} status is now: {reason}"),
        }
    }
}

/// A condition, and the reasons of its events when it becomes True and when it becomes False.
const REASONS: [(&str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "NodeHasInsufficientMemory",
        "NodeHasSufficientMemory",
    ),
    (
        "DiskPressure",
        "NodeHasDiskPressure",
        "NodeHasNoDiskPressure",
    ),
    (
        "PIDPressure",
        "NodeHasInsufficientPID",
        "NodeHasSufficientPID",
    ),
    ("Ready", "NodeReady", "NodeNotReady"),
];

/// The events of the change from `before` (`None`: created) to `after`.
///
/// A pressure condition has an event for its first observation, too; `Ready` only for a change.
pub fn of_change(node_name: &str, before: Option<&Value>, after: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let before = before.unwrap_or(&Value::Null);
    let boot_id = |node| object::text(node, &["status", "nodeInfo", "bootID"]).to_owned();
    let (old_boot, new_boot) = (boot_id(before), boot_id(after));
    if !old_boot.is_empty() && old_boot != new_boot {
        events.push(Event {
            kind: "Warning",
            reason: "Rebooted",
            message: format!("Node {node_name} has been rebooted, boot id: {new_boot}"),
        });
    }
    for (condition, on, off) in REASONS {
        let (then, now) = (status_of(before, condition), status_of(after, condition));
        let first = then.is_empty();
        if then != now && !(first && condition == "Ready") {
            let reason = match now {
                "True" => on,
                _ => off,
            };
            events.push(Event::status(node_name, reason));
        }
    }
    events
}

fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    let condition = conditions::find(node, kind);
    condition.map_or("", |condition| object::text(condition, &["status"]))
}

#[cfg(test)]
mod tests;
