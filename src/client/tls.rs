//! The TLS configuration of an [`ApiConfig`].
//!
//! TLS 1.2 and 1.3 with the algorithms of rustls' provider of ring. The server's certificate is
//! verified only against the configured CA, or against the system's roots where none is configured.
//! Only `insecure-skip-tls-verify` turns verification off. `VerifiedAt` is the time that counts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme,
};
use webpki::{RawPublicKeyEntity, anchor_from_trusted_cert};
use zeroize::Zeroize as _;

use crate::kube::keys::{self, KeyKind, OTHER_KEY, UNUSABLE};
use crate::kube::text::Fault;
use crate::kube::x509::Leaf;
use crate::os::clock;
use crate::os::guard;
use crate::os::guard::read;

use super::api_config::{ApiConfig, ClientCertificate, Pem};
use super::authorities::{Authorities, CertificateUsage};
use super::failure::{SUPPORTED_KEYS, cause_of_certificate};

/// TLS sessions to keep; rustls rounds this to one server with up to eight tickets.
const SESSIONS: usize = 2;

/// Root certificates of the distributions: Go's list, in Go's order.
pub(crate) const SYSTEM_ROOTS: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Checks CA, client certificate and key.
pub fn client_config(config: &ApiConfig) -> Result<Arc<ClientConfig>, Fault> {
    let provider = Arc::new(ring::default_provider());
    let authorities = match (&config.ca, config.insecure) {
        (_, true) => None,
        (Some(ca), false) => Some(roots(ca)?),
        (None, false) => Some(system_roots()?),
    };
    let signatures = provider.signature_verification_algorithms;
    let builder = ClientConfig::builder_with_details(provider, Arc::new(VerifiedAt))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|e| format!("tls: {e}"))?;
    let verifier = Arc::new(Verifier { authorities, signatures });
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut client = builder.with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    client.resumption = Resumption::in_memory_sessions(SESSIONS);
    if let Some(certificate) = &config.certificate {
        let (certified, _) = certified(certificate)?;
        client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified));
    }
    Ok(Arc::new(client))
}

/// The first certificate of the chain, if TLS can use it with its key.
pub fn check_certificate(certificate: &ClientCertificate) -> Result<Leaf, Fault> {
    certified(certificate).map(|(_, leaf)| leaf)
}

/// A certificate with its key, for TLS, and the first one of its chain.
pub(crate) fn certified(certificate: &ClientCertificate) -> Result<(CertifiedKey, Leaf), Fault> {
    let [chain, key] = [&certificate.chain, &certificate.key].map(|pem| &pem.source);
    let certificates = certificates(&certificate.chain)?;
    let private = private_key(&certificate.key.bytes).map_err(|why| why.at(key))?;
    let leaf = certificates.first().and_then(|leaf| Leaf::parse(leaf));
    let leaf = leaf.ok_or_else(|| format!("{chain}: not a usable certificate: not X.509"))?;
    let signing = ring::default_provider().key_provider.load_private_key(private);
    let signing = signing.map_err(|_| format!("{key}: {UNUSABLE}"))?;
    if signing.public_key().as_deref() != Some(leaf.public_key.as_slice()) {
        let line = format!("{key}: the key does not belong to the certificate in {chain}");
        return Err(line.into());
    }
    // The rest of it is for the other side to judge. `CertifiedKey::from_der` would parse it with
    // webpki, which refuses version 1.
    Ok((CertifiedKey::new(certificates, signing), leaf))
}

/// The time at which the certificate of the other side must be valid: that of the board's clock, as
/// [`clock::of_certificates`] takes it. rustls' own provider reads the clock that [`clock::wall`]
/// says not to use.
#[derive(Debug)]
pub(crate) struct VerifiedAt;

impl TimeProvider for VerifiedAt {
    fn current_time(&self) -> Option<UnixTime> {
        let time = clock::of_certificates(clock::wall());
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(time.nanos())))
    }
}

