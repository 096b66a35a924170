//! Kinds of keys and signatures: their names, and which of them ring can use.
//!
//! A private key is recognized by its content, as in Go (`crypto/tls`, `parsePrivateKey`). The
//! label of its PEM section may be wrong.

use std::fmt;

use rustls::pki_types::PrivateKeyDer;
use zeroize::Zeroize as _;

use super::text::Fault;
use super::x509::{
    BIT_STRING, DerReader, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context,
};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const P256: &str = "P-256";
const P384: &str = "P-384";
const ED25519: &str = "Ed25519";

/// Names of object identifiers: kinds of keys, curves, and signatures.
const NAMES: [(&[u8], &str); 18] = [
    (RSA, "RSA"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10], "RSA-PSS"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 1], "DSA"),
    (EC, "EC"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7], P256),
    (&[0x2b, 0x81, 4, 0, 34], P384),
    (&[0x2b, 0x81, 4, 0, 35], "P-521"),
    (&[0x2b, 101, 112], ED25519),
    (&[0x2b, 101, 113], "Ed448"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], "RSA with MD5"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], "RSA with SHA-1"),
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 14], "RSA with SHA-224"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], "ECDSA with SHA-1"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 1], "ECDSA with SHA-224"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], "ECDSA with SHA-256"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], "ECDSA with SHA-384"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], "ECDSA with SHA-512"),
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3], "DSA with SHA-1"),
];

/// A private key that is broken.
pub const UNUSABLE: &str = "not a usable private key";
/// The remedy of a private key that ring cannot use.
pub const OTHER_KEY: &str = "use P-256, P-384, Ed25519, or RSA of 2048, 3072 or 4096 bits: make a \
                             key with openssl genpkey -algorithm EC -pkeyopt \
                             ec_paramgen_curve:P-256 -out KEY, and have a certificate signed for it";

/// A kind of key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA.
    Rsa {
        /// Length of the modulus, in whole octets.
        bits: usize,
        /// The public exponent; [`u64::MAX`] for one of more than eight octets.
        exponent: u64,
    },
    /// The name of another kind, or of the curve.
    Other(String),
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits, exponent: exponent @ ..65537 } => {
                write!(f, "RSA of {bits} bits with e={exponent}")
            }
            Self::Rsa { bits, .. } => write!(f, "RSA of {bits} bits"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl KeyKind {
    /// Parses SubjectPublicKeyInfo (RFC 5280); `None` if it is not valid.
    pub fn of_public(key: &[u8]) -> Option<Self> {
        let mut key = DerReader::new(key).inside(SEQUENCE)?;
        let algorithm = key.next(SEQUENCE)?;
        // The first octet is the number of unused bits.
        let (_, bits) = key.next(BIT_STRING)?.split_first()?;
        if DerReader::new(algorithm).next(OBJECT_IDENTIFIER)? != RSA {
            return Some(Self::Other(algorithm_name(algorithm)));
        }
        let mut numbers = DerReader::new(bits).inside(SEQUENCE)?;
        Self::rsa(&mut numbers)
    }

    /// Whether ring signs with such a key.
    fn signs(&self) -> bool {
        match self {
            Self::Rsa { bits, exponent } => [2048, 3072, 4096].contains(bits) && *exponent >= 65537,
            Self::Other(name) => [P256, P384, ED25519].contains(&name.as_str()),
        }
    }

    /// Whether ring verifies signatures of such a key.
    pub fn verifies(&self) -> bool {
        match self {
            Self::Rsa { bits, .. } => (2048..=8192).contains(bits),
            Self::Other(_) => self.signs(),
        }
    }

    /// An RSA key whose numbers n and e are the next two in `numbers`.
    fn rsa(numbers: &mut DerReader<'_>) -> Option<Self> {
        let [modulus, exponent] = [numbers.next(INTEGER)?, numbers.next(INTEGER)?].map(|number| {
            let zeros = number.iter().take_while(|octet| **octet == 0).count();
            number.get(zeros..).unwrap_or_default()
        });
        let exponent = match exponent.len() {
            ..=8 => exponent.iter().fold(0, |number, octet| number << 8 | u64::from(*octet)),
            _ => u64::MAX,
        };
        Some(Self::Rsa { bits: modulus.len() * 8, exponent })
    }
}

/// The name of the algorithm in the contents of an AlgorithmIdentifier; of EC, the name of the
/// curve.
pub fn algorithm_name(identifier: &[u8]) -> String {
    let mut reader = DerReader::new(identifier);
    let Some(algorithm) = reader.next(OBJECT_IDENTIFIER) else {
        return "of no known kind".to_owned();
    };
    match reader.next(OBJECT_IDENTIFIER) {
        Some(curve) if algorithm == EC => name(curve),
        _ => name(algorithm),
    }
}

/// The name of an object identifier, or its numbers.
pub fn name(identifier: &[u8]) -> String {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == identifier) {
        return (*name).to_owned();
    }
    let (mut numbers, mut number) = (Vec::new(), 0_u64);
    // The longest one in use has some 20 octets.
    for octet in identifier.iter().take(32) {
        number = number << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 == 0 {
            numbers.push(std::mem::take(&mut number));
        }
    }
    // The first number stands for two: 40 times the first one, plus the second one.
    if let Some(first) = numbers.first_mut() {
        let arc = (*first / 40).min(2);
        *first -= arc * 40;
        numbers.insert(0, arc);
    }
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    numbers.join(".")
}

