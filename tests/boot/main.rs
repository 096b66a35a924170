//! A virtual arm64 board boots into a Ready Node: Debian's kernel in qemu, an initramfs with
//! systemd as PID 1 and nodelet.service, packed by systemd/initramfs.sh, and the API double on
//! this machine. And an amd64 machine with an initramfs made by dracut.
//!
//! `cargo test --test boot -- --ignored --nocapture --test-threads 1`. It takes minutes: the
//! watchdog alone has 90 s.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;
mod guest;
mod join;
mod serve;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apidouble::{Double, Validity};
use serde_json::Value;

use crate::common::api::{condition, is_ready};
use crate::common::budget::assert_within;
use guest::{CPUS, Guest, MEMORY_MIB, Pace, keep};
use support::{Folder, eventually};

const TARGET: &str = "aarch64-unknown-linux-musl";
const A_MINUTE: Duration = Duration::from_secs(60);

#[test]
#[ignore = "boots a virtual board twice: minutes, and the network the first time"]
fn a_board_boots_into_a_ready_node() {
    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    // Younger than the binary.
    double.swap_validity(Validity { from: 0, until: 365 * 86_400 }, None);
    let folder = Folder::new("boot");
    let initramfs = initramfs(&folder, &[&kubeconfig(&double, &folder)]);

    // The first boot: / is a ramfs; the test starts the network, then sets the clock, then mounts
    // /var.
    let mut guest = Guest::boot(&initramfs, &Pace::Free, "rootfstype=ramfs", None);
    does_not_delay_the_boot(&mut guest);
    guest.run("late network");
    // The clock starts at the build time of systemd, before the certificate. A changed reason is
    // logged a minute after the first one.
    guest.eventually(3 * A_MINUTE, LOG, |log| log.contains("is not valid before"));
    assert_eq!(double.get("nodes/board"), None);
    guest.run(&format!("late clock {}", seconds_since_1970()));
    let node = eventually("Node Ready", A_MINUTE, || ready(&double));
    guest.eventually(A_MINUTE, "systemctl is-active nodelet", |state| state == "active");
    let first_boot = agrees_with_guest(&node, &mut guest);
    is_confined(&mut guest);
    follows_var(&double, &mut guest);
    heals_by_its_watchdog(&double, &mut guest);
    says_nothing_at_a_restart(&double, &mut guest);
    let journal = guest.journal();
    keep("boot-1.log", &journal);
    says_that_it_shuts_down(&double, guest, "reboot", 1);

    // The second boot: / is a tmpfs, and the test does nothing.
    let mut guest = Guest::boot(&initramfs, &Pace::Free, &late(), None);
    let rebooted = eventually("Rebooted", A_MINUTE, || {
        let events = double.list("events");
        events.into_iter().find(|event| event["reason"] == "Rebooted")
    });
    assert_eq!(rebooted["involvedObject"]["name"], "board");
    let node = eventually("Node Ready", A_MINUTE, || ready(&double));
    let second_boot = agrees_with_guest(&node, &mut guest);
    assert_ne!(first_boot, second_boot);
    let message = rebooted["message"].as_str().unwrap();
    assert!(message.contains(&second_boot), "{message}");
    let journal = guest.journal();
    keep("boot-2.log", &journal);
    print_steps(&journal);
    keeps_its_heartbeat_without_memory(&double, &mut guest);
    says_that_it_shuts_down(&double, guest, "poweroff", 2);
}

#[test]
#[ignore = "boots a virtual board: a minute, and the network the first time"]
fn a_board_with_a_bootstrap_token_gets_its_certificate() {
    let token = "abcdef.0123456789abcdef";
    let double = Double::builder().bootstrap_token(token).approve_csrs().start();
    let folder = Folder::new("boot-token");
    let kubeconfig = reached_from_guest(&double, &double.kubeconfig_token(token));
    let kubeconfig = folder.write("nodelet.bootstrap-kubeconfig", &kubeconfig);
    // The example of nodelet.default.
    let example = include_str!("../../systemd/nodelet.default");
    let (_, example) = example.split_once("#NODELET_FLAGS=--kubeconfig").unwrap();
    let example = example.split("\n\n").next().unwrap().replace("\n#", "\n");
    let default = folder.write("default", format!("NODELET_FLAGS=--kubeconfig{example}\n"));
    let initramfs = initramfs(&folder, &[Path::new("-d"), &default, &kubeconfig]);

    let mut guest = Guest::boot(&initramfs, &Pace::Free, &late(), None);
    eventually("Node Ready", 2 * A_MINUTE, || ready(&double));
    assert_eq!(double.list("csrs").len(), 1);
    let state = guest.run("cd /var/lib/nodelet/ && stat -c '%A %U %n' kubeconfig pki/*");
    println!("{state}");
    for line in state.lines().filter(|line| line.starts_with('-')) {
        assert!(line.starts_with("-rw------- "), "{state}");
    }
    assert!(state.contains("pki/kubelet-client-current.pem"), "{state}");
    guest.eventually(A_MINUTE, "systemctl is-active nodelet", |state| state == "active");
    says_that_it_shuts_down(&double, guest, "poweroff", 1);
}

