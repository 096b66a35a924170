//! The parts of a certificate that its signature is verified with, for forms that webpki refuses.

use super::x509::{
    BIT_STRING, BOOLEAN, DerReader, EXTENDED_KEY_USAGE, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING,
    SEQUENCE, context,
};

/// anyExtendedKeyUsage and id-kp-clientAuth (RFC 5280).
pub const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];
/// The usage of a client.
pub const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// What the signature of a certificate is verified with.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// TBSCertificate as a whole element: what is signed.
    pub body: &'a [u8],
    /// Contents of the issuer's Name.
    pub issuer: &'a [u8],
    /// Contents of the signature's AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
    /// Whether the extended usage, if there is one, includes that of a client.
    pub is_for_clients: bool,
}

impl<'a> Signed<'a> {
    /// Parses a DER certificate; `None` if it is not valid, and for one below version 3 that has
    /// extensions. An extension other than the extended usage is not interpreted.
    pub fn parse(certificate: &'a [u8]) -> Option<Self> {
        let mut outer = DerReader::new(certificate);
        let mut parts = outer.inside(SEQUENCE)?;
        let (tag, contents, body) = parts.any()?;
        let algorithm = parts.next(SEQUENCE)?;
        let [0, signature @ ..] = parts.next(BIT_STRING)? else {
            return None;
        };
        let is_whole = tag == SEQUENCE && outer.is_empty() && parts.is_empty();
        let mut contents = is_whole.then(|| DerReader::new(contents))?;
        let version = contents.inside(context(0)).and_then(|mut version| version.next(INTEGER));
        contents.next(INTEGER)?;
        // The one outside is not signed.
        let is_same = contents.next(SEQUENCE)? == algorithm;
        let issuer = is_same.then(|| contents.next(SEQUENCE)).flatten()?;
        let _validity_subject_and_key =
            (contents.next(SEQUENCE)?, contents.next(SEQUENCE)?, contents.next(SEQUENCE)?);
        let is_for_clients = match (version, contents.is_empty()) {
            (_, true) => true,
            (Some(&[2]), false) => {
                let extensions = contents.inside(context(3))?.inside(SEQUENCE)?;
                contents.is_empty().then(|| is_for_clients(extensions)).flatten()?
            }
            _ => return None,
        };
        Some(Self { body, issuer, algorithm, signature, is_for_clients })
    }
}

/// Whether the extended usage among the extensions, if there is one, includes that of a client.
fn is_for_clients(mut extensions: DerReader<'_>) -> Option<bool> {
    let mut is_for_clients = true;
    while !extensions.is_empty() {
        let mut extension = extensions.inside(SEQUENCE)?;
        if extension.next(OBJECT_IDENTIFIER)? != EXTENDED_KEY_USAGE {
            continue;
        }
        let _is_critical = extension.next(BOOLEAN);
        let mut usages = extension.inside(OCTET_STRING)?.inside(SEQUENCE)?;
        let mut is_found = false;
        while !usages.is_empty() {
            is_found |= [ANY_USAGE, CLIENT_AUTH].contains(&usages.next(OBJECT_IDENTIFIER)?);
        }
        is_for_clients &= is_found;
    }
    Some(is_for_clients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::x509;

    #[test]
    fn a_truncated_or_longer_certificate_is_none_and_a_changed_one_causes_no_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.self_signed(&key).unwrap();
        let whole = certificate.der().as_ref();
        assert!(!Signed::parse(whole).unwrap().is_for_clients);
        assert!(Signed::parse(&[whole, &[0]].concat()).is_none());
        let (cut, changed) = x509::damaged(whole);
        assert_eq!(cut.iter().find(|cut| Signed::parse(cut).is_some()), None);
        for changed in changed {
            let _ = Signed::parse(&changed);
        }
    }
}
