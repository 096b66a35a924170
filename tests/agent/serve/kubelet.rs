//! What a real kubelet answers on its port, and what this one does: `recordings/kubelet-port.json`,
//! request by request. Compared are version, status, headers and body; of metrics the types and the
//! help of the names that both have; of a summary the keys and their JSON types. A refusal has a
//! text of its own, which a browser must not guess the type of.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use apidouble::{Authority, Double, Identity, Validity};
use serde_json::{Map, Value};
use support::{Folder, eventually};

use super::access::only_metrics;
use super::{Client, Reply, SOON, Served, flags};
use crate::common::board::Board;

/// Requests of which the answers differ, and why. Who asks is named unless it is system:masters.
const INTENDED: &[(&str, &[&str], &str)] = &[
    ("GET /healthz?verbose", &["body"], NO_PLUGINS),
    ("GET /healthz?verbose&exclude=log", &["body"], NO_PLUGINS),
    ("GET /healthz?verbose&exclude=nonsense", &["body"], NO_PLUGINS),
    ("GET /healthz/device-plugin", &["status 404"], NO_PLUGINS),
    ("GET /configz", &["status 404"], NO_DEBUGGING),
    ("GET /statusz", &["status 404"], NO_DEBUGGING),
    ("GET /flagz", &["status 404"], NO_DEBUGGING),
    ("GET /exec/a/b/c", &["status 404"], NO_PODS),
    ("GET //healthz", &["status 404"], AS_SENT),
    ("GET /%68ealthz", &["status 404"], AS_SENT),
    ("GET /healthz/../metrics", &["status 404"], AS_SENT),
    ("GET /runningpods", &["status 404"], AS_SENT),
    ("GET http://pi/healthz", &["status 400"], "an absolute target is for proxies"),
    ("token that may get nodes/metrics: GET /nonsense", &["status 403"], ACCESS_FIRST),
    ("nobody: GET /nonsense", &["status 401"], ACCESS_FIRST),
    ("nobody: GET //healthz", &["status 401"], ACCESS_FIRST),
    (
        "GET /healthz HTTP/1.0",
        &["version", "header connection"],
        "an answer has the version of the server (RFC 9110, section 6.2)",
    ),
    ("POST /healthz, Content-Length: 3", &["status 400"], "a body is never read"),
    ("GET /healthz, X: (9000 times x)", &["status 431"], "a head has 8 KiB, not 1 MiB"),
    ("GET /pods, Accept: application/yaml", &["status 200"], ONE_FORM),
    ("GET /metrics/resource, Accept-Encoding: gzip", &["header content-encoding"], ONE_FORM),
    (
        "GET /metrics/resource, Accept: application/vnd.google.protobuf;\
         proto=io.prometheus.client.MetricFamily;encoding=delimited",
        &["header content-type"],
        ONE_FORM,
    ),
];

const NO_PLUGINS: &str = "there are no device plugins to check";
const NO_DEBUGGING: &str = "nothing about the inside of the process";
const NO_PODS: &str = "no containers";
const AS_SENT: &str = "a path is compared as it was sent: no redirect, no decoding";
const ACCESS_FIRST: &str = "a stranger does not learn which paths there are";
const ONE_FORM: &str = "an answer has one form, and none is compressed";

/// Metrics that this kubelet has not on the same path, and why.
const MORE: [(&str, &str); 3] = [
    ("/metrics nodelet_", "nodelet's own"),
    ("/metrics kubelet_certificate_manager_client_", "only with rotateCertificates"),
    ("/metrics/cadvisor process_start_time_seconds", "an answer has one metric at least"),
];

/// Metrics and members of a summary that are not here, and why.
const LEFT_OUT: [(&str, &str); 13] = [
    ("/metrics ", NO_DEBUGGING),
    ("/metrics/cadvisor ", NO_PODS),
    ("/metrics/slis ", NO_DEBUGGING),
    ("/node/systemContainers/", "no cgroups of a kubelet, a runtime and pods"),
    ("/node/runtime/", "no images, no containers"),
    ("/node/rlimit/", NOT_READ),
    ("/node/io/", NOT_READ),
    ("/node/cpu/psi/", NOT_READ),
    ("/node/memory/psi/", NOT_READ),
    ("/node/memory/usageBytes", NOT_READ),
    ("/node/memory/rssBytes", NOT_READ),
    ("/node/memory/pageFaults", NOT_READ),
    ("/node/memory/majorPageFaults", NOT_READ),
];

const NOT_READ: &str = "metrics-server reads /metrics/resource instead";

/// Only the difference of two readings gives the first, and a machine without eth0 has no second.
const SOMETIMES: [&str; 2] = ["/node/cpu/usageNanoCores", "/node/network/"];

/// A port beside its agent, and who asks.
struct Site {
    served: Served,
    master: Identity,
    stranger: Identity,
}

