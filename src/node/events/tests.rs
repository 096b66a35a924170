#![allow(unused_must_use, reason = "most results have a test of their own")]

use super::*;
use crate::kube::message::{Method, Response, answered};
use crate::kube::time::Wall;

fn node(boot_id: &str, statuses: [&str; 4]) -> Value {
    let listed = REASONS.iter().zip(statuses).filter(|(_, status)| !status.is_empty());
    let conditions: Vec<Value> =
        listed.map(|((kind, ..), status)| json!({"type": kind, "status": status})).collect();
    json!({"status": {"nodeInfo": {"bootID": boot_id}, "conditions": conditions}})
}

fn reasons(before: Option<&Value>, after: &Value) -> Vec<&'static str> {
    of_change("pi", before, after).iter().map(|e| e.reason).collect()
}

const GOOD: [&str; 4] = ["False", "False", "False", "True"];
const OFF: [&str; 3] = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];

/// setters_test.go TestMemoryPressureCondition, TestPIDPressureCondition,
/// TestDiskPressureCondition and TestReadyCondition: the events.
#[test]
fn only_changes_have_events() {
    let [good, bad, unready, unknown, without_ready, nothing] = [
        GOOD,
        ["True", "True", "True", "False"],
        ["False"; 4],
        ["Unknown"; 4],
        ["False", "False", "False", ""],
        [""; 4],
    ]
    .map(|statuses| node("b", statuses));
    let on = &["NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID"][..];
    let event = |reason| Event::new("Normal", reason, format!("Node pi status is now: {reason}"));
    assert_eq!(of_change("pi", None, &good), OFF.map(event));
    // New, pressure.
    assert_eq!(reasons(None, &node("b", ["True"; 4])), on);
    for (name, before, after, pressures, ready) in [
        ("good to good", &good, &good, &[][..], None),
        ("bad to bad", &bad, &bad, &[], None),
        ("good to bad", &good, &bad, on, Some("NodeNotReady")),
        ("unknown to good", &unknown, &good, &OFF, Some("NodeReady")),
        ("TestReadyCondition: False to True", &unready, &good, &[], Some("NodeReady")),
        ("TestReadyCondition: True to False", &good, &unready, &[], Some("NodeNotReady")),
        ("TestReadyCondition: False to False", &unready, &unready, &[], None),
        ("no Ready before", &without_ready, &good, &[], None),
        ("no Ready any more", &good, &without_ready, &[], None),
        ("nothing any more", &good, &nothing, &[], None),
    ] {
        let want: Vec<&str> = pressures.iter().copied().chain(ready).collect();
        assert_eq!(reasons(Some(before), after), want, "{name}");
    }
}

/// setters_test.go TestMachineInfo 14.
#[test]
fn a_changed_boot_id_is_a_reboot_warning() {
    let events = of_change("test-node", Some(&node("foo", GOOD)), &node("bar", GOOD));
    let text = "Node test-node has been rebooted, boot id: bar";
    assert_eq!(events, [Event::new("Warning", "Rebooted", text)]);
    assert_eq!(reasons(Some(&node("", GOOD)), &node("bar", GOOD)), [] as [&str; 0]);
}

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

/// A board whose clock was 1970-01-01 at the start.
fn now(mono: Mono) -> ClusterNow {
    ClusterNow::test(mono, Wall::default().after(mono.since(Mono::START)))
}

/// The answer of a server that has stored the event.
fn stored(code: u16) -> Answer {
    answered(code, json!({"kind": "PartialObjectMetadata", "metadata": {"name": "pi.1"}}))
}

/// Sends the first event. Returns the method, the path below [`EVENTS`] and the body.
fn send(queue: &mut EventQueue, outcome: Answer) -> (Method, String, Value) {
    let request = queue.request("u1", now(at(100_000))).unwrap();
    queue.on_response(outcome, at(100_000));
    let path = request.path.trim_start_matches(EVENTS).to_owned();
    (request.method, path, serde_json::from_slice(&request.body).unwrap())
}

#[test]
fn foreign_text_in_an_event_is_one_line() {
    let mut queue = EventQueue::new("pi", 0, 0);
    for _ in 0..2 {
        queue.push(Event::name_conflict("pi", "b\n<0>c\u{1b}[2J"), at(1));
    }
    let (_, _, body) = send(&mut queue, stored(201));
    let want = "Node pi is also written by another board, boot id: b <0>c [2J; \
                give each a name of its own with --hostname-override";
    assert_eq!(body["message"], want);
    // The second one is a repetition.
    assert_eq!(send(&mut queue, stored(200)).0, Method::Patch);
}

