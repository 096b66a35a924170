//! The journal of a unit: the side of `nodelet serve`, which may not read it, and `nodelet logs`,
//! which systemd starts for one query and which becomes journalctl.
//!
//! Both check the query. `nodelet logs` limits the time, `nodelet serve` the size.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::alarm;

use super::answers::{Asked, PortAnswer};
use super::log_query::arguments;
use crate::os::clock::since_boot;
use crate::os::read::cause;
use crate::os::unix_socket::connect_to;

/// Time limit of a query in seconds: the kubelet's.
const LIMIT: u32 = 30;
/// Longest query in bytes, with the end of its line; that of a head is shorter.
const LONGEST: u64 = 8 << 10;
/// Most bytes of an answer. The kubelet has no limit.
const MOST: usize = 1 << 20;
const CUT: &[u8] = b"\nerror: cut after 1 MiB; ask for less with tailLines, sinceTime or pattern\n";
const LATE: &[u8] = b"\nerror: cut after 30 s; ask for less with tailLines, sinceTime or pattern\n";
/// `nodelet logs` has logged why.
const NOTHING: &[u8] = b"\nerror: journal output not available\n";
const KIND: &str = "text/plain;charset=UTF-8";

/// Answers the query that is a line of stdin, on stdout: this process becomes journalctl. Returns
/// only if it cannot, with the reason.
pub fn answer_one() -> String {
    // It outlives exec, and ends the process by SIGALRM.
    alarm::set(LIMIT);
    let mut line = String::new();
    let read = io::stdin().lock().take(LONGEST).read_line(&mut line);
    let query = match (read, line.strip_suffix('\n')) {
        (Ok(_), Some(query)) => query,
        (Ok(_), None) => return format!("stdin: no line of less than {LONGEST} bytes"),
        (Err(e), _) => return format!("stdin: {}", cause(&e)),
    };
    match arguments(query) {
        Ok(Some(arguments)) => journalctl(&arguments),
        Ok(None) => "the query names no unit".to_owned(),
        Err(refused) => refused.text,
    }
}

/// Its errors are for whoever asked, so they go where its output goes; so does the reason why it
/// cannot be started, because exec has moved stderr by then.
fn journalctl(arguments: &[String]) -> String {
    let failed = match io::stdout().as_fd().try_clone_to_owned() {
        Ok(output) => {
            Command::new("journalctl").args(arguments).stdin(Stdio::null()).stderr(output).exec()
        }
        Err(e) => e,
    };
    format!("journalctl: {}", cause(&failed))
}

