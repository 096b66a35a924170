//! The credentials in use, the client that sends them, and the files behind both.

use std::mem;

use super::certificate::{FileTask, TaskResult};
use super::credential_files::{CredentialFiles, Replaced};
use super::pki::Pki;
use super::rotation::CertificateFiles;
use super::signing::SigningClient;
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::kube::instant::Mono;
use crate::kube::message::Answer;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Purpose};
use crate::os::write::Op;

/// The credentials of a running process.
#[derive(Debug)]
pub struct Current {
    /// The client of the API server.
    pub api: Api,
    pub(super) files: CredentialFiles,
    pub(super) pki: Pki,
    pub(super) signing: SigningClient,
    /// The last response to the own certificate was 401.
    pub(super) was_refused: bool,
}

impl Current {
    /// Reads a token or a certificate again that was replaced on disk, and the bootstrap kubeconfig
    /// while it is in use. Returns the credential that is in use from now on, if it changed.
    pub(super) fn refresh(&mut self, now: Mono) -> Option<Replaced> {
        if !self.files.begins(now) {
            return None;
        }
        let bootstrap = self.refresh_bootstrap();
        self.files.refresh(&mut self.api, bootstrap, &self.pki.source.subject, now)
    }

    /// A request under way follows the bootstrap kubeconfig: it may have named a server that does
    /// not respond.
    fn refresh_bootstrap(&mut self) -> Result<(), Fault> {
        let api = match &mut self.signing {
            SigningClient::Main | SigningClient::Supervisor(_) => return Ok(()),
            SigningClient::MainBootstrap => &mut self.api,
            SigningClient::Bootstrap(own) => own,
        };
        let new = self.pki.load_bootstrap()?;
        if new != api.config {
            api.set_identity(&new)?;
        }
        Ok(())
    }

    /// Makes the files due for a check after a 401, and after a request without a response: a
    /// server that rejects the certificate closes the TLS connection.
    pub fn on_answer(&mut self, answer: &Answer) {
        match answer {
            Ok(response) if response.code != 401 => self.was_refused = false,
            Ok(_) => {
                self.files.check_next();
                if let (SigningClient::Main, Some(certificate)) =
                    (&self.signing, &self.api.config.certificate)
                    && !mem::replace(&mut self.was_refused, true)
                {
                    log::warn!(
                        "401 with the certificate of {}; if it is of another cluster, replace or \
                         remove it, and restart nodelet",
                        certificate.chain.source
                    );
                }
            }
            Err(_) => self.files.check_next(),
        }
    }

    /// The client for signing requests.
    pub fn signing_api(&mut self) -> &mut Api {
        match &mut self.signing {
            SigningClient::Bootstrap(own) | SigningClient::Supervisor(own) => own,
            SigningClient::MainBootstrap | SigningClient::Main => &mut self.api,
        }
    }

    /// The end of the certificate that the API server gets; `None` without one.
    pub fn not_after(&self) -> Option<Wall> {
        let certificate = self.api.config.certificate.as_ref()?;
        Leaf::of_pem(&certificate.chain.bytes).map(|leaf| leaf.not_after)
    }

    /// A client of the supervisor that signs a serving certificate for these addresses, separated
    /// by commas.
    pub fn serving_client(&self, node_ips: &str) -> Result<Api, Fault> {
        let supervisor =
            self.pki.source.supervisor.as_ref().ok_or("there is no --k3s-supervisor")?;
        supervisor.client(&self.api.config, None, Some(node_ips))
    }

    /// A card that is full or has become read-only must not end a Node with its certificate.
    fn use_unstored(
        &mut self,
        (certificate, leaf): (ClientCertificate, Leaf),
        why: &Fault,
    ) -> Result<TaskResult, Fault> {
        if self.api.config.certificate.as_ref() != Some(&certificate) {
            let mut config = self.api.config.clone();
            if matches!(self.signing, SigningClient::MainBootstrap) {
                config.authorization = None;
            }
            config.certificate = Some(certificate);
            self.replace((config, leaf.clone()))?;
        }
        let line = format!(
            "in use, but not stored: {why}; make --cert-dir writable before the next start"
        );
        Ok(TaskResult::NotStored(leaf, line))
    }

    fn replace(&mut self, (config, leaf): (ApiConfig, Leaf)) -> Result<Leaf, Fault> {
        self.api.set_identity(&config)?;
        self.files = CredentialFiles::new(&config);
        self.signing = SigningClient::Main;
        Ok(leaf)
    }

    /// Reads the credentials for each signing request, because they may be replaced: the bootstrap
    /// kubeconfig, or the node password of k3s.
    fn choose_client(&mut self, bootstrap: bool, first: bool) -> Result<(), Fault> {
        self.signing = match &self.pki.source.supervisor {
            Some(supervisor) => {
                let last = match &self.signing {
                    SigningClient::Supervisor(last) => Some(last.as_ref()),
                    _ => None,
                };
                let client = supervisor.client(&self.api.config, last, None)?;
                SigningClient::Supervisor(Box::new(client))
            }
            None if !bootstrap => SigningClient::Main,
            None => {
                let config = self.pki.load_bootstrap()?;
                if first {
                    self.api.set_identity(&config)?;
                    self.files = CredentialFiles::new(&config);
                    SigningClient::MainBootstrap
                } else {
                    let api = Api::new(&config)?;
                    SigningClient::Bootstrap(Box::new(api))
                }
            }
        };
        Ok(())
    }
}

impl CertificateFiles for Current {
    fn operations(&mut self, task: &FileTask, now: Wall) -> Result<Vec<Op>, Fault> {
        match task {
            FileTask::Find => self.pki.store.recover(),
            FileTask::Sign { new_key, with_bootstrap, is_first } => {
                self.choose_client(*with_bootstrap, *is_first)?;
                self.pki.choose_key(*new_key)
            }
            FileTask::Install(chain) => self.pki.store.install(chain, &self.pki.marks, now),
        }
    }

    /// After [`TaskResult::InUse`] or [`TaskResult::NotStored`] the new certificate is in use.
    fn result(&mut self, task: &FileTask, written: Result<(), Fault>, now: Wall) -> TaskResult {
        let result = match task {
            FileTask::Find => self.pki.find(written, now).and_then(|found| match found {
                Some(found) => self.replace(found).map(TaskResult::InUse),
                None => Ok(TaskResult::NotFound),
            }),
            FileTask::Sign { .. } => written
                .and_then(|()| self.pki.store.request(&self.pki.source.subject, Purpose::CLIENT))
                .map(TaskResult::Signed),
            FileTask::Install(chain) => match self.pki.store.issued(chain, now) {
                Err(why) => Ok(TaskResult::Unusable(why)),
                Ok(issued) => match written.and_then(|()| self.pki.installed(now)) {
                    Ok(new) => self.replace(new).map(TaskResult::InUse),
                    Err(why) => self.use_unstored(issued, &why),
                },
            },
        };
        result.unwrap_or_else(TaskResult::Failed)
    }

    fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        mem::take(&mut self.pki.later)
    }
}
