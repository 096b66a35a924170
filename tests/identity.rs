//! Boards that get their identity themselves: from a bootstrap token to certificates
//! that renew themselves, as processes, against the double and its signer.
//!
//! Certificates live for seconds, and Leases for eight. Signer and board are on one
//! clock, so nothing else is scaled.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

mod board;
mod cluster;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use apidouble::{Builder, Double, Fault, Identity, Recorded, Rule, Validity};
use nix::sys::signal::Signal;
use nodelet::kube::x509::Leaf;
use serde_json::Value;

use board::{Board, Folder, eventually};
use cluster::Cluster;

const TOKEN: &str = "07401b.0123456789abcdef";
const MINUTE: Duration = Duration::from_secs(60);
/// Of the Lease; a renewal is due each quarter.
const LEASE: Duration = Duration::from_secs(8);
/// kubelet's own name for it.
const CURRENT: &str = "kubelet-client-current.pem";

struct Site {
    double: Double,
    folder: Folder,
}

impl Site {
    /// A cluster, and a board that was flashed with a token and nothing else.
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

    fn start(&self, more: &[&str]) -> Board {
        let mut args = vec![
            format!("--kubeconfig={}", self.path("etc/kubeconfig")),
            format!("--cert-dir={}", self.path("pki")),
            format!("--root-dir={}", self.path("root")),
            format!("--node-lease-duration-seconds={}", LEASE.as_secs()),
            "--hostname-override=pi".to_owned(),
        ];
        args.extend(more.iter().map(|word| (*word).to_owned()));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Board::start(&args)
    }

    fn bootstrap(&self, more: &[&str]) -> Board {
        let bootstrap = format!("--bootstrap-kubeconfig={}", self.path("bootstrap"));
        self.start(&[&[bootstrap.as_str()], more].concat())
    }

    fn is_ready(&self) -> bool {
        let node = self.double.get("nodes/pi").unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array().cloned();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
    }

    fn await_ready(&self) {
        eventually("Ready", MINUTE, || self.is_ready().then_some(()));
    }

    fn await_csr(&self) -> Value {
        eventually("a CSR", MINUTE, || self.double.list("csrs").pop())
    }

    fn leaf(&self) -> Option<Leaf> {
        let text = fs::read(self.folder.path().join("pki").join(CURRENT)).ok()?;
        Leaf::of_pem(&text)
    }

    /// Pair files, not the link.
    fn pairs(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(self.folder.path().join("pki"));
        let paths = files.into_iter().flatten().map(|file| file.unwrap().path());
        let is_pair = |path: &PathBuf| path.is_file() && !path.is_symlink();
        paths.filter(is_pair).collect()
    }

    /// A kubeconfig with an identity in it, as kubeadm writes one at first.
    fn embed(&self, identity: &Identity) {
        let text = self.double.kubeconfig_for(identity);
        self.folder.write("etc/kubeconfig", &text);
    }

    fn with_token(&self) -> Vec<Recorded> {
        let requests = self.double.requests().into_iter();
        requests
            .filter(|r| r.user.starts_with("system:bootstrap:"))
            .collect()
    }

    /// Longest time between Lease renewals that the server took.
    fn longest_gap(&self) -> Duration {
        let requests = self.double.requests();
        let renewals = requests
            .iter()
            .filter(|r| r.path.contains("/leases/") && r.method == "PATCH" && r.code == 200);
        let times: Vec<_> = renewals.map(|r| r.at).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max().unwrap_or_default()
    }
}

/// Certificates of twelve seconds, dated back by as many: due after 5 to 10.
fn short_lives() -> Builder {
    Double::builder()
        .approve_csrs()
        .signing_seconds(12)
        .backdate_seconds(12)
}

