//! Cases of upstream's `kubelet_node_status_test.go` by their names, whole sequences
//! against a server that keeps the Node. `tests/upstream.md` is the list of all.

use super::*;
use crate::config::command_line::{self, Command};
use crate::core::patch;
use crate::core::patch::tests::apply;

const THEN: &str = "2012-01-01T00:00:00Z";
const SECOND: Duration = Duration::from_secs(1);

fn flags(words: &[&str]) -> Flags {
    match command_line::parse(words.iter().map(Into::into)) {
        Ok(Command::Run(flags)) => *flags,
        other => panic!("{words:?}: {other:?}"),
    }
}

/// The server's side of one Node that is there: shows it, and merges patches that were
/// built from what it holds.
fn serve(stored: &mut Value) -> impl FnOnce(&Request) -> Outcome {
    move |request| {
        if request.method == Method::Get {
            return answer(200, stored.clone());
        }
        assert_eq!(request.method, Method::Patch);
        let patch: Value = serde_json::from_slice(&request.body).unwrap();
        if resource_version(&patch) != resource_version(stored) {
            return refuse(409, "Conflict");
        }
        let version: u64 = resource_version(stored).parse().unwrap();
        *stored = apply(stored.clone(), &patch);
        stored["metadata"]["resourceVersion"] = (version + 1).to_string().into();
        let metadata = &stored["metadata"];
        answer(
            200,
            json!({"kind": "PartialObjectMetadata", "metadata": metadata}),
        )
    }
}

fn times(node: &Value, key: &str) -> Vec<String> {
    let conditions = object::list(node, &["status", "conditions"]).iter();
    conditions
        .map(|c| object::text(c, &[key]).to_owned())
        .collect()
}

fn quantities(node: &Value, which: &str) -> Vec<String> {
    ["cpu", "memory", "pods", "ephemeral-storage"]
        .map(|name| object::text(node, &["status", which, name]).to_owned())
        .to_vec()
}

/// Two cores, 10e9 bytes of memory, so much storage, no huge pages.
fn machine(storage: u64) -> Facts {
    let mut facts = Facts::example();
    facts.cpus = Ok(2);
    facts.memory.as_mut().unwrap().total_bytes = 10_000_000_000;
    facts.node_fs.as_mut().unwrap().capacity_bytes = storage;
    facts.huge_pages = Ok(Vec::new());
    facts
}

/// A Node that others registered is read, then patched: the only way to upstream's two
/// calls, for our own create carries the whole status.
fn updated(words: &[&str], facts: Facts, existing: Value) -> (Talk, Value) {
    let mut words = words.to_vec();
    words.push("--register-node=false");
    let mut talk = Talk::new(flags(&words));
    talk.facts = facts;
    let mut stored = existing;
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Read));
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Updated));
    assert_eq!(talk.calls(), ["Get ~/pi", "Patch ~/pi/status"]);
    (talk, stored)
}

#[test]
fn test_update_new_node_status() {
    let words = [
        "--system-reserved=cpu=200m,memory=100000000,ephemeral-storage=2000",
        "--eviction-hard=",
    ];
    let (talk, node) = updated(&words, machine(5000), foreign(json!({}), json!({})));
    assert_eq!(
        node["metadata"]["labels"],
        json!({"kubernetes.io/os": "linux", "kubernetes.io/arch": status::ARCHITECTURE})
    );
    assert_eq!(
        quantities(&node, "capacity"),
        ["2", "9765625Ki", "0", "5000"]
    );
    assert_eq!(
        quantities(&node, "allocatable"),
        ["1800m", "9900000000", "0", "3k"],
        "a capacity without a unit is read back as a decimal one: 3000 all the same"
    );
    let conditions: Vec<[&str; 3]> = object::list(&node, &["status", "conditions"])
        .iter()
        .map(|c| ["type", "status", "reason"].map(|key| object::text(c, &[key])))
        .collect();
    assert_eq!(
        conditions,
        [
            ["MemoryPressure", "False", "KubeletHasSufficientMemory"],
            ["DiskPressure", "False", "KubeletHasNoDiskPressure"],
            ["PIDPressure", "False", "KubeletHasSufficientPID"],
            ["Ready", "True", "KubeletReady"],
        ]
    );
    let now = vec![talk.now.wall.time(); 4];
    assert_eq!(times(&node, "lastHeartbeatTime"), now);
    assert_eq!(times(&node, "lastTransitionTime"), now);
    assert_eq!(
        node["status"]["addresses"],
        json!([
            {"type": "InternalIP", "address": "192.0.2.10"},
            {"type": "Hostname", "address": "pi"},
        ])
    );
    let info = &node["status"]["nodeInfo"];
    for key in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "kubeletVersion",
        "operatingSystem",
        "architecture",
    ] {
        assert_ne!(object::text(info, &[key]), "", "{key}");
    }
    assert_eq!(info["kubeProxyVersion"], "");
    assert_eq!(info["containerRuntimeVersion"], "none://");
}

