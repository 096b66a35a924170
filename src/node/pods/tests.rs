#![allow(unused_must_use, reason = "most results have a test of their own")]

use serde_json::json;

use super::*;
use crate::config::Config;
use crate::kube::message::tests::partial;
use crate::kube::message::{Method, Response, answered};
use crate::node::patch::tests::apply;

/// The boot by the server's clock.
fn boot() -> Wall {
    Wall::parse("2026-11-21T06:00:00Z").unwrap()
}

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

fn guest() -> Pods {
    Pods::new(&Config::of(&[]).node)
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

/// A DELETE has carried out all but what the finalizers hold up.
const FINALIZED: &str = r#"{"metadata": {"finalizers": ["batch.kubernetes.io/job-tracking"]}}"#;

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
    let path = "/api/v1/pods?fieldSelector=spec.nodeName%3Dpi%2Cstatus.phase%21%3DFailed%2C\
                status.phase%21%3DSucceeded&limit=8&resourceVersion=0";
    assert_eq!(pods.request(at(1)), Request::get(path.to_owned(), Accept::List));
    let found = [pod("web", json!({}))];
    assert_eq!(pods.on_response(list(&found), None, at(1)), Ok(Progress::Done));
    let path = "/api/v1/namespaces/default/pods/web/status".to_owned();
    let body = json!({"metadata": {"uid": "uid-web"}, "status": {
        "message": "Pod was rejected: Node didn't have enough resource: pods, requested: 1, \
                    used: 0, capacity: 0",
        "phase": "Failed", "reason": "OutOfpods", "observedGeneration": 1,
    }});
    assert_eq!(pods.request(at(2)), Request::patch(path, Accept::Metadata, &body));
    let note = "default/web was bound to this Node and is rejected with OutOfpods; nodelet runs no \
                pods";
    assert_eq!(pods.on_response(ok(), None, at(2)), Ok(Progress::Note(note.to_owned())));
}

#[test]
fn a_terminating_pod_and_a_mirror_pod_are_deleted_with_their_uid() {
    for changes in [
        json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}}),
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
    ] {
        let mut pods = guest();
        listed(&mut pods, &[pod("web", changes)], at(1));
        let path = "/api/v1/namespaces/default/pods/web".to_owned();
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-web"}});
        assert_eq!(pods.request(at(1)), Request::delete(path, &options));
    }
}

/// The controller of a Job with a podFailurePolicy removes its finalizer from a pod that has ended.
#[test]
fn a_terminating_pod_that_finalizers_keep_is_failed_too() {
    let mut pods = guest();
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}});
    listed(&mut pods, &[pod("a", deleted.clone()), pod("b", json!({}))], at(1));
    pods.request(at(1));
    let kept = Ok(Response { body: FINALIZED.into(), ..Response::test(200, "") });
    pods.on_response(kept.clone(), Some(boot()), at(1)).unwrap();
    let request = pods.request(at(1));
    assert_eq!(request.path, "/api/v1/namespaces/default/pods/a/status");
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(
        (&body["metadata"], &body["status"]["phase"]),
        (&json!({"uid": "uid-a"}), &json!("Failed"))
    );
    assert_eq!(answer(&mut pods, ok(), at(1)), Ok(Progress::Continue));
    assert_eq!(changes(&mut pods, at(1)), ["Patch ~default/pods/b/status"]);
    // Within the limit of rejections.
    let found: Vec<Value> = (0..8).map(|n| pod(&format!("x{n}"), json!({}))).collect();
    listed(&mut pods, &found, at(20));
    assert_eq!(changes(&mut pods, at(20)).len(), 8);
    listed(&mut pods, &[pod("c", deleted)], at(60));
    pods.request(at(60));
    pods.on_response(kept, Some(boot()), at(60)).unwrap();
    assert_eq!(changes(&mut pods, at(60)), [] as [&str; 0]);
}

