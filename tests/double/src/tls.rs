//! The server's side of TLS. It reads the time that is set.

use crate::auth::User;
use crate::der;
use crate::lock;
use crate::pki::{self, Authority, Identity};
use crate::time;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

#[derive(Debug)]
struct SetTime;

impl TimeProvider for SetTime {
    fn current_time(&self) -> Option<UnixTime> {
        Some(now())
    }
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(time::since_1970())
}

/// A server with this certificate.
pub(crate) fn server_config(
    verifier: Arc<dyn ClientCertVerifier>,
    identity: &Identity,
) -> Arc<ServerConfig> {
    server_config_of(verifier, identity, rustls::DEFAULT_VERSIONS)
}

/// A server with this certificate that speaks these versions of TLS alone.
pub(crate) fn server_config_of(
    verifier: Arc<dyn ClientCertVerifier>,
    identity: &Identity,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_details(provider, Arc::new(SetTime))
        .with_protocol_versions(versions)
        .expect("ring has what TLS needs")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![identity.cert_der.clone()], identity.private_key())
        .expect("a server certificate with its key");
    Arc::new(config)
}

/// Ends the handshake of a client whose certificate is not of these authorities, or not valid now.
/// A client without one is let in.
pub(crate) fn strict(authorities: &[&Authority]) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority.der().clone()).expect("an authority of ours is a good root");
    }
    WebPkiClientVerifier::builder(Arc::new(roots))
        .allow_unauthenticated()
        .build()
        .expect("a verifier for client certificates")
}

/// Takes any certificate whose key the client holds, as kube-apiserver does: whether it is one
/// of ours is asked afterwards, and a bad one gets 401, not a TLS alert.
#[derive(Debug)]
pub(crate) struct AnyCertificate {
    verifier: Arc<dyn ClientCertVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    /// By certificate, the users whose signatures were checked: that takes longer than a request.
    known: Mutex<HashMap<Vec<u8>, (Validity, User)>>,
}

/// Start and end, as GeneralizedTime.
type Validity = [String; 2];

impl AnyCertificate {
    /// Knows the client certificates of these authorities.
    pub(crate) fn of(authorities: &[&Authority]) -> Arc<Self> {
        let verifier = strict(authorities);
        let authorities = authorities.iter().map(|authority| authority.der().clone()).collect();
        Arc::new(Self { verifier, authorities, known: Mutex::default() })
    }

    /// Whose certificate the first one is; `None` if it is not valid now.
    pub(crate) fn user_of(&self, certificates: &[CertificateDer<'_>]) -> Option<User> {
        let [own, others @ ..] = certificates else { return None };
        let mut known = lock(&self.known);
        if let Some((validity, user)) = known.get(own.as_ref()) {
            return der::is_within(validity, &time::generalized()).then(|| user.clone());
        }
        if !self.is_known(own, others) {
            return None;
        }
        let certificate = der::Certificate::parse(own)?;
        let mut user = User::from_subject(&certificate.subject()?);
        let hash = pki::hex(pki::sha256(own).as_ref());
        user.extra = Some(
            json!({"authentication.kubernetes.io/credential-id": [format!("X509SHA256={hash}")]}),
        );
        // Others may end before it.
        if others.is_empty() {
            known.insert(own.to_vec(), (certificate.validity()?, user.clone()));
        }
        Some(user)
    }

    /// Whether one of the authorities signed it for a client.
    fn is_known(&self, own: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> bool {
        let mut authorities = self.authorities.iter();
        self.verifier.verify_client_cert(own, others, now()).is_ok()
            || authorities.any(|authority| pki::is_version_1_of(authority, own) == Some(true))
    }
}

impl ClientCertVerifier for AnyCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }
    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        m: &[u8],
        c: &CertificateDer<'_>,
        d: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(m, c, d)
    }
    fn verify_tls13_signature(
        &self,
        m: &[u8],
        c: &CertificateDer<'_>,
        d: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        // by the key alone: webpki does not parse a certificate of version 1
        let bad = rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
        let certificate = der::Certificate::parse(c).ok_or(bad)?;
        let key = certificate.key();
        let provider = ring::default_provider();
        let algorithms = &provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature_with_raw_key(m, &key.into(), d, algorithms)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