impl Site {
    /// Sends a recorded request over a connection of its own.
    fn ask(&self, request: &Value) -> Reply {
        let (identity, token) = match text(request, "as") {
            "token of system:masters" => (None, Some("admin")),
            "token that may get nodes/metrics" => (None, Some("scraper")),
            "unknown token" => (None, Some("unknown")),
            "certificate of system:masters" => (Some(&self.master), None),
            "certificate of another CA" => (Some(&self.stranger), None),
            "nobody" => (None, None),
            other => panic!("{other}"),
        };
        let version = request["request_version"].as_str().unwrap_or("HTTP/1.1");
        let (method, target) = (text(request, "method"), text(request, "target"));
        let mut head = format!("{method} {target} {version}\r\nHost: pi\r\n");
        if let Some(token) = token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        for header in request["request_headers"].as_array().into_iter().flatten() {
            let header = header.as_str().unwrap().replace("(9000 times x)", &"x".repeat(9000));
            head += &format!("{header}\r\n");
        }
        let body = request["request_body"].as_str().unwrap_or_default();
        let mut client = Client::connect(self.served.port, identity);
        client.send(&format!("{head}\r\n{body}"), method == "HEAD")
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name}: {value}"))
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// As it is in [`INTENDED`].
fn name(request: &Value) -> String {
    let who = match text(request, "as") {
        "token of system:masters" => String::new(),
        other => format!("{other}: "),
    };
    let mut name = format!("{who}{} {}", text(request, "method"), text(request, "target"));
    if let Some(version) = request["request_version"].as_str() {
        name += &format!(" {version}");
    }
    for header in request["request_headers"].as_array().into_iter().flatten() {
        name += &format!(", {}", header.as_str().unwrap());
    }
    name
}

/// The parts that are not as recorded; of another status that one alone.
fn differences(
    wanted: &Value,
    reply: &Reply,
    shapes: &Value,
    excused: &mut BTreeSet<&'static str>,
) -> Vec<String> {
    if wanted["status"] != reply.code {
        return vec![format!("status {}", reply.code)];
    }
    let mut found = Vec::new();
    let mut differs = |what: String, is_different: bool| {
        if is_different {
            found.push(what);
        }
    };
    differs("version".to_owned(), reply.version != text(wanted, "version"));
    let is_refusal = reply.code >= 400;
    let recorded: BTreeMap<String, &str> = members(&wanted["headers"])
        .map(|(name, value)| (name.to_lowercase(), value.as_str().unwrap()))
        .collect();
    let names: BTreeSet<&String> = recorded.keys().chain(reply.headers.keys()).collect();
    for name in names {
        let ours = reply.headers.get(name).map(String::as_str);
        let is_as_recorded = match name.as_str() {
            "date" => true,
            // Of a body it follows from the body.
            "content-length" | "transfer-encoding"
                if is_refusal || text(wanted, "method") != "HEAD" =>
            {
                true
            }
            "process-start-time-unix" => ours.is_some_and(|at| at.parse::<u64>().is_ok()),
            "x-content-type-options" if is_refusal => ours == Some("nosniff"),
            _ => ours == recorded.get(name).copied(),
        };
        differs(format!("header {name}"), !is_as_recorded);
    }
    if let Some(body) = wanted["body"].as_str() {
        differs("body".to_owned(), reply.body != body && !is_refusal);
    } else if wanted["metrics"].is_object() && reply.code == 200 {
        let path = text(wanted, "target");
        let help = |name| wanted["help"][name].as_str().unwrap_or_default();
        let theirs = members(&wanted["metrics"])
            .map(|(name, kind)| (format!("{path} {name}"), format!("{kind} {}", help(name))));
        found.extend(compare(&theirs.collect(), &metrics(path, &reply.body), excused));
    } else if let Some(shape) = wanted["shape"].as_str() {
        let summary: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        let (mut theirs, mut ours) = (BTreeMap::new(), BTreeMap::new());
        leaves(&shapes[shape], String::new(), |kind| kind.as_str().unwrap(), &mut theirs);
        leaves(&summary, String::new(), kind, &mut ours);
        found.extend(compare(&theirs, &ours, excused));
    }
    found
}

/// The type and the help of each metric, by its path and name.
fn metrics(path: &str, body: &str) -> BTreeMap<String, String> {
    let lines = |what: &str| -> BTreeMap<&str, &str> {
        body.lines().filter_map(|line| line.strip_prefix(what)?.split_once(' ')).collect()
    };
    let (types, help) = (lines("# TYPE "), lines("# HELP "));
    let metric = |(name, kind)| (format!("{path} {name}"), format!("{kind:?} {}", help[name]));
    types.into_iter().map(metric).collect()
}

/// What `leaf` says of each value without members, by its path; of a list, of the first element.
fn leaves(
    value: &Value,
    path: String,
    leaf: fn(&Value) -> &str,
    found: &mut BTreeMap<String, String>,
) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                leaves(member, format!("{path}/{name}"), leaf, found);
            }
        }
        Value::Array(elements) => {
            if let Some(first) = elements.first() {
                leaves(first, path + "/0", leaf, found);
            }
        }
        value => drop(found.insert(path, leaf(value).to_owned())),
    }
}

