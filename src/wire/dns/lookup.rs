//! The lookup of one name along the search list, in steps; the caller gives the time.
//!
//! The A and AAAA questions for a name are sent to all name servers at once, as musl does. Each
//! server has a connected socket of its own: the kernel chooses a random source port, drops packets
//! from other hosts, and reports a closed port at once. Only [`Lookup::run`] waits.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;
use std::vec;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};

use super::Resolver;
use super::message::{self, MAX_ADDRESSES, Name, Question, RecordType, Reply};
use crate::core::instant::Mono;
use crate::wire::socket::poll_timeout;

/// Time for the other family once one family has addresses: some servers never answer to AAAA.
/// (musl waits for the whole timeout.)
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Lookup {
    servers: Vec<SocketAddr>,
    /// Candidates after the current one.
    names: vec::IntoIter<Name>,
    queries: Queries,
    started: Mono,
    sent: Mono,
    /// When the first addresses came.
    addressed: Option<Mono>,
    timeout: Duration,
    interval: Duration,
}

impl Lookup {
    /// Sends the first questions. `None` where no candidate is a valid name.
    pub(super) fn start(resolver: &Resolver, name: &str, now: Mono) -> Option<Self> {
        let names = resolver.candidates(name);
        let names: Vec<Name> = names.iter().filter_map(|name| Name::new(name)).collect();
        let mut names = names.into_iter();
        Some(Self {
            queries: Queries::start(&names.next()?, &resolver.servers),
            servers: resolver.servers.clone(),
            names,
            started: now,
            sent: now,
            addressed: None,
            timeout: resolver.timeout,
            interval: resolver.timeout / resolver.attempts.max(1),
        })
    }

    /// Takes turns, and waits between them, until the outcome; `None` if there is none at `end`.
    pub(super) fn run(&mut self, end: Mono, clock: impl Fn() -> Mono) -> Option<LookupResult> {
        loop {
            let now = clock();
            let outcome = self.turn(now);
            if outcome.is_some() || now >= end {
                return outcome;
            }
            // For an answer, or until the next turn is due.
            let due = self.ends().min(self.sent.after(self.interval));
            self.queries.wait(due.min(end).since(now));
        }
    }

    /// Reads answers and repeats questions that are due; returns the outcome at the end. An answer
    /// counts however late it is read.
    fn turn(&mut self, now: Mono) -> Option<LookupResult> {
        self.queries.receive();
        if self.queries.has_addresses() {
            self.addressed.get_or_insert(now);
        }
        let done = self.queries.is_settled() || now >= self.ends();
        if !done {
            if now >= self.sent.after(self.interval) {
                self.queries.send();
                self.sent = now;
            }
            return None;
        }
        let outcome = self.outcome(now);
        if let LookupResult::NoName(_) = outcome
            && let Some(name) = self.names.next()
        {
            self.queries = Queries::start(&name, &self.servers);
            (self.started, self.sent) = (now, now);
            return None;
        }
        Some(outcome)
    }

    /// The outcome so far.
    pub(super) fn outcome(&self, now: Mono) -> LookupResult {
        self.queries
            .outcome()
            .unwrap_or_else(|| LookupResult::Failed(silence(now.since(self.started))))
    }

    fn ends(&self) -> Mono {
        let timeout = self.started.after(self.timeout);
        match self.addressed {
            Some(then) => timeout.min(then.after(GRACE)),
            None => timeout,
        }
    }
}

/// In tenths of a second, so that the text does not change during one outage.
fn silence(waited: Duration) -> String {
    let tenths = (waited.as_millis() + 50) / 100;
    let (seconds, tenths) = (tenths / 10, tenths % 10);
    match tenths {
        0 => format!("no name server answered within {seconds} s"),
        _ => format!("no name server answered within {seconds}.{tenths} s"),
    }
}

/// UDP port of a name server.
pub(super) const PORT: u16 = 53;

/// Without EDNS an answer has 512 bytes at most (RFC 1035 §4.2.1).
const LARGEST: usize = 1500;
/// Packets read from one socket in one call, so that a flood cannot hold the loop.
const MOST_PACKETS: usize = 16;

/// The servers' answer to a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// At least one address, and the shortest TTL.
    Addresses(Vec<IpAddr>, Duration),
    /// NXDOMAIN: the next domain of the search list may have the name.
    NoName(String),
    /// The name exists and has no address.
    NoAddress(String),
    /// No server gave an answer.
    Failed(String),
}

#[derive(Debug)]
pub(super) struct Queries {
    /// The servers that this machine has a route to.
    servers: Vec<(SocketAddr, UdpSocket)>,
    asked: [SentQuestion; 2],
    /// Why the last server that failed did so.
    trouble: Option<String>,
}

#[derive(Debug)]
struct SentQuestion {
    question: Question,
    packet: Vec<u8>,
    /// The first answer that is not a failure.
    reply: Option<(Reply, SocketAddr)>,
    /// Servers that failed since the last [`Queries::send`], by index.
    failed: Vec<bool>,
}

impl SentQuestion {
    fn new(name: &Name, kind: RecordType, id: u16, servers: usize) -> Self {
        let question = Question { id, name: name.clone(), kind };
        Self {
            packet: message::query(&question),
            question,
            reply: None,
            failed: vec![true; servers],
        }
    }

    fn set_failed(&mut self, server: usize, whether: bool) {
        if let Some(failed) = self.failed.get_mut(server) {
            *failed = whether;
        }
    }

    /// No further answer is possible, or needed.
    fn is_settled(&self) -> bool {
        self.reply.is_some() || self.failed.iter().all(|failed| *failed)
    }
}

