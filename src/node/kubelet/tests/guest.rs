//! A Node without pods in virtual time: stray pods, and the version of the API server.

use super::*;

fn world(args: &[&str]) -> World {
    World::with(Config::of(args), None)
}

fn run(world: &mut World, seconds: u64) {
    world.run_until(world.now.after(Duration::from_secs(seconds)));
}

fn reported(world: &World) -> &str {
    let node = world.cluster.pi.node.as_ref().unwrap();
    object::text(node, &["status", "nodeInfo", "kubeletVersion"])
}

/// A kubelet of the same name on another machine has 20 s to be seen.
#[test]
fn stray_pods_are_ended_after_the_third_renewal_one_request_a_turn() {
    let mut world = world(&[]);
    run(&mut world, 19);
    assert_eq!(world.count(RequestKind::Pods, ""), 0);
    run(&mut world, 8);
    let work: Vec<RequestKind> = world.sent.iter().map(|(work, _)| *work).collect();
    assert_eq!(work[..2], [RequestKind::ReadNode, RequestKind::WriteNode]);
    let first = work.iter().position(|work| *work == RequestKind::Pods).unwrap();
    let renewals = work[..first].iter().filter(|work| **work == RequestKind::Lease).count();
    assert!(renewals >= 3, "{work:?}");
    assert_eq!(work[first..first + 4], [RequestKind::Pods; 4]);
    assert_eq!(world.cluster.pi.pods, [] as [Value; 0]);
}

#[test]
fn the_servers_version_is_read_before_the_registration_and_after_reports_and_outages() {
    let ours = |version: &str| format!("{version}-nodelet.{}", env!("CARGO_PKG_VERSION"));
    let mut world = world(&["--kubelet-version=server"]);
    run(&mut world, 60);
    assert_eq!(world.sent[0].1, "Get /version");
    assert_eq!(world.sent[2].1, "Post /api/v1/nodes");
    assert_eq!(reported(&world), ours("v1.38.1"));
    world.cluster.git_version = "v1.39.0+k3s1";
    // Without an outage: one of several servers was upgraded after the other.
    run(&mut world, 3600);
    assert_eq!(reported(&world), ours("v1.39.0"));
    let count = world.count(RequestKind::Version, "");
    assert!((12..=14).contains(&count), "{count} in an hour");
    world.cluster.git_version = "v1.40.0";
    for _ in 0..5 {
        world.turn(&Step { behavior: Behavior::Silent, takes: 1000, ..correct() });
    }
    run(&mut world, 20);
    assert_eq!(reported(&world), ours("v1.40.0"));
}

#[test]
fn a_server_without_a_version_delays_no_registration() {
    let mut world = world(&["--kubelet-version=server"]);
    let refuses = Step { behavior: Behavior::Refuses(403, None), takes: 1, ..correct() };
    while world.sent.is_empty() {
        world.turn(&refuses);
    }
    run(&mut world, 1);
    assert_eq!(world.sent[2].1, "Post /api/v1/nodes");
    assert_eq!(reported(&world), crate::config::KUBELET_VERSION);
    // It is read once more after the registration.
    run(&mut world, 30);
    assert!(reported(&world).starts_with("v1.38.1-nodelet."));
}

/// After a power cut at a site the boards start before their API server, or their role was removed.
#[test]
fn a_restart_does_not_report_the_built_in_version_where_the_node_has_the_servers() {
    let mut before = world(&["--kubelet-version=server"]);
    run(&mut before, 60);
    let mut world = World { cluster: before.cluster, ..world(&["--kubelet-version=server"]) };
    world.unserved = Some((RequestKind::Version, Behavior::Refuses(403, None)));
    for _ in 0..50 {
        world.turn(&correct());
        assert!(reported(&world).starts_with("v1.38.1-nodelet."), "{}", reported(&world));
    }
    assert!(world.kubelet.registered);
}

#[test]
fn what_failed_before_the_lists_were_forbidden_is_not_told_for_ever() {
    let mut world = settled();
    let mut take = |answer, now: Now| {
        world.kubelet.on_response(RequestKind::Pods, answer, now.mono, now);
        world.kubelet.summary(now.mono, None)
    };
    let at = |seconds| Now { mono: Mono::START.after(Duration::from_secs(seconds)), wall: built() };
    let unavailable = answered(503, json!({"reason": "ServiceUnavailable"}));
    assert!(take(unavailable, at(100)).contains("; pods: 503"));
    let line = take(answered(403, json!({"reason": "Forbidden"})), at(200));
    assert!(!line.contains("pods"), "{line}");
}

#[test]
fn what_failed_before_another_machine_wrote_to_the_node_is_not_told_for_an_hour() {
    let mut world = settled();
    world.unserved = Some((RequestKind::Pods, Behavior::Refuses(503, None)));
    run(&mut world, 400);
    assert!(world.kubelet.summary(world.now, None).contains("; pods: 503"));
    let node = world.cluster.pi.node.as_mut().unwrap();
    let info = object::members(node, &["status", "nodeInfo"]);
    info.insert("bootID".into(), "of-another-board".into());
    world.cluster.pi.touch(false);
    run(&mut world, 400);
    assert!(world.kubelet.node.shared().is_some());
    let line = world.kubelet.summary(world.now, None);
    assert!(!line.contains("pods"), "{line}");
}