/// Verifies the certificate of a server, and that the server has its key. Without `authorities`, as
/// `insecure-skip-tls-verify` says, any certificate counts.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(crate) authorities: Option<Authorities>,
    pub(crate) signatures: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        time: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(authorities) = &self.authorities {
            let (usage, name) = (CertificateUsage::Server, Some(name));
            authorities.verify(first, others, usage, name, time, &self.signatures)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.signatures)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.signatures)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.supported_schemes()
    }
}

/// The public key of a certificate.
fn public_key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let leaf = Leaf::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(leaf.public_key.into())
}

/// Whether the peer of a handshake has the private key of its certificate. The functions of rustls
/// with these names refuse a certificate of X.509 version 1; here only its public key is read.
///
/// A scheme of TLS 1.2 does not say the curve, so each algorithm of the scheme is tried.
pub(crate) fn verify_tls12_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    supported: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    let bad = || Error::from(CertificateError::BadSignature);
    let key = public_key(certificate)?;
    let key = RawPublicKeyEntity::try_from(&key).map_err(|_| bad())?;
    let (_, algorithms) = supported
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == signed.scheme)
        .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
    let is_signed = algorithms
        .iter()
        .any(|algorithm| key.verify_signature(*algorithm, message, signed.signature()).is_ok());
    if is_signed { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad()) }
}

/// As [`verify_tls12_signature`].
pub(crate) fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    supported: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(message, &public_key(certificate)?, signed, supported)
}

/// The name that the server's certificate must have. An IP address is not sent as SNI.
pub fn server_name(config: &ApiConfig) -> Result<ServerName<'static>, Fault> {
    let name = config.tls_server_name.as_ref().unwrap_or(&config.endpoint.host);
    ServerName::try_from(name.clone())
        .map_err(|_| format!("tls-server-name: {name:?} is not a host name").into())
}

/// A PEM text without the byte order mark of Windows' editors: behind this mark, the first BEGIN
/// would not be at the start of a line.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The CA certificates in a PEM text. A broken one among others is skipped and logged.
pub(crate) fn roots(ca: &Pem) -> Result<Authorities, Fault> {
    let (mut roots, mut broken_one) = (Authorities::empty(), None);
    let text = without_mark(&ca.bytes);
    for certificate in CertificateDer::pem_slice_iter(text) {
        let added = certificate.map_err(|e| broken(text, &e)).and_then(|certificate| {
            let key = Leaf::parse(&certificate).and_then(|ca| KeyKind::of_public(&ca.public_key));
            let added = match key.filter(|key| !key.verifies()) {
                Some(key) => Err(Fault::new(format!("its key is {key}"), SUPPORTED_KEYS)),
                None => roots.add(certificate).map_err(|e| match e {
                    Error::InvalidCertificate(e) => cause_of_certificate(&e),
                    e => e.to_string().into(),
                }),
            };
            added.map_err(|why| why.at("not a usable CA certificate"))
        });
        broken_one = broken_one.or(added.err());
    }
    match (broken_one, roots.is_empty()) {
        (None, true) => Err(format!("{}: no certificate in it", ca.source).into()),
        (Some(why), true) => Err(why.at(&ca.source)),
        // Go skips a broken certificate, too.
        (skipped, false) => {
            log_skipped(&ca.source, skipped.as_ref());
            Ok(roots)
        }
    }
}

/// Logs why a CA certificate of `source` is skipped, unless the last line said the same: a search
/// for credentials reads the file again and again.
fn log_skipped(source: &str, why: Option<&Fault>) {
    thread_local! {
        static LAST: RefCell<BTreeMap<String, String>> = const { RefCell::new(BTreeMap::new()) };
    }
    LAST.with_borrow_mut(|last| match why.map(ToString::to_string) {
        Some(why) if last.get(source) != Some(&why) => {
            log::warn!("{source}: a broken certificate is skipped: {why}");
            last.insert(source.to_owned(), why);
        }
        Some(_) => {}
        None => drop(last.remove(source)),
    });
}

