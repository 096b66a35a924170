//! When the board requests a certificate, how soon again, and whether an issued one can be used.

use std::time::Duration;

use crate::kube::delay::Jitter;
use crate::kube::instant::ClusterSeen;
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, SigningRequest, Subject};

/// A step of the time. After it a request is given up if a wrong clock was the reason for it. It is
/// also how much two clocks may differ.
pub(super) const CLOCK_STEP: Duration = Duration::from_secs(60);
/// Longest delay after a failure, as in client-go.
pub(super) const LAST_BACKOFF: Duration = Duration::from_secs(32);
/// Longest delay between two GETs of a CSR: 8 s, or 30 s if a person approves it. While a valid
/// certificate is held it is a tenth of the time until its expiry, up to 2 minutes.
const LAST_POLL: Duration = Duration::from_secs(8);
const LAST_POLL_OF_SERVING: Duration = Duration::from_secs(30);
pub(super) const LAST_POLL_OF_RENEWAL: Duration = Duration::from_secs(120);
/// How long a CSR is read before it is given up: 15 minutes, or an hour if its name is derived from
/// the key, so that the same CSR is found again.
const LAST_READ: Duration = Duration::from_secs(900);
const LAST_READ_BY_NAME: Duration = Duration::from_secs(3600);
/// Longest pause after an unanswered request, as in registration.
const LAST_SILENCE: Duration = Duration::from_secs(7);
/// Longest pause at a supervisor. A renewal begins weeks before the expiry, and at each attempt the
/// server computes a password hash (scrypt).
const LAST_AT_SUPERVISOR: Duration = Duration::from_secs(3600);

/// What a certificate is for, and how the board gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// A client certificate without `--rotate-certificates`. The credentials of
    /// `--bootstrap-kubeconfig` request one if there is none, or if it has expired.
    Bootstrapped,
    /// A client certificate with `--rotate-certificates`: it is renewed before it expires.
    Rotated,
    /// A client certificate with both flags.
    RotatedOrBootstrapped,
    /// The first client certificate, in `nodelet join`: its `--timeout` is the only limit, because
    /// a person may approve the CSR, and its key is only in memory.
    Joining,
    /// A client certificate with `--k3s-supervisor`: the supervisor signs it, and its lifetime is
    /// counted by the server's clock.
    Supervisor,
    /// A serving certificate, with `--rotate-server-certificates`. A person approves its CSR,
    /// perhaps days later, when the process that created the CSR has ended.
    Serving,
    /// A serving certificate that the supervisor signs.
    ServingAtSupervisor,
}

impl CertificateKind {
    /// Whether the credentials of `--bootstrap-kubeconfig` can request it.
    pub fn has_bootstrap(self) -> bool {
        matches!(self, Self::Bootstrapped | Self::RotatedOrBootstrapped)
    }

    /// Whether other credentials can request it, so that one that is not valid can be replaced.
    pub(super) fn has_other_credentials(self) -> bool {
        self.has_bootstrap() || self == Self::Serving
    }

    /// Whether it is replaced before it expires.
    pub fn rotates(self) -> bool {
        self != Self::Bootstrapped
    }

    /// Whether the supervisor signs it, and not the cluster.
    pub fn is_at_supervisor(self) -> bool {
        matches!(self, Self::Supervisor | Self::ServingAtSupervisor)
    }

    /// When a certificate must be replaced. With rotation: after 70 to 90 % of its lifetime (255 to
    /// 328 of 365 days), which spreads many boards, or at once if its subject is wrong. Without
    /// rotation: after its expiry.
    pub(super) fn deadline(self, subject: &Subject, leaf: &Leaf, jitter: Jitter) -> Wall {
        if !self.rotates() {
            return leaf.not_after.next_microsecond();
        }
        if !leaf.subject.satisfies(subject) {
            return Wall::default();
        }
        let thousandth = leaf.not_after.since(leaf.not_before) / 1000;
        // As in client-go, the 90 % are never reached.
        first_deadline(leaf).after(jitter.of(thousandth * 200).min(thousandth * 199))
    }

    /// A certificate that begins later is not valid yet. `None` if the server has not sent its time
    /// (a certificate that a person installs may begin after the end of the refused one), and at a
    /// supervisor, where `notBefore` is not the signer's time.
    pub(super) fn latest_begin(self, at: ClusterSeen) -> Option<Wall> {
        (at.has_date && !self.is_at_supervisor()).then(|| at.now.wall.max(at.board))
    }

    /// Whether a certificate is not valid yet, by the server's clock and by the board's: it was
    /// signed while the signer's clock was ahead.
    pub(super) fn is_early(self, leaf: &Leaf, at: ClusterSeen) -> bool {
        let latest = self.latest_begin(at);
        latest.is_some_and(|latest| latest.after(CLOCK_STEP) < leaf.not_before)
    }

