//! What an answer means: for the phase, for what we know of the Node, and for when the
//! next turn is due.

use std::time::Duration;

use serde_json::Value;

use super::state::{Round, State};
use super::{FIRST_BACKOFF, Node, Step, resource_version};
use crate::config::Config;
use crate::core::events;
use crate::core::instant::Mono;
use crate::core::patch;
use crate::kube::message::{Outcome, Refused};
use crate::kube::object;

const LAST_BACKOFF: Duration = Duration::from_secs(7);

/// Conflicts in a row that are worth an immediate new try (nodeStatusUpdateRetry).
const CONFLICT_TRIES: u32 = 5;

impl Node {
    /// Takes the outcome of the last request. `random` (0 to 1000) spreads the reports of many
    /// boards.
    pub fn on_response(
        &mut self,
        config: &Config,
        outcome: Outcome,
        now: Mono,
        random: u32,
    ) -> Step {
        let sent = std::mem::replace(&mut self.state, State::Create);
        self.last_noop = None;
        self.due = now.after(config.update_frequency);
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => {
                self.on_silence(config, sent, now);
                return Step::Silent(why);
            }
        };
        let body = match response.accepted() {
            Ok(()) => serde_json::from_slice::<Value>(&response.body).ok(),
            Err(refused) => return self.on_refusal(config, sent, refused, now),
        };
        match sent {
            State::Creating => {
                let Some(node) = body.and_then(whole) else {
                    self.back_off(now);
                    return Step::Refused(Refused::nonsense("a Node"));
                };
                self.tell(config, &node);
                self.seen = Some(node);
                self.state = State::Known {
                    round: Round::default(),
                    just_read: false,
                };
                self.report_later(config, true, now, random);
                Step::Registered
            }
            State::Reading(round) => {
                self.state = State::Read(round);
                let Some(node) = body.and_then(whole) else {
                    self.back_off(now);
                    return Step::Refused(Refused::nonsense("a Node"));
                };
                self.on_read(config, node, round, now);
                Step::Read
            }
            State::Patching {
                round,
                want,
                changed,
            } => {
                self.tell(config, &want);
                let node = body.and_then(|body| patched(body, want));
                self.state = match node {
                    Some(_) => State::Known {
                        round: Round::default(),
                        just_read: false,
                    },
                    // The patch was accepted, but the response does not say what is stored.
                    None => State::Read(Round::default()),
                };
                self.seen = node.or(self.seen.take());
                self.report_later(config, changed, now, random);
                match round.adopts {
                    true => Step::Adopted,
                    false => Step::Updated,
                }
            }
            nothing_sent => {
                self.state = nothing_sent;
                Step::Continue
            }
        }
    }

    fn on_read(&mut self, config: &Config, node: Value, round: Round, now: Mono) {
        self.notice_foreign_changes(config, &node, now);
        if let Some((want, events)) = self.unconfirmed.take()
            && events::of_change(&config.node.name, Some(&node), &want).is_empty()
        {
            self.events.extend(events);
        }
        self.seen = Some(node);
        self.state = State::Known {
            round,
            just_read: true,
        };
        self.read_at = now;
        self.due = now;
    }

    /// The request may have been applied: the Node is read before the next patch.
    fn on_silence(&mut self, config: &Config, sent: State, now: Mono) {
        self.state = match sent.round() {
            Some(round) => State::Read(round),
            None => State::Create,
        };
        if let State::Patching { want, .. } = sent {
            let events = self.events_of(config, &want);
            self.unconfirmed = Some((want, events));
        }
        self.back_off(now);
    }

    fn on_refusal(&mut self, config: &Config, sent: State, refused: Refused, now: Mono) -> Step {
        match (sent, refused.code, refused.reason.as_str()) {
            // Somebody created it, or only somebody else may: adopt what is there.
            (State::Creating, 403, _) | (State::Creating, 409, "AlreadyExists") => {
                self.state = State::Read(Round::ADOPTION);
                self.due = now;
                self.forbidden = (refused.code == 403).then_some(refused);
                Step::Continue
            }
            (State::Reading(_) | State::Patching { .. }, 404, _) => {
                let known = self.seen.take().is_some();
                match config.node.register {
                    true => self.back_off(now),
                    false => self.state = State::Read(Round::default()),
                }
                match known {
                    true => Step::Gone,
                    // Without a Node, the reason that matters is why the create was refused.
                    false => Step::Refused(self.forbidden.take().unwrap_or(refused)),
                }
            }
            (State::Patching { mut round, .. }, 409, _) => {
                round.conflicts += 1;
                let again = round.conflicts < CONFLICT_TRIES;
                if !again {
                    round.conflicts = 0;
                }
                self.state = State::Read(round);
                match again {
                    true => {
                        self.due = now;
                        Step::Continue
                    }
                    false => Step::Refused(refused),
                }
            }
            (sent, ..) => {
                if let Some(round) = sent.round().filter(|round| !round.adopts) {
                    self.state = State::Read(round);
                }
                self.back_off(now);
                let asked_for = refused.retry_after.unwrap_or_default();
                self.due = self.due.max(now.after(asked_for.min(LAST_BACKOFF)));
                Step::Refused(refused)
            }
        }
    }

    /// Notes the events of a change that the server has now.
    fn tell(&mut self, config: &Config, now: &Value) {
        let events = self.events_of(config, now);
        self.events.extend(events);
    }

    /// What was refused or not heard is tried again after 100 ms to 7 s.
    fn back_off(&mut self, now: Mono) {
        self.due = now.after(self.backoff);
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
    }

    /// The server has our status. After a change the next report comes after a half to one
    /// and a half periods, so that boards that changed together do not report together for
    /// ever.
    pub(super) fn report_later(&mut self, config: &Config, changed: bool, now: Mono, random: u32) {
        let period = config.report_frequency;
        let delay = match changed {
            true => period / 2 + period / 1000 * random,
            false => period,
        };
        self.report_due = now.after(delay);
        self.backoff = FIRST_BACKOFF;
    }
}

/// An answer that is a whole Node of the server: with what tells it from others of its
/// name, and what a patch is built from.
fn whole(answer: Value) -> Option<Value> {
    let is_node = object::text(&answer, &["kind"]) == "Node";
    (is_node && is_identified(&answer)).then(|| without_managed_fields(answer))
}

/// The Node after a patch: the metadata of the answer, with what we sent.
fn patched(answer: Value, sent: Value) -> Option<Value> {
    if !is_identified(&answer) {
        return None;
    }
    let mut answer = without_managed_fields(answer);
    if object::text(&answer, &["kind"]) == "Node" {
        return Some(answer);
    }
    let mut node = sent;
    let metadata = object::members(&mut answer, &[]).remove("metadata")?;
    object::members(&mut node, &[]).insert("metadata".into(), metadata);
    Some(node)
}

fn is_identified(answer: &Value) -> bool {
    !object::text(answer, &["metadata", "uid"]).is_empty()
        && patch::is_precondition(resource_version(answer))
}

/// They are half of a Node, and nothing to us.
fn without_managed_fields(mut answer: Value) -> Value {
    object::members(&mut answer, &["metadata"]).remove("managedFields");
    answer
}
