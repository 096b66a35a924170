//! Pods: what a node may do to them, in the words of kube-apiserver v1.36.2.
//! Upstream: `plugin/pkg/auth/authorizer/node`, `plugin/pkg/admission/noderestriction`.

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

fn create(double: &Double, name: &str, spec: Value) -> Value {
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

fn refused(answer: (u16, Value)) -> (u16, String) {
    let (code, body) = answer;
    (
        code,
        body["message"].as_str().unwrap_or_default().to_owned(),
    )
}

fn list(node: &str) -> String {
    format!(
        "/api/v1/pods?fieldSelector=spec.nodeName%3D{node}%2Cstatus.phase%21%3DFailed%2C\
         status.phase%21%3DSucceeded&limit=8"
    )
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
    let forbidden = "pods is forbidden: User \"system:node:pi\" cannot list resource \"pods\" in \
                     API group \"\" at the cluster scope: can only list/watch pods with \
                     spec.nodeName field selector";
    for path in ["/api/v1/pods", "/api/v1/pods?limit=8", &list("other")] {
        let answer = refused(as_node(&double, "GET", path, &Value::Null));
        assert_eq!(answer, (403, forbidden.to_owned()), "{path}");
    }
    let (code, _) = as_node(
        &double,
        "GET",
        "/api/v1/pods?fieldSelector=spec.host%3Dpi",
        &Value::Null,
    );
    assert_eq!(code, 403);
    let (code, _) = double.as_admin(
        "GET",
        "/api/v1/pods?fieldSelector=spec.host%3Dpi",
        "",
        &Value::Null,
    );
    assert_eq!(code, 400, "not a field of a pod");
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

/// admission_test.go Test_nodePlugin_Admit: pods, status.
#[test]
fn a_node_changes_the_status_of_its_own_pod_with_its_uid_alone() {
    let (double, pod) = with_pod();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let web = format!("{PODS}/web");
    let status = format!("{web}/status");
    let change = |uid: &str| json!({"metadata": {"uid": uid}, "status": {"phase": "Failed", "reason": "OutOfpods"}});
    assert_eq!(
        refused(as_node(&double, "PATCH", &status, &change("another"))),
        (
            422,
            "Pod \"web\" is invalid: metadata.uid: Invalid value: \"another\": field is immutable"
                .to_owned()
        )
    );
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        refused(as_node(&double, "PATCH", &status, &labels)),
        (
            403,
            "pods \"web\" is forbidden: node \"pi\" cannot update labels through pod status"
                .to_owned()
        )
    );
    let (code, _) = as_node(&double, "PATCH", &web, &json!({"spec": {"nodeName": ""}}));
    assert_eq!(code, 403, "not the pod itself");
    let (code, after) = as_node(&double, "PATCH", &status, &change(uid));
    assert_eq!(code, 200);
    assert_eq!(after["status"]["phase"], "Failed");
    assert_eq!(after["spec"], pod["spec"]);

    create(&double, "other", json!({"nodeName": "other"}));
    let path = format!("{PODS}/other/status");
    assert_eq!(
        refused(as_node(
            &double,
            "PATCH",
            &path,
            &json!({"status": {"phase": "Failed"}})
        )),
        (
            403,
            "pods \"other\" is forbidden: node \"pi\" can only update pod status for pods with \
             spec.nodeName set to itself"
                .to_owned()
        )
    );
}

/// admission_test.go Test_nodePlugin_Admit: delete.
#[test]
fn a_node_ends_its_own_pod_with_its_uid_alone() {
    let (double, pod) = with_pod();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let web = format!("{PODS}/web");
    // Without a kubelet a bound pod waits for ever.
    let (code, waiting) = double.as_admin("DELETE", &web, "application/json", &Value::Null);
    assert_eq!(code, 200);
    assert_eq!(waiting["metadata"]["deletionGracePeriodSeconds"], 30);
    assert!(double.get(&web).is_some());
    let options = |uid: &str| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(
        refused(as_node(&double, "DELETE", &web, &options("another"))),
        (
            409,
            format!(
                "Operation cannot be fulfilled on pods \"web\": Precondition failed: UID in \
                 precondition: another, UID in object meta: {uid}"
            )
        )
    );
    let (code, gone) = as_node(&double, "DELETE", &web, &options(uid));
    assert_eq!((code, &gone["kind"]), (200, &json!("Pod")));
    assert!(double.get(&web).is_none());
    let (code, _) = as_node(&double, "DELETE", &web, &options(uid));
    assert_eq!(code, 404);

    create(&double, "other", json!({"nodeName": "other"}));
    assert_eq!(
        refused(as_node(
            &double,
            "DELETE",
            &format!("{PODS}/other"),
            &Value::Null
        )),
        (
            403,
            "pods \"other\" is forbidden: node \"pi\" can only delete pods with spec.nodeName set \
             to itself"
                .to_owned()
        )
    );
    let (code, _) = as_node(&double, "DELETE", PODS, &Value::Null);
    assert_eq!(code, 403, "deletecollection");
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
