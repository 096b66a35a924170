use serde_json::json;

use super::*;
use crate::config::Config;
use crate::config::flags::Flags;

/// `existing` after reconciliation, without its labels, which `status::labels` tests.
fn reconciled(initial: &Value, existing: &Value) -> Value {
    let config = Config::new(Flags::default(), || Ok("pi".to_owned())).unwrap();
    let mut node = existing.clone();
    reconcile(&config.node, initial, &mut node);
    let first = node.clone();
    reconcile(&config.node, initial, &mut node);
    assert_eq!(node, first, "a second reconciliation changes nothing");
    object::members(&mut node, &["metadata"]).insert("labels".into(), json!({}));
    node
}

/// kubelet_node_status_test.go TestTryRegisterWithApiServer, the cases of the annotation.
#[test]
fn our_annotations_follow_the_new_node() {
    let node = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let yes = node(json!({ATTACH_DETACH: "true"}));
    let none = json!({"metadata": {}});
    for (name, initial, existing, want) in [
        ("same", &yes, &yes, yes.clone()),
        ("neither has one", &none, &none, none.clone()),
        (
            "absent and empty are equal",
            &none,
            &node(json!({ATTACH_DETACH: ""})),
            node(json!({ATTACH_DETACH: ""})),
        ),
        (
            "removed, others stay",
            &none,
            &node(json!({ATTACH_DETACH: "true", "a": "b"})),
            node(json!({"a": "b"})),
        ),
        (
            "set, others stay",
            &yes,
            &node(json!({"a": "b"})),
            node(json!({ATTACH_DETACH: "true", "a": "b"})),
        ),
        ("set where there is none", &yes, &none, yes.clone()),
        (
            "the other one of ours",
            &node(json!({DOCUMENTATION: "man:nodelet(8)"})),
            &node(json!({DOCUMENTATION: "old", "a": "b"})),
            node(json!({DOCUMENTATION: "man:nodelet(8)", "a": "b"})),
        ),
    ] {
        let mut existing = existing.clone();
        annotations(initial, &mut existing);
        assert_eq!(existing, want, "{name}");
    }
}

/// kubelet_node_status_test.go TestUpdateDefaultResources.
#[test]
fn test_update_default_resources() {
    let ours = json!({"cpu": "4", "memory": "1Gi"});
    let theirs = json!({"cpu": "8", "theirs": "1"});
    let status = |capacity: &Value, allocatable: &Value| json!({"status": {"capacity": capacity, "allocatable": allocatable}});
    let null = json!(null);
    for (name, existing, want) in [
        ("both non-nil", status(&theirs, &theirs), status(&theirs, &theirs)),
        ("existing nil", status(&null, &null), status(&ours, &ours)),
        ("no status", json!({}), status(&ours, &ours)),
        ("capacity nil", status(&null, &theirs), status(&ours, &theirs)),
        ("allocatable nil", status(&theirs, &null), status(&theirs, &ours)),
        ("empty is not absent", status(&json!({}), &json!({})), status(&json!({}), &json!({}))),
    ] {
        let initial = status(&ours, &ours);
        let mut want = want;
        want["metadata"] = json!({"labels": {}});
        assert_eq!(reconciled(&initial, &existing), want, "{name}");
    }
    let mut kept = status(&theirs, &theirs);
    kept["metadata"] = json!({"labels": {}});
    assert_eq!(reconciled(&json!({}), &status(&theirs, &theirs)), kept, "initial nil");
    // Both objects nil.
    assert_eq!(
        reconciled(&json!({}), &json!({})),
        json!({"metadata": {"labels": {}}, "status": {"capacity": {}, "allocatable": {}}})
    );
}

fn resources_of(capacity: Value, allocatable: Value) -> Value {
    json!({
        "metadata": {"labels": {}},
        "status": {"capacity": capacity, "allocatable": allocatable},
    })
}

fn same(resources: &Value) -> Value {
    resources_of(resources.clone(), resources.clone())
}

