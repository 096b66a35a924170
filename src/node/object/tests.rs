//! The Node's requests and responses, one by one.

use std::time::Duration;

use super::*;
use crate::config::Config;
use crate::kube::facts::{Facts, HealthCondition, HealthConditions};
use crate::kube::message::{
    Accept, Answer, Method, Request, RequestError, Response, answered, not_found,
};
use crate::kube::time::Wall;
use crate::node::Progress;
use crate::node::eviction::Pressures;
use crate::node::kubelet::tests::is_check;
use crate::node::patch::tests::apply;
use crate::node::status;

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
    node: Node,
    facts: Facts,
    pressures: Pressures,
    now: ClusterNow,
    requests: Vec<Request>,
}

/// What became of a turn.
type Turn = Option<Result<Progress, RequestError>>;

fn is_refused(turn: Turn) -> bool {
    turn.is_some_and(|turn| turn.is_err_and(|error| error.refused.is_some()))
}

impl NodeTest {
    fn new(flags: &[&str]) -> Self {
        Self {
            node: Node::new(Config::of(flags), Mono::START),
            facts: Facts::example(),
            pressures: Pressures::default(),
            now: ClusterNow::test(Mono::START, Wall::from_epoch(BOOT)),
            requests: Vec::new(),
        }
    }

    /// One turn at the time when the Node is due. `None` if no request is needed.
    fn turn(&mut self, answer: impl FnOnce(&Request) -> Answer) -> Turn {
        self.pass(self.node.due().since(self.now.mono()));
        let request = match self.node.next() {
            RequestKind::ReadNode => self.node.read(),
            _ => self.node.write(&self.facts, self.pressures, self.now).0?,
        };
        self.requests.push(request.clone());
        let outcome = answer(&request);
        Some(self.node.on_response(outcome, self.now.mono(), Jitter::new(500)))
    }

    /// Advances both clocks.
    fn pass(&mut self, time: Duration) {
        let mono = self.now.mono().after(time);
        let wall = Wall::from_epoch(BOOT + mono.since(Mono::START));
        self.now = ClusterNow::test(mono, wall);
    }

    fn last(&self) -> &Request {
        self.requests.last().unwrap()
    }

    fn body(&self) -> Value {
        serde_json::from_slice(&self.last().body).unwrap()
    }

    /// Time until the next turn.
    fn pause(&self) -> Duration {
        self.node.due().since(self.now.mono())
    }

    /// One line for each request.
    fn calls(&self) -> Vec<String> {
        let line = |r: &Request| format!("{:?} {}", r.method, r.path.replace("/api/v1/nodes", "~"));
        self.requests.iter().map(line).collect()
    }

    /// A board whose Node does not exist.
    fn absent(flags: &[&str]) -> Self {
        let mut test = Self::new(flags);
        assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Ok(Progress::Continue)));
        assert_eq!(test.pause(), Duration::ZERO);
        test.requests.clear();
        test
    }

    /// A Node that the server created.
    fn registered() -> Self {
        let test = Self::registered_with(&[]);
        assert_eq!(test.pause(), TICK);
        test
    }

    fn registered_with(flags: &[&str]) -> Self {
        let mut test = Self::absent(flags);
        assert_eq!(test.turn(created), Some(Ok(Progress::Created)));
        assert_eq!(test.node.uid(), Some("u1"));
        let first = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
        assert_eq!(test.reasons(), first);
        test
    }

    /// The cached Node.
    fn seen(&self) -> Value {
        self.node.seen.clone().unwrap()
    }

    /// A read at once, of the Node after another client set the member at `path`.
    fn read_with(&mut self, path: &[&str], value: Value) {
        let mut node = self.seen();
        object::set(&mut node, path, value);
        self.read(node);
    }

    /// A read at once, of the Node as it is cached.
    fn read_unchanged(&mut self) {
        self.read(self.seen());
    }

    /// A read at once, of this Node.
    fn read(&mut self, node: Value) {
        self.node.read_again(self.now.mono());
        assert_eq!(self.pause(), Duration::ZERO);
        assert_eq!(self.turn(|_| answered(200, node)), Some(Ok(Progress::Read)));
    }

    /// A Node that existed before; it was just read.
    fn found(existing: Value) -> Self {
        let mut test = Self::new(&[]);
        assert_eq!(test.turn(|_| answered(200, existing)), Some(Ok(Progress::Read)));
        test
    }

    /// The reasons of the new events.
    fn reasons(&mut self) -> Vec<&'static str> {
        self.node.take_events().iter().map(|event| event.reason).collect()
    }
}

fn refuse(code: u16, reason: &str) -> Answer {
    answered(code, json!({"kind": "Status", "reason": reason, "message": "no"}))
}

/// The response to the POST.
fn created(request: &Request) -> Answer {
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
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "pi", "uid": "u0", "resourceVersion": "7"},
        "spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]},
        "status": status,
    });
    apply(node, &json!({"metadata": metadata}))
}

