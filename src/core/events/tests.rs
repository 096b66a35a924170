use std::time::Duration;

use super::*;
use crate::kube::message::{Method, Response};
use crate::kube::time::Wall;

impl Queue {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn remembered(&self) -> usize {
        self.sent.len()
    }
}

fn node(boot_id: &str, statuses: [&str; 4]) -> Value {
    let conditions: Vec<Value> = REASONS
        .iter()
        .zip(statuses)
        .filter(|(_, status)| !status.is_empty())
        .map(|((kind, _, _), status)| json!({"type": kind, "status": status}))
        .collect();
    json!({"status": {"nodeInfo": {"bootID": boot_id}, "conditions": conditions}})
}

fn reasons(before: Option<&Value>, after: &Value) -> Vec<&'static str> {
    of_change("pi", before, after)
        .iter()
        .map(|e| e.reason)
        .collect()
}

const GOOD: [&str; 4] = ["False", "False", "False", "True"];

#[test]
fn a_new_node_tells_of_its_first_observations() {
    let after = node("b", GOOD);
    assert_eq!(
        of_change("pi", None, &after),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID"
        ]
        .map(|reason| {
            Event {
                kind: "Normal",
                reason,
                message: format!("Node pi status is now: {reason}"),
            }
        })
    );
}

#[test]
fn only_changes_are_told() {
    let good = node("b", GOOD);
    // New under pressure.
    assert_eq!(
        reasons(None, &node("b", ["True", "True", "True", "True"])),
        [
            "NodeHasInsufficientMemory",
            "NodeHasDiskPressure",
            "NodeHasInsufficientPID"
        ]
    );
    let unknown = node("b", ["Unknown"; 4]);
    let bad = node("b", ["True", "True", "True", "False"]);
    assert_eq!(reasons(Some(&good), &good), [] as [&str; 0]);
    assert_eq!(
        reasons(Some(&good), &bad),
        [
            "NodeHasInsufficientMemory",
            "NodeHasDiskPressure",
            "NodeHasInsufficientPID",
            "NodeNotReady"
        ]
    );
    assert_eq!(
        reasons(Some(&unknown), &good),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
            "NodeReady"
        ]
    );
    // TestReadyCondition: False to True, and False to False.
    let unready = node("b", ["False", "False", "False", "False"]);
    assert_eq!(reasons(Some(&unready), &good), ["NodeReady"]);
    assert_eq!(reasons(Some(&good), &unready), ["NodeNotReady"]);
    assert_eq!(reasons(Some(&unready), &unready), [] as [&str; 0]);
    assert_eq!(reasons(Some(&bad), &bad), [] as [&str; 0]);
    assert_eq!(
        reasons(Some(&node("b", ["False", "False", "False", ""])), &good),
        [] as [&str; 0]
    );
}

#[test]
fn a_reboot_is_a_warning_and_needs_an_old_boot_id() {
    let told = of_change("test-node", Some(&node("foo", GOOD)), &node("bar", GOOD));
    assert_eq!(
        told,
        [Event {
            kind: "Warning",
            reason: "Rebooted",
            message: "Node test-node has been rebooted, boot id: bar".to_owned(),
        }]
    );
    assert_eq!(
        reasons(Some(&node("", GOOD)), &node("bar", GOOD)),
        [] as [&str; 0]
    );
}

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

/// When the board was started in 1970.
fn now(mono: Mono) -> Now {
    Now {
        mono,
        wall: Wall::default().after(mono.since(Mono::START)),
    }
}

fn answer(code: u16) -> Outcome {
    Outcome::Answered(Response {
        code,
        retry_after: None,
        date: None,
        body: Vec::new(),
    })
}

/// Sends the first event; method, last part of the path, body.
fn send(queue: &mut Queue, outcome: Outcome) -> (Method, String, Value) {
    let request = queue.request("u1", now(at(100_000))).unwrap();
    queue.on_response(&outcome);
    let path = request.path.trim_start_matches(EVENTS).to_owned();
    (
        request.method,
        path,
        serde_json::from_slice(&request.body).unwrap(),
    )
}

