//! The verifier of chains of certificates: of servers here, and of clients in `nodelet serve`.
//!
//! webpki builds a chain from a certificate up to a trusted CA, and judges it. The result must be
//! that of Go's `crypto/x509`, by which kubectl and kubelets verify. Therefore webpki gets each
//! certificate as a [`Plain`] one, without what webpki judges in another way than Go. The name
//! constraints that were left out are judged here.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName,
    SignatureVerificationAlgorithm, UnixTime,
};
use rustls::{CertificateError, DistinguishedName, Error, OtherError, RootCertStore};
use webpki::{
    EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeId, KeyPurposeIdIter, KeyUsage,
    RequiredEkuNotFoundContext, VerifiedPath,
};

use crate::kube::chain::{Limit, Plain, permits};
use crate::kube::keys::{self, algorithm_name};
use crate::kube::text::Fault;
use crate::kube::x509::{ANY_USAGE, CLIENT_AUTH, Leaf, SERVER_AUTH};

/// What a certificate is used for. The extended key usage of the certificate, and of each CA
/// between the certificate and the trusted CA, must name this use or anyExtendedKeyUsage, or be
/// absent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CertificateUsage {
    Server,
    Client,
}

impl ExtendedKeyUsageValidator for CertificateUsage {
    fn validate(&self, usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        let (required, wanted) = match self {
            Self::Server => (KeyUsage::server_auth(), SERVER_AUTH),
            Self::Client => (KeyUsage::client_auth(), CLIENT_AUTH),
        };
        let wanted = [wanted, ANY_USAGE].map(KeyPurposeId::new);
        let mut is_limited = false;
        for usage in usages {
            is_limited = true;
            if wanted.contains(&usage?) {
                return Ok(());
            }
        }
        let other = RequiredEkuNotFoundContext { required, present: Vec::new() };
        if is_limited { Err(webpki::Error::RequiredEkuNotFoundContext(other)) } else { Ok(()) }
    }
}

/// The trusted CAs.
#[derive(Debug)]
pub(crate) struct Authorities {
    roots: RootCertStore,
    /// For each of `roots`, its name constraints that webpki does not judge.
    limits: Vec<Vec<Limit>>,
}

impl Authorities {
    /// Nobody is trusted.
    pub(crate) fn empty() -> Self {
        Self { roots: RootCertStore::empty(), limits: Vec::new() }
    }

    /// Trusts a CA.
    pub(crate) fn add(&mut self, certificate: CertificateDer<'_>) -> Result<(), Error> {
        let plain = Plain::parse(&certificate, false).ok_or(CertificateError::BadEncoding)?;
        self.roots.add(plain.der.into())?;
        self.limits.push(plain.limits);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        self.roots.subjects()
    }