/// The response to a patch: metadata alone.
fn patched_to(name: &str, version: &str) -> Answer {
    let labels = json!({"kubernetes.io/os": "nodelet", "kubernetes.io/arch": status::ARCHITECTURE});
    let metadata = json!({"name": name, "uid": "u1", "resourceVersion": version, "labels": labels});
    answered(200, json!({"kind": "PartialObjectMetadata", "metadata": metadata}))
}

/// What a correct server says to a check that finds nothing.
fn unchanged(request: &Request) -> Answer {
    assert!(is_check(request), "{request:?}");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    patched_to("pi", resource_version(&body))
}

fn patched(request: &Request) -> Answer {
    assert_eq!((request.method, request.accept), (Method::Patch, Accept::Metadata));
    patched_to("pi", "600")
}

/// kubelet_node_status_test.go TestTryRegisterWithApiServer; its annotations are in
/// `reconcile/tests.rs`. The delays are 100 ms, doubled up to 7 s.
#[test]
fn test_try_register_with_api_server() {
    let absent = || not_found("nodes", "pi");
    let theirs = || answered(200, foreign(json!({}), json!({})));
    let mut test = NodeTest::new(&[]);
    let mut pauses = vec![test.pause().as_millis()];
    for (calls, answers) in [
        ("Get", vec![refuse(500, "")]),
        ("Get", vec![Err("slow".into())]),
        // After each create that did not work the Node is read: it may exist.
        ("Get Post Get", vec![absent(), refuse(500, ""), absent()]),
        ("Post Get", vec![refuse(409, "Conflict"), absent()]),
        ("Post Get", vec![refuse(422, "Invalid"), absent()]),
        ("Post Get", vec![refuse(401, "Unauthorized"), refuse(401, "Unauthorized")]),
        ("Get Post", vec![absent(), Err("slow".into())]),
        ("Get Patch", vec![theirs(), refuse(500, "")]),
        ("Get Patch", vec![theirs(), refuse(422, "Invalid")]),
        ("Get Patch", vec![theirs(), absent()]),
    ] {
        test.requests.clear();
        let last = answers.into_iter().map(|answer| test.turn(|_| answer)).last().flatten();
        let method = |request: &Request| format!("{:?}", request.method);
        let sent: Vec<String> = test.requests.iter().map(method).collect();
        assert_eq!(sent.join(" "), calls);
        assert!(matches!(last, Some(Err(_) | Ok(Progress::Gone))), "{last:?}");
        assert!(!test.node.is_registered(), "{last:?}");
        pauses.push(test.pause().as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000, 7000]);
    // A Node that this identity may not create.
    test.turn(|_| refuse(403, "Forbidden"));
    let absent = test.turn(|_| not_found("nodes", "pi")).unwrap();
    assert_eq!(absent.unwrap_err().refused.unwrap().code, 403, "the cause of the 404");
    test.turn(|_| refuse(403, "Forbidden"));
    test.turn(|_| theirs());
    assert_eq!(test.turn(patched), Some(Ok(Progress::Adopted)));
    assert!(test.node.is_registered());
}

/// kubelet_node_status_test.go TestRegisterWithApiServer. What becomes of each member is in
/// `reconcile/tests.rs`.
#[test]
fn an_existing_node_is_adopted_with_one_patch() {
    let theirs = json!({"type": "NetworkUnavailable", "status": "False"});
    let mut test = NodeTest::found(foreign(
        json!({"labels": {"theirs": "1", "kubernetes.io/hostname": "pi"}}),
        json!({"conditions": [theirs], "nodeInfo": {"bootID": "yesterday"}}),
    ));
    assert_eq!(test.node.uid(), Some("u0"));
    assert_eq!(test.turn(patched), Some(Ok(Progress::Adopted)));
    assert_eq!(test.calls(), ["Get ~/pi", "Patch ~/pi/status"]);
    let body = test.body();
    assert_eq!(body.get("spec"), None);
    let metadata = &body["metadata"];
    assert_eq!(metadata["resourceVersion"], "7");
    assert_eq!(metadata["annotations"][object::ATTACH_DETACH], "true");
    let labels = &metadata["labels"];
    assert_eq!(labels.get("kubernetes.io/hostname"), Some(&Value::Null), "not of a guest");
    assert_eq!((labels.get("theirs"), &labels["kubernetes.io/os"]), (None, &json!("nodelet")));
    assert_eq!(body["status"]["conditions"][0], theirs);
    let reasons = test.reasons();
    assert!(reasons.contains(&"Rebooted"), "{reasons:?}");
    assert!(!reasons.contains(&"NodeNameConflict"), "the boot of another board: {reasons:?}");
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
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    let body = test.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "512"}));
    let keys: Vec<&String> = body["status"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["allocatable", "capacity", "conditions"]);
    // The next patch has the resourceVersion of that response.
    test.facts.memory.as_mut().unwrap().total_bytes *= 2;
    test.turn(patched);
    assert_eq!(test.body()["metadata"], json!({"resourceVersion": "600"}));
    assert_eq!(test.calls(), ["Post ~", "Patch ~/pi/status", "Patch ~/pi/status"]);
}

