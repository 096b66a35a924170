//! A stored certificate of one cluster and new files of another one, also where an agent of the
//! former cluster still runs; and a CA that is rotated.

use super::*;

/// Renews the certificate of `paths`.
fn renewed(paths: &IdentitySource, signer: &Signer, at: u64) -> Leaf {
    renew(&mut open(paths, day(at)).0, signer, at).1
}

/// Keeps so many marks of the stored pair: a former version wrote fewer, another program none.
fn keep_marks(paths: &IdentitySource, kept: usize) {
    let current = paths.cert_dir.join(CURRENT);
    let text = fs::read_to_string(&current).unwrap();
    let (pair, line) = text.split_once("# kubeconfig: ").unwrap();
    let marks: Vec<&str> = line.trim().split(' ').take(kept).collect();
    assert!(line.ends_with('\n') && marks.iter().all(|mark| mark.len() == 43), "{line}");
    let line = format!("# kubeconfig: {}\n", marks.join(" "));
    fs::write(current, [pair, &line].concat()).unwrap();
}

#[test]
fn a_new_kubeconfig_wins_over_the_certificate_of_a_former_cluster() {
    let (old, new) = (&Signer::new(), &Signer::new());
    for (what, kept, signer, given, want_new) in [
        ("a new cluster", 3, new, (4, 90), true),
        ("its certificate is older than the stored one", 3, new, (1, 90), true),
        // The clock may be ahead, and the other certificate is of no use there.
        ("its certificate has expired", 3, new, (1, 5), true),
        ("a backup of the former kubeconfig", 3, old, (1, 5), false),
        ("the store of an earlier version", 1, new, (1, 90), true),
        ("that, and a backup of the former kubeconfig", 1, old, (1, 5), false),
        ("the store of another program", 0, new, (4, 90), true),
        ("that, and the times do not tell", 0, new, (1, 90), false),
        ("that, and it has expired", 0, new, (4, 5), false),
    ] {
        let folder = Folder::new();
        folder.write("etc/kubelet.conf", &old.kubeconfig_with_pair(1, 90));
        let paths = folder.paths(false, true);
        let stored = renewed(&paths, old, 3);
        keep_marks(&paths, kept);
        assert_eq!(open(&paths, day(9)).1.leaf, Some(stored.clone()), "{what}: no change");
        let text = signer.kubeconfig_with_pair(given.0, given.1);
        folder.write("etc/kubelet.conf", &text);
        let (_, start) = open(&paths, day(9));
        assert_eq!(start.leaf != Some(stored), want_new, "{what}");
        assert_eq!(start.replace_now, want_new, "{what}: renewed at once");
        let renewed = renewed(&paths, signer, 10);
        assert_eq!(open(&paths, day(11)).1.leaf, Some(renewed), "{what}");
    }
}

/// `nodelet join` adds a CA to the kubeconfig, and writes the certificate that is in use into it.
#[test]
fn a_kubeconfig_with_the_certificate_of_the_stored_pair_is_not_new() {
    let (folder, signer, paths) = joined(1, 90);
    let (mut pki, _) = open(&paths, day(1));
    let (used, leaf) = renew(&mut pki, &signer, 3);
    let text = render(&used, &KubeconfigUser::Inline(used.certificate.as_ref().unwrap())).unwrap();
    folder.write("etc/kubelet.conf", &text);
    let (_, start) = open(&paths, day(4));
    assert_eq!((start.leaf, start.replace_now), (Some(leaf), false));
    assert_eq!(start.config.certificate, used.certificate);
}

