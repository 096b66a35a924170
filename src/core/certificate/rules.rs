//! When the board requests a certificate, and how soon again.

use std::time::Duration;

use super::issued::satisfies;
use crate::kube::time::Wall;
use crate::kube::x509::{Leaf, Subject};

/// client-go: every 32 s after a failure.
const LAST_BACKOFF: Duration = Duration::from_secs(32);
/// Longest pause after an unanswered request, as in registration.
const LAST_SILENCE: Duration = Duration::from_secs(7);
/// Longest pause at a supervisor. A renewal begins weeks before the expiry, and at each attempt the
/// server computes a password hash (scrypt).
const LAST_AT_SUPERVISOR: Duration = Duration::from_secs(3600);

/// When the board may request a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `--rotate-certificates`: the certificate is renewed before it expires.
    pub rotate: bool,
    /// `--bootstrap-kubeconfig`: its credentials request the first certificate.
    pub bootstrap: bool,
    /// `--k3s-supervisor`: the supervisor signs, and the lifetime is counted by the server's clock.
    pub supervisor: bool,
}

impl Rules {
    /// When a certificate must be replaced: with rotation after 70 to 90 % of its lifetime, which
    /// spreads many boards, or at once if its subject is wrong; otherwise after its expiry.
    pub(super) fn deadline(self, subject: &Subject, leaf: &Leaf, random: u32) -> Wall {
        if !self.rotate {
            return leaf.not_after.next_microsecond();
        }
        if !satisfies(leaf, subject) {
            return Wall::default();
        }
        let lifetime = leaf.not_after.since(leaf.not_before);
        leaf.not_before
            .after(lifetime / 1000 * (700 + random.min(999) / 5))
    }

    /// Longest pause after a failure.
    pub(super) fn last_backoff(self) -> Duration {
        match self.supervisor {
            true => LAST_AT_SUPERVISOR,
            false => LAST_BACKOFF,
        }
    }

    /// Longest pause after a request without a response.
    pub(super) fn last_silence(self) -> Duration {
        match self.supervisor {
            true => LAST_AT_SUPERVISOR,
            false => LAST_SILENCE,
        }
    }

    /// What a log line says about an expired certificate.
    pub(super) fn after_expiry(self) -> &'static str {
        match (self.bootstrap, self.supervisor) {
            (true, _) => "requesting a new one with the bootstrap kubeconfig",
            (false, true) => "still using it; nodelet join --force",
            (false, false) => "still using it; install a new one, or set --bootstrap-kubeconfig",
        }
    }
}
