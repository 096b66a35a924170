//! `nodelet join` on a virtual board with the Debian package and nothing else. Its root is an ext4
//! disk, so that a reboot and a power cut find what join wrote.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::{BootstrapToken, Double, Validity};
use support::{Folder, eventually};

use crate::guest::{Guest, Pace, keep};
use crate::{A_MINUTE, image, late, ready, run, show};

const TOKEN: &str = "lwxivu.2uczm8x4xi2v7hqd";

#[test]
#[ignore = "boots virtual boards twelve times: minutes, mkfs.ext4, and the network the first time"]
fn a_board_joins_by_the_printed_line() {
    let board = Board::new();
    let took = joins_and_survives_a_reboot(&board);

    // join writes its files in the first half of this time; the rest is the start of the unit. One
    // random moment in each third of that half, then two moments that the double sees.
    for part in 0..3 {
        let place = f64::from(part) + random();
        let delay = took.mul_f64(place / 6.0);
        joins_again_after_a_power_cut(&board, &format!("{delay:.0?} after enter"), |_| {
            thread::sleep(delay);
        });
    }
    joins_again_after_a_power_cut(&board, "the certificate was fetched", |double| {
        eventually("a certificate", A_MINUTE, || {
            let mut requests = double.list("csrs").into_iter();
            requests.find(|csr| csr["status"]["certificate"].is_string())
        });
        let before = double.requests().len();
        eventually("its GET", A_MINUTE, || (double.requests().len() > before).then_some(()));
    });
    joins_again_after_a_power_cut(&board, "the Node was registered", |double| {
        eventually("a Node", A_MINUTE, || double.get("nodes/board"));
    });
}

/// Returns the time from enter to the end of the command.
fn joins_and_survives_a_reboot(board: &Board) -> Duration {
    let (double, line) = cluster();
    let disk = board.new_disk();
    let mut guest = board.boot(&disk);
    // The installation of the package enables the unit and does not start it.
    guest.run("systemctl stop nodelet");
    // With one process in its cgroup, join cannot start another one.
    let cgroup = "/sys/fs/cgroup/alone";
    guest.run(&format!("mkdir {cgroup} && echo 1 >{cgroup}/pids.max"));
    let start = Instant::now();
    let report = guest.run(&format!("(echo 0 >{cgroup}/cgroup.procs && exec {line})"));
    let took = start.elapsed();
    println!("joined in {took:.1?}:\n{report}");
    assert!(report.contains("start: by nodelet.path"), "{report}");
    assert!(report.contains("ready: board   Ready"), "{report}");
    assert_eq!(guest.run(&format!("cat {cgroup}/pids.events")), "max 0");
    is_ready(&double, &mut guest);
    was_started_by_its_path(&mut guest);
    keep("boot-join-1.log", &guest.journal());
    assert!(guest.power_off().success());

    let mut guest = board.boot(&disk);
    is_ready(&double, &mut guest);
    keep("boot-join-2.log", &guest.journal());
    assert!(guest.power_off().success());
    took
}

/// A new board whose power fails at a moment of the join; `wait` returns at this moment.
fn joins_again_after_a_power_cut(board: &Board, moment: &str, wait: impl FnOnce(&Double)) {
    let (double, line) = cluster();
    let disk = board.new_disk();
    let mut guest = board.boot(&disk);
    guest.say(&line);
    wait(&double);
    // SIGKILL: what the guest has not flushed is lost.
    drop(guest);
    let requests = double.requests();
    let last = requests.last().map(|last| format!("{} {}", last.method, last.path));
    println!("cut: {moment}; after {} requests: {last:?}", requests.len());

    let mut guest = board.boot(&disk);
    println!("left: {}", guest.run("cd /etc && echo credstore/* default/*"));
    println!("{}", guest.run(&line));
    is_ready(&double, &mut guest);
    assert!(guest.power_off().success());
}

/// The Node is Ready, of the boot of this guest.
pub fn is_ready(double: &Double, guest: &mut Guest) {
    let boot_id = guest.run("cat /proc/sys/kernel/random/boot_id");
    eventually("Node Ready in this boot", A_MINUTE, || {
        ready(double).filter(|node| node["status"]["nodeInfo"]["bootID"] == boot_id)
    });
}

fn was_started_by_its_path(guest: &mut Guest) {
    guest.eventually(A_MINUTE, "systemctl is-active nodelet", |state| state == "active");
    let unit = show(guest, "MainPID,TriggeredBy");
    assert_eq!(unit["TriggeredBy"], "nodelet.path");
    let pid = &unit["MainPID"];
    // systemd sets these if a path unit started the service (systemd.exec(5), since 252).
    let environment = guest.run(&format!("tr '\\0' '\\n' </proc/{pid}/environ"));
    for variable in ["TRIGGER_UNIT=nodelet.path", "TRIGGER_PATH=/run/nodelet-joined"] {
        assert!(environment.contains(variable), "{environment}");
    }
    let parent = guest.run(&format!("grep PPid /proc/{pid}/status"));
    assert_eq!(parent, "PPid:\t1");
}

/// The control plane, and the line that it prints for the guest.
pub fn cluster() -> (Double, String) {
    let double = Double::builder().kubeadm().start();
    double.add_bootstrap_token(BootstrapToken::new(TOKEN));
    let host = "10.0.2.2";
    double.swap_validity(Validity::VALID, Some(&[host]));
    let url = double.url().replace("127.0.0.1", host);
    let info = double.cluster_info(&url, &double.ca_pem());
    double.set_cluster_info(Some(&info));
    let line = double.join_command(TOKEN).join(" ");
    (double, format!("nodelet {}", line.replace("127.0.0.1", host)))
}

/// At least 0, less than 1.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0) >> 32;
    f64::from(u32::try_from(bits).unwrap()) / 2_f64.powi(32)
}

/// The files of a board with the package.
pub struct Board {
    folder: Folder,
}

impl Board {
    pub fn new() -> Self {
        let folder = Folder::new("boot-join");
        let image = image();
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        run(Command::new(project.join("cross/deb.sh")).arg("arm64"));
        let version = env!("CARGO_PKG_VERSION");
        run(Command::new(project.join("tests/boot/disk.sh"))
            .arg(image)
            .arg(project.join(format!("dist/nodelet_{version}-1_arm64.deb")))
            .arg(folder.path()));
        Self { folder }
    }

    /// The disk before the first boot.
    pub fn new_disk(&self) -> PathBuf {
        let disk = self.folder.path().join("new");
        fs::copy(self.folder.path().join("disk"), &disk).unwrap();
        disk
    }

    /// Boots; network and clock are there.
    pub fn boot(&self, disk: &Path) -> Guest {
        let initramfs = self.folder.path().join("initramfs");
        let options = format!("rdinit=/switch {}", late());
        let mut guest = Guest::boot(&initramfs, &Pace::Free, &options, Some(disk));
        guest.eventually(A_MINUTE, "systemctl is-active multi-user.target", |state| {
            state == "active"
        });
        guest
    }
}