/// The kernel counts an error of ext4; the API server shows both conditions, and the board stays
/// Ready.
#[test]
#[ignore = "boots a virtual board: minutes, mkfs.ext4, and the network the first time"]
fn an_error_of_ext4_reaches_the_server() {
    let double = Double::start();
    let folder = Folder::new("boot-ext4");
    let initramfs = initramfs(&folder, &[&kubeconfig(&double, &folder)]);
    let disk = folder.path().join("disk");
    run(Command::new("mkfs.ext4").args(["-q", "-e", "remount-ro"]).arg(&disk).arg("16M"));
    let mut guest = Guest::boot(&initramfs, &Pace::Free, &late(), Some(&disk));
    eventually("Node Ready", 2 * A_MINUTE, || ready(&double));
    let status = |kind: &str| {
        let node = double.get("nodes/board").unwrap();
        let found = condition(&node, kind);
        found.map(|condition| (condition["status"].clone(), condition["message"].clone()))
    };
    let kinds = ["FilesystemCorruptionProblem", "ReadonlyFilesystem"];
    guest.run("mkdir /mnt && mount -t ext4 /dev/vda /mnt");
    // Longer than a look: a sound file system is no problem.
    thread::sleep(A_MINUTE + A_MINUTE / 4);
    assert_eq!(kinds.map(status), [None, None]);
    guest.run("echo 1 > /sys/fs/ext4/vda/trigger_fs_error");
    println!("{}", guest.run("grep vda /proc/self/mountinfo; cat /sys/fs/ext4/vda/errors_count"));
    for kind in kinds {
        let (status, message) =
            eventually(kind, 3 * A_MINUTE, || status(kind).filter(|(status, _)| status == "True"));
        println!("{kind}: {status} {message}");
        assert!(message.as_str().unwrap().starts_with("vda (ext4 at /mnt) "));
    }
    assert!(ready(&double).is_some());
    keep("boot-ext4.log", &guest.journal());
    assert!(guest.power_off().success());
}

/// With the initramfs that dracut makes with our module. The Node stays Ready while the unit of the
/// root file system replaces that of the initramfs.
#[test]
#[ignore = "makes a Debian machine and boots it: six minutes, root, and the network"]
fn a_node_is_ready_before_the_root_is_unlocked() {
    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    let folder = Folder::new("boot-dracut");
    let identity = |validity| double.node_identity("board", validity);
    let first = double.kubeconfig_for(&identity(Validity::EXPIRED));
    let kubeconfig = folder.write("kubeconfig", reached_from_guest(&double, &first));
    let renewed = identity(Validity::VALID);
    let pair = folder.write("pair", format!("{}{}", renewed.cert_pem, renewed.key_pem));
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(project.join("cross/build.sh")).arg("x86_64-unknown-linux-musl"));
    run(Command::new(project.join("cross/deb.sh")).arg("amd64"));
    let version = env!("CARGO_PKG_VERSION");
    run(Command::new(project.join("tests/boot/dracut.sh"))
        .arg(project.join(format!("dist/nodelet_{version}-1_amd64.deb")))
        .args([&kubeconfig, &pair, folder.path()]));

    let file = |name| folder.path().join(name);
    let mut qemu = Command::new(file("qemu"));
    qemu.args(["-M", "q35", "-smp", "2", "-m", "512"])
        .args(["-device", "virtio-net-pci,netdev=net,romfile="])
        .args(["-drive", "if=virtio,format=raw,file=root"])
        .args(["-kernel", "vmlinuz", "-initrd", "initramfs", "-append"])
        .arg(
            "console=ttyS0 panic=-1 systemd.journald.forward_to_console=1 \
             root=/dev/vda rw rd.neednet=1 ip=dhcp",
        )
        .current_dir(folder.path());
    let mut guest = Guest::start(qemu);
    guest.read_until("LOCKED ROOT");
    let node = eventually("Node Ready", 2 * A_MINUTE, || ready(&double));
    let image = |node: &Value| node["status"]["nodeInfo"]["osImage"].as_str().map(str::to_owned);
    let early = image(&node).unwrap();
    assert!(early.contains("(Initramfs)"), "{early}");

    guest.say("my passphrase");
    guest.read_until("Switching root");
    let late = eventually("the root's own unit", 2 * A_MINUTE, || {
        image(&ready(&double)?).filter(|late| *late != early)
    });
    println!("{early}, then {late}");
    assert!(!double.ever_left_ready());
    let events = double.list("events");
    assert!(!events.iter().any(|event| event["reason"] == "Rebooted"), "{events:#?}");

    guest.read_until("CONSOLE");
    serve::is_replaced_by_an_upgrade(&double, &mut guest);
}

