//! Real programs at the port: Prometheus, a kube-apiserver that forwards requests, metrics-server.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use apidouble::Double;
use nodelet::client::api::Api;
use nodelet::client::api_config::Endpoint;
use nodelet::credentials::kubeconfig;
use nodelet::kube::message::{Accept, Request, Response};
use serde_json::{Value, json};

use super::{SOON, Served, flags};
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::cluster::program::{Program, free_ports};
use crate::common::prometheus::Prometheus;
use support::{Folder, eventually, skip};

/// Of the control plane.
const GRACE: Duration = Duration::from_secs(8);
/// metrics-server needs two scrapes, 10 s apart at least.
const TWO_SCRAPES: Duration = Duration::from_secs(60);

/// The paths of the scrape configuration of kube-prometheus, and that of metrics-server.
const SCRAPED: [&str; 5] =
    ["/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis", "/metrics/resource"];

#[test]
fn prometheus_finds_each_path_up() {
    let Some(program) = Prometheus::program() else {
        return;
    };
    let double = Double::builder().token("scraper", "prometheus", &["system:masters"]).start();
    let folder = Folder::new("serve-prometheus");
    let served = Served::start(&flags(&double, &folder));
    let job = |path: &str| {
        json!({
            "job_name": path,
            "scheme": "https",
            "metrics_path": path,
            "authorization": {"credentials": "scraper"},
            "tls_config": {"insecure_skip_verify": true},
            "static_configs": [{"targets": [format!("127.0.0.1:{}", served.port)]}],
        })
    };
    let config = json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": SCRAPED.map(job),
    });
    let prometheus = Prometheus::start(program, &folder, &config);
    eventually("all paths", SOON, || {
        let data = prometheus.get("query?query=up")?;
        let results = data["result"].as_array()?;
        let is_up = |path: &str| {
            let mut results = results.iter();
            results.any(|up| up["metric"]["job"] == *path && up["value"][1] == "1")
        };
        SCRAPED.iter().all(|path| is_up(path)).then_some(())
    });
    let value = |series| prometheus.value(series, "pi");
    eventually("the name", SOON, || value("kubelet_node_name").filter(|value| *value == 1.0));
}

/// An address of this machine that an API server accepts: it refuses loopback for a Node.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Sends nothing.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// A GET as administrator.
fn get(api: &mut Api, path: &str) -> Response {
    let request = Request::get(path.to_owned(), Accept::Object);
    match api.call(&request, Duration::from_secs(10)) {
        Ok(response) => response,
        Err(why) => panic!("{path}: {why}"),
    }
}

/// `kubectl get --raw /api/v1/nodes/NAME/proxy/PATH`, and `kubectl top node`.
#[test]
fn the_api_server_and_metrics_server_reach_the_port() {
    let Some(cluster) = Cluster::start_real(GRACE) else {
        return;
    };
    let Some(address) = own_address() else {
        return skip::optional("this machine has no address but loopback");
    };
    if cluster.port().is_none() {
        return skip::optional("this cluster may not reach the test's port");
    }
    let folder = Folder::new("serve-real");
    let name = cluster.node_name("served");
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig(&name));
    let hostname = format!("--hostname-override={name}");
    let state = format!("--state-file={}", folder.path().join("state").display());
    let common = [kubeconfig.as_str(), &hostname, &state];
    let listen = format!("--listen={address}:0");
    let served = Served::start(&[&common[..], &[&listen]].concat());
    let (port, ip) = (format!("--port={}", served.port), format!("--node-ip={address}"));
    let _board = Board::start(&[&common[..], &[&port, &ip]].concat());
    let node = format!("/api/v1/nodes/{name}");
    eventually("the Node", SOON, || cluster.get(&node));
    let admin = kubeconfig::load(cluster.admin_kubeconfig().unwrap(), None).unwrap();
    let mut api = Api::new(&admin).unwrap();
    eventually("a healthy board", SOON, || {
        let health = get(&mut api, &format!("{node}/proxy/healthz"));
        (health.code == 200 && health.body == b"ok").then_some(())
    });
    for path in SCRAPED {
        assert_eq!(get(&mut api, &format!("{node}/proxy{path}")).code, 200, "{path}");
    }

    let Some(program) = std::env::var_os("METRICS_SERVER") else {
        return skip::optional("metrics-server: METRICS_SERVER is unset");
    };
    let [port] = free_ports();
    let file = cluster.admin_kubeconfig().unwrap().display().to_string();
    let mut command = Command::new(program);
    command.args([
        format!("--kubeconfig={file}"),
        format!("--authentication-kubeconfig={file}"),
        format!("--authorization-kubeconfig={file}"),
        format!("--cert-dir={}", folder.path().display()),
        format!("--secure-port={port}"),
        "--kubelet-insecure-tls".to_owned(),
        "--kubelet-use-node-status-port".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--metric-resolution=15s".to_owned(),
    ]);
    let log = folder.path().join("metrics-server.log");
    let _metrics_server = Program::start(command, log.clone());
    let endpoint = Endpoint::parse(&format!("https://127.0.0.1:{port}")).unwrap();
    let mut admin = admin;
    (admin.endpoint, admin.insecure, admin.ca) = (endpoint, true, None);
    let mut api = Api::new(&admin).unwrap();
    let path = format!("/apis/metrics.k8s.io/v1beta1/nodes/{name}");
    let request = Request::get(path, Accept::Object);
    let usage = eventually("the metrics", TWO_SCRAPES, || {
        match api.call(&request, Duration::from_secs(5)) {
            Ok(answer) if answer.code == 200 => {
                let metrics: Value = serde_json::from_slice(&answer.body).ok()?;
                metrics.get("usage").cloned()
            }
            _ => None,
        }
    });
    let log = fs::read_to_string(log).unwrap_or_default();
    assert!(usage["cpu"].is_string() && usage["memory"].is_string(), "{usage} {log}");
}
