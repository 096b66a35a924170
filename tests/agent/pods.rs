//! A board without pods as a guest: stray pods, takeovers, and an upgrade, with the real process
//! against the double.

use std::time::{Duration, Instant, SystemTime};

use apidouble::{Double, RBAC_NODE_GROUP, Recorded};
use serde_json::{Value, json};

use crate::common::api::{admin, condition, is_ready};
use crate::common::board::Board;
use nix::sys::signal::Signal;
use nodelet::kube::time::Wall;
use support::{Folder, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A double whose control plane notices a missing renewal, and the kubeconfig of `pi`.
struct Site {
    double: Double,
    folder: Folder,
    kubeconfig: String,
}

impl Site {
    fn new(name: &str) -> Self {
        let double = Double::builder().lifecycle(Duration::from_secs(8)).start();
        let folder = Folder::new(name);
        let path = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
        Self {
            double,
            folder,
            kubeconfig: path.to_str().unwrap().to_owned(),
        }
    }

    /// Starts the agent with a fifth of the default periods.
    fn start(&self, more: &[&str]) -> Board {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig);
        let mut args = vec![
            &*kubeconfig,
            "--hostname-override=pi",
            "--node-lease-duration-seconds=8",
            "--node-status-update-frequency=1s",
            "--eviction-hard=memory.available<1Ki",
        ];
        args.extend(more);
        Board::start(&args)
    }

    fn bind(&self, name: &str) -> Value {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": "pi", "containers": [{"name": "c", "image": "i"}]}});
        admin(&self.double, "POST", PODS, &pod)
    }

    fn pod(&self, name: &str) -> Option<Value> {
        self.double.get(&format!("{PODS}/{name}"))
    }

    fn is_rejected(&self, name: &str) {
        let pod = eventually("the rejection", Duration::from_secs(10), || {
            self.pod(name)
                .filter(|pod| pod["status"]["phase"] == "Failed")
        });
        assert_eq!(pod["status"]["reason"], "OutOfpods");
        assert_eq!(
            pod["status"]["message"],
            "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 0, \
             capacity: 0"
        );
    }

    fn is_ready(&self) -> Option<Value> {
        self.double.get("nodes/pi").filter(is_ready)
    }

    fn ready(&self) -> Value {
        eventually("Ready", Duration::from_secs(10), || self.is_ready())
    }

    fn renewed(&self) {
        eventually("the Lease", Duration::from_secs(10), || {
            self.double.get("leases/pi")
        });
    }

    fn about_pods(&self) -> Vec<Recorded> {
        let mut requests = self.double.requests();
        requests.retain(|request| request.path.contains("/pods"));
        requests
    }

    /// The labels of the Node, without those of the architecture.
    fn labels(&self) -> Value {
        let mut labels = self.double.get("nodes/pi").unwrap()["metadata"]["labels"].take();
        let map = labels.as_object_mut().unwrap();
        map.retain(|key, _| !key.ends_with("/arch"));
        labels
    }
}

/// The log line that contains `part`.
fn line_with(board: &Board, part: &str) -> String {
    eventually(part, Duration::from_secs(10), || {
        board.log().into_iter().find(|line| line.contains(part))
    })
}

fn guest() -> Value {
    json!({
        "kubernetes.io/os": "nodelet", "beta.kubernetes.io/os": "nodelet",
        "node.kubernetes.io/exclude-disruption": "true",
        "node.kubernetes.io/exclude-from-external-load-balancers": "true",
    })
}

#[test]
fn a_pod_from_before_the_registration_is_rejected_after_the_first_lease() {
    let site = Site::new("stray-before");
    let uid = site.bind("web")["metadata"]["uid"].clone();
    let _board = site.start(&[]);
    site.is_rejected("web");
    assert_eq!(site.pod("web").unwrap()["metadata"]["uid"], uid);
    // Its deletion needs nobody.
    admin(&site.double, "DELETE", &format!("{PODS}/web"), &Value::Null);
    assert!(site.pod("web").is_none());
    let paths: Vec<String> = site.double.requests().into_iter().map(|r| r.path).collect();
    let first = |part: &str| paths.iter().position(|path| path.contains(part)).unwrap();
    assert!(first("/pods") > first("/leases/pi"), "{paths:?}");
    assert!(site.is_ready().is_some());
    site.double.assert_schemas_hold();
}