/// A PodDisruptionBudget counts a pod whose condition Ready is True.
#[test]
fn a_rejected_pod_loses_the_status_of_a_former_kubelet() {
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let conditions =
        ["PodScheduled", "Ready", "ContainersReady", "DisruptionTarget"].map(condition);
    let started = json!({
        "metadata": {"resourceVersion": "7"},
        "status": {"startTime": "2026-11-01T00:00:00Z", "conditions": conditions},
    });
    let mut pods = guest();
    listed(&mut pods, &[pod("web", started)], at(1));
    let body: Value = serde_json::from_slice(&pods.request(at(1)).body).unwrap();
    assert_eq!(body["metadata"], json!({"uid": "uid-web", "resourceVersion": "7"}));
    let left = ["PodScheduled", "DisruptionTarget"].map(condition);
    assert_eq!(body["status"]["conditions"], json!(left));
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        assert_eq!(body["status"].get(list), Some(&Value::Null), "{list}");
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
            assert_eq!(
                count(found.to_string().as_bytes(), "pi", Some(boot())),
                Some((acts, 1 - acts)),
                "{name}"
            );
            // Without the time of the boot each start counts.
            let never = usize::from(name == "never started");
            assert_eq!(
                count(found.to_string().as_bytes(), "pi", None),
                Some((never, 1 - never)),
                "{name}"
            );
        }
    }
    // The clock of a kubelet that wrote the status was in 1970; the server's was not. What others
    // wrote says nothing.
    let hour = "2026-11-21T07:00:00Z";
    for (manager, subresource, time, acts) in [
        ("kubelet", "status", hour, 0),
        ("kubelet", "status", "2026-11-21T05:59:55Z", 0),
        ("kubelet", "status", "2026-11-21T05:59:30Z", 1),
        // Before Kubernetes 1.22 an entry has no subresource.
        ("kubelet", "", hour, 0),
        ("kubectl", "", hour, 1),
        ("kube-controller-manager", "status", hour, 1),
    ] {
        let entry = json!({"manager": manager, "subresource": subresource, "time": time});
        let fields = json!({"metadata": {"managedFields": [entry]}});
        let start = json!({"status": {"startTime": "1970-01-01T00:05:00Z"}});
        let found = json!({"kind": "PodList", "items": [pod("web", apply(fields, &start))]});
        let counts = count(found.to_string().as_bytes(), "pi", Some(boot()));
        assert_eq!(counts, Some((acts, 1 - acts)), "{manager} {subresource} {time}");
    }
    // The server's time of the pod is not in 1970 either.
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
fn the_8_oldest_pods_of_a_list_come_first() {
    let mut pods = guest();
    let aged = |hour: u32| {
        let created = format!("2026-11-20T{hour:02}:00:00Z");
        pod(&format!("p{hour}"), json!({"metadata": {"creationTimestamp": created}}))
    };
    let found: Vec<Value> = (0..20).rev().map(aged).collect();
    listed(&mut pods, &found, at(1));
    let sent = changes(&mut pods, at(1));
    let want = (0..8).map(|hour| format!("Patch ~default/pods/p{hour}/status"));
    assert_eq!(sent, want.collect::<Vec<String>>());
}

#[test]
fn lists_come_with_requests_of_the_node_and_follow_a_change_every_30_s_for_5_min() {
    let mut pods = guest();
    assert_eq!(listed(&mut pods, &[], at(0)), Ok(Progress::Done));
    assert_eq!(pods.due(), None);
    // The read and the patch of one report.
    pods.node_answered(None, at(10));
    assert_eq!(pods.due(), None, "too early");
    pods.node_answered(None, at(300));
    pods.node_answered(None, at(301));
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

/// The log has one line, about what happened.
#[test]
fn a_pod_that_finalizers_keep_is_tried_again_after_an_hour() {
    let kept = pod("web", json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}}));
    let stays = json!({"metadata": {"finalizers": ["example.org/x"]}});
    let note = "default/web waited for its kubelet; its finalizer \"example.org/x\" keeps it until \
                the finalizer's controller removes it";
    let first = (0, Progress::Note(note.to_owned()));
    // Each DELETE is followed by a rejection, which here changes nothing.
    let later = [0, 3600, 3600, 7200, 7200].map(|time| (time, Progress::Continue));
    let want: Vec<_> = [first].into_iter().chain(later).collect();
    // An API server answers in protobuf.
    for body in [stays.to_string().into_bytes(), partial(&[], &[])] {
        let (mut pods, mut told) = (guest(), Vec::new());
        for time in [0, 30, 3599, 3600, 3700, 7199, 7200] {
            listed(&mut pods, std::slice::from_ref(&kept), at(time));
            while pods.due() == Some(Mono::START) {
                let stays = Ok(Response { body: body.clone(), ..Response::test(200, "") });
                told.push((time, answer(&mut pods, stays, at(time)).unwrap()));
            }
        }
        assert_eq!(told, want);
    }
}

