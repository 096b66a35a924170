//! The folder of certificates and keys (`--cert-dir`), in the kubelet's layout, so that either
//! program can use the other's files.
//!
//! `kubelet-client-2026-11-21-06-19-25.pem` holds a certificate chain and its key. The link
//! `kubelet-client-current.pem` points to the pair in use; it is replaced by renaming the link
//! `kubelet-client-updated.pem`. One old pair is kept. A copy of the folder may have lost its
//! links: then a file in the place of the link is read or, if there is none, the link to the pair
//! whose certificate ends last is made.
//! Upstream: client-go `util/certificate/certificate_store.go`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind::NotADirectory, ErrorKind::NotFound};
use std::mem;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::issued;
use super::key::Key;
use super::marks::PairMarks;
use crate::client::api_config::ClientCertificate;
use crate::client::tls::check_certificate;
use crate::credentials::kubeconfig::{PathResolver, read_certificate};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{self, CertificatePurpose, Leaf, SigningRequest, Subject};
use crate::os::guard;
use crate::os::guard::read;
use crate::os::read::cause;
use crate::os::write::{self, Op, PRIVATE};

/// What the names of the files begin with.
pub(super) const CLIENT: &str = "kubelet-client";
pub(super) const SERVER: &str = "kubelet-server";
/// Most pairs that are removed at once.
const MOST_REMOVED: usize = 1000;

/// A `--cert-dir`, and the key of a request.
#[derive(Debug)]
pub(in crate::credentials) struct Store {
    /// Absolute.
    folder: PathBuf,
    /// [`CLIENT`] or [`SERVER`].
    name: &'static str,
    /// Key of the last signing request.
    key: Option<Key>,
    /// The pair that was in use before the last installation. Its name may be older than that of a
    /// pair of a clock that was ahead.
    former: Option<OsString>,
}

impl Store {
    /// The store in `folder`, which need not exist.
    pub(super) fn new(folder: &Path, name: &'static str) -> Result<Self, Fault> {
        let absolute = std::path::absolute(folder);
        let folder = absolute.map_err(|e| cause(&e).at(folder.display()))?;
        Ok(Self { folder, name, key: None, former: None })
    }

    fn file(&self, suffix: &str) -> PathBuf {
        self.folder.join(format!("{}{suffix}", self.name))
    }

    /// The link to the certificate and key in use.
    pub(super) fn current_path(&self) -> PathBuf {
        self.file("-current.pem")
    }

    /// The file with the key of a request whose certificate is not issued yet.
    pub(super) fn pending_key_path(&self) -> PathBuf {
        self.file(".key.tmp")
    }

