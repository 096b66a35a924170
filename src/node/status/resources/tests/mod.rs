mod reservation;

use serde_json::{Value, json};

use super::*;
use crate::config::flags::Flags;
use crate::config::thresholds::{self, Threshold};
use crate::kube::facts::{FileSystem, HugePages, Memory, Unread};
use crate::node::patch::tests::apply;

/// A configuration that reserves nothing but these thresholds, as upstream's cases.
fn config(max_pods: i32, pods_per_core: i32, thresholds: &[Threshold]) -> Config {
    let flags = Flags::of(&[
        "--hostname-override=pi-3",
        &format!("--max-pods={max_pods}"),
        &format!("--pods-per-core={pods_per_core}"),
    ]);
    let mut config = Config::new(flags, || unreachable!()).unwrap();
    config.reservation.thresholds = thresholds.to_vec();
    config
}

/// 2 CPUs, 1024 bytes of memory, 5120 bytes of storage, no huge pages.
fn small() -> Facts {
    Facts {
        cpus: Ok(2),
        memory: Ok(Memory { total_bytes: 1024, swap_total_bytes: 0 }),
        huge_pages: Ok(Vec::new()),
        node_fs: Ok(FileSystem { capacity_bytes: 5120, ..FileSystem::default() }),
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

/// setters_test.go TestMachineInfo 1 to 3, 5 to 7 and 12.
#[test]
fn test_machine_info() {
    let base = json!({"cpu": "2", "memory": "1Ki", "pods": "110", "ephemeral-storage": "5Ki"});
    let with = |changes: Value| apply(base.clone(), &changes);
    let kept = json!({"hugepages-1Gi": "0", "attachable-volumes-x": "9"});
    let radio = json!({"example.com/radio": "2"});
    let equal = json!({"cpu": "2000m", "memory": "1024", "pods": "0.11k"});
    // What the server has, and what differs from the facts of the board.
    for (name, seen, want) in [
        ("1 plain", [json!({}), json!({})], [json!({}), json!({})]),
        (
            "5 huge pages off memory",
            [json!({"hugepages-test": "1"}), json!({})],
            [json!({"hugepages-test": "1"}), json!({"hugepages-test": "1", "memory": "1023"})],
        ),
        (
            "6 negative capacity",
            [json!({"negative-resource": "-1"}), json!({})],
            [json!({"negative-resource": "-1"}), json!({"negative-resource": "0"})],
        ),
        (
            "7 more huge pages than memory",
            [json!({"hugepages-test": "1025"}), json!({})],
            [json!({"hugepages-test": "1025"}), json!({"hugepages-test": "1025", "memory": "0"})],
        ),
        (
            "12 allocatable extended resource without capacity",
            [json!({}), json!({"example.com/extended": "5"})],
            [json!({}), json!({})],
        ),
        ("other keys without capacity", [json!({}), kept.clone()], [json!({}), kept]),
        (
            "a foreign capacity is allocatable",
            [radio.clone(), json!({"example.com/radio": "1"})],
            [radio.clone(), radio],
        ),
        (
            "equal quantities keep the server's text",
            [equal.clone(), equal.clone()],
            [equal.clone(), equal],
        ),
        (
            "the facts replace the server's values",
            [json!({"cpu": "8", "memory": "7", "odd": 5}), json!({"cpu": "8", "memory": null})],
            [json!({"odd": 5}), json!({})],
        ),
    ] {
        let [capacity, allocatable] = seen;
        let seen = json!({"capacity": capacity, "allocatable": allocatable});
        let (capacity, allocatable) = resources(&seen, &config(110, 0, &[]), &small());
        assert_eq!([capacity, allocatable], want.map(with), "{name}");
    }
    for (name, per_core, pods) in
        [("2 pods per core below the limit", 4, "8"), ("3 pods per core above the limit", 6, "10")]
    {
        let want = with(json!({"pods": pods}));
        let got = resources(&json!({}), &config(10, per_core, &[]), &small());
        assert_eq!(got, (want.clone(), want), "{name}");
    }
}

/// cadvisor/util_test.go (hugepages-5Ki).
#[test]
fn huge_pages_are_named_by_size_and_subtracted_from_memory() {
    let config = config(110, 0, &thresholds::default_thresholds());
    let amounts = |total_bytes, pages: &[(u64, u64)]| {
        let pages = pages.iter().map(|&(page_bytes, count)| HugePages { page_bytes, count });
        let memory = Ok(Memory { total_bytes, swap_total_bytes: 0 });
        let facts = Facts { memory, huge_pages: Ok(pages.collect()), ..small() };
        resources(&json!({}), &config, &facts)
    };
    // A board with 4 GiB and the four page sizes of arm64.
    let sizes = [(64 << 10, 0), (2 << 20, 64), (32 << 20, 0), (1 << 30, 0)];
    let capacity = json!({
        "cpu": "2", "memory": "3884312Ki", "pods": "110", "ephemeral-storage": "5Ki",
        "hugepages-64Ki": "0", "hugepages-2Mi": "128Mi", "hugepages-32Mi": "0",
        "hugepages-1Gi": "0",
    });
    let reserved = json!({"memory": "3650840Ki", "ephemeral-storage": "4608"});
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
    let config = config(110, 4, &thresholds::default_thresholds());
    let mut node = json!({});
    let mut missing = Vec::new();
    set(&mut node, &config, &nothing_read(), &mut missing);
    assert_eq!(
        node,
        json!({"status": {
            // Without the number of CPUs, pods per core have no effect.
            "capacity": {"pods": "110"},
            "allocatable": {"pods": "110"},
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": ""},
        }})
    );
    assert_eq!(
        missing,
        [
            "no capacity cpu",
            "no capacity memory",
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
    let config = config(110, 4, &thresholds::default_thresholds());
    let mut node = json!({});
    let facts = Facts {
        huge_pages: Ok(vec![HugePages { page_bytes: 2 << 20, count: 8 }]),
        ..Facts::example()
    };
    set(&mut node, &config, &facts, &mut Vec::new());
    let before = node.clone();
    for facts in [
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
    let config = config(0, 0, &[]);
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
    let config = config(0, 0, &[]);
    let info = |seen: Value, facts: &Facts| {
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
    let bytes = 20 << 30;
    let of_swap = |swap: Value| json!({"swap": swap});
    for (name, seen, total, more) in [
        ("1 plain: no swap", json!({}), 0, json!({})),
        (
            "14 rebooted",
            json!({"bootID": "foo", "machineID": "old", "systemUUID": 7}),
            0,
            json!({}),
        ),
        ("15 swap", json!({}), bytes, of_swap(json!({"capacity": bytes}))),
        (
            "after swapoff the size is kept",
            of_swap(json!({"capacity": bytes})),
            0,
            of_swap(json!({"capacity": bytes})),
        ),
        (
            "foreign members of swap are kept",
            of_swap(json!({"capacity": 1, "kind": "zram"})),
            2,
            of_swap(json!({"capacity": 2, "kind": "zram"})),
        ),
    ] {
        assert_eq!(info(seen, &swap(total)), apply(ids.clone(), &more), "{name}");
    }
}

/// setters_test.go TestMachineInfo 4 and 8 to 11. Devices are declared with --extended-resources,
/// because there are no plugins; pods cannot be reserved. Upstream gets the isolation (9) from its
/// container manager, whose real implementation follows the same flag.
#[test]
fn test_machine_info_reservations_storage_and_devices() {
    let plain = config(110, 0, &[]);
    let mut config = plain.clone();
    for (name, amount) in [("cpu", "1m"), ("memory", "1"), ("ephemeral-storage", "1")] {
        let amount = amount.parse().unwrap();
        config.reservation.declared.insert(name.to_owned(), amount);
    }
    let facts = Facts {
        node_fs: Ok(FileSystem { capacity_bytes: 5000, ..FileSystem::default() }),
        ..small()
    };
    let storage = |isolated, reserved: bool| {
        let mut config = config.clone();
        config.local_storage = isolated;
        if !reserved {
            config.reservation.declared.clear();
        }
        resources(&json!({}), &config, &facts)
    };
    let plain_amounts = json!({"cpu": "2", "memory": "1Ki", "pods": "110"});
    let with = |changes: Value| apply(plain_amounts.clone(), &changes);
    for (name, isolated, reserved, capacity, allocatable) in [
        ("4", false, true, json!({}), json!({"cpu": "1999m", "memory": "1023"})),
        (
            "8 storage isolated",
            true,
            false,
            json!({"ephemeral-storage": "5000"}),
            json!({"ephemeral-storage": "5k"}),
        ),
        ("9 storage not isolated: absent", false, false, json!({}), json!({})),
    ] {
        let want = (with(capacity), with(allocatable));
        assert_eq!(storage(isolated, reserved), want, "{name}");
    }

    let mut declares = plain;
    let three = "3".parse().unwrap();
    declares.node.extended_resources.insert("example.com/npu".to_owned(), three);
    // Adoption sets an inactive device to 0.
    let seen = json!({
        "capacity": {"example.com/npu": "0", "example.com/inactive": "0"},
        "allocatable": {"example.com/npu": "0", "example.com/inactive": "0"},
    });
    let (capacity, allocatable) = resources(&seen, &declares, &small());
    for resources in [capacity, allocatable] {
        assert_eq!(resources["example.com/npu"], "3", "10 device");
        assert_eq!(resources["example.com/inactive"], "0", "11 inactive device");
    }
}
