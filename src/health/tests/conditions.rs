//! The life of a condition on the Node: listing, ownership, transition times.

use super::*;
use crate::kube::facts::HealthCondition;
use crate::node::conditions;
use serde_json::json;

const ALARM: &str = "sys/class/hwmon/hwmon1/in0_lcrit_alarm";

/// The agent and the server's list.
struct Cluster {
    tree: Tree,
    clock: FakeClock,
    health: Health,
    list: Vec<Value>,
    /// This process has written it.
    is_ours: bool,
    events: Vec<Event>,
    seconds: u64,
}

impl Cluster {
    fn new(detection: &str) -> Self {
        let tree = Tree::new("health-conditions");
        tree.write("sys/class/hwmon/hwmon1/name", b"rpi_volt");
        tree.write(ALARM, b"0");
        let clock = FakeClock::default();
        Self {
            health: health(&tree, detection, &[], &clock),
            tree,
            clock,
            list: vec![json!({"type": "Ready", "status": "True"})],
            is_ours: false,
            events: Vec::new(),
            seconds: 0,
        }
    }

    /// UnderVoltage is True.
    fn with_problem() -> Self {
        let mut cluster = Self::new("problems");
        cluster.alarm(true);
        cluster.report();
        cluster
    }

    fn look(&mut self) {
        self.clock.show(self.seconds);
        self.health.look();
    }

    /// Another process of this program, with the same Node.
    fn restart(&mut self, detection: &str) {
        self.tree.write(ALARM, b"0");
        self.starts(detection);
        self.look();
        self.report();
    }

    fn starts(&mut self, detection: &str) {
        self.health = health(&self.tree, detection, &[], &self.clock);
        self.is_ours = false;
    }

    fn reads(&mut self) {
        self.health.on_node(&self.list, Some(""), self.is_ours);
    }

    /// As [`Self::alarm`], after a pause of so many seconds.
    fn alarm_after(&mut self, seconds: u64, is_on: bool) {
        self.seconds += seconds;
        self.alarm(is_on);
    }

    /// Four looks, one a minute.
    fn alarm(&mut self, is_on: bool) {
        self.tree.write(ALARM, if is_on { b"1" } else { b"0" });
        for _ in 0..4 {
            self.seconds += 60;
            self.reads();
            self.look();
        }
    }

    /// Whether a problem begins or ends, so that the Node is written at once.
    fn is_urgent(&mut self) -> bool {
        self.reads();
        self.health.conditions().changes_status(&self.list)
    }

    fn report(&mut self) {
        self.reads();
        let (found, before) = (self.health.conditions(), self.list.clone());
        let now = at(self.seconds).wall;
        found.apply(&mut self.list, now);
        conditions::set_heartbeat_times(&mut self.list, |name| found.knows(name), &now.time());
        self.events.extend(found.events(&before, &self.list));
        self.is_ours = true;
    }

    fn find(&self, kind: &str) -> Option<&Value> {
        self.list.iter().find(|c| c["type"] == kind)
    }

    fn status(&self) -> &str {
        self.find("UnderVoltage").map_or("absent", |c| c["status"].as_str().unwrap())
    }

    /// The status after a report.
    fn reported(&mut self) -> &str {
        self.report();
        self.status()
    }

    fn take_events(&mut self) -> Vec<&'static str> {
        reasons(std::mem::take(&mut self.events))
    }
}