    /// Fails unless `first` is a certificate for this usage and name, and a trusted CA has signed
    /// it, directly or through the CAs in `others`. `first` and these CAs must be valid at `time`;
    /// the dates of the trusted CA do not count.
    pub(crate) fn verify(
        &self,
        first: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        usage: CertificateUsage,
        name: Option<&ServerName<'_>>,
        time: UnixTime,
        signatures: &WebPkiSupportedAlgorithms,
    ) -> Result<(), CertificateError> {
        let mut chain = vec![Plain::parse(first, true).ok_or(CertificateError::BadEncoding)?];
        chain.extend(others.iter().filter_map(|other| Plain::parse(other, false)));
        let plain: Vec<_> = chain.iter().map(|of| CertificateDer::from(&*of.der)).collect();
        let [leaf, issuers @ ..] = plain.as_slice() else {
            return Err(CertificateError::BadEncoding);
        };
        let over = |algorithm: &&'static dyn SignatureVerificationAlgorithm| OverWhole {
            algorithm: *algorithm,
            chain: &chain,
        };
        let algorithms: Vec<_> = signatures.all.iter().map(over).collect();
        let algorithms: Vec<_> = algorithms.iter().map(|a| a as _).collect();
        let is_permitted = |path: &VerifiedPath<'_>| match self.permits(path, &chain) {
            Some(true) => Ok(()),
            _ => Err(webpki::Error::NameConstraintViolation),
        };
        let roots = &self.roots.roots;
        let judged = EndEntityCert::try_from(leaf).and_then(|certificate| {
            let also = Some(&is_permitted as _);
            certificate.verify_for_usage(&algorithms, roots, issuers, time, usage, None, also)?;
            name.map_or(Ok(()), |name| certificate.verify_is_valid_for_subject_name(name))
        });
        judged.map_err(|error| refusal(error, usage, &chain))
    }

    /// Whether the name constraints of each CA of `path` permit the names of all certificates below
    /// this CA. `None` if a certificate of `path` is not known; then the path is refused, too.
    fn permits(&self, path: &VerifiedPath<'_>, chain: &[Plain]) -> Option<bool> {
        let of = |der: &[u8]| chain.iter().find(|plain| plain.der == der);
        let mut below = vec![of(&path.end_entity().der())?];
        let are_permitted = |limits: &[Limit], below: &[&Plain]| {
            limits.is_empty() || below.iter().all(|plain| permits(limits, &plain.alt_names))
        };
        for issuer in path.intermediate_certificates() {
            let issuer = of(&issuer.der())?;
            if !are_permitted(&issuer.limits, &below) {
                return Some(false);
            }
            below.push(issuer);
        }
        let roots = self.roots.roots.iter().zip(&self.limits);
        let mut of_root = roots.filter(|(root, _)| std::ptr::eq(*root, path.anchor()));
        of_root.next().map(|(_, limits)| are_permitted(limits, &below))
    }
}

/// Verifies the signature of a [`Plain`] certificate. webpki passes the body of the [`Plain`]
/// certificate, but the issuer has signed the body of the whole certificate.
struct OverWhole<'a> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    chain: &'a [Plain],
}

impl fmt::Debug for OverWhole<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.algorithm.fmt(f)
    }
}

