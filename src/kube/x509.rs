//! Parses the fields of certificates that a node needs, and encodes certificate signing requests
//! and a self-signed certificate.
//!
//! Parsed are the node's own certificates, and those of clients. `chain` has what the verification
//! of a chain needs.
//!
//! The caller of [`DerReader`] requests one element of DER (X.690) at a time, without recursion; an
//! unexpected element is `None`. Lengths have up to four octets, which exceeds the size of every
//! file that is read.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use crate::kube::text::Fault;
use crate::kube::time::Wall;

/// id-at-commonName and id-at-organizationName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
/// id-ce-subjectAltName and id-ce-extKeyUsage (RFC 5280).
pub(super) const ALT_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
pub(super) const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
/// id-kp-serverAuth.
pub const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
/// id-kp-clientAuth.
pub const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
/// anyExtendedKeyUsage.
pub const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];
/// extensionRequest (RFC 2985): the extensions that a request asks for.
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];
/// dNSName and iPAddress of GeneralName (RFC 5280, 4.2.1.6).
pub(super) const DNS_NAME: u8 = 0x82;
pub(super) const IP_ADDRESS: u8 = 0x87;

/// Years in which a self-signed certificate is valid: a board without a clock is in one of them.
const SELF_SIGNED_FROM: &str = "200101000000Z";
const SELF_SIGNED_UNTIL: &str = "491231235959Z";

/// The group of all nodes (`pkg/auth/nodeidentifier/default.go`).
pub const NODES_GROUP: &str = "system:nodes";
/// What the user name of a node begins with.
pub const NODE_USER_PREFIX: &str = "system:node:";

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `CN`, the user name; empty if there is none.
    pub common_name: String,
    /// `O`, the groups of the user.
    pub organizations: Vec<String>,
    /// The subject's alternative names; only a server's certificate has them.
    pub alt_names: Vec<AltName>,
}

/// A name in a server's certificate. DNS names are sorted first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AltName {
    /// dNSName.
    Dns(String),
    /// iPAddress.
    Ip(IpAddr),
}

impl AltName {
    /// GeneralName, DER.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Dns(name) => element(DNS_NAME, &[name.as_bytes()]),
            Self::Ip(IpAddr::V4(ip)) => element(IP_ADDRESS, &[&ip.octets()]),
            Self::Ip(IpAddr::V6(ip)) => element(IP_ADDRESS, &[&ip.octets()]),
        }
    }
}

impl Subject {
    /// The subject of the node `name` without alternative names, as in its client certificate. A
    /// serving certificate has the same subject, with alternative names.
    pub fn of_node(name: &str) -> Self {
        Self {
            common_name: format!("{NODE_USER_PREFIX}{name}"),
            organizations: vec![NODES_GROUP.to_owned()],
            alt_names: Vec::new(),
        }
    }

    /// The name of the node; `None` if the user is not a node.
    pub fn node_name(&self) -> Option<&str> {
        self.common_name.strip_prefix(NODE_USER_PREFIX)
    }

    /// Why a certificate of this subject is no credential of the node `own`: it is another node's.
    /// Any other user may be allowed to do the work of a node.
    pub fn other_node(&self, own: &Self) -> Option<Fault> {
        let is_node = self.organizations.iter().any(|group| group == NODES_GROUP);
        let name = self.node_name().filter(|_| is_node && self.common_name != own.common_name)?;
        let own = own.node_name()?;
        let what = format!("the certificate is for the node {name}, but this node is {own}");
        Some(Fault::new(
            what,
            format!("use --hostname-override={name}, or the certificate of {own}"),
        ))
    }

    /// Whether a certificate of this subject serves where `wanted` was requested: it may have more
    /// names and organizations. Upstream: client-go's certSatisfiesTemplate.
    pub fn satisfies(&self, wanted: &Self) -> bool {
        self.common_name == wanted.common_name
            && wanted.organizations.iter().all(|name| self.organizations.contains(name))
            && wanted.alt_names.iter().all(|name| self.alt_names.contains(name))
    }

    /// Name (RFC 5280), byte for byte as Go encodes it.
    pub(crate) fn name(&self) -> Vec<u8> {
        let organization = |name: &String| attribute(ORGANIZATION, name);
        let mut name: Vec<u8> = self.organizations.iter().flat_map(organization).collect();
        if !name.is_empty() {
            name = element(SET, &[&name]);
        }
        name.extend(element(SET, &[&attribute(COMMON_NAME, &self.common_name)]));
        element(SEQUENCE, &[&name])
    }

