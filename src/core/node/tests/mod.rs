//! The Node's conversation, call by call, after upstream's
//! `kubelet_node_status_test.go` where our differences (README) allow.

mod upstream;

use serde_json::json;

use super::request::counts;
use super::*;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::core::eviction::Pressures;
use crate::core::facts::Facts;
use crate::core::instant::Now;
use crate::core::status;
use crate::kube::message::Response;
use crate::kube::message::{Accept, Method, Outcome, Request};
use crate::kube::time::Wall;

/// 2026-11-21T06:18:51Z.
const BOOT: Duration = Duration::from_secs(1_795_241_931);

impl Node {
    /// How much of the server's Node is kept, as text.
    pub(crate) fn seen_bytes(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.to_string().len())
    }
}

/// A Node and the server's answers to come.
struct Talk {
    config: Config,
    node: Node,
    facts: Facts,
    pressures: Pressures,
    now: Now,
    requests: Vec<Request>,
}

impl Talk {
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

    /// One turn when the Node is due. `None` where nothing needs to be sent.
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

    /// Lets time pass, on both clocks.
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

    /// The requests so far as one line each.
    fn calls(&self) -> Vec<String> {
        let line = |r: &Request| format!("{:?} {}", r.method, r.path.replace("/api/v1/nodes", "~"));
        self.requests.iter().map(line).collect()
    }

    /// A Node that the server has created from our request.
    fn registered() -> Self {
        let mut talk = Self::new(Flags::default());
        assert_eq!(talk.turn(created), Some(Step::Registered));
        talk
    }
}

fn answer(code: u16, body: Value) -> Outcome {
    Outcome::Answered(Response {
        code,
        retry_after: None,
        date: None,
        body: body.to_string().into_bytes(),
    })
}

fn refuse(code: u16, reason: &str) -> Outcome {
    answer(
        code,
        json!({"kind": "Status", "reason": reason, "message": "no"}),
    )
}

/// What the server makes of a POST.
fn created(request: &Request) -> Outcome {
    assert_eq!(request.method, Method::Post);
    let mut node: Value = serde_json::from_slice(&request.body).unwrap();
    let metadata = object::members(&mut node, &["metadata"]);
    metadata.insert("uid".into(), "u1".into());
    metadata.insert("resourceVersion".into(), "512".into());
    metadata.insert("managedFields".into(), json!([{"manager": "nodelet"}]));
    answer(201, node)
}

/// A Node as the server holds it, made by somebody else.
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

/// What the server says to a patch when only metadata was asked for.
fn patched(request: &Request) -> Outcome {
    assert_eq!(
        (request.method, request.accept),
        (Method::Patch, Accept::Metadata)
    );
    answer(
        200,
        json!({"kind": "PartialObjectMetadata", "metadata":
        {"name": "pi", "uid": "u1", "resourceVersion": "600", "labels": {
            "kubernetes.io/os": "linux", "kubernetes.io/arch": status::ARCHITECTURE,
        }}}),
    )
}

#[test]
fn a_new_node_is_one_call() {
    let talk = Talk::registered();
    assert_eq!(talk.calls(), ["Post ~"]);
    assert_eq!(talk.node.uid(), Some("u1"));
    assert!(talk.node.is_registered());
    assert_eq!(talk.pause(), Duration::from_secs(10));
    let body = talk.body();
    assert_eq!(body["status"]["conditions"][3]["status"], "True");
    assert_eq!(
        talk.node.seen.as_ref().unwrap()["metadata"].get("managedFields"),
        None
    );
}

#[test]
fn the_first_attempt_comes_after_100_ms_and_the_pauses_double_to_7_s() {
    let mut talk = Talk::new(Flags::default());
    let mut pauses = vec![talk.node.due().since(Mono::START).as_millis()];
    for outcome in [
        refuse(500, ""),
        refuse(409, "Conflict"),
        refuse(422, "Invalid"),
        refuse(401, "Unauthorized"),
    ] {
        assert!(matches!(talk.turn(|_| outcome), Some(Step::Refused(_))));
        pauses.push(talk.pause().as_millis());
    }
    for _ in 0..5 {
        assert!(matches!(
            talk.turn(|_| Outcome::Silent("slow".into())),
            Some(Step::Silent(_))
        ));
        pauses.push(talk.pause().as_millis());
    }
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000]
    );
    assert!(talk.calls().iter().all(|call| call == "Post ~"));
}