/// setters_test.go TestMachineInfo 14: the Rebooted event is sent once.
#[test]
fn a_change_has_one_event_after_the_server_stored_it() {
    let mut test = NodeTest::registered();
    test.pressures.memory = Some(true);
    test.turn(|_| refuse(500, ""));
    assert_eq!(test.reasons(), [] as [&str; 0]);
    let shown = answered(200, test.seen());
    test.turn(|_| shown);
    test.turn(patched);
    assert_eq!(test.reasons(), ["NodeHasInsufficientMemory"]);

    test.facts.boot_id = Ok("another".to_owned());
    test.turn(patched);
    assert_eq!(test.reasons(), ["Rebooted"]);

    for want in [&["NodeNotSchedulable"][..], &[]] {
        test.read_with(&["spec", "unschedulable"], true.into());
        assert_eq!(test.reasons(), want);
    }
}

/// kubelet_node_status_test.go TestIsUpdateStatusPeriodExpired and TestCalculateDelay: 5 minutes
/// after a report, and 0.5 to 1.5 times as long after a change.
#[test]
fn test_is_update_status_period_expired_and_calculate_delay() {
    for (is_changed, random, seconds) in
        [(false, 0, 300), (false, 1000, 300), (true, 0, 150), (true, 100, 180), (true, 1000, 450)]
    {
        for (millis, is_expired) in [(seconds * 1000 - 1, false), (seconds * 1000, true)] {
            let mut test = NodeTest::registered();
            test.node.times.reported(is_changed, Mono::START, Jitter::new(random));
            test.node.times.due = Mono::START.after(Duration::from_millis(millis));
            test.node.times.confirmed_at = test.node.times.due;
            let is_sent = test.turn(|_| Err("slow".into())).is_some();
            assert_eq!(is_sent, is_expired, "{is_changed} {random}");
        }
    }
}

#[test]
fn a_report_is_one_patch_after_the_period() {
    let mut test = NodeTest::registered();
    test.node.times.due = test.node.times.report_due;
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    // Without a change the next report follows after exactly one period, and reads nothing.
    let period = Duration::from_secs(300);
    assert_eq!(test.node.times.report_due, test.now.mono().after(period));
    test.node.times.due = test.node.times.report_due;
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    assert_eq!(test.calls(), ["Post ~", "Patch ~/pi/status", "Patch ~/pi/status"]);
    let body = test.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "600"}));
    assert_eq!(body["status"].as_object().unwrap().len(), 1, "conditions alone");
    for condition in body["status"]["conditions"].as_array().unwrap() {
        assert_eq!(condition["lastHeartbeatTime"], test.now.wall().time());
        assert_eq!(condition["lastTransitionTime"], "2026-11-21T06:18:51Z");
    }
}

#[test]
fn a_409_is_read_then_patched_again_five_times_at_once() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    let mut theirs = test.seen();
    theirs["metadata"]["resourceVersion"] = "513".into();
    theirs["status"]["conditions"].as_array_mut().unwrap().insert(0, json!({"type": "Theirs"}));
    for _ in 0..4 {
        assert_eq!(test.turn(|_| refuse(409, "Conflict")), Some(Ok(Progress::Continue)));
        let shown = answered(200, theirs.clone());
        assert_eq!(test.turn(|_| shown), Some(Ok(Progress::Read)));
        assert_eq!(test.pause(), Duration::ZERO);
    }
    assert!(is_refused(test.turn(|_| refuse(409, "Conflict"))));
    assert_eq!(test.pause(), TICK);
    test.turn(|_| answered(200, theirs));
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    let body = test.body();
    assert_eq!(body["metadata"]["resourceVersion"], "513");
    assert_eq!(body["status"]["conditions"][0], json!({"type": "Theirs"}));
    assert_eq!(body["status"]["capacity"], json!({"cpu": "2"}));
}

/// All that etcd stores: 6,500 images, 7,000 annotations and their managedFields.
#[test]
fn a_node_of_any_size_is_adopted() {
    let annotations: Value = (0..7000).map(|n| (format!("a{n}"), json!(""))).collect();
    let fields: Value = (0..7000).map(|n| (format!("f:a{n}"), json!({}))).collect();
    let names = vec![format!("registry/{}", "x".repeat(180))];
    let images = vec![json!({"names": names, "sizeBytes": 1}); 6500];
    let metadata = json!({
        "annotations": annotations, "managedFields": [{"fieldsV1": {"f:metadata": fields}}],
    });
    let node = foreign(metadata, json!({"images": images}));
    assert!((1_500_000..4_000_000).contains(&node.to_string().len()));
    let mut test = NodeTest::found(node);
    assert!(test.node.seen_bytes() < 300 << 10, "{}", test.node.seen_bytes());
    assert_eq!(test.seen()["metadata"].get("managedFields"), None);
    assert_eq!(test.turn(patched), Some(Ok(Progress::Adopted)));
    assert_eq!(test.body()["metadata"]["annotations"].get("a1"), None);
    // `object::is_read_annotation` says why an annotation could be sent again and again.
    test.read_unchanged();
    test.facts.memory.as_mut().unwrap().total_bytes *= 2;
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    assert_eq!(test.body()["metadata"], json!({"resourceVersion": "600"}));
}

