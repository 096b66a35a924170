//! Who a certificate or a certificate request is about, read by yasna.

use yasna::tags::TAG_UTCTIME;
use yasna::{Tag, construct_der, parse_der};

/// The elements of a SEQUENCE.
pub(crate) fn elements(der: &[u8]) -> Option<Vec<Vec<u8>>> {
    parse_der(der, |all| all.collect_sequence_of(|element| element.read_der())).ok()
}

/// A SEQUENCE of these elements.
pub(crate) fn sequence(elements: &[Vec<u8>]) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            for element in elements {
                writer.next().write_der(element);
            }
        });
    })
}

/// The contents of a BIT STRING.
fn bits(der: &[u8]) -> Option<Vec<u8>> {
    parse_der(der, |bits| bits.read_bitvec_bytes()).ok().map(|(bytes, _)| bytes)
}

/// The algorithm of a SubjectPublicKeyInfo, and the contents of its key.
fn key(info: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let [algorithm, key] = elements(info)?.try_into().ok()?;
    Some((algorithm, bits(&key)?))
}

/// Common name and organisations of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

impl Subject {
    fn parse(name: &[u8]) -> Option<Self> {
        let sets = parse_der(name, |sets| {
            sets.collect_sequence_of(|set| {
                set.collect_set_of(|pair| {
                    pair.read_sequence(|parts| {
                        Ok((parts.next().read_oid()?, parts.next().read_tagged_der()?))
                    })
                })
            })
        });
        let mut found = Self::default();
        for (oid, value) in sets.ok()?.into_iter().flatten() {
            let text = String::from_utf8_lossy(value.value()).into_owned();
            match oid.components().as_slice() {
                [2, 5, 4, 3] => found.common_name = text,
                [2, 5, 4, 10] => found.organizations.push(text),
                _ => {}
            }
        }
        Some(found)
    }
}

/// An X.509 certificate, taken apart.
pub(crate) struct Certificate {
    /// Without version and extensions.
    pub(crate) is_version_1: bool,
    /// The signed part.
    pub(crate) info: Vec<u8>,
    /// Serial number, algorithm, issuer, validity, subject and key: what each version has.
    pub(crate) fields: [Vec<u8>; 6],
    /// The algorithm of the signature.
    pub(crate) algorithm: Vec<u8>,
    /// The signature's bits.
    pub(crate) signature: Vec<u8>,
}

impl Certificate {
    pub(crate) fn parse(der: &[u8]) -> Option<Self> {
        let [info, algorithm, signature] = elements(der)?.try_into().ok()?;
        let mut fields = elements(&info)?;
        // The version is optional and tagged [0].
        let is_version_1 = *fields.first()?.first()? != 0xa0;
        fields.drain(..usize::from(!is_version_1));
        fields.truncate(6);
        let (fields, signature) = (fields.try_into().ok()?, bits(&signature)?);
        Some(Self { is_version_1, info, fields, algorithm, signature })
    }

    pub(crate) fn subject(&self) -> Option<Subject> {
        Subject::parse(&self.fields[4])
    }

    /// SubjectPublicKeyInfo.
    pub(crate) fn key(&self) -> &[u8] {
        &self.fields[5]
    }

    /// The contents of the public key.
    pub(crate) fn key_bits(&self) -> Option<Vec<u8>> {
        key(self.key()).map(|(_, bits)| bits)
    }

    /// Start and end, as GeneralizedTime.
    pub(crate) fn validity(&self) -> Option<[String; 2]> {
        let times = parse_der(&self.fields[3], |all| {
            all.collect_sequence_of(|time| time.read_tagged_der())
        });
        let [from, until] = times.ok()?.try_into().ok()?;
        Some([from, until].map(|time| {
            let century = if time.tag() == TAG_UTCTIME { "20" } else { "" };
            format!("{century}{}", String::from_utf8_lossy(time.value()))
        }))
    }
}

/// Whether a time is within a validity, all written as GeneralizedTime.
pub(crate) fn is_within([from, until]: &[String; 2], now: &str) -> bool {
    from.as_str() <= now && now <= until.as_str()
}

/// A PKCS#10 certificate request, taken apart.
pub(crate) struct CertificateRequest {
    pub(crate) subject: Subject,
    /// The signed part.
    pub(crate) info: Vec<u8>,
    /// The algorithm of the public key.
    pub(crate) key_algorithm: Vec<u8>,
    /// The contents of the public key.
    pub(crate) key: Vec<u8>,
    /// The signature's bits.
    pub(crate) signature: Vec<u8>,
    /// The extension subjectAltName in its attributes, empty if not there; `None` without
    /// attributes.
    pub(crate) alt_names: Option<Vec<u8>>,
}

impl CertificateRequest {
    pub(crate) fn parse(der: &[u8]) -> Option<Self> {
        let [info, _algorithm, signature] = elements(der)?.try_into().ok()?;
        let [_version, subject, own_key, attributes] = elements(&info)?.try_into().ok()?;
        let subject = Subject::parse(&subject)?;
        let (key_algorithm, key) = key(&own_key)?;
        // The attributes are a SET with the tag [0]; without one only the tag and the length 0.
        let alt_names = match attributes.len() {
            2 => None,
            _ => Some(alt_names(&attributes)?),
        };
        Some(Self { subject, info, key_algorithm, key, signature: bits(&signature)?, alt_names })
    }
}

/// The extension subjectAltName in the attribute extensionRequest of a request.
fn alt_names(attributes: &[u8]) -> Option<Vec<u8>> {
    let extensions = parse_der(attributes, |tagged| {
        tagged.read_tagged_implicit(Tag::context(0), |all| {
            all.collect_set_of(|attribute| {
                attribute.read_sequence(|parts| {
                    parts.next().read_oid()?;
                    parts.next().collect_set_of(|value| {
                        value.collect_sequence_of(|extension| extension.read_der())
                    })
                })
            })
        })
    });
    for extension in extensions.ok()?.into_iter().flatten().flatten() {
        let parts = elements(&extension)?;
        let oid = parse_der(parts.first()?, |oid| oid.read_oid()).ok()?;
        if oid.components().as_slice() == ALT_NAMES {
            let names = parse_der(parts.last()?, |octets| octets.read_bytes()).ok()?;
            let decoded = parse_der(&names, |all| all.collect_sequence_of(|n| n.read_tagged_der()));
            return decoded.is_ok().then_some(names);
        }
    }
    Some(Vec::new())
}

/// subjectAltName.
pub(crate) const ALT_NAMES: [u64; 4] = [2, 5, 29, 17];
