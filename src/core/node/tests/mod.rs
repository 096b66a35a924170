//! The Node's requests and responses, one by one. Cases of upstream are in `upstream`.

mod upstream;

use serde_json::json;

use super::request::needs_patch;
use super::*;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::core::eviction::Pressures;
use crate::core::facts::Facts;
use crate::core::instant::Now;
use crate::core::status;
use crate::kube::message::{Accept, Method, Outcome, Request, Response, answered, not_found};
use crate::kube::time::Wall;

/// `--node-status-update-frequency=10s`, and 4 %.
const TICK: Duration = Duration::from_millis(10_400);

/// 2026-11-21T06:18:51Z.
const BOOT: Duration = Duration::from_secs(1_795_241_931);

impl Node {
    /// The size of the cached Node as JSON.
    pub(crate) fn seen_bytes(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.to_string().len())
    }
}

/// A Node, its inputs and the requests that it sent.
struct NodeTest {
    config: Config,
    node: Node,
    facts: Facts,
    pressures: Pressures,
    now: Now,
    requests: Vec<Request>,
}

impl NodeTest {
    fn new(flags: Flags) -> Self {
        let config = Config::new(flags, || Ok("pi".to_owned())).unwrap();
        Self {
            node: Node::new(config.node.register, Mono::START),
            config,
            facts: Facts::example(),
            pressures: Pressures::default(),
            now: Now {
                mono: Mono::START,
                wall: Wall::from_epoch(BOOT),
            },
            requests: Vec::new(),
        }
    }

    /// One turn at the time when the Node is due. `None` if no request is needed.
    fn turn(&mut self, answer: impl FnOnce(&Request) -> Outcome) -> Option<Step> {
        self.pass(self.node.due().since(self.now.mono));
        let request = match self.node.must_read(&self.config, self.now.mono) {
            true => self.node.read(&self.config),
            false => {
                self.node
                    .write(&self.config, &self.facts, self.pressures, self.now)
                    .0?
            }
        };
        self.requests.push(request.clone());
        let outcome = answer(&request);
        Some(
            self.node
                .on_response(&self.config, outcome, self.now.mono, 500),
        )
    }

    /// Advances both clocks.
    fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono.after(time);
        self.now.wall = Wall::from_epoch(BOOT + self.now.mono.since(Mono::START));
    }

    fn last(&self) -> &Request {
        self.requests.last().unwrap()
    }

    fn body(&self) -> Value {
        serde_json::from_slice(&self.last().body).unwrap()
    }

    /// Time until the next turn.
    fn pause(&self) -> Duration {
        self.node.due().since(self.now.mono)
    }

    /// One line for each request.
    fn calls(&self) -> Vec<String> {
        let line = |r: &Request| format!("{:?} {}", r.method, r.path.replace("/api/v1/nodes", "~"));
        self.requests.iter().map(line).collect()
    }

    /// A Node that the server created.
    fn registered() -> Self {
        let mut test = Self::new(Flags::default());
        assert_eq!(test.turn(created), Some(Step::Registered));
        test
    }
}

fn refuse(code: u16, reason: &str) -> Outcome {
    answered(
        code,
        json!({"kind": "Status", "reason": reason, "message": "no"}),
    )
}

/// The response to the POST.
fn created(request: &Request) -> Outcome {
    assert_eq!(request.method, Method::Post);
    let mut node: Value = serde_json::from_slice(&request.body).unwrap();
    let metadata = object::members(&mut node, &["metadata"]);
    metadata.insert("uid".into(), "u1".into());
    metadata.insert("resourceVersion".into(), "512".into());
    metadata.insert("managedFields".into(), json!([{"manager": "nodelet"}]));
    answered(201, node)
}

/// A Node that another client created.
fn foreign(metadata: Value, status: Value) -> Value {
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "pi", "uid": "u0", "resourceVersion": "7"},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        "status": status,
    });
    for (key, value) in metadata.as_object().unwrap() {
        node["metadata"][key] = value.clone();
    }
    node
}

/// The response to a patch: metadata alone.
fn patched(request: &Request) -> Outcome {
    assert_eq!(
        (request.method, request.accept),
        (Method::Patch, Accept::Metadata)
    );
    answered(
        200,
        json!({"kind": "PartialObjectMetadata", "metadata":
        {"name": "pi", "uid": "u1", "resourceVersion": "600", "labels": {
            "kubernetes.io/os": "nodelet", "kubernetes.io/arch": status::ARCHITECTURE,
        }}}),
    )
}

