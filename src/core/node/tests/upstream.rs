//! Cases of upstream's `kubelet_node_status_test.go` by their names, as sequences of requests
//! against a server that stores the Node.

use super::*;
use crate::core::patch;
use crate::core::patch::tests::apply;

const THEN: &str = "2012-01-01T00:00:00Z";
const SECOND: Duration = Duration::from_secs(1);

/// The server with one Node: it sends the Node, and applies patches with its resourceVersion.
pub(super) fn serve(stored: &mut Value) -> impl FnOnce(&Request) -> Outcome {
    move |request| {
        if request.method == Method::Get {
            return answered(200, stored.clone());
        }
        assert_eq!(request.method, Method::Patch);
        let patch: Value = serde_json::from_slice(&request.body).unwrap();
        if resource_version(&patch) != resource_version(stored) {
            return refuse(409, "Conflict");
        }
        let version: u64 = resource_version(stored).parse().unwrap();
        *stored = apply(stored.clone(), &patch);
        stored["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        let metadata = &stored["metadata"];
        answered(200, json!({"kind": "PartialObjectMetadata", "metadata": metadata}))
    }
}

fn times(node: &Value, key: &str) -> Vec<String> {
    let conditions = object::list(node, &["status", "conditions"]).iter();
    conditions.map(|c| object::text(c, &[key]).to_owned()).collect()
}

fn quantities(node: &Value, which: &str) -> Vec<String> {
    ["cpu", "memory", "pods", "ephemeral-storage"]
        .map(|name| object::text(node, &["status", which, name]).to_owned())
        .to_vec()
}

/// 2 CPUs, 10e9 bytes of memory, `storage` bytes of storage, no huge pages.
fn machine(storage: u64) -> Facts {
    let mut facts = Facts::example();
    facts.cpus = Ok(2);
    facts.memory.as_mut().unwrap().total_bytes = 10_000_000_000;
    facts.node_fs.as_mut().unwrap().capacity_bytes = storage;
    facts.huge_pages = Ok(Vec::new());
    facts
}

/// A Node of another client is read, then patched. These are upstream's two requests; our own
/// create has the whole status.
fn updated(words: &[&str], facts: Facts, existing: Value) -> (NodeTest, Value) {
    let mut words = words.to_vec();
    words.push("--register-node=false");
    let mut test = NodeTest::new(Flags::of(&words));
    test.facts = facts;
    let mut stored = existing;
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Read)));
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Done)));
    assert_eq!(test.calls(), ["Get ~/pi", "Patch ~/pi/status"]);
    (test, stored)
}

/// TestUpdateNewNodeStatusTooLargeReservation: cpu 40 of 2. `check_reservations` refuses it at the
/// start; if the capacity decreases later, allocatable is 0 and never negative.
#[test]
fn test_update_new_node_status_too_large_reservation() {
    let words = ["--system-reserved=cpu=40,ephemeral-storage=1000", "--eviction-hard="];
    let (_, node) = updated(&words, machine(3000), foreign(json!({}), json!({})));
    assert_eq!(quantities(&node, "allocatable"), ["0", "9765625Ki", "0", "2k"]);
    assert_eq!(quantities(&node, "capacity"), ["2", "9765625Ki", "0", "3000"]);
}

