//! The conditions about the board's health, from the files to the list on the Node: every tree of
//! `tests/health`, and of `../shared/health-fixtures` beside the clone. `expected.json` lists each
//! condition that has a source, with every waiting time over; `history` is what the rules must
//! remember, `clock` the board's time and the server's.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nodelet::files::root::HostRoot;
use nodelet::health::config::HealthConfig;
use nodelet::health::monitor::Health;
use nodelet::kube::instant::{Mono, Now};
use nodelet::kube::time::Wall;
use nodelet::node::health::HealthCondition;
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
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/health");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/health-fixtures");
    let mut trees = Vec::new();
    for folder in [own, shared].iter().filter(|folder| folder.is_dir()) {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let found: Vec<PathBuf> =
            entries.filter(|tree| tree.join("expected.json").exists()).collect();
        assert!(found.len() >= 50, "{}: {}", folder.display(), found.len());
        trees.extend(found);
    }
    trees.sort();
    trees
}

/// Writes what an earlier look would have found.
fn write_history(root: &Path, history: &Value) {
    for (key, value) in history.as_object().into_iter().flatten() {
        let write = |path: &str, change: &dyn Fn(&str) -> String| {
            let text = fs::read_to_string(root.join(path)).unwrap();
            fs::write(root.join(path), change(&text)).unwrap();
        };
        match key.as_str() {
            "wasWritable" => write("proc/self/mountinfo", &|table| {
                let line = |line: &str| {
                    let number = line.split(' ').nth(2).unwrap();
                    let (mount, superblock) = line.split_once(" - ").unwrap();
                    let is_meant = value.as_array().unwrap().iter().any(|n| n == number);
                    let (rest, options) = superblock.rsplit_once(' ').unwrap();
                    let was = match options.strip_prefix("ro").filter(|_| is_meant) {
                        Some(more) => format!("rw{more}"),
                        None => options.to_owned(),
                    };
                    format!("{mount} - {rest} {was}\n")
                };
                table.lines().map(line).collect()
            }),
            "softlockup_count" | "rcu_stall_count" => {
                write(&format!("sys/kernel/{key}"), &|_| format!("{value}\n"));
            }
            "hung_task_detect_count" => {
                write("proc/sys/kernel/hung_task_detect_count", &|_| format!("{value}\n"));
            }
            "oom_kill" => write("proc/vmstat", &|text| {
                let line = |line: &str| match line.starts_with("oom_kill ") {
                    true => format!("oom_kill {value}\n"),
                    false => format!("{line}\n"),
                };
                text.lines().map(line).collect()
            }),
            "fanSeenTurning" => {}
            other => panic!("{other}: an unknown history"),
        }
    }
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
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
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
        copy(&tree, &root);
        // After that the table of mounts is read again, and nothing is discovered again.
        let now = shown.get();
        shown.set(Now { mono: now.mono.after(Duration::from_secs(300)), ..now });
        assert!(health.look());
        health.let_it_last(clock("serverDate"));
        let (conditions, events) = (health.conditions(), health.take_events());
        let got = listed(&conditions.known);
        if got != want {
            wrong.push(format!("{}: {got} instead of {want}", tree.display()));
        }
        for statement in &conditions.known {
            assert!(statement.message.chars().count() <= 120, "{statement:?}");
            let key = format!("{} {}", statement.name, statement.reason);
            *compared.entry(key).or_default() += 1;
        }
        // Without the events of the conditions themselves.
        let is_condition =
            |reason: &str| want.as_object().unwrap().values().any(|c| c["reason"] == reason);
        let events: Vec<Value> = events
            .iter()
            .filter(|event| !is_condition(event.reason))
            .map(|event| json!({"reason": event.reason, "type": event.kind}))
            .collect();
        let want = expected["events"].as_array().cloned().unwrap_or_default();
        if events != want {
            wrong.push(format!("{}: {events:?} instead of {want:?}", tree.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared.len() >= 17, "{compared:#?}");
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