/// The bootstrap kubeconfig of the former cluster names a file with its CA, so the pair has the mark
/// of no certificate. k3s dates a certificate back to the birth of its CA, so the times do not tell.
#[test]
fn a_join_that_is_cut_before_it_removes_a_bootstrapped_pair_counts() {
    let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
    folder.write("ca.pem", &old.ca);
    let inline = format!("certificate-authority-data: {}", Pem(&old.ca));
    let file = format!("certificate-authority: {}", folder.0.join("ca.pem").display());
    folder.write("bootstrap.conf", &old.kubeconfig(TOKEN).replace(&inline, &file));
    let paths = folder.paths(true, true);
    let stored = renewed(&paths, &old, 3);
    assert_eq!(open(&paths, day(4)).1.leaf, Some(stored));
    folder.write("etc/kubelet.conf", &new.kubeconfig_with_pair(2, 90));
    let (_, start) = open(&folder.paths(false, true), day(5));
    assert_eq!(start.leaf.unwrap().not_before, day(1));
}

/// `nodelet check` and a later boot without the credentials read the kubeconfig, too.
#[test]
fn a_bootstrap_writes_a_ca_that_is_a_credential_into_the_kubeconfig() {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("credentials/ca", &signer.ca);
    folder.write("ca.pem", &signer.ca);
    let inline = format!("certificate-authority-data: {}", Pem(&signer.ca));
    for (file, is_read) in [("credentials/ca", true), ("ca.pem", false)] {
        let ca = folder.0.join(file);
        let named = format!("certificate-authority: {}", ca.display());
        folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN).replace(&inline, &named));
        let mut paths = folder.paths(true, true);
        paths.credentials = Some(folder.0.join("credentials"));
        renewed(&paths, &signer, 3);
        // A rotation of the cluster's CA: its first step is a file with both.
        let both = format!("{}{}", signer.ca, Signer::new().ca);
        folder.write(file, &both);
        let (_, start) = open(&paths, day(4));
        assert_eq!(start.bootstrap, None, "{file}");
        assert_eq!(start.config.ca.unwrap().bytes, both.as_bytes(), "{file}");
        let _ = fs::remove_dir_all(folder.0.join("credentials"));
        let there = IdentitySource { credentials: None, ..folder.paths(true, true) };
        let (_, start) = open(&there, day(4));
        assert_eq!(start.bootstrap, None, "{file}");
        let config = start.config.ca.unwrap();
        assert_eq!(config.file, (!is_read).then_some(ca), "{file}");
        assert_eq!(config.bytes, both.as_bytes(), "{file}");
        fs::remove_dir_all(folder.0.join("etc")).unwrap();
        fs::remove_dir_all(folder.0.join("lib")).unwrap();
    }
}

/// An automation gave this board the files of another one.
#[test]
fn a_certificate_of_another_node_never_replaces_one_of_this_node() {
    let signer = Signer::new();
    let of = |name: &str, from, days| signer.kubeconfig(&signer.pair_of(name, from, days));
    let name = |start: &Start| {
        let leaf = start.leaf.as_ref().map(|leaf| leaf.subject.common_name.clone());
        leaf.unwrap_or_else(|| start.bootstrap.clone().unwrap_or_default().what)
    };
    let (own, other) = ("system:node:pi-3", "system:node:pi-4");
    let bootstrap = "the certificate is for the node pi-4, but this node is pi-3";
    for (bootstraps, stored, given, want) in [
        (false, (own, 1, 90), (other, 4, 90), own),
        // The own one has expired: the files are read until there is another own one.
        (false, (own, 1, 2), (other, 4, 90), own),
        (false, (own, 1, 2), (own, 4, 90), own),
        (false, (other, 4, 90), (own, 1, 90), own),
        (false, (other, 1, 90), (other, 4, 90), other),
        // An administrator may write any Node.
        (false, (own, 1, 90), ("admin", 4, 90), "admin"),
        (true, (own, 1, 90), (other, 4, 90), own),
        (true, (other, 1, 90), (other, 4, 90), bootstrap),
        (true, (own, 1, 2), (other, 4, 90), bootstrap),
    ] {
        let what = format!("{bootstraps} {stored:?} {given:?}");
        let folder = Folder::new();
        let paths = folder.paths(bootstraps, true);
        folder.write("bootstrap.conf", &signer.kubeconfig(TOKEN));
        folder.write("etc/kubelet.conf", &of(stored.0, stored.1, stored.2));
        let (mut running, _) = open(&paths, day(1));
        folder.write("etc/kubelet.conf", &of(given.0, given.1, given.2));
        let (mut pki, start) = open(&paths, day(9));
        assert!(name(&start).ends_with(want), "{what}: {}", name(&start));
        let found =
            running.find(Ok(()), day(9), None).unwrap().map(|(_, leaf)| leaf.subject.common_name);
        let is_found = (stored.2 > 2 || given.0 == own) && [own, "admin"].contains(&want);
        assert_eq!(found.as_deref(), is_found.then_some(want), "{what}");
        if bootstraps {
            renew(&mut pki, &signer, 9);
            assert_eq!(name(&open(&paths, day(10)).1), own, "{what}");
        }
    }
}

