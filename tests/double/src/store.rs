//! The objects, and one resourceVersion for all of them that only grows, as in etcd.

use crate::kinds::Kind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Where an object is: resource, namespace, name.
pub(crate) type Key = (&'static str, String, String);

/// A change, for watches.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) resource: &'static str,
    pub(crate) what: &'static str,
    pub(crate) object: Value,
}

const REMEMBERED: usize = 1000;

/// The double's etcd.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    objects: BTreeMap<Key, Value>,
    changes: VecDeque<Change>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            version: 200,
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
        }
    }
}

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Stores an object with the next resourceVersion, and returns it as stored.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let what = if self.objects.contains_key(&key) {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.remember(key.0, what, object.clone());
        self.objects.insert(key, object.clone());
        object
    }

    /// Removes an object, and returns it with the resourceVersion of its end.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = self.objects.remove(key)?;
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.remember(key.0, "DELETED", object.clone());
        Some(object)
    }

    /// All objects of a kind, in one namespace or in all.
    pub(crate) fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Value> {
        self.objects
            .iter()
            .filter(|(key, _)| key.0 == kind.resource && namespace.is_none_or(|n| n == key.1))
            .map(|(_, object)| object.clone())
            .collect()
    }

    pub(crate) fn since(&self, version: u64, resource: &str) -> Vec<Change> {
        let new = |c: &&Change| c.version > version && c.resource == resource;
        self.changes.iter().filter(new).cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        self.objects.clear();
        self.changes.clear();
    }

    fn remember(&mut self, resource: &'static str, what: &'static str, object: Value) {
        if self.changes.len() == REMEMBERED {
            self.changes.pop_front();
        }
        self.changes.push_back(Change {
            version: self.version,
            resource,
            what,
            object,
        });
    }
}
