#![allow(unused_must_use, reason = "most results have a test of their own")]

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::kube::message::{Method, Response, answered};
use crate::kube::text::Fault;
use crate::node::schedule::tests::Random;

/// The boot by the server's clock.
fn boot() -> Wall {
    Wall::parse("2026-11-21T06:00:00Z").unwrap()
}

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

fn config(flags: Flags) -> NodeConfig {
    Config::new(flags, || Ok("pi".to_owned())).unwrap().node
}

fn guest() -> Pods {
    Pods::new(&config(Flags::default()))
}

/// A pod that is bound to `pi` and was never started. `changes` is a merge patch.
fn pod(name: &str, changes: Value) -> Value {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-{name}"), "generation": 1,
            "creationTimestamp": "2026-11-20T00:00:00Z",
        },
        "spec": {"nodeName": "pi"},
        "status": {"phase": "Pending"},
    });
    crate::node::patch::tests::apply(pod, &changes)
}

fn list(pods: &[Value]) -> Answer {
    answered(200, json!({"kind": "PodList", "items": pods}))
}

fn ok() -> Answer {
    answered(200, json!({"kind": "PartialObjectMetadata"}))
}

fn refused(code: u16, reason: &str) -> Answer {
    answered(code, json!({"reason": reason, "message": "no"}))
}

/// One list of `pods`, and its step.
fn listed(pods: &mut Pods, found: &[Value], now: Mono) -> Result<Progress, RequestError> {
    assert_eq!(pods.request(now).method, Method::Get);
    pods.on_response(list(found), Some(boot()), now)
}

/// Sends all changes of the last list, and returns them as `Method path`.
fn changes(pods: &mut Pods, now: Mono) -> Vec<String> {
    let mut lines = Vec::new();
    while pods.due() == Some(Mono::START) {
        let request = pods.request(now);
        let path = request.path.replace("/api/v1/namespaces/", "~");
        lines.push(format!("{:?} {path}", request.method));
        assert!(matches!(pods.on_response(ok(), Some(boot()), now), Ok(Progress::Note(_))));
    }
    lines
}

#[test]
fn a_stray_pod_is_rejected_as_a_kubelet_with_max_pods_0_does_it() {
    let mut pods = guest();
    assert_eq!(pods.due(), Some(Mono::START));
    let get = pods.request(at(1));
    assert_eq!(
        (get.method, get.accept, get.path.as_str()),
        (
            Method::Get,
            Accept::List,
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dpi%2Cstatus.phase%21%3DFailed%2C\
             status.phase%21%3DSucceeded&limit=8"
        )
    );
    let found = [pod("web", json!({}))];
    assert_eq!(pods.on_response(list(&found), None, at(1)), Ok(Progress::Done));
    let patch = pods.request(at(2));
    assert_eq!(
        (patch.method, patch.accept, patch.path.as_str()),
        (Method::Patch, Accept::Metadata, "/api/v1/namespaces/default/pods/web/status")
    );
    assert_eq!(
        serde_json::from_slice::<Value>(&patch.body).unwrap(),
        json!({"metadata": {"uid": "uid-web"}, "status": {
            "message": "Pod was rejected: Node didn't have enough resource: pods, requested: 1, \
                        used: 0, capacity: 0",
            "observedGeneration": 1, "phase": "Failed", "reason": "OutOfpods",
        }})
    );
    assert_eq!(
        pods.on_response(ok(), None, at(2)),
        Ok(Progress::Note(
            "default/web was bound to this Node and is rejected with OutOfpods; nodelet runs no \
             pods"
                .to_owned()
        ))
    );
}

#[test]
fn a_terminating_pod_and_a_mirror_pod_are_deleted_with_their_uid() {
    for changes in [
        json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}}),
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
    ] {
        let mut pods = guest();
        listed(&mut pods, &[pod("web", changes)], at(1));
        let delete = pods.request(at(1));
        assert_eq!(
            (delete.method, delete.path.as_str()),
            (Method::Delete, "/api/v1/namespaces/default/pods/web")
        );
        assert_eq!(
            serde_json::from_slice::<Value>(&delete.body).unwrap(),
            json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-web"}})
        );
    }
}