/// What follows `/logs` in a path, empty or from its slash on.
pub(super) fn path(path: &str) -> Option<&str> {
    path.strip_prefix("/logs").filter(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The answer to a request for `/logs` and `path`. `is_busy`: another answer has the journal.
pub(super) fn answer(
    asked: &Asked<'_>,
    path: &str,
    socket: Option<&Path>,
    is_busy: bool,
) -> PortAnswer {
    let Some(socket) = socket else {
        // As a kubelet that serves no logs.
        return PortAnswer::plain(405, "--enable-system-log-query is not set\n");
    };
    PortAnswer::to(&["GET"], asked, || match arguments(asked.query) {
        Err(refused) => PortAnswer::plain(refused.code, refused.text + "\n"),
        // A path below /var/log: there are none.
        Ok(None) => PortAnswer::refusal(404),
        Ok(Some(_)) if path.len() > 1 => {
            PortAnswer::plain(406, "a query has no path behind /logs/\n")
        }
        Ok(Some(_)) if is_busy => {
            let text = "the journal is being read for another request; try again\n";
            let mut busy = PortAnswer::plain(429, text);
            busy.headers.push(("Retry-After", "1".to_owned()));
            busy
        }
        Ok(Some(_)) => match Journal::open(socket, asked.query) {
            Ok(journal) => PortAnswer {
                content_type: KIND,
                journal: Some(journal),
                ..PortAnswer::text(200, "")
            },
            Err(e) => PortAnswer::plain(500, unavailable(socket, &e)),
        },
    })
}

fn unavailable(socket: &Path, error: &io::Error) -> String {
    let (socket, cause) = (socket.display(), cause(error));
    format!(
        "{socket}: {cause}; on the board: systemctl enable --now nodelet-logs.socket, then \
         systemctl stop nodelet-serve.service\n"
    )
}

/// What journalctl says, as far as it is read.
#[derive(Debug)]
pub(super) struct Journal {
    stream: UnixStream,
    /// When `nodelet logs` has ended journalctl, since boot.
    end: Duration,
    /// Bytes until it is cut.
    left: usize,
    /// journalctl has ended before that. A slow client reads the rest of its output later.
    is_complete: bool,
    is_over: bool,
}

impl Journal {
    fn open(socket: &Path, query: &str) -> io::Result<Self> {
        let mut stream = connect_to(socket)?;
        // The socket has room for it.
        stream.write_all(format!("{query}\n").as_bytes())?;
        Ok(Self::new(stream))
    }

    /// Of a stream that never blocks.
    pub(super) fn new(stream: UnixStream) -> Self {
        let end = since_boot() + Duration::from_secs(LIMIT.into());
        Self { stream, end, left: MOST, is_complete: false, is_over: false }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Its end is now, and it was cut.
    pub(super) fn cut(&mut self) {
        (self.end, self.is_complete) = (Duration::ZERO, false);
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// The next bytes; none at the end; `None` if there are none yet.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
        if self.is_over {
            return Some(&[]);
        }
        self.is_complete |= since_boot() < self.end && has_hung_up(&self.stream);
        // One byte more shows whether there is anything to cut.
        let room = self.left.clamp(1, buffer.len());
        let length = match self.stream.read(buffer.get_mut(..room)?) {
            Ok(length) => length,
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&e.kind()) => {
                return None;
            }
            // As when systemd refuses a second process.
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
    use std::io::BufReader;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::os::tree::Tree;

    /// What is answered to a request if there is no journal.
    fn refusal(method: &str, target: &str, socket: Option<&Path>, is_busy: bool) -> (u16, String) {
        let (whole, query) = target.split_once('?').unwrap_or((target, ""));
        let asked = Asked { method, path: whole, query, token: None };
        let answer = answer(&asked, path(whole).unwrap(), socket, is_busy);
        assert!(answer.journal.is_none(), "{target}");
        (answer.code, String::from_utf8(answer.body).unwrap())
    }

    #[test]
    fn the_paths_of_logs_are_logs_and_below() {
        for (whole, rest) in [
            ("/logs", Some("")),
            ("/logs/", Some("/")),
            ("/logs/a/b", Some("/a/b")),
            ("/logsx", None),
            ("/", None),
        ] {
            assert_eq!(path(whole), rest, "{whole}");
        }
    }

    #[test]
    fn what_is_no_query_of_units_opens_no_journal() {
        let socket = Path::new("/no/such/socket");
        let query = "/logs/?query=a";
        let absent = "/no/such/socket: no such file or directory; on the board: systemctl enable --now \
                      nodelet-logs.socket, then systemctl stop nodelet-serve.service\n";
        let busy = "the journal is being read for another request; try again\n";
        let on = Some(socket);
        for (method, target, socket, is_busy, code, body) in [
            ("GET", query, None, false, 405, "--enable-system-log-query is not set\n"),
            ("POST", "/logs", None, false, 405, "--enable-system-log-query is not set\n"),
            ("POST", query, on, false, 405, "405 Method Not Allowed\n"),
            ("HEAD", query, on, false, 405, "405 Method Not Allowed\n"),
            ("GET", "/logs/", on, false, 404, "404 Not Found\n"),
            ("GET", "/logs/syslog", on, false, 404, "404 Not Found\n"),
            ("GET", "/logs/a?query=", on, false, 400, "query is empty: write the name of a unit\n"),
            ("GET", "/logs/a?query=a", on, false, 406, "a query has no path behind /logs/\n"),
            ("GET", "/logs/?query=a&tailLines=-1", on, true, 406, "tailLines: write 0 to 100000\n"),
            ("GET", query, on, true, 429, busy),
            ("GET", query, on, false, 500, absent),
        ] {
            let got = refusal(method, target, socket, is_busy);
            assert_eq!(got, (code, body.to_owned()), "{method} {target}");
        }
    }

    #[test]
    fn a_query_is_one_line_to_the_socket() {
        let tree = Tree::empty("log-socket");
        let socket = tree.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let query = "query=nodelet&tailLines=50";
        let asked = Asked { method: "GET", path: "/logs/", query, token: None };
        let answer = answer(&asked, "/", Some(&socket), false);
        assert_eq!((answer.code, answer.content_type), (200, "text/plain;charset=UTF-8"));
        let mut journal = answer.journal.unwrap();
        assert_eq!(journal.read(&mut [0; 9]), None);
        let mut line = String::new();
        BufReader::new(listener.accept().unwrap().0).read_line(&mut line).unwrap();
        assert_eq!(line, format!("{query}\n"));
        // As systemd when it refuses a second process.
        assert_eq!(journal.read(&mut [0; 9]), Some(NOTHING));
        assert_eq!(journal.read(&mut [0; 9]), Some(&[][..]));
    }

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
