//! The client that sends signing requests, and the supervisor of k3s and rke2.

use std::path::{Path, PathBuf};

use super::certificate::supervisor::{NODE_IP, NODE_NAME, NODE_PASSWORD, restore_password};
use super::kubeconfig::{find, read_password};
use crate::client::api::Api;
use crate::client::api_config::{ApiConfig, Secret};
use crate::client::endpoint::Endpoint;
use crate::client::tls::{INSTALL_SYSTEM_ROOTS, NO_SYSTEM_ROOTS, SYSTEM_ROOTS, system_bundle};
use crate::config::Config;
use crate::kube::text::Fault;

/// The credential with the node password; the file is `nodelet.k3s-password`.
const PASSWORD: &str = "k3s-password";

/// The client for signing requests.
#[derive(Debug)]
pub(super) enum SigningClient {
    /// The main client, with the own certificate.
    Main,
    /// The main client, with the bootstrap kubeconfig: the board has no certificate yet.
    MainBootstrap,
    /// One of its own with the bootstrap kubeconfig, because the board's certificate cannot be
    /// used.
    Bootstrap(Box<Api>),
    /// One of its own for the supervisor, with the own certificate and the node password.
    Supervisor(Box<Api>),
}

/// Where a node of k3s renews its certificate.
#[derive(Clone, Debug)]
pub(super) struct Supervisor {
    server: String,
    /// The system's roots verify it, and not the CA of the kubeconfig.
    system_roots: bool,
    node_name: String,
    /// Folders that may have the password: the kubeconfig's, and that of systemd's credentials.
    folders: Vec<PathBuf>,
}

impl Supervisor {
    /// The one that `config` names.
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

    /// Why it cannot be asked. `bundles` as [`SYSTEM_ROOTS`].
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

    /// A client with the certificate of `config`, and its CA or the system's roots. It keeps what
    /// `last`, the client of the last attempt, knows of the supervisor's addresses. `node_ips` are
    /// those of a serving certificate.
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
