//! The folder of certificates and keys (`--cert-dir`), in the kubelet's layout, so that either
//! program can use the other's files.
//!
//! `kubelet-client-2026-11-21-06-19-25.pem` holds a certificate chain and its key. The link
//! `kubelet-client-current.pem` points to the pair in use; it is replaced by renaming the link
//! `kubelet-client-updated.pem`. Old pairs are kept.
//! Upstream: client-go `util/certificate/certificate_store.go`.

use std::fs;
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::key::Key;
use crate::files::guard;
use crate::files::read::{cause, read};
use crate::files::write::{self, Op, PRIVATE};
use crate::identity::kubeconfig::read_certificate;
use crate::kube::time::Wall;
use crate::kube::x509;
use crate::wire::api_config::ClientCertificate;

const NAME: &str = "kubelet-client";
/// Most entries of the folder. A board adds about two files a year.
const MOST_FILES: usize = 10_000;

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

    /// The link to the certificate and key in use.
    pub(super) fn current_path(&self) -> PathBuf {
        self.file("-current.pem")
    }

    /// The file with the key of a request whose certificate is not issued yet.
    pub(super) fn pending_key_path(&self) -> PathBuf {
        self.file(".key.tmp")
    }

    /// The operations that complete an interrupted update of this program or a kubelet. Fails if a
    /// file is in the place of a link.
    pub(super) fn recover(&self) -> Result<Vec<Op>, String> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        let is_complete = is_link(&current)? && guard::exists(&current);
        if is_link(&updated)? && !is_complete {
            let sync = Op::Sync(self.folder.clone());
            return Ok(vec![Op::Rename(updated, current), sync]);
        }
        Ok(Vec::new())
    }

    /// The certificate and key in use; `None` if none are stored. A path that cannot be resolved,
    /// for another reason than a missing file, is an error.
    pub(super) fn current(&self) -> Result<Option<ClientCertificate>, String> {
        let current = self.current_path();
        let [chain, key] = match exists(&current)? {
            true => [current.clone(), current],
            false => [self.file(".crt"), self.file(".key")],
        };
        if !exists(&chain)? || !exists(&key)? {
            return Ok(None);
        }
        read_certificate(&chain, &key).map(Some)
    }

    /// When the pair in use was stored, from its name; `None` if the name has no time.
    pub(super) fn arrival(&self) -> Option<Wall> {
        let link = guard::parent_resolved(&self.current_path());
        let pair = link.and_then(fs::read_link).ok()?;
        let time = pair.file_name()?.to_str()?.strip_prefix(NAME)?;
        let time = time.strip_prefix('-')?.strip_suffix(".pem")?;
        let (date, clock) = time.split_at_checked("2026-11-21".len())?;
        let clock = clock.strip_prefix('-')?.replace('-', ":");
        Wall::parse(&format!("{date}T{clock}Z"))
    }

    /// The operations that store a certificate chain with its key and make them current. `chain` is
    /// PEM; other text in it is dropped.
    pub(super) fn update(&self, chain: &[u8], key: &Key, now: Wall) -> Result<Vec<Op>, String> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        is_link(&current)?;
        is_link(&updated)?;
        // Enough capacity at once: a reallocation would leave a copy of the key in memory.
        let mut text = Zeroizing::new(String::with_capacity(chain.len() * 2 + (8 << 10)));
        for certificate in CertificateDer::pem_slice_iter(chain) {
            let certificate = certificate.map_err(|_| "the certificate is not PEM")?;
            text.push_str(&x509::pem("CERTIFICATE", &certificate));
        }
        if text.is_empty() {
            return Err("no certificate to store".into());
        }
        text.push_str(key.pem());
        // A repeated installation: each attempt must not leave another file with the key.
        if read(&current).is_ok_and(|stored| Zeroizing::new(stored).as_slice() == text.as_bytes()) {
            return Ok(Vec::new());
        }
        let pair = self.unused_pair(now);
        // `replace` syncs name and content before the link points to the file.
        let mut ops = write::replace(&pair, PRIVATE, text.as_bytes().to_vec());
        ops.extend([
            Op::Remove(updated.clone()),
            Op::Link(pair, updated.clone()),
            Op::Rename(updated, current),
            Op::Sync(self.folder.clone()),
        ]);
        Ok(ops)
    }

    /// A path named after `now`, or after the next second without a file: two certificates of one
    /// second are two files.
    fn unused_pair(&self, now: Wall) -> PathBuf {
        let name = |second: u64| {
            let time = now.after(Duration::from_secs(second)).time();
            let time = time.replace(['T', ':'], "-");
            self.file(&format!("-{}.pem", time.trim_end_matches('Z')))
        };
        let unused = (0..60).map(name).find(|path| !guard::exists(path));
        unused.unwrap_or_else(|| name(0))
    }

    /// The operations that write the key of a request, so that a restart repeats the same request.
    pub(super) fn write_pending_key(&self, key: &Key) -> Vec<Op> {
        let text = key.pem().as_bytes().to_vec();
        write::replace(&self.pending_key_path(), PRIVATE, text)
    }

    /// The operations that remove every certificate and key. The links to the pair in use go first:
    /// after a power cut none of the rest is current.
    pub(super) fn remove_all(&self) -> Result<Vec<Op>, String> {
        let links = [self.current_path(), self.file("-updated.pem")];
        let names = names(&self.folder)?;
        let (links, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|path| links.contains(path));
        let mut ops: Vec<Op> = Vec::new();
        for group in [links, others] {
            if !group.is_empty() {
                ops.extend(group.into_iter().map(Op::Remove));
                ops.push(Op::Sync(self.folder.clone()));
            }
        }
        Ok(ops)
    }

    /// The operations that remove the key of a request.
    pub(super) fn remove_pending_key(&self) -> Vec<Op> {
        match guard::exists(&self.pending_key_path()) {
            true => vec![
                Op::Remove(self.pending_key_path()),
                Op::Sync(self.folder.clone()),
            ],
            false => Vec::new(),
        }
    }
}

/// The paths of certificates and keys in `folder`; none if there is no folder.
/// More than [`MOST_FILES`] entries are an error.
fn names(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let line = |e: &std::io::Error| format!("{}: {}", folder.display(), cause(e));
    if !exists(folder)? {
        return Ok(Vec::new());
    }
    #[expect(clippy::disallowed_methods, reason = "guarded, and bounded")]
    let entries = guard::found(folder).and_then(fs::read_dir);
    let mut found = Vec::new();
    for (count, entry) in entries.map_err(|e| line(&e))?.enumerate() {
        if count == MOST_FILES {
            // The rest may have keys, which would stay.
            return Err(format!(
                "{}: more than {MOST_FILES} files; move away those that are not {NAME}*",
                folder.display()
            ));
        }
        let name = entry.map_err(|e| line(&e))?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(NAME)) {
            found.push(folder.join(name));
        }
    }
    Ok(found)
}

/// Whether `path` exists. A path that must not be touched or cannot be resolved is an error.
fn exists(path: &Path) -> Result<bool, String> {
    match guard::found(path) {
        Ok(_) => Ok(true),
        Err(e) if [NotFound, NotADirectory].contains(&e.kind()) => Ok(false),
        Err(e) => Err(format!("{}: {}", path.display(), cause(&e))),
    }
}

/// Whether a link exists; a file in its place is an error.
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
