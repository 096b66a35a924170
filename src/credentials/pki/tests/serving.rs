//! The serving certificate: its key waits for an approval, across restarts.

use super::*;
use crate::credentials::certificate::{FileTask, TaskResult};
use crate::credentials::pki::serving::ServingPki;
use crate::credentials::rotation::CertificateFiles;

const SIGN: FileTask = FileTask::Sign { new_key: false, with_bootstrap: false, is_first: true };

/// The whole task at once.
pub(crate) fn work(files: &mut dyn CertificateFiles, task: &FileTask, now: Wall) -> TaskResult {
    let mut disk = Disk::default();
    let written = files.operations(task, now).and_then(|ops| disk.carry_out(ops));
    let result = files.result(task, written, now);
    for (failure, ops) in files.take_later() {
        if let Err(why) = disk.carry_out(ops) {
            log::warn!("{failure}: {why}");
        }
    }
    result
}

fn open(folder: &Folder, node: &str) -> ServingPki {
    let mut pki = ServingPki::open(&folder.0, CertificateKind::Serving).unwrap();
    let kubeconfig = ApiConfig::of("https://10.0.0.1:6443").unwrap();
    pki.request_for(Subject::of_node(node), &kubeconfig);
    pki
}

fn sign(pki: &mut ServingPki) -> SigningRequest {
    match work(pki, &SIGN, day(0)) {
        TaskResult::Signed(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_the_same_after_a_restart_until_it_has_a_certificate() {
    let (folder, signer) = (Folder::new(), Signer::new());
    let open = || open(&folder, "pi-3");
    assert!(open().current().is_none());
    let request = sign(&mut open());
    assert_eq!(sign(&mut open()).name, request.name);
    let mut pki = open();
    assert_eq!(sign(&mut pki).name, request.name);
    let chain = signer.sign(&request, 1, 29);
    // One of another key is not stored.
    let other = signer.sign(
        &Key::generate().unwrap().request(subject(), CertificatePurpose::SERVING).unwrap(),
        1,
        30,
    );
    let refused = work(&mut pki, &FileTask::Install(other), day(1));
    assert!(matches!(refused, TaskResult::Unusable(_)), "{refused:?}");
    let installed = work(&mut pki, &FileTask::Install(chain), day(1));
    let TaskResult::InUse(leaf) = installed else { panic!("{installed:?}") };
    let (stored, found) = open().current().unwrap();
    assert_eq!(found, leaf);
    assert!(
        stored.chain.source.ends_with("/kubelet-server-current.pem"),
        "{}",
        stored.chain.source
    );
    // The files are not read again for it.
    let current = pki.current();
    fs::rename(&folder.0, folder.0.with_extension("away")).unwrap();
    assert!(current.is_some());
    assert_eq!(pki.current(), current);
    fs::rename(folder.0.with_extension("away"), &folder.0).unwrap();
    // The next one has another key, and another name.
    assert_ne!(sign(&mut open()).name, request.name);
    // The files say enough for a start, unless they are too old or of other names.
    for (day, node, is_found) in [(2, "pi-3", true), (30, "pi-3", false), (2, "pi-4", false)] {
        let found = work(&mut self::open(&folder, node), &FileTask::Find(None), self::day(day));
        assert_eq!(
            found,
            if is_found { TaskResult::InUse(leaf.clone()) } else { TaskResult::NotFound }
        );
    }
    // The certificate of a supervisor begins with its arrival.
    let (_, at_supervisor) = ServingPki::open(&folder.0, CertificateKind::ServingAtSupervisor)
        .unwrap()
        .current()
        .unwrap();
    assert_eq!(at_supervisor.not_before, day(1));
}

/// A kubelet uses the certificate only once it is stored.
#[test]
fn on_a_full_disk_a_certificate_is_requested_and_used_and_stored_later() {
    let (folder, signer) = (Folder::new(), Signer::new());
    let full = || Err("no space left on device".into());
    let mut pki = open(&folder, "pi-3");
    assert!(!pki.operations(&SIGN, day(0)).unwrap().is_empty());
    let signed = pki.result(&SIGN, full(), day(0));
    let TaskResult::Signed(request) = signed else { panic!("{signed:?}") };
    let install = FileTask::Install(signer.sign(&request, 1, 29));
    for _ in 0..2 {
        assert!(!pki.operations(&install, day(1)).unwrap().is_empty());
        let used = pki.result(&install, full(), day(1));
        let TaskResult::NotStored(leaf, line) = used else { panic!("{used:?}") };
        assert_eq!(line, "in use, but not stored: no space left on device");
        assert_eq!(pki.current().unwrap().1, leaf);
    }
    assert!(open(&folder, "pi-3").current().is_none());
    let stored = work(&mut pki, &install, day(1));
    let TaskResult::InUse(leaf) = stored else { panic!("{stored:?}") };
    assert_eq!(pki.current(), open(&folder, "pi-3").current());
    assert_eq!(pki.current().unwrap().1, leaf);
}
