mod reservation;

use serde_json::{Value, json};

use super::*;
use crate::kube::facts::{FsStats, HugePages, Memory, Unread};
use crate::node::patch::tests::apply;

fn config(words: &str) -> Config {
    Config::of(&words.split_whitespace().collect::<Vec<_>>())
}

/// 2 CPUs, 1024 bytes of memory, 5000 bytes of storage, no huge pages.
fn small() -> Facts {
    Facts {
        cpus: Ok(2),
        memory: Ok(Memory { total_bytes: 1024, swap_total_bytes: 0 }),
        huge_pages: Ok(Vec::new()),
        node_fs: Ok(Some(FsStats { capacity_bytes: 5000, ..FsStats::default() })),
        ..Facts::example()
    }
}

/// Capacity and allocatable after the setter ran on `seen`.
fn resources(seen: &Value, config: &Config, facts: &Facts) -> (Value, Value) {
    let mut node = json!({"status": seen});
    let mut missing = Vec::new();
    set(&mut node, config, facts, &mut missing);
    assert_eq!(missing, [] as [&str; 0]);
    let before = node.clone();
    set(&mut node, config, facts, &mut missing);
    assert_eq!(node, before, "the second run changes nothing");
    let status = &node["status"];
    (status["capacity"].clone(), status["allocatable"].clone())
}

/// setters_test.go TestMachineInfo 1 to 12. Devices (10, 11) are declared with
/// --extended-resources, because there are no plugins; pods cannot be reserved. Upstream gets the
/// isolation (9) from its container manager, whose real implementation follows the same flag.
#[test]
fn test_machine_info() {
    let none = json!({});
    let base = json!({"cpu": "2", "memory": "1Ki", "pods": "110", "ephemeral-storage": "5000"});
    let allocatable_base = apply(base.clone(), &json!({"ephemeral-storage": "5k"}));
    let pods = |count: &str| json!({"pods": count});
    let not_isolated = "--local-storage-capacity-isolation=false";
    let no_storage = json!({"ephemeral-storage": null});
    let left = json!({"ephemeral-storage": null, "cpu": "1999m", "memory": "1023"});
    let pages = |count: &str| json!({"hugepages-test": count});
    let devices = |npu: &str| json!({"example.com/npu": npu, "example.com/inactive": "0"});
    let kept = json!({"hugepages-1Gi": "0", "attachable-volumes-x": "9"});
    let radio = |count: &str| json!({"example.com/radio": count});
    let equal = json!({"cpu": "2000m", "memory": "1024", "pods": "0.11k"});
    // What the server has, and what differs from the facts of the board.
    for (name, words, seen, want) in [
        ("1 plain, 8 storage isolated", "", [&none, &none], [&none, &none]),
        (
            "2 pods per core below the limit",
            "--max-pods=10 --pods-per-core=4",
            [&none, &none],
            [&pods("8"), &pods("8")],
        ),
        (
            "3 pods per core above the limit",
            "--max-pods=10 --pods-per-core=6",
            [&none, &none],
            [&pods("10"), &pods("10")],
        ),
        (
            "4 reservations",
            &format!("{not_isolated} --system-reserved=cpu=1m,memory=1,ephemeral-storage=1"),
            [&none, &none],
            [&no_storage, &left],
        ),
        (
            "5 huge pages off memory",
            "",
            [&pages("1"), &none],
            [&pages("1"), &json!({"hugepages-test": "1", "memory": "1023"})],
        ),
        (
            "6 negative capacity",
            "",
            [&json!({"negative": "-1"}), &none],
            [&json!({"negative": "-1"}), &json!({"negative": "0"})],
        ),
        (
            "7 more huge pages than memory",
            "",
            [&pages("1025"), &none],
            [&pages("1025"), &json!({"hugepages-test": "1025", "memory": "0"})],
        ),
        ("9 storage not isolated", not_isolated, [&none, &none], [&no_storage, &no_storage]),
        (
            "10 device, 11 inactive device, which adoption has set to 0",
            "--extended-resources=example.com/npu=3",
            [&devices("0"), &devices("0")],
            [&devices("3"), &devices("3")],
        ),
        ("12 allocatable device without capacity", "", [&none, &radio("5")], [&none, &none]),
        ("other keys without capacity", "", [&none, &kept], [&none, &kept]),
        (
            "a foreign capacity is allocatable",
            "",
            [&radio("2"), &radio("1")],
            [&radio("2"), &radio("2")],
        ),
        ("equal quantities keep the server's text", "", [&equal, &equal], [&equal, &equal]),
        (
            "the facts replace the server's values",
            "",
            [&json!({"cpu": "8", "memory": "7", "odd": 5}), &json!({"cpu": "8", "memory": null})],
            [&json!({"odd": 5}), &none],
        ),
    ] {
        let [capacity, allocatable] = seen;
        let seen = json!({"capacity": capacity, "allocatable": allocatable});
        let config = config(&format!("--max-pods=110 --eviction-hard= {words}"));
        let want = (apply(base.clone(), want[0]), apply(allocatable_base.clone(), want[1]));
        assert_eq!(resources(&seen, &config, &small()), want, "{name}");
    }
}

