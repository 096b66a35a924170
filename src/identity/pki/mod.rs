//! The files of bootstrap and rotation: the stored certificate, its key and the kubeconfig.
//!
//! `core::certificate` decides when a certificate is requested and what a response means. After a
//! power cut during any write, the next start finds the old identity or the new one.
//! Upstream: `pkg/kubelet/certificate/bootstrap`, client-go `util/certificate`.

pub mod key;
pub(crate) mod kubeconfig_text;
mod start;
mod store;

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use self::key::Key;
use self::kubeconfig_text::User;
pub use self::start::Start;
use self::store::Store;
use crate::files::read::read;
use crate::files::write::{self, Disk, Op, PRIVATE};
use crate::identity::kubeconfig;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};
use crate::wire::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::wire::tls;

/// The flags that name the files of an identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    pub bootstrap: Option<PathBuf>,
    /// `--cert-dir`.
    pub cert_dir: PathBuf,
    /// `--rotate-certificates`.
    pub rotate: bool,
    /// `--k3s-supervisor`: its certificates begin with the birth of the CA.
    pub at_supervisor: bool,
    /// The folder of systemd's credentials.
    pub credentials: Option<PathBuf>,
}

/// The files of an identity that is renewed.
#[derive(Debug)]
pub struct Pki {
    paths: Paths,
    subject: Subject,
    store: Store,
    disk: Disk,
    /// Key of the last signing request.
    key: Option<Key>,
    /// Last warning about the stored certificate.
    last_warning: String,
}

impl Pki {
    /// Reads the files and completes an interrupted update. `subject` is the subject of the
    /// certificates to request.
    pub fn open(paths: Paths, subject: Subject, now: Wall) -> Result<(Self, Start), String> {
        Self::open_on(Disk::default(), paths, subject, now)
    }

    /// The same without a write.
    pub fn open_read_only(
        paths: Paths,
        subject: Subject,
        now: Wall,
    ) -> Result<(Self, Start), String> {
        Self::open_on(Disk::read_only(), paths, subject, now)
    }

    fn open_on(
        disk: Disk,
        paths: Paths,
        subject: Subject,
        now: Wall,
    ) -> Result<(Self, Start), String> {
        let mut pki = Self {
            store: Store::new(&paths.cert_dir)?,
            paths,
            subject,
            disk,
            key: None,
            last_warning: String::new(),
        };
        let start = pki.start(now)?;
        Ok((pki, start))
    }

    /// A certificate that has not expired: it was added since the start, or the clock was wrong
    /// then. `None` if there is still none.
    pub fn find(&mut self, now: Wall) -> Result<Option<(ApiConfig, Leaf)>, String> {
        let start = self.start(now)?;
        let is_usable = |leaf: &Leaf| start.bootstrap.is_none() && now <= leaf.not_after;
        let leaf = start.leaf.filter(is_usable);
        Ok(leaf.map(|leaf| (start.config, leaf)))
    }

    fn load(&self, path: &Path) -> Result<ApiConfig, String> {
        kubeconfig::load(path, self.paths.credentials.as_deref())
    }

    /// Reads the bootstrap kubeconfig.
    pub fn load_bootstrap(&self) -> Result<ApiConfig, String> {
        match &self.paths.bootstrap {
            Some(path) => self.load(path),
            None => Err("there is no --bootstrap-kubeconfig".into()),
        }
    }

    /// Makes a signing request. With rotation each request has a new key. Without rotation the key
    /// is kept, unless `new_key` is set.
    pub fn sign(&mut self, new_key: bool) -> Result<SigningRequest, String> {
        let key = match self.paths.rotate {
            true => Key::generate()?,
            false => self.kept_key(new_key)?,
        };
        let request = key.request(self.subject.clone());
        self.key = Some(key);
        request
    }

