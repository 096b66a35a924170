//! Power cuts before, within and after each operation, with any subset of the unsynced operations
//! lost: the next start finds the old identity or the new one.

use super::*;
use crate::client::tls;
use crate::os::power_cut;

/// [`power_cut::survives`] for the operations of a [`Pki`].
fn survives<T>(folder: &Folder, act: impl FnOnce() -> (Pki, T), check: impl Fn(&T, &str)) -> usize {
    let act = || {
        let (pki, made) = act();
        (pki.disk.done, made)
    };
    power_cut::survives(&folder.0, act, check)
}

/// Opens the files. Fails unless the certificate is one of `one_of` and TLS can use it. Returns the
/// [`Pki`] if there is no certificate.
fn identity(paths: &IdentitySource, at: u64, one_of: &[&Leaf], state: &str) -> Option<Pki> {
    let (pki, start) = Pki::open(Disk::default(), paths.clone(), day(at)).expect(state);
    let Some(leaf) = start.leaf else {
        return Some(pki);
    };
    assert!(one_of.contains(&&leaf), "{state}");
    tls::client_config(&start.config).expect(state);
    None
}

fn renew(pki: &mut Pki, signer: &Signer, at: u64) -> Leaf {
    super::renew(pki, signer, at).1
}

#[test]
fn a_bootstrap_survives_a_power_cut() {
    // The first bootstrap, and one after the first certificate has expired.
    for (rotate, is_first) in [(false, true), (true, true), (false, false), (true, false)] {
        let (folder, signer, paths) = bootstrapping(rotate);
        let at = if is_first {
            1
        } else {
            renew(&mut open(&paths, day(1)).0, &signer, 1);
            assert!(open(&paths, day(60)).1.leaf.is_none() || rotate);
            fs::remove_file(&paths.kubeconfig).unwrap();
            60
        };
        let act = || {
            let (mut pki, _) = open(&paths, day(at));
            let request = pki.sign(false).unwrap();
            let chain = signer.sign(&request, 31, 50);
            let (_, leaf) = pki.install(&chain, day(at)).unwrap();
            (pki, (request.name, leaf))
        };
        let states = survives(&folder, act, |(name, leaf), state| {
            let Some(mut pki) = identity(&paths, at, &[leaf], state) else {
                return;
            };
            let is_kept = paths.cert_dir.join("kubelet-client.key.tmp").exists();
            let request = pki.sign(false).expect(state);
            assert!(!is_kept || request.name == *name, "{state}");
            let chain = signer.sign(&request, 31, 50);
            let (_, leaf) = pki.install(&chain, day(at)).expect(state);
            assert!(identity(&paths, at, &[&leaf], state).is_none(), "{state}");
        });
        println!("bootstrap, rotate {rotate}, first {is_first}: {states} states");
        assert!(states > 25, "{states}");
    }
}

/// The server may have issued the certificate meanwhile.
#[test]
fn a_request_survives_a_power_cut_until_its_certificate_is_stored() {
    let (folder, signer, paths) = bootstrapping(false);
    let (mut pki, _) = open(&paths, day(1));
    let name = pki.sign(false).unwrap().name;
    let act = || {
        let (mut pki, _) = open(&paths, day(1));
        let leaf = renew(&mut pki, &signer, 1);
        (pki, leaf)
    };
    let states = survives(&folder, act, |leaf, state| {
        if let Some(mut pki) = identity(&paths, 1, &[leaf], state) {
            assert_eq!(pki.sign(false).expect(state).name, name, "{state}");
        }
    });
    println!("request: {states} states");
    assert!(states > 25, "{states}");
}

