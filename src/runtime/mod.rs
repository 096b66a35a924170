//! `nodelet runtime`: asks the container runtime, and writes what it says to the file that the
//! agent reads with each status (`host/runtime.rs`).
//!
//! A process of its own, because a runtime may hang, and its socket is root's: the process that
//! holds the Lease talks to the API server alone. Plain sequential code: ask, write, sleep.

pub mod cri;
mod grpc;
pub mod hpack;
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
use crate::kube::text::Fault;
use crate::process::clock::{Clock, pause, since_boot};
use crate::process::unix_socket::connect_to;
use cri::Cri;
use report::{FailedAt, RuntimeFailure, RuntimeQuery, RuntimeReport};
use state::RuntimeState;

/// A question without an end has failed after this time.
const OVERDUE: Duration = Duration::from_secs(20);
/// What a question asks for behind the status: a list that hangs must not make the status old.
const DETAILS_OVERDUE: Duration = Duration::from_secs(10);

/// Both directions of a connection.
pub trait RuntimeStream: Read + Write + Debug {}
impl<T: Read + Write + Debug> RuntimeStream for T {}

/// How the socket at a path is opened.
pub type Open<'a> = &'a mut dyn FnMut(&Path) -> Result<Box<dyn RuntimeStream>, RuntimeFailure>;

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
            Some(query) => {
                let (report, answered) = client.ask(query);
                let answered = answered.saturating_sub(clock.boot_to_start());
                state.on_report(report, Mono::START.after(answered))
            }
        };
        // Otherwise the file grows old, which says that the runtime does not answer.
        if is_news {
            let now = clock.now().mono;
            let written = file.write(content(&state, clock.boot_to_start()));
            file_log.ended(written.err().as_deref(), now);
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
    Client::new(config, limit).ask(RuntimeQuery { details: true, folder: true }).0
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

    /// Also when the status was answered, or the question failed, since boot.
    fn ask(&mut self, query: RuntimeQuery) -> (RuntimeReport, Duration) {
        self.deadline.set(since_boot() + self.limit);
        let (limit, deadline) = (self.limit, &self.deadline);
        let mut answered = None;
        let mut on_status = || {
            let now = *answered.insert(since_boot());
            deadline.set(deadline.get().min(now + DETAILS_OVERDUE));
        };
        let mut open = |path: &Path| {
            let stream = open(path, limit)?;
            let socket = TimedSocket { stream, deadline: deadline.clone() };
            Ok(Box::new(socket) as Box<dyn RuntimeStream>)
        };
        let report = match self.config.protocol {
            Protocol::Cri => self.cri.ask(self.config, query, &mut open, &mut on_status),
            Protocol::Docker | Protocol::Podman => {
                rest::ask(self.config, query, &mut open, &mut on_status)
            }
        };
        (report, answered.unwrap_or_else(since_boot))
    }
}

/// A socket whose reads end at the deadline.
#[derive(Debug)]
struct TimedSocket {
    stream: UnixStream,
    deadline: Rc<Cell<Duration>>,
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.get().saturating_sub(since_boot());
        let read = if left.is_zero() {
            Err(ErrorKind::WouldBlock.into())
        } else {
            self.stream.set_read_timeout(Some(left)).and_then(|()| self.stream.read(bytes))
        };
        read.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no answer in time"),
            _ => error,
        })
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A read or a write failed.
fn failed(error: &io::Error) -> RuntimeFailure {
    let remedy = match error.kind() {
        ErrorKind::TimedOut => "is it stopped or overloaded? See its log",
        _ => "",
    };
    RuntimeFailure::api(Fault::new(cause(error), remedy))
}

/// Connects without blocking; then each read and write blocks for at most `limit`.
fn open(path: &Path, limit: Duration) -> Result<UnixStream, RuntimeFailure> {
    let connected = || -> io::Result<UnixStream> {
        let stream = connect_to(&guard::found(path)?)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(limit))?;
        Ok(stream)
    };
    connected().map_err(|error| {
        let remedy = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT | Errno::ECONNREFUSED) => "is the runtime running?",
            Some(Errno::EACCES | Errno::EPERM) => {
                "run it as root, or as a user in the group of the socket"
            }
            Some(Errno::EAGAIN) => "it accepts no connections; is it stopped?",
            _ => "",
        };
        let fault = Fault::new(cause(&error), remedy).at(path.display());
        RuntimeFailure { at: FailedAt::Socket, fault }
    })
}

#[cfg(test)]
mod tests;