    fn kept_key(&mut self, new_key: bool) -> Result<Key, String> {
        let pending = read(&self.store.pending_key_path()).map(Zeroizing::new);
        let stored = self.store.current().ok().flatten();
        let stored = stored.as_ref().map(|identity| &identity.key.bytes);
        let known = [pending.as_deref().ok(), stored].into_iter().flatten();
        let mut known = known.filter_map(|text| Key::of_pem(text).ok());
        if let Some(key) = known.next().filter(|_| !new_key) {
            return Ok(key);
        }
        let key = Key::generate()?;
        self.disk.carry_out(self.store.write_pending_key(&key))?;
        Ok(key)
    }

    /// Why the certificate chain (PEM) of the last request can never be used, before it replaces the
    /// stored one.
    pub fn check(&self, chain: &str, now: Wall) -> Result<(), String> {
        let key = self.key.as_ref().ok_or("no signing request was made")?;
        let source = "the issued certificate".to_owned();
        let pem = |bytes: &[u8]| Pem {
            file: None,
            source: source.clone(),
            bytes: bytes.to_vec(),
        };
        let leaf = usable(&ClientCertificate {
            chain: pem(chain.as_bytes()),
            key: pem(key.pem().as_bytes()),
        })?;
        match leaf.not_after < now {
            true => Err(format!("{source} expired at {}", leaf.not_after.time())),
            false => Ok(()),
        }
    }

    /// Stores the certificate chain (PEM) of the last request and makes it current. After an error
    /// the same chain can be installed again.
    pub fn install(&mut self, chain: &str, now: Wall) -> Result<(ApiConfig, Leaf), String> {
        let key = self.key.as_ref().ok_or("no signing request was made")?;
        let ops = self.store.update(chain.as_bytes(), key, now)?;
        self.disk.carry_out(ops)?;
        let identity = self.store.current()?;
        let identity = identity.ok_or("the stored certificate is missing")?;
        let leaf = usable(&identity)?;
        let kubeconfig = match (self.valid(now), self.load_bootstrap()) {
            (Ok(Err(_)), Ok(bootstrap)) => self.write_kubeconfig(bootstrap, identity),
            (Ok(Ok((kubeconfig, _))), _) => kubeconfig.with(identity),
            _ => self.load(&self.paths.kubeconfig)?.with(identity),
        };
        let remove = self.store.remove_pending_key();
        if let Err(why) = self.disk.carry_out(remove) {
            log::warn!("{why}");
        }
        Ok((kubeconfig, leaf))
    }

    /// Writes a kubeconfig that replaces the bootstrap kubeconfig. If the write fails, the next
    /// start uses the stored certificate.
    fn write_kubeconfig(&mut self, bootstrap: ApiConfig, identity: ClientCertificate) -> ApiConfig {
        let text = kubeconfig_text::render(&bootstrap, &User::Pair(&self.store.current_path()));
        let written = text.and_then(|text| {
            let ops = write::replace(&self.paths.kubeconfig, PRIVATE, text.into_bytes());
            self.disk.carry_out(ops)
        });
        if let Err(why) = written {
            log::warn!("the kubeconfig cannot be written: {why}");
        }
        let without_token = ApiConfig {
            authorization: None,
            ..bootstrap
        };
        without_token.with(identity)
    }
}

impl ApiConfig {
    fn with(self, certificate: ClientCertificate) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }
}

/// The certificate that is stored in `cert_dir`, if there is one that TLS can use.
pub fn stored_certificate(cert_dir: &Path) -> Option<Leaf> {
    let stored = Store::new(cert_dir).ok()?.current().ok()??;
    usable(&stored).ok()
}

/// The operations that remove every certificate and key from `cert_dir`, the one in use first.
pub(crate) fn remove_certificates(cert_dir: &Path) -> Result<Vec<Op>, String> {
    Store::new(cert_dir)?.remove_all()
}

/// The first certificate of the chain, if TLS can use it with its key.
fn usable(identity: &ClientCertificate) -> Result<Leaf, String> {
    tls::check_certificate(identity)?;
    let leaf = Leaf::of_pem(&identity.chain.bytes);
    leaf.ok_or_else(|| format!("{}: not a usable certificate", identity.chain.source))
}

#[cfg(test)]
pub(super) mod tests;
