//! The files of systemd/, checked with systemd's own tools and with cpio.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{Folder, eventually, skip};

/// Settings of the unit that an older systemd does not know, and the first version with them.
const NEWER: [(&str, u32); 2] = [("RestartSteps=", 254), ("RestartMaxDelaySec=", 254)];

/// Exposure level of `systemd-analyze security`, times ten; the worst is 100.
const MOST_EXPOSURE: u32 = 15;

fn systemd(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd").join(name)
}

fn unit(name: &str) -> String {
    fs::read_to_string(systemd(name)).unwrap()
}

fn has_lines(name: &str, lines: &[&str]) {
    let unit = unit(name);
    for line in lines {
        assert!(unit.lines().any(|other| other == *line), "{name}: {line}");
    }
}

/// The version of systemd-analyze; `None`, and a skip, without it.
fn version() -> Option<u32> {
    if !skip::has_tool("systemd-analyze") {
        return None;
    }
    let output = Command::new("systemd-analyze").arg("--version").output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let number = text.split_whitespace().nth(1).unwrap();
    let digits = number.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    Some(digits.parse().unwrap())
}

/// Copies the unit into `folder`, without the settings that systemd of this `version` does not
/// know, and with the path of the built binary.
fn copy(name: &str, folder: &Folder, version: u32) {
    let is_known = |line: &&str| {
        let newer = NEWER.iter().find(|(name, _)| line.starts_with(name));
        newer.is_none_or(|(_, since)| version >= *since)
    };
    let unit = unit(name).replace("/usr/bin/nodelet", env!("CARGO_BIN_EXE_nodelet"));
    folder.write(name, unit.lines().filter(is_known).collect::<Vec<_>>().join("\n"));
}

fn analyze(words: &[&str], unit: &Path) -> Output {
    let mut command = Command::new("systemd-analyze");
    command.args(words).arg(unit).env("LC_ALL", "C.UTF-8").output().unwrap()
}

/// The last of the units, which is valid beside the others; with the mistake it is not. `None`, and
/// a skip, without the tool.
fn verified(folder: &Folder, units: &[&str], [right, mistake]: [&str; 2]) -> Option<PathBuf> {
    let version = version()?;
    units.iter().for_each(|name| copy(name, folder, version));
    let unit = folder.path().join(units.last()?);
    let verify = || analyze(&["verify", "--recursive-errors=yes", "--man=no"], &unit);
    let output = verify();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, text.replace(right, mistake)).unwrap();
    assert!(!verify().stderr.is_empty(), "{mistake} is passed over");
    fs::write(&unit, text).unwrap();
    Some(unit)
}

/// The table of `systemd-analyze security` for the last of the units, which is [`verified`] and has
/// these settings.
fn analyzed(units: &[&str], wrong: [&str; 2], settings: &[&str]) -> Option<String> {
    let folder = Folder::new("unit");
    let unit = verified(&folder, units, wrong)?;
    // With DefaultDependencies=no some settings are not assessed.
    let text = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, text.replace("DefaultDependencies=no\n", "")).unwrap();
    let threshold = format!("--threshold={MOST_EXPOSURE}");
    let output = analyze(&["security", "--offline=yes", "--no-pager", &threshold], &unit);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    println!("{}", table.lines().last().unwrap());
    for setting in settings {
        assert!(table.contains(&format!("✓ {setting}")), "{table}");
    }
    Some(table)
}

#[test]
fn the_unit_of_the_agent_is_valid_and_hardened() {
    let Some(table) = analyzed(&["nodelet.service"], ["MemoryMax=", "MemoryMaximum="], &[]) else {
        return;
    };
    // systemd/README.md has the reason for each setting that the unit does not use.
    let readme = fs::read_to_string(systemd("README.md")).unwrap();
    let (_, hardening) = readme.split_once("\n## Hardening\n").unwrap();
    let hardening = hardening.split("\n#").next().unwrap();
    let open = table.lines().filter_map(|line| line.strip_prefix("✗ "));
    let mut count = 0;
    for line in open {
        let name = line.split(['=', ' ']).next().unwrap();
        assert!(hardening.contains(&format!("`{name}=")), "{name}: why?");
        count += 1;
    }
    assert!(count > 4, "{table}");
}

#[test]
fn the_path_unit_is_valid() {
    let folder = Folder::new("path");
    verified(&folder, &["nodelet.service", "nodelet.path"], ["PathChanged=", "PathChange="]);
}

