//! The network: connections to the servers, and TLS at their side.
//!
//! A server is a `rustls::ServerConnection` that is fed with what the client writes, when it
//! arrives. Faults strike between flights, requests and parts of an answer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apidouble::Request;
use rustls::{ServerConfig, ServerConnection};

use super::clusters::SILENT;
use super::draw::draw;
use super::process::{Pid, Sleep};
use super::proxy;
use super::tcp::Input;
use super::trace::{Got, What};
use super::world::{Event, World};

/// Half of the time that a packet needs to a server and back, without a fault.
const HALF_TRIP: Duration = Duration::from_millis(10);

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Net {
    pub(crate) connections: BTreeMap<u64, Connection>,
    last: u64,
    /// What was sent, in either direction: the key of the draws about lost packets.
    pub(super) flights: u64,
}

/// One connection, seen from both sides.
pub(crate) struct Connection {
    pub(crate) pid: Pid,
    pub(crate) server: usize,
    /// The server's side of TLS; `None` until a proxy has opened its tunnel.
    tls: Option<ServerConnection>,
    /// What a proxy has read of the request for a tunnel, until the tunnel is open.
    pub(super) tunnel: Option<Vec<u8>>,
    has_shaken: bool,
    /// Bytes of a request that is not whole yet.
    request: Vec<u8>,
    /// What the client may read, and from when on.
    input: VecDeque<(Duration, Vec<u8>)>,
    /// The end of the input, and whether it is a reset.
    end: Option<(Duration, bool)>,
    /// The client's time limit of a read.
    pub(crate) limit: Option<Duration>,
    /// The client has closed it.
    is_closed: bool,
    /// What arrived while the server was silent.
    held: Vec<Vec<u8>>,
    /// The answer that is on its way as a whole.
    pub(crate) answer: Option<Got>,
    /// When its last bytes are at the client.
    answered: Duration,
    /// Its server showed the certificate of another CA.
    is_forged: bool,
    /// When the last bytes of the client arrive: TCP keeps their order.
    sent_until: Duration,
    /// When the last bytes were sent, in either direction.
    used: Duration,
    /// A balancer has forgotten the flow: no packet arrives any more.
    is_dropped: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Net {
    /// What a client finds now.
    pub(crate) fn input(&self, id: u64, now: Duration) -> Input {
        let Some(connection) = self.connections.get(&id) else { return Input::Reset };
        match (connection.input.front(), connection.end) {
            (Some((at, _)), _) if *at <= now => Input::Bytes,
            (_, Some((at, true))) if at <= now => Input::Reset,
            (None, Some((at, false))) if at <= now => Input::Closed,
            _ => Input::Nothing,
        }
    }

    /// Takes bytes that have arrived.
    pub(crate) fn take(&mut self, id: u64, now: Duration, buffer: &mut [u8]) -> usize {
        let Some(connection) = self.connections.get_mut(&id) else { return 0 };
        let mut taken = 0;
        while let Some((at, bytes)) = connection.input.front_mut() {
            if *at > now || taken == buffer.len() {
                break;
            }
            let length = bytes.len().min(buffer.len() - taken);
            buffer[taken..taken + length].copy_from_slice(&bytes[..length]);
            bytes.drain(..length);
            taken += length;
            if bytes.is_empty() {
                connection.input.pop_front();
            }
        }
        taken
    }
}

/// The address of a server in IPv6 that leads nowhere.
pub(crate) const DEAD: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xdead));

/// What a balancer does to an idle connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Idle {
    /// close_notify.
    Closed,
    /// The end of TCP alone.
    Cut,
    /// A reset, as the answer to the next packet.
    Reset,
    /// No answer to the next packets.
    Dropped,
}

/// Milliseconds after which lost data arrive.
const RETRANSMITTED: &[u64] = &[250, 600, 1500, 3000];

/// A connection that is never opened.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

impl World {
    /// How long a packet takes to a server or back.
    pub(crate) fn half_trip(&self) -> Duration {
        let slow = self.faults.size("slow-link").unwrap_or(0);
        HALF_TRIP + Duration::from_millis(slow)
    }

