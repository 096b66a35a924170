//! rustls' provider of ring, without ChaCha20-Poly1305.
//!
//! It differs from `rustls::crypto::ring::default_provider` in the cipher suites alone. It is built
//! from parts, because the linker drops code only if no table names it.
//!
//! Each server that speaks TLS 1.3 has AES-128-GCM (RFC 8446, section 9.1). Go always offers it: its
//! list of cipher suites, the API server's `--tls-cipher-suites`, is for TLS 1.2. A processor
//! without AES instructions encrypts slower with AES-GCM (cross/README.md has figures), but a
//! renewal has less than 2 KB, and ring's code without these instructions takes constant time too.

use std::sync::Arc;

use ring::rand::SystemRandom;
use rustls::Error;
use rustls::SignatureScheme;
use rustls::crypto::ring::{cipher_suite, kx_group, sign};
use rustls::crypto::{
    CryptoProvider, GetRandomFailed, KeyProvider, SecureRandom, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use webpki::ring as verify;
use zeroize::Zeroizing;

/// The provider. Its key exchanges and signatures are those of rustls' provider.
pub(super) fn provider() -> CryptoProvider {
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
const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
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
        (
            SignatureScheme::RSA_PSS_SHA512,
            &[verify::RSA_PSS_2048_8192_SHA512_LEGACY_KEY],
        ),
        (
            SignatureScheme::RSA_PSS_SHA384,
            &[verify::RSA_PSS_2048_8192_SHA384_LEGACY_KEY],
        ),
        (
            SignatureScheme::RSA_PSS_SHA256,
            &[verify::RSA_PSS_2048_8192_SHA256_LEGACY_KEY],
        ),
        (
            SignatureScheme::RSA_PKCS1_SHA512,
            &[verify::RSA_PKCS1_2048_8192_SHA512],
        ),
        (
            SignatureScheme::RSA_PKCS1_SHA384,
            &[verify::RSA_PKCS1_2048_8192_SHA384],
        ),
        (
            SignatureScheme::RSA_PKCS1_SHA256,
            &[verify::RSA_PKCS1_2048_8192_SHA256],
        ),
    ],
};

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
    use rustls::crypto::ActiveKeyExchange;
    use rustls::pki_types::{PrivatePkcs8KeyDer, SignatureVerificationAlgorithm};

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(digit).collect()
    }

    fn key(pkcs8: Vec<u8>) -> Arc<dyn SigningKey> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8));
        Ring.load_private_key(der).unwrap()
    }

    fn sign(key: &dyn SigningKey, scheme: SignatureScheme, message: &[u8]) -> Vec<u8> {
        let signer = key.choose_scheme(&[scheme]).unwrap();
        signer.sign(message).unwrap()
    }

    /// Whether the signature is good; one with a changed bit must not be.
    fn verifies(
        algorithm: &dyn SignatureVerificationAlgorithm,
        public: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let mut changed = signature.to_vec();
        *changed.last_mut().unwrap() ^= 1;
        assert!(
            algorithm
                .verify_signature(public, message, &changed)
                .is_err()
        );
        algorithm
            .verify_signature(public, message, signature)
            .is_ok()
    }

    /// RFC 8032, section 7.1, tests 1 and 2. In static binaries `cross/ed25519.h` has a part of it.
    #[test]
    fn ed25519_signs_and_verifies_the_examples_of_its_rfc() {
        for (seed, public, message, signature) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                &b""[..],
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac\
                 c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                b"\x72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e\
                 458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ] {
            let pkcs8 = [bytes("302e020100300506032b657004220420"), bytes(seed)];
            let (public, signature) = (bytes(public), bytes(signature));
            let signed = sign(&*key(pkcs8.concat()), SignatureScheme::ED25519, message);
            assert_eq!(signed, signature);
            assert!(verifies(verify::ED25519, &public, message, &signature));
        }
    }

    /// RFC 6979, section A.2.5, SHA-256. In static binaries `cross/p256.h` and `cross/p256-arm.h` have
    /// a part of it.
    #[test]
    fn p256_verifies_the_examples_of_rfc_6979_and_what_it_signs() {
        let public = bytes(
            "0460fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb67903fe1008b8bc99a4\
             1ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299",
        );
        for (message, signature) in [
            (
                "sample",
                "3046022100efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716022100f7\
                 cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
            ),
            (
                "test",
                "3045022100f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d383670220019f\
                 4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083",
            ),
        ] {
            let signature = bytes(signature);
            let message = message.as_bytes();
            assert!(verifies(
                verify::ECDSA_P256_SHA256,
                &public,
                message,
                &signature
            ));
        }
        let scheme = SignatureScheme::ECDSA_NISTP256_SHA256;
        for number in 0..20_u8 {
            let pair = rcgen::KeyPair::generate().unwrap();
            let signature = sign(&*key(pair.serialize_der()), scheme, &[number]);
            let public = pair.public_key_raw();
            assert!(verifies(
                verify::ECDSA_P256_SHA256,
                public,
                &[number],
                &signature
            ));
        }
    }

    #[test]
    fn both_ends_of_a_key_exchange_have_the_same_secret() {
        for group in provider().kx_groups {
            for _ in 0..10 {
                let [ours, theirs]: [Box<dyn ActiveKeyExchange>; 2] =
                    [(); 2].map(|()| group.start().unwrap());
                let (our_share, their_share) = (ours.pub_key().to_vec(), theirs.pub_key().to_vec());
                let ours = ours.complete(&their_share).unwrap();
                let theirs = theirs.complete(&our_share).unwrap();
                assert_eq!(
                    ours.secret_bytes(),
                    theirs.secret_bytes(),
                    "{:?}",
                    group.name()
                );
            }
        }
    }

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