/// Runs systemd/initramfs.sh; the archive, or stderr.
fn archive(umask: &str, words: &[&Path]) -> Result<Vec<u8>, String> {
    let output = Command::new("sh")
        .args(["-c", &format!("umask {umask} && exec \"$@\""), "sh"])
        .arg(systemd("initramfs.sh"))
        .args(words)
        .output()
        .unwrap();
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

#[test]
fn the_initramfs_archive_is_reproducible_and_its_secrets_are_roots() {
    if !skip::has_tool("cpio") {
        return;
    }
    let folder = Folder::new("archive");
    let binary = folder.write("here/nodelet", "a binary");
    let kubeconfig = folder.write("here/nodelet.kubeconfig", "a secret");
    let default = systemd("nodelet.default");
    let one = archive("022", &[Path::new("-d"), &default, &binary, &kubeconfig]).unwrap();
    assert!(one.starts_with(b"070701"), "not a newc archive");
    assert_eq!(one.len() % 512, 0);

    // Another folder, another time, another umask.
    let binary = folder.write("there/other", "a binary");
    let kubeconfig = folder.write("there/nodelet.kubeconfig", "a secret");
    let two = archive("077", &[Path::new("-d"), &default, &binary, &kubeconfig]).unwrap();
    assert!(one == two, "two archives of the same differ");

    let path = folder.path().join("archive");
    fs::write(&path, &one).unwrap();
    let list = Command::new("sh")
        .args(["-c", "cpio --quiet -tvn <\"$1\"", "sh"])
        .arg(&path)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let list: Vec<(String, String)> = list
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            assert_eq!((words[2], words[3]), ("0", "0"), "{line}");
            (words[0].to_owned(), words[8..].join(" "))
        })
        .collect();
    let unit = "/usr/lib/systemd/system/nodelet.service";
    for (mode, name) in [
        ("drwxr-xr-x", "etc"),
        ("drwx------", "etc/credstore"),
        ("-rw-------", "etc/credstore/nodelet.kubeconfig"),
        ("-rw-r--r--", "etc/default/nodelet"),
        ("-rwxr-xr-x", "usr/bin/nodelet"),
        ("-rw-r--r--", &unit[1..]),
        (
            "lrwxrwxrwx",
            &format!("etc/systemd/system/multi-user.target.wants/nodelet.service -> {unit}"),
        ),
        (
            "lrwxrwxrwx",
            &format!("etc/systemd/system/initrd.target.wants/nodelet.service -> {unit}"),
        ),
    ] {
        let wanted = (mode.to_owned(), name.to_owned());
        assert!(list.contains(&wanted), "{wanted:?} is not in {list:#?}");
    }
}

/// dash runs no EXIT trap when a signal ends it.
#[test]
fn an_interrupted_initramfs_script_removes_the_credentials() {
    let folder = Folder::new("interrupted");
    let binary = folder.write("nodelet", "a binary");
    let kubeconfig = folder.write("nodelet.kubeconfig", "a secret");
    // It runs while the signal comes; the shell handles the signal after its end.
    folder.program("bin/cpio", "#!/bin/sh\ntouch \"$RUNNING\"\nexec sleep 1\n");
    for signal in [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM] {
        let temp = folder.path().join(signal.as_str());
        fs::create_dir(&temp).unwrap();
        let running = folder.path().join(format!("{signal}.running"));
        // A shell cannot trap a signal that it was started without, as by nohup.
        let mut script = Command::new("env")
            .args(["--default-signal=HUP,INT,TERM", "sh"])
            .arg(systemd("initramfs.sh"))
            .args([&binary, &kubeconfig])
            .env("TMPDIR", &temp)
            .env("RUNNING", &running)
            .env("PATH", folder.search_path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("cpio", Duration::from_secs(10), || running.exists().then_some(()));
        assert_eq!(fs::read_dir(&temp).unwrap().count(), 1);
        kill(Pid::from_raw(script.id().cast_signed()), signal).unwrap();
        let status = script.wait().unwrap();
        assert_eq!(status.code(), Some(128 + signal as i32), "{status}");
        assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "{signal}");
    }
}

