//! What the steps of `nodelet join` share: time, requests, repeated attempts, findings.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::command::JoinSettings;
use super::files::JoinPaths;
use super::json_text;
use crate::client::api::{Api, Distrust};
use crate::client::api_config::{ApiConfig, Endpoint, Pem};
use crate::client::reach::{dial, resolve};
use crate::credentials::kubeconfig::read_pem;
use crate::kube::finding::{Finding, Mark, Report};
use crate::kube::instant::{Mono, Now};
use crate::kube::message::{Answer, Request, Response};
use crate::kube::text::Fault;
use crate::kube::time::Wall;
use crate::os::clock::{self, Clock};
use crate::os::command::{CommandFailure, End};
use crate::os::write::Disk;

/// The names of the steps, which stay the same from version to version.
pub(super) const CHECKS: [&str; 18] = [
    "root",
    "joined",
    "name-resolution",
    "tcp",
    "cluster-info",
    "signature",
    "ca",
    "tls",
    "token",
    "csr-create",
    "approval",
    "namesake",
    "certificate",
    "renewal",
    "files",
    "start",
    "ready",
    "metrics",
];

/// The remedy of a file or folder that cannot be read or written.
pub(super) const SUDO: &str = "run it with sudo; if it was, see dmesg";

/// What to do when a file of the join could not be read or written.
pub(super) const UNCHANGED: &str = "nothing else was changed; correct it and join again";

/// The remedy of a `--certificate-authority` that has no certificate.
pub(super) const NOT_PEM: &str = "is it a CA in PEM form?";

/// Time limit of one request: as of a registration, with the connection and the name lookup.
const CALL: Duration = Duration::from_secs(20);
/// The flag of an agent that renews its certificate.
pub(super) const ROTATE: &str = "--rotate-certificates";

/// Delay of the next attempt, as in kubeadm.
pub(super) const RETRY: Duration = Duration::from_secs(5);
/// Shortest delay, if the server asks for less.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);

/// The machine that joins.
#[derive(Default)]
pub(super) struct Board {
    /// The name of the Node; empty in an image of many boards.
    pub(super) name: String,
    /// Its address; empty if that is not known yet.
    pub(super) address: String,
    /// Empty if it cannot be read.
    pub(super) boot_id: String,
    /// The version that its agent reports.
    pub(super) kubelet_version: String,
}

/// The clock and the network of a join. Tests simulate both.
pub(super) trait ClockAndNetwork {
    fn now(&self) -> Now;
    /// Waits for the whole time.
    fn pause(&self, time: Duration);
    /// The check `tcp`.
    fn dial(&self, addresses: &[SocketAddr]) -> Finding;
    fn call(&self, api: &mut Api, request: &Request, limit: Duration) -> Answer;
}

impl ClockAndNetwork for Clock {
    fn now(&self) -> Now {
        self.now()
    }

    fn pause(&self, time: Duration) {
        clock::pause(time);
    }

    fn dial(&self, addresses: &[SocketAddr]) -> Finding {
        dial(addresses, false)
    }

    fn call(&self, api: &mut Api, request: &Request, limit: Duration) -> Answer {
        api.call(request, limit)
    }
}

/// One run of `nodelet join`.
pub(super) struct JoinRun<'a> {
    pub(super) settings: &'a JoinSettings,
    pub(super) board: Board,
    pub(super) paths: JoinPaths,
    pub(super) disk: Disk,
    /// The URL of the server.
    pub(super) server: String,
    /// When the new certificate expires.
    pub(super) expires: Option<Wall>,
    /// The paths of the new files.
    pub(super) wrote: Vec<String>,
    findings: Vec<Finding>,
    clock_and_network: &'a dyn ClockAndNetwork,
    /// The end of `--timeout`.
    end: Mono,
    print: &'a mut dyn FnMut(&str) -> End,
}

/// The result of the steps before the files.
pub(super) struct Joined {
    /// The server, verified, with the credentials to store.
    pub(super) config: ApiConfig,
    /// The flags of the run that say who renews the certificate; empty if the cluster would not
    /// approve a renewal.
    pub(super) renewal: Vec<String>,
}

