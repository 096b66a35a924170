//! The wait of the loop: a poll that ends early with a signal, memory pressure, a change of
//! interfaces, addresses or routes, or a report of the voltage alarm.
//!
//! PSI triggers, netlink and the timer are optional, and their absence is not logged. Without
//! triggers or netlink, the periodic reads of `agent::read_cache` see the same changes later.
//! Without the timer, the limit of ppoll(2) ends the wait.

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
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

#[cfg(test)]
use crate::sim::hook as sim;

/// Not below `--host-root`: the trigger is written to this file, and that root may be a copy.
const MEMORY_PRESSURE: &str = "/proc/pressure/memory";

/// PSI trigger: tasks stalled on memory for 50 ms within a window of 2 s (in µs). A window that is
/// a multiple of 2 s needs no privilege since Linux 6.4 (Documentation/accounting/psi.rst).
const TRIGGER: &[u8] = b"some 50000 2000000\0";

/// RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_IFADDR and RTMGRP_IPV6_ROUTE of
/// linux/rtnetlink.h. Needs no privilege.
const NETWORK: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// Maximum number of messages read at once; the rest ends the next wait.
const MAX_MESSAGES: usize = 64;
/// SIGTERM, SIGINT and SIGUSR1, each of which is pending once at most.
const SIGNALS: usize = 3;

/// Maximum wait after a failed poll.
const ERROR_WAIT: Duration = Duration::from_secs(1);

/// The descriptors that end a wait.
#[derive(Debug)]
pub struct Wakeup {
    signals: SignalFd,
    network: Option<OwnedFd>,
    memory: Option<File>,
    voltage: Option<OwnedFd>,
    /// On CLOCK_BOOTTIME: ppoll's own limit stands still while the board is suspended, so that the
    /// first renewal after a resume would be late.
    timer: Option<TimerFd>,
}

/// Why a wait ended. There may be several causes; without one the timeout has passed, or the poll
/// failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// SIGTERM or SIGINT.
    pub stop: bool,
    /// SIGUSR1: the machine is shutting down. A SIGTERM may have come with it.
    pub shutdown: bool,
    /// The PSI trigger fired: tasks stall on memory. The kernel reports it once.
    pub memory_pressure: bool,
    /// An interface, an address or a route changed.
    pub network: bool,
    /// The driver of the supply voltage reported a change. It is not waited for again until the
    /// next [`Wakeup::wait_for_voltage`].
    pub voltage: bool,
}

impl Wakeup {
    /// Blocks SIGTERM, SIGINT and SIGUSR1: from now on each of them ends a wait, and has no other
    /// effect. Subscribes to memory pressure and network changes. `Err` only if the signals cannot
    /// be blocked or waited for.
    pub fn new() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGTERM);
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGUSR1);
        signals.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self {
            signals: SignalFd::with_flags(&signals, flags)?,
            network: network_socket().ok(),
            memory: memory_trigger().ok(),
            voltage: None,
            timer: timer().ok(),
        })
    }

    /// Whether changes of interfaces, addresses and routes are reported.
    pub fn watches_network(&self) -> bool {
        self.network.is_some()
    }

    /// Whether the next wait ends when the supply voltage changes.
    pub fn waits_for_voltage(&self) -> bool {
        self.voltage.is_some()
    }

    /// From now on a wait ends when the voltage driver reports a change on `file`, which it does
    /// once after each read of this file. `None` ends this.
    pub fn wait_for_voltage(&mut self, file: Option<OwnedFd>) {
        self.voltage = file;
    }

    /// Waits for `timeout` at most. A network change ends the wait only `for_network`.
    pub fn wait(&mut self, timeout: Duration, for_network: bool) -> Woken {
        #[cfg(test)]
        if let Some(woken) = sim::wait(timeout, for_network, &mut self.voltage) {
            return woken;
        }
        let timer = self.timer.as_ref().filter(|timer| {
            // A timer of zero would never fire.
            let expires = Expiration::OneShot(TimeSpec::from_duration(timeout));
            !timeout.is_zero() && timer.set(expires, TimerSetTimeFlags::empty()).is_ok()
        });
        // A missing descriptor is replaced by the signalfd without its signals, so the array always
        // has five entries.
        let signals = self.signals.as_fd();
        let or_nothing = |file: Option<_>, flags| match file {
            Some(file) => PollFd::new(file, flags),
            None => PollFd::new(signals, PollFlags::empty()),
        };
        let network = self.network.as_ref().filter(|_| for_network).map(AsFd::as_fd);
        let mut descriptors = [
            PollFd::new(signals, PollFlags::POLLIN),
            or_nothing(network, PollFlags::POLLIN),
            or_nothing(self.memory.as_ref().map(AsFd::as_fd), PollFlags::POLLPRI),
            or_nothing(self.voltage.as_ref().map(AsFd::as_fd), PollFlags::POLLPRI),
            or_nothing(timer.map(AsFd::as_fd), PollFlags::POLLIN),
        ];
        // If the timer is set, ppoll gets no limit: a second timer would cost as much again.
        let limit = timer.is_none().then(|| TimeSpec::from_duration(timeout));
        match ppoll(&mut descriptors, limit, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Woken::default(),
            Err(_) => {
                // ENOMEM: wait without descriptors, so that the loop does not spin.
                let _ =
                    ppoll(&mut [], Some(TimeSpec::from_duration(timeout.min(ERROR_WAIT))), None);
                return Woken::default();
            }
        }
        let [signal, network, memory, voltage, _] =
            descriptors.map(|descriptor| descriptor.revents().unwrap_or(PollFlags::empty()));
        let mut woken = Woken {
            memory_pressure: memory.contains(PollFlags::POLLPRI),
            network: !network.is_empty(),
            voltage: !voltage.is_empty(),
            ..Woken::default()
        };
        if !signal.is_empty() {
            self.take_signals(&mut woken);
        }
        if woken.network {
            self.drain_network();
        }
        if memory.contains(PollFlags::POLLERR) {
            // A removed trigger would end every following wait.
            self.memory = None;
            woken.memory_pressure = false;
        }
        if woken.voltage {
            // The file stays ready until it is read, or for ever after an error: no wait would
            // last.
            self.voltage = None;
        }
        woken
    }

    /// Takes all signals that are pending, each kind once.
    fn take_signals(&self, woken: &mut Woken) {
        let shutdown = u32::try_from(Signal::SIGUSR1 as i32).unwrap_or_default();
        for _ in 0..SIGNALS {
            let Ok(Some(info)) = self.signals.read_signal() else { return };
            let is_shutdown = info.ssi_signo == shutdown;
            woken.shutdown |= is_shutdown;
            woken.stop |= !is_shutdown;
        }
    }

    /// Reads and discards the queued messages; the network is read again as a whole.
    fn drain_network(&mut self) {
        let mut buffer = [0; 8192];
        for _ in 0..MAX_MESSAGES {
            let Some(network) = &self.network else {
                return;
            };
            match recv(network.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                // ENOBUFS: the socket dropped messages.
                Ok(1..) | Err(Errno::EINTR | Errno::ENOBUFS) => {}
                Err(Errno::EAGAIN) => return,
                // A broken socket would end every following wait.
                Ok(_) | Err(_) => self.network = None,
            }
        }
    }
}

