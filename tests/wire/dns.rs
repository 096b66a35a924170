//! Name lookups against servers that are slow, silent, wrong or spoofed.
//!
//! A lookup ends at its deadline, and the agent does not wait for the lookup of the node's name.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nodelet::client::dns::{NodeName, Resolver};
use nodelet::kube::instant::Mono;
use support::Folder;

const A: u8 = 1;
const AAAA: u8 = 28;
pub const OK: u16 = 0x8180;
const SERVFAIL: u16 = 0x8182;
const NXDOMAIN: u16 = 0x8183;
const REFUSED: u16 = 0x8185;
const TC: u16 = 0x8380;

const BUDGET: Duration = Duration::from_millis(1500);

/// A question as the server received it.
#[derive(Clone)]
pub struct Asked {
    packet: Vec<u8>,
    pub name: String,
    kind: u8,
    pub from: SocketAddr,
    /// How many came before it.
    before: usize,
}

impl Asked {
    /// An answer with the addresses of the question's type, TTL 100 s.
    pub fn answer(&self, flags: u16, addresses: &[&str]) -> Vec<u8> {
        let mut packet = self.packet.clone();
        packet[2..4].copy_from_slice(&flags.to_be_bytes());
        for address in addresses {
            let data = match address.parse().unwrap() {
                IpAddr::V4(address) if self.kind == A => address.octets().to_vec(),
                IpAddr::V6(address) if self.kind == AAAA => address.octets().to_vec(),
                _ => continue,
            };
            let length = u8::try_from(data.len()).unwrap();
            packet[7] += 1;
            packet.extend([0xc0, 12, 0, self.kind, 0, 1, 0, 0, 0, 100, 0, length]);
            packet.extend(data);
        }
        packet
    }
}

pub struct Server {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<(String, u8)>>>,
    served: Arc<AtomicUsize>,
}

impl Server {
    pub fn start(serve: impl Fn(&Asked, &UdpSocket) + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let server = Self {
            address: socket.local_addr().unwrap(),
            heard: heard.clone(),
            served: Arc::default(),
        };
        let served = server.served.clone();
        thread::spawn(move || {
            let mut packet = [0; 512];
            for before in 0.. {
                let (length, from) = socket.recv_from(&mut packet).unwrap();
                let mut labels = Vec::new();
                let mut at = 12;
                while packet[at] != 0 {
                    let end = at + 1 + usize::from(packet[at]);
                    labels.push(std::str::from_utf8(&packet[at + 1..end]).unwrap());
                    at = end;
                }
                let asked = Asked {
                    name: labels.join("."),
                    kind: packet[at + 2],
                    packet: packet[..length].to_vec(),
                    from,
                    before,
                };
                heard.lock().unwrap().push((asked.name.clone(), asked.kind));
                serve(&asked, &socket);
                served.fetch_add(1, Ordering::SeqCst);
            }
        });
        server
    }

    /// Answers each question with `flags` and the addresses of the question's type.
    fn simple(flags: u16, addresses: &'static [&str]) -> Self {
        Self::start(move |asked, socket| {
            let answer = asked.answer(flags, addresses);
            socket.send_to(&answer, asked.from).unwrap();
        })
    }

    fn silent() -> Self {
        Self::start(|_, _| {})
    }

    pub fn heard(&self) -> usize {
        self.heard.lock().unwrap().len()
    }
}

/// An address without a server.
fn closed() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub fn resolver(servers: &[SocketAddr]) -> Resolver {
    Resolver { servers: servers.to_vec(), ..Resolver::parse("", "/nonexistent/hosts") }
}

