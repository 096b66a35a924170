//! A client starts no thread, not even for name lookups.

use nodelet::client::dns::{NodeName, Resolver};

use super::server::*;
use super::*;
use crate::common::process::{peak_kib, threads};
use crate::dns;

#[test]
#[ignore = "the child process of no_thread_is_ever_started"]
fn one_thread_child() {
    let given = |name: &str| std::env::var(name).unwrap();
    let resolver = dns::resolver(&[given("NODELET_DNS_SERVER").parse().unwrap()]);
    let url = format!("https://api.lan:{}", given("NODELET_WIRE_PORT"));
    let mut config = kubeconfig(&url, &given("NODELET_WIRE_CA"), "");
    config.resolver = Some(resolver.clone());
    let once = Resolver { attempts: 1, ..resolver.clone() };
    let mut api = Api::new(&config).unwrap();
    let before = (threads(), peak_kib());
    for _ in 0..20 {
        api.disconnect();
        answered(api.call(&get(), BUDGET * 5));
        answered(api.call(&patch("{}"), BUDGET * 5));
        let close = Request { path: "/close".into(), ..get() };
        silent(Api::new(&config).unwrap().call(&close, BUDGET * 5));
        dns::lookup(&once, "silent.lan", Duration::from_millis(20)).0.unwrap_err();
        let mut name = NodeName::new("api.lan", Some(resolver.clone()));
        assert_eq!(dns::wait(&mut name, Instant::now()).0.len(), 1);
    }
    let after = (threads(), peak_kib());
    assert_eq!(after.0, before.0);
    // A thread that has ended leaves its stack of 2 MiB in the peak.
    assert!(after.1 < before.1 + 1024, "{before:?} {after:?}");
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(open < 10, "{open} descriptors");
    // Two: the main thread of the harness, and the thread of this test.
    println!("threads: {}", after.0);
}

#[test]
fn no_thread_is_ever_started() {
    let ca = Authority::new();
    let tls = ca.config(&ca.leaf(&["api.lan"]), rustls::ALL_VERSIONS, None);
    let server = Server::start(Some(tls), |heard, stream| {
        !heard.head.contains("/close") && ok(heard, stream)
    });
    let names = dns::Server::start(|asked, client| {
        if asked.name != "silent.lan" {
            client.send(&asked.answer(dns::OK, ["127.0.0.1"]));
        }
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
        .env("NODELET_DNS_SERVER", names.address.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    assert!(said.contains("threads: 2"), "{said}");
    assert_eq!(server.heard().len(), 60);
    // Four lookups in each round, of both families.
    assert_eq!(names.heard(), 160);
}