/// The Lease needs no more than the uid.
#[test]
fn the_uid_of_a_node_that_cannot_be_read_is_that_of_its_metadata() {
    let labels: Value = (0..20_000).map(|n| (format!("l{n}"), json!(""))).collect();
    let labels = json!({ "labels": labels });
    let huge = answered(200, foreign(labels.clone(), json!({})));
    let mut test = NodeTest::new(&[]);
    let refused = test.turn(|_| huge).unwrap().unwrap_err().refused.unwrap();
    assert_eq!(
        refused.to_string(),
        "200: the Node has more than 32768 values; kubectl get node -o yaml shows what to remove"
    );
    assert_eq!(test.node.uid(), Some("u0"));
    // Larger than the limit in bytes, or too slow.
    let exceeds = Response { exceeds: Some(4), ..Response::test(200, "") };
    for outcome in [Ok(exceeds), Err("slow".into())] {
        let mut partial = foreign(labels.clone(), json!({}));
        partial["kind"] = "PartialObjectMetadata".into();
        let mut test = NodeTest::new(&["--register-node=false"]);
        test.turn(|_| outcome.clone());
        assert_eq!(test.node.uid(), None);
        assert_eq!(test.turn(|_| answered(200, partial)), Some(Ok(Progress::Continue)));
        assert_eq!(test.last().accept, Accept::Metadata);
        assert_eq!(test.node.uid(), Some("u0"));
        // It is tried again, until it can be read.
        test.turn(|_| outcome.clone());
        test.turn(|_| outcome);
        assert_eq!(test.last().accept, Accept::Object);
        assert!(!test.node.is_registered());
        let small = foreign(json!({}), json!({}));
        assert_eq!(test.turn(|_| answered(200, small)), Some(Ok(Progress::Read)));
        // And a Node that is gone has no uid.
        test.turn(patched);
        test.node.read_again(test.now.mono());
        assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Ok(Progress::Gone)));
        assert_eq!(test.node.uid(), None);
    }
}

#[test]
fn with_register_node_false_no_node_is_created() {
    let mut test = NodeTest::new(&["--register-node=false"]);
    for _ in 0..2 {
        assert!(is_refused(test.turn(|_| not_found("nodes", "pi"))));
        assert_eq!(test.pause(), TICK);
    }
    test.turn(|_| answered(200, foreign(json!({}), json!({}))));
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    test.facts.cpus = Ok(2);
    assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Ok(Progress::Gone)));
    test.turn(|_| not_found("nodes", "pi"));
    assert_eq!(
        test.calls(),
        ["Get ~/pi", "Get ~/pi", "Get ~/pi", "Patch ~/pi/status", "Patch ~/pi/status", "Get ~/pi"]
    );
}

#[test]
fn invalid_bodies_change_nothing() {
    for body in [
        "<html>",
        "{}",
        "7",
        r#"{"kind": "Status", "metadata": {"name": "pi"}}"#,
        r#"{"kind": "Node", "metadata": {"name": "pi", "uid": "u9", "resourceVersion": ""}}"#,
        r#"{"kind": "Node", "metadata": {"name": "pi", "uid": "", "resourceVersion": "9"}}"#,
        r#"{"kind": "Pod", "metadata": {"name": "pi", "uid": "u9", "resourceVersion": "9"}}"#,
        // A cache before the server may be broken.
        r#"{"kind": "Node", "metadata": {"name": "other", "uid": "u9", "resourceVersion": "9"}}"#,
    ] {
        let invalid = || Ok(Response::test(200, body));
        // After a create the Node is unknown, and a read changes nothing.
        let mut test = NodeTest::absent(&[]);
        assert!(is_refused(test.turn(|_| invalid())), "{body}");
        assert_eq!(test.node.uid(), None);
        let nonsense = Refused::nonsense("a Node").into();
        assert_eq!(test.turn(|_| invalid()), Some(Err(nonsense)), "{body}");
        assert_eq!(test.node.uid(), None);

        // A patch may have been applied, so the Node is read. The Lease keeps its owner.
        let mut test = NodeTest::registered();
        test.facts.cpus = Ok(2);
        assert!(is_refused(test.turn(|_| invalid())));
        assert_eq!(test.node.uid(), Some("u1"));
        assert!(test.node.next() == RequestKind::ReadNode);
        assert!(is_refused(test.turn(|_| invalid())));
        assert_eq!(test.node.uid(), Some("u1"));
    }
    // An adoption is made until it is confirmed.
    let mut test = NodeTest::found(foreign(json!({}), json!({})));
    assert!(is_refused(test.turn(|_| Ok(Response::test(200, "<html>")))));
    assert_eq!(test.reasons(), [""; 0], "nothing is known to have changed");
    assert!(!test.node.is_registered());
    test.read_with(&["status", "nodeInfo", "bootID"], "yesterday".into());
    assert_eq!(test.turn(patched), Some(Ok(Progress::Adopted)));
    // Members with unexpected types.
    let odd = foreign(json!({}), json!({"conditions": 7, "capacity": []}));
    let mut test = NodeTest::found(odd);
    assert_eq!(test.turn(patched), Some(Ok(Progress::Adopted)));
}