#[test]
fn a_node_is_created_with_one_request() {
    let test = NodeTest::registered();
    assert_eq!(test.calls(), ["Post ~"]);
    assert_eq!(test.node.uid(), Some("u1"));
    assert!(test.node.is_registered());
    assert_eq!(test.pause(), TICK);
    let body = test.body();
    assert_eq!(body["status"]["conditions"][3]["status"], "True");
    assert_eq!(
        test.node.seen.as_ref().unwrap()["metadata"].get("managedFields"),
        None
    );
}

/// kubelet_node_status_test.go TestTryRegisterWithApiServer, as a guest: a label that the guest does
/// not have is removed by the same patch. With pods the labels are a kubelet's again, and none is
/// removed.
#[test]
fn a_takeover_changes_the_labels_with_the_one_patch_of_the_adoption() {
    let labels = |os: &str| {
        json!({
            "kubernetes.io/os": os, "beta.kubernetes.io/os": os,
            "kubernetes.io/arch": status::ARCHITECTURE,
            "beta.kubernetes.io/arch": status::ARCHITECTURE,
        })
    };
    let mut kubelets = labels("linux");
    kubelets["kubernetes.io/hostname"] = "pi".into();
    kubelets["theirs"] = "1".into();
    let mut guests = labels("nodelet");
    guests["node.kubernetes.io/exclude-disruption"] = "true".into();
    guests["node.kubernetes.io/exclude-from-external-load-balancers"] = "true".into();
    for (max_pods, before, want) in [
        (
            0,
            &kubelets,
            json!({
                "kubernetes.io/hostname": null,
                "kubernetes.io/os": "nodelet", "beta.kubernetes.io/os": "nodelet",
                "node.kubernetes.io/exclude-disruption": "true",
                "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            }),
        ),
        (
            110,
            &guests,
            json!({
                "kubernetes.io/hostname": "pi",
                "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
            }),
        ),
        (0, &guests, json!(null)),
        (110, &kubelets, json!(null)),
    ] {
        let mut test = NodeTest::new(Flags {
            max_pods,
            ..Flags::default()
        });
        test.turn(|_| refuse(409, "AlreadyExists"));
        let node = foreign(json!({"labels": before}), json!({}));
        assert_eq!(test.turn(|_| answered(200, node)), Some(Step::Read));
        assert_eq!(test.turn(patched), Some(Step::Adopted));
        assert_eq!(
            test.body()["metadata"]["labels"],
            want,
            "{max_pods} {before}"
        );
        assert_eq!(test.calls().len(), 3);
    }
}

#[test]
fn registration_is_retried_after_100_ms_doubled_to_7_s() {
    let mut test = NodeTest::new(Flags::default());
    let mut pauses = vec![test.node.due().since(Mono::START).as_millis()];
    for outcome in [
        refuse(500, ""),
        refuse(409, "Conflict"),
        refuse(422, "Invalid"),
        refuse(401, "Unauthorized"),
    ] {
        assert!(matches!(test.turn(|_| outcome), Some(Step::Refused(_))));
        pauses.push(test.pause().as_millis());
    }
    for _ in 0..5 {
        assert!(matches!(
            test.turn(|_| Outcome::Silent("slow".into())),
            Some(Step::Silent(_))
        ));
        pauses.push(test.pause().as_millis());
    }
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000]
    );
    assert!(test.calls().iter().all(|call| call == "Post ~"));
}

