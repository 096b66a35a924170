//! The credentials of a running board.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::client::api_config::ApiConfig;
use crate::client::tls::SYSTEM_ROOTS;
use crate::config::Config;
use crate::credentials::certificate::tests::csr;
use crate::credentials::certificate::{FileTask, TaskResult};
use crate::credentials::current::{Current, Supervisor};
use crate::credentials::pki::tests::serving::work;
use crate::credentials::pki::tests::{Signer, day};
use crate::credentials::rotation::{CertificateFiles as _, RotationStep};
use crate::credentials::{Credentials, IdentitySource};
use crate::kube::delay::Jitter;
use crate::kube::instant::{ClusterSeen, Mono, Now};
use crate::kube::message::{Response, answered};
use crate::kube::time::Wall;
use crate::kube::x509::CertificatePurpose;
use crate::node::kubelet::tests::lines::{collect_lines, take_lines};
use crate::os::tree::Tree;
use crate::os::write::Disk;

/// With `--rotate-certificates`, and its `--cert-dir` below `tree`.
fn rotating(tree: &Tree) -> Config {
    let mut config = Config::of(&[]);
    config.rotate_certificates = true;
    config.cert_dir = tree.join("pki");
    config
}

/// The same with `etc/bootstrap.conf` as the bootstrap kubeconfig.
fn rotating_or_bootstrapping(tree: &Tree) -> Config {
    Config { bootstrap_kubeconfig: Some(tree.join("etc/bootstrap.conf")), ..rotating(tree) }
}

/// The next request is sent, and its CSR is created, and read when it is approved and signed for
/// 50 days from `day` on.
fn request_and_issue(
    credentials: &mut Credentials,
    signer: &Signer,
    day: u8,
    at: &dyn Fn(u64) -> ClusterSeen,
) {
    while !matches!(credentials.step(at(1)), RotationStep::Send(_)) {}
    let pki = &credentials.current.pki;
    let request = pki.store.request(&pki.source.subject, CertificatePurpose::CLIENT).unwrap();
    let created = csr("csr-1", &request);
    credentials.on_response(answered(201, created.clone()), at(1)).unwrap();
    let mut issued = created;
    let chain = STANDARD.encode(signer.sign(&request, day, 50));
    issued["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": chain});
    credentials.on_response(answered(200, issued), at(2)).unwrap();
}

/// Opens the credentials whose kubeconfig is `etc/kubelet.conf`.
fn open(tree: &Tree, config: &Config, now: Wall) -> Credentials {
    let path = tree.join("etc/kubelet.conf");
    let source = IdentitySource::new(config, &path, None);
    source.open(now, Jitter::NONE).unwrap()
}

/// Writes a kubeconfig whose pair is a file, which is valid for so many days since 1970.
fn write_pair(tree: &Tree, signer: &Signer, until: u64) {
    let key = rcgen::KeyPair::generate().unwrap();
    let public = rcgen::PublicKeyData::subject_public_key_info(&key);
    let until = Duration::from_secs(until * 86400);
    let chain = signer.chain("system:node:pi", &public, Duration::ZERO, until);
    tree.write("etc/pair", format!("{chain}{}", key.serialize_pem()).as_bytes());
    let user = "client-certificate: pair, client-key: pair";
    tree.write("etc/kubelet.conf", signer.kubeconfig(user).as_bytes());
}

/// A signing request with the certificate that is there.
const SIGN: FileTask = FileTask::Sign { new_key: false, with_bootstrap: false, is_first: false };

/// A request under way was sent to the old server until the process was restarted.
#[test]
fn a_bootstrap_kubeconfig_that_is_corrected_on_disk_is_used_for_the_request_under_way() {
    let (tree, signer) = (Tree::new("identity"), Signer::new());
    let right = signer.kubeconfig("token: abcdef.0123456789abcdef");
    let wrong = right.replace("10.0.0.1", "10.0.0.9");
    let mut config = Config::of(&[]);
    config.bootstrap_kubeconfig = Some(tree.join("etc/bootstrap.conf"));
    config.cert_dir = tree.join("pki");
    for is_first in [true, false] {
        tree.write("etc/bootstrap.conf", wrong.as_bytes());
        let mut current = open(&tree, &config, Wall::default()).current;
        let task = FileTask::Sign { new_key: false, with_bootstrap: true, is_first };
        let result = work(&mut current, &task, Wall::default());
        assert!(matches!(result, TaskResult::Signed(_)));
        tree.write("etc/bootstrap.conf", right.as_bytes());
        current.on_answer(&Err("no route".into()));
        let later = Now { mono: Mono::START.after(Duration::from_secs(5)), ..Now::default() };
        assert_eq!(current.refresh(later, false), None);
        let endpoint = &current.signing_api().config.endpoint;
        assert_eq!(endpoint.host, "10.0.0.1", "first: {is_first}");
    }
}

