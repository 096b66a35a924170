//! The room for credentials: kubeconfig, key, request and certificate; the files that have them,
//! and their replacement.
//!
//! [`IdentitySource`] finds the kubeconfig or the bootstrap kubeconfig. [`Credentials`] then reads
//! files again that another program replaced (`credential_files`), and renews the certificate: the
//! pure `certificate` decides, `rotation` takes the steps, and `pki` has the files.

pub mod certificate;
pub(crate) mod credential_files;
mod current;
pub mod kubeconfig;
pub mod pki;
pub(crate) mod rotation;

use std::path::{Path, PathBuf};

use self::certificate::{Certificate, CertificateKind};
use self::credential_files::{CredentialFiles, Replaced};
pub use self::current::Current;
use self::current::{SigningClient, Supervisor};
use self::kubeconfig::find;
use self::pki::Pki;
use self::rotation::{CertificateFiles as _, Rotation, RotationStep};
use crate::client::api::Api;
use crate::client::tls::SYSTEM_ROOTS;
use crate::config::Config;
use crate::kube::delay::Jitter;
use crate::kube::instant::ClusterSeen;
use crate::kube::message::{Answer, RequestError};
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};
use crate::os::write::Disk;

/// The credentials of a process, and their replacement.
#[derive(Debug)]
pub struct Credentials {
    /// The credentials in use, and the client that sends them.
    pub current: Current,
    pub(crate) rotation: Rotation,
    /// Why the process started with the bootstrap kubeconfig; `None` if it did not.
    pub bootstrap: Option<Fault>,
    /// Why the supervisor cannot renew the certificate.
    pub renewal_fault: Option<Fault>,
    log: OutageLog,
}

impl Credentials {
    /// Reads files again that another program replaced. Returns whether other credentials are in
    /// use from now on.
    pub fn refresh(&mut self, at: ClusterSeen) -> bool {
        // A person may have put another one there while the new one was written.
        if self.rotation.replaces_next() {
            self.current.files.check_next();
        }
        // What differs after the replacement is that one. Its result follows in the next turn.
        let replaced = if self.rotation.has_replaced() {
            None
        } else {
            self.current.refresh(at.now, self.rotation.is_issued(at))
        };
        // While the board has no certificate of its own, the replaced one is the bootstrap
        // kubeconfig's, which is not renewed.
        if let Some(Replaced::Certificate(leaf)) = &replaced
            && !self.rotation.is_missing()
        {
            self.rotation.on_replaced(leaf.clone(), at);
            self.current.own_replaced();
            self.log.succeeded(at.now.mono);
        }
        if self.rotation.is_settled(at) {
            self.log.succeeded(at.now.mono);
        }
        replaced.is_some()
    }

    /// Why the renewal fails.
    pub fn last_error(&self) -> Option<&str> {
        self.log.last_error()
    }

    /// Takes one step of the renewal. A request is to be sent by [`Current::signing_api`].
    pub(crate) fn step(&mut self, at: ClusterSeen) -> RotationStep {
        let step = self.rotation.step(&mut self.current, at).unwrap_or_else(|why| {
            self.log.failed(&why.to_string(), at.now.mono);
            RotationStep::Files
        });
        if let RotationStep::InUse(leaf) = &step {
            self.log.succeeded(at.now.mono);
            let until = leaf.not_after.time();
            log::info!("certificate: a new certificate is in use, valid until {until}");
        }
        step
    }

    /// Takes the answer of the request of a step. Returns an error with the number of failures in
    /// a row.
    pub fn on_response(
        &mut self,
        answer: Answer,
        at: ClusterSeen,
    ) -> Result<(), (RequestError, u32)> {
        self.rotation.on_response("certificate", answer, at).map_err(|error| {
            let failures = self.log.failed(&error.why.to_string(), at.now.mono);
            (error, failures)
        })
    }

    /// Looks for another certificate in the files, in a process that renews none. Returns whether
    /// it is in use from now on.
    pub fn search(&mut self, now: Wall) -> bool {
        let found = self.current.pki.find(Ok(()), now, None).ok().flatten();
        self.current.take_later();
        let other = found.filter(|(config, _)| *config != self.current.api.config);
        other.is_some_and(|other| self.current.replace(other).is_ok())
    }
}

/// What the certificate is for, and who signs it; `None` if the kubeconfig is used unchanged.
fn kind(config: &Config) -> Option<CertificateKind> {
    match (config.rotate_certificates, config.bootstrap_kubeconfig.is_some()) {
        (true, _) if config.k3s_supervisor.is_some() => Some(CertificateKind::Supervisor),
        (true, true) => Some(CertificateKind::RotatedOrBootstrapped),
        (true, false) => Some(CertificateKind::Rotated),
        (false, true) => Some(CertificateKind::Bootstrapped),
        (false, false) => None,
    }
}

