//! The life of a condition on the Node: listing, ownership, transition times, early patches.

use serde_json::Value;

use super::*;
use crate::core::conditions;

fn voltage(alarm: bool) -> Look {
    Look {
        voltage: Some(Ok(Voltage { alarm, dips: 0 })),
        ..Look::default()
    }
}

/// The agent and the server's list.
struct Cluster {
    problems: Problems,
    list: Vec<Value>,
    seconds: u64,
}

impl Cluster {
    fn new(detection: &str) -> Self {
        Self {
            problems: problems(detection),
            list: vec![json!({"type": "Ready", "status": "True"})],
            seconds: 0,
        }
    }

    /// Another process of this program, with the same Node.
    fn restart(&mut self, detection: &str) {
        self.problems = problems(detection);
        self.problems.on_look(&voltage(false), at(self.seconds));
        self.report();
    }

    fn alarm(&mut self, is_on: bool) {
        for _ in 0..4 {
            self.seconds += 10;
            self.problems.on_look(&voltage(is_on), at(self.seconds));
        }
    }

    /// A regular report: GET and PATCH.
    fn report(&mut self) {
        self.problems.on_read(&self.list.clone());
        self.write(true);
    }

    /// Whether there was something to write.
    fn write(&mut self, regular: bool) -> bool {
        let now = at(self.seconds);
        let before = self.list.clone();
        let listed = self.problems.publish(regular, now);
        listed.apply(&mut self.list, &now.wall.time());
        self.problems.on_written();
        before != self.list
    }

    fn find(&self, kind: &str) -> Option<&Value> {
        self.list.iter().find(|c| c["type"] == kind)
    }

    fn status(&self) -> &str {
        self.find("UnderVoltage")
            .map_or("absent", |c| c["status"].as_str().unwrap())
    }
}

#[test]
fn a_type_is_listed_from_its_first_true_until_24_hours_of_false() {
    let mut cluster = Cluster::new("problems");
    cluster.alarm(false);
    cluster.report();
    assert_eq!(cluster.status(), "absent");
    assert_eq!(cluster.list.len(), 1, "a healthy board lists nothing");
    cluster.alarm(true);
    assert!(cluster.write(false), "at once");
    assert_eq!(cluster.status(), "True");
    cluster.seconds += 3600;
    cluster.alarm(false);
    cluster.seconds += 3600;
    cluster.alarm(false);
    assert!(cluster.write(false));
    assert_eq!(cluster.status(), "False");
    let since = cluster.find("UnderVoltage").unwrap()["lastTransitionTime"].clone();
    assert_eq!(since, at(cluster.seconds).wall.time());

    cluster.seconds += 24 * 3600 - 1;
    cluster.report();
    assert_eq!(cluster.status(), "False");
    assert_eq!(
        cluster.find("UnderVoltage").unwrap()["lastTransitionTime"],
        since
    );
    cluster.seconds += 1;
    assert!(!cluster.write(false), "not worth a patch of its own");
    cluster.report();
    assert_eq!(cluster.status(), "absent");
    assert!(cluster.find("Ready").is_some());
}

#[test]
fn the_modes_list_all_or_none() {
    let mut cluster = Cluster::new("all");
    cluster.alarm(false);
    cluster.report();
    let want = json!({
        "type": "UnderVoltage", "status": "False", "reason": "SupplyVoltageOK",
        "message": "the supply voltage is sufficient",
        "lastHeartbeatTime": at(40).wall.time(), "lastTransitionTime": at(40).wall.time(),
    });
    // Ready stays last.
    assert_eq!(cluster.list[0], want);
    assert_eq!(cluster.list.len(), 2);
    assert_eq!(reasons(cluster.problems.take_events()), [] as [&str; 0]);

    let mut cluster = Cluster::new("-UnderVoltage");
    cluster.alarm(true);
    cluster.report();
    assert_eq!(cluster.status(), "absent");
}