#[test]
fn a_board_with_a_token_becomes_ready_and_needs_it_never_again() {
    for more in [&[][..], &["--rotate-certificates"]] {
        let site = Site::new(Double::builder().approve_csrs());
        let mut board = site.bootstrap(more);
        board.watch_threads();
        site.await_ready();
        // The token asked for the certificate, and for nothing else.
        for request in site.with_token() {
            let is_csr = request.path.contains("/certificatesigningrequests");
            assert!(is_csr, "{} {}", request.method, request.path);
        }
        let csr = site.await_csr();
        let name = csr["metadata"]["name"].as_str().unwrap();
        let prefix = if more.is_empty() { "node-csr-" } else { "csr-" };
        assert!(name.starts_with(prefix), "{name}");
        assert_eq!(site.pairs().len(), 1);
        board.says_within(
            MINUTE,
            "certificate: a new certificate is in use, valid until ",
        );
        board.assert_one_thread();
        let (status, _) = board.stop(Signal::SIGTERM);
        assert!(status.success());

        // Flashed once, valid for a day: the token is gone, and so is its file.
        site.double.revoke_token(TOKEN);
        fs::remove_file(site.path("bootstrap")).unwrap();
        site.double.clear_requests();
        let mut board = site.bootstrap(more);
        eventually("a renewal", MINUTE, || {
            site.double
                .requests()
                .iter()
                .any(|r| r.path.contains("/leases/") && r.code == 200)
                .then_some(())
        });
        assert!(board.is_running());
        assert_eq!(site.with_token().len(), 0);
        assert_eq!(site.double.list("csrs").len(), 1);
        assert_eq!(site.double.schema_violations(), [] as [&str; 0]);
    }
}

#[test]
fn a_certificate_of_seconds_is_renewed_while_every_lease_arrives() {
    let site = Site::new(short_lives());
    let mut keys = BTreeSet::new();
    let mut board = site.bootstrap(&["--rotate-certificates"]);
    site.await_ready();
    site.double.revoke_token(TOKEN);
    fs::remove_file(site.path("bootstrap")).unwrap();
    let mut seen = 0;
    while keys.len() < 4 {
        let leaf = eventually("a new certificate", MINUTE, || {
            site.leaf().filter(|leaf| !keys.contains(&leaf.public_key))
        });
        keys.insert(leaf.public_key);
        seen = site.double.requests().len();
        assert!(board.is_running());
    }
    eventually("more renewals", MINUTE, || {
        let requests = site.double.requests();
        let renewals = requests[seen..]
            .iter()
            .filter(|r| r.path.contains("/leases/"));
        (renewals.count() > 2).then_some(())
    });
    // Four certificates on, nothing was refused, and no Lease came late.
    let refused: Vec<String> = site
        .double
        .requests()
        .iter()
        .filter(|r| [401, 403].contains(&r.code))
        .map(|r| format!("{} {} {}", r.code, r.method, r.path))
        .collect();
    // Before the Node exists, reading it is all that may be refused.
    assert_eq!(refused, [] as [&str; 0]);
    assert!(site.longest_gap() < LEASE / 2, "{:?}", site.longest_gap());
    assert_eq!(site.with_token().last().map(|r| r.code), Some(200));
    let warnings: Vec<String> = board
        .log()
        .into_iter()
        .filter(|line| line.contains("warning"))
        .collect();
    assert_eq!(warnings, [] as [&str; 0]);

    // A restart right after each, with what is there.
    for _ in 0..3 {
        let last = site.leaf().unwrap();
        eventually("a new certificate", MINUTE, || {
            site.leaf().filter(|leaf| *leaf != last)
        });
        let (status, _) = board.stop(Signal::SIGKILL);
        assert!(!status.success());
        site.double.clear_requests();
        board = site.bootstrap(&["--rotate-certificates"]);
        eventually("a renewal", MINUTE, || {
            let requests = site.double.requests();
            requests
                .iter()
                .any(|r| r.path.contains("/leases/"))
                .then_some(())
        });
        let codes: Vec<u16> = site.double.requests().iter().map(|r| r.code).collect();
        assert!(!codes.contains(&401), "{codes:?}");
    }
    assert!(site.pairs().len() > 6, "{:?}", site.pairs());
    assert_eq!(site.double.schema_violations(), [] as [&str; 0]);
}

/// On a real control plane, where there is one. A life of a minute, dated back by five: the
/// next certificate is due after half a minute.
#[test]
fn the_signer_of_a_cluster_takes_what_we_ask_for() {
    // Renewals come every two seconds.
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
    eventually("Ready", MINUTE, || {
        let node = cluster.node("token-only")?;
        let mut conditions = node["status"]["conditions"].as_array()?.iter();
        conditions.find(|c| c["type"] == "Ready" && c["status"] == "True")?;
        Some(())
    });
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
        let renewed = |cluster: &Cluster| {
            let lease = cluster.lease("token-only")?;
            lease["spec"]["renewTime"].as_str().map(str::to_owned)
        };
        let before = renewed(&cluster);
        eventually("a renewal with it", MINUTE, || {
            renewed(&cluster).filter(|now| Some(now) > before.as_ref())
        });
    }
    assert!(board.is_running());
    assert!(!cluster.ever_left_ready(), "a renewal was missed");
}

