#![allow(clippy::disallowed_methods)]

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, KeyPair};

use super::*;
use crate::client::api_config::ClientCertificate;
use crate::credentials::kubeconfig::{KubeconfigUser, render};
use crate::join::command::{JoinCommand, parse};
use crate::join::run::pem;
use crate::join::steps::parsed;
use crate::join::token::hexadecimal;
use crate::kube::finding::Mark;
use crate::kube::x509;
use crate::os::tree::Tree;

const BOOTSTRAP: &str = "lwxivu.2uczm8x4xi2v7hqd";
const PASSWORD: &str = "password";
const SKIP: &str = "--discovery-token-unsafe-skip-ca-verification";
const KUBECONFIG: &str = "etc/credstore/nodelet.kubeconfig";
const HOUR: u64 = 3600;

fn now() -> Wall {
    Wall::parse("2026-11-22T00:00:00Z").unwrap()
}

fn settings(args: &[&str]) -> JoinSettings {
    let args: Vec<_> =
        std::iter::once("join").chain(args.iter().copied()).map(Into::into).collect();
    match parse(&args) {
        Some(Ok(JoinCommand::Join(settings))) => *settings,
        other => panic!("{args:?}: {other:?}"),
    }
}

/// A line for `cp` with this pin.
fn pinned(pin: &str) -> JoinSettings {
    settings(&["cp", "--token", BOOTSTRAP, "--discovery-token-ca-cert-hash", pin])
}

/// What a join of `pi` with this line finds.
fn found(
    paths: &JoinPaths,
    settings: &JoinSettings,
) -> Result<(Finding, Option<CompleteIdentity>), Finding> {
    existing(paths, settings, &parsed(&settings.token).unwrap(), "pi", now())
}

/// A CA as PEM, and its pin.
fn authority() -> (String, String) {
    authority_of(&KeyPair::generate().unwrap(), 2040)
}

/// The same, of this key.
fn authority_of(key: &KeyPair, until: i32) -> (String, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let certificate = params.self_signed(key).unwrap();
    let public = rcgen::PublicKeyData::subject_public_key_info(key);
    let pin = hexadecimal(&proof::sha256(&public));
    (x509::pem("CERTIFICATE", certificate.der()), format!("sha256:{pin}"))
}

/// A certificate of the node `pi`, from and until so many hours after 2026-11-20.
fn pair(from: u64, until: u64) -> ClientCertificate {
    pair_of("system:node:pi", from, until)
}

fn pair_of(name: &str, from: u64, until: u64) -> ClientCertificate {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, name);
    let start = rcgen::date_time_ymd(2026, 11, 20);
    params.not_before = start + Duration::from_secs(from * HOUR);
    params.not_after = start + Duration::from_secs(until * HOUR);
    let chain = params.self_signed(&key).unwrap().pem();
    ClientCertificate {
        chain: pem("pair", chain.into_bytes()),
        key: pem("pair", key.serialize_pem().into_bytes()),
    }
}

/// A board that joined `https://cp:6443`.
struct Joined {
    tree: Tree,
    paths: JoinPaths,
}

impl Joined {
    fn new(ca: &str, pair: &ClientCertificate) -> Self {
        let tree = Tree::new("join-existing");
        let mut config = ApiConfig::at(Endpoint::parse("https://cp:6443").unwrap());
        config.ca = Some(pem("ca", ca.as_bytes().to_vec()));
        let text = render(&config, &KubeconfigUser::Inline(pair)).unwrap();
        tree.write(KUBECONFIG, text.as_bytes());
        let flags = "NODELET_JOIN_SERVER=https://10.0.0.1:6443\nNODELET_JOIN_FLAGS=--v=2\n";
        tree.write("etc/default/nodelet-join", flags.as_bytes());
        let paths = JoinPaths::new(Some(tree.path()));
        Self { tree, paths }
    }

    fn store(&self, pair: &ClientCertificate) {
        let text = [pair.chain.bytes.as_slice(), &pair.key.bytes].concat();
        self.tree.write("var/lib/nodelet/pki/kubelet-client-current.pem", &text);
    }

    fn found(
        &self,
        settings: &JoinSettings,
    ) -> Result<(Finding, Option<CompleteIdentity>), Finding> {
        found(&self.paths, settings)
    }
}

