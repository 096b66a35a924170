//! `nodelet check` without a fault, and with one fault at a time.
//!
//! The kernel files are a recorded tree, so that their content is known; the network and the API
//! double are of this machine. The command changes nothing, on the board or on the server.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use apidouble::{Authority, Double, Fault, Identity, Rule, Validity};
use serde_json::json;

use crate::common::api::admin;
use crate::common::board::Board;
use crate::common::command::{Ended, Report, command, end};
use crate::common::{proxy::Proxy, raspberry, tree};
use crate::serve::Served;
use nodelet::check::board::ALL_BOARDS;
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
    "node-create", "node-get", "node-status-patch", "lease-get", "lease-create",
    "lease-patch", "event-create", "event-patch", "pod-list", "pod-status-patch", "pod-delete",
    "csr-create", "csr-get", "csr-renewal", "tokenreview-create", "accessreview-create",
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

    /// The double's kubeconfig for the node.
    fn own(&self) -> String {
        self.write(&self.double.kubeconfig_for_node("pi"))
    }

    /// The same with `to` in the place of `from`.
    fn edited(&self, from: &str, to: &str) -> String {
        self.write(&self.double.kubeconfig_for_node("pi").replace(from, to))
    }

    fn with(&self, identity: Identity) -> String {
        self.write(&self.double.kubeconfig_for(&identity))
    }

    fn write(&self, text: &str) -> String {
        let path = self.folder.write("kubeconfig", text);
        path.to_str().unwrap().to_owned()
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
    fn is_wrong(&self, kubeconfig: &str, check: &str, detail: &str, remedy: &str) {
        let checked = self.check(kubeconfig, &[]);
        assert_eq!(checked.wrong(), [check], "{}", checked.text);
        checked.says(check, detail, remedy);
    }
}

impl Checked {
    fn wrong(&self) -> Vec<&str> {
        self.report.failed()
    }

    /// Fails unless there is a line with each mark and check, and with the part behind them.
    fn has(&self, lines: &[impl AsRef<str>]) {
        for want in lines.iter().map(AsRef::as_ref) {
            let (start, part) = want.split_at(want.find(": ").unwrap() + 2);
            let found = self.text.lines().find(|line| line.starts_with(start));
            assert!(found.is_some_and(|line| line.contains(part)), "{want}\n{}", self.text);
        }
    }

    /// Fails unless the text line, the JSON object, the last line and the exit code agree.
    fn says(&self, check: &str, detail: &str, remedy: &str) {
        let finding = self.report.finding(check);
        let has = |member: &str, part: &str| finding[member].as_str().unwrap().contains(part);
        assert!(has("detail", detail) && has("remedy", remedy), "{finding}");
        assert!(!remedy.is_empty(), "{check} has no remedy");
        self.has(&[detail, remedy].map(|part| format!("✗ {check}: {part}")));
        assert_eq!(self.code, 1);
        assert_eq!(self.report["ok"], false);
        let last = format!("nodelet: check failed: {}\n", self.wrong().join(", "));
        assert!(self.stderr.ends_with(&last), "{}", self.stderr);
    }
}

/// The text with `<time>` in the place of each time, and `<days>` for the rest of a year.
fn without_times(text: &str) -> String {
    let is_time = |word: &&str| word.len() == 20 && word.starts_with("20") && word.ends_with('Z');
    let times = text.split([' ', ',', '\n']).filter(is_time);
    let text = times.fold(text.to_owned(), |text, time| text.replace(time, "<time>"));
    ["364 days", "365 days"].iter().fold(text, |text, days| text.replace(days, "<days>"))
}

