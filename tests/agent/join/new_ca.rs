//! A cluster that replaces its CA, as "How a fleet gets a new CA" in systemd/cluster/README.md
//! says, with three boards: one that joined, one with a file for the CA, and one with a bootstrap
//! token.
//!
//! Certificates are valid for 20 s and backdated by 20 s, so their renewal is due after 8 to 16 s.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apidouble::{Authority, BootstrapToken, Double, Validity};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nodelet::credentials::kubeconfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::{Joined, Site, TOKEN, start};
use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::command::{command, end};
use support::{Folder, eventually};

/// A renewal of the Lease every 2 s.
const FAST: [&str; 2] = ["--node-lease-duration-seconds=8", "--node-status-update-frequency=1s"];
const GRACE: Duration = Duration::from_secs(8);
const LIFE: i64 = 20;
const MINUTE: Duration = Duration::from_secs(60);
/// The subject of the new CA. That of the old one is `kubernetes-ca`.
const NEW: &str = "the-new-ca";

/// A board, its flags and its process.
struct Member {
    name: &'static str,
    flags: Vec<String>,
    board: Option<Board>,
}

impl Member {
    fn new(name: &'static str, folder: &Path, more: &[String]) -> Self {
        let root_dir = format!("--root-dir={}", folder.display());
        let name_flag = format!("--hostname-override={name}");
        let mut flags = vec![root_dir, name_flag, "--rotate-certificates".to_owned()];
        flags.extend(FAST.iter().map(|flag| (*flag).to_owned()));
        flags.extend_from_slice(more);
        Self { name, flags, board: None }
    }

    fn start(&mut self) {
        self.board = None;
        self.board = Some(start(&self.flags));
    }

    /// The line `ca` of `nodelet check`.
    fn ca(&self) -> String {
        let text = end(command(["check"]).args(&self.flags)).stdout;
        let line = text.lines().find(|line| line[3..].starts_with(" ca: "));
        line.unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    /// Whether this CA signed the certificate in use.
    fn is_of(&self, subject: &str) -> bool {
        let folder = self.flags[0].strip_prefix("--root-dir=").unwrap();
        let path = Path::new(folder).join("pki/kubelet-client-current.pem");
        let pem = fs::read(path).unwrap_or_default();
        let leaf = CertificateDer::pem_slice_iter(&pem).next();
        leaf.is_some_and(|leaf| String::from_utf8_lossy(&leaf.unwrap()).contains(subject))
    }
}

struct Fleet {
    site: Site,
    folder: Folder,
    new: Arc<Authority>,
    boards: [Member; 3],
}

impl Fleet {
    fn start() -> Self {
        let double = Double::builder().kubeadm().lifecycle(GRACE);
        let double = double.signing_seconds(LIFE).backdate_seconds(LIFE).start();
        double.add_bootstrap_token(BootstrapToken::new(TOKEN));
        let (site, folder) = (Site::new(double), Folder::new("new-ca"));
        site.join(&FAST).succeeded();

        let ca = folder.write("ca.crt", site.double.ca_pem());
        let identity = site.double.node_identity("barn", Validity::VALID);
        let inline = "certificate-authority-data: ";
        let with_file =
            site.double.kubeconfig_for(&identity).lines().fold(String::new(), |text, line| {
                match line.trim_start().strip_prefix(inline) {
                    Some(_) => format!("{text}    certificate-authority: {}\n", ca.display()),
                    None => format!("{text}{line}\n"),
                }
            });
        let with_file = folder.write("kubeconfig", with_file);
        let bootstrap = folder.write("bootstrap", site.double.kubeconfig_token(TOKEN));
        let issued = folder.path().join("issued");

        let kubeconfig = |path: &Path| format!("--kubeconfig={}", path.display());
        let joined = site.path("etc/credstore/nodelet.kubeconfig");
        let bootstrap = format!("--bootstrap-kubeconfig={}", bootstrap.display());
        let boards = [
            Member::new("pi", &site.path("var/lib/nodelet"), &[kubeconfig(&joined)]),
            Member::new("barn", &folder.path().join("barn"), &[kubeconfig(&with_file)]),
            Member::new("field", &folder.path().join("field"), &[kubeconfig(&issued), bootstrap]),
        ];
        let mut fleet = Self { site, folder, new: Arc::new(Authority::new(NEW)), boards };
        for member in &mut fleet.boards {
            member.start();
        }
        fleet.eventually("Ready", |fleet, member| {
            let node = fleet.site.double.get(&format!("nodes/{}", member.name));
            node.is_some_and(|node| is_ready(&node)) && member.is_of("kubernetes-ca")
        });
        fleet
    }

