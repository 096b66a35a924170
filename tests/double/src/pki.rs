//! Certificate authorities and the certificates that tests need: good, expired, not yet valid,
//! and signed by somebody else.

use crate::der::{self, ALT_NAMES, Certificate, CertificateRequest, Subject, elements, sequence};
use crate::random;
use crate::time;
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PublicKeyData, SerialNumber, SignatureAlgorithm, SigningKey as _, date_time_ymd,
};
use ring::digest::{Digest, SHA256, digest};
use ring::hmac::{self, Tag};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, alg_id};
use std::time::Duration;
use yasna::{construct_der, parse_der};

/// When a certificate is valid, in seconds relative to now.
#[derive(Debug, Clone, Copy)]
pub struct Validity {
    /// Start, relative to now.
    pub from: i64,
    /// End, relative to now.
    pub until: i64,
}

impl Validity {
    /// An hour ago until next year.
    pub const VALID: Self = Self { from: -3600, until: 365 * 86400 };
    /// Ended an hour ago.
    pub const EXPIRED: Self = Self { from: -7200, until: -3600 };
    /// Begins in an hour.
    pub const NOT_YET: Self = Self { from: 3600, until: 7200 };

    fn apply(self, params: &mut CertificateParams) {
        let at = |offset: i64| {
            let now = time::since_1970().as_secs();
            let seconds = now.checked_add_signed(offset).expect("a time after 1970");
            date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds)
        };
        params.not_before = at(self.from);
        params.not_after = at(self.until);
    }
}

/// A certificate with its private key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate (PEM).
    pub cert_pem: String,
    /// The private key (PKCS#8 PEM).
    pub key_pem: String,
    pub(crate) cert_der: CertificateDer<'static>,
    pub(crate) key_der: Vec<u8>,
}

impl Identity {
    /// The private key as Go's `x509.MarshalECPrivateKey` and PEM write it.
    pub(crate) fn ec_key_pem(&self) -> String {
        let key = || {
            let [_version, algorithm, inner] = elements(&self.key_der)?.try_into().ok()?;
            let inner = parse_der(&inner, |octets| octets.read_bytes()).ok()?;
            let [version, secret, public] = elements(&inner)?.try_into().ok()?;
            // PKCS#8 has the curve outside.
            let curve = elements(&algorithm)?.pop()?;
            let tag = yasna::Tag::context(0);
            let curve = construct_der(|w| w.write_tagged(tag, |w| w.write_der(&curve)));
            Some(sequence(&[version, secret, curve, public]))
        };
        pem("EC PRIVATE KEY", key().expect("a key of rcgen is PKCS#8 with its public key"))
    }

    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key_der.clone().into())
    }
}

/// A certificate authority.
pub struct Authority {
    common_name: String,
    issuer: Issuer<'static, KeyPair>,
    cert_pem: String,
    cert_der: CertificateDer<'static>,
    /// Seconds since 1970.
    not_before: i64,
}

impl Authority {
    /// A new authority with its own key.
    #[must_use]
    pub fn new(common_name: &str) -> Self {
        let key = KeyPair::generate().expect("a key for the authority");
        Self::with_key(common_name, key, Validity { from: -86400, until: 3650 * 86400 })
    }

    /// The same subject and key in a certificate with another serial number and validity.
    #[must_use]
    pub fn renewed(&self, validity: Validity) -> Self {
        let key = KeyPair::from_pem(&self.key_pem()).expect("a key of rcgen");
        Self::with_key(&self.common_name, key, validity)
    }