/// Twelve hours of a server with `found`, whose lists have `limit` pods and are at most 256 KiB or
/// of one pod. A controller makes `replicas` pods for each rejected one. All requests, as
/// `Method path`.
fn twelve_hours(found: &mut Vec<Value>, replicas: usize) -> Vec<String> {
    let (mut pods, mut lines) = (guest(), Vec::new());
    for second in 0..12 * 3600 {
        let now = at(second);
        if second % 300 == 0 {
            pods.node_answered(None, now);
        }
        while pods.due().is_some_and(|due| due <= now) {
            let request = pods.request(now);
            let outcome = match request.method {
                Method::Get => serve(found, &request),
                Method::Patch => {
                    found.retain(|pod| {
                        let name = object::text(pod, &["metadata", "name"]);
                        !request.path.contains(&format!("/pods/{name}/"))
                    });
                    let new =
                        (0..replicas).map(|n| pod(&format!("p{}-{n}", lines.len()), json!({})));
                    found.extend(new);
                    ok()
                }
                _ => answered(200, json!({"metadata": {"finalizers": ["x"]}})),
            };
            lines.push(format!("{:?} {}", request.method, request.path));
            pods.on_response(outcome, Some(boot()), now);
            let rejected = lines.iter().filter(|line| line.starts_with("Patch")).count() as u64;
            assert!(rejected <= 10 + second / 600, "{rejected} after {second} s");
            assert!(pods.tried.len() <= MAX_TRIED && pods.changes.len() <= PODS_A_LIST);
        }
    }
    lines
}

fn serve(found: &[Value], request: &Request) -> Answer {
    // The cache ignores the limit.
    let limit = limit(request).parse().unwrap_or(found.len());
    let page: Vec<&Value> = found.iter().take(limit).collect();
    let list = json!({"kind": "PodList", "items": page});
    let limit = request.accept.body_limit();
    if list.to_string().len() > limit {
        return Ok(Response { exceeds: Some(limit), ..Response::test(200, "") });
    }
    answered(200, list)
}

/// `8&resourceVersion=0`: from the cache.
fn limit(request: &Request) -> &str {
    request.path.split_once("&limit=").unwrap().1
}

/// As many values take too much memory as text.
#[test]
fn a_pod_of_too_many_values_does_not_hide_the_others() {
    let mut large = pod("b", json!({}));
    large["spec"]["containers"] = json!([{"args": vec!["a"; MAX_VALUES]}]);
    let mut pods = guest();
    assert_eq!(listed(&mut pods, std::slice::from_ref(&large), at(1)), Ok(Progress::Done));
    assert_eq!(changes(&mut pods, at(1)).len(), 1, "nothing reads its arguments");
    large["spec"]["tolerations"] = vec![json!({}); MAX_VALUES].into();
    let found = [pod("a", json!({})), large, pod("c", json!({}))];
    let mut pods = guest();
    for size in ["8&resourceVersion=0", "8"] {
        assert_eq!(limit(&pods.request(at(1))), size);
        assert_eq!(pods.on_response(list(&found), Some(boot()), at(1)), Ok(Progress::Continue));
        assert_eq!(pods.due(), Some(at(1)));
    }
    assert_eq!(limit(&pods.request(at(1))), "1");
    assert_eq!(pods.on_response(list(&found[..1]), Some(boot()), at(1)), Ok(Progress::Done));
    assert_eq!(changes(&mut pods, at(1)), ["Patch ~default/pods/a/status"]);
    // The large one alone is told, and listed once an hour.
    pods.request(at(31));
    let told = pods.on_response(list(&found[1..2]), Some(boot()), at(31)).unwrap_err();
    let why = "200: the pods in the answer have more than 32768 values";
    assert_eq!(told.why.to_string(), why);
    pods.node_answered(None, at(3630));
    assert_eq!(pods.due(), None);
    pods.node_answered(None, at(3631));
    assert_eq!(pods.due(), Some(at(3631)));
}

