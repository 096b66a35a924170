//! A TCP stream of a test: to a real socket, or into the simulation.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use super::hook;
use super::process::{Me, me};
use crate::client::socket::Peek;

/// Stands for `TcpStream` in the library's tests.
#[derive(Debug)]
pub(crate) enum Tcp {
    Kernel(TcpStream),
    Simulated(Stream),
}

/// A connection of the simulation; closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Stream(u64);

impl From<TcpStream> for Tcp {
    fn from(stream: TcpStream) -> Self {
        Self::Kernel(stream)
    }
}

/// What a stream of a simulated process does.
fn simulated<T>(act: impl FnOnce(&Me) -> T) -> T {
    me(act).expect("the stream of a simulated process")
}

impl Tcp {
    pub(crate) fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if hook::is_on() {
            return simulated(|me| connect(me, address, timeout)).map(Self::Simulated);
        }
        TcpStream::connect_timeout(address, timeout).map(Self::Kernel)
    }

    pub(crate) fn set_nodelay(&self, on: bool) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_nodelay(on),
            Self::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_read_timeout(limit),
            Self::Simulated(stream) => simulated(|me| {
                let mut world = me.world();
                if let Some(connection) = world.net.connections.get_mut(&stream.0) {
                    connection.limit = limit;
                }
                Ok(())
            }),
        }
    }

    pub(crate) fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Kernel(stream) => stream.set_write_timeout(limit),
            Self::Simulated(_) => Ok(()),
        }
    }

    /// What a stream of the simulation holds; `None` if the kernel must be asked.
    pub(crate) fn peek(&self) -> Option<Peek> {
        match self {
            Self::Kernel(_) => None,
            Self::Simulated(stream) => Some(simulated(|me| {
                let world = me.world();
                match world.net.input(stream.0, world.now) {
                    Input::Bytes => Peek::Bytes,
                    Input::Nothing => Peek::Nothing,
                    Input::Closed | Input::Reset => Peek::Closed,
                }
            })),
        }
    }
}

/// What a connection has for its client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Input {
    Bytes,
    Nothing,
    Closed,
    Reset,
}

fn connect(me: &Me, address: &SocketAddr, timeout: Duration) -> io::Result<Stream> {
    let now = me.world().now;
    let (takes, end) = me.world().connects(me.pid, *address);
    if takes >= timeout {
        me.pass(timeout);
        return Err(io::Error::new(ErrorKind::TimedOut, "connection timed out"));
    }
    me.pass(takes);
    // A process that is killed closes nothing: it has no connection yet.
    debug_assert!(me.world().now >= now);
    end.map(|()| Stream(me.world().connected(me.pid, *address)))
}

fn read(me: &Me, stream: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
    let limit = me.world().net.connections.get(&stream.0).and_then(|found| found.limit);
    let end = me.world().now.saturating_add(limit.unwrap_or(Duration::from_secs(86_400)));
    loop {
        let mut world = me.world();
        let now = world.now;
        match world.net.input(stream.0, now) {
            Input::Bytes => {
                let length = world.net.take(stream.0, now, buffer);
                world.taken(stream.0);
                return Ok(length);
            }
            Input::Closed => return Ok(0),
            Input::Reset => return Err(ErrorKind::ConnectionReset.into()),
            Input::Nothing if now >= end => return Err(ErrorKind::WouldBlock.into()),
            Input::Nothing => {}
        }
        drop(world);
        me.sleep_for_input(stream.0, end);
    }
}

fn write(me: &Me, stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
    let mut world = me.world();
    let now = world.now;
    if world.net.input(stream.0, now) == Input::Reset {
        return Err(ErrorKind::BrokenPipe.into());
    }
    world.sent(stream.0, bytes);
    Ok(bytes.len())
}

impl AsRawFd for Tcp {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Kernel(stream) => stream.as_raw_fd(),
            // No descriptor: each call with it is EBADF.
            Self::Simulated(_) => -1,
        }
    }
}

impl Read for &Tcp {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Tcp::Kernel(stream) => (&mut &*stream).read(buffer),
            Tcp::Simulated(stream) => simulated(|me| read(me, stream, buffer)),
        }
    }
}

impl Write for &Tcp {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Tcp::Kernel(stream) => (&mut &*stream).write(bytes),
            Tcp::Simulated(stream) => simulated(|me| write(me, stream, bytes)),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Tcp::Kernel(stream) => (&mut &*stream).write_vectored(slices),
            Tcp::Simulated(stream) => {
                let bytes: Vec<u8> =
                    slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                simulated(|me| write(me, stream, &bytes))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let _ = me(|me| me.world().closed(self.0));
    }
}
