//! A TCP stream whose reads and writes end at the deadline of the current call.
//!
//! The stream does not block; a wait is one `poll` with the time that is left. So a peer that
//! sends single bytes cannot extend a deadline, and one system call tells whether the peer has
//! closed.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::deadline::Deadline;

/// The time limit of a poll, rounded up: 0 ms would spin during the last millisecond.
pub(super) fn poll_timeout(left: Duration) -> PollTimeout {
    let left = left.saturating_add(Duration::from_millis(1));
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

pub(super) struct Socket {
    stream: Arc<Stream>,
    /// The end of the current call.
    deadline: Deadline,
    /// The end of the set-up of the connection; `None` once it is set up.
    opening: Option<Deadline>,
}

/// Shared by [`Socket`] and [`super::link::Link`], which only peeks.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: TcpStream,
    /// What [`Stream::is_quiet`] found, for the next [`Stream::peek`].
    is_quiet: AtomicBool,
}

impl Socket {
    /// Takes over a connected stream, which is set up within `opens_in`.
    pub(super) fn new(tcp: TcpStream, deadline: Deadline, opens_in: Duration) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        tcp.set_nonblocking(true)?;
        let is_quiet = AtomicBool::new(false);
        let opening = Deadline::default();
        opening.begin(opens_in);
        Ok(Self {
            stream: Arc::new(Stream { tcp, is_quiet }),
            deadline,
            opening: Some(opening),
        })
    }

    /// The connection is set up, TLS included.
    pub(super) fn opened(&mut self) {
        self.opening = None;
    }

    pub(super) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.stream.tcp.peer_addr().ok()
    }

    /// The time that the current call has left, or the set-up of the connection.
    pub(super) fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.left()?;
        match &self.opening {
            None => Ok(left),
            Some(opening) => Ok(left.min(opening.left()?)),
        }
    }

    fn wait(&self, readiness: PollFlags) -> io::Result<()> {
        loop {
            let left = self.left()?;
            let mut stream = [PollFd::new(self.stream.tcp.as_fd(), readiness)];
            match poll(&mut stream, poll_timeout(left)) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn retry<T>(
        &self,
        readiness: PollFlags,
        mut operation: impl FnMut(&TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match operation(&self.stream.tcp) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait(readiness)?,
                result => return result,
            }
        }
    }
}

/// What the kernel holds for a stream on which no answer is awaited.
pub(super) enum Peek {
    Nothing,
    Bytes,
    Closed,
}

impl Stream {
    /// What the kernel holds; just after [`Stream::is_quiet`] what that found.
    pub(super) fn peek(&self) -> Peek {
        match self.was_quiet() {
            true => Peek::Nothing,
            false => self.look(),
        }
    }

    /// Whether the kernel holds nothing: a request can be sent.
    pub(super) fn is_quiet(&self) -> bool {
        let is_quiet = matches!(self.look(), Peek::Nothing);
        self.is_quiet.store(is_quiet, Ordering::Relaxed);
        is_quiet
    }

    /// Reads nothing and does not wait.
    fn look(&self) -> Peek {
        match self.tcp.peek(&mut [0]) {
            Ok(0) => Peek::Closed,
            Ok(_) => Peek::Bytes,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Peek::Nothing
            }
            Err(_) => Peek::Closed,
        }
    }

    /// Whether [`Stream::is_quiet`] found nothing. True once.
    fn was_quiet(&self) -> bool {
        self.is_quiet.swap(false, Ordering::Relaxed)
    }

    /// Reads without the deadline of a call.
    pub(super) fn without_deadline(&self) -> impl Read {
        &self.tcp
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The answer is rarely there already: a read before the poll would be a wasted call.
        self.wait(PollFlags::POLLIN)?;
        self.retry(PollFlags::POLLIN, |mut stream| stream.read(buffer))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.retry(PollFlags::POLLOUT, |mut stream| stream.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.retry(PollFlags::POLLOUT, |mut stream| {
            stream.write_vectored(slices)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.peer()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let deadline = Deadline::default();
        deadline.begin(Duration::from_secs(60));
        let socket = Socket::new(near, deadline, Duration::from_secs(60));
        (socket.unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn a_look_at_the_stream_is_good_for_one_request() {
        let (socket, mut far) = pair();
        let stream = socket.stream();
        assert!(!stream.was_quiet(), "nobody looked");
        assert!(stream.is_quiet());
        assert!(stream.was_quiet());
        assert!(!stream.was_quiet());
        assert!(stream.is_quiet());
        far.write_all(b"x").unwrap();
        socket.wait(PollFlags::POLLIN).unwrap();
        assert!(!stream.is_quiet() && !stream.was_quiet());
    }

    #[test]
    fn while_a_connection_is_set_up_its_share_of_the_time_ends_a_wait() {
        let (mut socket, _far) = pair();
        let opening = socket.opening.as_ref().unwrap();
        opening.begin(Duration::from_millis(20));
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(socket.left().is_err());
        socket.opened();
        assert!(socket.left().unwrap() > Duration::from_secs(50));
        socket.deadline.shorten(Duration::from_millis(20));
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