/// node_container_manager_linux_test.go TestNodeRefFromNode; here with the Node's uid.
#[test]
fn an_event_has_the_nodes_uid_and_its_repetition_is_counted() {
    let mut queue = EventQueue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    let (method, path, body) = send(&mut queue, stored(201));
    assert_eq!((method, path.as_str()), (Method::Post, ""));
    assert_eq!(
        body,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "pi.3b9aca00", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "pi", "uid": "u1"},
            "type": "Normal", "reason": "Starting", "message": "Starting nodelet.",
            "source": {"component": "kubelet", "host": "pi"},
            "reportingComponent": "kubelet", "reportingInstance": "pi",
            "firstTimestamp": "1970-01-01T00:00:01Z", "lastTimestamp": "1970-01-01T00:00:01Z",
            "count": 1,
        })
    );
    assert!(queue.waiting.is_empty());

    for count in [2, 3] {
        queue.push(Event::starting(), at(60));
        let (method, path, body) = send(&mut queue, stored(200));
        assert_eq!((method, path.as_str()), (Method::Patch, "/pi.3b9aca00"));
        assert_eq!(body, json!({"count": count, "lastTimestamp": "1970-01-01T00:01:00Z"}));
    }
}

/// client-go, too, sends an event again whose answer it cannot decode.
#[test]
fn an_event_that_a_gateway_answers_is_sent_again() {
    for page in [Value::Null, json!("sign in"), json!({"kind": "Event"})] {
        let mut queue = EventQueue::new("pi", 0, 0);
        queue.push(Event::starting(), at(1));
        let first = send(&mut queue, answered(200, page));
        assert_eq!(send(&mut queue, stored(201)), first);
        assert!(queue.waiting.is_empty());
    }
}

#[test]
fn an_expired_event_is_created_again_and_a_taken_name_replaced() {
    let mut queue = EventQueue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    send(&mut queue, stored(201));
    queue.push(Event::starting(), at(4000));
    assert_eq!(send(&mut queue, answered(404, Value::Null)).0, Method::Patch);
    let (method, _, body) = send(&mut queue, stored(201));
    assert_eq!((method, &body["count"]), (Method::Post, &json!(1)));
    assert!(queue.waiting.is_empty());

    queue.push(Event::cordoned("pi", true), at(1));
    let taken = send(&mut queue, answered(409, Value::Null)).2;
    let free = send(&mut queue, stored(201)).2;
    assert_ne!(taken["metadata"]["name"], free["metadata"]["name"]);
    assert!(queue.waiting.is_empty());
}

#[test]
fn an_event_is_dropped_after_a_refusal_or_two_unanswered_requests() {
    let mut queue = EventQueue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    send(&mut queue, answered(403, Value::Null));
    assert!(queue.waiting.is_empty());
    queue.push(Event::starting(), at(1));
    queue.on_response(Err("slow".into()), at(1));
    assert!(!queue.waiting.is_empty());
    queue.on_response(Err("slow".into()), at(1));
    assert!(queue.waiting.is_empty());
    assert_eq!(queue.request("u1", now(at(1))), None);
}

/// client-go `rest/with_retry.go`: a 429 or 5xx with `Retry-After` is sent again.
#[test]
fn an_event_that_a_busy_server_refuses_is_sent_again_later() {
    let refused = |code, delay| {
        let retry_after = Some(Duration::from_secs(delay));
        Ok(Response { retry_after, ..Response::test(code, "") })
    };
    let mut queue = EventQueue::new("pi", 0, 0);
    queue.push(Event::starting(), at(1));
    queue.push(Event::cordoned("pi", true), at(1));
    let mut now_at = at(1);
    let mut names = std::collections::BTreeSet::new();
    for (code, asked, delay) in [(429, 1, 1), (503, 1, 2), (429, 0, 3), (429, 60, 10)] {
        assert_eq!(queue.due(now_at), Some(now_at));
        let request = queue.request("u1", now(now_at)).unwrap();
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        names.insert(body["metadata"]["name"].to_string());
        queue.on_response(refused(code, asked), now_at);
        let due = now_at.after(Duration::from_secs(delay));
        assert_eq!((queue.due(now_at), queue.waiting.len()), (Some(due), 2));
        now_at = due;
    }
    assert_eq!(names.len(), 1, "{names:?}");
    // It does not keep the queue for ever.
    let mut tries = 4;
    while queue.waiting.len() > 1 {
        send(&mut queue, refused(429, 1));
        tries += 1;
    }
    assert_eq!(tries, TRIES_WHILE_BUSY);
    send(&mut queue, stored(201));
    assert!(queue.waiting.is_empty());
    // A busy server uses up none of the other attempts: another boot may have used the name.
    queue.push(Event::starting(), at(1));
    for answer in [refused(429, 1), answered(409, Value::Null)] {
        send(&mut queue, answer);
        assert_eq!(queue.waiting.len(), 1);
    }
    send(&mut queue, stored(201));
    assert!(queue.waiting.is_empty());
    // Without the header another attempt is of no use.
    queue.push(Event::starting(), at(1));
    send(&mut queue, answered(429, Value::Null));
    assert!(queue.waiting.is_empty());
}

