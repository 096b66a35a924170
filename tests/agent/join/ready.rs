//! From enter to Ready, in a mount namespace in which the test plays systemd. It needs root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use apidouble::{BootstrapToken, Double};
use nix::mount::{MsFlags, mount};
use serde_json::Value;
use support::{eventually, skip};

use super::{TOKEN, agent};
use crate::common::api::admin;
use crate::common::command::{command, nodelet};
use crate::common::namespace;

pub const SOON: Duration = Duration::from_secs(20);
pub const TRIGGER: &str = "/run/nodelet-joined";
pub const KUBECONFIG: &str = "/etc/credstore/nodelet.kubeconfig";

/// Time from enter to Ready, for the debug binary on a machine that other tests use.
const LIMIT: Duration = Duration::from_millis(1500);

/// Empty folders in the place of those that join writes, for this thread and its processes. One
/// board at a time: without systemd, join takes the agent of another test for one of this board.
pub fn board() -> Result<MutexGuard<'static, ()>, String> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    namespace::mounts()?;
    let machine_id = fs::read("/etc/machine-id").unwrap_or_default();
    for folder in ["/etc", "/run", "/var/lib"] {
        let kind = Some("tmpfs");
        mount(kind, folder, kind, MsFlags::empty(), Some("size=8m"))
            .map_err(|e| format!("{folder}: {e}"))?;
    }
    fs::write("/etc/machine-id", machine_id).unwrap();
    fs::create_dir_all("/run/systemd/system").unwrap();
    for (target, unit) in [("multi-user", "nodelet.service"), ("paths", "nodelet.path")] {
        let wants = format!("/etc/systemd/system/{target}.target.wants");
        fs::create_dir_all(&wants).unwrap();
        fs::write(format!("{wants}/{unit}"), "[Unit]\n").unwrap();
    }
    Ok(alone)
}

fn cluster() -> Double {
    let double = Double::builder().kubeadm().start();
    double.add_bootstrap_token(BootstrapToken::new(TOKEN));
    double
}

fn join(double: &Double, more: &[&str]) -> Child {
    command(double.join_command(TOKEN))
        .args(["--node-name=pi"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Whether it succeeded, and what it printed.
fn end(join: Child) -> (bool, String) {
    let output = join.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_line_ends_with_a_ready_node_in_time() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let double = cluster();
    // The best of up to ten: other tests use the machine.
    let mut best = Duration::MAX;
    for _ in 0..10 {
        let begin = Instant::now();
        let join = join(&double, &["--force"]);
        eventually("the trigger of nodelet.path", SOON, || fs::metadata(TRIGGER).ok());
        let board = agent("/".as_ref());
        let (is_ok, text) = end(join);
        let took = begin.elapsed();
        best = best.min(took);
        assert!(is_ok, "{text}");
        let [.., ready, metrics] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        assert!(ready.starts_with("✓ ready: pi   Ready   v1."), "{text}");
        let line = format!("– start: by nodelet.path, but {KUBECONFIG} is in memory: a reboot");
        assert!(text.contains(&line), "{text}");
        let line = "– metrics: kubectl top has no values of this Node; systemctl enable --now";
        assert_eq!(metrics, format!("{line} nodelet-serve.socket"));
        println!("from enter to Ready: {took:?}");
        drop(board);
        fs::remove_file(TRIGGER).unwrap();
        admin(&double, "DELETE", "/api/v1/nodes/pi", &Value::Null);
        if best <= LIMIT {
            break;
        }
    }
    assert!(best <= LIMIT, "{best:?}");
}

#[test]
fn a_node_that_does_not_come_fails_in_time_and_keeps_the_files() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let double = cluster();
    let (is_ok, text) = end(join(&double, &["--timeout=2s"]));
    assert!(!is_ok, "{text}");
    let last = text.lines().find(|line| line.starts_with("✗ ready")).unwrap_or_default();
    for part in ["✗ ready: not Ready after 2 s: it is not registered", "journalctl -u nodelet"] {
        assert!(last.contains(part), "{text}");
    }
    assert!(fs::metadata(KUBECONFIG).is_ok());
    // Without a wait, the process tells: here nodelet.path is not active.
    let (is_ok, text) = end(join(&double, &["--no-wait"]));
    let line = "– start: nodelet.path has not started nodelet.service; systemctl start";
    assert!(is_ok && text.contains(line), "{text}");
    // The same line waits again.
    let again = join(&double, &[]);
    let board = agent("/".as_ref());
    let (is_ok, text) = end(again);
    assert!(is_ok && text.contains("✓ joined: already"), "{text}");
    // The Node stays Ready for 50 s without its agent, and its boot id is the one of this boot.
    drop(board);
    let (is_ok, text) = end(join(&double, &["--timeout=2s"]));
    let line = "✗ ready: not Ready after 2 s: its Lease is not renewed: no agent runs";
    assert!(!is_ok && text.contains(line), "{text}");
}

/// The agent gets the certificate, and a token may not read the Lease.
#[test]
fn a_join_that_stores_a_token_does_not_wait_for_ready() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let (is_ok, text) = end(join(&cluster(), &["--bootstrap-only"]));
    let line = "– ready: join does not wait for it; kubectl get node pi\n";
    assert!(is_ok && text.contains(line), "{text}");
    // As in a Containerfile: it starts nothing.
    let (is_ok, text) = end(join(&cluster(), &["--bootstrap-only", "--root=/", "--force"]));
    assert!(is_ok && text.contains("– start: --root: the board starts it"), "{text}");
    assert!(text.contains(", /etc/credstore/nodelet.bootstrap-kubeconfig\n"), "{text}");
    // Below procd, OpenRC or runit.
    fs::remove_dir_all("/run/systemd").unwrap();
    let (is_ok, text) = end(join(&cluster(), &["--bootstrap-only", "--force"]));
    let line = "– start: systemd does not run; nodelet, the flags in /etc/default/nodelet-join, and \
                --bootstrap-kubeconfig=/etc/credstore/nodelet.bootstrap-kubeconfig \
                --root-dir=/var/lib/nodelet\n";
    assert!(is_ok && text.contains(line), "{text}");
    // Nothing starts the agent while join would wait.
    let (is_ok, text) = end(join(&cluster(), &["--force"]));
    for line in [
        "– start: systemd does not run; nodelet, the flags in /etc/default/nodelet-join, and \
         --kubeconfig=/etc/credstore/nodelet.kubeconfig --root-dir=/var/lib/nodelet\n",
        "– ready: join does not wait for it; kubectl get node pi\n",
        "– metrics: kubectl top has no values of this Node; nodelet serve --listen=",
    ] {
        assert!(is_ok && text.contains(line), "{text}");
    }
}

/// Without flags `nodelet check` checks the unit: what join stored, and the administrator's flags.
#[test]
fn a_check_without_flags_is_one_of_the_unit() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let check = |args: &[&str]| nodelet(["check"].iter().chain(args)).stdout;
    let nothing = check(&[]);
    assert!(nothing.contains("✗ kubeconfig: --kubeconfig is missing; nodelet join"), "{nothing}");
    let double = cluster();
    let (is_ok, text) = end(join(&double, &["--no-wait"]));
    assert!(is_ok, "{text}");
    fs::write("/etc/default/nodelet", "NODELET_FLAGS=--cert-dir=/var/lib/own\n").unwrap();
    let found = check(&[]);
    for line in [
        format!("✓ kubeconfig: {}\n", double.url()),
        "✓ certificate: CN=system:node:pi,".to_owned(),
        "✓ certificate-renewal: ".to_owned(),
        "✓ root-dir: /var/lib/nodelet\n".to_owned(),
        "– cert-dir: /var/lib/own is in memory: ".to_owned(),
    ] {
        assert!(found.contains(&line), "{line}\n{found}");
    }
    let given = check(&["--cert-dir=/var/lib/given"]);
    assert!(given.contains("– cert-dir: /var/lib/given is in memory: "), "{given}");
    let other = check(&["--kubeconfig=/other"]);
    assert!(other.contains("✗ kubeconfig: /other: no such file"), "{other}");
}

