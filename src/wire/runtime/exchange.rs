//! One look over a local socket, without blocking: connect, write, read what has arrived, close.
//! No connection is kept.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::Conversation;
use crate::core::instant::Mono;
use crate::core::runtime::{Failure, Found, Step};
use crate::files::guard;
use crate::files::read::cause;
use crate::wire::deadline::poll_timeout;

/// Bytes of one read.
const PIECE: usize = 16 << 10;
/// Bytes that are read in one turn of the loop, so that a flood cannot hold it.
const MAX_IN_TURN: usize = 256 << 10;

/// A look with an open connection.
#[derive(Debug)]
pub(super) struct Exchange {
    conversation: Box<dyn Conversation>,
    socket: UnixStream,
    began: Mono,
}

/// A look after a step of it.
#[derive(Debug)]
pub(super) enum Progress {
    /// It waits for the runtime.
    Pending(Exchange),
    /// It has ended.
    Done(Box<Found>),
}

impl Exchange {
    /// Opens the next connection of a conversation.
    pub(super) fn start(mut conversation: Box<dyn Conversation>, began: Mono) -> Progress {
        // Each conversation opens a few connections, and then none.
        while let Some((path, request)) = conversation.open() {
            match open(&path, &request) {
                Ok(socket) => {
                    return Progress::Pending(Self {
                        conversation,
                        socket,
                        began,
                    });
                }
                Err(failure) => conversation.close(Some(failure)),
            }
        }
        Progress::Done(Box::new(conversation.found()))
    }

    /// When the look began.
    pub(super) fn began(&self) -> Mono {
        self.began
    }

    /// Reads what has arrived, at most 256 KiB.
    pub(super) fn drain(mut self) -> Progress {
        let mut piece = [0; PIECE];
        let mut answer = Vec::new();
        for _ in 0..MAX_IN_TURN / PIECE {
            let failure = match self.socket.read(&mut piece) {
                Ok(0) => None,
                Ok(length) => {
                    let bytes = piece.get(..length).unwrap_or_default();
                    let is_done = self.conversation.take(bytes, &mut answer);
                    // A runtime that does not read has its socket full of acknowledgements.
                    if !is_done && self.socket.write_all(&answer).is_ok() {
                        answer.clear();
                        continue;
                    }
                    None
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Progress::Pending(self);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Some(Failure::api(cause(&error))),
            };
            return self.next(failure);
        }
        Progress::Pending(self)
    }

    /// Gives up: the look is overdue.
    pub(super) fn give_up(mut self, seconds: u64) -> Found {
        let failure = Failure {
            remedy: "is it stopped or overloaded? Look at its log",
            ..Failure::api(format!("no answer within {seconds} s"))
        };
        self.conversation.close(Some(failure));
        self.conversation.found()
    }

    /// Waits for the runtime, at most for `limit`.
    pub(super) fn wait(&self, limit: Duration) {
        let mut socket = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        // EINTR ends the wait early; the caller calls again.
        let _ = poll(&mut socket, poll_timeout(limit));
    }

    /// The connection has ended: the next one, or the end of the look.
    fn next(mut self, failure: Option<Failure>) -> Progress {
        self.conversation.close(failure);
        Self::start(self.conversation, self.began)
    }
}

impl AsFd for Exchange {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects and sends `request`, without blocking: std's connect would wait for a full backlog.
fn open(path: &Path, request: &[u8]) -> Result<UnixStream, Failure> {
    let failed = |errno: Errno, text: String| Failure {
        at: Step::Socket,
        cause: format!("{}: {text}", path.display()),
        remedy: match errno {
            Errno::ENOENT | Errno::ECONNREFUSED => "is the runtime running?",
            Errno::EACCES | Errno::EPERM => {
                "add the group of the socket to SupplementaryGroups= of the unit, or use file://"
            }
            Errno::EAGAIN => "it accepts no connections; is it stopped?",
            _ => "",
        },
    };
    let of_errno = |errno: Errno| failed(errno, cause(&errno.into()));
    let found = guard::found(path).map_err(|error| {
        let errno = error
            .raw_os_error()
            .map_or(Errno::UnknownErrno, Errno::from_raw);
        failed(errno, cause(&error))
    })?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(of_errno)?;
    let address = UnixAddr::new(&found).map_err(of_errno)?;
    connect(socket.as_raw_fd(), &address).map_err(of_errno)?;
    let mut socket = UnixStream::from(socket);
    // Some hundred bytes always fit into the buffer of a new socket.
    socket
        .write_all(request)
        .map_err(|error| failed(Errno::UnknownErrno, cause(&error)))?;
    Ok(socket)
}