#[test]
fn a_type_is_listed_from_its_first_true_until_24_hours_of_false() {
    let mut cluster = Cluster::new("problems");
    cluster.alarm(false);
    cluster.report();
    assert_eq!(cluster.list.len(), 1, "a healthy board lists nothing");
    assert!(!cluster.is_urgent(), "and sends nothing more");
    cluster.alarm(true);
    assert!(cluster.is_urgent(), "at once");
    assert_eq!(cluster.reported(), "True");
    cluster.list.retain(|c| c["type"] == "Ready");
    assert!(cluster.is_urgent(), "a deleted condition is written again");
    assert_eq!(cluster.reported(), "True");
    cluster.alarm_after(3600, false);
    cluster.alarm_after(3600, false);
    assert!(cluster.is_urgent());
    assert_eq!(cluster.reported(), "False");
    let since = cluster.find("UnderVoltage").unwrap()["lastTransitionTime"].clone();
    assert_eq!(since, at(cluster.seconds).wall.time());

    cluster.seconds += 24 * 3600 - 1;
    assert_eq!(cluster.reported(), "False");
    let condition = cluster.find("UnderVoltage").unwrap();
    assert_eq!(condition["lastTransitionTime"], since);
    assert_eq!(condition["lastHeartbeatTime"], at(cluster.seconds).wall.time());
    cluster.seconds += 1;
    assert!(!cluster.is_urgent(), "not worth a patch of its own");
    assert_eq!(cluster.reported(), "absent");
    assert!(cluster.find("Ready").is_some());
    // The texts of node-problem-detector.
    let on = "Node condition UnderVoltage is now: True, reason: UnderVoltageDetected, \
              message: \"the supply voltage keeps dropping below the board's limit\"";
    let off = "Node condition UnderVoltage is now: False, reason: SupplyVoltageOK, \
               message: \"the supply voltage is sufficient\"";
    let on = Event::of_health("Warning", "UnderVoltageDetected", on);
    // The deleted condition has an event of its own.
    let want = [on.clone(), on, Event::of_health("Normal", "SupplyVoltageOK", off)];
    assert_eq!(cluster.events, want);
}

#[test]
fn all_lists_a_healthy_type() {
    let mut cluster = Cluster::new("all");
    cluster.alarm(false);
    assert!(cluster.is_urgent());
    cluster.report();
    let want = json!({
        "type": "UnderVoltage", "status": "False", "reason": "SupplyVoltageOK",
        "message": "the supply voltage is sufficient",
        "lastHeartbeatTime": at(240).wall.time(), "lastTransitionTime": at(240).wall.time(),
    });
    // Ready stays last.
    assert_eq!(cluster.list[0], want);
    assert_eq!(cluster.list.len(), 2);
    assert_eq!(cluster.take_events(), [] as [&str; 0]);
}

#[test]
fn a_worse_reason_waits_for_the_report_and_keeps_the_transition_time() {
    let kind = "FilesystemCorruptionProblem";
    let mut cluster = Cluster::new("problems");
    let table = b"1 0 179:2 / / rw - ext4 /dev/mmcblk0p2 rw\n";
    cluster.tree.write("proc/self/mountinfo", table);
    let errors = "sys/fs/ext4/mmcblk0p2/errors_count";
    cluster.tree.write(errors, b"1\n");
    cluster.look();
    cluster.report();
    let before = cluster.find(kind).unwrap().clone();
    cluster.seconds = 1000;
    cluster.tree.write(errors, b"12\n");
    cluster.look();
    assert!(!cluster.is_urgent());
    cluster.report();
    let after = cluster.find(kind).unwrap();
    assert!(after["message"].as_str().unwrap().contains("10 or more"));
    assert_eq!(after["lastTransitionTime"], before["lastTransitionTime"]);
}

#[test]
fn a_restart_keeps_an_own_true_for_the_clear_time() {
    let mut cluster = Cluster::with_problem();
    assert_eq!(cluster.take_events(), ["UnderVoltageDetected"]);
    assert!(!cluster.health.waits_for_voltage(), "it would report every few seconds");
    // Only type and reason say that a condition is ours: another release has another message.
    for message in [cluster.list[0]["message"].clone(), "of an older release".into()] {
        cluster.list[0]["message"] = message;
        let before = cluster.list.clone();
        cluster.restart("problems");
        assert_eq!(cluster.list, before);
        assert_eq!(cluster.take_events(), [] as [&str; 0]);
    }
    cluster.alarm_after(10, false);
    cluster.alarm_after(3100, false);
    assert_eq!(cluster.reported(), "True");
    cluster.alarm_after(60, false);
    assert_eq!(cluster.reported(), "False");
    // And the False stays for 24 hours from its transition, also after a restart.
    cluster.seconds += 23 * 3600;
    cluster.restart("problems");
    assert_eq!(cluster.status(), "False");
    cluster.seconds += 3600;
    cluster.restart("problems");
    assert_eq!(cluster.status(), "absent");
}

