//! Power cuts while `nodelet join` writes, and a token that is given as a file.
#![allow(clippy::disallowed_methods)]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::existing::CompleteIdentity;
use super::files::{JoinPaths, JoinedFiles, StoredFlags, remove_target};
use super::kubeadm::request;
use super::run::{Board, ClockAndNetwork, JoinRun};
use super::steps::{administered, parsed};
use super::supervisor::password;
use super::token::Token;
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, Endpoint, Secret};
use crate::credentials::kubeconfig::{KubeconfigUser, render};
use crate::join::command::{JoinSettings, TokenSource};
use crate::kube::finding::{Finding, Report};
use crate::kube::instant::{Mono, Now};
use crate::kube::message::{Answer, Method, Request, Response};
use crate::os::clock::Clock;
use crate::os::command::CommandFailure;
use crate::os::guard::{self, read};
use crate::os::mounts::{Mount, pretend_unreadable};
use crate::os::power_cut;
use crate::os::tree::Tree;
use crate::os::write::{Disk, beside, private_folder};

fn new(kubeconfig: bool) -> JoinedFiles {
    let text = Some(Zeroizing::new("the new identity".to_owned()));
    let is_bootstrap = !kubeconfig;
    let (kubeconfig, bootstrap) = if kubeconfig { (text, None) } else { (None, text) };
    let (server, mut words) = ("https://new".to_owned(), vec!["--v=2".to_owned()]);
    words.extend(is_bootstrap.then(|| "--bootstrap-kubeconfig=bootstrap-kubeconfig".to_owned()));
    let flags = StoredFlags { api_server: server.clone(), server, words };
    JoinedFiles { kubeconfig, bootstrap, flags, is_kept: false }
}

/// With the folder that a join locks first.
fn with_folder(paths: &JoinPaths) -> Disk {
    let mut disk = Disk::default();
    disk.carry_out(private_folder(&paths.credentials())).unwrap();
    disk
}

fn written(paths: &JoinPaths, new: JoinedFiles) -> Disk {
    let mut disk = with_folder(paths);
    let change = paths.write(new).unwrap();
    disk.carry_out(change.prepare).unwrap();
    disk.carry_out(change.commit).unwrap();
    assert_eq!(change.paths.len(), 2);
    disk
}

fn text(path: &Path) -> String {
    read(path).map_or(String::new(), |bytes| String::from_utf8(bytes).unwrap())
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).map_or(true, |entries| entries.count() == 0)
}

/// Each state has the whole old identity, or the new one with its flags, which the removal of the
/// old certificates follows; and the same join again gives the new one. The flags name the files of
/// their choice of `--bootstrap-only`; a first join finds none.
#[test]
fn a_power_cut_at_any_operation_leaves_one_identity() {
    for (old, kubeconfig) in [
        (None, true),
        (None, false),
        (Some(true), true),
        (Some(true), false),
        (Some(false), true),
        (Some(false), false),
    ] {
        let tree = Tree::new("join-power");
        let paths = JoinPaths::new(Some(tree.path()));
        if let Some(had_kubeconfig) = old {
            let flags = match had_kubeconfig {
                true => "--v=1",
                false => "--v=1 --kubeconfig=/k --bootstrap-kubeconfig=bootstrap-kubeconfig",
            };
            if had_kubeconfig {
                tree.write("etc/credstore/nodelet.kubeconfig", b"the old identity");
            }
            let flags = format!("NODELET_JOIN_FLAGS={flags}\n");
            tree.write("etc/default/nodelet-join", flags.as_bytes());
            tree.write("var/lib/nodelet/kubeconfig", b"the old identity");
            tree.write("var/lib/nodelet/pki/kubelet-client-1.pem", b"old");
            std::os::unix::fs::symlink(
                "kubelet-client-1.pem",
                tree.path().join("var/lib/nodelet/pki/kubelet-client-current.pem"),
            )
            .unwrap();
        }
        let act = || (written(&paths, new(kubeconfig)).done, ());
        let identities = [paths.kubeconfig(), paths.bootstrap()];
        let states = power_cut::survives(tree.path(), act, |(), state| {
            for text in identities.each_ref().map(|path| text(path)) {
                let known = ["", "the old identity", "the new identity"];
                assert!(known.contains(&text.as_str()), "{text}: {state}");
            }
            let flags = text(&paths.flags());
            let named = match flags.contains("--bootstrap-kubeconfig") {
                true => vec![paths.bootstrap(), paths.issued_kubeconfig()],
                false => vec![paths.kubeconfig()],
            };
            let named: Vec<_> = named.iter().map(|path| text(path)).collect();
            if named.contains(&"the new identity".to_owned()) {
                let is_new = flags.contains("NODELET_JOIN_FLAGS=--v=2");
                assert!(is_new || old.is_none(), "{flags}: {state}");
            } else if old.is_some() {
                assert!(flags.contains("NODELET_JOIN_FLAGS=--"), "{flags}: {state}");
                assert!(named.contains(&"the old identity".to_owned()), "{flags}: {state}");
                assert_eq!(text(&paths.issued_kubeconfig()), "the old identity", "{state}");
                let pair = paths.cert_dir().join("kubelet-client-current.pem");
                assert_eq!(text(&pair), "old", "{state}");
            }
            written(&paths, new(kubeconfig));
            let texts = identities.each_ref().map(|path| text(path));
            let want = if kubeconfig { ["the new identity", ""] } else { ["", "the new identity"] };
            assert_eq!(texts, want, "{state}");
            assert!(is_empty(&paths.cert_dir()), "{state}");
        });
        assert!(states > 10, "{states}");
    }
}

