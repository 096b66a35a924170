//! The board's credentials for the API server: the ones at the start, and their replacement.
//!
//! [`Source`] finds the kubeconfig or the bootstrap kubeconfig. [`Identity`] then reads files again
//! that another program replaced (`watch`), and does the file work of a rotation (`pki`) that
//! `core::certificate` requests.

pub mod kubeconfig;
pub mod pki;
mod signing;
mod source;
mod watch;

pub use self::source::{ApiAccess, Source};

use crate::core::certificate::{Task, TaskResult};
use crate::core::instant::Mono;
use crate::kube::message::Outcome;
use crate::kube::time::Wall;
use crate::kube::x509::Leaf;
use crate::wire::api::Api;
use crate::wire::api_config::ApiConfig;

use self::pki::Pki;
use self::signing::{SigningClient, Supervisor};
use self::watch::Watch;

/// The identity of a running agent.
#[derive(Debug)]
pub struct Identity {
    /// The configuration that `api` uses.
    config: ApiConfig,
    watch: Watch,
    pki: Pki,
    supervisor: Option<Supervisor>,
    signing: SigningClient,
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
    pub fn on_response(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(response) if response.code != 401 => {}
            Outcome::Answered(_) | Outcome::Silent(_) => self.watch.check_next(),
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
                .choose_client(api, *with_bootstrap, *is_first)
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
        self.signing = SigningClient::Main;
        Ok(leaf)
    }

    /// Reads the credentials for each signing request, because they may be replaced: the bootstrap
    /// kubeconfig, or the node password of k3s.
    fn choose_client(&mut self, api: &mut Api, bootstrap: bool, first: bool) -> Result<(), String> {
        self.signing = match &self.supervisor {
            Some(supervisor) => supervisor.client(&self.config, &self.signing, &self.user_agent)?,
            None if !bootstrap => SigningClient::Main,
            None => {
                let config = self.pki.load_bootstrap()?;
                match first {
                    true => {
                        api.set_identity(&config)?;
                        self.watch = Watch::new(&config);
                        self.config = config;
                        SigningClient::MainBootstrap
                    }
                    false => {
                        let api = Api::new(&config, &self.user_agent)?;
                        SigningClient::Bootstrap(Box::new((config, api)))
                    }
                }
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests;