#[test]
fn what_exists_is_adopted_and_the_four_parts_are_reconciled_in_one_patch() {
    for (code, reason) in [(409, "AlreadyExists"), (403, "Forbidden")] {
        for (theirs, ours, want) in [
            (None, true, json!("true")),
            (Some("true"), true, Value::Null),
            (Some("true"), false, Value::Null),
        ] {
            let mut talk = Talk::new(Flags {
                enable_controller_attach_detach: ours,
                ..Flags::default()
            });
            let annotations = match theirs {
                Some(text) => json!({status::ATTACH_DETACH: text, "note": "x"}),
                None => Value::Null,
            };
            assert_eq!(talk.turn(|_| refuse(code, reason)), Some(Step::Continue));
            let existing = foreign(
                json!({"annotations": annotations, "labels": {"theirs": "1", "kubernetes.io/arch": "wrong"}}),
                json!({
                    "capacity": {"example.com/gpu": "2", "hugepages-1Gi": "1Gi"},
                    "conditions": [{"type": "NetworkUnavailable", "status": "False"}],
                    "images": [{"names": ["old"]}], "volumesInUse": ["v"],
                }),
            );
            assert_eq!(talk.turn(|_| answer(200, existing)), Some(Step::Read));
            assert_eq!(talk.node.uid(), Some("u0"), "the lease can start");
            assert_eq!(talk.turn(patched), Some(Step::Adopted));
            assert_eq!(talk.calls(), ["Post ~", "Get ~/pi", "Patch ~/pi/status"]);

            let body = talk.body();
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
                (true, true) => assert_eq!(annotation, None, "nothing to change"),
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
fn an_adoption_that_fails_starts_again_with_the_create() {
    let mut talk = Talk::new(Flags::default());
    talk.turn(|_| refuse(409, "AlreadyExists"));
    assert!(matches!(
        talk.turn(|_| refuse(500, "")),
        Some(Step::Refused(_))
    ));
    assert_eq!(talk.pause(), Duration::from_millis(200));
    talk.turn(|_| refuse(409, "AlreadyExists"));
    talk.turn(|_| answer(200, foreign(json!({}), json!({}))));
    assert!(matches!(
        talk.turn(|_| refuse(422, "Invalid")),
        Some(Step::Refused(_))
    ));
    assert_eq!(talk.pause(), Duration::from_millis(400));
    assert_eq!(talk.turn(created), Some(Step::Registered));
}

#[test]
fn who_may_not_create_a_node_that_is_not_there_is_told_that() {
    let mut talk = Talk::new(Flags::default());
    talk.turn(|_| refuse(403, "Forbidden"));
    let step = talk.turn(|_| refuse(404, "NotFound"));
    assert!(matches!(step, Some(Step::Refused(refused)) if refused.code == 403));
    assert_eq!(talk.turn(created), Some(Step::Registered));
}

#[test]
fn an_unchanged_status_is_not_sent_and_a_changed_one_is_diffed() {
    let mut talk = Talk::registered();
    for _ in 0..3 {
        // Neither what no Node tells is a change.
        talk.facts.working_set_bytes = talk.facts.working_set_bytes.map(|bytes| bytes + 1);
        assert_eq!(talk.turn(|_| unreachable!()), None);
        assert_eq!(talk.pause(), Duration::from_secs(10));
    }
    talk.facts.memory.as_mut().unwrap().total_bytes *= 2;
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    let body = talk.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "512"}));
    let keys: Vec<&String> = body["status"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["allocatable", "capacity", "conditions"]);
    // The next one is built on the resourceVersion of that answer.
    talk.facts.memory.as_mut().unwrap().total_bytes *= 2;
    talk.turn(patched);
    assert_eq!(talk.body()["metadata"], json!({"resourceVersion": "600"}));
    assert_eq!(
        talk.calls(),
        ["Post ~", "Patch ~/pi/status", "Patch ~/pi/status"]
    );
}

