use serde_json::json;

use super::*;
use crate::kube::facts::{Network, Unread, UnreadKind};
use crate::kube::object::is_read_annotation;
use crate::node::conditions::condition;
use crate::node::patch::{self, tests::apply};

fn at(text: &str) -> Wall {
    Wall::parse(text).unwrap()
}

const THEN: &str = "2012-01-01T00:00:00Z";
const NOW: &str = "2026-11-21T06:18:51Z";

fn initial_node(flags: &[&str]) -> Value {
    let desired = initial(&Config::of(flags), &Facts::example(), Pressures::default(), at(NOW));
    assert_eq!(desired.missing, [] as [&str; 0]);
    desired.node
}

/// Four conditions, each written as `type status reason message`.
fn conditions(lines: [&str; 4]) -> [Value; 4] {
    lines.map(|line| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        condition(words[0], words[1], words[2], words[3], NOW)
    })
}

fn good_conditions() -> [Value; 4] {
    conditions([
        "MemoryPressure False KubeletHasSufficientMemory kubelet has sufficient memory available",
        "DiskPressure False KubeletHasNoDiskPressure kubelet has no disk pressure",
        "PIDPressure False KubeletHasSufficientPID kubelet has sufficient PID available",
        "Ready True KubeletReady kubelet is posting ready status",
    ])
}

/// Facts whose amounts are unread.
fn unreadable() -> Facts {
    let unread = || Unread::new("proc/x", "gone");
    Facts { cpus: Err(unread()), memory: Err(unread()), node_fs: Err(unread()), ..Facts::example() }
}

#[test]
fn each_annotation_of_the_node_is_one_that_a_read_keeps() {
    let without = initial_node(&["--enable-controller-attach-detach=false"]);
    let manual = json!({DOCUMENTATION: "man:nodelet(8)"});
    assert_eq!(without["metadata"]["annotations"], manual);
    let node = initial_node(&[]);
    let annotations = node["metadata"]["annotations"].as_object().unwrap();
    assert!(annotations.keys().all(|name| is_read_annotation(name)));
}

/// The body of the first POST. kubelet_node_status_test.go TestUpdateNewNodeStatus, and
/// setters_test.go TestVersionInfo (ok).
#[test]
fn the_initial_node() {
    assert_eq!(
        initial_node(&[]),
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": "pi",
                "labels": {
                    "kubernetes.io/os": "nodelet",
                    "beta.kubernetes.io/os": "nodelet",
                    "kubernetes.io/arch": ARCHITECTURE,
                    "beta.kubernetes.io/arch": ARCHITECTURE,
                    "node.kubernetes.io/exclude-disruption": "true",
                    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
                },
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    "nodelet/documentation": "man:nodelet(8)",
                },
            },
            "spec": {"taints": [{"key": "nodelet/no-pods", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "192.0.2.10"},
                    {"type": "Hostname", "address": "pi"},
                ],
                "capacity": {
                    "cpu": "4", "memory": "1Gi", "pods": "0", "ephemeral-storage": "32Gi",
                    "hugepages-2Mi": "0",
                },
                "allocatable": {
                    "cpu": "4", "memory": "924Mi", "pods": "0",
                    "ephemeral-storage": "30923764480", "hugepages-2Mi": "0",
                },
                "nodeInfo": {
                    "machineID": "0123456789abcdef0123456789abcdef",
                    "systemUUID": "0123456789abcdef0123456789abcdef",
                    "bootID": "b1946ac9-2477-4a6f-9d3a-5d2f0c1a7e11",
                    "kernelVersion": "6.12.25+rpt-rpi-v8",
                    "osImage": "Debian GNU/Linux 12 (bookworm)",
                    "containerRuntimeVersion": "none://",
                    "kubeletVersion": concat!("v1.36.2-nodelet.", env!("CARGO_PKG_VERSION")),
                    "kubeProxyVersion": "",
                    "operatingSystem": "linux",
                    "architecture": ARCHITECTURE,
                },
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
                "conditions": good_conditions(),
            },
        })
    );
}