#[derive(Clone, Copy)]
enum Form {
    Pkcs1,
    Pkcs8,
    Sec1,
}

/// What a private key is, by its content.
struct PrivateKey {
    form: Form,
    kind: KeyKind,
    has_public_half: bool,
}

impl PrivateKey {
    fn parse(der: &[u8]) -> Option<Self> {
        let mut body = versioned(der)?;
        let Some(algorithm) = body.next(SEQUENCE) else {
            return Self::plain(body, None);
        };
        let (form, kind) = (Form::Pkcs8, KeyKind::Other(algorithm_name(algorithm)));
        let key = match DerReader::new(algorithm).next(OBJECT_IDENTIFIER)? {
            RSA | EC => Self::plain(versioned(body.next(OCTET_STRING)?)?, Some(kind))?,
            _ => Self { form, kind, has_public_half: true },
        };
        Some(Self { form, ..key })
    }

    /// A key of PKCS#1 or SEC 1, from behind its version. `curve` is that of the PKCS#8 around it.
    fn plain(mut body: DerReader<'_>, curve: Option<KeyKind>) -> Option<Self> {
        let mut numbers = body;
        if let Some(kind) = KeyKind::rsa(&mut numbers) {
            return Some(Self { form: Form::Pkcs1, kind, has_public_half: true });
        }
        body.next(OCTET_STRING)?;
        let own = body.inside(context(0)).and_then(|mut own| own.next(OBJECT_IDENTIFIER));
        let kind = own.map(|own| KeyKind::Other(name(own))).or(curve)?;
        let has_public_half = body.next(context(1)).is_some();
        Some(Self { form: Form::Sec1, kind, has_public_half })
    }
}

/// The rest of a sequence that begins with a version.
fn versioned(der: &[u8]) -> Option<DerReader<'_>> {
    let mut body = DerReader::new(der).inside(SEQUENCE)?;
    body.next(INTEGER)?;
    Some(body)
}

/// A private key (DER) in the form that its content has, or what ring cannot use.
pub fn private_key(mut der: Vec<u8>) -> Result<PrivateKeyDer<'static>, Fault> {
    let why = match PrivateKey::parse(&der) {
        None => UNUSABLE.into(),
        Some(PrivateKey { kind, .. }) if !kind.signs() => {
            Fault::new(format!("the key is {kind}, which is not supported"), OTHER_KEY)
        }
        Some(PrivateKey { has_public_half: false, .. }) => {
            Fault::new("the key lacks its public half", "add it: openssl ec -in KEY -out NEW")
        }
        Some(PrivateKey { form, .. }) => {
            return Ok(match form {
                Form::Pkcs1 => PrivateKeyDer::Pkcs1(der.into()),
                Form::Pkcs8 => PrivateKeyDer::Pkcs8(der.into()),
                Form::Sec1 => PrivateKeyDer::Sec1(der.into()),
            });
        }
    };
    der.zeroize();
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::x509;

    #[test]
    fn an_algorithm_has_its_name_or_its_numbers() {
        let oid = |bytes: &[u8]| x509::element(OBJECT_IDENTIFIER, &[bytes]);
        let (ec, p521, k1) = (oid(EC), oid(&[0x2b, 0x81, 4, 0, 35]), oid(&[0x2b, 0x81, 4, 0, 10]));
        for (identifier, want) in [
            (oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4]), "ECDSA with SHA-512"),
            ([ec.as_slice(), &p521].concat(), "P-521"),
            ([ec.as_slice(), &k1].concat(), "1.3.132.0.10"),
            // Explicit parameters.
            ([ec.as_slice(), &[SEQUENCE, 0]].concat(), "EC"),
            (oid(&[0x88, 0x37, 3]), "2.999.3"),
            (oid(&[0xff; 40]), ""),
            (Vec::new(), "of no known kind"),
        ] {
            assert_eq!(algorithm_name(&identifier), want, "{identifier:02x?}");
        }
    }

    #[test]
    fn a_changed_key_causes_no_panic() {
        for whole in [
            rcgen::KeyPair::generate().unwrap().serialize_der(),
            rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_der(),
        ] {
            assert!(private_key(whole.clone()).is_ok());
            let (cut, changed) = x509::damaged(&whole);
            assert_eq!(cut.iter().find(|cut| private_key(cut.to_vec()).is_ok()), None);
            for changed in changed {
                let _ = private_key(changed);
            }
        }
    }
}
