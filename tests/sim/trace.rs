//! What happened in a run, for the sentences, the story, and the comparison of two runs.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::devices::Truth;
use super::process::{Exit, Pid, Signal};
use crate::kube::time::Wall;
use crate::os::wakeup::Woken;

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Since the begin of the run.
    pub(crate) at: Duration,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// An event of the plan begins or ends, by its text.
    Fault { begins: bool, text: String },
    /// A process starts.
    Starts { pid: Pid, name: &'static str, line: String },
    /// A process has ended.
    Ends { pid: Pid, name: &'static str, exit: Exit },
    /// A process gets a signal.
    Signal { pid: Pid, signal: Signal },
    /// A turn of the agent: it waits, or polls.
    Waits { pid: Pid, timeout: Duration },
    /// What ended a wait, if anything did.
    Woke { pid: Pid, woken: Woken },
    /// A connection was opened, or not.
    Connects { pid: Pid, address: String, opened: bool },
    /// A TLS handshake has ended at the server; the subject of the client's certificate.
    Handshake { server: usize, certificate: Option<String>, until: Option<Wall> },
    /// A whole request has reached a server.
    Request(Box<Exchange>),
    /// A request was carried out or refused, or there will be no answer (0).
    Answer(Box<Exchange>),
    /// The client of a request has read its whole answer, or has it and reads no further.
    Got(Got),
    /// What others wrote to an object, before and after a write of the agent.
    Kept { object: &'static str, before: Vec<String>, after: Vec<String> },
    /// The status of Ready in the store has changed; empty without a Node.
    Ready { status: String },
    /// A log line.
    Log { pid: Pid, level: log::Level, is_verbose: bool, text: String, place: String },
    /// A line on stdout or stderr.
    Print { pid: Pid, text: String },
    /// An operation of a file change was carried out, or the removal of a file failed.
    File { op: String },
    /// A read of a file or folder is slow, or fails.
    Reads { path: String, slow: Duration, failed: bool },
    /// What is true of the board from now on.
    Board(Box<Truth>),
    /// The history of boots, as the agent wrote it, or as it is after a start of the kernel.
    Boots { is_written: bool, text: String },
    /// A datagram of sd_notify.
    Notify { text: String },
    /// A process begins one read of a file, or one operation of a file change, which is slow.
    Blocks { pid: Pid, with: &'static str, lasts: Duration },
    /// The power failed: files that are a part of what was written, and whether the link to the
    /// certificate, which was on the card for good, leads nowhere.
    PowerLost { torn: Vec<String>, has_lost_identity: bool },
    /// The files of the board, at the end of the faults of a story or of its quiet time.
    Files { while_faulty: bool, seen: Vec<FileSeen> },
    /// A restart of the agent in an unchanged world: what the cluster has before it, and after it.
    Twin { begins: bool, objects: Box<Objects> },
    /// The state of the cluster, at a moment that is judged.
    Judged(Box<State>),
    /// A command has ended.
    Ran(Box<Ran>),
    /// A rule of the world was broken, which no sentence needs to look for.
    Broken { sentence: usize, text: String },
}

/// An answer, as its client has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Got {
    pub(crate) pid: Pid,
    /// Of the request.
    pub(crate) number: u64,
    pub(crate) code: u16,
    /// It is not a page of a gateway, nor cut JSON.
    pub(crate) is_of_server: bool,
    /// It says what is not so: what its client makes of it is open.
    pub(crate) is_odd: bool,
    /// A chunk of it has no length: it is told only of a client that did not read to its end, and
    /// may have read too little to see that.
    pub(crate) is_broken: bool,
    pub(crate) retry_after: Option<Duration>,
}

/// A request, and its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exchange {
    /// Of the run.
    pub(crate) number: u64,
    /// Who sent it.
    pub(crate) pid: Pid,
    pub(crate) cluster: usize,
    pub(crate) server: usize,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) body: Value,
    /// Who the server says it is; empty before the answer.
    pub(crate) user: String,
    /// 0: there is no answer.
    pub(crate) code: u16,
    pub(crate) answer: Value,
    pub(crate) retry_after: Option<Duration>,
    /// The Node before a write of it was carried out.
    pub(crate) before: Value,
    /// When the request was complete.
    pub(crate) arrived: Duration,
    /// What the clock of the board showed then.
    pub(crate) clock: Wall,
    /// The server has carried it out.
    pub(crate) is_carried_out: bool,
}

