//! The agent without its sockets: the real core with the real credentials, for the lives of
//! `join::tests`.
#![allow(clippy::disallowed_methods)]

use std::time::Duration;

use super::cluster::wall;
use crate::agent::others;
use crate::client::api::Api;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::credentials::rotation::Step;
use crate::kube::facts::Facts;
use crate::kube::instant::{Mono, Now};
use crate::kube::message::{Answer, Request};
use crate::kube::time::Wall;
use crate::node::kubelet::Kubelet;
use crate::node::schedule::{Action, RequestKind};
use crate::node::wall_clock::WallClock;

/// A running process.
pub(crate) struct Process {
    kubelet: Kubelet,
    credentials: Credentials,
    started: Duration,
}

/// What one turn of the loop does.
pub(crate) enum Turn {
    /// It waits for so long.
    Waits(Duration),
    /// It takes no time.
    Other,
    Sends(Sent),
}

/// A request.
pub(crate) struct Sent {
    kind: RequestKind,
    pub(crate) request: Request,
    start: Mono,
}

impl Process {
    /// A program that was built at `built`.
    pub(crate) fn new(
        config: Config,
        credentials: Credentials,
        built: Wall,
        seed: u64,
        now: Duration,
    ) -> Self {
        let clock = WallClock::new(built, Duration::ZERO);
        let kubelet = Kubelet::new(config, clock, seed, Mono::START);
        Self { kubelet, credentials, started: now }
    }

    fn clock(&self, now: Duration, board: Wall) -> Now {
        Now { mono: Mono::START.after(now - self.started), wall: board }
    }

    /// One turn of the loop in `agent`, up to its request. `board` is what the clock shows.
    pub(crate) fn turn(
        &mut self,
        now: Duration,
        board: Wall,
        facts: &Facts,
        is_connected: bool,
    ) -> Turn {
        let start = self.clock(now, board);
        let Self { kubelet, credentials, .. } = self;
        if credentials.refresh(kubelet.moment(start)) {
            kubelet.on_new_credentials();
        }
        let is_apart = credentials.current.signs_apart();
        let others = others(&mut credentials.rotation, is_apart, kubelet.moment(start));
        let (kind, request) = match kubelet.next(start, others, || is_connected) {
            Action::Wait(until) => return Turn::Waits(until.since(start.mono)),
            turn @ (Action::Credentials(_) | Action::Change) => {
                let step = credentials.step(kubelet.moment(start));
                let is_apart = credentials.current.signs_apart();
                match (step, turn) {
                    (Step::Send(request), Action::Credentials(_)) => {
                        (RequestKind::Certificate { is_apart }, request)
                    }
                    (Step::Send(_), _) => unreachable!("a change is no request"),
                    (step, _) => {
                        if let Step::InUse(_) = step {
                            kubelet.on_new_credentials();
                        }
                        return Turn::Other;
                    }
                }
            }
            Action::ReadFacts => {
                kubelet.on_facts(None, start.mono);
                return Turn::Other;
            }
            Action::Connect(_)
            | Action::Disconnect(_)
            | Action::TryOtherAddress(_)
            | Action::Registered
            | Action::PodCidrs(_) => return Turn::Other,
            Action::Send(kind, _) => match kubelet.request(kind, start, facts) {
                Some(request) => (kind, request),
                None => return Turn::Other,
            },
            Action::End => unreachable!("no shutdown was announced"),
        };
        Turn::Sends(Sent { kind, request, start: start.mono })
    }

    /// The client that sends this request.
    pub(crate) fn client(&mut self, sent: &Sent) -> &mut Api {
        match sent.kind {
            kind if is_certificate(kind) => self.credentials.current.signing_api(),
            _ => &mut self.credentials.current.api,
        }
    }

    /// The rest of the turn.
    pub(crate) fn on_answer(
        &mut self,
        sent: &Sent,
        mut outcome: Answer,
        now: Duration,
        board: Wall,
    ) {
        if let Ok(response) = &mut outcome {
            response.date = Some(wall(now));
        }
        let end = self.clock(now, board);
        let Self { kubelet, credentials, .. } = self;
        credentials.current.on_answer(&outcome);
        if is_certificate(sent.kind) {
            kubelet.on_answer(sent.kind, &outcome, end.mono);
            let _ = credentials.on_response(outcome, kubelet.moment(end));
        } else {
            kubelet.on_response(sent.kind, outcome, sent.start, end);
        }
    }
}

fn is_certificate(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Certificate { .. })
}
