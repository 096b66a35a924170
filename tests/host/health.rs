//! The conditions about the board's health, from the files to the list on the Node: every tree of
//! `tests/health`. `expected.json` lists each condition that has a source, with every waiting time
//! over. `clock` is the board's time and the server's. `history` is what a look 300 s earlier found
//! instead: `wasWritable` has device numbers, and each other member is the path of a file, with its
//! number, or with the numbers of some of its lines: `{"proc/vmstat": {"oom_kill": 5}}`.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nodelet::health::KINDS;
use nodelet::health::config::HealthConfig;
use nodelet::health::monitor::Health;
use nodelet::kube::facts::HealthCondition;
use nodelet::kube::instant::{Mono, Now};
use nodelet::kube::time::Wall;
use nodelet::os::root::HostRoot;
use serde_json::{Value, json};
use support::Folder;

use crate::common::tree::{copy, files};

/// Stands for the time of the build: 2025-01-01.
const BUILT: u64 = 1_735_689_600;
/// Conditions that nodelet does not have.
const LEFT_OUT: [&str; 2] = ["FanStopped", "OnBattery"];

fn wall(seconds: u64) -> Wall {
    Wall::from_epoch(Duration::from_secs(seconds))
}

fn all() -> HealthConfig {
    HealthConfig::parse("all", &[]).unwrap()
}

/// The health of the board whose files are below `root`, and what its clock shows.
fn health(root: &Path, wall: Wall) -> (Health, Rc<Cell<Now>>) {
    let (root, root_dir) = (HostRoot::new(root), Path::new("/var/lib/nodelet"));
    let shown = Rc::new(Cell::new(Now { mono: Mono::START, wall }));
    let clock = Rc::clone(&shown);
    (Health::new(&root, root_dir, &all(), self::wall(BUILT), move || clock.get()), shown)
}

fn trees() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/health");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut trees: Vec<PathBuf> =
        entries.filter(|tree| tree.join("expected.json").exists()).collect();
    assert!(trees.len() >= 50, "{}", trees.len());
    trees.sort();
    trees
}

/// Writes what an earlier look would have found.
fn write_history(root: &Path, history: &Value) {
    for (key, value) in history.as_object().into_iter().flatten() {
        let path = root.join(if key == "wasWritable" { "proc/self/mountinfo" } else { key });
        let text = fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("history {key}: {error}; the header of this file says what a history has")
        });
        let was = match value {
            Value::Array(numbers) => text.lines().map(|line| writable(line, numbers)).collect(),
            Value::Object(counters) => {
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                for (name, number) in counters {
                    let start = format!("{name} ");
                    let line = lines.iter_mut().find(|line| line.starts_with(&start));
                    *line.unwrap_or_else(|| panic!("{key}: no line {name}")) =
                        format!("{name} {number}");
                }
                lines.iter().map(|line| format!("{line}\n")).collect()
            }
            number => format!("{number}\n"),
        };
        fs::write(&path, was).unwrap();
    }
}

/// A line of `mountinfo`, with the superblock writable if its device is one of `numbers`.
fn writable(line: &str, numbers: &[Value]) -> String {
    let number = line.split(' ').nth(2).unwrap();
    let (mount, superblock) = line.split_once(" - ").unwrap();
    let (rest, options) = superblock.rsplit_once(' ').unwrap();
    let is_meant = numbers.iter().any(|meant| meant == number);
    let was = match options.strip_prefix("ro").filter(|_| is_meant) {
        Some(more) => format!("rw{more}"),
        None => options.to_owned(),
    };
    format!("{mount} - {rest} {was}\n")
}

fn listed(statements: &[HealthCondition]) -> Value {
    let condition = |s: &HealthCondition| {
        let status = if s.is_true { "True" } else { "False" };
        (s.name.to_string(), json!({"status": status, "reason": *s.reason}))
    };
    statements.iter().map(condition).collect()
}

#[test]
fn every_tree_has_its_conditions_and_events() {
    let mut wrong = Vec::new();
    let mut compared = BTreeSet::new();
    for tree in trees() {
        let text = fs::read_to_string(tree.join("expected.json")).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        let mut want = expected["conditions"].clone();
        for left_out in LEFT_OUT {
            want.as_object_mut().unwrap().remove(left_out);
        }
        let folder = Folder::new("health");
        let root = folder.path().join("root");
        copy(&tree, &root);
        write_history(&root, &expected["history"]);
        let clock = |name: &str| expected["clock"][name].as_u64().map(wall);
        let (mut health, shown) = health(&root, clock("wall").unwrap_or(wall(1_783_000_000)));
        assert!(health.look());
        // No earlier process wrote the Node.
        health.on_node(&[], Some(""), false);
        copy(&tree, &root);
        // After that the table of mounts is read again, and nothing is discovered again.
        let now = shown.get();
        shown.set(Now { mono: now.mono.after(Duration::from_secs(300)), ..now });
        assert!(health.look());
        health.let_it_last(clock("serverDate"));
        let (conditions, signs) = (health.conditions(), health.take_signs());
        let got = listed(&conditions.known);
        if got != want {
            wrong.push(format!("{}: {got} instead of {want}", tree.display()));
        }
        for statement in &conditions.known {
            assert!(statement.message.chars().count() <= 120, "{statement:?}");
            let reason = statement.reason.to_string();
            let status = if statement.is_true { "True" } else { "False" };
            compared.insert((statement.name.to_string(), status, reason));
        }
        // Without the events of the conditions themselves.
        let is_condition =
            |reason: &str| want.as_object().unwrap().values().any(|c| c["reason"] == reason);
        let events: Vec<Value> = signs
            .iter()
            .filter(|(reason, _)| !is_condition(reason))
            .map(|(reason, _)| json!({"reason": reason, "type": "Warning"}))
            .collect();
        let want = expected["events"].as_array().cloned().unwrap_or_default();
        if events != want {
            wrong.push(format!("{}: {events:?} instead of {want:?}", tree.display()));
        }
    }
    let hint = "src/README.md, \"A condition about the board's health\", says how a rule is asked";
    assert!(wrong.is_empty(), "{}\n{hint}", wrong.join("\n"));
    for (kind, status) in KINDS.iter().flat_map(|kind| [(kind.name, "True"), (kind.name, "False")])
    {
        let has_one = compared.iter().any(|(name, is, _)| name == kind && *is == status);
        assert!(has_one, "{kind}: no tree of tests/health has it {status}");
    }
    assert!(compared.len() >= 18, "{compared:#?}");
}

/// Whatever a file holds, a look ends and no rule panics; a missing file is no problem.
#[test]
fn no_file_with_garbage_or_cut_short_ends_a_look() {
    for tree in trees().into_iter().step_by(3) {
        let folder = Folder::new("garbage");
        let root = folder.path().join("root");
        copy(&tree, &root);
        for file in files(&root) {
            let text = fs::read(&file).unwrap();
            for bytes in [
                &b""[..],
                b"-1\n",
                b"99999999999999999999999\n",
                b"\xff\0\n",
                b"N/A\n",
                &text[..text.len() / 2],
            ] {
                fs::write(&file, bytes).unwrap();
                let (mut health, _) = health(&root, wall(1_783_000_000));
                let conditions = health.if_it_lasted();
                let json = listed(&conditions.known).to_string();
                assert!(json.len() < 4096, "{json}");
            }
            fs::write(&file, text).unwrap();
        }
    }
}
