//! A board of k3s renews its certificate at the supervisor: with its certificate and its node
//! password, without a token and without a person.

use std::fs;
use std::process::Command;
use std::time::Duration;

use apidouble::{Double, Phase, Recorded};
use nix::sys::signal::Signal;
use nodelet::identity::kubeconfig;
use nodelet::kube::time::Wall;
use nodelet::kube::x509::Leaf;
use serde_json::json;
use support::eventually;

use super::{Site, mode};
use crate::common::api::{admin, paths};
use crate::common::board::{Board, binary};
use crate::common::lease::{self, longest_gap_of_requests};

const MINUTE: Duration = Duration::from_secs(60);
const CURRENT: &str = "state/pki/kubelet-client-current.pem";
const PASSWORD: &str = "etc/credstore/nodelet.k3s-password";

/// A board that joined.
fn joined() -> Site {
    let site = Site::new(Double::builder().without_kubeadm().start());
    site.double.set_supervisor(|_| {});
    let hash = Double::sha256(site.double.ca_pem().as_bytes());
    let url = site.double.url();
    let token = format!("K10{hash}::server:pa55:word");
    let args = ["join", &url, "--token", &token, "--node-name=pi"].map(str::to_owned);
    let joined = site.run(&args);
    assert_eq!(joined.code, 0, "{joined:?}");
    site.double.clear_requests();
    site
}

/// The flags of the unit, and those that join wrote.
fn flags(site: &Site) -> Vec<String> {
    let file = site.text("etc/default/nodelet-join");
    let flags = file.lines().find_map(|line| line.strip_prefix("NODELET_JOIN_FLAGS="));
    let kubeconfig = site.path("etc/credstore/nodelet.kubeconfig");
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--root-dir={}", site.path("state").display()),
        "--node-lease-duration-seconds=8".to_owned(),
    ];
    args.extend(flags.unwrap().split(' ').map(str::to_owned));
    args
}

/// The agent as the unit starts it.
fn start(site: &Site) -> Board {
    let args = flags(site);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Board::start(&args)
}

fn leaf(site: &Site) -> Option<Leaf> {
    Leaf::of_pem(&fs::read(site.path(CURRENT)).ok()?)
}

fn renewals(site: &Site) -> Vec<Recorded> {
    let requests = site.double.requests().into_iter();
    requests.filter(|request| request.path == "/v1-k3s/client-kubelet.crt").collect()
}

/// Certificates of 20 s: at once after the first Lease, then each 14 to 18 s.
#[test]
fn a_board_renews_again_and_again_and_each_lease_is_in_time() {
    let site = joined();
    site.double.set_supervisor(|k3s| k3s.lifetime = Some(20));
    let of_join = kubeconfig::parse(&site.kubeconfig(), &[]).unwrap();
    let of_join = Leaf::of_pem(&of_join.certificate.unwrap().chain.bytes);
    let mut keys = vec![of_join.unwrap().public_key];
    let board = start(&site);
    while keys.len() < 4 {
        let leaf = eventually("a new certificate", MINUTE, || {
            leaf(&site).filter(|leaf| !keys.contains(&leaf.public_key))
        });
        keys.push(leaf.public_key);
    }
    // A Lease each 2 s: at the last one, the certificate before the last one has ended.
    let seen = lease::renewals(&site.double).len();
    eventually("Leases with the last certificate", MINUTE, || {
        (lease::renewals(&site.double).len() > seen + 3).then_some(())
    });
    let password = site.text(PASSWORD);
    assert_eq!(renewals(&site).len(), keys.len() - 1, "one for each new key");
    for renewal in renewals(&site) {
        assert_eq!((renewal.code, renewal.user.as_str()), (200, "system:node:pi"));
        assert_eq!(renewal.header("k3s-node-name"), Some("pi"));
        assert_eq!(renewal.header("k3s-node-password"), Some(password.as_str()));
    }
    for request in site.double.requests() {
        assert_eq!(request.header("authorization"), None, "{request:?}");
        assert!(![401, 403].contains(&request.code), "{request:?}");
        assert!(!request.path.contains("certificatesigningrequests"));
        let is_renewal = request.path.starts_with("/v1-k3s/");
        assert_eq!(request.header("k3s-node-password").is_some(), is_renewal);
    }
    let longest = longest_gap_of_requests(&site.double);
    assert!(longest < Duration::from_secs(4), "{longest:?}");
    assert_eq!(mode(&site.path(CURRENT)), 0o600);
    assert_eq!(board.warnings(), [] as [&str; 0]);
    assert!(!board.log().iter().any(|line| line.contains(&password)));
}

