//! The credentials in use, their files, and the client that sends them; the client that sends
//! signing requests; the supervisor of k3s and rke2.

use std::mem;
use std::path::{Path, PathBuf};

use super::certificate::supervisor::{NODE_IP, NODE_NAME, NODE_PASSWORD, restore_password};
use super::certificate::{FileTask, TaskResult};
use super::credential_files::{CredentialFiles, Replaced};
use super::kubeconfig::{find, read_password};
use super::pki::Pki;
use super::rotation::CertificateFiles;
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, ClientCertificate, Endpoint, Secret};
use crate::client::tls::{INSTALL_SYSTEM_ROOTS, NO_SYSTEM_ROOTS, SYSTEM_ROOTS, system_bundle};
use crate::config::Config;
use crate::kube::instant::Now;
use crate::kube::message::Answer;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{CertificatePurpose, Leaf};
use crate::os::write::Op;

/// The credential with the node password; the file is `nodelet.k3s-password`.
const PASSWORD: &str = "k3s-password";

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

/// The client for signing requests.
#[derive(Debug)]
pub(super) enum SigningClient {
    /// The main client, with the own certificate.
    Main,
    /// The main client, with the bootstrap kubeconfig: the board has no certificate yet.
    MainBootstrap,
    /// A separate client with the bootstrap kubeconfig, because the board's certificate cannot be
    /// used.
    Bootstrap(Box<Api>),
    /// A separate client for the supervisor, with the own certificate and the node password.
    Supervisor(Box<Api>),
}

impl Current {
    /// Reads a token or a certificate again that was replaced on disk, and the bootstrap kubeconfig
    /// while it is in use. Returns the credential that is in use from now on, if it changed. With
    /// `is_issued` a certificate waits to be stored: it is for the bootstrap kubeconfig that
    /// requested it, and not for a later one.
    pub(super) fn refresh(&mut self, now: Now, is_issued: bool) -> Option<Replaced> {
        if !self.files.begins(now.mono) {
            return None;
        }
        let bootstrap = if is_issued { Ok(()) } else { self.refresh_bootstrap(now.wall) };
        self.files.refresh(&mut self.api, bootstrap, &self.pki.source.subject, now.mono)
    }

    /// While signing requests are sent with the bootstrap kubeconfig, reads it again, and changes
    /// their client if it has changed: the old file may have named a server that does not respond.
    fn refresh_bootstrap(&mut self, now: Wall) -> Result<(), Fault> {
        let api = match &mut self.signing {
            SigningClient::Main | SigningClient::Supervisor(_) => return Ok(()),
            SigningClient::MainBootstrap => &mut self.api,
            SigningClient::Bootstrap(own) => own,
        };
        let new = self.pki.load_bootstrap()?;
        if new != api.config {
            self.pki.marks = self.pki.kubeconfig_and_marks(Some(&new), now)?.1;
            api.set_identity(&new)?;
            if let SigningClient::MainBootstrap = self.signing {
                self.files.follow(&new);
            }
        }
        Ok(())
    }

