//! The recordings of a real kube-apiserver, step by step, against the double: status code,
//! reason, message, details and what is stored must be the same.

mod common;

use apidouble::{Double, Validity};
use common::{Answer, Client, normalise, recording};
use serde_json::Value;
use std::collections::HashMap;

/// The files in the order in which they were recorded: all against one cluster.
const ORDER: [&str; 7] =
    ["registration", "status", "lease", "events", "deletion", "identity", "tls-bootstrap"];

const TOKEN: &str = "07401b.0123456789abcdef";

/// The ServiceAccount of the recordings, and what takes the place of its token.
const ACCOUNT: &str = "system:serviceaccount:default:board";
const ACCOUNT_TOKEN: &str = "account-token";

/// Where the recorder changed the object that it had read before it wrote it down: the same
/// resourceVersion, and another renewTime.
const CHANGED: (&str, &str) = ("lease", "get-lease");

/// Bodies of another length, because a certificate or the names of a build are part of them.
const OTHER_LENGTHS: [(&str, &str); 2] =
    [("identity", "version"), ("tls-bootstrap", "get-issued-csr")];

/// What nodelet does not do, and the double does not know: refusals to administrators, pods with
/// resources and the lists of them, mirror pods.
const LEFT_OUT: [&str; 20] = [
    "create-pod-with-more",
    "create-pod-with-limits-alone",
    "patch-the-containers-of-a-pod",
    "delete-pod-with-limits-alone",
    "create-pod-with-no-containers",
    "create-pod-with-no-image",
    "create-pod-with-no-container-name",
    "create-pod-with-two-equal-containers",
    "list-pods-by-the-old-name-of-the-field",
    "list-pods-by-name",
    "create-mirror-pod-of-another-node",
    "create-mirror-pod-without-owner",
    "create-mirror-pod-with-two-owners",
    "create-mirror-pod-of-another-owner",
    "create-mirror-pod-of-no-controller",
    "create-mirror-pod-that-blocks",
    "create-mirror-pod",
    "delete-mirror-pod",
    "list-two-pods-as-administrator",
    "add-finalizer-to-terminating-pod",
];

/// The same of all files.
fn is_left_out(step: &str, request: &Value) -> bool {
    let path = request["path"].as_str().unwrap_or_default();
    let is_unknown = ["watch=", "continue="].iter().any(|part| path.contains(part))
        || path.starts_with("/apis/apps/");
    request["method"] == "PUT" || is_unknown || LEFT_OUT.contains(&step)
}

struct Replay {
    double: Double,
    clients: HashMap<String, Client>,
    /// What the real server made up, and what the double made up instead.
    names: HashMap<String, String>,
    versions: Vec<(u64, u64)>,
    failures: Vec<String>,
    compared: usize,
    /// Steps whose heads were compared, too.
    sized: usize,
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// A protobuf body as text, with the recorded uids, and without resourceVersions and times.
fn masked(body: &[u8], names: &HashMap<String, String>) -> String {
    // A time of this decade is 0x08 and five bytes, the last of which is 0x06.
    let mut body = body.to_vec();
    for at in 5..body.len() {
        if body[at - 5] == 8 && body[at] == 6 && body[at - 1] >= 0x80 {
            body[at - 4..at].fill(b't');
        }
    }
    let mut text: String = body.iter().map(|byte| char::from(*byte)).collect();
    for (theirs, ours) in names {
        text = text.replace(ours, theirs);
    }
    // metadata.resourceVersion: field 6, of three digits.
    if let Some(at) = text.find("2\u{3}2") {
        text.replace_range(at + 2..at + 5, "vvv");
    }
    text
}

impl Replay {
    /// Controllers of the recorded cluster that acted before this step.
    fn controllers(&self, file: &str, step: &str) {
        match (file, step) {
            ("registration", "get-node") => self.double.tick_ttl(),
            ("status", "get") => {
                self.double.tick_ttl();
                self.double.tick_lifecycle();
            }
            ("status", "merge-patch-status-deletes-a-capacity-key") => self.double.tick_lifecycle(),
            ("deletion", "renew-lease-after-node-is-gone") => self.double.tick_garbage(),
            ("tls-bootstrap", "get-issued-csr" | "get-csr-that-stays-pending-or-fails") => {
                self.double.tick_certificates()
            }
            _ => {}
        }
    }

