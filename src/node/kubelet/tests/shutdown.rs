//! A planned shutdown: what the server learns, and when the process ends.

use super::*;

/// A registered board with no event left to send, shortly before its Lease is due: only the last
/// events of a shutdown are sent before the Lease.
fn ready_world() -> World {
    let mut world = World::new();
    run(&mut world, SECOND * 35);
    world.turn(&correct());
    assert_eq!(world.kubelet.renewed, Some(world.now));
    world.now = world.now.after(SECOND * 7);
    assert!(world.kubelet.registered);
    assert_eq!(world.kubelet.events.due(world.now), None);
    assert_eq!(ready(&world), ("True".to_owned(), READY.to_owned()));
    world
}

/// The same, after SIGUSR1.
fn announced() -> World {
    let mut world = ready_world();
    world.kubelet.on_shutdown(world.now);
    world
}

/// The same, after SIGTERM, too.
fn stopping() -> World {
    let mut world = announced();
    assert!(!world.kubelet.on_stop());
    world
}

const READY: &str = "kubelet is posting ready status";

/// The server responds at once.
fn quick(behavior: Behavior) -> Step {
    Step { behavior, ..correct() }
}

fn run(world: &mut World, time: Duration) {
    run_with(world, time, Behavior::Correct);
}

fn run_with(world: &mut World, time: Duration, behavior: Behavior) {
    let end = world.now.after(time);
    while world.now < end && !world.ended {
        world.turn(&quick(behavior));
        world.now = world.now.after(Duration::from_millis(1));
    }
}

fn ready(world: &World) -> (String, String) {
    let node = world.cluster.pi.node.clone().unwrap_or_default();
    let ready = object::condition(&node, "Ready").cloned();
    let ready = ready.unwrap_or_default();
    let text = |key| object::text(&ready, &[key]).to_owned();
    (text("status"), text("message"))
}

#[test]
fn an_announced_shutdown_is_told_and_then_the_process_ends() {
    let mut world = stopping();
    let start = world.now;
    run(&mut world, SECOND);
    assert!(world.ended);
    assert!(world.now.since(start) < SECOND / 2);
    let told = ("False".to_owned(), "node is shutting down".to_owned());
    assert_eq!(ready(&world), told);
    assert_eq!(world.kubelet.events.due(world.now), None, "an event is left");
    let events: Vec<&str> = world.cluster.pi.events.iter().map(String::as_str).collect();
    assert_eq!(events[events.len() - 2..], ["Shutdown", "NodeNotReady"], "{events:?}");
}

/// `systemctl reboot` sends the signals within milliseconds, but a unit that stops before this one
/// may need its time: Ready is False before SIGTERM.
#[test]
fn the_server_is_told_before_sigterm() {
    let mut world = announced();
    run(&mut world, SECOND);
    assert!(!world.ended);
    assert_eq!(ready(&world).0, "False");
    run(&mut world, SECOND * 20);
    assert!(!world.kubelet.on_stop());
    run(&mut world, SECOND);
    assert!(world.ended, "5 s since the announcement are over");
}

#[test]
fn a_second_sigterm_and_silence_and_five_seconds_end_it() {
    assert!(ready_world().kubelet.on_stop(), "without an announcement");
    assert!(stopping().kubelet.on_stop(), "a second SIGTERM");

    let mut world = announced();
    world.turn(&quick(Behavior::Silent));
    assert!(world.kubelet.on_stop(), "silent before SIGTERM");

    let mut world = stopping();
    run_with(&mut world, SECOND, Behavior::Silent);
    assert!(world.ended, "silent after SIGTERM");

    let mut world = stopping();
    let start = world.now;
    run_with(&mut world, SECOND * 20, Behavior::Refuses(500, None));
    assert!(world.ended, "refused for ever");
    let took = world.now.since(start);
    assert!(took >= SECOND * 5 && took < SECOND * 6, "{took:?}");

    let mut world = World::new();
    world.kubelet.on_shutdown(world.now);
    assert!(world.kubelet.on_stop(), "not registered");
}

