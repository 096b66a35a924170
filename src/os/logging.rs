//! Lines on stderr: the log, with the priority prefix that journald reads, and the error that ends
//! a command.
//!
//! A process that runs for long never waits for the reader of stderr: a full pipe, a stopped
//! terminal or a journal that hangs would stop the thread that renews the Lease. A line that stderr
//! does not take is dropped and counted. Only a log file on a disk that hangs still blocks.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::Mutex;

use env_logger::Target;
use log::{Level, LevelFilter};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, send};

use crate::kube::text::{OneLine, VERBOSE};
#[cfg(test)]
use crate::sim::hook as sim;

/// There is one thread, so nobody waits for the lock. Only a panic in a method of `Lines` finds it
/// locked; then the message of this panic is dropped.
static LINES: Mutex<Lines> = Mutex::new(Lines::new(Sink::Waiting));

/// Most bytes that a pipe takes at once or not at all (pipe(7)).
const PIPE_BUF: usize = 4096;

/// Starts logging to stderr. `verbosity` is `--v`. `for_journal` writes the priority (`<6>`) before
/// each line (sd-daemon(3)). Text of others in a line cannot forge another one.
pub fn start(verbosity: u8, for_journal: bool) {
    with_lines(|lines| lines.for_journal = for_journal);
    let mut builder = env_logger::Builder::new();
    // Libraries log only warnings and errors.
    builder.filter(None, LevelFilter::Warn);
    builder.filter(Some("nodelet"), LevelFilter::Info);
    if verbosity >= 2 {
        builder.filter(Some(VERBOSE), LevelFilter::Info);
    }
    builder.format(move |out, record| {
        let prefix = match record.level() {
            Level::Error => ("<3>", "error: "),
            Level::Warn => WARNING,
            _ if record.target() == VERBOSE => ("<7>", "debug: "),
            _ => ("<6>", ""),
        };
        out.write_all(line(for_journal, prefix, record.args()).as_bytes())
    });
    builder.target(Target::Pipe(Box::new(Stderr)));
    // In tests, a second start fails and the first logger stays.
    let _ = builder.try_init();
}

/// Takes whole lines from the logger.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        with_lines(|lines| lines.print(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Priority and word before a line.
type Prefix = (&'static str, &'static str);

const WARNING: Prefix = ("<4>", "warning: ");

fn line(for_journal: bool, (priority, word): Prefix, text: impl Display) -> String {
    let line = OneLine(text);
    if for_journal { format!("{priority}{line}\n") } else { format!("nodelet: {word}{line}\n") }
}

/// From now on no line waits for the reader of stderr, the message of a panic included.
pub fn never_wait() {
    #[cfg(test)]
    if sim::is_on() {
        return;
    }
    let Ok(shared) = io::stderr().as_fd().try_clone_to_owned().map(File::from) else {
        return;
    };
    let sink = own(&shared).map_or_else(|| Sink::Shared(shared), Sink::Own);
    with_lines(|lines| lines.sink = sink);
    std::panic::set_hook(Box::new(|info| print_error(info)));
}

/// Prints the error of a command.
pub fn print_error(line: impl Display) {
    #[cfg(test)]
    if sim::print(&line.to_string()).is_some() {
        return;
    }
    with_lines(|lines| lines.print(format!("nodelet: {}\n", OneLine(line)).as_bytes()));
}

fn with_lines(act: impl FnOnce(&mut Lines)) {
    if let Ok(mut lines) = LINES.try_lock() {
        act(&mut lines);
    }
}

/// Opens the pipe or the terminal of stderr once more, with O_NONBLOCK. stderr is shared with the
/// process that started this one, which must not find it non-blocking; flags of a second open are
/// not shared. Fails for the pipe or terminal of another user, and without /proc.
fn own(shared: &File) -> Option<File> {
    let kind = shared.metadata().ok()?.file_type();
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags.bits());
    let path = format!("/proc/self/fd/{}", shared.as_raw_fd());
    (kind.is_fifo() || kind.is_char_device()).then(|| options.open(path).ok()).flatten()
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    /// stderr; the process waits for its reader.
    Waiting,
    /// A pipe or a terminal; no write waits.
    Own(File),
    /// A socket or a file, or what could not be opened once more.
    Shared(File),
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Waiting => io::stderr().write(bytes),
            Self::Own(file) => file.write(bytes),
            Self::Shared(file) => match send(file.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT) {
                Err(Errno::ENOTSOCK) => {
                    let mut polled = [PollFd::new(file.as_fd(), PollFlags::POLLOUT)];
                    match poll(&mut polled, PollTimeout::ZERO) {
                        Ok(1..) => file.write(bytes.get(..PIPE_BUF).unwrap_or(bytes)),
                        _ => Err(ErrorKind::WouldBlock.into()),
                    }
                }
                sent => Ok(sent?),
            },
        }
    }
}

