//! `cargo bench --bench heartbeat`: costs of the heartbeat on this machine, in 18 minutes, beside
//! the goals.
//!
//! Against the API double, or a real control plane with `KUBEBUILDER_ASSETS`. Where that folder
//! also has `kubemark`, a hollow kubelet runs at the same time with the same API server. So does a
//! real kubelet with `KUBELET=<command>`; the bench adds `--kubeconfig` and `--hostname-override`,
//! and the container runtime must run. With `RUNTIME=unix:///run/containerd/containerd.sock` the
//! agent has this endpoint, and `nodelet runtime` runs beside it. With `NODELET=<binary>` another
//! build is measured, for instance the static one.
#![cfg(test)]
#![allow(clippy::cast_precision_loss, clippy::disallowed_methods, missing_docs, unreachable_pub)]

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
use crate::common::front::{Front, Pace};
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
    link: Front,
    kubeconfig: String,
}

/// Another agent that keeps a Node alive.
struct Peer {
    program: Program,
    way: Way,
}

impl Peer {
    fn read(&self) -> Reading {
        read(self.program.pid(), &self.way.link)
    }
}

impl Site {
    fn new() -> Self {
        Self { cluster: Cluster::start(Duration::from_secs(50)), folder: Folder::new("heartbeat") }
    }

    fn way(&self, node: &str) -> Way {
        let port = self.cluster.port();
        let port = port.expect("not with KUBECONFIG; use KUBEBUILDER_ASSETS");
        let link = Front::to(port, Pace::NONE);
        let text = fs::read_to_string(self.cluster.kubeconfig(node)).unwrap();
        let kubeconfig = self.folder.write(node, link.kubeconfig(&text, port));
        Way { kubeconfig: kubeconfig.display().to_string(), link }
    }

    /// Until 15 s after the registration.
    fn settle(&self, node: &str) {
        eventually("the Lease", MINUTE, || self.cluster.lease(node));
        sleep(Duration::from_secs(15));
    }

    /// The kubelet of `KUBELET`.
    fn kubelet(&self) -> Option<Peer> {
        let Ok(command) = std::env::var("KUBELET") else {
            skip::optional("a kubelet: no KUBELET");
            return None;
        };
        let way = self.way("kubelet");
        let mut shell = Command::new("sh");
        let script = format!("exec {command} \"$@\"");
        shell.args(["-c", &script, "sh", "--hostname-override=kubelet"]);
        shell.arg(format!("--kubeconfig={}", way.kubeconfig));
        let program = Program::start(shell, self.folder.path().join("kubelet.log"));
        self.settle("kubelet");
        Some(Peer { program, way })
    }

