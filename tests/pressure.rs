//! Time from memory pressure to the status patch. Processes in a cgroup with too little memory
//! stall, and a PSI trigger wakes the agent.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod common;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::api::condition;
use crate::common::board::Board;
use apidouble::Double;
use serde_json::Value;
use support::{Folder, eventually, skip};

/// A cgroup with 24 MiB of memory, and its processes.
struct Hog {
    cgroup: PathBuf,
    processes: Vec<Child>,
}

impl Hog {
    /// An error if this machine has no memory cgroup or no PSI for us.
    fn new() -> Result<Self, String> {
        let name = format!("nodelet-test-{}", std::process::id());
        let (parent, limit) = if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let cgroup = Path::new(parent).join(name);
        fs::create_dir(&cgroup).map_err(|e| format!("{}: {e}", cgroup.display()))?;
        let hog = Self { cgroup, processes: Vec::new() };
        let file = hog.cgroup.join(limit);
        fs::write(&file, "25165824").map_err(|e| format!("{}: {e}", file.display()))?;
        let pressure = "/proc/pressure/memory";
        match fs::OpenOptions::new().write(true).open(pressure) {
            Ok(mut trigger) => trigger.write_all(b"some 50000 2000000\0"),
            Err(e) => Err(e),
        }
        .map_err(|e| format!("{pressure}: {e}"))?;
        Ok(hog)
    }

    /// Eight processes copy a file that is larger than the limit, until drop.
    fn start(&mut self, folder: &Folder) {
        let from = folder.path().join("from");
        for n in 0..8 {
            let script = format!(
                "echo $$ > {}/cgroup.procs && while :; do cp {} {}/to{n}; done",
                self.cgroup.display(),
                from.display(),
                folder.path().display()
            );
            let shell = Command::new("sh").args(["-c", &script]).stderr(Stdio::null()).spawn();
            self.processes.push(shell.unwrap());
        }
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        // The cgroup is empty once the last `cp` has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.cgroup).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn meminfo(anonymous_kb: u32) -> String {
    format!(
        "MemTotal: 1048576 kB\nBuffers: 0 kB\nCached: 0 kB\nSwapCached: 0 kB\n\
         Inactive(file): 0 kB\nAnonPages: {anonymous_kb} kB\nSwapTotal: 0 kB\n"
    )
}

#[test]
fn memory_pressure_is_on_the_api_server_within_two_seconds() {
    // The kernel alone takes 1.2 to 1.9 s to trigger: three attempts on a busy machine.
    let mut took = Vec::new();
    while took.len() < 3 {
        match Hog::new() {
            Ok(hog) => took.push(onset(hog)),
            Err(why) => {
                return skip::optional(&format!("needs root, a memory cgroup and PSI: {why}"));
            }
        }
        if took.last() < Some(&Duration::from_secs(2)) {
            return;
        }
    }
    panic!("{took:?}");
}

/// Time from the first stalls to the condition on the API server.
fn onset(mut hog: Hog) -> Duration {
    let double = Double::start();
    let folder = Folder::new("pressure");
    for (name, content) in [
        ("proc/meminfo", meminfo(100_000).as_str()),
        ("proc/sys/kernel/random/boot_id", "b\n"),
        ("sys/devices/system/cpu/cpu0/online", "1\n"),
    ] {
        folder.write(name, content);
    }
    let memory = |status: &'static str| {
        let double = &double;
        move || {
            let node: Value = double.get("nodes/pi")?;
            let found = condition(&node, "MemoryPressure")?;
            (found["status"] == status).then_some(())
        }
    };
    // The next tick is a minute away: only the trigger is in time.
    let root = format!("--host-root={}", folder.path().display());
    let board = Board::pi(&double, &folder, &["--node-status-update-frequency=1m", &root]);
    board.watch_threads();
    eventually("no pressure", Duration::from_secs(30), memory("False"));
    eventually("the lease", Duration::from_secs(30), || double.get("leases/pi"));

    fs::write(folder.path().join("from"), vec![7; 40 << 20]).unwrap();
    folder.write("proc/meminfo", meminfo(1_000_000));
    let onset = Instant::now();
    hog.start(&folder);
    eventually("MemoryPressure", Duration::from_secs(30), memory("True"));
    let took = onset.elapsed();
    println!("MemoryPressure on the API server {took:?} after the onset");
    board.assert_one_thread();
    took
}
