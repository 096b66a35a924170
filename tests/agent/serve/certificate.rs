//! The serving certificate that the cluster signs, and credentials that others replace.

use std::time::Duration;

use apidouble::{Authority, Credentials, Double, Identity, Validity};
use nodelet::kube::x509::{AltName, Leaf, Subject};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use support::{Folder, eventually, skip};

use super::{Client, Served, flags};
use crate::common::api::admin;
use crate::common::namespace;

const LIMIT: Duration = Duration::from_secs(40);

/// The certificate that a client gets.
fn shown(served: &Served) -> Leaf {
    let mut client = Client::connect(served.port, None);
    client.shake_hands().unwrap();
    let chain = client.0.get_ref().conn.peer_certificates().unwrap();
    Leaf::parse(chain.first().map(CertificateDer::as_ref).unwrap()).unwrap()
}

/// A Node with addresses, as the agent writes it.
fn add_node(double: &Double) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "pi"}});
    admin(double, "POST", "/api/v1/nodes", &node);
    let status = json!({"status": {"addresses": [
        {"type": "InternalIP", "address": "192.0.2.7"}, {"type": "Hostname", "address": "pi"}]}});
    admin(double, "PATCH", "/api/v1/nodes/pi/status", &status);
}

fn names() -> [AltName; 2] {
    [AltName::Dns("pi".into()), AltName::Ip("192.0.2.7".parse().unwrap())]
}

/// A store that cannot be repaired does not close the port.
#[test]
fn a_certificate_is_requested_approved_used_and_found_again() {
    let double = Double::builder().approve_csrs().start();
    let folder = Folder::new("serve-csr");
    add_node(&double);
    let mut flags = flags(&double, &folder);
    flags.push("--rotate-server-certificates".to_owned());
    let served = Served::start(&flags);
    // Until then.
    let alt_names = names()[..1].to_vec();
    let self_signed = Subject { common_name: "pi".into(), alt_names, ..Subject::default() };
    assert_eq!(shown(&served).subject, self_signed);
    let csr = eventually("a CSR", LIMIT, || double.list("csrs").pop());
    drop(served);
    // The next process finds the same one, approved meanwhile.
    double.judge_csr(csr["metadata"]["name"].as_str().unwrap(), "Approved");
    let served = Served::start(&flags);
    served.board.says_within(LIMIT, "serving certificate: issued by the cluster");
    let issued = shown(&served);
    assert_eq!(issued.subject.alt_names, names());
    assert_eq!(issued.subject.common_name, "system:node:pi");
    assert_eq!(double.list("csrs").len(), 1);
    drop(served);
    // It is used from the first connection on.
    assert_eq!(shown(&Served::start(&flags)), issued);

    if let Err(why) = namespace::mounts() {
        return skip::required(&why);
    }
    // A card that has worn out between the two steps of a renewal.
    let pki = folder.path().join("pki");
    std::fs::remove_file(pki.join("kubelet-server-current.pem")).unwrap();
    let worn = namespace::read_only(&pki);
    let served = Served::start(&flags);
    served.board.says_within(LIMIT, "read-only file system");
    assert_eq!(shown(&served).subject, self_signed);
    drop((served, worn));
    assert_eq!(shown(&Served::start(&flags)), issued);
}

#[test]
fn a_supervisor_signs_without_an_approval() {
    let double = Double::start();
    let folder = Folder::new("serve-k3s");
    add_node(&double);
    double.set_supervisor(|_| {});
    folder.write("k3s-password", "secret");
    let mut flags = flags(&double, &folder);
    flags.push(format!("--k3s-supervisor={}", double.url()));
    flags.push("--rotate-certificates".to_owned());
    let served = Served::start(&flags);
    served.board.says_within(LIMIT, "serving certificate: issued by the cluster");
    let issued = shown(&served);
    assert_eq!(issued.subject.common_name, "pi");
    for name in names() {
        assert!(issued.subject.alt_names.contains(&name), "{issued:?}");
    }
}

/// The kubeconfig `pi` of an identity, for a server whose certificate another CA has signed: a
/// company's, or that of k3s for servers.
fn behind(double: &Double, servers: &Authority, own: &Identity) -> String {
    let port = double.front(&servers.server(&["127.0.0.1"], Validity::VALID));
    let url = format!("https://127.0.0.1:{port}");
    apidouble::kubeconfig(&url, servers.pem(), &Credentials::Certificate(own))
}

/// A client of each CA that may do everything.
fn admins(authorities: [&Authority; 2]) -> [Identity; 2] {
    authorities.map(|ca| ca.client("admin", &["system:masters"], Validity::VALID))
}

