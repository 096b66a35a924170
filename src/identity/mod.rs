//! The board's credentials for the API server: the ones at the start, and their replacement.
//!
//! [`Source`] finds the kubeconfig or the bootstrap kubeconfig. [`Identity`] then reads files again
//! that another program replaced (`watch`), and does the file work of a rotation (`pki`) that
//! `core::certificate` requests.

pub mod kubeconfig;
pub mod pki;
mod signer;
mod watch;

use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::core::certificate::{Certificate, Rules, Task, TaskResult};
use crate::core::instant::Mono;
use crate::kube::message::Outcome;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};
use crate::wire::api::Api;
use crate::wire::api_config::{ApiConfig, ClientCertificate};

use self::kubeconfig::find::find;
use self::pki::{Paths, Pki, Start};
use self::signer::{Signer, Supervisor};
use self::watch::Watch;

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
    /// Why the supervisor cannot renew it.
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
        let server = config.k3s_supervisor.as_ref();
        Self {
            supervisor: server
                .map(|server| Supervisor::new(server, &kubeconfig, credentials.as_deref())),
            paths: Paths {
                bootstrap: bootstrap.map(|path| find(path, &folders)),
                kubeconfig,
                cert_dir: config.cert_dir.clone(),
                rotate: config.rotate_certificates,
                at_supervisor: server.is_some(),
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
            log::warn!("{why}; the certificate cannot be renewed: nodelet join --force");
        }
        let identity = Identity {
            watch: Watch::new(&access.config),
            config: access.config.clone(),
            pki,
            supervisor: self.supervisor,
            signer: Signer::Main,
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
            renewal_error: self.supervisor.as_ref().and_then(|s| s.password().err()),
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

/// The identity of a running agent.
#[derive(Debug)]
pub struct Identity {
    /// The configuration that `api` uses.
    config: ApiConfig,
    watch: Watch,
    pki: Pki,
    supervisor: Option<Supervisor>,
    signer: Signer,
    user_agent: String,
}

/// A credential that another program replaced on disk, and that is in use now.
#[derive(Debug, PartialEq)]
pub enum Replaced {
    /// The client certificate, and perhaps the token.
    Certificate(Leaf),
    /// The token.
    Token,
}

impl Identity {
    /// Reads a token or a certificate again that was replaced on disk, and the bootstrap kubeconfig
    /// while it is in use. Returns the credential that is in use from now on, if it changed.
    pub fn refresh(&mut self, api: &mut Api, now: Mono) -> Option<Replaced> {
        if !self.watch.begins(now) {
            return None;
        }
        let bootstrap = self.refresh_bootstrap(api);
        self.watch.refresh(&mut self.config, api, bootstrap, now)
    }

    /// A request under way follows the bootstrap kubeconfig: it may have named a server that does
    /// not respond.
    fn refresh_bootstrap(&mut self, api: &mut Api) -> Result<(), String> {
        let (old, api) = match &mut self.signer {
            Signer::Main | Signer::Supervisor(_) => return Ok(()),
            Signer::MainBootstrap => (&mut self.config, api),
            Signer::Bootstrap(own) => (&mut own.0, &mut own.1),
        };
        let new = self.pki.load_bootstrap()?;
        if new != *old {
            api.set_identity(&new)?;
            *old = new;
        }
        Ok(())
    }

    /// Makes the files due for a check after a 401, and after a request without a response: a
    /// server that rejects the certificate closes the TLS connection.
    pub fn on_response(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(response) if response.code != 401 => {}
            Outcome::Answered(_) | Outcome::Silent(_) => self.watch.check_next(),
        }
    }

    /// The client for signing requests.
    pub fn certificate_api<'a>(&'a mut self, api: &'a mut Api) -> &'a mut Api {
        match &mut self.signer {
            Signer::Bootstrap(own) => &mut own.1,
            Signer::Supervisor(own) => own,
            Signer::MainBootstrap | Signer::Main => api,
        }
    }

    /// Does the file work of a rotation. When this returns [`TaskResult::InUse`], `api` uses the
    /// new certificate.
    pub fn carry_out(&mut self, task: &Task, api: &mut Api, now: Wall) -> TaskResult {
        if let Task::Install(chain) = task
            && let Err(why) = self.pki.check(chain, now)
        {
            return TaskResult::Unusable(why);
        }
        let result = match task {
            Task::Find => self.pki.find(now).and_then(|found| match found {
                Some(found) => self.replace(api, found).map(TaskResult::InUse),
                None => Ok(TaskResult::NotFound),
            }),
            Task::Sign {
                new_key,
                with_bootstrap,
                is_first,
            } => self
                .choose_signer(api, *with_bootstrap, *is_first)
                .and_then(|()| self.pki.sign(*new_key))
                .map(TaskResult::Signed),
            Task::Install(chain) => self
                .pki
                .install(chain, now)
                .and_then(|new| self.replace(api, new))
                .map(TaskResult::InUse),
        };
        result.unwrap_or_else(TaskResult::Failed)
    }

    fn replace(
        &mut self,
        api: &mut Api,
        (config, leaf): (ApiConfig, Leaf),
    ) -> Result<Leaf, String> {
        api.set_identity(&config)?;
        self.watch = Watch::new(&config);
        self.config = config;
        self.signer = Signer::Main;
        Ok(leaf)
    }

    /// Reads the credentials for each signing request, because they may be replaced: the bootstrap
    /// kubeconfig, or the node password of k3s.
    fn choose_signer(&mut self, api: &mut Api, bootstrap: bool, first: bool) -> Result<(), String> {
        self.signer = match &self.supervisor {
            Some(supervisor) => supervisor.signer(&self.config, &self.user_agent)?,
            None if !bootstrap => Signer::Main,
            None => {
                let config = self.pki.load_bootstrap()?;
                match first {
                    true => {
                        api.set_identity(&config)?;
                        self.watch = Watch::new(&config);
                        self.config = config;
                        Signer::MainBootstrap
                    }
                    false => {
                        let api = Api::new(&config, &self.user_agent)?;
                        Signer::Bootstrap(Box::new((config, api)))
                    }
                }
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
