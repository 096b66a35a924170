//! Servers that are busy for a moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use apidouble::{Fault, Rule};
use serde_json::Value;

use super::{Joined, Site};

const FLAGS: &str = "etc/default/nodelet-join";
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

/// It restarts, or closes the connection at the second look, which is no attack.
#[test]
fn a_server_that_does_not_answer_is_asked_again() {
    let restarted = Site::kubeadm();
    restarted.double.stop_listening();
    let joined = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            restarted.double.start_listening();
        });
        restarted.join(&[]).succeeded()
    });
    assert!(joined.stderr.contains("tcp: 127.0.0.1:"), "{joined:?}");
    restarted.double.stop_listening();
    let gone = restarted.join(&["--force", "--timeout=1s"]);
    gone.failed_at("tcp", &["connection refused", "a loopback address is this board itself"]);
    let site = Site::k3s();
    let rule = Rule::new(Fault::CloseBeforeHeaders).path("/cacerts").skip(1);
    site.double.faults().push(rule.always());
    let joined = join(&site, true, &["--timeout=1s"]);
    joined.failed_at("tls", &["connection closed by the server", "is it up?"]);
    assert!(joined.stderr.contains("; trying again until --timeout"), "{joined:?}");
    assert!(!joined.line("tls").contains("somebody"), "{joined:?}");
    assert!(!site.saw_credentials());
}

/// The third review is about renewals: the board asks for one all the same, in a year.
#[test]
fn a_busy_review_of_renewals_asks_for_no_person() {
    let site = Site::kubeadm();
    let rule = Rule::new(Fault::Status { code: 503, retry_after: None }).path(REVIEWS);
    site.double.faults().push(rule.skip(2).always());
    let joined = site.join(&["--timeout=5s"]).succeeded();
    assert!(joined.line("renewal").contains("unknown: 503"), "{joined:?}");
    assert!(site.text(FLAGS).contains("--rotate-certificates"), "{}", site.text(FLAGS));
}

/// What cannot be seen for a while is neither a refusal nor a free name.
#[test]
fn a_busy_review_or_node_fails_its_step() {
    for (code, path, skip, step) in
        [(503, REVIEWS, 1, "approval"), (500, "/nodes/pi", 0, "namesake")]
    {
        let site = Site::kubeadm();
        let rule = Rule::new(Fault::Status { code, retry_after: None }).path(path);
        site.double.faults().push(rule.skip(skip).always());
        let joined = site.join(&["--timeout=1s"]);
        joined.failed_at(step, &[&code.to_string(), "is it up?"]);
        assert!(!joined.line(step).contains("person"), "{joined:?}");
        assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
    }
}