/// Instructions, those of the kernel included: of a renewal alone, and of the default work of ten
/// seconds, which is a renewal and a read of the facts.
#[test]
#[ignore = "boots two virtual boards: ten minutes, and the network the first time"]
fn a_heartbeat_takes_few_instructions() {
    for (name, flags) in
        [("renewal_instructions", "--node-status-update-frequency=1h"), ("round_instructions", "")]
    {
        let double = Double::start();
        let folder = Folder::new("boot-count");
        let default = folder.write("default", format!("NODELET_FLAGS={flags}\n"));
        let words = [Path::new("-d"), &default, &kubeconfig(&double, &folder)];
        let mut guest = Guest::boot(&initramfs(&folder, &words), &Pace::Counted, &late(), None);
        eventually("Node Ready", 3 * A_MINUTE, || ready(&double));
        let pid = show(&mut guest, "MainPID")["MainPID"].clone();
        // Looks are frequent for two minutes.
        guest.run("sleep 140");
        let before = instructions(&mut guest, &pid);
        double.clear_requests();
        guest.run("sleep 60");
        let requests = double.requests();
        let renewals = requests.iter().filter(|r| r.path.contains("/leases/"));
        let renewals = renewals.count();
        assert!((5..8).contains(&renewals), "{requests:#?}");
        let spent = instructions(&mut guest, &pid) - before;
        println!("{renewals} renewals");
        assert_within(name, spent / renewals);
        assert!(guest.power_off().success());
    }
}

/// Instructions of a process so far: qemu runs one in each nanosecond of its CPU time.
fn instructions(guest: &mut Guest, pid: &str) -> usize {
    let schedstat = guest.run(&format!("cat /proc/{pid}/schedstat"));
    schedstat.split(' ').next().unwrap().parse().unwrap()
}

const LOG: &str = "journalctl -b -u nodelet -o cat";

fn seconds_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The option with which image.sh brings the network up and sets the clock.
fn late() -> String {
    format!("late={}", seconds_since_1970())
}

fn ready(double: &Double) -> Option<Value> {
    double.get("nodes/board").filter(is_ready)
}