/// `tests/golden/check.txt`.
#[test]
fn without_a_fault_every_line_is_a_tick_and_the_exit_code_is_0() {
    let site = Site::new();
    // Below another root the folder is not asked.
    let root_dir = ["--root-dir=/dev/null/x"];
    let checked = site.is_right(&site.edited("127.0.0.1", "localhost"), &root_dir);
    assert_eq!(checked.stderr, "");
    assert_eq!(checked.report["ok"], true);
    assert_eq!(checked.report["nodeName"], "pi");
    // The recorded machine has no DMI and none of the files about the board's health; no flag asks
    // for certificates or renews one.
    let open = checked.report.names(|finding| finding["ok"].is_null());
    let health = health_checks();
    let certificates = ["cert-dir", "certificate-renewal", "csr-create", "csr-get", "csr-renewal"];
    // The port is off, and the double has no cluster-info.
    let server = ["tokenreview-create", "accessreview-create", "ca"];
    let port = ["metrics", "serving-certificate"];
    let want = [&["system-uuid"], &health[..], &certificates, &server, &port].concat();
    assert_eq!(open, want);
    let connections = site.double.connections();
    assert_eq!(connections, 6, "of two runs: TCP alone, all requests, and without credentials");
    let ticks = checked.text.lines().filter(|line| line.starts_with('✓')).count();
    assert_eq!(ticks, CHECKS.len() - want.len());
    let port = site.double.url().rsplit_once(':').unwrap().1.to_owned();
    let folder = site.folder.path().display().to_string();
    let text = checked.text.replace(&port, "6443").replace(&folder, "/board");
    support::golden("check.txt", &without_times(&text));
}

/// The agent may be running, or may have run before a reinstallation.
#[test]
fn a_namesake_is_another_board_whose_node_is_not_unknown() {
    let site = Site::new();
    let kubeconfig = site.own();
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
    checked.has(&["✓ namesake: this board registered the Node"]);

    let node = "/api/v1/nodes/pi";
    let boot_id = json!({"status": {"nodeInfo": {"bootID": "somebody-elses"}}});
    admin(&site.double, "PATCH", &format!("{node}/status"), &boot_id);
    site.is_wrong(&kubeconfig, "namesake", "\"somebody-elses\"", "--hostname-override");
    // The clock of that board says nothing.
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pi";
    let late = json!({"spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}});
    admin(&site.double, "PATCH", lease, &late);
    site.is_wrong(&kubeconfig, "namesake", "\"somebody-elses\"", "--hostname-override");
    // A board that the control plane does not hear does not count. What only a guest has is missed.
    let unknown = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    admin(&site.double, "PATCH", &format!("{node}/status"), &unknown);
    let bare = json!({"metadata": {"labels": null}, "spec": {"taints": null}});
    admin(&site.double, "PATCH", node, &bare);
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"nodeName": "pi", "containers": [{"name": "c", "image": "i"}]}});
    admin(&site.double, "POST", pods, &pod);
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["labels", "taint"]);
    checked.has(&["– pods: 1 bound"]);
    // A kubelet started it; the boot of another machine's files is not known.
    let status = json!({"status": {"startTime": "2026-11-21T06:18:51Z"}});
    admin(&site.double, "PATCH", &format!("{pods}/web/status"), &status);
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["labels", "taint", "pods"]);
    checked.says("pods", "kubelet", "kubectl drain pi");
}

/// What is optional has a remedy, and fails no run.
#[test]
fn missing_kernel_files_and_an_unusable_root_dir_are_reported() {
    let site = Site::new();
    let kubeconfig = site.own();
    let around = site.folder.path().join("around");
    std::os::unix::fs::symlink(&around, &around).unwrap();
    let root_dir = format!("--root-dir={}", around.display());
    // The last --host-root wins.
    let checked = site.check(&kubeconfig, &["--host-root=/", &root_dir]);
    checked.says("root-dir", "too many", "local file system");
    let root = site.folder.path().join("root");
    for file in ["etc/machine-id", "proc/meminfo", "proc/sys/kernel/random/boot_id"] {
        fs::remove_file(root.join(file)).unwrap();
    }
    fs::remove_dir_all(root.join("proc/pressure")).unwrap();
    fs::write(root.join("sys/fs/cgroup/cgroup.controllers"), "cpu pids\n").unwrap();
    let checked = site.check(&kubeconfig, &[]);
    assert_eq!(checked.wrong(), ["facts"]);
    let missing = "proc/meminfo: no such file or directory, no capacity memory";
    for detail in [missing, "no bootID", "no machineID"] {
        checked.says(
            "facts",
            detail,
            "do these files exist (is /proc mounted?), and may nodelet read them?",
        );
    }
    checked.has(&[
        "– machine-id: etc/machine-id",
        "– psi: psi=1",
        "– memory-controller: cgroup_enable=memory",
    ]);
}