#[test]
fn a_changed_status_has_one_early_patch_a_minute() {
    let mut cluster = Cluster::new("problems");
    cluster.report();
    cluster.alarm(true);
    assert!(cluster.write(false));
    let oops = Look {
        kernel: Some(Ok(Kernel {
            oopses: 1,
            ..Kernel::default()
        })),
        ..voltage(true)
    };
    cluster.seconds += 59;
    cluster.problems.on_look(&oops, at(cluster.seconds));
    assert!(!cluster.write(false), "59 s after the last one");
    cluster.seconds += 1;
    assert!(cluster.write(false));
    assert!(cluster.find("KernelDeadlock").is_some());
    assert_eq!(
        reasons(cluster.problems.take_events()),
        ["UnderVoltageDetected", "KernelOops"]
    );
}

#[test]
fn a_worse_reason_waits_for_the_report_and_keeps_the_transition_time() {
    let ext4 = |count| Look {
        filesystems: Some(Ok(vec![Filesystem {
            device: "mmcblk0p2".to_owned(),
            fs_type: "ext4".to_owned(),
            point: "/".to_owned(),
            ext4: Some(Ok(Ext4Errors {
                count,
                ..Ext4Errors::default()
            })),
            ..Filesystem::default()
        }])),
        ..Look::default()
    };
    let kind = "FilesystemCorruptionProblem";
    let mut cluster = Cluster::new("problems");
    cluster.problems.on_look(&ext4(1), at(0));
    cluster.report();
    let before = cluster.find(kind).unwrap().clone();
    cluster.seconds = 1000;
    cluster.problems.on_look(&ext4(12), at(1000));
    assert!(!cluster.write(false));
    cluster.report();
    let after = cluster.find(kind).unwrap();
    assert!(after["message"].as_str().unwrap().contains("10 or more"));
    assert_eq!(after["lastTransitionTime"], before["lastTransitionTime"]);
}

#[test]
fn the_event_of_a_change_has_the_text_of_node_problem_detector() {
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    cluster.seconds += 3600;
    cluster.alarm(false);
    cluster.seconds += 3600;
    cluster.alarm(false);
    cluster.report();
    assert_eq!(
        cluster.problems.take_events(),
        [
            Event {
                kind: "Warning",
                reason: "UnderVoltageDetected",
                message: "Node condition UnderVoltage is now: True, reason: UnderVoltageDetected, \
                          message: \"the supply voltage keeps dropping below the board's limit\""
                    .to_owned(),
            },
            Event {
                kind: "Normal",
                reason: "SupplyVoltageOK",
                message: "Node condition UnderVoltage is now: False, reason: SupplyVoltageOK, \
                          message: \"the supply voltage is sufficient\""
                    .to_owned(),
            },
        ]
    );
}

#[test]
fn a_restart_keeps_an_own_true_for_the_clear_time() {
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    let before = cluster.list.clone();
    cluster.restart("problems");
    assert_eq!(cluster.list, before);
    assert_eq!(reasons(cluster.problems.take_events()), [] as [&str; 0]);
    // Also if the first request is a create, which the server refuses because the Node exists.
    cluster.problems = problems("problems");
    cluster.alarm(true);
    cluster.problems.publish(true, at(cluster.seconds));
    cluster.report();
    assert_eq!(reasons(cluster.problems.take_events()), [] as [&str; 0]);
    cluster.restart("problems");
    cluster.seconds += 10;
    cluster.alarm(false);
    cluster.seconds += 3500;
    cluster.alarm(false);
    cluster.report();
    assert_eq!(cluster.status(), "True");
    cluster.seconds += 60;
    cluster.alarm(false);
    cluster.report();
    assert_eq!(cluster.status(), "False");
    // And the False stays for 24 hours from its transition, also after a restart.
    cluster.seconds += 23 * 3600;
    cluster.restart("problems");
    assert_eq!(cluster.status(), "False");
    cluster.seconds += 3600;
    cluster.restart("problems");
    assert_eq!(cluster.status(), "absent");
}

