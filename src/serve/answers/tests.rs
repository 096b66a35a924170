//! The bytes of a kubelet v1.36, one request after the other.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::host::Host;
use crate::kube::instant::Mono;
use crate::kube::lease_report::LeaseReport;
use crate::os::clock::{self, since_boot};
use crate::os::root::HostRoot;
use crate::os::tree::Tree;
use crate::serve::access::ReviewCounts;
use crate::serve::config::ServeConfig;

/// A board of kernel files, and the agent's state beside them.
struct Board {
    tree: Tree,
    readings: Readings,
}

/// 2027.
const WALL: u64 = 1_800_000_000;

fn at(second: u64, wall: u64) -> Now {
    let mono = Mono::START.after(Duration::from_secs(second));
    Now { mono, wall: Wall::from_epoch(Duration::from_millis(wall * 1000 + 302)) }
}

impl Board {
    fn new(name: &str) -> Self {
        let tree = Tree::empty(name);
        tree.write("sys/fs/cgroup/cgroup.controllers", b"memory\n");
        tree.write("sys/fs/cgroup/cpu.stat", b"usage_usec 1234567891\n");
        tree.write(
            "sys/fs/cgroup/memory.stat",
            b"anon 48000000\nfile 500000\ninactive_file 265504\n",
        );
        tree.write("proc/meminfo", b"MemTotal: 1000000 kB\nSwapTotal: 7 kB\nSwapFree: 3 kB\n");
        tree.write("proc/net/dev", b"  eth0: 100 2 3 0 0 0 0 0 900 8 7 0 0 0 0 0\n wlan0: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n");
        let state = format!("--state-file={}", tree.path().join("state").display());
        let flags = Flags::of(&[&state, "--hostname-override=pi-1"]);
        let serve = ServeConfig::new(&flags.values).unwrap();
        let config = Config::new(flags, || unreachable!()).unwrap();
        let host = Host::new(HostRoot::new(tree.path()), "/");
        Self { readings: Readings::new(&config, &serve, host), tree }
    }

    /// The agent's last attempt and renewal are so old.
    fn beats(&self, attempted: u64, renewed: u64) {
        let ago = |seconds| since_boot().saturating_sub(Duration::from_secs(seconds));
        let report = LeaseReport {
            attempted: ago(attempted),
            renewed: Some(ago(renewed)),
            lease_duration: Duration::from_secs(40),
            renewals: 9,
            failures: 1,
            boot: 0,
        };
        self.tree.write("state", report.line().as_bytes());
    }

    fn ask_at(&mut self, method: &str, target: &str, now: Now) -> PortAnswer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let asked = Asked { method, path, query, token: None };
        answer(&asked, &mut self.readings, now)
    }

    fn get(&mut self, target: &str) -> PortAnswer {
        self.ask_at("GET", target, at(100, WALL))
    }
}

fn body(answer: &PortAnswer) -> &str {
    str::from_utf8(&answer.body).unwrap()
}

/// Code, type, further headers and body.
fn parts(answer: &PortAnswer) -> (u16, &str, Vec<(&str, &str)>, &str) {
    let headers = answer.headers.iter().map(|(name, value)| (*name, value.as_str()));
    (answer.code, answer.content_type, headers.collect(), body(answer))
}

/// The lines of metrics without types and help: `tests/agent/serve/kubelet.rs` compares those.
fn values(answer: &PortAnswer) -> Vec<&str> {
    body(answer).lines().filter(|line| !line.starts_with('#')).collect()
}

fn no_sniff() -> Vec<(&'static str, &'static str)> {
    vec![("X-Content-Type-Options", "nosniff")]
}

#[test]
fn healthz_is_ok_while_the_agent_tries_to_renew_its_lease() {
    let mut board = Board::new("serve-healthz");
    board.beats(10, 10);
    for (target, want) in [
        ("/healthz?verbose", "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"),
        (
            "/healthz?verbose=&exclude=log&exclude=log",
            "[+]ping ok\n[+]log excluded: ok\n[+]syncloop ok\nhealthz check passed\n",
        ),
        (
            "/healthz?exclude=b&verbose&exclude=%61%22",
            "[+]ping ok\n[+]log ok\n[+]syncloop ok\nwarn: some health checks cannot be excluded: \
             no matches for \"a\\\"\",\"b\"\nhealthz check passed\n",
        ),
        ("/healthz?exclude=ping", "ok"),
    ] {
        assert_eq!(parts(&board.get(target)), (200, TEXT, no_sniff(), want), "{target}");
    }
}

