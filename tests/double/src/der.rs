//! Just enough DER to read who a certificate or a certificate request is about.

use std::net::IpAddr;

/// One element: its tag, its contents, and everything from its tag on (to sign or to copy).
#[derive(Clone, Copy)]
pub(crate) struct Element<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    pub(crate) whole: &'a [u8],
}

/// Reads the first element of `input`; returns it and what follows it.
pub(crate) fn element(input: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (&tag, after_tag) = input.split_first()?;
    let (&first, mut rest) = after_tag.split_first()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        let octets = usize::from(first & 0x7f);
        if octets == 0 || octets > 4 || rest.len() < octets {
            return None;
        }
        length = rest[..octets].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        rest = &rest[octets..];
    }
    if rest.len() < length {
        return None;
    }
    let head = input.len() - rest.len();
    Some((
        Element { tag, content: &rest[..length], whole: &input[..head + length] },
        &rest[length..],
    ))
}

/// All elements of a constructed element's contents.
pub(crate) fn children(content: &[u8]) -> Option<Vec<Element<'_>>> {
    let mut rest = content;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (one, after) = element(rest)?;
        found.push(one);
        rest = after;
    }
    Some(found)
}

/// Common name and organisations of a subject.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    pub(crate) organizations: Vec<String>,
}

/// Reads an X.501 name (the contents of its outer SEQUENCE).
pub(crate) fn subject(name: &[u8]) -> Option<Subject> {
    const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    let mut found = Subject::default();
    for set in children(name)? {
        for pair in children(set.content)? {
            let parts = children(pair.content)?;
            let [oid, value] = parts.as_slice() else {
                return None;
            };
            let text = String::from_utf8_lossy(value.content).into_owned();
            match oid.content {
                COMMON_NAME => found.common_name = text,
                ORGANIZATION => found.organizations.push(text),
                _ => {}
            }
        }
    }
    Some(found)
}

/// One element around these contents, which are shorter than 64 KiB.
pub(crate) fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u16::try_from(content.len()).expect("a short element").to_be_bytes();
    let mut whole = vec![tag, 0x82];
    match length {
        [0, short @ ..0x80] => whole[1] = short,
        [0, short] => {
            whole[1] = 0x81;
            whole.push(short);
        }
        length => whole.extend(length),
    }
    whole.extend(content);
    whole
}

/// An X.509 certificate, taken apart.
pub(crate) struct Certificate<'a> {
    /// Without version and extensions.
    pub(crate) is_version_1: bool,
    /// The signed part.
    pub(crate) info: &'a [u8],
    /// Serial number, algorithm, issuer, validity, subject and key: what each version has.
    pub(crate) fields: [Element<'a>; 6],
    /// The algorithm of the signature.
    pub(crate) algorithm: Element<'a>,
    /// The signature's bits.
    pub(crate) signature: &'a [u8],
}

impl<'a> Certificate<'a> {
    pub(crate) fn parse(der: &'a [u8]) -> Option<Self> {
        let [info, algorithm, signature] =
            children(element(der)?.0.content)?.as_slice().try_into().ok()?;
        let fields = children(info.content)?;
        // the version is optional and tagged [0]
        let is_version_1 = fields.first()?.tag != 0xa0;
        let fields = fields.get(usize::from(!is_version_1)..)?.first_chunk().copied()?;
        let signature = signature.content.get(1..)?;
        Some(Self { is_version_1, info: info.whole, fields, algorithm, signature })
    }

    pub(crate) fn subject(&self) -> Option<Subject> {
        subject(self.fields[4].content)
    }

    /// SubjectPublicKeyInfo.
    pub(crate) fn key(&self) -> &'a [u8] {
        self.fields[5].whole
    }

    /// The contents of the public key, without the count of unused bits.
    pub(crate) fn key_bits(&self) -> Option<&'a [u8]> {
        children(self.fields[5].content)?.get(1)?.content.get(1..)
    }

    /// Whether it is valid at a time that is written as GeneralizedTime.
    pub(crate) fn is_valid_at(&self, now: &str) -> Option<bool> {
        let times = children(self.fields[3].content)?;
        let [from, until] = times.as_slice() else { return None };
        let [from, until] = [from, until].map(|time| {
            let century = if time.tag == 0x17 { "20" } else { "" };
            format!("{century}{}", String::from_utf8_lossy(time.content))
        });
        Some(from.as_str() <= now && now <= until.as_str())
    }
}

/// A PKCS#10 certificate request, taken apart.
pub(crate) struct CertificateRequest<'a> {
    pub(crate) subject: Subject,
    /// The signed part.
    pub(crate) info: &'a [u8],
    /// Contents of the algorithm SEQUENCE of the public key.
    pub(crate) key_algorithm: &'a [u8],
    /// Contents of the public key BIT STRING, without the count of unused bits.
    pub(crate) key: &'a [u8],
    /// The signature's bits.
    pub(crate) signature: &'a [u8],
    /// Whether attributes (such as requested extensions: alternative names) are present.
    pub(crate) has_attributes: bool,
    /// The DNS names and addresses in them.
    pub(crate) alt_names: Vec<String>,
}

/// The subject's alternative names in the attribute extensionRequest of a request.
fn alt_names(attributes: &[u8]) -> Option<Vec<String>> {
    const ALT_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
    let mut found = Vec::new();
    for attribute in children(attributes)? {
        let [_, values] = children(attribute.content)?.try_into().ok()?;
        for extensions in children(values.content)? {
            for extension in children(extensions.content)? {
                let parts = children(extension.content)?;
                if parts.first()?.content != ALT_NAMES {
                    continue;
                }
                let (names, _) = element(parts.last()?.content)?;
                found.extend(children(names.content)?.iter().filter_map(alt_name));
            }
        }
    }
    Some(found)
}

fn alt_name(name: &Element<'_>) -> Option<String> {
    match (name.tag, name.content.len()) {
        (0x82, _) => String::from_utf8(name.content.to_vec()).ok(),
        (0x87, 4) => Some(IpAddr::from(<[u8; 4]>::try_from(name.content).ok()?).to_string()),
        (0x87, 16) => Some(IpAddr::from(<[u8; 16]>::try_from(name.content).ok()?).to_string()),
        _ => None,
    }
}

/// Takes a PKCS#10 request apart.
pub(crate) fn certificate_request(der: &[u8]) -> Option<CertificateRequest<'_>> {
    let (outer, _) = element(der)?;
    let parts = children(outer.content)?;
    let [info, _algorithm, signature] = parts.as_slice() else {
        return None;
    };
    let fields = children(info.content)?;
    let name = fields.get(1)?;
    let key = children(fields.get(2)?.content)?;
    let [algorithm, bits] = key.as_slice() else {
        return None;
    };
    Some(CertificateRequest {
        subject: subject(name.content)?,
        info: info.whole,
        key_algorithm: algorithm.content,
        key: bits.content.get(1..)?,
        signature: signature.content.get(1..)?,
        has_attributes: fields.get(3).is_some_and(|last| !last.content.is_empty()),
        alt_names: fields.get(3).map_or(Some(Vec::new()), |last| alt_names(last.content))?,
    })
}
