//! Wrong flags and files: one line on stderr, an exit code, no request. And `nodelet inspect`.

use std::process::Command;

use apidouble::Double;
use support::Folder;

/// The exit code and stderr.
fn run(args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), stderr)
}

#[test]
fn bad_input_ends_with_one_line_before_anything_is_sent() {
    let double = Double::start();
    let folder = Folder::new("wrong");
    let good = double.kubeconfig_for_node("pi");
    let write = |name: &str, text: &str| folder.write(name, text).to_str().unwrap().to_owned();
    let good_path = write("good", &good);
    let key = good
        .lines()
        .find(|l| l.contains("client-key-data"))
        .unwrap();
    let cert = good
        .lines()
        .find(|l| l.contains("client-certificate-data"))
        .unwrap();
    let ca = good
        .lines()
        .find(|l| l.contains("certificate-authority-data"))
        .unwrap();
    let context = good
        .lines()
        .find(|l| l.contains("current-context"))
        .unwrap();
    let server = good.lines().find(|l| l.contains("server:")).unwrap();
    let kubeconfigs = [
        ("not-yaml", "a: [b".to_owned(), "line"),
        ("a-list", "- a\n".to_owned(), "no mapping at the top"),
        (
            "missing-key-file",
            good.replace(key, "    client-key: no/such.key"),
            "no/such.key",
        ),
        (
            "bad-base64",
            good.replace(cert, "    client-certificate-data: '***'"),
            "client-certificate-data",
        ),
        (
            "not-a-certificate",
            good.replace(ca, "    certificate-authority-data: aGVsbG8="),
            "certificate",
        ),
        (
            "no-such-context",
            good.replace(context, "current-context: nowhere"),
            "nowhere",
        ),
        ("no-key", good.replace(key, ""), "client-key"),
        (
            "no-server",
            good.replace(server, "    server: ftp://x"),
            "server",
        ),
        (
            "exec",
            good.replace(key, "    exec: {command: aws}")
                .replace(cert, ""),
            "exec",
        ),
    ];
    for (name, text, hint) in kubeconfigs {
        let path = write(name, &text);
        let (code, stderr) = run(&[&format!("--kubeconfig={path}"), "--hostname-override=pi"]);
        assert_eq!(code, 1, "{name}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{name}: {stderr}");
        assert!(
            stderr.contains(name) && stderr.contains(hint),
            "{name}: {stderr}"
        );
        println!("{stderr}");
    }

    let config = |fields: &str| {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        format!("{head}{fields}\n")
    };
    let bad_config = write("bad-config", &config("maxPods: many"));
    let negative = write("negative", &config("maxPods: -1"));
    let long = "x".repeat(64);
    for (args, hint) in [
        (&["--kubeconfig=/no/such/file"][..], "/no/such/file"),
        (&[][..], "--kubeconfig"),
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["--register-with-taints=foo"][..], "taint"),
        (&["--register-with-taints=foo:Never"][..], "taint effect"),
        (
            &["--node-labels=node-role.kubernetes.io/worker=x"][..],
            "node-role.kubernetes.io/worker",
        ),
        (&["--node-labels", "a b=c"][..], "a b"),
        (&["--node-ip=1.2.3"][..], "1.2.3"),
        (&["--node-ip=1.2.3.4,5.6.7.8"][..], "dual-stack"),
        (&["--node-status-update-frequency=10"][..], "10s"),
        (&["--node-status-update-frequency=0s"][..], "too short"),
        (&["--eviction-hard=mem.available<1Gi"][..], "mem.available"),
        (
            &["--eviction-hard=memory.available=1Gi"][..],
            "string<string",
        ),
        (&["--eviction-hard=memory.available<150%"][..], "<= 100%"),
        (
            &["--eviction-soft=memory.available<1Gi"][..],
            "grace period",
        ),
        (&["--system-reserved=disk=1"][..], "cannot reserve"),
        (
            &["inspect", "--system-reserved=memory=900Ti"][..],
            "capacity of",
        ),
        (
            &["inspect", "--reserved-cpus=0-4294967294"][..],
            "capacity of",
        ),
        (&["--extended-resources=camera=1"][..], "example.com/camera"),
        (&["--node-status-max-images=-2"][..], "-1 or greater"),
        (
            &["--max-pods=-1", "--port=0"][..],
            ", invalid configuration: port",
        ),
        (
            &["--config=/no/such/config"][..],
            "/no/such/config: no such file",
        ),
        (
            &["--config", &good_path][..],
            "kubelet.config.k8s.io/v1beta1",
        ),
        (&["--config", &bad_config][..], "maxPods is not a number"),
        (&["--config", &negative][..], "maxPods (--max-pods) -1"),
        (&["--node-lease-duration-seconds=0"][..], "greater than 0"),
        (&["--max-pods=-1"][..], "negative"),
        (&["--max-pods=many"][..], "many"),
        (&["--cloud-provider=aws"][..], "external"),
        (&["--hostname-override", &long][..], "63"),
        (&["--hostname-override", "a_b"][..], "a_b"),
        (&["--register-node=maybe"][..], "true or false"),
        (&["--host-root=/no/such/root"][..], "/no/such/root"),
        (&["explode"][..], "explode"),
        (&["--max-pods"][..], "needs an argument"),
    ] {
        let kubeconfig = format!("--kubeconfig={good_path}");
        let mut all: Vec<&str> = args.to_vec();
        if !args.is_empty() && !args[0].starts_with("--kubeconfig") {
            all.insert(0, &kubeconfig);
        }
        let (code, stderr) = run(&all);
        assert!(code == 1 || code == 2, "{args:?}: {code}, {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(
            stderr.starts_with("nodelet: ") && stderr.contains(hint),
            "{args:?}: {stderr}"
        );
        println!("{stderr}");
    }
    assert_eq!(double.connections(), 0, "nothing was sent");
}

