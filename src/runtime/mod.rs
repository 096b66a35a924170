//! The container runtime: its flags (`config`), the questions, and its part of `nodelet check`. The
//! Node's members are set in `node/status/runtime.rs`.
//!
//! `nodelet runtime` asks it, by `cri` or `rest`, and writes what it says (`report`, `state`) to
//! the file (`form`) that the agent reads with each status (`file`). It is a process of its own,
//! because a runtime may hang, and its socket is root's: the process that holds the Lease talks to
//! the API server alone. Plain sequential code: ask, write, sleep.

mod check;
pub mod config;
pub mod cri;
pub mod file;
pub mod form;
mod grpc;
pub mod hpack;
pub mod report;
pub mod rest;
mod socket;
mod state;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::kube::facts::RuntimeFacts;
use crate::kube::finding::Finding;
use crate::kube::instant::Mono;
use crate::kube::outage_log::OutageLog;
use crate::kube::text::Fault;
use crate::os::clock::{awake, boot_number, pause};
use crate::os::command::End;
use crate::os::guard;
use crate::os::write::VolatileFile;
use config::{Protocol, RuntimeConfig};
use cri::Cri;
use file::RuntimeFile;
use report::{Part, RuntimeReport};
use socket::{RuntimeStream, TimedSocket, now};
use state::RuntimeState;

/// A question that has no answer after this time has failed.
pub const OVERDUE: Duration = Duration::from_secs(20);
/// Limit for all details, which are asked for after the status: the list of images has what the
/// others leave, and at least half. With 10 s, a list that hangs delays no question for the status:
/// a status that has its answer within [`OVERDUE`] is there before the last one is 30 s old. A
/// question for the folder of Podman's images has [`OVERDUE`] as a whole, and the folder three
/// quarters of what is left.
const DETAILS_OVERDUE: Duration = Duration::from_secs(10);

/// Asks the container runtime for the agent, until the process is ended. Its times count from the
/// boot, as in the file. Without a runtime there is nothing to do, which is no failure: the unit is
/// started with the agent's.
pub fn run(config: Option<RuntimeConfig>) -> End {
    let Some(config) = config else {
        log::info!("no --container-runtime-endpoint, so there is nothing to do");
        return Ok(());
    };
    let mut client = Client::new(&config, OVERDUE);
    let mut state = RuntimeState::new(config.protocol);
    let mut file = VolatileFile::reopen(&config.facts_file);
    let boot = boot_number();
    let mut file_log = OutageLog::new("facts of the container runtime");
    // Without news the file is not written: its time grows old, and the agent sees that the runtime
    // does not answer.
    let mut tell = |state: &RuntimeState, is_news| {
        if is_news {
            let written = publish(state, &mut file, boot);
            let error = written.err().map(|why| why.to_string());
            file_log.ended(error.as_deref(), now());
        }
    };
    loop {
        let due = turn(&mut client, &mut state, &mut tell);
        pause(due.since(now()));
    }
}

/// Asks if a question is due. Calls `tell` with what is known then and whether that is news: before
/// the details, before the list of images, and at the end. Returns when the next question is due.
fn turn(
    client: &mut Client<'_>,
    state: &mut RuntimeState,
    tell: &mut dyn FnMut(&RuntimeState, bool),
) -> Mono {
    let start = now();
    let Some(last) = state.query(start) else {
        tell(state, true);
        return start.after(state.pause());
    };
    let (report, answered) = client.ask(last, &mut |report, answered| {
        let is_news = state.on_part(report, answered);
        tell(state, is_news);
    });
    let is_news = state.on_report(report, answered);
    tell(state, is_news);
    answered.after(state.pause())
}

/// Writes the state to the file. On a full /run the old file is kept. If its status is still true,
/// it gets the time of the last success.
fn publish(state: &RuntimeState, file: &mut VolatileFile, boot: u64) -> Result<(), Fault> {
    let written = file.write(state.file(boot));
    if written.is_err()
        && let Some(content) = file.content().and_then(|last| state.file_after(last, boot))
    {
        let _ = file.write(content);
    }
    written
}

/// Asks for all details, for at most `limit`: for commands that ask once.
pub fn ask(config: &RuntimeConfig, limit: Duration) -> RuntimeReport {
    Client::new(config, limit).ask(Part::List, &mut |_, _| {}).0
}

/// What a Node reports after this one question.
pub fn facts_of(config: &RuntimeConfig, found: RuntimeReport) -> RuntimeFacts {
    let mut state = RuntimeState::new(config.protocol);
    state.on_report(found, now());
    state.into_facts()
}

/// The findings of `nodelet check`: those of one question, and of the file of `nodelet runtime`.
/// `offers_pods` is `--max-pods` above 0.
pub fn findings(config: &RuntimeConfig, found: &RuntimeReport, offers_pods: bool) -> Vec<Finding> {
    let path = &config.facts_file;
    let fresh = RuntimeFile::new(path).fresh(awake());
    let mut findings = check::question(config, found, offers_pods);
    let runs = guard::exists(Path::new(check::UNIT_FOLDER));
    findings.push(check::facts_file(path, fresh, guard::exists(path), runs));
    findings
}

/// Asks one runtime, each time within the same limit.
struct Client<'a> {
    config: &'a RuntimeConfig,
    cri: Cri,
    limit: Duration,
    /// The deadline of the current question.
    deadline: Rc<Cell<Mono>>,
    /// Podman has named the folder of its images since its last failure. It is not asked again: on
    /// Debian each answer takes it 5 to 10 s, in which dpkg looks for the package of each program.
    /// Upstream: containers/common issues 1578 and 1923.
    knows_folder: bool,
}

impl<'a> Client<'a> {
    fn new(config: &'a RuntimeConfig, limit: Duration) -> Self {
        Self { config, cri: Cri::default(), limit, deadline: Rc::default(), knows_folder: false }
    }

    /// Also returns the time at which the status was answered, or at which the question failed.
    /// Calls `on_part` with both before each part that follows the status.
    fn ask(
        &mut self,
        last: Part,
        on_part: &mut dyn FnMut(&RuntimeReport, Mono),
    ) -> (RuntimeReport, Mono) {
        let (limit, deadline) = (self.limit, &self.deadline);
        let is_podman = self.config.protocol == Protocol::Podman;
        let with_folder = !(is_podman && self.knows_folder);
        let (details, quarters) =
            if is_podman && with_folder { (limit, 3) } else { (DETAILS_OVERDUE, 2) };
        let end = now().after(limit);
        deadline.set(end);
        let mut answered = None;
        let mut begin = |part, report: &RuntimeReport| {
            let now = now();
            let answered = *answered.get_or_insert(now);
            let end = end.min(answered.after(details));
            on_part(report, answered);
            deadline.set(match part {
                Part::Status | Part::List => end,
                Part::Details => now.after(end.since(now) * quarters / 4),
            });
        };
        let mut open = |path: &Path| {
            let socket = TimedSocket::open(path, limit, deadline)?;
            Ok(Box::new(socket) as Box<dyn RuntimeStream>)
        };
        let mut report = match self.config.protocol {
            Protocol::Cri => self.cri.ask(self.config, last, &mut open, &mut begin),
            Protocol::Docker | Protocol::Podman => {
                rest::ask(self.config, last, with_folder, &mut open, &mut begin)
            }
        };
        let has_folder = self.knows_folder || report.image_folder.is_some();
        self.knows_folder = report.status.is_ok() && has_folder;
        let ended = now();
        let answered = answered.unwrap_or(ended);
        report.details_took = ended.since(answered);
        (report, answered)
    }
}

#[cfg(test)]
mod tests;
