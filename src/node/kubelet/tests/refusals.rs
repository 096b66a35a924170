//! `tests/golden/refusals.txt`, one table for all kinds of requests: the attempts in ten minutes if
//! no answer to a kind is of use, from the start of the agent on. The requests of the other kinds succeed, each turn keeps the
//! lease law, and the board is Ready within a minute after the server is right again.

use std::fmt::Write as _;
use std::iter;

use super::*;

/// A new kind does not compile without its row.
fn kinds() -> impl Iterator<Item = RequestKind> {
    iter::successors(Some(RequestKind::Lease), |kind| match kind {
        RequestKind::Lease => Some(RequestKind::ReadNode),
        RequestKind::ReadNode => Some(RequestKind::WriteNode),
        RequestKind::WriteNode => Some(RequestKind::Version),
        RequestKind::Version => Some(RequestKind::Pods),
        RequestKind::Pods => Some(RequestKind::Event),
        RequestKind::Event => Some(RequestKind::Time),
        RequestKind::Time => Some(CERTIFICATE),
        RequestKind::Certificate { .. } => None,
    })
}

const ANSWERS: [(&str, Behavior); 8] = [
    ("401", Behavior::Refuses(401, None)),
    ("403", Behavior::Refuses(403, None)),
    ("404", Behavior::Refuses(404, None)),
    ("409", Behavior::Refuses(409, None)),
    ("429", Behavior::Refuses(429, Some(1))),
    ("500", Behavior::Refuses(500, None)),
    ("none", Behavior::Silent),
    ("page", Behavior::Page),
];

/// Attempts of the kind in ten minutes.
fn attempts(kind: RequestKind, behavior: Behavior) -> usize {
    let mut world = match kind {
        RequestKind::Certificate { .. } => World::holding(Held::OneMinute),
        _ => World::with(Config::of(&["--kubelet-version=server"]), None),
    };
    world.unserved = Some((kind, behavior));
    // Only a board without the time asks for it.
    let wall = |world: &World| match kind {
        RequestKind::Time => world.now.since(Mono::START).as_secs(),
        _ => in_time(world).wall,
    };
    let run_until = |world: &mut World, end: Mono| {
        while world.now < end {
            let step = Step { wall: wall(world), ..correct() };
            world.turn(&step);
        }
    };
    run_until(&mut world, Mono::START.after(MINUTE * 10));
    let attempts = world.count(kind, "");
    world.unserved = None;
    let healed = world.now;
    run_until(&mut world, healed.after(MINUTE));
    let what = format!("{kind:?} {behavior:?}: {:?}", world.sent);
    assert!(world.cluster.pi.is_ready() && world.cluster.pi.owns_lease(), "{what}");
    attempts
}

#[test]
fn no_answer_to_one_kind_of_request_stops_the_others_or_brings_a_storm() {
    let mut table = format!("{:<12}", "");
    ANSWERS.iter().for_each(|(name, _)| write!(table, "{name:>5}").unwrap());
    for kind in kinds() {
        let name = format!("{kind:?}");
        write!(table, "\n{:<12}", name.split(' ').next().unwrap()).unwrap();
        for (_, behavior) in ANSWERS {
            write!(table, "{:>5}", attempts(kind, behavior)).unwrap();
        }
    }
    support::golden("refusals.txt", &(table + "\n"));
}
