//! The network: connections to the servers, TLS at their side, and packets of DNS.
//!
//! A server is a `rustls::ServerConnection` that is fed with what the client writes, when it
//! arrives. Faults strike between flights, requests and parts of an answer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apidouble::Request;
use rustls::{ServerConfig, ServerConnection};

use super::process::{Pid, Sleep};
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
}

/// One connection, seen from both sides.
pub(crate) struct Connection {
    pub(crate) pid: Pid,
    pub(crate) server: usize,
    /// The server's side of TLS; `None` for HTTP.
    tls: Option<ServerConnection>,
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
    /// Its server showed the certificate of another CA.
    is_forged: bool,
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

impl World {
    /// How long a packet takes to a server or back.
    pub(crate) fn half_trip(&self) -> Duration {
        let slow = self.faults.size("slow-link").unwrap_or(0);
        HALF_TRIP + Duration::from_millis(slow)
    }

    /// How long so many bytes take, beside the trip.
    fn transfer(&self, bytes: usize) -> Duration {
        match self.faults.size("narrow-link") {
            Some(per_second) => Duration::from_millis(bytes as u64 * 1000 / per_second.max(1)),
            None => Duration::ZERO,
        }
    }

    /// How long a connect(2) to this address takes, and how it ends.
    pub(crate) fn connects(
        &mut self,
        pid: Pid,
        address: SocketAddr,
    ) -> (Duration, std::io::Result<()>) {
        use std::io::ErrorKind;
        const NEVER: Duration = Duration::from_secs(3600);
        let trip = self.half_trip() * 2;
        let server = self.servers.iter().position(|server| server.address == address);
        let (takes, end) = match server {
            _ if self.faults.has("no-network") => {
                (Duration::ZERO, Err(ErrorKind::NetworkUnreachable.into()))
            }
            None if self.faults.has("dead-address") => (NEVER, Ok(())),
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
        let server = self.servers.iter().position(|server| server.address == address);
        let server = server.expect("it was connected to");
        self.net.last += 1;
        let id = self.net.last;
        let config: Arc<ServerConfig> = self.tls_of(server);
        let connection = Connection {
            pid,
            server,
            tls: Some(ServerConnection::new(config).expect("a configuration of the simulation")),
            has_shaken: false,
            request: Vec::new(),
            input: VecDeque::new(),
            end: None,
            limit: None,
            is_closed: false,
            held: Vec::new(),
            answer: None,
            is_forged: self.faults.at("wrong-certificate", server).is_some(),
        };
        self.net.connections.insert(id, connection);
        self.tell(What::Connects { pid, address: address.to_string(), opened: true });
        id
    }

    /// The client has written bytes.
    pub(crate) fn sent(&mut self, id: u64, bytes: &[u8]) {
        let at = self.now + self.half_trip() + self.transfer(bytes.len());
        self.plan_at(at, Event::Arrives { connection: id, bytes: bytes.to_vec() });
    }

    /// The client has read bytes: perhaps the last ones of an answer.
    pub(crate) fn taken(&mut self, id: u64) {
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        if connection.input.is_empty()
            && let Some(answer) = connection.answer.take()
        {
            self.tell(What::Got(answer));
        }
    }

    /// The client has closed the connection.
    pub(crate) fn closed(&mut self, id: u64) {
        if let Some(connection) = self.net.connections.get_mut(&id) {
            connection.is_closed = true;
            let at = self.now + self.half_trip();
            self.plan_at(at, Event::Closed { connection: id });
        }
    }

    /// Bytes of a client have arrived at a server.
    pub(crate) fn arrived(&mut self, id: u64, bytes: Vec<u8>) {
        let Some(connection) = self.net.connections.get(&id) else { return };
        let server = connection.server;
        if self.is_unheard(server) {
            let connection = self.net.connections.get_mut(&id).expect("it was found");
            connection.held.push(bytes);
            return;
        }
        if self.faults.at("server-gone", server).is_some() {
            return self.end_connection(id, true);
        }
        self.set_double();
        let connection = self.net.connections.get_mut(&id).expect("it was found");
        let mut rest = bytes.as_slice();
        let Some(tls) = &mut connection.tls else { return };
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
        if is_new && self.net.connections.get(&id).is_some_and(|found| found.is_forged) {
            let text = format!("TLS with server {server}, whose certificate is of another CA");
            self.tell(What::Broken { sentence: 8, text });
        }
        if is_new {
            self.tell(What::Handshake { server, certificate });
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
        let trip = self.half_trip();
        let mut at = self.now + trip;
        let mut sizes = Vec::new();
        let Some(connection) = self.net.connections.get_mut(&id) else { return };
        let Some(tls) = &mut connection.tls else { return };
        for (part, pause) in parts.iter().copied().chain([(&[][..], Duration::ZERO)]) {
            let _ = tls.writer().write_all(part);
            let mut bytes = Vec::new();
            while tls.wants_write() {
                if tls.write_tls(&mut bytes).is_err() {
                    break;
                }
            }
            at += pause;
            if !bytes.is_empty() {
                sizes.push((at, bytes));
            }
        }
        for (at, bytes) in sizes {
            let last =
                self.net.connections.get(&id).and_then(|c| c.input.back()).map(|(at, _)| *at);
            let at = (at + self.transfer(bytes.len())).max(last.unwrap_or_default());
            let connection = self.net.connections.get_mut(&id).expect("it was found");
            connection.input.push_back((at, bytes));
            self.plan_at(at, Event::Input { connection: id });
        }
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
            let Some(connection) = self.net.connections.get_mut(&id) else { continue };
            for bytes in std::mem::take(&mut connection.held) {
                let at = self.now + Duration::from_millis(200);
                self.plan_at(at, Event::Arrives { connection: id, bytes });
            }
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

    // --- DNS ---

    /// A packet to a name server.
    pub(crate) fn dns_sent(
        &mut self,
        pid: Pid,
        servers: &[SocketAddr],
        index: usize,
        packet: &[u8],
    ) -> Result<(), String> {
        let server = servers[index];
        if self.faults.has("no-network") {
            return Err(format!("name server {}: network is unreachable", server.ip()));
        }
        if self.faults.has("dns-silent") || self.faults.has("partition") {
            return Ok(());
        }
        let Some((name, kind)) = question(packet) else { return Ok(()) };
        if kind == AAAA && self.faults.has("dns-aaaa-silent") {
            return Ok(());
        }
        let code = match () {
            () if self.faults.has("dns-servfail") => 2,
            () if self.faults.has("dns-nxdomain") => 3,
            () => u8::from(!self.names.contains_key(&name)) * 3,
        };
        let addresses = self.names.get(&name).filter(|_| code == 0).cloned().unwrap_or_default();
        let answer = reply(packet, code, kind, &addresses);
        let at = self.now + self.half_trip() * 2;
        let process = self.processes.get_mut(pid).expect("it lives");
        process.packets.push((at, server, Ok(answer)));
        Ok(())
    }

    /// The packets that have arrived.
    pub(crate) fn dns_received(
        &mut self,
        pid: Pid,
        servers: &[SocketAddr],
    ) -> Vec<(usize, Result<Vec<u8>, String>)> {
        let now = self.now;
        let process = self.processes.get_mut(pid).expect("it lives");
        let mut arrived = Vec::new();
        process.packets.retain(|(at, server, packet)| {
            let index = servers.iter().position(|known| known == server);
            if let Some(index) = index
                && *at <= now
            {
                arrived.push((index, packet.clone()));
            }
            *at > now
        });
        arrived
    }
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// Name and type of a question.
fn question(packet: &[u8]) -> Option<(String, u16)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let length = usize::from(*packet.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?);
    Some((labels.join("."), kind))
}

/// The answer to a question, with this code.
fn reply(packet: &[u8], code: u8, kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let mut name_end = 12;
    while packet[name_end] != 0 {
        name_end += usize::from(packet[name_end]) + 1;
    }
    let question = &packet[12..name_end + 5];
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(v4), A) => Some(v4.octets().to_vec()),
            (IpAddr::V6(v6), AAAA) => Some(v6.octets().to_vec()),
            _ => None,
        })
        .collect();
    let count = u16::try_from(records.len()).expect("few addresses").to_be_bytes();
    let mut answer =
        vec![packet[0], packet[1], 0x81, 0x80 | code, 0, 1, count[0], count[1], 0, 0, 0, 0];
    answer.extend_from_slice(question);
    for record in records {
        answer.extend_from_slice(&[0xc0, 12]);
        answer.extend_from_slice(&kind.to_be_bytes());
        answer.extend_from_slice(&[0, 1, 0, 0, 0, 30]);
        answer.extend_from_slice(&u16::try_from(record.len()).expect("16").to_be_bytes());
        answer.extend_from_slice(&record);
    }
    answer
}

/// The common name of a client's certificate, as the name of its user.
fn subject(chain: &[rustls::pki_types::CertificateDer<'static>]) -> String {
    let leaf = chain.first().and_then(|der| crate::kube::x509::Leaf::parse(der));
    leaf.map_or("a certificate".to_owned(), |leaf| {
        format!("{:?} until {:?}", leaf.subject, leaf.not_after)
    })
}