/// A large pod and seven that stay are in the way of the others. A controller makes new pods
/// without end: 10 are rejected, and one more each 10 minutes.
#[test]
fn each_stray_pod_is_ended_and_the_number_of_requests_is_limited() {
    let mut large = pod("a", json!({}));
    large["metadata"]["annotations"] = json!({"x": "y".repeat(300_000)});
    let stays = json!({"metadata": {"deletionTimestamp": "2026-11-21T06:18:51Z"}});
    let stuck = (0..7).map(|n| pod(&format!("a{n}"), stays.clone())).collect();
    let both = apply(large.clone(), &stays);
    for (case, mut found, replicas, left, rejected, deletes, lists) in [
        ("large", vec![large], 0, 0, 2, 0, 156),
        ("stay", stuck, 0, 0, 8, 7, 252),
        ("large, and stays", vec![both], 0, 0, 2, 1, 156),
        ("controller", vec![], 2, 82, 81, 0, 148),
    ] {
        found.push(pod("stray", json!({})));
        let lines = twelve_hours(&mut found, replicas);
        let count = |method| lines.iter().filter(|line| line.starts_with(method)).count();
        let got = (found.len(), count("Patch"), count("Delete"));
        assert_eq!(got, (left, rejected, deletes), "{case}: {lines:#?}");
        assert!(count("Get") <= lists, "{case}: {} lists in twelve hours", count("Get"));
    }
}

#[test]
fn a_refused_change_hides_no_other_pod() {
    let found = [pod("a", json!({})), pod("b", json!({}))];
    for code in [404, 409] {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        assert_eq!(answer(&mut pods, refused(code, "x"), at(1)), Ok(Progress::Continue));
        assert_eq!(changes(&mut pods, at(1)).len(), 1, "{code}: the other pod");
        // The cache of the server may be as old as before.
        for (time, tries) in [(31, 0), (300, 0), (301, 1)] {
            listed(&mut pods, &found[..1], at(time));
            assert_eq!(changes(&mut pods, at(time)).len(), tries, "{code} {time}");
        }
    }
    // An admission plugin, or a policy, denies it: it is told, and tried again after an hour.
    for (code, reason) in [(403, "Forbidden"), (422, "Invalid")] {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        let line = format!("default/a cannot be ended: {code} {reason}: no");
        assert_eq!(answer(&mut pods, refused(code, reason), at(1)), Ok(Progress::Note(line)));
        assert_eq!(changes(&mut pods, at(1)), ["Patch ~default/pods/b/status"], "{code}");
        listed(&mut pods, &found[..1], at(40));
        assert_eq!(changes(&mut pods, at(40)), [] as [&str; 0], "{code}");
        listed(&mut pods, &found[..1], at(3601));
        assert_eq!(changes(&mut pods, at(3601)).len(), 1, "{code}");
    }
    // The webhook of a namespace is dead: the others come first, and it is tried again after ten
    // minutes.
    let mut pods = guest();
    for time in [0, 600, 1200] {
        let dead: Vec<Value> = (0..9).map(|n| pod(&format!("{n}"), json!({}))).collect();
        listed(&mut pods, &dead, at(time));
        for _ in 0..7 {
            let next = answer(&mut pods, refused(500, "InternalError"), at(time));
            assert_eq!(next, Ok(Progress::Continue));
        }
        let last = answer(&mut pods, refused(500, "InternalError"), at(time)).unwrap_err();
        assert!(last.why.to_string().starts_with("500 InternalError: no; "), "{}", last.why);
        assert_eq!(pods.due(), Some(at(time + 30)));
        listed(&mut pods, &dead, at(time + 30));
        let other = answer(&mut pods, refused(500, "InternalError"), at(time + 30));
        assert!(other.is_err() && pods.changes.is_empty(), "only the ninth one was left");
    }
    assert_eq!(pods.rejections.tokens(at(3000)), REJECTIONS, "none was rejected");
}

/// What others say about a change is not about its pod alone.
#[test]
fn a_change_without_an_answer_of_the_server_ends_the_list() {
    let found = [pod("a", json!({})), pod("b", json!({}))];
    let page = || Ok(Response::test(200, "<html>"));
    let answers = [
        refused(401, "Unauthorized"),
        refused(403, ""),
        refused(429, "TooManyRequests"),
        refused(503, "ServiceUnavailable"),
        Err("slow".into()),
        page(),
    ];
    for (number, outcome) in answers.into_iter().enumerate() {
        let mut pods = guest();
        listed(&mut pods, &found, at(1));
        answer(&mut pods, outcome, at(1)).unwrap_err();
        assert_eq!(changes(&mut pods, at(1)), [] as [&str; 0], "{number}");
        // The server may have carried it out.
        let left = if number < 4 { REJECTIONS } else { REJECTIONS - 1 };
        assert_eq!(pods.rejections.tokens(at(1)), left, "{number}");
        assert_eq!(pods.due(), Some(at(31)), "{number}");
        listed(&mut pods, &found, at(31));
        // The webhook of one pod may be silent.
        let expected = if number == 4 { 1 } else { 2 };
        assert_eq!(changes(&mut pods, at(31)).len(), expected, "{number}");
    }
}

