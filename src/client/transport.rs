//! One connection to the API server: TCP, then TLS where the URL says so.
//!
//! Every wait ends at the deadline of the call, and every error is a [`Failure`]. A connection that
//! the server has closed is noticed before a request is sent over it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion};
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

use super::failure::{Failure, Stage};
use super::route::{NewConnection, Route};
use super::socket::{Peek, Socket, Tcp};
use super::tunnel;
use crate::os::clock::since_boot;

/// Most TLS messages without data between two requests: session tickets, key updates.
const IDLE_MESSAGES: usize = 8;

/// TCP, the proxy's tunnel and TLS together may take this many times as long as TCP alone, and
/// [`TLS_EXTRA`] more, even if other addresses wait for their turn: TLS has twice the round trips
/// of TCP, and more bytes. For example, after a second for TCP, TLS may take four seconds.
const TLS_PER_TCP: u32 = 4;
const TLS_EXTRA: Duration = Duration::from_secs(1);

/// Opens connections for ureq.
#[derive(Debug)]
pub(super) struct Dialer(pub(super) Arc<Route>);

impl Connector for Dialer {
    type Out = Connection;

    fn connect(
        &self,
        _: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let early = self.0.take_early().map(|early| Connection::over(&self.0, early));
        let connection = match early.and_then(|mut early| early.is_open().then_some(early)) {
            Some(early) => early,
            None => Connection::open(&self.0)?,
        };
        self.0.shorten_answer();
        Ok(Some(connection))
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    buffers: ConnectionBuffers,
    socket: Socket,
    /// None for `http`.
    tls: Option<Box<ClientConnection>>,
    /// The server answered, and [`Transport::is_open`] was not called since.
    has_answered: bool,
}

impl Connection {
    /// Opens the connection of the next request, within `budget`.
    pub(super) fn open_early(route: &Route, budget: Duration) -> Result<(), Failure> {
        route.deadline.begin(budget);
        let mut connection = Self::open(route)?;
        // Sends the last message of the handshake, so that the server can check our certificate
        // before the request comes.
        connection.flush()?;
        route.set_early((connection.socket, connection.tls));
        Ok(())
    }

    /// Opens a connection to one of the addresses.
    fn open(route: &Route) -> Result<Self, Failure> {
        route.connect(|address, shares, limit| Self::open_to(route, address, shares, limit))
    }

    /// TCP, the proxy's tunnel and TLS, within the time that is left divided by `shares`; TCP alone
    /// within `limit`.
    fn open_to(
        route: &Route,
        address: SocketAddr,
        shares: usize,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let failure = |e| {
            let failure = Failure::io(&e, Stage::Connecting);
            route.at_first_hop(failure.or_loopback(address, route.proxy.is_some()))
        };
        let shares = u32::try_from(shares).unwrap_or(u32::MAX).max(1);
        let share = route.deadline.left().map_err(failure)? / shares;
        let share = share.max(Duration::from_millis(1));
        let start = since_boot();
        let stream = Tcp::connect_timeout(&address, share.min(limit)).map_err(failure)?;
        let tcp = since_boot().saturating_sub(start);
        // TLS may take what TCP has left of the share, or more after a slow TCP.
        let opens_in =
            share.saturating_sub(tcp).max(tcp.saturating_mul(TLS_PER_TCP - 1) + TLS_EXTRA);
        let mut socket = Socket::new(stream, route.deadline.clone(), opens_in).map_err(failure)?;
        if let Some(proxy) = &route.proxy {
            tunnel::open(&mut socket, proxy, &route.endpoint).map_err(|e| e.via(proxy))?;
        }
        let tls = match &route.tls {
            Some((config, name)) => Some(handshake(config.clone(), name, &mut socket)?),
            None => None,
        };
        socket.opened();
        route.opened(&socket.stream);
        Ok(Self::over(route, (socket, tls)))
    }

    /// A connection that is set up already.
    fn over(route: &Route, (socket, tls): NewConnection) -> Self {
        let buffers =
            ConnectionBuffers { credentials: route.credentials.clone(), ..<_>::default() };
        Self { buffers, socket, tls, has_answered: false }
    }

    /// Sends the output, as [`Self::flush`] does, and finds the cause of a failure. A server that
    /// refuses our certificate sends an alert and closes the connection, so the output cannot be
    /// sent, and the alert has the cause. After a time-out no time is left to read an alert.
    fn send(&mut self) -> Result<(), Failure> {
        match self.flush() {
            Err(failure @ Failure::Other(_)) => match self.fill() {
                Err(alert @ Failure::Tls(..)) => Err(alert),
                _ => Err(failure),
            },
            result => result,
        }
    }

