//! The recordings of `kubeadm join` against the double, step by step: status code, reason and
//! message of a refusal, decision and reason of a review, data and signatures of cluster-info,
//! conditions of a CSR.

mod common;

use apidouble::{BootstrapToken, Builder, Double};
use common::{Client, recording};
use serde_json::{Value, json};
use std::collections::HashMap;

/// Steps that the double does not answer, and why.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("kubelet-config", "nodelet does not read it"),
    ("metadata-alone", "nodelet asks for the whole ConfigMap"),
    ("plain-http-to-the-port", "the double speaks TLS alone"),
    (
        "bearer-just-after-it-expired-is-still-in-the-servers-cache-of-10-s",
        "the double has no cache of tokens",
    ),
];

struct Replay {
    double: Double,
    clients: HashMap<String, Client>,
    /// The last `as` that was not "the same".
    who: String,
    /// Recorded names of CSRs, and those of the double.
    names: HashMap<String, String>,
    compared: usize,
}

/// What the two servers must have in common.
fn essence(code: u16, body: &Value) -> Value {
    match body["kind"].as_str() {
        Some("Status") => {
            let about = (&body["details"]["name"], &body["details"]["kind"]);
            json!([code, body["reason"], body["message"], about, body["code"]])
        }
        Some("SelfSubjectAccessReview") => json!([code, body["status"]]),
        Some("ConfigMap") => json!([code, body["data"]]),
        Some("CertificateSigningRequest") => {
            let conditions = body["status"]["conditions"].as_array();
            let types: Vec<&Value> = conditions.into_iter().flatten().map(|c| &c["type"]).collect();
            let user = &body["spec"]["username"];
            let has_certificate = body["status"]["certificate"].is_string();
            json!([code, types, user, body["spec"]["groups"], has_certificate])
        }
        Some("Node") => json!([code, body["metadata"]["name"]]),
        _ => json!([code, body["kind"]]),
    }
}

impl Replay {
    /// A cluster with these tokens.
    fn new(builder: Builder, tokens: &[&str]) -> Self {
        let double = builder.start();
        for token in tokens {
            double.add_bootstrap_token(BootstrapToken::new(token));
        }
        Self {
            double,
            clients: HashMap::new(),
            who: String::new(),
            names: HashMap::new(),
            compared: 0,
        }
    }

    /// Replays a recording. `before` is what an administrator did before a step. Returns how many
    /// steps were compared.
    fn run(mut self, name: &str, tokens: &[&str], before: impl Fn(&Double, &str)) -> usize {
        for step in recording(name)["steps"].as_array().unwrap() {
            before(&self.double, step["step"].as_str().unwrap());
            self.step(step, tokens);
        }
        self.compared
    }

    fn client(&mut self, who: &str, token: Option<&str>) -> &mut Client {
        let double = &self.double;
        self.clients.entry(who.to_owned()).or_insert_with(|| {
            match who.strip_prefix("system:node:") {
                Some(name) => Client::node(double, name.split([' ', ',']).next().unwrap()),
                None if who == "no credentials" => Client::anonymous(double),
                None => Client::new(double, None, token),
            }
        })
    }

    /// Sends the request of a step, and compares.
    fn step(&mut self, step: &Value, tokens: &[&str]) {
        let name = step["step"].as_str().unwrap();
        if let Some((_, why)) = EXCEPTIONS.iter().find(|(step, _)| *step == name) {
            println!("{name} is not compared: {why}");
            return;
        }
        let wanted = &step["response"];
        let mut who = step["as"].as_str().unwrap().to_owned();
        if who == "the same" {
            who = self.who.clone();
        }
        self.who.clone_from(&who);
        // A token by its text, or by its id.
        let token = who.split([' ', ',']).find_map(|word| {
            let is_whole = word.len() == 23 && word.contains('.');
            let known = tokens.iter().find(|token| token.split('.').next() == Some(word));
            is_whole.then_some(word).or(known.copied())
        });
        let token = token.map(str::to_owned);
        let request = &step["request"];
        let text = |value: &Value| {
            let mut text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            for (theirs, ours) in &self.names {
                text = text.replace(theirs, ours);
            }
            text
        };
        let (path, method) = (text(&request["path"]), text(&request["method"]));
        let (body, content_type) = if request["body"].is_null() {
            (String::new(), "")
        } else {
            (text(&request["body"]), "application/json")
        };
        if path.contains("/certificatesigningrequests/") {
            self.double.tick_certificates();
        }
        if let Some(kubeconfig) = wanted["body"]["data"]["kubeconfig"].as_str() {
            self.double.set_cluster_info(Some(kubeconfig));
        }
        let answer = self.client(&who, token.as_deref()).send(
            &method,
            &path,
            "application/json",
            content_type,
            &body,
        );
        let ours = answer.json();
        let theirs = &wanted["body"];
        if let (Some(t), Some(o)) =
            (theirs["metadata"]["name"].as_str(), ours["metadata"]["name"].as_str())
            && t != o
        {
            self.names.insert(t.to_owned(), o.to_owned());
        }
        let code = u16::try_from(wanted["status"].as_u64().unwrap()).unwrap();
        assert_eq!(essence(answer.code, &ours), essence(code, theirs), "{name}: {ours}");
        self.compared += 1;
    }
}