#[test]
fn test_update_existing_node_status() {
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": "old",
            "lastHeartbeatTime": THEN, "lastTransitionTime": THEN})
    };
    let existing = json!({
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasSufficientDisk"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "capacity": {"cpu": "3", "memory": "20000000000", "pods": "0"},
        "allocatable": {"cpu": "2800m", "memory": "19900000000", "pods": "0"},
    });
    let (talk, node) = updated(&[], machine(5000), foreign(json!({}), existing));
    assert_eq!(
        times(&node, "lastHeartbeatTime"),
        vec![talk.now.wall.time(); 4]
    );
    assert_eq!(times(&node, "lastTransitionTime"), [THEN; 4]);
    let conditions = &node["status"]["conditions"];
    assert_eq!(conditions[1]["reason"], "KubeletHasSufficientDisk");
    assert_eq!(conditions[1]["message"], "old");
    assert_eq!(conditions[3]["type"], "Ready");
    assert_eq!(node["status"]["capacity"]["cpu"], "2");
}

/// What is reserved beyond the capacity is refused at start (`check_reservations`); a
/// machine that shrinks later offers nothing, and less than nothing never.
#[test]
fn test_update_new_node_status_too_large_reservation() {
    let words = [
        "--system-reserved=cpu=40,ephemeral-storage=1000",
        "--eviction-hard=",
    ];
    let (_, node) = updated(&words, machine(3000), foreign(json!({}), json!({})));
    assert_eq!(
        quantities(&node, "allocatable"),
        ["0", "9765625Ki", "0", "2k"]
    );
    assert_eq!(
        quantities(&node, "capacity"),
        ["2", "9765625Ki", "0", "3000"]
    );
}

/// Upstream's GET at every tick is not made (decision 2), so an unchanged tick is no
/// call instead of one, a changed one is one instead of two (decision 1: 409 would tell
/// that somebody wrote), and what others wrote is seen at the next report.
#[test]
fn test_update_node_status_with_lease() {
    let mut stored = foreign(json!({}), json!({}));
    let mut talk = Talk::new(flags(&[
        "--register-node=false",
        "--node-status-report-frequency=30s",
    ]));
    talk.facts.memory.as_mut().unwrap().total_bytes = 20_000_000_000;
    let later = |talk: &mut Talk, seconds| {
        talk.node.due = talk.now.mono.after(SECOND * seconds);
    };

    talk.turn(serve(&mut stored));
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Updated));
    assert_eq!(talk.requests.len(), 2, "first update");
    let first = stored.clone();

    later(&mut talk, 60);
    talk.turn(serve(&mut stored));
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Updated));
    assert_eq!(talk.requests.len(), 4, "60 s later, unchanged");
    let mut want = first.clone();
    want["metadata"]["resourceVersion"] = "9".into();
    for condition in want["status"]["conditions"].as_array_mut().unwrap() {
        condition["lastHeartbeatTime"] = talk.now.wall.time().into();
    }
    assert_eq!(stored, want, "only heartbeats differ");

    later(&mut talk, 10);
    assert_eq!(talk.turn(|_| unreachable!()), None, "unchanged");

    talk.facts.memory.as_mut().unwrap().total_bytes = 40_000_000_000;
    later(&mut talk, 10);
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Updated));
    assert_eq!(talk.requests.len(), 5, "memory changed");
    let heartbeat = talk.now.wall.time();
    assert_eq!(
        times(&stored, "lastHeartbeatTime"),
        vec![heartbeat.clone(); 4]
    );
    assert_eq!(
        times(&stored, "lastTransitionTime"),
        times(&first, "lastTransitionTime")
    );

    // The controller manager gives the Node its networks.
    stored["spec"]["podCIDRs"] = json!(["10.0.0.0/24", "2000::/10"]);
    stored["metadata"]["resourceVersion"] = "77".into();
    for _ in 0..2 {
        later(&mut talk, 10);
        assert_eq!(talk.turn(|_| unreachable!()), None, "nothing of ours");
    }
    later(&mut talk, 10);
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Read));
    assert_eq!(talk.turn(serve(&mut stored)), Some(Step::Updated));
    assert_eq!(talk.requests.len(), 7, "the report");
    let networks = &json!(["10.0.0.0/24", "2000::/10"]);
    let seen = talk.node.seen.as_ref().unwrap();
    assert_eq!(&seen["spec"]["podCIDRs"], networks);
    assert_eq!(&stored["spec"]["podCIDRs"], networks);
    assert_ne!(times(&stored, "lastHeartbeatTime")[0], heartbeat);

    later(&mut talk, 10);
    assert_eq!(talk.turn(|_| unreachable!()), None, "same networks");
}

