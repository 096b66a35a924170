//! Whom a client certificate names.
//!
//! As in a kubelet, a certificate that cannot be verified does not end the handshake: the client
//! may also send a token, which still counts. So TLS takes any certificate ([`AnyClient`]), and
//! [`ClientCa::verify`] judges the certificate when the client sends a request. Only
//! [`ClientCa::verify`] makes a user of a certificate. A client's chain is verified like a server's
//! chain (`client/authorities.rs`).

use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use super::access::{MAX_USER, User};
use crate::client::api_config::Pem;
use crate::client::authorities::{Authorities, CertificateUsage};
use crate::client::tls::{roots, verify_tls12_signature, verify_tls13_signature, without_mark};
use crate::kube::keys::KeyKind;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{self, Leaf};

/// Most characters that the log has of the name in a refused certificate.
const MAX_NAME: usize = 64;

/// The CA of client certificates.
#[derive(Debug)]
pub(super) struct ClientCa {
    authorities: Authorities,
    signatures: WebPkiSupportedAlgorithms,
}

/// The user of a certificate that the CA has signed, and when all certificates of the chain that
/// the client sent are valid. At another time the chain is verified again.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    pub(super) user: User,
    pub(super) from: Wall,
    pub(super) until: Wall,
}

impl ClientCa {
    /// Without `ca`, no client certificate is accepted. The system's root certificates are never
    /// used, because they sign for everybody.
    pub(super) fn new(ca: Option<&Pem>) -> Result<Self, Fault> {
        Ok(Self::of(ca.map_or_else(|| Ok(Authorities::empty()), roots)?))
    }

    fn of(authorities: Authorities) -> Self {
        Self { authorities, signatures: ring::default_provider().signature_verification_algorithms }
    }