/// Whoever gets a certificate of the server's CA, with a subject of their choice, would be anybody.
#[test]
fn the_ca_of_the_server_counts_for_no_client_unless_it_signed_the_boards_certificate() {
    let double = Double::builder()
        .token("t0ken", "admin", &["system:masters"])
        .token("board", "system:node:pi", &["system:nodes"])
        .start();
    let folder = Folder::new("serve-company-ca");
    let company = Authority::new("company");
    let own = double.node_identity("pi", Validity::VALID);
    let with_certificate = behind(&double, &company, &own);
    // As k3s sends it, which has one CA for clients and another one for servers.
    let mut with_its_ca = own.clone();
    with_its_ca.cert_pem += double.authority().pem();
    let with_its_ca = behind(&double, &company, &with_its_ca);
    let ca = folder.write("client-ca", double.ca_pem());
    let given = format!("--client-ca-file={}", ca.display());
    folder.write("k3s-password", "secret");
    let supervisor = format!("--k3s-supervisor={}", double.url());
    let clients = admins([double.authority(), &company]);
    for (kubeconfig, more, codes) in [
        (double.kubeconfig_for(&own), &[][..], [200, 401]),
        (with_certificate.clone(), &[], [401, 401]),
        (with_certificate, &[&*given], [200, 401]),
        (double.kubeconfig_token("board"), &[], [401, 401]),
        (double.kubeconfig_token("board"), &[&*given], [200, 401]),
        (with_its_ca.clone(), &[], [200, 401]),
        (with_its_ca, &[&*supervisor, "--rotate-certificates"], [200, 401]),
    ] {
        let mut flags = flags(&double, &folder);
        folder.write("kubeconfig", kubeconfig);
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        let served = Served::start(&flags);
        for (client, code) in clients.iter().zip(codes) {
            let reply = served.ask(Some(client), "/metrics", &[]);
            assert_eq!(reply.code, code, "{more:?}, {codes:?}: {reply:?}");
            let token = ["Authorization: Bearer t0ken"];
            assert_eq!(served.ask(Some(client), "/metrics", &token).code, 200);
        }
        let log = served.board.log();
        let lines: Vec<&String> = log.iter().filter(|line| line.contains("not accepted")).collect();
        assert_eq!(lines.len(), usize::from(codes == [401, 401]), "{log:?}");
        assert!(lines.iter().all(|line| line.contains("--client-ca-file")), "{log:?}");
    }
}

/// While the CA of a cluster is replaced, the kubeconfig has both. Without any review before, which
/// would read the credentials again.
#[test]
fn the_ca_of_clients_follows_the_signer_of_the_boards_certificate_a_minute_later() {
    let double = Double::start();
    let folder = Folder::new("serve-new-ca");
    let flags = flags(&double, &folder);
    let new = Authority::new("new");
    double.trust(&[double.authority(), &new]);
    let ca = double.ca_pem() + new.pem();
    let kubeconfig = apidouble::kubeconfig(&double.url(), &ca, &Credentials::Token("t"));
    let pair = "client-certificate: crt\n    client-key: key";
    folder.write("kubeconfig", kubeconfig.replace("token: t", pair));
    let replace_pair = |own: &Identity| {
        for (name, pem) in [("crt", &own.cert_pem), ("key", &own.key_pem)] {
            let new = folder.write("new", pem);
            std::fs::rename(new, folder.path().join(name)).unwrap();
        }
    };
    replace_pair(&double.node_identity("pi", Validity::VALID));
    let clients = admins([double.authority(), &new]);
    let served = Served::start(&flags);
    let codes = || clients.each_ref().map(|client| served.ask(Some(client), "/metrics", &[]).code);
    assert_eq!(codes(), [200, 401]);
    replace_pair(&new.client("system:node:pi", &["system:nodes"], Validity::VALID));
    eventually("the new CA", 3 * LIMIT, || (codes() == [401, 200]).then_some(()));
}

/// The agent renews, or an operator: the next review finds it, before its answer is lost.
#[test]
fn a_credential_that_was_replaced_is_read_again_after_a_401() {
    let double = Double::builder()
        .token("scraper", "admin", &["system:masters"])
        .token("old", "system:node:pi", &["system:nodes"])
        .start();
    let folder = Folder::new("serve-credential");
    let token = folder.write("token", "old");
    let kubeconfig = double.kubeconfig_token("old").replace("token: old", "tokenFile: token");
    assert!(kubeconfig.contains("tokenFile: "), "{kubeconfig}");
    let flags = flags(&double, &folder);
    folder.write("kubeconfig", kubeconfig);
    let served = Served::start(&flags);
    assert_eq!(served.ask_with("scraper", "/metrics").code, 200);
    double.add_token("new", "system:node:pi", &["system:nodes"]);
    double.revoke_token("old");
    std::fs::write(token, "new").unwrap();
    // What may be asked for this path is not known yet.
    assert_eq!(served.ask_with("scraper", "/pods").code, 200);
    let codes: Vec<u16> = double.requests().iter().map(|request| request.code).collect();
    assert!(codes.contains(&401), "{codes:?}");
}
