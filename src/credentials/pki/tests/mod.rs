#![allow(clippy::disallowed_methods)]

mod clusters;
mod crash;
pub(crate) mod serving;
mod upstream;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{
    CertificateParams, DnType, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData,
    SignatureAlgorithm, date_time_ymd,
};

use super::*;
use crate::client::tls;
use crate::kube::x509::{CertificatePurpose, SigningRequest, Subject};
use crate::node::kubelet::tests::lines::{collect_lines, take_lines};
use crate::os::mounts::pretend_mount;
use crate::os::tree::Tree;

/// A folder that is removed with the test.
struct Folder(Tree);

impl Folder {
    fn new() -> Self {
        Self(Tree::empty("pki"))
    }

    fn paths(&self, bootstrap: bool, rotate: bool) -> IdentitySource {
        IdentitySource {
            kubeconfig: self.0.join("etc/kubelet.conf"),
            bootstrap: bootstrap.then(|| self.0.join("bootstrap.conf")),
            cert_dir: self.0.join("lib/pki"),
            credentials: None,
            subject: subject(),
            kind: match (bootstrap, rotate) {
                (true, true) => Some(CertificateKind::RotatedOrBootstrapped),
                (true, false) => Some(CertificateKind::Bootstrapped),
                (false, true) => Some(CertificateKind::Rotated),
                (false, false) => None,
            },
            supervisor: None,
        }
    }

    fn write(&self, name: &str, text: &str) {
        self.0.write(name, text.as_bytes());
    }

    /// The names of the files in the store.
    fn stored(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.0.join("lib/pki"))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// The certificate signer of a cluster.
pub(crate) struct Signer {
    pub(crate) issuer: Issuer<'static, KeyPair>,
    pub(crate) ca: String,
}

struct RequestKey(Vec<u8>);

impl PublicKeyData for RequestKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Signer {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // Before the wrong clocks of the simulations.
        params.not_after = date_time_ymd(2044, 1, 1);
        let ca = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), ca }
    }

    fn params(common_name: &str, day: u8, days: u64) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, "system:nodes");
        name.push(DnType::CommonName, common_name);
        params.not_before = date_time_ymd(2026, 5, day);
        params.not_after = params.not_before + Duration::from_secs(days * 86_400);
        params
    }

    /// The certificate for a request, valid for `days` from that day of May 2026.
    pub(in crate::credentials) fn sign(
        &self,
        request: &SigningRequest,
        day: u8,
        days: u64,
    ) -> String {
        let params = Self::params(&request.info.subject.common_name, day, days);
        self.signed(params, &request.info.public_key)
    }

    /// The certificate for this name and key, valid from and until so long after 1970.
    pub(crate) fn chain(&self, name: &str, key: &[u8], from: Duration, until: Duration) -> String {
        let mut params = Self::params(name, 1, 1);
        params.not_before = date_time_ymd(1970, 1, 1) + from;
        params.not_after = date_time_ymd(1970, 1, 1) + until;
        self.signed(params, key)
    }

    fn signed(&self, params: CertificateParams, public_key: &[u8]) -> String {
        // The point follows the 26 bytes of the header of a P-256 SubjectPublicKeyInfo.
        let key = RequestKey(public_key[26..].to_vec());
        params.signed_by(&key, &self.issuer).unwrap().pem()
    }

    /// Certificate and key in base64, as kubeadm embeds them in a kubeconfig.
    fn embedded(&self, name: &str, day: u8, days: u64) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let chain = Self::params(name, day, days).signed_by(&key, &self.issuer).unwrap();
        [chain.pem(), key.serialize_pem()].map(|pem| Pem(&pem).to_string())
    }

    /// The user of a kubeconfig with a certificate of this name.
    pub(in crate::credentials) fn pair_of(&self, name: &str, day: u8, days: u64) -> String {
        let [cert, key] = self.embedded(name, day, days);
        pair(&cert, &key)
    }

    /// A kubeconfig with such a pair.
    fn kubeconfig_with_pair(&self, day: u8, days: u64) -> String {
        self.kubeconfig(&self.pair_of("system:node:pi-3", day, days))
    }

    pub(in crate::credentials) fn kubeconfig(&self, user: &str) -> String {
        let ca = Pem(&self.ca);
        format!(
            "kind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
             clusters:\n- name: k\n  cluster:\n    server: https://10.0.0.1:6443/prefix\n    \
             tls-server-name: api\n    certificate-authority-data: {ca}\n\
             users:\n- name: u\n  user: {{{user}}}\n"
        )
    }
}

