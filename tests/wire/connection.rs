//! When a connection is kept, closed and opened again.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::Double;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::Linger;
use nodelet::credentials::kubeconfig;
use rustls::ServerConnection;
use rustls::version::{TLS12, TLS13};
use support::eventually;

use super::server::*;
use super::*;

#[test]
fn a_connection_that_was_opened_early_is_kept_for_all_calls() {
    let ca = Authority::new();
    for version in [None, Some(&TLS12), Some(&TLS13)] {
        let tls = version.map(|version| ca.config(&ca.leaf(&["127.0.0.1"]), &[version], None));
        let server = Server::start(tls, ok);
        let mut api = if version.is_some() { api(server.port, &ca) } else { plain(server.port) };
        assert!(!api.is_connected());
        api.connect(BUDGET).unwrap();
        // Longer than the budget, and time enough for the session tickets of TLS 1.3.
        thread::sleep(BUDGET * 11 / 10);
        for _ in 0..5 {
            answered(api.call(&patch(vec![b' '; 20_000]), BUDGET));
            assert!(api.is_connected());
        }
        assert_eq!(server.heard()[4].body.len(), 20_000);
        assert_eq!(server.connections(), 1);
        // One that is not used any more is closed with the others.
        api.disconnect();
        api.connect(BUDGET).unwrap();
        api.disconnect();
        assert!(!api.is_connected());
        answered(api.call(&get(), BUDGET));
        assert_eq!(server.connections(), 3);
    }
}

/// The server has the last message of the handshake, with the client's certificate before it.
#[test]
fn the_whole_handshake_is_early() {
    let ca = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ca.config(&ca.leaf(&["127.0.0.1"]), &[&TLS13], None);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        let mut server = ServerConnection::new(tls).unwrap();
        while server.is_handshaking() {
            server.complete_io(&mut tcp).unwrap();
        }
        done.send(()).unwrap();
        let _ = tcp.read(&mut [0; 512]);
    });
    let mut api = api(port, &ca);
    api.connect(BUDGET).unwrap();
    is_done.recv_timeout(BUDGET * 5).unwrap();
}

#[test]
fn a_connection_that_was_opened_early_and_closed_by_the_server_is_not_used() {
    let double = Double::start();
    let config = kubeconfig::parse(&double.kubeconfig_for_node("pi"), &[]).unwrap();
    let mut api = Api::new(&config).unwrap();
    for round in 1..=3 {
        api.connect(BUDGET).unwrap();
        double.close_connections();
        // The tickets of TLS 1.3 come first, so a look at the socket alone does not tell.
        thread::sleep(BUDGET / 4);
        answered(api.call(&get(), BUDGET));
        assert_eq!(double.requests().len(), round, "the request is sent once");
        assert_eq!(double.connections(), 2 * round as u64);
        api.disconnect();
    }
}

#[test]
fn an_early_connection_that_fails_has_its_error_and_the_call_tries_again() {
    let ca = Authority::new();
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    let start = Instant::now();
    let why = api(port, &ca).connect(BUDGET).unwrap_err().to_string();
    assert!(start.elapsed() < BUDGET * 3 / 2, "{:?}", start.elapsed());
    assert_eq!(why, format!("https://127.0.0.1:{port}: timed out after 1 s while setting up TLS"));
    drop(mute);
    let mut client = api(port, &ca);
    let why = client.connect(BUDGET).unwrap_err().to_string();
    let refused = format!("https://127.0.0.1:{port}: connection refused; a loopback address is");
    assert!(why.starts_with(&refused), "{why}");
    assert_eq!(fails(&mut client, &get()), why);
}

#[test]
fn a_connection_that_the_server_ended_is_not_used_again() {
    type Act = fn(&mut dyn Stream);
    let answer: Act = |stream| {
        say(stream, OK);
    };
    let say_more: Act = |stream| {
        say(stream, OK);
        thread::sleep(Duration::from_millis(20));
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    };
    let close_notify: Act = |stream| {
        say(stream, OK);
        stream.close_notify(b"");
    };
    let last_answer: Act = |stream| {
        say(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}");
    };
    // The kernel holds nothing: the message is read with the answer.
    let in_one_segment: Act = |stream| stream.close_notify(OK.as_bytes());
    // The last two: whether the server leaves TCP open, and whether the client sees the end before
    // its next call.
    for (what, secure, act, stays, is_seen) in [
        ("FIN", PLAIN, answer, false, true),
        ("FIN", TLS, answer, false, true),
        ("close_notify", TLS, close_notify, false, true),
        ("Connection: close", PLAIN, last_answer, true, true),
        ("bytes without a request", PLAIN, say_more, true, true),
        ("bytes without a request", TLS, say_more, true, true),
        ("close_notify with the answer", TLS, in_one_segment, true, false),
    ] {
        let (server, mut api) = serve(secure, move |_, stream| {
            act(stream);
            stays
        });
        for round in 1..=3 {
            assert_eq!(answered(api.call(&patch("{}"), BUDGET)).body, b"{}", "{what}");
            if is_seen {
                eventually(what, BUDGET * 5, || (!api.is_connected()).then_some(()));
            } else {
                assert!(api.is_connected(), "{what}: TCP is");
            }
            assert_eq!(server.connections(), round, "{what}");
        }
    }
}

#[test]
fn tls_messages_between_answers_keep_the_connection() {
    let (server, mut api) = serve(TLS, |heard, stream| {
        ok(heard, stream);
        // Later than the answer, so that the client does not read both at once.
        thread::sleep(Duration::from_millis(50));
        stream.key_update();
        true
    });
    for _ in 0..3 {
        answered(api.call(&get(), BUDGET));
        // Longer than the budget of the last call.
        thread::sleep(BUDGET * 11 / 10);
    }
    assert_eq!(server.connections(), 1);
}

/// The agent decides about a second attempt, not the client.
#[test]
fn nothing_is_sent_twice() {
    for (resets, want) in
        [(false, "connection closed by the server"), (true, "connection reset by peer")]
    {
        let (server, mut api) = serve(TLS, move |heard, stream| {
            // Zero seconds: the kernel sends RST instead of FIN.
            let linger = nix::libc::linger { l_onoff: resets.into(), l_linger: 0 };
            setsockopt(stream.tcp(), Linger, &linger).unwrap();
            heard.head.starts_with("GET") && ok(heard, stream)
        });
        answered(api.call(&get(), BUDGET));
        let why = fails(&mut api, &patch("{}"));
        assert!(why.ends_with(&format!(": {want} while waiting for the answer")), "{why}");
        assert_eq!((server.heard().len(), server.connections()), (2, 1));
        answered(api.call(&get(), BUDGET));
        assert_eq!(server.connections(), 2);
    }
}
