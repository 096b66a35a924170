//! What a response means for the state, the cached Node and the time of the next request.

use serde_json::Value;

use super::state::{Round, State};
use super::{FIRST_BACKOFF, LAST_BACKOFF, Node, Step, resource_version, tick};
use crate::config::Config;
use crate::core::events;
use crate::core::instant::Mono;
use crate::core::patch;
use crate::kube::json;
use crate::kube::message::{Outcome, Refused};
use crate::kube::object;

/// The number of conflicts in a row after which the next attempt is delayed
/// (nodeStatusUpdateRetry).
const CONFLICT_TRIES: u32 = 5;

impl Node {
    /// Takes the outcome of the last request. `random`, 0 to 1000, spreads the reports of many
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
        self.due = now.after(tick(config));
        let response = match outcome {
            Outcome::Answered(response) => response,
            Outcome::Silent(why) => {
                self.on_silence(config, sent, now);
                return Step::Silent(why);
            }
        };
        let body = match response.accepted() {
            Ok(()) => json::parse(&response.body),
            Err(refused) => return self.on_refusal(config, sent, refused, now),
        };
        match sent {
            State::Creating => {
                let Some(node) = body.and_then(whole) else {
                    self.back_off(now);
                    return Step::Refused(Refused::nonsense("a Node"));
                };
                self.record_events(config, &node);
                self.seen = Some(node);
                self.state = State::Known(Round::default());
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
                self.record_events(config, &want);
                let node = body.and_then(|body| patched(body, want));
                self.state = match node {
                    Some(_) => State::Known(Round::default()),
                    // The patch was accepted, but the response does not identify the Node.
                    None => State::Read(Round::default()),
                };
                self.seen = node.or(self.seen.take());
                self.report_later(config, changed, now, random);
                self.expects_writes |= round.conflicts > 0;
                match round.adopts {
                    true => Step::Adopted,
                    false => Step::Updated,
                }
            }
            not_sent => {
                self.state = not_sent;
                Step::Continue
            }
        }
    }

    fn on_read(&mut self, config: &Config, node: Value, round: Round, now: Mono) {
        self.detect_foreign_changes(config, &node, now);
        if let Some((want, events)) = self.unconfirmed.take()
            && events::of_change(&config.node.name, Some(&node), &want).is_empty()
        {
            self.events.extend(events);
        }
        self.seen = Some(node);
        self.state = State::Known(round);
        self.read_at = now;
        self.expects_writes = false;
        self.due = now;
    }

    /// The server may have applied the request: the Node is read before the next patch.
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
            // It exists, or another client must create it: read and adopt it.
            (State::Creating, 403, _) | (State::Creating, 409, "AlreadyExists") => {
                self.state = State::Read(Round::ADOPTION);
                self.due = now;
                self.forbidden = (refused.code == 403).then_some(refused);
                Step::Continue
            }
            (State::Reading(_) | State::Patching { .. }, 404, _)
                if refused.is_missing("nodes", &config.node.name) =>
            {
                let known = self.seen.take().is_some();
                match config.node.register {
                    true => self.back_off(now),
                    false => self.state = State::Read(Round::default()),
                }
                match known {
                    true => Step::Gone,
                    // The refusal of the create is the cause of the 404.
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

    /// Records the events of a change that the server has stored.
    fn record_events(&mut self, config: &Config, now: &Value) {
        let events = self.events_of(config, now);
        self.events.extend(events);
    }

    /// A refused or unanswered request is retried after 100 ms to 7 s.
    fn back_off(&mut self, now: Mono) {
        self.due = now.after(self.backoff);
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
    }

    /// The server has our status. After a change the next report follows after 0.5 to 1.5 periods,
    /// which spreads the reports of boards that changed together.
    pub(super) fn report_later(&mut self, config: &Config, changed: bool, now: Mono, random: u32) {
        let period = config.report_frequency;
        let delay = match changed {
            true => period / 2 + period / 1000 * random,
            false => period,
        };
        self.report_due = now.after(delay);
        self.expects_writes = changed;
        self.backoff = FIRST_BACKOFF;
    }
}

/// A body that is a whole Node, with a uid and a resourceVersion.
fn whole(body: Value) -> Option<Value> {
    let is_node = object::text(&body, &["kind"]) == "Node";
    (is_node && is_identified(&body)).then(|| without_managed_fields(body))
}

/// The Node after a patch: the metadata of the response and the rest as sent.
fn patched(body: Value, sent: Value) -> Option<Value> {
    if !is_identified(&body) {
        return None;
    }
    let mut body = without_managed_fields(body);
    if object::text(&body, &["kind"]) == "Node" {
        return Some(body);
    }
    let mut node = sent;
    let metadata = object::members(&mut body, &[]).remove("metadata")?;
    object::members(&mut node, &[]).insert("metadata".into(), metadata);
    Some(node)
}

fn is_identified(body: &Value) -> bool {
    !object::text(body, &["metadata", "uid"]).is_empty()
        && patch::is_precondition(resource_version(body))
}

/// managedFields are half of a Node's bytes and unused.
fn without_managed_fields(mut body: Value) -> Value {
    object::members(&mut body, &["metadata"]).remove("managedFields");
    body
}
