//! A certificate of a chain, as webpki can judge it.
//!
//! webpki builds and verifies chains, and refuses some certificates that Go's `crypto/x509` takes.
//! [`Plain`] is a copy of a certificate without what webpki need not see. Of what is left out, the
//! name constraints are judged here. The signature is that of the whole certificate.

use super::x509::{
    ALT_NAMES, BOOLEAN, DNS_NAME, DerReader, EXTENDED_KEY_USAGE, INTEGER, IP_ADDRESS,
    OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, context, element, extension,
};

/// Extensions of RFC 5280, id-ce.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 19];
const NAME_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 30];
const CRL_DISTRIBUTION_POINTS: &[u8] = &[0x55, 0x1d, 31];
const CERTIFICATE_POLICIES: &[u8] = &[0x55, 0x1d, 32];
const POLICY_MAPPINGS: &[u8] = &[0x55, 0x1d, 33];
const POLICY_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 36];
const INHIBIT_ANY_POLICY: &[u8] = &[0x55, 0x1d, 54];

/// rfc822Name and uniformResourceIdentifier of GeneralName (RFC 5280, 4.2.1.6).
const EMAIL: u8 = 0x81;
const URI: u8 = 0x86;

/// A copy of a certificate, changed where webpki refuses what Go accepts:
///
/// - version 1 or 2: webpki sees version 3 without extensions;
/// - extensions about policies, which webpki refuses if they are critical. They are not evaluated,
///   as by OpenSSL's default;
/// - in the first certificate of a chain, that it is a CA;
/// - name constraints of other kinds than DNS names and addresses of hosts, which [`permits`]
///   judges. Go ignores them if they are neither critical nor of e-mail addresses or URIs.
#[derive(Debug, Default)]
pub struct Plain {
    /// The certificate that webpki sees, DER.
    pub der: Vec<u8>,
    /// TBSCertificate of `der`.
    pub body: Vec<u8>,
    /// TBSCertificate of the whole certificate: what is signed.
    pub signed: Vec<u8>,
    /// The signature of the whole certificate.
    pub signature: Vec<u8>,
    /// Contents of the subject's alternative names.
    pub alt_names: Vec<u8>,
    /// Whether the certificate has name constraints.
    pub has_constraints: bool,
    /// The name constraints that webpki does not see.
    pub limits: Vec<Limit>,
    /// A critical extension that nobody knows, as an object identifier.
    pub unknown: Option<Vec<u8>>,
}

/// A name constraint of a CA.
#[derive(Debug)]
pub struct Limit {
    is_permitted: bool,
    /// The tag of GeneralName.
    kind: u8,
    name: String,
}

impl Plain {
    /// Parses a DER certificate. `None` if it is not valid, or is below version 3 and has
    /// extensions. `is_first`: the certificate is the first one of its chain.
    pub fn parse(certificate: &[u8], is_first: bool) -> Option<Self> {
        let mut outer = DerReader::new(certificate);
        let mut parts = outer.inside(SEQUENCE)?;
        let mut plain = Self::default();
        let (tag, contents, signed) = parts.any()?;
        let mut fields = (tag == SEQUENCE).then(|| DerReader::new(contents))?;
        let version = fields.inside(context(0)).and_then(|mut version| version.next(INTEGER));
        let mut kept = element(context(0), &[&element(INTEGER, &[&[2]])]);
        for _number_algorithm_issuer_validity_subject_key in 0..6 {
            kept.extend_from_slice(fields.any()?.2);
        }
        let _unique_identifiers = (fields.next(0x81), fields.next(0x82));
        if !fields.is_empty() {
            let extensions = fields.inside(context(3))?.inside(SEQUENCE)?;
            let is_whole = version == Some(&[2]) && fields.is_empty();
            let extensions = is_whole.then(|| plain.extensions(extensions, is_first))??;
            kept.extend(element(context(3), &[&element(SEQUENCE, &[&extensions])]));
        }
        let (_, _, algorithm) = parts.any()?;
        let (_, bits, signature) = parts.any()?;
        plain.signature = bits.get(1..)?.to_vec();
        plain.body = element(SEQUENCE, &[&kept]);
        plain.signed = signed.to_vec();
        plain.der = element(SEQUENCE, &[&plain.body, algorithm, signature]);
        (outer.is_empty() && parts.is_empty()).then_some(plain)
    }

