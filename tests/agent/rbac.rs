//! `systemd/rbac.yaml`: its rules are enough for a run, and each rule is needed.
//!
//! Against the RBAC of the double or of a real API server: see `tests/common/cluster`.

use std::process::Command;
use std::time::Duration;

use apidouble::{Credentials, Double};
use nodelet::kube::yaml;
use serde_json::{Value, json};

use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::cluster::Cluster;
use crate::common::command::nodelet;
use crate::common::lease::await_renewals;
use support::{Folder, eventually, skip};

const ACCOUNT: &str = "system:serviceaccount:kube-system:nodelet";
const SOON: Duration = Duration::from_secs(20);

/// The names of the permissions of a run in `nodelet check`.
const PERMISSIONS: [&str; 8] = [
    "node-create",
    "node-get",
    "node-status-patch",
    "lease-get",
    "lease-create",
    "lease-patch",
    "event-create",
    "event-patch",
];

fn manifest() -> Vec<Value> {
    let text = include_str!("../../systemd/rbac.yaml");
    let documents = text.split("\n---\n").map(|text| yaml::parse(text).unwrap());
    documents.collect()
}

/// Creates an object on a real server; whether it did not exist.
fn apply(cluster: &Cluster, object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap();
    let resource = format!("{}s", kind.to_lowercase());
    let version = match object["apiVersion"].as_str().unwrap() {
        "v1" => "/api/v1".to_owned(),
        version => format!("/apis/{version}"),
    };
    let path = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{version}/namespaces/{namespace}/{resource}"),
        None => format!("{version}/{resource}"),
    };
    // The API server creates its namespaces some time after its first answer.
    eventually(&path, SOON, || match cluster.post(&path, object) {
        (201, _) => Some(true),
        (409, _) => Some(false),
        (code, answer) => {
            println!("{path}: {code} {answer}");
            None
        }
    })
}

/// Adds a token of the account to the double.
fn add_token(double: &Double) -> String {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system"];
    double.add_token("t0ken", ACCOUNT, &groups);
    "t0ken".to_owned()
}

/// A token of the account, which has no role yet; whether the account did not exist.
fn token(cluster: &Cluster) -> (String, bool) {
    if let Some(double) = cluster.double() {
        return (add_token(double), true);
    }
    let objects = manifest();
    assert_eq!(objects[0]["kind"], "ServiceAccount");
    let is_new = apply(cluster, &objects[0]);
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/nodelet/token";
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3600}});
    let (code, answer) = cluster.post(path, &request);
    assert_eq!(code, 201, "{answer}");
    let token = answer["status"]["token"].as_str().unwrap();
    (token.to_owned(), is_new)
}

/// Creates the roles and bindings of the account.
fn grant(cluster: &Cluster) {
    match cluster.double() {
        Some(double) => double.set_rbac(&manifest()),
        None => manifest().iter().skip(1).for_each(|object| {
            apply(cluster, object);
        }),
    }
}

fn kubeconfig(folder: &Folder, server: &str, ca: &str, token: &str) -> String {
    let text = apidouble::kubeconfig(server, ca, &Credentials::Token(token));
    let path = folder.write("kubeconfig", text);
    path.to_str().unwrap().to_owned()
}