#[test]
fn a_pod_that_comes_later_is_rejected_with_a_report_and_a_terminating_one_is_ended() {
    let site = Site::new("stray-later");
    // A report in each second; looks follow each other after 15 s.
    let _board = site.start(&["--node-status-report-frequency=1s"]);
    let first = eventually("the first look", Duration::from_secs(10), || {
        site.about_pods().first().cloned()
    });
    site.bind("web");
    let gone = site.bind("gone");
    admin(
        &site.double,
        "DELETE",
        &format!("{PODS}/gone"),
        &Value::Null,
    );
    let waiting = site.pod("gone").unwrap();
    assert!(
        waiting["metadata"]["deletionTimestamp"].is_string(),
        "{waiting}"
    );
    eventually("the end of both", Duration::from_secs(30), || {
        let web = site.pod("web")?;
        (site.pod("gone").is_none() && web["status"]["phase"] == "Failed").then_some(())
    });
    let requests = site.about_pods();
    let looks: Vec<Instant> = requests
        .iter()
        .filter(|r| r.method == "GET")
        .map(|r| r.at)
        .collect();
    assert!(looks[1].duration_since(first.at) >= Duration::from_secs(14));
    let delete = requests.iter().find(|r| r.method == "DELETE").unwrap();
    let options: Value = serde_json::from_slice(&delete.body).unwrap();
    assert_eq!(
        options,
        json!({"gracePeriodSeconds": 0, "preconditions": {"uid": gone["metadata"]["uid"]}})
    );
    assert!(!site.double.ever_left_ready());
}

#[test]
fn a_pod_that_a_kubelet_started_since_the_boot_is_left() {
    let site = Site::new("stray-running");
    site.bind("web");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let status = json!({"status": {"phase": "Running",
        "startTime": Wall::from_epoch(now.unwrap()).time()}});
    admin(
        &site.double,
        "PATCH",
        &format!("{PODS}/web/status"),
        &status,
    );
    site.bind("stray");
    let board = site.start(&[]);
    site.is_rejected("stray");
    let line = line_with(&board, "may still run");
    assert!(
        line.contains("default/web first, and are left; drain the Node and reboot"),
        "{line}"
    );
    assert_eq!(site.pod("web").unwrap()["status"]["phase"], "Running");
}

/// A Deployment with `nodeName` in its template makes a new pod for each rejected one.
#[test]
fn a_controller_that_insists_is_bounded() {
    let site = Site::new("stray-storm");
    for index in 0..8 {
        site.bind(&format!("p{index}"));
    }
    let _board = site.start(&["--node-status-report-frequency=1s"]);
    let first = eventually("the first look", Duration::from_secs(10), || {
        site.about_pods().first().map(|look| look.at)
    });
    let mut serial = 8;
    while first.elapsed() < Duration::from_secs(40) {
        let failed = (0..serial).filter(|index| {
            let pod = site.pod(&format!("p{index}"));
            pod.is_some_and(|pod| pod["status"]["phase"] == "Failed")
        });
        for _ in 0..(failed.count() + 8).saturating_sub(serial) {
            site.bind(&format!("p{serial}"));
            serial += 1;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let requests = site.about_pods();
    let patches = requests.iter().filter(|r| r.method == "PATCH").count();
    let lists = requests.iter().filter(|r| r.method == "GET").count();
    println!("{patches} rejections, {lists} lists, {serial} pods in 40 s");
    assert_eq!(patches, 10);
    assert_eq!(lists, 3, "one each 15 s");
    assert!(!site.double.ever_left_ready());
}

#[test]
fn a_service_account_asks_once_and_says_so_once() {
    let site = Site::new("stray-token");
    site.double.add_token("t0ken", "pi", &[RBAC_NODE_GROUP]);
    let kubeconfig = site
        .folder
        .write("token", site.double.kubeconfig_token("t0ken"));
    let site = Site {
        kubeconfig: kubeconfig.to_str().unwrap().to_owned(),
        ..site
    };
    site.bind("web");
    let board = site.start(&["--node-status-report-frequency=1s"]);
    let line = line_with(&board, "the server forbids listing them");
    assert!(
        line.contains("pods is forbidden: User \"pi\" cannot list resource \"pods\""),
        "{line}"
    );
    std::thread::sleep(Duration::from_secs(20));
    assert_eq!(site.about_pods().len(), 1);
    assert_eq!(site.pod("web").unwrap()["status"]["phase"], "Pending");
}

#[test]
fn with_pods_the_node_is_a_kubelets_and_no_pod_is_asked_for() {
    let site = Site::new("stray-kubelet");
    site.bind("web");
    let _board = site.start(&["--max-pods=110", "--node-status-report-frequency=1s"]);
    site.ready();
    site.renewed();
    std::thread::sleep(Duration::from_secs(3));
    assert!(site.about_pods().is_empty());
    assert_eq!(
        site.labels(),
        json!({"kubernetes.io/hostname": "pi", "kubernetes.io/os": "linux",
            "beta.kubernetes.io/os": "linux"})
    );
    assert_eq!(
        site.double.get("nodes/pi").unwrap()["spec"]["taints"],
        Value::Null
    );
}

/// The Node of a kubelet becomes a guest, and back.
#[test]
fn a_node_is_taken_over_both_ways() {
    let site = Site::new("takeover");
    let mut board = site.start(&["--max-pods=110"]);
    site.ready();
    site.renewed();
    board.stop(Signal::SIGTERM);
    let theirs = json!({"metadata": {"labels": {
        "example.com/rack": "7", "topology.kubernetes.io/zone": "a"}}});
    admin(&site.double, "PATCH", "/api/v1/nodes/pi", &theirs);
    let with_theirs = |mut labels: Value| {
        labels["example.com/rack"] = "7".into();
        labels["topology.kubernetes.io/zone"] = "a".into();
        labels
    };

    let mut board = site.start(&[]);
    eventually("the guest", Duration::from_secs(10), || {
        (site.labels() == with_theirs(guest())).then_some(())
    });
    // What an administrator sets stays while it runs, apart from os.
    let set = json!({"metadata": {"labels": {
        "kubernetes.io/hostname": "by-hand", "node.kubernetes.io/exclude-disruption": null,
        "kubernetes.io/os": "linux"}}});
    admin(&site.double, "PATCH", "/api/v1/nodes/pi", &set);
    board.stop(Signal::SIGTERM);
    let mut board = site.start(&["--node-resync-frequency=1s"]);
    eventually("the guest after a restart", Duration::from_secs(10), || {
        (site.labels() == with_theirs(guest())).then_some(())
    });
    admin(&site.double, "PATCH", "/api/v1/nodes/pi", &set);
    eventually("the os label repaired", Duration::from_secs(10), || {
        (site.labels()["kubernetes.io/os"] == "nodelet").then_some(())
    });
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.labels()["kubernetes.io/hostname"], "by-hand");
    assert_eq!(
        site.labels().get("node.kubernetes.io/exclude-disruption"),
        None
    );
    board.stop(Signal::SIGTERM);

    let _board = site.start(&["--max-pods=110"]);
    eventually("the kubelet's labels", Duration::from_secs(10), || {
        let labels = site.labels();
        (labels["kubernetes.io/os"] == "linux" && labels["kubernetes.io/hostname"] == "pi")
            .then_some(())
    });
    let balancers = "node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(
        site.labels()[balancers],
        "true",
        "a kubelet removes no label"
    );
    assert!(!site.double.ever_left_ready());
}

