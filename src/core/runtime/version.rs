//! `status.nodeInfo.containerRuntimeVersion`: the version part, as apimachinery
//! `pkg/util/version` prints a parsed version.

use std::fmt::Write;

use crate::kube::version::{is_padded, is_suffix};

/// The printed form of `version`; `None` if it is no version. A semantic version is printed whole,
/// any other one as its numbers: `1.6.20~ds1` is `1.6.20`.
pub(super) fn parse(version: &str) -> Option<String> {
    let text = version.trim_start();
    let text = text.strip_prefix('v').unwrap_or(text);
    // `digits(.digits)*`, then the rest.
    let mut numbers: Vec<&str> = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let (digits, after) = rest.split_at(end.unwrap_or(rest.len()));
        numbers.push(digits);
        match after.strip_prefix('.') {
            Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
            _ => {
                rest = after;
                break;
            }
        }
    }
    let values: Option<Vec<u64>> = numbers.iter().map(|digits| digits.parse().ok()).collect();
    let values = values?;
    let is_semantic = numbers.len() == 3 && !numbers.iter().any(|n| is_padded(n));
    if is_semantic && is_suffix(rest) {
        let text = numbers.join(".");
        return Some(text + rest);
    }
    let first = numbers.first()?;
    if numbers.len() < 2 || is_padded(first) {
        return None;
    }
    let mut text = first.to_string();
    for value in values.iter().skip(1) {
        let _ = write!(text, ".{value}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measured versions of containerd, dockerd and Podman, and the strings of version_test.go
    /// TestSemanticVersions, TestBadSemanticVersions, TestGenericVersions and
    /// TestBadGenericVersions.
    #[test]
    fn a_version_is_printed_as_upstream_prints_it() {
        for (version, want) in [
            ("1.6.20~ds1", Some("1.6.20")),
            ("2.1.9+unknown", Some("2.1.9+unknown")),
            ("20.10.24+dfsg1", Some("20.10.24+dfsg1")),
            ("5.4.2", Some("5.4.2")),
            ("v1.7.24", Some("1.7.24")),
            ("  v1.2.3", Some("1.2.3")),
            ("1.29.0-rc.1+meta.7", Some("1.29.0-rc.1+meta.7")),
            ("0.0.1-alpha", Some("0.0.1-alpha")),
            ("1.0.0-x-y-z.-", Some("1.0.0-x-y-z.-")),
            ("1.0.0+001", Some("1.0.0+001")),
            // Not semantic.
            ("1.0.0-01", Some("1.0.0")),
            ("1.0.0-", Some("1.0.0")),
            ("1.0.0+", Some("1.0.0")),
            ("1.0.0-a..b", Some("1.0.0")),
            ("1.02.3", Some("1.2.3")),
            ("17.03.1-ce", Some("17.3.1")),
            ("1.11.2-beta with text", Some("1.11.2")),
            ("2", None),
            ("02.1", None),
            ("0.1", Some("0.1")),
            ("1.2.3.4", Some("1.2.3.4")),
            ("1.2.", Some("1.2")),
            ("1.2.3 ", Some("1.2.3")),
            ("99999999999999999999.1", None),
            ("", None),
            ("v", None),
            ("vv1.2", None),
            ("unknown", None),
            (".1.2", None),
            ("-1.2", None),
        ] {
            assert_eq!(parse(version).as_deref(), want, "{version:?}");
        }
    }
}
