//! A TCP stream whose reads and writes end at a deadline.
//!
//! The stream does not block; a wait is one `poll` with the time that is left. So a peer that
//! sends single bytes cannot extend a deadline, and one system call tells whether the peer has
//! closed.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ureq::unversioned::transport::time;
use ureq::unversioned::transport::{ConnectionDetails, NextTimeout};

/// The time limit of a poll, rounded up: 0 ms would spin during the last millisecond.
pub(super) fn poll_timeout(left: Duration) -> PollTimeout {
    let left = left.saturating_add(Duration::from_millis(1));
    PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
}

/// ureq's clock, the one that its deadlines are counted by.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> time::Instant + Send + Sync>);

impl Clock {
    pub(super) fn of(details: &ConnectionDetails) -> Self {
        Self(details.current_time.clone())
    }

    /// The same clock, for a connection that ureq did not ask for.
    pub(super) fn system() -> Self {
        Self(Arc::new(time::Instant::now))
    }

    /// Now, by ureq's clock; none where ureq has no time.
    pub(super) fn now(&self) -> Option<Instant> {
        match self.0() {
            time::Instant::Exact(now) => Some(now),
            _ => None,
        }
    }

    /// The moment at which `budget` ends that begins now.
    pub(super) fn ends_in(&self, budget: Duration) -> Option<Instant> {
        self.now()?.checked_add(budget)
    }

    /// The moment at which `timeout` ends; none if it never does.
    pub(super) fn deadline(&self, timeout: NextTimeout) -> Option<Instant> {
        match (self.0(), timeout.after) {
            (time::Instant::Exact(now), time::Duration::Exact(after)) => now.checked_add(after),
            _ => None,
        }
    }

    /// The time until `deadline`; never zero, which some calls take for "no limit".
    pub(super) fn left(&self, deadline: Option<Instant>) -> io::Result<Duration> {
        // No budget is longer than a minute, see the lease law.
        let Some(deadline) = deadline else {
            return Ok(Duration::from_secs(60));
        };
        match self.0() {
            time::Instant::Exact(now) if now < deadline => Ok(deadline.duration_since(now)),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }
}

pub(super) struct Socket {
    /// Shared with [`super::link::Link`] alone, which only peeks.
    stream: Arc<TcpStream>,
    clock: Clock,
    deadline: Option<Instant>,
}

impl Socket {
    /// Takes over a connected stream.
    pub(super) fn new(
        stream: TcpStream,
        clock: Clock,
        deadline: Option<Instant>,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: Arc::new(stream),
            clock,
            deadline,
        })
    }

    pub(super) fn stream(&self) -> &Arc<TcpStream> {
        &self.stream
    }

    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// The deadline of the reads and writes that follow.
    pub(super) fn limit(&mut self, timeout: NextTimeout, answer_by: Option<Instant>) {
        let ends = [self.clock.deadline(timeout), answer_by];
        self.deadline = ends.into_iter().flatten().min();
    }

    fn wait(&self, readiness: PollFlags) -> io::Result<()> {
        loop {
            let left = self.clock.left(self.deadline)?;
            let mut stream = [PollFd::new(self.stream.as_fd(), readiness)];
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
            match operation(&self.stream) {
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

/// Reads nothing and does not wait.
pub(super) fn peek(stream: &TcpStream) -> Peek {
    match stream.peek(&mut [0]) {
        Ok(0) => Peek::Closed,
        Ok(_) => Peek::Bytes,
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Peek::Nothing
        }
        Err(_) => Peek::Closed,
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
