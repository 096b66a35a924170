use super::*;

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

fn found(status: Status) -> Found {
    Found {
        status: Ok(status),
        ..Found::failed(Failure::api(""))
    }
}

fn ready() -> Found {
    found(Status::default())
}

fn failed() -> Found {
    Found::failed(Failure::api("connection refused"))
}

fn details(version: &str, images: &[(&str, u64)]) -> Found {
    let mut all = Images::new(10);
    for (id, size_bytes) in images {
        all.push(Image {
            id: (*id).to_owned(),
            names: vec![(*id).to_owned()],
            size_bytes: *size_bytes,
        });
    }
    Found {
        version: Version::new("containerd".to_owned(), version.to_owned()),
        images: Some(all),
        image_folder: Some("/var/lib/containerd".to_owned()),
        ..ready()
    }
}

/// Begins a look if one is due; whether it asks for details.
fn details_of(runtime: &mut Runtime, second: u64) -> Option<bool> {
    runtime.begin(at(second)).map(|look| look.details)
}

const DOWN: &str = "container runtime is down";
const NOT_YET: &str = "container runtime status check may not have completed yet";

/// The lines of Ready, in order.
fn lines(runtime: &Runtime, now: Mono) -> Vec<String> {
    let facts = runtime.facts(now);
    let down = facts.down.map(str::to_owned);
    [down, facts.not_ready, facts.network]
        .into_iter()
        .flatten()
        .collect()
}

fn condition(kind: &str, status: bool) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status,
        ..Condition::default()
    }
}

fn status(conditions: &[Condition]) -> Found {
    let [runtime, network] = Condition::lines(conditions);
    found(Status {
        runtime,
        network,
        ..Status::default()
    })
}

/// kubelet_node_status_test.go TestUpdateNodeStatusWithRuntimeStateError. Each row begins with a
/// success at second 0; then a look at `second` finds something.
#[test]
fn test_update_node_status_with_runtime_state_error() {
    let both = [
        condition("RuntimeReady", true),
        condition("NetworkReady", true),
    ];
    let runtime_only = [both[0].clone(), condition("NetworkReady", false)];
    let network_only = [condition("RuntimeReady", false), both[1].clone()];
    let runtime_line = "container runtime not ready: RuntimeReady=false reason: message:";
    let network_line = "container runtime network not ready: NetworkReady=false reason: message:";
    for (name, second, look, want) in [
        ("the last check is 30 s old", 30, failed(), &[DOWN][..]),
        ("fresh", 29, failed(), &[]),
        ("both true", 30, status(&both), &[]),
        (
            "no conditions",
            30,
            status(&[]),
            &[
                DOWN,
                "container runtime not ready: <nil>",
                "container runtime network not ready: <nil>",
            ],
        ),
        (
            "RuntimeReady=false",
            10,
            status(&network_only),
            &[runtime_line],
        ),
        (
            "RuntimeReady=false, 30 s",
            30,
            status(&network_only),
            &[DOWN, runtime_line],
        ),
        (
            "NetworkReady=false",
            10,
            status(&runtime_only),
            &[network_line],
        ),
    ] {
        let mut runtime = Runtime::new(Protocol::Cri);
        runtime.on_found(status(&both), at(0));
        assert_eq!(lines(&runtime, at(0)), [""; 0]);
        runtime.on_found(look, at(second));
        assert_eq!(lines(&runtime, at(second)), want, "{name}");
    }
    // Not checked: a runtime that was not looked at again is not down by itself.
    let mut runtime = Runtime::new(Protocol::Cri);
    runtime.on_found(status(&both), at(0));
    assert_eq!(lines(&runtime, at(100)), [""; 0]);
}

