//! A network file system whose server is gone: the heartbeat goes on.
//!
//! A FUSE mount that nobody serves blocks every call, as NFS does. It needs root and /dev/fuse;
//! each test has a mount namespace of its own. The root file system can be such a mount, too.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use apidouble::Double;
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};
use support::{Folder, eventually, skip};

use crate::common::api::{self, admin, status_of};
use crate::common::board::Board;
use crate::common::lease::{longest_gap, renewals};
use crate::common::namespace::{self, Mounted};
use crate::common::served_root::{KIBIBYTES, ServedRoot};

/// Seconds.
const LEASE: u64 = 8;
/// Longer than a Lease.
const WATCH: Duration = Duration::from_secs(LEASE + 2);

/// Mounts a file system over `folder` that never answers, until the returned file is closed.
fn dead_mount(folder: &Path) -> Result<(File, Mounted), String> {
    let server = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let server = server.map_err(|e| format!("/dev/fuse: {e}"))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    let kind = Some("fuse");
    let options = Some(options.as_str());
    mount(Some("dead"), folder, kind, MsFlags::empty(), options)
        .map_err(|e| format!("mount: {e}"))?;
    Ok((server, Mounted(folder.to_owned())))
}

/// Fails if no renewal is accepted for the time that keeps a Lease of 40 s safe.
fn renewals_go_on(double: &Double) {
    let (gap, limit) = (longest_gap(double, "pi", WATCH), LEASE * 3 / 4);
    assert!(gap < Duration::from_secs(limit), "no renewal for {gap:?}");
}

fn start(double: &Double, folder: &Folder, kubeconfig: &str, more: &[&str]) -> Board {
    let kubeconfig = folder.write("kubeconfig", kubeconfig);
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let lease = format!("--node-lease-duration-seconds={LEASE}");
    let args = [kubeconfig.as_str(), "--hostname-override=pi", &lease];
    let board = Board::start(&[&args, more].concat());
    eventually("a Lease", Duration::from_secs(20), || double.get("leases/pi"));
    board
}

#[test]
fn a_dead_root_dir_costs_storage_and_the_podcidr_file_and_no_renewal() {
    let folder = Folder::new("dead-root");
    let root = folder.path().join("root");
    std::fs::create_dir(&root).unwrap();
    if let Err(why) = namespace::mounts() {
        return skip::required(&why);
    }
    let _server = match dead_mount(&root) {
        Ok(server) => server,
        Err(why) => return skip::required(&why),
    };
    let double = Double::start();
    let root_dir = format!("--root-dir={}", root.join("nodelet").display());
    let cert_dir = format!("--cert-dir={}", folder.path().join("pki").display());
    let flags = [root_dir.as_str(), &cert_dir, "--node-status-report-frequency=1s"];
    let board = start(&double, &folder, &double.kubeconfig_for_node("pi"), &flags);
    let spec = json!({"spec": {"podCIDR": "10.244.7.0/24", "podCIDRs": ["10.244.7.0/24"]}});
    admin(&double, "PATCH", "/api/v1/nodes/pi", &spec);
    board.says_within(Duration::from_secs(20), "podCIDR: cannot be written: ");
    renewals_go_on(&double);
    let lines = board.log();
    let written = lines.iter().filter(|line| line.contains("podCIDR: cannot be written"));
    let written: Vec<_> = written.collect();
    assert_eq!(written.len(), 1, "{lines:?}");
    assert!(written[0].contains("is on fuse, which can block for ever"), "{written:?}");
    assert!(written[0].ends_with("; make --root-dir writable"), "{written:?}");
}

#[test]
fn credential_files_on_a_mount_that_dies_stay_in_use_and_are_said_once() {
    let folder = Folder::new("dead-pki");
    let pki = folder.path().join("pki");
    std::fs::create_dir(&pki).unwrap();
    if let Err(why) = namespace::mounts() {
        return skip::required(&why);
    }
    let double = Double::start();
    double.add_token("t0ken", "system:node:pi", &["system:nodes"]);
    folder.write("pki/token", "t0ken");
    let kubeconfig =
        double.kubeconfig_token("t0ken").replace("token: t0ken", "tokenFile: pki/token");
    assert!(kubeconfig.contains("tokenFile"), "{kubeconfig}");
    let board = start(&double, &folder, &kubeconfig, &[]);
    let _server = match dead_mount(&pki) {
        Ok(server) => server,
        Err(why) => return skip::required(&why),
    };
    // Each 401 makes the agent look at the file at once.
    double.close_connections();
    double.faults().push(
        apidouble::Rule::new(apidouble::Fault::Status { code: 401, retry_after: None })
            .path("/leases/")
            .times(2),
    );
    board.says_within(Duration::from_secs(20), "is on fuse, which can block for ever");
    renewals_go_on(&double);
    let lines = board.log();
    let said = lines.iter().filter(|line| line.contains("is on fuse"));
    assert_eq!(said.count(), 1, "{lines:?}");
}

