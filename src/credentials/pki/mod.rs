//! The files of bootstrap and rotation: the stored certificate, its key and the kubeconfig.
//!
//! `certificate` decides when a certificate is requested and what a response means. After a
//! power cut during any write, the next start finds the old identity or the new one. While the
//! process runs nothing is written here: each function returns the operations, or leaves them in
//! `Pki::later`.
//! Upstream: `pkg/kubelet/certificate/bootstrap`, client-go `util/certificate`.

pub mod key;
pub mod serving;
mod store;

use std::io;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use self::key::Key;
use self::store::{CLIENT, Marks, SERVER, Store, digest_of};
use super::IdentitySource;
use super::certificate::CertificateKind;
use super::kubeconfig::{self, KubeconfigUser, render};
use crate::client::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::client::tls::{self, check_certificate};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::os::guard;
use crate::os::guard::read;
use crate::os::read::cause;
use crate::os::write::{self, Disk, Op, PRIVATE};

/// The remedy of a board without an identity.
const JOIN: &str = "nodelet join gets one";

/// The files of an identity that is renewed.
#[derive(Debug)]
pub struct Pki {
    pub(super) source: IdentitySource,
    pub(super) store: Store,
    pub(super) disk: Disk,
    /// Changes that nothing waits for, each with the message if it fails.
    pub(super) later: Vec<(&'static str, Vec<Op>)>,
    /// The marks of the certificates that are requested and stored from now on.
    pub(super) marks: Marks,
    /// Last warning about the stored certificate.
    last_warning: String,
}

impl Pki {
    /// Reads the files and completes an interrupted update.
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
            marks: Marks::default(),
            last_warning: String::new(),
        };
        if pki.source.kind.is_some() {
            let interrupted = pki.store.recover()?;
            // The files that are there are used all the same.
            if let Err(why) = pki.disk.carry_out(interrupted) {
                pki.warn(why.to_string());
            }
        }
        let (start, marks) = pki.start(now)?;
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

    /// Looks for a certificate that has not expired: a person may have added one since the start,
    /// or the clock was wrong at the start. `None` if there is none, or only one of another node.
    /// `completed`: the result of the operations of `Store::recover`.
    pub fn find(
        &mut self,
        completed: Result<(), Fault>,
        now: Wall,
    ) -> Result<Option<(ApiConfig, Leaf)>, Fault> {
        if let Err(why) = completed {
            self.warn(why.to_string());
        }
        let (start, marks) = self.start(now)?;
        let is_usable = |leaf: &Leaf| start.bootstrap.is_none() && now <= leaf.not_after;
        let Some(leaf) = start.leaf.filter(is_usable) else {
            return Ok(None);
        };
        if let Some(other) = leaf.subject.other_node(&self.source.subject) {
            self.warn(format!("{}: {other}", self.source.kubeconfig.display()));
            return Ok(None);
        }
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
        let is_unusable = || matches!(self.kubeconfig_state(now), Ok(KubeconfigState::Unusable(_)));
        if self.source.bootstrap.is_some() && (self.marks.replaced.is_some() || is_unusable()) {
            self.write_kubeconfig(&requested);
        }
        let clean = self.store.clean();
        self.add_later("old certificates cannot be removed", clean);
        Ok((ApiConfig { certificate: Some(identity), ..requested }, leaf))
    }

    /// The digest of the kubeconfig in its file; `None` if there is no file, or if it is already
    /// the kubeconfig that a bootstrap with `requested` would write.
    fn other_kubeconfig(&self, requested: &ApiConfig) -> Option<String> {
        let (found, new) = (read(&self.source.kubeconfig).ok()?, self.rendered(requested).ok()?);
        (found != new.as_bytes()).then(|| digest_of(&found))
    }

    /// Called before a request with the own certificate. Such a request replaces no kubeconfig, so
    /// the mark `replaced` is dropped. It is kept only if the stored pair has it, too, and the
    /// kubeconfig that it names is still in its file.
    pub(super) fn keep_kubeconfig(&mut self, requested: &ApiConfig) {
        let Some(replaced) = self.marks.replaced.take() else {
            return;
        };
        let stored = self.store.current().ok().flatten();
        let stored = stored.as_ref().map(Marks::of_stored).unwrap_or_default().replaced;
        let found = self.other_kubeconfig(requested);
        let is_still = [stored, found].iter().all(|it| it.as_ref() == Some(&replaced));
        self.marks.replaced = is_still.then_some(replaced);
    }

