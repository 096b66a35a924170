//! What an answer means: for the phase, for what we know of the Node, and for when the
//! next turn is due.

use std::time::Duration;

use serde_json::Value;

use super::{FIRST_BACKOFF, Node, Phase, Sent, Step, resource_version};
use crate::config::Config;
use crate::events;
use crate::kube::message::{Outcome, Refused};
use crate::kube::object;
use crate::now::Mono;
use crate::patch;

const LAST_BACKOFF: Duration = Duration::from_secs(7);

/// Conflicts in a row that are worth an immediate new try (nodeStatusUpdateRetry).
const CONFLICT_TRIES: u32 = 5;

impl Node {
    /// Takes the answer to the last request. `random` (0 to 1000) spreads the reports
    /// of many boards.
    pub fn fold(&mut self, config: &Config, outcome: Outcome, now: Mono, random: u32) -> Step {
        let sent = std::mem::replace(&mut self.sent, Sent::Nothing);
        self.settled = None;
        self.due = now.after(config.update_frequency);
        let response = match outcome {
            Outcome::Silent(why) => {
                // It may have been applied.
                self.doubted = true;
                if let Sent::Patch { want, .. } = sent {
                    let events = self.events_of(config, &want);
                    self.unheard = Some((want, events));
                }
                self.back_off(now);
                return Step::Silent(why);
            }
            Outcome::Answered(response) => response,
        };
        let body = match response.accepted() {
            Ok(()) => serde_json::from_slice::<Value>(&response.body).ok(),
            Err(refused) => return self.refused(config, &sent, refused, now),
        };
        match sent {
            Sent::Nothing => Step::Continue,
            Sent::Create => {
                let Some(node) = body.and_then(whole) else {
                    self.back_off(now);
                    return Step::Refused(Refused::nonsense("a Node"));
                };
                self.tell(config, &node);
                self.seen = Some(node);
                self.phase = Phase::Update;
                self.report_later(config, true, now, random);
                Step::Registered
            }
            Sent::Read => {
                let Some(node) = body.and_then(whole) else {
                    self.back_off(now);
                    return Step::Refused(Refused::nonsense("a Node"));
                };
                self.notice_others(config, &node, now);
                if let Some((want, events)) = self.unheard.take()
                    && events::of_change(&config.node.name, Some(&node), &want).is_empty()
                {
                    self.events.extend(events);
                }
                self.seen = Some(node);
                self.doubted = false;
                self.fresh = true;
                self.read_at = now;
                self.due = now;
                Step::Read
            }
            Sent::Patch { want, changed } => {
                self.tell(config, &want);
                match body.and_then(|body| patched(body, want)) {
                    Some(node) => self.seen = Some(node),
                    // It was taken, but by whom and as what has to be read.
                    None => self.doubted = true,
                }
                self.report_later(config, changed, now, random);
                self.conflicts = 0;
                match std::mem::replace(&mut self.phase, Phase::Update) {
                    Phase::Adopt => Step::Adopted,
                    _ => Step::Updated,
                }
            }
        }
    }

    fn refused(&mut self, config: &Config, sent: &Sent, refused: Refused, now: Mono) -> Step {
        match (sent, refused.code, refused.reason.as_str()) {
            // Somebody created it, or only somebody else may: adopt what is there.
            (Sent::Create, 403, _) | (Sent::Create, 409, "AlreadyExists") => {
                self.phase = Phase::Adopt;
                self.due = now;
                self.forbidden = (refused.code == 403).then_some(refused);
                Step::Continue
            }
            (Sent::Read | Sent::Patch { .. }, 404, _) => {
                let known = self.seen.take().is_some();
                if config.node.register {
                    self.phase = Phase::Create;
                    self.back_off(now);
                }
                match known {
                    true => Step::Gone,
                    // Where there is none, it matters why we may not create it.
                    false => Step::Refused(self.forbidden.take().unwrap_or(refused)),
                }
            }
            (Sent::Patch { .. }, 409, _) => {
                self.doubted = true;
                self.conflicts += 1;
                if self.conflicts < CONFLICT_TRIES {
                    self.due = now;
                    return Step::Continue;
                }
                self.conflicts = 0;
                Step::Refused(refused)
            }
            _ => {
                self.doubted = true;
                if self.phase == Phase::Adopt {
                    self.phase = Phase::Create;
                }
                self.back_off(now);
                self.due = self
                    .due
                    .max(now.after(refused.retry_after.unwrap_or_default().min(LAST_BACKOFF)));
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