/// kubelet_node_status_test.go TestRegisterWithApiServer: AlreadyExists, then GET.
#[test]
fn an_existing_node_is_adopted_with_one_patch() {
    for (code, reason) in [(409, "AlreadyExists"), (403, "Forbidden")] {
        for (theirs, ours, want) in [
            (None, true, json!("true")),
            (Some("true"), true, Value::Null),
            (Some("true"), false, Value::Null),
        ] {
            let mut test = NodeTest::new(Flags {
                enable_controller_attach_detach: ours,
                ..Flags::default()
            });
            let annotations = match theirs {
                Some(text) => json!({status::ATTACH_DETACH: text, "note": "x"}),
                None => Value::Null,
            };
            assert_eq!(test.turn(|_| refuse(code, reason)), Some(Step::Continue));
            let existing = foreign(
                json!({"annotations": annotations, "labels": {"theirs": "1", "kubernetes.io/arch": "wrong"}}),
                json!({
                    "capacity": {"example.com/gpu": "2", "hugepages-1Gi": "1Gi"},
                    "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
                    "images": [{"names": ["old"]}], "volumesInUse": ["v"],
                }),
            );
            assert_eq!(test.turn(|_| answered(200, existing)), Some(Step::Read));
            assert_eq!(test.node.uid(), Some("u0"));
            assert_eq!(test.turn(patched), Some(Step::Adopted));
            assert_eq!(test.calls(), ["Post ~", "Get ~/pi", "Patch ~/pi/status"]);

            let body = test.body();
            let metadata = &body["metadata"];
            assert_eq!(metadata["resourceVersion"], "7");
            assert_eq!(
                metadata["labels"]["kubernetes.io/arch"],
                status::ARCHITECTURE
            );
            assert_eq!(metadata["labels"].get("theirs"), None);
            let annotation = metadata
                .pointer("/annotations")
                .and_then(|a| a.get(status::ATTACH_DETACH));
            match (theirs.is_some(), ours) {
                (true, true) => assert_eq!(annotation, None),
                _ => assert_eq!(annotation, Some(&want)),
            }
            assert_eq!(body.get("spec"), None);
            let status = &body["status"];
            assert_eq!(status["capacity"]["example.com/gpu"], "0");
            assert_eq!(status["capacity"].get("hugepages-1Gi"), Some(&Value::Null));
            assert_eq!(
                status["conditions"][0],
                json!({"type": "NetworkUnavailable", "status": "False"})
            );
            assert_eq!(
                (status.get("images"), status.get("volumesInUse")),
                (Some(&Value::Null), Some(&Value::Null))
            );
        }
    }
}

#[test]
fn after_a_failed_adoption_the_node_is_created() {
    let mut test = NodeTest::new(Flags::default());
    test.turn(|_| refuse(409, "AlreadyExists"));
    assert!(matches!(
        test.turn(|_| refuse(500, "")),
        Some(Step::Refused(_))
    ));
    assert_eq!(test.pause(), Duration::from_millis(200));
    test.turn(|_| refuse(409, "AlreadyExists"));
    test.turn(|_| answered(200, foreign(json!({}), json!({}))));
    assert!(matches!(
        test.turn(|_| refuse(422, "Invalid")),
        Some(Step::Refused(_))
    ));
    assert_eq!(test.pause(), Duration::from_millis(400));
    assert_eq!(test.turn(created), Some(Step::Registered));
}

#[test]
fn without_a_node_the_403_of_the_create_is_reported() {
    let mut test = NodeTest::new(Flags::default());
    test.turn(|_| refuse(403, "Forbidden"));
    let step = test.turn(|_| not_found("nodes", "pi"));
    assert!(matches!(step, Some(Step::Refused(refused)) if refused.code == 403));
    assert_eq!(test.turn(created), Some(Step::Registered));
}

#[test]
fn only_the_changed_members_of_the_status_are_sent() {
    let mut test = NodeTest::registered();
    for _ in 0..3 {
        // The working set is no part of the status.
        test.facts.working_set_bytes = test.facts.working_set_bytes.map(|bytes| bytes + 1);
        assert_eq!(test.turn(|_| unreachable!()), None);
        assert_eq!(test.pause(), TICK);
    }
    test.facts.memory.as_mut().unwrap().total_bytes *= 2;
    assert_eq!(test.turn(patched), Some(Step::Updated));
    let body = test.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "512"}));
    let keys: Vec<&String> = body["status"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["allocatable", "capacity", "conditions"]);
    // The next patch has the resourceVersion of that response.
    test.facts.memory.as_mut().unwrap().total_bytes *= 2;
    test.turn(patched);
    assert_eq!(test.body()["metadata"], json!({"resourceVersion": "600"}));
    assert_eq!(
        test.calls(),
        ["Post ~", "Patch ~/pi/status", "Patch ~/pi/status"]
    );
}

