//! A planned shutdown of the machine: the Node says so before the process ends.
//!
//! SIGUSR1 announces it, SIGTERM follows (`ExecStop=` of the unit sends the first, systemd the
//! second). Without SIGUSR1 a SIGTERM writes nothing: a restart or an upgrade is not an outage.
//! Upstream: `pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go`, setters.go.

use std::borrow::Cow;
use std::time::Duration;

use super::{Kubelet, Turn, Work};
use crate::core::events::Event;
use crate::core::facts::Facts;
use crate::core::instant::Mono;

/// Longest time from SIGUSR1 to the end of the process, if SIGTERM came. systemd waits for
/// `TimeoutStopSec=` of the unit.
const TIME_TO_TELL: Duration = Duration::from_secs(5);

/// Without a SIGTERM for this time, the shutdown did not happen.
const CANCELLED_AFTER: Duration = Duration::from_secs(60);

/// An announced shutdown.
#[derive(Debug)]
pub(super) struct Shutdown {
    since: Mono,
    /// SIGTERM came.
    ends: bool,
    /// The server has the status that says so.
    is_told: bool,
}

impl Kubelet {
    /// SIGUSR1: the machine is going down. A repeated one changes nothing.
    pub fn on_shutdown(&mut self, now: Mono) {
        if self.shutdown.is_none() {
            log::info!("SIGUSR1: the machine is shutting down; Ready becomes False");
            self.shutdown = Some(Shutdown {
                since: now,
                ends: false,
                is_told: false,
            });
            self.tell("Shutdown manager detected shutdown event", now);
        }
    }

    /// SIGTERM or SIGINT: whether the process must end now. During an announced shutdown it goes on
    /// until [`Turn::End`]; a second signal, or a server that does not respond, ends it.
    pub fn on_stop(&mut self) -> bool {
        let can_tell = self.registered && !self.schedule.is_silent();
        match &mut self.shutdown {
            Some(shutdown) if can_tell => std::mem::replace(&mut shutdown.ends, true),
            _ => true,
        }
    }

    /// The server has a status that was computed after the announcement.
    pub(super) fn status_was_sent(&mut self) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.is_told = true;
        }
    }

    /// `facts` as the status must see them.
    pub(super) fn with_shutdown<'a>(&self, facts: &'a Facts) -> Cow<'a, Facts> {
        let mut facts = Cow::Borrowed(facts);
        if self.shutdown.is_some() {
            let line = "node is shutting down".to_owned();
            facts.to_mut().unhealthy.push(line);
        }
        facts
    }

    /// Ends an announced shutdown that does not happen.
    pub(super) fn follow_shutdown(&mut self, now: Mono) {
        if let Some(Shutdown { since, ends, .. }) = self.shutdown
            && !ends
            && now >= since.after(CANCELLED_AFTER)
        {
            log::info!("no SIGTERM for 60 s after SIGUSR1: the shutdown was cancelled");
            self.shutdown = None;
            self.tell("Shutdown manager detected shutdown cancellation", now);
        }
    }

    /// `turn`, or what an announced shutdown does instead.
    pub(super) fn within_shutdown(&self, turn: Turn, now: Mono) -> Turn {
        let Some(shutdown) = &self.shutdown else {
            return turn;
        };
        let end = shutdown.since.after(TIME_TO_TELL);
        let left = end.since(now);
        if !shutdown.ends {
            let cancelled = shutdown.since.after(CANCELLED_AFTER);
            return match turn {
                Turn::Wait(until) => Turn::Wait(until.min(cancelled)),
                // SIGTERM may come during the request, and then has to wait for its end. After
                // `end` no time is kept free for it: it then ends the process without another
                // request, and until the shutdown is cancelled the Lease needs its usual limits.
                Turn::Send(work, budget) if !left.is_zero() => {
                    Turn::Send(work, budget.min(TIME_TO_TELL))
                }
                Turn::Connect(budget) => Turn::Connect(budget.min(TIME_TO_TELL)),
                turn => turn,
            };
        }
        if left.is_zero() || self.schedule.is_silent() {
            return Turn::End;
        }
        match turn {
            Turn::Send(work, budget) => Turn::Send(work, budget.min(left)),
            // The last events are sent at once. An event needs the Node's uid: if the Node was
            // deleted meanwhile, no event can be sent.
            Turn::Wait(_)
                if shutdown.is_told && self.owner.is_some() && self.events.is_due(now) =>
            {
                Turn::Send(Work::Event, left)
            }
            Turn::Wait(_) if shutdown.is_told => Turn::End,
            Turn::Wait(until) => Turn::Wait(until.min(end)),
            Turn::Connect(_) | Turn::Identity(..) | Turn::End => Turn::End,
        }
    }

    fn tell(&mut self, message: &str, now: Mono) {
        self.events.push(Event::shutdown(message), now);
        self.compute_status_by(now);
    }
}
