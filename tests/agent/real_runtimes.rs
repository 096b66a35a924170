//! Real container runtimes, which `tests/runtimes.sh` unpacks: what the Node tells of them, and that
//! a runtime that is stopped, killed or slow delays no renewal.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::runtime::{BACK, DOWN, start, status_patches, version, wait_for};
use crate::common::board::binary;
use crate::common::lease::longest_gap_of_requests;
use support::{Folder, eventually, skip};

/// A loaded machine starts a daemon in seconds.
const STARTS: Duration = Duration::from_secs(60);
/// 30 s after the last success, and 20 s for a look without an answer.
const OUTAGE: Duration = Duration::from_secs(55);

/// The programs of the packages, and a folder for their data.
struct Programs {
    packages: PathBuf,
    folder: Folder,
}

/// A daemon; killed on drop.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }
}

impl Programs {
    /// `None`, and a skip, without the folder or without `program` in it.
    fn with(program: &str) -> Option<Self> {
        let packages = std::env::var_os("RUNTIMES").map(PathBuf::from);
        let packages = packages.filter(|folder| folder.join("usr").join(program).exists());
        let Some(packages) = packages else {
            skip::optional(&format!("{program}: tests/runtimes.sh unpacks it"));
            return None;
        };
        Some(Self {
            packages,
            folder: Folder::new("real"),
        })
    }