#[test]
fn a_rotation_survives_a_power_cut() {
    for bootstrap in [false, true] {
        let (folder, signer, paths) = bootstrapping(true);
        let (mut pki, _) = open(&paths, day(1));
        let first = [1, 2].map(|at| renew(&mut pki, &signer, at)).into_iter().last().unwrap();
        // Without the token, only the stored certificate can be used.
        fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
        // An earlier version kept every pair.
        folder.write("lib/pki/kubelet-client-2026-01-02-00-00-00.pem", "old");
        let paths = folder.paths(bootstrap, true);
        let act = || {
            let (mut pki, _) = open(&paths, day(10));
            let leaf = renew(&mut pki, &signer, 10);
            // All that a card writes for a certificate.
            let written = |op: &Op| match op {
                Op::Write(_, _, content) => Some(content.len()),
                _ => None,
            };
            let written: Vec<usize> = pki.disk.done.iter().filter_map(written).collect();
            assert!(matches!(written[..], [700..1400]), "{written:?}");
            (pki, leaf)
        };
        let states = survives(&folder, act, |second, state| {
            assert!(identity(&paths, 10, &[&first, second], state).is_none(), "{state}");
            // The certificate can be renewed again, also with a leftover link.
            let (mut pki, _) = open(&paths, day(10));
            let third = renew(&mut pki, &signer, 11);
            assert!(identity(&paths, 10, &[&third], state).is_none(), "{state}");
            let pairs = folder.stored().into_iter().filter(|name| name.ends_with("-00.pem"));
            assert_eq!(pairs.count(), 2, "{state}");
        });
        println!("rotation: {states} states");
        assert!(states > 25, "{states}");
    }
}

/// The lifetime of a supervisor's certificate begins with its arrival, which is in the name of its
/// file: it is known whenever the certificate is.
#[test]
fn the_arrival_at_a_supervisor_survives_a_power_cut() {
    let (folder, signer, paths) = joined(1, 90);
    let paths = IdentitySource { kind: Some(CertificateKind::Supervisor), ..paths };
    // Valid since the birth of the CA, on day 0.
    let renew = |at: u64| {
        let (mut pki, start) = open(&paths, day(at));
        let request = pki.sign(false).unwrap();
        let (_, leaf) = pki.install(&signer.sign(&request, 1, 90), day(at)).unwrap();
        assert_eq!(leaf.not_before, day(0));
        (pki, start, leaf)
    };
    let (_, start, first) = renew(10);
    assert!(start.replace_now, "the certificate of the join");
    let act = || {
        let (pki, _, second) = renew(50);
        (pki, second)
    };
    let states = survives(&folder, act, |second, state| {
        let (_, start) = Pki::open(Disk::default(), paths.clone(), day(55)).expect(state);
        let leaf = start.leaf.expect(state);
        let arrival = if leaf.public_key == second.public_key {
            day(50)
        } else {
            assert_eq!(leaf.public_key, first.public_key, "{state}");
            day(10)
        };
        // A name that is taken is the next second's.
        let late = leaf.not_before.since(arrival).as_secs();
        assert!(leaf.not_before >= arrival && late < 60, "{late}: {state}");
        assert!(!start.replace_now, "{state}");
    });
    println!("arrival: {states} states");
    assert!(states > 20, "{states}");
}

/// Without a store, and with that of a former cluster.
#[test]
fn a_given_certificate_survives_a_power_cut() {
    for is_first in [true, false] {
        let (folder, signer) = (Folder::new(), Signer::new());
        let paths = folder.paths(false, true);
        if !is_first {
            folder.write("etc/kubelet.conf", &signer.kubeconfig_with_pair(1, 90));
            renew(&mut open(&paths, day(9)).0, &signer, 9);
        }
        folder.write("etc/kubelet.conf", &signer.kubeconfig_with_pair(1, 90));
        let act = || {
            let (pki, start) = open(&paths, day(10));
            assert!(start.replace_now);
            (pki, start.leaf.unwrap())
        };
        let states = survives(&folder, act, |leaf, state| {
            assert!(identity(&paths, 10, &[leaf], state).is_none(), "{state}");
        });
        println!("given: {states} states");
        assert!(states > 15, "{states}");
    }
}