    /// How long so many bytes take, beside the trip. A signature has 70 to 72 bytes: in packets of
    /// a size, the time is the same in each run.
    fn transfer(&self, bytes: usize) -> Duration {
        const PACKET: u64 = 512;
        let whole = (bytes as u64).div_ceil(PACKET) * PACKET;
        match self.faults.size("narrow-link") {
            Some(per_second) => Duration::from_millis(whole * 1000 / per_second.max(1)),
            None => Duration::ZERO,
        }
    }

    /// How much later a packet arrives that is lost and sent again, in milliseconds.
    fn lost(&self, class: &'static str, delays: &[u64]) -> Duration {
        match self.faults.size(class) {
            Some(one_in) if self.is_met(class, self.net.flights, one_in) => {
                let index = draw(self.plan.seed, class, self.net.flights.wrapping_mul(31));
                let index = usize::try_from(index % delays.len() as u64).expect("an index");
                Duration::from_millis(delays[index])
            }
            _ => Duration::ZERO,
        }
    }

    /// When a packet arrives that is on its way at a time: a link that flutters is up for some
    /// seconds, and down for as many. What is sent meanwhile is sent again.
    pub(super) fn through_gap(&self, at: Duration) -> Duration {
        let Some(seconds) = self.faults.size("link-flutters") else { return at };
        let seconds = seconds.max(1);
        match (at.as_secs() / seconds) % 2 {
            1 => Duration::from_secs((at.as_secs() / seconds + 1) * seconds + 1),
            _ => at,
        }
    }

    /// How long a connect(2) to this address takes, and how it ends.
    pub(crate) fn connects(
        &mut self,
        pid: Pid,
        address: SocketAddr,
    ) -> (Duration, std::io::Result<()>) {
        use std::io::ErrorKind;
        self.net.flights += 1;
        let trip = self.half_trip() * 2 + self.lost("syn-lost", &[1000, 3000, 7000]);
        let trip = self.through_gap(self.now + trip) - self.now;
        if address == proxy::ADDRESS {
            let (takes, end) = self.connects_to_proxy(trip);
            if end.is_err() || takes == NEVER {
                self.tell(What::Connects { pid, address: address.to_string(), opened: false });
            }
            return (takes, end);
        }
        let server = self.servers.iter().position(|server| server.has(address));
        let (takes, end) = match server {
            _ if self.faults.has("no-network") => {
                (Duration::ZERO, Err(ErrorKind::NetworkUnreachable.into()))
            }
            None if address.ip().to_string() == SILENT => (NEVER, Ok(())),
            None if self.faults.has("dead-address") => (NEVER, Ok(())),
            // What is gone from the network, and an address of IPv6 that leads nowhere.
            None if address.ip() == DEAD || address.is_ipv4() && self.has_moved => (NEVER, Ok(())),
            None => (trip, Err(ErrorKind::ConnectionRefused.into())),
            _ if self.faults.has("partition") => (NEVER, Ok(())),
            Some(server) if self.faults.at("server-unreachable", server).is_some() => {
                (NEVER, Ok(()))
            }
            Some(server) if self.faults.at("server-gone", server).is_some() => {
                (trip, Err(ErrorKind::ConnectionRefused.into()))
            }
            Some(_) => (trip, Ok(())),
        };
        if end.is_err() || takes == NEVER {
            self.tell(What::Connects { pid, address: address.to_string(), opened: false });
        }
        (takes, end)
    }