/// setters_test.go TestMachineInfo 14: the Rebooted event is sent once.
#[test]
fn a_change_has_one_event_after_the_server_stored_it() {
    let mut test = NodeTest::registered();
    let reasons = |test: &mut NodeTest| -> Vec<&str> {
        test.node
            .take_events()
            .iter()
            .map(|event| event.reason)
            .collect()
    };
    assert_eq!(
        reasons(&mut test),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID"
        ]
    );
    test.pressures.memory = true;
    test.turn(|_| refuse(500, ""));
    assert_eq!(reasons(&mut test), [] as [&str; 0]);
    let shown = answered(200, test.node.seen.clone().unwrap());
    test.turn(|_| shown);
    test.turn(patched);
    assert_eq!(reasons(&mut test), ["NodeHasInsufficientMemory"]);

    test.facts.boot_id = Ok("another".to_owned());
    test.turn(patched);
    assert_eq!(reasons(&mut test), ["Rebooted"]);

    let mut cordoned = test.node.seen.clone().unwrap();
    cordoned["spec"]["unschedulable"] = true.into();
    for want in [&["NodeNotSchedulable"][..], &[]] {
        test.node.read_again(test.now.mono);
        let shown = answered(200, cordoned.clone());
        test.turn(|_| shown);
        assert_eq!(reasons(&mut test), want);
    }
}

#[test]
fn a_report_is_one_patch_after_the_period() {
    let mut test = NodeTest::registered();
    let shown = answered(200, test.node.seen.clone().unwrap());
    // After a change: 0.5 to 1.5 periods; a random number of 500 gives exactly one.
    test.node.due = Mono::START.after(Duration::from_secs(299));
    assert_eq!(test.turn(|_| unreachable!()), None);
    // Controllers react to a new Node.
    assert_eq!(test.turn(|_| shown), Some(Step::Read));
    assert_eq!(test.turn(patched), Some(Step::Updated));
    // Without a change the next report follows after exactly one period, and reads nothing.
    let period = Duration::from_secs(300);
    assert_eq!(test.node.report_due, test.now.mono.after(period));
    test.node.due = test.node.report_due;
    assert_eq!(test.turn(patched), Some(Step::Updated));
    assert_eq!(
        test.calls(),
        [
            "Post ~",
            "Get ~/pi",
            "Patch ~/pi/status",
            "Patch ~/pi/status"
        ]
    );
    let body = test.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "600"}));
    assert_eq!(
        body["status"].as_object().unwrap().len(),
        1,
        "conditions alone"
    );
    for condition in body["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["lastHeartbeatTime"], test.now.wall.time());
        assert_eq!(condition["lastTransitionTime"], "2026-11-21T06:18:51Z");
    }
}

/// The report finds it without a read: the precondition is that of the cached Node.
#[test]
fn a_foreign_change_is_found_and_repaired_by_the_next_report() {
    let mut test = NodeTest::registered();
    test.node
        .report_later(&test.config, false, test.now.mono, 0);
    let mut theirs = test.node.seen.clone().unwrap();
    theirs["metadata"]["resourceVersion"] = "513".into();
    theirs["metadata"]["labels"]["kubernetes.io/os"] = "theirs".into();
    theirs["spec"]["unschedulable"] = true.into();
    test.node.due = test.node.report_due;
    assert_eq!(test.turn(|_| refuse(409, "Conflict")), Some(Step::Continue));
    assert_eq!(test.turn(|_| answered(200, theirs)), Some(Step::Read));
    assert_eq!(test.turn(patched), Some(Step::Updated));
    assert_eq!(
        test.calls(),
        [
            "Post ~",
            "Patch ~/pi/status",
            "Get ~/pi",
            "Patch ~/pi/status"
        ]
    );
    assert_eq!(
        test.body()["metadata"],
        json!({"resourceVersion": "513", "labels": {"kubernetes.io/os": "nodelet"}})
    );
    let events = test.node.take_events();
    assert!(events.iter().any(|e| e.reason == "NodeNotSchedulable"));
    // Who wrote once may write again.
    test.node.due = test.node.report_due;
    assert!(test.node.must_read(&test.config, test.node.due));
}

#[test]
fn a_409_is_read_then_patched_again_five_times_at_once() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    let mut theirs = test.node.seen.clone().unwrap();
    theirs["metadata"]["resourceVersion"] = "513".into();
    theirs["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"type": "Theirs"}));
    for _ in 0..4 {
        assert_eq!(test.turn(|_| refuse(409, "Conflict")), Some(Step::Continue));
        let shown = answered(200, theirs.clone());
        assert_eq!(test.turn(|_| shown), Some(Step::Read));
        assert_eq!(test.pause(), Duration::ZERO);
    }
    assert!(matches!(
        test.turn(|_| refuse(409, "Conflict")),
        Some(Step::Refused(_))
    ));
    assert_eq!(test.pause(), TICK);
    test.turn(|_| answered(200, theirs));
    assert_eq!(test.turn(patched), Some(Step::Updated));
    let body = test.body();
    assert_eq!(body["metadata"]["resourceVersion"], "513");
    assert_eq!(body["status"]["conditions"][0], json!({"type": "Theirs"}));
    assert_eq!(body["status"]["capacity"], json!({"cpu": "2"}));
}

