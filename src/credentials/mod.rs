//! The board's credentials for the API server: the ones at the start, and their replacement.
//!
//! [`IdentitySource`] finds the kubeconfig or the bootstrap kubeconfig. [`Identity`] then reads files again
//! that another program replaced (`credential_files`), and does the file work of a rotation (`pki`)
//! that `node::certificate` requests.

pub(crate) mod credential_files;
pub mod kubeconfig;
pub mod pki;
mod signing;

use std::mem;
use std::path::{Path, PathBuf};

use self::credential_files::CredentialFiles;
use self::kubeconfig::find;
use self::pki::{Paths, Pki, Start};
use self::signing::{SigningClient, Supervisor};
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, ClientCertificate, Pem};
use crate::client::tls::SYSTEM_ROOTS;
use crate::config::Config;
use crate::files::write::{Disk, Op};
use crate::kube::delay::Jitter;
use crate::kube::instant::Mono;
use crate::kube::message::Answer;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};
use crate::node::certificate::{Certificate, CertificateKind, FileTask, TaskResult};

/// The identity of a running agent.
#[derive(Debug)]
pub struct Identity {
    /// The configuration that `api` uses.
    config: ApiConfig,
    watch: CredentialFiles,
    pki: Pki,
    supervisor: Option<Supervisor>,
    signing: SigningClient,
    user_agent: String,
    /// The last response to the own certificate was 401.
    was_refused: bool,
    /// The task whose operations are carried out.
    task: Option<FileTask>,
}

