//! Events of the Node's changes, which `kubectl describe node` shows.
//!
//! They have the lowest priority: the schedule sends one only if nothing else is due. An event
//! without an answer is sent once more. An event that a busy server refuses is sent again later, up
//! to ten times in all. Any other refusal drops it, unless a new name or a new object can help. An
//! event that was sent before is not created again: the count of the first one is increased.
//! Upstream: kubelet_node_status.go recordNodeStatusEvent, client-go `tools/record` and
//! `rest/with_retry.go`.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::delay::TokenBucket;
use crate::kube::facts::Sign;
use crate::kube::instant::Mono;
use crate::kube::message::{self, Accept, Answer, Refused, Request, RequestError, accepted};
use crate::kube::object;
use crate::kube::text::{VERBOSE, one_line};
use crate::node::wall_clock::ClusterNow;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// A CamelCase word.
    pub reason: &'static str,
    /// One line of text.
    pub message: String,
    /// It counts against the limit of events about the board's health.
    pub is_of_health: bool,
}

impl Event {
    fn new(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { kind, reason, message: message.into(), is_of_health: false }
    }

    /// The process started. The reason is the kubelet's; its text names this program.
    pub fn starting() -> Self {
        Self::new("Normal", "Starting", "Starting nodelet.")
    }

    /// A planned shutdown of the machine was announced, or cancelled.
    pub fn shutdown(message: &str) -> Self {
        Self::new("Normal", "Shutdown", message)
    }

    /// About the board's health.
    pub fn of_health(kind: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_of_health: true, ..Self::new(kind, reason, message) }
    }

    /// A warning about the board's health that is no change of a condition.
    pub fn of_sign((reason, message): Sign) -> Self {
        Self::of_health("Warning", reason, message)
    }

    /// The Node was cordoned, or uncordoned.
    pub fn cordoned(node_name: &str, unschedulable: bool) -> Self {
        let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
        Self::status(node_name, reason)
    }

    /// Another board also writes to the Node.
    pub fn name_conflict(node_name: &str, boot_id: &str) -> Self {
        let message = format!(
            "Node {node_name} is also written by another board, boot id: {boot_id}; \
             give each a name of its own with --hostname-override"
        );
        Self::new("Warning", "NodeNameConflict", message)
    }

    fn status(node_name: &str, reason: &'static str) -> Self {
        Self::new("Normal", reason, format!("Node {node_name} status is now: {reason}"))
    }
}

/// The reason of the event that the machine was rebooted.
pub const REBOOTED: &str = "Rebooted";

/// A condition, and the reasons of its events when it becomes True and when it becomes False.
const REASONS: [(&str, &str, &str); 4] = [
    ("MemoryPressure", "NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    ("DiskPressure", "NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    ("PIDPressure", "NodeHasInsufficientPID", "NodeHasSufficientPID"),
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
        let message = format!("Node {node_name} has been rebooted, boot id: {new_boot}");
        events.push(Event::new("Warning", REBOOTED, message));
    }
    for (condition, on, off) in REASONS {
        let (then, now) = (status_of(before, condition), status_of(after, condition));
        let first = then.is_empty();
        // A condition that is removed says nothing.
        if then != now && !now.is_empty() && !(first && condition == "Ready") {
            events.push(Event::status(node_name, if now == "True" { on } else { off }));
        }
    }
    events
}

fn status_of<'a>(node: &'a Value, kind: &str) -> &'a str {
    let condition = object::condition(node, kind);
    condition.map_or("", |condition| object::text(condition, &["status"]))
}

/// Limit of the events that wait.
const MAX_WAITING: usize = 32;
/// Limit of the sent events whose repetition is counted.
const MAX_SENT: usize = 16;

/// Limit of attempts to send one event.
const TRIES: u32 = 2;
/// The same, if the server asks for a later attempt by `Retry-After`. After the power failure of a
/// site all boards start at once, and the server refuses requests for seconds.
const TRIES_WHILE_BUSY: u32 = 10;
/// Longest delay of such an attempt. Each one follows later than the one before it: a server that
/// is busy asks for a second each time.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Limit of the events about the board's health: a bad supply can repeat one for ever.
const HEALTH_IN_AN_HOUR: usize = 6;
const HOUR: Duration = Duration::from_secs(3600);
/// At most one event about the board's health with the same reason in this time.
const SAME_REASON: Duration = Duration::from_secs(600);