#[test]
fn healthz_fails_without_the_agent() {
    let mut board = Board::new("serve-unhealthy");
    let failed =
        "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n";
    board.beats(301, 301);
    assert_eq!(parts(&board.get("/healthz")), (500, TEXT, no_sniff(), failed));
    assert_eq!(board.get("/healthz?exclude=syncloop").code, 200);
    assert_eq!(
        parts(&board.get("/healthz/syncloop")),
        (500, TEXT, no_sniff(), "internal server error: sync Loop took longer than expected\n")
    );
    // It tries, and the API server is away.
    board.beats(5, 63);
    let codes =
        ["", "/syncloop", "/lease"].map(|check| board.get(&format!("/healthz{check}")).code);
    assert_eq!(codes, [200, 200, 500]);
    // A file on a disk, which the agent wrote before this boot.
    let later = since_boot() + Duration::from_secs(3600);
    for (at, boot) in [(later, 0), (since_boot(), 1)] {
        let other_boot =
            LeaseReport { attempted: at, renewed: Some(at), boot, ..LeaseReport::default() };
        board.tree.write("state", other_boot.line().as_bytes());
        assert_eq!((board.get("/healthz").code, board.get("/healthz/lease").code), (500, 500));
    }
    assert!(!body(&board.get("/metrics")).contains("nodelet_lease"));
}

/// `pkg/kubelet/metrics/collectors/resource_metrics_test.go` TestCollectResourceMetrics: the node,
/// and nil values.
#[test]
fn test_collect_resource_metrics() {
    let mut board = Board::new("serve-resource");
    let answer = board.get("/metrics/resource");
    let start = vec![("Process-Start-Time-Unix", "1799999900")];
    let (code, kind, headers, _) = parts(&answer);
    assert_eq!((code, kind, headers), (200, METRICS, start));
    let want = [
        "node_cpu_usage_seconds_total 1234.567891 1800000000302",
        "node_memory_working_set_bytes 48234496 1800000000302",
        "node_swap_usage_bytes 4096 1800000000302",
        "resource_scrape_error 0",
    ];
    assert_eq!(values(&answer), want);
    // A reading is used for a second, with its own time.
    board.tree.write("sys/fs/cgroup/cpu.stat", b"usage_usec 2000000\n");
    let soon = Now { mono: Mono::START.after(Duration::from_millis(100_999)), ..at(0, WALL + 5) };
    let answer = board.ask_at("GET", "/metrics/resource", soon);
    assert!(body(&answer).contains("_total 1234.567891 1800000004303\n"), "{}", body(&answer));
    let answer = board.ask_at("GET", "/metrics/resource", at(101, WALL + 1));
    assert!(body(&answer).contains("_total 2.000000 1800000001302\n"), "{}", body(&answer));
    for file in ["sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/memory.stat", "proc/meminfo"] {
        std::fs::remove_file(board.tree.path().join(file)).unwrap();
    }
    let answer = board.ask_at("GET", "/metrics/resource", at(102, WALL));
    assert_eq!(values(&answer), ["resource_scrape_error 1"]);
}

/// A scraper takes its own time then.
#[test]
fn a_clock_before_the_build_stamps_nothing() {
    let mut board = Board::new("serve-1970");
    let answer = board.ask_at("GET", "/metrics/resource", at(5, 5));
    assert_eq!(answer.headers, []);
    assert!(body(&answer).contains("_total 1234.567891\n"), "{}", body(&answer));
    assert!(!body(&board.ask_at("GET", "/metrics", at(5, 5))).contains("start_time"));
    assert_eq!(parts(&board.ask_at("GET", "/metrics/slis", at(5, 5))), (200, METRICS, vec![], ""));
    let summary = board.ask_at("GET", "/stats/summary", at(5, 5));
    let summary: Value = serde_json::from_slice(&summary.body).unwrap();
    assert_eq!(summary["node"]["startTime"], Value::Null);
    assert_eq!(summary["node"]["cpu"]["time"], Value::Null);
    let built = clock::built().seconds();
    assert!(!board.ask_at("GET", "/metrics/slis", at(5, built)).body.is_empty());
}

#[test]
fn the_endpoints_about_containers_are_up() {
    let mut board = Board::new("serve-cadvisor");
    let want = "\
# HELP process_start_time_seconds [ALPHA] Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1799999900
";
    for path in ["/metrics/cadvisor", "/metrics/probes", "/metrics/slis"] {
        assert_eq!(body(&board.get(path)), want, "{path}");
    }
}

/// `tests/golden/metrics.txt`.
#[test]
fn the_metrics_are_of_this_process_and_of_the_lease() {
    let mut board = Board::new("serve-metrics");
    board.beats(5, 15);
    let served = &mut board.readings.served;
    served.reviews = ReviewCounts { tokens: 3, access: 4 };
    [200, 401, 200].into_iter().for_each(|code| served.count(code));
    let wall = |seconds| Some(Wall::from_epoch(Duration::from_secs(seconds)));
    (served.client_not_after, served.server_not_after) = (wall(WALL + 3660), wall(WALL + 3540));
    // The board's clock is an hour behind.
    served.cluster_time = wall(WALL + 3600);
    let answer = board.get("/metrics");
    let resident = |line: &&str| line.starts_with("process_resident_memory_bytes ");
    let resident = body(&answer).lines().find(resident).unwrap().to_owned();
    let text = body(&answer).replace(&resident, "process_resident_memory_bytes <bytes>");
    support::golden("metrics.txt", &text);
    std::fs::remove_file(board.tree.path().join("state")).unwrap();
    assert!(!body(&board.get("/metrics")).contains("nodelet_lease"));
}