    fn client(&mut self, who: &str) -> &mut Client {
        let double = &self.double;
        self.clients.entry(who.to_owned()).or_insert_with(|| {
            if let Some(rest) = who.strip_prefix("system:node:") {
                Client::node(double, rest.split(' ').next().unwrap_or(""))
            } else if who.starts_with("cluster administrator") {
                Client::admin(double)
            } else if who.starts_with(ACCOUNT) {
                Client::new(double, None, Some(ACCOUNT_TOKEN))
            } else if who == "jane, client certificate" {
                let identity = double.authority().client("jane", &[], Validity::VALID);
                Client::new(double, Some(&identity), None)
            } else if who == "bad token" {
                Client::new(double, None, Some("no-such-token"))
            } else if who == "bearer token" {
                Client::new(double, None, Some(TOKEN))
            } else {
                assert_eq!(who, "no credentials");
                Client::anonymous(double)
            }
        })
    }

    /// A recorded request in the names of this run.
    fn translate(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (theirs, ours) in &self.names {
            text = text.replace(theirs, ours);
        }
        text
    }

    fn body(&self, request: &Value) -> String {
        if let Some(raw) = request["raw_body"].as_str() {
            return raw.to_owned();
        }
        let mut body = request["body"].clone();
        if body.is_null() {
            return String::new();
        }
        if let Some(version) = body["metadata"]["resourceVersion"].as_str() {
            let theirs: u64 = version.parse().expect("a number");
            let known = self.versions.iter().find(|(t, _)| *t == theirs);
            let (_, ours) =
                known.unwrap_or_else(|| panic!("resourceVersion {theirs} was never answered"));
            body["metadata"]["resourceVersion"] = Value::from(ours.to_string());
        }
        self.translate(&body.to_string())
    }