    fn rendered(&self, requested: &ApiConfig) -> Result<String, Fault> {
        render(requested, &KubeconfigUser::Pair(&self.store.current_path()))
    }

    fn add_later(&mut self, failure: &'static str, ops: Result<Vec<Op>, Fault>) {
        match ops {
            Ok(ops) => self.later.push((failure, ops)),
            Err(why) => self.warn(format!("{failure}: {why}")),
        }
    }

    /// Writes the kubeconfig with the stored certificate later. If that fails, the next start uses
    /// the stored certificate.
    fn write_kubeconfig(&mut self, requested: &ApiConfig) {
        let text = self.rendered(requested);
        let path = &self.source.kubeconfig;
        let ops = text.map(|text| write::replace(path, PRIVATE, text.into_bytes()));
        self.add_later("the kubeconfig cannot be written", ops);
    }
}

/// The certificate that is stored in `cert_dir`, if there is one that TLS can use.
pub fn stored_certificate(cert_dir: &Path) -> Option<(ClientCertificate, Leaf)> {
    Store::new(cert_dir, CLIENT).ok()?.usable().ok()?
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

/// Whether the kubeconfig's certificate `given` is to be used instead of the `stored` one: the
/// kubeconfig was replaced since the stored certificate was renewed, perhaps by one of another
/// cluster. The marks of the stored certificate say which kubeconfig it was renewed for. Without
/// marks the later `notBefore` decides. A certificate that has expired is never new.
fn is_new(given: &ClientCertificate, stored: &ClientCertificate, now: Wall) -> bool {
    let (Ok(leaf), Ok(stored_leaf)) = (check_certificate(given), check_certificate(stored)) else {
        return false;
    };
    now <= leaf.not_after
        && given.chain.bytes != stored.chain.bytes
        && match Marks::of_stored(stored).has(given) {
            Some(is_known) => !is_known,
            None => leaf.not_before > stored_leaf.not_before,
        }
}

/// Whether a bootstrap wrote this kubeconfig, and the bootstrap kubeconfig was replaced since by
/// one of another cluster.
fn is_of_former_bootstrap(kubeconfig: &ApiConfig, bootstrap: &ApiConfig) -> bool {
    let new = Marks::authorities(bootstrap);
    let stored = kubeconfig.certificate.as_ref().map(Marks::of_stored);
    stored.is_some_and(|stored| stored.differs(&new))
        && Marks::authorities(kubeconfig).differs(&new)
}

/// What `--kubeconfig` is to a board with a bootstrap kubeconfig.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum KubeconfigState {
    /// With its client certificate.
    Usable(ApiConfig, Leaf),
    /// A bootstrap is needed, and why.
    Unusable(Fault),
}

/// The stored certificate and its key, to a start.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
enum StoredPair {
    /// TLS can use it.
    Usable(ClientCertificate, Leaf),
    Missing,
    /// It cannot be read or used. It is not overwritten at the start, because it may be the only
    /// one that has not expired.
    Unusable,
}

/// What a run begins with.
#[derive(Debug)]
pub struct Start {
    /// Where the API server is, and the credentials.
    pub config: ApiConfig,
    /// Why the run begins with the bootstrap kubeconfig; `None` if it does not.
    pub bootstrap: Option<Fault>,
    /// The certificate to renew; `None` if there is none.
    pub leaf: Option<Leaf>,
    /// The certificate is renewed at once, for one of two reasons. It is inside the kubeconfig, and
    /// may permit more than a node needs; or a supervisor signed it, and its arrival is not known.
    pub replace_now: bool,
}

impl Start {
    fn with(config: ApiConfig, leaf: Option<Leaf>) -> Self {
        Self { config, bootstrap: None, leaf, replace_now: false }
    }
}

