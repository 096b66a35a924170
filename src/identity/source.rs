//! The files that an identity is read from, and what a run begins with.

use std::path::{Path, PathBuf};

use super::Identity;
use super::kubeconfig::find::find;
use super::pki::{Paths, Pki, Start};
use super::signing::{SigningClient, Supervisor};
use super::watch::Watch;
use crate::config::Config;
use crate::core::certificate::{Certificate, Rules};
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};
use crate::wire::api::Api;
use crate::wire::api_config::{ApiConfig, ClientCertificate};
use crate::wire::tls::SYSTEM_ROOTS;

/// The files that an identity is read from.
#[derive(Clone, Debug)]
pub struct Source {
    paths: Paths,
    subject: Subject,
    /// `--k3s-supervisor`.
    supervisor: Option<Supervisor>,
    /// The header `User-Agent`.
    user_agent: String,
}

/// The access to the API server that a run begins with.
#[derive(Debug)]
pub struct ApiAccess {
    /// Where the server is, and the credentials.
    pub config: ApiConfig,
    /// Not connected yet.
    pub api: Api,
    /// Why `config` is the bootstrap kubeconfig's; `None` if it is not.
    pub bootstrap: Option<String>,
    /// The certificate to renew; `None` if the kubeconfig is used unchanged.
    pub certificate: Option<Certificate>,
    /// Why the supervisor cannot renew it, and after a semicolon a remedy.
    pub renewal_error: Option<String>,
}

impl Source {
    /// Looks for `kubeconfig` and `--bootstrap-kubeconfig` in the working directory, then in
    /// `credentials`, the folder of systemd's credentials; for the node password of k3s beside the
    /// kubeconfig first.
    pub fn new(
        config: &Config,
        kubeconfig: &Path,
        credentials: Option<PathBuf>,
        user_agent: String,
    ) -> Self {
        let working_directory = [Path::new("")].into_iter();
        let folders: Vec<&Path> = working_directory.chain(credentials.as_deref()).collect();
        let kubeconfig = find(kubeconfig, &folders);
        let bootstrap = config.bootstrap_kubeconfig.as_ref();
        Self {
            supervisor: Supervisor::new(config, &kubeconfig, credentials.as_deref()),
            paths: Paths {
                bootstrap: bootstrap.map(|path| find(path, &folders)),
                kubeconfig,
                cert_dir: config.cert_dir.clone(),
                rotate: config.rotate_certificates,
                at_supervisor: config.k3s_supervisor.is_some(),
                credentials,
            },
            subject: Subject::of_node(&config.node.name),
            user_agent,
        }
    }

    /// The access that [`Source::open`] returns, without a write.
    pub fn open_read_only(&self, now: Wall) -> Result<ApiAccess, String> {
        let (_, start) = Pki::open_read_only(self.paths.clone(), self.subject.clone(), now)?;
        self.access(start, 0)
    }

    /// Reads the files. `random` (0 to 1000) spreads the renewals of many boards.
    pub fn open(self, now: Wall, random: u32) -> Result<(Identity, ApiAccess), String> {
        let (pki, start) = Pki::open(self.paths.clone(), self.subject.clone(), now)?;
        let access = self.access(start, random)?;
        let rotate = self.paths.rotate;
        match (
            &access.bootstrap,
            &access.config.certificate,
            &access.certificate,
        ) {
            (Some(why), ..) => {
                log::info!("{why}: requesting a certificate with the bootstrap kubeconfig");
            }
            (None, Some(certificate), None) if rotate => log::warn!(
                "{}: this certificate cannot be renewed; using it unchanged",
                certificate.chain.source
            ),
            (None, None, None) if rotate => log::info!(
                "{}: no client certificate to renew",
                self.paths.kubeconfig.display()
            ),
            (None, Some(certificate), None) => log_if_expired(certificate, now),
            _ => {}
        }
        if let Some(why) = &access.renewal_error {
            log::warn!("the certificate cannot be renewed: {why}");
        }
        let identity = Identity {
            watch: Watch::new(&access.config),
            config: access.config.clone(),
            pki,
            supervisor: self.supervisor,
            signing: SigningClient::Main,
            user_agent: self.user_agent,
        };
        Ok((identity, access))
    }

    fn access(&self, start: Start, random: u32) -> Result<ApiAccess, String> {
        let path = match (&start.bootstrap, &self.paths.bootstrap) {
            (Some(_), Some(path)) => path,
            _ => &self.paths.kubeconfig,
        };
        let api = Api::new(&start.config, &self.user_agent);
        self.supervisor
            .as_ref()
            .map(Supervisor::endpoint)
            .transpose()?;
        let rules = Rules {
            rotate: self.paths.rotate,
            bootstrap: self.paths.bootstrap.is_some(),
            supervisor: self.supervisor.is_some(),
        };
        let has_certificate = start.bootstrap.is_some() || start.leaf.is_some();
        let subject = self.subject.clone();
        let certificate = || Certificate::new(rules, subject, start.leaf, start.given, random);
        Ok(ApiAccess {
            api: api.map_err(|line| format!("{}: {line}", path.display()))?,
            config: start.config,
            bootstrap: start.bootstrap,
            certificate: has_certificate.then(certificate),
            renewal_error: self
                .supervisor
                .as_ref()
                .and_then(|supervisor| supervisor.problem(&SYSTEM_ROOTS)),
        })
    }
}

/// An expired certificate is used all the same: another program may replace its file.
fn log_if_expired(certificate: &ClientCertificate, now: Wall) {
    let chain = &certificate.chain;
    if let Some(leaf) = Leaf::of_pem(&chain.bytes).filter(|leaf| leaf.not_after < now) {
        log::warn!(
            "{}: the certificate expired at {}, clock says {}; using it all the same",
            chain.source,
            leaf.not_after.time(),
            now.time()
        );
    }
}