impl<'a> JoinRun<'a> {
    pub(super) fn new(
        settings: &'a JoinSettings,
        board: Board,
        clock_and_network: &'a dyn ClockAndNetwork,
        print: &'a mut dyn FnMut(&str) -> End,
    ) -> Self {
        Self {
            settings,
            board,
            paths: JoinPaths::new(settings.root.as_deref()),
            disk: Disk::default(),
            server: settings.server.clone(),
            expires: None,
            wrote: Vec::new(),
            findings: Vec::new(),
            end: clock_and_network.now().mono.after(settings.timeout),
            clock_and_network,
            print,
        }
    }
}

impl JoinRun<'_> {
    pub(super) fn now(&self) -> Now {
        self.clock_and_network.now()
    }

    /// Waits; false after `--timeout`.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let left = self.end.since(self.now().mono);
        self.clock_and_network.pause(time.min(left));
        !self.end.since(self.now().mono).is_zero()
    }

    pub(super) fn send(&self, api: &mut Api, request: &Request) -> Answer {
        self.send_within(api, request, CALL)
    }

    /// Sends one request; silence after `--timeout`.
    pub(super) fn send_within(&self, api: &mut Api, request: &Request, limit: Duration) -> Answer {
        match self.end.since(self.now().mono) {
            left if left.is_zero() => {
                let seconds = self.settings.timeout.as_secs();
                Err(format!("gave up after {seconds} s (--timeout)").into())
            }
            left => self.clock_and_network.call(api, request, limit.min(left)),
        }
    }

    pub(super) fn api(
        &self,
        config: &ApiConfig,
        check: &'static str,
        remedy: &str,
    ) -> Result<Api, Finding> {
        Api::new(config).map_err(|why| failed(check, why, remedy))
    }

    /// Repeats [`Self::send`] while the server is silent, starts or is busy. `remedy` is for a
    /// certificate of the server that cannot be verified.
    pub(super) fn answer(
        &self,
        api: &mut Api,
        request: &Request,
        check: &'static str,
        remedy: &str,
    ) -> Result<Response, Finding> {
        self.until(|| {
            let outcome = self.send(api, request);
            settled(api, outcome, check, remedy)
        })
    }

    /// Repeats `attempt` as [`Self::poll`] does, and logs the cause of the first repetition.
    pub(super) fn until<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Stop>,
    ) -> Result<T, Finding> {
        let mut was_logged = false;
        self.poll(|| {
            let tried = attempt();
            if let Err(Stop::Again(cause, _)) = &tried
                && !std::mem::replace(&mut was_logged, true)
            {
                log::info!("{}: {}; trying again until --timeout", cause.check, cause.detail);
            }
            tried
        })
    }

    /// Repeats `attempt`. After `--timeout` the last failure is the result.
    pub(super) fn poll<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, Stop>,
    ) -> Result<T, Finding> {
        loop {
            match attempt() {
                Ok(found) => return Ok(found),
                Err(Stop::Failed(finding)) => return Err(finding),
                Err(Stop::Again(finding, pause)) if !self.pause(pause) => return Err(finding),
                Err(Stop::Again(..)) => {}
            }
        }
    }

    /// Carries out the checks `name-resolution` and `tcp` of `nodelet check`. Returns how to reach
    /// the server, without credentials, and a client that is not connected yet. Without
    /// `--certificate-authority` the client does not verify the server.
    pub(super) fn reach(&mut self) -> Result<(ApiConfig, Api), Finding> {
        let endpoint = Endpoint::parse(&self.settings.server);
        let endpoint =
            endpoint.map_err(|why| failed("name-resolution", why, "is the endpoint HOST:PORT?"))?;
        let mut config = ApiConfig::at(endpoint);
        config.ca = self.settings.authority.as_deref().map(authority).transpose()?;
        config.insecure = config.ca.is_none();
        let api = self.api(&config, "ca", NOT_PEM)?;
        let (finding, addresses) = self.until(|| {
            let (finding, addresses) = resolve(&config.endpoint, &Clock::start());
            Ok((passed(finding)?, addresses))
        })?;
        self.add(finding);
        self.add(self.until(|| passed(self.clock_and_network.dial(&addresses)))?);
        Ok((config, api))
    }

    /// Adds a note for each check that is not needed.
    pub(super) fn notes(&mut self, checks: &[&'static str], why: &str) {
        for check in checks {
            self.add(Finding::note(check, why, ""));
        }
    }

    /// Adds the finding of a step. A failed one is returned instead, and ends the run.
    pub(super) fn step(&mut self, finding: Finding) -> Result<(), Finding> {
        if finding.mark == Mark::Failed {
            return Err(finding);
        }
        self.add(finding);
        Ok(())
    }

    /// Adds a finding, and prints it at once.
    pub(super) fn add(&mut self, finding: Finding) {
        if !self.settings.json {
            // A closed stdout must not end a join half way; the files matter more.
            let _ = (self.print)(&finding.line());
        }
        self.findings.push(finding);
    }

    /// Prints the end of the report. Steps that were not taken are skipped.
    pub(super) fn finish(self) -> End {
        // Steps are skipped after a failure. Without one, the board has joined already, which is
        // what the check `joined` found.
        let failed = self.findings.iter().find(|f| f.mark == Mark::Failed);
        let cause = failed.map_or("joined", |finding| finding.check);
        let find = |check: &&'static str| {
            // A failure comes after what the same step found before.
            let found = self.findings.iter().rfind(|f| f.check == *check);
            found.cloned().unwrap_or_else(|| Finding::skipped(check, cause))
        };
        let report =
            Report { findings: CHECKS.iter().map(find).collect(), node_name: self.board.name };
        if self.settings.json {
            let members = vec![
                ("server", json!(self.server)),
                ("certificateExpires", json!(self.expires.map(Wall::time))),
                ("wrote", json!(self.wrote)),
            ];
            (self.print)(&json_text(&report, members))?;
        } else if let Some(skipped) = report.skipped() {
            (self.print)(&skipped)?;
        }
        report.end("join").map_err(CommandFailure::Other)
    }
}