#[test]
fn a_deleted_node_is_registered_again() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Step::Gone));
    assert_eq!(test.node.uid(), None);
    assert_eq!(test.pause(), Duration::from_millis(100));
    assert_eq!(test.turn(created), Some(Step::Registered));
}

/// kubelet_node_status_test.go TestUpdateNodeStatusError (no Node): one request a tick, not five.
#[test]
fn with_register_node_false_no_node_is_created() {
    let mut test = NodeTest::new(Flags {
        register_node: false,
        ..Flags::default()
    });
    for _ in 0..2 {
        assert!(matches!(
            test.turn(|_| not_found("nodes", "pi")),
            Some(Step::Refused(_))
        ));
        assert_eq!(test.pause(), TICK);
    }
    test.turn(|_| answered(200, foreign(json!({}), json!({}))));
    assert_eq!(test.turn(patched), Some(Step::Updated));
    test.facts.cpus = Ok(2);
    assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Step::Gone));
    test.turn(|_| not_found("nodes", "pi"));
    assert_eq!(
        test.calls(),
        [
            "Get ~/pi",
            "Get ~/pi",
            "Get ~/pi",
            "Patch ~/pi/status",
            "Patch ~/pi/status",
            "Get ~/pi"
        ]
    );
}

/// kubelet_node_status_test.go TestUpdateExistingNodeStatusTimeout (server hangs): one request a
/// turn, then the Lease first, instead of five attempts at once.
#[test]
fn after_an_unanswered_patch_the_node_is_read_before_the_next_one() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    assert!(matches!(
        test.turn(|_| Outcome::Silent("slow".into())),
        Some(Step::Silent(_))
    ));
    // The server had applied the patch, so no further request is needed.
    let mut stored = test.node.seen.clone().unwrap();
    let facts = test.facts.clone();
    stored = status::desired(
        &test.config,
        &facts,
        Pressures::default(),
        &stored,
        test.now.wall,
    )
    .node;
    test.turn(|_| answered(200, stored));
    assert_eq!(test.turn(|_| unreachable!()), None);
    assert_eq!(test.calls(), ["Post ~", "Patch ~/pi/status", "Get ~/pi"]);

    test.node.read_again(test.now.mono);
    assert_eq!(test.pause(), Duration::ZERO);
    assert!(test.node.must_read(&test.config, test.now.mono));
}

#[test]
fn invalid_bodies_change_nothing() {
    let invalid = [
        b"<html>".to_vec(),
        b"{}".to_vec(),
        b"7".to_vec(),
        br#"{"kind": "Status", "metadata": {}}"#.to_vec(),
        br#"{"kind": "Node", "metadata": {"uid": "u9", "resourceVersion": ""}}"#.to_vec(),
        br#"{"kind": "Node", "metadata": {"uid": "", "resourceVersion": "9"}}"#.to_vec(),
    ];
    for body in invalid {
        let invalid = || Outcome::Answered(Response::test(200, body.clone()));
        // After a create the Node is unknown, and a read changes nothing.
        let mut test = NodeTest::new(Flags::default());
        assert!(matches!(test.turn(|_| invalid()), Some(Step::Refused(_))));
        assert_eq!(test.node.uid(), None);
        test.turn(|_| refuse(409, "AlreadyExists"));
        assert!(matches!(test.turn(|_| invalid()), Some(Step::Refused(_))));
        assert_eq!(test.node.uid(), None);

        // A patch counts as accepted, so the Lease keeps its owner; then the Node is read.
        let mut test = NodeTest::registered();
        test.facts.cpus = Ok(2);
        assert_eq!(test.turn(|_| invalid()), Some(Step::Updated));
        assert_eq!(test.node.uid(), Some("u1"));
        assert!(test.node.must_read(&test.config, test.now.mono));
        assert!(matches!(test.turn(|_| invalid()), Some(Step::Refused(_))));
        assert_eq!(test.node.uid(), Some("u1"));
    }
    // Members with unexpected types.
    let mut test = NodeTest::new(Flags::default());
    test.turn(|_| refuse(409, "AlreadyExists"));
    let odd = foreign(json!({}), json!({"conditions": 7, "capacity": []}));
    assert_eq!(test.turn(|_| answered(200, odd)), Some(Step::Read));
    assert_eq!(test.turn(patched), Some(Step::Adopted));
}