/// What follows a part of a [`FileTask`].
#[derive(Debug)]
pub(crate) enum TaskStep {
    /// The task has ended.
    Done(TaskResult),
    /// These operations come next, then [`Identity::on_written`].
    Write(Vec<Op>),
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
        self.watch.refresh(&mut self.config, api, bootstrap, self.pki.subject(), now)
    }

    /// A request under way follows the bootstrap kubeconfig: it may have named a server that does
    /// not respond.
    fn refresh_bootstrap(&mut self, api: &mut Api) -> Result<(), Fault> {
        let (old, api) = match &mut self.signing {
            SigningClient::Main | SigningClient::Supervisor(_) => return Ok(()),
            SigningClient::MainBootstrap => (&mut self.config, api),
            SigningClient::Bootstrap(own) => (&mut own.0, &mut own.1),
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
    pub fn on_response(&mut self, answer: &Answer) {
        match answer {
            Ok(response) if response.code != 401 => self.was_refused = false,
            Ok(_) => {
                self.watch.check_next();
                if let (SigningClient::Main, Some(certificate)) =
                    (&self.signing, &self.config.certificate)
                    && !mem::replace(&mut self.was_refused, true)
                {
                    log::warn!(
                        "401 with the certificate of {}; if it is of another cluster, replace or \
                         remove it, and restart nodelet",
                        certificate.chain.source
                    );
                }
            }
            Err(_) => self.watch.check_next(),
        }
    }

    /// The client for signing requests.
    pub fn certificate_api<'a>(&'a mut self, api: &'a mut Api) -> &'a mut Api {
        match &mut self.signing {
            SigningClient::Bootstrap(own) => &mut own.1,
            SigningClient::Supervisor(own) => own,
            SigningClient::MainBootstrap | SigningClient::Main => api,
        }
    }

    /// The end of the certificate that the API server gets; `None` without one.
    pub fn not_after(&self) -> Option<Wall> {
        let certificate = self.config.certificate.as_ref()?;
        Leaf::of_pem(&certificate.chain.bytes).map(|leaf| leaf.not_after)
    }

    /// The CA in the kubeconfig, as it is in use.
    pub fn ca(&self) -> Option<&Pem> {
        self.config.ca.as_ref()
    }

    /// The board's certificate, and what its signer sent behind it; `None` without one.
    pub fn chain(&self) -> Option<&Pem> {
        self.config.certificate.as_ref().map(|certificate| &certificate.chain)
    }

    /// A client of the supervisor that signs a serving certificate for these addresses, separated by
    /// commas; `None` without a supervisor.
    pub fn serving_client(&self, node_ips: &str) -> Result<Option<Api>, Fault> {
        let supervisor = self.supervisor.as_ref();
        let client = |supervisor: &Supervisor| {
            supervisor.client(&self.config, None, &self.user_agent, Some(node_ips))
        };
        supervisor.map(client).transpose()
    }

    /// Does the whole file work of a rotation at once: for a process that holds no Lease.
    pub fn carry_out(&mut self, task: &FileTask, api: &mut Api, now: Wall) -> TaskResult {
        let mut step = self.begin(task, api, now);
        loop {
            match step {
                TaskStep::Done(result) => {
                    self.pki.carry_out_later();
                    return result;
                }
                TaskStep::Write(ops) => {
                    let written = self.pki.disk.carry_out(ops);
                    step = self.on_written(written, api, now);
                }
            }
        }
    }

    /// Begins the file work of a rotation. After [`TaskResult::InUse`] or [`TaskResult::NotStored`],
    /// `api` uses the new certificate.
    pub(crate) fn begin(&mut self, task: &FileTask, api: &mut Api, now: Wall) -> TaskStep {
        let ops = match task {
            FileTask::Find => self.pki.interrupted(),
            FileTask::Sign { new_key, with_bootstrap, is_first } => self
                .choose_client(api, *with_bootstrap, *is_first)
                .and_then(|()| self.pki.choose_key(*new_key)),
            FileTask::Install(chain) => match self.pki.issued(chain, now) {
                Err(why) => return TaskStep::Done(TaskResult::Unusable(why)),
                Ok(_) => self.pki.update(chain, now),
            },
        };
        self.task = Some(task.clone());
        match ops {
            Ok(ops) if !ops.is_empty() => TaskStep::Write(ops),
            result => self.on_written(result.map(drop), api, now),
        }
    }

    /// Takes the result of the operations, and continues the task.
    pub(crate) fn on_written(
        &mut self,
        written: Result<(), Fault>,
        api: &mut Api,
        now: Wall,
    ) -> TaskStep {
        let result = match self.task.take() {
            None => Err("no file task was begun".into()),
            Some(FileTask::Find) => {
                self.pki.on_completed(written);
                self.pki.find(now).and_then(|found| match found {
                    Some(found) => self.replace(api, found).map(TaskResult::InUse),
                    None => Ok(TaskResult::NotFound),
                })
            }
            Some(FileTask::Sign { .. }) => {
                written.and_then(|()| self.pki.request()).map(TaskResult::Signed)
            }
            Some(FileTask::Install(chain)) => {
                match written.and_then(|()| self.pki.installed(now)) {
                    Ok(new) => self.replace(api, new).map(TaskResult::InUse),
                    Err(why) => {
                        let issued = self.pki.issued(&chain, now);
                        issued.and_then(|issued| self.use_unstored(api, issued, &why))
                    }
                }
            }
        };
        TaskStep::Done(result.unwrap_or_else(TaskResult::Failed))
    }

    /// The changes that nothing waits for, each with the message if it fails.
    pub(crate) fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        mem::take(&mut self.pki.later)
    }

    /// A card that is full or has become read-only must not end a Node with its certificate.
    fn use_unstored(
        &mut self,
        api: &mut Api,
        (certificate, leaf): (ClientCertificate, Leaf),
        why: &Fault,
    ) -> Result<TaskResult, Fault> {
        if self.config.certificate.as_ref() != Some(&certificate) {
            let mut config = self.config.clone();
            if matches!(self.signing, SigningClient::MainBootstrap) {
                config.authorization = None;
            }
            config.certificate = Some(certificate);
            self.replace(api, (config, leaf.clone()))?;
        }
        let line = format!(
            "in use, but not stored: {why}; make --cert-dir writable before the next start"
        );
        Ok(TaskResult::NotStored(leaf, line))
    }

    fn replace(&mut self, api: &mut Api, (config, leaf): (ApiConfig, Leaf)) -> Result<Leaf, Fault> {
        api.set_identity(&config)?;
        self.watch = CredentialFiles::new(&config);
        self.config = config;
        self.signing = SigningClient::Main;
        Ok(leaf)
    }

    /// Reads the credentials for each signing request, because they may be replaced: the bootstrap
    /// kubeconfig, or the node password of k3s.
    fn choose_client(&mut self, api: &mut Api, bootstrap: bool, first: bool) -> Result<(), Fault> {
        self.signing = match &self.supervisor {
            Some(supervisor) => {
                let last = match &self.signing {
                    SigningClient::Supervisor(last) => Some(last.as_ref()),
                    _ => None,
                };
                let client = supervisor.client(&self.config, last, &self.user_agent, None)?;
                SigningClient::Supervisor(Box::new(client))
            }
            None if !bootstrap => SigningClient::Main,
            None => {
                let config = self.pki.load_bootstrap()?;
                if first {
                    api.set_identity(&config)?;
                    self.watch = CredentialFiles::new(&config);
                    self.config = config;
                    SigningClient::MainBootstrap
                } else {
                    let api = Api::new(&config, &self.user_agent)?;
                    SigningClient::Bootstrap(Box::new((config, api)))
                }
            }
        };
        Ok(())
    }
}

