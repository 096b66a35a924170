//! A planned shutdown of the machine: the Node says so before the process ends.
//!
//! SIGUSR1 announces it (`ExecStop=` of the unit), and SIGTERM of systemd follows. Without SIGUSR1
//! a SIGTERM writes nothing: a restart or an upgrade is not an outage.
//! Upstream: `pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go`, setters.go.

use std::time::Duration;

use crate::kube::instant::Mono;
use crate::node::schedule::{Action, RequestKind};

/// Longest time from SIGUSR1 to the end of the process, if SIGTERM came; a read of facts that is
/// then under way still ends. systemd waits for `TimeoutStopSec=` of the unit.
const TIME_TO_REPORT: Duration = Duration::from_secs(5);

/// Without a SIGTERM for this time, the shutdown did not happen.
const CANCELLED_AFTER: Duration = Duration::from_secs(60);

/// An announced shutdown.
#[derive(Debug)]
pub(super) struct Shutdown {
    since: Mono,
    /// SIGTERM came.
    ends: bool,
    /// The server has a status that names the shutdown.
    pub(super) is_reported: bool,
}

impl Shutdown {
    /// SIGUSR1 came at `now`.
    pub(super) fn announced(now: Mono) -> Self {
        Self { since: now, ends: false, is_reported: false }
    }

    /// SIGTERM came. Returns whether one came before.
    pub(super) fn stop(&mut self) -> bool {
        std::mem::replace(&mut self.ends, true)
    }

    /// Whether SIGTERM came.
    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Whether the shutdown was cancelled: no SIGTERM came for 60 s.
    pub(super) fn is_cancelled(&self, now: Mono) -> bool {
        !self.ends && now >= self.since.after(CANCELLED_AFTER)
    }

    /// `turn`, or what is done instead. `is_silent`: the last request had no response. `event_due`:
    /// when an event can be sent.
    pub(super) fn limit(
        &self,
        turn: Action,
        is_silent: bool,
        event_due: Option<Mono>,
        now: Mono,
    ) -> Action {
        let end = self.since.after(TIME_TO_REPORT);
        let left = end.since(now);
        if !self.ends {
            let cancelled = self.since.after(CANCELLED_AFTER);
            return match turn {
                Action::Wait(until) => Action::Wait(until.min(cancelled)),
                // A SIGTERM that comes during the request waits for its end, so the request is
                // limited. A SIGTERM that comes after `end` ends the process without another
                // request. So after `end` the requests have their usual limits, which the Lease
                // needs, until the shutdown is cancelled.
                Action::Send(kind, budget) if !left.is_zero() => {
                    Action::Send(kind, budget.min(TIME_TO_REPORT))
                }
                Action::Credentials(budget) if !left.is_zero() => {
                    Action::Credentials(budget.min(TIME_TO_REPORT))
                }
                Action::Connect(budget) => Action::Connect(budget.min(TIME_TO_REPORT)),
                turn => turn,
            };
        }
        if left.is_zero() || is_silent {
            return Action::End;
        }
        match turn {
            Action::Send(kind, budget) => Action::Send(kind, budget.min(left)),
            // The last events are sent at once.
            Action::Wait(_) if self.is_reported => match event_due {
                Some(due) if due <= now => Action::Send(RequestKind::Event, left),
                // A busy server asked for a pause.
                Some(due) if due < end => Action::Wait(due),
                _ => Action::End,
            },
            Action::Wait(until) => Action::Wait(until.min(end)),
            Action::ReadFacts => Action::ReadFacts,
            _ => Action::End,
        }
    }
}
