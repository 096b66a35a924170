//! Parses the fields of certificates that a node needs, and encodes certificate signing requests.
//!
//! Only the node's own certificates are parsed here. rustls verifies those of the server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};

use crate::kube::der::{self, Reader, element};
use crate::kube::time::Wall;

/// id-at-commonName and id-at-organizationName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];

/// The group of all nodes (`pkg/auth/nodeidentifier/default.go`).
pub const NODES: &str = "system:nodes";
/// What the user name of a node begins with.
pub const NODE: &str = "system:node:";

/// The subject of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// `CN`, the user name; empty if there is none.
    pub common_name: String,
    /// `O`, the groups of the user.
    pub organizations: Vec<String>,
}

impl Subject {
    /// The subject of the node `name`.
    pub fn of_node(name: &str) -> Self {
        Self {
            common_name: format!("{NODE}{name}"),
            organizations: vec![NODES.to_owned()],
        }
    }

    /// The name of the node; `None` if the user is not a node.
    pub fn node_name(&self) -> Option<&str> {
        self.common_name.strip_prefix(NODE)
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
    /// Parses a DER certificate; `None` if it is not valid.
    pub fn parse(certificate: &[u8]) -> Option<Self> {
        let mut certificate = Reader::new(certificate).inside(der::SEQUENCE)?;
        let mut body = certificate.inside(der::SEQUENCE)?;
        // The version is absent in version 1.
        let _ = body.next(der::context(0));
        body.next(der::INTEGER)?;
        body.next(der::SEQUENCE)?;
        let _issuer = body.next(der::SEQUENCE)?;
        let mut validity = body.inside(der::SEQUENCE)?;
        let not_before = time(&mut validity)?;
        let not_after = time(&mut validity)?;
        Some(Self {
            not_before,
            not_after,
            subject: subject(body.inside(der::SEQUENCE)?)?,
            public_key: public_key(&mut body)?,
        })
    }

    /// Parses the first certificate of PEM text.
    pub fn of_pem(text: &[u8]) -> Option<Self> {
        Self::parse(&CertificateDer::pem_slice_iter(text).next()?.ok()?)
    }
}

/// The unsigned content of a PKCS#10 request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Requested subject.
    pub subject: Subject,
    /// SubjectPublicKeyInfo, DER.
    pub public_key: Vec<u8>,
}

impl Wanted {
    /// CertificationRequestInfo (RFC 2986), DER, byte for byte as Go encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let organizations: Vec<Vec<u8>> = self
            .subject
            .organizations
            .iter()
            .map(|name| attribute(ORGANIZATION, name))
            .collect();
        let organizations: Vec<&[u8]> = organizations.iter().map(Vec::as_slice).collect();
        let name = [
            element(der::SET, &organizations),
            element(
                der::SET,
                &[&attribute(COMMON_NAME, &self.subject.common_name)],
            ),
        ];
        let version = element(der::INTEGER, &[&[0]]);
        let name = element(der::SEQUENCE, &[&name.concat()]);
        let no_attributes = element(der::context(0), &[]);
        element(
            der::SEQUENCE,
            &[&version, &name, &self.public_key, &no_attributes],
        )
    }

    /// Parses a request in PEM text. The signature is not verified; the server does that.
    pub fn of_pem(text: &[u8]) -> Option<Self> {
        let request = CertificateSigningRequestDer::from_pem_slice(text).ok()?;
        let mut request = Reader::new(&request).inside(der::SEQUENCE)?;
        let mut info = request.inside(der::SEQUENCE)?;
        info.next(der::INTEGER)?;
        Some(Self {
            subject: subject(info.inside(der::SEQUENCE)?)?,
            public_key: public_key(&mut info)?,
        })
    }
}

/// A signed request for the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRequest {
    /// Content of the request.
    pub wanted: Wanted,
    /// The PKCS#10 request, DER.
    pub der: Vec<u8>,
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
    let kind = element(der::OBJECT_IDENTIFIER, &[kind]);
    let value = element(der::PRINTABLE_STRING, &[value.as_bytes()]);
    element(der::SEQUENCE, &[&kind, &value])
}

