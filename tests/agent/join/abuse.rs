//! Servers that lie: each is refused before a credential is sent to it.

use std::thread;
use std::time::Duration;

use apidouble::{Authority, BootstrapToken, Double, Fault, Rule, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Joined, Site, TOKEN, k10};
use crate::clocks::{SINCE_NOW, clock_of, in_1970, since_the_build};
use crate::common::api::admin;
use crate::common::command::{Ended, command, end};
use support::eventually;

const CLUSTER_INFO: &str = "cluster-info";
const NAMES: &[&str] = &["127.0.0.1", "localhost"];

impl Site {
    /// The findings of a join that must fail, without a credential sent and without a file.
    fn refused(&self, at: &str, parts: &[&str]) -> Joined {
        let joined = self.join(&["--timeout=1s"]);
        joined.failed_at(at, parts);
        assert!(!self.saw_credentials(), "a credential was sent: {joined:?}");
        assert_eq!(self.files(), [] as [String; 0]);
        assert_eq!(self.double.list("csrs"), [] as [Value; 0]);
        joined
    }

    /// cluster-info with this kubeconfig, signed by one who knows the token.
    fn sign(&self, kubeconfig: &str) {
        self.double.set_cluster_info(Some(kubeconfig));
    }
}

#[test]
fn another_cluster_info_from_the_verified_server_is_refused() {
    let site = Site::kubeadm();
    let other = site.double.cluster_info("https://127.0.0.1:1", &site.double.ca_pem());
    let jws = site.double.signature(&other, &BootstrapToken::new(TOKEN));
    // The first look sees the true one, the second another that is signed as well.
    let forged = json!({"kubeconfig": other, "jws-kubeconfig-lwxivu": jws});
    site.double.forge_cluster_info(&[json!({}), forged]);
    site.refused("tls", &["has another cluster-info", "somebody may be between"]);
}

/// Whoever knows the token adds a CA of its own to the pinned one, which is public, and serves with
/// it. kubeadm sends the bearer token (recorded in kubeadm-words.json).
#[test]
fn a_padded_bundle_of_one_who_knows_the_token_is_refused() {
    let site = Site::kubeadm();
    let theirs = Authority::new("somebody-else");
    let bundle = format!("{}{}", theirs.pem(), site.double.ca_pem());
    site.sign(&site.double.cluster_info(&site.double.url(), &bundle));
    site.double.swap_certificate(&theirs.server(NAMES, Validity::VALID));
    site.refused("tls", &["certificate", "somebody may be between"]);
}

#[test]
fn a_bundle_without_a_pinned_ca_is_refused() {
    let site = Site::kubeadm();
    let url = site.double.url();
    for (ca, parts) in [
        (
            Authority::new("somebody-else").pem(),
            ["none of the CAs (sha256:", "copy the line again"],
        ),
        ("", ["no certificate-authority-data", ""]),
    ] {
        site.sign(&site.double.cluster_info(&url, ca));
        site.refused("ca", &parts);
    }
}