    /// The extension of the alternative names; empty without any.
    fn alt_names(&self) -> Vec<u8> {
        let names: Vec<u8> = self.alt_names.iter().flat_map(AltName::encode).collect();
        if names.is_empty() { names } else { extension(ALT_NAMES, &element(SEQUENCE, &[&names])) }
    }
}

/// The first certificate of a chain: that of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Subject.
    pub subject: Subject,
    /// Start of the validity; 1970 for an earlier time.
    pub not_before: Wall,
    /// End of the validity.
    pub not_after: Wall,
    /// SubjectPublicKeyInfo, DER.
    pub public_key: Vec<u8>,
}

impl Leaf {
    /// Parses a DER certificate; `None` if it cannot be parsed. An expired one is parsed, too.
    pub fn parse(certificate: &[u8]) -> Option<Self> {
        let mut certificate = DerReader::new(certificate).inside(SEQUENCE)?;
        let mut body = certificate.inside(SEQUENCE)?;
        // The version is absent in version 1.
        let _ = body.next(context(0));
        body.next(INTEGER)?;
        body.next(SEQUENCE)?;
        let _issuer = body.next(SEQUENCE)?;
        let mut validity = body.inside(SEQUENCE)?;
        let not_before = time(&mut validity)?;
        let not_after = time(&mut validity)?;
        let mut subject = subject(body.inside(SEQUENCE)?)?;
        let public_key = public_key(&mut body)?;
        // issuerUniqueID and subjectUniqueID.
        let _ = (body.next(0x81), body.next(0x82));
        if let Some(mut extensions) = body.inside(context(3)) {
            subject.alt_names = alt_names(extensions.inside(SEQUENCE)?)?;
        }
        Some(Self { not_before, not_after, subject, public_key })
    }

    /// Whether it has not ended at `now`, and begins at `begun` at the latest, if that is known.
    pub fn is_valid(&self, now: Wall, begun: Option<Wall>) -> bool {
        now <= self.not_after && begun.is_none_or(|begun| self.not_before <= begun)
    }

    /// When the last tenth of its life begins.
    pub fn last_tenth(&self) -> Wall {
        self.not_before.after(self.not_after.since(self.not_before) / 10 * 9)
    }

    /// Parses the first certificate of PEM text.
    pub fn of_pem(text: &[u8]) -> Option<Self> {
        Self::parse(&CertificateDer::pem_slice_iter(text).next()?.ok()?)
    }
}

/// The unsigned content of a PKCS#10 request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Requested subject.
    pub subject: Subject,
    /// SubjectPublicKeyInfo, DER.
    pub public_key: Vec<u8>,
}

impl RequestInfo {
    /// CertificationRequestInfo (RFC 2986), DER, byte for byte as Go encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let version = element(INTEGER, &[&[0]]);
        let extensions = self.subject.alt_names();
        let mut attributes = Vec::new();
        if !extensions.is_empty() {
            let kind = element(OBJECT_IDENTIFIER, &[EXTENSION_REQUEST]);
            let extensions = element(SET, &[&element(SEQUENCE, &[&extensions])]);
            attributes = element(SEQUENCE, &[&kind, &extensions]);
        }
        let attributes = element(context(0), &[&attributes]);
        element(SEQUENCE, &[&version, &self.subject.name(), &self.public_key, &attributes])
    }

    /// TBSCertificate (RFC 5280) of a server that signs for itself, DER. `algorithm` is the
    /// signature's AlgorithmIdentifier.
    pub fn self_signed(&self, algorithm: &[u8]) -> Vec<u8> {
        let version = element(context(0), &[&element(INTEGER, &[&[2]])]);
        // Browsers refuse two certificates of one issuer and number.
        let key = self.public_key.last_chunk::<8>().copied().unwrap_or_default();
        let serial = element(INTEGER, &[&[1], &key]);
        let name = self.subject.name();
        let times = [SELF_SIGNED_FROM, SELF_SIGNED_UNTIL].map(str::as_bytes);
        let times = times.map(|time| element(UTC_TIME, &[time]));
        let validity = element(SEQUENCE, &[&times.concat()]);
        let usage = element(SEQUENCE, &[&element(OBJECT_IDENTIFIER, &[SERVER_AUTH])]);
        let extensions = [self.subject.alt_names(), extension(EXTENDED_KEY_USAGE, &usage)];
        let extensions = element(context(3), &[&element(SEQUENCE, &[&extensions.concat()])]);
        let key = &self.public_key;
        let parts = [&version, &serial, algorithm, &name, &validity, &name, key, &extensions];
        element(SEQUENCE, &parts)
    }

    /// Parses a request in PEM text. The signature is not verified; the server does that.
    pub fn of_pem(text: &[u8]) -> Option<Self> {
        let request = CertificateSigningRequestDer::from_pem_slice(text).ok()?;
        let mut request = DerReader::new(&request).inside(SEQUENCE)?;
        let mut info = request.inside(SEQUENCE)?;
        info.next(INTEGER)?;
        let mut subject = subject(info.inside(SEQUENCE)?)?;
        let public_key = public_key(&mut info)?;
        let mut attributes = info.inside(context(0))?;
        while !attributes.is_empty() {
            let mut attribute = attributes.inside(SEQUENCE)?;
            if attribute.next(OBJECT_IDENTIFIER)? == EXTENSION_REQUEST {
                let extensions = attribute.inside(SET)?.inside(SEQUENCE)?;
                subject.alt_names = alt_names(extensions)?;
            }
        }
        Some(Self { subject, public_key })
    }
}