/// The result of a lookup, and its duration in milliseconds.
pub fn lookup(
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
fn both_families_alternate_and_no_address_is_left_out() {
    let list: &[&str] = &[
        "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7",
        "10.0.0.8", "10.0.0.9", "fd00::1", "fd00::2",
    ];
    let server = Server::simple(OK, list);
    let (found, took) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
    assert_eq!(
        found.unwrap(),
        ips(&[
            "10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2", "10.0.0.3", "10.0.0.4", "10.0.0.5",
            "10.0.0.6", "10.0.0.7", "10.0.0.8", "10.0.0.9"
        ])
    );
    assert!(took < SOON, "{took}");
    assert_eq!(server.heard(), 2);
}

#[test]
fn a_lookup_without_an_answer_ends_at_its_deadline_or_timeout() {
    for (budget, timeout, attempts, want, packets) in [
        (900, 5000, 1, 900, 2),
        (3000, 300, 3, 900, 6),
        (900, 900, 10, 900, 20),
        (400, 5000, 2, 400, 4),
    ] {
        let server = Server::silent();
        let resolver = Resolver {
            timeout: Duration::from_millis(timeout),
            attempts,
            ..resolver(&[server.address])
        };
        let (found, took) = lookup(&resolver, "api.lan", Duration::from_millis(budget));
        let why = found.unwrap_err();
        let exact = format!("no name server answered within 0.{} s", want / 100);
        // Without a budget that ends the lookup, a busy machine reports a longer time.
        let late = want < budget.into() && why.starts_with("no name server answered within ");
        assert!(why == exact || late, "{why}");
        // Less than the longest timeout.
        assert!(took >= want * 8 / 10 && took < 4_500, "{want} {took}");
        // A busy machine sends fewer questions.
        let heard = server.heard();
        assert!((2..=packets).contains(&heard), "{packets} {heard}");
    }
    let server = Server::silent();
    let start = Instant::now();
    let spent = resolver(&[server.address]).lookup("api.lan", || Duration::ZERO);
    assert!(spent.is_err() && start.elapsed().as_millis() < SOON);
}

#[test]
fn a_flood_does_not_move_the_deadline() {
    let server = Server::start(|asked, socket| {
        let mut wrong = asked.answer(OK, &["10.0.0.1"]);
        wrong[0] ^= 1;
        let start = Instant::now();
        while start.elapsed() < BUDGET * 2 {
            let _ = socket.send_to(&wrong, asked.from);
            // Leaves CPU time for other tests.
            thread::sleep(Duration::from_micros(100));
        }
    });
    let budget = BUDGET.as_millis();
    let (found, took) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
    assert_eq!(found, Err("no name server answered within 1.5 s".to_owned()));
    assert!(took >= budget * 8 / 10 && took <= budget * 19 / 10, "{took}");
}

#[test]
fn a_late_answer_and_an_answer_to_a_repeated_question_count() {
    let late = Server::start(|asked, socket| {
        let (asked, socket) = (asked.clone(), socket.try_clone().unwrap());
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(500));
            socket.send_to(&asked.answer(OK, &["10.0.0.1"]), asked.from).unwrap();
        });
    });
    // Ignores the first two packets.
    let lossy = Server::start(|asked, socket| {
        if asked.before >= 2 {
            let answer = asked.answer(OK, &["10.0.0.1"]);
            socket.send_to(&answer, asked.from).unwrap();
        }
    });
    for (server, timeout) in [(late, 5000), (lossy, 1000)] {
        let resolver =
            Resolver { timeout: Duration::from_millis(timeout), ..resolver(&[server.address]) };
        let (found, took) = lookup(&resolver, "api.lan", BUDGET);
        assert_eq!(found, Ok(ips(&["10.0.0.1"])));
        assert!((500..500 + SOON).contains(&took), "{took}");
    }
}

#[test]
fn a_server_that_cannot_answer_is_passed_over_at_once() {
    let good = Server::simple(OK, &["10.0.0.1"]);
    for bad in [
        Server::simple(SERVFAIL, &[]).address,
        Server::simple(REFUSED, &[]).address,
        Server::simple(TC, &[]).address,
        closed(),
        // Not routable.
        "255.255.255.255:53".parse().unwrap(),
    ] {
        let resolver = resolver(&[bad, good.address, bad]);
        let (found, took) = lookup(&resolver, "api.lan", BUDGET * 4);
        assert_eq!(found, Ok(ips(&["10.0.0.1"])), "{bad}");
        // A silent one would take half of the budget, 3 s.
        assert!(took < 2_500, "{bad} {took}");
    }
}

/// Answers to one name with an address, and denies others.
fn knows(name: &'static str, address: &'static str, after: Duration) -> Server {
    Server::start(move |asked, socket| {
        let is_known = asked.name == name;
        let answer =
            if is_known { asked.answer(OK, &[address]) } else { asked.answer(NXDOMAIN, &[]) };
        thread::sleep(after);
        socket.send_to(&answer, asked.from).unwrap();
    })
}

