//! `nodelet check` without a fault, and with one fault at a time.
//!
//! The kernel files are a recorded tree, so that their content is known; the network and the API
//! double are of this machine. The command changes nothing, on the board or on the server.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use apidouble::{Double, Fault, RBAC_NODE_GROUP, Rule, Validity};
use serde_json::json;

use crate::common::api::admin;
use crate::common::board::Board;
use crate::common::command::{Ended, Report, command, end};
use crate::common::{proxy::Proxy, raspberry, tree};
use crate::serve::Served;
use nodelet::check::health::ALL_BOARDS;
use support::{Folder, eventually};

/// Each check of the board's health.
fn health_checks() -> Vec<&'static str> {
    let all = CHECKS.iter().copied().skip_while(|name| *name != "readonly-filesystem");
    all.take(nodelet::health::KINDS.len()).collect()
}

/// The names of the checks, in their order of printing. Scripts of operators rely on both.
#[rustfmt::skip]
const CHECKS: &[&str] = &[
    "cgroups", "memory-controller", "psi", "machine-id", "system-uuid", "clock", "facts", "root-dir",
    // Of the board's health, in the order of KINDS.
    "readonly-filesystem", "filesystem-corruption", "storage-wear", "under-voltage",
    "thermal-throttling", "kernel-deadlock", "clock-sync", "boots",
    "cert-dir", "guest", "kubeconfig", "certificate", "certificate-expiry", "certificate-renewal",
    "name-resolution", "tcp", "tls", "authentication",
    "node-create", "node-get", "node-patch", "node-status-patch", "lease-get", "lease-create",
    "lease-patch", "event-create", "event-patch", "pod-list", "pod-status-patch", "pod-delete",
    "csr-create", "csr-get", "tokenreview-create", "accessreview-create",
    "namesake", "labels", "taint", "podcidr", "pods", "server-version", "ca", "metrics",
    "serving-certificate",
];

/// An API double, and the folder with the kernel tree and the kubeconfig.
struct Site {
    double: Double,
    folder: Folder,
}

/// The output of one run of the command.
struct Checked {
    code: i32,
    report: Report,
    text: String,
    stderr: String,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new("check");
        let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/boards/qemu-arm64-debian");
        tree::copy(&board, &folder.path().join("root"));
        Self { double: Double::start(), folder }
    }

    /// The double's kubeconfig for the node, edited by `change`.
    fn kubeconfig(&self, change: impl FnOnce(String) -> String) -> String {
        self.write(&change(self.double.kubeconfig_for_node("pi")))
    }

    fn write(&self, text: &str) -> String {
        let path = self.folder.write("kubeconfig", text);
        path.to_str().unwrap().to_owned()
    }

    /// A kubeconfig with a token instead of a certificate.
    fn with_token(&self, token: &str) -> String {
        let ca = self.folder.write("ca", self.double.ca_pem());
        format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{}', certificate-authority: {}}}}}]\n\
             users: [{{name: u, user: {{{token}}}}}]\n",
            self.double.url(),
            ca.display()
        )
    }

    /// Runs the command as text and as JSON; fails if a file or an API object changed.
    fn check(&self, kubeconfig: &str, more: &[&str]) -> Checked {
        let state = || {
            let kinds = ["nodes", "leases", "events", "csrs"];
            kinds.map(|kind| self.double.list(kind))
        };
        let file = |path| {
            let modified = fs::symlink_metadata(&path).unwrap().modified().unwrap();
            (modified, fs::read(&path).unwrap_or_default(), path)
        };
        let files = || Vec::from_iter(tree::entries(self.folder.path()).into_iter().map(file));
        let before = (state(), files());
        self.double.clear_requests();
        let text = self.run(kubeconfig, more).stdout;
        let json = self.run(kubeconfig, &[more, &["--output=json"]].concat());
        assert_eq!(state(), before.0, "changed something on the server");
        assert!(files() == before.1, "changed something on the board");
        for request in self.double.requests() {
            let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let asks = request.method == "GET" || request.path.ends_with(review);
            assert!(asks, "{} {}", request.method, request.path);
        }
        let report = json.report();
        let names = report.names(|_| true);
        assert_eq!(names, CHECKS, "what nodelet check finds, and CHECKS in this file");
        let skipped =
            report.names(|f| f["detail"].as_str().unwrap().starts_with("skipped because of "));
        let has_problem = text.contains(" would be True: ");
        assert_eq!(text.trim_end().ends_with(ALL_BOARDS), has_problem, "{text}");
        let behind = usize::from(!skipped.is_empty()) + usize::from(has_problem);
        let lines = names.len() - skipped.len() + behind;
        assert_eq!(text.lines().count(), lines, "{text}");
        assert!(text.contains(&skipped.join(", ")), "{text}");
        Checked { code: json.code, report, text, stderr: json.stderr }
    }

    fn run(&self, kubeconfig: &str, more: &[&str]) -> Ended {
        let root = self.folder.path().join("root");
        let args = ["check", "--hostname-override=pi", "--kubeconfig", kubeconfig, "--host-root"];
        end(command(args).arg(root).args(more))
    }

    /// Fails unless the run succeeds.
    fn is_right(&self, kubeconfig: &str, more: &[&str]) -> Checked {
        let checked = self.check(kubeconfig, more);
        assert_eq!((checked.code, checked.wrong()), (0, vec![]), "{}", checked.text);
        checked
    }

    /// Fails unless `check` is the only failed check and is reported with `detail` and `remedy`.
    fn is_wrong(&self, kubeconfig: &str, more: &[&str], check: &str, detail: &str, remedy: &str) {
        let checked = self.check(kubeconfig, more);
        println!("{}", checked.line(check));
        assert_eq!(checked.wrong(), [check], "{}", checked.text);
        checked.says(check, detail, remedy);
    }
}

