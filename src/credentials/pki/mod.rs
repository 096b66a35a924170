//! The files of bootstrap and rotation: the stored certificate, its key and the kubeconfig.
//!
//! `certificate` decides when a certificate is requested and what a response means. After a
//! power cut during any write, the next start finds the old identity or the new one. While the
//! process runs nothing is written here: each function returns the operations, or leaves them in
//! `Pki::later`.
//! Upstream: `pkg/kubelet/certificate/bootstrap`, client-go `util/certificate`.

pub mod key;
mod marks;
pub mod serving;
mod start;
mod store;

use std::io;
use std::path::Path;

use self::key::Key;
use self::marks::{PairMarks, UNREAD, digest_of};
use self::start::KubeconfigState;
pub use self::start::Start;
use self::store::{CLIENT, SERVER, Store};
use super::IdentitySource;
use super::certificate::CertificateKind;
use super::kubeconfig::{self, KubeconfigUser, PathResolver, render};
use crate::client::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::client::tls::check_certificate;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::os::guard;
use crate::os::guard::read;
use crate::os::write::{self, Disk, Op, PRIVATE};

/// The remedy of a board without an identity.
const JOIN: &str = "nodelet join gets one";
/// The kubeconfig is written again at a start and at a renewal, which may be a year away.
const KUBECONFIG_NOT_WRITTEN: &str = "the kubeconfig cannot be written; mend that and restart \
    nodelet before the bootstrap kubeconfig is removed";

/// The files of an identity that is renewed.
#[derive(Debug)]
pub struct Pki {
    pub(super) source: IdentitySource,
    pub(super) store: Store,
    pub(super) disk: Disk,
    /// Changes that nothing waits for, each with the message if it fails.
    pub(super) later: Vec<(&'static str, Vec<Op>)>,
    /// The marks of the certificates that are requested and stored from now on.
    pub(super) marks: PairMarks,
    /// What was logged of the files at the last read, and of this one: a search reads them again
    /// and again.
    lines_before: Vec<String>,
    lines: Vec<String>,
}

impl Pki {
    /// Reads the files and completes an interrupted update. A folder on a card that fails is no
    /// reason not to start: the kubeconfig may have what the Node needs. A folder on a mount that
    /// can block is refused.
    pub(super) fn open(
        disk: Disk,
        source: IdentitySource,
        now: Wall,
    ) -> Result<(Self, Start), Fault> {
        let mut pki = Self {
            store: Store::new(&source.cert_dir, CLIENT)?,
            source,
            disk,
            later: Vec::new(),
            marks: PairMarks::default(),
            lines_before: Vec::new(),
            lines: Vec::new(),
        };
        if pki.source.kind.is_some() {
            if let Some(why) = guard::refusal(&pki.source.cert_dir) {
                return Err(why);
            }
            let mut interrupted = pki.store.recover(&|_| true).unwrap_or_else(|why| {
                pki.warn(why.to_string());
                Vec::new()
            });
            let unfinished = write::beside(&pki.source.kubeconfig);
            if pki.source.bootstrap.is_some() && guard::exists(&unfinished) {
                interrupted.push(Op::Remove(unfinished));
            }
            // The files that are there are used all the same.
            if let Err(why) = pki.disk.carry_out(interrupted) {
                pki.warn(why.to_string());
            }
        }
        let (start, marks) = pki.start(now, None)?;
        pki.marks = marks;
        pki.carry_out_later();
        Ok((pki, start))
    }

    /// Carries out at once what nothing waits for.
    pub(super) fn carry_out_later(&mut self) {
        for (failure, ops) in std::mem::take(&mut self.later) {
            if let Err(why) = self.disk.carry_out(ops) {
                self.warn(format!("{failure}: {why}"));
            }
        }
    }

