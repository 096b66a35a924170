//! A board that meets each fault of a network or of an API server.
//!
//! All periods are a fifth of the defaults. Each fault lasts longer than the grace period of the
//! node-lifecycle controller, so the Node becomes `Unknown` if the fault stops the heartbeat.

use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::{Double, Fault, Rule, Validity};
use nix::sys::signal::Signal;

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::lease::{await_renewals, renew_time};
use support::{Folder, eventually};

/// Longer than [`GRACE`] and four renewals.
const STORM: Duration = Duration::from_secs(9);
/// Grace period of the double's node-lifecycle controller.
const GRACE: Duration = Duration::from_secs(6);
/// Longest time from the end of the fault to the next renewal.
const BACK: Duration = Duration::from_secs(15);

/// Log lines of one outage: one failure and one recovery each of lease and node, four conditions
/// that were `Unknown`, a Node that was deleted. Not a line for each attempt.
const MOST_LINES: usize = 12;

/// Anonymous memory, which alone can leak, grows by 10 to 70 KiB.
const MOST_KIBIBYTES: u64 = 256;
/// Resident memory includes pages of the binary that the error paths touch first; a kernel with
/// large folios maps hundreds of KiB with each.
const MOST_RESIDENT_KIBIBYTES: u64 = 1024;

fn is_ready_now(double: &Double) -> bool {
    double.get("nodes/pi").as_ref().is_some_and(is_ready)
}

/// Anonymous and resident KiB, and descriptors. The minimum of 25 samples: a fact that is being
/// read holds a descriptor or two for a moment; a leak is in every sample.
fn footprint(board: &Board) -> [u64; 3] {
    let mut least = [u64::MAX; 3];
    for _ in 0..25 {
        thread::sleep(Duration::from_millis(10));
        let [anonymous, resident] = ["Anonymous", "Rss"].map(|name| board.kibibytes(name));
        let now = [anonymous, resident, board.descriptors() as u64];
        least = [0, 1, 2].map(|of| least[of].min(now[of]));
    }
    least
}

fn threads(board: &Board) -> usize {
    let tasks = format!("/proc/{}/task", board.pid());
    fs::read_dir(tasks).unwrap().count()
}

fn status(code: u16, retry_after: Option<u64>) -> Fault {
    Fault::Status { code, retry_after }
}

const WRONG_KIND: &str =
    r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}"#;

/// An answer without the headers of an API server.
fn raw(status: &str, content_type: &str, body: &str) -> Fault {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    Fault::Raw([&head, body].concat().into())
}

/// Each answer of the server is such a fault. `elsewhere` is the target of a redirect.
fn of_answers(elsewhere: &TcpListener) -> [(&'static str, Fault); 19] {
    [
        ("stall before headers", Fault::StallBeforeHeaders),
        ("stall in body", Fault::StallInBody(10)),
        ("trickle", Fault::Trickle { bytes: 1, every: Duration::from_millis(20) }),
        ("reset before headers", Fault::ResetBeforeHeaders),
        ("reset after headers", Fault::ResetAfterHeaders),
        ("FIN instead of an answer", Fault::CloseBeforeHeaders),
        ("closed after each answer", Fault::CloseAfterResponse),
        ("closed silently after each answer", Fault::CloseSilently),
        ("too many requests for an hour", status(429, Some(3600))),
        ("internal error", status(500, None)),
        ("page of a gateway", raw("503 Service Unavailable", "text/html", "<html>503</html>")),
        ("unauthorized", status(401, None)),
        ("forbidden", status(403, None)),
        ("conflict", status(409, None)),
        ("malformed JSON", Fault::Garbage),
        ("wrong kind", raw("200 OK", "application/json", WRONG_KIND)),
        ("oversized body", Fault::Oversized(10)),
        ("endless headers", Fault::EndlessHeaders),
        ("redirect", Fault::Redirect(format!("https://{}/", elsewhere.local_addr().unwrap()))),
    ]
}

type Act = fn(&Double);

/// Other faults, each with its begin and its end.
const OTHERS: [(&str, Act, Act); 5] = [
    ("refused connection", Double::stop_listening, Double::start_listening),
    ("black hole", Double::blackhole, Double::start_listening),
    (
        "no such lease",
        |double| double.faults().push(Rule::new(status(404, None)).path("/leases").always()),
        |double| double.faults().clear(),
    ),
    ("another authority and back", Double::swap_to_unknown_authority, |double| {
        double.swap_validity(Validity::VALID, None);
    }),
    (
        "restart with empty storage",
        |double| {
            double.stop_listening();
            double.restart_empty();
        },
        Double::start_listening,
    ),
];

/// All at the same time, each with a board and a server of its own. The name of a thread that
/// panics is that of the fault.
#[test]
fn after_each_fault_the_node_is_ready_within_15_s() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    thread::scope(|scope| {
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        for (name, fault) in of_answers(&elsewhere) {
            let on = |double: &Double| double.faults().push(Rule::new(fault).always());
            let off = |double: &Double| double.faults().clear();
            named(name).spawn_scoped(scope, move || survives(name, on, off)).unwrap();
        }
        for (name, on, off) in OTHERS {
            named(name).spawn_scoped(scope, move || survives(name, on, off)).unwrap();
        }
    });
    assert!(elsewhere.accept().is_err(), "it followed the redirect");
}

