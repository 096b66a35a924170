//! `host` on kernel files of real machines: every tree of `tests/boards`, and of
//! `../shared/fixtures` beside the clone. Every key of an `expected.json` is compared, or is in
//! [`NOT_COMPARED`].
//!
//! A new fact: its file in the list of `tests/boards/capture.sh`, with a filter for a serial
//! number; its value in `tests/boards/expect.py` and in `expected.json` of each board; here
//! `ours` and the parser. `null` is a value that is absent.
//! `tests/boards/boot.sh` captures the virtual boards anew. What none of them has gets a file in
//! one tree by hand, and its `SOURCE.txt` says from where; that also has the command that writes
//! `expected.json`.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs)]

#[path = "common/tree.rs"]
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use nodelet::config::Config;
use nodelet::config::flags::Flags;
use nodelet::host::{Host, cgroup, cpu, memory, mounts, network, pids, system};
use nodelet::kube::facts::{DefaultRoute, Facts, Interface};
use nodelet::kube::time::Wall;
use nodelet::node::status;
use nodelet::os::hosts;
use nodelet::os::mounts as table;
use nodelet::os::root::HostRoot;
use serde_json::{Value, json};
use support::{Folder, members, skip};
use tree::files;

/// Keys of expected.json that are not compared, and why.
const NOT_COMPARED: [(&str, &str); 17] = [
    ("architecture", "known when nodelet is compiled"),
    ("kernelMachine", "known when nodelet is compiled"),
    ("cpuRule", "words; the count is compared"),
    ("cpuinfo", "proc/cpuinfo is never read"),
    ("memoryCapacityBytes", "the same in memoryCapacity"),
    ("onlineCount", "the length of a list in cpuMasks"),
    ("memAvailableKiB", "the kubelet does not use MemAvailable"),
    ("meminfoHugepagesizeKiB", "sizes come from sys/kernel/mm"),
    ("localIPv4", "fib_trie is never read"),
    ("interfaceAddresses", "rtnetlink cannot ask a fixture: used for nodeInternalIP"),
    ("nodeInternalIPInterface", "seen through nodeInternalIP"),
    ("deviceTreeModel", "not part of a Node"),
    ("cgroupControllers", "seen through memoryControllerUsable"),
    ("cgroupSubtreeControl", "says nothing about the root's own controllers"),
    ("procCgroupsMemory", "seen through procCgroups"),
    ("cgroupPSI", "pressure of single cgroups is not read"),
    ("systemUUIDFrom", "words; the value is compared"),
];

/// The trees of this repository.
fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards")
}

/// The trees beside the clone; `None`, and a skip, without them.
fn shared() -> Option<PathBuf> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/fixtures");
    if fixtures.is_dir() {
        return Some(fixtures);
    }
    skip::required(&format!("{} is absent; only tests/boards", fixtures.display()));
    None
}

fn roots() -> Vec<PathBuf> {
    [Some(own()), shared()].into_iter().flatten().collect()
}

/// Every tree with its expected.json; fails if there are too few.
fn expectations() -> Vec<(PathBuf, BTreeMap<String, Value>)> {
    let mut found = Vec::new();
    for (root, least) in roots().iter().zip([3, 70]) {
        let before = found.len();
        for file in files(root).iter().filter(|file| file.ends_with("expected.json")) {
            let expected = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
            found.push((file.parent().unwrap().to_owned(), expected));
        }
        assert!(found.len() - before >= least, "{}: {}", root.display(), found.len() - before);
    }
    found
}

/// A kernel tree with its links: the tree itself, or a copy if the checkout has files in their
/// place.
struct Tree {
    path: PathBuf,
    _copy: Option<Folder>,
}

impl Tree {
    fn new(tree: &Path) -> Self {
        if files(tree).iter().all(|file| tree::link_target(file).is_none()) {
            return Self { path: tree.to_path_buf(), _copy: None };
        }
        let copy = Folder::new("links");
        let path = copy.path().join(tree.file_name().unwrap());
        tree::copy(tree, &path);
        Self { path, _copy: Some(copy) }
    }
}

