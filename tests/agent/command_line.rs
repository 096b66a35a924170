//! Wrong flags and files: one line on stderr, an exit code, no request. And `nodelet inspect`. Each
//! error has its unit test in `src/config` or `src/identity`; here is one of each place that finds
//! one.

use apidouble::Double;
use support::Folder;

use crate::common::command::{Ended, command, end, nodelet};

#[test]
fn bad_input_ends_with_one_line_before_anything_is_sent() {
    let double = Double::start();
    let folder = Folder::new("wrong");
    let good = double.kubeconfig_for_node("pi");
    let write = |name: &str, text: &str| folder.write(name, text).to_str().unwrap().to_owned();
    let good_path = write("good", &good);
    let wrong = format!("--kubeconfig={}", write("not-yaml", "a: [b"));
    let config = |fields: &str| {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        format!("{head}{fields}\n")
    };
    let bad_config = write("bad-config", &config("maxPods: many"));
    let negative = write("negative", &config("maxPods: -1"));
    let drop_ins = |name: &str, text: &str| {
        let file = write(&format!("{name}/10/20.conf"), text);
        format!("--config-dir={}", file.strip_suffix("/10/20.conf").unwrap())
    };
    let (bad, none) = (drop_ins("bad.d", &config("port: a")), drop_ins("none.d", "port: 1"));
    let large = drop_ins("large.d", &config(&" ".repeat(1 << 20)));
    for (want, args, hint) in [
        (1, &["--kubeconfig=/no/such/file"][..], "/no/such/file"),
        (1, &[&wrong, "--hostname-override=pi"], "not-yaml: line"),
        (
            1,
            &["--kubeconfig=/no/such/file", "--rotate-certificates"],
            "/no/such/file: no such file",
        ),
        (
            1,
            &["--kubeconfig=/no/such/file", "--bootstrap-kubeconfig=/no/such/b"],
            "/no/such/b: no such",
        ),
        (2, &[][..], "--kubeconfig"),
        (2, &["--no-such-flag"][..], "--no-such-flag"),
        (2, &["--register-with-taints=foo:Never"][..], "taint effect"),
        (1, &["inspect", "--system-reserved=memory=900Ti"][..], "capacity of"),
        (1, &["--config=/no/such/config"][..], "/no/such/config: no such file"),
        (1, &["--config", &good_path][..], "kubelet.config.k8s.io/v1beta1"),
        (2, &["--config", &bad_config][..], "maxPods is not a number"),
        (2, &["--config", &negative][..], "maxPods (--max-pods) -1"),
        (1, &["--config-dir=/no/such"], "--config-dir /no/such: no such file"),
        (2, &[&bad], "bad.d/10/20.conf: port is not a number"),
        (1, &[&none], "none.d/10/20.conf: apiVersion is \"\""),
        (1, &[&large], "large.d/10/20.conf: larger than 1048576 bytes"),
        (2, &["--host-root=/no/such/root"][..], "/no/such/root"),
        (2, &["serve", "--anonymous-auth"][..], "--anonymous-auth=true"),
        (2, &["serve", "--kubeconfig="][..], "--kubeconfig is missing"),
    ] {
        let kubeconfig = format!("--kubeconfig={good_path}");
        let mut all: Vec<&str> = args.to_vec();
        if !args.is_empty() && !args[0].starts_with("--kubeconfig") {
            all.insert(0, &kubeconfig);
        }
        let Ended { code, stderr, .. } = nodelet(all);
        assert_eq!(code, want, "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
        assert!(stderr.starts_with("nodelet: ") && stderr.contains(hint), "{args:?}: {stderr}");
        println!("{stderr}");
    }
    assert_eq!(double.connections(), 0, "nothing was sent");
}

#[test]
fn help_and_version_exit_with_0() {
    for flag in ["--help", "-h", "--version"] {
        let ended = nodelet([flag]);
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
        assert!(ended.stdout.contains("nodelet"));
    }
    for (args, has) in [(&["--help"][..], false), (&["--help", "--all"], true)] {
        let text = nodelet(args).stdout;
        assert_eq!(text.contains("--event-qps"), has, "{args:?}: {text}");
    }
}

/// kubeadm's KubeletConfiguration, with the flags of its systemd unit.
#[test]
fn a_kubelet_configuration_works_and_flags_take_precedence() {
    let folder = Folder::new("kubeadm");
    let config = folder.write(
        "config.yaml",
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cgroupDriver: systemd\nrunOnce: once\nmaxPods: 7\npodsPerCore: 0\nsystemReserved: {memory: 1Mi}\n\
         evictionHard: {}\nnodeStatusUpdateFrequency: 0s\nmaxPod: 1\n",
    );
    let mut inspect = command(["inspect", "--hostname-override=pi", "--config"]);
    inspect.arg(config).args(["--cgroup-driver=systemd", "--pod-infra-container-image=pause:3.10"]);
    inspect.args(["--extended-resources=example.com/camera=1", "--max-pods=9"]);
    let Ended { code, stdout, stderr } = end(&mut inspect);
    assert_eq!(code, 0, "{stderr}");
    let node: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let status = &node["status"];
    assert_eq!(status["capacity"]["pods"], "9");
    assert_eq!(status["allocatable"]["example.com/camera"], "1");
    // An empty map in the file is no threshold.
    let storage = |resources: &str| &status[resources]["ephemeral-storage"];
    assert_eq!(storage("capacity"), storage("allocatable"));
    assert_ne!(status["capacity"]["memory"], status["allocatable"]["memory"]);
    let said: Vec<&str> = stderr.lines().filter(|line| line.contains(": ignored: ")).collect();
    assert_eq!(
        said,
        ["nodelet: ignored: --cgroup-driver, --pod-infra-container-image, cgroupDriver, runOnce"]
    );
    assert!(
        stderr.contains("warning: configuration: unknown fields ignored: maxPod\n"),
        "{stderr}"
    );
}

/// A kubelet of kubernetes/kubernetes#119390: reservations, taints and a providerID in drop-ins.
#[test]
fn drop_ins_are_merged_over_the_configuration() {
    let folder = Folder::new("drop-ins");
    let write = |name: &str, fields: &str| {
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        folder.write(name, format!("{head}{fields}\n"))
    };
    let file = write("config.yaml", "providerID: lab://1\nsystemReserved: {cpu: 1m, memory: 1Mi}");
    write("conf.d/20.conf", "registerWithTaints: [{key: board, value: b, effect: NoSchedule}]");
    write("conf.d/10/a.conf", "registerWithTaints: [{key: a, effect: NoSchedule}]");
    write("conf.d/10/b.conf", "providerID: lab://2\nsystemReserved: {memory: 2Mi}\nmaxPods: 5");
    write("conf.d/30.conf.bak", "providerID: lab://3");
    let config_dir = format!("--config-dir={}", folder.path().join("conf.d").display());
    let mut inspect = command(["inspect", "--hostname-override=pi", &config_dir, "--max-pods=6"]);
    let Ended { code, stdout, stderr } = end(inspect.arg("--config").arg(file));
    assert_eq!(code, 0, "{stderr}");
    assert!(!stderr.contains("ignored"), "{stderr}");
    let node: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(node["spec"]["providerID"], "lab://2");
    let taints = serde_json::json!([{"key": "board", "value": "b", "effect": "NoSchedule"}]);
    assert_eq!(node["spec"]["taints"], taints);
    assert_eq!(node["status"]["capacity"]["pods"], "6");
}

/// On an empty root, of which each missing fact is one line.
#[test]
fn inspect_prints_text_or_json_and_refuses_other_formats() {
    let root = Folder::new("nothing");
    let inspected = |output: &str| {
        let args = ["inspect", "--hostname-override=pi", "--output", output, "--host-root"];
        end(command(args).arg(root.path()))
    };
    let text = inspected("text");
    assert_eq!(text.code, 0);
    assert!(text.stdout.starts_with("Name:               pi\n"), "{text:?}");
    assert!(text.stdout.contains("\nSystem Info:\n"), "{text:?}");
    let Ended { code, stdout, stderr } = inspected("yaml");
    let line = "nodelet: --output \"yaml\": write json or text\n";
    assert_eq!((code, stdout.as_str(), stderr.as_str()), (2, "", line));
    let Ended { code, stdout, stderr: err } = inspected("json");
    assert!(code == 0 && stdout.starts_with("{\n"), "{stdout}");
    let lines = [
        ["sys/devices/system/cpu: ", "no capacity cpu"],
        ["proc/meminfo: ", "no capacity memory, MemoryPressure is not checked"],
        ["etc/machine-id: ", "no machineID"],
        ["sys/class/dmi/id/product_uuid, etc/machine-id: ", "no systemUUID"],
        ["proc/sys/kernel/random/boot_id: ", "no bootID"],
        ["proc/sys/kernel/osrelease: ", "kernelVersion is Unknown"],
        ["usr/lib/os-release: ", "osImage is Unknown"],
        ["proc/sys/kernel/threads-max: ", "PIDPressure is not checked"],
    ];
    for [file, effect] in lines {
        let is_about =
            |line: &&str| line.starts_with(&format!("nodelet: {file}")) && line.ends_with(effect);
        assert_eq!(err.lines().filter(is_about).count(), 1, "{file}\n{err}");
    }
    // Interfaces are always those of this machine, so the line about addresses may be absent.
    let others = err.lines().filter(|l| !l.contains("addresses")).count();
    assert_eq!(others, lines.len(), "{err}");
}