/// A file or a link of the board.
#[derive(Clone, Debug)]
pub(crate) struct FileSeen {
    pub(crate) path: String,
    /// Of a file; 0 for a link.
    pub(crate) mode: u32,
    /// It has a key, or another text that only its owner may see.
    pub(crate) is_secret: bool,
}

/// What the cluster has of the board.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) node: Value,
    pub(crate) lease: Value,
    /// Type, reason and message of each event, as often as it counts, sorted.
    pub(crate) events: Vec<String>,
}

/// What is judged after a story.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// When the last fault ended.
    pub(crate) healed: Duration,
    /// The cluster that the board is to be in.
    pub(crate) cluster: usize,
    pub(crate) node: Value,
    /// The last renewal that the store took, of the board's process.
    pub(crate) renewed: Option<Duration>,
    /// Why the promise does not hold here, if it does not.
    pub(crate) excuse: Option<&'static str>,
    /// Since when the board's clock has been right. NTP may have no answer yet.
    pub(crate) clock_right: Option<Duration>,
    /// Since when the card takes writes. One may stay read-only for longer than its story.
    pub(crate) card_writes: Option<Duration>,
    /// The board runs, and is to run; and no person still follows what it says.
    pub(crate) is_up: bool,
    /// systemd has READY=1 of the process that runs.
    pub(crate) is_ready: bool,
    /// The line of `systemctl status`.
    pub(crate) status: String,
    /// The last lines of the log, newest last.
    pub(crate) lines: Vec<String>,
    /// What the agent has not done of what it promises for the servers' objects: kind and text;
    /// `None` where that cannot be judged now.
    pub(crate) promises: Option<Vec<(&'static str, String)>>,
}

/// A command that has ended, and what was true then.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) pid: Pid,
    /// `join`, `check` or `reset`.
    pub(crate) command: &'static str,
    pub(crate) began: Duration,
    pub(crate) exit: Exit,
    /// What it printed.
    pub(crate) lines: Vec<String>,
    /// The Node that the line names, or that the board has.
    pub(crate) name: String,
    /// The file with the flags of the join.
    pub(crate) flags: String,
    /// `--hostname-override` of the next start of the unit; `None` if the administrator changed the
    /// flags while the command ran.
    pub(crate) starts_as: Option<String>,
    /// In what the process of the unit differs from its next start; `None` without a process.
    pub(crate) former: Option<&'static str>,
    /// The certificate of the process is not stored: a check does not have it.
    pub(crate) has_lost_pair: bool,
    /// When the process of the unit started, if it runs.
    pub(crate) runs_since: Option<Duration>,
    /// The Node in the store of its cluster.
    pub(crate) has_node: bool,
    pub(crate) ready: String,
    pub(crate) renewed: Option<Duration>,
}

impl Ran {
    /// For the tests of the sentences: a command that succeeded beside no process, on a board whose
    /// Node is Ready.
    pub(crate) fn example(command: &'static str) -> Self {
        Self {
            pid: 2,
            command,
            began: Duration::ZERO,
            exit: Exit::Code(true),
            lines: Vec::new(),
            name: "pi".to_owned(),
            flags: String::new(),
            starts_as: None,
            former: None,
            has_lost_pair: false,
            runs_since: None,
            has_node: true,
            ready: "True".to_owned(),
            renewed: None,
        }
    }

    /// It has no failure, and no line that asks for a restart or a start.
    pub(crate) fn says_all_is_well(&self) -> bool {
        let asks =
            |line: &String| line.contains("systemctl restart") || line.contains("start nodelet");
        self.exit == Exit::Code(true) && !self.lines.iter().any(asks)
    }

    pub(crate) fn line(&self, start: &str) -> Option<&str> {
        self.lines.iter().find(|line| line.starts_with(start)).map(String::as_str)
    }
}

impl Exchange {
    pub(crate) fn is_lease(&self) -> bool {
        self.target.contains("/leases")
    }

