//! The files of systemd/, checked with systemd's own tools and with cpio.

use std::fs;
use std::os::unix::fs::PermissionsExt;
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
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("systemd")
        .join(name)
}

fn unit() -> String {
    fs::read_to_string(systemd("nodelet.service")).unwrap()
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

/// `systemd-analyze verify` of a text as nodelet.service, with the path of the built binary.
fn verify(text: &str) -> Output {
    let folder = Folder::new("unit");
    let text = text.replace("/usr/bin/nodelet", env!("CARGO_BIN_EXE_nodelet"));
    let unit = folder.write("nodelet.service", &text);
    Command::new("systemd-analyze")
        .args(["verify", "--recursive-errors=yes", "--man=no"])
        .arg(unit)
        .env("LC_ALL", "C")
        .output()
        .unwrap()
}

#[test]
fn systemd_analyze_verifies_the_unit() {
    let Some(version) = version() else { return };
    let known = |line: &&str| {
        let newer = NEWER.iter().find(|(name, _)| line.starts_with(name));
        newer.is_none_or(|(_, since)| version >= *since)
    };
    let text: Vec<&str> = unit().leak().lines().filter(known).collect();
    let text = text.join("\n");
    let output = verify(&text);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");

    // It does find errors.
    for (right, wrong) in [
        ("MemoryMax=", "MemoryMaximum="),
        ("WatchdogSec=90", "WatchdogSec=ninety"),
    ] {
        let output = verify(&text.replace(right, wrong));
        assert!(!output.status.success(), "{wrong} is passed over");
    }
}

#[test]
fn the_exposure_level_of_the_unit_is_within_its_limit() {
    if version().is_none() {
        return;
    }
    let folder = Folder::new("security");
    // With DefaultDependencies=no some settings are not assessed.
    let text = unit().replace("DefaultDependencies=no\n", "");
    let path = folder.write("nodelet.service", &text);
    let output = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(format!("--threshold={MOST_EXPOSURE}"))
        .arg(&path)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    let overall = table.lines().last().unwrap();
    assert!(overall.contains("exposure level"), "{table}");
    println!("{overall}");

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

/// Runs systemd/initramfs.sh; the archive, or stderr.
fn archive(umask: &str, words: &[&Path]) -> Result<Vec<u8>, String> {
    let output = Command::new("sh")
        .args(["-c", &format!("umask {umask} && exec \"$@\""), "sh"])
        .arg(systemd("initramfs.sh"))
        .args(words)
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8(output.stderr).unwrap()),
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
    let cpio = folder.write("bin/cpio", "#!/bin/sh\ntouch \"$RUNNING\"\nexec sleep 1\n");
    fs::set_permissions(&cpio, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        folder.path().join("bin").display(),
        std::env::var("PATH").unwrap()
    );
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
            .env("PATH", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("cpio", Duration::from_secs(10), || {
            running.exists().then_some(())
        });
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
    let tree = folder.path().join("tree");
    let packed = archive("022", &[Path::new("-j"), &tree, &binary]).unwrap();
    let packed = String::from_utf8_lossy(&packed);
    for part in [
        "etc/default/nodelet-join",
        "NODELET_JOIN_FLAGS=--a",
        "etc/credstore/nodelet.kubeconfig",
        "a secret",
    ] {
        assert!(packed.contains(part), "{part}");
    }
}

#[test]
fn systemd_analyze_verifies_the_path_unit() {
    if version().is_none() {
        return;
    }
    let text = fs::read_to_string(systemd("nodelet.path")).unwrap();
    let verify = |text: &str| {
        let folder = Folder::new("path");
        let service = "[Service]\nExecStart=/bin/true\n";
        folder.write("nodelet.service", service);
        let unit = folder.write("nodelet.path", text);
        let output = Command::new("systemd-analyze")
            .args(["verify", "--recursive-errors=yes", "--man=no"])
            .arg(unit)
            .env("LC_ALL", "C")
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(verify(&text), (true, String::new()));
    let (is_sound, said) = verify(&text.replace("PathChanged=", "PathChange="));
    assert!(!is_sound, "{said}");
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

/// The unit that has the socket of the container runtime, and its timer.
#[test]
fn the_unit_of_the_container_runtime_is_valid_and_hardened() {
    if version().is_none() {
        return;
    }
    let folder = Folder::new("runtime-unit");
    let text = |name: &str| {
        let text = fs::read_to_string(systemd(name)).unwrap();
        text.replace("/usr/bin/nodelet", env!("CARGO_BIN_EXE_nodelet"))
    };
    let service = folder.write("nodelet-runtime.service", text("nodelet-runtime.service"));
    let timer = folder.write("nodelet-runtime.timer", text("nodelet-runtime.timer"));
    let analyze = |words: &[&str], files: &[&Path]| {
        let mut command = Command::new("systemd-analyze");
        let command = command.args(words).args(files).env("LC_ALL", "C.UTF-8");
        command.output().unwrap()
    };
    let words = ["verify", "--recursive-errors=yes", "--man=no"];
    let output = analyze(&words, &[&service, &timer]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
    let wrong = text("nodelet-runtime.timer").replace("OnBootSec=1", "OnBootSec=soon");
    folder.write("nodelet-runtime.timer", &wrong);
    let output = analyze(&words, &[&service, &timer]);
    assert!(!output.stderr.is_empty(), "a wrong time is passed over");

    let threshold = format!("--threshold={MOST_EXPOSURE}");
    let words = ["security", "--offline=yes", "--no-pager", &threshold];
    let output = analyze(&words, &[&service]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{table}");
    println!("{}", table.lines().last().unwrap());
    for setting in ["PrivateNetwork=", "CapabilityBoundingSet=~CAP_SYS_ADMIN"] {
        assert!(table.contains(&format!("✓ {setting}")), "{table}");
    }
}

/// The command of that unit: the file is replaced as a whole, and only by a look that succeeded.
#[test]
fn the_facts_of_the_container_runtime_are_replaced_as_a_whole() {
    let folder = Folder::new("runtime-facts");
    let unit = fs::read_to_string(systemd("nodelet-runtime.service")).unwrap();
    let line = unit
        .lines()
        .find_map(|l| l.strip_prefix("ExecStart=/bin/sh -ec '"));
    let script = line.unwrap().trim_end_matches('\'');
    let run = |program: &str| {
        let script = script.replace("/usr/bin/nodelet", program);
        let mut command = Command::new("/bin/sh");
        command.args(["-ec", &script]).env("ENDPOINT", "unix:///x");
        command.env("RUNTIME_DIRECTORY", folder.path());
        command.status().unwrap().success()
    };
    let facts = || fs::read_to_string(folder.path().join("facts.json")).ok();
    assert!(!run("false"));
    assert_eq!(facts(), None);
    assert!(run("echo"));
    let first = facts();
    assert_eq!(
        first.as_deref(),
        Some("runtime --container-runtime-endpoint=unix:///x\n")
    );
    assert!(!run("false"));
    assert_eq!(facts(), first);
}
