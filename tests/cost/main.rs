//! Costs of a heartbeat that do not depend on the speed of the machine, compared with the budgets
//! in `tests/budgets.toml`. For time and memory see `cargo bench --bench heartbeat`.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;
mod reads;

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apidouble::{Double, Recorded};
use nodelet::client::api::Api;
use nodelet::config::Config;
use nodelet::config::flags::Flags;
use nodelet::credentials::kubeconfig;
use nodelet::kube::instant::{Mono, Now};
use nodelet::kube::message::{Accept, Method, Request, Response};
use nodelet::kube::object::LEASES;
use nodelet::kube::time::Wall;
use nodelet::node::Progress;
use nodelet::node::lease::Lease;
use nodelet::node::pods::Pods;
use nodelet::node::wall_clock::{ClusterNow, WallClock};
use nodelet::os::guard::own_mounts;
use nodelet::runtime::ask;
use nodelet::runtime::config::RuntimeConfig;
use serde_json::{Value, json};

use crate::common::board::Board;
use crate::common::budget::{assert_within, least};
use crate::common::cluster::Cluster;
use crate::common::runtime::Runtime;
use crate::common::{lease, namespace, ptrace, raspberry};
use support::{Folder, eventually, skip};

const BUDGET: Duration = Duration::from_secs(10);

/// Header, content type and tag of a record of TLS 1.3, in bytes. A request is one record, and so
/// is an answer.
const TLS_RECORD: usize = 22;

fn call(api: &mut Api, request: &Request) -> Response {
    match api.call(request, BUDGET) {
        Ok(response) => response,
        Err(why) => panic!("{why}"),
    }
}

fn now() -> ClusterNow {
    let wall = Wall::from_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap());
    let clock = WallClock::new(Wall::default(), Duration::ZERO);
    clock.cluster_now(Now { mono: Mono::START, wall }).unwrap()
}

