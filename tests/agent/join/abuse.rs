//! Servers that lie: each is refused before a credential is sent to it.

use std::time::Duration;

use apidouble::{Authority, BootstrapToken, Fault, Rule, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::{Joined, Site, TOKEN, k10};

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
}

/// cluster-info may be signed by one who knows the token.
#[test]
fn a_signed_cluster_info_does_not_prove_its_server() {
    let site = Site::kubeadm();
    let (url, ca) = (site.double.url(), site.double.ca_pem());
    let theirs = Authority::new("somebody-else");
    let info = |url: &str, ca: &str| site.double.cluster_info(url, ca);
    let good = info(&url, &ca);
    let cluster = good.split("clusters:\n").nth(1).unwrap().split("contexts").next().unwrap();
    for (text, parts) in [
        (info(&url, theirs.pem()).as_str(), ["none of the CAs (sha256:", "copy the line again"]),
        (&info(&url, ""), ["no certificate-authority-data", ""]),
        (&info(&url.replace("https", "http"), &ca), ["not usable", "not https"]),
        (&good.replace(cluster, &format!("{cluster}{cluster}")), ["not usable", "twice"]),
        ("clusters: [", ["not usable", "line 2"]),
        ("{}", ["not usable", "no cluster"]),
        (&good.replace("https://", "ftp://"), ["not usable", "ftp"]),
        (&"[".repeat(1000), ["not usable", "recursion limit"]),
        // What it quotes is not taken for a remedy of ours.
        (&good.replace("https://", "https://x; run this#"), ["not usable", "is not a URL"]),
    ] {
        site.double.set_cluster_info(Some(text));
        site.refused("ca", &parts);
    }
    // The first look sees the true one, the second another that is signed as well.
    let other = info("https://127.0.0.1:1", &ca);
    let jws = site.double.signature(&other, &BootstrapToken::new(TOKEN));
    site.double.set_cluster_info(Some(&good));
    let forged = json!({"kubeconfig": other, "jws-kubeconfig-lwxivu": jws});
    site.double.forge_cluster_info(&[json!({}), forged]);
    site.refused("tls", &["has another cluster-info", "somebody may be between"]);
    // A CA beside the pinned one, which is public. kubeadm sends the bearer token to a server with
    // that CA (recorded in kubeadm-words.json).
    site.double.set_cluster_info(Some(&info(&url, &format!("{}{ca}", theirs.pem()))));
    site.double.swap_certificate(&theirs.server(NAMES, Validity::VALID));
    site.refused("tls", &["certificate", "somebody may be between"]);
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