    /// Learns the made-up words of both sides, and that resourceVersions grow alike.
    fn learn(&mut self, at: &str, theirs: &Value, ours: &Value) {
        for field in ["uid", "name", "continue"] {
            let pair = (theirs["metadata"][field].as_str(), ours["metadata"][field].as_str());
            if let (Some(t), Some(o)) = pair
                && t != o
            {
                self.names.insert(t.to_owned(), o.to_owned());
            }
        }
        let version = |v: &Value| {
            v["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok())
        };
        if let (Some(t), Some(o)) = (version(theirs), version(ours)) {
            for (t2, o2) in &self.versions {
                if t.cmp(t2) != o.cmp(o2) {
                    self.failures.push(format!(
                        "{at}: resourceVersion {t} after {t2} recorded, {o} after {o2} here"
                    ));
                    break;
                }
            }
            self.versions.push((t, o));
        }
    }

    fn step(&mut self, file: &str, step: &Value) {
        let name = step["step"].as_str().expect("a step has a name");
        let at = format!("{file}: {name}");
        self.controllers(file, name);
        let request = &step["request"];
        if is_left_out(name, request) {
            return;
        }
        let mut who = step["as"].as_str().expect("who").to_owned();
        if name == "invalid-bearer-token" {
            who = "bad token".to_owned();
        }
        let path = self.translate(request["path"].as_str().expect("a path"));
        let body = self.body(request);
        let header = |name: &str| request["headers"][name].as_str().unwrap_or("").to_owned();
        let (accept, content_type) = (header("Accept"), header("Content-Type"));
        let method = request["method"].as_str().expect("a method").to_owned();
        let client = self.client(&who);
        if let Some(agent) = request["headers"]["User-Agent"].as_str() {
            client.agent = agent.to_owned();
        }
        let answer = client.send(&method, &path, &accept, &content_type, &body);
        let wanted = &step["response"];
        let (mut ours, mut theirs) = (answer.json(), wanted["body"].clone());
        if let Some(hex) = theirs["hex"].as_str() {
            ours = Value::from(masked(&answer.bytes, &self.names));
            theirs = Value::from(masked(&bytes(hex), &HashMap::new()));
        }
        self.learn(&at, &theirs, &ours);
        if !OTHER_LENGTHS.contains(&(file, name)) {
            self.sizes(&at, wanted, &answer);
        }
        if CHANGED == (file, name) {
            for side in [&mut ours, &mut theirs] {
                side["spec"]["renewTime"] = Value::Null;
            }
        }
        self.compared += 1;
        let same_code = Some(i64::from(answer.code)) == wanted["status"].as_i64();
        let media = wanted["headers"]["Content-Type"].as_str();
        // generated names differ; everything else of both sides is compared
        let (have, want) = (self.generated(&normalise(&ours)), self.generated(&normalise(&theirs)));
        if !same_code || have != want || answer.header("content-type") != media {
            let code = &wanted["status"];
            self.failures
                .push(format!("{at}\n  wanted {code} {want}\n  got    {} {have}", answer.code));
        }
    }

    /// Compares the length of the body, and the names and lengths of the headers where all of them
    /// were recorded.
    fn sizes(&mut self, at: &str, wanted: &Value, answer: &Answer) {
        let mut ours = vec![answer.bytes.len()];
        let recorded = |name: &str| usize::try_from(wanted[name].as_u64()?).ok();
        let mut theirs = vec![recorded("body_bytes").expect("a length")];
        let mut names: Vec<&String> =
            wanted["headers"].as_object().expect("headers").keys().collect();
        if let Some(head) = recorded("header_bytes") {
            // The recorder counts each status line as `HTTP/1.1 200 OK`.
            let lines = answer.headers.iter();
            ours.push(19 + lines.map(|(n, v)| n.len() + v.len() + 4).sum::<usize>());
            theirs.push(head);
            names.retain(|name| answer.header(name).is_none());
            self.sized += 1;
        } else {
            names.clear();
        }
        if ours != theirs || !names.is_empty() {
            self.failures.push(format!(
                "{at}: bytes of body and head: wanted {theirs:?}, got {ours:?} without {names:?}"
            ));
        }
    }

    fn generated(&self, value: &Value) -> Value {
        let mut text = value.to_string();
        for (theirs, ours) in &self.names {
            text = text.replace(theirs, "<generated>").replace(ours, "<generated>");
        }
        serde_json::from_str(&text).expect("still JSON")
    }
}

fn replay(double: Double, files: &[&str]) -> Replay {
    let mut replay = Replay {
        double,
        clients: HashMap::new(),
        names: HashMap::new(),
        versions: Vec::new(),
        failures: Vec::new(),
        compared: 0,
        sized: 0,
    };
    for file in files {
        for step in recording(file)["steps"].as_array().expect("steps") {
            replay.step(file, step);
        }
    }
    assert!(
        replay.failures.is_empty(),
        "{} of {}:\n{}",
        replay.failures.len(),
        replay.compared,
        replay.failures.join("\n")
    );
    replay.double.assert_members_are_known();
    replay
}

#[test]
fn recorded_steps_have_the_recorded_outcome() {
    let double = Double::builder().bootstrap_token(TOKEN).start();
    let replay = replay(double, &ORDER);
    assert_eq!(replay.compared, 73, "all steps of all files");
}

/// What a write owns, what clears managedFields, and the size of each head and body.
#[test]
fn recorded_answers_have_the_recorded_sizes() {
    let replay = replay(Double::start(), &["managed-fields"]);
    assert_eq!((replay.compared, replay.sized), (16, 16), "all steps");
}

/// What a node may do to pods, and what their administrator gets.
#[test]
fn recorded_requests_to_pods_have_the_recorded_outcome() {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:default"];
    let double = Double::builder().token(ACCOUNT_TOKEN, ACCOUNT, &groups);
    let replay = replay(double.start(), &["pods"]);
    assert_eq!((replay.compared, replay.sized), (96, 96), "all steps");
}
