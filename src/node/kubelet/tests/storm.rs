//! Long runs in virtual time against the server of [`super`]: writes of other clients, and an
//! hour of faults.

use std::cell::RefCell;
use std::sync::Once;

use super::*;
use crate::node::patch;
use crate::node::schedule::tests::Random;
use crate::node::status;

impl Random {
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(u64::try_from(all.len()).unwrap());
        all[usize::try_from(index).unwrap()]
    }
}

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Collects this thread's log lines.
struct Collector;

impl log::Log for Collector {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }
    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && crate::sim::hook::log(record).is_none() {
            println!("{}", record.args());
            LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
        }
    }
    fn flush(&self) {}
}

/// Starts to collect the log lines of this thread.
pub(crate) fn collect_lines() {
    static LOGGER: Once = Once::new();
    LOGGER.call_once(|| {
        log::set_logger(&Collector).unwrap();
        log::set_max_level(log::LevelFilter::Info);
    });
    LINES.take();
}

/// The lines since the last call, or since [`collect_lines`].
pub(crate) fn take_lines() -> Vec<String> {
    LINES.take()
}

/// What other clients have written to the Node, and must still be there.
#[derive(Debug, Default, PartialEq)]
struct Foreign {
    labels: Value,
    annotations: Value,
    taints: Vec<Value>,
    unschedulable: bool,
    conditions: Vec<Value>,
    /// Members that this crate does not know.
    unknown: Value,
}

impl Foreign {
    fn none() -> Self {
        Self { labels: json!({}), annotations: json!({}), unknown: json!({}), ..Self::default() }
    }

    /// The parts of a Node that other clients wrote.
    fn of(node: &Value) -> Self {
        let theirs = |path: &[&str]| {
            let members = object::at(node, path).and_then(Value::as_object);
            let members = members.into_iter().flatten();
            let theirs = members.filter(|(key, _)| key.starts_with("their"));
            Value::Object(theirs.map(|(k, v)| (k.clone(), v.clone())).collect())
        };
        let conditions = object::list(node, &["status", "conditions"]).iter();
        let foreign = |c: &&Value| object::text(c, &["type"]).starts_with("Their");
        Self {
            labels: theirs(&["metadata", "labels"]),
            annotations: theirs(&["metadata", "annotations"]),
            taints: their_taints(node),
            unschedulable: object::at(node, &["spec", "unschedulable"]) == Some(&json!(true)),
            conditions: conditions.filter(foreign).cloned().collect(),
            unknown: theirs(&["status"]),
        }
    }
}

/// The taints of other clients. A board without room for pods has a taint of its own.
fn their_taints(node: &Value) -> Vec<Value> {
    let taints = object::list(node, &["spec", "taints"]).iter();
    let theirs = taints.filter(|t| object::text(t, &["key"]).starts_with("their"));
    theirs.cloned().collect()
}