/// The rows with planted times are in `src/client/dns/lookup/tests.rs`.
#[test]
fn the_first_server_in_the_list_counts_though_it_is_the_slowest() {
    let vpn = knows("kube.corp", "10.8.0.1", Duration::from_millis(100));
    let public = [(NXDOMAIN, &[][..]), (OK, &["192.0.2.1"])];
    let [denies, lies] = public.map(|(flags, addresses)| Server::simple(flags, addresses));
    for other in [&denies, &lies] {
        let resolver = resolver(&[vpn.address, other.address, denies.address]);
        let (found, _) = lookup(&resolver, "kube.corp", BUDGET * 4);
        assert_eq!(found, Ok(ips(&["10.8.0.1"])));
        let name = &mut NodeName::new("kube.corp", Some(resolver));
        assert_eq!(name.addresses(true, || at(0)), ips(&["10.8.0.1"]));
    }
    let silent = Server::silent();
    let resolver = resolver(&[silent.address, lies.address, denies.address]);
    let (found, took) = lookup(&resolver, "kube.corp", BUDGET);
    assert_eq!(found, Ok(ips(&["192.0.2.1"])));
    assert!(took >= BUDGET.as_millis() / 2 - 50, "{took}");
}

#[test]
fn each_answer_ends_the_lookup_with_its_error_or_addresses() {
    for (flags, addresses, want) in [
        (NXDOMAIN, &[][..], Err("no such name (NXDOMAIN) from ")),
        (OK, &[], Err("the name has no address, says ")),
        (SERVFAIL, &[], Err("SERVFAIL from ")),
        (REFUSED, &[], Err("REFUSED from ")),
        (TC, &[], Err("a truncated answer from ")),
        (TC, &["10.0.0.1", "fd00::1"], Ok(&["10.0.0.1", "fd00::1"][..])),
        (OK, &["fd00::1"], Ok(&["fd00::1"][..])),
    ] {
        let server = Server::simple(flags, addresses);
        let (found, took) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
        let want = want.map(ips).map_err(|why| format!("{why}{}", server.address));
        assert_eq!(found, want);
        assert!(took < SOON, "{want:?} {took}");
    }
    let nobody = closed();
    let (found, took) = lookup(&resolver(&[nobody]), "api.lan", BUDGET);
    let want = format!("name server {nobody}: connection refused");
    assert_eq!(found, Err(want));
    assert!(took < SOON, "{took}");
    for (resolver, name, want) in [
        (resolver(&[]), "api.lan", "no usable name server in resolv.conf"),
        (resolver(&[nobody]), "api..lan", "\"api..lan\" cannot be a host name"),
    ] {
        assert_eq!(lookup(&resolver, name, BUDGET).0, Err(want.to_owned()));
    }
}

#[test]
fn a_server_that_ignores_aaaa_delays_the_lookup_by_half_a_second() {
    // A negative answer for AAAA ends the wait at once.
    for (flags, least) in [(None, 400), (Some(NXDOMAIN), 0), (Some(SERVFAIL), 0)] {
        let server = Server::start(move |asked, socket| {
            let answer = match (asked.kind, flags) {
                (A, _) => asked.answer(OK, &["10.0.0.1"]),
                (_, Some(flags)) => asked.answer(flags, &[]),
                _ => return,
            };
            socket.send_to(&answer, asked.from).unwrap();
        });
        let (found, took) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
        assert_eq!(found, Ok(ips(&["10.0.0.1"])));
        assert!((least..least + 350).contains(&took), "{flags:?} {took}");
    }
}

#[test]
fn spoofed_answers_are_ignored() {
    let server = Server::start(|asked, socket| {
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let elsewhere = UdpSocket::bind("127.0.0.2:0").unwrap();
        let lie = asked.answer(OK, &["10.6.6.6", "fd00::666"]);
        other.send_to(&lie, asked.from).unwrap();
        elsewhere.send_to(&lie, asked.from).unwrap();
        // Another question.
        let lie = [&[lie[0] ^ 1], &lie[1..]].concat();
        socket.send_to(&lie, asked.from).unwrap();
        thread::sleep(Duration::from_millis(100));
        let truth = asked.answer(OK, &["10.0.0.1", "fd00::1"]);
        socket.send_to(&truth, asked.from).unwrap();
    });
    let (found, _) = lookup(&resolver(&[server.address]), "api.lan", BUDGET);
    assert_eq!(found, Ok(ips(&["10.0.0.1", "fd00::1"])));
}

