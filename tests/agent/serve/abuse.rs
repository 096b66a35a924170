//! Strangers' bytes, while the agent renews its Lease and a scraper asks.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use apidouble::{Double, Identity, Validity};
use support::{Folder, eventually};

use super::{Client, SOON, Served, flags};
use crate::common::api::is_ready;
use crate::common::board::Board;
use crate::common::lease::longest_gap_of_requests;

/// A renewal is due each 2 s. On a busy machine an attempt starts later, but none is lost.
const LEASE: &str = "--node-lease-duration-seconds=8";
const LONGEST_GAP: Duration = Duration::from_secs(4);

/// An agent, a port, and a client that may do everything.
struct Site {
    double: Double,
    agent: Board,
    served: Served,
    admin: Identity,
    _folder: Folder,
}

impl Site {
    fn new(name: &str) -> Self {
        let (double, folder) = (Double::start(), Folder::new(name));
        let flags = flags(&double, &folder);
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain([LEASE]).collect();
        let agent = Board::start(&flags);
        agent.watch_threads();
        eventually("Ready", SOON, || double.get("nodes/pi").filter(is_ready));
        let served = Served::start(&flags);
        let admin = double.authority().client("admin", &["system:masters"], Validity::VALID);
        let site = Self { double, agent, served, admin, _folder: folder };
        // The agent writes its state after the first Lease, which may follow the Ready Node.
        eventually("a scrape", SOON, || (site.scrape() == 200).then_some(()));
        site
    }

    /// The status of a good request over a new connection.
    fn scrape(&self) -> u16 {
        self.served.ask(Some(&self.admin), "/healthz", &[]).code
    }

    /// A connection on which nothing was sent.
    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.served.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// What the server says to these bytes until it closes the connection.
    fn answer_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.tcp();
        // The server may close before the end.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    }

    /// The agent was not disturbed, and both processes live.
    fn ends_well(mut self) {
        assert_eq!(self.scrape(), 200);
        assert!(self.served.board.is_running() && self.agent.is_running());
        eventually("renewals", 3 * SOON, || {
            (crate::common::lease::renewals(&self.double).len() > 10).then_some(())
        });
        let gap = longest_gap_of_requests(&self.double);
        assert!(gap < LONGEST_GAP, "{gap:?}");
        self.agent.assert_one_thread();
        let tasks = format!("/proc/{}/task", self.served.board.pid());
        if let Ok(tasks) = std::fs::read_dir(tasks) {
            assert_eq!(tasks.count(), 1);
        }
    }
}

/// The first fatal alert in TLS records.
fn alert(bytes: &[u8]) -> Option<u8> {
    match bytes {
        [0x15, 3, _, 0, 2, 2, alert, ..] => Some(*alert),
        _ => None,
    }
}

