//! TLS bootstrap and certificate rotation, against the API double and its signer.
//!
//! Certificates are valid for seconds, Leases for eight. Signer and agent share one clock, so
//! nothing else is scaled.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use apidouble::{Builder, Double, Recorded};
use nix::sys::signal::Signal;
use nodelet::kube::x509::Leaf;
use serde_json::Value;

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::lease::{await_renewals, renewals};
use support::{Folder, eventually, skip};

const TOKEN: &str = "07401b.0123456789abcdef";
const MINUTE: Duration = Duration::from_secs(60);
/// Duration of the Lease; a renewal is due after each quarter.
const LEASE: Duration = Duration::from_secs(8);
/// The kubelet's name of the symlink to the current pair.
const CURRENT: &str = "kubelet-client-current.pem";

struct Site {
    double: Double,
    folder: Folder,
}

impl Site {
    /// An API double, and a folder with a bootstrap kubeconfig only.
    fn new(cluster: Builder) -> Self {
        let site = Self {
            double: cluster.bootstrap_token(TOKEN).start(),
            folder: Folder::new("identity"),
        };
        let bootstrap = site.double.kubeconfig_token(TOKEN);
        site.folder.write("bootstrap", &bootstrap);
        site
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn bootstrap(&self, more: &[&str], env: &[(&str, &str)]) -> Board {
        let mut args = vec![
            format!("--kubeconfig={}", self.path("etc/kubeconfig")),
            format!("--bootstrap-kubeconfig={}", self.path("bootstrap")),
            format!("--cert-dir={}", self.path("pki")),
            format!("--node-lease-duration-seconds={}", LEASE.as_secs()),
            "--hostname-override=pi".to_owned(),
        ];
        args.extend(more.iter().map(|word| (*word).to_owned()));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Board::start_with(&args, env)
    }

    fn await_ready(&self) {
        eventually("Ready", MINUTE, || self.double.get("nodes/pi").filter(is_ready));
    }

    fn await_csr(&self) -> Value {
        eventually("a CSR", MINUTE, || self.double.list("csrs").pop())
    }

    fn leaf(&self) -> Option<Leaf> {
        let text = fs::read(self.folder.path().join("pki").join(CURRENT)).ok()?;
        Leaf::of_pem(&text)
    }

    /// The pair files, without the symlink.
    fn pairs(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path().join("pki"));
        let paths = files.into_iter().flatten().map(|file| file.unwrap().path());
        let is_pair = |path: &PathBuf| path.is_file() && !path.is_symlink();
        paths.filter(is_pair).collect()
    }

    fn with_token(&self) -> Vec<Recorded> {
        let requests = self.double.requests().into_iter();
        requests.filter(|r| r.user.starts_with("system:bootstrap:")).collect()
    }
}

