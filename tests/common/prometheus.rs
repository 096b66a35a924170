//! A running Prometheus. `PROMETHEUS` is the program.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::Value;

use crate::common::cluster::program::{Program, free_ports};
use support::{Folder, skip};

pub struct Prometheus {
    port: u16,
    _running: Program,
}

impl Prometheus {
    /// The program; `None`, and a skip that CI does not accept, without one.
    pub fn program() -> Option<OsString> {
        let program = std::env::var_os("PROMETHEUS");
        if program.is_none() {
            skip::required("PROMETHEUS is unset: .ci/run sets it");
        }
        program
    }

    /// `config` is its configuration file: JSON is YAML.
    pub fn start(program: OsString, folder: &Folder, config: &Value) -> Self {
        let config = folder.write("prometheus.yaml", config.to_string());
        let [port] = free_ports();
        let mut command = Command::new(program);
        command.args([
            format!("--config.file={}", config.display()),
            format!("--storage.tsdb.path={}", folder.path().join("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]);
        let running = Program::start(command, folder.path().join("prometheus.log"));
        Self { port, _running: running }
    }

    /// The `data` of a response; `None` while it starts.
    pub fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.write_all(format!("GET /api/v1/{path} HTTP/1.0\r\n\r\n").as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()?;
        body.get("data").cloned()
    }

    /// The last value of a series of the Node.
    pub fn value(&self, series: &str, node: &str) -> Option<f64> {
        let data = self.get(&format!("query?query={series}"))?;
        let mut results = data["result"].as_array()?.iter();
        let found = results.find(|result| result["metric"]["node"] == node)?;
        found["value"][1].as_str()?.parse().ok()
    }

    /// Whether an alert fires for the Node.
    pub fn fires(&self, alert: &str, node: &str) -> Option<bool> {
        let alerts = self.get("alerts")?;
        let is_it = |found: &Value| {
            found["state"] == "firing"
                && found["labels"]["alertname"] == alert
                && found["labels"]["node"] == node
        };
        Some(alerts["alerts"].as_array()?.iter().any(is_it))
    }
}
