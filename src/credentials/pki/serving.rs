//! The files of a serving certificate that the cluster signs, in the kubelet's layout:
//! `kubelet-server-current.pem`. `nodelet serve` owns them.

use std::mem;
use std::path::Path;

use super::marks::PairMarks;
use super::store::{SERVER, Store};
use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::credentials::certificate::{CertificateKind, FileTask, TaskResult};
use crate::credentials::rotation::CertificateFiles;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{CertificatePurpose, Leaf, Subject};
use crate::os::guard;
use crate::os::write::{Disk, Op};

/// A folder with a serving certificate.
#[derive(Debug)]
pub struct ServingPki {
    store: Store,
    kind: CertificateKind,
    subject: Subject,
    /// The marks of the cluster that the next certificate is requested of.
    marks: PairMarks,
    /// The certificate in use, with its marks: the stored one, or the last one if it could not be
    /// stored. The files are not read for it again, because a root on a network can block.
    current: Option<(ClientCertificate, Leaf)>,
    /// The operations that remove what the last certificate replaced.
    clean: Vec<Op>,
}

impl ServingPki {
    /// The files in `folder`, which need not exist. After a power cut in an update the old or the
    /// new certificate is there.
    pub fn open(folder: &Path, kind: CertificateKind) -> Result<Self, Fault> {
        let store = Store::new(folder, SERVER)?;
        if let Some(why) = guard::refusal(folder) {
            return Err(why);
        }
        // On a disk that is full, read-only or fails the port answers all the same.
        if let Err(why) = store.recover(&|_| true).and_then(|ops| Disk::default().carry_out(ops)) {
            log::warn!("{why}");
        }
        let mut pki = Self {
            store,
            kind,
            subject: Subject::default(),
            marks: PairMarks::default(),
            current: None,
            clean: Vec::new(),
        };
        pki.current = pki.stored();
        Ok(pki)
    }

    /// The subject of the certificates to request.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The next certificates are requested for this subject, of the cluster of this kubeconfig.
    pub fn request_for(&mut self, subject: Subject, kubeconfig: &ApiConfig) {
        self.subject = subject;
        self.marks = PairMarks::authorities(kubeconfig);
    }

    /// The certificate to use.
    pub fn current(&self) -> Option<(ClientCertificate, Leaf)> {
        self.current.clone()
    }

    /// The certificate that is stored, if TLS can use it.
    fn stored(&self) -> Option<(ClientCertificate, Leaf)> {
        let (stored, mut leaf) = self.store.usable().ok()??;
        if self.kind.is_at_supervisor() {
            leaf.not_before = self.store.arrival(&leaf).unwrap_or_default();
        }
        Some((stored, leaf))
    }

    fn installed(&mut self) -> Result<Leaf, Fault> {
        match self.store.clean() {
            Ok(ops) => self.clean = ops,
            Err(why) => log::warn!("{why}"),
        }
        let stored = self.stored().ok_or("the stored certificate is missing")?;
        Ok(self.current.insert(stored).1.clone())
    }
}

impl CertificateFiles for ServingPki {
    fn operations(&mut self, task: &FileTask, now: Wall) -> Result<Vec<Op>, Fault> {
        match task {
            FileTask::Find(_) => Ok(Vec::new()),
            FileTask::Sign { new_key, .. } => self.store.pending_key(*new_key, None),
            FileTask::Install(chain) => self.store.install(chain, &self.marks, now),
        }
    }

    fn result(&mut self, task: &FileTask, written: Result<(), Fault>, now: Wall) -> TaskResult {
        let result = match task {
            FileTask::Find(begun) => {
                let usable = self.stored().filter(|(pair, leaf)| {
                    leaf.is_valid(now, *begun)
                        && leaf.subject.satisfies(&self.subject)
                        && !PairMarks::of_stored(pair).differs(&self.marks)
                });
                Ok(usable.map_or(TaskResult::NotFound, |found| {
                    TaskResult::InUse(self.current.insert(found).1.clone())
                }))
            }
            // If the key could not be stored, the request is made all the same, as a kubelet makes
            // it: only a restart makes another one.
            FileTask::Sign { .. } => self
                .store
                .request(&self.subject, CertificatePurpose::SERVING)
                .map(TaskResult::Signed),
            FileTask::Install(chain) => match self.store.issued(chain, &self.marks, now) {
                Err(why) => Ok(TaskResult::Unusable(why)),
                Ok((certificate, leaf)) => match written.and_then(|()| self.installed()) {
                    Ok(leaf) => Ok(TaskResult::InUse(leaf)),
                    Err(why) => {
                        self.current = Some((certificate, leaf.clone()));
                        Ok(TaskResult::NotStored(leaf, format!("in use, but not stored: {why}")))
                    }
                },
            },
        };
        result.unwrap_or_else(TaskResult::Failed)
    }

    fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        vec![("old certificates cannot be removed", mem::take(&mut self.clean))]
    }
}
