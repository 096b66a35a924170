//! Upstream's test cases of the certificate store and of the bootstrap: client-go
//! `util/certificate/{certificate_store_test.go,certificate_manager_test.go}`,
//! `pkg/kubelet/certificate/bootstrap/bootstrap_test.go`,
//! `cmd/kubelet/app/server_bootstrap_test.go`.

use std::os::unix::fs::symlink;

use super::*;
use crate::os::read::cause;

/// A store with its folder and a signer.
struct TestStore {
    folder: Folder,
    store: Store,
    signer: Signer,
}

impl TestStore {
    fn new() -> Self {
        let folder = Folder::new();
        Self { store: Store::new(&folder.0, CLIENT).unwrap(), signer: Signer::new(), folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn pair(&self) -> (String, Key) {
        let key = Key::generate().unwrap();
        let request = key.request(subject(), CertificatePurpose::CLIENT).unwrap();
        (self.signer.sign(&request, 1, 90), key)
    }

    fn update(&self, chain: &str, key: &Key, at: u64) -> Result<(), Fault> {
        let ops = self.store.update(chain.as_bytes(), key, &PairMarks::default(), day(at))?;
        Disk::default().carry_out(ops)
    }

    fn current(&self) -> Option<Vec<u8>> {
        let identity = self.store.current().unwrap()?;
        Some(check_certificate(&identity).unwrap().public_key)
    }
}

fn public_key(chain: &str) -> Vec<u8> {
    Leaf::of_pem(chain.as_bytes()).unwrap().public_key
}

/// TestUpdateSymlink. Its case "target missing" cannot occur: an update writes the target. Unlike
/// upstream, a file in the place of a link is replaced.
#[test]
fn update_symlink() {
    for what in [
        "current is a regular file",
        "updated is a regular file",
        "no symlink",
        "replaces existing symlink",
        "replaces a symlink to nothing",
    ] {
        let test = TestStore::new();
        let [current, updated] =
            [CURRENT, "kubelet-client-updated.pem"].map(|name| test.path(name));
        match what {
            "current is a regular file" => fs::write(&current, "a file").unwrap(),
            "updated is a regular file" => fs::write(&updated, "a file").unwrap(),
            "replaces a symlink to nothing" => symlink(test.path("nothing"), &current).unwrap(),
            "no symlink" => {}
            _ => {
                let (old, key) = test.pair();
                test.update(&old, &key, 1).unwrap();
            }
        }
        let (chain, key) = test.pair();
        test.update(&chain, &key, 2).unwrap();
        assert_eq!(test.current(), Some(public_key(&chain)), "{what}");
        assert!(current.is_symlink() && !updated.exists(), "{what}");
    }
}

/// An interrupted update is completed. Without its links, as FAT restores a store, or with a link
/// to the folder of another machine, the pair is used that ends last; of two, the newer one.
#[test]
fn recover() {
    let (a, b) =
        ("kubelet-client-2026-05-01-00-00-00.pem", "kubelet-client-2026-05-02-00-00-00.pem");
    for (what, current, updated, want) in [
        ("no links", None, None, b),
        ("only current", Some(a), None, a),
        ("current is a dangling link", Some("x"), None, b),
        ("interrupted before the rename", Some(a), Some(b), a),
        ("interrupted in a kubelet's update, after it removed current", None, Some(a), a),
        ("that, and current is a dangling link", Some("x"), Some(a), a),
    ] {
        let test = TestStore::new();
        let mut keys = Vec::new();
        for name in [a, b] {
            let (chain, key) = test.pair();
            test.folder.write(name, &format!("{chain}{}", key.pem()));
            keys.push((name, public_key(&chain)));
        }
        for (link, target) in [("current", current), ("updated", updated)] {
            if let Some(target) = target {
                let link = test.path(&format!("kubelet-client-{link}.pem"));
                symlink(test.path(target), link).unwrap();
            }
        }
        let ops = test.store.recover(&|_| true).unwrap();
        Disk::default().carry_out(ops).unwrap();
        let found = test.current();
        let found = keys.iter().find(|(_, key)| Some(key) == found.as_ref());
        assert_eq!(found.map(|(name, _)| *name), Some(want), "{what}");
    }
}

/// TestLoadFile.
#[test]
fn load_file() {
    let test = TestStore::new();
    let ((chain, key), (other, _)) = (test.pair(), test.pair());
    for (what, text) in [
        ("cert first", format!("{chain}{}", key.pem())),
        ("key first", format!("{}{chain}", key.pem())),
        ("chain", format!("{chain}{other}{}", key.pem())),
    ] {
        test.folder.write(CURRENT, &text);
        assert_eq!(test.current(), Some(public_key(&chain)), "{what}");
    }
}

/// TestUpdate. Its cases with and without a previous pair are in [`update_symlink`].
#[test]
fn update() {
    let test = TestStore::new();
    let ((second, key), (other, _)) = (test.pair(), test.pair());
    // Case "two certificates": the chain is kept, other text is dropped.
    let chain = format!("subject=a\r\n{second}\r\nsubject=b\n{other}");
    test.update(&chain, &key, 3).unwrap();
    let text = fs::read_to_string(test.path(CURRENT)).unwrap();
    assert_eq!(text, format!("{second}{other}{}", key.pem()).replace('\r', ""));
    // Case "bad data": an error, and nothing is replaced.
    for bad in ["", "not PEM", "-----BEGIN CERTIFICATE-----\n(\n-----END CERTIFICATE-----\n"] {
        assert!(test.update(bad, &key, 4).is_err(), "{bad}");
        assert_eq!(fs::read_to_string(test.path(CURRENT)).unwrap(), text);
    }
    assert!(!test.path("kubelet-client-2026-05-05-00-00-00.pem").exists());
}

/// TestCurrent.
#[test]
fn current() {
    let test = TestStore::new();
    // Case "none".
    assert_eq!(test.current(), None);
    // A path that cannot be resolved is an error; musl and glibc have different words for it.
    let current = test.path(CURRENT);
    symlink(&current, &current).unwrap();
    let why = cause(&nix::errno::Errno::ELOOP.into()).at(current.display());
    assert_eq!(test.store.current(), Err(why));
    fs::remove_file(current).unwrap();
    let ((chain, key), (other, _)) = (test.pair(), test.pair());
    // Case "cert and key files".
    test.folder.write("kubelet-client.crt", &chain);
    assert_eq!(test.current(), None);
    test.folder.write("kubelet-client.key", key.pem());
    assert_eq!(test.current(), Some(public_key(&chain)));
    // Case "chain".
    test.folder.write("kubelet-client.crt", &format!("{chain}{other}"));
    assert_eq!(test.current(), Some(public_key(&chain)));
    // Case "pair file": it wins over the other files.
    let (second, key) = test.pair();
    test.update(&second, &key, 2).unwrap();
    assert_eq!(test.current(), Some(public_key(&second)));
}

/// Test_buildClientCertificateManager (`server_bootstrap_test.go`) without a bootstrap, and case
/// "no bootstrap" of TestLoadClientConfig: a certificate embedded in the kubeconfig is stored. The
/// other cases are in `an_unusable_kubeconfig_is_replaced_and_a_usable_one_is_kept`.
#[test]
fn build_client_certificate_manager() {
    let signer = Signer::new();
    let [valid, valid_key] = signer.embedded("pi", 1, 90);
    let [expired, expired_key] = signer.embedded("pi", 1, 5);
    for (what, user, files, given) in [
        ("no cert data", TOKEN.to_owned(), 0, false),
        ("expired pair", pair(&expired, &expired_key), 2, true),
        ("valid pair", pair(&valid, &valid_key), 2, true),
    ] {
        let folder = Folder::new();
        folder.write("etc/kubelet.conf", &signer.kubeconfig(&user));
        let (_, start) = open(&folder.paths(false, true), day(10));
        assert_eq!(folder.stored().len(), files, "{what}");
        assert_eq!(start.replace_now, given, "{what}");
        assert_eq!(start.leaf.is_some(), given, "{what}");
    }
    // Case "garbage data": an error, and nothing is written.
    let folder = Folder::new();
    folder.write("etc/kubelet.conf", &signer.kubeconfig(&pair("'('", "')'")));
    assert!(Pki::open(Disk::default(), folder.paths(false, true), day(10)).is_err());
    assert_eq!(folder.stored(), [] as [&str; 0]);
}

/// TestNewManagerBootstrap (case "empty store and a given certificate"), TestNewManagerNoBootstrap
/// (case "the stored one wins, no haste"), TestGetCurrentCertificateOrBootstrap (cases "stored" and
/// "given").
#[test]
fn the_stored_certificate_wins_over_the_given_one() {
    for (days, looks) in [
        // Cases "the stored one wins, no haste" and "stored"; case "given": that has expired.
        (90, [(4, true), (60, false)]),
        // By a clock that is years ahead both have expired: the stored one must not be lost.
        (5, [(4000, true), (4, true)]),
    ] {
        let (_folder, signer, paths) = joined(1, days);
        // Case "empty store and a given certificate": it is used, and renewed at once.
        let (mut pki, start) = open(&paths, day(2));
        let given = start.leaf.unwrap();
        assert!(start.replace_now);
        let (kubeconfig, leaf) = renew(&mut pki, &signer, 3);
        assert_ne!(leaf.public_key, given.public_key);
        assert!(kubeconfig.certificate.unwrap().chain.file.is_some());
        for (at, is_stored) in looks {
            let (_, start) = open(&paths, day(at));
            let want = if is_stored { &leaf } else { &given };
            assert_eq!((start.leaf.as_ref(), start.replace_now), (Some(want), !is_stored), "{at}");
        }
        // What is left beside garbage, without another pair.
        Disk::default().carry_out(remove_certificates(&paths.cert_dir).unwrap()).unwrap();
        fs::write(paths.cert_dir.join(CURRENT), "garbage").unwrap();
        assert_eq!(open(&paths, day(4)).1.leaf, Some(given));
    }
}