/// What a certificate is for: who signs it in `certificates.k8s.io`, and its extended usage there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificatePurpose {
    /// `spec.signerName`.
    pub signer: &'static str,
    /// One of `spec.usages`.
    pub usage: &'static str,
}

impl CertificatePurpose {
    /// The node is a client of the API server.
    pub const CLIENT: Self =
        Self { signer: "kubernetes.io/kube-apiserver-client-kubelet", usage: "client auth" };
    /// The node is a server.
    pub const SERVING: Self =
        Self { signer: "kubernetes.io/kubelet-serving", usage: "server auth" };
}

/// A signed request for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// Content of the request.
    pub info: RequestInfo,
    /// The PKCS#10 request, DER.
    pub der: Vec<u8>,
    /// What the certificate is for.
    pub purpose: CertificatePurpose,
    /// Key usages, with the names of `certificates.k8s.io`.
    pub usages: Vec<&'static str>,
    /// `node-csr-...`: equal for equal key, subject and usages.
    pub name: String,
}

impl SigningRequest {
    /// The PKCS#10 request, PEM.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE REQUEST", &self.der)
    }
}

/// Encodes one item as PEM (RFC 7468).
pub fn pem(label: &str, item: &[u8]) -> String {
    let text = STANDARD.encode(item);
    let mut pem = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(64) {
        pem += &String::from_utf8_lossy(line);
        pem.push('\n');
    }
    pem + &format!("-----END {label}-----\n")
}

/// AttributeTypeAndValue (RFC 5280).
fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let kind = element(OBJECT_IDENTIFIER, &[kind]);
    let value = element(PRINTABLE_STRING, &[value.as_bytes()]);
    element(SEQUENCE, &[&kind, &value])
}

/// Extension (RFC 5280), not critical.
pub(super) fn extension(kind: &[u8], value: &[u8]) -> Vec<u8> {
    let kind = element(OBJECT_IDENTIFIER, &[kind]);
    element(SEQUENCE, &[&kind, &element(OCTET_STRING, &[value])])
}

/// The alternative names among the extensions, sorted, without those of a kind that a node has not.
fn alt_names(mut extensions: DerReader<'_>) -> Option<Vec<AltName>> {
    let mut found = Vec::new();
    while !extensions.is_empty() {
        let mut extension = extensions.inside(SEQUENCE)?;
        if extension.next(OBJECT_IDENTIFIER)? != ALT_NAMES {
            continue;
        }
        let _is_critical = extension.next(BOOLEAN);
        let mut names = extension.inside(OCTET_STRING)?.inside(SEQUENCE)?;
        while !names.is_empty() {
            let (tag, name, _) = names.any()?;
            match tag {
                DNS_NAME => found.push(AltName::Dns(String::from_utf8_lossy(name).into_owned())),
                IP_ADDRESS => found.extend(ip(name).map(AltName::Ip)),
                _ => {}
            }
        }
    }
    found.sort();
    Some(found)
}

/// An address of 4 or 16 octets.
fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4().or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

fn subject(mut name: DerReader<'_>) -> Option<Subject> {
    let mut subject = Subject::default();
    while !name.is_empty() {
        let mut relative = name.inside(SET)?;
        while !relative.is_empty() {
            let mut pair = relative.inside(SEQUENCE)?;
            let kind = pair.next(OBJECT_IDENTIFIER)?;
            let (_, value, _) = pair.any()?;
            let value = String::from_utf8_lossy(value).into_owned();
            match kind {
                COMMON_NAME => subject.common_name = value,
                ORGANIZATION => subject.organizations.push(value),
                _ => {}
            }
        }
    }
    Some(subject)
}

