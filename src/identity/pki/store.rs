//! The folder with our certificates and keys, as a kubelet keeps it (`--cert-dir`).
//!
//! `kubelet-client-2026-11-21-06-19-25.pem` holds a certificate chain and its key;
//! `kubelet-client-current.pem` is a link to the one in use, and moves by way of
//! `kubelet-client-updated.pem`. Old ones stay. So either program can take over.
//! Upstream: client-go `util/certificate/certificate_store.go`.

use std::fs;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::key::Key;
use crate::files::guard;
use crate::files::read::cause;
use crate::files::write::{self, Op, PRIVATE};
use crate::identity::kubeconfig::read_certificate;
use crate::kube::time::Wall;
use crate::kube::x509;
use crate::wire::api_config::ClientCertificate;

const NAME: &str = "kubelet-client";

/// A `--cert-dir`.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Absolute.
    folder: PathBuf,
}

impl Store {
    /// The store in `folder`, which need not exist.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let absolute = std::path::absolute(folder);
        let folder = absolute.map_err(|e| format!("{}: {}", folder.display(), cause(&e)))?;
        Ok(Self { folder })
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{NAME}{suffix}"))
    }

    /// Where the certificate and the key in use are.
    pub(super) fn current_path(&self) -> PathBuf {
        self.file("-current.pem")
    }

    /// Where the key of a request that waits for its certificate is.
    pub(super) fn waiting_key(&self) -> PathBuf {
        self.file(".key.tmp")
    }

    /// What an update that was cut off, here or in a kubelet, needs to be complete.
    /// Fails where somebody put a file in the place of a link.
    pub(super) fn recover(&self) -> Result<Vec<Op>, String> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        let is_there = is_link(&current)? && guard::exists(&current);
        if is_link(&updated)? && !is_there {
            let sync = Op::Sync(self.folder.clone());
            return Ok(vec![Op::Rename(updated, current), sync]);
        }
        Ok(Vec::new())
    }

    /// Certificate and key in use; `None` where there are none yet.
    pub(super) fn current(&self) -> Result<Option<ClientCertificate>, String> {
        let current = self.current_path();
        let [chain, key] = match guard::exists(&current) {
            true => [current.clone(), current],
            false => [self.file(".crt"), self.file(".key")],
        };
        if !guard::exists(&chain) || !guard::exists(&key) {
            return Ok(None);
        }
        read_certificate(&chain, &key).map(Some)
    }

    /// Makes a chain (PEM, with whatever else stands there) and its key the ones in use.
    pub(super) fn update(&self, chain: &[u8], key: &Key, now: Wall) -> Result<Vec<Op>, String> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        is_link(&current)?;
        is_link(&updated)?;
        // Roomy, as text that grows leaves copies of itself behind.
        let mut text = Zeroizing::new(String::with_capacity(chain.len() * 2 + (8 << 10)));
        for certificate in CertificateDer::pem_slice_iter(chain) {
            let certificate = certificate.map_err(|_| "the certificate is not PEM")?;
            text.push_str(&x509::pem("CERTIFICATE", &certificate));
        }
        if text.is_empty() {
            return Err("no certificate in what was to be stored".into());
        }
        text.push_str(key.pem());
        let time = now.time().replace(['T', ':'], "-");
        let pair = self.file(&format!("-{}.pem", time.trim_end_matches('Z')));
        // On the disk, name and content, before anything points to it.
        let mut ops = write::replace(&pair, PRIVATE, text.as_bytes().to_vec());
        ops.extend([
            Op::Remove(updated.clone()),
            Op::Link(pair, updated.clone()),
            Op::Rename(updated, current),
            Op::Sync(self.folder.clone()),
        ]);
        Ok(ops)
    }

    /// Keeps the key of a request until its certificate is there, so that after a
    /// restart the request is the same one.
    pub(super) fn keep(&self, key: &Key) -> Vec<Op> {
        let text = key.pem().as_bytes().to_vec();
        write::replace(&self.waiting_key(), PRIVATE, text)
    }

    /// That key is in use now, or never will be.
    pub(super) fn forget(&self) -> Vec<Op> {
        match guard::exists(&self.waiting_key()) {
            true => vec![
                Op::Remove(self.waiting_key()),
                Op::Sync(self.folder.clone()),
            ],
            false => Vec::new(),
        }
    }
}

/// Whether there is a link; a file in its place is an error.
fn is_link(path: &Path) -> Result<bool, String> {
    let link = guard::parent_resolved(path).and_then(fs::symlink_metadata);
    match link {
        Ok(metadata) if metadata.is_symlink() => Ok(true),
        Ok(_) => {
            let path = path.display();
            Err(format!(
                "expected {path:?} to be a symlink but it is a file; move it away"
            ))
        }
        Err(e) if [NotFound, NotADirectory].contains(&e.kind()) => Ok(false),
        Err(e) => Err(format!("{}: {}", path.display(), cause(&e))),
    }
}