/// A person has put the kubeconfig of another cluster there, and takes it away again.
#[test]
fn a_pair_of_a_kubeconfig_of_a_person_is_not_of_the_clusters_of_the_bootstrap() {
    let (folder, own, other) = (Folder::new(), Signer::new(), Signer::new());
    folder.write("bootstrap.conf", &own.kubeconfig(TOKEN));
    let paths = folder.paths(true, true);
    folder.write("etc/kubelet.conf", &other.kubeconfig_with_pair(1, 90));
    for is_renewed in [false, true] {
        let (mut pki, start) = open(&paths, day(3));
        assert_eq!(start.bootstrap, None);
        if is_renewed {
            renew(&mut pki, &other, 3);
        }
        fs::rename(&paths.kubeconfig, folder.0.join("away")).unwrap();
        let (_, start) = open(&paths, day(4));
        assert!(start.bootstrap.is_some(), "{is_renewed}: {start:?}");
        fs::rename(folder.0.join("away"), &paths.kubeconfig).unwrap();
    }
}

/// `nodelet join --force`: the agent has a copy of its kubeconfig, and renews after the join.
#[test]
fn an_agent_of_the_former_cluster_that_renews_after_a_join_does_not_lose_the_board() {
    let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
    folder.write("copy.conf", &old.kubeconfig_with_pair(1, 90));
    folder.write("etc/kubelet.conf", &new.kubeconfig_with_pair(2, 90));
    let joined = folder.paths(false, true);
    let copy = IdentitySource { kubeconfig: folder.0.join("copy.conf"), ..joined.clone() };
    let (mut agent, _) = open(&copy, day(1));
    let ops = remove_certificates(&joined.cert_dir).unwrap();
    Disk::default().carry_out(ops).unwrap();
    let (_, stale) = renew(&mut agent, &old, 3);
    let (mut pki, start) = open(&joined, day(4));
    assert_ne!(start.leaf, Some(stale));
    assert_eq!(start.leaf.as_ref().unwrap().not_before, day(1), "that of the join");
    let (_, leaf) = renew(&mut pki, &new, 4);
    assert_eq!(open(&joined, day(5)).1.leaf, Some(leaf));
}

/// An API server takes a certificate before a token.
#[test]
fn beside_a_token_no_stored_certificate_is_sent() {
    let (folder, signer) = (Folder::new(), Signer::new());
    folder.write("etc/kubelet.conf", &signer.kubeconfig_with_pair(1, 90));
    let paths = folder.paths(false, true);
    renewed(&paths, &signer, 2);
    folder.write("etc/kubelet.conf", &signer.kubeconfig(TOKEN));
    let (_, start) = open(&paths, day(3));
    assert_eq!((start.config.certificate, start.leaf), (None, None));
    assert!(start.config.authorization.is_some());
}

