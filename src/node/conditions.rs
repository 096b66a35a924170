//! Conditions: the kubelet's, with its reasons, messages and transition rules, and those about the
//! board's health, as `crate::health` judges them.
//!
//! Other clients write to the same list: our four conditions are updated in place, their doubles
//! removed, all others are unchanged, and missing ones are appended, `Ready` last.
//! Upstream: `pkg/kubelet/nodestatus/setters.go`.
//!
//! A condition about the board's health is remembered only in the Node's list on the server: its
//! type is in the list from its first True until it has been False for 24 hours. So a restart of
//! nodelet changes nothing, and a board that never had a problem has no such condition, unless it
//! is always listed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::facts::{HealthCondition, HealthConditions};
use crate::kube::object;
use crate::kube::text::one_line;
use crate::kube::time::Wall;
use crate::node::events::Event;

/// One of the three pressure conditions and its texts.
#[derive(Debug)]
pub struct Pressure {
    kind: &'static str,
    /// Reason and message under pressure.
    on: (&'static str, &'static str),
    /// Reason and message otherwise.
    off: (&'static str, &'static str),
}

/// Too little memory.
pub const MEMORY_PRESSURE: Pressure = Pressure {
    kind: "MemoryPressure",
    on: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    off: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
};

/// Too little space or too few inodes on the node's file system.
pub const DISK_PRESSURE: Pressure = Pressure {
    kind: "DiskPressure",
    on: ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    off: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
};

/// Too few process ids.
pub const PID_PRESSURE: Pressure = Pressure {
    kind: "PIDPressure",
    on: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    off: ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
};

const READY: &str = "Ready";

/// How long a False stays on the list.
const FALSE_STAYS: Duration = Duration::from_secs(24 * 3600);

/// The conditions that we write.
const OURS: [&str; 4] = [MEMORY_PRESSURE.kind, DISK_PRESSURE.kind, PID_PRESSURE.kind, READY];

/// Reasons of an Unknown that node-lifecycle-controller sets while it hears nothing of the Node.
const NOT_HEARD: [&str; 2] = ["NodeStatusUnknown", "NodeStatusNeverUpdated"];

/// Of a pressure that is not known, in their place.
const NOT_READ: (&str, &str) = ("KubeletReadNothing", "kubelet could not read it so far");

/// Sets a pressure condition. If `under` is `None`, the pressure is not known: the condition keeps
/// its status or stays missing, but it no longer says that nobody reports it. As upstream, reason
/// and message change only with the status.
pub fn set_pressure(
    conditions: &mut Vec<Value>,
    pressure: &Pressure,
    under: Option<bool>,
    now: &str,
) {
    drop_doubles(conditions, pressure.kind);
    let Some(under) = under else {
        let is_not_heard = |c: &Value| {
            let reason = object::text(c, &["reason"]);
            is(c, pressure.kind) && status_of(c) == "Unknown" && NOT_HEARD.contains(&reason)
        };
        if let Some(found) = conditions.iter_mut().find(|c| is_not_heard(c)) {
            object::set(found, &["reason"], NOT_READ.0.into());
            object::set(found, &["message"], NOT_READ.1.into());
        }
        return;
    };
    let status = status(under);
    let (reason, message) = if under { pressure.on } else { pressure.off };
    let found = conditions.iter_mut().find(|c| is(c, pressure.kind));
    if found.as_ref().is_some_and(|c| status_of(c) == status) {
        return;
    }
    let condition = condition(pressure.kind, status, reason, message, now);
    match found {
        Some(found) => *found = condition,
        None => conditions.push(condition),
    }
}

/// Sets `Ready`: True without errors. Reason and message are always updated, the transition time
/// only with the status.
pub fn set_ready(conditions: &mut Vec<Value>, errors: &[String], now: &str) {
    let (status, reason) = match errors {
        [] => ("True", "KubeletReady"),
        _ => ("False", "KubeletNotReady"),
    };
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    let message = match distinct.as_slice() {
        [] => "kubelet is posting ready status".to_owned(),
        [one] => one_line(one),
        several => one_line(&format!("[{}]", several.join(", "))),
    };
    drop_doubles(conditions, READY);
    let found = conditions.iter_mut().find(|c| is(c, READY));
    let transition = found
        .as_ref()
        .filter(|c| status_of(c) == status)
        // The server sends an unset time as null and refuses "".
        .map(|c| object::text(c, &["lastTransitionTime"]))
        .filter(|time| !time.is_empty())
        .unwrap_or(now);
    let mut condition = condition(READY, status, reason, &message, transition);
    match found {
        Some(found) => {
            // `set_heartbeat_times` sets it before the patch is sent.
            if let Some(last) = found.get("lastHeartbeatTime") {
                object::set(&mut condition, &["lastHeartbeatTime"], last.clone());
            }
            *found = condition;
        }
        None => conditions.push(condition),
    }
}

