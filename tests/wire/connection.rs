//! When a connection is kept, closed and opened again.

use std::io::Read;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use rustls::version::{TLS12, TLS13};

use super::server::*;
use super::*;

#[test]
fn a_connection_is_kept_over_tls_12_and_13() {
    let ca = Authority::new();
    for version in [&TLS12, &TLS13] {
        let leaf = ca.leaf(&["127.0.0.1"]);
        let server = Server::start(Some(ca.config(&leaf, &[version], None)), ok);
        let mut api = api(server.port, &ca);
        assert!(!api.is_connected());
        for _ in 0..5 {
            answered(api.call(&patch(vec![b' '; 20_000]), BUDGET));
            assert!(api.is_connected());
        }
        assert_eq!(server.connections(), 1);
        api.disconnect();
        assert!(!api.is_connected());
        answered(api.call(&get(), BUDGET));
        assert_eq!(server.connections(), 2);
        assert_eq!(server.heard()[4].body.len(), 20_000);
    }
}

fn eventually(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < BUDGET * 5);
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_connection_that_the_server_closed_is_not_used_again() {
    let ca = Authority::new();
    for (tls, polite) in [
        (None, false),
        (Some(ca.usual()), false),
        (Some(ca.usual()), true),
    ] {
        let secure = tls.is_some();
        let server = Server::start(tls, move |heard, stream| {
            ok(heard, stream);
            if polite {
                stream.close_notify();
            }
            false
        });
        let mut api = if secure {
            api(server.port, &ca)
        } else {
            plain(server.port)
        };
        for round in 1..=3 {
            answered(api.call(&patch("{}"), BUDGET));
            eventually(|| !api.is_connected());
            assert_eq!(server.connections(), round);
        }
    }
}

#[test]
fn tls_messages_between_answers_keep_the_connection() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), |heard, stream| {
        ok(heard, stream);
        // Later than the answer, so that the client does not read both at once.
        thread::sleep(Duration::from_millis(50));
        stream.key_update();
        true
    });
    let mut api = api(server.port, &ca);
    for _ in 0..3 {
        answered(api.call(&get(), BUDGET));
        // Longer than the budget of the last call.
        thread::sleep(BUDGET * 11 / 10);
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn connection_close_ends_the_connection() {
    let server = Server::start(None, |_, stream| {
        say(
            stream,
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        )
    });
    let mut api = plain(server.port);
    answered(api.call(&get(), BUDGET));
    assert!(!api.is_connected());
}

/// The agent decides about a second attempt, not the client.
#[test]
fn nothing_is_sent_twice() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), |heard, stream| {
        heard.head.starts_with("GET") && ok(heard, stream)
    });
    let mut api = api(server.port, &ca);
    answered(api.call(&get(), BUDGET));
    let why = fails(&mut api, &patch("{}"));
    assert!(
        why.ends_with("connection closed by the server while waiting for the answer"),
        "{why}"
    );
    assert_eq!((server.heard().len(), server.connections()), (2, 1));
    answered(api.call(&get(), BUDGET));
    assert_eq!(server.connections(), 2);
}

#[test]
fn bytes_without_a_request_end_the_connection() {
    let ca = Authority::new();
    for tls in [None, Some(ca.usual())] {
        let secure = tls.is_some();
        let server = Server::start(tls, |heard, stream| {
            ok(heard, stream);
            thread::sleep(Duration::from_millis(20));
            say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        });
        let mut api = if secure {
            api(server.port, &ca)
        } else {
            plain(server.port)
        };
        for _ in 0..2 {
            assert_eq!(answered(api.call(&get(), BUDGET)).body, b"{}");
            eventually(|| !api.is_connected());
        }
        assert_eq!(server.connections(), 2);
    }
}

#[test]
fn resets_and_refusals_have_their_error() {
    let ca = Authority::new();
    // SO_LINGER 0: the kernel sends RST instead of FIN.
    let server = Server::start(Some(ca.usual()), |heard, stream| {
        if heard.head.starts_with("GET") {
            return ok(heard, stream);
        }
        let reset = nix::libc::linger {
            l_onoff: 1,
            l_linger: 0,
        };
        nix::sys::socket::setsockopt(stream.tcp(), nix::sys::socket::sockopt::Linger, &reset)
            .unwrap();
        false
    });
    let mut client = api(server.port, &ca);
    answered(client.call(&get(), BUDGET));
    let why = fails(&mut client, &patch("{}"));
    assert!(
        why.ends_with(": connection reset by peer while waiting for the answer"),
        "{why}"
    );

    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    assert_eq!(
        fails(&mut api(port, &ca), &get()),
        format!("https://127.0.0.1:{port}: connection refused")
    );

    let plain_server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = plain_server.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut tcp = plain_server.accept().unwrap().0;
        let _ = tcp.read(&mut [0; 512]);
        say(
            &mut tcp,
            "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        );
    });
    let why = fails(&mut api(port, &ca), &get());
    assert!(
        why.ends_with("the server does not speak TLS; is the port right?"),
        "{why}"
    );
}

#[test]
fn a_host_name_is_looked_up() {
    let ca = Authority::new();
    let server = Server::start(Some(ca.usual()), ok);
    let connect = |host: &str| {
        let url = format!("https://{host}:{}", server.port);
        Api::new(&kubeconfig(&url, &ca.pem, ""), "x")
            .unwrap()
            .call(&get(), BUDGET)
    };
    answered(connect("localhost"));
    let why = silent(connect("does-not-exist.invalid"));
    assert!(why.contains(": name lookup failed: "), "{why}");
}