impl SignatureVerificationAlgorithm for OverWhole<'_> {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        // The signature is compared as well: two certificates may differ only in what webpki does
        // not see, and a signature must count only for the certificate that it belongs to.
        let is_it = |plain: &&Plain| plain.body == message && plain.signature == signature;
        let plain = self.chain.iter().find(is_it).ok_or(InvalidSignature)?;
        self.algorithm.verify_signature(key, &plain.signed, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// Converts an error of webpki to an error of rustls. An error about an extension names the
/// extension, and the certificate of the chain that has it.
fn refusal(error: webpki::Error, usage: CertificateUsage, chain: &[Plain]) -> CertificateError {
    use webpki::Error as E;
    let name = |of: &Plain| Leaf::parse(&of.der).map_or(String::new(), |l| l.subject.common_name);
    let fault = match error {
        E::UnknownIssuer => return CertificateError::UnknownIssuer,
        E::InvalidSignatureForPublicKey => return CertificateError::BadSignature,
        E::CertExpired { time, not_after } => {
            return CertificateError::ExpiredContext { time, not_after };
        }
        E::CertNotValidYet { time, not_before } => {
            return CertificateError::NotValidYetContext { time, not_before };
        }
        E::CertNotValidForName(names) => {
            let (expected, presented) = (names.expected, names.presented);
            return CertificateError::NotValidForNameContext { expected, presented };
        }
        E::UnsupportedSignatureAlgorithmContext(of) => {
            let id = algorithm_name(&of.signature_algorithm_id);
            other_signature(format_args!("{id}"))
        }
        E::UnsupportedSignatureAlgorithmForPublicKeyContext(of) => {
            let id = algorithm_name(&of.signature_algorithm_id);
            let key = algorithm_name(&of.public_key_algorithm_id);
            other_signature(format_args!("{id} by a {key} key"))
        }
        E::RequiredEkuNotFoundContext(_) => match usage {
            CertificateUsage::Server => Fault::new(
                "its extended key usage, or that of a CA, is not a server's",
                "issue it with extendedKeyUsage=serverAuth",
            ),
            CertificateUsage::Client => {
                "its extended key usage, or that of a CA, is not a client's".into()
            }
        },
        E::UnsupportedCriticalExtension => {
            let unknown = |of: &Plain| Some((name(of), keys::name(of.unknown.as_ref()?)));
            let (of, id) = chain.iter().find_map(unknown).unwrap_or_default();
            Fault::new(
                format!("the critical extension {id} of {of:?} is not known"),
                "issue it without that extension, or with one that is not critical",
            )
        }
        E::NameConstraintViolation => {
            let mut limited = chain.iter().skip(1).filter(|of| of.has_constraints).map(name);
            let of = limited.next().map_or("the trusted CA".to_owned(), |of| format!("{of:?}"));
            Fault::new(
                format!("the name constraints of {of} do not permit it"),
                "issue it for other names, or by a CA with other name constraints",
            )
        }
        other => return CertificateError::Other(OtherError(Arc::new(other))),
    };
    CertificateError::Other(OtherError(Arc::new(fault)))
}

/// A signature that ring does not verify. It has no ECDSA with SHA-512.
fn other_signature(kind: fmt::Arguments<'_>) -> Fault {
    Fault::new(
        format!("its signature, or that of a CA, is {kind}, which is not supported"),
        "sign it with SHA-256, such as with openssl x509 -req -sha256, by a key of RSA, P-256, \
         P-384 or Ed25519",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{
        BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose,
        IsCa, Issuer, KeyPair, SanType, SigningKey as _,
    };
    use rustls::crypto::ring;

    use super::*;
    use crate::kube::x509::{BIT_STRING, DerReader, SEQUENCE, context, element};

    /// A certificate as it is signed, changed by a test.
    type Change = Box<dyn Fn(&mut CertificateParams)>;

    fn nothing() -> Change {
        Box::new(|_| {})
    }

    /// An extension: below 2.5.29, or one that nobody knows.
    fn with(id: u64, is_critical: bool, content: &[u8]) -> Change {
        let of = if id == 0 { vec![1, 2, 3, 4] } else { vec![2, 5, 29, id] };
        let mut extension = CustomExtension::from_oid_content(&of, content.to_vec());
        extension.set_criticality(is_critical);
        Box::new(move |params| params.custom_extensions.push(extension.clone()))
    }

    fn usage(usage: ExtendedKeyUsagePurpose) -> Change {
        Box::new(move |params| params.extended_key_usages = vec![usage.clone()])
    }

    /// Name constraints of one subtree: permitted with 0, excluded with 1.
    fn limit(is_critical: bool, tag: u8, kind: u8, name: &[u8]) -> Change {
        let subtree = element(SEQUENCE, &[&element(kind, &[name])]);
        with(30, is_critical, &element(SEQUENCE, &[&element(context(tag), &[&subtree])]))
    }

    fn named(name: SanType) -> Change {
        Box::new(move |params| params.subject_alt_names.push(name.clone()))
    }

    fn email(address: &str) -> Change {
        named(SanType::Rfc822Name(address.try_into().unwrap()))
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// What is said of a chain of a root, a CA below it and a certificate, with their changes.
    fn judged(changes: [&Change; 3], usage: CertificateUsage, damage: &[u8]) -> Result<(), String> {
        let ca = |name: &str, change: &Change| {
            let mut params = params(name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            change(&mut params);
            params
        };
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap());
        let root = ca("root", changes[0]);
        let trusted = root.self_signed(&keys[0]).unwrap();
        let root = Issuer::new(root, &keys[0]);
        let below = ca("below", changes[1]);
        let other = below.signed_by(&keys[1], &root).unwrap();
        let below = Issuer::new(below, &keys[1]);
        let mut first = params("first");
        first.subject_alt_names.push(SanType::DnsName("a.example".try_into().unwrap()));
        changes[2](&mut first);
        let first = first.signed_by(&keys[2], &below).unwrap().der().to_vec();
        let first = match first.windows(damage.len().max(1)).position(|part| part == damage) {
            Some(at) => [&first[..at], &[damage[0] ^ 1], &first[at + 1..]].concat(),
            None => first,
        };
        let mut authorities = Authorities::empty();
        authorities.add(trusted.der().clone()).unwrap();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let signatures = ring::default_provider().signature_verification_algorithms;
        let name = "a.example".try_into().unwrap();
        let others = [other.der().clone(), vec![0x30, 0].into()];
        let judged =
            authorities.verify(&first.into(), &others, usage, Some(&name), time, &signatures);
        judged.map_err(|error| super::super::failure::cause_of_certificate(&error).to_string())
    }

    const EMAIL: u8 = 0x81;
    const DNS: u8 = 0x82;
    const DIRECTORY: u8 = 0xa4;

    #[test]
    fn a_chain_is_judged_by_the_rules_of_go() {
        use ExtendedKeyUsagePurpose::{Any, ClientAuth, ServerAuth};
        let policies = element(SEQUENCE, &[&element(SEQUENCE, &[&[6, 3, 0x2a, 3, 4]])]);
        let explicit = element(SEQUENCE, &[&[0x80, 1, 0]]);
        let mapping = element(SEQUENCE, &[&element(SEQUENCE, &[&[6, 1, 42, 6, 1, 43]])]);
        let organization = [0x30, 13, 0x31, 11, 0x30, 9, 6, 3, 85, 4, 10, 12, 2, b'x', b'y'];
        let is_ca: Change =
            Box::new(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
        let no_ca: Change = Box::new(|params| params.is_ca = IsCa::ExplicitNoCa);
        let wrong = "its extended key usage, or that of a CA, is not a server's";
        let not_permitted = "the name constraints of \"below\" do not permit it";
        let none = nothing;
        for (what, root, below, first, want) in [
            ("nothing special", none(), none(), none(), ""),
            ("critical policies", none(), with(32, true, &policies), with(32, true, &policies), ""),
            (
                "a policy constraint",
                none(),
                with(36, true, &explicit),
                with(32, true, &policies),
                "",
            ),
            ("a policy mapping", none(), with(33, true, &mapping), none(), ""),
            ("no policy is any", none(), with(54, true, &[2, 1, 0]), none(), ""),
            ("policies of the root", with(36, true, &explicit), none(), none(), ""),
            ("an unknown one", none(), with(0, false, &[5, 0]), with(0, false, &[5, 0]), ""),
            (
                "an unknown critical one",
                none(),
                none(),
                with(0, true, &[5, 0]),
                "the critical extension 1.2.3.4 of \"first\" is not known; issue it without",
            ),
            (
                "an unknown critical one of a CA",
                none(),
                with(99, true, &[5, 0]),
                none(),
                "the critical extension 2.5.29.99 of \"below\" is not known; issue it without",
            ),
            ("a CA as server", none(), none(), is_ca, ""),
            ("a server as CA", none(), no_ca, none(), "EndEntityUsedAsCa"),
            ("any usage", none(), usage(Any), usage(Any), ""),
            ("its usage", none(), usage(ServerAuth), usage(ServerAuth), ""),
            ("another usage", none(), none(), usage(ClientAuth), wrong),
            ("another usage of a CA", none(), usage(ClientAuth), usage(ServerAuth), wrong),
            ("a directory", none(), limit(false, 0, DIRECTORY, &organization), none(), ""),
            (
                "a directory of the root",
                limit(false, 1, DIRECTORY, &organization),
                none(),
                none(),
                "",
            ),
            (
                "a critical directory",
                none(),
                limit(true, 0, DIRECTORY, &organization),
                none(),
                not_permitted,
            ),
            (
                "a critical directory of the root",
                limit(true, 0, DIRECTORY, &organization),
                none(),
                none(),
                "the name constraints of the trusted CA do not permit it; issue it for",
            ),
            (
                "a critical one of a kind that nobody has",
                none(),
                limit(true, 0, 0x88, &[42]),
                none(),
                not_permitted,
            ),
            ("of a kind that nobody has", none(), limit(false, 0, 0x88, &[42]), none(), ""),
            ("no address", none(), limit(true, 0, EMAIL, b"example.org"), none(), ""),
            ("an address", none(), limit(true, 0, EMAIL, b"b.org"), email("a@b.org"), ""),
            ("another", none(), limit(true, 0, EMAIL, b"b.org"), email("a@c.org"), not_permitted),
            ("excluded", none(), limit(false, 1, EMAIL, b"b.org"), email("a@b.org"), not_permitted),
            ("not excluded", none(), limit(false, 1, EMAIL, b"b.org"), email("a@c.org"), ""),
            (
                "an address, by the root",
                limit(false, 0, EMAIL, b"b.org"),
                none(),
                email("a@c.org"),
                "the name constraints of the trusted CA",
            ),
            (
                "an address of a CA below",
                limit(false, 0, EMAIL, b"b.org"),
                email("a@c.org"),
                none(),
                "the name constraints of the trusted CA",
            ),
            ("a host", none(), limit(true, 0, DNS, b"example"), none(), ""),
            ("another host", none(), limit(false, 0, DNS, b"example.org"), none(), not_permitted),
            ("its own", none(), none(), limit(true, 0, DNS, b"example.org"), ""),
        ] {
            let got = judged([&root, &below, &first], CertificateUsage::Server, b"");
            match want {
                "" => assert_eq!(got, Ok(()), "{what}"),
                want => assert!(got.clone().is_err_and(|e| e.starts_with(want)), "{what}: {got:?}"),
            }
        }
        let got = judged([&none(), &none(), &usage(ServerAuth)], CertificateUsage::Client, b"");
        assert_eq!(
            got,
            Err("its extended key usage, or that of a CA, is not a client's".to_owned())
        );
        assert_eq!(
            judged([&none(), &none(), &usage(ClientAuth)], CertificateUsage::Client, b""),
            Ok(())
        );
    }

    /// What webpki does not see is signed as well.
    #[test]
    fn a_change_of_an_extension_that_is_left_out_breaks_the_signature() {
        let oid = [6, 3, 0x2a, 3, 4];
        let policies = element(SEQUENCE, &[&element(SEQUENCE, &[&oid])]);
        let with_policies = with(32, true, &policies);
        let judged = |damage: &[u8]| {
            judged([&nothing(), &nothing(), &with_policies], CertificateUsage::Server, damage)
        };
        assert_eq!(judged(b""), Ok(()));
        assert_eq!(judged(&oid[2..]), Err("BadSignature".to_owned()));
    }

    /// Somebody with the key of a limited CA can write its certificate without the limits, and
    /// change the signature so that it still is one of the certificate with them.
    #[test]
    fn the_signature_of_a_certificate_does_not_count_for_one_without_its_limits() {
        let [root_key, key, own] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let mut root = params("root");
        root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let trusted = root.self_signed(&root_key).unwrap();
        let root = Issuer::new(root, &root_key);
        let mut below = params("below");
        below.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        limit(true, 0, EMAIL, b"b.org")(&mut below);
        let limited = below.signed_by(&key, &root).unwrap();
        let mut first = params("first");
        first.subject_alt_names.push(SanType::DnsName("a.example".try_into().unwrap()));
        email("a@c.org")(&mut first);
        let first = first.signed_by(&own, &Issuer::new(below, &key)).unwrap();
        let plain = Plain::parse(limited.der(), false).unwrap();
        let signature = element(BIT_STRING, &[&[0], &root_key.sign(&plain.signed).unwrap()]);
        assert!(!signature.ends_with(&plain.signature), "ECDSA has many of a text");
        let mut parts = DerReader::new(&plain.der).inside(SEQUENCE).unwrap();
        let (_, (_, _, algorithm)) = (parts.any().unwrap(), parts.any().unwrap());
        let forged = element(SEQUENCE, &[&plain.body, algorithm, &signature]).into();
        let mut authorities = Authorities::empty();
        authorities.add(trusted.der().clone()).unwrap();
        let signatures = ring::default_provider().signature_verification_algorithms;
        let time = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
        let others = [limited.der().clone(), forged];
        let (usage, name) = (CertificateUsage::Server, "a.example".try_into().unwrap());
        let judged =
            authorities.verify(first.der(), &others, usage, Some(&name), time, &signatures);
        assert!(judged.is_err());
    }
}