/// The kubeconfig of a former cluster is removed first.
#[test]
fn a_bootstrap_for_another_cluster_survives_a_power_cut() {
    let ((folder, old, paths), new) = (bootstrapping(true), Signer::new());
    renew(&mut open(&paths, day(1)).0, &old, 1);
    folder.write("bootstrap.conf", &new.kubeconfig(TOKEN));
    let act = || {
        let (mut pki, start) = open(&paths, day(2));
        assert!(start.bootstrap.is_some());
        let leaf = renew(&mut pki, &new, 2);
        (pki, leaf)
    };
    let states = survives(&folder, act, |leaf, state| {
        if let Some(mut pki) = identity(&paths, 3, &[leaf], state) {
            let leaf = renew(&mut pki, &new, 3);
            assert!(identity(&paths, 4, &[&leaf], state).is_none(), "{state}");
        }
        let (_, start) = open(&paths, day(4));
        assert_eq!(start.config.ca.as_ref().unwrap().bytes, new.ca.as_bytes(), "{state}");
    });
    println!("another cluster: {states} states");
    assert!(states > 25, "{states}");
}

/// The kubeconfig of the former cluster names the link to the pair in use.
#[test]
fn a_bootstrap_for_another_cluster_that_is_cut_off_and_taken_back_shows_its_pair_to_nobody() {
    let ((folder, old, paths), new) = (bootstrapping(true), Signer::new());
    renew(&mut open(&paths, day(1)).0, &old, 1);
    let act = || {
        folder.write("bootstrap.conf", &new.kubeconfig(TOKEN));
        let (mut pki, start) = open(&paths, day(2));
        assert!(start.bootstrap.is_some());
        let leaf = renew(&mut pki, &new, 2);
        (pki, leaf)
    };
    let edited = std::cell::Cell::new(false);
    let states = survives(&folder, act, |_, state| {
        folder.write("bootstrap.conf", &old.kubeconfig(TOKEN));
        // In each second state a person has edited the kubeconfig.
        if edited.replace(!edited.get()) {
            let text = fs::read_to_string(&paths.kubeconfig).unwrap();
            fs::write(&paths.kubeconfig, format!("# edited\n{text}")).unwrap();
        }
        let (mut pki, start) = open(&paths, day(3));
        assert!(start.leaf.is_none_or(|leaf| leaf.not_before == day(0)), "{state}");
        if start.bootstrap.is_some() {
            renew(&mut pki, &old, 3);
        }
        let (_, start) = open(&paths, day(4));
        assert_eq!(start.bootstrap, None, "{state}");
        assert_ne!(start.leaf.unwrap().not_before, day(1), "{state}");
    });
    println!("taken back: {states} states");
    assert!(states > 25, "{states}");
}

/// A write can fail without a power cut, on a full or read-only disk: the process tries again.
#[test]
fn a_failed_operation_is_repeated_without_a_restart() {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let mut failures = 0;
    for power in 0.. {
        let _ = fs::remove_dir_all(folder.0.join("etc"));
        let _ = fs::remove_dir_all(folder.0.join("lib"));
        let paths = folder.paths(true, false);
        let disk = Disk { power: Some(power), ..Disk::default() };
        let (mut pki, _) = Pki::open(disk, paths.clone(), day(1)).unwrap();
        let mut fails = |pki: &mut Pki, result: Result<(), Fault>| {
            let failed = result.is_err();
            failures += usize::from(failed);
            if failed {
                assert_eq!(result, Err("the power failed".into()));
                pki.disk.power = None;
            }
            failed
        };
        let mut signed = pki.sign(false);
        if fails(&mut pki, signed.clone().map(drop)) {
            signed = pki.sign(false);
        }
        let chain = signer.sign(&signed.unwrap(), 1, 90);
        let mut installed = pki.install(&chain, day(1)).map(drop);
        if fails(&mut pki, installed.clone()) {
            installed = pki.install(&chain, day(1)).map(drop);
        }
        installed.unwrap();
        let is_over = pki.disk.power.is_some_and(|power| pki.disk.done.len() <= power);
        assert!(identity(&paths, 1, &[&Leaf::of_pem(chain.as_bytes()).unwrap()], "").is_none());
        if is_over {
            break;
        }
    }
    println!("{failures} failures");
    assert!(failures > 10, "{failures}");
}