/// A Node as the previous version registered it: os is linux, and it has a host name label.
#[test]
fn an_upgrade_makes_a_guest_without_a_moment_of_not_ready() {
    let site = Site::new("upgrade");
    let old = [
        "--node-labels=kubernetes.io/hostname=pi,kubernetes.io/os=linux,\
         node.kubernetes.io/exclude-disruption=,\
         node.kubernetes.io/exclude-from-external-load-balancers=",
        "--reject-pods=false",
    ];
    let mut board = site.start(&old);
    let node = site.ready();
    site.renewed();
    assert_eq!(
        site.labels(),
        json!({"kubernetes.io/hostname": "pi", "kubernetes.io/os": "linux",
            "beta.kubernetes.io/os": "linux"})
    );
    board.stop(Signal::SIGTERM);
    let _board = site.start(&[]);
    eventually("the guest", Duration::from_secs(10), || {
        (site.labels() == guest()).then_some(())
    });
    std::thread::sleep(Duration::from_secs(9));
    let after = site.ready();
    assert_eq!(after["metadata"]["uid"], node["metadata"]["uid"]);
    let transition = |node: &Value| condition(node, "Ready").unwrap()["lastTransitionTime"].clone();
    assert_eq!(transition(&after), transition(&node));
    assert!(!site.double.ever_left_ready());
}

#[test]
fn the_version_of_the_server_is_reported() {
    let site = Site::new("version");
    let _board = site.start(&["--kubelet-version=server"]);
    let node = site.ready();
    let version = node["status"]["nodeInfo"]["kubeletVersion"]
        .as_str()
        .unwrap();
    let (code, server) = site.double.as_admin("GET", "/version", "", &Value::Null);
    assert_eq!(code, 200);
    let start = server["gitVersion"].as_str().unwrap();
    assert!(
        version.starts_with(&format!("{start}-nodelet.")),
        "{version}"
    );
    let paths: Vec<String> = site.double.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(paths[..2], ["/version", "/api/v1/nodes"]);
}
