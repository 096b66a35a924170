//! Credentials of the agent: where they are stored, how the server is reached, and what happens
//! when they are replaced.

use std::path::Path;
use std::time::Duration;

use apidouble::{Authority, Double, Validity};

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::command::nodelet;
use crate::common::lease::{await_renewals, renew_time};
use crate::common::proxy::Proxy;
use support::{Folder, eventually};

const SOON: Duration = Duration::from_secs(20);

/// A kubeconfig with these members of `cluster` and `user`.
fn kubeconfig(cluster: &str, user: &str) -> String {
    format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    )
}

fn start(kubeconfig: impl AsRef<Path>, env: &[(&str, &str)]) -> Board {
    Board::fast_with(kubeconfig, "pi", &["--v=4"], env)
}

fn becomes_ready(double: &Double) {
    eventually("Ready", SOON, || double.get("nodes/pi").filter(is_ready));
}

fn renewals(double: &Double, count: usize) {
    await_renewals(count, SOON, || renew_time(double, "pi"));
}

/// The kubeconfig, the CA and the token are all in `$CREDENTIALS_DIRECTORY`.
#[test]
fn kubeconfig_ca_and_token_may_be_systemd_credentials() {
    let double = Double::start();
    double.add_token("t0ken", "system:node:pi", &["system:nodes"]);
    let folder = Folder::new("credentials-directory");
    folder.write("ca", double.ca_pem());
    folder.write("token", "t0ken\n");
    let server = format!("server: '{}', certificate-authority: ca", double.url());
    folder.write("kubeconfig", kubeconfig(&server, "tokenFile: token"));
    let directory = folder.path().to_str().unwrap();
    let board = start("kubeconfig", &[("CREDENTIALS_DIRECTORY", directory)]);
    becomes_ready(&double);
    assert!(!board.log().join("\n").contains("t0ken"), "{:?}", board.log());

    // Without the variable the name is relative to the working directory.
    let other = start("kubeconfig", &[]);
    other.says("nodelet: kubeconfig: no such file or directory");
}

#[test]
fn a_board_behind_a_proxy_becomes_ready() {
    let double = Double::start();
    let identity = double.node_identity("pi", Validity::VALID);
    let folder = Folder::new("proxy");
    folder.write("ca", double.ca_pem());
    folder.write("pair", format!("{}{}", identity.cert_pem, identity.key_pem));
    // me:hunter2
    let proxy = Proxy::start("Proxy-Authorization: Basic bWU6aHVudGVyMg==\r\n");
    let cluster = format!(
        "server: 'https://localhost:{}', certificate-authority: ca, \
         proxy-url: 'http://me:hunter2@127.0.0.1:{}'",
        double.port(),
        proxy.port
    );
    let user = "client-certificate: pair, client-key: pair";
    let path = folder.write("kubeconfig", kubeconfig(&cluster, user));
    // A proxy of the environment is not used; the log says so if the kubeconfig has none.
    let nowhere = ("HTTPS_PROXY", "http://127.0.0.1:1");
    let mut board = start(&path, &[nowhere]);
    becomes_ready(&double);
    renewals(&double, 3);
    assert_eq!(proxy.heard().len(), 1, "{:?}", proxy.heard());
    assert_eq!(double.connections(), 1);
    assert!(double.requests().iter().all(|r| r.header("proxy-authorization").is_none()));
    let log = board.log().join("\n");
    assert!(!log.contains("hunter2") && !log.contains("HTTPS_PROXY"), "{log}");
    board.stop(nix::sys::signal::Signal::SIGTERM);

    let direct = folder.write("direct", double.kubeconfig_for_node("pi"));
    let board = start(&direct, &[nowhere]);
    board.says("HTTPS_PROXY is not used; set proxy-url in the kubeconfig");
    renewals(&double, 2);
}

/// microk8s signs client certificates without extensions, and so does OpenSSL by default. Some
/// tools write PKCS#8 under the label of PKCS#1.
#[test]
fn a_board_with_a_certificate_of_version_1_becomes_ready() {
    let double = Double::start();
    let identity = double.node_identity("pi", Validity::VALID);
    let identity = double.authority().version_1(&identity);
    let folder = Folder::new("version-1");
    folder.write("ca", double.ca_pem());
    folder.write("crt", &identity.cert_pem);
    folder.write("key", identity.key_pem.replace(" PRIVATE KEY", " RSA PRIVATE KEY"));
    let cluster = format!("server: '{}', certificate-authority: ca", double.url());
    let user = "client-certificate: crt, client-key: key";
    let path = folder.write("kubeconfig", kubeconfig(&cluster, user));
    let board = start(&path, &[]);
    becomes_ready(&double);
    renewals(&double, 2);
    assert_eq!(board.warnings(), [] as [&str; 0]);
    // And in nodelet check.
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let lines = nodelet(["check", &kubeconfig, "--hostname-override=pi"]).stdout;
    for ok in ["✓ certificate: CN=system:node:pi, ", "✓ authentication"] {
        assert!(lines.contains(ok), "{lines}");
    }
}

#[test]
fn insecure_skip_tls_verify_is_a_warning_in_the_log() {
    let double = Double::start();
    let stranger = Authority::new("stranger").server(&["elsewhere"], Validity::EXPIRED);
    double.swap_certificate(&stranger);
    double.add_token("t0ken", "system:node:pi", &["system:nodes"]);
    let folder = Folder::new("insecure");
    let cluster = format!("server: '{}', insecure-skip-tls-verify: true", double.url());
    let path = folder.write("kubeconfig", kubeconfig(&cluster, "token: t0ken"));
    let board = start(&path, &[]);
    becomes_ready(&double);
    let (path, url) = (path.display(), double.url());
    let want = format!(
        "nodelet: warning: {path}: insecure-skip-tls-verify: any server at {url} is trusted and gets \
         our credentials; give the cluster's CA in certificate-authority"
    );
    assert_eq!(board.log()[0], want);
}
