//! The way of kubeadm, step by step, and each step that can fail.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Duration;

use apidouble::{BootstrapToken, Double};
use serde_json::{Value, json};

use super::{Site, TOKEN, add_ready_node, mode};
use crate::clocks::clock_of;
use crate::common::command::{Ended, command, end};
use nodelet::credentials::kubeconfig;
use nodelet::kube::x509::Leaf;

const KUBECONFIG: &str = "etc/credstore/nodelet.kubeconfig";
const BOOTSTRAP: &str = "etc/credstore/nodelet.bootstrap-kubeconfig";
const FLAGS: &str = "etc/default/nodelet-join";

fn leaf(site: &Site) -> Leaf {
    let config = kubeconfig::parse(&site.kubeconfig(), &[]).unwrap();
    Leaf::of_pem(&config.certificate.unwrap().chain.bytes).unwrap()
}

#[test]
fn the_printed_line_ends_with_a_certificate_and_no_token() {
    let site = Site::kubeadm();
    let joined = site.join(&["--node-labels=a=b"]).succeeded();
    assert_eq!(joined.report["server"], site.double.url());
    assert_eq!(site.files(), [KUBECONFIG, FLAGS]);
    assert_eq!(mode(&site.path(KUBECONFIG)), 0o600);
    assert_eq!(mode(&site.path("etc/credstore")), 0o700);
    assert_eq!(mode(&site.path(FLAGS)), 0o644);
    let flags = "NODELET_JOIN_FLAGS=--rotate-certificates --hostname-override=pi --node-labels=a=b";
    assert!(site.text(FLAGS).contains(&format!("{flags}\n")));
    let leaf = leaf(&site);
    assert_eq!(leaf.subject.common_name, "system:node:pi");
    assert_eq!(joined.report["certificateExpires"], leaf.not_after.time());
    let wrote = joined.report["wrote"].as_array().unwrap();
    assert_eq!(wrote.len(), 2, "{wrote:?}");
    for step in
        ["cluster-info", "signature", "ca", "tls", "token", "csr-create", "approval", "renewal"]
    {
        assert_eq!(joined.step(step)["ok"], true, "{step}: {joined:?}");
    }
    // Discovery is anonymous, before and after TLS is verified.
    for request in site.double.requests() {
        let is_discovery = request.path.ends_with("cluster-info");
        assert!(!is_discovery || request.header("authorization").is_none());
        assert_eq!(is_discovery, request.user == "system:anonymous", "{request:?}");
    }
    // The same line again, and with other flags, which replace the stored ones.
    let (before, served) = (site.kubeconfig(), site.double.requests().len());
    for (more, wrote) in [("--node-labels=a=b", json!([])), ("--v=2", json!([site.path(FLAGS)]))] {
        let again = site.join(&[more]);
        assert_eq!((again.code, &again.report["wrote"]), (0, &wrote), "{again:?}");
        assert!(again.line("joined").contains("already: an identity of https://"), "{again:?}");
        assert!(again.line("tcp").contains("skipped because of joined"), "{again:?}");
        assert!(site.text(FLAGS).ends_with(&format!("=pi {more}\n")), "{}", site.text(FLAGS));
    }
    assert_eq!((site.kubeconfig(), site.double.requests().len()), (before, served));
}

/// A person sees each step on a line of its own, with its mark, and that a proxy of the environment
/// is not used. The token comes from stdin.
#[test]
fn the_text_has_one_line_for_each_step() {
    let site = Site::kubeadm();
    let token = site.root.write("token", format!("{TOKEN}\n"));
    let mut join = command(["join", &site.double.url(), "--token-file=-", "--node-name=pi"]);
    join.args(["--no-wait", "--discovery-token-ca-cert-hash", &site.double.authority().pin()]);
    join.arg("--root").arg(site.path("tree")).stdin(fs::File::open(&token).unwrap());
    let Ended { stdout: text, stderr, .. } = end(join.env("HTTPS_PROXY", "http://10.0.0.1:3128"));
    assert!(stderr.contains("HTTPS_PROXY is not used"), "{stderr}");
    let names: Vec<&str> =
        text.lines().map(|line| line.split([' ', ':']).nth(1).unwrap()).collect();
    assert_eq!(names.join(" "), super::STEPS, "{text}");
    assert!(text.lines().all(|line| line.starts_with(['✓', '–'])), "{text}");
}