#[test]
fn what_is_no_request_is_refused_at_once() {
    let site = Site::new("serve-refused");
    let start = Instant::now();
    // HTTP without TLS, garbage, and a record of no type.
    for bytes in [&b"GET /healthz HTTP/1.1\r\nHost: pi\r\n\r\n"[..], &[0; 400], &[0xff; 5]] {
        let said = String::from_utf8(site.answer_to(bytes)).unwrap();
        assert!(said.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{said}");
    }
    // A ClientHello of TLS 1.1: handshake_failure; Go says protocol_version.
    let suites = [0, 2, 0xc0, 0x13, 1, 0];
    let hello = [&[3, 2][..], &[7; 32], &[0], &suites].concat();
    let length = u8::try_from(hello.len()).unwrap();
    let record = [&[0x16, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat();
    assert_eq!(alert(&site.answer_to(&record)), Some(40));
    let with = |headers: &str| format!("GET /healthz HTTP/1.1\r\nHost: pi\r\n{headers}\r\n");
    for (head, code) in
        [(with(&"a: b\r\n".repeat(33)), 431), (with("Content-Length: 5\r\n") + "12345", 400)]
    {
        let mut client = Client::connect(site.served.port, Some(&site.admin));
        let reply = client.send(&head, false);
        assert_eq!((reply.code, reply.headers["connection"].as_str()), (code, "close"), "{head:?}");
        assert_eq!(client.0.read(&mut [0; 9]).unwrap(), 0);
    }
    let metrics = Client::connect(site.served.port, Some(&site.admin)).ask("GET", "/metrics", &[]);
    for count in ["{code=\"400\"} 1", "{code=\"431\"} 1"] {
        assert!(metrics.body.contains(count), "{count}: {}", metrics.body);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    site.ends_well();
}

/// Each has a slot for as long as its state may last, and the scraper has its own.
#[test]
fn slow_clients_are_cut_off_and_delay_nobody() {
    let site = Site::new("serve-slow");
    thread::scope(|scope| {
        let mut ends = Vec::new();
        for in_head in [false, false, false, true, true, true] {
            let site = &site;
            ends.push(scope.spawn(move || {
                let start = Instant::now();
                if in_head {
                    let mut client = Client::connect(site.served.port, None);
                    client.shake_hands().unwrap();
                    while client.0.get_mut().write_all(b"G").is_ok() && start.elapsed() < SOON {
                        thread::sleep(Duration::from_millis(500));
                    }
                } else {
                    let mut stream = site.tcp();
                    for byte in [0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3].into_iter().chain([7; 80]) {
                        if stream.write_all(&[byte]).is_err() || start.elapsed() > SOON {
                            break;
                        }
                        thread::sleep(Duration::from_millis(500));
                    }
                }
                start.elapsed()
            }));
        }
        for _ in 0..20 {
            let start = Instant::now();
            assert_eq!(site.scrape(), 200);
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            thread::sleep(Duration::from_millis(400));
        }
        for end in ends {
            let lasted = end.join().unwrap();
            assert!((Duration::from_secs(2)..SOON).contains(&lasted), "{lasted:?}");
        }
    });
    site.ends_well();
}

/// The first ones make room after two seconds, and the queue of the kernel moves on.
#[test]
fn a_hundred_idle_connections_delay_a_scrape_by_seconds() {
    let site = Site::new("serve-idle");
    let address = ([127, 0, 0, 1], site.served.port).into();
    let open = |_| TcpStream::connect_timeout(&address, Duration::from_millis(50)).ok();
    let idle: Vec<TcpStream> = (0..100).filter_map(open).collect();
    assert!(idle.len() > 8, "{}", idle.len());
    let start = Instant::now();
    assert_eq!(site.scrape(), 200);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    // All of them are closed, although each is open here.
    for mut stream in idle {
        stream.set_read_timeout(Some(SOON)).unwrap();
        let end = stream.read(&mut [0; 9]);
        assert!(
            matches!(&end, Ok(0)) || end.as_ref().is_err_and(|e| e.raw_os_error() == Some(104)),
            "{end:?}"
        );
    }
    site.ends_well();
}

#[test]
fn a_flood_of_handshakes_and_of_bad_tokens_ends_with_its_sender() {
    let site = Site::new("serve-flood");
    for _ in 0..100 {
        let mut client = Client::connect(site.served.port, None);
        client.shake_hands().unwrap();
    }
    assert_eq!(site.scrape(), 200);
    let count = || {
        let requests = site.double.requests();
        requests.iter().filter(|request| request.path.ends_with("/tokenreviews")).count()
    };
    let start = Instant::now();
    for number in 0..100 {
        assert_eq!(site.served.ask_with(&format!("bad{number}"), "/healthz").code, 401);
    }
    // A burst of four, then one a second.
    let most = 5 + usize::try_from(start.elapsed().as_secs()).unwrap();
    assert!((1..=most).contains(&count()), "{} of {most}", count());
    site.ends_well();
}