impl Queries {
    /// Opens the sockets and sends both questions to all.
    pub(super) fn start(name: &Name, servers: &[SocketAddr]) -> Self {
        let mut trouble =
            servers.is_empty().then(|| "no usable name server in resolv.conf".to_owned());
        let mut reached = Vec::with_capacity(servers.len());
        for address in servers {
            match open(*address) {
                Ok(socket) => reached.push((*address, socket)),
                Err(e) => trouble = Some(unreached(*address, &e)),
            }
        }
        let (a, aaaa) = ids();
        let asked = [(RecordType::A, a), (RecordType::Aaaa, aaaa)]
            .map(|(kind, id)| SentQuestion::new(name, kind, id, reached.len()));
        let mut queries = Self { servers: reached, asked, trouble };
        queries.send();
        queries
    }

    /// Sends each question without a reply to all servers, failed ones included.
    pub(super) fn send(&mut self) {
        for (index, (address, socket)) in self.servers.iter().enumerate() {
            let mut open = self.asked.iter().filter(|asked| asked.reply.is_none());
            let sent = open.try_for_each(|asked| socket.send(&asked.packet).map(drop));
            // The second send may report the ICMP error of the first.
            for asked in &mut self.asked {
                asked.set_failed(index, sent.is_err());
            }
            if let Err(e) = sent {
                self.trouble = Some(unreached(*address, &e));
            }
        }
    }

    /// Reads the packets that have arrived.
    pub(super) fn receive(&mut self) {
        let mut packet = [0; LARGEST];
        let from = |address: SocketAddr| (address.ip(), address.port());
        for (index, (address, socket)) in self.servers.iter().enumerate() {
            for _ in 0..MOST_PACKETS {
                match socket.recv_from(&mut packet) {
                    // Until the socket was connected, any host could send to it.
                    Ok((length, source)) if from(source) == from(*address) => {
                        let packet = packet.get(..length).unwrap_or_default();
                        for asked in &mut self.asked {
                            take(asked, index, *address, packet, &mut self.trouble);
                        }
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // A closed port, or no route.
                    Err(e) => {
                        self.trouble = Some(unreached(*address, &e));
                        for asked in &mut self.asked {
                            asked.set_failed(index, true);
                        }
                    }
                }
            }
        }
    }

    /// Whether no further answer can come before the next [`Self::send`].
    pub(super) fn is_settled(&self) -> bool {
        self.asked.iter().all(SentQuestion::is_settled)
    }

    /// Whether an address is known.
    pub(super) fn has_addresses(&self) -> bool {
        self.asked.iter().any(|asked| matches!(asked.reply, Some((Reply::Addresses(..), _))))
    }

    /// The outcome so far. An address wins: some servers deny a name when asked for AAAA. `None`
    /// where no server has answered.
    pub(super) fn outcome(&self) -> Option<LookupResult> {
        let mut families = Vec::new();
        let mut holds = Duration::MAX;
        let mut denied = None;
        let mut empty = None;
        for (reply, server) in self.asked.iter().filter_map(|asked| asked.reply.as_ref()) {
            match reply {
                Reply::Addresses(addresses, ttl) => {
                    families.push(addresses.as_slice());
                    holds = holds.min(*ttl);
                }
                Reply::NoName => denied = Some(server),
                _ => empty = Some(server),
            }
        }
        if !families.is_empty() {
            return Some(LookupResult::Addresses(in_turn(&families), holds));
        }
        if let Some(server) = denied {
            let why = format!("no such name (NXDOMAIN) from {}", Shown(*server));
            return Some(LookupResult::NoName(why));
        }
        match (empty, self.asked.iter().all(|asked| asked.reply.is_some())) {
            (Some(server), true) => {
                let why = format!("the name has no address, says {}", Shown(*server));
                Some(LookupResult::NoAddress(why))
            }
            _ => self.trouble.clone().map(LookupResult::Failed),
        }
    }

    /// Waits for a packet, `at_most` this long.
    pub(super) fn wait(&self, at_most: Duration) {
        let mut sockets: Vec<PollFd<'_>> = self
            .servers
            .iter()
            .map(|(_, socket)| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
            .collect();
        // EINTR ends the wait early; the caller calls again.
        let _ = poll(&mut sockets, poll_timeout(at_most));
    }
}

fn take(
    asked: &mut SentQuestion,
    index: usize,
    server: SocketAddr,
    packet: &[u8],
    trouble: &mut Option<String>,
) {
    if asked.reply.is_some() {
        return;
    }
    match message::parse(packet, &asked.question) {
        Some(Reply::Failed(why)) => {
            *trouble = Some(format!("{why} from {}", Shown(server)));
            asked.set_failed(index, true);
        }
        Some(reply) => asked.reply = Some((reply, server)),
        None => {}
    }
}

/// IPv4 and IPv6 addresses in turn, so that a family without a route costs one attempt.
fn in_turn(families: &[&[IpAddr]]) -> Vec<IpAddr> {
    (0..MAX_ADDRESSES)
        .flat_map(|index| families.iter().filter_map(move |family| family.get(index)))
        .copied()
        .take(MAX_ADDRESSES)
        .collect()
}

fn open(server: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(server)?;
    Ok(socket)
}

/// Two different numbers that cannot be guessed: std seeds its hash maps from the kernel's random
/// numbers.
fn ids() -> (u16, u16) {
    let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_ne_bytes();
    let (a, b) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    (a, if a == b { !b } else { b })
}

fn unreached(server: SocketAddr, error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let cause = errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_ascii_lowercase());
    format!("name server {}: {cause}", Shown(server))
}

/// A server's address, without the standard port.
struct Shown(SocketAddr);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            PORT => self.0.ip().fmt(f),
            _ => self.0.fmt(f),
        }
    }
}