/// kubeadm's first kubeconfig: administrators made the certificate, and it is in the file.
#[test]
fn a_certificate_that_was_given_is_replaced_at_once() {
    let site = Site::new(Double::builder().approve_csrs());
    let given = site.double.node_identity("pi", Validity::VALID);
    site.embed(&given);
    let mut board = site.start(&["--rotate-certificates"]);
    site.await_ready();
    let given = Leaf::of_pem(given.cert_pem.as_bytes()).unwrap();
    let leaf = eventually("another certificate", MINUTE, || {
        site.leaf()
            .filter(|leaf| leaf.public_key != given.public_key)
    });
    assert_eq!(site.pairs().len(), 2, "the given one was stored, too");
    assert_eq!(site.double.list("csrs").len(), 1);
    assert_eq!(site.with_token().len(), 0);
    // From then on the stored one counts, though the kubeconfig has the other one still.
    board.stop(Signal::SIGTERM);
    let connections = site.double.connections();
    let board = site.start(&["--rotate-certificates"]);
    eventually("a renewal by the second process", MINUTE, || {
        (site.double.connections() > connections).then_some(())
    });
    assert_eq!(site.leaf(), Some(leaf));
    assert_eq!(site.double.list("csrs").len(), 1);
    drop(board);
}

#[test]
fn a_request_that_is_not_granted_has_its_line_and_is_made_again() {
    let granted = |site: &Site| {
        eventually("a certificate", MINUTE, || {
            site.double.tick_certificates();
            site.leaf()
        });
        site.await_ready();
    };
    // Denied: the line, and when the denial is taken back, the certificate.
    for more in [&[][..], &["--rotate-certificates"]] {
        let site = Site::new(Double::builder());
        let mut board = site.bootstrap(more);
        let name = site.await_csr()["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        site.double.deny_csr(&name, "not on my network");
        board.says_within(
            MINUTE,
            &format!(
                "certificate: {name} was denied: ByTest: not on my network; ask the CSR approver"
            ),
        );
        assert!(board.is_running());
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        site.double.as_admin("DELETE", &path, "", &Value::Null);
        granted(&site);
    }
    // Failed, then deleted.
    let site = Site::new(Double::builder());
    let board = site.bootstrap(&["--rotate-certificates"]);
    let name = site.await_csr()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    site.double.fail_csr(&name, "no such signer");
    board.says_within(
        MINUTE,
        &format!(
            "certificate: {name} could not be signed: ByTest: no such signer; see the signer's log"
        ),
    );
    granted(&site);

    let site = Site::new(Double::builder());
    let board = site.bootstrap(&[]);
    let name = site.await_csr()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
    site.double.as_admin("DELETE", &path, "", &Value::Null);
    board.says_within(
        MINUTE,
        &format!("certificate: {name} was deleted before it was signed; requesting again"),
    );
    granted(&site);
    // The same key, hence the same name.
    assert_eq!(site.await_csr()["metadata"]["name"], *name);
}

#[test]
fn a_board_that_waits_for_its_certificate_answers_signals_and_its_watchdog() {
    let site = Site::new(Double::builder());
    let socket = site.folder.path().join("notify");
    let supervisor = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    supervisor.set_read_timeout(Some(MINUTE)).unwrap();
    let kubeconfig = format!("--kubeconfig={}", site.path("etc/kubeconfig"));
    let bootstrap = format!("--bootstrap-kubeconfig={}", site.path("bootstrap"));
    let cert_dir = format!("--cert-dir={}", site.path("pki"));
    let mut board = Board::start_with(
        &[&kubeconfig, &bootstrap, &cert_dir, "--hostname-override=pi"],
        &[
            ("NOTIFY_SOCKET", socket.to_str().unwrap()),
            ("WATCHDOG_USEC", "4000000"),
        ],
    );
    let name = site.await_csr()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
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
        board
            .log()
            .iter()
            .any(|said| said.contains(&line))
            .then_some(())
    });
    let (status, took) = board.stop(Signal::SIGTERM);
    assert!(status.success());
    assert!(took < Duration::from_secs(5), "{took:?}");
    // The next one finds the request that this one made.
    let _board = Board::start_with(
        &[&kubeconfig, &bootstrap, &cert_dir, "--hostname-override=pi"],
        &[
            ("NOTIFY_SOCKET", socket.to_str().unwrap()),
            ("WATCHDOG_USEC", "4000000"),
        ],
    );
    eventually("a certificate", MINUTE, || {
        site.double.tick_certificates();
        site.leaf()
    });
    assert_eq!(site.double.list("csrs").len(), 1);
}

