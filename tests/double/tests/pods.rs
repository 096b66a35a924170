//! Pods: what a node may do to them, in the words of kube-apiserver v1.36.
//!
//! No recording has requests to pods. The codes 403, 409, 422 and 406 were measured on v1.36.2
//! (issue 16). The texts are those of the source code:
//! `plugin/pkg/auth/authorizer/node/node_authorizer.go`,
//! `plugin/pkg/admission/noderestriction/admission.go`,
//! `staging/src/k8s.io/apiserver/pkg/registry/rest/delete.go`. Their frame ("is forbidden",
//! "cannot be fulfilled", `details`) is that of `tests/recordings` for Nodes and Leases.

#![cfg(test)]
#![allow(missing_docs)]

use apidouble::Double;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A double with the pod `web`, which is bound to `pi`.
fn with_pod() -> (Double, Value) {
    let double = Double::start();
    let pod = create(&double, "web", json!({"nodeName": "pi"}));
    (double, pod)
}

fn create(double: &Double, name: &str, mut spec: Value) -> Value {
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
    let (code, pod) = double.as_admin("POST", PODS, "application/json", &pod);
    assert_eq!(code, 201, "{pod}");
    pod
}

fn as_node(double: &Double, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = match method {
        "PATCH" => MERGE,
        _ => "application/json",
    };
    double.as_user(
        "system:node:pi",
        &["system:nodes"],
        method,
        path,
        media,
        body,
    )
}

fn list(node: &str) -> String {
    format!(
        "/api/v1/pods?fieldSelector=spec.nodeName%3D{node}%2Cstatus.phase%21%3DFailed%2C\
         status.phase%21%3DSucceeded&limit=8"
    )
}

/// The texts are those of `pkg/apis/apps/validation/validation.go` and
/// `pkg/apis/core/validation/validation.go`.
#[test]
fn pods_need_containers_and_workloads_a_selector_of_their_labels() {
    let double = Double::start();
    let refused = |path: &str, object: Value| {
        let (code, answer) = double.as_admin("POST", path, "application/json", &object);
        assert_eq!(code, 422, "{answer}");
        answer["message"].as_str().unwrap().to_owned()
    };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}});
    assert_eq!(
        refused(PODS, pod),
        "Pod \"web\" is invalid: spec.containers: Required value"
    );
    for kind in ["DaemonSet", "Deployment"] {
        let resource = format!("{}s", kind.to_lowercase());
        let path = format!("/apis/apps/v1/namespaces/default/{resource}");
        let with = |change: Value| {
            let labels = json!({"app": "a"});
            let mut spec = json!({"selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}});
            for (part, value) in change.as_object().unwrap() {
                *spec.pointer_mut(part).unwrap() = value.clone();
            }
            json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"},
                "spec": spec})
        };
        let invalid = |change: Value| {
            let message = refused(&path, with(change));
            let start = format!("{kind}.apps \"web\" is invalid: ");
            message.strip_prefix(&start).unwrap().to_owned()
        };
        assert_eq!(
            invalid(json!({"/selector": {}})),
            format!(
                "spec.selector: Invalid value: {{}}: empty selector is invalid for {}",
                kind.to_lowercase()
            )
        );
        let mismatch = |labels: &str| {
            format!(
                "spec.template.metadata.labels: Invalid value: {labels}: `selector` does not \
                 match template `labels`"
            )
        };
        assert_eq!(
            invalid(json!({"/selector/matchLabels": {"app": "b"}})),
            mismatch("{\"app\":\"a\"}")
        );
        assert_eq!(invalid(json!({"/template/metadata": {}})), mismatch("null"));
        let no_selector = invalid(json!({"/selector": null}));
        assert!(
            no_selector.contains(&mismatch("{\"app\":\"a\"}")),
            "{no_selector}"
        );
        assert_eq!(
            no_selector.contains("spec.selector: Required value, "),
            kind == "Deployment"
        );
        assert_eq!(
            invalid(json!({"/template/spec/containers": []})),
            "spec.template.spec.containers: Required value"
        );

        // The status has an endpoint of its own, which changes nothing else.
        let mut valid = with(json!({}));
        valid["status"] = json!({"observedGeneration": 7});
        let (code, made) = double.as_admin("POST", &path, "application/json", &valid);
        assert_eq!((code, &made["status"]), (201, &json!({})), "{made}");
        let patch = |end: &str, generation: u64| {
            let change = json!({"spec": {"minReadySeconds": generation},
                "status": {"observedGeneration": generation}});
            let (code, answer) =
                double.as_admin("PATCH", &format!("{path}/web{end}"), MERGE, &change);
            assert_eq!(code, 200, "{answer}");
            let part = |part: &str, key: &str| answer[part][key].as_u64();
            (
                part("spec", "minReadySeconds"),
                part("status", "observedGeneration"),
            )
        };
        assert_eq!(patch("", 1), (Some(1), None));
        assert_eq!(patch("/status", 2), (Some(1), Some(2)));
        assert_eq!(patch("", 3), (Some(3), Some(2)));
    }
}

