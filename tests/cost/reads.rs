//! Costs of one computation of all facts that do not depend on the speed of the machine: how often
//! each file is opened, and how much memory is kept. For time see `cargo bench --bench facts`.

use std::path::Path;

use nodelet::host::Host;
use nodelet::kube::facts::Facts;
use nodelet::os::root::HostRoot;

use crate::common::opened::{BOARDS, board, of_board};

fn facts(root: &Path) -> Facts {
    let mut host = Host::new(HostRoot::new(root), "/var/lib/kubelet");
    host.read("board")
}

#[test]
fn each_file_is_opened_once() {
    for name in BOARDS {
        let opened = of_board(name, |root| drop(facts(root)));
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

#[test]
fn the_facts_take_less_than_64_kib() {
    for name in BOARDS {
        let mut kept = None;
        let heap = allocation_counter::measure(|| kept = Some(facts(&board(name))));
        let bytes = i64::try_from(size_of::<Facts>()).unwrap() + heap.bytes_current;
        println!("{name}: {bytes} bytes kept");
        assert!(kept.is_some() && bytes < 64 << 10, "{name}: {bytes}");
    }
}
