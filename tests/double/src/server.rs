//! The network side: a listener, a thread per connection, TLS, and misbehaviour.

use crate::auth::User;
use crate::faults::{Fault, Faults};
use crate::http::{self, Request, Response};
use crate::lock;
use crate::model::Model;
use crate::pki::Identity;
use rustls::{ServerConfig, ServerConnection};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A request that the double has seen.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// HTTP method.
    pub method: String,
    /// Path and query, as sent.
    pub path: String,
    /// Status code; 0 while, or if, nothing was answered.
    pub code: u16,
    /// Who asked; empty if the credentials were not valid.
    pub user: String,
    /// When the request was complete.
    pub at: Instant,
    /// Head and body, inside TLS.
    pub request_bytes: usize,
    /// What was sent back, inside TLS.
    pub response_bytes: usize,
    /// Which connection (counted from 1): shows keep-alive.
    pub connection: u64,
    /// When the TLS handshake of that connection was complete.
    pub secured: Instant,
    /// Request headers.
    pub headers: Vec<(String, String)>,
    /// Request body.
    pub body: Vec<u8>,
    id: u64,
}

impl Recorded {
    /// A request header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The request body as JSON (`Null` if it is none).
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Whether it is a patch with its precondition alone, which changes nothing.
    #[must_use]
    pub fn is_look(&self) -> bool {
        let body = self.json();
        let version = &body["metadata"]["resourceVersion"];
        self.method == "PATCH" && body == json!({"metadata": {"resourceVersion": version}})
    }
}

pub(crate) const SERVING: u8 = 0;
pub(crate) const REFUSING: u8 = 1;
pub(crate) const BLACKHOLE: u8 = 2;
const TICK: Duration = Duration::from_millis(20);

pub(crate) struct Shared {
    pub(crate) model: Model,
    pub(crate) faults: Faults,
    config: Mutex<Arc<ServerConfig>>,
    /// The certificates of other ports.
    fronts: Mutex<HashMap<u16, Arc<ServerConfig>>>,
    recorded: Mutex<Vec<Recorded>>,
    next_id: AtomicU64,
    pub(crate) stop: AtomicBool,
    pub(crate) mode: AtomicU8,
    /// Connections of an older generation are closed.
    pub(crate) generation: AtomicU64,
    pub(crate) connections: AtomicU64,
}

impl Shared {
    pub(crate) fn new(model: Model, identity: &Identity) -> Self {
        Self {
            config: Mutex::new(model.server_config(identity)),
            model,
            faults: Faults::default(),
            fronts: Mutex::default(),
            recorded: Mutex::default(),
            next_id: AtomicU64::new(1),
            stop: AtomicBool::new(false),
            mode: AtomicU8::new(SERVING),
            generation: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }

    pub(crate) fn serve_with(&self, identity: &Identity) {
        *lock(&self.config) = self.model.server_config(identity);
    }

    pub(crate) fn serve_at(&self, port: u16, identity: &Identity) {
        lock(&self.fronts).insert(port, self.model.server_config(identity));
    }

    pub(crate) fn recorded(&self) -> MutexGuard<'_, Vec<Recorded>> {
        lock(&self.recorded)
    }

    fn record(
        &self,
        request: &Request,
        user: Option<&User>,
        connection: u64,
        secured: Option<Instant>,
    ) -> u64 {
        let id = self.next_id.fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        self.recorded().push(Recorded {
            method: request.method.clone(),
            path: request.target.clone(),
            code: 0,
            user: user.map_or(String::new(), |u| u.name.clone()),
            at: now,
            request_bytes: request.bytes,
            response_bytes: 0,
            connection,
            secured: secured.unwrap_or(now),
            headers: request.headers.clone(),
            body: request.body.clone(),
            id,
        });
        id
    }

    fn answered(&self, id: u64, code: u16, bytes: usize) {
        if let Some(entry) = self.recorded().iter_mut().rev().find(|r| r.id == id) {
            if code != 0 {
                entry.code = code;
            }
            entry.response_bytes += bytes;
        }
    }
}

