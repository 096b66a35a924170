//! The board's own identity: what it is at the start, and how a new one takes its place.
//!
//! The files side of bootstrap and rotation. When a certificate is needed and what the
//! server says of a request is `certificate`'s. Everything that is written here leaves
//! the old identity or the new one working, wherever the power fails.
//! Upstream: `pkg/kubelet/certificate/bootstrap`, client-go `util/certificate`.

pub mod key;
mod kubeconfig;
mod store;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use self::key::Key;
use self::store::Store;
use crate::files::guard;
use crate::files::read::{cause, read};
use crate::files::write::{self, Disk, PRIVATE};
use crate::identity::kubeconfig as kubeconfigs;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};
use crate::wire::api_config::{ApiConfig, ClientCertificate};
use crate::wire::tls;

/// The flags that say where an identity comes from.
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
    /// The folder of systemd's credentials, where there is one.
    pub credentials: Option<PathBuf>,
}

/// The files of an identity that is renewed.
#[derive(Debug)]
pub struct Pki {
    paths: Paths,
    subject: Subject,
    store: Store,
    disk: Disk,
    /// Of the request under way.
    key: Option<Key>,
    /// What was last said of the stored certificate.
    said: String,
}

/// What there is to begin with.
#[derive(Debug)]
pub struct Start {
    /// Where the API server is, and who we are.
    pub config: ApiConfig,
    /// Why that is the bootstrap's.
    pub bootstrap: Option<String>,
    /// Our certificate, where there is one that is renewed.
    pub leaf: Option<Leaf>,
    /// It was made by others and given to us: it may allow more than it should, and is
    /// renewed at once.
    pub given: bool,
}

impl Pki {
    /// Looks at what is there, and completes what was cut off. `subject` is whom our
    /// certificate is to be for.
    pub fn open(paths: Paths, subject: Subject, now: Wall) -> Result<(Self, Start), String> {
        Self::open_on(Disk::default(), paths, subject, now)
    }

