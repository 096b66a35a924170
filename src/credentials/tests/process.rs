//! The agent without its sockets: the real core with the real credentials, for the simulations with
//! files. And how their seeds are chosen.
#![allow(clippy::disallowed_methods)]

use std::ops::Range;
use std::panic;
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
    pub(crate) kubelet: Kubelet,
    pub(crate) credentials: Credentials,
    started: Duration,
}

/// What one turn of the loop does.
pub(crate) enum Turn {
    /// It waits for so long.
    Waits(Duration),
    /// It takes a step of the credentials; with `true` an operation of a file change.
    Credentials(Step, bool),
    /// It takes no time.
    Other,
    Sends(Sent),
}

/// A request, with the limit of its time.
pub(crate) struct Sent {
    pub(crate) kind: RequestKind,
    pub(crate) budget: Duration,
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
        let (kind, budget, request) = match kubelet.next(start, others, || is_connected) {
            Action::Wait(until) => return Turn::Waits(until.since(start.mono)),
            turn @ (Action::Credentials(_) | Action::Change) => {
                let step = credentials.step(kubelet.moment(start));
                let is_apart = credentials.current.signs_apart();
                match (step, turn) {
                    (Step::Send(request), Action::Credentials(budget)) => {
                        (RequestKind::Certificate { is_apart }, budget, request)
                    }
                    (Step::Send(_), _) => unreachable!("a change is no request"),
                    (step, _) => {
                        if let Step::InUse(_) = step {
                            kubelet.on_new_credentials();
                        }
                        return Turn::Credentials(step, others.has_change);
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
            Action::Send(kind, budget) => match kubelet.request(kind, start, facts) {
                Some(request) => (kind, budget, request),
                None => return Turn::Other,
            },
            Action::End => unreachable!("no shutdown was announced"),
        };
        Turn::Sends(Sent { kind, budget, request, start: start.mono })
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

pub(crate) fn is_certificate(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Certificate { .. })
}

/// Runs `live` for each seed. The variable of the environment can name others: `5`, or `51..99`.
pub(crate) fn live_all(variable: &str, seeds: Range<u64>, live: impl Fn(u64)) {
    let seeds = match std::env::var(variable) {
        Err(_) => seeds,
        Ok(text) => match text.split_once("..") {
            Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
            None => text.parse().unwrap()..text.parse::<u64>().unwrap() + 1,
        },
    };
    let fails = |seed: &u64| panic::catch_unwind(panic::AssertUnwindSafe(|| live(*seed))).is_err();
    let failed: Vec<u64> = seeds.filter(fails).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}
