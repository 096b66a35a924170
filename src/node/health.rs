//! The conditions about the board's health, as `crate::health` judges them, on the Node.
//!
//! The server's list is the only memory: a type is on it from its first True until it has been
//! False for 24 hours. So a restart changes nothing, and a healthy board sends nothing.

use std::time::Duration;

use serde_json::Value;

use crate::kube::facts::{HealthCondition, HealthConditions};
use crate::kube::object;
use crate::kube::time::Wall;
use crate::node::conditions::{condition, drop_doubles, is, status};
use crate::node::events::Event;

/// How long a False stays on the list.
const FALSE_STAYS: Duration = Duration::from_secs(24 * 3600);

impl HealthConditions {
    /// Whether a problem begins or ends compared with the Node's `list`, which is worth a patch of
    /// its own. Other changes are sent with a report.
    pub fn changes_status(&self, list: &[Value]) -> bool {
        self.known.iter().any(|new| match object::of_type(list, &new.name) {
            Some(old) => status_of(old) != status(new.is_true),
            None => new.is_true || new.is_always_listed,
        })
    }

    /// Sets the conditions in the Node's `list`. An equal one is unchanged; the transition time
    /// changes with the status. New ones come before Ready, as after the kubelet's own setters.
    pub fn apply(&self, list: &mut Vec<Value>, now: Wall) {
        list.retain(|old| !self.removes(old, now));
        for new in &self.known {
            drop_doubles(list, &new.name);
            let (status, now) = (status(new.is_true), now.time());
            let mut wanted = condition(&new.name, status, &new.reason, &new.message, &now);
            let Some(old) = list.iter_mut().find(|c| is(c, &new.name)) else {
                if new.is_true || new.is_always_listed {
                    let ready = list.iter().position(|c| is(c, "Ready"));
                    list.insert(ready.unwrap_or(list.len()), wanted);
                }
                continue;
            };
            let is_equal = |key: &str| object::text(old, &[key]) == object::text(&wanted, &[key]);
            let is_same_status = is_equal("status");
            if is_same_status && is_equal("reason") && is_equal("message") {
                continue;
            }
            let since = object::text(old, &["lastTransitionTime"]);
            if is_same_status && !since.is_empty() {
                object::set(&mut wanted, &["lastTransitionTime"], since.into());
            }
            *old = wanted;
        }
    }

    fn removes(&self, old: &Value, now: Wall) -> bool {
        let is_over = |new: &HealthCondition| {
            let since = Wall::parse(object::text(old, &["lastTransitionTime"]));
            let is_recent = since.is_some_and(|since| now.since(since) < FALSE_STAYS);
            is(old, &new.name)
                && !new.is_true
                && !new.is_always_listed
                && status_of(old) == status(false)
                && !is_recent
        };
        self.absent.iter().any(|name| is(old, name)) || self.known.iter().any(is_over)
    }

    /// Whether `name` is the type of a known condition.
    pub fn knows(&self, name: &str) -> bool {
        self.known.iter().any(|ours| ours.name == name)
    }

    /// The events of the changes of the Node's list from `before` to `after`, with
    /// node-problem-detector's text. A condition that is False when it first appears causes none.
    pub fn events(&self, before: &[Value], after: &[Value]) -> Vec<Event> {
        let mut events = Vec::new();
        for HealthCondition { name, event_reason, .. } in &self.known {
            let Some(new) = object::of_type(after, name) else {
                continue;
            };
            let status = status_of(new);
            if object::of_type(before, name).map_or("False", status_of) != status {
                let (reason, message) =
                    (object::text(new, &["reason"]), object::text(new, &["message"]));
                let text = format!(
                    "Node condition {name} is now: {status}, reason: {reason}, message: \"{message}\""
                );
                let kind = if status == "True" { "Warning" } else { "Normal" };
                events.push(Event::of_health(kind, event_reason, text));
            }
        }
        events
    }
}

fn status_of(condition: &Value) -> &str {
    object::text(condition, &["status"])
}
