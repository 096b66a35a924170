//! The connections. Each is a state with a time limit, TLS, and the bytes of one head.
//!
//! A connection reads at most 4 KiB in a turn, so no client keeps the other clients waiting. It
//! reads nothing while an answer is sent. Time is an argument, so the tests need no waiting.

use std::cell::OnceCell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::{ServerConfig, ServerConnection};
use zeroize::Zeroizing;

use super::access::User;
use super::client_ca::{ClientCa, Verified};
use super::head::{self, Head};
use super::journal::Journal;
use crate::kube::instant::Mono;
use crate::kube::time::Wall;

/// Most connections. A scraper keeps one.
pub(super) const MOST: usize = 8;
/// A connection is not closed to make room for another one in the first 2 s of a handshake, of a
/// head, or of the wait for its first request: its link may be slow.
const YOUNG: Duration = Duration::from_secs(2);
/// Most bytes of one read.
const READ: usize = 4 << 10;
/// Most bytes that a client may send before the handshake is complete: a certificate chain has
/// less.
const LONGEST_HANDSHAKE: usize = 32 << 10;
/// The first byte of TLS: a record of the handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 0x16;
/// What Go's server says to a client that does not speak TLS.
const NOT_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS \
                         server.\n";

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    /// TLS is being set up.
    Handshake,
    /// A head has begun.
    Head,
    /// An answer is being sent.
    Answer,
    /// An answer with the journal is being sent, or awaited from `nodelet logs`.
    Journal,
    /// Nothing is asked.
    Idle,
    /// The last answer is sent. What the client still sends is read and dropped: if a socket is
    /// closed with unread bytes, the kernel sends a reset, and the client can lose the answer (RFC
    /// 9112, section 9.6).
    Closing,
}

impl ConnectionState {
    /// How long a connection may be in this state. The 40 s of `Journal` begin anew each time the
    /// client has taken 4 KiB, and are longer than the 30 s of `nodelet logs`. After these 30 s
    /// only the content of the socket's buffer is left to send. So the slowest client that is
    /// served takes 100 bytes a second (4 KiB in 40 s), for half an hour.
    pub(super) fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Handshake | Self::Answer => 10,
            Self::Journal => 40,
            Self::Head => 5,
            Self::Idle => 90,
            Self::Closing => 1,
        })
    }
}

/// What follows a turn of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionNext {
    /// Wait for the client.
    Wait,
    /// [`PortConnection::head`] may have a request, or what is none.
    Answer,
    /// The connection is over.
    Close,
}

/// A connection. Without Debug: its head may have a token.
pub(super) struct PortConnection {
    /// It never blocks.
    pub(super) stream: TcpStream,
    /// Where it is from.
    pub(super) peer: IpAddr,
    tls: ServerConnection,
    pub(super) state: ConnectionState,
    /// From when on the limit of the state counts.
    pub(super) since: Mono,
    /// Bytes of the handshake.
    received: usize,
    /// The bytes of the head so far. Erased when dropped: a head may have a token.
    head: Zeroizing<Vec<u8>>,
    /// An answer has begun.
    pub(super) was_answered: bool,
    /// The answer under way is the last one.
    is_last: bool,
    /// The rest of the answer under way.
    journal: Option<Journal>,
    /// Whom the client certificate names, once it was verified.
    verified: OnceCell<Verified>,
}

impl PortConnection {
    pub(super) fn new(
        stream: TcpStream,
        peer: IpAddr,
        tls: Arc<ServerConfig>,
        now: Mono,
    ) -> Result<Self, String> {
        let mut tls = ServerConnection::new(tls).map_err(|e| format!("tls: {e}"))?;
        // The answers are ours, and short.
        tls.set_buffer_limit(None);
        Ok(Self {
            stream,
            peer,
            tls,
            state: ConnectionState::Handshake,
            since: now,
            received: 0,
            head: Zeroizing::default(),
            was_answered: false,
            is_last: false,
            journal: None,
            verified: OnceCell::new(),
        })
    }

    /// When it is closed, unless the client does something.
    pub(super) fn deadline(&self) -> Mono {
        self.since.after(self.state.limit())
    }

    /// From when on this connection may be closed to make room for a new one; `None` while it is
    /// sent an answer.
    fn spare_from(&self) -> Option<Mono> {
        match self.state {
            ConnectionState::Answer | ConnectionState::Journal => None,
            _ if self.is_content() => Some(self.since),
            _ => Some(self.since.after(YOUNG)),
        }
    }

    /// Whether its client has what it asked for.
    fn is_content(&self) -> bool {
        let is_quiet = matches!(self.state, ConnectionState::Idle | ConnectionState::Closing);
        is_quiet && self.was_answered
    }