#[test]
fn a_pod_that_a_kubelet_started_since_the_boot_is_left() {
    let running = |since: &str| json!([{"state": {"running": {"startedAt": since}}}]);
    for (name, status, boot, acts) in [
        ("never started", json!({}), Some(boot()), 1),
        ("never started, no time", json!({}), None, 1),
        ("before", json!({"startTime": "2026-11-21T05:58:00Z"}), Some(boot()), 1),
        ("before, no time", json!({"startTime": "2026-11-21T05:58:00Z"}), None, 0),
        ("tolerance", json!({"startTime": "2026-11-21T05:59:30Z"}), Some(boot()), 0),
        ("since", json!({"startTime": "2026-11-21T06:00:01Z"}), Some(boot()), 0),
        ("in the future", json!({"startTime": "2036-11-21T06:00:01Z"}), Some(boot()), 0),
        ("no time at all", json!({"startTime": "soon"}), Some(boot()), 0),
        (
            "containers since, of a pod from before",
            json!({"startTime": "2026-11-01T00:00:00Z",
                "containerStatuses": running("2026-11-21T06:01:00Z")}),
            Some(boot()),
            0,
        ),
        (
            "init containers since",
            json!({"startTime": "2026-11-01T00:00:00Z",
                "initContainerStatuses": running("2026-11-21T06:01:00Z")}),
            Some(boot()),
            0,
        ),
        (
            "an ephemeral container that ended since",
            json!({"startTime": "2026-11-01T00:00:00Z",
                "ephemeralContainerStatuses": [{"lastState":
                    {"terminated": {"startedAt": "2026-11-21T06:01:00Z"}}}]}),
            Some(boot()),
            0,
        ),
        (
            "containers before",
            json!({"startTime": "2026-11-01T00:00:00Z",
                "containerStatuses": running("2026-11-01T00:01:00Z")}),
            Some(boot()),
            1,
        ),
        (
            "containers without startTime",
            json!({"containerStatuses": running("2026-11-01T00:01:00Z")}),
            Some(boot()),
            0,
        ),
        ("containers without times", json!({"containerStatuses": [{}]}), Some(boot()), 0),
    ] {
        for metadata in [
            json!({}),
            json!({"deletionTimestamp": "2026-11-21T07:00:00Z"}),
            json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
        ] {
            let pod = pod("web", json!({"metadata": metadata, "status": status}));
            let found = json!({"kind": "PodList", "items": [pod]});
            assert_eq!(count(&found, "pi", boot), Some((acts, 1 - acts)), "{name}");
        }
    }
    // The clock of the kubelet was in 1970; the server's time of the pod is not.
    let mut young = pod("web", json!({"status": {"startTime": "1970-01-01T00:05:00Z"}}));
    young["metadata"]["creationTimestamp"] = "2026-11-21T07:00:00Z".into();
    let mut pods = guest();
    assert_eq!(
        listed(&mut pods, &[young], at(1)).unwrap_err().why.to_string(),
        "1 may still be running, such as default/web: a kubelet started them since this boot; drain \
         the Node and reboot"
    );
    assert_eq!(pods.due(), None, "a pod that is left causes no further lists");
}

#[test]
fn other_pods_and_invalid_names_are_ignored() {
    for changes in [
        json!({"spec": {"nodeName": "other"}}),
        json!({"spec": {"nodeName": null}}),
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"phase": "Succeeded"}}),
        json!({"metadata": {"uid": ""}}),
        json!({"metadata": {"uid": "u".repeat(65)}}),
        json!({"metadata": {"name": "../nodes/pi"}}),
        json!({"metadata": {"namespace": "a/b?c"}}),
        json!({"metadata": {"namespace": null}}),
        json!({"metadata": 7}),
    ] {
        let mut pods = guest();
        let found = [pod("web", changes.clone())];
        assert_eq!(listed(&mut pods, &found, at(1)), Ok(Progress::Done), "{changes}");
        assert_eq!(pods.due(), None, "{changes}");
    }
    for body in [json!({"kind": "NodeList", "items": []}), json!([])] {
        let mut pods = guest();
        pods.request(at(1));
        assert_eq!(
            pods.on_response(answered(200, body), Some(boot()), at(1)),
            Err(Refused::nonsense("a PodList").into())
        );
    }
}

#[test]
fn the_oldest_of_at_most_8_pods_comes_first() {
    let mut pods = guest();
    let aged = |hour: u32| {
        let created = format!("2026-11-20T{hour:02}:00:00Z");
        pod(&format!("p{hour}"), json!({"metadata": {"creationTimestamp": created}}))
    };
    let found: Vec<Value> = (0..20).rev().map(aged).collect();
    listed(&mut pods, &found, at(1));
    let sent = changes(&mut pods, at(1));
    let want = (12..20).map(|hour| format!("Patch ~default/pods/p{hour}/status"));
    assert_eq!(sent, want.collect::<Vec<String>>());
}

