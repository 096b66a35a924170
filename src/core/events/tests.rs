use serde_json::json;

use super::*;

fn node(boot_id: &str, statuses: [&str; 4]) -> Value {
    let conditions: Vec<Value> = REASONS
        .iter()
        .zip(statuses)
        .filter(|(_, status)| !status.is_empty())
        .map(|((kind, _, _), status)| json!({"type": kind, "status": status}))
        .collect();
    json!({"status": {"nodeInfo": {"bootID": boot_id}, "conditions": conditions}})
}

fn reasons(before: Option<&Value>, after: &Value) -> Vec<&'static str> {
    of_change("pi", before, after)
        .iter()
        .map(|e| e.reason)
        .collect()
}

const GOOD: [&str; 4] = ["False", "False", "False", "True"];

#[test]
fn a_new_node_has_events_for_its_pressure_conditions() {
    let after = node("b", GOOD);
    assert_eq!(
        of_change("pi", None, &after),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID"
        ]
        .map(|reason| {
            Event {
                kind: "Normal",
                reason,
                message: format!("Node pi status is now: {reason}"),
            }
        })
    );
}

/// setters_test.go TestMemoryPressureCondition, TestPIDPressureCondition,
/// TestDiskPressureCondition and TestReadyCondition: the events.
#[test]
fn only_changes_have_events() {
    let good = node("b", GOOD);
    // New, pressure.
    assert_eq!(
        reasons(None, &node("b", ["True", "True", "True", "True"])),
        [
            "NodeHasInsufficientMemory",
            "NodeHasDiskPressure",
            "NodeHasInsufficientPID"
        ]
    );
    let unknown = node("b", ["Unknown"; 4]);
    let bad = node("b", ["True", "True", "True", "False"]);
    assert_eq!(reasons(Some(&good), &good), [] as [&str; 0]);
    assert_eq!(
        reasons(Some(&good), &bad),
        [
            "NodeHasInsufficientMemory",
            "NodeHasDiskPressure",
            "NodeHasInsufficientPID",
            "NodeNotReady"
        ]
    );
    assert_eq!(
        reasons(Some(&unknown), &good),
        [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
            "NodeReady"
        ]
    );
    // TestReadyCondition: False to True, True to False, False to False.
    let unready = node("b", ["False", "False", "False", "False"]);
    assert_eq!(reasons(Some(&unready), &good), ["NodeReady"]);
    assert_eq!(reasons(Some(&good), &unready), ["NodeNotReady"]);
    assert_eq!(reasons(Some(&unready), &unready), [] as [&str; 0]);
    assert_eq!(reasons(Some(&bad), &bad), [] as [&str; 0]);
    assert_eq!(
        reasons(Some(&node("b", ["False", "False", "False", ""])), &good),
        [] as [&str; 0]
    );
}

/// setters_test.go TestMachineInfo 14.
#[test]
fn a_changed_boot_id_is_a_reboot_warning() {
    let events = of_change("test-node", Some(&node("foo", GOOD)), &node("bar", GOOD));
    assert_eq!(
        events,
        [Event {
            kind: "Warning",
            reason: "Rebooted",
            message: "Node test-node has been rebooted, boot id: bar".to_owned(),
        }]
    );
    assert_eq!(
        reasons(Some(&node("", GOOD)), &node("bar", GOOD)),
        [] as [&str; 0]
    );
}