/// SubjectPublicKeyInfo as a whole element.
fn public_key(reader: &mut DerReader<'_>) -> Option<Vec<u8>> {
    let (tag, _, whole) = reader.any()?;
    (tag == SEQUENCE).then(|| whole.to_vec())
}

/// Time of RFC 5280, 4.1.2.5: UTC, with seconds.
fn time(reader: &mut DerReader<'_>) -> Option<Wall> {
    let (tag, text, _) = reader.any()?;
    let text = str::from_utf8(text).ok()?;
    let digits = text.strip_suffix('Z')?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = match (tag, digits.len()) {
        (UTC_TIME, 12) if digits < "50" => format!("20{digits}"),
        (UTC_TIME, 12) => format!("19{digits}"),
        (GENERALIZED_TIME, 14) => digits.to_owned(),
        _ => return None,
    };
    let (year, rest) = digits.split_at_checked(4)?;
    if year < "1970" {
        return Some(Wall::default());
    }
    let two = |place: usize| rest.get(place..place + 2);
    let [month, day, hour, minute, second] = [two(0)?, two(2)?, two(4)?, two(6)?, two(8)?];
    Wall::parse(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

/// True or false.
pub(super) const BOOLEAN: u8 = 0x01;
/// A whole number.
pub const INTEGER: u8 = 0x02;
/// A string of bits; the first octet is the number of unused bits.
pub const BIT_STRING: u8 = 0x03;
/// A string of octets.
pub const OCTET_STRING: u8 = 0x04;
/// A registered object identifier.
pub const OBJECT_IDENTIFIER: u8 = 0x06;
/// The type that Go writes for strings of its character set.
pub const PRINTABLE_STRING: u8 = 0x13;
/// `YYMMDDHHMMSSZ`, for years from 1950 to 2049.
pub const UTC_TIME: u8 = 0x17;
/// `YYYYMMDDHHMMSSZ`.
pub const GENERALIZED_TIME: u8 = 0x18;
/// Elements in a fixed order.
pub const SEQUENCE: u8 = 0x30;
/// Elements without order.
pub const SET: u8 = 0x31;

/// The tag of a constructed, context-specific element: `[n]`.
pub const fn context(n: u8) -> u8 {
    0xa0 | n
}

/// The unread rest of the input.
#[derive(Clone, Copy, Debug)]
pub struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// Reads `input` from its start.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether the whole input has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element of any tag: its tag, its contents, and the whole element.
    pub fn any(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, contents) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (octets, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let number =
                    octets.iter().fold(0, |number: u64, octet| number << 8 | u64::from(*octet));
                (usize::try_from(number).ok()?, rest)
            }
            _ => return None,
        };
        let (contents, after) = contents.split_at_checked(length)?;
        let (whole, _) = self.0.split_at_checked(self.0.len() - after.len())?;
        self.0 = after;
        Some((tag, contents, whole))
    }

    /// The contents of the next element, if it has this tag.
    pub fn next(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut reader = *self;
        let (found, contents, _) = reader.any()?;
        if found != tag {
            return None;
        }
        *self = reader;
        Some(contents)
    }

    /// A reader of the contents of the next element, if it has this tag.
    pub fn inside(&mut self, tag: u8) -> Option<Self> {
        self.next(tag).map(Self::new)
    }
}

/// Encodes an element with the concatenation of `parts` as its contents.
pub fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let octets = length.to_be_bytes();
    let significant = octets.iter().position(|octet| *octet != 0);
    let octets = octets.get(significant.unwrap_or(octets.len())..);
    let octets = octets.unwrap_or_default();
    let mut element = vec![tag];
    match octets {
        [] => element.push(0),
        [short @ 0..=0x7f] => element.push(*short),
        long => {
            element.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
            element.extend_from_slice(long);
        }
    }
    for part in parts {
        element.extend_from_slice(part);
    }
    element
}

