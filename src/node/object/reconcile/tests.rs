use serde_json::json;

use super::*;
use crate::config::Config;
use crate::kube::facts::{Facts, HugePages, Read, Unread, UnreadKind};
use crate::kube::time::Wall;
use crate::node::eviction::Pressures;
use crate::node::patch::tests::apply;
use crate::node::status;

/// Capacity and allocatable of a Node with these that a board with these huge pages adopts, without
/// the resources that every board has.
fn adopted(huge_pages: &[(u64, u64)], capacity: &Value, allocatable: &Value) -> [Value; 2] {
    let pages = huge_pages
        .iter()
        .map(|(page_bytes, count)| HugePages { page_bytes: *page_bytes, count: *count });
    adopted_with(Ok(pages.collect()), capacity, allocatable)
}

fn adopted_with(
    huge_pages: Read<Vec<HugePages>>,
    capacity: &Value,
    allocatable: &Value,
) -> [Value; 2] {
    let config = Config::of(&[]);
    let facts = Facts { huge_pages, ..Facts::example() };
    let (none, now) = (Pressures::default(), Wall::default());
    let initial = status::initial(&config, &facts, none, now).node;
    let mut node = json!({"status": {"capacity": capacity, "allocatable": allocatable}});
    reconcile(&config.node, &facts, &initial, &mut node);
    let mut node = status::desired(&config, &facts, none, &node, now).node;
    ["capacity", "allocatable"].map(|resources| {
        let resources = object::members(&mut node, &["status", resources]);
        for common in ["cpu", "memory", "pods", "ephemeral-storage"] {
            assert!(resources.remove(common).is_some(), "{common}");
        }
        resources.clone().into()
    })
}

/// A slow card ended the first look of a restarted agent.
#[test]
fn huge_pages_that_were_not_read_stay_on_the_node() {
    let pools = json!({"hugepages-2Mi": "512Mi"});
    let unread = || Unread::new("sys/kernel/mm/hugepages", "not read in time");
    let kept = adopted_with(Err(unread()), &pools, &pools);
    assert_eq!(kept, [pools.clone(), pools.clone()]);
    let absent = Unread { kind: UnreadKind::Absent, ..unread() };
    assert_eq!(adopted_with(Err(absent), &pools, &pools), [json!({}), json!({})]);
}

/// kubelet_node_status_test.go TestTryRegisterWithApiServer, the cases of the annotation.
#[test]
fn our_annotations_follow_the_new_node() {
    let node = |annotations: &Value| json!({"metadata": {"annotations": annotations}});
    let (none, theirs) = (Value::Null, json!({"a": "b"}));
    let (yes, empty) = (json!({ATTACH_DETACH: "true"}), json!({ATTACH_DETACH: ""}));
    let both = json!({ATTACH_DETACH: "true", "a": "b"});
    let manual = |name: &str| json!({DOCUMENTATION: name});
    for (name, initial, existing, want) in [
        ("same", &yes, &yes, &yes),
        ("neither has one", &none, &none, &none),
        ("absent and empty are equal", &none, &empty, &empty),
        ("removed, others stay", &none, &both, &theirs),
        ("set, others stay", &yes, &theirs, &both),
        ("set where there is none", &yes, &none, &yes),
        (
            "the other one of ours",
            &manual("new"),
            &apply(manual("old"), &theirs),
            &apply(manual("new"), &theirs),
        ),
    ] {
        let mut got = node(existing);
        own_annotations(&node(initial), &mut got);
        assert_eq!(got, node(want), "{name}");
    }
}

/// kubelet_node_status_test.go TestReconcileHugePageResource, TestReconcileExtendedResource and
/// TestUpdateDefaultResources (nil).
#[test]
fn test_reconcile_huge_page_resource_and_extended_resource() {
    const KIBI: u64 = 1 << 10;
    const MEBI: u64 = 1 << 20;
    const GIBI: u64 = 1 << 30;
    let null = json!(null);
    let equal = json!({"hugepages-2Mi": "102400Ki", "hugepages-64Ki": "0k"});
    let extended = json!({"test.com/resource1": "2", "test.com/resource2": "10"});
    let zeroed = json!({"test.com/resource1": "0", "test.com/resource2": "0"});
    let theirs = json!({"attachable-volumes-x": "9", "x.kubernetes.io/y": "1"});
    for (name, huge_pages, capacity, allocatable, want) in [
        ("nil", &[][..], &null, &null, &json!({})),
        ("equal, numerically", &[(2 * MEBI, 50), (64 * KIBI, 0)], &equal, &equal, &equal),
        (
            "another size, one with another amount, and one that the board lacks",
            &[(2 * MEBI, 0), (GIBI, 2)],
            &json!({"hugepages-2Mi": "100Mi", "hugepages-64Ki": "1Mi"}),
            &json!({"hugepages-2Mi": "100Mi", "hugepages-64Ki": "1Mi"}),
            &json!({"hugepages-2Mi": "0", "hugepages-1Gi": "2Gi"}),
        ),
        ("extended resources are zeroed", &[], &extended, &extended, &zeroed),
        ("allocatable nil", &[], &extended, &null, &zeroed),
        (
            "names with the domain kubernetes.io or without one are no extended resources",
            &[],
            &theirs,
            &json!({"test.com/allocatable-only": "1"}),
            &theirs,
        ),
    ] {
        assert_eq!(
            adopted(huge_pages, capacity, allocatable),
            [want.clone(), want.clone()],
            "{name}"
        );
    }
}

/// setters_test.go TestVolumesInUse (not synced), and kubelet_node_status_test.go
/// TestUpdateNodeStatusAndVolumesInUseWithNodeLease (volume on node only). `volumesInUse` is
/// removed when the Node is adopted, and unchanged otherwise.
#[test]
fn other_parts_of_an_adopted_node_are_unchanged() {
    let initial = json!({
        "metadata": {"annotations": {"ours": "1"}},
        "spec": {"providerID": "ours", "taints": [{"key": "ours"}]},
        "status": {
            "capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"},
            "conditions": [{"type": "Ready"}],
        },
    });
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
    let mut node = existing;
    reconcile(&Config::of(&[]).node, &Facts::example(), &initial, &mut node);
    // `status::labels` tests the labels.
    object::set(&mut node, &["metadata", "labels"], json!({}));
    assert_eq!(node, want);
}
