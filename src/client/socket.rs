//! A TCP stream whose reads and writes end at the deadline of the current call.
//!
//! The kernel ends each read and each write when the time is over (SO_RCVTIMEO and SO_SNDTIMEO of
//! socket(7)). So a peer that sends single bytes cannot extend a deadline, and an answer takes one
//! system call, without a poll before it.
//!
//! ureq's own time limits are not used: they are part of its configuration, which ureq copies for
//! each request that changes it. [`Deadline`] also counts the time in which the board is suspended.
//! After a resume, the first wait that ends finds that the deadline has passed, and ends the call.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::os::clock::since_boot;

/// In a test a stream may lead into the simulation.
#[cfg(test)]
pub(super) use crate::sim::tcp::Tcp;
#[cfg(not(test))]
pub(super) use std::net::TcpStream as Tcp;

/// The time limit in the kernel may differ by this much from the time that is left. So a request
/// with the same budget as the request before it makes no system call to set the limit.
const TOLERANCE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) stream: Arc<Stream>,
    /// The end of the current call.
    deadline: Deadline,
    /// The end of the set-up of the connection; `None` once it is set up.
    opening: Option<Deadline>,
    /// The time limit that is set in the kernel; `None` if none is set.
    limit: Option<Duration>,
}

/// Shared by [`Socket`] and [`super::route::Route`], which only peeks.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: Tcp,
}

impl Socket {
    /// Takes over a connected stream. The proxy's tunnel and TLS must be set up within `opens_in`.
    pub(super) fn new(tcp: Tcp, deadline: Deadline, opens_in: Duration) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        let opening = Deadline::default();
        opening.begin(opens_in);
        Ok(Self { stream: Arc::new(Stream { tcp }), deadline, opening: Some(opening), limit: None })
    }

    /// The connection is set up, TLS included.
    pub(super) fn opened(&mut self) {
        self.opening = None;
    }

    /// The time that is left until the call must end, or until the connection must be set up if
    /// that is earlier.
    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.left()?;
        match &self.opening {
            None => Ok(left),
            Some(opening) => Ok(left.min(opening.left()?)),
        }
    }

    /// A read or a write, which waits for the time that is left at most.
    fn wait_in(
        &mut self,
        operation: &mut dyn FnMut(&Tcp) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let tcp = &self.stream.tcp;
        loop {
            let left = self.left()?;
            debug_assert!(!left.is_zero(), "a wait without an end");
            let is_set = |limit: Duration| limit.abs_diff(left) <= TOLERANCE;
            if !self.limit.is_some_and(is_set) {
                self.limit = None;
                tcp.set_read_timeout(Some(left))?;
                tcp.set_write_timeout(Some(left))?;
                self.limit = Some(left);
            }
            match operation(tcp) {
                // A signal ended the wait, or the limit in the kernel, which may be a little
                // shorter than the time that is left. `left` fails if the call has ended.
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
                result => return result,
            }
        }
    }
}

/// What the kernel holds for a stream on which no answer is awaited.
#[derive(Debug)]
pub(crate) enum Peek {
    Nothing,
    Bytes,
    Closed,
}

impl Stream {
    /// What the kernel holds. Reads nothing and does not wait.
    pub(super) fn peek(&self) -> Peek {
        #[cfg(test)]
        if let Some(seen) = self.tcp.peek() {
            return seen;
        }
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.tcp.as_raw_fd(), &mut [0], flags) {
            Ok(0) => Peek::Closed,
            Ok(_) => Peek::Bytes,
            Err(Errno::EAGAIN | Errno::EINTR) => Peek::Nothing,
            Err(_) => Peek::Closed,
        }
    }

    /// Reads without the deadline of a call.
    pub(super) fn without_deadline(&self) -> impl Read {
        &self.tcp
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait_in(&mut |mut tcp| tcp.read(buffer))
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait_in(&mut |mut tcp| tcp.write(bytes))
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.wait_in(&mut |mut tcp| tcp.write_vectored(slices))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The time of the current call, or of the last call if none is under way. The lock is for ureq,
/// which wants its connections `Sync`: there is one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadline(Arc<Mutex<CallTime>>);

/// The start and the end of a call, as times since boot.
#[derive(Debug, Default)]
struct CallTime {
    begun: Duration,
    ends: Duration,
}

impl Deadline {
    /// Begins a call, which ends within `budget`.
    pub(super) fn begin(&self, budget: Duration) {
        let begun = since_boot();
        *self.time() = CallTime { begun, ends: begun.saturating_add(budget) };
    }

    /// The current call ends within `budget` from now, or at its present end if that is earlier.
    pub(super) fn shorten(&self, budget: Duration) {
        let mut time = self.time();
        time.ends = time.ends.min(since_boot().saturating_add(budget));
    }

    /// The time that the current call has left; never zero, which some calls take for "no limit".
    pub(super) fn left(&self) -> io::Result<Duration> {
        match self.time().ends.checked_sub(since_boot()) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(ErrorKind::TimedOut.into()),
        }
    }

    /// The time since the current call began.
    pub(super) fn passed(&self) -> Duration {
        since_boot().saturating_sub(self.time().begun)
    }

    fn time(&self) -> MutexGuard<'_, CallTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let deadline = Deadline::default();
        deadline.begin(Duration::from_secs(60));
        let socket = Socket::new(near.into(), deadline, Duration::from_secs(60));
        (socket.unwrap(), listener.accept().unwrap().0)
    }

    #[test]
    fn while_a_connection_is_set_up_its_share_of_the_time_ends_a_wait() {
        let (mut socket, mut far) = pair();
        let opening = socket.opening.as_ref().unwrap();
        opening.begin(Duration::from_millis(20));
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(socket.left().is_err());
        socket.opened();
        assert!(socket.left().unwrap() > Duration::from_secs(50));
        // The limit in the kernel is still 20 ms. `limit` pretends that it is that of the call: the
        // read that ends early is repeated.
        socket.limit = socket.left().ok();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            far.write_all(b"x")
        });
        assert_eq!(socket.read(&mut [0]).unwrap(), 1);
        writer.join().unwrap().unwrap();
    }

    #[test]
    fn requests_with_the_same_budget_share_one_limit() {
        let (mut socket, mut far) = pair();
        socket.opened();
        far.write_all(b"xxx").unwrap();
        let mut limit_after = |budget| {
            socket.deadline.begin(Duration::from_secs(budget));
            assert_eq!(socket.read(&mut [0]).unwrap(), 1);
            socket.limit.unwrap()
        };
        let first = limit_after(60);
        assert_eq!(limit_after(60), first);
        assert!(limit_after(5) <= Duration::from_secs(5));
    }

    #[test]
    fn a_call_ends_within_its_shortest_budget_and_the_next_one_begins_anew() {
        let deadline = Deadline::default();
        assert!(deadline.left().is_err(), "no call has begun");
        let socket = deadline.clone();
        let minute = Duration::from_secs(60);
        deadline.begin(minute);
        deadline.shorten(2 * minute);
        assert!(socket.left().unwrap() <= minute);
        deadline.shorten(Duration::ZERO);
        assert_eq!(socket.left().map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
        deadline.begin(Duration::MAX);
        assert!(socket.left().unwrap() > minute);
    }
}