/// Each beginning of `whole`, and then `whole` with each octet replaced.
#[cfg(test)]
pub(crate) fn damaged(whole: &[u8]) -> (Vec<&[u8]>, Vec<Vec<u8>>) {
    let replaced = |place| {
        [0, 1, 0x30, 0x7f, 0x80, 0x84, 0xff].map(|octet| {
            let mut replaced = whole.to_vec();
            replaced[place] = octet;
            replaced
        })
    };
    let places = 0..whole.len();
    (places.clone().map(|length| &whole[..length]).collect(), places.flat_map(replaced).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_has_lines_of_64_characters() {
        let line = "A".repeat(64);
        let want = format!("-----BEGIN X-----\n{line}\nAA==\n-----END X-----\n");
        assert_eq!(pem("X", &[0; 49]), want);
    }

    #[test]
    fn times_are_parsed_as_in_rfc_5280() {
        for (tag, text, want) in [
            (UTC_TIME, "261121061925Z", Some("2026-11-21T06:19:25Z")),
            (UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (UTC_TIME, "700101000001Z", Some("1970-01-01T00:00:01Z")),
            (UTC_TIME, "500101000000Z", Some("1970-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "20500101000000Z", Some("2050-01-01T00:00:00Z")),
            (GENERALIZED_TIME, "99991231235959Z", Some("9999-12-31T23:59:59Z")),
            (GENERALIZED_TIME, "00010101000000Z", Some("1970-01-01T00:00:00Z")),
            (UTC_TIME, "20261121061925Z", None),
            (GENERALIZED_TIME, "261121061925Z", None),
            (GENERALIZED_TIME, "20261121061925+0100", None),
            (UTC_TIME, "261321061925Z", None),
            (UTC_TIME, "260230061925Z", None),
            (GENERALIZED_TIME, "21000229000000Z", None),
            (UTC_TIME, "2611210619é5Z", None),
            (UTC_TIME, "", None),
            (INTEGER, "261121061925Z", None),
        ] {
            let time = time(&mut DerReader::new(&element(tag, &[text.as_bytes()])));
            assert_eq!(time.map(Wall::time).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn a_truncated_certificate_is_none_and_a_changed_one_causes_no_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, value) in [
            (rcgen::DnType::CountryName, "CH"),
            (rcgen::DnType::OrganizationName, "system:nodes"),
            (rcgen::DnType::CommonName, "system:node:pi-3"),
        ] {
            params.distinguished_name.push(kind, value);
        }
        params.not_before = rcgen::date_time_ymd(2026, 5, 2);
        params.not_after = rcgen::date_time_ymd(2050, 5, 2);
        let certificate = params.self_signed(&key).unwrap();
        let whole = certificate.der().as_ref();
        let leaf = Leaf::parse(whole).unwrap();
        assert_eq!(
            leaf,
            Leaf {
                subject: Subject::of_node("pi-3"),
                not_before: Wall::parse("2026-05-02T00:00:00Z").unwrap(),
                not_after: Wall::parse("2050-05-02T00:00:00Z").unwrap(),
                public_key: rcgen::PublicKeyData::subject_public_key_info(&key),
            }
        );
        assert_eq!(leaf.subject.node_name(), Some("pi-3"));
        let (cut, changed) = damaged(whole);
        assert_eq!(cut.iter().find(|cut| Leaf::parse(cut).is_some()), None);
        // A changed octet may give another value or none.
        for changed in changed {
            let _ = Leaf::parse(&changed);
        }
    }

    #[test]
    fn a_request_survives_a_round_trip() {
        let info = RequestInfo {
            subject: Subject::of_node("pi-3"),
            public_key: element(SEQUENCE, &[b"key"]),
        };
        let whole = element(SEQUENCE, &[&info.encode()]);
        let text = pem("CERTIFICATE REQUEST", &whole);
        assert_eq!(RequestInfo::of_pem(text.as_bytes()), Some(info));
        assert_eq!(RequestInfo::of_pem(b"CERTIFICATE REQUEST"), None);
        let other = pem("CERTIFICATE", &whole);
        assert_eq!(RequestInfo::of_pem(other.as_bytes()), None);
    }

    #[test]
    fn an_element_of_any_length_survives_a_round_trip() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536, 1 << 20] {
            let contents = vec![7; length];
            let written = element(OCTET_STRING, &[&contents, &[]]);
            let mut reader = DerReader::new(&written);
            let mut again = reader;
            assert_eq!(reader.next(OCTET_STRING).unwrap(), contents, "{length}");
            assert!(reader.is_empty());
            assert_eq!(again.any().unwrap().2, written);
        }
        assert_eq!(element(SEQUENCE, &[&[5, 0], &[5, 0]]), [0x30, 4, 5, 0, 5, 0]);
    }

    #[test]
    fn a_truncated_or_too_long_element_is_none() {
        for bytes in [
            &[][..],
            &[0x30],
            &[0x30, 1],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x81],
            &[0x30, 0x82, 1],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x85, 0, 0, 0, 0, 0],
        ] {
            assert!(DerReader::new(bytes).any().is_none(), "{bytes:?}");
        }
    }

    #[test]
    fn another_tag_does_not_advance_the_reader() {
        let mut reader = DerReader::new(&[2, 1, 9]);
        assert_eq!(reader.next(SEQUENCE), None);
        assert_eq!(reader.next(INTEGER), Some(&[9][..]));
    }
}