#[test]
fn a_change_is_told_once_and_only_when_the_server_has_it() {
    let mut talk = Talk::registered();
    let reasons = |talk: &mut Talk| -> Vec<&str> {
        talk.node
            .take_events()
            .iter()
            .map(|event| event.reason)
            .collect()
    };
    assert_eq!(
        reasons(&mut talk),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID"
        ]
    );
    talk.pressures.memory = true;
    talk.turn(|_| refuse(500, ""));
    assert_eq!(reasons(&mut talk), [] as [&str; 0]);
    let shown = answer(200, talk.node.seen.clone().unwrap());
    talk.turn(|_| shown);
    talk.turn(patched);
    assert_eq!(reasons(&mut talk), ["NodeHasInsufficientMemory"]);

    talk.facts.boot_id = Ok("another".to_owned());
    talk.turn(patched);
    assert_eq!(reasons(&mut talk), ["Rebooted"]);

    let mut cordoned = talk.node.seen.clone().unwrap();
    cordoned["spec"]["unschedulable"] = true.into();
    for want in [&["NodeNotSchedulable"][..], &[]] {
        talk.node.doubt(talk.now.mono);
        let shown = answer(200, cordoned.clone());
        talk.turn(|_| shown);
        assert_eq!(reasons(&mut talk), want);
    }
}

#[test]
fn a_report_is_due_after_the_period_and_reads_first() {
    let mut talk = Talk::registered();
    let server = |talk: &Talk| answer(200, talk.node.seen.clone().unwrap());
    // After a change: a half to one and a half periods; 500 of 1000 is just one.
    talk.node.due = Mono::START.after(Duration::from_secs(299));
    assert_eq!(talk.turn(|_| unreachable!()), None);
    let shown = server(&talk);
    assert_eq!(talk.turn(|_| shown), Some(Step::Read));
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    assert_eq!(talk.calls(), ["Post ~", "Get ~/pi", "Patch ~/pi/status"]);
    let body = talk.body();
    assert_eq!(
        body["status"].as_object().unwrap().len(),
        1,
        "conditions alone"
    );
    for condition in body["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["lastHeartbeatTime"], talk.now.wall.time());
        assert_eq!(condition["lastTransitionTime"], "2026-11-21T06:18:51Z");
    }
    // Nothing had changed, so the next one is a full period away.
    assert_eq!(
        talk.node.report_due.since(talk.now.mono),
        Duration::from_secs(300)
    );
}

