//! Behaviour without a recording: authentication, the rules of writes, faults, outages, controllers.

mod common;

use apidouble::{Authority, Double, Fault, RBAC_NODE_GROUP, Rule, Tls, Validity};
use base64::Engine as _;
use common::{Client, recording};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::Folder;

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

fn node_body(name: &str) -> Value {
    let body = recording("registration")["steps"][1]["request"]["body"].to_string();
    serde_json::from_str(&body.replace("nodelet1", name)).expect("JSON")
}

fn with_node(double: &Double, name: &str) -> Value {
    let (code, node) = double.as_admin("POST", "/api/v1/nodes", JSON, &node_body(name));
    assert_eq!(code, 201, "{node}");
    node
}

fn with_lease(double: &Double, node: &Value, renewed: &str) -> Value {
    let name = node["metadata"]["name"].as_str().expect("a name");
    let (code, lease) = double.as_admin("POST", LEASES, JSON, &json!({
        "metadata": {"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed}}));
    assert_eq!(code, 201, "{lease}");
    lease
}

fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn bad_client_certificates_get_401_and_no_tls_alert() {
    let double = Double::start();
    let stranger =
        Authority::new("somebody-else").client("system:node:n", &["system:nodes"], Validity::VALID);
    for identity in [
        stranger,
        double.node_identity("n", Validity::EXPIRED),
        double.node_identity("n", Validity::NOT_YET),
    ] {
        let answer = Client::new(&double, Some(&identity), None).send(
            "GET",
            "/api/v1/nodes/n",
            JSON,
            "",
            "",
        );
        assert_eq!(
            (answer.code, answer.json()["reason"].as_str()),
            (401, Some("Unauthorized"))
        );
    }
    let good = Client::node(&double, "n").send("GET", "/api/v1/nodes/n", JSON, "", "");
    assert_eq!(good.code, 404);
    let users: Vec<String> = double.requests().into_iter().map(|r| r.user).collect();
    assert_eq!(users, ["", "", "", "system:node:n"]);
}

#[test]
fn a_token_works_until_it_is_revoked_and_rbac_alone_is_enough() {
    let double = Double::builder()
        .token(
            "t",
            "system:serviceaccount:kube-system:nodelet",
            &[RBAC_NODE_GROUP],
        )
        .start();
    let mut client = Client::new(&double, None, Some("t"));
    let created = client.send(
        "POST",
        "/api/v1/nodes",
        JSON,
        JSON,
        &node_body("n").to_string(),
    );
    assert_eq!(created.code, 201, "{}", created.body);
    assert_eq!(
        client.send("DELETE", "/api/v1/nodes/n", JSON, "", "").code,
        403
    );
    double.revoke_token("t");
    assert_eq!(
        client.send("GET", "/api/v1/nodes/n", JSON, "", "").code,
        401
    );
}

#[test]
fn both_tls_versions_are_spoken() {
    for tls in [Tls::Both, Tls::Only12, Tls::Only13] {
        let double = Double::builder().tls(tls).start();
        assert_eq!(
            Client::node(&double, "n")
                .send("GET", "/api/v1/nodes/n", JSON, "", "")
                .code,
            404,
            "{tls:?}"
        );
    }
}

#[test]
fn resource_versions_guard_as_they_do_in_a_real_server() {
    let double = Double::start();
    let node = with_node(&double, "n");
    let old = node["metadata"]["resourceVersion"].clone();
    let path = "/api/v1/nodes/n/status";
    let patch = |version: &Value, message: &str| {
        double.as_admin(
            "PATCH",
            path,
            MERGE,
            &json!({"metadata": {"resourceVersion": version},
            "status": {"conditions": [{"type": "Ready", "status": "True", "message": message}]}}),
        )
    };
    assert_eq!(patch(&old, "a").0, 200);
    assert_eq!(patch(&old, "b").0, 409);
    for (i, lost) in [json!(""), json!("0"), Value::Null].iter().enumerate() {
        assert_eq!(
            patch(lost, &format!("c{i}")).0,
            200,
            "{lost}: the precondition is silently lost"
        );
    }
    let (code, answer) =
        double.as_admin("PATCH", path, MERGE, &json!({"metadata": {"uid": "other"}}));
    assert_eq!(code, 422);
    assert_eq!(answer["details"]["causes"][0]["field"], "metadata.uid");
    with_lease(&double, &node, "2026-01-01T00:00:00.000000Z");
    let (code, answer) = double.as_admin(
        "PATCH",
        &format!("{LEASES}/n"),
        MERGE,
        &json!({"metadata": {"resourceVersion": null}}),
    );
    assert_eq!(code, 422);
    assert_eq!(
        answer["message"],
        "leases.coordination.k8s.io \"n\" is invalid: metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"
    );
}

#[test]
fn put_creates_a_lease_unless_it_names_another() {
    let double = Double::start();
    let path = format!("{LEASES}/n");
    let body = |uid: Option<&str>| {
        json!({"metadata": {"name": "n", "uid": uid},
        "spec": {"holderIdentity": "n", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}})
    };
    assert_eq!(
        double.as_admin("PUT", &path, JSON, &body(Some("gone"))).0,
        409
    );
    assert_eq!(double.as_admin("PUT", &path, JSON, &body(None)).0, 201);
    assert_eq!(
        double.as_admin("PUT", &path, JSON, &body(None)).0,
        422,
        "no resourceVersion"
    );
    let mut held = double.get("leases/n").expect("the lease");
    held["spec"]["renewTime"] = json!("2026-01-01T00:00:10.000000Z");
    assert_eq!(double.as_admin("PUT", &path, JSON, &held).0, 200);
    assert_eq!(double.as_admin("PUT", &path, JSON, &held).0, 409);
    let (code, _) = double.as_admin(
        "PUT",
        "/api/v1/nodes/absent",
        JSON,
        &json!({"metadata": {"name": "absent"}}),
    );
    assert_eq!(code, 404, "Nodes are not created by PUT");
}

#[test]
fn the_status_endpoint_keeps_spec_and_the_main_one_keeps_status() {
    let double = Double::start();
    with_node(&double, "n");
    let (code, node) = double.as_admin(
        "PATCH",
        "/api/v1/nodes/n",
        MERGE,
        &json!({
        "spec": {"providerID": "a://b"}, "status": {"nodeInfo": {"kernelVersion": "x"}}}),
    );
    assert_eq!((code, &node["spec"]["providerID"]), (200, &json!("a://b")));
    assert_eq!(node["status"]["nodeInfo"]["kernelVersion"], "6.6.31");
    let (code, refused) = double.as_admin(
        "PATCH",
        "/api/v1/nodes/n",
        MERGE,
        &json!({"spec": {"providerID": "c://d"}}),
    );
    assert_eq!(code, 422, "{refused}");
    let (code, status) = double.as_admin(
        "PATCH",
        "/api/v1/nodes/n/status",
        STRATEGIC,
        &json!({
        "metadata": {"finalizers": ["example.com/f"]}, "spec": {"providerID": "e://f"}}),
    );
    assert_eq!(
        (code, &status["spec"]["providerID"]),
        (200, &json!("a://b"))
    );
    assert_eq!(
        status["metadata"]["finalizers"],
        json!(["example.com/f"]),
        "metadata is applied here too"
    );
}

#[test]
fn quantities_times_and_unknown_members_are_stored_as_a_real_server_stores_them() {
    let double = Double::start();
    with_node(&double, "n");
    let (code, node) = double.as_admin("PATCH", "/api/v1/nodes/n/status", MERGE, &json!({"status": {
        "capacity": {"cpu": "4000m", "memory": "4194304Ki", "pods": 2000},
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T01:00:00.5+01:00", "reason": "", "nonsense": 1}],
        "images": []}}));
    assert_eq!(code, 200, "{node}");
    let capacity = &node["status"]["capacity"];
    assert_eq!(
        (&capacity["cpu"], &capacity["memory"], &capacity["pods"]),
        (&json!("4"), &json!("4Gi"), &json!("2k"))
    );
    assert_eq!(
        node["status"]["conditions"][0],
        json!({"type": "Ready", "status": "True",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": null})
    );
    assert_eq!(node["status"].get("images"), None);
    let mut client = Client::admin(&double);
    let patch = json!({"status": {"nonsense": true}}).to_string();
    let warned = client.send("PATCH", "/api/v1/nodes/n/status", JSON, MERGE, &patch);
    assert_eq!(
        (warned.code, warned.header("warning")),
        (200, Some(r#"299 - "unknown field \"status.nonsense\"""#))
    );
    let strict = client.send(
        "PATCH",
        "/api/v1/nodes/n/status?fieldValidation=Strict",
        JSON,
        MERGE,
        &patch,
    );
    assert_eq!(strict.code, 422, "{}", strict.body);
    for bad in [
        "2026-01-01T00:00:00.123Z",
        "2026-01-01T00:00:00.1234567Z",
        "2026-01-01",
    ] {
        let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": bad}});
        assert_eq!(
            double.as_admin("POST", LEASES, JSON, &lease).0,
            400,
            "{bad}"
        );
    }
    for bad in [
        json!({"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}, {"type": "InternalIP", "address": "1.2.3.4"}]}),
        json!({"capacity": {"example.com/x": "500m"}}),
        json!({"capacity": {"memory": "-1"}}),
    ] {
        assert_eq!(
            double
                .as_admin(
                    "PATCH",
                    "/api/v1/nodes/n/status",
                    MERGE,
                    &json!({"status": bad})
                )
                .0,
            422,
            "{bad}"
        );
    }
}

#[test]
fn a_body_that_the_published_schema_forbids_is_noted() {
    let double = Double::start();
    with_node(&double, "n");
    double.assert_schemas_hold();
    let bad = json!({"status": {"conditions": [{"status": "True"}]}});
    let (code, node) = double.as_admin("PATCH", "/api/v1/nodes/n/status", MERGE, &bad);
    assert_eq!(code, 200, "{node}");
    // `None` is the skip of the call above.
    if let Some(violations) = double.schema_violations() {
        let noted = violations.iter().any(|v| v.contains("type is missing"));
        assert!(noted, "{violations:?}");
    }
}

#[test]
fn managed_fields_are_kept_until_they_are_reset() {
    let double = Double::start();
    with_node(&double, "n");
    let mut client = Client::node(&double, "n");
    client.agent = "nodelet/0.1 (linux)".to_owned();
    let patch =
        |n: u32| json!({"status": {"nodeInfo": {"kernelVersion": n.to_string()}}}).to_string();
    let path = "/api/v1/nodes/n/status";
    let answer = client.send("PATCH", path, JSON, MERGE, &patch(1)).json();
    let mine = answer["metadata"]["managedFields"]
        .as_array()
        .expect("entries")
        .iter()
        .find(|e| e["manager"] == "nodelet")
        .cloned();
    let mine = mine.expect("an entry of ours");
    assert_eq!(
        (&mine["subresource"], &mine["operation"]),
        (&json!("status"), &json!("Update"))
    );
    let (code, _) = double.as_admin(
        "PATCH",
        "/api/v1/nodes/n",
        MERGE,
        &json!({"metadata": {"managedFields": [{}]}}),
    );
    assert_eq!(code, 200);
    let answer = client.send("PATCH", path, JSON, MERGE, &patch(2)).json();
    assert_eq!(
        answer["metadata"].get("managedFields"),
        None,
        "none from then on"
    );
}

#[test]
fn node_restriction_covers_updates_too() {
    let double = Double::start();
    with_node(&double, "n");
    let mut client = Client::node(&double, "n");
    let mut patch = |body: Value| {
        client
            .send("PATCH", "/api/v1/nodes/n", JSON, MERGE, &body.to_string())
            .json()
    };
    assert_eq!(
        patch(json!({"spec": {"unschedulable": true}}))["kind"],
        "Node"
    );
    let owners = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
    let refused = patch(json!({"metadata": {"ownerReferences": owners}}));
    assert_eq!(
        refused["message"],
        "nodes \"n\" is forbidden: node \"n\" is not allowed to modify ownerReferences"
    );
    let refused = patch(
        json!({"metadata": {"labels": {"x.k8s.io/a": "1", "kubernetes.io/b": "1", "free": "1"}}}),
    );
    assert_eq!(
        refused["message"],
        "nodes \"n\" is forbidden: is not allowed to modify labels: kubernetes.io/b, x.k8s.io/a"
    );
    let list = client.send("GET", "/api/v1/nodes", JSON, "", "");
    assert_eq!(list.code, 403);
    let own = client.send(
        "GET",
        "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
        JSON,
        "",
        "",
    );
    assert_eq!(
        (own.code, own.json()["items"].as_array().map(Vec::len)),
        (200, Some(1))
    );
    assert_eq!(
        client
            .send("GET", "/api/v1/nodes/n/status", JSON, "", "")
            .code,
        403,
        "no get on nodes/status"
    );
    assert_eq!(
        client.send("DELETE", "/api/v1/nodes/n", JSON, "", "").code,
        403
    );
}

#[test]
fn a_signed_csr_is_a_working_identity() {
    let double = Double::builder()
        .bootstrap_token("abcdef.0123456789abcdef")
        .approve_csrs()
        .start();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "system:node:n");
    let pem = params
        .serialize_request(&key)
        .expect("a request")
        .pem()
        .expect("PEM");
    let request = base64::engine::general_purpose::STANDARD.encode(pem);
    let mut client = Client::new(&double, None, Some("abcdef.0123456789abcdef"));
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let body = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"generateName": "csr-"},
        "spec": {"request": request, "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["digital signature", "client auth"]}});
    let created = client
        .send("POST", path, JSON, JSON, &body.to_string())
        .json();
    let name = created["metadata"]["name"]
        .as_str()
        .expect("a name")
        .to_owned();
    let mut certificate = String::new();
    eventually("the certificate", || {
        let csr = client
            .send("GET", &format!("{path}/{name}"), JSON, "", "")
            .json();
        certificate = csr["status"]["certificate"]
            .as_str()
            .unwrap_or("")
            .to_owned();
        !certificate.is_empty()
    });
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(certificate)
        .expect("base64");
    let identity = apidouble::Identity::from_pem(
        &String::from_utf8(bytes).expect("PEM"),
        &key.serialize_pem(),
    )
    .expect("a pair");
    let mut node = Client::new(&double, Some(&identity), None);
    assert_eq!(node.send("GET", "/api/v1/nodes/n", JSON, "", "").code, 404);
    assert_eq!(
        double.requests().last().map(|r| r.user.clone()).as_deref(),
        Some("system:node:n")
    );
    // and a node may ask for itself only
    let refused = Client::node(&double, "other")
        .send("POST", path, JSON, JSON, &body.to_string())
        .json();
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|m| m.ends_with("can only create a node CSR with CN=system:node:other")),
        "{refused}"
    );
}

#[test]
fn each_fault_happens_as_often_as_ordered() {
    let double = Double::start();
    with_node(&double, "n");
    let path = "/api/v1/nodes/n";
    let faults = double.faults();
    let mut client = Client::node(&double, "n");
    let mut get = || client.try_send("GET", path, JSON, "", "");

    faults.push(
        Rule::new(Fault::Status {
            code: 429,
            retry_after: Some(7),
        })
        .method("GET")
        .path("/nodes/")
        .times(2),
    );
    faults.push(
        Rule::new(Fault::Status {
            code: 500,
            retry_after: None,
        })
        .method("PUT"),
    );
    for _ in 0..2 {
        let answer = get().expect("an answer");
        assert_eq!(
            (answer.code, answer.header("retry-after")),
            (429, Some("7"))
        );
    }
    assert_eq!(
        get().expect("an answer").code,
        200,
        "the PUT fault waits for a PUT"
    );
    faults.clear();

    for fault in [Fault::ResetBeforeHeaders, Fault::ResetAfterHeaders] {
        faults.push(fault);
        let error = get().err().expect("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    faults.push(Fault::CloseBeforeHeaders);
    assert!(get().is_err());
    faults.push(Fault::Delay(Duration::from_millis(150)));
    let before = Instant::now();
    assert_eq!(get().expect("an answer").code, 200);
    assert!(before.elapsed() >= Duration::from_millis(150));
    faults.push(Fault::Trickle {
        bytes: 200,
        every: Duration::from_millis(5),
    });
    assert_eq!(get().expect("an answer").json()["kind"], "Node");
    faults.push(Fault::Garbage);
    assert!(get().expect("an answer").json().is_string());
    faults.push(Fault::Oversized(2));
    assert!(get().expect("an answer").body.len() > 2 << 20);
    faults.push(Fault::Redirect("https://example.com/".to_owned()));
    let answer = get().expect("an answer");
    assert_eq!(
        (answer.code, answer.header("location")),
        (307, Some("https://example.com/"))
    );
    faults.push(Fault::CloseSilently);
    assert_eq!(get().expect("an answer").code, 200);
    assert!(
        get().is_err(),
        "the connection was closed behind the client's back"
    );
    faults.push(Fault::CloseAfterResponse);
    assert_eq!(
        get().expect("an answer").header("connection"),
        Some("close")
    );
    faults.push(Fault::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()));
    assert!(get().is_err());
    faults.push(Fault::EndlessHeaders);
    let error = get().err().map(|e| e.to_string());
    assert_eq!(error.as_deref(), Some("more than 1000 headers"));
    assert_eq!(faults.pending(), 0);
}

#[test]
fn stalls_last_and_a_lost_answer_was_carried_out() {
    let double = Double::start();
    with_node(&double, "n");
    let mut client = Client::node(&double, "n");
    client.timeout = Duration::from_secs(1);
    for fault in [Fault::StallBeforeHeaders, Fault::StallInBody(10)] {
        double.faults().push(fault);
        let before = Instant::now();
        assert!(
            client
                .try_send("GET", "/api/v1/nodes/n", JSON, "", "")
                .is_err()
        );
        assert!(before.elapsed() >= Duration::from_secs(1));
    }
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let mut lost = |rule: Rule| {
        double.faults().push(rule);
        assert!(
            client
                .try_send("PATCH", "/api/v1/nodes/n", JSON, MERGE, &patch)
                .is_err()
        );
        double.get("nodes/n").expect("the node")["metadata"]["labels"]["a"].clone()
    };
    assert_eq!(lost(Rule::new(Fault::ResetBeforeHeaders)), Value::Null);
    assert_eq!(lost(Rule::new(Fault::ResetBeforeHeaders).applied()), "b");
    let codes: Vec<u16> = double.requests().iter().map(|r| r.code).collect();
    assert_eq!(codes, [0, 0, 0, 0]);
}

#[test]
fn outages_end_on_the_same_port() {
    let double = Double::start();
    with_node(&double, "n");
    let mut client = Client::node(&double, "n");
    client.timeout = Duration::from_secs(1);
    let mut get = || {
        client
            .try_send("GET", "/api/v1/nodes/n", JSON, "", "")
            .map(|a| a.code)
    };
    assert_eq!(get().ok(), Some(200));
    double.stop_listening();
    eventually("refusal", || {
        get().is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    double.start_listening();
    assert_eq!(get().ok(), Some(200));
    double.blackhole();
    let silent = |e: &std::io::Error| {
        matches!(
            e.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        )
    };
    assert!(
        get().is_err_and(|e| silent(&e)),
        "an open connection is silent"
    );
    assert!(get().is_err_and(|e| silent(&e)), "a new one too");
    double.start_listening();
    assert_eq!(get().ok(), Some(200));
    double.restart(true);
    assert!(get().is_err(), "a restart closes connections");
    assert_eq!(get().ok(), Some(404), "and this one lost its objects");
}

#[test]
fn certificates_can_be_swapped() {
    let double = Double::start();
    let mut client = Client::node(&double, "n");
    let mut get = || {
        client
            .try_send("GET", "/api/v1/nodes/n", JSON, "", "")
            .map(|a| a.code)
    };
    assert_eq!(get().ok(), Some(404));
    let mut failing = |what: &str| {
        let mut error = get().expect_err(what);
        if !error.to_string().contains("certificate") {
            error = get().expect_err(what); // the first one was the old connection's end
        }
        assert!(error.to_string().contains("certificate"), "{what}: {error}");
    };
    double.swap_to_unknown_authority();
    failing("another authority");
    double.swap_validity(Validity::EXPIRED, None);
    failing("expired");
    double.swap_validity(Validity::NOT_YET, None);
    failing("not yet valid");
    double.swap_validity(Validity::VALID, Some(&["example.com"]));
    failing("another name");
    eventually("TLS failures are counted", || double.tls_failures() >= 4);
    double.swap_validity(Validity::VALID, None);
    eventually("good again", || get().is_ok());
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
        double
            .get("nodes/n")
            .is_some_and(|n| n["metadata"]["annotations"]["node.alpha.kubernetes.io/ttl"] == "0")
    });
    let renew = |time: &str| {
        let (code, answer) = double.as_admin(
            "PATCH",
            &format!("{LEASES}/n"),
            MERGE,
            &json!({"spec": {"renewTime": time}}),
        );
        assert_eq!(code, 200, "{answer}");
    };
    for i in 1..10 {
        std::thread::sleep(grace / 6);
        renew(&format!("2026-01-01T00:00:{i:02}.000000Z"));
    }
    assert!(!double.ever_left_ready(), "renewals alone keep a node");
    let ready = || {
        let node = double.get("nodes/n").expect("the node");
        let all = node["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        all.into_iter()
            .find(|c| c["type"] == "Ready")
            .expect("Ready")
    };
    // older times are not renewals
    eventually("given up", || {
        renew("2025-01-01T00:00:00.000000Z");
        renew("2025-01-01T00:00:01.000000Z");
        ready()["status"] == "Unknown"
    });
    assert_eq!(
        (&ready()["reason"], &ready()["message"]),
        (
            &json!("NodeStatusUnknown"),
            &json!("Kubelet stopped posting node status.")
        )
    );
    eventually("tainted", || {
        taints() == json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}])
    });
    assert_eq!(double.left_ready().len(), 1);
    let (code, _) = double.as_admin("DELETE", "/api/v1/nodes/n", "", &Value::Null);
    assert_eq!(code, 200);
    eventually("the Lease is collected", || {
        double.get("leases/n").is_none()
    });
}

#[test]
fn requests_are_recorded_and_kubeconfigs_are_complete() {
    let double = Double::start();
    let folder = Folder::new("kubeconfig-files");
    let path = double.kubeconfig_files(folder.path(), "n").expect("files");
    let text = std::fs::read_to_string(&path).expect("the kubeconfig");
    assert!(
        text.contains("client-key: n.key")
            && folder.path().join("n.key").exists()
            && text.contains(&double.url())
    );
    assert!(
        double
            .kubeconfig_for_node("n")
            .contains("client-key-data: ")
    );
    assert!(double.kubeconfig_token("t").contains("    token: t\n"));
    let mut client = Client::node(&double, "n");
    let body = node_body("n").to_string();
    assert_eq!(
        client
            .send("POST", "/api/v1/nodes?timeout=10s", JSON, JSON, &body)
            .code,
        201
    );
    assert_eq!(
        client.send("GET", "/api/v1/nodes/n", JSON, "", "").code,
        200
    );
    let seen = double.requests();
    let [post, get] = seen.as_slice() else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (post.method.as_str(), post.path.as_str(), post.code),
        ("POST", "/api/v1/nodes?timeout=10s", 201)
    );
    assert_eq!(post.json(), node_body("n"));
    assert!(post.request_bytes > body.len() && post.response_bytes > 2000 && post.at <= get.at);
    assert_eq!(
        (post.connection, get.connection, get.header("user-agent")),
        (1, 1, Some("recorder/1"))
    );
    double.clear_requests();
    assert!(double.requests().is_empty());
}

#[test]
fn dropping_a_double_frees_everything() {
    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    let port = double.port();
    let mut client = Client::node(&double, "n");
    assert_eq!(client.send("GET", "/readyz", JSON, "", "").body, "ok");
    let before = Instant::now();
    drop(double);
    assert!(
        before.elapsed() < Duration::from_secs(2),
        "within {:?}",
        before.elapsed()
    );
    let refused = std::net::TcpStream::connect(("127.0.0.1", port));
    assert!(refused.is_err());
}

#[test]
fn the_approver_ignores_what_the_real_one_ignores() {
    let double = Double::start();
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let steps = recording("tls-bootstrap")["steps"].clone();
    let post = |step: &str, groups: &[&str]| {
        let all = steps.as_array().expect("steps");
        let found = all
            .iter()
            .find(|s| s["step"].as_str().is_some_and(|n| n.starts_with(step)));
        let mut body = found.expect(step)["request"]["body"].clone();
        body["metadata"] = json!({"generateName": "csr-"});
        let (code, csr) = double.as_user("u", groups, "POST", path, JSON, &body);
        assert_eq!(code, 201, "{csr}");
        csr["metadata"]["name"].as_str().expect("a name").to_owned()
    };
    let bootstrappers = ["system:bootstrappers"];
    let good = post("create-csr", &bootstrappers);
    let ignored = [
        post("create-csr-that-the-auto-approver-ignores", &bootstrappers),
        post("create-csr-wrong-usages", &bootstrappers),
        post(
            "bootstrapper-creates-csr-for-kubelet-signer-pending",
            &bootstrappers,
        ),
        post("create-csr", &["system:masters"]),
    ];
    double.tick_certificates();
    let status =
        |name: &str| double.get(&format!("csrs/{name}")).expect("the CSR")["status"].clone();
    assert!(status(&good)["certificate"].is_string());
    for name in ignored {
        assert_eq!(status(&name), json!({}), "{name}");
        double.deny_csr(&name, "no");
        assert_eq!(status(&name)["conditions"][0]["type"], "Denied");
    }
}

#[test]
fn selectors_select() {
    let double = Double::start();
    with_node(&double, "a");
    with_node(&double, "b");
    let names = |query: &str| -> Vec<String> {
        let nodes = double.list(&format!("/api/v1/nodes?{query}"));
        nodes
            .iter()
            .filter_map(|n| n["metadata"]["name"].as_str().map(str::to_owned))
            .collect()
    };
    assert_eq!(names(""), ["a", "b"]);
    assert_eq!(names("fieldSelector=metadata.name%3Db"), ["b"]);
    assert_eq!(names("fieldSelector=metadata.name%21%3Db"), ["a"]);
    assert_eq!(names("labelSelector=kubernetes.io/hostname%3Da"), ["a"]);
}

/// Whether somebody may do something is decided as the request itself would be.
#[test]
fn access_reviews_say_what_a_request_would_meet() {
    let double = Double::start();
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = |user: &str, groups: &[&str], about: Value| {
        let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": about}});
        double.as_user(user, groups, "POST", reviews, JSON, &body)
    };
    let get = |name: &str| json!({"verb": "get", "resource": "nodes", "name": name});
    let node = ("system:node:pi", &["system:nodes"][..]);
    let (code, own) = review(node.0, node.1, get("pi"));
    assert_eq!((code, &own["status"]), (201, &json!({"allowed": true})));
    let (code, other) = review(node.0, node.1, get("other"));
    let why = "node 'pi' cannot read 'other', only its own Node object";
    let want = json!({"allowed": false, "reason": why});
    assert_eq!((code, &other["status"]), (201, &want));
    let (code, refused) = double.as_user(
        node.0,
        node.1,
        "GET",
        "/api/v1/nodes/other",
        JSON,
        &Value::Null,
    );
    assert_eq!(code, 403);
    assert!(refused["message"].as_str().expect("text").ends_with(why));

    // Roles: their namespace, their names, their subresources.
    let account = "system:serviceaccount:ns:sa";
    let role = |kind: &str, rule: Value| {
        let metadata = json!({"name": "r", "namespace": "ns"});
        double.set_rbac(&[
            json!({"kind": kind, "metadata": metadata, "rules": [rule]}),
            json!({"kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"kind": kind, "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "ns"}]}),
        ]);
    };
    let allowed = |about: Value| review(account, &[], about).1["status"]["allowed"] == true;
    let leases = |namespace: &str| json!({"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": namespace});
    let rule =
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]});
    role("Role", rule.clone());
    assert!(allowed(leases("ns")) && !allowed(leases("other")));
    role("ClusterRole", rule);
    assert!(allowed(leases("ns")) && allowed(leases("other")));
    let named =
        json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"], "resourceNames": ["pi"]});
    role("ClusterRole", named);
    assert!(allowed(get("pi")) && !allowed(get("other")));
    assert!(!allowed(json!({"verb": "create", "resource": "nodes"})));
    let status = json!({"verb": "get", "resource": "nodes", "name": "pi", "subresource": "status"});
    assert!(!allowed(status.clone()));
    role(
        "ClusterRole",
        json!({"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["get"]}),
    );
    assert!(allowed(status) && !allowed(get("pi")));

    // Who is nobody may not ask, and nobody may ask nothing.
    let (code, _) = review("system:anonymous", &[], get("pi"));
    assert_eq!(code, 403);
    let (code, _) = double.as_user(account, &[], "POST", reviews, JSON, &json!({}));
    assert_eq!(code, 422);
}

/// The supervisor of k3s takes the certificate of a member of the nodes' group in the place of the
/// cluster's token (`GetNodeAuthValidator`).
#[test]
fn a_node_of_the_supervisor_has_a_certificate_and_the_group() {
    let double = Double::start();
    double.set_supervisor(|_| {});
    let node = "system:node:pi";
    double.add_token("t0ken", node, &["system:nodes"]);
    let code = |groups: Option<&[&str]>, token: Option<&str>| {
        let identity = groups.map(|groups| {
            let authority = double.authority();
            authority.client(node, groups, Validity::VALID)
        });
        let mut client = Client::new(&double, identity.as_ref(), token);
        client.send("GET", "/v1-k3s/config", JSON, "", "").code
    };
    assert_eq!(code(Some(&["system:nodes"]), None), 200);
    assert_eq!(code(Some(&[]), None), 401);
    assert_eq!(code(None, Some("t0ken")), 401);
}