#[test]
fn a_runtime_that_never_answered_has_no_status_and_no_network() {
    let mut runtime = Runtime::new(Protocol::Cri);
    let want = [NOT_YET, "network state unknown"];
    assert_eq!(lines(&runtime, at(0)), want);
    runtime.on_found(failed(), at(0));
    assert_eq!(lines(&runtime, at(100)), want);
    assert_eq!(runtime.facts(at(0)).version, None);
    assert_eq!(runtime.facts(at(0)).images, None);
    // An answer without success makes the network known.
    runtime.on_found(
        status(&[
            condition("RuntimeReady", false),
            condition("NetworkReady", true),
        ]),
        at(1),
    );
    assert_eq!(
        lines(&runtime, at(100)),
        [
            NOT_YET,
            "container runtime not ready: RuntimeReady=false reason: message:"
        ]
    );
}

/// One change when the runtime goes, and one when it returns.
#[test]
fn an_outage_is_two_changes() {
    let mut runtime = Runtime::new(Protocol::Cri);
    let mut told = Vec::new();
    for second in (0..200).step_by(10) {
        let found = match second {
            50..120 => failed(),
            _ => details("2.1.9", &[("a", 1), ("b", 2)]),
        };
        runtime.on_found(found, at(second));
        let facts = runtime.facts(at(second));
        if told.last().is_none_or(|(_, last)| *last != facts) {
            told.push((second, facts));
        }
    }
    let seconds: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
    // The last success was at 40.
    assert_eq!(seconds, [0, 70, 120]);
    let down = &told[1].1;
    assert_eq!(down.version.as_deref(), Some("containerd://Unknown"));
    assert_eq!(down.down, Some(DOWN));
    assert_eq!(down.images, told[0].1.images, "images stay");
    assert_eq!(told[0].1, told[2].1);
}

/// A status of `seconds` after the last success is computed in time, though no tick falls there.
#[test]
fn the_30_s_rule_asks_for_a_status_at_its_end() {
    let mut runtime = Runtime::new(Protocol::Cri);
    runtime.on_found(ready(), at(7));
    assert_eq!(runtime.status_due(at(7)), None);
    runtime.on_found(failed(), at(10));
    assert_eq!(runtime.status_due(at(10)), Some(at(37)));
    assert_eq!(lines(&runtime, at(36)), [""; 0]);
    assert_eq!(lines(&runtime, at(37)), [DOWN]);
    assert_eq!(runtime.status_due(at(37)), None);
}

#[test]
fn a_first_look_that_failed_is_repeated_each_second_for_two_minutes() {
    let mut runtime = Runtime::new(Protocol::Cri);
    assert_eq!(details_of(&mut runtime, 0), Some(true));
    runtime.on_found(failed(), at(0));
    assert_eq!(runtime.status_due(at(0)), Some(at(1)));
    assert_eq!(details_of(&mut runtime, 0), None);
    assert_eq!(details_of(&mut runtime, 1), Some(true));
    assert_eq!(runtime.status_due(at(119)), Some(at(120)));
    assert_eq!(runtime.status_due(at(120)), None);
}

#[test]
fn details_are_asked_for_once_a_minute_and_after_an_outage() {
    let mut runtime = Runtime::new(Protocol::Cri);
    let mut asked = Vec::new();
    for second in 0..200 {
        if let Some(with_details) = details_of(&mut runtime, second) {
            asked.push((second, with_details));
            let found = match (second, with_details) {
                (90..100, _) => failed(),
                (_, true) => details("2.1.9", &[]),
                _ => ready(),
            };
            runtime.on_found(found, at(second));
        }
    }
    let with_details: Vec<u64> = asked.iter().filter(|a| a.1).map(|a| a.0).collect();
    assert_eq!(
        with_details,
        [0, 60, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100, 161]
    );
    assert_eq!(
        asked[..4],
        [(0, true), (5, false), (10, false), (15, false)]
    );
}

#[test]
fn a_large_list_is_asked_for_every_five_minutes() {
    let mut runtime = Runtime::new(Protocol::Cri);
    let large = Found {
        list_is_large: true,
        ..details("2.1.9", &[])
    };
    assert_eq!(details_of(&mut runtime, 0), Some(true));
    runtime.on_found(large, at(0));
    assert_eq!(details_of(&mut runtime, 299), Some(false));
    assert_eq!(details_of(&mut runtime, 304), Some(true));
}