#[test]
fn each_source_of_the_boards_health_has_a_line() {
    let site = Site::new();
    let root = raspberry::healthy(&site.folder);
    let kubeconfig = site.own();
    let more = ["--host-root", &root, "--node-problem-detection=problems"];
    let checked = site.check(&kubeconfig, &more);
    checked.has(&["✓ under-voltage: sys/class/hwmon/hwmon1/in0_lcrit_alarm is 0", "– boots: "]);
    let without = checked.report.names(|finding| finding["ok"] != true);
    let without = health_checks().into_iter().filter(|check| without.contains(check));
    let hint = "the others have a source in tests/common/raspberry.rs";
    assert_eq!(Vec::from_iter(without), ["boots"], "{hint}");

    site.folder.write(raspberry::ALARM, "1\n");
    // A problem fails no run.
    let low = site.check(&kubeconfig, &more);
    low.has(&[
        "– under-voltage: UnderVoltage would be True",
        "– under-voltage: use a stronger supply",
    ]);
}

/// The address and the port of a Node, as the double has it.
fn report_port(double: &Double, port: u16) {
    let status = json!({"status": {
        "addresses": [{"type": "Hostname", "address": "pi"},
            {"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
    admin(double, "PATCH", "/api/v1/nodes/pi/status", &status);
}

/// The cluster will replace its CA: that is no reason not to ask the port.
#[test]
fn a_ca_that_is_not_trusted_skips_no_check() {
    let site = Site { double: Double::builder().kubeadm().start(), ..Site::new() };
    let new = site.double.cluster_info(&site.double.url(), Authority::new("new").pem());
    site.double.set_cluster_info(Some(&new));
    let line = "cluster-info has a CA (1) that this board does not trust";
    site.is_wrong(&site.own(), "ca", line, "before the server uses it");
    site.check(&site.own(), &[]).has(&["– metrics: is not enabled"]);
}

/// Enabled, the port is asked where the Node says that it is, and the permissions of its reviews
/// are needed.
#[test]
fn the_port_is_asked_as_metrics_server_asks_it() {
    let site = Site::new();
    let kubeconfig = site.own();
    let enabled = "root/etc/systemd/system/sockets.target.wants/nodelet-serve.socket";
    let enabled = site.folder.write(enabled, "");
    site.check(&kubeconfig, &[]).has(&["– metrics: there is no Node"]);
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pi"}});
    admin(&site.double, "POST", "/api/v1/nodes", &node);

    let kubeconfig_flag = format!("--kubeconfig={kubeconfig}");
    let served = Served::start(&["--hostname-override=pi", &kubeconfig_flag]);
    report_port(&site.double, served.port);
    let answers: &str = &format!("✓ metrics: https://127.0.0.1:{} answers", served.port);
    site.check(&kubeconfig, &[]).has(&[
        answers,
        "✓ tokenreview-create: may",
        "– serving-certificate: --kubelet-insecure-tls",
        "– serving-certificate: kubectl get csr",
    ]);
    // The port's certificate says nothing where nothing is known of the cluster's CA.
    let insecure = "insecure-skip-tls-verify: true\n    x: ";
    let insecure = site.edited("certificate-authority-data: ", insecure);
    let has_no_ca = "– serving-certificate: the kubeconfig has no CA to verify it with";
    site.check(&insecure, &[]).has(&[has_no_ca]);
    site.own();
    // One that was started without systemd counts, too.
    fs::remove_file(&enabled).unwrap();
    site.check(&kubeconfig, &[]).has(&[answers]);
    drop(served);
    site.check(&kubeconfig, &[]).has(&["– metrics: is not enabled"]);
    fs::write(&enabled, "").unwrap();
    let checked = site.check(&kubeconfig, &[]);
    checked.says("metrics", "connection refused", "nodelet-serve.socket");
    let mut lines = checked.text.lines().filter(|line| line.contains(" metrics: "));
    assert_eq!(lines.next().unwrap().matches("https://").count(), 1, "{}", checked.text);

    // The API server is on another port, and it knows strangers.
    report_port(&site.double, site.double.port());
    let detail = "to a request without credentials, not 401";
    site.check(&kubeconfig, &[]).says("metrics", detail, "another program");

    site.double.add_token("t0ken", "reader", &[]);
    site.folder.write("token", "t0ken");
    let token = site.double.kubeconfig_token("t0ken").replace("token: t0", "tokenFile: to");
    let token = site.write(&token);
    let checked = site.check(&token, &[]);
    checked.says("accessreview-create", "create subjectaccessreviews", "systemd/rbac-serve.yaml");
    assert!(!(checked.text + &checked.stderr).contains("t0ken"));
}

/// Each kubeconfig has one edit. The remedy is that of a missing file, of its fault, or that of
/// every other.
#[test]
fn each_fault_of_a_kubeconfig_and_of_a_connection_is_reported() {
    let site = Site::new();
    let absent = site.folder.path().join("absent");
    let remedy = "nodelet join gets one";
    site.is_wrong(absent.to_str().unwrap(), "kubeconfig", "no such file or directory", remedy);

    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let (gone, plain) = (&address(&listen()), listen());
    let no_tls = &address(&plain);
    std::thread::spawn(move || {
        for tcp in plain.incoming() {
            let _ = std::io::Write::write_all(&mut tcp.unwrap(), b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let server = &format!("127.0.0.1:{}", site.double.port());
    let proxy = Proxy::start("Proxy-Authorization: Basic bWU6aHVudGVyMg==\r\n");
    let through = |proxy: &str| format!("{server}\n    proxy-url: http://{proxy}");
    let [no_proxy, stranger, known] = [
        gone.clone(),
        format!("127.0.0.1:{}", proxy.port),
        format!("me:hunter2@127.0.0.1:{}", proxy.port),
    ]
    .map(|proxy| through(&proxy));
    let refused = &format!("{gone}: connection refused");
    let nowhere = "does-not-exist.invalid";
    for (from, to, check, detail, remedy) in [
        (
            "client-key-data:",
            "exec: {}\n    x:",
            "kubeconfig",
            "exec is not supported",
            "remove it",
        ),
        (
            "authority-data: L",
            "authority-data: x",
            "kubeconfig",
            "no certificate in it",
            "write one",
        ),
        ("127.0.0.1", nowhere, "name-resolution", nowhere, "is the name right, and are the name"),
        (server, gone, "tcp", refused, "a loopback address is this board itself"),
        (server, &no_proxy, "tcp", refused, "is the proxy up"),
        (server, &stranger, "tls", "407", "put them into proxy-url"),
        (server, no_tls, "tls", "does not speak TLS", "is the port right?"),
    ] {
        site.is_wrong(&site.edited(from, to), check, detail, remedy);
    }
    assert_eq!(site.double.connections(), 0);
    let checked = site.is_right(&site.edited(server, &known), &[]);
    assert!(!(checked.text + &checked.stderr).contains("hunter2"));

    site.double.swap_to_unknown_authority();
    let kubeconfig = site.own();
    site.is_wrong(&kubeconfig, "tls", "is not signed by a trusted CA", "was the CA replaced?");
    let insecure = "insecure-skip-tls-verify: true # ";
    let checked = site.is_right(&site.edited("certificate-authority-data: ", insecure), &[]);
    checked.has(&["✓ tls: was not verified", "✓ kubeconfig: insecure-skip-tls-verify"]);
}

#[test]
fn rejected_credentials_are_reported() {
    let site = Site::new();
    let check = "authentication";
    let expired = site.with(site.double.node_identity("pi", Validity::EXPIRED));
    let detail = "does not accept the client certificate: 401";
    let checked = site.check(&expired, &[]);
    assert_eq!(checked.wrong(), ["certificate-expiry", check], "{}", checked.text);
    checked.says("certificate-expiry", "expired at 20", "renew it, or correct the clock");
    checked.says(check, detail, "neither expired nor revoked");
    let nobody = site.write(&site.double.kubeconfig_token(""));
    let detail = "neither a client certificate nor a token";
    site.is_wrong(&nobody, check, detail, "add one to its user");
    let kubeconfig = site.own();
    // The server closes the connection after two requests.
    site.double.faults().push(Rule::new(Fault::CloseBeforeHeaders).skip(2).always());
    let text = site.run(&kubeconfig, &[]).stdout;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("node-")).collect();
    let [create, get, patch, ..] = lines[..] else {
        panic!("{text}");
    };
    assert!(create.starts_with("✓ ") && get.starts_with("✓ "), "{text}");
    assert!(patch.starts_with("✗ node-status-patch: ") && patch.ends_with("check again"));
    assert!(text.contains("\n– skipped because of node-status-patch: lease-get, "), "{text}");
    assert!(text.ends_with("serving-certificate (22)\n"), "{text}");
    site.double.faults().clear();
    site.double.faults().push(Rule::new(Fault::ResetBeforeHeaders).always());
    site.is_wrong(&kubeconfig, check, "connection reset", "API server?");
}

/// A board with a bootstrap token and no certificate yet.
#[test]
fn without_a_certificate_the_bootstrap_credentials_are_checked() {
    let site = Site {
        double: Double::builder().bootstrap_token("abcdef.0123456789abcdef").start(),
        ..Site::new()
    };
    let token = site.double.kubeconfig_token("abcdef.0123456789abcdef");
    let bootstrap = site.folder.write("bootstrap", &token);
    let bootstrap = format!("--bootstrap-kubeconfig={}", bootstrap.display());
    let cert_dir = format!("--cert-dir={}", site.folder.path().join("pki").display());
    let absent = site.folder.path().join("absent");
    let absent = absent.to_str().unwrap();
    let args = [&*bootstrap, &*cert_dir];
    site.is_right(absent, &args).has(&[
        "✓ kubeconfig: /absent: not there yet",
        "✓ csr-create: may",
        "✓ csr-get: may",
        "– csr-renewal: --rotate-certificates is off",
        "✓ cert-dir: /pki",
        "– certificate: not issued yet",
        "– node-create: needed by the requested certificate",
        "– lease-patch: needed by the requested certificate",
        "– namesake: the bootstrap kubeconfig may not",
    ]);
    assert!(!site.folder.path().join("pki").exists());

    // An expired certificate counts as no certificate.
    let expired = site.with(site.double.node_identity("pi", Validity::EXPIRED));
    site.is_right(&expired, &args).has(&["✓ kubeconfig: certificate expired at 20"]);

    // A valid certificate is used and may be renewed.
    let own = site.own();
    site.is_right(&own, &[&*bootstrap, &*cert_dir, "--rotate-certificates"]).has(&[
        "✓ certificate: CN=system:node:pi",
        "✓ csr-create: may",
        "✓ certificate-renewal: at once, if the cluster approves",
        "✓ csr-renewal: may create certificatesigningrequests/selfnodeclient",
        "✓ lease-patch: may",
    ]);

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
    let other = site.with(site.double.node_identity("other", Validity::VALID));
    let checked = site.check(&other, &[]);
    assert_eq!(checked.wrong(), ["certificate", "node-get", "lease-get", "lease-patch"]);
    let detail = "for the node other, but this node is pi";
    checked.says("certificate", detail, "--hostname-override=other");
    checked.says("node-get", "may not get nodes: node 'other' cannot read 'pi'", "CN=system:node");
    let authority = site.double.authority();
    let nobody = site.with(authority.client("system:node:pi", &["nobody"], Validity::VALID));
    let checked = site.check(&nobody, &["--register-node=false"]);
    checked.has(&["– node-create: --register-node is off"]);
    assert_eq!(checked.wrong().len(), 7, "{}", checked.text);
    let checked = site.check(&nobody, &[]);
    assert_eq!(checked.wrong().len(), 8, "{}", checked.text);
    checked.has(&["– certificate: not a node"]);
    checked.says("lease-patch", "may not patch leases in kube-node-lease", "O=system:nodes");
}