#[test]
fn a_condition_of_a_backup_stays_until_its_source_was_read() {
    let mut cluster = Cluster::with_problem();
    let backup = cluster.list.clone();
    // The process begins with a Node that has no such condition, and cannot read the source.
    cluster.list.retain(|c| c["type"] == "Ready");
    let alarm = cluster.tree.join(ALARM);
    std::fs::remove_file(&alarm).unwrap();
    std::fs::create_dir(&alarm).unwrap();
    cluster.health = health(&cluster.tree, "problems", &[], &cluster.clock);
    cluster.look();
    assert_eq!(cluster.reported(), "absent");
    cluster.list.clone_from(&backup);
    assert_eq!(cluster.reported(), "True");
    std::fs::remove_dir(&alarm).unwrap();
    cluster.alarm(false);
    assert_eq!(cluster.reported(), "False");
}

#[test]
fn own_leftovers_are_deleted_once_and_foreign_conditions_are_not() {
    for detection in ["none", "-UnderVoltage"] {
        let mut cluster = Cluster::with_problem();
        cluster.list.push(json!({"type": "Foreign", "status": "True"}));
        let left = cluster.list[0].clone();
        cluster.restart(detection);
        assert_eq!(cluster.status(), "absent", "{detection}");
        assert_eq!(cluster.list.len(), 2);
        // Who writes the type now may use the same reason.
        cluster.alarm(true);
        cluster.list.insert(0, left.clone());
        cluster.alarm(true);
        cluster.report();
        assert_eq!(cluster.list[0], left);
    }
    // Also a False.
    let mut cluster = Cluster::new("all");
    cluster.alarm(false);
    assert_eq!(cluster.reported(), "False");
    cluster.restart("-UnderVoltage");
    assert_eq!(cluster.status(), "absent");
    // The source is gone.
    let mut cluster = Cluster::with_problem();
    cluster.tree = Tree::new("health-gone");
    cluster.starts("problems");
    cluster.seconds = 0;
    for (seconds, want) in [(0, "True"), (60, "True"), (60, "absent")] {
        cluster.seconds += seconds;
        cluster.look();
        assert_eq!(cluster.reported(), want);
    }
}

/// What a process reads of a server that lags is older than what its predecessor wrote.
#[test]
fn the_last_read_before_the_first_write_is_adopted() {
    for was_true in [false, true] {
        let mut cluster = Cluster::new("problems");
        cluster.alarm(true);
        cluster.report();
        let with_true = cluster.list.clone();
        cluster.alarm(false);
        cluster.alarm_after(3600, false);
        cluster.report();
        let with_false = cluster.list.clone();
        assert_eq!([&with_true[0]["status"], &with_false[0]["status"]], ["True", "False"]);
        let (old, new) = if was_true { (with_true, with_false) } else { (with_false, with_true) };
        cluster.list = old;
        cluster.starts("problems");
        cluster.reads();
        cluster.look();
        cluster.list.clone_from(&new);
        cluster.report();
        assert_eq!(cluster.list[0]["status"], new[0]["status"]);
        assert_eq!(cluster.list[0]["lastTransitionTime"], new[0]["lastTransitionTime"]);
        assert_eq!(cluster.take_events().len(), 2, "none of the new process");
    }
}

/// node-problem-detector has the same types and reasons. Its line of exclusion is in the flags.
#[test]
fn an_excluded_condition_that_another_program_keeps_current_stays_at_each_start() {
    let mut cluster = Cluster::with_problem();
    cluster.list[0]["lastHeartbeatTime"] = at(cluster.seconds - 7).wall.time().into();
    let theirs = cluster.list[0].clone();
    for _ in 0..2 {
        cluster.seconds += 60;
        cluster.restart("-UnderVoltage");
        assert_eq!(cluster.list[0], theirs);
    }
}

fn theirs(status: &str) -> Value {
    json!({"type": "UnderVoltage", "status": status, "reason": "VoltageOK", "message": "fine",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "extra": 7})
}