    /// Sends the output that is not sent yet, and the messages that rustls holds.
    fn flush(&mut self) -> Result<(), Failure> {
        let failure = |e| Failure::io(&e, Stage::Sending);
        let mut rest = self.buffers.unsent();
        match &mut self.tls {
            None => self.socket.write_all(rest).map_err(failure)?,
            Some(tls) => loop {
                // rustls takes up to 64 KiB at a time.
                let taken = tls.writer().write(rest).map_err(failure)?;
                rest = rest.get(taken..).unwrap_or_default();
                while tls.wants_write() {
                    tls.write_tls(&mut self.socket).map_err(failure)?;
                }
                if rest.is_empty() {
                    break;
                }
            },
        }
        self.buffers.sent();
        Ok(())
    }

    /// Reads bytes of the answer; 0 where the server ended the connection with close_notify.
    fn fill(&mut self) -> Result<usize, Failure> {
        let stage = Stage::Answer;
        let room = self.buffers.input_append_buf();
        if room.is_empty() {
            return Err(Failure::other(format!(
                "the head of the answer is larger than {HEAD_LIMIT} bytes"
            )));
        }
        let Some(tls) = &mut self.tls else {
            return self.socket.read(room).map_err(|e| Failure::io(&e, stage));
        };
        loop {
            match tls.reader().read(room) {
                Ok(amount) => return Ok(amount),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => {
                    return Err(Failure::closed(stage));
                }
                Err(e) => return Err(Failure::io(&e, stage)),
            }
            // The certificate, whose failure names a host, was verified in the handshake.
            read_tls(tls, &mut self.socket, stage, "the server")?;
        }
    }

