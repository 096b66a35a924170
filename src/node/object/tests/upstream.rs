//! Cases of upstream's `kubelet_node_status_test.go` by their names, as sequences of requests
//! against a server that stores the Node.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// The server with one Node: it sends the Node, and applies patches with its resourceVersion.
pub(super) fn serve(stored: &mut Value) -> impl FnOnce(&Request) -> Answer {
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
        let patched = apply(stored.clone(), &patch);
        if patched != *stored {
            *stored = patched;
            stored["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        }
        let metadata = &stored["metadata"];
        answered(200, json!({"kind": "PartialObjectMetadata", "metadata": metadata}))
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

/// A Node that was reported at the start. `random` spreads the next report after a change.
fn reported(changed: bool, random: u64) -> NodeTest {
    let mut test = NodeTest::registered();
    test.node.times.reported(changed, Mono::START, Jitter::new(random));
    test.node.state = NodeState::Patch(Round::default());
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
        test.node.times.due = Mono::START.after(minute * after);
        test.node.times.confirmed_at = test.node.times.due;
        let sent = test.turn(|_| Err("slow".into()));
        assert_eq!(sent.is_some(), want, "{name}");
    }
}

/// TestCalculateDelay: 0.5 to 1.5 periods, including the bounds.
#[test]
fn test_calculate_delay() {
    let mut delays = Vec::new();
    for random in 0..=1000 {
        delays.push(reported(true, random).node.times.report_due.since(Mono::START));
    }
    assert_eq!(delays.first(), Some(&(SECOND * 150)));
    assert_eq!(delays.last(), Some(&(SECOND * 450)));
    assert!(delays.is_sorted());
}