#[test]
fn waiting_and_counted_events_are_bounded() {
    let mut queue = EventQueue::new("pi", 0, 0);
    let event = |n: usize| Event::new(["Normal", "Warning"][n % 2], "R", n.to_string());
    for n in 0..1000 {
        queue.push(event(n), at(1));
    }
    assert_eq!(queue.waiting.len(), MAX_WAITING);
    while !queue.waiting.is_empty() {
        send(&mut queue, stored(201));
    }
    assert_eq!(queue.sent.len(), MAX_SENT);
    let names: std::collections::BTreeSet<&str> =
        queue.sent.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), MAX_SENT, "{names:?}");
}

/// Something that makes the Node Ready and not Ready every 10 s, for hours.
#[test]
fn events_of_one_type_have_the_limit_of_client_go() {
    let mut queue = EventQueue::new("pi", 0, 0);
    let mut sent = [0, 0];
    for second in (0..7200).step_by(10) {
        let at = Mono::START.after(Duration::from_secs(second));
        queue.push(Event::starting(), at);
        queue.push(Event::new("Warning", "R", "m".to_owned()), at);
        while !queue.waiting.is_empty() {
            sent[usize::from(queue.waiting[0].event.kind == "Warning")] += 1;
            send(&mut queue, stored(201));
        }
    }
    assert_eq!(sent, [25 + 23, 25 + 23]);
}

/// Names sort in the order of the events.
#[test]
fn names_increase_even_if_the_clock_does_not() {
    let mut queue = EventQueue::new("pi", 0, 0);
    let mut before = String::new();
    for ahead in [9, 9, 8, 0, 10] {
        let now =
            ClusterNow::test(at(1), Wall::from_epoch(Duration::from_secs(1_800_000_000 + ahead)));
        queue.push(Event::cordoned("pi", ahead > 8), at(1));
        queue.on_new_uid();
        let request = queue.request("u1", now).unwrap();
        queue.on_response(stored(201), at(1));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name > before, "{name} after {before}");
        before = name;
    }
}

#[test]
fn after_a_burst_the_rate_is_limited() {
    let mut queue = EventQueue::new("pi", 2, 3);
    for _ in 0..10 {
        queue.push(Event::starting(), at(1));
    }
    let mut sent = Vec::new();
    for tenth in 0..20 {
        let then = Mono::START.after(Duration::from_millis(tenth * 100));
        while queue.due(then).is_some() {
            queue.request("u1", now(then)).unwrap();
            queue.on_response(stored(201), at(1));
            sent.push(tenth);
        }
    }
    assert_eq!(sent, [0, 0, 0, 5, 10, 15]);
}

/// A link that flaps for the six hours of an outage.
#[test]
fn an_event_about_the_boards_health_waits_once() {
    let mut queue = EventQueue::new("pi", 0, 0);
    for tenth in 0..36 {
        let at = Mono::START.after(Duration::from_secs(tenth * 600));
        queue.record(Event::of_sign(("LinkFlapping", "eth0".to_owned())), false, at);
    }
    assert_eq!(queue.waiting.len(), 1);
    assert_eq!(queue.waiting[0].at, Mono::START);
}

#[test]
fn events_about_the_boards_health_have_a_limit() {
    let mut queue = EventQueue::new("pi", 0, 0);
    let mut admits = |reason, seconds| {
        let event = Event::of_sign((reason, "x".to_owned()));
        assert_eq!((event.kind, event.is_of_health), ("Warning", true));
        queue.admits(&event, Mono::START.after(Duration::from_secs(seconds)))
    };
    for (seconds, want) in [(0, true), (1, false), (599, false), (600, true)] {
        assert_eq!(admits("A", seconds), want, "{seconds}");
    }
    let admitted = ["B", "C", "D", "E", "F"].map(|reason| admits(reason, 601));
    assert_eq!(admitted, [true, true, true, true, false], "six in an hour");
    assert!(!admits("G", 3599));
    assert!(admits("G", 3600));
    assert!(queue.admits(&Event::starting(), Mono::START), "no other event is limited");
}