/// A message of the server can neither forge a line of the journal nor control a terminal.
#[test]
fn foreign_text_is_one_harmless_log_line() {
    let double = Double::builder().start();
    let folder = Folder::new("foreign-text");
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403,
        "reason": "Forbidden\n<1>reason",
        "message": "no\n<0>nodelet: all is lost\r\n\u{1b}[2J\u{9b}1m\u{202e}\u{2028}end",
    });
    let fault = raw("403 Forbidden", "application/json", &status.to_string());
    double.faults().push(Rule::new(fault).path("/nodes").always());
    let mut board = Board::fast_with(&kubeconfig, "pi", &[], &[("JOURNAL_STREAM", "8:1")]);
    board.says("all is lost");
    board.stop(Signal::SIGTERM);
    let lines = board.log();
    let lost = lines.iter().filter(|line| line.contains("all is lost"));
    let lost: Vec<&String> = lost.collect();
    assert_eq!(lost.len(), 1, "{lines:#?}");
    let want = "<4>node: 403 Forbidden <1>reason: no <0>nodelet: all is lost   [2J 1m  end; \
                check the node's certificate or its RBAC rules";
    assert_eq!(lost[0], want);
    for line in &lines {
        let priority = ["<4>", "<6>"].iter().any(|p| line.starts_with(p));
        assert!(priority && !line.contains(char::is_control), "{line:?}");
    }
}

fn survives(name: &str, on: impl FnOnce(&Double), off: impl FnOnce(&Double)) {
    let double = Double::builder().lifecycle(GRACE).start();
    let folder = Folder::new("faults");
    let kubeconfig = folder.write("kubeconfig", double.kubeconfig_for_node("pi"));
    let mut board = Board::fast(&kubeconfig, "pi", &[]);
    let renewals = |times| await_renewals(times, BACK, || renew_time(&double, "pi"));
    eventually("Ready", BACK, || is_ready_now(&double).then_some(()));
    renewals(2);
    let before = board.can_be_looked_into().then(|| footprint(&board));
    let lines_before = board.log().len();
    double.clear_requests();
    on(&double);
    let storm = Instant::now();
    while storm.elapsed() < STORM {
        assert_eq!(threads(&board), 1, "a thread was started");
        thread::sleep(Duration::from_millis(20));
    }
    let during = double.requests().len();
    assert!(board.is_running(), "it ended: {:?}", board.log());

    off(&double);
    let end = Instant::now();
    renewals(1);
    let back = end.elapsed();
    eventually("Ready again", BACK.saturating_sub(end.elapsed()), || {
        is_ready_now(&double).then_some(())
    });
    let ready = end.elapsed();
    // Memory and descriptors of the outage are released by now.
    renewals(2);
    assert!(board.is_running(), "it ended: {:?}", board.log());
    assert_eq!(threads(&board), 1);
    let after = before.map(|_| footprint(&board));
    let lines = board.log().split_off(lines_before);
    println!(
        "{name}: renewed after {back:?}, Ready after {ready:?}, {during} requests, {} lines, \
         {before:?} -> {after:?}",
        lines.len()
    );
    assert!(lines.len() <= MOST_LINES, "a line per attempt: {lines:#?}");
    // The maximum is five reads and patches at each tick, if every patch is a conflict. A busy
    // loop sends thousands.
    assert!(during <= 120, "{during} requests in {STORM:?}");
    if let (Some(before), Some(after)) = (before, after) {
        for (of, most) in [(0, MOST_KIBIBYTES), (1, MOST_RESIDENT_KIBIBYTES)] {
            assert!(after[of] <= before[of] + most, "{before:?} -> {after:?} KiB of memory");
        }
        // The agent may be reconnecting.
        assert!(after[2].abs_diff(before[2]) <= 1, "{before:?} -> {after:?}");
    }
    double.assert_members_are_known();
}