/// cadvisor/util_test.go (hugepages-5Ki).
#[test]
fn huge_pages_are_named_by_size_and_subtracted_from_memory() {
    let config = config("--max-pods=110");
    let amounts = |total_bytes, pages: &[(u64, u64)]| {
        let pages = pages.iter().map(|&(page_bytes, count)| HugePages { page_bytes, count });
        let memory = Ok(Memory { total_bytes, swap_total_bytes: 0 });
        let facts = Facts { memory, huge_pages: Ok(pages.collect()), ..small() };
        resources(&json!({}), &config, &facts)
    };
    // A board with 4 GiB and the four page sizes of arm64.
    let sizes = [(64 << 10, 0), (2 << 20, 64), (32 << 20, 0), (1 << 30, 0)];
    let capacity = json!({
        "cpu": "2", "memory": "3884312Ki", "pods": "110", "ephemeral-storage": "5000",
        "hugepages-64Ki": "0", "hugepages-2Mi": "128Mi", "hugepages-32Mi": "0",
        "hugepages-1Gi": "0",
    });
    let reserved = json!({"memory": "3650840Ki", "ephemeral-storage": "4500"});
    let allocatable = apply(capacity.clone(), &reserved);
    assert_eq!(amounts(3_884_312 << 10, &sizes), (capacity, allocatable));
    // cadvisor/util_test.go: pages of 5 kB.
    let (capacity, allocatable) = amounts(1 << 30, &[(5120, 10)]);
    let name = "hugepages-5Ki";
    assert_eq!((&capacity[name], &allocatable[name]), (&json!("50Ki"), &json!("50Ki")));
    // More huge pages than memory.
    assert_eq!(amounts(1 << 20, &[(2 << 20, u64::MAX)]).1["memory"], "0");
}

fn unread<T>() -> Read<T> {
    Err(Unread::new("proc/x", "input/output error"))
}

fn nothing_read() -> Facts {
    Facts {
        cpus: unread(),
        memory: unread(),
        huge_pages: unread(),
        node_fs: unread(),
        machine_id: unread(),
        system_uuid: unread(),
        boot_id: unread(),
        ..Facts::example()
    }
}

/// setters_test.go TestMachineInfo 13: here the capacity is missing, not 0.
#[test]
fn a_missing_fact_is_a_missing_capacity() {
    let config = config("--max-pods=110 --pods-per-core=4");
    let mut node = json!({});
    let mut missing = Vec::new();
    set(&mut node, &config, &nothing_read(), &mut missing);
    assert_eq!(
        node,
        json!({"status": {
            "capacity": {},
            "allocatable": {},
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": ""},
        }})
    );
    assert_eq!(
        missing,
        [
            "no capacity cpu",
            "no capacity memory",
            "no capacity pods",
            "no capacity ephemeral-storage",
            "no capacity hugepages-*",
            "no machineID",
            "no systemUUID",
            "no bootID",
        ]
        .map(|what| format!("proc/x: input/output error; {what}"))
    );
}