/// The same with `--bootstrap-only`; the agent also writes its kubeconfig again. Also a bootstrap
/// kubeconfig that is replaced by hand.
#[test]
fn a_bootstrap_kubeconfig_of_another_cluster_replaces_the_identity() {
    for (agent_renews, rotate) in [(true, true), (false, true), (false, false)] {
        let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
        folder.write("copy.conf", &old.kubeconfig(TOKEN));
        folder.write("bootstrap.conf", &new.kubeconfig(TOKEN));
        let joined = folder.paths(true, rotate);
        let copy = IdentitySource { bootstrap: Some(folder.0.join("copy.conf")), ..joined.clone() };
        let (mut agent, _) = open(&copy, day(1));
        renew(&mut agent, &old, 1);
        if agent_renews {
            fs::remove_file(&joined.kubeconfig).unwrap();
            let ops = remove_certificates(&joined.cert_dir).unwrap();
            Disk::default().carry_out(ops).unwrap();
            renew(&mut agent, &old, 2);
            assert!(joined.kubeconfig.exists());
        }
        let (mut pki, start) = open(&joined, day(3));
        assert!(start.bootstrap.is_some_and(|why| why.what.contains("of another cluster")));
        // Nothing is removed before its successor has worked; after a power cut the same again.
        assert!(joined.kubeconfig.exists());
        assert!(open(&joined, day(3)).1.bootstrap.is_some());
        let (_, leaf) = renew(&mut pki, &new, 3);
        let (_, start) = open(&joined, day(4));
        assert_eq!(start.leaf, Some(leaf));
        assert_eq!(start.config.ca.as_ref().unwrap().bytes, new.ca.as_bytes());
    }
}

/// The certificate has expired while the board was off, and the server has moved. The kubeconfig
/// of the former address cannot be replaced, or the power fails before that.
#[test]
fn a_bootstrap_kubeconfig_that_was_used_replaces_the_address_of_the_server() {
    for rotate in [false, true] {
        let (folder, signer, paths) = bootstrapping(rotate);
        renew(&mut open(&paths, day(1)).0, &signer, 1);
        let former = fs::read_to_string(&paths.kubeconfig).unwrap();
        let moved = signer.kubeconfig(TOKEN).replace("10.0.0.1", "10.0.0.9");
        folder.write("bootstrap.conf", &moved);
        let host = |start: &Start| {
            assert!(start.bootstrap.is_none(), "{rotate}");
            start.config.endpoint.host.clone()
        };
        assert_eq!(host(&open(&paths, day(9)).1), "10.0.0.1", "the kubeconfig is valid");
        let (mut pki, start) = open(&paths, day(60));
        assert!(start.bootstrap.is_some());
        let request = pki.sign(false).unwrap();
        let (used, leaf) = pki.install(&signer.sign(&request, 31, 50), day(60)).unwrap();
        assert_eq!(used.endpoint.host, "10.0.0.9");
        assert!(fs::read_to_string(&paths.kubeconfig).unwrap().contains("10.0.0.9"));
        assert_eq!(host(&open(&paths, day(61)).1), "10.0.0.9");
        fs::write(&paths.kubeconfig, &former).unwrap();
        let (mut pki, start) = open(&paths, day(62));
        assert_eq!((host(&start).as_str(), start.leaf), ("10.0.0.9", Some(leaf)));
        assert!(fs::read_to_string(&paths.kubeconfig).unwrap().contains("10.0.0.9"));
        // One that was installed since counts: the next pair does not remember the former one.
        pki.keep_kubeconfig(&start.config);
        let request = pki.sign(false).unwrap();
        pki.install(&signer.sign(&request, 31, 60), day(63)).unwrap();
        fs::write(&paths.kubeconfig, &former).unwrap();
        assert_eq!(host(&open(&paths, day(64)).1), "10.0.0.1");
    }
}

