//! k3s: the server that the variable `K3S_SERVER` names, or the double of its supervisor.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use apidouble::Double;
use support::{Folder, eventually, skip};

use super::program::{Program, free_ports};
use super::{ALONE, Cluster, Kind};

/// A server without an agent of its own.
pub struct K3s {
    /// Killed before its folder is removed.
    _server: Option<Program>,
    pub cluster: Cluster,
    /// Of the supervisor.
    pub url: String,
    pub token_file: PathBuf,
}

/// From its start to its files; k3s unpacks itself first.
const START: Duration = Duration::from_secs(120);
/// What no board needs.
const ADDONS: &str = "--disable=coredns,servicelb,traefik,local-storage,metrics-server";

impl K3s {
    /// The double, and a skip, without `K3S_SERVER`.
    pub fn start() -> Self {
        let Some(program) = std::env::var_os("K3S_SERVER") else {
            skip::optional("a real k3s server: K3S_SERVER is unset; the double is used");
            let double = Double::start();
            double.set_supervisor(|_| {});
            let hash = Double::sha256(double.ca_pem().as_bytes());
            let url = double.url();
            let cluster = Cluster::on(double);
            let token = format!("K10{hash}::server:pa55:word\n");
            let token_file = cluster.folder.write("node-token", token);
            return Self { _server: None, cluster, url, token_file };
        };
        let alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let folder = Folder::new("k3s");
        let path = |name: &str| folder.path().join(name);
        let (admin, token_file) = (path("admin"), path("data/server/node-token"));
        // The API server listens at the port after it.
        let [port] = free_ports();
        let mut command = Command::new(program);
        command.args(["server", "--disable-agent", "--bind-address=127.0.0.1", ADDONS]);
        command.arg(format!("--https-listen-port={port}"));
        command.arg("--data-dir").arg(path("data"));
        command.arg("--write-kubeconfig").arg(&admin);
        let mut server = Program::start(command, path("k3s.log"));
        eventually("the files of k3s", START, || {
            if let Some(end) = server.ended() {
                panic!("k3s: {end}");
            }
            [&admin, &token_file].iter().all(|file| file.exists()).then_some(())
        });
        Self {
            _server: Some(server),
            cluster: Cluster { kind: Kind::Existing(admin), folder, _alone: Some(alone) },
            url: format!("https://127.0.0.1:{port}"),
            token_file,
        }
    }
}
