//! The conditions of this program in the Node's list.

use serde_json::Value;

use crate::core::conditions::{condition, is, status};
use crate::kube::object;

/// One condition, without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The condition type.
    pub name: String,
    /// The status.
    pub is_true: bool,
    /// A CamelCase word.
    pub reason: String,
    /// One line.
    pub message: String,
}

/// The conditions to set and to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// In a fixed order.
    pub statements: Vec<Statement>,
    /// Types of this program that are not listed any more.
    pub removed: Vec<String>,
}

impl Statement {
    /// A condition of the server; `None` if its status is neither True nor False.
    pub(super) fn parse(condition: &Value) -> Option<Self> {
        let text = |key: &str| object::text(condition, &[key]).to_owned();
        let is_true = match object::text(condition, &["status"]) {
            "True" => true,
            "False" => false,
            _ => return None,
        };
        Some(Self {
            name: text("type"),
            is_true,
            reason: text("reason"),
            message: text("message"),
        })
    }
}

impl Listed {
    /// Sets the conditions of a Node. An equal one is unchanged; the transition time changes with
    /// the status. New ones come before Ready, as after the kubelet's own setters.
    pub fn apply(&self, list: &mut Vec<Value>, now: &str) {
        list.retain(|c| !self.removed.iter().any(|name| is(c, name)));
        for new in &self.statements {
            let found = list.iter_mut().find(|c| is(c, &new.name));
            let old = found.as_deref().and_then(Statement::parse);
            if old.as_ref() == Some(new) {
                continue;
            }
            let status = status(new.is_true);
            let mut condition = condition(&new.name, status, &new.reason, &new.message, now);
            let Some(found) = found else {
                let ready = list.iter().position(|c| is(c, "Ready"));
                list.insert(ready.unwrap_or(list.len()), condition);
                continue;
            };
            let since = object::text(found, &["lastTransitionTime"]);
            if old.is_some_and(|old| old.is_true == new.is_true) && !since.is_empty() {
                object::members(&mut condition, &[])
                    .insert("lastTransitionTime".into(), since.into());
            }
            *found = condition;
        }
    }

    /// Whether [`Self::apply`] sets the condition `name`.
    pub fn sets(&self, name: &str) -> bool {
        self.statements.iter().any(|ours| ours.name == name)
    }
}