/// kubelet_node_status_test.go TestReconcileHugePageResource.
#[test]
fn test_reconcile_huge_page_resource() {
    let empty = resources_of(json!(null), json!(null));
    for (name, initial, existing, want) in [
        (
            "equal, numerically",
            json!({"hugepages-2Mi": "100Mi", "hugepages-64Ki": "0"}),
            same(&json!({"hugepages-2Mi": "102400Ki", "hugepages-64Ki": "0k"})),
            same(&json!({"hugepages-2Mi": "102400Ki", "hugepages-64Ki": "0k"})),
        ),
        (
            "another size, and the old one is 0",
            json!({"hugepages-2Mi": "0", "hugepages-1Gi": "2Gi"}),
            same(&json!({"hugepages-2Mi": "100Mi", "cpu": "1"})),
            same(&json!({"hugepages-2Mi": "0", "hugepages-1Gi": "2Gi", "cpu": "1"})),
        ),
        (
            "2Gi to 4Gi",
            json!({"hugepages-1Gi": "4Gi"}),
            same(&json!({"hugepages-1Gi": "2Gi"})),
            same(&json!({"hugepages-1Gi": "4Gi"})),
        ),
        (
            "allocatable alone differs",
            json!({"hugepages-1Gi": "4Gi"}),
            resources_of(json!({"hugepages-1Gi": "4Gi"}), json!({})),
            same(&json!({"hugepages-1Gi": "4Gi"})),
        ),
        (
            "not in initial",
            json!({"hugepages-1Gi": "2Gi"}),
            same(&json!({"hugepages-1Gi": "2Gi", "hugepages-2Mi": "100Mi"})),
            same(&json!({"hugepages-1Gi": "2Gi"})),
        ),
        (
            "status empty",
            json!({"hugepages-2Mi": "100Mi"}),
            empty,
            same(&json!({"hugepages-2Mi": "100Mi"})),
        ),
    ] {
        assert_eq!(reconciled(&same(&initial), &existing), want, "{name}");
    }
}

/// kubelet_node_status_test.go TestReconcileExtendedResource.
#[test]
fn test_reconcile_extended_resource() {
    let ours = json!({"cpu": "4"});
    let initial = same(&ours);
    let with = json!({"cpu": "4", "test.com/resource1": "2", "test.com/resource2": "10"});
    let zeroed = json!({"cpu": "4", "test.com/resource1": "0", "test.com/resource2": "0"});
    for (name, existing, want) in [
        ("none", same(&ours), same(&ours)),
        ("zeroed", same(&with), same(&zeroed)),
        (
            "allocatable nil: copied, then zeroed",
            resources_of(with.clone(), json!(null)),
            same(&zeroed),
        ),
        (
            "names with the domain kubernetes.io or without one are no extended resources",
            resources_of(
                json!({"cpu": "4", "attachable-volumes-x": "9", "x.kubernetes.io/y": "1"}),
                json!({"cpu": "4", "test.com/allocatable-only": "1"}),
            ),
            resources_of(
                json!({"cpu": "4", "attachable-volumes-x": "9", "x.kubernetes.io/y": "1"}),
                json!({"cpu": "4", "test.com/allocatable-only": "1"}),
            ),
        ),
    ] {
        assert_eq!(reconciled(&initial, &existing), want, "{name}");
    }
}

/// setters_test.go TestVolumesInUse (not synced), and kubelet_node_status_test.go
/// TestUpdateNodeStatusAndVolumesInUseWithNodeLease (volume on node only). `volumesInUse` is
/// removed when the Node is adopted, and unchanged otherwise.
#[test]
fn other_parts_of_an_adopted_node_are_unchanged() {
    let ours = json!({"cpu": "4"});
    let mut initial = same(&ours);
    initial["spec"] = json!({"providerID": "ours", "taints": [{"key": "ours"}]});
    initial["metadata"]["annotations"] = json!({"ours": "1"});
    initial["status"]["conditions"] = json!([{"type": "Ready"}]);
    let existing = json!({
        "metadata": {
            "labels": {}, "annotations": {"theirs": "1"},
            "finalizers": ["f"], "uid": "7",
        },
        "spec": {"taints": [{"key": "theirs"}], "unschedulable": true},
        "status": {
            "capacity": {"cpu": "8"}, "allocatable": {"cpu": "8"},
            "conditions": [{"type": "Theirs"}],
            "volumesAttached": [{"name": "v"}],
            "volumesInUse": ["v"],
        },
    });
    let mut want = existing.clone();
    object::members(&mut want, &["status"]).remove("volumesInUse");
    assert_eq!(reconciled(&initial, &existing), want);
}