/// `systemctl show` of some properties of the unit.
fn show(guest: &mut Guest, properties: &str) -> BTreeMap<String, String> {
    let output = guest.run(&format!("systemctl show nodelet -p {properties}"));
    let pairs = output.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Without a network the agent waits, and the boot continues.
fn does_not_delay_the_boot(guest: &mut Guest) {
    guest.eventually(A_MINUTE, LOG, |log| log.contains("10.0.2.2"));
    assert_eq!(guest.try_run("systemctl is-active nodelet"), "activating");
    assert_eq!(guest.run("systemctl is-active multi-user.target"), "active");
    // / is the ramfs of the initramfs, and /var is not a mount.
    assert_eq!(guest.run("grep -c ' - rootfs ' /proc/self/mountinfo"), "1");
    assert_eq!(guest.run("grep -c ' /var' /proc/self/mountinfo || true"), "0");
}

/// Compares the Node with the guest's shell; returns the boot id.
fn agrees_with_guest(node: &Value, guest: &mut Guest) -> String {
    let status = &node["status"];
    let info = &status["nodeInfo"];
    assert_eq!(info["architecture"], "arm64");
    assert_eq!(guest.run("uname -m"), "aarch64");
    assert_eq!(info["kernelVersion"], guest.run("uname -r"));
    let boot_id = guest.run("cat /proc/sys/kernel/random/boot_id");
    assert_eq!(info["bootID"], boot_id);
    let machine_id = guest.run("cat /etc/machine-id");
    assert_eq!(machine_id.len(), 32);
    assert_eq!(info["machineID"], machine_id);
    let name = guest.run("sed -n 's/^PRETTY_NAME=\"\\(.*\\)\"/\\1/p' /etc/os-release");
    assert_eq!(info["osImage"], name);
    assert_eq!(status["capacity"]["cpu"], CPUS.to_string());
    assert_eq!(guest.run("nproc"), CPUS.to_string());
    let total = guest.run("sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    assert_eq!(status["capacity"]["memory"], format!("{total}Ki"));
    let total: u64 = total.parse().unwrap();
    assert!(total < MEMORY_MIB * 1024 && total > MEMORY_MIB * 1024 / 2, "{total}");
    assert_eq!(status["addresses"][0]["address"], "10.0.2.15");
    boot_id
}

/// The unit has its watchdog, no privileges and its own cgroup.
fn is_confined(guest: &mut Guest) {
    let unit =
        show(guest, "Type,NotifyAccess,ActiveState,SubState,WatchdogUSec,NRestarts,StatusText");
    println!("{unit:?}");
    assert_eq!(unit["ActiveState"], "active");
    assert_eq!(unit["SubState"], "running");
    assert_eq!(unit["Type"], "notify");
    assert_eq!(unit["WatchdogUSec"], "1min 30s");
    assert_eq!(unit["NRestarts"], "0");
    let pid = show(guest, "MainPID")["MainPID"].clone();
    let status = guest.run(&format!("cat /proc/{pid}/status"));
    let value = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    for ids in ["Uid:", "Gid:"] {
        // DynamicUser=: 61184 to 65519.
        assert!(value(ids).starts_with('6'), "{ids} {}", value(ids));
    }
    for set in ["CapEff:", "CapPrm:", "CapBnd:", "CapAmb:"] {
        assert_eq!(value(set), "0000000000000000", "{set}");
    }
    assert_eq!(value("NoNewPrivs:"), "1");
    assert_eq!(value("Seccomp:"), "2");
    assert_eq!(value("Threads:"), "1");
    assert_eq!(guest.run(&format!("cat /proc/{pid}/oom_score_adj")), "-999");
    assert_eq!(guest.run(&format!("cat /proc/{pid}/cgroup")), "0::/nodelet.service");
    // It has a PSI trigger nevertheless.
    let files = guest.run(&format!("ls -l /proc/{pid}/fd"));
    assert!(files.contains("-> /proc/pressure/memory"), "{files}");
    // 400, or 440 with the access list of newer versions of systemd.
    let credential = "/run/credentials/nodelet.service/kubeconfig";
    let mode = guest.run(&format!("stat -c %a {credential}"));
    assert!(mode.starts_with('4') && mode.ends_with('0'), "{mode}");
    let memory = guest.run("cat /sys/fs/cgroup/nodelet.service/memory.current");
    println!("memory.current {memory} B");
    let resident = value("VmRSS:").trim_end_matches(" kB").parse();
    assert_within("resident_kibibytes", resident.unwrap());
}

/// A file system that is mounted at run time becomes the ephemeral-storage of the Node.
fn follows_var(double: &Double, guest: &mut Guest) {
    let storage = |node: &Value| node["status"]["capacity"]["ephemeral-storage"].clone();
    // A ramfs has no size.
    assert_eq!(storage(&double.get("nodes/board").unwrap()), Value::Null);
    guest.run("mount -t tmpfs -o size=8m var /var");
    eventually("ephemeral-storage of the new /var", 2 * A_MINUTE, || {
        let node = double.get("nodes/board")?;
        (storage(&node) == "8Mi").then_some(())
    });
}

fn shutdown_events(double: &Double) -> usize {
    let events = double.list("events").into_iter();
    events.filter(|event| event["reason"] == "Shutdown").count()
}

/// `systemctl restart` has no job for shutdown.target: the Node stays as it is.
fn says_nothing_at_a_restart(double: &Double, guest: &mut Guest) {
    let since = |node: &Value| condition(node, "Ready").unwrap()["lastTransitionTime"].clone();
    let before = since(&ready(double).unwrap());
    guest.run("systemctl restart nodelet");
    eventually("Node Ready", A_MINUTE, || ready(double));
    assert_eq!(since(&double.get("nodes/board").unwrap()), before);
    assert_eq!(shutdown_events(double), 0);
}

/// Ready is False, and says why, before the machine is down.
fn says_that_it_shuts_down(double: &Double, mut guest: Guest, verb: &str, events: usize) {
    let start = std::time::Instant::now();
    guest.say(&format!("systemctl {verb}"));
    eventually("node is shutting down", Duration::from_secs(10), || {
        let node = double.get("nodes/board")?;
        let ready = condition(&node, "Ready")?;
        (ready["status"] == "False" && ready["message"] == "node is shutting down").then_some(())
    });
    let elapsed = start.elapsed();
    println!("{verb}: told after {elapsed:.1?}");
    // This emulated board needs 0.6 to 1.1 s on an idle machine, of which systemd takes 0.6 to
    // 0.9 s. A real board is faster.
    assert!(elapsed < Duration::from_secs(3), "{verb}: {elapsed:?}");
    assert!(guest.end().success());
    assert_eq!(shutdown_events(double), events);
}

/// systemd restarts a process that hangs, and the Node becomes Ready again.
fn heals_by_its_watchdog(double: &Double, guest: &mut Guest) {
    let before = show(guest, "MainPID");
    let stopped = std::time::Instant::now();
    guest.run("systemctl kill -s STOP nodelet");
    eventually("Node no longer Ready", 2 * A_MINUTE, || ready(double).is_none().then_some(()));
    println!("not Ready {:.0?} after SIGSTOP", stopped.elapsed());
    guest.eventually(3 * A_MINUTE, "systemctl show nodelet -p NRestarts", |count| {
        count == "NRestarts=1"
    });
    println!("restarted after {:.0?}", stopped.elapsed());
    eventually("Node Ready again", A_MINUTE, || ready(double));
    println!("Ready again after {:.0?}", stopped.elapsed());
    guest.eventually(A_MINUTE, "systemctl is-active nodelet", |state| state == "active");
    assert_ne!(show(guest, "MainPID"), before);
    let journal = guest.run("journalctl -b -u nodelet -o cat");
    assert!(journal.contains("Watchdog timeout"), "{journal}");
}

/// Memory is exhausted for longer than the grace period, and the OOM killer kills other processes.
fn keeps_its_heartbeat_without_memory(double: &Double, guest: &mut Guest) {
    let before = show(guest, "MainPID,NRestarts");
    let given_up = double.left_ready();
    guest.try_run("timeout 60 sh -c 'while :; do tail /dev/zero; done'");
    let log = guest.run("dmesg | grep 'Out of memory: Killed process'");
    assert!(log.lines().all(|line| line.contains("(tail)")), "{log}");
    println!("{} processes killed for want of memory", log.lines().count());
    assert_eq!(show(guest, "MainPID,NRestarts"), before);
    assert_eq!(double.left_ready(), given_up);
    assert!(ready(double).is_some());
}

/// Prints the steps from the kernel to a Ready Node, with the time of the guest.
fn print_steps(journal: &str) {
    let steps = [
        "Booting Linux",
        "Run /init",
        "systemd 2",
        "Starting nodelet.service",
        "Finished network.service",
        "Reached target multi-user.target",
        "registered at",
        "Started nodelet.service",
    ];
    for step in steps {
        let line = journal.lines().find(|line| line.contains(step));
        println!("{}", line.unwrap_or_else(|| panic!("no {step:?} in\n{journal}")));
    }
}

/// A kubeconfig with the guest's address of this machine's loopback.
fn reached_from_guest(double: &Double, kubeconfig: &str) -> String {
    let server = format!("https://10.0.2.2:{}\n    tls-server-name: localhost", double.port());
    kubeconfig.replace(&double.url(), &server)
}

/// The static binary is built, and image.sh has run: its folder.
fn image() -> &'static Path {
    static IMAGE: OnceLock<PathBuf> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        run(Command::new(project.join("cross/build.sh")).arg(TARGET));
        let image = run(&mut Command::new(project.join("tests/boot/image.sh")));
        PathBuf::from(image.trim())
    })
}

