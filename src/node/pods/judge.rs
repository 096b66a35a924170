//! What to do with each stray pod, and the request that does it.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::message::{Accept, Request};
use crate::kube::names::is_dns_subdomain;
use crate::kube::object::{self, MIRROR};
use crate::kube::time::Wall;

/// The folder of the namespaces' objects.
const NAMESPACES: &str = "/api/v1/namespaces";

/// The kubelet's message for a pod that exceeds its maxPods of 0:
/// `pkg/kubelet/lifecycle/predicate.go`.
const MESSAGE: &str = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, \
                       used: 0, capacity: 0";

/// Tolerance of the comparison of a kubelet's time with the server's time: a kubelet's clock may be
/// behind.
const KUBELET_TOLERANCE: Duration = Duration::from_secs(60);
/// Tolerance of the comparison of two times of API servers. They have whole seconds, and the clocks
/// of two servers differ.
const SERVER_TOLERANCE: Duration = Duration::from_secs(10);
/// The statuses of a pod's containers.
const CONTAINERS: [&str; 3] =
    ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"];
/// The field manager of a kubelet. In k3s the controllers have the kubelet's name, `k3s`, and write
/// the status of pods of a dead Node, too.
const KUBELET: &str = "kubelet";

/// The stray pods of a list, without those that are not bound to this Node, have ended, or have no
/// valid name.
#[derive(Debug, Default)]
pub(super) struct StrayPods {
    /// The changes of the pods that no kubelet has started since this boot.
    pub(super) changes: Vec<PodChange>,
    /// The names of the pods that stay, because their containers may still run here.
    pub(super) kept: Vec<String>,
}

/// A change of one pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodChange {
    /// `default/web-0`.
    pub(super) name: String,
    /// The precondition of the request.
    pub(super) uid: String,
    /// `metadata.creationTimestamp`: RFC 3339 in UTC, so the text sorts by time.
    pub(super) created: String,
    /// The request to send.
    pub(super) kind: ChangeKind,
    pub(super) path: String,
    /// `metadata.generation`.
    generation: Option<u64>,
    /// What a former kubelet has written; `None` if it has started nothing.
    started: Option<Started>,
}

/// A pod that a former kubelet has started.
#[derive(Clone, Debug, PartialEq)]
struct Started {
    /// The conditions that are not the kubelet's.
    conditions: Vec<Value>,
    /// The `metadata.resourceVersion` of these conditions.
    version: String,
}

/// The two changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// Sets the phase to Failed, perhaps of a pod that was deleted and stays.
    Reject { is_deleted: bool },
    /// Ends the deletion of a pod that waits for its kubelet.
    Delete,
}

impl PodChange {
    /// The rejection of a pod that was deleted and stays. A PodDisruptionBudget does not count it.
    pub(super) fn rejected(self) -> Self {
        Self { kind: ChangeKind::Reject { is_deleted: true }, started: None, ..self }
    }

    /// The request. It carries the uid, so that the server refuses it for another pod of the same
    /// name.
    pub(super) fn request(&self) -> Request {
        match self.kind {
            ChangeKind::Reject { .. } => {
                let mut status = json!({
                    "message": MESSAGE,
                    "phase": "Failed",
                    "reason": "OutOfpods",
                });
                if let Some(generation) = self.generation {
                    object::set(&mut status, &["observedGeneration"], generation.into());
                }
                let mut metadata = json!({"uid": self.uid});
                if let Some(Started { conditions, version }) = &self.started {
                    // A merge patch replaces the whole list.
                    object::set(&mut metadata, &["resourceVersion"], version.as_str().into());
                    object::set(&mut status, &["conditions"], conditions.as_slice().into());
                    for list in CONTAINERS {
                        object::set(&mut status, &[list], Value::Null);
                    }
                }
                let change = json!({"metadata": metadata, "status": status});
                let path = format!("{}/status", self.path);
                Request::patch(path, Accept::Metadata, &change)
            }
            ChangeKind::Delete => {
                let options = json!({
                    "gracePeriodSeconds": 0,
                    "preconditions": {"uid": self.uid},
                });
                Request::delete(self.path.clone(), &options)
            }
        }
    }
}

impl StrayPods {
    /// Judges all pods. `None` if `list` is no PodList. `boot` is the time of this boot by the
    /// server's clock. If it is unknown, each pod that a kubelet may have started is kept.
    pub(super) fn of_list(list: &Value, node_name: &str, boot: Option<Wall>) -> Option<Self> {
        let is_list = object::text(list, &["kind"]) == "PodList";
        let mut strays = Self::default();
        for pod in object::list(list, &["items"]) {
            strays.add(pod, node_name, boot);
        }
        is_list.then_some(strays)
    }