#[test]
fn a_type_of_another_writer_is_ours_unless_it_is_excluded_or_has_no_source() {
    let mut cluster = Cluster::new("problems");
    let foreign = json!({"type": "KernelDeadlock", "status": "True", "reason": "DockerHung"});
    cluster.list.insert(0, foreign.clone());
    cluster.report();
    cluster.alarm(false);
    cluster.report();
    assert_eq!(cluster.list[0], foreign);

    for (detection, status, alarm, is_ours) in [
        ("none", "False", true, false),
        ("-UnderVoltage", "False", true, false),
        ("problems", "False", true, true),
        ("all", "False", true, true),
        // A problem that only the other writer sees ends at once, and so does Unknown.
        ("problems", "True", false, true),
        ("problems", "Unknown", false, true),
    ] {
        let mut cluster = Cluster::new(detection);
        cluster.list.insert(0, theirs(status));
        cluster.alarm(alarm);
        assert_eq!(cluster.is_urgent(), is_ours, "{detection} {status}");
        cluster.report();
        let reason = if alarm { "UnderVoltageDetected" } else { "SupplyVoltageOK" };
        if is_ours {
            assert_eq!(cluster.status(), if alarm { "True" } else { "False" });
            assert_eq!(cluster.list[0]["reason"], reason);
            assert_eq!(cluster.take_events(), [reason]);
        } else {
            assert_eq!(cluster.list[0], theirs(status), "byte for byte");
            assert_eq!(cluster.take_events(), [] as [&str; 0]);
        }
    }
}

fn with_file() -> Health {
    let (tree, files) = (Tree::empty("health-file"), ["Ups=/run/ups".to_owned()]);
    health(&tree, "none", &files, &FakeClock::default())
}

fn of_file(line: Option<&str>) -> HealthCondition {
    let mut health = with_file();
    health.on_files(vec![line.map_or(Presence::Absent, |line| Presence::Found(line.to_owned()))]);
    health.conditions().known.remove(0)
}

#[test]
fn the_file_of_a_node_condition_gives_status_reason_and_message() {
    for (line, reason, message) in [
        ("", "FileExists", "--node-condition: the file exists: /run/ups"),
        ("on battery", "FileExists", "on battery"),
        ("OnBattery: 20 % left", "OnBattery", "20 % left"),
        ("OnBattery:20 %", "FileExists", "OnBattery:20 %"),
        ("on battery: 20 %", "FileExists", "on battery: 20 %"),
        ("Low: ", "Low", "--node-condition: the file exists: /run/ups"),
        ("a\u{1b}[2Jb", "FileExists", "a [2Jb"),
    ] {
        let found = of_file(Some(line));
        assert!(found.is_true);
        assert_eq!((&*found.reason, &*found.message), (reason, message), "{line:?}");
        assert_eq!(found.event_reason, "FileExists");
    }
    assert_eq!(of_file(Some(&"ä".repeat(200))).message.chars().count(), 120);
    assert_eq!(of_file(Some(&format!("{}: x", "A".repeat(64)))).reason, "FileExists");
    let mut health = with_file();
    health.on_files(vec![unread()]);
    assert!(health.conditions().known.is_empty(), "what it was stays on the Node");
    let missing = of_file(None);
    assert!(!missing.is_true);
    let texts = (&*missing.reason, &*missing.message);
    assert_eq!(texts, ("FileMissing", "--node-condition: no such file: /run/ups"));
}

#[test]
fn a_node_condition_is_always_listed_and_its_text_moves_with_reports_alone() {
    let mut cluster = Cluster::new("none");
    cluster.health = with_file();
    // An earlier process wrote a text that only the file knows.
    cluster.list.insert(
        0,
        json!({"type": "Ups", "status": "True", "reason": "Low", "message": "9 %",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}),
    );
    cluster.health.on_files(vec![Presence::Found("Low: 8 %".to_owned())]);
    cluster.report();
    assert_eq!(cluster.list[0]["message"], "8 %");
    assert_eq!(cluster.list[0]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    cluster.health.on_files(vec![Presence::Found("Low: 7 %".to_owned())]);
    assert!(!cluster.is_urgent());
    // It cannot be read.
    cluster.health.on_files(vec![unread()]);
    assert!(!cluster.is_urgent());
    cluster.health.on_files(vec![Presence::Absent]);
    assert!(cluster.is_urgent());
    cluster.seconds += 48 * 3600;
    cluster.report();
    assert_eq!(cluster.list[0]["status"], "False");
    assert_eq!(cluster.take_events(), ["FileMissing"]);
}
