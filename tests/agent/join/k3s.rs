//! The way of k3s and rke2, against the double of their supervisor.

use apidouble::{Authority, Double, Fault, Phase, Rule, Validity};
use serde_json::{Value, json};

use super::{Joined, Site, TOKEN, add_ready_node, agent, agent_flags, mode};
use crate::common::command::{command, end};
use nodelet::credentials::kubeconfig;
use nodelet::kube::x509::Leaf;

const KUBECONFIG: &str = "etc/credstore/nodelet.kubeconfig";
const PASSWORD: &str = "etc/credstore/nodelet.k3s-password";
const FLAGS: &str = "etc/default/nodelet-join";

fn site() -> Site {
    let site = Site::k3s();
    site.double.set_supervisor(|k3s| k3s.tokens.push(TOKEN.to_owned()));
    site
}

fn join(site: &Site, token: &str, more: &[&str]) -> Joined {
    let joined = site.join_by_url(token, &[&["--timeout=10s"], more].concat());
    for secret in ["pa55", "a secret of the cluster"] {
        let text = format!("{} {}", joined.report.0, joined.stderr);
        assert!(!text.contains(secret), "{secret} is in the output: {text}");
    }
    for file in site.files() {
        assert!(!site.text(&file).contains("pa55"), "the token is in {file}");
    }
    joined
}

#[test]
fn a_token_of_the_server_ends_with_a_certificate_that_the_agent_runs_with() {
    let site = site();
    let joined = join(&site, &site.k3s_token(), &["--node-labels=a=b"]).succeeded();
    assert_eq!(site.files(), [PASSWORD, KUBECONFIG, FLAGS]);
    assert_eq!(mode(&site.path(PASSWORD)), 0o600);
    assert_eq!(mode(&site.path("etc/credstore")), 0o700);
    let config = kubeconfig::parse(&site.kubeconfig(), &[]).unwrap();
    assert_eq!(config.ca.unwrap().bytes, site.double.ca_pem().as_bytes());
    let leaf = Leaf::of_pem(&config.certificate.unwrap().chain.bytes).unwrap();
    assert_eq!(leaf.subject.common_name, "system:node:pi");
    let password = site.text(PASSWORD);
    let passwords = site.double.supervisor().unwrap().passwords;
    assert_eq!(passwords["pi"], password);
    assert_eq!(password.len(), 32);
    // Without a binding for renewals and without a person.
    let renewal = joined.line("renewal");
    assert!(renewal.contains("by itself, at the supervisor https://"), "{renewal}");
    let flags = format!("--rotate-certificates --k3s-supervisor={} ", site.double.url());
    assert!(site.text(FLAGS).contains(&flags), "{}", site.text(FLAGS));
    // The CA is proved by two anonymous requests before the token is sent.
    let requests = site.double.requests();
    for (index, request) in requests.iter().enumerate() {
        let has_certificate = request.user == "system:node:pi";
        let is_anonymous = request.header("authorization").is_none() && !has_certificate;
        assert_eq!(is_anonymous, index < 2, "{request:?}");
        let has_password = request.header("k3s-node-password").is_some();
        assert_eq!(has_password, request.path.ends_with("client-kubelet.crt"));
    }
    agent(site.root.path()).says("node pi: registered");
    // The same line again, and with --force: the same password.
    let again = join(&site, &site.k3s_token(), &[]);
    assert!(again.line("joined").contains("already"), "{again:?}");
    join(&site, &site.k3s_token(), &["--force"]).succeeded();
    assert_eq!(site.text(PASSWORD), password);
}

