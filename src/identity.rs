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

/// What there is to begin with.
#[derive(Debug)]
pub struct Opened {
    /// The one in use: ours, or the bootstrap's for as long as there is no other.
    pub kubeconfig: Kubeconfig,
    /// The way to its server.
    pub api: Api,
    /// `None` where the kubeconfig is used as it is, for ever.
    pub renewal: Option<(Identity, Certificate)>,
}

/// Reads what the flags point to. A relative path is looked for here, and a bare name
/// then among systemd's `credentials`. `random` (0 to 1000) spreads many boards.
pub fn open(
    config: &Config,
    path: &Path,
    credentials: Option<PathBuf>,
    user_agent: &str,
    now: Wall,
    random: u32,
) -> Result<Opened, String> {
    let folders: Vec<&Path> = [Path::new("")]
        .into_iter()
        .chain(credentials.as_deref())
        .collect();
    let path = file::find(path, &folders);
    let bootstrap = config.bootstrap_kubeconfig.as_ref();
    let bootstrap = bootstrap.map(|path| file::find(path, &folders));
    let rules = Rules {
        rotate: config.rotate_certificates,
        bootstrap: bootstrap.is_some(),
    };
    if !rules.rotate && !rules.bootstrap {
        let kubeconfig = Kubeconfig::load(&path, credentials.as_deref())?;
        let api = connect(&kubeconfig, user_agent, &path)?;
        say_if_expired(&kubeconfig, now);
        return Ok(Opened {
            kubeconfig,
            api,
            renewal: None,
        });
    }
    let subject = Subject {
        common_name: format!("system:node:{}", config.node.name),
        organizations: vec!["system:nodes".to_owned()],
    };
    let paths = Paths {
        kubeconfig: path.clone(),
        bootstrap: bootstrap.clone(),
        cert_dir: config.cert_dir.clone(),
        rotate: rules.rotate,
        credentials,
    };
    let (pki, start) = Pki::open(paths, subject.clone(), now)?;
    let (kubeconfig, path, is_renewed) = match (start.kubeconfig, bootstrap) {
        (None, bootstrap) => (pki.bootstrap()?, bootstrap.unwrap_or(path), true),
        (Some(kubeconfig), _) => (kubeconfig, path, start.leaf.is_some()),
    };
    let api = connect(&kubeconfig, user_agent, &path)?;
    let certificate = Certificate::new(rules, subject, start.leaf, start.given, random);
    let identity = Identity {
        pki,
        bootstrap: None,
        user_agent: user_agent.to_owned(),
    };
    Ok(Opened {
        kubeconfig,
        api,
        renewal: is_renewed.then_some((identity, certificate)),
    })
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

/// The way in that [`open`] takes, seen without a word in the log and without a write.
pub fn look(
    config: &Config,
    path: &Path,
    credentials: Option<&Path>,
    user_agent: &str,
    now: Wall,
) -> Result<Way, String> {
    let folders: Vec<&Path> = [Path::new("")].into_iter().chain(credentials).collect();
    let way = |path: &Path, bootstrap: Option<String>| {
        let path = file::find(path, &folders);
        let mut kubeconfig = Kubeconfig::load(&path, credentials)?;
        if bootstrap.is_none() && config.rotate_certificates {
            kubeconfig.identity = stored(config, now).or(kubeconfig.identity);
        }
        Ok::<Way, String>(Way {
            api: connect(&kubeconfig, user_agent, &path)?,
            kubeconfig,
            bootstrap,
        })
    };
    let own = way(path, None);
    let Some(bootstrap) = &config.bootstrap_kubeconfig else {
        return own;
    };
    let why = match &own {
        Err(line) => Some(line.clone()),
        Ok(own) => match own.kubeconfig.identity.as_ref().and_then(leaf) {
            None => Some(format!("{}: no client certificate in it", path.display())),
            Some(leaf) => (leaf.not_after < now).then(|| {
                let until = leaf.not_after.time();
                format!("{}: its certificate expired at {until}", path.display())
            }),
        },
    };
    match why {
        Some(why) => way(bootstrap, Some(why)),
        None => own,
    }
}

/// What a rotation left in `--cert-dir`, where it is valid.
fn stored(config: &Config, now: Wall) -> Option<kubeconfig::Identity> {
    let current = config.cert_dir.join("kubelet-client-current.pem");
    let identity = kubeconfig::Identity::read(&current, &current).ok()?;
    leaf(&identity).filter(|leaf| now <= leaf.not_after)?;
    Some(identity)
}

fn leaf(identity: &kubeconfig::Identity) -> Option<Leaf> {
    Leaf::of_pem(&identity.chain.bytes)
}

fn connect(kubeconfig: &Kubeconfig, user_agent: &str, path: &Path) -> Result<Api, String> {
    Api::new(kubeconfig, user_agent).map_err(|line| format!("{}: {line}", path.display()))
}

/// Nobody here renews it, but somebody may put another one in its place.
fn say_if_expired(kubeconfig: &Kubeconfig, now: Wall) {
    let Some(identity) = &kubeconfig.identity else {
        return;
    };
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
                let installed = installed.and_then(|(kubeconfig, leaf)| {
                    *api = Api::new(&kubeconfig, &self.user_agent)?;
                    self.bootstrap = None;
                    Ok(leaf)
                });
                kubelet.installed(installed, now);
            }
            Some(Task::Send) | None => {}
        }
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