/// The former CA would come back as soon as its file is written.
#[test]
fn the_files_of_a_former_bootstrap_kubeconfig_are_not_read_again() {
    let (tree, signer, other) = (Tree::new("bootstrap-files"), Signer::new(), Signer::new());
    let token = signer.kubeconfig("token: abcdef.0123456789abcdef");
    let lines = token.lines().map(|line| match line.split_once("certificate-authority-data:") {
        Some((blanks, _)) => format!("{blanks}certificate-authority: ca.pem\n"),
        None => format!("{line}\n"),
    });
    tree.write("etc/ca.pem", other.ca.as_bytes());
    tree.write("etc/bootstrap.conf", lines.collect::<String>().as_bytes());
    let config = rotating_or_bootstrapping(&tree);
    let mut current = open(&tree, &config, Wall::default()).current;
    let task = FileTask::Sign { new_key: false, with_bootstrap: true, is_first: true };
    work(&mut current, &task, Wall::default());
    tree.write("etc/bootstrap.conf", token.as_bytes());
    for seconds in [5, 6] {
        current.on_answer(&Err("no route".into()));
        let later = Mono::START.after(Duration::from_secs(seconds));
        assert_eq!(current.refresh(Now { mono: later, ..Now::default() }, false), None);
        tree.write("etc/ca.pem", format!("# new\n{}", other.ca).as_bytes());
    }
    assert_eq!(current.api.config.ca.as_ref().unwrap().bytes, signer.ca.as_bytes());
}

/// A request for a certificate goes on with the own one, and the bootstrap kubeconfig is read no
/// more.
#[test]
fn a_certificate_that_is_put_into_the_files_ends_a_bootstrap() {
    let (tree, signer) = (Tree::new("own-replaced"), Signer::new());
    write_pair(&tree, &signer, 30_000);
    tree.write("etc/bootstrap.conf", signer.kubeconfig("token: a.b").as_bytes());
    let mut config = Config::of(&[]);
    config.bootstrap_kubeconfig = Some(tree.join("etc/bootstrap.conf"));
    config.cert_dir = tree.join("pki");
    let mut credentials = open(&tree, &config, day(1));
    let task = FileTask::Sign { new_key: false, with_bootstrap: true, is_first: false };
    work(&mut credentials.current, &task, day(1));
    assert!(credentials.current.signs_apart());
    write_pair(&tree, &signer, 40_000);
    credentials.current.on_answer(&Err("no route".into()));
    let mono = Mono::START.after(Duration::from_secs(5));
    assert!(credentials.refresh(Now { mono, wall: day(1) }.into()));
    assert!(!credentials.current.signs_apart());
}

/// A short-lived one is replaced while a person approves the request, which must not be lost, and
/// the Node is not written with it.
#[test]
fn a_new_certificate_of_the_bootstrap_kubeconfig_is_not_the_boards_own() {
    let (tree, signer) = (Tree::new("bootstrap-pair"), Signer::new());
    let write_pair = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["bootstrap".to_owned()]).unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        tree.write("etc/pair", format!("{pem}{}", key.serialize_pem()).as_bytes());
    };
    write_pair();
    let user = "client-certificate: pair, client-key: pair";
    tree.write("etc/bootstrap.conf", signer.kubeconfig(user).as_bytes());
    let config = rotating_or_bootstrapping(&tree);
    for is_signed in [false, true] {
        let mut credentials = open(&tree, &config, Wall::default());
        if is_signed {
            let task = FileTask::Sign { new_key: false, with_bootstrap: true, is_first: true };
            work(&mut credentials.current, &task, Wall::default());
        }
        write_pair();
        credentials.current.on_answer(&Err("the server ended TLS".into()));
        let later = Now { mono: Mono::START.after(Duration::from_secs(5)), ..Now::default() };
        assert!(credentials.refresh(later.into()), "the new one is in use: {is_signed}");
        assert!(credentials.rotation.is_missing(), "{is_signed}");
    }
}