#[test]
fn lists_come_with_requests_of_the_node_and_follow_a_change_every_30_s_for_5_min() {
    let mut pods = guest();
    assert_eq!(listed(&mut pods, &[], at(0)), Ok(Progress::Done));
    assert_eq!(pods.due(), None);
    // The read and the patch of one report.
    pods.node_answered(at(10));
    assert_eq!(pods.due(), None, "too early");
    pods.node_answered(at(300));
    pods.node_answered(at(301));
    assert_eq!(pods.due(), Some(at(301)));
    listed(&mut pods, &[pod("web", json!({}))], at(301));
    assert_eq!(changes(&mut pods, at(301)).len(), 1);
    let mut lists = Vec::new();
    while let Some(due) = pods.due() {
        lists.push(due.since(at(301)).as_secs());
        listed(&mut pods, &[], due);
    }
    assert_eq!(lists, (1..=10).map(|n| n * 30).collect::<Vec<u64>>());
}

#[test]
fn a_pod_that_finalizers_keep_is_tried_again_after_an_hour() {
    let kept = pod("web", json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}}));
    let mut pods = guest();
    for (time, sent) in [(0, 1), (30, 0), (3599, 0), (3600, 1), (3700, 0), (7199, 0)] {
        listed(&mut pods, std::slice::from_ref(&kept), at(time));
        assert_eq!(changes(&mut pods, at(time)).len(), sent, "{time}");
    }
    // The log has one line, about what happened.
    let stays = json!({"metadata": {"finalizers": ["example.org/x"]}});
    let (mut attempts, mut lines) = (0, Vec::new());
    for hour in 2..48 {
        listed(&mut pods, std::slice::from_ref(&kept), at(hour * 3600));
        while pods.due() == Some(Mono::START) {
            pods.request(at(hour * 3600));
            attempts += 1;
            lines.push(pods.on_response(answered(200, stays.clone()), None, at(hour * 3600)));
        }
    }
    assert_eq!(attempts, 46);
    assert!(lines.iter().all(|line| *line == Ok(Progress::Continue)));
    let mut pods = guest();
    listed(&mut pods, &[kept], at(0));
    pods.request(at(0));
    let want = "default/web waited for its kubelet; its finalizer \"example.org/x\" keeps it until \
                the finalizer's controller removes it";
    let step = pods.on_response(answered(200, stays), None, at(0));
    assert_eq!(step, Ok(Progress::Note(want.to_owned())));
}

/// A server with `found`, whose lists have `limit` pods and are at most 256 KiB or of one pod. All
/// requests of six hours, as `second method path`.
fn six_hours(found: &mut Vec<Value>) -> Vec<String> {
    let (mut pods, mut lines) = (guest(), Vec::new());
    for second in 0..6 * 3600 {
        let now = at(second);
        if second % 300 == 0 {
            pods.node_answered(now);
        }
        while pods.due().is_some_and(|due| due <= now) {
            let request = pods.request(now);
            lines.push(format!("{second} {:?} {}", request.method, request.path));
            let outcome = match request.method {
                Method::Get => serve(found, &request),
                Method::Patch => {
                    found.retain(|pod| {
                        let name = object::text(pod, &["metadata", "name"]);
                        !request.path.contains(&format!("/pods/{name}/"))
                    });
                    ok()
                }
                _ => answered(200, json!({"metadata": {"finalizers": ["x"]}})),
            };
            pods.on_response(outcome, Some(boot()), now);
        }
    }
    lines
}

fn serve(found: &[Value], request: &Request) -> Answer {
    let number = |key: &str| {
        let value = request.path.split_once(key)?.1.split('&').next()?;
        value.parse::<usize>().ok()
    };
    let page: Vec<&Value> = found.iter().take(number("&limit=").unwrap()).collect();
    let list = json!({"kind": "PodList", "items": page});
    let size = list.to_string().len();
    match answered(200, list) {
        Ok(_) if size > request.accept.body_limit() => {
            let limit = request.accept.body_limit();
            Ok(Response { exceeds: Some(limit), ..Response::test(200, "") })
        }
        outcome => outcome,
    }
}

/// Each of them is in the way of the others: its size, or because it stays.
#[test]
fn a_large_pod_and_seven_that_stay_do_not_hide_the_others() {
    let mut large = pod("a", json!({}));
    large["metadata"]["annotations"] = json!({"x": "y".repeat(300_000)});
    let stays = json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}});
    let stuck = (0..7).map(|n| pod(&format!("a{n}"), stays.clone())).collect();
    for (case, mut found, kept) in [("large", vec![large], 0), ("stay", stuck, 7)] {
        found.push(pod("stray", json!({})));
        let lines = six_hours(&mut found);
        assert_eq!(found.len(), kept, "{case}: {lines:#?}");
        let gets = lines.iter().filter(|line| line.contains(" Get ")).count();
        let deletes = lines.iter().filter(|line| line.contains(" Delete ")).count();
        assert!(gets < 72 + 6 * 22 + 20, "{case}: {gets} lists in six hours");
        assert_eq!(deletes, 6 * kept, "{case}");
    }
}