    /// A connection is open.
    pub(crate) fn connected(&mut self, pid: Pid, address: SocketAddr) -> u64 {
        let is_proxy = address == proxy::ADDRESS;
        // A server may have moved since the connect(2): whoever is there now answers.
        let server = self.servers.iter().position(|server| server.has(address)).unwrap_or(0);
        self.net.last += 1;
        let id = self.net.last;
        let connection = Connection {
            pid,
            server,
            tls: (!is_proxy).then(|| self.new_tls(server)),
            tunnel: is_proxy.then(Vec::new),
            has_shaken: false,
            request: Vec::new(),
            input: VecDeque::new(),
            end: None,
            limit: None,
            is_closed: false,
            held: Vec::new(),
            answer: None,
            is_forged: self.faults.at("wrong-certificate", server).is_some(),
            answered: self.now,
            sent_until: self.now,
            used: self.now,
            is_dropped: false,
        };
        self.net.connections.insert(id, connection);
        self.tell(What::Connects { pid, address: address.to_string(), opened: true });
        id
    }

    fn new_tls(&mut self, server: usize) -> ServerConnection {
        let config: Arc<ServerConfig> = self.tls_of(server);
        ServerConnection::new(config).expect("a configuration of the simulation")
    }

    /// A proxy has opened the tunnel of a connection to a server.
    pub(super) fn tunnel_opens(&mut self, id: u64, server: usize) {
        let tls = self.new_tls(server);
        let is_forged = self.faults.at("wrong-certificate", server).is_some();
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        (connection.server, connection.tls, connection.tunnel) = (server, Some(tls), None);
        connection.is_forged = is_forged;
    }

    /// The client has written bytes.
    pub(crate) fn sent(&mut self, id: u64, bytes: &[u8]) {
        self.net.flights += 1;
        let later = self.lost("loss-out", RETRANSMITTED);
        let at = self.now + self.half_trip() + self.transfer(bytes.len()) + later;
        let (now, at, idle) = (self.now, self.through_gap(at), self.idle_end());
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let rests = now - std::mem::replace(&mut connection.used, now);
        match idle {
            Some((limit, Idle::Reset)) if rests > limit => return self.end_connection(id, true),
            Some((limit, Idle::Dropped)) if rests > limit => connection.is_dropped = true,
            _ => {}
        }
        let at = at.max(connection.sent_until);
        connection.sent_until = at;
        self.plan_at(at, Event::Arrives { connection: id, bytes: bytes.to_vec() });
    }

    /// The client has read bytes: perhaps the last ones of an answer.
    pub(crate) fn taken(&mut self, id: u64) {
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        // The end of the connection may follow the answer.
        let is_left = connection.input.front().is_some_and(|(at, _)| *at <= connection.answered);
        let read = connection.answer.take_if(|_| !is_left);
        if let Some(answer) = read.filter(|answer| !answer.is_broken) {
            self.tell(What::Got(answer));
        }
    }

    /// The bytes of an answer are on their way.
    pub(super) fn answer_is_sent(&mut self, id: u64) {
        if let Some(connection) = self.net.connections.get_mut(&id) {
            connection.answered = connection.input.back().map_or(self.now, |(at, _)| *at);
        }
    }

    /// What a balancer does to a connection after which idle time: a size of 83 is 8 s and the
    /// last of four ways.
    fn idle_end(&self) -> Option<(Duration, Idle)> {
        let size = self.faults.size("idle-ends")?;
        let how = match size % 10 {
            0 => Idle::Closed,
            1 => Idle::Cut,
            2 => Idle::Reset,
            _ => Idle::Dropped,
        };
        Some((Duration::from_secs(size / 10), how))
    }

    /// A connection may have been idle for long enough.
    pub(crate) fn is_idle(&mut self, id: u64) {
        let (now, idle) = (self.now, self.idle_end());
        let Some(connection) = self.net.connections.get(&id) else { return };
        match idle {
            Some((limit, how)) if now >= connection.used + limit => match how {
                Idle::Closed => self.close_connection(id),
                Idle::Cut => self.end_connection(id, false),
                Idle::Reset | Idle::Dropped => {}
            },
            _ => {}
        }
    }

    /// The client has closed the connection.
    pub(crate) fn closed(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        connection.is_closed = true;
        // The whole answer is there, and is too large to be read to its end.
        let unread = connection.answer.take().filter(|_| connection.answered <= now);
        if let Some(answer) = unread {
            self.tell(What::Got(Got { is_odd: true, ..answer }));
        }
        let at = now + self.half_trip();
        self.plan_at(at, Event::Closed { connection: id });
    }

