//! A board of k3s renews its certificate at the supervisor: with its certificate and its node
//! password, without a token and without a person.

use std::fs;
use std::time::Duration;

use apidouble::{Phase, Recorded};
use nodelet::credentials::kubeconfig;
use nodelet::kube::x509::Leaf;
use support::eventually;

use super::{Site, agent_flags, mode, start};
use crate::common::command::{command, end};
use crate::common::lease::{self, longest_gap_of_requests};

const MINUTE: Duration = Duration::from_secs(60);
const CURRENT: &str = "var/lib/nodelet/pki/kubelet-client-current.pem";
const PASSWORD: &str = "etc/credstore/nodelet.k3s-password";

/// A board that joined.
fn joined() -> Site {
    let site = Site::k3s();
    let joined = site.join_by_url(&site.k3s_token(), &[]);
    assert_eq!(joined.code, 0, "{joined:?}");
    site.double.clear_requests();
    site
}

/// The flags of the agent, with a Lease each 2 s.
fn flags(site: &Site) -> Vec<String> {
    let mut flags = agent_flags(site.root.path());
    flags.push("--node-lease-duration-seconds=8".to_owned());
    flags
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
    let board = start(&flags(&site));
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
    // The exit code is about this machine, too.
    end(command(["check"]).args(flags(site))).stdout
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
    assert_eq!(renewals(&site).len(), 0, "a check asks for no certificate");
    fs::remove_file(site.path(PASSWORD)).unwrap();
    let text = check(&site);
    assert!(
        text.contains("k3s-password: no such file or directory; restore /etc/credstore"),
        "{text}"
    );
}

/// The board stays Ready with what it has, and is renewed afterwards.
#[test]
fn a_supervisor_that_fails_costs_no_lease_and_is_asked_again() {
    let site = joined();
    site.double.set_supervisor(|k3s| k3s.start = vec![Phase::WithoutCore]);
    let board = start(&flags(&site));
    board.says_within(
        MINUTE,
        "warning: certificate: the supervisor answers 503 ServiceUnavailable: runtime core not ready",
    );
    eventually("Leases", MINUTE, || (lease::renewals(&site.double).len() > 1).then_some(()));
    board.says_within(MINUTE, "certificate: a new certificate is in use");
    assert!(site.double.requests().iter().all(|r| r.header("authorization").is_none()));
}