#[test]
fn a_node_lists_its_own_pods_alone() {
    let (double, pod) = with_pod();
    assert_eq!(pod["metadata"]["generation"], 1);
    assert_eq!(pod["status"]["phase"], "Pending");
    create(&double, "other", json!({"nodeName": "other"}));
    create(&double, "unbound", json!({}));
    let (code, pods) = as_node(&double, "GET", &list("pi"), &Value::Null);
    assert_eq!((code, &pods["kind"]), (200, &json!("PodList")));
    assert_eq!(pods["items"].as_array().unwrap().len(), 1);
    assert_eq!(pods["items"][0]["metadata"]["name"], "web");
    let (code, _) = double.as_admin(
        "GET",
        "/api/v1/pods?fieldSelector=spec.host%3Dpi",
        "",
        &Value::Null,
    );
    assert_eq!(code, 400, "not a field of a pod");
}

/// The `Status` of a refusal.
fn status(code: u16, reason: &str, message: &str, details: Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code})
}

/// Test_nodePlugin_Admit of admission_test.go: pods, labels. TestNodeAuthorizer of
/// node_authorizer_test.go: list by spec.nodeName.
#[test]
fn each_refusal_has_the_whole_status_of_a_real_server() {
    let (double, pod) = with_pod();
    let other = create(&double, "other", json!({"nodeName": "other"}));
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    let (own, foreign) = (uid(&pod), uid(&other));
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "pi"}});
    assert_eq!(as_node(&double, "POST", "/api/v1/nodes", &node).0, 201);

    let by_admission = |name: &str, why: &str| {
        let message = format!("pods \"{name}\" is forbidden: node \"pi\" {why}");
        status(
            403,
            "Forbidden",
            &message,
            json!({"name": name, "kind": "pods"}),
        )
    };
    let by_authorizer = |verb: &str, name: &str, place: &str| {
        let user = "User \"system:node:pi\"";
        let subject = match name {
            "" => "pods".to_owned(),
            name => format!("pods \"{name}\""),
        };
        let mut details = json!({"kind": "pods"});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        let message = format!(
            "{subject} is forbidden: {user} cannot {verb} resource \"pods\" in API group \"\" {place}"
        );
        status(403, "Forbidden", &message, details)
    };
    let only_own_list = "at the cluster scope: can only list/watch pods with spec.nodeName field \
                         selector";
    let in_default = "in the namespace \"default\"";
    let changed = |uid: &str| json!({"metadata": {"uid": uid}, "status": {"phase": "Failed"}});
    let ended = |uid: &str| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let other_uid = |name: &str, have: &str| {
        let message = format!(
            "Operation cannot be fulfilled on Pod \"{name}\": the UID in the precondition (another) \
             does not match the UID in record ({have}). The object might have been deleted and \
             then recreated"
        );
        status(
            409,
            "Conflict",
            &message,
            json!({"name": name, "kind": "Pod"}),
        )
    };
    let missing = status(
        404,
        "NotFound",
        "pods \"gone\" not found",
        json!({"name": "gone", "kind": "pods"}),
    );
    let immutable = "metadata.uid: Invalid value: \"another\": field is immutable";
    let (metadata, cause) = immutable.split_once(": ").unwrap();
    let invalid = status(
        422,
        "Invalid",
        &format!("Pod \"web\" is invalid: {immutable}"),
        json!({"name": "web", "kind": "Pod", "causes": [
            {"reason": "FieldValueInvalid", "message": cause, "field": metadata}]}),
    );
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let zoned = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/zone": "a"}}});
    let path = |end: &str| format!("{PODS}/{end}");

    let table: [(&str, &str, String, Value, Value); 17] = [
        (
            "all pods",
            "GET",
            "/api/v1/pods".to_owned(),
            Value::Null,
            by_authorizer("list", "", only_own_list),
        ),
        (
            "all pods, a few",
            "GET",
            "/api/v1/pods?limit=8".to_owned(),
            Value::Null,
            by_authorizer("list", "", only_own_list),
        ),
        (
            "the pods of another node",
            "GET",
            list("other"),
            Value::Null,
            by_authorizer("list", "", only_own_list),
        ),
        (
            "by another field",
            "GET",
            "/api/v1/pods?fieldSelector=spec.host%3Dpi".to_owned(),
            Value::Null,
            by_authorizer("list", "", only_own_list),
        ),
        (
            "a pod of another node",
            "GET",
            path("other"),
            Value::Null,
            by_authorizer(
                "get",
                "other",
                &format!("{in_default}: no relationship found between node 'pi' and this object"),
            ),
        ),
        (
            "all pods at once",
            "DELETE",
            PODS.to_owned(),
            Value::Null,
            by_authorizer("deletecollection", "", in_default),
        ),
        (
            "the pod itself",
            "PATCH",
            path("web"),
            json!({"spec": {"nodeName": ""}}),
            by_authorizer("patch", "web", in_default),
        ),
        (
            "the status of another node's pod",
            "PATCH",
            path("other/status"),
            changed(&foreign),
            by_admission(
                "other",
                "can only update pod status for pods with spec.nodeName set to itself",
            ),
        ),
        (
            "the status of another node's pod, another uid",
            "PATCH",
            path("other/status"),
            changed("another"),
            by_admission(
                "other",
                "can only update pod status for pods with spec.nodeName set to itself",
            ),
        ),
        (
            "labels",
            "PATCH",
            path("web/status"),
            labelled,
            by_admission("web", "cannot update labels through pod status"),
        ),
        (
            "a status, another uid",
            "PATCH",
            path("web/status"),
            changed("another"),
            invalid,
        ),
        (
            "a status, no pod",
            "PATCH",
            path("gone/status"),
            changed(&own),
            missing.clone(),
        ),
        (
            "the end of another node's pod",
            "DELETE",
            path("other"),
            ended(&foreign),
            by_admission(
                "other",
                "can only delete pods with spec.nodeName set to itself",
            ),
        ),
        // The precondition comes before admission.
        (
            "the end of another node's pod, another uid",
            "DELETE",
            path("other"),
            ended("another"),
            other_uid("other", &foreign),
        ),
        (
            "an end, another uid",
            "DELETE",
            path("web"),
            ended("another"),
            other_uid("web", &own),
        ),
        (
            "an end, no pod",
            "DELETE",
            path("gone"),
            ended(&own),
            missing,
        ),
        (
            "a label of its Node that steers pods",
            "PATCH",
            "/api/v1/nodes/pi".to_owned(),
            zoned,
            status(
                403,
                "Forbidden",
                "nodes \"pi\" is forbidden: is not allowed to modify labels: \
                 node-restriction.kubernetes.io/zone",
                json!({"name": "pi", "kind": "nodes"}),
            ),
        ),
    ];
    for (what, method, path, body, expected) in table {
        let (code, answer) = as_node(&double, method, &path, &body);
        assert_eq!(answer, expected, "{what}");
        assert_eq!(code, expected["code"], "{what}");
    }
    // Nothing of it had an effect.
    assert_eq!(double.get(&path("web")).unwrap(), pod);
    assert_eq!(double.get(&path("other")).unwrap(), other);
}