impl Checked {
    fn wrong(&self) -> Vec<&str> {
        self.report.failed()
    }

    fn line(&self, check: &str) -> &str {
        let start = format!(" {check}: ");
        self.text.lines().find(|line| line.contains(&start)).unwrap()
    }

    /// Fails unless the text line, the JSON object, the last line and the exit code agree.
    fn says(&self, check: &str, detail: &str, remedy: &str) {
        let finding = self.report.finding(check);
        let has = |member: &str, part: &str| finding[member].as_str().unwrap().contains(part);
        assert!(has("detail", detail) && has("remedy", remedy), "{finding}");
        assert!(!remedy.is_empty(), "{check} has no remedy");
        let line = self.line(check);
        assert!(line.starts_with(&format!("✗ {check}: ")), "{line}");
        assert!(line.contains(detail) && line.contains(remedy), "{line}");
        assert_eq!(self.code, 1);
        assert_eq!(self.report["ok"], false);
        let last = format!("nodelet: check failed: {}\n", self.wrong().join(", "));
        assert!(self.stderr.ends_with(&last), "{}", self.stderr);
    }
}

#[test]
fn without_a_fault_every_line_is_a_tick_and_the_exit_code_is_0() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text.replace("127.0.0.1", "localhost"));
    let checked = site.is_right(&kubeconfig, &[]);
    assert_eq!(checked.stderr, "");
    assert_eq!(checked.report["ok"], true);
    assert_eq!(checked.report["nodeName"], "pi");
    // The recorded machine has no DMI and none of the files about the board's health; no flag asks
    // for certificates or renews one.
    let open = checked.report.names(|finding| finding["ok"].is_null());
    let health = health_checks();
    let certificates = ["cert-dir", "certificate-renewal", "csr-create", "csr-get"];
    // The port is off, and the double has no cluster-info.
    let server = ["tokenreview-create", "accessreview-create", "ca"];
    let port = ["metrics", "serving-certificate"];
    let want = [&["system-uuid"], &health[..], &certificates, &server, &port].concat();
    assert_eq!(open, want);
    let connections = site.double.connections();
    assert_eq!(connections, 6, "of two runs: TCP alone, all requests, and without credentials");
    assert!(checked.text.starts_with("✓ cgroups: v2\n"), "{}", checked.text);
    let ticks = checked.text.lines().filter(|line| line.starts_with('✓')).count();
    assert_eq!(ticks, CHECKS.len() - want.len());
    let whose = "✓ certificate: CN=system:node:pi, O=system:nodes";
    assert_eq!(checked.line("certificate"), whose);
}