/// The reserved amounts stay subtracted while the SD card hangs.
#[test]
fn a_fact_that_becomes_missing_changes_nothing() {
    let config = config("--max-pods=110 --pods-per-core=4");
    let mut node = json!({});
    let facts = Facts {
        huge_pages: Ok(vec![HugePages { page_bytes: 2 << 20, count: 8 }]),
        ..Facts::example()
    };
    set(&mut node, &config, &facts, &mut Vec::new());
    let before = node.clone();
    for facts in [
        Facts { cpus: unread(), ..facts.clone() },
        Facts { memory: unread(), ..facts.clone() },
        Facts { node_fs: unread(), ..facts.clone() },
        Facts { huge_pages: unread(), ..facts.clone() },
        Facts { machine_id: unread(), system_uuid: unread(), boot_id: unread(), ..facts.clone() },
    ] {
        set(&mut node, &config, &facts, &mut Vec::new());
        assert_eq!(node, before);
    }
}

/// setters_test.go TestReadyCondition (no capacity): the message.
#[test]
fn ready_names_missing_capacities_in_upstreams_order() {
    let config = config("");
    let all = "missing node capacity for resources: cpu, memory, pods, ephemeral-storage";
    for (capacity, want) in [
        (json!(null), Some(all)),
        (json!({}), Some(all)),
        (json!({"hugepages-2Mi": "0"}), Some(all)),
        (
            json!({"pods": "0", "cpu": "4"}),
            Some("missing node capacity for resources: memory, ephemeral-storage"),
        ),
        (json!({"ephemeral-storage": "0", "pods": "0", "memory": "0", "cpu": "0"}), None),
    ] {
        let node = json!({"status": {"capacity": capacity}});
        let missing = missing_capacities(&node, &config, &Facts::example());
        assert_eq!(missing.as_deref(), want);
    }
}

/// setters_test.go TestMachineInfo 1, 14 and 15.
#[test]
fn test_machine_info_identity_and_swap() {
    let config = config("");
    let info = |seen: &Value, facts: &Facts| {
        let mut node = json!({"status": {"nodeInfo": seen}});
        set(&mut node, &config, facts, &mut Vec::new());
        node["status"]["nodeInfo"].clone()
    };
    let swap = |swap_total_bytes| Facts {
        memory: Ok(Memory { total_bytes: 1 << 30, swap_total_bytes }),
        machine_id: Ok("MachineID".to_owned()),
        system_uuid: Ok("SystemUUID".to_owned()),
        boot_id: Ok("bar".to_owned()),
        ..Facts::example()
    };
    let ids = json!({"machineID": "MachineID", "systemUUID": "SystemUUID", "bootID": "bar"});
    let (bytes, none) = (20 << 30, json!({}));
    let of_swap = |capacity: u64| json!({"swap": {"capacity": capacity}});
    let zram = |capacity: u64| json!({"swap": {"capacity": capacity, "kind": "zram"}});
    let stale = json!({"bootID": "foo", "machineID": "old", "systemUUID": 7});
    for (name, seen, total, more) in [
        ("1 plain: no swap", &none, 0, &none),
        ("14 rebooted", &stale, 0, &none),
        ("15 swap", &none, bytes, &of_swap(bytes)),
        ("after swapoff the size is kept", &of_swap(bytes), 0, &of_swap(bytes)),
        ("foreign members of swap are kept", &zram(1), 2, &zram(2)),
    ] {
        assert_eq!(info(seen, &swap(total)), apply(ids.clone(), more), "{name}");
    }
}