/// A board that nobody logs in to lives on with a full or worn card.
#[test]
fn a_certificate_that_cannot_be_stored_is_in_use_and_stored_later() {
    let (tree, signer) = (Tree::new("identity-full"), Signer::new());
    let user = signer.pair_of("system:node:pi", 1, 20);
    tree.write("etc/kubelet.conf", signer.kubeconfig(&user).as_bytes());
    let config = rotating(&tree);
    let mut current = open(&tree, &config, day(15)).current;
    let TaskResult::Signed(request) = work(&mut current, &SIGN, day(15)) else {
        panic!("no request");
    };
    let install = FileTask::Install(signer.sign(&request, 15, 90));
    // No file can be written where the folder is none.
    std::fs::rename(tree.join("pki"), tree.join("away")).unwrap();
    tree.write("pki", b"");
    for _ in 0..2 {
        let result = work(&mut current, &install, day(15));
        let TaskResult::NotStored(leaf, why) = result else { panic!("{result:?}") };
        assert!(why.starts_with("in use, but not stored: ") && why.contains("pki"), "{why}");
        assert_eq!(current.not_after(), Some(leaf.not_after));
    }
    assert!(current.not_after() > Some(day(90)));
    std::fs::remove_file(tree.join("pki")).unwrap();
    std::fs::rename(tree.join("away"), tree.join("pki")).unwrap();
    // All operations but the last one, the sync of the folder.
    let ops = current.operations(&install, day(15)).unwrap();
    Disk::default().carry_out(ops).unwrap();
    let result = current.result(&install, Err("I/O error".into()), day(15));
    let TaskResult::NotStored(_, why) = result else { panic!("{result:?}") };
    assert_eq!(why, "in use and stored, but a power cut may undo that: I/O error");
    // Until the folder is synced.
    assert!(!current.operations(&install, day(15)).unwrap().is_empty());
    let result = work(&mut current, &install, day(15));
    assert!(matches!(result, TaskResult::InUse(_)), "{result:?}");
    let current = open(&tree, &config, day(16)).current;
    assert!(current.not_after() > Some(day(90)));
}

/// The certificate has expired while the process ran, the server has moved, and the card is full.
#[test]
fn a_certificate_of_the_bootstrap_that_cannot_be_stored_is_used_at_its_server() {
    let (tree, signer) = (Tree::new("moved-full"), Signer::new());
    let bootstrap = signer.kubeconfig("token: abcdef.0123456789abcdef");
    tree.write("etc/bootstrap.conf", bootstrap.as_bytes());
    let config = rotating_or_bootstrapping(&tree);
    let mut current = open(&tree, &config, day(1)).current;
    for (at, is_first) in [(1, true), (60, false)] {
        if !is_first {
            let moved = bootstrap.replace("10.0.0.1", "10.0.0.9");
            tree.write("etc/bootstrap.conf", moved.as_bytes());
            assert_eq!(work(&mut current, &FileTask::Find(None), day(at)), TaskResult::NotFound);
        }
        let task = FileTask::Sign { new_key: false, with_bootstrap: true, is_first };
        let TaskResult::Signed(request) = work(&mut current, &task, day(at)) else {
            panic!("no request");
        };
        if !is_first {
            std::fs::rename(tree.join("pki"), tree.join("away")).unwrap();
            tree.write("pki", b"");
        }
        let install = FileTask::Install(signer.sign(&request, if is_first { 1 } else { 31 }, 50));
        let result = work(&mut current, &install, day(at));
        assert_eq!(matches!(result, TaskResult::InUse(_)), is_first, "{result:?}");
        let ApiConfig { endpoint, authorization, .. } = &current.api.config;
        assert_eq!(endpoint.host, if is_first { "10.0.0.1" } else { "10.0.0.9" });
        assert_eq!(*authorization, None);
    }
    // There is room again at the next renewal: the new pair replaces the former kubeconfig, too.
    std::fs::remove_file(tree.join("pki")).unwrap();
    std::fs::rename(tree.join("away"), tree.join("pki")).unwrap();
    let TaskResult::Signed(request) = work(&mut current, &SIGN, day(61)) else {
        panic!("no request");
    };
    let result = work(&mut current, &FileTask::Install(signer.sign(&request, 31, 60)), day(61));
    assert!(matches!(result, TaskResult::InUse(_)), "{result:?}");
    let config = open(&tree, &config, day(62)).current.api.config;
    assert_eq!(config.endpoint.host, "10.0.0.9");
}