    fn eventually(&self, what: &str, is_so: impl Fn(&Self, &Member) -> bool) {
        for member in &self.boards {
            let what = format!("{what}: {}", member.name);
            eventually(&what, MINUTE, || is_so(self, member).then_some(()));
        }
    }

    fn cas(&self) -> [String; 3] {
        self.boards.each_ref().map(Member::ca)
    }

    /// Writes this CA into cluster-info.
    fn publish(&self, ca: &str) {
        let info = self.site.double.cluster_info(&self.site.double.url(), ca);
        self.site.double.set_cluster_info(Some(&info));
    }

    /// The line of kubeadm with these hashes on the board that joined.
    fn join(&mut self, hashes: &[String], more: &[&str]) -> Joined {
        let hashes = hashes.join(",");
        let line = ["join", &self.site.double.url(), "--token", TOKEN, "--node-name=pi"];
        let pins = ["--discovery-token-ca-cert-hash", &hashes];
        let joined = self.site.run(&[&line, &pins[..], &FAST, more].concat()).succeeded();
        // In the place of systemd.
        self.boards[0].start();
        joined
    }

    /// Replaces the CA of the two other boards.
    fn hand_out(&mut self, ca: &str) {
        self.folder.write("ca.crt", ca);
        let bootstrap = self.site.double.kubeconfig_token(TOKEN);
        let old = STANDARD.encode(self.site.double.ca_pem());
        assert!(bootstrap.contains(&old));
        self.folder.write("bootstrap", bootstrap.replace(&old, &STANDARD.encode(ca)));
        fs::remove_file(self.folder.path().join("issued")).unwrap();
        self.boards[2].start();
    }

    /// Waits for two renewals of each Lease from now on.
    fn are_alive(&self) {
        let renewals = |name: &str| {
            let lease = format!("/leases/{name}");
            let requests = self.site.double.requests();
            requests.iter().filter(|r| r.path.contains(&lease) && r.code == 200).count()
        };
        let before: Vec<usize> = self.boards.iter().map(|member| renewals(member.name)).collect();
        for (member, before) in self.boards.iter().zip(before) {
            eventually(member.name, MINUTE, || (renewals(member.name) >= before + 2).then_some(()));
        }
    }
}

#[test]
fn a_fleet_gets_a_new_ca_and_every_node_stays_ready() {
    let mut fleet = Fleet::start();
    let double = fleet.site.double.clone();
    let (old_pem, new) = (double.ca_pem(), fleet.new.clone());
    let both = format!("{old_pem}{}", new.pem());
    let pins = [double.authority().pin(), new.pin()];

    // 1. Everybody trusts both.
    assert!(fleet.cas().iter().all(|ca| ca.starts_with('✓')), "{:?}", fleet.cas());
    double.trust(&[double.authority(), &new]);
    fleet.publish(&both);
    let cas = fleet.cas();
    assert!(cas.iter().all(|ca| ca.starts_with("✗ ca: cluster-info has a CA (1)")), "{cas:?}");
    assert!(cas[1].contains("; add it to ") && cas[0].contains("; join again "), "{cas:?}");
    let joined = fleet.join(&pins, &[]);
    assert!(joined.line("joined").contains("already"), "{joined:?}");
    fleet.hand_out(&both);
    let cas = fleet.cas();
    assert!(cas.iter().all(|ca| ca.starts_with('✓')), "{cas:?}");

    // 2. The new one signs, and the server shows a certificate of it.
    double.succeed(&new);
    // 3. Each board renews its certificate by itself.
    fleet.eventually("a certificate of the new CA", |_, member| member.is_of(NEW));

    // 4. Nobody trusts the old one.
    fleet.publish(new.pem());
    double.trust(&[&new]);
    let dropped = double.requests().len();
    let joined = fleet.join(&pins[1..], &["--force"]);
    assert!(joined.line("joined").contains("replaced"), "{joined:?}");
    fleet.hand_out(new.pem());
    fleet.are_alive();
    let issued = fs::read_to_string(fleet.folder.path().join("issued")).unwrap();
    for text in [fleet.site.kubeconfig(), issued] {
        let ca = kubeconfig::parse(&text, &[]).unwrap().ca.unwrap();
        assert_eq!(ca.bytes, new.pem().as_bytes());
    }
    assert!(fleet.boards.iter().all(|member| member.is_of(NEW)));
    let cas = fleet.cas();
    assert!(cas.iter().all(|ca| ca.starts_with('✓')), "{cas:?}");

    assert!(!double.ever_left_ready(), "{:?}", double.left_ready());
    let requests = &double.requests()[dropped..];
    let refused: Vec<&str> =
        requests.iter().filter(|r| r.code == 401).map(|r| r.path.as_str()).collect();
    assert_eq!(refused, [] as [&str; 0]);
}
