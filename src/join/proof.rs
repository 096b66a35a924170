//! What proves the server before a credential is sent to it: the signature of kubeadm's
//! `cluster-info`, the pinned keys of its CA, and the digest in a token of k3s.
//!
//! The controller `bootstrapsigner` signs `cluster-info`. Upstream: `cluster-bootstrap/token/jws`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{self, SHA256};
use ring::hmac;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::token::{Bootstrap, Digest, hexadecimal};
use crate::kube::message::{Accept, Request};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{self, Leaf};

/// Most certificates of a bundle. kubeadm writes one; while a CA is replaced there are two.
const MOST_CERTIFICATES: usize = 100;
/// Most digests that an error names.
const NAMED: usize = 3;

/// The remedy of a CA that has expired, by the clock of the board.
const CLOCK: &str = "set the clock of this board, or renew that certificate";
/// The remedy of a `--certificate-authority` that a digest on the command line does not fit.
pub(super) const OTHER_CA: &str = "give the file of that CA, or leave out one of the two";

/// Where a supervisor has the CAs of the cluster.
pub(super) const CACERTS: &str = "/cacerts";

/// The request for the CAs of the cluster. An API server does not answer it with certificates.
pub(super) fn cacerts() -> Request {
    Request::get(CACERTS.to_owned(), Accept::Object)
}

/// The signature of `text` with a bootstrap token: a JWS with detached content (RFC 7515, appendix
/// F), HS256. The caller compares its whole text with the signature in `cluster-info`. The
/// signature in `cluster-info` is never parsed, so the algorithm ("none") and the key id in it
/// cannot matter.
///
/// Upstream: `cluster-bootstrap/token/jws/jws.go`.
pub fn signature(text: &str, token: &Bootstrap) -> String {
    let header = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id);
    let header = URL_SAFE_NO_PAD.encode(header);
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret().as_bytes());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
    let tag = hmac::sign(&key, signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
}

/// The certificates of `pem` whose public key is pinned, as PEM. No other certificate of the bundle
/// becomes a root: kubeadm accepts a whole bundle if one of its certificates is pinned, so that
/// whoever knows the token can add a CA of its own.
///
/// Upstream: `cmd/kubeadm/app/util/pubkeypin`.
pub fn pinned(pem: &[u8], pins: &[Digest], now: Wall) -> Result<String, Fault> {
    let certificates = certificates(pem)?;
    let mut keys = Vec::new();
    let mut roots = String::new();
    let mut unusable = None;
    for certificate in &certificates {
        let Some(leaf) = Leaf::parse(certificate) else {
            unusable = Some("a certificate cannot be parsed".into());
            continue;
        };
        let key = sha256(&leaf.public_key);
        keys.push(format!("sha256:{}", hexadecimal(&key)));
        if !pins.contains(&key) {
            continue;
        }
        // TLS ignores the dates of a root.
        if leaf.not_after < now {
            let (until, clock) = (leaf.not_after.time(), now.time());
            let line = format!("the pinned CA expired at {until}, clock says {clock}");
            unusable = Some(Fault::new(line, CLOCK));
            continue;
        }
        roots += &x509::pem("CERTIFICATE", certificate);
    }
    match (roots.is_empty(), unusable) {
        (false, _) => Ok(roots),
        (true, Some(why)) => Err(why),
        (true, None) => {
            let more = if keys.len() > NAMED { ", …" } else { "" };
            keys.truncate(NAMED);
            let keys = keys.join(", ");
            Err(format!("none of the CAs ({keys}{more}) is pinned").into())
        }
    }
}

/// All certificates of `pem`, as PEM, for a CA that is trusted without a pin.
pub fn unpinned(pem: &[u8]) -> Result<String, String> {
    let certificates = certificates(pem)?;
    Ok(joined(&certificates, &|_| true))
}