pub(in crate::credentials) struct Pem<'a>(pub(in crate::credentials) &'a str);

impl std::fmt::Display for Pem<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use base64::Engine as _;
        f.write_str(&base64::engine::general_purpose::STANDARD.encode(self.0))
    }
}

/// The user of a kubeconfig with an embedded pair.
fn pair(cert: &str, key: &str) -> String {
    format!("client-certificate-data: {cert}, client-key-data: {key}")
}

/// The link to the pair in use.
const CURRENT: &str = "kubelet-client-current.pem";

const TOKEN: &str = "token: abcdef.0123456789abcdef";

fn subject() -> Subject {
    Subject::of_node("pi-3")
}

/// `day` days after 2026-05-01.
pub(in crate::credentials) fn day(day: u64) -> Wall {
    let start = Wall::parse("2026-05-01T00:00:00Z").unwrap();
    start.after(Duration::from_secs(day * 86_400))
}

fn open(paths: &IdentitySource, now: Wall) -> (Pki, Start) {
    Pki::open(Disk::default(), paths.clone(), now).unwrap()
}

/// A board with a bootstrap kubeconfig.
fn bootstrapping(rotate: bool) -> (Folder, Signer, IdentitySource) {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let paths = folder.paths(true, rotate);
    (folder, signer, paths)
}

/// A board whose kubeconfig has a certificate, which it renews.
fn joined(from: u8, days: u64) -> (Folder, Signer, IdentitySource) {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("etc/kubelet.conf", &signer.kubeconfig_with_pair(from, days));
    let paths = folder.paths(false, true);
    (folder, signer, paths)
}

/// As a process without a Lease does it.
impl Pki {
    fn sign(&mut self, new_key: bool) -> Result<SigningRequest, Fault> {
        let ops = self.choose_key(new_key)?;
        self.disk.carry_out(ops)?;
        self.store.request(&self.source.subject, CertificatePurpose::CLIENT)
    }

    fn install(&mut self, chain: &str, now: Wall) -> Result<(ApiConfig, Leaf), Fault> {
        // Its files were read just before the request.
        let later = std::mem::take(&mut self.later);
        let (start, marks) = self.start(now, None)?;
        self.later = later;
        let mut requested = start.config;
        if start.bootstrap.is_some() {
            (requested.authorization, self.marks) = (None, marks);
        }
        let ops = self.store.install(chain, &self.marks, now)?;
        self.disk.carry_out(ops)?;
        let installed = self.installed(requested, now);
        self.carry_out_later();
        installed
    }
}