#[test]
fn an_adoption_within_one_second_of_the_last_heartbeat_sends_a_patch() {
    let test = NodeTest::registered();
    let mut again = NodeTest::found(test.seen());
    again.now = ClusterNow::test(again.now.mono(), test.now.wall());
    assert_eq!(again.turn(patched), Some(Ok(Progress::Adopted)));
    assert_eq!(again.body()["status"].as_object().unwrap().len(), 1);
}

#[test]
fn annotations_alone_and_a_drifting_amount_need_no_patch() {
    let seen = json!({"status": {"capacity": {"ephemeral-storage": "100Gi", "cpu": "4"}}});
    let needs = |change| needs_patch(&seen, &change);
    let capacity = |name: &str, amount: &str| json!({"status": {"capacity": {name: amount}}});
    assert!(!needs(json!({"metadata": {"annotations": {"a": "b"}}})));
    assert!(!needs(capacity("ephemeral-storage", "101Gi")));
    assert!(!needs(capacity("ephemeral-storage", "99Gi")));
    assert!(needs(capacity("ephemeral-storage", "101.1Gi")));
    assert!(needs(capacity("memory", "1Gi")), "a new one");
    assert!(needs(capacity("cpu", "3999m")), "no bytes");
    assert!(needs(json!({"status": {"capacity": {"ephemeral-storage": null}}})));
    assert!(needs(json!({"status": {"conditions": []}})));
    assert!(needs(json!({"status": {}})));
    assert!(needs(json!({"metadata": {"labels": {"a": "b"}}})));
}

/// A burst of six, then one each ten seconds; a report is not counted against it, nor a first
/// change after a rest.
#[test]
fn whatever_flaps_the_node_is_written_every_ten_seconds_at_most() {
    for flags in [&[] as &[&str], &["--node-status-update-frequency=5m"]] {
        whatever_flaps(NodeTest::registered_with(flags));
    }
}

fn whatever_flaps(mut test: NodeTest) {
    let mut patches = 0;
    let end = test.now.mono().after(Duration::from_secs(600));
    while test.now.mono() < end {
        test.facts.kernel_version = Ok(test.now.mono().since(Mono::START).as_millis().to_string());
        test.node.compute_status_by(test.now.mono().after(Duration::from_secs(1)));
        patches += u32::from(test.turn(patched) == Some(Ok(Progress::Done)));
    }
    assert!((60..=68).contains(&patches), "{patches}");
    let stable = test.facts.kernel_version.clone();
    test.facts.kernel_version = Ok("last".to_owned());
    test.node.report_at(test.now.mono());
    assert_eq!((test.pause(), test.turn(patched)), (Duration::ZERO, Some(Ok(Progress::Done))));
    // The last change of a storm is sent, too.
    test.facts.kernel_version = stable;
    let end = test.now.mono().after(test.node.config.update_frequency * 2 + TICK);
    while test.now.mono() < end && test.turn(patched).is_none() {}
    assert!(test.now.mono() < end);
}

/// Runs until the next check, which gets this answer.
fn check(test: &mut NodeTest, answer: impl FnOnce(&Request) -> Answer) -> Turn {
    let mut answer = Some(answer);
    loop {
        let turn = test.turn(|request| match is_check(request) {
            true => answer.take().unwrap()(request),
            false => patched(request),
        });
        if answer.is_none() {
            return turn;
        }
    }
}

#[test]
fn a_check_that_finds_nothing_is_no_report() {
    let mut test = NodeTest::registered();
    test.node.times.reported(false, test.now.mono(), Jitter::NONE);
    let (report_due, before) = (test.node.times.report_due, test.node.seen.clone());
    // An amount that drifts is sent with the next report.
    test.facts.memory.as_mut().unwrap().total_bytes += 1 << 20;
    assert_eq!(check(&mut test, unchanged), Some(Ok(Progress::Continue)));
    let time = test.now.mono().since(Mono::START);
    assert!(time >= Duration::from_secs(149) && time < Duration::from_secs(160), "{time:?}");
    assert_eq!(test.calls(), ["Post ~", "Patch ~/pi/status"]);
    assert_eq!(test.last().accept, Accept::Metadata);
    assert_eq!(test.body(), json!({"metadata": {"resourceVersion": "512"}}));
    assert_eq!((test.node.times.report_due, &test.node.seen), (report_due, &before));
    assert_eq!(test.reasons(), [""; 0]);
    assert_eq!(test.pause(), TICK);
    // The report follows in its time, without another check.
    while test.calls().len() < 3 {
        test.turn(patched);
    }
    assert!(test.now.mono() >= report_due && test.now.mono() < report_due.after(TICK));
    assert!(!is_check(test.last()));
    assert_eq!(test.pause(), TICK);
}

