//! The objects, and one resourceVersion for all of them that only grows, as in etcd.

use crate::kinds::Kind;
use crate::status::{self, Failure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where an object is: resource, namespace, name.
pub(crate) type Key = (&'static str, String, String);

fn path((resource, namespace, name): &Key) -> String {
    format!("{resource}/{namespace}/{name}")
}

/// The double's etcd.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    version: u64,
    /// In the order of their paths. A backup shares them.
    objects: BTreeMap<String, Arc<Value>>,
}

impl Default for Store {
    fn default() -> Self {
        Self { version: 200, objects: BTreeMap::new() }
    }
}

impl Store {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        self.objects.get(&path(key)).map(Arc::as_ref)
    }

    /// A copy of an object, or the server's refusal.
    pub(crate) fn find(&self, kind: &Kind, key: &Key) -> Result<Value, Failure> {
        self.get(key).cloned().ok_or_else(|| status::not_found(&kind.about(&key.2)))
    }

    /// Stores an object with the next resourceVersion, and returns it as stored.
    pub(crate) fn put(&mut self, key: &Key, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(path(key), Arc::new(object.clone()));
        object
    }

    /// Removes an object, and returns it with the resourceVersion of its end.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Value> {
        let mut object = Arc::unwrap_or_clone(self.objects.remove(&path(key))?);
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        Some(object)
    }

    /// All objects of a kind, in one namespace or in all.
    pub(crate) fn all(&self, kind: &Kind, namespace: Option<&str>) -> Vec<&Value> {
        let below =
            format!("{}/{}", kind.resource, namespace.map_or(String::new(), |n| format!("{n}/")));
        let from = self.objects.range(below.clone()..);
        let found = from.take_while(|(path, _)| path.starts_with(&below));
        found.map(|(_, object)| object.as_ref()).collect()
    }

    /// Copies of them.
    pub(crate) fn list(&self, kind: &Kind, namespace: Option<&str>) -> Vec<Value> {
        self.all(kind, namespace).into_iter().cloned().collect()
    }

    /// Replaces all objects by those of a backup. resourceVersions go on, also those of the backup.
    pub(crate) fn restore(&mut self, backup: Self) {
        self.version = self.version.max(backup.version);
        self.objects = backup.objects;
    }
}
