//! `cargo bench --bench heartbeat`: costs of the heartbeat on this machine, in 16 minutes, beside
//! those of the kubelet v1.36.2 (issues 5 and 12) and the budgets.
//!
//! Against the API double, or a real control plane with `KUBEBUILDER_ASSETS`. Where that folder also
//! has `kubemark`, a hollow kubelet runs at the same time with the same API server. With
//! `NODELET=<binary>` another build is measured, for instance the static one. With `KUBELET_PID=<pid>`
//! the CPU time of that process, a kubelet on this machine, stands in the kubelet's column.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    missing_docs,
    unreachable_pub
)]

#[path = "../common/mod.rs"]
mod common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use crate::common::board;
use crate::common::board::Board;
use crate::common::cluster::program::Program;
use crate::common::cluster::{Cluster, kubelet};
use crate::common::link::{Link, Pace};
use support::{Folder, eventually, skip};

const MINUTE: Duration = Duration::from_secs(60);

/// Minutes of the measurement, with three status reports: one each five minutes.
const MINUTES: u32 = 15;

struct Site {
    cluster: Cluster,
    folder: Folder,
}

/// The way of one node to the server, whose bytes are counted.
struct Way {
    link: Link,
    kubeconfig: String,
}

impl Site {
    fn new() -> Self {
        Self {
            cluster: Cluster::start(Duration::from_secs(50)),
            folder: Folder::new("heartbeat"),
        }
    }

    fn way(&self, node: &str) -> Way {
        let port = self.cluster.port();
        let port = port.expect("not with KUBECONFIG; use KUBEBUILDER_ASSETS");
        let link = Link::to(port, Pace::NONE);
        let text = fs::read_to_string(self.cluster.kubeconfig(node)).unwrap();
        let kubeconfig = self.folder.write(node, link.kubeconfig(&text, port));
        Way {
            kubeconfig: kubeconfig.display().to_string(),
            link,
        }
    }

    /// Until 15 s after the registration.
    fn settle(&self, node: &str) {
        eventually("the Lease", MINUTE, || self.cluster.lease(node));
        sleep(Duration::from_secs(15));
    }

    /// A hollow kubelet: kubemark, the kubelet's code without containers.
    fn hollow_kubelet(&self) -> Option<(Program, Way)> {
        if kubelet::asset("kubemark").is_none() {
            skip::optional("a hollow kubelet: no kubemark in KUBEBUILDER_ASSETS");
            return None;
        }
        let way = self.way("hollow");
        let process = self.cluster.kubelet("hollow", &way.kubeconfig, "");
        self.settle("hollow");
        Some((process, way))
    }
}

/// Counters, or what they grew by.
struct Reading {
    cpu_nanoseconds: f64,
    switches: f64,
    up: f64,
    down: f64,
    resident_kibibytes: u64,
    dirty_kibibytes: u64,
}

fn read(process: u32, link: &Link) -> Reading {
    let tasks = tasks(process);
    let [up, down] = link.bytes().map(|bytes| bytes as f64);
    Reading {
        cpu_nanoseconds: nanoseconds_of(&tasks),
        switches: tasks.iter().map(|task| switches(task)).sum(),
        up,
        down,
        resident_kibibytes: board::kibibytes(process, "Rss"),
        dirty_kibibytes: board::kibibytes(process, "Private_Dirty"),
    }
}

/// The folders of the threads of a process.
fn tasks(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let path = |task: std::io::Result<fs::DirEntry>| task.unwrap().path().display().to_string();
    tasks.map(path).collect()
}

/// CPU time so far of the kubelet that `KUBELET_PID` names.
fn kubelet_nanoseconds() -> Option<f64> {
    let process = std::env::var("KUBELET_PID").ok()?;
    let process = process.parse().expect("KUBELET_PID is a number");
    Some(nanoseconds_of(&tasks(process)))
}

/// CPU time so far of these threads.
fn nanoseconds_of(tasks: &[String]) -> f64 {
    tasks.iter().map(|task| cpu_nanoseconds(task)).sum()
}

fn switches(task: &str) -> f64 {
    let status = fs::read_to_string(format!("{task}/status")).unwrap();
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    let count = |line: &str| line.split_whitespace().nth(1)?.parse::<f64>().ok();
    lines.filter_map(count).sum()
}

/// What the counters grew by in a minute, and the memory at the end.
fn a_minute(before: &Reading, after: Reading) -> Reading {
    let minutes = f64::from(MINUTES);
    Reading {
        cpu_nanoseconds: (after.cpu_nanoseconds - before.cpu_nanoseconds) / minutes,
        switches: (after.switches - before.switches) / minutes,
        up: (after.up - before.up) / minutes,
        down: (after.down - before.down) / minutes,
        ..after
    }
}

/// CPU time so far of a thread, by its folder.
fn cpu_nanoseconds(task: &str) -> f64 {
    let schedstat = fs::read_to_string(format!("{task}/schedstat")).unwrap();
    schedstat.split(' ').next().unwrap().parse().unwrap()
}

