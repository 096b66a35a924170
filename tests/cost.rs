//! What a heartbeat costs, in figures that do not depend on the machine's speed. The
//! budgets are `tests/budgets.toml`; time and memory are `cargo bench --bench heartbeat`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod board;
mod cluster;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nodelet::kube::api::Api;
use nodelet::kube::kubeconfig::Kubeconfig;
use nodelet::kube::message::{Accept, Method, Outcome, Request, Response};
use nodelet::kube::time::Wall;
use nodelet::lease::{Lease, Step};
use serde_json::{Value, json};

use cluster::Cluster;

const BUDGET: Duration = Duration::from_secs(10);

fn call(api: &mut Api, request: &Request) -> Response {
    match api.call(request, BUDGET) {
        Outcome::Answered(response) => response,
        Outcome::Silent(why) => panic!("{why}"),
    }
}

fn now() -> Wall {
    Wall::from_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
}

#[test]
fn the_answer_to_a_renewal_is_small() {
    let cluster = Cluster::start(Duration::from_secs(50));
    let name = cluster.node_name("pi");
    let kubeconfig = Kubeconfig::load(cluster.kubeconfig(&name).as_ref(), None).unwrap();
    let mut api = Api::new(&kubeconfig, "nodelet").unwrap();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let node = call(
        &mut api,
        &Request {
            method: Method::Post,
            path: "/api/v1/nodes".to_owned(),
            accept: Accept::Object,
            body: node.to_string().into_bytes(),
        },
    );
    let node: Value = serde_json::from_slice(&node.body).unwrap();
    let uid = node["metadata"]["uid"].as_str().unwrap();

    let mut lease = Lease::new(&name, 40);
    for _ in 0..6 {
        let request = lease.request(uid, now());
        let response = call(&mut api, &request);
        println!(
            "{:?} {} {} {}",
            request.method,
            response.code,
            response.body.len(),
            String::from_utf8_lossy(&response.body).escape_debug()
        );
        println!("{:02x?}", response.body);
        println!("{:?}", lease.fold(uid, Outcome::Answered(response)));
    }
    let response = call(
        &mut api,
        &Request {
            method: Method::Patch,
            path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/other".into(),
            accept: Accept::Receipt,
            body: b"{}".into(),
        },
    );
    println!("{:02x?} {:?}", response.body, response.accepted());
    let response = call(
        &mut api,
        &Request {
            method: Method::Patch,
            path: "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pi".into(),
            accept: Accept::Receipt,
            body: br#"{"spec":{"renewTime":"x"}}"#.into(),
        },
    );
    println!("{:02x?} {:?}", response.body, response.accepted());
}