/// `complete`, `another` is asked for, or the line of what is in the way.
fn word(found: Result<(Finding, Option<CompleteIdentity>), Finding>) -> String {
    match found {
        Ok((_, Some(identity))) if identity.lacks_ca => "complete but a CA".to_owned(),
        Ok((_, Some(_))) => "complete".to_owned(),
        Ok((finding, None)) if finding.mark == Mark::Note => {
            format!("another: {}", finding.detail)
        }
        Ok(_) => "none".to_owned(),
        Err(finding) => finding.line(),
    }
}

#[test]
fn without_a_ca_on_the_command_line_the_address_tells_clusters_apart() {
    let supervisor = |url: &str| {
        Some(StoredFlags {
            words: vec![format!("--k3s-supervisor={url}")],
            ..StoredFlags::default()
        })
    };
    let typed_before =
        |server: &str| Some(StoredFlags { server: server.to_owned(), ..StoredFlags::default() });
    for (stored, flags, typed, token, want) in [
        ("https://cp:6443", None, "cp", BOOTSTRAP, true),
        ("https://cp:6443", None, "https://cp:6443/", BOOTSTRAP, true),
        ("https://cp:6443/a", None, "cp/a/", BOOTSTRAP, true),
        ("https://cp:6443/a", None, "cp/b", BOOTSTRAP, false),
        ("https://cp", None, "https://cp", BOOTSTRAP, true),
        ("https://cp:6443", None, "cp:443", BOOTSTRAP, false),
        ("https://cp:6443", None, "other", BOOTSTRAP, false),
        // cluster-info named another address than the line.
        ("https://cp:6443", typed_before("https://10.0.0.1:6443"), "10.0.0.1", BOOTSTRAP, true),
        ("https://cp:6443", typed_before("https://10.0.0.1:6443"), "10.0.0.2", BOOTSTRAP, false),
        // rke2: the supervisor on 9345, the API server on 6443.
        ("https://cp:6443", None, "https://cp:9345/", PASSWORD, true),
        ("https://cp:6443", supervisor("https://cp:9345"), "https://cp:9345/", PASSWORD, true),
        ("https://cp:6443", supervisor("https://cp:9345"), "https://cp:9346/", PASSWORD, false),
        ("https://cp:6443", None, "https://cp:6443", PASSWORD, true),
        ("https://cp:6443", None, "https://other:6443", PASSWORD, false),
    ] {
        let settings = settings(&[typed, "--token", token, SKIP]);
        let token = parsed(&settings.token).unwrap();
        let mut config = ApiConfig::at(Endpoint::parse(stored).unwrap());
        let same_server = is_same_server(&settings, &token, &config, flags.as_ref());
        assert_eq!(same_server, want, "{stored} {typed}");
        config.ca = Some(pem("ca", b"a CA".to_vec()));
        let trusts = |config: &ApiConfig| ca_match(&settings, &token, config).unwrap();
        assert_eq!(trusts(&config), CaMatch::All, "{stored} {typed}");
        // Without a CA of its own an identity is one of a supervisor behind another CA.
        config.ca = None;
        let is_supervisor = matches!(token, Token::Supervisor { .. });
        let want = if is_supervisor { CaMatch::All } else { CaMatch::None };
        assert_eq!(trusts(&config), want, "{stored} {typed}");
        // An identity that verifies no server is of no cluster.
        config.insecure = true;
        assert_eq!(trusts(&config), CaMatch::None, "{stored} {typed}");
    }
}

/// Without a former identity no running agent has a copy of one.
#[test]
fn an_identity_is_replaced_by_force_alone() {
    let tree = Tree::empty("join-existing");
    let mut line = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
    let mut found = |force| {
        line.force = force;
        word(found(&JoinPaths::new(Some(tree.path())), &line))
    };
    assert_eq!([found(false), found(true)], ["none", "none"]);
    tree.write(KUBECONFIG, b"not a kubeconfig");
    assert!(found(false).starts_with("✗ joined") && found(true).starts_with("another"));
}

