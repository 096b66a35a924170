//! The journal of a unit: the side of `nodelet serve`, which may not read it, and `nodelet logs`,
//! which systemd starts for one query and which becomes journalctl.
//!
//! `nodelet serve` and `nodelet logs` both check the query. `nodelet logs` limits the time of
//! journalctl, and `nodelet serve` limits the size of its output.

use std::io::{self, BufRead, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::unistd::alarm;

use super::answers::{Asked, PortAnswer};
use super::journal::{Journal, LIMIT};
use super::log_query::arguments;
use crate::os::read::cause;

/// Longest query in bytes, with the end of its line; that of a head is shorter.
const LONGEST: u64 = 8 << 10;
const KIND: &str = "text/plain;charset=UTF-8";

/// Answers the query that is a line of stdin, on stdout: this process becomes journalctl. Returns
/// only if it cannot, with the reason.
pub fn answer_one() -> String {
    // The alarm stays set after exec, and ends journalctl by SIGALRM.
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

/// Becomes journalctl. Its errors are for the client, so its stderr is stdout. Returns only if it
/// cannot be started; the reason also goes to stdout, because exec has moved stderr by then.
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
        // In a kubelet this is a path below /var/log; no log files are served here.
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
        let nothing = b"\nerror: journal output not available\n";
        assert_eq!(journal.read(&mut [0; 9]), Some(&nothing[..]));
        assert_eq!(journal.read(&mut [0; 9]), Some(&[][..]));
    }
}