    /// Another program put the board's own certificate into the files: it sends the next signing
    /// request, and not the bootstrap kubeconfig.
    pub(super) fn own_replaced(&mut self) {
        if let SigningClient::Bootstrap(_) = self.signing {
            self.signing = SigningClient::Main;
        }
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

    /// Whether signing requests have a client of their own.
    pub fn signs_apart(&self) -> bool {
        matches!(self.signing, SigningClient::Bootstrap(_) | SigningClient::Supervisor(_))
    }

    /// The server and the CA of the last signing request. The certificate of that request is for
    /// them.
    fn requested(&self) -> ApiConfig {
        let bootstrap = match &self.signing {
            SigningClient::Bootstrap(own) => &own.config,
            SigningClient::MainBootstrap => &self.api.config,
            SigningClient::Main | SigningClient::Supervisor(_) => return self.api.config.clone(),
        };
        ApiConfig { authorization: None, ..bootstrap.clone() }
    }

    /// The client for signing requests.
    pub fn signing_api(&mut self) -> &mut Api {
        match &mut self.signing {
            SigningClient::Bootstrap(own) | SigningClient::Supervisor(own) => own,
            SigningClient::MainBootstrap | SigningClient::Main => &mut self.api,
        }
    }

    /// The client certificate in use; `None` if there is none.
    pub fn leaf(&self) -> Option<Leaf> {
        Leaf::of_pem(&self.api.config.certificate.as_ref()?.chain.bytes)
    }

    /// When the client certificate in use expires; `None` if there is none.
    pub fn not_after(&self) -> Option<Wall> {
        self.leaf().map(|leaf| leaf.not_after)
    }

    /// A client of the supervisor that signs a serving certificate for these addresses, separated
    /// by commas.
    pub fn serving_client(&self, node_ips: &str) -> Result<Api, Fault> {
        let supervisor =
            self.pki.source.supervisor.as_ref().ok_or("there is no --k3s-supervisor")?;
        supervisor.client(&self.api.config, None, Some(node_ips))
    }

    /// Uses an issued certificate that could not be stored: a card that is full or read-only must
    /// not end the Node when the old certificate expires. `why` is the failure; with `is_written`
    /// all file operations succeeded before it.
    fn use_unstored(
        &mut self,
        (certificate, leaf): (ClientCertificate, Leaf),
        is_written: bool,
        why: &Fault,
    ) -> Result<TaskResult, Fault> {
        if self.api.config.certificate.as_ref() != Some(&certificate) {
            let config = ApiConfig { certificate: Some(certificate), ..self.requested() };
            self.replace((config, leaf.clone()))?;
        }
        // If the stored certificate is this one, only the sync of the folder has failed.
        let stored = || self.pki.store.usable().ok().flatten();
        let is_stored = is_written || stored().is_some_and(|(_, stored)| stored == leaf);
        let (what, remedy) = if is_stored {
            ("in use and stored, but a power cut may undo that", "")
        } else {
            ("in use, but not stored", "; make --cert-dir writable before the next start")
        };
        let line = format!("{what}: {why}{remedy}");
        Ok(TaskResult::NotStored(leaf, line))
    }

    pub(super) fn replace(&mut self, (config, leaf): (ApiConfig, Leaf)) -> Result<Leaf, Fault> {
        self.api.set_identity(&config)?;
        self.files.replace(&config);
        self.signing = SigningClient::Main;
        Ok(leaf)
    }

    /// Chooses the client of the next signing request. The credentials are read for each request,
    /// because they may be replaced: the bootstrap kubeconfig, or the node password of k3s.
    fn choose_client(&mut self, bootstrap: bool, first: bool, now: Wall) -> Result<(), Fault> {
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
                self.pki.marks = self.pki.kubeconfig_and_marks(Some(&config), now)?.1;
                if first {
                    self.api.set_identity(&config)?;
                    self.files.replace(&config);
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
            FileTask::Find(begun) => {
                let is_valid = |leaf: &Leaf| leaf.is_valid(now, *begun);
                self.pki.store.recover(&is_valid)
            }
            FileTask::Sign { new_key, with_bootstrap, is_first } => {
                if !with_bootstrap {
                    self.pki.keep_kubeconfig(&self.api.config);
                }
                self.choose_client(*with_bootstrap, *is_first, now)?;
                self.pki.choose_key(*new_key)
            }
            FileTask::Install(chain) => self.pki.store.install(chain, &self.pki.marks, now),
        }
    }

    /// After [`TaskResult::InUse`] or [`TaskResult::NotStored`] the new certificate is in use.
    fn result(&mut self, task: &FileTask, written: Result<(), Fault>, now: Wall) -> TaskResult {
        let result = match task {
            FileTask::Find(begun) => {
                self.pki.find(written, now, *begun).and_then(|found| match found {
                    Some(found) => {
                        let replaced = self.replace(found);
                        if replaced.is_err() {
                            // What cannot be used takes the place of no stored pair.
                            self.pki.later.clear();
                        }
                        replaced.map(TaskResult::InUse)
                    }
                    None => Ok(TaskResult::NotFound),
                })
            }
            FileTask::Sign { .. } => written
                .and_then(|()| {
                    self.pki.store.request(&self.pki.source.subject, CertificatePurpose::CLIENT)
                })
                .map(TaskResult::Signed),
            FileTask::Install(chain) => match self.pki.store.issued(chain, &self.pki.marks, now) {
                Err(why) => Ok(TaskResult::Unusable(why)),
                Ok(issued) => {
                    let is_written = written.is_ok();
                    match written.and_then(|()| self.pki.installed(self.requested(), now)) {
                        Ok(new) => self.replace(new).map(TaskResult::InUse),
                        Err(why) => self.use_unstored(issued, is_written, &why),
                    }
                }
            },
        };
        result.unwrap_or_else(TaskResult::Failed)
    }

    fn take_later(&mut self) -> Vec<(&'static str, Vec<Op>)> {
        mem::take(&mut self.pki.later)
    }
}

/// Where a node of k3s renews its certificate.
#[derive(Clone, Debug)]
pub(super) struct Supervisor {
    server: String,
    /// The system's roots verify the supervisor, and not the CA of the kubeconfig.
    system_roots: bool,
    node_name: String,
    /// Folders that may have the password: the folder of the kubeconfig, and systemd's credentials.
    folders: Vec<PathBuf>,
}

impl Supervisor {
    /// The supervisor that `config` names; `None` if there is none.
    pub(super) fn new(
        config: &Config,
        kubeconfig: &Path,
        credentials: Option<&Path>,
    ) -> Option<Self> {
        let beside = kubeconfig.parent().unwrap_or(Path::new(""));
        let folders = [beside].into_iter().chain(credentials);
        Some(Self {
            server: config.k3s_supervisor.clone()?,
            system_roots: config.k3s_supervisor_system_roots,
            node_name: config.node.name.clone(),
            folders: folders.map(Path::to_owned).collect(),
        })
    }

