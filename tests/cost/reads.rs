//! Costs of one computation of all facts that do not depend on the speed of the machine: how often
//! each file is opened, and how much memory is kept. For time see `cargo bench --bench facts`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::mem::size_of_val;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nodelet::host::{Host, HostRoot};
use nodelet::kube::facts::{Facts, Read};
use support::Folder;

use crate::common::tree;

const BOARDS: [&str; 3] = ["vm-x86_64-hybrid", "qemu-arm64-debian", "qemu-armv7-debian"];

fn board(name: &str) -> PathBuf {
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards");
    boards.join(name)
}

fn facts(root: &Path) -> Facts {
    let mut host = Host::new(HostRoot::new(root), "/var/lib/kubelet");
    host.read("board")
}

fn folders(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_path_buf());
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            folders(&entry.path(), found);
        }
    }
}

/// How often each file and each folder below `root` is opened during `act`.
fn opened(root: &Path, act: impl FnOnce()) -> BTreeMap<PathBuf, usize> {
    let inotify = Inotify::init(InitFlags::IN_NONBLOCK).unwrap();
    let mut all = Vec::new();
    folders(root, &mut all);
    let watches: HashMap<_, _> = all
        .into_iter()
        .map(|folder| {
            let watch = inotify.add_watch(&folder, AddWatchFlags::IN_OPEN);
            (watch.unwrap(), folder)
        })
        .collect();
    act();
    let mut opened = BTreeMap::new();
    loop {
        let events = match inotify.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN) => return opened,
            Err(errno) => panic!("{errno}"),
        };
        for event in events {
            assert!(!event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW));
            let folder = event.mask.contains(AddWatchFlags::IN_ISDIR);
            // A folder has an event of its own and one of its parent.
            let path = match event.name {
                Some(_) if folder => continue,
                Some(name) => watches[&event.wd].join(name),
                None => watches[&event.wd].clone(),
            };
            let path = path.strip_prefix(root).unwrap().to_path_buf();
            *opened.entry(path).or_default() += 1;
        }
    }
}

#[test]
fn each_file_is_opened_once() {
    for name in BOARDS {
        let folder = Folder::new("reads");
        let root = folder.path().join(name);
        // A copy: no other test opens a file of it.
        tree::copy(&board(name), &root);
        let opened = opened(&root, || drop(facts(&root)));
        let twice: Vec<_> = opened.iter().filter(|(_, times)| **times != 1).collect();
        assert!(twice.is_empty(), "{name}: {twice:?}");
        // Files were read, also through links.
        for file in ["proc/meminfo", "proc/self/net/route", "etc/machine-id"] {
            assert!(opened.contains_key(Path::new(file)), "{name}: {opened:?}");
        }
        assert!((10..60).contains(&opened.len()), "{name}: {}", opened.len());
        println!("{name}: {} files and folders", opened.len());
    }
}

/// Bytes on the heap that `facts` holds, by capacity.
fn kept(facts: &Facts) -> usize {
    fn text(read: &Read<String>) -> usize {
        match read {
            Ok(text) => text.capacity(),
            Err(unread) => unread.source.capacity() + unread.cause.capacity(),
        }
    }
    let texts = [
        &facts.machine_id,
        &facts.system_uuid,
        &facts.boot_id,
        &facts.kernel_version,
        &facts.os_image,
    ];
    let network = &facts.network;
    let routes = network.default_routes.iter().flatten().flatten();
    let interfaces = network.interfaces.iter().flatten();
    let pages = facts.huge_pages.iter().flatten();
    texts.into_iter().map(text).sum::<usize>()
        + pages.map(size_of_val).sum::<usize>()
        + routes.map(|route| size_of_val(route) + route.interface.capacity()).sum::<usize>()
        + interfaces
            .map(|interface| {
                let addresses = interface.addresses.iter().map(size_of_val).sum::<usize>();
                size_of_val(interface) + interface.name.capacity() + addresses
            })
            .sum::<usize>()
        + size_of_val(network.hosts.as_slice())
}

#[test]
fn the_facts_take_less_than_64_kib() {
    for name in BOARDS {
        let facts = facts(&board(name));
        let bytes = size_of_val(&facts) + kept(&facts);
        println!("{name}: {bytes} bytes kept");
        assert!(bytes < 64 << 10, "{name}: {bytes}");
    }
}
