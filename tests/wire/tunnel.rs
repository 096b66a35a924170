//! Connections through a proxy.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::Duration;

use nodelet::client::dns::Resolver;
use support::Folder;

use super::server::*;
use super::*;
use crate::common::front::{Mode, fronts};
use crate::common::proxy::Proxy;

/// A client of `server` through the proxy at `url`.
fn by_way_of(url: &str, server: &Server, ca: &Authority) -> Api {
    let mut kubeconfig = kubeconfig(&format!("https://localhost:{}", server.port), &ca.pem, "");
    kubeconfig.proxy = Some(nodelet::client::api_config::Proxy::parse(url).unwrap());
    Api::new(&kubeconfig).unwrap()
}

#[test]
fn errors_of_a_proxy_name_the_proxy_without_its_password() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let proxy = Proxy::start("Basic bWU6aHVudGVyMg==");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let gone = gone.unwrap().port();
    let port = proxy.port;
    for (user, port, want) in [
        ("me:wrong@", port, "407: it does not accept the user and password of proxy-url"),
        ("me:hunter2@", gone, "connection refused"),
    ] {
        let url = format!("http://{user}127.0.0.1:{port}");
        let why = fails(&mut by_way_of(&url, &server, &ca), &get());
        let server = server.port;
        let want = format!("https://localhost:{server}: proxy http://127.0.0.1:{port}: {want}");
        assert_eq!(why, want);
    }
    let url = format!("http://does-not-exist.invalid:{port}");
    let why = fails(&mut by_way_of(&url, &server, &ca), &get());
    assert!(
        why.contains(": proxy http://does-not-exist.invalid:") && why.contains("name lookup"),
        "{why}"
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn the_certificate_of_a_server_behind_a_proxy_is_verified() {
    let (ca, other) = (Authority::new(), Authority::new());
    let server = Server::start(Some(ca.usual()), ok);
    let proxy = Proxy::start("");
    let url = format!("http://127.0.0.1:{}", proxy.port);
    let why = fails(&mut by_way_of(&url, &server, &other), &get());
    assert!(why.contains("is not signed by a trusted CA"), "{why}");
    assert_eq!(server.heard().len(), 0);
}

#[test]
fn the_budget_ends_a_proxy_that_stalls_or_trickles() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let stalls = Proxy::with(|_, board| drop(board.read(&mut [0])));
    let trickles = Proxy::with(|_, board| {
        for _ in 0..1000 {
            if board.write_all(b"x").is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    });
    let silent = Proxy::with(|_, board| {
        let _ = board.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = board.read(&mut [0; 4096]);
        thread::sleep(Duration::from_secs(5));
    });
    for (proxy, stage) in [
        (&stalls, "connecting through the proxy"),
        (&trickles, "connecting through the proxy"),
        (&silent, "setting up TLS"),
    ] {
        let url = format!("http://127.0.0.1:{}", proxy.port);
        let mut api = by_way_of(&url, &server, &ca);
        for _ in 0..2 {
            let stopped = times_out(&mut api, &get());
            assert_eq!(stopped, stage);
        }
    }
}

/// From the first connection on, and back again when the second proxy fails.
#[test]
fn a_sick_proxy_is_left_for_the_next_address_of_its_name() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let busy = Proxy::with(|_, board| drop(board.write_all(b"HTTP/1.1 503 Busy\r\n\r\n")));
    let silent = Proxy::with(|_, board| drop(board.read(&mut [0])));
    let well = Proxy::start("");
    let addresses = ["127.0.0.2", "::1", "127.0.0.3"].map(|ip| ip.parse::<IpAddr>().unwrap());
    for sick in [busy.port, silent.port] {
        let (port, fronts) = fronts(&addresses, Mode::LeadsTo(sick));
        fronts[1].set_mode(Mode::LeadsTo(well.port));
        let folder = Folder::new("proxies");
        let lines = addresses.iter().map(|ip| format!("{ip} proxy.test\n"));
        let hosts = folder.write("hosts", lines.collect::<String>());
        let mut config = kubeconfig(&format!("https://localhost:{}", server.port), &ca.pem, "");
        let proxy = nodelet::client::api_config::Proxy::parse(&format!("http://proxy.test:{port}"));
        config.proxy = Some(proxy.unwrap());
        config.resolver = Some(Resolver::read(Path::new("/nonexistent"), hosts));
        let mut api = Api::new(&config).unwrap();
        answered(api.call(&get(), BUDGET * 4));
        fronts[1].set_mode(Mode::LeadsTo(sick));
        fronts[0].set_mode(Mode::LeadsTo(well.port));
        answered(api.call(&get(), BUDGET * 4));
    }
}