/// The administrator's flags win over those of join.
#[test]
fn flags_of_the_administrator_that_name_another_node_are_in_the_way() {
    let site = Site::kubeadm();
    for (flags, part) in [
        ("--hostname-override=board7 --v=2", "join with --node-name=board7"),
        ("--kubeconfig=/var/lib/nodelet/kubeconfig", "remove it there"),
        ("--bootstrap-kubeconfig=/run/b", "remove it there"),
    ] {
        site.root.write("etc/default/nodelet", format!("NODELET_FLAGS={flags}\n"));
        let path = site.path("etc/default/nodelet").display().to_string();
        site.join(&[]).failed_at("joined", &[&path, flags.split(' ').next().unwrap(), part]);
    }
    assert_eq!(site.double.requests().len(), 0);
    // A run makes lower case of a host name.
    for name in ["Pi", "pi"] {
        let flags = format!("NODELET_FLAGS=--hostname-override={name} --v=2\n");
        site.root.write("etc/default/nodelet", flags);
        site.join(&[]).succeeded();
    }
}

/// A kubelet on this machine has this machine's boot id, and files at any path.
#[test]
fn a_live_node_of_another_agent_is_not_taken_over() {
    let own = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let as_kubelet = "NODELET_FLAGS=--kubelet-version=v1.36.2\n";
    for (os, version, boot_id, flags, is_live) in [
        ("linux", "v1.36.2", own.trim(), "", true),
        ("linux", "v1.36.2", own.trim(), as_kubelet, false),
        ("linux", "v1.36.3", own.trim(), as_kubelet, true),
        ("linux", "v1.36.2", "of another board", as_kubelet, true),
        // The flag was another one when the agent was started.
        ("nodelet", "v1.36.2", own.trim(), "", false),
        ("nodelet", "v1.36.2-nodelet.0.1.0", own.trim(), "", false),
        ("nodelet", "v1.36.2-nodelet.0.1.0", "of another board", "", true),
    ] {
        let site = Site::kubeadm();
        let admins = (!flags.is_empty()).then(|| site.root.write("etc/default/nodelet", flags));
        add_ready_node(&site.double, os, json!({"kubeletVersion": version, "bootID": boot_id}));
        if is_live {
            let remedy = "use --node-name, or kubectl delete node pi; --force goes on";
            site.join(&[]).failed_at("namesake", &["Node pi is Ready, ", remedy]);
            assert!(!site.path(KUBECONFIG).exists());
            assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
        }
        let joined = site.join(if is_live { &["--force"] } else { &[] }).succeeded();
        assert_eq!(
            joined.line("namesake").starts_with("Node pi is Ready, "),
            is_live,
            "{joined:?}"
        );
        admins.map(fs::remove_file).transpose().unwrap();
        assert_eq!(site.files(), [KUBECONFIG, FLAGS]);
    }
}

/// A wrong clock is no attack.
#[test]
fn a_wrong_clock_is_named() {
    const YEAR: u64 = 365 * 86_400;
    // After the end of the server's certificate, and after that of the CA.
    for years in [2, 20] {
        let site = Site::kubeadm();
        let offset = site.root.write("offset", (years * YEAR).to_string());
        let line = site.double.join_command(TOKEN);
        let ended = end(command(line)
            .args(["--node-name=pi", "--root"])
            .arg(site.root.path())
            .envs(clock_of(offset.as_ref())));
        let failed: Vec<&str> = ended.stdout.lines().filter(|l| l.starts_with('✗')).collect();
        assert!(failed.len() == 1 && failed[0].contains("set the clock"), "{ended:?}");
        assert!(!failed[0].contains("somebody"), "{failed:?}");
    }
}

/// Such as cloud-init and a person.
#[test]
fn one_join_or_reset_at_a_time_changes_the_files() {
    let site = Site::kubeadm();
    let folder = site.path("etc/credstore");
    fs::create_dir_all(&folder).unwrap();
    let other = fs::File::open(&folder).unwrap();
    other.lock().unwrap();
    site.join(&["--timeout=1s"]).failed_at("root", &["another nodelet join or reset runs"]);
    let reset = site.run(&["reset"]);
    assert!(reset.line("running").contains("nodelet join runs"), "{reset:?}");
    assert_eq!((site.double.requests().len(), site.files()), (0, vec![]));
    let waits = thread::scope(|scope| {
        let join = scope.spawn(|| site.join(&[]));
        thread::sleep(Duration::from_millis(100));
        other.unlock().unwrap();
        join.join().unwrap()
    });
    assert_eq!(waits.code, 0, "{waits:?}");
}