/// A full disk or a read-only folder shows at the first write.
#[test]
fn a_file_that_cannot_be_written_leaves_the_old_identity() {
    for obstacle in ["etc/default/nodelet-join.new", "etc/credstore/nodelet.kubeconfig.new"] {
        let tree = Tree::new("join-full");
        let paths = JoinPaths::new(Some(tree.path()));
        let old: [(&str, &[u8]); 3] = [
            ("etc/credstore/nodelet.kubeconfig", b"the old identity"),
            ("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--v=1\n"),
            ("var/lib/nodelet/pki/kubelet-client-current.pem", b"old"),
        ];
        for (path, content) in old {
            tree.write(path, content);
        }
        tree.write(&format!("{obstacle}/a folder"), b"");
        let line = failed_write(&paths);
        assert!(line.contains(obstacle), "{line}");
        assert!(line.contains("; nothing else was changed; correct it"), "{line}");
        for (path, content) in old {
            assert_eq!(read(&tree.path().join(path)).as_deref(), Ok(content), "{path}");
        }
        for path in [paths.kubeconfig(), paths.flags()] {
            let left = beside(&path);
            assert!(left == tree.path().join(obstacle) || !left.exists(), "{left:?}");
        }
    }
}

/// What was changed before a failure is said.
#[test]
fn a_failure_after_the_first_change_names_the_changes() {
    let tree = Tree::new("join-half");
    let paths = JoinPaths::new(Some(tree.path()));
    // A folder cannot be replaced by a file.
    tree.write("etc/credstore/nodelet.kubeconfig/a folder", b"");
    let line = failed_write(&paths);
    let flags = paths.flags().display().to_string();
    assert!(line.contains(&format!("; wrote {flags} before; correct it")), "{line}");
}

/// A file that is a mount point cannot be replaced. Here a folder is in its place.
#[test]
fn a_file_that_cannot_be_replaced_leaves_no_new_key_beside_it() {
    for obstacle in ["etc/default/nodelet-join", "etc/credstore/nodelet.kubeconfig"] {
        let tree = Tree::new("join-replace");
        let paths = JoinPaths::new(Some(tree.path()));
        tree.write(&format!("{obstacle}/a folder"), b"");
        let line = failed_write(&paths);
        assert!(line.contains(obstacle), "{line}");
        for path in [paths.kubeconfig(), paths.flags()] {
            assert!(!beside(&path).exists(), "{obstacle}: {path:?}");
        }
    }
}

/// The line of the step that writes, which fails.
fn failed_write(paths: &JoinPaths) -> String {
    in_a_run(paths, |run| run.write(new(true))).unwrap_err().line()
}

/// Looks for what contradicts a join of `pi` at a supervisor.
fn contradicted(run: &mut JoinRun<'_>) -> Result<(), Finding> {
    run.contradicted(&Token::parse("password").unwrap())
}