#[test]
fn own_leftovers_are_deleted_and_foreign_conditions_are_not() {
    for detection in ["none", "-UnderVoltage"] {
        let mut cluster = Cluster::new("problems");
        cluster.alarm(true);
        cluster.report();
        cluster
            .list
            .push(json!({"type": "Foreign", "status": "True"}));
        cluster.restart(detection);
        assert_eq!(cluster.status(), "absent", "{detection}");
        assert_eq!(cluster.list.len(), 2);
    }
    // The source is gone.
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    cluster.problems = problems("problems");
    cluster
        .problems
        .on_look(&Look::default(), at(cluster.seconds));
    cluster.report();
    cluster
        .problems
        .on_look(&Look::default(), at(cluster.seconds + 60));
    cluster.report();
    assert_eq!(cluster.status(), "absent");
}

fn theirs() -> Value {
    json!({"type": "UnderVoltage", "status": "False", "reason": "VoltageOK", "message": "fine",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "extra": 7})
}

#[test]
fn a_type_of_another_writer_is_ceded_byte_for_byte() {
    for detection in ["problems", "all", "none"] {
        let mut cluster = Cluster::new(detection);
        cluster.list.insert(0, theirs());
        cluster.alarm(true);
        cluster.report();
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.list[0], theirs());
        assert_eq!(reasons(cluster.problems.take_events()), [] as [&str; 0]);
        // Until the restart, even if it is deleted.
        cluster.list.remove(0);
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.status(), "absent");
    }
    // Its dips have no events either.
    let mut cluster = Cluster::new("problems");
    cluster.list.insert(0, theirs());
    cluster.report();
    let dip = Look {
        voltage: Some(Ok(Voltage {
            alarm: false,
            dips: 1,
        })),
        ..Look::default()
    };
    cluster.problems.on_look(&dip, at(10));
    assert_eq!(reasons(cluster.problems.take_events()), [] as [&str; 0]);
}

#[test]
fn a_writer_that_comes_later_gets_the_type() {
    for key in ["status", "reason", "message"] {
        let mut cluster = Cluster::new("problems");
        cluster.alarm(true);
        cluster.report();
        let ours = cluster
            .list
            .iter_mut()
            .find(|c| c["type"] == "UnderVoltage")
            .unwrap();
        ours[key] = "False".into();
        let theirs = ours.clone();
        cluster.report();
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.find("UnderVoltage"), Some(&theirs), "{key}");
    }
    // Before this process wrote its own.
    let mut cluster = Cluster::new("problems");
    cluster.alarm(false);
    cluster.report();
    cluster.list.insert(0, theirs());
    cluster.report();
    cluster.alarm(true);
    cluster.report();
    assert_eq!(cluster.find("UnderVoltage"), Some(&theirs()));
    // Status Unknown is never ours.
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    let ours = cluster
        .list
        .iter_mut()
        .find(|c| c["type"] == "UnderVoltage")
        .unwrap();
    ours["status"] = "Unknown".into();
    cluster.restart("none");
    assert_eq!(cluster.status(), "Unknown");
}

#[test]
fn a_deleted_condition_is_written_once_more() {
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    for want in ["True", "absent"] {
        cluster.list.retain(|c| c["type"] == "Ready");
        cluster.report();
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.status(), want);
    }
    // A Node that was created again lacks it; that is no deletion.
    let mut cluster = Cluster::new("problems");
    cluster.alarm(true);
    cluster.report();
    for _ in 0..3 {
        cluster.list.retain(|c| c["type"] == "Ready");
        cluster.problems.on_gone();
        cluster.report();
        assert_eq!(cluster.status(), "True");
    }
}