/// The agent would end at each start.
#[test]
fn flags_that_this_board_cannot_run_with_are_refused_before_any_request() {
    let site = Site::kubeadm();
    for flag in [
        "--system-reserved=memory=1000000Gi",
        "--eviction-hard=memory.available<1000000Gi",
        "--reserved-cpus=0-9999",
        "--host-root=/nonexistent",
        "--node-condition=no=path",
        // Only the port would.
        "--anonymous-auth=true",
    ] {
        let ended = end(command(site.double.join_command(TOKEN)).args([flag, "--dry-run"]));
        assert!(ended.code != 0 && ended.stdout.is_empty(), "{flag}: {ended:?}");
    }
    assert_eq!(site.double.requests().len(), 0);
    // An image is for another machine.
    site.join(&["--system-reserved=memory=1000000Gi"]).succeeded();
}

#[test]
fn a_dry_run_checks_and_changes_nothing() {
    let site = Site::kubeadm();
    let joined = site.join(&["--dry-run"]).succeeded();
    assert_eq!(site.files(), [] as [String; 0]);
    assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
    assert!(joined.line("files").contains("would write"), "{joined:?}");
    assert!(joined.line("files").contains(KUBECONFIG));
    assert_eq!(joined.step("token")["ok"], true);
    assert_eq!(joined.report["wrote"], json!([]));
    site.double.add_bootstrap_token(BootstrapToken::new("nogrup.3333333333333333").groups(&[]));
    let joined = site.join_with("nogrup.3333333333333333", &["--dry-run"]);
    joined.failed_at("csr-create", &["nodelet-ask"]);
}

#[test]
fn an_image_of_many_boards_has_the_token_and_the_flags_of_the_bootstrap() {
    let site = Site::kubeadm();
    let line = site.double.join_command(TOKEN);
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    site.run(&[&line[..], &["--bootstrap-only"]].concat()).succeeded();
    assert_eq!(site.files(), [BOOTSTRAP, FLAGS]);
    assert_eq!(mode(&site.path(BOOTSTRAP)), 0o600);
    let config = kubeconfig::parse(&site.text(BOOTSTRAP), &[]).unwrap();
    assert_eq!(config.authorization.unwrap().header(), format!("Bearer {TOKEN}"));
    assert_eq!(config.ca.unwrap().bytes, site.double.ca_pem().as_bytes());
    assert_eq!(config.endpoint.port, site.double.port());
    let flags = site.text(FLAGS);
    assert!(flags.contains("--bootstrap-kubeconfig=/run/credentials/nodelet.service/"), "{flags}");
    assert!(!flags.contains("--hostname-override"), "{flags}");
    assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
}

#[test]
fn a_cluster_without_kubeadm_is_joined_with_its_ca_and_three_commands() {
    let double = Double::builder().without_kubeadm().start();
    let token = BootstrapToken::new(TOKEN).groups(&[]);
    double.add_bootstrap_token(token);
    let site = Site::new(double);
    site.join(&[])
        .failed_at("cluster-info", &["403", "--certificate-authority FILE and the commands"]);
    assert!(!site.saw_credentials());
    let ca = site.root.write("ca.crt", site.double.ca_pem());
    let authority = format!("--certificate-authority={}", ca.display());
    let join = |flags: &[&str]| site.join_by_url(TOKEN, &[&[authority.as_str()], flags].concat());
    join(&[]).failed_at("csr-create", &["may not create", "nodelet-ask"]);
    site.double.bind(1);
    let joined = join(&["--timeout=1s"]);
    // The key of this request is gone.
    let parts = ["not issued in time", "approval now is too late", "--timeout=1h"];
    joined.failed_at("certificate", &parts);
    assert!(joined.line("approval").contains("nodelet-approve"), "{joined:?}");
    site.double.bind(2);
    let joined = join(&[]).succeeded();
    assert!(joined.line("renewal").contains("nodelet-renew"), "{joined:?}");
    assert!(!site.text(FLAGS).contains("--rotate-certificates"));
    site.double.bind(3);
    let joined = join(&["--force"]);
    assert_eq!(joined.step("renewal")["ok"], true, "{joined:?}");
    assert!(site.text(FLAGS).contains("--rotate-certificates"));
}

