//! `cargo bench --bench heartbeat`: costs of the heartbeat on this machine, in four minutes, beside
//! those of the kubelet v1.36.2 and the budgets of issue 5.
//!
//! Against the API double, or a real control plane with `KUBEBUILDER_ASSETS`. With
//! `NODELET=<binary>` another build is measured, for instance the static one.
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

use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::link::{Link, Pace};
use crate::common::{board, ptrace};
use support::{Folder, eventually};

const MINUTE: Duration = Duration::from_secs(60);

/// Reports in the minute that measures them, and the factor by which they are rarer by default.
const REPORTS: f64 = 3.0;
const RARER: f64 = 5.0;

struct Site {
    cluster: Cluster,
    folder: Folder,
    link: Link,
    kubeconfig: String,
}

impl Site {
    fn new() -> Self {
        let cluster = Cluster::start(Duration::from_secs(50));
        let port = cluster
            .port()
            .expect("not with KUBECONFIG; use KUBEBUILDER_ASSETS");
        let folder = Folder::new("heartbeat");
        let link = Link::to(port, Pace::NONE);
        let text = fs::read_to_string(cluster.kubeconfig("board")).unwrap();
        let kubeconfig = folder.write("kubeconfig", link.kubeconfig(&text, port));
        Self {
            kubeconfig: kubeconfig.to_str().unwrap().to_owned(),
            cluster,
            folder,
            link,
        }
    }

    /// A board 15 s after its registration.
    fn board(&self, more: &[&str]) -> Board {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig);
        let args = [&[kubeconfig.as_str(), "--hostname-override=board"], more].concat();
        let board = Board::start(&args);
        eventually("the Lease", MINUTE, || self.cluster.lease("board"));
        sleep(Duration::from_secs(15));
        board
    }
}

/// Counters.
struct Reading {
    cpu_nanoseconds: f64,
    switches: f64,
    bytes: f64,
}

fn read(board: &Board, link: &Link) -> Reading {
    let switches = fs::read_to_string(format!("/proc/{}/status", board.pid())).unwrap();
    let switches = switches
        .lines()
        .filter(|line| line.contains("ctxt_switches"));
    Reading {
        cpu_nanoseconds: cpu_nanoseconds(&board.pid().to_string()),
        switches: switches
            .map(|line| {
                line.split_whitespace()
                    .nth(1)
                    .unwrap()
                    .parse::<f64>()
                    .unwrap()
            })
            .sum(),
        bytes: link.bytes() as f64,
    }
}

fn minute(board: &Board, link: &Link) -> Reading {
    let before = read(board, link);
    sleep(MINUTE);
    let after = read(board, link);
    Reading {
        cpu_nanoseconds: after.cpu_nanoseconds - before.cpu_nanoseconds,
        switches: after.switches - before.switches,
        bytes: after.bytes - before.bytes,
    }
}

/// CPU time of a process or a thread so far.
fn cpu_nanoseconds(process: &str) -> f64 {
    let schedstat = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
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
    let before = cpu_nanoseconds("thread-self");
    for _ in 0..6 {
        sleep(MINUTE / 6);
        near.write_all(&[0]).unwrap();
        near.read_exact(&mut [0]).unwrap();
    }
    cpu_nanoseconds("thread-self") - before
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
fn start_to_request(site: &Site) -> Option<Duration> {
    let double = site.cluster.double()?;
    let tries = (0..20).map(|_| {
        double.clear_requests();
        let board = Board::start(&[
            &format!("--kubeconfig={}", site.kubeconfig),
            "--hostname-override=board",
        ]);
        let first = eventually("a request", MINUTE, || double.requests().into_iter().next());
        // Like the kubelet, it waits for 100 ms before it registers.
        first.at.duration_since(board.started) - Duration::from_millis(100)
    });
    tries.min()
}

fn row(figure: &str, kubelet: &str, budget: &str, ours: &str) {
    println!("| {figure} | {kubelet} | {budget} | {ours} |");
}

fn main() {
    // Not in `cargo test --benches`.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let site = Site::new();
    let start = start_to_request(&site);
    let bare_start = bare_start();

    let board = site.board(&[]);
    let bare = spawn(bare_minute);
    let idle = minute(&board, &site.link);
    let bare = bare.join().unwrap();
    let [resident, dirty] = ["Rss", "Private_Dirty"].map(|name| board.kibibytes(name));
    let threads = fs::read_dir(format!("/proc/{}/task", board.pid()))
        .unwrap()
        .count();
    let begin = Instant::now();
    let calls = ptrace::system_calls(board.pid(), || begin.elapsed() >= MINUTE);
    drop(board);

    let board = site.board(&["--node-status-report-frequency=20s"]);
    let reporting = minute(&board, &site.link);
    let report = (reporting.bytes - idle.bytes) / REPORTS;
    drop(board);

    row("figure", "kubelet v1.36.2", "budget", "nodelet");
    row("---", "---", "---", "---");
    row(
        "resident memory, KiB",
        "86,800",
        "2,200",
        &format!("{resident}"),
    );
    row(
        "private dirty memory, KiB",
        "23,200",
        "320",
        &format!("{dirty}"),
    );
    row("threads", "10", "1", &threads.to_string());
    row(
        "CPU, ms/min",
        "250",
        "2.5",
        &format!("{:.1}", idle.cpu_nanoseconds / 1e6),
    );
    row(
        "of a thread that sends and gets a byte as often",
        "",
        "",
        &format!("{:.1}", bare / 1e6),
    );
    row(
        "system calls/min",
        "27,055",
        "110",
        &calls.map_or("not traced".to_owned(), |n| n.to_string()),
    );
    row(
        "context switches/min",
        "13,211",
        "40",
        &format!("{}", idle.switches),
    );
    let bytes = idle.bytes + report / RARER;
    row(
        "bytes/min, status reports included",
        "9,017",
        "5,800",
        &format!("{bytes:.0}"),
    );
    row("bytes of a status report", "", "", &format!("{report:.0}"));
    let start = start.map_or("only with the double".to_owned(), |time| {
        format!("{:.1}", time.as_secs_f64() * 1e3)
    });
    row("start to first request, ms", "", "4", &start);
    let bare = format!("{:.1}", bare_start.as_secs_f64() * 1e3);
    row("of which a start that does nothing takes", "", "", &bare);
    drop(site.folder);
}
