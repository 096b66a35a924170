//! rustls' provider of ring, without ChaCha20-Poly1305.
//!
//! It differs from `rustls::crypto::ring::default_provider` in the cipher suites alone. It is built
//! from parts, because the linker drops code only if no table names it.
//!
//! Each server that speaks TLS 1.3 has AES-128-GCM (RFC 8446, section 9.1). Go always offers it:
//! its list of cipher suites, the API server's `--tls-cipher-suites`, is for TLS 1.2. A processor
//! without AES instructions encrypts slower with AES-GCM, but a
//! renewal has less than 2 KB, and ring's code without these instructions takes constant time too.

use std::sync::Arc;

use ring::rand::SystemRandom;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
    verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer,
};
use rustls::sign::SigningKey;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme};
use webpki::{RawPublicKeyEntity, ring as verify};
use zeroize::Zeroizing;

use crate::kube::x509::Leaf;

/// The provider. Its key exchanges and signatures are those of rustls' provider.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_256_GCM_SHA384,
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ],
        kx_groups: vec![kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        signature_verification_algorithms: SIGNATURES,
        secure_random: &Ring,
        key_provider: &Ring,
    }
}

/// `all` verifies certificates, `mapping` the handshake. TLS 1.2 does not bind the curve to the
/// scheme.
pub(crate) const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[
        verify::ECDSA_P256_SHA256,
        verify::ECDSA_P256_SHA384,
        verify::ECDSA_P384_SHA256,
        verify::ECDSA_P384_SHA384,
        verify::ED25519,
        verify::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
        verify::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
        verify::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
        verify::RSA_PKCS1_2048_8192_SHA256,
        verify::RSA_PKCS1_2048_8192_SHA384,
        verify::RSA_PKCS1_2048_8192_SHA512,
        verify::RSA_PKCS1_2048_8192_SHA256_ABSENT_PARAMS,
        verify::RSA_PKCS1_2048_8192_SHA384_ABSENT_PARAMS,
        verify::RSA_PKCS1_2048_8192_SHA512_ABSENT_PARAMS,
    ],
    mapping: &[
        (
            SignatureScheme::ECDSA_NISTP384_SHA384,
            &[verify::ECDSA_P384_SHA384, verify::ECDSA_P256_SHA384],
        ),
        (
            SignatureScheme::ECDSA_NISTP256_SHA256,
            &[verify::ECDSA_P256_SHA256, verify::ECDSA_P384_SHA256],
        ),
        (SignatureScheme::ED25519, &[verify::ED25519]),
        (SignatureScheme::RSA_PSS_SHA512, &[verify::RSA_PSS_2048_8192_SHA512_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA384, &[verify::RSA_PSS_2048_8192_SHA384_LEGACY_KEY]),
        (SignatureScheme::RSA_PSS_SHA256, &[verify::RSA_PSS_2048_8192_SHA256_LEGACY_KEY]),
        (SignatureScheme::RSA_PKCS1_SHA512, &[verify::RSA_PKCS1_2048_8192_SHA512]),
        (SignatureScheme::RSA_PKCS1_SHA384, &[verify::RSA_PKCS1_2048_8192_SHA384]),
        (SignatureScheme::RSA_PKCS1_SHA256, &[verify::RSA_PKCS1_2048_8192_SHA256]),
    ],
};

/// Whether the peer signed `message` with the key of its certificate. Only the key of it is read:
/// rustls' functions for certificates refuse version 1. `is_signed` takes the key.
fn proven(
    certificate: &CertificateDer<'_>,
    is_signed: impl FnOnce(&SubjectPublicKeyInfoDer<'_>) -> Result<HandshakeSignatureValid, Error>,
) -> Result<HandshakeSignatureValid, Error> {
    let leaf = Leaf::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    is_signed(&leaf.public_key.into())
}

/// As rustls' `verify_tls12_signature`.
pub(crate) fn prove_tls12(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    proven(certificate, |key| {
        let mut offered = SIGNATURES.mapping.iter();
        let (_, algorithms) = offered
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        let bad = || Error::from(CertificateError::BadSignature);
        let key = RawPublicKeyEntity::try_from(key).map_err(|_| bad())?;
        let is_signed = |algorithm: &&dyn SignatureVerificationAlgorithm| {
            key.verify_signature(*algorithm, message, signed.signature()).is_ok()
        };
        let found = algorithms.iter().find(|algorithm| is_signed(algorithm));
        found.map(|_| HandshakeSignatureValid::assertion()).ok_or_else(bad)
    })
}

/// As rustls' `verify_tls13_signature`.
pub(crate) fn prove_tls13(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    proven(certificate, |key| {
        verify_tls13_signature_with_raw_key(message, key, signed, &SIGNATURES)
    })
}

#[derive(Debug)]
struct Ring;

impl SecureRandom for Ring {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        ring::rand::SecureRandom::fill(&SystemRandom::new(), bytes).map_err(|_| GetRandomFailed)
    }
}

impl KeyProvider for Ring {
    fn load_private_key(&self, key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, Error> {
        sign::any_supported_type(&Zeroizing::new(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only ChaCha20 is missing. An update of rustls that adds an algorithm fails here.
    #[test]
    fn it_is_the_default_provider_without_chacha20() {
        let (ours, theirs) = (provider(), rustls::crypto::ring::default_provider());
        let mut suites = theirs.cipher_suites;
        suites.retain(|suite| !format!("{suite:?}").contains("CHACHA20"));
        assert_eq!(ours.cipher_suites, suites);
        assert_eq!(suites.len(), 6);
        let groups = |groups: &[&dyn rustls::crypto::SupportedKxGroup]| -> Vec<_> {
            groups.iter().map(|group| group.name()).collect()
        };
        assert_eq!(groups(&ours.kx_groups), groups(&theirs.kx_groups));
        let (ours, theirs) = (SIGNATURES, theirs.signature_verification_algorithms);
        let names = |algorithms: &WebPkiSupportedAlgorithms| format!("{:?}", algorithms.all);
        assert_eq!(names(&ours), names(&theirs));
        assert_eq!(ours.all.len(), theirs.all.len());
        let mapping = |algorithms: &WebPkiSupportedAlgorithms| format!("{:?}", algorithms.mapping);
        assert_eq!(mapping(&ours), mapping(&theirs));
    }
}