    /// Bytes of a client have arrived at a server, or a server hears again.
    pub(crate) fn arrived(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        if connection.is_dropped {
            return;
        }
        connection.held.push(bytes);
        let (server, is_in_proxy) = (connection.server, connection.tunnel.is_some());
        let is_unheard = match is_in_proxy {
            true => self.is_proxy_unheard(),
            false => self.is_unheard(server),
        };
        if is_unheard {
            return;
        }
        if !is_in_proxy && self.faults.at("server-gone", server).is_some() {
            return self.end_connection(id, true);
        }
        let connection = self.net.connections.get_mut(&id).expect("it was found");
        let bytes = std::mem::take(&mut connection.held).concat();
        match is_in_proxy {
            true => self.asked_proxy(id, &bytes),
            false => self.decrypt(id, &bytes),
        }
    }

    fn decrypt(&mut self, id: u64, bytes: &[u8]) {
        self.set_double();
        let connection = self.net.connections.get_mut(&id).expect("it was found");
        let server = connection.server;
        let mut rest = bytes;
        let Some(tls) = &mut connection.tls else { return };
        if !connection.has_shaken && !rest.is_empty() && self.faults.has("handshake-fails") {
            // The alert handshake_failure, as of a server with no group or suite of ours.
            self.put_input(id, self.now, vec![21, 3, 3, 0, 2, 2, 40]);
            return self.end_connection(id, false);
        }
        let mut has_failed = false;
        while !rest.is_empty() {
            let read = tls.read_tls(&mut rest);
            has_failed = read.is_err() || tls.process_new_packets().is_err();
            if has_failed {
                break;
            }
            let mut text = [0; 8192];
            while let Ok(length @ 1..) = tls.reader().read(&mut text) {
                connection.request.extend_from_slice(&text[..length]);
            }
        }
        let has_shaken = !tls.is_handshaking() && !has_failed;
        let is_new = has_shaken && !std::mem::replace(&mut connection.has_shaken, has_shaken);
        let certificate = is_new.then(|| tls.peer_certificates().map(subject)).flatten();
        self.flush(id, &[]);
        if is_new && certificate.is_some() {
            self.note_certificate(id);
        }
        let forged = self.net.connections.get(&id).filter(|found| found.is_forged);
        // A join proves what it reads without a verified server, before anything secret is sent.
        if is_new && forged.is_some_and(|found| self.name_of(found.pid) != "nodelet join") {
            let text = format!("TLS with server {server}, whose certificate is of another CA");
            self.tell(What::Broken { sentence: 8, text });
        }
        if is_new {
            self.saw_certificate(id);
            let until = self.shown_until.filter(|_| certificate.is_some());
            self.tell(What::Handshake { server, certificate, until });
        }
        if has_failed {
            return self.end_connection(id, false);
        }
        let connection = self.net.connections.get_mut(&id).expect("it was found");
        match Request::parse(&connection.request) {
            Ok(Some(request)) => {
                let bytes: Vec<u8> = connection.request.drain(..request.bytes).collect();
                let is_forged = connection.is_forged;
                self.search_request(server, is_forged, &request, &bytes);
                self.take_request(id, request);
            }
            Ok(None) => {}
            Err(_) => self.end_connection(id, false),
        }
    }