/// client-go's spam filter of the events of one type about one object: 25 at once, and then one in
/// five minutes (`tools/record/events_cache.go`).
const SPAM_BURST: u32 = 25;
const SPAM_EVERY: Duration = Duration::from_secs(300);

/// Events of a Node, which has no namespace, are in `default`.
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Events to be sent, and those that were sent.
#[derive(Debug)]
pub struct EventQueue {
    node_name: String,
    waiting: VecDeque<QueuedEvent>,
    sent: VecDeque<Sent>,
    /// The time in the last name, in nanoseconds. Names increase even if the clock does not.
    last_name: u64,
    /// No request before this time: the server was busy.
    not_before: Mono,
    limit: TokenBucket,
    normal: TokenBucket,
    warnings: TokenBucket,
    /// The last events about the board's health, within an hour.
    of_health: VecDeque<(&'static str, Mono)>,
}

#[derive(Debug)]
struct QueuedEvent {
    event: Event,
    at: Mono,
    tries: u32,
    /// By a busy server.
    refusals: u32,
    /// Its name on the server, after the first attempt.
    name: Option<String>,
}

/// An event that the server has stored.
#[derive(Debug)]
struct Sent {
    event: Event,
    name: String,
    count: u32,
}

impl EventQueue {
    /// An empty queue. It sends at most `per_second` events, and `burst` at once; 0 per second is
    /// no limit.
    pub fn new(node_name: &str, per_second: u32, burst: u32) -> Self {
        let every = match per_second {
            0 => Duration::ZERO,
            limit => Duration::from_secs(1) / limit,
        };
        Self {
            not_before: Mono::START,
            limit: TokenBucket::new(every, burst),
            normal: TokenBucket::new(SPAM_EVERY, SPAM_BURST),
            warnings: TokenBucket::new(SPAM_EVERY, SPAM_BURST),
            node_name: node_name.to_owned(),
            waiting: VecDeque::new(),
            sent: VecDeque::new(),
            last_name: 0,
            of_health: VecDeque::new(),
        }
    }

    /// Logs and adds an event, unless it exceeds the limit of events about the board's health. With
    /// `is_new_node` a Normal event is not logged: the first events of a Node that was just created
    /// report no change.
    pub fn record(&mut self, event: Event, is_new_node: bool, now: Mono) {
        if !self.admits(&event, now) {
            return;
        }
        match event.kind {
            "Warning" => log::warn!("{}", event.message),
            _ if is_new_node => {}
            _ => log::info!("{}", event.message),
        }
        self.push(event, now);
    }

    fn admits(&mut self, event: &Event, now: Mono) -> bool {
        if !event.is_of_health {
            return true;
        }
        self.of_health.retain(|(_, at)| now.since(*at) < HOUR);
        let is_repeated =
            |(old, at): &(&str, Mono)| *old == event.reason && now.since(*at) < SAME_REASON;
        // In a long outage the same event would fill the queue.
        let waits = self.waiting.iter().any(|queued| queued.event == *event);
        let is_over = self.of_health.len() >= HEALTH_IN_AN_HOUR;
        if waits || is_over || self.of_health.iter().any(is_repeated) {
            log::info!(target: VERBOSE, "event {} waits or is over the limit; dropped", event.reason);
            return false;
        }
        self.of_health.push_back((event.reason, now));
        true
    }

    /// Adds an event. A full queue drops it, and so does the spam filter.
    pub fn push(&mut self, mut event: Event, at: Mono) {
        let of_type = if event.kind == "Warning" { &mut self.warnings } else { &mut self.normal };
        if of_type.tokens(at) == 0 {
            log::info!(target: VERBOSE, "event {} is over the limit; dropped", event.reason);
            return;
        }
        of_type.take(at);
        // The message may contain the boot id of another board.
        event.message = one_line(&event.message);
        if self.waiting.len() < MAX_WAITING {
            self.waiting.push_back(QueuedEvent { event, at, tries: 0, refusals: 0, name: None });
        }
        debug_assert!(self.waiting.len() <= MAX_WAITING, "{} wait", self.waiting.len());
    }

    /// The uid of the Node has changed: an event that was sent for the old Node is created anew,
    /// and its count begins at 1.
    pub fn on_new_uid(&mut self) {
        self.sent.clear();
    }