/// One operation of another client, on the Node and in `foreign`.
fn operate(server: &mut Objects, foreign: &mut Foreign, random: &mut Random, serial: u64) {
    let choice = random.below(24);
    if choice == 0 {
        server.node = None;
        *foreign = Foreign::none();
        // The garbage collector may not have run yet.
        if random.below(2) == 0 {
            server.lease = None;
        }
        return;
    }
    if choice == 1 {
        server.lease = None;
        return;
    }
    let Some(mut node) = server.node.take() else {
        return;
    };
    let key = random.one_of(&["theirs/a", "theirs/b", "theirs/c"]);
    let value = json!(serial.to_string());
    let map = random.one_of(&["labels", "annotations"]);
    match choice {
        2 => {
            object::members(&mut node, &[]).insert("status".into(), json!({}));
            (foreign.conditions, foreign.unknown) = (Vec::new(), json!({}));
        }
        3 => {
            // A label that every sync repairs.
            let labels = object::members(&mut node, &["metadata", "labels"]);
            match random.below(2) {
                0 => labels.remove("kubernetes.io/os"),
                _ => labels.insert("kubernetes.io/arch".into(), "z80".into()),
            };
        }
        4 => {
            // As node-lifecycle-controller does after the grace period.
            for condition in object::elements(&mut node, &["status", "conditions"]) {
                if !object::text(condition, &["type"]).starts_with("Their") {
                    object::members(condition, &[]).insert("status".into(), "Unknown".into());
                }
            }
        }
        5 => {
            let capacity = object::members(&mut node, &["status", "capacity"]);
            capacity.insert("memory".into(), value);
        }
        6 | 7 => {
            let spec = object::members(&mut node, &["spec"]);
            foreign.unschedulable = !foreign.unschedulable;
            if foreign.unschedulable {
                spec.insert("unschedulable".into(), true.into())
            } else {
                spec.remove("unschedulable")
            };
        }
        8..=11 => {
            let theirs = match map {
                "labels" => &mut foreign.labels,
                _ => &mut foreign.annotations,
            };
            for members in
                [object::members(&mut node, &["metadata", map]), object::members(theirs, &[])]
            {
                match choice {
                    8 => members.remove(key),
                    _ => members.insert(key.into(), value.clone()),
                };
            }
        }
        12..=15 => {
            let taint = json!({"key": key, "effect": "NoSchedule", "value": value});
            let taints = object::elements(&mut node, &["spec", "taints"]);
            taints.retain(|t| object::text(t, &["key"]) != key);
            if choice < 15 {
                taints.push(taint);
            }
            foreign.taints = their_taints(&node);
        }
        16 | 17 => {
            let key = key.replace('/', "-");
            for members in [
                object::members(&mut node, &["status"]),
                object::members(&mut foreign.unknown, &[]),
            ] {
                members.insert(key.clone(), json!({"deep": [value.clone(), null]}));
            }
        }
        _ => {
            let kind = random.one_of(&["TheirNetwork", "TheirDisk", "TheirKernel"]);
            let conditions = object::elements(&mut node, &["status", "conditions"]);
            let condition = json!({"type": kind, "status": "True", "message": value, "odd": [1]});
            let found = conditions.iter().position(|c| c["type"] == kind);
            match (found, choice) {
                (Some(index), 18) => {
                    conditions.remove(index);
                }
                (Some(index), _) => conditions[index] = condition,
                (None, 18) => {}
                // At a random position: the order has no meaning.
                (None, _) => {
                    let end = u64::try_from(conditions.len()).unwrap() + 1;
                    conditions.insert(usize::try_from(random.below(end)).unwrap(), condition);
                }
            }
            let theirs = conditions.iter();
            let theirs = theirs.filter(|c| object::text(c, &["type"]).starts_with("Their"));
            foreign.conditions = theirs.cloned().collect();
        }
    }
    server.node = Some(server.store(node, false));
}

/// The cached Node is stale in most turns, because operations fall between our requests.
#[test]
fn after_10000_operations_of_other_clients_the_node_is_ready_and_their_data_remains() {
    const OPERATIONS: u64 = 10_000;
    const BATCH: u64 = 50;
    let mut random = Random(0x5EED);
    let mut world = settled();
    let mut foreign = Foreign::none();
    let mut serial = 0;
    while serial < OPERATIONS {
        for _ in 0..BATCH {
            serial += 1;
            operate(&mut world.cluster["pi"], &mut foreign, &mut random, serial);
            for _ in 0..random.below(4) {
                let takes = u32::try_from(random.below(200)).unwrap();
                let step = in_time(&world);
                world.turn(&Step { takes, ..step }).unwrap();
            }
        }
        run_until_next_report(&mut world);
        let node = world.cluster["pi"].node.clone().unwrap();
        let when = format!("after {serial} operations");
        assert_eq!(Foreign::of(&node), foreign, "{when}");
        assert_owned(&world, &node, &when);
    }
}

/// Runs with a correct server until the next report, which finds every foreign change.
fn run_until_next_report(world: &mut World) {
    let config = Config::of(&[]);
    let until = world.now.after(config.report_frequency * 3 / 2 + LAW.renew_interval() * 3);
    while world.now < until {
        world.cluster["pi"].collect_garbage();
        let step = in_time(world);
        world.turn(&step).unwrap();
    }
}