/// Keeps the first condition `kind`, which is one of ours. The API server accepts a list with
/// doubles, controllers read all of them, and nobody else removes one.
fn drop_doubles(conditions: &mut Vec<Value>, kind: &str) {
    let mut is_found = false;
    conditions.retain(|c| !is(c, kind) || !std::mem::replace(&mut is_found, true));
}

/// Sets `lastHeartbeatTime` of our four conditions, and of those that `is_extra` selects by type,
/// before they are sent.
pub fn set_heartbeat_times(conditions: &mut [Value], is_extra: impl Fn(&str) -> bool, now: &str) {
    for condition in conditions {
        let kind = object::text(condition, &["type"]);
        if OURS.contains(&kind) || is_extra(kind) {
            object::set(condition, &["lastHeartbeatTime"], now.into());
        }
    }
}

fn is(condition: &Value, kind: &str) -> bool {
    object::text(condition, &["type"]) == kind
}

/// The text of a status that is not Unknown.
fn status(is_true: bool) -> &'static str {
    if is_true { "True" } else { "False" }
}

/// A condition whose status changed `now`.
pub(crate) fn condition(kind: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({
        "type": kind,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    })
}

impl HealthConditions {
    /// Whether a status differs from the Node's `list`, so that a problem begins or ends. Such a
    /// change gets a patch of its own. Other changes, such as a new message, wait for the next
    /// one.
    pub fn changes_status(&self, list: &[Value]) -> bool {
        self.known.iter().any(|new| match object::of_type(list, &new.name) {
            Some(old) => status_of(old) != status(new.is_true),
            None => new.is_true || new.is_always_listed,
        })
    }