/// With pods the Node is byte for byte the one that was sent before there were guests.
#[test]
fn the_initial_node_with_pods_is_a_kubelets() {
    let mut want = initial_node(&[]);
    want["metadata"]["labels"] = json!({
        "kubernetes.io/hostname": "pi",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCHITECTURE,
        "beta.kubernetes.io/arch": ARCHITECTURE,
    });
    want["spec"] = json!({});
    want["status"]["capacity"]["pods"] = "110".into();
    want["status"]["allocatable"]["pods"] = "110".into();
    let with_pods = initial_node(&["--max-pods=110"]);
    assert_eq!(with_pods.to_string(), want.to_string());
}

#[test]
fn architectures_have_gos_names() {
    let rust = ["aarch64", "arm", "x86_64", "x86", "riscv64", "powerpc64", "s390x"];
    let go = ["arm64", "arm", "amd64", "386", "riscv64", "ppc64le", "s390x"];
    assert_eq!(rust.map(goarch), go);
}

/// kubelet_node_status_test.go TestRegisterWithApiServerWithTaint. Each taint is
/// `key value effect`.
#[test]
fn the_spec_has_taints_and_provider_id_alone() {
    let no_pods = "nodelet/no-pods  NoSchedule";
    let external = "--cloud-provider=external";
    let cloud = "node.cloudprovider.kubernetes.io/uninitialized";
    let [ours, replaced] = ["true", ""].map(|value| format!("{cloud} {value} NoSchedule"));
    let taint = |text: &str| format!("--register-with-taints={text}");
    let replaces = format!("nodelet/no-pods=mine:NoSchedule,{cloud}:NoSchedule");
    for (words, want) in [
        (&["--max-pods=1"][..], &[][..]),
        (&[], &[no_pods]),
        (
            &["--max-pods=1", &taint("node.kubernetes.io/unschedulable:NoSchedule")],
            &["node.kubernetes.io/unschedulable  NoSchedule"],
        ),
        (&[external, &taint("edge=yes:NoExecute")], &["edge yes NoExecute", &ours, no_pods]),
        (&[external, &taint(&replaces)], &["nodelet/no-pods mine NoSchedule", &replaced]),
        // Another effect is another taint.
        (&[&taint("nodelet/no-pods:NoExecute")], &["nodelet/no-pods  NoExecute", no_pods]),
    ] {
        let spec = initial_node(words)["spec"].take();
        let text = |taint| ["key", "value", "effect"].map(|key| object::text(taint, &[key]));
        let taints = object::list(&spec, &["taints"]).iter().map(|taint| text(taint).join(" "));
        assert_eq!(taints.collect::<Vec<_>>(), want, "{words:?}");
    }
    let spec = initial_node(&["--max-pods=1", "--provider-id=x://1"])["spec"].take();
    assert_eq!(spec, json!({"providerID": "x://1"}));
}