/// Without volumes nothing is patched; a missing label alone is.
#[test]
fn test_update_node_status_and_volumes_in_use_with_node_lease() {
    let (_, settled) = updated(&[], machine(5000), foreign(json!({}), json!({})));
    for (name, missing, patches) in [
        ("no volumes", "", false),
        ("no os label", "kubernetes.io/os", true),
        ("no arch label", "kubernetes.io/arch", true),
    ] {
        let mut stored = settled.clone();
        object::members(&mut stored, &["metadata", "labels"]).remove(missing);
        let mut talk = Talk::new(flags(&["--register-node=false"]));
        talk.facts = machine(5000);
        // As if a report had just been sent.
        talk.node.report_due = Mono::START.after(SECOND * 3600);
        talk.turn(serve(&mut stored));
        let step = talk.turn(serve(&mut stored));
        assert_eq!(step, patches.then_some(Step::Updated), "{name}");
        assert_eq!(stored["metadata"]["labels"], settled["metadata"]["labels"]);
    }
}

/// GET and the rest of the conversation, case by case: the flag says whether ours has
/// the annotation, the option what theirs says.
#[test]
fn test_try_register_with_api_server() {
    let none: &[(u16, &str)] = &[];
    let exists = (409, "AlreadyExists");
    let forbidden = (403, "Forbidden");
    for (name, answers, theirs, ours, done, calls) in [
        ("new", none, None, true, true, 1),
        ("exists, same", &[exists][..], Some("true"), true, true, 3),
        (
            "forbidden, same",
            &[forbidden][..],
            Some("true"),
            true,
            true,
            3,
        ),
        (
            "forbidden, removed",
            &[forbidden][..],
            Some("true"),
            false,
            true,
            3,
        ),
        (
            "exists, removed",
            &[exists][..],
            Some("true"),
            false,
            true,
            3,
        ),
        ("exists, set", &[exists][..], None, true, true, 3),
        ("conflict", &[(409, "Conflict")][..], None, true, false, 1),
        (
            "exists, GET fails",
            &[exists, (500, "")][..],
            None,
            true,
            false,
            2,
        ),
        (
            "exists, PATCH fails",
            &[exists, (200, ""), (500, "")][..],
            None,
            true,
            false,
            3,
        ),
    ] {
        let annotations = match theirs {
            Some(text) => json!({status::ATTACH_DETACH: text}),
            None => json!({}),
        };
        let mut stored = foreign(json!({"annotations": annotations}), json!({}));
        let mut talk = Talk::new(Flags {
            enable_controller_attach_detach: ours,
            ..Flags::default()
        });
        let mut answers = answers.iter();
        let mut last = Step::Continue;
        while matches!(last, Step::Continue | Step::Read) {
            let step = match answers.next() {
                Some((200, _)) => talk.turn(serve(&mut stored)),
                Some((code, reason)) => talk.turn(|_| refuse(*code, reason)),
                None if talk.requests.is_empty() => talk.turn(created),
                None => talk.turn(serve(&mut stored)),
            };
            last = step.unwrap();
        }
        let registered = matches!(last, Step::Registered | Step::Adopted);
        assert_eq!(registered, done, "{name}: {last:?}");
        assert_eq!(talk.node.is_registered(), done, "{name}");
        assert_eq!(talk.requests.len(), calls, "{name}");
        if done && calls == 3 {
            let want = if ours { "true" } else { "" };
            let path = ["metadata", "annotations", status::ATTACH_DETACH];
            assert_eq!(object::text(&stored, &path), want, "{name}");
        }
    }
}