/// Nothing here runs: the unit is stopped, or its start fails.
#[test]
fn join_check_and_reset_say_what_the_next_start_has() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let (double, target) = (cluster(), Path::new("/var/lib/data/kubeconfig"));
    // Its /etc is volatile.
    for folder in ["/etc/default", "/etc/credstore", "/etc/credstore.encrypted", "/var/lib/data"] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(target, KUBECONFIG).unwrap();
    let reserved = "NODELET_FLAGS=--kube-reserved=memory=900Ti\n";
    fs::write("/etc/default/nodelet", reserved).unwrap();
    let (is_ok, text) = end(join(&double, &["--no-wait"]));
    let line = "✗ joined: /etc/default/nodelet: invalid Node Allocatable configuration. Resource";
    assert!(!is_ok && text.contains(line) && !target.exists(), "{text}");

    fs::write("/etc/default/nodelet", "").unwrap();
    let (is_ok, text) = end(join(&double, &["--no-wait"]));
    assert!(is_ok && text.contains(", /var/lib/data/kubeconfig\n") && target.exists(), "{text}");
    let mut fill = fs::File::create("/var/lib/fill").unwrap();
    while fill.write_all(&[0; 4096]).is_ok() {}
    let found = nodelet(["check"]).stdout;
    let line = "✗ cert-dir: /var/lib/nodelet/pki: no space left on device; make room\n";
    assert!(found.contains(line), "{found}");

    let encrypted = "/etc/credstore.encrypted/nodelet.kubeconfig";
    fs::write(encrypted, "").unwrap();
    let found = nodelet(["reset"]).stdout;
    let line = format!(
        "– files: removed /var/lib/data/kubeconfig, /etc/default/nodelet-join, but {encrypted} stays"
    );
    assert!(found.contains(&line) && !target.exists(), "{found}");
    assert!(Path::new(KUBECONFIG).is_symlink());
    let found = nodelet(["check"]).stdout;
    let line =
        format!("✗ kubeconfig: only a start of the unit reads {encrypted}; systemctl status");
    assert!(found.contains(&line), "{found}");
}