/// Asserts that the parts of the Node that we own follow from the facts.
fn assert_owned(world: &World, node: &Value, when: &str) {
    let (config, facts) = (Config::of(&[]), Facts::example());
    let now = Wall::from_epoch(Duration::from_secs(correct().wall));
    let none = crate::node::eviction::Pressures::default();
    let want = status::desired(&config, &facts, none, node, now).node;
    assert_eq!(patch::diff(node, &want), None, "{when}: it differs from the desired Node");
    // A new Node would have the same values.
    let new = status::initial(&config, &facts, none, now).node;
    for part in ["capacity", "allocatable", "addresses", "nodeInfo", "daemonEndpoints"] {
        assert_eq!(node["status"][part], new["status"][part], "{when}");
    }
    let ours = |node: &Value| -> Vec<[String; 4]> {
        let conditions = object::list(node, &["status", "conditions"]).iter();
        let ours = conditions.filter(|c| !object::text(c, &["type"]).starts_with("Their"));
        let texts = ours.map(|c| {
            ["type", "status", "reason", "message"].map(|key| object::text(c, &[key]).to_owned())
        });
        let mut texts: Vec<_> = texts.collect();
        texts.sort();
        texts
    };
    assert_eq!(ours(node), ours(&new), "{when}");
    for (key, value) in new["metadata"]["labels"].as_object().unwrap() {
        assert_eq!(&node["metadata"]["labels"][key], value, "{when}: {key}");
    }
    assert!(world.cluster["pi"].owns_lease(), "{when}");
}

/// An hour in which the server's behavior changes every second. State and log stay bounded.
#[test]
fn an_hour_of_faults_leaves_state_and_log_bounded() {
    const HOUR: u64 = 3600;
    for seed in 1..=20 {
        collect_lines();
        let mut random = Random(seed * 0x9E37_79B9);
        let mut world = World::new();
        let mut behavior = Behavior::Correct;
        let mut second = 0;
        let (mut requests, mut largest) = (0, 0);
        while world.now < Mono::START.after(Duration::from_secs(HOUR)) {
            let now = world.now.since(Mono::START).as_secs();
            if now != second {
                second = now;
                behavior = match random.below(16) {
                    0..3 => Behavior::Correct,
                    3..6 => Behavior::Silent(random.below(2) == 0),
                    6..10 => {
                        let codes = [400, 401, 403, 404, 409, 422, 429, 500, 503];
                        let after = (random.below(2) == 0).then(|| random.below(100));
                        Behavior::Refuses(random.one_of(&codes), after)
                    }
                    10 => Behavior::InvalidBody(random.one_of(&[200, 201, 204, 302, 404])),
                    11 => Behavior::Deletes,
                    12 => Behavior::DeletesLease,
                    13 => Behavior::Recreates,
                    _ => Behavior::Writes,
                };
            }
            let step = Step {
                behavior,
                // A server that answers at once gets more requests.
                takes: match seed % 2 {
                    0 => 1,
                    _ => u32::try_from(random.below(1001)).unwrap(),
                },
                connected: random.below(4) > 0,
                woken: random.below(10) == 0,
                wall: 1_800_000_000 + now,
            };
            world.turn(&step).unwrap();
            requests += 1;
            let kubelet = &world.kubelet;
            assert!(kubelet.events.waiting() <= 32 && kubelet.events.counted() <= 16);
            largest = largest.max(kubelet.node.seen_bytes());
        }
        let lines = take_lines().len();
        println!("seed {seed}: {requests} turns, {lines} lines, {largest} bytes of a Node");
        // The board's Node is 3 KiB of JSON.
        assert!(largest < 8 << 10, "seed {seed}: {largest} bytes of a Node are cached");
        assert!(lines < 232, "seed {seed}: {lines} lines in an hour");
        run_until_next_report(&mut world);
        let node = world.cluster["pi"].node.clone().unwrap();
        assert_owned(&world, &node, &format!("seed {seed}"));
    }
}

/// As after the deletion of the namespace kube-node-lease.
#[test]
fn the_reason_why_a_deleted_lease_is_not_made_again_is_logged_at_once() {
    let mut world = World::new();
    world.run_until(Mono::START.after(Duration::from_secs(30)));
    collect_lines();
    while take_lines().is_empty() {
        world.turn(&Step { behavior: Behavior::DeletesLease, ..correct() }).unwrap();
    }
    let end = world.now.after(Duration::from_secs(20));
    while world.now < end {
        world.turn(&Step { behavior: Behavior::Refuses(403, None), ..correct() }).unwrap();
    }
    let lines = take_lines();
    let count = lines.iter().filter(|line| line.starts_with("lease: 403 Tested;")).count();
    assert_eq!(count, 1, "{lines:?}");
}