/// The clock is ahead for a moment: the pair that the board was installed with, which is valid for
/// longer, would take the place of the renewed one.
#[test]
fn a_search_that_finds_nothing_stores_nothing() {
    let (folder, signer) = (Folder::new(), Signer::new());
    let paths = folder.paths(false, true);
    folder.write("etc/kubelet.conf", &signer.kubeconfig_with_pair(1, 90));
    let (mut pki, _) = open(&paths, day(1));
    let (_, renewed) = renew(&mut pki, &signer, 1);
    assert_eq!(pki.find(Ok(()), day(100), None), Ok(None));
    pki.carry_out_later();
    assert_eq!(open(&paths, day(2)).1.leaf, Some(renewed));
}

/// The clock was ahead when the files were read, and is right when the own certificate is renewed.
#[test]
fn a_kubeconfig_that_only_seemed_to_be_expired_is_kept() {
    let (folder, signer, paths) = bootstrapping(true);
    let (mut pki, _) = open(&paths, day(1));
    let (own, _) = renew(&mut pki, &signer, 1);
    let moved = signer.kubeconfig(TOKEN).replace("10.0.0.1", "10.0.0.9");
    folder.write("bootstrap.conf", &moved);
    assert_eq!(pki.find(Ok(()), day(60), None), Ok(None));
    pki.keep_kubeconfig(&own);
    let (used, _) = renew(&mut pki, &signer, 9);
    assert_eq!(used.endpoint.host, "10.0.0.1");
    assert!(fs::read_to_string(&paths.kubeconfig).unwrap().contains("10.0.0.1"));
}

/// The bootstrap kubeconfig was removed after the rollout, and the clock is ahead for a while after
/// a start: the server judges the certificate, and its time is known after the first response.
#[test]
fn without_a_bootstrap_kubeconfig_a_start_uses_an_expired_certificate() {
    for rotate in [false, true] {
        let (folder, signer, paths) = bootstrapping(rotate);
        let (_, leaf) = renew(&mut open(&paths, day(1)).0, &signer, 1);
        fs::remove_file(folder.0.join("bootstrap.conf")).unwrap();
        let (mut pki, start) = open(&paths, day(60));
        assert_eq!((&start.bootstrap, &start.leaf), (&None, &Some(leaf.clone())), "{rotate}");
        assert!(start.config.certificate.is_some());
        // It is no certificate that a search finds.
        assert_eq!(pki.find(Ok(()), day(60), None), Ok(None), "{rotate}");
        assert_eq!(pki.find(Ok(()), day(2), None).unwrap().unwrap().1, leaf, "{rotate}");
        let (_, renewed) = renew(&mut pki, &signer, 3);
        assert_eq!(open(&paths, day(4)).1.leaf, Some(renewed), "{rotate}");
        // There is nothing else to begin with.
        fs::remove_file(&paths.kubeconfig).unwrap();
        assert!(Pki::open(Disk::default(), paths, day(4)).is_err(), "{rotate}");
    }
}

/// On a read-only /etc the kubeconfig of the former cluster stays for ever.
#[test]
fn a_kubeconfig_of_a_former_cluster_that_cannot_be_removed_counts_no_more() {
    for rotate in [false, true] {
        let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
        folder.write("bootstrap.conf", &old.kubeconfig(TOKEN));
        let paths = folder.paths(true, rotate);
        renew(&mut open(&paths, day(1)).0, &old, 1);
        let former = fs::read_to_string(&paths.kubeconfig).unwrap();
        let put_back = || fs::write(&paths.kubeconfig, &former).unwrap();
        folder.write("bootstrap.conf", &new.kubeconfig(TOKEN));
        let (mut pki, start) = open(&paths, day(2));
        assert!(start.bootstrap.is_some());
        put_back();
        for at in 2..5 {
            let (used, leaf) = renew(&mut pki, &new, at);
            assert_eq!(used.ca.as_ref().unwrap().bytes, new.ca.as_bytes(), "{rotate} {at}");
            put_back();
            let (again, start) = open(&paths, day(at));
            assert_eq!(start.config.ca.unwrap().bytes, new.ca.as_bytes(), "{rotate} {at}");
            assert_eq!(start.leaf, Some(leaf), "{rotate} {at}");
            put_back();
            if at == 3 {
                pki = again;
            }
            pki.keep_kubeconfig(&used);
        }
    }
}