/// The files that credentials are read from, as the flags name them, and whose they are.
#[derive(Clone, Debug)]
pub struct IdentitySource {
    /// `--kubeconfig`.
    kubeconfig: PathBuf,
    /// `--bootstrap-kubeconfig`.
    bootstrap: Option<PathBuf>,
    /// `--cert-dir`.
    cert_dir: PathBuf,
    /// The folder of systemd's credentials.
    credentials: Option<PathBuf>,
    /// The subject of the certificates to request.
    subject: Subject,
    /// What the certificate is for; `None` if the kubeconfig is used unchanged.
    kind: Option<CertificateKind>,
    /// `--k3s-supervisor`.
    supervisor: Option<Supervisor>,
}

impl IdentitySource {
    /// Looks for `kubeconfig` and `--bootstrap-kubeconfig` in the working directory, then in
    /// `credentials`, the folder of systemd's credentials. The node password of k3s is looked for
    /// beside the kubeconfig, then in `credentials`.
    pub fn new(config: &Config, kubeconfig: &Path, credentials: Option<PathBuf>) -> Self {
        let working_directory = [Path::new("")].into_iter();
        let folders: Vec<&Path> = working_directory.chain(credentials.as_deref()).collect();
        let kubeconfig = find(kubeconfig, &folders);
        let bootstrap = config.bootstrap_kubeconfig.as_ref();
        Self {
            supervisor: Supervisor::new(config, &kubeconfig, credentials.as_deref()),
            bootstrap: bootstrap.map(|path| find(path, &folders)),
            kubeconfig,
            cert_dir: config.cert_dir.clone(),
            credentials,
            subject: Subject::of_node(&config.node.name),
            kind: kind(config),
        }
    }

    /// As [`Self::open`], for another process than the agent: neither this nor the credentials
    /// write a file, and nothing is logged.
    pub fn open_read_only(&self, now: Wall) -> Result<Credentials, Fault> {
        self.open_on(Disk::read_only(), now, Jitter::NONE)
    }

    /// Reads the files. `jitter` spreads the renewals of many boards.
    pub fn open(self, now: Wall, jitter: Jitter) -> Result<Credentials, Fault> {
        let credentials = self.open_on(Disk::default(), now, jitter)?;
        self.log_start(&credentials, now);
        Ok(credentials)
    }

    fn open_on(&self, disk: Disk, now: Wall, jitter: Jitter) -> Result<Credentials, Fault> {
        let (pki, start) = Pki::open(disk, self.clone(), now)?;
        let path = match (&start.bootstrap, &self.bootstrap) {
            (Some(_), Some(path)) => path,
            _ => &self.kubeconfig,
        };
        let api = Api::new(&start.config);
        let supervisor = self.supervisor.as_ref();
        supervisor.map(Supervisor::endpoint).transpose()?;
        let has_certificate = start.bootstrap.is_some() || start.leaf.is_some();
        let certificate = self.kind.filter(|_| has_certificate).map(|kind| {
            let subject = self.subject.clone();
            Certificate::new(kind, subject, start.leaf, start.replace_now, jitter)
        });
        Ok(Credentials {
            current: Current {
                api: api.map_err(|why| why.at(path.display()))?,
                files: CredentialFiles::new(&start.config),
                pki,
                signing: SigningClient::Main,
                was_refused: false,
            },
            rotation: Rotation::new(certificate),
            bootstrap: start.bootstrap,
            renewal_fault: supervisor.and_then(|supervisor| supervisor.fault(&SYSTEM_ROOTS)),
            log: OutageLog::new("certificate"),
        })
    }

    fn log_start(&self, credentials: &Credentials, now: Wall) {
        let rotates = self.kind.is_some_and(CertificateKind::rotates);
        if let Some(why) = &credentials.bootstrap {
            log::info!("{why}: requesting a certificate with the bootstrap kubeconfig");
        } else if let Some(certificate) = &credentials.current.api.config.certificate {
            let source = &certificate.chain.source;
            let leaf = Leaf::of_pem(&certificate.chain.bytes);
            let other = leaf.as_ref().and_then(|leaf| leaf.subject.other_node(&self.subject));
            other.into_iter().for_each(|other| log::warn!("{source}: {other}"));
            let expired = leaf.map(|leaf| leaf.not_after).filter(|until| *until < now);
            match (credentials.rotation.deadline(), expired) {
                (Some(_), _) => {}
                (None, _) if rotates => {
                    log::warn!("{source}: this certificate cannot be renewed; using it unchanged");
                }
                // Another program may replace its file.
                (None, Some(until)) => log::warn!(
                    "{source}: the certificate expired at {}, clock says {}; still using it",
                    until.time(),
                    now.time()
                ),
                (None, None) => {}
            }
        } else if rotates {
            log::info!("{}: no client certificate to renew", self.kubeconfig.display());
        }
        if let Some(why) = &credentials.renewal_fault {
            log::warn!("the certificate cannot be renewed: {why}");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