/// The difference decides, heartbeats are not in it: nothing compares statuses apart.
#[test]
fn test_node_status_has_changed() {
    let ready = |status: &str, since: &str| {
        json!({"type": "Ready", "status": status,
            "lastHeartbeatTime": THEN, "lastTransitionTime": since})
    };
    let other = json!({"type": "Theirs", "status": "True"});
    let conditions = json!({"conditions": [ready("True", THEN), other]});
    let null = json!(null);
    let empty = json!({});
    for (name, before, after, want) in [
        ("nil, nil", &null, &null, false),
        ("{}, {}", &empty, &empty, false),
        ("nil, {}", &null, &empty, true),
        ("nil, with conditions", &null, &conditions, true),
        (
            "empty conditions",
            &json!({"conditions": []}),
            &json!({"conditions": []}),
            false,
        ),
        ("same conditions", &conditions, &conditions, false),
        (
            "condition status differs",
            &conditions,
            &json!({"conditions": [ready("False", THEN), other]}),
            true,
        ),
        (
            "transition time differs",
            &conditions,
            &json!({"conditions": [ready("True", "2013-01-01T00:00:00Z"), other]}),
            true,
        ),
        (
            "number of conditions differs",
            &conditions,
            &json!({"conditions": [ready("True", THEN)]}),
            true,
        ),
        (
            "phase differs",
            &json!({"phase": "Pending"}),
            &json!({"phase": "Running"}),
            true,
        ),
    ] {
        let change = patch::diff(&json!({"status": before}), &json!({"status": after}));
        assert_eq!(change.as_ref().is_some_and(counts), want, "{name}");
    }

    // Only heartbeats, and another order: what we want follows what is there.
    let (_, settled) = updated(&[], machine(5000), foreign(json!({}), json!({})));
    for (name, reversed) in [("only heartbeats differ", false), ("another order", true)] {
        let mut stored = settled.clone();
        let conditions = stored["status"]["conditions"].as_array_mut().unwrap();
        if reversed {
            conditions.reverse();
        }
        for condition in conditions {
            condition["lastHeartbeatTime"] = THEN.into();
        }
        let mut talk = Talk::new(flags(&["--register-node=false"]));
        talk.facts = machine(5000);
        talk.node.report_due = Mono::START.after(SECOND * 3600);
        talk.turn(serve(&mut stored));
        assert_eq!(talk.turn(|_| unreachable!()), None, "{name}");
    }
}

#[test]
fn test_update_node_addresses() {
    let list = |addresses: &[(&str, &str)]| -> Value {
        let address = |(kind, ip): &(&str, &str)| json!({"type": kind, "address": ip});
        addresses.iter().map(address).collect()
    };
    let one = &[("InternalIP", "10.1.1.1"), ("Hostname", "h")][..];
    let other = &[("InternalIP", "10.2.2.2"), ("Hostname", "g")][..];
    let two = &[
        ("InternalIP", "10.1.1.1"),
        ("InternalIP", "fd01::1234"),
        ("Hostname", "h"),
    ][..];
    let four = &[
        ("InternalIP", "10.1.1.1"),
        ("InternalIP", "fd01::1234"),
        ("InternalIP", "10.2.2.2"),
        ("Hostname", "h"),
    ][..];
    let reversed = &[("Hostname", "h"), ("InternalIP", "10.1.1.1")][..];
    for (name, before, after) in [
        ("nil to 2", json!(null), list(one)),
        ("empty to 2", json!([]), list(one)),
        ("2 to nil", list(one), json!(null)),
        ("2 to empty", list(one), json!([])),
        ("4, unchanged", list(four), list(four)),
        ("1 to 2 InternalIP", list(one), list(two)),
        ("2 to 1 InternalIP", list(two), list(one)),
        ("2 to 2 different", list(one), list(other)),
        ("2 to reversed order", list(one), list(reversed)),
    ] {
        let node = |addresses: &Value| match addresses {
            Value::Null => json!({"status": {}}),
            _ => json!({"status": {"addresses": addresses}}),
        };
        let (before, after) = (node(&before), node(&after));
        let patch = patch::diff(&before, &after);
        assert_eq!(patch.is_none(), before == after, "{name}");
        let got = patch.map_or(before.clone(), |patch| apply(before, &patch));
        assert_eq!(got, after, "{name}");
    }
}

/// A Node that has been reported at the start, after a change or not; the number
/// spreads the next report.
fn reported(changed: bool, random: u32) -> Talk {
    let mut talk = Talk::registered();
    talk.node
        .report_later(&talk.config, changed, Mono::START, random);
    talk.node.state = State::Known {
        round: Round::default(),
        just_read: false,
    };
    talk
}

#[test]
fn test_is_update_status_period_expired() {
    let minute = SECOND * 60;
    // The period of 5 minutes is cut to 3 by 100 of 1000, stretched to 6 by 700.
    for (name, talk, after, want) in [
        (
            "never, no delay",
            Talk::new(flags(&["--register-node=false"])),
            0,
            true,
        ),
        (
            "never, delay",
            Talk::new(flags(&["--register-node=false"])),
            1,
            true,
        ),
        ("4 m ago, no delay", reported(false, 0), 4, false),
        ("5 m ago, 1 m of delay", reported(true, 700), 5, false),
        ("4 m ago, 2 m early", reported(true, 100), 4, true),
        ("exactly 5 m ago", reported(false, 0), 5, true),
    ] {
        let at = Mono::START.after(minute * after);
        assert_eq!(talk.node.must_read(&talk.config, at), want, "{name}");
    }
}

/// A half to one and a half periods, the bounds included.
#[test]
fn test_calculate_delay() {
    let mut delays = Vec::new();
    for random in 0..=1000 {
        delays.push(reported(true, random).node.report_due.since(Mono::START));
    }
    assert_eq!(delays.first(), Some(&(SECOND * 150)));
    assert_eq!(delays.last(), Some(&(SECOND * 450)));
    assert!(delays.is_sorted());
}