/// The certificates of `/cacerts` that the digest of a k3s token covers, as PEM. The digest is that
/// of the text as served, or that of the root of a custom chain in DER form. In the second case k3s
/// trusts everything that is served with the root; here only the root is trusted.
///
/// Upstream: `k3s/pkg/clientaccess/token.go`.
pub fn covered(text: &[u8], hash: &Digest) -> Result<String, String> {
    let certificates = certificates(text)?;
    let of_text = sha256(text);
    let roots = joined(&certificates, &|der| sha256(der) == *hash);
    match certificates.len() {
        2.. if !roots.is_empty() => Ok(roots),
        // The text is stored as served, so that the stored CA has the digest of the token. Encoded
        // again, it could lack comments, or have lines of another length.
        _ if of_text == *hash => String::from_utf8(text.to_vec()).map_err(|_| "not UTF-8".into()),
        _ => Err(format!(
            "the hash of /cacerts is {}, the token says {}",
            hexadecimal(&of_text),
            hexadecimal(hash)
        )),
    }
}

/// Whether a file has a CA for which [`covered`] accepts this digest.
pub fn has_digest(pem: &[u8], hash: &Digest) -> bool {
    let served = |der: &[u8]| sha256(x509::pem("CERTIFICATE", der).as_bytes());
    let roots = certificates(pem).unwrap_or_default();
    sha256(pem) == *hash || roots.iter().any(|der| [sha256(der), served(der)].contains(hash))
}

