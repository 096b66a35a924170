//! `cargo bench --bench facts`: time of one computation of all facts of this machine, of reading
//! the same files without parsing, and of the two system calls that read no file. They alternate,
//! so that other load affects all of them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs
)]

use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nodelet::host::{Host, HostRoot, network};

const ROUNDS: usize = 1000;

/// The files that `facts` reads, with its fallbacks.
const FILES: &[&str] = &[
    "/proc/meminfo",
    "/proc/self/mountinfo",
    "/proc/loadavg",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/random/boot_id",
    "/proc/net/route",
    "/proc/net/ipv6_route",
    "/sys/class/dmi/id/product_uuid",
    "/sys/devices/system/cpu/online",
    "/sys/fs/cgroup/memory.stat",
    "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    "/sys/fs/cgroup/memory/memory.stat",
    "/etc/machine-id",
    "/etc/os-release",
    "/etc/hosts",
];

/// Folders that are listed, and the files below their entries.
const FOLDERS: [(&str, &str, &[&str]); 2] = [
    ("/sys/kernel/mm/hugepages", "hugepages-", &["nr_hugepages"]),
    (
        "/sys/devices/system/node/node0",
        "cpu",
        &["topology/core_id", "topology/physical_package_id"],
    ),
];

fn read_all(buffer: &mut Vec<u8>) -> (usize, usize) {
    let (mut files, mut bytes) = (0, 0);
    let mut read = |path: &Path| {
        buffer.clear();
        if let Ok(mut file) = File::open(path)
            && let Ok(length) = file.read_to_end(buffer)
        {
            files += 1;
            bytes += length;
        }
    };
    FILES.iter().for_each(|file| read(Path::new(file)));
    for (folder, prefix, names) in FOLDERS {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(prefix) {
                let path = PathBuf::from(folder).join(name);
                names.iter().for_each(|name| read(&path.join(name)));
            }
        }
    }
    (files, bytes)
}

fn timed<T>(times: &mut Vec<Duration>, act: impl FnOnce() -> T) {
    let start = Instant::now();
    black_box(act());
    times.push(start.elapsed());
}

fn main() {
    let mut host = Host::new(HostRoot::default(), "/var/lib/kubelet");
    let mut buffer = Vec::with_capacity(64 << 10);
    let (files, bytes) = read_all(&mut buffer);
    let [mut facts, mut reading, mut interfaces, mut file_system] =
        std::array::from_fn(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        timed(&mut facts, || host.read("board"));
        timed(&mut reading, || read_all(&mut buffer));
        timed(&mut interfaces, network::interfaces);
        timed(&mut file_system, || nix::sys::statvfs::statvfs("/"));
    }
    println!("{ROUNDS} rounds in turn; {files} files with {bytes} bytes");
    println!("{:<32} {:>10} {:>10}", "", "median", "99 %");
    for (name, mut times) in [
        ("all facts", facts),
        ("reading the same files", reading),
        ("getifaddrs", interfaces),
        ("statvfs", file_system),
    ] {
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
        println!("{name:<32} {:>7.0} µs {:>7.0} µs", at(50), at(99));
    }
}