#[test]
fn ids_and_ports_differ_from_question_to_question() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let seen_by = seen.clone();
    let server = Server::start(move |asked, socket| {
        let id = u16::from_be_bytes([asked.packet[0], asked.packet[1]]);
        seen_by.lock().unwrap().push((id, asked.from.port()));
        let answer = asked.answer(OK, &["10.0.0.1"]);
        socket.send_to(&answer, asked.from).unwrap();
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
}

#[test]
fn the_search_list_continues_until_there_is_an_address() {
    let serve = |flags| {
        Server::start(move |asked, socket| {
            let answer = match asked.name.as_str() {
                "pi.a" | "kube.prod" => asked.answer(flags, &[]),
                "pi.b" | "pi" | "kube.prod.a" => asked.answer(OK, &["10.0.0.1"]),
                _ => asked.answer(NXDOMAIN, &[]),
            };
            socket.send_to(&answer, asked.from).unwrap();
        })
    };
    for (name, found, asked) in [
        ("pi", true, &["pi.a", "pi.b"][..]),
        ("pi.", true, &["pi"]),
        ("kube.prod", true, &["kube.prod", "kube.prod.a"]),
        ("kube.prod.", false, &["kube.prod"]),
        ("no", false, &["no.a", "no.b", "no"]),
        ("no.lan", false, &["no.lan", "no.lan.a", "no.lan.b"]),
    ] {
        for flags in [NXDOMAIN, OK, SERVFAIL, REFUSED] {
            let server = serve(flags);
            let resolver = Resolver {
                search: vec!["a".to_owned(), "b".to_owned()],
                ..resolver(&[server.address])
            };
            assert_eq!(lookup(&resolver, name, BUDGET).0.is_ok(), found, "{name}");
            let mut heard: Vec<String> =
                server.heard.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
            heard.dedup();
            assert_eq!(heard, asked, "{name} {flags:x}");
        }
    }
}

#[test]
fn a_lookup_leaves_half_of_the_time_for_the_connection() {
    let (server, _) = super::serve(super::PLAIN, super::server::ok);
    let silent = Server::silent();
    let names = knows("api", "127.0.0.1", Duration::ZERO);
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
    found
}

#[test]
fn the_name_of_the_node_is_looked_up_without_waiting() {
    let answers = Arc::new(Mutex::new((OK, "10.0.0.1")));
    let answers_by = answers.clone();
    let server = Server::start(move |asked, socket| {
        let (flags, address) = *answers_by.lock().unwrap();
        // Not within the call that sends the question.
        thread::sleep(Duration::from_millis(100));
        if flags != 0 {
            let answer = asked.answer(flags, &[address]);
            socket.send_to(&answer, asked.from).unwrap();
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
    step(0, 2, &[]);
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
pub fn wait(name: &mut NodeName, clock: Instant) -> (Vec<IpAddr>, u128) {
    let start = Instant::now();
    let found = name.addresses(true, || Mono::START.after(clock.elapsed()));
    (found, start.elapsed().as_millis())
}

#[test]
fn before_registration_the_lookup_waits_for_at_most_a_second() {
    let clock = Instant::now();
    let late = Server::start(|asked, socket| {
        if asked.kind == A {
            thread::sleep(Duration::from_millis(300));
        }
        let answer = asked.answer(OK, &["10.0.0.1"]);
        socket.send_to(&answer, asked.from).unwrap();
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

    // Without a server it does not wait, and asks again at the next call.
    let name = &mut NodeName::new("pi", Some(resolver(&[closed()])));
    for _ in 0..3 {
        assert!(wait(name, clock).1 < SOON);
    }
    let name = &mut NodeName::new("..", Some(resolver(&[silent.address])));
    assert!(wait(name, clock).1 < SOON);
}