/// A tool pushes the kubeconfig of one cluster by mistake, and that of the right one while the
/// certificate of the first is being stored.
#[test]
fn an_issued_certificate_stays_with_the_bootstrap_kubeconfig_that_requested_it() {
    let (tree, first, other) = (Tree::new("issued"), Signer::new(), Signer::new());
    let token = "token: abcdef.0123456789abcdef";
    tree.write("etc/bootstrap.conf", first.kubeconfig(token).as_bytes());
    let config = rotating_or_bootstrapping(&tree);
    let mut credentials = open(&tree, &config, day(1));
    let at = |seconds| {
        ClusterSeen::from(Now {
            mono: Mono::START.after(Duration::from_secs(seconds)),
            wall: day(1),
        })
    };
    request_and_issue(&mut credentials, &first, 1, &at);
    for seconds in 3.. {
        let moved = other.kubeconfig(token).replace("10.0.0.1", "10.0.0.9");
        tree.write("etc/bootstrap.conf", moved.as_bytes());
        credentials.current.on_answer(&Err("no route".into()));
        credentials.refresh(at(seconds));
        if matches!(credentials.step(at(seconds)), RotationStep::InUse(_)) {
            break;
        }
    }
    while credentials.rotation.has_change() {
        credentials.step(at(60));
    }
    assert_eq!(credentials.current.api.config.endpoint.host, "10.0.0.1");
    std::fs::remove_file(tree.join("etc/bootstrap.conf")).unwrap();
    let written = open(&tree, &config, day(2)).current.api.config;
    assert_eq!(written.endpoint.host, "10.0.0.1");
}

/// The certificate has expired while the process ran, the server has moved, and each renewal of the
/// Lease at the old one gets no response, also between two operations on the files.
#[test]
fn an_own_change_of_the_files_is_not_that_of_another_program() {
    let (tree, signer) = (Tree::new("own-change"), Signer::new());
    let bootstrap = signer.kubeconfig("token: abcdef.0123456789abcdef");
    tree.write("etc/bootstrap.conf", bootstrap.as_bytes());
    let config = rotating_or_bootstrapping(&tree);
    let mut credentials = open(&tree, &config, day(1));
    for (wall, from, start, host) in
        [(day(1), 1, 0, "10.0.0.1"), (day(60), 31, 200_000, "10.0.0.9")]
    {
        let at = |seconds| {
            let mono = Mono::START.after(Duration::from_secs(start + seconds));
            ClusterSeen::from(Now { mono, wall })
        };
        request_and_issue(&mut credentials, &signer, from, &at);
        for seconds in 3.. {
            credentials.current.on_answer(&Err("no route".into()));
            assert!(!credentials.refresh(at(seconds)), "{host}");
            if matches!(credentials.step(at(seconds)), RotationStep::InUse(_)) {
                break;
            }
        }
        while credentials.rotation.has_change() {
            credentials.step(at(60));
        }
        assert_eq!(credentials.current.api.config.endpoint.host, host);
        tree.write("etc/bootstrap.conf", bootstrap.replace("10.0.0.1", "10.0.0.9").as_bytes());
    }
}

/// The line of the 401 itself can only name the kubeconfig.
#[test]
fn a_401_names_the_certificate_that_was_sent_once() {
    let (tree, signer) = (Tree::new("identity-401"), Signer::new());
    let user = signer.pair_of("system:node:pi", 1, 90);
    tree.write("etc/kubelet.conf", signer.kubeconfig(&user).as_bytes());
    let config = rotating(&tree);
    let answer = |code| Ok(Response::test(code, "{}"));
    let stored = tree.join("pki/kubelet-client-current.pem").display().to_string();
    collect_lines();
    for source in ["users[u].user.client-certificate-data", stored.as_str()] {
        let mut current = open(&tree, &config, Wall::default()).current;
        take_lines();
        for code in [200, 401, 401, 200, 401] {
            current.on_answer(&answer(code));
        }
        let lines = take_lines();
        let named = format!("401 with the certificate of {source};");
        assert_eq!(lines.iter().filter(|line| line.contains(&named)).count(), 2, "{lines:?}");
    }
}