    /// Reads the node password, which may be replaced while the agent runs; under systemd the file
    /// is a copy from the start of the unit.
    pub(super) fn password(&self) -> Result<Secret, Fault> {
        let folders: Vec<&Path> = self.folders.iter().map(PathBuf::as_path).collect();
        let path = find(Path::new(PASSWORD), &folders);
        read_password(&path)?.ok_or_else(|| format!("{}: empty", path.display()).into())
    }

    /// Its address.
    pub(super) fn endpoint(&self) -> Result<Endpoint, Fault> {
        let endpoint = Endpoint::parse(&self.server);
        endpoint.map_err(|why| why.at("--k3s-supervisor"))
    }

    /// Why the supervisor cannot be asked for a certificate: there is no node password, or the
    /// system's roots are missing. `bundles` are their paths, as [`SYSTEM_ROOTS`].
    pub(super) fn fault(&self, bundles: &[&'static str]) -> Option<Fault> {
        match self.password() {
            Err(why) => Some(Fault::new(why.to_string(), restore_password(&self.node_name))),
            Ok(_) => self.check_roots(bundles).err(),
        }
    }

    fn check_roots(&self, bundles: &[&'static str]) -> Result<(), Fault> {
        if self.system_roots && system_bundle(bundles).is_none() {
            let what = format!("--k3s-supervisor-system-roots: {NO_SYSTEM_ROOTS}");
            return Err(Fault::new(what, INSTALL_SYSTEM_ROOTS));
        }
        Ok(())
    }

    /// A client with the certificate of `config`, and its CA or the system's roots. It takes over
    /// what `last`, the client of the last attempt, knows of the supervisor's addresses. `node_ips`
    /// are the addresses for a serving certificate.
    pub(super) fn client(
        &self,
        config: &ApiConfig,
        last: Option<&Api>,
        node_ips: Option<&str>,
    ) -> Result<Api, Fault> {
        let password = self.password()?;
        self.check_roots(&SYSTEM_ROOTS)?;
        let mut config =
            ApiConfig { endpoint: self.endpoint()?, authorization: None, ..config.clone() };
        if self.system_roots {
            // What the kubeconfig says of TLS is about the API server.
            (config.ca, config.insecure, config.tls_server_name) = (None, false, None);
        }
        let mut api = Api::new(&config)?;
        if let Some(last) = last {
            api.keep_addresses_of(last);
        }
        let mut headers =
            vec![(NODE_NAME, self.node_name.as_str()), (NODE_PASSWORD, password.reveal())];
        headers.extend(node_ips.map(|ips| (NODE_IP, ips)));
        api.set_headers(&headers)?;
        Ok(api)
    }
}