/// setters_test.go TestVersionInfo (version error: here unchanged, or Unknown; proxy version
/// cleared) and TestDaemonEndpoints (5678).
#[test]
fn test_version_info_and_daemon_endpoints() {
    let unread = |file: &str| Err(Unread::new(file, "permission denied"));
    let facts = Facts {
        kernel_version: unread("proc/version"),
        os_image: unread("etc/os-release"),
        ..Facts::example()
    };
    let config = Config::of(&["--port=5678"]);
    let seen = json!({"status": {"nodeInfo": {"kernelVersion": "old"}}});
    let desired = desired(&config, &facts, Pressures::default(), &seen, at(NOW));
    let status = &desired.node["status"];
    let info = initial_node(&[])["status"]["nodeInfo"].take();
    let unknown = json!({"kernelVersion": "old", "osImage": "Unknown"});
    assert_eq!(status["nodeInfo"], apply(info, &unknown));
    assert_eq!(status["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 5678}}));
    assert_eq!(
        desired.missing,
        [
            "proc/version: permission denied; kernelVersion is kept",
            "etc/os-release: permission denied; osImage is Unknown",
        ]
    );
    // A file that does not exist was read.
    let absent = Unread { kind: UnreadKind::Absent, ..Unread::new("proc/version", "no such file") };
    let facts = Facts { kernel_version: Err(absent), ..facts };
    let node = super::desired(&config, &facts, Pressures::default(), &seen, at(NOW)).node;
    assert_eq!(node["status"]["nodeInfo"]["kernelVersion"], "Unknown");
}

/// An old Node with members of other clients.
fn long_lived() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "pi", "uid": "7", "resourceVersion": "812345",
            "labels": {"please-persist": "foo", "kubernetes.io/os": "plan9"},
            "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            "finalizers": ["example.com/f"],
            "future": {"member": [1, null]},
        },
        "spec": {
            "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "unschedulable": true,
            "taints": [{"key": "theirs", "effect": "NoExecute", "timeAdded": THEN}],
        },
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.99"}],
            "capacity": {"cpu": "3", "memory": "1048576Ki", "example.com/radio": "1k"},
            "allocatable": {"example.com/gone": "1", "example.com/radio": "1000"},
            "conditions": [
                {"type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp",
                 "future": true, "lastHeartbeatTime": THEN},
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status", THEN),
                condition("DiskPressure", "False", "KubeletHasSufficientDisk", "old", THEN),
                condition("MemoryPressure", "Unknown", "NodeStatusUnknown",
                          "Kubelet stopped posting node status.", THEN),
                {"type": "ReadonlyFilesystem", "status": "False"},
            ],
            "nodeInfo": {"kubeProxyVersion": "v1.20.0", "architecture": "z80",
                         "operatingSystem": "plan9", "theirs": 1},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}, "theirs": 1},
            "volumesAttached": [{"name": "v", "devicePath": "/dev/sda"}],
            "config": {"error": "x"},
            "phase": "Running",
            "future": {"deep": [{"a": null}]},
        },
        "future": 1,
    })
}

/// kubelet_node_status_test.go TestUpdateExistingNodeStatus, with members of other clients.
#[test]
fn members_of_other_clients_are_unchanged() {
    let seen = long_lived();
    let mut want = seen.clone();
    want["metadata"]["labels"] = json!({
        "please-persist": "foo",
        "kubernetes.io/os": "nodelet",
        "kubernetes.io/arch": ARCHITECTURE,
    });
    let [memory, _, pid, _] = good_conditions();
    let new = initial_node(&[]);
    let status = &mut want["status"];
    for ours in ["addresses", "nodeInfo", "daemonEndpoints", "capacity", "allocatable"] {
        status[ours] = apply(status[ours].take(), &new["status"][ours]);
    }
    status["capacity"]["memory"] = "1048576Ki".into();
    object::members(status, &["allocatable"]).remove("example.com/gone");
    status["conditions"][3] = memory;
    status["conditions"].as_array_mut().unwrap().push(pid);
    let desired =
        desired(&Config::of(&[]), &Facts::example(), Pressures::default(), &seen, at(NOW));
    assert_eq!(desired, Desired { node: want, missing: Vec::new() });
}

#[test]
fn the_desired_node_needs_no_patch() {
    let some = Pressures { memory: Some(true), disk: Some(false), pid: None };
    let facts = Facts::example();
    let unread = || Unread::new("proc/x", "gone");
    let unreadable = Facts {
        huge_pages: Err(unread()),
        machine_id: Err(unread()),
        network: Network { default_routes: Err(unread()), ..facts.network.clone() },
        ..unreadable()
    };
    let dual = &[
        "--cloud-provider=external",
        "--node-ip=192.0.2.10",
        "--max-pods=2000",
        "--pods-per-core=999",
        "--node-labels=example.com/site=a,kubernetes.io/hostname=other,kubernetes.io/arch=z80",
    ];
    for (flags, facts, pressures) in
        [(&[][..], &facts, Pressures::default()), (&[], &unreadable, some), (dual, &facts, some)]
    {
        let config = Config::of(flags);
        for seen in [json!({}), long_lived()] {
            let first = desired(&config, facts, pressures, &seen, at(THEN));
            let later = desired(&config, facts, pressures, &first.node, at(NOW));
            assert_eq!(patch::diff(&first.node, &later.node), None);
            assert_eq!(later.node, first.node);
            assert_eq!(later.missing, first.missing);
        }
        let first = initial(&config, facts, pressures, at(THEN));
        let later = desired(&config, facts, pressures, &first.node, at(NOW));
        assert_eq!(later, first);
    }
}