#[test]
fn an_expired_certificate_is_replaced_with_a_token() {
    for more in [&[][..], &["--rotate-certificates"]] {
        let site = Site::new(Double::builder().approve_csrs());
        site.embed(&site.double.node_identity("pi", Validity::EXPIRED));
        let _board = site.bootstrap(more);
        site.await_ready();
        assert!(!site.with_token().is_empty());
    }
}

/// It expires while the board runs: its signer was away for too long.
#[test]
fn a_certificate_that_expires_meanwhile_is_replaced_with_a_token() {
    let site = Site::new(short_lives());
    let no_more = Rule::new(Fault::Status {
        code: 503,
        retry_after: None,
    });
    let mut board = site.bootstrap(&["--rotate-certificates"]);
    site.await_ready();
    site.double
        .faults()
        .push(no_more.path("/certificatesigningrequests").always());
    board.says_within(MINUTE, "certificate: cannot create a CSR: 503 ");
    eventually("the end of the certificate", MINUTE, || {
        let log = board.log();
        let line = |line: &String| {
            line.contains("certificate: expired at ")
                && line.contains("; requesting a new one with the bootstrap kubeconfig")
        };
        log.iter().any(line).then_some(())
    });
    assert!(board.is_running());
    let before = site.leaf().unwrap();
    site.double.faults().clear();
    site.double.clear_requests();
    eventually("another certificate", MINUTE, || {
        site.leaf()
            .filter(|leaf| leaf.public_key != before.public_key)
    });
    assert!(!site.with_token().is_empty());
    eventually("a renewal", MINUTE, || {
        let requests = site.double.requests();
        requests
            .iter()
            .any(|r| r.path.contains("/leases/") && r.code == 200)
            .then_some(())
    });
}

#[test]
fn an_expired_certificate_without_a_token_is_said_once_and_tried_on() {
    for more in [&[][..], &["--rotate-certificates"]] {
        let site = Site::new(Double::builder().approve_csrs());
        site.embed(&site.double.node_identity("pi", Validity::EXPIRED));
        let mut board = site.start(more);
        eventually("attempts", MINUTE, || {
            let requests = site.double.requests();
            let refused = requests.iter().filter(|r| r.code == 401);
            (refused.count() > 6).then_some(())
        });
        assert!(board.is_running());
        let said = board.log();
        let said = said.iter().filter(|line| line.contains("expired at "));
        assert_eq!(said.count(), 1, "{:?}", board.log());
        // Somebody comes and replaces the kubeconfig: the next start is well.
        site.embed(&site.double.node_identity("pi", Validity::VALID));
        board.stop(Signal::SIGTERM);
        let _board = site.start(more);
        site.await_ready();
    }
}

#[test]
fn what_is_wrong_with_the_files_is_said_before_anything_is_sent() {
    let site = Site::new(Double::builder());
    let refused = |args: &[&str], want: &str| {
        let mut board = site.start(args);
        eventually("its end", MINUTE, || (!board.is_running()).then_some(()));
        board.says_within(MINUTE, want);
        assert_eq!(site.double.requests().len(), 0, "{want}");
    };
    let gone = format!("--bootstrap-kubeconfig={}", site.path("gone"));
    refused(&[&gone], "gone: no such file or directory");
    refused(
        &["--rotate-certificates"],
        "etc/kubeconfig: no such file or directory",
    );
    site.folder.write(&format!("pki/{CURRENT}"), "a file");
    let bootstrap = format!("--bootstrap-kubeconfig={}", site.path("bootstrap"));
    refused(
        &[&bootstrap],
        "to be a symlink but it is a file; move it away",
    );
}

/// The token is that of another day, or of another cluster.
#[test]
fn a_token_that_is_refused_has_its_line_and_the_next_one_is_taken_up() {
    let site = Site::new(Double::builder().approve_csrs());
    site.double.revoke_token(TOKEN);
    let mut board = site.bootstrap(&[]);
    board.says_within(MINUTE, "certificate: cannot create a CSR: 401 Unauthorized");
    assert!(board.is_running());
    let next = "fedcba.0123456789abcdef";
    site.double
        .add_token(next, "system:bootstrap:fedcba", &["system:bootstrappers"]);
    let kubeconfig = site.double.kubeconfig_token(next);
    site.folder.write("bootstrap", &kubeconfig);
    site.await_ready();
}