fn timer() -> io::Result<TimerFd> {
    let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
    Ok(TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?)
}

fn network_socket() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, NETWORK))?;
    Ok(socket)
}

fn memory_trigger() -> io::Result<File> {
    #[cfg(test)]
    if let Some(trigger) = sim::memory_trigger() {
        return trigger;
    }
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(MEMORY_PRESSURE)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixDatagram;
    use std::time::Instant;

    use nix::sys::socket::send;

    use super::*;

    /// The kernel reports memory pressure once: an urgent byte stands in for it. It must not be
    /// lost beside another cause.
    #[test]
    fn a_wait_has_all_its_causes() {
        let mut wakeup = Wakeup::new().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = OwnedFd::from(listener.accept().unwrap().0);
        wakeup.memory = Some(File::from(near));
        let (network, kernel) = UnixDatagram::pair().unwrap();
        wakeup.network = Some(OwnedFd::from(network));
        let mut descriptor =
            [PollFd::new(wakeup.memory.as_ref().unwrap().as_fd(), PollFlags::POLLPRI)];
        send(far.as_raw_fd(), b"!", MsgFlags::MSG_OOB).unwrap();
        let minute = Some(TimeSpec::from_duration(Duration::from_secs(60)));
        assert_eq!(ppoll(&mut descriptor, minute, None), Ok(1));
        kernel.send(b"RTM_NEWADDR").unwrap();
        let both = Woken { memory_pressure: true, network: true, ..Woken::default() };
        assert_eq!(wakeup.wait(Duration::from_secs(60), true), both);
        // The messages of the network are read, and a change of it is not always waited for.
        kernel.send(b"RTM_NEWADDR").unwrap();
        let pressure = Woken { network: false, ..both };
        assert_eq!(wakeup.wait(Duration::from_secs(60), false), pressure);
        // A signal is no change of what is missing.
        wakeup.memory = None;
        nix::sys::signal::raise(Signal::SIGUSR1).unwrap();
        let shutdown = Woken { shutdown: true, ..Woken::default() };
        assert_eq!(wakeup.wait(Duration::from_secs(60), false), shutdown);
        for signal in [Signal::SIGTERM, Signal::SIGUSR1] {
            nix::sys::signal::raise(signal).unwrap();
        }
        let both = Woken { stop: true, ..shutdown };
        assert_eq!(wakeup.wait(Duration::from_secs(60), false), both);
        assert_eq!(wakeup.wait(Duration::ZERO, false), Woken::default());
    }

    /// The timer ends the wait: without it this one would last for its limit of an hour, as ppoll's
    /// does after a resume.
    #[test]
    #[allow(clippy::disallowed_methods)]
    fn a_wait_ends_with_its_timer_on_the_boot_clock() {
        let timer = timer().unwrap();
        let expires = Expiration::OneShot(TimeSpec::from_duration(Duration::from_millis(20)));
        timer.set(expires, TimerSetTimeFlags::empty()).unwrap();
        let start = Instant::now();
        let mut polled = [PollFd::new(timer.as_fd(), PollFlags::POLLIN)];
        let hour = Some(TimeSpec::from_duration(Duration::from_secs(3600)));
        assert_eq!(ppoll(&mut polled, hour, None), Ok(1));
        assert!(start.elapsed() < Duration::from_secs(60));
        // And again, although the first expiration was not read.
        let mut wakeup = Wakeup::new().unwrap();
        (wakeup.network, wakeup.memory) = (None, None);
        for round in 0..4 {
            // A timer that is set to zero would never fire.
            assert_eq!(wakeup.wait(Duration::ZERO, true), Woken::default());
            if round == 3 {
                wakeup.timer = None;
            }
            let start = Instant::now();
            assert_eq!(wakeup.wait(Duration::from_millis(20), true), Woken::default());
            assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
        }
        assert_eq!(wakeup.wait(Duration::ZERO, true), Woken::default());
    }
}