/// The certificates for which `is_root`, as PEM.
fn joined(certificates: &[CertificateDer<'_>], is_root: &dyn Fn(&[u8]) -> bool) -> String {
    let roots = certificates.iter().filter(|der| is_root(der));
    roots.map(|der| x509::pem("CERTIFICATE", der)).collect()
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed = CertificateDer::pem_slice_iter(pem).take(MOST_CERTIFICATES + 1);
    let parsed: Result<Vec<_>, _> = parsed.collect();
    match parsed.map_err(|_| "the CA is not PEM")? {
        none if none.is_empty() => Err("there is no CA".into()),
        more if more.len() > MOST_CERTIFICATES => Err(format!("more than {MOST_CERTIFICATES} CAs")),
        certificates => Ok(certificates),
    }
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> Digest {
    // The conversion cannot fail: SHA-256 and a Digest have 32 octets.
    digest::digest(&SHA256, bytes).as_ref().try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::join::token;
    use crate::kube::cluster_info::{ClusterInfo, cluster};
    use crate::kube::yaml;

    const TODAY: &str = "2026-11-22T00:00:00Z";

    fn now() -> Wall {
        Wall::parse(TODAY).unwrap()
    }

    fn recording() -> Value {
        let text = include_str!("../../tests/recordings/join-kubeadm.json");
        serde_json::from_str(text).unwrap()
    }

    fn recorded_info() -> ClusterInfo {
        let body = recording()["steps"][0]["response"]["body"].to_string();
        ClusterInfo::parse(body.as_bytes()).unwrap()
    }

    fn recorded_token() -> Bootstrap {
        Bootstrap::parse(recording()["token"].as_str().unwrap()).unwrap()
    }

    fn pin(text: &str) -> Digest {
        token::parse_digest(text.strip_prefix("sha256:").unwrap()).unwrap()
    }

    /// A CA with its PEM text, its DER form and the pin of its key.
    fn authority(until: i32) -> (String, Vec<u8>, Digest) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        let public = rcgen::PublicKeyData::subject_public_key_info(&key);
        let der = certificate.der().to_vec();
        (x509::pem("CERTIFICATE", &der), der, sha256(&public))
    }

    #[test]
    fn the_recorded_signature_and_pin_of_a_real_cluster_fit() {
        let (recording, info, token) = (recording(), recorded_info(), recorded_token());
        let computed = signature(&info.kubeconfig, &token);
        assert_eq!(info.signature(&token.id), Some(computed.as_str()));
        let cluster = cluster(&yaml::parse(&info.kubeconfig).unwrap()).unwrap();
        let ca = recording["caPem"].as_str().unwrap();
        assert_eq!(cluster.ca, ca.as_bytes());
        let recorded_pin = pin(recording["caCertHash"].as_str().unwrap());
        let kept = pinned(&cluster.ca, &[recorded_pin], now()).unwrap();
        assert_eq!(kept, ca);
    }

    /// kubeadm accepts both bundles and sends the token: recorded in kubeadm-words.json.
    #[test]
    fn of_a_padded_bundle_the_pinned_ca_alone_is_kept() {
        let (real, _, pin) = authority(2040);
        let (theirs, _, their_pin) = authority(2040);
        for bundle in [format!("{real}{theirs}"), format!("{theirs}{real}")] {
            assert_eq!(pinned(bundle.as_bytes(), &[pin], now()), Ok(real.clone()));
            let both = pinned(bundle.as_bytes(), &[pin, their_pin], now());
            assert_eq!(both, Ok(bundle));
        }
        let error = pinned(theirs.as_bytes(), &[pin], now()).unwrap_err().what;
        let theirs = format!("sha256:{}", hexadecimal(&their_pin));
        assert_eq!(error, format!("none of the CAs ({theirs}) is pinned"));
    }

    #[test]
    fn an_expired_ca_and_a_bundle_without_or_with_too_many_are_refused() {
        let (expired, _, pin) = authority(2026);
        let error = pinned(expired.as_bytes(), &[pin], now()).unwrap_err();
        let what = "the pinned CA expired at 2026-01-01T00:00:00Z, clock says 2026-11-22T00:00:00Z";
        assert_eq!((error.what.as_str(), error.remedy.as_str()), (what, CLOCK));
        // A board without a clock is in 1970 and cannot know.
        assert!(pinned(expired.as_bytes(), &[pin], Wall::default()).is_ok());
        for (pem, part) in [
            (String::new(), "no CA"),
            ("text".into(), "no CA"),
            (expired.replace("END", "EN"), "not PEM"),
            (expired.repeat(MOST_CERTIFICATES + 1), "more than 100"),
            (x509::pem("CERTIFICATE", b"no DER"), "cannot be parsed"),
        ] {
            let error = pinned(pem.as_bytes(), &[pin], now()).unwrap_err().what;
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_hash_of_a_k3s_token_covers_the_text_or_the_root() {
        let [one, two, three] = [2040, 2041, 2042].map(authority);
        let chain = [one.0.as_str(), &two.0, &three.0].concat();
        let of_text = sha256(one.0.as_bytes());
        assert_eq!(covered(one.0.as_bytes(), &of_text), Ok(one.0.clone()));
        for served in [one.0.replace('\n', "\r\n"), format!("# a comment\n{}", one.0.trim())] {
            let hash = sha256(served.as_bytes());
            let stored = covered(served.as_bytes(), &hash).unwrap();
            assert!(has_digest(stored.as_bytes(), &hash), "{served:?}");
        }
        // The newline at the end is a part of the text.
        assert!(covered(one.0.trim().as_bytes(), &of_text).is_err());
        // The hash of the root: what a stranger appends is not kept.
        let of_root = sha256(&three.1);
        assert_eq!(covered(chain.as_bytes(), &of_root), Ok(three.0.clone()));
        assert!(has_digest(three.0.as_bytes(), &of_root));
        // One certificate: k3s does not compare the DER form.
        assert!(covered(three.0.as_bytes(), &of_root).is_err());
        let of_chain = sha256(chain.as_bytes());
        assert_eq!(covered(chain.as_bytes(), &of_chain), Ok(chain.clone()));
        let error = covered(chain.as_bytes(), &of_text).unwrap_err();
        assert!(error.contains(&hexadecimal(&of_chain)), "{error}");
        assert!(error.contains(&hexadecimal(&of_text)), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_bundle_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(pinned(&bytes, &[sha256(&bytes)], now()).is_err());
            let pem = x509::pem("CERTIFICATE", &bytes);
            prop_assert!(pinned(pem.as_bytes(), &[sha256(&bytes)], now()).is_err());
        }
    }
}