    /// Writes the conditions into the Node's `list`. A condition with an equal status, reason and
    /// message is unchanged; the transition time changes only with the status. A new condition is
    /// inserted before Ready, which stays last.
    pub fn apply(&self, list: &mut Vec<Value>, now: Wall) {
        list.retain(|old| !self.removes(old, now));
        for new in &self.known {
            drop_doubles(list, &new.name);
            let (status, now) = (status(new.is_true), now.time());
            let mut wanted = condition(&new.name, status, &new.reason, &new.message, &now);
            let Some(old) = list.iter_mut().find(|c| is(c, &new.name)) else {
                if new.is_true || new.is_always_listed {
                    let ready = list.iter().position(|c| is(c, READY));
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

    /// Whether the condition `old` leaves the list: the board has no source for its type, or it has
    /// been False for 24 hours. With a time of the future it stays: it may be the clock of now that
    /// is wrong, as after a boot without an RTC.
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

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: &str = "2012-01-01T00:00:00Z";
    const NOW: &str = "2026-11-21T06:18:51Z";

    fn old(kind: &str, status: &str) -> Value {
        let mut condition = condition(kind, status, "OldReason", "old message", THEN);
        object::members(&mut condition, &[]).insert("foreign".into(), 1.into());
        condition
    }

    fn times(condition: &Value) -> [&str; 2] {
        ["lastHeartbeatTime", "lastTransitionTime"].map(|key| object::text(condition, &[key]))
    }

    /// setters_test.go TestMemoryPressureCondition, TestPIDPressureCondition,
    /// TestDiskPressureCondition. The events are in `events/tests.rs`.
    #[test]
    fn test_pressure_conditions() {
        for pressure in [MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE] {
            for under in [false, true] {
                let (status, other) = if under { ("True", "False") } else { ("False", "True") };
                let (reason, message) = if under { pressure.on } else { pressure.off };
                for before in [None, Some(other), Some("Unknown")] {
                    let mut conditions = Vec::from_iter(before.map(|s| old(pressure.kind, s)));
                    set_pressure(&mut conditions, &pressure, Some(under), NOW);
                    let want = condition(pressure.kind, status, reason, message, NOW);
                    assert_eq!(conditions, [want], "{before:?}");
                }
                // Unread, it is Unknown, and not said to be unreported.
                for reason in NOT_HEARD {
                    let mut unknown = old(pressure.kind, "Unknown");
                    object::set(&mut unknown, &["reason"], reason.into());
                    let mut conditions = vec![unknown];
                    set_pressure(&mut conditions, &pressure, None, NOW);
                    let (reason, message) = NOT_READ;
                    let want = condition(pressure.kind, "Unknown", reason, message, THEN);
                    for key in ["status", "reason", "message", "lastTransitionTime"] {
                        assert_eq!(conditions[0][key], want[key]);
                    }
                }
                // Only the heartbeat changes; also of an Unknown whose fact is unread.
                for (status, under) in [(status, Some(under)), ("Unknown", None)] {
                    let mut conditions = vec![old(pressure.kind, status)];
                    set_pressure(&mut conditions, &pressure, under, NOW);
                    assert_eq!(conditions, [old(pressure.kind, status)]);
                    set_heartbeat_times(&mut conditions, |_| false, NOW);
                    assert_eq!(conditions.iter().map(times).collect::<Vec<_>>(), [[NOW, THEN]]);
                }
            }
        }
    }

    /// setters_test.go TestReadyCondition. The events are in `events/tests.rs`, the missing
    /// capacities in `status/resources/tests/mod.rs`. There are no soft requirements here.
    #[test]
    fn test_ready_condition() {
        let posting = "kubelet is posting ready status";
        let storage = "some storage error";
        let failed = &[storage.to_owned()][..];
        let runtime = ["runtime".to_owned(), "network".to_owned()];
        let unset = json!({"type": READY, "status": "True"});
        let null = json!({"type": READY, "status": "True", "lastTransitionTime": null});
        for (name, before, errors, status, message, transition) in [
            ("new, ready", None, &[][..], "True", posting, NOW),
            ("the same twice", None, &["a".into(), "a".into()], "False", "a", NOW),
            ("foreign text", None, &["a\n<0>b\u{1b}[2J".into()], "False", "a <0>b [2J", NOW),
            // As with "shutdown active" and "no capacity".
            ("new, not ready: storage error", None, failed, "False", storage, NOW),
            ("new, not ready: runtime", None, &runtime, "False", "[runtime, network]", NOW),
            ("False to True", Some(old(READY, "False")), &[], "True", posting, NOW),
            ("True to False", Some(old(READY, "True")), failed, "False", storage, NOW),
            ("True to True", Some(old(READY, "True")), &[], "True", posting, THEN),
            ("False to False", Some(old(READY, "False")), failed, "False", storage, THEN),
            // The server sends an unset time as null and refuses "".
            ("no transition time", Some(unset), &[], "True", posting, NOW),
            ("a null one", Some(null), &[], "True", posting, NOW),
        ] {
            let mut conditions = Vec::from_iter(before);
            set_ready(&mut conditions, errors, NOW);
            set_heartbeat_times(&mut conditions, |_| false, NOW);
            let reason = match status {
                "True" => "KubeletReady",
                _ => "KubeletNotReady",
            };
            let mut want = condition(READY, status, reason, message, NOW);
            want["lastTransitionTime"] = transition.into();
            assert_eq!(conditions, [want], "{name}");
        }
    }

    #[test]
    fn of_doubles_the_first_is_set_and_the_others_are_removed() {
        let mut conditions = vec![
            old(READY, "False"),
            old("PIDPressure", "True"),
            old("MemoryPressure", "True"),
            old("Foreign", "True"),
            old("PIDPressure", "False"),
            old("MemoryPressure", "False"),
            old(READY, "Unknown"),
            old("Foreign", "False"),
        ];
        let [_, _, memory, foreign, _, _, _, double]: [Value; 8] =
            conditions.clone().try_into().unwrap();
        set_pressure(&mut conditions, &PID_PRESSURE, Some(false), NOW);
        set_pressure(&mut conditions, &MEMORY_PRESSURE, None, NOW);
        set_pressure(&mut conditions, &DISK_PRESSURE, None, NOW);
        set_ready(&mut conditions, &[], NOW);
        let (reason, message) = PID_PRESSURE.off;
        let pid = condition("PIDPressure", "False", reason, message, NOW);
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": THEN, "lastTransitionTime": NOW,
        });
        assert_eq!(conditions, [ready, pid, memory, foreign, double]);
    }
}
