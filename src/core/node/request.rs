//! The next request: a read, a create or a patch.

use serde_json::{Value, json};

use super::reconcile::reconcile;
use super::state::State;
use super::{LastNoop, Node, resource_version, tick};
use crate::config::Config;
use crate::core::conditions;
use crate::core::eviction::Pressures;
use crate::core::facts::Facts;
use crate::core::instant::Now;
use crate::core::patch;
use crate::core::status::{self, Desired};
use crate::kube::message::{Accept, Request};
use crate::kube::object;

const NODES: &str = "/api/v1/nodes";

impl Node {
    /// The request that reads the Node.
    pub fn read(&mut self, config: &Config) -> Request {
        self.state = State::Reading(self.state.round().unwrap_or_default());
        Request::get(path(config), Accept::Object)
    }

    /// The create or patch that brings the Node to the status of `facts`, if one is needed, and
    /// one line for each missing fact.
    pub fn write(
        &mut self,
        config: &Config,
        facts: &Facts,
        pressures: Pressures,
        now: Now,
    ) -> (Option<Request>, Vec<String>) {
        let report = self.is_report_due(now.mono);
        if let Some(last) = &self.last_noop
            && last.pressures == pressures
            && last.facts.same_status_as(facts)
            && !report
        {
            self.due = now.mono.after(tick(config));
            return (None, last.missing.clone());
        }
        let Desired { node, missing } = self.desired(config, facts, pressures, now);
        let request = match (&self.seen, self.state.round()) {
            (Some(seen), Some(round)) => {
                let change = patch::diff(seen, &node);
                let changed = round.adopts || change.as_ref().is_some_and(needs_patch);
                match changed || report {
                    true => self.patch(config, node, changed, now),
                    false => None,
                }
            }
            _ => Some(self.create(node)),
        };
        if request.is_none() {
            self.due = now.mono.after(tick(config));
            self.last_noop = Some(LastNoop {
                facts: facts.clone(),
                pressures,
                missing: missing.clone(),
            });
        }
        (request, missing)
    }

    /// The desired Node.
    fn desired(&self, config: &Config, facts: &Facts, pressures: Pressures, now: Now) -> Desired {
        let initial = || status::initial(config, facts, pressures, now.wall);
        let mut desired = match (&self.seen, self.state.round()) {
            (Some(seen), Some(round)) if round.adopts => {
                let mut ours = seen.clone();
                reconcile(&config.node, &initial().node, &mut ours);
                status::desired(config, facts, pressures, &ours, now.wall)
            }
            (Some(seen), Some(_)) => status::desired(config, facts, pressures, seen, now.wall),
            _ => initial(),
        };
        let status = object::members(&mut desired.node, &["status"]);
        let list = object::elements(status, "conditions");
        self.problems.apply(list, &now.wall.time());
        desired
    }

    fn create(&mut self, node: Value) -> Request {
        self.state = State::Creating;
        Request::post(NODES, Accept::Object, &node)
    }

    /// Never `None`: only a Node with a resourceVersion is cached.
    fn patch(&mut self, config: &Config, want: Value, changed: bool, now: Now) -> Option<Request> {
        let mut want = want;
        let list = object::elements(object::members(&mut want, &["status"]), "conditions");
        conditions::heartbeat(list, |name| self.problems.sets(name), &now.wall.time());
        let seen = self.seen.as_ref()?;
        // Within one second of the last heartbeat the conditions are equal, too.
        let change = patch::diff(seen, &want).unwrap_or_else(|| {
            let conditions = object::list(&want, &["status", "conditions"]);
            json!({"status": {"conditions": conditions}})
        });
        let body = patch::with_precondition(change, resource_version(seen))?;
        self.state = State::Patching {
            round: self.state.round().unwrap_or_default(),
            want,
            changed,
        };
        let path = format!("{}/status", path(config));
        Some(Request::patch(path, Accept::Metadata, &body))
    }
}

/// A small request for the server's time: every response carries a `Date`.
pub fn time_probe(config: &Config) -> Request {
    Request::get(path(config), Accept::Metadata)
}

fn path(config: &Config) -> String {
    format!("{NODES}/{}", config.node.name)
}

/// Whether a change needs a patch. A change of annotations alone is sent with the next patch.
pub(super) fn needs_patch(change: &Value) -> bool {
    change.get("status").is_some() || object::at(change, &["metadata", "labels"]).is_some()
}
