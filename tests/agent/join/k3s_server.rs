//! A board of k3s, from its token to a certificate that expired. With a real server where
//! `K3S_SERVER` names one, else on the double.

use std::fs;
use std::time::Duration;

use apidouble::{Authority, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::{Folder, eventually};

use super::{agent, agent_flags, files, run};
use crate::common::api::is_ready;
use crate::common::cluster::k3s::K3s;
use crate::common::command::{command, end};

const MINUTE: Duration = Duration::from_secs(60);
const NAME: &str = "k3s-pi";
const RENEWED: &str = "certificate: a new certificate is in use";

#[test]
fn a_board_renews_keeps_its_name_and_is_joined_again_after_its_certificate_expired() {
    let k3s = K3s::start();
    let cluster = &k3s.cluster;
    let (root, other) = (Folder::new("k3s"), Folder::new("k3s-other"));
    let token = format!("--token-file={}", k3s.token_file.display());
    let name = format!("--node-name={NAME}");
    let join = |root: &Folder, more: &[&str]| {
        let line = ["join", &k3s.url, &token, &name, "--timeout=60s"];
        run(root.path(), &[&line, more].concat())
    };
    join(&root, &[]).succeeded();
    let mut board = agent(root.path());
    eventually("Ready", MINUTE, || cluster.node(NAME).filter(is_ready));
    board.says_within(MINUTE, RENEWED);

    // The node password is the first board's, and again after k3s has deleted it with the Node.
    let is_taken = || {
        join(&other, &[]).failed_at(
            "certificate",
            &[
                "403 Forbidden: unable to verify password",
                "--node-name",
                "kubectl delete node NAME",
                "NAME.node-password.k3s NAME.node-password.rke2",
            ]
            .map(|part| part.replace("NAME", NAME))
            .each_ref()
            .map(String::as_str),
        );
        // The password stays: it may be the one that the server stored.
        assert_eq!(files(other.path()), ["etc/credstore/nodelet.k3s-password"]);
    };
    is_taken();
    assert_eq!(cluster.delete(&format!("/api/v1/nodes/{NAME}"), &Value::Null).0, 200);
    // A server deletes the Lease as well, which tells the agent.
    if let Some(double) = cluster.double() {
        double.tick_garbage();
    }
    eventually("a renewal for the new Node", MINUTE, || {
        let log = board.log();
        (log.iter().filter(|line| line.contains(RENEWED)).count() > 1).then_some(())
    });
    is_taken();

    // The board was off until its certificate had expired: it never has a Lease.
    board.stop(Signal::SIGTERM);
    let stranger = Authority::new("k3s-client-ca");
    let authority = cluster.double().map_or(&stranger, |double| double.authority());
    let user = format!("system:node:{NAME}");
    let expired = authority.client(&user, &["system:nodes"], Validity::EXPIRED);
    let (server, ca) = cluster.server();
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "k3s",
        "clusters": [{"name": "k3s", "cluster": {"server": server,
            "certificate-authority-data": STANDARD.encode(ca)}}],
        "users": [{"name": "k3s", "user": {
            "client-certificate-data": STANDARD.encode(&expired.cert_pem),
            "client-key-data": STANDARD.encode(&expired.key_pem)}}],
        "contexts": [{"name": "k3s", "context": {"cluster": "k3s", "user": "k3s"}}]});
    root.write("etc/credstore/nodelet.kubeconfig", kubeconfig.to_string());
    fs::remove_dir_all(root.path().join("var/lib/nodelet/pki")).unwrap();
    let text = end(command(["check"]).args(agent_flags(root.path()))).stdout;
    let line = format!(
        "– certificate-renewal: the supervisor {} answers an expired certificate with 401; join \
         again: nodelet join --force\n",
        k3s.url
    );
    assert!(text.contains(&line), "{text}");

    let before = cluster.renew_time(NAME);
    let board = agent(root.path());
    board.says_within(MINUTE, "still using it; nodelet join --force");
    board.says_within(MINUTE, "the supervisor answers 401 Unauthorized: not authorized");
    // While the agent runs.
    join(&root, &["--force"]).succeeded();
    board.says_within(MINUTE, RENEWED);
    eventually("a renewal of the Lease", MINUTE, || {
        cluster.renew_time(NAME).filter(|now| Some(now) > before.as_ref())
    });
}
