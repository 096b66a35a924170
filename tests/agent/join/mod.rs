//! `nodelet join` and `nodelet reset` against the API double: from the printed line to the files,
//! and what refuses a token.

mod abuse;
mod busy;
mod front;
mod k3s;
mod k3s_server;
mod kubeadm;
mod printed;
mod ready;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use apidouble::{BootstrapToken, Double};
use serde_json::{Value, json};

use crate::common::api::admin;
use crate::common::board::Board;
use crate::common::command::{Report, command, end};
use crate::common::tree;
use support::Folder;

pub const TOKEN: &str = "lwxivu.2uczm8x4xi2v7hqd";
const SECRET: &str = "2uczm8x4xi2v7hqd";

/// The names of the steps, in their order of printing. Scripts of operators rely on both.
pub const STEPS: &str = "\
    root joined name-resolution tcp cluster-info signature ca tls token csr-create approval \
    namesake certificate renewal files start ready metrics";

/// A cluster, and the root folder of a board.
pub struct Site {
    pub double: Double,
    pub root: Folder,
}

/// The output of one run of the command.
#[derive(Debug)]
pub struct Joined {
    pub code: i32,
    pub report: Report,
    pub stderr: String,
}

impl Joined {
    /// The finding of a step.
    pub fn step(&self, name: &str) -> &Value {
        self.report.finding(name)
    }

    /// The detail of a step, and its remedy.
    pub fn line(&self, name: &str) -> String {
        self.report.line(name)
    }

    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Fails unless this step alone failed, with all parts in its line.
    pub fn failed_at(&self, name: &str, parts: &[&str]) {
        assert_eq!(self.code, 1, "{self:?}");
        assert_eq!(self.report.failed(), [name], "{self:?}");
        let line = self.line(name);
        for part in parts {
            assert!(line.contains(part), "{line}\nlacks {part}");
        }
        assert_eq!(self.report["ok"], false);
        assert!(self.stderr.contains(&format!("join failed: {name}")));
    }
}

impl Site {
    /// A cluster of kubeadm with the token.
    pub fn kubeadm() -> Self {
        let double = Double::builder().kubeadm().start();
        double.add_bootstrap_token(BootstrapToken::new(TOKEN));
        Self::new(double)
    }

    /// A cluster of k3s.
    pub fn k3s() -> Self {
        let site = Self::new(Double::builder().without_kubeadm().start());
        site.double.set_supervisor(|_| {});
        site
    }

    pub fn new(double: Double) -> Self {
        Self { double, root: Folder::new("join") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub fn kubeconfig(&self) -> String {
        self.text("etc/credstore/nodelet.kubeconfig")
    }

    /// All files below the root.
    pub fn files(&self) -> Vec<String> {
        files(self.root.path())
    }

    /// Runs the printed line for the board `pi`, with these arguments behind it.
    pub fn join(&self, more: &[&str]) -> Joined {
        self.join_with(TOKEN, more)
    }

    /// The same with another token of kubeadm.
    pub fn join_with(&self, token: &str, more: &[&str]) -> Joined {
        let line = self.double.join_command(token);
        let args = line.iter().map(String::as_str).chain(["--node-name=pi"]);
        self.run(&args.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// A join of the board `pi` at the server's URL with this token, and without a digest.
    pub fn join_by_url(&self, token: &str, more: &[&str]) -> Joined {
        let url = self.double.url();
        let args = ["join", &url, "--token", token, "--node-name=pi"];
        self.run(&[&args, more].concat())
    }

    /// The server's token, with the hash of `/cacerts` as served.
    pub fn k3s_token(&self) -> String {
        k10(&self.double.ca_pem())
    }

    /// [`run`] below this root.
    pub fn run(&self, args: &[&str]) -> Joined {
        run(self.root.path(), args)
    }

    /// Whether any request had credentials.
    pub fn saw_credentials(&self) -> bool {
        let requests = self.double.requests();
        requests.iter().any(|r| r.header("authorization").is_some())
    }
}

/// The Node `pi` of a live agent.
pub fn add_ready_node(double: &Double, os: &str, info: Value) {
    let ready = json!({"type": "Ready", "status": "True", "reason": "r", "message": "m",
        "lastHeartbeatTime": null, "lastTransitionTime": null});
    let metadata = json!({"name": "pi", "labels": {"kubernetes.io/os": os}});
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": metadata,
        "status": {"nodeInfo": info, "conditions": [ready]}});
    admin(double, "POST", "/api/v1/nodes", &node);
}

/// A token of a server whose `/cacerts` is this text.
pub fn k10(cacerts: &str) -> String {
    format!("K10{}::server:pa55:word", Double::sha256(cacerts.as_bytes()))
}

/// Runs `args` below the root, as JSON. The token must be in no output and in no file.
pub fn run(root: &Path, args: &[&str]) -> Joined {
    let ended = end(command(args).arg("--root").arg(root).arg("--output=json"));
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!text.contains(SECRET), "the token is in the output: {text}");
    }
    let is_bootstrap = args.contains(&"--bootstrap-only");
    for file in files(root).iter().filter(|_| !is_bootstrap) {
        // A link of an image may lead nowhere here.
        let Ok(bytes) = fs::read(root.join(file)) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET), "the token is in {file}");
    }
    let report = ended.report();
    if args[0] == "join" && !report.0.is_null() {
        assert_eq!(report.names(|_| true).join(" "), STEPS);
    }
    Joined { code: ended.code, report, stderr: ended.stderr }
}

/// The agent as nodelet.service starts it, with what join wrote below `root`.
pub fn agent(root: &Path) -> Board {
    let flags = agent_flags(root);
    Board::start(&flags.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The flags of [`agent`].
pub fn agent_flags(root: &Path) -> Vec<String> {
    let path = |name: &str| root.join(name).display().to_string();
    let flags = fs::read_to_string(path("etc/default/nodelet-join")).unwrap();
    let flags = flags.split_once("NODELET_JOIN_FLAGS=").unwrap().1.trim();
    let kubeconfig = format!("--kubeconfig={}", path("etc/credstore/nodelet.kubeconfig"));
    let root_dir = format!("--root-dir={}", path("var/lib/nodelet"));
    let mut args = vec![kubeconfig, root_dir];
    args.extend(flags.split(' ').map(str::to_owned));
    args
}

pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn files(folder: &Path) -> Vec<String> {
    let name = |path: PathBuf| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
    tree::entries(folder).into_iter().map(name).collect()
}