/// `nodelet serve` searches after each 401, and sends its request again where that found something.
#[test]
fn a_search_finds_no_certificate_that_is_in_use_already() {
    let (tree, signer) = (Tree::new("search"), Signer::new());
    let config = rotating(&tree);
    let write = |from| {
        let user = signer.pair_of("system:node:pi", from, 90);
        tree.write("etc/kubelet.conf", signer.kubeconfig(&user).as_bytes());
    };
    write(1);
    let source = IdentitySource::new(&config, &tree.join("etc/kubelet.conf"), None);
    let mut credentials = source.open_read_only(day(5)).unwrap();
    assert!(!credentials.search(day(5)), "it is the one that was refused");
    write(2);
    assert!(credentials.search(day(5)), "another one");
    assert!(!credentials.search(day(5)));
}

/// `nodelet serve` searches at each review that fails, the agent each minute after the expiry.
#[test]
fn a_search_that_finds_the_same_logs_nothing() {
    let (tree, signer) = (Tree::new("search-lines"), Signer::new());
    let config = rotating(&tree);
    let write = |from| {
        let user = signer.pair_of("system:node:pi", from, 90);
        tree.write("etc/kubelet.conf", signer.kubeconfig(&user).as_bytes());
    };
    write(1);
    let source = IdentitySource::new(&config, &tree.join("etc/kubelet.conf"), None);
    let mut credentials = source.clone().open(day(5), Jitter::NONE).unwrap();
    collect_lines();
    let count = |lines: Vec<String>| {
        lines.iter().filter(|line| line.contains("new since the stored certificate")).count()
    };
    for (from, want) in [(2, 1), (3, 1)] {
        write(from);
        let searches = (0..3).map(|_| {
            credentials.search(day(5));
            count(take_lines())
        });
        assert_eq!(searches.collect::<Vec<_>>(), [want, 0, 0]);
        // The stored certificate again.
        tree.write("etc/kubelet.conf", b"");
        credentials.search(day(5));
    }
}

/// A board whose kubeconfig is `etc/kubelet.conf`, without a node password.
fn board_of_k3s(name: &str) -> (Tree, Config) {
    let tree = Tree::new(name);
    let mut config = rotating(&tree);
    config.k3s_supervisor = Some("https://10.0.0.1:6443".to_owned());
    let kubeconfig = Signer::new().kubeconfig("token: abcdef.0123456789abcdef");
    tree.write("etc/kubelet.conf", kubeconfig.as_bytes());
    (tree, config)
}

#[test]
fn a_supervisor_that_the_roots_of_the_system_verify_needs_them() {
    let (tree, mut config) = board_of_k3s("system-roots");
    tree.write("etc/k3s-password", b"0123456789abcdef\n");
    for (system_roots, bundle, is_missing) in [
        (true, "/no/such/bundle.crt", true),
        (true, "/proc/version", false),
        (false, "/no/such/bundle.crt", false),
    ] {
        config.k3s_supervisor_system_roots = system_roots;
        let path = tree.join("etc/kubelet.conf");
        let supervisor = Supervisor::new(&config, &path, None).unwrap();
        let fault = supervisor.fault(&[bundle]).map(|fault| fault.to_string());
        let line = "--k3s-supervisor-system-roots: this system has no root certificates; \
            install ca-certificates (OpenWrt: ca-bundle)";
        assert_eq!(fault.as_deref(), is_missing.then_some(line));
        let credentials = open(&tree, &config, Wall::default());
        assert_eq!(credentials.renewal_fault, supervisor.fault(&SYSTEM_ROOTS));
    }
}