/// The agent may be running, or may have run before a reinstallation.
#[test]
fn a_namesake_is_another_board_that_renews_our_lease() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text);
    let root = format!("--host-root={}", site.folder.path().join("root").display());
    let args = [
        &format!("--kubeconfig={kubeconfig}"),
        "--hostname-override=pi",
        &root,
        // One renewal during this test.
        "--node-lease-duration-seconds=4000",
    ];
    let mut board = Board::start(&args);
    eventually("the events", Duration::from_secs(10), || {
        (site.double.list("events").len() >= 2 && site.double.get("leases/pi").is_some())
            .then_some(())
    });
    board.stop(nix::sys::signal::Signal::SIGTERM);
    let checked = site.is_right(&kubeconfig, &[]);
    assert!(checked.line("namesake").ends_with("this board registered the Node"));

    let node = "/api/v1/nodes/pi";
    let boot_id = json!({"status": {"nodeInfo": {"bootID": "somebody-elses"}}});
    admin(&site.double, "PATCH", &format!("{node}/status"), &boot_id);
    site.is_wrong(&kubeconfig, &[], "namesake", "\"somebody-elses\"", "--hostname-override");
    // A board that does not renew its Lease does not count. What only a guest has is missed.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pi";
    let late = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    admin(&site.double, "PATCH", lease, &late);
    let bare = json!({"metadata": {"labels": null}, "spec": {"taints": null}});
    admin(&site.double, "PATCH", node, &bare);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "pi", "containers": [{"name": "c", "image": "i"}]}});
    admin(&site.double, "POST", pods, &pod);
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["labels", "taint"]);
    assert!(checked.line("pods").starts_with("– pods: 1 bound"), "{}", checked.text);
    // A kubelet started it; the boot of another machine's files is not known.
    let status = json!({"status": {"startTime": "2026-11-21T06:18:51Z"}});
    admin(&site.double, "PATCH", &format!("{pods}/web/status"), &status);
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["labels", "taint", "pods"]);
    checked.says("pods", "kubelet", "kubectl drain pi");
}

/// What is optional has a remedy, and fails no run.
#[test]
fn missing_kernel_files_are_reported() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text);
    let root = site.folder.path().join("root");
    for file in ["etc/machine-id", "proc/meminfo", "proc/sys/kernel/random/boot_id"] {
        fs::remove_file(root.join(file)).unwrap();
    }
    fs::remove_dir_all(root.join("proc/pressure")).unwrap();
    fs::write(root.join("sys/fs/cgroup/cgroup.controllers"), "cpu pids\n").unwrap();
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["machine-id", "facts"]);
    checked.says("machine-id", "etc/machine-id", "systemd-machine-id-setup");
    let missing = "proc/meminfo: no such file or directory, no capacity memory";
    for detail in [missing, "no bootID", "no machineID"] {
        checked.says("facts", detail, "is /proc mounted, and may nodelet read it?");
    }
    for (check, remedy) in [("psi", "psi=1"), ("memory-controller", "cgroup_enable=memory")] {
        let line = checked.line(check);
        assert!(line.starts_with("– ") && line.contains(remedy), "{line}");
    }
}

#[test]
fn an_unusable_root_dir_is_reported() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text);
    let around = site.folder.path().join("around");
    std::os::unix::fs::symlink(&around, &around).unwrap();
    let root = format!("--root-dir={}", around.display());
    let checked = site.check(&kubeconfig, &["--host-root=/", &root]);
    checked.says("root-dir", "too many", "local file system");
}

#[test]
fn each_source_of_the_boards_health_has_a_line() {
    let site = Site::new();
    let root = raspberry::healthy(&site.folder);
    let kubeconfig = site.kubeconfig(|text| text);
    // The last --host-root wins.
    let with = |more: &str| site.check(&kubeconfig, &["--host-root", &root, more]);
    let healthy = with("--node-problem-detection=problems");
    let detail = healthy.report.finding("under-voltage")["detail"].as_str().unwrap();
    assert!(detail.contains("sys/class/hwmon/hwmon1/in0_lcrit_alarm is 0"), "{detail}");
    for check in health_checks().iter().filter(|check| **check != "boots") {
        assert_eq!(
            healthy.report.finding(check)["ok"],
            true,
            "{check}: no source in tests/common/raspberry.rs"
        );
    }
    assert!(healthy.report.finding("boots")["ok"].is_null(), "no history yet");

    site.folder.write(raspberry::ALARM, "1\n");
    let low = with("--node-problem-detection=problems");
    let found = low.report.finding("under-voltage");
    assert!(found["ok"].is_null(), "a problem fails no run: {found}");
    assert!(found["detail"].as_str().unwrap().starts_with("UnderVoltage would be True"));
    assert!(found["remedy"].as_str().unwrap().contains("supply"));
}