/// A link of 1 KB/s carries no list of 100 KB in the time of a request.
#[test]
fn a_list_that_does_not_arrive_in_time_is_followed_by_smaller_ones() {
    let mut pods = guest();
    for (second, size) in [(1, "8&resourceVersion=0"), (20, "8"), (40, "1")] {
        assert!(pods.due().is_some_and(|due| due <= at(second)), "{size}");
        let request = pods.request(at(second));
        assert!(request.path.ends_with(&format!("&limit={size}")), "{}", request.path);
        let cut_off = Fault { kind: FaultKind::CutOff, ..Fault::from("slow") };
        pods.on_response(Err(cut_off), Some(boot()), at(second)).unwrap_err();
    }
    assert_eq!(pods.due(), None);
    pods.node_answered(None, at(340));
    assert_eq!(pods.due(), None);
    pods.node_answered(None, at(3640));
    assert_eq!(listed(&mut pods, &[], at(3640)), Ok(Progress::Done));
    assert_eq!(pods.size, ListSize::All);
    // A server that is silent is not asked for a page: before 1.33 it would read all pods of the
    // cluster from etcd.
    pods.node_answered(None, at(4000));
    pods.request(at(4000));
    pods.on_response(Err("slow".into()), Some(boot()), at(4000)).unwrap_err();
    assert_eq!((pods.size, pods.due()), (ListSize::All, None));
}

/// A kubelet on another machine has the name of this board: the pods run there.
#[test]
fn the_pods_of_another_machine_are_left_alone() {
    let mut pods = guest();
    listed(&mut pods, &[pod("a", json!({}))], at(1));
    assert_eq!(pods.due(), Some(Mono::START));
    pods.node_answered(Some(at(10)), at(10));
    assert_eq!(pods.due(), None, "the change is dropped, too");
    pods.node_answered(Some(at(10)), at(3609));
    assert_eq!(pods.due(), None);
    pods.node_answered(Some(at(10)), at(3610));
    assert_eq!(pods.due(), Some(at(3610)));
}

#[test]
fn a_403_is_told_once_and_tried_again_after_an_hour_or_with_other_credentials() {
    let mut pods = guest();
    let forbid = |pods: &mut Pods, now| answer(pods, refused(403, "Forbidden"), now);
    assert!(matches!(forbid(&mut pods, at(1)), Ok(Progress::Note(_))));
    for seconds in 1..12 {
        pods.node_answered(None, at(seconds * 300));
        assert_eq!(pods.due(), None);
    }
    pods.node_answered(None, at(3900));
    assert_eq!(pods.due(), Some(at(3900)), "a role may have been given");
    assert_eq!(forbid(&mut pods, at(3900)), Ok(Progress::Continue), "told before");
    pods.node_answered(None, at(4200));
    assert_eq!(pods.due(), None);
    pods.credentials_changed();
    pods.node_answered(None, at(4500));
    assert_eq!(pods.due(), Some(at(4500)));
    assert_eq!(forbid(&mut pods, at(4500)), Ok(Progress::Continue), "told before");
    assert!(pods.is_forbidden());
    // The page of a gateway says nothing about roles.
    let mut pods = guest();
    assert!(answer(&mut pods, refused(403, ""), at(1)).is_err() && !pods.is_forbidden());
    pods.node_answered(None, at(300));
    assert_eq!(pods.due(), Some(at(300)));
    // A list that is refused for another reason is tried again with the next report.
    let mut pods = guest();
    assert!(answer(&mut pods, refused(500, "x"), at(1)).unwrap_err().refused.is_some());
    pods.node_answered(None, at(300));
    assert_eq!(pods.due(), Some(at(300)));
}

#[test]
fn a_node_with_pods_and_reject_pods_false_never_list() {
    for flag in ["--max-pods=1", "--reject-pods=false"] {
        let mut pods = Pods::new(&Config::of(&[flag]).node);
        assert_eq!(pods.due(), None);
        pods.node_answered(None, at(300));
        pods.credentials_changed();
        assert_eq!(pods.due(), None);
    }
}