/// The names of the failed checks of `nodelet check`.
fn wrong(kubeconfig: &str, name: &str) -> Vec<String> {
    let args = ["check", "--output=json", "--kubeconfig", kubeconfig, "--hostname-override", name];
    let report = nodelet(args).report();
    let names = report.names(|_| true);
    // Without the checks of this machine.
    let server = names.iter().skip_while(|name| **name != "kubeconfig");
    let failed = report.failed();
    server.filter(|name| failed.contains(name)).map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_rules_are_enough_for_a_run() {
    let cluster = Cluster::start(Duration::from_secs(40));
    let folder = Folder::new("rbac");
    let (server, ca) = cluster.server();
    let (token, is_new) = token(&cluster);
    let kubeconfig = kubeconfig(&folder, &server, &ca, &token);
    let name = cluster.node_name("pi-rbac");
    if is_new {
        assert_eq!(wrong(&kubeconfig, &name), PERMISSIONS);
    }
    grant(&cluster);
    // A real API server applies new rules after a moment.
    eventually("the rules", SOON, || wrong(&kubeconfig, &name).is_empty().then_some(()));
    let board = Board::fast(&kubeconfig, &name, &["--event-qps=0"]);
    eventually("Ready", SOON, || cluster.node(&name).filter(is_ready));
    await_renewals(3, SOON, || cluster.renew_time(&name));
    let events =
        format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}");
    eventually("the events", SOON, || {
        let list = cluster.get(&events)?;
        let reasons: Vec<&str> =
            list["items"].as_array()?.iter().filter_map(|event| event["reason"].as_str()).collect();
        reasons.contains(&"Starting").then_some(())
    });
    let log = board.log().join("\n");
    assert!(!log.contains("403 Forbidden") && !log.contains("warning"), "{log}");
    assert_eq!(wrong(&kubeconfig, &name), [] as [&str; 0]);
    // A node certificate has the same permissions.
    let certificate = cluster.kubeconfig("pi-other");
    assert_eq!(wrong(&certificate, "pi-other"), [] as [&str; 0]);
}

/// Without one verb at a time: `nodelet check` names the missing permission.
#[test]
fn each_rule_is_needed_and_a_missing_one_is_reported() {
    let double = Double::start();
    let folder = Folder::new("rules");
    let token = add_token(&double);
    double.set_rbac(&manifest());
    let kubeconfig = kubeconfig(&folder, &double.url(), &double.ca_pem(), &token);
    assert_eq!(wrong(&kubeconfig, "pi"), [] as [&str; 0]);
    let whole = manifest();
    let mut named = Vec::new();
    for (index, object) in whole.iter().enumerate() {
        let rules = object["rules"].as_array().into_iter().flatten();
        for (rule, verbs) in rules.enumerate().map(|(at, rule)| (at, &rule["verbs"])) {
            for verb in verbs.as_array().unwrap() {
                let mut less = whole.clone();
                let verbs = &mut less[index]["rules"][rule]["verbs"];
                verbs.as_array_mut().unwrap().retain(|other| other != verb);
                double.set_rbac(&less);
                let [only] = &wrong(&kubeconfig, "pi")[..] else {
                    panic!("{object} without {verb}: {:?}", wrong(&kubeconfig, "pi"));
                };
                named.push(only.clone());
            }
        }
    }
    named.sort();
    let mut want = PERMISSIONS;
    want.sort();
    assert_eq!(named, want);
    // Without one binding at a time.
    for (index, object) in whole.iter().enumerate() {
        let is_binding = object["kind"].as_str().unwrap().ends_with("Binding");
        let mut less = whole.clone();
        less.remove(index);
        double.set_rbac(&less);
        assert_eq!(is_binding, !object["roleRef"].is_null());
        if is_binding {
            assert!(!wrong(&kubeconfig, "pi").is_empty(), "{object}");
        }
    }
}

/// The commands of systemd/join.md that need no server write a kubeconfig that works.
#[test]
fn the_commands_of_the_readme_write_a_kubeconfig() {
    let readme = include_str!("../../systemd/join.md");
    let (_, section) = readme.split_once("## With a ServiceAccount token").unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    let (commands, _) = block.split_once("```").unwrap();
    let local: Vec<&str> =
        commands.lines().filter(|line| line.starts_with("kubectl config ")).collect();
    assert_eq!(local.len(), 4, "{commands}");
    if !skip::has_optional_tool("kubectl") {
        return;
    }
    let double = Double::start();
    let folder = Folder::new("readme");
    add_token(&double);
    double.set_rbac(&manifest());
    folder.write("ca.crt", double.ca_pem());
    folder.write("token", "t0ken");
    let script = local.join("\n").replace("https://10.0.0.1:6443", &double.url());
    assert!(script.contains(&double.url()), "{script}");
    let script = script.replace("kubeconfig=kubeconfig", "kubeconfig=made");
    let made =
        Command::new("sh").args(["-ec", &script]).current_dir(folder.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let made = folder.path().join("made");
    assert_eq!(wrong(made.to_str().unwrap(), "pi"), [] as [&str; 0]);
}
