//! A private key and the request that it signs.
//!
//! A new key is ECDSA P-256; an existing key may have any type that rustls signs with. In files a
//! key is PEM with the label that a kubelet writes, `EC PRIVATE KEY`.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{self, SHA512_256};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{AlgorithmIdentifier, PrivateKeyDer, alg_id};
use rustls::sign::SigningKey;
use rustls::{SignatureAlgorithm, SignatureScheme};
use zeroize::{Zeroize, Zeroizing};

use crate::kube::der::{self, Reader, element};
use crate::kube::x509::{self, SigningRequest, Subject, Wanted};

/// Object identifier of prime256v1.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

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
    pub fn generate() -> Result<Self, String> {
        let no_random = |_| "no random numbers for a key".to_owned();
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            .map_err(no_random)?;
        let sec1 = sec1(document.as_ref()).ok_or("ring returned an unknown key format")?;
        Self::new(
            "EC PRIVATE KEY",
            &sec1,
            PrivateKeyDer::Sec1(sec1.to_vec().into()),
        )
    }

    /// The first private key in PEM text.
    pub fn of_pem(text: &[u8]) -> Result<Self, String> {
        let key = PrivateKeyDer::from_pem_slice(text).map_err(|_| "no private key in it")?;
        let label = match &key {
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        let der = Zeroizing::new(key.secret_der().to_vec());
        Self::new(label, &der, key)
    }

    fn new(label: &str, der: &[u8], mut key: PrivateKeyDer<'static>) -> Result<Self, String> {
        let signing = rustls::crypto::ring::sign::any_supported_type(&key);
        key.zeroize();
        // The library's error may quote the key.
        let signing = signing.map_err(|_| "not a usable private key")?;
        let public = signing
            .public_key()
            .ok_or("the private key has no public key")?;
        Ok(Self {
            public: public.to_vec(),
            pem: Zeroizing::new(x509::pem(label, der)),
            signing,
        })
    }

    /// The key as PEM text.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The signing request (PKCS#10, RFC 2986) for `subject` and this key.
    pub fn request(&self, subject: Subject) -> Result<SigningRequest, String> {
        let schemes = ALGORITHMS.map(|(scheme, _)| scheme);
        let signer = self.signing.choose_scheme(&schemes);
        let signer = signer.ok_or("the key type is not supported")?;
        let (_, algorithm) = ALGORITHMS
            .iter()
            .find(|(scheme, _)| *scheme == signer.scheme())
            .ok_or("the key type is not supported")?;
        let wanted = Wanted {
            subject,
            public_key: self.public.clone(),
        };
        let info = wanted.encode();
        let signature = signer.sign(&info).map_err(|e| format!("signing: {e}"))?;
        let request = element(
            der::SEQUENCE,
            &[
                &info,
                &element(der::SEQUENCE, &[algorithm.as_ref()]),
                &element(der::BIT_STRING, &[&[0], &signature]),
            ],
        );
        let mut usages = vec!["digital signature", "client auth"];
        if self.signing.algorithm() == SignatureAlgorithm::RSA {
            usages.push("key encipherment");
        }
        Ok(SigningRequest {
            name: name(&wanted, &usages),
            der: request,
            usages,
            wanted,
        })
    }
}

/// Converts ring's PKCS#8 to ECPrivateKey (RFC 5915) with all optional fields, as Go and OpenSSL
/// write it.
fn sec1(pkcs8: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let mut outer = Reader::new(pkcs8).inside(der::SEQUENCE)?;
    outer.next(der::INTEGER)?;
    outer.next(der::SEQUENCE)?;
    let mut inner = outer.inside(der::OCTET_STRING)?.inside(der::SEQUENCE)?;
    inner.next(der::INTEGER)?;
    let private = inner.next(der::OCTET_STRING)?;
    let public = inner.next(der::context(1))?;
    let curve = element(der::OBJECT_IDENTIFIER, &[P256]);
    let private = Zeroizing::new(element(der::OCTET_STRING, &[private]));
    Some(Zeroizing::new(element(
        der::SEQUENCE,
        &[
            &element(der::INTEGER, &[&[1]]),
            &private,
            &element(der::context(0), &[&curve]),
            &element(der::context(1), &[public]),
        ],
    )))
}

/// The same request always has the same name, so a restarted board finds its request again.
/// Upstream: `digestedName` in `pkg/kubelet/certificate/bootstrap/bootstrap.go`.
fn name(wanted: &Wanted, usages: &[&str]) -> String {
    let mut digest = digest::Context::new(&SHA512_256);
    let subject = &wanted.subject;
    let texts = [&subject.common_name].into_iter();
    let texts = texts.chain(&subject.organizations).map(String::as_bytes);
    let usages = usages.iter().map(|usage| usage.as_bytes());
    for field in [wanted.public_key.as_slice()]
        .into_iter()
        .chain(texts)
        .chain(usages)
    {
        digest.update(URL_SAFE_NO_PAD.encode(field).as_bytes());
        digest.update(b"|");
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(digest.finish()))
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, KeyPair as _, UnparsedPublicKey};

    use super::*;

    /// The base point of P-256, and the order of its group minus one: FIPS 186-5.
    const BASE: [&str; 2] = [
        "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
    ];
    const LAST: &str = "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632550";

    fn bytes(texts: &[&str]) -> Vec<u8> {
        let text = texts.concat();
        let digits = text.as_bytes().chunks(2);
        let digits = digits.map(|two| std::str::from_utf8(two).unwrap());
        digits
            .map(|two| u8::from_str_radix(two, 16).unwrap())
            .collect()
    }

    /// Static binaries multiply the base point without ring's table (cross/p256.h).
    #[test]
    fn public_keys_and_signatures_of_p256_are_those_of_the_standards() {
        let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
        let random = SystemRandom::new();
        // ring computes the public key and compares it.
        let of = |private: &str, public: [&str; 2]| {
            let public = bytes(&["04", public[0], public[1]]);
            let private = bytes(&[private]);
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, &private, &public, &random)
        };
        // RFC 6979, A.2.5.
        let (private, public) = (
            "c9afa9d845ba75166b5c215767b1d6934e50c3db36e89b127b8a622b120f6721",
            [
                "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6",
                "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
            ],
        );
        let two = [
            "7cf27b188d034f7e8a52380304b51ac3c08969e277f21b35a60b48fc47669978",
            "07775510db8ed040293d9ac69f7430dbba7dade63ce982299e04b79d227873d1",
        ];
        let negative = "b01cbd1c01e58065711814b583f061e9d431cca994cea1313449bf97c840ae0a";
        let key = of(private, public).unwrap();
        of(&format!("{:064x}", 1), BASE).unwrap();
        of(&format!("{:064x}", 2), two).unwrap();
        of(LAST, [BASE[0], negative]).unwrap();
        assert!(of(private, BASE).is_err());

        let verifier = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key());
        let signature = bytes(&[
            "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
            "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
        ]);
        verifier.verify(b"sample", &signature).unwrap();
        verifier.verify(b"simple", &signature).unwrap_err();
        let verifier =
            UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_ASN1, key.public_key());
        let signature = key.sign(&random, b"simple").unwrap();
        verifier.verify(b"simple", signature.as_ref()).unwrap();
        verifier.verify(b"sample", signature.as_ref()).unwrap_err();
    }
}