/// Conflicts and lost responses: the server has the last or the one before.
#[test]
fn a_patch_that_may_have_been_applied_is_not_another_writer() {
    for is_applied in [false, true] {
        let mut cluster = Cluster::new("problems");
        cluster.alarm(true);
        cluster.report();
        cluster.seconds += 3600;
        cluster.alarm(false);
        cluster.seconds += 3600;
        cluster.alarm(false);
        // Sent without a response, three times.
        for _ in 0..3 {
            let now = at(cluster.seconds);
            let listed = cluster.problems.publish(true, now);
            if is_applied {
                listed.apply(&mut cluster.list, &now.wall.time());
            }
            cluster.problems.on_read(&cluster.list.clone());
        }
        cluster.report();
        assert_eq!(cluster.status(), "False", "{is_applied}");
        let events = ["UnderVoltageDetected", "SupplyVoltageOK"];
        assert_eq!(
            reasons(cluster.problems.take_events()),
            events,
            "{is_applied}"
        );
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.status(), "True", "it is still ours: {is_applied}");
    }
    // The first patch gets five conflicts: the condition is absent, and not deleted by anyone.
    let mut cluster = Cluster::new("problems");
    cluster.report();
    cluster.alarm(true);
    for _ in 0..5 {
        cluster.problems.publish(false, at(cluster.seconds));
        cluster.problems.on_read(&cluster.list.clone());
    }
    assert!(cluster.write(false));
    assert_eq!(cluster.status(), "True");
}

#[test]
fn a_heartbeat_is_set_for_our_types_alone() {
    let mut cluster = Cluster::new("problems");
    cluster.list.insert(
        0,
        json!({"type": "NTPProblem", "status": "False", "reason": "NTPIsUp"}),
    );
    cluster.alarm(true);
    cluster.report();
    let foreign = cluster.list[0].clone();
    let listed = cluster.problems.publish(true, at(cluster.seconds));
    conditions::heartbeat(&mut cluster.list, |name| listed.sets(name), "later");
    assert_eq!(cluster.list[0], foreign);
    assert_eq!(
        cluster.find("UnderVoltage").unwrap()["lastHeartbeatTime"],
        "later"
    );
    assert!(!listed.sets("Ready"));
}

#[test]
fn the_file_of_a_node_condition_gives_status_reason_and_message() {
    for (line, reason, message) in [
        ("", "FileExists", "the file exists"),
        ("on battery", "FileExists", "on battery"),
        ("OnBattery: 20 % left", "OnBattery", "20 % left"),
        ("OnBattery:20 %", "FileExists", "OnBattery:20 %"),
        ("on battery: 20 %", "FileExists", "on battery: 20 %"),
        ("Low: ", "Low", "the file exists"),
        ("a\u{1b}[2Jb", "FileExists", "a [2Jb"),
    ] {
        let want = (true, reason, message.to_owned());
        assert_eq!(of_file(Some(line)), want, "{line:?}");
    }
    assert_eq!(of_file(Some(&"ä".repeat(200))).2.chars().count(), 120);
    assert_eq!(
        of_file(Some(&format!("{}: x", "A".repeat(64)))).1,
        "FileExists"
    );
    let missing = "the file does not exist".to_owned();
    assert_eq!(of_file(None), (false, "FileMissing", missing));
}

#[test]
fn a_node_condition_is_always_listed_and_its_text_moves_with_reports_alone() {
    let config = Config::parse("none", &["Ups=/run/ups".to_owned()]).unwrap();
    let mut cluster = Cluster::new("none");
    cluster.problems = Problems::new(&config, Wall::default());
    // An earlier process wrote a text that only the file knows.
    cluster.list.insert(
        0,
        json!({"type": "Ups", "status": "True", "reason": "Low", "message": "9 %",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    cluster.problems.on_files(&[Some("Low: 8 %".to_owned())]);
    cluster.report();
    assert_eq!(cluster.list[0]["message"], "8 %");
    assert_eq!(
        cluster.list[0]["lastTransitionTime"],
        "2026-01-01T00:00:00Z"
    );
    cluster.problems.on_files(&[Some("Low: 7 %".to_owned())]);
    assert!(!cluster.write(false));
    cluster.problems.on_files(&[None]);
    assert!(cluster.write(false));
    assert_eq!(cluster.list[0]["status"], "False");
    assert_eq!(reasons(cluster.problems.take_events()), ["FileMissing"]);
    // Another writer is ceded to, as for the other types.
    cluster.list[0]["message"] = "mine".into();
    cluster.report();
    cluster.problems.on_files(&[Some(String::new())]);
    cluster.report();
    assert_eq!(cluster.list[0]["message"], "mine");
}