/// TestUpdateNodeStatusWithLease. We send no GET at every tick: an unchanged tick has no request
/// instead of one, a changed tick one instead of two (a foreign write gives a 409). Foreign changes
/// are seen at the next report.
#[test]
fn test_update_node_status_with_lease() {
    let mut stored = foreign(json!({}), json!({}));
    let mut test =
        NodeTest::new(Flags::of(&["--register-node=false", "--node-status-report-frequency=30s"]));
    test.facts.memory.as_mut().unwrap().total_bytes = 20_000_000_000;
    let later = |test: &mut NodeTest, seconds| {
        test.node.due = test.now.mono.after(SECOND * seconds);
    };

    test.turn(serve(&mut stored));
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Done)));
    assert_eq!(test.requests.len(), 2, "first update");
    let first = stored.clone();

    later(&mut test, 60);
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Done)));
    assert_eq!(test.requests.len(), 3, "60 s later, unchanged");
    let mut want = first.clone();
    want["metadata"]["resourceVersion"] = "9".into();
    for condition in want["status"]["conditions"].as_array_mut().unwrap() {
        condition["lastHeartbeatTime"] = test.now.wall.time().into();
    }
    assert_eq!(stored, want, "only heartbeats differ");

    later(&mut test, 10);
    assert_eq!(test.turn(|_| unreachable!()), None, "unchanged");

    test.facts.memory.as_mut().unwrap().total_bytes = 40_000_000_000;
    later(&mut test, 10);
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Done)));
    assert_eq!(test.requests.len(), 4, "memory changed");
    let heartbeat = test.now.wall.time();
    assert_eq!(times(&stored, "lastHeartbeatTime"), vec![heartbeat.clone(); 4]);
    assert_eq!(times(&stored, "lastTransitionTime"), times(&first, "lastTransitionTime"));

    // podCIDRs: the controller manager sets them.
    stored["spec"]["podCIDRs"] = json!(["10.0.0.0/24", "2000::/10"]);
    stored["metadata"]["resourceVersion"] = "77".into();
    for _ in 0..2 {
        later(&mut test, 10);
        assert_eq!(test.turn(|_| unreachable!()), None, "no change of ours");
    }
    later(&mut test, 10);
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Continue)), "409");
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Read)));
    assert_eq!(test.turn(serve(&mut stored)), Some(Ok(Progress::Done)));
    assert_eq!(test.requests.len(), 7, "the report");
    let cidrs = &json!(["10.0.0.0/24", "2000::/10"]);
    let seen = test.node.seen.as_ref().unwrap();
    assert_eq!(&seen["spec"]["podCIDRs"], cidrs);
    assert_eq!(&stored["spec"]["podCIDRs"], cidrs);
    assert_ne!(times(&stored, "lastHeartbeatTime")[0], heartbeat);

    later(&mut test, 10);
    assert_eq!(test.turn(|_| unreachable!()), None, "same CIDRs");
}

/// TestUpdateNodeStatusAndVolumesInUseWithNodeLease: a missing label alone is patched.
#[test]
fn test_update_node_status_and_volumes_in_use_with_node_lease() {
    let (_, settled) = updated(&[], machine(5000), foreign(json!({}), json!({})));
    for (name, missing, patches) in [
        ("no volumes", "", false),
        ("labels missing: os", "kubernetes.io/os", true),
        ("labels missing: arch", "kubernetes.io/arch", true),
    ] {
        let mut stored = settled.clone();
        object::members(&mut stored, &["metadata", "labels"]).remove(missing);
        let mut test = NodeTest::new(Flags::of(&["--register-node=false"]));
        test.facts = machine(5000);
        // No report is due.
        test.node.report_due = Mono::START.after(SECOND * 3600);
        test.turn(serve(&mut stored));
        let step = test.turn(serve(&mut stored));
        assert_eq!(step, patches.then_some(Ok(Progress::Done)), "{name}");
        assert_eq!(stored["metadata"]["labels"], settled["metadata"]["labels"]);
    }
}

/// TestTryRegisterWithApiServer. `ours` tells whether our Node has the annotation, `theirs` is its
/// value on the server. Every adoption is one patch, which also has the status.
#[test]
fn test_try_register_with_api_server() {
    let none: &[(u16, &str)] = &[];
    let exists = (409, "AlreadyExists");
    let forbidden = (403, "Forbidden");
    for (name, answers, theirs, ours, done, calls) in [
        ("new", none, None, true, true, 1),
        ("exists, same", &[exists][..], Some("true"), true, true, 3),
        ("forbidden, same", &[forbidden][..], Some("true"), true, true, 3),
        ("forbidden, removed", &[forbidden][..], Some("true"), false, true, 3),
        ("exists, removed", &[exists][..], Some("true"), false, true, 3),
        ("exists, set", &[exists][..], None, true, true, 3),
        ("conflict", &[(409, "Conflict")][..], None, true, false, 1),
        ("exists, GET fails", &[exists, (500, "")][..], None, true, false, 2),
        ("exists, PATCH fails", &[exists, (200, ""), (500, "")][..], None, true, false, 3),
    ] {
        let annotations = match theirs {
            Some(text) => json!({object::ATTACH_DETACH: text}),
            None => json!({}),
        };
        let mut stored = foreign(json!({"annotations": annotations}), json!({}));
        let mut test =
            NodeTest::new(Flags::of(&[&format!("--enable-controller-attach-detach={ours}")]));
        let mut answers = answers.iter();
        let mut last = Ok(Progress::Continue);
        while matches!(last, Ok(Progress::Continue | Progress::Read)) {
            let step = match answers.next() {
                Some((200, _)) => test.turn(serve(&mut stored)),
                Some((code, reason)) => test.turn(|_| refuse(*code, reason)),
                None if test.requests.is_empty() => test.turn(created),
                None => test.turn(serve(&mut stored)),
            };
            last = step.unwrap();
        }
        let registered = matches!(last, Ok(Progress::Created | Progress::Adopted));
        assert_eq!(registered, done, "{name}: {last:?}");
        assert_eq!(test.node.is_registered(), done, "{name}");
        assert_eq!(test.requests.len(), calls, "{name}");
        if done && calls == 3 {
            let want = if ours { "true" } else { "" };
            let path = ["metadata", "annotations", object::ATTACH_DETACH];
            assert_eq!(object::text(&stored, &path), want, "{name}");
        }
    }
}

