//! The files of a serving certificate that the cluster signs, in the kubelet's layout:
//! `kubelet-server-current.pem`. `nodelet serve` owns them.

use std::path::Path;

use super::issued;
use super::key::Key;
use super::origin::Origin;
use super::store::{SERVER, Store};
use crate::client::api_config::ClientCertificate;
use crate::files::write::Disk;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Purpose, Subject};
use crate::node::certificate::{FileTask, TaskResult};

/// A folder with a serving certificate.
#[derive(Debug)]
pub struct ServingPki {
    store: Store,
    disk: Disk,
    /// Key of the last signing request.
    key: Option<Key>,
    /// Whose certificates begin with their arrival.
    at_supervisor: bool,
}

impl ServingPki {
    /// The files in `folder`, which need not exist. After a power cut in an update the old or the
    /// new certificate is there.
    pub fn open(folder: &Path, at_supervisor: bool) -> Result<Self, Fault> {
        let mut pki = Self {
            store: Store::new(folder, SERVER)?,
            disk: Disk::default(),
            key: None,
            at_supervisor,
        };
        let interrupted = pki.store.recover()?;
        // On a disk that is full or read-only the port answers all the same.
        if let Err(why) = pki.disk.carry_out(interrupted) {
            log::warn!("{why}");
        }
        Ok(pki)
    }

    /// The certificate that is stored, if TLS can use it.
    pub fn current(&self) -> Option<(ClientCertificate, Leaf)> {
        let (stored, mut leaf) = self.store.usable().ok()??;
        if self.at_supervisor {
            leaf.not_before = self.store.arrival(&leaf).unwrap_or_default();
        }
        Some((stored, leaf))
    }

    /// Does the file work of a rotation for `subject`.
    pub fn carry_out(&mut self, task: &FileTask, subject: &Subject, now: Wall) -> TaskResult {
        let result = match task {
            FileTask::Find => {
                let found = self.current().filter(|(_, leaf)| now <= leaf.not_after);
                let found = found.filter(|(_, leaf)| leaf.subject.satisfies(subject));
                Ok(found.map_or(TaskResult::NotFound, |(_, leaf)| TaskResult::InUse(leaf)))
            }
            FileTask::Sign { new_key, .. } => {
                self.store.kept_key(*new_key, None).and_then(|(key, ops)| {
                    self.disk.carry_out(ops)?;
                    let request = key.request(subject.clone(), Purpose::SERVING);
                    self.key = Some(key);
                    request.map(TaskResult::Signed)
                })
            }
            FileTask::Install(chain) => return self.install(chain, now),
        };
        result.unwrap_or_else(TaskResult::Failed)
    }

    fn install(&mut self, chain: &str, now: Wall) -> TaskResult {
        let Some(key) = &self.key else {
            return TaskResult::Failed("no signing request was made".into());
        };
        if let Err(why) = issued(chain, key, now) {
            return TaskResult::Unusable(why);
        }
        let stored = self
            .store
            .update(chain.as_bytes(), key, &Origin::default(), now)
            .and_then(|ops| self.disk.carry_out(ops));
        if let Err(why) = stored {
            return TaskResult::Failed(why);
        }
        if let Err(why) = self.store.clean().and_then(|ops| self.disk.carry_out(ops)) {
            log::warn!("{why}");
        }
        match self.current() {
            Some((_, leaf)) => TaskResult::InUse(leaf),
            None => TaskResult::Failed("the stored certificate is missing".into()),
        }
    }
}
