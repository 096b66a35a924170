//! A client starts no thread, not even for name lookups.

use super::server::*;
use super::*;
use crate::common::process::{peak_kib, threads};

#[test]
#[ignore = "the child process of no_thread_is_ever_started"]
fn one_thread_child() {
    let port = std::env::var("NODELET_WIRE_PORT").unwrap();
    let ca = std::env::var("NODELET_WIRE_CA").unwrap();
    let kubeconfig = kubeconfig(&format!("https://localhost:{port}"), &ca, "");
    let mut api = Api::new(&kubeconfig, "x").unwrap();
    let before = (threads(), peak_kib());
    for _ in 0..20 {
        api.disconnect();
        answered(api.call(&get(), BUDGET * 5));
        answered(api.call(&patch("{}"), BUDGET * 5));
        silent(
            Api::new(&kubeconfig, "x")
                .unwrap()
                .call(&Request { path: "/close".into(), ..get() }, BUDGET * 5),
        );
    }
    let after = (threads(), peak_kib());
    assert_eq!(after.0, before.0);
    // A thread that has ended leaves its stack of 2 MiB in the peak.
    assert!(after.1 < before.1 + 1024, "{before:?} {after:?}");
    // Two: the main thread of the harness, and the thread of this test.
    println!("threads: {}", after.0);
}

#[test]
fn no_thread_is_ever_started() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), |heard, stream| {
        !heard.head.contains("/close") && ok(heard, stream)
    });
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "threads::one_thread_child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("NODELET_WIRE_PORT", server.port.to_string())
        .env("NODELET_WIRE_CA", &ca.pem)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("threads: 2"), "{said}");
    assert_eq!(server.heard().len(), 60);
}