    fn with_key(common_name: &str, key: KeyPair, validity: Validity) -> Self {
        let mut params = CertificateParams::default();
        params.serial_number = Some(serial_number());
        params.distinguished_name = name(common_name, &[""; 0]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        validity.apply(&mut params);
        let certificate = params.self_signed(&key).expect("a self-signed authority");
        Self {
            common_name: common_name.to_owned(),
            cert_pem: certificate.pem(),
            cert_der: certificate.der().clone(),
            not_before: params.not_before.unix_timestamp(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Since when the authority's certificate is valid, relative to now.
    pub(crate) fn begins(&self) -> i64 {
        self.not_before.saturating_sub_unsigned(time::since_1970().as_secs())
    }

    /// The authority's certificate (PEM).
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.cert_pem
    }

    /// `sha256:` and the digest of the public key, as `--discovery-token-ca-cert-hash` has it.
    #[must_use]
    pub fn pin(&self) -> String {
        let key = self.issuer.key().subject_public_key_info();
        format!("sha256:{}", hex(sha256(&key).as_ref()))
    }

    /// The authority's private key (PKCS#8 PEM), for another signer.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The authority's certificate (DER).
    #[must_use]
    pub fn der_bytes(&self) -> &[u8] {
        &self.cert_der
    }

    pub(crate) fn der(&self) -> &CertificateDer<'static> {
        &self.cert_der
    }

    /// A client certificate.
    #[must_use]
    pub fn client(
        &self,
        common_name: &str,
        organizations: &[&str],
        validity: Validity,
    ) -> Identity {
        self.issue(&params(name(common_name, organizations), &[], validity))
    }

    /// The same certificate in X.509 version 1, which has no extensions, as OpenSSL signs it
    /// without an `-extfile`.
    #[must_use]
    pub fn version_1(&self, identity: &Identity) -> Identity {
        let whole = Certificate::parse(&identity.cert_der).expect("a certificate");
        let info = sequence(&whole.fields);
        let signature = self.issuer.key().sign(&info).expect("a signature");
        let bits = construct_der(|w| w.write_bitvec_bytes(&signature, 8 * signature.len()));
        let cert_der = sequence(&[info, whole.algorithm, bits]);
        Identity {
            cert_pem: pem("CERTIFICATE", cert_der.clone()),
            cert_der: cert_der.into(),
            ..identity.clone()
        }
    }

    /// A server certificate for these names and addresses.
    #[must_use]
    pub fn server(&self, names: &[&str], validity: Validity) -> Identity {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        self.issue(&params(name("kube-apiserver", &[""; 0]), &names, validity))
    }

    /// The same with a key of P-384.
    #[must_use]
    pub fn server_with_p384(&self, names: &[&str], validity: Validity) -> Identity {
        let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).expect("a key");
        self.issue_for(key, &params(name("kube-apiserver", &[""; 0]), &names, validity))
    }

    /// A certificate with a new key.
    pub(crate) fn issue(&self, params: &CertificateParams) -> Identity {
        self.issue_for(KeyPair::generate().expect("a key"), params)
    }

    fn issue_for(&self, key: KeyPair, params: &CertificateParams) -> Identity {
        let certificate = params.signed_by(&key, &self.issuer).expect("a signed certificate");
        Identity {
            cert_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
            cert_der: certificate.der().clone(),
            key_der: key.serialize_der(),
        }
    }

    /// Signs a PKCS#10 request (ECDSA P-256) as the signers of kubelets' certificates do: subject
    /// and alternative names are copied, everything else is the signer's.
    pub(crate) fn sign_request(
        &self,
        request: &[u8],
        validity: Validity,
    ) -> Result<String, String> {
        let parsed = CertificateRequest::parse(request).ok_or("not a PKCS#10 request")?;
        let Subject { common_name, organizations } = &parsed.subject;
        let mut params = params(name(common_name, organizations), &[], validity);
        if let Some(names) = parsed.alt_names.filter(|names| !names.is_empty()) {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            let names = CustomExtension::from_oid_content(&ALT_NAMES, names);
            params.custom_extensions.push(names);
        }
        self.sign_key(request, params)
    }

    /// Signs the key of a PKCS#10 request, whatever its subject is.
    pub(crate) fn sign_key(
        &self,
        request: &[u8],
        mut params: CertificateParams,
    ) -> Result<String, String> {
        let parsed = CertificateRequest::parse(request).ok_or("not a PKCS#10 request")?;
        check_signature(&parsed)?;
        params.use_authority_key_identifier_extension = true;
        let key = RequestedKey(parsed.key);
        let certificate = params.signed_by(&key, &self.issuer).map_err(|e| e.to_string())?;
        Ok(certificate.pem())
    }
}

/// For a client, or, with these names and addresses, for a server.
fn params(
    subject: DistinguishedName,
    server_names: &[String],
    validity: Validity,
) -> CertificateParams {
    let mut params = CertificateParams::new(server_names).expect("valid server names");
    params.serial_number = Some(serial_number());
    params.distinguished_name = subject;
    params.extended_key_usages = vec![match server_names {
        [] => ExtendedKeyUsagePurpose::ClientAuth,
        _ => ExtendedKeyUsagePurpose::ServerAuth,
    }];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    validity.apply(&mut params);
    params
}

/// Always 20 bytes long.
fn serial_number() -> SerialNumber {
    let mut bytes = random::bytes::<20>();
    bytes[0] = bytes[0] & 0x3f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// What k3s signs.
pub(crate) fn k3s_params(
    common_name: &str,
    organizations: &[&str],
    server_names: &[String],
    validity: Validity,
) -> CertificateParams {
    let mut params = params(name(common_name, organizations), server_names, validity);
    params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    params
}

/// Whether a request is signed with its own key; only P-256 is known here, as the kubelet uses.
fn check_signature(request: &CertificateRequest) -> Result<(), String> {
    if request.key_algorithm.get(2..) != Some(alg_id::ECDSA_P256.as_ref()) {
        return Err("the request's key is not ECDSA P-256".to_owned());
    }
    if is_signed(&request.info, &request.signature, &request.key) {
        Ok(())
    } else {
        Err("the request's signature does not match its key".to_owned())
    }
}

/// Whether a P-256 key has signed that.
fn is_signed(info: &[u8], signature: &[u8], key: &[u8]) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    provider
        .signature_verification_algorithms
        .all
        .iter()
        .filter(|algorithm| algorithm.public_key_alg_id() == alg_id::ECDSA_P256)
        .any(|algorithm| algorithm.verify_signature(key, info, signature).is_ok())
}

/// Whether `authority` signed a client certificate of version 1 that is valid now, which Go's
/// verifier takes and webpki's does not.
pub(crate) fn is_version_1_of(authority: &[u8], own: &[u8]) -> Option<bool> {
    let (authority, own) = (Certificate::parse(authority)?, Certificate::parse(own)?);
    Some(
        own.is_version_1
            && own.fields[2] == authority.fields[4]
            && der::is_within(&own.validity()?, &time::generalized())
            && is_signed(&own.info, &own.signature, &authority.key_bits()?),
    )
}

fn pem(label: &str, der: Vec<u8>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(label, der), config)
}

struct RequestedKey(Vec<u8>);

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

fn name(common_name: &str, organizations: &[impl AsRef<str>]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    // rcgen keeps one value per type; more organisations are not needed by a node
    if let Some(organization) = organizations.first() {
        name.push(DnType::OrganizationName, organization.as_ref());
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes)
}

/// Two lower-case hexadecimal digits for each byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

/// HMAC with SHA-256.
pub(crate) fn hmac_sha256(key: &[u8], text: &[u8]) -> Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text)
}