/// TestNodeStatusHasChanged. The merge patch is the comparison; it does not include heartbeats.
#[test]
fn test_node_status_has_changed() {
    let ready = |status: &str, since: &str| {
        json!({"type": "Ready", "status": status,
            "lastHeartbeatTime": THEN, "lastTransitionTime": since})
    };
    let other = json!({"type": "Theirs", "status": "True"});
    let conditions = json!({"conditions": [ready("True", THEN), other]});
    let null = json!(null);
    let empty = json!({});
    for (name, before, after, want) in [
        ("nil, nil", &null, &null, false),
        ("{}, {}", &empty, &empty, false),
        ("nil, {}", &null, &empty, true),
        ("nil, with conditions", &null, &conditions, true),
        ("empty conditions", &json!({"conditions": []}), &json!({"conditions": []}), false),
        ("same conditions", &conditions, &conditions, false),
        (
            "condition status differs",
            &conditions,
            &json!({"conditions": [ready("False", THEN), other]}),
            true,
        ),
        (
            "transition time differs",
            &conditions,
            &json!({"conditions": [ready("True", "2013-01-01T00:00:00Z"), other]}),
            true,
        ),
        (
            "number of conditions differs",
            &conditions,
            &json!({"conditions": [ready("True", THEN)]}),
            true,
        ),
        ("phase differs", &json!({"phase": "Pending"}), &json!({"phase": "Running"}), true),
    ] {
        let seen = json!({"status": before});
        let change = patch::diff(&seen, &json!({"status": after}));
        assert_eq!(change.is_some_and(|change| needs_patch(&seen, &change)), want, "{name}");
    }
}

/// A Node that was reported at the start. `random` spreads the next report after a change.
fn reported(changed: bool, random: u64) -> NodeTest {
    let mut test = NodeTest::registered();
    test.node.report_later(&test.config, changed, Mono::START, Jitter::new(random));
    test.node.state = NodeState::Known(Round::default());
    test
}

/// TestIsUpdateStatusPeriodExpired.
#[test]
fn test_is_update_status_period_expired() {
    let minute = SECOND * 60;
    // A random number of 100 shortens the period of 5 minutes to 3, one of 700 extends it to 6.
    for (name, mut test, after, want) in [
        ("never, no delay", NodeTest::new(Flags::of(&["--register-node=false"])), 0, true),
        ("never, delay", NodeTest::new(Flags::of(&["--register-node=false"])), 1, true),
        ("4 m ago, no delay", reported(false, 0), 4, false),
        ("5 m ago, 1 m of delay", reported(true, 700), 5, false),
        ("4 m ago, 2 m early", reported(true, 100), 4, true),
        ("exactly 5 m ago", reported(false, 0), 5, true),
    ] {
        test.node.due = Mono::START.after(minute * after);
        test.node.known_at = test.node.due;
        let sent = test.turn(|_| Outcome::Silent("slow".into()));
        assert_eq!(sent.is_some(), want, "{name}");
    }
}

/// TestCalculateDelay: 0.5 to 1.5 periods, including the bounds.
#[test]
fn test_calculate_delay() {
    let mut delays = Vec::new();
    for random in 0..=1000 {
        delays.push(reported(true, random).node.report_due.since(Mono::START));
    }
    assert_eq!(delays.first(), Some(&(SECOND * 150)));
    assert_eq!(delays.last(), Some(&(SECOND * 450)));
    assert!(delays.is_sorted());
}