    /// The extensions that webpki sees.
    fn extensions(&mut self, mut extensions: DerReader<'_>, is_first: bool) -> Option<Vec<u8>> {
        let mut kept = Vec::new();
        while !extensions.is_empty() {
            let (_, _, whole) = extensions.any()?;
            let mut parts = DerReader::new(whole).inside(SEQUENCE)?;
            let kind = parts.next(OBJECT_IDENTIFIER)?;
            let is_critical = parts.next(BOOLEAN).is_some_and(|is| is != [0]);
            let mut value = DerReader::new(parts.next(OCTET_STRING)?);
            match kind {
                CERTIFICATE_POLICIES | POLICY_MAPPINGS | POLICY_CONSTRAINTS
                | INHIBIT_ANY_POLICY => continue,
                BASIC_CONSTRAINTS if is_first => continue,
                NAME_CONSTRAINTS => {
                    self.has_constraints = true;
                    let seen = self.constraints(value.inside(SEQUENCE)?, is_critical)?;
                    if !seen.is_empty() {
                        kept.extend(extension(kind, &element(SEQUENCE, &[&seen])));
                    }
                    continue;
                }
                ALT_NAMES => self.alt_names.extend_from_slice(value.next(SEQUENCE)?),
                KEY_USAGE | BASIC_CONSTRAINTS | CRL_DISTRIBUTION_POINTS | EXTENDED_KEY_USAGE => {}
                unknown if is_critical => self.unknown = Some(unknown.to_vec()),
                _ => {}
            }
            kept.extend_from_slice(whole);
        }
        Some(kept)
    }

    /// Returns the name constraints that webpki sees. Adds those that [`permits`] judges to
    /// `limits`.
    fn constraints(&mut self, mut value: DerReader<'_>, is_critical: bool) -> Option<Vec<u8>> {
        let mut seen = Vec::new();
        for (tag, is_permitted) in [(context(0), true), (context(1), false)] {
            let mut subtrees = value.inside(tag).unwrap_or(DerReader::new(&[]));
            let mut of_tag = Vec::new();
            while !subtrees.is_empty() {
                let (kind, name, whole) = subtrees.inside(SEQUENCE)?.any()?;
                match kind {
                    EMAIL | URI => {
                        let name = String::from_utf8_lossy(name).into_owned();
                        self.limits.push(Limit { is_permitted, kind, name });
                    }
                    DNS_NAME | IP_ADDRESS => of_tag.extend(element(SEQUENCE, &[whole])),
                    kind if is_critical => {
                        self.limits.push(Limit { is_permitted, kind, name: String::new() });
                    }
                    _ => {}
                }
            }
            if !of_tag.is_empty() {
                seen.extend(element(tag, &[&of_tag]));
            }
        }
        value.is_empty().then_some(seen)
    }
}

/// Whether the `limits` of a CA permit the alternative names of a certificate below this CA. E-mail
/// addresses and URIs are compared as in `crypto/x509`; one that cannot be compared is refused. If
/// the CA limits names of another kind, each certificate is refused.
pub fn permits(limits: &[Limit], alt_names: &[u8]) -> bool {
    if limits.iter().any(|limit| ![EMAIL, URI].contains(&limit.kind)) {
        return false;
    }
    let mut names = DerReader::new(alt_names);
    while let Some((kind, name, _)) = names.any() {
        let of_kind = |is_permitted| {
            limits.iter().filter(move |l| l.kind == kind && l.is_permitted == is_permitted)
        };
        let is_below = |limit: &Limit| is_below(kind, str::from_utf8(name).ok()?, &limit.name);
        let is_excluded = of_kind(false).any(|limit| is_below(limit) != Some(false));
        let mut permitted = of_kind(true).peekable();
        let is_limited = permitted.peek().is_some();
        if is_excluded || is_limited && !permitted.any(|limit| is_below(limit) == Some(true)) {
            return false;
        }
    }
    names.is_empty()
}