/// A lower bound: CPU time of a thread that sends a byte every 10 s for a minute and waits for the
/// answer. Deep sleep states and shared cores add to it as to the agent.
fn bare_minute() -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let before = cpu_nanoseconds("/proc/thread-self");
    for _ in 0..6 {
        sleep(MINUTE / 6);
        near.write_all(&[0]).unwrap();
        near.read_exact(&mut [0]).unwrap();
    }
    cpu_nanoseconds("/proc/thread-self") - before
}

/// Duration of `nodelet --version`; the minimum of 20.
fn bare_start() -> Duration {
    let tries = (0..20).map(|_| {
        let start = Instant::now();
        let mut process = Command::new(board::binary());
        let process = process.arg("--version").stdout(Stdio::null());
        assert!(process.status().unwrap().success());
        start.elapsed()
    });
    tries.min().unwrap()
}

/// Time from the start of the process to its first request; the minimum of 20, because a busy
/// machine only adds to it.
fn start_to_request(site: &Site, way: &Way) -> Option<Duration> {
    let double = site.cluster.double()?;
    let kubeconfig = format!("--kubeconfig={}", way.kubeconfig);
    let tries = (0..20).map(|_| {
        double.clear_requests();
        let board = Board::start(&[&kubeconfig, "--hostname-override=board"]);
        let first = eventually("a request", MINUTE, || double.requests().into_iter().next());
        // Like the kubelet, it waits for 100 ms before it registers.
        first.at.duration_since(board.started) - Duration::from_millis(100)
    });
    tries.min()
}

fn row(figure: &str, kubelet: &str, hollow: &str, budget: &str, ours: &str) {
    println!("| {figure} | {kubelet} | {hollow} | {budget} | {ours} |");
}

fn main() {
    // Not in `cargo test --benches`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let site = Site::new();
    let way = site.way("board");
    let start = start_to_request(&site, &way);
    let bare_start = bare_start();

    let hollow = site.hollow_kubelet();
    let kubeconfig = format!("--kubeconfig={}", way.kubeconfig);
    let board = Board::start(&[&kubeconfig, "--hostname-override=board"]);
    site.settle("board");
    let process = board.pid().as_raw().cast_unsigned();
    let read_both = || {
        let hollow = hollow.as_ref();
        let hollow = hollow.map(|(program, way)| read(program.pid(), &way.link));
        (read(process, &way.link), hollow)
    };
    let bare = spawn(bare_minute);
    let (kubelet, before) = (kubelet_nanoseconds(), read_both());
    sleep(MINUTE * MINUTES);
    let (kubelet, after) = (kubelet.zip(kubelet_nanoseconds()), read_both());
    let bare = bare.join().unwrap();
    let ours = a_minute(&before.0, after.0);
    let theirs = before.1.zip(after.1);
    let theirs = theirs.map(|(before, after)| a_minute(&before, after));
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .unwrap()
        .count();
    drop(board);

    let hollow = |figure: fn(&Reading) -> f64| {
        let figure = theirs.as_ref().map(figure);
        figure.map_or("not run".to_owned(), |figure| format!("{figure:.0}"))
    };
    let both: fn(&Reading) -> f64 = |reading| reading.up + reading.down;
    let milliseconds = |nanoseconds: f64| format!("{:.1}", nanoseconds / 1e6);

    row(
        "figure",
        "kubelet v1.36.2",
        "hollow kubelet, this run",
        "budget",
        "nodelet",
    );
    row("---", "---", "---", "---", "---");
    row(
        "bytes/min up, status reports included",
        "3,318",
        &hollow(|reading| reading.up),
        "",
        &format!("{:.0}", ours.up),
    );
    row(
        "bytes/min down, status reports included",
        "4,851",
        &hollow(|reading| reading.down),
        "",
        &format!("{:.0}", ours.down),
    );
    row(
        "bytes/min",
        "8,169",
        &hollow(both),
        "",
        &format!("{:.0}", both(&ours)),
    );
    let kubelet = kubelet.map(|(before, after)| (after - before) / f64::from(MINUTES));
    row(
        "CPU, ms/min",
        &kubelet.map_or("356.8".to_owned(), milliseconds),
        &hollow(|reading| reading.cpu_nanoseconds / 1e6),
        "2.5",
        &milliseconds(ours.cpu_nanoseconds),
    );
    row(
        "of a thread that sends and gets a byte as often",
        "",
        "",
        "",
        &milliseconds(bare),
    );
    row(
        "context switches/min",
        "11,546",
        &hollow(|reading| reading.switches),
        "40",
        &format!("{:.0}", ours.switches),
    );
    row(
        "resident memory, KiB",
        "93,084",
        &hollow(|reading| reading.resident_kibibytes as f64),
        "1,600",
        &ours.resident_kibibytes.to_string(),
    );
    row(
        "private dirty memory, KiB",
        "24,064",
        &hollow(|reading| reading.dirty_kibibytes as f64),
        "240",
        &ours.dirty_kibibytes.to_string(),
    );
    row("threads", "10", "", "1", &threads.to_string());
    let start = start.map_or("only with the double".to_owned(), |time| {
        format!("{:.1}", time.as_secs_f64() * 1e3)
    });
    row("start to first request, ms", "", "", "3", &start);
    let bare = format!("{:.1}", bare_start.as_secs_f64() * 1e3);
    row(
        "of which a start that does nothing takes",
        "",
        "",
        "",
        &bare,
    );
    drop(site.folder);
}