/// A step of a join of `pi`.
fn in_a_run<T>(paths: &JoinPaths, step: impl FnOnce(&mut JoinRun<'_>) -> T) -> T {
    let server = "https://10.0.0.1:6443".to_owned();
    let settings = JoinSettings { server, json: true, ..JoinSettings::default() };
    let board = Board { name: "pi".into(), ..Board::default() };
    let (clock, mut print) = (Clock::start(), |_: &str| Ok(()));
    let mut run = JoinRun::new(&settings, board, &clock, &mut print);
    run.paths = paths.clone();
    step(&mut run)
}

/// A server whose requests for a certificate wait for an approval that never comes.
#[derive(Default)]
struct Unattended {
    now: Cell<Mono>,
    request: RefCell<Value>,
    created: Cell<usize>,
}

impl ClockAndNetwork for Unattended {
    fn now(&self) -> Now {
        Now { mono: self.now.get(), ..Now::default() }
    }

    fn pause(&self, time: Duration) {
        self.now.set(self.now.get().after(time));
    }

    fn dial(&self, _: &[SocketAddr]) -> Finding {
        unreachable!()
    }

    fn call(&self, _: &mut Api, request: &Request, _: Duration) -> Answer {
        if request.method == Method::Post {
            self.created.set(self.created.get() + 1);
            let mut csr: Value = serde_json::from_slice(&request.body).unwrap();
            csr["metadata"] = json!({"name": "csr-1", "uid": "u"});
            self.request.replace(csr);
        }
        Ok(Response::test(200, self.request.borrow().to_string()))
    }
}

/// A cluster whose CA is known, with every token, and without `cluster-info`.
#[derive(Default)]
struct Bootstraps(Cell<usize>);

impl ClockAndNetwork for Bootstraps {
    fn now(&self) -> Now {
        Now::default()
    }

    fn pause(&self, _: Duration) {
        unreachable!()
    }

    fn dial(&self, _: &[SocketAddr]) -> Finding {
        Finding::ok("tcp", "")
    }

    fn call(&self, _: &mut Api, request: &Request, _: Duration) -> Answer {
        self.0.set(self.0.get() + 1);
        Ok(match request.method {
            Method::Post => Response::test(201, json!({"status": {"allowed": true}}).to_string()),
            _ if request.path.starts_with("/api/") => Response::test(403, "{}".to_owned()),
            _ => Response::test(404, "{}".to_owned()),
        })
    }
}

/// The board has a certificate and is off until its end: only the token of the line helps then.
#[test]
fn another_bootstrap_token_is_stored_beside_a_certificate() {
    let (former, token) = ("lwxivu.2uczm8x4xi2v7hqe", "lwxivu.2uczm8x4xi2v7hqd");
    for (stored, is_written) in [(Some(former), true), (Some(token), false), (None, false)] {
        let tree = Tree::new("join-other-token");
        let key = rcgen::KeyPair::generate().unwrap();
        let ca = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        tree.write("ca.crt", ca.as_bytes());
        tree.write("var/lib/nodelet/kubeconfig", b"of the agent");
        let config = ApiConfig::at(Endpoint::parse("https://10.0.0.1:6443").unwrap());
        if let Some(stored) = stored {
            let text = render(&config, &KubeconfigUser::Token(&Secret::new(stored.to_owned())));
            tree.write("etc/credstore/nodelet.bootstrap-kubeconfig", text.unwrap().as_bytes());
        }
        let settings = JoinSettings {
            server: "https://10.0.0.1:6443".to_owned(),
            authority: Some(tree.join("ca.crt")),
            root: Some(tree.path().to_owned()),
            bootstrap_only: true,
            json: true,
            timeout: Duration::from_secs(60),
            ..JoinSettings::default()
        };
        let board = Board { name: "pi".into(), ..Board::default() };
        let (server, mut print) = (Bootstraps::default(), |_: &str| Ok(()));
        let mut run = JoinRun::new(&settings, board, &server, &mut print);
        let (paths, words) = (run.paths.clone(), vec!["--hostname-override=pi".to_owned()]);
        let before = text(&paths.bootstrap());
        let flags = StoredFlags { words, ..StoredFlags::default() };
        let identity = CompleteIdentity { config, flags, lacks_ca: false };
        let result = run.update(identity, &Token::parse(token).unwrap(), None);
        assert!(result.is_ok(), "{:?}", result.err().map(|failed| failed.line()));
        let after = text(&paths.bootstrap());
        assert_eq!(after != before, is_written, "{stored:?}");
        assert_eq!(after.contains(token), stored.is_some(), "{stored:?}");
        assert_eq!(server.0.get() > 0, is_written, "{stored:?}");
        assert_eq!(text(&paths.issued_kubeconfig()), "of the agent");
    }
}

/// A person approves the request after half an hour: the key must not be gone by then.
#[test]
fn a_join_waits_for_an_approval_until_its_timeout() {
    let server = Unattended::default();
    let settings =
        JoinSettings { json: true, timeout: Duration::from_secs(3600), ..JoinSettings::default() };
    let board = Board { name: "pi".into(), ..Board::default() };
    let mut print = |_: &str| Ok(());
    let run = JoinRun::new(&settings, board, &server, &mut print);
    let mut api = Api::new(&ApiConfig::at(Endpoint::parse("http://cp").unwrap())).unwrap();
    let failed = request(&run, &mut api).unwrap_err().line();
    assert!(failed.contains("not issued in time: nobody approved or signed"), "{failed}");
    assert_eq!(server.now.get(), Mono::START.after(settings.timeout));
    assert_eq!(server.created.get(), 1);
}

/// The supervisor has the one that was sent first, and refuses each other one for this name.
#[test]
fn a_node_password_that_cannot_be_seen_is_not_replaced() {
    let tree = Tree::new("join-password");
    let paths = JoinPaths::new(Some(tree.path()));
    tree.write("etc/credstore/nodelet.k3s-password", b"0123456789abcdef");
    pretend_unreadable();
    let found = in_a_run(&paths, password).unwrap();
    assert_eq!(found.reveal(), "0123456789abcdef");
    assert_eq!(text(&paths.password()), "0123456789abcdef");
    // It was encrypted, and the plain one removed.
    std::fs::remove_file(paths.password()).unwrap();
    let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
    tree.write(drop_in, b"[Service]\nLoadCredentialEncrypted=k3s-password:/boot/a\n");
    let failed = in_a_run(&paths, password).map(|_| ()).unwrap_err().line();
    assert!(failed.contains("a.conf: the unit loads another k3s-password; decrypt it"), "{failed}");
    assert!(!paths.password().exists());
}

#[test]
fn flags_of_the_administrator_that_no_agent_has_are_named() {
    let tree = Tree::new("join-administrator");
    let paths = JoinPaths::new(Some(tree.path()));
    let found = || in_a_run(&paths, contradicted);
    assert_eq!(found(), Ok(()));
    // With these no agent starts; the flag in quotes is one word.
    tree.write("etc/default/nodelet", b"NODELET_FLAGS=--ready-when-exists=/run/my file\n");
    assert!(found().is_err_and(|failed| failed.detail.contains("file")));
    tree.write("etc/default/nodelet", b"NODELET_FLAGS='--ready-when-exists=\"/run/my file\"'\n");
    assert_eq!(found(), Ok(()));
    // A start of the agent takes them.
    tree.write("etc/default/nodelet", b"NODELET_FLAGS=--anonymous-auth\n");
    assert_eq!(found(), Ok(()));
    tree.write("etc/systemd/system/sockets.target.wants/nodelet-serve.socket", b"");
    // Each of them is known, and every start would fail, one of the port.
    for (flags, why) in [
        ("--eviction-hard=memory.available<10x", "10x"),
        ("--max-pods=-1", "max-pods"),
        ("--kube-reserved=memory=900Ti", "Expected capacity >= reservation"),
        ("--rotate-certificates=false", "--k3s-supervisor: needs"),
        ("--config=/no/such/file", "/no/such/file"),
        ("--anonymous-auth", "nodelet serve has no anonymous access"),
    ] {
        tree.write("etc/default/nodelet", format!("NODELET_FLAGS={flags}\n").as_bytes());
        let failed = found().unwrap_err();
        assert!(failed.check == "joined" && failed.detail.contains(why), "{}", failed.line());
    }
    // A path of the unit: it runs in /, and has its credentials only while it runs.
    for (config, is_right) in [
        ("Cargo.toml", false),
        ("run/credentials/nodelet.service/config", true),
        ("/run/credentials/nodelet.service/config", true),
    ] {
        let text = format!("NODELET_FLAGS=--config={config}\n");
        tree.write("etc/default/nodelet", text.as_bytes());
        let want = format!("nodelet: --config /{config}: no such file or directory");
        let found = found();
        assert_eq!(found.is_ok(), is_right, "{config}");
        assert!(found.is_ok() || found.is_err_and(|failed| failed.detail.contains(&want)));
    }
    tree.write("etc/default/nodelet", b"NODELET_FLAGS=--hostname-override=other\n");
    pretend_unreadable();
    assert!(found().is_err());
}

/// The first password for a name is the only one that the supervisor accepts while there is a Node:
/// it is sent after these operations, so none of them may be lost then. Before, there is none or
/// the whole one.
#[test]
fn a_node_password_is_stored_before_it_is_sent() {
    for has_folder in [false, true] {
        let tree = Tree::new("password-power");
        let paths = JoinPaths::new(Some(tree.path()));
        if has_folder {
            tree.write("etc/credstore/nodelet.token", b"another credential");
        }
        let act = || {
            let mut disk = with_folder(&paths);
            disk.carry_out(paths.write_password("0123456789abcdef").unwrap()).unwrap();
            (disk.done, ())
        };
        let states = power_cut::survives(tree.path(), act, |(), state| {
            let password = text(&paths.password());
            assert!(["", "0123456789abcdef"].contains(&password.as_str()), "{state}");
            assert_eq!(password.is_empty(), !paths.password().exists(), "{state}");
        });
        assert!(states > 5, "{states}");
    }
}

/// A reset that is cut can be repeated, and never leaves a certificate in use without the rest.
#[test]
fn a_power_cut_of_a_reset_is_repeated() {
    let tree = Tree::new("reset-power");
    let paths = JoinPaths::new(Some(tree.path()));
    written(&paths, new(true));
    tree.write("var/lib/nodelet/pki/kubelet-client-1.pem", b"old");
    // Without systemd, `nodelet serve` has its certificates there.
    tree.write("var/lib/nodelet/pki/kubelet-server-1.pem", b"old");
    tree.write("var/lib/nodelet/pki/other.pem", b"stays");
    tree.write("var/lib/nodelet/podcidr", b"10.0.0.0/24");
    // An earlier power cut left these, which hold a key or a token.
    let left = [paths.kubeconfig(), paths.bootstrap(), paths.password(), paths.issued_kubeconfig()]
        .map(|path| beside(&path));
    for path in &left {
        tree.write(path.strip_prefix(tree.path()).unwrap().to_str().unwrap(), b"a key");
    }
    let act = || {
        let mut disk = Disk::default();
        let (report, removed) = super::run_reset(&mut disk, &mut paths.clone(), false);
        assert_eq!((report.failed().len(), removed.len()), (0, 9));
        (disk.done, ())
    };
    let states = power_cut::survives(tree.path(), act, |(), state| {
        let (report, _) = super::run_reset(&mut Disk::default(), &mut paths.clone(), false);
        assert_eq!(report.failed().len(), 0, "{state}");
        let others = [paths.kubeconfig(), paths.flags(), paths.at("var/lib/nodelet/podcidr")];
        for path in left.iter().chain(&others) {
            assert_eq!(text(path), "", "{state}");
        }
        assert_eq!(text(&paths.cert_dir().join("kubelet-server-1.pem")), "", "{state}");
        assert_eq!(text(&paths.cert_dir().join("other.pem")), "stays");
    });
    assert!(states > 5, "{states}");
}

/// Below procd, OpenRC or runit there is no cgroup of the unit.
#[test]
fn a_reset_sees_an_agent_without_the_unit() {
    let agent = "nodelet\0--kubeconfig=/etc/credstore/nodelet.kubeconfig\0";
    let two_words = "nodelet\0--kubeconfig\0/etc/credstore/nodelet.kubeconfig\0";
    let refused = "✗ running: process 12, nodelet, runs without the unit; stop it";
    for (status, line, want) in [
        ("Name:\tnodelet\nNSpid:\t12\n", agent, refused),
        ("Name:\tnodelet\n", "nodelet\0--root-dir=/var/lib/nodelet\0", refused),
        ("Name:\tnodelet\n", two_words, refused),
        ("Name:\tnodelet\nNSpid:\t12\t1\n", agent, "✓ running: no agent runs"),
        ("Name:\tnodelet\n", "nodelet\0--kubeconfig=/tmp/k\0", "✓ running: no agent runs"),
        ("Name:\tnodelet\n", "nodelet\0reset\0--root=/var/lib/nodelet", "✓ running: no agent runs"),
        ("Name:\tvi\n", agent, "✓ running: no agent runs"),
    ] {
        let tree = Tree::new("reset-running");
        tree.write("proc/12/status", status.as_bytes());
        tree.write("proc/12/cmdline", line.as_bytes());
        tree.write("etc/credstore/nodelet.token", b"");
        let paths = JoinPaths::new(Some(tree.path()));
        let (report, _) = super::run_reset(&mut Disk::default(), &mut paths.clone(), false);
        assert_eq!(report.findings[0].line(), want, "{status} {line}");
    }
}

/// On a read-only root, the state of the agent is on another disk.
#[test]
fn the_folders_of_the_agent_are_those_of_the_administrators_flags() {
    for (flags, folder) in [
        ("", "var/lib/nodelet/pki"),
        ("--root-dir=/data/nodelet", "data/nodelet/pki"),
        ("--root-dir=/data/nodelet --cert-dir=/data/pki", "data/pki"),
        ("--cert-dir /data/pki", "data/pki"),
    ] {
        let tree = Tree::new("join-folders");
        tree.write("etc/default/nodelet", format!("NODELET_FLAGS={flags}\n").as_bytes());
        tree.write(&format!("{folder}/kubelet-client-1.pem"), b"a key");
        let paths = JoinPaths::new(Some(tree.path()));
        let found = in_a_run(&paths, |run| {
            contradicted(run).unwrap();
            run.paths.cert_dir()
        });
        assert_eq!(found, tree.path().join(folder), "{flags}");
        let (report, _) = super::run_reset(&mut Disk::default(), &mut paths.clone(), false);
        assert_eq!(report.failed().len(), 0, "{flags}");
        assert!(is_empty(&found), "{flags}");
    }
}

/// The line of a check.
fn of(report: &Report, check: &str) -> String {
    report.findings.iter().find(|finding| finding.check == check).unwrap().line()
}

/// What the agent has is unknown then.
#[test]
fn a_reset_with_flags_that_no_agent_has_removes_nothing() {
    let tree = Tree::new("reset-flags");
    tree.write("etc/default/nodelet", b"NODELET_FLAGS=--root-dirs=/data\n");
    tree.write("var/lib/nodelet/podcidr", b"10.0.0.0/24");
    let mut paths = JoinPaths::new(Some(tree.path()));
    let (report, removed) = super::run_reset(&mut Disk::default(), &mut paths, false);
    let line = of(&report, "files");
    assert!(line.starts_with("✗ files: ") && line.ends_with("; correct it there"), "{line}");
    assert!(removed.is_empty() && tree.path().join("var/lib/nodelet/podcidr").exists());
}

/// The flags of the join name the folder of the key, too.
#[test]
fn a_reset_whose_flags_cannot_be_read_removes_nothing() {
    let tree = Tree::new("reset-unread");
    tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--cert-dir=/data/pki\n");
    tree.write("var/lib/nodelet/podcidr", b"10.0.0.0/24");
    let mut paths = JoinPaths::new(Some(tree.path()));
    pretend_unreadable();
    let (report, removed) = super::run_reset(&mut Disk::default(), &mut paths, false);
    let line = of(&report, "files");
    assert!(line.starts_with("✗ files: ") && line.contains("nodelet-join: "), "{line}");
    assert!(removed.is_empty() && tree.path().join("var/lib/nodelet/podcidr").exists());
}

/// The state of an image may be on another partition, by an absolute link. A join or a reset of the
/// image must not follow it to the files of this machine.
#[test]
fn an_image_with_absolute_links_leaves_this_machine_alone() {
    let (image, machine) = (Tree::empty("join-image"), Tree::empty("join-machine"));
    let files = ["kubeconfig", "pki/kubelet-client-1.pem", "nodelet.kubeconfig"];
    for file in files {
        machine.write(file, b"of this machine");
    }
    for (link, text) in [("var/lib/nodelet", "old"), ("etc/credstore", "")] {
        let link = image.path().join(link);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(machine.path(), link).unwrap();
        if !text.is_empty() {
            let target = machine.path().strip_prefix("/").unwrap();
            let pair = target.join("pki/kubelet-client-1.pem");
            image.write(pair.to_str().unwrap(), text.as_bytes());
        }
    }
    let paths = JoinPaths::new(Some(image.path()));
    let below = image.path().join(machine.path().strip_prefix("/").unwrap());
    let check = |kubeconfig: &str| {
        for file in files {
            assert_eq!(text(&machine.path().join(file)), "of this machine", "{file}");
        }
        assert_eq!(std::fs::read_dir(machine.path()).unwrap().count(), 3);
        assert_eq!(text(&below.join("nodelet.kubeconfig")), kubeconfig);
        assert!(is_empty(&below.join("pki")));
    };
    written(&paths, new(true));
    check("the new identity");
    let (report, removed) = super::run_reset(&mut Disk::default(), &mut paths.clone(), true);
    assert_eq!((report.failed().len(), removed.len()), (0, 2));
    check("");
}

/// The next boot would start the retired board, or its next owner has a key of the cluster.
#[test]
fn a_reset_names_an_identity_that_it_leaves() {
    let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
    let (own, image) = ("etc/default/nodelet", "var/lib/nodelet/kubeconfig");
    let named = "NODELET_FLAGS=--kubeconfig=/etc/nodelet/kubeconfig --rotate-certificates\n";
    let start =
        |flags: &str| format!("[Service]\nExecStart=\nExecStart=/usr/bin/nodelet {flags}\n");
    let renamed = start("--kubeconfig=%d/kubeconfig --root-dir=%S/nodelet --hostname-override=a");
    let in_credentials =
        start("--kubeconfig=${CREDENTIALS_DIRECTORY}/kubeconfig --bootstrap-kubeconfig=bootstrap");
    let elsewhere = start("--kubeconfig=%d/kubeconfig --cert-dir=/data/pki $NODELET_FLAGS");
    let in_a_variable = "[Service]\nEnvironment=\"NODELET_FLAGS=--v=2 --root_dir /data\"\n";
    let encrypted = "etc/credstore.encrypted/nodelet.kubeconfig";
    for (files, want) in [
        // It is that of the process, which has ended.
        (&[("run/credentials/nodelet.service/kubeconfig", "a")][..], &[][..]),
        (&[(own, "NODELET_FLAGS=--kubeconfig=/run/credentials/nodelet.service/kubeconfig")], &[]),
        (&[(own, "NODELET_FLAGS=--kubeconfig=/var/lib/nodelet/kubeconfig"), (image, "a")], &[]),
        (&[(encrypted, "a")], &[encrypted]),
        (&[(own, named)], &[]),
        (&[(own, named), ("etc/nodelet/kubeconfig", "a")], &["etc/nodelet/kubeconfig"]),
        (&[("etc/credstore/nodelet.ca.crt", "a")], &[]),
        (
            &[("etc/credstore/nodelet.client.key", "a"), ("etc/credstore/nodelet.token", "a")],
            &["etc/credstore/nodelet.client.key", "etc/credstore/nodelet.token"],
        ),
        (&[(drop_in, &renamed)], &[]),
        (&[(drop_in, &in_credentials)], &[]),
        (&[(drop_in, &elsewhere)], &[drop_in]),
        (&[(drop_in, in_a_variable)], &[drop_in]),
    ] {
        let tree = Tree::new("reset-foreign");
        let mut paths = JoinPaths::new(Some(tree.path()));
        for (path, text) in files {
            tree.write(path, text.as_bytes());
        }
        let (report, _) = super::run_reset(&mut Disk::default(), &mut paths, true);
        let line = of(&report, "files");
        let at = |path: &&str| match path.ends_with(".conf") {
            true => format!("what {} names", tree.path().join(path).display()),
            false => tree.path().join(path).display().to_string(),
        };
        let left = want.iter().map(at).collect::<Vec<_>>().join(", ");
        let (stay, them) = if want.len() > 1 { ("stay", "them") } else { ("stays", "it") };
        let note = format!(
            "but {left} {stay}, and the next boot may use {them}; remove {them}, or systemctl \
             disable nodelet"
        );
        match want {
            [] => assert!(line.starts_with("✓ files: "), "{files:?}: {line}"),
            _ => assert!(line.starts_with("– ") && line.ends_with(&note), "{files:?}: {line}"),
        }
    }
}

/// `systemctl start nodelet-serve.socket` without `enable`: each connection starts the service.
#[test]
fn a_reset_names_a_port_that_is_open_and_not_enabled() {
    for (slice, want) in [
        ("", "– metrics: nodelet-serve.service runs"),
        ("system.slice/", "– metrics: nodelet-serve.service runs"),
        ("other/", "✓ metrics: nodelet-serve.socket is not enabled"),
    ] {
        let tree = Tree::new("reset-serves");
        tree.write(&format!("sys/fs/cgroup/{slice}nodelet-serve.service/cgroup.procs"), b"12\n");
        let mut paths = JoinPaths::new(Some(tree.path()));
        let (report, _) = super::run_reset(&mut Disk::default(), &mut paths, false);
        assert!(of(&report, "metrics").starts_with(want), "{slice}");
        assert_eq!(of(&report, "running"), "✓ running: no agent runs");
    }
}

/// The overlay of raspi-config: the layer below it still has the identity.
#[test]
fn a_reset_that_a_reboot_undoes_says_so() {
    let tree = Tree::empty("reset-overlay");
    let paths = JoinPaths::new(Some(tree.path()));
    let at = |path: &Path| tree.path().join(path).display().to_string();
    let mount = |point: &str, fs_type: &str| {
        let point = tree.path().join(point).components().collect();
        Mount { point, fs_type: fs_type.to_owned(), device: None }
    };
    let (file, port) = (at(Path::new("etc/default/nodelet-join")), at(&paths.port()));
    tree.write("etc/systemd/a", b"");
    let kubeconfig = paths.kubeconfig().display().to_string();
    let on_overlay =
        "is on an overlay: if its upper layer is in memory, the next boot has it again";
    for (mounts, removed, want) in [
        (vec![], vec![&file], None),
        (vec![mount("", "ext4")], vec![&file], None),
        (vec![mount("", "ext4"), mount("run", "tmpfs")], vec![&file], None),
        (vec![mount("", "overlay")], vec![&file], Some((&kubeconfig, on_overlay))),
        (vec![mount("", "overlay")], vec![], Some((&kubeconfig, on_overlay))),
        (
            vec![mount("", "ext4"), mount("etc/systemd", "tmpfs")],
            vec![&file, &port],
            Some((&port, "is in memory: if an image has it, the next boot has it again")),
        ),
    ] {
        let removed: Vec<_> = removed.into_iter().cloned().collect();
        let line = super::files(&paths, &removed, &mounts).line();
        let Some((path, why)) = want else {
            assert!(line.starts_with("✓ files: "), "{line}");
            continue;
        };
        let end = "switch the overlay off and reset again, or remove it from the image";
        let end = format!(", but {path} {why}; {end}");
        assert!(line.starts_with("– files: ") && line.ends_with(&end), "{mounts:?}: {line}");
    }
}

/// A board whose card fails is retired: the kernel has made a part of its disk read-only.
#[test]
fn a_reset_that_fails_says_what_it_has_removed_before() {
    let tree = Tree::new("reset-half");
    let mut paths = JoinPaths::new(Some(tree.path()));
    let port = "etc/systemd/system/sockets.target.wants/nodelet-serve.socket";
    let obstacle = "var/lib/nodelet/kubeconfig/a folder";
    for path in ["etc/credstore/nodelet.kubeconfig", port, obstacle] {
        tree.write(path, b"a");
    }
    let mut reset = || super::run_reset(&mut Disk::default(), &mut paths, false);
    let (report, removed) = reset();
    let want = ["etc/credstore/nodelet.kubeconfig", port];
    let want = want.map(|path| tree.path().join(path).display().to_string());
    assert_eq!(removed, want);
    assert_eq!(of(&report, "running"), "✓ running: no agent runs");
    assert_eq!(of(&report, "metrics"), "– metrics: disabled");
    let (line, end) = (of(&report, "files"), want.join(", "));
    assert!(line.starts_with("✗ files: ") && line.contains("nodelet/kubeconfig: "), "{line}");
    assert!(line.ends_with(&format!("; removed {end} before; correct it and reset again")));
    assert_eq!(of(&report, "node"), "– node: skipped because of files");
    let (report, removed) = reset();
    assert!(
        removed.is_empty()
            && of(&report, "files").ends_with("; run it with sudo; if it was, see dmesg")
    );
    assert_eq!(of(&report, "metrics"), "✓ metrics: nodelet-serve.socket is not enabled");
}

/// A person may have changed the file: with quotes, or on two lines.
#[test]
fn stored_flags_are_read_as_systemd_reads_them() {
    let all = ["--rotate-certificates", "--k3s-supervisor=https://b", "--hostname-override=pi"];
    for words in [
        "--rotate-certificates --k3s-supervisor=https://b --hostname-override=pi",
        "\"--rotate-certificates --k3s-supervisor=https://b --hostname-override=pi\"",
        "--rotate-certificates \\\n --k3s-supervisor=https://b '--hostname-override=pi'",
    ] {
        let tree = Tree::new("join-quotes");
        let paths = JoinPaths::new(Some(tree.path()));
        let text = format!("NODELET_JOIN_SERVER='https://a'\nNODELET_JOIN_FLAGS={words}\n");
        tree.write("etc/default/nodelet-join", text.as_bytes());
        let stored = paths.stored_flags().unwrap().unwrap();
        assert_eq!((stored.words, &*stored.server), (all.map(str::to_owned).to_vec(), "https://a"));
    }
    let tree = Tree::new("join-other-file");
    tree.write("etc/default/nodelet-join", b"OTHER=a\n# NODELET_JOIN_FLAGS=--v=2\n");
    assert_eq!(JoinPaths::new(Some(tree.path())).stored_flags(), Ok(None));
}

/// `/etc` is volatile on that board. The link stays for the next join.
#[test]
fn a_link_to_a_persistent_disk_stays_and_its_file_is_removed() {
    let tree = Tree::empty("join-link");
    let [link, file] = ["link", "data/file"].map(|name| tree.path().join(name));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for is_there in [true, false] {
        if is_there {
            tree.write("data/file", b"a key");
        }
        assert_eq!(guard::target(&link).as_ref(), Ok(&file));
        let mut ops = Vec::new();
        remove_target(&mut ops, &link).unwrap();
        assert_eq!(ops.is_empty(), !is_there, "{ops:?}");
        Disk::default().carry_out(ops).unwrap();
        assert!(!file.exists() && link.is_symlink());
    }
    let device = tree.path().join("device");
    std::os::unix::fs::symlink("/dev/null", &device).unwrap();
    assert!(remove_target(&mut Vec::new(), &device).is_err(), "it would remove /dev/null");
    // It would be taken for the file.
    pretend_unreadable();
    assert!(remove_target(&mut Vec::new(), &link).is_err());
    pretend_unreadable();
    assert!(JoinPaths::new(None).write(new(true)).is_err());
}

/// `--token-file <(ssh …)` is a pipe, `/dev/stdin` may be one.
#[test]
fn a_token_comes_from_a_pipe_or_a_fifo() {
    let token = "lwxivu.2uczm8x4xi2v7hqd\n";
    let tree = Tree::empty("join-fifo");
    let fifo = tree.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let writer = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::write(fifo, token)
    });
    assert!(parsed(&TokenSource::File(fifo)).is_ok());
    writer.join().unwrap().unwrap();
    let (read, mut write) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut write, token.as_bytes()).unwrap();
    drop(write);
    let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&read));
    assert!(parsed(&TokenSource::File(path.into())).is_ok());
}

