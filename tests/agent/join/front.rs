//! A certificate of another CA in front of the supervisor of k3s or rke2, which the system's root
//! certificates verify. The test plays them in a mount namespace: it needs root.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use apidouble::{Authority, Fault, Rule, Validity};
use nix::sys::signal::Signal;
use nodelet::credentials::kubeconfig;
use support::{eventually, skip};

use super::ready::{KUBECONFIG, SOON, TRIGGER, board};
use super::{Site, agent};
use crate::common::board::binary;

const MINUTE: Duration = Duration::from_secs(60);
const FLAGS: &str = "/etc/default/nodelet-join";
const PAIRS: &str = "/var/lib/nodelet/pki";
const NAMES: &[&str] = &["127.0.0.1"];
const RENEWED: &str = "certificate: a new certificate is in use";

/// The system's root certificates.
fn install(pem: &str) {
    fs::create_dir_all("/etc/ssl/certs").unwrap();
    fs::write("/etc/ssl/certs/ca-certificates.crt", pem).unwrap();
}

/// Makes the stored certificate one that arrived long ago, so that it is due at once.
fn age() {
    let current = Path::new(PAIRS).join("kubelet-client-current.pem");
    let old = Path::new(PAIRS).join("kubelet-client-2016-01-02-03-04-05.pem");
    fs::rename(Path::new(PAIRS).join(fs::read_link(&current).unwrap()), &old).unwrap();
    fs::remove_file(&current).unwrap();
    std::os::unix::fs::symlink(old.file_name().unwrap(), &current).unwrap();
}

/// k3s: the API server has the port of the supervisor, and so the same certificate. rke2: it has
/// another port, and a certificate of the cluster's CA.
#[test]
fn a_public_certificate_in_front_ends_with_a_ready_node_that_renews() {
    for is_rke2 in [false, true] {
        let _alone = match board() {
            Ok(alone) => alone,
            Err(why) => return skip::required(&why),
        };
        let site = Site::k3s();
        let public = Authority::new("public");
        install(public.pem());
        let server = public.server(NAMES, Validity::VALID);
        let url = if is_rke2 {
            format!("https://127.0.0.1:{}", site.double.front(&server))
        } else {
            site.double.swap_certificate(&server);
            site.double.url()
        };
        let token = site.k3s_token();
        let join = || {
            let mut command = Command::new(binary());
            command.args(["join", &url, "--token", &token, "--node-name=pi", "--timeout=30s"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        let first = join();
        eventually("the trigger of nodelet.path", SOON, || fs::metadata(TRIGGER).ok());
        let mut board = agent("/".as_ref());
        let text = String::from_utf8(first.wait_with_output().unwrap().stdout).unwrap();
        let note = format!("– tls: {url} was verified with the system's root certificates");
        assert!(text.contains(&note), "{text}");
        assert!(text.contains("✓ ready: pi   Ready   v1."), "{text}");

        let config = kubeconfig::parse(&fs::read_to_string(KUBECONFIG).unwrap(), &[]).unwrap();
        assert_eq!(config.endpoint.port, site.double.port());
        assert!(!config.insecure);
        let ca = config.ca.map(|ca| ca.bytes.clone());
        assert_eq!(ca, is_rke2.then(|| site.double.ca_pem().into_bytes()));
        let flags = fs::read_to_string(FLAGS).unwrap();
        let want = format!("--k3s-supervisor={url} --k3s-supervisor-system-roots ");
        assert!(flags.contains(&want), "{flags}");
        for (index, request) in site.double.requests().iter().enumerate() {
            let is_anonymous = request.header("authorization").is_none();
            assert!(index >= 2 || is_anonymous, "{request:?}");
        }

        board.says_within(MINUTE, RENEWED);
        board.stop(Signal::SIGTERM);
        age();
        site.double.clear_requests();
        let board = agent("/".as_ref());
        board.says_within(MINUTE, RENEWED);
        for request in site.double.requests() {
            assert_eq!(request.header("authorization"), None, "{request:?}");
        }
        // The same line again finds the same cluster.
        let again = join().wait_with_output().unwrap();
        let text = String::from_utf8(again.stdout).unwrap();
        assert!(again.status.success(), "{text}");
        assert!(text.contains("✓ joined: already"), "{text}");
    }
}

/// The connections are that of step `tcp`, the GET of `/cacerts` that is not verified, the one that
/// is verified with the CA of the token, and after an unknown issuer alone the one that is verified
/// with the system's roots.
#[test]
fn what_neither_the_token_nor_the_system_proves_gets_no_credential() {
    let _alone = match board() {
        Ok(alone) => alone,
        Err(why) => return skip::required(&why),
    };
    let (public, other) = (Authority::new("public"), Authority::new("other"));
    let refused = |site: &Site, connections: u64, parts: &[&str]| {
        let before = site.double.connections();
        let joined = site.join_by_url(&site.k3s_token(), &["--timeout=10s"]);
        joined.failed_at("tls", parts);
        assert!(!site.saw_credentials(), "a credential was sent: {joined:?}");
        assert_eq!(site.files(), [] as [String; 0]);
        let opened = site.double.connections() - before;
        assert_eq!(opened, connections, "{joined:?}");
    };
    let front = |names: &[&str], validity| {
        let site = Site::k3s();
        site.double.swap_certificate(&public.server(names, validity));
        site
    };
    let remedy = "install that CA (ca-certificates), or give it and the cluster's CA in one file by --certificate-authority";
    refused(&front(NAMES, Validity::VALID), 3, &["this system has no root certificates", remedy]);
    install(other.pem());
    refused(
        &front(NAMES, Validity::VALID),
        4,
        &["no proved and no installed CA has signed the certificate", remedy],
    );
    install(public.pem());
    refused(
        &front(&["example.com"], Validity::VALID),
        4,
        &["is for other names: ", "example.com", "somebody is in between"],
    );
    refused(&front(NAMES, Validity::EXPIRED), 3, &["certificate of 127.0.0.1 expired at"]);
    // The second answer is another one.
    let lies = front(NAMES, Validity::VALID);
    let rule = Rule::new(Fault::Garbage).path("/cacerts").skip(1);
    lies.double.faults().push(rule);
    refused(&lies, 4, &["the verified server has another /cacerts"]);
    // Without a front: what fails for another reason is not asked again with the system's roots.
    let own = Site::k3s();
    let names: &[&str] = &["example.com"];
    own.double.swap_validity(Validity::VALID, Some(names));
    refused(&own, 3, &["is for other names: ", "example.com"]);
}
