//! `cargo bench --bench facts`: time of one computation of all facts of this machine, of reading
//! the same files without parsing, and of the two system calls that read no file. They alternate,
//! so that other load affects all of them.
#![cfg(test)]
#![allow(clippy::cast_precision_loss, clippy::disallowed_methods, missing_docs, unreachable_pub)]

use std::collections::BTreeSet;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nodelet::host::{Host, network};
use nodelet::os::root::HostRoot;

use crate::common::opened::{BOARDS, of_board};

#[path = "../common/mod.rs"]
mod common;

const ROUNDS: usize = 1000;
/// `--root-dir`.
const FOLDER: &str = "/var/lib/kubelet";

/// The files that the facts of the boards are read from, on this machine.
fn files() -> BTreeSet<PathBuf> {
    let facts = |root: &Path| drop(Host::new(HostRoot::new(root), FOLDER).read("board"));
    let opened = BOARDS.iter().flat_map(|name| of_board(name, facts).into_keys());
    let here = opened.map(|path| Path::new("/").join(path));
    here.filter(|path| path.is_file()).collect()
}

fn read_all(files: &BTreeSet<PathBuf>, buffer: &mut Vec<u8>) -> usize {
    let read = |path| {
        buffer.clear();
        File::open(path).and_then(|mut file| file.read_to_end(buffer)).unwrap_or_default()
    };
    files.iter().map(read).sum()
}

fn timed<T>(times: &mut Vec<Duration>, act: impl FnOnce() -> T) {
    let start = Instant::now();
    black_box(act());
    times.push(start.elapsed());
}

fn main() {
    let mut host = Host::new(HostRoot::default(), FOLDER);
    let mut buffer = Vec::with_capacity(64 << 10);
    let files = files();
    let bytes = read_all(&files, &mut buffer);
    let [mut facts, mut reading, mut interfaces, mut file_system] =
        std::array::from_fn(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        timed(&mut facts, || host.read("board"));
        timed(&mut reading, || read_all(&files, &mut buffer));
        timed(&mut interfaces, network::interfaces);
        timed(&mut file_system, || nix::sys::statvfs::statvfs("/"));
    }
    println!("{ROUNDS} rounds in turn; {} files with {bytes} bytes", files.len());
    println!("{:<32} {:>10} {:>10}", "", "median", "99 %");
    for (name, mut times) in [
        ("all facts", facts),
        ("reading the same files", reading),
        ("interfaces", interfaces),
        ("statvfs", file_system),
    ] {
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
        println!("{name:<32} {:>7.0} µs {:>7.0} µs", at(50), at(99));
    }
}