    /// Now, if an event waits and the rate limit allows it; later if the server was busy.
    pub fn due(&self, now: Mono) -> Option<Mono> {
        let can_be_sent = !self.waiting.is_empty() && self.limit.tokens(now) > 0;
        can_be_sent.then_some(now.max(self.not_before))
    }

    /// The request for the oldest event. Its time is computed from the current wall clock, which
    /// may have been set since the event.
    pub fn request(&mut self, node_uid: &str, now: ClusterNow) -> Option<Request> {
        self.limit.take(now.mono());
        let first = self.waiting.front_mut()?;
        let at = now.wall().before(now.mono().since(first.at));
        let event = &first.event;
        if let Some(sent) = self.sent.iter().find(|sent| sent.event == *event) {
            let body = json!({"count": sent.count.saturating_add(1), "lastTimestamp": at.time()});
            let path = format!("{EVENTS}/{}", sent.name);
            return Some(Request::patch(path, Accept::Metadata, &body));
        }
        // As client-go: the object's name and the time in hexadecimal nanoseconds.
        let name = || {
            self.last_name = at.nanos().max(self.last_name.saturating_add(1));
            format!("{}.{:x}", self.node_name, self.last_name)
        };
        let name = first.name.get_or_insert_with(name).clone();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            // `kubectl describe node` finds events by the Node's uid. A kubelet of 1.36 omits it
            // (kubernetes#138524).
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self.node_name,
                "uid": node_uid,
            },
            "type": event.kind,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": "kubelet", "host": self.node_name},
            "reportingComponent": "kubelet",
            "reportingInstance": self.node_name,
            "firstTimestamp": at.time(),
            "lastTimestamp": at.time(),
            "count": 1,
        });
        Some(Request::post(EVENTS, Accept::Metadata, &body))
    }

    /// Takes the answer to the last request.
    pub fn on_response(&mut self, answer: Answer, now: Mono) -> Result<(), RequestError> {
        let Some(mut first) = self.waiting.pop_front() else {
            return Ok(());
        };
        first.tries += 1;
        debug_assert!(first.tries <= TRIES, "{first:?}");
        debug_assert!(self.sent.len() <= MAX_SENT, "{} were sent", self.sent.len());
        let counted = self.sent.iter_mut().find(|sent| sent.event == first.event);
        // A gateway may answer with a page of its own.
        let is_event = |body: &[u8]| {
            let object = message::parse_without(body, &["labels", "annotations", "managedFields"]);
            object.is_some_and(|object| !object::text(&object, &["metadata", "name"]).is_empty())
        };
        let result = accepted(answer).and_then(|response| match is_event(&response.body) {
            true => Ok(()),
            false => Err(Refused::nonsense("an Event").into()),
        });
        if let Err(error) = result {
            match (error.refused.as_deref(), counted) {
                (None | Some(Refused { code: 200..300, .. }), _) => self.retry(first),
                (Some(Refused { code: 429 | 500.., retry_after: Some(delay), .. }), _) => {
                    first.tries -= 1;
                    first.refusals += 1;
                    let delay = (*delay).max(Duration::from_secs(1)).saturating_mul(first.refusals);
                    self.not_before = now.after(delay.min(LONGEST_DELAY));
                    if first.refusals < TRIES_WHILE_BUSY {
                        self.waiting.push_front(first);
                    }
                }
                // The server deletes events after an hour: create a new one.
                (Some(Refused { code: 404, .. }), Some(_)) => {
                    self.sent.retain(|sent| sent.event != first.event);
                    self.retry(first);
                }
                // Without an RTC an earlier boot may have used the same time in a name.
                (Some(Refused { code: 409, .. }), None) => {
                    first.name = None;
                    self.retry(first);
                }
                (Some(_), _) => {}
            }
            return Err(error);
        }
        match counted {
            Some(sent) => sent.count = sent.count.saturating_add(1),
            None => {
                self.sent.truncate(MAX_SENT - 1);
                self.sent.push_front(Sent {
                    event: first.event,
                    name: first.name.unwrap_or_default(),
                    count: 1,
                });
            }
        }
        Ok(())
    }

    fn retry(&mut self, waiting: QueuedEvent) {
        if waiting.tries < TRIES {
            self.waiting.push_front(waiting);
        }
    }
}

#[cfg(test)]
mod tests;