/// A token by id, secret, usages, expiry and groups, as recorded in join-token-trouble.json.
#[test]
fn each_fault_of_a_token_has_its_remedy() {
    let site = Site::kubeadm();
    let tokens = [
        BootstrapToken::new("signon.1111111111111111").usages(true, false),
        BootstrapToken::new("authon.2222222222222222").usages(false, true),
        BootstrapToken::new("nogrup.3333333333333333").groups(&["system:bootstrappers:edge"]),
        BootstrapToken::new("expire.4444444444444444").expires_in(Duration::ZERO),
    ];
    for token in tokens {
        site.double.add_bootstrap_token(token);
    }
    let join = |token: &str| site.join_with(token, &["--timeout=1s"]);
    let again = "kubeadm token create --print-join-command";
    for unsigned in
        ["zzzzzz.0123456789abcdef", "authon.2222222222222222", "expire.4444444444444444"]
    {
        join(unsigned).failed_at("signature", &["no signature", &unsigned[..6], "expired", again]);
    }
    join("lwxivu.ffffffffffffffff")
        .failed_at("signature", &["does not fit", "copy the line again"]);
    assert!(!site.saw_credentials());
    join("signon.1111111111111111").failed_at("token", &["401", "signon", "usages", again]);
    join("nogrup.3333333333333333").failed_at("csr-create", &["may not", "nodelet-ask"]);
    site.double.refuse_anonymous();
    join(TOKEN).failed_at("cluster-info", &["401", "--certificate-authority FILE"]);
    assert_eq!(site.files(), [] as [String; 0]);
}

/// kind and NAT: the server of cluster-info is not reachable from the board.
#[test]
fn the_typed_endpoint_is_used_where_the_signed_server_does_not_answer() {
    let site = Site::kubeadm();
    let closed = "https://127.0.0.1:9";
    let info = site.double.cluster_info(closed, &site.double.ca_pem());
    site.double.set_cluster_info(Some(&info));
    let joined = site.join(&[]).succeeded();
    assert!(joined.line("tls").contains("which does not answer: "), "{joined:?}");
    assert_eq!(joined.report["server"], site.double.url());
    assert!(site.kubeconfig().contains(&site.double.url()));
}

#[test]
fn an_unpinned_join_is_noted() {
    let unsafe_skip = "--discovery-token-unsafe-skip-ca-verification";
    let joined = Site::kubeadm().join_by_url(TOKEN, &[unsafe_skip]).succeeded();
    assert!(joined.line("ca").contains("not pinned"), "{joined:?}");
}

#[test]
fn a_folder_that_cannot_be_written_fails_first() {
    for folder in ["etc", "etc/credstore", "etc/default"] {
        let site = Site::kubeadm();
        site.root.write(folder, "a file in the place of the folder");
        site.join(&[]).failed_at("root", &["cannot be written", "sudo", "--root"]);
        assert_eq!(site.double.requests().len(), 0);
    }
}

#[test]
fn reset_removes_what_join_and_the_agent_wrote() {
    let site = Site::kubeadm();
    site.join(&[]).succeeded();
    let removed = [
        "nodelet/kubeconfig",
        "nodelet/pki/kubelet-client-2026-11-21-06-19-25.pem",
        "nodelet/pki/kubelet-client.key.tmp",
        "nodelet/pki/kubelet-server-2026-11-21-06-19-25.pem",
        "nodelet-serve/kubelet-server-2026-11-21-06-19-25.pem",
    ]
    .map(|name| format!("var/lib/{name}"));
    let sockets = "etc/systemd/system/sockets.target.wants";
    let (port, other) =
        (format!("{sockets}/nodelet-serve.socket"), format!("{sockets}/other.socket"));
    // systemctl links it so, also in an image.
    let unit = "lib/systemd/system/nodelet-serve.socket";
    let processes = "sys/fs/cgroup/nodelet.service/cgroup.procs";
    let left = [&other, unit, processes, "var/lib/nodelet/pki/other.pem"];
    for name in removed.iter().map(String::as_str).chain(left) {
        site.root.write(name, "7\n");
    }
    symlink(Path::new("/").join(unit), site.path(&port)).unwrap();
    let running = site.run(&["reset"]);
    assert_eq!(running.code, 1);
    assert!(running.line("running").contains("systemctl stop nodelet"), "{running:?}");
    assert!(site.path(KUBECONFIG).exists());
    site.root.write(processes, "");
    let done = site.run(&["reset"]).succeeded();
    assert!(done.line("node").contains("valid until it expires; kubectl delete node pi"));
    // Nothing of an image runs.
    let metrics = &done.report.checks()[1];
    assert_eq!([&metrics["detail"], &metrics["remedy"]], ["disabled", ""]);
    assert_eq!(site.files(), left);
    assert!(!site.path(&port).is_symlink());
    // Again: nothing is left, and that is no failure.
    let again = site.run(&["reset"]).succeeded();
    assert!(again.line("files").contains("nothing to remove"), "{again:?}");
}
