//! A board without pods as a guest of a cluster: what happens to pods, workloads and
//! other nodes.
//!
//! [`strays`] and [`adoption`] run against any cluster of `tests/common/cluster`; with the double,
//! requests are counted as well. [`placement`] and [`evictions`] need pods that run: a [`plant`]
//! with kube-controller-manager, kube-scheduler and kubemark, and are skipped without one.
//! [`outage`] stops and kills a real control plane.
//! [`judge`] says from objects alone whether an outcome is right.

mod adoption;
mod evictions;
mod judge;
mod outage;
mod placement;
mod plant;
mod strays;
mod workloads;

use std::thread::sleep;
use std::time::{Duration, Instant};

use apidouble::{Double, Recorded};
use serde_json::{Value, json};

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use support::eventually;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Grace period of a control plane with agents alone, whose Leases last as long.
const SHORT_GRACE: Duration = Duration::from_secs(8);

/// Grace period of one with hollow kubelets: longer than two of their renewals, one each 10 s. No
/// flag of kubemark shortens that in all versions.
const GRACE: Duration = Duration::from_secs(25);

const SOON: Duration = Duration::from_secs(10);

/// A cluster, and the name and the kubeconfig of one of its nodes.
struct Site {
    cluster: Cluster,
    name: String,
    kubeconfig: String,
}

impl Site {
    fn of(cluster: Cluster, name: &str) -> Self {
        let name = cluster.node_name(name);
        Self { kubeconfig: cluster.kubeconfig(&name), cluster, name }
    }

    /// The agent with a fifth of the default periods.
    fn start(&self, more: &[&str]) -> Board {
        Board::fast(&self.kubeconfig, &self.name, more)
    }

    fn node_path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    /// The path of a pod of this site.
    fn pod_path(&self, pod: &str) -> String {
        format!("{PODS}/{}-{pod}", self.name)
    }

    fn bind(&self, pod: &str) -> Value {
        let object = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{}-{pod}", self.name)},
            "spec": {"nodeName": self.name, "containers": [{"name": "c", "image": "i"}]}});
        accepted(self.cluster.post(PODS, &object))
    }

    fn pod(&self, pod: &str) -> Option<Value> {
        self.cluster.get(&self.pod_path(pod))
    }

    fn patch(&self, path: &str, patch: &Value) -> Value {
        accepted(self.cluster.patch(path, patch))
    }

    fn is_rejected(&self, pod: &str) {
        let pod = eventually("the rejection", SOON, || {
            self.pod(pod).filter(|pod| pod["status"]["phase"] == "Failed")
        });
        assert_eq!(pod["status"]["reason"], "OutOfpods");
        assert_eq!(pod["status"]["message"], REJECTED);
    }

    /// The Node, when it is Ready and the control plane has removed the taint that each new Node
    /// has. That write, in the middle of a test, would make a patch of the agent fail with 409.
    fn ready(&self) -> Value {
        let not_ready = |taint: &Value| taint["key"] == "node.kubernetes.io/not-ready";
        eventually("Ready", GRACE, || {
            let node = self.cluster.node(&self.name)?;
            let taints = node["spec"]["taints"].as_array();
            let is_tainted = taints.is_some_and(|taints| taints.iter().any(not_ready));
            (is_ready(&node) && !is_tainted).then_some(node)
        })
    }

    /// A kubelet whose first attempt comes before its Node makes the next one 10 s later.
    fn renewed(&self) {
        eventually("the Lease", 2 * SOON, || self.cluster.lease(&self.name));
    }

    /// The labels of the Node, without those of the architecture.
    fn labels(&self) -> Value {
        let mut labels = self.cluster.node(&self.name).unwrap()["metadata"]["labels"].take();
        let map = labels.as_object_mut().unwrap();
        map.retain(|key, _| !key.ends_with("/arch"));
        labels
    }

    fn double(&self) -> &Double {
        self.cluster.double().expect("only with the double")
    }

    /// The requests to pods; with the double alone.
    fn about_pods(&self) -> Vec<Recorded> {
        let mut requests = self.double().requests();
        requests.retain(|request| request.path.contains("/pods"));
        requests
    }
}

/// The path of a look at the pods of a node.
pub(crate) fn look_at(node: &str) -> String {
    format!(
        "/api/v1/pods?fieldSelector=spec.nodeName%3D{node}%2Cstatus.phase%21%3DFailed%2C\
         status.phase%21%3DSucceeded&limit=8&resourceVersion=0"
    )
}

const REJECTED: &str = "Pod was rejected: Node didn't have enough resource: pods, requested: 1, \
                        used: 0, capacity: 0";

fn accepted((code, answer): (u16, Value)) -> Value {
    assert!((200..300).contains(&code), "{code}: {answer}");
    answer
}

/// The labels of a guest, without those of the architecture.
fn guest_labels() -> Value {
    json!({
        "kubernetes.io/os": "nodelet", "beta.kubernetes.io/os": "nodelet",
        "node.kubernetes.io/exclude-disruption": "true",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    })
}

/// Calls `look` twice a second until it is `Ok`; after `limit`, panics with its last error. A real
/// control plane needs the CPU more than `look` does.
fn settle<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) => assert!(start.elapsed() < limit, "{what}: not in {limit:?}: {why}"),
        }
        sleep(Duration::from_millis(500));
    }
}
