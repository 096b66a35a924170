//! A Node as anybody may have written it: neither `json`, `status` nor `describe` panics, and
//! what `status` wants is what it wants the next time, too.
#![no_main]

use std::path::Path;
use std::sync::LazyLock;

use nodelet::config::flags::Flags;
use nodelet::config::Config;
use nodelet::node::eviction::Pressures;
use nodelet::kube::facts::Facts;
use nodelet::host::Host;
use nodelet::os::root::HostRoot;
use nodelet::kube::time::Wall;
use nodelet::node::{patch, status};
use nodelet::kube::{describe, json};

static CONFIG: LazyLock<Config> =
    LazyLock::new(|| Config::new(Flags::default(), || Ok("board".to_owned())).expect("defaults"));

/// A board, and a folder that does not exist, where every fact is missing.
static FACTS: LazyLock<[Facts; 2]> = LazyLock::new(|| {
    let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("../boards");
    ["qemu-arm64-debian", "no-such-board"].map(|board| {
        let mut host = Host::new(HostRoot::new(boards.join(board)), "/var/lib/kubelet");
        host.read("board")
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some(seen) = json::parse(bytes) else {
        return;
    };
    for facts in FACTS.iter() {
        let desired = |seen| {
            let pressures = Pressures::default();
            status::desired(&CONFIG, facts, pressures, seen, Wall::default()).node
        };
        let want = desired(&seen);
        let _ = (patch::diff(&seen, &want), describe::node(&seen));
        assert_eq!(patch::diff(&want, &want), None);
        assert_eq!(patch::diff(&want, &desired(&want)), None);
    }
});