#[test]
fn an_adoption_within_one_second_of_the_last_heartbeat_sends_a_patch() {
    let mut test = NodeTest::registered();
    let stored = test.node.seen.clone().unwrap();
    let mut again = NodeTest::new(Flags::default());
    again.turn(|_| refuse(409, "AlreadyExists"));
    again.turn(|_| answered(200, stored));
    again.now.wall = test.now.wall;
    test.pass(Duration::ZERO);
    assert_eq!(again.turn(patched), Some(Step::Adopted));
    assert_eq!(again.body()["status"].as_object().unwrap().len(), 1);
}

#[test]
fn a_node_deleted_between_read_and_patch_is_retried_with_backoff() {
    let mut test = NodeTest::new(Flags::default());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        test.turn(|_| refuse(409, "AlreadyExists"));
        test.turn(|_| answered(200, foreign(json!({}), json!({}))));
        assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Step::Gone));
        pauses.push(test.pause().as_millis());
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000]);
}

#[test]
fn a_change_of_annotations_alone_needs_no_patch() {
    assert!(!needs_patch(
        &json!({"metadata": {"annotations": {"a": "b"}}})
    ));
    assert!(needs_patch(&json!({"metadata": {"labels": {"a": "b"}}})));
    assert!(needs_patch(&json!({"status": {}})));
}

#[test]
fn retry_after_is_followed_up_to_7_s() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    for (retry_after, pause) in [(3, 3), (3600, 7)] {
        let busy = Outcome::Answered(Response {
            retry_after: Some(Duration::from_secs(retry_after)),
            ..Response::test(429, "")
        });
        test.turn(|_| busy);
        assert_eq!(test.pause(), Duration::from_secs(pause));
    }
}

#[test]
fn the_events_of_an_unanswered_patch_follow_when_a_read_shows_it() {
    for applied in [true, false] {
        let mut test = NodeTest::registered();
        test.node.take_events();
        let before = test.node.seen.clone().unwrap();
        test.pressures.memory = true;
        test.turn(|_| Outcome::Silent("slow".into()));
        let stored = match applied {
            true => crate::core::patch::tests::apply(before, &test.body()),
            false => before,
        };
        test.turn(|_| answered(200, stored));
        assert_eq!(test.node.take_events().len(), usize::from(applied));
        if !applied {
            test.turn(patched);
            assert_eq!(test.node.take_events().len(), 1);
        }
    }
}

#[test]
fn compute_status_by_does_not_move_a_retry() {
    let mut test = NodeTest::registered();
    test.node.compute_status_by(test.now.mono);
    assert_eq!(test.pause(), Duration::ZERO);
    test.facts.cpus = Ok(2);
    test.turn(|_| refuse(500, ""));
    let pause = test.pause();
    test.node.compute_status_by(test.now.mono);
    assert_eq!(test.pause(), pause);
}

/// The response to a GET after another client set the member at `path`.
fn shown(test: &NodeTest, path: &[&str], value: Value) -> Outcome {
    let mut node = test.node.seen.clone().unwrap();
    let (last, parents) = path.split_last().unwrap();
    object::members(&mut node, parents).insert((*last).to_owned(), value);
    object::members(&mut node, &[]).insert("kind".into(), "Node".into());
    answered(200, node)
}

#[test]
fn new_pod_cidrs_are_returned_once_and_force_one_patch() {
    let mut test = NodeTest::registered();
    let cidrs = json!(["10.244.1.0/24", "fd00::/64"]);
    test.node.read_again(test.now.mono);
    let read = shown(&test, &["spec", "podCIDRs"], cidrs);
    assert_eq!(test.turn(|_| read), Some(Step::Read));
    let cidrs = test.node.new_pod_cidrs();
    assert_eq!(cidrs.as_deref(), Some("10.244.1.0/24,fd00::/64"));
    assert_eq!(test.node.new_pod_cidrs(), None);

    // One patch is sent without another change.
    assert_eq!(test.turn(patched), Some(Step::Updated));
    assert_eq!(test.body().get("spec"), None);
    assert_eq!(test.turn(|_| unreachable!()), None);
    test.node.read_again(test.now.mono);
    let read = shown(&test, &["spec", "podCIDR"], "10.244.1.0/24".into());
    assert_eq!(test.turn(|_| read), Some(Step::Read));
    assert_eq!(test.node.new_pod_cidrs(), None);
    assert_eq!(test.turn(|_| unreachable!()), None);
}

