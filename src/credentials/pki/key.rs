//! A private key and the request that it signs.
//!
//! A new key is ECDSA P-256 in PKCS#8, which client-go reads too. An existing key may have any type
//! and form that rustls signs with, and keeps its form: a kubelet writes `EC PRIVATE KEY` (SEC 1).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{self, SHA512_256};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::{AlgorithmIdentifier, PrivateKeyDer, alg_id};
use rustls::sign::SigningKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use zeroize::{Zeroize as _, Zeroizing};

use crate::client::tls::private_key;
use crate::kube::keys::UNUSABLE;
use crate::kube::text::Fault;
use crate::kube::x509::{self, CertificatePurpose, RequestInfo, SigningRequest, Subject, element};

/// Signature schemes, and their identifiers in a request.
const ALGORITHMS: [(SignatureScheme, AlgorithmIdentifier); 4] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ED25519, alg_id::ED25519),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
];

/// A private key. `Debug` does not print it; its text is zeroed on drop.
pub struct Key {
    pem: Zeroizing<String>,
    signing: Arc<dyn SigningKey>,
    /// SubjectPublicKeyInfo, DER.
    public: Vec<u8>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// Generates a key.
    pub fn generate() -> Result<Self, Fault> {
        let no_random = |_| "no random numbers for a key".to_owned();
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(no_random)?;
        Self::new(PrivateKeyDer::Pkcs8(document.as_ref().to_vec().into()))
    }

    /// The first private key in PEM text.
    pub fn of_pem(text: &[u8]) -> Result<Self, Fault> {
        Self::new(private_key(text)?)
    }

    fn new(mut key: PrivateKeyDer<'static>) -> Result<Self, Fault> {
        let label = match &key {
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        let pem = Zeroizing::new(x509::pem(label, key.secret_der()));
        let signing = rustls::crypto::ring::sign::any_supported_type(&key);
        key.zeroize();
        // The library's error may quote the key.
        let signing = signing.map_err(|_| UNUSABLE)?;
        let public = signing.public_key().ok_or("the private key has no public key")?;
        Ok(Self { public: public.to_vec(), pem, signing })
    }

    /// The key as PEM text.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The signing request (PKCS#10, RFC 2986) for `subject` and this key.
    pub fn request(
        &self,
        subject: Subject,
        purpose: CertificatePurpose,
    ) -> Result<SigningRequest, Fault> {
        let info = RequestInfo { subject, public_key: self.public.clone() };
        let der = self.signed(|_| info.encode())?;
        let mut usages = vec!["digital signature", purpose.usage];
        if self.signing.algorithm() == SignatureAlgorithm::RSA {
            usages.push("key encipherment");
        }
        Ok(SigningRequest { name: name(&info, &usages), der, purpose, usages, info })
    }

    /// A server's certificate that this key signs itself, PEM. It proves nothing: it is for clients
    /// that do not verify.
    pub fn self_signed(&self, subject: Subject) -> Result<String, Fault> {
        let info = RequestInfo { subject, public_key: self.public.clone() };
        let der = self.signed(|algorithm| info.self_signed(algorithm))?;
        Ok(x509::pem("CERTIFICATE", &der))
    }

    /// Signs what `content` returns for the AlgorithmIdentifier of this key's signatures. Returns
    /// the content, the algorithm and the signature, DER.
    fn signed(&self, content: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<Vec<u8>, Fault> {
        let signer =
            |(scheme, algorithm)| Some((self.signing.choose_scheme(&[scheme])?, algorithm));
        let found = ALGORITHMS.into_iter().find_map(signer);
        let (signer, algorithm) = found.ok_or("the key type is not supported")?;
        let algorithm = element(x509::SEQUENCE, &[algorithm.as_ref()]);
        let content = content(&algorithm);
        let signature = signer.sign(&content).map_err(|e| format!("signing: {e}"))?;
        let signature = element(x509::BIT_STRING, &[&[0], &signature]);
        Ok(element(x509::SEQUENCE, &[&content, &algorithm, &signature]))
    }
}

/// The same request always has the same name, so a restarted board finds its request again.
/// Upstream: `digestedName` in `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
fn name(info: &RequestInfo, usages: &[&str]) -> String {
    let mut digest = digest::Context::new(&SHA512_256);
    let subject = &info.subject;
    let mut add = |field: &[u8]| {
        digest.update(URL_SAFE_NO_PAD.encode(field).as_bytes());
        digest.update(b"|");
    };
    add(&info.public_key);
    add(subject.common_name.as_bytes());
    subject.organizations.iter().for_each(|name| add(name.as_bytes()));
    usages.iter().for_each(|usage| add(usage.as_bytes()));
    // Upstream's requests with such a name have no alternative names.
    subject.alt_names.iter().for_each(|name| add(&name.encode()));
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finish()))
}
