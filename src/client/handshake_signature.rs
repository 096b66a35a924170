//! Whether the peer of a handshake has the private key of its certificate.
//!
//! These functions replace those of rustls with the same names, which refuse a certificate of X.509
//! version 1. Only its public key is read here.

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerMisbehaved};
use webpki::RawPublicKeyEntity;

use crate::kube::x509::Leaf;

/// The public key of a certificate.
fn public_key(certificate: &CertificateDer<'_>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let leaf = Leaf::parse(certificate).ok_or(CertificateError::BadEncoding)?;
    Ok(leaf.public_key.into())
}

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

pub(crate) fn verify_tls13_signature(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signed: &DigitallySignedStruct,
    supported: &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error> {
    verify_tls13_signature_with_raw_key(message, &public_key(certificate)?, signed, supported)
}
