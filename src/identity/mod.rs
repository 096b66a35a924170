//! The board's identity to the API server: what a run begins with, and how it is replaced.
//!
//! [`Source`] finds the kubeconfig or the bootstrap kubeconfig. [`Identity`] then follows the files
//! that others replace (`watch`) and carries out the file work of a rotation (`pki`), which
//! `core::certificate` asks for.

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

/// Where an identity comes from.
#[derive(Clone, Debug)]
pub struct Source {
    paths: Paths,
    subject: Subject,
    /// The header `User-Agent`.
    user_agent: String,
}

/// What a run begins with.
#[derive(Debug)]
pub struct ApiAccess {
    /// Where the server is, and how we prove ourselves.
    pub config: ApiConfig,
    /// Not connected yet.
    pub api: Api,
    /// Why `config` is the bootstrap kubeconfig's, where it is.
    pub bootstrap: Option<String>,
}

impl Source {
    /// `kubeconfig` and `--bootstrap-kubeconfig` are looked for here and in `credentials`, the
    /// folder of systemd's credentials.
    pub fn new(
        config: &Config,
        kubeconfig: &Path,
        credentials: Option<PathBuf>,
        user_agent: String,
    ) -> Self {
        let here = [Path::new("")].into_iter();
        let folders: Vec<&Path> = here.chain(credentials.as_deref()).collect();
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
            subject: Subject {
                common_name: format!("system:node:{}", config.node.name),
                organizations: vec!["system:nodes".to_owned()],
            },
            user_agent,
        }
    }

    /// The access that [`Source::open`] finds, without a write.
    pub fn look(&self, now: Wall) -> Result<ApiAccess, String> {
        let (_, start) = Pki::look(self.paths.clone(), self.subject.clone(), now)?;
        self.access(start.config, start.bootstrap)
    }

    /// Reads the files. `random` (0 to 1000) spreads many boards. Without a [`Certificate`] the
    /// kubeconfig is used as it is.
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
                "{}: not a certificate that can be renewed; using it as it is",
                certificate.chain.source
            ),
            (None, None, None) if rules.rotate => log::info!(
                "{}: no client certificate in it, so none is renewed",
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
            bootstrap: None,
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

/// Nobody here renews this certificate, but somebody may replace its file.
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
    /// What `api` uses now.
    config: ApiConfig,
    watch: Watch,
    pki: Pki,
    /// With the bootstrap kubeconfig's credentials, where the board's own ones are no good.
    bootstrap: Option<Api>,
    user_agent: String,
}

impl Identity {
    /// Takes up a token or a certificate that was replaced on disk.
    pub fn refresh(&mut self, api: &mut Api, now: Mono) {
        self.watch.refresh(&mut self.config, api, now);
    }

    /// After a 401 or an unanswered request the files are looked at before the next one: a server
    /// that does not take the certificate ends TLS.
    pub fn on_response(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(response) if response.code != 401 => {}
            Outcome::Answered(_) | Outcome::Silent(_) => self.watch.doubt(),
        }
    }

    /// The connection for a certificate's request.
    pub fn certificate_api<'a>(&'a mut self, api: &'a mut Api) -> &'a mut Api {
        self.bootstrap.as_mut().unwrap_or(api)
    }

    /// Carries out the file work of a rotation at `now`. A new certificate is in use, by `api`,
    /// when this returns [`TaskResult::InUse`].
    pub fn carry_out(&mut self, task: &Task, api: &mut Api, now: Wall) -> TaskResult {
        let done = match task {
            Task::Find => match self.pki.found(now) {
                Some(found) => self.replace(api, found).map(TaskResult::InUse),
                None => Ok(TaskResult::NotFound),
            },
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
        done.unwrap_or_else(TaskResult::Failed)
    }

    fn replace(
        &mut self,
        api: &mut Api,
        (config, leaf): (ApiConfig, Leaf),
    ) -> Result<Leaf, String> {
        api.set_identity(&config)?;
        self.watch = Watch::new(&config);
        self.config = config;
        self.bootstrap = None;
        Ok(leaf)
    }

    /// The bootstrap kubeconfig is read for each request: it may hold another token by now.
    fn use_bootstrap(&mut self, api: &mut Api, wanted: bool, is_first: bool) -> Result<(), String> {
        if !wanted {
            self.bootstrap = None;
            return Ok(());
        }
        let config = self.pki.bootstrap()?;
        if is_first {
            api.set_identity(&config)?;
            self.watch = Watch::new(&config);
            self.config = config;
        } else {
            self.bootstrap = Some(Api::new(&config, &self.user_agent)?);
        }
        Ok(())
    }
}
