//! What `nodelet serve` learns of the Lease.

use super::*;

/// Writes of the Lease so far: each is an attempt with a result.
fn writes(world: &World) -> u64 {
    let lease = RequestKind::Lease;
    (world.count(lease, "") - world.count(lease, "Get ")) as u64
}

fn report(world: &World) -> LeaseReport {
    world.kubelet.lease_report(world.last.unwrap().0)
}

#[test]
fn renewals_and_failures_are_counted_and_times_are_since_boot() {
    let mut world = settled();
    world.kubelet.wall_clock = WallClock::new(built(), Duration::from_secs(1000));
    let renewals = writes(&world);
    assert!(renewals >= 3, "{:?}", world.sent);
    let at = world.last.unwrap().0.since(Mono::START) + Duration::from_secs(1000);
    let well = LeaseReport {
        attempted: at,
        renewed: Some(at),
        lease_duration: Duration::from_secs(40),
        renewals,
        failures: 0,
        boot: 0,
    };
    assert_eq!(report(&world), well);
    let end = world.now.after(Duration::from_secs(30));
    let mut faults = [Behavior::Refuses(500, None), Behavior::Silent].into_iter().cycle();
    while world.now < end {
        let behavior = faults.next().unwrap();
        world.turn(&Step { behavior, takes: 1000, ..correct() });
    }
    let outage = report(&world);
    assert_eq!((outage.renewed, outage.renewals), (well.renewed, renewals));
    assert_eq!(outage.failures, writes(&world) - renewals);
    assert!(outage.failures > 0 && outage.attempted > at);
    // A deleted Lease was not renewed.
    let mut world = settled();
    while report(&world).failures == 0 {
        world.turn(&Step { behavior: Behavior::DeletesLease, ..correct() });
    }
    assert_eq!(report(&world).failures, 1);
}