#[test]
fn no_signature_but_the_right_one_is_accepted() {
    let site = Site::kubeadm();
    let info = site.double.cluster_info(&site.double.url(), &site.double.ca_pem());
    let token = BootstrapToken::new(TOKEN);
    let good = site.double.signature(&info, &token);
    let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let none = encoded(r#"{"alg":"none","kid":"lwxivu"}"#);
    let tag = good.rsplit_once('.').unwrap().1;
    for signature in [
        format!("{none}.."),
        format!("{none}..{tag}"),
        format!("{good}="),
        format!(" {good}"),
        // The payload attached.
        good.replace("..", &format!(".{}.", encoded(&info))),
        // Of another token, and over another text.
        site.double.signature(&info, &BootstrapToken::new("lwxivu.ffffffffffffffff")),
        site.double.signature(&info, &BootstrapToken::new("abcdef.2uczm8x4xi2v7hqd")),
        site.double.signature(&format!("{info}\n"), &token),
        "x".repeat(100_000),
    ] {
        site.double.clear_requests();
        let data = json!({"jws-kubeconfig-lwxivu": signature});
        site.double.forge_cluster_info(&[data]);
        site.refused("signature", &["does not fit the token"]);
        assert_eq!(site.double.requests().len(), 1, "{signature}");
    }
    // Over a forged text.
    site.double.forge_cluster_info(&[json!({"kubeconfig": format!("{info}# forged\n")})]);
    site.refused("signature", &["does not fit the token"]);
}

#[test]
fn a_signed_kubeconfig_without_a_safe_server_is_refused() {
    let site = Site::kubeadm();
    let ca = site.double.ca_pem();
    let good = site.double.cluster_info(&site.double.url(), &ca);
    let http = site.double.cluster_info(&site.double.url().replace("https", "http"), &ca);
    let cluster = good.split("clusters:\n").nth(1).unwrap().split("contexts").next().unwrap();
    let two = good.replace(cluster, &format!("{cluster}{cluster}"));
    for (text, part) in [
        (http.as_str(), "not https"),
        (&two, "twice"),
        ("clusters: [", "line 2"),
        ("{}", "no cluster"),
        (&good.replace("https://", "ftp://"), "ftp"),
        (&"[".repeat(1000), "recursion limit"),
        // What it quotes is not taken for a remedy of ours.
        (&good.replace("https://", "https://x; run this#"), "is not a URL"),
    ] {
        site.sign(text);
        site.refused("ca", &["not usable", part]);
    }
}

#[test]
fn a_server_that_floods_stalls_or_redirects_gets_no_credential() {
    for (fault, part) in [
        (Fault::Oversized(10), "larger than"),
        (Fault::EndlessHeaders, "head of the answer"),
        (Fault::StallBeforeHeaders, "timed out"),
        (Fault::StallInBody(100), "timed out"),
        (Fault::Trickle { bytes: 1, every: Duration::from_millis(100) }, "timed out"),
        (Fault::Redirect("https://127.0.0.1:1/".into()), "307"),
        (Fault::Garbage, "not the answer of an API server"),
        (Fault::Status { code: 503, retry_after: None }, "503"),
        (
            Fault::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>".to_vec()),
            "is the port right?",
        ),
    ] {
        let site = Site::kubeadm();
        let shown = format!("{fault:?}");
        site.double.faults().push(Rule::new(fault).path(CLUSTER_INFO).always());
        let joined = site.refused("cluster-info", &[]);
        assert!(joined.line("cluster-info").contains(part), "{shown}: {joined:?}");
    }
}

/// A signer that issues the certificate of another key.
#[test]
fn a_certificate_for_another_key_is_not_stored() {
    let double = Double::builder().without_kubeadm().start();
    double.add_bootstrap_token(BootstrapToken::new(TOKEN).groups(&[]));
    double.bind(1);
    let site = Site::new(double);
    let other = site.double.node_identity("pi", Validity::VALID).cert_pem;
    let other = STANDARD.encode(other);
    let ca = site.root.write("ca.crt", site.double.ca_pem());
    let double = site.double.clone();
    let forger = thread::spawn(move || {
        let csr = eventually("a CSR", Duration::from_secs(10), || double.list("csrs").pop());
        let name = csr["metadata"]["name"].as_str().unwrap();
        let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}");
        let approved = json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m",
            "lastUpdateTime": null, "lastTransitionTime": null}]);
        for (subresource, status) in [
            ("status", json!({"certificate": other})),
            ("approval", json!({"conditions": approved})),
        ] {
            let path = format!("{path}/{subresource}");
            let change = json!({"status": status});
            admin(&double, "PATCH", &path, &change);
        }
    });
    let authority = format!("--certificate-authority={}", ca.display());
    let joined = site.join_by_url(TOKEN, &["--timeout=3s", &authority]);
    forger.join().unwrap();
    joined.failed_at("certificate", &["another key"]);
    assert_eq!(site.files(), ["ca.crt"]);
}