    /// Reads TLS messages that a server may send without a request. False if the server sent data,
    /// too many messages, or the end of the connection.
    fn has_no_input(&mut self) -> io::Result<bool> {
        for _ in 0..IDLE_MESSAGES {
            let seen = self.socket.stream.peek();
            let Some(tls) = &mut self.tls else {
                return Ok(matches!(seen, Peek::Nothing));
            };
            if matches!(seen, Peek::Bytes) {
                // Without a deadline: the socket still has the deadline of the last request, which
                // may have passed. The bytes are there, so the read does not wait.
                tls.read_tls(&mut self.socket.stream.without_deadline())?;
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            if state.peer_has_closed() || state.plaintext_bytes_to_read() > 0 {
                return Ok(false);
            }
            match seen {
                Peek::Nothing => return Ok(true),
                Peek::Closed => return Ok(false),
                Peek::Bytes => {}
            }
        }
        Ok(false)
    }
}

/// The last message of the handshake stays in rustls and leaves with the first request.
fn handshake(
    config: Arc<ClientConfig>,
    name: &ServerName<'static>,
    socket: &mut Socket,
) -> Result<Box<ClientConnection>, Failure> {
    let stage = Stage::Handshake;
    let host = name.to_str();
    let tls = ClientConnection::new(config, name.clone());
    let tls = tls.map_err(|e| Failure::tls(&e, &host, false))?;
    let mut tls = Box::new(tls);
    while tls.is_handshaking() {
        while tls.wants_write() {
            tls.write_tls(socket).map_err(|e| Failure::io(&e, stage))?;
        }
        if tls.is_handshaking() && read_tls(&mut tls, socket, stage, &host)? == 0 {
            return Err(Failure::closed(stage));
        }
    }
    Ok(tls)
}

/// Reads TLS messages of the server. Returns the number of bytes; 0 at the end of the stream.
fn read_tls(
    tls: &mut ClientConnection,
    socket: &mut Socket,
    stage: Stage,
    host: &str,
) -> Result<usize, Failure> {
    let amount = tls.read_tls(socket).map_err(|e| Failure::io(&e, stage))?;
    if let Err(error) = tls.process_new_packets() {
        // The alert that tells the server why; it fits into any send buffer.
        let _ = tls.write_tls(socket);
        return Err(Failure::tls(&error, host, is_of_server(tls)));
    }
    Ok(amount)
}

/// Whether an alert is of the server: its certificate was verified. In TLS 1.2 a hello that resumes
/// a session proves nothing, and its alerts have no key yet.
fn is_of_server(tls: &ClientConnection) -> bool {
    let is_resumed = tls.handshake_kind() == Some(HandshakeKind::Resumed);
    let has_keys = tls.protocol_version() == Some(ProtocolVersion::TLSv1_3) || !is_resumed;
    tls.peer_certificates().is_some() && has_keys
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    /// Collects the output, and sends it each time that [`RECORD`] bytes are collected.
    /// [`Transport::await_input`], which always follows, sends the rest.
    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        self.buffers.written += amount;
        if self.buffers.written >= RECORD {
            self.send()?;
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        self.send()?;
        let amount = self.fill()?;
        self.has_answered = amount > 0;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// ureq calls this after each answer, and again before the next request. Only the second call
    /// looks at the connection.
    fn is_open(&mut self) -> bool {
        std::mem::take(&mut self.has_answered) || self.has_no_input().unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}

/// Bytes: least room offered to ureq for a head without its credentials: each line of it must fit.
const OUTPUT: usize = 4096;
/// Bytes of output that are kept between requests: the head and the body of a status report.
const KEPT: usize = 8192;
/// Bytes: a full TLS record; output is sent when this much is collected.
const RECORD: usize = 16 << 10;
/// Bytes: room offered to the network at a time, and kept between requests.
const INPUT: usize = 4096;
/// Bytes: largest head of an answer; a kube-apiserver's is 0.6 KiB.
pub(super) const HEAD_LIMIT: usize = 16 << 10;

/// The bytes between ureq and a connection, sized for a board.
///
/// ureq's own buffers grow to 10 KiB with every request that has a body, and end the connection
/// when the head of an answer does not fit. These buffers grow with their content and shrink when
/// it is consumed. Output is collected, so that head and body of a request leave as one TLS record.
#[derive(Debug, Default)]
struct ConnectionBuffers {
    output: Vec<u8>,
    /// Bytes of the credentials in a head: a token may have some ten KiB.
    credentials: Arc<AtomicUsize>,
    /// Number of bytes of `output` that are not sent yet.
    written: usize,
    input: Vec<u8>,
    /// `input[consumed..filled]` was received and is not consumed yet.
    consumed: usize,
    filled: usize,
    progress: bool,
}

impl ConnectionBuffers {
    /// All bytes that are not sent yet.
    fn unsent(&self) -> &[u8] {
        debug_assert!(self.written <= self.output.len(), "{} written", self.written);
        self.output.get(..self.written).unwrap_or_default()
    }

    /// All output was sent. The buffer is not overwritten: it may hold the token, which the
    /// configuration keeps in memory anyway.
    fn sent(&mut self) {
        self.written = 0;
        if self.output.len() > KEPT {
            self.output = Vec::new();
        }
    }
}

impl Buffers for ConnectionBuffers {
    fn output(&mut self) -> &mut [u8] {
        let credentials = self.credentials.load(Ordering::Relaxed);
        if self.output.len() < self.written + OUTPUT + credentials {
            resize(&mut self.output, self.written + KEPT.max(OUTPUT + credentials));
        }
        self.output.get_mut(self.written..).unwrap_or_default()
    }

    fn input(&self) -> &[u8] {
        self.input.get(self.consumed..self.filled).unwrap_or_default()
    }

    fn input_append_buf(&mut self) -> &mut [u8] {
        if self.consumed > 0 {
            self.input.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.consumed = 0;
        }
        // ureq fails above HEAD_LIMIT, so it must be able to receive more than that.
        let room = INPUT.min((HEAD_LIMIT + INPUT).saturating_sub(self.filled));
        let end = self.filled + room;
        if self.input.len() != end {
            resize(&mut self.input, end);
        }
        self.input.get_mut(self.filled..).unwrap_or_default()
    }

    fn input_appended(&mut self, amount: usize) {
        debug_assert!(self.filled + amount <= self.input.len(), "{amount} received");
        self.filled = self.input.len().min(self.filled + amount);
    }

    fn input_consume(&mut self, amount: usize) {
        self.progress = amount > 0;
        debug_assert!(self.consumed + amount <= self.filled, "{amount} consumed");
        self.consumed = self.filled.min(self.consumed + amount);
    }

    fn tmp_and_output(&mut self) -> (&mut [u8], &mut [u8]) {
        // The first buffer is for chunked requests, which are never sent.
        (&mut [], self.output())
    }

    fn can_use_input(&self) -> bool {
        self.progress && !self.input().is_empty()
    }
}

/// `Vec::resize` writes each new byte in a loop at `opt-level = "z"`. This function copies the old
/// bytes instead, of which there mostly are none.
fn resize(buffer: &mut Vec<u8>, length: usize) {
    let mut sized = vec![0; length];
    for (new, old) in sized.iter_mut().zip(buffer.iter()) {
        *new = *old;
    }
    *buffer = sized;
}

/// The resolver for ureq, which finds no address; the connector needs none.
///
/// ureq asks its resolver before every request, even over a kept connection, and its own resolver
/// starts a thread each time. `route` looks names up instead, when it connects.
#[derive(Debug)]
pub(super) struct NoLookup;

impl Resolver for NoLookup {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        Ok(self.empty())
    }
}
