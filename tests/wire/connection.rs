//! When a connection is kept, closed and opened again.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::Double;
use nodelet::credentials::kubeconfig;
use rustls::ServerConnection;
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

#[test]
fn a_connection_that_was_opened_early_carries_the_next_call() {
    let ca = Authority::new();
    for version in [None, Some(&TLS12), Some(&TLS13)] {
        let tls = version.map(|version| ca.config(&ca.leaf(&["127.0.0.1"]), &[version], None));
        let server = Server::start(tls, ok);
        let mut api = if version.is_some() { api(server.port, &ca) } else { plain(server.port) };
        api.connect(BUDGET).unwrap();
        // Longer than the budget, and time enough for the session tickets of TLS 1.3.
        thread::sleep(BUDGET * 11 / 10);
        for _ in 0..2 {
            answered(api.call(&get(), BUDGET));
            assert!(api.is_connected());
        }
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
    assert_eq!(why, format!("https://127.0.0.1:{port}: connection refused"));
    assert_eq!(fails(&mut client, &get()), why);
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
    let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (secure, answer, polite, stays) in [
        (PLAIN, OK, false, false),
        (TLS, OK, false, false),
        (TLS, OK, true, false),
        (PLAIN, last, false, true),
    ] {
        let (server, mut api) = serve(secure, move |_, stream| {
            say(stream, answer);
            if polite {
                stream.close_notify(b"");
            }
            stays
        });
        for round in 1..=3 {
            answered(api.call(&patch("{}"), BUDGET));
            eventually(|| !api.is_connected());
            assert_eq!(server.connections(), round);
        }
    }
}

/// The kernel holds nothing: the message is read with the answer.
#[test]
fn a_close_notify_in_the_segment_of_the_answer_ends_the_connection() {
    let (server, mut api) = serve(TLS, |_, stream| {
        stream.close_notify(OK.as_bytes());
        true
    });
    for round in 1..=3 {
        answered(api.call(&patch("{}"), BUDGET));
        assert!(api.is_connected(), "TCP is");
        assert_eq!(server.connections(), round);
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
    let (server, mut api) =
        serve(TLS, |heard, stream| heard.head.starts_with("GET") && ok(heard, stream));
    answered(api.call(&get(), BUDGET));
    let why = fails(&mut api, &patch("{}"));
    assert!(why.ends_with("connection closed by the server while waiting for the answer"), "{why}");
    assert_eq!((server.heard().len(), server.connections()), (2, 1));
    answered(api.call(&get(), BUDGET));
    assert_eq!(server.connections(), 2);
}

#[test]
fn bytes_without_a_request_end_the_connection() {
    for secure in [PLAIN, TLS] {
        let (server, mut api) = serve(secure, |heard, stream| {
            ok(heard, stream);
            thread::sleep(Duration::from_millis(20));
            say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        });
        for _ in 0..2 {
            assert_eq!(answered(api.call(&get(), BUDGET)).body, b"{}");
            eventually(|| !api.is_connected());
        }
        assert_eq!(server.connections(), 2);
    }
}

#[test]
fn a_reset_and_a_server_without_tls_have_their_error() {
    // SO_LINGER 0: the kernel sends RST instead of FIN.
    let (_server, mut client) = serve(TLS, |heard, stream| {
        if heard.head.starts_with("GET") {
            return ok(heard, stream);
        }
        let reset = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(stream.tcp(), nix::sys::socket::sockopt::Linger, &reset)
            .unwrap();
        false
    });
    answered(client.call(&get(), BUDGET));
    let why = fails(&mut client, &patch("{}"));
    assert!(why.ends_with(": connection reset by peer while waiting for the answer"), "{why}");

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
    let why = fails(&mut api(port, &Authority::new()), &get());
    assert!(why.ends_with("the server does not speak TLS; is the port right?"), "{why}");
}