    /// The same without a write.
    pub fn look(paths: Paths, subject: Subject, now: Wall) -> Result<(Self, Start), String> {
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
            said: String::new(),
        };
        let start = pki.start(now)?;
        Ok((pki, start))
    }

    /// The way in that is there after all, where a bootstrap seemed to be needed: judged by
    /// a clock that was wrong, or somebody has brought it since.
    pub fn found(&mut self, now: Wall) -> Option<(ApiConfig, Leaf)> {
        let start = self.start(now).ok()?;
        let leaf = start.leaf.filter(|_| start.bootstrap.is_none())?;
        Some((start.config, leaf))
    }

    fn start(&mut self, now: Wall) -> Result<Start, String> {
        let (rotate, bootstrap) = (self.paths.rotate, self.paths.bootstrap.is_some());
        if !rotate && !bootstrap {
            return Ok(Start::with(self.load(&self.paths.kubeconfig)?, None));
        }
        let cut_off = self.store.recover()?;
        self.disk.carry_out(cut_off)?;
        if !bootstrap {
            let kubeconfig = self.load(&self.paths.kubeconfig)?;
            return Ok(self.seed(kubeconfig, now));
        }
        match self.valid(now)? {
            Ok((kubeconfig, _)) if rotate => Ok(self.seed(kubeconfig, now)),
            Ok((kubeconfig, leaf)) => Ok(Start::with(kubeconfig, Some(leaf))),
            Err(why) => {
                let bootstrap = self.bootstrap()?;
                // Stored, and then the power failed before the kubeconfig was written;
                // or somebody lost it.
                if let Some((identity, leaf)) = self.stored(now)
                    && leaf.subject == self.subject
                {
                    let kubeconfig = self.settle(bootstrap, identity);
                    return Ok(Start::with(kubeconfig, Some(leaf)));
                }
                Ok(Start {
                    bootstrap: Some(why),
                    ..Start::with(bootstrap, None)
                })
            }
        }
    }

    /// What a rotation begins with: the stored certificate, or else the kubeconfig's.
    fn seed(&mut self, mut kubeconfig: ApiConfig, now: Wall) -> Start {
        if let Some((identity, leaf)) = self.stored(now) {
            kubeconfig.certificate = Some(identity);
            return Start::with(kubeconfig, Some(leaf));
        }
        let Some(identity) = kubeconfig.certificate.clone() else {
            return Start::with(kubeconfig, None);
        };
        let leaf = Leaf::of_pem(&identity.chain.bytes);
        let given = identity.chain.file.is_none() && leaf.is_some();
        if given {
            let stored = Key::of_pem(&identity.key.bytes)
                .and_then(|key| self.store.update(&identity.chain.bytes, &key, now))
                .and_then(|ops| self.disk.carry_out(ops));
            if let Err(why) = stored {
                log::warn!("the kubeconfig's certificate cannot be stored: {why}");
            }
        }
        Start {
            given,
            ..Start::with(kubeconfig, leaf)
        }
    }

    /// The stored certificate, if it can be used and has not expired. What cannot be
    /// read is as good as none: there may be other ways to a certificate.
    fn stored(&mut self, now: Wall) -> Option<(ClientCertificate, Leaf)> {
        let usable = self.store.current().and_then(|stored| {
            let Some(identity) = stored else {
                return Ok(None);
            };
            let leaf = usable(&identity)?;
            Ok(Some((identity, leaf)))
        });
        match usable {
            Ok(found) => found.filter(|(_, leaf)| now <= leaf.not_after),
            Err(why) => {
                if self.said != why {
                    log::warn!("{why}; doing without it");
                    self.said = why;
                }
                None
            }
        }
    }

    /// The kubeconfig, where it will do without a bootstrap (kubelet:
    /// isClientConfigStillValid), or why not.
    fn valid(&self, now: Wall) -> Result<Result<(ApiConfig, Leaf), String>, String> {
        let path = &self.paths.kubeconfig;
        let line = |what: &str| format!("{}: {what}", path.display());
        match guard::found(path).and_then(fs::metadata) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(line("not there yet")));
            }
            Err(e) => return Err(line(&cause(&e))),
            Ok(_) => {}
        }
        Ok(self.load(path).and_then(|kubeconfig| {
            tls::client_config(&kubeconfig).map_err(|e| line(&e))?;
            let identity = kubeconfig.certificate.as_ref();
            let identity = identity.ok_or_else(|| line("no client certificate in it"))?;
            let leaf = usable(identity)?;
            for certificate in CertificateDer::pem_slice_iter(&identity.chain.bytes) {
                let certificate = certificate.ok().and_then(|der| Leaf::parse(&der));
                let until = certificate.map(|certificate| certificate.not_after);
                if let Some(until) = until.filter(|until| *until < now) {
                    let until = until.time();
                    return Err(line(&format!("its certificate expired at {until}")));
                }
            }
            Ok((kubeconfig, leaf))
        }))
    }

    fn load(&self, path: &Path) -> Result<ApiConfig, String> {
        kubeconfigs::load(path, self.paths.credentials.as_deref())
    }

    /// The kubeconfig to ask for a certificate with, where we have none to ask with.
    pub fn bootstrap(&self) -> Result<ApiConfig, String> {
        match &self.paths.bootstrap {
            Some(path) => self.load(path),
            None => Err("there is no --bootstrap-kubeconfig".into()),
        }
    }

    /// Makes a request for a certificate. Where certificates rotate, with a new key each
    /// time; else with the one that is there, unless the request of that must be
    /// `unlike` the last one.
    pub fn sign(&mut self, unlike: bool) -> Result<SigningRequest, String> {
        let key = match self.paths.rotate {
            true => Key::generate()?,
            false => self.kept_key(unlike)?,
        };
        let request = key.request(self.subject.clone());
        self.key = Some(key);
        request
    }

    fn kept_key(&mut self, unlike: bool) -> Result<Key, String> {
        let waiting = read(&self.store.waiting_key()).map(Zeroizing::new);
        let stored = self.store.current().ok().flatten();
        let stored = stored.as_ref().map(|identity| &identity.key.bytes);
        let known = [waiting.as_deref().ok(), stored].into_iter().flatten();
        let mut known = known.filter_map(|text| Key::of_pem(text).ok());
        if let Some(key) = known.next().filter(|_| !unlike) {
            return Ok(key);
        }
        let key = Key::generate()?;
        self.disk.carry_out(self.store.keep(&key))?;
        Ok(key)
    }

    /// Makes the certificate (PEM chain) that the last request brought the one in use.
    pub fn install(&mut self, chain: &str, now: Wall) -> Result<(ApiConfig, Leaf), String> {
        let key = self.key.as_ref().ok_or("no request is under way")?;
        let ops = self.store.update(chain.as_bytes(), key, now)?;
        self.disk.carry_out(ops)?;
        let identity = self.store.current()?;
        let identity = identity.ok_or("the certificate is gone that was stored")?;
        let leaf = usable(&identity)?;
        let kubeconfig = match (self.valid(now), self.bootstrap()) {
            (Ok(Err(_)), Ok(bootstrap)) => self.settle(bootstrap, identity),
            (Ok(Ok((kubeconfig, _))), _) => kubeconfig.with(identity),
            _ => self.load(&self.paths.kubeconfig)?.with(identity),
        };
        let forget = self.store.forget();
        if let Err(why) = self.disk.carry_out(forget) {
            log::warn!("{why}");
        }
        self.key = None;
        Ok((kubeconfig, leaf))
    }

    /// Writes the kubeconfig that makes the bootstrap's superfluous. Where that cannot be
    /// done, the next start finds the certificate all the same.
    fn settle(&mut self, bootstrap: ApiConfig, identity: ClientCertificate) -> ApiConfig {
        let path = &self.paths.kubeconfig;
        let written = kubeconfig::text(&bootstrap, &self.store.current_path()).and_then(|text| {
            let ops = write::replace(path, PRIVATE, text.into_bytes());
            self.disk.carry_out(ops)
        });
        if let Err(why) = written {
            log::warn!("the kubeconfig cannot be written: {why}");
        }
        let nobody = ApiConfig {
            authorization: None,
            ..bootstrap
        };
        nobody.with(identity)
    }
}

impl Start {
    fn with(config: ApiConfig, leaf: Option<Leaf>) -> Self {
        Self {
            config,
            bootstrap: None,
            leaf,
            given: false,
        }
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

/// The first certificate, where TLS can use it with its key.
fn usable(identity: &ClientCertificate) -> Result<Leaf, String> {
    tls::check_certificate(identity)?;
    let leaf = Leaf::of_pem(&identity.chain.bytes);
    leaf.ok_or_else(|| format!("{}: not a usable certificate", identity.chain.source))
}

#[cfg(test)]
mod tests;