/// Why an attempt has no result.
pub(super) enum Stop {
    /// It failed for good.
    Failed(Finding),
    /// It may succeed after this time. If `--timeout` ends before, the finding is the result.
    Again(Finding, Duration),
}

impl From<Finding> for Stop {
    fn from(finding: Finding) -> Self {
        Self::Failed(finding)
    }
}

/// The finding. A failed one is repeated, because a later attempt may succeed.
fn passed(finding: Finding) -> Result<Finding, Stop> {
    match finding.mark {
        Mark::Failed => Err(Stop::Again(finding, RETRY)),
        _ => Ok(finding),
    }
}

/// The response, or [`Stop::Again`] if a later attempt may have another one. A certificate that
/// cannot be verified fails at once, with `remedy`. If a date in it is the cause, the fault has a
/// remedy of its own.
pub(super) fn settled(
    api: &Api,
    outcome: Answer,
    check: &'static str,
    remedy: &str,
) -> Result<Response, Stop> {
    let may_pass = is_transient(&outcome);
    let (why, pause) = match outcome {
        Err(why) => match api.distrust() {
            None => (why, RETRY),
            Some(Distrust::Date) => return Err(Finding::failed(check, why, "").into()),
            Some(_) => return Err(failed(check, why, remedy).into()),
        },
        Ok(response) => match response.accepted() {
            Err(refused) if may_pass => {
                let asked = refused.retry_after.map(|asked| asked.max(SHORTEST_RETRY));
                (refused.into(), asked.unwrap_or(RETRY))
            }
            _ => return Ok(response),
        },
    };
    Err(Stop::Again(failed(check, why, "is this the API server, and is it up?"), pause))
}

/// A finding of a failure. The remedy of `why` is for a running agent, and is dropped.
pub(super) fn failed(check: &'static str, why: impl Into<Fault>, remedy: &str) -> Finding {
    Finding::failed(check, why.into().what, remedy)
}

/// Whether a later attempt may succeed: the server starts, or is busy.
pub(super) fn is_transient(outcome: &Answer) -> bool {
    match outcome {
        Err(_) => true,
        Ok(response) => response.code >= 500 || response.code == 429,
    }
}

/// The file of `--certificate-authority`.
pub(super) fn authority(path: &Path) -> Result<Pem, Finding> {
    let read = read_pem(path);
    let mut ca = read.map_err(|why| Finding::failed("ca", why, "give the CA of the API server"))?;
    // The kubeconfig gets its text, not its path.
    ca.file = None;
    Ok(ca)
}

pub(super) fn pem(source: &str, bytes: Vec<u8>) -> Pem {
    Pem { file: None, source: source.to_owned(), bytes }
}
