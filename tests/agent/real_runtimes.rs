//! Real container runtimes, which `tests/runtimes.sh` unpacks: what the Node tells of them, and
//! that a runtime that is stopped, killed or slow delays no renewal. Each runtime has 12 images.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::signal::Signal;
use serde_json::Value;

use super::runtime::{BACK, DOWN, Pair, start, version, wait_for};
use crate::common::api::status_patches;
use crate::common::cluster::program::Program;
use crate::common::command::{command, end};
use crate::common::lease::longest_gap_of_requests;
use support::{Folder, eventually, skip};

/// A loaded machine starts a daemon in seconds.
const STARTS: Duration = Duration::from_secs(60);
/// 30 s after the last success, and 20 s for a look without an answer.
const OUTAGE: Duration = Duration::from_secs(55);
/// Podman: 5 min until the next look, and two looks without an answer.
const OUTAGE_OF_PODMAN: Duration = Duration::from_secs(350);
/// containerd lists an image some time after its import: its CRI follows events.
const LISTED: Duration = Duration::from_secs(300);

/// The programs of the packages, and a folder for their data.
struct Programs {
    packages: PathBuf,
    folder: Folder,
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
        Some(Self { packages, folder: Folder::new("real") })
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
        // Podman looks for its policy in .config below it.
        command.env("HOME", self.folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// containerd, with a plugin disabled if `disabled` names one.
    fn containerd(&self, disabled: &str) -> Program {
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
        command.arg("-c").arg(config);
        self.start(command)
    }

    /// Each program has a log of its own.
    fn start(&self, command: Command) -> Program {
        let name = Path::new(command.get_program()).file_name().unwrap();
        let log = self.folder.path().join(name).with_extension("log");
        Program::start(command, log)
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

    /// Adds images of 1 to 12 times 20 KB; `client` is Docker's or Podman's command with its
    /// options.
    fn import_files(&self, client: impl Fn() -> Command) {
        for n in 0..12 {
            self.folder.write("file", "x".repeat(20_000 * (n + 1)));
            let (folder, archive) = (self.at(""), self.at("file.tar"));
            let status =
                Command::new("tar").args(["-cf", &archive, "-C", &folder, "file"]).status();
            assert!(status.unwrap().success());
            let name = format!("registry.lab/app-{n}:1");
            let status = client().args(["import", &archive, &name]).status();
            assert!(status.unwrap().success());
        }
    }
}

/// A board with a runtime.
struct Site {
    double: Double,
    pair: Pair,
    told: String,
}

impl Site {
    /// The Node tells the runtime's `kind`, and the 10 largest images first.
    fn start(folder: &Folder, endpoint: &str, kind: &str) -> Self {
        let double = Double::start();
        let endpoint = format!("--container-runtime-endpoint={endpoint}");
        // No report between two changes.
        let rare = "--node-status-report-frequency=1h";
        let pair = start(&double, folder, &[&endpoint, rare]);
        let node = wait_for(&double, STARTS, "True", "");
        let told = version(&node).to_owned();
        println!("{told}");
        assert!(told.starts_with(&format!("{kind}://")), "{told}");
        let images = node["status"]["images"].as_array().unwrap();
        let sizes = images.iter().filter_map(|image| image["sizeBytes"].as_u64());
        let sizes: Vec<u64> = sizes.collect();
        assert_eq!(sizes.len(), 10);
        assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
        let names = images[0]["names"].as_array().unwrap();
        let largest = Value::from("registry.lab/app-11:1");
        assert!(names.contains(&largest), "{names:?}");
        double.clear_requests();
        Self { double, pair, told }
    }

    /// One patch when the runtime is down, and one when it is back. `end` returns when the runtime
    /// answers.
    fn outage<T>(
        &self,
        what: &str,
        limit: Duration,
        begin: impl FnOnce(),
        end: impl FnOnce() -> T,
    ) -> T {
        let patches = status_patches(&self.double);
        let start = Instant::now();
        begin();
        wait_for(&self.double, limit, "False", DOWN);
        let down = start.elapsed();
        let result = end();
        let start = Instant::now();
        let node = wait_for(&self.double, BACK, "True", "");
        let back = start.elapsed();
        println!("{}: {what}: False after {down:?}, Ready {back:?} after the return", self.told);
        assert_eq!(version(&node), self.told);
        assert_eq!(status_patches(&self.double), patches + 2);
        result
    }

    fn assert_renewals_in_time(&mut self) {
        let gap = longest_gap_of_requests(&self.double);
        println!("{}: longest time between two renewals {gap:?}", self.told);
        // An interval of 2 s, and one call of 1 s: the lease law.
        assert!(gap < Duration::from_secs(4), "{gap:?}");
        assert!(self.pair.agent.is_running());
    }
}

/// What `nodelet check` says of the runtime, as the user and the group `uid`: the lines, by check.
fn look(endpoint: &str, uid: u32) -> HashMap<String, String> {
    let mut command = command(["check", "--output=json", "--hostname-override=pi"]);
    command.arg(format!("--container-runtime-endpoint={endpoint}"));
    // The group, too: that of root may use the socket.
    let report = end(command.uid(uid).gid(uid)).report();
    let names = report.names(|_| true);
    let line = |name: &str| report.line(name).trim_end_matches("; ").to_owned();
    names.into_iter().map(|name| (name.to_owned(), line(name))).collect()
}

/// The lines of a runtime that answers.
fn facts(endpoint: &str) -> Option<HashMap<String, String>> {
    Some(look(endpoint, 0)).filter(|facts| facts.contains_key("runtime-images"))
}

/// Why a runtime does not answer.
fn failure(endpoint: &str, uid: u32) -> String {
    let mut look = look(endpoint, uid);
    assert!(!look.contains_key("runtime-images"), "{look:?}");
    let api = look.remove("runtime-api");
    api.or(look.remove("runtime-socket")).unwrap()
}

#[test]
#[ignore = "tests/runtimes.sh runs it"]
fn containerd_is_told_and_its_outages_delay_no_renewal() {
    let Some(programs) = Programs::with("bin/containerd") else {
        return;
    };
    let containerd = programs.containerd("");
    programs.import("12.tar");
    let socket = programs.at("c.sock");
    let endpoint = format!("unix://{socket}");
    let mut site = Site::start(&programs.folder, &endpoint, "containerd");
    site.outage(
        "SIGSTOP",
        OUTAGE,
        || containerd.signal(Signal::SIGSTOP),
        || containerd.signal(Signal::SIGCONT),
    );
    let containerd = site.outage(
        "SIGKILL",
        OUTAGE,
        || drop(containerd),
        || {
            let containerd = programs.containerd("");
            eventually("containerd answers", STARTS, || facts(&socket));
            containerd
        },
    );

    // Twelve of them take the names of those that are there. One is the same image; eleven stay
    // without a name.
    programs.import("2000.tar");
    let imported = Instant::now();
    let took = eventually("2,000 images", LISTED, || {
        let start = Instant::now();
        let facts = facts(&socket)?;
        (facts["runtime-images"] == "2011").then(|| start.elapsed())
    });
    println!("2,000 images are listed {:?} after the import, in {took:?}", imported.elapsed());
    // With looks at all of them.
    std::thread::sleep(Duration::from_secs(70));
    wait_for(&site.double, BACK, "True", "");
    site.assert_renewals_in_time();
    drop(site);

    assert!(failure(&socket, 65534).contains("permission denied"));
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
fn podman_is_told_and_its_outage_delays_no_renewal() {
    let Some(programs) = Programs::with("bin/podman") else {
        return;
    };
    let policy = fs::read(programs.packages.join("etc/containers/policy.json")).unwrap();
    programs.folder.write(".config/containers/policy.json", policy);
    let socket = programs.at("p.sock");
    let (root, run) = (programs.at("root"), programs.at("run"));
    let command = || {
        let mut command = programs.command("bin/podman");
        command.args(["--root", &root, "--runroot", &run, "--storage-driver=vfs"]);
        command.arg("--cgroup-manager=cgroupfs");
        command
    };
    programs.import_files(command);
    let endpoint = format!("podman://{socket}");
    let serve = || {
        let mut command = command();
        command.args(["system", "service", "--time=0", &format!("unix://{socket}")]);
        let podman = programs.start(command);
        let told = eventually("podman", STARTS, || facts(&endpoint));
        (podman, told)
    };
    let (podman, told) = serve();
    assert_eq!(told["runtime-images"], "12");
    assert_eq!(told["imagefs"], root);
    assert!(failure(&socket, 0).contains("write docker:// or podman://"));
    assert!(failure(&endpoint, 65534).contains("permission denied"));

    let mut site = Site::start(&programs.folder, &endpoint, "podman");
    let _podman = site.outage(
        "SIGSTOP, then SIGKILL",
        OUTAGE_OF_PODMAN,
        || podman.signal(Signal::SIGSTOP),
        || {
            podman.signal(Signal::SIGKILL);
            serve()
        },
    );
    site.assert_renewals_in_time();
}

#[test]
#[ignore = "tests/runtimes.sh runs it"]
fn docker_is_told_and_its_outages_delay_no_renewal() {
    let (Some(programs), Some(_)) =
        (Programs::with("sbin/dockerd"), Programs::with("bin/containerd"))
    else {
        return;
    };
    let _containerd = programs.containerd("");
    programs.import("12.tar");
    let socket = programs.at("d.sock");
    let root = programs.at("docker");
    let endpoint = format!("docker://{socket}");
    let serve = || {
        let mut command = programs.command("sbin/dockerd");
        command.args(["--iptables=false", "--ip6tables=false", "--bridge=none"]);
        command.args(["--storage-driver=vfs", "--containerd", &programs.at("c.sock")]);
        command.args(["--data-root", &root, "--exec-root", &programs.at("exec")]);
        // One that was killed leaves its file.
        let _ = fs::remove_file(programs.at("pid"));
        command.args(["--pidfile", &programs.at("pid")]);
        command.arg("-H").arg(format!("unix://{socket}"));
        let docker = programs.start(command);
        let told = eventually("docker", STARTS, || facts(&endpoint));
        (docker, told)
    };
    let (docker, told) = serve();
    assert_eq!(told["imagefs"], root);
    // Those of containerd's CRI are in another namespace.
    assert!(told["runtime-images"].starts_with("0;"));
    programs.import_files(|| {
        let mut command = programs.command("bin/docker");
        command.arg(format!("--host=unix://{socket}"));
        command
    });
    assert!(failure(&socket, 0).contains("write docker:// or podman://"));
    assert!(failure(&endpoint, 65534).contains("permission denied"));

    let mut site = Site::start(&programs.folder, &endpoint, "docker");
    site.outage(
        "SIGSTOP",
        OUTAGE,
        || docker.signal(Signal::SIGSTOP),
        || docker.signal(Signal::SIGCONT),
    );
    let _docker = site.outage("SIGKILL", OUTAGE, || drop(docker), serve);
    site.assert_renewals_in_time();
}