#[test]
fn whatever_a_check_does_not_confirm_is_read() {
    for (answer, is_error, pause) in [
        (refuse(409, "Conflict"), false, Duration::ZERO),
        // It was written, whatever the precondition says, or is not ours.
        (patched_to("pi", "513"), false, TICK),
        (patched_to("other", "512"), false, TICK),
        (Ok(Response::test(200, "")), false, TICK),
        (refuse(403, "Forbidden"), true, Duration::from_millis(200)),
        (refuse(429, "TooManyRequests"), true, Duration::from_millis(200)),
        (Err("slow".into()), true, Duration::from_millis(200)),
    ] {
        let mut test = NodeTest::registered();
        test.node.times.backoff.next_delay();
        let turn = check(&mut test, |_| answer);
        assert_eq!(turn.clone().map(|turn| turn.is_err()), Some(is_error), "{turn:?}");
        assert_eq!(test.pause(), pause, "{turn:?}");
        assert_eq!(test.node.uid(), Some("u1"));
        assert!(test.node.next() == RequestKind::ReadNode, "{turn:?}");
        test.read_with(&["spec", "unschedulable"], true.into());
        assert_eq!(test.reasons(), ["NodeNotSchedulable"]);
        // Nothing is wrong with our part, and the next check is not due before its period.
        let calls = test.calls().len();
        let end = test.now.mono().after(Duration::from_secs(120));
        while test.now.mono() < end && test.now.mono() < test.node.times.report_due {
            test.turn(patched);
        }
        let more = &test.requests[calls..];
        assert!(more.iter().all(|request| !is_check(request)), "{more:?}");
    }
    let mut test = NodeTest::registered();
    assert_eq!(check(&mut test, |_| not_found("nodes", "pi")), Some(Ok(Progress::Gone)));
    assert_eq!((test.node.uid(), test.pause()), (None, Duration::from_millis(100)));
    assert_eq!(test.turn(created), Some(Ok(Progress::Created)));
}

/// Five conflicts in a row are a failure, which is told; those of five checks are not.
#[test]
fn another_client_that_writes_before_each_check_is_no_failure() {
    let mut test = NodeTest::absent(&["--node-resync-frequency=1s"]);
    test.turn(created);
    for _ in 0..10 {
        let turn = check(&mut test, |_| refuse(409, "Conflict"));
        assert_eq!(turn, Some(Ok(Progress::Continue)));
        assert!(test.node.next() == RequestKind::ReadNode);
        test.read_unchanged();
        assert_eq!(test.turn(|_| unreachable!()), None);
    }
}

#[test]
fn retry_after_is_followed_up_to_7_s() {
    let mut test = NodeTest::registered();
    test.facts.cpus = Ok(2);
    for (retry_after, pause) in [(3, 3), (3600, 7)] {
        let busy = Ok(Response {
            retry_after: Some(Duration::from_secs(retry_after)),
            ..Response::test(429, "")
        });
        test.turn(|_| busy);
        assert_eq!(test.pause(), Duration::from_secs(pause));
    }
}

/// kubelet_node_status_test.go TestUpdateExistingNodeStatusTimeout (server hangs): one request a
/// turn, then the Lease first, instead of five attempts at once.
#[test]
fn after_a_lost_or_conflicting_patch_the_node_is_read_and_each_event_is_sent_once() {
    let etcd = || refuse(500, "InternalError");
    for (lost, is_applied) in [
        (Err("slow".into()), false),
        (Err("slow".into()), true),
        (refuse(409, "Conflict"), false),
        (etcd(), false),
        (etcd(), true),
    ] {
        let mut test = NodeTest::registered();
        let mut stored = test.seen();
        test.pressures.memory = Some(true);
        test.set_health(&[condition("UnderVoltage", true, "a")]);
        test.turn(|_| lost);
        if is_applied {
            stored = apply(stored, &test.body());
        }
        assert_eq!(test.turn(|_| answered(200, stored)), Some(Ok(Progress::Read)));
        assert_eq!(test.turn(patched).is_none(), is_applied);
        assert_eq!(test.health("UnderVoltage"), Some(("True", "a")));
        assert_eq!(test.reasons(), ["NodeHasInsufficientMemory", "R"], "{is_applied}");
        assert!(test.now.mono() < Mono::START.after(Duration::from_secs(20)));
    }
}

#[test]
fn an_unanswered_patch_of_a_node_that_was_deleted_has_no_second_event() {
    let mut test = NodeTest::registered();
    test.pressures.memory = Some(true);
    test.turn(|_| Err("slow".into()));
    assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Ok(Progress::Gone)));
    assert_eq!(test.turn(created), Some(Ok(Progress::Created)));
    assert!(test.reasons().contains(&"NodeHasInsufficientMemory"));
    test.read_unchanged();
    assert_eq!(test.reasons(), [""; 0]);
}

/// Else each status would have a wakeup of its own, beside that of the renewal, for minutes.
#[test]
fn an_additional_computation_does_not_move_the_regular_ones() {
    let mut test = NodeTest::registered();
    let regular = test.node.due();
    for early in [3, 6] {
        let by = regular.since(test.now.mono()) * early / 10;
        test.node.compute_status_by(test.now.mono().after(by));
        test.turn(|_| unreachable!());
        assert_eq!(test.node.due(), regular);
    }
    test.turn(|_| unreachable!());
    assert_eq!(test.pause(), TICK);
    test.node.compute_status_with_renewal(test.now.mono().after(TICK / 2));
    test.turn(|_| unreachable!());
    assert_eq!(test.pause(), TICK);
    // Nor a retry.
    test.node.compute_status_by(test.now.mono());
    assert_eq!(test.pause(), Duration::ZERO);
    test.facts.cpus = Ok(2);
    test.turn(|_| refuse(500, ""));
    let pause = test.pause();
    test.node.compute_status_by(test.now.mono());
    assert_eq!(test.pause(), pause);
}

