//! The marks of a stored pair: lines behind it with digests of the kubeconfig's certificate and of
//! the CAs that the pair was renewed for. If a person replaces these files, the stored pair must
//! not win.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA512_256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::client::api_config::{ApiConfig, ClientCertificate};
use crate::client::tls::name_and_key;

/// The start of the line with the certificates of [`PairMarks`]. Every reader ignores text outside
/// of PEM sections.
const LINE: &str = "# kubeconfig: ";
/// The start of the line of [`PairMarks::replaced`].
const REPLACED: &str = "# replaced kubeconfig: ";
/// The value of [`PairMarks::replaced`] for a kubeconfig that could not be read.
pub(super) const UNREAD: &str = "unread";
/// The mark of a kubeconfig without a certificate, beside a bootstrap kubeconfig without a CA.
const NONE: &str = "-";

/// What a stored pair says of the files that it was requested with.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::credentials) struct PairMarks {
    /// Digests of the kubeconfig's client certificate, and of each CA inside the bootstrap
    /// kubeconfig, or inside the kubeconfig if there is no other; [`NONE`] if there are none. Empty
    /// if another program stored the pair.
    certificates: Vec<String>,
    /// The digest of the old kubeconfig, which the bootstrap of this pair was to replace. If the
    /// old kubeconfig could not be replaced, it is still there, and it looks valid again: it may
    /// name the link to the current pair, which is now this new pair. By this digest the next start
    /// knows that the old kubeconfig must not be used. [`UNREAD`] if the old kubeconfig, or a file
    /// that it names, could not be read: then it stays, unless it is of another cluster.
    pub(in crate::credentials) replaced: Option<String>,
}

impl PairMarks {
    pub(super) fn for_new_pair(
        given: Option<&ClientCertificate>,
        kubeconfig: Option<&ApiConfig>,
    ) -> Self {
        let own = given.and_then(mark);
        let authorities = kubeconfig.map(Self::authorities).unwrap_or_default();
        let mut certificates: Vec<_> = own.into_iter().chain(authorities.certificates).collect();
        if certificates.is_empty() {
            // With this mark a later kubeconfig with a certificate counts as new, for example the
            // kubeconfig of a `nodelet join` that ended before it removed this pair.
            certificates.push(NONE.to_owned());
        }
        Self { certificates, replaced: None }
    }

    /// The marks of the CAs inside a kubeconfig. A CA in a file of its own has no marks, because
    /// the file may be replaced while the agent runs. Any other CA has two. The digest of its name
    /// and key stays when its certificate is renewed. The digest of its certificate is the only
    /// mark that former versions have written.
    pub(super) fn authorities(config: &ApiConfig) -> Self {
        let inline = config.ca.iter().filter(|ca| ca.file.is_none());
        let of_both = |der: CertificateDer<'_>| [digest_of(&der), digest_of(&name_and_key(&der))];
        let certificates =
            inline.flat_map(|ca| certificates(&ca.bytes)).flat_map(of_both).collect();
        Self { certificates, replaced: None }
    }

    /// The marks of a stored pair; empty if another program or version stored it.
    pub(super) fn of_stored(pair: &ClientCertificate) -> Self {
        let text = String::from_utf8_lossy(&pair.chain.bytes);
        let line = |start| text.lines().find_map(|line| line.strip_prefix(start));
        let words = line(LINE).unwrap_or_default().split_whitespace();
        Self {
            certificates: words.map(str::to_owned).collect(),
            replaced: line(REPLACED).map(str::to_owned),
        }
    }

    /// The lines with these marks; empty without any.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        if !self.certificates.is_empty() {
            lines += &format!("{LINE}{}\n", self.certificates.join(" "));
        }
        if let Some(replaced) = &self.replaced {
            lines += &format!("{REPLACED}{replaced}\n");
        }
        lines
    }

    /// Whether the kubeconfig had this certificate; `None` if that is not known.
    pub(super) fn has_mark_of(&self, certificate: &ClientCertificate) -> Option<bool> {
        let mark = mark(certificate)?;
        (!self.certificates.is_empty()).then(|| self.certificates.contains(&mark))
    }

    /// Whether a mark of a CA is certain. One mark alone may be of the kubeconfig's certificate:
    /// without a bootstrap kubeconfig a former version wrote only that mark.
    pub(super) fn has_authorities(&self) -> bool {
        self.certificates.len() > 1
    }

    /// Returns whether `self` and `other` share no mark. False if either has no mark, or only
    /// [`NONE`]. During a rotation of the CA a bundle has the old and the new CA: one mark is
    /// shared.
    pub(super) fn differs(&self, other: &Self) -> bool {
        let (own, other) = (&self.certificates, &other.certificates);
        let is_known = |marks: &[String]| marks.iter().any(|mark| mark != NONE);
        is_known(own) && is_known(other) && !own.iter().any(|mark| other.contains(mark))
    }
}

fn mark(certificate: &ClientCertificate) -> Option<String> {
    certificates(&certificate.chain.bytes).next().map(|der| digest_of(&der))
}

fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).flatten()
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA512_256, bytes))
}