    /// Looks for a certificate that has not expired, and that begins at `begun` at the latest: a
    /// person may have added one since the start, or the clock was wrong at the start. `None` if
    /// there is none, or only one of another node. `completed`: the result of the operations of
    /// `Store::recover`.
    pub fn find(
        &mut self,
        completed: Result<(), Fault>,
        now: Wall,
        begun: Option<Wall>,
    ) -> Result<Option<(ApiConfig, Leaf)>, Fault> {
        self.lines_before = std::mem::take(&mut self.lines);
        if let Err(why) = completed {
            self.warn(why.to_string());
        }
        let (start, marks) = self.start(now, begun)?;
        let is_usable = |leaf: &Leaf| start.bootstrap.is_none() && leaf.is_valid(now, begun);
        let mut found = start.leaf.filter(is_usable);
        let own = &self.source.subject;
        if let Some(other) = found.as_ref().and_then(|leaf| leaf.subject.other_node(own)) {
            self.warn(format!("{}: {other}", self.source.kubeconfig.display()));
            found = None;
        }
        let Some(leaf) = found else {
            // What is not used takes the place of no stored pair.
            self.later.clear();
            return Ok(None);
        };
        self.marks = marks;
        Ok(Some((start.config, leaf)))
    }

    fn load(&self, path: &Path) -> Result<ApiConfig, Fault> {
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        let remedy = |why: Fault| match guard::found(path).is_err_and(is_missing) {
            true => why.or_remedy(JOIN),
            false => why,
        };
        kubeconfig::load(path, self.source.credentials.as_deref()).map_err(remedy)
    }

    /// Reads the bootstrap kubeconfig.
    pub fn load_bootstrap(&self) -> Result<ApiConfig, Fault> {
        match &self.source.bootstrap {
            Some(path) => self.load(path),
            None => Err("there is no --bootstrap-kubeconfig".into()),
        }
    }

    /// Takes a key for the next signing request, and returns the operations that must precede the
    /// request. With rotation each request has a new key. Without rotation the key is kept, unless
    /// `new_key` is set.
    pub(super) fn choose_key(&mut self, new_key: bool) -> Result<Vec<Op>, Fault> {
        if self.source.kind.is_some_and(CertificateKind::rotates) {
            self.store.generate_key()?;
            return Ok(Vec::new());
        }
        let stored = self.store.current().ok().flatten();
        let stored = stored.as_ref().map(|identity| identity.key.bytes.as_slice());
        self.store.pending_key(new_key, stored)
    }

    /// The identity after the operations of [`Store::install`], with the server and the CA of
    /// `requested`, which the signing request was sent to. The files may name another cluster by
    /// now; they count from the next start. The operations that write the kubeconfig of a
    /// bootstrap, and that remove old pairs, are left in `later`.
    pub(super) fn installed(
        &mut self,
        requested: ApiConfig,
        now: Wall,
    ) -> Result<(ApiConfig, Leaf), Fault> {
        let stored = self.store.usable()?;
        let (identity, leaf) = stored.ok_or("the stored certificate is missing")?;
        // A person may have replaced it since the request.
        if self.source.bootstrap.is_some()
            && let Ok((KubeconfigState::Unusable(why), _)) =
                self.kubeconfig_and_marks(Some(&requested), now)
            && !why.is_unread()
        {
            self.write_kubeconfig(&requested);
        }
        let clean = self.store.clean();
        self.add_later("old certificates cannot be removed", clean);
        Ok((ApiConfig { certificate: Some(identity), ..requested }, leaf))
    }

    /// The digest of the kubeconfig in its file; `None` if there is no file, or if it is already
    /// the kubeconfig that a bootstrap with `requested` would write.
    fn other_kubeconfig(&self, requested: &ApiConfig) -> Result<Option<String>, Fault> {
        let found = match read(&self.source.kubeconfig) {
            Err(why) if !why.is_unread() => return Ok(None),
            found => found?,
        };
        let new = self.rendered(requested)?;
        Ok((found != new.as_bytes()).then(|| digest_of(&found)))
    }

    /// Called before a request with the pair's own certificate, which replaces no kubeconfig. The
    /// mark `replaced` is kept only if that pair, which may not be stored yet, has it, and if the
    /// file still has that kubeconfig. A kubeconfig that cannot be read counts as unchanged.
    pub(super) fn keep_kubeconfig(&mut self, requested: &ApiConfig) {
        if self.marks.replaced.take().is_none() {
            return;
        }
        let in_use = requested.certificate.as_ref().map(PairMarks::of_stored);
        let is_still = |mark: &String| match self.other_kubeconfig(requested) {
            Ok(found) => found.is_some_and(|found| [&found, UNREAD].contains(&mark.as_str())),
            Err(_) => true,
        };
        self.marks.replaced = in_use.and_then(|marks| marks.replaced).filter(is_still);
    }