impl Pki {
    /// What a run begins with, and the marks of its requests.
    fn start(&mut self, now: Wall) -> Result<(Start, Marks), Fault> {
        let Some(kind) = self.source.kind else {
            let kubeconfig = self.load(&self.source.kubeconfig)?;
            return Ok((Start::with(kubeconfig, None), Marks::default()));
        };
        if self.source.bootstrap.is_none() {
            let kubeconfig = self.load(&self.source.kubeconfig)?;
            let marks = Marks::of(kubeconfig.certificate.as_ref(), None);
            return Ok((self.seed(kubeconfig, &marks, now), marks));
        }
        let bootstrap = self.load_bootstrap();
        let (state, marks) = self.kubeconfig_and_marks(bootstrap.as_ref().ok(), now)?;
        let start = match state {
            KubeconfigState::Usable(kubeconfig, _) if kind.rotates() => {
                self.seed(kubeconfig, &marks, now)
            }
            KubeconfigState::Usable(kubeconfig, leaf) => Start::with(kubeconfig, Some(leaf)),
            KubeconfigState::Unusable(why) => {
                let bootstrap = bootstrap?;
                // The power failed after the certificate was stored and before the kubeconfig was
                // written, or the kubeconfig was deleted.
                if let StoredPair::Usable(identity, leaf) = self.stored()
                    && now <= leaf.not_after
                    && leaf.subject.satisfies(&self.source.subject)
                    && !Marks::of_stored(&identity).differs(&Marks::authorities(&bootstrap))
                {
                    log::info!("{why}; {} is used", identity.chain.source);
                    self.write_kubeconfig(&bootstrap);
                    let certificate = Some(identity);
                    let kubeconfig = ApiConfig { certificate, authorization: None, ..bootstrap };
                    Start::with(kubeconfig, Some(leaf))
                } else {
                    Start { bootstrap: Some(why), ..Start::with(bootstrap, None) }
                }
            }
        };
        Ok((start, marks))
    }

    /// The kubeconfig, or why it is unusable and a bootstrap is needed; and the marks of the
    /// requests that follow. An unusable kubeconfig stays until the kubeconfig of the bootstrap
    /// replaces it.
    pub(super) fn kubeconfig_and_marks(
        &self,
        bootstrap: Option<&ApiConfig>,
        now: Wall,
    ) -> Result<(KubeconfigState, Marks), Fault> {
        let state = self.kubeconfig_state(now)?;
        let replaced = bootstrap.and_then(|it| self.other_kubeconfig(it));
        let (kubeconfig, leaf) = match state {
            KubeconfigState::Usable(kubeconfig, leaf) => (kubeconfig, leaf),
            unusable @ KubeconfigState::Unusable(_) => {
                let mut marks = Marks::of(None, bootstrap);
                marks.replaced = replaced;
                return Ok((unusable, marks));
            }
        };
        let given = kubeconfig.certificate.as_ref();
        let mut marks = Marks::of(given, bootstrap);
        let of_stored = given.map(Marks::of_stored).unwrap_or_default();
        let why = match (bootstrap, &replaced) {
            (Some(bootstrap), Some(_)) if is_of_former_bootstrap(&kubeconfig, bootstrap) => {
                "is of another cluster than the bootstrap kubeconfig"
            }
            (Some(_), Some(_)) if of_stored.replaced == replaced => {
                "is to be replaced by that of the bootstrap"
            }
            _ => return Ok((KubeconfigState::Usable(kubeconfig, leaf), marks)),
        };
        let why = Fault::from(why).at(self.source.kubeconfig.display());
        marks.replaced = replaced;
        Ok((KubeconfigState::Unusable(why), marks))
    }

