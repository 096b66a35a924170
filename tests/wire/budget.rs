//! A call ends within its budget.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::server::*;
use super::*;

#[test]
fn the_budget_ends_a_stall_at_every_stage() {
    let (_server, mut client) = serve(TLS, |_, _| {
        thread::sleep(BUDGET * 3);
        false
    });
    assert_eq!(times_out(&mut client, &patch("{}")), "waiting for the answer");

    let (_server, mut client) = serve(TLS, |_, stream| {
        say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{");
        thread::sleep(BUDGET * 3);
        false
    });
    assert_eq!(times_out(&mut client, &get()), "reading the answer");

    // Accepts TCP and sends nothing: the queue of the listener is enough.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = mute.local_addr().unwrap().port();
    assert_eq!(times_out(&mut api(port, &Authority::new()), &get()), "setting up TLS");
    // Receives no more than fits into the socket buffers.
    assert_eq!(times_out(&mut plain(port), &patch(vec![b' '; 32 << 20])), "sending the request");
}

#[test]
fn the_budget_ends_a_stall_on_a_kept_connection() {
    let (_server, mut api) = serve(TLS, |heard, stream| {
        if heard.head.starts_with("PATCH") {
            thread::sleep(BUDGET * 3);
        }
        ok(heard, stream)
    });
    answered(api.call(&get(), BUDGET));
    assert_eq!(times_out(&mut api, &patch("{}")), "waiting for the answer");
    answered(api.call(&get(), BUDGET));
}

/// Over a new connection the answer has its own budget, which is less than that of the call.
#[test]
fn a_slow_answer_over_a_new_connection_is_awaited_within_its_budget() {
    for (budget, is_awaited) in [(BUDGET * 2 / 5, true), (BUDGET / 5, false)] {
        let (_server, mut api) = serve(TLS, |heard, stream| {
            thread::sleep(BUDGET * 3 / 10);
            ok(heard, stream)
        });
        api.set_answer_budget(Some(budget));
        let outcome = api.call(&patch("{}"), BUDGET * 5);
        assert_eq!(outcome.is_ok(), is_awaited, "{outcome:?}");
    }
}

/// The time that has passed, and not the budget of the call.
#[test]
fn a_timeout_names_the_time_after_which_the_answer_was_given_up() {
    let (_server, mut api) = serve(TLS, |_, _| {
        thread::sleep(BUDGET * 15);
        false
    });
    api.set_answer_budget(Some(BUDGET / 2));
    let start = Instant::now();
    let why = silent(api.call(&get(), BUDGET * 10));
    let stage = why.split_once(": timed out after ").expect(&why).1;
    let (seconds, stage) = stage.split_once(" s while ").expect(&why);
    assert_eq!(stage, "waiting for the answer");
    assert!(start.elapsed() < BUDGET * 9, "{:?}", start.elapsed());
    let seconds: u64 = seconds.parse().unwrap();
    assert!(start.elapsed().as_secs().abs_diff(seconds) <= 1, "{why}: {:?}", start.elapsed());
}

#[test]
fn a_call_without_any_time_sends_nothing() {
    let (server, mut api) = serve(TLS, ok);
    answered(api.call(&get(), BUDGET));
    let why = silent(api.call(&patch("{}"), Duration::ZERO));
    let stage = ": timed out after 0 s while sending the request";
    assert!(why.ends_with(stage), "{why}");
    answered(api.call(&get(), BUDGET));
    let heard = server.heard();
    assert!(heard.iter().all(|heard| heard.head.starts_with("GET")));
    assert_eq!(heard.len(), 2);
}

#[test]
fn the_budget_ends_a_trickle() {
    for secure in [PLAIN, TLS] {
        let (_server, mut client) = serve(secure, |_, stream| {
            trickle(stream, format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(10_000)).as_bytes());
            false
        });
        assert_eq!(times_out(&mut client, &get()), "waiting for the answer");
        let (_server, mut client) = serve(secure, |_, stream| {
            say(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n");
            trickle(stream, &[b'y'; 10_000]);
            false
        });
        assert_eq!(times_out(&mut client, &patch("{}")), "reading the answer");
        let (_server, mut client) = serve(secure, |_, stream| {
            say(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            trickle(stream, &b"1\r\ny\r\n".repeat(2_000));
            false
        });
        assert_eq!(times_out(&mut client, &get()), "reading the answer");
    }
    // A handshake that never ends: one TLS record header, then its content byte by byte.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut tcp = listener.accept().unwrap().0;
        say(&mut tcp, [22, 3, 3, 0x40, 0]);
        trickle(&mut tcp, &[2; 10_000]);
    });
    assert_eq!(times_out(&mut api(port, &Authority::new()), &get()), "setting up TLS");
}

#[test]
fn the_budget_ends_a_connect_into_a_black_hole() {
    use nix::sys::socket::{
        AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket,
    };
    use std::os::fd::AsRawFd;
    let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
    bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let port = getsockname::<SockaddrIn>(listener.as_raw_fd()).unwrap().port();
    // The queue holds one; the kernel drops every further SYN.
    let address = format!("127.0.0.1:{port}").parse().unwrap();
    let _fill: Vec<_> =
        (0..3).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100))).collect();
    assert_eq!(times_out(&mut api(port, &Authority::new()), &get()), "connecting");
}

#[test]
fn each_unusable_answer_has_its_error() {
    let head = "HTTP/1.1 200 OK\r\n";
    let not_http = "the answer is not HTTP: ";
    let closed = "connection closed by the server while";
    let cases: [(Vec<u8>, &str); 11] = [
        (
            format!("{head}Content-Length: 99999999999999999999\r\n\r\n").into(),
            "the answer is not HTTP: content-length header not a number",
        ),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\nzz\r\n").into(), not_http),
        (
            format!("{head}{}", "X: y\r\n".repeat(4_000)).into(),
            "the answer is not HTTP: http parse resulted in too many headers",
        ),
        (
            format!("{head}X: {}", "y".repeat(40_000)).into(),
            "the head of the answer is larger than 16384 bytes",
        ),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n\r\n".into(), not_http),
        (vec![0xff; 100], not_http),
        ("HTTP/1.1 999999 OK\r\n\r\n".into(), not_http),
        (Vec::new(), "connection closed by the server while waiting for the answer"),
        (
            "HTTP/1.1 200 OK\r\nContent-Le".into(),
            "connection closed by the server while waiting for the answer",
        ),
        (format!("{head}Content-Length: 3\r\n\r\n{{}}").into(), closed),
        (format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\n{{}}").into(), closed),
    ];
    for (answer, want) in cases {
        for secure in [PLAIN, TLS] {
            let answer = answer.clone();
            let (server, mut api) = serve(secure, move |_, stream| {
                say(stream, &answer);
                false
            });
            let why = fails(&mut api, &get());
            let scheme = if secure { "https" } else { "http" };
            let want = format!("{scheme}://127.0.0.1:{}: {want}", server.port);
            assert!(why.starts_with(&want), "{want}: {why}");
        }
    }
}