    pub(super) fn wants_read(&self) -> bool {
        !matches!(self.state, ConnectionState::Answer | ConnectionState::Journal)
    }

    pub(super) fn has_journal(&self) -> bool {
        self.journal.is_some()
    }

    /// The descriptor of the journal, if the connection waits for bytes of the journal and not for
    /// its client.
    pub(super) fn awaited(&self) -> Option<BorrowedFd<'_>> {
        self.journal.as_ref().filter(|_| !self.wants_write()).map(Journal::as_fd)
    }

    pub(super) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Writes and reads what is possible without waiting.
    pub(super) fn turn(&mut self, now: Mono) -> ConnectionNext {
        let sent = self.send(now).and_then(|()| self.pass_on(now));
        sent.and_then(|()| self.receive(now)).unwrap_or(ConnectionNext::Close)
    }

    /// Shuts down the sending side. The client's bytes can still be read.
    fn finish(&mut self, now: Mono) {
        let _ = self.stream.shutdown(Shutdown::Write);
        self.enter(ConnectionState::Closing, now);
    }

    fn enter(&mut self, state: ConnectionState, now: Mono) {
        (self.state, self.since) = (state, now);
    }

    fn send(&mut self, now: Mono) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        if !self.wants_read() && !self.has_journal() {
            if self.is_last {
                self.finish(now);
            } else {
                self.enter(ConnectionState::Idle, now);
            }
        }
        Ok(())
    }

    /// Reads the next bytes of the journal and sends them, if all bytes before are sent. So at most
    /// one read of 4 KiB is in memory.
    fn pass_on(&mut self, now: Mono) -> io::Result<()> {
        let is_busy = self.wants_write();
        let Some(journal) = self.journal.as_mut().filter(|_| !is_busy) else {
            return Ok(());
        };
        let mut buffer = [0; READ];
        match journal.read(&mut buffer) {
            None => return Ok(()),
            Some([]) => {
                self.journal = None;
                self.tls.send_close_notify();
            }
            Some(bytes) => self.tls.writer().write_all(bytes)?,
        }
        self.since = now;
        self.send(now)
    }

    /// Called when the time limit is over. If the connection waits for a journal that
    /// `nodelet logs` has not ended, the journal is cut and its last line is sent. Returns false if
    /// the connection must be closed.
    pub(super) fn outlives(&mut self, now: Mono) -> bool {
        let is_awaited = self.awaited().is_some();
        if let Some(journal) = self.journal.as_mut().filter(|_| is_awaited) {
            journal.cut();
            return self.pass_on(now).is_ok();
        }
        false
    }

    fn receive(&mut self, now: Mono) -> io::Result<ConnectionNext> {
        if !self.wants_read() {
            return Ok(ConnectionNext::Wait);
        }
        let mut buffer = [0; READ];
        let bytes = match self.stream.read(&mut buffer) {
            Ok(0) => return Ok(ConnectionNext::Close),
            Ok(length) => buffer.get(..length).unwrap_or_default(),
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {
                return Ok(ConnectionNext::Wait);
            }
            Err(e) => return Err(e),
        };
        if self.state == ConnectionState::Closing {
            return Ok(ConnectionNext::Wait);
        }
        if self.state == ConnectionState::Handshake {
            if self.received == 0 && bytes.first() != Some(&HANDSHAKE_RECORD) {
                // The buffer of a new socket has room for this hint. If it has none, the client
                // only misses the hint.
                let _ = self.stream.write(NOT_TLS)?;
                self.was_answered = true;
                self.finish(now);
                return Ok(ConnectionNext::Wait);
            }
            self.received += bytes.len();
            if self.received > LONGEST_HANDSHAKE {
                return Ok(ConnectionNext::Close);
            }
        }
        self.decrypt(bytes, now)
    }

    fn decrypt(&mut self, mut bytes: &[u8], now: Mono) -> io::Result<ConnectionNext> {
        let before = self.head.len();
        let mut is_over = false;
        while !bytes.is_empty() && !is_over {
            is_over = self.tls.read_tls(&mut bytes)? == 0;
            if let Err(e) = self.tls.process_new_packets() {
                // Sends the alert of TLS. An error changes nothing: the connection ends.
                let _ = self.tls.write_tls(&mut self.stream);
                return Err(io::Error::new(ErrorKind::InvalidData, e));
            }
            is_over |= self.take_plaintext()?;
        }
        if self.state == ConnectionState::Handshake && !self.tls.is_handshaking() {
            self.enter(ConnectionState::Idle, now);
        }
        if self.state == ConnectionState::Idle && !self.head.is_empty() {
            self.enter(ConnectionState::Head, now);
        }
        self.send(now)?;
        let may_end = head::may_end(&self.head, before) || self.head.len() > head::LONGEST;
        Ok(match self.state {
            ConnectionState::Head if may_end => ConnectionNext::Answer,
            _ if is_over => ConnectionNext::Close,
            _ => ConnectionNext::Wait,
        })
    }

    /// Moves plaintext to the head. Returns whether the client has ended TLS.
    fn take_plaintext(&mut self) -> io::Result<bool> {
        let mut buffer = [0; READ];
        loop {
            match self.tls.reader().read(&mut buffer) {
                Ok(0) => return Ok(true),
                // More than the longest head is dropped: the head is refused.
                Ok(length) if self.head.len() <= head::LONGEST => {
                    self.head.extend_from_slice(buffer.get(..length).unwrap_or_default());
                }
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
    }

    /// The request that is to be answered, if there is one.
    pub(super) fn head(&self) -> Head<'_> {
        head::parse(&self.head)
    }

    /// The user that the client certificate names, if there is one; the error says why it is no
    /// credential. Its signatures are verified once a connection, its dates at each request.
    pub(super) fn user(&self, ca: &ClientCa, now: Wall) -> Result<Option<&User>, String> {
        let Some(chain) = self.tls.peer_certificates() else {
            return Ok(None);
        };
        let is_valid = |v: &&Verified| v.from <= now && now <= v.until;
        if self.verified.get().filter(is_valid).is_none() {
            let verified = ca.verify(chain, now)?;
            let _ = self.verified.set(verified);
        }
        Ok(self.verified.get().map(|verified| &verified.user))
    }

    /// The next request verifies the client certificate again: the CA is another one.
    pub(super) fn forget_user(&mut self) {
        self.verified = OnceCell::new();
    }

    /// Begins to send `bytes`, the rendered answer to the request in [`PortConnection::head`]. An
    /// answer with a journal is the last one of its connection.
    pub(super) fn answer(
        &mut self,
        bytes: &[u8],
        is_last: bool,
        journal: Option<Journal>,
        now: Mono,
    ) -> ConnectionNext {
        let state = match journal {
            Some(_) => ConnectionState::Journal,
            None => ConnectionState::Answer,
        };
        (self.was_answered, self.is_last, self.journal) = (true, is_last, journal);
        self.head = Zeroizing::default();
        self.enter(state, now);
        let sent = self.tls.writer().write_all(bytes).and_then(|()| {
            if is_last && !self.has_journal() {
                self.tls.send_close_notify();
            }
            self.send(now)
        });
        if sent.is_ok() { ConnectionNext::Wait } else { ConnectionNext::Close }
    }
}