    /// The certificate that a rotation begins with: the stored certificate, or else the
    /// kubeconfig's. If the latter is inside the kubeconfig, it is also stored. There are four
    /// exceptions:
    ///
    /// - If the kubeconfig is newer ([`is_new`]), its certificate is used.
    /// - If the stored certificate has expired and the kubeconfig's certificate expires later, the
    ///   kubeconfig's is used. Both may seem to be expired, because the clock may be ahead.
    /// - If exactly one of the two certificates is another node's, it is not used.
    /// - A kubeconfig with a token and without a certificate is used as it is: a server would
    ///   prefer a certificate to the token.
    fn seed(&mut self, mut kubeconfig: ApiConfig, marks: &Marks, now: Wall) -> Start {
        if kubeconfig.certificate.is_none() && kubeconfig.authorization.is_some() {
            return Start::with(kubeconfig, None);
        }
        let mut given = kubeconfig.certificate.clone();
        let mut leaf = given.as_ref().and_then(|i| Leaf::of_pem(&i.chain.bytes));
        let stored = self.stored();
        let keeps_stored = matches!(stored, StoredPair::Unusable);
        let mut stored = match stored {
            StoredPair::Usable(identity, leaf) => Some((identity, leaf)),
            StoredPair::Missing | StoredPair::Unusable => None,
        };
        if let (Some(leaf_given), Some((identity, leaf_stored))) = (&leaf, &stored) {
            let other = |leaf: &Leaf| leaf.subject.other_node(&self.source.subject);
            match (other(leaf_given), other(leaf_stored)) {
                (Some(why), None) => {
                    let path = self.source.kubeconfig.display();
                    let source = &identity.chain.source;
                    let line = format!("{path}: {}; {source} stays in use", why.what);
                    self.warn(line);
                    (given, leaf) = (None, None);
                }
                (None, Some(_)) => stored = None,
                _ => {}
            }
        }
        if let Some((identity, stored)) = stored {
            let is_later = leaf.as_ref().is_some_and(|l| l.not_after > stored.not_after);
            let is_new = given.as_ref().is_some_and(|given| is_new(given, &identity, now));
            if is_new {
                let path = self.source.kubeconfig.display();
                log::info!("{path}: new since the stored certificate, which is not used");
            } else if now <= stored.not_after || !is_later {
                kubeconfig.certificate = Some(identity);
                return self.arrived(Start::with(kubeconfig, Some(stored)));
            }
        }
        let Some(identity) = given else {
            return Start::with(kubeconfig, None);
        };
        let replace_now = identity.chain.file.is_none() && leaf.is_some();
        if replace_now && !keeps_stored {
            let ops = Key::of_pem(&identity.key.bytes)
                .and_then(|key| self.store.update(&identity.chain.bytes, &key, marks, now));
            self.add_later("the kubeconfig's certificate cannot be stored", ops);
        }
        Start { replace_now, ..Start::with(kubeconfig, leaf) }
    }

    /// Sets the `not_before` of a supervisor's certificate to its arrival, with which its lifetime
    /// begins.
    fn arrived(&self, mut start: Start) -> Start {
        let at_supervisor = self.source.kind.is_some_and(CertificateKind::is_at_supervisor);
        if let (true, Some(leaf)) = (at_supervisor, &mut start.leaf) {
            let arrival = self.store.arrival(leaf);
            leaf.not_before = arrival.unwrap_or_default();
            start.replace_now = arrival.is_none();
        }
        start
    }

    /// The stored certificate. If it cannot be read or used, that is logged, and a renewal or a
    /// bootstrap replaces it.
    fn stored(&mut self) -> StoredPair {
        match self.store.usable() {
            Ok(Some((identity, leaf))) => StoredPair::Usable(identity, leaf),
            Ok(None) => StoredPair::Missing,
            Err(why) => {
                self.warn(format!("{why}; continuing without this certificate"));
                StoredPair::Unusable
            }
        }
    }

    fn warn(&mut self, why: String) {
        if self.last_warning != why {
            log::warn!("{why}");
            self.last_warning = why;
        }
    }

    /// A kubeconfig is unusable if it is missing, if TLS cannot use it, or if its certificate has
    /// expired or is another node's. `Err` if its path cannot be resolved, for another reason than
    /// a missing file. Upstream: `isClientConfigStillValid` in
    /// `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
    fn kubeconfig_state(&self, now: Wall) -> Result<KubeconfigState, Fault> {
        let path = &self.source.kubeconfig;
        let at = |why: Fault| why.at(path.display());
        match guard::found(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(KubeconfigState::Unusable(at("not there yet".into())));
            }
            Err(e) => return Err(at(cause(&e))),
            Ok(_) => {}
        }
        let usable = self.load(path).and_then(|kubeconfig| {
            tls::client_config(&kubeconfig).map_err(at)?;
            let identity = kubeconfig.certificate.as_ref();
            let identity = identity.ok_or_else(|| at("no client certificate in it".into()))?;
            let leaf = check_certificate(identity)?;
            if let Some(other) = leaf.subject.other_node(&self.source.subject) {
                return Err(at(other.what.into()));
            }
            for certificate in CertificateDer::pem_slice_iter(&identity.chain.bytes) {
                let certificate = certificate.ok().and_then(|der| Leaf::parse(&der));
                let until = certificate.map(|certificate| certificate.not_after);
                if let Some(until) = until.filter(|until| *until < now) {
                    let until = until.time();
                    return Err(at(format!("its certificate expired at {until}").into()));
                }
            }
            Ok((kubeconfig, leaf))
        });
        Ok(match usable {
            Ok((kubeconfig, leaf)) => KubeconfigState::Usable(kubeconfig, leaf),
            Err(why) => KubeconfigState::Unusable(why),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
