//! Who gets an answer: against the reviews of the double or of a real API server.

use std::time::{Duration, Instant};

use apidouble::Double;
use serde_json::{Value, json};

use super::{Client, SOON, Served, flags};
use crate::clocks::{SINCE_NOW, clock_of, in_1970, since_the_build};
use crate::common::cluster::Cluster;
use support::{Folder, eventually};

const GRACE: Duration = Duration::from_secs(50);

/// Creates an object on a real server, which makes its namespaces after its first answer.
fn create(cluster: &Cluster, path: &str, object: &Value) -> Value {
    eventually(path, SOON, || match cluster.post(path, object) {
        (201, answer) => Some(answer),
        (_, answer) => {
            println!("{path}: {answer}");
            None
        }
    })
}

/// What lets a ServiceAccount read the metrics of Nodes and nothing else.
pub(super) fn only_metrics(account: &str) -> [Value; 2] {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": account},
        "rules": [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}]});
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": "default"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": account}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": account}});
    [role, binding]
}

/// A token of a ServiceAccount that may read the metrics of Nodes and nothing else, and its name.
fn scraper(cluster: &Cluster, account: &str) -> (String, String) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let [role, binding] = only_metrics(account);
    let user = format!("system:serviceaccount:default:{account}");
    if let Some(double) = cluster.double() {
        double.set_rbac(&[role, binding]);
        double.add_token("t0ken", &user, &["system:serviceaccounts"]);
        return ("t0ken".to_owned(), user);
    }
    create(cluster, &format!("{RBAC}/clusterroles"), &role);
    create(cluster, &format!("{RBAC}/clusterrolebindings"), &binding);
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(cluster, accounts, &json!({"metadata": {"name": account}}));
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let answer = create(cluster, &format!("{accounts}/{account}/token"), &request);
    (answer["status"]["token"].as_str().unwrap().to_owned(), user)
}

#[test]
fn a_token_is_reviewed_and_its_user_may_what_the_cluster_allows() {
    let cluster = Cluster::start(GRACE);
    let name = cluster.node_name("served");
    let (token, user) = scraper(&cluster, &name);
    let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig(&name));
    let served = Served::start(&[kubeconfig, format!("--hostname-override={name}")]);
    // A cold start: the first token is a good one.
    let reply = served.ask_with(&token, "/metrics/resource");
    assert_eq!(reply.code, 200, "{reply:?} {:?}", served.board.log());
    let reply = served.ask_with(&token, "/healthz");
    let text = format!("user {user:?} needs the verb \"get\" on nodes/healthz or nodes/proxy\n");
    assert_eq!((reply.code, reply.body), (403, text));
    let reply = served.ask_with("not-a-token", "/metrics/resource");
    assert_eq!((reply.code, reply.body.as_str()), (401, "401 Unauthorized\n"));
    assert_eq!(served.ask_with(&token, "/metrics").code, 200);
    if let Some(double) = cluster.double() {
        double.assert_members_are_known();
    }
    assert!(served.board.log().iter().all(|line| !line.contains(&token)));
}

/// With a clock of 1970 the server and its clients are verified at the time of the build, and
/// clients at the time of the server once a review has told it.
#[test]
fn a_board_of_1970_knows_tokens_and_certificates() {
    let double = Double::builder().token("t0ken", "admin", &["system:masters"]).start();
    double.swap_validity(since_the_build(), None);
    let folder = Folder::new("serve-1970");
    let offset = folder.write("offset", in_1970().to_string());
    let served = Served::start_with(&flags(&double, &folder), &clock_of(&offset));
    for (validity, code) in [(SINCE_NOW, 401), (since_the_build(), 200), (SINCE_NOW, 200)] {
        let client = double.authority().client("admin", &["system:masters"], validity);
        let reply = served.ask(Some(&client), "/metrics", &[]);
        assert_eq!(reply.code, code, "{validity:?} {reply:?} {:?}", served.board.log());
    }
    let reply = served.ask_with("t0ken", "/metrics");
    assert_eq!(reply.code, 200, "{reply:?} {:?}", served.board.log());
}

/// Prometheus drops a value of the past or the future.
#[test]
fn a_value_has_no_time_while_the_clock_is_not_that_of_the_server() {
    let double = Double::builder().token("t0ken", "admin", &["system:masters"]).start();
    let folder = Folder::new("serve-skew");
    for (ahead, is_timed) in [(0, true), (1200, false)] {
        let offset = folder.write("offset", ahead.to_string());
        let served = Served::start_with(&flags(&double, &folder), &clock_of(&offset));
        let reply = served.ask_with("t0ken", "/metrics/resource");
        let value = reply.body.lines().find(|line| line.starts_with("node_memory_")).unwrap();
        assert_eq!(value.split(' ').count() == 3, is_timed, "{value}");
        let reply = served.ask_with("t0ken", "/stats/summary");
        assert_eq!(reply.body.contains("\"time\":null"), !is_timed, "{}", reply.body);
    }
}

/// A request with an unknown token waits for 4 s, and one of a known user; what is cached is
/// answered at once.
#[test]
fn an_api_server_that_is_silent_costs_two_waits() {
    let double = Double::builder().token("t0ken", "admin", &["system:masters"]).start();
    let folder = Folder::new("serve-silent");
    let served = Served::start(&flags(&double, &folder));
    let mut client = Client::connect(served.port, None);
    let mut ask = |token: &str, path: &str| {
        let begin = Instant::now();
        let reply = client.ask("GET", path, &[&format!("Authorization: Bearer {token}")]);
        (reply.code, begin.elapsed())
    };
    assert_eq!(ask("t0ken", "/metrics/resource").0, 200);
    double.blackhole();
    for (token, path, want, seconds) in [
        ("t0ken", "/metrics/resource", 200, 0..2),
        ("other", "/metrics/resource", 401, 3..8),
        ("another", "/metrics/resource", 401, 0..2),
        ("t0ken", "/pods", 500, 3..8),
        ("t0ken", "/healthz", 500, 0..2),
    ] {
        let (code, took) = ask(token, path);
        assert!(code == want && seconds.contains(&took.as_secs()), "{path}: {code} {took:?}");
    }
    double.start_listening();
    eventually("an answer of the API server", SOON, || {
        (ask("t0ken", "/pods").0 == 200).then_some(())
    });
}
