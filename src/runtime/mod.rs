//! `nodelet runtime`: asks the container runtime, and writes what it says to the file that the
//! agent reads with each status (`host/runtime.rs`).
//!
//! A process of its own, because a runtime may hang, and its socket is root's: the process that
//! holds the Lease talks to the API server alone. Plain sequential code: ask, write, sleep.

pub mod cri;
mod grpc;
pub mod hpack;
pub mod protobuf;
pub mod report;
pub mod rest;
pub mod state;

use std::cell::Cell;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;

use crate::config::runtime::{Protocol, RuntimeConfig};
use crate::core::instant::Mono;
use crate::core::outage_log::OutageLog;
use crate::files::guard;
use crate::files::read::cause;
use crate::files::write::VolatileFile;
use crate::process::clock::{Clock, pause, since_boot};
use crate::process::unix_socket::connect_to;
use cri::Cri;
use report::{FailedAt, Failure, RuntimeQuery, RuntimeReport};
use state::RuntimeState;

/// A question without an end has failed after this time.
const OVERDUE: Duration = Duration::from_secs(20);

/// Both directions of a connection.
pub trait Stream: Read + Write + Debug {}
impl<T: Read + Write + Debug> Stream for T {}

/// How the socket at a path is opened.
pub type Open<'a> = &'a mut dyn FnMut(&Path) -> Result<Box<dyn Stream>, Failure>;

/// Asks and writes until the process is ended.
pub fn serve(config: &RuntimeConfig) -> ! {
    let clock = Clock::start();
    let mut client = Client::new(config, OVERDUE);
    let mut state = RuntimeState::new(config.protocol);
    let mut file = VolatileFile::new(&config.facts_file);
    let mut file_log = OutageLog::new("facts of the container runtime");
    loop {
        let is_news = match state.query(clock.now().mono) {
            None => true,
            Some(query) => state.on_report(client.ask(query), clock.now().mono),
        };
        // Otherwise the file grows old, which says that the runtime does not answer.
        if is_news {
            let now = clock.now().mono;
            match file.write(content(&state, clock.boot_to_start())) {
                Ok(()) => drop(file_log.succeeded(now)),
                Err(why) => drop(file_log.failed(&why, now)),
            }
        }
        pause(state.pause());
    }
}

/// The content of the file. `start` is the time from the boot to the start of this process.
fn content(state: &RuntimeState, start: Duration) -> String {
    let success = state.last_success().map(|at| start + at.since(Mono::START));
    state.facts().file(success)
}

/// Asks for all details, for at most `limit`: for commands that ask once.
pub fn ask(config: &RuntimeConfig, limit: Duration) -> RuntimeReport {
    Client::new(config, limit).ask(RuntimeQuery { details: true, folder: true })
}

/// Asks one runtime, each time within the same limit.
struct Client<'a> {
    config: &'a RuntimeConfig,
    cri: Cri,
    limit: Duration,
    /// Of the current question, since boot.
    deadline: Rc<Cell<Duration>>,
}

impl<'a> Client<'a> {
    fn new(config: &'a RuntimeConfig, limit: Duration) -> Self {
        Self { config, cri: Cri::default(), limit, deadline: Rc::default() }
    }

    fn ask(&mut self, query: RuntimeQuery) -> RuntimeReport {
        self.deadline.set(since_boot() + self.limit);
        let (limit, deadline) = (self.limit, &self.deadline);
        let mut open = |path: &Path| {
            let stream = open(path, limit)?;
            let socket = Socket { stream, limit, deadline: deadline.clone() };
            Ok(Box::new(socket) as Box<dyn Stream>)
        };
        match self.config.protocol {
            Protocol::Cri => self.cri.ask(self.config, query, &mut open),
            Protocol::Docker | Protocol::Podman => rest::ask(self.config, query, &mut open),
        }
    }
}

/// A socket whose reads end at the deadline. One read may exceed it by the limit of a read.
#[derive(Debug)]
struct Socket {
    stream: UnixStream,
    limit: Duration,
    deadline: Rc<Cell<Duration>>,
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let has_time = since_boot() < self.deadline.get();
        let read =
            if has_time { self.stream.read(bytes) } else { Err(ErrorKind::WouldBlock.into()) };
        read.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                let text = format!("no answer within {} s", self.limit.as_secs());
                io::Error::new(ErrorKind::TimedOut, text)
            }
            _ => error,
        })
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A read or a write failed.
fn failed(error: &io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::TimedOut => "is it stopped or overloaded? Look at its log",
        _ => "",
    };
    Failure { remedy, ..Failure::api(cause(error)) }
}

/// Connects without blocking; then each read and write blocks for at most `limit`.
fn open(path: &Path, limit: Duration) -> Result<UnixStream, Failure> {
    let connected = || -> io::Result<UnixStream> {
        let stream = connect_to(&guard::found(path)?)?;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(stream)
    };
    connected().map_err(|error| Failure {
        at: FailedAt::Socket,
        cause: format!("{}: {}", path.display(), cause(&error)),
        remedy: match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ECONNREFUSED) => "is the runtime running?",
            Some(Errno::EACCES | Errno::EPERM) => {
                "run it as root, or as a user in the group of the socket"
            }
            Some(Errno::EAGAIN) => "it accepts no connections; is it stopped?",
            _ => "",
        },
    })
}

#[cfg(test)]
mod tests;