/// setters_test.go TestReadyCondition (no capacity), with all pressures.
#[test]
fn test_ready_condition_and_pressures() {
    let config = Config::of(&[]);
    let pressed = Pressures { memory: Some(true), disk: Some(true), pid: Some(true) };
    let desired = initial(&config, &unreadable(), pressed, at(NOW));
    let lines = [
        "MemoryPressure True KubeletHasInsufficientMemory kubelet has insufficient memory available",
        "DiskPressure True KubeletHasDiskPressure kubelet has disk pressure",
        "PIDPressure True KubeletHasInsufficientPID kubelet has insufficient PID available",
        "Ready False KubeletNotReady \
         missing node capacity for resources: cpu, memory, ephemeral-storage",
    ];
    assert_eq!(desired.node["status"]["conditions"], json!(conditions(lines)));
    // Each is of its own signal.
    let disk = Pressures { disk: Some(true), ..Pressures::default() };
    let node = initial(&config, &Facts::example(), disk, at(NOW)).node;
    let statuses = [0, 1, 2].map(|index| node["status"]["conditions"][index]["status"] == "True");
    assert_eq!(statuses, [false, true, false]);
}

/// On a ramfs, and with setters_test.go TestReadyCondition (isolation off), where the file system
/// is still checked for DiskPressure.
#[test]
fn without_a_size_of_the_storage_the_node_is_ready_without_ephemeral_storage() {
    let off = "--local-storage-capacity-isolation=false";
    let unread = || Unread::new("statvfs /var", "/ has no size");
    let none = json!({"ephemeral-storage": null});
    let none = json!({"status": {"capacity": none, "allocatable": none}});
    let want = apply(initial_node(&[]), &none);
    for (words, node_fs, missing) in [
        (&[][..], Ok(None), &[][..]),
        (&[off], Facts::example().node_fs, &[]),
        (&[off], Err(unread()), &["statvfs /var: / has no size; DiskPressure is not checked"]),
    ] {
        let facts = Facts { node_fs, ..Facts::example() };
        let got = initial(&Config::of(words), &facts, Pressures::default(), at(NOW));
        assert_eq!(got.node, want, "{words:?} {:?}", facts.node_fs);
        assert_eq!(got.missing, missing);
    }
}

#[test]
fn each_cause_has_one_line_with_all_its_effects() {
    let unread = |source: &str| Unread::new(source, "input/output error");
    let facts = Facts {
        node_fs: Err(unread("statvfs /var")),
        pids: Err(unread("proc/loadavg")),
        working_set_bytes: Err(unread("proc/meminfo")),
        machine_id: Ok(String::new()),
        network: Network {
            default_routes: Err(unread("proc/net/route")),
            ..Facts::example().network
        },
        ..Facts::example()
    };
    let lines = |seen: &Value| {
        let config = Config::of(&[]);
        desired(&config, &facts, Pressures::default(), seen, Wall::default()).missing
    };
    let address = "can't get ip address of node pi. error: proc/net/route: input/output error";
    let mut want = vec![
        format!("{address}; no addresses"),
        "statvfs /var: input/output error; no capacity ephemeral-storage, \
         DiskPressure is not checked"
            .to_owned(),
        "etc/machine-id: absent or empty; no machineID".to_owned(),
        "proc/meminfo: input/output error; MemoryPressure is not checked".to_owned(),
        "proc/loadavg: input/output error; PIDPressure is not checked".to_owned(),
    ];
    assert_eq!(lines(&json!({})), want);
    let seen = json!({"status": {"addresses": [{"type": "Hostname", "address": "pi"}]}});
    want[0] = format!("{address}; the addresses are unchanged");
    assert_eq!(lines(&seen), want);
}