    fn add(&mut self, pod: &Value, node_name: &str, boot: Option<Wall>) {
        let text = |path: &[&str]| object::text(pod, path);
        let (namespace, pod_name) = (text(&["metadata", "namespace"]), text(&["metadata", "name"]));
        let uid = text(&["metadata", "uid"]);
        let has_ended = ["Failed", "Succeeded"].contains(&text(&["status", "phase"]));
        // The path of a request is made of namespace and name.
        let is_named = is_dns_subdomain(namespace) && is_dns_subdomain(pod_name);
        let is_identified = (1..=64).contains(&uid.len());
        if text(&["spec", "nodeName"]) != node_name || has_ended || !is_named || !is_identified {
            return;
        }
        let name = format!("{namespace}/{pod_name}");
        if may_run(pod, boot) {
            return self.kept.push(name);
        }
        let is_deleted = !text(&["metadata", "deletionTimestamp"]).is_empty();
        let is_mirror = object::at(pod, &["metadata", "annotations", MIRROR]).is_some();
        self.changes.push(PodChange {
            name,
            uid: uid.to_owned(),
            created: text(&["metadata", "creationTimestamp"]).to_owned(),
            kind: if is_deleted || is_mirror {
                ChangeKind::Delete
            } else {
                ChangeKind::Reject { is_deleted: false }
            },
            generation: object::at(pod, &["metadata", "generation"]).and_then(Value::as_u64),
            started: started(pod),
            path: format!("{NAMESPACES}/{namespace}/pods/{pod_name}"),
        });
    }
}

/// What the rejection takes from the status of a former kubelet, as a kubelet does: a
/// PodDisruptionBudget counts a pod whose condition Ready is True as healthy, whatever its phase.
fn started(pod: &Value) -> Option<Started> {
    let conditions = object::list(pod, &["status", "conditions"]);
    let is_kubelets = |condition: &&Value| {
        ["Ready", "ContainersReady"].contains(&object::text(condition, &["type"]))
    };
    conditions.iter().any(|condition| is_kubelets(&condition)).then(|| Started {
        conditions: conditions.iter().filter(|it| !is_kubelets(it)).cloned().collect(),
        version: object::text(pod, &["metadata", "resourceVersion"]).to_owned(),
    })
}

/// Whether a kubelet may have started the pod, or one of its containers, since this boot; true if
/// that cannot be told. Such containers may still run beside this process. If the pod were deleted,
/// its StatefulSet would start it elsewhere, and it would run twice.
fn may_run(pod: &Value, boot: Option<Wall>) -> bool {
    // After a reboot a kubelet starts new containers in a pod whose startTime stays.
    let mut started = Vec::new();
    for list in CONTAINERS {
        for container in object::list(pod, &["status", list]) {
            for state in ["state", "lastState"] {
                for kind in ["running", "terminated"] {
                    started.push(object::text(container, &[state, kind, "startedAt"]));
                }
            }
        }
    }
    started.retain(|time| !time.is_empty());
    let has_containers = !object::list(pod, &["status", "containerStatuses"]).is_empty();
    let start = object::text(pod, &["status", "startTime"]);
    if !start.is_empty() {
        started.push(start);
    } else if !has_containers && started.is_empty() {
        return false;
    }
    let times: Option<Vec<Wall>> = started.into_iter().map(Wall::parse).collect();
    let Some(boot) = boot.filter(|_| !start.is_empty()) else {
        return true;
    };
    let is_since =
        |time: Option<Wall>, tolerance| time.is_none_or(|at| at.after(tolerance) >= boot);
    // The clock of the kubelet may have been wrong. The server writes creationTimestamp and the
    // times of managedFields: a pod that was created, or that a kubelet wrote, after the boot was
    // also started after it.
    let created = object::text(pod, &["metadata", "creationTimestamp"]);
    let of_kubelets = object::list(pod, &["metadata", "managedFields"])
        .iter()
        .filter(|entry| object::text(entry, &["manager"]) == KUBELET);
    let written = of_kubelets.map(|entry| object::text(entry, &["time"])).chain([created]);
    is_since(times.and_then(|times| times.into_iter().max()), KUBELET_TOLERANCE)
        || written
            .filter(|time| !time.is_empty())
            .any(|time| is_since(Wall::parse(time), SERVER_TOLERANCE))
}
