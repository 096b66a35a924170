//! Nobody reads stderr: lines are dropped and counted, and nothing waits.

use std::fs::File;
use std::io::{Read, Write, pipe};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use apidouble::Double;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, write};
use support::{Folder, eventually};

use crate::common::board::{FAST, binary};
use crate::common::lease::renewals;
use crate::common::runtime::Runtime;
use crate::serve::{Client, flags};

const SOON: Duration = Duration::from_secs(30);
/// For the end of a process on a busy machine.
const END: Duration = Duration::from_secs(5);

/// A stderr that takes nothing.
struct Stuck {
    stderr: OwnedFd,
    reader: File,
    /// What a person types, so that a terminal goes on.
    key: &'static [u8],
}

impl Stuck {
    fn new(stderr: impl Into<OwnedFd>, reader: impl Into<OwnedFd>) -> Self {
        let stuck = Self { stderr: stderr.into(), reader: File::from(reader.into()), key: b"" };
        let flags = |flags| fcntl(&stuck.stderr, FcntlArg::F_SETFL(flags)).unwrap();
        flags(OFlag::O_NONBLOCK);
        // A terminal has room again when the kernel has moved the text to the other side.
        while takes_more(&stuck.stderr, PollTimeout::from(500_u16)) {
            for bytes in [&[b'x'; 4096][..], b"x", b"\n"] {
                while write(&stuck.stderr, bytes) != Err(Errno::EAGAIN) {}
            }
        }
        flags(OFlag::empty());
        stuck
    }

    fn pipe() -> Self {
        let (reader, writer) = pipe().unwrap();
        Self::new(writer, reader)
    }

    /// As the journal's, which systemd connects to stderr.
    fn socket() -> Self {
        let (reader, writer) = UnixStream::pair().unwrap();
        Self::new(writer, reader)
    }

    fn terminal() -> Self {
        let terminal = openpty(None, None).unwrap();
        Self::new(terminal.slave, terminal.master)
    }

    /// Ctrl-S was pressed.
    fn stopped_terminal() -> Self {
        let terminal = openpty(None, None).unwrap();
        write(&terminal.master, b"\x13").unwrap();
        eventually("a stopped terminal", SOON, || {
            (!takes_more(&terminal.slave, PollTimeout::ZERO)).then_some(())
        });
        Self { stderr: terminal.slave, reader: File::from(terminal.master), key: b"\x11" }
    }

    fn start(&self, args: &[String]) -> Process {
        self.start_with(args, Stdio::null())
    }

    fn start_with(&self, args: &[String], stdin: Stdio) -> Process {
        let mut command = Command::new(binary());
        command.arg("--root-dir=/nonexistent/nodelet").args(args).stdin(stdin);
        command.env_remove("NOTIFY_SOCKET").env_remove("JOURNAL_STREAM");
        Process(command.stderr(self.stderr.try_clone().unwrap()).spawn().unwrap())
    }

    /// Reads from now on.
    fn read(mut self) -> Arc<Mutex<String>> {
        // Of this process, too.
        let flags = OFlag::from_bits_retain(fcntl(&self.stderr, FcntlArg::F_GETFL).unwrap());
        assert!(!flags.contains(OFlag::O_NONBLOCK), "{flags:?}");
        self.reader.write_all(self.key).unwrap_or_else(|e| assert!(self.key.is_empty(), "{e}"));
        let text = Arc::new(Mutex::new(String::new()));
        let sink = text.clone();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = self.reader.read(&mut bytes) {
                sink.lock().unwrap().push_str(str::from_utf8(&bytes[..length]).unwrap());
            }
        });
        text
    }
}

fn takes_more(stderr: &OwnedFd, limit: PollTimeout) -> bool {
    let mut polled = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    poll(&mut polled, limit).unwrap() > 0
}

/// Killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The flags of a fast agent, with a line for each request.
fn agent(double: &Double, folder: &Folder, name: &str) -> Vec<String> {
    let kubeconfig = folder.write(name, double.kubeconfig_for_node(name));
    let named =
        [format!("--kubeconfig={}", kubeconfig.display()), format!("--hostname-override={name}")];
    let fast = FAST.iter().chain(&["--v=2"]).map(|flag| (*flag).to_owned());
    named.into_iter().chain(fast).collect()
}

