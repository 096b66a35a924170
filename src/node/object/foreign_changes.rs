//! Changes that other clients made to the Node, and what follows: an event or a forced report.

use serde_json::Value;

use super::Node;
use crate::kube::instant::Mono;
use crate::kube::object;
use crate::node::events::{self, Event};

impl Node {
    /// Compares the Node that was just read with the cached one.
    pub(super) fn detect_foreign_changes(&mut self, node: &Value, now: Mono) {
        self.detect_cordon(node);
        self.detect_pod_cidrs(node, now);
        self.detect_name_conflict(node, now);
    }

    /// The events of the change from the cached Node to `after`.
    pub(super) fn events_of(&self, after: &Value) -> Vec<Event> {
        let before = self.seen.as_ref();
        let mut events = self.events_between(before, after);
        if before.is_some_and(|before| boot_id(before) == self.foreign_boot_id) {
            // The boot id that is replaced was that of another board, or came from a backup of
            // etcd: this board was not rebooted.
            events.retain(|event| event.reason != events::REBOOTED);
        }
        events
    }

    pub(super) fn events_between(&self, before: Option<&Value>, after: &Value) -> Vec<Event> {
        let conditions = |node| object::list(node, &["status", "conditions"]);
        let health = self.health.events(before.map_or(&[], conditions), conditions(after));
        let mut events = events::of_change(&self.config.node.name, before, after);
        events.extend(health);
        events
    }

    fn detect_cordon(&mut self, node: &Value) {
        let unschedulable =
            object::at(node, &["spec", "unschedulable"]) == Some(&Value::Bool(true));
        if unschedulable != self.unschedulable {
            self.unschedulable = unschedulable;
            self.events.push(Event::cordoned(&self.config.node.name, unschedulable));
        }
    }

    /// As upstream's updatePodCIDR: new ranges force a patch. Unlike a kubelet's value in memory,
    /// the file stays after a restart, so a Node without a range counts as a change: a Node that
    /// was deleted has lost its range, which another node may get.
    pub(super) fn detect_pod_cidrs(&mut self, node: &Value, now: Mono) {
        let pod_cidrs: Vec<&str> =
            object::list(node, &["spec", "podCIDRs"]).iter().filter_map(Value::as_str).collect();
        let pod_cidrs = pod_cidrs.join(",");
        let has_some = !pod_cidrs.is_empty();
        if self.take_pod_cidrs(pod_cidrs) && has_some {
            self.times.report_due = self.times.report_due.min(now);
        }
    }

    /// Takes the ranges of the Node, empty without one. Returns whether they have changed.
    pub(super) fn take_pod_cidrs(&mut self, pod_cidrs: String) -> bool {
        let is_new = self.pod_cidrs.as_ref() != Some(&pod_cidrs);
        if is_new {
            self.pod_cidrs = Some(pod_cidrs.clone());
            self.new_pod_cidrs = Some(pod_cidrs);
        }
        is_new
    }

    /// Notes that another machine writes to this Node, and records one event about it: copies of
    /// one SD card have the same host name. A boot id is foreign if it is neither the cached Node's
    /// nor this board's. If the Node that was read has an older heartbeat than the cached Node, its
    /// boot id is that of an earlier boot, because a backup of etcd was restored or the server
    /// lags. Then there is no event.
    fn detect_name_conflict(&mut self, node: &Value, now: Mono) {
        let theirs = boot_id(node);
        let ours = self.seen.as_ref().map(boot_id).unwrap_or_default();
        let is_foreign = self.is_registered()
            && !ours.is_empty()
            && !["", ours, &self.own_boot_id].contains(&theirs);
        if !is_foreign {
            return;
        }
        self.shared = Some(now);
        let is_new = self.foreign_boot_id != theirs;
        theirs.clone_into(&mut self.foreign_boot_id);
        if is_new && self.seen.as_ref().map(heartbeat) <= Some(heartbeat(node)) {
            self.events.push(Event::name_conflict(&self.config.node.name, theirs));
        }
    }
}

/// The heartbeat time of Ready, which a board sets when it writes the Node; empty if there is none.
/// All such times have one form, so they compare as text.
fn heartbeat(node: &Value) -> &str {
    let conditions = object::list(node, &["status", "conditions"]);
    object::of_type(conditions, "Ready")
        .map_or("", |ready| object::text(ready, &["lastHeartbeatTime"]))
}

fn boot_id(node: &Value) -> &str {
    object::text(node, &["status", "nodeInfo", "bootID"])
}
