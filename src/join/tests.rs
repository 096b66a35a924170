//! Power cuts while `nodelet join` writes, and a token that is given as a file.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use zeroize::Zeroizing;

use super::files::{Places, Written};
use super::steps::parsed;
use crate::core::join::command::TokenSource;
use crate::files::power_cut;
use crate::files::read::read;
use crate::files::tree::Tree;
use crate::files::write::Disk;

fn new(kubeconfig: bool) -> Written {
    let text = Some(Zeroizing::new("the new identity".to_owned()));
    let (kubeconfig, bootstrap) = match kubeconfig {
        true => (text, None),
        false => (None, text),
    };
    Written {
        kubeconfig,
        bootstrap,
        flags: vec!["--new".to_owned()],
    }
}

fn written(places: &Places, new: Written) -> Disk {
    let mut disk = Disk::default();
    let (ops, paths) = places.write(new).unwrap();
    disk.carry_out(ops).unwrap();
    assert_eq!(paths.len(), 2);
    disk
}

fn text(path: &Path) -> String {
    read(path).map_or(String::new(), |bytes| String::from_utf8(bytes).unwrap())
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).map_or(true, |entries| entries.count() == 0)
}

/// Each state is the old identity, or none, or the new one with its flags and without a certificate
/// of the old cluster; and the same join again gives the new one.
#[test]
fn a_power_cut_at_any_operation_leaves_one_identity() {
    for (is_first, kubeconfig) in [(true, true), (true, false), (false, true), (false, false)] {
        let tree = Tree::new("join-power");
        let places = Places::new(Some(tree.path()));
        if !is_first {
            tree.write("etc/credstore/nodelet.kubeconfig", b"the old identity");
            tree.write("etc/default/nodelet-join", b"NODELET_JOIN_FLAGS=--old\n");
            tree.write("var/lib/nodelet/kubeconfig", b"the old identity");
            tree.write("var/lib/nodelet/pki/kubelet-client-1.pem", b"old");
            std::os::unix::fs::symlink(
                "kubelet-client-1.pem",
                tree.path()
                    .join("var/lib/nodelet/pki/kubelet-client-current.pem"),
            )
            .unwrap();
        }
        let act = || (written(&places, new(kubeconfig)).done, ());
        let paths = [places.kubeconfig(), places.bootstrap()];
        let states = power_cut::survives(tree.path(), act, |(), state| {
            let texts = paths.each_ref().map(|path| text(path));
            let is_new = texts.iter().any(|text| text == "the new identity");
            for text in &texts {
                let known = ["", "the old identity", "the new identity"];
                assert!(known.contains(&text.as_str()), "{text}: {state}");
            }
            if is_new {
                let flags = text(&places.flags());
                assert!(
                    flags.contains("NODELET_JOIN_FLAGS=--new\n"),
                    "{flags}: {state}"
                );
                assert!(is_empty(&places.cert_dir()), "{state}");
                assert!(!texts.contains(&"the old identity".to_owned()), "{state}");
            }
            if texts.contains(&"the old identity".to_owned()) {
                assert!(text(&places.flags()).contains("--old"), "{state}");
            }
            written(&places, new(kubeconfig));
            let texts = paths.each_ref().map(|path| text(path));
            let want = match kubeconfig {
                true => ["the new identity", ""],
                false => ["", "the new identity"],
            };
            assert_eq!(texts, want, "{state}");
            assert!(is_empty(&places.cert_dir()), "{state}");
        });
        assert!(states > 10, "{states}");
    }
}

/// The first password for a name is the only one that the supervisor will ever accept: it is sent
/// after these operations, so none of them may be lost then. Before, there is none or the whole one.
#[test]
fn a_node_password_is_stored_before_it_is_sent() {
    for has_folder in [false, true] {
        let tree = Tree::new("password-power");
        let places = Places::new(Some(tree.path()));
        if has_folder {
            tree.write("etc/credstore/nodelet.token", b"another credential");
        }
        let act = || {
            let mut disk = Disk::default();
            disk.carry_out(places.write_password("0123456789abcdef"))
                .unwrap();
            (disk.done, ())
        };
        let states = power_cut::survives(tree.path(), act, |(), state| {
            let password = text(&places.password());
            assert!(
                ["", "0123456789abcdef"].contains(&password.as_str()),
                "{state}"
            );
            assert_eq!(password.is_empty(), !places.password().exists(), "{state}");
        });
        assert!(states > 5, "{states}");
    }
}

/// A reset that is cut can be repeated, and never leaves a certificate in use without the rest.
#[test]
fn a_power_cut_of_a_reset_is_repeated() {
    let tree = Tree::new("reset-power");
    let places = Places::new(Some(tree.path()));
    written(&places, new(true));
    tree.write("var/lib/nodelet/pki/kubelet-client-1.pem", b"old");
    tree.write("var/lib/nodelet/pki/other.pem", b"stays");
    let act = || {
        let mut disk = Disk::default();
        let (report, removed) = super::reset::carry_out(&mut disk, &places, false);
        assert_eq!((report.failed().len(), removed.len()), (0, 3));
        (disk.done, ())
    };
    let states = power_cut::survives(tree.path(), act, |(), state| {
        let (report, _) = super::reset::carry_out(&mut Disk::default(), &places, false);
        assert_eq!(report.failed().len(), 0, "{state}");
        for path in [places.kubeconfig(), places.flags()] {
            assert_eq!(text(&path), "", "{state}");
        }
        assert_eq!(text(&places.cert_dir().join("other.pem")), "stays");
    });
    assert!(states > 5, "{states}");
}

#[test]
fn a_token_as_the_name_of_its_file_is_not_shown() {
    let hash = "45".repeat(32);
    for (name, want) in [
        ("lwxivu.2uczm8x4xi2v7hqd", "use --token"),
        (&format!("K10{hash}::server:x"), "use --token"),
        (
            "/nowhere/token",
            "--token-file /nowhere/token: no such file",
        ),
    ] {
        let (_, line) = parsed(&TokenSource::File(name.into())).unwrap_err();
        assert!(line.contains(want), "{line}");
        assert_eq!(line.contains(name), name.starts_with('/'), "{line}");
    }
}