    /// The operations that remove unfinished files, and make a pair current if none is: they
    /// complete an interrupted update of this program or of a kubelet, or link the pair that ends
    /// last (its name has the board's time). If a pair is current, they remove older ones. A link
    /// to a pair that can be read and not be used, as after a power cut on a card that syncs late,
    /// counts as lost if there is a usable pair; so does one to a pair that `is_valid` denies, if
    /// there is a valid one of the same subject and cluster. `Err` if a pair cannot be read that
    /// may end last: a link to another one would stay.
    pub(in crate::credentials) fn recover(
        &self,
        is_valid: &dyn Fn(&Leaf) -> bool,
    ) -> Result<Vec<Op>, Fault> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        let mut ops = self.remove_unfinished()?;
        let is_current = is_there(&current)? && exists(&current)?;
        // Another file, and one in the place of the link, is a person's.
        let is_pair = |to: PathBuf| to.file_name().and_then(|name| self.time_in(name)).is_some();
        let is_of_agent = is_current && self.target().is_some_and(is_pair);
        let in_use = if is_of_agent { self.usable() } else { Ok(None) };
        let is_unusable = match &in_use {
            Ok(in_use) => in_use.as_ref().is_some_and(|(_, leaf)| !is_valid(leaf)),
            Err(why) => !why.is_unread(),
        };
        let is_alike = |pair: &ClientCertificate, leaf: &Leaf| match &in_use {
            Ok(Some((own, of_own))) => {
                leaf.subject == of_own.subject
                    && !PairMarks::of_stored(pair).differs(&PairMarks::of_stored(own))
            }
            Ok(None) | Err(_) => true,
        };
        if is_current && !is_unusable {
            ops.extend(self.remove_old()?);
            return Ok(ops);
        }
        if is_unusable || !exists(&updated)? {
            let (mut last, mut unread) = (None, None);
            self.each_pair(&mut |pair| {
                let read = read_certificate(&pair, &pair);
                let checked = read.and_then(|read| Ok((check_certificate(&read)?, read)));
                let found = match checked {
                    Err(why) if why.is_unread() => return unread = Some(why),
                    checked => checked.ok().map(|(leaf, read)| {
                        (is_valid(&leaf) && is_alike(&read, &leaf), leaf.not_after)
                    }),
                };
                last = last.take().max(Some((found, pair)));
            })?;
            if let Some(why) = unread {
                return Err(why);
            }
            let Some((found, pair)) = last else { return Ok(ops) };
            if is_unusable && !found.is_some_and(|(is_valid, _)| is_valid) {
                return Ok(ops);
            }
            ops.extend([Op::Remove(updated.clone()), Op::Link(pair, updated.clone())]);
        }
        ops.extend([Op::Rename(updated, current), Op::Sync(self.folder.clone())]);
        Ok(ops)
    }

    /// The certificate and key in use; `None` if none are stored. A path that cannot be resolved,
    /// for another reason than a missing file, is an error.
    pub(super) fn current(&self) -> Result<Option<ClientCertificate>, Fault> {
        self.current_below(&Path::to_owned)
    }

    /// The same in an image, where each path is read that `at` makes of it.
    fn current_below(&self, at: PathResolver<'_>) -> Result<Option<ClientCertificate>, Fault> {
        let current = at(&self.current_path());
        let [chain, key] = if exists(&current)? {
            [current.clone(), current]
        } else {
            [self.file(".crt"), self.file(".key")].map(|path| at(&path))
        };
        if !exists(&chain)? || !exists(&key)? {
            return Ok(None);
        }
        read_certificate(&chain, &key).map(Some)
    }

    /// The certificate and key in use, if TLS can use them; `None` if none are stored.
    pub(in crate::credentials) fn usable(
        &self,
    ) -> Result<Option<(ClientCertificate, Leaf)>, Fault> {
        self.usable_below(&Path::to_owned)
    }

    /// The same in an image, see [`Self::current_below`].
    pub(super) fn usable_below(
        &self,
        at: PathResolver<'_>,
    ) -> Result<Option<(ClientCertificate, Leaf)>, Fault> {
        let with_leaf = |stored| check_certificate(&stored).map(|leaf| (stored, leaf));
        self.current_below(at)?.map(with_leaf).transpose()
    }

    /// When the pair in use was stored, from its name. `None` if the name has no time, or one after
    /// the expiry of `leaf`, its certificate.
    pub(super) fn arrival(&self, leaf: &Leaf) -> Option<Wall> {
        self.time_in(self.target()?.file_name()?).filter(|at| *at < leaf.not_after)
    }

    /// The target of the link to the pair in use.
    fn target(&self) -> Option<PathBuf> {
        guard::parent_resolved(&self.current_path()).and_then(fs::read_link).ok()
    }

    /// Whether there is a pair, in use or not, as far as that can be read.
    pub(super) fn has_pair(&self) -> bool {
        let mut has_pair = false;
        self.each_pair(&mut |_| has_pair = true).is_err() || has_pair
    }

    /// The operations that store a certificate chain with its key and make them current. `chain` is
    /// PEM; other text in it is dropped.
    pub(super) fn update(
        &self,
        chain: &[u8],
        key: &Key,
        marks: &PairMarks,
        now: Wall,
    ) -> Result<Vec<Op>, Fault> {
        let (current, updated) = (self.current_path(), self.file("-updated.pem"));
        // Enough capacity at once: a reallocation would leave a copy of the key in memory.
        let marks = marks.lines();
        let capacity = chain.len() * 2 + (8 << 10) + marks.len();
        let mut text = Zeroizing::new(String::with_capacity(capacity));
        for certificate in CertificateDer::pem_slice_iter(chain) {
            let certificate = certificate.map_err(|_| "the certificate is not PEM")?;
            text.push_str(&x509::pem("CERTIFICATE", &certificate));
        }
        if text.is_empty() {
            return Err("no certificate to store".into());
        }
        text.push_str(key.pem());
        text.push_str(&marks);
        // A repeated installation: each attempt must not leave another file with the key. But the
        // last sync may have failed: until one succeeds, a power cut takes the link back.
        if holds(&current, text.as_bytes()) {
            return Ok(vec![Op::Sync(self.folder.clone())]);
        }
        let pair = self.leftover(text.as_bytes()).unwrap_or_else(|| self.unused_pair(now));
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

    /// The file of a failed attempt, to be written again: attempts may fail for years. It has the
    /// same text, if only the link failed; else it is the newest unreadable pair. It is never the
    /// pair in use.
    fn leftover(&self, text: &[u8]) -> Option<PathBuf> {
        let (mut same, mut unread) = (None, None);
        let target = self.target();
        let in_use = target.as_deref().and_then(Path::file_name);
        let mut look = |pair: PathBuf| {
            if pair.file_name() == in_use {
                return;
            }
            match read(&pair).map(Zeroizing::new) {
                Ok(stored) if stored.as_slice() == text => same = Some(pair),
                Ok(_) => {}
                Err(_) => unread = unread.take().max(Some(pair)),
            }
        };
        self.each_pair(&mut look).ok()?;
        same.or(unread)
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

    /// The operations that remove every certificate and key. The links to the pair in use go first:
    /// after a power cut none of the rest is current.
    pub(super) fn remove_all(&self) -> Result<Vec<Op>, Fault> {
        let names = [self.current_path(), self.file("-updated.pem")];
        let (mut links, mut others) = (Vec::new(), Vec::new());
        self.each_file(&mut |path| {
            if names.contains(&path) { links.push(path) } else { others.push(path) }
        })?;
        let mut ops: Vec<Op> = Vec::new();
        for group in [links, others] {
            if !group.is_empty() {
                ops.extend(group.into_iter().map(Op::Remove));
                ops.push(Op::Sync(self.folder.clone()));
            }
        }
        Ok(ops)
    }

    /// The operations that remove files that were written and not renamed: they have a key in them.
    fn remove_unfinished(&self) -> Result<Vec<Op>, Fault> {
        let mut ops = Vec::new();
        self.each_file(&mut |path| {
            if path.extension() == Some(OsStr::new("new")) && ops.len() < MOST_REMOVED {
                ops.push(Op::Remove(path));
            }
        })?;
        Ok(ops)
    }

    /// The operations that remove old pairs: all but the pair in use, and that of the others that
    /// was in use last or is the newest, if TLS can use it. One that cannot be read is kept only if
    /// there is no such pair, and garbage only if there is no other pair at all.
    fn remove_old(&self) -> Result<Vec<Op>, Fault> {
        let Some(target) = self.target() else {
            return Ok(Vec::new());
        };
        let (mut kept, mut ops) = (None, Vec::new());
        self.each_pair(&mut |mut pair| {
            if pair.file_name() == target.file_name() {
                return;
            }
            let is_former = pair.file_name() == self.former.as_deref();
            match &mut kept {
                // An older one is not read.
                Some((Usability::Usable, _, newer)) if !is_former && pair < *newer => {}
                None => return kept = Some((Usability::of(&pair), is_former, pair)),
                Some(kept) => {
                    let found = (Usability::of(&pair), is_former, pair);
                    pair = if found > *kept { mem::replace(kept, found).2 } else { found.2 };
                }
            }
            if ops.len() < MOST_REMOVED {
                ops.push(Op::Remove(pair));
            }
        })?;
        if !ops.is_empty() {
            ops.push(Op::Sync(self.folder.clone()));
        }
        Ok(ops)
    }

    /// The operations that follow the installation of a pair: they remove old pairs, unfinished
    /// files, and the key that was stored for the request of the pair.
    pub(super) fn clean(&self) -> Result<Vec<Op>, Fault> {
        let mut ops = self.remove_unfinished()?;
        ops.extend(self.remove_old()?);
        if guard::exists(&self.pending_key_path()) {
            ops.extend([Op::Remove(self.pending_key_path()), Op::Sync(self.folder.clone())]);
        }
        Ok(ops)
    }

    /// When a pair was stored, from its name.
    fn time_in(&self, name: &OsStr) -> Option<Wall> {
        let time =
            name.to_str()?.strip_prefix(self.name)?.strip_prefix('-')?.strip_suffix(".pem")?;
        let (date, clock) = time.split_at_checked("2026-11-21".len())?;
        let clock = clock.strip_prefix('-')?.replace('-', ":");
        Wall::parse(&format!("{date}T{clock}Z"))
    }

    /// Takes a new key for the next signing request.
    pub(super) fn generate_key(&mut self) -> Result<&Key, Fault> {
        Ok(self.key.insert(Key::generate()?))
    }

    /// Takes a key for the next signing request: the stored key of a request that has no
    /// certificate yet, else `more`, else a new key. With `new_key` it is always a new key. Returns
    /// the operations that store a new key before it is used, so that a restart repeats the same
    /// request.
    pub(super) fn pending_key(
        &mut self,
        new_key: bool,
        more: Option<&[u8]>,
    ) -> Result<Vec<Op>, Fault> {
        let path = self.pending_key_path();
        let pending = read(&path).map(Zeroizing::new);
        let stored = [pending.as_deref().map(Vec::as_slice).ok(), more].into_iter().flatten();
        let mut stored = stored.filter_map(|text| Key::of_pem(text).ok());
        if let Some(key) = stored.next().filter(|_| !new_key) {
            self.key = Some(key);
            return Ok(Vec::new());
        }
        let text = self.generate_key()?.pem().as_bytes().to_vec();
        Ok(write::replace(&path, PRIVATE, text))
    }

    fn key(&self) -> Result<&Key, Fault> {
        self.key.as_ref().ok_or_else(|| "no signing request was made".into())
    }

    /// The signing request of the key.
    pub(in crate::credentials) fn request(
        &self,
        subject: &Subject,
        purpose: CertificatePurpose,
    ) -> Result<SigningRequest, Fault> {
        self.key()?.request(subject.clone(), purpose)
    }

    /// The certificate chain (PEM) of the last request with its key and marks, not stored, or why
    /// it can never be used.
    pub(in crate::credentials) fn issued(
        &self,
        chain: &str,
        marks: &PairMarks,
        now: Wall,
    ) -> Result<(ClientCertificate, Leaf), Fault> {
        let (mut certificate, leaf) = issued(chain, self.key()?, now)?;
        let marks = format!("\n{}", marks.lines());
        certificate.chain.bytes.extend_from_slice(marks.as_bytes());
        Ok((certificate, leaf))
    }

    /// The operations that store the certificate chain (PEM) of the last request, if it can be
    /// used. After an error the same chain can be installed again.
    pub(in crate::credentials) fn install(
        &mut self,
        chain: &str,
        marks: &PairMarks,
        now: Wall,
    ) -> Result<Vec<Op>, Fault> {
        self.issued(chain, marks, now)?;
        let ops = self.update(chain.as_bytes(), self.key()?, marks, now)?;
        // Else a former attempt has made it current, and the sync alone is left.
        if ops.len() > 1 {
            self.former = self.target().and_then(|pair| pair.file_name().map(OsStr::to_owned));
        }
        Ok(ops)
    }

    /// Calls `take` with the path of each pair, in any order. The paths sort by the time in their
    /// names.
    fn each_pair(&self, take: &mut dyn FnMut(PathBuf)) -> Result<(), Fault> {
        self.each_file(&mut |path| {
            if path.file_name().and_then(|name| self.time_in(name)).is_some() {
                take(path);
            }
        })
    }

    /// Calls `take` with the path of each file of certificates and keys, of which there may be very
    /// many; never if there is no folder.
    fn each_file(&self, take: &mut dyn FnMut(PathBuf)) -> Result<(), Fault> {
        let at = |e: io::Error| cause(&e).at(self.folder.display());
        #[expect(clippy::disallowed_methods, reason = "guarded, and each entry is dropped")]
        let entries = match guard::found(&self.folder).and_then(fs::read_dir) {
            Err(e) if [NotFound, NotADirectory].contains(&e.kind()) => return Ok(()),
            entries => entries.map_err(at)?,
        };
        for entry in entries {
            let name = entry.map_err(at)?.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(self.name)) {
                take(self.folder.join(name));
            }
        }
        Ok(())
    }
}