/// `initramfs.sh -j` packs what `nodelet join --root` wrote.
#[test]
fn the_initramfs_archive_has_the_files_of_a_join() {
    if !skip::has_tool("cpio") {
        return;
    }
    let folder = Folder::new("joined");
    let binary = folder.write("nodelet", "a binary");
    folder.write("tree/etc/default/nodelet-join", "NODELET_JOIN_FLAGS=--a\n");
    folder.write("tree/etc/credstore/nodelet.kubeconfig", "a secret");
    folder.write("tree/etc/credstore/nodelet.kubeconfig.new", "of an interrupted join");
    let tree = folder.path().join("tree");
    let packed = archive("022", &[Path::new("-j"), &tree, &binary]).unwrap();
    for left_out in ["kubelet-client", "nodelet.kubeconfig.new"] {
        assert!(!String::from_utf8_lossy(&packed).contains(left_out), "{left_out}");
    }
    // An absolute link is one of the image. Nothing is packed of this machine.
    fs::rename(tree.join("etc/credstore"), tree.join("credstore")).unwrap();
    symlink("/credstore", tree.join("etc/credstore")).unwrap();
    // Of a board that has renewed, the pair in use with its link, and no other pair.
    renewed(&folder);
    let flags = "NODELET_FLAGS=--config=/etc/nodelet/config.yaml --config-dir=/etc/nodelet/d\n";
    folder.write("tree/etc/default/nodelet", flags);
    folder.write("tree/data/config.yaml", "the file");
    folder.write("tree/etc/nodelet/d/e/a b.conf", "a drop-in");
    folder.write("tree/etc/nodelet/d/other", "no drop-in");
    symlink("/data/config.yaml", tree.join("etc/nodelet/config.yaml")).unwrap();
    folder.write("tree/etc/systemd/system/nodelet.service.d/a.conf", "[Service]\n");
    let packed = archive("022", &[Path::new("-j"), &tree, &binary]).unwrap();
    let unpacked = folder.path().join("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let mut cpio = Command::new("cpio")
        .args(["--quiet", "-id"])
        .current_dir(&unpacked)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    cpio.stdin.take().unwrap().write_all(&packed).unwrap();
    assert!(cpio.wait().unwrap().success());
    let pki = unpacked.join("var/lib/nodelet/pki");
    assert_eq!(fs::read_link(pki.join(CURRENT)).unwrap(), Path::new("kubelet-client-2.pem"));
    for (file, text) in [
        (unpacked.join("etc/default/nodelet-join"), "NODELET_JOIN_FLAGS=--a\n"),
        (unpacked.join("etc/default/nodelet"), flags),
        (unpacked.join("etc/nodelet/config.yaml"), "the file"),
        (unpacked.join("etc/nodelet/d/e/a b.conf"), "a drop-in"),
        (unpacked.join("etc/systemd/system/nodelet.service.d/a.conf"), "[Service]\n"),
        (unpacked.join("etc/credstore/nodelet.kubeconfig"), "a secret"),
        (pki.join(CURRENT), "in use"),
    ] {
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    assert_eq!(fs::read_dir(&pki).unwrap().count(), 2);
    assert_eq!(fs::read_dir(unpacked.join("etc/nodelet/d")).unwrap().count(), 1);
    for (name, mode) in [("", 0o700), ("..", 0o700), ("kubelet-client-2.pem", 0o600)] {
        let metadata = fs::metadata(pki.join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
    }
}

const CURRENT: &str = "kubelet-client-current.pem";

/// Flags that name the folder of the certificate, and where it is then.
const FOLDERS: [(&str, &str); 4] = [
    ("#NODELET_FLAGS=--root-dir=/data\n", "var/lib/nodelet/pki"),
    ("NODELET_FLAGS=--root-dir=/data\n", "data/pki"),
    ("NODELET_FLAGS=\"--cert_dir /data/a \\\n  --cert-dir=/data/b\"\n", "data/b"),
    ("NODELET_FLAGS='--cert-dir=/var/lib/nodelet/certificates'\n", "var/lib/nodelet/certificates"),
];

/// Packed flags that name another folder than what is packed would be those of another agent.
#[test]
fn an_initramfs_has_the_certificate_of_the_folder_that_the_flags_name() {
    if !skip::has_tool("cpio") {
        return;
    }
    for (flags, pki) in FOLDERS {
        let folder = Folder::new("folders");
        let binary = folder.write("nodelet", "a binary");
        folder.write("tree/etc/default/nodelet-join", "NODELET_JOIN_FLAGS=--cert-dir=\n");
        folder.write("tree/etc/default/nodelet", flags);
        folder.write("tree/etc/credstore/nodelet.kubeconfig", "a secret");
        for place in ["var/lib/nodelet/pki", pki] {
            folder.write(&format!("tree/{place}/kubelet-client-2.pem"), place);
            let link = folder.path().join("tree").join(place).join(CURRENT);
            let _ = symlink("kubelet-client-2.pem", link);
        }
        let tree = folder.path().join("tree");
        let packed = archive("022", &[Path::new("-j"), &tree, &binary]).unwrap();
        let packed = String::from_utf8_lossy(&packed);
        let count = packed.matches("/kubelet-client-2.pem").count();
        assert!(packed.contains(&format!("{pki}/kubelet-client-2.pem\0")), "{flags}");
        assert_eq!(count, 1, "{flags}");
        let installed = installed_by_dracut(&folder);
        assert!(installed.contains(&format!("/{pki}/{CURRENT}")), "{flags}: {installed:?}");
    }
}

/// The state of a board in `tree`, as systemd makes it for a dynamic user.
fn renewed(folder: &Folder) {
    let pki = "tree/var/lib/private/nodelet/pki";
    folder.write(&format!("{pki}/kubelet-client-1.pem"), "old");
    folder.write(&format!("{pki}/kubelet-client-2.pem"), "in use");
    let tree = folder.path().join("tree");
    symlink("private/nodelet", tree.join("var/lib/nodelet")).unwrap();
    symlink("kubelet-client-2.pem", tree.join("var/lib/nodelet/pki").join(CURRENT)).unwrap();
}

/// The files of `tree` that the dracut module asks for.
fn installed_by_dracut(folder: &Folder) -> Vec<String> {
    let output = Command::new("bash")
        .args(["-euc", "inst_multiple() { printf '%s\n' \"$@\"; }; . \"$1\"; install", "bash"])
        .arg(systemd("dracut/90nodelet/module-setup.sh"))
        .env("dracutsysrootdir", folder.path().join("tree"))
        .env("systemdsystemconfdir", "/etc/systemd/system")
        .env("systemdsystemunitdir", "/usr/lib/systemd/system")
        .env("SYSTEMCTL", "true")
        .env("initdir", folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let installed = String::from_utf8(output.stdout).unwrap();
    installed.lines().filter(|line| *line != "-o").map(str::to_owned).collect()
}

/// What the module asks dracut to install; the boot test runs dracut itself.
#[test]
fn the_dracut_module_installs_flags_credentials_and_the_certificate_in_use() {
    let folder = Folder::new("dracut");
    renewed(&folder);
    folder.write("tree/etc/credstore/nodelet.kubeconfig", "a secret");
    let flags = "NODELET_FLAGS=--config=/etc/nodelet/config.yaml --config-dir=/etc/nodelet/d\n";
    folder.write("tree/etc/default/nodelet", flags);
    folder.write("tree/etc/nodelet/d/e/a b.conf", "a drop-in");
    let installed = installed_by_dracut(&folder);
    let current = format!("/var/lib/nodelet/pki/{CURRENT}");
    for path in [
        "nodelet",
        "/usr/lib/systemd/system/nodelet.service",
        "/etc/default/nodelet",
        "/etc/default/nodelet-join",
        "/etc/hostname",
        "/etc/credstore/nodelet.kubeconfig",
        "/etc/nodelet/config.yaml",
        "/etc/nodelet/d/e/a b.conf",
        &current,
    ] {
        assert!(installed.iter().any(|name| name == path), "{path}: {installed:?}");
    }
}

#[test]
fn initramfs_sh_refuses_wrong_arguments() {
    let folder = Folder::new("refused");
    let binary = folder.write("nodelet", "a binary");
    let key = folder.write("client.key", "a secret");
    for (words, why) in [
        (vec![], "usage"),
        (vec![binary.as_path(), &key], "begins with nodelet."),
        (vec![Path::new("/no/such/binary")], "/no/such/binary"),
    ] {
        let said = archive("022", &words).unwrap_err();
        assert!(said.contains(why), "{words:?}: {said}");
    }
}

/// The unit that has the socket of the container runtime.
#[test]
fn the_unit_of_the_container_runtime_is_valid_and_hardened() {
    let units = ["nodelet.service", "nodelet-runtime.service"];
    let settings = ["PrivateNetwork=", "CapabilityBoundingSet=~CAP_SYS_ADMIN"];
    analyzed(&units, ["RestartSec=5", "RestartSec=soon"], &settings);
    // It hides the id of the boot: the file would count in the next boot, too.
    let unit = unit("nodelet-runtime.service");
    assert!(!unit.lines().any(|line| line.starts_with("ProcSubset=")));
}

/// The unit that reads the bytes of strangers.
#[test]
fn the_units_of_the_port_are_valid_and_hardened() {
    let units = ["nodelet-serve.socket", "nodelet-serve.service"];
    let settings = ["SystemCallFilter=~@privileged", "CapabilityBoundingSet=~CAP_KILL"];
    analyzed(&units, ["MemoryMax=", "MemoryMaximum="], &settings);
    let [service, agent] = ["nodelet-serve.service", "nodelet.service"].map(unit);
    // What is set for the agent is set here: a setting that one day is added there, too.
    let (_, sandbox) = agent.split_once("\nDynamicUser=yes\n").unwrap();
    let sandbox = sandbox.split("\n[Install]").next().unwrap();
    let credentials = agent.lines().filter(|line| line.starts_with("LoadCredential="));
    let mut count = 0;
    for line in credentials.chain(sandbox.lines()) {
        let is_setting = !line.is_empty() && !line.starts_with('#');
        // The port watches no file system.
        let line = line.replace("ProtectHome=read-only", "ProtectHome=yes");
        assert!(!is_setting || service.lines().any(|l| l.starts_with(&line)), "{line}");
        count += usize::from(is_setting);
    }
    assert!(count > 30, "{count} settings");
    // The agent's process and its memory are of the same user.
    let filter = service.lines().filter(|line| line.starts_with("SystemCallFilter=~"));
    let filter: String = filter.collect();
    let signals =
        ["kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal"];
    // No set of these has prlimit64: without descriptors the agent cannot connect.
    for call in signals.iter().chain(&["prlimit64", "ptrace", "process_vm_writev"]) {
        assert!(filter.split([' ', '~']).any(|word| word == *call), "{call}");
    }
    // The agent's state.
    let delay = ["Restart=on-failure", "RestartSec=10", "StartLimitIntervalSec=0"];
    has_lines("nodelet-serve.service", &delay);
    has_lines("nodelet-serve.service", &["ReadOnlyPaths=/run"]);
    // A socket unit that stops listening after a few failed starts needs a login.
    let lines = ["StartLimitIntervalSec=0", "TriggerLimitIntervalSec=0", "WantedBy=sockets.target"];
    has_lines("nodelet-serve.socket", &lines);
    // Its end with each stop and each start of the agent: afterwards it reads the credentials anew.
    has_lines("nodelet-serve.service", &["PartOf=nodelet.service"]);
    // `nodelet serve` takes the last one.
    let folders =
        ["StateDirectory=nodelet nodelet-serve", "ReadOnlyPaths=-/var/lib/private/nodelet"];
    has_lines("nodelet-serve.service", &folders);
    let stop = "systemctl --no-block stop nodelet-serve.service";
    let mut before = agent.lines().filter(|line| line.starts_with("ExecStartPre="));
    assert!(before.any(|line| line.contains(stop)));
}

/// The unit that reads the journal for those who may.
#[test]
fn the_units_of_the_journal_are_valid_and_hardened() {
    let units = ["nodelet-logs.socket", "nodelet-logs@.service"];
    let settings = ["PrivateNetwork=", "SystemCallFilter=~@privileged", "ProtectSystem="];
    analyzed(&units, ["RuntimeMaxSec=40", "RuntimeMaxSec=soon"], &settings);
    // Who sees the socket: nobody but root, and the unit that binds it.
    let lines = ["ListenStream=/run/nodelet-logs/socket", "DirectoryMode=0700", "Accept=yes"];
    has_lines("nodelet-logs.socket", &lines);
    let bind = "BindReadOnlyPaths=-/run/nodelet-logs/socket:/run/nodelet-logs.sock";
    let lines = [bind, "PartOf=nodelet-logs.socket", "PartOf=nodelet.service"];
    has_lines("nodelet-serve.service", &lines);
}

/// With it, a dynamic user's folder in /run is below /run/private, and nodelet-serve.service finds
/// no state there.
#[test]
fn the_state_of_the_agent_is_in_a_folder_that_others_can_enter() {
    has_lines("nodelet.service", &["RuntimeDirectory=nodelet"]);
    assert!(
        !unit("nodelet.service").lines().any(|line| line.starts_with("RuntimeDirectoryPreserve="))
    );
}