/// `nodelet check` with the same flags, as root runs it.
fn check(site: &Site) -> String {
    let output = Command::new(binary()).arg("check").args(flags(site)).output().unwrap();
    // The exit code is about this machine, too.
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_check_says_how_and_when_the_certificate_is_renewed() {
    let site = joined();
    let url = site.double.url();
    let at_once = format!("✓ certificate-renewal: at once, at the supervisor {url}\n");
    let text = check(&site);
    assert!(text.contains(&at_once), "{text}");
    for skipped in ["csr-create", "csr-get"] {
        let line = format!("– {skipped}: the supervisor signs\n");
        assert!(text.contains(&line), "{text}");
    }
    let mut board = start(&site);
    board.says_within(MINUTE, "certificate: a new certificate is in use");
    board.stop(Signal::SIGTERM);
    let text = check(&site);
    let line = text.lines().find(|line| line.contains("certificate-renewal")).unwrap();
    // 70 % of a year.
    let due = line.split_once("from ").unwrap().1.split_once(" on, at the supervisor").unwrap().0;
    let due = Wall::parse(due).unwrap();
    let days = leaf(&site).unwrap().not_after.since(due).as_secs_f64() / 86_400.0;
    assert!((109.4..109.6).contains(&days), "{days} {line}");
    assert_eq!(renewals(&site).len(), 1, "a check asks for no certificate");
    fs::remove_file(site.path(PASSWORD)).unwrap();
    let text = check(&site);
    assert!(
        text.contains("k3s-password: no such file or directory; restore /etc/credstore"),
        "{text}"
    );
}

/// An older k3s: `notBefore` is the birth of its CA, three years ago. Counted from it, a certificate
/// of a year would be due at once.
#[test]
fn a_restart_asks_for_no_certificate_before_70_percent_of_the_time_since_the_arrival() {
    let site = joined();
    site.double.set_supervisor(|k3s| k3s.backdate = Some(3 * 365 * 86_400));
    let start_once = |want: usize| {
        site.double.clear_requests();
        let mut board = start(&site);
        if want > 0 {
            board.says_within(MINUTE, "certificate: a new certificate is in use");
        }
        eventually("Leases", MINUTE, || (lease::renewals(&site.double).len() > 2).then_some(()));
        assert_eq!(renewals(&site).len(), want, "{:?}", board.log());
        board.stop(Signal::SIGTERM);
    };
    start_once(1);
    start_once(0);
    // The same pair, which arrived ten years before its end.
    let pair = fs::read_link(site.path(CURRENT)).unwrap();
    let folder = site.path("state/pki");
    let old = "kubelet-client-2016-01-02-03-04-05.pem";
    fs::rename(folder.join(pair), folder.join(old)).unwrap();
    fs::remove_file(site.path(CURRENT)).unwrap();
    std::os::unix::fs::symlink(old, site.path(CURRENT)).unwrap();
    start_once(1);
    start_once(0);
}

/// Each failure is one line; the board stays Ready with what it has, and is renewed afterwards.
#[test]
fn a_supervisor_that_fails_costs_no_lease_and_is_asked_again() {
    type Break = fn(&Site);
    let breaks: [(Break, &[&str]); 6] = [
        (
            |site| site.double.set_supervisor(|k3s| k3s.start = vec![Phase::WithoutCore]),
            &["the supervisor answers 503 ServiceUnavailable: runtime core not ready"],
        ),
        (
            |site| site.double.set_supervisor(|k3s| k3s.forged = vec!["<html>".to_owned()]),
            &["unusable certificate: it is not X.509"],
        ),
        (
            |site| {
                let node = site.double.node_identity("pi", apidouble::Validity::VALID);
                let forged = vec![node.cert_pem];
                site.double.set_supervisor(|k3s| k3s.forged = forged);
            },
            &["it is for another key"],
        ),
        (
            |site| site.double.set_supervisor(|k3s| k3s.is_old = true),
            &["all boards share it; upgrade k3s to v1.31.7"],
        ),
        (
            |site| {
                site.double.set_supervisor(|k3s| {
                    k3s.passwords.insert("pi".to_owned(), "of another".to_owned());
                });
            },
            &["403", "kubectl -n kube-system delete secret pi.node-password.k3s"],
        ),
        (
            |site| fs::rename(site.path(PASSWORD), site.path("away")).unwrap(),
            &["/k3s-password: no such file", "no such file", "nodelet join --force"],
        ),
    ];
    for (break_it, parts) in breaks {
        let site = joined();
        break_it(&site);
        let board = start(&site);
        let line = eventually(parts[0], MINUTE, || {
            let log = board.log();
            log.into_iter().find(|line| parts.iter().all(|part| line.contains(part)))
        });
        assert!(line.contains("warning"), "{line}");
        eventually("Leases", MINUTE, || (lease::renewals(&site.double).len() > 1).then_some(()));
        site.double.set_supervisor(|k3s| {
            k3s.is_old = false;
            k3s.passwords.clear();
        });
        if site.path("away").exists() {
            fs::rename(site.path("away"), site.path(PASSWORD)).unwrap();
        }
        board.says_within(MINUTE, "certificate: a new certificate is in use");
        assert!(site.double.requests().iter().all(|r| r.header("authorization").is_none()));
    }
}

/// k3s' cloud controller writes the addresses that the annotations have over those of the Node.
#[test]
fn the_annotations_of_a_former_k3s_agent_get_the_addresses_of_the_board() {
    let site = joined();
    let annotations = json!({"k3s.io/internal-ip": "10.9.9.9", "k3s.io/node-args": "[]"});
    let node = json!({"kind": "Node", "apiVersion": "v1",
        "metadata": {"name": "pi", "annotations": annotations}});
    admin(&site.double, "POST", "/api/v1/nodes", &node);
    let _board = start(&site);
    let node = eventually("the address of the board", MINUTE, || {
        let node = site.double.get("nodes/pi").unwrap();
        let is_ours = node["metadata"]["annotations"]["k3s.io/internal-ip"] != "10.9.9.9";
        is_ours.then_some(node)
    });
    let annotations = &node["metadata"]["annotations"];
    let addresses = node["status"]["addresses"].as_array().unwrap();
    let of_type = |kind: &str| {
        let found: Vec<&str> = addresses
            .iter()
            .filter(|address| address["type"] == kind)
            .map(|address| address["address"].as_str().unwrap())
            .collect();
        found.join(",")
    };
    assert_eq!(annotations["k3s.io/internal-ip"], of_type("InternalIP"));
    assert_eq!(annotations["k3s.io/hostname"], of_type("Hostname"));
    assert_eq!(annotations["k3s.io/node-args"], "[]");
}

/// Before there is a Node, the supervisor refuses its certificate. Ten minutes after the join, as
/// with an image, the server has forgotten the node password; the renewal stores it again.
#[test]
fn the_supervisor_is_asked_after_the_first_lease() {
    let site = joined();
    site.double.set_supervisor(|k3s| k3s.orphan_after = Some(Duration::ZERO));
    assert!(site.double.supervisor().unwrap().passwords.is_empty());
    let board = start(&site);
    board.says_within(MINUTE, "certificate: a new certificate is in use");
    let paths = paths(&site.double);
    let first = |part: &str| paths.iter().position(|path| path.contains(part)).unwrap();
    assert!(first("/nodes") < first("/v1-k3s/"), "{paths:?}");
    assert!(first("/leases") < first("/v1-k3s/"), "{paths:?}");
    assert_eq!(site.double.supervisor().unwrap().passwords["pi"], site.text(PASSWORD));
    assert_eq!(renewals(&site).len(), 1);
}
