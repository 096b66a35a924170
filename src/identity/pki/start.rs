//! What a run begins with: the stored certificate, the kubeconfig or the bootstrap kubeconfig.

use std::io;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::key::Key;
use super::{Pki, usable};
use crate::files::guard;
use crate::files::read::cause;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::wire::api_config::{ApiConfig, ClientCertificate};
use crate::wire::tls;

/// What a run begins with.
#[derive(Debug)]
pub struct Start {
    /// Where the API server is, and the credentials.
    pub config: ApiConfig,
    /// Why `config` is the bootstrap kubeconfig's; `None` if it is not.
    pub bootstrap: Option<String>,
    /// The certificate to renew; `None` if there is none.
    pub leaf: Option<Leaf>,
    /// The certificate came with the kubeconfig. It may permit more than a node needs, so it is
    /// renewed at once. So is one of a supervisor whose arrival is not known.
    pub given: bool,
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

impl Pki {
    pub(super) fn start(&mut self, now: Wall) -> Result<Start, String> {
        let (rotate, bootstrap) = (self.paths.rotate, self.paths.bootstrap.is_some());
        if !rotate && !bootstrap {
            return Ok(Start::with(self.load(&self.paths.kubeconfig)?, None));
        }
        let interrupted = self.store.recover()?;
        self.disk.carry_out(interrupted)?;
        if !bootstrap {
            let kubeconfig = self.load(&self.paths.kubeconfig)?;
            return Ok(self.seed(kubeconfig, now));
        }
        match self.valid(now)? {
            Ok((kubeconfig, _)) if rotate => Ok(self.seed(kubeconfig, now)),
            Ok((kubeconfig, leaf)) => Ok(Start::with(kubeconfig, Some(leaf))),
            Err(why) => {
                let bootstrap = self.load_bootstrap()?;
                // The power failed after the certificate was stored and before the kubeconfig was
                // written, or the kubeconfig was deleted.
                if let Some((identity, leaf)) = self.stored()
                    && now <= leaf.not_after
                    && leaf.subject == self.subject
                {
                    let kubeconfig = self.write_kubeconfig(bootstrap, identity);
                    return Ok(Start::with(kubeconfig, Some(leaf)));
                }
                Ok(Start {
                    bootstrap: Some(why),
                    ..Start::with(bootstrap, None)
                })
            }
        }
    }

    /// The certificate that a rotation begins with: the stored one, or else the kubeconfig's, which
    /// is then stored. Of two that seem to be expired it is the one that expires later: the clock
    /// may be ahead, and the stored one must not be lost.
    fn seed(&mut self, mut kubeconfig: ApiConfig, now: Wall) -> Start {
        let given = kubeconfig.certificate.clone();
        let leaf = given.as_ref().and_then(|i| Leaf::of_pem(&i.chain.bytes));
        if let Some((identity, stored)) = self.stored() {
            let is_later = leaf
                .as_ref()
                .is_some_and(|l| l.not_after > stored.not_after);
            if now <= stored.not_after || !is_later {
                kubeconfig.certificate = Some(identity);
                return self.arrived(Start::with(kubeconfig, Some(stored)));
            }
        }
        let Some(identity) = given else {
            return Start::with(kubeconfig, None);
        };
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

    /// The lifetime of a supervisor's certificate begins with its arrival.
    fn arrived(&self, mut start: Start) -> Start {
        if let (true, Some(leaf)) = (self.paths.at_supervisor, &mut start.leaf) {
            let arrival = self.store.arrival().filter(|at| *at < leaf.not_after);
            leaf.not_before = arrival.unwrap_or_default();
            start.given = arrival.is_none();
        }
        start
    }

    /// The stored certificate, if TLS can use it. An unreadable one is logged and counts as missing:
    /// the kubeconfig or a bootstrap may replace it.
    fn stored(&mut self) -> Option<(ClientCertificate, Leaf)> {
        let usable = self.store.current().and_then(|stored| {
            let Some(identity) = stored else {
                return Ok(None);
            };
            let leaf = usable(&identity)?;
            Ok(Some((identity, leaf)))
        });
        match usable {
            Ok(found) => found,
            Err(why) => {
                if self.last_warning != why {
                    log::warn!("{why}; continuing without this certificate");
                    self.last_warning = why;
                }
                None
            }
        }
    }

    /// The kubeconfig, if no bootstrap is needed, or else why one is needed. Upstream:
    /// `isClientConfigStillValid` in `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
    pub(super) fn valid(&self, now: Wall) -> Result<Result<(ApiConfig, Leaf), String>, String> {
        let path = &self.paths.kubeconfig;
        let line = |what: &str| format!("{}: {what}", path.display());
        match guard::found(path) {
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
}