#[test]
fn a_token_as_the_name_of_its_file_is_not_shown() {
    let hash = "45".repeat(32);
    for (name, want) in [
        ("lwxivu.2uczm8x4xi2v7hqd", "use --token"),
        (&format!("K10{hash}::server:x"), "use --token"),
        ("/nowhere/token", "--token-file /nowhere/token: no such file"),
    ] {
        let Err(CommandFailure::Usage(line) | CommandFailure::Other(line)) =
            parsed(&TokenSource::File(name.into()))
        else {
            panic!("{name}");
        };
        assert!(line.contains(want), "{line}");
        assert_eq!(line.contains(name), name.starts_with('/'), "{line}");
    }
}

/// As systemd reads the file: the last assignment, and of a flag the last value.
#[test]
fn a_flag_of_the_administrator_is_found() {
    for (file, want) in [
        ("", None),
        ("#NODELET_FLAGS=--hostname-override=a", None),
        ("NODELET_FLAGS=--hostname-override=a", Some("a")),
        ("NODELET_FLAGS=\"--hostname-override='a' --v=2\"", Some("a")),
        ("NODELET_FLAGS=--v=2 \\\n  --hostname_override a \\\n --v=3\n", Some("a")),
        ("NODELET_FLAGS=--hostname-override=b --hostname-override=a", Some("a")),
        ("NODELET_FLAGS=--hostname-override=b\nNODELET_FLAGS=--v=2", None),
        ("OTHER_NODELET_FLAGS=--hostname-override=b", None),
        ("NODELET_FLAGS=--hostname-override", None),
        ("NODELET_FLAGS=--node-labels=hostname-override=b", None),
        // A value in quotes may have several lines.
        ("NODELET_FLAGS=\"\n  --v=2\n  --hostname-override=a\n\"\n", Some("a")),
        ("NODELET_FLAGS='--v=2\n--hostname-override=a'\nOTHER=x", Some("a")),
        ("OTHER='\nNODELET_FLAGS=--hostname-override=b\n'\n", None),
        ("OTHER=it's\n# the board's=\"name\nNODELET_FLAGS=--hostname-override=a\n", Some("a")),
    ] {
        let name = administered(Vec::new(), file).map(|values| values.hostname_override);
        assert_eq!(name.ok().filter(|name| !name.is_empty()).as_deref(), want, "{file}");
    }
}