    fn command(&self, program: &str) -> Command {
        let usr = self.packages.join("usr");
        let mut command = Command::new(usr.join(program));
        let path = format!("{0}/bin:{0}/sbin:/usr/sbin:/usr/bin", usr.display());
        command.env("PATH", path);
        let libraries = fs::read_dir(usr.join("lib"));
        let libraries = libraries.into_iter().flatten().flatten();
        let libraries: Vec<String> = libraries.map(|l| l.path().display().to_string()).collect();
        command.env("LD_LIBRARY_PATH", libraries.join(":"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// containerd, with a plugin disabled if `disabled` names one.
    fn containerd(&self, disabled: &str) -> Daemon {
        let config = format!(
            r#"
version = 2
root = "{0}/root"
state = "{0}/state"
disabled_plugins = [{disabled}]
[grpc]
address = "{0}/c.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "{0}/opt"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{0}/cni"
conf_dir = "{0}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"#,
            self.folder.path().display()
        );
        let config = self.folder.write("config.toml", config);
        let mut command = self.command("bin/containerd");
        Daemon(command.arg("-c").arg(config).spawn().unwrap())
    }

    /// Adds the images of an archive to containerd.
    fn import(&self, archive: &str) {
        let (socket, archive) = (self.at("c.sock"), self.packages.join(archive));
        eventually("an import", STARTS * 5, || {
            let mut command = self.command("bin/ctr");
            command.args(["-a", &socket, "-n", "k8s.io", "images", "import"]);
            let status = command.arg("--no-unpack").arg(&archive).status();
            status.unwrap().success().then_some(())
        });
    }
}

/// `nodelet runtime`, as the user and the group `uid`.
fn look(endpoint: &str, uid: u32) -> Output {
    let mut command = Command::new(binary());
    command.args([
        "runtime",
        &format!("--container-runtime-endpoint={endpoint}"),
    ]);
    // The group, too: that of root may use the socket.
    command.uid(uid).gid(uid).output().unwrap()
}

fn facts(endpoint: &str) -> Option<Value> {
    serde_json::from_slice(&look(endpoint, 0).stdout).ok()
}

fn failure(endpoint: &str, uid: u32) -> String {
    let output = look(endpoint, uid);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
#[ignore = "tests/runtimes.sh runs it"]
fn containerd_is_told_and_its_outages_delay_no_renewal() {
    let Some(programs) = Programs::with("bin/containerd") else {
        return;
    };
    let mut containerd = programs.containerd("");
    programs.import("12.tar");
    let socket = programs.at("c.sock");
    let endpoint = format!("--container-runtime-endpoint=unix://{socket}");
    let double = Double::start();
    let mut board = start(&double, &programs.folder, &[&endpoint]);
    let node = wait_for(&double, STARTS, "True", "");
    let told = version(&node).to_owned();
    println!("{told}");
    assert!(told.starts_with("containerd://"), "{told}");
    let images = node["status"]["images"].as_array().unwrap();
    let sizes = images
        .iter()
        .filter_map(|image| image["sizeBytes"].as_u64());
    let sizes: Vec<u64> = sizes.collect();
    assert_eq!(sizes.len(), 10);
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{sizes:?}");
    assert_eq!(images[0]["names"][0], "registry.lab/app-11:1");
    double.clear_requests();

    containerd.signal(Signal::SIGSTOP);
    wait_for(&double, OUTAGE, "False", DOWN);
    containerd.signal(Signal::SIGCONT);
    let back = Instant::now();
    wait_for(&double, BACK, "True", "");
    println!("Ready {:?} after SIGCONT", back.elapsed());
    assert_eq!(status_patches(&double), 2);
    drop(containerd);
    wait_for(&double, OUTAGE, "False", DOWN);
    containerd = programs.containerd("");
    eventually("containerd answers", STARTS, || facts(&socket));
    let back = Instant::now();
    let node = wait_for(&double, BACK, "True", "");
    println!("Ready {:?} after the return", back.elapsed());
    assert_eq!(version(&node), told);
    let gap = longest_gap_of_requests(&double);
    println!("longest time between two renewals: {gap:?}");
    assert!(gap < Duration::from_secs(4), "{gap:?}");
    assert!(board.is_running());
    drop(board);

    programs.import("2000.tar");
    let start = Instant::now();
    let many = facts(&socket).unwrap();
    let took = start.elapsed();
    println!("a look at {} images takes {took:?}", many["imageCount"]);
    // Until all of them are listed some time can pass.
    assert!(many["imageCount"].as_u64().unwrap() > 500);
    assert_eq!(many["images"].as_array().unwrap().len(), 10);
    let denied = failure(&socket, 65534);
    assert!(denied.contains("permission denied"), "{denied}");
    drop(containerd);
    assert!(failure(&socket, 0).contains("connection refused; is the runtime running?"));
    let _without_cri = programs.containerd("\"io.containerd.grpc.v1.cri\"");
    eventually("CRI is disabled", STARTS, || {
        let says = failure(&socket, 0);
        let is_told = says.contains("code = Unimplemented") && says.contains("disabled_plugins");
        is_told.then_some(())
    });
}

#[test]
#[ignore = "tests/runtimes.sh runs it"]
fn podman_is_told() {
    let Some(programs) = Programs::with("bin/podman") else {
        return;
    };
    let socket = programs.at("p.sock");
    let (root, run) = (programs.at("root"), programs.at("run"));
    let mut command = programs.command("bin/podman");
    command.args(["--root", &root, "--runroot", &run, "--storage-driver=vfs"]);
    command.args(["--cgroup-manager=cgroupfs", "system", "service", "--time=0"]);
    let _podman = Daemon(command.arg(format!("unix://{socket}")).spawn().unwrap());
    let told = eventually("podman", STARTS, || facts(&format!("podman://{socket}")));
    println!("podman://{}", told["version"]);
    assert_eq!(told["runtime"], "podman");
    assert_eq!(told["imageFolder"], root);
    assert!(failure(&socket, 0).contains("write docker:// or podman://"));
}

#[test]
#[ignore = "tests/runtimes.sh runs it"]
fn docker_is_told() {
    let (Some(programs), Some(_)) = (
        Programs::with("sbin/dockerd"),
        Programs::with("bin/containerd"),
    ) else {
        return;
    };
    let _containerd = programs.containerd("");
    programs.import("12.tar");
    let socket = programs.at("d.sock");
    let root = programs.at("docker");
    let mut command = programs.command("sbin/dockerd");
    command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
    command.args([
        "--storage-driver=vfs",
        "--containerd",
        &programs.at("c.sock"),
    ]);
    command.args(["--data-root", &root, "--exec-root", &programs.at("exec")]);
    command.args(["--pidfile", &programs.at("pid")]);
    command.arg("-H").arg(format!("unix://{socket}"));
    let _docker = Daemon(command.spawn().unwrap());
    let told = eventually("docker", STARTS, || facts(&format!("docker://{socket}")));
    println!("docker://{}", told["version"]);
    assert_eq!(told["runtime"], "docker");
    assert_eq!(told["imageFolder"], root);
    // Its images are in another namespace of containerd.
    assert_eq!(told["imageCount"], 0);
    assert!(failure(&socket, 0).contains("write docker:// or podman://"));
}