/// The open connections, at most [`MOST`].
pub(super) struct PortConnections(pub(super) Vec<PortConnection>);

impl PortConnections {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(MOST))
    }

    /// From when on there is room for a new connection; `None` while each of [`MOST`] connections
    /// is sent an answer.
    pub(super) fn room(&self) -> Option<Mono> {
        if self.0.len() < MOST {
            return Some(Mono::START);
        }
        self.0.iter().filter_map(PortConnection::spare_from).min()
    }

    /// Adds a connection. If there is no room, a connection is closed: the one that has been idle
    /// longest after an answer, or, if none is idle, the one that has been longest in its
    /// handshake, its head or the wait for its first request. If none may be closed yet, the new
    /// connection is closed.
    pub(super) fn add(&mut self, new: PortConnection, now: Mono) {
        if self.0.len() >= MOST {
            let is_spare = |c: &PortConnection| c.spare_from().is_some_and(|from| from <= now);
            let spare = self.0.iter().enumerate().filter(|(_, connection)| is_spare(connection));
            let order = |c: &PortConnection| (!c.is_content(), c.since);
            let Some((index, _)) = spare.min_by_key(|(_, connection)| order(connection)) else {
                return;
            };
            self.0.swap_remove(index);
        }
        self.0.push(new);
    }

    /// Does not count the time from `start` to `now` for any connection: no connection had a turn
    /// in this time, so what its client has sent is not read yet.
    pub(super) fn skip_time(&mut self, start: Mono, now: Mono) {
        for connection in &mut self.0 {
            connection.since = connection.since.after(now.since(start));
        }
    }

    /// Closes the connections whose time limit is over. Returns the earliest end of the other
    /// connections' limits.
    pub(super) fn expire(&mut self, now: Mono) -> Option<Mono> {
        self.0.retain_mut(|connection| now < connection.deadline() || connection.outlives(now));
        self.0.iter().map(PortConnection::deadline).min()
    }
}
