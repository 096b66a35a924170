//! Where the one thread waits: a poll that SIGTERM, SIGINT and memory pressure end
//! at once.
//!
//! A kernel without PSI, or one that does not let us ask for a trigger, has nothing
//! to end the wait early, and nothing is said about it: the 10 s tick notices
//! pressure as well, only later.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

/// The real one, whatever `--host-root`: a trigger is written to the file, and a tree
/// of copied files must not be.
const MEMORY_PRESSURE: &str = "/proc/pressure/memory";

/// Some task stalled on memory for 50 ms within 2 s. The kernel looks ten times per
/// window; a window of a multiple of 2 s needs no privilege (since 6.4).
const TRIGGER: &[u8] = b"some 50000 2000000\0";

const SHORT: Duration = Duration::from_secs(1);

/// The descriptors that end a wait.
pub struct Wakeup {
    signals: SignalFd,
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
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup")
            .field("memory", &self.memory.is_some())
            .finish_non_exhaustive()
    }
}

impl Wakeup {
    /// Blocks SIGTERM and SIGINT, which from then on only end a wait, and asks the
    /// kernel to tell of memory pressure.
    pub fn new() -> io::Result<Self> {
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTERM);
        stop.add(Signal::SIGINT);
        stop.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self {
            signals: SignalFd::with_flags(&stop, flags)?,
            memory: memory_trigger().ok(),
        })
    }

    /// Waits for `timeout` at most.
    pub fn wait(&mut self, timeout: Duration) -> Woken {
        let mut descriptors = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        if let Some(memory) = &self.memory {
            descriptors.push(PollFd::new(memory.as_fd(), PollFlags::POLLPRI));
        }
        let limit = Some(TimeSpec::from_duration(timeout));
        match ppoll(&mut descriptors, limit, None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Woken::Timeout,
            Err(_) => {
                // No memory for a poll of two descriptors: at least do not spin.
                let _ = ppoll(
                    &mut [],
                    Some(TimeSpec::from_duration(timeout.min(SHORT))),
                    None,
                );
                return Woken::Timeout;
            }
        }
        let happened = |index: usize| {
            let events = descriptors.get(index).and_then(PollFd::revents);
            events.unwrap_or(PollFlags::empty())
        };
        if !happened(0).is_empty() {
            return Woken::Stop;
        }
        let memory = happened(1);
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

fn memory_trigger() -> io::Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
        .open(MEMORY_PRESSURE)?;
    file.write_all(TRIGGER)?;
    Ok(file)
}