#[test]
fn help_and_version_exit_with_0() {
    for flag in ["--help", "-h", "--version"] {
        let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
            .arg(flag)
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(output.stderr.is_empty());
        assert!(
            String::from_utf8(output.stdout)
                .unwrap()
                .contains("nodelet")
        );
    }
}

/// kubeadm's KubeletConfiguration, with the flags of its systemd unit.
#[test]
fn a_kubelet_configuration_works_and_flags_take_precedence() {
    let folder = Folder::new("kubeadm");
    let config = folder.write(
        "config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cgroupDriver: systemd\nmaxPods: 7\npodsPerCore: 0\nsystemReserved: {memory: 1Mi}\n\
         evictionHard: {}\nnodeStatusUpdateFrequency: 0s\nmaxPod: 1\n",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .args(["inspect", "--hostname-override=pi", "--config"])
        .arg(config)
        .args([
            "--cgroup-driver=systemd",
            "--pod-infra-container-image=pause:3.10",
        ])
        .args(["--extended-resources=example.com/camera=1", "--max-pods=9"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let node: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let status = &node["status"];
    assert_eq!(status["capacity"]["pods"], "9");
    assert_eq!(status["allocatable"]["example.com/camera"], "1");
    // An empty map in the file is no threshold.
    let storage = |resources: &str| &status[resources]["ephemeral-storage"];
    assert_eq!(storage("capacity"), storage("allocatable"));
    assert_ne!(
        status["capacity"]["memory"],
        status["allocatable"]["memory"]
    );
    let said: Vec<&str> = stderr
        .lines()
        .filter(|line| line.contains("accepted"))
        .collect();
    assert_eq!(
        said,
        ["nodelet: accepted without effect: --cgroup-driver, \
          --pod-infra-container-image, cgroupDriver"]
    );
    assert!(
        stderr.contains("warning: --config: unknown fields ignored: maxPod\n"),
        "{stderr}"
    );
}

/// Runs `nodelet inspect` with `--output` on an empty root.
fn inspected(output: &str) -> (Option<i32>, String, String) {
    let root = Folder::new("nothing");
    let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .args(["inspect", "--hostname-override=pi", "--output", output])
        .arg("--host-root")
        .arg(root.path())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn inspect_prints_text_or_json_and_refuses_other_formats() {
    let (code, out, _) = inspected("text");
    assert_eq!(code, Some(0));
    assert!(out.starts_with("Name:               pi\n"), "{out}");
    assert!(out.contains("\nSystem Info:\n"), "{out}");
    let (code, out, _) = inspected("json");
    assert!(code == Some(0) && out.starts_with("{\n"), "{out}");
    let (code, out, err) = inspected("yaml");
    let line = "nodelet: --output \"yaml\": write json or text\n";
    assert_eq!((code, out.as_str(), err.as_str()), (Some(2), "", line));
}

#[test]
fn inspect_prints_one_line_for_each_missing_fact() {
    let (_, _, err) = inspected("json");
    let absent = "no such file or directory";
    let lines = [
        format!("sys/devices/system/cpu: {absent}; no capacity cpu"),
        format!("proc/meminfo: {absent}; no capacity memory, MemoryPressure is not checked"),
        "etc/machine-id: absent or empty; no machineID".to_owned(),
        "sys/class/dmi/id/product_uuid, etc/machine-id: absent or empty; no systemUUID".to_owned(),
        format!("proc/sys/kernel/random/boot_id: {absent}; no bootID"),
        format!("proc/sys/kernel/osrelease: {absent}; kernelVersion is Unknown"),
        format!("usr/lib/os-release: {absent}; osImage is Unknown"),
        format!("proc/sys/kernel/threads-max: {absent}; PIDPressure is not checked"),
    ];
    for line in &lines {
        let count = err
            .lines()
            .filter(|l| *l == format!("nodelet: {line}"))
            .count();
        assert_eq!(count, 1, "{line}\n{err}");
    }
    // Interfaces are always those of this machine, so the line about addresses may be absent.
    let others = err.lines().filter(|l| !l.contains("addresses")).count();
    assert_eq!(others, lines.len(), "{err}");
}

#[test]
fn inspect_needs_neither_server_nor_kubeconfig() {
    let output = Command::new(env!("CARGO_BIN_EXE_nodelet"))
        .args(["inspect", "--hostname-override=pi", "--max-pods", "3"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let node: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(node["kind"], "Node");
    assert_eq!(node["metadata"]["name"], "pi");
    assert_eq!(node["status"]["capacity"]["pods"], "3");
}
