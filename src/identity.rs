//! Who we are to the API server: the way in, and the files and the second way in that a
//! certificate needs to be renewed.

use std::path::{Path, PathBuf};

use crate::certificate::{Certificate, Rules, Task};
use crate::config::Config;
use crate::kube::api::Api;
use crate::kube::file;
use crate::kube::kubeconfig::{self, Kubeconfig};
use crate::kube::pki::{Paths, Pki};
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};
use crate::kubelet::Kubelet;
use crate::now::Now;

/// The parts that renew a certificate.
#[derive(Debug)]
pub struct Identity {
    pki: Pki,
    /// With the bootstrap's credentials, where the own ones are no good.
    bootstrap: Option<Api>,
    user_agent: String,
}

/// The way in that a run begins with.
#[derive(Debug)]
pub struct Way {
    /// Where the server is, and who we are.
    pub kubeconfig: Kubeconfig,
    /// Not connected.
    pub api: Api,
    /// Why it is the bootstrap's.
    pub bootstrap: Option<String>,
}

/// The flags that lead to it.
#[derive(Clone, Debug)]
pub struct Flags<'a> {
    /// All of them, and the name of the Node.
    pub config: &'a Config,
    /// `--kubeconfig`, here or in the folder of systemd's credentials.
    pub kubeconfig: &'a Path,
    /// That folder, where there is one.
    pub credentials: Option<PathBuf>,
    /// How we present ourselves.
    pub user_agent: String,
}

impl Flags<'_> {
    fn paths(&self) -> Paths {
        let here = [Path::new("")].into_iter();
        let folders: Vec<&Path> = here.chain(self.credentials.as_deref()).collect();
        let bootstrap = self.config.bootstrap_kubeconfig.as_ref();
        Paths {
            kubeconfig: file::find(self.kubeconfig, &folders),
            bootstrap: bootstrap.map(|path| file::find(path, &folders)),
            cert_dir: self.config.cert_dir.clone(),
            rotate: self.config.rotate_certificates,
            credentials: self.credentials.clone(),
        }
    }

    fn subject(&self) -> Subject {
        Subject {
            common_name: format!("system:node:{}", self.config.node.name),
            organizations: vec!["system:nodes".to_owned()],
        }
    }

    fn way(
        &self,
        paths: &Paths,
        kubeconfig: Kubeconfig,
        bootstrap: Option<String>,
    ) -> Result<Way, String> {
        let path = match (&bootstrap, &paths.bootstrap) {
            (Some(_), Some(path)) => path,
            _ => &paths.kubeconfig,
        };
        let api = Api::new(&kubeconfig, &self.user_agent);
        Ok(Way {
            api: api.map_err(|line| format!("{}: {line}", path.display()))?,
            kubeconfig,
            bootstrap,
        })
    }

    /// The way in that [`Flags::open`] takes, seen without a write.
    pub fn look(&self, now: Wall) -> Result<Way, String> {
        let paths = self.paths();
        let (_, start) = Pki::look(paths.clone(), self.subject(), now)?;
        self.way(&paths, start.kubeconfig, start.bootstrap)
    }

    /// Reads what the flags point to. `random` (0 to 1000) spreads many boards. Without a
    /// renewal the kubeconfig is used as it is, for ever.
    pub fn open(
        &self,
        now: Wall,
        random: u32,
    ) -> Result<(Way, Option<(Identity, Certificate)>), String> {
        let paths = self.paths();
        let (pki, start) = Pki::open(paths.clone(), self.subject(), now)?;
        let way = self.way(&paths, start.kubeconfig, start.bootstrap)?;
        let rules = Rules {
            rotate: self.config.rotate_certificates,
            bootstrap: self.config.bootstrap_kubeconfig.is_some(),
        };
        match (&way.bootstrap, &way.kubeconfig.identity, &start.leaf) {
            (Some(why), ..) => {
                log::info!("{why}: asking for a certificate with the bootstrap kubeconfig");
            }
            (None, Some(identity), None) if rules.rotate => log::warn!(
                "{}: no certificate that can be renewed; using it as it is",
                identity.chain.source
            ),
            (None, None, None) if rules.rotate => log::info!(
                "{}: no client certificate in it, so there is none to renew",
                paths.kubeconfig.display()
            ),
            (None, Some(identity), None) => say_if_expired(identity, now),
            _ => {}
        }
        if way.bootstrap.is_none() && start.leaf.is_none() {
            return Ok((way, None));
        }
        let certificate = Certificate::new(rules, self.subject(), start.leaf, start.given, random);
        let identity = Identity {
            pki,
            bootstrap: None,
            user_agent: self.user_agent.clone(),
        };
        Ok((way, Some((identity, certificate))))
    }
}

/// Nobody here renews it, but somebody may put another one in its place.
fn say_if_expired(identity: &kubeconfig::Identity, now: Wall) {
    let chain = &identity.chain;
    if let Some(leaf) = Leaf::of_pem(&chain.bytes).filter(|leaf| leaf.not_after < now) {
        log::warn!(
            "{}: the certificate expired at {}, clock says {}; trying on with it",
            chain.source,
            leaf.not_after.time(),
            now.time()
        );
    }
}

impl Identity {
    /// Does [`Kubelet::certificate_task`]: makes a request, or puts a new certificate to
    /// use. With that, `api` is another one, and its connection is yet to be opened.
    pub fn tend(&mut self, api: &mut Api, kubelet: &mut Kubelet, now: Now) {
        match kubelet.certificate_task() {
            Some(Task::Sign { .. })
                if kubelet.is_bootstrapping()
                    && let Some(found) = self.pki.found(kubelet.wall(now)) =>
            {
                let installed = self.use_certificate(api, found);
                kubelet.installed(installed, now);
            }
            Some(Task::Sign { unlike }) => {
                let ready = match kubelet.needs_bootstrap(now) {
                    true => self.use_bootstrap(api, kubelet.is_bootstrapping()),
                    false => Ok(()),
                };
                let signed = ready.and_then(|()| self.pki.sign(unlike));
                kubelet.signed(signed, now.mono);
            }
            Some(Task::Install(chain)) => {
                let installed = self.pki.install(chain, kubelet.wall(now));
                let installed = installed.and_then(|new| self.use_certificate(api, new));
                kubelet.installed(installed, now);
            }
            Some(Task::Send) | None => {}
        }
    }

    fn use_certificate(
        &mut self,
        api: &mut Api,
        (kubeconfig, leaf): (Kubeconfig, Leaf),
    ) -> Result<Leaf, String> {
        *api = Api::new(&kubeconfig, &self.user_agent)?;
        self.bootstrap = None;
        Ok(leaf)
    }

    /// Anew each time: whoever prepared the board may have given it another token.
    fn use_bootstrap(&mut self, api: &mut Api, alone: bool) -> Result<(), String> {
        let bootstrap = Api::new(&self.pki.bootstrap()?, &self.user_agent)?;
        match alone {
            true => *api = bootstrap,
            false => self.bootstrap = Some(bootstrap),
        }
        Ok(())
    }

    /// The way in for a request for a certificate, where it is not the usual one.
    pub fn bootstrap(&mut self) -> Option<&mut Api> {
        self.bootstrap.as_mut()
    }
}
