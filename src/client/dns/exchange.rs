//! The packets of a lookup, over UDP.
//!
//! Each server has a connected socket of its own: the kernel chooses a random source port, drops
//! packets from other hosts, and reports a closed port at once. Only [`Exchange::run`] waits.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::lookup::{Lookup, LookupResult, shown};
use crate::kube::instant::Mono;
#[cfg(test)]
use crate::sim::hook as sim;

/// Bytes; see `message::LARGE`.
const LARGEST: usize = 1500;
/// Packets read from one socket in one call, so that a flood cannot hold the loop.
const MOST_PACKETS: usize = 16;

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) lookup: Lookup,
    /// The address and the socket of each server. The text says why there is no socket, for example
    /// because this machine has no route to the server.
    sockets: Vec<(SocketAddr, Result<UdpSocket, String>)>,
}

impl Exchange {
    /// Opens the sockets, and sends nothing yet.
    pub(super) fn new(lookup: Lookup) -> Self {
        let open =
            |server: &SocketAddr| (*server, open(*server).map_err(|e| unreached(*server, &e)));
        let sockets = lookup.resolver.servers.iter().map(open).collect();
        Self { lookup, sockets }
    }

    /// Receives, sends and waits until the lookup has a result, and returns the result. At `end` it
    /// returns `None`, and the next call goes on. If `end` has passed, it receives and sends once,
    /// without waiting. After a result it is not called again.
    pub(super) fn run(&mut self, end: Mono, clock: impl Fn() -> Mono) -> Option<LookupResult> {
        loop {
            self.receive();
            let now = clock();
            let result = self.lookup.step(now);
            if result.is_some() {
                return result;
            }
            self.send();
            if now >= end {
                return None;
            }
            self.wait(self.lookup.due().min(end).since(now));
        }
    }

    fn send(&mut self) {
        #[cfg(test)]
        if let Some(send) = sim::dns_send(&self.lookup.resolver.servers) {
            return self.lookup.send(send);
        }
        let Self { lookup, sockets } = self;
        lookup.send(|index, packet| match sockets.get(index) {
            Some((server, Ok(socket))) => {
                socket.send(packet).map(drop).map_err(|e| unreached(*server, &e))
            }
            Some((_, Err(why))) => Err(why.clone()),
            None => Ok(()),
        });
    }

    /// Reads the packets that have arrived.
    fn receive(&mut self) {
        #[cfg(test)]
        if let Some(packets) = sim::dns_receive(&self.lookup.resolver.servers) {
            return packets.into_iter().for_each(|(index, packet)| match packet {
                Ok(packet) => self.lookup.receive(index, &packet),
                Err(why) => self.lookup.fail(index, why),
            });
        }
        let mut packet = [0; LARGEST];
        let key = |address: SocketAddr| (address.ip(), address.port());
        for (index, (server, socket)) in self.sockets.iter().enumerate() {
            let Ok(socket) = socket else { continue };
            // Not the address of resolv.conf: connect(2) to 0.0.0.0 leads to 127.0.0.1.
            let Ok(peer) = socket.peer_addr() else { continue };
            for _ in 0..MOST_PACKETS {
                match socket.recv_from(&mut packet) {
                    // Until the socket was connected, any host could send to it.
                    Ok((length, source)) if key(source) == key(peer) => {
                        self.lookup.receive(index, packet.get(..length).unwrap_or_default());
                    }
                    Ok(_) => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    // A closed port, or no route.
                    Err(e) => self.lookup.fail(index, unreached(*server, &e)),
                }
            }
        }
    }

    /// Waits for a packet, `at_most` this long.
    fn wait(&self, at_most: Duration) {
        #[cfg(test)]
        if sim::dns_wait(at_most).is_some() {
            return;
        }
        let sockets = self.sockets.iter().filter_map(|(_, socket)| socket.as_ref().ok());
        let mut sockets: Vec<PollFd<'_>> =
            sockets.map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        // Rounded up: 0 ms would spin during the last millisecond.
        let limit = PollTimeout::try_from(at_most.saturating_add(Duration::from_millis(1)));
        // EINTR ends the wait early; the caller calls again.
        let _ = poll(&mut sockets, limit.unwrap_or(PollTimeout::MAX));
    }
}

fn open(server: SocketAddr) -> io::Result<UdpSocket> {
    #[cfg(test)]
    if let Some(error) = sim::udp_socket() {
        return Err(error);
    }
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(server)?;
    Ok(socket)
}

fn unreached(server: SocketAddr, error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno::from_raw);
    let cause = errno.map_or_else(|| error.to_string(), |errno| errno.desc().to_ascii_lowercase());
    format!("name server {}: {cause}", shown(server))
}
