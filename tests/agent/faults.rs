//! One test for each fault of a network or of an API server.
//!
//! All periods are a fifth of the defaults. Each fault lasts longer than the grace period of the
//! node-lifecycle controller, so the Node becomes `Unknown` if the fault stops the heartbeat.
//!
//! Without a filter on the command line the first test starts the scenarios of all tests, each
//! with its own board and server, and each test waits for its scenario.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use apidouble::{Double, Fault, Rule, Validity};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::front::{Front, Pace};
use crate::common::lease::{await_renewals, renew_time};
use support::{Folder, eventually};

const LEASE: Duration = Duration::from_secs(8);
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

/// An API double, and the link that the board reaches it through.
struct Site {
    double: Double,
    link: Option<Front>,
    folder: Folder,
    /// The target of redirects.
    elsewhere: TcpListener,
}

impl Site {
    fn always(&self, fault: Fault) {
        self.double.faults().push(Rule::new(fault).always());
    }

    fn node(&self) -> Option<Value> {
        self.double.get("nodes/pi")
    }

    fn is_ready(&self) -> bool {
        self.node().as_ref().is_some_and(is_ready)
    }
}

/// Memory and descriptors of a process, from `/proc`.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    anonymous_kibibytes: u64,
    resident_kibibytes: u64,
    descriptors: usize,
}

/// The minimum of 25 samples: a fact that is being read holds a descriptor or two for a moment; a
/// leak is in every sample.
fn footprint(board: &Board) -> Footprint {
    let moments = (0..25).map(|_| {
        thread::sleep(Duration::from_millis(10));
        footprint_now(board)
    });
    let least = moments.reduce(|one, other| Footprint {
        anonymous_kibibytes: one.anonymous_kibibytes.min(other.anonymous_kibibytes),
        resident_kibibytes: one.resident_kibibytes.min(other.resident_kibibytes),
        descriptors: one.descriptors.min(other.descriptors),
    });
    least.unwrap()
}

fn footprint_now(board: &Board) -> Footprint {
    Footprint {
        anonymous_kibibytes: board.kibibytes("Anonymous"),
        resident_kibibytes: board.kibibytes("Rss"),
        descriptors: board.descriptors(),
    }
}

fn threads(board: &Board) -> usize {
    let tasks = format!("/proc/{}/task", board.pid());
    fs::read_dir(tasks).unwrap().count()
}

type Act = fn(&Site);

struct Scenario {
    name: &'static str,
    /// The fault starts before the board.
    from_the_start: bool,
    through_a_link: bool,
    on: Act,
    off: Act,
}

fn clear(site: &Site) {
    site.double.faults().clear();
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

macro_rules! scenarios {
    ($($name:ident $([$($flag:ident),*])? : $on:expr => $off:expr;)*) => {
        const SCENARIOS: &[Scenario] = &[$(
            #[allow(clippy::needless_update)]
            Scenario {
                name: stringify!($name),
                on: $on,
                off: $off,
                $($($flag: true,)*)?
                ..NO_SCENARIO
            },
        )*];
        $(
            #[test]
            fn $name() {
                survived(stringify!($name));
            }
        )*
    };
}

const NO_SCENARIO: Scenario =
    Scenario { name: "", from_the_start: false, through_a_link: false, on: |_| {}, off: |_| {} };

scenarios! {
    refuse: |site| site.double.stop_listening() => |site| site.double.start_listening();
    blackhole: |site| site.double.blackhole() => |site| site.double.start_listening();
    stall_before_headers: |site| site.always(Fault::StallBeforeHeaders) => clear;
    stall_in_body: |site| site.always(Fault::StallInBody(10)) => clear;
    trickle: |site| site.always(Fault::Trickle { bytes: 1, every: Duration::from_millis(20) }) => clear;
    reset_before_headers: |site| site.always(Fault::ResetBeforeHeaders) => clear;
    reset_after_headers: |site| site.always(Fault::ResetAfterHeaders) => clear;
    fin_instead_of_an_answer: |site| site.always(Fault::CloseBeforeHeaders) => clear;
    closed_after_each_answer: |site| site.always(Fault::CloseAfterResponse) => clear;
    closed_silently_after_each_answer: |site| site.always(Fault::CloseSilently) => clear;
    too_many_requests_for_an_hour: |site| site.always(status(429, Some(3600))) => clear;
    internal_error: |site| site.always(status(500, None)) => clear;
    gateway_503_page: |site| {
        site.always(raw("503 Service Unavailable", "text/html", "<html>503</html>"));
    } => clear;
    unauthorized_then_good: |site| site.always(status(401, None)) => clear;
    forbidden: |site| site.always(status(403, None)) => clear;
    no_such_lease: |site| {
        let rule = Rule::new(status(404, None)).path("/leases");
        site.double.faults().push(rule.always());
    } => clear;
    conflict_on_everything: |site| site.always(status(409, None)) => clear;
    conflict_on_everything_from_the_start [from_the_start]: |site| site.always(status(409, None)) => clear;
    malformed_json: |site| site.always(Fault::Garbage) => clear;
    wrong_kind: |site| site.always(raw("200 OK", "application/json", WRONG_KIND)) => clear;
    oversized_body: |site| site.always(Fault::Oversized(10)) => clear;
    endless_headers: |site| site.always(Fault::EndlessHeaders) => clear;
    redirect: |site| {
        let place = format!("https://{}/", site.elsewhere.local_addr().unwrap());
        site.always(Fault::Redirect(place));
    } => |site| {
        clear(site);
        assert!(site.elsewhere.accept().is_err(), "it followed the redirect");
    };
    slow_tls [through_a_link]: |site| {
        // A handshake of 1.5 KB needs half a minute.
        let link = site.link.as_ref().unwrap();
        link.set_pace(Pace { bytes_per_second: 50, ..Pace::NONE });
        link.drop_connections();
    } => |site| {
        let link = site.link.as_ref().unwrap();
        link.set_pace(Pace::NONE);
        link.drop_connections();
    };
    another_authority_and_back: |site| site.double.swap_to_unknown_authority()
        => |site| site.double.swap_validity(Validity::VALID, None);
    restart_with_empty_storage: |site| {
        site.double.stop_listening();
        site.double.restart_empty();
    } => |site| site.double.start_listening();
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
    let mut board = Board::start_with(
        &[&format!("--kubeconfig={}", kubeconfig.display()), "--hostname-override=pi"],
        &[("JOURNAL_STREAM", "8:1")],
    );
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

/// Waits for the scenario `name`; fails with its panic.
fn survived(name: &str) {
    static RUNNING: OnceLock<Mutex<BTreeMap<&str, JoinHandle<()>>>> = OnceLock::new();
    let spawn = |scenario: &'static Scenario| {
        let named = thread::Builder::new().name(format!("faults::{}", scenario.name));
        (scenario.name, named.spawn(|| run(scenario)).unwrap())
    };
    let thread = if std::env::args().skip(1).any(|arg| !arg.starts_with('-')) {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name);
        spawn(scenario.unwrap()).1
    } else {
        let all = RUNNING.get_or_init(|| Mutex::new(SCENARIOS.iter().map(spawn).collect()));
        let thread = all.lock().unwrap().remove(name);
        thread.unwrap()
    };
    if let Err(panic) = thread.join() {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        panic!("{name}: {}", text.unwrap_or_default());
    }
}