#[test]
fn new_pod_cidrs_are_returned_once_and_force_one_patch() {
    let mut test = NodeTest::registered();
    test.read_with(&["spec", "podCIDRs"], json!(["10.244.1.0/24", "fd00::/64"]));
    let cidrs = test.node.new_pod_cidrs();
    assert_eq!(cidrs.as_deref(), Some("10.244.1.0/24,fd00::/64"));
    assert_eq!(test.node.new_pod_cidrs(), None);

    // One patch is sent without another change.
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    assert_eq!(test.body().get("spec"), None);
    assert_eq!(test.turn(|_| unreachable!()), None);
    test.read_with(&["spec", "podCIDR"], "10.244.1.0/24".into());
    assert_eq!(test.node.new_pod_cidrs(), None);
    assert_eq!(test.turn(|_| unreachable!()), None);
}

/// Another node may get the range of a Node that was deleted.
#[test]
fn a_node_without_pod_cidrs_is_told_once_by_a_create_and_by_a_first_read() {
    let mut test = NodeTest::registered();
    assert_eq!(test.node.new_pod_cidrs().as_deref(), Some(""));
    test.read_with(&["spec", "podCIDRs"], json!(["10.244.1.0/24"]));
    assert_eq!(test.node.new_pod_cidrs().as_deref(), Some("10.244.1.0/24"));
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    // What was not read as a whole says nothing.
    test.node.read_again(test.now.mono());
    assert!(test.turn(|_| refuse(500, "")).unwrap().is_err());
    assert_eq!(test.node.new_pod_cidrs(), None);
    test.read_with(&["spec", "podCIDRs"], Value::Null);
    assert_eq!(test.node.new_pod_cidrs().as_deref(), Some(""));
    // A change of the ranges forces a report, and their loss does not.
    assert_eq!(test.turn(|_| unreachable!()), None);
    test.read_with(&["spec", "unschedulable"], true.into());
    assert_eq!(test.node.new_pod_cidrs(), None);
    // Nor is there a range while a create is refused, or with --register-node=false.
    test.read_with(&["spec", "podCIDRs"], json!(["10.244.1.0/24"]));
    assert_eq!(test.node.new_pod_cidrs().as_deref(), Some("10.244.1.0/24"));
    test.node.read_again(test.now.mono());
    assert_eq!(test.turn(|_| not_found("nodes", "pi")), Some(Ok(Progress::Gone)));
    assert_eq!(test.node.new_pod_cidrs().as_deref(), Some(""));
}

#[test]
fn another_board_with_our_name_has_one_event_and_is_no_reboot() {
    let mut test = NodeTest::registered();
    let boot_id = ["status", "nodeInfo", "bootID"];
    assert_eq!(test.node.shared(), None);
    for (theirs, want) in [
        ("theirs", vec!["NodeNameConflict"]),
        ("theirs", vec![]),
        // The other board was rebooted.
        ("another", vec!["NodeNameConflict"]),
    ] {
        test.node.shared = None;
        test.read_with(&boot_id, theirs.into());
        assert_eq!(test.reasons(), want);
        assert!(test.node.shared().is_some(), "{theirs}: each time");
        assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
        assert_eq!(test.reasons(), [""; 0], "no reboot");
    }
    // etcd was restored from before the last reboot.
    let seen = test.node.seen.clone().unwrap();
    let place = ["status", "conditions"];
    let mut conditions = object::list(&seen, &place).to_vec();
    for condition in &mut conditions {
        condition["lastHeartbeatTime"] = "2020-01-01T00:00:00Z".into();
    }
    let mut restored = seen.clone();
    restored["status"]["conditions"] = conditions.into();
    restored["status"]["nodeInfo"]["bootID"] = "former".into();
    test.read_with(&["status"], restored["status"].clone());
    assert_eq!(test.reasons(), [""; 0], "another board");
    // It was a server that lags, and the next one does not.
    test.read_with(&["status"], seen["status"].clone());
    assert_eq!(test.reasons(), [""; 0], "another board");
    test.read_with(&["status"], restored["status"].clone());
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    assert_eq!(test.reasons(), [""; 0], "a reboot");
    // The boot id of our own unanswered patch is not another board's.
    test.facts.boot_id = Ok("after-kexec".to_owned());
    test.turn(|_| Err("slow".into()));
    test.read_with(&boot_id, "after-kexec".into());
    assert_eq!(test.reasons(), ["Rebooted"]);
}

/// Even if the resourceVersion is unchanged.
#[test]
fn a_foreign_change_is_repaired_after_a_read_without_new_facts() {
    let mut test = NodeTest::registered();
    assert_eq!(test.turn(|_| unreachable!()), None);
    test.read_with(&["status", "capacity", "memory"], "1Ki".into());
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    let capacity = &test.body()["status"]["capacity"];
    assert_eq!(*capacity, json!({"memory": "1Gi"}));
}

