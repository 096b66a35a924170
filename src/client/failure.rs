//! Why a request has no usable answer.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::kube::text::{Fault, FaultKind};
use crate::kube::time::Wall;
use crate::os::clock;
use crate::os::read::cause;

/// The step of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Connecting,
    Proxy,
    Handshake,
    Sending,
    Answer,
    Body,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting",
            Self::Proxy => "connecting through the proxy",
            Self::Handshake => "setting up TLS",
            Self::Sending => "sending the request",
            Self::Answer => "waiting for the answer",
            Self::Body => "reading the answer",
        })
    }
}

/// Why the server's certificate cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distrust {
    /// Another cause, such as other names.
    Other,
    /// It has expired or is not valid yet, by the clock of this machine.
    Date,
    /// No root of ours signed it.
    Issuer,
}

/// The remedy of a loopback address that cannot be reached.
pub(crate) const ON_LOOPBACK: &str = "a loopback address is this board itself: does the server run \
                                     here? Else give its own address (a k3s agent's kubeconfig \
                                     names the load balancer of that agent)";

/// The remedy of a proxy that does not connect.
pub(crate) const AT_PROXY: &str = "is the proxy up, is the port of proxy-url right, and does it let \
                                   this board connect to the API server?";

/// Passed through ureq as `ureq::Error::Other`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The time ended; the caller adds how long it was.
    TimedOut(Stage),
    /// TLS failed, on either side; with a [`Distrust`] where the server's certificate is the cause.
    Tls(Option<Distrust>, Fault),
    /// Any other cause.
    Other(Fault),
}

impl Failure {
    pub(super) fn io(error: &io::Error, stage: Stage) -> Self {
        match error.kind() {
            ErrorKind::TimedOut => Self::TimedOut(stage),
            _ if stage == Stage::Connecting => Self::other(cause(error)),
            _ => Self::other(format!("{} while {stage}", cause(error))),
        }
    }

    /// `is_verified`: the server had proven who it is.
    pub(super) fn tls(error: &Error, host: &str, is_verified: bool) -> Self {
        use CertificateError::{ExpiredContext, NotValidYetContext, UnknownIssuer};
        let distrust = match error {
            Error::InvalidCertificate(UnknownIssuer) => Some(Distrust::Issuer),
            Error::InvalidCertificate(ExpiredContext { .. } | NotValidYetContext { .. }) => {
                Some(Distrust::Date)
            }
            Error::InvalidCertificate(_) => Some(Distrust::Other),
            _ => None,
        };
        Self::Tls(distrust, tls_fault(error, host, is_verified))
    }

    pub(super) fn distrust(&self) -> Option<Distrust> {
        match self {
            Self::Tls(distrust, _) => *distrust,
            _ => None,
        }
    }

