//! The serving certificate: its key waits for an approval, across restarts.

use super::*;
use crate::credentials::certificate::{FileTask, TaskResult};
use crate::credentials::pki::serving::ServingPki;
use crate::credentials::rotation::CertificateFiles;

const SIGN: FileTask = FileTask::Sign { new_key: false, with_bootstrap: false, is_first: true };

/// The whole task at once.
pub(in crate::credentials) fn work(
    files: &mut dyn CertificateFiles,
    task: &FileTask,
    now: Wall,
) -> TaskResult {
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
    pki.subject = Subject::of_node(node);
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
    // The next one has another key, and another name.
    assert_ne!(sign(&mut open()).name, request.name);
    // The files say enough for a start, unless they are too old or of other names.
    for (day, node, is_found) in [(2, "pi-3", true), (30, "pi-3", false), (2, "pi-4", false)] {
        let found = work(&mut self::open(&folder, node), &FileTask::Find, self::day(day));
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