/// The address and the port of a Node, as the double has it.
fn report_port(double: &Double, port: u16) {
    let status = json!({"status": {
        "addresses": [{"type": "Hostname", "address": "pi"},
            {"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    admin(double, "PATCH", "/api/v1/nodes/pi/status", &status);
}

/// Enabled, the port is asked where the Node says that it is, and the permissions of its reviews
/// are needed.
#[test]
fn the_port_is_asked_as_metrics_server_asks_it() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text);
    let enabled = "root/etc/systemd/system/sockets.target.wants/nodelet-serve.socket";
    let enabled = site.folder.write(enabled, "");
    let checked = site.check(&kubeconfig, &[]);
    assert!(checked.line("metrics").starts_with("– metrics: there is no Node"), "{}", checked.text);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pi"}});
    admin(&site.double, "POST", "/api/v1/nodes", &node);

    let kubeconfig_flag = format!("--kubeconfig={kubeconfig}");
    let served = Served::start(&["--hostname-override=pi", &kubeconfig_flag]);
    report_port(&site.double, served.port);
    let checked = site.check(&kubeconfig, &[]);
    let line = format!("✓ metrics: https://127.0.0.1:{} answers", served.port);
    assert_eq!(checked.line("metrics"), line);
    assert!(checked.line("tokenreview-create").starts_with("✓ "), "{}", checked.text);
    let serving = checked.line("serving-certificate");
    assert!(serving.starts_with("– ") && serving.contains("--kubelet-insecure-tls"), "{serving}");
    assert!(serving.contains("kubectl get csr"), "{serving}");
    // One that was started without systemd counts, too.
    std::fs::remove_file(&enabled).unwrap();
    assert_eq!(site.check(&kubeconfig, &[]).line("metrics"), line);
    drop(served);
    let checked = site.check(&kubeconfig, &[]);
    assert!(checked.line("metrics").contains("is not enabled"), "{}", checked.text);
    std::fs::write(&enabled, "").unwrap();
    let checked = site.check(&kubeconfig, &[]);
    checked.says("metrics", "connection refused", "nodelet-serve.socket");
    assert_eq!(checked.line("metrics").matches("https://").count(), 1, "{}", checked.text);

    // The API server is on another port, and it knows strangers.
    report_port(&site.double, site.double.port());
    site.check(&kubeconfig, &[]).says(
        "metrics",
        "to a request without credentials, not 401",
        "another program",
    );

    site.double.add_token("t0ken", "reader", &[]);
    site.folder.write("token", "t0ken");
    let token = site.write(&site.with_token("tokenFile: token"));
    let checked = site.check(&token, &[]);
    checked.says("accessreview-create", "create subjectaccessreviews", "systemd/rbac-serve.yaml");
    assert!(!(checked.text + &checked.stderr).contains("t0ken"));
}

/// The remedy is that of a missing one, of its fault, or that of every other.
#[test]
fn a_kubeconfig_that_cannot_be_used_is_reported() {
    let site = Site::new();
    let absent = site.folder.path().join("absent");
    let (absent, check) = (absent.to_str().unwrap(), "kubeconfig");
    site.is_wrong(absent, &[], check, "no such file or directory", "nodelet join gets one");
    for (from, to, detail, remedy) in [
        ("client-key-data:", "exec: {}\n    x:", "exec is not supported", "remove it"),
        ("authority-data: L", "authority-data: x", "no certificate in it", "write one"),
    ] {
        let kubeconfig = site.kubeconfig(|text| text.replace(from, to));
        site.is_wrong(&kubeconfig, &[], check, detail, remedy);
    }
    assert_eq!(site.double.connections(), 0);
}

#[test]
fn each_failed_step_of_a_connection_is_reported() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text.replace("127.0.0.1", "does-not-exist.invalid"));
    let remedy = "is the name right, and are the name servers";
    site.is_wrong(&kubeconfig, &[], "name-resolution", "does-not-exist.invalid", remedy);

    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let gone = gone.unwrap().port().to_string();
    let port = site.double.port().to_string();
    let kubeconfig = site.kubeconfig(|text| text.replace(&port, &gone));
    let detail = format!("127.0.0.1:{gone}: connection refused");
    site.is_wrong(&kubeconfig, &[], "tcp", &detail, "a loopback address is this board itself");
    let nothing = site.double.connections();
    assert_eq!(nothing, 0);

    // Through a proxy that does not listen, and through one that requires a password.
    let by_way_of = |proxy: &str| {
        site.kubeconfig(|text| {
            let server = format!("server: {}", site.double.url());
            text.replace(&server, &format!("{server}\n    proxy-url: {proxy}"))
        })
    };
    let proxy = format!("http://127.0.0.1:{gone}");
    site.is_wrong(&by_way_of(&proxy), &[], "tcp", &detail, "does the server run here?");
    let proxy = Proxy::start("Proxy-Authorization: Basic bWU6aHVudGVyMg==\r\n");
    let url = format!("http://me:hunter2@127.0.0.1:{}", proxy.port);
    let checked = site.is_right(&by_way_of(&url), &[]);
    assert!(!(checked.text + &checked.stderr).contains("hunter2"));
    let url = format!("http://127.0.0.1:{}", proxy.port);
    site.is_wrong(&by_way_of(&url), &[], "tls", "407", "put them into proxy-url");

    // Not an API server.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = plain.local_addr().unwrap().port().to_string();
    std::thread::spawn(move || {
        for tcp in plain.incoming() {
            let _ = std::io::Write::write_all(&mut tcp.unwrap(), b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let kubeconfig = site.kubeconfig(|text| text.replace(&port, &at));
    site.is_wrong(&kubeconfig, &[], "tls", "does not speak TLS", "is the port right?");
}

#[test]
fn a_server_certificate_that_does_not_verify_is_reported() {
    let site = Site::new();
    let kubeconfig = site.kubeconfig(|text| text);
    site.double.swap_to_unknown_authority();
    let remedy = "was the CA replaced?";
    site.is_wrong(&kubeconfig, &[], "tls", "is not signed by a trusted CA", remedy);
    // insecure-skip-tls-verify is reported.
    let insecure = site.with_token("token: t0ken");
    site.double.add_token("t0ken", "pi", &[RBAC_NODE_GROUP]);
    let ca = insecure.find("certificate-authority").unwrap();
    let end = ca + insecure[ca..].find('}').unwrap();
    let insecure =
        site.write(&insecure.replace(&insecure[ca..end], "insecure-skip-tls-verify: true"));
    let checked = site.is_right(&insecure, &[]);
    assert!(checked.line("tls").contains("was not verified"));
    assert!(checked.line("kubeconfig").contains("insecure-skip-tls-verify"));
}

#[test]
fn rejected_credentials_are_reported() {
    let site = Site::new();
    let check = "authentication";
    let identity = |identity| site.write(&site.double.kubeconfig_for(&identity));
    let expired = identity(site.double.node_identity("pi", Validity::EXPIRED));
    let detail = "does not accept the client certificate: 401";
    let checked = site.check(&expired, &[]);
    assert_eq!(checked.wrong(), ["certificate-expiry", check], "{}", checked.text);
    checked.says("certificate-expiry", "expired at 20", "renew it, or correct the clock");
    checked.says(check, detail, "neither expired nor revoked");
    let nobody = site.write(&site.with_token(""));
    let detail = "neither a client certificate nor a token";
    site.is_wrong(&nobody, &[], check, detail, "add one to its user");
    let kubeconfig = site.kubeconfig(|text| text);
    // The server closes the connection after two requests.
    let close = Rule::new(Fault::CloseBeforeHeaders).skip(2).always();
    site.double.faults().push(close);
    let text = site.run(&kubeconfig, &[]).stdout;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("node-")).collect();
    let [create, get, patch, ..] = lines[..] else {
        panic!("{text}");
    };
    assert!(create.starts_with("✓ ") && get.starts_with("✓ "), "{text}");
    assert!(patch.starts_with("✗ node-patch: ") && patch.ends_with("check again"));
    assert!(text.contains("\n– skipped because of node-patch: node-status-patch, "), "{text}");
    assert!(text.ends_with("serving-certificate (22)\n"), "{text}");
    site.double.faults().clear();
    let reset = Rule::new(Fault::ResetBeforeHeaders).always();
    site.double.faults().push(reset);
    site.is_wrong(&kubeconfig, &[], check, "connection reset", "API server?");
}

/// A board with a bootstrap token and no certificate yet.
#[test]
fn without_a_certificate_the_bootstrap_credentials_are_checked() {
    let site = Site {
        double: Double::builder().bootstrap_token("abcdef.0123456789abcdef").start(),
        ..Site::new()
    };
    let token = site.with_token("token: abcdef.0123456789abcdef");
    let bootstrap = site.folder.write("bootstrap", &token);
    let bootstrap = format!("--bootstrap-kubeconfig={}", bootstrap.display());
    let cert_dir = format!("--cert-dir={}", site.folder.path().join("pki").display());
    let absent = site.folder.path().join("absent");
    let absent = absent.to_str().unwrap();
    let args = [&*bootstrap, &*cert_dir];
    let checked = site.is_right(absent, &args);
    let way = checked.line("kubeconfig");
    assert!(way.starts_with("✓ ") && way.contains("/absent: not there yet"), "{way}");
    for check in ["csr-create", "csr-get", "cert-dir"] {
        assert!(checked.line(check).starts_with("✓ "), "{}", checked.text);
    }
    for check in ["certificate", "node-create", "lease-patch", "namesake"] {
        assert!(checked.line(check).starts_with("– "), "{}", checked.text);
    }
    assert!(!site.folder.path().join("pki").exists());

    // An expired certificate counts as no certificate.
    let expired = site.double.node_identity("pi", Validity::EXPIRED);
    let expired = site.write(&site.double.kubeconfig_for(&expired));
    let checked = site.is_right(&expired, &args);
    assert!(checked.line("kubeconfig").contains("certificate expired at 20"));

    // A valid certificate is used and may be renewed.
    let own = site.kubeconfig(|text| text);
    let checked = site.is_right(&own, &[&*bootstrap, &*cert_dir, "--rotate-certificates"]);
    assert!(checked.line("certificate").starts_with("✓ "));
    assert!(checked.line("csr-create").starts_with("✓ "));
    let renewal = checked.line("certificate-renewal");
    assert!(renewal.ends_with("at once, if the cluster approves"), "{renewal}");
    assert!(checked.line("lease-patch").starts_with("✓ "));

    site.double.add_token("abcdef.0123456789abcdef", "nobody", &[]);
    let checked = site.check(absent, &[&*bootstrap, "--cert-dir=/dev/null/pki"]);
    assert_eq!(checked.wrong(), ["cert-dir", "csr-create", "csr-get"]);
    checked.says("cert-dir", "/dev/null/pki: not a directory", "may write");
    let detail = "may not create certificatesigningrequests";
    checked.says("csr-create", detail, "system:node-bootstrapper");
}

/// The server knows the certificate of another node, or of no node, and allows it nothing.
#[test]
fn a_certificate_of_another_identity_is_reported() {
    let site = Site::new();
    let write = |identity| site.write(&site.double.kubeconfig_for(&identity));
    let other = write(site.double.node_identity("other", Validity::VALID));
    let checked = site.check(&other, &[]);
    assert_eq!(checked.wrong(), ["certificate", "node-get", "lease-get", "lease-patch"]);
    let detail = "for the node other, but this node is pi";
    checked.says("certificate", detail, "--hostname-override=other");
    checked.says("node-get", "may not get nodes: node 'other' cannot read 'pi'", "CN=system:node");
    let authority = site.double.authority();
    let nobody = authority.client("system:node:pi", &["nobody"], Validity::VALID);
    let nobody = write(nobody);
    let checked = site.check(&nobody, &["--register-node=false"]);
    assert!(checked.line("node-create").starts_with("– "), "{}", checked.text);
    assert_eq!(checked.wrong().len(), 8, "{}", checked.text);
    let checked = site.check(&nobody, &[]);
    assert_eq!(checked.wrong().len(), 9, "{}", checked.text);
    assert!(checked.line("certificate").starts_with("– "));
    checked.says("lease-patch", "may not patch leases in kube-node-lease", "O=system:nodes");
}