/// Our value of `key`, in the form of expected.json. `node` is what `inspect` prints.
fn ours(key: &str, want: &Value, root: &HostRoot, facts: &Facts, node: &Value) -> Value {
    let mounts = mounts(root);
    let (capacity, info) = (&node["status"]["capacity"], &node["status"]["nodeInfo"]);
    match key {
        "cpu" => capacity["cpu"].clone(),
        "memoryCapacity" => capacity["memory"].clone(),
        "memoryCapacityError" => {
            let ready = node["status"]["conditions"].as_array().unwrap().last().unwrap();
            let unread = facts.memory.is_err() && facts.working_set_bytes.is_err();
            json!(unread && capacity.get("memory").is_none() && ready["status"] == "False")
        }
        "swapCapacityBytes" => json!(info["swap"]["capacity"].as_u64().unwrap_or(0)),
        "nodeInfoSwapReported" => json!(info.get("swap").is_some()),
        "hugepages" => {
            let mut sizes = capacity.as_object().unwrap().clone();
            sizes.retain(|name, _| name.starts_with("hugepages-"));
            json!(sizes)
        }
        "machineID" | "systemUUID" | "bootID" | "kernelVersion" | "osImage" => info[key].clone(),
        "cpuMasks" => want
            .as_object()
            .unwrap()
            .keys()
            .map(|name| (name.clone(), json!(mask(root, name))))
            .collect(),
        "defaultRoutesIPv4" => routes(facts, false, want),
        "defaultRoutesIPv6" => routes(facts, true, want),
        "defaultRoute" => default_routes(facts).first().map_or(Value::Null, |route| {
            let family = if route.gateway.is_ipv4() { "IPv4" } else { "IPv6" };
            json!({"interface": route.interface, "gateway": route.gateway, "family": family})
        }),
        // Only whether the kernel has PSI is used.
        "psi" => match memory::has_pressure(root).unwrap() == want.get("memory").is_some() {
            true => want.clone(),
            false => Value::Null,
        },
        "rootMount" => {
            let mounts = mounts.unwrap();
            let count = mounts.iter().filter(|mount| mount.point == Path::new("/")).count();
            // nodelet does not read device and options.
            let mut ours = want.clone();
            ours["fstype"] = json!(table::over(&mounts, Path::new("/")).unwrap().fs_type);
            ours["mountsOnRoot"] = json!(count);
            ours
        }
        "cgroupMode" => {
            json!(format!("{:?}", cgroup::read(root, &mounts.unwrap_or_default())).to_lowercase())
        }
        "procCgroups" => cgroup::controllers(root)
            .unwrap()
            .0
            .into_iter()
            .map(|controller| {
                (
                    controller.name,
                    json!({"hierarchy": controller.hierarchy, "enabled": controller.enabled}),
                )
            })
            .collect(),
        "memoryControllerUsable" => json!(cgroup::memory_is_usable(root).unwrap()),
        "memcg" => {
            let find = |name: &str| {
                fs::read_to_string(
                    files(root.path()).into_iter().find(|file| file.ends_with(name)).unwrap(),
                )
                .unwrap()
            };
            let mut ours = want.clone();
            let root_stat = root.path().join("sys/fs/cgroup/memory.stat");
            ours["workingSet"] = if root_stat.exists() {
                json!(facts.working_set_bytes.as_ref().unwrap())
            } else {
                let usage = find("memory.usage_in_bytes");
                let stat = find("memory.stat");
                json!(cgroup::parse_usage(
                    usage.as_bytes(),
                    stat.as_bytes(),
                    "total_inactive_file "
                ))
            };
            ours
        }
        "maxPID" => json!(pids::Threads::default().read_max(root).unwrap()),
        "numRunningProcesses" => {
            let loadavg = root.text("proc/loadavg", 4096).unwrap();
            json!(pids::parse_running(loadavg.as_bytes()).unwrap())
        }
        _ => panic!("{key}: an unknown key; compare it, or say in NOT_COMPARED why not"),
    }
}

fn mask(root: &HostRoot, name: &str) -> Vec<u64> {
    let list = root.text(&format!("sys/devices/system/cpu/{name}"), 4096).unwrap();
    (0..4096).filter(|cpu| cpu::is_listed(&list, *cpu)).collect()
}

fn default_routes(facts: &Facts) -> &[DefaultRoute] {
    facts.network.default_routes.as_ref().unwrap().as_deref().unwrap()
}

