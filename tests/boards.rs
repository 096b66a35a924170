//! `host` on kernel files of real machines: every tree of `tests/boards`, and of
//! `../shared/fixtures` beside the clone. Every key of an `expected.json` is compared, or is in
//! [`NOT_COMPARED`].
//!
//! A new fact: its file in the list of `tests/boards/capture.sh`, with a filter for a serial
//! number; its value in `tests/boards/expect.py` and in `expected.json` of each board; here
//! `ours`, `inspected` and the parser. `null` is a value that is absent.
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
use nodelet::host::{Host, cgroup, cpu, memory, mounts, network, pids, system};
use nodelet::kube::facts::{DefaultRoute, Facts, Read};
use nodelet::os::hosts;
use nodelet::os::mounts as table;
use nodelet::os::root::HostRoot;
use serde_json::{Value, json};
use support::{Folder, members, skip};
use tree::files;

/// Keys of expected.json that are not compared, and why.
const NOT_COMPARED: [(&str, &str); 16] = [
    ("architecture", "known when nodelet is compiled"),
    ("kernelMachine", "known when nodelet is compiled"),
    ("cpuRule", "words; the count is compared"),
    ("cpuinfo", "proc/cpuinfo is never read"),
    ("memoryCapacity", "the text of a quantity: compared in inspect"),
    ("memAvailableKiB", "the kubelet does not use MemAvailable"),
    ("meminfoHugepagesizeKiB", "sizes come from sys/kernel/mm"),
    ("localIPv4", "fib_trie is never read"),
    ("interfaceAddresses", "getifaddrs cannot ask a fixture: used below"),
    ("nodeInternalIP", "the choice of the address: compared below"),
    ("nodeInternalIPInterface", "the choice of the address: compared below"),
    ("deviceTreeModel", "not part of a Node"),
    ("cgroupControllers", "seen through memoryControllerUsable"),
    ("cgroupSubtreeControl", "says nothing about the root's own controllers"),
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

/// Our value of `key`, in the form of expected.json.
fn ours(key: &str, want: &Value, root: &HostRoot, facts: &Facts) -> Value {
    let mounts = mounts::read(root);
    match key {
        "cpu" => json!(facts.cpus.as_ref().unwrap().to_string()),
        "onlineCount" => json!(mask(root, "online").len()),
        "cpuMasks" => want
            .as_object()
            .unwrap()
            .keys()
            .map(|name| (name.clone(), json!(mask(root, name))))
            .collect(),
        "memoryCapacityBytes" => json!(facts.memory.as_ref().unwrap().total_bytes),
        "memoryCapacityError" => json!(facts.memory.is_err() && facts.working_set_bytes.is_err()),
        "swapCapacityBytes" => json!(facts.memory.as_ref().unwrap().swap_total_bytes),
        "nodeInfoSwapReported" => json!(facts.memory.as_ref().unwrap().swap_total_bytes != 0),
        "hugepages" => facts
            .huge_pages
            .as_ref()
            .unwrap()
            .iter()
            .map(|size| {
                (
                    format!("hugepages-{}", binary(size.page_bytes)),
                    json!(binary(size.page_bytes * size.count)),
                )
            })
            .collect(),
        "machineID" => text(&facts.machine_id),
        "systemUUID" => text(&facts.system_uuid),
        "bootID" => text(&facts.boot_id),
        "kernelVersion" => text(&facts.kernel_version),
        "osImage" => json!(facts.os_image.as_ref().map_or("Unknown", String::as_str)),
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
        "procCgroupsMemory" => {
            let controllers = cgroup::controllers(root).unwrap().0;
            let memory = controllers.iter().find(|controller| controller.name == "memory");
            json!(memory.map_or("absent", |memory| if memory.enabled {
                "enabled"
            } else {
                "disabled"
            }))
        }
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
                json!(cgroup::parse_v1(usage.as_bytes(), stat.as_bytes()))
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

fn text(fact: &Read<String>) -> Value {
    match fact {
        Ok(text) => json!(text),
        Err(unread) => json!({"unread": unread.to_string()}),
    }
}

fn mask(root: &HostRoot, name: &str) -> Vec<u64> {
    let list = root.text(&format!("sys/devices/system/cpu/{name}"), 4096).unwrap();
    (0..4096).filter(|cpu| cpu::is_listed(&list, *cpu)).collect()
}

fn binary(bytes: u64) -> String {
    let units = [(1u64 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"), (1, "")];
    let (unit, suffix) = units
        .into_iter()
        .find(|(unit, _)| bytes.is_multiple_of(*unit) && bytes != 0)
        .unwrap_or((1, ""));
    format!("{}{suffix}", bytes / unit)
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

#[test]
fn the_facts_of_every_board_are_as_expected() {
    let mut compared: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut trees = 0;
    for (folder, keys) in expectations() {
        let name = folder.display();
        let tree = Tree::new(&folder);
        let root = HostRoot::new(&tree.path);
        let facts = Host::new(root.clone(), "/var/lib/nodelet").read("board");
        trees += 1;
        for (key, want) in keys {
            if NOT_COMPARED.iter().any(|(name, _)| *name == key) {
                continue;
            }
            let ours = ours(&key, &want, &root, &facts);
            if ours != want {
                wrong.push(format!("{name}: {key}: {ours} instead of {want}"));
            }
            *compared.entry(key).or_default() += 1;
        }
        if facts.memory.is_ok()
            && !facts
                .working_set_bytes
                .as_ref()
                .is_ok_and(|used| *used < facts.memory.as_ref().unwrap().total_bytes)
        {
            wrong.push(format!(
                "{name}: working set {:?} of {:?}",
                facts.working_set_bytes, facts.memory
            ));
        }
        let hostname = fs::read_to_string(folder.join("proc/sys/kernel/hostname")).ok();
        let hostname = hostname.map(|text| text.trim().to_owned());
        assert_eq!(Host::new(root, "/").hostname().ok(), hostname, "{name}: hostname");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("{trees} trees, values compared: {compared:?}");
    assert!(compared.values().sum::<usize>() > 50, "{compared:?}");
}

/// Runs every parser; only a panic fails.
fn parse_all(text: &str) {
    let _ = memory::parse(text.as_bytes());
    let _ = cgroup::parse_v2(text.as_bytes());
    let _ = cgroup::parse_v1(text.as_bytes(), text.as_bytes());
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
    let _ = table::read_only_in_fstab(text);
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

/// Names of the facts that were read, but for those that system calls have.
fn read(facts: &Facts) -> Vec<String> {
    let members = members(&format!("{facts:#?}\n{:#?}", facts.network));
    let read = members.into_iter().filter(|(_, value)| value.starts_with("Ok"));
    let names = read.map(|(name, _)| name);
    names.filter(|name| !["interfaces", "node_fs"].contains(&name.as_str())).collect()
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

/// What `inspect` prints for `key`, in the form of expected.json.
fn inspected(key: &str, node: &Value) -> Option<Value> {
    let (capacity, info) = (&node["status"]["capacity"], &node["status"]["nodeInfo"]);
    Some(match key {
        "cpu" => capacity["cpu"].clone(),
        "memoryCapacity" => capacity["memory"].clone(),
        "memoryCapacityError" => {
            let ready = node["status"]["conditions"].as_array().unwrap().last().unwrap();
            json!(capacity.get("memory").is_none() && ready["status"] == "False")
        }
        "hugepages" => {
            let sizes = capacity.as_object().unwrap().iter();
            sizes
                .filter(|(name, _)| name.starts_with("hugepages-"))
                .map(|(name, size)| (name.clone(), size.clone()))
                .collect()
        }
        "nodeInfoSwapReported" => json!(info.get("swap").is_some()),
        "swapCapacityBytes" => json!(info["swap"]["capacity"].as_u64().unwrap_or(0)),
        "machineID" | "systemUUID" | "bootID" | "kernelVersion" | "osImage" => info[key].clone(),
        _ => return None,
    })
}

/// The binary; a binary for another machine under the emulator that cross/cargo.sh names.
fn nodelet() -> Command {
    let binary = env!("CARGO_BIN_EXE_nodelet");
    match std::env::var_os("NODELET_EMULATOR") {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.arg(binary);
            command
        }
        None => Command::new(binary),
    }
}

#[test]
fn inspect_prints_every_board_as_expected() {
    let (mut compared, mut wrong) = (0, Vec::new());
    for (folder, keys) in expectations() {
        let tree = Tree::new(&folder);
        let output = nodelet()
            .args(["inspect", "--hostname-override=board", "--host-root"])
            .arg(&tree.path)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {output:?}", folder.display());
        let node: Value = serde_json::from_slice(&output.stdout).unwrap();
        for (key, want) in keys {
            let Some(printed) = inspected(&key, &node) else {
                continue;
            };
            compared += 1;
            if printed != want {
                wrong.push(format!("{}: {key}: {printed}, not {want}", folder.display()));
            }
        }
    }
    println!("inspect: {compared} values compared");
    assert_eq!(wrong, [] as [String; 0]);
    assert!(compared > 20, "{compared}");
}

/// The address of the Node, from the routes and the published addresses of the board.
#[test]
fn the_address_of_a_board_is_that_of_its_default_route() {
    let mut compared = 0;
    for (folder, keys) in expectations() {
        let addresses = keys.get("interfaceAddresses").and_then(Value::as_object);
        let (Some(addresses), Some(want)) = (addresses, keys.get("nodeInternalIP")) else {
            continue;
        };
        let mut host = Host::new(HostRoot::new(&folder), "/var/lib/kubelet");
        let mut facts = host.read("board");
        let interface = |(name, ips): (&String, &Value)| nodelet::kube::facts::Interface {
            name: name.clone(),
            up: true,
            loopback: false,
            point_to_point: false,
            addresses: ips
                .as_array()
                .unwrap()
                .iter()
                .map(|ip| ip.as_str().unwrap().parse().unwrap())
                .collect(),
        };
        facts.network.interfaces = Ok(addresses.iter().map(interface).collect());
        let config = nodelet::config::Config::new(nodelet::config::flags::Flags::default(), || {
            Ok("board".to_owned())
        })
        .unwrap();
        let now = nodelet::kube::time::Wall::default();
        let node = nodelet::node::status::initial(&config, &facts, Default::default(), now).node;
        assert_eq!(
            node["status"]["addresses"],
            json!([{"type": "InternalIP", "address": want}, {"type": "Hostname", "address": "board"}]),
            "{}",
            folder.display()
        );
        compared += 1;
    }
    assert!(compared >= 3, "{compared}");
}