/// Creates a Node with its own credentials; its uid.
fn register(api: &mut Api, name: &str) -> String {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let request = Request {
        method: Method::Post,
        path: "/api/v1/nodes".to_owned(),
        accept: Accept::Object,
        body: node.to_string().into_bytes(),
    };
    let node: Value = serde_json::from_slice(&call(api, &request).body).unwrap();
    node["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Also against a real API server, which must answer in protobuf.
#[test]
fn a_renewal_is_answered_in_protobuf() {
    let cluster = Cluster::start(Duration::from_secs(50));
    let name = cluster.node_name("pi");
    let kubeconfig = kubeconfig::load(cluster.kubeconfig(&name).as_ref(), None).unwrap();
    let mut api = Api::new(&kubeconfig).unwrap();
    let uid = register(&mut api, &name);
    let mut lease = Lease::new(&name, 40);
    let mut answers = Vec::new();
    for _ in 0..5 {
        let request = lease.request(&uid, now());
        let response = call(&mut api, &request);
        answers.push((request.method, response.body.clone()));
        lease.on_response(&uid, Ok(response)).unwrap();
    }
    let (method, last) = answers.last().unwrap();
    assert_eq!(*method, Method::Patch);
    assert!(last.starts_with(b"k8s\0"), "{last:?}");
    println!("answers of {:?} bytes", answers.iter().map(|a| a.1.len()).collect::<Vec<_>>());

    // An error is in protobuf, too.
    let other = Lease::new("other", 40).request(&uid, now()).path;
    let request = Request {
        method: Method::Patch,
        path: other,
        accept: Accept::Receipt,
        body: b"{}".to_vec(),
    };
    let refused = call(&mut api, &request).accepted().unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"));
    assert!(refused.message.contains("can only access node lease with the same name"));
}

/// A client of the node `a-board`.
fn api(double: &Double, folder: &Folder) -> Api {
    let path = folder.write("kubeconfig", double.kubeconfig_for_node("a-board"));
    let kubeconfig = kubeconfig::load(&path, None).unwrap();
    Api::new(&kubeconfig).unwrap()
}

/// Bytes of HTTP inside of TLS.
#[test]
fn bytes_and_allocations_of_a_renewal() {
    let double = Double::start();
    let folder = Folder::new("cost");
    let mut api = api(&double, &folder);
    let uid = register(&mut api, "a-board");
    let mut lease = Lease::new("a-board", 40);
    let mut renew = || {
        let request = lease.request(&uid, now());
        lease.on_response(&uid, api.call(&request, BUDGET))
    };
    // Reads the Lease, which does not exist; creates it; renews it without managedFields.
    let results = [renew(), renew(), renew()];
    assert_eq!(results, [Ok(Progress::Continue), Ok(Progress::Done), Ok(Progress::Done)]);
    double.clear_requests();
    let allocations = allocation_counter::measure(|| assert_eq!(renew(), Ok(Progress::Done)));
    let renewal = &double.requests()[0];
    assert_within("renewal_request_bytes", renewal.request_bytes);
    let answer = eventually("the answer", BUDGET, || {
        double.requests().pop().filter(|renewal| renewal.code == 200)
    });
    assert_within("renewal_answer_bytes", answer.response_bytes);
    assert_within("renewal_allocations", usize::try_from(allocations.count_total).unwrap());
    assert_within("renewal_peak_heap_bytes", usize::try_from(allocations.bytes_max).unwrap());
    assert_eq!(allocations.count_current, 0, "it keeps what it allocated");
}

/// A healthy board looks for stray pods with each report, every 5 min: at most 160 bytes a minute.
#[test]
fn bytes_of_a_look_for_stray_pods() {
    let double = Double::start();
    let folder = Folder::new("cost");
    let mut api = api(&double, &folder);
    let mut pods = Pods::new(&config(Flags::default()).node);
    let request = pods.request(Mono::START);
    let response = api.call(&request, BUDGET);
    let result = pods.on_response(response, None, Mono::START);
    assert_eq!(result, Ok(Progress::Done));
    let look = eventually("the answer", BUDGET, || {
        double.requests().pop().filter(|look| look.code == 200)
    });
    let bytes = look.request_bytes + look.response_bytes;
    assert_within("pods_look_bytes", bytes);
    // Both directions of TLS records and TCP headers; five minutes.
    assert!((bytes + 120) / 5 <= 160, "{bytes}");
}

fn config(flags: Flags) -> Config {
    Config::new(flags, || Ok("a-board".to_owned())).unwrap()
}

fn start(double: &Double, folder: &Folder, more: &[&str]) -> Board {
    let path = folder.write("kubeconfig", double.kubeconfig_for_node("a-board"));
    let kubeconfig = format!("--kubeconfig={}", path.display());
    let mut args = vec![kubeconfig.as_str(), "--hostname-override=a-board", "--node-ip=127.0.0.1"];
    // A full disk of this machine changes nothing.
    args.push("--eviction-hard=memory.available<1");
    args.extend(more);
    Board::start(&args)
}

/// HTTP inside of TLS: of a report, and of a minute with its share of a report, the look for stray
/// pods that follows it, and one for changes of the Node by others, every five minutes.
struct Bytes {
    report: (usize, usize),
    minute: usize,
}

/// The reports of a Node that nobody else changes are one request each.
fn bytes(runtime: Option<&Runtime>) -> Bytes {
    // Controllers have written the Node too, so that its managedFields have their entries.
    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    let folder = Folder::new("cost");
    let mut args = vec![
        "--node-lease-duration-seconds=4",
        "--node-status-update-frequency=1s",
        "--node-status-report-frequency=1s",
    ];
    let service = runtime.map(|runtime| (runtime.service(), runtime.endpoint()));
    if let Some(((_, facts), endpoint)) = &service {
        args.extend([facts.as_str(), endpoint.as_str()]);
    }
    let _board = start(&double, &folder, &args);
    let bytes = |path: &str, count: usize| {
        let last: Vec<Recorded> = eventually(path, Duration::from_secs(30), || {
            let of_path = |r: &Recorded| r.path.starts_with(path) && r.code != 0;
            let requests = double.requests().into_iter().filter(of_path);
            let requests: Vec<Recorded> = requests.collect();
            (requests.len() > count).then(|| requests[count - 3..].to_vec())
        });
        for request in &last {
            assert_eq!((request.method.as_str(), request.code), ("PATCH", 200));
        }
        let last = last.last().unwrap();
        (last.json(), last.request_bytes, last.response_bytes)
    };
    let (renewal, request, answer) = bytes(LEASES, 8);
    assert_eq!(renewal["spec"].as_object().unwrap().len(), 1, "{renewal}");
    let renewal = request + answer + 2 * TLS_RECORD;
    let (report, request, answer) = bytes("/api/v1/nodes/a-board", 8);
    assert_eq!(report["status"].as_object().unwrap().len(), 1, "{report}");
    let both = request + answer + 2 * TLS_RECORD;
    let pods = eventually("a look for stray pods", BUDGET, || {
        let mut requests = double.requests().into_iter();
        requests.find(|r| r.path.starts_with("/api/v1/pods") && r.code == 200)
    });
    let pods = pods.request_bytes + pods.response_bytes + 2 * TLS_RECORD;
    let look = node_look_bytes() + 2 * TLS_RECORD;
    let node = double.get("nodes/a-board").unwrap();
    let images = node["status"]["images"].as_array().map_or(0, Vec::len);
    assert_eq!(images, if runtime.is_some() { 10 } else { 0 });
    let rare = (both + pods + look) / 5;
    Bytes { report: (request, answer), minute: renewal * 60 * 10 / 102 + rare }
}

/// Of a look that finds nothing, beside other Nodes that are written all the time: a server forgets
/// the versions of all Nodes together, and answers the ten looks as if there was one board.
fn node_look_bytes() -> usize {
    let double = Double::builder().lifecycle(Duration::from_secs(50)).start();
    let folder = Folder::new("cost");
    let often = [
        "--node-resync-frequency=1s",
        "--node-status-update-frequency=1s",
        "--node-status-report-frequency=4s",
    ];
    let _board = start(&double, &folder, &often);
    // After the controllers' writes, and a report, which has a part in managedFields.
    let path = "/api/v1/nodes/a-board/status";
    let patches = |is_look: bool| {
        let requests = double.requests().into_iter();
        let patches = requests.filter(|r| r.path == path && r.code == 200);
        patches.filter(|r| r.is_look() == is_look).collect::<Vec<_>>()
    };
    eventually("a report", BUDGET, || patches(false).pop());
    double.clear_requests();
    let mut others = 0;
    let looks = eventually("ten looks", Duration::from_secs(60), || {
        let node = json!({"metadata": {"name": format!("other-{others}")}});
        let (code, _) = double.as_admin("POST", "/api/v1/nodes", "application/json", &node);
        assert_eq!(code, 201);
        others += 1;
        Some(patches(true)).filter(|looks| looks.len() >= 10)
    });
    assert!(others > 100, "only {others} writes of other Nodes");
    let reads = double.requests().into_iter().filter(|r| r.path.starts_with("/api/v1/nodes"));
    let reads: Vec<Recorded> = reads.filter(|r| r.path != path).collect();
    assert!(reads.is_empty(), "{reads:?}");
    let bytes = looks[0].request_bytes + looks[0].response_bytes;
    assert_within("node_look_bytes", bytes);
    bytes
}

/// A container runtime adds nothing to a minute in which it does not change: its images are sent
/// once, and the answer to a report has the metadata alone.
#[test]
fn bytes_of_a_report_and_of_an_idle_minute() {
    let folder = Folder::new("cost-runtime");
    let mut runtime = Runtime::start(&folder.path().join("c.sock"), 12);
    for runtime in [None, Some(&runtime)] {
        let bytes = bytes(runtime);
        assert_within("report_request_bytes", bytes.report.0);
        assert_within("report_answer_bytes", bytes.report.1);
        assert_within("idle_minute_bytes", bytes.minute);
    }
    runtime.stop();
}

/// Bytes over the socket and heap of a question for all details, by the number of images.
#[test]
fn bytes_and_heap_of_a_look_at_the_runtime() {
    let folder = Folder::new("cost-heap");
    let usize_of = |number: u64| usize::try_from(number).unwrap();
    let measured = |images: usize| {
        let mut runtime = Runtime::start(&folder.path().join("c.sock"), images);
        let endpoint = runtime.endpoint();
        let (_, endpoint) = endpoint.split_once('=').unwrap();
        let endpoint = RuntimeConfig::parse(endpoint, "", 10, Path::new("/f")).unwrap().unwrap();
        // The process has the mount table since its first question.
        drop(own_mounts());
        let look = allocation_counter::measure(|| {
            let found = ask(&endpoint, BUDGET);
            assert!(found.status.is_ok() && found.errors.is_empty());
        });
        assert_eq!(look.count_current, 0, "it keeps what it allocated");
        runtime.stop();
        (runtime.bytes(), look)
    };
    let (bytes, look) = measured(12);
    assert_within("look_bytes", bytes);
    assert_within("look_allocations", usize_of(look.count_total));
    assert_within("look_peak_heap_bytes", usize_of(look.bytes_max));
    let (_, look) = measured(10_000);
    assert_within("large_look_peak_heap_bytes", usize_of(look.bytes_max));
}

fn renewals(double: &Double) -> usize {
    lease::renewals(double).len()
}

/// The agent reads the mount table again when it changes: with root, the mounts of other processes
/// of this machine do not count.
fn without_other_mounts() {
    if let Err(why) = namespace::mounts() {
        skip::optional(&format!("mounts of other processes count: {why}"));
    }
}

fn not_traced() {
    skip::optional("system calls: this machine forbids ptrace");
}

#[test]
fn system_calls_of_a_renewal() {
    let double = Double::start();
    let folder = Folder::new("cost");
    // A renewal every second, and no other work for an hour.
    let state = format!("--state-file={}", folder.path().join("state").display());
    let rare = ["--node-lease-duration-seconds=4", "--node-status-update-frequency=1h", &state];
    let board = start(&double, &folder, &rare);
    eventually("events and renewals", Duration::from_secs(30), || {
        (renewals(&double) > 3).then_some(())
    });
    // The middle one of eleven: on a busy machine an answer arrives in two pieces, which are two
    // reads, or this test sees it late, and the next renewal seems to need fewer calls.
    let count = || {
        let (mut last, mut since, mut counts) = (renewals(&double), 0, Vec::new());
        ptrace::system_calls(board.pid(), || {
            since += 1;
            let now = renewals(&double);
            if now > last {
                counts.push(since);
                (last, since) = (now, 0);
            }
            counts.len() > 11
        })?;
        // The first one had begun before.
        counts.remove(0);
        counts.sort_unstable();
        Some(counts[5])
    };
    let Some(calls) = least("renewal_system_calls", count) else {
        return not_traced();
    };
    assert_within("renewal_system_calls", calls);
    assert_eq!(std::fs::read_dir(format!("/proc/{}/task", board.pid())).unwrap().count(), 1);
}

/// Six status computations, six renewals, and the reads of once a minute, by default; reports and
/// looks, which not each minute has, are left to the tests of bytes. A renewal comes 10 to 10.4 s
/// after the one before, and the reads come with the sixth: 60 s would miss both.
#[test]
fn system_calls_of_an_idle_minute() {
    without_other_mounts();
    let double = Double::start();
    let folder = Folder::new("cost");
    let state = format!("--state-file={}", folder.path().join("state").display());
    let rare = ["--node-status-report-frequency=1h", "--node-resync-frequency=1h", &state];
    let board = start(&double, &folder, &rare);
    // With no look of the two minutes after a start.
    std::thread::sleep(Duration::from_secs(135));
    let a_minute = || {
        let seen = renewals(&double);
        eventually("a renewal", Duration::from_secs(30), || {
            (renewals(&double) > seen).then_some(())
        });
        let (begin, before) = (Instant::now(), renewals(&double));
        let during = Cell::new(0);
        let calls = ptrace::system_calls(board.pid(), || {
            let is_over = begin.elapsed() >= Duration::from_secs(63);
            if is_over {
                during.set(renewals(&double) - before);
            }
            is_over
        });
        // Without them, the calls are not those of a minute.
        calls.inspect(|_| assert_eq!(during.get(), 6, "renewals"))
    };
    match least("idle_minute_system_calls", a_minute) {
        Some(calls) => assert_within("idle_minute_system_calls", calls),
        None => not_traced(),
    }
}

/// A minute of a Raspberry Pi with each source of the conditions about the board's health, beside
/// the same board without them. 63 s have one look, or two: it comes with each sixth status, after
/// at most 62.4 s. In the middle of an hour, so without a discovery; kernel files below another
/// root cost more than those of `/`.
#[test]
fn system_calls_of_a_minute_of_looks_at_the_boards_health() {
    let count = |detection: &'static str| {
        std::thread::spawn(move || {
            without_other_mounts();
            let double = Double::start();
            let folder = Folder::new("cost");
            let root = raspberry::healthy(&folder);
            let host_root = format!("--host-root={root}");
            let board = start(&double, &folder, &[&host_root, detection]);
            eventually("renewals", Duration::from_secs(60), || {
                (renewals(&double) > 1).then_some(())
            });
            // A check and a list of pods follow the renewal.
            std::thread::sleep(Duration::from_secs(1));
            double.clear_requests();
            let begin = Instant::now();
            let is_over = || begin.elapsed() >= Duration::from_secs(63);
            let calls = ptrace::system_calls(board.pid(), is_over)?;
            Some((calls, double.requests().len()))
        })
    };
    let looks = || {
        // A minute can have one request more than another, with the reads that belong to it; a
        // stall of this machine can move the reads of once a minute out of it.
        for _ in 0..5 {
            let [without, with] =
                ["--node-problem-detection=none", "--node-problem-detection=problems"].map(count);
            let (without, with) = (without.join().unwrap()?, with.join().unwrap()?);
            println!("calls and requests in 63 s: {without:?} without looks, {with:?} with them");
            if without.1 == with.1 && with.0 > without.0 + 10 {
                return Some(with.0 - without.0);
            }
        }
        panic!("no look was counted in minutes of as many requests");
    };
    match least("health_minute_system_calls", looks) {
        Some(calls) => assert_within("health_minute_system_calls", calls),
        None => not_traced(),
    }
}

/// A board with a container runtime beside one without, and `nodelet runtime`: 30 s have about six
/// statuses, which come after 5 to 5.2 s, and three questions, one of them, or none, for details.
#[test]
fn system_calls_of_a_question_to_the_runtime_and_of_its_file() {
    const TIME: Duration = Duration::from_secs(30);
    let traced = |board: &Board| {
        std::thread::sleep(Duration::from_secs(7));
        let begin = Instant::now();
        ptrace::system_calls(board.pid(), || begin.elapsed() >= TIME)
    };
    let agent = |flags: &[String]| {
        let double = Double::start();
        let folder = Folder::new("cost-runtime-file");
        let mut args =
            vec!["--node-lease-duration-seconds=600", "--node-status-update-frequency=5s"];
        args.extend(flags.iter().map(String::as_str));
        let board = start(&double, &folder, &args);
        board.says("registered");
        traced(&board)
    };
    let folder = Folder::new("cost-runtime");
    let mut runtime = Runtime::start(&folder.path().join("c.sock"), 12);
    let (service, facts) = runtime.service();
    let flags = [facts, runtime.endpoint()];
    let (without, with, asking) = std::thread::scope(|scope| {
        let without = scope.spawn(|| agent(&[]));
        let with = scope.spawn(|| agent(&flags));
        let asking = traced(&service);
        (without.join().unwrap(), with.join().unwrap(), asking)
    });
    drop(service);
    runtime.stop();
    let (Some(without), Some(with), Some(asking)) = (without, with, asking) else {
        return not_traced();
    };
    println!("agent: {without} without a runtime, {with} with one; nodelet runtime: {asking}");
    assert!(with > without, "no read was counted");
    assert_within("runtime_file_system_calls", (with - without).div_ceil(6));
    assert_within("question_system_calls", asking.div_ceil(3));
}