fn run(scenario: &Scenario) {
    let site = {
        let double = Double::builder().lifecycle(GRACE).start();
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        elsewhere.set_nonblocking(true).unwrap();
        let link = scenario.through_a_link.then(|| Front::to(double.port(), Pace::NONE));
        Site { folder: Folder::new(scenario.name), double, link, elsewhere }
    };
    let mut kubeconfig = site.double.kubeconfig_for_node("pi");
    if let Some(link) = &site.link {
        kubeconfig = link.kubeconfig(&kubeconfig, site.double.port());
    }
    let kubeconfig = site.folder.write("kubeconfig", &kubeconfig);
    if scenario.from_the_start {
        (scenario.on)(&site);
    }
    let mut board = Board::start(&[
        &format!("--kubeconfig={}", kubeconfig.display()),
        "--hostname-override=pi",
        &format!("--node-lease-duration-seconds={}", LEASE.as_secs()),
        "--node-status-update-frequency=1s",
    ]);
    let mut before = None;
    if !scenario.from_the_start {
        eventually("Ready", BACK, || site.is_ready().then_some(()));
        renewals(&site, 2);
        before = board.can_be_looked_into().then(|| footprint(&board));
    }
    let lines_before = board.log().len();
    site.double.clear_requests();
    if !scenario.from_the_start {
        (scenario.on)(&site);
    }
    let storm = Instant::now();
    while storm.elapsed() < STORM {
        assert_eq!(threads(&board), 1, "a thread was started");
        thread::sleep(Duration::from_millis(20));
    }
    let during = site.double.requests().len();
    assert!(board.is_running(), "it ended: {:?}", board.log());

    (scenario.off)(&site);
    let end = Instant::now();
    renewals(&site, 1);
    let back = end.elapsed();
    eventually("Ready again", BACK.saturating_sub(end.elapsed()), || site.is_ready().then_some(()));
    let ready = end.elapsed();
    // Memory and descriptors of the outage are released by now.
    renewals(&site, 2);
    assert!(board.is_running(), "it ended: {:?}", board.log());
    assert_eq!(threads(&board), 1);
    let after = before.map(|_| footprint(&board));
    let lines = board.log().split_off(lines_before);
    println!(
        "{}: renewed after {back:?}, Ready after {ready:?}, {during} requests, {} lines, {before:?} -> {after:?}",
        scenario.name,
        lines.len()
    );
    assert!(lines.len() <= MOST_LINES, "a line per attempt: {lines:#?}");
    // The maximum is five reads and patches at each tick, if every patch is a conflict. A busy
    // loop sends thousands.
    assert!(during <= 120, "{during} requests in {STORM:?}");
    if let (Some(before), Some(after)) = (before, after) {
        for (before, after, most) in [
            (before.anonymous_kibibytes, after.anonymous_kibibytes, MOST_KIBIBYTES),
            (before.resident_kibibytes, after.resident_kibibytes, MOST_RESIDENT_KIBIBYTES),
        ] {
            assert!(after <= before + most, "{before} -> {after} KiB of memory");
        }
        // The agent may be reconnecting.
        assert!(after.descriptors.abs_diff(before.descriptors) <= 1, "{before:?} -> {after:?}");
    }
    site.double.assert_members_are_known();
}

fn renewals(site: &Site, times: usize) {
    await_renewals(times, BACK, || renew_time(&site.double, "pi"));
}