/// Whether the constraint `limit` covers `name`; `None` if the two cannot be compared.
fn is_below(kind: u8, name: &str, limit: &str) -> Option<bool> {
    if kind == EMAIL {
        let (user, domain) = name.rsplit_once('@').filter(|(user, _)| !user.is_empty())?;
        return match limit.rsplit_once('@') {
            Some((other, limit)) => Some(user == other && domain.eq_ignore_ascii_case(limit)),
            None => is_in_domain(domain, limit),
        };
    }
    let (_, after) = name.split_once("://")?;
    let authority = after.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let host = host.rsplit_once(':').map_or(host, |(host, _port)| host);
    // An IP address is no name. Of `[::1]` the cut at the last colon has left `[:`.
    let is_address = host.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok();
    (!host.is_empty() && !is_address).then(|| is_in_domain(host, limit))?
}

/// Whether a host is in the domain of a constraint. `example.org` covers itself and
/// `a.example.org`; `.example.org` covers only `a.example.org`.
fn is_in_domain(host: &str, limit: &str) -> Option<bool> {
    let is_valid = |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_graphic());
    if limit.is_empty() {
        return Some(true);
    }
    let domain = limit.strip_prefix('.').unwrap_or(limit);
    if !host.split('.').all(is_valid) || !domain.split('.').all(is_valid) {
        return None;
    }
    let before = host.len().checked_sub(domain.len()).and_then(|at| host.split_at_checked(at));
    Some(before.is_some_and(|(before, end)| {
        let is_part = before.ends_with('.') || before.is_empty() && domain == limit;
        is_part && end.eq_ignore_ascii_case(domain)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube::x509;

    #[test]
    fn a_truncated_or_longer_certificate_is_none_and_a_changed_one_causes_no_panic() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::Rfc822Name("b".into())],
            excluded_subtrees: vec![rcgen::GeneralSubtree::DnsName("c".into())],
        });
        let certificate = params.self_signed(&key).unwrap();
        let whole = certificate.der().as_ref();
        let plain = Plain::parse(whole, true).unwrap();
        // What is plain stays so.
        let again = Plain::parse(&plain.der, true).unwrap();
        assert_eq!((again.der, again.limits.len()), (plain.der, 0));
        assert!(Plain::parse(&[whole, &[0]].concat(), true).is_none());
        let (cut, changed) = x509::damaged(whole);
        assert_eq!(cut.iter().find(|cut| Plain::parse(cut, true).is_some()), None);
        for changed in changed {
            let _ = Plain::parse(&changed, false);
        }
    }

    /// `TestConstraintCases` of Go's `crypto/x509`, as far as it is about these names.
    #[test]
    fn addresses_and_uris_are_compared_as_go_compares_them() {
        for (kind, name, limit, want) in [
            (EMAIL, "foo@example.com", "foo@example.com", Some(true)),
            (EMAIL, "foo@EXAMPLE.com", "foo@example.com", Some(true)),
            (EMAIL, "bar@example.com", "foo@example.com", Some(false)),
            (EMAIL, "foo@example.com", "example.com", Some(true)),
            (EMAIL, "foo@sub.example.com", "example.com", Some(true)),
            (EMAIL, "foo@sub.example.com", ".example.com", Some(true)),
            (EMAIL, "foo@example.com", ".example.com", Some(false)),
            (EMAIL, "foo@notexample.com", "example.com", Some(false)),
            (EMAIL, "foo@com", "example.com", Some(false)),
            (EMAIL, "foo@example.com", "", Some(true)),
            (EMAIL, "example.com", "example.com", None),
            (EMAIL, "@example.com", "example.com", None),
            (URI, "http://example.com/path", "example.com", Some(true)),
            (URI, "spiffe://a@sub.example.com:8080?x", ".example.com", Some(true)),
            (URI, "https://example.org", "example.com", Some(false)),
            (URI, "http://127.0.0.1/", "example.com", None),
            (URI, "http://[fe80::1]:80/", "example.com", None),
            (URI, "urn:example", "example.com", None),
            (URI, "http:///path", "example.com", None),
            (URI, "http://a..example.com/", "example.com", None),
        ] {
            assert_eq!(is_below(kind, name, limit), want, "{name} {limit}");
            // A name that cannot be compared is neither permitted nor not excluded.
            let names = element(kind, &[name.as_bytes()]);
            for is_permitted in [true, false] {
                let limit = Limit { is_permitted, kind, name: limit.to_owned() };
                let other =
                    Limit { is_permitted: true, kind: EMAIL ^ URI ^ kind, name: "a".into() };
                assert_eq!(permits(&[other, limit], &names), want == Some(is_permitted), "{name}");
            }
        }
    }
}