/// Binds to loopback; port 0 takes a free one, which is returned.
pub(crate) fn bind(port: u16) -> io::Result<(TcpListener, u16)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // after a stop, connections of the clients may keep the port busy for a moment
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpListener::bind(address) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port();
                return Ok((listener, port));
            }
            Err(error) if Instant::now() >= until => return Err(error),
            Err(_) => thread::sleep(TICK),
        }
    }
}

/// Accepts until told to stop; holds and joins its connections.
pub(crate) fn accept(shared: &Arc<Shared>, slot: &Mutex<Option<TcpListener>>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let accepted = match (&*lock(slot), shared.mode.load(Ordering::SeqCst)) {
            (Some(listener), SERVING) => listener.accept().ok(),
            _ => None,
        };
        threads.retain(|t| !t.is_finished());
        let Some((socket, _)) = accepted else {
            thread::sleep(Duration::from_millis(3));
            continue;
        };
        let shared = shared.clone();
        threads.push(thread::spawn(move || {
            // errors are the client's business: it went away, or the double was told to
            let _ = Connection::open(&shared, socket).and_then(|mut c| c.run());
        }));
    }
    for thread in threads {
        let _ = thread.join();
    }
}

struct Connection {
    shared: Arc<Shared>,
    socket: TcpStream,
    tls: ServerConnection,
    generation: u64,
    number: u64,
    /// When the handshake was complete.
    secured: Option<Instant>,
    /// Bytes sent for the current request, and the status code.
    sent: usize,
    code: u16,
}

fn gone() -> io::Error {
    io::Error::from(ErrorKind::ConnectionAborted)
}

fn would_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