/// A password that is corrected is used from the next attempt on. A new join does not help while
/// the server has the former one.
#[test]
fn a_node_password_that_cannot_be_read_has_its_remedy_and_may_be_corrected() {
    let (tree, config) = board_of_k3s("password");
    for (password, part) in [
        (None, "k3s-password: no such file or directory; restore /etc/credstore/"),
        (Some(""), "k3s-password: empty; restore /etc/credstore/"),
        (Some("a b"), "the password has a blank"),
        (Some("\u{e9}"), "the password has a blank"),
    ] {
        if let Some(text) = password {
            tree.write("etc/k3s-password", text.as_bytes());
        }
        let credentials = open(&tree, &config, Wall::default());
        let mut current = credentials.current;
        let why = credentials.renewal_fault.unwrap().to_string();
        assert!(why.contains(part), "{why}");
        assert!(why.contains("pi.node-password.k3s pi.node-password.rke2"), "{why}");
        let result = work(&mut current, &SIGN, Wall::default());
        assert!(matches!(result, TaskResult::Failed(_)), "{result:?}");
        tree.write("etc/k3s-password", b"0123456789abcdef\n");
        assert_eq!(open(&tree, &config, Wall::default()).renewal_fault, None);
        for _ in 0..2 {
            let result = work(&mut current, &SIGN, Wall::default());
            assert!(matches!(result, TaskResult::Signed(_)), "{result:?}");
        }
    }
}

/// The next request may be months away, and the status line would name the failure until then.
#[test]
fn what_failed_while_the_clock_was_ahead_is_no_outage_any_more() {
    let (tree, signer) = (Tree::new("clock-ahead"), Signer::new());
    write_pair(&tree, &signer, 30_000);
    let mut credentials = open(&tree, &rotating(&tree), day(1));
    let at = |second, wall| {
        ClusterSeen::from(Now { mono: Mono::START.after(Duration::from_secs(second)), wall })
    };
    let ahead = day(1).after(Duration::from_secs(5000 * 86400));
    while !matches!(credentials.step(at(1, ahead)), RotationStep::Send(_)) {}
    credentials.on_response(Ok(Response::test(500, "")), at(1, ahead)).unwrap_err();
    for (second, wall, is_failing) in [(2, ahead, true), (3, day(1), false)] {
        credentials.refresh(at(second, wall));
        assert_eq!(credentials.last_error().is_some(), is_failing, "{second}");
    }
}

/// A control plane whose clock was ahead has signed a certificate that is not valid for weeks. The
/// old pair is valid, and takes its place again, also for the next start. It may be the
/// kubeconfig's own.
#[test]
fn the_last_certificate_is_used_while_the_new_one_is_not_valid_yet() {
    for (renewals, bootstrap) in [(1, false), (0, false), (1, true)] {
        let (tree, signer) = (Tree::new("early"), Signer::new());
        write_pair(&tree, &signer, 30_000);
        let mut config = rotating(&tree);
        if bootstrap {
            std::fs::remove_file(tree.join("etc/kubelet.conf")).unwrap();
            tree.write("etc/bootstrap.conf", signer.kubeconfig("token: a.b").as_bytes());
            config.bootstrap_kubeconfig = Some(tree.join("etc/bootstrap.conf"));
        }
        let mut current = open(&tree, &config, day(1)).current;
        let mut sign =
            FileTask::Sign { new_key: false, with_bootstrap: bootstrap, is_first: bootstrap };
        let mut renew = |current: &mut Current, from, at| {
            let task = std::mem::replace(&mut sign, SIGN);
            let TaskResult::Signed(request) = work(current, &task, at) else {
                panic!("no request");
            };
            let install = FileTask::Install(signer.sign(&request, from, 90));
            let result = work(current, &install, at);
            assert!(matches!(result, TaskResult::InUse(_)), "{result:?}");
        };
        if renewals == 1 {
            renew(&mut current, 1, day(1));
        }
        let old = current.not_after();
        // By the server's clock it is the 31st, until that is corrected.
        renew(&mut current, 31, day(30));
        let new = current.not_after();
        assert_ne!(new, old);
        let find = |begun| FileTask::Find(Some(day(begun)));
        for _ in 0..2 {
            let result = work(&mut current, &find(5), day(5));
            assert!(matches!(result, TaskResult::InUse(_)), "{result:?}");
            assert_eq!(current.not_after(), old);
        }
        let mut restarted = open(&tree, &config, day(6)).current;
        if renewals == 1 {
            assert_eq!(restarted.not_after(), old, "also after a restart");
        }
        work(&mut restarted, &find(6), day(6));
        assert_eq!(restarted.not_after(), old);
        // It is found when the old one has expired.
        let late = Wall::default().after(Duration::from_secs(40_000 * 86_400));
        let result = work(&mut restarted, &FileTask::Find(Some(late)), late);
        assert_eq!(result, TaskResult::NotFound);
        let late = new.unwrap().before(Duration::from_secs(1));
        work(&mut restarted, &FileTask::Find(Some(late)), late);
        assert_eq!(restarted.not_after(), new);
    }
}