fn kind(value: &Value) -> &str {
    match value {
        Value::Number(_) => "number",
        Value::String(_) => "string",
        _ => "neither",
    }
}

/// The keys whose values differ, and those that one side alone has without a reason. Adds each
/// reason that counted to `excused`.
fn compare(
    theirs: &BTreeMap<String, String>,
    ours: &BTreeMap<String, String>,
    excused: &mut BTreeSet<&'static str>,
) -> Vec<String> {
    let has_eth0 = Path::new("/sys/class/net/eth0").exists();
    let sometimes = SOMETIMES.iter().filter(|prefix| !prefix.contains("network") || !has_eth0);
    let more: Vec<&str> = MORE.iter().map(|(prefix, _)| *prefix).collect();
    let left_out: Vec<&str> =
        LEFT_OUT.iter().map(|(prefix, _)| *prefix).chain(sometimes.copied()).collect();
    let mut is_right = |key: &String| {
        let excuses = match (theirs.get(key), ours.get(key)) {
            (Some(theirs), Some(ours)) => return theirs == ours,
            (None, _) => &more,
            (_, None) => &left_out,
        };
        let excuse = excuses.iter().find(|prefix| key.starts_with(**prefix));
        excuse.map(|prefix| excused.insert(prefix)).is_some()
    };
    let keys: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    keys.into_iter().filter(|key| !is_right(key)).cloned().collect()
}

#[test]
fn each_recorded_answer_of_a_kubelet_is_given_here() {
    let text = include_str!("../../recordings/kubelet-port.json");
    let record: Map<String, Value> = serde_json::from_str(text).unwrap();
    let account = "system:serviceaccount:default:scraper";
    let double = Double::builder()
        .token("admin", "admin", &["system:masters"])
        .token("scraper", account, &["system:serviceaccounts"])
        .start();
    double.set_rbac(&only_metrics("scraper"));
    let folder = Folder::new("serve-kubelet");
    let flags = flags(&double, &folder);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let _agent = Board::start(&flags);
    let client =
        |authority: &Authority| authority.client("admin", &["system:masters"], Validity::VALID);
    let site = Site {
        served: Served::start(&flags),
        master: client(double.authority()),
        stranger: client(&Authority::new("other")),
    };
    eventually("a heartbeat", SOON, || {
        let health = site.served.ask(Some(&site.master), "/healthz", &[]);
        (health.code == 200).then_some(())
    });

    let (mut failures, mut excused) = (Vec::new(), BTreeSet::new());
    let mut intended: BTreeMap<_, _> =
        INTENDED.iter().map(|(name, parts, _)| (*name, *parts)).collect();
    let requests = record["requests"].as_array().unwrap();
    for wanted in requests {
        let (name, reply) = (name(wanted), site.ask(wanted));
        let differences = differences(wanted, &reply, &record["shapes"], &mut excused);
        if differences != intended.remove(name.as_str()).unwrap_or_default() {
            failures.push(format!("{name}: {differences:?}\n  {wanted}\n  {reply:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(intended.is_empty(), "never asked: {:?}", intended.keys());
    assert_eq!(requests.len(), 78);
    let reasons = MORE.iter().chain(&LEFT_OUT).map(|(prefix, _)| *prefix);
    let stale: Vec<&str> = reasons.filter(|reason| !excused.contains(reason)).collect();
    assert!(stale.is_empty(), "no longer a difference: {stale:?}");

    let mut plain = TcpStream::connect(("127.0.0.1", site.served.port)).unwrap();
    plain.set_read_timeout(Some(SOON)).unwrap();
    let exchange = &record["without TLS"];
    plain.write_all(exchange["request"].as_str().unwrap().as_bytes()).unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, exchange["answer"]);

    // A kubelet ignores the protocols that a client offers, and speaks HTTP/1.1. Here that one is
    // selected, and a client without it learns at once that there is no other.
    for offer in record["alpn"].as_array().unwrap() {
        assert_eq!(offer["selected"], Value::Null);
        let offered = offer["offered"].as_array().unwrap().iter();
        let offered: Vec<&str> = offered.map(|name| name.as_str().unwrap()).collect();
        let mut config = Client::config(None);
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let mut client = Client::with(site.served.port, config);
        let is_refused = client.shake_hands().is_err();
        let selected = client.0.get_ref().conn.alpn_protocol();
        let wanted = offered.contains(&"http/1.1").then_some(&b"http/1.1"[..]);
        assert_eq!((selected, is_refused), (wanted, wanted.is_none()), "{offer}");
    }
}
