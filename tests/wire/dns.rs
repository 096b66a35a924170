//! Name lookups against servers that are slow, silent, wrong or spoofed.
//!
//! A lookup ends at its deadline, and the agent does not wait for the lookup of the node's name.
//! How the answers are judged: `src/client/dns/lookup/tests.rs`, in virtual time.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nodelet::client::dns::{NodeName, Resolver};
use nodelet::kube::instant::Mono;
use support::dns::{A, Asked};
use support::{Folder, skip};

const OK: u16 = 0x8180;
const SERVFAIL: u16 = 0x8182;
const NXDOMAIN: u16 = 0x8183;

const BUDGET: Duration = Duration::from_millis(1500);

/// The client that asked.
struct Client<'a> {
    socket: &'a UdpSocket,
    from: SocketAddr,
}

impl Client<'_> {
    fn send(&self, packet: &[u8]) {
        self.socket.send_to(packet, self.from).unwrap();
    }
}

struct Server {
    address: SocketAddr,
    heard: Arc<AtomicUsize>,
    served: Arc<AtomicUsize>,
}

impl Server {
    fn start(serve: impl Fn(&Asked, Client<'_>) + Send + 'static) -> Self {
        Self::over(UdpSocket::bind("127.0.0.1:0").unwrap(), serve)
    }

    fn over(socket: UdpSocket, serve: impl Fn(&Asked, Client<'_>) + Send + 'static) -> Self {
        let address = socket.local_addr().unwrap();
        let server = Self { address, heard: Arc::default(), served: Arc::default() };
        let (heard, served) = (server.heard.clone(), server.served.clone());
        thread::spawn(move || {
            let mut packet = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut packet).unwrap();
                let before = heard.fetch_add(1, Ordering::SeqCst);
                let asked = Asked::new(&packet[..length], before);
                serve(&asked, Client { socket: &socket, from });
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    /// Answers each question with `flags` and the addresses of the question's type.
    fn simple(flags: u16, addresses: &'static [&str]) -> Self {
        Self::start(move |asked, client| {
            client.send(&asked.answer(flags, addresses.iter().copied()));
        })
    }

    fn silent() -> Self {
        Self::start(|_, _| {})
    }

    fn heard(&self) -> usize {
        self.heard.load(Ordering::SeqCst)
    }
}

/// An address without a server.
fn closed() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn resolver(servers: &[SocketAddr]) -> Resolver {
    Resolver { servers: servers.to_vec(), ..Resolver::parse("", "/nonexistent/hosts") }
}

/// The result of a lookup, and its duration in milliseconds.
fn lookup(
    resolver: &Resolver,
    name: &str,
    budget: Duration,
) -> (Result<Vec<IpAddr>, String>, u128) {
    let start = Instant::now();
    let result = resolver.lookup(name, || budget.saturating_sub(start.elapsed()));
    (result.map_err(|fault| fault.what), start.elapsed().as_millis())
}

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|ip| ip.parse().unwrap()).collect()
}

/// In milliseconds; shorter than each timeout, and enough for a busy machine.
const SOON: u128 = 900;

#[test]
fn a_lookup_without_an_answer_ends_at_its_deadline() {
    let floods = Server::start(|asked, client| {
        let mut wrong = asked.answer(OK, ["10.0.0.1"]);
        wrong[0] ^= 1;
        let start = Instant::now();
        while start.elapsed() < BUDGET * 2 {
            let _ = client.socket.send_to(&wrong, client.from);
            // Leaves CPU time for other tests.
            thread::sleep(Duration::from_micros(100));
        }
    });
    for server in [Server::silent(), floods] {
        let (found, took) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
        assert_eq!(found, Err("no name server answered within 1.5 s".to_owned()));
        // Less than the timeout of the resolver.
        assert!((1_200..2_850).contains(&took), "{took}");
        let start = Instant::now();
        let spent = resolver(&[server.address]).lookup("api.lan", || Duration::ZERO);
        assert!(spent.is_err() && start.elapsed().as_millis() < SOON);
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_passed_over_at_once() {
    let good = Server::simple(OK, &["10.0.0.1"]);
    for bad in [closed(), "255.255.255.255:53".parse().unwrap()] {
        let resolver = resolver(&[bad, good.address, bad]);
        let (found, took) = lookup(&resolver, "api.lan", BUDGET * 4);
        assert_eq!(found, Ok(ips(&["10.0.0.1"])), "{bad}");
        // A silent one would take half of the budget, 3 s.
        assert!(took < 2_500, "{bad} {took}");
    }
    let nobody = closed();
    let refused = format!("name server {nobody}: connection refused");
    let denies = Server::simple(NXDOMAIN, &[]);
    let denied = format!("no such name (NXDOMAIN) from {}", denies.address);
    for (resolver, name, want) in [
        (resolver(&[nobody]), "api.lan", refused.as_str()),
        // The order of the servers is a promise.
        (resolver(&[denies.address, good.address]), "api.lan", &denied),
        (resolver(&[]), "api.lan", "no usable name server in resolv.conf"),
        (resolver(&[nobody]), "api..lan", "\"api..lan\" cannot be a host name"),
    ] {
        let (found, took) = lookup(&resolver, name, BUDGET);
        assert_eq!(found, Err(want.to_owned()));
        assert!(took < SOON, "{took}");
    }
}

#[test]
fn spoofed_answers_are_ignored() {
    let server = Server::start(|asked, client| {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
        let lie = asked.answer(OK, ["10.6.6.6", "fd00::666"]);
        other.send_to(&lie, client.from).unwrap();
        elsewhere.send_to(&lie, client.from).unwrap();
        // Another question.
        let lie = [&[lie[0] ^ 1], &lie[1..]].concat();
        client.send(&lie);
        thread::sleep(Duration::from_millis(100));
        client.send(&asked.answer(OK, ["10.0.0.1", "fd00::1"]));
    });
    let (found, _) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
    assert_eq!(found, Ok(ips(&["10.0.0.1", "fd00::1"])));
}

/// Linux connects a socket to 127.0.0.1 or ::1, and each answer has that source.
#[test]
fn the_unspecified_address_is_a_name_server_on_this_machine() {
    for loopback in ["127.0.0.1", "::1"] {
        let loopback: IpAddr = loopback.parse().unwrap();
        let Ok(socket) = UdpSocket::bind((loopback, 0)) else {
            skip::optional(&format!("no {loopback}"));
            continue;
        };
        let server = Server::over(socket, |asked, client| {
            client.send(&asked.answer(OK, ["10.0.0.1"]));
        });
        let conf = if loopback.is_ipv4() { "nameserver 0.0.0.0" } else { "nameserver ::" };
        let mut resolver = Resolver::parse(conf, "/nonexistent/hosts");
        resolver.servers.iter_mut().for_each(|it| it.set_port(server.address.port()));
        assert_eq!(lookup(&resolver, "api.lan", BUDGET).0, Ok(ips(&["10.0.0.1"])), "{conf}");
    }
}

#[test]
fn ids_and_ports_differ_from_question_to_question() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by = seen.clone();
    let server = Server::start(move |asked, client| {
        let id = u16::from_be_bytes([asked.packet[0], asked.packet[1]]);
        seen_by.lock().unwrap().push((id, client.from.port()));
        client.send(&asked.answer(OK, ["10.0.0.1"]));
    });
    for _ in 0..20 {
        lookup(&resolver(&[server.address]), "api.lan", BUDGET).0.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 40);
    let (ids, ports): (BTreeSet<u16>, BTreeSet<u16>) = seen.iter().copied().unzip();
    // 40 random ids of 65536: a pair of equal ids once in 80 runs.
    assert!(ids.len() >= 38, "{seen:?}");
    assert!(ports.len() >= 18, "{seen:?}");
    // Another process may have one of them by now.
    assert!(ports.iter().any(|port| UdpSocket::bind(("0.0.0.0", *port)).is_ok()), "all open");
}

#[test]
fn a_lookup_leaves_half_of_the_time_for_the_connection() {
    let (server, _) = super::serve(super::PLAIN, super::server::ok);
    let silent = Server::silent();
    let names = Server::start(|asked, client| {
        let (flags, address) =
            if asked.name == "api" { (OK, Some("127.0.0.1")) } else { (NXDOMAIN, None) };
        client.send(&asked.answer(flags, address));
    });
    let mut config = super::kubeconfig(&format!("http://api:{}", server.port), "", "");
    // The silent server takes the whole part of each of the three names.
    config.resolver = Some(Resolver {
        search: vec!["a".to_owned(), "b".to_owned()],
        attempts: 1,
        ..resolver(&[silent.address, names.address])
    });
    let mut api = super::Api::new(&config).unwrap();
    super::answered(api.call(&super::get(), BUDGET * 4));
}

#[test]
fn resolv_conf_and_hosts_are_read_and_may_be_missing() {
    let folder = Folder::new("dns");
    let text = "nameserver 192.0.2.53\nsearch a b\noptions ndots:2\n";
    let conf = folder.write("resolv.conf", text);
    let hosts = folder.write("hosts", b"10.0.0.7 api.lan # \xff\n10.0.0.8 x\nfd00::7 API.lan\n");
    assert_eq!(Resolver::read(&conf, &hosts), Resolver::parse(text, &hosts));
    let server = Server::simple(OK, &["10.0.0.1"]);
    let resolver = Resolver { hosts, ..resolver(&[server.address]) };
    for (name, want) in [
        ("api.lan", &["10.0.0.7", "fd00::7"][..]),
        ("localhost", &["127.0.0.1", "::1"]),
        ("LocalHost.", &["127.0.0.1", "::1"]),
    ] {
        assert_eq!(lookup(&resolver, name, BUDGET).0, Ok(ips(want)), "{name}");
    }
    assert_eq!(server.heard(), 0);
    // A folder, an endless device and a missing file count as an empty file.
    for path in ["/", "/dev/zero", "/nonexistent/resolv.conf"] {
        let resolver = Resolver::read(path.as_ref(), "/nonexistent/hosts");
        assert_eq!(resolver.servers, ["127.0.0.1:53".parse().unwrap()]);
    }
}

fn at(seconds: u64) -> Mono {
    Mono::START.after(Duration::from_secs(seconds))
}

/// A call that must return at once.
fn poll(name: &mut NodeName, seconds: u64) -> Vec<IpAddr> {
    let start = Instant::now();
    let found = name.addresses(false, || at(seconds));
    assert!(start.elapsed().as_millis() < SOON, "{:?}", start.elapsed());
    found.unwrap_or_else(|_| ips(&[UNREAD]))
}

/// In the place of addresses that are not known yet.
const UNREAD: &str = "::";

#[test]
fn the_name_of_the_node_is_looked_up_without_waiting() {
    let answers = Arc::new(Mutex::new((OK, "10.0.0.1")));
    let answers_by = answers.clone();
    let server = Server::start(move |asked, client| {
        let (flags, address) = *answers_by.lock().unwrap();
        // Not within the call that sends the question.
        thread::sleep(Duration::from_millis(100));
        if flags != 0 {
            client.send(&asked.answer(flags, [address]));
        }
    });
    let name = &mut NodeName::new("pi", Some(resolver(&[server.address])));
    let mut step = |seconds, packets, want: &[&str]| {
        assert_eq!(poll(name, seconds), ips(want), "at {seconds}");
        // After `served`, the answer is in the socket buffer of the client.
        let start = Instant::now();
        while server.served.load(Ordering::SeqCst) < packets && start.elapsed() < BUDGET {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(server.heard(), packets, "at {seconds}");
    };
    let change = |flags, address| *answers.lock().unwrap() = (flags, address);
    step(0, 2, &[UNREAD]);
    // The answer is read at the next call after the timeout.
    step(10, 2, &["10.0.0.1"]);
    change(OK, "10.0.0.2");
    // The TTL of 100 s begins when the answer is read.
    step(100, 2, &["10.0.0.1"]);
    step(110, 4, &["10.0.0.1"]);
    step(120, 4, &["10.0.0.2"]);
    // No answer, then SERVFAIL, both in two attempts: the addresses are kept, and the name is
    // looked up again after 60 s.
    change(0, "10.0.0.2");
    step(220, 6, &["10.0.0.2"]);
    step(230, 8, &["10.0.0.2"]);
    step(240, 8, &["10.0.0.2"]);
    step(290, 8, &["10.0.0.2"]);
    change(SERVFAIL, "10.0.0.2");
    step(300, 10, &["10.0.0.2"]);
    step(310, 12, &["10.0.0.2"]);
    step(320, 12, &["10.0.0.2"]);
    // NXDOMAIN is an answer and is cached for five minutes.
    change(NXDOMAIN, "10.0.0.2");
    step(380, 14, &["10.0.0.2"]);
    step(390, 14, &[]);
    change(OK, "10.0.0.3");
    step(680, 14, &[]);
    step(690, 16, &[]);
    step(700, 16, &["10.0.0.3"]);
}

/// A call that may wait; the addresses, and milliseconds.
fn wait(name: &mut NodeName, clock: Instant) -> (Vec<IpAddr>, u128) {
    let start = Instant::now();
    let found = name.addresses(true, || Mono::START.after(clock.elapsed()));
    (found.unwrap_or_default(), start.elapsed().as_millis())
}

#[test]
fn before_registration_the_lookup_waits_for_at_most_a_second() {
    let clock = Instant::now();
    let late = Server::start(|asked, client| {
        if asked.kind == A {
            thread::sleep(Duration::from_millis(300));
        }
        client.send(&asked.answer(OK, ["10.0.0.1"]));
    });
    let searching =
        Resolver { search: vec!["a".to_owned(), "b".to_owned()], ..resolver(&[late.address]) };
    let (found, took) = wait(&mut NodeName::new("pi", Some(searching)), clock);
    assert_eq!(found, ips(&["10.0.0.1"]));
    assert!((240..300 + SOON).contains(&took), "{took}");

    let silent = Server::silent();
    let name = &mut NodeName::new("pi", Some(resolver(&[silent.address])));
    let (found, took) = wait(name, clock);
    assert!(found.is_empty() && (800..1900).contains(&took), "{took}");
    for _ in 0..3 {
        assert!(wait(name, clock).1 < SOON);
    }
    // One lookup at a time.
    thread::sleep(Duration::from_millis(50));
    assert_eq!(silent.heard(), 2);

    // Without a server it does not wait, and asks again a minute later. Then it has no address.
    let name = &mut NodeName::new("pi", Some(resolver(&[closed()])));
    for (second, is_known) in [(0, false), (59, false), (60, true), (61, true)] {
        let start = Instant::now();
        assert_eq!(name.addresses(true, || at(second)).is_ok(), is_known, "{second}");
        assert!(start.elapsed().as_millis() < SOON);
    }
    let name = &mut NodeName::new("..", Some(resolver(&[silent.address])));
    assert!(wait(name, clock).1 < SOON);
}