/// The files that an identity is read from.
#[derive(Clone, Debug)]
pub struct IdentitySource {
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
    pub bootstrap: Option<Fault>,
    /// The certificate to renew; `None` if the kubeconfig is used unchanged.
    pub certificate: Option<Certificate>,
    /// Why the supervisor cannot renew it.
    pub renewal_fault: Option<Fault>,
}

impl IdentitySource {
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

    /// As [`IdentitySource::open`], for another process than the agent: neither this nor the identity writes
    /// a file, and nothing is logged.
    pub fn open_read_only(&self, now: Wall) -> Result<(Identity, ApiAccess), Fault> {
        self.open_on(Disk::read_only(), now, Jitter::NONE)
    }

    fn open_on(
        &self,
        disk: Disk,
        now: Wall,
        jitter: Jitter,
    ) -> Result<(Identity, ApiAccess), Fault> {
        let (pki, start) = Pki::open(disk, self.paths.clone(), self.subject.clone(), now)?;
        let access = self.access(start, jitter)?;
        let identity = Identity {
            watch: CredentialFiles::new(&access.config),
            config: access.config.clone(),
            pki,
            supervisor: self.supervisor.clone(),
            signing: SigningClient::Main,
            user_agent: self.user_agent.clone(),
            was_refused: false,
            task: None,
        };
        Ok((identity, access))
    }

    /// Reads the files. `jitter` spreads the renewals of many boards.
    pub fn open(self, now: Wall, jitter: Jitter) -> Result<(Identity, ApiAccess), Fault> {
        let (identity, access) = self.open_on(Disk::default(), now, jitter)?;
        let rotate = self.paths.rotate;
        if let (None, Some(certificate)) = (&access.bootstrap, &access.config.certificate)
            && let Some(leaf) = Leaf::of_pem(&certificate.chain.bytes)
            && let Some(other) = leaf.subject.other_node(&self.subject)
        {
            log::warn!("{}: {other}", certificate.chain.source);
        }
        match (&access.bootstrap, &access.config.certificate, &access.certificate) {
            (Some(why), ..) => {
                log::info!("{why}: requesting a certificate with the bootstrap kubeconfig");
            }
            (None, Some(certificate), None) if rotate => log::warn!(
                "{}: this certificate cannot be renewed; using it unchanged",
                certificate.chain.source
            ),
            (None, None, None) if rotate => {
                log::info!("{}: no client certificate to renew", self.paths.kubeconfig.display())
            }
            (None, Some(certificate), None) => log_if_expired(certificate, now),
            _ => {}
        }
        if let Some(why) = &access.renewal_fault {
            log::warn!("the certificate cannot be renewed: {why}");
        }
        Ok((identity, access))
    }

    fn access(&self, start: Start, jitter: Jitter) -> Result<ApiAccess, Fault> {
        let path = match (&start.bootstrap, &self.paths.bootstrap) {
            (Some(_), Some(path)) => path,
            _ => &self.paths.kubeconfig,
        };
        let api = Api::new(&start.config, &self.user_agent);
        let supervisor = self.supervisor.as_ref();
        supervisor.map(Supervisor::endpoint).transpose()?;
        let kind = match (self.paths.rotate, &self.paths.bootstrap) {
            _ if supervisor.is_some() => CertificateKind::Supervisor,
            (true, Some(_)) => CertificateKind::RotatedOrBootstrapped,
            (true, None) => CertificateKind::Rotated,
            // Without both flags there is no certificate to renew.
            (false, _) => CertificateKind::Bootstrapped,
        };
        let has_certificate = start.bootstrap.is_some() || start.leaf.is_some();
        let subject = self.subject.clone();
        let certificate = || Certificate::new(kind, subject, start.leaf, start.given, jitter);
        Ok(ApiAccess {
            api: api.map_err(|why| why.at(path.display()))?,
            config: start.config,
            bootstrap: start.bootstrap,
            certificate: has_certificate.then(certificate),
            renewal_fault: supervisor.and_then(|supervisor| supervisor.fault(&SYSTEM_ROOTS)),
        })
    }
}

/// An expired certificate is used all the same: another program may replace its file.
fn log_if_expired(certificate: &ClientCertificate, now: Wall) {
    let chain = &certificate.chain;
    if let Some(leaf) = Leaf::of_pem(&chain.bytes).filter(|leaf| leaf.not_after < now) {
        log::warn!(
            "{}: the certificate expired at {}, clock says {}; still using it",
            chain.source,
            leaf.not_after.time(),
            now.time()
        );
    }
}

#[cfg(test)]
pub(crate) mod tests;