#[test]
fn a_list_has_at_most_limit_pods() {
    let (double, _) = with_pod();
    for index in 0..10 {
        create(&double, &format!("p{index}"), json!({"nodeName": "pi"}));
    }
    let (_, pods) = as_node(&double, "GET", &list("pi"), &Value::Null);
    assert_eq!(pods["items"].as_array().unwrap().len(), 8);
    assert_eq!(pods["metadata"]["remainingItemCount"], 3);
    let rest = format!(
        "{}&continue={}",
        list("pi"),
        pods["metadata"]["continue"].as_str().unwrap()
    );
    let (_, pods) = as_node(&double, "GET", &rest, &Value::Null);
    assert_eq!(pods["items"].as_array().unwrap().len(), 3);
}

#[test]
fn a_node_changes_the_status_of_its_own_pod() {
    let (double, pod) = with_pod();
    let uid = &pod["metadata"]["uid"];
    let change =
        json!({"metadata": {"uid": uid}, "status": {"phase": "Failed", "reason": "OutOfpods"}});
    let (code, after) = as_node(&double, "PATCH", &format!("{PODS}/web/status"), &change);
    assert_eq!(code, 200);
    assert_eq!(after["status"]["phase"], "Failed");
    assert_eq!(after["spec"], pod["spec"]);
}