    /// A hollow kubelet: kubemark, the kubelet's code without containers.
    fn hollow_kubelet(&self) -> Option<Peer> {
        if kubelet::asset("kubemark").is_none() {
            skip::optional("a hollow kubelet: no kubemark in KUBEBUILDER_ASSETS");
            return None;
        }
        let way = self.way("hollow");
        let program = self.cluster.kubelet("hollow", &way.kubeconfig, "");
        self.settle("hollow");
        Some(Peer { program, way })
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

fn read(process: u32, link: &Front) -> Reading {
    let tasks = tasks(process);
    let [up, down] = link.bytes().map(|bytes| bytes as f64);
    Reading {
        cpu_nanoseconds: tasks.iter().map(|task| cpu_nanoseconds(task)).sum(),
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

fn start(args: &[String]) -> Board {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Board::start(&args)
}

/// A line of the table: figure, goal, and the value of a reading.
type Row = (&'static str, &'static str, fn(&Reading) -> String);

const ROWS: [Row; 7] = [
    ("bytes/min up, status reports included", "", |reading| whole(reading.up)),
    ("bytes/min down, status reports included", "", |reading| whole(reading.down)),
    ("bytes/min", "0.80 of the kubelet", |reading| whole(reading.up + reading.down)),
    ("CPU, ms/min", "1/175 of the kubelet", |reading| {
        format!("{:.2}", reading.cpu_nanoseconds / 1e6)
    }),
    ("context switches/min", "20", |reading| whole(reading.switches)),
    ("resident memory, KiB", "1,700", |reading| reading.resident_kibibytes.to_string()),
    ("private dirty memory, KiB", "240", |reading| reading.dirty_kibibytes.to_string()),
];

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

fn main() {
    // Not in `cargo test --benches`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let site = Site::new();
    let way = site.way("board");
    let first_request = start_to_request(&site, &way);
    let bare_start = bare_start();

    let peers = [site.kubelet(), site.hollow_kubelet()];
    let mut args =
        vec![format!("--kubeconfig={}", way.kubeconfig), "--hostname-override=board".to_owned()];
    let runtime = std::env::var("RUNTIME").ok().map(|endpoint| {
        let facts = site.folder.path().join("facts");
        args.push(format!("--container-runtime-endpoint={endpoint}"));
        args.push(format!("--container-runtime-facts={}", facts.display()));
        start(&[&["runtime".to_owned()], args.as_slice()].concat())
    });
    let board = start(&args);
    site.settle("board");
    // Its checks of the Node are frequent for 135 s after the start.
    sleep(MINUTE * 2);
    let process = board.pid().as_raw().cast_unsigned();
    let runtime_cpu = || {
        let runtime = runtime.as_ref().map(Board::pid);
        runtime.map(|pid| cpu_nanoseconds(&format!("/proc/{pid}/task/{pid}")))
    };
    let read_all = || {
        let peers = peers.each_ref();
        let peers = peers.map(|peer| peer.as_ref().map(Peer::read));
        (read(process, &way.link), peers, runtime_cpu())
    };
    let bare = spawn(bare_minute);
    let before = read_all();
    sleep(MINUTE * MINUTES);
    let after = read_all();
    let bare = bare.join().unwrap();
    let ours = a_minute(&before.0, after.0);
    let grown = |before: Option<Reading>, after: Option<Reading>| {
        let both = before.zip(after);
        both.map(|(before, after)| a_minute(&before, after))
    };
    let ([kubelet_before, hollow_before], [kubelet, hollow]) = (before.1, after.1);
    let (kubelet, hollow) = (grown(kubelet_before, kubelet), grown(hollow_before, hollow));
    let threads = tasks(process).len();
    let runtime = runtime.zip(before.2.zip(after.2));
    let runtime = runtime.map(|(service, (before, after))| {
        (service.kibibytes("Private_Dirty"), (after - before) / f64::from(MINUTES))
    });
    drop(board);

    println!("| figure | kubelet | hollow kubelet | goal | nodelet |");
    println!("|---|---|---|---|---|");
    for (figure, goal, value) in ROWS {
        let peer = |reading: &Option<Reading>| match reading {
            Some(reading) => value(reading),
            None => "not run".to_owned(),
        };
        let [kubelet, hollow] = [&kubelet, &hollow].map(peer);
        println!("| {figure} | {kubelet} | {hollow} | {goal} | {} |", value(&ours));
    }
    let milliseconds = |seconds: f64| format!("{:.1}", seconds * 1e3);
    println!("threads: {threads}");
    match first_request {
        Some(time) => {
            println!("start to first request: {} ms; goal: 2.5", milliseconds(time.as_secs_f64()))
        }
        None => println!("start to first request: measured with the double alone"),
    }
    println!("start that does nothing: {} ms", milliseconds(bare_start.as_secs_f64()));
    println!(
        "CPU of a thread that sends and gets a byte as often: {} ms/min",
        milliseconds(bare / 1e9)
    );
    if let Some((dirty, cpu)) = runtime {
        let cpu = milliseconds(cpu / 1e9);
        println!("nodelet runtime: {cpu} ms/min, {dirty} KiB of private dirty memory");
    }
    if let Some(kubelet) = kubelet {
        println!(
            "CPU: 1/{:.0} of the kubelet; bytes: {:.2}",
            kubelet.cpu_nanoseconds / ours.cpu_nanoseconds,
            (ours.up + ours.down) / (kubelet.up + kubelet.down)
        );
        if let Some((_, cpu)) = runtime {
            let pair = ours.cpu_nanoseconds + cpu;
            println!("with nodelet runtime: 1/{:.0}", kubelet.cpu_nanoseconds / pair);
        }
    }
    drop(site.folder);
}
