//! One connection to the API server: TCP, then TLS where the URL says so.
//!
//! The half of HTTP that ureq leaves to us. Every wait ends at ureq's deadline, every
//! failure is a [`Failure`], and a connection that the server has closed says so when
//! it is asked, so that no request is wasted on it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::ClientConnection;
use ureq::unversioned::transport::{
    Buffers as _, ConnectionDetails, Connector, NextTimeout, Transport,
};

use super::buffers::{Buffers, HEAD_LIMIT};
use super::failure::{Failure, Stage};
use super::link::Link;
use super::socket::{Clock, Glance, Socket, glance};
use super::tunnel;

/// Most TLS messages without data between two requests: session tickets, key updates.
const IDLE_MESSAGES: usize = 8;

/// Makes connections for ureq.
#[derive(Debug)]
pub(super) struct Dialer(pub(super) Arc<Link>);

impl Connector for Dialer {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let clock = Clock::of(details);
        let deadline = clock.deadline(details.timeout);
        let stream = self.0.open(&clock, deadline)?;
        let mut connection = Connection::new(&self.0, stream, clock, deadline)?;
        match connection.handshake() {
            Ok(()) => self.0.good(connection.socket.stream()),
            Err(failure) => {
                self.0.bad(connection.socket.stream());
                return Err(failure.into());
            }
        }
        Ok(Some(connection))
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    buffers: Buffers,
    socket: Socket,
    /// None for `http`.
    tls: Option<Box<ClientConnection>>,
    /// Named in errors.
    host: String,
    /// Nothing was asked of the server since it last said something.
    has_spoken: bool,
}

impl Connection {
    fn new(
        link: &Link,
        stream: TcpStream,
        clock: Clock,
        deadline: Option<std::time::Instant>,
    ) -> Result<Self, Failure> {
        let stage = Stage::Connecting;
        let mut socket =
            Socket::new(stream, clock, deadline).map_err(|e| Failure::io(&e, stage))?;
        if let Some(proxy) = &link.proxy {
            tunnel::open(&mut socket, proxy, &link.endpoint).map_err(|e| e.via(proxy))?;
        }
        let (tls, host) = match &link.tls {
            Some((config, name)) => {
                let tls = ClientConnection::new(config.clone(), name.clone());
                (
                    Some(Box::new(tls.map_err(|e| Failure::tls(&e, &name.to_str()))?)),
                    name.to_str().into(),
                )
            }
            None => (None, String::new()),
        };
        Ok(Self {
            buffers: Buffers::default(),
            socket,
            tls,
            host,
            has_spoken: false,
        })
    }

    /// Our last message stays in rustls and leaves with the first request.
    fn handshake(&mut self) -> Result<(), Failure> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        let stage = Stage::Handshake;
        while tls.is_handshaking() {
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)
                    .map_err(|e| Failure::io(&e, stage))?;
            }
            if !tls.is_handshaking() {
                break;
            }
            if tls
                .read_tls(&mut self.socket)
                .map_err(|e| Failure::io(&e, stage))?
                == 0
            {
                return Err(Failure::closed(stage));
            }
            if let Err(error) = tls.process_new_packets() {
                // The alert that tells the server why; it fits into any send buffer.
                let _ = tls.write_tls(&mut self.socket);
                return Err(Failure::tls(&error, &self.host));
            }
        }
        Ok(())
    }

    /// A server that refuses our certificate says why, then closes: the alert is there
    /// to be read although the request could not be sent.
    fn send(&mut self) -> Result<(), Failure> {
        match self.flush() {
            Err(failure @ Failure::Line(_)) => match self.fill() {
                Err(alert @ Failure::Tls(_)) => Err(alert),
                _ => Err(failure),
            },
            result => result,
        }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let stage = Stage::Sending;
        let output = self.buffers.take_output();
        let Some(tls) = &mut self.tls else {
            return self
                .socket
                .write_all(&output)
                .map_err(|e| Failure::io(&e, stage));
        };
        let mut rest = output.as_slice();
        loop {
            // rustls takes up to 64 KiB at a time.
            let taken = tls
                .writer()
                .write(rest)
                .map_err(|e| Failure::io(&e, stage))?;
            rest = rest.get(taken..).unwrap_or_default();
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)
                    .map_err(|e| Failure::io(&e, stage))?;
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Bytes of the answer; 0 where the server ended the connection in good order.
    fn fill(&mut self) -> Result<usize, Failure> {
        let stage = Stage::Answer;
        let room = self.buffers.input_append_buf();
        if room.is_empty() {
            return Err(Failure::line(format!(
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
            tls.read_tls(&mut self.socket)
                .map_err(|e| Failure::io(&e, stage))?;
            if let Err(error) = tls.process_new_packets() {
                let _ = tls.write_tls(&mut self.socket);
                return Err(Failure::tls(&error, &self.host));
            }
        }
    }

    /// Takes what a server may send unasked; false if that is data, or its end.
    fn is_quiet(&mut self) -> io::Result<bool> {
        for _ in 0..IDLE_MESSAGES {
            let seen = glance(self.socket.stream());
            let Some(tls) = &mut self.tls else {
                return Ok(matches!(seen, Glance::Silent));
            };
            if matches!(seen, Glance::Bytes) {
                // Not with the patience of the last request, which is over.
                tls.read_tls(&mut self.socket.stream().as_ref())?;
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            if state.peer_has_closed() || state.plaintext_bytes_to_read() > 0 {
                return Ok(false);
            }
            match seen {
                Glance::Silent => return Ok(true),
                Glance::Closed => return Ok(false),
                Glance::Bytes => {}
            }
        }
        Ok(false)
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn ureq::unversioned::transport::Buffers {
        &mut self.buffers
    }

    /// Collects; [`Transport::await_input`], which always follows, sends.
    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), ureq::Error> {
        self.buffers.keep(amount);
        if self.buffers.is_full() {
            self.socket.limit(timeout);
            self.send()?;
        }
        Ok(())
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, ureq::Error> {
        self.socket.limit(timeout);
        self.send()?;
        let amount = self.fill()?;
        self.has_spoken = amount > 0;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    /// ureq asks when it puts the connection away and when it takes it up again; only the
    /// second is worth a look.
    fn is_open(&mut self) -> bool {
        std::mem::take(&mut self.has_spoken) || self.is_quiet().unwrap_or(false)
    }

    fn is_tls(&self) -> bool {
        self.tls.is_some()
    }
}
