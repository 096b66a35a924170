//! Behaviour without a recording: authentication, the rules of writes, faults, outages,
//! controllers.

mod common;

use apidouble::{Authority, Double, Fault, Rule, Validity};
use common::{Client, LEASES, recording, with_lease, with_node};
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STATUS: &str = "/api/v1/nodes/n/status";

/// A merge patch of an administrator, which must be accepted; the object after it.
fn patch(double: &Double, path: &str, body: &Value) -> Value {
    let (code, answer) = double.as_admin("PATCH", path, MERGE, body);
    assert_eq!(code, 200, "{answer}");
    answer
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    support::eventually(what, Duration::from_secs(10), || check().then_some(()));
}

#[test]
fn quantities_times_and_unknown_members_are_stored_as_a_real_server_stores_them() {
    let double = Double::start();
    with_node(&double, "n");
    let node = patch(
        &double,
        STATUS,
        &json!({"status": {
        "capacity": {"cpu": "4000m", "memory": "4194304Ki", "pods": 2000},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T01:00:00.5+01:00", "reason": "", "nonsense": 1}],
        "images": [], "runtimeHandlers": [{"name": ""}]}}),
    );
    let capacity = ["cpu", "memory", "pods"].map(|name| &node["status"]["capacity"][name]);
    assert_eq!(capacity, ["4", "4Gi", "2k"]);
    assert_eq!(
        node["status"]["conditions"][0],
        json!({"type": "Ready", "status": "True",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": null})
    );
    assert_eq!(node["status"].get("images"), None);
    assert_eq!(node["status"]["runtimeHandlers"], json!([{"name": ""}]));
    let nonsense = catch_unwind(AssertUnwindSafe(|| double.assert_members_are_known()));
    nonsense.expect_err("a member that a condition does not have");
    for bad in [
        json!({"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}, {"type": "InternalIP", "address": "1.2.3.4"}]}),
        json!({"capacity": {"example.com/x": "500m"}}),
        json!({"capacity": {"memory": "-1"}}),
    ] {
        assert_eq!(
            double.as_admin("PATCH", STATUS, MERGE, &json!({"status": bad})).0,
            422,
            "{bad}"
        );
    }
}

/// The other faults: `tests/agent/join/abuse.rs`.
#[test]
fn each_fault_happens_as_often_as_ordered() {
    let double = Double::start();
    with_node(&double, "n");
    let path = "/api/v1/nodes/n";
    let faults = double.faults();
    let mut client = Client::node(&double, "n");
    let mut get = || client.try_send("GET", path, JSON, "", "");

    faults.push(
        Rule::new(Fault::Status { code: 429, retry_after: Some(7) })
            .method("GET")
            .path("/nodes/")
            .times(2),
    );
    faults.push(Rule::new(Fault::Status { code: 500, retry_after: None }).method("POST"));
    for _ in 0..2 {
        let answer = get().expect("an answer");
        assert_eq!((answer.code, answer.header("retry-after")), (429, Some("7")));
    }
    assert_eq!(get().expect("an answer").code, 200, "the other fault waits for a POST");
    faults.clear();

    faults.push(Fault::CloseBeforeHeaders);
    assert!(get().is_err());
    faults.push(Fault::CloseSilently);
    assert_eq!(get().expect("an answer").code, 200);
    assert!(get().is_err(), "the connection was closed behind the client's back");
    faults.push(Fault::CloseAfterResponse);
    assert_eq!(get().expect("an answer").header("connection"), Some("close"));
    assert_eq!(faults.pending(), 0);
}

#[test]
fn a_lost_answer_was_carried_out() {
    let double = Double::start();
    with_node(&double, "n");
    double.clear_requests();
    let mut client = Client::node(&double, "n");
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let mut lost = |fault: Fault| {
        double.faults().push(fault);
        let answer = client.try_send("PATCH", "/api/v1/nodes/n", JSON, MERGE, &patch);
        let error = answer.err().expect("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        double.get("nodes/n").expect("the node")["metadata"]["labels"]["a"].clone()
    };
    assert_eq!(lost(Fault::ResetBeforeHeaders), Value::Null);
    assert_eq!(lost(Fault::ResetAfterHeaders), "b");
    assert!(double.requests().iter().all(|request| request.code == 0));
}

/// A stranger's authority has the same name.
#[test]
fn a_certificate_of_version_1_counts_if_the_authority_has_signed_it_and_it_is_valid() {
    let double = Double::start();
    let stranger = Authority::new("kubernetes-ca");
    let own = double.authority();
    for (authority, validity, code) in [
        (own, Validity::VALID, 200),
        (own, Validity::EXPIRED, 401),
        (&stranger, Validity::VALID, 401),
    ] {
        let identity = authority.client("system:node:n", &["system:nodes"], validity);
        let identity = authority.version_1(&identity);
        let mut client = Client::new(&double, Some(&identity), None);
        assert_eq!(client.send("GET", "/version", JSON, "", "").code, code, "{validity:?}");
    }
}

#[test]
fn only_a_node_without_renewals_becomes_unknown() {
    let grace = Duration::from_millis(1500);
    let double = Double::builder().lifecycle(grace).start();
    let node = with_node(&double, "n");
    with_lease(&double, &node, "2026-01-01T00:00:00.000000Z");
    let taints = || double.get("nodes/n").expect("the node")["spec"]["taints"].clone();
    eventually("the taint of birth goes", || taints().is_null());
    eventually("the annotation comes", || {
        let node = double.get("nodes/n").expect("the node");
        node["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0"
    });
    let renew = |time: &str| {
        patch(&double, &format!("{LEASES}/n"), &json!({"spec": {"renewTime": time}}));
    };
    let renew_in_time = |year: u32| {
        for second in 1..10 {
            std::thread::sleep(grace / 6);
            renew(&format!("{year}-01-01T00:00:{second:02}.000000Z"));
        }
    };
    renew_in_time(2026);
    assert!(!double.ever_left_ready(), "renewals alone keep a node");
    let ready = || {
        let node = double.get("nodes/n").expect("the node");
        let all = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|c| c["type"] == "Ready").expect("Ready")
    };
    // an older time counts after a new heartbeat of Ready
    renew("2025-01-01T00:00:00.000000Z");
    let mut conditions = double.get("nodes/n").expect("the node")["status"]["conditions"].clone();
    for condition in conditions.as_array_mut().into_iter().flatten() {
        condition["lastHeartbeatTime"] = json!("2025-01-01T00:00:00Z");
    }
    patch(&double, STATUS, &json!({"status": {"conditions": conditions}}));
    renew_in_time(2025);
    assert!(!double.ever_left_ready(), "the older time was forgotten");
    // otherwise older times are not renewals
    eventually("given up", || {
        renew("2024-01-01T00:00:00.000000Z");
        renew("2024-01-01T00:00:01.000000Z");
        ready()["status"] == "Unknown"
    });
    assert_eq!(
        (&ready()["reason"], &ready()["message"]),
        (&json!("NodeStatusUnknown"), &json!("Kubelet stopped posting node status."))
    );
    eventually("tainted", || {
        taints() == json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])
    });
    assert_eq!(double.left_ready(), 1);
    let (code, _) = double.as_admin("DELETE", "/api/v1/nodes/n", "", &Value::Null);
    assert_eq!(code, 200);
    eventually("the Lease is collected", || double.get("leases/n").is_none());
}

#[test]
fn the_approver_ignores_what_the_real_one_ignores() {
    let double = Double::builder().token("t0ken", "u", &["system:bootstrappers"]).start();
    let mut client = Client::new(&double, None, Some("t0ken"));
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let steps = recording("tls-bootstrap")["steps"].clone();
    let mut post = |step: &str| {
        let all = steps.as_array().expect("steps");
        let found = all.iter().find(|s| s["step"].as_str().is_some_and(|n| n.starts_with(step)));
        let mut body = found.expect(step)["request"]["body"].clone();
        body["metadata"] = json!({"generateName": "csr-"});
        let csr = client.send("POST", path, JSON, JSON, body.to_string()).json();
        csr["metadata"]["name"].as_str().expect("a name").to_owned()
    };
    let good = post("create-csr");
    let ignored = [
        post("create-csr-that-the-auto-approver-ignores"),
        post("create-csr-wrong-usages"),
        post("bootstrapper-creates-csr-for-kubelet-signer-pending"),
    ];
    double.tick_certificates();
    let status =
        |name: &str| double.get(&format!("csrs/{name}")).expect("the CSR")["status"].clone();
    assert!(status(&good)["certificate"].is_string());
    for name in ignored {
        assert_eq!(status(&name), json!({}), "{name}");
        double.judge_csr(&name, "Denied");
        assert_eq!(status(&name)["conditions"][0]["type"], "Denied");
    }
}