/// Each attempt would transfer up to its limit. Its failure lasts until the next attempt: without
/// a line that it ended, and another one that it began.
#[test]
fn a_list_that_is_refused_for_its_size_is_asked_for_every_five_minutes() {
    let mut runtime = Runtime::new(Protocol::Docker);
    let too_large = "/images/json: the answer is larger than 4 MiB";
    let mut asked = Vec::new();
    for second in 0..=900 {
        let Some(with_details) = details_of(&mut runtime, second) else {
            continue;
        };
        let found = match (second, with_details) {
            (900, true) => details("20.10.24", &[]),
            (_, true) => Found {
                list_is_large: true,
                errors: vec![too_large.to_owned()],
                ..ready()
            },
            _ => ready(),
        };
        if with_details {
            asked.push(second);
        }
        runtime.on_found(found, at(second));
        let why = runtime.log.last_error();
        assert_eq!(why, (second < 900).then_some(too_large), "{second}");
        assert_eq!(lines(&runtime, at(second)), [""; 0]);
    }
    assert_eq!(asked, [0, 300, 600, 900]);
}

/// Its socket is activated by systemd: a look starts a process.
#[test]
fn podman_is_looked_at_every_five_minutes_and_is_down_after_two_failures() {
    let mut runtime = Runtime::new(Protocol::Podman);
    assert_eq!(details_of(&mut runtime, 0), Some(true));
    runtime.on_found(details("5.4.2", &[]), at(0));
    assert_eq!(details_of(&mut runtime, 299), None);
    assert_eq!(details_of(&mut runtime, 300), Some(true));
    runtime.on_found(failed(), at(300));
    assert_eq!(lines(&runtime, at(300)), [""; 0]);
    assert_eq!(details_of(&mut runtime, 301), Some(true));
    runtime.on_found(failed(), at(301));
    assert_eq!(lines(&runtime, at(301)), [DOWN]);
}

/// The kubelet clears the runtime's error with the next good status, and only that one takes
/// handlers and features.
#[test]
fn a_status_that_is_not_ready_changes_no_handlers() {
    let with = |runtime: Option<&str>, name: &str, policy| {
        found(Status {
            runtime: runtime.map(str::to_owned),
            handlers: vec![Handler {
                name: name.to_owned(),
                ..Handler::default()
            }],
            supplemental_groups_policy: policy,
            ..Status::default()
        })
    };
    let mut runtime = Runtime::new(Protocol::Cri);
    runtime.on_found(with(None, "runc", Some(true)), at(0));
    runtime.on_found(with(Some("no"), "crun", Some(false)), at(1));
    let facts = runtime.facts(at(1));
    assert_eq!(facts.handlers.unwrap()[0].name, "runc");
    assert_eq!(facts.supplemental_groups_policy, Some(true));
    runtime.on_found(with(None, "crun", None), at(2));
    let facts = runtime.facts(at(2));
    assert_eq!(facts.handlers.unwrap()[0].name, "crun");
    assert_eq!(facts.supplemental_groups_policy, Some(true), "it stays");
    assert_eq!(facts.not_ready, None);
}

#[test]
fn a_failed_part_keeps_the_last_value_and_is_asked_for_again() {
    let mut runtime = Runtime::new(Protocol::Cri);
    runtime.on_found(details("2.1.9", &[("a", 1)]), at(0));
    assert_eq!(runtime.image_folder(), Some("/var/lib/containerd"));
    let partly = Found {
        errors: vec!["ListImages: rpc error".to_owned()],
        ..ready()
    };
    runtime.on_found(partly, at(60));
    let facts = runtime.facts(at(60));
    assert_eq!(facts.images.unwrap().len(), 1);
    assert_eq!(facts.version.as_deref(), Some("containerd://2.1.9"));
    assert_eq!(runtime.image_folder(), Some("/var/lib/containerd"));
    assert_eq!(details_of(&mut runtime, 66), Some(true));
}