#[test]
fn the_summary_has_the_node_and_no_pods() {
    let mut board = Board::new("serve-summary");
    let summary = |board: &mut Board, target: &str, second: u64| {
        let answer = board.ask_at("GET", target, at(second, WALL));
        assert_eq!((answer.code, answer.content_type), (200, "application/json"));
        serde_json::from_slice::<Value>(&answer.body).unwrap()
    };
    let first = summary(&mut board, "/stats/summary", 100);
    let node = &first["node"];
    let time = "2027-01-15T08:00:00Z";
    assert_eq!(first["pods"], json!([]));
    assert_eq!(node["nodeName"], "pi-1");
    assert!(node["startTime"].as_str().unwrap() < time);
    assert_eq!(node["cpu"], json!({"time": time, "usageCoreNanoSeconds": 1_234_567_891_000_u64}));
    assert_eq!(
        node["memory"],
        json!({"time": time, "availableBytes": 975_765_504, "workingSetBytes": 48_234_496})
    );
    assert_eq!(
        node["network"],
        json!({
            "time": time,
            "name": "eth0", "rxBytes": 100, "rxErrors": 3, "txBytes": 900, "txErrors": 7,
            "interfaces": [
                {"name": "eth0", "rxBytes": 100, "rxErrors": 3, "txBytes": 900, "txErrors": 7},
                {"name": "wlan0", "rxBytes": 1, "rxErrors": 0, "txBytes": 2, "txErrors": 0},
            ],
        })
    );
    let swap = json!({"time": time, "swapAvailableBytes": 3072, "swapUsageBytes": 4096});
    assert_eq!(node["swap"], swap);
    let bytes = |key: &str| node["fs"][key].as_u64().unwrap();
    let disk = nix::sys::statvfs::statvfs(board.tree.path()).unwrap();
    // The integer widths differ between targets.
    #[allow(clippy::useless_conversion)]
    let blocks = |number| u64::from(number) * u64::from(disk.fragment_size());
    assert_eq!(bytes("capacityBytes"), blocks(disk.blocks()));
    // Other tests write to this disk.
    let used = blocks(disk.blocks() - disk.blocks_free());
    assert!(bytes("usedBytes").abs_diff(used) < 1 << 30, "{used}");
    assert!(bytes("usedBytes") + bytes("availableBytes") <= bytes("capacityBytes"));
    // A quarter of a core, for two seconds.
    board.tree.write("sys/fs/cgroup/cpu.stat", b"usage_usec 1235067891\n");
    let short = summary(&mut board, "/stats/summary/?only_cpu_and_memory=%74rue", 102);
    assert_eq!(short["node"]["cpu"]["usageNanoCores"], 250_000_000);
    let names: Vec<&String> = short["node"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["cpu", "memory", "nodeName", "startTime", "swap"]);
}

#[test]
fn a_query_is_decoded_as_by_go() {
    for (text, want) in [
        ("", &[][..]),
        ("a", &[""]),
        ("a=1&a=2&b=3", &["1", "2"]),
        ("%61=1+2%203", &["1 2 3"]),
        ("a=1;a=2&a=3", &["3"]),
        ("a=%zz&a=%2&a=%&a=4", &["4"]),
        ("a==&a=b=c", &["=", "b=c"]),
        ("&&aa=1&=2", &[]),
        ("a=%ff", &["\u{fffd}"]),
    ] {
        assert_eq!(query(text, "a").collect::<Vec<_>>(), want, "{text}");
    }
}

#[test]
fn an_answer_to_head_has_its_length_and_no_body() {
    let answer = PortAnswer {
        content_type: "text/plain",
        headers: vec![("Allow", "GET".to_owned())],
        ..PortAnswer::text(405, "no\n")
    };
    let head = "HTTP/1.1 405 Method Not Allowed\r\nContent-Type: text/plain\r\n\
                Content-Length: 3\r\nAllow: GET\r\n";
    let text =
        |is_head, is_last, date| String::from_utf8(answer.render(is_head, is_last, date)).unwrap();
    assert_eq!(text(false, false, None), format!("{head}\r\nno\n"));
    let date = Wall::parse("2026-11-23T14:55:00Z");
    assert_eq!(
        text(true, true, date),
        format!("{head}Date: Mon, 23 Nov 2026 14:55:00 GMT\r\nConnection: close\r\n\r\n")
    );
    assert_eq!(PortAnswer::refusal(431).body, b"431 Request Header Fields Too Large\n");
}