/// As a kubelet, the Node has what the file has.
#[test]
fn a_machine_id_that_is_none_is_reported_and_has_a_line() {
    for (id, is_good) in [
        ("0123456789abcdef0123456789abcdef", true),
        ("uninitialized", false),
        ("0123456789abcdef0123456789abcde", false),
        ("00000000000000000000000000000000", false),
    ] {
        let facts = Facts { machine_id: Ok(id.to_owned()), ..Facts::example() };
        let desired = initial(&Config::of(&[]), &facts, Pressures::default(), at(NOW));
        assert_eq!(desired.node["status"]["nodeInfo"]["machineID"], id);
        let line = format!(
            "etc/machine-id: {id:?} is not 32 hexadecimal digits, so other boards can have it; \
             machineID has it"
        );
        assert_eq!(desired.missing, if is_good { vec![] } else { vec![line] });
    }
}

/// `Facts::same_status_as` is true exactly if the Nodes are equal.
#[test]
fn same_status_as_agrees_with_the_computed_node() {
    type Change = fn(&mut Facts);
    let changes: [(bool, Change); 23] = [
        (true, |facts| facts.working_set_bytes = Ok(1)),
        (true, |facts| facts.pids.as_mut().unwrap().running += 1),
        (true, |facts| facts.pids.as_mut().unwrap().max += 1),
        (true, |facts| {
            let fs = facts.node_fs.as_mut().unwrap().as_mut().unwrap();
            (fs.available_bytes, fs.inodes, fs.inodes_free) = (1, 2, 3);
        }),
        (true, |facts| facts.image_fs = Some(facts.node_fs.clone())),
        (false, |facts| facts.cpus = Ok(3)),
        (false, |facts| facts.memory.as_mut().unwrap().total_bytes += 1024),
        (false, |facts| facts.memory.as_mut().unwrap().swap_total_bytes += 1024),
        (false, |facts| facts.huge_pages.as_mut().unwrap().clear()),
        (false, |facts| {
            facts.node_fs.as_mut().unwrap().as_mut().unwrap().capacity_bytes += 1024;
        }),
        (false, |facts| facts.node_fs = Ok(None)),
        (false, |facts| facts.machine_id = Ok("another".into())),
        (false, |facts| facts.system_uuid = Ok("another".into())),
        (false, |facts| facts.boot_id = Ok("another".into())),
        (false, |facts| facts.kernel_version = Ok("another".into())),
        (false, |facts| facts.os_image = Ok("another".into())),
        (false, |facts| facts.network.interfaces.as_mut().unwrap().truncate(1)),
        (false, |facts| facts.unhealthy.push("pump.ready is missing".into())),
        (false, |facts| facts.memory = Err(Unread::new("proc/x", "no x line"))),
        (false, |facts| facts.working_set_bytes = Err(Unread::new("proc/x", "no x line"))),
        (false, |facts| facts.node_fs = Err(Unread::new("proc/x", "no x line"))),
        (false, |facts| facts.pids = Err(Unread::new("proc/x", "no x line"))),
        (false, |facts| facts.image_fs = Some(Err(Unread::new("proc/x", "no x line")))),
    ];
    let config = Config::of(&[]);
    let node = |facts: &Facts| initial(&config, facts, Pressures::default(), at(NOW));
    let example = Facts::example();
    for (index, (is_same, change)) in changes.into_iter().enumerate() {
        let mut facts = example.clone();
        change(&mut facts);
        assert_eq!(node(&facts) == node(&example), is_same, "{index}: {facts:?}");
        assert_eq!(facts.same_status_as(&example), is_same, "{index}: {facts:?}");
    }
}
