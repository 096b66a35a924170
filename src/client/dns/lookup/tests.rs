use support::dns::{A, Asked};

use super::*;

fn answer(asked: &Asked, text: &str) -> Vec<u8> {
    let flags: u16 = match text {
        FORMERR => 0x8181,
        SERVFAIL => 0x8182,
        NXDOMAIN => 0x8183,
        REFUSED => 0x8185,
        _ if text.starts_with(TRUNCATED) => 0x8380,
        REFERRAL => 0x8100,
        _ => 0x8180,
    };
    asked.answer(flags, text.split(' ').filter(|word| word.parse::<IpAddr>().is_ok()))
}

const FORMERR: &str = "FORMERR";
const SERVFAIL: &str = "SERVFAIL";
const NXDOMAIN: &str = "NXDOMAIN";
const REFUSED: &str = "REFUSED";
const TRUNCATED: &str = "TC";
const REFERRAL: &str = "a referral";
const EMPTY: &str = "no record";
/// The kernel reports at once that nobody listens.
const CLOSED: &str = "closed";

/// The answer of a server, and after how many milliseconds it arrives; `None` for silence.
type Server = fn(&Asked) -> Answer;
type Answer = Option<(u64, &'static str)>;

const SILENT: Server = |_| None;

fn at(milliseconds: u64) -> Mono {
    Mono::START.after(Duration::from_millis(milliseconds))
}

/// Looks up `name` in virtual time, with a turn every `turn` milliseconds at most: the addresses or
/// the error, and when it came. The servers are 10.0.0.1 and those after it.
fn look_up_in_turns(
    turn: u64,
    budget: u64,
    conf: &str,
    name: &str,
    servers: &[&dyn Fn(&Asked) -> Answer],
) -> (String, u64) {
    let addresses = (1..=servers.len()).map(|n| ([10, 0, 0, n.try_into().unwrap()], PORT).into());
    let resolver = Resolver { servers: addresses.collect(), ..Resolver::parse(conf, "") };
    let mut lookup = Lookup::new(resolver, name, at(0), at(budget)).unwrap();
    let mut now = at(0);
    let mut under_way: Vec<(Mono, usize, Vec<u8>)> = Vec::new();
    let mut received = vec![0; servers.len()];
    let result = loop {
        under_way.sort();
        while under_way.first().is_some_and(|(due, ..)| *due <= now) {
            let (_, server, packet) = under_way.remove(0);
            lookup.receive(server, &packet);
        }
        if let Some(result) = lookup.step(now) {
            break result;
        }
        lookup.send(|server, packet| {
            let asked = Asked::new(packet, received[server]);
            received[server] += 1;
            match servers[server](&asked) {
                Some((_, CLOSED)) => return Err("closed".to_owned()),
                Some((delay, text)) => {
                    let due = now.after(Duration::from_millis(delay));
                    under_way.push((due, server, answer(&asked, text)));
                }
                None => {}
            }
            Ok(())
        });
        if now >= at(budget) {
            break lookup.result(now);
        }
        let next = under_way.iter().map(|(due, ..)| *due).min();
        let next = lookup.due().min(next.unwrap_or(at(budget))).min(at(budget));
        now = next.max(now.after(Duration::from_millis(turn)));
    };
    let text = match result {
        LookupResult::Addresses(addresses, _) => {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }
        LookupResult::Absent(why) => format!("absent: {why}"),
        LookupResult::Failed(why) => format!("failed: {why}"),
    };
    (text, u64::try_from(now.since(at(0)).as_millis()).unwrap())
}

fn look_up_within(budget: u64, conf: &str, name: &str, servers: &[Server]) -> (String, u64) {
    look_up_in_turns(0, budget, conf, name, &each(servers))
}

fn each(servers: &[Server]) -> Vec<&dyn Fn(&Asked) -> Answer> {
    servers.iter().map(|server| server as &dyn Fn(&Asked) -> Answer).collect()
}

/// Longer than the limits of the resolver.
const NO_LIMIT: u64 = 1_000_000;

fn look_up(conf: &str, name: &str, servers: &[Server]) -> (String, u64) {
    look_up_within(NO_LIMIT, conf, name, servers)
}

/// [`look_up`] of the name `kube` with the defaults.
fn kube(servers: &[Server]) -> (String, u64) {
    look_up("", "kube", servers)
}

fn found(text: &str, milliseconds: u64) -> (String, u64) {
    (text.to_owned(), milliseconds)
}

const NO_NAME: Server = |_| Some((1, NXDOMAIN));

#[test]
fn the_order_of_the_servers_is_a_promise() {
    let slow: Server = |_| Some((30, "10.8.0.1"));
    let other: Server = |_| Some((1, "192.0.2.1"));
    for conf in ["", "options rotate"] {
        let look_up = |servers: &[Server]| look_up(conf, "kube", servers);
        // The server of a VPN, and two public ones.
        assert_eq!(look_up(&[slow, NO_NAME, NO_NAME]), found("10.8.0.1", 30));
        assert_eq!(look_up(&[slow, other, NO_NAME]), found("10.8.0.1", 30));
        assert_eq!(look_up(&[slow, |_| Some((1, EMPTY)), other]), found("10.8.0.1", 30));
        let from = |server, at| {
            let first = if server == 1 { "" } else { ", the first name server that answered" };
            found(&format!("absent: no such name (NXDOMAIN) from 10.0.0.{server}{first}"), at)
        };
        assert_eq!(look_up(&[NO_NAME, other, slow]), from(1, 1));
        // Each kind of failure of the first server.
        for failure in [
            |_: &Asked| Some((9, SERVFAIL)),
            |_| Some((9, REFUSED)),
            |_| Some((9, FORMERR)),
            |_| Some((9, REFERRAL)),
        ] as [Server; 4]
        {
            assert_eq!(look_up(&[failure, other, slow]), found("192.0.2.1", 9));
            assert_eq!(look_up(&[failure, NO_NAME, other]), from(2, 9));
            assert_eq!(look_up(&[failure, failure, slow]), found("10.8.0.1", 30));
        }
        let closed: Server = |_| Some((0, CLOSED));
        assert_eq!(look_up(&[closed, slow, NO_NAME]), found("10.8.0.1", 30));
        assert_eq!(look_up(&[closed, NO_NAME]), from(2, 1));
    }
}

#[test]
fn a_late_answer_of_an_earlier_server_counts_within_the_timeout() {
    let other: Server = |_| Some((1, "192.0.2.1"));
    let in_time: Server = |_| Some((4_999, "10.8.0.1"));
    let too_late: Server = |_| Some((5_001, "10.8.0.1"));
    assert_eq!(kube(&[in_time, other]), found("10.8.0.1", 4_999));
    assert_eq!(kube(&[too_late, other]), found("192.0.2.1", 5_000));
    assert_eq!(look_up("options timeout:1", "kube", &[in_time, other]), found("192.0.2.1", 1_000));
    // Nobody else has answered: the second attempt takes it.
    assert_eq!(kube(&[too_late, SILENT]), found("10.8.0.1", 5_001));
    // Not for the next candidate.
    let late: Server = |asked| match asked.name.as_str() {
        "kube.a" => Some((10_001, "10.8.0.1")),
        _ => Some((2, NXDOMAIN)),
    };
    let silent = "failed: no name server answered within 10 s";
    assert_eq!(look_up("search a", "kube", &[late]), found(silent, 10_002));
}

#[test]
fn the_next_domain_follows_whatever_became_of_the_last_one() {
    let conf = "search a b\noptions timeout:1";
    for (of_x_a, fault, took) in [
        (Some((5, NXDOMAIN)), "absent: no such name (NXDOMAIN) from", 10),
        (Some((5, EMPTY)), "absent: no such name (NXDOMAIN) from", 10),
        // Two attempts each, and then the fault is told: the name may exist.
        (Some((5, SERVFAIL)), "failed: SERVFAIL from", 15),
        (Some((5, REFUSED)), "failed: REFUSED from", 15),
        (Some((0, CLOSED)), "failed: closed", 5),
        (None, "failed: no name server answered within 2 s", 2_005),
    ] {
        let look_up = |other| {
            let answers =
                |asked: &Asked| if asked.name == "x.a" { of_x_a } else { Some((5, other)) };
            look_up_in_turns(0, NO_LIMIT, conf, "x", &[&answers])
        };
        assert_eq!(look_up("10.0.0.9"), found("10.0.0.9", took));
        let (text, _) = look_up(NXDOMAIN);
        assert!(text.starts_with(fault), "{text}");
    }
}

#[test]
fn all_servers_are_asked_again_when_all_have_failed() {
    let second: Server = |asked| Some((3, if asked.before < 2 { SERVFAIL } else { "10.0.0.9" }));
    assert_eq!(kube(&[second]), found("10.0.0.9", 6));
    assert_eq!(kube(&[second, |_| Some((4, REFUSED))]), found("10.0.0.9", 7));
    let failed = "failed: SERVFAIL from 10.0.0.1";
    assert_eq!(look_up("options attempts:1", "kube", &[second]), found(failed, 3));
    // The packets of the first attempt are lost.
    let lossy: Server = |asked| (asked.before >= 2).then_some((3, "10.0.0.9"));
    assert_eq!(kube(&[lossy]), found("10.0.0.9", 5_003));
    assert_eq!(look_up("options timeout:2", "kube", &[lossy]), found("10.0.0.9", 2_003));
    let silent = |seconds| format!("failed: no name server answered within {seconds} s");
    for (conf, seconds) in
        [("", 10), ("options timeout:2 attempts:3", 6), ("options attempts:1", 5)]
    {
        let want = (silent(seconds), seconds * 1_000);
        assert_eq!(look_up(conf, "kube", &[SILENT, SILENT]), want, "{conf}");
    }
}

#[test]
fn each_attempt_for_each_candidate_gets_its_part_of_the_time() {
    let other: Server =
        |asked| Some((1, if asked.name == "kube" { "192.0.2.1" } else { NXDOMAIN }));
    let servers = [SILENT, other];
    assert_eq!(kube(&servers), found("192.0.2.1", 5_000));
    assert_eq!(look_up_within(3_000, "", "kube", &servers), found("192.0.2.1", 1_500));
    let conf = "search a b";
    assert_eq!(look_up(conf, "kube", &servers), found("192.0.2.1", 15_000));
    // A quarter, a quarter of the rest, and half of what that leaves.
    assert_eq!(look_up_within(6_000, conf, "kube", &servers), found("192.0.2.1", 4_312));
    // The name is the first candidate, and its server is slow: two of five seconds.
    let slow: Server =
        |asked| Some((2_000, if asked.name == "kube.test" { "192.0.2.1" } else { NXDOMAIN }));
    let conf = "search a b c d e f\noptions attempts:1";
    assert_eq!(look_up_within(5_000, conf, "kube.test", &[slow]), found("192.0.2.1", 2_000));
    let conf = "search a b";
    let silent = "failed: no name server answered within 3 s";
    assert_eq!(look_up_within(6_000, conf, "kube", &[SILENT]), found(silent, 6_000));
    assert_eq!(look_up_within(0, conf, "kube", &[SILENT]).1, 0);
}

/// The lookup of the node's own name has a turn with each status.
#[test]
fn seldom_turns_have_the_same_results() {
    let look_up =
        |conf, servers: &[Server]| look_up_in_turns(10_000, NO_LIMIT, conf, "kube", &each(servers));
    let slow: Server = |_| Some((30, "10.8.0.1"));
    let other: Server = |_| Some((1, "192.0.2.1"));
    assert_eq!(look_up("", &[slow, other]), found("10.8.0.1", 10_000));
    assert_eq!(look_up("", &[SILENT, other]), found("192.0.2.1", 10_000));
    assert_eq!(look_up("search a", &[NO_NAME]).1, 20_000);
    let many: Server = |asked| Some((7, if asked.is_large { "10.0.0.9" } else { TRUNCATED }));
    assert_eq!(look_up("", &[many, other]), found("10.0.0.9", 20_000));
    assert_eq!(look_up("", &[SILENT, SILENT]).1, 20_000);
}

#[test]
fn the_families_are_judged_each_on_its_own() {
    let v6: Server = |_| Some((1, "fd00::9"));
    let absent = |why| found(&format!("absent: {why} 10.0.0.1"), 1);
    // A name without A, also with servers that deny or fail instead.
    assert_eq!(kube(&[v6, NO_NAME]), found("fd00::9", 1));
    let denied: Server = |asked| Some((1, if asked.kind == A { NXDOMAIN } else { "fd00::9" }));
    assert_eq!(kube(&[denied]), found("fd00::9", 1));
    let failed: Server = |asked| Some((1, if asked.kind == A { SERVFAIL } else { "fd00::9" }));
    assert_eq!(kube(&[failed]), found("fd00::9", 2));
    // One packet is lost: the question for A is asked again.
    let lost: Server = |asked| match (asked.kind, asked.before) {
        (A, 0 | 1) => None,
        (A, _) => Some((1, "10.0.0.9")),
        _ => Some((1, "fd00::9")),
    };
    assert_eq!(kube(&[lost]), found("10.0.0.9 fd00::9", 1002));
    // A server that never answers to A.
    let v6: Server = |asked| (asked.kind != A).then_some((1, "fd00::9"));
    assert_eq!(kube(&[v6]), found("fd00::9", 2001));
    assert_eq!(kube(&[failed, |_| Some((9, "10.0.0.9"))]), found("10.0.0.9 fd00::9", 9));
    // A server that denies or fails when asked for AAAA, and one that does not answer.
    let denied: Server = |asked| Some((1, if asked.kind == A { "10.0.0.9" } else { NXDOMAIN }));
    let failed: Server = |asked| Some((1, if asked.kind == A { "10.0.0.9" } else { SERVFAIL }));
    for server in [denied, failed] {
        assert_eq!(kube(&[server]), found("10.0.0.9", 1));
    }
    let v4: Server = |asked| (asked.kind == A).then_some((1, "10.0.0.9"));
    assert_eq!(kube(&[v4]), found("10.0.0.9", 501));
    assert_eq!(kube(&[v4, v6]), found("10.0.0.9 fd00::9", 501));
    assert_eq!(kube(&[|_| Some((1, EMPTY))]), absent("the name has no address, says"));
    assert_eq!(kube(&[NO_NAME]), absent("no such name (NXDOMAIN) from"));
    // Both alternate, and no address is left out.
    let many: Server = |_| Some((1, "10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4 fd00::1 fd00::2"));
    let want = "10.0.0.1 fd00::1 10.0.0.2 fd00::2 10.0.0.3 10.0.0.4";
    assert_eq!(kube(&[many]), found(want, 1));
}

#[test]
fn an_answer_that_did_not_fit_is_asked_for_again() {
    let many: Server =
        |asked| Some((7, if asked.is_large { "10.0.0.9 fd00::9" } else { TRUNCATED }));
    let other: Server = |_| Some((1, "192.0.2.1"));
    assert_eq!(kube(&[many, other]), found("10.0.0.9 fd00::9", 14));
    // It does not concern the others.
    assert_eq!(kube(&[|_| Some((30, SERVFAIL)), many]), found("10.0.0.9 fd00::9", 30));
    assert_eq!(kube(&[many, many]), found("10.0.0.9 fd00::9", 14));
    // What fits is enough.
    assert_eq!(kube(&[|_| Some((7, "TC 10.0.0.9"))]), found("10.0.0.9", 14));
    let larger: Server = |_| Some((7, TRUNCATED));
    assert_eq!(kube(&[larger, other]), found("192.0.2.1", 14));
    let failed = "failed: a truncated answer from 10.0.0.1";
    assert_eq!(kube(&[larger]), found(failed, 28));
    // A server from before EDNS.
    let old: Server = |asked| Some((7, if asked.is_large { FORMERR } else { TRUNCATED }));
    assert_eq!(kube(&[old, other]), found("192.0.2.1", 14));
}
