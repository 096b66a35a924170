#![allow(unused_must_use, reason = "most results have a test of their own")]

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::config::flags::Flags;
use crate::kube::message::{Method, Response, answered};
use crate::kube::text::Fault;
use crate::node::patch::tests::apply;
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
    apply(pod, &changes)
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

/// The step of this answer to the next request.
fn answer(pods: &mut Pods, outcome: Answer, now: Mono) -> Result<Progress, RequestError> {
    pods.request(now);
    pods.on_response(outcome, Some(boot()), now)
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
    let started = |at: &str| json!({"startTime": at});
    let old = started("2026-11-01T00:00:00Z");
    let run =
        |kind: &str, since: &str| json!({kind: [{"state": {"running": {"startedAt": since}}}]});
    let ended = json!({"ephemeralContainerStatuses":
        [{"lastState": {"terminated": {"startedAt": "2026-11-21T06:01:00Z"}}}]});
    let (before, since) = ("2026-11-01T00:01:00Z", "2026-11-21T06:01:00Z");
    for (name, status, containers, acts) in [
        ("never started", json!({}), json!({}), 1),
        ("before", started("2026-11-21T05:58:00Z"), json!({}), 1),
        ("tolerance", started("2026-11-21T05:59:30Z"), json!({}), 0),
        ("since", started("2026-11-21T06:00:01Z"), json!({}), 0),
        ("in the future", started("2036-11-21T06:00:01Z"), json!({}), 0),
        ("no time at all", started("soon"), json!({}), 0),
        ("containers since", old.clone(), run("containerStatuses", since), 0),
        ("init containers since", old.clone(), run("initContainerStatuses", since), 0),
        ("an ephemeral container that ended since", old.clone(), ended, 0),
        ("containers before", old, run("containerStatuses", before), 1),
        ("containers without startTime", json!({}), run("containerStatuses", before), 0),
        ("containers without times", json!({}), json!({"containerStatuses": [{}]}), 0),
    ] {
        let status = apply(status, &containers);
        for metadata in [
            json!({}),
            json!({"deletionTimestamp": "2026-11-21T07:00:00Z"}),
            json!({"annotations": {"kubernetes.io/config.mirror": "x"}}),
        ] {
            let pod = pod("web", json!({"metadata": metadata, "status": status}));
            let found = json!({"kind": "PodList", "items": [pod]});
            assert_eq!(count(&found, "pi", Some(boot())), Some((acts, 1 - acts)), "{name}");
            // Without the time of the boot each start counts.
            let never = usize::from(name == "never started");
            assert_eq!(count(&found, "pi", None), Some((never, 1 - never)), "{name}");
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
        let step = answer(&mut pods, answered(200, body), at(1));
        assert_eq!(step, Err(Refused::nonsense("a PodList").into()));
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
            attempts += 1;
            lines.push(answer(&mut pods, answered(200, stays.clone()), at(hour * 3600)));
        }
    }
    assert_eq!(attempts, 46);
    assert!(lines.iter().all(|line| *line == Ok(Progress::Continue)));
    let mut pods = guest();
    listed(&mut pods, &[kept], at(0));
    let want = "default/web waited for its kubelet; its finalizer \"example.org/x\" keeps it until \
                the finalizer's controller removes it";
    let step = answer(&mut pods, answered(200, stays), at(0));
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
    let limit = request.accept.body_limit();
    if list.to_string().len() > limit {
        return Ok(Response { exceeds: Some(limit), ..Response::test(200, "") });
    }
    answered(200, list)
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
        assert_eq!(answer(&mut pods, refused(code, "x"), at(1)), Ok(Progress::Continue));
        assert_eq!(changes(&mut pods, at(1)).len(), 1, "{code}: the other pod");
    }
    for code in [401, 403, 429, 500, 503] {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        let error = answer(&mut pods, refused(code, "x"), at(1)).unwrap_err();
        assert!(error.refused.is_some(), "{code}");
        assert_eq!(changes(&mut pods, at(1)), [] as [&str; 0], "{code}");
        listed(&mut pods, &found, at(40));
        // An admission plugin refuses one with 403.
        let expected = if code == 403 { 1 } else { 2 };
        assert_eq!(changes(&mut pods, at(40)).len(), expected, "{code}");
    }
    let mut pods = guest();
    listed(&mut pods, &found, at(1));
    let silent = answer(&mut pods, Err("slow".into()), at(1));
    assert_eq!(silent, Err(Fault::from("slow").into()));
    assert_eq!(changes(&mut pods, at(1)), [] as [&str; 0]);
}

#[test]
fn a_403_is_told_once_and_ends_the_lists_until_the_credentials_change() {
    let mut pods = guest();
    let forbid = |pods: &mut Pods, now| answer(pods, refused(403, "Forbidden"), now);
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
    assert!(answer(&mut pods, refused(500, "x"), at(1)).unwrap_err().refused.is_some());
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
                    let new = serial..serial + random.below(12);
                    serial = new.end;
                    list(&new.map(|n| pod(&format!("p{n}"), json!({}))).collect::<Vec<_>>())
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
