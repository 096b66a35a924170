//! A board with a container runtime: what the Node tells, and that no runtime delays the Lease.

use std::time::{Duration, Instant};

use apidouble::Double;
use serde_json::Value;

use crate::common::api::{condition, ready, status_patches};
use crate::common::board::Board;
use crate::common::command::nodelet;
use crate::common::lease::longest_gap_of_requests;
use crate::common::runtime::Runtime;
use support::{Folder, eventually};

/// Issue 15: from the return of the runtime to Ready.
pub(super) const BACK: Duration = Duration::from_secs(15);
pub(super) const DOWN: &str = "container runtime is down";

/// The agent, and `nodelet runtime` with the same flags.
pub(super) struct Pair {
    pub(super) agent: Board,
    service: Board,
}

pub(super) fn start(double: &Double, folder: &Folder, more: &[&str]) -> Pair {
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let facts = format!("--container-runtime-facts={}", folder.path().join("facts").display());
    let start =
        |command: &[&str]| Board::fast(&kubeconfig, "pi", &[command, &[&facts], more].concat());
    Pair { service: start(&["runtime"]), agent: start(&[]) }
}

pub(super) fn wait_for(double: &Double, limit: Duration, status: &str, message: &str) -> Value {
    eventually(&format!("{status} {message}"), limit, || {
        double.get("nodes/pi").filter(|node| {
            let (is, says) = ready(node);
            is == status && says.contains(message)
        })
    })
}

pub(super) fn version(node: &Value) -> &str {
    let version = &node["status"]["nodeInfo"]["containerRuntimeVersion"];
    version.as_str().unwrap_or_default()
}

/// The runtime starts after the agent, is killed, and is back. Then it is silent, as a process that
/// got SIGSTOP, and is back: the question that has no answer ends after 20 s.
#[test]
fn an_outage_of_the_runtime_is_two_patches_and_delays_no_renewal() {
    let (double, folder) = (Double::start(), Folder::new("runtime"));
    let socket = folder.path().join("c.sock");
    let endpoint = format!("--container-runtime-endpoint={}", socket.display());
    let mut pair = start(&double, &folder, &[&endpoint]);
    pair.agent.watch_threads();
    let message = "container runtime status check may not have completed yet";
    let node = wait_for(&double, Duration::from_secs(10), "False", message);
    assert_eq!(version(&node), "unknown://Unknown");
    let mut runtime = Runtime::start(&socket, 12);

    let node = wait_for(&double, Duration::from_secs(5), "True", "");
    assert_eq!(version(&node), "containerd://2.1.9");
    let images = node["status"]["images"].as_array().unwrap();
    assert_eq!(images.len(), 10);
    assert_eq!(images[0]["names"][1], "registry.lab/app-11:1");
    assert_eq!(images[0]["sizeBytes"], 1_000_011);
    assert_eq!(images[9]["sizeBytes"], 1_000_002);
    assert_eq!(node["status"]["runtimeHandlers"][0]["name"], "");
    double.assert_members_are_known();

    let looks = runtime.looks();
    eventually("three more looks", Duration::from_secs(30), || {
        (runtime.looks() >= looks + 3).then_some(())
    });
    double.clear_requests();
    let patches = || status_patches(&double);
    runtime.stop();
    let down = wait_for(&double, Duration::from_secs(45), "False", DOWN);
    assert_eq!(version(&down), "containerd://Unknown");
    assert_eq!(down["status"]["images"], node["status"]["images"]);
    pair.service.says("no such file or directory; is the runtime running?");
    pair.agent.says("container runtime: no success for 30 s; see the log of nodelet runtime");
    assert_eq!(patches(), 1, "one patch for the outage");

    let mut runtime = Runtime::start(&socket, 12);
    let returned = Instant::now();
    let back = wait_for(&double, BACK, "True", "");
    println!("Ready {:?} after the return", returned.elapsed());
    assert_eq!(version(&back), "containerd://2.1.9");
    assert_eq!(patches(), 2, "one patch for the return");

    runtime.silence(true);
    wait_for(&double, Duration::from_secs(45), "False", DOWN);
    assert_eq!(patches(), 3);
    runtime.silence(false);
    wait_for(&double, Duration::from_secs(20) + BACK, "True", "");
    // An interval of 2 s, and one call of 1 s: the lease law.
    let gap = longest_gap_of_requests(&double);
    assert!(gap < Duration::from_secs(4), "{gap:?}");
    assert!(pair.agent.is_running());
    pair.agent.assert_one_thread();
    runtime.stop();
}

/// Its unit is started with the agent's, and must not fail or start again.
#[test]
fn without_an_endpoint_nodelet_runtime_ends_at_once_with_success() {
    let ended = nodelet(["runtime", "--max-pods=0"]);
    assert_eq!(ended.code, 0);
    assert!(ended.stderr.contains("no --container-runtime-endpoint"), "{ended:?}");
}

/// The file system of the images is that of a run: `/proc` has no size, `/` has less than 1 Ei.
#[test]
fn inspect_and_check_look_at_the_runtime_once() {
    let folder = Folder::new("runtime-once");
    let mut runtime = Runtime::start(&folder.path().join("c.sock"), 3);
    let endpoint = runtime.endpoint();
    let print = |command: &str| {
        let flags = ["--hostname-override=pi", "--root-dir=/proc", "--output=json"];
        let flags = flags.into_iter().chain(["--eviction-hard=imagefs.available<1Ei"]);
        nodelet([command, &endpoint].into_iter().chain(flags)).report()
    };
    let node = print("inspect").0;
    assert_eq!(runtime.looks(), 1);
    assert_eq!(version(&node), "containerd://2.1.9");
    assert_eq!(node["status"]["images"].as_array().unwrap().len(), 3);
    let disk = condition(&node, "DiskPressure");
    assert_eq!(disk.unwrap()["status"], "True");

    let report = print("check");
    assert_eq!(runtime.looks(), 2);
    assert_eq!(report.finding("runtime-images")["detail"], "3");
    runtime.stop();
    // Without its answer the images are not known to be on the file system of `--root-dir`.
    let node = print("inspect").0;
    assert!(condition(&node, "MemoryPressure").is_some(), "{node}");
    assert_eq!(condition(&node, "DiskPressure"), None);
}
