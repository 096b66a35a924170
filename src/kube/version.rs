//! Kubernetes versions, such as `v1.36.2` and `v1.33.4+k3s1`.

/// `MAJOR.MINOR.PATCH` of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 1 for every Kubernetes so far.
    pub major: u32,
    /// Skew is counted in minor versions.
    pub minor: u32,
    /// The release of the minor version.
    pub patch: u32,
}

impl Version {
    /// Parses a semantic version with the prefix `v`, with or without a suffix: apimachinery
    /// `pkg/util/version` ParseSemantic, which kubeadm uses. `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').filter(|text| text.len() < 128)?;
        let end = text.find(['-', '+']).unwrap_or(text.len());
        let (numbers, suffix) = text.split_at_checked(end)?;
        let mut numbers = numbers.split('.').map(number);
        let version =
            Self { major: numbers.next()??, minor: numbers.next()??, patch: numbers.next()?? };
        (numbers.next().is_none() && is_suffix(suffix)).then_some(version)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Digits without a leading zero.
fn number(text: &str) -> Option<u32> {
    (is_digits(text) && !is_padded(text)).then(|| text.parse().ok())?
}

/// Empty, `-PRERELEASE`, `+BUILD` or both, each of identifiers separated by dots. A number in
/// PRERELEASE has no leading zero (semver.org 2.0.0 §9 and §10).
pub(crate) fn is_suffix(text: &str) -> bool {
    let is_identifier = |part: &str| {
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        !part.is_empty() && part.bytes().all(is_valid)
    };
    let is_plain = |part: &str| is_identifier(part) && !(is_digits(part) && is_padded(part));
    let (release, build) = match text.split_once('+') {
        Some((release, build)) => (release, Some(build)),
        None => (text, None),
    };
    let is_release = match release.strip_prefix('-') {
        Some(release) => release.split('.').all(is_plain),
        None => release.is_empty(),
    };
    is_release && build.is_none_or(|build| build.split('.').all(is_identifier))
}

/// Whether a number has a leading zero.
pub(crate) fn is_padded(number: &str) -> bool {
    number.len() > 1 && number.starts_with('0')
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// apimachinery `pkg/util/version/version_test.go` TestSemanticVersions, with the prefix `v`,
    /// which a kubelet's version has.
    #[test]
    fn semantic_versions_are_parsed() {
        for (text, want) in [
            ("v1.36.2", "v1.36.2"),
            ("v0.0.0", "v0.0.0"),
            ("v1.36.2-nodelet.0.1.0", "v1.36.2"),
            ("v1.33.4+k3s1", "v1.33.4"),
            ("v1.31.5-gke.1068000", "v1.31.5"),
            ("v1.30.0-eks-036c24b", "v1.30.0"),
            ("v1.37.0-alpha.1.7+0b1e2f", "v1.37.0"),
            ("v10.20.4294967295", "v10.20.4294967295"),
            // Not a number, 0 itself, and §10.
            ("v1.36.2-01a.0+01", "v1.36.2"),
        ] {
            let version = Version::parse(text).map(|version| version.to_string());
            assert_eq!(version.as_deref(), Some(want), "{text}");
        }
        let bad = "v 1.36.2 v1 v1.36 v1.36.2.1 v1.036.2 v1.36.x v1.36.2- v1.36.2+ v1.36.2-a..b \
                   v1.36.2-01 v1.36.2-a.00 v1.36.2-a_b v1.36.-2 v1.+36.2 v1.36.4294967296 \
                   v-1.36.2 vv1.36.2 v1.36.2-ä";
        for text in bad.split(' ').chain(["", "v1.36.2 ", " v1.36.2", "v1.36.2\n"]) {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
        assert_eq!(Version::parse(&format!("v1.36.2-{}", "a".repeat(200))), None);
    }
}