#[test]
fn a_node_ends_its_own_pod() {
    let (double, pod) = with_pod();
    let web = format!("{PODS}/web");
    // Without a kubelet a bound pod waits for ever.
    let (code, waiting) = double.as_admin("DELETE", &web, "application/json", &Value::Null);
    assert_eq!(code, 200);
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(waiting["metadata"]["generation"], 2);
    assert!(double.get(&web).is_some());
    let uid = &pod["metadata"]["uid"];
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let (code, gone) = as_node(&double, "DELETE", &web, &options);
    assert_eq!((code, &gone["kind"]), (200, &json!("Pod")));
    assert!(double.get(&web).is_none());
}

#[test]
fn a_failed_pod_is_gone_at_once_and_a_finalizer_keeps_a_pod() {
    let (double, _) = with_pod();
    let web = format!("{PODS}/web");
    let failed = json!({"status": {"phase": "Failed"}});
    as_node(&double, "PATCH", &format!("{web}/status"), &failed);
    double.as_admin("DELETE", &web, "", &Value::Null);
    assert!(double.get(&web).is_none());

    create(&double, "kept", json!({"nodeName": "pi"}));
    let kept = format!("{PODS}/kept");
    let finalizers = json!({"metadata": {"finalizers": ["example.com/f"]}});
    double.as_admin("PATCH", &kept, MERGE, &finalizers);
    let (code, _) = as_node(&double, "DELETE", &kept, &json!({"gracePeriodSeconds": 0}));
    assert_eq!(code, 200);
    assert_eq!(
        double.get(&kept).unwrap()["metadata"]["deletionGracePeriodSeconds"],
        0
    );
}

#[test]
fn a_review_knows_the_field_selector_of_a_list() {
    let (double, _) = with_pod();
    let review = |node: &str| {
        let body = json!({"spec": {"resourceAttributes": {
            "verb": "list", "resource": "pods", "fieldSelector": {"requirements": [
                {"key": "spec.nodeName", "operator": "In", "values": [node]},
            ]},
        }}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        as_node(&double, "POST", path, &body).1["status"]["allowed"].clone()
    };
    assert_eq!(review("pi"), true);
    assert_eq!(review("other"), false);
}