#[test]
fn an_event_is_posted_with_the_nodes_uid_and_counted_when_it_happens_again() {
    let mut queue = Queue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    let (method, path, body) = send(&mut queue, answer(201));
    assert_eq!((method, path.as_str()), (Method::Post, ""));
    assert_eq!(
        body,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "pi.3b9aca00", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "pi", "uid": "u1"},
            "type": "Normal", "reason": "Starting", "message": "Starting kubelet.",
            "source": {"component": "kubelet", "host": "pi"},
            "reportingComponent": "kubelet", "reportingInstance": "pi",
            "firstTimestamp": "1970-01-01T00:00:01Z", "lastTimestamp": "1970-01-01T00:00:01Z",
            "count": 1,
        })
    );
    assert!(queue.waiting.is_empty());

    for count in [2, 3] {
        queue.push(Event::starting(), at(60));
        let (method, path, body) = send(&mut queue, answer(200));
        assert_eq!((method, path.as_str()), (Method::Patch, "/pi.3b9aca00"));
        assert_eq!(
            body,
            json!({"count": count, "lastTimestamp": "1970-01-01T00:01:00Z"})
        );
    }
}

#[test]
fn what_expired_begins_anew_and_a_taken_name_gets_another() {
    let mut queue = Queue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    send(&mut queue, answer(201));
    queue.push(Event::starting(), at(4000));
    assert_eq!(send(&mut queue, answer(404)).0, Method::Patch);
    let (method, _, body) = send(&mut queue, answer(201));
    assert_eq!((method, &body["count"]), (Method::Post, &json!(1)));
    assert!(queue.waiting.is_empty());

    queue.push(Event::cordoned("pi", true), at(1));
    let taken = send(&mut queue, answer(409)).2;
    let free = send(&mut queue, answer(201)).2;
    assert_ne!(taken["metadata"]["name"], free["metadata"]["name"]);
    assert!(queue.waiting.is_empty());
}

#[test]
fn refusals_drop_an_event_and_silence_drops_it_the_second_time() {
    let mut queue = Queue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    send(&mut queue, answer(403));
    assert!(queue.waiting.is_empty());
    queue.push(Event::starting(), at(1));
    assert!(!queue.on_response(&Outcome::Silent("slow".into())));
    assert!(!queue.waiting.is_empty());
    assert!(!queue.on_response(&Outcome::Silent("slow".into())));
    assert!(queue.waiting.is_empty());
    assert_eq!(queue.request("u1", now(at(1))), None);
}

#[test]
fn the_queue_and_its_memory_are_bounded() {
    let mut queue = Queue::new("pi", 0, 0);
    let event = |n: usize| Event {
        kind: "Normal",
        reason: "R",
        message: n.to_string(),
    };
    for n in 0..1000 {
        queue.push(event(n), at(1));
    }
    assert_eq!(queue.waiting.len(), WAITING);
    while !queue.waiting.is_empty() {
        send(&mut queue, answer(201));
    }
    assert_eq!(queue.sent.len(), REMEMBERED);
    let names: std::collections::BTreeSet<&str> =
        queue.sent.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names.len(),
        REMEMBERED,
        "the clock stood still, the names did not"
    );
}

/// Sorted by name they are in the order in which they happened.
#[test]
fn names_rise_though_the_clock_stands_still_or_goes_back() {
    let mut queue = Queue::new("pi", 0, 0);
    let mut before = String::new();
    for ahead in [9, 9, 8, 0, 10] {
        let now = Now {
            mono: at(1),
            wall: Wall::from_epoch(Duration::from_secs(1_800_000_000 + ahead)),
        };
        queue.push(Event::cordoned("pi", ahead > 8), at(1));
        queue.forget();
        let request = queue.request("u1", now).unwrap();
        queue.on_response(&answer(201));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name > before, "{name} after {before}");
        before = name;
    }
}

#[test]
fn bursts_are_sent_and_then_so_many_a_second() {
    let mut queue = Queue::new("pi", 2, 3);
    for _ in 0..10 {
        queue.push(Event::starting(), at(1));
    }
    let mut sent = Vec::new();
    for tenth in 0..20 {
        let then = Mono::START.after(Duration::from_millis(tenth * 100));
        while queue.is_due(then) {
            queue.request("u1", now(then)).unwrap();
            queue.on_response(&answer(201));
            sent.push(tenth);
        }
    }
    assert_eq!(sent, [0, 0, 0, 5, 10, 15]);
}