#[test]
fn a_conflict_is_read_rebuilt_and_sent_again_but_not_for_ever() {
    let mut talk = Talk::registered();
    talk.facts.cpus = Ok(2);
    let mut theirs = talk.node.seen.clone().unwrap();
    theirs["metadata"]["resourceVersion"] = "513".into();
    theirs["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .insert(0, json!({"type": "Theirs"}));
    for _ in 0..4 {
        assert_eq!(talk.turn(|_| refuse(409, "Conflict")), Some(Step::Continue));
        let shown = answer(200, theirs.clone());
        assert_eq!(talk.turn(|_| shown), Some(Step::Read));
        assert_eq!(talk.pause(), Duration::ZERO);
    }
    assert!(matches!(
        talk.turn(|_| refuse(409, "Conflict")),
        Some(Step::Refused(_))
    ));
    assert_eq!(talk.pause(), Duration::from_secs(10));
    talk.turn(|_| answer(200, theirs));
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    let body = talk.body();
    assert_eq!(body["metadata"]["resourceVersion"], "513");
    assert_eq!(body["status"]["conditions"][0], json!({"type": "Theirs"}));
    assert_eq!(body["status"]["capacity"], json!({"cpu": "2"}));
}

#[test]
fn a_node_that_has_gone_is_registered_again_with_a_new_uid() {
    let mut talk = Talk::registered();
    talk.facts.cpus = Ok(2);
    assert_eq!(talk.turn(|_| refuse(404, "NotFound")), Some(Step::Gone));
    assert_eq!(talk.node.uid(), None);
    assert_eq!(talk.pause(), Duration::from_millis(100));
    assert_eq!(talk.turn(created), Some(Step::Registered));
}

#[test]
fn without_registration_nothing_is_ever_created() {
    let mut talk = Talk::new(Flags {
        register_node: false,
        ..Flags::default()
    });
    for _ in 0..2 {
        assert!(matches!(
            talk.turn(|_| refuse(404, "NotFound")),
            Some(Step::Refused(_))
        ));
        assert_eq!(talk.pause(), Duration::from_secs(10));
    }
    talk.turn(|_| answer(200, foreign(json!({}), json!({}))));
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    talk.facts.cpus = Ok(2);
    assert_eq!(talk.turn(|_| refuse(404, "NotFound")), Some(Step::Gone));
    talk.turn(|_| refuse(404, "NotFound"));
    assert_eq!(
        talk.calls(),
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

#[test]
fn silence_and_doubt_make_us_read_before_we_write() {
    let mut talk = Talk::registered();
    talk.facts.cpus = Ok(2);
    assert!(matches!(
        talk.turn(|_| Outcome::Silent("slow".into())),
        Some(Step::Silent(_))
    ));
    // It had arrived all the same: nothing more to do.
    let mut arrived = talk.node.seen.clone().unwrap();
    let facts = talk.facts.clone();
    arrived = status::desired(
        &talk.config,
        &facts,
        Pressures::default(),
        &arrived,
        talk.now.wall,
    )
    .node;
    talk.turn(|_| answer(200, arrived));
    assert_eq!(talk.turn(|_| unreachable!()), None);
    assert_eq!(talk.calls(), ["Post ~", "Patch ~/pi/status", "Get ~/pi"]);

    talk.node.doubt(talk.now.mono);
    assert_eq!(talk.pause(), Duration::ZERO);
    assert!(talk.node.must_read(&talk.config, talk.now.mono));
}

#[test]
fn answers_that_make_no_sense_are_survived() {
    let nonsense = [
        b"<html>".to_vec(),
        b"{}".to_vec(),
        b"7".to_vec(),
        br#"{"kind": "Status", "metadata": {}}"#.to_vec(),
        br#"{"kind": "Node", "metadata": {"uid": "u9", "resourceVersion": ""}}"#.to_vec(),
        br#"{"kind": "Node", "metadata": {"uid": "", "resourceVersion": "9"}}"#.to_vec(),
    ];
    for body in nonsense {
        let garbage = || {
            Outcome::Answered(Response {
                code: 200,
                retry_after: None,
                date: None,
                body: body.clone(),
            })
        };
        // A create is not believed, and a read changes nothing.
        let mut talk = Talk::new(Flags::default());
        assert!(matches!(talk.turn(|_| garbage()), Some(Step::Refused(_))));
        assert_eq!(talk.node.uid(), None);
        talk.turn(|_| refuse(409, "AlreadyExists"));
        assert!(matches!(talk.turn(|_| garbage()), Some(Step::Refused(_))));
        assert_eq!(talk.node.uid(), None);

        // A patch was taken, so the Lease keeps its owner; what it made is to be read.
        let mut talk = Talk::registered();
        talk.facts.cpus = Ok(2);
        assert_eq!(talk.turn(|_| garbage()), Some(Step::Updated));
        assert_eq!(talk.node.uid(), Some("u1"));
        assert!(talk.node.must_read(&talk.config, talk.now.mono));
        assert!(matches!(talk.turn(|_| garbage()), Some(Step::Refused(_))));
        assert_eq!(talk.node.uid(), Some("u1"));
    }
    // Members of types that nobody expects.
    let mut talk = Talk::new(Flags::default());
    talk.turn(|_| refuse(409, "AlreadyExists"));
    let odd = foreign(json!({}), json!({"conditions": 7, "capacity": []}));
    assert_eq!(talk.turn(|_| answer(200, odd)), Some(Step::Read));
    assert_eq!(talk.turn(patched), Some(Step::Adopted));
}

#[test]
fn adopting_within_the_second_of_the_last_heartbeat_still_sends_a_patch() {
    let mut talk = Talk::registered();
    let stored = talk.node.seen.clone().unwrap();
    let mut again = Talk::new(Flags::default());
    again.turn(|_| refuse(409, "AlreadyExists"));
    again.turn(|_| answer(200, stored));
    again.now.wall = talk.now.wall;
    talk.pass(Duration::ZERO);
    assert_eq!(again.turn(patched), Some(Step::Adopted));
    assert_eq!(again.body()["status"].as_object().unwrap().len(), 1);
}

#[test]
fn a_node_that_vanishes_between_read_and_patch_is_not_chased() {
    let mut talk = Talk::new(Flags::default());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        talk.turn(|_| refuse(409, "AlreadyExists"));
        talk.turn(|_| answer(200, foreign(json!({}), json!({}))));
        assert_eq!(talk.turn(|_| refuse(404, "NotFound")), Some(Step::Gone));
        pauses.push(talk.pause().as_millis());
    }
    assert_eq!(pauses, [200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000]);
}

#[test]
fn annotations_alone_are_no_reason_to_patch() {
    assert!(!counts(&json!({"metadata": {"annotations": {"a": "b"}}})));
    assert!(counts(&json!({"metadata": {"labels": {"a": "b"}}})));
    assert!(counts(&json!({"status": {}})));
}

#[test]
fn a_server_that_asks_for_patience_gets_some() {
    let mut talk = Talk::registered();
    talk.facts.cpus = Ok(2);
    for (asked, granted) in [(3, 3), (3600, 7)] {
        let busy = Outcome::Answered(Response {
            code: 429,
            retry_after: Some(Duration::from_secs(asked)),
            date: None,
            body: Vec::new(),
        });
        talk.turn(|_| busy);
        assert_eq!(talk.pause(), Duration::from_secs(granted));
    }
}

#[test]
fn a_change_whose_answer_was_not_heard_is_told_when_it_is_seen() {
    for applied in [true, false] {
        let mut talk = Talk::registered();
        talk.node.take_events();
        let before = talk.node.seen.clone().unwrap();
        talk.pressures.memory = true;
        talk.turn(|_| Outcome::Silent("slow".into()));
        let stored = match applied {
            true => crate::core::patch::tests::apply(before, &talk.body()),
            false => before,
        };
        talk.turn(|_| answer(200, stored));
        assert_eq!(talk.node.take_events().len(), usize::from(applied));
        if !applied {
            talk.turn(patched);
            assert_eq!(talk.node.take_events().len(), 1);
        }
    }
}

#[test]
fn what_is_being_retried_keeps_its_pace() {
    let mut talk = Talk::registered();
    talk.node.hurry(talk.now.mono);
    assert_eq!(talk.pause(), Duration::ZERO);
    talk.facts.cpus = Ok(2);
    talk.turn(|_| refuse(500, ""));
    let pause = talk.pause();
    talk.node.hurry(talk.now.mono);
    assert_eq!(talk.pause(), pause);
}

/// What a GET shows after somebody else wrote.
fn shown(talk: &Talk, path: &[&str], value: Value) -> Outcome {
    let mut node = talk.node.seen.clone().unwrap();
    let (last, parents) = path.split_last().unwrap();
    object::members(&mut node, parents).insert((*last).to_owned(), value);
    object::members(&mut node, &[]).insert("kind".into(), "Node".into());
    answer(200, node)
}

#[test]
fn new_pod_cidrs_are_told_once_and_force_one_patch() {
    let mut talk = Talk::registered();
    let cidrs = json!(["10.244.1.0/24", "fd00::/64"]);
    talk.node.doubt(talk.now.mono);
    let read = shown(&talk, &["spec", "podCIDRs"], cidrs);
    assert_eq!(talk.turn(|_| read), Some(Step::Read));
    let told = talk.node.new_pod_cidrs();
    assert_eq!(told.as_deref(), Some("10.244.1.0/24,fd00::/64"));
    assert_eq!(talk.node.new_pod_cidrs(), None);

    // Nothing else has changed, and yet it is sent; the next time it is not.
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    assert_eq!(talk.body().get("spec"), None);
    assert_eq!(talk.turn(|_| unreachable!()), None);
    talk.node.doubt(talk.now.mono);
    let read = shown(&talk, &["spec", "podCIDR"], "10.244.1.0/24".into());
    assert_eq!(talk.turn(|_| read), Some(Step::Read));
    assert_eq!(talk.node.new_pod_cidrs(), None);
    assert_eq!(talk.turn(|_| unreachable!()), None);
}

#[test]
fn another_board_of_our_name_is_noticed_once_and_is_no_reboot() {
    let mut talk = Talk::registered();
    talk.node.take_events();
    let reasons = |talk: &mut Talk| -> Vec<&str> {
        let events = talk.node.take_events().into_iter();
        events.map(|event| event.reason).collect()
    };
    let boot_id = ["status", "nodeInfo", "bootID"];
    for (theirs, noticed) in [
        ("theirs", vec!["NodeNameConflict"]),
        ("theirs", vec![]),
        // The clone was rebooted.
        ("another", vec!["NodeNameConflict"]),
    ] {
        talk.node.doubt(talk.now.mono);
        let read = shown(&talk, &boot_id, theirs.into());
        assert_eq!(talk.turn(|_| read), Some(Step::Read));
        assert_eq!(reasons(&mut talk), noticed);
        assert_eq!(talk.turn(patched), Some(Step::Updated));
        assert_eq!(reasons(&mut talk), [""; 0], "nobody rebooted");
    }
    // Our own words, whose receipt got lost, are not another's.
    talk.facts.boot_id = Ok("after-kexec".to_owned());
    let silent = talk.turn(|_| Outcome::Silent("slow".to_owned()));
    assert!(matches!(silent, Some(Step::Silent(_))));
    let read = shown(&talk, &boot_id, "after-kexec".into());
    assert_eq!(talk.turn(|_| read), Some(Step::Read));
    assert_eq!(reasons(&mut talk), ["Rebooted"]);
}

#[test]
fn the_node_of_an_earlier_boot_is_no_other_boards() {
    let mut talk = Talk::new(Flags::default());
    let step = talk.turn(|_| answer(409, json!({"reason": "AlreadyExists"})));
    assert_eq!(step, Some(Step::Continue));
    let old = json!({
        "kind": "Node", "metadata": {"name": "pi", "uid": "u", "resourceVersion": "7"},
        "status": {"nodeInfo": {"bootID": "yesterday"}},
    });
    assert_eq!(talk.turn(|_| answer(200, old)), Some(Step::Read));
    assert_eq!(talk.turn(patched), Some(Step::Adopted));
    let reasons: Vec<&str> = talk.node.take_events().iter().map(|e| e.reason).collect();
    assert!(reasons.contains(&"Rebooted"), "{reasons:?}");
    assert!(!reasons.contains(&"NodeNameConflict"), "{reasons:?}");
}

/// Also where its resourceVersion is the one that we know.
#[test]
fn what_a_read_shows_is_mended_though_the_facts_are_as_they_were() {
    let mut talk = Talk::new(Flags {
        resync_frequency: Duration::from_secs(20),
        ..Flags::default()
    });
    assert_eq!(talk.turn(created), Some(Step::Registered));
    assert_eq!(talk.turn(|_| unreachable!()), None);
    let mut other = talk.node.seen.clone().unwrap();
    other["status"]["capacity"]["memory"] = json!("1Ki");
    assert_eq!(talk.turn(|_| answer(200, other)), Some(Step::Read));
    assert_eq!(talk.turn(patched), Some(Step::Updated));
    let capacity = &talk.body()["status"]["capacity"];
    assert_eq!(*capacity, json!({"memory": "1Gi"}));
}

#[test]
fn a_resync_reads_as_often_as_it_is_told_to() {
    let reads = |resync: u64| {
        let resync_frequency = Duration::from_secs(resync);
        let mut talk = Talk::new(Flags {
            resync_frequency,
            ..Flags::default()
        });
        assert_eq!(talk.turn(created), Some(Step::Registered));
        let end = talk.now.mono.after(Duration::from_secs(120));
        let mut reads = 0;
        while talk.now.mono < end {
            let read = shown(&talk, &["spec", "ours"], "no".into());
            reads += u32::from(talk.turn(|_| read) == Some(Step::Read));
        }
        reads
    };
    assert_eq!([reads(0), reads(30), reads(1)], [0, 4, 12]);
}