    /// Whether the name of a CSR is derived from its key, which is stored first: after a restart
    /// the same CSR is found again.
    pub(super) fn names_by_key(self) -> bool {
        matches!(self, Self::Bootstrapped | Self::Serving)
    }

    /// How long a CSR is read before it is given up.
    pub(super) fn last_read(self) -> Duration {
        match self {
            Self::Joining => Duration::MAX,
            _ if self.names_by_key() => LAST_READ_BY_NAME,
            _ => LAST_READ,
        }
    }

    /// Longest delay between two GETs of a CSR. While a `valid` certificate is held, nobody may
    /// approve the next one for months; but before its expiry one that is signed must be read.
    pub(super) fn last_poll(self, valid: Option<&Leaf>, now: Wall) -> Duration {
        let least = if self == Self::Serving { LAST_POLL_OF_SERVING } else { LAST_POLL };
        let left = valid.map_or(Duration::ZERO, |valid| valid.not_after.since(now));
        (left / 10).clamp(least, LAST_POLL_OF_RENEWAL)
    }

    /// Longest pause after a failure.
    pub(super) fn last_backoff(self) -> Duration {
        if self.is_at_supervisor() { LAST_AT_SUPERVISOR } else { LAST_BACKOFF }
    }

    /// Longest pause after a request without a response.
    pub(super) fn last_silence(self) -> Duration {
        match self {
            // Each attempt blocks the port of `nodelet serve`.
            Self::Serving => LAST_BACKOFF,
            _ if self.is_at_supervisor() => LAST_AT_SUPERVISOR,
            _ => LAST_SILENCE,
        }
    }

    /// What a log line says about an expired client certificate; `None` if no line is due.
    pub(super) fn after_expiry(self) -> Option<&'static str> {
        match self {
            Self::Bootstrapped | Self::RotatedOrBootstrapped => {
                Some("requesting a new one with the bootstrap kubeconfig")
            }
            Self::Supervisor => Some("still using it; nodelet join --force"),
            Self::Rotated => {
                Some("still using it; install a new one, or set --bootstrap-kubeconfig")
            }
            Self::Joining | Self::Serving | Self::ServingAtSupervisor => None,
        }
    }
}

/// The earliest deadline of a certificate that is rotated.
fn first_deadline(leaf: &Leaf) -> Wall {
    leaf.not_before.after(leaf.not_after.since(leaf.not_before) / 1000 * 700)
}

/// Time until a certificate with this deadline is replaced. What a server signs while its clock is
/// ahead is not valid when that clock is right again. So in the first nine tenths of the life the
/// board's clock must be past the deadline, too. In the last tenth the server's time is enough: the
/// board's clock may never be set. The deadline's part of 70 to 90 % also spreads these renewals:
/// for 80 %, half of the range, they are at 90.5 %.
pub(super) fn until_renewal(deadline: Wall, held: Option<&Leaf>, at: ClusterSeen) -> Duration {
    let last_tenth = held.map_or(deadline, |leaf| {
        leaf.last_tenth().after(deadline.since(first_deadline(leaf)) / 20)
    });
    let board = deadline.since(at.board).min(last_tenth.since(at.now.wall));
    deadline.since(at.now.wall).max(board)
}

/// Longest pause before the next attempt while a certificate is `held`: a tenth of the time until
/// its expiry, but at least 32 s. For example, 20 minutes before the expiry it is 2 minutes: if the
/// network comes back then, a pause of an hour would be too long. Without a certificate, and after
/// the expiry, there is no limit.
pub(super) fn longest_pause(held: Option<&Leaf>, now: Wall) -> Duration {
    match held.map(|held| held.not_after.since(now)) {
        Some(left) if !left.is_zero() => (left / 10).max(LAST_BACKOFF),
        _ => Duration::MAX,
    }
}

/// What a log line says about a certificate that is not valid yet.
pub(super) const AFTER_EARLY: &str = "using the last one, if that is valid";

/// The remedy of a certificate that has expired when it is issued.
const CLOCK: &str = "set the clock of this board, or that of the signer";

/// Whether the first certificate of the chain has our key and subject and is valid, or why not.
pub(super) fn usable(request: &SigningRequest, chain: &str, now: Wall) -> Result<(), Fault> {
    let leaf = Leaf::of_pem(chain.as_bytes()).ok_or("it is not X.509")?;
    if leaf.public_key != request.info.public_key {
        return Err("it is for another key".into());
    }
    let wanted = &request.info.subject;
    if !leaf.subject.satisfies(wanted) {
        let name = leaf.subject.common_name;
        return Err(if name == wanted.common_name {
            "it lacks a name or an organization of the request".into()
        } else {
            format!("it is for {name:?}").into()
        });
    }
    if leaf.not_after < now {
        let until = leaf.not_after.time();
        let what = format!("it expired at {until}, clock says {}", now.time());
        return Err(Fault::new(what, CLOCK));
    }
    Ok(())
}