    pub(crate) fn is_node_write(&self) -> bool {
        self.method != "GET" && self.target.starts_with("/api/v1/nodes")
    }

    /// A write of the Lease that the server took.
    pub(crate) fn is_renewal(&self) -> bool {
        self.is_lease() && self.is_carried_out && self.method != "GET" && self.code < 300
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:>10.3}] ", self.at.as_secs_f64())?;
        match &self.what {
            What::Fault { begins: true, text } => write!(f, "+ {text}"),
            What::Fault { begins: false, text } => write!(f, "- {text}"),
            What::Starts { name, pid, line } => write!(f, "{name} {pid} starts: {line}"),
            What::Ends { name, pid, exit } => write!(f, "{name} {pid} ends: {exit:?}"),
            What::Signal { pid, signal } => write!(f, "process {pid}: signal {signal:?}"),
            What::Waits { pid, timeout } => write!(f, "process {pid} waits {timeout:?}"),
            What::Woke { pid, woken } => write!(f, "process {pid} woke: {woken:?}"),
            What::Connects { pid, address, opened: true } => {
                write!(f, "process {pid}: connected to {address}")
            }
            What::Connects { pid, address, opened: false } => {
                write!(f, "process {pid}: no connection to {address}")
            }
            What::Handshake { server, certificate, .. } => {
                write!(
                    f,
                    "server {server}: TLS with {}",
                    certificate.as_deref().unwrap_or("no certificate")
                )
            }
            What::Request(request) => {
                write!(f, "server {}: {} {}", request.server, request.method, request.target)
            }
            What::Answer(answer) => {
                let Exchange { server, code, method, target, user, body, .. } = &**answer;
                write!(f, "server {server}: {code} for {method} {target} of {user:?} {body}")
            }
            What::Got(Got { number, code, .. }) => write!(f, "answer {code} of {number} was read"),
            What::Kept { object, before, after } => {
                write!(f, "{object}: of others {before:?}, after our write {after:?}")
            }
            What::Ready { status } => write!(f, "Ready is {status:?}"),
            What::Log { level, text, .. } => write!(f, "log {level}: {text}"),
            What::Print { text, .. } => write!(f, "prints: {text}"),
            What::File { op, .. } => write!(f, "file: {op}"),
            What::Reads { path, slow, failed } => {
                write!(f, "read of {path}: {slow:?}{}", if *failed { ", fails" } else { "" })
            }
            What::Board(truth) => write!(f, "board: {truth:?}"),
            What::Boots { text, .. } => write!(f, "boots: {}", text.replace('\n', "; ")),
            What::Notify { text } => write!(f, "notify: {}", text.replace('\n', " ")),
            What::Blocks { with, lasts, .. } => write!(f, "{with} takes {lasts:?}"),
            What::PowerLost { torn, has_lost_identity } => {
                write!(f, "the power is lost: torn {torn:?}, no identity {has_lost_identity}")
            }
            What::Files { seen, .. } => write!(f, "{} files", seen.len()),
            What::Twin { begins: true, .. } => write!(f, "the objects before a restart"),
            What::Twin { begins: false, .. } => write!(f, "the objects after a restart"),
            What::Judged(state) => {
                let ready = super::world::ready_of(&state.node);
                write!(
                    f,
                    "judged: Ready={ready} renewed={:?} excuse={:?}",
                    state.renewed, state.excuse
                )
            }
            What::Ran(ran) => write!(
                f,
                "{} {:?}: {} (the process has former {:?})",
                ran.command,
                ran.exit,
                ran.lines.join(" | "),
                ran.former
            ),
            What::Broken { sentence, text } => write!(f, "broken: {sentence}: {text}"),
        }
    }
}

impl What {
    /// What belongs into the story of a run: not each turn and each renewal.
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Waits { .. }
            | Self::Woke { .. }
            | Self::Request(_)
            | Self::Blocks { .. }
            | Self::Got(_)
            | Self::Kept { .. }
            | Self::Files { .. } => false,
            Self::Answer(answer) => !(answer.is_lease() && answer.code == 200),
            Self::Notify { text } => !text.starts_with("WATCHDOG"),
            Self::Log { is_verbose, .. } => !is_verbose,
            _ => true,
        }
    }
}
