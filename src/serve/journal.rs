//! What `nodelet logs` writes for one query, as `nodelet serve` reads and limits it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::os::clock::since_boot;
use crate::os::unix_socket::connect_to;

/// Time limit of a query in seconds: the kubelet's.
pub(super) const LIMIT: u32 = 30;
/// Most bytes of an answer. The kubelet has no limit.
const MOST: usize = 1 << 20;
const CUT: &[u8] = b"\nerror: cut after 1 MiB; ask for less with tailLines, sinceTime or pattern\n";
const LATE: &[u8] = b"\nerror: cut after 30 s; ask for less with tailLines, sinceTime or pattern\n";
/// `nodelet logs` has logged why.
const NOTHING: &[u8] = b"\nerror: journal output not available\n";

/// What journalctl says, as far as it is read.
#[derive(Debug)]
pub(super) struct Journal {
    stream: UnixStream,
    /// [`LIMIT`] after the query, as a time since boot. `nodelet logs` ends journalctl by an alarm
    /// that it sets a moment later. So the alarm has not cut a stream that is closed before `end`.
    end: Duration,
    /// Bytes that may still be read before the journal is cut.
    left: usize,
    /// journalctl has ended before `end`: its output is complete, even if a slow client takes the
    /// rest of it after `end`.
    is_complete: bool,
    is_over: bool,
}

impl Journal {
    /// Connects to `nodelet logs` and writes the query.
    pub(super) fn open(socket: &Path, query: &str) -> io::Result<Self> {
        let mut stream = connect_to(socket)?;
        // The socket has room for it.
        stream.write_all(format!("{query}\n").as_bytes())?;
        Ok(Self::new(stream))
    }

    /// The journal that comes from `stream`. The stream must be non-blocking, and the query must be
    /// written to it just before, because the time limit begins now.
    pub(super) fn new(stream: UnixStream) -> Self {
        let end = since_boot() + Duration::from_secs(LIMIT.into());
        Self { stream, end, left: MOST, is_complete: false, is_over: false }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Ends the journal now. Its last line then says that it was cut.
    pub(super) fn cut(&mut self) {
        (self.end, self.is_complete) = (Duration::ZERO, false);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The next bytes; empty at the end; `None` if no bytes have arrived yet.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.is_over {
            return Some(&[]);
        }
        self.is_complete |= since_boot() < self.end && has_hung_up(&self.stream);
        // With `left` at 0, one byte is still read: it shows whether there is more to cut.
        let room = self.left.clamp(1, buffer.len());
        let length = match self.stream.read(buffer.get_mut(..room)?) {
            Ok(length) => length,
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {
                return None;
            }
            // For example, systemd refuses to start a second process.
            Err(_) => 0,
        };
        self.is_over = length == 0 || self.left == 0;
        match length {
            0 if !self.is_complete && since_boot() >= self.end => return Some(LATE),
            0 if self.left == MOST => return Some(NOTHING),
            1.. if self.left == 0 => return Some(CUT),
            _ => {}
        }
        self.left = self.left.saturating_sub(length);
        buffer.get(..length)
    }
}

/// Whether the other end is closed, with or without bytes that are not read yet.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut descriptor = [PollFd::new(stream.as_fd(), PollFlags::empty())];
    let polled = poll(&mut descriptor, PollTimeout::ZERO);
    polled.is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_takes_30_s_says_so() {
        for (text, is_late) in [("", true), ("half a l", true), ("a line\n", false)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut journal = Journal::new(ours);
            if is_late {
                journal.end = since_boot();
            }
            theirs.write_all(text.as_bytes()).unwrap();
            drop(theirs);
            let mut buffer = [0; 64];
            if !text.is_empty() {
                assert_eq!(journal.read(&mut buffer), Some(text.as_bytes()));
            }
            // A slow client takes the line so late.
            journal.end = since_boot();
            let end: &[u8] = if is_late { LATE } else { &[] };
            assert_eq!(journal.read(&mut buffer), Some(end), "{text}");
            assert_eq!(journal.read(&mut buffer), Some(&[][..]), "{text}");
        }
    }

    /// After 1 MiB, which an end-to-end test reads.
    #[test]
    fn a_journal_is_cut_where_it_is_longer_than_its_limit() {
        for (length, is_cut) in [(9, false), (10, false), (12, true)] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let mut journal = Journal::new(ours);
            journal.left = 10;
            theirs.write_all(&b"x".repeat(length)).unwrap();
            drop(theirs);
            let mut buffer = [0; 64];
            assert_eq!(journal.read(&mut buffer).map(<[u8]>::len), Some(length.min(10)));
            let end: &[u8] = if is_cut { CUT } else { &[] };
            assert_eq!(journal.read(&mut buffer), Some(end), "{length}");
            assert_eq!(journal.read(&mut buffer), Some(&[][..]), "{length}");
        }
    }
}