/// Its next step would be a file task, or a request that a signer delays.
#[test]
fn a_certificate_that_is_due_does_not_keep_the_message_back() {
    let mut world = World::holding(Held::AtSupervisor);
    run(&mut world, SECOND * 35);
    let due = world.rotation.due(world.kubelet.cluster_seen(now(&world)));
    world.now = world.now.max(due.unwrap());
    world.last = None;
    world.kubelet.on_shutdown(world.now);
    assert!(!world.kubelet.on_stop());
    run(&mut world, SECOND * 3);
    assert!(world.ended);
    assert_eq!(ready(&world).0, "False");
}

/// A 409 is read and patched again, as at any other time.
#[test]
fn a_conflict_does_not_keep_the_message_back() {
    let mut world = stopping();
    world.turn(&quick(Behavior::Writes));
    assert_eq!(ready(&world).0, "True");
    run(&mut world, SECOND * 3);
    assert!(world.ended);
    assert_eq!(ready(&world).0, "False");
}

/// Beside another writer, or a server that is busy, the Node waits for its retry.
#[test]
fn a_retry_that_is_due_later_does_not_keep_the_message_back() {
    let mut world = ready_world();
    world.kubelet.node.read_again(world.now);
    world.unserved = Some((RequestKind::ReadNode, Behavior::Refuses(429, Some(30))));
    while world.kubelet.node.due() < world.now.after(SECOND * 6) {
        world.turn(&quick(Behavior::Correct));
    }
    world.unserved = None;
    world.kubelet.on_shutdown(world.now);
    assert!(!world.kubelet.on_stop());
    run(&mut world, SECOND * 3);
    assert!(world.ended);
    assert_eq!(ready(&world).0, "False");
}

/// The Node is deleted after the message: nothing is left to tell, and the loop does not spin on
/// events that have no Node.
#[test]
fn a_node_that_is_deleted_after_the_message_ends_it() {
    let mut world = announced();
    while ready(&world).0 != "False" {
        world.turn(&quick(Behavior::Correct));
    }
    assert!(!world.kubelet.on_stop());
    world.kubelet.node.read_again(world.now);
    for _ in 0..10 {
        world.turn(&quick(Behavior::Deletes));
    }
    assert_eq!(world.kubelet.node.uid(), None);
    assert!(world.ended);
}

/// `kubectl delete node pi && ssh pi sudo poweroff`: the message created the Node again, and nobody
/// was left to renew it.
#[test]
fn a_node_that_is_deleted_before_the_message_is_not_created_again() {
    let mut world = stopping();
    while world.kubelet.node.uid().is_some() {
        world.turn(&quick(Behavior::Deletes));
    }
    run(&mut world, SECOND * 6);
    assert!(world.ended);
    assert_eq!(world.cluster.pi.node, None);
}

/// The same, if the agent had noticed the deletion and not registered again yet.
#[test]
fn a_node_that_was_deleted_before_the_signal_is_not_created_again() {
    let mut world = ready_world();
    world.kubelet.node.read_again(world.now);
    while world.kubelet.node.uid().is_some() {
        world.turn(&quick(Behavior::Deletes));
    }
    world.kubelet.on_shutdown(world.now);
    assert!(!world.kubelet.on_stop());
    run(&mut world, SECOND * 6);
    assert!(world.ended);
    assert_eq!(world.cluster.pi.node, None);
}

#[test]
fn a_shutdown_that_does_not_happen_is_cancelled() {
    let mut world = announced();
    run(&mut world, SECOND * 59);
    world.kubelet.on_shutdown(world.now);
    assert_eq!(ready(&world).0, "False");
    run(&mut world, SECOND * 2);
    assert_eq!(ready(&world), ("True".to_owned(), READY.to_owned()));
    assert!(world.kubelet.on_stop(), "it is over");
}
