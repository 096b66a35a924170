//! The texts of TLS errors.

use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::kube::time::Wall;

/// One line for a TLS error; `host` is the name that the server's certificate must have.
pub(super) fn describe(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidCertificate(e) => refused_certificate(e, host),
        Error::AlertReceived(alert) => refused_by_server(*alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS; is the port right?".into()
        }
        Error::PeerIncompatible(e) => format!("the server's TLS is not supported: {e:?}"),
        e => format!("tls: {}", cause(e)),
    }
}

/// The text of an error, with what it has besides its name. In a release binary a derived `Debug`
/// prints the name alone (`cross/build.sh`), and texts of rustls use it.
pub(super) fn cause(error: &Error) -> String {
    use InvalidMessage as M;
    match error {
        Error::InvalidCertificate(e) => cause_of_certificate(e),
        Error::InvalidMessage(e) => {
            let what = match e {
                M::MissingData(part) => format!("{part} is incomplete"),
                M::TrailingData(part) => format!("{part} is followed by other data"),
                M::UnexpectedMessage(part) => format!("unexpected {part}"),
                M::IllegalEmptyList(part) => format!("{part} is empty"),
                M::DuplicateExtension(number) => format!("two extensions {number}"),
                M::UnsupportedKeyExchangeAlgorithm(name) => {
                    format!("the key exchange {name:?} is not supported")
                }
                e => format!("{e:?}"),
            };
            format!("received corrupt message: {what}")
        }
        e => e.to_string(),
    }
}

/// [`cause`] of a certificate that is not usable. An algorithm is the DER of its identifier.
pub(super) fn cause_of_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Other(e) => e.to_string(),
        E::UnsupportedSignatureAlgorithmContext {
            signature_algorithm_id: id,
            ..
        } => format!("UnsupportedSignatureAlgorithm {id:02x?}"),
        E::UnsupportedSignatureAlgorithmForPublicKeyContext {
            signature_algorithm_id: id,
            public_key_algorithm_id: key,
        } => format!("UnsupportedSignatureAlgorithm {id:02x?} for a key {key:02x?}"),
        e => e.to_string(),
    }
}

fn refused_certificate(error: &CertificateError, host: &str) -> String {
    match error {
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "certificate of {host} is not valid before {}, clock says {}; waiting for time sync",
            date(*not_before),
            date(*time)
        ),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "certificate of {host} expired at {}, clock says {}; renew it, or correct the clock",
            date(*not_after),
            date(*time)
        ),
        // A cluster that was created again has a CA of the same name with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "certificate of {host} is not signed by a trusted CA: that of the kubeconfig, or those of the system if these are used instead; is this the right server, or was the CA replaced?"
        ),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let presented = presented.join(", ");
            format!(
                "certificate of {host} is for other names: {presented}; set tls-server-name to one of them, or correct server"
            )
        }
        e => format!("certificate of {host} refused: {}", cause_of_certificate(e)),
    }
}

fn refused_by_server(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server wants a client certificate; the kubeconfig has none that it accepts".into()
        }
        AlertDescription::CertificateExpired => {
            "the server says that our client certificate has expired".into()
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => {
            format!("the server refused our client certificate: {alert:?}")
        }
        alert => format!("the server ended TLS: {alert:?}"),
    }
}

fn date(time: UnixTime) -> String {
    Wall::from_epoch(Duration::from_secs(time.as_secs())).time()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    /// The texts do not depend on the fields that a derived `Debug` prints.
    #[test]
    fn an_error_tells_what_it_has_besides_its_name() {
        let other = OtherError(Arc::new(webpki::Error::CaUsedAsEndEntity));
        let (id, key) = (vec![0x2a, 0x03], vec![0x2b]);
        for (error, want) in [
            (
                Error::InvalidCertificate(CertificateError::Other(other)),
                "certificate of k refused: CaUsedAsEndEntity",
            ),
            (
                Error::InvalidCertificate(CertificateError::UnsupportedSignatureAlgorithmContext {
                    signature_algorithm_id: id.clone(),
                    supported_algorithms: Vec::new(),
                }),
                "certificate of k refused: UnsupportedSignatureAlgorithm [2a, 03]",
            ),
            (
                Error::InvalidCertificate(
                    CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext {
                        signature_algorithm_id: id,
                        public_key_algorithm_id: key,
                    },
                ),
                "certificate of k refused: UnsupportedSignatureAlgorithm [2a, 03] for a key [2b]",
            ),
            (
                InvalidMessage::MissingData("ServerHello").into(),
                "tls: received corrupt message: ServerHello is incomplete",
            ),
            (
                InvalidMessage::TrailingData("Finished").into(),
                "tls: received corrupt message: Finished is followed by other data",
            ),
            (
                InvalidMessage::UnexpectedMessage("MessageHash").into(),
                "tls: received corrupt message: unexpected MessageHash",
            ),
            (
                InvalidMessage::IllegalEmptyList("ProtocolNames").into(),
                "tls: received corrupt message: ProtocolNames is empty",
            ),
            (
                InvalidMessage::DuplicateExtension(43).into(),
                "tls: received corrupt message: two extensions 43",
            ),
            (
                InvalidMessage::InvalidCcs.into(),
                "tls: received corrupt message: InvalidCcs",
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "the server ended TLS: HandshakeFailure",
            ),
        ] {
            assert_eq!(describe(&error, "k"), want);
        }
    }
}
