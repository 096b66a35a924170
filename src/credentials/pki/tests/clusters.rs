//! A stored certificate of one cluster and new files of another one, also where an agent of the
//! former cluster still runs; and a CA that is rotated.

use super::*;

/// Renews the certificate of `paths`.
fn renewed(paths: &IdentitySource, signer: &Signer, at: u64) -> Leaf {
    renew(&mut open(paths, day(at)).0, signer, at).1
}

/// Removes the line of the origin: another version or program stored the pair.
fn forget_origin(paths: &IdentitySource) {
    let current = paths.cert_dir.join(CURRENT);
    let text = fs::read_to_string(&current).unwrap();
    let (pair, line) = text.split_once("# kubeconfig: ").unwrap();
    assert!(line.ends_with('\n') && line.trim().split(' ').all(|mark| mark.len() == 43), "{line}");
    fs::write(current, pair).unwrap();
}

#[test]
fn a_new_kubeconfig_wins_over_the_certificate_of_a_former_cluster() {
    for (what, is_known, given, want_new) in [
        ("a new cluster", true, (4, 90), true),
        ("its certificate is older than the stored one", true, (1, 90), true),
        ("its certificate has expired", true, (1, 5), false),
        ("the store of an earlier version", false, (4, 90), true),
        ("that, and the times do not tell", false, (1, 90), false),
    ] {
        let (folder, old, new) = (Folder::new(), Signer::new(), Signer::new());
        folder.write("etc/kubelet.conf", &old.kubeconfig_with_pair(1, 90));
        let paths = folder.paths(false, true);
        let stored = renewed(&paths, &old, 3);
        if !is_known {
            forget_origin(&paths);
        }
        assert_eq!(open(&paths, day(9)).1.leaf, Some(stored.clone()), "{what}: no change");
        let text = new.kubeconfig_with_pair(given.0, given.1);
        folder.write("etc/kubelet.conf", &text);
        let (_, start) = open(&paths, day(9));
        assert_eq!(start.leaf != Some(stored), want_new, "{what}");
        assert_eq!(start.replace_now, want_new, "{what}: renewed at once");
        let renewed = renewed(&paths, &new, 10);
        assert_eq!(open(&paths, day(11)).1.leaf, Some(renewed), "{what}");
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
        let found = running.find(Ok(()), day(9)).unwrap().map(|(_, leaf)| leaf.subject.common_name);
        let is_found = (stored.2 > 2 || given.0 == own) && [own, "admin"].contains(&want);
        assert_eq!(found.as_deref(), is_found.then_some(want), "{what}");
        if bootstraps {
            renew(&mut pki, &signer, 9);
            assert_eq!(name(&open(&paths, day(10)).1), own, "{what}");
        }
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
        assert!(!joined.kubeconfig.exists());
        // After a power cut the same again.
        assert!(open(&joined, day(3)).1.bootstrap.is_some());
        let (_, leaf) = renew(&mut pki, &new, 3);
        let (_, start) = open(&joined, day(4));
        assert_eq!(start.leaf, Some(leaf));
        assert_eq!(start.config.ca.as_ref().unwrap().bytes, new.ca.as_bytes());
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
