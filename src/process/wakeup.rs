//! Where the one thread waits: a poll that SIGTERM, SIGINT, memory pressure and another
//! address or route end at once.
//!
//! A kernel without PSI, or one that does not let us ask for a trigger, has nothing
//! to end the wait early, and nothing is said about it: the 10 s tick notices
//! pressure as well, only later.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};
use nix::sys::time::TimeSpec;

/// The real one, whatever `--host-root`: a trigger is written to the file, and a tree
/// of copied files must not be.
const MEMORY_PRESSURE: &str = "/proc/pressure/memory";

/// Some task stalled on memory for 50 ms within 2 s. The kernel looks ten times per
/// window; a window of a multiple of 2 s needs no privilege (since 6.4).
const TRIGGER: &[u8] = b"some 50000 2000000\0";

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and
/// RTMGRP_IPV6_ROUTE of linux/rtnetlink.h: no privilege is needed.
const NETWORK: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// Most messages that are taken at once; the rest ends the next wait.
const MOST_NEWS: usize = 64;

const SHORT: Duration = Duration::from_secs(1);

/// The descriptors that end a wait.
pub struct Wakeup {
    signals: SignalFd,
    network: Option<OwnedFd>,
    memory: Option<File>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The time is over.
    Timeout,
    /// A signal asks to stop.
    Stop,
    /// Tasks stall on memory.
    MemoryPressure,
    /// An interface, an address or a route came or went.
    Network,
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup")
            .field("network", &self.network.is_some())
            .field("memory", &self.memory.is_some())
            .finish_non_exhaustive()
    }
}

impl Wakeup {
    /// Blocks SIGTERM and SIGINT, which from then on only end a wait, and asks the
    /// kernel to tell of memory pressure and of the network.
    pub fn new() -> io::Result<Self> {
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTERM);
        stop.add(Signal::SIGINT);
        stop.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self {
            signals: SignalFd::with_flags(&stop, flags)?,
            network: network_news().ok(),
            memory: memory_trigger().ok(),
        })
    }

    /// Waits for `timeout` at most.
    pub fn wait(&mut self, timeout: Duration) -> Woken {
        // What is not there, is the signals once more: they are looked at first.
        let signals = self.signals.as_fd();
        let network = self.network.as_ref().map_or(signals, AsFd::as_fd);
        let (memory, urgent) = match &self.memory {
            Some(memory) => (memory.as_fd(), PollFlags::POLLPRI),
            None => (signals, PollFlags::POLLIN),
        };
        let mut descriptors = [
            PollFd::new(signals, PollFlags::POLLIN),
            PollFd::new(network, PollFlags::POLLIN),
            PollFd::new(memory, urgent),
        ];
        let limit = Some(TimeSpec::from_duration(timeout));
        match ppoll(&mut descriptors, limit, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Woken::Timeout,
            Err(_) => {
                // No memory for a poll of three descriptors: at least do not spin.
                let _ = ppoll(
                    &mut [],
                    Some(TimeSpec::from_duration(timeout.min(SHORT))),
                    None,
                );
                return Woken::Timeout;
            }
        }
        let [stop, network, memory] =
            descriptors.map(|descriptor| descriptor.revents().unwrap_or(PollFlags::empty()));
        if !stop.is_empty() {
            return Woken::Stop;
        }
        if !network.is_empty() {
            self.hear_network();
            return Woken::Network;
        }
        if memory.contains(PollFlags::POLLERR) {
            // The trigger is gone, and would end every wait from now on.
            self.memory = None;
            return Woken::Timeout;
        }
        match memory.contains(PollFlags::POLLPRI) {
            true => Woken::MemoryPressure,
            false => Woken::Timeout,
        }
    }
}

impl Wakeup {
    /// Takes all the news there is: what it says is read elsewhere, as a whole.
    fn hear_network(&mut self) {
        let mut buffer = [0; 8192];
        for _ in 0..MOST_NEWS {
            let Some(network) = &self.network else {
                return;
            };
            match recv(network.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                // More than the socket could hold is news as well.
                Ok(1..) | Err(Errno::EINTR | Errno::ENOBUFS) => {}
                Err(Errno::EAGAIN) => return,
                // It would end every wait from now on.
                Ok(_) | Err(_) => self.network = None,
            }
        }
    }
}

fn network_news() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        flags,
        SockProtocol::NetlinkRoute,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, NETWORK))?;
    Ok(socket)
}

fn memory_trigger() -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(MEMORY_PRESSURE)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}