/// The credential of the Node `board`, in a file.
fn kubeconfig(double: &Double, folder: &Folder) -> PathBuf {
    let kubeconfig = reached_from_guest(double, &double.kubeconfig_for_node("board"));
    folder.write("nodelet.kubeconfig", kubeconfig)
}

/// The initramfs of image.sh with the archive of systemd/initramfs.sh appended; `words` are
/// arguments of the latter.
fn initramfs(folder: &Folder, words: &[&Path]) -> PathBuf {
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let initramfs = folder.path().join("initramfs");
    let binary = project.join("dist").join(TARGET).join("nodelet");
    // The last argument is the credential.
    let (options, credentials) = words.split_at(words.len() - 1);
    run(Command::new("sh")
        .args(["-ceu", APPEND, "sh"])
        .args(options)
        .arg(binary)
        .args(credentials)
        .env("BASE", image().join("initramfs"))
        .env("PROJECT", project)
        .env("INITRAMFS", &initramfs));
    initramfs
}

/// As the comment in systemd/initramfs.sh describes it.
const APPEND: &str = r#"
cp "$BASE" "$INITRAMFS"
truncate -s %4 "$INITRAMFS"
"$PROJECT/systemd/initramfs.sh" "$@" >>"$INITRAMFS"
"#;

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}