/// The token of an image is replaced by that of a new line; the token of another cluster stays.
#[test]
fn a_bootstrap_token_of_this_cluster_needs_no_force() {
    let [(ca, pin), (_, other)] = [(); 2].map(|()| authority());
    let tree = Tree::new("join-bootstrap-token");
    let mut config = ApiConfig::at(Endpoint::parse("https://cp:6443").unwrap());
    config.ca = Some(pem("ca", ca.into_bytes()));
    let token = crate::client::api_config::Secret::new("lwxivu.2uczm8x4xi2v7hqe".to_owned());
    let text = render(&config, &KubeconfigUser::Token(&token)).unwrap();
    tree.write("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
    let paths = JoinPaths::new(Some(tree.path()));
    let hash = "--discovery-token-ca-cert-hash";
    for (server, pin, want) in [
        (
            "cp",
            &pin,
            "another: this board has a token of https://cp:6443, which this join replaces",
        ),
        ("cp", &other, "✗ joined: this board has a token of https://cp:6443; nodelet join --force"),
        ("cp-2", &pin, "✗ joined: this board has a token of https://cp:6443; nodelet join --force"),
    ] {
        for bootstrap_only in [true, false] {
            let mut line = settings(&[server, "--token", BOOTSTRAP, hash, pin]);
            line.bootstrap_only = bootstrap_only;
            let found = word(found(&paths, &line));
            assert!(found.starts_with(want), "{server}: {found}");
        }
    }
}

/// The power failed after the agent had stored its certificate and before it wrote the kubeconfig,
/// or somebody removed the kubeconfig for a new CA. The agent's next start uses the certificate.
#[test]
fn a_stored_certificate_beside_a_bootstrap_token_stays() {
    let (ca, pin) = authority();
    let year = 24 * 365;
    for (bootstrap_only, stored, want) in [
        (true, pair(0, year), "complete"),
        (false, pair(0, year), "another: this board has a token"),
        (true, pair(0, 48), "another: an identity of https://cp:6443"),
        (true, pair_of("system:node:other", 0, year), "another: this board has a token"),
    ] {
        let board = Joined::new(&ca, &pair(0, year));
        std::fs::remove_file(board.paths.kubeconfig()).unwrap();
        let mut config = ApiConfig::at(Endpoint::parse("https://cp:6443").unwrap());
        config.ca = Some(pem("ca", ca.clone().into_bytes()));
        let token = crate::client::api_config::Secret::new(BOOTSTRAP.to_owned());
        let text = render(&config, &KubeconfigUser::Token(&token)).unwrap();
        board.tree.write("etc/credstore/nodelet.bootstrap-kubeconfig", text.as_bytes());
        let flags = "NODELET_JOIN_FLAGS=--bootstrap-kubeconfig=a\n";
        board.tree.write("etc/default/nodelet-join", flags.as_bytes());
        board.store(&stored);
        let line = JoinSettings { bootstrap_only, ..pinned(&pin) };
        let found = board.found(&line);
        if let Ok((_, Some(identity))) = &found {
            assert!(identity.config.authorization.is_none());
        }
        let found = word(found);
        assert!(found.starts_with(want), "{bootstrap_only} {want}: {found}");
    }
}

/// A card in the machine that makes images: the agent's kubeconfig and its link to the pair in use
/// have absolute paths, which may be those of another certificate there.
#[test]
fn a_certificate_in_an_image_is_the_images_own() {
    let (ca, pin) = authority();
    let year = 24 * 365;
    let pki = Path::new("/var/lib/nodelet/pki");
    for bootstrap_only in [true, false] {
        let board = Joined::new(&ca, &pair(0, 24));
        board.store(&pair(0, year));
        let current = board.paths.at(pki.join("kubelet-client-current.pem"));
        std::fs::rename(&current, current.with_file_name("kubelet-client-a.pem")).unwrap();
        std::os::unix::fs::symlink(pki.join("kubelet-client-a.pem"), &current).unwrap();
        if bootstrap_only {
            std::fs::remove_file(board.paths.kubeconfig()).unwrap();
            let mut config = ApiConfig::at(Endpoint::parse("https://cp:6443").unwrap());
            config.ca = Some(pem("ca", ca.clone().into_bytes()));
            let user = KubeconfigUser::Pair(&pki.join("kubelet-client-current.pem"));
            let text = render(&config, &user).unwrap();
            board.tree.write("var/lib/nodelet/kubeconfig", text.as_bytes());
            let flags = "NODELET_JOIN_FLAGS=--bootstrap-kubeconfig=a\n";
            board.tree.write("etc/default/nodelet-join", flags.as_bytes());
        }
        let line = JoinSettings { bootstrap_only, ..pinned(&pin) };
        assert_eq!(word(board.found(&line)), "complete", "{bootstrap_only}");
    }
}

/// Who follows "no identity yet" has a second one.
#[test]
fn a_credential_that_join_does_not_write_is_in_the_way() {
    let mut line = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
    let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
    for (path, text) in [
        ("etc/credstore.encrypted/nodelet.kubeconfig", "a"),
        ("run/credentials/@system/nodelet.bootstrap-kubeconfig", "a"),
        ("run/credentials/nodelet.service/kubeconfig", "a"),
        ("usr/lib/credstore/nodelet.kubeconfig", "a"),
        (drop_in, "[Service]\nLoadCredentialEncrypted=kubeconfig:/boot/k.cred\n"),
        (drop_in, "SetCredential = bootstrap-kubeconfig:a"),
        (drop_in, "ImportCredential=edge.kubeconfig:kubeconfig"),
    ] {
        let tree = Tree::new("join-foreign");
        let other = "LoadCredential=ca.crt:/boot/kubeconfig\nImportCredential=nodelet.*\n\
                     LoadCredential=kubeconfig:nodelet.kubeconfig\n\
                     LoadCredential=kubeconfig:/etc/credstore/nodelet.kubeconfig\n";
        tree.write("run/systemd/system/nodelet.service.d/b.conf", other.as_bytes());
        let paths = JoinPaths::new(Some(tree.path()));
        line.force = false;
        assert_eq!(word(found(&paths, &line)), "none");
        tree.write(path, text.as_bytes());
        let found = word(found(&paths, &line));
        assert!(
            found.contains(path) && found.ends_with("change it where it comes from"),
            "{found}"
        );
        line.force = true;
        assert_eq!(word(self::found(&paths, &line)), "none");
    }
}

/// systemd would give the unit the former kubeconfig, and the certificate for it would be removed.
#[test]
fn a_kubeconfig_of_a_hypervisor_is_in_the_way_also_with_force() {
    let mut line = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
    for (name, bootstrap_only, is_refused) in [
        ("kubeconfig", false, true),
        ("kubeconfig", true, true),
        ("bootstrap-kubeconfig", true, true),
        ("bootstrap-kubeconfig", false, false),
    ] {
        let tree = Tree::new("join-received");
        let path = format!("run/credentials/@system/nodelet.{name}");
        tree.write(&path, b"a");
        (line.force, line.bootstrap_only) = (true, bootstrap_only);
        let found = word(found(&JoinPaths::new(Some(tree.path())), &line));
        assert_eq!(found.contains(&path), is_refused, "{name} {bootstrap_only}: {found}");
    }
}

/// It has bootstrapped, and its bootstrap kubeconfig was encrypted: a new one in plain text would
/// not be used, and its certificate would be removed.
#[test]
fn an_encrypted_credential_is_in_the_way_also_of_a_board_that_has_joined() {
    let (ca, pin) = authority();
    let board = Joined::new(&ca, &pair(0, 24 * 365));
    for (name, bootstrap_only, is_refused) in [
        ("kubeconfig", false, true),
        ("kubeconfig", true, false),
        ("bootstrap-kubeconfig", true, true),
        ("bootstrap-kubeconfig", false, false),
    ] {
        let drop_in = "etc/systemd/system/nodelet.service.d/a.conf";
        let text = format!("[Service]\nLoadCredentialEncrypted={name}:/boot/k.cred\n");
        board.tree.write(drop_in, text.as_bytes());
        let line = JoinSettings { bootstrap_only, ..pinned(&pin) };
        let found = word(board.found(&line));
        let want = format!("{drop_in}: the unit loads another {name}; change it where it comes");
        assert_eq!(found.contains(&want), is_refused, "{name} {bootstrap_only}: {found}");
    }
}

/// A remedy is no part of a text: this name of a context looks like one.
#[test]
fn a_name_with_a_semicolon_has_the_remedy_of_its_fault() {
    let tree = Tree::beside_a_network_mount("join-existing-names");
    let context = "kind: Config\ncurrent-context: a; b\ncontexts: [{name: a; b, context: 5}]\n";
    let user = "kind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u; v}}]\n\
                clusters: [{name: k, cluster: {server: 'https://a'}}]\n\
                users: [{name: u; v, user: {tokenFile: /net/token}}]\n";
    for (text, what, remedy) in [
        (context, "contexts[a; b].context is not a mapping", "nodelet join --force replaces it"),
        (
            user,
            "names/net is on nfs4, which can block for ever",
            "choose a folder on a local file system",
        ),
    ] {
        tree.write(KUBECONFIG, text.as_bytes());
        let settings = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
        let found = found(&JoinPaths::new(Some(tree.path())), &settings).unwrap_err();
        assert!(found.detail.ends_with(what), "{found:?}");
        assert_eq!(found.remedy, remedy);
    }
}

/// Hours since 2026-11-20; now is hour 48. A certificate of k3s may begin with the birth of the CA,
/// so a tenth of its life says nothing. `apt purge` removes the flags and keeps the credentials.
#[test]
fn a_certificate_is_kept_for_as_long_as_it_is_worth_and_then_another_is_asked_for() {
    let (ca, pin) = authority();
    let line = pinned(&pin);
    let kubeadm = "NODELET_JOIN_FLAGS=--v=2\n";
    let k3s = "NODELET_JOIN_FLAGS=--k3s-supervisor=https://cp:6443\n";
    let soon = "it ends too soon, so a new one is requested";
    let another = "its flags are those of another join, so a new one is requested";
    for (from, until, flags, want) in [
        (0, 24 * 365, kubeadm, "complete"),
        // `--cluster-signing-duration=8h`.
        (47, 55, kubeadm, "complete"),
        (41, 49, kubeadm, "complete"),
        (40, 48, kubeadm, soon),
        (0, 24, kubeadm, soon),
        // Of a year a day is enough, of 25 hours a tenth.
        (0, 24 * 365 + 50, kubeadm, "complete"),
        (24, 49, kubeadm, soon),
        (22, 51, kubeadm, "complete"),
        (0, 50, k3s, "complete"),
        (47, 50, k3s, "complete"),
        (0, 49, k3s, soon),
        // A join was cut before its kubeconfig: with `--force`, or with `--bootstrap-only`.
        (0, 24 * 365, "NODELET_JOIN_API_SERVER=https://b:6443\nNODELET_JOIN_FLAGS=", another),
        (0, 24 * 365, "NODELET_JOIN_API_SERVER=https://cp:6443\nNODELET_JOIN_FLAGS=", "complete"),
        (0, 24 * 365, "NODELET_JOIN_FLAGS=--bootstrap-kubeconfig=a", another),
        (0, 24 * 365, "# Written", "its flags are missing, so a new one is requested"),
        (0, 24 * 365, "", "its flags are missing, so a new one is requested"),
    ] {
        let board = Joined::new(&ca, &pair(from, until));
        board.tree.write("etc/default/nodelet-join", flags.as_bytes());
        if flags.is_empty() {
            std::fs::remove_file(board.paths.flags()).unwrap();
        }
        let found = word(board.found(&line));
        assert!(found.ends_with(want), "{from} {until} {flags}: {found}");
    }
}

/// Another certificate would be asked for, and the stored one removed.
#[test]
fn flags_that_cannot_be_read_are_not_missing() {
    let (ca, pin) = authority();
    let board = Joined::new(&ca, &pair(0, 24 * 365));
    std::fs::remove_file(board.paths.flags()).unwrap();
    board.tree.write("etc/default/nodelet-join/a folder", b"");
    let found = word(board.found(&pinned(&pin)));
    assert!(found.starts_with("✗ joined: ") && found.contains("nodelet-join: "), "{found}");
    let line = JoinSettings { force: true, ..pinned(&pin) };
    assert!(word(board.found(&line)).starts_with("another: "));
}

/// Each board after a year: the first certificate has ended, and the agent has renewed it.
#[test]
fn the_certificate_that_the_agent_renewed_is_the_one_to_go_on_with() {
    let (ca, pin) = authority();
    let line = pinned(&pin);
    let board = Joined::new(&ca, &pair(0, 24));
    let renewed = pair(12, 24 * 365);
    board.store(&renewed);
    let found = board.found(&line);
    let Ok((_, Some(identity))) = found else { panic!("{found:?}") };
    let chain = &identity.config.certificate.unwrap().chain.bytes;
    assert_eq!(Leaf::of_pem(chain), Leaf::of_pem(&renewed.chain.bytes));
}

/// An agent that still ran with the former name renewed its certificate after `join --force`. The
/// agent of this name does not use that one.
#[test]
fn a_stored_certificate_of_another_node_does_not_count_beside_one_of_this_node() {
    let (ca, pin) = authority();
    let (own, other) = (pair(0, 24 * 365), pair_of("system:node:former", 1, 24 * 366));
    let board = Joined::new(&ca, &own);
    board.store(&other);
    assert_eq!(word(board.found(&pinned(&pin))), "complete");
    let board = Joined::new(&ca, &other);
    board.store(&own);
    assert_eq!(word(board.found(&pinned(&pin))), "complete");
}

#[test]
fn what_is_another_is_named_and_needs_force() {
    let (ca, pin) = authority();
    let (_, other) = authority();
    let board = Joined::new(&ca, &pair(0, 24 * 365));
    let hash = "--discovery-token-ca-cert-hash";
    for (args, name, want) in [
        (["cp", "--token", BOOTSTRAP, hash, &pin], "pi", "complete"),
        // The address of the line that was used before.
        (["10.0.0.1", "--token", BOOTSTRAP, hash, &pin], "pi", "complete"),
        (["moved", "--token", BOOTSTRAP, hash, &pin], "pi", "another endpoint; "),
        (["cp", "--token", BOOTSTRAP, hash, &other], "pi", "another cluster; "),
        (["cp", "--token", BOOTSTRAP, hash, &pin], "pi-2", "another name; "),
    ] {
        let mut line = settings(&args);
        let token = Token::parse(BOOTSTRAP).unwrap();
        let found = word(existing(&board.paths, &line, &token, name, now()));
        assert!(found.contains(want), "{args:?}: {found}");
        assert_eq!(
            found.ends_with("nodelet join --force replaces it"),
            want != "complete",
            "{found}"
        );
        line.force = true;
        let found = word(existing(&board.paths, &line, &token, name, now()));
        assert!(found.starts_with("another: this board has") && found.ends_with(": replaced"));
    }
    // A clock that is ahead of the end of the CA.
    let (line, late) = (pinned(&pin), Wall::parse("2041-01-01T00:00:00Z").unwrap());
    let token = parsed(&line.token).unwrap();
    let found = word(existing(&board.paths, &line, &token, "pi", late));
    assert!(found.contains("it ends too soon"), "{found}");
}

/// `k3s certificate rotate-ca` with another root: the new token has another digest.
#[test]
fn a_ca_that_is_new_on_the_line_is_missing_and_no_other_cluster() {
    let [(old, old_pin), (new, new_pin), (stranger, _)] = [(); 3].map(|()| authority());
    let (both, pins) = (format!("{new}{old}"), format!("{old_pin},{new_pin}"));
    let tree = Tree::new("join-bundle");
    // The order of the CAs in a file says nothing.
    tree.write("ca.crt", format!("{old}{new}").as_bytes());
    let file = format!("--certificate-authority={}", tree.join("ca.crt").display());
    let pins = ["cp", "--token", BOOTSTRAP, "--discovery-token-ca-cert-hash", &pins];
    let given = ["cp", "--token", BOOTSTRAP, &file];
    let k10 = |ca: &str| hexadecimal(&proof::sha256(ca.as_bytes()));
    let [k3s_old, k3s_new] = [&old, &new].map(|ca| format!("K10{}::server:pa55:word", k10(ca)));
    let [k3s_old, k3s_new] =
        [&k3s_old, &k3s_new].map(|token| ["https://cp:6443", "--token", token]);
    let k3s_file = [&k3s_old[..], &[&file]].concat();
    let another = "another cluster; nodelet join --force replaces it";
    for (args, stored, want) in [
        (&pins[..], &old, "complete but a CA"),
        (&pins, &new, "complete but a CA"),
        (&pins, &both, "complete"),
        (&pins, &stranger, another),
        (&given, &old, "complete but a CA"),
        (&given, &new, "complete but a CA"),
        (&given, &both, "complete"),
        (&given, &stranger, another),
        (&k3s_old, &old, "complete"),
        (&k3s_file, &old, "it lacks a CA, so a new one is requested"),
        (&k3s_new, &both, "complete"),
        (&k3s_new, &old, another),
    ] {
        let found = word(Joined::new(stored, &pair(0, 24 * 365)).found(&settings(args)));
        assert!(found.ends_with(want), "{args:?}: {found}");
    }
}

/// It was another cluster by its file, and the same one by its pin.
#[test]
fn a_ca_whose_certificate_was_renewed_is_the_same_ca() {
    let key = KeyPair::generate().unwrap();
    let [(old, pin), (new, _)] = [2030, 2040].map(|until| authority_of(&key, until));
    assert_ne!(old, new);
    let board = Joined::new(&old, &pair(0, 24 * 365));
    board.tree.write("new.crt", new.as_bytes());
    let file = format!("--certificate-authority={}", board.tree.join("new.crt").display());
    for line in [settings(&["cp", "--token", BOOTSTRAP, &file]), pinned(&pin)] {
        assert_eq!(word(board.found(&line)), "complete");
    }
}

/// No other cluster, which `--force` would replace.
#[test]
fn a_certificate_authority_that_cannot_be_read_is_named() {
    let (ca, _) = authority();
    let board = Joined::new(&ca, &pair(0, 24 * 365));
    for (file, part) in [
        ("missing", "missing: no such file or directory; give the CA of the API server"),
        ("etc/default/nodelet-join", "nodelet-join: no certificate in it; is it a CA in PEM form?"),
    ] {
        let file = format!("--certificate-authority={}", board.tree.join(file).display());
        let found = word(board.found(&settings(&["cp", "--token", BOOTSTRAP, &file])));
        assert!(found.starts_with("✗ ca: ") && found.ends_with(part), "{found}");
    }
}

#[test]
fn a_kubelet_on_the_machine_is_in_the_way() {
    let process = "proc/77/status";
    let mut line = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
    for (path, text, named) in [
        ("etc/kubernetes/kubelet.conf", "", "etc/kubernetes/kubelet.conf"),
        ("var/lib/rancher/k3s/agent/kubelet.kubeconfig", "", "k3s/agent/kubelet.kubeconfig"),
        (process, "Name:\tkubelet\nNSpid:\t77\n", "process 77, kubelet"),
        (process, "Name:\tk3s-agent\nNSpid:\t77\n", "process 77, k3s-agent"),
        (process, "Name:\tkubelite\n", "process 77, kubelite"),
        // In a container, and another program.
        (process, "Name:\tkubelet\nNSpid:\t77\t1\n", ""),
        (process, "Name:\tkubelet-exporter\nNSpid:\t77\n", ""),
    ] {
        let tree = Tree::empty("join-kubelet");
        tree.write(path, text.as_bytes());
        let paths = JoinPaths::new(Some(tree.path()));
        for force in [false, true] {
            line.force = force;
            let found = word(found(&paths, &line));
            let refused = format!("{named}: a kubelet is on this machine; stop");
            let want = if force || named.is_empty() { "none" } else { &refused };
            assert!(found.contains(want), "{text}: {found}");
        }
    }
}

/// As a user: the folder of the credentials cannot be entered. Here it cannot be resolved.
#[test]
fn what_cannot_be_seen_is_not_missing() {
    let tree = Tree::new("join-unseen");
    std::os::unix::fs::symlink("credstore", tree.path().join("etc/credstore")).unwrap();
    let paths = JoinPaths::new(Some(tree.path()));
    let mut line = settings(&["cp", "--token", BOOTSTRAP, SKIP]);
    for (dry_run, want) in [(true, "– joined: unknown: "), (false, "✗ joined: ")] {
        line.dry_run = dry_run;
        let line =
            found(&paths, &line).map_or_else(|failed| failed.line(), |(finding, _)| finding.line());
        assert!(line.starts_with(want) && line.contains("; run it with sudo"), "{line}");
    }
}