/// An agent whose root file system dies after the Node is registered. `act` runs after the death.
fn with_a_root_that_dies(folder: &Folder, more: &[&str], act: impl FnOnce(&Double, &Board)) {
    let root = match ServedRoot::new(folder.path()) {
        Ok(root) => root,
        Err(why) => return skip::required(&why),
    };
    let double = Double::start();
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    let lease = format!("--node-lease-duration-seconds={LEASE}");
    let flags =
        [&kubeconfig, "--hostname-override=pi", &lease, "--node-status-update-frequency=1s"];
    let board = Board::start_below(&root.path, &[&flags, more].concat());
    eventually("a Lease", Duration::from_secs(20), || double.get("leases/pi"));
    // With the first status after the first second, the look of each minute is over.
    eventually("renewals", Duration::from_secs(20), || (renewals(&double).len() > 2).then_some(()));
    let is_ready = || double.get("nodes/pi").as_ref().is_some_and(api::is_ready);
    assert!(is_ready(), "{:?}", board.log());
    root.die();
    renewals_go_on(&double);
    act(&double, &board);
    assert!(is_ready(), "{:?}", board.log());
    assert!(!root.is_waited_for(), "{:?}", board.log());
}

#[test]
fn a_root_on_a_network_is_asked_for_its_size_at_the_start_alone() {
    let folder = Folder::new("served-root");
    with_a_root_that_dies(&folder, &[], |double, board| {
        let node = double.get("nodes/pi").unwrap();
        let size = Value::from(format!("{KIBIBYTES}Ki"));
        assert_eq!(node["status"]["capacity"]["ephemeral-storage"], size);
        // Nobody knows.
        assert_eq!(status_of(&node, "DiskPressure"), "absent");
        board.says("--root-dir: it is on the root file system, which can block for ever");
    });
}

#[test]
fn a_local_root_dir_below_a_root_on_a_network_is_measured_after_its_death() {
    let folder = Folder::new("served-local");
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    if let Err(why) = namespace::mounts() {
        return skip::required(&why);
    }
    let options = Some("size=8m");
    mount(Some("disk"), &disk, Some("tmpfs"), MsFlags::empty(), options).unwrap();
    let _mounted = Mounted(disk.clone());
    let root_dir = format!("--root-dir={}", disk.join("nodelet").display());
    with_a_root_that_dies(&folder, &[&root_dir], |double, _| {
        let node = double.get("nodes/pi").unwrap();
        assert_eq!(node["status"]["capacity"]["ephemeral-storage"], "8Mi");
        assert_eq!(status_of(&node, "DiskPressure"), "False");
        std::fs::write(disk.join("full"), vec![1; 15 << 19]).unwrap();
        eventually("DiskPressure", Duration::from_secs(20), || {
            double.get("nodes/pi").filter(|node| status_of(node, "DiskPressure") == "True")
        });
    });
}

/// A tmpfs, which the agent holds open.
#[test]
fn a_path_below_run_is_looked_up_after_the_death_of_a_root_on_a_network() {
    let folder = Folder::new("served-run");
    if let Err(why) = namespace::mounts() {
        return skip::required(&why);
    }
    let run = Path::new("/run");
    mount(Some("run"), run, Some("tmpfs"), MsFlags::empty(), Some("size=8m")).unwrap();
    let _mounted = Mounted(run.to_owned());
    std::fs::write("/run/there", "").unwrap();
    let flags = ["--ready-when-exists=/run/there", "--node-condition=OnBattery=/run/battery"];
    with_a_root_that_dies(&folder, &flags, |double, _| {
        std::fs::write("/run/battery", "").unwrap();
        eventually("OnBattery", Duration::from_secs(20), || {
            double.get("nodes/pi").filter(|node| status_of(node, "OnBattery") == "True")
        });
    });
}