fn subject(mut name: Reader<'_>) -> Option<Subject> {
    let mut subject = Subject::default();
    while !name.is_empty() {
        let mut relative = name.inside(der::SET)?;
        while !relative.is_empty() {
            let mut pair = relative.inside(der::SEQUENCE)?;
            let kind = pair.next(der::OBJECT_IDENTIFIER)?;
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
fn public_key(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
    let (tag, _, whole) = reader.any()?;
    (tag == der::SEQUENCE).then(|| whole.to_vec())
}

/// Time of RFC 5280, 4.1.2.5: UTC, with seconds.
fn time(reader: &mut Reader<'_>) -> Option<Wall> {
    let (tag, text, _) = reader.any()?;
    let text = str::from_utf8(text).ok()?;
    let digits = text.strip_suffix('Z')?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = match (tag, digits.len()) {
        (der::UTC_TIME, 12) if digits < "50" => format!("20{digits}"),
        (der::UTC_TIME, 12) => format!("19{digits}"),
        (der::GENERALIZED_TIME, 14) => digits.to_owned(),
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
            (der::UTC_TIME, "261121061925Z", Some("2026-11-21T06:19:25Z")),
            (der::UTC_TIME, "491231235959Z", Some("2049-12-31T23:59:59Z")),
            (der::UTC_TIME, "700101000001Z", Some("1970-01-01T00:00:01Z")),
            (der::UTC_TIME, "500101000000Z", Some("1970-01-01T00:00:00Z")),
            (
                der::GENERALIZED_TIME,
                "20500101000000Z",
                Some("2050-01-01T00:00:00Z"),
            ),
            (
                der::GENERALIZED_TIME,
                "99991231235959Z",
                Some("9999-12-31T23:59:59Z"),
            ),
            (
                der::GENERALIZED_TIME,
                "00010101000000Z",
                Some("1970-01-01T00:00:00Z"),
            ),
            (der::UTC_TIME, "20261121061925Z", None),
            (der::GENERALIZED_TIME, "261121061925Z", None),
            (der::GENERALIZED_TIME, "20261121061925+0100", None),
            (der::UTC_TIME, "261321061925Z", None),
            (der::UTC_TIME, "260230061925Z", None),
            (der::GENERALIZED_TIME, "21000229000000Z", None),
            (der::UTC_TIME, "2611210619é5Z", None),
            (der::UTC_TIME, "", None),
            (der::INTEGER, "261121061925Z", None),
        ] {
            let time = time(&mut Reader::new(&element(tag, &[text.as_bytes()])));
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
                subject: Subject {
                    common_name: "system:node:pi-3".into(),
                    organizations: vec!["system:nodes".into()],
                },
                not_before: Wall::parse("2026-05-02T00:00:00Z").unwrap(),
                not_after: Wall::parse("2050-05-02T00:00:00Z").unwrap(),
                public_key: rcgen::PublicKeyData::subject_public_key_info(&key),
            }
        );
        for length in 0..whole.len() {
            assert_eq!(Leaf::parse(whole.get(..length).unwrap()), None, "{length}");
        }
        // A changed octet may give another value or none.
        for place in 0..whole.len() {
            for octet in [0, 1, 0x30, 0x7f, 0x80, 0x84, 0xff] {
                let mut broken = whole.to_vec();
                *broken.get_mut(place).unwrap() = octet;
                let _ = Leaf::parse(&broken);
            }
        }
    }

    #[test]
    fn the_subject_of_a_node_has_its_name_and_group() {
        let node = Subject::of_node("pi-3");
        assert_eq!(node.common_name, "system:node:pi-3");
        assert_eq!(node.organizations, ["system:nodes"]);
        assert_eq!(node.node_name(), Some("pi-3"));
        assert_eq!(Subject::default().node_name(), None);
    }

    #[test]
    fn a_request_survives_a_round_trip() {
        let wanted = Wanted {
            subject: Subject {
                common_name: "system:node:pi-3".into(),
                organizations: vec!["system:nodes".into()],
            },
            public_key: element(der::SEQUENCE, &[b"key"]),
        };
        let whole = element(der::SEQUENCE, &[&wanted.encode()]);
        let text = pem("CERTIFICATE REQUEST", &whole);
        assert_eq!(Wanted::of_pem(text.as_bytes()), Some(wanted));
        assert_eq!(Wanted::of_pem(b"CERTIFICATE REQUEST"), None);
        let other = pem("CERTIFICATE", &whole);
        assert_eq!(Wanted::of_pem(other.as_bytes()), None);
    }
}
