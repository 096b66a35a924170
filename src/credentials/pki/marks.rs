//! The files that a stored certificate was renewed for: a certificate of another cluster must not
//! win over new ones. A line behind each stored pair has their marks.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA512_256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::client::api_config::{ApiConfig, ClientCertificate};

/// The start of the line. Every reader ignores text outside of PEM sections.
const LINE: &str = "# kubeconfig: ";

/// Digests of certificates: that of the kubeconfig, unless it names the stored one, and each CA of
/// the bootstrap kubeconfig.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::credentials) struct Marks(Vec<String>);

impl Marks {
    pub(super) fn of(
        kubeconfig: Option<&ClientCertificate>,
        bootstrap: Option<&ApiConfig>,
    ) -> Self {
        let own = kubeconfig.and_then(mark);
        let authorities = bootstrap.map(Self::authorities).unwrap_or_default();
        Self(own.into_iter().chain(authorities.0).collect())
    }

    /// The CAs of a kubeconfig. A CA file has none: it may be replaced while the agent runs.
    pub(super) fn authorities(config: &ApiConfig) -> Self {
        let inline = config.ca.iter().filter(|ca| ca.file.is_none());
        Self(inline.flat_map(|ca| marks(&ca.bytes)).collect())
    }

    /// Those of a stored certificate; empty if another program or version stored it.
    pub(super) fn of_stored(pair: &ClientCertificate) -> Self {
        let text = String::from_utf8_lossy(&pair.chain.bytes);
        let line = text.lines().find_map(|line| line.strip_prefix(LINE));
        Self(line.unwrap_or_default().split_whitespace().map(str::to_owned).collect())
    }

    /// The line with these marks; empty without any.
    pub(super) fn line(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("{LINE}{}\n", self.0.join(" ")) }
    }

    /// Whether the kubeconfig had this certificate; `None` if that is not known.
    pub(super) fn has(&self, certificate: &ClientCertificate) -> Option<bool> {
        let mark = mark(certificate)?;
        (!self.0.is_empty()).then(|| self.0.contains(&mark))
    }

    /// Whether both are known and have nothing in common. In a rotation of the CA they have: the
    /// old and the new one are in one bundle for a while.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let is_known = !self.0.is_empty() && !other.0.is_empty();
        is_known && !self.0.iter().any(|mark| other.0.contains(mark))
    }
}

fn mark(certificate: &ClientCertificate) -> Option<String> {
    marks(&certificate.chain.bytes).next()
}

fn marks(pem: &[u8]) -> impl Iterator<Item = String> {
    let certificates = CertificateDer::pem_slice_iter(pem).flatten();
    certificates.map(|der| URL_SAFE_NO_PAD.encode(digest(&SHA512_256, &der)))
}