    /// The kubeconfig of a bootstrap. As in a kubelet's, a CA that was read from a file stays that
    /// file. A credential of the unit is written as data, because its file is there for this unit
    /// alone, until it ends.
    fn rendered(&self, requested: &ApiConfig) -> Result<String, Fault> {
        let mut cluster = requested.clone();
        if let Some(ca) = cluster.ca.as_mut().filter(|ca| self.is_credential(ca)) {
            ca.file = None;
        }
        render(&cluster, &KubeconfigUser::Pair(&self.store.current_path()))
    }

    /// Whether a CA is a credential of the unit.
    fn is_credential(&self, ca: &Pem) -> bool {
        let credentials = self.source.credentials.as_deref();
        ca.file.as_ref().zip(credentials).is_some_and(|(file, folder)| file.starts_with(folder))
    }

    fn add_later(&mut self, failure: &'static str, ops: Result<Vec<Op>, Fault>) {
        match ops {
            Ok(ops) => self.later.push((failure, ops)),
            Err(why) => self.warn(format!("{failure}: {why}")),
        }
    }

    fn warn(&mut self, line: String) {
        self.log(log::Level::Warn, line);
    }

    /// Logs a line about the files, unless the last read found the same.
    fn log(&mut self, level: log::Level, line: String) {
        if self.lines.contains(&line) {
            return;
        }
        if !self.lines_before.contains(&line) {
            log::log!(level, "{line}");
        }
        self.lines.push(line);
    }

    /// Writes the kubeconfig with the stored certificate later. If that fails, the next start uses
    /// the stored certificate with the bootstrap kubeconfig, and tries again.
    fn write_kubeconfig(&mut self, requested: &ApiConfig) {
        let text = self.rendered(requested);
        let path = &self.source.kubeconfig;
        let ops = text.map(|text| write::replace(path, PRIVATE, text.into_bytes()));
        self.add_later(KUBECONFIG_NOT_WRITTEN, ops);
    }
}

/// The certificate that is stored in `cert_dir`, if there is one that TLS can use. In an image each
/// path is read that `at` makes of it: the link to the pair in use has an absolute path.
pub fn stored_certificate(
    cert_dir: &Path,
    at: PathResolver<'_>,
) -> Option<(ClientCertificate, Leaf)> {
    Store::new(cert_dir, CLIENT).ok()?.usable_below(at).ok()?
}

/// Whether a stored certificate is not of another cluster than this kubeconfig.
pub fn is_of_cluster(stored: &ClientCertificate, kubeconfig: &ApiConfig) -> bool {
    !PairMarks::of_stored(stored).differs(&PairMarks::authorities(kubeconfig))
}

/// The operations that remove every certificate and key from `cert_dir`, the one in use first.
pub(crate) fn remove_certificates(cert_dir: &Path) -> Result<Vec<Op>, Fault> {
    Store::new(cert_dir, CLIENT)?.remove_all()
}

/// The same for the certificates of `nodelet serve`.
pub(crate) fn remove_serving_certificates(folder: &Path) -> Result<Vec<Op>, Fault> {
    Store::new(folder, SERVER)?.remove_all()
}

/// An issued certificate chain (PEM) for `key`, or why it can never be used.
pub(crate) fn issued(
    chain: &str,
    key: &Key,
    now: Wall,
) -> Result<(ClientCertificate, Leaf), Fault> {
    let source = "the issued certificate".to_owned();
    let pem = |bytes: &[u8]| Pem { file: None, source: source.clone(), bytes: bytes.to_vec() };
    let identity =
        ClientCertificate { chain: pem(chain.as_bytes()), key: pem(key.pem().as_bytes()) };
    let leaf = check_certificate(&identity)?;
    if leaf.not_after < now {
        return Err(format!("{source} expired at {}", leaf.not_after.time()).into());
    }
    Ok((identity, leaf))
}

#[cfg(test)]
pub(crate) mod tests;