    /// The user that the chain names, if this CA signed it for a client and it is valid now. The
    /// error names the certificate. Upstream: apiserver `authentication/request/x509/x509.go`.
    pub(super) fn verify(
        &self,
        chain: &[CertificateDer<'_>],
        now: Wall,
    ) -> Result<Verified, String> {
        let (first, intermediates) = chain.split_first().ok_or("an empty chain")?;
        let leaf = Leaf::parse(first).ok_or("a certificate that cannot be parsed")?;
        let verified = self.judge(first, intermediates, &leaf, now);
        let (name, groups) = (leaf.subject.common_name, leaf.subject.organizations);
        match verified {
            Ok(()) => {
                let user = User { name, groups, ..User::default() };
                let (mut from, mut until) = (leaf.not_before, leaf.not_after);
                for ca in intermediates.iter().filter_map(|ca| Leaf::parse(ca)) {
                    from = from.max(ca.not_before);
                    until = until.min(ca.not_after);
                }
                Ok(Verified { user, from, until })
            }
            Err(why) => {
                let name: String = name.chars().take(MAX_NAME).collect();
                Err(format!("{name:?}: {why}"))
            }
        }
    }

    /// Every condition of [`Self::verify`].
    fn judge(
        &self,
        first: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        leaf: &Leaf,
        now: Wall,
    ) -> Result<(), String> {
        // With another key, the handshake has not proven that the client has the private key.
        if !is_provable(leaf) {
            return Err(OTHER_KEY.to_owned());
        }
        // Users are kept, so their size is limited.
        if first.len() > MAX_USER {
            return Err(format!("it is longer than {MAX_USER} bytes"));
        }
        let time = UnixTime::since_unix_epoch(Duration::from_nanos(now.nanos()));
        let (usage, signatures) = (CertificateUsage::Client, &self.signatures);
        let judged = self.authorities.verify(first, intermediates, usage, None, time, signatures);
        judged.map_err(|error| cause(&error))?;
        // `UnixTime` has whole seconds; `now` also has the part of a second, which counts, too.
        if leaf.not_after < now {
            return Err(EXPIRED.to_owned());
        }
        if leaf.subject.common_name.is_empty() {
            return Err("it has no common name, which is the user".to_owned());
        }
        Ok(())
    }

    /// A verifier for the handshake, with the names of this CA.
    pub(super) fn any_client(&self) -> AnyClient {
        AnyClient { ca_names: self.authorities.subjects(), signatures: self.signatures }
    }
}

const OTHER_KEY: &str = "its key cannot be verified; give the client one of RSA with 2048 bits or \
                         more, P-256, P-384 or Ed25519";
const OTHER_CA: &str = "no CA of clients has signed it; --client-ca-file names them";
const NOT_YET: &str = "it is not valid yet; is the clock right?";
const EXPIRED: &str = "it has expired";

/// Why a chain is refused.
fn cause(error: &CertificateError) -> String {
    use CertificateError as E;
    let words = match error {
        E::BadEncoding => "it is not as RFC 5280 says",
        E::UnknownIssuer => OTHER_CA,
        E::ExpiredContext { .. } => EXPIRED,
        E::NotValidYetContext { .. } => NOT_YET,
        E::BadSignature => {
            "its signature is not of the CA's key, or that is RSA with less than 2048 bits"
        }
        E::Other(other) => return other.to_string(),
        other => return other.to_string(),
    };
    words.to_owned()
}

/// The certificates among `candidates` whose key has signed the first certificate of `chain`; all
/// are PEM. The other candidates are not taken, because they may sign for more than the clients of
/// this cluster.
pub(super) fn issuers<'a>(chain: &[u8], candidates: impl Iterator<Item = &'a [u8]>) -> Option<Pem> {
    let first = [CertificateDer::pem_slice_iter(chain).next()?.ok()?];
    // Verified at the start of the certificate's validity: a wrong clock or an expired certificate
    // does not matter here.
    let then = Leaf::parse(&first[0])?.not_before;
    let candidates = candidates.flat_map(|text| CertificateDer::pem_slice_iter(without_mark(text)));
    let mut found: Vec<CertificateDer<'_>> = Vec::new();
    for candidate in candidates.flatten() {
        let mut ca = Authorities::empty();
        let is_usable = !found.contains(&candidate) && ca.add(candidate.clone()).is_ok();
        if is_usable && ClientCa::of(ca).verify(&first, then).is_ok() {
            found.push(candidate);
        }
    }
    let bytes: String = found.iter().map(|ca| x509::pem("CERTIFICATE", ca)).collect();
    let source = "the CA of the board's certificate".to_owned();
    (!found.is_empty()).then(|| Pem { file: None, source, bytes: bytes.into_bytes() })
}

/// Whether TLS can prove, with the public key of this certificate, that the client has the private
/// key. [`ClientCa::verify`] refuses a certificate with any other kind of key.
fn is_provable(leaf: &Leaf) -> bool {
    KeyKind::of_public(&leaf.public_key).is_some_and(|key| key.verifies())
}

/// Takes any certificate. Verifies that the client has the private key, if the kind of key allows
/// that. The names of the CA are a hint: a client with several certificates chooses by these names.
#[derive(Debug)]
pub(super) struct AnyClient {
    ca_names: Vec<DistinguishedName>,
    signatures: WebPkiSupportedAlgorithms,
}

impl AnyClient {
    /// Calls `verify` for a key that [`is_provable`]. For any other key nothing is proven, which is
    /// safe: [`ClientCa::verify`] refuses the certificate later.
    fn prove(
        certificate: &CertificateDer<'_>,
        verify: impl FnOnce() -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match Leaf::parse(certificate).is_some_and(|leaf| is_provable(&leaf)) {
            true => verify(),
            false => Ok(HandshakeSignatureValid::assertion()),
        }
    }
}

impl ClientCertVerifier for AnyClient {
    fn offer_client_auth(&self) -> bool {
        !self.ca_names.is_empty()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.ca_names
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::prove(certificate, || {
            verify_tls12_signature(message, certificate, signed, &self.signatures)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::prove(certificate, || {
            verify_tls13_signature(message, certificate, signed, &self.signatures)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes()
    }
}
