//! The setters of the container runtime: `containerRuntimeVersion`, `images`, `runtimeHandlers` and
//! `features`; and the lines of Ready that come from it.
//! Upstream: `pkg/kubelet/nodestatus/setters.go` VersionInfo, Images, NodeFeatures, ReadyCondition.

use serde_json::{Map, Value, json};

use crate::kube::facts::{Handler, Image, RuntimeFacts};
use crate::kube::object;

const VERSION: &str = "containerRuntimeVersion";
/// The version of a Node without a runtime. UIs split it at "://".
const NONE: &str = "none://";
/// The version of a runtime that has never answered.
const UNKNOWN: &str = "unknown://Unknown";

/// Sets the runtime's members. `None` is no runtime: no images and no handlers.
pub(super) fn set(node: &mut Value, runtime: Option<&RuntimeFacts>) {
    let info = object::members(node, &["status", "nodeInfo"]);
    let told = info.get(VERSION).and_then(Value::as_str).unwrap_or_default();
    let version = match runtime {
        None => NONE.to_owned(),
        Some(RuntimeFacts { version: Some(version), .. }) => version.clone(),
        Some(_) if matches!(told, "" | NONE) => UNKNOWN.to_owned(),
        Some(_) => told.to_owned(),
    };
    info.insert(VERSION.into(), version.into());
    let status = object::members(node, &["status"]);
    let Some(runtime) = runtime else {
        status.remove("images");
        status.remove("runtimeHandlers");
        return;
    };
    if let Some(images) = &runtime.images {
        set_list(status, "images", images.iter().map(image).collect());
    }
    if let Some(handlers) = &runtime.handlers {
        set_list(status, "runtimeHandlers", handlers.iter().map(handler).collect());
    }
    if let Some(policy) = runtime.supplemental_groups_policy {
        let features = json!({"supplementalGroupsPolicy": policy});
        status.insert("features".into(), features);
    }
}

/// An empty list is absent, as the server stores it.
fn set_list(status: &mut Map<String, Value>, key: &str, list: Vec<Value>) {
    if list.is_empty() {
        drop(status.remove(key))
    } else {
        drop(status.insert(key.to_owned(), list.into()))
    }
}

/// An image as the server returns it: an empty list of names is null, and a size of 0 is absent.
/// Otherwise every comparison would find a change.
fn image(image: &Image) -> Value {
    let mut value = Map::new();
    let names = match image.names.as_slice() {
        [] => Value::Null,
        names => names.into(),
    };
    value.insert("names".into(), names);
    let size = i64::try_from(image.size_bytes).unwrap_or(i64::MAX);
    if size > 0 {
        value.insert("sizeBytes".into(), size.into());
    }
    value.into()
}

fn handler(handler: &Handler) -> Value {
    json!({
        "name": handler.name,
        "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
            "userNamespaces": handler.user_namespaces,
        },
    })
}

/// The lines of Ready, in the kubelet's order: the runtime's last success, the health checks, the
/// runtime's own conditions.
pub(super) fn unready(
    runtime: Option<&RuntimeFacts>,
    health: &[String],
    offers_pods: bool,
) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(runtime.and_then(|runtime| runtime.down).map(str::to_owned));
    lines.extend_from_slice(health);
    lines.extend(runtime.and_then(|runtime| runtime.not_ready.clone()));
    // A board that offers no pods needs no CNI plugin: containerd without one tells
    // NetworkReady=false for ever.
    let network = runtime.filter(|_| offers_pods);
    lines.extend(network.and_then(|runtime| runtime.network.clone()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> RuntimeFacts {
        let named = |name: &str| Handler { name: name.to_owned(), ..Handler::default() };
        RuntimeFacts {
            version: Some("containerd://2.1.9".to_owned()),
            images: Some(vec![
                Image {
                    id: "b".to_owned(),
                    names: vec!["x@sha256:1".to_owned(), "x:1".to_owned()],
                    size_bytes: u64::MAX,
                },
                Image::default(),
            ]),
            handlers: Some(vec![named(""), named("crun")]),
            supplemental_groups_policy: Some(true),
            ..RuntimeFacts::default()
        }
    }

    fn status(before: &Value, runtime: Option<&RuntimeFacts>) -> Value {
        let mut node = json!({"status": before});
        set(&mut node, runtime);
        node["status"].take()
    }

    #[test]
    fn a_runtime_is_told_as_the_server_returns_it() {
        let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": false});
        let want = json!({
            "nodeInfo": {"containerRuntimeVersion": "containerd://2.1.9"},
            "images": [
                {"names": ["x@sha256:1", "x:1"], "sizeBytes": i64::MAX},
                {"names": null},
            ],
            "runtimeHandlers": [
                {"name": "", "features": features},
                {"name": "crun", "features": features},
            ],
            "features": {"supplementalGroupsPolicy": true},
        });
        assert_eq!(status(&json!({}), Some(&known())), want);
        // What is not known stays.
        assert_eq!(status(&want, Some(&RuntimeFacts::default())), want);
        let empty = RuntimeFacts {
            images: Some(Vec::new()),
            handlers: Some(Vec::new()),
            ..RuntimeFacts::default()
        };
        let emptied = status(&want, Some(&empty));
        assert_eq!((emptied.get("images"), emptied.get("runtimeHandlers")), (None, None));
        // Without a runtime, as before there was one; features stay.
        let none = json!({
            "nodeInfo": {"containerRuntimeVersion": "none://"},
            "features": {"supplementalGroupsPolicy": true},
        });
        assert_eq!(status(&want, None), none);
    }

    #[test]
    fn a_runtime_that_never_answered_is_unknown_and_a_known_version_is_kept() {
        for (before, want) in [
            ("", "unknown://Unknown"),
            ("none://", "unknown://Unknown"),
            ("containerd://1.7.24", "containerd://1.7.24"),
        ] {
            let before = json!({"nodeInfo": {VERSION: before}});
            let told = status(&before, Some(&RuntimeFacts::default()));
            assert_eq!(told["nodeInfo"][VERSION], want);
        }
    }

    #[test]
    fn the_lines_of_ready_are_in_the_kubelets_order() {
        let runtime = RuntimeFacts {
            down: Some("down"),
            not_ready: Some("runtime".to_owned()),
            network: Some("network".to_owned()),
            ..RuntimeFacts::default()
        };
        let health = ["health".to_owned()];
        for (offers_pods, want) in [
            (true, &["down", "health", "runtime", "network"][..]),
            (false, &["down", "health", "runtime"]),
        ] {
            assert_eq!(unready(Some(&runtime), &health, offers_pods), want);
        }
        assert_eq!(unready(None, &health, true), health);
    }
}