#[test]
fn another_board_with_our_name_has_one_event_and_is_no_reboot() {
    let mut test = NodeTest::registered();
    test.node.take_events();
    let reasons = |test: &mut NodeTest| -> Vec<&str> {
        let events = test.node.take_events().into_iter();
        events.map(|event| event.reason).collect()
    };
    let boot_id = ["status", "nodeInfo", "bootID"];
    for (theirs, want) in [
        ("theirs", vec!["NodeNameConflict"]),
        ("theirs", vec![]),
        // The other board was rebooted.
        ("another", vec!["NodeNameConflict"]),
    ] {
        test.node.read_again(test.now.mono);
        let read = shown(&test, &boot_id, theirs.into());
        assert_eq!(test.turn(|_| read), Some(Step::Read));
        assert_eq!(reasons(&mut test), want);
        assert_eq!(test.turn(patched), Some(Step::Updated));
        assert_eq!(reasons(&mut test), [""; 0], "no reboot");
    }
    // The boot id of our own unanswered patch is not another board's.
    test.facts.boot_id = Ok("after-kexec".to_owned());
    let silent = test.turn(|_| Outcome::Silent("slow".to_owned()));
    assert!(matches!(silent, Some(Step::Silent(_))));
    let read = shown(&test, &boot_id, "after-kexec".into());
    assert_eq!(test.turn(|_| read), Some(Step::Read));
    assert_eq!(reasons(&mut test), ["Rebooted"]);
}

#[test]
fn a_node_of_an_earlier_boot_is_not_another_boards() {
    let mut test = NodeTest::new(Flags::default());
    let step = test.turn(|_| answered(409, json!({"reason": "AlreadyExists"})));
    assert_eq!(step, Some(Step::Continue));
    let old = json!({
        "kind": "Node", "metadata": {"name": "pi", "uid": "u", "resourceVersion": "7"},
        "status": {"nodeInfo": {"bootID": "yesterday"}},
    });
    assert_eq!(test.turn(|_| answered(200, old)), Some(Step::Read));
    assert_eq!(test.turn(patched), Some(Step::Adopted));
    let reasons: Vec<&str> = test.node.take_events().iter().map(|e| e.reason).collect();
    assert!(reasons.contains(&"Rebooted"), "{reasons:?}");
    assert!(!reasons.contains(&"NodeNameConflict"), "{reasons:?}");
}

/// Even if the resourceVersion is unchanged.
#[test]
fn a_foreign_change_is_repaired_after_a_read_without_new_facts() {
    let mut test = NodeTest::new(Flags {
        resync_frequency: Duration::from_secs(20),
        ..Flags::default()
    });
    assert_eq!(test.turn(created), Some(Step::Registered));
    assert_eq!(test.turn(|_| unreachable!()), None);
    let mut other = test.node.seen.clone().unwrap();
    other["status"]["capacity"]["memory"] = json!("1Ki");
    assert_eq!(test.turn(|_| answered(200, other)), Some(Step::Read));
    assert_eq!(test.turn(patched), Some(Step::Updated));
    let capacity = &test.body()["status"]["capacity"];
    assert_eq!(*capacity, json!({"memory": "1Gi"}));
}

#[test]
fn resync_frequency_is_the_period_of_reads() {
    let reads = |resync: u64| {
        let resync_frequency = Duration::from_secs(resync);
        let mut test = NodeTest::new(Flags {
            resync_frequency,
            ..Flags::default()
        });
        assert_eq!(test.turn(created), Some(Step::Registered));
        let end = test.now.mono.after(Duration::from_secs(120));
        let mut reads = 0;
        while test.now.mono < end {
            let read = shown(&test, &["spec", "ours"], "no".into());
            reads += u32::from(test.turn(|_| read) == Some(Step::Read));
        }
        reads
    };
    assert_eq!([reads(0), reads(30), reads(1)], [0, 4, 12]);
}
