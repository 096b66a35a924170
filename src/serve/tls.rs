//! The serving certificate, the CA of client certificates, and the TLS configuration that is made
//! of these two. The serving certificate is read from files that may be replaced, issued by the
//! cluster, or self-signed.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};

use super::client_ca::ClientCa;
use super::cluster_certificate::ClusterCertificate;
use super::config::ServeConfig;
use super::reviews::Reviews;
use crate::client::api_config::{ClientCertificate, Pem};
use crate::client::tls::{VerifiedAt, certified, check_certificate};
use crate::config::Config;
use crate::credentials::credential_files::StampedFiles;
use crate::credentials::kubeconfig::{read_certificate, read_pem};
use crate::credentials::pki::key::Key;
use crate::kube::delay::Jitter;
use crate::kube::instant::{ClusterSeen, Mono};
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{AltName, Leaf, Subject};
use crate::os::{guard, random};

/// How often the stamps of the files are compared.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// What TLS is made of.
#[derive(Debug)]
pub(super) struct Certificates {
    only_tls13: bool,
    cluster: Option<ClusterCertificate>,
    /// The serving certificate that the cluster has issued, once there is one.
    issued: Option<ClientCertificate>,
    /// The serving certificate while `issued` is `None`: of the flags, or self-signed.
    certificate: ClientCertificate,
    certificate_files: Option<StampedFiles<2>>,
    /// `None` accepts no client certificate.
    ca: Option<Pem>,
    /// `--client-ca-file`; without it the CA is that of the credentials.
    ca_file: Option<StampedFiles<1>>,
    due: Mono,
    log: OutageLog,
}

impl Certificates {
    /// Reads the files of the flags, or makes a certificate. Without `--client-ca-file`,
    /// `cluster_ca` is the CA of client certificates. `cert_dir` is the folder of the certificate
    /// that the cluster issues.
    pub(super) fn open(
        node: &Config,
        config: &ServeConfig,
        cluster_ca: Option<Pem>,
        cert_dir: &Path,
    ) -> Result<Self, Fault> {
        // The supervisor of k3s signs without an approval, so it is asked without a flag.
        let is_at_supervisor = node.k3s_supervisor.is_some() && config.tls_files.is_none();
        let rotates = config.rotate_server_certificates || is_at_supervisor;
        let jitter = Jitter::new(random());
        let cluster =
            rotates.then(|| ClusterCertificate::open(node, cert_dir, jitter)).transpose()?;
        let certificate = match &config.tls_files {
            Some((chain, key)) => read_certificate(chain, key)?,
            None => self_signed(&node.node.name)?,
        };
        let given_ca = config.client_ca_file.as_deref().map(read_pem).transpose();
        let given_ca = given_ca.map_err(|why| why.at("--client-ca-file"))?;
        let ca_file = given_ca.as_ref().and_then(StampedFiles::of_pem);
        let ca = given_ca.or(cluster_ca);
        log_without(ca.as_ref());
        Ok(Self {
            only_tls13: config.only_tls13,
            issued: cluster.as_ref().and_then(ClusterCertificate::current),
            cluster,
            certificate_files: StampedFiles::of_certificate(&certificate),
            certificate,
            ca_file,
            ca,
            due: Mono::START.after(CHECK_EVERY),
            log: OutageLog::new("certificates of the port"),
        })
    }

    /// The TLS configuration of what was read.
    pub(super) fn tls(&self) -> Result<(Arc<ServerConfig>, ClientCa), Fault> {
        let ca = ClientCa::new(self.ca.as_ref())?;
        let certificate = self.issued.as_ref().unwrap_or(&self.certificate);
        Ok((server_config(certificate, &ca, self.only_tls13)?, ca))
    }

    /// The end of the serving certificate, unless it is self-signed.
    pub(super) fn not_after(&self) -> Option<Wall> {
        let files = self.certificate_files.as_ref().map(|_| &self.certificate);
        let certificate = self.issued.as_ref().or(files)?;
        Leaf::of_pem(&certificate.chain.bytes).map(|leaf| leaf.not_after)
    }

    /// A client has connected to the address `dialed`.
    pub(super) fn on_accepted(&mut self, dialed: IpAddr, now: Mono) {
        if let Some(cluster) = &mut self.cluster {
            cluster.on_accepted(dialed, now);
        }
    }