#[test]
fn resync_frequency_is_the_period_of_checks() {
    let checks = |resync: u64| {
        let flag = format!("--node-resync-frequency={resync}s");
        let mut test = NodeTest::absent(&[&flag]);
        assert_eq!(test.turn(created), Some(Ok(Progress::Created)));
        let end = test.now.mono().after(Duration::from_secs(120));
        while test.now.mono() < end {
            test.turn(unchanged);
        }
        test.requests.len() - 1
    };
    assert_eq!([checks(200), checks(30), checks(1)], [0, 4, 12]);
}

/// A type of the board's health, and its message.
fn condition(name: &'static str, is_true: bool, message: &'static str) -> HealthCondition {
    HealthCondition {
        name: name.into(),
        is_true,
        reason: "R".into(),
        message: message.into(),
        event_reason: "R",
        is_always_listed: false,
    }
}

impl NodeTest {
    fn set_health(&mut self, known: &[HealthCondition]) {
        self.facts.health = HealthConditions { known: known.to_vec(), absent: Vec::new() };
    }

    /// Status and message of a condition.
    fn health(&self, name: &str) -> Option<(&str, &str)> {
        let found = self.node.conditions().iter().find(|c| c["type"] == name)?;
        Some((object::text(found, &["status"]), object::text(found, &["message"])))
    }

    /// A turn whose request succeeds; a report may read first.
    fn turn_or_read(&mut self) {
        let stored = self.seen();
        self.turn(|request| match request.method {
            Method::Get => answered(200, stored),
            _ => patched(request),
        });
    }
}

#[test]
fn a_changed_health_has_one_early_patch_a_minute_and_a_changed_text_waits_for_the_report() {
    let mut test = NodeTest::registered();
    let low = |message| condition("UnderVoltage", true, message);
    test.set_health(&[low("a")]);
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)), "at once");
    assert_eq!(test.health("UnderVoltage"), Some(("True", "a")));
    assert_eq!(test.reasons(), ["R"]);
    let since = test.now.mono();

    // A second one, and a worse text of the first.
    test.set_health(&[low("b"), condition("KernelDeadlock", true, "c")]);
    while test.health("KernelDeadlock").is_none() {
        assert!(test.now.mono().since(since) < Duration::from_secs(70), "it is not forgotten");
        test.turn_or_read();
    }
    assert!(test.now.mono().since(since) >= Duration::from_secs(60));
    assert_eq!(test.health("UnderVoltage"), Some(("True", "b")));
    assert_eq!(test.reasons(), ["R"]);

    test.set_health(&[low("d"), condition("KernelDeadlock", true, "c")]);
    while test.health("UnderVoltage") == Some(("True", "b")) {
        test.turn_or_read();
    }
    assert!(test.now.mono().since(since) > Duration::from_secs(150), "with a report");
    assert_eq!(test.health("UnderVoltage"), Some(("True", "d")));
    assert_eq!(test.reasons(), [""; 0]);

    // A patch for another change has it, too: it would set the heartbeat of an old text.
    test.set_health(&[low("e"), condition("KernelDeadlock", true, "c")]);
    assert_eq!(test.turn(patched), None);
    test.pressures.memory = Some(true);
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    assert_eq!(test.health("UnderVoltage"), Some(("True", "e")));
}

/// node-problem-detector writes what it sees every 5 minutes: the same type is written by both no
/// more often. One that writes without a pause is overwritten once a minute at most.
#[test]
fn a_type_of_another_writer_is_overwritten_once_a_minute_at_most() {
    let mut test = NodeTest::registered();
    let theirs = test.seen()["status"]["conditions"].take();
    test.set_health(&[condition("KernelDeadlock", true, "c")]);
    for (seconds, is_written) in [(0, true), (1, false), (58, false), (1, true), (1, false)] {
        test.pass(Duration::from_secs(seconds));
        test.read_with(&["status", "conditions"], theirs.clone());
        assert_eq!(test.turn(patched).is_some(), is_written, "{:?}", test.now);
        assert_eq!(test.health("KernelDeadlock").is_some(), is_written);
    }
}

/// A controller reads each double: the node lifecycle controller reads a second `Ready`.
#[test]
fn doubles_of_our_conditions_are_removed_and_those_of_others_stay() {
    let mut test = NodeTest::registered();
    test.set_health(&[condition("NTPProblem", true, "m")]);
    test.turn(patched);
    let ours = test.node.conditions().to_vec();
    assert_eq!(ours.len(), 5, "{ours:?}");
    let other = json!({"type": "Theirs", "status": "True"});
    let wanted = [&ours[..], &[other.clone(), other]].concat();
    test.read_with(&["status", "conditions"], [wanted.clone(), ours].concat().into());
    test.pass(Duration::from_secs(3600));
    assert_eq!(test.turn(patched), Some(Ok(Progress::Done)));
    let kinds = |list: &[Value]| list.iter().map(|c| c["type"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds(test.node.conditions()), kinds(&wanted));
}
