//! The socket of the runtime. A read ends at the deadline of its question, and a write waits for at
//! most the time limit of a question.

use std::cell::Cell;
use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;

use super::report::{FailedAt, RuntimeFailure};
use crate::kube::instant::Mono;
use crate::os::clock::awake;
use crate::os::guard;
use crate::os::read::cause;
use crate::os::unix_socket::connect_to;

/// The time of this process counts from the boot, as in the file of `nodelet runtime`, and stands
/// still while the board is suspended: neither the runtime nor this process is late by a suspend.
pub(super) fn now() -> Mono {
    Mono::START.after(awake())
}

/// Both directions of a connection.
pub trait RuntimeStream: Read + Write + Debug {}
impl<T: Read + Write + Debug> RuntimeStream for T {}

/// How the socket at a path is opened.
pub(super) type OpenStream<'a> =
    &'a mut dyn FnMut(&Path) -> Result<Box<dyn RuntimeStream>, RuntimeFailure>;

/// A socket. Its reads end at the deadline; each of its writes blocks for at most the `limit` of
/// [`TimedSocket::open`].
#[derive(Debug)]
pub(super) struct TimedSocket {
    stream: UnixStream,
    deadline: Rc<Cell<Mono>>,
}

impl TimedSocket {
    /// Connects without blocking; then each write blocks for at most `limit`.
    pub(super) fn open(
        path: &Path,
        limit: Duration,
        deadline: &Rc<Cell<Mono>>,
    ) -> Result<Self, RuntimeFailure> {
        let connected = || -> io::Result<Self> {
            let stream = connect_to(&guard::found(path)?)?;
            stream.set_nonblocking(false)?;
            stream.set_write_timeout(Some(limit))?;
            Ok(Self { stream, deadline: Rc::clone(deadline) })
        };
        connected().map_err(|error| {
            let remedy = match error.raw_os_error().map(Errno::from_raw) {
                Some(Errno::ENOENT | Errno::ECONNREFUSED) => "is the runtime running?",
                Some(Errno::EACCES | Errno::EPERM) => denied_remedy(path),
                Some(Errno::EAGAIN) => "it accepts no connections; is it stopped?",
                _ => "",
            };
            let fault = cause(&error).or_remedy(remedy).at(path.display());
            RuntimeFailure { at: FailedAt::Socket, fault }
        })
    }
}

/// What lets this process reach a socket. Root in `nodelet-runtime.service` has no capability, and
/// ProtectHome= hides these folders from it.
fn denied_remedy(path: &Path) -> &'static str {
    match ["/run/user", "/home", "/root"].iter().any(|folder| path.starts_with(folder)) {
        true => {
            "run it as the user of the socket: in a drop-in of nodelet-runtime.service, set User= \
             and ProtectHome=no"
        }
        false => "run it as root, or as a user in the group of the socket",
    }
}

impl Read for TimedSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.get().since(now());
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
pub(super) fn failed(error: &io::Error) -> RuntimeFailure {
    if error.kind() == ErrorKind::UnexpectedEof {
        return RuntimeFailure::api("the runtime has closed the connection");
    }
    let (at, remedy) = match error.kind() {
        ErrorKind::TimedOut => (FailedAt::Time, "is it stopped or overloaded? See its log"),
        _ => (FailedAt::Api, ""),
    };
    RuntimeFailure { at, fault: cause(error).or_remedy(remedy) }
}