/// The lines on stderr, none of which is cut by another one.
#[derive(Debug)]
struct Lines {
    sink: Sink,
    for_journal: bool,
    /// What is left of a line that was begun.
    rest: Vec<u8>,
    /// Lines that were dropped since the last one that was written.
    dropped: u64,
}

impl Lines {
    const fn new(sink: Sink) -> Self {
        Self { sink, for_journal: false, rest: Vec::new(), dropped: 0 }
    }

    /// Writes the number of lines that were dropped before, then this line; or drops this line.
    fn print(&mut self, line: &[u8]) {
        if self.dropped > 0 {
            let dropped = self.dropped;
            let text = format_args!(
                "log lines dropped: {dropped}; stderr could not be written; does its reader hang?"
            );
            if self.begin(self::line(self.for_journal, WARNING, text).as_bytes()) {
                self.dropped = 0;
            }
        }
        if self.dropped > 0 || !self.begin(line) {
            self.dropped += 1;
        }
    }

    /// Ends the line that was begun, and begins this one. False if nothing of this line was
    /// written.
    fn begin(&mut self, line: &[u8]) -> bool {
        let rest = std::mem::take(&mut self.rest);
        self.rest = self.write(&rest).to_vec();
        if !self.rest.is_empty() {
            return false;
        }
        let left = self.write(line);
        let is_begun = left.len() < line.len();
        if is_begun {
            self.rest = left.to_vec();
        }
        is_begun
    }

    /// Returns what could not be written.
    fn write<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while !bytes.is_empty() {
            match self.sink.write(bytes) {
                Ok(written @ 1..) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => break,
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use nix::fcntl::{FcntlArg, fcntl};

    use super::*;

    /// A pipe of 16 KiB, which the agent has opened or shares.
    fn lines(is_own: bool) -> (PipeReader, Lines) {
        let (reader, writer) = pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETPIPE_SZ(16 << 10)).unwrap();
        let shared = File::from(std::os::fd::OwnedFd::from(writer));
        let sink = if is_own { Sink::Own(own(&shared).unwrap()) } else { Sink::Shared(shared) };
        (reader, Lines::new(sink))
    }

    fn read(reader: &mut PipeReader) -> String {
        let mut bytes = vec![0; 32 << 10];
        let length = reader.read(&mut bytes).unwrap();
        bytes.truncate(length);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_that_nobody_reads_are_dropped_and_counted() {
        for is_own in [true, false] {
            let (mut reader, mut lines) = lines(is_own);
            let full = format!("{}\n", "x".repeat((16 << 10) - 1));
            lines.print(full.as_bytes());
            for _ in 0..17 {
                lines.print(b"lost\n");
            }
            assert_eq!(read(&mut reader), full);
            lines.print(b"a\n");
            lines.print(b"b\n");
            let told = "nodelet: warning: log lines dropped: 17; stderr could not be written; \
                        does its reader hang?\na\nb\n";
            assert_eq!(read(&mut reader), told);
        }
    }

    #[test]
    fn a_line_that_was_begun_is_ended_before_the_next_one() {
        for is_own in [true, false] {
            let (mut reader, mut lines) = lines(is_own);
            let long = format!("{}\n", "x".repeat(20 << 10));
            lines.print(long.as_bytes());
            lines.print(b"lost\n");
            let mut all = String::new();
            while !all.ends_with("\nb\n") {
                all += &read(&mut reader);
                lines.print(b"b\n");
            }
            let (first, later) = all.split_at(long.len());
            assert_eq!(first, long);
            assert!(later.starts_with("nodelet: warning: log lines dropped: "), "{later}");
            assert!(!later.contains("lost"));
        }
    }

    #[test]
    fn a_reader_that_is_gone_ends_nothing() {
        let (reader, mut lines) = lines(true);
        drop(reader);
        lines.print(b"a\n");
        lines.print(b"b\n");
        assert_eq!(lines.dropped, 2);
    }
}