    /// When a step towards the certificate of the cluster is due.
    pub(super) fn due(&mut self, at: ClusterSeen) -> Option<Mono> {
        self.cluster.as_mut().map(|cluster| cluster.due(at))
    }

    /// Takes the step that is due. Returns the new TLS configuration, if there is one.
    pub(super) fn step(&mut self, reviews: &mut Reviews) -> Option<(Arc<ServerConfig>, ClientCa)> {
        let (cluster, at) = (self.cluster.as_mut()?, reviews.seen());
        if at.now.mono < cluster.due(at) {
            return None;
        }
        let current = Some(cluster.step(reviews, at.now.mono)?);
        if self.issued == current {
            return None;
        }
        self.issued = current;
        self.tls().ok()
    }

    /// Reads the files again that were replaced, once a minute, unless the root file system can
    /// block. `cluster_ca` refreshes the credentials and returns their CA, as for [`Self::open`].
    /// Returns the new TLS configuration, if there is one.
    pub(super) fn refresh(
        &mut self,
        cluster_ca: impl FnOnce() -> Option<Pem>,
        now: Mono,
    ) -> Option<(Arc<ServerConfig>, ClientCa)> {
        if now < self.due {
            return None;
        }
        self.due = now.after(CHECK_EVERY);
        let mut is_new = false;
        let may_read = !guard::root_can_block();
        let read = match &mut self.certificate_files {
            Some(files) if may_read => files.check(|[chain, key]| {
                let new = read_certificate(chain, key)?;
                check_certificate(&new)?;
                log::info!("{}: read again", new.chain.source);
                (self.certificate, is_new) = (new, true);
                Ok(())
            }),
            _ => Ok(()),
        };
        let ca_read = match &mut self.ca_file {
            Some(file) if may_read => file.check(|[path]| {
                let new = read_pem(path)?;
                ClientCa::new(Some(&new))?;
                log::info!("{}: read again", new.source);
                (self.ca, is_new) = (Some(new), true);
                Ok(())
            }),
            Some(_) => Ok(()),
            None => {
                let new = cluster_ca();
                if new != self.ca {
                    log_without(new.as_ref());
                    (self.ca, is_new) = (new, true);
                }
                Ok(())
            }
        };
        let failed = [read, ca_read].into_iter().filter_map(|read| Some(read.err()?.to_string()));
        let failed = failed.collect::<Vec<_>>().join("; ");
        let error = (!failed.is_empty()).then(|| format!("{failed}; the old one stays in use"));
        self.log.ended(error.as_deref(), now);
        if is_new { self.tls().ok() } else { None }
    }
}

/// Logs that client certificates are not accepted, if there is no CA.
fn log_without(ca: Option<&Pem>) {
    if ca.is_none() {
        log::info!(
            "client certificates are not accepted: the credentials have no CA that has signed the \
             board's own certificate; --client-ca-file names the CA of clients"
        );
    }
}

/// A certificate that a new key signs itself, for clients that do not verify.
pub(super) fn self_signed(node_name: &str) -> Result<ClientCertificate, Fault> {
    let key = Key::generate()?;
    let subject = Subject {
        common_name: node_name.to_owned(),
        alt_names: vec![AltName::Dns(node_name.to_owned())],
        ..Subject::default()
    };
    let pem = |text: &str| Pem {
        file: None,
        source: "the self-signed certificate".to_owned(),
        bytes: text.as_bytes().to_vec(),
    };
    Ok(ClientCertificate { chain: pem(&key.self_signed(subject)?), key: pem(key.pem()) })
}

/// The TLS configuration with a serving certificate.
pub(super) fn server_config(
    certificate: &ClientCertificate,
    ca: &ClientCa,
    only_tls13: bool,
) -> Result<Arc<ServerConfig>, Fault> {
    let (certified, _) = certified(certificate)?;
    let versions: &[&SupportedProtocolVersion] =
        if only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_details(provider, Arc::new(VerifiedAt))
        .with_protocol_versions(versions)
        .map_err(|e| format!("tls: {e}"))?
        .with_client_cert_verifier(Arc::new(ca.any_client()))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // No TLS sessions are kept for clients that may never return.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
