//! The API client and its resolver against servers that stall, trickle, send garbage and close.
//!
//! Each test checks two properties: a call ends within its budget, and nothing is sent to a server
//! whose certificate does not verify.
#![cfg(test)]
#![allow(clippy::disallowed_methods, missing_docs, unreachable_pub)]

#[path = "../common/mod.rs"]
mod common;

mod budget;
mod connection;
mod credentials;
mod dns;
mod exchange;
mod server;
mod trust;
mod tunnel;

use std::sync::{Mutex, MutexGuard, Once};
use std::time::{Duration, Instant};

use nodelet::client::api::Api;
use nodelet::kube::message::{Accept, Answer, Method, Request, Response};
use server::{Authority, Heard, Server, Stream, kubeconfig};

const BUDGET: Duration = Duration::from_millis(1000);

fn get() -> Request {
    Request {
        method: Method::Get,
        path: "/api/v1/nodes/pi".into(),
        accept: Accept::Object,
        body: vec![],
    }
}

fn patch(body: impl Into<Vec<u8>>) -> Request {
    Request {
        method: Method::Patch,
        path: "/lease".into(),
        accept: Accept::Metadata,
        body: body.into(),
    }
}

/// A response without `Retry-After` and `Date`.
fn response(code: u16, body: impl Into<Vec<u8>>) -> Response {
    Response { code, retry_after: None, date: None, body: body.into(), exceeds: None }
}

fn api(port: u16, ca: &Authority) -> Api {
    let kubeconfig = kubeconfig(&format!("https://127.0.0.1:{port}"), &ca.pem, "");
    Api::new(&kubeconfig).unwrap()
}

fn plain(port: u16) -> Api {
    Api::new(&kubeconfig(&format!("http://127.0.0.1:{port}"), "", "")).unwrap()
}

const TLS: bool = true;
const PLAIN: bool = false;

/// A server, with TLS or without, and its client.
fn serve(
    secure: bool,
    answer: impl Fn(&Heard, &mut dyn Stream) -> bool + Send + Sync + 'static,
) -> (Server, Api) {
    let ca = Authority::new();
    let server = Server::start(secure.then(|| ca.usual()), answer);
    let api = if secure { api(server.port, &ca) } else { plain(server.port) };
    (server, api)
}

fn answered(outcome: Answer) -> Response {
    outcome.unwrap_or_else(|why| panic!("{why}"))
}

fn silent(outcome: Answer) -> String {
    outcome.unwrap_err().to_string()
}

/// The error of a call that must fail within 1.9 budgets: less than two, and enough for a busy
/// machine.
fn fails(api: &mut Api, request: &Request) -> String {
    let start = Instant::now();
    let why = silent(api.call(request, BUDGET));
    assert!(start.elapsed() < BUDGET * 19 / 10, "{:?}: {why}", start.elapsed());
    assert!(!api.is_connected());
    why
}

/// The stage at which a call ran out of its budget.
fn times_out(api: &mut Api, request: &Request) -> String {
    let start = Instant::now();
    let why = fails(api, request);
    assert!(start.elapsed() > BUDGET * 8 / 10, "{:?}: {why}", start.elapsed());
    let (seconds, stage) = why.split_once(" s while ").expect(&why);
    assert!(seconds.ends_with(": timed out after 1") || seconds.ends_with(" after 2"), "{why}");
    stage.to_owned()
}

/// Log lines of all tests since the first call.
fn logged() -> MutexGuard<'static, Vec<String>> {
    static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    static START: Once = Once::new();
    struct Collect;
    impl log::Log for Collect {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            LOGGED.lock().unwrap().push(record.args().to_string());
        }
        fn flush(&self) {}
    }
    START.call_once(|| {
        log::set_logger(&Collect).unwrap();
        // As in a release build, which has no trace level: ureq-proto writes whole heads there.
        log::set_max_level(log::LevelFilter::Debug);
    });
    LOGGED.lock().unwrap()
}