/// The output of a join of a board whose clock is so many seconds ahead.
fn join_at(site: &Site, ahead: i64, is_k3s: bool) -> Ended {
    let args = if is_k3s {
        site.double.set_supervisor(|_| {});
        ["join", &site.double.url(), "--token", &site.k3s_token()].map(str::to_owned).to_vec()
    } else {
        site.double.join_command(TOKEN)
    };
    let offset = site.root.write("offset", ahead.to_string());
    let mut join = command(args);
    join.args(["--node-name=pi", "--timeout=5s", "--root"]).arg(site.path("tree"));
    end(join.envs(clock_of(&offset)))
}

#[test]
fn a_board_of_1970_joins_at_a_server_whose_certificate_is_older_than_the_binary() {
    for is_k3s in [false, true] {
        let site = Site::kubeadm();
        site.double.swap_validity(since_the_build(), None);
        let joined = join_at(&site, in_1970(), is_k3s);
        assert_eq!(joined.code, 0, "{joined:?}");
        let kubeconfig = site.text("tree/etc/credstore/nodelet.kubeconfig");
        assert!(kubeconfig.contains("client-certificate-data"), "{joined:?}");
    }
}

/// A board without an RTC at a server whose certificate is younger than the binary, and one with a
/// wrong RTC: the line names the clock, not an attack, and nothing is sent.
#[test]
fn a_wrong_clock_is_named() {
    let seconds_per_year = 365 * 24 * 3600;
    for (ahead, is_k3s, parts) in [
        (in_1970(), false, ["✗ tls: ", "not valid before", "clock says 1970"]),
        (in_1970(), true, ["✗ tls: ", "not valid before", "clock says 1970"]),
        (200 * seconds_per_year, false, ["✗ ca: ", "the pinned CA expired at", "clock says 22"]),
        (200 * seconds_per_year, true, ["✗ tls: ", "expired at", "clock says 22"]),
    ] {
        let site = Site::kubeadm();
        site.double.swap_validity(SINCE_NOW, None);
        let Ended { code, stdout: text, .. } = join_at(&site, ahead, is_k3s);
        assert_eq!(code, 1, "{text}");
        for part in parts.into_iter().chain(["set the clock of this board"]) {
            assert!(text.contains(part), "{text}\nlacks {part}");
        }
        assert!(!text.contains("somebody"), "{text}");
        assert!(!site.saw_credentials());
    }
}

/// Whoever gives a file and a digest expects both to be checked.
#[test]
fn a_digest_is_checked_beside_a_given_authority() {
    let site = Site::kubeadm();
    site.double.set_supervisor(|k3s| k3s.tokens.push(TOKEN.to_owned()));
    let theirs = Authority::new("somebody-else");
    let ca = site.double.ca_pem();
    let both = format!("{}{ca}", theirs.pem());
    let (own, other) = (site.double.authority().pin(), theirs.pin());
    for (file, token, pin, is_right) in [
        (&ca, TOKEN.to_owned(), Some(&other), false),
        (&both, TOKEN.to_owned(), Some(&own), true),
        (&ca, k10(theirs.pem()), None, false),
        (&both, k10(&ca), None, true),
    ] {
        let file = site.root.write("ca.crt", file);
        let authority = format!("--certificate-authority={}", file.display());
        let pin = pin.map(|pin| format!("--discovery-token-ca-cert-hash={pin}"));
        let mut more = vec![authority.as_str(), "--dry-run", "--timeout=5s"];
        more.extend(pin.as_deref());
        site.double.clear_requests();
        let joined = site.join_by_url(&token, &more);
        if is_right {
            assert_eq!(joined.code, 0, "{joined:?}");
        } else {
            joined.failed_at("ca", &["ca.crt: none of", "leave out one of the two"]);
            assert!(!site.saw_credentials());
        }
    }
}