impl Connection {
    fn open(shared: &Arc<Shared>, socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(TICK))?;
        let port = socket.local_addr()?.port();
        let front = lock(&shared.fronts).get(&port).cloned();
        let config = front.unwrap_or_else(|| lock(&shared.config).clone());
        let tls = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self {
            shared: shared.clone(),
            socket,
            tls,
            generation: shared.generation.load(Ordering::SeqCst),
            number: shared.connections.fetch_add(1, Ordering::SeqCst) + 1,
            secured: None,
            sent: 0,
            code: 0,
        })
    }

    /// Fails once this connection is to end; waits while the network is a black hole.
    fn check(&self) -> io::Result<()> {
        loop {
            let stop = self.shared.stop.load(Ordering::SeqCst);
            if stop || self.shared.generation.load(Ordering::SeqCst) != self.generation {
                return Err(gone());
            }
            if self.shared.mode.load(Ordering::SeqCst) != BLACKHOLE {
                return Ok(());
            }
            thread::sleep(TICK);
        }
    }

    fn sleep(&self, time: Duration) -> io::Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(TICK));
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.check()?;
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(gone()),
                Ok(_) => {}
                Err(error) if would_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One look at the socket: plaintext bytes, or 0 at the end, or `WouldBlock`.
    fn read_once(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        self.flush()?;
        match self.tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => return other,
        }
        if self.tls.read_tls(&mut self.socket)? == 0 {
            return Ok(0);
        }
        if let Err(error) = self.tls.process_new_packets() {
            let _ = self.flush(); // the alert
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        if !self.tls.is_handshaking() {
            self.secured.get_or_insert_with(Instant::now);
        }
        self.tls.reader().read(buffer)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.read_once(buffer) {
                Err(error) if would_wait(&error) => {}
                other => return other,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in bytes.chunks(16 << 10) {
            self.tls.writer().write_all(part)?;
            self.flush()?;
            self.sent += part.len();
        }
        Ok(())
    }

    /// FIN: the end of this connection is an error, too.
    fn close(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.flush()?;
        self.socket.shutdown(std::net::Shutdown::Both)?;
        Err(gone())
    }

    /// RST instead of FIN.
    fn reset(&mut self) -> io::Result<()> {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&self.socket, nix::sys::socket::sockopt::Linger, &linger)?;
        Err(gone()) // dropping the socket does it
    }

    /// Says nothing until the client goes away.
    fn stall(&mut self) -> io::Result<()> {
        while self.read(&mut [0; 4096])? > 0 {}
        Err(gone())
    }

    fn run(&mut self) -> io::Result<()> {
        let mut pending = Vec::new();
        let mut buffer = vec![0; 16 << 10];
        loop {
            match Request::parse(&pending) {
                Ok(Some(request)) => {
                    pending.drain(..request.bytes);
                    self.serve(&request)?;
                    if request.header("connection").is_some_and(|v| v.eq_ignore_ascii_case("close"))
                    {
                        return self.close();
                    }
                }
                Ok(None) => match self.read(&mut buffer)? {
                    0 => return Ok(()),
                    n => pending.extend_from_slice(&buffer[..n]),
                },
                Err(why) => {
                    let response = Response::text(400, "text/plain; charset=utf-8", why);
                    return self.send(&response.with("Connection", "close"));
                }
            }
        }
    }

    fn serve(&mut self, request: &Request) -> io::Result<()> {
        let user = self.shared.model.authenticate(request, self.tls.peer_certificates());
        let id = self.shared.record(request, user.as_ref(), self.number, self.secured);
        (self.sent, self.code) = (0, 0);
        let fault = self.shared.faults.take(&request.method, &request.target);
        let result = self.respond(request, user.as_ref(), fault);
        self.shared.answered(id, self.code, self.sent);
        result
    }

    fn answer(&self, request: &Request, user: Option<&User>) -> Response {
        let is_certified = self.tls.peer_certificates().is_some();
        self.shared.model.respond(request, user, is_certified)
    }

    fn respond(
        &mut self,
        request: &Request,
        user: Option<&User>,
        fault: Option<Fault>,
    ) -> io::Result<()> {
        let Some(fault) = fault else {
            return self.send(&self.answer(request, user));
        };
        match fault {
            Fault::StallBeforeHeaders => self.stall(),
            Fault::StallInBody(n) => {
                let (head, body) = self.answer(request, user).wire();
                let part = &body[..n.min(body.len().saturating_sub(1))];
                self.write(&[&head, part].concat())?;
                self.stall()
            }
            Fault::Trickle { bytes, every } => {
                let whole = self.answer(request, user);
                self.code = whole.code;
                let (head, body) = whole.wire();
                for part in [head, body].concat().chunks(bytes.max(1)) {
                    self.write(part)?;
                    self.sleep(every)?;
                }
                Ok(())
            }
            Fault::ResetBeforeHeaders => self.reset(),
            Fault::ResetAfterHeaders => {
                let (head, body) = self.answer(request, user).wire();
                self.write(&[&head, &body[..body.len() / 2]].concat())?;
                self.reset()
            }
            Fault::CloseBeforeHeaders => self.close(),
            Fault::Status { code: wanted, retry_after } => {
                let message = "the double was told to say so";
                self.send(&Model::refusal(request, wanted, message, retry_after))
            }
            Fault::Garbage => {
                let mut response = http::dress(Response::json(200, &Value::Null));
                response.body = b"\x00\xff{\"kind\": this is not JSON".to_vec();
                self.send(&response)
            }
            Fault::Oversized(mebibytes) => {
                self.code = 200;
                let padding = "a".repeat(mebibytes << 20);
                let body = format!("{{\"kind\":\"Node\",\"padding\":\"{padding}\"}}");
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
                self.write(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes())
            }
            Fault::EndlessHeaders => {
                let line = format!("X-Filler: {}\r\n", "a".repeat(1000));
                self.write(b"HTTP/1.1 200 OK\r\n")?;
                for _ in 0..64 << 10 {
                    self.write(line.as_bytes())?;
                }
                Err(gone())
            }
            Fault::Redirect(place) => {
                let response = http::dress(Response::empty(307)).with("Location", &place);
                self.send(&response)
            }
            Fault::CloseAfterResponse => {
                self.send(&self.answer(request, user).with("Connection", "close"))
            }
            Fault::CloseSilently => {
                self.send(&self.answer(request, user))?;
                self.close()
            }
            Fault::Raw(bytes) => {
                self.write(&bytes)?;
                self.close()
            }
        }
    }

    fn send(&mut self, response: &Response) -> io::Result<()> {
        self.code = response.code;
        let (head, body) = response.wire();
        self.write(&[head, body].concat())?;
        if response.closes() { self.close() } else { Ok(()) }
    }
}