/// Neither the key nor the token, not even in the log at its loudest.
#[test]
fn of_no_secret_a_word() {
    let site = Site::new(Double::builder().approve_csrs());
    let board = site.bootstrap(&["--rotate-certificates", "--v=9"]);
    site.await_ready();
    let pair = fs::read_to_string(site.path(&format!("pki/{CURRENT}"))).unwrap();
    let key = pair.split_once("EC PRIVATE KEY-----\n").unwrap().1;
    let log = board.log().join("\n");
    assert!(
        log.contains("/certificatesigningrequests"),
        "not loud: {log}"
    );
    assert!(!log.contains(&key[..20]) && !log.contains(TOKEN), "{log}");
}

/// Runs a shell line that ends by a signal which dumps core; whether there was a core.
fn dumps_core(folder: &Folder, line: &str) -> bool {
    let mut shell = Command::new("sh");
    let line = format!("ulimit -c unlimited 2>/dev/null; {line}");
    let ended = shell
        .args(["-c", &line])
        .current_dir(folder.path())
        .status();
    let ended = ended.unwrap();
    assert_eq!(
        ended.signal(),
        Some(Signal::SIGABRT as i32),
        "{line}: {ended}"
    );
    ended.core_dumped()
}

#[test]
fn there_is_no_core_file_with_a_key_in_it() {
    let site = Site::new(Double::builder().approve_csrs());
    let cores = Folder::new("cores");
    if !dumps_core(&cores, "kill -ABRT $$") {
        // Not eprintln: the harness would keep it for itself.
        let _ = writeln!(
            std::io::stderr(),
            "identity: DID NOT RUN: nothing dumps core on this machine"
        );
        return;
    }
    let line = format!(
        "(until [ -e {}/{CURRENT} ]; do sleep .1; done; kill -ABRT $$) & exec {} --kubeconfig={} --bootstrap-kubeconfig={} \
         --cert-dir={} --hostname-override=pi 2>/dev/null",
        site.path("pki"),
        env!("CARGO_BIN_EXE_nodelet"),
        site.path("etc/kubeconfig"),
        site.path("bootstrap"),
        site.path("pki"),
    );
    assert!(!dumps_core(&cores, &line), "{line}");
    assert!(site.leaf().is_some(), "it had no key yet");
}

/// As the unit runs it, without any privilege: what belongs to a process that is not
/// dumpable belongs to root, and yet it reads its own files below /proc.
#[test]
fn an_unprivileged_board_reads_its_facts() {
    let site = Site::new(Double::builder().approve_csrs());
    let whole = |unprivileged: bool| {
        let folder = Folder::new(if unprivileged { "nobody" } else { "somebody" });
        let path = folder.path().display();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let bootstrap = folder.write("bootstrap", &site.double.kubeconfig_token(TOKEN));
        fs::set_permissions(&bootstrap, Permissions::from_mode(0o644)).unwrap();
        // Where nobody may pass to the binary, it is copied.
        let binary = folder.path().join("nodelet");
        fs::copy(env!("CARGO_BIN_EXE_nodelet"), &binary).unwrap();
        let name = if unprivileged { "nobody" } else { "somebody" };
        let mut command = match unprivileged {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(&binary);
                command
            }
            false => Command::new(&binary),
        };
        let child = command
            .args([
                format!("--kubeconfig={path}/kubeconfig"),
                format!("--bootstrap-kubeconfig={}", bootstrap.display()),
                format!("--cert-dir={path}/pki"),
                format!("--hostname-override={name}"),
            ])
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            return None;
        };
        let node = eventually("a Ready Node", MINUTE, || {
            let node = site.double.get(&format!("nodes/{name}"))?;
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}");
            node["status"]["nodeInfo"]["bootID"]
                .is_string()
                .then_some(node)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let mut log = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        Some((node["status"].clone(), log))
    };
    let (Some((mut root, _)), true) = (whole(false), nix::unistd::geteuid().is_root()) else {
        let _ = writeln!(
            std::io::stderr(),
            "identity: NOT COMPARED: needs root to be nobody"
        );
        return;
    };
    let Some((mut nobody, log)) = whole(true) else {
        let _ = writeln!(
            std::io::stderr(),
            "identity: NOT COMPARED: no setpriv on the PATH"
        );
        return;
    };
    for status in [&mut root, &mut nobody] {
        // DMI is root's alone; times and what is free differ by the moment.
        status["nodeInfo"]["systemUUID"].take();
        status["conditions"].take();
        status["addresses"].take();
    }
    assert_eq!(root, nobody, "{log}");
    assert!(!log.contains("facts: "), "{log}");
}