/// Mask and metric are copied: like the kubelet, nodelet reads neither.
fn routes(facts: &Facts, ipv6: bool, want: &Value) -> Value {
    let routes = default_routes(facts).iter().filter(|route| route.gateway.is_ipv6() == ipv6);
    routes
        .enumerate()
        .map(|(place, route)| {
            let mut ours = want.get(place).cloned().unwrap_or_default();
            ours["interface"] = json!(route.interface);
            ours["gateway"] = json!(route.gateway);
            ours
        })
        .collect()
}

/// The address of the Node, from the routes and the published addresses of the board.
fn address(addresses: &Value, mut facts: Facts) -> Value {
    let interface = |(name, ips): (&String, &Value)| Interface {
        name: name.clone(),
        up: true,
        loopback: false,
        point_to_point: false,
        addresses: serde_json::from_value(ips.clone()).unwrap(),
    };
    let interfaces = addresses.as_object().unwrap().iter().map(interface);
    facts.network.interfaces = Ok(interfaces.collect());
    let config = Config::new(Flags::default(), || Ok("board".to_owned())).unwrap();
    let node = status::initial(&config, &facts, Default::default(), Wall::default()).node;
    node["status"]["addresses"][0]["address"].clone()
}

/// What the binary's `inspect` prints; a binary for another machine runs under the emulator that
/// cross/cargo.sh names.
fn inspect(root: &Path) -> Value {
    let binary = env!("CARGO_BIN_EXE_nodelet");
    let emulator = std::env::var_os("NODELET_EMULATOR");
    let mut command = Command::new(emulator.as_deref().unwrap_or(binary.as_ref()));
    command.args(emulator.is_some().then_some(binary));
    command.args(["inspect", "--hostname-override=board", "--host-root"]).arg(root);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {output:?}", root.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_facts_and_the_node_of_every_board_are_as_expected() {
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (folder, keys) in expectations() {
        let name = folder.display();
        let tree = Tree::new(&folder);
        let root = HostRoot::new(&tree.path);
        let facts = Host::new(root.clone(), "/var/lib/nodelet").read("board");
        let node = inspect(&tree.path);
        for (key, want) in &keys {
            if NOT_COMPARED.iter().any(|(name, _)| name == key) {
                continue;
            }
            let ours = match key.as_str() {
                "nodeInternalIP" => address(&keys["interfaceAddresses"], facts.clone()),
                key => ours(key, want, &root, &facts, &node),
            };
            if ours != *want {
                wrong.push(format!("{name}: {key}: {ours} instead of {want}"));
            }
            *compared.entry(key.clone()).or_default() += 1;
        }
        let (memory, used) = (&facts.memory, &facts.working_set_bytes);
        if memory.as_ref().is_ok_and(|memory| !used.as_ref().is_ok_and(|u| *u < memory.total_bytes))
        {
            wrong.push(format!("{name}: working set {used:?} of {memory:?}"));
        }
        let hostname = fs::read_to_string(folder.join("proc/sys/kernel/hostname")).ok();
        let hostname = hostname.map(|text| text.trim().to_owned());
        assert_eq!(Host::new(root, "/").hostname().ok(), hostname, "{name}: hostname");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("values compared: {compared:?}");
    assert!(compared.len() >= 23 && compared.values().sum::<usize>() >= 69, "{compared:?}");
    assert!(compared["nodeInternalIP"] >= 3, "{compared:?}");
}

/// Runs every parser; only a panic fails.
fn parse_all(text: &str) {
    let _ = memory::parse_meminfo(text.as_bytes());
    let _ = cgroup::parse_v2(text.as_bytes());
    let _ = cgroup::parse_usage(text.as_bytes(), text.as_bytes(), "total_inactive_file ");
    let _ = cpu::is_listed(text, 7);
    let _ = pids::parse_running(text.as_bytes());
    let _ = system::parse_os_image(text);
    let _ = system::parse_version(text);
    let _ = text.lines().filter_map(network::parse_v4).count();
    let _ = text.lines().filter_map(network::parse_v6).count();
    let _ = hosts::addresses(text, "board");
    let found: Vec<table::Mount> = text.lines().filter_map(table::parse_mountinfo).collect();
    let _ = cgroup::mode(&found);
    let _ = text.lines().filter_map(|line| table::parse_superblock(line, |_| true)).count();
    let _ = table::points_in_fstab(text);
    let found: Vec<table::Mount> = text.lines().filter_map(table::parse_mounts).collect();
    let _ = table::over(&found, Path::new("/var/lib"));
}

/// Every length of files up to 4 KiB, and 200 lengths of larger files: all lengths would take
/// minutes in a debug build.
#[test]
fn no_file_cut_at_any_length_makes_a_parser_panic() {
    // A set: many trees contain the same file.
    let texts: BTreeSet<Vec<u8>> =
        roots().iter().flat_map(|root| files(root)).map(|file| fs::read(file).unwrap()).collect();
    let cut = |texts: &[Vec<u8>]| {
        let mut cuts = 0;
        for bytes in texts {
            let step = match bytes.len() {
                ..=4096 => 1,
                length => length.div_ceil(200),
            };
            for length in (0..=bytes.len()).step_by(step) {
                parse_all(&String::from_utf8_lossy(&bytes[..length]));
                cuts += 1;
            }
        }
        cuts
    };
    let texts: Vec<Vec<u8>> = texts.into_iter().collect();
    let (one, other) = texts.split_at(texts.len() / 2);
    let cuts: usize = thread::scope(|scope| {
        let one = scope.spawn(|| cut(one));
        cut(other) + one.join().unwrap()
    });
    println!("{cuts} cuts through every parser");
    assert!(cuts > 10_000, "{cuts}");
}

/// The facts of a root where `make` made each file that a board has.
fn hostile(kind: &str, make: impl Fn(&Path)) -> Facts {
    // What no board has, or only behind a link.
    let others = [
        "proc/net/route",
        "proc/net/ipv6_route",
        "proc/version",
        "proc/device-tree/system-id",
        "proc/device-tree/vm,uuid",
        "etc/os-release",
        "sys/class/dmi/id/product_uuid",
        "sys/devices/system/node/node0/cpu0",
        "var/lib/dbus/machine-id",
    ];
    let boards = fs::read_dir(own()).unwrap().map(|entry| entry.unwrap().path());
    let of_board = |board: PathBuf| {
        let files = files(&board).into_iter();
        files.map(move |file| file.strip_prefix(&board).unwrap().to_owned()).collect::<Vec<_>>()
    };
    let of_boards = boards.filter(|path| path.is_dir()).flat_map(of_board);
    let all: BTreeSet<PathBuf> = of_boards.chain(others.map(PathBuf::from)).collect();
    let folder = Folder::new(kind);
    for file in all.iter().map(|file| folder.path().join(file)) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        if !file.exists() {
            make(&file);
        }
    }
    Host::new(HostRoot::new(folder.path()), "/var/lib/nodelet").read("board")
}

