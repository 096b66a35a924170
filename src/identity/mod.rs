//! The board's credentials for the API server: the ones at the start, and their replacement.
//!
//! [`Source`] finds the kubeconfig or the bootstrap kubeconfig. [`Identity`] then reads files again
//! that another program replaced (`watch`), and does the file work of a rotation (`pki`) that
//! `core::certificate` requests.

pub mod kubeconfig;
pub mod pki;
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
use self::pki::{Paths, Pki};
use self::watch::Watch;

/// The files that an identity is read from.
#[derive(Clone, Debug)]
pub struct Source {
    paths: Paths,
    subject: Subject,
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
}

impl Source {
    /// Looks for `kubeconfig` and `--bootstrap-kubeconfig` in the working directory, then in
    /// `credentials`, the folder of systemd's credentials.
    pub fn new(
        config: &Config,
        kubeconfig: &Path,
        credentials: Option<PathBuf>,
        user_agent: String,
    ) -> Self {
        let working_directory = [Path::new("")].into_iter();
        let folders: Vec<&Path> = working_directory.chain(credentials.as_deref()).collect();
        let bootstrap = config.bootstrap_kubeconfig.as_ref();
        let paths = Paths {
            kubeconfig: find(kubeconfig, &folders),
            bootstrap: bootstrap.map(|path| find(path, &folders)),
            cert_dir: config.cert_dir.clone(),
            rotate: config.rotate_certificates,
            credentials,
        };
        Self {
            paths,
            subject: Subject::of_node(&config.node.name),
            user_agent,
        }
    }

    /// The access that [`Source::open`] returns, without a write.
    pub fn open_read_only(&self, now: Wall) -> Result<ApiAccess, String> {
        let (_, start) = Pki::open_read_only(self.paths.clone(), self.subject.clone(), now)?;
        self.access(start.config, start.bootstrap)
    }

    /// Reads the files. `random` (0 to 1000) spreads the renewals of many boards. Returns no
    /// [`Certificate`] if the kubeconfig is used unchanged.
    pub fn open(
        self,
        now: Wall,
        random: u32,
    ) -> Result<(Identity, ApiAccess, Option<Certificate>), String> {
        let (pki, start) = Pki::open(self.paths.clone(), self.subject.clone(), now)?;
        let access = self.access(start.config, start.bootstrap)?;
        let rules = Rules {
            rotate: self.paths.rotate,
            bootstrap: self.paths.bootstrap.is_some(),
        };
        match (&access.bootstrap, &access.config.certificate, &start.leaf) {
            (Some(why), ..) => {
                log::info!("{why}: requesting a certificate with the bootstrap kubeconfig");
            }
            (None, Some(certificate), None) if rules.rotate => log::warn!(
                "{}: this certificate cannot be renewed; using it unchanged",
                certificate.chain.source
            ),
            (None, None, None) if rules.rotate => log::info!(
                "{}: no client certificate to renew",
                self.paths.kubeconfig.display()
            ),
            (None, Some(certificate), None) => log_if_expired(certificate, now),
            _ => {}
        }
        let has_certificate = access.bootstrap.is_some() || start.leaf.is_some();
        let identity = Identity {
            watch: Watch::new(&access.config),
            config: access.config.clone(),
            pki,
            bootstrap: Bootstrap::Unused,
            user_agent: self.user_agent,
        };
        let certificate = has_certificate
            .then(|| Certificate::new(rules, self.subject, start.leaf, start.given, random));
        Ok((identity, access, certificate))
    }

    fn access(&self, config: ApiConfig, bootstrap: Option<String>) -> Result<ApiAccess, String> {
        let path = match (&bootstrap, &self.paths.bootstrap) {
            (Some(_), Some(path)) => path,
            _ => &self.paths.kubeconfig,
        };
        let api = Api::new(&config, &self.user_agent);
        Ok(ApiAccess {
            api: api.map_err(|line| format!("{}: {line}", path.display()))?,
            config,
            bootstrap,
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
    bootstrap: Bootstrap,
    user_agent: String,
}

/// The client for signing requests with the bootstrap kubeconfig.
#[derive(Debug)]
enum Bootstrap {
    /// They are sent with the own certificate.
    Unused,
    /// The main client: the board has no certificate yet.
    Main,
    /// One of its own, because the board's certificate cannot be used.
    Own(Box<(ApiConfig, Api)>),
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
        let (old, api) = match &mut self.bootstrap {
            Bootstrap::Unused => return Ok(()),
            Bootstrap::Main => (&mut self.config, api),
            Bootstrap::Own(own) => (&mut own.0, &mut own.1),
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
        match &mut self.bootstrap {
            Bootstrap::Own(own) => &mut own.1,
            Bootstrap::Main | Bootstrap::Unused => api,
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
                .use_bootstrap(api, *with_bootstrap, *is_first)
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
        self.bootstrap = Bootstrap::Unused;
        Ok(leaf)
    }

    /// Reads the bootstrap kubeconfig for each signing request, because its token may be replaced.
    fn use_bootstrap(&mut self, api: &mut Api, wanted: bool, is_first: bool) -> Result<(), String> {
        if !wanted {
            self.bootstrap = Bootstrap::Unused;
            return Ok(());
        }
        let config = self.pki.load_bootstrap()?;
        if is_first {
            api.set_identity(&config)?;
            self.watch = Watch::new(&config);
            self.config = config;
            self.bootstrap = Bootstrap::Main;
        } else {
            let api = Api::new(&config, &self.user_agent)?;
            self.bootstrap = Bootstrap::Own(Box::new((config, api)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