/// A file that is too large cannot be read, as one that is root's since `sudo sed -i`. It can be read
/// again while the signer takes its time, after a start, or after a start and a renewal.
#[test]
fn a_kubeconfig_of_a_former_cluster_that_could_not_be_read_counts_no_more() {
    for (at, rotate) in [(2, true), (2, false), (3, true), (3, false), (4, true), (4, false)] {
        let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
        folder.write("bootstrap.conf", &old.kubeconfig(TOKEN));
        let paths = folder.paths(true, rotate);
        renew(&mut open(&paths, day(1)).0, &old, 1);
        let former = fs::read_to_string(&paths.kubeconfig).unwrap();
        let unread = format!("{former}#{}", "#".repeat(1 << 20));
        fs::write(&paths.kubeconfig, &unread).unwrap();
        folder.write("bootstrap.conf", &new.kubeconfig(TOKEN));
        let (mut pki, start) = open(&paths, day(2));
        assert!(start.bootstrap.is_some());
        let request = pki.sign(false).unwrap();
        if at == 2 {
            fs::write(&paths.kubeconfig, &former).unwrap();
        }
        let (used, mut leaf) = pki.install(&new.sign(&request, 2, 50), day(2)).unwrap();
        if at > 2 {
            assert!(fs::read_to_string(&paths.kubeconfig).unwrap() == unread);
        }
        if at > 3 {
            let (mut pki, start) = open(&paths, day(3));
            assert_eq!(start.leaf, Some(leaf));
            pki.keep_kubeconfig(&used);
            leaf = renew(&mut pki, &new, 3).1;
            assert!(fs::read_to_string(&paths.kubeconfig).unwrap() == unread);
        }
        if at > 2 {
            fs::write(&paths.kubeconfig, &former).unwrap();
        }
        for _ in 0..2 {
            let (_, start) = open(&paths, day(4));
            assert_eq!(start.config.ca.unwrap().bytes, new.ca.as_bytes(), "{at} {rotate}");
            assert_eq!(start.leaf.as_ref(), Some(&leaf), "{at} {rotate}");
            assert!(fs::read_to_string(&paths.kubeconfig).unwrap() != former, "{at} {rotate}");
        }
    }
}

/// First both CAs are in each bundle, then the new one alone. A tool manages the kubeconfig, and
/// perhaps the bootstrap kubeconfig too.
#[test]
fn a_rotation_of_the_ca_keeps_the_stored_certificate() {
    let (old, new) = (Signer::new(), Signer::new());
    let both = format!("{}{}", old.ca, new.ca);
    for (bootstrap, is_managed) in [(false, false), (true, true), (true, false)] {
        let folder = Folder::new();
        let paths = folder.paths(bootstrap, true);
        let mut files = vec![paths.kubeconfig.clone()];
        if bootstrap {
            folder.write("bootstrap.conf", &old.kubeconfig(TOKEN));
            files.extend(is_managed.then(|| folder.0.join("bootstrap.conf")));
        } else {
            folder.write("etc/kubelet.conf", &old.kubeconfig_with_pair(1, 90));
        }
        let mut stored = renewed(&paths, &old, 2);
        let mut was = &old.ca;
        for (at, ca) in [(3, &both), (4, &new.ca)] {
            for file in &files {
                let text = fs::read_to_string(file).unwrap();
                let rotated = text.replace(&Pem(was).to_string(), &Pem(ca).to_string());
                assert_ne!(rotated, text);
                fs::write(file, rotated).unwrap();
            }
            was = ca;
            for _ in 0..2 {
                let (mut pki, start) = open(&paths, day(at));
                assert_eq!(start.leaf, Some(stored), "{bootstrap} {is_managed} {at}");
                stored = renew(&mut pki, &new, at).1;
            }
        }
    }
}