    /// The certificates of the client of a connection.
    pub(crate) fn certificates(
        &self,
        id: u64,
    ) -> Option<Vec<rustls::pki_types::CertificateDer<'static>>> {
        let tls = self.net.connections.get(&id)?.tls.as_ref()?;
        tls.peer_certificates().map(<[_]>::to_vec)
    }

    /// Sends plaintext to the client, in parts that follow each other by a time, and what TLS wants
    /// to send.
    pub(crate) fn flush(&mut self, id: u64, parts: &[(&[u8], Duration)]) {
        self.net.flights += 1;
        let mut at = self.now + self.half_trip() + self.lost("loss-in", RETRANSMITTED);
        let mut sizes = Vec::new();
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let Some(tls) = &mut connection.tls else { return };
        for (part, pause) in parts.iter().copied().chain([(&[][..], Duration::ZERO)]) {
            let mut bytes = Vec::new();
            // rustls buffers 64 KiB.
            for some in part.chunks(16_384).chain([&[][..]]) {
                let _ = tls.writer().write_all(some);
                while tls.wants_write() && tls.write_tls(&mut bytes).is_ok() {}
            }
            at += pause;
            if !bytes.is_empty() {
                sizes.push((at, bytes));
            }
        }
        for (at, bytes) in sizes {
            let at = at + self.transfer(bytes.len());
            self.put_input(id, at, bytes);
        }
    }

    /// Bytes for the client, behind those that are under way.
    pub(super) fn put_input(&mut self, id: u64, at: Duration, bytes: Vec<u8>) {
        let (now, at, idle) = (self.now, self.through_gap(at), self.idle_end());
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        if connection.is_dropped {
            return;
        }
        let last = connection.input.back().map(|(at, _)| *at);
        let at = at.max(last.unwrap_or_default());
        connection.input.push_back((at, bytes));
        connection.used = now;
        self.plan_at(at, Event::Input { connection: id });
        if let Some((limit, _)) = idle {
            self.plan_at(now + limit, Event::Idle { connection: id });
        }
    }

    /// The server ends a connection as TLS wants it: with close_notify.
    pub(crate) fn close_connection(&mut self, id: u64) {
        if let Some(tls) = self.net.connections.get_mut(&id).and_then(|it| it.tls.as_mut()) {
            tls.send_close_notify();
        }
        self.flush(id, &[]);
        self.end_connection(id, false);
    }

    /// The server ends a connection after what it has sent, or resets it.
    pub(crate) fn end_connection(&mut self, id: u64, is_reset: bool) {
        let trip = self.half_trip();
        let now = self.now;
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let last = connection.input.back().map(|(at, _)| *at);
        let at = (now + trip).max(last.unwrap_or_default());
        connection.end.get_or_insert((at, is_reset));
        self.plan_at(at, Event::Input { connection: id });
    }

    /// The server ends each connection, as when it restarts.
    pub(crate) fn end_connections_of(&mut self, server: usize, is_reset: bool) {
        let of_server = self.net.connections.iter().filter(|(_, c)| c.server == server);
        for id in of_server.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end_connection(id, is_reset);
        }
    }

    /// A server hears again: TCP delivers what it held.
    pub(crate) fn deliver_held(&mut self) {
        let ids: Vec<u64> = self.net.connections.keys().copied().collect();
        for id in ids {
            let at = self.now + Duration::from_millis(200);
            self.plan_at(at, Event::Arrives { connection: id, bytes: Vec::new() });
        }
    }

    /// Forgets a connection that the client has closed.
    pub(crate) fn forget(&mut self, id: u64) {
        self.net.connections.remove(&id);
    }

    /// Whether the client of a connection still waits.
    pub(crate) fn is_awaited(&self, id: u64) -> bool {
        self.net.connections.get(&id).is_some_and(|connection| !connection.is_closed)
    }

    /// Wakes the client of a connection.
    pub(crate) fn rouse_reader(&mut self, id: u64) {
        if let Some(connection) = self.net.connections.get(&id) {
            let pid = connection.pid;
            let now = self.now;
            self.processes.rouse(pid, now, |sleep| sleep == Sleep::Connection(id));
        }
    }
}

/// The common name of a client's certificate, as the name of its user.
fn subject(chain: &[rustls::pki_types::CertificateDer<'static>]) -> String {
    let leaf = chain.first().and_then(|der| crate::kube::x509::Leaf::parse(der));
    leaf.map_or("a certificate".to_owned(), |leaf| {
        format!("{:?} until {:?}", leaf.subject, leaf.not_after)
    })
}
