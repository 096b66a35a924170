//! `systemd/monitoring/rules.yaml` in a running Prometheus, from a board's kernel files to an
//! alert.
//!
//! `PROMETHEUS` is the program, `KUBE_STATE_METRICS` that of the metrics; it needs a real API
//! server. Without it the test serves the series of the rules in its place, as kube-state-metrics
//! 2.20 exposes them by default.

use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nodelet::kube::time::Wall;
use serde_json::{Value, json};

use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::cluster::program::{Program, free_ports};
use crate::common::prometheus::Prometheus;
use crate::common::raspberry::{self, OOPSES};
use support::{Folder, eventually, skip};

/// Of the control plane; the Leases last as long.
const GRACE: Duration = Duration::from_secs(8);

/// The rules with `for` and `keep_firing_for` of a second.
fn impatient_rules() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/monitoring/rules.yaml");
    let rules = fs::read_to_string(path).unwrap();
    let shorten = |line: &str| match line.split_once("for: ") {
        Some((key, _)) if ["", "keep_firing_"].contains(&key.trim()) => format!("{key}for: 1s\n"),
        _ => format!("{line}\n"),
    };
    rules.lines().map(shorten).collect()
}

/// The series of the rules, in the text format of Prometheus.
fn series(cluster: &Cluster) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found = String::new();
    for node in cluster.list("/api/v1/nodes") {
        let name = text(&node["metadata"]["name"]);
        let version = text(&node["status"]["nodeInfo"]["kubeletVersion"]);
        writeln!(found, "kube_node_info{{node=\"{name}\",kubelet_version=\"{version}\"}} 1")
            .unwrap();
        for condition in node["status"]["conditions"].as_array().unwrap() {
            for status in ["True", "False", "Unknown"] {
                let value = u8::from(condition["status"] == status);
                let (kind, status) = (text(&condition["type"]), status.to_lowercase());
                let labels = format!("node=\"{name}\",condition=\"{kind}\",status=\"{status}\"");
                writeln!(found, "kube_node_status_condition{{{labels}}} {value}").unwrap();
            }
        }
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    for lease in cluster.list(leases) {
        let name = text(&lease["metadata"]["name"]);
        let labels = format!("namespace=\"kube-node-lease\",lease=\"{name}\"");
        if let Some(time) = Wall::parse(&text(&lease["spec"]["renewTime"])) {
            writeln!(found, "kube_lease_renew_time{{{labels}}} {}", time.seconds()).unwrap();
        }
    }
    found
}

/// What Prometheus scrapes: kube-state-metrics, or the test, which answers between two looks.
struct Metrics {
    port: u16,
    _program: Option<Program>,
    stand_in: Option<TcpListener>,
}

impl Metrics {
    fn start(cluster: &Cluster, folder: &Folder) -> Self {
        let program = std::env::var_os("KUBE_STATE_METRICS");
        let (Some(program), Some(admin)) = (program, cluster.admin_kubeconfig()) else {
            skip::optional(
                "kube-state-metrics: KUBE_STATE_METRICS is unset, or there is no real API server; \
                 the test serves its series",
            );
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let port = listener.local_addr().unwrap().port();
            return Self { port, _program: None, stand_in: Some(listener) };
        };
        let [port, telemetry] = free_ports();
        let mut command = Command::new(program);
        command.arg("--kubeconfig").arg(admin).args([
            "--resources=nodes,leases",
            "--host=127.0.0.1",
            "--telemetry-host=127.0.0.1",
            &format!("--port={port}"),
            &format!("--telemetry-port={telemetry}"),
        ]);
        let program = Program::start(command, folder.path().join("kube-state-metrics.log"));
        Self { port, _program: Some(program), stand_in: None }
    }

    /// Answers a scrape that waits.
    fn serve(&self, cluster: &Cluster) {
        let Some(listener) = &self.stand_in else {
            return;
        };
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        };
        stream.set_nonblocking(false).unwrap();
        // The request of a scrape is one segment, and its content is known.
        let _ = stream.read(&mut [0; 4096]);
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        // A scrape that was given up is repeated.
        let _ = stream.write_all([head, &series(cluster)].concat().as_bytes());
    }
}

#[test]
fn each_recording_rule_has_a_value_and_a_killed_board_is_silent() {
    let Some(program) = Prometheus::program() else {
        return;
    };
    let cluster = Cluster::start(GRACE);
    let folder = Folder::new("prometheus");
    let root = raspberry::healthy(&folder);
    folder.write(OOPSES, "1\n");
    let name = cluster.node_name("monitored");
    let kubeconfig = cluster.kubeconfig(&name);
    let start = || Board::fast(&kubeconfig, &name, &["--host-root", &root, "--node-ip=::"]);
    let board = start();
    let metrics = Metrics::start(&cluster, &folder);
    folder.write("rules.yaml", impatient_rules());
    let targets = json!([{"targets": [format!("127.0.0.1:{}", metrics.port)]}]);
    let config = json!({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "ksm", "honor_labels": true, "static_configs": targets}],
    });
    let prometheus = Prometheus::start(program, &folder, &config);
    let limit = Duration::from_secs(60);
    let until = |what: &str, is_so: &dyn Fn() -> Option<bool>| {
        eventually(what, limit, || {
            metrics.serve(&cluster);
            is_so().filter(|so| *so).map(|_| ())
        });
    };
    let is = |series: &'static str, value: f64| {
        let (name, prometheus) = (&name, &prometheus);
        move || Some(prometheus.value(series, name)? == value)
    };
    let fires = |alert: &'static str, want: bool| {
        let (name, prometheus) = (&name, &prometheus);
        move || Some(prometheus.fires(alert, name)? == want)
    };
    for (series, value) in [
        ("nodelet:board", 1.0),
        ("nodelet:board_ready", 1.0),
        ("nodelet:board_silent", 0.0),
        ("nodelet:board_problem", 1.0),
        ("nodelet:kubelet_minor", 36.0),
    ] {
        until(series, &is(series, value));
    }
    let age = prometheus.value("nodelet:lease_age_seconds", &name).unwrap();
    assert!((-1.0..20.0).contains(&age), "{age}");
    until("the oops", &fires("NodeletBoardKernelDeadlock", true));
    assert_eq!(prometheus.fires("NodeletBoardSilent", &name), Some(false));
    drop(board);
    until("a silent board", &fires("NodeletBoardSilent", true));
    until("no news of it", &fires("NodeletBoardKernelDeadlock", false));
    let _board = start();
    until("the board is back", &fires("NodeletBoardSilent", false));
}