#[test]
fn another_pod_of_the_name_is_no_error_and_an_error_ends_the_list() {
    let found = [pod("a", json!({})), pod("b", json!({}))];
    for code in [404, 409, 422] {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        pods.request(at(1));
        let result = pods.on_response(refused(code, "x"), Some(boot()), at(1));
        assert_eq!(result, Ok(Progress::Continue));
        assert_eq!(changes(&mut pods, at(1)).len(), 1, "{code}: the other pod");
    }
    for code in [401, 403, 429, 500, 503] {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        pods.request(at(1));
        let result = pods.on_response(refused(code, "x"), Some(boot()), at(1));
        assert!(matches!(result, Err(RequestError { refused: Some(_), .. })), "{code}");
        assert_eq!(changes(&mut pods, at(1)), [] as [&str; 0], "{code}");
        listed(&mut pods, &found, at(40));
        let expected = match code {
            // An admission plugin refuses this one.
            403 => 1,
            _ => 2,
        };
        assert_eq!(changes(&mut pods, at(40)).len(), expected, "{code}");
    }
    let mut pods = guest();
    listed(&mut pods, &found, at(1));
    pods.request(at(1));
    let silent = Err("slow".into());
    assert_eq!(pods.on_response(silent, Some(boot()), at(1)), Err(Fault::from("slow").into()));
    assert_eq!(changes(&mut pods, at(1)), [] as [&str; 0]);
}

#[test]
fn a_403_is_told_once_and_ends_the_lists_until_the_credentials_change() {
    let mut pods = guest();
    let forbid = |pods: &mut Pods, now| {
        pods.request(now);
        pods.on_response(refused(403, "Forbidden"), Some(boot()), now)
    };
    assert!(matches!(forbid(&mut pods, at(1)), Ok(Progress::Note(_))));
    for seconds in 1..100 {
        pods.node_answered(at(seconds * 300));
        assert_eq!(pods.due(), None);
    }
    pods.credentials_changed();
    pods.node_answered(at(30_000));
    assert_eq!(pods.due(), Some(at(30_000)));
    assert_eq!(forbid(&mut pods, at(30_000)), Ok(Progress::Continue), "told before");
    assert_eq!(pods.due(), None);
    // A list that is refused for another reason is tried again with the next report.
    let mut pods = guest();
    pods.request(at(1));
    let result = pods.on_response(refused(500, "x"), Some(boot()), at(1));
    assert!(matches!(result, Err(RequestError { refused: Some(_), .. })));
    pods.node_answered(at(300));
    assert_eq!(pods.due(), Some(at(300)));
}

#[test]
fn a_node_with_pods_and_reject_pods_false_never_list() {
    for flag in ["--max-pods=1", "--reject-pods=false"] {
        let mut pods = Pods::new(&config(Flags::of(&[flag])));
        assert_eq!(pods.due(), None);
        pods.node_answered(at(300));
        pods.credentials_changed();
        assert_eq!(pods.due(), None);
    }
}

/// A controller makes a new pod for each rejected one. Virtual time passes in random steps.
#[test]
fn at_most_10_pods_are_rejected_and_one_more_each_10_min() {
    for seed in 1..=50 {
        let mut random = Random((seed * 0x9E37_79B9) | 1);
        let mut pods = guest();
        let (mut serial, mut rejected, mut lists, mut now) = (0, 0_u64, 0_u64, 0);
        while now < 6 * 3600 {
            now += random.below(100);
            if random.below(3) == 0 {
                pods.node_answered(at(now));
            }
            if pods.due().is_none_or(|due| due > at(now)) {
                continue;
            }
            let request = pods.request(at(now));
            let outcome = match request.method {
                Method::Get => {
                    lists += 1;
                    let new: Vec<Value> = (0..random.below(12))
                        .map(|_| {
                            serial += 1;
                            pod(&format!("p{serial}"), json!({}))
                        })
                        .collect();
                    list(&new)
                }
                _ => {
                    rejected += 1;
                    ok()
                }
            };
            pods.on_response(outcome, Some(boot()), at(now));
            assert!(rejected <= 10 + now / 600, "seed {seed}: {rejected} after {now} s");
            assert!(lists <= 1 + now / 15, "seed {seed}: {lists} after {now} s");
            assert!(pods.tried.len() <= MAX_TRIED && pods.changes.len() <= PODS_A_LIST);
        }
        assert!(rejected >= 10 + 30, "seed {seed}: {rejected} in 6 h");
    }
}
