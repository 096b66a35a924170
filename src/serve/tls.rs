//! TLS of the port: its configuration, and whom a client certificate names.
//!
//! A client without a certificate may have a token, and one with a certificate of another CA gets
//! 401 as from a kubelet, no alert. So any chain is taken in the handshake, in which rustls proves
//! that the client has its key, and webpki judges the chain when the client asks for something.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{DistinguishedName, Error, RootCertStore, SupportedProtocolVersion};
use webpki::{EndEntityCert, KeyUsage};

use crate::core::access::User;
use crate::kube::time::Wall;
use crate::kube::x509::{self, Leaf};
use crate::wire::api_config::{ClientCertificate, Pem};
use crate::wire::provider::{SIGNATURES, has_the_key, provider};
use crate::wire::tls::{certified, roots};

/// The CA of client certificates.
#[derive(Debug)]
pub(super) struct ClientCa(RootCertStore);

/// Whom a certificate of the CA names, and when.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    pub(super) user: User,
    pub(super) from: Wall,
    pub(super) until: Wall,
}

impl ClientCa {
    /// Without one, no client certificate is accepted. The system's roots never are: they sign for
    /// everybody.
    pub(super) fn new(ca: Option<&Pem>) -> Result<Self, String> {
        Ok(Self(ca.map_or_else(|| Ok(RootCertStore::empty()), roots)?))
    }

    /// The user that the chain names, if this CA signed it for a client and it is valid now.
    /// Upstream: apiserver `authentication/request/x509/x509.go`.
    pub(super) fn verify(&self, chain: &[CertificateDer<'_>], now: Wall) -> Option<Verified> {
        let (first, intermediates) = chain.split_first()?;
        let time = UnixTime::since_unix_epoch(Duration::from_nanos(now.nanos()));
        let certificate = EndEntityCert::try_from(first).ok()?;
        let usage = KeyUsage::client_auth();
        certificate
            .verify_for_usage(SIGNATURES.all, &self.0.roots, intermediates, time, usage, None, None)
            .ok()?;
        let leaf = Leaf::parse(first)?;
        let (name, groups) = (leaf.subject.common_name, leaf.subject.organizations);
        let user = User { name, groups, ..User::default() };
        let named = !user.name.is_empty();
        named.then_some(Verified { user, from: leaf.not_before, until: leaf.not_after })
    }
}

/// The certificate in `chain` whose key has signed the first one. Anything else that a server sent
/// there is not trusted.
pub(super) fn issuer(chain: &Pem) -> Option<Pem> {
    let mut certificates = CertificateDer::pem_slice_iter(&chain.bytes).flatten();
    let first = [certificates.next()?];
    // Also with a clock that is wrong, and after the end of the certificate.
    let then = Leaf::parse(&first[0])?.not_before;
    certificates.find_map(|ca| {
        let (source, bytes) = (chain.source.clone(), x509::pem("CERTIFICATE", &ca).into_bytes());
        let ca = Pem { file: None, source, bytes };
        ClientCa::new(Some(&ca)).ok()?.verify(&first, then).map(|_| ca)
    })
}

/// The configuration with a serving certificate.
pub(super) fn server_config(
    certificate: &ClientCertificate,
    ca: &ClientCa,
    only_tls13: bool,
) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(provider());
    let certified = certified(certificate, &provider)?;
    let versions: &[&SupportedProtocolVersion] =
        if only_tls13 { &[&TLS13] } else { &[&TLS13, &TLS12] };
    let verifier = AnyClient(ca.0.subjects());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|e| format!("tls: {e}"))?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Nothing is kept for a client that is gone.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// Takes any certificate whose key the client has. The names of the CA are a hint: a client with
/// several certificates chooses by it.
#[derive(Debug)]
struct AnyClient(Vec<DistinguishedName>);

impl ClientCertVerifier for AnyClient {
    fn offer_client_auth(&self) -> bool {
        !self.0.is_empty()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.0
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    has_the_key!();
}
