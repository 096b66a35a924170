//! The power fails before, within and after each operation, and of what was not synced
//! any part is lost: the next start has the old identity or the new one.

use std::os::unix::fs::symlink;

use super::*;
use crate::files::write::Op;

/// The folder whose names an operation changes.
fn changes(op: &Op) -> Option<PathBuf> {
    match op {
        Op::Folder(path)
        | Op::Write(path, ..)
        | Op::Link(_, path)
        | Op::Rename(_, path)
        | Op::Remove(path) => Some(write::parent(path)),
        Op::Sync(_) => None,
    }
}

/// Which of these operations may be lost when the power fails after them.
fn volatile(ops: &[Op]) -> Vec<usize> {
    let is_volatile = |index: &usize| {
        let Some(folder) = changes(&ops[*index]) else {
            return false;
        };
        !ops[index + 1..].contains(&Op::Sync(folder))
    };
    (0..ops.len()).filter(is_volatile).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&from, &to),
            kind if kind.is_symlink() => symlink(fs::read_link(from).unwrap(), to).unwrap(),
            _ => drop(fs::copy(from, to).unwrap()),
        }
    }
}

/// Does it once, then lets the power fail wherever it can; how often that was.
fn survives<T>(folder: &Folder, act: impl FnOnce() -> (Pki, T), check: impl Fn(&T, &str)) -> usize {
    let before = Folder::new();
    copy(&folder.0, &before.0);
    let (pki, made) = act();
    let ops = pki.disk.done;
    assert_eq!(
        volatile(&ops),
        [] as [usize; 0],
        "lost after the end: {ops:#?}"
    );
    let mut states = 0;
    let mut fails = |done: &[Op], lost: &[usize], torn: Option<(&Path, &[u8])>| {
        fs::remove_dir_all(&folder.0).unwrap();
        copy(&before.0, &folder.0);
        for (index, op) in done.iter().enumerate() {
            if !lost.contains(&index) {
                // What depends on something that was lost is lost as well.
                let _ = op.carry_out();
            }
        }
        if let Some((path, content)) = torn {
            let _ = fs::write(path, content);
        }
        states += 1;
        let done: Vec<String> = done.iter().map(|op| format!("{op:?}")).collect();
        check(&made, &format!("lost {lost:?} of {done:#?}, {torn:?}"));
    };
    for n in 0..=ops.len() {
        let (done, volatile) = (&ops[..n], volatile(&ops[..n]));
        assert!(volatile.len() < 8, "{volatile:?} of {done:?}");
        for subset in 0..1_usize << volatile.len() {
            let lost = volatile.iter().enumerate();
            let lost = lost.filter(|(bit, _)| subset >> bit & 1 == 1);
            let lost: Vec<usize> = lost.map(|(_, index)| *index).collect();
            fails(done, &lost, None);
            if let Some(Op::Write(path, _, content)) = ops.get(n) {
                fails(done, &lost, Some((path, b"")));
                fails(done, &lost, Some((path, &content[..content.len() / 2])));
            }
        }
    }
    states
}

/// Whatever is there now, it is one of these, or none; TLS can use it.
fn identity(paths: &Paths, at: u64, one_of: &[&Leaf], state: &str) -> Option<Pki> {
    let (pki, start) = Pki::open(paths.clone(), subject(), day(at)).expect(state);
    let Some(leaf) = start.leaf else {
        return Some(pki);
    };
    assert!(one_of.contains(&&leaf), "{state}");
    tls::client_config(&start.config).expect(state);
    None
}

/// Asks with a board that has just been started, and is given a certificate.
fn renew(pki: &mut Pki, signer: &Signer, at: u64) -> Leaf {
    let request = pki.sign(false).unwrap();
    let may = u8::try_from(at).unwrap();
    pki.install(&signer.sign(&request, may, 50), day(at))
        .unwrap()
        .1
}