const KUBEADM: &str = "lwxivu.2uczm8x4xi2v7hqd";
const OTHER: &str = "abcdef.0123456789abcdef";

#[test]
fn a_join_of_kubeadm_has_the_recorded_outcome() {
    let tokens = [KUBEADM, OTHER];
    let replay = Replay::new(Double::builder().kubeadm(), &tokens);
    let compared = replay.run("join-kubeadm", &tokens, |double, step| {
        if step == "a-node-may-delete-its-lease" {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "pi-3", "namespace": "kube-node-lease"}, "spec": {}});
            let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            assert_eq!(double.as_admin("POST", path, "application/json", &lease).0, 201);
        }
    });
    assert_eq!(compared, 20);
}

#[test]
fn each_trouble_with_a_token_has_the_recorded_outcome() {
    let replay = Replay::new(Double::builder().kubeadm(), &[KUBEADM, OTHER]);
    let compared = replay.run("join-token-trouble", &[], |double, step| {
        let add = |token| double.add_bootstrap_token(token);
        match step {
            "usage-signing-alone-is-signed-and-usage-authentication-alone-is-not" => {
                add(BootstrapToken::new("signon.1111111111111111").usages(true, false));
                add(BootstrapToken::new("authon.2222222222222222").usages(false, true));
            }
            "bearer-without-kubeadms-group" => {
                let token = BootstrapToken::new("nogrup.3333333333333333");
                add(token.groups(&["system:bootstrappers:edge"]));
            }
            "before-it-expires" => add(BootstrapToken::new("expire.4444444444444444")),
            "after-it-expired" => double.remove_bootstrap_token("expire"),
            _ => {}
        }
    });
    assert_eq!(compared, 13);
}

#[test]
fn a_cluster_without_kubeadm_has_the_recorded_outcome() {
    let token = "edge01.0123456789abcdef";
    let replay = Replay::new(Double::builder().without_kubeadm(), &[]);
    replay.double.add_bootstrap_token(BootstrapToken::new(token).groups(&[]));
    let compared = replay.run("join-without-kubeadm", &[token], |double, step| match step {
        "may-ask-after-the-first-command" => double.bind(1),
        "will-be-approved-by-itself" => double.bind(2),
        "renewals-will-be-approved-by-themselves" => double.bind(3),
        _ => {}
    });
    assert_eq!(compared, 10);
}

#[test]
fn no_cluster_info_and_no_anonymous_requests_have_the_recorded_outcome() {
    let tokens = [OTHER, "07401b.0123456789abcdef"];
    let start = |builder| {
        let replay = Replay::new(builder, &tokens);
        replay.double.set_cluster_info(None);
        replay
    };
    let mut closed = start(Double::builder().without_kubeadm());
    let mut open = start(Double::builder().kubeadm());
    for step in recording("join-no-cluster-info")["steps"].as_array().unwrap() {
        match step["step"].as_str().unwrap() {
            "cluster-info-absent-and-not-readable" => closed.step(step, &tokens),
            "cluster-info-without-the-key-kubeconfig" => {
                open.double.set_cluster_info(Some("text"));
                open.double.remove_bootstrap_token("abcdef");
                open.double.remove_bootstrap_token("07401b");
                let mut data = step["response"]["body"]["data"].clone();
                data["kubeconfig"] = Value::Null;
                open.double.forge_cluster_info(&[data]);
                open.step(step, &tokens);
            }
            _ => open.step(step, &tokens),
        }
    }
    assert_eq!((closed.compared, open.compared), (1, 3));
    let replay = start(Double::builder().kubeadm());
    replay.double.refuse_anonymous();
    assert_eq!(replay.run("join-anonymous-auth-off", &tokens, |_, _| ()), 5);
}
