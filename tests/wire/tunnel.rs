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
fn nothing_is_sent_where_the_proxy_or_the_server_behind_it_fails() {
    let (ca, other) = (Authority::new(), Authority::new());
    let server = Server::start(Some(ca.usual()), ok);
    let proxy = Proxy::start("Basic bWU6aHVudGVyMg==");
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let gone = gone.unwrap().port();
    let port = proxy.port;
    let here = "127.0.0.1";
    for (user, host, port, trusted, want) in [
        ("me:wrong@", here, port, &ca, "PROXY: 407: it does not accept the user and password"),
        ("me:hunter2@", here, gone, &ca, "PROXY: connection refused"),
        ("", "does-not-exist.invalid", port, &ca, "PROXY: name lookup failed"),
        ("me:hunter2@", here, port, &other, "certificate of localhost is not signed by a trusted"),
    ] {
        let url = format!("http://{user}{host}:{port}");
        let why = fails(&mut by_way_of(&url, &server, trusted), &get());
        let want = want.replace("PROXY", &format!("proxy http://{host}:{port}"));
        assert!(why.starts_with(&format!("https://localhost:{}: {want}", server.port)), "{why}");
        assert!(!why.contains("hunter2") && !why.contains("wrong"), "{why}");
    }
    assert_eq!(server.connections(), 1, "that of the last row");
    assert_eq!(server.heard().len(), 0);
}

#[test]
fn the_budget_ends_a_proxy_that_stalls_before_or_behind_the_tunnel() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let stalls = Proxy::with(|_, board| drop(board.read(&mut [0])));
    let silent = Proxy::with(|_, board| {
        let _ = board.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        let _ = board.read(&mut [0; 4096]);
        thread::sleep(Duration::from_secs(5));
    });
    for (proxy, stage) in [(stalls, "connecting through the proxy"), (silent, "setting up TLS")] {
        let url = format!("http://127.0.0.1:{}", proxy.port);
        let mut api = by_way_of(&url, &server, &ca);
        for _ in 0..2 {
            assert!(times_out(&mut api, &get()).starts_with(stage));
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