/// Requests a certificate for 50 days from that day of May, and installs it.
fn renew(pki: &mut Pki, signer: &Signer, at: u64) -> (ApiConfig, Leaf) {
    let request = pki.sign(false).unwrap();
    let from = u8::try_from(at).unwrap();
    pki.install(&signer.sign(&request, from, 50), day(at)).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_bootstrap_writes_the_files_of_a_kubelet() {
    for rotate in [false, true] {
        let (folder, signer, paths) = bootstrapping(rotate);
        let (mut pki, start) = open(&paths, day(10));
        assert!(start.bootstrap.is_some() && start.leaf.is_none());
        let request = pki.sign(false).unwrap();
        let certificate = signer.sign(&request, 1, 90);
        let pending_key = paths.cert_dir.join("kubelet-client.key.tmp");
        assert_eq!(pending_key.exists(), !rotate);
        if !rotate {
            assert_eq!(mode(&pending_key), 0o600);
            let text = fs::read_to_string(&pending_key).unwrap();
            assert!(text.starts_with("-----BEGIN PRIVATE KEY"));
        }
        let shown = format!("{pki:?} {start:?} {:?}", pki.load_bootstrap());
        let (kubeconfig, leaf) = pki.install(&certificate, day(10)).unwrap();
        assert_eq!(leaf, Leaf::of_pem(certificate.as_bytes()).unwrap());
        // The caller repeats this after an error of its own, such as a broken CA in the kubeconfig.
        assert_eq!(pki.install(&certificate, day(10)).unwrap().1, leaf);
        let pair = "kubelet-client-2026-05-11-00-00-00.pem";
        assert_eq!(folder.stored(), [pair, CURRENT]);
        let [pair, current] = [pair, CURRENT].map(|name| paths.cert_dir.join(name));
        assert_eq!(fs::read_link(&current).unwrap(), pair);
        assert_eq!(mode(&pair), 0o600);
        assert_eq!(mode(&paths.kubeconfig), 0o600);
        assert_eq!(mode(&paths.cert_dir), 0o755);
        let text = fs::read_to_string(&pair).unwrap();
        let (chain, key) = text.split_at(certificate.len());
        assert_eq!(chain, certificate.replace("\r\n", "\n"));
        let key = key.strip_prefix("-----BEGIN PRIVATE KEY-----\n").expect(key);
        let written = fs::read_to_string(&paths.kubeconfig).unwrap();
        let current = current.display();
        assert_eq!(
            written,
            format!(
                "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: \"{}\"\n    \
                 server: \"https://10.0.0.1:6443/prefix\"\n    tls-server-name: \"api\"\n  \
                 name: default-cluster\ncontexts:\n- context:\n    cluster: default-cluster\n    \
                 namespace: default\n    user: default-auth\n  name: default-context\n\
                 current-context: default-context\nkind: Config\nusers:\n- name: default-auth\n  \
                 user:\n    client-certificate: \"{current}\"\n    client-key: \"{current}\"\n",
                Pem(&signer.ca)
            )
        );
        // The next start does not need the bootstrap kubeconfig.
        fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
        let (pki, start) = open(&paths, day(20));
        assert!(!start.replace_now);
        let shown = format!("{shown} {pki:?} {start:?}");
        // Behind the 36 bytes that each such key begins with.
        let has_secret = shown.contains(&key[48..64]) || shown.contains("0123456789abcdef");
        assert!(!has_secret, "{shown}");
        let again = start.config;
        assert_eq!(again.certificate, kubeconfig.certificate);
        assert_eq!(again.endpoint, kubeconfig.endpoint);
        assert_eq!((again.authorization, start.leaf), (None, Some(leaf)));
    }
}

#[test]
fn without_rotation_the_request_stays_the_same_until_it_succeeds() {
    let (_folder, signer, paths) = bootstrapping(false);
    let (mut pki, _) = open(&paths, day(10));
    let first = pki.sign(false).unwrap().name;
    assert_eq!(pki.sign(false).unwrap().name, first);
    let (mut pki, _) = open(&paths, day(11));
    assert_eq!(pki.sign(false).unwrap().name, first);
    let other = pki.sign(true).unwrap();
    assert_ne!(other.name, first);
    assert_eq!(pki.sign(false).unwrap().name, other.name);
    pki.install(&signer.sign(&other, 1, 90), day(11)).unwrap();
    // The certificate has expired: the next request has the stored key, as in a kubelet.
    let (mut pki, start) = open(&paths, day(200));
    assert!(start.bootstrap.is_some());
    assert_eq!(pki.sign(false).unwrap().name, other.name);
}

#[test]
fn a_rotation_makes_a_new_key_and_keeps_the_last_old_pair() {
    let (folder, signer, paths) = bootstrapping(true);
    let (mut pki, _) = open(&paths, day(1));
    let mut keys = Vec::new();
    for number in 1..6 {
        let (kubeconfig, leaf) = renew(&mut pki, &signer, number);
        keys.push(leaf.public_key.clone());
        tls::client_config(&kubeconfig).unwrap();
        assert_eq!(open(&paths, day(number)).1.leaf, Some(leaf));
    }
    keys.dedup();
    assert_eq!(keys.len(), 5);
    let pair = |day| format!("kubelet-client-2026-05-{day:02}-00-00-00.pem");
    assert_eq!(folder.stored(), [pair(5), pair(6), CURRENT.to_owned()]);
    // A start removes what processes that ended early have left.
    let old = fs::read(paths.cert_dir.join(pair(5))).unwrap();
    for day in 1..4 {
        fs::write(paths.cert_dir.join(pair(day)), &old).unwrap();
    }
    open(&paths, day(6));
    assert_eq!(folder.stored(), [pair(5), pair(6), CURRENT.to_owned()]);
}

/// TestLoadClientConfig: beside a valid kubeconfig, that of the bootstrap is ignored. Unlike
/// upstream, the kubeconfig is written when the certificate is issued.
#[test]
fn an_unusable_kubeconfig_is_replaced_and_a_usable_one_is_kept() {
    let signer = Signer::new();
    let [cert, key] = signer.embedded("pi", 1, 90);
    let [old, old_key] = signer.embedded("pi", 1, 5);
    let [_, other_key] = signer.embedded("pi", 1, 90);
    let embedded = |cert: &str, key: &str| signer.kubeconfig(&pair(cert, key));
    for (what, text, is_valid) in [
        ("a certificate", embedded(&cert, &key), true),
        ("an expired one", embedded(&old, &old_key), false),
        ("the key of another certificate", embedded(&cert, &other_key), false),
        ("a token", signer.kubeconfig(TOKEN), false),
        ("a missing file", signer.kubeconfig("client-certificate: no, client-key: no"), false),
        ("no kubeconfig", "[".to_owned(), false),
        ("nothing", String::new(), false),
    ] {
        for rotate in [false, true] {
            let folder = Folder::new();
            folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
            folder.write("etc/kubelet.conf", &text);
            let paths = folder.paths(true, rotate);
            let (mut pki, start) = open(&paths, day(10));
            assert_eq!(start.bootstrap.is_none(), is_valid, "{what}");
            assert_eq!(start.config.authorization.is_none(), is_valid, "{what}");
            assert_eq!(fs::read_to_string(&paths.kubeconfig).unwrap(), text, "{what}");
            assert_eq!(folder.stored().is_empty(), !(is_valid && rotate), "{what}");
            fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
            if is_valid {
                // With a clock of 1970 nothing has expired.
                for now in [day(10), Wall::default()] {
                    assert!(open(&paths, now).1.leaf.is_some(), "{what}");
                }
                continue;
            }
            match Pki::open(Disk::default(), paths.clone(), day(10)) {
                // The server judges the certificate.
                Ok((_, start)) => assert!(what == "an expired one" && start.leaf.is_some()),
                Err(error) => {
                    assert!(error.what.contains("bootstrap.conf: no such file"), "{what}: {error}");
                }
            }
            folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
            renew(&mut pki, &signer, 10);
            assert!(open(&paths, day(10)).1.leaf.is_some(), "{what}");
        }
    }
}

/// A file that is too large stands for one that is another user's, and for a card that fails. The
/// server has moved, and the bootstrap kubeconfig has the former address.
#[test]
fn a_kubeconfig_that_cannot_be_read_is_not_written_over() {
    for (has_pair, rotate) in [(true, true), (true, false), (false, true), (false, false)] {
        let (_folder, signer, paths) = bootstrapping(rotate);
        renew(&mut open(&paths, day(1)).0, &signer, 1);
        let moved = fs::read_to_string(&paths.kubeconfig).unwrap().replace("10.0.0.1", "10.0.0.9");
        let unread = format!("{moved}#{}", "#".repeat(1 << 20));
        fs::write(&paths.kubeconfig, &unread).unwrap();
        if !has_pair {
            let ops = remove_certificates(&paths.cert_dir).unwrap();
            Disk::default().carry_out(ops).unwrap();
        }
        let (mut pki, start) = open(&paths, day(2));
        assert_eq!(start.bootstrap.is_none(), has_pair);
        let (_, leaf) = renew(&mut pki, &signer, 2);
        assert!(fs::read_to_string(&paths.kubeconfig).unwrap() == unread);
        fs::write(&paths.kubeconfig, &moved).unwrap();
        let (_, start) = open(&paths, day(3));
        assert_eq!((start.config.endpoint.host.as_str(), start.leaf), ("10.0.0.9", Some(leaf)));
        // The same for a file that it names.
        let pair = fs::canonicalize(paths.cert_dir.join(CURRENT)).unwrap();
        fs::write(&paths.kubeconfig, moved.replace(CURRENT, "unread.pem")).unwrap();
        let named = fs::read_to_string(&paths.kubeconfig).unwrap();
        fs::create_dir(pair.with_file_name("unread.pem")).unwrap();
        open(&paths, day(3));
        assert_eq!(fs::read_to_string(&paths.kubeconfig).unwrap(), named);
        let ops = remove_certificates(&paths.cert_dir).unwrap();
        Disk::default().carry_out(ops).unwrap();
        renew(&mut open(&paths, day(3)).0, &signer, 3);
        assert_eq!(fs::read_to_string(&paths.kubeconfig).unwrap(), named);
    }
}

/// The signer takes its time to approve the request.
#[test]
fn a_kubeconfig_that_a_person_mends_during_a_bootstrap_is_kept() {
    let (folder, signer, paths) = bootstrapping(true);
    folder.write("etc/kubelet.conf", "[");
    let (mut pki, start) = open(&paths, day(1));
    assert!(start.bootstrap.is_some());
    let request = pki.sign(false).unwrap();
    let mended = signer.kubeconfig_with_pair(1, 90);
    folder.write("etc/kubelet.conf", &mended);
    pki.install(&signer.sign(&request, 1, 50), day(1)).unwrap();
    assert_eq!(fs::read_to_string(&paths.kubeconfig).unwrap(), mended);
}

/// Beside the kubeconfig of a person, the file may be that person's.
#[test]
fn a_kubeconfig_that_a_power_cut_left_unfinished_is_removed() {
    for bootstrap in [false, true] {
        let (folder, signer, paths) = bootstrapping(true);
        renew(&mut open(&paths, day(1)).0, &signer, 1);
        let unfinished = write::beside(&paths.kubeconfig);
        fs::write(&unfinished, "apiVersion").unwrap();
        open(&folder.paths(bootstrap, true), day(2));
        assert_eq!(unfinished.exists(), !bootstrap);
    }
}

#[test]
fn an_unwritable_kubeconfig_does_not_cause_another_request() {
    let (folder, signer, paths) = bootstrapping(true);
    let (mut pki, _) = open(&paths, day(10));
    std::os::unix::fs::symlink("/proc/no-such", folder.0.join("etc")).unwrap();
    collect_lines();
    let (kubeconfig, leaf) = renew(&mut pki, &signer, 10);
    let lines = take_lines().concat();
    assert!(lines.contains("before the bootstrap kubeconfig is removed: /"), "{lines}");
    assert!(kubeconfig.certificate.is_some());
    let (_, start) = open(&paths, day(11));
    assert_eq!(start.leaf, Some(leaf));
    assert_eq!(start.config.certificate, kubeconfig.certificate);
}

/// A kubelet writes its keys in this form, and so did nodelet before 0.1.0.
#[test]
fn a_key_in_the_form_sec_1_is_used_and_keeps_its_form() {
    let sec1 = "-----BEGIN EC PRIVATE KEY-----\n\
                MHcCAQEEIIrYSSNQFaA2Hwf1duRSxKtLYX5CB04fSeQ6tF1aY/PuoAoGCCqGSM49\n\
                AwEHoUQDQgAEPR3tU2Fta9ktY+6P9G0cWO+0kETA6SFs38GecTyudlHz6xvCdz8q\n\
                EKTcWGekdmdDPsHloRNtsiCa697B2O9IFA==\n\
                -----END EC PRIVATE KEY-----\n";
    let (folder, signer, paths) = bootstrapping(false);
    folder.write("lib/pki/kubelet-client.key.tmp", sec1);
    let (mut pki, _) = open(&paths, day(10));
    let request = pki.sign(false).unwrap();
    pki.install(&signer.sign(&request, 1, 90), day(10)).unwrap();
    let pair = fs::read_to_string(paths.cert_dir.join(CURRENT)).unwrap();
    assert!(pair.contains(sec1), "{pair}");
    let (_, start) = open(&paths, day(11));
    assert!(start.leaf.is_some() && start.bootstrap.is_none());
}

/// An earlier version kept every pair.
#[test]
fn a_store_of_very_many_old_pairs_can_be_removed_and_gets_smaller() {
    let (folder, signer, paths) = joined(1, 90);
    let (mut pki, _) = open(&paths, day(2));
    fs::write(paths.cert_dir.join("other"), "").unwrap();
    for number in 0..10_000 {
        let (hour, minute, second) = (number / 3600, number / 60 % 60, number % 60);
        let name = format!("kubelet-client-2025-01-01-{hour:02}-{minute:02}-{second:02}.pem");
        fs::write(paths.cert_dir.join(name), "").unwrap();
    }
    let before = folder.stored().len();
    renew(&mut pki, &signer, 3);
    assert_eq!(folder.stored().len(), before + 1 - 1000);
    let ops = remove_certificates(&paths.cert_dir).unwrap();
    Disk::default().carry_out(ops).unwrap();
    assert_eq!(folder.stored(), ["other"]);
}

/// On a full disk there may be room for the pair and none for the link, or the place of the link
/// cannot be replaced.
#[test]
fn attempts_to_store_a_certificate_leave_one_pair() {
    let (folder, signer, paths) = joined(1, 90);
    folder.write("lib/pki/kubelet-client-current.pem/file", "");
    let (mut pki, _) = open(&paths, day(2));
    let chain = signer.sign(&pki.sign(false).unwrap(), 3, 50);
    let pairs = || folder.stored().iter().filter(|name| name.contains("-2026-")).count();
    for at in 3..9 {
        assert!(pki.install(&chain, day(at)).is_err());
        assert_eq!(pairs(), 1, "attempt at day {at}");
    }
    drop(open(&paths, day(9)));
    assert_eq!(pairs(), 1, "after a start");
    fs::remove_dir_all(paths.cert_dir.join(CURRENT)).unwrap();
    let (_, leaf) = pki.install(&chain, day(10)).unwrap();
    assert_eq!(open(&paths, day(11)).1.leaf, Some(leaf));
}

/// A card fails to read for a moment, while that of the kubeconfig has expired.
#[test]
fn a_pair_that_cannot_be_read_is_not_replaced_by_that_of_the_kubeconfig() {
    let (_folder, signer, paths) = joined(1, 10);
    let (mut pki, _) = open(&paths, day(2));
    let (_, leaf) = renew(&mut pki, &signer, 5);
    let pair = fs::read_link(paths.cert_dir.join(CURRENT)).unwrap();
    let text = fs::read(&pair).unwrap();
    fs::remove_file(&pair).unwrap();
    fs::create_dir(&pair).unwrap();
    assert_ne!(open(&paths, day(30)).1.leaf.as_ref(), Some(&leaf));
    fs::remove_dir(&pair).unwrap();
    fs::write(&pair, text).unwrap();
    assert_eq!(open(&paths, day(30)).1.leaf, Some(leaf));
}

/// A power cut on a card that syncs late: the newest pair has its name, and not its content.
#[test]
fn the_old_pair_is_used_where_the_newest_one_is_garbage() {
    for bootstrap in [false, true] {
        let (folder, signer, paths) = bootstrapping(true);
        let (mut pki, _) = open(&paths, day(1));
        let (_, old) = renew(&mut pki, &signer, 1);
        let (_, new) = renew(&mut pki, &signer, 5);
        fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
        let paths = folder.paths(bootstrap, true);
        let current = paths.cert_dir.join(CURRENT);
        let pair = fs::read_link(&current).unwrap();
        let text = fs::read_to_string(&pair).unwrap();
        let (half, _) = text.split_once("-----BEGIN PRIVATE KEY-----").unwrap();
        for garbage in [half, "", "\0\0"] {
            fs::write(&pair, garbage).unwrap();
            assert_eq!(open(&paths, day(9)).1.leaf.as_ref(), Some(&old), "{garbage:?}");
            fs::remove_file(&current).unwrap();
            assert_eq!(open(&paths, day(9)).1.leaf.as_ref(), Some(&old), "no link, {garbage:?}");
            fs::remove_file(&current).unwrap();
            std::os::unix::fs::symlink(&pair, &current).unwrap();
        }
        // Where no pair is left, and where one cannot be read, the link stays.
        let spare = folder.stored().into_iter().find(|name| name.contains("-05-02-")).unwrap();
        let spare = paths.cert_dir.join(spare);
        fs::rename(&spare, folder.0.join("away")).unwrap();
        for is_unread in [false, true] {
            if is_unread {
                fs::create_dir(&spare).unwrap();
            }
            let _ = Pki::open(Disk::default(), paths.clone(), day(9));
            assert_eq!(fs::read_link(&current).unwrap(), pair);
        }
        fs::write(&pair, &text).unwrap();
        assert_eq!(open(&paths, day(9)).1.leaf, Some(new));
    }
}

/// While a server's clock was ahead, a pair got a name of the future.
#[test]
fn the_old_pair_that_is_kept_was_in_use_last() {
    let (folder, signer, paths) = joined(1, 90);
    let (mut pki, _) = open(&paths, day(2));
    let (_, old) = renew(&mut pki, &signer, 3);
    let in_use = fs::read_link(paths.cert_dir.join(CURRENT)).unwrap();
    fs::copy(&in_use, paths.cert_dir.join("kubelet-client-2026-06-01-00-00-00.pem")).unwrap();
    renew(&mut pki, &signer, 5);
    assert!(in_use.exists(), "{:?}", folder.stored());
    assert_eq!(folder.stored().iter().filter(|name| name.contains("-2026-")).count(), 2);
    fs::write(fs::read_link(paths.cert_dir.join(CURRENT)).unwrap(), "").unwrap();
    assert_eq!(open(&paths, day(7)).1.leaf, Some(old));
}

/// The name of the garbage is newer, as after a clock that was ahead.
#[test]
fn the_old_pair_that_is_kept_can_be_used() {
    let (folder, signer, paths) = joined(1, 90);
    let (mut pki, _) = open(&paths, day(2));
    let (_, old) = renew(&mut pki, &signer, 3);
    let garbage = |day: &str| format!("kubelet-client-2026-06-{day}-00-00-00.pem");
    folder.write(&format!("lib/pki/{}", garbage("01")), "");
    renew(&mut pki, &signer, 5);
    let kept = || folder.stored().iter().filter(|name| name.contains("-2026-")).count();
    assert_eq!(kept(), 2, "{:?}", folder.stored());
    // One that cannot be read now gives way, and so does garbage.
    let unread = paths.cert_dir.join(garbage("02"));
    std::os::unix::fs::symlink(&unread, &unread).unwrap();
    folder.write(&format!("lib/pki/{}", garbage("03")), "\0");
    open(&paths, day(6));
    assert_eq!(kept(), 2, "{:?}", folder.stored());
    let current = paths.cert_dir.join(CURRENT);
    fs::write(fs::read_link(&current).unwrap(), "").unwrap();
    assert_eq!(open(&paths, day(7)).1.leaf, Some(old));
}

/// The path of the pair in use cannot be resolved for a moment, which is no lost link. Where the
/// link is lost, as in a copy, a name may be that of a clock that was ahead.
#[test]
fn the_pair_in_use_stays_and_a_lost_link_leads_to_the_pair_that_ends_last() {
    let (_folder, signer, paths) = joined(1, 20);
    let (mut pki, _) = open(&paths, day(2));
    let given = fs::canonicalize(paths.cert_dir.join(CURRENT)).unwrap();
    let (_, leaf) = renew(&mut pki, &signer, 5);
    fs::rename(given, paths.cert_dir.join("kubelet-client-2031-05-01-00-00-00.pem")).unwrap();
    let current = paths.cert_dir.join(CURRENT);
    let pair = fs::read_link(&current).unwrap();
    let text = fs::read(&pair).unwrap();
    fs::remove_file(&pair).unwrap();
    std::os::unix::fs::symlink(&pair, &pair).unwrap();
    let (_, start) = open(&paths, day(6));
    assert!(start.leaf.is_some());
    assert_eq!(fs::read_link(&current).unwrap(), pair);
    fs::remove_file(&pair).unwrap();
    fs::write(&pair, text).unwrap();
    assert_eq!(open(&paths, day(7)).1.leaf.as_ref(), Some(&leaf));
    fs::remove_file(&current).unwrap();
    // A card that fails for a moment: no other pair is linked for good.
    let text = fs::read(&pair).unwrap();
    fs::remove_file(&pair).unwrap();
    fs::create_dir(&pair).unwrap();
    let (_, start) = open(&paths, day(8));
    assert!(start.leaf.is_some() && start.leaf.as_ref() != Some(&leaf));
    assert!(!current.is_symlink());
    fs::remove_dir(&pair).unwrap();
    fs::write(&pair, text).unwrap();
    assert_eq!(open(&paths, day(8)).1.leaf, Some(leaf));
}

/// As on a card whose folder is damaged. One on a network mount is still refused.
#[test]
fn a_folder_that_cannot_be_read_does_not_keep_the_kubeconfig_from_use() {
    let (_folder, _signer, paths) = joined(1, 10);
    fs::create_dir_all(paths.cert_dir.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&paths.cert_dir, &paths.cert_dir).unwrap();
    let (_, start) = open(&paths, day(2));
    assert!(start.leaf.is_some() && start.config.certificate.is_some());
    let serving = || super::serving::ServingPki::open(&paths.cert_dir, CertificateKind::Serving);
    serving().unwrap();
    pretend_mount(&paths.cert_dir, "nfs4");
    for refused in
        [Pki::open(Disk::default(), paths.clone(), day(2)).map(drop), serving().map(drop)]
    {
        assert!(refused.unwrap_err().to_string().contains("can block for ever"));
    }
}

/// A kubelet's link may have any name, and the board's clock may have been ahead of the server's.
#[test]
fn a_certificate_without_a_plausible_arrival_is_renewed_at_once() {
    for (name, given) in [
        ("kubelet-client-2026-05-11-00-00-00.pem", false),
        // After the end of the certificate.
        ("kubelet-client-2036-05-11-00-00-00.pem", true),
        ("kubelet-client-2026-05-41-00-00-00.pem", true),
        ("kubelet-client-2026-05-11.pem", true),
        ("kubelet-client-first.pem", true),
        ("other-2026-05-11-00-00-00.pem", true),
    ] {
        let (_folder, _, paths) = joined(1, 90);
        let paths = IdentitySource { kind: Some(CertificateKind::Supervisor), ..paths };
        drop(open(&paths, day(1)));
        let current = paths.cert_dir.join(CURRENT);
        let pair = fs::read_link(&current).unwrap();
        fs::rename(paths.cert_dir.join(pair), paths.cert_dir.join(name)).unwrap();
        fs::remove_file(&current).unwrap();
        std::os::unix::fs::symlink(name, &current).unwrap();
        let (_, start) = open(&paths, day(20));
        assert_eq!(start.replace_now, given, "{name}");
        if !given {
            assert_eq!(start.leaf.unwrap().not_before, day(10), "{name}");
        }
    }
}

/// The first process ended before it could replace the certificate of the kubeconfig. The next one
/// took the time of the copy for that of a request.
#[test]
fn the_copy_of_a_supervisors_certificate_is_no_arrival() {
    for (kind, want) in [(CertificateKind::Supervisor, day(0)), (CertificateKind::Rotated, day(20))]
    {
        let (_folder, _, paths) = joined(1, 90);
        let paths = IdentitySource { kind: Some(kind), ..paths };
        drop(open(&paths, day(20)));
        let pair = fs::read_link(paths.cert_dir.join(CURRENT)).unwrap();
        let name = pair.file_name().unwrap().to_str().unwrap();
        assert!(name.contains(&want.time()[..10]), "{name}");
        let begin = open(&paths, day(21)).1.leaf.unwrap().not_before;
        assert_eq!(begin, day(0), "{kind:?}");
    }
}

#[test]
fn only_a_missing_kubeconfig_is_a_board_that_has_not_joined() {
    let folder = Folder::new();
    let refused = || {
        let opened = Pki::open(Disk::read_only(), folder.paths(false, false), day(1));
        opened.map(drop).unwrap_err().to_string()
    };
    let missing = refused();
    assert!(missing.ends_with("no such file or directory; nodelet join gets one"), "{missing}");
    pretend_mount(&folder.0.join("etc"), "nfs4");
    let on_network = refused();
    assert!(on_network.ends_with("choose a folder on a local file system"), "{on_network}");
}