pub(crate) const NO_SYSTEM_ROOTS: &str = "this system has no root certificates";
pub(crate) const INSTALL_SYSTEM_ROOTS: &str = "install ca-certificates (OpenWrt: ca-bundle)";

/// The first of `paths`, as [`SYSTEM_ROOTS`], that exists.
pub(crate) fn system_bundle(paths: &[&'static str]) -> Option<&'static str> {
    paths.iter().copied().find(|path| guard::exists(Path::new(path)))
}

fn system_roots() -> Result<Authorities, Fault> {
    let bundle = system_bundle(&SYSTEM_ROOTS).ok_or_else(|| {
        Fault::new(
            format!("there is no certificate-authority, and {NO_SYSTEM_ROOTS}"),
            format!("{INSTALL_SYSTEM_ROOTS}, or add certificate-authority"),
        )
    })?;
    let bytes = read(Path::new(bundle)).map_err(|why| why.at(bundle))?;
    let mut roots = Authorities::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes).flatten() {
        // A root that cannot be parsed is skipped, as Go and OpenSSL do.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(format!("{bundle}: no usable certificate in it").into());
    }
    Ok(roots)
}

/// The name and the key of a CA, which identify it: a certificate that was renewed with both is of
/// the same CA. Bytes that are no certificate are returned unchanged.
pub(crate) fn name_and_key(ca: &CertificateDer<'_>) -> Vec<u8> {
    match anchor_from_trusted_cert(ca) {
        Ok(anchor) => [&*anchor.subject, &*anchor.subject_public_key_info].concat(),
        Err(_) => ca.to_vec(),
    }
}

pub(crate) fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.bytes).collect();
    match chain {
        Ok(chain) if chain.is_empty() => {
            Err(format!("{}: no certificate in it", pem.source).into())
        }
        Ok(chain) => Ok(chain),
        Err(e) => Err(broken(&pem.bytes, &e).at(&pem.source)),
    }
}

/// The first private key in PEM text. The error does not name the source.
pub(crate) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, Fault> {
    let mut labelled = PrivateKeyDer::from_pem_slice(text).map_err(|e| broken(text, &e))?;
    let key = keys::private_key(labelled.secret_der().to_vec());
    labelled.zeroize();
    key
}

/// Replaces the library's texts, which may quote lines of a private key.
fn broken(text: &[u8], error: &PemError) -> Fault {
    let text = String::from_utf8_lossy(text);
    let has = |kind: &&str| text.contains(&format!("-----BEGIN {kind} PRIVATE KEY-----"));
    match error {
        // Only where a private key is looked for.
        PemError::NoItemsFound if !has(&"ENCRYPTED") => {
            match ["DSA", "OPENSSH"].into_iter().find(has) {
                Some(kind) => {
                    Fault::new(format!("the key is of {kind}, which is not supported"), OTHER_KEY)
                }
                None => "no private key in it".into(),
            }
        }
        // PKCS#8, and the header of the older form, whose section is not base64.
        _ if text.contains("ENCRYPTED") => {
            Fault::new("the key is encrypted", "decrypt it: openssl pkey -in KEY -out NEW")
        }
        PemError::MissingSectionEnd { .. } => "not PEM: a section has no END line".into(),
        PemError::IllegalSectionStart { .. } => "not PEM: a BEGIN line is broken".into(),
        PemError::Base64Decode(_) => "not PEM: a section is not base64".into(),
        _ => "not PEM".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bundle_that_exists_counts() {
        let missing = "/no/such/bundle.crt";
        assert_eq!(system_bundle(&[missing, "/proc/version", "/proc/stat"]), Some("/proc/version"));
        assert_eq!(system_bundle(&[missing]), None);
    }
}