/// What a pair that is not in use is good for. The greatest is kept.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Usability {
    /// It was read, and TLS cannot use it.
    Unusable,
    Unread,
    Usable,
}

impl Usability {
    fn of(pair: &Path) -> Self {
        match read_certificate(pair, pair).and_then(|read| check_certificate(&read)) {
            Ok(_) => Self::Usable,
            Err(why) if why.is_unread() => Self::Unread,
            Err(_) => Self::Unusable,
        }
    }
}

/// Whether `path` exists. A path that must not be touched or cannot be resolved is an error.
fn exists(path: &Path) -> Result<bool, Fault> {
    is_some(guard::found(path), path)
}

/// Whether a file or a link exists.
fn is_there(path: &Path) -> Result<bool, Fault> {
    is_some(guard::parent_resolved(path).and_then(fs::symlink_metadata), path)
}

fn is_some<T>(found: io::Result<T>, path: &Path) -> Result<bool, Fault> {
    match found {
        Ok(_) => Ok(true),
        Err(e) if [NotFound, NotADirectory].contains(&e.kind()) => Ok(false),
        Err(e) => Err(cause(&e).at(path.display())),
    }
}

/// Whether the file has this text, which is a secret.
fn holds(path: &Path, text: &[u8]) -> bool {
    read(path).is_ok_and(|stored| Zeroizing::new(stored).as_slice() == text)
}
