//! Servers that are busy for a moment, and names that a live board has.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use apidouble::{Fault, Rule};
use serde_json::{Value, json};

use super::{Joined, Site, TOKEN};
use crate::common::api::admin;
use crate::common::command::{command, end};

const FLAGS: &str = "etc/default/nodelet-join";
const KUBECONFIG: &str = "etc/credstore/nodelet.kubeconfig";
const REVIEWS: &str = "selfsubjectaccessreviews";

/// A cluster of k3s or of kubeadm.
fn site(is_k3s: bool) -> Site {
    if is_k3s { Site::k3s() } else { Site::kubeadm() }
}

/// A join of [`site`].
fn join(site: &Site, is_k3s: bool, more: &[&str]) -> Joined {
    if is_k3s { site.join_by_url(&site.k3s_token(), more) } else { site.join(more) }
}

/// The names of the steps with their marks.
fn marks(joined: &Joined) -> Vec<(String, Value)> {
    let steps = joined.report.checks().iter();
    steps.map(|step| (step["check"].to_string(), step["ok"].clone())).collect()
}

/// The refusals count each request once: every second one succeeds.
#[test]
fn each_request_is_asked_again_after_a_busy_answer() {
    for (is_k3s, code, requests) in [(false, 503, 8), (true, 429, 5)] {
        let calm = join(&site(is_k3s), is_k3s, &[]).succeeded();
        let site = site(is_k3s);
        let seen = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&seen);
        let rule = Rule::new(Fault::Status { code, retry_after: Some(1) });
        let rule = rule.when(move |_, _| counter.fetch_add(1, Ordering::SeqCst).is_multiple_of(2));
        site.double.faults().push(rule.always());
        let joined = join(&site, is_k3s, &[]).succeeded();
        assert_eq!(marks(&joined), marks(&calm), "{joined:?}");
        assert!(site.text(FLAGS).contains("--rotate-certificates"));
        assert!(seen.load(Ordering::SeqCst) >= 2 * requests, "{seen:?}");
    }
}

/// A board behind a proxy sees why it does not get through.
#[test]
fn a_proxy_of_the_environment_is_named() {
    let site = Site::kubeadm();
    let mut command = command(site.double.join_command(TOKEN));
    command.args(["--node-name=pi", "--dry-run"]).env("HTTPS_PROXY", "http://10.0.0.1:3128");
    let ended = end(&mut command);
    assert!(ended.stderr.contains("HTTPS_PROXY is not used"), "{ended:?}");
}

/// A closed connection at the second look is no attack.
#[test]
fn a_closed_connection_is_asked_again() {
    for (path, skip, is_k3s) in [("cluster-info", 1, false), ("/cacerts", 1, true)] {
        let site = site(is_k3s);
        let rule = Rule::new(Fault::CloseBeforeHeaders).path(path).skip(skip);
        site.double.faults().push(rule);
        let joined = join(&site, is_k3s, &[]).succeeded();
        assert_eq!(site.double.faults().pending(), 0);
        assert!(joined.stderr.contains("trying again until --timeout"), "{joined:?}");
    }
    // A server that restarts.
    let restarted = Site::kubeadm();
    restarted.double.stop_listening();
    let joined = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            restarted.double.start_listening();
        });
        restarted.join(&[])
    });
    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(joined.stderr.contains("tcp: 127.0.0.1:"), "{joined:?}");
    restarted.double.stop_listening();
    let gone = restarted.join(&["--force", "--timeout=1s"]);
    gone.failed_at("tcp", &["connection refused", "a loopback address is this board itself"]);
    let site = Site::k3s();
    let rule = Rule::new(Fault::CloseBeforeHeaders).path("/cacerts").skip(1);
    site.double.faults().push(rule.always());
    let joined = join(&site, true, &["--timeout=1s"]);
    joined.failed_at("tls", &["connection closed by the server", "is it up?"]);
    assert!(!joined.line("tls").contains("somebody"), "{joined:?}");
    assert!(!site.saw_credentials());
}

/// The second review is about the approval, the third about renewals.
#[test]
fn a_busy_review_asks_for_no_person() {
    let busy = |skip: usize| {
        let site = Site::kubeadm();
        let rule = Rule::new(Fault::Status { code: 503, retry_after: None }).path(REVIEWS);
        site.double.faults().push(rule.skip(skip).always());
        let joined = site.join(&["--timeout=1s"]);
        (site, joined)
    };
    let (_, joined) = busy(1);
    joined.failed_at("approval", &["503", "is it up?"]);
    assert!(!joined.line("approval").contains("person"), "{joined:?}");
    // The board asks for a renewal all the same, in a year.
    let (site, joined) = busy(2);
    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(joined.line("renewal").contains("unknown: 503"), "{joined:?}");
    assert!(site.text(FLAGS).contains("--rotate-certificates"), "{}", site.text(FLAGS));
}

/// A kubelet on this machine has this machine's boot id, and files at any path.
#[test]
fn a_live_node_of_another_agent_is_not_taken_over() {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for (version, boot_id, is_live) in [
        ("v1.36.2", boot_id.trim(), true),
        ("v1.34.1+k3s1", boot_id.trim(), true),
        ("v1.36.2-nodelet.0.1.0", boot_id.trim(), false),
        ("v1.36.2-nodelet.0.1.0", "of another board", true),
    ] {
        for is_k3s in [false, true] {
            let site = site(is_k3s);
            let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "pi"}});
            admin(&site.double, "POST", "/api/v1/nodes", &node);
            let ready = json!([{"type": "Ready", "status": "True", "reason": "r", "message": "m",
                "lastHeartbeatTime": null, "lastTransitionTime": null}]);
            let info = json!({"bootID": boot_id, "kubeletVersion": version});
            let status = json!({"status": {"nodeInfo": info, "conditions": ready}});
            admin(&site.double, "PATCH", "/api/v1/nodes/pi/status", &status);
            let joined = join(&site, is_k3s, &[]);
            if is_live {
                joined
                    .failed_at("namesake", &["Node pi is Ready", "--node-name", "--force goes on"]);
                let files = site.files();
                assert!(!files.contains(&KUBECONFIG.to_owned()), "{files:?}");
                assert!(!files.contains(&FLAGS.to_owned()), "{files:?}");
                assert!(is_k3s || site.double.list("csrs").is_empty());
            } else {
                assert_eq!(joined.code, 0, "{joined:?}");
            }
            let forced = join(&site, is_k3s, &["--force"]).succeeded();
            assert_eq!(
                forced.step("namesake")["ok"],
                if is_live { Value::Null } else { true.into() }
            );
        }
    }
    // What cannot be seen for a while is not taken for free.
    let site = Site::kubeadm();
    let rule = Rule::new(Fault::Status { code: 500, retry_after: None }).path("/nodes/pi");
    site.double.faults().push(rule.always());
    site.join(&["--timeout=1s"]).failed_at("namesake", &["500"]);
    assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
}