/// Neither the token nor a key is in the log with --v=9.
#[test]
fn a_bootstrap_token_is_needed_once() {
    for (more, prefix) in
        [(&["--v=9"][..], "node-csr-"), (&["--v=9", "--rotate-certificates"], "csr-")]
    {
        let site = Site::new(Double::builder().approve_csrs());
        let mut board = site.bootstrap(more, &[]);
        board.watch_threads();
        site.await_ready();
        // A kubelet took 0.91 s beside one control plane; this takes 0.3 s alone. But it is a debug
        // build, the binaries for boards are built beside it, and once it took 3.2 s.
        let took = board.started.elapsed();
        println!("from the token to Ready: {took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        // The token was used for CSRs only.
        for request in site.with_token() {
            let is_csr = request.path.contains("/certificatesigningrequests");
            assert!(is_csr, "{} {}", request.method, request.path);
        }
        let csr = site.await_csr();
        let name = csr["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with(prefix), "{name}");
        // The key of the request is removed after the registration.
        eventually("one pair", MINUTE, || (site.pairs().len() == 1).then_some(()));
        // It is written between two requests.
        eventually("a kubeconfig", MINUTE, || fs::metadata(site.path("etc/kubeconfig")).ok());
        board.says_within(MINUTE, "certificate: a new certificate is in use, valid until ");
        board.assert_one_thread();
        let (status, _) = board.stop(Signal::SIGTERM);
        assert!(status.success());
        let pair = fs::read_to_string(site.path(&format!("pki/{CURRENT}"))).unwrap();
        // Behind the 36 bytes that each such key begins with.
        let key = pair.split_once("BEGIN PRIVATE KEY-----\n").unwrap().1;
        let log = board.log().join("\n");
        assert!(log.contains("/certificatesigningrequests"), "not loud: {log}");
        assert!(!log.contains(&key[48..64]) && !log.contains(TOKEN), "{log}");

        // The token expires after a day: the agent starts without it and its file.
        site.double.revoke_token(TOKEN);
        fs::remove_file(site.path("bootstrap")).unwrap();
        site.double.clear_requests();
        let mut board = site.bootstrap(more, &[]);
        eventually("a renewal", MINUTE, || renewals(&site.double).pop());
        assert!(board.is_running());
        assert_eq!(site.with_token().len(), 0);
        assert_eq!(site.double.list("csrs").len(), 1);
        site.double.assert_members_are_known();
    }
}

/// Against a real control plane if there is one. Its certificates are valid for a minute and
/// backdated by five: renewal is due after half a minute.
#[test]
fn the_signer_of_a_cluster_accepts_the_request() {
    // A renewal every 2 s.
    let cluster = Cluster::start(Duration::from_secs(6));
    let Some(bootstrap) = cluster.bootstrap_kubeconfig() else {
        return;
    };
    let folder = Folder::new("signer");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let start = || {
        Board::start(&[
            &format!("--kubeconfig={}", path("kubeconfig")),
            &format!("--bootstrap-kubeconfig={bootstrap}"),
            &format!("--cert-dir={}", path("pki")),
            "--rotate-certificates",
            "--hostname-override=token-only",
            &format!("--node-lease-duration-seconds={}", LEASE.as_secs()),
        ])
    };
    let mut board = start();
    eventually("Ready", MINUTE, || cluster.node("token-only").filter(is_ready));
    fs::remove_file(&bootstrap).unwrap();
    let leaf = || Leaf::of_pem(&fs::read(path(&format!("pki/{CURRENT}"))).ok()?);
    let mut last = leaf().unwrap();
    for restart in [false, true, true] {
        last = eventually("a new certificate", MINUTE * 2, || {
            leaf().filter(|leaf| leaf.public_key != last.public_key)
        });
        if restart {
            board.stop(Signal::SIGTERM);
            board = start();
        }
        await_renewals(1, MINUTE, || cluster.renew_time("token-only"));
    }
    assert!(board.is_running());
    assert!(!cluster.ever_left_ready(), "a renewal was missed");
}

#[test]
fn while_waiting_for_a_certificate_signals_and_watchdog_work() {
    let site = Site::new(Double::builder());
    let socket = site.folder.path().join("notify");
    let supervisor = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    supervisor.set_read_timeout(Some(MINUTE)).unwrap();
    let env = [("NOTIFY_SOCKET", socket.to_str().unwrap()), ("WATCHDOG_USEC", "4000000")];
    let start = || site.bootstrap(&[], &env);
    let mut board = start();
    let name = site.await_csr()["metadata"]["name"].as_str().unwrap().to_owned();
    let mut heard = 0;
    let mut word = [0; 4096];
    while heard < 5 {
        let length = supervisor.recv(&mut word).unwrap();
        let word = String::from_utf8_lossy(&word[..length]);
        assert!(!word.contains("READY=1"), "{word}");
        heard += usize::from(word.contains("WATCHDOG=1"));
    }
    eventually("the line for a person", MINUTE, || {
        let line = format!("{name} waits for approval: kubectl certificate approve {name}");
        board.log().iter().any(|said| said.contains(&line)).then_some(())
    });
    let (status, took) = board.stop(Signal::SIGTERM);
    assert!(status.success());
    assert!(took < Duration::from_secs(5), "{took:?}");
    // The next process finds the CSR of this one.
    let _board = start();
    eventually("a certificate", MINUTE, || {
        site.double.tick_certificates();
        site.leaf()
    });
    assert_eq!(site.double.list("csrs").len(), 1);
}

/// Without privileges, as the unit runs it. A process that is not dumpable does not own its files
/// below `/proc`, but reads them.
#[test]
fn an_unprivileged_board_dumps_no_core_and_reads_its_facts() {
    if !nix::unistd::geteuid().is_root() {
        return skip::optional("only root can start a process as another user");
    }
    if !skip::has_tool("setpriv") {
        return;
    }
    let site = Site::new(Double::builder().approve_csrs());
    let whole = |name: &str, user: u32| {
        let folder = Folder::new(name);
        let path = folder.path().display();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let bootstrap = folder.write("bootstrap", site.double.kubeconfig_token(TOKEN));
        fs::set_permissions(&bootstrap, Permissions::from_mode(0o644)).unwrap();
        // A copy: the user may have no access to the folder of the binary. Made by another program,
        // because a child of another test would keep a descriptor of ours open (ETXTBSY).
        let binary = folder.path().join("nodelet");
        let copy = [Path::new(env!("CARGO_BIN_EXE_nodelet")), &binary];
        assert!(Command::new("cp").args(copy).status().unwrap().success());
        let args = [
            format!("--kubeconfig={path}/kubeconfig"),
            format!("--bootstrap-kubeconfig={}", bootstrap.display()),
            format!("--cert-dir={path}/pki"),
            format!("--hostname-override={name}"),
        ];
        let mut board = Board::start_as(user, &binary, &args.each_ref().map(String::as_str));
        let node = eventually("a Ready Node", MINUTE, || {
            let node = site.double.get(&format!("nodes/{name}"))?;
            assert!(board.is_running());
            node["status"]["nodeInfo"]["bootID"].is_string().then_some(node)
        });
        let environ = fs::metadata(format!("/proc/{}/environ", board.pid()));
        assert_eq!(environ.unwrap().uid(), 0, "dumpable");
        board.stop(Signal::SIGTERM);
        (node["status"].clone(), board.log().join("\n"))
    };
    let ((mut root, _), (mut nobody, log)) = (whole("somebody", 0), whole("nobody", 65534));
    for status in [&mut root, &mut nobody] {
        // Only root reads DMI; times and free space change.
        status["nodeInfo"]["systemUUID"].take();
        status["conditions"].take();
        status["addresses"].take();
    }
    assert_eq!(root, nobody, "{log}");
    assert!(!log.contains("facts: "), "{log}");
}