fn agent_goes_on(name: &str, stuck: impl Fn() -> Stuck) {
    let (double, folder) = (Double::start(), Folder::new(name));
    let stderrs = [stuck(), stuck()];
    let _reported = stderrs[0].start(&agent(&double, &folder, "pi"));
    let mut ended = stderrs[1].start(&agent(&double, &folder, "ended"));
    for node in ["pi", "ended"] {
        eventually(&format!("three renewals of {node}"), SOON, || {
            let renewals = renewals(&double);
            let count = renewals.iter().filter(|request| request.path.ends_with(node)).count();
            (count >= 3).then_some(())
        });
    }
    kill(Pid::from_raw(ended.0.id().cast_signed()), Signal::SIGTERM).unwrap();
    let status = eventually("the end", END, || ended.0.try_wait().unwrap());
    assert!(status.success(), "{status}");

    let [reported, _] = stderrs;
    let text = reported.read();
    let part = "nodelet: warning: log lines dropped: ";
    let after = |text: &str| Some(text.split_once(part)?.1.matches('\n').count());
    eventually("the number of dropped lines", SOON, || {
        after(&text.lock().unwrap()).filter(|lines| *lines > 2)
    });
    let text = text.lock().unwrap();
    let (whole, _) = text.rsplit_once('\n').unwrap();
    for line in whole.lines().map(|line| line.trim_start_matches('x')) {
        let starts = line.matches("nodelet: ").count();
        assert!(line.is_empty() || (line.starts_with("nodelet: ") && starts == 1), "{line:?}");
    }
    let (_, rest) = text.split_once(part).unwrap();
    let (dropped, _) = rest.split_once(';').unwrap();
    assert!(dropped.parse::<u32>().unwrap() > 5, "{dropped}");
}

#[test]
fn an_agent_goes_on_while_nobody_reads_its_pipe() {
    agent_goes_on("stderr-pipe", Stuck::pipe);
}

#[test]
fn an_agent_goes_on_while_the_journal_hangs() {
    agent_goes_on("stderr-socket", Stuck::socket);
}

#[test]
fn an_agent_goes_on_while_nobody_reads_its_terminal() {
    agent_goes_on("stderr-terminal", Stuck::terminal);
}

#[test]
fn an_agent_goes_on_after_ctrl_s() {
    agent_goes_on("stderr-ctrl-s", Stuck::stopped_terminal);
}

#[test]
fn the_port_answers_while_nobody_reads_its_log() {
    let (double, folder) = (Double::start(), Folder::new("stderr-serve"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stderr = Stuck::pipe();
    let args = [vec!["serve".to_owned()], flags(&double, &folder)].concat();
    let _serve = stderr.start_with(&args, Stdio::from(OwnedFd::from(listener)));
    assert_eq!(Client::connect(port, None).ask("GET", "/healthz", &[]).code, 401);
}

#[test]
fn the_runtime_is_asked_while_nobody_reads_the_log() {
    let folder = Folder::new("stderr-runtime");
    let (socket, facts) = (folder.path().join("c.sock"), folder.path().join("facts"));
    let stderr = Stuck::pipe();
    let args = [
        "runtime".to_owned(),
        format!("--container-runtime-endpoint=unix://{}", socket.display()),
        format!("--container-runtime-facts={}", facts.display()),
    ];
    // The first question has no answer, which is a line.
    let listener = UnixListener::bind(&socket).unwrap();
    let _asks = stderr.start(&args);
    drop(listener.accept().unwrap());
    drop(listener);
    std::fs::remove_file(&socket).unwrap();
    let _runtime = Runtime::start(&socket, 1);
    let is_known = || std::fs::read_to_string(&facts).is_ok_and(|text| text.contains("containerd"));
    eventually("the facts", SOON, || is_known().then_some(()));
}

/// A supervisor starts it again.
#[test]
fn a_start_that_fails_ends_while_nobody_reads_why() {
    let stderr = Stuck::pipe();
    for command in ["run", "runtime", "serve"] {
        let mut args = vec!["--container-runtime-endpoint=http://x".to_owned()];
        args.extend((command != "run").then(|| command.to_owned()));
        let mut process = stderr.start(&args);
        let status = eventually("the end", SOON, || process.0.try_wait().unwrap());
        assert!(!status.success(), "{command}: {status}");
    }
}