/// `cp` writes through the link, into the file of the pair that has expired, while the agent
/// searches.
#[test]
fn a_pair_that_is_copied_through_the_link_while_the_files_are_searched_is_found() {
    let (tree, signer) = (Tree::new("copied"), Signer::new());
    let user = signer.pair_of("system:node:pi", 1, 5);
    tree.write("etc/kubelet.conf", signer.kubeconfig(&user).as_bytes());
    let mut current = open(&tree, &rotating(&tree), day(2)).current;
    let TaskResult::Signed(request) = work(&mut current, &SIGN, day(4)) else {
        panic!("no request");
    };
    work(&mut current, &FileTask::Install(signer.sign(&request, 4, 5)), day(4));
    let link = tree.join("pki/kubelet-client-current.pem");
    let key = rcgen::KeyPair::generate().unwrap();
    let public = rcgen::PublicKeyData::subject_public_key_info(&key);
    let until = Duration::from_secs(30_000 * 86_400);
    let chain = signer.chain("system:node:pi", &public, Duration::ZERO, until);
    let target = std::fs::canonicalize(&link).unwrap();
    for text in [chain.clone(), format!("{chain}{}", key.serialize_pem())] {
        std::fs::write(&target, text).unwrap();
        for _ in 0..2 {
            work(&mut current, &FileTask::Find(None), day(20));
        }
    }
    assert!(current.not_after() > Some(day(1000)));
}

/// Seven turns of the agent store a certificate, which takes seconds on a slow card.
#[test]
fn a_certificate_that_a_person_installs_while_another_one_is_stored_stays() {
    let (tree, signer) = (Tree::new("own-meanwhile"), Signer::new());
    let link = tree.join("pki/kubelet-client-current.pem");
    for is_linked in [false, true] {
        for turns in 0..10 {
            let _ = std::fs::remove_dir_all(tree.join("pki"));
            write_pair(&tree, &signer, 20_600);
            let config = rotating(&tree);
            if is_linked {
                // It was renewed before.
                let mut current = open(&tree, &config, day(1)).current;
                let TaskResult::Signed(request) = work(&mut current, &SIGN, day(1)) else {
                    panic!("no request");
                };
                work(&mut current, &FileTask::Install(signer.sign(&request, 1, 1)), day(1));
            }
            let mut credentials = open(&tree, &config, day(1));
            let at = |seconds| {
                let mono = Mono::START.after(Duration::from_secs(seconds));
                ClusterSeen::from(Now { mono, wall: day(1) })
            };
            while !matches!(credentials.step(at(1)), RotationStep::Send(_)) {}
            let pki = &credentials.current.pki;
            let request = pki.store.request(&pki.source.subject, CertificatePurpose::CLIENT);
            let request = request.unwrap();
            let created = csr("csr-1", &request);
            credentials.on_response(answered(201, created.clone()), at(1)).unwrap();
            let mut issued = created;
            let chain = STANDARD.encode(signer.sign(&request, 1, 50));
            issued["status"] = json!({"conditions": [{"type": "Approved"}], "certificate": chain});
            credentials.on_response(answered(200, issued), at(2)).unwrap();
            let turn = |credentials: &mut Credentials| {
                credentials.refresh(at(3));
                if credentials.rotation.has_change() || credentials.rotation.is_issued(at(3)) {
                    credentials.step(at(3));
                }
            };
            for _ in 0..turns {
                turn(&mut credentials);
            }
            write_pair(&tree, &signer, 40_000);
            if is_linked {
                std::fs::rename(tree.join("etc/pair"), &link).unwrap();
                write_pair(&tree, &signer, 20_600);
            }
            for _ in 0..10 {
                turn(&mut credentials);
            }
            let until = Wall::default().after(Duration::from_secs(40_000 * 86_400));
            let after = open(&tree, &config, day(2)).current.not_after();
            if is_linked {
                let kept = crate::os::guard::read(&link).unwrap();
                let kept = crate::kube::x509::Leaf::of_pem(&kept).unwrap().not_after;
                assert_eq!(kept, until, "after {turns} turns");
            } else {
                assert_eq!(after, Some(until), "after {turns} turns");
            }
            if turns < 6 {
                assert_eq!(credentials.current.not_after(), Some(until), "in use, {turns}");
            }
        }
    }
}
