//! `tests/golden/attempts.txt`: what follows if no answer to one kind of request is of use.
//!
//! For each kind and each such answer the table has two counts of the first ten minutes of an
//! agent: the attempts of the kind, and the renewals of the Lease. Each turn keeps the lease law,
//! and the board is Ready within a minute after the server is right again.

use std::fmt::Write as _;
use std::iter;

use super::*;

/// By a client of its own, as to a supervisor.
const APART: RequestKind = RequestKind::Certificate { is_apart: true };

/// A new kind does not compile without a place here.
fn kinds() -> impl Iterator<Item = RequestKind> {
    iter::successors(Some(RequestKind::Lease), |kind| match kind {
        RequestKind::Lease => Some(RequestKind::ReadNode),
        RequestKind::ReadNode => Some(RequestKind::WriteNode),
        RequestKind::WriteNode => Some(RequestKind::Version),
        RequestKind::Version => Some(RequestKind::Pods),
        RequestKind::Pods => Some(RequestKind::Event),
        RequestKind::Event => Some(RequestKind::Time),
        RequestKind::Time => Some(CERTIFICATE),
        RequestKind::Certificate { is_apart: false } => Some(APART),
        RequestKind::Certificate { is_apart: true } => None,
    })
}

/// The time limits of `none` are used up.
const ANSWERS: [(&str, Behavior); 8] = [
    ("401", Behavior::Refuses(401, None)),
    ("403", Behavior::Refuses(403, None)),
    ("404", Behavior::Refuses(404, None)),
    ("409", Behavior::Refuses(409, None)),
    ("429, 60 s", Behavior::Refuses(429, Some(60))),
    ("500", Behavior::Refuses(500, None)),
    ("none", Behavior::Silent),
    ("page", Behavior::Page),
];

/// The attempts of the kind, and the renewals of the Lease, in ten minutes.
fn attempts(kind: RequestKind, behavior: Behavior) -> (usize, u64) {
    let mut world = match kind {
        APART => World { signs_apart: true, ..World::holding(Held::AtSupervisor) },
        RequestKind::Certificate { .. } => World::holding(Held::OneMinute),
        _ => World::with(Config::of(&["--kubelet-version=server"]), None),
    };
    world.unserved = Some((kind, behavior));
    let run_until = |world: &mut World, end: Mono| {
        while world.now < end {
            let wall = match kind {
                // Only a board without the time asks for it.
                RequestKind::Time => world.now.since(Mono::START).as_secs(),
                _ => in_time(world).wall,
            };
            world.turn(&Step { wall, ..correct() });
        }
    };
    run_until(&mut world, Mono::START.after(MINUTE * 10));
    let counts = (world.count(kind, ""), world.kubelet.renewals);
    world.unserved = None;
    let healed = world.now;
    run_until(&mut world, healed.after(MINUTE));
    let is_back = world.cluster.pi.is_ready() && world.cluster.pi.owns_lease();
    assert!(is_back, "{kind:?} {behavior:?}: {:?}", world.sent);
    counts
}

#[test]
fn what_follows_from_each_answer_to_each_kind_of_request() {
    let mut table = format!("{:<12}", "");
    ANSWERS.iter().for_each(|(name, _)| write!(table, "{name:>10}").unwrap());
    for kind in kinds() {
        let name = if kind == APART { "Apart".to_owned() } else { format!("{kind:?}") };
        write!(table, "\n{:<12}", name.split(' ').next().unwrap()).unwrap();
        for (_, behavior) in ANSWERS {
            let (attempts, renewals) = attempts(kind, behavior);
            assert!(attempts <= 121, "a storm of {kind:?}: {behavior:?}");
            write!(table, "{:>10}", format!("{attempts}/{renewals}")).unwrap();
        }
    }
    support::golden("attempts.txt", &(table + "\n"));
}