/// Its first half, K10 and the hash, is lost. kubeadm's tokens have the same form, so the server
/// tells whose it is.
#[test]
fn a_token_of_k3s_token_create_without_its_hash_needs_the_ca() {
    for token in [TOKEN.to_owned(), format!("::{TOKEN}"), format!("K10::{TOKEN}")] {
        let site = site();
        let without = join(&site, &token, &[]);
        assert_eq!(without.code, 2, "{without:?}");
        assert!(without.stderr.contains("--certificate-authority FILE"), "{without:?}");
        let file = site.root.write("ca.crt", site.double.ca_pem());
        let authority = format!("--certificate-authority={}", file.display());
        let joined = join(&site, &token, &[&authority]).succeeded();
        assert!(joined.line("csr-create").contains("the supervisor signs"), "{joined:?}");
        let requests = site.double.requests();
        let config = requests.iter().find(|r| r.path == "/v1-k3s/config").unwrap();
        assert_eq!(config.header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        let flag = format!("--k3s-supervisor={} ", site.double.url());
        assert!(site.text(FLAGS).contains(&flag), "{}", site.text(FLAGS));
        assert!(join(&site, &token, &[&authority]).line("joined").contains("already"));
        let image = join(&site, &token, &[&authority, "--force", "--bootstrap-only"]);
        if token == TOKEN {
            image.failed_at("token", &["a supervisor of k3s", "use --node-name"]);
        } else {
            assert_eq!(image.code, 2, "{image:?}");
        }
    }
}

#[test]
fn a_server_of_another_ca_gets_no_token() {
    let site = site();
    let good = site.k3s_token();
    let other = Authority::new("somebody-else");
    // Another CA, and the right text with a certificate of another CA.
    site.double.set_supervisor(|k3s| k3s.cacerts = other.pem().to_owned());
    join(&site, &good, &[]).failed_at("ca", &["the hash of /cacerts is", "the token says", "copy"]);
    site.double.set_supervisor(|k3s| k3s.cacerts = site.double.ca_pem());
    site.double.swap_certificate(&other.server(&["127.0.0.1"], Validity::VALID));
    join(&site, &good, &[]).failed_at("tls", &["certificate"]);
    assert!(!site.saw_credentials());
    assert_eq!(site.files(), [] as [String; 0]);
}

#[test]
fn each_refusal_of_the_supervisor_has_its_remedy() {
    let site = site();
    let hash = Double::sha256(site.double.ca_pem().as_bytes());
    join(&site, &format!("K10{hash}::server:other"), &[])
        .failed_at("token", &["401", "agent-token", "k3s token create"]);
    let forbidden = Rule::new(Fault::Status { code: 403, retry_after: None });
    site.double.faults().push(forbidden.path("/v1-k3s/config"));
    join(&site, &site.k3s_token(), &[])
        .failed_at("token", &["403", "does a proxy in between drop"]);
    // A kube-apiserver that is no supervisor.
    let kubeadm = Site::kubeadm();
    let joined = join(&kubeadm, &kubeadm.k3s_token(), &[]);
    joined.failed_at("ca", &["no supervisor", "403", "9345"]);
    assert!(!kubeadm.saw_credentials());
}

#[test]
fn a_server_that_starts_is_waited_for_and_a_dry_run_stores_no_password() {
    let site = site();
    let starts = |phase, port| {
        site.double.set_supervisor(|k3s| (k3s.start, k3s.https_port) = (vec![phase], port));
    };
    // The API server of rke2 has a port of its own.
    starts(Phase::Starting, 1);
    let joined = join(&site, &site.k3s_token(), &["--dry-run", "--timeout=20s"]).succeeded();
    assert_eq!(joined.report["server"], "https://127.0.0.1:1");
    assert!(joined.stderr.contains("503 ServiceUnavailable: starting"), "{joined:?}");
    assert_eq!(site.files(), [] as [String; 0]);
    assert_eq!(site.double.list("csrs"), [] as [Value; 0]);
    assert!(site.double.supervisor().unwrap().passwords.is_empty());
    let server = site.double.authority().server(&["127.0.0.1"], Validity::VALID);
    let port = site.double.front(&server);
    starts(Phase::WithoutCore, port);
    let joined = join(&site, &site.k3s_token(), &["--timeout=20s"]).succeeded();
    assert!(joined.stderr.contains("503 ServiceUnavailable: runtime core not ready"), "{joined:?}");
    assert_eq!(kubeconfig::parse(&site.kubeconfig(), &[]).unwrap().endpoint.port, port);
    let flag = format!("--k3s-supervisor={} ", site.double.url());
    assert!(site.text(FLAGS).contains(&flag), "{}", site.text(FLAGS));
}

/// Its Node stays Ready for a while.
#[test]
fn the_password_of_a_former_k3s_agent_is_taken_over_and_reset_keeps_it() {
    let site = site();
    add_ready_node(&site.double, "linux", json!({"kubeletVersion": "v1.34.1+k3s1"}));
    site.root.write("etc/rancher/node/password", "0123456789abcdef0123456789abcdef\n");
    // An empty one of nodelet is no password.
    site.root.write(PASSWORD, "");
    join(&site, &site.k3s_token(), &[]).failed_at("namesake", &["Node pi is Ready, by a kubelet"]);
    assert!(!site.path(KUBECONFIG).exists());
    join(&site, &site.k3s_token(), &["--force"]).succeeded();
    assert_eq!(site.text(PASSWORD), "0123456789abcdef0123456789abcdef");
    site.run(&["reset"]).succeeded();
    assert_eq!(site.files(), [PASSWORD, "etc/rancher/node/password"]);
    site.run(&["reset", "--force"]).succeeded();
    assert_eq!(site.files(), ["etc/rancher/node/password"]);
}

#[test]
fn the_check_says_how_and_when_the_certificate_is_renewed() {
    let site = site();
    join(&site, &site.k3s_token(), &[]).succeeded();
    site.double.clear_requests();
    // The exit code is about this machine, too.
    let check = || end(command(["check"]).args(agent_flags(site.root.path()))).stdout;
    let text = check();
    let at_once = format!("at once, at the supervisor {}\n", site.double.url());
    for line in [
        &format!("✓ certificate-renewal: {at_once}"),
        "– csr-create: the supervisor signs\n",
        "– csr-get: the supervisor signs\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let requests = site.double.requests();
    assert!(requests.iter().all(|request| !request.path.ends_with(".crt")), "{requests:?}");
    std::fs::remove_file(site.path(PASSWORD)).unwrap();
    let text = check();
    assert!(text.contains("k3s-password: no such file or directory; restore"), "{text}");
}