    /// It failed by its time limit.
    pub(super) fn has_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut(_))
    }

    /// TCP, or the tunnel of a proxy, took longer than it had.
    pub(super) fn has_no_connection_in_time(&self) -> bool {
        matches!(self, Self::TimedOut(Stage::Connecting | Stage::Proxy))
    }

    pub(super) fn closed(stage: Stage) -> Self {
        Self::other(format!("connection closed by the server while {stage}"))
    }

    pub(super) fn other(fault: impl Into<Fault>) -> Self {
        Self::Other(fault.into())
    }

    /// Adds the name of the proxy, for a failure at the proxy or on the way to it.
    pub(super) fn via(self, proxy: &impl fmt::Display) -> Self {
        match self {
            Self::TimedOut(_) => Self::TimedOut(Stage::Proxy),
            Self::Other(fault) => Self::Other(fault.at(proxy).or_remedy(AT_PROXY)),
            other => other,
        }
    }

    /// Names the address.
    pub(super) fn at(self, address: SocketAddr, is_proxy: bool) -> Self {
        match self {
            Self::Other(fault) => {
                let what = format!("{} (at {address})", fault.what);
                Self::Other(Fault { what, ..fault }).or_loopback(address, is_proxy)
            }
            other => other,
        }
    }

    /// Adds the remedy for a server at a loopback address. A proxy gets no such remedy: it is usual
    /// that a proxy listens on a loopback address.
    pub(super) fn or_loopback(self, address: SocketAddr, is_proxy: bool) -> Self {
        match self {
            Self::Other(fault) if address.ip().is_loopback() && !is_proxy => {
                Self::Other(fault.or_remedy(ON_LOOPBACK))
            }
            other => other,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(stage) => write!(f, "timed out while {stage}"),
            Self::Tls(_, fault) | Self::Other(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for ureq::Error {
    fn from(failure: Failure) -> Self {
        Self::Other(Box::new(failure))
    }
}

/// The fault of a TLS error; `host` is the name that the server's certificate must have.
fn tls_fault(error: &Error, host: &str, is_verified: bool) -> Fault {
    match error {
        Error::InvalidCertificate(e) => refused_certificate(e, host),
        Error::AlertReceived(alert) => refused_by_server(*alert, is_verified),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            Fault::new("the server does not speak TLS", "is the port right?")
        }
        Error::PeerIncompatible(e) => format!("the server's TLS is not supported: {e:?}").into(),
        e => format!("tls: {e}").into(),
    }
}

/// Why a certificate is not usable. rustls prints an unknown error with its wrapper.
pub(super) fn cause_of_certificate(error: &CertificateError) -> Fault {
    use CertificateError as E;
    match error {
        E::Other(e) => match e.0.downcast_ref::<Fault>() {
            Some(fault) => fault.clone(),
            None => e.to_string().into(),
        },
        e => e.to_string().into(),
    }
}

/// The keys whose signatures ring verifies: not P-521, and not RSA of less than 2048 bits.
pub(super) const SUPPORTED_KEYS: &str = "the keys of server and CA must be RSA of 2048 bits or \
                                         more, P-256, P-384 or Ed25519; P-521 is not supported";
/// The remedy if the server ends the handshake because version, suite, group or key do not fit. Its
/// alert does not say which of them.
const NOTHING_IN_COMMON: &str = "it needs TLS 1.2 or 1.3; a suite of AES-GCM or ChaCha20, in TLS \
                                 1.2 with ECDHE; one of the groups X25519, P-256 and P-384; and \
                                 keys of RSA of 2048 bits or more, P-256, P-384 or Ed25519";
/// Most names of a server's certificate in a fault: a CDN's has more than a hundred.
const MAX_NAMES: usize = 5;

fn refused_certificate(error: &CertificateError, host: &str) -> Fault {
    match error {
        CertificateError::NotValidYetContext { not_before, .. } => Fault::new(
            format!(
                "certificate of {host} is not valid before {}, {}",
                date(*not_before),
                clock_says(clock::wall(), clock::built())
            ),
            "set the clock of this board (NTP, RTC), or install a nodelet that was built later",
        ),
        CertificateError::ExpiredContext { not_after, .. } => Fault::new(
            format!(
                "certificate of {host} expired at {}, {}",
                date(*not_after),
                clock_says(clock::wall(), clock::built())
            ),
            "renew it, or set the clock of this board",
        ),
        // A cluster that was created again has a CA of the same name with another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Fault::new(
            format!(
                "certificate of {host} is not signed by a trusted CA: that of the kubeconfig, or those of the system if these are used instead"
            ),
            // ring reports BadSignature also if the key of the signature is too short.
            match error {
                CertificateError::BadSignature => {
                    "is this the right server, has it an RSA key of less than 2048 bits, or was \
                     the CA replaced?"
                }
                _ => "is this the right server, or was the CA replaced?",
            },
        ),
        CertificateError::NotValidForNameContext { presented, .. } => {
            let (named, others) = presented.split_at(presented.len().min(MAX_NAMES));
            let mut what =
                format!("certificate of {host} is for other names: {}", named.join(", "));
            if !others.is_empty() {
                what.push_str(&format!(", and {} more", others.len()));
            }
            Fault::new(what, "set tls-server-name to one of them, or correct server")
        }
        e => cause_of_certificate(e).at(format_args!("certificate of {host} refused")),
    }
}

/// The time that a certificate's dates were compared with: that of the clock, or that of the build
/// if the clock is earlier.
fn clock_says(clock: Wall, built: Wall) -> String {
    let says = format!("clock says {}", clock.time());
    if clock < built { format!("{says}, nodelet was built at {}", built.time()) } else { says }
}

/// A server judges our certificate after it has proven its own. Anybody on the way can send an
/// alert before that.
fn refused_by_server(alert: AlertDescription, is_verified: bool) -> Fault {
    match alert {
        AlertDescription::CertificateRequired => Fault::new(
            "the server wants a client certificate",
            "the kubeconfig has none that it accepts",
        ),
        AlertDescription::CertificateExpired if is_verified => {
            let what = "the server says that our client certificate has expired";
            Fault { kind: FaultKind::Expired, ..Fault::of_credentials(what) }
        }
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied
            if is_verified =>
        {
            Fault::of_credentials(format!("the server refused our client certificate: {alert:?}"))
        }
        alert => {
            let is_common = alert != AlertDescription::HandshakeFailure;
            let remedy = if is_common { "" } else { NOTHING_IN_COMMON };
            Fault::new(format!("the server ended TLS: {alert:?}"), remedy)
        }
    }
}

fn date(time: UnixTime) -> String {
    Wall::from_epoch(Duration::from_secs(time.as_secs())).time()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_loopback_address_is_named_as_the_board_itself() {
        let refused = || Failure::io(&ErrorKind::ConnectionRefused.into(), Stage::Connecting);
        for (address, is_loopback) in
            [("127.0.0.1:6444", true), ("[::1]:6443", true), ("10.0.0.1:6443", false)]
        {
            let line = refused().at(address.parse().unwrap(), false).to_string();
            assert!(line.starts_with(&format!("connection refused (at {address})")), "{line}");
            assert_eq!(line.ends_with(&format!("; {ON_LOOPBACK}")), is_loopback, "{line}");
        }
    }

    #[test]
    fn a_connect_to_a_proxy_that_times_out_is_said_to_be_one() {
        let at_proxy = Failure::TimedOut(Stage::Connecting).via(&"proxy");
        assert_eq!(at_proxy, Failure::TimedOut(Stage::Proxy));
    }

    #[test]
    fn a_certificate_with_many_names_is_a_short_line() {
        let what = |names: u32| {
            let expected = ServerName::try_from("k").unwrap();
            let presented = (0..names).map(|name| name.to_string()).collect();
            let error = CertificateError::NotValidForNameContext { expected, presented };
            refused_certificate(&error, "k").what
        };
        assert_eq!(what(1), "certificate of k is for other names: 0");
        assert_eq!(what(5), "certificate of k is for other names: 0, 1, 2, 3, 4");
        assert_eq!(what(120), "certificate of k is for other names: 0, 1, 2, 3, 4, and 115 more");
    }

    #[test]
    fn the_time_of_the_build_is_named_where_it_counts() {
        let at = |seconds| Wall::from_epoch(Duration::from_secs(seconds));
        assert_eq!(clock_says(at(5), at(5)), "clock says 1970-01-01T00:00:05Z");
        let want = "clock says 1970-01-01T00:00:04Z, nodelet was built at 1970-01-01T00:00:05Z";
        assert_eq!(clock_says(at(4), at(5)), want);
    }

    #[test]
    fn an_error_has_its_cause_and_its_remedy() {
        let other = OtherError(Arc::new(Fault::new("it is odd", "make another one")));
        for (error, word, remedy) in [
            (
                Error::InvalidCertificate(CertificateError::Other(other)),
                "certificate of k refused: it is odd",
                "make another one",
            ),
            (
                Error::AlertReceived(AlertDescription::HandshakeFailure),
                "the server ended TLS: HandshakeFailure",
                NOTHING_IN_COMMON,
            ),
            (
                Error::AlertReceived(AlertDescription::DecryptError),
                "the server refused our client certificate: DecryptError",
                "check the credentials in the kubeconfig",
            ),
        ] {
            let fault = tls_fault(&error, "k", true);
            assert!(fault.what.contains(word) && fault.remedy == remedy, "{fault:?}");
        }
        let incomplete = InvalidMessage::MissingData("ServerHello").into();
        let want = "tls: received corrupt message of type MissingData(\"ServerHello\")";
        assert_eq!(tls_fault(&incomplete, "k", false), want.into());
    }
}
