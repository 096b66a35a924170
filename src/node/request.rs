//! What is asked next: a read, or the create or patch that makes the server hold
//! what the facts say.

use serde_json::{Value, json};

use super::reconcile::reconcile;
use super::{Node, Phase, Sent, Settled, resource_version};
use crate::conditions;
use crate::config::Config;
use crate::eviction::Pressures;
use crate::facts::Facts;
use crate::kube::message::{Accept, Method, Request};
use crate::kube::object;
use crate::now::Now;
use crate::patch;
use crate::status::{self, Desired};

const NODES: &str = "/api/v1/nodes";

impl Node {
    /// The request that shows what the server holds.
    pub fn read(&mut self, config: &Config) -> Request {
        self.sent = Sent::Read;
        Request {
            method: Method::Get,
            path: path(config),
            accept: Accept::Object,
            body: Vec::new(),
        }
    }

    /// The request that makes the server hold what `facts` say, if there is a need
    /// for one; and a line for each fact that is missing.
    pub fn write(
        &mut self,
        config: &Config,
        facts: &Facts,
        pressures: Pressures,
        now: Now,
    ) -> (Option<Request>, Vec<String>) {
        self.fresh = false;
        let report = now.mono >= self.report_due;
        if !report && let Some(missing) = self.settled(facts, pressures) {
            return (self.nothing(config, now), missing);
        }
        let Desired { node, missing } = self.desired(config, facts, pressures, now);
        let request = match (&self.seen, self.phase) {
            (Some(seen), Phase::Adopt | Phase::Update) => {
                let change = patch::diff(seen, &node);
                let changed = self.phase == Phase::Adopt || change.as_ref().is_some_and(counts);
                if changed || report {
                    self.patch(config, node, changed, now)
                } else {
                    self.settled = Some(Settled {
                        facts: facts.clone(),
                        pressures,
                        resource_version: resource_version(seen).to_owned(),
                        missing: missing.clone(),
                    });
                    self.nothing(config, now)
                }
            }
            _ => Some(self.create(node)),
        };
        (request, missing)
    }

    /// What a computation would find missing, where it would find nothing to patch.
    fn settled(&self, facts: &Facts, pressures: Pressures) -> Option<Vec<String>> {
        let (settled, seen) = (self.settled.as_ref()?, self.seen.as_ref()?);
        let holds = self.phase == Phase::Update
            && settled.pressures == pressures
            && settled.resource_version == resource_version(seen)
            && settled.facts.tell_the_same(facts);
        holds.then(|| settled.missing.clone())
    }

    fn nothing(&mut self, config: &Config, now: Now) -> Option<Request> {
        self.sent = Sent::Nothing;
        self.due = now.mono.after(config.update_frequency);
        None
    }

    /// The Node that the server should hold now.
    fn desired(&self, config: &Config, facts: &Facts, pressures: Pressures, now: Now) -> Desired {
        let initial = || status::initial(config, facts, pressures, now.wall);
        match (&self.seen, self.phase) {
            (None, _) | (_, Phase::Create) => initial(),
            (Some(seen), Phase::Adopt) => {
                let mut ours = seen.clone();
                reconcile(&initial().node, &mut ours);
                status::desired(config, facts, pressures, &ours, now.wall)
            }
            (Some(seen), Phase::Update) => {
                status::desired(config, facts, pressures, seen, now.wall)
            }
        }
    }

    fn create(&mut self, node: Value) -> Request {
        let body = node.to_string().into_bytes();
        self.sent = Sent::Create;
        Request {
            method: Method::Post,
            path: NODES.to_owned(),
            accept: Accept::Object,
            body,
        }
    }

    /// Never `None`: only a Node with a resourceVersion is ever kept.
    fn patch(&mut self, config: &Config, want: Value, changed: bool, now: Now) -> Option<Request> {
        let mut want = want;
        let list = object::elements(object::members(&mut want, &["status"]), "conditions");
        conditions::heartbeat(list, &now.wall.time());
        let seen = self.seen.as_ref()?;
        // Within the second of the last heartbeat even the conditions may be equal.
        let change = patch::diff(seen, &want).unwrap_or_else(|| {
            let conditions = object::list(&want, &["status", "conditions"]);
            json!({"status": {"conditions": conditions}})
        });
        let body = patch::with_precondition(change, resource_version(seen))?;
        self.sent = Sent::Patch { want, changed };
        Some(Request {
            method: Method::Patch,
            path: format!("{}/status", path(config)),
            accept: Accept::Metadata,
            body: body.to_string().into_bytes(),
        })
    }
}

/// The smallest question about the Node: whoever answers it, tells the time.
pub fn glance(config: &Config) -> Request {
    Request {
        method: Method::Get,
        path: path(config),
        accept: Accept::Metadata,
        body: Vec::new(),
    }
}

fn path(config: &Config) -> String {
    format!("{NODES}/{}", config.node.name)
}

/// Whether a change is a reason to patch: annotations alone ride along with the next.
pub(super) fn counts(change: &Value) -> bool {
    change.get("status").is_some() || object::at(change, &["metadata", "labels"]).is_some()
}
