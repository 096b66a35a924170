use super::*;
use serde_json::json;

/// The recorded response of a server, and the output of kubectl for it.
fn recorded() -> (Value, String) {
    const COMMAND: &str = "kubectl describe node nodelet1";
    let recording: Value =
        serde_json::from_str(include_str!("../../../tests/recordings/kubectl.json")).unwrap();
    let steps = recording["steps"].as_array().unwrap();
    let answer = steps
        .iter()
        .find(|s| s["command"] == COMMAND && s["request"]["path"] == "/api/v1/nodes/nodelet1")
        .unwrap();
    let text = recording["outputs"][COMMAND]["stdout"].as_str().unwrap();
    (answer["response"]["body"].clone(), text.to_owned())
}

/// The output of kubectl without the sections that need a server.
fn without_server(text: &str) -> String {
    let sections = ["Lease:", "Non-terminated Pods:", "Allocated resources:", "Events:"];
    let mut kept = String::new();
    let mut skipping = false;
    for line in text.split_inclusive('\n') {
        if !line.starts_with(' ') {
            skipping = sections.iter().any(|section| line.starts_with(section));
        }
        if !skipping && line != "\n" {
            kept.push_str(line);
        }
    }
    kept
}

#[test]
fn a_recorded_node_is_printed_as_by_kubectl() {
    let (answer, theirs) = recorded();
    let (ours, theirs) = (node(&answer), without_server(&theirs));
    assert!(theirs.lines().count() > 40, "{theirs}");
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours, theirs);
}

#[test]
fn an_empty_node_has_all_sections() {
    let nothing = "Name:               \n\
                   Roles:              <none>\n\
                   Labels:             <none>\n\
                   Annotations:        <none>\n\
                   CreationTimestamp:  <unset>\n\
                   Taints:             <none>\n\
                   Unschedulable:      false\n\
                   Addresses:\n\
                   System Info:\n  Machine ID:                 \n";
    for empty in [json!({}), json!(null), json!({"metadata": 7, "status": []})] {
        assert!(node(&empty).starts_with(nothing), "{}", node(&empty));
    }
}

#[test]
fn roles_and_taints_are_sorted_and_control_characters_are_escaped() {
    let text = node(&json!({
        "metadata": {"name": "pi", "labels": {
            "node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/": "",
            "kubernetes.io/role": "edge", "z": 1,
        }, "annotations": {"b": "2", "a": "\u{1b}[2J\r"}},
        "spec": {"unschedulable": true, "providerID": "x://1", "taints": [
            {"key": "b", "effect": "NoSchedule"},
            {"key": "a", "value": "v", "effect": "NoSchedule"},
            {"key": "c", "value": "v", "effect": "NoExecute"},
            {"key": "d"},
        ]},
        "status": {"capacity": {"cpu": "4000m", "odd": "?"}},
    }));
    for part in [
        "Roles:              edge,worker\n",
        "Annotations:        a: ^[[2J\\r\n                    b: 2\n",
        "Taints:             d\n                    c=v:NoExecute\n                    \
         a=v:NoSchedule\n                    b:NoSchedule\n",
        "Unschedulable:      true\n",
        "Capacity:\n  cpu:  4\n  odd:  ?\n",
        "ProviderID:                   x://1\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\u{1b}'));
}