#[test]
fn a_bootstrap_survives_a_power_cut() {
    // The first one, and one after the certificate of the first has expired.
    for (rotate, is_first) in [(false, true), (true, true), (false, false), (true, false)] {
        let (folder, signer) = (Folder::new(), Signer::new());
        folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
        let paths = folder.paths(true, rotate);
        let at = match is_first {
            true => 1,
            false => {
                renew(&mut open(&paths, day(1)).0, &signer, 1);
                assert!(open(&paths, day(60)).1.leaf.is_none() || rotate);
                fs::remove_file(&paths.kubeconfig).unwrap();
                60
            }
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

/// Nor is a request lost that the server has, and may have answered meanwhile.
#[test]
fn a_request_survives_a_power_cut_until_its_certificate_is_there() {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let paths = folder.paths(true, false);
    let (mut pki, _) = open(&paths, day(1));
    let name = pki.sign(false).unwrap().name;
    let act = || {
        let (mut pki, _) = open(&paths, day(1));
        let request = pki.sign(false).unwrap();
        let chain = signer.sign(&request, 1, 50);
        let (_, leaf) = pki.install(&chain, day(1)).unwrap();
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
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let (mut pki, _) = open(&folder.paths(true, true), day(1));
    let first = renew(&mut pki, &signer, 1);
    // From now on no token helps.
    fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
    for (bootstrap, at) in [(false, 10), (true, 11)] {
        let paths = folder.paths(bootstrap, true);
        let act = || {
            let (mut pki, _) = open(&paths, day(at));
            let leaf = renew(&mut pki, &signer, at);
            (pki, leaf)
        };
        let states = survives(&folder, act, |second, state| {
            assert!(
                identity(&paths, at, &[&first, second], state).is_none(),
                "{state}"
            );
            // And it can be renewed again, by a link that is left over if need be.
            let (mut pki, _) = open(&paths, day(at));
            let third = renew(&mut pki, &signer, at + 1);
            assert!(identity(&paths, at, &[&third], state).is_none(), "{state}");
        });
        println!("rotation: {states} states");
        assert!(states > 20, "{states}");
        // The next round begins where the first one did.
        let pair = paths
            .cert_dir
            .join("kubelet-client-2026-05-02-00-00-00.pem");
        let current = paths.cert_dir.join("kubelet-client-current.pem");
        fs::remove_file(&current).unwrap();
        symlink(pair, current).unwrap();
    }
}

#[test]
fn a_certificate_that_was_given_survives_a_power_cut() {
    let (folder, signer) = (Folder::new(), Signer::new());
    let [cert, key] = signer.embedded(1, 90);
    let user = format!("client-certificate-data: {cert}, client-key-data: {key}");
    folder.write("etc/kubelet.conf", &signer.kubeconfig(&user));
    let paths = folder.paths(false, true);
    let act = || {
        let (pki, start) = open(&paths, day(10));
        assert!(start.given);
        (pki, start.leaf.unwrap())
    };
    let states = survives(&folder, act, |leaf, state| {
        assert!(identity(&paths, 10, &[leaf], state).is_none(), "{state}");
    });
    println!("given: {states} states");
    assert!(states > 20, "{states}");
}

/// A full or read-only disk, too, is an operation that fails: the same process goes on.
#[test]
fn what_failed_is_done_again_without_a_restart() {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
    let mut failures = 0;
    for power in 0.. {
        let _ = fs::remove_dir_all(folder.0.join("etc"));
        let _ = fs::remove_dir_all(folder.0.join("lib"));
        let paths = folder.paths(true, false);
        let disk = Disk {
            power: Some(power),
            ..Disk::default()
        };
        let (mut pki, _) = Pki::open_on(disk, paths.clone(), subject(), day(1)).unwrap();
        let mut fails = |pki: &mut Pki, result: Result<(), String>| {
            let failed = result.is_err();
            failures += usize::from(failed);
            if failed {
                assert_eq!(result, Err("the power failed".to_owned()));
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
        let is_over = pki
            .disk
            .power
            .is_some_and(|power| pki.disk.done.len() <= power);
        assert!(identity(&paths, 1, &[&Leaf::of_pem(chain.as_bytes()).unwrap()], "").is_none());
        if is_over {
            break;
        }
    }
    println!("{failures} failures");
    assert!(failures > 10, "{failures}");
}