/// Names of the facts that were read, but for those that system calls have, and the hosts file,
/// whose lines of another kind are passed over.
fn read(facts: &Facts) -> Vec<String> {
    let members = members(&format!("{facts:#?}\n{:#?}", facts.network));
    let read = members.into_iter().filter(|(_, value)| value.starts_with("Ok"));
    let names = read.map(|(name, _)| name);
    names.filter(|name| !["interfaces", "node_fs", "hosts"].contains(&name.as_str())).collect()
}

#[test]
fn hostile_files_only_make_facts_unreadable() {
    let none: [&str; 0] = [];
    assert_eq!(read(&hostile("binary", |file| fs::write(file, b"\xff\0\xfe\n").unwrap())), none);
    assert_eq!(read(&hostile("folder", |file| fs::create_dir(file).unwrap())), none);
    assert_eq!(read(&hostile("huge", |file| fs::write(file, vec![b'1'; 2 << 20]).unwrap())), none);
    let fifo = |file: &Path| mkfifo(file, Mode::S_IRWXU).unwrap();
    assert_eq!(read(&hostile("fifo", fifo)), none);
    let circle = |file: &Path| std::os::unix::fs::symlink(file.file_name().unwrap(), file).unwrap();
    assert_eq!(read(&hostile("circle", circle)), none);
    // Empty ids and an empty os-release are valid, as in the kubelet.
    let empty = hostile("empty", |file| fs::write(file, b"").unwrap());
    assert_eq!(read(&empty), ["default_routes", "machine_id", "os_image", "system_uuid"]);
    assert_eq!(empty.os_image.as_deref(), Ok("Linux"));
    assert_eq!(empty.network.default_routes, Ok(Some(Vec::new())));
    assert!(empty.node_fs.is_ok());
}
