//! Upstream's cases of the certificate store and of the bootstrap: client-go
//! `certificate_store_test.go`, kubelet `bootstrap_test.go`, `server_bootstrap_test.go`.

use std::os::unix::fs::symlink;

use super::*;

/// A store with pair files `a` and `b`.
struct Shelf {
    folder: Folder,
    store: Store,
    signer: Signer,
}

impl Shelf {
    fn new() -> Self {
        let folder = Folder::new();
        fs::create_dir_all(&folder.0).unwrap();
        Self {
            store: Store::new(&folder.0).unwrap(),
            signer: Signer::new(),
            folder,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.0.join(name)
    }

    fn pair(&self) -> (String, Key) {
        let key = Key::generate().unwrap();
        let request = key.request(subject()).unwrap();
        (self.signer.sign(&request, 1, 90), key)
    }

    fn update(&self, chain: &str, key: &Key, at: u64) -> Result<(), String> {
        let ops = self.store.update(chain.as_bytes(), key, day(at))?;
        Disk::default().carry_out(ops)
    }

    fn current(&self) -> Option<Vec<u8>> {
        let identity = self.store.current().unwrap()?;
        Some(usable(&identity).unwrap().public_key)
    }
}

fn public_key(chain: &str) -> Vec<u8> {
    Leaf::of_pem(chain.as_bytes()).unwrap().public_key
}

#[test]
fn update_symlink() {
    for what in [
        "current is a regular file",
        "updated is a regular file",
        "no symlink",
        "replaces existing symlink",
        "replaces a symlink to nothing",
    ] {
        let shelf = Shelf::new();
        let (current, updated) = (
            shelf.path("kubelet-client-current.pem"),
            shelf.path("kubelet-client-updated.pem"),
        );
        let in_the_way = match what {
            "current is a regular file" => Some(&current),
            "updated is a regular file" => Some(&updated),
            "replaces existing symlink" => {
                let (old, key) = shelf.pair();
                shelf.update(&old, &key, 1).unwrap();
                None
            }
            "replaces a symlink to nothing" => {
                symlink(shelf.path("nothing"), &current).unwrap();
                None
            }
            _ => None,
        };
        let (chain, key) = shelf.pair();
        if let Some(path) = in_the_way {
            fs::write(path, "a file").unwrap();
            let want = format!("expected {path:?} to be a symlink but it is a file; move it away");
            assert_eq!(shelf.update(&chain, &key, 2), Err(want.clone()), "{what}");
            assert_eq!(shelf.store.recover(), Err(want), "{what}");
            assert_eq!(fs::read_to_string(path).unwrap(), "a file", "{what}");
            continue;
        }
        shelf.update(&chain, &key, 2).unwrap();
        assert_eq!(shelf.current(), Some(public_key(&chain)), "{what}");
        assert!(!updated.is_symlink(), "{what}");
    }
}

#[test]
fn recover() {
    for (what, current, updated, want) in [
        ("nothing there", None, None, None),
        ("current alone", Some("a"), None, Some("a")),
        ("cut off before the swap", Some("a"), Some("b"), Some("a")),
        (
            "cut off within a kubelet's swap",
            None,
            Some("b"),
            Some("b"),
        ),
        ("current leads nowhere", Some("x"), Some("b"), Some("b")),
    ] {
        let shelf = Shelf::new();
        let mut keys = Vec::new();
        for name in ["a", "b"] {
            let (chain, key) = shelf.pair();
            shelf.folder.write(name, &format!("{chain}{}", key.pem()));
            keys.push((name, public_key(&chain)));
        }
        for (link, target) in [("current", current), ("updated", updated)] {
            if let Some(target) = target {
                let link = shelf.path(&format!("kubelet-client-{link}.pem"));
                symlink(shelf.path(target), link).unwrap();
            }
        }
        let ops = shelf.store.recover().unwrap();
        Disk::default().carry_out(ops).unwrap();
        let found = shelf.current();
        let found = keys.iter().find(|(_, key)| Some(key) == found.as_ref());
        assert_eq!(found.map(|(name, _)| *name), want, "{what}");
    }
}

#[test]
fn load_file() {
    let shelf = Shelf::new();
    let ((chain, key), (other, _)) = (shelf.pair(), shelf.pair());
    for (what, text) in [
        ("cert first", format!("{chain}{}", key.pem())),
        ("key first", format!("{}{chain}", key.pem())),
        ("chain", format!("{chain}{other}{}", key.pem())),
    ] {
        shelf.folder.write("kubelet-client-current.pem", &text);
        assert_eq!(shelf.current(), Some(public_key(&chain)), "{what}");
    }
}

#[test]
fn update_pair() {
    let shelf = Shelf::new();
    let ((first, first_key), (second, key), (other, _)) =
        (shelf.pair(), shelf.pair(), shelf.pair());
    // Without a previous pair, and with one.
    shelf.update(&first, &first_key, 1).unwrap();
    assert_eq!(shelf.current(), Some(public_key(&first)));
    shelf.update(&second, &key, 2).unwrap();
    assert_eq!(shelf.current(), Some(public_key(&second)));
    // Two certificates: the chain is kept, what stands around it is not.
    let chain = format!("subject=a\r\n{second}\r\nsubject=b\n{other}");
    shelf.update(&chain, &key, 3).unwrap();
    let text = fs::read_to_string(shelf.path("kubelet-client-current.pem")).unwrap();
    assert_eq!(
        text,
        format!("{second}{other}{}", key.pem()).replace('\r', "")
    );
    // Bad data: an error, and nothing is replaced.
    for bad in [
        "",
        "not PEM",
        "-----BEGIN CERTIFICATE-----\n(\n-----END CERTIFICATE-----\n",
    ] {
        assert!(shelf.update(bad, &key, 4).is_err(), "{bad}");
        assert_eq!(
            fs::read_to_string(shelf.path("kubelet-client-current.pem")).unwrap(),
            text
        );
    }
    assert!(
        !shelf
            .path("kubelet-client-2026-05-05-00-00-00.pem")
            .exists()
    );
}

#[test]
fn current_of_files() {
    let shelf = Shelf::new();
    // Neither.
    assert_eq!(shelf.current(), None);
    let ((chain, key), (other, _)) = (shelf.pair(), shelf.pair());
    shelf.folder.write("kubelet-client.crt", &chain);
    assert_eq!(shelf.current(), None);
    shelf.folder.write("kubelet-client.key", key.pem());
    assert_eq!(shelf.current(), Some(public_key(&chain)));
    // A chain.
    shelf
        .folder
        .write("kubelet-client.crt", &format!("{chain}{other}"));
    assert_eq!(shelf.current(), Some(public_key(&chain)));
    // The pair file wins.
    let (second, key) = shelf.pair();
    shelf.update(&second, &key, 2).unwrap();
    assert_eq!(shelf.current(), Some(public_key(&second)));
}

/// kubelet's TestLoadClientConfig, for what we do of it.
#[test]
fn load_client_config() {
    let signer = Signer::new();
    let [cert, key] = signer.embedded(1, 90);
    let good = signer.kubeconfig(&format!(
        "client-certificate-data: {cert}, client-key-data: {key}"
    ));
    // Bootstrap invalid, kubeconfig valid: the kubeconfig is used, the other not looked at.
    let folder = Folder::new();
    folder.write("etc/kubelet.conf", &good);
    let (_, start) = open(&folder.paths(true, true), day(10));
    assert!(start.leaf.is_some());
    // Both: the kubeconfig.
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let (_, start) = open(&folder.paths(true, true), day(10));
    assert!(start.config.authorization.is_none());
    // Kubeconfig invalid: the bootstrap's credentials, for the request alone.
    folder.write("etc/kubelet.conf", "[");
    fs::remove_dir_all(folder.0.join("lib")).unwrap();
    let (pki, start) = open(&folder.paths(true, true), day(10));
    assert!(start.bootstrap.is_some());
    assert!(pki.bootstrap().unwrap().authorization.is_some());
    // Neither: an error that names the file.
    fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
    let error = Pki::open(folder.paths(true, true), subject(), day(10)).unwrap_err();
    assert!(error.contains("bootstrap.conf: no such file"), "{error}");
}

/// kubelet's Test_buildClientCertificateManager: data of a kubeconfig in the store.
#[test]
fn build_client_certificate_manager() {
    let signer = Signer::new();
    let [valid, valid_key] = signer.embedded(1, 90);
    let [expired, expired_key] = signer.embedded(1, 5);
    for (what, user, files, given) in [
        ("no cert data", TOKEN.to_owned(), 0, false),
        (
            "expired pair",
            format!("client-certificate-data: {expired}, client-key-data: {expired_key}"),
            2,
            true,
        ),
        (
            "valid pair",
            format!("client-certificate-data: {valid}, client-key-data: {valid_key}"),
            2,
            true,
        ),
    ] {
        let folder = Folder::new();
        folder.write("etc/kubelet.conf", &signer.kubeconfig(&user));
        let (_, start) = open(&folder.paths(false, true), day(10));
        assert_eq!(folder.stored().len(), files, "{what}");
        assert_eq!(start.given, given, "{what}");
        assert_eq!(start.leaf.is_some(), given, "{what}");
    }
    // Garbage data: an error, nothing written. Base64 that is no certificate is for TLS
    // to refuse, in the same start.
    let folder = Folder::new();
    folder.write(
        "etc/kubelet.conf",
        &signer.kubeconfig("client-certificate-data: '(', client-key-data: ')'"),
    );
    assert!(Pki::open(folder.paths(false, true), subject(), day(10)).is_err());
    assert_eq!(folder.stored(), [] as [&str; 0]);
}

/// client-go's TestGetCurrentCertificateOrBootstrap and TestNewManager(No)Bootstrap.
#[test]
fn the_stored_certificate_wins_over_the_given_one() {
    let signer = Signer::new();
    let [cert, key] = signer.embedded(1, 90);
    let folder = Folder::new();
    let user = format!("client-certificate-data: {cert}, client-key-data: {key}");
    folder.write("etc/kubelet.conf", &signer.kubeconfig(&user));
    let paths = folder.paths(false, true);
    // Empty store: the given one, and a new one at once.
    let (mut pki, start) = open(&paths, day(2));
    let given = start.leaf.unwrap();
    assert!(start.given);
    let request = pki.sign(false).unwrap();
    let (kubeconfig, leaf) = pki.install(&signer.sign(&request, 2, 20), day(3)).unwrap();
    assert_ne!(leaf.public_key, given.public_key);
    assert!(kubeconfig.certificate.unwrap().chain.file.is_some());
    // Then the stored one, no haste.
    let (_, start) = open(&paths, day(4));
    assert_eq!((start.leaf, start.given), (Some(leaf), false));
    // It has expired: the given one again.
    let (_, start) = open(&paths, day(40));
    assert_eq!((start.leaf, start.given), (Some(given), true));
}
